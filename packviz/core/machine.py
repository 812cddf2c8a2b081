"""Offers what has moved to `core.system`, until every import follows."""

from packviz.core.system import cpu_name as cpu_name
from packviz.core.system import output as output
from packviz.core.system import own_version as own_version
