"""See, count, check and time PyTorch packed sequences.

Every name is imported on first use, so that `import packviz` stays fast. `__init__.pyi` lists the
names.
"""

from __future__ import annotations

import importlib
from typing import Any

# Maps each name to its module or package, as read from the stub's lines `from HOME import NAME as
# NAME`.
with open(f"{__path__[0]}/__init__.pyi", encoding="utf-8") as _stub:
    _HOME = {words[-1]: words[1] for words in map(str.split, _stub) if words[:1] == ["from"]}
# `__all__` lists functions and classes, which are in modules such as `packviz.core.layout`. Other
# names are modules.
__all__ = sorted(name for name, home in _HOME.items() if home.count(".") == 2)
# Maps each old name to the new one. docs/renamed.md also lists the renamed arguments.
_RENAMED = {
    "Buckets": "BucketSampler",
    "figures": "draw",
    "padding_mask": "real_mask",
    "ragged_op": "Ragged",
}
_RENAMED |= {
    name: f"draw.{name}" for name in ("Aligned", "Attention", "Scores", "Stairs", "Strips")
}


def __getattr__(name: str) -> Any:
    if name in __all__:
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name in _HOME:
        value = importlib.import_module(f"{_HOME[name]}.{name}")
    elif name == "__version__":
        value = importlib.import_module("packviz.core.machine").own_version() or "0+unknown"
    elif name in _RENAMED:
        raise AttributeError(
            f"pv.{name} is now pv.{_RENAMED[name]}; docs/renamed.md lists every old name"
        )
    else:
        offers = ", ".join([*__all__, *sorted({*_HOME} - {*__all__})])
        raise AttributeError(f"module 'packviz' has no attribute {name!r}; it offers {offers}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({name for name in globals() if name.startswith("__")} | {*_HOME, "__version__"})
