"""Tests of counts of operators, kernels, nodes and bytes, which must agree with formulas in the
lengths.
"""

import copy

import numpy as np
import pytest
import torch
from habits import habit_since
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from packviz.core.layout import Layout
from packviz.core.lengths import equal, triangle
from packviz.count import profile
from packviz.count.operators import Operator, observe
from packviz.ops import original

CPU = torch.device("cpu")
layouts = st.builds(
    lambda lengths, extra: Layout(lengths, max(lengths) + extra),
    st.lists(st.integers(1, 12), min_size=1, max_size=9),
    st.integers(0, 3),
)
features = st.integers(1, 5)


def exponent(x, y):
    return np.polyfit(np.log(x), np.log(y), 1)[0]


def same(counted, expected, pad):
    """Asserts a count. If it differs, the message names torch or packviz as the cause."""
    why = f"changed upstream: torch has a derivative formula for pad, {pad.formula}, so notebook 09 needs rewriting"  # noqa: E501
    assert counted == expected, why if pad.formula else "broken here, or torch has other operators"


def distinct(layout):
    return len(set(layout.lengths.tolist()))


# The counts as formulas in D distinct lengths, N real cells, T × B cells and F features of 4 bytes.


@given(layouts, features)
def test_pad(layout, f):
    pad = profile.count(layout, f).pad
    d, n, cells, shortest = (
        distinct(layout),
        layout.n_real,
        layout.n_cells,
        int(layout.lengths.min()),
    )
    assert pad.forward.kernels == d + 1  # full, and a copy for each length
    assert pad.forward.bytes == 4 * f * (cells + n)
    same(pad.nodes, 3 * d + 1, pad)
    same(pad.backward.kernels, 7 * d - 3, pad)
    # Each length: a copy of the padded gradient, a packed zero-fill; all but one: a packed
    # addition. And each slice is taken out once, and, all but the first one, zeroed and put back.
    slices = n + 2 * (n - layout.batch_size * shortest)
    same(pad.backward.bytes, 4 * f * (d * cells + d * n + (d - 1) * n + slices), pad)


@given(layouts, features)
def test_pack(layout, f):
    pack = profile.count(layout, f).pack
    steps, n = layout.batch_sizes.size, layout.n_real
    assert pack.forward.kernels == 1  # its parts cannot be seen
    assert pack.forward.bytes == 4 * f * n + 8 * steps  # and batch_sizes
    assert (pack.nodes, pack.formula) == (2, "PackPaddedSequenceBackward")
    assert pack.backward.kernels == steps + 1  # zeros, then a copy for each time step
    assert pack.backward.bytes == 4 * f * (layout.n_cells + n)


@given(layouts, features)
def test_torch_sorts(layout, f):
    before = profile.count(layout, f)
    after = profile.count(layout, f, enforce_sorted=False)
    gradient = 4 * f * layout.n_cells
    assert "sort" in {o.name for o in after.pack.forward.operators}
    for one, other in ((before.pack, after.pack), (before.pad, after.pad)):
        assert other.nodes == one.nodes + 1  # index_select
        assert other.backward.kernels == one.backward.kernels + 2  # new_zeros, index_add
        assert other.backward.bytes == one.backward.bytes + 2 * gradient


@given(layouts, features)
def test_meta_counts_what_the_cpu_counts(layout, f):
    cpu, meta = (profile.count(layout, f, device=device) for device in ("cpu", "meta"))
    assert (cpu.pack, cpu.pad) == (meta.pack, meta.pad)  # every operator of every node


def test_the_table():
    """The reference counts are those of the forum's setups A and B with 512 sequences and 32
    features.
    """
    sizes = [32, 64, 128]
    pads = {
        make: [profile.count(make(512, t), device="meta").pad for t in sizes]
        for make in (equal, triangle)
    }
    a, b = pads.values()
    same([pad.nodes for pad in (*a, *b)], [4, 4, 4, 97, 193, 385], b[0])
    same([float(f"{pad.backward.bytes / 1e9:.3g}") for pad in b], [0.138, 0.545, 2.16], b[0])
    for some, power in ((a, 1), (b, 2)):
        assert exponent(sizes, [pad.backward.bytes for pad in some]) == pytest.approx(
            power, abs=0.02
        )


# RNNs.


@pytest.mark.parametrize(
    ("kind", "make", "packed", "power"),
    [
        *((kind, triangle, True, 2) for kind in ("RNN", "GRU", "LSTM")),
        *((kind, equal, packed, 1 + packed) for kind in ("RNN", "GRU") for packed in (True, False)),
    ],
)
def test_a_packed_rnn_on_the_cpu_is_quadratic_and_equal_lengths_do_not_help(
    kind, make, packed, power
):
    rnn, steps = getattr(nn, kind)(3, 4), [8, 16, 32]
    runs = [profile.count_rnn(rnn, make(32, t), packed=packed) for t in steps]
    written = exponent(steps, [run.backward.bytes for run in runs])
    assert power - 0.4 < written < power + 0.2, (
        "broken here, or does the packed RNN no longer narrow per step?"
    )
    if packed and make is triangle:
        assert 0.8 < exponent(steps, [run.nodes for run in runs]) < 1.1


def test_each_narrow_fills_a_whole_tensor():
    steps, rows, hidden = 6, 4, 5
    run = profile.count_rnn(nn.GRU(3, hidden), [steps] * rows)
    (zero_fills,) = [o for o in run.backward.by_name() if o.name == "slice_backward"]
    assert zero_fills == Operator(
        "slice_backward", steps, 2 * steps, steps * 4 * steps * rows * 3 * hidden
    )


@habit_since("2.13")
@pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="without oneDNN an LSTM has no fused kernel"
)
def test_a_packed_lstm_of_equal_lengths_is_fused():
    short, long = (profile.count_rnn(nn.LSTM(3, 4), [t] * 4) for t in (5, 20))
    assert short.nodes == long.nodes
    assert "mkldnn_rnn_layer_backward" in {o.name for o in long.backward.operators}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_the_rnn_is_left_alone(packed, batch_first):
    rnn = nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=batch_first)
    before, state = copy.deepcopy(rnn.state_dict()), torch.random.get_rng_state()
    run = profile.count_rnn(rnn, [2, 5, 3], packed=packed)
    assert (run.name, run.gradient) == (
        ("padded LSTM", 4 * 2 * 4 * 15),
        ("packed LSTM", 4 * 2 * 4 * 10),
    )[packed]
    assert all(p.grad is None for p in rnn.parameters())
    assert all(
        map(
            torch.equal,
            [*before.values(), state],
            [*rnn.state_dict().values(), torch.random.get_rng_state()],
        )
    )


# The convention.


def counted(call, x):
    return list(observe(lambda: call(x), CPU)[1])


X = torch.zeros(4, 6)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x[1:],
        lambda x: x.expand(2, 4, 6).unbind(),
        lambda x: x.detach(),
        lambda x: torch.ops.aten.unsafe_split(x, 2),  # a view, although its schema declares none
        lambda x: torch.empty_like(x),
        lambda x: x.new_empty(3),
        lambda x: x[0, 0].item(),
        lambda x: x[:0].clone(),
    ],
)
def test_views_and_allocations_fill_nothing(call):
    assert counted(call, X) == []


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda x: x + 1, Operator("add", 1, 1, 96)),
        (lambda x: x[1:3].fill_(2), Operator("fill_", 1, 1, 48)),  # in place: what it touches
        (lambda x: torch.add(x, 1, out=torch.empty_like(x)), Operator("add", 1, 1, 96)),
        (lambda x: torch.full((5,), 1.0, dtype=torch.double), Operator("full", 1, 1, 40)),
        (lambda x: x > 0, Operator("gt", 1, 1, 24)),
        (lambda x: x.sort(), Operator("sort", 1, 1, 96 + 192)),  # values and indices
        (
            lambda x: torch.ops.aten.slice_backward(x[:2], [4, 6], 0, 0, 2, 1),
            Operator("slice_backward", 1, 2, 96),
        ),
    ],
)
def test_what_an_operator_fills(call, expected):
    assert counted(call, X.clone()) == counted(call, X.to("meta")) == [expected]


def test_results_are_what_they_are_without_counting():
    x = torch.randn(7, 4, requires_grad=True)

    def run():
        packed = pack_padded_sequence(x.view(7, 2, 2), [7, 3])
        output, n = pad_packed_sequence(packed)
        (gradient,) = torch.autograd.grad(output.sin().sum(), x)
        return output, n, gradient

    plain = run()
    under, _, kernels = observe(run, CPU)
    assert all(torch.equal(a, b) for a, b in zip(plain, under, strict=True))
    assert kernels > 10


@given(layouts)
def test_kernels_are_those_that_the_profiler_sees(layout):
    """torch's profiler sees every operator, even inside others. The test lists those that fill
    memory.
    """
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        pass  # the first one warms up
    fills = {"aten::copy_", "aten::zero_", "aten::add_", "aten::add"}
    order = sorted(layout.lengths.tolist(), reverse=True)
    packed = pack_padded_sequence(torch.zeros(layout.max_len, layout.batch_size, 2), order)
    data = packed.data.requires_grad_()
    output, _ = pad_packed_sequence(packed._replace(data=data))
    gradient = torch.zeros_like(output)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        output.backward(gradient)
    pad = profile.count(order, 2).pad
    same(pad.backward.kernels, sum(event.name in fills for event in seen.events()), pad)


# A torch with a derivative of its own.


class PadPackedSequence(torch.autograd.Function):
    """A derivative formula that torch may have in the future."""

    @staticmethod
    def forward(ctx, data, packed, steps):
        ctx.packed, ctx.steps = packed, steps
        return REAL_PAD(packed._replace(data=data.detach()), total_length=steps)[0]

    @staticmethod
    def backward(ctx, gradient):
        lengths = REAL_PAD(ctx.packed._replace(data=ctx.packed.data.detach()))[1]
        return pack_padded_sequence(gradient, lengths).data, None, None


REAL_PAD = pad_packed_sequence


def test_a_formula_is_noticed(monkeypatch):
    def pad(packed, batch_first=False, total_length=None):
        return PadPackedSequence.apply(packed.data, packed, total_length), None

    monkeypatch.setattr(original, "pad_packed_sequence", pad)
    pad = profile.count([5, 3, 2, 2], 4).pad
    assert (pad.formula, pad.nodes) == ("PadPackedSequenceBackward", 2)
    said = "torch has a derivative formula for pad, PadPackedSequenceBackward, so there are only 2 autograd nodes."  # noqa: E501
    assert pad.verdict == said
    with pytest.raises(
        AssertionError, match=r"changed upstream: torch .*PadPackedSequenceBackward"
    ):
        same(pad.nodes, 10, pad)


# Helpers and words.


def test_in_words():
    counts = profile.count([3, 2, 2], 4)
    if not counts.pad.formula:
        assert [line.split()[-1] for line in repr(counts).splitlines()] == ["2", "written", *"BBBB"]
        assert repr(counts.pad).splitlines()[1:] == repr(counts).splitlines()[-2:]
        assert "pad, backward                  11       7     768 B" in repr(counts)
        assert "copy_               3        3    304 B    40 %" in repr(counts.pad.backward)


def test_what_cannot_be_counted():
    with pytest.raises(
        ValueError, match="enforce_sorted is False, but tensors on the meta device have no data to"
    ):
        profile.count([2, 3], enforce_sorted=False, device="meta")
    with pytest.raises(ValueError, match=r"lengths\[0\] is 2\.5"):
        profile.count_rnn(nn.GRU(2, 2), [2.5])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_counts_the_same():
    here, there = (profile.count([5, 4, 2, 2], 8, device=device) for device in ("cpu", "cuda"))
    for one, other in ((here.pack, there.pack), (here.pad, there.pad)):
        assert one.node_names == other.node_names
        assert one.backward.bytes == other.backward.bytes
        assert other.backward.kernels >= len(other.backward.operators)
    run = profile.count_rnn(nn.GRU(3, 4, device="cuda"), [5, 4, 2])
    assert "CudnnRnnBackward" in run.node_names
