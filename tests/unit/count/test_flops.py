"""Tests of FLOPs: they equal those that PyTorch's own counter sees, and the element-wise operations
of ATen.
"""

import json

import numpy as np
import pytest
import torch
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st
from specs import module, specs
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import packviz as pv
from packviz.core.layout import Layout
from packviz.core.spec import GATES, Spec
from packviz.count.flops import flops
from packviz.draw import bars, palette

SIX = [9, 8, 6, 4, 3, 2]


layouts = st.builds(
    lambda lengths, extra: Layout(lengths, max(lengths) + extra),
    st.lists(st.integers(1, 6), min_size=1, max_size=5),
    st.integers(0, 2),
)


def runs(spec, layout, input_grad=False):
    """Returns functions that run the RNN padded and packed, and return all of its output."""
    rnn = module(spec)
    x = torch.randn(layout.max_len, layout.batch_size, spec.input_size, requires_grad=input_grad)
    lengths = torch.tensor(layout.lengths)
    return (
        lambda: rnn(x)[0],
        lambda: rnn(pack_padded_sequence(x, lengths, enforce_sorted=False))[0].data,
    )


def counted(run, mode=None):
    """Returns the FLOPs that a mode counts in a run without the fused kernel."""
    mode = mode or FlopCounterMode(display=False)
    with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None), mode:
        run()
    return mode.get_total_flops()


# The counts.


@given(specs(), layouts)
def test_forward_is_what_torch_counts(spec, layout):
    count = flops(spec, layout)
    padded, packed = runs(spec, layout)
    assert count.padded == counted(padded)
    assert count.packed == counted(packed)
    assert count.saved == count.padded - count.packed


@given(specs(), layouts, st.booleans())
def test_forward_and_backward_are_what_torch_counts(spec, layout, input_grad):
    count = flops(spec, layout, input_grad=input_grad)
    padded, packed = runs(spec, layout, input_grad)
    assert count.training.padded == counted(lambda: padded().sum().backward())
    assert count.training.packed == counted(lambda: packed().sum().backward())
    assert count.backward.padded == count.training.padded - count.padded
    assert count.backward.packed == count.training.packed - count.packed


class ElementCounter(TorchDispatchMode):
    """Counts one FLOP for each result of an element-wise operation, and for each bias added to a
    product.
    """

    COUNTED = ("add", "sub", "mul", "sigmoid", "tanh", "relu")

    def __init__(self):
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__.rstrip("_")
        if name in self.COUNTED or name == "addmm":  # a product with its bias
            self.total += out.numel()
        return out

    def get_total_flops(self):
        return self.total


@given(specs(), layouts)
def test_elementwise_is_what_aten_does(spec, layout):
    count = flops(spec, layout)
    padded, packed = runs(spec, layout)
    assert count.elementwise.padded == counted(padded, ElementCounter())
    assert count.elementwise.packed == counted(packed, ElementCounter())


# One time step of each kind of RNN, in plain torch. `product` multiplies by a new weight and adds a
# new bias. A new kind in `GATES` needs a function here.


def rnn_step(x, h, c, product):
    return torch.tanh(product(x) + product(h)), c


def gru_step(x, h, c, product):
    r = torch.sigmoid(product(x) + product(h))
    z = torch.sigmoid(product(x) + product(h))
    n = torch.tanh(product(x) + r * product(h))
    return n + z * (h - n), c


def lstm_step(x, h, c, product):
    i, f, o = (torch.sigmoid(product(x) + product(h)) for _ in range(3))
    c = f * c + i * torch.tanh(product(x) + product(h))
    return o * torch.tanh(c), c


STEPS = {"RNN": rnn_step, "GRU": gru_step, "LSTM": lstm_step}


@pytest.mark.parametrize("kind", GATES)
@given(layouts, st.integers(1, 4), st.integers(1, 5))
def test_every_kind_is_counted_as_its_steps_in_plain_torch(kind, layout, inputs, hidden):
    def product(rows):
        return rows @ torch.randn(rows.shape[1], hidden) + torch.randn(hidden)

    def run(sizes):
        for size in sizes:
            x, h, c = (
                torch.randn(size, inputs),
                torch.randn(size, hidden),
                torch.randn(size, hidden),
            )
            STEPS[kind](x, h, c, product)

    count, padded = flops(Spec(kind, inputs, hidden), layout), [layout.batch_size] * layout.max_len
    assert count.padded == counted(lambda: run(padded))
    assert count.packed == counted(lambda: run(layout.batch_sizes))
    assert count.elementwise.padded == counted(lambda: run(padded), ElementCounter())
    assert count.elementwise.packed == counted(lambda: run(layout.batch_sizes), ElementCounter())


def test_the_fused_kernel_hides_its_products():
    """Notebook 07 warns of this. If the test fails, torch's counter knows the kernel, and the
    notebook must change.
    """
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this build of PyTorch has no oneDNN")
    with FlopCounterMode(display=False) as counter:
        torch.nn.LSTM(3, 7)(torch.randn(9, 6, 3))
    assert counter.get_total_flops() == 0


@given(specs(), layouts, st.booleans())
def test_steps_and_sequences_add_up(spec, layout, input_grad):
    count = flops(spec, layout, input_grad=input_grad)
    for work in count.rows().values():
        for both, n in ((work.per_step, layout.max_len), (work.per_sequence, layout.batch_size)):
            assert both.padded.shape == both.packed.shape == (n,)
            assert (both.padded.sum(), both.packed.sum()) == (work.padded, work.packed)
            assert both.saved.sum() == work.saved
            assert (both.packed >= 0).all()
            assert (both.saved >= 0).all()


def test_one_sequence_counted_alone_is_its_share_of_the_backward_pass():
    spec, layout = Spec("GRU", 2, 3, 2, True), Layout([4, 2, 4, 1])
    shares = flops(spec, layout).backward.per_sequence.packed
    alone = flops(spec, [4]).backward.packed
    assert shares[0] == shares[2] == alone
    # Shorter ones join the reverse direction late, where a gradient of the state is computed for
    # all rows.
    assert shares[1] > flops(spec, [2]).backward.packed


def test_counts_beyond_32_bits():
    count = flops(Spec("LSTM", 4096, 4096, 8), [100_000] * 1000)
    assert count.padded == 10**8 * 8 * 2 * 4 * 4096 * 8192
    assert isinstance(count.padded, int)


# The RNN.


def test_what_is_no_rnn():
    for other in (torch.nn.LSTMCell(2, 3), "LSTM", None):
        with pytest.raises(
            TypeError, match=r"rnn is [\w ]+: give an nn\.RNN, nn\.GRU or nn\.LSTM, or Spec\("
        ):
            flops(other, [1])


# The text and the picture.


def test_in_words():
    said = flops(Spec("LSTM", 3, 7, 2, True), SIX, input_grad=True).to_text()
    assert said.startswith("LSTM(3, 7), 2 layers, bidirectional: 3,472 GEMM FLOPs per cell.")
    assert "backward (and x)       365,568  216,720  148,848  40.7 %" in said
    assert (
        "forward, per sequence:  padded 31,248 for each; packed [31248, 27776, 20832, 13888, 10416, 6944]"  # noqa: E501
        in said
    )
    assert str(Spec("LSTM", 3, 7, proj_size=2, bias=False)) == "LSTM(3, 7), proj_size 2, no bias"


@given(specs(), layouts, st.sampled_from(["light", "dark", "live"]))
def test_picture(spec, layout, theme):
    count = flops(spec, layout)
    said = ParsedSvg(count.to_svg(theme)).said()
    for name, work in count.rows().items():
        assert name in said
        assert any(s.startswith(f"{work.packed:,} of {work.padded:,}: ") for s in said)
    assert f"{count.per_step.padded[0]:,}" in said


# Bars.


def by_fill(picture):
    """Returns the solid and the hatched boxes, each without the first one, which is in the key."""
    hatches = (palette.LIGHT.padding, palette.DARK.padding)
    solid = [box for box in picture.boxes if box.fill == bars.SOLID_FILL]
    hatched = [box for box in picture.boxes if box.fill in hatches]
    return solid[1:], hatched[1:]


@given(specs(), layouts)
def test_bars_of_steps_are_in_proportion(spec, layout):
    both = flops(spec, layout).per_step
    picture = ParsedSvg(bars.draw_step_bars("title", both.packed, both.padded, "light").svg())
    top = both.padded.max()
    solid, hatched = by_fill(picture)
    assert np.allclose(
        [box.height for box in solid], 120 * both.packed[both.packed > 0] / top, atol=0.02
    )
    assert np.allclose(
        [box.height for box in hatched], 120 * both.saved[both.saved > 0] / top, atol=0.02
    )
    assert len({round(box.bottom, 1) for box in solid}) == 1
    assert len({round(box.y, 1) for box in hatched}) <= 1
    assert all(box.x >= 0 and box.right <= picture.width for box in picture.boxes)


@given(st.lists(st.tuples(st.integers(0, 10**15), st.integers(0, 10**15)), min_size=1, max_size=4))
def test_bars_of_totals_are_in_proportion(pairs):
    rows = {f"row {i}": pair for i, pair in enumerate(pairs)}
    picture = ParsedSvg(bars.draw_saving_bars("title", rows, "dark").svg())
    solid, hatched = by_fill(picture)
    scale = max(box.right - min(box.x for box in solid) for box in [*solid, *hatched]) / (
        max(map(sum, pairs)) or 1
    )
    assert np.allclose([box.width for box in solid], [a * scale for a, _ in pairs], atol=0.02)
    assert np.allclose([box.width for box in hatched], [b * scale for _, b in pairs], atol=0.02)
    assert all(text.box.right <= picture.width for text in picture.texts)
    assert all(text.box.x >= 0 for text in picture.texts)


@given(
    st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=6), min_size=1, max_size=5),
    st.booleans(),
)
def test_counts_of_several_batches_are_sums(batches, input_grad):
    rnn = Spec("GRU", 3, 4, 2, True)
    each = tuple(flops(rnn, batch, input_grad=input_grad) for batch in batches)
    for given_as in (
        batches,
        [Layout(batch) for batch in batches],
        [torch.tensor(batch) for batch in batches],
    ):
        together = flops(rnn, given_as, input_grad=input_grad)
        for kind in ("forward", "backward", "training", "elementwise"):
            for way in ("padded", "packed", "saved"):
                assert getattr(getattr(together, kind), way) == sum(
                    getattr(getattr(one, kind), way) for one in each
                )
        assert together.ratio == sum(one.packed for one in each) / sum(one.padded for one in each)


def test_the_ratio_of_sums_is_not_the_mean_of_ratios():
    spec, batches = Spec("LSTM", 3, 7), [[100, 1], [2, 2]]
    together = flops(spec, batches)
    assert together.ratio == 105 / 204
    assert np.mean([flops(spec, batch).ratio for batch in batches]) == pytest.approx(
        (101 / 200 + 1) / 2
    )
    assert "2 batches: 204 cells, 105 real, 99 padding." in together.to_text()
    assert "Packing leaves out 48.5 % of the forward FLOPs" in together.to_svg()


def test_numbers_can_be_passed_on():
    counted = pv.flops(Spec("LSTM", 3, 7), [5, 3, 2])
    first = counted.to_dict()["rows"][0]
    assert first == {"pass": "forward", "padded": 8400, "packed": 5600, "saved": 2800}
    assert json.loads(json.dumps(counted.to_dict())) == counted.to_dict()
    assert "| forward | 8,400 | 5,600 | 2,800 |" in counted.to_markdown()


@pytest.mark.parametrize("bidirectional", [False, True])
def test_empty_sequences_cost_nothing_when_packed(bidirectional):
    spec = pv.Spec("LSTM", 3, 7, bidirectional=bidirectional)
    for lengths in ([3, 0], [0, 4, 2, 0]):
        counted = pv.flops(spec, lengths)
        alone = pv.flops(spec, [n for n in lengths if n])
        assert counted.training.packed == alone.training.packed
        per_sequence = counted.training.per_sequence.packed
        assert per_sequence.sum() == counted.training.packed
        assert (per_sequence == 0).tolist() == [n == 0 for n in lengths]
        assert counted.training.per_step.packed.sum() == counted.training.packed
    nothing = pv.flops(spec, [0, 0])
    for counts in (nothing, nothing.training):
        assert (counts.padded, counts.packed, counts.ratio, counts.per_step) == (0, 0, 0, None)
    assert "0" in str(nothing)


def test_masks_describe_batches_like_lengths():
    spec = pv.Spec("LSTM", 3, 7)
    layouts = [pv.Layout(lengths, 6) for lengths in ([5, 3], [2, 1, 1])]
    masks = [torch.tensor(layout.mask) for layout in layouts]
    assert pv.flops(spec, masks) == pv.flops(spec, layouts)
    assert pv.flops(spec, masks[0]) == pv.flops(spec, layouts[0])
