"""Live panels: move a control, see the picture. The only place that knows a widget."""

from packviz.explorers.packed import PackedExplorer
from packviz.explorers.padding import PaddingExplorer

__all__ = ["PackedExplorer", "PaddingExplorer"]
