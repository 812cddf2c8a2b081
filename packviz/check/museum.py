"""The exhibits of the error museum: what people meet with packed sequences, why it happens, and what to do.

The texts are in museum.toml. Notebook 11 (or 12) makes nearly each mistake happen, `explain` finds the exhibit of an
error text, and `explain_errors` adds it to an exception.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from textwrap import wrap
from typing import Any

from packviz.core.has_text import HasText
from packviz.core.quiet import quiet
from packviz.draw.table import Table, Tabled
from packviz.draw.text import count

SECTIONS = {
    "silent": "no error, and a wrong answer",
    "error": "an error that does not say why",
    "surprise": "no bug, but a surprise",
}
"""The rooms of the museum, in the order of the walk."""

NOTHING = "nothing"
"""What torch says where it should say something."""

TORCH = "2.13"
"""The version that the texts are from."""

_WIDTH = 100  # characters of a line


@dataclass(frozen=True, repr=False)
class Exhibit(Tabled):
    """One mistake, or one surprise.

    Attributes:
        name: of the mistake.
        section: one of `SECTIONS`.
        why: what happens.
        fix: what to do.
        says: what torch says, in the order in which the notebook tries it: the type and the first line of the text.
        met: other texts of the same cause, with where they were met: another device, function or version.
        asked: where people asked: `repository#number`, of GitHub unless it is the forum.
        words: what people say of it, where there is no text to search for.
        unless: a regular expression: a text with this is of another cause.
        common: a regular expression: other mistakes give texts with this, too.
        notebook: the number of the one that shows it; empty if none does.
    """

    name: str
    section: str
    why: str
    fix: str
    says: tuple[str, ...] = (NOTHING,)
    met: tuple[tuple[str, str], ...] = ()
    asked: tuple[str, ...] = ()
    words: str = ""
    unless: str = ""
    common: str = ""
    notebook: str = "11"

    @property
    def number(self) -> int:
        """Its place in the walk of its notebook, from 1."""
        return 1 + [one.name for one in EXHIBITS if one.notebook == self.notebook].index(self.name)

    @property
    def place(self) -> str:
        """Where it is shown."""
        return f"exhibit {self.number} of notebook {self.notebook}" if self.notebook else "shown in no notebook"

    @property
    def heading(self) -> str:
        """Its name, behind its number where a notebook shows it."""
        return f"{self.number}. {self.name}" if self.notebook else self.name

    @property
    def texts(self) -> list[str]:
        """The error texts that it stands for."""
        return [text for text in [*self.says, *(text for _, text in self.met)] if text != NOTHING]

    @property
    def urls(self) -> list[str]:
        """Where people asked, as links."""
        return [_url(place) for place in self.asked]

    def to_text(self, messages: Sequence[str] | None = None) -> str:
        """Returns the card of the exhibit.

        Args:
            messages: torch's messages in this run; the recorded texts if not given. If they differ, both are shown.
        """
        lines = [self.heading]
        for label, text in self._parts(messages):
            rest = wrap(text, _WIDTH - 12, break_on_hyphens=label != "asked")
            lines += [f"{label if not i else '':<12}{line}" for i, line in enumerate(rest)]
        return "\n".join(lines)

    @property
    def table(self) -> Table:
        """The card of the exhibit."""
        rows = [(label.replace(" ", "\u00a0"), text) for label, text in self._parts(None)]  # a label is one line
        return Table(rows, title=f"{self.heading}: {SECTIONS[self.section]}", form="<  <")

    def _parts(self, messages: Sequence[str] | None) -> Iterator[tuple[str, str]]:
        for text in self.says if messages is None else messages:
            yield "torch says", text
        if messages is not None and tuple(messages) != self.says:
            yield "recorded", f"torch {TORCH} said: {' / '.join(self.says)}"
        for where, text in self.met:
            yield "also met", f"{text} ({where})"
        yield "why", self.why
        yield "fix", self.fix
        if self.asked:
            yield "asked", "  ".join(self.urls)


Attempt = Callable[..., Any]
"""`attempt(function, *arguments)` calls the function, keeps the message that torch gives, and returns the result."""


@contextmanager
def exhibit(name: str) -> Iterator[Attempt]:
    """Lets a mistake happen, and prints the exhibit's card, without its name, with what torch says now.

    An error inside does not go further: it is what was to be shown. Only a failed assertion does.

    Args:
        name: of the exhibit.

    Yields:
        A function that tries one call and catches its error, for an exhibit with several calls (see `Attempt`).

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
    _put_up(shown, messages or [NOTHING])


def _put_up(shown: Exhibit, messages: Sequence[str]) -> None:
    print(shown.to_text(messages).removeprefix(f"{shown.heading}\n"))


@dataclass(frozen=True, repr=False)
class Matches(HasText, Sequence[Exhibit]):
    """The exhibits that `explain` found, the best first.

    Attributes:
        exhibits: what was found; empty if nothing is close.
        doubt: why the first one may be wrong; empty if it is sure.
    """

    exhibits: tuple[Exhibit, ...] = ()
    doubt: str = ""

    def __len__(self) -> int:
        return len(self.exhibits)

    def __getitem__(self, index: Any) -> Any:
        return self.exhibits[index]

    @property
    def sure(self) -> bool:
        """Whether this is a known error text that no other mistake is known to give."""
        return bool(self.exhibits) and not self.doubt

    @property
    def summary(self) -> str:
        """The best match, and how sure it is, in a line."""
        if not self.exhibits:
            return "Nothing close."
        more = f", or {count(len(self) - 1, 'other')}" if len(self) > 1 else ""
        found = f"{self[0].name}, {self[0].place}{more}."
        return f"Sure: {found}" if self.sure else f"Not sure, perhaps: {found} {self.doubt}"

    def to_text(self) -> str:
        """The summary, then of each what torch says, why, and the fix."""
        return "\n\n".join([self.summary, *(one.to_text() for one in self)])

    def to_html(self) -> str:
        """The same as HTML: a table for each."""
        return f'<div class="packviz-table">{self.summary}</div>' + "".join(one.to_html() for one in self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self.to_html(), "text/plain": self.to_text()}


def explain(text: str | BaseException, limit: int = 3) -> Matches:
    """Explains an error from packed sequences that was copied after a crash: why it happens, and what to do.

        pv.explain("RuntimeError: 'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor")

    It knows what torch says of some thirty mistakes, those of the error museum (notebook 11), and says how sure it is:
    several mistakes may share a text. It also finds mistakes without an error, by words such as "h_n order". To explain
    errors as they are raised, with what was passed, use `pv.explain_errors`.

    Args:
        text: the error text, whole or in part, with or without its traceback; numbers, shapes, devices and case do not
            matter. Or the exception itself. Or some words; but words that an error text merely shares with a mistake do
            not count.
        limit: how many mistakes to give at most.

    Returns:
        The mistakes, the best match first. `.sure` is whether the text is that of one mistake and of nothing else that
        is known, and `.doubt` why it is not. It is empty if nothing is close. A notebook shows why each happens and
        what to do; `print` writes it.

    Raises:
        TypeError: `text` is neither a string nor an exception.

    Examples:
        >>> import packviz as pv
        >>> found = pv.explain("RuntimeError: Length of all samples has to be greater than 0")
        >>> found.sure, found[0].name
        (True, 'An empty sequence')
    """
    if isinstance(text, BaseException):
        text = f"{type(text).__name__}: {text}"
    if not isinstance(text, str):
        raise TypeError(f"text is a {type(text).__name__}; give the error text, or some words, as a string")
    text = _COLOUR.sub("", text)
    overlap = {one.name: _overlap(one, text) for one in EXHIBITS if not _has(one.unless, text)}
    by_words = not _IS_ERROR.search(text)
    scores = {
        name: part + 0.5 * _likeness(named(name), text) if part or by_words else 0.0 for name, part in overlap.items()
    }
    least = max(_ENOUGH, max(scores.values()) / 2)
    best = sorted((name for name, score in scores.items() if score >= least), key=lambda name: -scores[name])
    found = tuple(map(named, best[:limit]))
    doubt = ""
    if found and not overlap[best[0]]:
        doubt = "Only some words are alike."
    elif found and (_has(found[0].common, text) or sum(part >= overlap[best[0]] for part in overlap.values()) > 1):
        doubt = "Other mistakes give this text, too."
    return Matches(found, doubt)


def recognise(text: str) -> Exhibit | None:
    """The exhibit of which this error text holds a whole text, if there is one."""
    grams = _grams(text)
    found = [
        one
        for one in EXHIBITS
        if not _has(one.unless, text) and any(_grams(known) <= grams for known in map(_message, one.texts))
    ]
    return max(found, key=lambda one: max(len(_grams(t)) for t in one.texts), default=None)


def first_line(error: BaseException) -> str:
    """The type of an exception and the first line of its text; without the numbers that torch gives to ragged sizes.

    They count the jagged tensors that were made before.
    """
    lines = str(error).splitlines() or [""]
    return _RAGGED.sub("j…", f"{type(error).__name__}: {lines[0]}".rstrip(": "))


_ENOUGH = 0.2  # of a score; a text that is held in full has 1 or more
_IS_ERROR = re.compile(r"Traceback \(most|\[ONNXRuntimeError\]|\b\w*(Error|Exception|Unsupported|InvalidArgument)\s*:")
_PART = 0.6  # less than this of a text is no likeness: many errors end with "out of range"
_RAGGED = re.compile(r"\bj\d+\b")
_DEVICE = re.compile(r"\b(?:cuda|cpu|mps|xpu|hpu|xla|meta)(?::\d+)?\b", re.IGNORECASE)
_IDLE = {
    *("a", "an", "and", "are", "be", "by", "can", "do", "does", "for", "from", "how", "i", "in", "is", "it", "my"),
    *("no", "not", "of", "on", "or", "the", "this", "to", "two", "what", "why"),
}
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def _has(pattern: str, text: str) -> bool:
    """Whether the text has something that matches the pattern, if there is one."""
    return bool(pattern and re.search(pattern, text, re.IGNORECASE))


def _overlap(one: Exhibit, text: str) -> float:
    """How much of one of the exhibit's texts is in this one, or of this one in it, up to 1; 0 if too little."""
    asked = _grams(text)
    best = 0.0
    for known in map(_message, one.texts):
        grams = _grams(known)
        both = len(grams & asked)
        # Of a whole error text, most of the known one; of a part of it, most of what was pasted.
        best = max(best, both / len(grams), both / max(len(asked), 3))
    return best * (best >= _PART)


def _likeness(one: Exhibit, text: str) -> float:
    """The share of the words of a text, weighed by how rare they are in the museum, that the exhibit has."""
    rare, stems = _rarity(), _stems(text)
    weights = {word: rare.get(word, 1.0) for word in stems}
    total = sum(weights.values())
    vocabulary, title = _vocabulary(one.name)
    shared = sum(w * (1 if word in title else 0.6) for word, w in weights.items() if word in vocabulary)
    return shared / total if total else 0


@cache
def _rarity() -> dict[str, float]:
    """By word: 0 if a third of the exhibits have it, in what names them or else anywhere; more for fewer."""
    everywhere, titles = (Counter(w for one in EXHIBITS for w in _vocabulary(one.name)[i]) for i in (0, 1))
    return {word: max(0.0, math.log(len(EXHIBITS) / n / 3)) for word, n in {**everywhere, **titles}.items()}


@cache
def _vocabulary(name: str) -> tuple[frozenset[str], frozenset[str]]:
    """Every word of an exhibit, and those of its name and of what people say of it."""
    one = named(name)
    title = [one.name, one.words]
    return _stems(" ".join([*title, one.why, one.fix, *one.texts])), _stems(" ".join(title))


def _stems(text: str) -> frozenset[str]:
    """The words of a text that say something, without a plural's s."""
    return frozenset(word.rstrip("s") for word in _words(text) if word not in _IDLE)


def _grams(text: str) -> frozenset[tuple[str, ...]]:
    """The threes of words that follow each other; of a very short text, all its words as one."""
    words = _words(text)
    return frozenset(zip(words, words[1:], words[2:], strict=False)) or frozenset({tuple(words)})


def _words(text: str) -> list[str]:
    """What is left of a text without numbers, shapes, devices, signs and case."""
    return re.findall(r"[a-z_]+", _DEVICE.sub(" ", _COLOUR.sub("", text)).lower())


def _message(text: str) -> str:
    """An error text without its type."""
    return re.sub(r"^\w+: ", "", text)


def named(name: str) -> Exhibit:
    """The exhibit of this name.

    Raises:
        ValueError: there is none.
    """
    names = [one.name for one in EXHIBITS]
    if name not in names:
        raise ValueError(f"there is no exhibit {name!r}; there are {', '.join(map(repr, names))}")
    return EXHIBITS[names.index(name)]


def _url(place: str) -> str:
    repository, _, number = place.partition("#")
    if repository == "forum":
        return f"https://discuss.pytorch.org/t/{number}"
    return f"https://github.com/{repository}/issues/{number}"


def _read() -> Iterator[Exhibit]:
    sections = tomllib.loads(resources.files("packviz.check").joinpath("museum.toml").read_text(encoding="utf-8"))
    for section, exhibits in sections.items():
        for one in exhibits:
            yield Exhibit(section=section, **{name: _fixed(value) for name, value in one.items()})


def _fixed(value: Any) -> Any:
    """Lists as tuples."""
    return tuple(map(_fixed, value)) if isinstance(value, list) else value


EXHIBITS = tuple(_read())
"""Every exhibit, section by section."""
