"""Work that takes seconds, such as a measurement, without freezing the notebook."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

Progress = Callable[[int, int], object]
Stop = Callable[[], bool]
Work = Callable[[Progress, Stop], str]


class Job(widgets.HBox):
    """A button that starts the work, a progress bar, a button that stops it, and what came of it.

    The button runs the work in a thread, so that the notebook stays free; `run` runs it here and now.

    Attributes:
        start: the button that starts it.
        stop: the button that asks it to stop.
        bar: how far it is.
        message: what came of it.
        complaint: why it failed; empty if it did not.
        thread: the last one that the button started; none before that.
    """

    def __init__(self, description: str, work: Callable[[], Work]) -> None:
        """Offers the work.

        Args:
            description: on the button.
            work: prepares it, before the thread is started, and returns what the thread shall do. That takes what to
                call with the parts done and the parts in all, and what to ask whether to stop; and returns what to say
                in the end. A `ValueError` of either is shown.
        """
        self._prepare, self._asked = work, threading.Event()
        self.complaint = ""
        self.thread: threading.Thread | None = None
        self.start = widgets.Button(description=description, layout={"width": "auto"})
        self.stop = widgets.Button(description="Stop", disabled=True, layout={"width": "80px"})
        self.bar = widgets.IntProgress(value=0, min=0, max=1, layout={"width": "140px"})
        self.message = widgets.Label()
        super().__init__([self.start, self.stop, self.bar, self.message], layout={"flex_flow": "row wrap"})
        self.start.on_click(self._begin)
        self.stop.on_click(lambda button: self._asked.set())

    def run(self) -> str:
        """Does the work, and returns the message about it."""
        try:
            self.message.value = self._ready()(self._progress, self._asked.is_set)
        finally:
            self._rest()
        return str(self.message.value)

    def _begin(self, button: Any = None) -> None:
        try:
            work = self._ready()
        except ValueError as error:
            self._fail(error)
            self._rest()
            return
        self.thread = threading.Thread(target=self._in_thread, args=(work,), daemon=True)
        self.thread.start()

    def _in_thread(self, work: Work) -> None:
        try:
            self.message.value = work(self._progress, self._asked.is_set)
        except Exception as error:
            self._fail(error)
            if not isinstance(error, ValueError):
                raise
        finally:
            self._rest()

    def _ready(self) -> Work:
        self._asked.clear()
        self.start.disabled, self.stop.disabled, self.bar.value = True, False, 0
        self.message.value, self.complaint = "…", ""
        return self._prepare()

    def _progress(self, done: int, of: int) -> None:
        self.bar.max, self.bar.value = of, done

    def _fail(self, error: Exception) -> None:
        self.message.value = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        self.complaint = f"✗ {self.start.description}: {self.message.value}"

    def _rest(self) -> None:
        self.start.disabled, self.stop.disabled = False, True
