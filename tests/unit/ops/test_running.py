"""Compares `run`, by every method, with packing, the RNN and padding: values, gradients and errors."""  # noqa: E501

import copy
import math
import re
from functools import partial
from itertools import product

import gpus
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from specs import modules
from torch import nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

import packviz as pv
from packviz.ops import running
from packviz.ops.agreement import relative_difference
from packviz.ops.running import METHODS

CELLS = (nn.RNN, nn.GRU, nn.LSTM)
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}


def packed(rnn, x, lengths, hx=None, total_length=None, padding_value=0.0, batch_first=None):
    """Returns the expected result of `run`."""
    first = rnn.batch_first if batch_first is None else batch_first
    out, final = rnn(pack_padded_sequence(x, lengths, first, enforce_sorted=False), hx)
    return pad_packed_sequence(out, first, padding_value, total_length)[0], final


def flat(result):
    """Returns the output, h_n and, for an LSTM, c_n."""
    out, final = result
    return [out, *(final if isinstance(final, tuple) else (final,))]


def same(ours, theirs, tolerance=None):
    for sample, other in zip(ours, theirs, strict=True):
        if other is None or sample is None:
            assert sample is other
            continue
        assert (sample.shape, sample.dtype, sample.device) == (
            other.shape,
            other.dtype,
            other.device,
        )
        if other.numel():
            scale = 1 + other.detach().abs().max().item()
            assert (sample - other).abs().max().item() <= (
                tolerance or TOLERANCE[other.dtype]
            ) * scale


class Case:
    """An RNN and a batch for it."""

    def __init__(self, rnn, lengths, extra=0, padding=0.0, hx=False, seed=0, **options):
        self.rnn, self.lengths, self.options = rnn, lengths, options
        dtype, rows = rnn.weight_ih_l0.dtype, rnn.num_layers * (1 + rnn.bidirectional)
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(len(lengths), max(lengths) + extra, rnn.input_size, generator=generator).to(
            dtype
        )
        for row, n in zip(x, lengths, strict=True):
            row[n:] = padding
        self.first = options.get("batch_first", rnn.batch_first)
        self.x = (x if self.first else x.transpose(0, 1).contiguous()).requires_grad_()
        sizes = (rnn.proj_size or rnn.hidden_size, *[rnn.hidden_size] * (rnn.mode == "LSTM"))
        states = [
            torch.randn(rows, len(lengths), n, generator=generator).to(dtype).requires_grad_()
            for n in sizes
        ]
        self.hx = (tuple(states) if len(states) > 1 else states[0]) if hx else None
        self.inputs = [self.x, *(states if hx else ()), *rnn.parameters()]

    def expected(self):
        return packed(self.rnn, self.x, self.lengths, self.hx, **self.options)

    def run(self, method="auto"):
        return pv.run(self.rnn, self.x, self.lengths, self.hx, method=method, **self.options)

    def check(self, method):
        """Compares the results of a method with the expected ones."""
        same(flat(self.run(method)), flat(self.expected()))

    def check_with_gradients(self, result):
        """Compares results and their gradients with the expected ones."""
        expected = self.expected()
        same(flat(result), flat(expected))
        same(self.gradients(result, retain_graph=True), self.gradients(expected))

    def gradients(self, result, which=(True, True, True), **options):
        """Computes the gradients of the chosen results, each times fixed random numbers."""
        used = [t for t, use in zip(flat(result), which, strict=False) if use]
        generator = torch.Generator().manual_seed(1)
        weights = [torch.randn(t.shape, generator=generator).to(t.dtype) for t in used]
        wanted = [t for t in self.inputs if t.requires_grad]
        return torch.autograd.grad(used, wanted, weights, allow_unused=True, **options)

    def methods(self):
        longest = max(self.lengths)
        return [*METHODS, tuple(sorted({0, (longest + 1) // 2, longest}))]


@st.composite
def cases(draw, dtypes=(torch.float64, torch.float32)):
    rnn = draw(modules(dtypes))
    lengths = draw(st.lists(st.integers(1, 7), min_size=1, max_size=6))
    if draw(st.booleans()):
        lengths = [lengths[0]] * len(lengths)
    extra = draw(st.integers(0, 3))
    total_length = draw(
        st.sampled_from([None, max(lengths), max(lengths) + extra, max(lengths) + 4])
    )
    padding = draw(st.sampled_from([0.0, float("nan"), float("inf"), 1e30]))
    how = {"total_length": total_length, "padding_value": draw(st.sampled_from([0.0, -2.5]))}
    how |= {"batch_first": draw(st.booleans())} if draw(st.booleans()) else {}
    return Case(
        rnn, lengths, extra, padding, draw(st.booleans()), draw(st.integers(0, 1000)), **how
    )


def case(cell, dtype=torch.float32, lengths=(4, 7, 1, 4, 6), **options):
    torch.manual_seed(0)
    how = {name: options.pop(name) for name in ("extra", "padding", "hx") if name in options}
    return Case(cell(3, 4, **options).to(dtype), list(lengths), **how)


# Values and gradients.


@given(
    cases(),
    st.tuples(st.booleans(), st.booleans(), st.booleans()).filter(lambda which: any(which[:2])),
)
def test_every_method_gives_what_packing_gives(case, which):
    expected = case.expected()
    gradients = case.gradients(expected, which)
    for method in case.methods():
        result = case.run(method)
        same(flat(result), flat(expected))
        assert result[0].is_contiguous() == expected[0].is_contiguous()
        ours = case.gradients(result, which)
        same(ours, gradients)
        padding = ours[0] if case.first else ours[0].transpose(0, 1)
        for row, n in zip(padding, case.lengths, strict=True):
            assert not row[n:].any()


@given(cases(), st.lists(st.integers(0, 3), min_size=6, max_size=6))
def test_empty_sequences_have_padding_and_their_initial_state(case, shorter):
    """The other sequences have the results and gradients that torch returns for them alone."""
    case.lengths = n = [min(pair) for pair in zip(shorter, case.lengths, strict=False)]
    batch, empty = [b for b, k in enumerate(n) if k], [b for b, k in enumerate(n) if not k]
    states = [] if case.hx is None else [*case.hx] if isinstance(case.hx, tuple) else [case.hx]
    for state in states:
        state.data[:, empty] = torch.inf  # and 0 × ∞ is NaN
    alone = tuple(s[:, batch] for s in states)
    alone = None if case.hx is None else alone if isinstance(case.hx, tuple) else alone[0]
    value, width = case.options["padding_value"], case.options["total_length"] or max(n)
    rows = (case.x if case.first else case.x.transpose(0, 1))[batch]
    expected = (
        packed(case.rnn, rows, [n[b] for b in batch], alone, width, value, True) if batch else None
    )
    for method in METHODS:
        result = case.run(method)
        out, *finals = flat(result)
        out = out if case.first else out.transpose(0, 1)
        assert out.shape[1] == width
        assert (out[empty] == value).all()
        for final, state in zip(
            finals, states or [torch.zeros_like(t) for t in finals], strict=True
        ):
            assert torch.equal(final[:, empty], state[:, empty])
        if expected is None:
            assert not any(
                t.any() for t in case.gradients(result)[-len(list(case.rnn.parameters())) :]
            )
            continue
        kept = [out[batch], *(final[:, batch] for final in finals)]
        same(kept, flat(expected))
        numbers = [torch.ones_like(t).cumsum(0).cos() for t in kept]
        wanted = torch.autograd.grad(flat(expected), case.inputs, numbers, retain_graph=True)
        same(torch.autograd.grad(kept, case.inputs, numbers), wanted)


def test_a_batch_of_no_time_steps():
    rnn, x = nn.LSTM(3, 4, batch_first=True), torch.zeros(2, 0, 3, requires_grad=True)
    out, (h_n, _) = pv.run(rnn, x, [0, 0], total_length=3, padding_value=2.0)
    assert (out.tolist(), h_n.any()) == ([[[2.0] * 4] * 3] * 2, False)
    assert not torch.autograd.grad(out.sum(), rnn.weight_ih_l0)[0].any()
    assert pv.run(rnn, x, [0, 0])[0].shape == (2, 0, 4)
    assert pv.plan(rnn, [0, 0]).method == pv.plan(rnn, [1, 1]).method


@given(cases(), st.booleans())
def test_packed_in_packed_out(case, enforce_sorted):
    lengths = sorted(case.lengths, reverse=True) if enforce_sorted else case.lengths
    x = pack_padded_sequence(case.x.nan_to_num(0, 0, 0), lengths, case.first, enforce_sorted)
    expected, state = case.rnn(x, case.hx)
    gradients = case.gradients((expected.data, state), retain_graph=True)
    for method in METHODS:
        result, final = pv.run(case.rnn, x, hx=case.hx, method=method)
        assert all(
            a is b or torch.equal(a, b) for a, b in zip(result[1:], expected[1:], strict=True)
        )
        same(flat((result.data, final)), flat((expected.data, state)))
        same(case.gradients((result.data, final), retain_graph=True), gradients)


def test_what_a_packed_batch_comes_without():
    x = pack_padded_sequence(X, [6, 2])
    for more in (
        {"lengths": [6, 2]},
        {"batch_first": False},
        {"total_length": 6},
        {"padding_value": 1.0},
    ):
        with pytest.raises(
            TypeError, match="x is packed, so it has its own lengths and stays packed"
        ):
            pv.run(LSTM, x, **more)
    by_hand = x._replace(batch_sizes=torch.tensor([1, 2]))
    with pytest.raises(RuntimeError) as theirs:
        LSTM(by_hand)
    with pytest.raises(RuntimeError, match=re.escape(str(theirs.value))):
        pv.run(LSTM, by_hand)


@pytest.mark.parametrize("lengths", [(1, 1, 1), (1, 3, 2)])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}])
@pytest.mark.parametrize("cell", [nn.RNN, nn.GRU, nn.LSTM, partial(nn.LSTM, proj_size=2)])
def test_there_is_no_gradient_where_torch_has_none(cell, options, lengths):
    """This holds for all results and inputs. After one step, for example, c_n does not depend on
    the projection.
    """
    sample = case(cell, torch.float64, lengths, hx=True, **options)
    kinds = [
        [sample.x],
        [*(sample.hx if isinstance(sample.hx, tuple) else [sample.hx])],
        [*sample.rnn.parameters()],
    ]
    results = len(flat(sample.expected()))
    for wanted in (kinds, kinds[:2], kinds[2:]):
        for t in sample.inputs:
            t.requires_grad_(any(t is other for kind in wanted for other in kind))
        for which in filter(any, product((False, True), repeat=results)):
            expected = sample.gradients(sample.expected(), which)
            for method in METHODS:
                same(sample.gradients(sample.run(method), which), expected)


@given(cases(dtypes=(torch.float32,)))
def test_without_gradients_it_is_the_same(case):
    with torch.no_grad():
        expected = flat(case.expected())
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            for method in case.methods():
                same(flat(case.run(method)), expected)
    for method in case.methods():  # caches made in inference mode must work outside of it
        case.gradients(case.run(method))


FUSED = (
    case(nn.LSTM, bidirectional=True, num_layers=2, hx=True),
    case(nn.LSTM, lengths=(5, 5, 5), hx=True),
)  # float32
TWICE = [(sample, 1e-3) for sample in FUSED] + [
    (case(cell, torch.float64, lengths, hx=True, **options), 1e-10)
    for cell in (
        nn.RNN,
        partial(nn.RNN, nonlinearity="relu"),
        nn.GRU,
        nn.LSTM,
        partial(nn.LSTM, proj_size=2),
    )
    for lengths, options in (
        ((2, 3, 1), {}),
        ((2, 2), {"bidirectional": True, "num_layers": 2, "bias": False}),
    )
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("sample", "tolerance"), TWICE)
def test_second_derivatives_are_those_of_torchs_packed_rnn(sample, tolerance, method):
    """They are differences between torch's own numbers and these, because oneDNN's LSTM has no
    double precision.
    """

    def second(result):
        gradients = sample.gradients(result, create_graph=True)
        return torch.autograd.grad(sum((g * g).sum() for g in gradients), sample.inputs)

    same(second(sample.run(method)), second(sample.expected()), tolerance)


# Extreme weights, bfloat16, batched gradients.

HUGE = st.sampled_from([1.0, -1.0, 1e4, -1e4, -4e4, 1e5, 1e13, 1e30, -1e30, math.inf, math.nan])


@given(
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    st.fixed_dictionaries(dict.fromkeys(("weight_ih", "weight_hh", "bias_ih"), HUGE)),
    st.sampled_from([1.0, 1e4]),
    st.integers(1, 2),
    st.booleans(),
    st.integers(0, 1000),
)
@example(torch.float32, {"bias_ih": -4e4}, 1.0, 1, False, 0)
@example(torch.float32, {"weight_hh": math.nan}, 1.0, 1, False, 0)
def test_any_weights_give_the_same_states(dtype, factors, largest_input, layers, both, seed):
    """A state must stay frozen, however large the weights of the gates are."""
    if dtype == torch.bfloat16:  # large weights of the state would amplify rounding at every step
        factors = factors | {"weight_hh": 1.0}
    torch.manual_seed(seed)
    lstm = nn.LSTM(3, 4, layers, bidirectional=both).to(dtype)
    with torch.no_grad():
        for name, weight in lstm.named_parameters():
            factor = factors.get(name.partition("_l")[0], 1.0)
            if factor == -4e4:
                weight[4:8] = factor  # only the forget gate
            elif math.isfinite(factor):
                weight *= factor
            else:
                weight[5] = factor
    batch = Case(lstm, [9, 2, 1, 7, 5], hx=True, seed=seed)
    batch.x = (batch.x * largest_input).detach()
    tolerance = {torch.bfloat16: 5e-2}.get(dtype)
    for training in (False, True):
        with torch.set_grad_enabled(training):
            expected = [t.nan_to_num(nan=7.0) for t in flat(batch.expected())]
            for method in batch.methods():
                result = [t.nan_to_num(nan=7.0) for t in flat(batch.run(method))]
                same(result, expected, tolerance)


@pytest.mark.parametrize("bias", [-4e4, 4e4, 1e9])
def test_gradients_with_a_large_forget_bias(bias):
    batch = case(nn.LSTM, hx=True)
    with torch.no_grad():
        batch.rnn.bias_hh_l0[4:8] = bias
    expected = batch.gradients(batch.expected())
    for method in batch.methods():
        same(batch.gradients(batch.run(method)), expected)


@given(
    st.integers(1, 3), st.booleans(), st.lists(st.integers(1, 9), min_size=1), st.integers(0, 99)
)
def test_bfloat16_is_as_near_to_double_precision_as_torch(layers, both, lengths, seed):
    torch.manual_seed(seed)
    batch = Case(nn.LSTM(3, 8, layers, bidirectional=both).bfloat16(), lengths, seed=seed)
    exact = Case(copy.deepcopy(batch.rnn).double(), lengths, seed=seed)
    exact.x.data = batch.x.detach().double()
    right = [*flat(exact.expected()), *exact.gradients(exact.expected())]

    def distance(result):
        pairs = zip([*flat(result), *batch.gradients(result)], right, strict=True)
        return max(relative_difference(ours, theirs) for ours, theirs in pairs)

    allowed = 0.1 + 2 * distance(batch.expected())
    for method in batch.methods():
        result = batch.run(method)
        same(flat(result), flat(batch.expected()), 5e-2)
        assert distance(result) <= allowed


@given(cases(dtypes=(torch.float64, torch.float32)))
def test_batched_gradients(case):
    """`jacobian(vectorize=True)` passes many gradients at once."""

    def gradients(result, batched):
        out, *_ = flat(result)
        rows = torch.stack(
            [torch.ones_like(out), torch.linspace(0, 1, out.numel()).to(out).view_as(out)]
        )
        if batched:
            return torch.autograd.grad(
                out, case.inputs, rows, allow_unused=True, is_grads_batched=True
            )
        each = [torch.autograd.grad(out, case.inputs, row, True, allow_unused=True) for row in rows]
        return [None if g[0] is None else torch.stack(g) for g in zip(*each, strict=True)]

    expected = gradients(case.expected(), False)
    for method in case.methods():
        same(gradients(case.run(method), True), expected)


# Dropout, autocast.


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cell", CELLS)
def test_dropout_between_layers(cell, method):
    batch = case(cell, num_layers=2, dropout=1.0)
    batch.check(method)  # everything is dropped in both
    batch.rnn.dropout = 0.5
    torch.manual_seed(0)
    sample, other = batch.run(method)[0], batch.run(method)[0]
    assert not torch.equal(sample, other)
    torch.manual_seed(0)
    with torch.no_grad():
        same(batch.run(method)[0], sample)  # a reentrant checkpoint runs both
    batch.rnn.eval()
    batch.check(method)


@pytest.mark.parametrize("method", METHODS)
def test_dropout_keeps_the_mean(method):
    """In a linear RNN of ones, the output of a cell is the mean of its dropout mask."""
    rnn = nn.RNN(1, 64, 2, nonlinearity="relu", bias=False, dropout=0.5, batch_first=True)
    with torch.no_grad():
        for name, parameter in rnn.named_parameters():
            parameter.fill_(0.0 if "hh" in name else 1 / parameter.shape[1])
    torch.manual_seed(0)
    out, _ = pv.run(rnn, torch.ones(40, 6, 1), [6, 3] * 20, method=method)
    real = torch.cat([out[0::2].flatten(), out[1::2, :3].flatten()])
    assert real.mean().item() == pytest.approx(1, abs=0.03)
    assert not out[1::2, 3:].any()


# Kinds of weights and modules.


@pytest.mark.parametrize("method", METHODS)
def test_parametrised_weights(method):
    batch = case(nn.LSTM, num_layers=2)
    parametrizations.weight_norm(batch.rnn, "weight_hh_l0")
    batch.inputs = [batch.x, *batch.rnn.parameters()]
    batch.check_with_gradients(batch.run(method))


class Model(nn.Module):
    """A module that calls `run`."""

    def __init__(self, rnn, method):
        super().__init__()
        self.rnn = rnn
        self.method = method

    def forward(self, x, lengths):
        return pv.run(self.rnn, x, lengths, method=self.method)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cell", CELLS)
def test_other_weights_for_one_call(cell, method):
    batch = case(cell)
    other = case(cell)
    nn.init.normal_(other.rnn.weight_hh_l0)
    weights = {f"rnn.{name}": weight for name, weight in other.rnn.named_parameters()}
    model = Model(batch.rnn, method)
    result = torch.func.functional_call(model, weights, (other.x, other.lengths))
    other.check_with_gradients(result)
    batch.check(method)


class Doubled(nn.GRU):
    def forward(self, x, hx=None):
        out, final = super().forward(x, hx)
        return (
            out._replace(data=2 * out.data) if isinstance(out, PackedSequence) else 2 * out
        ), final


@pytest.mark.filterwarnings("ignore")  # torch's own warnings, from tracing
@pytest.mark.parametrize("options", [{}, {"batch_first": True}])
@pytest.mark.parametrize("lengths", [(4, 7, 1, 4, 6), (5, 5, 5)])
def test_hooks_and_subclasses_are_called(lengths, options, monkeypatch):
    """The dimensions have the caller's order, also for a module whose weights are not in one piece
    on a GPU.
    """
    for cell in (nn.GRU, Doubled):
        batch, seen = Case(cell(3, 4), lengths, **options), []
        handle = batch.rnn.register_forward_hook(
            lambda module, given, result, seen=seen: seen.append(1)
        )
        for method in METHODS:
            batch.check(method)
        assert len(seen) == 2 * len(METHODS)
        handle.remove()
    monkeypatch.setattr(running, "_calls_kernel_directly", lambda *given: False)
    batch = Case(nn.GRU(3, 4).requires_grad_(False), lengths, **options)
    with torch.no_grad():
        for method in ("packed", "frozen"):
            batch.check(method)
        traced = torch.jit.trace(
            lambda x: pv.run(batch.rnn, x, batch.lengths, **options)[0], batch.x, check_trace=False
        )
        same([traced(batch.x)], flat(batch.expected())[:1])


@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor"
)  # dynamo's own warning, after any graph break
def test_compiled():
    batch = case(nn.LSTM)

    def model(x):
        return pv.run(batch.rnn, x * 2, batch.lengths)[0] + 1

    result = torch.compile(model, backend="eager")(batch.x)
    same([result], [packed(batch.rnn, batch.x * 2, batch.lengths)[0] + 1])
    same(
        torch.autograd.grad(result.sum(), batch.inputs),
        torch.autograd.grad(model(batch.x).sum(), batch.inputs),
    )
    torch.compiler.reset()


@pytest.mark.parametrize("number", range(len(METHODS) + 1))
@given(cases())
@settings(max_examples=max(settings().max_examples // 2, 5))
def test_results_may_be_changed_in_place(number, batch):
    changed = []
    for result in (batch.run(batch.methods()[number]), batch.expected()):
        for tensor in flat(result):
            tensor.mul_(2)
        result[0].masked_fill_(result[0] > 0.5, 0).relu_()
        changed.append([*flat(result), *batch.gradients(result)])
    same(*changed)


@pytest.mark.parametrize("method", METHODS)
def test_autocast_is_left_to_torch(method):
    batch = case(nn.LSTM, num_layers=2)
    with torch.autocast("cpu", torch.bfloat16):
        assert all(map(torch.equal, flat(batch.run(method)), flat(batch.expected())))
        assert pv.plan(batch.rnn, batch.lengths).method == "packed"


# The plan.


def test_an_rnn_is_split_from_501_real_cells_on():
    plans = [pv.plan(pv.Spec("RNN", 2, 3), [n, 249], training=False) for n in (251, 252)]
    assert [plan.method for plan in plans] == ["packed", "split"]


def test_a_plan_in_words():
    lengths = range(128, 0, -1)
    stairs = pv.plan(pv.Spec("LSTM", 128, 256), lengths)
    calls = len(stairs.cuts) - 1
    assert f"{stairs}" == f"auto takes: staircase, {calls} rectangles\nreason: {stairs.reason}"
    assert pv.draw.Stairs(lengths, stairs.cuts).wasted
    hooked = nn.GRU(2, 3)
    hooked.register_forward_hook(lambda *given: None)
    assert "auto takes: packed\nreason: only this method calls" in repr(pv.plan(hooked, [3, 2]))
    with pytest.raises(TypeError, match=r"rnn is a Linear: give an nn\.RNN, nn\.GRU or"):
        pv.plan(nn.Linear(1, 1), [1])
    with pytest.raises(ValueError, match=r"lengths\[1\] is -1"):
        pv.plan(LSTM, [1, -1])


@given(cases(), st.booleans())
def test_run_takes_what_plan_names(case, training):
    plan = pv.plan(case.rnn, case.lengths, training=training)
    method = plan.cuts if plan.method == "staircase" else plan.method
    with torch.set_grad_enabled(training):
        assert all(map(torch.equal, flat(case.run()), flat(case.run(method))))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("lengths", [[9, 8, 8], [9] * 3, range(64, 0, -1)])
@pytest.mark.parametrize("cell", CELLS)
def test_a_plan_for_another_device(cell, lengths, training, monkeypatch):
    """The plan equals that of the same module on that device. torch's meta device replaces a GPU."""  # noqa: E501
    gpus.stand_in(monkeypatch)
    here, there = (cell(3, 16, device=device) for device in ("cpu", "meta"))
    on_cpu, on_gpu = (pv.plan(rnn, lengths, training=training) for rnn in (here, there))
    for rnn in (here, there, pv.Spec.of(here)):
        assert pv.plan(rnn, lengths, training=training, device="cpu") == on_cpu
        assert pv.plan(rnn, lengths, training=training, device=torch.device("cuda:1")) == on_gpu
    assert on_gpu.method == ("packed" if len(set(lengths)) > 1 else "frozen")


def test_a_plan_for_a_device_that_only_torchs_kernels_support():
    for rnn in (LSTM, pv.Spec("LSTM", 3, 4)):
        assert pv.plan(rnn, [5, 5], device="mps").method == "packed"
        assert (
            "no other method supports the device mps" in pv.plan(rnn, [5, 2], device="mps").reason
        )
    with pytest.raises(ValueError, match="device is 'gpu'; give a device that torch knows"):
        pv.plan(LSTM, [5, 2], device="gpu")


# Errors.

LSTM, GRU = nn.LSTM(3, 4), nn.GRU(3, 4, batch_first=True)
UNFIT = nn.LSTM(3, 4)
UNFIT.weight_ih_l0 = nn.Parameter(torch.zeros(16, 2))
X = torch.zeros(6, 2, 3)


def torchs_error(call):
    try:
        call()
    except ValueError as error:
        return str(error)


TWO, STATE = (torch.zeros(1, 3, 4),) * 2, torch.zeros(1, 2, 4)
REFUSED = [
    ((nn.Linear(3, 4), X, [6, 2]), TypeError, "rnn is a Linear: give an nn.RNN, nn.GRU or"),
    ((UNFIT, X, [6, 2]), RuntimeError, "mat1 and mat2 shapes cannot be multiplied"),
    ((LSTM, X.numpy(), [6, 2]), TypeError, "x must be a tensor, got ndarray"),
    ((LSTM, X[0], [6, 2]), ValueError, "x must be (T, B, I), got shape (2, 3)"),
    (
        (LSTM, X, [6, 7]),
        ValueError,
        "lengths[1] is 7: x of shape (6, 2, 3), read as (T, B, I), has T = 6; give a length",
    ),
    ((LSTM, X, torch.tensor([-1, 2])), ValueError, "lengths[0] is -1"),
    ((LSTM, X, [6]), ValueError, "lengths has B = 1, but x of shape"),
    ((GRU, X, [2, 2]), ValueError, "B = 6; did you mean batch_first=False?"),
    ((LSTM, X, []), ValueError, "lengths is empty"),
    ((LSTM, X), ValueError, "lengths is None; list the number"),
    ((LSTM, X, [6, 2.5]), ValueError, "lengths[1] is 2.5: not a whole number"),
    ((LSTM, X[..., :2], [6, 2]), ValueError, "has I = 2, but rnn.input_size is 3"),
    ((LSTM, X.double(), [6, 2]), ValueError, torchs_error(lambda: LSTM(X.double()))),
    ((LSTM, X, [6, 2], X[:1]), ValueError, "hx must be a pair, h_0 of shape (1, 2, 4)"),
    ((LSTM, X, [6, 2], TWO), ValueError, "got (1, 3, 4) and (1, 3, 4)"),
    (
        (nn.GRU(3, 4), X, [6, 2], torch.zeros(1, 2, 5)),
        ValueError,
        "hx must be h_0 of shape (1, 2, 4); got",
    ),
    ((nn.GRU(3, 4), X, [6, 2], (X, X)), ValueError, "hx must be h_0 of shape (1, 2, 4); got"),
    (
        (LSTM, X, [6, 6], (STATE, STATE.to("meta"))),
        ValueError,
        "hx is on meta, but x is on cpu; create both on one device",
    ),
    (
        (LSTM, X, [6, 2], (STATE, STATE.double())),
        ValueError,
        "hx is torch.float64, but x is torch.float32",
    ),
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("given_here", "error", "message"), REFUSED)
def test_what_does_not_fit(given_here, error, message, method):
    with pytest.raises(error, match=re.escape(message)):
        pv.run(*given_here, method=method)


def test_methods_cuts_and_numbers_that_are_refused():
    for wrong in ("pack", (0, 3.5, 6), 3):
        message = f"method is {wrong!r}; choose one of 'auto', 'packed', 'frozen', 'split', 'staircase', or give the cuts"  # noqa: E501
        with pytest.raises(ValueError, match=re.escape(message)):
            pv.run(LSTM, X, [6, 2], method=wrong)
    with pytest.raises(
        ValueError, match=re.escape("staircase are (0, 3); give time steps that rise from 0 to 6")
    ):
        pv.run(LSTM, X, [6, 6], method=(0, 3))
    for method in METHODS:
        for lengths in ([6, 2], [6, 6]):
            with pytest.raises(TypeError, match="padding_value must be a number, got None"):
                pv.run(LSTM, X, lengths, padding_value=None, method=method)
            for wrong in (True, 8.0, 3):
                with pytest.raises(
                    ValueError, match=f"total_length is {wrong}; give a whole number of at least 6"
                ):
                    pv.run(LSTM, X, lengths, total_length=wrong, method=method)
            assert len(pv.run(LSTM, X, lengths, total_length=np.int64(8), method=method)[0]) == 8


# What the caller does before and after.


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("lengths", [(4, 7, 1, 4, 6), (5, 5, 5, 5, 5)])
def test_states_in_any_strides(cell, lengths, method):
    """The states are an expanded tensor, a transposed one, and half of one."""
    batch = case(cell, lengths=lengths)
    states = (
        torch.randn(1, 1, 4).expand(1, 5, 4),
        torch.randn(5, 1, 4).transpose(0, 1),
        torch.randn(1, 5, 8).chunk(2, 2)[1],
    )
    for state in states:
        leaf = state.detach().requires_grad_()
        batch.hx = (leaf, leaf * 0.5) if cell is nn.LSTM else leaf
        batch.inputs = [batch.x, leaf, *batch.rnn.parameters()]
        batch.check_with_gradients(batch.run(method))
        if cell is nn.LSTM:  # torch accepts a list, too
            batch.hx = list(batch.hx)
            batch.check(method)


def test_relu_may_grow_in_the_padding():
    rnn = nn.RNN(1, 1, nonlinearity="relu", bias=False)
    with torch.no_grad():
        rnn.weight_hh_l0.fill_(2), rnn.weight_ih_l0.fill_(1)
    batch = Case(rnn, [5, 200])
    batch.x = torch.zeros(200, 2, 1)
    batch.x[0, 0], batch.x[0, 1], batch.x[1:, 0] = 1, -1, 1
    batch.inputs = [*rnn.parameters()]
    expected = batch.gradients(batch.expected())
    assert all(t.isfinite().all() for t in expected)
    for method in batch.methods():
        same(batch.gradients(batch.run(method)), expected)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cell", CELLS)
def test_under_a_checkpoint(cell, method):
    batch = case(cell)
    once = checkpoint(lambda x: batch.run(method)[0] * x.sum(), batch.x, use_reentrant=False)
    twice = batch.expected()[0] * batch.x.sum()
    same(*([torch.autograd.grad(out.sum(), batch.inputs) for out in (once, twice)]))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("lengths", [(4, 7, 1), (5, 5), (6,)])
def test_a_buffer_of_states_may_be_overwritten(lengths, cell, method):
    batch = case(cell, lengths=lengths, hx=True)
    buffers = [h.detach().clone() for h in (batch.hx if cell is nn.LSTM else [batch.hx])]
    batch.hx = tuple(buffers) if cell is nn.LSTM else buffers[0]
    batch.inputs = [batch.x, *batch.rnn.parameters()]
    expected = batch.gradients(batch.expected())
    result = batch.run(method)
    for buffer in buffers:
        buffer.zero_()
    same(batch.gradients(result), expected)


@pytest.mark.parametrize("method", METHODS)
def test_defaults_of_the_process(method):
    """torch's default device has no effect, and the random numbers stay the same."""
    batch = case(nn.LSTM)
    expected, state = flat(batch.expected()), torch.get_rng_state()
    for lengths in (batch.lengths, np.array(batch.lengths)):
        with torch.device("meta"):
            result = flat(pv.run(batch.rnn, batch.x, lengths, method=method))
        same(result, expected)
    assert torch.equal(torch.get_rng_state(), state)


def test_torch_has_nothing_to_say(fork):
    """torch warns once in a process that a padded LSTM with projections is slow; `run` must not
    show this.
    """
    code = "import warnings; warnings.simplefilter('error'); import torch, packviz as pv;"
    code += "from packviz.ops.running import METHODS; rnn = torch.nn.LSTM(2, 3, proj_size=1);"
    code += "x, state = torch.randn(4, 2, 2), torch.random.get_rng_state();"
    code += "[pv.run(rnn, x, n, method=method) for n in ([4, 4], [4, 2]) for method in METHODS];"
    code += "assert torch.equal(torch.random.get_rng_state(), state)"
    done = fork(code)
    assert (done.returncode, done.stderr) == (0, "")


def test_indices_are_kept_for_one_stream(monkeypatch):
    grids = []
    monkeypatch.setattr(running, "_run_layers", lambda batch, grid, by_step: grids.append(grid))
    for stream in (1, 2, 1):
        monkeypatch.setattr(running, "current_stream", lambda device, stream=stream: stream)
        pv.run(nn.GRU(3, 4), torch.randn(5, 3, 3), [5, 3, 2], method="split")
    first, other, again = grids
    assert first is again
    assert first is not other


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("lengths", [[5, 3], [5, 5]])
def test_a_batch_from_inference_mode_trains(cell, lengths):
    batch = case(cell, lengths=lengths)
    with torch.inference_mode():
        batch.x = batch.x.clone()
    batch.inputs = [*batch.rnn.parameters()]
    same(batch.gradients(batch.run()), batch.gradients(batch.expected()), 1e-5)


@pytest.mark.parametrize("width", [3, 9])
def test_a_mask_of_another_width_is_refused_everywhere(width):
    x = torch.randn(2, 6, 3)
    mask = pv.real_mask([3, 1], width)
    gru = pv.GRU(3, 4, batch_first=True)
    for call in (
        lambda: pv.run(gru, x, mask),
        lambda: gru(x, lengths=mask),
        lambda: pv.pack_padded_sequence(x, mask, True),
        lambda: pv.masked_loss(x, mask, batch_first=True),
        lambda: pv.align(x, mask, batch_first=True),
        lambda: pv.last_output(x, mask, True),
        lambda: pv.diagnose(x, mask, True),
        lambda: pv.compare(gru, x, mask),
        lambda: pv.compare(nn.Linear(3, 3), x, mask, batch_first=True),
    ):
        with pytest.raises(ValueError, match=rf"mask has shape \(2, {width}\).*T = 6"):
            call()


def test_nan_at_a_real_cell_gives_the_gradients_of_torch():
    rnn = nn.RNN(2, 2, nonlinearity="relu", batch_first=True)
    x = torch.randn(2, 5, 2)
    x[1, 0, 0] = torch.nan
    gradients = []
    for method in ("packed", "split"):
        total = pv.run(rnn, x, [5, 3], method=method)[0].sum()
        gradients.append(torch.autograd.grad(total, [*rnn.parameters()]))
    for theirs, ours in zip(*gradients, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5, equal_nan=True)
