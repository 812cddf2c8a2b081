"""Tests of `Layout`: it agrees with torch's own packing and the worked examples, and rejects wrong
input."""

import copy
import dataclasses
import pickle
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
)

from packviz.core.layout import MAX_STEPS, Layout, sequence_name

some_lengths = st.lists(
    st.integers(1, 12), min_size=1, max_size=40
)  # torch's sort moves ties from 17 sequences on


def cells(lengths, steps):
    """Returns a tensor, `(T, B)`, in which the cell of sequence b at time step t is b·T + t."""
    return torch.arange(len(lengths) * steps).reshape(len(lengths), steps).T


def pack(lengths, steps=None, enforce_sorted=False):
    return pack_padded_sequence(
        cells(lengths, steps or max(lengths)), lengths, enforce_sorted=enforce_sorted
    )


def refusal(message):
    """Expects a ValueError whose message begins like this."""
    return pytest.raises(ValueError, match=f"^{re.escape(message)}")


def agrees_with_torch(layout, packed, lengths, steps):
    """Asserts that every array of `layout` agrees with torch's `packed`, and with the result of
    padding it again."""
    B = len(lengths)
    assert layout.lengths.tolist() == list(lengths)
    assert layout.batch_sizes.tolist() == packed.batch_sizes.tolist()
    if packed.sorted_indices is None:
        assert layout.sorted_indices.tolist() == layout.unsorted_indices.tolist() == list(range(B))
    else:
        assert layout.sorted_indices.tolist() == packed.sorted_indices.tolist()
        assert layout.unsorted_indices.tolist() == packed.unsorted_indices.tolist()
    assert (layout.source @ [steps, 1]).tolist() == packed.data.tolist()

    ones = packed._replace(data=torch.ones(len(packed.data), dtype=torch.bool))
    mask, _ = pad_packed_sequence(ones, batch_first=True, total_length=layout.max_len)
    assert layout.mask.tolist() == mask.tolist()
    rows = packed._replace(data=torch.arange(len(packed.data)))
    places, _ = pad_packed_sequence(
        rows, batch_first=True, total_length=layout.max_len, padding_value=-1
    )
    assert layout.packed_index.tolist() == places.tolist()

    assert (layout.batch_size, layout.n_real, layout.n_cells) == (
        B,
        len(packed.data),
        B * layout.max_len,
    )
    assert layout.n_padding == layout.n_cells - layout.n_real == int((~mask).sum())
    assert layout.offsets.tolist() == [0, *packed.batch_sizes.cumsum(0).tolist()]
    assert layout.is_sorted == (layout.sorted_indices.tolist() == list(range(B)))


@given(st.lists(st.integers(0, 6), min_size=1, max_size=12), st.integers(0, 2))
def test_empty_sequences_have_no_cells(lengths, extra):
    """The layout agrees with that of the other sequences, which torch packs."""
    layout = Layout(lengths, max(lengths) + extra)
    full = [b for b, n in enumerate(lengths) if n]
    assert Layout.from_offsets(layout.starts).lengths.tolist() == lengths
    assert layout.mask.sum(1).tolist() == lengths
    if not full:
        assert layout.batch_sizes.size == layout.source.size == 0
        return
    others = Layout([lengths[b] for b in full], layout.max_len)
    assert layout.batch_sizes.tolist() == others.batch_sizes.tolist()
    assert layout.source.tolist() == [[full[b], t] for b, t in others.source.tolist()]
    assert layout.packed_index[full].tolist() == others.packed_index.tolist()
    assert (layout.packed_index[~layout.mask] == -1).all()


@given(some_lengths, st.integers(0, 5))
def test_layout_of_an_unsorted_batch_is_torchs(lengths, extra):
    steps = max(lengths) + extra
    packed = pack(lengths, steps)
    read = Layout.from_packed(packed)
    agrees_with_torch(read, packed, lengths, steps)
    sequences = [row[:n] for row, n in zip(cells(lengths, max(lengths)).T, lengths, strict=True)]
    agrees_with_torch(
        Layout.from_packed(pack_sequence(sequences, False)), pack(lengths), lengths, max(lengths)
    )
    # With torch's permutation, everything else follows from the lengths, also with padding for all.
    agrees_with_torch(
        Layout(lengths, steps, sorted_indices=packed.sorted_indices), packed, lengths, steps
    )


@given(some_lengths)
def test_layout_of_a_sorted_batch_is_torchs_without_being_told_the_order(lengths):
    lengths = sorted(lengths, reverse=True)
    packed = pack(lengths, enforce_sorted=True)
    agrees_with_torch(Layout.from_packed(packed), packed, lengths, max(lengths))
    assert Layout(lengths) == Layout.from_packed(packed)


@given(some_lengths)
def test_own_sort_is_stable(lengths):
    order = Layout(lengths).sorted_indices.tolist()
    assert order == sorted(range(len(lengths)), key=lambda b: -lengths[b])


@given(some_lengths)
def test_a_hand_built_packed_sequence_forgets_its_order(lengths):
    packed = pack(lengths)
    by_hand = PackedSequence(packed.data, packed.batch_sizes)
    layout = Layout.from_packed(by_hand)
    _, torchs = pad_packed_sequence(by_hand)
    assert layout.lengths.tolist() == torchs.tolist() == sorted(lengths, reverse=True)
    assert layout.is_sorted


@given(some_lengths, st.integers(0, 3))
def test_a_mask_and_its_layout_are_two_ways_to_say_the_same(lengths, extra):
    layout = Layout(lengths, max(lengths) + extra)
    for mask in (
        layout.mask,
        torch.from_numpy(layout.mask.copy()),
        layout.mask.tolist(),
        layout.mask.astype(float),
    ):
        assert Layout.from_mask(mask) == layout
        if not isinstance(mask, list):
            assert Layout(mask) == layout
            assert Layout(mask, layout.max_len + 1).max_len == layout.max_len + 1


@given(some_lengths)
def test_flat_rows_are_those_of_a_jagged_tensor(lengths):
    """Padded, flat and packed data contain the same rows, bit for bit."""
    x = torch.randn(len(lengths), max(lengths), 2)
    jagged = torch.nested.as_nested_tensor(
        [row[:n] for row, n in zip(x, lengths, strict=True)], layout=torch.jagged
    )
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    layout = Layout.from_packed(packed)
    rows, mask, flat = torch.tensor(layout.flat_rows), torch.tensor(layout.mask), jagged.values()
    assert layout.starts.tolist() == jagged.offsets().tolist()
    assert Layout.from_offsets(jagged.offsets()) == Layout(lengths)
    assert torch.equal(flat, x[mask])
    assert torch.equal(flat[rows], packed.data)
    assert torch.equal(torch.empty_like(flat).index_copy(0, rows, packed.data), flat)


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        (
            [5, 8, 10],
            "offsets is [5, 8, 10]; give 0, and then the row after the end of each sequence",
        ),
        ([0], "offsets is [0]; give 0, and then"),
        ([0, 8, 5, 10], "offsets[2] is 5: less than the offset before it"),
        ([0, 2.5], "offsets[1] is 2.5: not a whole number"),
        ([], "offsets is empty: give the row at which each sequence begins"),
        ([[0, 5]], "offsets must be one-dimensional, got shape (1, 2)"),
    ],
)
def test_wrong_offsets_are_refused(offsets, message):
    with refusal(message):
        Layout.from_offsets(offsets)


def test_thousands_of_sequences():
    lengths = np.random.default_rng(0).integers(1, 400, size=5000)
    packed = pack(lengths.tolist())
    agrees_with_torch(Layout.from_packed(packed), packed, lengths.tolist(), int(lengths.max()))


# The worked examples, with their exact values.


def test_the_worked_examples():
    assert Layout([5, 3, 2]).starts.tolist() == [0, 5, 8, 10]
    assert Layout([5, 3, 2]).flat_rows.tolist() == [0, 5, 8, 1, 6, 9, 2, 7, 3, 4]
    layout = Layout([3, 5, 2, 4])
    order = " ".join(f"{sequence_name(b)}{t + 1}" for b, t in layout.source)
    assert order == "b1 d1 a1 c1 b2 d2 a2 c2 b3 d3 a3 b4 d4 b5"
    assert layout.batch_sizes.tolist() == [4, 4, 3, 2, 1]
    assert layout.sorted_indices.tolist() == [1, 3, 0, 2]


# Wrong input, and the error messages.

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([3, -2], "lengths[1] is -2: a sequence has at least 0 time steps"),
        ([3, -1, -1, -1], "lengths[1] is -1 (one of 3 such entries): a sequence has"),
        ([3, 2.5], "lengths[1] is 2.5: not a whole number; torch would silently drop the fraction"),
        ([3, NAN], "lengths[1] is nan: not a whole number"),
        ([INF, 3], "lengths[0] is inf: not a whole number"),
        ([3, 1e30], "lengths[1] is 1e+30: too large"),
        (np.array([3, 2**63], dtype=np.uint64), "lengths[1] is 9223372036854775808: too large"),
        ([3, MAX_STEPS + 1], "lengths[1] is 10000001: a Layout has at most 10,000,000 time steps"),
        ([3, 2**70], "lengths[1] is 1.1805916207174113e+21: too large"),
        ([[3, 2]], "lengths must be one-dimensional, got shape (1, 2)"),
        (5, "lengths is 5; list the number of real time steps of each sequence, as in [5, 3, 2]"),
        (torch.tensor(5), "lengths is tensor(5); list the number"),
        (None, "lengths is None; list the number"),
        ("5 3", "lengths is '5 3'; list the number"),
        (iter([5, 3]), "lengths is a list_iterator; list the number"),
        (
            [[3], [2, 1]],
            "lengths has rows of different lengths: list the number of real time steps of each",
        ),
        ([], "lengths is empty: list the number of real time steps of each sequence"),
        (torch.tensor([]), "lengths is empty"),
        (
            [True, False],
            "lengths contains booleans: list the number",
        ),
        (["3", "2"], "lengths must contain whole numbers, got ['3', '2']"),
        ([3, None], "lengths must contain whole numbers, got [3, None]"),
        ([3 + 0j], "lengths must contain whole numbers"),
    ],
)
def test_wrong_lengths_are_refused(lengths, message):
    with refusal(message):
        Layout(lengths)


@pytest.mark.parametrize(
    ("max_len", "message"),
    [
        (2, "lengths[0] is 3: longer than max_len=2; shorten it, or raise max_len"),
        (0, "lengths[0] is 3 (one of 2 such entries): longer than max_len=0"),
        (4.0, "max_len is 4.0; give a whole number of at least 0"),
        (True, "max_len is True; give"),
        ("4", "max_len is '4'; give"),
        (MAX_STEPS + 1, "max_len is 10000001: a Layout has at most 10,000,000 time steps"),
    ],
)
def test_wrong_max_len_is_refused(max_len, message):
    with refusal(message):
        Layout([3, 2], max_len)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ([0, 0, 1], "sorted_indices must contain each of 0 … 2 exactly once, got [0, 0, 1]"),
        ([0, 1], "sorted_indices must contain each of 0 … 2 exactly once, got [0, 1]"),
        ([1, 2, 3], "sorted_indices must contain each of 0 … 2 exactly once"),
        ([-1, 0, 1], "sorted_indices must contain each of 0 … 2 exactly once"),
        (
            [1, 0, 2],
            "sorted_indices[1] is 0: this sequence is longer than the one before it",
        ),
        ([[0, 1, 2]], "sorted_indices must be one-dimensional"),
        ([0.5, 1, 2], "sorted_indices[0] is 0.5: not a whole number"),
    ],
)
def test_wrong_orders_are_refused(order, message):
    with refusal(message):
        Layout([3, 2, 2], sorted_indices=order)


@dataclasses.dataclass
class Claim:
    """An object with the attributes of a packed sequence. torch's own class would reject some of
    these values."""

    data: object
    batch_sizes: object
    sorted_indices: object = None


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        (Claim(range(3), [1, 2]), "packed.batch_sizes[1] is 2: more than the size before it"),
        (Claim(range(4), [2, 1]), "packed.batch_sizes adds up to 3, but len(packed.data) is 4"),
        (
            Claim(range(2), [2, 0]),
            "packed.batch_sizes[1] is 0: every time step needs at least one sequence",
        ),
        (Claim(range(0), []), "packed.batch_sizes is empty"),
        (
            Claim(range(3), [2, 1], [0, 0]),
            "packed.sorted_indices must contain each of 0 … 1 exactly once, got [0, 0]",
        ),
        (
            Claim(range(3), [2, 1], [0]),
            "packed.sorted_indices must contain each of 0 … 1 exactly once, got [0]",
        ),
        (Claim(range(3), [2, 1], [[0, 1]]), "packed.sorted_indices must be one-dimensional"),
    ],
)
def test_wrong_packed_sequences_are_refused(packed, message):
    with refusal(message):
        Layout.from_packed(packed)


@pytest.mark.parametrize("thing", [[3, 2], torch.ones(2), None])
def test_what_is_no_packed_sequence_is_refused(thing):
    with pytest.raises(
        TypeError,
        match=r"packed has no '\w+': give a torch PackedSequence, not .*call Layout\(lengths",
    ):
        Layout.from_packed(thing)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ([[1, 1], [0, 1]], "row 1 of the mask has padding at time step 0 before real cells; if"),
        (
            [[1, 0, 1], [1, 1, 1]],
            "row 0 of the mask has padding at time step 1 before real cells; move the padding",
        ),
        ([[0, 0], [0, 0]], "the mask has no real cell; if it is True at padding, pass mask == 0"),
        ([[1, 2]], "{} of shape (1, 2) holds values other than 0 and 1"),
        ([[1.0, NAN]], "{} of shape (1, 2) holds values other than 0 and 1"),
        (np.ones((0, 3)), "{} of shape (0, 3) is not a mask (B, T)"),
        (np.ones((3, 0)), "{} of shape (3, 0) is not a mask (B, T)"),
    ],
)
def test_wrong_masks_are_refused(mask, message):
    for read, name in ((Layout.from_mask, "mask"), (Layout, "lengths")):
        for array in (np.array(mask), torch.tensor(mask)):
            with refusal(message.format(name)):
                read(array)


def test_what_is_neither_lengths_nor_a_mask_is_refused():
    for nested in ([[1, 1], [1, 0]], [[1], [1, 0]]):  # these could be sequences or batches
        with pytest.raises(ValueError, match=r"^lengths (must be one-dimensional|has rows)"):
            Layout(nested)
    with pytest.raises(ValueError, match=r"^mask has rows of different lengths"):
        Layout.from_mask([[1], [1, 0]])
    for masked in (np.ma.array([3, 2]), np.ma.array([[1, 1]])):
        with pytest.raises(TypeError, match=r"^lengths is a NumPy masked array, .*; give a plain"):
            Layout(masked)
    with pytest.raises(TypeError, match=r"^lengths is a sparse tensor"):
        Layout(torch.ones(2, 2).to_sparse())
    with pytest.raises(ValueError, match=r"^lengths is on the meta device"):
        Layout(torch.ones(2, 2, device="meta"))


# A value: it cannot change, and equal ones are equal.

ARRAYS = [
    "lengths",
    "sorted_indices",
    "unsorted_indices",
    "batch_sizes",
    "offsets",
    "mask",
    "packed_index",
    "source",
]


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_are_read_only(name):
    layout = Layout([3, 1, 2])
    array = getattr(layout, name)
    assert torch.tensor(array).tolist() == array.tolist()
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(layout, name, 0)


def test_the_callers_arrays_are_copied():
    lengths, order = np.array([2, 3]), np.array([1, 0])
    layout = Layout(lengths, sorted_indices=order)
    lengths[0] = order[0] = 9
    assert layout == Layout([2, 3])


def test_equality_and_hash():
    layout = Layout([3, 2, 2])
    assert layout == Layout(torch.tensor([3, 2, 2])) == Layout([3, 2, 2], max_len=3)
    assert hash(layout) == hash(Layout((3, 2, 2)))
    others = [Layout([3, 2]), Layout([2, 3, 2]), Layout([3, 2, 2], 4)]
    others.append(Layout([3, 2, 2], sorted_indices=[0, 2, 1]))
    assert len({layout, *others}) == 5
    assert layout != [3, 2, 2]
    assert copy.deepcopy(layout) == pickle.loads(pickle.dumps(layout)) == layout


def test_repr():
    assert repr(Layout([3, 2])) == "Layout([3, 2]): 6 cells, 5 real"
    assert repr(Layout([3, 2], max_len=5)) == "Layout([3, 2], max_len=5): 10 cells, 5 real"
    many = repr(Layout([2] * 13))
    assert many == "Layout([2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, …]): 26 cells, 26 real"


def test_sequence_names_count_as_a_spreadsheet_does():
    names = [sequence_name(i) for i in (0, 1, 25, 26, 51, 52, 701, 702)]
    assert names == ["a", "b", "z", "aa", "az", "ba", "zz", "aaa"]


@pytest.mark.parametrize("batch_first", [False, True])
def test_a_padded_batch_by_its_shape(batch_first):
    shape = (2, 5, 7) if batch_first else (5, 2, 7)
    assert Layout.from_padded(shape, [3, 5], batch_first) == Layout([3, 5], max_len=5)
    with pytest.raises(ValueError, match=rf"has B = 5; did you mean batch_first={batch_first}\?"):
        Layout.from_padded(shape, [3, 5], not batch_first)
    with pytest.raises(ValueError, match=r"lengths\[1\] is 6: x of shape .* has T = 5"):
        Layout.from_padded(shape, [3, 6], batch_first)
