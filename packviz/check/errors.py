"""Explains exceptions from packing: what was passed, why it was rejected, and what to do."""

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
from contextlib import ContextDecorator, suppress
from textwrap import indent, shorten, wrap
from traceback import format_exception_only, walk_tb
from types import FrameType
from typing import Any, NamedTuple, TypeVar, overload

from packviz.check import museum
from packviz.core.layout import Layout
from packviz.core.validation import kind_of
from packviz.draw import text

Function = TypeVar("Function", bound=Callable[..., Any])

_SIGN = "packviz: "  # begins every note
_ALONE = (
    "explain_errors() does nothing by itself; write `with pv.explain_errors():` around the code, `@pv.explain_errors`"
    " above a function, or `pv.explain_errors().install()` to keep it on"
)


class _Explained(ContextDecorator):
    """The result of `explain_errors`: a context manager that can also decorate functions."""

    def __init__(self) -> None:
        """Prepares a warning in case the result is never used. It appears when Python exits, at the latest."""
        line = sys._getframe(2)
        place = (line.f_code.co_filename, line.f_lineno)
        self._unused = weakref.finalize(
            self, lambda: warnings.warn_explicit(f"{_ALONE}.", RuntimeWarning, *place)
        )

    def __repr__(self) -> str:
        return _ALONE if self._unused.alive else "explain_errors(), in use"

    def install(self) -> None:
        """Explains uncaught errors from now on, in the main thread, in other threads, and in IPython's cells."""
        self._unused.detach()
        if _undo:
            return
        _replace(sys, "excepthook", lambda kind, error, traceback: error)
        _replace(threading, "excepthook", lambda arguments: arguments.exc_value)
        if "IPython" in sys.modules and (shell := sys.modules["IPython"].get_ipython()) is not None:
            _replace(
                shell,
                "showtraceback",
                lambda info=None, *_, **__: info[1] if info else sys.exc_info()[1],
            )

    def uninstall(self) -> None:
        """Undoes `install`, if it was called."""
        self._unused.detach()
        while _undo:
            _undo.pop()()

    def __enter__(self) -> None:
        """Cancels the warning, because the result is now used."""
        self._unused.detach()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Adds a note to the exception if it can be explained, and lets the exception propagate."""
        _try_to_explain(error)

    def __call__(self, function: Function) -> Function:
        """Wraps a function so that errors in its body are explained.

        Raises:
            TypeError: `function` is not a plain function: it is a generator function, a coroutine
                function, a class or an `nn.Module`, or it is not callable.
        """
        self._unused.detach()
        if isinstance(function, type) or not callable(function) or hasattr(function, "forward"):
            shown = function.__name__ if isinstance(function, type) else kind_of(function)
            raise TypeError(
                f"explain_errors wraps functions, but got {shown}; decorate its forward, or use `with`"
            )
        if any(is_one(function) for is_one in _LATER):
            raise TypeError(
                f"explain_errors does not wrap {function.__name__}, which runs later; use `with` inside it"
            )
        return super().__call__(function)


_LATER = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)


@overload
def explain_errors() -> _Explained: ...


@overload
def explain_errors(function: Function) -> Function: ...


def explain_errors(function: Function | None = None) -> _Explained | Function:
    """Adds a note (PEP 678) to an exception from packing, from unpacking, or from an RNN that is
    given a packed batch.

    The note shows the arguments of the call, and draws the batch as text if it is small. If the
    error museum knows the error, the note says why it happens and what to do. To look up the error,
    `explain_errors` applies the rules of `pv.explain` to the message, the traceback and the
    arguments that were passed. An exception from any other code gets
    a note only if the museum is sure about it. Nothing else changes: the same exception propagates,
    with the same traceback. If nothing is raised, the cost is negligible.

    Use `explain_errors` around a block of code, as a decorator of a function, or for all later
    code:

        with pv.explain_errors():
            packed = pack_padded_sequence(x, lengths)

        @pv.explain_errors
        def forward(self, x, lengths): ...

        pv.explain_errors().install()  # for uncaught errors from now on; .uninstall() undoes it

    If an error was raised from an earlier one, or while an earlier one was being handled, the note
    may be about the earlier one. If the result of `explain_errors()` is never used, nothing is
    explained, and a warning says so.

    Args:
        function: the function to decorate. `@pv.explain_errors` and `@pv.explain_errors()` do the
            same.

    Returns:
        A context manager that can also decorate functions; or, if `function` is passed, the
        decorated function.

    Raises:
        TypeError: `function` is not a plain function. To explain errors of a module, decorate its
            `forward`; inside a generator or a coroutine, use a `with` block.

    Examples:
        >>> import packviz as pv, torch
        >>> try:
        ...     with pv.explain_errors():
        ...         torch.nn.utils.rnn.pack_padded_sequence(torch.zeros(5, 2), [2, 5])
        ... except RuntimeError as error:
        ...     "enforce_sorted=False" in error.__notes__[0]
        True
    """
    made = _Explained()
    return made if function is None else made(function)


_undo: list[Callable[[], None]] = []  # functions that remove the hooks of `install`


def _replace(owner: Any, name: str, error_of: Callable[..., BaseException | None]) -> None:
    """Replaces a hook for uncaught errors with one that first explains the error."""
    own, before = name in vars(owner), getattr(owner, name)

    @functools.wraps(before)
    def hook(*args: Any, **kwargs: Any) -> Any:
        if (
            _undo
        ):  # a hook wrapped by a later one stays in place after uninstall, and must do nothing
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
        with suppress(Exception):  # a failed explanation must not hide the error itself
            _explain(error)


def _explain(error: Exception) -> None:
    """Adds a note to an error, about the error itself or about an earlier one."""
    found: list[tuple[Exception, str]] = []
    for one, is_shown in _chain(error):
        if noted := next(
            (str(n) for n in getattr(one, "__notes__", ()) if str(n).startswith(_SIGN)), ""
        ):
            if not is_shown:  # the note is on an inner error that Python does not show
                error.add_note(noted)
            return
        if note := _note(one):
            found.append((one, note))
    if not found:
        return
    one, note = max(
        found, key=lambda each: "\n  passed: " in each[1]
    )  # the first note that shows what was passed
    if one is not error:
        head, _, rest = note.partition("\n")
        first = format_exception_only(one)[0].partition(": ")[2].partition("\n")[0]
        note = f"{head}\n  about: the {type(one).__name__} before this: {first}\n{rest}"
    error.add_note(note)


def _chain(error: Exception) -> Iterator[tuple[Exception, bool]]:
    """Yields the error, any errors grouped in it, and any earlier errors; for each, also whether Python shows it."""
    left: list[tuple[BaseException | None, bool]] = [(error, True)]
    seen: set[int] = set()
    while left:
        one, is_shown = left.pop(0)
        if not isinstance(one, Exception) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one, is_shown
        left += [(inner, is_shown) for inner in getattr(one, "exceptions", ())]
        left.append((one.__cause__, is_shown))
        left.append(
            (one.__context__, is_shown and one.__cause__ is None and not one.__suppress_context__)
        )


class _Passed(NamedTuple):
    """The arguments of a failing call.

    Attributes:
        call: the call with its arguments, as text; empty if it is not known.
        drawn: a drawing of the batch, or a description of what does not fit; empty if there is
            neither.
        packed: whether the call packs, unpacks, or takes a packed sequence.
    """

    call: str = ""
    drawn: str = ""
    packed: bool = False


def _note(error: Exception) -> str:
    """Returns the note for an error; empty if the error has nothing to do with packing."""
    frames = list(walk_tb(error.__traceback__))
    if not frames:
        return ""  # the error was created but never raised
    passed = next(
        (one for frame, _ in reversed(frames) if (one := _call(frame))), None
    ) or _on_line(*frames[-1])
    shown = f"passed: {passed.call or 'a PackedSequence'}\n{passed.drawn}" * bool(
        passed.call or passed.packed
    )
    found = museum.match(museum.text_of(error) + shown)
    if not (found.sure or (passed.packed and (found or passed.call))):
        return ""
    parts = [f"why: {found[0].why}", f"fix: {found[0].fix}"] if found else []
    parts += [f"passed: {passed.call}"] * bool(passed.call)
    lines = [
        line
        for part in parts
        for line in wrap(part, 100, initial_indent="  ", subsequent_indent="    ")
    ]
    known = f"{'perhaps: ' * (not found.sure)}{found[0].name} ({found[0].place})" if found else ""
    lines += ["", indent(passed.drawn, "  ")] * bool(passed.drawn)
    return "\n".join([_SIGN + (known or "what was passed"), *lines])


def _on_line(frame: FrameType, number: int) -> _Passed:
    """Describes the packed sequence that the failing line names, if there is one."""
    line = linecache.getline(frame.f_code.co_filename, number)
    named = (frame.f_locals.get(name) for name in re.findall(r"\w+", line))
    packed = next((value for value in named if _is_packed(value)), None)
    return _Passed() if packed is None else _with_packed(packed)


_PACKING_MODULES = ("torch.nn.utils.rnn", "packviz.ops.packing")
_PACKING = ("pack_padded_sequence", "pack_sequence", "pad_packed_sequence")


def _call(frame: FrameType) -> _Passed | None:
    """Describes the call in this frame if it packs, unpacks or runs an RNN; otherwise returns `None`."""
    given, code = frame.f_locals, frame.f_code
    packs = frame.f_globals.get("__name__") in _PACKING_MODULES
    try:
        if code.co_name == "forward" and any(
            kind.__name__ == "RNNBase" for kind in type(given.get("self")).__mro__
        ):
            return _running(given, frame.f_back)
        if packs and code.co_name in _PACKING:
            return _packing(
                code.co_name,
                {name: given[name] for name in code.co_varnames[: code.co_argcount]},
                given,
            )
        return None
    except Exception:
        return _Passed(f"{code.co_name}, with arguments that cannot be shown", packed=packs)


def _packing(function: str, arguments: dict[str, Any], given: dict[str, Any]) -> _Passed:
    """Describes a call that packs or unpacks, with the lengths that the caller passed and a drawing of the batch."""
    lengths: Any = arguments.get("lengths")
    order = given.get("sorted_indices")
    if order is not None and lengths is not None:  # torch has sorted the lengths
        lengths = lengths.scatter(-1, order.to(lengths.device), lengths)
    readable = getattr(getattr(lengths, "device", None), "type", "cpu") == "cpu"
    if readable and hasattr(lengths, "tolist"):
        lengths = lengths.tolist()
    (_, x), *others = arguments.items()
    numbers = shorten(repr(lengths), 80, placeholder=" …") if readable else _shown(lengths)
    shown = [f"{name}={numbers if name == 'lengths' else value}" for name, value in others]
    call, shape = f"{function}({', '.join([_shown(x), *shown])})", tuple(getattr(x, "shape", ()))
    if function == "pad_packed_sequence":
        return _with_packed(x, call)
    batch = (shape, lengths, bool(arguments.get("batch_first")))
    drawn = "lengths" in arguments and readable and len(shape) > 1
    return _Passed(call, _drawn(Layout.from_padded, *batch) if drawn else "", packed=True)


def _with_packed(packed: Any, call: str = "") -> _Passed:
    """Describes a call with an argument that is, or should be, a packed sequence."""
    return _Passed(
        call, _drawn(Layout.from_packed, packed) if _is_packed(packed) else "", packed=True
    )


def _running(given: dict[str, Any], caller: FrameType | None) -> _Passed:
    """Describes a call of an RNN."""
    rnn: Any = given["self"]
    x: Any = given.get("orig_input", given.get("input"))
    # torch replaces a missing hx in its own frame, so the caller's arguments show whether one was
    # passed.
    called = (
        caller.f_locals
        if caller and caller.f_globals.get("__name__") == "torch.nn.modules.module"
        else {}
    )
    args = called.get("args", ())
    hx = args[1] if len(args) > 1 else called.get("kwargs", {}).get("hx")
    call = f"{rnn} called with {_shown(x)}" + (f" and hx {_shown(hx)}" if hx is not None else "")
    if not _is_packed(x):
        return _Passed(call)
    wanted = (rnn.num_layers * (1 + rnn.bidirectional), int(x.batch_sizes[0]))
    for state in hx if isinstance(hx, tuple) else (hx,):
        shape = tuple(getattr(state, "shape", ()))
        if len(shape) == 3 and shape[:2] != wanted:  # torch's own message may say something else
            call += f"; expected hidden size {(*wanted, shape[2])}, got {shape}"
            break
    return _with_packed(x, call)


def _drawn(make: Callable[..., Layout], *given: Any) -> str:
    """Returns a drawing of a batch as text, or a description of what does not fit."""
    try:
        layout = make(*given)
    except ValueError as error:
        return str(error) if str(error).endswith("?") else f"{error}."
    return text.describe(layout) if text.is_few(layout) else text.summary(layout)


def _is_packed(value: Any) -> bool:
    return type(value).__name__ == "PackedSequence"


def _shown(value: Any) -> str:
    """Describes an argument by its kind and its shape."""
    if _is_packed(value):
        return f"a PackedSequence with data of shape {tuple(value.data.shape)}"
    if isinstance(value, (list, tuple)):
        parts = ", ".join([*map(_shown, value[:4]), *["…"] * (len(value) > 4)])
        return f"[{parts}]" if isinstance(value, list) else f"({parts})"
    if hasattr(value, "shape"):
        device = getattr(value, "device", "cpu")
        return f"a tensor of shape {tuple(value.shape)}" + (
            f" on {device}" if str(device) != "cpu" else ""
        )
    return repr(value) if value is None else kind_of(value)
