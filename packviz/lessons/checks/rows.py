"""The exercises on flat rows, and on rows that hold several documents (notebook 14)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from packviz.core.batches import FIRST_FIT, FIRST_FIT_DECREASING, NEXT_FIT, fill
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


@exercise
def first_fit_decreasing(answer: Callable[[list[int], int], Any]) -> Verdict:
    """Checks a function from lengths and a row size to rows, as few as first-fit decreasing needs.

    It belongs to notebook 14.
    """
    many, drawn = [1 + 37 * i % 23 for i in range(40)], list[Comparison]()
    for lengths, row_size in (([3, 7, 4, 5, 4], 8), ([5, 3, 2], 7), ([2, 2, 2, 2], 4), ([6], 6), (many, 24)):
        yours = [[int(n) for n in row] for row in answer(list(lengths), row_size)]
        strategies = {
            strategy: _filled(lengths, row_size, strategy) for strategy in (FIRST_FIT_DECREASING, NEXT_FIT, FIRST_FIT)
        }
        few = len(strategies[FIRST_FIT_DECREASING])
        shown = [Comparison(f"rows of {row_size}", _sums(yours), _sums(strategies[FIRST_FIT_DECREASING]))] * (few < 8)
        case = f"Not yet for lengths {lengths if few < 8 else f'{str(lengths[:6])[:-1]}, …]'} and row size {row_size}."
        if sorted(n for row in yours for n in row) != sorted(lengths):
            return Verdict(False, f"{case} Put each of the lengths into one row, none of them twice.", shown)
        if full := [row for row in yours if sum(row) > row_size]:
            return Verdict(False, f"{case} {full[0]} makes {sum(full[0])}, over {row_size}.", shown)
        if len(yours) > few:
            used = next((strategy for strategy, rows in strategies.items() if rows == yours), "")
            return Verdict(False, f"{case} {len(yours)} rows, and {few} suffice. {_HINTS[used]}", shown)
        drawn = drawn or shown
    return Verdict(True, f"As few rows as first-fit decreasing, also for {len(many)} documents.", drawn)


_HINTS = {
    NEXT_FIT: "That is next-fit: it never looks back. Try every row that is begun, from the first one on.",
    FIRST_FIT: "That is first-fit, in the order given. Take the longest first: the short ones fill what is left.",
    "": "Take the longest first, and put each into the first row that has room.",
}


def _filled(lengths: Sequence[int], row_size: int, strategy: str) -> list[list[int]]:
    return [[lengths[i] for i in row] for row in fill(lengths, row_size, strategy)]


def _sums(rows: Sequence[Sequence[int]]) -> list[str]:
    return ["+".join(map(str, row)) for row in rows]
