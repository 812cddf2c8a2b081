"""The exercise on flat rows (notebook 14)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from packviz.lessons.exercise import Comparison, Verdict, entries, exercise


@exercise
def document_ids(answer: Callable[[list[int]], Any]) -> Verdict:
    """Checks a function from lengths to the number of the document that each flat row belongs to (notebook 14)."""
    for lengths in ([5, 3, 2], [2, 3], [1], [1, 1, 4], [3, 3]):
        target = [b for b, n in enumerate(lengths) for _ in range(n)]
        rows = Comparison(f"document ids of lengths {lengths}", *entries(answer(list(lengths)), target))
        if rows.yours != rows.target:
            return Verdict(False, f"Not yet for lengths {lengths}. {_ids_hint(rows, lengths)}", [rows])
    return Verdict(True, f"Right for every case; here is lengths {lengths}.", [rows])


def _ids_hint(rows: Comparison, lengths: Sequence[int]) -> str:
    answer = [*rows.yours]
    if answer == [str(t) for n in lengths for t in range(n)]:
        return "These are positions: which token of its document a row is. Say which document."
    if answer == [str(b + 1) for b, n in enumerate(lengths) for _ in range(n)]:
        return "Number the documents from 0."
    if answer == [str(b) for t in range(max(lengths)) for b, n in enumerate(lengths) if t < n]:
        return "That is step after step. In flat rows one document follows the other."
    if answer == [str(n) for n in lengths for _ in range(n)]:
        return "These are lengths: how long a row's document is. Say which document."
    return "One number for each row: 0 for the first lengths[0] rows, 1 for the next lengths[1], and so on."
