"""Checks the exercises on counting FLOPs and the bytes of a backward pass (notebooks 07 and 09)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from packviz.core.lengths import spread
from packviz.core.spec import Spec
from packviz.count.flops import FlopCount, flops
from packviz.draw.text import size
from packviz.lessons.exercise import Comparison, Verdict, exercise, hint_for


@exercise
def gru_flops(answer: Callable[[int, int, list[int]], Any]) -> Verdict:
    """Checks a function that computes the GEMM FLOPs of a GRU's forward pass on a packed batch.

    The function takes the input size, the hidden size and the lengths. The exercise is in notebook
    07.
    """
    cases = [
        (3, 7, [9, 8, 6, 4, 3, 2]),
        (1, 1, [1]),
        (2, 5, [4, 4]),
        (16, 4, [3, 5, 2, 4]),
        (8, 8, [10, 1]),
    ]
    counts = [flops(Spec("GRU", i, h), lengths) for i, h, lengths in cases]
    answers = [answer(i, h, list(lengths)) for i, h, lengths in cases]
    rows = Comparison("the five cases", answers, [count.packed for count in counts])
    for count, yours, (i, h, lengths) in zip(counts, answers, cases, strict=True):
        if yours != count.packed:
            case = f"Not yet: my_gru_flops({i}, {h}, {lengths}) is {yours}, not {count.packed}."
            return Verdict(False, f"{case} {_flops_hint(count, yours)}", [rows, count])
    return Verdict(True, "Your counts equal those of pv.flops in every case.", [rows, counts[0]])


def _flops_hint(count: FlopCount, yours: Any) -> str:
    from_input, from_state, _ = (
        count.layout.n_real * product for product in count.spec.products[0]
    )
    mistakes = [
        (
            count.padded,
            "That is the padded count. In a packed batch, only real cells are computed.",
        ),
        (count.packed / 2, "Each entry of a product takes a multiplication and an addition."),
        (
            count.packed / 3,
            "At each step, a GRU multiplies three times, each time by different weights.",
        ),
        (
            count.packed * 4 / 3,
            "That is an LSTM's count, with four products for each cell. A GRU has three.",
        ),
        (from_input, "There are two products: this is the one with the input."),
        (from_state, "There are two products: this is the one with the state."),
    ]
    otherwise = "A cell costs 2 · 3 · hidden_size for each number of the input and of the state; then count the cells."
    return hint_for(yours, mistakes, otherwise)


# The largest relative error that is accepted in an answer.
_NEAR = 0.1


@exercise
def backward_bytes(answer: Callable[[list[int], int], Any]) -> Verdict:
    """Checks a function that computes how many bytes the backward pass of `pad_packed_sequence`
    writes.

    The function takes the lengths and the number of features. Answers within 10 % are accepted. The
    exercise is in notebook 09.
    """
    batches = [(spread(d, 128, 64), 32) for d in (8, 16, 32, 64)]
    batches += [(spread(12, 30, 50), 5), ([*range(40, 20, -1)], 1)]
    yours = [float(answer(list(lengths), features)) for lengths, features in batches]
    counted = [_counted(tuple(lengths), features) for lengths, features in batches]
    distinct = ", ".join(str(len(set(lengths))) for lengths, _ in batches)
    near = [abs(y - right) <= _NEAR * right for y, right in zip(yours, counted, strict=True)]
    shown = [right if fits else y for y, right, fits in zip(yours, counted, near, strict=True)]
    rows = Comparison(
        f"bytes written, by distinct lengths: {distinct}",
        [*map(size, shown)],
        [*map(size, counted)],
    )
    for (lengths, features), y, right, fits in zip(batches, yours, counted, near, strict=True):
        if not fits:
            batch = f"{len(lengths)} sequences of at most {max(lengths)} steps, {len(set(lengths))} distinct lengths,"
            case = f"Not yet for {batch} {features} features: {size(y)}, not {size(right)}."
            return Verdict(False, f"{case} {_bytes_hint(lengths, features, y)}", [rows])
    return Verdict(True, "Your numbers are within 10 % of the counted bytes in every case.", [rows])


@functools.cache
def _counted(lengths: Sequence[int], features: int) -> int:
    """Counts the bytes that the backward pass writes, and keeps the number in case the reader tries again."""
    from packviz.count import profile

    return profile.count(lengths, features, device="meta").pad.backward.bytes


def _bytes_hint(lengths: list[int], features: int, yours: float) -> str:
    distinct, padded, packed = len(set(lengths)), max(lengths) * len(lengths), sum(lengths)
    hints = [
        (padded * 4, "That is one copy of the padded gradient. How many are there?"),
        (
            distinct * padded * 4,
            "These are the copies of the padded gradient. What do SliceBackward and the sum fill?",
        ),
        (
            distinct * (padded + packed) * 4,
            "Nearly. SliceBackward fills whole packed tensors, which are then added up.",
        ),
        (distinct * (padded + 2 * packed), "That counts numbers; a float32 has 4 bytes."),
        (
            max(lengths) * (padded + 2 * packed) * 4,
            "Not every time step costs this, only every *distinct* length.",
        ),
        (
            len(lengths) * (padded + 2 * packed) * 4,
            "Not every sequence costs this, only every *distinct* length.",
        ),
    ]
    otherwise = "Each distinct length costs a copy of the padded gradient, a packed zero-fill and a packed addition."
    near = (
        hint for cells, hint in hints if abs(yours - cells * features) <= _NEAR * cells * features
    )
    return next(near, otherwise)
