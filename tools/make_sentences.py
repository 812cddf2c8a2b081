"""Makes packviz/core/sentences.json: sentences from the docstrings of Python's standard library.

Run once, with the Python whose docstrings are wanted: `python tools/make_sentences.py`. The file is frozen from then
on, so that what the notebooks show does not change with the Python that runs them.
"""

from __future__ import annotations

import ast
import json
import platform
import random
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

OUT = Path(__file__).parents[1] / "packviz" / "core" / "sentences.json"
MODULES = """
    abc argparse ast asyncio/tasks bisect calendar collections/__init__ concurrent/futures/_base configparser
    contextlib copy csv dataclasses datetime decimal difflib doctest email/message enum fileinput fractions
    functools gzip heapq html/parser http/client inspect io ipaddress json/__init__ logging/__init__ mailbox
    os pathlib pickle random re/__init__ sched shelve shutil socket sqlite3/dump statistics string subprocess
    tarfile tempfile textwrap threading timeit tkinter/__init__ traceback turtle typing unittest/case
    urllib/parse uuid warnings weakref zipfile
"""
COUNT = 512
SENTENCE = re.compile(r"[A-Z][^.!?]*[a-z][.!?](?=\s|$)")
TOKEN = re.compile(r"[A-Za-z]+(?:['’-][A-Za-z]+)*|\d+|[.,;:!?()]")


def docstrings(path: Path) -> Iterator[str]:
    """Every docstring of a source file, in order."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield ast.get_docstring(node) or ""


def sentences(docstring: str) -> Iterator[str]:
    """The plain sentences of a docstring, as tokens joined by blanks. Code and tables are left out."""
    for paragraph in docstring.split("\n\n"):
        if re.search(r"[>`=_*|<\[\]{}\\/@#]|^\s+\S", paragraph, re.MULTILINE):
            continue
        for sentence in SENTENCE.findall(" ".join(paragraph.split())):
            yield " ".join(TOKEN.findall(sentence))


def main() -> None:
    """Writes the file."""
    library = Path(sysconfig.get_path("stdlib"))
    found = dict.fromkeys(
        sentence
        for module in MODULES.split()
        for docstring in docstrings(library / f"{module}.py")
        for sentence in sentences(docstring)
        if sentence.count(" ") >= 1
    )
    chosen = random.Random(0).sample(list(found), COUNT)
    content = {
        "about": "Sentences from docstrings of Python's standard library, in random order, tokens joined by blanks.",
        "source": f"CPython {platform.python_version()}",
        "licence": "PSF License Version 2. Copyright © 2001 Python Software Foundation. All Rights Reserved.",
        "made_by": "tools/make_sentences.py",
        "sentences": chosen,
    }
    OUT.write_text(json.dumps(content, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    lengths = [sentence.count(" ") + 1 for sentence in chosen]
    print(f"{len(chosen)} of {len(found)} sentences, {min(lengths)} to {max(lengths)} tokens")


if __name__ == "__main__":
    main()
