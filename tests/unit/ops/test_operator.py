"""The custom operator, held against torch's own pack → RNN → pad; and what compilers make of it."""

import copy
import io
import shutil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.export import Dim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz.check import networks
from packviz.ops import operator
from packviz.ops.operator import RaggedOp

CASES = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(["LSTM", "GRU", "RNN", "relu", "projected"]),
        "layers": st.integers(1, 2),
        "bidirectional": st.booleans(),
        "batch_first": st.booleans(),
        "bias": st.booleans(),
        "states": st.booleans(),
        "lengths": st.lists(st.integers(1, 6), min_size=1, max_size=5),
        "more": st.integers(0, 2),
        "padding_value": st.sampled_from([0.0, -1.5]),
        "dtype": st.sampled_from([torch.float32, torch.float64]),
    }
)


def build(mode="LSTM", layers=1, bidirectional=False, batch_first=False, bias=True, dtype=torch.float32, **_):
    options = {"relu": {"nonlinearity": "relu"}, "projected": {"proj_size": 2}}.get(mode, {})
    kind = {"relu": nn.RNN, "projected": nn.LSTM}.get(mode) or getattr(nn, mode)
    torch.manual_seed(0)
    return kind(3, 4, layers, bias=bias, bidirectional=bidirectional, batch_first=batch_first, dtype=dtype, **options)


def batch(rnn, lengths, more=0, states=False, device="cpu"):
    """An input with so many more time steps than the longest, the lengths, and a state."""
    dtype, directions = rnn.weight_ih_l0.dtype, 2 if rnn.bidirectional else 1
    steps, size = max(lengths) + more, len(lengths)
    shape = (size, steps, 3) if rnn.batch_first else (steps, size, 3)
    x = torch.randn(shape, dtype=dtype, device=device, requires_grad=True)
    hx = None
    if states:
        h, c = (
            torch.randn(rnn.num_layers * directions, size, n, dtype=dtype, device=device, requires_grad=True)
            for n in (getattr(rnn, "proj_size", 0) or 4, 4)
        )
        hx = (h, c) if rnn.mode == "LSTM" else h
    return x, torch.tensor(lengths), hx


def flat(result):
    output, states = result
    return [output, *states] if isinstance(states, tuple) else [output, states]


def by_torch(rnn, x, lengths, hx=None, total_length=None, padding_value=0.0):
    steps = x.shape[1 if rnn.batch_first else 0] if total_length is None else total_length
    result, states = rnn(pack_padded_sequence(x, lengths, rnn.batch_first, enforce_sorted=False), hx)
    return pad_packed_sequence(result, rnn.batch_first, padding_value, steps)[0], states


def assert_close(ours, theirs):
    tolerance = 1e-10 if theirs[0].dtype == torch.float64 else 2e-5
    for one, other in zip(ours, theirs, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        assert torch.allclose(one, other, rtol=tolerance, atol=tolerance)


@given(CASES)
def test_values_and_gradients_are_torchs(case):
    rnn = build(**case)
    x, lengths, hx = batch(rnn, case["lengths"], case["more"], case["states"])
    op = pv.ragged_op(rnn)
    ours = flat(op(x, lengths, hx, padding_value=case["padding_value"]))
    theirs = flat(by_torch(rnn, x, lengths, hx, padding_value=case["padding_value"]))
    assert_close(ours, theirs)
    leaves = [x, *rnn.parameters(), *([] if hx is None else hx if isinstance(hx, tuple) else [hx])]
    weights = [torch.randn_like(one) for one in theirs]
    assert_close(torch.autograd.grad(ours, leaves, weights), torch.autograd.grad(theirs, leaves, weights))


def test_total_length():
    rnn = build()
    x, lengths, _ = batch(rnn, [2, 4], more=2)
    op = pv.ragged_op(rnn)
    assert op(x, lengths)[0].shape[0] == 6
    for total in (4, 5, 9):
        assert_close(flat(op(x, lengths, total_length=total)), flat(by_torch(rnn, x, lengths, total_length=total)))
    with pytest.raises(ValueError, match="total_length"):
        op(x, lengths, total_length=3)


def test_gradcheck():
    rnn = build(dtype=torch.float64, states=True)
    x, lengths, hx = batch(rnn, [3, 1], states=True)
    op = pv.ragged_op(rnn)
    assert torch.autograd.gradcheck(lambda x, h, c: flat(op(x, lengths, (h, c))), (x, *hx))


def test_frozen_weights_and_inputs_without_gradient():
    rnn = build("GRU")
    rnn.weight_hh_l0.requires_grad_(False)
    x, lengths, _ = batch(rnn, [3, 2])
    op = pv.ragged_op(rnn)
    op(x.detach(), lengths)[0].sum().backward()
    assert rnn.weight_hh_l0.grad is None
    assert rnn.weight_ih_l0.grad is not None
    with torch.no_grad():
        assert not op(x, lengths)[0].requires_grad


def test_a_second_derivative_is_refused():
    rnn = build()
    x, lengths, _ = batch(rnn, [3, 2])
    (gradient,) = torch.autograd.grad(pv.ragged_op(rnn)(x, lengths)[0].sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="ragged_rnn_backward"):
        gradient.sum().backward()


def test_it_takes_the_place_of_the_rnn():
    rnn = build("projected", 2, True)
    op = pv.ragged_op(rnn)
    assert isinstance(op, RaggedOp)
    assert list(op.state_dict()) == list(rnn.state_dict())
    assert all(one is other for one, other in zip(op.parameters(), rnn.parameters(), strict=True))
    other = pv.ragged_op(build("projected", 2, True))
    with torch.no_grad():
        rnn.weight_ih_l0.add_(1)
    other.load_state_dict(rnn.state_dict())
    x, lengths, _ = batch(rnn, [3, 2])
    assert_close(flat(other(x, lengths)), flat(by_torch(rnn, x, lengths)))
    assert_close(flat(copy.deepcopy(op)(x, lengths)), flat(op(x, lengths)))
    assert "num_layers=2, bidirectional=True" in repr(op)
    assert_close(flat(op.double()(x.double(), lengths)), flat(by_torch(rnn, x.double(), lengths)))


def test_it_does_not_touch_torchs_random_numbers():
    op = pv.ragged_op(build())
    x, lengths, _ = batch(build(), [3, 2])
    state = torch.random.get_rng_state()
    op(x, lengths)[0].sum().backward()
    assert torch.equal(torch.random.get_rng_state(), state)


def test_wrong_calls():
    with pytest.raises(TypeError, match=r"rnn is a Linear; give the nn\.RNN, nn\.GRU or nn\.LSTM itself"):
        pv.ragged_op(nn.Linear(3, 4))
    normed = nn.utils.parametrizations.weight_norm(nn.LSTM(3, 4), "weight_ih_l0")
    with pytest.raises(ValueError, match="parametrised"):
        pv.ragged_op(normed)
    x, lengths, _ = batch(build(), [3, 2])
    with pytest.raises(TypeError, match="lengths is a list; give a tensor"):
        pv.ragged_op(build())(x, [3, 2])
    for other in (x.detach().numpy(), pack_padded_sequence(x, lengths)):
        with pytest.raises(TypeError, match=f"x is a {type(other).__name__}; give the padded batch, a tensor"):
            pv.ragged_op(build())(other, lengths)
    dropping = pv.ragged_op(nn.LSTM(3, 4, 2, dropout=0.5))
    with pytest.raises(ValueError, match=r"dropout is 0\.5 between layers"):
        dropping(x, lengths)
    dropping.eval()(x, lengths)


# Compilers.


@pytest.mark.parametrize(("mode", "states"), [("LSTM", True), ("GRU", False), ("RNN", True), ("projected", False)])
@pytest.mark.filterwarnings("ignore")
def test_opcheck(mode, states):
    rnn = build(mode, layers=2, bidirectional=True, batch_first=states)
    x, lengths, hx = batch(rnn, [4, 2], more=1, states=states)
    given = [] if hx is None else [hx] if isinstance(hx, torch.Tensor) else list(hx)
    settings = rnn.mode, 2, True, rnn.batch_first, True, 5, 0.0
    taken = (x, lengths, given, list(rnn.parameters()), *settings)
    torch.library.opcheck(torch.ops.packviz.ragged_rnn.default, taken)
    with torch.no_grad():
        made = torch.ops.packviz.ragged_rnn(*taken)
    bare = (x.detach(), lengths, [one.detach() for one in given], [w.detach() for w in rnn.parameters()], *settings)
    gradients = [torch.randn_like(one) for one in made]
    torch.library.opcheck(torch.ops.packviz.ragged_rnn_backward.default, (*gradients, *bare))


class Model(nn.Module):
    def __init__(self, mode, batch_first=True):
        super().__init__()
        self.before, self.after = nn.Linear(3, 3), nn.Linear(4, 2)
        self.rnn = pv.ragged_op(build(mode, batch_first=batch_first))

    def forward(self, x, lengths):
        output, states = self.rnn(torch.tanh(self.before(x)), lengths)
        return torch.relu(self.after(output)), states


BATCHES = ((2, 7, [7, 1]), (4, 3, [3, 2, 1, 3]), (3, 9, [4, 4, 4]))


def backends():
    # Inductor leaves the folder of torch unquoted on the compiler's command line.
    usable = shutil.which("g++") and " " not in torch.__file__
    cxx = pytest.mark.skipif(not usable, reason="needs a C++ compiler, and a path to torch without blanks")
    return ["aot_eager", pytest.param("inductor", marks=[cxx, pytest.mark.slow])]


@pytest.mark.parametrize("backend", backends())
@pytest.mark.filterwarnings("ignore")
def test_a_model_compiles_in_one_graph(backend):
    torch._dynamo.reset()
    model = Model("LSTM" if backend == "inductor" else "GRU")
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=backend)
    for size, steps, lengths in BATCHES:
        x, n = torch.randn(size, steps, 3, requires_grad=True), torch.tensor(lengths)
        ours, theirs = compiled(x, n), model(x, n)
        assert_close(flat(ours), flat(theirs))
        leaves = [x, *model.parameters()]
        gradients = [torch.autograd.grad(out[0].sum(), leaves) for out in (ours, theirs)]
        assert_close(*gradients)


@pytest.mark.filterwarnings("ignore")
def test_a_model_exports_with_dynamic_batch_and_time():
    model = Model("LSTM").eval()
    size, steps = Dim("batch", max=64), Dim("time", max=64)
    shapes = {"x": {0: size, 1: steps}, "lengths": {0: size}}
    program = torch.export.export(model, (torch.randn(3, 5, 3), torch.tensor([5, 2, 3])), dynamic_shapes=shapes)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for one in (program, torch.export.load(file)):
        for size, steps, lengths in BATCHES:
            x, n = torch.randn(size, steps, 3), torch.tensor(lengths)
            assert_close(flat(one.module()(x, n)), flat(model(x, n)))


@pytest.mark.filterwarnings("ignore")
def test_under_autocast_it_computes_in_the_dtype_of_its_weights():
    torch._dynamo.reset()
    model, x, n = Model("LSTM"), torch.randn(3, 5, 3, requires_grad=True), torch.tensor([5, 2, 3])
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", torch.bfloat16):
        made = [model(x, n), compiled(x, n)]
    for output, (h_n, c_n) in made:
        assert (output.dtype, h_n.dtype, c_n.dtype) == (torch.bfloat16, torch.float32, torch.float32)
        assert torch.autograd.grad(output.float().sum() + h_n.sum(), x)[0].isfinite().all()
    assert torch.allclose(made[0][0], made[1][0], atol=0.05)


def test_check_static_has_nothing_to_say():
    assert not pv.check_static(Model("LSTM"), (torch.randn(2, 5, 3), torch.tensor([5, 3])))
    x, lengths = networks.example()
    assert not pv.check_static(networks.OperatorTagger(), (x, lengths))


@pytest.mark.parametrize("layers", [1, 2])
def test_after_a_move_its_weights_lie_in_one_piece_as_those_of_torchs_modules(monkeypatch, layers):
    """`flatten_parameters` does nothing on a CPU; here it does what it does on a GPU."""

    def flatten(rnn):
        each = rnn._flat_weights
        ends = torch.cat([weight.flatten() for weight in each]).split([weight.numel() for weight in each])
        with torch.no_grad():
            for weight, laid in zip(each, ends, strict=True):
                weight.set_(laid.view_as(weight))

    op = pv.ragged_op(build("LSTM", layers, layers == 2, dtype=torch.float64))
    x, lengths, _ = batch(op, [4, 2, 3], 1)
    weights = dict(op.named_parameters())
    expected = flat(op(x, lengths))
    monkeypatch.setattr(nn.RNNBase, "flatten_parameters", flatten)
    op.to(torch.float64)
    assert all(weight is weights[name] for name, weight in op.named_parameters())
    assert len({weight.untyped_storage().data_ptr() for weight in weights.values()}) == 1
    assert_close(flat(op(x, lengths)), expected)
    torch.autograd.grad(op(x, lengths)[0].sum(), list(weights.values()))


def test_the_rnn_inside_is_in_training_mode_where_there_will_be_a_backward_pass(monkeypatch):
    """cuDNN's backward pass wants it; without one the forward pass keeps nothing."""
    seen = []
    true_run = operator.run
    monkeypatch.setattr(
        operator, "run", lambda rnn, *args, **options: seen.append(rnn.training) or true_run(rnn, *args, **options)
    )
    op = pv.ragged_op(build("GRU", 1, True)).eval()
    x, lengths, _ = batch(op, [4, 2, 3], 1)
    output, _ = op(x, lengths)
    assert seen == [False]
    output.sum().backward()
    assert seen == [False, True]
