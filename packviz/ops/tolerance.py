"""Defines how far two results may differ because of rounding, for each dtype and device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""Tolerances for states, by dtype. Two values agree if they differ by at most this share of the largest value."""

TOLERANCE_TF32 = 5e-3
"""The tolerance for float32 on a CUDA device if cuDNN multiplies in TF32, which has a 10-bit mantissa."""


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
    (where, name, _), _ = _switches()
    return getattr(where, name) in (True, "tf32")


@contextmanager
def full_precision(tf32: bool = False) -> Iterator[None]:
    """Switches TF32 off on CUDA within a `with` block, for all RNNs and matrix products in the
    process.

    By default, cuDNN computes float32 in TF32.

    Args:
        tf32: whether to switch TF32 on instead of off.
    """
    before = [(where, name, getattr(where, name)) for where, name, _ in _switches()]
    try:
        for switch in _switches(tf32):
            setattr(*switch)
        yield
    finally:
        for switch in before:
            setattr(*switch)


def _switches(tf32: bool = False) -> list[tuple[Any, str, Any]]:
    """Returns the settings for TF32, one for RNNs and one for matrix products.

    Each setting consists of an object, the name of its attribute, and the attribute's new value.
    torch 2.9 and newer have a newer attribute for each setting. Once that is set, torch raises an
    error if the older attribute is read. Older releases have no `cudnn.rnn`.
    """
    cudnn, products = torch.backends.cudnn, torch.backends.cuda.matmul
    return [
        (new, "fp32_precision", "tf32" if tf32 else "ieee")
        if hasattr(new, "fp32_precision")
        else (old, "allow_tf32", tf32)
        for new, old in ((getattr(cudnn, "rnn", None), cudnn), (products, products))
    ]
