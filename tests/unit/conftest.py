"""Fixtures that several of the unit tests use."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# The process that hands out the tests to the workers reads this file too, and needs no torch.


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Uses one thread, because with tiny tensors on busy cores, threads wait for each other."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def two_threads():
    """Sets a number of threads that the test must find unchanged.

    It differs from that of the other tests.
    """
    import torch

    torch.set_num_threads(2)
    yield 2
    torch.set_num_threads(1)


SERVER = """
import gc, json, os, sys
import torch
gc.freeze()
for line in sys.stdin:
    code, sys.argv, outputs = json.loads(line)
    if not (child := os.fork()):
        for number, path in enumerate([os.devnull, *outputs]):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
        status = 0
        try:
            exec(code, {"__name__": "__main__"})
        except SystemExit as end:
            status = end.code or 0
        except BaseException:
            status = sys.excepthook(*sys.exc_info()) or 1
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(status)  # to take the interpreter apart would take half a second
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="session")
def fork(tmp_path_factory):
    """Returns `run(code, *arguments)`, which runs code in a process that has imported torch and
    nothing else.

    Each process is a copy of one that waits, because importing torch takes most of the time of a
    small program.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    root, outputs = (
        Path(__file__).parents[2],
        [str(tmp_path_factory.mktemp("fork") / name) for name in ("out", "err")],
    )
    command, pipes = (
        [sys.executable, "-c", SERVER],
        {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE},
    )
    with subprocess.Popen(command, **pipes, cwd=root, env=clean, text=True) as server:

        def run(code, *arguments):
            print(
                json.dumps([code, ["-c", *map(str, arguments)], outputs]),
                file=server.stdin,
                flush=True,
            )
            status = int(server.stdout.readline())
            return subprocess.CompletedProcess(
                code, status, *(Path(path).read_text("utf-8") for path in outputs)
            )

        yield run
