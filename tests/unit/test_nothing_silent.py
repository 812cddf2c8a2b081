"""What packviz once got wrong without a word, each point with its neighbours, so that the list can be read in one place."""

from __future__ import annotations

import re

import gpus
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz.bench import calibration
from packviz.core.cuts import rectangles
from packviz.ops import costs, running
from packviz.ops.costs import Costs
from packviz.ops.running import METHODS, Staircase

# ---- 1. Aligning says where the padding is, and can check it


# ---- 2. A name that contains "padding" is True at padding


# ---- 3. A square batch without batch_first warns


# ---- 4. run takes batch_first


CELLS = (nn.RNN, nn.GRU, nn.LSTM)


@st.composite
def modules(draw, dtypes=(torch.float64, torch.float32), hidden=(1, 3, 4), device="cpu"):
    """Any RNN."""
    cell, size = draw(st.sampled_from(CELLS)), draw(st.sampled_from(hidden))
    options = {name: draw(st.booleans()) for name in ("batch_first", "bidirectional", "bias")}
    if cell is nn.RNN:
        options["nonlinearity"] = draw(st.sampled_from(["tanh", "relu"]))
    if cell is nn.LSTM and size > 1 and draw(st.booleans()):
        options["proj_size"] = size - 1
    torch.manual_seed(draw(st.integers(0, 999)))
    return cell(3, size, draw(st.integers(1, 2)), **options, device=device, dtype=draw(st.sampled_from(dtypes)))


def by_torch(rnn, x, lengths, hx=None, *, batch_first, total_length=None, padding_value=0.0):
    """What packing says about the order, and nothing of what the module says."""
    out, final = rnn(pack_padded_sequence(x, lengths, batch_first, enforce_sorted=False), hx)
    return pad_packed_sequence(out, batch_first, padding_value, total_length)[0], final


def flat(result):
    out, final = result
    return [out, *(final if isinstance(final, tuple) else (final,))]


def assert_same(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=0, atol=(1e-10 if one.dtype == torch.float64 else 1e-4))


@given(
    modules(),
    st.booleans(),
    st.one_of(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.just([3, 3, 2]), st.just([3, 3, 3])),
    st.integers(0, 2),
    st.sampled_from([0, 1, 3]),
    st.booleans(),
)
def test_the_order_of_x_is_the_callers(rnn, first, lengths, extra, longer, states):
    batch, steps, dtype = len(lengths), max(lengths), rnn.weight_ih_l0.dtype
    x = torch.randn(*((batch, steps + extra) if first else (steps + extra, batch)), 3, dtype=dtype, requires_grad=True)
    rows, sizes = rnn.num_layers * (1 + rnn.bidirectional), [rnn.proj_size or rnn.hidden_size]
    sizes += [rnn.hidden_size] * (rnn.mode == "LSTM")
    own = [torch.randn(rows, batch, size, dtype=dtype, requires_grad=True) for size in sizes] if states else []
    hx = (tuple(own) if rnn.mode == "LSTM" else own[0]) if own else None
    how = {"batch_first": first, "total_length": steps + longer if longer else None, "padding_value": -2.0}
    leaves = [x, *own, *rnn.parameters()]
    expected = by_torch(rnn, x, lengths, hx, **how)
    numbers = [torch.randn_like(one) for one in flat(expected)]
    gradients = torch.autograd.grad(flat(expected), leaves, numbers, allow_unused=True)
    for method in (*METHODS, Staircase(tuple(sorted({0, (steps + 1) // 2, steps})))):
        for call in (pv.run, pv.Ragged(rnn, method)):
            given_here = (rnn, x, lengths, hx) if call is pv.run else (x, lengths, hx)
            found = call(*given_here, **how, **({"method": method} if call is pv.run else {}))
            assert_same(flat(found), flat(expected))
            assert found[0].is_contiguous() == expected[0].is_contiguous()
            assert_same(torch.autograd.grad(flat(found), leaves, numbers, allow_unused=True), gradients)
    how["total_length"] = how["total_length"] or steps
    found = pv.ragged_op(rnn)(x, torch.tensor(lengths), hx, **how)
    assert_same(flat(found), flat(expected))
    ours = torch.autograd.grad(flat(found), leaves, numbers, allow_unused=True)
    assert_same(
        [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, ours, strict=True)],
        [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, gradients, strict=True)],
    )


@pytest.mark.parametrize("own", [True, False])
def test_of_a_square_batch_either_order_is_read_as_it_is_given(own):
    rnn, x, lengths = nn.LSTM(3, 4, batch_first=own), torch.randn(4, 4, 3), [4, 2, 1, 3]
    found = {first: pv.run(rnn, x, lengths, batch_first=first)[0] for first in (True, False, None)}
    for first in (True, False):
        assert_same([found[first]], [by_torch(rnn, x, lengths, batch_first=first)[0]])
    assert torch.equal(found[None], found[own])
    assert not torch.allclose(found[True], found[False])


@pytest.mark.parametrize("first", [True, False])
def test_where_the_other_order_fits_the_error_names_batch_first(first):
    """And what it names works: where the module has the order and where the call has it."""
    rnn, x, lengths = (
        nn.GRU(3, 4, batch_first=first),
        torch.randn(*((5, 2) if not first else (2, 5)), 3),
        [2, 1, 1, 2, 1],
    )
    for how, call in product_of_calls(rnn):
        with pytest.raises(ValueError, match=rf"did you mean batch_first={not first}\?"):
            call(x, torch.tensor(lengths), **how)
        assert_same(
            flat(call(x, torch.tensor(lengths), batch_first=not first)),
            flat(by_torch(rnn, x, lengths, batch_first=not first)),
        )


def product_of_calls(rnn):
    """All that take an order, without one and with the module's own."""
    calls = (lambda x, n, **how: pv.run(rnn, x, n, **how), pv.Ragged(rnn), pv.ragged_op(rnn))
    return [(how, call) for how in ({}, {"batch_first": rnn.batch_first}) for call in calls]


@pytest.mark.filterwarnings("ignore")  # torch's, on tracing
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("lengths", [[4, 4, 4], [4, 2, 1]])
def test_a_module_that_has_to_be_called_reads_the_callers_order_too(own, lengths, monkeypatch):
    rnn, x = nn.LSTM(3, 4, 2, batch_first=own, bidirectional=True).requires_grad_(False), torch.randn(4, 3, 3)
    expected = by_torch(rnn, x.transpose(0, 1) if own else x, lengths, batch_first=own)
    mine, given_x = (x, False) if own else (x.transpose(0, 1), True)
    theirs = [expected[0].transpose(0, 1), *expected[1]]

    def found():
        return flat(pv.run(rnn, mine, lengths, batch_first=given_x, method="padded"))

    with torch.no_grad():
        monkeypatch.setattr(running, "_is_direct", lambda *given: False)  # as with weights in pieces on a GPU
        assert_same(found(), theirs)
        calls = []
        rnn.register_forward_hook(lambda *given: calls.append(1))
        assert_same(found(), theirs)
        assert calls
        traced = torch.jit.trace(lambda x: pv.run(rnn, x, lengths, batch_first=given_x)[0], mine, check_trace=False)
        assert_same([traced(mine)], theirs[:1])


def test_the_operator_keeps_the_callers_order_when_it_is_compiled():
    rnn, n = nn.GRU(3, 4), torch.tensor([4, 2, 3])
    op = pv.ragged_op(rnn)
    compiled = torch.compile(lambda x: op(x, n, batch_first=True)[0] * 2, fullgraph=True, backend="eager")
    x = torch.randn(3, 6, 3)
    assert_same([compiled(x)], [2 * by_torch(rnn, x, n, batch_first=True, total_length=6)[0]])


# ---- 5. patch_torch names every holder of torch's functions


# ---- 6. The oracle is always torch's own function


# ---- 7. plan and run never disagree


@pytest.fixture
def taken(monkeypatch):
    """What `run` really does: the method, and its rectangles."""
    seen, stairs = [], running.staircase.run

    def spy(module, name, method):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given, **how: (seen.append((method, None)), real(*given, **how))[1])

    def staircase(*given, grid, **how):
        seen.append(("padded" if len(grid.rectangles) == 1 else "staircase", len(grid.rectangles)))
        return stairs(*given, grid=grid, **how)

    for module, name, method in (
        (running, "_packed", "packed"),
        (running, "_as_it_is", "padded"),
        (running.split, "run", "split"),
    ):
        spy(module, name, method)
    monkeypatch.setattr(running.staircase, "run", staircase)
    return seen


batches = st.one_of(
    st.lists(st.integers(1, 40), min_size=1, max_size=40).filter(lambda n: max(n) > 1),  # torch waits where all are 1
    st.integers(2, 20).map(lambda n: [n] * 5),
    st.just([*range(1, 65)] * 2),
)
KERNELS = ("packed", "rectangles", "fused", "split", "whole")


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_what_plan_says_is_what_run_does(device, taken, monkeypatch):
    """The meta device stands in for CUDA. Which kernel is fast is drawn, so that every method is chosen."""
    if device == "meta":
        gpus.stand_in(monkeypatch)
    every, kind = set(), {"cpu": "cpu", "meta": "cuda"}[device]

    @given(
        modules(hidden=(2, 16, 64, 300), device=device),
        batches,
        st.sets(st.sampled_from(KERNELS)),
        st.sampled_from(["weights", "x", "nothing", "no_grad", "hook"]),
    )
    @settings(phases=[Phase.generate])  # to shrink a failure takes minutes
    def holds(rnn, lengths, fast, gradient):
        rnn.requires_grad_(gradient != "nothing" and gradient != "x")
        shape = (len(lengths), max(lengths)) if rnn.batch_first else (max(lengths), len(lengths))
        x = torch.zeros(*shape, 3, device=device, dtype=rnn.weight_ih_l0.dtype, requires_grad=gradient == "x")
        if gradient == "hook":
            rnn.register_forward_hook(lambda *given: None)
        training = gradient not in ("nothing", "no_grad")
        with gpus.in_force(gpus.constants(kind, fast)), torch.set_grad_enabled(gradient != "no_grad"):
            planned = pv.plan(rnn, lengths, training=training)
            taken.clear()
            pv.run(rnn, x, lengths)
            for method, count in set(taken):
                assert method == planned.method
                assert count is None or count == len(rectangles(lengths, planned.cuts))
            assert len(set(taken)) == 1
            if running.is_fused(rnn.mode, rnn.weight_ih_l0, bool(rnn.proj_size)) and gradient != "hook":
                assert pv.plan(pv.Spec.of(rnn), pv.Layout(lengths), training=training) == planned
        if rnn.mode == "RNN_RELU" and len(set(lengths)) > 1:
            assert planned.method in ("packed", "split")
        every.add(planned.method)
        assert planned.reason in planned.to_text()

    holds()
    assert {"packed", "padded"} <= every


@pytest.mark.parametrize("relu", [True, False])
def test_a_state_that_may_grow_in_the_padding_is_not_padded(relu, taken, monkeypatch):
    """Where the padded kernel is fast on CUDA: `plan` once said "padded" here, whatever the nonlinearity was."""
    gpus.stand_in(monkeypatch)
    rnn = nn.RNN(3, 4, nonlinearity="relu" if relu else "tanh", device="meta")
    with gpus.in_force(gpus.constants(fast=("fused",))):
        planned = pv.plan(rnn, [9, 8, 8])
        pv.run(rnn, torch.zeros(9, 3, 3, device="meta"), [9, 8, 8])
    assert {method for method, _ in taken} == {planned.method}
    assert (planned.method in ("packed", "split")) == relu


def test_weights_that_are_no_parameters_are_planned_as_they_are_run(taken):
    """All of them plain tensors, or one of a class of its own, which only the module itself may run."""
    rnn = nn.LSTM(3, 4)
    for name in list(rnn._parameters):
        weight = getattr(rnn, name).detach()
        delattr(rnn, name)
        setattr(rnn, name, weight)
    plain = pv.plan(rnn, [4, 2], training=False)
    pv.run(rnn, torch.zeros(4, 2, 3), [4, 2])
    assert {method for method, _ in taken} == {plain.method}

    class Own(torch.Tensor):
        pass

    rnn.bias_hh_l0 = rnn.bias_hh_l0.as_subclass(Own)
    taken.clear()
    pv.run(rnn, torch.zeros(4, 2, 3), [4, 2])
    assert [method for method, _ in taken] == [pv.plan(rnn, [4, 2], training=False).method] == ["packed"]


# ---- 8. Constants that nobody measured choose nothing


@pytest.fixture
def gpu(monkeypatch):
    gpus.stand_in(monkeypatch)
    with gpus.in_force():
        yield


def test_without_measured_constants_a_gpu_packs(gpu, taken):
    @given(modules(hidden=(2, 64, 300), device="meta"), batches, st.booleans())
    @settings(phases=[Phase.generate])  # to shrink a failure takes minutes
    def holds(rnn, lengths, training):
        ragged = len(set(lengths)) > 1
        planned = pv.plan(rnn, lengths, training=training)
        assert planned.method == ("packed" if ragged else "padded")
        assert not planned.seconds
        if ragged or training:
            assert "no constants have been measured on a GPU" in planned.reason
            assert "calibrate('cuda')" in planned.to_text()
        shape = (len(lengths), max(lengths)) if rnn.batch_first else (max(lengths), len(lengths))
        x = torch.zeros(*shape, 3, device="meta", dtype=rnn.weight_ih_l0.dtype)
        taken.clear()
        with torch.set_grad_enabled(training):
            pv.run(rnn, x, lengths)
        assert [method for method, _ in taken] == [planned.method]

    holds()


@pytest.mark.parametrize("method", METHODS[1:])
def test_no_method_needs_constants(gpu, taken, method):
    pv.run(nn.LSTM(3, 4, device="meta"), torch.zeros(9, 3, 3, device="meta"), [9, 2, 8], method=method)
    assert taken[0][0] == method


def test_on_a_gpu_packing_and_padding_are_linear(gpu, monkeypatch):
    calls = []
    for name in ("pack_padded_sequence", "pad_packed_sequence"):
        real = getattr(running.packing, name)
        monkeypatch.setattr(running.packing, name, lambda *a, real=real, **k: (calls.append(real), real(*a, **k))[1])
    pv.run(nn.GRU(3, 4, device="meta"), torch.zeros(9, 3, 3, device="meta"), [9, 2, 8])
    assert len(calls) == 2


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_constants_without_a_provenance_choose_nothing(device):
    with gpus.in_force(Costs(device, gpus.constants(device, ("split",)).seconds)):
        found = costs.choose(pv.Spec("LSTM", 8, 8), (5, 3), device=device)
        assert (found.method, dict(found.seconds)) == ("packed", {})
        assert f"no constants have been measured on a {'GPU' if device == 'cuda' else 'CPU'}" in found.reason
        assert costs.staircase(pv.Spec("LSTM", 8, 8), (5, 3, 3, 1), device=device) == (0, 1, 3, 5)
        assert "not measured" in repr(costs.in_force(device))
    with gpus.in_force():
        assert "not measured" in repr(costs.in_force("cuda"))


def calibrated(device, modes):
    """What `calibrate` makes of times, for some RNNs: here every run takes as many seconds as there are cells."""
    values = {}
    for point in (calibration.Point(*some) for some in calibration._points(modes, 1)):
        values[point] = {}
        for name, run in calibration._every_run(point, device):
            values[point].setdefault(name, {})[run.what] = 1e-6 * run.amount[2] * (9 if run.name == "packed" else 1)
    provenance = {"device": device, "device_name": f"a {device} that is made up", "threads": 1, "date": "2026-11-22T10"}
    return calibration.Calibration(provenance, values).costs


def test_constants_measured_on_a_gpu_choose(gpu, tmp_path):
    rnn, lengths = nn.LSTM(3, 16, device="meta"), [9, 8, 8]
    assert pv.plan(rnn, lengths).method == "packed"
    measured = calibrated("cuda", calibration.MODES)
    measured.save(tmp_path / "mine.json")
    for constants in (measured, Costs.load(tmp_path / "mine.json")):
        with gpus.in_force(constants):
            found = pv.plan(rnn, lengths)
            assert found.method != "packed"
            assert set(found.seconds) >= {"packed", "padded", "split"}
            assert found.reason == "constants measured on a cuda that is made up, 2026-11-22"


def test_of_what_was_not_calibrated_nothing_is_known(gpu):
    """It once was merged with guesses."""
    calibrated("cuda", ["LSTM"]).use()
    assert pv.plan(nn.LSTM(3, 16, device="meta"), [9, 8, 8]).seconds
    assert (
        "no constants have been measured on a GPU for such an RNN"
        in pv.plan(nn.GRU(3, 4, device="meta"), [5, 2]).reason
    )


def test_a_plan_says_where_its_constants_come_from(monkeypatch):
    shipped = costs.in_force("cpu", torch.get_num_threads())
    name, threads = shipped.provenance["device_name"], shipped.provenance["threads"]
    said = f"constants measured on {name}, torch threads: {threads}, {shipped.provenance['date'][:10]}"
    planned = pv.plan(pv.Spec("LSTM", 8, 8), [5, 3])
    monkeypatch.setattr(costs, "cpu_name", lambda: name)
    assert planned.reason == said
    monkeypatch.setattr(costs, "cpu_name", lambda: "a toaster")
    assert planned.reason == f"{said}; this machine has another processor, a toaster"
    assert repr(planned).endswith(f"reason: {planned.reason}")
    monkeypatch.setattr(costs, "_gpu_name", lambda: "GPU 2")
    assert costs.origin({"device": "cuda:0", "device_name": "GPU 1", "threads": 4, "date": "2026-11-22"}) == (
        "constants measured on GPU 1, 2026-11-22; this machine has another processor, GPU 2"
    )


def test_constants_taken_over_keep_their_origin():
    """`calibrate(modes=["LSTM"])` measures an LSTM here: those of a GRU are still those of the other machine."""
    before = pv.plan(pv.Spec("GRU", 8, 8), [5, 3]).reason
    with gpus.in_force(calibrated("cpu", ["LSTM"])):
        assert "a cpu that is made up" in pv.plan(pv.Spec("LSTM", 8, 8), [5, 3]).reason
        assert pv.plan(pv.Spec("GRU", 8, 8), [5, 3]).reason == before


def test_the_rule_that_decides_is_the_reason():
    assert "all lengths are equal" in pv.plan(nn.LSTM(3, 4), [5, 5]).reason
    assert "GRU" in pv.plan(nn.GRU(3, 4), [5, 2], training=False).reason
    hooked = nn.GRU(3, 4)
    hooked.register_forward_hook(lambda *given: None)
    assert re.search("calls the module", pv.plan(hooked, [5, 2]).reason)


# ---- 9. check_static is not ok where a trace freezes a length


# ---- 10. The legacy ONNX exporter ignores padding_value


# ---- 11. explain_errors never fails, follows causes, and can be installed


# ---- 12. diagnose says when it cannot judge


# ---- 13. What is almost certain is an error


# ---- 14. advise measures until it is clear, or says that it is not


# ---- 15. The names of a comparison are stable


# ---- 16. A truth table says which half it means


# ---- 17. A file's suffix and its contents agree


# ---- 18. A search says how sure it is


# ---- 19. A panel's complaint is in its text
