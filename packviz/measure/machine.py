"""Records the provenance of a measurement, page faults, and a call's peak memory."""

from __future__ import annotations

import functools
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packviz.core.silence import discard_output
from packviz.core.system import cpu_name, first_output_line, packviz_version
from packviz.draw.text import with_noun

try:
    import resource
except ModuleNotFoundError:  # Windows and Pyodide have no such module
    resource = None  # type: ignore[assignment]

if TYPE_CHECKING:
    import torch

JsonDict = Mapping[str, Any]
"""Plain data that JSON can represent."""

ALLOCATOR_VARIABLES = (
    "MALLOC_MMAP_MAX_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_ARENA_MAX",
    "MALLOC_CONF",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
    "THP_MEM_ALLOC_ENABLE",
)
"""The environment variables that change how memory is allocated on the CPU."""

RECORDED_VARIABLES = (
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
)
"""Further environment variables: for memory on a GPU, and for the number of threads."""

CHANGING_FIELDS = ("date", "load_average", "busy_cores", "cores", "driver")
"""The fields of the provenance that may differ between the points of a result file."""

PROCESS_PER_CALL = "one for each call"
"""The value of the parameter `processes` if each call was timed in a process of its own."""

_DEFAULT_ALLOCATOR = "default"  # an allocator without settings
_BUSY_CORES_LIMIT = 0.2  # cores
_BLAS_NAMES = {"mkl": "MKL", "open": "OpenBLAS", "accelerate": "Accelerate"}
_NOT_RECORDED = "not recorded"


def peak_memory(call: Callable[[], object], device: str | torch.device = "cpu") -> int | None:
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
    import torch  # noqa: PLC0415

    from packviz.ops.private import record_allocations  # noqa: PLC0415

    device = torch.device(device)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        bytes_before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - bytes_before
    if device.type != "cpu":
        return None
    with discard_output(2):
        changes = record_allocations(call)
    return None if changes is None else max(accumulate(changes), default=0)


def page_faults() -> int | None:
    """Returns the number of minor page faults of this process, which need no access to a disk.

    The result is `None` if the platform does not count them.
    """
    if resource is None:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def provenance(
    device: str | torch.device = "cpu", parameters: JsonDict | None = None
) -> dict[str, Any]:
    """Returns a description of the machine and the settings, as plain data for a JSON file.

    Args:
        device: the device of the measured code.
        parameters: sizes, seeds and other settings of the measurement, as plain data.
    """
    import torch  # noqa: PLC0415

    from packviz.ops.tolerance import rnn_may_use_tf32  # noqa: PLC0415

    device = torch.device(device)
    has_onednn: Callable[[], bool] = torch.backends.mkldnn.is_available
    description: dict[str, Any] = {
        "device": str(device),
        "device_name": cpu_name(),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "load_average": load_average(),
        "threads": torch.get_num_threads(),
        "environment": _environment_variables(RECORDED_VARIABLES),
        "allocator": describe_allocator(),
        "blas": blas_name(),
        "torch": torch.__version__,
        "onednn": has_onednn(),
        "python": platform.python_version(),
        "packviz": packviz_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "parameters": dict(parameters or {}),
    }
    if device.type == "cuda":
        cudnn_version: Callable[[], int | None] = torch.backends.cudnn.version
        description |= {
            "device_name": torch.cuda.get_device_name(device),
            "cuda": torch.version.cuda,
            "cudnn": cudnn_version(),
            "driver": _driver_version(),
            "device_memory": torch.cuda.get_device_properties(device).total_memory,
            "tf32": rnn_may_use_tf32(),
        }
    return description


def describe_allocator() -> str:
    """Returns the name of the C library, and the settings that change its memory allocator.

    Examples are `glibc 2.36, default` and `glibc 2.36, MALLOC_MMAP_MAX_=0`.
    """
    c_library = " ".join(platform.libc_ver()).strip() or sys.platform
    settings = [
        f"{name}={value}" for name, value in _environment_variables(ALLOCATOR_VARIABLES).items()
    ]
    return ", ".join([c_library, *(settings or [_DEFAULT_ALLOCATOR])])


def is_default_allocator() -> bool:
    """Returns whether no environment variable changes how memory is allocated on the CPU."""
    return not _environment_variables(ALLOCATOR_VARIABLES)


def _environment_variables(names: Iterable[str]) -> dict[str, str]:
    """Returns the environment variables that are set and not empty."""
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def blas_name() -> str:
    """Returns the name of torch's library for matrix products on the CPU, such as `mkl`."""
    import torch  # noqa: PLC0415

    match = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    return match[1] if match else "unknown"


def load_average() -> list[float]:
    """Returns the average numbers of runnable processes over the last 1, 5 and 15 minutes.

    Windows does not count them, so the result is empty there.
    """
    loads = os.getloadavg() if hasattr(os, "getloadavg") else ()
    return [round(load, 2) for load in loads]


def wait_until_idle(limit: float) -> float:
    """Waits until other programs use less than a fifth of a core.

    Args:
        limit: the seconds after which the wait ends, even if the machine is busy.

    Returns:
        The number of cores that were busy in the last fifth of a second of the wait.
    """
    end = time.monotonic() + limit
    pause_seconds = 0.2
    while True:
        busy_cores = _measure_busy_cores(pause_seconds)
        if busy_cores < _BUSY_CORES_LIMIT or time.monotonic() >= end:
            return round(busy_cores, 2)
        pause_seconds = 2.0


def _measure_busy_cores(seconds: float) -> float:
    """Returns the average number of busy cores in the next seconds.

    If the system does not count the time of its cores, this is the load of the last minute.

    Raises:
        ValueError: the system reports neither its busy time nor its load.
    """
    try:
        start_ticks = _busy_and_total_ticks()
        time.sleep(seconds)
        end_ticks = _busy_and_total_ticks()
    except OSError:
        loads = load_average()
        if not loads:
            raise ValueError(
                "wait: this system does not report how busy it is; leave out wait"
            ) from None
        return loads[0]
    busy_ticks = end_ticks[0] - start_ticks[0]
    total_ticks = end_ticks[1] - start_ticks[1]
    return busy_ticks / max(total_ticks, 1) * (os.cpu_count() or 1)


def _busy_and_total_ticks() -> tuple[int, int]:
    """Returns the busy time and the total time of all cores together, since the system started.

    The unit is a tick of the kernel's clock.
    """
    first = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    ticks = [int(word) for word in first.split()[1:9]]
    idle_ticks, io_wait_ticks = ticks[3:5]
    return sum(ticks) - idle_ticks - io_wait_ticks, sum(ticks)


def is_on_gpu(place: JsonDict) -> bool:
    """Returns whether a measurement was made on a GPU, given its provenance."""
    return str(place.get("device")).startswith("cuda")


def describe_overload(place: JsonDict) -> str:
    """Returns a description of the load if it exceeded the number of cores, and otherwise `""`.

    Args:
        place: the provenance of a measurement (see `provenance`).
    """
    load = (place.get("load_average") or [0.0])[0]
    cores = place.get("cores")
    if not cores or load <= cores:
        return ""
    return f"a load of {load:.1f} on {with_noun(cores, 'core')}"


def caption(place: JsonDict, rounds: Iterable[int] = (), each: Iterable[JsonDict] = ()) -> str:
    """Returns a caption for measured times: the machine, the settings and the date.

    If the load was checked before each point, the caption gives the number of cores that other
    programs used. Otherwise, it gives the load, which is the average over one minute for the whole
    machine. Each thread of the measurement adds 1 to this load.

    Args:
        place: the provenance of the measurement (see `provenance`). The caption leaves out fields
            that are missing.
        rounds: the numbers of rounds, one number for each point.
        each: the provenance of each point, with its load and date, if there are several points.
    """
    kind = f"GPU, CUDA {place.get('cuda')}" if is_on_gpu(place) else "CPU"
    points = [*each] or [place]
    loads = [point["load_average"][0] for point in points if point.get("load_average")]
    busy_cores = [float(point["busy_cores"]) for point in points if "busy_cores" in point]
    dates = [point["date"][:10] for point in points if "date" in point]
    parts = [f"{place.get('device_name')} ({kind})", f"torch {place.get('torch')}"]
    blas_library = place.get("blas", _NOT_RECORDED)
    parts.append(f"BLAS {_BLAS_NAMES.get(blas_library, blas_library)}")
    if "threads" in place:
        parts.append(with_noun(place["threads"], "thread"))
    parts.append(_allocator_in_words(place))
    environment = place.get("environment", {})
    parts += [f"{name}={value}" for name, value in environment.items()]
    if place.get("parameters", {}).get("processes") == PROCESS_PER_CALL:
        parts.append("a process for each method")
    if "cores" in place:
        cores = with_noun(place["cores"], "core")
        if busy_cores:
            parts.append(f"other programs on {_range_text(busy_cores)} of {cores}")
        elif loads:
            parts.append(f"load {_range_text(loads)} on {cores}")
    if rounds_text := _range_text(rounds):
        parts.append(f"{rounds_text} round{'' if rounds_text == '1' else 's'}")
    if dates:
        parts.append(_range_text(dates))
    made_up_warning = (
        f"MADE UP, no machine was timed ({place['fake']}): " if "fake" in place else ""
    )
    return made_up_warning + ", ".join(parts)


def _allocator_in_words(place: JsonDict) -> str:
    c_library, _, settings = place.get("allocator", _NOT_RECORDED).partition(", ")
    if not settings:
        return f"allocator {c_library}"
    name = c_library.partition(" ")[0]
    if settings == _DEFAULT_ALLOCATOR:
        return f"{name}'s default allocator"
    return f"{name}'s allocator with {settings}"


def _range_text(values: Iterable[Any]) -> str:
    """Returns the smallest and the largest value as text, or only one if they are equal."""
    sorted_texts = [
        f"{value:.1f}" if isinstance(value, float) else str(value) for value in sorted(values)
    ]
    ends = sorted_texts[:1] + sorted_texts[-1:]
    return " to ".join(dict.fromkeys(ends))


@functools.cache
def _driver_version() -> str | None:
    return first_output_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


def check_device(device: str | torch.device) -> str:
    """Returns the device in torch's own notation.

    Raises:
        ValueError: there is no such device.
    """
    import torch  # noqa: PLC0415

    wrong_device_message = (
        f"device is {device!r}; choose cpu, cuda, or a GPU by its number, such as cuda:1"
    )
    try:
        parsed_device = torch.device(device)
    except RuntimeError:  # its message lists twenty types of device
        raise ValueError(wrong_device_message) from None
    if parsed_device.type == "cpu" and not parsed_device.index:
        return str(parsed_device)
    if parsed_device.type != "cuda":
        raise ValueError(wrong_device_message)
    n_gpus = torch.cuda.device_count()
    if (parsed_device.index or 0) < n_gpus:
        return str(parsed_device)
    reason = f"the last GPU here is cuda:{n_gpus - 1}"
    if not n_gpus:
        reason = (
            f"torch {torch.__version__} finds no GPU: check `nvidia-smi`, CUDA_VISIBLE_DEVICES, and"
            " that torch was built with CUDA (https://pytorch.org)"
        )
    raise ValueError(f"device is {device!r}, but {reason}; or choose another device, such as cpu")
