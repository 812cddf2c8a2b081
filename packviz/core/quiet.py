"""Offers what has moved to `core.util`, until every import follows."""

from packviz.core.util import closed as closed
from packviz.core.util import quiet as quiet
