"""Live panels: move a control, see the picture. The only place that knows a widget."""

from packviz.explorers.align import AlignExplorer
from packviz.explorers.cost import CostExplorer
from packviz.explorers.packed import PackedExplorer
from packviz.explorers.padding import PaddingExplorer
from packviz.explorers.states import StatesExplorer

__all__ = ["AlignExplorer", "CostExplorer", "PackedExplorer", "PaddingExplorer", "StatesExplorer"]
