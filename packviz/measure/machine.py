"""Records the provenance of a measurement, page faults, and a call's peak memory."""

from __future__ import annotations

import functools
import os
import platform
import re
import resource
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias

from packviz.core.silence import closed
from packviz.core.system import cpu_name, output, own_version
from packviz.draw.text import count

if TYPE_CHECKING:
    import torch

Data: TypeAlias = Mapping[str, Any]
"""Plain data that JSON can represent."""

ENVIRONMENT = (
    "MALLOC_MMAP_MAX_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_ARENA_MAX",
    "MALLOC_CONF",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
    "THP_MEM_ALLOC_ENABLE",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
)
"""The environment variables that change how memory is allocated, or how many threads compute."""

CHANGING = ("date", "load_average", "cores", "driver")
"""The fields of the provenance that may differ between the points of a result file."""


def peak(call: Callable[[], object], device: str | torch.device = "cpu") -> int | None:
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
    with closed(2):
        changes = memory_changes(call)
    return None if changes is None else max(accumulate(changes), default=0)


def page_faults() -> int:
    """Returns the number of minor page faults of this process. These need no access to a disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def provenance(
    device: str | torch.device = "cpu", parameters: Data | None = None
) -> dict[str, Any]:
    """Returns a description of the machine and the settings, as plain data for a JSON file.

    Args:
        device: the device of the measured code.
        parameters: sizes, seeds and other settings of the measurement, as plain data.
    """
    import torch  # noqa: PLC0415

    from packviz.ops.tolerance import multiplies_in_tf32  # noqa: PLC0415

    device = torch.device(device)
    has_onednn: Callable[[], bool] = torch.backends.mkldnn.is_available
    record: dict[str, Any] = {
        "device": str(device),
        "device_name": cpu_name(),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "load_average": load_average(),
        "threads": torch.get_num_threads(),
        "environment": {name: os.environ[name] for name in ENVIRONMENT if os.environ.get(name)},
        "allocator": " ".join(platform.libc_ver()).strip() or sys.platform,
        "blas": blas(),
        "torch": torch.__version__,
        "onednn": has_onednn(),
        "python": platform.python_version(),
        "packviz": own_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "parameters": dict(parameters or {}),
    }
    if device.type == "cuda":
        cudnn_version: Callable[[], int | None] = torch.backends.cudnn.version
        record |= {
            "device_name": torch.cuda.get_device_name(device),
            "cuda": torch.version.cuda,
            "cudnn": cudnn_version(),
            "driver": _driver(),
            "device_memory": torch.cuda.get_device_properties(device).total_memory,
            "tf32": multiplies_in_tf32(),
        }
    return record


def blas() -> str:
    """Returns the name of torch's library for matrix products on the CPU, such as `mkl`."""
    import torch  # noqa: PLC0415

    settings = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    return settings[1] if settings else "unknown"


def load_average() -> list[float]:
    """Returns the average numbers of runnable processes over the last 1, 5 and 15 minutes."""
    return [round(load, 2) for load in os.getloadavg()]


def overload(place: Data) -> str:
    """Returns a description of the load if it exceeded the number of cores, and otherwise `""`.

    Args:
        place: the provenance of a measurement (see `provenance`).
    """
    load = place.get("load_average", [0.0])[0]
    cores = place.get("cores")
    return f"a load of {load:.1f} on {count(cores, 'core')}" if cores and load > cores else ""


def caption(place: Data, rounds: Iterable[int] = (), each: Iterable[Data] = ()) -> str:
    """Returns a caption for measured times: the machine, the settings and the date.

    The load is the average over one minute for the whole machine. Each thread of the measurement
    adds 1 to this load.

    Args:
        place: the provenance of the measurement (see `provenance`). The caption leaves out fields
            that are missing.
        rounds: the numbers of rounds, one number for each point.
        each: the provenance of each point, with its load and date, if there are several points.
    """
    on_gpu = str(place.get("device", "")).startswith("cuda")
    kind = f"GPU, CUDA {place.get('cuda')}" if on_gpu else "CPU"
    points = [*each] or [place]
    loads = [point["load_average"][0] for point in points if "load_average" in point]
    dates = [point["date"][:10] for point in points if "date" in point]
    parts = [f"{place.get('device_name')} ({kind})", f"torch {place.get('torch')}"]
    if "blas" in place:
        parts.append(f"BLAS {place['blas']}")
    if "threads" in place:
        parts.append(count(place["threads"], "thread"))
    if "allocator" in place:
        parts.append(f"allocator {place['allocator']}")
    environment = place.get("environment", {})
    parts += [f"{name}={value}" for name, value in environment.items()]
    if loads and "cores" in place:
        parts.append(f"load {_span(loads)} on {count(place['cores'], 'core')}")
    if taken := _span(rounds):
        parts.append(f"{taken} round{'' if taken == '1' else 's'}")
    if dates:
        parts.append(_span(dates))
    made_up = f"MADE UP, no machine was timed ({place['fake']}): " if "fake" in place else ""
    return made_up + ", ".join(parts)


def _span(values: Iterable[Any]) -> str:
    """Returns the smallest and the largest value as text, or only one if they are equal."""
    ordered = [
        f"{value:.1f}" if isinstance(value, float) else str(value) for value in sorted(values)
    ]
    ends = ordered[:1] + ordered[-1:]
    return " to ".join(dict.fromkeys(ends))


@functools.cache
def _driver() -> str | None:
    return output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


def check_device(device: str | torch.device) -> str:
    """Returns the device in torch's own notation.

    Raises:
        ValueError: there is no such device.
    """
    import torch  # noqa: PLC0415

    unknown = f"device is {device!r}; choose cpu, cuda, or one of several GPUs, such as cuda:1"
    try:
        chosen = torch.device(device)
    except RuntimeError:  # its message lists twenty types of device
        raise ValueError(unknown) from None
    if chosen.type not in ("cpu", "cuda") or (chosen.type == "cpu" and chosen.index):
        raise ValueError(unknown)
    if chosen.type == "cpu":
        return str(chosen)
    version = torch.version.cuda
    gpus = torch.cuda.device_count()
    reason = ""
    if version is None:
        build = "is built without CUDA: install a build with it (https://pytorch.org)"
        reason = f"torch {torch.__version__} {build}"
    elif not torch.cuda.is_available():
        check = "finds no GPU: check `nvidia-smi` and CUDA_VISIBLE_DEVICES"
        reason = f"torch for CUDA {version} {check}"
    elif (chosen.index or 0) >= gpus:
        reason = f"the last GPU here is cuda:{gpus - 1}"
    if reason:
        raise ValueError(f"device is {device!r}, but {reason}; or use the device cpu")
    return str(chosen)
