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
from packviz.ops.tolerance import tf32_settings


@contextmanager
def full_precision(use_tf32: bool = False) -> Iterator[None]:
    """Switches TF32 off on CUDA in a `with` block, for all RNNs and matrix products.

    By default, cuDNN computes float32 in TF32.

    Args:
        use_tf32: whether to switch TF32 on instead of off.
    """
    saved_settings = [(backend, name, getattr(backend, name)) for backend, name in tf32_settings()]
    try:
        for backend, name in tf32_settings():
            is_new_setting = name == "fp32_precision"
            value = ("tf32" if use_tf32 else "ieee") if is_new_setting else use_tf32
            setattr(backend, name, value)
        yield
    finally:
        for backend, name, value in saved_settings:
            setattr(backend, name, value)


def rounding_scales(result: Tensor, is_different: Tensor) -> Tensor:
    """Returns for each number the size of which rounding may have changed a share.

    A number that both results have, such as the −1e9 of a mask, has no such size. But if only a
    number near zero differs, it was a sum of others, and has kept their rounding.

    Args:
        result: the numbers of one result.
        is_different: whether they differ from those of the other.
    """
    magnitudes = result.abs().nan_to_num(0, 0)
    return torch.maximum(magnitudes * is_different, magnitudes.clamp(max=1) / 100)


def relative_difference(result: Tensor, expected: Tensor) -> float:
    """Returns the largest difference between two tensors, relative to the largest value.

    That is the largest finite absolute value in `expected`.

    The result is infinite if either tensor contains NaN, or contains an infinity where the other
    has a different value.
    """
    if not expected.numel():
        return 0.0
    result = result.detach().double()
    expected = expected.detach().double()
    # Equal infinities do not differ.
    difference = (result - expected).abs().masked_fill(result == expected, 0.0)
    finite_magnitudes = expected.abs().masked_fill(expected.isinf(), 0.0)
    ratio = float(difference.max()) / max(float(finite_magnitudes.max()), 1e-300)
    return ratio if math.isfinite(ratio) else math.inf


def relative_error(
    results: Sequence[Tensor], expected: Sequence[Tensor], tolerance: Callable[[torch.dtype], float]
) -> tuple[float, bool]:
    """Compares two lists of results, pair by pair.

    Args:
        results: the results to check.
        expected: the results that `results` should equal.
        tolerance: a function that takes a dtype and returns the largest error that rounding can
            explain.

    Returns:
        The largest `relative_difference` of all pairs, and whether no pair differs by more than is
        allowed. If some pairs differ by more, the difference is the largest of theirs. The
        difference between results of different shapes is infinite.
    """
    errors = []
    excess_errors = []
    if len(results) != len(expected):
        raise ValueError(f"results differ in number: {len(results)} and {len(expected)} tensors")
    for a, b in zip(results, expected, strict=True):
        error = relative_difference(a, b) if a.shape == b.shape else math.inf
        errors.append(error)
        if error > tolerance(b.dtype):
            excess_errors.append(error)
    return max(excess_errors or errors, default=0.0), not excess_errors


def parts(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields what is in nested tuples, lists, mappings and dataclasses, with its place.

    A place looks like `[0]['loss']`, after the given name.
    """
    if getattr(value, "is_nested", False):
        value = value.unbind()
    if isinstance(value, (tuple, list)):
        value = dict(enumerate(value))
    if isinstance(value, Mapping):
        inner_parts = {f"[{key!r}]": part for key, part in value.items()}
    elif is_dataclass(value) and not isinstance(value, type):
        inner_parts = {f".{field.name}": getattr(value, field.name) for field in fields(value)}
    else:
        yield name, value
        return
    for place, part in inner_parts.items():
        yield from parts(part, name + place)


def leaves(result: Any) -> dict[str, Tensor]:
    """Returns CPU copies of the tensors in nested tuples, lists and dicts, by name.

    A name looks like `result[0]['loss']`.

    Numbers and NumPy arrays become tensors, complex values become pairs of real ones, and `None` is
    left out.

    Raises:
        TypeError: `result` contains something that cannot become a tensor.
    """
    tensors = {}
    for name, part in parts(result, "result"):
        if part is None:
            continue
        try:
            leaf = torch.as_tensor(part).detach().to("cpu", copy=True)
        except (TypeError, ValueError, RuntimeError):
            advice = "return tensors, numbers, arrays, or tuples, lists and dicts of these"
            raise TypeError(f"a call's {name} is {kind_of(part)}; {advice}") from None
        if leaf.layout != torch.strided:
            leaf = leaf.to_dense()
        if leaf.is_complex():
            leaf = torch.view_as_real(leaf.resolve_conj())
        tensors[name] = leaf
    return tensors
