"""Times calls in child processes, one process for each call.

In a shared process, what one call frees, the next one reuses, so the time of a call depends on the
calls before it. Here each call has a process of its own, as in a user's program. Only one of the
processes computes at a time.

Importing torch takes seconds. Therefore, one process (the *fork server* of `multiprocessing`)
imports it once, and each child begins as a copy of that process.
"""

from __future__ import annotations

import gc
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from multiprocessing.connection import Connection

import torch

from packviz.measure.timing import Sample, Sampler

MakeSamplers = Callable[[], Mapping[str, Sampler]]
"""A function that makes samples of calls, by name. It can be pickled, so it is not a lambda."""


class ChildError(RuntimeError):
    """A call has failed in a child process, or the process has ended."""


class Child:
    """A call in a child process."""

    def __init__(self, make_samplers: MakeSamplers, name: str) -> None:
        """Starts the process, which creates the calls and keeps the one called `name`.

        The process gets as many threads as this one has, and torch's random seed 0.
        """
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch", "packviz.measure.rnn_calls"])
        self._name = name
        self._connection, end = context.Pipe()
        arguments = (end, make_samplers, name, torch.get_num_threads())
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        end.close()

    def __call__(self) -> Sample:
        """Makes the call, and returns its seconds and page faults.

        Raises:
            ChildError: the call failed, or the process has ended.
        """
        try:
            self._connection.send("sample")
            answer: Sample | str = self._connection.recv()
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode
            reason = ""
            if code == -9:  # killed; Windows has no signal of this name
                reason = "; the machine may have run out of memory"
            raise ChildError(
                f"the process of {self._name!r} ended with exit status {code} before it"
                f" answered{reason}"
            ) from None
        if isinstance(answer, str):
            raise ChildError(f"the process of {self._name!r} raised {answer}")
        return answer

    def close(self) -> None:
        """Ends the process, even while it computes."""
        self._process.kill()
        self._process.join()
        self._connection.close()


@contextmanager
def start_children(make_samplers: MakeSamplers, names: Sequence[str]) -> Iterator[dict[str, Child]]:
    """Starts a child for each name, and ends all of them after the `with` block."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(closing(Child(make_samplers, name))) for name in names}


def _serve(connection: Connection, make_samplers: MakeSamplers, name: str, threads: int) -> None:
    """Answers the parent process until it closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this one
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    gc.disable()  # collecting garbage would be timed
    call: Sampler | None = None
    answer: Sample | str
    with suppress(EOFError, OSError):  # the parent has closed the connection, or has ended
        while True:
            connection.recv()
            try:
                call = call or make_samplers()[name]
                answer = call()
            except Exception as error:  # the parent decides what follows from it
                answer = f"{type(error).__name__}: {error}"
            connection.send(answer)
