"""Runs a network on other lengths than the example's, and compares a trace of it with the network itself.

Any input that can be read as lengths is varied: whole numbers in a tensor, an array or a list, parts of T from 0 to 1,
masks of either sense, and token ids padded with 0 or 1. All are varied together, or one by one if the network refuses
that. To vary an input that holds no lengths is harmless: if a trace keeps its values, that is a defect as well.
"""

from __future__ import annotations

import copy
import inspect
import random
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.rnn import PackedSequence

Leaf = tuple[str, Any]  # with its name, such as `batch['lengths']`
_PACKED = "data", "batch_sizes", "sorted_indices", "unsorted_indices"
_HOLDERS = (dict, list, set, OrderedDict, defaultdict)  # the attributes of a module whose contents are given back
_TOLERANCE = 1e-5  # of the largest value


# Nests.


def mapped(name: str, value: Any, change: Callable[[str, Any], Any]) -> Any:
    """Changes every leaf of a nest: a tensor, a list of whole numbers, and whatever else holds no tensors."""
    held = {} if isinstance(value, (Tensor, nn.Module, type)) else getattr(value, "__dict__", {})
    if isinstance(value, Mapping):
        new: Any = copy.copy(value) if isinstance(value, MutableMapping) else dict(value)
        for key, one in value.items():
            new[key] = mapped(f"{name}[{key!r}]", one, change)
        return new
    if isinstance(value, (list, tuple)) and not isinstance(value, (PackedSequence, torch.Size)) and not is_list(value):
        names = getattr(value, "_fields", None)
        parts = [mapped(f"{name}.{names[i]}" if names else f"{name}[{i}]", v, change) for i, v in enumerate(value)]
        return type(value)(*parts) if names else type(value)(parts)
    if any(isinstance(one, (Tensor, np.ndarray)) or is_list(one) for one in held.values()):  # such as a dataclass
        new = copy.copy(value)
        for key, one in held.items():
            object.__setattr__(new, key, mapped(f"{name}.{key}", one, change))
        return new
    return change(name, value)


def leaves(value: Any) -> list[Leaf]:
    """The leaves of a result, and the tensors of a PackedSequence in it, each with its name."""
    found: list[Leaf] = []
    for name, leaf in named({"output": value}):
        if isinstance(leaf, PackedSequence):
            found += [(f"{name}.{part}", getattr(leaf, part)) for part in _PACKED]
        else:
            found.append((name, leaf))
    return found


def replaced(example: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The example with other leaves in place of those of these names, and with tensors of its own."""

    def change(name: str, leaf: Any) -> Any:
        return other[name] if name in other else leaf.clone() if isinstance(leaf, Tensor) else leaf

    return {name: mapped(name, value, change) for name, value in example.items()}


def named(example: Mapping[str, Any]) -> list[Leaf]:
    """The leaves of a network's arguments, each with its name."""
    found: list[Leaf] = []
    for name, value in example.items():
        mapped(name, value, lambda at, leaf: found.append((at, leaf)))
    return found


def is_list(value: Any) -> bool:
    """Whether it is a list or tuple of whole numbers."""
    return type(value) in (list, tuple) and bool(value) and all(type(one) is int for one in value)


# Running.


class Runner:
    """Runs a network in eval mode, without gradients, on copies of its inputs, each time from the same state."""

    def __init__(self, module: nn.Module, bound: inspect.BoundArguments) -> None:
        self.module, self.bound = module, bound

    def __call__(self, example: Mapping[str, Any], function: Callable[[inspect.BoundArguments], Any]) -> Any:
        """What the function gives for a call with these arguments. Afterwards all is as it was."""
        call = inspect.BoundArguments(self.bound.signature, replaced(example, {}))
        held = [*self.module.parameters(), *(leaf for _, leaf in named(example) if isinstance(leaf, Tensor))]
        devices = {one.device.index for one in held if one.device.type == "cuda"}
        with torch.random.fork_rng(devices=devices), torch.no_grad(), _restored(self.module):
            self.module.eval()
            return function(call)

    def output(self, example: Mapping[str, Any]) -> list[Leaf]:
        """What the network gives."""
        return leaves(self(example, lambda call: self.module(*call.args, **call.kwargs)))


@contextmanager
def _restored(module: nn.Module) -> Iterator[None]:
    """Gives every submodule its attributes back, and the values of its buffers; Python and numpy their random state."""
    drawn = random.getstate(), np.random.get_state()
    modes = [(one, one.training) for one in module.modules()]
    states: list[Any] = [(vars(one), dict(vars(one))) for one in module.modules()]
    states += [(v, copy.copy(v)) for _, was in states for v in was.values() if type(v) in _HOLDERS]
    values = [(one, one.clone()) for one in module.buffers() if not is_lazy(one)]
    try:
        yield
    finally:
        random.setstate(drawn[0])
        np.random.set_state(drawn[1])
        for held, was in states:
            held.clear()
            held.extend(was) if isinstance(held, list) else held.update(was)
        for one, training in modes:  # of a scripted module, it is no attribute
            one.training = training
        for buffer, before in values:
            if not torch.equal(buffer, before):
                buffer.copy_(before)


# Lengths among the inputs, and others for them.


class Reading(NamedTuple):
    """An input read as lengths.

    Attributes:
        name: of the input.
        label: what a sentence calls it: `lengths`, or `mask for lengths`.
        lengths: of the example.
        steps: what may be the time steps of the batch, the likeliest first.
        write: makes an input of the same form from other lengths.
    """

    name: str
    label: str
    lengths: list[int]
    steps: list[int]
    write: Callable[[Tensor], Any]


def readings(example: Mapping[str, Any]) -> list[Reading]:
    """How the inputs may be read as lengths, the likeliest first. What exceeds the time steps, only if nothing else."""
    found = named(example)
    shapes = [one.shape for _, one in found if isinstance(one, (Tensor, np.ndarray)) and one.ndim > 1]
    likely = [reading for leaf in found for reading in _readings(*leaf, shapes)]
    return likely or [reading for leaf in found for reading in _readings(*leaf, [])]


def _readings(name: str, leaf: Any, shapes: list[tuple[int, ...]]) -> Iterator[Reading]:
    if not (is_list(leaf) or _is_plain(leaf)):
        return
    values = torch.as_tensor(leaf).detach().cpu()
    flat, sides = values.flatten(), [n for n in values.shape if n != 1]

    def write(new: Tensor) -> Any:
        new = new.to(values.dtype).reshape(values.shape)
        if isinstance(leaf, Tensor):
            return new.to(leaf.device)
        return new.numpy() if isinstance(leaf, np.ndarray) else type(leaf)(new.tolist())

    zeros_and_ones = bool(((flat == 0) | (flat == 1)).all())
    if len(sides) < 2 and values.dtype != torch.bool and not (values.shape[:1] == (1,) and zeros_and_ones):
        near, far = (sorted({T for s in shapes for T in _steps(s[:last], len(flat))}) for last in (2, None))
        steps = list(dict.fromkeys(near + far))
        if values.is_floating_point() and 0 < flat.max() <= 1 and flat.min() >= 0:
            for T in steps:
                parts = (flat * T).round()
                if (flat * T - parts).abs().max() < 1e-3:
                    yield Reading(name, f"{name} for lengths", parts.int().tolist(), [T], _of_parts(write, T))
        elif (flat == flat.round()).all():
            numbers, top = flat.long().tolist(), int(flat.max())
            if fitting := [T for T in steps if min(numbers) >= 1 and top <= T]:
                yield Reading(name, name, numbers, fitting, write)
            elif not shapes and min(numbers) >= 0 and top > 0:
                yield Reading(name, name, numbers, [top], write)
    if len(sides) == 1 and values.shape[0] == 1 and values.dim() > 1:
        sides = [1, *sides]  # one sequence
    if len(sides) != 2 or (values.is_floating_point() and not zeros_and_ones):
        return
    for turned in (False, True):  # (B, T), or (T, B)
        rows = values.reshape(sides).T if turned else values.reshape(sides)
        at = torch.arange(rows.shape[1])
        for pad in (0, 1):
            n = (rows != pad).sum(1)
            if not n.any() or not ((rows != pad) == (at < n[:, None])).all() or (pad == 1 and flat.max() < 1):
                continue  # padding elsewhere than at the end, or an id that there may not be
            real = torch.full_like(rows, 1 - pad) if zeros_and_ones else rows.gather(1, at % n.clamp(min=1)[:, None])

            def put(new: Tensor, real: Tensor = real, pad: int = pad, turned: bool = turned) -> Any:
                made = torch.where(torch.arange(real.shape[1]) < new[:, None], real, torch.full_like(real, pad))
                return write(made.T if turned else made)

            yield Reading(name, f"{name} for lengths", n.tolist(), [len(at)], put)


def _steps(shape: tuple[int, ...], batch: int) -> Iterator[int]:
    """What may be the time steps of a batch of this shape."""
    for i in range(2):
        if shape[i] == batch:
            yield from (T for j, T in enumerate(shape) if j != i)


def _of_parts(write: Callable[[Tensor], Any], steps: int) -> Callable[[Tensor], Any]:
    return lambda new: write(new / steps)


def others(lengths: list[int], steps: list[int]) -> list[list[int]]:
    """Other lengths, first those in the order of these, which most networks take.

    The first are equal if these are not, and the other way round, with another maximum and another sum if possible.
    Equal sums hide a sum that was kept, so there are several.
    """
    batch, top, most, drawn = len(lengths), max(lengths), min(steps), random.Random(0)

    def ranked(values: Iterable[int]) -> list[int]:
        order = sorted(range(batch), key=lambda i: -lengths[i])
        of = dict(zip(order, sorted(values, reverse=True), strict=True))
        return [max(1, min(most, of[i])) for i in range(batch)]

    equal = max(1, top - 1)
    if len(set(lengths)) > 1 or batch == 1:
        first = [max(1, min(lengths)) if equal * batch == sum(lengths) else equal] * batch
    else:
        first = [max(1, (equal if top > 2 else top) - i) for i in range(batch)]
    made = [first, [steps[0]] * batch, [top] * batch, ranked([top, *(drawn.randint(1, top) for _ in lengths[1:])])]
    made += [ranked([top] + [1] * (batch - 1)), ranked(n - 1 for n in lengths), [1] * batch]
    made += [lengths[::-1], [drawn.randint(1, most) for _ in lengths], *([T] * batch for T in steps[1:])]
    if batch == 1:
        made += [[n] for n in range(1, most, max(1, most // 8))]
    return [list(n) for n in dict.fromkeys(map(tuple, made)) if list(n) != lengths]


class Trial(NamedTuple):
    """Other inputs that the network takes: ` with lengths [3, 3]`, the arguments, and what it gives for them."""

    name: str
    example: dict[str, Any]
    output: list[Leaf]


class Refused(NamedTuple):
    """Other inputs that the network does not take. `plain`: it should, as they keep order and time steps."""

    name: str
    error: Exception
    plain: bool


class Trials(NamedTuple):
    """What was varied, the inputs that were tried, the first of them the example's, and what was refused."""

    varied: list[Reading]
    tried: list[Trial]
    refused: list[Refused]


def trials(run: Runner, example: Mapping[str, Any], packed: list[list[int]]) -> Trials:
    """Runs the network on other lengths, and on other floating-point numbers.

    Args:
        run: runs the network.
        example: its arguments.
        packed: the lengths that it packs with, sorted. An input that can be read as several is most likely read so.
    """
    found = sorted(readings(example), key=lambda one: sorted(one.lengths) not in packed)
    likeliest: dict[str, Reading] = {}
    for one in found:
        likeliest.setdefault(one.name, one)
    together = list(likeliest.values())
    varied: dict[str, Reading] = {}
    tried = [Trial(with_lengths(together), dict(example), run.output(example))]
    refused: list[Refused] = []
    failed_first: list[Refused] = []
    for plan in (together, *([one] for one in found)):
        if any(one.name in varied for one in plan):
            continue
        made, failed = [], []
        for i, numbers in enumerate(zip(*(others(one.lengths, one.steps) for one in plan), strict=False)):
            name = with_lengths(plan, numbers)
            new = replaced(
                example, {one.name: one.write(torch.tensor(n)) for one, n in zip(plan, numbers, strict=True)}
            )
            try:
                made.append(Trial(name, new, run.output(new)))
            except Exception as error:
                failed.append(Refused(name, error, i == 0 or (i == 1 and all(len(one.steps) == 1 for one in plan))))
        failed_first = failed_first or failed
        if made:
            tried += made
            refused += failed
            varied |= {one.name: one for one in plan}
    refused = refused if varied else failed_first
    floats = {name: _negated(leaf) for name, leaf in named(example) if _is_float(leaf)}
    plain = {name: leaf for name, leaf in floats.items() if name not in varied}
    # What was read as a mask or as parts may be neither.
    for some in (plain, *({**plain, name: floats[name]} for name in floats if name in varied)):
        new = replaced(example, some)
        with suppress(Exception):  # the network may take no such numbers
            tried += [Trial(" with other numbers", new, run.output(new))] if some else []
    return Trials(list(varied.values()), tried, refused)


def _is_plain(leaf: Any) -> bool:
    """Whether it is a tensor or an array of real numbers that lie in a rectangle."""
    if isinstance(leaf, Tensor):
        return leaf.layout == torch.strided and not (leaf.is_meta or leaf.is_complex()) and leaf.numel() > 0
    return isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biuf" and leaf.size > 0


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and _is_plain(leaf) and leaf.is_floating_point()


def _negated(leaf: Tensor) -> Tensor:
    """Its negative, and half of the first entry zero, as padding may be."""
    new = -leaf.detach()
    if new.dim():
        new = new.contiguous()
        new[0].reshape(-1)[new[0].numel() // 2 :] = 0
    return new


def with_lengths(plan: Iterable[Reading], numbers: Iterable[list[int]] | None = None) -> str:
    """Such as ` with lengths [5, 3]`; empty if there are none."""
    plan = list(plan)
    labels = [f"{one.label} {_few(n)}" for one, n in zip(plan, numbers or [one.lengths for one in plan], strict=False)]
    return f" with {' and '.join(labels)}" if labels else ""


def _few(values: list[int]) -> str:
    return str(values) if len(values) <= 8 else f"[{', '.join(map(str, values[:6]))}, …]"


# Capturing and comparing.


class Differs(NamedTuple):
    """A trial that a captured network does not pass.

    Attributes:
        trial: the first that shows the largest difference.
        message: what happens: ` differs by 0.58`.
        size: the largest difference; infinite for another shape, or if it raises.
    """

    trial: Trial
    message: str
    size: float


class _Flat(nn.Module):
    """The network as a function of tensors alone: all that a trace can pass."""

    def __init__(self, module: nn.Module, call: inspect.BoundArguments) -> None:
        super().__init__()
        self.inner, self.call = module, call
        self.names = [name for name, leaf in named(call.arguments) if isinstance(leaf, Tensor)]

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        arguments = replaced(self.call.arguments, dict(zip(self.names, tensors, strict=False)))
        call = inspect.BoundArguments(self.call.signature, arguments)
        self.gave = leaves(self.inner(*call.args, **call.kwargs))
        return (*(leaf for _, leaf in self.gave if isinstance(leaf, Tensor)), torch.zeros(()))


def traced(run: Runner, example: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], list[Leaf]]:
    """The network as `torch.jit.trace` captures it on the example: gives its output for other arguments.

    Raises:
        Exception: whatever a trace raises.
    """

    def capture(call: inspect.BoundArguments) -> tuple[Any, list[Leaf]]:
        flat = _Flat(run.module, call).eval()
        graph = torch.jit.trace(flat, _tensors(call), check_trace=False)  # type: ignore[no-untyped-call]
        return graph, flat.gave

    graph, gave = run(example, capture)

    def captured(other: Mapping[str, Any]) -> list[Leaf]:
        outputs = iter(run(other, lambda call: graph(*_tensors(call))))
        return [(name, next(outputs) if isinstance(leaf, Tensor) else leaf) for name, leaf in gave]

    return captured


def _tensors(call: inspect.BoundArguments) -> tuple[Tensor, ...]:
    return tuple(leaf for _, leaf in named(call.arguments) if isinstance(leaf, Tensor))


def judged(
    capture: Callable[[Runner, Mapping[str, Any]], Callable[[Mapping[str, Any]], list[Leaf]]],
    run: Runner,
    tried: list[Trial],
) -> Differs | None:
    """What a capture of the network on the example does otherwise than the network; None if nothing.

    Raises:
        Exception: whatever the capture raises.
    """
    worst: Differs | None = None
    with warnings.catch_warnings(), cast(Any, torch.jit).optimized_execution(False):
        warnings.simplefilter("ignore")
        captured = capture(run, tried[0].example)
        for trial in tried:
            try:
                size, message = difference(trial.output, captured(trial.example))
            except Exception as error:
                size, message = float("inf"), f"raises {first_line(error)}"
            if size and (worst is None or size > worst.size):
                worst = Differs(trial, message, size)
    return worst


def difference(want: list[Leaf], got: list[Leaf]) -> tuple[float, str]:
    """The largest difference, and in words; 0 if none exceeds rounding."""
    if [name for name, _ in want] != [name for name, _ in got]:
        return float("inf"), f"gives {len(got)} results and not {len(want)}"
    worst = 0.0, ""
    for (name, one), (_, other) in zip(want, got, strict=True):
        if not isinstance(one, (Tensor, np.ndarray, int, float, torch.Size)) and not is_list(one):
            continue
        a, b = (torch.as_tensor(value).detach().cpu() for value in (one, other))
        if a.shape != b.shape:
            return float("inf"), f"gives {name} of shape {tuple(b.shape)} and not {tuple(a.shape)}"
        a, b = (one.to(torch.complex128 if one.is_complex() else torch.float64) for one in (a, b))
        gap = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs()).nan_to_num(torch.inf, torch.inf)
        if a.numel() and gap.max() > _TOLERANCE * a.abs().nan_to_num(0, 0).max():
            worst = max(worst, (float(gap.max()), f"gives {name} that differs by {gap.max():.2g}"))
    return worst


def first_line(error: BaseException) -> str:
    """The type and the first line of an error."""
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"[:150]
