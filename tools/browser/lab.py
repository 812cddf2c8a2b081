"""Drives a real JupyterLab in a browser that Playwright has started.

    with closing(Server(Path("notebooks"))) as server:
        with Lab(server, browser).open("01_why_pack.ipynb") as notebook:
            notebook.run_all()
            assert notebook.problems() == []

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
from typing import Any

import nbformat
from jupyter_server.serverapp import list_running_servers
from nbtools.canonical import METADATA
from nbtools.warm import warm_kernels
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Route, WebSocketRoute

PAGE_SCRIPT = Path(__file__).with_suffix(".js")
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
PATIENCE = 300.0  # seconds, because a busy machine is not a defect


@dataclass(frozen=True)
class Panel:
    """A panel, a quiz, or any other output that contains a control."""

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
        at_maximum: True for a slider that cannot go up.
    """

    id: str
    kind: str
    name: str
    options: list[str]
    usable: bool
    value: str
    at_maximum: bool


class Server:
    """A JupyterLab server with its own process group and its own temporary folder."""

    def __init__(self, source: Path) -> None:
        """Starts the server on a copy of a folder of notebooks.

        Raises:
            RuntimeError: the server ended or did not answer in time. The message contains the end
                of its log.
        """
        self.home = Path(tempfile.mkdtemp(prefix="packviz-lab-"))
        self.root = self.home / "notebooks"
        self.token = secrets.token_hex(16)
        shutil.copytree(source, self.root)
        (self.home / "IPYTHONDIR").mkdir()
        (self.home / "overrides.json").write_text(json.dumps(SETTINGS))
        env = self._environment()
        with (self.home / "server.log").open("wb") as log:
            self.kernels = warm_kernels(env, log)
            self.process = subprocess.Popen(
                self._command(),
                env=env,
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self.url = self._wait_until_up()
        except BaseException:
            self.close()
            raise

    def _command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", "--port=0"),
            "--allow-root",
            "--expose-app-in-browser",
            f"--ServerApp.root_dir={self.root}",
            f"--LabApp.app_settings_dir={self.home}",
            "--LabApp.extension_manager=readonly",
            "--MappingKernelManager.kernel_info_timeout=300",  # seconds in which a kernel starts
            # If this process is killed, the server ends after 15 minutes without use.
            "--MappingKernelManager.cull_idle_timeout=900",
            "--ServerApp.shutdown_no_activity_timeout=900",
        ]

    def _environment(self) -> dict[str, str]:
        env = {key: value for key, value in os.environ.items() if not key.startswith("JUPYTER")}
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
            env[name] = str(self.home / name)
        env["JUPYTER_PREFER_ENV_PATH"] = "1"
        env["JUPYTER_TOKEN"] = self.token
        env["PYTHONUNBUFFERED"] = "1"
        return env

    def _wait_until_up(self) -> str:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            for server in list_running_servers(str(self.home / "JUPYTER_RUNTIME_DIR")):
                return str(server["url"])
            time.sleep(0.1)
        raise RuntimeError(f"JupyterLab did not start:\n{self.log()[-4000:]}")

    def log(self) -> str:
        """Returns everything that the server and its kernels have written so far."""
        return (self.home / "server.log").read_text(errors="replace")

    def close(self) -> None:
        """Stops the server and its kernels, and removes its folder."""
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            # The server leads its own process group, because of start_new_session.
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.kernels.communicate()
        shutil.rmtree(self.home, ignore_errors=True)

    def write_notebook(self, name: str, cells: Sequence[str]) -> str:
        """Writes a notebook of code cells beside the copied ones, and returns its name."""
        notebook = nbformat.v4.new_notebook(metadata=METADATA)
        notebook.cells = [nbformat.v4.new_code_cell(source) for source in cells]
        (self.root / name).write_text(nbformat.v4.writes(notebook))
        return name


class Lab:
    """JupyterLab in a browser tab, which opens one notebook after another.

    Attributes:
        server: the server.
        page: Playwright's handle on the tab, or None before JupyterLab is loaded.
        problems: what has gone wrong on the page, such as `console: …`.
    """

    def __init__(self, server: Server, browser: Browser) -> None:
        self.server = server
        self.browser = browser
        self.page: Page | None = None
        self.problems: list[str] = []

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[Notebook]:
        """Opens a notebook, and shuts its kernel down at the end.

        The notebook opens in the tab of the previous one, because JupyterLab takes five seconds to
        load. After an exception, JupyterLab is loaded again in a fresh browser profile, and the old
        kernel ends with the server.
        """
        page = self.page or self._load()
        self.page = None
        notebook = Notebook(self, page, name)
        yield notebook
        notebook.call("shutdown")
        self.page = page

    def _load(self) -> Page:
        """Loads JupyterLab in a fresh browser profile, with nothing open."""
        context = self.browser.new_context(
            viewport={"width": 1280, "height": 1000}, service_workers="block", locale="en-GB"
        )
        context.add_init_script(path=PAGE_SCRIPT)
        context.route(OUTSIDE, self._refuse)
        context.route_web_socket(OUTSIDE, self._refuse_socket)
        context.set_default_timeout(1000 * PATIENCE)
        page = context.new_page()
        page.on("pageerror", lambda error: self.problems.append(f"page: {error}"))
        page.on("console", self._on_console)
        workspace = f"lab/workspaces/pv{secrets.token_hex(4)}"
        page.goto(f"{self.server.url}{workspace}?token={self.server.token}")
        page.wait_for_function("() => window.packvizLab && packvizLab.started()")
        page.evaluate("() => packvizLab.command('application:toggle-left-area')")
        return page

    def _refuse(self, route: Route) -> None:
        self.problems.append(f"request: {route.request.method} {route.request.url}")
        route.abort("blockedbyclient")

    def _refuse_socket(self, socket: WebSocketRoute) -> None:
        self.problems.append(f"request: websocket {socket.url}")
        socket.close()

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not HARMLESS_CONSOLE.search(message.text):
            self.problems.append(f"console: {message.text}")


class Notebook:
    """A notebook that `Lab.open` has opened in JupyterLab."""

    def __init__(self, lab: Lab, page: Page, name: str) -> None:
        self.name = name
        self.page = page
        self._lab = lab
        self._log_from = len(lab.server.log())
        lab.problems.clear()
        self.call("open", name)
        page.wait_for_function("() => packvizLab.ready()")
        self.call("listen")

    def problems(self) -> list[str]:
        """Returns the problems since the last call: of the kernel, the page and the server."""
        problems: list[str] = self.page.evaluate("() => packvizLab.messages.splice(0)")
        problems += self._lab.problems
        self._lab.problems.clear()
        log = self._lab.server.log()[self._log_from :]
        self._log_from += len(log)
        if "Traceback (most recent call last)" in log:
            problems.append(f"log: {log[-4000:]}")
        return problems

    def call(self, function: str, *arguments: object) -> Any:
        """Calls a function of `lab.js` in the page, and returns its result."""
        return self.page.evaluate(
            "([name, given]) => window.packvizLab[name](...given)", [function, list(arguments)]
        )

    def run_all(self) -> None:
        """Runs all cells, and waits until the kernel is idle and the page no longer changes.

        Raises:
            RuntimeError: the page never comes to rest, or JupyterLab refused to run the cells.
        """
        self.call("startRun")
        limit = 2000 * PATIENCE
        self.page.wait_for_function("() => packvizLab.run.done", timeout=limit, polling=50)
        if error := self.page.evaluate("() => packvizLab.run.error"):
            raise RuntimeError(f"{self.name}: {error}")
        self.page.wait_for_function("() => !packvizLab.loading()", timeout=60_000)
        self.settle(quiet=0.5)

    def settle(self, quiet: float = 0.06) -> None:
        """Waits until the kernel is idle and the DOM has not changed for `quiet` seconds.

        Raises:
            RuntimeError: the page never comes to rest.
        """
        if not self.call("settle", quiet * 1000, PATIENCE * 1000):
            raise RuntimeError(f"{self.name}: the page still changes after {PATIENCE} s")

    def set_theme(self, *, dark: bool) -> None:
        """Switches JupyterLab's own theme, unless it is this one already."""
        if self.call("isDark") == dark:
            return
        self.call(
            "command",
            "apputils:change-theme",
            {"theme": "JupyterLab Dark" if dark else "JupyterLab Light"},
        )
        self.page.wait_for_function("dark => packvizLab.isDark() === dark", arg=dark)
        self.settle(quiet=0.4)

    def panels(self, kind: str | None = None) -> list[Panel]:
        """Returns the panels on the page, or those of a kind: ``panel``, ``quiz`` or ``output``."""
        panels = [Panel(**panel) for panel in self.call("panels")]
        return [panel for panel in panels if kind in (None, panel.kind)]

    def controls(self, panel: Panel, *kinds: str) -> list[Control]:
        """Returns the controls of a panel, usable or not: all, or those of some kinds."""
        controls = [Control(**control) for control in self.call("controls", panel.id)]
        return [control for control in controls if not kinds or control.kind in kinds]

    def locate(self, control: Control) -> Locator:
        """Returns Playwright's handle on a control."""
        return self.page.locator(f'[data-pv-control="{control.id}"]')

    def changed(self, panel: Panel, before: str, quiet: float = 0.4) -> bool:
        """Waits for the picture to change, and returns whether it differs from `before`.

        The wait ends when the picture differs, or when nothing has changed for `quiet` seconds.
        """
        return bool(self.call("changed", panel.id, before, quiet * 1000, PATIENCE * 1000))
