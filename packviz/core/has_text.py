"""Offers what has moved to `core.util`, until every import follows."""

from packviz.core.util import HasText as HasText
from packviz.core.util import first_line as first_line
