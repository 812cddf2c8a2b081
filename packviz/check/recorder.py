"""Records which torch functions a network calls, from which lines, and which values Python reads
from tensors.

A `torch.overrides.TorchFunctionMode` sees every call to a torch function. `packviz.check.static`
compares the records of several runs.
"""

from __future__ import annotations

import inspect
import linecache
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor
from torch.overrides import TorchFunctionMode

from packviz.check.trials import Runner, tensors
from packviz.core.frames import is_readers, package
from packviz.ops import original, packing

# The functions in `_READS` pass the value of a tensor to Python, and those in `SIZES` pass its
# size. The functions in `_MAKES` make a tensor from values.
_READS = {
    "item",
    "tolist",
    "numpy",
    "equal",
    "allclose",
    "is_nonzero",
    "__contains__",
    "__array__",
    "__dlpack__",
}
_READS |= {"__int__", "__float__", "__bool__", "__index__", "__complex__", "unbind"}
SIZES = {"shape", "size", "__len__"}
_MAKES = {"tensor", "as_tensor", "Tensor", "LongTensor", "IntTensor", "FloatTensor", "BoolTensor"}
_OF_RNNS = ("torch.nn.utils.rnn", "torch.nn.modules.rnn", "torch.ao.nn.quantized", "packviz.ops.")
_INDIRECT = {"torch._tensor", "torch.overrides"}
# The code objects distinguish packing functions from the user's functions, whatever the paths of
# their files are.
_PACKING = {
    getattr(module, name).__code__ for module in (packing, original) for name in original.NAMES
}


class Event(NamedTuple):
    """A call to a torch function or, as the last event of a run, the return from `forward`.

    Attributes:
        name: the name of the function; for a call made by a packing function or `pv.run`, the name
            of that function.
        where: the line of the user's code that led to the call.
        direct: whether the line in `where` makes the call itself, rather than through library code.
        in_rnn: whether the call comes from code for RNNs or packing.
        value: the value that Python reads from a tensor, as text; empty if Python reads none.
        shapes: the shapes of the tensors that the function takes and returns.
        arguments: the arguments of the packing function that makes the call; empty if there is
            none.
    """

    name: str
    where: str
    direct: bool
    in_rnn: bool
    value: str
    shapes: list[tuple[int, ...]]
    arguments: Mapping[str, Any]


class Recorder(TorchFunctionMode):
    """A record of every torch function that one run of a network calls.

    Attributes:
        events: the calls, in order.
    """

    def __init__(self, run: Runner) -> None:
        super().__init__()
        self.events: list[Event] = []
        forward = inspect.unwrap(getattr(type(run.module), "forward", Recorder))
        self._own, self._code = (
            getattr(forward, "__globals__", None),
            getattr(forward, "__code__", None),
        )
        self._returned = ""

    @property
    def packed(self) -> list[list[int]]:
        """For each line that packs, the lengths that it packs with, sorted."""
        found = {
            one.where: one.arguments
            for one in self.events
            if one.arguments.keys() & {"lengths", "sequences"}
        }
        lengths = [one.get("lengths", one.get("sequences")) for one in found.values()]
        return [
            sorted(len(n) if isinstance(n, Tensor) and n.dim() else int(n) for n in some)
            for some in lengths
        ]

    def run(self, run: Runner, call: Any) -> None:
        """Runs the network and records its calls, the line at which `forward` returns, and the shapes of the result."""
        before = sys.getprofile()
        with self:
            sys.setprofile(self._watch)
            try:
                output = run.forward(call)
            finally:
                sys.setprofile(before)
        shapes = [tuple(one.shape) for one in tensors({"": output})]
        self.events.append(Event("return", self._returned, True, False, "", shapes, {}))

    def _watch(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "return" and frame.f_code is self._code and self._is_readers(frame):
            self._returned = _site_of(frame)

    def __torch_function__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Runs the function and records the call."""
        result = func(*args, **(kwargs or {}))
        name = str(func.__self__.__name__ if func.__name__ == "__get__" else func.__name__)
        taken, value = tensors({"": [args, kwargs]}), ""
        if name in SIZES | _READS or (
            name in _MAKES and taken and not isinstance((*args, 0)[0], Tensor)
        ):
            value = _text(
                len(result) if name == "unbind" else result
            )  # `for row in tensor` calls unbind
        shapes = [tuple(one.shape) for one in [*taken, *tensors({"": result})]]
        where, direct, in_rnn, caller, arguments = self._where()
        if not where.partition(": ")[2].startswith(
            "print("
        ):  # printing never becomes part of a graph
            self.events.append(
                Event(caller or name, where, direct, in_rnn, value, shapes, arguments)
            )
        return result

    def _where(self) -> tuple[str, bool, bool, str, Mapping[str, Any]]:
        frame: FrameType | None = sys._getframe(2)
        in_rnn, direct, caller = False, True, ""
        arguments: Mapping[str, Any] = {}
        while frame is not None and frame.f_code is not Runner.forward.__code__:
            if self._is_readers(frame):
                return _site_of(frame), direct, in_rnn, caller, arguments
            module = str(frame.f_globals.get("__name__"))
            if frame.f_code in _PACKING:
                caller, local = frame.f_code.co_name, frame.f_locals
                arguments = {
                    one: local[one] for one in frame.f_code.co_varnames[: frame.f_code.co_argcount]
                }
            elif caller and module == "packviz.ops.running":
                caller = "run"
            in_rnn |= module.startswith(_OF_RNNS)
            direct &= module in _INDIRECT
            frame = frame.f_back
        return "", direct, in_rnn, caller, arguments

    def _is_readers(self, frame: FrameType) -> bool:
        # We check a network of our own like any other.
        return is_readers(frame) or (frame.f_globals is self._own and package(frame) != "torch")


def record(run: Runner, inputs: Mapping[str, Any]) -> Recorder:
    """Runs a network once and returns the record."""
    recorder = Recorder(run)
    run(inputs, lambda call: recorder.run(run, call))
    return recorder


def together(one: Recorder, other: Recorder) -> Iterator[tuple[Event, Event]]:
    """Returns the events of two runs in pairs, up to where the runs diverge."""
    return takewhile(
        lambda pair: pair[0][:2] == pair[1][:2], zip(one.events, other.events, strict=False)
    )


def site(path: str, line: int, module: str = "") -> str:
    """Describes a line of code, as in `my/model.py, line 7: return x`, but without a path if it is not in a file."""
    name = shown_path(path, module) if Path(path).is_file() and "ipykernel" not in path else ""
    return f"{name}{', ' * bool(name)}line {line}: {linecache.getline(path, line).strip()}"


def _site_of(frame: FrameType) -> str:
    return site(frame.f_code.co_filename, frame.f_lineno, str(frame.f_globals.get("__name__")))


def shown_path(path: str, module: str) -> str:
    """Returns a short form of a path.

    A path in the working directory becomes relative to it, and the path of a module in another
    package begins with that package. Any other path is returned in full.
    """
    path = os.path.abspath(path)
    if path.startswith(os.path.join(os.getcwd(), "")):
        return os.path.relpath(path)
    parts = Path(path).with_suffix("").parts
    names = module.split(".") + ["__init__"] * (parts[-1] == "__init__")
    return (
        "/".join([*names[:-1], Path(path).name])
        if len(names) > 1 and [*parts[-len(names) :]] == names
        else path
    )


def _text(value: Any) -> str:
    """Returns a value as text; for many numbers, only their count and a hash."""
    numbers = np.asarray(value.tolist() if isinstance(value, Tensor) else value)
    few = numbers.size < 100
    return (
        str(numbers.tolist())
        if few
        else f"{numbers.size} numbers ({hash(numbers.tobytes()) % 10**6})"
    )
