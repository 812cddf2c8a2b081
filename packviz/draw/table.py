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

_WRONG_COLOUR = "#b3402a"
SIGN_STYLES = {
    "✗": f"background-color:{_WRONG_COLOUR};color:{ink_on(_WRONG_COLOUR)};font-weight:bold;"
    "display:inline-block;padding:0 .4em;border-radius:3px",
    "–": "opacity:.75",
}
"""The CSS of words that begin with one of these signs. It only repeats what the sign means."""

_ALIGNMENT_BY_SIGN = {"<": "left", ">": "right", "^": "center"}
_LINK = re.compile(r"https?://[^\s<]+")


class HasTable(HasText):
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
        page_template = '<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8">{}</html>\n'
        util.write_file(
            path,
            {
                ".html": lambda: page_template.format(self.to_html()),
                ".txt": lambda: self.to_text() + "\n",
            },
        )

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        return {"text/html": self.to_html(), "text/plain": self.to_text()}


@dataclass(frozen=True)
class Table(HasTable):
    """A table of words and numbers. The first cell of each row is the name of the row.

    Attributes:
        rows: the cells of each row. A cell that begins with a sign in `SIGN_STYLES` has the look of
            that sign.
        head: the headings of the columns; may be empty.
        title: the title above the table; may be empty.
        notes: lines of text below the table.
        collapsed_lines: a summary, followed by lines that a notebook shows when the summary is
            clicked; may be empty.
        column_format: the alignment of the columns, as in `text.table`, except that `.` is not
            allowed.
    """

    rows: Sequence[Sequence[str]]
    head: Sequence[str] = ()
    title: str = ""
    notes: Sequence[str] = ()
    _: KW_ONLY
    collapsed_lines: Sequence[str] = ()
    column_format: str = "<  >"

    @property
    def table(self) -> Table:
        """The table itself."""
        return self

    def to_text(self) -> str:
        """Returns the table as lines of text, with the notes below it."""
        head = [self.head] if self.head else []
        lines = text.table([*head, *self.rows], self.column_format)
        if self.title:
            lines.insert(0, self.title)
        if self.notes or self.collapsed_lines:
            lines += ["", *self.notes, *self.collapsed_lines]
        return "\n".join(lines)

    def to_html(self) -> str:
        """Returns the table as a `<div>` with headers that a screen reader recognises."""
        alignments = [_ALIGNMENT_BY_SIGN[sign] for sign in re.findall("[<>^]", self.column_format)]
        columns = max(map(len, self.rows), default=0)
        alignments += alignments[-1:] * columns
        parts = []
        if self.title:
            parts.append(
                f'<caption style="{_CAPTION_STYLE}">{_html_with_links(self.title)}</caption>'
            )
        if self.head:
            header_cells = map(_header_cell, self.head, alignments)
            parts.append(f"<thead><tr>{''.join(header_cells)}</tr></thead>")
        for name, *cell_texts in self.rows:
            cells = [_cell(_ROW_HEADER, name, alignments[0])]
            for words, alignment in zip(cell_texts, alignments[1:], strict=False):
                cells.append(_cell("td", words, alignment))
            parts.append(f"<tr>{''.join(cells)}</tr>")
        notes = [_note(words) for words in self.notes]
        if self.collapsed_lines:
            summary_text, *detail_lines = self.collapsed_lines
            summary = f'<summary style="cursor:pointer">{_html_with_links(summary_text)}</summary>'
            lines = "".join(map(_note, detail_lines))
            notes.append(f'<details style="{_NOTE_STYLE}">{summary}{lines}</details>')
        table = "".join(parts)
        return f'<div class="packviz-table"><table>{table}</table>{"".join(notes)}</div>'


_COLUMN_HEADER = 'th scope="col"'
_ROW_HEADER = 'th scope="row"'
_CELL_STYLE = "vertical-align:top;padding:.25em .75em;font-variant-numeric:tabular-nums"
_CAPTION_STYLE = (
    "caption-side:top;text-align:left;padding:.25em .75em;font-weight:bold;color:inherit"
)
_NOTE_STYLE = "max-width:100ch;padding:.1em .75em;font-size:.93em;opacity:.85"


def _header_cell(words: str, alignment: str) -> str:
    return _cell(_COLUMN_HEADER if words else "td", words, alignment)


def _cell(tag: str, words: str, alignment: str) -> str:
    content = _html_with_links(words)
    if style := SIGN_STYLES.get(words[:1]):
        content = f'<span style="{style}">{content}</span>'
    return f'<{tag} style="text-align:{alignment};{_CELL_STYLE}">{content}</{tag.split()[0]}>'


def _note(words: str) -> str:
    return f'<div style="{_NOTE_STYLE}">{_html_with_links(words)}</div>'


def _html_with_links(words: str) -> str:
    """Returns words as HTML, with web addresses as links."""
    style = "color:inherit;text-decoration:underline"
    link_template = rf'<a href="\g<0>" target="_blank" rel="noopener" style="{style}">\g<0></a>'
    return _LINK.sub(link_template, escape(words))
