"""Defines the commands `packviz bench` and `packviz study`, which need torch and NumPy."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from packviz.core.util import require_suffix
from packviz.core.validation import require_one_of
from packviz.draw.drawing import Drawing
from packviz.draw.picture import show
from packviz.draw.text import table
from packviz.measure.study import Study

STUDY_DESCRIPTIONS = {
    "savings": "time that packing saves at equal FLOPs, with few and many distinct lengths",
    "compiled": "compiling and packing, together and separately",
    "methods": "torch padded, packed, and every method of pv.run (also --points untuned)",
    "parts": "parts of a packed training step, replaced one after another",
    "heuristics": "rules for packing, compared with a grid of measured batches",
    "benchmark": "the model from a forum question, padded and packed, for growing lengths",
}
"""The studies that `packviz study` offers, with their descriptions."""

_MODULES = {"heuristics": "rules", "benchmark": "forum"}  # where the name is another one

AnyStudy = Study[Any, Any, Any]


def load_study(name: str) -> AnyStudy:
    """Returns a study by its name in `STUDY_DESCRIPTIONS`."""
    module = importlib.import_module(f"packviz.studies.{_MODULES.get(name, name)}")
    study: AnyStudy = module.STUDY
    return study


def add_study_commands(parser: argparse.ArgumentParser) -> None:
    """Adds a command for each study to the parser of `packviz study`."""
    parser.set_defaults(
        run=lambda options: print(*table([*STUDY_DESCRIPTIONS.items()], "<  <"), sep="\n")
    )
    subparsers = parser.add_subparsers(title="studies", metavar="NAME")
    for name, description in STUDY_DESCRIPTIONS.items():
        study_parser = subparsers.add_parser(name, help=description, description=description)
        _add_common_options(study_parser, required=True)
        study_parser.add_argument("--points", metavar="SET", help="measure another set of points")
        study_parser.set_defaults(run=partial(_run_study, name))


def add_bench_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `packviz bench`."""
    _add_common_options(parser, required=False)
    add_option = parser.add_argument
    add_option(
        "--setup",
        nargs="+",
        choices=["A", "B", "evenly"],
        default=["A", "B"],
        help="A (no padding), B (triangle), evenly (evenly spread); default: A B",
    )
    add_option(
        "--methods",
        default="padded,packed",
        help="comma-separated, from padded, packed, drop-in, run; default: padded,packed",
    )
    add_option("--plot", metavar="PICTURE", help="draw the ratios to a .svg or .png file")
    parser.set_defaults(run=_run_bench)


def _add_common_options(parser: argparse.ArgumentParser, required: bool) -> None:
    add_option = parser.add_argument
    add_option(
        "--out",
        required=required,
        metavar="FILE",
        help="the file to write; if it exists, measure only what it lacks",
    )
    add_option("--device", default="cpu", help="cpu, cuda or cuda:1 (default: cpu)")
    positive_int = _positive_type(int)
    add_option(
        "--threads",
        type=positive_int,
        default=1,
        metavar="N",
        help="torch's CPU threads (default: 1)",
    )
    rounds_or_budget = parser.add_mutually_exclusive_group()
    rounds_or_budget.add_argument(
        "--rounds", type=positive_int, metavar="N", help="timed rounds for each point"
    )
    rounds_or_budget.add_argument(
        "--budget",
        type=_positive_type(float),
        metavar="SECONDS",
        help="approximate time for each point",
    )
    add_option(
        "--wait",
        type=_positive_type(float, allow_zero=True),
        default=0,
        metavar="SECONDS",
        help="longest wait before each point until other programs are idle (default: 0)",
    )
    add_option("--quick", action="store_true", help="measure a few small points")
    add_option(
        "--only", default="", metavar="WORDS", help="measure only points whose name contains this"
    )


def _positive_type(
    kind: Callable[[str], float], allow_zero: bool = False
) -> Callable[[str], float]:
    """Returns an argparse type that converts text to a finite number above 0, or of at least 0."""

    def number(text: str) -> float:
        value = kind(text)
        if not 0 <= value < float("inf") or not (value or allow_zero):
            raise ValueError
        return value

    number.__name__ = "positive number"  # argparse shows this name in its errors
    return number


def _run_study(name: str, options: argparse.Namespace) -> None:
    study = load_study(name)
    points = study.quick_points if options.quick else study.full_points
    if options.points:
        if not study.others:
            raise ValueError(f"--points is {options.points!r}, but {name} has one set of points")
        points = study.others[require_one_of("--points", options.points, study.others)]
    print(_record_points(study, points, options))


def _run_bench(options: argparse.Namespace) -> None:
    from packviz.studies import forum, network  # noqa: PLC0415

    methods = [method.strip() for method in options.methods.split(",")]
    for method in methods:
        require_one_of("--methods", method, network.METHODS)
    if options.plot:
        if len({*methods}) == 1:
            raise ValueError(
                f"--methods is {options.methods!r}, but --plot draws ratios; give two different"
                " methods"
            )
        require_suffix("--plot", options.plot, (".svg", ".png"))
        _require_folder(options.plot)
        with TemporaryDirectory() as folder:
            save(show([1]), Path(folder) / Path(options.plot).name)  # a PNG needs more packages
    if options.quick:
        points = forum.grid(options.setup, forum.QUICK_STEPS, forum.QUICK_BATCH)
    else:
        points = forum.grid(options.setup)
    results = _record_points(forum.STUDY, points, options, methods=methods)
    print(results)
    if options.plot:
        measured_setups = [setup for setup in options.setup if forum.setup_points(results, setup)]
        save(forum.chart({"": results}, "ratio", measured_setups, methods), options.plot)


def save(picture: Drawing, path: str | Path) -> None:
    """Writes a picture to a file.

    Raises:
        ValueError: the file cannot be written, or its suffix is unknown.
    """
    _require_folder(path)
    try:
        picture.save(path)
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror}") from None


def _require_folder(path: str | Path) -> None:
    folder = Path(path).parent
    if not folder.is_dir():
        raise ValueError(f"cannot write {path}: there is no folder {folder}")


def _record_points(
    study: AnyStudy, all_points: Sequence[Any], options: argparse.Namespace, **parameters: Any
) -> Any:
    """Measures the points that the options select, and returns the results.

    Raises:
        ValueError: the options do not fit the study, no point matches them, or the file cannot be
            written.
    """
    points = [point for point in all_points if options.only in str(point)]
    if not points:
        raise ValueError(
            f"no point matches --only {options.only!r}; a point's name looks like"
            f" {str(all_points[-1])!r}"
        )
    for name in ("device", "threads", "wait", "rounds", "budget"):
        value = getattr(options, name)
        if value is not None:
            parameters[name] = value
    if options.out:
        require_suffix("--out", options.out, [".json"])
        _require_folder(options.out)
    from packviz.measure.children import ChildError  # noqa: PLC0415

    if getattr(signal.getsignal(signal.SIGINT), "__name__", "") == "_handle_interrupt":
        # torch is imported now, so Ctrl-C need not end the program at once (see __main__).
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return study.record(options.out, points, **parameters)
    except OSError as error:
        raise ValueError(f"cannot write {options.out}: {error.strerror}") from None
    except ChildError as error:
        raise ValueError(str(error)) from None
    except KeyboardInterrupt:
        if options.out:
            print("\nRun the same command again to resume.", file=sys.stderr)
        raise
