"""See, count, check and time PyTorch packed sequences.

Everything here is imported on first use, so that `import packviz` stays fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packviz.advice import advise
    from packviz.bench.calibration import calibrate
    from packviz.cost import Spec, flops
    from packviz.fast.operator import ragged_op
    from packviz.fast.packing import pack_padded_sequence, pack_sequence, pad_packed_sequence, unpack_sequence
    from packviz.fast.running import Ragged, run
    from packviz.layout import Layout
    from packviz.mistakes.batches import diagnose
    from packviz.mistakes.errors import explain_errors
    from packviz.ops import align, masked_loss, padding_mask, unpack_to_length
    from packviz.picture import Picture, show
    from packviz.states import compare
    from packviz.staticgraph import check_static

__all__ = [
    "Layout",
    "Picture",
    "Ragged",
    "Spec",
    "advise",
    "align",
    "calibrate",
    "check_static",
    "compare",
    "diagnose",
    "explain_errors",
    "flops",
    "masked_loss",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "padding_mask",
    "ragged_op",
    "run",
    "show",
    "unpack_sequence",
    "unpack_to_length",
]

_HOME = {
    "advise": "packviz.advice",
    "calibrate": "packviz.bench.calibration",
    "Spec": "packviz.cost",
    "flops": "packviz.cost",
    "ragged_op": "packviz.fast.operator",
    "pack_padded_sequence": "packviz.fast.packing",
    "pack_sequence": "packviz.fast.packing",
    "pad_packed_sequence": "packviz.fast.packing",
    "unpack_sequence": "packviz.fast.packing",
    "Ragged": "packviz.fast.running",
    "run": "packviz.fast.running",
    "Layout": "packviz.layout",
    "diagnose": "packviz.mistakes.batches",
    "explain_errors": "packviz.mistakes.errors",
    "Picture": "packviz.picture",
    "show": "packviz.picture",
    "compare": "packviz.states",
    "check_static": "packviz.staticgraph",
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
