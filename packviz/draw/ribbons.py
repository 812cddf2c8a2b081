"""Draws where each state goes: ribbons from a list of states to the rows of a tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packviz.core.layout import sequence_name
from packviz.draw.drawing import Drawing
from packviz.draw.palette import sequence_colour
from packviz.draw.sheet import WIDTH, Sheet, row

_STATE_WIDTH = 44.0  # px
_STATE_HEIGHT = 24.0  # px
_ROW_GAP = 14.0  # px: between two rows
_RIBBON_LENGTH = 120.0  # px: the length of a ribbon
_TOP_MARGIN = 34.0  # px: the space for a method's name


@dataclass(frozen=True, eq=False)
class Ribbons(Drawing):
    """The paths of states into the rows of a tensor, for several methods.

    Attributes:
        title: the title above the picture.
        states: the name of each state, and the index of the sequence that it belongs to, in the
            order in which the states lie in memory.
        methods: for each method, by name, the rows of its result: lists of the indices of states,
            or a tensor of them. A state is framed if its row belongs to another sequence.
        rows: the index of the sequence of each row. Defaults to the order of the sequences.

    Raises:
        ValueError: a row lists a state that does not exist.
    """

    title: str
    states: Sequence[tuple[str, int]]
    methods: Mapping[str, Sequence[Sequence[int]]]
    rows: Sequence[int] = range(1 << 31)

    def __post_init__(self) -> None:
        """Refuses rows that do not fit the states."""
        n_states = len(self.states)
        for method, rows in self.methods.items():
            for r, places in enumerate(rows):
                for i in map(int, places):
                    if not 0 <= i < n_states:
                        where = f"methods[{method!r}][{r}]"
                        limit = f"less than {n_states}, the number of states"
                        raise ValueError(f"{where} contains {i}; give an index {limit}")

    def to_text(self) -> str:
        """Returns a line for each method. A `!` marks the state of another sequence."""
        lines = [f"{self.title} (! marks the state of another sequence)"]
        for method, rows in self.methods.items():
            words = []
            for r, places in enumerate(rows):
                names = []
                for i in map(int, places):
                    name, owner = self.states[i]
                    names.append(name if owner == self.rows[r] else f"!{name}")
                words.append(f"row {sequence_name(self.rows[r])}: {' '.join(names)}")
            lines.append(f"{method}: {', '.join(words)}")
        return "\n".join(lines)

    def sheet(self, theme: str) -> Sheet:
        """Draws the states on the left of each method, and its rows on the right."""
        sheet = Sheet(theme, self.to_text())
        y = sheet.title(self.title)
        methods = [self._draw_method(theme, name) for name in self.methods]
        sheet.place(row(methods, theme, 40, WIDTH), 0, y)
        return sheet

    def _draw_method(self, theme: str, method: str) -> Sheet:
        sheet = Sheet(theme)
        sheet.text(0, 16, method, bold=True)
        rows = self.methods[method]
        y_shift = _ROW_GAP * (len(rows) - 1) / 2  # so that both sides have the same middle
        right = _STATE_WIDTH + _RIBBON_LENGTH
        framed_ys = []
        y = _TOP_MARGIN
        for r, places in enumerate(rows):
            name = sequence_name(self.rows[r])
            sheet.text(right + _STATE_WIDTH + 8, y + _STATE_HEIGHT * len(places) / 2 + 4, name)
            for i in map(int, places):
                name, owner = self.states[i]
                colour = sequence_colour(owner)
                start = _TOP_MARGIN + y_shift + i * _STATE_HEIGHT
                left = (_STATE_WIDTH, start + _STATE_HEIGHT / 2)
                sheet.curve(left, (right, y + _STATE_HEIGHT / 2), colour, width=5)
                sheet.cell(0, start, _STATE_WIDTH, _STATE_HEIGHT, colour, name)
                sheet.cell(right, y, _STATE_WIDTH, _STATE_HEIGHT, colour, name)
                if owner != self.rows[r]:
                    framed_ys.append(y)
                y += _STATE_HEIGHT
            y += _ROW_GAP
        sheet.start_layer()
        for y in framed_ys:
            sheet.frame(right, y, _STATE_WIDTH, _STATE_HEIGHT)
        return sheet
