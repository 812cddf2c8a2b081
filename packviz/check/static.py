"""Which of torch's compilers take a network that packs, and whether they are right: judged by trying.

Each backend that is asked for captures the network on the reader's example. What was captured, and the network itself,
then run on other lengths of the same shape, and are compared. Where they differ, two recorded runs show the lines where
a value of the lengths becomes a constant, a shape or a branch.
"""

from __future__ import annotations

import inspect
import math
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os.path import isfile
from textwrap import dedent, wrap
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.rnn import PackedSequence

from packviz.check.captures import BACKENDS, Captured, judged
from packviz.check.findings import LEVELS, Finding, Findings
from packviz.check.recorder import SIZES, Event, Recorder, record, site, together
from packviz.check.trials import Reading, Runner, Trial, Trials, difference, is_list, leaves, readings, trials
from packviz.core.frames import is_readers
from packviz.core.validation import one_of
from packviz.draw import listing
from packviz.draw.sheet import Sheet
from packviz.draw.text import count, table

_MOST_LINES = 24  # of code that is shown


@dataclass(frozen=True, repr=False)
class StaticCheck(Findings):
    """The findings of `check_static`, and what they rest on.

    Attributes:
        backends: what came of each backend that was asked for.
        notes: which inputs hold lengths, what was compared, and what was not tried.
        code: the lines of the network's `forward`, as in `packviz.draw.listing`; empty if it is long or cannot be read.
    """

    backends: tuple[Captured, ...] = ()
    notes: tuple[str, ...] = ()
    code: tuple[listing.Line, ...] = ()

    @property
    def verdict(self) -> str:
        """What each backend makes of the network, in a sentence."""
        if self.undecided:
            return f"Undecided: {self[self.rules.index('undecided')].message}"
        about = f"{count(n, 'warning')} about compilers that were not run." if (n := len(self.of("warning"))) else ""
        return " ".join([*map(_sentence, self.backends), about]).strip()

    @property
    def lines(self) -> list[str]:
        """The table and the notes."""
        return [
            *table(self.rows, "<  <"),
            *(line for one in self.notes for line in wrap(one, 108, subsequent_indent="  ")),
        ]

    @property
    def rows(self) -> list[list[str]]:
        """The table: each backend, whether it takes the network, whether results are the same, and if not, where."""
        head = ["backend", "takes it", "same", "difference", "shown by"]
        return [head, *(one.cells for one in self.backends)] if self.backends else []

    def to_text(self) -> str:
        """The table and the notes, every finding, and the code."""
        parts = [self.headline, *self.lines, *(one.to_text() for one in self)]
        return "\n".join([*parts, *(["", listing.describe(self.code)] if self.code else [])])

    def pictures(self, theme: str) -> list[Sheet]:
        """The code, the table, and the findings below."""
        sheet = Sheet(theme)
        sheet.paragraph(8, 12, self.lines)
        return [*([listing.draw(self.code, theme)] if self.code else []), sheet, *super().pictures(theme)]


def check_static(
    module: nn.Module,
    example_inputs: Sequence[Any] | Mapping[str, Any],
    backends: str | Iterable[str] = ("trace",),
    *,
    dynamic: bool = False,
    lengths_at: str | Iterable[str] | None = None,
) -> StaticCheck:
    """Reports which backends capture a network rightly for other lengths, and which of its lines keep a length.

    Runs the network in eval mode and without gradients, on copies of the inputs: on the example, and on other lengths
    of the same shape (another order, all equal, all of 1, random). What each backend captured on the example must give
    what the network gives, on all of them. Afterwards modes, attributes, buffers and the random state of torch, numpy
    and Python are what they were. Not undone: what `forward` does to other Python objects.

    Args:
        module: the network: any module, also a scripted or a quantized one.
        example_inputs: a tuple of its positional arguments, or a dict of keyword arguments.
        backends: any of `"trace"` (`torch.jit.trace`), `"export"` (`torch.export`), `"compile"`
            (`torch.compile(fullgraph=True)`), `"onnx"` and `"onnx_legacy"` (`torch.onnx.export` with and without
            `dynamo=True`, run by ONNX Runtime). A trace takes a fraction of a second, the others up to several.
        dynamic: whether the batch size and the number of time steps may vary, too.
        lengths_at: the inputs that hold lengths, if they are not found: `"lengths"`, or a path such as
            `"batch['lengths']"`; empty if no input does. By default, whatever can be read as lengths: whole numbers,
            parts of T, masks, token ids padded with 0 or 1, packed sequences.

    Returns:
        Findings. `ok` is True only if every backend that was asked for took the network and gave the same. The errors
        are named after the backend. `constant` is a further line that keeps a length. `undecided`: no other lengths
        could be tried. The warnings are about one compiler that was not run: `size`, `total_length`, `unsorted` and
        `padding_value`.

    Raises:
        TypeError: `module` is not a module, or `example_inputs` neither a tuple nor a dict.
        ValueError: the inputs do not fit the network's `forward`, a backend or a place does not exist, or the network
            cannot be run: it is a generator, or a lazy module without sizes.
        Exception: whatever the network raises on the example.

    Examples:
        >>> import packviz as pv, torch
        >>> checked = pv.check_static(torch.nn.LSTM(3, 4), [torch.zeros(5, 2, 3)])
        >>> checked.ok
        True
    """
    asked = [backends] if isinstance(backends, str) else [*backends]
    for backend in asked:
        one_of("backends", backend, BACKENDS)
    bound = _bound(module, example_inputs)
    run, inputs = Runner(module, bound.signature), dict(bound.arguments)
    first = record(run, inputs)
    # An input that can be read in several forms is most likely read as what the network packs with.
    found = sorted(_named(inputs, lengths_at), key=lambda one: sorted(one.lengths) not in first.packed)
    tested = trials(run, inputs, found, dynamic)
    seen = [first, *(record(run, one.inputs) for one in tested.tried[1:3])]
    errors = _undecided(run, tested, seen, lengths_at)
    rows = [] if errors else [judged(one, run, tested.tried, tested.varied, dynamic) for one in asked]
    errors += [one for row in rows if not row.same for one in _errors(row, run, tested.tried, first)]
    others: dict[tuple[str, str], Finding] = {}
    for one in _of_other_compilers(seen):
        others.setdefault((one.rule, one.where), one)
    shown = [*errors, *others.values()]
    notes = _notes(tested, found, asked, rows, dynamic)
    return StaticCheck(type(module).__name__, tuple(shown), tuple(rows), tuple(notes), _listing(module, shown))


def _bound(module: Any, example_inputs: Any) -> inspect.BoundArguments:
    """The arguments of a call, once they fit."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"module is a {type(module).__name__}; give the nn.Module itself")
    name = type(module).__name__
    if isinstance(example_inputs, (Tensor, PackedSequence)) or not isinstance(example_inputs, (tuple, list, Mapping)):
        kind = type(example_inputs).__name__
        raise TypeError(f"example_inputs is a {kind}; give a tuple of the inputs, as in (x, lengths), or a dict")
    kinds = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    if any(is_one(module.forward) for is_one in kinds):
        raise ValueError(f"{name}.forward is a generator or async: a call runs nothing; use return")
    if any(is_lazy(one) for one in [*module.parameters(), *module.buffers()]):
        raise ValueError(f"{name} has lazy modules without sizes; run it once on a batch, then check it")
    named = dict(example_inputs) if isinstance(example_inputs, Mapping) else {}
    try:
        return _signature(module).bind(*(() if named else example_inputs), **named)
    except TypeError as error:
        raise ValueError(f"example_inputs do not fit {name}.forward: {error}") from None


def _signature(module: Any) -> inspect.Signature:
    try:
        return inspect.signature(module.forward)
    except ValueError:  # what was traced before has only a schema
        names = [one.name for one in module.forward.schema.arguments[1:]]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(name, kind) for name in names])


def _named(inputs: Mapping[str, Any], lengths_at: str | Iterable[str] | None) -> list[Reading]:
    """The ways to read lengths in the inputs, at these places if they are named."""
    found = readings(inputs)
    if lengths_at is None:
        return found
    places = [lengths_at] if isinstance(lengths_at, str) else [*lengths_at]
    for place in places:
        if place not in {one.name for one in found}:
            names = ", ".join(name for name, _ in leaves(inputs))
            raise ValueError(f"lengths_at names {place}, where no lengths can be read; the inputs are {names}")
    return [one for one in found if one.name in places]


def _undecided(run: Runner, tested: Trials, seen: list[Recorder], lengths_at: Any) -> list[Finding]:
    """The reason, if nothing can be concluded about other lengths."""
    example, *others = tested.tried
    names, fix = leaves(example.inputs), "Name the input that holds the lengths, as in lengths_at='lengths'."
    closed = [f"{name} is a {type(leaf).__name__}, which" for name, leaf in names if _is_closed(leaf)]
    if difference(example.outputs, run.outputs(example.inputs), 1e-5)[0]:
        message, fix = "The network gives another result each time, so nothing can be compared.", "Make it repeatable."
    elif (packed := seen[0].packed) and all(record(run, one.inputs).packed == packed for one in others):
        message = "The network packs, and no input that was varied changed the lengths that it packs with."
    elif closed and lengths_at is None:
        message, fix = f"{closed[0]} may hold lengths, and cannot be varied.", "Give the lengths as a tensor."
    elif tested.refused and not tested.varied:
        trial, error = next(iter(tested.refused.items()))
        message = f"The network takes no other lengths: for {trial} it raises {type(error).__name__}: {error}"[:300]
    elif not tested.varied and lengths_at is None and any(_may_hold_lengths(leaf) for _, leaf in names):
        message = "No lengths were recognised among the inputs, so no other lengths were tried."
    else:
        return []
    return [Finding("error", "undecided", message, fix=fix)]


def _is_closed(leaf: Any) -> bool:
    """Whether it is an object that may hold lengths where nobody looks."""
    known = (Tensor, np.ndarray, int, float, complex, str, bytes, torch.dtype, torch.device, nn.Module, type)
    return not (leaf is None or isinstance(leaf, known) or is_list(leaf) or leaf in ([], ()) or callable(leaf))


def _may_hold_lengths(leaf: Any) -> bool:
    """Whether it is anything but a batch of floating-point numbers."""
    if isinstance(leaf, (Tensor, np.ndarray)):
        return leaf.ndim == 1 or "float" not in str(leaf.dtype)
    return is_list(leaf) or type(leaf) is int


# What the backends that were asked for get wrong.

_NAMES = {"trace": "torch.jit.trace", "export": "torch.export", "compile": "torch.compile(fullgraph=True)",
          "onnx": "torch.onnx.export(dynamo=True)", "onnx_legacy": "torch.onnx.export(dynamo=False)"}  # fmt: skip
_OPERATOR = "Make pack → RNN → pad one operator: pv.Ragged(rnn)."
_TENSORS = "Compute with tensors (a mask, torch.where), or do this outside of the network."


def _sentence(row: Captured) -> str:
    if row.takes is None:
        return f"{_NAMES[row.backend]} was not tried: {row.message}."
    if not row.takes:
        return f"{_NAMES[row.backend]} refuses it."
    return f"{_NAMES[row.backend]} takes it, and {'gives the same' if row.same else f'is wrong for {row.trial}'}."


def _errors(row: Captured, run: Runner, tried: list[Trial], first: Recorder) -> Iterator[Finding]:
    """What went wrong in one backend: an error with its first line, and one for each further line."""
    name, where = _NAMES[row.backend], _line_of(row.error)
    if row.takes is None:
        yield Finding("error", row.backend, f"{name} was not tried here: {row.message}.")
    elif not row.takes:
        yield Finding("error", row.backend, f"{name} refuses the network: {row.message}", where,
                      _TENSORS if row.backend == "trace" else _OPERATOR)  # fmt: skip
    else:
        trial = next(one for one in tried if one.name == row.trial)
        message = f"{name} takes the example, {tried[0].name}, and {row.message} for {row.trial}."
        kept: dict[str, str] = {}
        for other in [trial, *tried]:  # what `.data` keeps is read nowhere: then other lengths may show a line
            for one, two in [] if kept else _kept(first, record(run, other.inputs)):
                read = f"what {one.name.strip('_')}() reads: {one.value:.40}, and {two.value:.40} for {other.name}"
                kept.setdefault(one.where, f"It keeps {read}.")
        line, text = next(iter(kept.items()), (where, ""))
        yield Finding("error", row.backend, f"{message} {text}".strip(), line, _TENSORS)
        for line, text in [*kept.items()][1:]:
            yield Finding("error", "constant", text, line, _TENSORS)


def _kept(first: Recorder, second: Recorder) -> list[tuple[Event, Event]]:
    """What Python reads in both runs, and not the same in both: values, or else the last size, before they part."""
    read = [pair for pair in together(first, second) if pair[0].value != pair[1].value]
    direct = [pair for pair in read if pair[0].direct]
    values = [[pair for pair in some if pair[0].name not in SIZES] for some in (direct, read)]
    return [pair for pair in values[0] or values[1] or direct[-1:] if pair[0].where]


def _line_of(error: BaseException | None) -> str:
    """The innermost line of the reader's code that an error names, in its traceback or in its text."""
    frames = traceback.walk_tb(error.__traceback__ if error else None)
    theirs = (
        (one.f_code.co_filename, line, str(one.f_globals.get("__name__"))) for one, line in frames if is_readers(one)
    )
    lines = [site(*one) for one in theirs]
    named = re.findall(r'File "([^"]+)", line (\d+)', str(error))
    lines += [site(path, int(line)) for path, line in named if isfile(path) and not re.search("/(torch|ops)/", path)]
    return lines[-1] if lines else ""


# What other compilers do, which are not run here.

_NEURON = "A compiler with fixed shapes (PyTorch Neuron's LSTM guide for Inf1, archived)"
_LEGACY = "The legacy ONNX exporter (dynamo=False)"


def _habits(event: Event) -> Iterator[tuple[str, str, str]]:
    """What other compilers do with a call: the rule, the message and the fix."""
    given = event.arguments
    if event.name == "pad_packed_sequence":
        if (value := given["padding_value"]) != 0:
            shown = repr(value) if math.isfinite(value) else f'float("{value}")'
            mask = "output.size(1))" if given["batch_first"] else "output.size(0)).T"
            message = f"{_LEGACY} ignores padding_value={shown} and pads with 0 (pytorch#28423), without an error."
            masked = f"output.masked_fill(~pv.real_mask(lengths, {mask}[..., None], {shown})"
            fix = f"Pad with 0, and mask by the lengths: {masked}."
            yield "padding_value", message, fix
        if given["total_length"] is None:
            message = "Without total_length it pads to max(lengths), so the size depends on the lengths."
            fix = "Pass total_length, the time steps of the padded input: total_length=x.size(0), or x.size(1)."
            yield "total_length", f"{message} {_LEGACY} pads to all time steps instead, without an error.", fix
    elif event.name.startswith("pack_") and not given["enforce_sorted"]:
        fix = "Sort the batch before the network, longest first, and pass enforce_sorted=True."
        yield "unsorted", f"{_NEURON} leaves the sort of enforce_sorted=False to the CPU.", fix
    elif event.name in ("sort", "argsort"):
        yield "unsorted", f"{_NEURON} leaves a sort to the CPU.", "Sort the batch before it is given to the network."


def _of_other_compilers(seen: list[Recorder]) -> Iterator[Finding]:
    """What other compilers would do with the calls of the first run, and with sizes that differ in the others."""
    for event in seen[0].events:
        for rule, message, fix in _habits(event):
            yield Finding("warning", rule, message, event.where, fix)
    for other in seen[1:]:
        for one, two in together(seen[0], other):
            unfixed = one.name == "pad_packed_sequence" and one.arguments["total_length"] is None
            if one.shapes == two.shapes or (one.in_rnn and not unfixed):
                continue
            if not one.in_rnn:
                a, b = next(pair for pair in zip(one.shapes, two.shapes, strict=False) if pair[0] != pair[1])
                message = f"The size of what {one.name} takes or gives depends on the lengths: {a}, or {b}."
                fix = "Pad first, by pad_packed_sequence with a total_length, and mask the padding."
                yield Finding("warning", "size", f"{message} {_NEURON} refuses that.", one.where, fix)
            break  # all sizes that follow depend on it


def _notes(
    tested: Trials, found: list[Reading], asked: list[str], rows: list[Captured], dynamic: bool
) -> Iterator[str]:
    varied = {(one.name, one.form) for one in tested.varied}
    yield f"lengths: {'; '.join(map(str, tested.varied)) or 'none found'}"
    if also := [str(one) for one in found if (one.name, one.form) not in varied]:
        yield f"may be lengths as well, not tried: {'; '.join(also)}"
    names = [one.name for one in tested.tried]
    both = [name for name in names if name.startswith("other numbers") and " and " in name]
    yield f"compared on: {'; '.join(name for name in names if name not in both)}{'; both together' if both else ''}"
    if tested.refused:
        error = next(iter(tested.refused.values()))
        yield f"refused by the network itself: {'; '.join(tested.refused)} ({type(error).__name__})"
    left = [
        name
        for name in BACKENDS
        if name not in asked or name not in {one.backend for one in rows if one.takes is not None}
    ]
    yield f"not tried: {', '.join([*left, *([] if dynamic else ['other sizes of batch and time'])])}"


# Drawing.


def _listing(module: nn.Module, found: Iterable[Finding]) -> tuple[listing.Line, ...]:
    """Returns the lines of a short `forward` that can be read, those with a finding marked."""
    try:
        forward = inspect.unwrap(type(module).forward)
        lines, first = inspect.getsourcelines(forward)
        path, name = forward.__code__.co_filename, str(forward.__globals__.get("__name__"))
    except (OSError, TypeError, AttributeError):
        return ()
    if len(lines) > _MOST_LINES:
        return ()
    marks: dict[str, str] = {}
    for one in found:  # errors come first
        marks.setdefault(one.where, one.level)
    shown = []
    for number, line in enumerate(dedent("".join(lines)).rstrip().splitlines(), first):
        level = marks.get(site(path, number, name), "")
        shown.append((number, line, LEVELS.get(level, ""), level == "error"))
    return tuple(shown)
