"""Tests that `align` moves the right cells, looks at the data, and asks about square batches."""

import pytest
import torch
from hypothesis import given
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
        (MASK * 2, {}, "values other than 0 and 1"),
        (MASK, {"max_len": 3}, r"more than max_len \(3\)"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(mask, options, message):
    with pytest.raises(ValueError, match=message):
        pv.align(IDS, mask, batch_first=True, **options)


def test_what_the_data_show_is_believed():
    options = {"batch_first": True, "padding_value": 1}
    for ids, side in ((torch.tensor(RIGHT), "right"), (IDS, "left")):
        with pytest.warns(UserWarning, match=f"x already has its padding on the {side}"):
            again = pv.align(ids, [2, 4], padding_side=side, **options)
        assert torch.equal(again, ids)
    with pytest.raises(ValueError, match="the mask seems to be True at padding: pass mask == 0"):
        pv.align(IDS, 1 - MASK, **options)  # torch's kind of mask


# A square batch without batch_first can be read in two ways.

SQUARE = torch.tensor([[1.0, 2, 3], [4, 5, 0], [6, 0, 0]])
READERS = {
    "masked_loss": pv.masked_loss,
    "align": lambda *given, **how: pv.align(*given, source_side="right", **how),
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
