"""Records which torch functions a network calls, from which line, and which values Python reads.

A `torch.overrides.TorchFunctionMode` sees every torch function that is called. `static` compares the records of several
runs.
"""

from __future__ import annotations

import inspect
import linecache
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor
from torch.overrides import TorchFunctionMode

from packviz.check.trials import Runner, tensors
from packviz.core.frames import is_readers, package
from packviz.ops import original, packing

# `_READS` pass the value of a tensor to Python, `SIZES` pass its size, and `_MAKES` make a tensor from values.
_READS = {"item", "tolist", "numpy", "equal", "allclose", "is_nonzero", "__contains__", "__array__", "__dlpack__"}
_READS |= {"__int__", "__float__", "__bool__", "__index__", "__complex__", "unbind"}
SIZES = {"shape", "size", "__len__"}
_MAKES = {"tensor", "as_tensor", "Tensor", "LongTensor", "IntTensor", "FloatTensor", "BoolTensor"}
_OF_RNNS = ("torch.nn.utils.rnn", "torch.nn.modules.rnn", "torch.ao.nn.quantized", "packviz.ops.")
_INDIRECT = {"torch._tensor", "torch.overrides"}
# Their code objects distinguish these functions from the user's, whatever the paths are.
_PACKING = {getattr(module, name).__code__ for module in (packing, original) for name in original.NAMES}


class Event(NamedTuple):
    """A call of a torch function.

    Attributes:
        name: the name of the function; if a packing function or `pv.run` calls it, the name of that one instead.
        where: the line of the user's code that led to the call.
        direct: whether that line itself makes the call, rather than code in torch.
        in_rnn: whether the call comes from code for RNNs or packing.
        value: the value that Python reads, as text; empty if it reads none.
        shapes: the shapes of the tensors that the function takes and returns.
        arguments: the arguments of the packing function, if there is one.
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
        self._own, self._code = getattr(forward, "__globals__", None), getattr(forward, "__code__", None)
        self._returned = ""

    @property
    def packed(self) -> list[list[int]]:
        """The lengths that each line packs with, sorted."""
        found = {one.where: one.arguments for one in self.events if one.arguments.keys() & {"lengths", "sequences"}}
        lengths = [one.get("lengths", one.get("sequences")) for one in found.values()]
        return [sorted(len(n) if isinstance(n, Tensor) and n.dim() else int(n) for n in some) for some in lengths]

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
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Runs the function and records the call."""
        result = func(*args, **(kwargs or {}))
        name = str(func.__self__.__name__ if func.__name__ == "__get__" else func.__name__)
        taken, value = tensors({"": [args, kwargs]}), ""
        if name in SIZES | _READS or (name in _MAKES and taken and not isinstance((*args, 0)[0], Tensor)):
            value = _text(len(result) if name == "unbind" else result)  # `for row in tensor` calls unbind
        shapes = [tuple(one.shape) for one in [*taken, *tensors({"": result})]]
        where, direct, in_rnn, caller, arguments = self._where()
        if not where.partition(": ")[2].startswith("print("):  # a graph does not contain what is only printed
            self.events.append(Event(caller or name, where, direct, in_rnn, value, shapes, arguments))
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
                arguments = {one: local[one] for one in frame.f_code.co_varnames[: frame.f_code.co_argcount]}
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
    """Yields the events of two runs in pairs, up to where the runs diverge."""
    for pair in zip(one.events, other.events, strict=False):
        if pair[0][:2] != pair[1][:2]:
            return
        yield pair


def site(path: str, line: int, module: str = "") -> str:
    """Returns a line of code as `my/model.py, line 7: return x`, without a path if the code is not in a file."""
    name = shown_path(path, module) if Path(path).is_file() and "ipykernel" not in path else ""
    return f"{name}{', ' * bool(name)}line {line}: {linecache.getline(path, line).strip()}"


def _site_of(frame: FrameType) -> str:
    return site(frame.f_code.co_filename, frame.f_lineno, str(frame.f_globals.get("__name__")))


def shown_path(path: str, module: str) -> str:
    """Returns a path relative to the working directory if it is in there, else to its package, else in full."""
    path = os.path.abspath(path)
    if path.startswith(os.path.join(os.getcwd(), "")):
        return os.path.relpath(path)
    parts = Path(path).with_suffix("").parts
    names = module.split(".") + ["__init__"] * (parts[-1] == "__init__")
    return "/".join([*names[:-1], Path(path).name]) if len(names) > 1 and [*parts[-len(names) :]] == names else path


def _text(value: Any) -> str:
    """Returns a value as text; for many numbers, only their count and a hash."""
    numbers = np.asarray(value.tolist() if isinstance(value, Tensor) else value)
    few = numbers.size < 100
    return str(numbers.tolist()) if few else f"{numbers.size} numbers ({hash(numbers.tobytes()) % 10**6})"
