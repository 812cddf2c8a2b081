"""What a compiler with fixed shapes would say of a network that packs.

Such a compiler runs the network once, on an example, and keeps the graph of operators and the size of every tensor.
The size of a PackedSequence depends on the lengths, so it may only go where the compiler can pad it again by itself:
into an RNN and into `pad_packed_sequence`. These rules are those of the LSTM page of the PyTorch Neuron developer
guide (Inf1).
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from textwrap import dedent
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.rnn import PackedSequence

from packviz.check import trials
from packviz.check.findings import LEVELS, Finding, Findings
from packviz.check.recorder import RETURN, RNN_OPERATORS, RUN, Read, Recording, Site, record, tensors
from packviz.draw.flowchart import Arrow, Box, Flow
from packviz.draw.listing import Line, Listing
from packviz.draw.sheet import Sheet, row

_MOST_BOXES = 16  # in a drawing; of a larger network, what touches no PackedSequence is left out
_MOST_LINES = 24  # of code beside it


@dataclass(frozen=True, repr=False)
class StaticCheck(Findings):
    """The findings of `check_static`, with the data flow they were found in.

    Attributes:
        flows: the data flow of the run on the example; where other lengths take another path, that one too.
        code: the network's `forward`, if it is short and its lines can be read.
    """

    flows: tuple[Flow, ...] = ()
    code: Listing | None = None

    def to_text(self) -> str:
        """Every finding, the code and the data flow, in words."""
        return "\n\n".join([super().to_text(), *(part.to_text() for part in (self.code, *self.flows) if part)])

    def pictures(self, theme: str) -> list[Sheet]:
        """The code beside the data flow, or over two of them, and the findings below."""
        code = [self.code.sheet(theme)] if self.code else []
        flows = [flow.sheet(theme) for flow in self.flows]
        rows = [[*code, *flows]] if len(flows) == 1 else [code, flows]
        return [*(row(parts, theme, gap=24) for parts in rows if parts), *super().pictures(theme)]

    @property
    def verdict(self) -> str:
        """What such a compiler would do, in a sentence."""
        if {one.rule for one in self.of("error")} == {"undecided"}:
            return "Undecided: no other lengths could be tried."
        if not self.ok:
            return "A compiler with fixed shapes refuses this, or is wrong for other lengths."
        costs = ", with a warning" if self.of("warning") else ""
        return f"A compiler with fixed shapes takes this{costs}."


def check_static(module: nn.Module, example_inputs: Sequence[Any] | Mapping[str, Any]) -> StaticCheck:
    """Reports what breaks if a network is compiled with fixed shapes, and in which of its lines.

    Runs the network in eval mode and without gradients, on copies of the inputs: on the example, and on other lengths
    of the same shape. A trace (`torch.jit.trace`) of the example then runs on all of them, and must give what the
    network gives. Lengths are found as whole numbers, parts of T, masks, and token ids padded with 0 or 1. Afterwards
    modes, attributes, buffers and the random state of torch, numpy and Python are what they were. Not undone: what
    `forward` does to other Python objects.

    Args:
        module: the network: `nn.LSTM`, `nn.GRU` and `nn.RNN` of any kind in it, nested at will.
        example_inputs: a tuple of its positional arguments, or a dict of keyword arguments.

    Returns:
        Findings. `ok` is True only if a trace is right for every trial and no rule is broken. The rules:
        `trace` (a trace refuses the network, or is wrong for other lengths), `undecided` (no other lengths could be
        tried), `returned`, `used`, `batch_sizes` (a PackedSequence where none may be), `given` (one as an input),
        `sequences` (tensors of many lengths), `constant` (lengths that are not a tensor, or go to `packviz.run`),
        `conditional` (another path for other lengths), `size` (another size for other lengths): errors.
        `unsorted` (a sort on the host), `total_length` (missing), `value` (read in Python), `fails` (on the lengths
        tried), `padding_value` (which the legacy ONNX exporter ignores): warnings. `final_states`, `unused` (a result
        that nobody reads): good to know. What stands on a line that begins with `print(` is passed over.

    Raises:
        TypeError: `module` is not a module, or `example_inputs` neither a tuple nor a dict.
        ValueError: the inputs do not fit the network's `forward`, or it is a generator or `async`; or the network fails
            on the example, and not with lengths within the time steps, or with a tensor for a NumPy array.
        Exception: whatever else the network raises on the example.

    Examples:
        >>> import packviz as pv, torch
        >>> checked = pv.check_static(torch.nn.LSTM(3, 4), [torch.zeros(5, 2, 3)])
        >>> checked.ok
        True
    """
    bound = _bound(module, example_inputs)
    example = dict(bound.arguments)
    try:
        run, first = _first_run(module, example, bound)
    except Exception as error:
        for reason, repaired in _repaired(example):
            if _runs(module, repaired, bound):
                raise ValueError(reason) from error
        raise
    varied, (baseline, *tried), refused = trials.trials(run, example, _packed(first))
    shown = dict.fromkeys(_rules(first))  # what each run shows, reported once
    shown |= {_failure(one): None for one in [one for one in refused if one.plain][:1]}
    differ: list[Finding] = []  # what other lengths change
    runs = [(first, baseline.name)]  # those to be drawn
    for other in tried[: 2 if first.reads else 1]:
        second = _record(run, other.example)
        known = {(one.rule, one.where) for one in differ}
        compared = dict.fromkeys(_compared(first, second, baseline.name, other.name))
        differ += [one for one in compared if (one.rule, one.where) not in known]
        branch = next((one.where for one in compared if one.rule == "conditional"), None)
        # That the runs part says more of a line than that it reads a value, or what only one of them does there.
        shown = {one: None for one in shown if (one.rule, one.where) != ("value", branch)}
        shown |= {one: None for one in _rules(second) if one.where != branch}
        if branch is not None or (second.misuses and not first.misuses):
            runs.append((second, other.name))
        if branch is not None:
            break
    judged = list(_undecided(run, first, varied, baseline, tried) or _traced(run, first, varied, [baseline, *tried]))
    shown = {one: None for one in shown if one.rule != "value" or one.where not in {error.where for error in judged}}
    found = [*differ, *shown, *judged]
    title, marks = f"{type(run.module).__name__} under fixed shapes", _marks(found)
    return StaticCheck(title, tuple(found), tuple(_flow(*one, marks) for one in runs), _listing(run.module, marks))


def _bound(module: Any, example_inputs: Any) -> inspect.BoundArguments:
    """The arguments of a call, once they fit."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"module is a {type(module).__name__}; give the nn.Module itself")
    if isinstance(example_inputs, (Tensor, PackedSequence)) or not isinstance(example_inputs, (tuple, list, Mapping)):
        kind = type(example_inputs).__name__
        raise TypeError(f"example_inputs is a {kind}; give a tuple of the inputs, as in (x, lengths), or a dict")
    kinds = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    if any(is_one(module.forward) for is_one in kinds):
        raise ValueError(f"{type(module).__name__}.forward is a generator or async: a call runs nothing; use return")
    named = dict(example_inputs) if isinstance(example_inputs, Mapping) else {}
    arguments = () if named else tuple(example_inputs)
    try:
        return inspect.signature(module.forward).bind(*arguments, **named)
    except TypeError as error:
        raise ValueError(f"example_inputs do not fit {type(module).__name__}.forward: {error}") from None


# Running.


def _first_run(
    module: nn.Module, example: Mapping[str, Any], bound: inspect.BoundArguments
) -> tuple[trials.Runner, Recording]:
    """What runs the module, of a lazy one a copy that has its sizes; and its run on the example."""
    run = trials.Runner(_sized(module, example, bound), bound)
    return run, _record(run, example)


def _runs(*arguments: Any) -> bool:
    """Whether a first run of these succeeds."""
    with suppress(Exception):
        _first_run(*arguments)
        return True
    return False


def _record(run: trials.Runner, example: Mapping[str, Any]) -> Recording:
    return cast(Recording, run(example, lambda call: record(run.module, call.arguments, call.args, call.kwargs)))


def _sized(module: nn.Module, example: Mapping[str, Any], bound: inspect.BoundArguments) -> nn.Module:
    """The module; of a lazy one, whose tensors get their sizes in the first run, a copy that has run once."""
    lazy: list[Any] = [one for one in [*module.parameters(), *module.buffers()] if is_lazy(one)]
    if not lazy:
        return module
    # A deepcopy cannot copy a buffer without a size, so it is handed new ones.
    new = {id(one): type(one)(one.requires_grad, one.device, one.dtype) for one in lazy}
    try:
        made = copy.deepcopy(module, new)
    except Exception as error:
        name = type(module).__name__
        raise ValueError(
            f"{name} has modules without sizes yet, and cannot be copied; run it once on a batch, then check it"
        ) from error
    mode = {one: one.training for one in made.modules()}
    call = inspect.BoundArguments(bound.signature, trials.replaced(example, {}))
    with torch.random.fork_rng(), torch.no_grad():
        made.eval()(*call.args, **call.kwargs)
    for one, training in mode.items():
        one.training = training
    return made


def _repaired(example: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What may be wrong with an example, and the example without it: one thing, then two, up to all that is known."""
    batches = [one.shape for one in tensors(dict(example)) if one.dim() > 1]
    wrong: dict[str, tuple[str, Any]] = {}

    def look(name: str, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.ndim > 1:
            wrong[name] = f"{name} is a NumPy array; give torch.from_numpy({name})", torch.from_numpy(value)
        numbers = _whole_numbers(value)
        sides = [(s[0], s[1]) for s in batches] + [(s[1], s[0]) for s in batches]
        most = max((T for B, T in sides if len(numbers) == B), default=0)
        if numbers and max(numbers) > most > 0:
            b = numbers.index(max(numbers))
            message = f"{name}[{b}] is {numbers[b]}, too much for a length: the batch has {most} time steps"
            fitting = [min(number, most) for number in numbers]
            wrong[name] = message, value.new_tensor(fitting) if isinstance(value, Tensor) else type(value)(fitting)

    for name, value in trials.named(example):
        look(name, value)
    for i in range(1, 1 + len(wrong)):
        some = dict(list(wrong.items())[:i])
        repaired = trials.replaced(example, {name: value for name, (_, value) in some.items()})
        yield "; ".join(message for message, _ in some.values()), repaired


def _whole_numbers(value: Any) -> list[int]:
    """The entries of something that may be lengths; else none."""
    if isinstance(value, Tensor):
        return value.tolist() if value.dim() == 1 and value.dtype in (torch.int64, torch.int32) else []
    return list(value) if trials.is_list(value) else []


# What other lengths show.


def _undecided(
    run: trials.Runner, first: Recording, varied: Sequence[Any], baseline: trials.Trial, tried: Sequence[trials.Trial]
) -> list[Finding]:
    """Returns the reason, if nothing can be concluded about other lengths."""
    fix = "Give the lengths as an input: a (B,) tensor of int64."
    if trials.difference(baseline.output, run.output(baseline.example))[0]:
        message, fix = "The network gives another result each time, so nothing can be compared.", "Make it repeatable."
    elif (packed := _packed(first)) and all(_packed(_record(run, one.example)) == packed for one in tried):
        message = "The network packs, and no input that was varied changed the lengths that it packs with."
    elif closed := [(name, leaf) for name, leaf in trials.named(baseline.example) if _is_closed(leaf)]:
        (name, leaf), *_ = closed
        message = f"{name} is a {type(leaf).__name__}, which may hold lengths, and cannot be varied."
    elif not varied and any(_may_hold_lengths(leaf) for _, leaf in trials.named(baseline.example)):
        message = "No lengths were recognised among the inputs, so no other lengths were tried."
    else:
        return []
    return [Finding("error", "undecided", message, fix=fix)]


def _packed(recording: Recording) -> list[list[int]]:
    """The lengths that a run packs with."""
    found = []
    for call in recording.calls:
        if call.kind == "pack":
            lengths = call.arguments.get("lengths", call.arguments.get("sequences", ()))
            found.append(sorted(len(n) if isinstance(n, Tensor) and n.dim() else int(n) for n in lengths))
    return found


def _is_closed(leaf: Any) -> bool:
    """Whether it is an object that may hold lengths where nobody looks."""
    known = (Tensor, np.ndarray, int, float, complex, str, bytes, torch.dtype, torch.device, nn.Module, type)
    return not (leaf is None or isinstance(leaf, known) or trials.is_list(leaf) or callable(leaf))


def _may_hold_lengths(leaf: Any) -> bool:
    """Whether it is anything but a batch of floating-point numbers."""
    if isinstance(leaf, (Tensor, np.ndarray)):
        return leaf.ndim == 1 or "float" not in str(leaf.dtype)
    return trials.is_list(leaf) or type(leaf) is int


def _traced(
    run: trials.Runner, first: Recording, varied: Sequence[trials.Reading], tried: list[trials.Trial]
) -> Iterator[Finding]:
    """What a trace of the example does wrongly for other lengths."""
    try:
        wrong = trials.judged(trials.traced, run, tried)
    except Exception as error:
        message = f"torch.jit.trace refuses the network: {trials.first_line(error)}"
        yield Finding("error", "trace", message, fix="Compute with tensors alone.")
        return
    if wrong is None:
        return
    message, where = f"A trace of the example{tried[0].name} {wrong.message}{wrong.trial.name}.", ""
    fix = "Compute with tensors (a mask, torch.where), or do this outside of the network."
    if lists := [one.name for one in varied if not isinstance(dict(trials.named(tried[0].example))[one.name], Tensor)]:
        fix = f"Give {lists[0]} as a tensor: a trace keeps the numbers of anything else."
    elif kept := _kept(first, _record(run, wrong.trial.example)):
        one, other = kept
        message += f" It keeps what {one.function.strip('_')}() reads: {one.value:.40}, and {other.value:.40} there."
        where = str(one.site or "")
    yield Finding("error", "trace", message, where, fix)


def _kept(first: Recording, second: Recording) -> tuple[Read, Read] | None:
    """The first value that Python reads in both runs, and not the same in both."""
    for one, other in zip(first.looks, second.looks, strict=False):
        if one[:2] != other[:2]:
            return None
        if one.value != other.value and one.function not in ("shape", "size", "__len__"):
            return one, other
    return None


# Rules.


def _failure(refused: trials.Refused) -> Finding:
    """Returns the finding about lengths that the network does not take."""
    message = f"It fails{refused.name}: {trials.first_line(refused.error)}"
    return Finding("warning", "fails", message, fix="Look whether it should take such lengths.")


def _rules(recording: Recording) -> Iterator[Finding]:
    """What one run shows."""
    yield from _misused(recording)
    for i, call in enumerate(recording.calls):
        takers, where = recording.takers(i), str(call.site or "")
        if call.kind == "pad" and (value := call.arguments.get("padding_value", 0)) != 0:
            message = (
                f"padding_value={value}: the legacy ONNX exporter (dynamo=False) ignores it and pads with 0"
                " (pytorch#28423), so the results are others, without an error."
            )
            first = call.arguments.get("batch_first")
            mask = "pv.real_mask(lengths, output.size(1))" if first else "pv.real_mask(lengths, output.size(0)).T"
            fix = f"Pad with 0, and mask by the lengths: output.masked_fill(~{mask}[..., None], {value!r:.40})."
            if isinstance(value, float) and not math.isfinite(value):
                fix = fix.replace(repr(value), f'float("{value}")')
            yield Finding("warning", "padding_value", message, where, fix)
        if call.kind == "input" and call.owner == PackedSequence.__name__:
            message = f"The input {call.name} is a PackedSequence: its size depends on the lengths."
            yield Finding("error", "given", message, where, "Take the padded batch and the lengths, and pack inside.")
        elif call.kind == "pack":
            yield from _pack_rules(call.name, call.operators, call.arguments, where)
        elif call.kind == "rnn" and call.name != RUN and not takers:
            yield Finding("info", "unused", f"Nothing uses what {call.name} gives: it can go.", where)
        elif call.kind == "rnn" and _only_states(recording, i):
            message = f"Only the final states of {call.name} are used: no pad_packed_sequence is needed."
            yield Finding("info", "final_states", message, where)
        elif call.name == RUN:
            message = f"{RUN} cuts the batch by its lengths in Python: a fixed graph keeps the cuts of the example."
            yield Finding("error", "constant", message, where, "Use packviz.ragged_op: all of it is one operator.")
        elif call.kind == "operator" and (sorts := {"aten::sort", "aten::argsort"}.intersection(call.operators)):
            message = f'This sorts within the network, by "{sorts.pop()}", which such a compiler leaves to the CPU.'
            yield Finding("warning", "unsorted", message, where, "Sort the batch before it is given to the network.")
        elif call.name == "unpack_sequence":
            message = "unpack_sequence gives a tensor per sequence, each as long as its sequence: sizes are not fixed."
            yield Finding("error", "sequences", message, where, "Use pad_packed_sequence, and mask what follows.")
        elif call.kind == "pad" and not takers:
            message = "Nothing uses the padded tensor: the pad_packed_sequence can go."
            yield Finding("info", "unused", message, where)
        elif call.kind == "pad" and call.arguments.get("total_length", 0) is None:
            message = (
                "pad_packed_sequence without total_length pads to max(lengths): the size depends on the lengths. The"
                " legacy ONNX exporter (dynamo=False) pads to all time steps instead, without an error."
            )
            fix = "Pass total_length, the time steps of the padded input: total_length=x.size(0), or x.size(1)."
            yield Finding("warning", "total_length", message, where, fix)
    for read in recording.reads:
        message = (
            f"{read.function.strip('_')}() reads a tensor's value in Python: a fixed graph keeps it as a constant."
        )
        fix = "Compute with tensors (a mask, torch.where), or do this outside of the network."
        yield Finding("warning", "value", message, str(read.site or ""), fix)


def _pack_rules(name: str, operators: list[str], arguments: Mapping[str, Any], where: str) -> Iterator[Finding]:
    """Yields the findings about one call that packs."""
    lengths = arguments.get("lengths")
    if name == "pack_sequence":
        message = "pack_sequence takes sequences of many lengths: a fixed graph keeps the sizes of the example."
        yield Finding("error", "sequences", message, where, "Pad outside, and use pack_padded_sequence with lengths.")
    elif lengths is not None and not isinstance(lengths, Tensor):
        message = f"The lengths are a {type(lengths).__name__}, no tensor: a fixed graph keeps those of the example."
        yield Finding("error", "constant", message, where, "Take the lengths as an input: a (B,) tensor of int64.")
    if "aten::sort" in operators:
        added = " and ".join(f'"{one}"' for one in dict.fromkeys(operators) if one in ("aten::sort", "aten::scatter_"))
        message = f"enforce_sorted=False adds {added}, which such a compiler leaves to the CPU."
        fix = "Sort the batch before the network, longest first, and pass enforce_sorted=True."
        batch = lengths.numel() if isinstance(lengths, Tensor) else len(lengths) if lengths is not None else 0
        if batch == 1:
            fix = "A batch of one is always sorted: pass enforce_sorted=True."
        yield Finding("warning", "unsorted", message, where, fix)


def _misused(recording: Recording) -> Iterator[Finding]:
    """A finding for each call that takes a PackedSequence and may not."""
    seen = set()
    for one in recording.misuses:
        rule = "batch_sizes" if one.part == "batch_sizes" else "returned" if one.operator == RETURN else "used"
        if (one.target, rule) in seen:
            continue
        seen.add((one.target, rule))
        source, where = recording.calls[one.source], str(recording.calls[one.target].site or "")
        maker = next((name for name in reversed(source.operators) if name.removeprefix("aten::") in RNN_OPERATORS), "")
        if rule == "batch_sizes":
            message = "The batch_sizes of a PackedSequence have as many entries as the longest sequence has time steps."
            fix = "Compute it from lengths, which always have B entries."
        elif maker:
            message = (
                f'Operator "{maker}" consuming a PackedSequence input can only be supported when its corresponding'
                ' PackedSequence output is unused or unpacked using "aten::_pad_packed_sequence".'
            )
            fix = "Pad it first with pad_packed_sequence, and use the padded tensor; mask the padding where it counts."
        else:
            message = 'A PackedSequence can only be used by an RNN or by "aten::_pad_packed_sequence".'
            fix = "Do this to the padded batch, before it is packed."
        if one.operator == RETURN and rule == "returned":
            fix = "Pad it before it is returned: output, _ = pad_packed_sequence(packed, total_length=x.size(0))."
        yield Finding("error", rule, f'{message}\nFound usage by "{one.operator}"', where, fix)


def _compared(first: Recording, second: Recording, with_one: str, with_other: str) -> Iterator[Finding]:
    """What two runs with other lengths do differently."""
    for i, (one, other) in enumerate(zip(first.calls, second.calls, strict=False)):
        if (one.name, one.kind, one.site) != (other.name, other.kind, other.site):
            branches = [
                f"{call.name} ({call.site.short if call.site else 'the end'}){lengths}"
                for call, lengths in ((one, with_one), (other, with_other))
            ]
            message = f"What is run depends on the lengths: {', '.join(branches)}. A fixed graph keeps one of the two."
            fix = "Run the same for all lengths: pack always, or never."
            if "pack" not in (one.kind, other.kind):
                fix = "Run the same for all lengths, and mask where they differ."
            yield Finding("error", "conditional", message, str(_branch(first, second, i) or one.site or ""), fix)
            return
    differ = {i for i, (a, b) in enumerate(zip(first.calls, second.calls, strict=True)) if a.shapes != b.shapes}
    for i in sorted(differ):
        call = first.calls[i]
        sources = [source for source, target in first.links if target == i]
        # Only where it begins, and not what follows from a number that was read in Python: that has a finding.
        if call.arguments.get("total_length", 0) is None or not sources or differ & set(sources):
            continue
        a, b = next((a, b) for a, b in zip(call.shapes, second.calls[i].shapes, strict=False) if a != b)
        message = f"The size of what {call.name} gives depends on the lengths: {a}{with_one}, {b}{with_other}."
        yield Finding("error", "size", message, str(call.site or ""), "Keep the padded size, and mask the padding.")


def _branch(first: Recording, second: Recording, parted: int) -> Site | None:
    """The last line in which the runs read another value or size before they parted, at this call."""
    site = None
    for one, other in zip(first.looks, second.looks, strict=False):
        if one[:3] != other[:3] or one.before > parted:
            break
        site = one.site if one.value != other.value else site
    return site


def _only_states(recording: Recording, i: int) -> bool:
    """Whether an RNN takes a PackedSequence, as it may, and nobody takes the one that it gives."""
    packed = [link for link, is_packed in recording.links.items() if is_packed]
    takes = any(target == i for _, target in packed) and not any(one.target == i for one in recording.misuses)
    return takes and not any(source == i for source, _ in packed)


# Drawing.


def _marks(found: Iterable[Finding]) -> dict[str, str]:
    """By place, the level of the gravest finding there that asks for something to be done."""
    marks: dict[str, str] = {}
    for level in ("error", "warning"):
        for one in found:
            if one.level == level and one.where:
                marks.setdefault(one.where, level)
    return marks


def _listing(module: nn.Module, marks: Mapping[str, str]) -> Listing | None:
    """The code of a short `forward`, its lines marked; none where it cannot be read."""
    forward = inspect.unwrap(type(module).forward)
    try:
        lines, first = inspect.getsourcelines(forward)
    except (OSError, TypeError):
        return None
    if len(lines) > _MOST_LINES or not hasattr(forward, "__code__"):
        return None
    shown = []
    for number, line in enumerate(dedent("".join(lines)).rstrip().splitlines(), first):
        level = marks.get(str(Site.at(forward.__code__.co_filename, number, line.strip(), forward.__globals__)), "")
        shown.append(Line(number, line, LEVELS.get(level, ""), level == "error"))
    return Listing(shown)


def _flow(recording: Recording, lengths: str, marks: Mapping[str, str]) -> Flow:
    """The run as boxes and arrows; calls whose results nobody uses are left out."""
    calls, wrong = recording.calls, {(m.source, m.target): m.operator for m in recording.misuses}
    kept = {i for i, call in enumerate(calls) if call.kind not in ("operator", "input")}
    kept |= {target for _, target in wrong}
    alive = set(kept)
    for source, target in sorted(recording.links, reverse=True):
        if target in alive:
            alive.add(source)
    left_out = 0
    if len(alive) > _MOST_BOXES:
        inputs = {i for i in alive if calls[i].kind == "input"}
        alive, left_out = kept | inputs, len(alive - kept - inputs)
    order = sorted(alive)
    arrows, boxes = [], []
    for i in order:
        for source, packed in _sources(recording, i, alive).items():
            size = "" if calls[source].kind == "input" else _few_shapes(recording.sizes.get((source, i), []))
            arrows.append(Arrow(order.index(source), order.index(i), packed, wrong.get((source, i), ""), size))
        call = calls[i]
        detail = [call.owner, call.site.short if call.site else ""]
        warned = marks.get(str(call.site or "")) == "warning"  # an error has its mark at an arrow
        boxes.append(Box(call.name, call.kind, ", ".join(filter(None, detail)), LEVELS["warning"] * warned))
    title = f"Data flow{lengths}"
    title += f"; {left_out} calls that touch no PackedSequence are left out" if left_out else ""
    return Flow(title, tuple(boxes), tuple(arrows))


def _few_shapes(shapes: Sequence[tuple[int, ...]]) -> str:
    """Shapes in words: `(5, 2, 7)`, `2 × (1, 2, 7)`; of several kinds those of the first, and how many more."""
    if not shapes:
        return ""
    same = shapes.count(shapes[0])
    more = f" + {len(shapes) - same}" if len(shapes) > same else ""
    return f"{f'{same} × ' if same > 1 else ''}{shapes[0]}{more}"


def _sources(recording: Recording, i: int, alive: set[int]) -> dict[int, bool]:
    """The calls in the drawing that hand something to this one, by way of those left out: `{call: packed}`."""
    found: dict[int, bool] = {}
    seen: set[int] = set()
    left = [i]
    while left:
        taker = left.pop()
        for (source, target), packed in recording.links.items():
            if target == taker and source in alive:
                found[source] = (packed and taker == i) or found.get(source, False)
            elif target == taker and source not in seen:
                seen.add(source)
                left.append(source)
    return dict(sorted(found.items()))
