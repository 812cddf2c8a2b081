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
from dataclasses import dataclass
from textwrap import indent, shorten, wrap
from traceback import format_exception_only, walk_tb
from types import FrameType
from typing import Any, TypeVar, cast, overload

from packviz.check import museum
from packviz.core.layout import Layout
from packviz.draw import text

Function = TypeVar("Function", bound=Callable[..., Any])

_SIGN = "packviz: "  # begins every note
_ALONE = (
    "explain_errors() does nothing by itself; write `with pv.explain_errors():` around the code, `@pv.explain_errors`"
    " above a function, or `pv.explain_errors().install()` to keep it on"
)


class Explained:
    """What `explain_errors` gives: a context manager, and a decorator of functions."""

    def __init__(self) -> None:
        """Sees to it that a call which nothing uses gets a warning, when it is collected or when Python ends."""
        line = sys._getframe(2)
        place = (line.f_code.co_filename, line.f_lineno)
        self._unused = weakref.finalize(self, lambda: warnings.warn_explicit(f"{_ALONE}.", RuntimeWarning, *place))

    def __repr__(self) -> str:
        return _ALONE if self._unused.alive else "explain_errors(), in use"

    def install(self) -> None:
        """Explains every error that nothing catches, from now on: of a script, its threads, and IPython's cells."""
        self._unused.detach()
        if _undo:
            return
        _replace(sys, "excepthook", lambda kind, error, traceback: error)
        _replace(threading, "excepthook", lambda arguments: arguments.exc_value)
        if "IPython" in sys.modules and (shell := sys.modules["IPython"].get_ipython()) is not None:
            _replace(shell, "showtraceback", lambda info=None, *_, **__: info[1] if info else sys.exc_info()[1])

    def uninstall(self) -> None:
        """Undoes `install`. Does nothing if it is not installed."""
        self._unused.detach()
        while _undo:
            _undo.pop()()

    def __enter__(self) -> None:
        """Costs nothing: all is done when an exception passes."""
        self._unused.detach()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Adds the note and lets the exception pass."""
        _try_to_explain(error)

    def __call__(self, function: Function) -> Function:
        """Wraps a function, so that its body is inside.

        Raises:
            TypeError: it is not a plain function: a generator, a coroutine, a class, a module, or cannot be called.
        """
        self._unused.detach()
        if isinstance(function, type) or not callable(function) or hasattr(function, "forward"):
            shown = function.__name__ if isinstance(function, type) else f"a {type(function).__name__}"
            raise TypeError(f"explain_errors wraps functions, and got {shown}; decorate its forward, or use `with`")
        if any(is_one(function) for is_one in _LATER):
            raise TypeError(f"explain_errors does not wrap {function.__name__}, which runs later; use `with` inside it")

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return cast("Function", wrapped)


_LATER = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)


@overload
def explain_errors() -> Explained: ...


@overload
def explain_errors(function: Function) -> Function: ...


def explain_errors(function: Function | None = None) -> Explained | Function:
    """Adds a note (PEP 678) to an exception from packing, from unpacking, or from an RNN that is given a packed batch.

    The note says what was passed, drawn as text if it is small, and, if the museum knows the error, why it happens and
    what to do: by the rules of `pv.explain`, which read the message, the traceback and what was passed. Other errors
    get a note only if the museum is sure of them. Nothing else changes: the same exception propagates, with the same
    traceback. As long as nothing is raised, this costs nothing.

    Use it around some code, or as a decorator of a function:

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


_undo: list[Callable[[], None]] = []  # takes the hooks of `install` away again; empty if it is not installed


def _replace(owner: Any, name: str, error_of: Callable[..., BaseException | None]) -> None:
    """Puts a hook in the place of one of Python's own for errors that nothing catches."""
    own, before = name in vars(owner), getattr(owner, name)

    @functools.wraps(before)
    def hook(*args: Any, **kwargs: Any) -> Any:
        if _undo:  # if another hook was put around this one, it stays there after uninstall
            with suppress(Exception):
                _try_to_explain(error_of(*args, **kwargs))
        return before(*args, **kwargs)

    def undo() -> None:
        if vars(owner).get(name) is hook:
            setattr(owner, name, before) if own else delattr(owner, name)

    setattr(owner, name, hook)
    _undo.append(undo)


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
        first = format_exception_only(one)[0].partition(": ")[2].partition("\n")[0]
        note = f"{head}\n  about: the {type(one).__name__} before this: {first}\n{rest}"
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


@dataclass(frozen=True)
class _Passed:
    """What a failing call was given.

    Attributes:
        call: the call, with its arguments.
        drawn: a drawing of the batch, and what does not fit.
        packed: whether the call is about packing.
    """

    call: str = ""
    drawn: str = ""
    packed: bool = False


def _note(error: Exception) -> str:
    """Returns what to say of an error; empty if it has nothing to do with packing."""
    frames = list(walk_tb(error.__traceback__))
    if not frames:
        return ""  # it was made, and never raised
    passed = next((one for frame, _ in reversed(frames) if (one := _call(frame))), None) or _on_line(*frames[-1])
    shown = f"passed: {passed.call or 'a PackedSequence'}\n{passed.drawn}" * bool(passed.call or passed.packed)
    found = museum.match(museum.text_of(error) + shown)
    if not (found.sure or (passed.packed and (found or passed.call))):
        return ""
    parts = [f"why: {found[0].why}", f"fix: {found[0].fix}"] if found else []
    parts += [f"passed: {passed.call}"] * bool(passed.call)
    lines = [line for part in parts for line in wrap(part, 100, initial_indent="  ", subsequent_indent="    ")]
    known = f"{'perhaps: ' * (not found.sure)}{found[0].name} ({found[0].place})" if found else ""
    lines += ["", indent(passed.drawn, "  ")] * bool(passed.drawn)
    return "\n".join([_SIGN + (known or "what was passed"), *lines])


def _on_line(frame: FrameType, number: int) -> _Passed:
    """Returns the packed sequence that the failing line names, if there is one."""
    line = linecache.getline(frame.f_code.co_filename, number)
    named = (frame.f_locals.get(name) for name in re.findall(r"\w+", line))
    packed = next((value for value in named if _is_packed(value)), None)
    return _Passed() if packed is None else _with_packed(packed)


def _call(frame: FrameType) -> _Passed | None:
    """Returns what was passed, if this frame is a call of packing, unpacking or an RNN."""
    try:
        return _read(frame)
    except Exception:
        packs = frame.f_globals.get("__name__") in _PACKING_MODULES
        return _Passed(f"{frame.f_code.co_name}, with arguments that cannot be shown", packed=packs)


_PACKING_MODULES = ("torch.nn.utils.rnn", "packviz.ops.packing")


def _read(frame: FrameType) -> _Passed | None:
    given, name = frame.f_locals, frame.f_code.co_name
    if name == "forward" and any(kind.__name__ == "RNNBase" for kind in type(given.get("self")).__mro__):
        return _running(given, frame.f_back)
    if frame.f_globals.get("__name__") not in _PACKING_MODULES:
        return None
    if name == "pack_padded_sequence":
        return _packing(given)
    if name == "pack_sequence":
        call = f"pack_sequence({_shown(given['sequences'])}, enforce_sorted={given['enforce_sorted']})"
        return _Passed(call, packed=True)
    if name == "pad_packed_sequence":
        total = given.get("total_length")
        more = "" if total is None else f", total_length={total}"
        return _with_packed(given["sequence"], f"pad_packed_sequence({_shown(given['sequence'])}{more})")
    return None


def _with_packed(packed: Any, call: str = "") -> _Passed:
    """Returns a call with what is, or should be, a packed sequence."""
    try:
        return _Passed(call, _drawn(Layout.from_packed(packed)) if _is_packed(packed) else "", packed=True)
    except ValueError as error:
        return _Passed(call, f"{error}.", packed=True)


def _running(given: dict[str, Any], caller: FrameType | None) -> _Passed:
    rnn: Any = given["self"]
    x: Any = given.get("orig_input", given.get("input"))
    # The frame's own hx is torch's, where there was none; the caller's arguments are what was passed.
    called = caller.f_locals if caller and caller.f_globals.get("__name__") == "torch.nn.modules.module" else {}
    args = called.get("args", ())
    hx = args[1] if len(args) > 1 else called.get("kwargs", {}).get("hx")
    call = f"{rnn} called with {_shown(x)}" + (f" and hx {_shown(hx)}" if hx is not None else "")
    if not _is_packed(x):
        return _Passed(call)
    wanted = (rnn.num_layers * (1 + rnn.bidirectional), int(x.batch_sizes[0]))
    for state in hx if isinstance(hx, tuple) else (hx,):
        shape = tuple(getattr(state, "shape", ()))
        if len(shape) == 3 and shape[:2] != wanted:  # torch may say something else
            call += f"; expected hidden size {(*wanted, shape[2])}, got {shape}"
            break
    return _with_packed(x, call)


def _packing(given: dict[str, Any]) -> _Passed:
    x, lengths, batch_first = given["input"], given["lengths"], bool(given.get("batch_first"))
    order = given.get("sorted_indices")
    if order is not None:  # torch has sorted them; back to the caller's order
        lengths = lengths.scatter(-1, order.to(lengths.device), lengths)
    readable = getattr(getattr(lengths, "device", None), "type", "cpu") == "cpu"
    if readable and hasattr(lengths, "tolist"):
        lengths = lengths.tolist()
    numbers = shorten(repr(lengths), 80, placeholder=" …") if readable else _shown(lengths)
    call = (
        f"pack_padded_sequence({_shown(x)}, lengths={numbers}, batch_first={batch_first},"
        f" enforce_sorted={given.get('enforce_sorted')})"
    )
    shape = tuple(getattr(x, "shape", ()))
    drawn = _drawn_padded(shape, lengths, batch_first) if readable and len(shape) > 1 else ""
    return _Passed(call, drawn, packed=True)


def _drawn_padded(shape: tuple[int, ...], lengths: Any, batch_first: bool) -> str:
    try:
        return _drawn(Layout.from_padded(shape, lengths, batch_first))
    except ValueError as error:
        with suppress(ValueError):
            other = _drawn(Layout.from_padded(shape, lengths, not batch_first))
            return f"{error}\nwith batch_first={not batch_first}:\n{other}"
        return f"{error}."


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
