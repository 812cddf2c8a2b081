"""What packviz once got wrong without a word, each point with its neighbours, in one list."""

from __future__ import annotations

import inspect
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

import packviz as pv
from packviz.cli import main
from packviz.explorers import AlignExplorer

ROOT = Path(__file__).parents[2]
sides = st.sampled_from(["left", "right"])

# ---- 1. Aligning says where the padding is, and can check it

IDS = torch.tensor([[1, 1, 1, 7, 8], [1, 4, 5, 6, 9]])  # left-padded with 1, as by a tokenizer
MASK = (IDS != 1).long()  # its attention_mask
RIGHT = [[7, 8, 1, 1, 1], [4, 5, 6, 9, 1]]


def other(side):
    return "left" if side == "right" else "right"


def laid(rows, steps, side, value):
    """`(B, T)` these rows as lists, with the padding on a side."""
    blank = [[value] * (steps - len(row)) for row in rows]
    return [b + row if side == "left" else row + b for row, b in zip(rows, blank, strict=True)]


@st.composite
def ragged_rows(draw, value=0, least=0):
    """Rows of numbers that never begin or end with this value, and a width that holds them."""
    numbers = st.integers(1, 9)
    inner = st.lists(st.integers(value, 9), max_size=4)
    row = st.one_of(
        st.lists(numbers, min_size=least, max_size=1), st.builds(lambda a, b, c: [a, *b, c], numbers, inner, numbers)
    )
    rows = draw(st.lists(row, min_size=1, max_size=4))
    return rows, max(map(len, rows)) + draw(st.integers(0, 2))


def test_padding_side_is_the_side_of_the_padding_in_the_result():
    """As `tokenizer.padding_side` has it: "right" puts the data first."""
    assert pv.align(IDS, [2, 4], padding_side="right", batch_first=True, padding_value=1).tolist() == RIGHT
    assert pv.align(IDS, [2, 4], batch_first=True, padding_value=1).tolist() == RIGHT
    back = pv.align(torch.tensor(RIGHT), [2, 4], padding_side="left", batch_first=True, padding_value=1)
    assert torch.equal(back, IDS)


@pytest.mark.parametrize("function", [pv.align, AlignExplorer, pv.Aligned.of])
def test_the_old_names_of_the_sides_raise_and_say_that_the_sense_is_reversed(function):
    old = {"side": "right"} if function == pv.Aligned.of else {"to": "right", "source": "left"}
    for name, side in old.items():
        new = "source_side" if name == "source" else "padding_side"
        with pytest.raises(TypeError, match=f"argument {name}= is now {new}=.*side of the padding.*opposite side"):
            function(**{name: side})


def test_no_side_can_be_given_by_position():
    """There, code written for the old sense would go on running, and do the opposite."""
    with pytest.raises(TypeError, match="positional"):
        pv.align(IDS, [2, 4], "right")
    with pytest.raises(TypeError, match="positional"):
        pv.Aligned.of(IDS, [2, 4], "right")


def test_every_side_in_a_signature_is_the_side_of_the_padding():
    for function in (pv.align, pv.Aligned.of, AlignExplorer):
        named = [name for name in inspect.signature(function).parameters if "side" in name]
        assert named
        assert all(name in ("padding_side", "source_side") for name in named)


@given(ragged_rows(), sides, sides, st.booleans(), st.sampled_from([torch.bool, torch.int64, torch.uint8]))
def test_a_mask_leaves_nothing_to_guess(batch, source, side, batch_first, dtype):
    rows, steps = batch
    x = torch.tensor(laid(rows, steps, source, -1)).reshape(len(rows), steps)
    mask = torch.tensor(laid([[1] * len(row) for row in rows], steps, source, 0)).reshape(len(rows), steps).to(dtype)
    lying = x if batch_first else x.T
    moved = pv.align(lying, mask, padding_side=side, batch_first=batch_first, padding_value=-2)
    wanted = pv.align(
        lying, [len(row) for row in rows], padding_side=side, source_side=source, batch_first=batch_first,
        padding_value=-2,
    )  # fmt: skip
    assert torch.equal(moved, wanted)
    again = pv.align(moved, [len(row) for row in rows], padding_side=side, source_side=side, batch_first=batch_first,
        padding_value=-2)  # fmt: skip
    assert torch.equal(again, moved)


@given(st.data(), sides, st.booleans(), st.integers(0, 2))
def test_any_mask_moves_its_real_cells_in_order(data, side, batch_first, more):
    size, steps = data.draw(st.integers(1, 4)), data.draw(st.integers(2, 6))
    mask = torch.tensor(data.draw(st.lists(st.lists(st.booleans(), min_size=steps, max_size=steps), min_size=size,
        max_size=size)))  # fmt: skip
    x = torch.arange(1.0, 1 + mask.numel() * 2).reshape(*mask.shape, 2).requires_grad_()
    width = int(mask.sum(1).max()) + more
    lying = x if batch_first else x.transpose(0, 1)
    moved = pv.align(lying, mask, padding_side=side, max_length=width, batch_first=batch_first)
    moved = moved if batch_first else moved.transpose(0, 1)
    rows = [x[b][mask[b]].tolist() for b in range(size)]
    assert moved.tolist() == laid(rows, width, side, [0.0, 0.0])
    moved.sum().backward()
    assert torch.equal(x.grad, mask[..., None].expand_as(x).float())


def test_a_mask_is_batch_first_whatever_x_is():
    """As `real_mask`, torch's key_padding_mask and a tokenizer give it, so that a forgotten batch_first shows."""
    with pytest.raises(
        ValueError, match=r"mask has shape \(2, 5\), but x .* \(T, B, …\), has B = 5, T = 2.*batch_first=T"
    ):
        pv.align(IDS, MASK)
    assert pv.align(IDS.T, MASK, batch_first=False, padding_value=1).T.tolist() == RIGHT


@pytest.mark.parametrize(
    ("mask", "options", "message"),
    [
        (MASK, {"source_side": "left"}, "source_side is 'left', but a mask .* leave it out"),
        (MASK[:, :4], {}, r"mask has shape \(2, 4\), but x"),
        (MASK * 2, {}, r"mask\[0, 3\] is 2; give True or 1 at real cells, and False or 0 at padding"),
        (MASK.float(), {}, r"mask of torch.float32.*0 and 1.*\.bool\(\)"),
        (MASK, {"max_length": 3}, r"mask.sum\(1\)\[1\] is 4, more than max_length, 3"),
    ],
)
def test_masks_that_cannot_be_meant(mask, options, message):
    with pytest.raises(ValueError, match=message):
        pv.align(IDS, mask, batch_first=True, **options)


def test_lists_and_arrays_are_masks_too():
    for mask in (MASK.tolist(), MASK.numpy(), MASK.bool().tolist(), MASK.bool().numpy()):
        assert pv.align(IDS, mask, batch_first=True, padding_value=1).tolist() == RIGHT


CHECKED = {"batch_first": True, "padding_value": 1, "check_padding": 1}


@pytest.mark.parametrize(
    ("x", "lengths", "options", "message"),
    [
        (RIGHT, [2, 4], {}, "rows 0 and 1 .*not 1.* lost.* fits source_side='right'"),  # aligned twice
        (IDS, [2, 4], {"padding_side": "left"}, "rows 0 and 1 .* fits source_side='left'"),  # the wrong side
        (IDS, [2, 3], {}, "row 1 .*not 1.* lost"),  # lengths too short
        (IDS, [3, 4], {}, "row 0 .* begins or ends with 1"),  # lengths too long
        (IDS, 1 - MASK, {}, "rows 0 and 1 .*True at real cells"),  # torch's kind of mask
    ],
)
def test_a_check_names_the_rows(x, lengths, options, message):
    with pytest.raises(ValueError, match=message):
        pv.align(torch.as_tensor(x), lengths, **{**CHECKED, **options})


def test_without_a_check_nothing_is_read():
    lengths = torch.tensor([2, 4])
    assert pv.align(IDS.to("meta"), lengths, batch_first=True).shape == (2, 5)
    assert pv.align(IDS.to("meta"), MASK.to("meta"), batch_first=True).shape == (2, 5)
    with pytest.raises(ValueError, match="x is on the meta device"):
        pv.align(IDS.to("meta"), lengths, batch_first=True, check_padding=1)


@given(ragged_rows(), sides, sides, st.booleans(), st.booleans(), st.sampled_from([0.0, float("nan"), 0.1]), st.data())
def test_a_check_passes_what_is_right_and_nothing_else(batch, source, side, batch_first, vectors, value, data):
    rows, steps = batch
    lengths = [len(row) for row in rows]
    x = torch.tensor(laid(rows, steps, source, value), dtype=torch.float32).reshape(len(rows), steps)
    x = torch.stack([x, x.where(x == 0, x + 1)], -1) if vectors and value == 0 else x
    lying = x if batch_first else x.transpose(0, 1)
    options = {"padding_side": side, "batch_first": batch_first, "check_padding": value}
    unchecked = pv.align(lying, lengths, **{**options, "source_side": source, "check_padding": None})
    assert torch.equal(pv.align(lying, lengths, source_side=source, **options), unchecked)
    wrong = [data.draw(st.integers(0, steps)) for _ in lengths]
    rows_off = [b for b, (n, m) in enumerate(zip(lengths, wrong, strict=True)) if n != m]
    assume(rows_off)
    with pytest.raises(ValueError, match=f"row(s .*and)? {rows_off[-1]} "):
        pv.align(lying, wrong, source_side=source, **options)


@pytest.mark.parametrize("value", [True, "1", torch.zeros(2), [0]])
def test_a_check_wants_the_value_of_the_padding(value):
    with pytest.raises(TypeError, match=r"check_padding is .*; give the value that the padding holds, such as 0"):
        pv.align(IDS, [2, 4], batch_first=True, check_padding=value)


def test_diagnose_gives_the_call_that_repairs():
    x = torch.tensor([[0, 0, 0, 7, 8], [0, 4, 5, 6, 9]])
    (fix,) = [one.fix for one in pv.diagnose(x, [2, 4], batch_first=True) if "pv.align" in one.fix]
    call = re.search(r"pv\.align\(.*?\)", fix)[0].replace("batch_first=…", "batch_first=True")
    assert eval(call, {"pv": pv, "x": x, "lengths": [2, 4]}).tolist() == [[7, 8, 0, 0, 0], [4, 5, 6, 9, 0]]


# ---- 2. A name that contains "padding" is True at padding


def renamed():
    """The rows of docs/renamed.md: what is written in them as code."""
    lines = (ROOT / "docs" / "renamed.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:3]] for line in lines if line.startswith("| `")]
    return [tuple(cell.split("`")[1] for cell in row) for row in cells]


def test_every_old_name_is_in_the_table():
    names = {old.removeprefix("pv."): new.removeprefix("pv.") for old, new in renamed() if "(" not in old}
    assert names == pv._RENAMED
    assert {"pv.padding_mask", "pv.align(to=)", "pv.align(source=)"} <= {old for old, _ in renamed()}


@pytest.mark.parametrize(("old", "new"), renamed())
def test_every_old_name_raises_and_names_the_new_one(old, new):
    where, _, argument = old.removesuffix("=)").partition("(")
    if argument:
        with pytest.raises(TypeError, match=f"argument {argument}= is now {new.removesuffix('=)').partition('(')[2]}="):
            eval(where, {"pv": pv, "AlignExplorer": AlignExplorer})(**{argument: "left"})
    else:
        with pytest.raises(AttributeError, match=f"{where} is now {new}"):
            eval(where, {"pv": pv})


def test_no_public_name_with_padding_is_true_at_real_cells():
    assert not [name for name in pv.__all__ if "padding" in name]
    said = (ROOT / "README.md").read_text(encoding="utf-8") + pv.Layout.from_mask.__doc__ + pv.real_mask.__doc__
    assert not re.findall(r"(?<!key_)padding[_ ]mask", said)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_attention_ignores_what_is_not_real(lengths):
    """The idiom of the docstring, against torch on each sequence alone."""
    torch.manual_seed(0)
    steps = max(lengths) + 1
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    x = torch.randn(len(lengths), steps, 4)
    assert "key_padding_mask=~pv.real_mask(lengths, T)" in pv.real_mask.__doc__
    output, _ = attention(x, x, x, key_padding_mask=~pv.real_mask(lengths, steps))
    for b, n in enumerate(lengths):
        alone, _ = attention(*[x[b : b + 1, :n]] * 3)
        torch.testing.assert_close(output[b : b + 1, :n], alone)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_a_loss_reads_what_is_real(lengths):
    steps = max(lengths) + 1
    loss = torch.randn(len(lengths), steps)
    assert "loss[pv.real_mask(lengths, T)].mean()" in pv.real_mask.__doc__
    alone = torch.cat([row[:n] for row, n in zip(loss, lengths, strict=True)]).mean()
    torch.testing.assert_close(loss[pv.real_mask(lengths, steps)].mean(), alone)
    torch.testing.assert_close(pv.masked_loss(loss, lengths, batch_first=True), alone)


def test_a_mask_that_is_true_at_padding_is_recognised_by_a_layout():
    for lengths in ([3, 1], [2, 1]):
        with pytest.raises(ValueError, match="mask is True at padding, pass ~mask"):
            pv.Layout.from_mask(~pv.real_mask(lengths, 3))


# ---- 3. A square batch without batch_first warns

SQUARE = torch.tensor([[1.0, 2, 3], [4, 5, 0], [6, 0, 0]])
READERS = {
    "masked_loss": pv.masked_loss,
    "align": pv.align,
    "align by a mask": lambda x, n, **first: pv.align(x, pv.real_mask(n, 3), **first),
    "show": pv.show,
    "diagnose": pv.diagnose,
    "Aligned.of": pv.Aligned.of,
    "Aligned.of a mask": lambda x, n, **first: pv.Aligned.of(x, pv.real_mask(n, 3), **first),
    "Layout.from_padded": lambda x, n, **first: pv.Layout.from_padded(x.shape, n, **first),
}


@pytest.mark.parametrize("name", READERS)
def test_a_square_batch_warns_where_it_is_read(name):
    with pytest.warns(UserWarning, match=r"\(3, 3\).* \(T, B.*batch_first=False.*batch_first=True") as said:
        READERS[name](SQUARE, [3, 2, 1])
    assert len(said) == 1
    assert said[0].category is UserWarning
    assert said[0].filename == __file__


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("batch_first", [False, True])
def test_who_says_it_is_not_warned(name, batch_first):
    READERS[name](SQUARE, [3, 2, 1], batch_first=batch_first)  # warnings are errors here


@pytest.mark.parametrize("name", READERS)
def test_time_is_first_if_nothing_is_said(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        silent, given = READERS[name](SQUARE, [3, 2, 1]), READERS[name](SQUARE, [3, 2, 1], batch_first=False)
    assert torch.equal(silent, given) if isinstance(silent, torch.Tensor) else str(silent) == str(given)


def test_python_shows_the_warning_once_per_line():
    with warnings.catch_warnings(record=True) as said:
        warnings.resetwarnings()  # the default of `python`: once per line
        warnings.simplefilter("default")
        for _ in range(3):
            pv.masked_loss(SQUARE, [3, 2, 1])
    assert len(said) == 1


@pytest.mark.parametrize("x", [torch.ones(3, 2), torch.ones(1, 1)])
def test_no_warning_where_the_sizes_tell_or_do_not_matter(x):
    lengths = [1] * x.shape[1]
    pv.masked_loss(x, lengths)
    pv.align(x, lengths)
    pv.show(x, lengths)
    pv.diagnose(x, lengths)


def test_no_warning_for_what_is_packed_or_has_no_padding():
    packed = nn.utils.rnn.pack_padded_sequence(SQUARE[..., None], [3, 2, 1], batch_first=True)
    pv.show(packed)
    pv.show([3, 2, 1])
    pv.unpack_to_length(packed, 3)
    pv.pad_packed_sequence(packed)
    pv.pack_padded_sequence(SQUARE, [3, 2, 1])  # as torch does


def test_an_error_comes_before_the_warning():
    with pytest.raises(ValueError, match="lengths has 2 entries"):
        pv.masked_loss(SQUARE, [3, 2])


def test_the_command_names_its_own_option(tmp_path, capsys):
    np.savez(tmp_path / "x.npz", x=SQUARE.numpy(), lengths=[3, 2, 1])
    main(["diagnose", str(tmp_path / "x.npz")])
    said = capsys.readouterr().err
    assert re.search(r"packviz: x of shape \(3, 3\).*--no-batch-first.*--batch-first", said)
    assert "batch_first" not in said
    for option in ("--batch-first", "--no-batch-first"):
        main(["diagnose", str(tmp_path / "x.npz"), option])
        assert capsys.readouterr().err == ""


# ---- 4. run takes batch_first


# ---- 5. patch_torch names every holder of torch's functions


# ---- 6. The oracle is always torch's own function


# ---- 7. plan and run never disagree


# ---- 8. Constants that nobody measured choose nothing


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
