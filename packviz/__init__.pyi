"""See, count, check and time PyTorch packed sequences.

Type checkers and editors read the public names here. A test compares them with the tables in
`__init__.py`.
"""

from packviz import draw as draw
from packviz import panels as panels
from packviz.check.compare import compare as compare
from packviz.check.diagnose import diagnose as diagnose
from packviz.check.explain import explain_errors as explain_errors
from packviz.check.museum import explain as explain
from packviz.check.static import check_static as check_static
from packviz.core import batches as batches
from packviz.core import lengths as lengths
from packviz.core.layout import Layout as Layout
from packviz.core.spec import Spec as Spec
from packviz.count.flops import flops as flops
from packviz.draw.picture import Picture as Picture
from packviz.draw.picture import show as show
from packviz.draw.plots import padding_waste as padding_waste
from packviz.measure.advise import advise as advise
from packviz.measure.time_calls import time_calls as time_calls
from packviz.ops.masks import align as align
from packviz.ops.masks import last_output as last_output
from packviz.ops.masks import masked_loss as masked_loss
from packviz.ops.masks import real_mask as real_mask
from packviz.ops.packing import pack_padded_sequence as pack_padded_sequence
from packviz.ops.packing import pad_packed_sequence as pad_packed_sequence
from packviz.ops.packing import unpack_to_length as unpack_to_length
from packviz.ops.patching import patch_torch as patch_torch
from packviz.ops.rnn import GRU as GRU
from packviz.ops.rnn import LSTM as LSTM
from packviz.ops.rnn import RNN as RNN
from packviz.ops.rnn import Ragged as Ragged
from packviz.ops.running import plan as plan
from packviz.ops.running import run as run
from packviz.ops.sampler import BucketSampler as BucketSampler

__version__: str

_MODULES: dict[str, str]
_SUBMODULES: dict[str, str]
