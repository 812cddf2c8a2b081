"""Measures how far apart results are. `tolerance` gives the distance that rounding explains."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from packviz.core.validation import kind_of
from packviz.ops.tolerance import tf32_switches


@contextmanager
def full_precision(tf32: bool = False) -> Iterator[None]:
    """Switches TF32 off on CUDA in a `with` block, for all RNNs and matrix products.

    By default, cuDNN computes float32 in TF32.

    Args:
        tf32: whether to switch TF32 on instead of off.
    """
    before = [(switch, name, getattr(switch, name)) for switch, name in tf32_switches()]
    try:
        for switch, name in tf32_switches():
            is_newer = name == "fp32_precision"
            value = ("tf32" if tf32 else "ieee") if is_newer else tf32
            setattr(switch, name, value)
        yield
    finally:
        for switch, name, value in before:
            setattr(switch, name, value)


def scales(results: Tensor, differ: Tensor) -> Tensor:
    """Returns for each number the size of which rounding may have changed a share.

    A number that both results have, such as the −1e9 of a mask, has no such size. But if only a
    number near zero differs, it was a sum of others, and has kept their rounding.

    Args:
        results: the numbers of one result.
        differ: whether they differ from those of the other.
    """
    sizes = results.abs().nan_to_num(0, 0)
    return torch.maximum(sizes * differ, sizes.clamp(max=1) / 100)


def relative_difference(ours: Tensor, theirs: Tensor) -> float:
    """Returns the largest difference between two tensors, relative to the largest value.

    That is the largest finite absolute value in `theirs`.

    The result is infinite if either tensor contains NaN, or contains an infinity where the other
    has a different value.
    """
    if not theirs.numel():
        return 0.0
    ours = ours.detach().double()
    theirs = theirs.detach().double()
    gap = (ours - theirs).abs().masked_fill(ours == theirs, 0.0)  # equal infinities do not differ
    finite = theirs.abs().masked_fill(theirs.isinf(), 0.0)
    share = float(gap.max()) / max(float(finite.max()), 1e-300)
    return share if math.isfinite(share) else math.inf


def relative_error(
    ours: Sequence[Tensor], theirs: Sequence[Tensor], allowed: Callable[[torch.dtype], float]
) -> tuple[float, bool]:
    """Compares two lists of results, pair by pair.

    Args:
        ours: the results to check.
        theirs: the results that `ours` should equal.
        allowed: a function that takes a dtype and returns the largest error that rounding can
            explain.

    Returns:
        The largest `relative_difference` of all pairs, and whether no pair differs by more than is
        allowed. If some pairs differ by more, the difference is the largest of theirs. The
        difference between results of different shapes is infinite.
    """
    errors = []
    wrong = []
    if len(ours) != len(theirs):
        raise ValueError(f"results differ in number: {len(ours)} and {len(theirs)} tensors")
    for a, b in zip(ours, theirs, strict=True):
        error = relative_difference(a, b) if a.shape == b.shape else math.inf
        errors.append(error)
        if error > allowed(b.dtype):
            wrong.append(error)
    return max(wrong or errors, default=0.0), not wrong


def parts(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields what is in nested tuples, lists, mappings and dataclasses, with its place.

    A place looks like `[0]['loss']`, after the given name.
    """
    if getattr(value, "is_nested", False):
        value = value.unbind()
    if isinstance(value, (tuple, list)):
        value = dict(enumerate(value))
    if isinstance(value, Mapping):
        inner = {f"[{key!r}]": part for key, part in value.items()}
    elif is_dataclass(value) and not isinstance(value, type):
        inner = {f".{field.name}": getattr(value, field.name) for field in fields(value)}
    else:
        yield name, value
        return
    for place, part in inner.items():
        yield from parts(part, name + place)


def leaves(nested: Any) -> dict[str, Tensor]:
    """Returns CPU copies of the tensors in nested tuples, lists and dicts, by name.

    A name looks like `result[0]['loss']`.

    Numbers and NumPy arrays become tensors, complex values become pairs of real ones, and `None` is
    left out.

    Raises:
        TypeError: `nested` contains something that cannot become a tensor.
    """
    copies = {}
    for name, part in parts(nested, "result"):
        if part is None:
            continue
        try:
            leaf = torch.as_tensor(part).detach().to("cpu", copy=True)
        except (TypeError, ValueError, RuntimeError):
            expected = "return tensors, numbers, arrays, or tuples, lists and dicts of these"
            raise TypeError(f"a call's {name} is {kind_of(part)}; {expected}") from None
        if leaf.layout != torch.strided:
            leaf = leaf.to_dense()
        if leaf.is_complex():
            leaf = torch.view_as_real(leaf.resolve_conj())
        copies[name] = leaf
    return copies
