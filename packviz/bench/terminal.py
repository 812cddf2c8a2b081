"""What all measuring commands share: a progress bar, Ctrl-C, resuming from a file, and errors in one line."""

from __future__ import annotations

import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TextIO

from packviz.bench.study import Results, Study
from packviz.core.files import require_suffix
from packviz.draw.text import count

STOPPED = 130
"""The exit status after Ctrl-C, as a shell has it."""


def positive(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """A type for argparse: `int` or `float`, over 0."""

    def number(text: str) -> Any:
        if not 0 < (value := kind(text)) < float("inf"):
            raise ValueError
        return value

    number.__name__ = "positive number"  # argparse says it
    return number


def carry_out(study: Study[Any, Any, Any], points: Sequence[Any], out: str | None, **options: Any) -> int:
    """Runs a study, shows how far it is, writes the file after every point, and prints the results.

    Args:
        study: what is run.
        points: to measure.
        out: the file to write, or to resume from; None only prints.
        **options: what else `Study.steps` takes.

    Returns:
        The exit status.

    Raises:
        ValueError: the file cannot be read or written, or its results were measured otherwise.
    """
    if out:
        require_suffix("--out", out, [".json"])
    result = start = kept(study, out)
    import torch  # noqa: F401, PLC0415 - here: a KeyboardInterrupt half-way through it would leave any error at all

    with closing(Bar(sys.stderr)) as bar, noting_ctrl_c() as pressed:
        for result in study.steps(points, start=start, progress=bar.show, stop=lambda: bool(pressed), **options):
            if out:
                with writing(out):
                    study.save(out, result)
            if result is start:
                left = len({*points} - result.values.keys())
                stay = f"holds {count(len(result.values), 'point')}, which stay"
                bar.say(f"{out} {stay}; {left or 'nothing'} left to measure")
            elif result.values:
                *_, point = result.values
                bar.say("\n".join([f"{point}: done", *(f"✗ {line}" for line in result.left_out_at(point))]))
    if pressed:
        return _stopped(result, out)
    print(result)
    return 0


def kept(study: Study[Any, Any, Any], out: str | Path | None) -> Any:
    """What the file holds, if there is one."""
    if not out or not Path(out).is_file():
        return None
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
    """Ends the block at Ctrl-C, and yields a list that is empty until then.

    Long work also has to check the list, because Python drops a KeyboardInterrupt that arrives within a finalizer.
    """
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
    except KeyboardInterrupt:
        pressed.append(True)
    finally:
        signal.signal(signal.SIGINT, before)


def _stopped(result: Results[Any, Any] | None, out: str | None) -> int:
    there = count(len(result.values), "point") if result and result.values else ""
    after = f"; {out} holds {there}. Run the same command again to resume." if out else ""
    print(f"packviz: stopped{after if there else '; nothing was measured yet'}", file=sys.stderr)
    if there and not out:
        print(result)
    return STOPPED


class Bar:
    """A progress bar on a terminal; elsewhere nothing but the printed lines."""

    def __init__(self, stream: TextIO) -> None:
        """Takes where to write."""
        self._stream, self._shown = stream, 0

    def show(self, share: float, words: str) -> None:
        """Draws how much is done."""
        if self._stream.isatty():
            line = f"[{'#' * round(20 * share):.<20}] {share:4.0%}  {words}"[: shutil.get_terminal_size().columns - 1]
            self._write("\r" + line.ljust(self._shown))
            self._shown = len(line)

    def show_rounds(self, done: int, of: int) -> None:
        """Draws the rounds of one measurement."""
        self.show(done / of, f"measuring, round {done} of {of}")

    def close(self) -> None:
        """Takes the bar away."""
        if self._shown:
            self._write("\r" + " " * self._shown + "\r")
            self._shown = 0

    def say(self, line: str) -> None:
        """Writes a line that stays."""
        self.close()
        self._write(line + "\n")

    def _write(self, text: str) -> None:
        print(text, end="", file=self._stream, flush=True)
