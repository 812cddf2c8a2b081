"""The command `packviz bench`. It needs torch, numpy and the standard library; drawing HTML and PNG needs plotly."""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from packviz.draw.chart import Sweep
from packviz.draw.text import count
from packviz.studies.forum import results
from packviz.studies.forum import sweep as experiment
from packviz.studies.forum.results import AUTOCAST, DTYPES, SETUPS, Benchmark
from packviz.studies.forum.sweep import Progress

STOPPED = 130
"""The exit status after Ctrl-C, as a shell has it."""

METHODS = ("padded", "packed", "drop-in", "run")
"""The names of `forum.METHODS`, which brings torch."""

_OPTIONS = {"shortest": "--min", "longest": "--max", "batch_size": "--batch-size"}


def add_to(parser: argparse.ArgumentParser) -> None:
    """Gives the parser the options of `packviz bench`, and `packviz bench plot`."""
    parser.set_defaults(run=_measure)
    full, standard = experiment.FULL, results.Parameters()
    number: dict[str, Any] = {"type": int, "metavar": "N"}

    def default(name: str) -> str:
        return f"(default: {full[name]}; with --quick {experiment.QUICK[name]})"

    add = parser.add_argument
    add("--device", default="cpu", help="cpu, cuda or cuda:1 (default: cpu)")
    add("--setup", nargs="+", action="extend", choices=[*SETUPS], help="one or several of: A, no padding; B, triangle;"
        " evenly, spread evenly (default: A B)")  # fmt: skip
    add("--batch-size", **number, help=f"sequences {default('batch_size')}")
    add("--min", dest="shortest", **number, help=f"fewest time steps {default('shortest')}")
    add("--max", dest="longest", **number, help=f"most time steps {default('longest')}")
    add("--step", **number, help=f"from one to the next {default('step')}")
    add("--rounds", **number, help=f"timed rounds {default('rounds')}")
    add("--warmup", **number, help=f"rounds before that {default('warmup')}")
    add("--quick", action="store_true", help="a small batch and few sizes: seconds on a CPU")
    methods = ",".join(standard.methods)
    add("--methods", default=methods, help=f"what to compare to the first of them: some of {', '.join(METHODS)}"
        f" (default: {methods})")  # fmt: skip
    add("--dtype", default=standard.dtype, choices=DTYPES, help=f"of the weights (default: {standard.dtype})")
    add("--autocast", choices=AUTOCAST, help="run the forward pass under torch.autocast with this dtype")
    add("--threads", default=standard.threads, **number, help=f"torch's CPU threads (default: {standard.threads})")
    add("--seed", default=standard.seed, **number, help=f"of weights, tokens and order (default: {standard.seed})")
    add("--out", metavar="FILE", help="keep the results here, as JSON; if the file is there, go on with it")

    plot = parser.add_subparsers(title="commands", metavar="[plot …]").add_parser(
        "plot", help="draw result files side by side", description="Draws result files side by side."
    )
    plot.add_argument("files", nargs="+", metavar="FILE", help="what `packviz bench --out FILE` wrote")
    plot.add_argument("--out", required=True, metavar="PICTURE", help="ends in .svg, .html or .png")
    plot.set_defaults(run=_plot)


def _measure(options: argparse.Namespace) -> int:
    given = experiment.QUICK if options.quick else experiment.FULL
    chosen: dict[str, Any] = {
        name: given[name] if getattr(options, name) is None else getattr(options, name) for name in given
    }
    same: dict[str, Any] = {name: getattr(options, name) for name in ("dtype", "autocast", "threads", "seed")}
    methods = tuple(method.strip() for method in options.methods.split(",") if method.strip())
    try:
        sizes = results.sizes(chosen.pop("shortest"), chosen.pop("longest"), chosen.pop("step"))
        parameters = results.Parameters(methods=methods, **same, **chosen)
    except ValueError as error:
        raise ValueError(_as_options(error)) from None
    setups = options.setup or ["A", "B"]
    result = start = _start(options.out)
    with _Bar(sys.stderr) as bar, _noting_ctrl_c() as pressed:
        try:
            for result in experiment.sweep(
                parameters,
                setups,
                sizes,
                device=options.device,
                start=start,
                progress=bar.show,
                stop=lambda: bool(pressed),
            ):
                bar.clear()
                if options.out:
                    with _writing(options.out):
                        results.save(options.out, result)
                if result is start:
                    bar.say(f"{options.out} {_kept(start, {(s, steps) for s in setups for steps in sizes})}")
                elif result.points:
                    bar.say(_last(result))
        except experiment.ConflictError as error:
            raise ValueError(f"{options.out}: {_as_options(error)}") from None
        except KeyboardInterrupt:
            pressed.append(True)
        if pressed:
            bar.clear()
            return _stopped(result, options.out)
    print(result)
    return 0


@contextmanager
def _noting_ctrl_c() -> Iterator[list[bool]]:
    """A list that is empty until Ctrl-C: Python drops a KeyboardInterrupt that meets it within a finalizer."""
    pressed: list[bool] = []
    if threading.current_thread() is not threading.main_thread():
        yield pressed  # only there can signals be handled
        return

    def press(number: int, frame: Any) -> None:
        pressed.append(True)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def _as_options(error: ValueError) -> str:
    """The message with the names that the options have here."""
    return re.sub(r"\b(shortest|longest|batch_size)\b", lambda found: _OPTIONS[found[0]], str(error))


def _start(out: str | None) -> Benchmark | None:
    """What the file holds, if there is one."""
    if not out or not Path(out).exists():
        return None
    if Path(out).is_dir():
        raise ValueError(f"cannot write {out}: it is a folder")
    try:
        return results.load(out)
    except ValueError as error:
        raise ValueError(f"{error}. Take another --out, or remove that file") from None


@contextmanager
def _writing(path: str | Path) -> Iterator[None]:
    """Says in a line why a file cannot be written."""
    try:
        yield
    except OSError as error:
        folder = Path(path).parent
        why = error.strerror if folder.is_dir() else f"there is no folder {folder}"
        raise ValueError(f"cannot write {path}: {why}") from None


def _kept(start: Benchmark, wanted: Collection[tuple[str, int]]) -> str:
    left = len({*wanted} - {(point.setup, point.steps) for point in start.points})
    return f"holds {count(len(start.points), 'point')}, which stay; {left or 'nothing'} left to measure"


def _last(result: Benchmark) -> str:
    point = result.points[-1]
    lost = "".join(f", {name}: {why}" for name, why in point.missing.items())
    wrong = "".join(f", {method} gives other results" for method in point.wrong)
    return f"setup {point.setup}, {point.steps} time steps: done{lost}{wrong}"


def _stopped(result: Benchmark | None, out: str | None) -> int:
    if not result or not result.points:
        print("packviz: stopped; nothing was measured yet", file=sys.stderr)
    elif not out:
        print("packviz: stopped", file=sys.stderr)
        print(result)
    else:
        there = count(len(result.points), "point")
        print(f"packviz: stopped; {out} holds {there}. The same command again goes on from there.", file=sys.stderr)
    return STOPPED


def _plot(options: argparse.Namespace) -> int:
    out = Path(options.out)
    if out.suffix.lower() not in (".svg", ".html", ".png"):
        raise ValueError(f"--out is {options.out}; its name must end in .svg, .html or .png")
    found = {name: results.load(name) for name in dict.fromkeys(options.files)}
    if not any(result.points for result in found.values()):
        raise ValueError("there is no point in these files to draw")
    names = {name: "" if len(found) == 1 else Path(name).stem for name in found}
    if len(set(names.values())) < len(names):  # of the same name in different folders
        names = {name: name for name in found}
    picture = results.beside({names[name]: result for name, result in found.items()})
    with _writing(out):
        if out.suffix.lower() == ".svg":
            out.write_text(picture.to_svg() + "\n", encoding="utf-8")
        else:
            _write_chart(picture, out)
    return 0


def _write_chart(picture: Sweep, out: Path) -> None:
    try:
        from packviz.draw import figures  # noqa: PLC0415 - a bare GPU machine has no plotly
    except ImportError as error:
        raise ValueError(f"{out.suffix} needs plotly: python -m pip install plotly; .svg does without") from error
    figures.write(picture, out)


class _Bar:
    """A progress bar on a terminal; elsewhere nothing but the lines that are said."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._shown, self._most = stream, 0, 0.0

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *error: object) -> None:
        self.clear()

    def show(self, progress: Progress) -> None:
        """Draws the bar anew."""
        if not self._stream.isatty():
            return
        self._most = max(self._most, progress.fraction)  # what is foreseen may grow, and a bar does not go back
        full = round(20 * self._most)
        line = f"[{'#' * full}{'.' * (20 - full)}] {self._most:4.0%}  {progress.to_text()}"
        line = line[: shutil.get_terminal_size().columns - 1]
        self._stream.write("\r" + line.ljust(self._shown))
        self._stream.flush()
        self._shown = len(line)

    def clear(self) -> None:
        """Takes the bar away."""
        if self._shown:
            self._stream.write("\r" + " " * self._shown + "\r")
            self._stream.flush()
            self._shown = 0

    def say(self, line: str) -> None:
        """Writes a line that stays."""
        self._stream.write(line + "\n")
        self._stream.flush()
