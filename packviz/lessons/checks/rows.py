"""Checks the exercise on flat rows (notebook 14)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from packviz.lessons.exercise import Comparison, Verdict, exercise, hint_for


@exercise
def document_ids(answer: Callable[[list[int]], Any]) -> Verdict:
    """Checks a function that returns the number of the document to which each flat row belongs (notebook 14)."""
    for lengths in ([5, 3, 2], [2, 3], [1], [1, 1, 4], [3, 3]):
        target = [b for b, n in enumerate(lengths) for _ in range(n)]
        rows = Comparison(f"document ids of lengths {lengths}", answer(list(lengths)), target)
        if rows.yours != rows.target:
            mistakes = [
                (
                    [t for n in lengths for t in range(n)],
                    "These are positions. Give the document's number.",
                ),
                ([b + 1 for b in target], "Number the documents from 0."),
                (
                    [b for t in range(max(lengths)) for b, n in enumerate(lengths) if t < n],
                    "These ids go step by step. In flat rows, one document follows another.",
                ),
                (
                    [n for n in lengths for _ in range(n)],
                    "These are the lengths. Give the document's number.",
                ),
            ]
            otherwise = "One number per row: 0 for the first lengths[0] rows, 1 for the next lengths[1], and so on."
            hint = hint_for(
                rows.yours, (([*map(str, wrong)], hint) for wrong, hint in mistakes), otherwise
            )
            return Verdict(False, f"Not yet for lengths {lengths}. {hint}", [rows])
    return Verdict(
        True, f"Your ids are right in every case. Here are those for lengths {lengths}.", [rows]
    )
