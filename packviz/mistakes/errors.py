"""`explain_errors`: an exception from packing says what was passed, why it was refused, and what to do."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from textwrap import indent, wrap
from types import FrameType, TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from packviz import text
from packviz.layout import Layout
from packviz.mistakes import museum

Asked = ParamSpec("Asked")
Result = TypeVar("Result")

_SIGN = "packviz: "  # begins every note


class Explained:
    """What `explain_errors` gives: a context manager, and a decorator of functions, generators and coroutines."""

    def __enter__(self) -> None:
        """Costs nothing: all is done when an exception passes."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Adds the note and lets the exception pass."""
        if isinstance(error, Exception):
            with suppress(Exception):  # whatever is wrong with the explanation, the error itself must come through
                _explain(error)

    def __call__(self, function: Callable[Asked, Result]) -> Callable[Asked, Result]:
        """Wraps a function, so that its body is inside."""
        wrapped: Any
        if inspect.iscoroutinefunction(function):

            async def wrapped(*args: Asked.args, **kwargs: Asked.kwargs) -> Any:
                with self:
                    return await function(*args, **kwargs)
        elif inspect.isgeneratorfunction(function):

            def wrapped(*args: Asked.args, **kwargs: Asked.kwargs) -> Any:
                with self:
                    return (yield from function(*args, **kwargs))
        else:

            def wrapped(*args: Asked.args, **kwargs: Asked.kwargs) -> Any:
                with self:
                    return function(*args, **kwargs)

        return cast("Callable[Asked, Result]", functools.wraps(function)(wrapped))


def explain_errors() -> Explained:
    """Adds a note (PEP 678) to an exception from packing, from unpacking, or from an RNN that is given a packed batch.

    The note says what was passed, drawn as text if it is small, and, if the error is one of the museum's, why it
    happens and what to do. Nothing else changes: it is the same exception with the same traceback, and it goes on. An
    error that has nothing to do with packing gets no note. As long as nothing is raised this costs nothing.

    Use it around some code, or as a decorator of a function, a generator or a coroutine:

        with pv.explain_errors():
            packed = pack_padded_sequence(x, lengths)

        @pv.explain_errors()
        def forward(self, x, lengths): ...
    """
    return Explained()


@dataclass(frozen=True)
class _Passed:
    """A call that the traceback shows."""

    said: str
    drawn: str
    packed: bool


def _explain(error: Exception) -> None:
    if any(str(note).startswith(_SIGN) for note in getattr(error, "__notes__", ())):
        return  # an inner one has been here
    frames = list(_frames(error.__traceback__))
    said = str(error)
    passed = next((found for frame in reversed(frames) if (found := _call(frame))), None)
    known = museum.recognise(said)
    if passed is None and known:
        packed = _packed_in(frames[-1])
        drawn = "" if packed is None else _drawn_packed(packed)
        passed = _Passed("", drawn, packed is not None)
    own = known and _OWN_WORDS.search(said)
    if passed is None or not (own or passed.packed):
        return
    head = f"{known.name} (exhibit {known.number} of notebook 11)" if known else "what was passed"
    parts = [f"why: {known.why}", f"fix: {known.fix}"] if known else []
    parts += [f"passed: {passed.said}"] * bool(passed.said)
    lines = [line for part in parts for line in wrap(part, 100, initial_indent="  ", subsequent_indent="    ")]
    error.add_note("\n".join([_SIGN + head, *lines, *["", indent(passed.drawn, "  ")] * bool(passed.drawn)]))


_OWN_WORDS = re.compile(r"PackedSequence|enforce_sorted|pack(ed)?_pad|pad_packed|RNN, GRU, or LSTM|hidden size")
"""A text with these is about packing, wherever it was raised."""


def _frames(traceback: TracebackType | None) -> Iterator[FrameType]:
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next


def _call(frame: FrameType) -> _Passed | None:
    """What was passed, if this frame is a call of packing, unpacking or an RNN."""
    given = frame.f_locals
    name = frame.f_code.co_name
    if name == "pack_padded_sequence" and "input" in given and "lengths" in given:
        return _packing(given)
    if name == "pad_packed_sequence" and _is_packed(given.get("sequence")):
        total = given.get("total_length")
        said = f"pad_packed_sequence({_said(given['sequence'])}{'' if total is None else f', total_length={total}'})"
        return _Passed(said, _drawn_packed(given["sequence"]), True)
    if name == "forward" and any(kind.__name__ == "RNNBase" for kind in type(given.get("self")).__mro__):
        x, hx = given.get("orig_input", given.get("input")), given.get("hx")
        said = f"{given['self']} called with {_said(x)}" + (f" and hx {_said(hx)}" if hx is not None else "")
        return _Passed(said, _drawn_packed(x) if _is_packed(x) else "", _is_packed(x))
    return None


def _packing(given: dict[str, Any]) -> _Passed:
    x, lengths, batch_first = given["input"], given["lengths"], bool(given.get("batch_first"))
    order = given.get("sorted_indices")
    if order is not None:  # torch has sorted them; back to the caller's order
        back = lengths.clone()
        back[order.cpu()] = lengths
        lengths = back
    numbers = None
    if getattr(getattr(lengths, "device", None), "type", "cpu") == "cpu":
        numbers = lengths.tolist() if hasattr(lengths, "tolist") else lengths
    said = (
        f"pack_padded_sequence({_said(x)}, lengths={_some(numbers) if numbers is not None else _said(lengths)},"
        f" batch_first={batch_first}, enforce_sorted={given.get('enforce_sorted')})"
    )
    return _Passed(said, "" if numbers is None else _drawn_padded(x.shape, numbers, batch_first), True)


def _drawn_padded(shape: tuple[int, ...], lengths: Any, batch_first: bool) -> str:
    try:
        return _drawn(Layout.from_padded(shape, lengths, batch_first))
    except ValueError as error:
        try:
            other = Layout.from_padded(shape, lengths, not batch_first)
        except ValueError:
            return f"{error}."
        return f"{error}\nwith batch_first={not batch_first}:\n{_drawn(other)}"


def _drawn_packed(packed: Any) -> str:
    try:
        return _drawn(Layout.from_packed(packed))
    except ValueError as error:
        return f"{error}."


def _drawn(layout: Layout) -> str:
    return text.describe(layout) if text.is_few(layout) else text.summary(layout)


def _packed_in(frame: FrameType) -> Any:
    """A packed sequence among the names of a frame, if there is one."""
    return next((value for value in frame.f_locals.values() if _is_packed(value)), None)


def _is_packed(value: Any) -> bool:
    return type(value).__name__ == "PackedSequence"


def _said(value: Any) -> str:
    """An argument, by its kind and its shape."""
    if _is_packed(value):
        return f"a PackedSequence with data of shape {tuple(value.data.shape)}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_said, value))})"
    if hasattr(value, "shape"):
        device = getattr(value, "device", "cpu")
        return f"a tensor of shape {tuple(value.shape)}" + (f" on {device}" if str(device) != "cpu" else "")
    return repr(value) if value is None else f"a {type(value).__name__}"


def _some(lengths: Any, limit: int = 16) -> str:
    listed = list(lengths)
    return f"{listed[:limit]}" if len(listed) <= limit else f"{str(listed[:limit])[:-1]}, …] ({len(listed)} in all)"
