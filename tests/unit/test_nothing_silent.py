"""What packviz once got wrong without a word: each point with its neighbours, so that one file lists them all."""

from __future__ import annotations

import ast
import copy
import dataclasses
import gc
import inspect
import io
import itertools
import json
import linecache
import math
import os
import pickle
import random
import re
import subprocess
import sys
import traceback
import types
import warnings
import weakref
from html import unescape
from pathlib import Path
from typing import NamedTuple

import gpus
import numpy as np
import pytest
import torch
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from panels import move, words
from torch import nn
from torch.nn.utils import rnn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz import cli, explorers
from packviz.bench import advice, calibration, comparison, timing
from packviz.bench.comparison import PACKED, PADDED
from packviz.bench.timing import FEWEST_ROUNDS, NARROW, Timing, measure, median_interval
from packviz.check import errors
from packviz.check.findings import Finding, Findings
from packviz.check.states import RESULTS
from packviz.check.truth import truth_table
from packviz.cli import main
from packviz.core import results
from packviz.core.cuts import rectangles
from packviz.draw import figures, quantities
from packviz.draw.drawing import Drawing
from packviz.draw.table import Table
from packviz.explorers import AlignExplorer, MuseumExplorer
from packviz.explorers.lengths import FILE, TYPED
from packviz.ops import costs, original, packing, running
from packviz.ops.costs import Costs, in_force
from packviz.ops.running import METHODS, Staircase
from packviz.studies import compilers, workers

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


@pytest.mark.parametrize("function", [pv.align, AlignExplorer, pv.draw.Aligned.of])
def test_the_old_names_of_the_sides_raise_and_say_that_the_sense_is_reversed(function):
    old = {"side": "right"} if function == pv.draw.Aligned.of else {"to": "right", "source": "left"}
    for name, side in old.items():
        new = "source_side" if name == "source" else "padding_side"
        with pytest.raises(TypeError, match=f"argument {name}= is now {new}=.*side of the padding.*opposite side"):
            function(**{name: side})


def test_no_side_can_be_given_by_position():
    """There, code written for the old sense would go on running, and do the opposite."""
    with pytest.raises(TypeError, match="positional"):
        pv.align(IDS, [2, 4], "right")
    with pytest.raises(TypeError, match="positional"):
        pv.draw.Aligned.of(IDS, [2, 4], "right")


def test_every_side_in_a_signature_is_the_side_of_the_padding():
    for function in (pv.align, pv.draw.Aligned.of, AlignExplorer):
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
    moved = pv.align(lying, mask, padding_side=side, max_len=width, batch_first=batch_first)
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
        (MASK, {"max_len": 3}, r"mask.sum\(1\)\[1\] is 4, more than max_len, 3"),
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
    call = re.search(r"pv\.align\(.*?\)", fix)[0]
    assert eval(call, {"pv": pv, "x": x, "lengths": [2, 4]}).tolist() == [[7, 8, 0, 0, 0], [4, 5, 6, 9, 0]]


# ---- 2. A name that contains "padding" is True at padding


def renamed():
    """The rows of docs/renamed.md: what is written in them as code."""
    public, _ = (ROOT / "docs" / "renamed.md").read_text(encoding="utf-8").split("## Inside the package")
    lines = public.splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:3]] for line in lines if line.startswith("| `")]
    return [tuple(cell.split("`")[1] for cell in row) for row in cells]


def test_every_old_name_is_in_the_table():
    names = {old: new for old, new in renamed() if re.fullmatch(r"pv\.\w+", old)}
    assert names == {f"pv.{old}": f"pv.{new}" for old, new in pv._RENAMED.items()}
    assert {"pv.padding_mask", "pv.align(to=)", "pv.align(source=)"} <= {old for old, _ in renamed()}
    attributes = [(old, new) for old, new in renamed() if old.startswith("advice.")]
    assert attributes == [(f"advice.{old}", f"advice.{new}") for old, new in advice._RENAMED.items()]


@pytest.mark.parametrize(("old", "new"), renamed())
def test_every_old_name_raises_and_names_the_new_one(old, new):
    where, _, argument = old.removesuffix("=)").partition("(")
    if argument:
        with pytest.raises(TypeError, match=f"argument {argument}= is now {new.removesuffix('=)').partition('(')[2]}="):
            eval(where, {"pv": pv, "AlignExplorer": AlignExplorer})(**{argument: "left"})
    else:
        with pytest.raises(AttributeError, match=f"{where} is now {new}"):
            eval(where, {"pv": pv, "advice": object.__new__(advice.Advice)})


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
    "Aligned.of": pv.draw.Aligned.of,
    "Aligned.of a mask": lambda x, n, **first: pv.draw.Aligned.of(x, pv.real_mask(n, 3), **first),
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


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_a_comparison_takes_the_callers_order_too(own, first):
    rnn, lengths = nn.LSTM(3, 4, batch_first=own, bidirectional=True).double(), [2, 5, 1]
    x = torch.randn(3, 5, 3, dtype=torch.float64)  # (B, T, I)
    given = x if first else x.transpose(0, 1)
    found = pv.compare(rnn, given, lengths, batch_first=first)
    want = pv.compare(rnn, x if own else x.transpose(0, 1), lengths)
    assert (found.batch_first, want.batch_first) == (first, own)
    assert_same([found.packed.output], [by_torch(rnn, given, lengths, batch_first=first)[0]])
    for name in ("outputs", "h_n", "c_n"):
        assert_same([torch.tensor(getattr(found, name).absolute)], [torch.tensor(getattr(want, name).absolute)])
    assert found.agrees.to_text() == want.agrees.to_text()
    assert rnn.batch_first == own
    if first != own:
        with pytest.raises(ValueError, match=rf"did you mean batch_first={first}\?"):
            pv.compare(rnn, given, lengths)


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


def test_the_command_says_which_example_it_made_up(tmp_path, capsys):
    """A network that packs batch first into a time-first RNN fails on it, in words that speak of neither."""
    (tmp_path / "mixed.py").write_text(MIXED)
    assert main(["check", f"{tmp_path}/mixed.py:Mixed"]) == 2
    said = capsys.readouterr().err
    assert "on an example made up for it, x of shape (5, 3, 3): RuntimeError: start" in said
    assert "give a function that returns (network, inputs)" in said


MIXED = """
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(3, 4)
    def forward(self, x, lengths):
        return self.rnn(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))[0].data
"""


# ---- 5. patch_torch names every holder of torch's functions

HOLDERS = """
import collections, dataclasses, functools, types
import torch
from torch.nn.utils import rnn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence as pad

class Tagger(torch.nn.Module):
    attribute = pad
    static = staticmethod(pad)
    table = {"pad": pad}

    def __init__(self):
        super().__init__()
        self.pack = pack_padded_sequence
        self.steps = [pad, len]
        self.disabled = torch.compiler.disable(pad)
        self.part = torch.nn.Sequential()
        self.part.pad = pad
        self.pair = len, pad

class Slotted:
    __slots__ = ("empty", "pad")

    def __init__(self):
        self.pad = pad

@dataclasses.dataclass(frozen=True)
class Frozen:
    pad: object

def default(x, pad=pad, n=0):
    return pad

def keyword(x, *, pad=pad):
    return pad

def in_default(x, steps=[pad]):
    return steps[0]

def make(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function
    return wrapper

wrapped = make(pad)
take = functools.partial(pad, batch_first=True)
mapped = functools.partial(map, pad)
named = functools.partial(dict, function=pad)
TABLE = {"pad": pad, "more": [pad]}
NAMESPACE = types.SimpleNamespace(pad=pad)
model, slotted, frozen = Tagger(), Slotted(), Frozen(pad)

PAIR = pad, pack_padded_sequence
SET = {pad}
KEYS = {pad: 1}
QUEUE = collections.deque([pad])
FACTORY = collections.defaultdict(pad)
METHOD = types.MethodType(pad, 1)
PROPERTY = property(pad)
cached = functools.lru_cache(pad)
"""
REPLACED = {  # how `everywhere=True` reaches each place, and what is there
    "pack_padded_sequence": lambda m: m.pack_padded_sequence,
    "pad": lambda m: m.pad,
    "Tagger.attribute": lambda m: m.Tagger.attribute,
    "Tagger.static (a staticmethod)": lambda m: m.model.static,
    "Tagger.table['pad']": lambda m: m.Tagger.table["pad"],
    "<Tagger object>.pack": lambda m: m.model.pack,
    "<Tagger object>.steps[0]": lambda m: m.model.steps[0],
    "<Tagger object>.disabled.__wrapped__": lambda m: m.model.disabled.__wrapped__,
    "<Tagger object>._modules['part'].pad": lambda m: m.model.part.pad,
    "<Slotted object>.pad": lambda m: m.slotted.pad,
    "<Frozen object>.pad": lambda m: m.frozen.pad,
    "default's default argument 'pad'": lambda m: m.default(0),
    "keyword's default argument 'pad'": lambda m: m.keyword(0),
    "in_default's default argument 'steps'[0]": lambda m: m.in_default(0),
    "make.<locals>.wrapper's closure, variable 'function'": lambda m: m.wrapped(),
    "make.<locals>.wrapper.__wrapped__": lambda m: m.wrapped.__wrapped__,
    "take (a partial)": lambda m: m.take.func,
    "mapped (a partial), argument 0": lambda m: m.mapped.args[0],
    "named (a partial), argument 'function'": lambda m: m.named()["function"],
    "TABLE['pad']": lambda m: m.TABLE["pad"],
    "TABLE['more'][0]": lambda m: m.TABLE["more"][0],
    "NAMESPACE.pad": lambda m: m.NAMESPACE.pad,
}
NAMED = {  # what cannot be changed, or not safely
    "<Tagger object>.pair[1]": lambda m: m.model.pair[1],
    "PAIR[0]": lambda m: m.PAIR[0],
    "PAIR[1]": lambda m: m.PAIR[1],
    "SET (in a set)": lambda m: next(iter(m.SET)),
    "KEYS (as a key)": lambda m: next(iter(m.KEYS)),
    "QUEUE (in a deque)": lambda m: m.QUEUE[0],
    "FACTORY (in a defaultdict)": lambda m: m.FACTORY.default_factory,
    "METHOD.__func__": lambda m: m.METHOD.__func__,
    "PROPERTY.fget": lambda m: m.PROPERTY.fget,
    "cached (in a _lru_cache_wrapper)": lambda m: m.cached.__wrapped__,
}
WARNED = "ignore:Still torch's functions:UserWarning"  # this file and others of the tests have imported them, too


@pytest.fixture
def holders(monkeypatch):
    """A module that holds torch's functions in many ways."""
    module = types.ModuleType("held")
    monkeypatch.setitem(sys.modules, "held", module)
    exec(HOLDERS, vars(module))
    yield module
    vars(module).clear()


def of_held(names):
    """Which of the names are of that module, without its name."""
    return {name.replace("held.", "") for name in names if name.startswith(("held.", "<held."))}


def what(module):
    """What each of its places holds."""
    return {name: at(module) for name, at in (REPLACED | NAMED).items()}


@pytest.mark.filterwarnings(WARNED)
def test_every_holder_is_named(holders):
    before = what(holders)
    with pv.patch_torch() as patch:
        found = of_held(patch.unreached)
        assert what(holders) == before
    assert found >= {*REPLACED, *NAMED}
    assert all("disabled" in name for name in found - {*REPLACED, *NAMED})  # torch's wrapper holds it several times
    assert not any(name.startswith(("torch.", "packviz.", "<torch.", "<packviz.")) for name in patch.unreached)
    assert list(patch.unreached) == sorted(set(patch.unreached))


@pytest.mark.filterwarnings(WARNED)
def test_everywhere_replaces_what_can_be_replaced_and_names_the_rest(holders):
    before = what(holders)
    for _ in range(3):  # specialised calls, too, must see the other function
        holders.default(0), holders.keyword(0), holders.wrapped(), holders.model.static
    with pv.patch_torch(everywhere=True) as patch:
        during = what(holders)
        assert {*REPLACED} <= of_held(patch.replaced)
        assert of_held(patch.unreached) == {*NAMED}
    assert what(holders) == before
    for name, function in before.items():
        assert function.__module__ == "torch.nn.utils.rnn", name
        assert during[name] is (getattr(packing, function.__name__) if name in REPLACED else function), name


@pytest.mark.filterwarnings(WARNED)
@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 1, 0)])
def test_patches_end_in_any_order(holders, order):
    before = what(holders)
    patches = [pv.patch_torch(everywhere=everywhere) for everywhere in (True, False, True)]
    for i in order:
        wide = any(patches[k].everywhere and patches[k].is_in_force for k in range(3))
        assert (holders.pad is packing.pad_packed_sequence) == wide
        assert rnn.pad_packed_sequence is packing.pad_packed_sequence
        patches[i].undo()
    assert what(holders) == before
    assert rnn.pad_packed_sequence is original.pad_packed_sequence


@pytest.mark.filterwarnings(WARNED)
def test_undoing_leaves_third_functions_alone(holders):
    static = vars(holders.Tagger)["static"]
    with pv.patch_torch(everywhere=True):
        holders.pad = holders.TABLE["pad"] = holders.model.pack = len
        holders.default.__defaults__ = (len, 1)
        holders.model.steps.clear()
        del holders.Tagger.attribute, holders.slotted
        holders.take.__setstate__((len, (), {}, None))
    assert holders.pad is holders.TABLE["pad"] is holders.model.pack is holders.take.func is len
    assert holders.default.__defaults__ == (len, 1)
    assert holders.model.steps == []
    assert not hasattr(holders.Tagger, "attribute")
    assert vars(holders.Tagger)["static"] is static
    assert holders.keyword(0) is original.pad_packed_sequence


@pytest.mark.filterwarnings(WARNED)
def test_a_patch_keeps_no_object_alive(holders):
    tagger = weakref.ref(holders.model)
    with pv.patch_torch(everywhere=True):
        del holders.model
        gc.collect()
        assert tagger() is None


@pytest.mark.filterwarnings(WARNED)
def test_what_is_frozen_is_found_and_stays_frozen(holders):
    gc.freeze()
    with pv.patch_torch() as patch:
        assert {*REPLACED, *NAMED} <= of_held(patch.unreached)
        assert gc.get_freeze_count()


@pytest.mark.filterwarnings(WARNED)
def test_a_function_of_torchs_is_found_whoever_stands_in_its_place(holders, monkeypatch):
    """Somebody replaced torch's function before packviz was imported, after others had taken it."""
    monkeypatch.setattr(rnn, "pad_packed_sequence", lambda *arguments: None)
    monkeypatch.setattr(original, "pad_packed_sequence", original._made_anew("pad_packed_sequence"))
    with pv.patch_torch() as patch:
        assert patch.foreign == ("torch.nn.utils.rnn.pad_packed_sequence",)
        assert "held.pad" in patch.unreached


def test_the_warning_names_them_once_and_points_at_the_call(holders):
    for everywhere, name in ((False, "held.Tagger.attribute"), (True, "held.PAIR[0]")):
        with pytest.warns(UserWarning, match="Still torch's functions, imported before: ") as caught:
            patch = pv.patch_torch(everywhere=everywhere)
        patch.undo()
        [warning] = caught
        assert warning.filename == __file__
        assert name in patch.unreached
        assert all(one in repr(patch) for one in patch.unreached)
        assert ("everywhere=True" in str(warning.message)) is not everywhere
        assert all(one in str(warning.message) for one in patch.unreached[:3])


FRESH = """
import importlib, pkgutil, sys, types, warnings

# torch's own functions come without fast execution
import packviz.ops.original
loaded = {name for name in sys.modules if name.startswith("packviz.")}
assert loaded == {"packviz.ops", "packviz.ops.original"}, loaded

# nothing is warned of where the call comes first
warnings.simplefilter("error")
import packviz as pv
patch = pv.patch_torch()
assert patch.unreached == (), patch
from torch.nn.utils.rnn import pack_padded_sequence
patch.undo()
take = pack_padded_sequence
patch = pv.patch_torch()
assert patch.unreached == ()

# whatever is first used under a patch keeps torch's functions
warnings.simplefilter("ignore")
import torch
rnn = torch.nn.GRU(2, 3)
comparison = pv.compare(rnn, torch.randn(5, 2, 2), [5, 2])
for one in pkgutil.walk_packages(pv.__path__, "packviz."):
    if not one.name.endswith("__main__"):
        importlib.import_module(one.name)
from packviz.lessons import checks
from packviz.explorers import static
from packviz.ops import original, packing
for name, module in sorted(sys.modules.items()):
    if name.startswith("packviz.") and module is not packing:
        for key, value in vars(module).items():
            if isinstance(value, types.FunctionType) and value.__name__ in original.NAMES:
                assert value is getattr(original, value.__name__), f"{name}.{key}"
assert all(original.offered()[name] is getattr(original, name) for name in original.NAMES)
assert {*original.offered()} == {*torch.nn.utils.rnn.__all__}
"""


def test_a_fresh_process_that_patches_first():
    subprocess.run([sys.executable, "-c", FRESH], check=True)


PROGRAM = """
import json, os, sys
import beside
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

class Pickled: pass

import pickle
assert type(pickle.loads(pickle.dumps(Pickled()))) is Pickled
import signal
here = {
    "argv": sys.argv, "path": os.path.realpath(sys.path[0]), "name": __name__, "file": os.path.realpath(__file__),
    "main": vars(sys.modules["__main__"]) is globals(), "errors": sys.stdout.errors,
    "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
}
print(json.dumps([here, pack_padded_sequence.__module__, pad_packed_sequence.__module__]))
if "--fail" in sys.argv:
    raise ValueError("mine")
sys.exit(7 if "--exit" in sys.argv else 0)
"""


def ran(place, *words, path=Path(pv.__file__).parents[1]):
    """The process of a program, and what it wrote on standard output."""
    environment = os.environ | {"PYTHONPATH": str(path)}
    done = subprocess.run([sys.executable, *words], cwd=place, capture_output=True, text=True, env=environment)
    return done, json.loads(done.stdout)


@pytest.fixture
def program(tmp_path):
    (tmp_path / "package").mkdir()
    for name in ("package/__main__.py", "package/train.py"):
        (tmp_path / name).write_text(PROGRAM)
    for name in ("beside.py", "package/beside.py", "package/__init__.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "stand-in/torch/nn/utils").mkdir(parents=True)  # of torch, which takes seconds to import
    (tmp_path / "stand-in/torch/nn/utils/rnn.py").write_text(
        "def pack_padded_sequence(): pass\npad_packed_sequence = pack_padded_sequence"
    )
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["--", "package/train.py", "--help", "--", "-m", "x", "--exit"],
        ["package", "--fail"],
        ["-m", "package.train", "--", "--version", "y"],
    ],
)
def test_packviz_patched_runs_a_program_as_python_does(program, words):
    fails = "--fail" in words
    theirs, (told, *_) = ran(program, *words, path=program / "stand-in")
    ours, (found, *modules) = ran(program, "-m", "packviz", "patched", *words)
    assert modules == ["packviz.ops.packing"] * 2
    assert found == told
    assert ours.returncode == theirs.returncode
    assert bool(ours.stderr) == fails
    assert ours.stderr.startswith("Traceback" * fails)
    assert ours.stderr.splitlines()[-1:] == theirs.stderr.splitlines()[-1:] == ["ValueError: mine"] * fails


@pytest.mark.parametrize("words", [["nothing.py"], ["--", "-"]])
def test_a_program_that_is_not_there(words, capsys):
    assert cli.main(["patched", *words]) == 2
    assert capsys.readouterr().err == f"packviz: cannot run {words[-1]}: No such file or directory\n"


@pytest.mark.parametrize("command", ["check", "patched"])
def test_help_says_that_the_file_is_executed(command, capsys):
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    assert "The file is EXECUTED, and so is all that it imports" in " ".join(capsys.readouterr().out.split())


def sources():
    """Every file of packviz, parsed."""
    house = Path(pv.__file__).parent
    return {str(path.relative_to(house)): ast.parse(path.read_text(encoding="utf-8")) for path in house.rglob("*.py")}


def test_no_file_that_is_read_can_run_code():
    wanted = {"torch.load": ("weights_only", True), "np.load": ("allow_pickle", False)}
    seen = set()
    for path, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                assert not {"pickle", "joblib", "dill"} & {one.name for one in node.names}, path
            if isinstance(node, ast.Call) and (name := ast.unparse(node.func)).endswith(".load"):
                if name in wanted:
                    keyword, value = wanted[name]
                    assert [ast.literal_eval(one.value) for one in node.keywords if one.arg == keyword] == [value], path
                    seen.add(name)
                else:
                    assert name.partition(".")[0] not in ("torch", "np", "numpy"), f"{path}: {name}"
    assert seen == {*wanted}


# ---- 6. The oracle is always torch's own function


def test_no_other_file_reaches_torchs_functions():
    """Neither by an import, nor through the module: `rnn.pack_sequence`, `getattr(rnn, name)`."""
    own = ("original", "packing", "pv", "module", "self")
    for path, tree in sources().items():
        if path == "ops/original.py":
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                names = {one.name for one in node.names}
                assert node.module != "torch.nn.utils.rnn" or not {*original.NAMES, "*"} & names, path
                assert node.module != "torch.nn.utils" or "rnn" not in names or path == "ops/patching.py", path
            if isinstance(node, ast.Import):
                assert not any(one.name.startswith("torch.nn.utils") for one in node.names), path
            if isinstance(node, ast.Attribute) and node.attr in original.NAMES:
                assert ast.unparse(node.value) in own, f"{path}: {ast.unparse(node)}"
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "nn.utils.rnn":
                raise AssertionError(path)


@pytest.mark.filterwarnings(WARNED)
def test_a_comparison_under_a_patch_calls_torchs_functions(monkeypatch):
    def ours(*arguments, **named):
        raise AssertionError("packviz's function was called")

    with pv.patch_torch():
        for name in original.NAMES:
            monkeypatch.setattr(rnn, name, ours)
        assert pv.compare(torch.nn.GRU(2, 3), torch.randn(5, 2, 2), [5, 2]).needs_packing("h_n")
        assert truth_table("RNN").answers[1].right["h_n"]
        monkeypatch.undo()


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
    for point in (calibration.CalibrationPoint(*some) for some in calibration._points(modes, 1)):
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

T9, B9 = 6, 4
LENGTHS9 = torch.tensor([5, 3, 6, 2])


def masked_by_list(x, n):  # as in ESPnet
    mask = torch.zeros(len(n), T9, dtype=torch.bool)
    for row, k in enumerate(n.tolist()):
        mask[row, k:] = True
    return x.masked_fill(mask, 0)


def masked_by_cells(x, n):
    mask = torch.ones(len(n), T9)
    for row in range(len(n)):
        mask[row, int(n[row]) :] = 0
    return x * mask


def longest_by_comparison(x, n):
    longest = 0
    for k in n:
        longest = k if k > longest else longest
    return x * longest


def cut_by_condition(x, n):
    return x[:, :3] if n.max() > 4 else x


def last_by_position(x, n):
    return torch.stack([x[row, k - 1] for row, k in enumerate(n.tolist())])


# Uses of `x` of shape (B, T) and of the lengths. Whether a trace of one is right is found out, not written down.
USES9 = {
    "mask from tolist": masked_by_list,
    "mask from int": masked_by_cells,
    "int picks": lambda x, n: torch.stack([x[row, int(k) - 1] for row, k in enumerate(n)]),
    "tolist picks": last_by_position,
    "python sort": lambda x, n: x[sorted(range(len(n)), key=lambda row: -n[row])],
    "sort of a list": lambda x, n: x[torch.tensor(sorted(range(len(n)), key=n.tolist().__getitem__))],
    "tensor of a list": lambda x, n: x / torch.tensor(n.tolist())[:, None],
    "tensor of entries": lambda x, n: x / torch.tensor([int(k) for k in n])[:, None],
    "tensor of tensors": lambda x, n: x / torch.tensor([*n])[:, None],
    "as_tensor of numpy": lambda x, n: x / torch.as_tensor(n.numpy().copy())[:, None],
    "item": lambda x, n: x * n.max().item(),
    "item of one": lambda x, n: x * n[0].item(),
    "numpy": lambda x, n: x * float(n.numpy().mean()),
    "array": lambda x, n: x * float(np.asarray(n).sum()),
    "max": lambda x, n: x * int(max(n)),
    "min in python": lambda x, n: x * min(n.tolist()),
    "sum in python": lambda x, n: x / sum(n.tolist()),
    "range": lambda x, n: sum(x[:, t] for t in range(n.max())),
    "comparison": longest_by_comparison,
    "branch on max": cut_by_condition,
    "branch on all": lambda x, n: x * 2 if bool((n == T9).all()) else x,
    "branch on equal": lambda x, n: x * 2 if torch.equal(n, n[:1].expand(B9)) else x,
    "branch on unique": lambda x, n: x * 2 if len(n.unique()) == 1 else x,
    "membership": lambda x, n: x * 2 if 3 in n else x,
    "float": lambda x, n: x * float(n.float().mean()),
    "split": lambda x, n: torch.stack(
        [part.sum() for part in torch.split(x.reshape(-1), [*n.tolist(), 24 - int(n.sum())])]
    ),
    "format": lambda x, n: x * float(f"{n.max().item()}"),
    "arange of item": lambda x, n: x[:, : n.max().item()].sum(1),
    "repeat": lambda x, n: x.repeat_interleave(n.shape[0], 0) * n.tolist()[-1],
    "kept in a dict": lambda x, n: x * {3: 1.0, 5: 2.0}.get(int(n[0]), 3.0),
    "mask": lambda x, n: x.masked_fill(torch.arange(T9) >= n[:, None], 0),
    "where": lambda x, n: torch.where(torch.arange(T9) < n[:, None], x, -1.0).amax(1),
    "gather": lambda x, n: x.gather(1, n[:, None] - 1),
    "slice by a tensor": lambda x, n: x[:, : n.max()].sum(1),
    "index": lambda x, n: x[torch.arange(B9), n - 1],
    "tensor sort": lambda x, n: x[n.argsort(descending=True, stable=True)],
    "mean": lambda x, n: x.sum(1) / n,
    "shape alone": lambda x, n: x * n.shape[0] + 0 * n[:, None],
    "asserted": lambda x, n: x / n[:, None] if (n > 0).all() else x,
}


class Use9(nn.Module):
    def __init__(self, use):
        super().__init__()
        self.use, self.scale = use, nn.Parameter(torch.tensor(1.5))

    def forward(self, x, n):
        return self.use(x * self.scale, n)


def is_right_for_random_lengths(module, inputs, other):
    """Whether torch's own trace gives what the module gives, by trying: also lengths that are all equal."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(module, inputs, check_trace=False)
        for seed in range(40):
            given = other(random.Random(seed))
            try:
                got = traced(*given)
            except RuntimeError:
                return False
            want = module(*given)
            if got.shape != want.shape or not torch.allclose(got, want, equal_nan=True):
                return False
    return True


@pytest.mark.parametrize("use", USES9)
@pytest.mark.parametrize("lengths", [[5, 3, 6, 2], [6, 6, 6, 6], [6, 5, 3, 1]])
def test_ok_means_that_a_trace_is_right_for_other_lengths(use, lengths):
    module, x = Use9(USES9[use]), torch.randn(B9, T9)
    lengths = torch.tensor(lengths)
    right = is_right_for_random_lengths(
        module,
        (x, lengths),
        lambda drawn: (
            x,
            torch.tensor(
                [drawn.randint(1, T9)] * B9 if drawn.random() < 0.5 else drawn.choices(range(1, T9 + 1), k=B9)
            ),
        ),
    )
    found = pv.check_static(module, (x, lengths))
    assert ("trace" not in found.rules) == right
    if not right:
        assert not found.ok
        assert " with n [" in found[found.rules.index("trace")].message


def test_a_trace_that_is_wrong_names_the_lengths_and_the_line():
    def forward(self, x, n):
        longest = n.max().item()
        return x * longest

    found = pv.check_static(type("Net", (nn.Module,), {"forward": forward})(), (torch.randn(B9, T9), LENGTHS9))
    (error,) = found.of("error")
    assert error.rule == "trace"
    assert error.where.endswith(": longest = n.max().item()")
    assert re.search(
        r"differs by [\d.]+ with n \[\d, \d, \d, \d\]\. It keeps what item\(\) reads: 6, and \d there\.", error.message
    )
    assert not found.of("warning")  # the error says more than that a value is read


@dataclasses.dataclass
class Batch9:
    x: torch.Tensor
    n: object


class Pair9(NamedTuple):
    x: torch.Tensor
    n: object


def mask_of(n, width=T9):
    return torch.arange(width) < n[:, None]


FORMS9 = {
    "int32": lambda n: n.int(),
    "float": lambda n: n.float(),
    "a column": lambda n: n[:, None],
    "list": lambda n: n.tolist(),
    "tuple": lambda n: tuple(n.tolist()),
    "numpy": lambda n: n.numpy(),
    "parts": lambda n: n / T9,
    "a column of parts": lambda n: (n / T9)[:, None],
    "mask": mask_of,
    "padding mask": lambda n: ~mask_of(n),
    "mask of floats": lambda n: mask_of(n).float(),
    "mask, time first": lambda n: mask_of(n).T,
    "mask of three axes": lambda n: mask_of(n)[..., None],
    "attention mask": lambda n: mask_of(n)[:, None, None],
    "ids": lambda n: torch.where(mask_of(n), 7, 0),
    "ids padded with 1": lambda n: torch.where(mask_of(n), 7, 1),
    "ids, time first": lambda n: torch.where(mask_of(n), 7, 0).T,
}
NESTS9 = {
    "arguments": lambda x, n: (x, n),
    "dict": lambda x, n: ({"x": x, "n": n},),
    "tuple": lambda x, n: ((x, n),),
    "named tuple": lambda x, n: (Pair9(x, n),),
    "dataclass": lambda x, n: (Batch9(x, n),),
    "dict of a list": lambda x, n: ({"x": [x], "n": (n, n)},),
}


def numbers_of(n):
    """What a trace keeps of lengths in any form: a number that differs between most of them."""
    numbers = torch.as_tensor(n).double()
    return sum((i + 1) * k for i, k in enumerate(numbers.flatten().tolist()))


@pytest.mark.parametrize("nest", NESTS9)
@pytest.mark.parametrize("form", FORMS9)
def test_lengths_are_varied_in_any_form(form, nest):
    def forward(self, batch, n=None):
        if isinstance(batch, dict):
            batch, n = batch["x"], batch["n"]
        elif isinstance(batch, (tuple, Batch9)):
            batch, n = (batch.x, batch.n) if hasattr(batch, "x") else batch
        batch = batch[0] if isinstance(batch, list) else batch
        n = n[0] if isinstance(n, tuple) and len(n) == 2 else n
        return batch * numbers_of(n)

    module = type("Net", (nn.Module,), {"forward": forward})()
    inputs = NESTS9[nest](torch.randn(B9, T9, 3), FORMS9[form](LENGTHS9))
    found = pv.check_static(module, inputs)
    assert "trace" in found.rules
    assert not found.ok


@pytest.mark.parametrize("form", ["int32", "mask", "padding mask", "ids", "parts", "a column"])
def test_lengths_in_other_forms_may_be_right(form):
    module = type("Net", (nn.Module,), {"forward": lambda self, x, n: x * n.double().sum()})()
    assert pv.check_static(module, (torch.randn(B9, T9, 3), FORMS9[form](LENGTHS9))).ok


def packing_with(lengths_of, *inputs):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(3, 4, batch_first=True)

        def forward(self, x, *other):
            n = lengths_of(x, *other)
            return self.rnn(pack_padded_sequence(x, n, batch_first=True, enforce_sorted=False))[1]

    return pv.check_static(Net(), (torch.rand(B9, T9, 3) + 0.1, *inputs))


@pytest.mark.parametrize(
    ("lengths_of", "inputs"),
    [
        (lambda x: LENGTHS9, ()),
        (lambda x: torch.full((B9,), x.shape[1]), ()),
        (lambda x, odd: odd.lengths, (type("Odd", (), {"__slots__": ("lengths",)})(),)),
        (lambda x, n: torch.tensor([2, 2, 2, 2]), (LENGTHS9,)),
    ],
)
def test_undecided_is_never_ok(lengths_of, inputs):
    for one in inputs:
        if hasattr(type(one), "__slots__") and not isinstance(one, torch.Tensor):
            one.lengths = LENGTHS9
    found = packing_with(lengths_of, *inputs)
    assert "undecided" in found.rules
    assert not found.ok
    assert found.verdict.startswith("Undecided: ")


class Closed9:
    __slots__ = ("n",)

    def __init__(self, n):
        self.n = n


@pytest.mark.parametrize(
    "hidden",
    [
        {"packed": pack_padded_sequence(torch.randn(B9, T9), [5, 3, 3, 2], batch_first=True)},
        Closed9(LENGTHS9),
        {"n": Closed9(LENGTHS9)},
        iter([1, 2]),
    ],
    ids=["packed in a dict", "slots", "slots in a dict", "iterator"],
)
def test_what_cannot_be_varied_is_undecided(hidden):
    module = type("Net", (nn.Module,), {"forward": lambda self, x, n, hidden: x / n[:, None]})()
    found = pv.check_static(module, (torch.randn(B9, T9), LENGTHS9, hidden))
    assert found.rules == ["undecided"]
    assert not found.ok


def test_inputs_that_only_look_like_lengths_give_no_false_alarm():
    class Net(nn.Module):
        def forward(self, x, n, label, weight):
            picked = nn.functional.one_hot(label, 2)  # takes 0 and 1 only
            return x / n[:, None] * picked.sum() * weight

    label, weight = torch.tensor([1, 0, 1, 1]), torch.tensor(0.5)
    assert pv.check_static(Net(), (torch.randn(B9, T9), LENGTHS9, label, weight)).rules == []


def test_channels_are_not_taken_for_time_steps():
    class Net(nn.Module):
        def forward(self, x, n):  # (B, C, T)
            assert n.max() <= x.shape[2]
            return x.sum(1).gather(1, n[:, None] - 1)

    found = pv.check_static(Net(), (torch.randn(B9, 9, T9), LENGTHS9))
    assert found.ok
    assert "fails" not in found.rules


def test_the_command_makes_token_ids_that_can_be_varied(tmp_path, capsys):
    (tmp_path / "nets.py").write_text(IDS9)
    for name, status in (("Right", 0), ("Wrong", 1)):
        assert cli.main(["check", f"{tmp_path}/nets.py:{name}"]) == status
        assert ("trace" in capsys.readouterr().out) == bool(status)


IDS9 = """
import torch
from torch import nn

class Right(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn = nn.Embedding(4, 3), nn.GRU(3, 2, batch_first=True)

    def forward(self, ids):
        output, _ = self.rnn(self.embed(ids))
        real = ids != 0
        return (output * real[..., None]).sum(1) / real.sum(1, keepdim=True)

class Wrong(Right):
    def forward(self, ids):
        return super().forward(ids) * max((ids != 0).sum(1).tolist())
"""


def test_what_gives_another_result_each_time_is_undecided():
    count = itertools.count()
    module = type("Net", (nn.Module,), {"forward": lambda self, x: x + next(count)})()
    found = pv.check_static(module, (torch.randn(B9, T9),))
    assert found.rules == ["undecided"]
    assert "another result each time" in found[0].message


def test_what_a_trace_refuses_is_not_ok():
    module = type("Net", (nn.Module,), {"forward": lambda self, x, n: x * n[:, None]})()
    inputs = torch.randn(B9, T9), LENGTHS9
    assert pv.check_static(module, inputs).ok
    module.register_full_backward_hook(lambda *_: None)
    found = pv.check_static(module, inputs)
    assert not found.ok
    assert found[0].message.startswith(
        "torch.jit.trace refuses the network: ValueError: Modules that have backward hooks"
    )


def test_values_of_the_data_may_be_kept_as_well():
    module = type("Net", (nn.Module,), {"forward": lambda self, x: x if x.sum() > 0 else -2 * x})()
    found = pv.check_static(module, (torch.ones(B9, T9),))
    assert not found.ok
    assert "with other numbers" in found[found.rules.index("trace")].message


# ---- 10. The legacy ONNX exporter ignores padding_value


class Largest10(nn.Module):
    """The largest output of an LSTM over time; all outputs are negative."""

    def __init__(self, padded):
        super().__init__()
        self.lstm, self.padded = nn.LSTM(3, 7), padded
        with torch.no_grad():
            self.lstm.bias_hh_l0[14:21] = -9  # of the cell input

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        return self.padded(self.lstm(packed)[0], x, lengths).amax(0)


def padded_with_infinity(packed, x, lengths):
    return rnn.pad_packed_sequence(packed, padding_value=float("-inf"), total_length=x.size(0))[0]


def masked_by_lengths(packed, x, lengths):
    output, _ = rnn.pad_packed_sequence(packed, total_length=x.size(0))
    padding = torch.arange(x.size(0))[:, None] >= lengths
    return output.masked_fill(padding[..., None], float("-inf"))


def in_onnx_runtime(module, x, lengths):
    """What ONNX Runtime gives for a module that the legacy exporter saw with lengths that are all equal."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        example = x, torch.full_like(lengths, x.size(0))
        torch.onnx.export(module, example, file, dynamo=False, input_names=["x", "lengths"])
    session = pytest.importorskip("onnxruntime").InferenceSession(file.getvalue())
    return torch.from_numpy(session.run(None, {"x": x.numpy(), "lengths": lengths.numpy()})[0])


def test_the_legacy_onnx_exporter_pads_with_0_and_check_static_says_so():
    x, lengths = torch.randn(5, 3, 3), torch.tensor([3, 5, 1])
    module = Largest10(padded_with_infinity).eval()
    want, got = module(x, lengths), in_onnx_runtime(module, x, lengths)
    assert (want < 0).all()
    assert got[0].eq(0).all()  # the first sequence has padding
    (found,) = [one for one in pv.check_static(module, (x, lengths)) if one.rule == "padding_value"]
    assert found.level == "warning"
    assert "legacy ONNX exporter" in found.message
    assert "28423" in found.message
    assert found.where.endswith('padding_value=float("-inf"), total_length=x.size(0))[0]')
    (code,) = re.findall(r"output\.masked_fill\(.*\)", found.fix)
    padded = eval(code, {"pv": pv, "output": torch.ones(3, 5, 2).transpose(0, 1), "lengths": lengths})
    assert [padded[:, b].isfinite().all(-1).sum() for b in range(3)] == lengths.tolist()


def test_a_mask_by_the_lengths_is_right_in_onnx_and_has_no_finding():
    x = torch.randn(5, 3, 3)
    module = Largest10(masked_by_lengths).eval()
    for lengths in ([3, 5, 1], [5, 5, 5], [1, 1, 4]):
        n = torch.tensor(lengths)
        with torch.no_grad():
            assert torch.allclose(in_onnx_runtime(module, x, n), module(x, n), atol=1e-6)
    assert pv.check_static(module, (x, torch.tensor([3, 5, 1]))).rules == ["unsorted"]


@pytest.mark.parametrize(("value", "found"), [(0, False), (0.0, False), (-1, True), (float("nan"), True), (1e-9, True)])
@pytest.mark.parametrize("pad", [rnn.pad_packed_sequence, pv.pad_packed_sequence])
def test_every_padding_value_but_0_is_named(pad, value, found):
    module = Largest10(lambda packed, x, lengths: pad(packed, False, value, 5)[0])
    rules = pv.check_static(module, (torch.randn(5, 3, 3), torch.tensor([3, 5, 1]))).rules
    assert ("padding_value" in rules) == found


def test_the_table_of_compilers_has_both():
    cells = compilers.recorded().cells
    assert cells["maximum, padded with −inf"]["ONNX, legacy"].outcome == "WRONG"
    assert cells["maximum, masked"]["ONNX, legacy"].outcome == "right"


# ---- 11. explain_errors never fails, follows causes, and can be installed

X11 = torch.zeros(5, 3, 2)
SIGN11 = "packviz: "


def notes_of(call):
    """The notes of the error that a call raises within `explain_errors`."""
    with pytest.raises(Exception) as raised, pv.explain_errors():  # noqa: PT011 - any
        call()
    return [note for note in getattr(raised.value, "__notes__", []) if note.startswith(SIGN11)]


def unsorted_lengths():
    pack_padded_sequence(X11, [3, 5, 2])


@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize(
    "lengths",
    [
        torch.tensor(5),
        torch.tensor([[5], [3], [2]]),
        torch.tensor([[5, 3, 2]]),
        torch.zeros(2, 2, 2, dtype=torch.long),
        torch.tensor([]),
        [],
        5,
        None,
        "abc",
        [[5], [3], [2]],
        [5, None, 2],
        [5, float("nan"), 2],
        {"a": 5},
    ],
    ids=str,
)
def test_odd_lengths_get_a_note(lengths, enforce_sorted):
    (note,) = notes_of(lambda: pack_padded_sequence(X11, lengths, enforce_sorted=enforce_sorted))
    assert "passed: " in note


@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize("lengths", [torch.tensor(5), 5, "abc", {"a": 5}, [[5], [3], [2]], torch.tensor([[5], [3]])])
def test_lengths_of_another_form_get_a_note_that_says_what_to_give(lengths, enforce_sorted):
    (note,) = notes_of(lambda: pack_padded_sequence(X11, lengths, enforce_sorted=enforce_sorted))
    assert "list the number of real time steps of each sequence" in note


def test_two_axes_of_lengths_are_shown_in_the_callers_order():
    (note,) = notes_of(lambda: pack_padded_sequence(X11, torch.tensor([[3, 5, 2]]), enforce_sorted=False))
    assert "lengths=[[3, 5, 2]]" in note


class Raises11:
    """Whatever is asked of it fails."""

    def __getattr__(self, name):
        raise ZeroDivisionError(name)

    def __repr__(self):
        raise ZeroDivisionError("repr")


ODD11 = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.floats(),
    st.text(max_size=3),
    st.lists(
        st.one_of(st.integers(-1, 7), st.none(), st.floats(), st.lists(st.integers(0, 3), max_size=2)), max_size=5
    ),
    st.builds(lambda shape: torch.zeros(shape), st.lists(st.integers(0, 4), max_size=4)),
    st.builds(lambda shape: torch.ones(shape, dtype=torch.long), st.lists(st.integers(0, 4), max_size=4)),
    st.builds(lambda n: torch.tensor(n), st.lists(st.integers(-1, 6), max_size=5)),
    st.builds(lambda n: np.array(n), st.lists(st.integers(-1, 6), max_size=5)),
    st.builds(Raises11),
    st.builds(lambda: pack_padded_sequence(X11, [5, 3, 2])),
    st.builds(lambda: PackedSequence(X11, torch.tensor([5, 0]))),
    st.builds(lambda: torch.zeros(3, device="meta", dtype=torch.long)),
)
CALLS11 = {
    "pack": lambda a, b, flag: pack_padded_sequence(a, b, flag, not flag),
    "pack well": lambda a, b, flag: pack_padded_sequence(X11, b, flag, not flag),
    "pack sequence": lambda a, b, flag: rnn.pack_sequence([a, b], flag),
    "pad": lambda a, b, flag: rnn.pad_packed_sequence(a, flag, 0.0, b),
    "unpack": lambda a, b, flag: rnn.unpack_sequence(a),
    "run": lambda a, b, flag: nn.LSTM(2, 2, batch_first=flag)(a, b),
    "ours": lambda a, b, flag: pv.pack_padded_sequence(a, b, flag, not flag),
    "our pad": lambda a, b, flag: pv.pad_packed_sequence(a, flag, 0.0, b),
}


@given(st.sampled_from([*CALLS11]), ODD11, ODD11, st.booleans())
def test_the_explanation_itself_never_fails(call, a, b, flag):
    try:
        CALLS11[call](a, b, flag)
    except Exception as error:
        errors._explain(error)  # nothing here keeps back what it raises
        notes = getattr(error, "__notes__", [])
        assert len(notes) == 1 or call == "run"


class Odd11(Exception):
    def __str__(self):
        raise ZeroDivisionError


def raised_again(how):
    try:
        unsorted_lengths()
    except RuntimeError as error:
        if how == "from":
            raise Exception from error
        if how == "from none":
            raise Exception("it failed") from None
        if how == "text":
            raise Exception(str(error))  # noqa: B904
        if how == "odd":
            raise Odd11  # noqa: B904
        if how == "twice":
            try:
                raise KeyError("x") from error
            except KeyError as second:
                raise Exception("y") from second
        if how == "group":
            raise ExceptionGroup("several", [ValueError("z"), error])  # noqa: B904
        raise Exception  # noqa: B904


@pytest.mark.parametrize("how", ["plain", "from", "from none", "text", "odd", "twice", "group"])
def test_an_error_that_is_raised_again_is_explained(how):
    (note,) = notes_of(lambda: raised_again(how))
    assert note.startswith("packviz: Lengths not sorted (exhibit ")
    assert "\n  about: the RuntimeError before this: `lengths` array must be sorted" in note
    assert "lengths=[3, 5, 2]" in note


def test_an_explained_error_that_is_raised_again_has_one_note_that_is_seen():
    def again(how):
        try:
            with pv.explain_errors():
                unsorted_lengths()
        except RuntimeError as error:
            raise Exception from (error if how else None)

    assert notes_of(lambda: again(True)) == []  # Python shows the first error, with its note
    assert len(notes_of(lambda: again(False))) == 1


def test_causes_in_a_circle_end():
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first

    def fails():
        raise first

    assert notes_of(fails) == []


def test_a_call_that_nothing_uses_warns_with_its_line(recwarn):
    pv.explain_errors()
    gc.collect()
    (warning,) = recwarn.list
    assert str(warning.message).startswith("explain_errors() does nothing by itself; write `with pv.explain_errors():`")
    assert warning.filename == __file__
    assert linecache.getline(__file__, warning.lineno).strip() == "pv.explain_errors()"


def test_a_call_that_is_used_does_not_warn(recwarn):
    kept = pv.explain_errors()
    assert repr(kept).startswith("explain_errors() does nothing by itself")
    with kept:
        pass
    assert repr(kept) == "explain_errors(), in use"
    pv.explain_errors()(len)
    pv.explain_errors(len)
    pv.explain_errors().uninstall()
    del kept
    gc.collect()
    assert not recwarn.list


@pytest.mark.parametrize("what", [nn.LSTM, nn.LSTM(2, 2), 5, "text"])
def test_what_explain_errors_cannot_wrap_is_refused(what):
    with pytest.raises(
        TypeError, match=r"explain_errors wraps functions, and got (LSTM|an? \w+); decorate its forward"
    ):
        pv.explain_errors(what)


SCRIPT11 = """
import threading, torch, packviz as pv
from torch.nn.utils.rnn import pack_padded_sequence

def work():
    pack_padded_sequence(torch.zeros(5, 3, 2), [3, 5, 2])

{}
thread = threading.Thread(target=work)
thread.start()
thread.join()
work()
"""


STARTS11 = {  # how the script starts, and how often an error is explained and a warning given
    "pv.explain_errors().install()": (2, 0),
    "pv.explain_errors().install(); pv.explain_errors().install()": (2, 0),
    "pv.explain_errors().install(); pv.explain_errors().uninstall()": (0, 0),
    "pv.explain_errors()": (0, 1),
    "kept = pv.explain_errors()": (0, 1),
}
EACH11 = """
import os, runpy, sys
import packviz as pv, torch
pv.explain_errors  # import what takes time once, for all
for path in sys.argv[1:]:
    child = os.fork()
    if not child:
        runpy.run_path(path, run_name="__main__")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    print("ended", file=sys.stderr, flush=True)
"""


def test_a_script_says_what_became_of_its_errors(tmp_path):
    scripts = [tmp_path / f"script{i}.py" for i in range(len(STARTS11))]
    for script, start in zip(scripts, STARTS11, strict=True):
        script.write_text(SCRIPT11.format(start))
    done = subprocess.run([sys.executable, "-c", EACH11, *scripts], capture_output=True, text=True, check=True)
    warning = r"script\d\.py:8: RuntimeWarning: explain_errors\(\) does nothing by itself"
    found = [(said.count("packviz: Lengths not sorted"), len(re.findall(warning, said)))
             for said in done.stderr.split("ended\n")[:-1]]  # fmt: skip
    assert dict(zip(STARTS11, found, strict=True)) == STARTS11


def test_installed_in_ipython():
    code = "pv.explain_errors()", "pv.explain_errors().install()", "work()", "pv.explain_errors().uninstall()", "work()"
    shell = f"""
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell({SCRIPT11.split("{}")[0]!r})
for code in {code!r}:
    print("In:", code)
    shell.run_cell(code)
"""
    done = subprocess.run([sys.executable, "-c", shell], capture_output=True, text=True, check=True)
    _, alone, _, explained, _, plain = done.stdout.split("In:")
    assert "explain_errors() does nothing by itself" in alone
    assert explained.count("packviz: Lengths not sorted") == 1
    assert "RuntimeError" in plain
    assert SIGN11 not in plain


def test_hooks_that_were_put_around_ours_stay(monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "excepthook", lambda *given: seen.append(given[1]))
    before = sys.excepthook
    pv.explain_errors().install()
    try:
        ours = sys.excepthook
        sys.excepthook = theirs = lambda *given: ours(*given)
    finally:
        pv.explain_errors().uninstall()
    assert sys.excepthook is theirs
    assert ours is not before
    with pytest.raises(RuntimeError) as raised:
        unsorted_lengths()
    sys.excepthook(RuntimeError, raised.value, raised.value.__traceback__)
    assert seen == [raised.value]
    assert not hasattr(raised.value, "__notes__")


# ---- 12. diagnose says when it cannot judge

LENGTHS = [9, 4, 6, 2, 7]
REAL_CELLS = torch.arange(12) < torch.tensor(LENGTHS).unsqueeze(1)  # (B, T), true at real cells


def over_time(layer):
    """A layer that takes (B, C, T), for (B, T, C)."""
    return lambda x: layer(x.transpose(1, 2)).transpose(1, 2)


def packed(x):
    output, _ = nn.LSTM(8, 6, batch_first=True)(pack_padded_sequence(x, LENGTHS, True, False))
    return pad_packed_sequence(output, True, total_length=12)[0]


LAYERS = {  # of floats, (B, T, 8); what says that the padding cannot be judged, or None if it stays constant
    "nothing": (lambda x: x, None),
    "dropout": (lambda x: nn.Dropout()(x), None),  # zeros stay zeros
    "dropout in eval mode": (lambda x: nn.Dropout().eval()(x + 1), None),
    "dropout of padding that is not zero": (lambda x: nn.Dropout()(x + 1), "dropout"),
    "Linear": (lambda x: nn.Linear(8, 5)(x), None),
    "LayerNorm": (lambda x: nn.LayerNorm(8)(x + 1), None),
    "BatchNorm": (over_time(nn.BatchNorm1d(8)), None),
    "tanh": (lambda x: (x + 1).tanh(), None),
    "packed LSTM": (packed, None),
    "convolution": (over_time(nn.Conv1d(8, 5, 3, padding=1)), "convolution"),
    "two convolutions": (over_time(nn.Sequential(*[nn.Conv1d(8, 8, 3, padding=1)] * 2)), "convolution"),
    "convolution of other padding": (
        over_time(lambda x: nn.Conv1d(8, 5, 3, padding=1)(x + 1)),
        "convolution",
    ),
    "positions": (lambda x: x + torch.randn(12, 8), "positions"),
    "InstanceNorm": (over_time(nn.InstanceNorm1d(8)), "each sequence has its own"),
    "padded with its last step": (
        lambda x: x.where(REAL_CELLS.unsqueeze(2), x[range(5), [n - 1 for n in LENGTHS]].unsqueeze(1)),
        "each sequence has its own",
    ),
    "padded LSTM": (lambda x: nn.LSTM(8, 6, batch_first=True)(x)[0], "RNN"),
    "two directions": (lambda x: nn.LSTM(8, 6, batch_first=True, bidirectional=True)(x)[0], "RNN"),
    "noise": (lambda x: x + 0.001 * torch.randn_like(x), "RNN"),
    "no values": (lambda x: x.to("meta"), "meta"),
    "nothing but zeros": (lambda x: 0 * x, "the same everywhere"),
}


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(("layer", "why"), LAYERS.values(), ids=LAYERS)
@torch.no_grad()
def test_12_padding_that_is_not_constant_is_undecided(layer, why, batch_first):
    torch.manual_seed(0)
    x = layer(torch.randn(5, 12, 8) * REAL_CELLS.unsqueeze(2))
    found = pv.diagnose(x if batch_first else x.transpose(0, 1), LENGTHS, batch_first=batch_first)
    assert found.undecided == bool(why)
    assert found.ok == (not why)
    assert ("undecided" in found.headline) == bool(why)
    assert found.headline.startswith("?" if why else "✓")
    if why:
        (one,) = found.of("warning")
        assert why in one.message
        assert "cannot" in one.message
        assert "pass " in one.fix


@pytest.mark.parametrize("layer", [nn.Embedding(40, 8), nn.Embedding(40, 8, padding_idx=0)])
@pytest.mark.parametrize("padding", [0, 1])
@torch.no_grad()
def test_12_token_ids_and_their_embeddings_are_judged(layer, padding):
    ids = torch.randint(2, 40, (5, 12)).masked_fill(~REAL_CELLS, padding)
    for x in (ids, ids.int(), layer(ids)):
        assert pv.diagnose(x, LENGTHS, batch_first=True).ok
        assert not pv.diagnose(x, sorted(LENGTHS), batch_first=True).ok


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@torch.no_grad()
def test_12_rounding_is_no_difference(dtype):
    """A linear layer does not round alike in all rows."""
    torch.manual_seed(0)
    for size in range(2, 12):
        n = torch.randint(1, 34, (size,))
        x = torch.randn(size, 33, 17) * (torch.arange(33) < n.unsqueeze(1)).unsqueeze(2)
        rounded = 1 + torch.finfo(dtype).eps * torch.randint(0, 2, (size, 33, 5)).to(dtype)
        assert not pv.diagnose(nn.Linear(17, 5)(x).to(dtype) * rounded, n, batch_first=True).undecided


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.bfloat16, torch.complex64])
def test_12_padding_of_any_dtype_may_be_uneven(dtype):
    torch.manual_seed(0)
    x = (100 * torch.randn(5, 12, 8).abs()).to(torch.uint8) % (2 if dtype == torch.bool else 100)
    assert pv.diagnose(x.to(dtype), LENGTHS, batch_first=True).undecided


def test_12_one_cell_of_padding_is_like_itself():
    x = torch.randn(4, 6, 3)
    assert pv.diagnose(x, [6, 6, 5, 6], batch_first=True).undecided
    x[2, 5] = 0
    assert pv.diagnose(x, [6, 6, 5, 6], batch_first=True).ok


@pytest.mark.parametrize("size", [1, 4, 6])
def test_12_without_padding_there_is_nothing_to_judge_by(size):
    found = pv.diagnose(torch.randn(size, 6, 3), [6] * size, batch_first=True)
    assert found.rules == ["no padding"]
    assert found.ok
    assert not found.clean
    assert ("batch_first" in found[0].message) == (size == 6)


def test_12_lengths_that_fit_either_dimension_are_named():
    x = torch.randn(3, 3, 2) * (torch.arange(3) < torch.tensor([[3], [2], [1]])).unsqueeze(2)
    for batch_first in (True, False):
        assert pv.diagnose(x, [3, 2, 1], batch_first=batch_first).rules == ["batch or time"]


def test_12_a_mistake_that_shows_all_the_same_is_told():
    output, _ = nn.GRU(8, 3, batch_first=True)(torch.randn(5, 12, 8))
    found = pv.diagnose(output, LENGTHS, batch_first=True, last=output[:, -1])
    assert found.rules == ["read at the padding", "undecided", "narrower when unpacked"]
    assert found.headline == "✗ x of shape (5, 12, 3), read as (B, T, …): undecided, 1 error, 1 warning, 1 info"


@pytest.mark.parametrize("shape", [(0, 5, 2), (3, 0, 2), (3, 5, 0)])
def test_12_an_empty_batch_is_not_ok(shape):
    assert pv.diagnose(torch.zeros(shape), [5, 3, 2][: shape[0]], batch_first=True).rules == ["empty batch"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("steps", [6, 9, 1000])
def test_12_a_fraction_that_rounding_left_is_shown_in_full(dtype, steps):
    """Shares times T, as SpeechBrain has them, fall short by one in the last place."""
    short = torch.nextafter(torch.tensor(float(steps), dtype=dtype), torch.tensor(0.0, dtype=dtype))
    found = pv.diagnose(torch.randn(2, steps, 3), torch.stack([torch.tensor(float(steps), dtype=dtype), short]), True)
    (finding,) = [one for one in found if one.rule == "fractional length"]
    assert float(re.search(r"lengths\[1\] is (\S+)\. ", finding.message)[1]) == short.item()


# ---- 13. What is almost certain is an error

X = torch.randn(8, 12, 3) * (torch.arange(12) < torch.tensor([[12, 3, 9, 1, 5, 7, 11, 4]]).T).unsqueeze(2)
N = [12, 3, 9, 1, 5, 7, 11, 4]


@pytest.mark.parametrize(
    "lengths",
    [[12, 3, 7, 1, 5, 7, 11, 4], [max(n - 2, 1) if n % 2 else n for n in N], N[::-1]],
    ids=["one too short", "some too short", "another order"],
)
def test_13_what_is_almost_certain_is_an_error(lengths):
    found = pv.diagnose(X, lengths, batch_first=True)
    assert found[0].level == "error"
    assert "almost certain" in found[0].message
    assert not found.ok
    assert not found.clean


def test_13_what_is_less_certain_is_a_warning():
    x = torch.randn(3, 6, 3) * (torch.arange(6) < torch.tensor([[6], [4], [3]])).unsqueeze(2)
    found = pv.diagnose(x, [6, 4, 1], batch_first=True)
    assert found.of("warning")
    assert "likely" in found[0].message
    assert found.ok
    assert not found.clean


@pytest.mark.parametrize(
    ("lengths", "rule"), [([max(n - 1, 1) for n in N], "undecided"), ([12] * 8, "padding inside the length")]
)
def test_13_what_may_be_on_purpose_is_no_error(lengths, rule):
    found = pv.diagnose(X, lengths, batch_first=True)
    assert (found[0].level, found[0].rule) == ("warning", rule)


def test_13_a_sequence_may_end_in_silence():
    x = X.clone()
    x[0, 10:] = x[2, 6:] = x[5, 3:] = 0  # almost certain by chance alone, but somebody has counted these lengths
    found = pv.diagnose(x, N, batch_first=True)
    assert [(one.level, one.rule) for one in found] == [("info", "padding inside the length")]


@torch.no_grad()
def test_13_a_convolution_is_no_certain_mistake():
    found = pv.diagnose(over_time(nn.Conv1d(3, 8, 3, padding=1))(X), N, batch_first=True)
    assert found.undecided
    assert not found.of("error")


def test_13_clean_means_that_nothing_was_found():
    assert Findings("N").clean
    for level in ("error", "warning", "info"):
        found = Findings("N", (Finding(level, "rule", "What."),))
        assert not found.clean
        assert found.ok == (level != "error")
    doubt = Findings("N", (Finding("warning", "undecided", "Why."),))
    assert doubt.undecided
    assert not doubt.ok


@pytest.mark.parametrize(
    ("x", "lengths", "plain", "strict"),
    [
        (X, N, 0, 0),
        (X, [12, 3, 7, 1, 5, 7, 11, 4], 1, 1),  # an error
        (X[:, :, 0].clone().index_fill(1, torch.tensor([11]), 0), N, 0, 0),  # an info
        (X, [12] * 8, 0, 1),  # a warning
        (X + torch.randn(12, 3), N, 1, 1),  # undecided
    ],
    ids=["right", "error", "info", "warning", "undecided"],
)
def test_13_the_exit_status(x, lengths, plain, strict, tmp_path, capsys):
    torch.save((x, lengths), tmp_path / "a.pt")
    command = ["diagnose", str(tmp_path / "a.pt"), "--batch-first"]
    assert cli.main(command) == plain
    assert cli.main([*command, "--strict"]) == strict
    assert ("undecided" in capsys.readouterr().out) == (lengths is N and plain == 1)


# ---- 14. advise measures until it is clear, or says that it is not

AUTO = f"pv.run, {comparison.METHODS[0]}"
QUIET = {"load_average": [0.9, 0.9, 0.9], "cores": 2}


class Script:
    """A clock whose calls take what a test has written down, in the order of the rounds."""

    def __init__(self, factor, seed=0):
        """`factor(random, name)` gives the seconds of a call."""
        self.now, self.random, self.factor, self.seen = 100.0, np.random.default_rng(seed), factor, 0

    def start(self):
        self.began = self.now

    def stop(self):
        return self.now - self.began

    def call(self, name):
        self.seen += 1
        self.now += self.factor(self.random, name)

    def calls(self, *names):
        return {name: lambda name=name: self.call(name) for name in names}


def advised(monkeypatch, factor, *, place=QUIET, budget=20.0):
    """What `advise` says if calls take what `factor` gives."""
    clock = Script(factor)

    def method(name):
        def run(rnn, x, lengths):
            clock.call(name)
            return rnn(x)

        return run

    monkeypatch.setattr(advice, "every_method", lambda: {name: method(name) for name in MIDDLE})
    monkeypatch.setattr(advice.time, "monotonic", lambda: clock.now)
    for module in (comparison, timing):
        monkeypatch.setattr(module, "clock_for", lambda device: clock)
    monkeypatch.setattr(timing, "provenance", lambda device, parameters: dict(place))
    monkeypatch.setattr(timing, "load_average", lambda: place["load_average"])
    found = advice.advise(nn.GRU(1, 2), [5, 3, 8, 2] * 16, batch_size=16, budget=budget, progress=lambda *n: None)
    return found, clock.now - 100.0


MIDDLE = {PADDED: 1e-3, PACKED: 3e-3, AUTO: 2e-3}


def noisy(sigma, middle=MIDDLE):
    """Times around these middles: a factor of e^sigma up or down is usual."""
    return lambda random, name: middle[name] * math.exp(sigma * random.standard_normal())


def test_advise_stops_as_soon_as_it_knows(monkeypatch):
    found, spent = advised(monkeypatch, noisy(0.01))
    assert found.timing.is_narrow(PACKED)
    assert FEWEST_ROUNDS <= found.timing.rounds <= 8
    assert spent < 1.0  # of 20 seconds
    assert (found.best, found.is_clear) == (AUTO, True)
    assert "busy" not in found.to_text()
    assert "annot tell" not in found.to_text()


def test_advise_measures_on_while_it_does_not_know(monkeypatch):
    found, spent = advised(monkeypatch, noisy(0.15))
    assert found.timing.rounds > 15
    assert spent < 20.0
    assert found.timing.is_narrow(PACKED)
    assert found.best == AUTO


def test_advise_prints_no_more_than_it_knows(monkeypatch):
    found, _ = advised(monkeypatch, noisy(0.05))
    low, high = found._gain.interval
    said = re.search(r"saves (\S+) % of the time of torch, packed \(95 % interval (\S+) to (\S+) %\)", found.verdict)
    assert said, found.verdict
    saved, *ends = said.groups()
    assert float(ends[0]) <= 100 * (1 - high) < 100 * (1 - low) <= float(ends[1])
    step = 10.0 ** -len(saved.partition(".")[2])
    assert step <= 100 * (high - low) < 10 * step or saved.count("0")
    assert f"{100 * (1 - found._gain.value):.3g} %" not in found.verdict


def test_advise_says_that_it_cannot_tell(monkeypatch):
    """Three rounds with a spread of 40 told of 93.3 % saved."""
    for sigma, budget in ((1.5, 1.0), (1.5, 0.2), (0.01, 0.05)):  # some rounds with a huge spread; one or two; few
        found, _ = advised(monkeypatch, noisy(sigma, dict.fromkeys(MIDDLE, 3e-3)), budget=budget)
        assert found.best == PACKED
        assert not found.is_clear
        assert "annot tell" in found.verdict
        assert "saves" not in found.verdict
        assert "Give a larger budget, or repeat it on a quiet machine." in found.verdict


def test_advise_says_that_the_machine_is_busy(monkeypatch):
    loaded = {"load_average": [2.7, 1.0, 1.0], "cores": 2}
    found, _ = advised(monkeypatch, noisy(0.01), place=loaded, budget=1e-4)  # suffices for torch's packing alone
    assert found.verdict.startswith("Cannot tell which is fastest; take the simplest, torch, packed.")
    assert "Nothing else was measured.\nThe machine is busy: a load of 2.7 on 2 cores.\nGive" in found.verdict
    for sigma in (0.01, 1.5):
        found, _ = advised(monkeypatch, noisy(sigma), place=loaded, budget=1.0)
        assert "The machine is busy: a load of 2.7 on 2 cores." in found.verdict
    found, _ = advised(monkeypatch, noisy(1.5), budget=1.0)
    assert re.search(r"The machine is busy: the same call takes up to \S+ times as long", found.verdict)


def test_two_that_take_the_same_time_are_the_same(monkeypatch):
    found, _ = advised(monkeypatch, noisy(0.02, dict.fromkeys(MIDDLE, 3e-3)))
    assert found.best == PACKED
    assert found.is_clear
    assert "Nothing with the same results is clearly faster." in found.verdict


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 60),
    st.floats(0.01, 100),
    st.sampled_from(["lognormal", "cauchy", "exponential"]),
)
def test_an_interval_covers_the_median_at_the_stated_rate(seed, n, median, kind):
    """Whatever the distribution: of 400 intervals at least 95 % cover it, but for chance (four standard errors)."""
    random = np.random.default_rng(seed)
    draws = {
        "lognormal": lambda: np.exp(random.standard_normal(n)),
        "cauchy": lambda: 1 + random.standard_cauchy(n),
        "exponential": lambda: random.standard_exponential(n) / math.log(2),
    }
    intervals = [median_interval((median * draws[kind]()).tolist()) for _ in range(400)]
    covered = sum(low <= median <= high for low, high in intervals) / len(intervals)
    assert covered >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / 400)
    assert all(math.isinf(high) for _, high in intervals) == (n < FEWEST_ROUNDS)


@given(st.integers(1, 200))
def test_the_interval_is_the_narrowest_of_its_rate(n):
    """The formula of `bench/timing.py`, in exact integers."""
    low, high = median_interval(range(n))
    coverage = [1 - 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n for k in range(n)]
    wide_enough = [k for k in range((n + 1) // 2) if coverage[k] >= 0.95]
    assert (low, high) == ((wide_enough[-1], n - 1 - wide_enough[-1]) if wide_enough else (-math.inf, math.inf))


def test_to_stop_when_it_is_narrow_hardly_lowers_the_rate(monkeypatch):
    """Known ratio, noise of 10 %: as many intervals cover it as stated, though measuring stops by their width."""
    monkeypatch.setattr(timing, "provenance", lambda device, parameters: {})
    covered = rounds = 0
    for seed in range(300):
        clock = Script(lambda random, name: {"a": 1.0, "b": 1.2}[name] * math.exp(0.1 * random.standard_normal()), seed)
        found = measure(clock.calls("a", "b"), rounds=400, warmup=0, clock=clock, until_narrow=True)
        low, high = found.ratio("b", "a").interval
        assert high <= NARROW * low
        covered += low <= 1.2 <= high
        rounds += found.rounds
    assert 10 < rounds / 300 < 100
    assert covered / 300 > 0.92


@given(st.floats(1e-3, 1e4), st.floats(1e-3, 1), st.floats(1e-3, 1))
def test_a_number_is_rounded_to_what_is_known(value, below, above):
    interval = value * (1 - below), value * (1 + above)
    said, ends = (
        quantities.known(value, interval).replace(",", ""),
        quantities.between(interval).replace(",", "").split(" to "),
    )
    assert float(ends[0]) <= interval[0] * (1 + 1e-6) + 1e-12
    assert float(ends[1]) >= interval[1] * (1 - 1e-6)
    assert abs(float(said) - value) <= max(interval[1] - interval[0], 0.005 * value)
    assert len(said.replace(".", "").strip("0")) <= 3


def test_the_neighbours_say_it_too():
    """A timing's own text, and the words of a ratio; a busy machine is named wherever a timing is shown."""
    noise = [0.03, 1.3, 0.2, 0.9, 0.05, 1.1, 0.4, 0.6]
    found = Timing({"a": [1.0] * 8, "b": noise}, provenance={"load_average": [2.7, 1, 1], "cores": 2})
    assert "cannot tell b and a apart: b takes 0.03 to 1.3 times as long" in found.to_text()
    assert "The machine is busy: a load of 2.7 on 2 cores." in found.to_text()
    assert "busy" in found.notes[-1]
    for few in range(1, FEWEST_ROUNDS):
        some = Timing({"a": [1.0] * few, "b": [9.0] * few})
        assert not some.ratio("b", "a").is_clear
        assert "cannot tell b and a apart" in some.to_text()


# ---- 15. The names of a comparison are stable


@given(
    cell=st.sampled_from(["RNN", "GRU", "LSTM"]),
    bidirectional=st.booleans(),
    layers=st.integers(1, 2),
    on=st.booleans(),
)
def test_a_comparison_answers_by_the_same_names_for_every_rnn(cell, bidirectional, layers, on):
    rnn = getattr(torch.nn, cell)(2, 3, layers, bidirectional=bidirectional)
    x, lengths = torch.randn(5, 3, 2), [5, 2, 4]
    result = pv.compare(rnn, x, lengths, gradients=on)
    missing = set() if bidirectional else {"outputs_reverse"}
    missing |= set() if cell == "LSTM" else {"c_n"}
    missing |= set() if on else {"gradients", "gradients_outputs", "gradients_h_n"}
    real = torch.tensor(result.layout.mask.copy()).T
    padded, packed = result.padded, result.packed
    for name, size in (("outputs", slice(None)), ("outputs_forward", slice(0, 3)), ("outputs_reverse", slice(3, None))):
        if name not in missing:
            equal = torch.allclose(padded.output[real][:, size], packed.output[real][:, size], atol=1e-5)
            assert getattr(result.agrees, name) is equal
    assert result.agrees.h_n is torch.allclose(padded.h_n, packed.h_n, atol=1e-5)
    for name in RESULTS:
        if name in missing:
            assert not hasattr(result.agrees, name)
            assert name not in dir(result.agrees)
            for ask in (result.agrees.__getitem__, result.needs_packing):
                with pytest.raises((KeyError, ValueError), match=f"there is no {name} here: "):
                    ask(name)
        else:
            assert name in dir(result.agrees)
            assert result.agrees[name] is getattr(result.agrees, name)
            assert result.needs_packing(name) is not result.agrees[name]
    if bidirectional:
        assert result.agrees.outputs == (result.agrees.outputs_forward and result.agrees.outputs_reverse)
    else:
        assert result.agrees.outputs == result.agrees.outputs_forward
    if on:
        assert result.agrees.gradients == (result.agrees.gradients_outputs and result.agrees.gradients_h_n)


@pytest.mark.parametrize("name", ["outputs at real steps", "outputs, reverse half", "Outputs", "", "hn", 0])
def test_a_result_that_does_not_exist_is_an_error(name):
    result = pv.compare(torch.nn.GRU(2, 3), torch.randn(5, 2, 2), [5, 2])
    for error, ask in (
        (KeyError, lambda: result.agrees[name]),
        (ValueError, lambda: result.needs_packing(name)),
        (AttributeError, lambda: getattr(result.agrees, str(name))),
    ):
        with pytest.raises(error, match="choose one of 'outputs', 'outputs_forward', 'outputs_reverse', 'h_n', 'c_n'"):
            ask()


def test_no_filter_over_the_results_passes_vacuously():
    result = pv.compare(torch.nn.GRU(2, 3), torch.randn(5, 2, 2), [5, 2])
    for look in (list, all, lambda agrees: "h_n" in agrees, lambda agrees: {**agrees}):
        with pytest.raises(TypeError):
            look(result.agrees)
    with pytest.raises(AttributeError, match="there is no result 'items'"):
        result.agrees.items()
    assert copy.deepcopy(result.agrees).outputs is pickle.loads(pickle.dumps(result.agrees)).outputs is True
    assert repr(result.agrees).split("\n")[2].split() == ["outputs_reverse", "–"]


# ---- 16. A truth table says which half it means


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("cell", ["RNN", "GRU", "LSTM"])
def test_every_answer_of_a_truth_table_is_computed(cell, bias):
    """By hand, with torch's own functions and each sequence run alone."""
    table, lengths = truth_table(cell, bias=bias), [5, 3, 2]
    assert len(table.answers) == 8
    for answer in table.answers:
        two = answer.directions == 2
        torch.manual_seed(0)
        module = getattr(torch.nn, cell)(3, 4, answer.layers, bias=bias, bidirectional=two, batch_first=True)
        x = torch.randn(len(lengths), max(lengths), 3)
        for b, n in enumerate(lengths):
            x[b, n:] = 0
        alone = [module(x[b, :n]) for b, n in enumerate(lengths)]
        packed = answer.method == "packed"
        y, state = module(rnn.pack_padded_sequence(x, lengths, True, False) if packed else x)
        y = rnn.pad_packed_sequence(y, True)[0] if packed else y
        (h_n, c_n), alone_h = (
            (state, [s[0] for _, s in alone]) if cell == "LSTM" else ((state, None), [s for _, s in alone])
        )

        def same(pairs):
            return all(torch.allclose(one, other, atol=1e-5) for one, other in pairs)

        rows = list(enumerate(lengths))
        forward, reverse = [h[-2 if two else -1] for h in alone_h], [h[-1] for h in alone_h]
        expected = {
            "outputs, forward": same((y[b, :n, :4], alone[b][0][:, :4]) for b, n in rows),
            "outputs, reverse": same((y[b, :n, 4:], alone[b][0][:, 4:]) for b, n in rows) if two else None,
            "h_n": same((h_n[:, b], alone_h[b]) for b, _ in rows),
            "c_n": None if c_n is None else same((c_n[:, b], alone[b][1][1]) for b, _ in rows),
            "output at len-1, forward": same((y[b, n - 1, :4], forward[b]) for b, n in rows),
            "output at len-1, reverse": same((y[b, n - 1, 4:], reverse[b]) for b, n in rows) if two else None,
            "output[:, -1], forward": same((y[b, -1, :4], forward[b]) for b, _ in rows),
            "output[:, 0], reverse": same((y[b, 0, 4:], reverse[b]) for b, _ in rows) if two else None,
        }
        assert answer.right == expected


@pytest.mark.parametrize("cell", ["RNN", "GRU", "LSTM"])
def test_every_row_about_outputs_names_its_half(cell):
    table = truth_table(cell)
    names = [name for name, *_ in table.table.rows]
    assert all(("forward" in name) != ("reverse" in name) for name in names if name.startswith("output"))
    assert ("c_n, padded" in names) == (cell == "LSTM")
    assert "output[:, -1], forward, padded" in names
    assert len(table.table.head) == 5  # few enough for a narrow screen


# ---- 17. A file's suffix and its contents agree


def test_show_refuses_a_name_that_does_not_fit(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("o.pdf", "o", "o.svg.gz", "svg", "o.json"):
        assert main(["show", "5", "3", "--out", name]) == 2
        said = capsys.readouterr().err
        wanted = "its name must end in .svg, .png, .html or .txt, which says what is written"
        assert said == f"packviz: --out is {name!r}; {wanted}\n"
    assert main(["show", "5", "3", "--svg", "o.png"]) == 2
    assert "--svg is now --out, and the suffix says what is written: --out o.png" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def kind_of(content):
    """What a file is, by its first bytes."""
    content = content.replace(b"<!doctype", b"<!DOCTYPE")
    heads = {b"\x89PNG": ".png", b"<svg": ".svg", b"<!DOCTYPE html>": ".html", b"<html": ".html", b"{": ".json"}
    return next((kind for head, kind in heads.items() if content.startswith(head)), ".txt")


class CairoStandIn:
    @staticmethod
    def svg2png(bytestring, scale):
        assert bytestring.startswith(b"<svg")
        assert b"height:auto" not in bytestring  # cairosvg would take it for a height of 0, and draw nothing
        return b"\x89PNG and so on"


def saved():
    """One of each kind of result that writes itself."""
    return {
        "a picture": pv.show([3, 2]),
        "a count": pv.flops(nn.GRU(2, 3), [3, 2]),
        "a comparison": pv.compare(nn.GRU(2, 3), torch.zeros(3, 2, 2), [3, 2]),
        "a chart": figures.axes("a title", "its words").bars(["x"], [1.0]),
        "a table": Table([["a", "1"]]),
        "attention": pv.draw.Attention(2, {"w": np.eye(2)}),
    }


@pytest.mark.parametrize("name", saved())
@pytest.mark.parametrize("suffix", [".svg", ".SVG", ".png", ".html", ".txt", ".json", ".pdf", ""])
def test_what_is_saved_is_what_the_suffix_says(name, suffix, tmp_path, monkeypatch):
    """Or it is refused, with what may be written, and no file is left."""
    monkeypatch.setitem(sys.modules, "cairosvg", CairoStandIn)
    monkeypatch.setattr(figures, "_image", lambda figure: b"\x89PNG and so on")
    one, path = saved()[name], tmp_path / f"o{suffix}"
    allowed = {"a chart": ".html .png .txt", "a table": ".html .txt"}.get(name, ".svg .png .html .txt").split()
    if suffix.lower() not in allowed:
        wanted = f"its name must end in {', '.join(allowed[:-1])} or {allowed[-1]}, which says what is written"
        with pytest.raises(ValueError, match=re.escape(wanted)):
            one.save(path)
        assert not [*tmp_path.iterdir()]
        return
    one.save(path)
    content = path.read_bytes()
    assert kind_of(content) == suffix.lower()
    if suffix == ".txt" or (suffix == ".html" and isinstance(one, Drawing)):
        assert one.to_text().partition("\n")[0] in unescape(content.decode())


def test_everything_that_draws_saves_a_picture(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cairosvg", CairoStandIn)
    for one in saved().values():
        if isinstance(one, Drawing):
            for suffix in (".svg", ".png", ".html", ".txt"):
                one.save(tmp_path / f"o{suffix}", *(["dark"] if suffix == ".svg" else []))
            assert (tmp_path / "o.svg").read_text() == one.to_svg("dark")
            assert one.to_svg() in (tmp_path / "o.html").read_text()


def test_a_png_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    with pytest.raises(ValueError, match=r"a PNG needs cairosvg: python -m pip install cairosvg.*\.svg, .* do without"):
        pv.show([3, 2]).save(tmp_path / "o.png")
    assert main(["show", "3", "--out", str(tmp_path / "o.png")]) == 2
    assert "packviz: a PNG needs cairosvg" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_to_svg_takes_a_theme_and_says_what_writes_a_file():
    said = "theme is 'x.svg'; choose one of 'light', 'dark', 'live'. To write a file, call .save('x.svg')"
    for one in saved().values():
        if isinstance(one, Drawing):
            with pytest.raises(ValueError, match=re.escape(said)):
                one.to_svg("x.svg")


@pytest.mark.parametrize("command", [
    ["study", "savings", "--quick", "--out"],
    ["bench", "--quick", "--out"],
    ["bench", "plot", "nothing.json", "--out"],
])  # fmt: skip
def test_every_command_refuses_a_name_that_does_not_fit(command, tmp_path, monkeypatch, capsys):
    """Before it measures anything."""
    monkeypatch.chdir(tmp_path)
    for name in ("o.pdf", "o", "o.json" if "plot" in command else "o.svg"):
        assert main([*command, name]) == 2
        said = capsys.readouterr().err
        assert re.search(rf"packviz: --out is '{name}'; its name must end in .*\.\w+, which says what is written", said)
    assert not [*tmp_path.iterdir()]


def test_results_are_kept_in_json_alone(tmp_path):
    for save in (in_force("cpu").save, lambda path: results.save(path, "a kind", 1, {})):
        with pytest.raises(
            ValueError, match=r"path is '.*o\.png'; its name must end in \.json, which says what is written"
        ):
            save(tmp_path / "o.png")
    with pytest.raises(SystemExit):
        workers.main(["--out", "o.png"])
    assert not [*tmp_path.iterdir()]


# ---- 18. A search says how sure it is

BATCH = pack_padded_sequence(torch.randn(3, 5, 2), [5, 3, 2], batch_first=True)
GRU, LSTM = nn.GRU(2, 4, batch_first=True), nn.LSTM(2, 4, batch_first=True)

SURE = {  # mistakes whose text no other mistake gives
    "Lengths not sorted": lambda: pack_padded_sequence(torch.zeros(3, 5, 2), [2, 5, 3], True),
    "An empty sequence": lambda: pack_padded_sequence(torch.zeros(3, 5, 2), [5, 3, 0], True),
    "Lengths on the GPU": lambda: pack_padded_sequence(torch.zeros(2, 5, 2), torch.tensor([5, 3]).to("meta"), True),
    "State batch first": lambda: GRU(torch.randn(3, 5, 2), torch.zeros(3, 1, 4)),
    "No size of its own": lambda: BATCH.size(),
    "A layer that wants a tensor": lambda: torch.relu(BATCH),
}
UNSURE = {  # mistakes whose text others give, too
    "Batch and time swapped": lambda: pack_padded_sequence(torch.zeros(2, 5), [2, 1]),
    "Lengths beyond T": lambda: pad_packed_sequence(pack_padded_sequence(torch.zeros(2, 5, 2), [7, 3], True)),
    "Too few lengths": lambda: pack_padded_sequence(torch.zeros(2, 5, 2), [5, 3, 2], True, False),
    "Layers taken for h and c": lambda: exec("h, c = packed", {"packed": BATCH}),
    "Two devices": lambda: torch.zeros(2, 3, device="meta") * torch.ones(2, 3),
    "Workers of different widths": lambda: torch.cat([torch.zeros(2, 3), torch.zeros(2, 4)]),
}
OTHERS = [  # mistakes that the museum does not have
    lambda: pad_packed_sequence(torch.zeros(3, 2)),  # "'Tensor' object has no attribute 'batch_sizes'"
    lambda: pad_packed_sequence(GRU(BATCH)),
    lambda: GRU(torch.randn(7, 5, 2), torch.zeros(1, 3, 4)),  # a state of another batch
    lambda: LSTM(torch.randn(7, 5, 2), (torch.zeros(1, 1, 4), torch.zeros(1, 1, 4))),
    lambda: GRU(torch.randn(3, 5, 2), torch.zeros(1, 3, 5)),  # of another layer
    lambda: GRU(torch.randn(3, 5, 7)),
    lambda: nn.Embedding(5, 2)(torch.tensor([7])),
    lambda: next(iter(torch.utils.data.DataLoader([torch.zeros(3), torch.zeros(2)], batch_size=2))),
    lambda: torch.tensor([[1, 2, 3], [1, 2]]),
    lambda: nn.CrossEntropyLoss()(torch.randn(15, 4), torch.zeros(21).long()),
    lambda: torch.zeros(3, 5) * torch.zeros(3, 4),
    lambda: nn.Sequential(GRU, nn.Linear(4, 2))(torch.randn(3, 5, 2)),
    lambda: BATCH.lengths,
    lambda: LSTM(torch.randn(3, 5, 2), torch.zeros(1, 3, 4)),
    lambda: torch.zeros(6).view(4, 2),
    lambda: torch.zeros(5).narrow(0, 3, 4),
    lambda: torch.zeros(3)[5],
    lambda: [][3],
    lambda: torch.zeros(2, 3) @ torch.zeros(2, 3),
    lambda: torch.zeros(2).sum().backward(),
    lambda: GRU(torch.randn(3, 5, 2)).size(),
    lambda: torch.zeros(3)[torch.ones(4).bool()],
]
REAL = [  # of issues and questions: (message, the exhibit, or None if there is none)
    ("AttributeError: 'Tensor' object has no attribute 'batch_sizes'", None),
    ("AttributeError: 'tuple' object has no attribute 'batch_sizes'", None),
    ("RuntimeError: Expected hidden[0] size (2, 1, 512), got [2, 128, 512]", None),
    ("File 'sparse.py', in embedding\nIndexError: index out of range in self", None),
    ("in DataParallel.forward\nValueError: lengths array has incorrect size", None),
    ("RuntimeError: cu_seqlens_q must have shape (batch_size + 1)", "cu_seqlens without its 0"),
    ("ValueError: too many values to unpack (expected 2)", "Layers taken for h and c"),
    ("RuntimeError: stack expects each tensor to be equal size, but got [3] at entry 0 and [2] at entry 1", None),
    ("ValueError: expected sequence of length 3 at dim 1 (got 2)", None),
    ("ValueError: Expected input batch_size (15) to match target batch_size (21).", None),
    ("RuntimeError: The size of tensor a (5) must match the size of tensor b (4) at non-singleton dimension 1", None),
    ("TypeError: linear(): argument 'input' (position 1) must be Tensor, not tuple", None),
    ("ValueError: batch_sizes should always be on CPU. Instances of PackedSequence should never be created manually. "
     "They should be instantiated by functions like pack_sequence and pack_padded_sequences", None),
    ("RuntimeError: cudnn RNN backward can only be called in training mode", None),
    ("TypeError: conv1d() received an invalid combination of arguments - got (PackedSequence, Parameter, Parameter, "
     "tuple, tuple, tuple, int), but expected one of:", "A layer that wants a tensor"),
    ("TypeError: lstm() received an invalid combination of arguments - got (Tensor, Tensor, list, bool, int, float, "
     "bool, bool, bool), but expected one of:", None),
    ("onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument: [ONNXRuntimeError] : 2 : INVALID_ARGUMENT : "
     "Non-zero status code returned while running ScatterElements node. Status Message: Indices vs updates dimensions "
     "differs at position=0 4 vs 2", None),
]  # fmt: skip


def what_torch_says(mistake):
    """The message of a mistake, and its whole traceback."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is
        mistake()
    return f"{caught.type.__name__}: {caught.value}", "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(("name", "mistake"), SURE.items(), ids=SURE)
def test_18_a_text_of_one_mistake_alone_is_sure(name, mistake):
    for message in what_torch_says(mistake):
        found = pv.explain(message)
        assert found.sure
        assert found[0].name == name
        assert found.to_text().startswith(f"Sure: {name}, ")


@pytest.mark.parametrize(("name", "mistake"), UNSURE.items(), ids=UNSURE)
def test_18_a_text_of_several_mistakes_is_not(name, mistake):
    text, _ = what_torch_says(mistake)
    found = pv.explain(text)
    assert found[0].name == name
    assert not found.sure
    assert found.to_text().startswith(f"Not sure, perhaps: {name}, ")


@pytest.mark.parametrize("mistake", OTHERS)
def test_18_no_other_mistake_is_surely_one_of_these(mistake):
    for message in what_torch_says(mistake):
        assert not pv.explain(message).sure


@pytest.mark.parametrize(("text", "name"), REAL)
def test_18_real_messages_are_never_wrong_and_sure(text, name):
    found = pv.explain(text)
    assert not found or name is not None
    assert not found or found[0].name == name
    assert not found.sure or found[0].name == name


def test_18_words_are_never_sure():
    for phrase in ("h_n order", "my lengths are floats", "why is packing slow", "onnx", "batch_first"):
        found = pv.explain(phrase)
        assert found
        assert not found.sure
        assert "Only some words are alike." in found.to_text()


def test_18_the_panel_says_it_too():
    sure, _ = what_torch_says(SURE["An empty sequence"])
    unsure, _ = what_torch_says(UNSURE["Too few lengths"])
    says = {sure: "Sure: An empty", unsure: "Not sure, perhaps: Too few", REAL[0][0]: "Nothing close."}
    for message, said in says.items():
        panel = MuseumExplorer(message)
        assert panel.to_text().startswith(said)
        assert said in panel.summary.value
        assert bool(panel.found) == (said != "Nothing close.")


# ---- 19. A panel's complaint is in its text


def typed(panel, text):
    """Types into the panel's field, or its picker's list."""
    field = getattr(panel, "typed", None) or getattr(panel, "lengths", None)
    if field is None or callable(field):
        move(panel.picker.kind, TYPED)
        field = panel.picker.typed
    move(field, text)


def uploaded(panel, name, content):
    move(panel.picker.kind, FILE)
    file = {"name": name, "type": "", "size": len(content), "last_modified": 0, "content": memoryview(content)}
    move(panel.picker.upload, [file])


BAD_LENGTHS = ["", "3, x", "3, 0", "3, -1", "2.5", "{}", "1e30", "[[1], [2]]", "nan"]
BAD_FILES = [
    ("a.csv", b""),
    ("a.csv", b"\xff\xfe\x00"),
    ("a.csv", b"x,y,z\n1,2,3\n"),
    ("a.json", b"{"),
    ("a.json", b"[0]"),
    ("a.txt", b"no"),
]
BAD_CODE = ["def forward(", "x = 1", "def forward(self, x): return y"]
IN_FIELDS = [lambda panel, text=text: typed(panel, text) for text in BAD_LENGTHS]
IN_PICKERS = IN_FIELDS + [lambda panel, file=file: uploaded(panel, *file) for file in BAD_FILES]
IN_PICKERS += [lambda panel: setattr(panel.picker.kind, "value", FILE)]  # and no file yet
MANY = ", ".join(["3"] * 6000)

PANELS = {
    "AlignExplorer": [*IN_FIELDS, lambda panel: typed(panel, "99, 98")],
    "BatchingExplorer": [*IN_PICKERS, lambda panel: typed(panel, MANY)],
    "BenchmarkExplorer": [lambda panel: move(panel.shortest, 300)],
    "CostExplorer": IN_FIELDS,
    "GraphExplorer": [],
    "MuseumExplorer": [],
    "PackedExplorer": [*IN_FIELDS, lambda panel: move(panel.enforce_sorted, True)],
    "PaddingExplorer": IN_PICKERS,
    "RowExplorer": [*IN_PICKERS, lambda panel: typed(panel, MANY)],
    "StaircaseExplorer": IN_PICKERS,
    "StatesExplorer": [*IN_FIELDS, lambda panel: typed(panel, "2049")],
    "StaticExplorer": [
        *IN_FIELDS,
        lambda panel: typed(panel, "2049"),
        *(lambda panel, code=code: move(panel.code, code) for code in BAD_CODE),
    ],
}
"""Every panel, and what may be wrong in it."""


def says_what_it_shows(panel):
    """What is shown as wrong, in the text, the stored output and the field of words; the empty string if nothing is."""
    shown = [words(field) for field in (panel.error, panel.note) if field.value]
    stored, panel.as_text.value = panel._repr_mimebundle_()["text/plain"], True
    for said in shown:
        assert said in panel.to_text()
        assert said in stored
        assert said in words(panel._words)
    panel.as_text.value = False
    return shown


def test_every_panel_is_tried():
    assert [*PANELS] == explorers.__all__


@pytest.mark.parametrize("name", PANELS)
def test_what_a_panel_complains_of_is_in_its_text(name):
    for number, spoil in enumerate(PANELS[name]):
        panel = getattr(explorers, name)()
        assert panel.to_text()
        panel.as_text.value = True  # the words follow a complaint while they are shown
        spoil(panel)
        assert panel.error.value, number
        assert words(panel.error) in words(panel._words)
        assert says_what_it_shows(panel)
        assert panel._view.describe() in panel.to_text()
        assert "The picture shows the last good input." in panel.to_text()
        panel.close()


@pytest.mark.parametrize(("name", "arguments"), [
    ("BatchingExplorer", ([3] * 6000,)),
    ("RowExplorer", ([3] * 6000,)),
    ("StatesExplorer", ([2049],)),
    ("StaticExplorer", ("fixed length", [2049])),
    ("AlignExplorer", ([99],)),
])  # fmt: skip
def test_a_panel_that_begins_with_what_it_cannot_draw_says_so(name, arguments):
    panel = getattr(explorers, name)(*arguments)
    assert panel.error.value
    (said,) = says_what_it_shows(panel)
    assert said == panel.to_text()
    assert said.endswith("There is no picture yet.")


def test_a_control_that_was_moved_is_named_in_the_text():
    panel = explorers.RowExplorer([5, 3, 2], row_size=6)
    move(panel.picker.sliders[0], 12)
    assert says_what_it_shows(panel) == ["row size went from 6 to 12 to fit."]


def test_a_measurement_that_fails_is_in_the_text(monkeypatch):
    panel = explorers.StaircaseExplorer([4, 2])

    def fail():
        raise ValueError("no such thing")

    monkeypatch.setattr(panel.job, "_prepare", fail)
    panel.job.start.click()
    assert panel.job.message.value == "no such thing"
    assert "✗ Measure here: no such thing" in panel.to_text()
    monkeypatch.undo()
    panel.job.run()
    assert "no such thing" not in panel.to_text()
