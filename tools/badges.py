"""Prints the badges for a copy of this repository, and puts its address into the benchmark page.

`python tools/badges.py owner/name` (`make badge REPO=owner/name`) prints Markdown for the README.
On Colab, the first cell of notebook 08 installs packviz from the address that this command writes.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COLAB = "notebooks/08_benchmark.ipynb"
CELLS = ("notebooks/source/08_benchmark.py", COLAB, "notebooks/solutions/08_benchmark.ipynb")
"""The files that contain the cell with the address."""

_ADDRESS = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+(?=\W{1,2}  # your copy)")


def badges(repository: str) -> list[str]:
    """Returns the badges for Binder, Colab and the web site, in Markdown."""
    owner, name = repository.split("/")
    start = "urlpath=lab/tree/notebooks/00_start_here.ipynb"
    links = {
        "Open in Binder": (
            "https://mybinder.org/badge_logo.svg",
            f"https://mybinder.org/v2/gh/{repository}/HEAD?{start}",
        ),
        "Open the benchmark in Colab": (
            "https://colab.research.google.com/assets/colab-badge.svg",
            f"https://colab.research.google.com/github/{repository}/blob/main/{COLAB}",
        ),
        "Read the web site": (
            "https://img.shields.io/badge/read-the_web_site-blue",
            f"https://{owner}.github.io/{name}/",
        ),
    }
    return [f"[![{text}]({image})]({link})" for text, (image, link) in links.items()]


def write_address(repository: str, root: Path = ROOT) -> None:
    """Writes the address of a repository on GitHub into the first cell of notebook 08."""
    for name in CELLS:
        path = root / name
        content = path.read_text(encoding="utf-8")
        content = _ADDRESS.sub(f"https://github.com/{repository}", content)
        path.write_text(content, encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Runs the command. Returns 2 if the argument is not a repository, and otherwise 0."""
    given = " ".join(arguments)
    if not re.fullmatch(r"[\w-]+/[\w.-]+", given):
        message = f"REPO is {given!r}; give the repository: make badge REPO=owner/name"
        print(message, file=sys.stderr)
        return 2
    write_address(given)
    print("\n".join(badges(given)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
