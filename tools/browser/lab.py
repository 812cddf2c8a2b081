"""Drives a real JupyterLab in a real browser, for the browser tests, the benchmark and screenshots.

    with Lab(Path("notebooks")) as lab:
        with lab.open("01_why_pack.ipynb") as notebook:
            notebook.run_all()
            assert notebook.problems() == []
            notebook.set_theme(dark=True)
            notebook.screenshots(Path("artefacts/screenshots"), "01_why_pack-dark")

JupyterLab runs on the loopback interface with a free port, a token and its own temporary settings.
It serves a *copy* of the notebooks, so that the checkout stays as it is. Any request to a different
host is refused and recorded.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.error import URLError
from urllib.request import urlopen

from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Locator,
    Page,
    Route,
    WebSocketRoute,
    sync_playwright,
)
from playwright.sync_api import TimeoutError as PageTimeoutError

from browser.chromium import find_chromium, how_to_get_it

PAGE_SCRIPT = Path(__file__).with_suffix(".js")
CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LOOPBACK = r"(127\.0\.0\.1|localhost|\[::1\])"
OUTSIDE = re.compile(rf"^(?!(https?|wss?)://{LOOPBACK}([:/]|$)|data:|blob:|about:|chrome)")
SETTINGS: dict[str, dict[str, Any]] = {
    "@jupyterlab/notebook-extension:tracker": {
        "windowingMode": "none",
        "autoStartDefaultKernel": True,
    },
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
}
# Errors that JupyterLab itself writes to the console even if nothing is wrong.
HARMLESS_CONSOLE = re.compile(r"favicon|ResizeObserver loop")
# JupyterLab asks every kernel for its widgets, and a kernel without ipywidgets then writes to
# stderr. torch.profiler writes to stderr when it starts and stops.
HARMLESS_STDERR = re.compile(
    r"^No such comm( target registered: jupyter\.widget\.control|: [0-9a-f-]+)$|^(USDT:.*\bprofiler_st(art|op)\s*)+$"
)
SHOT_HEIGHT = 1600
CHROME_HEIGHT = 120  # the largest height of JupyterLab's own bars above a notebook


class LabError(RuntimeError):
    """Raised if JupyterLab or the browser cannot be driven as intended."""


@dataclass(frozen=True)
class Problem:
    """Something that went wrong while a notebook was open.

    Attributes:
        kind: ``cell``, ``callback``, ``stderr``, ``page``, ``console``, ``request`` or ``log``.
        text: the message.
    """

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True)
class Panel:
    """An panel, a quiz, or any other output that contains a control."""

    id: str
    kind: str
    cell: int


@dataclass(frozen=True)
class Control:
    """A control in a panel.

    Attributes:
        id: a name for its DOM node, which is valid as long as the node exists.
        kind: ``slider``, ``play``, ``dropdown``, ``text``, ``number``, ``checkbox``, ``radio``,
            ``toggle``, ``choice`` (one of several toggle buttons) or ``button``.
        name: the accessible name, or an empty string.
        options: the choices of a dropdown.
        usable: True if it is visible and enabled and, for a slider, can move.
        value: the value in the DOM; ``on`` or ``off`` for a switch.
        at_minimum: True for a slider that cannot go down.
        at_maximum: True for a slider that cannot go up.
    """

    id: str
    kind: str
    name: str
    options: list[str]
    usable: bool
    value: str
    at_minimum: bool
    at_maximum: bool


class Server:
    """A JupyterLab server with its own process group and its own temporary folder."""

    def __init__(self, source: Path | None) -> None:
        """Starts the server.

        Args:
            source: the folder of notebooks to copy; None for an empty folder.

        Raises:
            LabError: the server ended or did not answer in time. The message contains the end of
                its log.
        """
        self.home = Path(tempfile.mkdtemp(prefix="packviz-lab-"))
        self.root = self.home / "notebooks"
        self.log_path = self.home / "server.log"
        self.token = secrets.token_hex(16)
        if source is None:
            self.root.mkdir()
        else:
            shutil.copytree(
                source,
                self.root,
                ignore=shutil.ignore_patterns(".ipynb_checkpoints", "__pycache__"),
            )
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                self._command(), env=self._environment(), cwd=self.root, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        try:
            self.url = self._wait_until_up(limit=300.0)
        except BaseException:
            self.close()
            raise

    def _command(self) -> list[str]:
        settings = self.home / "overrides"
        settings.mkdir()
        (settings / "overrides.json").write_text(json.dumps(SETTINGS))
        return [
            sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", "--port=0",
            *(["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []),
            "--expose-app-in-browser", f"--ServerApp.root_dir={self.root}",
            f"--LabApp.app_settings_dir={settings}",
            f"--LabApp.user_settings_dir={self.home / 'settings'}",
            f"--LabApp.workspaces_dir={self.home / 'workspaces'}",
            "--LabApp.extension_manager=readonly",
            "--MappingKernelManager.kernel_info_timeout=300",  # seconds in which a kernel starts
            # If this process is killed, the server and its kernels end after 15 minutes without
            # use.
            "--MappingKernelManager.cull_idle_timeout=900",
            "--ServerApp.shutdown_no_activity_timeout=900",
        ]  # fmt: skip

    def _environment(self) -> dict[str, str]:
        folders = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime",
                   "IPYTHONDIR": "ipython"}  # fmt: skip
        for folder in folders.values():
            (self.home / folder).mkdir()
        own = {name: str(self.home / folder) for name, folder in folders.items()}
        own |= {
            "JUPYTER_PREFER_ENV_PATH": "1",
            "JUPYTER_TOKEN": self.token,
            "PYTHONUNBUFFERED": "1",
        }
        return {k: v for k, v in os.environ.items() if not k.startswith("JUPYTER")} | own

    def _wait_until_up(self, limit: float) -> str:
        end = time.monotonic() + limit
        while time.monotonic() < end and self.process.poll() is None:
            for path in (self.home / "runtime").glob("jpserver-*.json"):
                with contextlib.suppress(OSError, ValueError, URLError):
                    url = str(json.loads(path.read_text())["url"])
                    with urlopen(f"{url}api/status?token={self.token}", timeout=5) as answer:
                        answer.read()
                    return url
            time.sleep(0.1)
        raise LabError(f"JupyterLab did not start:\n{self.log()[-4000:]}")

    def log(self) -> str:
        """Returns everything that the server and its kernels have written so far."""
        return self.log_path.read_text(errors="replace")

    def close(self) -> None:
        """Stops the server and its kernels, and removes its folder."""
        for signum, patience in ((signal.SIGTERM, 15.0), (signal.SIGKILL, 5.0)):
            if self.process.poll() is not None:
                break
            self._signal(signum, everyone=signum == signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
        shutil.rmtree(self.home, ignore_errors=True)

    def _signal(self, signum: int, *, everyone: bool) -> None:
        with contextlib.suppress(ProcessLookupError):
            if everyone and hasattr(os, "killpg"):
                os.killpg(
                    self.process.pid, signum
                )  # the server leads its own group, because of start_new_session
            else:
                self.process.send_signal(signum)


class Lab:
    """A context manager that runs a server and a browser."""

    def __init__(
        self, source: Path | None = None, *, width: int = 1280, height: int = 1000
    ) -> None:
        """Stores the arguments. Nothing starts before the ``with`` block.

        Args:
            source: the folder of notebooks to copy and serve; None for an empty folder.
            width: the width of the page in CSS pixels.
            height: the height of the page in CSS pixels.
        """
        self.source, self.width, self.height = source, width, height
        self._stack = contextlib.ExitStack()
        self._tab: Tab | None = None  # a tab that the next notebook can use

    def __enter__(self) -> Self:
        executable = find_chromium()
        if executable is None:
            raise LabError(how_to_get_it())
        with contextlib.ExitStack() as stack:
            playwright = stack.enter_context(sync_playwright())
            self.browser: Browser = playwright.chromium.launch(
                executable_path=executable, args=list(CHROMIUM_FLAGS)
            )
            stack.callback(self.browser.close)
            # The server is closed first, because Ctrl-C also reaches the browser, and little time
            # is left after it.
            self.server = stack.enter_context(contextlib.closing(Server(self.source)))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def write_notebook(self, name: str, cells: Sequence[str]) -> str:
        """Writes a notebook of code cells beside the copied ones, and returns its name."""
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        body: list[dict[str, Any]] = [
            {"cell_type": "code", "id": f"cell-{i}", "metadata": {}, "source": source, "outputs": [],
             "execution_count": None}
            for i, source in enumerate(cells)
        ]  # fmt: skip
        document = {
            "cells": body,
            "metadata": {"kernelspec": kernel},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
        (self.server.root / name).write_text(json.dumps(document))
        return name

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[Notebook]:
        """Opens a notebook, and shuts its kernel down at the end.

        The notebook opens in the tab of the previous one, because JupyterLab takes five seconds to
        load. After an exception, JupyterLab is loaded again in a fresh browser profile.
        """
        tab = self._tab or Tab(self)
        self._tab = None
        try:
            notebook = Notebook(self, tab, name)
            try:
                yield notebook
            finally:
                notebook.shutdown()
        except BaseException:
            tab.close()
            raise
        self._tab = tab


class Tab:
    """JupyterLab in a fresh browser profile, and a record of its problems.

    Attributes:
        page: Playwright's handle on the tab.
        seen: the problems since the last call of `Notebook.problems`.
    """

    def __init__(self, lab: Lab) -> None:
        """Loads JupyterLab, with nothing open.

        Args:
            lab: the server and the browser to use.
        """
        self.seen: list[Problem] = []
        context = lab.browser.new_context(
            viewport={"width": lab.width, "height": lab.height},
            service_workers="block",
            locale="en-GB",
        )
        self.close = context.close
        context.add_init_script(path=PAGE_SCRIPT)
        context.route(OUTSIDE, self._refuse)
        context.route_web_socket(OUTSIDE, self._refuse_socket)
        context.set_default_timeout(300_000)  # a busy machine is not a defect
        self.page: Page = context.new_page()
        self.page.on("pageerror", lambda error: self.see("page", str(error)))
        self.page.on("console", self._on_console)
        self.page.goto(
            f"{lab.server.url}lab/workspaces/pv{secrets.token_hex(4)}?token={lab.server.token}"
        )
        self.page.wait_for_function(
            "() => window.packvizLab && packvizLab.started()", timeout=300_000
        )
        self.page.evaluate("() => packvizLab.command('application:toggle-left-area')")

    def see(self, kind: str, text: str) -> None:
        """Records a problem."""
        self.seen.append(Problem(kind, text))

    def _refuse(self, route: Route) -> None:
        self.see("request", f"{route.request.method} {route.request.url}")
        route.abort("blockedbyclient")

    def _refuse_socket(self, socket: WebSocketRoute) -> None:
        self.see("request", f"websocket {socket.url}")
        socket.close()

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not HARMLESS_CONSOLE.search(message.text):
            self.see("console", message.text)


class Notebook:
    """A notebook that `Lab.open` has opened in JupyterLab."""

    def __init__(self, lab: Lab, tab: Tab, name: str) -> None:
        self.lab, self.name, self.page, self._tab = lab, name, tab.page, tab
        self._log_from = len(lab.server.log())
        self._tab.seen.clear()
        self.call("open", name)
        self.page.wait_for_function("() => packvizLab.ready()", timeout=300_000)
        self.call("listen")

    # -- problems
    # -----------------------------------------------------------------------------------

    def problems(self) -> list[Problem]:
        """Returns all problems since the last call, in cells, callbacks, the page, requests and the server's log."""
        for message in self.page.evaluate("() => packvizLab.messages.splice(0)"):
            kind = message["kind"] if message["kind"] == "stderr" else _blame(message["parent"])
            if kind != "stderr" or not HARMLESS_STDERR.match(message["text"].strip()):
                self._tab.see(kind, _plain(message["text"]))
        log = self.lab.server.log()
        for trace in tracebacks(log[self._log_from :]):
            self._tab.see("log", trace)
        self._log_from = len(log)
        found, self._tab.seen = self._tab.seen, []
        return found

    def cell_problems(self) -> list[Problem]:
        """Returns a problem for each error, stderr output, cell that did not run and widget that is not drawn."""
        return [problem for cell in self.call("cells") for problem in _cell_problems(cell)]

    # -- actions
    # ------------------------------------------------------------------------------------

    def call(self, function: str, *arguments: object) -> Any:
        """Calls a function of `lab.js` in the page, and returns its result."""
        return self.page.evaluate(
            "([name, given]) => window.packvizLab[name](...given)", [function, list(arguments)]
        )

    def run_all(self, limit: float = 600.0) -> None:
        """Runs all cells, and waits until the kernel is idle and the page no longer changes.

        Raises:
            LabError: the page still changes after `limit` seconds, or JupyterLab refused to run the
                cells.
        """
        self.call("startRun")
        self.page.wait_for_function("() => packvizLab.run.done", timeout=limit * 1000, polling=50)
        error = self.page.evaluate("() => packvizLab.run.error")
        if error:
            raise LabError(f"{self.name}: {error}")
        with contextlib.suppress(
            PageTimeoutError
        ):  # `cell_problems` reports a widget that is never drawn
            self.page.wait_for_function("() => !packvizLab.loading()", timeout=60_000)
        self.settle(quiet=0.5)

    def settle(self, quiet: float = 0.15, limit: float = 300.0) -> None:
        """Waits until the kernel is idle and the notebook's DOM has not changed for `quiet`
        seconds.

        Raises:
            LabError: the DOM still changes after `limit` seconds.
        """
        if not self.call("settle", quiet * 1000, limit * 1000):
            raise LabError(f"{self.name}: the page still changes after {limit} s")

    def set_theme(self, *, dark: bool) -> None:
        """Switches JupyterLab's own theme."""
        name = "JupyterLab Dark" if dark else "JupyterLab Light"
        self.call("command", "apputils:change-theme", {"theme": name})
        self.page.wait_for_function("dark => packvizLab.isDark() === dark", arg=dark)
        self.settle(quiet=0.4)

    def shutdown(self) -> None:
        """Shuts the kernel down, and closes the notebook."""
        with contextlib.suppress(Exception):
            self.call("shutdown")

    # -- panels and controls
    # ------------------------------------------------------------------------

    def panels(self, kind: str | None = None) -> list[Panel]:
        """Returns the panels on the page in order. `kind` selects one kind: ``panel``, ``quiz`` or ``output``."""
        found = [Panel(**panel) for panel in self.call("panels")]
        return [panel for panel in found if kind in (None, panel.kind)]

    def controls(self, panel: Panel, *kinds: str) -> list[Control]:
        """Returns the controls of a panel in order, usable or not. `kinds` selects some kinds; the default is all."""
        found = [Control(**control) for control in self.call("controls", panel.id)]
        return [control for control in found if not kinds or control.kind in kinds]

    def locate(self, control: Control) -> Locator:
        """Returns Playwright's handle on a control."""
        return self.page.locator(f'[data-pv-control="{control.id}"]')

    def signature(self, panel: Panel) -> str:
        """Returns a fingerprint of the picture in a panel."""
        return str(self.call("signature", panel.id))

    def changed(self, panel: Panel, before: str, quiet: float = 0.4, limit: float = 300.0) -> bool:
        """Waits for the picture to change, and returns whether it differs from `before`.

        The wait ends when the picture differs, or when nothing has changed for `quiet` seconds.
        """
        return bool(self.call("changed", panel.id, before, quiet * 1000, limit * 1000))

    def error_text(self, panel: Panel) -> str:
        """Returns the error that a panel shows, or an empty string."""
        return str(self.call("errorText", panel.id))

    # -- screenshots
    # --------------------------------------------------------------------------------

    def screenshots(self, folder: Path, prefix: str, height: int = SHOT_HEIGHT) -> list[Path]:
        """Saves screenshots of the whole notebook, from the top, as ``PREFIX-01.png`` and so on."""
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"{prefix}-[0-9][0-9].png"):
            old.unlink()
        self.page.set_viewport_size({"width": self.lab.width, "height": height + CHROME_HEIGHT})
        try:
            self.settle(quiet=0.3)
            bottom = int(max(end for _, end in self.call("cellSpans")))
            tops = range(0, bottom, height)
            paths = [folder / f"{prefix}-{i:02d}.png" for i in range(1, len(tops) + 1)]
            for top, path in zip(tops, paths, strict=True):
                at = self.call("scrollTo", top)
                seen = max(min(bottom - top, height, at["bottom"] - at["top"]), 1)
                clip: Any = {"x": at["left"], "y": at["top"], "width": at["width"], "height": seen}
                self.page.screenshot(path=path, clip=clip, animations="disabled")
            return paths
        finally:
            self.page.set_viewport_size({"width": self.lab.width, "height": self.lab.height})


def tracebacks(log: str) -> list[str]:
    """Returns the tracebacks in a log, each with the line before it."""
    lines = _plain(log).splitlines()
    starts = [i for i, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    return ["\n".join(lines[max(0, i - 1) : i + 40]) for i in starts]


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def _blame(parent: str) -> str:
    return "cell" if parent == "execute_request" else "callback"


def _cell_problems(cell: dict[str, Any]) -> Iterator[Problem]:
    where = f"cell {cell['index']} ({cell['source'].strip().splitlines()[:1]})"
    if cell["type"] == "code" and cell["source"].strip() and not cell["executed"]:
        yield Problem("cell", f"{where}: did not run")
    if cell["placeholder"]:
        yield Problem("cell", f"{where}: is not drawn")
    if cell["broken"]:
        yield Problem("cell", f"{where}: {cell['broken'].strip()}")
    for output in cell["outputs"]:
        if output["output_type"] == "error":
            yield Problem("cell", f"{where}: {output['ename']}: {output['evalue']}")
        if output["output_type"] == "stream" and output["name"] == "stderr":
            yield Problem("stderr", f"{where}: {''.join(output['text'])}")
