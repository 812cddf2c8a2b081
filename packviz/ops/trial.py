"""Does torch do inside what `run` takes for given? Found out once per process, on a torch that no test was run on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from packviz.ops import private
from packviz.ops.agreement import relative_difference

_MOST = 1e-3  # of the largest value; rounding comes to some 1e-6
_LENGTHS = ([4, 2, 1], [4, 4, 4])

_passed: dict[tuple[str, bool, str], bool] = {}
_on_trial = threading.RLock()  # other threads wait; what is tried is let through


def passed(methods: Callable[..., list[Any]], mode: str, projected: bool, device: str) -> bool:
    """Whether all methods of running an RNN give the same results.

    Args:
        methods: called as `methods(rnn, x, lengths)`: the output and the final state by each.
        mode: of the RNN.
        projected: whether it has a projection.
        device: `"cpu"` or `"cuda"`.
    """
    if private.IS_TESTED:
        return True
    key = mode, projected, device
    with _on_trial:
        if key not in _passed:
            _passed[key] = True
            _passed[key] = _agree(methods, *key)
        return _passed[key]


def _agree(methods: Callable[..., list[Any]], mode: str, projected: bool, device: str) -> bool:
    kind, _, nonlinearity = mode.partition("_")
    options: dict[str, Any] = {"nonlinearity": nonlinearity.lower()} if nonlinearity else {}
    options |= {"proj_size": 2} if projected else {}
    dtype = torch.float32 if device == "cpu" else torch.float64  # oneDNN knows the one, cuDNN's TF32 blurs it
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast(device, enabled=False):
        rnn = getattr(nn, kind)(2, 3, bidirectional=True, device="meta", dtype=dtype, **options)
        rnn.to_empty(device=device)  # draws no random numbers
        for weight in rnn.parameters():
            weight.data = _numbers(*weight.shape).to(device, dtype)
        try:
            return all(_agree_on(methods, rnn, lengths) for lengths in _LENGTHS)
        except Exception:
            return False


def _agree_on(methods: Callable[..., list[Any]], rnn: nn.RNNBase, lengths: list[int]) -> bool:
    weights = list(rnn.parameters())
    x = _numbers(max(lengths), len(lengths), 2).to(weights[0]).requires_grad_()
    expected, *others = (_with_gradients(result, [x, *weights]) for result in methods(rnn, x, lengths))
    return all(relative_difference(a, b) < _MOST for one in others for a, b in zip(one, expected, strict=True))


def _with_gradients(result: Any, inputs: list[Tensor]) -> list[Tensor]:
    out, final = result
    values = [out, *(final if isinstance(final, tuple) else (final,))]
    return [*values, *torch.autograd.grad(sum(value.square().sum() for value in values), inputs)]


def _numbers(*shape: int) -> Tensor:
    return torch.arange(float(torch.Size(shape).numel()), dtype=torch.float32).sin().view(shape)
