"""Offers what has moved to `core.util`, until every import follows."""

from packviz.core.util import is_readers as is_readers
from packviz.core.util import package as package
from packviz.core.util import warn as warn
