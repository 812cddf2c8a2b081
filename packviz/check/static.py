"""Tries torch's compilers on a network that packs, and reports which accept it and give the right
results.

Each backend captures the network on the user's example. The captured network and the original then
run on inputs of the same shape with other lengths, and their results are compared. If the results
differ, two recorded runs show the lines where a value that depends on the lengths becomes a
constant, a shape or a branch.
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
from packviz.check.findings import LEVELS, UNDECIDED, Finding, Findings
from packviz.check.recorder import SIZES, Event, Recorder, record, site, together
from packviz.check.trials import (
    Reading,
    Runner,
    Trials,
    difference,
    is_list,
    leaves,
    readings,
    trials,
)
from packviz.core.frames import is_readers
from packviz.core.validation import kind_of, one_of
from packviz.draw import listing
from packviz.draw.sheet import Sheet
from packviz.draw.text import count, table

_EMPTY = "empty"
_MOST_LINES = 24  # a longer `forward` is not shown


@dataclass(frozen=True, repr=False)
class StaticCheck(Findings):
    """The findings of `check_static`, and the results on which they are based.

    Attributes:
        backends: the result of each backend that was requested.
        notes: remarks about which inputs contain lengths, what was compared, and what was not
            tried.
        code: the lines of the network's `forward`, for `packviz.draw.listing`; empty if `forward`
            is long or cannot be read.
    """

    backends: tuple[Captured, ...] = ()
    notes: tuple[str, ...] = ()
    code: tuple[listing.Line, ...] = ()

    @property
    def verdict(self) -> str:
        """A sentence about each backend and one about the warnings, or the reason why nothing can be concluded."""
        if self.undecided:
            return f"Undecided: {self[self.rules.index(UNDECIDED)].message}"
        n = sum(one.rule != _EMPTY for one in self.of("warning"))
        about = f"See {count(n, 'warning')} about untried compilers." if n else ""
        return " ".join([*map(_sentence, self.backends), about]).strip()

    @property
    def lines(self) -> list[str]:
        """The table and the notes, line by line."""
        notes = (line for one in self.notes for line in wrap(one, 108, subsequent_indent="  "))
        return [*table(self.rows, "<  <"), *notes]

    @property
    def rows(self) -> list[list[str]]:
        """The rows of the table: whether each backend accepts the network, and on which input its results differ."""
        head = ["backend", "accepts it", "same", "difference", "shown by"]
        return [head, *(one.cells for one in self.backends)] if self.backends else []

    def to_text(self) -> str:
        """Returns the table and the notes, every finding, and the code."""
        parts = [self.headline, *self.lines, *(one.to_text() for one in self)]
        return "\n".join([*parts, *(["", listing.describe(self.code)] if self.code else [])])

    def pictures(self, theme: str) -> list[Sheet]:
        """Draws the code, the table and the findings, one below the other."""
        sheet = Sheet(theme)
        sheet.paragraph(8, 12, self.lines)
        return [
            *([listing.draw(self.code, theme)] if self.code else []),
            sheet,
            *super().pictures(theme),
        ]


def check_static(
    module: nn.Module,
    example_inputs: Sequence[Any] | Mapping[str, Any],
    backends: str | Iterable[str] = ("trace",),
    *,
    dynamic: bool = False,
    lengths_at: str | Iterable[str] | None = None,
) -> StaticCheck:
    """Reports which backends capture a network correctly for other lengths, and which lines make a
    length constant.

    `check_static` runs the network in eval mode and without gradients, on copies of the inputs. It
    tries the example,
    and then other lengths in inputs of the same shape: the example's lengths in a different order,
    equal lengths, lengths of 1, random lengths, and, unless the network is on a GPU, an empty
    sequence. It also tries other floating-point numbers. Inputs that the network itself rejects do
    not count. A backend passes if, on all others, the network that it captured on the example gives
    the same results as the original. Afterwards, `check_static` restores modes, attributes, buffers
    and the random state of torch, numpy and Python. It does not undo changes that `forward` makes
    to other Python objects.

    Args:
        module: any network, including a scripted or a quantised one.
        example_inputs: a tuple or list of the network's positional arguments, or a dict of its
            keyword arguments.
        backends: any of `"trace"` (`torch.jit.trace`, with `strict=False` so that it accepts dicts
            as outputs), `"export"` (`torch.export`), `"compile"` (`torch.compile(fullgraph=True)`),
            `"onnx"` and `"onnx_legacy"` (`torch.onnx.export` with and without `dynamo=True`, run by
            ONNX Runtime). A trace usually takes a fraction of a second, and each of the others up
            to several seconds. A trace and an ONNX file have only tensors as inputs, so they keep
            any other argument, such as a flag, from the example.
        dynamic: whether the batch size and the number of time steps may vary, too. The lengths show
            which axes these are, so without lengths, no other sizes are tried, and the notes say
            so.
        lengths_at: the names of the inputs that contain lengths, in case `check_static` does not
            find them, such as `"lengths"` or `"batch['lengths']"`. Pass an empty list if no input
            contains lengths. By default,
            `check_static` varies every input that can be read as lengths: whole numbers, fractions
            of `T`, masks, ids of tokens, or of the characters of words, padded with 0 or 1, and
            packed sequences.

    Returns:
        The findings, whose `ok` is True only if every requested backend accepted the network and
        gave the same results,
        apart from an empty sequence for which it raised an error. Each error has a `rule`: the name
        of a backend that rejected the network, gave different results or could not be tried;
        `constant` for each further line that makes a length constant; or `undecided` if nothing can
        be concluded about other lengths. A warning with the rule `empty` says that the network
        accepts an empty sequence, but what a backend captured raises an error for it. Warnings with
        the rules `size`, `total_length`, `unsorted` and `padding_value` are about compilers that
        were not run.

    Raises:
        TypeError: `module` is not a module, or `example_inputs` is not a tuple, a list or a dict.
        ValueError: the inputs do not fit the network's `forward`; a backend does not exist; an
            input named in `lengths_at` does not exist or cannot be read as lengths; or the network
            cannot be run, because its `forward` is a generator or a coroutine, or because it has
            lazy modules without sizes.
        Exception: any error that the network raises on the example.

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
    # If an input can be read in several forms, the most likely form gives the lengths that the
    # network packs with.
    found = sorted(
        _named(inputs, lengths_at), key=lambda one: sorted(one.lengths) not in first.packed
    )
    tested = trials(run, inputs, found, dynamic)
    seen = [first, *(record(run, one.inputs) for one in tested.tried[1:3])]
    errors = [*_undecided(run, tested, seen, lengths_at)]
    rows = (
        [] if errors else [judged(one, run, tested.tried, tested.varied, dynamic) for one in asked]
    )
    errors += [one for row in rows for one in _of_backend(row, run, tested, first)]
    warnings: dict[tuple[str, str], Finding] = {}
    for one in _of_other_compilers(seen):
        warnings.setdefault((one.rule, one.where), one)
    shown = [*errors, *warnings.values()]
    notes = _notes(tested, found, rows)
    return StaticCheck(
        type(module).__name__, tuple(shown), tuple(rows), tuple(notes), _listing(module, shown)
    )


def _bound(module: Any, example_inputs: Any) -> inspect.BoundArguments:
    """Binds the example inputs to the parameters of the network's `forward`, and checks that they fit."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"module is {kind_of(module)}; give the nn.Module itself")
    name = type(module).__name__
    if isinstance(example_inputs, (Tensor, PackedSequence)) or not isinstance(
        example_inputs, (tuple, list, Mapping)
    ):
        kind = kind_of(example_inputs)
        raise TypeError(
            f"example_inputs is {kind}; give a tuple of the inputs, as in (x, lengths), or a dict"
        )
    kinds = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    if any(is_one(module.forward) for is_one in kinds):
        raise ValueError(
            f"{name}.forward is a generator or async, so a call runs nothing; use return"
        )
    if any(is_lazy(one) for one in [*module.parameters(), *module.buffers()]):
        raise ValueError(
            f"{name} has lazy modules without sizes; run it once on a batch, then check it"
        )
    named = example_inputs if isinstance(example_inputs, Mapping) else {}
    try:
        return _signature(module).bind(*(() if named else example_inputs), **named)
    except TypeError as error:
        raise ValueError(f"example_inputs do not fit {name}.forward: {error}") from None


def _signature(module: Any) -> inspect.Signature:
    try:
        return inspect.signature(module.forward)
    except ValueError:  # a traced module has only a schema
        names = [one.name for one in module.forward.schema.arguments[1:]]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(name, kind) for name in names])


def _named(inputs: Mapping[str, Any], lengths_at: str | Iterable[str] | None) -> list[Reading]:
    """Returns the ways to read inputs as lengths: only the inputs that `lengths_at` names, or all if that is `None`."""
    found = readings(inputs)
    if lengths_at is None:
        return found
    places = [lengths_at] if isinstance(lengths_at, str) else [*lengths_at]
    for place in places:
        if place not in {one.name for one in found}:
            names = ", ".join(name for name, _ in leaves(inputs))
            raise ValueError(
                f"lengths_at names {place}, where no lengths can be read; the inputs are {names}"
            )
    return [one for one in found if one.name in places]


def _undecided(
    run: Runner, tested: Trials, seen: list[Recorder], lengths_at: Any
) -> Iterator[Finding]:
    """Yields a finding with the reason why nothing can be concluded about other lengths, if there is one."""
    example, *others = tested.tried
    names, fix = (
        leaves(example.inputs),
        "Make the lengths an input of their own, as a tensor of whole numbers.",
    )
    closed = [f"{name} is {kind_of(leaf)}, which" for name, leaf in names if _is_closed(leaf)]
    if difference(example.outputs, run.outputs(example.inputs), 1e-5)[0]:
        message, fix = (
            "Each run gives a different result, so nothing can be compared.",
            "Make it repeatable.",
        )
    elif (packed := seen[0].packed) and all(
        record(run, one.inputs).packed == packed for one in others
    ):
        message = "The network packs, but no input that was varied changed the lengths that it packs with."
    elif closed and lengths_at is None:
        message, fix = (
            f"{closed[0]} may contain lengths but cannot be varied.",
            "Give the lengths as a tensor.",
        )
    elif tested.refused and not tested.varied:
        trial, error = next(iter(tested.refused.items()))
        message = f"The network accepts no other lengths: for {trial} it raises {type(error).__name__}: {error}"[
            :300
        ]
        fix = "Name the inputs that contain lengths, as in lengths_at='lengths'."
    elif (
        not tested.varied
        and lengths_at is None
        and any(_may_hold_lengths(leaf) for _, leaf in names)
    ):
        message = "No lengths were recognised among the inputs, so no other lengths were tried."
        fix = f"{fix} If no input contains lengths, pass lengths_at=()."
    else:
        return
    yield Finding("error", UNDECIDED, message, fix=fix)


def _is_closed(leaf: Any) -> bool:
    """Returns whether a leaf is an object that may contain lengths but is not searched for them."""
    known = (
        Tensor,
        np.ndarray,
        int,
        float,
        complex,
        str,
        bytes,
        torch.dtype,
        torch.device,
        nn.Module,
        type,
    )
    return not (
        leaf is None
        or isinstance(leaf, known)
        or is_list(leaf)
        or leaf in ([], ())
        or callable(leaf)
    )


def _may_hold_lengths(leaf: Any) -> bool:
    """Returns whether a leaf may contain lengths: whole numbers or booleans, or a tensor or array with one axis."""
    if isinstance(leaf, (Tensor, np.ndarray)):
        return leaf.ndim == 1 or "float" not in str(leaf.dtype)
    return is_list(leaf) or type(leaf) is int


# Errors of the backends that were requested.

_NAMES = {"trace": "torch.jit.trace", "export": "torch.export", "compile": "torch.compile(fullgraph=True)",
          "onnx": "torch.onnx.export(dynamo=True)", "onnx_legacy": "torch.onnx.export(dynamo=False)"}  # fmt: skip
_OPERATOR = "Turn pack → RNN → pad into one operator with pv.Ragged(rnn)."
_TENSORS = "Compute with tensors (a mask, torch.where), or do this outside the network."


def _sentence(row: Captured) -> str:
    name, does = (
        _NAMES[row.backend],
        "and gives the same results" if row.same else f"but is wrong for {row.trial}",
    )
    does += f", but raises an error for {row.trial}" if row.same and row.error else ""
    if row.takes is None:
        return f"{name} was not tried: {row.message}."
    return f"{name} accepts the network {does}." if row.takes else f"{name} rejects the network."


def _of_backend(row: Captured, run: Runner, tested: Trials, first: Recorder) -> Iterator[Finding]:
    """Yields an error for a backend, at a line that makes a length constant, and another for each
    further such line.

    If all is right but an empty sequence, for which the captured network raises an error, the
    finding is a warning.
    """
    name, where = _NAMES[row.backend], _line_of(row.error)
    if row.same and row.error:
        message = f"The network accepts {row.trial}, but what {name} captured {row.message}"
        yield Finding("warning", _EMPTY, message, where, "Do not pass it empty sequences.")
    elif row.takes is None:
        yield Finding("error", row.backend, f"{name} was not tried here: {row.message}.")
    elif not row.takes:
        fix = _TENSORS if row.backend == "trace" else _OPERATOR
        yield Finding(
            "error", row.backend, f"{name} rejects the network: {row.message}", where, fix
        )
    elif not row.same:
        trial = next(one for one in tested.tried if one.name == row.trial)
        kept: dict[str, str] = {}
        # The trial may show no line, because `.data` keeps a value that Python never reads. Other
        # lengths may show one.
        for other in [trial, *tested.tried]:
            for one, two in [] if kept else _kept(first, record(run, other.inputs)):
                read = f"what {one.name.strip('_')}() reads: {one.value:.40}, but {two.value:.40} for {other.name}"
                kept.setdefault(one.where, f"The capture keeps {read}.")
        (line, text), *further = kept.items() or [(where, "")]
        message = f"{name} accepts the example, {tested.tried[0].name}, but {row.message} for {row.trial}. {text}"
        yield Finding("error", row.backend, message.strip(), line, _TENSORS)
        for line, text in further:
            yield Finding("error", "constant", text, line, _TENSORS)


def _kept(first: Recorder, second: Recorder) -> list[tuple[Event, Event]]:
    """Returns the pairs of events at which Python reads different values in two runs, up to where
    the runs diverge.

    If only sizes differ, `_kept` returns only the last pair.
    """
    read = [pair for pair in together(first, second) if pair[0].value != pair[1].value]
    direct = [pair for pair in read if pair[0].direct]
    values = [[pair for pair in some if pair[0].name not in SIZES] for some in (direct, read)]
    return [pair for pair in values[0] or values[1] or direct[-1:] if pair[0].where]


def _line_of(error: BaseException | None) -> str:
    """Returns the innermost line of the user's code that an error names, in its traceback or in its text."""
    frames = [
        one
        for one in traceback.walk_tb(error.__traceback__ if error else None)
        if is_readers(one[0])
    ]
    lines = [
        site(one.f_code.co_filename, line, str(one.f_globals.get("__name__")))
        for one, line in frames
    ]
    named = re.findall(r'File "([^"]+)", line (\d+)', str(error))
    lines += [
        site(path, int(line))
        for path, line in named
        if isfile(path) and not re.search("/(torch|ops)/", path)
    ]
    return lines[-1] if lines else ""


# Warnings about other compilers, which are not run here.

_NEURON = "A compiler with fixed shapes (PyTorch Neuron's LSTM guide for Inf1, archived)"
_LEGACY = "The legacy ONNX exporter (dynamo=False)"


def _habits(event: Event) -> Iterator[tuple[str, str, str]]:
    """Yields a rule, a message and a fix for each problem that other compilers have with a call."""
    given = event.arguments
    if event.name == "pad_packed_sequence":
        if (value := given["padding_value"]) != 0:
            shown = repr(value) if math.isfinite(value) else f'float("{value}")'
            mask = "output.size(1))" if given["batch_first"] else "output.size(0)).T"
            message = f"{_LEGACY} ignores padding_value={shown} and pads with 0 (pytorch#28423), without an error."
            masked = f"output.masked_fill(~pv.real_mask(lengths, {mask}[..., None], {shown})"
            yield "padding_value", message, f"Pad with 0, and mask by the lengths: {masked}."
        if given["total_length"] is None:
            message = (
                "Without total_length, it pads to max(lengths), so the size depends on the lengths."
            )
            fix = "Pass the number of time steps of the padded input: total_length=x.size(0), or x.size(1)."
            yield (
                "total_length",
                f"{message} {_LEGACY} pads to all time steps instead, without an error.",
                fix,
            )
    elif event.name.startswith("pack_") and not given["enforce_sorted"]:
        fix = "Sort the batch, longest first, before you pass it to the network, and set enforce_sorted=True."
        yield "unsorted", f"{_NEURON} leaves the sort of enforce_sorted=False to the CPU.", fix
    elif event.name in ("sort", "argsort") and not event.in_rnn:
        yield (
            "unsorted",
            f"{_NEURON} leaves a sort to the CPU.",
            "Sort the batch before you pass it to the network.",
        )


def _of_other_compilers(seen: list[Recorder]) -> Iterator[Finding]:
    """Yields warnings about the calls and the changing sizes that other compilers have problems with."""
    for event in seen[0].events:
        for rule, message, fix in _habits(event):
            yield Finding("warning", rule, message, event.where, fix)
    for other in seen[1:]:
        for one, two in together(seen[0], other):
            unfixed = one.name == "pad_packed_sequence" and one.arguments["total_length"] is None
            if one.shapes == two.shapes or (one.in_rnn and not unfixed):
                continue
            if not one.in_rnn:
                a, b = next(
                    pair for pair in zip(one.shapes, two.shapes, strict=False) if pair[0] != pair[1]
                )
                message = f"The size of a tensor that {one.name} takes or returns depends on the lengths: {a} or {b}."
                fix = (
                    "Pad first, with pad_packed_sequence and a total_length, and mask the padding."
                )
                yield Finding(
                    "warning", "size", f"{message} {_NEURON} rejects that.", one.where, fix
                )
            break  # all sizes that follow depend on it


def _notes(tested: Trials, found: list[Reading], rows: list[Captured]) -> Iterator[str]:
    varied = list(map(str, tested.varied))
    yield f"lengths: {'; '.join(varied) or 'none found'}"
    if also := dict.fromkeys(str(one) for one in found if str(one) not in varied):
        yield f"may also be lengths, but not tried: {'; '.join(also)}"
    names = [one.name for one in tested.tried]
    both = [name for name in names if name.startswith("other numbers") and " and " in name]
    yield f"compared on: {'; '.join(name for name in names if name not in both)}{'; both together' if both else ''}"
    if tested.refused:
        error = next(iter(tested.refused.values()))
        yield f"rejected by the network itself: {'; '.join(tested.refused)} ({type(error).__name__})"
    ran = {one.backend for one in rows if one.takes is not None}
    left = [name for name in BACKENDS if name not in ran]
    sized = any(name.startswith("one more") for name in [*names, *tested.refused])
    yield f"not tried: {', '.join([*left, *([] if sized else ['other sizes of batch and time'])])}"


def _listing(module: nn.Module, found: Iterable[Finding]) -> tuple[listing.Line, ...]:
    """Returns the lines of `forward`, marked where there are findings; empty if `forward` is long or cannot be read."""
    try:
        forward = inspect.unwrap(type(module).forward)
        lines, first = inspect.getsourcelines(forward)
        path, name = forward.__code__.co_filename, str(forward.__globals__.get("__name__"))
    except (OSError, TypeError, AttributeError):
        return ()
    if len(lines) > _MOST_LINES:
        return ()
    marks = {
        one.where: one.level for one in reversed([*found])
    }  # the first finding at a line counts
    shown = []
    for number, line in enumerate(dedent("".join(lines)).rstrip().splitlines(), first):
        level = marks.get(site(path, number, name), "")
        shown.append((number, line, LEVELS.get(level, ""), level == "error"))
    return tuple(shown)
