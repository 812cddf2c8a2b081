"""Provides torch's own functions for packing and unpacking, even while `pv.patch_torch()` replaces them."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from torch.nn.utils import rnn

NAMES = ("pack_padded_sequence", "pad_packed_sequence", "pack_sequence", "unpack_sequence")
"""The names of torch's four functions for packing and unpacking."""


def offered() -> dict[str, Any]:
    """Returns what `from torch.nn.utils.rnn import *` imports, by name. The functions in `NAMES` are torch's own."""
    return {name: globals().get(name, getattr(rnn, name)) for name in rnn.__all__}


if TYPE_CHECKING:
    from torch.nn.utils.rnn import pack_padded_sequence as pack_padded_sequence
    from torch.nn.utils.rnn import pack_sequence as pack_sequence
    from torch.nn.utils.rnn import pad_packed_sequence as pad_packed_sequence
    from torch.nn.utils.rnn import unpack_sequence as unpack_sequence
else:
    pack_padded_sequence, pad_packed_sequence, pack_sequence, unpack_sequence = (
        inspect.unwrap(getattr(rnn, name)) for name in NAMES
    )
