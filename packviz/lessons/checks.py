"""The checks of the notebooks' exercises. Each takes the reader's answer and returns a `Verdict`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any

from packviz.aligned import Aligned
from packviz.cost import Ledger, Spec, flops
from packviz.layout import Layout, sequence_name
from packviz.lessons.verdict import Comparison, Verdict, exercise
from packviz.picture import Picture, show

NOT_YET = "Not solved yet: your function returns nothing. Replace the … with your own code and run the cell again."


@exercise
def half_padding(lengths: Any) -> Verdict:
    """Lengths of a batch of which exactly half is padding (notebook 00)."""
    layout = Layout(lengths)
    picture = [Picture(layout)]
    if 2 * layout.n_padding == layout.n_cells:
        return Verdict(True, f"{layout.n_padding} of {layout.n_cells} cells are padding: exactly half.", picture)
    more = "less" if 2 * layout.n_padding > layout.n_cells else "more"
    hint = "One long sequence makes padding in every other row."
    return Verdict(False, f"{layout.n_padding} of {layout.n_cells} cells are padding; you need {more}. {hint}", picture)


@exercise
def two_batches(lengths: Sequence[int], batches: Any) -> Verdict:
    """A split of `lengths` into two batches of equal size with the least padding (notebook 01)."""
    if sorted(n for batch in batches for n in batch) != sorted(lengths):
        return Verdict(False, f"Use each of the lengths {list(lengths)} exactly once.")
    half = len(lengths) // 2
    if [len(batch) for batch in batches] != [half, half]:
        return Verdict(False, f"Make two batches of {half} sequences each; yours have {[len(b) for b in batches]}.")
    pictures = [Picture(Layout(batch)) for batch in batches]
    padding = _padding(batches)
    best = min(_padding(split) for split in _splits(lengths, half))
    if padding == best:
        return Verdict(True, f"{padding} padding cells in all, and no split has fewer.", pictures)
    hint = "A batch is as wide as its longest sequence: which sequences should share it?"
    return Verdict(False, f"{padding} padding cells in all; {best} are possible. {hint}", pictures)


@exercise
def batch_sizes(answer: Callable[[list[int]], Any]) -> Verdict:
    """A function from lengths to batch sizes (notebook 02)."""
    from torch import zeros  # noqa: PLC0415
    from torch.nn.utils.rnn import pack_sequence  # noqa: PLC0415

    for lengths in ([3, 2], [5, 2], [3, 5, 2, 4], [1], [2, 2, 2], [9, 8, 6, 4, 3, 2]):
        yours = answer(list(lengths))
        if yours is None or yours is ...:
            return Verdict(False, NOT_YET)
        target = pack_sequence([zeros(n) for n in lengths], enforce_sorted=False).batch_sizes.tolist()
        rows = Comparison(f"batch sizes of lengths {lengths}", *_entries(yours, target))
        if list(rows.yours) != list(rows.target):
            hint = "At step t, count the sequences that are longer than t."
            return Verdict(False, f"Not yet for lengths {lengths}. {hint}", [show(lengths), rows])
    return Verdict(True, f"Equal to torch's batch sizes for every case; here is lengths {lengths}.", [rows])


@exercise
def packed_order(answer: Callable[[list[str]], Any]) -> Verdict:
    """A function from sequences (strings) to the entries of `data`, in order (notebook 02)."""
    from torch import tensor  # noqa: PLC0415
    from torch.nn.utils.rnn import pack_sequence  # noqa: PLC0415

    for words in (["abc", "x"], ["see", "count", "time"], ["pad", "it"], ["a"]):
        yours = answer(list(words))
        if yours is None or yours is ...:
            return Verdict(False, NOT_YET)
        packed = pack_sequence([tensor([ord(c) for c in word]) for word in words], enforce_sorted=False)
        target = [chr(code) for code in packed.data.tolist()]
        rows = Comparison(f"data of {words}", *_entries(yours, target))
        if list(rows.yours) != list(rows.target):
            hint = "Go step by step; within a step, the longest sequence comes first."
            return Verdict(False, f"Not yet for {words}. {hint}", [show(words), rows])
    return Verdict(True, "Equal to the order of torch's data for every case.", [show(["abc", "x"])])


# Counting FLOPs (notebook 03).


@exercise
def gru_flops(answer: Callable[[int, int, list[int]], Any]) -> Verdict:
    """A function from input size, hidden size and lengths to the packed forward GEMM FLOPs of a GRU (notebook 03)."""
    cases = [(3, 7, [9, 8, 6, 4, 3, 2]), (1, 1, [1]), (2, 5, [4, 4]), (16, 4, [3, 5, 2, 4]), (8, 8, [10, 1])]
    ledgers = [flops(Spec("GRU", i, h), lengths) for i, h, lengths in cases]
    answers = [answer(i, h, list(lengths)) for i, h, lengths in cases]
    if any(yours is None or yours is ... for yours in answers):
        return Verdict(False, NOT_YET)
    rows = Comparison("the five cases", *_entries(answers, [ledger.packed for ledger in ledgers]))
    for ledger, yours, (i, h, lengths) in zip(ledgers, answers, cases, strict=True):
        if yours != ledger.packed:
            case = f"Not yet for my_gru_flops({i}, {h}, {lengths}): {yours}, not {ledger.packed}."
            return Verdict(False, f"{case} {_flops_hint(ledger, yours)}", [rows, ledger])
    return Verdict(True, "Equal to the ledger for every case.", [rows, ledgers[0]])


def _flops_hint(ledger: Ledger, yours: Any) -> str:
    spec, cells = ledger.spec, ledger.layout.n_valid
    if yours == ledger.padded:
        return "That is the padded count: only real cells are computed."
    if 2 * yours == ledger.packed:
        return "Each entry of a product takes a multiplication and an addition."
    if 3 * yours == ledger.packed:
        return "A GRU has three gates, each with its own rows of the weights."
    if yours in [cells * product for product in spec.products[0]]:
        return "There are two products: one with the input, one with the state."
    return "A cell costs 2 · gates · hidden_size for each number of the input and of the state; then count the cells."


# Hidden states (notebook 04).


@exercise
def final_states(answer: Callable[[Any, list[int]], Any]) -> Verdict:
    """A function from the output of a packed bidirectional RNN to the final states of both directions (notebook 04)."""
    from torch import Tensor, arange, zeros  # noqa: PLC0415

    half = 2
    for lengths in ([5, 3, 2], [1], [3, 3], [2, 4]):
        rows, steps = len(lengths), max(lengths)
        output = zeros(rows, steps, 2 * half)
        # Each number says where it comes from: 1 + step + 100 · row, and 10000 more in the reverse half.
        output += 1 + arange(steps).reshape(1, -1, 1) + 100 * arange(rows).reshape(-1, 1, 1)
        output[..., half:] += 10_000
        yours = answer(output.clone(), list(lengths))
        if yours is None or yours is ...:
            return Verdict(False, NOT_YET)
        if not isinstance(yours, Tensor) or tuple(yours.shape) != (rows, 2 * half):
            got = f"of shape {tuple(yours.shape)}" if isinstance(yours, Tensor) else f"a {type(yours).__name__}"
            return Verdict(False, f"Return a tensor of shape {(rows, 2 * half)}: a row per sequence. Yours is {got}.")
        taken = [_taken_from(part) for row in yours.tolist() for part in (row[:half], row[half:])]
        wanted = [f"{sequence_name(b)}{end}" for b, n in enumerate(lengths) for end in (f"{n - 1}→", "0←")]
        drawn = Comparison(f"taken, lengths {lengths}: → forward half, ← reverse", taken, wanted)
        if taken != wanted:
            forward = taken[::2] == wanted[::2]
            hint = (
                "The reverse direction reads the first step last: where is its final state?"
                if forward
                else "Forward ends at each sequence's own last real step; after it, output is zero or another row's."
            )
            return Verdict(False, f"Not yet for lengths {lengths}. {hint}", [show(lengths), drawn])
    return Verdict(True, "Both directions' final states, for every case; here is the last.", [drawn])


def _taken_from(values: list[float]) -> str:
    """Where in the output of `final_states` this half of a row comes from."""
    number = int(values[0]) if values and len(set(values)) == 1 else 0
    arrow, number = ("←" if number > 10_000 else "→"), number % 10_000
    return f"{sequence_name(number // 100)}{number % 100 - 1}{arrow}" if number > 0 else "?"


@exercise
def masked_mean(answer: Callable[[Any, list[int]], Any]) -> Verdict:
    """A function from a padded batch `(B, T, F)` and its lengths to the mean over the real steps (notebook 05)."""
    from torch import stack, tensor  # noqa: PLC0415

    wrong = "Add up the real steps, and divide each row by its own length: T counts padding too."
    cases = [
        ([3, 1, 2], 0.0, wrong),
        ([2, 4], 99.0, "The padding holds 99 here. Set it to 0 before adding up: lengths say where it is."),
        ([1, 3], float("nan"), "The padding holds NaN here, and 0 × NaN is NaN: leave it out with masked_fill."),
    ]
    for lengths, padding, hint in cases:
        steps = range(max(lengths))
        rows = [[float(2 * t + 4 * b + 2) if t < n else padding for t in steps] for b, n in enumerate(lengths)]
        x = stack([tensor(rows), -tensor(rows)], dim=2)
        yours = answer(x, list(lengths))
        if yours is None or yours is ...:
            return Verdict(False, NOT_YET)
        batch = Aligned.of(tensor(rows), lengths, title=f"x[:, :, 0], lengths {lengths}", batch_first=True)
        shape = tuple(getattr(yours, "shape", ()))
        if shape != (len(lengths), 2):
            kind = f"a tensor of shape {shape}" if shape else f"a {type(yours).__name__}"
            return Verdict(False, f"Return a tensor of shape {(len(lengths), 2)}. Yours is {kind}.", [batch])
        target = stack([row[:n].mean(0) for row, n in zip(x, lengths, strict=True)])
        means = Comparison("means of x[:, :, 0]", *([f"{v:.3g}" for v in m[:, 0].tolist()] for m in (yours, target)))
        if not bool(((yours - target).abs() < 1e-4).all()):
            return Verdict(False, f"Not yet for lengths {lengths}. {hint}", [batch, means])
    return Verdict(True, "The mean of the real steps, whatever the padding holds: even NaN.", [batch, means])


def _entries(yours: Iterable[Any], target: Iterable[Any]) -> tuple[list[str], list[str]]:
    return [str(getattr(v, "item", lambda v=v: v)()) for v in yours], [str(v) for v in target]


def _padding(batches: Iterable[Sequence[int]]) -> int:
    return sum(Layout(batch).n_padding for batch in batches)


def _splits(lengths: Sequence[int], half: int) -> Iterable[tuple[list[int], list[int]]]:
    everyone = range(len(lengths))
    for chosen in combinations(everyone, half):
        yield [lengths[i] for i in chosen], [lengths[i] for i in everyone if i not in chosen]
