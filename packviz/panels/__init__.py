"""Provides the live panels, whose pictures change with their controls.

Only the panels and the lessons use widgets.

Examples:
    >>> import packviz as pv
    >>> panel = pv.panels.BatchPanel([5, 3, 2])
    >>> panel.layout == pv.Layout([5, 3, 2])
    True
"""

from importlib.util import find_spec

if missing := [name for name in ("anywidget", "ipywidgets") if find_spec(name) is None]:
    needed = f"{' and '.join(missing)}: python -m pip install {' '.join(missing)}"
    raise ModuleNotFoundError(f"panels and lessons need {needed}", name=missing[0])

from packviz.panels.align import AlignPanel as AlignPanel
from packviz.panels.backward import BackwardPanel as BackwardPanel
from packviz.panels.batch import BatchPanel as BatchPanel
from packviz.panels.batching import BatchingPanel as BatchingPanel
from packviz.panels.cost import CostPanel as CostPanel
from packviz.panels.filling import RowPanel as RowPanel
from packviz.panels.search import MuseumPanel as MuseumPanel
from packviz.panels.staircase import StaircasePanel as StaircasePanel
from packviz.panels.state import StatePanel as StatePanel

__all__ = sorted(name for name in dir() if name.endswith("Panel"))
