"""What a network does to its tensors, call by call, recorded while it runs. `static` interprets it.

`torch.overrides.TorchFunctionMode` shows every torch function that is called. A call is what stands in the network's
own code: `pack_padded_sequence(…)` or `self.lstm(…)`, however many operators torch runs for it. A PackedSequence is
followed by its tensors, because `packed.data` is a plain attribute that no hook sees.
"""

from __future__ import annotations

import inspect
import linecache
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.overrides import TorchFunctionMode, resolve_name

from packviz.core.frames import is_readers, package
from packviz.ops import original, packing, private, running

RNN_OPERATORS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
PACK, PAD = ("pack_padded_sequence", "pack_sequence"), ("pad_packed_sequence", "unpack_sequence")
RETURN, RUN = "prim::Return", "packviz.run"

# By their code, which tells them from the reader's whatever the paths are.
_PACKING = {getattr(module, name).__code__ for module in (packing, original) for name in original.NAMES}
_TENSOR = cast(FunctionType, Tensor.__array__).__globals__  # where the methods of tensors are
# What tells nothing about sizes or values.
_SILENT = {"device", "dtype", "layout", "requires_grad", "is_cuda", "is_sparse", "is_meta", "dim", "ndim", "grad_fn"}
_SILENT |= {"is_floating_point", "is_complex", "is_leaf", "is_contiguous", "stride", "names", "element_size"}
_SILENT |= {private.VERSION, "__repr__", "__format__"}  # the last two are for people, not for the graph
_READS = {"item", "tolist", "numpy", "equal", "allclose", "is_nonzero", "__contains__", "__array__"}
_READS |= {"__int__", "__float__", "__bool__", "__index__"}
_ALIASES = {"shape": "size", "__len__": "size", "__setitem__": "index_put_", "__iter__": "unbind", "T": "numpy_T"}
_ALIASES |= dict.fromkeys(["double", "float", "half", "bfloat16", "int", "long", "short", "bool", "cpu", "cuda"], "to")


class Site(NamedTuple):
    """A line of the network's own code. `file` is empty where the code is in no file, as in a notebook."""

    file: str
    line: int
    code: str

    @property
    def short(self) -> str:
        """Without the file and the code: `line 7`."""
        return f"line {self.line}"

    def __str__(self) -> str:
        return f"{self.file}, {self.short}: {self.code}" if self.file else f"{self.short}: {self.code}"

    @classmethod
    def of(cls, frame: FrameType) -> Site:
        """The line that a frame is at."""
        return cls.at(frame.f_code.co_filename, frame.f_lineno, _code(frame), frame.f_globals)

    @classmethod
    def at(cls, path: str, line: int, code: str, variables: Mapping[str, Any]) -> Site:
        """A line of a file whose code has these global variables."""
        name = Path(path).name
        if not Path(path).is_file() or "ipykernel" in path:
            name = ""
        elif (module := str(variables.get("__name__"))) != "__main__":
            name = "/".join([*module.split(".")[: None if name == "__init__.py" else -1], name])
        return cls(name, line, code)


def _code(frame: FrameType) -> str:
    """The line that a frame is at, as it is written."""
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno, frame.f_globals).strip()


@dataclass(eq=False)
class Call:
    """One call in the network's own code, or an end of the network.

    Attributes:
        name: what is called.
        kind: one of `flowchart.KINDS`.
        site: where it stands; none if it is not in the network's own code.
        owner: the name of the module that is called, as `encoder.lstm`. Empty if it is a function.
        operators: what torch ran for it.
        shapes: the shapes of what it made, tensors of a PackedSequence left out.
        arguments: of a function that packs or pads, by the names of its parameters.
    """

    name: str
    kind: str
    site: Site | None = None
    owner: str = ""
    operators: list[str] = field(default_factory=list)
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    arguments: Mapping[str, Any] = field(default_factory=dict)


class Misuse(NamedTuple):
    """A tensor of a PackedSequence in the wrong hands."""

    source: int
    target: int
    part: str
    operator: str


class Read(NamedTuple):
    """A value or a size that went from a tensor into Python, as text, and how many calls were made before."""

    function: str
    site: Site | None
    before: int
    value: str


@dataclass
class Recording:
    """What was recorded of one run. Calls are named by their index.

    Attributes:
        calls: in the order in which they were made, the inputs first, the return last.
        links: `{(source, target): packed}`: who hands something to whom, and whether it is a PackedSequence.
        sizes: `{(source, target): shapes}` of what is handed over.
        misuses: tensors of a PackedSequence where none may be.
        reads: values that were read in Python, where a fixed graph keeps them as constants.
        looks: the same, and sizes: what a condition may stand on.
    """

    calls: list[Call] = field(default_factory=list)
    links: dict[tuple[int, int], bool] = field(default_factory=dict)
    sizes: dict[tuple[int, int], list[tuple[int, ...]]] = field(default_factory=dict)
    misuses: list[Misuse] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    looks: list[Read] = field(default_factory=list)

    def takers(self, source: int) -> list[int]:
        """Who takes something from a call."""
        return [target for one, target in self.links if one == source]


class _Known(NamedTuple):
    """What is known of a tensor. The tensor itself is kept, so that no other gets its id.

    `part` is `data`, `batch_sizes` or `index` of a PackedSequence; `stale` if it was made of one by an operator that
    may not; else empty. `live`: whether it depends on an input.
    """

    tensor: Tensor
    call: int
    part: str
    live: bool


def record(
    module: nn.Module, inputs: Mapping[str, Any], arguments: tuple[Any, ...], options: Mapping[str, Any]
) -> Recording:
    """Runs a network once and records it.

    Args:
        module: the network.
        inputs: what it is called with, by the name of the parameter.
        arguments: the same as its positional arguments …
        options: … and its keyword arguments.
    """
    recorder = _Recorder(module, inputs)
    before = sys.getprofile()
    try:
        with recorder:
            sys.setprofile(recorder.watch_return)
            try:
                output = _run(module, arguments, options)
            finally:
                sys.setprofile(before)
    finally:
        recorder.forget_frames()
    recorder.end(output)
    return recorder.recording


def tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in a nest of sequences, mappings and dataclasses."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from tensors(list(value.values()))
    elif isinstance(value, (list, tuple, set)):
        for one in value:
            yield from tensors(one)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from tensors([getattr(value, one.name) for one in fields(value)])


def _run(module: nn.Module, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """Frames above this one are none of the network's."""
    return module(*arguments, **options)


class _Recorder(TorchFunctionMode):
    """Follows tensors by identity through every torch function."""

    def __init__(self, module: nn.Module, inputs: Mapping[str, Any]) -> None:
        super().__init__()
        self.recording = Recording()
        self._names = {one: name for name, one in module.named_modules()}
        forward = inspect.unwrap(type(module).forward)
        self._forward = getattr(forward, "__code__", None)
        self._module = getattr(forward, "__globals__", None)
        self._returned: Site | None = None
        self._known: dict[int, _Known] = {}
        self._frames: dict[FrameType, int] = {}
        self._gave: dict[int, list[Tensor]] = {}
        for name, value in inputs.items():
            if found := list(tensors(value)):
                shape = str(tuple(value.shape)) if isinstance(value, Tensor) else f"{type(value).__name__}"
                index = self._add(Call(name, "input", owner=shape))
                self._know(found, index, [""] * len(found), live=True)
                if isinstance(value, PackedSequence):
                    self._know(found, index, ["data", "batch_sizes", "index", "index"], live=True)

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Runs the function and notes it."""
        result = func(*args, **(kwargs or {}))
        self._note(func, args, list(tensors((args, kwargs or {}))), result)
        return result

    def watch_return(self, frame: FrameType, event: str, argument: Any) -> None:
        """Sees which line the network's forward returns from, and what packing and padding return, made in any way."""
        if event != "return":
            return
        if frame.f_code is self._forward and self._is_its_own(frame):
            self._returned = Site.of(frame)
        kind = self.recording.calls[index].kind if (index := self._frames.get(frame, -1)) >= 0 else ""
        if kind in ("pack", "pad") or (kind and self.recording.calls[index].name == RUN):
            handed = self._gave[index] = list(tensors(argument))
            parts = ["data", "batch_sizes", "index", "index"] if kind == "pack" else [""] * len(handed)
            for one, part in zip(handed, parts, strict=False):
                known = self._known.get(id(one))
                self._know([one], index, [part], live=known is None or known.live)

    def forget_frames(self) -> None:
        """Lets go of the frames, which hold everything that was local in them."""
        self._frames.clear()

    def end(self, output: Any) -> None:
        """Notes what the network returned."""
        index = self._add(Call("return", "output", self._returned))
        self._take(list(tensors(output)), index, RETURN)
        # Not earlier: while recording, a look at a shape is recorded.
        for one, handed in self._gave.items():
            shapes = [tuple(t.shape) for t in handed if self._known[id(t)].part in ("", "index")]
            self.recording.calls[one].shapes = shapes

    def _note(self, func: Any, args: tuple[Any, ...], taken: list[Tensor], result: Any) -> None:
        name = _short_name(func)
        if name in _SILENT:
            return
        made = list(tensors(result))
        if name == "__setitem__" or (name.endswith("_") and not name.endswith("__")):
            made = list(tensors(args[:1] or taken[:1]))
        else:
            made = [one for one in made if not any(one is other for other in taken)]  # `x.to(…)` may be x itself
        site, callee = self._where()
        if site and _code(site).startswith("print("):
            return  # what is only printed is no part of a graph
        live = any(known.live for known in self._all_known(taken))
        packs = [known for known in self._all_known(taken) if known.part in ("data", "batch_sizes")]
        if live and _is_direct(callee) and (name in _READS or _ALIASES.get(name, name) == "size"):
            read = Read(name, site and Site.of(site), len(self.recording.calls), repr(result))
            self.recording.looks.append(read)
            if name in _READS and not packs:
                self.recording.reads.append(read)
        if not made and not packs:
            return
        index = self._call(name, site, callee)
        call = self.recording.calls[index]
        operator = operator_name(func, args)
        call.operators.append(operator)
        is_rnn = name in RNN_OPERATORS
        packed_rnn = is_rnn and isinstance(args[1 if name == "lstm" else 2], Tensor)
        misused = self._take(taken, index, operator, packed_rnn)
        part = "stale" if misused else "index" if call.kind == "pack" else ""
        parts = [part] * len(made)
        if name == private.PACKING:
            parts = ["data", "batch_sizes"]
        elif packed_rnn:
            parts[0] = "data"
        self._know(made, index, parts, live)
        call.shapes += [tuple(one.shape) for one, part in zip(made, parts, strict=True) if part in ("", "index")]

    def _take(self, taken: list[Tensor], index: int, operator: str, packed_rnn: bool = False) -> bool:
        """Notes who hands these tensors to a call; gives whether one of them is in wrong hands, or has been."""
        kind, wrong = self.recording.calls[index].kind, False
        # An RNN that is given the data alone takes them for a padded batch.
        may = kind == "pad" or packed_rnn or (kind == "rnn" and operator == "aten::size")
        all_known = self._all_known(taken)
        data_too = operator == RETURN and any(known.part == "data" for known in all_known)
        for known in all_known:
            if known.call == index:
                wrong |= known.part == "stale"
                continue
            if known.part in ("batch_sizes", "index") and (data_too or kind in ("pack", "rnn", "pad")):
                continue  # goes along with the data
            packed = known.part in ("data", "batch_sizes")
            link = known.call, index
            self.recording.links[link] = packed or self.recording.links.get(link, False)
            self.recording.sizes.setdefault(link, []).append(tuple(known.tensor.shape))
            wrong |= known.part == "stale"
            if packed and not may and not (kind == "rnn" and known.part == "batch_sizes"):
                wrong = True
                self.recording.misuses.append(Misuse(*link, known.part, operator))
        return wrong

    def _know(self, made: list[Tensor], index: int, parts: list[str], live: bool) -> None:
        for one, part in zip(made, parts, strict=False):
            self._known[id(one)] = _Known(one, index, part, live)

    def _all_known(self, taken: list[Tensor]) -> list[_Known]:
        return [self._known[id(one)] for one in taken if id(one) in self._known]

    def _add(self, call: Call) -> int:
        self.recording.calls.append(call)
        return len(self.recording.calls) - 1

    def _call(self, name: str, site: FrameType | None, callee: FrameType | None) -> int:
        """The index of the call that an operator belongs to: all that runs beneath one frame of torch is one call."""
        if callee is not None and callee in self._frames:
            return self._frames[callee]
        kind = "rnn" if name in RNN_OPERATORS else "operator"
        call = Call(name.strip("_"), kind, site and Site.of(site))
        if callee is not None:
            function, local = callee.f_code.co_name, callee.f_locals
            is_call = callee.f_code is nn.Module.__call__.__code__
            if isinstance(local.get("self"), nn.Module) and (is_call or function == "forward"):
                call.name, call.owner = type(local["self"]).__name__, self._names.get(local["self"], "")
                call.kind = "rnn" if isinstance(local["self"], nn.RNNBase) else "operator"
            elif callee.f_code is running.run.__code__:
                call.name, call.kind = RUN, "rnn"
            elif callee.f_code in _PACKING:
                call.name, call.kind = function, "pack" if function in PACK else "pad"
                parameters = callee.f_code.co_varnames[: callee.f_code.co_argcount]
                call.arguments = {one: local[one] for one in parameters if one in local}
        index = self._add(call)
        if callee is not None:
            self._frames[callee] = index
        return index

    def _where(self) -> tuple[FrameType | None, FrameType | None]:
        """The innermost frame of the network's own code, and the one that it has called."""
        frame: FrameType | None = sys._getframe(3)
        callee: FrameType | None = None
        while frame is not None and frame.f_code is not _run.__code__:
            if self._is_its_own(frame):
                return frame, callee
            frame, callee = frame.f_back, frame
        return None, callee

    def _is_its_own(self, frame: FrameType) -> bool:
        # A network of ours is checked like anyone's.
        return is_readers(frame) or (frame.f_globals is self._module and package(frame) != "torch")


def _is_direct(callee: FrameType | None) -> bool:
    """Whether the network's own code has asked for this, not the inside of a torch module."""
    return callee is None or callee.f_globals is _TENSOR


def _short_name(func: Any) -> str:
    """`max` of `torch.max`; of a property its name."""
    return str(func.__self__.__name__ if func.__name__ == "__get__" else func.__name__)


def operator_name(func: Any, args: tuple[Any, ...]) -> str:
    """The operator that a function runs, as torch names it: `aten::max`."""
    name = _short_name(func)
    if name == "__getitem__":
        name = _getitem(args[1])
    name = _ALIASES.get(name, name)
    bare = name.strip("_") if name.startswith("__") else name
    for one in (bare, bare.removeprefix("r"), name):
        if hasattr(torch.ops.aten, one):
            return f"aten::{one}"
    return str(private.custom_name(func) or resolve_name(func) or name)


def _getitem(key: Any) -> str:
    """What indexing comes down to."""
    keys = key if isinstance(key, tuple) else (key,)
    if any(isinstance(one, (Tensor, list)) for one in keys):
        return "index"
    if any(isinstance(one, slice) and one != slice(None) for one in keys):
        return "slice"
    return "select" if any(isinstance(one, int) for one in keys) else "slice"
