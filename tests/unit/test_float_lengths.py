"""One rule for lengths that are floats: whole ones count, others are refused, whoever takes them."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import rnn as torchs
from torchs import outcome, same

import packviz as pv
from packviz.ops.running import METHODS

torch.manual_seed(0)
RNN = nn.GRU(2, 3)
X = torch.randn(6, 4, 2)
KINDS = [
    list,
    tuple,
    np.array,
    lambda n: torch.tensor(n, dtype=torch.float32),
    lambda n: torch.tensor(n, dtype=torch.bfloat16),
    lambda n: torch.tensor(n, dtype=torch.float64, requires_grad=True),
]
VERBS = {
    "Layout": lambda n: pv.Layout(n),
    "show": lambda n: pv.show(X, n).to_text(),
    "flops": lambda n: pv.flops(RNN, n).to_text(),
    "plan": lambda n: pv.plan(RNN, n).method,
    "compare": lambda n: pv.compare(RNN, X, n).to_text(),
    "align": lambda n: pv.align(X, n),
    "real_mask": lambda n: pv.real_mask(n),
    "masked_loss": lambda n: pv.masked_loss(X, n),
    "BucketSampler": lambda n: list(pv.BucketSampler(n, 2)),
    "ragged_op": lambda n: pv.ragged_op(RNN)(X, torch.as_tensor(n).detach())[0].detach(),
    **{method: lambda n, method=method: pv.run(RNN, X, n, method=method)[0].detach() for method in METHODS},
}


@given(st.lists(st.integers(1, 6), min_size=4, max_size=4), st.sampled_from(KINDS), st.sampled_from([*VERBS]))
def test_whole_floats_count(lengths, kind, verb):
    assert str(VERBS[verb](kind([float(n) for n in lengths]))) == str(VERBS[verb](lengths))


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("wrong", "why"), [(2.5, "not a whole number"), (float("nan"), "not a number of time")])
def test_others_are_refused(verb, wrong, why):
    for kind in KINDS:
        with pytest.raises(ValueError, match=re.escape(f"lengths[2] is {wrong}: {why}")):
            VERBS[verb](kind([6.0, 3.0, wrong, 1.0]))


def test_diagnose_says_so():
    assert "fractional length" in pv.diagnose(X, [6, 3, 2.5, 1]).rules
    assert "fractional length" not in pv.diagnose(X, [6.0, 3.0, 2.0, 1.0]).rules


@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_the_drop_ins_do_what_torch_does(enforce_sorted, grad):
    x = X.clone().requires_grad_(grad)
    for lengths in ([6.0, 3.0, 2.0, 1.0], [6.9, 3.5, 2.5, 1.1], [6.0, 0.5, 0.2, 0.1], [float("nan")] * 4):
        for kind in KINDS[:-1]:
            arguments = x, kind(lengths), False, enforce_sorted
            theirs = outcome(torchs.pack_padded_sequence, *arguments)
            assert same(outcome(pv.pack_padded_sequence, *arguments), theirs), (kind, lengths)
