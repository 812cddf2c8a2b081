"""`run`: whatever the method, it is what packing, the RNN and padding give: values, gradients, errors."""

import copy
import re
import subprocess
import sys
from functools import partial
from itertools import product

import gpus
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

import packviz as pv
from packviz.ops import running
from packviz.ops.running import METHODS, Staircase

CELLS = (nn.RNN, nn.GRU, nn.LSTM)
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}


def packed(rnn, x, lengths, hx=None, total_length=None, padding_value=0.0):
    """What `run` must give."""
    out, final = rnn(pack_padded_sequence(x, lengths, rnn.batch_first, enforce_sorted=False), hx)
    return pad_packed_sequence(out, rnn.batch_first, padding_value, total_length)[0], final


def flat(result):
    """Output, h_n and, of an LSTM, c_n."""
    out, final = result
    return [out, *(final if isinstance(final, tuple) else (final,))]


def same(ours, theirs, tolerance=None):
    for one, other in zip(ours, theirs, strict=True):
        if other is None or one is None:
            assert one is other
            continue
        assert (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)
        if other.numel():
            scale = 1 + other.detach().abs().max().item()
            assert (one - other).abs().max().item() <= (tolerance or TOLERANCE[other.dtype]) * scale


class Case:
    """An RNN and a batch for it."""

    def __init__(self, rnn, lengths, extra=0, padding=0.0, hx=False, seed=0, **options):
        self.rnn, self.lengths, self.options = rnn, lengths, options
        dtype, rows = rnn.weight_ih_l0.dtype, rnn.num_layers * (1 + rnn.bidirectional)
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(len(lengths), max(lengths) + extra, rnn.input_size, generator=generator).to(dtype)
        for row, n in zip(x, lengths, strict=True):
            row[n:] = padding
        self.x = (x if rnn.batch_first else x.transpose(0, 1).contiguous()).requires_grad_()
        sizes = (rnn.proj_size or rnn.hidden_size, *[rnn.hidden_size] * (rnn.mode == "LSTM"))
        states = [torch.randn(rows, len(lengths), n, generator=generator).to(dtype).requires_grad_() for n in sizes]
        self.hx = (tuple(states) if len(states) > 1 else states[0]) if hx else None
        self.inputs = [self.x, *(states if hx else ()), *rnn.parameters()]

    def expected(self):
        return packed(self.rnn, self.x, self.lengths, self.hx, **self.options)

    def run(self, method="auto"):
        return pv.run(self.rnn, self.x, self.lengths, self.hx, method=method, **self.options)

    def gradients(self, result, which=(True, True, True), **options):
        """Of the given ones of the results, each times fixed random numbers."""
        used = [t for t, use in zip(flat(result), which, strict=False) if use]
        generator = torch.Generator().manual_seed(1)
        weights = [torch.randn(t.shape, generator=generator).to(t.dtype) for t in used]
        wanted = [t for t in self.inputs if t.requires_grad]
        return torch.autograd.grad(used, wanted, weights, allow_unused=True, **options)

    def methods(self):
        longest = max(self.lengths)
        return [*METHODS, Staircase(tuple(sorted({0, (longest + 1) // 2, longest})))]


@st.composite
def cases(draw, dtypes=(torch.float64, torch.float32)):
    cell = draw(st.sampled_from(CELLS))
    options = {
        "num_layers": draw(st.integers(1, 3)),
        "bidirectional": draw(st.booleans()),
        "batch_first": draw(st.booleans()),
        "bias": draw(st.booleans()),
    }
    hidden = draw(st.integers(1, 4))
    if cell is nn.LSTM and hidden > 1 and draw(st.booleans()):
        options["proj_size"] = hidden - 1
    if cell is nn.RNN:
        options["nonlinearity"] = draw(st.sampled_from(["tanh", "relu"]))
    lengths = draw(st.lists(st.integers(1, 7), min_size=1, max_size=6))
    if draw(st.booleans()):
        lengths = [lengths[0]] * len(lengths)
    torch.manual_seed(draw(st.integers(0, 1000)))
    rnn = cell(draw(st.integers(1, 3)), hidden, **options).to(draw(st.sampled_from(dtypes)))
    extra = draw(st.integers(0, 3))
    total_length = draw(st.sampled_from([None, max(lengths), max(lengths) + extra, max(lengths) + 4]))
    padding = draw(st.sampled_from([0.0, float("nan"), float("inf"), 1e30]))
    how = {"total_length": total_length, "padding_value": draw(st.sampled_from([0.0, -2.5]))}
    return Case(rnn, lengths, extra, padding, draw(st.booleans()), draw(st.integers(0, 1000)), **how)


def case(cell, dtype=torch.float32, lengths=(4, 7, 1, 4, 6), **options):
    torch.manual_seed(0)
    how = {name: options.pop(name) for name in ("extra", "padding", "hx") if name in options}
    return Case(cell(3, 4, **options).to(dtype), list(lengths), **how)


# Values and gradients.


@given(cases(), st.tuples(st.booleans(), st.booleans(), st.booleans()).filter(lambda which: any(which[:2])))
def test_every_method_gives_what_packing_gives(case, which):
    expected = case.expected()
    gradients = case.gradients(expected, which)
    for method in case.methods():
        found = case.run(method)
        same(flat(found), flat(expected))
        assert found[0].is_contiguous() == expected[0].is_contiguous()
        ours = case.gradients(found, which)
        same(ours, gradients)
        padding = ours[0] if case.rnn.batch_first else ours[0].transpose(0, 1)
        for row, n in zip(padding, case.lengths, strict=True):
            assert not row[n:].any()


@pytest.mark.parametrize("lengths", [(1, 1, 1), (1, 3, 2)])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}])
@pytest.mark.parametrize("cell", [nn.RNN, nn.GRU, nn.LSTM, partial(nn.LSTM, proj_size=2)])
def test_there_is_no_gradient_where_torch_has_none(cell, options, lengths):
    """Whichever results are used, and whatever wants a gradient: after one step c_n needs no projection."""
    one = case(cell, torch.float64, lengths, hx=True, **options)
    kinds = [[one.x], [*(one.hx if isinstance(one.hx, tuple) else [one.hx])], [*one.rnn.parameters()]]
    results = len(flat(one.expected()))
    for wanted in (kinds, kinds[:2], kinds[2:]):
        for t in one.inputs:
            t.requires_grad_(any(t is other for kind in wanted for other in kind))
        for which in filter(any, product((False, True), repeat=results)):
            expected = one.gradients(one.expected(), which)
            for method in METHODS:
                same(one.gradients(one.run(method), which), expected)


@given(cases(dtypes=(torch.float32,)))
def test_without_gradients_it_is_the_same(case):
    with torch.no_grad():
        expected = flat(case.expected())
        for method in case.methods():
            same(flat(case.run(method)), expected)
    with torch.inference_mode():
        for method in case.methods():
            same(flat(case.run(method)), expected)
    for method in case.methods():  # what was made in inference mode is of use outside of it
        case.gradients(case.run(method))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2, "bias": False}])
def test_derivatives_once_and_twice(cell, method, options):
    small = Case(cell(2, 2, **options).double(), [2, 3, 1], hx=True)
    names = [name for name, _ in small.rnn.named_parameters()]

    def function(x, *rest):
        states, weights = rest[: -len(names)], rest[-len(names) :]
        hx = states if cell is nn.LSTM else states[0]
        wrapped = pv.Ragged(small.rnn, method)
        keys = names
        return tuple(
            flat(torch.func.functional_call(wrapped, dict(zip(keys, weights, strict=True)), (x, [2, 3, 1], hx)))
        )

    inputs = [t.detach().clone().requires_grad_() for t in small.inputs]
    assert torch.autograd.gradcheck(function, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("lengths", [(4, 7, 1, 4, 6), (5, 5, 5)])
def test_the_fused_kernel_can_be_differentiated_twice(method, lengths):
    """gradgradcheck is in double precision, which oneDNN's LSTM is not."""
    fused = case(nn.LSTM, lengths=lengths, bidirectional=True, num_layers=2, hx=True)

    def second(result):
        gradients = fused.gradients(result, create_graph=True)
        return torch.autograd.grad(sum((g * g).sum() for g in gradients), fused.inputs)

    same(second(fused.run(method)), second(fused.expected()), 1e-3)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cell", CELLS)
def test_a_graph_can_be_gone_back_through_twice(cell, method):
    some = case(cell)
    found = some.run(method)
    first = some.gradients(found, retain_graph=True)
    for one, other in zip(first, some.gradients(found), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cell", CELLS)
def test_frozen_weights_and_inputs(cell, method):
    some = case(cell, num_layers=2)
    for parameter in list(some.rnn.parameters())[::2]:
        parameter.requires_grad_(False)
    same(some.gradients(some.run(method)), some.gradients(some.expected()))
    some.x.requires_grad_(False)
    same(some.gradients(some.run(method)), some.gradients(some.expected()))
    for parameter in some.rnn.parameters():
        parameter.requires_grad_(False)
    assert not some.run(method)[0].requires_grad


@pytest.mark.parametrize("method", METHODS)
def test_large_weights_do_not_thaw_the_frozen_cells(method):
    some = case(nn.LSTM, lengths=(1, 40, 3))
    with torch.no_grad():
        for parameter in some.rnn.parameters():
            parameter.mul_(100)
    same(flat(some.run(method)), flat(some.expected()))


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("hx", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_the_reverse_direction_comes_through_the_padding(grad, hx, batch_first):
    """From a state of zeros it may; a state that is given is to be found where each sequence ends."""
    how = {"extra": 2, "padding": float("nan"), "hx": hx, "num_layers": 2, "bidirectional": True}
    some = case(nn.LSTM, batch_first=batch_first, **how)
    some.options = {"total_length": 8, "padding_value": -2.5}
    with torch.set_grad_enabled(grad):
        expected, found = some.expected(), some.run("padded")
        same(flat(found), flat(expected))
    if grad:
        same(some.gradients(found), some.gradients(expected))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cell", CELLS)
def test_a_view_of_a_larger_tensor(cell, method):
    some = case(cell, batch_first=True)
    some.x = torch.randn(5, 3, 9).requires_grad_()
    some.inputs[0] = some.x
    found, expected = (
        f(some.rnn, some.x.mT[:, 1:8], some.lengths) for f in (lambda *a: pv.run(*a, method=method), packed)
    )
    same(flat(found), flat(expected))
    same(some.gradients(found), some.gradients(expected))


@pytest.mark.parametrize("cell", CELLS)
def test_the_same_call_gives_the_same_bits(cell):
    some = case(cell, lengths=range(1, 30))
    once = flat(some.run())
    running.forget()
    assert all(torch.equal(a, b) for a, b in zip(once, flat(some.run()), strict=True))


@pytest.mark.parametrize("kind", [torch.tensor, tuple, lambda n: torch.tensor(n, dtype=torch.int32)])
def test_lengths_of_any_kind(kind):
    some = case(nn.GRU)
    expected = flat(some.expected())
    some.lengths = kind(some.lengths)
    same(flat(some.run()), expected)


# Dropout, autocast.


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cell", CELLS)
def test_dropout_between_layers(cell, method):
    some = case(cell, num_layers=2, dropout=1.0)
    same(flat(some.run(method)), flat(some.expected()))  # nothing passes, in both
    some.rnn.dropout = 0.5
    torch.manual_seed(0)
    one, other = some.run(method)[0], some.run(method)[0]
    assert not torch.equal(one, other)
    some.rnn.eval()
    same(flat(some.run(method)), flat(some.expected()))


@pytest.mark.parametrize("method", METHODS)
def test_dropout_keeps_the_mean(method):
    """A linear RNN of ones: what a cell puts out is the mean of what was dropped, whatever the method."""
    rnn = nn.RNN(1, 64, 2, nonlinearity="relu", bias=False, dropout=0.5, batch_first=True)
    with torch.no_grad():
        for name, parameter in rnn.named_parameters():
            parameter.fill_(0.0 if "hh" in name else 1 / parameter.shape[1])
    torch.manual_seed(0)
    out, _ = pv.run(rnn, torch.ones(40, 6, 1), [6, 3] * 20, method=method)
    real = torch.cat([out[0::2].flatten(), out[1::2, :3].flatten()])
    assert real.mean().item() == pytest.approx(1, abs=0.03)
    assert not out[1::2, 3:].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("options", [{}, {"hx": True, "num_layers": 2, "bidirectional": True}, {"proj_size": 2}])
def test_autocast(cell, dtype, options):
    if "proj_size" in options and cell is not nn.LSTM:
        pytest.skip("only an LSTM has a projection")
    some = case(cell, **options)
    for x in (some.x, some.x.detach().to(dtype).requires_grad_()):
        some.x = some.inputs[0] = x
        with torch.autocast("cpu", dtype):
            expected = some.expected()
            for method in some.methods():
                found = some.run(method)
                same(flat(found), flat(expected), 0.05)
                gradients = some.gradients(found, retain_graph=True)
                same(gradients, some.gradients(expected, retain_graph=True), 0.2)


@pytest.mark.parametrize("method", METHODS)
def test_double_precision_is_left_alone_by_autocast(method):
    some = case(nn.LSTM, torch.float64)
    with torch.autocast("cpu"):
        same(flat(some.run(method)), flat(some.expected()))


# Weights and modules of all sorts.


@pytest.mark.parametrize("method", METHODS)
def test_parametrised_weights(method):
    some = case(nn.LSTM, num_layers=2)
    parametrizations.weight_norm(some.rnn, "weight_hh_l0")
    some.inputs = [some.x, *some.rnn.parameters()]
    found, expected = some.run(method), some.expected()
    same(flat(found), flat(expected))
    same(some.gradients(found), some.gradients(expected))


class Counted(nn.Module):
    """A parametrisation that counts how often it is computed."""

    calls = 0

    def forward(self, weight):
        self.calls += 1
        return 2 * weight


def test_a_parametrised_weight_is_computed_once_a_run():
    some, counted = case(nn.GRU), Counted()
    nn.utils.parametrize.register_parametrization(some.rnn, "weight_ih_l0", counted)
    before = counted.calls
    found = pv.run(some.rnn, some.x.detach(), some.lengths)
    assert counted.calls == before + 1
    same(flat(found), flat(some.expected()))


def test_a_plain_tensor_in_place_of_a_parameter():
    some = case(nn.LSTM)
    weight = some.rnn.weight_hh_l0.detach() * 2
    del some.rnn.weight_hh_l0
    some.rnn.weight_hh_l0 = weight
    for method in METHODS:
        same(flat(some.run(method)), flat(some.expected()))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cell", CELLS)
def test_other_weights_for_one_call(cell, method):
    some = case(cell)
    others = {name: torch.randn_like(p).requires_grad_() for name, p in some.rnn.named_parameters()}
    ragged = pv.Ragged(some.rnn, method)
    found = torch.func.functional_call(ragged, others, (some.x, some.lengths))
    other = copy.deepcopy(some.rnn)
    other.load_state_dict(others)
    expected = packed(other, some.x, some.lengths)
    same(flat(found), flat(expected))
    theirs = torch.autograd.grad(expected[0].sum(), other.parameters())
    same(torch.autograd.grad(found[0].sum(), others.values()), theirs)
    same(flat(some.run(method)), flat(some.expected()))


@pytest.mark.parametrize("method", METHODS)
def test_hooks_and_subclasses_are_called(method):
    some = case(nn.GRU)
    seen = []
    handle = some.rnn.register_forward_hook(lambda module, given, result: seen.append(result[0]))
    same(flat(some.run(method)), flat(some.expected()))
    assert len(seen) == 2
    handle.remove()

    class Doubled(nn.GRU):
        def forward(self, x, hx=None):
            out, final = super().forward(x, hx)
            return out._replace(data=2 * out.data), final

    other = Doubled(3, 4)
    same(flat(pv.run(other, some.x, some.lengths, method=method)), flat(packed(other, some.x, some.lengths)))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # dynamo's own, after any graph break
@pytest.mark.parametrize("method", METHODS)
def test_compiled(method):
    some = case(nn.LSTM)
    ragged = pv.Ragged(some.rnn, method)

    def model(x):
        return ragged(x * 2, some.lengths)[0] + 1

    found = torch.compile(model, backend="eager")(some.x)
    same([found], [packed(some.rnn, some.x * 2, some.lengths)[0] + 1])
    same(torch.autograd.grad(found.sum(), some.inputs), torch.autograd.grad(model(some.x).sum(), some.inputs))
    torch.compiler.reset()


def test_the_module():
    rnn = nn.LSTM(3, 4, batch_first=True)
    ragged = pv.Ragged(rnn, method="split")
    assert list(ragged.state_dict()) == list(rnn.state_dict())
    assert ragged.rnn is rnn
    assert "method='split'" in repr(ragged)
    assert "LSTM(3, 4, batch_first=True)" in repr(ragged)
    x = torch.randn(2, 5, 3)
    before = copy.deepcopy(ragged.state_dict())
    same(flat(ragged(x, [5, 2], total_length=6, padding_value=1.0)), flat(packed(rnn, x, [5, 2], None, 6, 1.0)))
    assert all(torch.equal(value, before[name]) for name, value in ragged.state_dict().items())
    copy.deepcopy(ragged).load_state_dict(before)


# The plan.


def test_the_choice_goes_by_the_number_of_threads(two_threads, monkeypatch):
    asked, choose = [], running.costs.choose

    def spy(*batch, **options):
        asked.append(batch[-1])
        return choose(*batch, **options)

    monkeypatch.setattr(running.costs, "choose", spy)
    pv.run(GRU, torch.zeros(2, 6, 3), [5, 2])
    pv.plan(GRU, [5, 2])
    assert asked == [two_threads] * 2


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("lengths", [[5, 5], [5, 2]])
@pytest.mark.parametrize("grad", [True, False])
def test_torchs_kernel_is_called_without_a_detour(cell, lengths, grad, monkeypatch):
    """Where nothing is gained, no time is lost on the way: what the module asks was asked already."""
    rnn, x = cell(3, 4, num_layers=2, bidirectional=True, batch_first=True), torch.randn(2, 6, 3)
    with torch.set_grad_enabled(grad):
        expected = flat(packed(rnn, x, lengths))
        monkeypatch.setattr(nn.RNNBase, "check_forward_args", None)
        monkeypatch.setattr(nn.LSTM, "check_forward_args", None)
        same(flat(pv.run(rnn, x, lengths, method="packed")), expected)
        if not grad:
            same(flat(pv.run(rnn, x, lengths, method="padded")), expected)


def test_a_plan_in_words():
    stairs = pv.plan(pv.Spec("LSTM", 128, 256), range(128, 0, -1))
    *times, taken, why = repr(stairs).splitlines()
    assert [line.split()[0] for line in times] == sorted(stairs.seconds, key=stairs.seconds.get)
    assert taken == f"auto takes: staircase, {len(stairs.cuts) - 1} rectangles"
    assert why == f"reason: {stairs.reason}"
    assert pv.draw.Stairs(range(128, 0, -1), stairs.cuts).wasted
    hooked = nn.GRU(2, 3)
    hooked.register_forward_hook(lambda *given: None)
    assert repr(pv.plan(hooked, [3, 2])).startswith("auto takes: packed\nreason: only this method calls the module")
    with pytest.raises(TypeError, match=r"rnn is a Linear: give an nn\.RNN, nn\.GRU or"):
        pv.plan(nn.Linear(1, 1), [1])
    with pytest.raises(ValueError, match=r"lengths\[1\] is 0"):
        pv.plan(LSTM, [1, 0])


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lengths", [[9, 8, 8], [9] * 3, range(64, 0, -1)])
@pytest.mark.parametrize("cell", CELLS)
def test_a_plan_for_another_device(cell, lengths, dtype, training, monkeypatch):
    """It is the plan of the same module on that device; torch's meta device stands in for a GPU."""
    gpus.stand_in(monkeypatch)
    here, there = (cell(3, 16, dtype=dtype, device=device) for device in ("cpu", "meta"))
    with gpus.in_force(gpus.constants()):
        on_cpu, on_gpu = (pv.plan(rnn, lengths, training=training) for rnn in (here, there))
        for rnn in (here, there):
            assert pv.plan(rnn, lengths, training=training, device="cpu") == on_cpu
            assert pv.plan(rnn, lengths, training=training, device=torch.device("cuda:1")) == on_gpu
        if dtype == torch.float32:
            spec = pv.Spec.of(here)
            assert pv.plan(spec, lengths, training=training) == on_cpu
            assert pv.plan(spec, lengths, training=training, device="cuda") == on_gpu
        assert on_gpu != on_cpu or len(set(lengths)) == 1


def test_a_plan_for_a_device_that_only_torchs_kernels_support():
    for rnn in (LSTM, pv.Spec("LSTM", 3, 4)):
        assert pv.plan(rnn, [5, 5], device="mps").method == "packed"
        assert "no other method supports the device mps" in pv.plan(rnn, [5, 2], device="mps").reason
        for wrong in ("gpu", 1.5):
            with pytest.raises(ValueError, match=f"device is {wrong!r}; give a device, such as 'cpu' or 'cuda'"):
                pv.plan(rnn, [5, 2], device=wrong)


# What is refused.

LSTM, GRU = nn.LSTM(3, 4), nn.GRU(3, 4, batch_first=True)
X = torch.zeros(6, 2, 3)


def torchs_error(call):
    try:
        call()
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda **m: pv.run(nn.Linear(3, 4), X, [6, 2], **m), TypeError, "rnn is a Linear: give an nn.RNN, nn.GRU or"),
        (
            lambda **m: pv.run(LSTM, pack_padded_sequence(X, [6, 2]), [6, 2], **m),
            TypeError,
            "x is a PackedSequence: call",
        ),
        (lambda **m: pv.run(LSTM, X.numpy(), [6, 2], **m), TypeError, "x must be a tensor, got ndarray"),
        (lambda **m: pv.run(LSTM, X[0], [6, 2], **m), ValueError, "x must be (T, B, I), got shape (2, 3)"),
        (
            lambda **m: pv.run(LSTM, X, [6, 7], **m),
            ValueError,
            "lengths[1] is 7, but x of shape (6, 2, 3), read as (T, B",
        ),
        (lambda **m: pv.run(LSTM, X, [6, 0], **m), ValueError, "lengths[1] is 0, but x of shape (6, 2, 3), read as (T"),
        (lambda **m: pv.run(LSTM, X, torch.tensor([-1, 2]), **m), ValueError, "lengths[0] is -1"),
        (lambda **m: pv.run(LSTM, X, [6], **m), ValueError, "lengths has 1 entry, but x of shape"),
        (lambda **m: pv.run(GRU, X, [2, 2], **m), ValueError, "B = 6; did you mean batch_first=False?"),
        (lambda **m: pv.run(LSTM, X, [], **m), ValueError, "lengths is empty"),
        (lambda **m: pv.run(LSTM, X, [6, 2.5], **m), ValueError, "lengths[1] is 2.5: not a whole number"),
        (
            lambda **m: pv.run(LSTM, X, [True, True], **m),
            ValueError,
            "lengths holds booleans; for a mask (B, T) that is True at real cells",
        ),
        (
            lambda **m: pv.run(LSTM, X, [[6, 2]], **m),
            ValueError,
            "one-dimensional, got shape (1, 2): list the number",
        ),
        (
            lambda **m: pv.run(LSTM, X, ["6", "2"], **m),
            ValueError,
            "lengths must hold whole numbers, got ['6', '2']: list the number",
        ),
        (lambda **m: pv.run(LSTM, X[..., :2], [6, 2], **m), ValueError, "has I = 2, but rnn.input_size is 3"),
        (lambda **m: pv.run(LSTM, X.double(), [6, 2], **m), ValueError, torchs_error(lambda: LSTM(X.double()))),
        (lambda **m: pv.run(LSTM, X, [4, 2], total_length=3, **m), ValueError, "total_length is 3; give at least 4"),
        (
            lambda **m: pv.run(LSTM, X, [6, 2], torch.zeros(1, 2, 4), **m),
            ValueError,
            "hx must be h_0 (1, 2, 4) and c_0",
        ),
        (
            lambda **m: pv.run(LSTM, X, [6, 2], (torch.zeros(1, 3, 4),) * 2, **m),
            ValueError,
            "got (1, 3, 4) and (1, 3, 4)",
        ),
        (
            lambda **m: pv.run(nn.GRU(3, 4), X, [6, 2], torch.zeros(1, 2, 5), **m),
            ValueError,
            "hx must be h_0 (1, 2, 4),",
        ),
        (lambda **m: pv.run(nn.GRU(3, 4), X, [6, 2], (X, X), **m), ValueError, "hx must be h_0 (1, 2, 4), got"),
    ],
)
def test_what_does_not_fit(call, error, said, method):
    with pytest.raises(error, match=re.escape(said)):
        call(method=method)


def test_methods_and_cuts_that_are_not_there():
    with pytest.raises(
        ValueError, match="method is 'pack'; choose one of 'auto', 'packed', 'padded', 'split', 'staircase'"
    ):
        pv.run(LSTM, X, [6, 2], method="pack")
    with pytest.raises(ValueError, match="method is None"):
        pv.Ragged(LSTM, method=None)
    with pytest.raises(TypeError, match="rnn is a Linear"):
        pv.Ragged(nn.Linear(1, 1))
    with pytest.raises(ValueError, match=re.escape("cuts are (0, 5); give time steps that rise from 0 to 6")):
        pv.run(LSTM, X, [6, 2], method=Staircase((0, 5)))


def test_lengths_on_an_accelerator_are_torchs_error():
    """Here one without data; a GPU's says that the lengths should be on the CPU."""
    lengths = torch.ones(2, dtype=torch.int64, device="meta")
    with pytest.raises((RuntimeError, NotImplementedError)) as theirs:
        packed(LSTM, X, lengths)
    with pytest.raises(theirs.type, match=re.escape(str(theirs.value))):
        pv.run(LSTM, X, lengths)


def test_numbers_that_are_none():
    for cuts in ((0, 3.5, 6), 3):
        with pytest.raises(TypeError, match="give a sequence of whole time steps"):
            Staircase(cuts)
    assert Staircase([0, 6]) == Staircase((0, 6))
    with pytest.raises(ValueError, match=re.escape("cuts are (0, 3); give time steps that rise from 0 to 6")):
        pv.run(LSTM, X, [6, 6], method=Staircase((0, 3)))
    for method in METHODS:
        for lengths in ([6, 2], [6, 6]):
            with pytest.raises(TypeError, match="padding_value must be a number, got None"):
                pv.run(LSTM, X, lengths, padding_value=None, method=method)
            for wrong in (True, 8.0):
                with pytest.raises(TypeError, match=f"total_length must be a whole number, got {wrong}"):
                    pv.run(LSTM, X, lengths, total_length=wrong, method=method)
            assert len(pv.run(LSTM, X, lengths, total_length=np.int64(8), method=method)[0]) == 8


@pytest.mark.parametrize("method", METHODS)
def test_states_that_lie_elsewhere_or_hold_other_numbers(method):
    state = torch.zeros(1, 2, 4)
    for lengths in ([6, 2], [6, 6]):
        with pytest.raises(ValueError, match="hx is on meta, but x is on cpu: move it there"):
            pv.run(LSTM, X, lengths, (state, state.to("meta")), method=method)
        with pytest.raises(ValueError, match=re.escape("hx holds torch.float64, but x holds torch.float32")):
            pv.run(LSTM, X, lengths, (state, state.double()), method=method)


# What the caller does before and after.


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("lengths", [(4, 7, 1, 4, 6), (5, 5, 5, 5, 5)])
def test_states_in_any_strides(cell, lengths, method):
    """A learnt state that is expanded, one that is transposed, and the halves of one tensor."""
    some = case(cell, lengths=lengths)
    states = (
        torch.randn(1, 1, 4).expand(1, 5, 4),
        torch.randn(5, 1, 4).transpose(0, 1),
        torch.randn(1, 5, 8).chunk(2, 2)[1],
    )
    for state in states:
        leaf = state.detach().requires_grad_()
        some.hx = (leaf, leaf * 0.5) if cell is nn.LSTM else leaf
        some.inputs = [some.x, leaf, *some.rnn.parameters()]
        expected, found = some.expected(), some.run(method)
        same(flat(found), flat(expected))
        same(some.gradients(found, retain_graph=True), some.gradients(expected))
        if cell is nn.LSTM:  # torch takes a list, too
            same(flat(pv.run(some.rnn, some.x, lengths, list(some.hx), method=method)), flat(expected))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("cell", CELLS)
def test_a_graph_of_the_gradients_changes_none_of_them(cell, dtype):
    """Also where one input was made of another: the state of the input, or of the weights."""
    some = case(cell, dtype)
    to_state = nn.Linear(3, 4).to(dtype)
    h = torch.tanh(to_state(some.x[0]))[None] + some.rnn.bias_hh_l0[:4]
    some.hx = (h, 2 * h) if cell is nn.LSTM else h
    some.inputs = [some.x, *some.rnn.parameters(), *to_state.parameters()]
    expected = some.gradients(some.expected(), retain_graph=True)
    for method in some.methods():
        same(some.gradients(some.run(method), create_graph=True), expected)


def test_relu_may_grow_in_the_padding():
    rnn = nn.RNN(1, 1, nonlinearity="relu", bias=False)
    with torch.no_grad():
        rnn.weight_hh_l0.fill_(2), rnn.weight_ih_l0.fill_(1)
    some = Case(rnn, [5, 200])
    some.x = torch.zeros(200, 2, 1)
    some.x[0, 0], some.x[0, 1], some.x[1:, 0] = 1, -1, 1
    some.inputs = [*rnn.parameters()]
    expected = some.gradients(some.expected())
    assert all(t.isfinite().all() for t in expected)
    for method in some.methods():
        same(some.gradients(some.run(method)), expected)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}])
def test_after_inference_mode_comes_training(method, options):
    some = case(nn.LSTM, lengths=(3, 9, 2, 8), **options)
    with torch.inference_mode():
        same(flat(some.run(method)), flat(some.expected()))
    for graph in (False, True):
        found, expected = some.run(method), some.expected()
        same(some.gradients(found, create_graph=graph), some.gradients(expected, create_graph=graph))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cell", CELLS)
def test_under_a_checkpoint(cell, method):
    some = case(cell)
    once = checkpoint(lambda x: some.run(method)[0] * x.sum(), some.x, use_reentrant=False)
    twice = some.expected()[0] * some.x.sum()
    same(*([torch.autograd.grad(out.sum(), some.inputs) for out in (once, twice)]))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("lengths", [(4, 7, 1), (5, 5), (6,)])
def test_results_and_states_may_be_overwritten(lengths, batch_first, cell, method):
    some = case(cell, lengths=lengths, batch_first=batch_first, hx=True)
    buffers = [h.detach().clone() for h in (some.hx if cell is nn.LSTM else (some.hx,))]
    some.hx = tuple(buffers) if cell is nn.LSTM else buffers[0]
    some.inputs = [some.x, *some.rnn.parameters()]
    expected = some.expected()
    theirs = torch.autograd.grad([2 * t.sum() for t in flat(expected)], some.inputs)
    found = flat(some.run(method))
    for result in found:
        result.mul_(2)
    for buffer in buffers:
        buffer.zero_()
    same(torch.autograd.grad([t.sum() for t in found], some.inputs), theirs)


@pytest.mark.parametrize("method", METHODS)
def test_defaults_of_the_process(method):
    """torch's default dtype and device decide what is made without saying, and nothing here."""
    some = case(nn.LSTM)
    expected, state = flat(some.expected()), torch.get_rng_state()
    with torch.autocast("cpu", torch.bfloat16):
        under_autocast = flat(some.expected())
    torch.set_default_dtype(torch.float64)
    running._packed_dtypes.cache_clear()
    try:
        with torch.autocast("cpu", torch.bfloat16):
            same(flat(some.run(method)), under_autocast, 0.05)
    finally:
        torch.set_default_dtype(torch.float32)
    for lengths in (some.lengths, np.array(some.lengths)):
        with torch.device("meta"):
            found = flat(pv.run(some.rnn, some.x, lengths, method=method))
        same(found, expected)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:`torch.jit.trace")
def test_traced():
    """The lengths are an input of the program, not part of it."""
    some = case(nn.GRU, lengths=(7, 7, 7))
    traced = torch.jit.trace(pv.Ragged(some.rnn), (some.x, torch.tensor(some.lengths)))
    for lengths in ([7, 3, 1], [5, 5, 2]):
        same(flat(traced(some.x, torch.tensor(lengths))), flat(packed(some.rnn, some.x, lengths)))


def test_what_is_kept_of_lengths_is_little():
    some = case(nn.LSTM, lengths=(3, 9, 2, 8))
    running.forget()
    for total_length in range(9, 40):
        for method in ("split", "staircase"):
            pv.run(some.rnn, some.x, some.lengths, total_length=total_length, method=method)
    steps = running._steps(tuple(some.lengths), some.x.device)
    assert len(steps._routes) <= 4


def test_torch_has_nothing_to_say():
    """Of a packed LSTM with projections it says nothing, and of a padded one that it is slow, once in a process."""
    code = (
        "import torch, packviz as pv; from packviz.ops.running import METHODS; rnn = torch.nn.LSTM(2, 3, proj_size=1);"
    )
    code += "x, state = torch.randn(4, 2, 2), torch.random.get_rng_state();"
    code += "[pv.run(rnn, x, n, method=method) for n in ([4, 4], [4, 2]) for method in METHODS];"
    code += "assert torch.equal(torch.random.get_rng_state(), state)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
