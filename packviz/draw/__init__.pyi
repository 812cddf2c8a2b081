"""The names that `packviz.draw` offers, for type checkers and editors."""

from packviz.draw.aligned import Aligned as Aligned
from packviz.draw.attention import Attention as Attention
from packviz.draw.documents import Scores as Scores
from packviz.draw.plots import length_histogram as length_histogram
from packviz.draw.plots import padding_waste as padding_waste
from packviz.draw.ribbons import Ribbons as Ribbons
from packviz.draw.stairs import Stairs as Stairs
from packviz.draw.strips import Strips as Strips
