"""When two results agree: how far rounding may take them apart, by dtype and device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""By dtype, of states: two values agree if they differ by at most this share of the largest value."""

TOLERANCE_TF32 = 5e-3
"""The same for float32 on a CUDA device where cuDNN multiplies in TF32: 10 bits behind the point."""


def of_states(dtype: torch.dtype, device: str) -> float:
    """The share of the largest value by which states may differ. 0 for whole numbers.

    Args:
        dtype: they were computed in.
        device: `"cpu"` or `"cuda"`, where they were computed.
    """
    if not dtype.is_floating_point:
        return 0.0
    if dtype == torch.float32 and device == "cuda" and multiplies_in_tf32():
        return TOLERANCE_TF32
    return TOLERANCE.get(dtype, TOLERANCE[torch.float32])


def of_gradients(dtype: torch.dtype) -> float:
    """The same of gradients to weights, sums of many terms that cancel: half of the digits. 0 for whole numbers.

    In TF32 so few digits are left that a wrong gradient could pass: compare in `full_precision`.
    """
    return 4 * math.sqrt(torch.finfo(dtype).eps) if dtype.is_floating_point else 0.0


def multiplies_in_tf32() -> bool:
    """Whether cuDNN may run an RNN in TF32."""
    (where, name, _), _ = _switches()
    return getattr(where, name) in (True, "tf32")


@contextmanager
def full_precision(tf32: bool = False) -> Iterator[None]:
    """For the whole process, float32 is multiplied as float32 on CUDA: not in TF32, which is the default of cuDNN.

    Args:
        tf32: the opposite: RNNs and products all multiply in TF32.
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
    """Returns the settings of how torch multiplies float32 on CUDA, in RNNs and in products: object, name and value.

    Torch 2.9 and newer have a switch for each, and where one was set, asking for the older one is an error. Older
    releases have no `cudnn.rnn`.
    """
    cudnn, products = torch.backends.cudnn, torch.backends.cuda.matmul
    return [
        (new, "fp32_precision", "tf32" if tf32 else "ieee")
        if hasattr(new, "fp32_precision")
        else (old, "allow_tf32", tf32)
        for new, old in ((getattr(cudnn, "rnn", None), cudnn), (products, products))
    ]
