"""The most memory that one call has in use at once, as the allocator that hands it out counts it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

from packviz.bench.machine import own_pages
from packviz.core.quiet import closed


def peak(call: Callable[[], object], device: Any = "cpu") -> int | None:
    """Runs a call once and counts.

    Counted are the blocks that torch's allocator gives out and takes back: all tensors, and what an operator needs on
    the way and asks torch for (oneDNN's and cuDNN's workspaces too). Not counted: what Python and a library allocate by
    themselves, and what a caching allocator holds back in reserve.

    What the call takes, it should not find there: on the CPU a block from before that is freed meanwhile does not
    count. torch would say so on stderr; nobody who reads a table could act on it.

    On the CPU torch's profiler writes every block down, which takes up to several times as long as the call alone.

    Args:
        call: what to run.
        device: where it works.

    Returns:
        Bytes above those in use before the call; none where torch does not say (a device other than CPU and CUDA).
    """
    import torch  # noqa: PLC0415

    device = torch.device(device)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    if device.type != "cpu":
        return None
    # The public profiler stands on the same counts, but torch 2.13's writes to stderr whenever it starts.
    autograd: Any = torch.autograd
    if not hasattr(autograd, "_enable_profiler_legacy"):
        return None
    only_memory = (False, True, False, False, False, torch._C._profiler._ExperimentalConfig())
    config = autograd.ProfilerConfig(autograd.ProfilerState.CPU, *only_memory)
    with own_pages(), closed(2):
        autograd._enable_profiler_legacy(config)
        try:
            call()
        finally:
            events = [event for thread in autograd._disable_profiler_legacy() for event in thread]
    changes = (event.cpu_memory_usage() for event in events if event.kind() == "memory_alloc")
    return max(accumulate(changes), default=0)
