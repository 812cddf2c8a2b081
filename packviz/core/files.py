"""Offers what has moved to `core.util`, until every import follows."""

from packviz.core.util import require_suffix as require_suffix
from packviz.core.util import write as write
