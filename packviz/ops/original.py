"""Provides torch's own functions for packing, even while `pv.patch_torch()` replaces them."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from torch.nn.utils import rnn

FUNCTION_NAMES = ("pack_padded_sequence", "pad_packed_sequence")
"""The names of the functions that packviz replaces."""


if TYPE_CHECKING:
    from torch.nn.utils.rnn import pack_padded_sequence as pack_padded_sequence
    from torch.nn.utils.rnn import pad_packed_sequence as pad_packed_sequence
else:
    pack_padded_sequence = inspect.unwrap(rnn.pack_padded_sequence)
    pad_packed_sequence = inspect.unwrap(rnn.pad_packed_sequence)
