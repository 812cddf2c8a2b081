"""Compares `Ragged`, as a module and as an operator for compilers, with torch's own pack → RNN → pad."""

import copy
import io
import shutil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.export import Dim
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz.ops import operator

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
OPERATOR = torch.ops.import_packviz_ops_operator


def build(
    mode="LSTM",
    layers=1,
    bidirectional=False,
    batch_first=False,
    bias=True,
    dtype=torch.float32,
    **_,
):
    options = {"relu": {"nonlinearity": "relu"}, "projected": {"proj_size": 2}}.get(mode, {})
    kind = {"relu": nn.RNN, "projected": nn.LSTM}.get(mode) or getattr(nn, mode)
    torch.manual_seed(0)
    return kind(
        3,
        4,
        layers,
        bias=bias,
        bidirectional=bidirectional,
        batch_first=batch_first,
        dtype=dtype,
        **options,
    )


def batch(rnn, lengths, more=0, states=False):
    """Returns an input with `more` time steps than the longest length, the lengths, and a state."""
    dtype, rows = rnn.weight_ih_l0.dtype, rnn.num_layers * (1 + rnn.bidirectional)
    steps, size = max(lengths) + more, len(lengths)
    x = torch.randn(
        (size, steps, 3) if rnn.batch_first else (steps, size, 3), dtype=dtype, requires_grad=True
    )
    sizes = (rnn.proj_size or 4, 4) if rnn.mode == "LSTM" else (4,)
    hx = (
        tuple(torch.randn(rows, size, n, dtype=dtype, requires_grad=True) for n in sizes)
        if states
        else None
    )
    return x, torch.tensor(lengths), hx if hx is None or len(hx) == 2 else hx[0]


def flat(result):
    output, states = result
    return [output, *states] if isinstance(states, tuple) else [output, states]


def by_torch(rnn, x, lengths, hx=None, total_length=None, padding_value=0.0):
    steps = x.shape[1 if rnn.batch_first else 0] if total_length is None else total_length
    result, states = rnn(
        pack_padded_sequence(x, lengths, rnn.batch_first, enforce_sorted=False), hx
    )
    return pad_packed_sequence(result, rnn.batch_first, padding_value, steps)[0], states


def assert_close(ours, theirs):
    tolerance = 1e-10 if theirs[0].dtype == torch.float64 else 2e-5
    for one, other in zip(ours, theirs, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert torch.allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.fixture
def compiled(monkeypatch):
    """Makes `Ragged` run the code that a compiler would call."""

    def forward(
        self, x, lengths, hx=None, *, batch_first=None, total_length=None, padding_value=0.0
    ):
        return self._compiled(x, lengths, hx, batch_first, total_length, padding_value)

    monkeypatch.setattr(operator.Ragged, "forward", forward)


@given(CASES)
def test_values_and_gradients_are_torchs(case):
    rnn = build(**case)
    x, lengths, hx = batch(rnn, case["lengths"], case["more"], case["states"])
    width = x.shape[1 if rnn.batch_first else 0]
    ours = flat(pv.Ragged(rnn)._compiled(x, lengths, hx, None, width, case["padding_value"]))
    theirs = flat(by_torch(rnn, x, lengths, hx, padding_value=case["padding_value"]))
    assert_close(ours, theirs)
    leaves = [x, *rnn.parameters(), *([] if hx is None else hx if isinstance(hx, tuple) else [hx])]
    weights = [torch.randn_like(one) for one in theirs]
    assert_close(
        torch.autograd.grad(ours, leaves, weights), torch.autograd.grad(theirs, leaves, weights)
    )


def test_the_width_is_that_without_a_compiler_or_an_error(compiled):
    rnn = build()
    x, lengths, _ = batch(rnn, [2, 4])
    assert_close(flat(pv.Ragged(rnn)(x, lengths)), flat(by_torch(rnn, x, lengths)))
    x, lengths, _ = batch(rnn, [2, 4], more=2)
    with pytest.raises(
        ValueError, match=r"longest length is 4, but x has T = 6.* pass total_length=x\.shape"
    ):
        pv.Ragged(rnn)(x, lengths)
    for total in (4, 5, 9):
        assert_close(
            flat(pv.Ragged(rnn)(x, lengths, total_length=total)),
            flat(by_torch(rnn, x, lengths, total_length=total)),
        )
    with pytest.raises(ValueError, match="total_length is 3; give a whole number of at least 4"):
        pv.Ragged(rnn)(x, lengths, total_length=3)


def test_frozen_weights_inputs_without_gradient_and_second_derivatives(compiled):
    rnn = build("GRU")
    rnn.weight_hh_l0.requires_grad_(False)
    x, lengths, _ = batch(rnn, [3, 2])
    op, state = pv.Ragged(rnn), torch.random.get_rng_state()
    op(x.detach(), lengths)[0].sum().backward()
    assert rnn.weight_hh_l0.grad is None
    assert rnn.weight_ih_l0.grad is not None
    assert torch.equal(torch.random.get_rng_state(), state)
    with torch.no_grad():
        assert not op(x, lengths)[0].requires_grad
    (gradient,) = torch.autograd.grad(op(x, lengths)[0].sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="ragged_rnn_backward"):
        gradient.sum().backward()


# The module.


def test_it_takes_the_place_of_the_rnn():
    rnn = build("projected", 2, True)
    ragged = pv.Ragged(rnn, "split")
    assert list(ragged.state_dict()) == list(rnn.state_dict())
    assert [name for name, _ in ragged.named_parameters()] == [
        name for name, _ in rnn.named_parameters()
    ]
    assert all(
        one is other for one, other in zip(ragged.parameters(), rnn.parameters(), strict=True)
    )
    assert (ragged.hidden_size, ragged.proj_size, ragged.bidirectional) == (4, 2, True)
    ragged.flatten_parameters()
    assert "LSTM(3, 4, proj_size=2, num_layers=2, bidirectional=True), method='split'" in repr(
        ragged
    )
    with pytest.raises(AttributeError, match="'LSTM' object has no attribute 'hidden'"):
        _ = ragged.hidden
    for wrong, error, said in (
        ("pack", ValueError, "method is 'pack'"),
        (None, ValueError, "method is None"),
    ):
        with pytest.raises(error, match=said):
            pv.Ragged(rnn, wrong)
    with pytest.raises(TypeError, match="rnn is a Linear: give"):
        pv.Ragged(nn.Linear(3, 4))
    with pytest.raises(AttributeError, match=r"pv\.ragged_op is now pv\.Ragged"):
        _ = pv.ragged_op


@pytest.mark.parametrize("assign", [True, False])
def test_a_checkpoint_of_either_loads_into_the_other(assign):
    rnn, other = build("LSTM", 2), pv.Ragged(build("LSTM", 2))
    nn.init.normal_(rnn.weight_ih_l0)
    x, lengths, _ = batch(rnn, [3, 2])
    model = nn.ModuleDict({"rnn": other})
    model.load_state_dict(
        {f"rnn.{name}": value for name, value in rnn.state_dict().items()}, assign=assign
    )
    for method in ("auto", "packed"):
        other.method = method
        assert_close(flat(other(x, lengths)), flat(by_torch(rnn, x, lengths)))
    back = build("LSTM", 2)
    back.load_state_dict(other.state_dict(), assign=assign)
    assert_close(flat(by_torch(back, x, lengths)), flat(by_torch(rnn, x, lengths)))


def test_what_is_done_to_it_is_done_to_the_rnn():
    rnn = build("LSTM", 2)
    ragged, found = pv.Ragged(rnn), []
    nn.Sequential(ragged).apply(lambda module: found.append(type(module)))
    assert nn.LSTM in found
    ragged.eval()
    assert not rnn.training
    ragged.dropout = 0.5
    assert rnn.dropout == 0.5
    x, lengths, _ = batch(rnn, [3, 2])
    copied = copy.deepcopy(ragged)
    assert copied.rnn is not rnn
    assert_close(flat(copied(x, lengths)), flat(ragged(x, lengths)))
    for method in ("auto", "packed"):
        copied.method = method
        assert_close(
            flat(copied.double()(x.double(), lengths)),
            flat(by_torch(copied.rnn, x.double(), lengths)),
        )
    assert ragged.weight_ih_l0.dtype == torch.float32
    parametrizations.weight_norm(rnn, "weight_hh_l0")
    assert_close(flat(pv.Ragged(rnn)(x, lengths)), flat(by_torch(rnn, x, lengths)))


# Compilers.


@pytest.mark.parametrize(
    ("mode", "states"),
    [
        ("projected", True),
        ("GRU", True),
        ("RNN", False),
        pytest.param("LSTM", False, marks=pytest.mark.slow),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_opcheck(mode, states):
    rnn = build(mode, layers=2, bidirectional=True, batch_first=states)
    x, lengths, hx = batch(rnn, [4, 2], more=1, states=states)
    h_0, c_0 = [*([] if hx is None else [hx] if isinstance(hx, torch.Tensor) else hx), None, None][
        :2
    ]
    settings = rnn.mode, True, rnn.batch_first, True, 5, False, 0.0
    torch.library.opcheck(
        OPERATOR.ragged_rnn.default, (x, lengths, h_0, c_0, list(rnn.parameters()), *settings)
    )
    x, h_0, c_0, *weights = [
        one if one is None else one.detach() for one in (x, h_0, c_0, *rnn.parameters())
    ]
    taken = x, lengths, h_0, c_0, weights, *settings
    gradients = [torch.randn_like(one) for one in OPERATOR.ragged_rnn(*taken)]
    torch.library.opcheck(OPERATOR.ragged_rnn_backward.default, (*gradients, *taken))


class Model(nn.Module):
    def __init__(self, mode, layers=1):
        super().__init__()
        self.before, self.after = nn.Linear(3, 3), nn.Linear(4, 2)
        self.rnn = pv.Ragged(build(mode, layers, batch_first=True))

    def forward(self, x, lengths):
        output, states = self.rnn(torch.tanh(self.before(x)), lengths, total_length=x.shape[1])
        return torch.relu(self.after(output)), states


BATCHES = ((2, 7, [7, 1]), (4, 3, [3, 0, 1, 3]), (3, 9, [4, 4, 4]))
EXAMPLE = torch.randn(3, 5, 3), torch.tensor([5, 2, 3])
# Inductor does not quote the folder of torch on the compiler's command line.
CXX = pytest.mark.skipif(
    not shutil.which("g++") or " " in torch.__file__, reason="needs a C++ compiler, and no blanks"
)


def exported(model):
    size, steps = Dim("batch", max=64), Dim("time", max=64)
    shapes = {"x": {0: size, 1: steps}, "lengths": {0: size}}
    return torch.export.export(model, EXAMPLE, dynamic_shapes=shapes)


@pytest.mark.parametrize(
    "backend", ["aot_eager", pytest.param("inductor", marks=[CXX, pytest.mark.slow])]
)
@pytest.mark.filterwarnings("ignore")
def test_a_model_compiles_in_one_graph(backend):
    torch._dynamo.reset()
    model = Model("LSTM" if backend == "inductor" else "GRU")
    if backend == "aot_eager":
        parametrizations.weight_norm(model.rnn.rnn, "weight_hh_l0")
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=backend)
    for size, steps, lengths in BATCHES:
        x, n = torch.randn(size, steps, 3, requires_grad=True), torch.tensor(lengths)
        ours, theirs = compiled(x, n), model(x, n)
        assert_close(flat(ours), flat(theirs))
        leaves = [x, *model.parameters()]
        gradients = [torch.autograd.grad(out[0].sum(), leaves) for out in (ours, theirs)]
        assert_close(*gradients)
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore")
def test_dropout_between_layers_compiles(compiled):
    rnn = build("GRU", 2)
    x, lengths, hx = batch(rnn, [4, 2, 3], states=True)
    ragged = pv.Ragged(rnn)
    for dropout in (1.0, 1e-9):
        ragged.dropout = dropout
        assert_close(flat(ragged(x, lengths, hx)), flat(by_torch(rnn, x, lengths, hx)))


@pytest.mark.filterwarnings("ignore")
def test_a_saved_program_runs_and_says_what_to_import(tmp_path):
    model = Model("LSTM").eval()
    program, file = exported(model), tmp_path / "model.pt2"
    assert "import_packviz_ops_operator.ragged_rnn" in str(
        program.graph
    )  # torch names it in the error if it is not imported
    torch.export.save(program, file)
    for one in (program, torch.export.load(file)):
        for size, steps, lengths in BATCHES:
            x, n = torch.randn(size, steps, 3), torch.tensor(lengths)
            assert_close(flat(one.module()(x, n)), flat(model(x, n)))


@CXX
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_exported_program_runs_when_it_is_compiled_ahead_of_time(tmp_path):
    model = Model("LSTM", 2).eval()
    path = torch._inductor.aoti_compile_and_package(
        exported(model), package_path=str(tmp_path / "model.pt2")
    )
    run = torch._inductor.aoti_load_package(path)
    for size, steps, lengths in BATCHES:
        x, n = torch.randn(size, steps, 3), torch.tensor(lengths)
        assert_close(flat(run(x, n)), flat(model(x, n)))


def test_a_copy_in_the_making_has_no_attributes():
    """Dynamo of torch 2.7 sets the state of a new module through the class."""
    with pytest.raises(AttributeError):
        _ = pv.Ragged.__new__(pv.Ragged).weight_ih_l0


@pytest.mark.filterwarnings("ignore")
def test_onnx_says_what_to_use_instead_and_that_is_right():
    pytest.importorskip("onnxscript")
    model = Model("GRU").eval()
    # In torch 2.7, the new exporter does not say that it exports, so its own error names the
    # operator.
    with pytest.raises(
        Exception, match=r"export with dynamo=False, which packs and pads|No ONNX .*ragged_rnn"
    ):
        torch.onnx.export(model, EXAMPLE, io.BytesIO(), dynamo=True)
    file = io.BytesIO()
    names = {"input_names": ["x", "lengths"], "dynamic_axes": {"x": [0, 1], "lengths": [0]}}
    torch.onnx.export(model, EXAMPLE, file, dynamo=False, **names)
    session = pytest.importorskip("onnxruntime").InferenceSession(file.getvalue())
    x, n = torch.randn(3, 7, 3), torch.tensor([7, 1, 4])
    made = session.run(None, {"x": x.numpy(), "lengths": n.numpy()})
    assert torch.allclose(torch.tensor(made[0]), model(x, n)[0], atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_a_trace_keeps_no_width():
    model = Model("GRU", 2).eval()
    traced = torch.jit.trace(model, EXAMPLE)
    for lengths, steps in (([7, 3, 1], 9), ([2, 1, 1], 2)):
        x, n = torch.randn(3, steps, 3), torch.tensor(lengths)
        assert_close(flat(traced(x, n)), flat(model(x, n)))


@pytest.mark.filterwarnings("ignore")
def test_under_autocast_it_computes_in_the_dtype_of_its_weights():
    torch._dynamo.reset()
    model, (x, n) = Model("LSTM"), EXAMPLE
    x = x.clone().requires_grad_()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", torch.bfloat16):
        output, (h_n, c_n) = compiled(x, n)
    assert (output.dtype, h_n.dtype, c_n.dtype) == (torch.bfloat16, torch.float32, torch.float32)
    assert torch.autograd.grad(output.float().sum() + h_n.sum(), x)[0].isfinite().all()
    assert torch.allclose(output.float(), model(x, n)[0], atol=0.05)


def test_what_a_compiler_cannot_follow_is_refused(compiled):
    x, lengths, _ = batch(build(), [3, 2])
    hooked = build()
    hooked.register_forward_hook(lambda *given: None)
    with pytest.raises(RuntimeError, match="rnn has hooks or its own forward"):
        pv.Ragged(hooked)(x, lengths)
    with pytest.raises(TypeError, match="x must be a tensor, got ndarray"):
        pv.Ragged(build())(x.detach().numpy(), lengths)
