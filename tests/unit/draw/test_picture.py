"""`show`: whatever describes a batch, it draws that batch, or says why not."""

import re
from base64 import b64decode
from html import escape

import numpy as np
import pytest
import torch
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_sequence

import packviz as pv
from packviz.draw import batch_picture, text
from packviz.draw.picture import Picture, show

LENGTHS = [3, 1, 2]
WORDS = text.describe_batch(text.LabelledBatch(pv.Layout(LENGTHS)))


def grid(picture):
    """What stands in the padded cells, row by row, "·" before what is padding."""
    lines = picture.to_text().split("\n\n")[1].splitlines()[1:]
    return [line.split()[3:] for line in lines]


@pytest.mark.parametrize(
    "form", [list, tuple, np.array, torch.tensor, lambda n: np.array(n, dtype=float), pv.Layout]
)
def test_lengths_in_any_form(form):
    picture = show(form(LENGTHS))
    assert picture.layout == pv.Layout(LENGTHS)
    assert picture.to_text() == WORDS


def test_a_layout_keeps_its_width_and_order():
    layout = pv.Layout([2, 2], max_len=4, sorted_indices=[1, 0])
    assert show(layout).layout is layout


X = torch.tensor([[1, 4, 6], [2, 0, 7], [3, 0, 0]])  # (T, B)


@pytest.mark.parametrize(
    "x", [X, X.numpy(), X.tolist(), X.unsqueeze(-1)], ids=["tensor", "array", "list", "B,T,1"]
)
@pytest.mark.parametrize("batch_first", [False, True])
def test_a_padded_batch(x, batch_first):
    if batch_first:
        x = x.transpose(0, 1) if isinstance(x, torch.Tensor) else np.swapaxes(x, 0, 1)
    picture = show(x, LENGTHS, batch_first=batch_first)
    assert grid(picture) == [["1", "2", "3"], ["4", "·0", "·0"], ["6", "7", "·0"]]
    shape = tuple(np.shape(x))
    order = "(B, T, …)" if batch_first else "(T, B, …)"
    caption, counts = picture.to_text().splitlines()[:2]
    same = "B and T are equal, so torch cannot tell which is which"
    assert (
        caption == f"x of shape {shape}, read as {order}. {same}; check batch_first={batch_first}"
    )
    assert counts.startswith("3 sequences padded to 3 time steps")
    assert f"x of shape {shape}, read as {order}" in picture.to_svg()
    assert "B and T are equal" not in show(torch.zeros(4, 3), [3, 1, 2]).to_text()


def test_what_pad_packed_sequence_returns_is_not_two_sequences():
    pair = torch.nn.utils.rnn.pad_packed_sequence(pack_sequence([torch.zeros(3), torch.zeros(2)]))
    with pytest.raises(ValueError, match=r"call show\(\*pair\)"):
        show(pair)
    assert show(*pair).layout == pv.Layout([3, 2])


@pytest.mark.parametrize(
    ("row", "cells"),
    [
        (torch.tensor([1, -2]), ["1", "-2"]),
        (torch.tensor([0.125, -1234.5]), ["0.12", "-1.2e+03"]),
        (torch.tensor([7592.0, -0.0]), ["7592", "0"]),
        (torch.tensor([float("nan"), float("-inf")]), ["nan", "-inf"]),
        (torch.tensor([True, False]), ["True", "False"]),
        (torch.tensor([0.5, 3], dtype=torch.bfloat16), ["0.5", "3"]),
        (torch.tensor([0.5, 3], dtype=torch.float64, requires_grad=True), ["0.5", "3"]),
        (np.array(["word", "."]), ["word", "."]),
    ],
    ids=str,
)
def test_values(row, cells):
    assert grid(show(row[None], [2], batch_first=True)) == [cells]
    assert grid(show([row])) == [cells]
    if isinstance(row, torch.Tensor):
        packed = pack_sequence([row])
        assert grid(show(packed)) == [cells]


def test_cells_that_hold_vectors_keep_their_letters():
    rows = [torch.randn(n, 4) for n in LENGTHS]
    x = torch.nn.utils.rnn.pad_sequence(rows)
    for picture in (
        show(x, LENGTHS, batch_first=False),
        show(pack_sequence(rows, enforce_sorted=False)),
        show(rows),
        show(x[..., :0], LENGTHS, batch_first=False),
        show(x.to("meta"), LENGTHS, batch_first=False),
        show([row.to("meta") for row in rows]),
    ):
        assert picture.to_text().endswith(WORDS)


def jagged(rows, **options):
    return torch.nested.nested_tensor(rows, layout=torch.jagged, **options)


@given(st.lists(st.integers(1, 16), min_size=1, max_size=16))
def test_jagged_tensors_and_packed_sequences_show_each_value_in_its_place(lengths):
    rows = [torch.arange(n) + 100 * b for b, n in enumerate(lengths)]
    for what in (jagged(rows), pack_sequence(rows, enforce_sorted=False)):
        assert [[int(c) for c in row if c != "·"] for row in grid(show(what))] == [
            row.tolist() for row in rows
        ]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_strided_nested_tensor_is_drawn_as_advised():
    strided = torch.nested.nested_tensor([torch.zeros(n) for n in LENGTHS])
    with pytest.raises(TypeError, match=r"^x is a nested tensor; give "):
        show(strided)
    padded = torch.nested.to_padded_tensor(strided, 0.0), [len(one) for one in strided.unbind()]
    assert show(*padded, batch_first=True).layout == pv.Layout(LENGTHS)


@pytest.mark.parametrize(
    "sequences",
    [
        ["abc", "x"],
        [["a", "b", "c"], ["x"]],
        (("a", "b", "c"), "x"),
        [np.array(list("abc")), ["x"]],
    ],
)
def test_lists_of_sequences(sequences):
    picture = show(sequences)
    assert grid(picture) == [["a", "b", "c"], ["x", "·", "·"]]
    assert picture.layout.batch_sizes.tolist() == [2, 1, 1]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: show(torch.zeros(5, 3), [3, 2]),
            "has B = 2, but x of shape (5, 3), read as (T, B, …), has",
        ),
        (lambda: show(torch.zeros(2, 3), [3, 2]), "B = 3; did you mean batch_first=True?"),
        (
            lambda: show(torch.zeros(3, 2)),
            "x of shape (3, 2) needs its lengths: call show(x, lengths, batch_first=…)",
        ),
        (
            lambda: show(pack_sequence([torch.zeros(2)]), [2]),
            "a PackedSequence already has lengths",
        ),
        (lambda: show([]), "lengths is empty"),
        (lambda: show([0, 0]), "lengths are all 0; give at least one time step to draw"),
        (
            lambda: show(5),
            "lengths is 5; list the number of real time steps of each sequence, as in [5, 3, 2]",
        ),
        (lambda: show(n for n in [5, 3]), "lengths is a generator; list the number"),
    ],
)
def test_what_does_not_fit_is_refused(call, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        call()


@pytest.mark.parametrize("thing", [None, "abc", {"a": 3}])
def test_what_cannot_be_drawn_is_refused(thing):
    with pytest.raises(TypeError, match=r"cannot draw (None|a str|a dict): give lengths, a padded"):
        show(thing)


@pytest.mark.parametrize("words", [["5", "3", "2"], ["5"], ("5", " 3 ")])
def test_numbers_as_text_are_neither_lengths_nor_sequences(words):
    with pytest.raises(
        TypeError, match="are lengths; give lengths as numbers, or each word as a list"
    ):
        show(words)
    assert show([list(word) for word in words]).layout == pv.Layout([len(word) for word in words])
    assert show([*words, "abc"]).layout.batch_size == len(words) + 1


def test_forms_of_a_picture():
    picture = show(LENGTHS)
    assert repr(picture) == str(picture) == picture.to_text() == WORDS
    for theme in ("light", "dark", "live"):
        assert (
            picture.to_svg(theme)
            == batch_picture.draw(batch_picture.BatchView(picture.layout), theme).svg()
        )
    assert picture.to_svg() == picture.to_svg("light")
    with pytest.raises(ValueError, match="theme is 'sepia'"):
        picture.to_svg("sepia")
    assert Picture(picture.layout, caption="Mine.").to_text() == f"Mine.\n{WORDS}"


def test_rows_have_the_names_they_are_given():
    picture = show(["abc", "x"], names=("abc", "x"))
    rows = picture.to_text().splitlines()[3:5]
    assert [row.split() for row in rows] == [
        ["abc", "length", "3", "a", "b", "c"],
        ["x", "length", "1", "x", "·", "·"],
    ]
    assert "abc" in ParsedSvg(picture.to_svg()).said()
    lettered = show([2, 1], names=["u", "v"]).to_text()
    assert "v0" in lettered
    assert "b0" not in lettered


@pytest.mark.parametrize(
    ("names", "kind", "said"),
    [
        (["a"], ValueError, "names has 1 entry for 2 sequences: give one for each"),
        ("ab", ValueError, "names has 1 entry for 2 sequences"),
        (
            [1, 2],
            TypeError,
            "names is [1, 2]; give a word for each sequence, as in names=['abc', 'x']",
        ),
    ],
)
def test_names_that_do_not_fit_are_refused(names, kind, said):
    with pytest.raises(kind, match=re.escape(said)):
        show([2, 1], names=names)


def test_what_is_asked_for_is_drawn_and_said():
    assert "sorted_indices" not in show([1, 2]).to_svg()
    assert "sorted_indices" in show([1, 2], indices=True).to_svg()
    for lengths in ([1, 2], [2, 1], [2] * 40 + [3]):  # unsorted; sorted; large
        said = show(lengths, indices=True).to_text()
        assert said.count("unsorted_indices [") == said.count("\nsorted_indices   [") == 1


TITLES = {"padded": "padded: ", "packed": "packed: longest first, no padding", "data": "data: "}
CELL = re.compile(r"\b[a-z]\d+\b")


@given(
    st.lists(st.integers(1, text.MAX_LISTED), min_size=1, max_size=text.MAX_LISTED),
    st.sampled_from([*TITLES]),
)
def test_a_part_is_drawn_and_said_alone(lengths, part):
    picture = show(lengths, part=part)
    shown = ParsedSvg(picture.to_svg()).said()
    cells = sorted(f"{text.sequence_name(b)}{t}" for b, n in enumerate(lengths) for t in range(n))
    assert [
        name for name, title in TITLES.items() if any(said.startswith(title) for said in shown)
    ] == [part]
    assert sorted(filter(CELL.fullmatch, shown)) == cells
    summary, _, words = picture.to_text().partition("\n\n")
    assert summary == text.summary(pv.Layout(lengths))
    assert words.startswith(part)
    assert sorted(CELL.findall(words)) == cells


@pytest.mark.parametrize("option", ["indices", "flat"])
def test_a_part_alone_has_nothing_to_hang_together_with(option):
    with pytest.raises(ValueError, match="part='packed' cannot be combined with indices or flat"):
        show(LENGTHS, part="packed", **{option: True})
    with pytest.raises(
        ValueError, match="part is 'left'; choose one of 'all', 'padded', 'packed', 'data'"
    ):
        show(LENGTHS, part="left")


def test_in_a_notebook_it_is_an_image_that_follows_the_theme():
    picture = show(LENGTHS)
    bundle = picture._repr_mimebundle_()
    assert bundle["text/plain"] == WORDS
    assert bundle["image/svg+xml"] == picture.to_svg()
    html = bundle["text/html"]
    assert f'alt="{escape(WORDS.partition(chr(10) * 2)[0])}"' in html
    dark, light = re.findall('svg\\+xml;base64,([^"]+)', html)
    assert b64decode(light).decode() == picture.to_svg("light")
    assert b64decode(dark).decode() == picture.to_svg("dark")
    (name,) = re.findall('<img class="([^"]+)"', html)
    assert html.count(f".{name}{{") == 1
    assert html.count(f".{name},") == 1
    assert name not in show([2, 2])._repr_mimebundle_()["text/html"]


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("value", [0, -100])
def test_padding_on_the_left_is_noticed(batch_first, value):
    x = torch.randn(3, 5, 2)
    right = x.masked_fill(~pv.real_mask([5, 2, 3], 5)[..., None], value)
    left = x.masked_fill(~pv.real_mask([5, 2, 3], 5).flip(1)[..., None], value)
    for batch, is_left in ((right, False), (left, True), (x, False)):
        given = batch if batch_first else batch.transpose(0, 1)
        text = str(pv.show(given, [5, 2, 3], batch_first))
        assert ("padding seems to be on the left" in text) is is_left
