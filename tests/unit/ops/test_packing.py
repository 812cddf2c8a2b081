"""Compares packing and unpacking with torch's own: bits, indices, gradients and errors are the same
by every path.
"""

import gc
import pickle
import warnings
import weakref
from contextlib import contextmanager, nullcontext

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.nn.utils import rnn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._python_dispatch import TorchDispatchMode
from torchs import bad_batches, bits, hand_built, outcome, same, weights

import packviz as pv
from packviz.ops import index as indices
from packviz.ops import packing

WAYS = {"torch": (10**9, 10**9), "index": (0, 0), "chosen": None}
"""The numbers of time steps and of elements from which an index is used."""

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
COMPLEX = [torch.complex64, torch.complex128]
WHOLE = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
ways = pytest.mark.parametrize("way", WAYS)

trailing = st.sampled_from([(), (1,), (3,), (2, 2)])
any_way = st.sampled_from(list(WAYS))


@contextmanager
def by(way):
    """Makes everything take one path, even if it is slower."""
    before = packing._MIN_INDEX_STEPS, packing._MIN_INDEX_NUMBERS
    if WAYS[way]:
        packing._MIN_INDEX_STEPS, packing._MIN_INDEX_NUMBERS = WAYS[way]
    try:
        yield
    finally:
        packing._MIN_INDEX_STEPS, packing._MIN_INDEX_NUMBERS = before


@st.composite
def batches(draw, most=24):
    """Draws `lengths`, sorted or not, and a padded length. For more than 16, torch's sort is not
    stable.
    """
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=most))
    if draw(st.booleans()):
        lengths = [max(lengths)] * len(lengths)
    return lengths, max(lengths) + draw(st.integers(0, 2))


def cells(*shape, dtype=torch.float64, device="cpu"):
    """Returns a tensor of different numbers, with a NaN, an infinity and a negative zero among
    them.
    """
    x = torch.arange(1, 1 + torch.Size(shape).numel()).to(torch.float64)
    for i, odd in enumerate((float("nan"), float("inf"), -0.0)):
        x[(3 * i + 1) % len(x)] = odd
    x = torch.nan_to_num(x, 0, 1) if dtype in WHOLE else x
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ComplexHalf support is experimental
        return x.reshape(shape).to(dtype).to(device)


def padded(batch, rest=(), batch_first=False, **options):
    lengths, steps = batch
    return cells(
        *((len(lengths), steps) if batch_first else (steps, len(lengths))), *rest, **options
    )


def agrees(way, name, *arguments, **options):
    """Whether our function returns or raises by this way what torch's does."""
    with by(way):
        ours = outcome(getattr(pv, name), *arguments, **options)
    return same(ours, outcome(getattr(rnn, name), *arguments, **options))


def pads_as_torch(packed):
    return same(pv.pad_packed_sequence(packed), rnn.pad_packed_sequence(packed))


def has_same_gradients(ours, theirs, x):
    """Whether two results have the same gradients, bit for bit."""
    grads = [torch.autograd.grad(y, x, weights(y))[0] for y in (ours, theirs)]
    return torch.equal(*map(bits, grads))


def sort(batch):
    return sorted(batch[0], reverse=True), batch[1]


# --- the same values


@given(
    batches(),
    trailing,
    st.booleans(),
    st.booleans(),
    st.sampled_from(FLOATS + COMPLEX + WHOLE),
    any_way,
)
@example(([2] * 20, 2), (3,), True, False, torch.float32, "index")
@example(([2, 1], 2), (), False, True, torch.float32, "index")
def test_packs_as_torch(batch, rest, batch_first, enforce_sorted, dtype, way):
    batch = sort(batch) if enforce_sorted else batch
    x = padded(batch, rest, batch_first, dtype=dtype).requires_grad_(dtype in FLOATS)
    for lengths in (batch[0], torch.tensor(batch[0]), torch.tensor(batch[0], dtype=torch.int32)):
        with by(way):
            ours = pv.pack_padded_sequence(x, lengths, batch_first, enforce_sorted)
        theirs = rnn.pack_padded_sequence(x, lengths, batch_first, enforce_sorted)
        assert same(ours, theirs)
        if dtype in FLOATS:
            assert has_same_gradients(ours.data, theirs.data, x)


@given(
    batches(), trailing, st.booleans(), st.booleans(), st.sampled_from([None, 0, 2]),
    st.sampled_from(FLOATS + COMPLEX + WHOLE),
    st.sampled_from([0.0, -0.0, 1, True]), any_way,
)  # fmt: skip
@example(([2] * 20, 2), (3,), True, False, 0, torch.float32, 0.0, "index")
def test_pads_as_torch(batch, rest, batch_first, enforce_sorted, more, dtype, value, way):
    batch = sort(batch) if enforce_sorted else batch
    x = padded(batch, rest, dtype=dtype)
    packed = rnn.pack_padded_sequence(x, batch[0], enforce_sorted=enforce_sorted)
    differentiable = dtype in FLOATS + COMPLEX
    packed = packed._replace(data=packed.data.clone().requires_grad_(differentiable))
    total = None if more is None else max(batch[0]) + more
    with by(way):
        ours = pv.pad_packed_sequence(packed, batch_first, value, total)
    theirs = rnn.pad_packed_sequence(packed, batch_first, value, total)
    assert same(ours, theirs)
    if differentiable:
        assert has_same_gradients(ours[0], theirs[0], packed.data)


@ways
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("enforce_sorted", [False, True])
def test_any_memory(way, batch_first, enforce_sorted):
    lengths = [4, 3, 3, 1]
    wide = torch.randn(4, 4, 6, 2).requires_grad_()
    views = {
        "transposed": wide[..., 0].transpose(0, 1),
        "every other": wide[:, :, ::2, 0],
        "last": wide[..., 1],
        "expanded": wide[:, :1, 0, 0].expand(4, 4),
        "shared": wide[:1, :1, 0, 0].expand(4, 4),
        "flipped": wide[..., 0].permute(2, 0, 1)[:4],
    }
    for name, x in views.items():
        found = []
        for module, context in ((pv, by(way)), (rnn, nullcontext())):
            with context:
                packed = module.pack_padded_sequence(x, lengths, batch_first, enforce_sorted)
                back, _ = module.pad_packed_sequence(packed, batch_first)
            found.append(
                [packed, back, *torch.autograd.grad(back, wide, weights(back), retain_graph=True)]
            )
        assert same(found[0], found[1]), name


# --- the same errors


@ways
@pytest.mark.parametrize("grad", [False, True])
def test_bad_input_is_refused_as_torch_does(way, grad):
    for x, lengths, batch_first, enforce_sorted in bad_batches():
        if isinstance(x, torch.Tensor):
            x = x.requires_grad_(grad)
        arguments = x, lengths, batch_first, enforce_sorted
        assert agrees(way, "pack_padded_sequence", *arguments), arguments


@ways
@pytest.mark.parametrize("lengths", [[5, 2], [4, 4], [5, 4], [4, 3], [2, 9], [1, 4], [10**13, 1]])
@pytest.mark.parametrize("batch_first", [False, True])
def test_lengths_beyond_the_time_steps_are_refused(way, lengths, batch_first):
    x = torch.randn((2, 3, 1) if batch_first else (3, 2, 1))
    b = lengths.index(max(lengths))
    shape = (
        r"\(2, 3, 1\), read as \(B, T, …\)" if batch_first else r"\(3, 2, 1\), read as \(T, B, …\)"
    )
    said = rf"lengths\[{b}\] is {lengths[b]}.*: input of shape {shape}, has T = 3; give a length"
    enforced = (True, False) if lengths[0] >= lengths[1] else (False,)
    with by(way):
        for enforce_sorted in enforced:
            for y in (x, x.clone().requires_grad_()):
                with pytest.raises(ValueError, match=said):
                    pv.pack_padded_sequence(y, lengths, batch_first, enforce_sorted)


@ways
@pytest.mark.parametrize("enforce_sorted", [False, True])
@pytest.mark.parametrize("equal", [False, True])
def test_padding_values(way, enforce_sorted, equal):
    values = [
        1.5,
        True,
        2 + 1j,
        1e300,
        float("nan"),
        float("inf"),
        -1,
        torch.tensor(3.0),
        torch.ones(1),
        10**20,
        "0",
    ]
    for dtype in (
        torch.float32,
        torch.float16,
        torch.complex64,
        torch.int64,
        torch.uint8,
        torch.bool,
    ):
        data = cells(6, 2, dtype=dtype).requires_grad_(dtype in FLOATS)
        packed = rnn.pack_padded_sequence(
            torch.zeros(3, 2), [3, 3] if equal else [3, 1], enforce_sorted=enforce_sorted
        )
        packed = packed._replace(data=data[: len(packed.data)])
        for value in values:
            for total in (None, 5):
                arguments = packed, False, value, total
                assert agrees(way, "pad_packed_sequence", *arguments), (dtype, value)


@ways
def test_total_lengths(way):
    for enforce_sorted in (True, False):
        packed = rnn.pack_padded_sequence(
            torch.randn(4, 3, 2), [4, 4, 1], enforce_sorted=enforce_sorted
        )
        packed = packed._replace(data=packed.data.requires_grad_())
        for total in (3, 4, 7, 0, -1, True, 5.0, torch.tensor(5), "5", None):
            assert agrees(way, "pad_packed_sequence", packed, total_length=total), total


@ways
def test_packed_by_hand(way):
    for fields in hand_built():
        packed = PackedSequence(*fields)
        for batch_first in (False, True):
            with by(way):
                ours = outcome(pv.pad_packed_sequence, packed, batch_first)
            theirs = outcome(rnn.pad_packed_sequence, packed, batch_first)
            assert same(ours, theirs), packed
            if isinstance(ours, tuple) and ours[0].numel():
                assert has_same_gradients(ours[0], theirs[0], packed.data)


@ways
def test_no_time_steps_are_an_error_and_no_crash(way):
    packed = PackedSequence(torch.randn(7, 2).requires_grad_(), torch.tensor([], dtype=torch.int64))
    with by(way), pytest.raises(RuntimeError, match="batch_sizes can not be empty"):
        pv.pad_packed_sequence(packed)
    if torch.__version__ >= "2.13":  # 2.9 crashes
        with pytest.raises(RuntimeError, match="batch_sizes can not be empty"):
            rnn.pad_packed_sequence(packed)


@ways
@pytest.mark.parametrize("enforce_sorted", [False, True])
def test_masks_are_taken(way, enforce_sorted):
    lengths = [5, 3, 3] if enforce_sorted else [3, 5, 3]
    x = torch.randn(5, 3, 2, requires_grad=True)
    mask = pv.real_mask(lengths)
    wanted = rnn.pack_padded_sequence(x, lengths, enforce_sorted=enforce_sorted)
    with by(way):
        for form in (mask, mask.int(), mask.numpy()):
            packed = pv.pack_padded_sequence(x, form, enforce_sorted=enforce_sorted)
            assert same(packed, wanted)
        for wrong, message in (
            (mask.flip(1), "row [01] of the mask has padding at time step 0 before real cells"),
            (2 * mask.int(), "values other than 0 and 1"),
            (mask.float(), "a mask of torch.float32 is ambiguous"),
        ):
            with pytest.raises(ValueError, match=message):
                pv.pack_padded_sequence(x, wrong, enforce_sorted=enforce_sorted)


# --- derivatives


@ways
@pytest.mark.parametrize("lengths", [[3, 1, 2], [2, 2, 2], [3, 3, 3]])
@pytest.mark.parametrize("batch_first", [False, True])
def test_gradcheck(way, lengths, batch_first):
    x = torch.randn(3, 3, dtype=torch.float64).requires_grad_()

    def there_and_back(x):
        packed = pv.pack_padded_sequence(x, lengths, batch_first, enforce_sorted=False)
        squared = packed._replace(data=packed.data**2)
        return packed.data**2, pv.pad_packed_sequence(squared, batch_first, 2.0, 4)[0]

    with by(way):
        assert gradcheck(there_and_back, x)
        assert gradgradcheck(there_and_back, x)


@ways
def test_results_may_be_changed_in_place(way):
    for batch_first in (False, True):
        for lengths in ([3, 1], [1, 3], [3, 3]):
            found = []
            for module, context in ((pv, by(way)), (rnn, nullcontext())):
                x = (
                    torch.arange(12.0)
                    .reshape(2, 3, 2)
                    .transpose(0, int(not batch_first))
                    .clone()
                    .requires_grad_()
                )
                with context:
                    packed = module.pack_padded_sequence(
                        x, lengths, batch_first, enforce_sorted=False
                    )
                    packed.data.mul_(3)
                    y, n = module.pad_packed_sequence(packed, batch_first)
                y[0, 0] = 0
                y.add_(1)
                (y**2).sum().backward()
                found.append((y, n, x.grad))
            assert same(*found)


class Work(TorchDispatchMode):
    """Counts operators, and the elements of their results."""

    def __init__(self):
        super().__init__()
        self.calls = self.numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        copies = not function.is_view and "empty" not in function.__name__
        self.calls += copies
        if copies and isinstance(result, torch.Tensor):
            self.numbers += result.numel()
        return result


def work(module, lengths, way, features=8):
    steps = max(lengths)
    x = torch.randn(steps, len(lengths), features).requires_grad_()
    with by(way):
        packed = module.pack_padded_sequence(x, lengths, enforce_sorted=False)
        y, _ = module.pad_packed_sequence(packed)
    with Work() as counted:
        torch.autograd.grad(y, x, torch.ones_like(y))
    return counted.calls, counted.numbers / x.numel()


def test_backward_is_linear():
    """torch's backward pass goes through the whole padded batch for each distinct length."""
    few, many = [16] * 8 + [8] * 8, list(range(16, 0, -1))
    for lengths in (few, many):
        assert work(pv, lengths, "index")[1] < 8
    assert work(rnn, many, "torch")[1] > 2 * 16 > 2 * work(rnn, few, "torch")[1]


# --- the index


def made(monkeypatch):
    """Returns a list that gets an entry for each new cell map."""
    found = []
    monkeypatch.setattr(
        indices, "CellMap", lambda *a, CellMap=indices.CellMap: found.append(1) or CellMap(*a)
    )
    return found


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("batch_first", [False, True])
def test_one_index_for_the_way_there_and_back(monkeypatch, kind, batch_first):
    routes = made(monkeypatch)
    model = getattr(torch.nn, kind)(2, 3, num_layers=2, bidirectional=True, batch_first=batch_first)
    x = torch.randn(4, 4, 2).requires_grad_()
    with by("index"):
        packed = pv.pack_padded_sequence(x, [2, 4, 1, 4], batch_first, enforce_sorted=False)
        out, _ = model(packed)
        assert out.batch_sizes is packed.batch_sizes
        y, n = pv.pad_packed_sequence(out, batch_first)
        y.sum().backward()
        assert len(routes) == 1
        assert n.tolist() == [2, 4, 1, 4]
        pv.pad_packed_sequence(out, batch_first)
        pv.pad_packed_sequence(out._replace(data=out.data.double()), batch_first)
        assert len(routes) == 1
    wanted = rnn.pad_packed_sequence(
        model(rnn.pack_padded_sequence(x, n, batch_first, False))[0], batch_first
    )[0]
    assert torch.allclose(y, wanted)


def test_an_index_goes_with_its_batch():
    x = torch.randn(3, 3, 2).requires_grad_()
    with by("index"):
        packed = pv.pack_padded_sequence(x, [1, 3, 2], enforce_sorted=False)
        kept = weakref.ref(indices.index_from_packed(packed))
        gc.collect()
        before = len(indices._index_cache)
        pv.pad_packed_sequence(packed)
        assert len(indices._index_cache) == before
        del packed
        gc.collect()
        assert kept() is None
        assert len(indices._index_cache) == before - 1


def test_an_index_is_never_stale():
    data = torch.randn(6, 2).requires_grad_()
    with by("index"):
        packed = PackedSequence(data, torch.tensor([3, 2, 1]), None, torch.tensor([2, 0, 1]))
        indices.cache_index(indices.index_from_packed(packed), packed)
        assert pads_as_torch(packed)
        packed.unsorted_indices.copy_(torch.tensor([0, 2, 1]))
        assert pads_as_torch(packed)
        packed.batch_sizes.copy_(torch.tensor([4, 1, 1]))
        packed = packed._replace(unsorted_indices=torch.tensor([3, 0, 1, 2]))
        assert pads_as_torch(packed)
        other = packed._replace(unsorted_indices=torch.tensor([0, 3, 1, 2]))
        assert pads_as_torch(other)
        assert pads_as_torch(packed)
        assert agrees("index", "pad_packed_sequence", packed._replace(data=data[:5]))


@ways
def test_packed_sequences_stay_torchs_own(way):
    x = torch.randn(3, 3, 2).requires_grad_()
    with by(way):
        packed = pv.pack_padded_sequence(x, [1, 3, 2], enforce_sorted=False)
        assert type(packed) is PackedSequence
        for other in (packed.double(), packed.to(torch.float16), packed.cpu(), packed.float()):
            assert pads_as_torch(other)
        detached = packed._replace(data=packed.data.detach())
        copy = pickle.loads(pickle.dumps(detached))
        assert same(copy, detached)
        assert same(pv.pad_packed_sequence(copy), rnn.pad_packed_sequence(detached))


# --- function transforms


@ways
def test_functional_transforms_are_torchs_affair(way):
    x = torch.randn(2, 3, 3, 2)
    lengths = torch.tensor([1, 3, 2])

    def pack(module):
        return lambda x: module.pack_padded_sequence(x, lengths, enforce_sorted=False).data

    def pad(module):
        packed = rnn.pack_padded_sequence(x[0], lengths, enforce_sorted=False)
        return lambda x: module.pad_packed_sequence(packed._replace(data=x))[0]

    rows = torch.randn(2, 6, 2)
    with by(way), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for make, one in ((pack, x), (pad, rows)):
            for transform in (
                torch.func.vmap,
                lambda f: torch.func.vmap(torch.func.grad(lambda x: f(x).sum())),
            ):
                ours, theirs = (
                    outcome(transform(make(module)), one.clone().requires_grad_())
                    for module in (pv, rnn)
                )
                assert (
                    torch.equal(ours, theirs) if isinstance(ours, torch.Tensor) else ours == theirs
                )
            with forward_ad.dual_level():
                dual = [
                    forward_ad.make_dual(one[0].clone().requires_grad_(), torch.ones_like(one[0]))
                    for _ in range(2)
                ]
                ours, theirs = (
                    outcome(make(module), d) for module, d in zip((pv, rnn), dual, strict=True)
                )
                if isinstance(ours, torch.Tensor):
                    assert torch.equal(*(forward_ad.unpack_dual(y).tangent for y in (ours, theirs)))
                else:
                    assert ours == theirs
            jacobians = [
                torch.autograd.functional.jacobian(make(module), one[0], vectorize=True)
                for module in (pv, rnn)
            ]
            assert torch.equal(*jacobians)
