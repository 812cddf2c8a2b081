"""Checks the exercises on layouts: padding and packed order (notebooks 00 to 02)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from packviz.core.layout import Layout, require_steps
from packviz.draw.picture import Picture, show
from packviz.lessons.exercise import Comparison, Verdict, exercise


@exercise
def half_padding(lengths: Any) -> Verdict:
    """Checks that exactly half of a batch with these lengths is padding (notebook 00)."""
    layout = require_steps(Layout(lengths))
    picture = [Picture(layout)]
    if 2 * layout.n_padding == layout.n_cells:
        return Verdict(
            True,
            f"{layout.n_padding} of {layout.n_cells} cells are padding: exactly half.",
            picture,
        )
    more, hint = "more", "One long sequence adds padding to every other row."
    if 2 * layout.n_padding > layout.n_cells:
        more, hint = "less", "Shorten the longest sequence, or make another one longer."
    return Verdict(
        False,
        f"{layout.n_padding} of {layout.n_cells} cells are padding; you need {more}. {hint}",
        picture,
    )


@exercise
def two_batches(lengths: Sequence[int], batches: Any) -> Verdict:
    """Checks that `batches` splits `lengths` into two batches of equal size with the least padding (notebook 01)."""
    if not all(hasattr(batch, "__len__") for batch in batches):
        return Verdict(False, "Give two lists of lengths, one for each batch.")
    if sorted(n for batch in batches for n in batch) != sorted(lengths):
        return Verdict(False, f"Use each of the lengths {list(lengths)} exactly once.")
    half = len(lengths) // 2
    if [len(batch) for batch in batches] != [half, half]:
        return Verdict(
            False,
            f"Make two batches of {half} sequences each; yours have {[len(b) for b in batches]}.",
        )
    pictures = [Picture(Layout(batch)) for batch in batches]
    in_order = sorted(lengths)
    padding, best = (
        sum(Layout(one).n_padding for one in two)
        for two in (batches, [in_order[:half], in_order[half:]])
    )
    if padding == best:
        return Verdict(
            True, f"There are {padding} padding cells in all, and no split has fewer.", pictures
        )
    hint = "A batch is as wide as its longest sequence. Which sequences should share it?"
    return Verdict(
        False,
        f"There are {padding} padding cells in all, but {best} are possible. {hint}",
        pictures,
    )


@exercise
def batch_sizes(answer: Callable[[list[int]], Any]) -> Verdict:
    """Checks a function that computes batch sizes from lengths (notebook 02)."""
    for lengths in ([3, 2], [5, 2], [3, 5, 2, 4], [1], [2, 2, 2], [9, 8, 6, 4, 3, 2]):
        yours = answer(list(lengths))
        rows = Comparison(f"batch sizes of lengths {lengths}", yours, Layout(lengths).batch_sizes)
        if rows.yours != rows.target:
            hint = "At step t, count the sequences that are longer than t."
            if len(rows.yours) != len(rows.target):
                hint += " There are as many steps as the longest sequence has."
            return Verdict(False, f"Not yet for lengths {lengths}. {hint}", [show(lengths), rows])
    return Verdict(
        True,
        f"Your batch sizes equal torch's in every case. Here are those for lengths {lengths}.",
        [rows],
    )
