"""Shows static graphs in a panel: choose or type a forward pass, and see which lines fail in a captured graph."""

from __future__ import annotations

import inspect
import linecache
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import ipywidgets as widgets

from packviz.core.layout import Layout
from packviz.core.validation import one_of
from packviz.panels.picker import MOST_CELLS, lengths_field, read
from packviz.panels.panel import Panel, View, dropdown, row

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
"""The choices in the panel, with the names of their classes in `packviz.check.networks`."""

OWN = "your own"
_FILE = "<forward>"
_LOOK = "<style>.packviz-code textarea{font-family:var(--jp-code-font-family,monospace);white-space:pre}</style>"
_HINT = (
    "You can use <code>self.lstm</code> (3 to 7 features), <code>self.before</code> (3 to 3),"
    " <code>self.after</code> (7 to 2), <code>torch</code>, <code>F</code>, and the functions of"
    " <code>torch.nn.utils.rnn</code>. Click outside the field to run the code."
)


class StaticPanel(Panel):
    """A forward pass that you choose or type, with the results of `check_static` and marks at the
    lines that fail.

    Attributes:
        network: the drop-down list of networks. It shows `OWN` if the code has been changed.
        code: the field for the code of the network's `forward`.
        lengths: the text field for the lengths of the batch that the code runs on.
        result: the `StaticCheck` in the picture.
    """

    result: StaticCheck

    def __init__(
        self, network: str = "PackedSequence returned", lengths: Sequence[int] = (5, 3)
    ) -> None:
        """Makes the panel.

        Args:
            network: the name of the network, one of `NETWORKS`.
            lengths: your lengths, whose padded batch may have at most 2,048 cells.

        Raises:
            ValueError: `network` is unknown, or a length is not valid.
        """
        self.network = dropdown(
            "network", one_of("network", network, [*NETWORKS]), [*NETWORKS, OWN], width="420px"
        )
        self.lengths = lengths_field(lengths, continuous_update=False)
        self.code = widgets.Textarea(
            value=_source(network),
            description="forward",
            rows=9,
            continuous_update=False,
            layout=widgets.Layout(width="820px", max_width="98%"),
        )
        self.code.add_class("packviz-code")
        self.network.observe(self._choose, names="value")
        super().__init__(
            row(self.network, self.lengths),
            self.code,
            widgets.HTML(_LOOK + _HINT),
            quiet=(self.network,),
        )

    def view(self) -> View:
        """Returns a view of the code with the verdict on it."""
        code = self.code.value
        self.network.value = next((name for name in NETWORKS if _source(name) == code), OWN)
        self.result = _check(code, read(self.lengths.value, MOST_CELLS))
        return View(self.result.sheet, self.result.verdict, self.result.to_text)

    def _choose(self, change: Any) -> None:
        if change["new"] != OWN:
            self.code.value = _source(change["new"])


def _source(name: str) -> str:
    from packviz.check import networks

    return networks.source(getattr(networks, NETWORKS[name]))


def _check(code: str, layout: Layout) -> StaticCheck:
    """Checks the network whose `forward` this code defines.

    Raises:
        ValueError: the code is not valid, does not define `forward`, or raises an error.
    """
    import torch
    from torch.nn import functional

    from packviz.check import networks
    from packviz.check.static import check_static
    from packviz.ops import original

    names = original.offered() | {"torch": torch, "nn": torch.nn, "F": functional}
    _run(lambda: exec(compile(code, _FILE, "exec"), names))
    if not inspect.isfunction(forward := names.get("forward")):
        raise ValueError("the code defines no forward; begin with def forward(self, x, lengths):")
    # A finding quotes its line from this cache.
    linecache.cache[_FILE] = (len(code), None, code.splitlines(keepends=True), _FILE)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = type("Network", (networks.Network,), {"forward": forward})()
    inputs = networks.example(layout.max_len, layout.lengths.tolist())
    n_arguments = _run(lambda: len(inspect.signature(network.forward).parameters))
    return cast("StaticCheck", _run(lambda: check_static(network, inputs[:n_arguments])))


def _run(run: Callable[[], Any]) -> Any:
    """Runs code that you typed, and turns every error into a `ValueError`, which names the line if it is known."""
    try:
        return run()
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from None
    except (Exception, SystemExit) as error:
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == _FILE
        ]
        reason = next(iter(str(error).splitlines()), "")
        where = f"line {lines[-1]}: " if lines else ""
        raise ValueError(f"{where}{type(error).__name__}: {reason}") from None
