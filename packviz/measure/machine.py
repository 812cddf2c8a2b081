"""Records the provenance of a measurement, makes the allocator keep its pages, and measures a call's peak memory."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import resource
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

from packviz.core.machine import cpu_name, output, own_version
from packviz.core.quiet import closed
from packviz.draw.text import count

_ENVIRONMENT = (
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_MMAP_MAX_",
    "MALLOC_ARENA_MAX",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
)
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
# These numbers are from glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
_MOST = 2**31 - 1

_set: dict[str, int] = {}


def calm_allocator() -> dict[str, Any]:
    """Makes the CPU allocator keep the pages of large blocks for the rest of this process.

    When a large block (32 MiB or more) is freed, glibc returns it to the system. The next call gets
    fresh pages, each of which causes a page fault on first use, and these faults take so long that
    they hide the time of the kernels. `calm_allocator` makes all blocks come from the heap, which
    is no longer trimmed. The first dozen measured calls may still cause faults until the heap has
    grown, so warm up first. From then on, freed memory stays with the process.

    You can get the same effect by setting `MALLOC_MMAP_THRESHOLD_` and `MALLOC_TRIM_THRESHOLD_`
    before the process starts. If one of these variables or `MALLOC_MMAP_MAX_` is set, or if the C
    library is not glibc, nothing is changed.

    Returns:
        The settings that are in force now (see `allocator`).
    """
    ours = not any(os.environ.get(name) for name in _ENVIRONMENT[:3])
    if ours and not _set and platform.libc_ver()[0] == "glibc":
        mallopt = ctypes.CDLL(None).mallopt
        # M_MMAP_MAX is 0, because glibc before 2.37 rejects an M_MMAP_THRESHOLD above 32 MiB.
        for name, parameter, value in (
            ("M_MMAP_MAX", _M_MMAP_MAX, 0),
            ("M_TRIM_THRESHOLD", _M_TRIM_THRESHOLD, _MOST),
        ):
            if mallopt(parameter, value):
                _set[name] = value
    return allocator()


@contextmanager
def own_pages() -> Iterator[None]:
    """Undoes the effect of `calm_allocator` within a `with` block.

    Large blocks get their own pages again, and these go back to the system when the blocks are
    freed. A profiler keeps many small blocks between the large ones. On the heap, these small
    blocks would make every gap too short for the next large block, and the heap would grow by
    gigabytes.
    """
    if not _set:
        yield
        return
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(_M_MMAP_THRESHOLD, 2**18)
    mallopt(_M_MMAP_MAX, 2**16)
    try:
        yield
    finally:
        mallopt(_M_MMAP_MAX, 0)


def allocator() -> dict[str, Any]:
    """Returns the C library, and the allocator settings made by environment variables and by `calm_allocator`."""
    library = " ".join(platform.libc_ver()).strip() or sys.platform
    environment = {name: os.environ[name] for name in _ENVIRONMENT if os.environ.get(name)}
    return {"library": library, "environment": environment, "mallopt": dict(_set)}


def peak(call: Callable[[], object], device: Any = "cpu") -> int | None:
    """Runs a call once and measures its peak memory.

    The result includes all blocks that torch's allocator hands out and takes back: all tensors, and
    the workspaces of operators (including those of oneDNN and cuDNN). It excludes memory that
    Python or a library allocates itself, and memory that a caching allocator holds in reserve.

    On the CPU, torch's profiler records every block, which can take several times as long as the
    call alone. A block that was allocated before the call and is freed during it does not count.
    torch prints a warning about such blocks, but this function suppresses it.

    Args:
        call: the function to run.
        device: the device that the function uses.

    Returns:
        The bytes in use at the peak, minus the bytes in use before the call. `None` if these cannot
        be measured: on a device other than CPU and CUDA, or on a CPU if torch lacks the profiler
        that packviz uses. In these cases, the function is not run.
    """
    import torch

    from packviz.ops.private import memory_changes

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
    with own_pages(), closed(2):
        changes = memory_changes(call)
    return None if changes is None else max(accumulate(changes), default=0)


def page_faults() -> int:
    """Returns the number of minor page faults (which need no access to a disk) that this process has caused so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def provenance(device: Any = "cpu", parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns a description of the machine and the settings, as plain data for a JSON file.

    Args:
        device: the device of the measured code.
        parameters: sizes, seeds and other settings of the measurement, as plain data.
    """
    import torch

    from packviz.ops.agreement import multiplies_in_tf32

    device = torch.device(device)
    record: dict[str, Any] = {
        "device": str(device),
        "device_name": cpu_name(),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "load_average": load_average(),
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "environment": {name: os.environ[name] for name in _THREADS if os.environ.get(name)},
        "torch": torch.__version__,
        "onednn": torch.backends.mkldnn.is_available(),  # type: ignore[no-untyped-call]
        "python": platform.python_version(),
        "packviz": own_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "allocator": allocator(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "parameters": dict(parameters or {}),
    }
    if device.type == "cuda":
        record |= {
            "device_name": torch.cuda.get_device_name(device),
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
            "driver": _driver(),
            "device_memory": torch.cuda.get_device_properties(device).total_memory,
            "tf32": multiplies_in_tf32(),
        }
    return record


def load_average() -> list[float]:
    """Returns the average numbers of runnable processes over the last 1, 5 and 15 minutes."""
    return [round(load, 2) for load in os.getloadavg()]


def overload(place: Mapping[str, Any]) -> str:
    """Returns a description of the load if it exceeded the number of cores, and otherwise an empty
    string.

    Args:
        place: the provenance of a measurement (see `provenance`).
    """
    load, cores = place.get("load_average"), place.get("cores")
    return (
        f"a load of {load[0]:.1f} on {count(cores, 'core')}"
        if load and cores and load[0] > cores
        else ""
    )


def caption(
    place: Mapping[str, Any], rounds: Iterable[int] = (), each: Iterable[Mapping[str, Any]] = ()
) -> str:
    """Returns a caption for a chart or table of measured times: the machine, the settings and the
    date.

    The load is the average over one minute for the whole machine. Each thread of the measurement
    adds 1 to this load.

    Args:
        place: the provenance of the measurement (see `provenance`). The caption leaves out fields
            that are missing.
        rounds: the numbers of rounds, one number for each point.
        each: the provenance of each point, with its load and date, if there are several points.
    """
    kind = (
        f"GPU, CUDA {place.get('cuda')}"
        if str(place.get("device", "")).startswith("cuda")
        else "CPU"
    )
    own = [*each]

    def known(name: str) -> list[Any]:
        return [one[name] for one in own if one.get(name)] or [
            one[name] for one in (place,) if one.get(name)
        ]

    loads = [load for load, *_ in known("load_average")] if place.get("cores") else []
    taken = sorted(set(rounds))
    parts = [
        f"{place.get('device_name')} ({kind})",
        f"torch {place.get('torch')}",
        count(int(place["threads"]), "thread") if place.get("threads") else "",
        f"load {_span(loads)} on {count(place['cores'], 'core')}" if loads else "",
        f"{_span(taken)} round{'' if taken == [1] else 's'}" if taken else "",
        _span(date[:10] for date in known("date")),
    ]
    made_up = f"MADE UP, no machine was timed ({place['fake']}): " if "fake" in place else ""
    return made_up + ", ".join(filter(None, parts))


def _span(values: Iterable[Any]) -> str:
    """Returns the smallest and the largest value as text, or a single value if the two are equal."""
    some = [f"{value:.1f}" if isinstance(value, float) else f"{value}" for value in sorted(values)]
    return " to ".join(dict.fromkeys([*some[:1], *some[-1:]]))


@functools.cache
def _driver() -> str | None:
    return output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


def check_device(device: Any) -> str:
    """Returns the device in torch's own notation.

    Raises:
        ValueError: there is no such device.
    """
    import torch

    chosen = None
    with suppress(RuntimeError):  # its message lists twenty types of device
        chosen = torch.device(device)
    if (
        chosen is None
        or chosen.type not in ("cpu", "cuda")
        or (chosen.type == "cpu" and chosen.index)
    ):
        raise ValueError(
            f"device is {device!r}; choose cpu, cuda, or one of several GPUs, such as cuda:1"
        )
    if chosen.type == "cuda":
        if why := no_cuda():
            raise ValueError(f"device is {device!r}, but {why}; or use the device cpu")
        if (chosen.index or 0) >= (gpus := torch.cuda.device_count()):
            raise ValueError(f"device is {device!r}, but the last GPU here is cuda:{gpus - 1}")
    return str(chosen)


def no_cuda() -> str:
    """Returns the reason why CUDA cannot be used here, with advice, or an empty string if it can be used."""
    import torch

    if torch.cuda.is_available():
        return ""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA: install a build with it (https://pytorch.org)"
    return f"torch for CUDA {torch.version.cuda} finds no GPU: check `nvidia-smi` and CUDA_VISIBLE_DEVICES"
