"""Provides the exhibits of the error museum: mistakes with packed sequences, with their causes and
fixes.

The texts are in museum.toml. Notebooks 14 and 15 demonstrate most of the mistakes that raise no
error, all surprises, and some of the errors. `explain` finds the exhibit for an error text, and
`explain_errors` adds the exhibit's explanation to an exception.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import resources
from itertools import chain
from textwrap import wrap
from traceback import format_exception
from typing import Any

from packviz.core.has_text import HasText
from packviz.core.quiet import quiet
from packviz.core.validation import kind_of, one_of
from packviz.draw.table import Table, Tabled
from packviz.draw.text import count

SECTIONS = {
    "silent": "no error, but a wrong answer",
    "error": "an error that does not say why",
    "surprise": "no bug, but a surprise",
}  # in the order of the notebook
NOTHING = "nothing"  # replaces the message if there is no error
TORCH = "2.13"  # the version of torch that raised the recorded errors


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
            several lines only if the text also mentions an RNN, packing or data parallelism.
    """

    text: str
    near: str = ""
    unless: str = ""
    unsure: bool = False

    def fits(self, text: str) -> bool:
        """Returns whether the rule fits an error text, with or without its traceback."""
        has = partial(re.search, string=text, flags=re.IGNORECASE)
        if (
            not (found := has(self.text))
            or not has(self.near)
            or (self.unless and has(self.unless))
        ):
            return False
        if self.unsure and "\n" in text.strip() and not has(_PACKING):
            return False
        widths = found.groupdict()
        return not widths or int(widths["less"]) < int(widths["more"]) < 2 * int(widths["less"])


_PACKING = r"lstm|gru|rnn|pack(ed)?_pad|pad_packed|pack_sequence|PackedSequence|parallel"


@dataclass(frozen=True, repr=False, eq=False)
class Exhibit(Tabled):
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
        asked: links to questions and issues.
        words: words that people use to describe the mistake, if there is no message to search for.
        rules: the rules that recognise its messages.
        notebook: the number of the notebook that shows it; empty if none does.
    """

    name: str
    section: str
    why: str
    fix: str
    says: Sequence[str] = (NOTHING,)
    met: Sequence[tuple[str, str]] = ()
    asked: Sequence[str] = ()
    words: str = ""
    rules: Sequence[_Rule] = ()
    notebook: str = "15"

    @property
    def number(self) -> int:
        """The number of the exhibit in its notebook, counted from 1."""
        return 1 + [one for one in EXHIBITS if one.notebook == self.notebook].index(self)

    @property
    def place(self) -> str:
        """The place of the exhibit as text, such as `exhibit 3 of notebook 15`."""
        return (
            f"exhibit {self.number} of notebook {self.notebook}"
            if self.notebook
            else "shown in no notebook"
        )

    @property
    def heading(self) -> str:
        """The name of the exhibit, preceded by its number if a notebook shows it."""
        return f"{self.number}. {self.name}" if self.notebook else self.name

    @property
    def texts(self) -> list[str]:
        """All recorded messages."""
        return [text for text in [*self.says, *(text for _, text in self.met)] if text != NOTHING]

    def to_text(self) -> str:
        """Returns the heading and the card of the exhibit."""
        return f"{self.heading}\n{self.card()}"

    def card(self, messages: Sequence[str] = ()) -> str:
        """Returns the card: the messages, the reason, the fix, and links to questions.

        Args:
            messages: torch's messages in this run. If they differ from the recorded messages, the
                card shows both.
        """
        lines = []
        for label, text in self._parts(messages or self.says):
            rest = wrap(text, 88, break_on_hyphens=label != "asked")
            lines += [f"{label if not i else '':<12}{line}" for i, line in enumerate(rest)]
        return "\n".join(lines)

    @property
    def table(self) -> Table:
        """The card of the exhibit, as a table."""
        rows = [
            (label.replace(" ", "\u00a0"), text) for label, text in self._parts(self.says)
        ]  # labels must not wrap
        return Table(rows, title=f"{self.heading}: {SECTIONS[self.section]}", form="<  <")

    def _parts(self, messages: Sequence[str]) -> Iterator[tuple[str, str]]:
        yield from (("torch says", text) for text in messages)
        if list(messages) != list(self.says):
            yield "recorded", f"torch {TORCH} said: {' / '.join(self.says)}"
        yield from (("also met", f"{text} ({where})") for where, text in self.met)
        yield from (("why", self.why), ("fix", self.fix))
        if self.asked:
            yield "asked", "  ".join(self.asked)


# `attempt(function, *arguments)` calls the function, keeps the message that torch gives, and
# returns the result.
Attempt = Callable[..., Any]


@contextmanager
def exhibit(name: str) -> Iterator[Attempt]:
    """Runs a `with` block that makes a mistake, and then prints the exhibit's card with the
    messages of this run.

    `exhibit` catches and shows every error, except for a failed assertion, which it raises again.

    Args:
        name: the name of the exhibit.

    Yields:
        A function for exhibits with several calls: it makes one call, and catches the error of that
        call (see `Attempt`).

    Raises:
        ValueError: there is no such exhibit.
    """
    shown = named(name)
    messages: list[str] = []

    def attempt(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        messages.append(NOTHING)
        try:
            return function(*args, **kwargs)
        except Exception as error:
            messages[-1] = first_line(error)
            return None

    try:
        with quiet():
            yield attempt
    except AssertionError:
        raise
    except Exception as error:
        messages.append(first_line(error))
    print(shown.card(messages or [NOTHING]))


@dataclass(frozen=True, repr=False)
class Matches(HasText, Sequence[Exhibit]):
    """The exhibits that `explain` found, best match first.

    Attributes:
        exhibits: the exhibits; empty if nothing matches.
        doubt: the reason why the first exhibit may be the wrong one; empty if there is no doubt.
    """

    exhibits: tuple[Exhibit, ...] = ()
    doubt: str = ""

    def __len__(self) -> int:
        return len(self.exhibits)

    def __getitem__(self, index: Any) -> Any:
        return self.exhibits[index]

    @property
    def sure(self) -> bool:
        """True if the error text belongs to one known mistake and to no other."""
        return bool(self.exhibits) and not self.doubt

    @property
    def summary(self) -> str:
        """A line that names the best match and says whether it is sure."""
        if not self.exhibits:
            return "Nothing matches."
        more = f", or {count(len(self) - 1, 'other')}" if len(self) > 1 else ""
        found = f"{self[0].name}, {self[0].place}{more}."
        return f"Sure: {found}" if self.sure else f"Not sure, perhaps: {found} {self.doubt}"

    def to_text(self) -> str:
        """Returns the summary, followed by the heading and the card of each exhibit."""
        return "\n\n".join([self.summary, *(one.to_text() for one in self)])

    def to_html(self) -> str:
        """Returns the summary and the exhibits as HTML, with a table for each exhibit."""
        return f'<div class="packviz-table">{self.summary}</div>' + "".join(
            one.to_html() for one in self
        )

    _repr_html_ = to_html


def explain(text: str | BaseException) -> Matches:
    """Explains, given the text of an error with packed sequences, why it happens and what to do
    about it.

        pv.explain("RuntimeError: 'lengths' argument should be a 1D CPU int64 tensor, but got 1D
        cuda:0 Long tensor")

    `explain` knows the error texts of the forty or so mistakes in the error museum (see notebook
    15). It reports how sure it is, because several mistakes may produce the same text. Paste the
    traceback, too, because the same text may come from an embedding or from packing. For a mistake
    that raises no error, search with a few words, such as "h_n order". To have errors explained
    when they are raised, along with the arguments of the call, use `pv.explain_errors`.

    Args:
        text: the error text with or without its traceback, the exception itself, or some words.

    Returns:
        Up to three mistakes that match, best match first; empty if there are none. The result's
        `.sure` is True if only one known mistake produces this text. If the first match may be
        wrong, `.doubt` says why. A notebook displays why each mistake happens and what to do, and
        `print` writes this as text.

    Raises:
        TypeError: `text` is neither a string nor an exception.

    Examples:
        >>> import packviz as pv
        >>> found = pv.explain("RuntimeError: Length of all samples has to be greater than 0")
        >>> found.sure, found[0].name
        (True, 'An empty sequence')
    """
    if isinstance(text, BaseException):
        text = text_of(text)
    if not isinstance(text, str):
        raise TypeError(f"text is {kind_of(text)}; give the error text, or some words, as a string")
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)  # without colours
    found = match(text)
    return found if found or _IS_ERROR.search(text) else _by_words(text)


def match(text: str) -> Matches:
    """Returns up to three exhibits whose rules fit an error text.

    Rules marked `unsure` count only if no other rule fits.
    """
    fitting = [(one, rule.unsure) for one in EXHIBITS for rule in one.rules if rule.fits(text)]
    sure = dict.fromkeys(one for one, unsure in fitting if not unsure)
    found = tuple(sure or dict.fromkeys(one for one, _ in fitting))
    return Matches(
        found[:3], "" if len(sure) == 1 or not found else "Other mistakes produce this text, too."
    )


def text_of(error: BaseException) -> str:
    """Returns the message of an exception with its traceback."""
    return "".join(format_exception(error, chain=False))


def first_line(error: BaseException) -> str:
    """Returns the type and the first line of an exception, without torch's numbers for ragged
    sizes.

    These numbers depend on how many jagged tensors were made before.
    """
    lines = str(error).splitlines() or [""]
    return re.sub(r"\bj\d+\b", "j…", f"{type(error).__name__}: {lines[0]}".rstrip(": "))


_IS_ERROR = re.compile(
    r"Traceback \(most|\[ONNXRuntimeError\]|\b\w+(Error|Exception)\b|\b(Error|Unsupported)\s*:"
    r"|^expected\b|must (be|match)\b|has no attribute|doesn't match|is invalid|out of (range|bounds)|to unpack",
    re.IGNORECASE,
)
_IDLE = " and are can does for from got how not the this two what why "


def _by_words(text: str) -> Matches:
    """Returns up to three exhibits that share words with a text. A word counts more if it is rare in the museum."""
    titles = {one: _words(f"{one.name} {one.words}") for one in EXHIBITS}
    bodies = {one: _words(" ".join([one.why, one.fix, *one.texts])) for one in EXHIBITS}
    often = {**Counter(chain(*bodies.values())), **Counter(chain(*titles.values()))}
    rare = {
        word: max(0.0, math.log(len(EXHIBITS) / often.get(word, 5) / 3)) for word in _words(text)
    }
    scores = {
        one: sum(rare[w] * max(w in titles[one], 0.6 * (w in bodies[one])) for w in rare)
        for one in EXHIBITS
    }
    least = max(0.4 * sum(rare.values()), max(scores.values()) / 2)
    best = sorted(
        (one for one in EXHIBITS if scores[one] >= least > 0), key=scores.__getitem__, reverse=True
    )
    return Matches(tuple(best[:3]), "Only some words match." if best else "")


def _words(text: str) -> frozenset[str]:
    """Returns the words of a text that matter in a search, in lower case and without any `s` at the end."""
    words = re.findall(r"[a-z_]{3,}", text.lower())
    return frozenset(word.rstrip("s") for word in words if f" {word} " not in _IDLE)


def named(name: str) -> Exhibit:
    """Returns the exhibit with this name.

    Raises:
        ValueError: there is no exhibit with this name.
    """
    found = {one.name: one for one in EXHIBITS}
    return found[one_of("name", name, found)]


def _read() -> Iterator[Exhibit]:
    sections = tomllib.loads(
        resources.files("packviz.check").joinpath("museum.toml").read_text(encoding="utf-8")
    )
    for section, exhibits in sections.items():
        for one in exhibits:
            rules = [_Rule(**rule) for rule in one.pop("rules", ())]
            yield Exhibit(section=section, rules=rules, **one)


EXHIBITS = tuple(_read())  # section by section
