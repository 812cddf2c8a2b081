"""Defines how far rounding may move results."""

from __future__ import annotations

import math

import torch

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""The largest difference between states that agree, as a share of the largest value, by dtype."""

TOLERANCE_TF32 = 5e-3
"""The tolerance for float32 on a GPU if cuDNN multiplies in TF32, with its 10-bit mantissa."""


def state_tolerance(dtype: torch.dtype, device: str) -> float:
    """Returns how far states may differ, as a share of the largest value; 0 for whole numbers.

    Args:
        dtype: the dtype in which the states were computed.
        device: the device on which the states were computed, `"cpu"` or `"cuda"`.
    """
    if not dtype.is_floating_point:
        return 0.0
    if dtype == torch.float32 and device == "cuda" and rnn_may_use_tf32():
        return TOLERANCE_TF32
    return TOLERANCE.get(dtype, TOLERANCE[torch.float32])


def gradient_tolerance(dtype: torch.dtype) -> float:
    """Returns the tolerance for gradients of weights; 0 for integer dtypes.

    Such gradients are sums of many terms that partly cancel, so only about half of the digits
    agree. In TF32, so few digits are left that a wrong gradient could pass. Therefore, compare
    gradients in `full_precision`.
    """
    return 4 * math.sqrt(torch.finfo(dtype).eps) if dtype.is_floating_point else 0.0


def rnn_may_use_tf32() -> bool:
    """Returns whether cuDNN may run an RNN in TF32."""
    backend, name = tf32_settings()[0]
    return getattr(backend, name) in (True, "tf32")


def tf32_settings() -> list[tuple[object, str]]:
    """Returns the TF32 settings for RNNs and for matrix products.

    Each is an object and the name of its attribute.

    torch 2.9 and newer have a newer attribute for each setting. Once that is set, torch raises an
    error if the older attribute is read. Older releases have no `cudnn.rnn`.
    """
    cudnn = torch.backends.cudnn
    matmul = torch.backends.cuda.matmul
    settings: list[tuple[object, str]] = []
    for new_backend, old_backend in ((getattr(cudnn, "rnn", None), cudnn), (matmul, matmul)):
        if hasattr(new_backend, "fp32_precision"):
            settings.append((new_backend, "fp32_precision"))
        else:
            settings.append((old_backend, "allow_tf32"))
    return settings
