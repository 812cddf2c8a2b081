"""Draws a batch from its lengths, its tensors or its sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np

from packviz.core.layout import IntArray, Layout, to_numpy
from packviz.core.padded import describe_shape, dimension_order, is_padding_on_side
from packviz.core.validation import kind_of, require_dense, require_one_of, require_plain_values
from packviz.draw import batch_picture, text
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import Sheet, stack

_ACCEPTED_INPUTS = (
    "give lengths, a padded x with its lengths, a PackedSequence, or a list of sequences"
)


class Picture(Drawing):
    """A drawing of a batch.

    A notebook shows it, `print` writes its text, and `save` writes it to a file.

    Attributes:
        layout: the `Layout` of the batch.

    Examples:
        >>> import packviz as pv
        >>> picture = pv.show([3, 2], part="packed")
        >>> print(picture)
        2 sequences padded to 3 time steps: 6 cells, 5 real, 1 padding (16.7 % wasted).
        <BLANKLINE>
        packed: 5 rows of data, time step by time step
          t=0   batch_sizes[0] = 2   rows 0–1     a0 b0
          t=1   batch_sizes[1] = 2   rows 2–3     a1 b1
          t=2   batch_sizes[2] = 1   row  4       a2
        batch_sizes      [2, 2, 1]
    """

    def __init__(
        self, layout: Layout, labels: text.Labels | None = None, caption: str = "", **choices: Any
    ) -> None:
        """Draws a layout.

        Args:
            layout: the batch.
            labels: the labels of each sequence's cells. By default, a cell's label is the name of
                its sequence and its time step, as in `a0`.
            caption: a line of text above the picture; may be empty.
            **choices: further options, as in `show`.
        """
        self.layout = layout
        self._caption = caption
        self._view = batch_picture.BatchView(layout, labels, **choices)

    def to_text(self) -> str:
        """Describes the picture as text, for a screen reader, a terminal or a diff."""
        layout = self.layout
        view = self._view
        parts = [self._caption] if self._caption else []
        parts.append(text.describe_batch(view, view.part))
        # The description of a small, unsorted batch has the indices already.
        has_indices = view.is_small and not layout.is_sorted
        if view.indices and not has_indices:
            parts += text.index_lines(layout)
        if view.flat:
            parts += ["", text.describe_flat_rows(view)]
        return "\n".join(parts)

    def sheet(self, theme: str) -> Sheet:
        """Draws the batch, or the chosen part of it, below the caption if there is one."""
        drawn = batch_picture.draw(self._view, theme)
        return stack(self._caption, [drawn], theme) if self._caption else drawn


def show(
    what: object,
    lengths: object = None,
    batch_first: bool | None = None,
    *,
    names: Sequence[str] | None = None,
    indices: bool = False,
    flat: bool = False,
    part: Literal["all", "padded", "packed", "data"] = "all",
) -> Picture:
    """Draws a batch of sequences: padded, as packed steps, and as packed data in memory.

    Args:
        what: the batch, in one of these forms:

            * `lengths`: `(B,)` whole numbers, or a mask, `(B, T)` booleans that are True at real
              cells;
            * `x`: a padded batch `(T, B, …)`, or `(B, T, …)` with `batch_first`, passed with its
                `lengths`;
            * a `PackedSequence`, made by torch or by hand;
            * a nested tensor with the layout `torch.jagged`, without holes;
            * a list of sequences, each a string, a list or a tensor;
            * a `Layout`.
        lengths: `(B,)` the number of real time steps of each sequence, or a mask, if `what` is a
            padded batch.
        batch_first: whether the batch is the first dimension of a padded `x`. Defaults to False, as
            in torch, with a warning if `B` equals `T`.
        names: a name for each sequence. Defaults to `a`, `b`, …
        indices: whether to add `sorted_indices` and `unsorted_indices`, with each entry next to its
            row if there is room. The text of a small batch contains them anyway if the batch is not
            sorted.
        flat: whether to add the flat rows (one sequence after another, the order used for
            attention), and the place of each packed row among them. The text then contains `starts`
            and `flat_rows`.
        part: `"padded"`, `"packed"` or `"data"` to draw and describe that part alone. A single part
            can't be combined with `indices` or `flat`, which apply to the whole picture.

    Sequences of equal length keep their order. torch's own sort (`enforce_sorted=False`) keeps it
    only in batches of up to 16. To see torch's order, show the `PackedSequence`, or
    `Layout.from_packed(packed)`.

    Returns:
        A `Picture`. A notebook shows it, `print` writes its text, and `.save("batch.svg")` writes
        it to a file.

    Raises:
        ValueError: the lengths are not valid, are all 0, are missing for a padded batch, or do not
            fit it (the width of a mask is ignored); the numbers of names and sequences differ; or
            `part` is unknown, or is combined with an option that applies only to the whole picture.
        TypeError: `what` has none of the forms above (for example, it is a nested tensor with a
            different layout), or `names` is not a list of strings.

    Examples:
        >>> import packviz as pv
        >>> picture = pv.show([5, 3, 2])
        >>> picture.layout.n_padding
        5
        >>> print(picture.to_text().splitlines()[0])
        3 sequences padded to 5 time steps: 15 cells, 10 real, 5 padding (33.3 % wasted).
    """
    require_one_of("part", part, text.BATCH_PARTS)
    if part != text.WHOLE_BATCH and (indices or flat):
        fix = "leave these out, or leave part out"
        raise ValueError(f"part={part!r} cannot be combined with indices or flat: {fix}")
    layout, caption, values = _read(what, lengths, batch_first)
    if not layout.n_real:
        raise ValueError("lengths are all 0; give at least one time step to draw")
    labels = None
    rows = values() if text.is_small(layout) else None
    if rows is not None:
        labels = [list(map(text.format_value, row)) for row in rows]
    if names is not None:
        names = [names] if isinstance(names, str) else list(names)
        if not all(isinstance(name, str) for name in names):
            fix = "give a word for each sequence, as in names=['abc', 'x']"
            raise TypeError(f"names is {names!r}; {fix}")
        if len(names) != layout.batch_size:
            entries = text.with_noun(len(names), "entry", "entries")
            sequences = text.with_noun(layout.batch_size, "sequence")
            raise ValueError(f"names has {entries} for {sequences}: give one for each sequence")
    return Picture(layout, labels, caption, names=names, indices=indices, flat=flat, part=part)


# A function that returns the values of each sequence, or `None` to show letters.
_ValuesGetter = Callable[[], Iterable[Iterable[object]] | None]
_ReadResult = tuple[Layout, str, _ValuesGetter]


def _read(what: Any, lengths: object, batch_first: bool | None) -> _ReadResult:
    """Returns the layout, the caption and the values of a batch in any form."""
    is_jagged = getattr(what, "is_nested", False) and hasattr(what, "offsets")
    if not is_jagged:
        require_dense("x", what)
    is_packed = hasattr(what, "batch_sizes") and hasattr(what, "data")
    dimension_counts = (
        [min(_n_dimensions(part), 2) for part in what] if isinstance(what, tuple) else []
    )
    if dimension_counts == [2, 1]:
        raise ValueError(
            "this pair looks like x and its lengths, as pad_packed_sequence returns them:"
            " call show(*pair)"
        )
    if lengths is not None:
        if is_packed or is_jagged or isinstance(what, Layout):
            raise ValueError(f"{kind_of(what)} already has lengths: call show() without lengths")
        return _read_padded(what, lengths, batch_first)
    if isinstance(what, Layout):
        return what, "", lambda: None
    if is_packed:
        caption = f"PackedSequence with data of shape {tuple(what.data.shape)}"
        layout = Layout.from_packed(what)
        packed_row_indices = layout.packed_index[layout.mask]
        return layout, caption, lambda: _split_rows(what.data, layout, packed_row_indices)
    if is_jagged:
        if what.lengths() is not None:
            raise ValueError(
                "x is a nested tensor with holes, as torch.nested.narrow makes them:"
                " call show(x.contiguous())"
            )
        layout = Layout.from_offsets(what.offsets())
        values = what.values()
        caption = f"nested tensor (torch.jagged) with values of shape {tuple(values.shape)}"
        flat_row_indices = np.arange(layout.n_real)
        return layout, caption, lambda: _split_rows(values, layout, flat_row_indices)
    if isinstance(what, (list, tuple)) and what and all(map(_is_sequence, what)):
        if all(isinstance(item, str) and item.strip().isdecimal() for item in what):
            raise TypeError(
                f"show() cannot tell whether {what!r} are lengths; give lengths as numbers,"
                " or each word as a list of characters"
            )
        sizes = [len(item) for item in what]
        return Layout(sizes), "", lambda: _sequence_values(what)
    if what is None or isinstance(what, (str, dict)):
        raise TypeError(f"show() cannot draw {kind_of(what)}: {_ACCEPTED_INPUTS}")
    if getattr(what, "ndim", 1) > 1:
        if _is_mask(what):
            return Layout.from_mask(what), "", lambda: None
        fix = "call show(x, lengths, batch_first=…)"
        raise ValueError(f"x of shape {tuple(what.shape)} needs its lengths: {fix}")
    return Layout(what), "", lambda: None


def _is_mask(values: Any) -> bool:
    """Returns whether an array or a tensor holds booleans, or whole numbers that are 0 or 1."""
    dtype_name = str(values.dtype)
    has_integer_dtype = "int" in dtype_name or "bool" in dtype_name
    return values.ndim == 2 and has_integer_dtype and bool(((values == 0) | (values == 1)).all())


def _read_padded(x: Any, lengths: object, batch_first: bool | None) -> _ReadResult:
    dimensions_text = dimension_order(batch_first)
    if not hasattr(x, "shape"):
        try:
            x = np.asarray(x)
        except ValueError:  # NumPy raises this for rows of unequal length
            fix = "to draw sequences as they are, call show(x)"
            raise ValueError(
                f"x must be a padded batch {dimensions_text}, got rows of unequal length; {fix}"
            ) from None
        if not x.shape:
            raise TypeError(
                f"show() cannot draw {kind_of(x.item())} with lengths: {_ACCEPTED_INPUTS}"
            )
    require_plain_values("x", x)
    shape = tuple(x.shape)
    if len(shape) < 2:
        raise ValueError(f"x must be a padded batch {dimensions_text}, got shape {shape}")
    layout = Layout.from_padded(shape, lengths, batch_first)
    caption = describe_shape(shape, batch_first)
    if layout.batch_size == layout.max_len:
        caption += ". B and T are equal, so torch cannot tell which is which;"
        caption += f" check batch_first={bool(batch_first)}"
    batch_first_x = _to_cpu(x) if batch_first else _to_cpu(x).swapaxes(0, 1)
    if is_padding_on_side(batch_first_x, layout.lengths, "left"):
        caption += ". The padding seems to be on the left, but it is drawn on the right;"
        caption += " pv.align(x, lengths, padding_side='right', batch_first=…) moves it"
    return layout, caption, lambda: _squeeze(batch_first_x, 2)


def _split_rows(data: object, layout: Layout, order: IntArray) -> list[np.ndarray] | None:
    """Returns the values of each sequence, given the row of `data` for each flat row."""
    rows = _squeeze(_to_cpu(data), 1)
    if rows is None:
        return None
    return np.split(rows[order], layout.starts[1:-1])


def _sequence_values(sequences: Sequence[object]) -> list[Iterable[object]] | None:
    """Returns the values of each sequence."""
    rows: list[Iterable[object]] = []
    for sequence in sequences:
        if isinstance(sequence, (str, list, tuple)):
            rows.append(sequence)
            continue
        values = _squeeze(_to_cpu(sequence), 1)
        if values is None:
            return None
        rows.append(values)
    return rows


def _is_sequence(item: object) -> bool:
    return isinstance(item, (str, list, tuple)) or _n_dimensions(item) > 0


def _n_dimensions(item: object) -> int:
    return getattr(item, "ndim", 0)


def _squeeze(values: np.ndarray, n_dimensions: int) -> np.ndarray | None:
    """Removes all but the first dimensions. Returns `None` unless the others have size 1."""
    shape = values.shape[:n_dimensions]
    if values.size != np.prod(shape):
        return None
    return values.reshape(shape)


def _to_cpu(values: Any) -> np.ndarray:
    """Copies a tensor's values to the CPU.

    A meta tensor has no values, so each entry becomes a vector of size 0.
    """
    if getattr(values, "is_meta", False):
        return np.empty((*values.shape, 0))
    return to_numpy(values)
