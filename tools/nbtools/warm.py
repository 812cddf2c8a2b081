"""Starts the kernels of many notebooks as copies of one process that has imported torch.

Importing torch and Jupyter's kernel takes two seconds, which is most of the time of many notebooks.
So a server imports them once, and forks for each kernel. It leaves packviz to the notebook.

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

SERVER = """
import gc, os, sys, threading
from multiprocessing.connection import Listener

def end_with(stream):
    os.read(stream, 1)
    os._exit(0)

del sys.path[0]  # IPython adds the folder of the notebook elsewhere
os.environ["JPY_PARENT_PID"] = str(os.getpid())  # so that a kernel prints nothing at its start
with Listener(os.environ["IPYTHONDIR"] + "/server") as listener:
    import torch, ipywidgets, anywidget, plotly.graph_objects
    from ipykernel.kernelapp import launch_new_instance
    gc.freeze()
    threading.Thread(target=end_with, args=[0], daemon=True).start()
    client = listener.accept()
    while os.fork():
        client.close()
        client = listener.accept()
sys.argv, folder, environment = client.recv()
os.chdir(folder)
os.environ.update(environment)
threading.Thread(target=end_with, args=[client.fileno()], daemon=True).start()
launch_new_instance()
"""


def warm_kernels(env: dict[str, str], log: Any = None) -> subprocess.Popen[bytes]:
    """Starts a server, which ends when its standard input is closed.

    Args:
        env: The environment of the server, which decides on threads and on the hash seed. It is
            changed such that Jupyter takes kernels from the server. Its `IPYTHONDIR` must exist.
        log: Where the kernels write what no notebook shows.
    """
    env["JUPYTER_PATH"] = str(Path(__file__).with_name("jupyter"))
    command = [sys.executable, "-c", SERVER]
    return subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=log, stderr=log)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which Jupyter also sends to what it shuts down
    address = f"{os.environ['IPYTHONDIR']}/server"
    while not os.path.exists(address):
        time.sleep(0.1)
    server = Client(address)
    server.send((sys.argv, os.getcwd(), {**os.environ}))
    server.poll(None)
