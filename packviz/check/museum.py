"""The exhibits of the error museum: what people meet with packed sequences, why it happens, and what to do.

The texts are in museum.toml. Notebook 15 (or 14) makes nearly each mistake happen, `explain` finds the exhibit of an
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
from functools import partial
from importlib import resources
from itertools import chain
from textwrap import wrap
from traceback import format_exception
from typing import Any

from packviz.core.has_text import HasText
from packviz.core.quiet import quiet
from packviz.draw.table import Table, Tabled
from packviz.draw.text import count

SECTIONS = {
    "silent": "no error, and a wrong answer",
    "error": "an error that does not say why",
    "surprise": "no bug, but a surprise",
}  # the parts of the museum, in the order of the walk
NOTHING = "nothing"  # what torch says where it should say something
TORCH = "2.13"  # the version that the texts are from


@dataclass(frozen=True)
class _Rule:
    """What an error text has if it comes from a mistake.

    All are regular expressions, in which case does not matter. They are searched in the message with its traceback.

    Attributes:
        text: what the message says. If it has groups named `less` and `more`, `less` < `more` < 2 · `less`: two widths
            of the same batch, where a large ratio speaks of something else.
        near: what the message or the traceback has, too.
        unless: what neither has.
        unsure: other mistakes give this text, too. If the message comes with other lines, they must be about an RNN,
            packing, or replicas.
    """

    text: str
    near: str = ""
    unless: str = ""
    unsure: bool = False

    def fits(self, text: str) -> bool:
        """Returns whether an error text, with or without its traceback, has all this."""
        has = partial(re.search, string=text, flags=re.IGNORECASE)
        if not (found := has(self.text)) or not has(self.near) or (self.unless and has(self.unless)):
            return False
        if self.unsure and "\n" in text.strip() and not has(_PACKING):
            return False
        widths = found.groupdict()
        return not widths or int(widths["less"]) < int(widths["more"]) < 2 * int(widths["less"])


_PACKING = r"lstm|gru|rnn|pack(ed)?_pad|pad_packed|pack_sequence|PackedSequence|parallel"


@dataclass(frozen=True, repr=False, eq=False)
class Exhibit(Tabled):
    """One mistake, or one surprise.

    Attributes:
        name: of the mistake.
        section: one of `SECTIONS`.
        why: what happens.
        fix: what to do.
        says: what torch says, in the order in which the notebook tries it: the type and the first line of the text.
        met: other texts of the same cause, with where they were met: another device, function or version.
        asked: where people asked, as links.
        words: what people say of it, where there is no text to search for.
        rules: by which it is told from an error text.
        notebook: the number of the one that shows it; empty if none does.
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
        """Its place in the walk of its notebook, from 1."""
        return 1 + [one for one in EXHIBITS if one.notebook == self.notebook].index(self)

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

    def to_text(self) -> str:
        """Returns the card of the exhibit."""
        return f"{self.heading}\n{self.card()}"

    def card(self, messages: Sequence[str] = ()) -> str:
        """Returns the card without its heading.

        Args:
            messages: torch's messages in this run. If they differ from the recorded ones, both are shown.
        """
        lines = []
        for label, text in self._parts(messages or self.says):
            rest = wrap(text, 88, break_on_hyphens=label != "asked")
            lines += [f"{label if not i else '':<12}{line}" for i, line in enumerate(rest)]
        return "\n".join(lines)

    @property
    def table(self) -> Table:
        """The card of the exhibit."""
        rows = [(label.replace(" ", "\u00a0"), text) for label, text in self._parts(self.says)]  # a label is one line
        return Table(rows, title=f"{self.heading}: {SECTIONS[self.section]}", form="<  <")

    def _parts(self, messages: Sequence[str]) -> Iterator[tuple[str, str]]:
        yield from (("torch says", text) for text in messages)
        if list(messages) != list(self.says):
            yield "recorded", f"torch {TORCH} said: {' / '.join(self.says)}"
        yield from (("also met", f"{text} ({where})") for where, text in self.met)
        yield from (("why", self.why), ("fix", self.fix))
        if self.asked:
            yield "asked", "  ".join(self.asked)


# `attempt(function, *arguments)` calls the function, keeps the message that torch gives, and returns the result.
Attempt = Callable[..., Any]


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
    print(shown.card(messages or [NOTHING]))


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

    _repr_html_ = to_html


def explain(text: str | BaseException) -> Matches:
    """Explains an error from packed sequences that was copied after a crash: why it happens, and what to do.

        pv.explain("RuntimeError: 'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor")

    It knows the error texts of some forty mistakes, those of the error museum (notebook 15), and says how sure it is,
    because several mistakes may share a text. With the traceback it knows more: the same text may come from an
    embedding or from packing. It also finds mistakes without an error, by words such as "h_n order". To explain errors
    as they are raised, with what was passed, use `pv.explain_errors`.

    Args:
        text: the error text with or without its traceback, the exception itself, or some words.

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
        text = text_of(text)
    if not isinstance(text, str):
        raise TypeError(f"text is a {type(text).__name__}; give the error text, or some words, as a string")
    text = _COLOUR.sub("", text)
    found = match(text)
    return found if found or _IS_ERROR.search(text) else _by_words(text)


def match(text: str) -> Matches:
    """Returns the exhibits whose rules an error text fits: those that are sure, or else the others."""
    fitting = [(one, rule.unsure) for one in EXHIBITS for rule in one.rules if rule.fits(text)]
    sure = dict.fromkeys(one for one, unsure in fitting if not unsure)
    found = tuple(sure or dict.fromkeys(one for one, _ in fitting))
    return Matches(found[:3], "" if len(sure) == 1 or not found else "Other mistakes give this text, too.")


def text_of(error: BaseException) -> str:
    """Returns the message of an exception with its traceback."""
    return "".join(format_exception(error, chain=False))


def first_line(error: BaseException) -> str:
    """The type of an exception and the first line of its text; without the numbers that torch gives to ragged sizes.

    They count the jagged tensors that were made before.
    """
    lines = str(error).splitlines() or [""]
    return re.sub(r"\bj\d+\b", "j…", f"{type(error).__name__}: {lines[0]}".rstrip(": "))


_IS_ERROR = re.compile(
    r"Traceback \(most|\[ONNXRuntimeError\]|\b\w+(Error|Exception)\b|\b(Error|Unsupported)\s*:"
    r"|^expected\b|must (be|match)\b|has no attribute|doesn't match|is invalid|out of (range|bounds)|to unpack",
    re.IGNORECASE,
)
_IDLE = " and are can does for from got how not the this two what why "
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def _by_words(text: str) -> Matches:
    """Returns the exhibits that have the words of a text, which count by how rare they are in the museum."""
    titles = {one: _words(f"{one.name} {one.words}") for one in EXHIBITS}
    bodies = {one: _words(" ".join([one.why, one.fix, *one.texts])) for one in EXHIBITS}
    often = {**Counter(chain(*bodies.values())), **Counter(chain(*titles.values()))}
    rare = {word: max(0.0, math.log(len(EXHIBITS) / often.get(word, 5) / 3)) for word in _words(text)}
    scores = {one: sum(rare[w] * max(w in titles[one], 0.6 * (w in bodies[one])) for w in rare) for one in EXHIBITS}
    least = max(0.4 * sum(rare.values()), max(scores.values()) / 2)
    best = sorted((one for one in EXHIBITS if scores[one] >= least > 0), key=scores.__getitem__, reverse=True)
    return Matches(tuple(best[:3]), "Only some words are alike." if best else "")


def _words(text: str) -> frozenset[str]:
    """Returns the words of a text that say something, without a plural's s."""
    words = re.findall(r"[a-z_]{3,}", text.lower())
    return frozenset(word.rstrip("s") for word in words if f" {word} " not in _IDLE)


def named(name: str) -> Exhibit:
    """Returns the exhibit of this name.

    Raises:
        ValueError: there is none.
    """
    found = {one.name: one for one in EXHIBITS}
    if name not in found:
        raise ValueError(f"there is no exhibit {name!r}; there are {', '.join(map(repr, found))}")
    return found[name]


def _read() -> Iterator[Exhibit]:
    sections = tomllib.loads(resources.files("packviz.check").joinpath("museum.toml").read_text(encoding="utf-8"))
    for section, exhibits in sections.items():
        for one in exhibits:
            rules = [_Rule(**rule) for rule in one.pop("rules", ())]
            yield Exhibit(section=section, rules=rules, **one)


EXHIBITS = tuple(_read())  # section by section
