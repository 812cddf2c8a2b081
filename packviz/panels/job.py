"""Runs work that takes seconds, such as a measurement, without blocking the notebook."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import ipywidgets as widgets

Progress = Callable[[int, int], object]
Stop = Callable[[], bool]

_ONE_AT_A_TIME = threading.Lock()  # a measurement would slow down any other


class Job(widgets.HBox):
    """A button that starts some work, a progress bar, a button that stops the work, and a message.

    The first button runs the work in a thread, so that the notebook stays responsive. `run` does
    the work in the calling thread. Only one job runs at a time. Making or starting another job asks
    the running job to stop, and a new job starts its work only when the running job has stopped.

    Attributes:
        start: the button that starts the work.
        stop: the button that asks the work to stop.
        bar: the progress bar.
        message: the label that shows the result of the work, or its error.
        complaint: the error message if the work failed; otherwise an empty string.
        thread: the thread that the button started last, or `None` if there is none yet.
    """

    _stop_last: ClassVar[threading.Event] = (
        threading.Event()
    )  # asks the job that was started last to stop

    def __init__(self, description: str, work: Callable[[Progress, Stop], str]) -> None:
        """Makes the buttons, the progress bar and the message.

        Args:
            description: the label of the button that starts the work.
            work: the function that does the work. Its arguments are two functions. The first one
                reports progress: call it with the number of parts that are done and the total
                number of parts. The second one returns whether the work should stop. `work` returns
                the message to show at the end. If `work` raises an error, the error message is
                shown.
        """
        self._work, self._asked = work, threading.Event()
        self.complaint = ""
        self.thread: threading.Thread | None = None
        self.start = widgets.Button(description=description, layout={"width": "auto"})
        self.stop = widgets.Button(description="Stop", disabled=True, layout={"width": "80px"})
        self.bar = widgets.IntProgress(value=0, min=0, max=1, layout={"width": "140px"})
        self.message = widgets.Label()
        super().__init__(
            [self.start, self.stop, self.bar, self.message], layout={"flex_flow": "row wrap"}
        )
        self.start.on_click(self._begin)
        self.stop.on_click(lambda button: self._asked.set())
        Job._stop_last.set()  # a reader who runs a cell again wants to replace its panel

    def run(self) -> str:
        """Does the work, and returns the message to show."""
        Job._stop_last.set()
        Job._stop_last = self._asked = stop = threading.Event()
        self.start.disabled, self.stop.disabled, self.bar.value = True, False, 0
        self.message.value, self.complaint = "…", ""
        try:
            with _ONE_AT_A_TIME:
                self.message.value = self._work(self._progress, stop.is_set)
        except Exception as error:
            self.message.value = (
                str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            )
            self.complaint = f"✗ {self.start.description}: {self.message.value}"
            raise
        finally:
            self.start.disabled, self.stop.disabled = False, True
        return str(self.message.value)

    def _begin(self, button: Any = None) -> None:
        self.thread = threading.Thread(target=self._in_thread, daemon=True)
        self.thread.start()

    def _in_thread(self) -> None:
        with contextlib.suppress(ValueError):  # the message shows the error
            self.run()

    def _progress(self, done: int, of: int) -> None:
        self.bar.max, self.bar.value = of, done
