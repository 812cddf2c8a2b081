"""The one table of what `packviz.draw` offers; `__init__.py` reads where each name comes from."""

from packviz.draw.cells import Aligned as Aligned
from packviz.draw.heatmap import Attention as Attention
from packviz.draw.plots import length_histogram as length_histogram
from packviz.draw.plots import log_log as log_log
from packviz.draw.plots import padding_waste as padding_waste
from packviz.draw.plots import totals as totals
from packviz.draw.plots import training_curves as training_curves
from packviz.draw.scores import Scores as Scores
from packviz.draw.stairs import Stairs as Stairs
from packviz.draw.strips import Strips as Strips
