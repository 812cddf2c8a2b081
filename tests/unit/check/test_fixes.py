"""The code in a printed fix can be pasted: it compiles, and evaluated with what it names it does
what it says.
"""

import re
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import (
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
)
from torch.utils.data import DataLoader

import packviz as pv
from packviz.check.museum import ENTRIES

BRACKETS = {"(": ")", "[": "]"}


def codes(text):
    """Every expression in a text that is a call, a subscript or an attribute of what a reader has."""  # noqa: E501
    found, end = [], 0
    for begin in re.finditer(r"(?<![.\w)])(\w+(\.\w+)*[.(\[]\w?|\([^()]*\)\.(?=\w))", text):
        if begin.start() < end:
            continue
        end, depth = begin.start(), 0
        while end < len(text):  # to the end of the expression, past what its brackets hold
            depth += (text[end] in BRACKETS) - (text[end] in BRACKETS.values())
            after = text[end + 1 : end + 2]
            if (
                depth == 0
                and not re.match(r"[\w(\[]", after)
                and not re.match(r"\.\w", text[end + 1 : end + 3])
            ):
                break
            end += 1
        end += 1
        found.append(text[begin.start() : end].rstrip("."))
    return [
        one for one in found if re.search(r"[(\[]|\w\.[a-z]", one) and not one.startswith("e.g")
    ]


def scope(x, lengths, batch_first=True):
    """What a reader has who packs `x`."""
    rnn = nn.GRU(x.shape[-1], 2, batch_first=batch_first)
    given = torch.as_tensor(lengths)
    h_0 = torch.zeros(1, len(lengths), 2)
    return {
        "torch": torch,
        "pv": pv,
        "x": x,
        "lengths": given,
        "rnn": rnn,
        "gru": rnn,
        "h_0": h_0,
        "c_0": h_0,
    } | {
        function.__name__: function
        for function in (pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence)
    }


def turned(x, batch_first):
    return x if batch_first else x.transpose(0, 1)


def batch(*features, plus=0):
    """Sequences of 5, 3 and 2 steps."""
    x = torch.randn(3, 5, *features) + plus
    x[~pv.real_mask([5, 3, 2])] = 0
    return x


def diagnosed():
    """By name, what `diagnose` is given, so that every fix of it is seen."""
    x, wide = batch(2), torch.cat([batch(2), torch.zeros(3, 2, 2)], 1)
    packed = pack_padded_sequence(x, [5, 3, 2], True)
    sick = x.clone()
    sick[1, 4] = torch.nan
    state = torch.zeros(1, 7, 2)
    for first in (True, False):
        order = "batch first" if first else "time first"
        turn = partial(turned, batch_first=first)
        yield f"NaN, {order}", (turn(sick), [5, 3, 2], first), {}
        yield f"left-padded, {order}", (turn(x.flip(1)), [5, 3, 2], first), {}
        yield f"too wide, {order}", (turn(wide), [5, 3, 2], first), {}
        yield f"swapped, {order}", (turn(wide), [5] * 7, first), {}
    yield "fractions", (x, [5.0, 2.9, 2.0], True), {}
    yield "no numbers", (x, [5.0, float("nan"), 2.0], True), {}
    yield "beyond", (x, [9, 3, 2], True), {}
    yield "empty", (x, [5, 0, 2], True), {}
    yield "few", (x, [5, 3], True), {}
    yield "short", (x, [3, 2, 1], True), {}
    yield "long", (x, [5, 5, 5], True), {}
    yield "order", (x, [2, 3, 5], True), {}
    yield "state", (x, [5, 3, 2], True), {"hx": state}
    yield "state batch first", (x, [5, 3, 2], True), {"hx": torch.zeros(3, 1, 2)}
    yield "last", (x, [5, 3, 2], True), {"last": x[:, -1]}
    yield (
        "other indices",
        (x, [5, 3, 2], True),
        {"packed": packed._replace(sorted_indices=torch.tensor([1, 0, 2]))},
    )
    mixed = x[[1, 0, 2]]
    yield "order lost", (mixed, [3, 5, 2], True), {"packed": packed}


@pytest.mark.parametrize(
    ("given", "options"), [one[1:] for one in diagnosed()], ids=[one[0] for one in diagnosed()]
)
def test_the_fixes_of_diagnose(given, options):
    x, lengths, batch_first = given
    found = pv.diagnose(*given, **options)
    assert found
    names = scope(x, lengths, batch_first) | {"data": torch.zeros(10, 2), "h_0": options.get("hx")}
    names["packed"] = pack_padded_sequence(batch(2), [5, 3, 2], True)
    for one in found:
        assert "…" not in one.fix
        for code in codes(one.fix):
            eval(code, names)


def repaired(found, rule, x, lengths, batch_first):
    """The batch after the fix of one finding was executed."""
    (one,) = [one for one in found if one.rule == rule]
    names = scope(x, lengths, batch_first)
    names["lengths"] = lengths
    exec(re.search(r"(x|lengths) = .*", one.fix)[0], names)
    return names["x"], names["lengths"]


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("features", [(), (2,), (2, 3)])
def test_a_fix_repairs(batch_first, features):
    x = batch(*features, plus=9)
    turn = partial(turned, batch_first=batch_first)
    sick = x.masked_fill(x == 0, torch.nan)
    left = pv.align(x, [5, 3, 2], padding_side="left", batch_first=True)
    for rule, broken in (("NaN in the padding", sick), ("left-padded", left)):
        given = turn(broken), [5, 3, 2], batch_first
        assert torch.equal(turn(repaired(pv.diagnose(*given), rule, *given)[0]), x)
    given = turn(x), [5.0, 2.9, 2.0], batch_first
    assert repaired(pv.diagnose(*given), "fractional length", *given)[1].tolist() == [5, 3, 2]


def test_findings_have_the_rows_that_they_name():
    for name, given, options in diagnosed():
        for one in pv.diagnose(*given, **options):
            assert all(type(i) is int for i in one.indices)
            letters = re.findall(
                r"\b[a-z]\b", one.where.removeprefix("sequences").removeprefix("sequence")
            )
            assert letters == ["abcdefghi"[i] for i in one.indices], name
    (one,) = pv.diagnose(torch.ones(40, 5, 1), [6] * 40, True)
    assert one.indices == tuple(range(40))
    assert one.where.endswith(" and 32 more")


@pytest.mark.parametrize("one", ENTRIES, ids=[one.name for one in ENTRIES])
def test_the_fixes_of_explained_errors(one):
    assert "…" not in one.fix
    x, lengths = batch(2).transpose(0, 1), [5, 3, 2]
    packed = pack_padded_sequence(x, lengths)
    output, h_n = nn.GRU(2, 2, bidirectional=True)(x)
    own = {
        "packed": packed,
        "data": packed.data,
        "output": output.transpose(0, 1),
        "h_n": h_n,
        "images": torch.ones(2, 1, 4, 4),
        "layer": nn.Linear(2, 2),
        "offsets": [0, 5, 8, 10],
        "H": 2,
        "share": torch.tensor([1.0, 0.6]),
        "T": 5,
        "B": 3,
        "layers": 1,
        "n": np.array(lengths),
        "b": 0,
        "full": torch.tensor(lengths) > 0,
        "mask": pv.real_mask(lengths),
        "packed_output": packed,
        "lstm": nn.LSTM(2, 2),
        "linear": nn.Linear(4, 1),
        "rows": [[1, 2, 3], [4, 5]],
        "embedding": nn.Embedding(9, 2),
        "DataLoader": DataLoader,
        "dataset": [torch.ones(3), torch.ones(2)],
    }
    for code in codes(one.fix):
        eval(
            code,
            scope(x, lengths, False) | own | ({"x": x.transpose(0, 1)} if "[full]" in code else {}),
        )
