"""Defines results whose numbers can be passed on to other programs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from packviz.core.util import HasText

Row = Mapping[str, object]
"""A row of a table: each value by the name of its column."""


class HasNumbers(HasText):
    """A result that consists of a summary and a table of numbers."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """The result in a sentence."""

    @abstractmethod
    def numbers(self) -> Sequence[Row]:
        """Returns the rows of the table. All have the same columns, and hold plain values."""

    def to_dict(self) -> dict[str, object]:
        """Returns the result as plain values, for example for `json.dumps`.

        `"summary"` is a sentence, and `"rows"` a list of dicts, from which pandas makes a table:
        `pd.DataFrame(result.to_dict()["rows"])`.
        """
        return {"summary": self.summary, "rows": [dict(row) for row in self.numbers()]}

    def to_markdown(self) -> str:
        """Returns the summary and a table in Markdown, for an issue or a report."""
        rows = self.numbers()
        table = [[_format_value(value) for value in row.values()] for row in rows]
        if table:
            head = [*rows[0]]
            table = [head, ["---"] * len(head), *table]
        lines = [f"| {' | '.join(cells)} |" for cells in table]
        return "\n".join([self.summary, "", *lines]).strip()


def _format_value(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value).replace("|", r"\|")
