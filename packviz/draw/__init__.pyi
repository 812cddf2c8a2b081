"""The names that `packviz.draw` offers. `__init__.py` lists their modules."""

from packviz.draw.cells import Aligned as Aligned
from packviz.draw.cells import Attention as Attention
from packviz.draw.cells import Strips as Strips
from packviz.draw.plots import length_histogram as length_histogram
from packviz.draw.plots import log_log as log_log
from packviz.draw.plots import padding_waste as padding_waste
from packviz.draw.scores import Scores as Scores
from packviz.draw.stairs import Stairs as Stairs
