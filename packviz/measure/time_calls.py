"""Defines `pv.time_calls`, which times functions of your own, such as two training steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from packviz.core.validation import require_nonnegative, require_seconds
from packviz.measure.machine import check_device
from packviz.measure.timing import Timing, measure
from packviz.ops.agreement import leaves, parts, relative_difference
from packviz.ops.tolerance import state_tolerance

_MAX_ROUNDS = 1000


def time_calls(
    calls: Mapping[str, Callable[[], Any]],
    *,
    setup: Callable[[], object] | None = None,
    check: bool = True,
    tolerance: float | None = None,
    device: str | torch.device | None = None,
    budget: float = 10.0,
) -> Timing:
    """Times functions of your own, and checks that they all return the same results.

    Every round calls each function once, in a random order, so a machine that is busy or warming up
    slows all of them alike. Rounds are repeated until the ratios are known to about 5 %, or the
    budget is spent. A call may be a training step::

        def step():  # with gradients that start from zero each time
            model.zero_grad()
            model(x).sum().backward()
            return [weight.grad for weight in model.parameters()]

        print(pv.time_calls({"before": step, "after": faster_step}))

    To compare the results, every function is first called from the same random state, so that all
    draw the same dropout masks. The random state is restored afterwards. If a step changes its own
    state, as an optimiser does, let `setup` reset that state; otherwise the results differ.

    Args:
        calls: the functions, by name. They are called without arguments. If yours take any, use a
            `lambda`.
        setup: a function to run before each call, outside the measured time, for example to clear
            gradients, or to load the state of a model and its optimiser.
        check: whether to compare the results: tensors, numbers, NumPy arrays, and tuples, lists or
            dicts of these. Functions that return `None` are not compared, and the text of the
            `Timing` lists them.
        tolerance: two results agree if they differ by at most this share of the largest value.
            Defaults to the error that rounding may cause in the dtype of the results: for example
            1e-5 in float32 (5e-3 on a GPU if cuDNN may use TF32), 1e-10 in float64, and 0 for whole
            numbers.
        device: the device that does the work. The clock waits until the device has finished.
            Defaults to the device of the results.
        budget: the time for the whole measurement in seconds. Each function is called at least ten
            times, even if that takes longer.

    Returns:
        A `Timing` with `.median(name)` and `.ratio(name, to)`. Its text lists all times, and states
        how closely the results agree.

    Raises:
        TypeError: `calls` is not a dict of functions, or one of them returns something that cannot
            be compared.
        ValueError: the results differ or contain NaN (the error names the function, the part of its
            result, and the difference), there is nothing to time, a number is out of range, or CUDA
            is in use and the results do not show where the work is done.

    Examples:
        >>> import packviz as pv, torch
        >>> x = torch.randn(64, 64)
        >>> calls = {"copied": lambda: x.T.contiguous() @ x, "as it is": lambda: x.T @ x}
        >>> timing = pv.time_calls(calls, budget=0.1)
        >>> timing.median("copied") > 0
        True
    """
    end = time.monotonic() + require_seconds("budget", budget)
    if not isinstance(calls, Mapping) or not all(map(callable, calls.values())):
        raise TypeError(f'calls is {calls!r}; give functions by name: {{"before": f, "after": g}}')
    if tolerance is not None:
        tolerance = require_nonnegative("tolerance", tolerance)
    if device is not None:
        device = check_device(device)
    is_cuda_initialized: Callable[[], bool] = torch.cuda.is_initialized  # in this process
    gpus = range(torch.cuda.device_count()) if is_cuda_initialized() else ()
    results = {}
    with torch.random.fork_rng(gpus):
        for name, call in calls.items():
            with torch.random.fork_rng(gpus):
                if setup:
                    setup()
                result = call()
            tensors = [part for _, part in parts(result) if isinstance(part, Tensor)]
            places = [str(tensor.device) for tensor in tensors if not tensor.is_cpu]
            device = device or next(iter(places), None)
            if check and result is not None:
                # `leaves` copies, because the next call may write to the same memory.
                results[name] = leaves(result)
            del result, tensors  # they may be large
        if device is None and is_cuda_initialized():
            raise ValueError(
                "the results do not show where the work is done; pass device='cuda' or device='cpu'"
            )
        device = device or "cpu"
        agreement_text = "Results were not compared (check=False)."
        if check:
            agreement_text = _check_agreement(results, tolerance, device)
            empty = [name for name in calls if name not in results]
            if empty:
                agreement_text += f" Not compared, because they return None: {', '.join(empty)}."
        results.clear()
        timing = measure(
            calls,
            rounds=_MAX_ROUNDS,
            device=device,
            before_call=setup,
            until_narrow=True,
            budget=end - time.monotonic(),
        )
    return replace(timing, provenance={**timing.provenance, "agreement": agreement_text.strip()})


def _check_agreement(
    results: Mapping[str, Mapping[str, Tensor]], tolerance: float | None, device: str
) -> str:
    """Checks that the results agree, and returns a sentence that states how closely."""
    if len(results) < 2:
        return ""
    (first, right), *others = results.items()
    largest = 0.0
    for name, result in others:
        problem = f"{name!r} does not return what {first!r} returns: "
        unmatched_parts = right.keys() ^ result.keys()
        if unmatched_parts:
            part = min(unmatched_parts)
            raise ValueError(f"{problem}only {(first if part in right else name)!r} returns {part}")
        for part, expected in right.items():
            actual = result[part]
            if actual.shape != expected.shape:
                raise ValueError(
                    f"{problem}{part} has shape {tuple(actual.shape)}, not {tuple(expected.shape)}"
                )
            error = relative_difference(actual, expected)
            allowed_error = tolerance
            if allowed_error is None:
                allowed_error = state_tolerance(expected.dtype, device.partition(":")[0])
            if error > allowed_error:
                difference = (
                    f"{part} differs by {error:.2g} of its largest value (allowed:"
                    f" {allowed_error:.2g})"
                )
                remedy = "pass a larger tolerance=, or check=False"
                if math.isinf(error):
                    difference = f"{part} holds NaN, or infinity for one of them only"
                    remedy = "pass check=False"
                raise ValueError(
                    f"{problem}{difference}; if a call changes its own state, reset it in setup=;"
                    f" if the difference is intended, {remedy}"
                )
            largest = max(largest, error)
    closeness_text = f"to within {largest:.2g} of the largest value" if largest else "exactly"
    return f"Results agree {closeness_text} with those of {first}."
