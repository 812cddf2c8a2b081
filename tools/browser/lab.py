"""A real JupyterLab in a real browser: the harness of the browser tests, of the benchmark and of our own eyes.

    with Lab(Path("notebooks")) as lab:
        with lab.open("01_why_pack.ipynb") as notebook:
            notebook.run_all()
            assert notebook.problems() == []
            notebook.set_theme(dark=True)
            notebook.screenshots(Path("artefacts/screenshots"), "01_why_pack-dark")

JupyterLab runs on loopback with a free port, a token and its own temporary settings; it serves a *copy* of the
notebooks, so that nothing in the checkout is touched. A request to any other host is refused and recorded.
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

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Route, WebSocketRoute, sync_playwright

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
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none", "autoStartDefaultKernel": True},
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
}
# What JupyterLab itself writes to the console on a good day (its plugins load each other's optional parts).
HARMLESS_CONSOLE = re.compile(r"favicon|ResizeObserver loop")
# JupyterLab asks every kernel for its widgets, ipywidgets imported there or not; the kernel says so on stderr. And
# torch.profiler says on stderr when it starts and stops.
HARMLESS_STDERR = re.compile(
    r"^No such comm( target registered: jupyter\.widget\.control|: [0-9a-f-]+)$|^(USDT:.*\bprofiler_st(art|op)\s*)+$"
)
SHOT_HEIGHT = 1600
CHROME_HEIGHT = 120  # JupyterLab's own bars above a notebook, at most


class LabError(RuntimeError):
    """The harness itself could not do what it was asked."""


@dataclass(frozen=True)
class Problem:
    """Something that went wrong while a notebook was open.

    Attributes:
        kind: ``cell``, ``callback``, ``stderr``, ``page``, ``console``, ``request`` or ``log``.
        text: what was seen.
    """

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True)
class Panel:
    """An explorer, a quiz, or another output that holds a control."""

    id: str
    kind: str
    cell: int


@dataclass(frozen=True)
class Control:
    """A control in a panel.

    Attributes:
        id: names the DOM node for as long as it lives.
        kind: ``slider``, ``play``, ``dropdown``, ``text``, ``number``, ``checkbox``, ``radio``, ``toggle``,
            ``choice`` (one of several toggle buttons) or ``button``.
        name: the accessible name, empty where it has none.
        options: the labels of a dropdown.
        usable: seen, not disabled, and (a slider) with somewhere to go.
        value: the value as the DOM has it; ``on`` or ``off`` for what is switched.
        at_minimum: a slider that cannot go down.
        at_maximum: a slider that cannot go up.
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
    """JupyterLab in its own process group, in its own temporary house."""

    def __init__(self, source: Path | None) -> None:
        """Start the server.

        Args:
            source: a folder of notebooks, copied; None for an empty folder.

        Raises:
            LabError: it did not answer in time; the text ends with its log.
        """
        self.home = Path(tempfile.mkdtemp(prefix="packviz-lab-"))
        self.root = self.home / "notebooks"
        self.log_path = self.home / "server.log"
        self.token = secrets.token_hex(16)
        _copy_notebooks(source, self.root)
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                self._command(), env=self._environment(), cwd=self.root, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        try:
            self.url = self._wait_until_up(limit=90.0)
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
            # Should we be killed, nothing stays behind for long.
            "--MappingKernelManager.cull_idle_timeout=900",
            "--ServerApp.shutdown_no_activity_timeout=900",
        ]  # fmt: skip

    def _environment(self) -> dict[str, str]:
        folders = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime",
                   "IPYTHONDIR": "ipython"}  # fmt: skip
        for folder in folders.values():
            (self.home / folder).mkdir()
        own = {name: str(self.home / folder) for name, folder in folders.items()}
        own |= {"JUPYTER_PREFER_ENV_PATH": "1", "JUPYTER_TOKEN": self.token, "PYTHONUNBUFFERED": "1"}
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
        """All the server and its kernels have written so far."""
        return self.log_path.read_text(errors="replace")

    def close(self) -> None:
        """Stop the server and its kernels, and remove its house."""
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
                os.killpg(self.process.pid, signum)  # the group is ours: start_new_session
            else:
                self.process.send_signal(signum)


def _copy_notebooks(source: Path | None, target: Path) -> None:
    if source is None:
        target.mkdir()
    else:
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(".ipynb_checkpoints", "__pycache__"))


class Lab:
    """A server and a browser; a context manager."""

    def __init__(self, source: Path | None = None, *, width: int = 1280, height: int = 1000) -> None:
        """Say what to open; nothing starts before ``with``.

        Args:
            source: a folder of notebooks, of which a copy is served; None for none.
            width: of the page in CSS pixels.
            height: of the page in CSS pixels.
        """
        self.source, self.width, self.height = source, width, height
        self._stack = contextlib.ExitStack()
        self._tab: Tab | None = None  # one that the next notebook may have

    def __enter__(self) -> Self:
        executable = find_chromium()
        if executable is None:
            raise LabError(how_to_get_it())
        with contextlib.ExitStack() as stack:
            playwright = stack.enter_context(sync_playwright())
            self.browser: Browser = playwright.chromium.launch(executable_path=executable, args=list(CHROMIUM_FLAGS))
            stack.callback(self.browser.close)
            # Closed first: after Ctrl-C, which the browser hears as well, there is little time.
            self.server = stack.enter_context(contextlib.closing(Server(self.source)))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def write_notebook(self, name: str, cells: Sequence[str]) -> str:
        """Put a notebook of code cells beside the copied ones; returns its name."""
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        body: list[dict[str, Any]] = [
            {"cell_type": "code", "id": f"cell-{i}", "metadata": {}, "source": source, "outputs": [],
             "execution_count": None}
            for i, source in enumerate(cells)
        ]  # fmt: skip
        document = {"cells": body, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
        (self.server.root / name).write_text(json.dumps(document))
        return name

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[Notebook]:
        """Open a notebook; its kernel is shut down at the end.

        It opens where the one before it was closed: JupyterLab takes five seconds to load. After an exception it loads
        anew, in a fresh browser profile.
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
    """JupyterLab in a fresh browser profile, and what goes wrong there.

    Attributes:
        page: Playwright's handle on it.
        seen: the problems, until someone takes them out.
    """

    def __init__(self, lab: Lab) -> None:
        """Load JupyterLab, with nothing open.

        Args:
            lab: whose server and browser.
        """
        self.seen: list[Problem] = []
        context = lab.browser.new_context(
            viewport={"width": lab.width, "height": lab.height}, service_workers="block", locale="en-GB"
        )
        self.close = context.close
        context.add_init_script(path=PAGE_SCRIPT)
        context.route(OUTSIDE, self._refuse)
        context.route_web_socket(OUTSIDE, self._refuse_socket)
        context.set_default_timeout(30_000)
        self.page: Page = context.new_page()
        self.page.on("pageerror", lambda error: self.see("page", str(error)))
        self.page.on("console", self._on_console)
        self.page.goto(f"{lab.server.url}lab/workspaces/pv{secrets.token_hex(4)}?token={lab.server.token}")
        self.page.wait_for_function("() => window.packvizLab && packvizLab.started()", timeout=90_000)
        self.page.evaluate("() => packvizLab.command('application:toggle-left-area')")

    def see(self, kind: str, text: str) -> None:
        """Note a problem."""
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
    """A notebook open in JupyterLab. Made by `Lab.open`."""

    def __init__(self, lab: Lab, tab: Tab, name: str) -> None:
        self.lab, self.name, self.page, self._tab = lab, name, tab.page, tab
        self._log_from = len(lab.server.log())
        self._tab.seen.clear()
        self.call("open", name)
        self.page.wait_for_function("() => packvizLab.ready()", timeout=90_000)
        self.call("listen")

    # -- problems -----------------------------------------------------------------------------------

    def problems(self) -> list[Problem]:
        """All that went wrong since the last call: cells, callbacks, page, requests, the server's log."""
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
        """Error outputs, stderr outputs, cells that did not run, widgets that did not show: as the page stands."""
        return [problem for cell in self.call("cells") for problem in _cell_problems(cell)]

    # -- doing --------------------------------------------------------------------------------------

    def call(self, function: str, *arguments: object) -> Any:
        """Call a function of `lab.js` in the page and return what it gives."""
        return self.page.evaluate("([name, given]) => window.packvizLab[name](...given)", [function, list(arguments)])

    def run_all(self, limit: float = 300.0) -> None:
        """Run all cells and wait until the kernel is idle and the page has come to rest.

        Raises:
            LabError: it is not at rest after `limit` seconds, or JupyterLab refused.
        """
        self.call("startRun")
        self.page.wait_for_function("() => packvizLab.run.done", timeout=limit * 1000, polling=50)
        error = self.page.evaluate("() => packvizLab.run.error")
        if error:
            raise LabError(f"{self.name}: {error}")
        self.settle(quiet=0.5, limit=60.0)

    def settle(self, quiet: float = 0.15, limit: float = 60.0) -> None:
        """Wait until the kernel is idle and the notebook's DOM has not changed for `quiet` seconds.

        Raises:
            LabError: it has not come to rest after `limit` seconds.
        """
        if not self.call("settle", quiet * 1000, limit * 1000):
            raise LabError(f"{self.name}: not at rest after {limit} s")

    def set_theme(self, *, dark: bool) -> None:
        """Switch JupyterLab's own theme."""
        name = "JupyterLab Dark" if dark else "JupyterLab Light"
        self.call("command", "apputils:change-theme", {"theme": name})
        self.page.wait_for_function("dark => packvizLab.isDark() === dark", arg=dark)
        self.settle(quiet=0.4)

    def shutdown(self) -> None:
        """Shut the kernel down and close the notebook."""
        with contextlib.suppress(Exception):
            self.call("shutdown")

    # -- panels and controls ------------------------------------------------------------------------

    def panels(self, kind: str | None = None) -> list[Panel]:
        """The panels on the page in order, of one kind (``explorer``, ``quiz``, ``output``) or all."""
        found = [Panel(**panel) for panel in self.call("panels")]
        return [panel for panel in found if kind in (None, panel.kind)]

    def controls(self, panel: Panel, *kinds: str) -> list[Control]:
        """The controls of a panel in order, of these kinds or all, the unusable ones too."""
        found = [Control(**control) for control in self.call("controls", panel.id)]
        return [control for control in found if not kinds or control.kind in kinds]

    def locate(self, control: Control) -> Locator:
        """Playwright's handle on a control."""
        return self.page.locator(f'[data-pv-control="{control.id}"]')

    def signature(self, panel: Panel) -> str:
        """A fingerprint of what is drawn in a panel."""
        return str(self.call("signature", panel.id))

    def changed(self, panel: Panel, before: str, quiet: float = 0.4, limit: float = 60.0) -> bool:
        """Whether the picture becomes another than `before` before all has been at rest for `quiet` seconds."""
        return bool(self.call("changed", panel.id, before, quiet * 1000, limit * 1000))

    def error_text(self, panel: Panel) -> str:
        """The error that a panel shows; empty where all is well."""
        return str(self.call("errorText", panel.id))

    # -- looking ------------------------------------------------------------------------------------

    def screenshots(self, folder: Path, prefix: str, height: int = SHOT_HEIGHT) -> list[Path]:
        """Store pictures of the whole notebook, from the top, as ``PREFIX-01.png`` and so on."""
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
    """The tracebacks in a log, each with the line before it."""
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
