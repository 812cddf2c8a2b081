"""What a measurement was made on, in data and in words; the allocator it needs; the memory that a call has in use."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
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
# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
_MOST = 2**31 - 1

_set: dict[str, int] = {}


def calm_allocator() -> dict[str, Any]:
    """Makes large CPU allocations keep their pages, for the rest of this process, and says what was set.

    glibc returns a large block (32 MiB and more, whatever it learns) to the system when it is freed. The next call gets
    fresh pages, each of which faults on its first touch: that time hides the kernels'. From here on blocks come from
    the heap, and the heap is not trimmed. The first dozen of calls may still fault, until it has grown: warm up. The
    price: the process keeps its largest size.

    The same can be had from outside with `MALLOC_MMAP_THRESHOLD_` and `MALLOC_TRIM_THRESHOLD_`, before the process
    starts. Where one of these is set, or where the C library is not glibc, nothing is changed.

    Returns:
        `allocator()`: what is in force now.
    """
    ours = not any(os.environ.get(name) for name in _ENVIRONMENT[:3])
    if ours and not _set and platform.libc_ver()[0] == "glibc":
        mallopt = ctypes.CDLL(None).mallopt
        # No block is mapped on its own, because glibc before 2.37 refuses a threshold above 32 MiB.
        for name, parameter, value in (("M_MMAP_MAX", _M_MMAP_MAX, 0), ("M_TRIM_THRESHOLD", _M_TRIM_THRESHOLD, _MOST)):
            if mallopt(parameter, value):
                _set[name] = value
    return allocator()


@contextmanager
def own_pages() -> Iterator[None]:
    """Undoes `calm_allocator` for a while: large blocks get pages of their own, which go when they are freed.

    For whoever puts many small blocks between large ones, to keep them, as a profiler does. On the heap they would cut
    every gap too short for the next large block, and it would grow by gigabytes.
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
    """The settings of the CPU allocator: its library, its environment variables, and what `calm_allocator` has set."""
    library = " ".join(platform.libc_ver()).strip() or sys.platform
    environment = {name: os.environ[name] for name in _ENVIRONMENT if os.environ.get(name)}
    return {"library": library, "environment": environment, "mallopt": dict(_set)}


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

    from packviz.ops.private import memory_changes  # noqa: PLC0415

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


def page_faults() -> int | None:
    """How often this process has touched a page that it did not have; none where the system does not say."""
    try:
        import resource  # noqa: PLC0415 - there is none on Windows
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def provenance(device: Any = "cpu", parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What a measurement is made on, as plain data for a JSON file.

    Args:
        device: where the measured code runs.
        parameters: what was measured: sizes, seeds and so on, themselves plain data.
    """
    import torch  # noqa: PLC0415 - seconds, for those who only read results

    from packviz.ops.tolerance import multiplies_in_tf32  # noqa: PLC0415

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


def load_average() -> list[float] | None:
    """How many processes wanted to run in the last 1, 5 and 15 minutes; none where the system does not say."""
    return [round(load, 2) for load in os.getloadavg()] if hasattr(os, "getloadavg") else None


def overload(place: Mapping[str, Any]) -> str:
    """The load in words, if more processes wanted to run than there are cores; else empty.

    Args:
        place: a `provenance`.
    """
    load, cores = place.get("load_average"), place.get("cores")
    return f"a load of {load[0]:.1f} on {count(cores, 'core')}" if load and cores and load[0] > cores else ""


def caption(place: Mapping[str, Any], rounds: Iterable[int] = (), each: Iterable[Mapping[str, Any]] = ()) -> str:
    """What a measurement was made on, how and when: the caption of every chart and table of measured times.

    The load is that of the whole machine, by the minute; 1 of it is the measurement itself, for each thread.

    Args:
        place: a `provenance`; what it does not have is left out.
        rounds: that were timed, at each point.
        each: what each point has of a provenance for itself, where they are several: its load and date.
    """
    kind = f"GPU, CUDA {place.get('cuda')}" if str(place.get("device", "")).startswith("cuda") else "CPU"
    own = [*each]

    def known(name: str) -> list[Any]:
        return [one[name] for one in own if one.get(name)] or [one[name] for one in (place,) if one.get(name)]

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
    """The least and the most of them."""
    some = [f"{value:.1f}" if isinstance(value, float) else f"{value}" for value in sorted(values)]
    return " to ".join(dict.fromkeys([*some[:1], *some[-1:]]))


@functools.cache
def _driver() -> str | None:
    return output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


def check_device(device: Any) -> str:
    """The device in torch's own words.

    Raises:
        ValueError: it is not there; the message says what to do.
    """
    import torch  # noqa: PLC0415

    with suppress(RuntimeError):  # its message lists twenty types of device
        chosen = torch.device("meta")
        chosen = torch.device(device)
    if chosen.type not in ("cpu", "cuda") or (chosen.type == "cpu" and chosen.index):
        raise ValueError(f"device is {device!r}; choose cpu, cuda, or one of several GPUs as in cuda:1")
    if chosen.type == "cuda":
        if why := no_cuda():
            raise ValueError(f"device is {device!r}, and {why}; or take the device cpu")
        if (chosen.index or 0) >= torch.cuda.device_count():
            last = torch.cuda.device_count() - 1
            raise ValueError(f"device is {device!r}, and the last GPU here is cuda:{last}")
    return str(chosen)


def no_cuda() -> str:
    """Why CUDA cannot be used here, and what to do; empty where it can."""
    import torch  # noqa: PLC0415

    if torch.cuda.is_available():
        return ""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA: install a build with it (https://pytorch.org)"
    return f"torch for CUDA {torch.version.cuda} finds no GPU: see what `nvidia-smi` and CUDA_VISIBLE_DEVICES say"
