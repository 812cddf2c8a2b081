"""Checks the exercises on padded and packed results (notebooks 03 to 06)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from packviz.core.layout import sequence_name
from packviz.core.validation import kind_of
from packviz.draw.aligned import Aligned
from packviz.draw.picture import show
from packviz.lessons.exercise import Comparison, Verdict, exercise


@exercise
def final_states(answer: Callable[[Any, list[int]], Any]) -> Verdict:
    """Checks a function that picks the final states of both directions from a bidirectional RNN's
    output.

    The exercise is in notebook 03.
    """
    from torch import Tensor, arange, zeros

    half = 2
    for lengths in ([5, 3, 2], [1], [3, 3], [2, 4]):
        rows, steps = len(lengths), max(lengths)
        output = zeros(rows, steps, 2 * half)
        # Each number encodes its place as 1 + step + 100 · row, plus 10,000 in the reverse half.
        output += 1 + arange(steps).reshape(1, -1, 1) + 100 * arange(rows).reshape(-1, 1, 1)
        output[..., half:] += 10_000
        yours = answer(output.clone(), list(lengths))
        if not isinstance(yours, Tensor) or tuple(yours.shape) != (rows, 2 * half):
            got = f"of shape {tuple(yours.shape)}" if isinstance(yours, Tensor) else kind_of(yours)
            return Verdict(
                False,
                f"Return a tensor of shape {(rows, 2 * half)}: a row per sequence. Yours is {got}.",
            )
        taken = [_taken_from(part) for row in yours.tolist() for part in (row[:half], row[half:])]
        expected = [
            f"{sequence_name(b)}{end}" for b, n in enumerate(lengths) for end in (f"{n - 1}→", "0←")
        ]
        drawn = Comparison(f"taken, lengths {lengths}: → forward half, ← reverse", taken, expected)
        if taken != expected:
            forward = taken[::2] == expected[::2]
            hint = (
                "The reverse direction reads the first step last. Where is its final state?"
                if forward
                else "Forward ends at each sequence's own last real step, and later outputs are zeros."
            )
            return Verdict(False, f"Not yet for lengths {lengths}. {hint}", [show(lengths), drawn])
    return Verdict(
        True,
        "These are the final states of both directions in every case. Here is the last case.",
        [drawn],
    )


def _taken_from(values: list[float]) -> str:
    """Returns the place in the output from which half of a row was taken (see the codes in `final_states`)."""
    number = int(values[0]) if values and len(set(values)) == 1 else 0
    arrow, number = ("←" if number > 10_000 else "→"), number % 10_000
    return f"{sequence_name(number // 100)}{number % 100 - 1}{arrow}" if number > 0 else "?"


@exercise
def masked_mean(answer: Callable[[Any, list[int]], Any]) -> Verdict:
    """Checks a function that averages a padded batch `(B, T, F)` over the real steps of each
    sequence.

    The exercise is in notebook 04.
    """
    from torch import stack, tensor

    wrong = "Add up the real steps, and divide each row by its own length, because T counts the padding, too."
    cases = [
        ([3, 1, 2], 0.0, wrong),
        (
            [2, 4],
            99.0,
            "The padding contains 99 here. Set it to 0 before you add up; the lengths say where it is.",
        ),
        (
            [1, 3],
            float("nan"),
            "The padding contains NaN here, and 0 × NaN is NaN. Replace it with masked_fill.",
        ),
    ]
    for lengths, padding, hint in cases:
        steps = range(max(lengths))
        rows = [
            [float(2 * t + 4 * b + 2) if t < n else padding for t in steps]
            for b, n in enumerate(lengths)
        ]
        x = stack([tensor(rows), -tensor(rows)], dim=2)
        yours = answer(x, list(lengths))
        batch = Aligned.of(
            tensor(rows), lengths, title=f"x[:, :, 0], lengths {lengths}", batch_first=True
        )
        shape = tuple(getattr(yours, "shape", ()))
        if shape != (len(lengths), 2):
            kind = f"a tensor of shape {shape}" if hasattr(yours, "shape") else kind_of(yours)
            return Verdict(
                False, f"Return a tensor of shape {(len(lengths), 2)}. Yours is {kind}.", [batch]
            )
        target = stack([row[:n].mean(0) for row, n in zip(x, lengths, strict=True)])
        means = Comparison(
            "means of x[:, :, 0]",
            *([f"{v:.3g}" for v in m[:, 0].tolist()] for m in (yours, target)),
        )
        if not bool(((yours - target).abs() < 1e-4).all()):
            return Verdict(False, f"Not yet for lengths {lengths}. {hint}", [batch, means])
    return Verdict(
        True,
        "This is the mean of the real steps, whatever the padding contains, even NaN.",
        [batch, means],
    )


@exercise
def right_padded(answer: Callable[[Any, list[int]], Any]) -> Verdict:
    """Checks a function that moves the padding of a left-padded batch `(B, T)` to the right.

    The exercise is in notebook 05.
    """
    from torch import equal, tensor

    from packviz.ops.masks import align

    for rows, lengths in (([[0, 3, 1], [5, 9, 2]], [2, 3]), ([[0, 0, 0, 7], [0, 0, 4, 0]], [1, 3])):
        x = tensor(rows)
        target = align(x, lengths, padding_side="right", source_side="left", batch_first=True)
        yours = answer(x.clone(), list(lengths))
        if getattr(yours, "shape", None) != x.shape:
            return Verdict(
                False, f"Return a tensor of shape {tuple(x.shape)}, as wide as the batch."
            )
        drawn = Aligned.of(
            yours, lengths, title=f"yours, lengths {lengths}", batch_first=True, like=target
        )
        if not equal(yours, target):
            hint = (
                "A zero can be data, so use the lengths."
                if 0 in x[1, 1:]
                else "Row b has no padding."
            )
            return Verdict(
                False, f"Not yet for lengths {lengths}. Framed cells are wrong. {hint}", [drawn]
            )
    return Verdict(
        True, "The padding is on the right, and zeros that are data have moved along.", [drawn]
    )


@exercise
def collate(answer: Callable[[list[Any]], Any]) -> Verdict:
    """Checks a function that turns `(sequence, tags)` pairs into a padded batch, its lengths and
    the padded tags.

    The exercise is in notebook 06.
    """
    from torch import Tensor, tensor

    pairs = [(tensor([3, 0, 4]), [1, 0, 2]), (tensor([5, 9]), [2, 2])]
    found = answer(list(pairs))
    if (
        not isinstance(found, tuple)
        or len(found) != 3
        or not all(isinstance(one, Tensor) for one in found)
    ):
        return Verdict(
            False, "Return three tensors: the padded sequences, their lengths, and the padded tags."
        )
    targets = ([[3, 0, 4], [5, 9, 0]], [3, 2], [[1, 0, 2], [2, 2, -100]])
    hints = (
        "Pad the sequences with 0, and make the batch the first dimension.",
        "Take the lengths before you pad. A 0 may be a token, so do not count what is not 0.",
        "Pad the tags with −100, which the loss ignores.",
    )
    for name, yours, target, hint in zip(
        ("sequences", "lengths", "tags"), found, targets, hints, strict=True
    ):
        drawn = Comparison(name, yours.tolist(), target)
        if yours.tolist() != target:
            return Verdict(False, f"The {name} are not right yet. {hint}", [drawn])
    return Verdict(
        True,
        "All three tensors are right, and a loss ignores the padding.",
        [show(found[1].tolist())],
    )
