"""What the notebook tests share: the tool as a command, and small sources."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "notebooks.py"
Tool = Callable[..., subprocess.CompletedProcess[str]]


def call_tool(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs `tools/notebooks.py` as a reader does, from anywhere."""
    command = [sys.executable, str(TOOL), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def write(root: Path, text: str, name: str = "01_one") -> Path:
    """Puts a source where the tool looks for it."""
    path = root / "notebooks" / "source" / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
