"""See, count, check and time PyTorch packed sequences.

Everything here is imported on first use, so that `import packviz` stays fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packviz.layout import Layout
    from packviz.picture import Picture, show

__all__ = ["Layout", "Picture", "show"]

_HOME = {
    "Layout": "packviz.layout",
    "Picture": "packviz.picture",
    "show": "packviz.picture",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'packviz' has no attribute {name!r}; it offers {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
