"""Presents what a check of a batch has found, as text and as a table, without torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from packviz.core.util import HasText
from packviz.draw.table import HasTable, Table
from packviz.draw.text import with_noun

LEVELS = {"error": "✗", "warning": "!", "info": "i"}
"""The levels, most serious first, with the mark of each."""

UNDECIDED_RULE = "undecided"
"""The rule of a finding which reports that something could not be judged."""


@dataclass(frozen=True)
class Finding(HasText):
    """One result of a check.

    Attributes:
        level: `"error"` if something breaks or is wrong, `"warning"` if something may be wrong, or
            `"info"` for anything else that is worth knowing.
        rule: a short name that all findings of the same kind share.
        message: the text of the finding.
        where: the line of the user's code, or the sequences, that the finding is about; empty if it
            is about neither.
        fix: the remedy, which may include code to paste; empty if there is nothing to do.
        indices: the rows of the batch that the finding is about, so that you can look at
            `lengths[i]` and row `i` of `x`; empty if it is about the batch as a whole.
    """

    level: str
    rule: str
    message: str
    where: str = ""
    fix: str = ""
    indices: tuple[int, ...] = ()

    @property
    def headline(self) -> str:
        """The mark, the level and the rule, such as `✗ error: trace`."""
        return f"{LEVELS[self.level]} {self.level}: {self.rule}"

    def to_text(self) -> str:
        """Returns the finding as text."""
        return "\n".join([self.headline, *(f"    {line}" for line in self.details())])

    def details(self) -> list[str]:
        """Returns the finding without its headline, in lines of at most 88 characters."""
        paragraphs = self.message.splitlines()
        if self.where:
            paragraphs.append(f"where: {self.where}")
        if self.fix:
            # An assignment is not broken at its blanks, so that it can be pasted.
            unbroken_fix = re.sub(
                r"[\w.]+ = \S+", lambda code: code[0].replace(" ", "\xa0"), self.fix
            )
            paragraphs.append(f"fix: {unbroken_fix}")
        lines = []
        for paragraph in paragraphs:
            lines += wrap(paragraph, 88, subsequent_indent="  ")
        return [line.replace("\xa0", " ") for line in lines]


@dataclass(frozen=True)
class Findings(HasTable, Sequence[Finding]):
    """The findings of a check, most serious first, and otherwise as they were found.

    Attributes:
        title: the name of the model, or a description of the batch.
        found: the findings.
    """

    title: str
    found: tuple[Finding, ...] = ()

    def __post_init__(self) -> None:
        findings = [finding for level in LEVELS for finding in self.of_level(level)]
        object.__setattr__(self, "found", tuple(findings))

    def __len__(self) -> int:
        return len(self.found)

    def __getitem__(self, index: Any) -> Any:
        return self.found[index]

    @property
    def ok(self) -> bool:
        """True if there is no error, and nothing is undecided."""
        return not self.of_level("error") and not self.undecided

    @property
    def undecided(self) -> bool:
        """True if something could not be judged."""
        return UNDECIDED_RULE in self.rules

    @property
    def rules(self) -> list[str]:
        """The rule of each finding."""
        return [finding.rule for finding in self.found]

    def of_level(self, level: str) -> tuple[Finding, ...]:
        """Returns the findings of one level."""
        return tuple(finding for finding in self.found if finding.level == level)

    @property
    def headline(self) -> str:
        """The title and the number of findings of each level, as in `✗ x: 1 error, 2 warnings`."""
        mark = "✓"
        counts = ["undecided"] if self.undecided else []
        for level in LEVELS:
            n_findings = len(self.of_level(level))
            if n_findings:
                counts.append(
                    f"{n_findings} info" if level == "info" else with_noun(n_findings, level)
                )
        if self.of_level("warning"):
            mark = LEVELS["warning"]
        if self.undecided:
            mark = "?"
        if self.of_level("error"):
            mark = LEVELS["error"]
        return f"{mark} {self.title}: {', '.join(counts) or 'nothing found'}"

    def to_text(self) -> str:
        """Returns the headline and every finding as text."""
        return "\n".join([self.headline, *(finding.to_text() for finding in self.found)])

    @property
    def table(self) -> Table:
        """The findings under their headline, as a table whose text can be copied."""
        rows = []
        for finding in self.found:
            rows.append([finding.headline, finding.message])
            if finding.where:
                rows.append(["where", finding.where])
            if finding.fix:
                rows.append(["fix", finding.fix])
        return Table(rows, [], self.headline, column_format="<  <")
