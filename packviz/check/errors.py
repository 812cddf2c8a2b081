"""`explain_errors`: an exception from packing says what was passed, why it was refused, and what to do."""

from __future__ import annotations

import functools
import inspect
import linecache
import re
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from textwrap import indent, wrap
from traceback import walk_tb
from types import FrameType, TracebackType
from typing import Any, ClassVar, ParamSpec, TypeVar, cast, overload

from packviz.check import museum
from packviz.core.layout import Layout
from packviz.draw import text

Asked = ParamSpec("Asked")
Result = TypeVar("Result")

_SIGN = "packviz: "  # begins every note


_ALONE = (
    "explain_errors() does nothing by itself; write `with pv.explain_errors():` around the code, `@pv.explain_errors`"
    " above a function, or `pv.explain_errors().install()` to keep it on"
)


class Explained:
    """What `explain_errors` gives: a context manager, and a decorator of functions, generators and coroutines."""

    def __init__(self) -> None:
        """Sees to it that a call which nothing uses gets a warning, when it is collected or when Python ends."""
        line = sys._getframe(2)
        self._unused = weakref.finalize(self, _warn, line.f_code.co_filename, line.f_lineno)

    def __repr__(self) -> str:
        return _ALONE if self._unused.alive else "explain_errors(), in use"

    def install(self) -> None:
        """Explains every error that nothing catches, from now on: of a script, its threads, and IPython's cells."""
        self._unused.detach()
        _Hooks.install()

    def uninstall(self) -> None:
        """Undoes `install`. Does nothing if it is not installed."""
        self._unused.detach()
        _Hooks.uninstall()

    def __enter__(self) -> None:
        """Costs nothing: all is done when an exception passes."""
        self._unused.detach()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Adds the note and lets the exception pass."""
        _try_to_explain(error)

    def __call__(self, function: Callable[Asked, Result]) -> Callable[Asked, Result]:
        """Wraps a function, so that its body is inside.

        Raises:
            TypeError: it is an asynchronous generator, a class, a module, or cannot be called.
        """
        self._unused.detach()
        wrapped: Any
        if isinstance(function, type) or not callable(function) or hasattr(function, "forward"):
            shown = function.__name__ if isinstance(function, type) else f"a {type(function).__name__}"
            raise TypeError(f"explain_errors wraps functions, and got {shown}; decorate its forward, or use `with`")
        if inspect.isasyncgenfunction(function):
            raise TypeError("explain_errors does not wrap an asynchronous generator; use `with` inside it")
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


@overload
def explain_errors() -> Explained: ...


@overload
def explain_errors(function: Callable[Asked, Result]) -> Callable[Asked, Result]: ...


def explain_errors(function: Callable[Asked, Result] | None = None) -> Explained | Callable[Asked, Result]:
    """Adds a note (PEP 678) to an exception from packing, from unpacking, or from an RNN that is given a packed batch.

    The note says what was passed, drawn as text if it is small, and, if the error is one of the museum's, why it
    happens and what to do. Nothing else changes: the same exception propagates, with the same traceback. An error that
    has nothing to do with packing gets no note. As long as nothing is raised, this costs nothing.

    Use it around some code, or as a decorator of a function, a generator or a coroutine:

        with pv.explain_errors():
            packed = pack_padded_sequence(x, lengths)

        @pv.explain_errors
        def forward(self, x, lengths): ...

        pv.explain_errors().install()  # for all that follows; .uninstall() undoes it

    An error that was raised while another was handled, or from another, is explained by that one. A call that nothing
    uses does nothing, and warns.

    Args:
        function: what it decorates; `@pv.explain_errors()` does the same.

    Examples:
        >>> import packviz as pv, torch
        >>> try:
        ...     with pv.explain_errors():
        ...         torch.nn.utils.rnn.pack_padded_sequence(torch.zeros(5, 2), [2, 5])
        ... except RuntimeError as error:
        ...     "enforce_sorted=False" in error.__notes__[0]
        True
    """
    made = Explained()
    return made if function is None else made(function)


def _warn(file: str, line: int) -> None:
    warnings.warn_explicit(f"{_ALONE}.", RuntimeWarning, file, line)


class _Hooks:
    """Python's own hooks for errors that nothing catches, replaced while installed."""

    on = False
    undo: ClassVar[list[Callable[[], None]]] = []

    @classmethod
    def install(cls) -> None:
        if cls.on:
            return
        cls.on = True
        cls._replace(sys, "excepthook", lambda kind, error, traceback: error)
        cls._replace(threading, "excepthook", lambda arguments: arguments.exc_value)
        if "IPython" in sys.modules and (shell := sys.modules["IPython"].get_ipython()) is not None:
            cls._replace(shell, "showtraceback", lambda info=None, *_, **__: info[1] if info else sys.exc_info()[1])

    @classmethod
    def uninstall(cls) -> None:
        cls.on = False
        while cls.undo:
            cls.undo.pop()()

    @classmethod
    def _replace(cls, owner: Any, name: str, error_of: Callable[..., BaseException | None]) -> None:
        own, before = name in vars(owner), getattr(owner, name)

        @functools.wraps(before)
        def hook(*args: Any, **kwargs: Any) -> Any:
            if cls.on:  # if another hook was put around this one, it stays there after uninstall
                with suppress(Exception):
                    _try_to_explain(error_of(*args, **kwargs))
            return before(*args, **kwargs)

        def undo() -> None:
            if vars(owner).get(name) is hook:
                setattr(owner, name, before) if own else delattr(owner, name)

        setattr(owner, name, hook)
        cls.undo.append(undo)


@dataclass(frozen=True)
class _Passed:
    """A call that the traceback shows."""

    call: str = ""
    drawn: str = ""
    packed: bool = False
    instead: dict[str, str | None] = field(default_factory=dict)
    """The exhibits that its arguments speak against, each with the one that they speak for."""


def _try_to_explain(error: BaseException | None) -> None:
    if isinstance(error, Exception):
        with suppress(Exception):  # whatever is wrong with the explanation, the error itself must come through
            _explain(error)


def _explain(error: Exception) -> None:
    """Adds the note to an error: about itself, or about one that it was raised from or while handling."""
    found: list[tuple[Exception, str]] = []
    for one, is_shown in _chain(error):
        if noted := next((str(n) for n in getattr(one, "__notes__", ()) if str(n).startswith(_SIGN)), ""):
            if not is_shown:  # an inner one has been here, and Python does not show its note
                error.add_note(noted)
            return
        if note := _note(one):
            found.append((one, note))
    if not found:
        return
    one, note = max(found, key=lambda each: "\n  passed: " in each[1])  # the first that knows what was passed
    if one is not error:
        head, _, rest = note.partition("\n")
        note = f"{head}\n  about: the {type(one).__name__} before this: {_first_line(one)}\n{rest}"
    error.add_note(note)


def _chain(error: Exception) -> Iterator[tuple[Exception, bool]]:
    """The error, those in it if it is a group, and those before it; and whether Python shows each."""
    left: list[tuple[BaseException | None, bool]] = [(error, True)]
    seen: set[int] = set()
    while left:
        one, is_shown = left.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Exception):
            yield one, is_shown
        left += [(inner, is_shown) for inner in getattr(one, "exceptions", ()) if isinstance(inner, BaseException)]
        left.append((one.__cause__, is_shown))
        left.append((one.__context__, is_shown and one.__cause__ is None and not one.__suppress_context__))


def _first_line(error: BaseException) -> str:
    try:
        return next(iter(str(error).splitlines()), "")
    except Exception:  # of a class of its own, whose text cannot be made
        return ""


def _note(error: Exception) -> str:
    """What to say of an error; empty if it has nothing to do with packing."""
    try:
        message = str(error)
    except Exception:
        message = ""
    calls = list(walk_tb(error.__traceback__))
    if not calls:
        return ""  # it was made, and never raised
    passed = next((found for frame, _ in reversed(calls) if (found := _call(frame))), None)
    at = passed or _on_line(*calls[-1])
    known = museum.recognise(message)
    if known and (known.name in at.instead or _OTHER_STATE.search(message)):
        name = at.instead.get(known.name)
        known = museum.named(name) if name else None
    if not (passed and passed.packed) and not (known and (at.packed or _OWN_WORDS.search(message))):
        return ""
    head = f"{known.name} ({known.place})" if known else "what was passed"
    parts = [f"why: {known.why}", f"fix: {known.fix}"] if known else []
    parts += [f"passed: {at.call}"] * bool(at.call)
    lines = [line for part in parts for line in wrap(part, 100, initial_indent="  ", subsequent_indent="    ")]
    return "\n".join([_SIGN + head, *lines, *["", indent(at.drawn, "  ")] * bool(at.drawn)])


_OWN_WORDS = re.compile(
    r"PackedSequence|enforce_sorted|pack(ed)?_pad|pad_packed|pack_sequence|RNN, GRU, or LSTM|hidden\S* size"
    r"|jagged NT|NestedTensor|, j\d+, "
)
"""A text with these is about packing, wherever it was raised."""

_OTHER_STATE = re.compile(r"hidden\S* size \((\d+), (\d+), (\d+)\), got .(?!\2, \1, \3.)")  # than one batch first
_BATCH, _BEYOND, _FEW, _STATE = "Batch and time swapped", "Lengths beyond T", "Too few lengths", "State batch first"


def _on_line(frame: FrameType, number: int) -> _Passed:
    """What the failing line has to do with packing, by what it names."""
    line = linecache.getline(frame.f_code.co_filename, number)
    named = (frame.f_locals.get(name) for name in re.findall(r"\w+", line))
    packed = next((value for value in named if _is_packed(value)), None)
    if packed is not None:
        return _with_packed(packed)
    return _Passed(packed=bool(_OWN_WORDS.search(line)), instead={_BATCH: None, _BEYOND: None, _FEW: None})


def _call(frame: FrameType) -> _Passed | None:
    """What was passed, if this frame is a call of packing, unpacking or an RNN; of odd arguments, only that it is."""
    try:
        return _read(frame)
    except Exception:
        packs = frame.f_globals.get("__name__") in _PACKING_MODULES
        return _Passed(f"{frame.f_code.co_name}, with arguments that cannot be shown", packed=packs)


_PACKING_MODULES = ("torch.nn.utils.rnn", "packviz.ops.packing")


def _read(frame: FrameType) -> _Passed | None:
    variables = frame.f_locals
    name = frame.f_code.co_name
    if name == "forward" and any(kind.__name__ == "RNNBase" for kind in type(variables.get("self")).__mro__):
        return _running(variables, frame.f_back)
    if frame.f_globals.get("__name__") not in _PACKING_MODULES:
        return None
    if name == "pack_padded_sequence":
        return _packing(variables)
    if name == "pack_sequence":
        call = f"pack_sequence({_shown(variables['sequences'])}, enforce_sorted={variables['enforce_sorted']})"
        return _Passed(call, packed=True)
    if name == "pad_packed_sequence":
        total = variables.get("total_length")
        more = "" if total is None else f", total_length={total}"
        call = f"pad_packed_sequence({_shown(variables['sequence'])}{more})"
        return _with_packed(variables["sequence"], call)
    return None


def _with_packed(packed: Any, call: str = "") -> _Passed:
    """A call with what is, or should be, a packed sequence."""
    if not _is_packed(packed):
        return _Passed(call, packed=True)
    try:
        return _Passed(call, _drawn(Layout.from_packed(packed)), True, {_BATCH: None, _BEYOND: None, _FEW: None})
    except ValueError as error:
        return _Passed(call, f"{error}.", True, {_BATCH: None, _FEW: None})


def _running(variables: dict[str, Any], caller: FrameType | None) -> _Passed:
    rnn: Any = variables["self"]
    x: Any = variables.get("orig_input", variables.get("input"))
    # The frame's own hx is torch's, where there was none; the caller's arguments are what was passed.
    called = caller.f_locals if caller and caller.f_globals.get("__name__") == "torch.nn.modules.module" else {}
    args = called.get("args", ())
    hx = args[1] if len(args) > 1 else called.get("kwargs", {}).get("hx")
    call = f"{rnn} called with {_shown(x)}" + (f" and hx {_shown(hx)}" if hx is not None else "")
    if not _is_packed(x):
        return _Passed(call)
    passed = _with_packed(x, call)
    expected = (int(x.batch_sizes[0]), rnn.num_layers * (1 + rnn.bidirectional))
    states = hx if isinstance(hx, tuple) else (hx,)
    if any(tuple(getattr(state, "shape", ())[:2]) == expected for state in states):  # (B, layers)
        passed.instead[_FEW] = _STATE  # torch has looked for as many rows as there are sequences
    return passed


def _packing(variables: dict[str, Any]) -> _Passed:
    x, lengths, batch_first = variables["input"], variables["lengths"], bool(variables.get("batch_first"))
    order = variables.get("sorted_indices")
    if order is not None:  # torch has sorted them; back to the caller's order
        lengths = lengths.scatter(-1, order.to(lengths.device), lengths)
    numbers = None
    if getattr(getattr(lengths, "device", None), "type", "cpu") == "cpu":
        numbers = lengths.tolist() if hasattr(lengths, "tolist") else lengths
    call = (
        f"pack_padded_sequence({_shown(x)}, lengths={_some(numbers) if numbers is not None else _shown(lengths)},"
        f" batch_first={batch_first}, enforce_sorted={variables.get('enforce_sorted')})"
    )
    shape = tuple(getattr(x, "shape", ()))
    if len(shape) < 2 or numbers is None:
        return _Passed(call, packed=True)
    drawn = _drawn_padded(shape, numbers, batch_first)
    if not isinstance(numbers, (list, tuple)):
        return _Passed(call, drawn, packed=True)
    rows, other = (shape[0], shape[1]) if batch_first else (shape[1], shape[0])
    swapped = _BATCH if len(numbers) == other != rows and not batch_first else None
    few = swapped or (_FEW if len(numbers) != rows else None)
    return _Passed(call, drawn, True, {_BATCH: swapped, _FEW: few})


def _drawn_padded(shape: tuple[int, ...], lengths: Any, batch_first: bool) -> str:
    try:
        return _drawn(Layout.from_padded(shape, lengths, batch_first))
    except ValueError as error:
        try:
            other = Layout.from_padded(shape, lengths, not batch_first)
        except ValueError:
            return f"{error}."
        return f"{error}\nwith batch_first={not batch_first}:\n{_drawn(other)}"


def _drawn(layout: Layout) -> str:
    return text.describe(layout) if text.is_few(layout) else text.summary(layout)


def _is_packed(value: Any) -> bool:
    return type(value).__name__ == "PackedSequence"


def _shown(value: Any) -> str:
    """An argument, by its kind and its shape."""
    if _is_packed(value):
        return f"a PackedSequence with data of shape {tuple(value.data.shape)}"
    if isinstance(value, (list, tuple)):
        parts = ", ".join([*map(_shown, value[:4]), *["…"] * (len(value) > 4)])
        return f"[{parts}]" if isinstance(value, list) else f"({parts})"
    if hasattr(value, "shape"):
        device = getattr(value, "device", "cpu")
        return f"a tensor of shape {tuple(value.shape)}" + (f" on {device}" if str(device) != "cpu" else "")
    return repr(value) if value is None else f"a {type(value).__name__}"


def _some(lengths: Any, limit: int = 16) -> str:
    if not isinstance(lengths, (list, tuple)):
        return repr(lengths)
    listed = list(lengths)
    return f"{listed[:limit]}" if len(listed) <= limit else f"{str(listed[:limit])[:-1]}, …] ({len(listed)} in all)"
