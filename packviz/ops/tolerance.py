"""When two results agree: how far rounding may take them apart, by dtype and device."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""By dtype, of states: two values agree if they differ by at most this share of the largest value."""

TOLERANCE_TF32 = 5e-3
"""The same for float32 on a CUDA device, where cuDNN may multiply in TF32: 10 bits behind the point."""


def of_states(dtype: torch.dtype, device: str) -> float:
    """The share of the largest value by which states may differ.

    Args:
        dtype: they were computed in.
        device: `"cpu"` or `"cuda"`, where they were computed.
    """
    return TOLERANCE_TF32 if _may_be_tf32(dtype, device) else TOLERANCE.get(dtype, TOLERANCE[torch.float32])


def of_gradients(dtype: torch.dtype, device: str) -> float:
    """The same of gradients to weights, sums of many terms that cancel: half of the digits. 0 for whole numbers."""
    if not dtype.is_floating_point:
        return 0.0
    coarse = _may_be_tf32(dtype, device) and multiplies_in_tf32()
    return 4 * math.sqrt(2**-10 if coarse else torch.finfo(dtype).eps)


def multiplies_in_tf32() -> bool:
    """Whether cuDNN may run an RNN in TF32."""
    cudnn: Any = torch.backends.cudnn
    try:
        return bool(cudnn.allow_tf32)
    except RuntimeError:  # set apart for RNNs and convolutions, as torch 2.9 and newer can
        return bool(cudnn.rnn.fp32_precision == "tf32")


def apart(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, relative to the largest of `theirs`; infinite where a number is none."""
    ours, theirs = ours.detach().double(), theirs.detach().double()
    found = float((ours - theirs).abs().max()) / max(float(theirs.abs().max()), 1e-300)
    return found if math.isfinite(found) else math.inf


def _may_be_tf32(dtype: torch.dtype, device: str) -> bool:
    return dtype == torch.float32 and device == "cuda"
