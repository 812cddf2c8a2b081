"""See, count, check and time PyTorch packed sequences.

Everything here is imported on first use, so that `import packviz` stays fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packviz import draw as draw
    from packviz.bench.advice import advise
    from packviz.bench.calibration import calibrate
    from packviz.check.batches import diagnose
    from packviz.check.errors import explain_errors
    from packviz.check.museum import explain
    from packviz.check.states import compare
    from packviz.check.static import check_static
    from packviz.core import batches as batches
    from packviz.core import lengths as lengths
    from packviz.core.layout import Layout
    from packviz.core.spec import Spec
    from packviz.count.flops import flops
    from packviz.draw.picture import Picture, show
    from packviz.ops.masks import align, masked_loss, real_mask, unpack_to_length
    from packviz.ops.operator import ragged_op
    from packviz.ops.packing import pack_padded_sequence, pack_sequence, pad_packed_sequence, unpack_sequence
    from packviz.ops.patching import patch_torch
    from packviz.ops.running import Ragged, plan, run
    from packviz.ops.sampler import BucketSampler

__all__ = [
    "BucketSampler",
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
    "explain",
    "explain_errors",
    "flops",
    "masked_loss",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "patch_torch",
    "plan",
    "ragged_op",
    "real_mask",
    "run",
    "show",
    "unpack_sequence",
    "unpack_to_length",
]

_HOME = {
    "Layout": "packviz.core.layout",
    "Spec": "packviz.core.spec",
    "Picture": "packviz.draw.picture",
    "show": "packviz.draw.picture",
    "align": "packviz.ops.masks",
    "masked_loss": "packviz.ops.masks",
    "real_mask": "packviz.ops.masks",
    "unpack_to_length": "packviz.ops.masks",
    "ragged_op": "packviz.ops.operator",
    "pack_padded_sequence": "packviz.ops.packing",
    "pack_sequence": "packviz.ops.packing",
    "pad_packed_sequence": "packviz.ops.packing",
    "unpack_sequence": "packviz.ops.packing",
    "patch_torch": "packviz.ops.patching",
    "BucketSampler": "packviz.ops.sampler",
    "Ragged": "packviz.ops.running",
    "plan": "packviz.ops.running",
    "run": "packviz.ops.running",
    "flops": "packviz.count.flops",
    "diagnose": "packviz.check.batches",
    "explain": "packviz.check.museum",
    "explain_errors": "packviz.check.errors",
    "compare": "packviz.check.states",
    "check_static": "packviz.check.static",
    "advise": "packviz.bench.advice",
    "calibrate": "packviz.bench.calibration",
}
# Modules that a notebook's cells use, one word away.
_MODULES = {
    "batches": "packviz.core.batches",
    "draw": "packviz.draw",
    "lengths": "packviz.core.lengths",
}
# Old names and new. Arguments that were renamed are listed in docs/renamed.md, too.
_RENAMED = {"Buckets": "BucketSampler", "figures": "draw", "padding_mask": "real_mask"}
_RENAMED |= {name: f"draw.{name}" for name in ("Aligned", "Attention", "Handover", "Scores", "Stairs", "Strips")}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = importlib.import_module(_MODULES[name])
    elif name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name in _RENAMED:
        raise AttributeError(f"pv.{name} is now pv.{_RENAMED[name]}; docs/renamed.md lists every old name")
    else:
        raise AttributeError(
            f"module 'packviz' has no attribute {name!r}; it offers {', '.join([*__all__, *_MODULES])}"
        )
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({name for name in globals() if name.startswith("__")} | set(__all__) | set(_MODULES))
