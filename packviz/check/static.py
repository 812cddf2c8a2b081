"""Reports for which other inputs torch's compilers and exporters are right.

Each backend captures the model on the user's example. The capture and the model then run on other
lengths, other numbers of time steps and other batch sizes, and their results are compared. Only
inputs that the model itself takes count.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import re
import reprlib
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, permutations
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.overrides import TorchFunctionMode

from packviz.check import captures
from packviz.check.captures import (
    describe_difference,
    is_int_list,
    leaves,
    map_leaves,
    short_error_text,
)
from packviz.check.whole_model import evaluating
from packviz.core.layout import IntArray
from packviz.core.silence import quiet
from packviz.core.validation import kind_of, require_one_of
from packviz.draw.table import HasTable, Table
from packviz.ops.masks import lengths_tensor, real_mask

RIGHT, WRONG, REFUSED, NOT_TRIED = "✓", "✗ wrong", "✗ refused", "–"
QUESTIONS = {
    "lengths": "other lengths",
    "steps": "other numbers of time steps",
    "batch": "other batch sizes",
}
"""The three questions about each backend, with the headings of their columns."""

_jit: Any = torch.jit  # whose names are not typed
_TENSOR_REMEDY = "Compute with tensors (a mask, torch.where), or read the value outside the model."
_OPERATOR_REMEDY = "Run pack → RNN → pad as one operator, with pv.LSTM or pv.Ragged(rnn)."
_PACKVIZ_FOLDER = os.path.dirname(os.path.dirname(__file__))
_LIBRARY_FOLDERS = (os.path.dirname(torch.__file__), _PACKVIZ_FOLDER, contextlib.__file__, "<")


@dataclass(frozen=True)
class Answer:
    """Whether a capture is right for one kind of other inputs.

    Attributes:
        mark: `"✓"` if it is right, `"✗ wrong"` or `"✗ refused"` if its results differ from the
            model's or it raises an error, and `"–"` if this was not tried.
        reason: the inputs that show it and what happens with them, or why it was not tried.
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
class StaticCheck(HasTable):
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
        required_marks = [row[self.required].mark for row in self.answers.values()]
        return "undecided" if NOT_TRIED in required_marks else "ok"

    @property
    def ok(self) -> bool:
        """True if every capture is right for all that was tried, and enough could be tried."""
        return self.verdict == "ok"

    @property
    def table(self) -> Table:
        """The table, with a row for each backend, and the reasons folded below it."""
        rows = []
        backends_by_note: dict[str, dict[str, None]] = {}  # the backends of each note, in order
        for backend, answers in self.answers.items():
            rows.append([backend, *(answer.mark for answer in answers.values())])
            for answer in answers.values():
                for part in (answer.reason, answer.where, answer.fix):
                    backends_by_note.setdefault(part, {})[backend] = None
        notes = [
            f"{', '.join(backends)}: {part}" for part, backends in backends_by_note.items() if part
        ]
        size_warnings = [f"! A size depends on the lengths: {self.size}"] if self.size else []
        title = f"{self.title}: {self.verdict}"
        head = ["backend", *QUESTIONS.values()]
        folded_lines = ["Reasons, lines of code and remedies:", *notes] if notes else []
        return Table(
            rows, head, title, size_warnings, collapsed_lines=folded_lines, column_format="<  <"
        )


def check_static(
    model: nn.Module, inputs: Sequence[Any], backends: str | Iterable[str] = ("trace",)
) -> StaticCheck:
    """Reports for which other inputs a compiled or exported model gives the model's results.

    The model runs in eval mode and without gradients, and afterwards its modes and buffers are
    restored. Other changes that its `forward` makes remain.

    Args:
        model: any module.
        inputs: a tuple of the example's inputs, which may be nested. An input is read as lengths
            if it contains whole numbers, as a tensor, an array or a list, or if it is a mask of the
            real steps or of the padding. If there are several, each gets other values in turn.
            A second number of time steps, such as that of a decoder's targets, stays as it is, so
            nothing is said about other ones.
        backends: any of `"trace"` (`torch.jit.trace`), `"export"` (`torch.export`), `"compile"`
            (`torch.compile(fullgraph=True)`), `"onnx"` and `"onnx_legacy"` (`torch.onnx.export`
            with and without `dynamo=True`, run by ONNX Runtime). An exporter may leave the numbers
            of sequences and of time steps open. A trace usually takes a fraction of a second, and
            each of the others up to several seconds.
            On Linux, torch's legacy ONNX exporter ends the whole process if the model assigns to an
            empty slice, as in `mask[row, n:] = True` for a sequence without padding
            (https://github.com/pytorch/pytorch/issues/110056). So save your work before you try it.

    Returns:
        For each backend, three answers: is its capture right for other lengths, for other numbers
        of time steps, and for other batch sizes? The result is shown as a table.

    Raises:
        TypeError: `model` is not a module, `inputs` is not a tuple or a list, an input is a
            `PackedSequence`, or the model returns something that cannot be compared.
        ValueError: a backend does not exist.
        Exception: any error that the model raises on the example.

    Examples:
        >>> import packviz as pv, torch
        >>> checked = pv.check_static(torch.nn.LSTM(3, 4), [torch.zeros(5, 2, 3)])
        >>> checked.answers["trace"]["batch"].mark
        '✓'
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model is {kind_of(model)}; give an instance of nn.Module, as in nn.LSTM(3, 4)"
        )
    if not isinstance(inputs, (tuple, list)) or isinstance(inputs, PackedSequence):
        raise TypeError(f"inputs is {kind_of(inputs)}; give a tuple, as in (x,) or (x, lengths)")
    backend_names = [backends] if isinstance(backends, str) else [*backends]
    for name in backend_names:
        require_one_of("backends", name, captures.BACKENDS)
    if any(isinstance(part, PackedSequence) for part in inputs):
        raise TypeError(
            "inputs contains a PackedSequence; give (x, lengths), and a module that packs x itself"
        )
    title = type(model).__name__
    with evaluating(model), _jit.optimized_execution(False):  # it would only take time here
        example_sizes = _SizeRecorder(model, inputs)
        with quiet():
            if message := describe_difference(_run(model, inputs), _run(model, inputs)):
                reason = f"run again on the example, the model {message}"
                answers_by_question = dict.fromkeys(QUESTIONS, Answer(NOT_TRIED, reason))
                return StaticCheck(title, dict.fromkeys(backend_names, answers_by_question))
            example, trials, reasons_by_question = _try_readings(model, inputs)
            answers = {
                name: _answer_questions(name, model, example, trials, reasons_by_question)
                for name in backend_names
            }
            varying_size_line = _find_varying_size(model, example_sizes, trials)
    model_may_use_lengths = example_sizes.packs or not all(map(_is_float, leaves(inputs)))
    required = "lengths" if model_may_use_lengths else "batch"
    return StaticCheck(title, answers, varying_size_line, required)


# The example, and other inputs made from it.


_Lengths = tuple[int, ...]
_MaskForm = Callable[[Tensor], Tensor]

_MASK_FORMS: tuple[_MaskForm, ...] = (
    lambda mask: mask,
    lambda mask: 1 - mask,
    lambda mask: mask.T,
    lambda mask: 1 - mask.T,
)
"""The forms of a mask: of the real steps or of the padding, `(B, T)` or `(T, B)`.

Each function turns its form into the first, and the first into its form.
"""


def _length_readings(leaf: Any) -> Iterator[tuple[_Lengths, _MaskForm]]:
    """Yields the ways to read a leaf as lengths: the lengths, and their form."""
    if not isinstance(leaf, (Tensor, np.ndarray)) and not is_int_list(leaf):
        return
    values = torch.as_tensor(leaf).detach().cpu()
    numbers = values.double()
    if not numbers.any() or not numbers.equal(numbers.floor().abs()):
        return
    if values.dim() == 2:
        values = values.long()
    for mask_form in _MASK_FORMS if values.dim() == 2 else _MASK_FORMS[:1]:
        try:
            n = lengths_tensor(mask_form(values))
        except (TypeError, ValueError):
            continue
        if n.any():
            yield tuple(n.tolist()), mask_form


def _lengths_to_leaf(leaf: Any, mask_form: _MaskForm, lengths: Tensor, steps: int) -> object:
    """Returns other lengths in the form of a leaf: a tensor, an array, a list or a tuple."""
    leaf_tensor = torch.as_tensor(leaf)
    if leaf_tensor.dim() == 2:
        lengths = mask_form(real_mask(lengths, steps).long())
    values = lengths.to(leaf_tensor)
    if isinstance(leaf, Tensor):
        return values
    return values.numpy() if isinstance(leaf, np.ndarray) else type(leaf)(values.tolist())


def _is_float(leaf: object) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point()


@dataclass(frozen=True)
class _Example:
    """The example, and the meaning of its leaves.

    Attributes:
        inputs: the inputs.
        lengths: the lengths; empty if the axes of batch and time are not known.
        steps: number of time steps.
        mask_forms: the form of the lengths in each leaf that has them, by the number of the leaf.
        axes: for each tensor, by the number of the leaf, which axes are `"batch"` or `"time"`.
    """

    inputs: Sequence[Any]
    lengths: _Lengths = ()
    steps: int = 0
    mask_forms: Mapping[int, _MaskForm] = field(default_factory=dict)
    axes: Mapping[int, Mapping[int, str]] = field(default_factory=dict)

    def make_inputs(self, case: _Case, randomize_floats: bool = False) -> Any:
        """Returns a case's inputs. If `randomize_floats`, floating-point tensors are random."""
        leaf_numbers = count()
        lengths = torch.tensor(case.lengths.tolist())
        time_indices = torch.arange(case.steps) % self.steps
        indices = {"batch": torch.tensor(case.rows), "time": time_indices}

        def change_leaf(leaf: Any) -> object:
            leaf_number = next(leaf_numbers)
            if leaf_number in self.mask_forms:
                return _lengths_to_leaf(leaf, self.mask_forms[leaf_number], lengths, case.steps)
            for axis, name in self.axes.get(leaf_number, {}).items():
                leaf = leaf.index_select(axis, indices[name].to(leaf.device))
            return torch.randn_like(leaf) if randomize_floats and _is_float(leaf) else leaf

        return map_leaves(self.inputs, change_leaf)


@dataclass(frozen=True)
class _Case:
    """Other inputs: rows of the example, a number of time steps, and the lengths of these rows.

    Its question is one of `QUESTIONS`. If both the lengths and the steps are new, it is `"steps"`,
    and the case is skipped if the capture fails with new lengths alone.
    """

    question: str
    rows: list[int]
    steps: int
    lengths: IntArray
    changes_lengths_and_steps: bool = False

    def __str__(self) -> str:
        return f"lengths {reprlib.repr(self.lengths.tolist())} in {self.steps} time steps"


def _make_cases(example: _Example) -> Iterator[_Case]:
    """Yields the cases to try. For each question, those that most models accept come first."""
    if not example.lengths:
        return
    n = np.array(example.lengths)
    longest = max(example.lengths)
    longest_row = int(n.argmax())
    steps = example.steps
    all_rows = [*range(len(n))]
    if example.mask_forms:
        # The longest sequence keeps its length, because `pad_packed_sequence` may follow it.
        shorter_lengths = np.maximum(1, n - 1)
        shorter_lengths[longest_row] = longest
        yield _Case("lengths", all_rows, steps, shorter_lengths)
    for other_steps in (steps + 3, steps + 4, longest):
        if other_steps != steps:
            yield _Case("steps", all_rows, other_steps, n)
    for chosen_rows in ([longest_row], [longest_row, *all_rows]):
        yield _Case("batch", chosen_rows, steps, n[chosen_rows])
    if not example.mask_forms:
        return
    # Most of these keep the order of the lengths, for models that expect sorted ones.
    falling_lengths = np.maximum(1, longest - np.arange(len(n)))
    random_lengths = np.random.default_rng(0).integers(1, longest + 1, (2, len(n)))
    equal_lengths = np.full_like(n, steps)
    lengths_with_zero = np.append(n[:-1], 0)
    for other_lengths in (
        (n + 1) // 2,
        np.flip(n),
        equal_lengths,
        falling_lengths,
        *random_lengths,
        lengths_with_zero,
    ):
        yield _Case("lengths", all_rows, steps, other_lengths)
    yield _Case("steps", all_rows, steps + 3, n + 3, changes_lengths_and_steps=True)
    fewer_steps = max(1, steps - 1)
    yield _Case(
        "steps", all_rows, fewer_steps, np.minimum(n, fewer_steps), changes_lengths_and_steps=True
    )


def _example_readings(model: nn.Module, inputs: Sequence[Any]) -> Iterator[_Example]:
    """Yields the ways to read the inputs, most likely first, and finally without lengths."""
    numbered_leaves = [*enumerate(leaves(inputs))]
    tensors = {
        leaf_number: leaf for leaf_number, leaf in numbered_leaves if isinstance(leaf, Tensor)
    }
    batch_tensors = [leaf for leaf in tensors.values() if leaf.dim() > 1]
    batch_tensors.sort(key=_is_float, reverse=True)
    shapes = [leaf.shape for leaf in batch_tensors] or [torch.Size()]
    shape = shapes[0]
    readings: dict[_Lengths, dict[int, _MaskForm]] = {}
    # Floating-point tensors come last, because features may look like a mask.
    for leaf_number, leaf in sorted(
        numbered_leaves, key=lambda numbered_leaf: _is_float(numbered_leaf[1])
    ):
        for lengths, mask_form in _length_readings(leaf):
            readings.setdefault(lengths, {}).setdefault(leaf_number, mask_form)
    rnn_modules = [module for module in model.modules() if isinstance(module, nn.RNNBase)]
    if not readings and rnn_modules and len(shape) == 3:
        time_axis = int(rnn_modules[0].batch_first)
        readings[(shape[time_axis],) * shape[1 - time_axis]] = {}
    for lengths in sorted(readings, key=lambda lengths: max(lengths) not in shape):
        for shape in dict.fromkeys(shapes):
            for batch_axis, time_axis in permutations(range(len(shape)), 2):
                if shape[batch_axis] == len(lengths) and shape[time_axis] >= max(lengths):
                    axes = {}
                    for leaf_number, tensor in tensors.items():
                        axes[leaf_number] = _find_axes(tensor.shape, shape, batch_axis, time_axis)
                    yield _Example(inputs, lengths, shape[time_axis], readings[lengths], axes)
    yield _Example(inputs)


def _find_axes(
    shape: Sequence[int], reference_shape: Sequence[int], batch_axis: int, time_axis: int
) -> dict[int, str]:
    """Returns the axes of batch and time of a tensor, given those of a reference shape."""
    axes = {}
    if time_axis < len(shape) and shape[time_axis] == reference_shape[time_axis]:
        axes[time_axis] = "time"
    batch_size_axes = [
        axis for axis, size in enumerate(shape) if size == reference_shape[batch_axis]
    ]
    if batch_axis in batch_size_axes:
        axes[batch_axis] = "batch"
    elif len(batch_size_axes) == 1:
        axes[batch_size_axes[0]] = "batch"
    return axes


_Trial = tuple[_Case, Sequence[Any], list[Any]]
"""A case, its inputs, and the model's result."""

_Reading = tuple[_Example, list[_Trial], dict[str, str]]
"""An example, the cases that the model takes, and for each question the reason if none is left."""


def _try_readings(model: nn.Module, inputs: Sequence[Any]) -> _Reading:
    """Returns the trials of the likeliest reading of the inputs that the model takes.

    If other inputs can be read as lengths, too, trials with other values of these follow.
    """
    best_reading_by_lengths: dict[_Lengths, _Reading] = {}
    for example in _example_readings(model, inputs):
        reading = _run_cases(model, example)
        previous_best = best_reading_by_lengths.setdefault(example.lengths, reading)
        best_reading_by_lengths[example.lengths] = max(
            previous_best, reading, key=lambda candidate: len(candidate[1])
        )
    (example, trials, reasons), *other_readings = sorted(
        best_reading_by_lengths.values(), key=lambda candidate: -len(candidate[1])
    )
    for _, other_trials, _ in other_readings:
        trials += [
            trial
            for trial in other_trials
            if trial[0].question == "lengths" or trial[0].changes_lengths_and_steps
        ]
    return example, trials, reasons


def _run_cases(model: nn.Module, example: _Example) -> _Reading:
    """Runs the model on all cases."""
    reasons = dict.fromkeys(
        QUESTIONS,
        "the example allows no others"
        if example.lengths
        else "the axes of batch and time are not known",
    )
    if not example.mask_forms:
        reasons["lengths"] = "no input was recognised as lengths"
    trials = []
    for i, case in enumerate(_make_cases(example)):
        if (case.steps, tuple(case.lengths)) == (example.steps, example.lengths):
            continue
        inputs = example.make_inputs(case, randomize_floats=i % 2 == 1)
        try:
            expected = _run(model, inputs)
        except Exception as error:
            if not case.changes_lengths_and_steps:
                reasons[case.question] = (
                    f"the model itself refuses {case}: {short_error_text(error)}"
                )
            continue
        has_nan = any(torch.as_tensor(leaf).isnan().any() for leaf in expected)
        if 0 in case.lengths and has_nan:
            continue  # the model takes no empty sequences
        trials.append((case, inputs, expected))
    return example, trials, reasons


# Running and judging.


def _run(model: Callable[..., object], inputs: Sequence[Any]) -> list[Any]:
    """Runs a model or a capture on copies of the inputs, from the same random state each time."""
    torch.manual_seed(0)
    return captures.numeric_leaves(model(*_copy_tensors(inputs)))


def _copy_tensors(inputs: Sequence[Any]) -> Any:
    return map_leaves(inputs, lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf)


def _answer_questions(
    backend: str, model: nn.Module, example: _Example, trials: list[_Trial], reasons: dict[str, str]
) -> dict[str, Answer]:
    """Captures the model on the example, and returns the answer to each question."""
    try:
        with warnings.catch_warnings(record=True) as caught_warnings:
            warnings.simplefilter("always")
            torch.manual_seed(0)
            capture = captures.capture_model(
                backend, model, _copy_tensors(example.inputs), example.axes
            )
    except ImportError as error:
        return dict.fromkeys(QUESTIONS, Answer(NOT_TRIED, str(error)))
    except Exception as error:
        return dict.fromkeys(QUESTIONS, _backend_refusal(error))
    location_and_remedy = ("", "")
    for warning in reversed(caught_warnings):
        if issubclass(warning.category, _jit.TracerWarning) and _is_user_file(warning.filename):
            location_and_remedy = (_describe_line(warning.filename, warning.lineno), _TENSOR_REMEDY)
    tolerance = 1e-4 if "onnx" in backend else 1e-5
    answers = {question: Answer(NOT_TRIED, reason) for question, reason in reasons.items()}
    for case, inputs, expected in trials:
        if case.changes_lengths_and_steps and answers["lengths"].mark in (WRONG, REFUSED):
            continue
        answer = Answer(RIGHT)
        try:
            if message := describe_difference(expected, _run(capture, inputs), tolerance):
                answer = Answer(WRONG, f"for {case}, it {message}", *location_and_remedy)
        except Exception as error:
            answer = Answer(
                REFUSED, f"for {case}, it raises {short_error_text(error)}", *location_and_remedy
            )
        # Of two equally serious answers, the first is kept.
        answers[case.question] = max(answers[case.question], answer, key=_severity)
    return answers


def _backend_refusal(error: Exception) -> Answer:
    """Returns the answer of a backend that rejects the model, with the line that it names."""
    text = "".join(traceback.format_exception(error))
    code_locations = re.findall(r'File "([^"]+)", line (\d+)', text)
    user_locations = [
        _describe_line(path, int(line)) for path, line in code_locations if _is_user_file(path)
    ]
    remedy = _TENSOR_REMEDY if re.search("[Dd]ata-dependent", text) else ""
    if "nn/utils/rnn.py" in text or "pack_padded_sequence or" in text:
        remedy = _OPERATOR_REMEDY
    location = user_locations[-1] if user_locations else ""
    return Answer(REFUSED, f"it raises {short_error_text(error)}", location, remedy)


def _is_user_file(path: str) -> bool:
    """Returns whether a file is the user's, or our file of example models."""
    return path.endswith("packviz/check/models.py") or not path.startswith(_LIBRARY_FOLDERS)


def _describe_line(path: str, line: int) -> str:
    """Describes a line of code, as in `model.py, line 7: return x`. A notebook has no name."""
    name = "" if "ipykernel" in path else f"{os.path.basename(path)}, "
    return f"{name}line {line}: {linecache.getline(path, line).strip()}"


# Sizes.


class _SizeRecorder(TorchFunctionMode):
    """A record of the sizes that torch functions take and return, outside RNNs and packing.

    Attributes:
        sizes: the sizes by the line of the model's code.
        packs: whether the model packs.
    """

    def __init__(self, model: nn.Module, inputs: Sequence[Any]) -> None:
        super().__init__()
        self.sizes: dict[str, list[tuple[int, ...]]] = {}
        self.packs = False
        with self:
            outputs = _run(model, inputs)
        self.sizes["the model's result"] = [np.shape(leaf) for leaf in outputs]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        module_names = ""
        for frame, _ in traceback.walk_stack(sys._getframe(1)):
            path = frame.f_code.co_filename
            if _is_user_file(path):
                break
            module_names += f"{frame.f_globals.get('__name__')} "
        self.packs |= "nn.utils.rnn" in module_names or "packviz.ops" in module_names
        if not re.search(r"\.rnn |packviz\.ops", module_names):
            sizes = self.sizes.setdefault(_describe_line(path, frame.f_lineno), [])
            sizes += [leaf.shape for leaf in leaves([args, result]) if isinstance(leaf, Tensor)]
        return result


def _find_varying_size(
    model: nn.Module, example_sizes: _SizeRecorder, trials: Sequence[_Trial]
) -> str:
    """Names the first line where a size depends on the lengths; empty if there is none."""
    if not trials or trials[0][0].question != "lengths":
        return ""
    other_sizes = _SizeRecorder(model, trials[0][1])
    for line, sizes in example_sizes.sizes.items():
        if other_sizes.sizes.get(line, sizes) != sizes:
            return line
    return ""
