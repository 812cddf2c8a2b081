"""Measures times and memory. The package needs only torch and NumPy, so it runs on a bare GPU machine."""

from packviz.measure.machine import provenance
from packviz.measure.timing import Ratio, Timing, measure

__all__ = ["Ratio", "Timing", "measure", "provenance"]
