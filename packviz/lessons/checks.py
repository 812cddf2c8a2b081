"""Provides the checks of the notebooks' exercises.

Each check takes the reader's answer and returns a `Verdict`.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, SupportsFloat

import numpy as np

from packviz.core.cuts import best_cuts
from packviz.core.layout import Layout, require_nonempty_sequences, sequence_name
from packviz.core.spec import Spec
from packviz.core.validation import kind_of
from packviz.count.flops import FlopCount, flops
from packviz.draw.aligned import Aligned
from packviz.draw.drawing import Drawing
from packviz.draw.picture import Picture, show
from packviz.draw.stairs import Stairs
from packviz.draw.text import size
from packviz.lessons.exercise import Comparison, Verdict, exercise, hint_for

if TYPE_CHECKING:
    from torch import Tensor

    # A function of a padded batch and its lengths.
    BatchFunction = Callable[[Tensor, list[int]], Tensor]

Lengths = Sequence[int]
LengthsFunction = Callable[[list[int]], Iterable[int]]


def _not_solved(case: object, hint: str, *drawings: Drawing) -> Verdict:
    return Verdict(False, f"Not yet for {case}. {hint}", drawings)


def _format_values(values: Iterable[SupportsFloat]) -> list[str]:
    return [f"{float(value):.3g}" for value in values]


# Layouts (pages 00 to 02).


@exercise
def half_padding(lengths: Lengths) -> Verdict:
    """Checks that exactly half of a batch with these lengths is padding."""
    layout = require_nonempty_sequences(Layout(lengths))
    excess_padding = 2 * layout.n_padding - layout.n_cells
    hint = ": exactly half."
    if excess_padding < 0:
        hint = "; you need more padding. One long sequence adds padding to every other row."
    if excess_padding > 0:
        hint = "; you need less padding. Shorten the longest sequence, or make another one longer."
    return Verdict(
        excess_padding == 0,
        f"{layout.n_padding} of {layout.n_cells} cells are padding{hint}",
        [Picture(layout)],
    )


@exercise
def same_scores(
    answer: Callable[[list[Tensor]], Tensor],
    reviews: Sequence[Tensor],
    embedding: Callable[[Tensor], Tensor],
    lstm: Callable[[Tensor], tuple[Tensor, tuple[Tensor, Tensor]]],
    linear: Callable[[Tensor], Tensor],
) -> Verdict:
    """Checks that a classifier gives each review the scores that it gives the review alone."""
    from torch import cat  # noqa: PLC0415 - torch loads slowly
    from torch.nn.utils.rnn import pad_sequence  # noqa: PLC0415 - torch loads slowly

    def scores(x: Tensor) -> Tensor:
        _, (h_n, _) = lstm(embedding(x))
        return linear(h_n[0])

    alone = cat([scores(review[None]) for review in reviews]).detach()
    yours = answer(list(reviews))
    if problem := _shape_problem(yours, alone.shape):
        return Verdict(False, problem)
    rows = Comparison(
        "largest score of each review; target: alone",
        _format_values(yours.detach().amax(1)),
        _format_values(alone.amax(1)),
    )
    if _is_close(yours, alone):
        if problem := _shape_problem(answer(list(reviews[1:])), alone[1:].shape):
            return Verdict(False, f"{problem} This time, `reviews` lacks the first one.")
        return Verdict(True, "Each review gets the scores that it gets alone.", [rows])
    hint = "Give `linear` each review's final hidden state: h_n[0] of the packed words."
    if _is_close(yours, scores(pad_sequence(list(reviews), batch_first=True))):
        hint = "Shorter reviews have read padding. Pack their words before the LSTM reads them."
    if _is_close(yours.sort(0).values, alone.sort(0).values):
        hint = (
            "Each row has the scores of some review, but in another order. With "
            "enforce_sorted=False, h_n is in the order of your reviews."
        )
    return Verdict(
        False, f"Not yet: some reviews do not get the scores that they get alone. {hint}", [rows]
    )


@exercise
def batch_sizes(answer: LengthsFunction) -> Verdict:
    """Checks a function that computes batch sizes from lengths."""
    for lengths in ([3, 2], [5, 2], [3, 5, 2, 4], [1], [2, 2, 2], [9, 8, 6, 4, 3, 2]):
        yours = answer(list(lengths))
        rows = Comparison(f"batch sizes of lengths {lengths}", yours, Layout(lengths).batch_sizes)
        if not rows.agree:
            hint = "At step t, count the sequences that are longer than t."
            if len(rows.yours) != len(rows.target):
                hint += " There are as many steps as the longest sequence has."
            return _not_solved(f"lengths {lengths}", hint, show(lengths), rows)
    return Verdict(
        True,
        f"Your batch sizes equal torch's in every case. Here are those for lengths {lengths}.",
        [rows],
    )


# Padded and packed results (pages 03 to 06).


@exercise
def final_states(answer: BatchFunction) -> Verdict:
    """Checks a function that picks the final states of a bidirectional RNN from its output."""
    from torch import Generator, randperm  # noqa: PLC0415 - torch loads slowly

    from packviz.ops.masks import real_mask  # noqa: PLC0415 - torch loads slowly

    for hidden_size, lengths in ((2, [5, 3, 2]), (1, [1]), (3, [3, 3]), (2, [2, 4])):
        rows = len(lengths)
        steps = max(lengths)
        cell_halves = itertools.product(range(rows), range(steps), "→←")
        names = [f"{sequence_name(b)}{t}{arrow}" for b, t, arrow in cell_halves]
        # Each half of a cell contains its own number, which shows where it was taken from.
        half_codes = 1.0 + randperm(len(names), generator=Generator().manual_seed(0))
        parts_by_code = [(code,) * hidden_size for code in (0.0, *half_codes.tolist())]
        names_by_code = dict(zip(parts_by_code, ["0", *names], strict=True))
        output = half_codes.repeat_interleave(hidden_size).reshape(rows, steps, 2 * hidden_size)
        output = output.where(real_mask(lengths)[..., None], 0)
        yours = answer(output, list(lengths))
        if problem := _shape_problem(yours, (rows, 2 * hidden_size)):
            return Verdict(False, problem)
        parts = yours.reshape(-1, hidden_size).tolist()
        your_states = [names_by_code.get(tuple(part), "?") for part in parts]
        forward = [f"{sequence_name(b)}{n - 1}→" for b, n in enumerate(lengths)]
        expected = []
        for b, last_forward in enumerate(forward):
            expected += [last_forward, f"{sequence_name(b)}0←"]
        title = f"taken, lengths {lengths}: → forward half, ← reverse"
        comparison = Comparison(title, your_states, expected)
        if not comparison.agree:
            hint = (
                "Forward ends at each sequence's own last real step, and later outputs are zeros."
            )
            if your_states[::2] == forward:
                hint = "The reverse direction reads the first step last. Where is its final state?"
            if sorted(your_states) == sorted(expected):
                hint = "These are the right states. Put them in the order of the sequences."
            if your_states[::2] == expected[1::2] and your_states[1::2] == forward:
                hint = "Both states are right. Put the forward half first."
            return _not_solved(f"lengths {lengths}", hint, show(lengths), comparison)
    return Verdict(
        True,
        "These are the final states of both directions in every case. Here is the last case.",
        [comparison],
    )


def _shape_problem(answer: object, shape: Sequence[int]) -> str:
    """Returns what is wrong with an answer that is not a tensor of this shape, or nothing."""
    from torch import Tensor  # noqa: PLC0415 - torch loads slowly

    kind = kind_of(answer)
    if isinstance(answer, Tensor):
        if answer.shape == tuple(shape):
            return ""
        kind = f"a tensor of shape {tuple(answer.shape)}"
    return f"Return a tensor of shape {tuple(shape)}. Yours is {kind}."


def _is_close(yours: Tensor, target: Tensor) -> bool:
    """Returns whether two tensors are equal up to rounding, whatever the dtype of the first."""
    from torch import allclose  # noqa: PLC0415 - torch loads slowly

    return allclose(yours.to(target), target, rtol=0, atol=1e-4)


@exercise
def masked_mean(answer: BatchFunction) -> Verdict:
    """Checks a function that averages each sequence of a padded batch `(B, T, F)`."""
    from torch import arange, stack, tensor  # noqa: PLC0415 - torch loads slowly

    from packviz.ops.masks import real_mask  # noqa: PLC0415 - torch loads slowly

    cases = [
        (
            [3, 1, 2],
            3,
            0.0,
            "Add up the real steps, and divide each row by its own length, because T counts the"
            " padding, too.",
        ),
        (
            [2, 4],
            5,
            4.0,
            "The padding contains 4 here, and so do the data. Set the padding to 0 before you add"
            " up; the lengths show where it is.",
        ),
        (
            [1, 3],
            4,
            math.nan,
            "The padding contains NaN here, and 0 × NaN is NaN. Replace it with masked_fill.",
        ),
    ]
    for lengths, n_steps, padding, hint in cases:
        real = real_mask(lengths, n_steps)
        first_values = 3.0 + 4 * arange(len(lengths))
        data = first_values[:, None] + arange(n_steps) ** 2
        real_means = data.where(real, 0).sum(1) / tensor(lengths)
        target = stack([real_means, -real_means], dim=1)
        x = stack([data, -data], dim=2).where(real[..., None], padding)
        yours = answer(x.clone(), list(lengths))
        batch = Aligned.of(
            x[:, :, 0], lengths, title=f"x[:, :, 0], lengths {lengths}", batch_first=True
        )
        if problem := _shape_problem(yours, target.shape):
            return Verdict(False, problem, [batch])
        means = Comparison(
            "means of two features, row by row",
            _format_values(yours.flatten()),
            _format_values(target.flatten()),
        )
        if not _is_close(yours, target):
            return _not_solved(f"lengths {lengths}", hint, batch, means)
    return Verdict(
        True,
        "This is the mean of the real steps, whatever the padding contains, even NaN.",
        [batch, means],
    )


@exercise
def right_padded(answer: BatchFunction) -> Verdict:
    """Checks a function that moves the padding of a left-padded batch `(B, T)` to the right."""
    from torch import tensor  # noqa: PLC0415 - torch loads slowly

    from packviz.ops.masks import align, real_mask  # noqa: PLC0415 - torch loads slowly

    first_x = tensor([[0, 3, 1], [5, 9, 2]])
    second_x = tensor([[9, 0, 9, 0], [8, 9, 9, 7]])
    for x, lengths, hint in (
        (
            first_x,
            [2, 3],
            "The data of a row begin at column T − length: 1 in row a, and 0 in row b.",
        ),
        (second_x, [3, 1], "Here, the padding is not 0, and zeros are data, so use the lengths."),
    ):
        target = align(x, lengths, padding_side="right", source_side="left", batch_first=True)
        yours = answer(x.clone(), list(lengths))
        if problem := _shape_problem(yours, x.shape):
            return Verdict(False, problem)
        batch = Aligned.of(
            yours, lengths, title=f"yours, lengths {lengths}", batch_first=True, like=target
        )
        if not yours.equal(target):
            real = real_mask(lengths, x.shape[1])
            hint = f"Framed cells are wrong. {hint}"
            if yours[real].equal(target[real]):
                hint = "The data are in their place. Now fill the padding with zeros."
            return _not_solved(f"lengths {lengths}", hint, batch)
    return Verdict(
        True, "The padding is on the right, and zeros that are data have moved along.", [batch]
    )


@exercise
def collate(answer: Callable[[list[tuple[Tensor, list[int]]]], tuple[Tensor, ...]]) -> Verdict:
    """Checks a function that turns `(sequence, tags)` pairs into a padded batch.

    The function returns the padded sequences, their lengths, and the padded tags.
    """
    from torch import Tensor, int64, tensor  # noqa: PLC0415 - torch loads slowly
    from torch.nn.utils.rnn import pad_sequence  # noqa: PLC0415 - torch loads slowly

    pad = functools.partial(pad_sequence, batch_first=True)
    cases = [
        ([[3, 0, 4], [5, 9]], [[1, 0, 2], [2, 2]]),
        ([[7], [0, 8, 6, 2]], [[1], [0, 2, 1, 1]]),
    ]
    for sequences, tags in cases:
        lengths = [len(sequence) for sequence in sequences]
        tag_copies = [list(tag_list) for tag_list in tags]
        yours = answer([*zip(map(tensor, sequences), tag_copies, strict=True)])
        parts = yours if isinstance(yours, (tuple, list)) else ()
        if [part.ndim if isinstance(part, Tensor) else 0 for part in parts] != [2, 1, 2]:
            return Verdict(
                False,
                "Return three tensors: the padded sequences, then their lengths, then the padded"
                " tags.",
            )
        targets: list[tuple[str, Sequence[object], str]] = [
            (
                "sequences",
                pad([*map(tensor, sequences)]).tolist(),
                "Pad them with 0, with the batch as the first dimension.",
            ),
            (
                "lengths",
                lengths,
                "Take the lengths before you pad. Here, 0 is also a token, so count no zeros.",
            ),
            (
                "tags",
                pad([*map(tensor, tags)], padding_value=-100).tolist(),
                "Pad the tags with −100, which the loss ignores.",
            ),
        ]
        for part, (name, target, hint) in zip(parts, targets, strict=True):
            rows = Comparison(name, part.tolist(), target)
            if part.tolist()[::-1] == target:
                hint = "The order is reversed. Keep the order of the given pairs."
            if part.tolist() == target:
                hint = "The numbers are right, but give whole ones, of dtype torch.long."
            is_loss_target = name == "tags"
            if (
                not rows.agree
                or part.is_floating_point()
                or (is_loss_target and part.dtype != int64)
            ):
                return Verdict(False, f"The {name} are not right yet. {hint}", [rows])
        if tag_copies != tags:
            return Verdict(False, "You have changed the tags that were given. Pad a copy of them.")
    return Verdict(
        True, "All three tensors are right, and a loss ignores the padding.", [show(lengths)]
    )


# FLOPs and bytes (pages 07 and 09).


@exercise
def gru_flops(answer: Callable[[int, int, list[int]], float]) -> Verdict:
    """Checks a function that computes the GEMM FLOPs of a GRU's forward pass on a packed batch.

    The function takes the input size, the hidden size and the lengths.
    """
    answers = []
    targets = []
    for case in ((3, 7, [9, 8, 6, 4, 3, 2]), (1, 1, [1]), (16, 4, [3, 5, 2, 4])):
        input_size, hidden_size, lengths = case
        yours = answer(input_size, hidden_size, list(lengths))
        if np.asarray(yours).size != 1:
            return Verdict(False, f"Return one number. Yours is {kind_of(yours)}.")
        flop_count = flops(Spec("GRU", input_size, hidden_size), lengths)
        answers.append(yours)
        targets.append(flop_count.packed)
        if yours != flop_count.packed:
            hint = _flops_hint(flop_count, yours)
            return Verdict(
                False,
                f"Not yet: my_gru_flops{case} is {yours}, not {flop_count.packed}. {hint}",
                [flop_count],
            )
    rows = Comparison("the three cases", answers, targets)
    flop_count = flops(Spec("GRU", 3, 7), [9, 8, 6, 4, 3, 2])
    return Verdict(True, "Your counts equal those of pv.flops in every case.", [rows, flop_count])


def _flops_hint(counts: FlopCount, yours: float) -> str:
    target = counts.packed
    input_flops, state_flops, _ = counts.spec.products[0]
    n = counts.layout.n_real
    lstm_hint = "That is an LSTM's count, with four products for each cell. A GRU has three."
    mistakes = {
        "That is the padded count. In a packed batch, only real cells are computed.": counts.padded,
        "Each weight takes a multiplication and an addition for each cell.": target / 2,
        "At each step, a GRU multiplies three times, each time by different weights.": target / 3,
        lstm_hint: target * 4 / 3,
        "There are two products: this is the one with the input.": n * input_flops,
        "There are two products: this is the one with the state.": n * state_flops,
    }
    return hint_for(
        yours,
        mistakes,
        "A cell costs 2 · 3 · hidden_size for each number of the input and of the state; then"
        " count the cells.",
    )


_MOST_WRITTEN_HINTS = {
    "pad most": "Pad writes whole tensors for each *distinct* length.",
    "LSTM most": "The LSTM writes a tensor of all real cells at each time step.",
    "LSTM least": "In one of these batches, the LSTM need not go step by step.",
}


@exercise
def most_written(batches: Mapping[str, Lengths], answers: Mapping[str, str]) -> Verdict:
    """Checks in which of the batches the backward passes of pad and an LSTM write most bytes."""
    from torch.nn import LSTM  # noqa: PLC0415 - torch loads slowly

    from packviz.count import profile  # noqa: PLC0415

    pad = {name: profile.count(n).pad.backward.bytes for name, n in batches.items()}
    lstm = {name: profile.count_rnn(LSTM(16, 32), n).backward.bytes for name, n in batches.items()}
    targets = {
        "pad most": max(pad, key=pad.__getitem__),
        "LSTM most": max(lstm, key=lstm.__getitem__),
        "LSTM least": min(lstm, key=lstm.__getitem__),
    }
    yours = {question: answers[question] for question in targets}
    for question, letter in yours.items():
        if letter != targets[question]:
            hint = _MOST_WRITTEN_HINTS[question]
            if letter not in [*batches]:
                hint = f"Give the letter of a batch, such as 'a', not {letter!r}."
            return _not_solved(repr(question), hint)
    pad_bytes_text, lstm_bytes_text = (
        ", ".join(map(size, counts.values())) for counts in (pad, lstm)
    )
    rows = Comparison(", ".join(targets), yours.values(), targets.values())
    return Verdict(
        True, f"By batch, pad writes {pad_bytes_text}; the LSTM writes {lstm_bytes_text}.", [rows]
    )


# Times, staircases and processes (pages 08 and 10 to 12).

_SECONDS_OF_A = 1e-3  # for each call
_MAX_CALLS = 10_000
_TOLERANCE = 0.05


# Simulated machines, on which only the functions `a` and `b` take time. Each has a name, the time
# of `b` as a multiple of that of `a`, a function that returns how long call `i` takes if it should
# take `seconds`, and a hint for a reader whose ratio is wrong on this machine.
_SimulatedMachine = tuple[str, float, Callable[[int, float], float], str]
_QUIET_MACHINE: _SimulatedMachine = (
    "a quiet machine",
    3.0,
    lambda i, seconds: seconds,
    "Divide the time of b by that of a. A time is clock() after the call minus clock() before it.",
)
_COLD_MACHINE: _SimulatedMachine = (
    "a cold machine",
    2.0,
    lambda i, seconds: seconds + 0.02 * (i < 4),
    "The first calls are slow. Call both functions a few times before you time them.",
)
_TIRING_MACHINE: _SimulatedMachine = (
    "a tiring machine",
    4.0,
    lambda i, seconds: seconds * 1.02**i,
    "Every call is a little slower than the one before. Take turns, and divide within a turn.",
)


def _busy_machine(place: int) -> _SimulatedMachine:
    """Returns a machine that interrupts every seventh call."""
    return (
        "a busy machine",
        1.5,
        lambda i, seconds: seconds + 0.02 * (i % 7 == place),
        "Now and then a call is interrupted. Such a pause spoils a single time and a mean, so take"
        " the median of many turns.",
    )


@exercise
def fair_ratio(answer: Callable[..., float]) -> Verdict:
    """Checks a function of `a`, `b` and `clock` that measures how many times as long `b` takes."""
    yours = []
    targets = []
    for name, target, call_seconds, hint in (
        _QUIET_MACHINE,
        _COLD_MACHINE,
        _TIRING_MACHINE,
        *map(_busy_machine, range(7)),
    ):
        ratio = _measure_ratio(answer, target, call_seconds)
        yours.append(ratio)
        targets.append(target)
        rows = Comparison(
            "b's time as a multiple of a's: quiet, cold, tiring, then seven busy machines",
            _format_values(yours),
            _format_values(targets),
        )
        if not abs(ratio / target - 1) <= _TOLERANCE:  # also if the ratio is NaN
            return Verdict(
                False,
                f"Not yet on {name}: your ratio is {ratio:.3g}, but b takes {target:g} times as"
                f" long as a. {hint}",
                [rows],
            )
    return Verdict(
        True, f"Your ratio is within {_TOLERANCE:.0%} of the truth on every machine.", [rows]
    )


def _measure_ratio(
    answer: Callable[..., float], ratio: float, call_seconds: Callable[[int, float], float]
) -> float:
    """Returns the ratio that the reader's function measures on a simulated machine."""
    clock_seconds = 0.0
    call_numbers = itertools.count()

    def spend(seconds: float) -> None:
        nonlocal clock_seconds
        i = next(call_numbers)
        if i == _MAX_CALLS:
            raise ValueError(f"you made over {_MAX_CALLS:,} calls; far fewer are enough")
        clock_seconds += call_seconds(i, seconds)

    a = functools.partial(spend, _SECONDS_OF_A)
    b = functools.partial(spend, ratio * _SECONDS_OF_A)
    return float(answer(a, b, lambda: clock_seconds))


@exercise
def cheapest_staircase(lengths: Lengths, cuts: Sequence[int], call: int) -> Verdict:
    """Checks that no staircase costs less if a call costs as much as `call` cells."""
    n = Layout(lengths).lengths.tolist()
    try:
        stairs = Stairs(n, [operator.index(cut) for cut in cuts])
    except TypeError:
        raise TypeError(f"give whole time steps, as in (0, 8, 16), not {cuts!r}") from None

    def cost(stairs: Stairs) -> int:
        return stairs.cells + call * stairs.calls

    best_stairs = Stairs(n, best_cuts(n, call))
    your_cost = cost(stairs)
    best_cost = cost(best_stairs)
    target = [best_stairs.calls, best_stairs.wasted, best_cost]
    rows = Comparison(
        f"rectangles, wasted cells, cost; target: the best with {best_stairs.calls}",
        [stairs.calls, stairs.wasted, your_cost],
        target,
    )
    cost_text = f"{stairs.cells} cells and {stairs.calls} × {call} for the calls make {your_cost}."
    if your_cost == best_cost:
        return Verdict(True, f"{cost_text} No staircase costs less.", [stairs, rows])
    stray_cuts = [cut for cut in stairs.cuts[1:] if cut not in n]
    hint = (
        "Look at the hatched cells: which cut, moved to the end of another sequence, reduces them?"
    )
    if stray_cuts:
        hint = (
            f"No sequence ends at step {stray_cuts[0]}. A cut right after the "
            "end of a sequence leaves out more."
        )
    elif stairs.calls != best_stairs.calls:
        hint = f"With {best_stairs.calls} rectangles, {best_cost} is possible."
    return Verdict(False, f"{cost_text} {hint}", [stairs, rows])


@exercise
def fastest_exact(answer: Callable[[list[dict[str, float]], set[str]], str]) -> Verdict:
    """Checks a function that chooses the fastest of the methods that give the right results."""
    steady_rounds = [{"padded": 1.0, "packed": 3.0, "run": 2.0}] * 5
    slow_round = {"padded": 3.0, "packed": 90.0, "run": 2.0}
    cases = [
        (steady_rounds, {"padded", "packed", "run"}, "padded", "All three are exact here."),
        (steady_rounds, {"packed", "run"}, "run", "The fastest method of all gives wrong results."),
    ]
    for busy_pair in itertools.combinations(range(5), 2):
        busy_rounds = [{"padded": 3.0, "packed": 1.0, "run": 2.0}] * 5
        for i in busy_pair:
            busy_rounds[i] = slow_round
        cases.append(
            (
                busy_rounds,
                {"padded", "packed", "run"},
                "packed",
                "The machine was busy in two rounds, which spoils a mean. Take the median.",
            )
        )
    choices = []
    targets = []
    for rounds, exact_methods, target, hint in cases:
        round_copies = [dict(times) for times in rounds]
        choices.append(str(answer(round_copies, set(exact_methods))))
        targets.append(target)
        rows = Comparison("your choices", choices, targets)
        if not rows.agree:
            if choices[-1] not in rounds[0]:
                hint = f"You returned {choices[-1]!r}. Return the name of a method, such as 'run'."
            lines = []
            for name in rounds[0]:
                seconds = ", ".join(f"{times[name]:g}" for times in rounds)
                lines.append(f"{name} {seconds} s")
            case_text = f"Exact: {', '.join(sorted(exact_methods))}. {'; '.join(lines)}."
            return Verdict(False, f"{case_text} {hint}", [rows])
    return Verdict(
        True, "You chose the fastest exact method every time, even with busy rounds.", [rows]
    )


@exercise
def process_loss(answer: Callable[[Tensor, int, int], Tensor]) -> Verdict:
    """Checks a function that computes the loss of one of several processes.

    The average of the processes' gradients must be the gradient of the mean over all tokens.
    """
    from torch import Tensor, arange, autograd  # noqa: PLC0415 - torch loads slowly

    comparisons = []
    for tokens in ([6, 2], [3, 3], [5, 1, 2], [7]):
        processes = len(tokens)
        total = sum(tokens)
        weights: list[str] = []
        for n_tokens in tokens:
            leaf = (1.0 + arange(n_tokens)).requires_grad_()
            yours = answer(leaf.clone(), total, processes)
            if leaf.grad is not None:
                return Verdict(False, "Only return the loss. The check calls backward() itself.")
            gradient = None
            if isinstance(yours, Tensor) and yours.numel() == 1 and yours.requires_grad:
                (gradient,) = autograd.grad(yours.reshape(()), leaf, allow_unused=True)
            if gradient is None:
                return Verdict(
                    False,
                    "Return a tensor with one number, computed from `losses`, so that backward()"
                    " can start from it.",
                )
            mean_gradient = gradient / processes  # as DDP averages over the processes
            weights += _format_percents(mean_gradient.tolist())
        shares = " + ".join(map(str, tokens))
        title = f"weight of each token in the averaged gradient, %: processes with {shares} tokens"
        equal_weights = [1 / total] * total
        rows = Comparison(title, weights, _format_percents(equal_weights))
        if not rows.agree:
            return _not_solved(
                f"processes with {tokens} tokens", _weight_hint(weights, tokens), rows
            )
        comparisons.append(rows)
    return Verdict(
        True,
        "Every token counts the same, whichever process has it. Here are shares of 6 and 2.",
        comparisons[:1],
    )


def _format_percents(shares: Iterable[float]) -> list[str]:
    return _format_values(100 * share for share in shares)


def _weight_hint(weights: list[str], tokens: Sequence[int]) -> str:
    processes = len(tokens)
    total = sum(tokens)
    per_process_weights = []
    for n_tokens in tokens:
        per_process_weights += [1 / (n_tokens * processes)] * n_tokens
    if weights == _format_percents(per_process_weights):
        return (
            "Each process divides by its own tokens, so a token of a small share weighs more."
            " Divide by all tokens."
        )
    if weights == _format_percents([1 / total / processes] * total):
        return (
            "All tokens weigh the same, but too little, because the average divides by the number"
            " of processes again."
        )
    if weights == _format_percents([1 / processes] * total):
        return (
            "Your loss is a sum, which grows with the batch. Divide it by the number of tokens in"
            " all processes."
        )
    return (
        "Add up the losses, divide by the tokens of all processes, and undo the division by the"
        " number of processes."
    )


# Static graphs, documents and silent mistakes (pages 13 to 15).


@exercise
def separate_tests(tests: Mapping[str, tuple[int, Lengths]]) -> Verdict:
    """Checks three test batches. Each must expose one of three wrong graphs, and no other.

    The graphs come from an example with four sequences of five steps. One ignores the lengths, one
    is right for five steps only, and one is right for four sequences only.
    """
    layouts = {
        name: require_nonempty_sequences(Layout(tests[name][1], tests[name][0]))
        for name in _TEST_HINTS
    }
    exposed_by_test = []
    for layout in layouts.values():
        wrong = (layout.n_padding > 0, layout.max_len != 5, layout.batch_size != 4)
        exposed_by_test.append([*itertools.compress(layouts, wrong)])
    exposed_texts = [" + ".join(names) or "none" for names in exposed_by_test]
    rows = Comparison("wrong graphs that each test exposes", exposed_texts, layouts)
    for name, names in zip(layouts, exposed_by_test, strict=True):
        if names != [name]:
            hint = "Another graph fails it, too, so a failure does not tell which one is wrong."
            if name not in names:
                hint = f"The wrong graph passes it. {_TEST_HINTS[name]}"
            return _not_solved(f"the test {name!r}", hint, rows)
    return Verdict(True, "Whichever test fails, you know what the graph has fixed.", [rows])


_TEST_HINTS = {
    "lengths": "All lengths of the test are T, as in the example.",
    "T": "The test has five steps, as the example has.",
    "B": "The test has four sequences, as the example has.",
}


@exercise
def document_ids(answer: LengthsFunction) -> Verdict:
    """Checks a function that returns the number of the document to which each flat row belongs."""
    for lengths in ([5, 3, 2], [2, 3], [1], [1, 1, 4], [3, 3]):
        target = np.repeat(range(len(lengths)), lengths).tolist()
        rows = Comparison(f"document ids of lengths {lengths}", answer(list(lengths)), target)
        if not rows.agree:
            positions = [t for n in lengths for t in range(n)]
            step_order_ids = Layout(lengths).mask.T.nonzero()[1].tolist()
            sizes = [lengths[b] for b in target]
            step_order_hint = (
                "These ids go step by step. In flat rows, one document follows another."
            )
            mistakes = {
                "These are positions. Give the document's number.": positions,
                "Number the documents from 0.": [b + 1 for b in target],
                step_order_hint: step_order_ids,
                "These are the lengths. Give the document's number.": sizes,
            }
            wrong_ids_by_hint = {hint: [str(b) for b in ids] for hint, ids in mistakes.items()}
            hint = hint_for(
                rows.yours,
                wrong_ids_by_hint,
                "One number per row: 0 for the first lengths[0] rows, 1 for the next lengths[1],"
                " and so on.",
            )
            return _not_solved(f"lengths {lengths}", hint, rows)
    return Verdict(
        True, f"Your ids are right in every case. Here are those for lengths {lengths}.", [rows]
    )


_SIX_LENGTHS = (6, 2, 4, 1, 5, 3)


def spoilt_batches() -> list[tuple[Tensor, list[int], bool]]:
    """Returns three batches that torch packs wrongly without an error.

    Each is `(x, lengths, batch_first)`. All three contain the same six sequences of whole numbers:
    sequence a counts up from 10, b counts up from 20, and so on. Zeros are padding.
    """
    from torch import arange  # noqa: PLC0415 - torch loads slowly

    from packviz.ops.masks import align, real_mask  # noqa: PLC0415 - torch loads slowly

    steps = arange(6)
    values = 10 * (steps + 1)[:, None] + steps
    right_padded_x = values.where(real_mask(_SIX_LENGTHS), 0)
    left_padded_x = align(
        right_padded_x, _SIX_LENGTHS, padding_side="left", source_side="right", batch_first=True
    )
    lengths = list(_SIX_LENGTHS)
    shortened = [min(n, 4) for n in _SIX_LENGTHS]
    return [
        (right_padded_x, lengths, False),
        (left_padded_x, lengths, True),
        (right_padded_x, shortened, True),
    ]


def _real_numbers(x: Tensor, lengths: Iterable[int]) -> list[str]:
    """Returns the real numbers of each row of a padded batch `(B, T)` as text."""
    rows = zip(x.tolist(), lengths, strict=True)
    return [" ".join(f"{value:g}" for value in row[:n]) for row, n in rows]


@exercise
def repaired_batches(answer: Iterable[tuple[Tensor, Lengths, bool]]) -> Verdict:
    """Checks that the silent mistakes in three batches have been repaired.

    Each batch is given as `(x, lengths, batch_first)`.
    """
    from torch import as_tensor  # noqa: PLC0415 - torch loads slowly

    from packviz.ops.original import pack_padded_sequence, pad_packed_sequence  # noqa: PLC0415 - torch loads slowly

    batches = list(answer)
    if len(batches) != 3:
        return Verdict(
            False,
            f"Give three batches, each as (x, lengths, batch_first); you gave {len(batches)}.",
        )
    hints = [
        "Look where the zeros lie: along which dimension do they fit the lengths?",
        "At which end of its row does each sequence lie? pv.align moves it.",
        "Count the real steps in each row: which rows continue after their length?",
    ]
    target = _real_numbers(spoilt_batches()[0][0], _SIX_LENGTHS)
    for i, (values, lengths, batch_first) in enumerate(batches):
        x = as_tensor(values)
        picture = show(x, lengths, batch_first)
        packed = pack_padded_sequence(x, list(lengths), batch_first, enforce_sorted=False)
        padded, steps = pad_packed_sequence(packed, batch_first=True)
        sequences = _real_numbers(padded, steps.tolist())
        comparison = Comparison(f"batch {i + 1}: the sequences that are packed", sequences, target)
        if not comparison.agree:
            return _not_solved(f"batch {i + 1}", hints[i], picture, comparison)
    return Verdict(
        True,
        "All three give the same six sequences, whole and in order. Here is the last.",
        [picture],
    )
