"""Finds the inputs of a network that contain lengths, and runs the network with other lengths in
them.

This module varies any input that can be read as lengths: whole numbers in a tensor, an array or a
list, fractions of `T`, masks of real steps or of padding, ids of tokens or of the characters of
words, padded with 0 or 1, and a `PackedSequence`. It varies all of them together, or one by one if
the network does not accept the combination. Varying an input that contains no lengths does no harm,
because a captured network that keeps the example's values of any input is wrong, too.
"""

from __future__ import annotations

import copy
import inspect
import random
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.rnn import PackedSequence

from packviz.ops.original import pack_padded_sequence, pad_packed_sequence

Leaf = tuple[str, Any]  # a name, such as `batch['lengths']`, and the value
_PARTS = "data", "batch_sizes", "sorted_indices", "unsorted_indices"
_SIZES = ".batch_sizes"  # marks a PackedSequence, whose tensors do not contain lengths on their own
_HOLDERS = (
    dict,
    list,
    set,
    OrderedDict,
    defaultdict,
)  # a module's attributes of these types get their contents back


def mapped(name: str, value: Any, change: Callable[[str, Any], Any]) -> Any:
    """Returns a copy of a nested value in which `change` has replaced every leaf.

    A leaf is a tensor, a list of whole numbers, or any other object without parts.
    """
    if isinstance(value, Mapping):
        new: Any = copy.copy(value) if isinstance(value, MutableMapping) else dict(value)
        for key, one in value.items():
            new[key] = mapped(f"{name}[{key!r}]", one, change)
        return new
    if (
        isinstance(value, (list, tuple))
        and not isinstance(value, torch.Size)
        and not is_list(value)
    ):
        names = getattr(value, "_fields", None)
        parts = [
            mapped(f"{name}.{names[i]}" if names else f"{name}[{i}]", v, change)
            for i, v in enumerate(value)
        ]
        return type(value)(*parts) if names else type(value)(parts)
    if is_dataclass(value) and not isinstance(value, type):
        new = copy.copy(value)
        for field in fields(value):
            object.__setattr__(
                new, field.name, mapped(f"{name}.{field.name}", getattr(value, field.name), change)
            )
        return new
    return change(name, value)


def leaves(nest: Mapping[str, Any]) -> list[Leaf]:
    """Returns the leaves of everything in a mapping, each with its name."""
    found: list[Leaf] = []

    def look(name: str, leaf: Any) -> Any:
        found.append((name, leaf))
        return leaf

    for name, value in nest.items():
        mapped(name, value, look)
    return found


def tensors(nest: Mapping[str, Any]) -> list[Tensor]:
    """Returns the tensors among the leaves of a mapping."""
    return [leaf for _, leaf in leaves(nest) if isinstance(leaf, Tensor)]


def replaced(inputs: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the inputs with copies of their tensors. Leaves named in `other` take their values from there."""

    def change(name: str, leaf: Any) -> Any:
        return other[name] if name in other else leaf.clone() if isinstance(leaf, Tensor) else leaf

    return {name: mapped(name, value, change) for name, value in inputs.items()}


def is_list(value: Any) -> bool:
    """Returns whether a value is a list or tuple of whole numbers."""
    return type(value) in (list, tuple) and bool(value) and all(type(one) is int for one in value)


class Runner:
    """A network that runs in eval mode, without gradients, on copies of its inputs, each time from the same state."""

    def __init__(self, module: nn.Module, signature: inspect.Signature) -> None:
        self.module, self.signature = module, signature

    def __call__(
        self, inputs: Mapping[str, Any], function: Callable[[inspect.BoundArguments], Any]
    ) -> Any:
        """Calls a function with the inputs, bound to the parameters of `forward`, and then restores the state."""
        call = inspect.BoundArguments(self.signature, OrderedDict(replaced(inputs, {})))
        with (
            torch.random.fork_rng(devices=self.gpus(inputs)),
            torch.no_grad(),
            _restored(self.module),
        ):
            self.module.eval()
            return function(call)

    def gpus(self, inputs: Mapping[str, Any]) -> set[int]:
        """Returns the indices of the GPUs that hold parameters or inputs."""
        return {
            one.device.index for one in [*self.module.parameters(), *tensors(inputs)] if one.is_cuda
        }

    def outputs(self, inputs: Mapping[str, Any]) -> list[Leaf]:
        """Returns the leaves of the network's result."""
        return leaves({"output": self(inputs, self.forward)})

    def forward(self, call: inspect.BoundArguments) -> Any:
        """Calls the network. `Recorder` searches the stack for the user's code only up to this method."""
        return self.module(*call.args, **call.kwargs)


@contextmanager
def _restored(module: nn.Module) -> Iterator[None]:
    """Restores the attributes and buffers of every submodule, and the random state of Python and numpy."""
    drawn, parts = (random.getstate(), np.random.get_state()), [*module.modules()]
    modes = [one.training for one in parts]
    states: list[Any] = [(vars(one), dict(vars(one))) for one in parts]
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
        for one, training in zip(
            parts, modes, strict=True
        ):  # a scripted module does not keep its mode as an attribute
            one.training = training
        for buffer, before in values:
            if not torch.equal(buffer, before):
                buffer.copy_(before)


# Reading the lengths in the inputs, and choosing other lengths.


class Reading(NamedTuple):
    """One possible way to read an input as lengths.

    Attributes:
        name: the name of the input.
        form: the form of the lengths in the input, such as `whole numbers` or `a mask`.
        lengths: the lengths of the example.
        write: a function that takes other lengths and returns an input of the same form, as a dict
            of its leaves.
    """

    name: str
    form: str
    lengths: list[int]
    write: Callable[[Tensor], dict[str, Any]]

    def __str__(self) -> str:
        return f"{self.name}, as {self.form}"


def readings(inputs: Mapping[str, Any]) -> list[Reading]:
    """Returns the ways in which the inputs may be read as lengths. For each input, the most likely way comes first."""
    parts = dict(leaves(inputs))
    names = [name.removesuffix(_SIZES) for name in parts if name.endswith(_SIZES)]
    packed = [
        _packed(name, PackedSequence(*(parts[f"{name}.{one}"] for one in _PARTS))) for name in names
    ]
    found = [leaf for leaf in parts.items() if leaf[0].rpartition(".")[0] not in names]
    steps = sorted(
        {n for _, leaf in found if isinstance(leaf, Tensor) and leaf.dim() > 1 for n in leaf.shape}
    )
    return [*packed, *(reading for leaf in found for reading in _readings(*leaf, steps))]


def _packed(name: str, value: PackedSequence) -> Reading:
    padded, lengths = pad_packed_sequence(value, batch_first=True)

    def write(new: Tensor) -> dict[str, Any]:
        new = new.sort(descending=True)[0] if value.sorted_indices is None else new
        return dict(
            leaves({name: pack_padded_sequence(padded, new, True, value.sorted_indices is None)})
        )

    return Reading(name, "a PackedSequence", lengths.tolist(), write)


def _readings(name: str, leaf: Any, steps: list[int]) -> Iterator[Reading]:
    if not (is_list(leaf) or _is_plain(leaf)):
        return
    values = torch.as_tensor(leaf).detach().cpu()
    flat, sides = values.flatten(), [n for n in values.shape if n != 1]

    def write(new: Tensor, steps: int = 1) -> dict[str, Any]:
        new = (new / steps if steps > 1 else new).to(values.dtype).reshape(values.shape)
        if isinstance(leaf, Tensor):
            return {name: new.to(leaf.device)}
        return {name: new.numpy() if isinstance(leaf, np.ndarray) else type(leaf)(new.tolist())}

    binary = bool(((flat == 0) | (flat == 1)).all())
    one_row = (
        values.shape[:1] == (1,) and values.dim() > 1 and len(sides) == 1
    )  # a batch of one sequence
    numbers = len(sides) < 2 and values.dtype != torch.bool and flat.min() >= 0 and flat.max() > 0
    if numbers and not (one_row and binary):
        if (flat == flat.round()).all():
            yield Reading(name, "whole numbers", flat.long().tolist(), write)
        for T in steps if values.is_floating_point() and flat.max() <= 1 else ():
            if (flat * T - (n := (flat * T).round())).abs().max() < 1e-3:
                yield Reading(name, f"parts of {T}", n.long().tolist(), partial(write, steps=T))
    sides = [1, *sides] if one_row else sides
    deep = len(sides) == 3 and not binary  # (B, S, C), the ids of the characters of words
    if not (len(sides) == 2 or deep) or (values.is_floating_point() and not binary):
        return
    for turned in (False,) if deep else (False, True):  # (B, T), or (T, B)
        rows = values.reshape(sides).T if turned else values.reshape(-1, sides[-1])
        at = torch.arange(rows.shape[1])
        for pad in sorted((0, 1), key=lambda pad: pad not in flat):
            n = (rows != pad).sum(1)
            if (
                not n.any()
                or not ((rows != pad) == (at < n[:, None])).all()
                or ((pad or deep) and pad not in flat)
            ):
                continue  # the padding is not at the end, or does not occur
            real = rows.where(rows != pad, rows[rows != pad][0])

            def put(
                new: Tensor, real: Tensor = real, pad: int = pad, turned: bool = turned
            ) -> dict[str, Any]:
                made = torch.where(
                    torch.arange(real.shape[1]) < new[:, None], real, torch.full_like(real, pad)
                )
                return write(made.T if turned else made)

            ids = f"ids{f' of {len(rows)} rows' * deep} padded with {pad}"
            form = ids if not binary else "a padding mask" if pad else "a mask"
            yield Reading(name, form, n.tolist(), put)


def others(lengths: list[int]) -> list[list[int]]:
    """Returns lists of other lengths for the same number of sequences, up to the same maximum.

    The first few lists rank the sequences by length as the example does, so that networks that
    expect sorted lengths accept them. The very first list has equal lengths if the example does
    not, and vice versa. If possible, its maximum and its sum also differ from the example's,
    because an equal sum would not reveal a captured network that keeps the sum.
    """
    batch, top, drawn = len(lengths), max(lengths), random.Random(0)

    def ranked(values: Iterable[int]) -> list[int]:
        order = sorted(range(batch), key=lambda i: -lengths[i])
        of = dict(zip(order, sorted(values, reverse=True), strict=True))
        return [max(1, of[i]) for i in range(batch)]

    equal = max(1, top - 1)
    if len(set(lengths)) > 1 or batch == 1:
        first = [max(1, min(lengths)) if equal * batch == sum(lengths) else equal] * batch
    else:
        first = [max(1, (equal if top > 2 else top) - i) for i in range(batch)]
    made = [first, [top] * batch, ranked([top, *(drawn.randint(1, top) for _ in lengths[1:])])]
    made += [
        ranked([top] + [1] * (batch - 1)),
        ranked(n - 1 for n in lengths),
        [1] * batch,
        lengths[::-1],
    ]
    made += [[drawn.randint(1, top) for _ in lengths]]
    if batch == 1:
        made += [[n] for n in range(1, top, max(1, top // 8))]
    return [list(n) for n in dict.fromkeys(map(tuple, made)) if list(n) != lengths]


class Trial(NamedTuple):
    """Inputs that the network accepted, and its results for them.

    Attributes:
        name: the name of these inputs, such as `lengths [5, 3]`.
        inputs: the values of the inputs.
        outputs: the leaves of the network's result.
        empty: whether the lengths contain a 0 that the example does not contain.
    """

    name: str
    inputs: Mapping[str, Any]
    outputs: list[Leaf]
    empty: bool = False


class Trials(NamedTuple):
    """The inputs on which a network was run.

    Attributes:
        varied: the readings that were varied.
        tried: the inputs that the network accepted; the first is the example.
        refused: the errors that the network raised on other inputs, by the names of these inputs.
    """

    varied: list[Reading]
    tried: list[Trial]
    refused: dict[str, Exception]


def trials(
    run: Runner, inputs: Mapping[str, Any], found: list[Reading], sized: bool = False
) -> Trials:
    """Runs the network on other lengths, on other floating-point numbers and, if `sized`, on
    batches of other sizes.

    Args:
        run: the `Runner` of the network.
        inputs: the example.
        found: the ways to read the inputs as lengths, most likely first.
        sized: whether to also try a batch with one more sequence, and one with more time steps.
    """
    together = [
        one for i, one in enumerate(found) if one.name not in {other.name for other in found[:i]}
    ]
    result = Trials(
        [],
        [Trial(_label(together, [one.lengths for one in together]), inputs, run.outputs(inputs))],
        {},
    )

    def attempt(name: str, new: Mapping[str, Any], empty: bool = False) -> bool:
        try:
            trial = Trial(name, made := replaced(inputs, new), run.outputs(made), empty)
            if empty and any(
                torch.as_tensor(leaf).isnan().any() for _, leaf in trial.outputs if _is_plain(leaf)
            ):
                raise ValueError("a result that contains NaN cannot be compared")
            result.tried.append(trial)
        except Exception as error:
            result.refused[name] = error
        return name not in result.refused

    changes: list[tuple[str, dict[str, Any]]] = [("", {})]
    for plan in (together, *([one] for one in found)):
        if {one.name for one in plan} & {one.name for one in result.varied}:
            continue
        made = (
            _changed(plan, n) for n in zip(*(others(one.lengths) for one in plan), strict=False)
        )
        took = [one for one in made if attempt(*one)]
        result.varied.extend(plan if took else [])
        changes += took
    known = {one.name for one in result.varied}
    tensors = [
        (name, leaf)
        for name, leaf in leaves(inputs)
        if isinstance(leaf, Tensor) and _is_plain(leaf)
    ]
    floats = {name: _negated(leaf) for name, leaf in tensors if leaf.is_floating_point()}
    plain = {name: leaf for name, leaf in floats.items() if name not in known}
    # A captured constant may show only for some numbers, and what looks like a mask or fractions
    # may be data.
    some = [(other, {**plain, **new}) for other, new in changes if plain]
    some += [("", {**plain, name: floats[name]}) for name in floats if name in known]
    for other, new in some:
        name = f"other numbers in {', '.join(name for name in new if name in floats)}{' and ' * bool(other)}{other}"
        if not attempt(name, new):
            del result.refused[name]  # the network may not accept such numbers
    at = axes(inputs, result.varied or together) if sized else {}
    for name, batch, steps in (
        (("one more sequence", 1, 0), ("2 more time steps", 0, 2)) if at else ()
    ):
        attempt(
            name,
            {
                leaf: _larger(value, at.get(leaf, {}), (batch, steps))
                for leaf, value in leaves(inputs)
            },
        )
    # On a GPU, an index of -1 = length - 1 would disable the device for the rest of the process.
    if not run.gpus(inputs) and any(map(all, (one.lengths for one in result.varied))):
        with suppress(RuntimeError):  # a PackedSequence cannot contain an empty sequence
            name, new = _changed(result.varied, [_emptied(one.lengths) for one in result.varied])
            attempt(name, new, empty=True)
            result.refused.pop(name, None)
    return result


def axes(inputs: Mapping[str, Any], found: list[Reading]) -> dict[str, dict[int, int]]:
    """Returns the axes along which each tensor or list holds sequences or time steps, by its name.

    Each value is a dict in which the axis of the sequences maps to 0, and axes of time map to 1.
    Inputs without an axis of sequences are left out.
    """
    if not found:
        return {}
    B, most = len(found[0].lengths), max(found[0].lengths)
    shapes = {name: [*leaf.shape] if isinstance(leaf, (Tensor, np.ndarray)) else [len(leaf)] if is_list(leaf) else []
              for name, leaf in leaves(inputs)}  # fmt: skip
    batches = [shape for shape in shapes.values() if len(shape) > 1 and B in shape[:2]]
    T = min(
        (n for shape in batches for i, n in enumerate(shape) if i != shape.index(B) and n >= most),
        default=most,
    )
    result: dict[str, dict[int, int]] = {}
    for name, shape in shapes.items():
        if B in shape[:2]:
            first = shape.index(B)
            result[name] = {first: 0} | {i: 1 for i, n in enumerate(shape) if i != first and n == T}
    return result


def _larger(leaf: Any, at: Mapping[int, int], more: tuple[int, int]) -> Any:
    """Returns a leaf with more sequences or time steps, which repeat its last entries along these axes."""
    if is_list(leaf):
        return [*leaf, *leaf[-1:] * (more[0] if at else 0)]
    for axis, kind in at.items():
        index = np.arange(leaf.shape[axis] + more[kind]).clip(max=leaf.shape[axis] - 1)
        leaf = leaf[(slice(None),) * axis + (index,)]
    return leaf


def _is_plain(leaf: Any) -> bool:
    """Returns whether a leaf is a dense tensor or an array that contains real numbers and is not empty."""
    if isinstance(leaf, Tensor):
        return (
            leaf.layout == torch.strided
            and not (leaf.is_meta or leaf.is_complex())
            and leaf.numel() > 0
        )
    return isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biuf" and leaf.size > 0


def _negated(leaf: Tensor) -> Tensor:
    """Returns the negative of a leaf, or random numbers if the leaf is zero. Half of the first entry is set to zero."""
    generator = torch.Generator(leaf.device).manual_seed(0)
    new = (
        -leaf.detach()
        if leaf.any()
        else torch.randn(leaf.shape, generator=generator, device=leaf.device).to(leaf)
    )
    if new.dim():
        new = new.contiguous()
        new[0].reshape(-1)[new[0].numel() // 2 :] = 0
    return new


def _emptied(lengths: list[int]) -> list[int]:
    """Returns the lengths with 0 in place of the last of the shortest."""
    at = max(range(len(lengths)), key=lambda i: (-lengths[i], i))
    return [n * (i != at) for i, n in enumerate(lengths)]


def _changed(plan: Iterable[Reading], numbers: Iterable[list[int]]) -> tuple[str, dict[str, Any]]:
    """Returns the name of inputs with other lengths, and the leaves that differ from the example's."""
    made = [one.write(torch.tensor(n)) for one, n in zip(plan, numbers, strict=True)]
    return _label(plan, numbers), dict(chain.from_iterable(one.items() for one in made))


def _label(plan: Iterable[Reading], numbers: Iterable[list[int]]) -> str:
    """Returns a text such as `lengths [5, 3]`. Inputs with the same lengths are named together."""
    by: dict[str, list[str]] = {}
    for one, n in zip(plan, numbers, strict=True):
        few = str(n) if len(n) <= 8 else f"[{', '.join(map(str, n[:6]))}, …]"
        by.setdefault(few, []).append(one.name)
    return " and ".join(f"{', '.join(names)} {few}" for few, names in by.items()) or "the example"


def difference(want: list[Leaf], got: list[Leaf], tolerance: float) -> tuple[float, str]:
    """Returns the largest difference and a description of it, or 0 and an empty string if the
    results agree.

    Two values agree if they differ by at most `tolerance` times the largest number in the value
    from `want`.
    """
    if [name for name, _ in want] != [name for name, _ in got]:
        return float("inf"), f"gives {len(got)} results instead of {len(want)}"
    worst = 0.0, ""
    for (name, one), (_, other) in zip(want, got, strict=True):
        if not isinstance(one, (Tensor, np.ndarray, int, float, torch.Size)) and not is_list(one):
            continue
        with suppress(TypeError, ValueError):
            a, b = (torch.as_tensor(value).detach().cpu() for value in (one, other))
            if a.shape != b.shape:
                return float(
                    "inf"
                ), f"gives {name} of shape {tuple(b.shape)} instead of {tuple(a.shape)}"
            a, b = (
                one.to(torch.complex128 if one.is_complex() else torch.float64) for one in (a, b)
            )
            gap = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs()).nan_to_num(
                torch.inf, torch.inf
            )
            if a.numel() and gap.max() > tolerance * a.abs().nan_to_num(0, 0).max():
                worst = max(
                    worst, (float(gap.max()), f"gives {name} that differs by {gap.max():.2g}")
                )
    return worst
