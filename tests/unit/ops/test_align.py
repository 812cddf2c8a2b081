"""Tests that `align` moves the right cells, checks the padding, and asks about square batches."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import packviz as pv

sides = st.sampled_from(["left", "right"])
IDS = torch.tensor([[1, 1, 1, 7, 8], [1, 4, 5, 6, 9]])  # left-padded with 1, as by a tokenizer
MASK = (IDS != 1).long()
RIGHT = [[7, 8, 1, 1, 1], [4, 5, 6, 9, 1]]


def padded_rows(rows, steps, side, value):
    """Returns these rows as lists, `(B, T)`, with the padding on one side."""
    padding = [[value] * (steps - len(row)) for row in rows]
    if side == "left":
        return [blank + row for row, blank in zip(rows, padding, strict=True)]
    return [row + blank for row, blank in zip(rows, padding, strict=True)]


@st.composite
def ragged_rows(draw):
    """Draws rows of numbers that neither begin nor end with 0, and a width that holds them."""
    ends = st.integers(1, 9)
    inner = st.lists(st.integers(0, 9), max_size=4)
    long_row = st.builds(lambda first, middle, last: [first, *middle, last], ends, inner, ends)
    rows = draw(st.lists(st.lists(ends, max_size=1) | long_row, min_size=1, max_size=4))
    return rows, max(map(len, rows)) + draw(st.integers(0, 2))


def test_padding_side_is_the_side_of_the_padding_in_the_result():
    """As `tokenizer.padding_side` has it: "right" puts the data first."""
    options = {"batch_first": True, "padding_value": 1}
    assert pv.align(IDS, [2, 4], padding_side="right", **options).tolist() == RIGHT
    back = pv.align(torch.tensor(RIGHT), [2, 4], padding_side="left", **options)
    assert torch.equal(back, IDS)


@given(st.data(), sides, st.booleans(), st.integers(0, 2))
def test_any_mask_moves_its_real_cells_in_order(data, side, batch_first, more):
    size = data.draw(st.integers(1, 4))
    steps = data.draw(st.integers(2, 6))
    rows = st.lists(st.booleans(), min_size=steps, max_size=steps)
    mask = torch.tensor(data.draw(st.lists(rows, min_size=size, max_size=size)))
    dtype = data.draw(st.sampled_from([torch.bool, torch.int64, torch.uint8]))
    x = torch.arange(1.0, 1 + 2 * mask.numel()).reshape(size, steps, 2).requires_grad_()
    width = int(mask.sum(1).max()) + more
    given_x = x if batch_first else x.transpose(0, 1)
    options = {"padding_side": side, "max_len": width, "batch_first": batch_first}
    moved = pv.align(given_x, mask.to(dtype), **options)
    moved = moved if batch_first else moved.transpose(0, 1)
    real = [x[b][mask[b]].tolist() for b in range(size)]
    assert moved.tolist() == padded_rows(real, width, side, [0.0, 0.0])
    moved.sum().backward()
    assert torch.equal(x.grad, mask[..., None].expand_as(x).float())


@pytest.mark.parametrize(
    ("mask", "options", "message"),
    [
        (MASK, {"source_side": "left"}, "source_side is 'left', but a mask"),
        (MASK[:, :4], {}, r"mask has shape \(2, 4\), but x"),
        (MASK * 2, {}, r"mask\[0, 3\] is 2; give True or 1 at real cells"),
        (MASK, {"max_len": 3}, r"more than max_len \(3\)"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(mask, options, message):
    with pytest.raises(ValueError, match=message):
        pv.align(IDS, mask, batch_first=True, **options)


@pytest.mark.parametrize(
    ("x", "lengths", "options", "message"),
    [
        (RIGHT, [2, 4], {}, "rows 0, 1 .*fits source_side='right'"),  # aligned twice
        (IDS, [2, 4], {"padding_side": "left"}, "rows 0, 1 .*fits source_side='left'"),
        (IDS, [2, 3], {}, "row 1 "),  # a length is too short
        (IDS, [3, 4], {}, "row 0 .* begins or ends with 1"),  # a length is too long
        (IDS, 1 - MASK, {}, "rows 0, 1 .*True at real cells"),  # torch's kind of mask
    ],
)
def test_a_check_names_the_rows(x, lengths, options, message):
    checked = {"batch_first": True, "padding_value": 1, "check_padding": 1, **options}
    with pytest.raises(ValueError, match=message):
        pv.align(torch.as_tensor(x), lengths, **checked)


@given(ragged_rows(), sides, sides, st.booleans(), st.data())
def test_a_check_passes_what_is_right_and_nothing_else(batch, source, side, batch_first, data):
    rows, steps = batch
    value = data.draw(st.sampled_from([0.0, float("nan"), 0.1]))
    lengths = [len(row) for row in rows]
    x = torch.tensor(padded_rows(rows, steps, source, value)).float().reshape(len(rows), steps)
    x = x if batch_first else x.transpose(0, 1)
    options = {"padding_side": side, "source_side": source, "batch_first": batch_first}
    moved = pv.align(x, lengths, **options, check_padding=value)
    assert torch.equal(moved, pv.align(x, lengths, **options))
    wrong = [data.draw(st.integers(0, steps)) for _ in lengths]
    assume(wrong != lengths)
    with pytest.raises(ValueError, match="row"):
        pv.align(x, wrong, **options, check_padding=value)


# A square batch without batch_first can be read in two ways.

SQUARE = torch.tensor([[1.0, 2, 3], [4, 5, 0], [6, 0, 0]])
READERS = {
    "masked_loss": pv.masked_loss,
    "align": pv.align,
    "show": pv.show,
    "diagnose": pv.diagnose,
    "Aligned.of": pv.draw.Aligned.of,
}


@pytest.mark.parametrize("name", READERS)
def test_a_square_batch_warns_unless_batch_first_is_given(name):
    expected = r"\(3, 3\).* \(T, B.*batch_first=False.*batch_first=True"
    with pytest.warns(UserWarning, match=expected) as caught:
        READERS[name](SQUARE, [3, 2, 1])
    assert [warning.filename for warning in caught] == [__file__]
    for batch_first in (False, True):  # warnings are errors here
        READERS[name](SQUARE, [3, 2, 1], batch_first=batch_first)


@pytest.mark.parametrize("x", [torch.ones(3, 2), torch.ones(1, 1)])
def test_no_warning_where_the_sizes_tell_or_do_not_matter(x):
    for name in ("masked_loss", "align", "show", "diagnose"):
        READERS[name](x, [1] * x.shape[1])
