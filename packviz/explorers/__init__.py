"""Provides the live panels, whose pictures change with their controls. Only the panels and the lessons use widgets.

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

from packviz.explorers.align import AlignExplorer as AlignExplorer
from packviz.explorers.batching import BatchingExplorer as BatchingExplorer
from packviz.explorers.benchmark import BenchmarkExplorer as BenchmarkExplorer
from packviz.explorers.cost import CostExplorer as CostExplorer
from packviz.explorers.graph import GraphExplorer as GraphExplorer
from packviz.explorers.museum import MuseumExplorer as MuseumExplorer
from packviz.explorers.packed import PackedExplorer as PackedExplorer
from packviz.explorers.padding import PaddingExplorer as PaddingExplorer
from packviz.explorers.rows import RowExplorer as RowExplorer
from packviz.explorers.staircase import StaircaseExplorer as StaircaseExplorer
from packviz.explorers.states import StatesExplorer as StatesExplorer
from packviz.explorers.static import StaticExplorer as StaticExplorer

__all__ = sorted(name for name in dir() if name.endswith("Explorer"))
