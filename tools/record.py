#!/usr/bin/env python3
"""Records the times that the notebooks show, and the constants that `pv.run` uses to choose a
method.

    python tools/record.py --device cuda --minutes 9 --out DIR

This command runs `packviz study` for one study after another until the time is up. Each study
writes to its own file in DIR. To resume, run the same command again. When a study is complete, its
file is copied to `notebooks/recorded/` in the checkout. The constants are saved to `packviz/ops/`
before the studies that use them begin. With `--minutes 0`, the command only copies results, and
measures nothing.

The script needs only torch and NumPy.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

STEPS: dict[str, tuple[str, ...]] = {
    "benchmark": ("benchmark",),
    "methods": ("methods",),
    "compiled": ("compiled",),
    "heuristics": ("heuristics",),
    "parts": ("parts",),
    "savings": ("savings",),
    "untuned": ("methods", "--points", "untuned", "--budget", "1"),
}
"""The arguments of `packviz study`, by name of the result file. Studies that others depend on come first."""

GRACE = 60  # the seconds in which an interrupted study must end


def study_of(step: str) -> tuple[Any, Sequence[Any]]:
    """Returns the study of a step, and the points to measure."""
    from packviz.cli import STUDIES

    name, *options = STEPS[step]
    module = next(
        module for module in STUDIES if module.removesuffix("_benchmark").endswith(f".{name}")
    )
    study = importlib.import_module(module).STUDY
    return study, study.others[options[1]] if "--points" in options else study.full


def missing(step: str, path: Path) -> list[str]:
    """Returns the points that a file still lacks."""
    study, points = study_of(step)
    done = study.load(path).values if path.exists() else {}
    return [str(point) for point in points if point not in done]


def record(step: str, path: Path, device: str, threads: int, until: float) -> int:
    """Runs a study until it is complete or the time is up. Returns its exit status, or 0 if the time ran out."""
    command = [
        sys.executable,
        "-m",
        "packviz",
        "study",
        *STEPS[step],
        "--device",
        device,
        "--threads",
        str(threads),
    ]
    process = subprocess.Popen([*command, "--out", str(path)], cwd=ROOT)
    try:
        return process.wait(timeout=max(until - time.monotonic(), 0))
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
        if isinstance(
            error, subprocess.TimeoutExpired
        ):  # after Ctrl-C, the process has already received the signal
            process.send_signal(signal.SIGINT)
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if isinstance(error, KeyboardInterrupt):
            raise
        return 0


def take(step: str, path: Path, device: str) -> str:
    """Copies complete results into the checkout. Returns a line that says what was copied, or why not."""
    study, _ = study_of(step)
    found = study.load(path)
    kind = device.partition(":")[0]
    if "fake" in found.provenance or found.provenance["device"].partition(":")[0] != kind:
        return f"not copied: it was not measured on {kind}"
    if left := missing(step, path):
        return f"not complete: {len(left)} points are missing, the first {left[0]}"
    target = ROOT / "notebooks" / "recorded" / path.name
    shutil.copyfile(path, target)
    return "; ".join(
        [f"copied to {target.relative_to(ROOT)}, measured on {found.caption}", *found.left_out]
    )


def main() -> int:
    """Records until the time is up. Returns 1 if a study failed, 130 after Ctrl-C, and otherwise 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out",
        required=True,
        type=Path,
        metavar="DIR",
        help="folder for results, or to resume from",
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1 (default: cpu)")
    parser.add_argument(
        "--threads", type=int, default=1, metavar="N", help="torch's CPU threads (default: 1)"
    )
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), metavar="N", help="time limit; 0 only copies"
    )
    parser.add_argument(
        "--studies",
        nargs="+",
        choices=STEPS,
        default=[*STEPS],
        metavar="NAME",
        help=", ".join(STEPS),
    )
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    sys.path.insert(0, str(ROOT))
    folder = options.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    kind = options.device.partition(":")[0]
    end = f"{kind}_{options.threads}" if kind == "cpu" and options.threads > 1 else kind
    failed = False
    try:
        for step in options.studies:
            path = folder / f"{step}_{end}.json"
            if time.monotonic() < until and missing(step, path):
                failed |= record(step, path, options.device, options.threads, until) != 0
            done = take(step, path, options.device) if path.exists() else "nothing measured yet"
            print(f"{path.name}: {done}", flush=True)
    except KeyboardInterrupt:
        return 130
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
