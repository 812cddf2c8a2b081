"""The commands `packviz study` and `packviz advise`, and what all that measure have in common: bar, Ctrl-C, errors."""

from __future__ import annotations

import argparse
import importlib
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from packviz.bench.machine import check_device
from packviz.bench.study import ConflictError, Progress, Results, Study
from packviz.core import lengths
from packviz.core.spec import GATES
from packviz.draw.text import count, table

STOPPED = 130
"""The exit status after Ctrl-C, as a shell has it."""


@contextmanager
def in_a_line(parser: argparse.ArgumentParser) -> Iterator[None]:
    """Ends the program with the usage and the message of a ValueError, and status 2, as for a misspelt option."""
    try:
        yield
    except ValueError as error:
        parser.error(str(error))


def add_studies(parser: argparse.ArgumentParser, studies: Mapping[str, str]) -> None:
    """Gives the parser a command for each study.

    Args:
        parser: of `packviz study`.
        studies: by the name of the study, which is that of its module, what it asks.
    """
    parser.set_defaults(run=lambda options: _list(studies))
    named = parser.add_subparsers(title="studies", metavar="NAME")
    for name, said in studies.items():
        one = named.add_parser(name, help=said, description=said)
        add = one.add_argument
        add("--out", required=True, metavar="FILE", help="the file to write; if it is there, go on with it")
        add("--device", default="cpu", help="cpu, cuda or cuda:1 (default: cpu)")
        add("--threads", type=int, default=1, metavar="N", help="torch's CPU threads (default: 1)")
        effort = one.add_mutually_exclusive_group()
        effort.add_argument("--rounds", type=positive(int), metavar="N", help="timed rounds for each point")
        effort.add_argument("--budget", type=positive(float), metavar="SECONDS", help="for each point, roughly")
        add("--quick", action="store_true", help="few and small points")
        add("--only", default="", metavar="WORDS", help="the points whose name holds this")
        one.set_defaults(run=partial(_study, f"packviz.studies.{name}"))


def positive(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """A type for argparse: `int` or `float`, over 0."""

    def number(said: str) -> Any:
        if not 0 < (value := kind(said)) < float("inf"):
            raise ValueError
        return value

    number.__name__ = "positive number"  # argparse says it
    return number


def _list(studies: Mapping[str, str]) -> int:
    print(*table([*studies.items()], "<  <"), sep="\n")
    return 0


def _study(module: str, options: argparse.Namespace) -> int:
    study: Study[Any, Any, Any] = importlib.import_module(module).STUDY
    every = study.quick if options.quick else study.full
    points = [point for point in every if options.only in str(point)]
    if not points:
        raise ValueError(f"no point's name holds {options.only!r}; one is {str(every[-1])!r}")
    given = {"rounds": options.rounds, "budget": options.budget}
    parameters = {name: value for name, value in given.items() if value is not None}
    if parameters and not study.parameters:
        raise ValueError(f"{study.name} times nothing, and takes no --{next(iter(parameters))}")
    begin = partial(
        study.steps,
        points,
        parameters=parameters or study.parameters,
        device=options.device,
        threads=options.threads,
    )
    return carry_out(study, begin, points, options.out)


def add_advise(parser: argparse.ArgumentParser) -> None:
    """Gives the parser the options of `packviz advise`, but for the lengths."""
    add, number = parser.add_argument, positive(int)
    add("--rnn", choices=[*GATES], default="LSTM", help="(default: LSTM)")
    add("--input-size", type=number, required=True, metavar="N", help="features of a time step")
    add("--hidden-size", type=number, required=True, metavar="N", help="of the RNN")
    add("--layers", type=number, default=1, metavar="N", help="(default: 1)")
    add("--bidirectional", action="store_true", help="each layer runs backwards, too")
    add("--forward", action="store_true", help="measure the forward pass alone, as without training")
    add("--batch-size", type=number, default=64, metavar="N", help="sequences per batch (default: 64)")
    add("--seconds", type=positive(float), default=20.0, metavar="N", help="for everything, roughly (default: 20)")
    add("--device", default="cpu", help="cpu, cuda or cuda:1 (default: cpu)")
    add("--threads", type=number, metavar="N", help="torch's CPU threads (default: as torch has it)")
    parser.set_defaults(run=_advise)


def _advise(options: argparse.Namespace) -> None:
    import torch  # noqa: PLC0415 - other commands do without

    from packviz.bench.advice import advise  # noqa: PLC0415 - torch

    n = lengths.typed(options.lengths, options.file)
    kind: Callable[..., Any] = getattr(torch.nn, options.rnn)
    rnn = kind(options.input_size, options.hidden_size, options.layers, bidirectional=options.bidirectional)
    rnn.to(check_device(options.device)).train(not options.forward)
    if options.threads:
        torch.set_num_threads(options.threads)
    with Bar(sys.stderr) as bar, noting_ctrl_c() as pressed:
        try:
            advice = advise(
                rnn,
                n,
                batch_size=options.batch_size,
                budget=options.seconds,
                progress=bar.show_rounds,
                stop=lambda: bool(pressed),
            )
        except ValueError:
            if not pressed:
                raise
        if pressed:
            raise KeyboardInterrupt
    print(f"{advice}\n\n{advice.code}")


def carry_out(
    study: Study[Any, Any, Any],
    begin: Callable[..., Iterator[Any]],
    points: Collection[Any],
    out: str | None,
    words: Callable[[str], str] = str,
) -> int:
    """Runs a study, shows how far it is, writes the file after every point, and prints the results.

    Args:
        study: what is run.
        begin: takes `start`, `progress` and `stop` as `Study.steps` does, and gives what it gives.
        points: that were asked for.
        out: the file to write, or to go on with; none to print only.
        words: puts a complaint into the words of the command.

    Returns:
        The exit status.

    Raises:
        ValueError: the file cannot be read or written, or its results were measured otherwise.
    """
    result = start = _start(study, out)
    import torch  # noqa: F401, PLC0415 - here: a KeyboardInterrupt half-way through it would leave any error at all

    with Bar(sys.stderr) as bar, noting_ctrl_c() as pressed:
        try:
            for result in begin(start=start, progress=bar.show, stop=lambda: bool(pressed)):
                bar.clear()
                if out:
                    with writing(out):
                        study.save(out, result)
                if result is start:
                    left = len({*points} - result.values.keys())
                    kept = f"holds {count(len(result.values), 'point')}, which stay"
                    bar.say(f"{out} {kept}; {left or 'nothing'} left to measure")
                elif result.values:
                    point, value = [*result.values.items()][-1]
                    bar.say(f"{point}: done{study.remark(value)}")
        except ConflictError as error:
            raise ConflictError(f"{out}: {words(str(error))}") from None
        except KeyboardInterrupt:
            pressed.append(True)
        if pressed:
            bar.clear()
            return _stopped(result, out)
    print(result)
    return 0


def _start(study: Study[Any, Any, Any], out: str | None) -> Any:
    """What the file holds, if there is one."""
    if not out or not Path(out).exists():
        return None
    if Path(out).is_dir():
        raise ValueError(f"cannot write {out}: it is a folder")
    try:
        return study.load(out)
    except ValueError as error:
        raise ValueError(f"{error}. Take another --out, or remove that file") from None


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Says in a line why a file cannot be written."""
    try:
        yield
    except OSError as error:
        folder = Path(path).parent
        why = error.strerror if folder.is_dir() else f"there is no folder {folder}"
        raise ValueError(f"cannot write {path}: {why}") from None


@contextmanager
def noting_ctrl_c() -> Iterator[list[bool]]:
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


def _stopped(result: Results[Any, Any] | None, out: str | None) -> int:
    if not result or not result.values:
        print("packviz: stopped; nothing was measured yet", file=sys.stderr)
    elif not out:
        print("packviz: stopped", file=sys.stderr)
        print(result)
    else:
        there = count(len(result.values), "point")
        print(f"packviz: stopped; {out} holds {there}. The same command again goes on from there.", file=sys.stderr)
    return STOPPED


class Bar:
    """A progress bar on a terminal; elsewhere nothing but the lines that are said."""

    def __init__(self, stream: TextIO) -> None:
        """Takes where to write."""
        self._stream, self._shown, self._most = stream, 0, 0.0

    def __enter__(self) -> Bar:
        """Nothing is shown yet."""
        return self

    def __exit__(self, *error: object) -> None:
        """Takes the bar away."""
        self.clear()

    def show(self, progress: Progress) -> None:
        """Draws the bar anew."""
        self._most = max(self._most, progress.fraction)  # what is foreseen may grow, and a bar does not go back
        full = round(20 * self._most)
        self._draw(f"[{'#' * full}{'.' * (20 - full)}] {self._most:4.0%}  {progress.to_text()}")

    def show_rounds(self, done: int, of: int) -> None:
        """Draws a bar of the rounds of one measurement."""
        full = 30 * done // of
        self._draw(f"measuring [{'#' * full}{'.' * (30 - full)}] round {done} of {of}")

    def clear(self) -> None:
        """Takes the bar away."""
        if self._shown:
            self._write("\r" + " " * self._shown + "\r")
            self._shown = 0

    def say(self, line: str) -> None:
        """Writes a line that stays."""
        self._write(line + "\n")

    def _draw(self, line: str) -> None:
        if self._stream.isatty():
            line = line[: shutil.get_terminal_size().columns - 1]
            self._write("\r" + line.ljust(self._shown))
            self._shown = len(line)

    def _write(self, said: str) -> None:
        self._stream.write(said)
        self._stream.flush()
