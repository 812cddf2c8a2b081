"""Batches, numbers and tables in words."""

import math
import re

import torch
from hypothesis import given
from hypothesis import strategies as st

import packviz as pv
from packviz.core.layout import Layout
from packviz.draw import text

lengths = st.lists(st.integers(1, 16), min_size=1, max_size=16)


@given(lengths, st.integers(0, 3))
def test_every_cell_is_in_its_place(lengths, extra):
    layout = Layout(lengths, min(max(lengths) + extra, 16))
    summary, padded, packed = text.describe_batch(text.LabelledBatch(layout)).split("\n\n")
    cells = [layout.n_cells, layout.n_real, layout.n_padding]
    assert list(map(int, re.findall(r"(\d+) (?:cell|real|padding)", summary))) == cells
    grid = [line.split()[3:] for line in padded.splitlines()[1:]]
    assert [[cell != "·" for cell in row] for row in grid] == layout.mask.tolist()
    steps = re.findall(r"batch_sizes\[\d+\] *= (\d+) +rows? +[\d–]+ +(.*)", packed)
    assert [int(size) for size, _ in steps] == layout.batch_sizes.tolist()
    listed = " ".join(cells for _, cells in steps).split()
    assert listed == [grid[b][t] for b, t in layout.source]
    assert ("unsorted_indices" in packed) != layout.is_sorted


@given(lengths)
def test_flat_rows_in_words(lengths):
    layout = Layout(lengths)
    head, *rows, starts, order = text.describe_flat_rows(text.LabelledBatch(layout)).splitlines()
    assert head == text.flat_rows_title(layout)
    for b, row in enumerate(rows):
        name, where, cells = re.fullmatch(r"  (\w) +rows? +([\d–]+) +(.*)", row).groups()
        first, _, last = where.partition("–")
        assert [int(first), int(last or first) + 1] == layout.starts[b : b + 2].tolist()
        assert cells.split() == [f"{name}{t}" for t in range(lengths[b])]
    assert starts == f"starts           {text.numbers(layout.starts)} (cu_seqlens)"
    assert order == f"flat_rows        {text.numbers(layout.flat_rows)} (of the packed rows)"


NUMBERS = {
    "1 batch": text.with_noun(1, "batch", "batches"),
    "1,024 batches": text.with_noun(1024, "batch", "batches"),
    "33.3 %": text.percent(1, 3),
    "0 %": text.percent(0, 0),
    "9,999,999": text.short_count(9_999_999),
    "76.5 M": text.short_count(76_480_000),
    "1 G": text.short_count(999_600_000),
    "0 B": text.size(0),
    "1 kB": text.size(999.6),
    "34.4 GB": text.size(34_426_781_696),
    "0.035": text.format_difference(0.0348),
    "NaN": text.format_difference(math.nan),
    "0.0035%": text.format_share(0.0000348),
    "1.23e+03%": text.format_share(12.34),
    "inf%": text.format_share(math.inf),
    "<.1%": text.short_share(0.0000348),
    "0.43%": text.short_share(0.0043),
    "1e3%": text.short_share(12.34),
}


def test_numbers_in_words():
    assert list(NUMBERS) == list(NUMBERS.values())


@given(st.one_of(st.floats(0, 1e30), st.sampled_from([0.0, 1e-12, math.nan, math.inf])))
def test_short_shares_fit_their_cell(value):
    assert len(text.short_share(value)) <= 5


cells = st.text("ab 1é–", max_size=5)


@given(st.lists(st.lists(cells, min_size=3, max_size=3), min_size=1, max_size=5), st.integers(0, 7))
def test_the_columns_of_a_table(rows, least):
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    first, second, third = widths
    second = max(second, least)
    lines = [f"  {a:<{first}} | {b:>{second}}   {c:>{third}}".rstrip() for a, b, c in rows]
    assert text.table(rows, f"  < | >{least or ''}   >") == lines


def test_a_row_that_ends_early_goes_on_across_the_columns():
    rows = [["name", "a", "b"], ["x", "1", "22"], ["y", "none of these"], ["z"], [], ["w", "–"]]
    assert text.table(rows) == [
        "name  a   b",
        "x     1  22",
        "y     none of these",
        "z",
        "",
        "w     –",
    ]
    assert text.table(rows[1:], "<  >3")[-1] == "w  –"
    assert text.table([]) == []


def test_odd_cells_and_names_stay_readable():
    flat = pv.show([3, 0, 2], flat=True).to_text()
    assert "b  no rows" in flat
    numbers = pv.show([list(torch.tensor([4, 5])), list(torch.tensor([6]))], part="padded")
    assert re.findall(r"length +\d +(.*)", numbers.to_text()) == ["4    5", "6    ·"]
    named = pv.show(["ab", "c"], names=["x\ny", "z"], part="padded").to_text()
    assert "x\\ny" in named
