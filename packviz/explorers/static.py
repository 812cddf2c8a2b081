"""Static graphs: type a forward pass, see where its PackedSequence goes and what a compiler would say of it."""

from __future__ import annotations

import inspect
import linecache
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import ipywidgets as widgets

from packviz.core.layout import Layout
from packviz.core.validation import one_of
from packviz.explorers.lengths import LengthsField
from packviz.explorers.panel import Panel, View, dropdown, row

if TYPE_CHECKING:
    from packviz.check.static import StaticCheck

NETWORKS = {
    "fixed length": "FixedLength",
    "packed, padded, sorted": "Sorted",
    "packed, padded, unsorted": "Unsorted",
    "final states only": "FinalStates",
    "PackedSequence returned": "Returned",
    "PackedSequence used by max": "UsedByMax",
    "packed if the lengths differ": "ConditionalTagger",
}
"""The choices, and the classes in `packviz.check.networks` that they are."""

OWN = "your own"
MOST_CELLS = 2048
_FILE = "<forward>"
_LOOK = "<style>.packviz-code textarea{font-family:var(--jp-code-font-family,monospace);white-space:pre}</style>"
_HINT = (
    "There are <code>self.lstm</code> (3 to 7 features), <code>self.before</code> (3 to 3),"
    " <code>self.after</code> (7 to 2), <code>torch</code>, <code>F</code>, and what <code>torch.nn.utils.rnn</code>"
    " offers. Click outside of the field to run it."
)


class StaticExplorer(Panel):
    """A forward pass of your choice, or typed: the data flow, and what breaks under fixed shapes.

    Attributes:
        network: a network to start from; `OWN` once its code was changed.
        code: its `forward`.
        lengths: of the batch that it is run on.
        result: the `StaticCheck` in the picture.
    """

    result: StaticCheck

    def __init__(self, network: str = "PackedSequence returned", lengths: Sequence[int] = (5, 3)) -> None:
        """Starts with one of `NETWORKS`, and these lengths.

        Raises:
            ValueError: there is no such network, or a length is not valid.
        """
        self.network = dropdown("network", one_of("network", network, [*NETWORKS]), [*NETWORKS, OWN], width="420px")
        self.lengths = LengthsField(lengths, continuous_update=False)
        self.code = widgets.Textarea(
            value=_source(network),
            description="forward",
            rows=9,
            continuous_update=False,
            layout=widgets.Layout(width="820px", max_width="98%"),
        )
        self.code.add_class("packviz-code")
        self.network.observe(self._choose, names="value")
        super().__init__(row(self.network, self.lengths), self.code, widgets.HTML(_LOOK + _HINT), quiet=(self.network,))

    def view(self) -> View:
        """The verdict on the code as it stands."""
        code = self.code.value
        self.network.value = next((name for name in NETWORKS if _source(name) == code), OWN)
        layout = self.lengths.read()
        if layout.n_cells > MOST_CELLS:
            raise ValueError(f"these lengths make {layout.n_cells:,} cells; the panel takes at most {MOST_CELLS:,}")
        self.result = _check(code, layout)
        return View(self.result.sheet, self.result.verdict, self.result.to_text)

    def _choose(self, change: Any) -> None:
        if change["new"] != OWN:
            self.code.value = _source(change["new"])


def _source(name: str) -> str:
    from packviz.check import networks  # noqa: PLC0415 - torch, a second or two, paid when the first panel opens

    return networks.source(getattr(networks, NETWORKS[name]))


def _check(code: str, layout: Layout) -> StaticCheck:
    """Checks a network whose `forward` is this code.

    Raises:
        ValueError: the code is not valid, defines no `forward`, or raises.
    """
    import torch  # noqa: PLC0415
    from torch.nn import functional  # noqa: PLC0415

    from packviz.check import networks  # noqa: PLC0415
    from packviz.check.static import check_static  # noqa: PLC0415
    from packviz.ops import original  # noqa: PLC0415

    names = original.offered() | {"torch": torch, "nn": torch.nn, "F": functional}
    _run(lambda: exec(compile(code, _FILE, "exec"), names))
    if not inspect.isfunction(forward := names.get("forward")):
        raise ValueError("the code defines no forward; begin with def forward(self, x, lengths):")
    # So that a finding can quote the line.
    linecache.cache[_FILE] = (len(code), None, code.splitlines(keepends=True), _FILE)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = type("Network", (networks.Network,), {"forward": forward})()
    inputs = networks.example(layout.max_len, layout.lengths.tolist())
    n_arguments = _run(lambda: len(inspect.signature(network.forward).parameters))
    return cast("StaticCheck", _run(lambda: check_static(network, inputs[:n_arguments])))


def _run(run: Callable[[], Any]) -> Any:
    """What running the reader's code gives. Whatever it raises becomes a complaint that names the line."""
    try:
        return run()
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from None
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == _FILE]
        reason = next(iter(str(error).splitlines()), "")
        where = f"line {lines[-1]}: " if lines else ""
        raise ValueError(f"{where}{type(error).__name__}: {reason}") from None
