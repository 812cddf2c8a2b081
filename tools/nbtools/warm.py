"""Starts the kernels of many notebooks as copies of one process that has imported torch.

Importing torch and Jupyter's kernel takes two seconds, which is most of the time of many notebooks.
So a server (server.py) imports them once, and forks for each kernel. It leaves packviz to the
notebook.

Jupyter starts this file as a kernel. Such a process hands its arguments, folder and environment
over to a copy of the server, and then the two end together.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any


def warm_kernels(env: dict[str, str], log: Any = None) -> subprocess.Popen[bytes]:
    """Starts a server, which ends when its standard input is closed, and waits until it is ready.

    Jupyter chooses the ports of a kernel before it starts one. If the kernel then waited for the
    server's imports, another process could take a port meanwhile.

    Args:
        env: The environment of the server, which decides on threads and on the hash seed. It is
            changed so that Jupyter takes kernels from the server. Its `IPYTHONDIR` must exist.
        log: The file for what the kernels write outside of notebooks.
    """
    env["JUPYTER_PATH"] = str(Path(__file__).with_name("jupyter"))
    command = [sys.executable, str(Path(__file__).with_name("server.py"))]
    server = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=log, stderr=log)
    while server.poll() is None and not os.path.exists(f"{env['IPYTHONDIR']}/server"):
        time.sleep(0.1)
    return server


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which Jupyter also sends to what it shuts down
    server = Client(f"{os.environ['IPYTHONDIR']}/server")
    server.send((sys.argv, os.getcwd(), {**os.environ}))
    server.poll(None)
