"""Tests that nested, sparse and quantised tensors are refused by name, with advice that works."""

import numpy as np
import pytest
import torch

import packviz as pv

LENGTHS = [5, 3, 2]
RNN = torch.nn.GRU(3, 4, batch_first=True)
LENGTHS_RNN = pv.GRU(3, 4, batch_first=True)

TAKES_A_BATCH = {
    "run": lambda x, n: pv.run(RNN, x, n),
    "GRU": lambda x, n: LENGTHS_RNN(x, lengths=n),
    "compare": lambda x, n: pv.compare(RNN, x, n),
    "diagnose": lambda x, n: pv.diagnose(x, n, batch_first=True),
    "align": lambda x, n: pv.align(x, n, source_side="right", batch_first=True),
    "masked_loss": lambda x, n: pv.masked_loss(x, n, batch_first=True),
}
# `show` draws a jagged tensor, so it rejects only sparse ones.
TAKES_OTHERS = TAKES_A_BATCH | {"show": lambda x, n: pv.show(x, n, batch_first=True)}
TAKES_LENGTHS = {
    "real_mask": pv.real_mask,
    "flops": lambda n: pv.flops(RNN, n),
    "plan": lambda n: pv.plan(RNN, n),
    "Layout": pv.Layout,
    "run": lambda n: pv.run(RNN, torch.zeros(3, 5, 3), n),
    "diagnose": lambda n: pv.diagnose(torch.zeros(3, 5, 3), n, batch_first=True),
}


@pytest.fixture(params=[torch.jagged, torch.strided], ids=str)
def nested(request):
    return torch.nested.nested_tensor([torch.randn(n, 3) for n in LENGTHS], layout=request.param)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("name", TAKES_A_BATCH)
def test_a_nested_batch_is_refused_and_runs_as_advised(name, nested):
    called = "loss" if name == "masked_loss" else "x"
    with pytest.raises(TypeError, match=rf"^{called} is a nested tensor; give \[len"):
        TAKES_A_BATCH[name](nested, LENGTHS)
    lengths = [len(one) for one in nested.unbind()]
    assert lengths == LENGTHS
    TAKES_A_BATCH[name](torch.nested.to_padded_tensor(nested, 0.0), lengths)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("name", TAKES_LENGTHS)
def test_nested_lengths_are_refused(name, nested):
    with pytest.raises(TypeError, match=r"^lengths is a nested tensor; give \[len"):
        TAKES_LENGTHS[name](nested)


def quantised(x):
    return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)


@pytest.mark.filterwarnings("ignore:Sparse", "ignore:torch.quantize")
@pytest.mark.parametrize(
    ("make", "word", "cure"),
    [
        (torch.Tensor.to_sparse, "sparse", "to_dense"),
        (torch.Tensor.to_sparse_csr, "sparse", "to_dense"),
        (quantised, "quantised", "dequantize"),
    ],
)
@pytest.mark.parametrize("name", TAKES_OTHERS)
def test_an_odd_batch_is_refused_and_runs_as_advised(name, make, word, cure):
    called = "loss" if name == "masked_loss" else "x"
    odd = make(torch.randn(3, 5, 3))
    with pytest.raises(TypeError, match=rf"^{called} is a {word} tensor; .*{called}\.{cure}\(\)$"):
        TAKES_OTHERS[name](odd, LENGTHS)
    TAKES_OTHERS[name](getattr(odd, cure)(), LENGTHS)


def test_a_masked_array_is_not_drawn():
    with pytest.raises(TypeError, match="x is a NumPy masked array, whose mask would be ignored"):
        pv.show(np.ma.masked_array([[1, 2], [3, 4]]), [2, 1], batch_first=True)


@pytest.mark.parametrize("name", TAKES_LENGTHS)
def test_sparse_lengths_are_refused(name):
    with pytest.raises(TypeError, match=r"^lengths is a sparse tensor; give a dense one"):
        TAKES_LENGTHS[name](torch.tensor(LENGTHS).to_sparse())


@pytest.mark.parametrize("name", ["flops", "plan", "Layout"])
def test_lengths_without_values_are_refused(name):
    with pytest.raises(
        ValueError,
        match=r"^lengths is on the meta device, which stores no values; create it on another",
    ):
        TAKES_LENGTHS[name](torch.tensor(LENGTHS, device="meta"))


@pytest.mark.parametrize("name", ["run", "GRU", "compare"])
def test_a_batch_without_values_is_not_run(name):
    with pytest.raises(
        ValueError, match=r"^x is on the meta device, which stores no values; create it on another"
    ):
        TAKES_A_BATCH[name](torch.zeros(3, 5, 3, device="meta"), LENGTHS)
