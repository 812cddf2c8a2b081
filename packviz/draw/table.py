"""Writes tables as text, and as HTML in the font, width and colours of a notebook's page."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from html import escape

from packviz.core import util
from packviz.core.util import HasText
from packviz.draw import text
from packviz.draw.palette import ink_on

_WRONG = "#b3402a"
LOOKS = {
    "✗": f"background-color:{_WRONG};color:{ink_on(_WRONG)};font-weight:bold;"
    "display:inline-block;padding:0 .4em;border-radius:3px",
    "–": "opacity:.75",
}
"""The CSS of words that begin with one of these signs. It only repeats what the sign means."""

_SIDES = {"<": "left", ">": "right", "^": "center"}
_LINK = re.compile(r"https?://[^\s<]+")


class Tabled(HasText):
    """The base class of results that are shown as tables."""

    @property
    @abstractmethod
    def table(self) -> Table:
        """The result as a table."""

    def to_text(self) -> str:
        """Returns the table as lines of text."""
        return self.table.to_text()

    def to_html(self) -> str:
        """Returns the table as a `<div>` that needs no style sheet and has the page's colours."""
        return self.table.to_html()

    def save(self, path: util.PathLike) -> None:
        """Writes the table to a file whose name ends in `.html` or `.txt`.

        Raises:
            ValueError: the name has a different suffix.
            OSError: the file cannot be written.
        """
        page = '<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8">{}</html>\n'
        forms = {
            ".html": lambda: page.format(self.to_html()),
            ".txt": lambda: self.to_text() + "\n",
        }
        util.write(path, forms)

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        return {"text/html": self.to_html(), "text/plain": self.to_text()}


@dataclass(frozen=True)
class Table(Tabled):
    """A table of words and numbers. The first cell of each row is the name of the row.

    Attributes:
        rows: the cells of each row. A cell that begins with a sign in `LOOKS` has the look of that
            sign.
        head: the headings of the columns; may be empty.
        title: the title above the table; may be empty.
        notes: lines of text below the table.
        folded: a summary, followed by lines that a notebook shows when the summary is clicked; may
            be empty.
        form: the alignment of the columns, as in `text.table`, except that `.` is not allowed.
    """

    rows: Sequence[Sequence[str]]
    head: Sequence[str] = ()
    title: str = ""
    notes: Sequence[str] = ()
    _: KW_ONLY
    folded: Sequence[str] = ()
    form: str = "<  >"

    @property
    def table(self) -> Table:
        """The table itself."""
        return self

    def to_text(self) -> str:
        """Returns the table as lines of text, with the notes below it."""
        head = [self.head] if self.head else []
        lines = text.table([*head, *self.rows], self.form)
        if self.title:
            lines.insert(0, self.title)
        if self.notes or self.folded:
            lines += ["", *self.notes, *self.folded]
        return "\n".join(lines)

    def to_html(self) -> str:
        """Returns the table as a `<div>` with headers that a screen reader recognises."""
        signs = re.findall("[<>^]", self.form)
        columns = max(map(len, self.rows), default=0)
        signs += signs[-1:] * columns
        sides = [_SIDES[sign] for sign in signs]
        parts = []
        if self.title:
            parts.append(f'<caption style="{_CAPTION}">{_html(self.title)}</caption>')
        if self.head:
            heads = map(_head, self.head, sides)
            parts.append(f"<thead><tr>{''.join(heads)}</tr></thead>")
        for name, *rest in self.rows:
            cells = [_cell(_ROW, name, sides[0])]
            for words, side in zip(rest, sides[1:], strict=False):
                cells.append(_cell("td", words, side))
            parts.append(f"<tr>{''.join(cells)}</tr>")
        notes = [_note(words) for words in self.notes]
        if self.folded:
            what, *more = self.folded
            summary = f'<summary style="cursor:pointer">{_html(what)}</summary>'
            lines = "".join(map(_note, more))
            notes.append(f'<details style="{_NOTE}">{summary}{lines}</details>')
        table = "".join(parts)
        return f'<div class="packviz-table"><table>{table}</table>{"".join(notes)}</div>'


_COLUMN = 'th scope="col"'
_ROW = 'th scope="row"'
_CELL = "vertical-align:top;padding:.25em .75em;font-variant-numeric:tabular-nums"
_CAPTION = "caption-side:top;text-align:left;padding:.25em .75em;font-weight:bold;color:inherit"
_NOTE = "max-width:100ch;padding:.1em .75em;font-size:.93em;opacity:.85"


def _head(words: str, side: str) -> str:
    return _cell(_COLUMN if words else "td", words, side)


def _cell(tag: str, words: str, side: str) -> str:
    shown = _html(words)
    if look := LOOKS.get(words[:1]):
        shown = f'<span style="{look}">{shown}</span>'
    return f'<{tag} style="text-align:{side};{_CELL}">{shown}</{tag.split()[0]}>'


def _note(words: str) -> str:
    return f'<div style="{_NOTE}">{_html(words)}</div>'


def _html(words: str) -> str:
    """Returns words as HTML, with web addresses as links."""
    style = "color:inherit;text-decoration:underline"
    link = rf'<a href="\g<0>" target="_blank" rel="noopener" style="{style}">\g<0></a>'
    return _LINK.sub(link, escape(words))
