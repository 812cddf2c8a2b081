"""Records which torch functions a network calls, from which line, and what went into Python. `static` compares runs.

`torch.overrides.TorchFunctionMode` shows every torch function that is called.
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

# What hands a tensor's value to Python; what hands its size, which a trace follows; what makes a tensor of values.
_READS = {"item", "tolist", "numpy", "equal", "allclose", "is_nonzero", "__contains__", "__array__", "__dlpack__"}
_READS |= {"__int__", "__float__", "__bool__", "__index__", "__complex__", "unbind"}
SIZES = {"shape", "size", "__len__"}
_MAKES = {"tensor", "as_tensor", "Tensor", "LongTensor", "IntTensor", "FloatTensor", "BoolTensor"}
_OF_RNNS = ("torch.nn.utils.rnn", "torch.nn.modules.rnn", "torch.ao.nn.quantized", "packviz.ops.")
_INDIRECT = {"torch._tensor", "torch.overrides"}
# By their code, which tells them from the reader's whatever the paths are.
_PACKING = {getattr(module, name).__code__ for module in (packing, original) for name in original.NAMES}


class Event(NamedTuple):
    """A torch function that was called.

    Attributes:
        name: of the function, or of the function that packs or pads if that is what calls it.
        where: the line of the reader's code that led to it.
        direct: whether that line calls it, and not something of torch's in between.
        in_rnn: whether code for RNNs and packing calls it.
        value: what went into Python, as text; empty if nothing did.
        shapes: of what it took and gave.
        arguments: of a function that packs or pads.
    """

    name: str
    where: str
    direct: bool
    in_rnn: bool
    value: str
    shapes: list[tuple[int, ...]]
    arguments: Mapping[str, Any]


class Recorder(TorchFunctionMode):
    """Records every torch function that is called.

    Attributes:
        events: in their order.
    """

    def __init__(self, run: Runner) -> None:
        super().__init__()
        self.events: list[Event] = []
        forward = inspect.unwrap(getattr(type(run.module), "forward", Recorder))
        self._own, self._code = getattr(forward, "__globals__", None), getattr(forward, "__code__", None)
        self._returned = ""

    @property
    def packed(self) -> list[list[int]]:
        """The lengths that were packed with, sorted: once for each line that packs."""
        found = {one.where: one.arguments for one in self.events if one.name.startswith("pack_")}
        lengths = [one.get("lengths", one.get("sequences", ())) for one in found.values()]
        return [sorted(len(n) if isinstance(n, Tensor) and n.dim() else int(n) for n in some) for some in lengths]

    def watch(self, frame: FrameType, event: str, argument: Any) -> None:
        """Notes the line that `forward` returns from."""
        if event == "return" and frame.f_code is self._code and self._is_readers(frame):
            self._returned = site(frame.f_code.co_filename, frame.f_lineno, str(frame.f_globals.get("__name__")))

    def end(self, output: Any) -> None:
        """Notes what the network returned."""
        shapes = [tuple(one.shape) for one in tensors({"": output})]
        self.events.append(Event("return", self._returned, True, False, "", shapes, {}))

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Runs the function and notes it."""
        result = func(*args, **(kwargs or {}))
        name = str(func.__self__.__name__ if func.__name__ == "__get__" else func.__name__)
        taken, value = tensors({"": [args, kwargs]}), ""
        if name in SIZES | _READS or (name in _MAKES and taken and not isinstance((*args, 0)[0], Tensor)):
            value = _text(len(result) if name == "unbind" else result)  # `for row in tensor` calls unbind
        shapes = [tuple(one.shape) for one in [*taken, *tensors({"": result})]]
        where, direct, in_rnn, (caller, arguments) = self._where()
        if not where.partition(": ")[2].startswith("print("):  # what is only printed is not part of a graph
            self.events.append(Event(caller or name, where, direct, in_rnn, value, shapes, arguments))
        return result

    def _where(self) -> tuple[str, bool, bool, tuple[str, Mapping[str, Any]]]:
        frame: FrameType | None = sys._getframe(2)
        in_rnn, direct = False, True
        packing_call: tuple[str, Mapping[str, Any]] = "", {}
        while frame is not None and frame.f_code is not Runner.forward.__code__:
            module = str(frame.f_globals.get("__name__"))
            if self._is_readers(frame):
                return site(frame.f_code.co_filename, frame.f_lineno, module), direct, in_rnn, packing_call
            if frame.f_code in _PACKING:
                code, local = frame.f_code, frame.f_locals
                packing_call = code.co_name, {one: local[one] for one in code.co_varnames[: code.co_argcount]}
            in_rnn |= module.startswith(_OF_RNNS)
            direct &= module in _INDIRECT
            frame = frame.f_back
        return "", direct, in_rnn, packing_call

    def _is_readers(self, frame: FrameType) -> bool:
        # A network of ours is checked like anyone's.
        return is_readers(frame) or (frame.f_globals is self._own and package(frame) != "torch")


def record(run: Runner, inputs: Mapping[str, Any]) -> Recorder:
    """Runs a network once and records it."""
    recorder, before = Recorder(run), sys.getprofile()

    def recorded(call: Any) -> Any:
        with recorder:
            sys.setprofile(recorder.watch)
            try:
                return run.forward(call)
            finally:
                sys.setprofile(before)

    recorder.end(run(inputs, recorded))
    return recorder


def together(one: Recorder, other: Recorder) -> Iterator[tuple[Event, Event]]:
    """The events of two runs, up to where they differ."""
    for pair in zip(one.events, other.events, strict=False):
        if pair[0][:2] != pair[1][:2]:
            return
        yield pair


def site(path: str, line: int, module: str = "") -> str:
    """A line of code, as `my/model.py, line 7: return x`. Code that is in no file, as in a notebook, has no path."""
    name = shown_path(path, module) if Path(path).is_file() and "ipykernel" not in path else ""
    return f"{name}{', ' * bool(name)}line {line}: {linecache.getline(path, line).strip()}"


def shown_path(path: str, module: str) -> str:
    """A file below the working directory from there, one of a package from where that lies, any other in full."""
    path = os.path.abspath(path)
    if path.startswith(os.path.join(os.getcwd(), "")):
        return os.path.relpath(path)
    parts = Path(path).with_suffix("").parts
    names = module.split(".") + ["__init__"] * (parts[-1] == "__init__")
    return "/".join([*names[:-1], Path(path).name]) if len(names) > 1 and [*parts[-len(names) :]] == names else path


def _text(value: Any) -> str:
    """A value, as text; of many numbers, what tells them from others."""
    numbers = np.asarray(value.tolist() if isinstance(value, Tensor) else value)
    few = numbers.size < 100
    return str(numbers.tolist()) if few else f"{numbers.size} numbers ({hash(numbers.tobytes()) % 10**6})"
