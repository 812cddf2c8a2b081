"""Tests that every function accepts the same lengths: any list or array, also of whole floats."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import rnn as torchs
from torchs import outcome, same

import packviz as pv
from packviz.count import profile
from packviz.ops.running import METHODS

torch.manual_seed(0)
RNN = nn.GRU(2, 3)
LENGTHS_RNN = pv.GRU(2, 3)
X = torch.randn(6, 4, 2)


class Series:
    """Numbers with labels, as in pandas: `series[0]` is the entry with the label 0."""

    def __init__(self, values):
        self._values = list(values)
        self._labels = [*range(len(self._values))][::-1]

    def __array__(self, dtype=None, copy=None):
        return np.array(self._values, dtype=dtype)

    def __len__(self):
        return len(self._values)

    def __iter__(self):
        return iter(self._values)

    def __getitem__(self, label):
        return self._values[self._labels.index(label)]


KINDS = {
    "list": list,
    "tuple": tuple,
    "array": np.array,
    "array with negative strides": lambda n: np.array(n[::-1])[::-1],
    "list of array entries": lambda n: [*np.array(n)],
    "list of tensors": lambda n: [torch.tensor(one) for one in n],
    "Series": Series,
    "float32 tensor": lambda n: torch.tensor(n, dtype=torch.float32),
    "bfloat16 tensor": lambda n: torch.tensor(n, dtype=torch.bfloat16),
    "tensor with a gradient": lambda n: torch.tensor(n, dtype=torch.float64, requires_grad=True),
}
WHOLE_BATCH = KINDS | {
    "int32 tensor": lambda n: torch.tensor(n, dtype=torch.int32),
    "uint8 array": lambda n: np.array(n, dtype=np.uint8),
    "objects": lambda n: np.array(n, dtype=object),
    "Layout": pv.Layout,
}
VERBS = {
    "Layout": lambda n: pv.Layout(n).lengths,
    "show": lambda n: pv.show(X, n).to_text(),
    "show alone": lambda n: pv.show(n).layout.lengths,
    "flops": lambda n: pv.flops(RNN, n).packed,
    "Scores": lambda n: pv.draw.Scores(n, 6).to_text(),
    "Stairs": lambda n: pv.draw.Stairs(n, [0, max(map(int, pv.Layout(n).lengths))]).cuts,
    "Aligned": lambda n: pv.draw.Aligned.of(X[..., 0].T, n, batch_first=True).to_text(),
    "plan": lambda n: pv.plan(RNN, n).method,
    "compare": lambda n: pv.compare(RNN, X, n).to_text(),
    "diagnose": lambda n: pv.diagnose(X, n).to_text(),
    "align": lambda n: pv.align(X, n),
    "real_mask": lambda n: pv.real_mask(n, 6),
    "masked_loss": lambda n: pv.masked_loss(X, n),
    "BucketSampler": lambda n: list(pv.BucketSampler(n, 2)),
    "batches": lambda n: pv.batches.batches(n, 2),
    "split": lambda n: pv.batches.split(n, 2),
    "fill": lambda n: pv.batches.fill(n, 6),
    "count": lambda n: profile.count(n).to_text(),
    "count_rnn": lambda n: str(profile.count_rnn(RNN, n)),
    "advise": lambda n: pv.advise(RNN, n, budget=1e-9).what,
    "GRU": lambda n: LENGTHS_RNN(X, lengths=n)[0].detach(),
    "last_output": lambda n: pv.last_output(X, n),
    **{
        method: lambda n, method=method: pv.run(RNN, X, n, method=method)[0].detach()
        for method in METHODS
    },
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_kind_is_taken(verb):
    wanted = str(VERBS[verb]([6, 3, 2, 1]))
    for kind, make in WHOLE_BATCH.items():
        assert str(VERBS[verb](make([6, 3, 2, 1]))) == wanted, kind
    if verb not in ("Scores", "count"):  # these show the width of a Layout
        assert str(VERBS[verb](pv.Layout([6, 3, 2, 1], max_len=9))) == wanted


def test_a_layout_brings_its_width_and_its_order():
    layout = pv.Layout([3, 2, 3], max_len=5, sorted_indices=[2, 0, 1])
    assert pv.Layout(layout) == pv.flops(RNN, layout).layout == layout
    assert pv.Layout(layout, max_len=4) == pv.Layout([3, 2, 3], 4, sorted_indices=[2, 0, 1])
    assert pv.real_mask(layout).tolist() == layout.mask.tolist()
    with pytest.raises(ValueError, match=r"lengths\[0\] is 3 .*: longer than max_len=2"):
        pv.Layout(layout, max_len=2)


def test_lengths_are_taken_while_compiling():
    def both(n):
        return pv.real_mask(n, 6), pv.align(X, n)

    function = torch.compile(both, fullgraph=True, backend="eager")
    for kind in (list, torch.tensor, pv.Layout):
        for yours, wanted in zip(function(kind([6, 3, 2, 1])), both([6, 3, 2, 1]), strict=True):
            assert torch.equal(yours, wanted)


TAKES_A_MASK = ["real_mask", "masked_loss", "GRU", "last_output", *METHODS]
TAKES_A_MASK += ["show", "show alone", "flops", "plan"]
TAKES_A_MASK += ["compare", "diagnose", "BucketSampler", "split"]


@pytest.mark.parametrize("verb", TAKES_A_MASK)
def test_a_mask_gives_what_its_lengths_give(verb):
    wanted = VERBS[verb]([6, 3, 2, 1])
    mask = pv.real_mask([6, 3, 2, 1])
    for form in (mask, mask.long(), mask.numpy(), mask.numpy().astype(np.uint8)):
        np.testing.assert_array_equal(VERBS[verb](form), wanted, strict=True)
    with pytest.raises(
        ValueError, match="row 1 of the mask has padding at time step 0 before real"
    ):
        VERBS[verb](mask.flip(1))
    with pytest.raises(TypeError, match="lengths is a NumPy masked array"):
        VERBS[verb](np.ma.masked_array([6, 3, 2, 1], mask=[0, 0, 1, 0]))


@given(
    st.lists(st.integers(1, 6), min_size=4, max_size=4),
    st.sampled_from([*KINDS]),
    st.sampled_from([*VERBS]),
)
def test_whole_floats_count(lengths, kind, verb):
    assert str(VERBS[verb](KINDS[kind]([float(n) for n in lengths]))) == str(VERBS[verb](lengths))


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "diagnose"])
@pytest.mark.parametrize("wrong", [2.5, float("nan")])
def test_others_are_refused(verb, wrong):
    for make in KINDS.values():
        with pytest.raises(ValueError, match=rf"lengths\[2\] is {wrong}: not a whole number"):
            VERBS[verb](make([6.0, 3.0, wrong, 1.0]))


@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_the_drop_ins_do_what_torch_does(enforce_sorted, grad):
    x = X.clone().requires_grad_(grad)
    for lengths in (
        [6.0, 3.0, 2.0, 1.0],
        [6.9, 3.5, 2.5, 1.1],
        [6.0, 0.5, 0.2, 0.1],
        [float("nan")] * 4,
    ):
        for kind in (list, tuple, np.array, torch.tensor, KINDS["bfloat16 tensor"]):
            arguments = x, kind(lengths), False, enforce_sorted
            theirs = outcome(torchs.pack_padded_sequence, *arguments)
            assert same(outcome(pv.pack_padded_sequence, *arguments), theirs), (kind, lengths)
