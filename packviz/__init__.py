"""See, count, check and time PyTorch packed sequences.

Every name is imported on first use, so that `import packviz` stays fast. Type checkers and editors
read the names in `__init__.pyi`.
"""

from __future__ import annotations

import importlib
from difflib import get_close_matches

_MODULES = {
    "BucketSampler": "ops.sampler",
    "GRU": "ops.rnn",
    "LSTM": "ops.rnn",
    "Layout": "core.layout",
    "Picture": "draw.picture",
    "RNN": "ops.rnn",
    "Ragged": "ops.rnn",
    "Spec": "core.spec",
    "advise": "measure.advise",
    "align": "ops.masks",
    "check_static": "check.static",
    "compare": "check.compare",
    "diagnose": "check.diagnose",
    "explain": "check.museum",
    "explain_errors": "check.explain",
    "flops": "count.flops",
    "last_output": "ops.masks",
    "masked_loss": "ops.masks",
    "pack_padded_sequence": "ops.packing",
    "pad_packed_sequence": "ops.packing",
    "padding_waste": "draw.plots",
    "patch_torch": "ops.patching",
    "plan": "ops.running",
    "real_mask": "ops.masks",
    "run": "ops.running",
    "show": "draw.picture",
    "time_calls": "measure.time_calls",
    "unpack_to_length": "ops.packing",
}
"""The module of each public function and class."""

_SUBMODULES = {
    "batches": "core.batches",
    "draw": "draw",
    "lengths": "core.lengths",
    "panels": "panels",
}
"""The path of each public module."""

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    if name == "__version__":
        system = importlib.import_module("packviz.core.system")
        return system.packviz_version() or "0+unknown"
    path = _MODULES.get(name) or _SUBMODULES.get(name)
    if path is None:
        message = f"module 'packviz' has no attribute {name!r}"
        suggestions = get_close_matches(name, [*_MODULES, *_SUBMODULES], n=1)
        if suggestions:
            message += f"; did you mean {suggestions[0]!r}?"
        raise AttributeError(message, name=name)
    module = importlib.import_module(f"packviz.{path}")
    value = getattr(module, name) if name in _MODULES else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    dunder_names = [name for name in globals() if name.startswith("__")]
    return sorted({*dunder_names, *_MODULES, *_SUBMODULES, "__version__"})
