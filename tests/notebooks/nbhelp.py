"""Helps the notebook tests: calls the tool in this process, and writes small sources."""

import contextlib
import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import notebooks

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Done:
    """The result of a call of the tool."""

    returncode: int
    stdout: str
    stderr: str


Tool = Callable[..., Done]


def call_tool(*arguments: object) -> Done:
    """Calls `tools/notebooks.py` as the command line does, and leaves this process as it was."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        status = notebooks.main([str(argument) for argument in arguments])
    return Done(status, out.getvalue(), err.getvalue())


def write(root: Path, text: str, name: str = "01_one") -> Path:
    """Writes a source to the folder in which the tool looks for it."""
    path = root / "notebooks" / "source" / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
