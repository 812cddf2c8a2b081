"""Measures how far apart results are. `tolerance` says how far apart rounding may move them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
) -> tuple[float, int | None]:
    """Compares two lists of results, pair by pair.

    Args:
        ours: the results to check.
        theirs: the results that `ours` should equal.
        allowed: a function that takes a dtype and returns the largest error that rounding can
            explain.

    Returns:
        A difference and an index. If no pair differs by more than is allowed, these are the largest
        `relative_difference` of all pairs and `None`. Otherwise, they are the largest difference
        among the pairs that differ by more, and the index of the first of these pairs. The
        difference between results of different shapes is infinite.
    """
    errors = []
    wrong = {}
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        error = relative_difference(a, b) if a.shape == b.shape else math.inf
        errors.append(error)
        if error > allowed(b.dtype):
            wrong[i] = error
    if wrong:
        return max(wrong.values()), min(wrong)
    return max(errors, default=0.0), None


def leaves(nested: Any, name: str = "result") -> dict[str, Tensor]:
    """Returns CPU copies of the tensors in nested tuples, lists and dicts, by name.

    A name looks like `result[0]['loss']`.

    Numbers and NumPy arrays become tensors, complex values become pairs of real ones, and `None` is
    left out.

    Raises:
        TypeError: `nested` contains something that cannot become a tensor.
    """
    if nested is None:
        return {}
    if getattr(nested, "is_nested", False):
        nested = nested.unbind()
    if isinstance(nested, (Mapping, tuple, list)):
        parts: dict[str, Tensor] = {}
        for key, part in nested.items() if isinstance(nested, Mapping) else enumerate(nested):
            parts |= leaves(part, f"{name}[{key!r}]")
        return parts
    try:
        leaf = torch.as_tensor(nested).detach().to("cpu", copy=True)
    except (TypeError, ValueError, RuntimeError):
        expected = "return tensors, numbers, or tuples, lists and dicts of these"
        raise TypeError(f"{name} is {kind_of(nested)}; {expected}") from None
    if leaf.layout != torch.strided:
        leaf = leaf.to_dense()
    if leaf.is_complex():
        leaf = torch.view_as_real(leaf.resolve_conj())
    return {name: leaf}


def require_same(
    results: Mapping[str, Mapping[str, Tensor]], allowed: Callable[[torch.dtype], float]
) -> float:
    """Checks that several functions return the same results as the first of them.

    Args:
        results: the result of each function, by the function's name, in the form that `leaves`
            returns.
        allowed: a function that takes a dtype and returns the largest error that rounding can
            explain.

    Returns:
        The largest `relative_difference` from the results of the first function.

    Raises:
        ValueError: the results of two functions disagree. The message names the first part that
            differs, and describes the difference.
    """
    (first, right), *others = results.items()
    largest = 0.0
    for name, result in others:
        problem = f"{name} does not return what {first} returns: "
        for part in {**right, **result}:
            if part not in result:
                raise ValueError(f"{problem}{part} is returned by {first} but not by {name}")
            if part not in right:
                raise ValueError(f"{problem}{part} is returned by {name} but not by {first}")
        for part, wanted in right.items():
            shape = tuple(result[part].shape)
            if shape != wanted.shape:
                raise ValueError(f"{problem}{part} has shape {shape}, not {tuple(wanted.shape)}")
            error = relative_difference(result[part], wanted)
            most = allowed(wanted.dtype)
            if error > most:
                rounding = f"only {most:.2g} is allowed"
                value = f"{error:.2g} of its largest value"
                raise ValueError(f"{problem}{part} differs by {value}; {rounding}")
            largest = max(largest, error)
    return largest
