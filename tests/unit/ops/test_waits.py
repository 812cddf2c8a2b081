"""Tests that nothing waits for a GPU, on the meta device, where reading a value is an error.

tests/device does the same on a GPU, where torch itself refuses to wait.
"""

import gpus
import pytest
import torch
import torch._dynamo  # imported later, it would keep what the fixture puts into torch
from torch import nn
from waits import NoWaiting

import packviz as pv
from packviz.ops import packing, running, torch_kernels
from packviz.ops.running import METHODS

LENGTHS = [
    pytest.param([4, 7, 1, 4, 6], id="ragged"),
    pytest.param([5, 5, 5], id="equal"),
    pytest.param([4, 2, 1], id="sorted", marks=pytest.mark.slow),
    pytest.param([3], id="one", marks=pytest.mark.slow),
]


@pytest.fixture(autouse=True)
def meta(monkeypatch):
    """Replaces a GPU by the meta device."""
    gpus.stand_in(monkeypatch)


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("method", METHODS)
def test_run_does_not_wait(kind, lengths, method):
    sizes = [(1, False), (2, True)]
    for training, (layers, both) in zip(
        (True, False), sizes if len(set(lengths)) > 1 else sizes[::-1], strict=True
    ):
        rnn = kind(3, 4, layers, bidirectional=both, batch_first=True, device="meta")
        x = torch.ones(len(lengths), 8, 3, device="meta", requires_grad=training)
        running.clear_caches()
        with NoWaiting(), torch.set_grad_enabled(training):
            out, _ = pv.run(rnn, x, lengths, method=method)
            assert out.shape == (len(lengths), max(lengths), 4 * (1 + both))
            if training:
                out.sum().backward()


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize(
    ("training", "in_order"), [(True, False), (True, True), (False, False), (False, True)]
)
def test_the_drop_ins_do_not_wait(lengths, training, in_order):
    lengths = sorted(lengths, reverse=True) if in_order else lengths
    x = torch.ones(7, len(lengths), 3, device="meta", requires_grad=training)
    rnn = nn.GRU(3, 4, device="meta")
    with NoWaiting():
        packed = pv.pack_padded_sequence(x, lengths, enforce_sorted=in_order)
        out, n = pv.pad_packed_sequence(rnn(packed)[0], padding_value=2.0, total_length=9)
        assert n.tolist() == lengths
        assert pv.pad_packed_sequence(packed)[0].shape == (max(lengths), len(lengths), 3)
        if training:
            out.sum().backward()


def test_what_is_captured_for_a_graph_is_left_to_torch(monkeypatch):
    """A graph would read indices at addresses that are reused after the next few batches."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    there = torch.ones(5, 2, 3, device="meta")
    assert not running._can_bypass_module(nn.LSTM(3, 4, device="meta"), there)
    assert not packing._is_supported_tensor(there, False)
    assert running._can_bypass_module(nn.LSTM(3, 4), torch.ones(5, 2, 3))


@pytest.mark.parametrize("bias", [True, False])
def test_weights_lie_as_cudnn_wants_them(bias):
    """They fill their memory from its start, with zeros for missing biases."""
    given = list(nn.LSTM(5, 4, bias=bias).parameters())
    laid = torch_kernels.copy_to_one_buffer(given)
    assert all(map(torch.equal, laid, given))
    together = torch.cat([weight.detach().flatten() for weight in given])
    memory = torch.tensor(laid[0].untyped_storage(), dtype=torch.uint8).view(torch.float32)
    assert torch.equal(memory, torch.cat([together, torch.zeros(0 if bias else 32)]))
    numbers = [torch.randn(weight.shape) for weight in given]
    products = [(weight * n).sum() for weight, n in zip(laid, numbers, strict=True)]
    assert all(map(torch.equal, torch.autograd.grad(products, given), numbers))


@pytest.mark.parametrize("lengths", [[7, 4, 1], [5, 5, 5]])
@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize(
    ("training", "grad", "frozen", "how"),
    [
        (True, True, False, (0.5, True)),
        (False, True, False, (0.0, True)),  # cuDNN has a backward pass in training mode only
        (False, True, True, (0.0, False)),
        (False, False, False, (0.5, False)),
    ],
)
def test_in_eval_mode_there_is_a_backward_pass_too(
    monkeypatch, lengths, flat, training, grad, frozen, how
):
    """`run` calls the kernel for weights in one piece, and otherwise the module, which puts them in
    one piece.
    """
    rnn = nn.GRU(3, 4, 2, dropout=0.5, device="meta").train(training).requires_grad_(not frozen)
    if flat:
        weights = torch.empty(sum(weight.numel() for weight in rnn.parameters()), device="meta")
        for weight, laid in zip(
            rnn.parameters(), weights.split([w.numel() for w in rnn.parameters()]), strict=True
        ):
            weight.data = laid.view_as(weight)
    seen = []
    monkeypatch.setattr(
        running, "rnn_kernel", lambda mode: lambda *given: seen.append(given) or torch.gru(*given)
    )
    with torch.set_grad_enabled(grad):
        pv.run(
            rnn,
            torch.ones(7, 3, 3, device="meta"),
            lengths,
            method="packed" if lengths[0] > lengths[1] else "frozen",
        )
    is_direct = flat or (grad and not training)
    assert len(seen) == is_direct
    if is_direct:
        (given,) = seen
        at = [type(one) for one in given].index(float)
        assert given[at : at + 2] == how
