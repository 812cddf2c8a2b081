"""Runs a notebook in a fresh kernel, and draws its charts as pictures."""

from __future__ import annotations

import base64
import copy
import io
import json
import os
from collections.abc import Iterator
from datetime import date
from importlib.metadata import version
from typing import Any

import nbformat
from browser.chromium import find_chromium, how_to_get_it, new_page
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from PIL import Image
from plotly.offline import get_plotlyjs

from nbtools.alternative import PNG, chart_size, png_of
from nbtools.canonical import (
    LIVE_TIMING,
    PLOTLY,
    RECORDED,
    canonical,
    is_recorded,
    plain,
    tags,
)
from nbtools.source import Edition
from packviz.core.system import cpu_name

CELL_SECONDS = 300
QUIET_KERNEL = ["--IPKernelApp.log_level=ERROR", "--HistoryManager.hist_file=:memory:"]
CHART_SCALE = 2
THREADS = 2

_TO_PNG = "([{data, layout}, options]) => Plotly.toImage({data, layout}, options)"

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_NOT_PASSED_ON = (
    "PACKVIZ_STRICT",
    "PYTHONWARNINGS",
    "PYTHONSTARTUP",
    "PYTEST_ADDOPTS",
    "FORCE_COLOR",
    "NO_COLOR",
    "PLOTLY_RENDERER",
)


class RunError(RuntimeError):
    """Raised if a notebook cannot be run to its end, or if a chart cannot be drawn."""


def kernel_env(strict: bool, *, threads: int = THREADS, hash_seed: int = 0) -> dict[str, str]:
    """Returns the environment variables for running a notebook.

    Args:
        strict: whether an exercise that is not solved raises an error.
        threads: The largest number of threads in each thread pool.
        hash_seed: The value of `PYTHONHASHSEED`.
    """
    env = {key: value for key, value in os.environ.items() if key not in _NOT_PASSED_ON}
    env |= dict.fromkeys(_THREADS, str(threads))
    env |= {"PYTHONHASHSEED": str(hash_seed), "COLUMNS": "100", "LINES": "40", "TZ": "UTC"}
    env["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    if strict:
        env["PACKVIZ_STRICT"] = "1"
    return env


def executed(edition: Edition, recorded: Any | None = None) -> Any:
    """Runs an edition, and returns it in canonical form, with its charts not yet drawn.

    The output of a live timing states when and where it was recorded. If the notebook `recorded`
    has the same cell, its output is kept, because otherwise each run would change the notebook.

    Raises:
        RunError: A cell raised an error or took too long, or the kernel died.
    """
    edition.path.parent.mkdir(parents=True, exist_ok=True)
    notebook = copy.deepcopy(edition.notebook)
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        startup_timeout=CELL_SECONDS,
        kernel_name="python3",
        store_widget_state=False,
        record_timing=False,
        extra_arguments=QUIET_KERNEL,
        resources={"metadata": {"path": str(edition.path.parent)}},
    )
    try:
        client.execute(env=kernel_env(edition.strict))
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        raise RunError(plain(str(error))) from None
    kept = {}
    if recorded:
        kept = {cell.source: cell.outputs for cell in filter(is_recorded, recorded.cells)}
    for cell in notebook.cells:
        if LIVE_TIMING in tags(cell):
            fresh = [nbformat.v4.new_output("stream", text=_conditions()), *cell.outputs]
            cell.outputs = kept.get(cell.source, fresh)
    return canonical(notebook, edition.path.stem)


def _conditions() -> str:
    """Returns the line above a live timing: the date, the processor, torch and the threads."""
    machine = f"{cpu_name()}, torch {version('torch')}, with at most {THREADS} threads"
    return f"{RECORDED}{date.today():%-d %B %Y}, on {machine}. Run the cell to time yours.\n"


def charts(notebook: Any) -> Iterator[Any]:
    """Yields the outputs that contain a plotly chart."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if PLOTLY in output.get("data", {}):
                yield output


def draw_charts(notebook: Any, *stored: Any | None) -> None:
    """Adds a PNG to each chart that has none.

    If a stored notebook has a picture of the same chart, that picture is kept, because a machine
    with different fonts would give an unchanged chart a new picture.

    Args:
        notebook: The notebook to change in place.
        stored: The notebooks that were stored before; None for one that was not.

    Raises:
        RunError: Chromium is missing.
    """
    known = [chart for other in stored if other for chart in charts(other)]
    old = {_key(chart): png_of(chart) for chart in known}
    new = []
    for chart in charts(notebook):
        chart.data[PNG] = old.get(_key(chart)) or png_of(chart)
        if not chart.data[PNG]:
            new.append(chart)
    if not new:
        return
    if find_chromium() is None:
        raise RunError(f"cannot draw its charts: {how_to_get_it()}")
    with new_page() as page:
        page.add_script_tag(content=get_plotlyjs())
        for chart in new:
            width, height = chart_size(chart)
            options = {"format": "png", "width": width, "height": height, "scale": CHART_SCALE}
            address = page.evaluate(_TO_PNG, [chart.data[PLOTLY], options])
            png = base64.b64decode(address.partition(",")[2])
            chart.data[PNG] = base64.b64encode(small(png)).decode("ascii")


def _key(chart: Any) -> str:
    return json.dumps(chart.data[PLOTLY], sort_keys=True)


def small(png: bytes) -> bytes:
    """Reduces a PNG of a chart to a fifth of its size by fewer colours, as readers download it."""
    small = io.BytesIO()
    image = Image.open(io.BytesIO(png)).convert("RGB")
    image.quantize(64, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return small.getvalue()
