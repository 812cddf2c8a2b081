"""Provides the entries of the error museum: mistakes with their causes and fixes.

The texts are in museum.toml. Notebook 15 demonstrates most of the mistakes that raise no
error, all surprises, and some of the errors. `explain` finds the entry for an error text, and
`explain_errors` adds the entry's explanation to an exception.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import resources
from textwrap import wrap
from traceback import format_tb
from typing import Any

from packviz.core.silence import quiet
from packviz.core.util import HasText
from packviz.core.validation import kind_of, require_one_of
from packviz.draw.table import HasTable, Table
from packviz.draw.text import with_noun

SECTIONS = {
    "silent": "no error, but a wrong answer",
    "error": "an error that does not say why",
    "surprise": "no bug, but a surprise",
}  # in the order of the notebook
NO_MESSAGE = "nothing"  # replaces the message if there is no error
TORCH_VERSION = "2.13"  # the version of torch that raised the recorded errors


@dataclass(frozen=True)
class _Rule:
    """A rule that recognises the error text of a mistake.

    The patterns are regular expressions that ignore case. Each is searched for in the whole error
    text, including the traceback if there is one.

    Attributes:
        text: a pattern that must be found. If it has groups named `less` and `more`, these must
            match two widths of the same batch with `less` < `more` < 2 · `less`, because a larger
            ratio has a different cause.
        near: a second pattern that must be found, too; empty if there is none.
        unless: a pattern that must not be found; empty if there is none.
        unsure: whether other mistakes produce this text, too. If so, the rule fits a text of
            several lines only if the text also mentions one of the subjects in `PACKING_PATTERN`.
    """

    text: str
    near: str = ""
    unless: str = ""
    unsure: bool = False

    def fits(self, text: str) -> bool:
        """Returns whether the rule fits an error text, with or without its traceback."""
        search = partial(re.search, string=text, flags=re.IGNORECASE)
        match = search(self.text)
        if not match or not search(self.near):
            return False
        if self.unless and search(self.unless):
            return False
        if self.unsure and "\n" in text.strip() and not search(PACKING_PATTERN):
            return False
        widths = match.groupdict()
        if not widths:
            return True
        smaller_width = int(widths["less"])
        return smaller_width < int(widths["more"]) < 2 * smaller_width


PACKING_PATTERN = (
    r"lstm|gru|rnn|pack(ed)?_pad|pad_packed|pack_sequence|PackedSequence|parallel"
    r"|torch.(export|onnx)|Guard failed|lengths|mask|target"
)


@dataclass(frozen=True, eq=False)
class Entry(HasTable):
    """A mistake or a surprise that the museum shows.

    Attributes:
        name: the name of the mistake.
        section: one of `SECTIONS`.
        why: the reason for the mistake.
        fix: the remedy.
        says: torch's messages, each as the error's type and first line, in the order in which the
            notebook provokes them.
        met: other messages with the same cause, each preceded by the device, function or version
            that produced it.
        links: links to questions and issues.
        words: words that people use to describe the mistake, if there is no message to search for.
        rules: the rules that recognise its messages.
        shown: whether notebook 15 shows it.
    """

    name: str
    section: str
    why: str
    fix: str
    says: Sequence[str] = (NO_MESSAGE,)
    met: Sequence[tuple[str, str]] = ()
    links: Sequence[str] = ()
    words: str = ""
    rules: Sequence[_Rule] = ()
    shown: bool = True

    @property
    def number(self) -> int:
        """The number of the entry in notebook 15, counted from 1."""
        return 1 + [entry for entry in ENTRIES if entry.shown].index(self)

    @property
    def place(self) -> str:
        """The place of the entry as text, such as `entry 3 of notebook 15`."""
        return f"entry {self.number} of notebook 15" if self.shown else "shown in no notebook"

    @property
    def heading(self) -> str:
        """The name of the entry, preceded by its number if a notebook shows it."""
        return f"{self.number}. {self.name}" if self.shown else self.name

    @property
    def texts(self) -> list[str]:
        """All recorded messages."""
        texts = [*self.says, *(text for _, text in self.met)]
        return [text for text in texts if text != NO_MESSAGE]

    def to_text(self) -> str:
        """Returns the heading and the card of the entry."""
        return f"{self.heading}\n{self.card()}"

    def card(self, messages: Sequence[str] = ()) -> str:
        """Returns the card: the messages, the reason, the fix, and links to questions.

        Args:
            messages: torch's messages in this run. If they differ from the recorded messages, the
                card shows both.
        """
        lines = []
        for label, text in self._card_parts(messages or self.says):
            first_line, *other_lines = wrap(text, 80, break_on_hyphens=label != "asked")
            lines.append(f"{label:<12}{first_line}")
            lines += [" " * 12 + line for line in other_lines]
        return "\n".join(lines)

    @property
    def table(self) -> Table:
        """The card of the entry, as a table."""
        rows = []
        for label, text in self._card_parts(self.says):
            rows.append((label.replace(" ", "\u00a0"), text))  # labels must not wrap
        return Table(rows, title=f"{self.heading}: {SECTIONS[self.section]}", column_format="<  <")

    def _card_parts(self, messages: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yields the parts of the card, each with its label."""
        for message in messages:
            yield "torch says", message
        if list(messages) != list(self.says):
            yield "recorded", f"torch {TORCH_VERSION} said: {' / '.join(self.says)}"
        for where, text in self.met:
            yield "also met", f"{text} ({where})"
        yield "why", self.why
        yield "fix", self.fix
        if self.links:
            yield "asked", "  ".join(self.links)


# `attempt(function, *arguments)` calls the function, keeps the message that torch gives, and
# returns the result.
AttemptFunction = Callable[..., Any]


@contextmanager
def entry(name: str) -> Iterator[AttemptFunction]:
    """Runs a block that makes a mistake, and prints the entry's card with this run's messages.

    `entry` catches and shows every error, except for a failed assertion, which it raises again.

    Args:
        name: the name of the entry.

    Yields:
        A function for entries with several calls: it makes one call, and catches the error of that
        call (see `AttemptFunction`).

    Raises:
        ValueError: there is no such entry.
    """
    shown_entry = find_entry(name)
    messages: list[str] = []

    def attempt(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        messages.append(NO_MESSAGE)
        try:
            return function(*args, **kwargs)
        except Exception as error:
            messages[-1] = _message(error)
            return None

    try:
        with quiet():
            yield attempt
    except AssertionError:
        raise
    except Exception as error:
        messages.append(_message(error))
    print(shown_entry.card(messages or [NO_MESSAGE]))


def _message(error: Exception) -> str:
    """Returns the type and the first line of an exception.

    It omits torch's numbers for ragged sizes, which count the jagged tensors made before.
    """
    first_line = str(error).partition("\n")[0]
    message = f"{type(error).__name__}: {first_line}".rstrip(": ")
    return re.sub(r"\bj\d+\b", "j…", message)


@dataclass(frozen=True)
class Matches(HasText, Sequence[Entry]):
    """The entries that `explain` found, best match first.

    Attributes:
        entries: the entries; empty if nothing matches.
        doubt: the reason why the first entry may be the wrong one; empty if there is no doubt.
    """

    entries: tuple[Entry, ...] = ()
    doubt: str = ""

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, index: Any) -> Any:
        return self.entries[index]

    @property
    def sure(self) -> bool:
        """True if the error text belongs to one known mistake and to no other."""
        return bool(self.entries) and not self.doubt

    @property
    def summary(self) -> str:
        """A line that names the best match and states whether it is sure."""
        if not self.entries:
            return "Nothing matches."
        best_text = f"{self[0].place}, “{self[0].name}”"
        if len(self) > 1:
            best_text += f" (or {with_noun(len(self) - 1, 'other')})"
        return (
            f"Sure: {best_text}." if self.sure else f"Not sure; perhaps {best_text}. {self.doubt}"
        )

    def to_text(self) -> str:
        """Returns the summary, followed by the heading and the card of each entry."""
        return "\n\n".join([self.summary, *(entry.to_text() for entry in self)])

    def to_html(self) -> str:
        """Returns the summary and the entries as HTML, with a table for each entry."""
        cards = "".join(entry.to_html() for entry in self)
        return f'<div class="packviz-table">{self.summary}</div>{cards}'

    _repr_html_ = to_html


def explain(text: str | BaseException) -> Matches:
    """Explains why an error with packed sequences happens, given its text, and what to do.

    For example::

        pv.explain("IndexError: index out of range in self")

    `explain` knows the error texts of the fifty or so mistakes in the error museum (see notebook
    15). It reports how sure it is, because several mistakes may produce the same text. Paste the
    traceback, too, because the same text may come from an embedding or from packing. For a mistake
    that raises no error, search with a few words, such as "h_n order". To have errors explained
    when they are raised, use `pv.explain_errors`.

    Args:
        text: the error text with or without its traceback, the exception itself, or some words.

    Returns:
        Up to three mistakes that match, best match first; empty if there are none. The result's
        `.sure` is True if only one known mistake produces this text. If the first match may be
        wrong, `.doubt` gives the reason. A notebook displays why each mistake happens and what to
        do, and `print` writes this as text.

    Raises:
        TypeError: `text` is neither a string nor an exception.

    Examples:
        >>> import packviz as pv
        >>> matches = pv.explain("RuntimeError: Length of all samples has to be greater than 0")
        >>> matches.sure, matches[0].name
        (True, 'An empty sequence')
    """
    if isinstance(text, BaseException):
        text = error_text(text)
    if not isinstance(text, str):
        raise TypeError(
            f"text is {kind_of(text)}; give the error itself, or its text or some words as a string"
        )
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)  # without colours
    matches = match_rules(text)
    if matches or ERROR_PATTERN.search(text):
        return matches
    return _match_words(text)


def match_rules(text: str) -> Matches:
    """Returns up to three entries whose rules fit an error text.

    Rules marked `unsure` count only if no other rule fits.
    """
    sure_entries: dict[Entry, None] = {}
    unsure_entries: dict[Entry, None] = {}
    for entry in ENTRIES:
        for rule in entry.rules:
            if rule.fits(text):
                (unsure_entries if rule.unsure else sure_entries)[entry] = None
    best_entries = tuple(sure_entries or unsure_entries)[:3]
    if len(sure_entries) == 1 or not best_entries:
        return Matches(best_entries)
    return Matches(best_entries, SHARED_TEXT_DOUBT)


def error_text(error: BaseException) -> str:
    """Returns the traceback and the message of an exception, without its notes."""
    traceback_text = "".join(format_tb(error.__traceback__))
    return f"{traceback_text}{type(error).__name__}: {error}"


ERROR_PATTERN = re.compile(
    r"Traceback \(most|\[ONNXRuntimeError\]|\b\w+(Error|Exception)\b|\b(Error|Unsupported)\s*:"
    r"|^expected\b|must (be|have|match)\b|has no attribute|is not callable|doesn't match|is invalid"
    r"|out of (range|bounds)|to unpack|unsupported operand|violated",
    re.IGNORECASE,
)
SHARED_TEXT_DOUBT = "Other mistakes produce this text, too."
WORDS_DOUBT = "Only some words match."
STOP_WORDS = " and are can does for from got how not the this two what why "


def _match_words(text: str) -> Matches:
    """Returns up to three entries that share words with a text. Rare words count more."""
    word_scores_by_entry = {}
    for entry in ENTRIES:
        body_word_scores = dict.fromkeys(
            _search_words(f"{entry.why} {entry.fix} {entry.texts}"), 0.6
        )
        word_scores_by_entry[entry] = body_word_scores | dict.fromkeys(
            _search_words(f"{entry.name} {entry.words}"), 1.0
        )
    word_weights = {}
    for word in _search_words(text):
        found_scores = [
            word_scores[word]
            for word_scores in word_scores_by_entry.values()
            if word in word_scores
        ]
        n_matching_entries = found_scores.count(1.0) or len(found_scores) or 5
        word_weights[word] = max(0.0, math.log(len(ENTRIES) / n_matching_entries / 3))
    scores = {}
    for entry, word_scores in word_scores_by_entry.items():
        scores[entry] = sum(
            weight * word_scores.get(word, 0.0) for word, weight in word_weights.items()
        )
    min_score = max(0.4 * sum(word_weights.values()), max(scores.values()) / 2)
    good_entries = [entry for entry in ENTRIES if scores[entry] >= min_score > 0]
    good_entries.sort(key=scores.__getitem__, reverse=True)
    return Matches(tuple(good_entries[:3]), WORDS_DOUBT if good_entries else "")


def _search_words(text: str) -> frozenset[str]:
    """Returns the words of a text that matter in a search, in lower case, without a final `s`."""
    words = re.findall(r"[a-z_]{3,}", text.lower())
    return frozenset(word.rstrip("s") for word in words if f" {word} " not in STOP_WORDS)


def find_entry(name: str) -> Entry:
    """Returns the entry with this name.

    Raises:
        ValueError: there is no entry with this name.
    """
    names = [entry.name for entry in ENTRIES]
    return ENTRIES[names.index(require_one_of("name", name, names))]


def _read_entries() -> Iterator[Entry]:
    """Yields the entries of museum.toml."""
    file = resources.files("packviz.check").joinpath("museum.toml")
    text = re.sub(
        r'"([\w./-]+)#', r'"https://github.com/\1/issues/', file.read_text(encoding="utf-8")
    )
    for section, entries in tomllib.loads(text).items():
        for entry_fields in entries:
            rules = [_Rule(text, unsure=True) for text in entry_fields.pop("unsure", ())]
            rules += [
                _Rule(rule) if isinstance(rule, str) else _Rule(**rule)
                for rule in entry_fields.pop("rules", ())
            ]
            yield Entry(section=section, rules=rules, **entry_fields)


ENTRIES = tuple(_read_entries())  # section by section
