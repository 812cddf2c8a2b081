"""Imports torch and Jupyter's kernel once, and forks for each kernel (see warm.py)."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import threading
from multiprocessing.connection import Listener

# Half of the notebooks need torch._dynamo, which an optimiser imports with its first step.
IMPORTED = ("torch", "torch._dynamo", "ipywidgets", "anywidget", "plotly.graph_objects")


def end_with(stream: int) -> None:
    """Ends this process when the other end of a stream is closed."""
    os.read(stream, 1)
    os._exit(0)


def serve() -> None:
    """Forks for each client, and becomes the client's kernel in the copy."""
    del sys.path[0]  # this file's folder; IPython adds the folder of the notebook elsewhere
    # The kernel reads this variable when it is imported, and then prints nothing at its start.
    os.environ["JPY_PARENT_PID"] = str(os.getpid())
    for name in IMPORTED:
        importlib.import_module(name)
    kernel = importlib.import_module("ipykernel.kernelapp")
    gc.freeze()
    # A fork copies only the thread that forks, so this is the only other one.
    threading.Thread(target=end_with, args=[0], daemon=True).start()
    with Listener(f"{os.environ['IPYTHONDIR']}/server") as listener:
        client = listener.accept()
        while os.fork():
            client.close()
            client = listener.accept()
    sys.argv, folder, environment = client.recv()
    os.chdir(folder)
    os.environ.update(environment)
    threading.Thread(target=end_with, args=[client.fileno()], daemon=True).start()
    kernel.launch_new_instance()


if __name__ == "__main__":
    serve()
