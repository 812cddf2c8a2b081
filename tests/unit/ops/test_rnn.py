"""Compares the RNNs that take lengths with torch's pack → RNN → pad, also when exported."""

import copy
import io
import pickle
import shutil
from functools import wraps
from itertools import product

import pytest
import torch
from habits import habit_since
from hypothesis import given
from hypothesis import strategies as st
from torch import distributed, nn
from torch.export import Dim
from torch.nn.utils import parametrizations, parametrize, prune
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz.ops import rnn as rnns

KINDS = {
    "LSTM": (nn.LSTM, {}),
    "projected": (nn.LSTM, {"proj_size": 2}),
    "GRU": (nn.GRU, {}),
    "RNN": (nn.RNN, {}),
    "relu": (nn.RNN, {"nonlinearity": "relu"}),
}
CASES = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(list(KINDS)),
        "num_layers": st.integers(1, 2),
        "bidirectional": st.booleans(),
        "batch_first": st.booleans(),
        "bias": st.booleans(),
        "dtype": st.sampled_from([torch.float32, torch.float64]),
    }
)
OPERATORS = torch.ops.packviz_ops_rnn
pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated:", "ignore::torch.jit.TracerWarning")


def build(kind="LSTM", **options):
    """Returns one of torch's RNNs, always with the same weights."""
    cell, more = KINDS[kind]
    torch.manual_seed(0)
    return cell(3, 4, **more, **options)


def ragged(rnn):
    """Returns a copy of the RNN that takes lengths."""
    return pv.Ragged(copy.deepcopy(rnn))


def batch(rnn, lengths, more=0, states=False):
    """Returns a batch with `more` time steps than the longest length, the lengths, and a state."""
    dtype = next(rnn.parameters()).dtype
    steps = max(lengths) + more
    shape = (len(lengths), steps) if rnn.batch_first else (steps, len(lengths))
    x = torch.randn(*shape, 3, dtype=dtype, requires_grad=True)
    if not states:
        return x, torch.tensor(lengths), None
    rows = rnn.num_layers * (1 + rnn.bidirectional)
    sizes = (rnn.proj_size or 4, 4) if rnn.mode == "LSTM" else (4,)
    shapes = [(rows, len(lengths), size) for size in sizes]
    hx = [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]
    return x, torch.tensor(lengths), tuple(hx) if len(hx) == 2 else hx[0]


def flat(result):
    output, states = result
    return [output, *states] if isinstance(states, tuple) else [output, states]


def by_torch(rnn, x, lengths, hx=None, total_length=None, padding_value=0.0):
    width = x.shape[1 if rnn.batch_first else 0] if total_length is None else total_length
    packed = pack_padded_sequence(x, lengths, rnn.batch_first, enforce_sorted=False)
    output, states = rnn(packed, hx)
    return pad_packed_sequence(output, rnn.batch_first, padding_value, width)[0], states


def assert_close(ours, theirs, tolerance=2e-5):
    if theirs[0].dtype == torch.float64:
        tolerance = 1e-10
    for result, wanted in zip(ours, theirs, strict=True):
        assert (result.shape, result.dtype) == (wanted.shape, wanted.dtype)
        torch.testing.assert_close(result, wanted, rtol=tolerance, atol=tolerance)


def assert_same_with_gradients(ours, theirs, our_leaves, leaves):
    assert_close(ours, theirs)
    weights = [torch.randn_like(result) for result in theirs]
    gradients = torch.autograd.grad(ours, our_leaves, weights)
    assert_close(gradients, torch.autograd.grad(theirs, leaves, weights), 1e-4)


# In Python, and the operator without a compiler.


@given(
    CASES,
    st.lists(st.integers(1, 6), min_size=1, max_size=5),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from([0.0, -1.5]),
    st.sampled_from(["in Python", "by a mask", "operator"]),
)
def test_values_and_gradients_are_torchs(case, lengths, more, states, padding_value, way):
    rnn = build(**case)
    x, n, hx = batch(rnn, lengths, more, states)
    module = ragged(rnn)
    width = x.shape[1 if rnn.batch_first else 0]
    if way == "operator":
        ours = module._compiled_forward(x, n, hx, width, padding_value)
    else:
        taken = pv.real_mask(n, width) if way == "by a mask" else lengths
        ours = module(x, hx, taken, padding_value=padding_value)
    theirs = by_torch(rnn, x, n, hx, padding_value=padding_value)
    inputs = [x] if hx is None else [x, *hx] if isinstance(hx, tuple) else [x, hx]
    leaves = [[*inputs, *r.parameters()] for r in (module, rnn)]
    assert_same_with_gradients(flat(ours), flat(theirs), *leaves)


def test_the_width_is_that_of_x_or_the_one_that_is_asked_for():
    rnn = build()
    x, n, _ = batch(rnn, [2, 4], more=2)
    for run in (
        ragged(rnn),
        lambda *how, total_length: ragged(rnn)._compiled_forward(x, n, None, total_length, 0.0),
    ):
        for total in (4, 5, 9):
            ours = run(x, None, n, total_length=total)
            assert_close(flat(ours), flat(by_torch(rnn, x, n, total_length=total)))
        with pytest.raises(
            ValueError, match="total_length is 3; give a whole number of at least 4"
        ):
            run(x, None, n, total_length=3)
    assert ragged(rnn)(x, lengths=[0, 0])[0].shape == (6, 2, 4)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("kind", KINDS)
def test_without_lengths_it_is_torchs_own(kind):
    rnn = build(kind)
    x, n, hx = batch(rnn, [3, 2], states=True)
    module = ragged(rnn)
    assert all(map(torch.equal, flat(module(x, hx)), flat(rnn(x, hx))))
    packed = pack_padded_sequence(x, n, enforce_sorted=False)
    assert torch.equal(module(packed)[0].data, rnn(packed)[0].data)
    for lengths in (n, [3, 2], n.numpy(), pv.Layout([3, 2]), pv.real_mask(n)):
        with pytest.raises(TypeError, match="pass lengths by name"):
            module(x, lengths)


@pytest.mark.parametrize("options", [{"total_length": 9}, {"padding_value": 7.0}])
def test_what_needs_lengths_is_refused_without_them(options):
    with pytest.raises(TypeError, match="need lengths"):
        pv.LSTM(3, 4)(torch.zeros(5, 2, 3), **options)


class Muted(pv.GRU):
    def forward(self, x, lengths):
        output, h_n = super().forward(x, lengths=lengths)
        return 0 * output, h_n


class Wrapped(pv.GRU):
    @wraps(pv.GRU.forward)
    def forward(self, *given, **options):
        return super().forward(*given, **options)


def test_a_forward_of_its_own_is_not_passed_by():
    muted = Muted(3, 4)
    x = torch.randn(5, 2, 3)
    assert not muted(x, [5, 3])[0].any()
    other = pv.GRU(3, 4)
    other.forward = muted.forward
    for rnn in (muted, other, Wrapped(3, 4)):
        for method in ("auto", "packed"):
            with pytest.raises(TypeError, match=r"a forward of its own.*call rnn itself"):
                pv.run(rnn, x, [5, 3], method=method)


def test_frozen_weights_and_second_derivatives():
    rnn = ragged(build("GRU"))
    rnn.weight_hh_l0.requires_grad_(False)
    x, n, _ = batch(rnn, [3, 2])
    random = torch.random.get_rng_state()
    rnn._compiled_forward(x.detach(), n, None, 3, 0.0)[0].sum().backward()
    assert rnn.weight_hh_l0.grad is None
    assert rnn.weight_ih_l0.grad is not None
    assert torch.equal(torch.random.get_rng_state(), random)
    with torch.no_grad():
        assert not rnn._compiled_forward(x, n, None, 3, 0.0)[0].requires_grad
    output = rnn._compiled_forward(x, n, None, 3, 0.0)[0]
    first, again = (torch.autograd.grad(output.sum(), x, retain_graph=True) for _ in range(2))
    assert_close(again, first)  # the recorded graph is gone, so the RNN runs again
    (gradient,) = torch.autograd.grad(output.sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="packviz_ops_rnn"):
        gradient.sum().backward()


# The module.


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_torchs_module(kind):
    options = {"num_layers": 2, "bidirectional": True}
    rnn = build(kind, **options)
    cell = getattr(pv, type(rnn).__name__)
    made = cell(3, 4, **KINDS[kind][1], **options)
    assert list(made.state_dict()) == list(rnn.state_dict())
    assert repr(made) == repr(rnn)
    made.load_state_dict(rnn.state_dict())
    rnn.load_state_dict(made.state_dict())
    x, n, _ = batch(rnn, [3, 2])
    wanted = flat(by_torch(rnn, x, n))
    buffer = io.BytesIO()
    torch.save(made, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    for module in (made, copy.deepcopy(made), pickle.loads(pickle.dumps(made)), loaded):
        assert_close(flat(module(x, lengths=n)), wanted)
    with pytest.raises(TypeError):
        cell(3, 4, hidden=3)


def test_ragged_changes_the_object_itself():
    rnn = build()
    model = nn.Sequential(rnn)
    assert pv.Ragged(rnn) is rnn
    assert type(model[0]) is pv.LSTM
    assert pv.Ragged(rnn) is rnn
    assert not isinstance(rnn, nn.LSTM)

    class Own(nn.GRU):
        pass

    class Forward(nn.GRU):
        def forward(self, x):
            return super().forward(x)

    patched = build("GRU")
    patched.forward = lambda x: x
    for wrong, message in (
        (nn.Linear(3, 4), "rnn is a Linear: give"),
        (Own(3, 4), r"derived from torch.nn.GRU: derive it from pv\.GRU"),
        (Forward(3, 4), "with its own forward"),
        (patched, "with its own forward"),
    ):
        with pytest.raises(TypeError, match=message):
            pv.Ragged(wrong)


class Half(nn.Module):
    def forward(self, weight):
        return weight / 2


CHANGES = {
    "prune": lambda rnn: prune.random_unstructured(rnn, "weight_hh_l0", 0.5),
    "old weight norm": lambda rnn: nn.utils.weight_norm(rnn, "weight_hh_l0"),
    "weight norm": lambda rnn: parametrizations.weight_norm(rnn, "weight_hh_l0"),
    "old spectral norm": lambda rnn: nn.utils.spectral_norm(rnn, "weight_hh_l0"),
    "parametrisation": lambda rnn: parametrize.register_parametrization(rnn, "bias_hh_l0", Half()),
    "double": lambda rnn: rnn.double(),
    "freeze": lambda rnn: rnn.weight_ih_l0.requires_grad_(False),
    "method": lambda rnn: setattr(rnn, "method", "packed"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("name", CHANGES)
def test_what_is_done_to_it_counts(name, before):
    plain = build(num_layers=2)
    other = copy.deepcopy(plain) if before else ragged(plain)
    for rnn in (plain, other):
        torch.manual_seed(1)
        CHANGES[name](rnn)
    other = pv.Ragged(other)
    x, n, _ = batch(plain, [3, 5, 1])
    leaves = [[p for p in rnn.parameters() if p.requires_grad] for rnn in (other, plain)]
    assert_same_with_gradients(flat(other(x, lengths=n)), flat(by_torch(plain, x, n)), *leaves)


def test_spectral_norm_agrees_once_it_has_converged():
    """While training, each look at a weight improves it. torch's RNN looks several times a call."""
    plain = build()
    other = ragged(plain)
    for rnn in (plain, other):
        torch.manual_seed(1)
        parametrizations.spectral_norm(rnn, "weight_hh_l0")
    x, n, _ = batch(plain, [3, 5, 1])
    for _ in range(100):
        results = flat(other(x, lengths=n)), flat(by_torch(plain, x, n))
    assert_same_with_gradients(*results, [*other.parameters()], [*plain.parameters()])


def test_hooks_run_once_and_replicas_use_their_own_weights():
    rnn = ragged(build())
    x, n, _ = batch(rnn, [3, 2])
    replica = rnn._replicate_for_data_parallel()
    other = nn.LSTM(3, 4)
    wanted = flat(by_torch(other, x, n))
    for name, weight in other.named_parameters():
        setattr(replica, name, weight * 1.0)
    assert_close(flat(replica(x, lengths=n)), wanted)
    called = torch.func.functional_call(rnn, dict(other.named_parameters()), (x, None, n))
    assert_close(flat(called), wanted)
    calls = []
    rnn.register_forward_pre_hook(lambda *_: calls.append("before"))
    rnn.register_forward_hook(lambda *_: calls.append("after"))
    rnn.register_full_backward_hook(lambda *_: calls.append("backward"))
    rnn(x, lengths=n)[0].sum().backward()
    assert calls == ["before", "after", "backward"]
    with pytest.raises(
        TypeError,
        match=r"has hooks, or all modules have, .* call rnn itself, as in rnn\(x, hx, lengths\)",
    ):
        pv.run(rnn, x, n)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("use_orig_params", [True, False, None])
def test_fsdp_trains_it(use_orig_params):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        plain = build()
        if use_orig_params is None:
            model = ragged(plain)
            fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        else:
            options = {"use_orig_params": use_orig_params, "device_id": torch.device("cpu")}
            model = FullyShardedDataParallel(ragged(plain), **options)
        x, n, _ = batch(plain, [3, 5, 1])
        for _ in range(
            1 if use_orig_params is None else 3
        ):  # on one rank, fully_shard stays at the old weights
            ours = flat(model(x, lengths=n))
            theirs = flat(by_torch(plain, x, n))
            assert_close(ours, theirs)
            for module, results in ((model, ours), (plain, theirs)):
                optimiser = torch.optim.SGD(module.parameters(), 0.1)
                optimiser.zero_grad()
                results[0].square().sum().backward()
                optimiser.step()
    finally:
        distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_quantisation_says_that_it_passes_by():
    model = nn.Sequential(pv.LSTM(3, 4))
    with pytest.warns(UserWarning, match=r"pv\.LSTM stays in floating point"):
        torch.ao.quantization.quantize_dynamic(model, {nn.LSTM}, dtype=torch.qint8)


# Compilers.


@pytest.mark.parametrize(
    ("kind", "states"),
    [("projected", True), ("GRU", True), pytest.param("RNN", False, marks=pytest.mark.slow)],
)
@pytest.mark.filterwarnings("ignore")
def test_opcheck(kind, states):
    rnn = build(kind, num_layers=2, bidirectional=True, batch_first=states)
    x, n, hx = batch(rnn, [4, 2], more=1, states=states)
    states = rnns.state_as_tuple(hx)
    settings = rnn.mode, True, rnn.batch_first, True, 2, 5, 0.0
    tensors = [*states, *rnn.parameters()]
    torch.library.opcheck(OPERATORS.forward.default, (x, n, tensors, len(states), *settings))
    detached = [tensor.detach() for tensor in tensors]
    taken = x.detach(), n, detached, len(states), *settings
    output, h_n, c_n, token = map(torch.randn_like, OPERATORS.forward(*taken))
    arguments = output, h_n, c_n if rnn.mode == "LSTM" else None, token, *taken
    torch.library.opcheck(OPERATORS.backward.default, arguments)


class Model(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.before = nn.Linear(3, 3)
        self.rnn = pv.Ragged(build(kind, **options))
        size = self.rnn.proj_size or 4
        self.after = nn.Linear(size * (1 + self.rnn.bidirectional), 2)

    def forward(self, x, lengths, hx=None):
        output, states = self.rnn(torch.tanh(self.before(x)), hx, lengths)
        return torch.relu(self.after(output)), states


class Reference(nn.Module):
    """The same with torch's own pack → RNN → pad."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, lengths, hx=None):
        x = torch.tanh(self.model.before(x))
        rnn = self.model.rnn
        output, states = by_torch(rnn, x, lengths, hx)
        return torch.relu(self.model.after(output)), states


BATCHES = ((7, [7, 1]), (3, [3, 1, 1, 2]), (9, [4, 4, 4]), (2, [1]))
# Inductor does not quote the folder of torch on the compiler's command line.
CXX = pytest.mark.skipif(
    not shutil.which("g++") or " " in torch.__file__, reason="needs a C++ compiler, and no blanks"
)


def inputs(rnn, steps=5, lengths=(5, 2, 3)):
    size = len(lengths)
    shape = (size, steps, 3) if rnn.batch_first else (steps, size, 3)
    return torch.randn(shape), torch.tensor(lengths)


def compiled_in_one_graph(rnn):
    return torch.compile(ragged(rnn), fullgraph=True, backend="aot_eager")


def dynamic_shapes(rnn):
    size = Dim("B", max=64)
    steps = Dim("T", max=64)
    return {
        "x": {0: size, 1: steps} if rnn.batch_first else {0: steps, 1: size},
        "lengths": {0: size},
    }


def exported(model):
    return torch.export.export(model, inputs(model.rnn), dynamic_shapes=dynamic_shapes(model.rnn))


def assert_right(run, model):
    """Compares a captured model with torch on batches that differ from the example in B and T."""
    batches = [*BATCHES]
    for _ in range(4):
        size, steps = torch.randint(1, 20, (2,)).tolist()
        batches.append((steps, torch.randint(1, steps + 1, (size,)).tolist()))
    for sizes in batches:
        x, n = inputs(model.rnn, *sizes)
        assert_close(run(x, n), flat(Reference(model)(x, n)))


@pytest.mark.parametrize("kind", ["GRU", pytest.param("projected", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "backend", ["aot_eager", pytest.param("inductor", marks=[CXX, pytest.mark.slow])]
)
@pytest.mark.filterwarnings("ignore")
@habit_since("2.8")
def test_a_training_step_compiles_in_one_graph(kind, backend):
    torch._dynamo.reset()
    model = Model(kind, num_layers=2)
    parametrizations.weight_norm(model.rnn, "weight_hh_l0")
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=backend)
    leaves = [*model.parameters()]
    for sizes in BATCHES:
        x, n = inputs(model.rnn, *sizes)
        results = flat(compiled(x, n))
        wanted = flat(Reference(model)(x, n))
        assert_same_with_gradients(results, wanted, leaves, leaves)
    mask = pv.real_mask(n, x.shape[0])
    assert_close(flat(compiled(x, mask)), wanted)
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@habit_since("2.8")
def test_a_training_step_without_lengths_compiles(kind):
    rnn = build(kind, num_layers=2, batch_first=True)
    x = torch.randn(3, 2, 3)
    compiled = compiled_in_one_graph(rnn)
    leaves = [[*module.parameters()] for module in (compiled, rnn)]
    assert_same_with_gradients(flat(compiled(x)), flat(rnn(x)), *leaves)
    if kind == "LSTM":  # torch's own cannot
        with pytest.raises(ValueError, match="lengths is empty"):
            compiled(torch.zeros(0, 2, 3))
        return
    assert compiled(torch.zeros(0, 2, 3))[0].shape == (0, 2, 4)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        assert compiled(x)[0].dtype == rnn(x)[0].dtype


@pytest.mark.filterwarnings("ignore")
@habit_since("2.8")
def test_dropout_between_layers_compiles():
    torch._dynamo.reset()
    rnn = build("GRU", num_layers=2, bidirectional=True)
    x, n, hx = batch(rnn, [4, 2, 3], states=True)
    for dropout in (1.0, 1e-9):
        rnn.dropout = dropout
        compiled = compiled_in_one_graph(rnn)
        results = flat(compiled(x, hx, n))
        wanted = flat(by_torch(rnn, x, n, hx))
        assert_same_with_gradients(results, wanted, [x, hx], [x, hx])
    rnn.dropout = 0.5
    compiled = compiled_in_one_graph(rnn)
    first, second = (compiled(x, hx, n)[0] for _ in range(2))
    assert not torch.equal(first, second)
    zeros = torch.cat([(first[t] == 0).sum()[None] for t in range(2)])
    assert not zeros.any()  # the last layer's output is not dropped


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_gives_the_dtypes_of_torch(kind, dtype):
    torch._dynamo.reset()
    rnn = build(kind)
    x, n, _ = batch(rnn, [4, 2])
    compiled = compiled_in_one_graph(rnn)
    with torch.autocast("cpu", torch.bfloat16):
        ours = flat(compiled(x.to(dtype), lengths=n))
        eager = flat(ragged(rnn)(x.to(dtype), lengths=n))
        theirs = flat(by_torch(rnn, x.to(dtype), n))
    assert_close(ours, theirs, 0.02)
    assert_close(eager, theirs)


@pytest.mark.filterwarnings("ignore")
def test_a_saved_program_runs_and_names_the_module_to_import(tmp_path, fork):
    model = Model("LSTM").eval()
    file = tmp_path / "model.pt2"
    torch.export.save(exported(model), file)
    loaded = torch.export.load(file).module()
    assert_right(lambda *given: flat(loaded(*given)), model)
    result = fork("import torch, sys; torch.export.load(sys.argv[1])", file)
    assert result.returncode
    assert "packviz_ops_rnn" in result.stderr + result.stdout


@CXX
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_program_runs_when_it_is_compiled_ahead_of_time(tmp_path):
    model = Model("LSTM", num_layers=2).eval()
    path = str(tmp_path / "model.pt2")
    torch._inductor.aoti_compile_and_package(exported(model), package_path=path)
    run = torch._inductor.aoti_load_package(path)
    assert_right(lambda *given: flat(run(*given)), model)


# ONNX and traces.


def session(model, **options):
    """Exports a model to ONNX, and returns a function that runs it."""
    runtime = pytest.importorskip("onnxruntime")
    file = io.BytesIO()
    torch.onnx.export(model, inputs(model.rnn), file, input_names=["x", "lengths"], **options)
    made = runtime.InferenceSession(file.getvalue())

    def run(x, n):
        return [torch.tensor(a) for a in made.run(None, {"x": x.numpy(), "lengths": n.numpy()})]

    return run


def by_trace(model):
    traced = torch.jit.trace(model, inputs(model.rnn))
    return lambda *given: flat(traced(*given))


def by_export(model):
    program = exported(model).module()
    return lambda *given: flat(program(*given))


def by_onnx(model):
    pytest.importorskip("onnxscript")
    return session(model, dynamo=True, dynamic_shapes=dynamic_shapes(model.rnn), verbose=False)


def by_legacy_onnx(model):
    return session(model, dynamo=False, dynamic_axes={"x": [0, 1], "lengths": [0]})


WAYS = {"trace": by_trace, "export": by_export, "ONNX": by_onnx, "legacy ONNX": by_legacy_onnx}
QUICK = {  # of each way, one; of the cheap ones, more
    ("LSTM", "trace"),
    ("GRU", "trace"),
    ("RNN", "trace"),
    ("GRU", "export"),
    ("LSTM", "ONNX"),
    ("RNN", "legacy ONNX"),
}


@pytest.mark.parametrize(
    ("kind", "way", "batch_first"),
    [
        pytest.param(*case, marks=[] if case[:2] in QUICK and case[2] else pytest.mark.slow)
        for case in product(KINDS, WAYS, (True, False))
    ],
)
@pytest.mark.filterwarnings("ignore")
@habit_since("2.8")
def test_b_and_t_stay_dynamic(kind, way, batch_first):
    options = {"num_layers": 2, "bidirectional": True, "bias": kind != "RNN"}
    model = Model(kind, batch_first=batch_first, **options).eval()
    if kind == "projected" and "ONNX" in way:
        with pytest.raises(Exception, match=r"proj|packviz_ops_rnn"):
            WAYS[way](model)
    else:
        assert_right(WAYS[way](model), model)


class Padding(Model):
    """A model that pads with a value of its own, to a width of its own, from a state of its own."""

    def forward(self, x, lengths):
        hx = torch.ones(1, x.shape[1], 4)
        how = {"total_length": x.shape[0] + 2, "padding_value": -1.5}
        return self.rnn(x, hx, lengths, **how)


@pytest.mark.filterwarnings("ignore")
@habit_since("2.8")
def test_onnx_takes_states_widths_and_padding_values(monkeypatch):
    pytest.importorskip("onnxscript")
    model = Padding("GRU").eval()
    how = {"dynamo": True, "dynamic_shapes": dynamic_shapes(model.rnn), "verbose": False}
    x, n = inputs(model.rnn, 6, [4, 2])
    wanted = by_torch(model.rnn, x, n, torch.ones(1, 2, 4), 8, -1.5)
    assert_close(session(model, **how)(x, n), flat(wanted))
    with pytest.raises(RuntimeError, match="legacy exporter ignores padding_value"):
        session(model, dynamo=False)
    monkeypatch.delattr(torch.onnx, "ops")
    with pytest.raises(RuntimeError, match=r"needs torch 2\.8 or later"):
        rnns._run_in_onnx(model.rnn, x, n, [], [], 6, 0.0)


@pytest.mark.skipif(not hasattr(torch.Tag, "cudagraph_unsafe"), reason="needs a newer torch")
@pytest.mark.parametrize("name", ["forward", "backward"])
def test_a_cuda_graph_leaves_the_operators_out(name):
    operator = getattr(torch.ops.packviz_ops_rnn, name).default
    assert torch.Tag.cudagraph_unsafe in operator.tags
