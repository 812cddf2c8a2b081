"""See, count, check and time PyTorch packed sequences.

Everything here is imported on first use, so that `import packviz` stays fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packviz.cost import Spec, flops
    from packviz.layout import Layout
    from packviz.ops import align, masked_loss, padding_mask, unpack_to_length
    from packviz.picture import Picture, show
    from packviz.states import compare

__all__ = [
    "Layout",
    "Picture",
    "Spec",
    "align",
    "compare",
    "flops",
    "masked_loss",
    "padding_mask",
    "show",
    "unpack_to_length",
]

_HOME = {
    "Spec": "packviz.cost",
    "flops": "packviz.cost",
    "Layout": "packviz.layout",
    "Picture": "packviz.picture",
    "show": "packviz.picture",
    "compare": "packviz.states",
    "align": "packviz.ops",
    "masked_loss": "packviz.ops",
    "padding_mask": "packviz.ops",
    "unpack_to_length": "packviz.ops",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'packviz' has no attribute {name!r}; it offers {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({name for name in globals() if name.startswith("__")} | set(__all__))
