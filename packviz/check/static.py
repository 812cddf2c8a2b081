"""Tries torch's compilers and exporters on a model with other inputs than the example's.

Each backend captures the model on the user's example. The capture and the model then run on other
lengths, other numbers of time steps and other batch sizes, and their results are compared. Only
inputs that the model itself takes count.
"""

from __future__ import annotations

import linecache
import os
import re
import reprlib
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, permutations, product
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.overrides import TorchFunctionMode

from packviz.check.captures import (
    BACKENDS,
    captured,
    difference,
    first_line,
    is_list,
    leaves,
    mapped,
    numbers,
)
from packviz.core.util import quiet
from packviz.core.validation import kind_of, one_of
from packviz.draw.table import Table, Tabled
from packviz.ops.masks import real_mask

RIGHT, WRONG, REFUSED, NOT_TRIED = "✓", "✗ wrong", "✗ refused", "–"
QUESTIONS = {
    "lengths": "other lengths",
    "steps": "other numbers of time steps",
    "batch": "other batch sizes",
}
"""The three questions about each backend, with the headings of their columns."""

_BETTER = {RIGHT: NOT_TRIED, REFUSED: NOT_TRIED + RIGHT, WRONG: NOT_TRIED + RIGHT + REFUSED}
_jit: Any = torch.jit  # whose names are not typed
_TENSORS = "Compute with tensors (a mask, torch.where), or read the value outside the model."
_OPERATOR = "Run pack → RNN → pad as one operator, with pv.LSTM or pv.Ragged(rnn)."
_HERE = os.path.dirname(os.path.dirname(__file__))
_LIBRARIES = (
    os.path.dirname(torch.__file__),
    f"{os.path.dirname(os.__file__)}/contextlib",
    _HERE,
    "<",
)


@dataclass(frozen=True)
class Answer:
    """Whether a capture is right for one kind of other inputs.

    Attributes:
        mark: `"✓"` if it is right, `"✗ wrong"` or `"✗ refused"` if it gives other results than the
            model or an error, and `"–"` if this was not tried.
        reason: the inputs that show it and what happens there, or why it was not tried.
        where: the line of the user's code that the backend names; empty if it names none.
        fix: a remedy for this cause; empty if none is known.
    """

    mark: str
    reason: str = ""
    where: str = ""
    fix: str = ""


@dataclass(frozen=True, repr=False)
class StaticCheck(Tabled):
    """The answers of `check_static`.

    Attributes:
        title: the name of the model.
        answers: an `Answer` by backend and by question, `"lengths"`, `"steps"` or `"batch"`.
        size: the line where the size of a tensor depends on the lengths, which a compiler with
            fixed sizes rejects; empty if there is none. The sizes inside an RNN and the packing
            functions do not count, and the longest sequence keeps its length.
        required: the question that must have an answer, so that `ok` can be True.
    """

    title: str
    answers: Mapping[str, Mapping[str, Answer]]
    size: str = ""
    required: str = "lengths"

    @property
    def verdict(self) -> str:
        """`"wrong"`, `"refused"`, `"undecided"` or `"ok"`: the first that holds for a backend."""
        marks = [answer.mark for row in self.answers.values() for answer in row.values()]
        if WRONG in marks:
            return "wrong"
        if REFUSED in marks:
            return "refused"
        needed = [row[self.required].mark for row in self.answers.values()]
        return "undecided" if NOT_TRIED in needed else "ok"

    @property
    def ok(self) -> bool:
        """True if every capture is right for all that was tried, and enough could be tried."""
        return self.verdict == "ok"

    @property
    def table(self) -> Table:
        """The table, with a row for each backend, and the reasons below it."""
        rows = []
        lines = []
        for backend, answers in self.answers.items():
            rows.append([backend, *(answer.mark for answer in answers.values())])
            for answer in answers.values():
                parts = (answer.reason, answer.where, answer.fix)
                lines += [f"{backend}: {part}" for part in parts if part]
        notes = [*dict.fromkeys(lines)]
        if self.size:
            notes.append(f"! A size depends on the lengths: {self.size}")
        title = f"{self.title}: {self.verdict}"
        head = ["backend", *QUESTIONS.values()]
        return Table(rows, head, title, notes, form="<  <")


def check_static(
    model: nn.Module, inputs: Sequence[Any], backends: str | Iterable[str] = ("trace",)
) -> StaticCheck:
    """Reports for which other inputs torch's compilers and exporters give a model's results.

    The model runs in eval mode and without gradients, and gets its modes and its buffers back.
    Other changes that its `forward` makes remain.

    Args:
        model: any module.
        inputs: a tuple of the example's inputs, which may be nested. An input is read as lengths
            if it contains whole numbers (a tensor, an array or a list), a mask of the real steps
            or of the padding, or ids padded with 0 or 1.
        backends: any of `"trace"` (`torch.jit.trace`), `"export"` (`torch.export`), `"compile"`
            (`torch.compile(fullgraph=True)`), `"onnx"` and `"onnx_legacy"` (`torch.onnx.export`
            with and without `dynamo=True`, run by ONNX Runtime). An exporter may leave the numbers
            of sequences and of time steps open. A trace usually takes a fraction of a second, and
            each of the others up to several seconds.

    Returns:
        For each backend, three answers: is its capture right for other lengths, for other numbers
        of time steps, and for other batch sizes? The result is shown as a table.

    Raises:
        TypeError: `model` is not a module, or `inputs` is not a tuple or a list.
        ValueError: a backend does not exist.
        Exception: any error that the model raises on the example.

    Examples:
        >>> import packviz as pv, torch
        >>> checked = pv.check_static(torch.nn.LSTM(3, 4), [torch.zeros(5, 2, 3)])
        >>> checked.answers["trace"]["batch"].mark
        '✓'
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is {kind_of(model)}; give the nn.Module itself")
    if not isinstance(inputs, (tuple, list)) or isinstance(inputs, PackedSequence):
        raise TypeError(f"inputs is {kind_of(inputs)}; give a tuple, as in (x, lengths)")
    names = [backends] if isinstance(backends, str) else [*backends]
    for name in names:
        one_of("backends", name, BACKENDS)
    if any(isinstance(part, PackedSequence) for part in inputs):
        raise TypeError("an input is a PackedSequence; check a module that packs, with its lengths")
    with _evaluating(model), _seeded():
        record = _Sizes(model, inputs)
        with quiet():
            if message := difference(record.outputs, _run(model, inputs)):
                reason = f"run again on the example, the model {message}"
                row = dict.fromkeys(QUESTIONS, Answer(NOT_TRIED, reason))
                return StaticCheck(type(model).__name__, dict.fromkeys(names, row))
            understood = [
                (example, *_tries(model, example)) for example in _examples(model, inputs)
            ]
            example, tries, reasons = max(understood, key=lambda each: len(each[1]))
            answers = {name: _judged(name, model, example, tries, reasons) for name in names}
            size = _varying_size(model, record, example)
    plain = all(isinstance(leaf, Tensor) and leaf.is_floating_point() for leaf in leaves(inputs))
    required = "batch" if plain and not record.packs else "lengths"
    return StaticCheck(type(model).__name__, answers, size, required)


# The example, and other inputs made of it.


@dataclass(frozen=True)
class _Reading:
    """A way to read a leaf of the inputs as lengths.

    Attributes:
        leaf: the leaf, a tensor, an array or a list.
        lengths: the lengths of the example.
        padding: the value of the padding in a mask or in ids; `None` for whole numbers.
        time_first: whether the first axis of a mask or of ids is time.
    """

    leaf: Any
    lengths: tuple[int, ...]
    padding: int | None = None
    time_first: bool = False

    def write(self, rows: Tensor, times: Tensor, lengths: Tensor) -> Any:
        """Returns some rows and time steps of the leaf, with other lengths."""
        values = torch.as_tensor(self.leaf)
        made = lengths
        if self.padding is not None:
            cells = values.T if self.time_first else values
            is_real = cells != self.padding
            cells = cells.where(is_real, cells[is_real][0])[rows][:, times]
            made = cells.where(real_mask(lengths, len(times)).to(values.device), self.padding)
            made = made.T if self.time_first else made
        made = made.to(values)
        if isinstance(self.leaf, Tensor):
            return made
        return made.numpy() if isinstance(self.leaf, np.ndarray) else type(self.leaf)(made.tolist())


def _readings(leaf: Any) -> Iterator[_Reading]:
    """Yields the ways to read a leaf as lengths."""
    if not isinstance(leaf, (Tensor, np.ndarray)) and not is_list(leaf):
        return
    values = torch.as_tensor(leaf).detach().cpu()
    if not values.numel() or values.double().frac().any():
        return
    if values.dim() == 1 and values.dtype != torch.bool and values.min() >= 0 < values.max():
        yield _Reading(leaf, tuple(values.long().tolist()))
    is_binary = ((values == 0) | (values == 1)).all()
    if values.dim() != 2 or (values.is_floating_point() and not is_binary):
        return
    for time_first, padding in product((False, True), (0, 1)):
        is_real = (values.T if time_first else values) != padding
        n = is_real.sum(1)
        at_end = (is_real == real_mask(n, is_real.shape[1])).all()
        if at_end and n.any() and (padding == 0 or not is_real.all()):
            yield _Reading(leaf, tuple(n.tolist()), padding, time_first)


@dataclass(frozen=True)
class _Example:
    """The example, and the meaning of its leaves.

    Attributes:
        inputs: the inputs.
        lengths: the lengths; empty if the axes of batch and time are not known.
        steps: number of time steps.
        readings: the leaves that are read as lengths, by their numbers.
        axes: the axes of batch and time of other tensors, by the number of the leaf.
    """

    inputs: Sequence[Any]
    lengths: tuple[int, ...] = ()
    steps: int = 0
    readings: Mapping[int, _Reading] = field(default_factory=dict)
    axes: Mapping[int, Sequence[int | None]] = field(default_factory=dict)

    def make(self, case: _Case, random: bool = False) -> Any:
        """Returns the inputs of a case. Floating-point tensors may get random numbers."""
        places = count()
        rows = torch.tensor(case.rows)
        times = torch.arange(case.steps) % self.steps

        def change(leaf: Any) -> Any:
            place = next(places)
            if place in self.readings:
                return self.readings[place].write(rows, times, torch.tensor(case.lengths))
            for index, axis in zip((rows, times), self.axes.get(place, ()), strict=False):
                leaf = leaf if axis is None else leaf.index_select(axis, index.to(leaf.device))
            if random and isinstance(leaf, Tensor) and leaf.is_floating_point():
                return torch.randn_like(leaf)
            return leaf

        return mapped(self.inputs, change)


@dataclass(frozen=True)
class _Case:
    """Other inputs: rows of the example, a number of time steps, and the lengths of these rows.

    Its question is one of `QUESTIONS`, or `"both"` if both the lengths and the steps are new.
    """

    question: str
    rows: list[int]
    steps: int
    lengths: list[int]

    def __str__(self) -> str:
        return f"lengths {reprlib.repr(self.lengths)} in {self.steps} time steps"


def _cases(example: _Example) -> Iterator[_Case]:
    """Yields the cases to try. The first of each question are the ones that most models take."""
    lengths = list(example.lengths)
    steps = example.steps
    rows = [*range(len(lengths))]
    if not lengths:
        return
    n = np.array(lengths)
    longest = n == n.max()
    fewer = max(1, steps - 1)
    for width in (steps + 3, steps + 4, max(lengths)):
        yield _Case("steps", rows, width, lengths)
    top = int(longest.argmax())
    for chosen in ([top], [top, *rows], sorted(rows * 2)):
        yield _Case("batch", chosen, steps, n[chosen].tolist())
    if not example.readings:
        return
    generator = np.random.default_rng(0)
    # Most of these keep the order of the lengths, for models that expect sorted ones.
    others = [
        n - 1,
        (n + 1) // 2,
        n * 0 + n.max() - 1,
        n * 0 + steps,
        n * 0,
        np.where(longest, n, 1),
    ]
    others += [np.linspace(n.max(), 1, len(n)).astype(int), n[::-1]]
    others += list(generator.integers(1, n.max() + 1, (3, len(n))))
    for other in others:
        yield _Case("lengths", rows, steps, np.maximum(1, other).tolist())
    yield _Case("lengths", rows[::-1], steps, lengths[::-1])
    n[::-1][n[::-1].argmin()] = 0  # the last of the shortest
    yield _Case("lengths", rows, steps, n.tolist())
    yield _Case("both", rows, steps + 3, [length + 3 for length in lengths])
    yield _Case("both", rows, fewer, [min(length, fewer) for length in lengths])


def _examples(model: nn.Module, inputs: Sequence[Any]) -> Iterator[_Example]:
    """Yields the ways to understand the inputs, most likely first, and at last none."""
    flat = leaves(inputs)
    tensors = {place: leaf for place, leaf in enumerate(flat) if isinstance(leaf, Tensor)}
    wide = [leaf for leaf in tensors.values() if leaf.dim() > 1]
    shape = max(wide, key=Tensor.is_floating_point).shape if wide else ()
    floats = [place for place, leaf in tensors.items() if leaf.is_floating_point()]
    readings: dict[tuple[int, ...], dict[int, _Reading]] = {}
    # Floating-point tensors come last, because features may look like a mask.
    for place in sorted(range(len(flat)), key=lambda place: place in floats):
        for reading in _readings(flat[place]):
            readings.setdefault(reading.lengths, {}).setdefault(place, reading)
    rnns = [module for module in model.modules() if isinstance(module, nn.RNNBase)]
    if not readings and rnns and len(shape) == 3:
        time = int(rnns[0].batch_first)
        readings[(shape[time],) * shape[1 - time]] = {}
    for lengths in sorted(readings, key=lambda lengths: max(lengths) not in shape):
        for batch, time in permutations(range(len(shape)), 2):
            if shape[batch] == len(lengths) and shape[time] >= max(lengths):
                axes = {}
                for place, tensor in tensors.items():
                    first = _batch_axis(tensor.shape, shape[batch], batch)
                    has_time = time < tensor.dim() and tensor.shape[time] == shape[time]
                    axes[place] = (first, time if has_time and time != first else None)
                yield _Example(inputs, lengths, shape[time], readings[lengths], axes)
    yield _Example(inputs)


def _batch_axis(shape: Sequence[int], size: int, preferred: int) -> int | None:
    """Returns the preferred axis if it has this size, or else the only axis that has it."""
    places = [axis for axis, other in enumerate(shape) if other == size]
    if preferred in places:
        return preferred
    return places[0] if len(places) == 1 else None


def _tries(
    model: nn.Module, example: _Example
) -> tuple[list[tuple[_Case, Any, list[Any]]], dict[str, str]]:
    """Runs the model on all cases.

    Returns:
        The cases that the model takes, each with its inputs and the model's result; and for each
        question, why no case may be left.
    """
    reasons = dict.fromkeys(QUESTIONS, "the axes of batch and time are not known")
    if not example.readings:
        reasons["lengths"] = "no input was recognised as lengths"
    tries = []
    for i, case in enumerate(_cases(example)):
        inputs = example.make(case, random=i % 2 == 1)
        try:
            expected = _run(model, inputs)
        except Exception as error:
            reasons[case.question] = f"the model itself refuses {case}: {first_line(error)}"
            continue
        if 0 in case.lengths and any(torch.as_tensor(x).isnan().any() for x in expected):
            continue  # the model takes no empty sequences
        tries.append((case, inputs, expected))
    return tries, reasons


# Running and judging.


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Sets the model to eval mode, and restores its modes and its buffers afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        model.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training
        for buffer, before in buffers:
            buffer.data.copy_(before)


@contextmanager
def _seeded() -> Iterator[None]:
    """Runs a model without gradients, and from the same random state each time."""
    with torch.random.fork_rng(range(torch.cuda.device_count())), torch.no_grad():
        torch.manual_seed(0)
        yield


def _run(model: nn.Module, inputs: Sequence[Any]) -> list[Any]:
    with _seeded():
        return numbers(model(*_copied(inputs)))


def _copied(inputs: Sequence[Any]) -> Any:
    return mapped(inputs, lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf)


def _judged(
    backend: str, model: nn.Module, example: _Example, tries: Any, reasons: Mapping[str, str]
) -> dict[str, Answer]:
    """Captures the model on the example, and returns the answer to each question."""
    kept = [
        leaf for leaf in leaves(example.inputs) if is_list(leaf) or isinstance(leaf, np.ndarray)
    ]
    if kept and backend != "compile":
        reason = f"it takes only tensors, but an input is {kind_of(kept[0])}; give a tensor"
        return dict.fromkeys(QUESTIONS, Answer(REFUSED, reason))
    axes = {i: [axis for axis in pair if axis is not None] for i, pair in example.axes.items()}
    try:
        with warnings.catch_warnings(record=True) as warned, _seeded():
            warnings.simplefilter("always")
            capture = captured(backend, model, _copied(example.inputs), axes)
    except ImportError as error:
        return dict.fromkeys(QUESTIONS, Answer(NOT_TRIED, str(error)))
    except Exception as error:
        return dict.fromkeys(QUESTIONS, _refusal(error))
    read = [w for w in warned if issubclass(w.category, _jit.TracerWarning)]
    lines = [_site(w.filename, w.lineno) for w in read if _is_users(w.filename)]
    place = (lines[0], _TENSORS) if lines else ()
    tolerance = 1e-4 if "onnx" in backend else 1e-5
    answers = {question: Answer(NOT_TRIED, reason) for question, reason in reasons.items()}
    for case, inputs, expected in tries:
        question = case.question
        if question == "both":
            if answers["lengths"].mark in (WRONG, REFUSED):
                continue
            question = "steps"  # the lengths alone have done no harm
        answer = Answer(RIGHT)
        try:
            with _seeded(), _jit.optimized_execution(False):
                result = capture(_copied(inputs))
            if message := difference(expected, result, tolerance):
                answer = Answer(WRONG, f"for {case}, it {message}", *place)
        except Exception as error:
            answer = Answer(REFUSED, f"for {case}, it raises {first_line(error)}", *place)
        if answers[question].mark in _BETTER[answer.mark]:
            answers[question] = answer
    return {question: answers[question] for question in QUESTIONS}


def _refusal(error: Exception) -> Answer:
    """Returns the answer of a backend that rejects the model, with the line that it names."""
    text = "".join(traceback.format_exception(error))
    places = re.findall(r'File "([^"]+)", line (\d+)', text)
    lines = [_site(path, int(line)) for path, line in places if _is_users(path)]
    fix = _TENSORS if re.search("[Dd]ata-dependent", text) else ""
    if "nn/utils/rnn.py" in text or "pack_padded_sequence or" in text:
        fix = _OPERATOR
    return Answer(REFUSED, f"it raises {first_line(error)}", lines[-1] if lines else "", fix)


def _is_users(path: str) -> bool:
    """Returns whether a file is the user's, or our file of example models."""
    return path.endswith("packviz/check/models.py") or not path.startswith(_LIBRARIES)


def _site(path: str, line: int) -> str:
    """Describes a line of code, as in `model.py, line 7: return x`.

    In a notebook, the line's file has no name.
    """
    name = "" if "ipykernel" in path else f"{os.path.basename(path)}, "
    return f"{name}line {line}: {linecache.getline(path, line).strip()}"


# Sizes.


class _Sizes(TorchFunctionMode):
    """A record of the sizes that torch functions take and return, outside RNNs and packing.

    Attributes:
        sizes: the sizes by the line of the model's code.
        outputs: the leaves of the model's result.
        packs: whether the model packs.
    """

    def __init__(self, model: nn.Module, inputs: Sequence[Any]) -> None:
        super().__init__()
        self.sizes: dict[str, list[tuple[int, ...]]] = {}
        self.packs = False
        with self:
            self.outputs = _run(model, inputs)
        self.sizes["the model's result"] = [np.shape(leaf) for leaf in self.outputs]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        frame: FrameType | None = sys._getframe(1)
        passed = ""
        while frame is not None and not _is_users(frame.f_code.co_filename):
            passed += f"{frame.f_globals.get('__name__')} "
            frame = frame.f_back
        self.packs |= "nn.utils.rnn" in passed or "packviz.ops" in passed
        if frame is not None and not re.search(r"\.rnn |packviz\.ops", passed):
            place = _site(frame.f_code.co_filename, frame.f_lineno)
            tensors = [leaf for leaf in leaves([args, result]) if isinstance(leaf, Tensor)]
            self.sizes.setdefault(place, []).extend(tuple(x.shape) for x in tensors)
        return result


def _varying_size(model: nn.Module, first: _Sizes, example: _Example) -> str:
    """Names the first line where a size depends on the lengths; empty if there is none.

    The longest sequence keeps its length, because `pad_packed_sequence` may follow it.
    """
    if not example.readings:
        return ""
    n = np.array(example.lengths)
    shorter = np.maximum(1, n - 1)
    shorter[n.argmax()] = n.max()
    case = _Case("lengths", [*range(len(n))], example.steps, shorter.tolist())
    try:
        second = _Sizes(model, example.make(case))
    except Exception:  # the model does not take these lengths
        return ""
    for place, sizes in first.sizes.items():
        if second.sizes.get(place, sizes) != sizes:
            return place
    return ""
