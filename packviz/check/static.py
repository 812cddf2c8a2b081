"""Reports for which other inputs torch's compilers and exporters are right.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
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
from packviz.check.compare import keeping_modes
from packviz.core.layout import IntArray
from packviz.core.silence import quiet
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

_jit: Any = torch.jit  # whose names are not typed
_TENSORS = "Compute with tensors (a mask, torch.where), or read the value outside the model."
_OPERATOR = "Run pack → RNN → pad as one operator, with pv.LSTM or pv.Ragged(rnn)."
_TORCH = os.path.dirname(torch.__file__)
_CONTEXTLIB = f"{os.path.dirname(os.__file__)}/contextlib"
_PACKVIZ = os.path.dirname(os.path.dirname(__file__))
_LIBRARIES = (_TORCH, _CONTEXTLIB, _PACKVIZ, "<")


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


def _severity(answer: Answer) -> int:
    return (NOT_TRIED, RIGHT, REFUSED, WRONG).index(answer.mark)


@dataclass(frozen=True)
class StaticCheck(Tabled):
    """The answers of `check_static`.

    Attributes:
        title: the name of the model.
        answers: an `Answer` by backend and then by question (`"lengths"`, `"steps"`, `"batch"`).
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
    """Reports for which other inputs a compiled or exported model gives the model's results.

    The model runs in eval mode and without gradients, and gets its modes and its buffers back.
    Other changes that its `forward` makes remain.

    Args:
        model: any module.
        inputs: a tuple of the example's inputs, which may be nested. An input is read as lengths
            if it contains whole numbers, as a tensor, an array or a list, or if it is a mask of the
            real steps or of the padding.
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
    title = type(model).__name__
    with _evaluating(model):
        record = _Sizes(model, inputs)
        with quiet():
            if message := difference(record.outputs, _run(model, inputs)):
                reason = f"run again on the example, the model {message}"
                row = dict.fromkeys(QUESTIONS, Answer(NOT_TRIED, reason))
                return StaticCheck(title, dict.fromkeys(names, row))
            readings = [_tries(model, example) for example in _examples(model, inputs)]
            example, tries, reasons = max(readings, key=lambda reading: len(reading[1]))
            answers = {name: _judged(name, model, example, tries, reasons) for name in names}
            size = _varying_size(model, record, example)
    may_have_lengths = record.packs or not all(map(_is_float, leaves(inputs)))
    required = "lengths" if may_have_lengths else "batch"
    return StaticCheck(title, answers, size, required)


# The example, and other inputs made of it.


_Lengths = tuple[int, ...]
_Write = Callable[[Tensor, int], object]
"""A function that writes a leaf for other lengths and a number of time steps."""


def _readings(leaf: Any) -> Iterator[tuple[_Lengths, _Write]]:
    """Yields the ways to read a leaf as lengths: the lengths, and how to write others."""
    if not isinstance(leaf, (Tensor, np.ndarray)) and not is_list(leaf):
        return
    values = torch.as_tensor(leaf).detach().cpu()
    if not values.any() or values.double().frac().any():
        return
    if values.dim() == 1 and values.dtype != torch.bool and values.min() >= 0:
        yield tuple(values.long().tolist()), lambda lengths, steps: _like(leaf, lengths)
    if values.dim() != 2 or ((values != 0) & (values != 1)).any():
        return
    for time_first, inverted in product((False, True), (False, True)):
        mask = (values.T if time_first else values) != inverted
        n = mask.sum(1)
        if n.any() and mask.equal(real_mask(n, mask.shape[1])):
            yield tuple(n.tolist()), partial(_mask, leaf, time_first, inverted)


def _mask(leaf: Any, time_first: bool, inverted: bool, lengths: Tensor, steps: int) -> object:
    mask = real_mask(lengths, steps) != inverted
    return _like(leaf, mask.T if time_first else mask)


def _like(leaf: Any, values: Tensor) -> object:
    """Returns values in the form of a leaf: a tensor, an array, a list or a tuple."""
    values = values.to(torch.as_tensor(leaf))
    if isinstance(leaf, Tensor):
        return values
    if isinstance(leaf, np.ndarray):
        return values.numpy()
    return type(leaf)(values.tolist())


def _is_float(leaf: object) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point()


@dataclass(frozen=True)
class _Example:
    """The example, and the meaning of its leaves.

    Attributes:
        inputs: the inputs.
        lengths: the lengths; empty if the axes of batch and time are not known.
        steps: number of time steps.
        readings: functions that make the leaf for other lengths, by the number of the leaf.
        axes: for each tensor, by the number of the leaf, which axes are `"batch"` or `"time"`.
    """

    inputs: Sequence[Any]
    lengths: _Lengths = ()
    steps: int = 0
    readings: Mapping[int, _Write] = field(default_factory=dict)
    axes: Mapping[int, Mapping[int, str]] = field(default_factory=dict)

    def make(self, case: _Case, random: bool = False) -> Any:
        """Returns the inputs of a case. Floating-point tensors may get random numbers."""
        places = count()
        lengths = torch.tensor(case.lengths)
        times = torch.arange(case.steps) % self.steps
        indices = {"batch": torch.tensor(case.rows), "time": times}

        def change(leaf: Any) -> object:
            place = next(places)
            if place in self.readings:
                return self.readings[place](lengths, case.steps)
            for axis, name in self.axes.get(place, {}).items():
                leaf = leaf.index_select(axis, indices[name].to(leaf.device))
            return torch.randn_like(leaf) if random and _is_float(leaf) else leaf

        return mapped(self.inputs, change)


@dataclass(frozen=True)
class _Case:
    """Other inputs: rows of the example, a number of time steps, and the lengths of these rows.

    Its question is one of `QUESTIONS`, or `"both"` if both the lengths and the steps are new.
    """

    question: str
    rows: list[int]
    steps: int
    lengths: IntArray

    def __str__(self) -> str:
        return f"lengths {reprlib.repr(self.lengths.tolist())} in {self.steps} time steps"


def _cases(example: _Example) -> Iterator[_Case]:
    """Yields the cases to try. The first of each question are the ones that most models take."""
    if not example.lengths:
        return
    n = np.array(example.lengths)
    longest = max(example.lengths)
    top = int(n.argmax())
    steps = example.steps
    rows = [*range(len(n))]
    for width in (steps + 3, steps + 4, longest):
        if width != steps:
            yield _Case("steps", rows, width, n)
    for chosen in ([top], [top, *rows]):
        yield _Case("batch", chosen, steps, n[chosen])
    if not example.readings:
        return
    # Most of these keep the order of the lengths, for models that expect sorted ones.
    falling = longest - np.arange(len(n))
    drawn = np.random.default_rng(0).integers(1, longest + 1, (2, len(n)))
    equal = np.full_like(n, steps)
    for other in (n - 1, (n + 1) // 2, n[::-1], equal, falling, *drawn):
        yield _Case("lengths", rows, steps, np.maximum(1, other))
    yield _Case("lengths", rows, steps, np.append(n[:-1], 0))
    yield _Case("both", rows, steps + 3, n + 3)
    fewer = max(1, steps - 1)
    yield _Case("both", rows, fewer, np.minimum(n, fewer))


def _examples(model: nn.Module, inputs: Sequence[Any]) -> Iterator[_Example]:
    """Yields the ways to understand the inputs, most likely first, and at last none."""
    flat = [*enumerate(leaves(inputs))]
    tensors = {place: leaf for place, leaf in flat if isinstance(leaf, Tensor)}
    wide = [leaf for leaf in tensors.values() if leaf.dim() > 1]
    shape = max(wide, key=_is_float).shape if wide else ()
    readings: dict[_Lengths, dict[int, _Write]] = {}
    # Floating-point tensors come last, because features may look like a mask.
    for place, leaf in sorted(flat, key=lambda item: _is_float(item[1])):
        for lengths, write in _readings(leaf):
            readings.setdefault(lengths, {}).setdefault(place, write)
    rnns = [module for module in model.modules() if isinstance(module, nn.RNNBase)]
    if not readings and rnns and len(shape) == 3:
        time = int(rnns[0].batch_first)
        readings[(shape[time],) * shape[1 - time]] = {}
    for lengths in sorted(readings, key=lambda lengths: max(lengths) not in shape):
        for batch, time in permutations(range(len(shape)), 2):
            if shape[batch] == len(lengths) and shape[time] >= max(lengths):
                axes = {}
                for place, tensor in tensors.items():
                    axes[place] = _axes(tensor.shape, shape, batch, time)
                yield _Example(inputs, lengths, shape[time], readings[lengths], axes)
    yield _Example(inputs)


def _axes(shape: Sequence[int], like: Sequence[int], batch: int, time: int) -> dict[int, str]:
    """Returns the axes of batch and time of a tensor, given those of a tensor of shape `like`."""
    axes = {}
    places = [axis for axis, size in enumerate(shape) if size == like[batch]]
    if batch in places:
        axes[batch] = "batch"
    elif len(places) == 1:
        axes[places[0]] = "batch"
    if time < len(shape) and shape[time] == like[time]:
        axes.setdefault(time, "time")
    return axes


_Try = tuple[_Case, Sequence[Any], list[Any]]
"""A case, its inputs, and the model's result."""


def _tries(model: nn.Module, example: _Example) -> tuple[_Example, list[_Try], dict[str, str]]:
    """Runs the model on all cases.

    Returns:
        The example; the cases that the model takes; and for each question, why none may be left.
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
        has_nan = any(torch.as_tensor(leaf).isnan().any() for leaf in expected)
        if 0 in case.lengths and has_nan:
            continue  # the model takes no empty sequences
        tries.append((case, inputs, expected))
    return example, tries, reasons


# Running and judging.


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Sets the model to eval mode without gradients, and restores its modes and buffers."""
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    random_state = torch.random.fork_rng(range(torch.cuda.device_count()))
    settings = _jit.optimized_execution(False)
    try:
        with keeping_modes(model), random_state, torch.no_grad(), settings:
            model.eval()
            yield
    finally:
        for buffer, before in buffers:
            buffer.data.copy_(before)


def _run(model: Callable[..., object], inputs: Sequence[Any]) -> list[Any]:
    """Runs a model or a capture on copies of the inputs, from the same random state each time."""
    torch.manual_seed(0)
    return numbers(model(*_copied(inputs)))


def _copied(inputs: Sequence[Any]) -> Any:
    return mapped(inputs, lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf)


def _judged(
    backend: str,
    model: nn.Module,
    example: _Example,
    tries: Sequence[_Try],
    reasons: Mapping[str, str],
) -> dict[str, Answer]:
    """Captures the model on the example, and returns the answer to each question."""
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            torch.manual_seed(0)
            capture = captured(backend, model, _copied(example.inputs), example.axes)
    except ImportError as error:
        return dict.fromkeys(QUESTIONS, Answer(NOT_TRIED, str(error)))
    except Exception as error:
        return dict.fromkeys(QUESTIONS, _refusal(error))
    where = ""
    fix = ""
    for warning in reversed(warned):
        if issubclass(warning.category, _jit.TracerWarning) and _is_users(warning.filename):
            where = _site(warning.filename, warning.lineno)
            fix = _TENSORS
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
            if message := difference(expected, _run(capture, inputs), tolerance):
                answer = Answer(WRONG, f"for {case}, it {message}", where, fix)
        except Exception as error:
            reason = f"for {case}, it raises {first_line(error)}"
            answer = Answer(REFUSED, reason, where, fix)
        # Of two equally serious answers, the first is kept.
        answers[question] = max(answers[question], answer, key=_severity)
    answers.pop("both", None)
    return answers


def _refusal(error: Exception) -> Answer:
    """Returns the answer of a backend that rejects the model, with the line that it names."""
    text = "".join(traceback.format_exception(error))
    places = re.findall(r'File "([^"]+)", line (\d+)', text)
    lines = [_site(path, int(line)) for path, line in places if _is_users(path)]
    fix = _TENSORS if re.search("[Dd]ata-dependent", text) else ""
    if "nn/utils/rnn.py" in text or "pack_padded_sequence or" in text:
        fix = _OPERATOR
    where = lines[-1] if lines else ""
    return Answer(REFUSED, f"it raises {first_line(error)}", where, fix)


def _is_users(path: str) -> bool:
    """Returns whether a file is the user's, or our file of example models."""
    return path.endswith("packviz/check/models.py") or not path.startswith(_LIBRARIES)


def _site(path: str, line: int) -> str:
    """Describes a line of code, as in `model.py, line 7: return x`. A notebook has no name."""
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

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        frame: FrameType | None = sys._getframe(1)
        passed = ""
        while frame is not None and not _is_users(frame.f_code.co_filename):
            passed += f"{frame.f_globals.get('__name__')} "
            frame = frame.f_back
        self.packs |= "nn.utils.rnn" in passed or "packviz.ops" in passed
        if frame is not None and not re.search(r"\.rnn |packviz\.ops", passed):
            place = _site(frame.f_code.co_filename, frame.f_lineno)
            sizes = self.sizes.setdefault(place, [])
            for leaf in leaves([args, result]):
                if isinstance(leaf, Tensor):
                    sizes.append(tuple(leaf.shape))
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
    case = _Case("lengths", [*range(len(n))], example.steps, shorter)
    try:
        second = _Sizes(model, example.make(case))
    except Exception:  # the model does not take these lengths
        return ""
    for place, sizes in first.sizes.items():
        if second.sizes.get(place, sizes) != sizes:
            return place
    return ""
