"""The exercise on silent mistakes (notebook 11), and the batches it is about."""

from __future__ import annotations

from typing import Any

from packviz.draw.picture import show
from packviz.lessons.exercise import Comparison, Verdict, exercise

_LENGTHS = [6, 2, 4, 1, 5, 3]
_HINTS = (
    "Look where the zeros lie: along which dimension do they fit the lengths?",
    "At which end of its row does each sequence lie? pv.align moves it.",
    "Count the real steps in each row: which rows go on behind their length?",
)


def spoilt_batches() -> list[tuple[Any, list[int], bool]]:
    """Three batches as `(x, lengths, batch_first)`. torch packs each without a word, and wrongly.

    All hold the same six sequences of whole numbers: a is 10, 11, 12, …, b is 20, 21, and so on; zeros are padding.
    """
    from torch import arange, zeros  # noqa: PLC0415

    left, right = zeros(6, 6).long(), zeros(6, 6).long()
    for b, n in enumerate(_LENGTHS):
        left[b, :n] = right[b, 6 - n :] = 10 * (b + 1) + arange(n)
    return [(left, list(_LENGTHS), False), (right, list(_LENGTHS), True), (left, [min(n, 4) for n in _LENGTHS], True)]


@exercise
def repaired_batches(answer: Any) -> Verdict:
    """Three batches with a silent mistake each, repaired: a list of `(x, lengths, batch_first)` (notebook 11)."""
    from torch.nn.utils.rnn import pack_padded_sequence, unpack_sequence  # noqa: PLC0415

    batches = [(x, lengths, batch_first) for x, lengths, batch_first in answer]
    if len(batches) != 3:
        return Verdict(False, f"Give three batches, each as (x, lengths, batch_first); yours are {len(batches)}.")
    target = [" ".join(str(10 * (b + 1) + t) for t in range(n)) for b, n in enumerate(_LENGTHS)]
    pictures = []
    for number, ((x, lengths, batch_first), hint) in enumerate(zip(batches, _HINTS, strict=True), 1):
        drawn = show(x, lengths, batch_first)
        packed = pack_padded_sequence(x, lengths, batch_first, enforce_sorted=False)
        sequences = [" ".join(map(str, one.tolist())) for one in unpack_sequence(packed)]
        rows = Comparison(f"batch {number}: the sequences that are packed", sequences, target)
        if sequences != target:
            return Verdict(False, f"Not yet for batch {number}. {hint}", [drawn, rows])
        pictures.append(drawn)
    return Verdict(True, "All three give the same six sequences, whole and in order; here is the last.", pictures[-1:])
