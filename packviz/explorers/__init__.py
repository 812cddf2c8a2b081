"""Live panels: move a control, see the picture. The only place that knows a widget.

Examples:
    >>> import packviz as pv
    >>> panel = pv.explorers.PaddingExplorer([5, 3, 2])
    >>> panel.shown == pv.Layout([5, 3, 2])
    True
"""

from importlib.util import find_spec

if missing := [name for name in ("anywidget", "ipywidgets") if find_spec(name) is None]:
    needed = f"{' and '.join(missing)}: python -m pip install {' '.join(missing)}"
    raise ModuleNotFoundError(f"panels and lessons need {needed}", name=missing[0])

from packviz.explorers.align import AlignExplorer
from packviz.explorers.batching import BatchingExplorer
from packviz.explorers.benchmark import BenchmarkExplorer
from packviz.explorers.cost import CostExplorer
from packviz.explorers.graph import GraphExplorer
from packviz.explorers.museum import MuseumExplorer
from packviz.explorers.packed import PackedExplorer
from packviz.explorers.padding import PaddingExplorer
from packviz.explorers.rows import RowExplorer
from packviz.explorers.staircase import StaircaseExplorer
from packviz.explorers.states import StatesExplorer
from packviz.explorers.static import StaticExplorer

__all__ = [
    "AlignExplorer",
    "BatchingExplorer",
    "BenchmarkExplorer",
    "CostExplorer",
    "GraphExplorer",
    "MuseumExplorer",
    "PackedExplorer",
    "PaddingExplorer",
    "RowExplorer",
    "StaircaseExplorer",
    "StatesExplorer",
    "StaticExplorer",
]
