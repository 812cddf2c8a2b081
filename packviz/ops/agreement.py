"""Measures how far apart results are, and defines how far rounding may move them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from packviz.core.validation import kind_of

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""The largest difference between states that agree, as a share of the largest value, by dtype."""

TOLERANCE_TF32 = 5e-3
"""The tolerance for float32 on a GPU if cuDNN multiplies in TF32, with its 10-bit mantissa."""


def of_states(dtype: torch.dtype, device: str) -> float:
    """Returns how far states may differ, as a share of the largest value; 0 for whole numbers.

    Args:
        dtype: the dtype in which the states were computed.
        device: the device on which the states were computed, `"cpu"` or `"cuda"`.
    """
    if not dtype.is_floating_point:
        return 0.0
    if dtype == torch.float32 and device == "cuda" and multiplies_in_tf32():
        return TOLERANCE_TF32
    return TOLERANCE.get(dtype, TOLERANCE[torch.float32])


def of_gradients(dtype: torch.dtype) -> float:
    """Returns the tolerance for gradients of weights; 0 for integer dtypes.

    Such gradients are sums of many terms that partly cancel, so only about half of the digits
    agree. In TF32, so few digits are left that a wrong gradient could pass. Therefore, compare
    gradients in `full_precision`.
    """
    return 4 * math.sqrt(torch.finfo(dtype).eps) if dtype.is_floating_point else 0.0


def multiplies_in_tf32() -> bool:
    """Returns whether cuDNN may run an RNN in TF32."""
    switch, name = _switches()[0]
    return getattr(switch, name) in (True, "tf32")


@contextmanager
def full_precision(tf32: bool = False) -> Iterator[None]:
    """Switches TF32 off on CUDA in a `with` block, for all RNNs and matrix products.

    By default, cuDNN computes float32 in TF32.

    Args:
        tf32: whether to switch TF32 on instead of off.
    """
    before = [(switch, name, getattr(switch, name)) for switch, name in _switches()]
    try:
        for switch, name in _switches():
            is_newer = name == "fp32_precision"
            value = ("tf32" if tf32 else "ieee") if is_newer else tf32
            setattr(switch, name, value)
        yield
    finally:
        for switch, name, value in before:
            setattr(switch, name, value)


def _switches() -> list[tuple[object, str]]:
    """Returns the settings for TF32, for RNNs and for matrix products.

    Each is an object and the name of its attribute.

    torch 2.9 and newer have a newer attribute for each setting. Once that is set, torch raises an
    error if the older attribute is read. Older releases have no `cudnn.rnn`.
    """
    cudnn = torch.backends.cudnn
    products = torch.backends.cuda.matmul
    switches: list[tuple[object, str]] = []
    for newer, older in ((getattr(cudnn, "rnn", None), cudnn), (products, products)):
        if hasattr(newer, "fp32_precision"):
            switches.append((newer, "fp32_precision"))
        else:
            switches.append((older, "allow_tf32"))
    return switches


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
