"""The text twin: exactly what it says on small batches, and that it says what holds for any."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packviz.core.layout import Layout
from packviz.draw import text

lengths = st.lists(st.integers(1, 16), min_size=1, max_size=16)


@given(lengths, st.integers(0, 3))
def test_every_cell_stands_where_it_lies(lengths, extra):
    layout = Layout(lengths, min(max(lengths) + extra, 16))
    summary, padded, packed = text.describe(layout).split("\n\n")
    assert [int(n) for n in re.findall(r"(\d+) (?:cell|real|padding)", summary)] == [
        layout.n_cells,
        layout.n_real,
        layout.n_padding,
    ]
    grid = [line.split()[3:] for line in padded.splitlines()[1:]]
    assert all(len(row) == layout.max_len for row in grid)
    assert [[cell != "·" for cell in row] for row in grid] == layout.mask.tolist()
    steps = re.findall(r"batch_sizes\[\d+\] *= (\d+) +rows? +[\d–]+ +(.*)", packed)
    assert [int(size) for size, _ in steps] == layout.batch_sizes.tolist()
    assert [cell for _, cells in steps for cell in cells.split()] == [
        grid[b][t] for b, t in layout.source
    ]
    assert len({line.index(" = ") for line in packed.splitlines() if " = " in line}) == 1
    assert ("unsorted_indices" in packed) != layout.is_sorted


@given(lengths)
def test_flat_rows_in_words(lengths):
    layout = Layout(lengths)
    head, *groups, starts, order = text.describe_flat(layout).splitlines()
    assert head == f"flat: {text.count(layout.n_real, 'row')}, one sequence after another"
    found = [re.fullmatch(r"  (\w) +rows? +([\d–]+) +(.*)", line).groups() for line in groups]
    for b, (name, where, cells) in enumerate(found):
        first, last = layout.starts[b], layout.starts[b + 1] - 1
        assert (name, where) == (chr(97 + b), f"{first}–{last}" if last > first else f"{first}")
        assert cells.split() == [f"{name}{t}" for t in range(lengths[b])]
    assert starts == f"starts           {text.numbers(layout.starts)}"
    assert order == f"flat_rows        {text.numbers(layout.flat_rows)}"


@given(lengths)
def test_a_step_says_what_it_takes_and_where_it_lies(lengths):
    layout = Layout(lengths)
    cells = [f"{chr(97 + b)}{t}" for b, t in layout.source]
    for t, size in enumerate(layout.batch_sizes):
        start, end = layout.offsets[t : t + 2]
        assert text.at_step(layout, t) == (
            f"At step {t}, the RNN reads {size} of {text.count(len(lengths), 'sequence')},"
            f" so batch_sizes[{t}] = {size}."
            f" data[{start}:{end}] contains {' '.join(cells[start:end])}."
        )


@pytest.mark.parametrize(
    ("words", "value", "said"),
    [
        (lambda n: text.count(n, "batch", "batches"), 1, "1 batch"),
        (lambda n: text.count(n, "batch", "batches"), 1024, "1,024 batches"),
        (lambda pair: text.percent(*pair), (1, 3), "33.3 %"),
        (lambda pair: text.percent(*pair), (0, 0), "0 %"),
        (text.short, 0, "0"),
        (text.short, 9_999_999, "9,999,999"),
        (text.short, 76_480_000, "76.5 M"),
        (text.short, 999_600_000, "1 G"),
        (text.size, 0, "0 B"),
        (text.size, 999.6, "1 kB"),
        (text.size, 34_426_781_696, "34.4 GB"),
        (text.size, math.inf, "inf PB"),
        (text.difference, 0.0348, "0.035"),
        (text.difference, 123.4, "1.2e+02"),
        (text.difference, math.nan, "NaN"),
        (text.share, 0.0000348, "0.0035%"),
        (text.share, 12.34, "1.23e+03%"),
        (text.share, math.inf, "inf%"),
        (text.short_share, 0.0000348, "<.1%"),
        (text.short_share, 0.0043, "0.43%"),
        (text.short_share, 12.34, "1e3%"),
        (text.short_share, math.nan, "NaN"),
    ],
)
def test_numbers_in_words(words, value, said):
    assert words(value) == said


@given(st.one_of(st.floats(0, 1e30), st.sampled_from([0.0, 1e-12, math.nan, math.inf])))
def test_short_shares_fit_their_cell(value):
    assert len(text.short_share(value)) <= 5


cells = st.text("ab 1é–", max_size=5)


@given(st.lists(st.lists(cells, min_size=3, max_size=3), min_size=1, max_size=5), st.integers(0, 7))
def test_the_columns_of_a_table(rows, least):
    wide = [max([0, *(len(row[i]) for row in rows)]) for i in range(3)]
    wide[1] = max(wide[1], least)
    lines = [
        f"  {a.ljust(wide[0])} | {b.rjust(wide[1])}{' ' * 3}{c.rjust(wide[2])}".rstrip()
        for a, b, c in rows
    ]
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
