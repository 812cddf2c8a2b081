"""Compares the everyday helpers with plain loops and with torch, and tests that they never wait for
a device.
"""

import re
import warnings
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from habits import habit_since
from hypothesis import assume, example, given
from hypothesis import strategies as st
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence
from waits import NoWaiting

import packviz as pv

NAN = float("nan")
sides = st.sampled_from(["left", "right"])
trailing = st.sampled_from([(), (1,), (3,), (2, 2)])


@st.composite
def ragged(draw, shortest=0, most=7):
    """Draws `lengths`, and a width of at least the longest."""
    lengths = draw(st.lists(st.integers(shortest, most), min_size=1, max_size=5))
    return lengths, max(lengths) + draw(st.integers(0, 2))


def cells(*shape, dtype=torch.float64):
    """Returns a tensor whose entries are all different, and not 0."""
    return torch.arange(1, 1 + torch.Size(shape).numel()).reshape(shape).to(dtype)


def padded(lengths, steps, *rest, batch_first=True):
    shape = (len(lengths), steps) if batch_first else (steps, len(lengths))
    return cells(*shape, *rest)


def batch_major(x, batch_first):
    return x if batch_first else x.transpose(0, 1)


# --- real_mask


@given(ragged(), st.booleans())
def test_mask_equals_a_loop(batch, given_width):
    lengths, steps = batch
    mask = pv.real_mask(lengths, steps if given_width else None)
    steps = steps if given_width else max(lengths)
    assert mask.dtype == torch.bool
    assert mask.tolist() == [[t < n for t in range(steps)] for n in lengths]


def test_no_sequences():
    assert pv.real_mask([]).shape == (0, 0)
    assert pv.real_mask([], 3).shape == (0, 3)
    assert pv.masked_loss(torch.ones(4, 0), []).item() == 0
    assert pv.align(torch.ones(4, 0, 2), []).shape == (4, 0, 2)


# --- masked_loss


def loop_loss(loss, lengths, reduction):
    """Computes a loss over `(B, T, …)`, one sequence after another."""
    each = [row[:n].flatten() for row, n in zip(loss, lengths, strict=True)]
    if reduction == "sequence":
        return torch.stack([r.mean() if r.numel() else r.sum() for r in each])
    flat = torch.cat(each)
    return flat.sum() if reduction == "sum" or not flat.numel() else flat.mean()


@given(
    ragged(),
    trailing,
    st.booleans(),
    st.sampled_from(["mean", "sum", "sequence"]),
    st.sampled_from([1.0, NAN, float("inf"), -float("inf")]),
)
@example(([0, 0], 2), (3,), True, "mean", NAN)
@example(([0, 2], 2), (3,), False, "sequence", NAN)
def test_loss_equals_a_loop_whatever_the_padding_holds(
    batch, rest, batch_first, reduction, padding
):
    lengths, steps = batch
    loss = padded(lengths, steps, *rest, batch_first=batch_first)
    batch_major(loss, batch_first)[~pv.real_mask(lengths, steps)] = padding
    loss.requires_grad_()
    yours = pv.masked_loss(loss, lengths, batch_first=batch_first, reduction=reduction)
    target = loop_loss(batch_major(loss, batch_first), lengths, reduction)
    assert torch.allclose(yours, target, rtol=1e-12, atol=0)
    weights = cells(*target.shape)
    (got,) = torch.autograd.grad((yours * weights).sum(), loss)
    (wanted,) = torch.autograd.grad((target * weights).sum(), loss, materialize_grads=True)
    assert torch.allclose(got, wanted, rtol=1e-12, atol=0)


def wave(*shape):
    return 3 * cells(*shape).sin()


def classes(*shape):
    return torch.randint(5, shape)


def chances(*shape):
    return torch.rand(*shape, 5, dtype=torch.float64).softmax(-1)


WEIGHT = torch.tensor([0.5, 2.0, 1.0, 0.1, 3.0], dtype=torch.float64)
LOSSES = {
    "cross entropy": (F.cross_entropy, (5,), classes, {}),
    "weighted": (F.cross_entropy, (5,), classes, {"weight": WEIGHT}),
    "smooth": (
        F.cross_entropy,
        (5,),
        classes,
        {"weight": WEIGHT, "label_smoothing": 0.2, "ignore_index": 0},
    ),
    "images": (F.cross_entropy, (5, 2), lambda *shape: classes(*shape, 2), {"ignore_index": 1}),
    "probabilities": (F.cross_entropy, (5,), chances, {"weight": WEIGHT}),
    "partial": (partial(F.cross_entropy, weight=WEIGHT), (5,), classes, {"ignore_index": 4}),
    "negative log-likelihood": (F.nll_loss, (5,), classes, {"weight": WEIGHT, "ignore_index": 2}),
    "squares": (F.mse_loss, (5,), chances, {}),
    "one number": (F.smooth_l1_loss, (), cells, {"beta": 0.5}),
    "logits": (F.binary_cross_entropy_with_logits, (5,), chances, {"pos_weight": WEIGHT}),
    "of one's own": (
        lambda x, y, reduction: (x - y).abs().sqrt(),
        (),
        cells,
        {},
    ),  # its gradient at 0 is infinite
}


@pytest.mark.parametrize("name", LOSSES)
@given(ragged(), st.booleans(), st.sampled_from([NAN, float("inf")]), st.booleans())
def test_a_loss_function_gives_what_torch_gives_on_the_real_cells(
    name, batch, batch_first, poison, by_name
):
    lengths, steps = batch
    function, rest, make, options = LOSSES[name]
    real = pv.real_mask(lengths, steps)
    x, y = wave(len(lengths), steps, *rest), make(len(lengths), steps)
    kept = x[real].requires_grad_()
    x[~real], y[~real] = poison, -1 if y.dtype == torch.int64 else poison
    x = batch_major(x, batch_first).contiguous().requires_grad_()
    given_lengths = {"lengths": lengths} if by_name else {}
    called = [function, x, batch_major(y, batch_first), *([] if by_name else [lengths])]
    yours = pv.masked_loss(*called, batch_first=batch_first, **given_lengths, **options)
    (got,) = torch.autograd.grad(yours, x)
    got = batch_major(got, batch_first)
    assert (got[~real] == 0).all()
    own = name == "of one's own"
    wanted = function(kept, y[real], "none").mean() if own else function(kept, y[real], **options)
    if wanted.isnan():  # without any cells, or if all of them are ignored
        assert yours == 0
        assert not got.any()
        return
    torch.testing.assert_close(yours, wanted)
    torch.testing.assert_close(got[real], torch.autograd.grad(wanted, kept)[0])


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "of one's own"])
def test_the_other_reductions_of_a_loss_function(name):
    function, rest, make, options = LOSSES[name]
    lengths, x, y = [3, 1, 4], wave(3, 4, *rest), make(3, 4)
    loss = partial(pv.masked_loss, function, x, y, lengths, batch_first=True, **options)
    alone = [(x[b, :n], y[b, :n]) for b, n in enumerate(lengths)]
    each = torch.stack([function(*one, **options) for one in alone]).nan_to_num(0)
    torch.testing.assert_close(loss(reduction="sequence"), each)
    total = sum(function(*one, reduction="sum", **options) for one in alone)
    torch.testing.assert_close(loss(reduction="sum"), total)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_mean_keeps_the_dtype_and_does_not_overflow(dtype):
    loss = torch.full((2, 64), 4096.0, dtype=dtype)
    mean = pv.masked_loss(loss, [64, 3], batch_first=True)
    assert mean.dtype == dtype
    assert mean.item() == 4096


# --- align


def loop_align(rows, lengths, side, source, width, value):
    """Aligns nested lists `(B, T)`, with the padding of the result and of the rows on these sides."""  # noqa: E501
    out = []
    for row, n in zip(rows, lengths, strict=True):
        real = row[:n] if source == "right" else row[len(row) - n :]
        blank = [value] * (width - n)
        out.append(real + blank if side == "right" else blank + real)
    return out


@given(
    ragged(),
    st.integers(0, 3),
    sides,
    sides,
    trailing,
    st.booleans(),
    st.sampled_from([0, -1]),
    st.booleans(),
)
@example(([0, 0], 0), 2, "right", "left", (), True, 0, True)
def test_align_equals_a_loop(batch, more, side, source, rest, batch_first, value, contiguous):
    lengths, steps = batch
    width = max(lengths) + more
    x = padded(lengths, steps, *rest, batch_first=batch_first)
    if not contiguous:
        x = torch.stack([x, -x], dim=-1)[..., 0]
    x.requires_grad_()
    options = {"max_len": width, "batch_first": batch_first, "padding_value": value}
    y = pv.align(x, lengths, padding_side=side, source_side=source, **options)
    blank = (
        [[value] * rest[1]] * rest[0] if len(rest) == 2 else [value] * rest[0] if rest else value
    )
    wanted = loop_align(batch_major(x, batch_first).tolist(), lengths, side, source, width, blank)
    assert batch_major(y, batch_first).tolist() == wanted
    if not steps:
        return  # without cells there is no gradient
    y.sum().backward()  # every real cell is copied once, and no padding
    real = pv.real_mask(lengths, steps)
    real = real if source == "right" else real.flip(1)
    assert torch.equal(
        batch_major(x.grad, batch_first),
        real.reshape(*real.shape, *[1] * len(rest)).expand_as(batch_major(x, batch_first)).double(),
    )


# --- unpack_to_length


@given(
    ragged(shortest=1),
    st.integers(-3, 3),
    trailing,
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, -2.5]),
)
def test_unpack_equals_torch(batch, more, rest, batch_first, ordered, value):
    lengths, _ = batch
    if ordered:
        lengths = sorted(lengths, reverse=True)
    length = max(lengths) + more
    assume(length >= 0)
    packed = pack_sequence(
        [100 * b + cells(n, *rest) for b, n in enumerate(lengths)], enforce_sorted=ordered
    )
    data = packed.data.requires_grad_()
    yours = pv.unpack_to_length(packed, length, batch_first, value, truncate=more < 0)
    whole = pad_packed_sequence(packed, batch_first, value, total_length=max(length, max(lengths)))[
        0
    ]
    wanted = whole[:, :length] if batch_first else whole[:length]
    assert torch.equal(yours, wanted)
    weights = cells(*wanted.shape)
    got, expected = (torch.autograd.grad((out * weights).sum(), data)[0] for out in (yours, wanted))
    assert torch.equal(got, expected)


# --- errors


X = torch.ones(3, 1)
FUNCTION_FIRST = re.escape(
    "pv.masked_loss(F.cross_entropy, logits, targets, lengths, batch_first=…)"
)


def packed_pair():
    return pack_sequence([torch.zeros(2), torch.zeros(5)], enforce_sorted=False)


def wrong(function, *given, **options):
    return lambda: function(*given, **options)


SQUARES, ONES = F.mse_loss, torch.ones(5, 2)
with warnings.catch_warnings():  # they are deprecated
    warnings.simplefilter("ignore")
    QUANTISED = torch.quantize_per_tensor(ONES, 1.0, 0, torch.quint8)
CLASSES = F.cross_entropy, torch.ones(2, 5, 4), torch.ones(2, 4), [4, 2]
REFUSED = {
    r"lengths\[1\] is -1: a sequence has at least 0": wrong(pv.real_mask, [3, -1]),
    r"lengths\[1\] is 5: more than max_len \(4\)": wrong(pv.real_mask, [3, 5], 4),
    r"whole numbers or a \(B, T\) mask, got torch.float32 of shape \(1,\) on meta": wrong(
        pv.real_mask, torch.ones(1, device="meta"), 4
    ),
    r"booleans: .* mask \(B, T\)": wrong(pv.real_mask, torch.tensor([True])),
    "max_len is -1; give a whole number": wrong(pv.real_mask, [1], -1),
    "max_len is required where the lengths cannot be read": wrong(
        pv.real_mask, torch.ones(2, dtype=int, device="meta")
    ),
    r'loss is torch.float32 of shape \(\).*reduction="none"': wrong(
        pv.masked_loss, torch.tensor(1.0), [2]
    ),
    r"loss is torch.int32 .* give floating-point": wrong(
        pv.masked_loss, torch.ones(2, 1).int(), [2]
    ),
    "loss is a list; give a floating-point tensor, or a function": wrong(
        pv.masked_loss, [[1.0]], [1]
    ),
    f"loss is an MSELoss; .* {FUNCTION_FIRST}": wrong(
        pv.masked_loss, torch.nn.MSELoss(), X, X, [3]
    ),
    f"with a loss per cell, give only .* {FUNCTION_FIRST}": wrong(pv.masked_loss, X, X, [3]),
    f"a loss function needs .* {FUNCTION_FIRST}": wrong(pv.masked_loss, SQUARES, X, [3]),
    "passed by name: batch_first=True": wrong(pv.masked_loss, X, [3], True),
    r"shapes \(2, 5, 4\) and \(2, 4\), but all need .* logits": wrong(
        pv.masked_loss, *CLASSES, batch_first=True
    ),
    r"lengths\[0\] is 9: more than .* predictions": wrong(pv.masked_loss, SQUARES, X, X, [9]),
    r"returned shape \(\) where B · T = 3": wrong(
        pv.masked_loss, lambda x, y, reduction: x.sum(), X, X, [3]
    ),
    "reduction is 'none'; choose": wrong(pv.masked_loss, torch.ones(2, 1), [1], reduction="none"),
    r"loss of shape \(2, 5\).* has B = 5;.*batch_first=True\?": wrong(
        pv.masked_loss, ONES.T, [5, 3]
    ),
    "padding_side is 'middle'; choose one of": wrong(pv.align, ONES, [5, 2], padding_side="middle"),
    r"x must be \(T, B, …\), got shape \(5,\)": wrong(pv.align, torch.ones(5), [5]),
    r"x must be a tensor \(T, B, …\), got list": wrong(pv.align, [[1]], [1]),
    r"lengths\[0\] is 5: .* max_len \(4\)": wrong(pv.align, ONES, [5, 2], max_len=4),
    "packed must be a PackedSequence, got Tensor": wrong(pv.unpack_to_length, torch.ones(2), 3),
    "longest length is 5: give at least 5, or truncate=True": wrong(
        pv.unpack_to_length, packed_pair(), 3
    ),
    r"lengths\[0\] is 4611686018427387904: more than the largest number": wrong(
        pv.real_mask, [2**62]
    ),
    "max_len is 4611686018427387904; give at most 10,000,000": wrong(pv.real_mask, [1], 2**62),
    r"lengths is a quantised tensor; give lengths\.dequantize": wrong(pv.real_mask, QUANTISED),
    r"x is a quantised tensor; give x\.dequantize": wrong(pv.align, QUANTISED, [1]),
    "padding_value is -100, which torch.uint8 cannot hold: .* from 0 to 255": wrong(
        pv.align, ONES.byte(), [5, 2], padding_value=-100
    ),
    "padding_value is 0.5, which torch.int64 cannot hold": wrong(
        pv.unpack_to_length, packed_pair().to(torch.int64), 9, padding_value=0.5
    ),
    "total_length is -3; give a whole": wrong(
        pv.unpack_to_length, packed_pair(), -3, truncate=True
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refusals(message):
    with pytest.raises((TypeError, ValueError), match=message):
        REFUSED[message]()


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize(
    ("function", "more"),
    [
        (F.mse_loss, 0),
        (F.l1_loss, 0),
        (F.gaussian_nll_loss, 1),
        (lambda x, y, reduction: (x - y) ** 2, 0),
        (partial(F.huber_loss, delta=2.0), 0),
    ],
)
@pytest.mark.parametrize(
    ("predictions", "targets"),
    [((3, 5, 1), (3, 5)), ((3, 5), (3, 5, 1)), ((3, 5, 1), (3, 5, 4)), ((1, 2, 2, 3), (1, 2, 3))],
)
def test_shapes_that_would_be_broadcast_are_refused(function, more, predictions, targets):
    lengths = [2] * predictions[0]
    given = [torch.ones(predictions), torch.ones(targets), *[torch.ones(predictions)] * more]
    with pytest.raises((ValueError, RuntimeError), match=r"broadcast|must match|incorrect size"):
        pv.masked_loss(function, *given, lengths, batch_first=True)


def test_ignored_targets_do_not_count_for_any_loss():
    lengths = [3, 2]
    logits = cells(2, 4, 5).sin()
    targets = torch.tensor([[1, -100, 2, -100], [3, 4, -100, -100]])
    wanted = pv.masked_loss(F.cross_entropy, logits, targets, lengths, batch_first=True)

    def own(x, y, reduction):
        return F.cross_entropy(x, y, reduction=reduction)

    with pytest.warns(UserWarning, match="real cells whose target is -100"):
        ours = pv.masked_loss(own, logits, targets, lengths, batch_first=True)
    torch.testing.assert_close(ours, wanted)
    with pytest.warns(UserWarning, match="some targets are -100, but not all of them"):
        pv.masked_loss(F.cross_entropy, logits, targets, [2, 2], batch_first=True)


@pytest.mark.parametrize("weighted", [False, True])
def test_classes_of_one_byte(weighted):
    """In uint8, -100 would be class 156."""
    logits = torch.randn(2, 4, 256)
    targets = torch.tensor([[104, 195, 156, 33], [156, 10, 0, 0]], dtype=torch.uint8)
    options = {"weight": torch.rand(256)} if weighted else {}
    real = pv.real_mask([4, 2], 4)
    expected = F.cross_entropy(logits[real], targets[real], **options)
    ours = pv.masked_loss(F.cross_entropy, logits, targets, [4, 2], batch_first=True, **options)
    torch.testing.assert_close(ours, expected)


def test_inside_a_transform_of_torch_func():
    x, targets = torch.randn(2, 4, 3), torch.randint(0, 3, (2, 4))
    functions = [
        lambda x: pv.masked_loss(F.cross_entropy, x, targets, [4, 2], batch_first=True),
        lambda x: (x.sum(2) * pv.real_mask([4, 2], 4)).sum(),
        lambda x: pv.last_output(x, [4, 2], True).square().sum(),
        lambda x: pv.align(x, [4, 2], source_side="right", batch_first=True).square().sum(),
    ]
    for function in functions:
        leaf = x.clone().requires_grad_()
        (expected,) = torch.autograd.grad(function(leaf), leaf)
        torch.testing.assert_close(torch.func.grad(function)(x), expected)


def test_targets_are_tensors_and_a_loss_is_no_class():
    x, lengths = torch.randn(2, 4, 3), [4, 2]
    with pytest.raises(TypeError, match="targets must be a tensor, got an ndarray"):
        pv.masked_loss(F.cross_entropy, x, np.zeros((2, 4)), lengths, batch_first=True)
    with pytest.raises(TypeError, match="loss is the class CrossEntropyLoss; give"):
        pv.masked_loss(torch.nn.CrossEntropyLoss, x, x, lengths, batch_first=True)


def test_the_mask_of_a_layout_is_a_mask():
    layout = pv.Layout([3, 1])
    assert pv.real_mask(layout.mask).sum() == 4  # its array is read-only


@pytest.mark.parametrize("padding_value", [0.0, NAN])
@given(ragged(), sides, trailing, st.booleans())
def test_what_is_aligned_already_stays(padding_value, batch, side, rest, batch_first):
    lengths, steps = batch
    assume(len(lengths) * steps - sum(lengths) != 1)  # a single cell of padding shows nothing
    x = padded(lengths, steps, *rest, batch_first=batch_first)
    options = {"padding_side": side, "padding_value": padding_value, "batch_first": batch_first}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = "right" if side == "left" else "left"
        once = pv.align(x, lengths, source_side=source, **options)
        again = pv.align(once, lengths, **options)
    torch.testing.assert_close(again, once, equal_nan=True)
    assert torch.equal(pv.align(x, [steps] * len(lengths), **options), x)


@given(ragged(), st.booleans(), st.booleans())
def test_last_outputs_are_the_final_states(batch, batch_first, bidirectional):
    lengths, steps = batch
    gru = pv.GRU(3, 4, batch_first=batch_first, bidirectional=bidirectional)
    x = padded(lengths, steps + 1, 3, batch_first=batch_first).float().sin()
    output, h_n = gru(x, lengths=lengths)
    last = pv.last_output(output, lengths, batch_first, bidirectional=bidirectional)
    torch.testing.assert_close(last, h_n.transpose(0, 1).flatten(1))


def test_an_output_without_two_directions_is_refused():
    for shape in ((2, 4), (2, 4, 7)):
        with pytest.raises(ValueError, match="no third dimension with two directions"):
            pv.last_output(torch.randn(shape), [4, 2], batch_first=True, bidirectional=True)


class Subclass(torch.Tensor):
    """As fastai has one: a tensor with another name, whose values torch reads as usual."""


@pytest.mark.parametrize("wrong", [[-3, 4], [4, 99]])
def test_lengths_in_a_subclass_of_tensor_are_checked(wrong):
    loss, lengths = torch.ones(2, 4), torch.tensor(wrong).as_subclass(Subclass)
    for function in (
        lambda: pv.masked_loss(loss, lengths, batch_first=True),
        lambda: pv.last_output(loss[..., None], lengths, batch_first=True),
        lambda: pv.real_mask(lengths, 4),
    ):
        with pytest.raises(ValueError, match=r"lengths\[\d\] is (-3|99)"):
            function()
    assert pv.real_mask(torch.tensor([3, 1]).as_subclass(Subclass)).sum() == 4


# --- devices


def calls(device, lengths):
    """Calls every helper on tensors of this device."""
    x = torch.ones(4, 3, 2, device=device, requires_grad=True)
    yield pv.real_mask(torch.as_tensor(lengths, device=device), 4)
    for batch_first in (False, True):
        y = batch_major(x, batch_first=not batch_first)
        for reduction in ("mean", "sum", "sequence"):
            options = {"batch_first": batch_first, "reduction": reduction}
            yield pv.masked_loss(y, lengths, **options)
            yield pv.masked_loss(
                F.cross_entropy, y, y[..., 0].long(), lengths, weight=y[0, 0].detach(), **options
            )
        for side in ("left", "right"):
            options = {"padding_side": side, "max_len": 5, "batch_first": batch_first}
            for source in ("left", "right"):
                yield pv.align(y, lengths, source_side=source, **options)
            yield pv.align(y, torch.ones(3, 4, dtype=torch.bool, device=device), **options)
    order = torch.tensor([1, 0], device=device)
    packed = PackedSequence(
        torch.ones(3, 2, device=device, requires_grad=True), torch.tensor([2, 1]), order, order
    )
    for length in (1, 4):
        yield pv.unpack_to_length(packed, length, truncate=True)


@pytest.mark.parametrize("where", ["on the device", "on the CPU"])
def test_nothing_waits_for_a_device(where):
    """On the meta device, reading a value is an error, and so is an operation that would wait,
    forward or backward.
    """
    lengths = torch.tensor([4, 0, 2], device="meta" if where == "on the device" else "cpu")
    if where == "on the CPU":
        outs = list(calls("meta", lengths))  # its checks read the lengths, which are on the host
    else:
        with NoWaiting():
            outs = list(calls("meta", lengths))
    with NoWaiting():
        for out in outs:
            assert out.device.type == "meta"
            if out.requires_grad:
                out.sum().backward()


# --- torch.compile


def compiled(function, backend="aot_eager"):
    torch.compiler.reset()
    return torch.compile(function, fullgraph=True, dynamic=True, backend=backend)


EVERY = {
    "mask": lambda x, n: pv.real_mask(n, x.shape[1]),
    "mean": lambda x, n: pv.masked_loss(x, n, batch_first=True),
    "function": lambda x, n: pv.masked_loss(
        F.cross_entropy, x, x.argmax(2), n, batch_first=True, ignore_index=1
    ),
    "sum": lambda x, n: pv.masked_loss(x.transpose(0, 1), n, reduction="sum"),
    "sequence": lambda x, n: pv.masked_loss(x, n, batch_first=True, reduction="sequence"),
    "right": lambda x, n: pv.align(x, n, batch_first=True),
    "left": lambda x, n: pv.align(x.transpose(0, 1), n, padding_side="left"),
    "wide": lambda x, n: pv.align(
        x, n, padding_side="left", source_side="left", max_len=x.shape[1] + 3, batch_first=True
    ),
    "by a mask": lambda x, n: pv.align(x, pv.real_mask(n, x.shape[1]), batch_first=True),
}


@pytest.mark.parametrize("name", EVERY)
def test_compiles_whole_with_dynamic_shapes(name):
    # What aot_eager adds, the derivatives, takes long, and the others have nothing new for it.
    function = compiled(EVERY[name], "aot_eager" if name in ("function", "by a mask") else "eager")
    for lengths, steps in (([3, 0, 2], 4), ([1, 5], 6), ([2, 7, 3, 4], 7)):
        n = torch.tensor(lengths)
        there, here = (padded(lengths, steps, 2).requires_grad_() for _ in range(2))
        yours, wanted = function(there, n), EVERY[name](here, n)
        torch.testing.assert_close(yours, wanted, rtol=1e-5, atol=1e-8)
        if wanted.requires_grad:
            yours.square().sum().backward()
            wanted.square().sum().backward()
            assert torch.allclose(there.grad, here.grad)


def test_unpack_compiles_whole():
    function = compiled(lambda packed: pv.unpack_to_length(packed, 6))
    for lengths in ([2, 5], [1, 3, 2]):
        packed = pack_sequence([cells(n, 2) for n in lengths], enforce_sorted=False)
        assert torch.equal(function(packed), pv.unpack_to_length(packed, 6))


@pytest.mark.parametrize("name", ["loss", "lengths", "mask"])
@habit_since("2.8")
def test_exports_with_a_dynamic_batch(name):
    calls = {
        "loss": lambda x, n, **first: pv.masked_loss(x, n, **first),
        "lengths": lambda x, n, **first: pv.align(x, n, **first),
        "mask": lambda x, n, **first: pv.align(x, pv.real_mask(n, x.shape[0]), **first),
    }

    class Model(torch.nn.Module):
        def forward(self, x, n):
            return calls[name](x, n)

    example = padded([4, 1, 3], 4, batch_first=False), torch.tensor([4, 1, 3])
    steps, size = torch.export.Dim("T", min=2), torch.export.Dim("B", min=2)
    shapes = {"x": {0: steps, 1: size}, "n": {0: size}}
    program = torch.export.export(Model(), example, dynamic_shapes=shapes).module()
    for lengths, width in (
        ([2, 5], 6),
        ([3, 1, 2], 3),
    ):  # the second is square, which causes no warning in a program
        x, n = padded(lengths, width, batch_first=False), torch.tensor(lengths)
        assert torch.equal(program(x, n), calls[name](x, n, batch_first=False))


def test_a_weight_for_each_cell_is_refused():
    prediction, target, weight = torch.rand(3, 2, 5)
    costs = torch.rand(3, 3)
    scores, classes = torch.rand(3, 4, 3), torch.zeros(3, 4, dtype=torch.int64)

    def cost(scores, classes, weight, reduction):
        return (scores.softmax(1) * weight[classes]).sum(1)

    assert pv.masked_loss(cost, scores, classes, [4, 3, 2], batch_first=True, weight=costs) > 0
    for each in (weight, weight.flatten()[:, None].expand(10, 2)):
        predictions = prediction[..., None].expand(2, 5, 2)
        with pytest.raises(ValueError, match="weight has shape"):
            pv.masked_loss(
                F.mse_loss, predictions, predictions, [5, 3], batch_first=True, weight=each
            )
    with pytest.raises(ValueError, match=r"weight has shape \(2, 5\); give one number per class"):
        pv.masked_loss(F.mse_loss, prediction, target, [5, 3], batch_first=True, weight=weight)


@pytest.mark.parametrize(
    "value", [0.5, np.float32(0.5), np.float64(0.5), np.int64(300), 300, np.float16("inf")]
)
def test_a_padding_value_that_does_not_fit_is_refused_whatever_its_type(value):
    x = torch.ones(2, 5, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"padding_value is .*, which torch.uint8 cannot hold"):
        pv.align(x, [5, 3], batch_first=True, padding_value=value)
