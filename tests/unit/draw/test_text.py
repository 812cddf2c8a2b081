"""The text twin: exactly what it says on small batches, and that it says what holds for any."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packviz.core.layout import Layout
from packviz.draw import quantities, text

lengths = st.lists(st.integers(1, 16), min_size=1, max_size=16)


def test_all_of_a_small_batch():
    assert text.describe(Layout([1, 3], max_len=4)) == (
        "2 sequences padded to 4 time steps: 8 cells, 4 real, 4 padding (50 % wasted).\n"
        "\n"
        "padded (· marks padding)  t=0  t=1  t=2  t=3\n"
        " a  length  1              a0    ·    ·    ·\n"
        " b  length  3              b0   b1   b2    ·\n"
        "\n"
        "packed: 4 rows of data, time step by time step\n"
        "  t=0   batch_sizes[0] = 2   rows 0–1     b0 a0\n"
        "  t=1   batch_sizes[1] = 1   row  2       b1\n"
        "  t=2   batch_sizes[2] = 1   row  3       b2\n"
        "batch_sizes      [2, 1, 1]\n"
        "sorted_indices   [1, 0]\n"
        "unsorted_indices [1, 0]"
    )


@given(lengths, st.integers(0, 3))
def test_every_cell_stands_where_it_lies(lengths, extra):
    layout = Layout(lengths, min(max(lengths) + extra, 16))
    _, padded, packed = text.describe(layout).split("\n\n")
    grid = [line.split()[3:] for line in padded.splitlines()[1:]]
    assert all(len(row) == layout.max_len for row in grid)
    assert [[cell != "·" for cell in row] for row in grid] == layout.mask.tolist()
    steps = re.findall(r"batch_sizes\[\d+\] *= (\d+) +rows? +[\d–]+ +(.*)", packed)
    assert [int(size) for size, _ in steps] == layout.batch_sizes.tolist()
    assert [cell for _, cells in steps for cell in cells.split()] == [grid[b][t] for b, t in layout.source]
    assert len({line.index(" = ") for line in packed.splitlines() if " = " in line}) == 1


@given(lengths)
def test_flat_rows_in_words(lengths):
    layout = Layout(lengths)
    head, *groups, starts, order = text.describe_flat(layout).splitlines()
    stay = sum(row == place for place, row in enumerate(layout.flat_rows))
    rows = text.count(layout.n_valid, "row")
    assert head == f"flat: {rows}, one sequence after another; data has {stay} of them in the same place"
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
            f"t = {t}: {size} of {text.count(len(lengths), 'sequence')} still running, so batch_sizes[{t}] = {size}."
            f" Packed here: {' '.join(cells[start:end])}, as data[{start}:{end}]."
        )


def test_counts_and_shares():
    assert [text.count(1, "batch", "batches"), text.count(2, "batch", "batches")] == ["1 batch", "2 batches"]
    assert text.count(1024, "cell") == "1,024 cells"
    assert [text.percent(*p) for p in ((1, 3), (1, 2), (0, 5), (0, 0), (1, 1))] == [
        "33.3 %",
        "50 %",
        "0 %",
        "0 %",
        "100 %",
    ]


@pytest.mark.parametrize(
    ("n", "said"),
    [(0, "0"), (9_999_999, "9,999,999"), (76_480_000, "76.5 M"), (999_600_000, "1 G"), (3_021_408_829_440, "3.02 T")],
)
def test_short_counts(n, said):
    assert text.short(n) == said


@pytest.mark.parametrize(
    ("n", "said"),
    [
        (0, "0 B"),
        (999.6, "1 kB"),
        (33_554_432, "33.6 MB"),
        (34_426_781_696, "34.4 GB"),
        (float("inf"), "inf PB"),
    ],
)
def test_bytes(n, said):
    assert text.size(n) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "1 s"), (40, "40 s"), (89, "89 s"), (100, "2 min"), (3000, "50 min"), (4800, "1 h 20 min")],
)
def test_durations(seconds, said):
    assert quantities.duration(seconds) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.0348, "0.035"), (0.4, "0.4"), (1.66, "1.7"), (123.4, "1.2e+02"), (math.nan, "NaN"), (math.inf, "inf")],
)
def test_differences(value, said):
    assert text.difference(value) == said


@pytest.mark.parametrize(
    ("value", "said", "cut"),
    [
        (0.0000348, "0.0035%", "<.1%"),
        (12.34, "1.23e+03%", "1e3%"),
        (math.nan, "NaN", "NaN"),
        (math.inf, "inf%", "inf"),
    ],
)
def test_shares(value, said, cut):
    assert text.share(value) == said
    assert text.short_share(value) == cut


@given(st.one_of(st.floats(0, 1e30), st.sampled_from([0.0, 1e-12, math.nan, math.inf])))
def test_short_shares_fit_their_cell(value):
    assert len(text.short_share(value)) <= 5 - (value < 1e7)


cells = st.text("ab 1é–", max_size=5)


@given(st.lists(st.lists(cells, min_size=3, max_size=3), min_size=1, max_size=5), st.integers(0, 7))
def test_the_columns_of_a_table(rows, least):
    wide = [max([0, *(len(row[i]) for row in rows)]) for i in range(3)]
    wide[1] = max(wide[1], least)
    lines = [f"  {a.ljust(wide[0])} | {b.rjust(wide[1])}{' ' * 3}{c.rjust(wide[2])}".rstrip() for a, b, c in rows]
    assert text.table(rows, f"  < | >{least or ''}   >") == lines


def test_a_row_that_ends_early_goes_on_across_the_columns():
    rows = [["name", "a", "b"], ["x", "1", "22"], ["y", "none of these"], ["z"], [], ["w", "–"]]
    assert text.table(rows) == ["name  a   b", "x     1  22", "y     none of these", "z", "", "w     –"]
    assert text.table(rows[1:], "<  >3")[-1] == "w  –"
    assert text.table([]) == []
