"""Checks the exercises on mistakes that break a static graph, and on silent mistakes (notebooks 13 and 15)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from packviz.core.validation import kind_of
from packviz.draw.picture import show
from packviz.lessons.exercise import Comparison, Verdict, answering, exercise

if TYPE_CHECKING:
    from packviz.check.models import ExampleModel


# For each batch to try, the number of time steps and the lengths.
_CASES = ((5, [5, 3]), (5, [5, 5]), (5, [4, 2]), (6, [1, 1]))


@exercise
def repaired_network(answer: type[ExampleModel]) -> Verdict:
    """Checks that a network returns its packed output as a padded tensor over all time steps (notebook 13)."""
    import torch

    from packviz.check import models
    from packviz.check.static import check_static
    from packviz.ops.running import run

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        yours = answer()
        inputs = {str(lengths): models.example(steps, lengths) for steps, lengths in _CASES}
        made = {name: answering(yours)(*given) for name, given in inputs.items()}
        expected = {
            name: run(yours.lstm, *given, total_length=len(given[0]))[0]
            for name, given in inputs.items()
        }
    found = check_static(yours, models.example())
    if found.size:
        problem = f"A size depends on the lengths: {found.size}. Which function pads again?"
        return Verdict(False, f"Not yet: a compiler with fixed shapes refuses this. {problem}")
    answer_to_lengths = found.answers["trace"]["lengths"]
    if answer_to_lengths.mark != "✓":
        problem = f"a trace of your model is not right: {answer_to_lengths.reason}"
        return Verdict(False, f"Not yet: {problem}.")
    if odd := [kind_of(one) for one in made.values() if not isinstance(one, torch.Tensor)]:
        return Verdict(False, f"Return the padded output alone; yours is {odd[0]}.")
    steps, all_steps = (
        [one.shape[0] if one.dim() else 0 for one in some.values()] for some in (made, expected)
    )
    rows = Comparison(f"time steps of the output, lengths {', '.join(made)}", steps, all_steps)
    if steps != all_steps:
        hint = "Its size depends on the lengths. What tells pad_packed_sequence how many steps there are?"
        if steps[:3] == all_steps[:3]:
            hint = "The last x has 6 time steps. Take their number from x."
        elif any(
            one.dim() == 3 and one.shape[1] == n
            for one, n in zip(made.values(), all_steps, strict=True)
        ):
            hint = "Batch and time have changed places: this model is time first, (T, B, …)."
        return Verdict(False, f"Not yet. {hint}", [rows])
    for lengths in made:
        if made[lengths].shape != expected[lengths].shape or not torch.allclose(
            made[lengths], expected[lengths]
        ):
            problem = f"The output for lengths {lengths} is not the LSTM's output, then zeros."
            return Verdict(False, problem)
    return Verdict(True, "Every size is fixed, and no number has changed.", [rows])


_LENGTHS = [6, 2, 4, 1, 5, 3]
_HINTS = (
    "Look where the zeros lie: along which dimension do they fit the lengths?",
    "At which end of its row does each sequence lie? pv.align moves it.",
    "Count the real steps in each row: which rows continue after their length?",
)


def spoilt_batches() -> list[tuple[Any, list[int], bool]]:
    """Returns three batches that torch packs wrongly without an error, each as `(x, lengths,
    batch_first)`.

    All three contain the same six sequences of whole numbers: sequence a counts up from 10, b
    counts up from 20, and so on. Zeros are padding.
    """
    from torch import arange, zeros

    left, right = zeros(6, 6).long(), zeros(6, 6).long()
    for b, n in enumerate(_LENGTHS):
        left[b, :n] = right[b, 6 - n :] = 10 * (b + 1) + arange(n)
    return [
        (left, list(_LENGTHS), False),
        (right, list(_LENGTHS), True),
        (left, [min(n, 4) for n in _LENGTHS], True),
    ]


@exercise
def repaired_batches(answer: Any) -> Verdict:
    """Checks that the silent mistakes in three batches, each given as `(x, lengths, batch_first)`,
    have been repaired.

    The exercise is in notebook 15.
    """
    from torch.nn.utils.rnn import unpack_sequence

    from packviz.ops.original import pack_padded_sequence

    batches = [(x, lengths, batch_first) for x, lengths, batch_first in answer]
    if len(batches) != 3:
        return Verdict(
            False,
            f"Give three batches, each as (x, lengths, batch_first); you gave {len(batches)}.",
        )
    target = [" ".join(str(10 * (b + 1) + t) for t in range(n)) for b, n in enumerate(_LENGTHS)]
    pictures = []
    for number, ((x, lengths, batch_first), hint) in enumerate(
        zip(batches, _HINTS, strict=True), 1
    ):
        drawn = show(x, lengths, batch_first)
        packed = pack_padded_sequence(x, lengths, batch_first, enforce_sorted=False)
        sequences = [" ".join(map(str, one.tolist())) for one in unpack_sequence(packed)]
        rows = Comparison(f"batch {number}: the sequences that are packed", sequences, target)
        if sequences != target:
            return Verdict(False, f"Not yet for batch {number}. {hint}", [drawn, rows])
        pictures.append(drawn)
    return Verdict(
        True,
        "All three give the same six sequences, whole and in order. Here is the last.",
        pictures[-1:],
    )
