"""torch's own packing and unpacking, whoever stands in their place.

By the time this is imported, `pv.patch_torch()` or somebody else may have put another function under torch's name. One
that fell back on whatever is found there would call itself for ever. So what is not defined in torch's own module is
made anew from that module's code.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from torch.nn.utils import rnn

NAMES = ("pack_padded_sequence", "pad_packed_sequence", "pack_sequence", "unpack_sequence")
"""Of the four functions."""


def offered() -> dict[str, Any]:
    """Returns what `from torch.nn.utils.rnn import *` imports, with torch's own four functions."""
    return {name: globals().get(name, getattr(rnn, name)) for name in rnn.__all__}


def _torchs(name: str) -> Any:
    found = inspect.unwrap(getattr(rnn, name))
    return found if getattr(found, "__globals__", None) is vars(rnn) else _made_anew(name)


def _made_anew(name: str) -> FunctionType:
    """The function as its module defines it, with the names of the module that is in use: its `PackedSequence`."""
    defined = inspect.unwrap(getattr(_fresh(), name))
    made = FunctionType(defined.__code__, vars(rnn), name, defined.__defaults__, defined.__closure__)
    made.__annotations__ = defined.__annotations__
    return made


@functools.cache
def _fresh() -> ModuleType:
    """The module of torch run once more, and known to nobody."""
    spec: Any = rnn.__spec__
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from torch.nn.utils.rnn import pack_padded_sequence as pack_padded_sequence
    from torch.nn.utils.rnn import pack_sequence as pack_sequence
    from torch.nn.utils.rnn import pad_packed_sequence as pad_packed_sequence
    from torch.nn.utils.rnn import unpack_sequence as unpack_sequence
else:
    pack_padded_sequence, pad_packed_sequence, pack_sequence, unpack_sequence = map(_torchs, NAMES)
