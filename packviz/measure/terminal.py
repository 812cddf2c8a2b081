"""Helps measuring commands to show progress, handle Ctrl-C, resume from a file, and report errors in one line."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TextIO

from packviz.core.files import require_suffix
from packviz.measure.study import Study

STOPPED = 130
"""The exit status after Ctrl-C, as in a shell."""


def positive(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """Returns an argparse type that converts text with `kind`, and accepts only finite numbers above 0."""

    def number(text: str) -> Any:
        if not 0 < (value := kind(text)) < float("inf"):
            raise ValueError
        return value

    number.__name__ = "positive number"  # argparse shows this name in its errors
    return number


def carry_out(
    study: Study[Any, Any, Any], points: Sequence[Any], out: str | None, **options: Any
) -> int:
    """Runs a study, shows its progress, writes the file after every point, and prints the results.

    Args:
        study: the study to run.
        points: the points to measure.
        out: the file to write. If the file exists, the study resumes from it. If `out` is `None`,
            the results are only printed.
        **options: other options of `Study.steps`.

    Returns:
        The exit status.

    Raises:
        ValueError: the file cannot be read or written, or its results were measured under different
            conditions.
    """
    if out:
        require_suffix("--out", out, [".json"])
    try:
        result = start = study.load(out) if out and Path(out).is_file() else None
    except ValueError as error:
        raise ValueError(f"{error}. Choose another --out, or remove that file") from None
    import torch

    with closing(Bar(sys.stderr)) as bar, noting_ctrl_c() as pressed:
        for result in study.steps(
            points, start=start, progress=bar.show, stop=lambda: bool(pressed), **options
        ):
            if out:
                with writing(out):
                    study.save(out, result)
            if result is not start and result.values:
                *_, point = result.values
                bar.say(f"{point}: done")
    if pressed:
        print(
            f"packviz: stopped{'. Run the same command again to resume.' if out else ''}",
            file=sys.stderr,
        )
    if result and result.values and not (out and pressed):
        print(result)
    return STOPPED if pressed else 0


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Turns an `OSError` in a `with` block into a `ValueError` with a one-line message."""
    try:
        yield
    except OSError as error:
        folder = Path(path).parent
        why = error.strerror if folder.is_dir() else f"there is no folder {folder}"
        raise ValueError(f"cannot write {path}: {why}") from None


@contextmanager
def noting_ctrl_c() -> Iterator[list[bool]]:
    """Ends a `with` block when Ctrl-C is pressed, and yields a list that is empty until then.

    Long-running work must also check the list, because Python drops a KeyboardInterrupt that
    arrives within a finaliser.
    """
    pressed: list[bool] = []

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


class Bar:
    """A progress bar that is drawn only on a terminal. Any other stream gets only the lines from `say`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._shown = stream, 0

    def show(self, share: float, words: str) -> None:
        """Draws a bar that shows the share of the work done, and writes `words` after it."""
        if self._stream.isatty():
            line = f"[{'#' * round(20 * share):.<20}] {share:4.0%}  {words}"[
                : shutil.get_terminal_size().columns - 1
            ]
            self._write("\r" + line.ljust(self._shown))
            self._shown = len(line)

    def close(self) -> None:
        """Removes the bar."""
        if self._shown:
            self._write("\r" + " " * self._shown + "\r")
            self._shown = 0

    def say(self, line: str) -> None:
        """Writes a line that stays on the screen."""
        self.close()
        self._write(line + "\n")

    def _write(self, text: str) -> None:
        print(text, end="", file=self._stream, flush=True)
