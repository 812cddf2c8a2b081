"""The text twin: exactly what it says on small batches, and that it says what holds for any."""

import math
import re

import numpy as np
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


def test_labels_stand_in_for_names_and_may_go_on_into_the_padding():
    described = text.describe(Layout([2, 1]), [["10", "seven"], ["3", "0"]])
    assert described.split("\n\n")[1:] == [
        "padded (· marks padding)  t=0    t=1\n"
        " a  length  2              10  seven\n"
        " b  length  1               3     ·0",
        "packed: 3 rows of data, time step by time step\n"
        "  t=0   batch_sizes[0] = 2   rows 0–1     10 3\n"
        "  t=1   batch_sizes[1] = 1   row  2       seven\n"
        "batch_sizes      [2, 1]",
    ]


def test_the_outline_of_a_large_batch():
    layout = Layout([30, 1, 1, 10] * 5, max_len=40)  # 5 of 30, 5 of 10, 10 of 1
    assert text.describe(layout) == (
        "20 sequences padded to 40 time steps: 800 cells, 210 real, 590 padding (73.8 % wasted).\n"
        "\n"
        "lengths          shortest 1, median 5.5, longest 30; 3 distinct\n"
        "                 [30, 1, 1, 10, 30, 1, 1, 10, 30, 1, 1, 10, 30, 1, 1, 10, 30, 1, 1, 10]\n"
        "packed           210 rows of data in 30 time steps, longest sequence first\n"
        "batch_sizes      [20, 10, 10, 10, 10, 10, 10, 10, 10, 10, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, …,"
        " 5, 5, 5] (30 in all)"
    )


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        ([1], "1 sequence padded to 1 time step: 1 cell, 1 real, 0 padding (0 % wasted)."),
        (
            [4, 6, 8, 5, 4, 3, 7, 8],
            "8 sequences padded to 8 time steps: 64 cells, 45 real, 19 padding (29.7 % wasted).",
        ),
        ([512] + [1] * 511, "512 sequences padded to 512 time steps: 262,144 cells, 1,023 real, 261,121 padding"),
    ],
)
def test_summary(lengths, said):
    assert text.summary(Layout(lengths)).startswith(said)


@pytest.mark.parametrize(("size", "few"), [((16, 16), True), ((17, 2), False), ((2, 17), False)])
def test_every_cell_is_written_up_to_16_by_16(size, few):
    layout = Layout([size[1]] * size[0])
    assert text.is_few(layout) is few
    assert ("t=0" in text.describe(layout)) is few


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


def test_flat_rows_of_a_large_batch_in_words():
    assert text.describe_flat(Layout([30, 1, 1, 10] * 5)).splitlines() == [
        "flat: 210 rows, one sequence after another; data has 3 of them in the same place",
        "starts           [0, 30, 31, 32, 42, 72, 73, 74, 84, 114, 115, 116, 126, 156, 157, 158, 168, 198, 199, 200,"
        " 210]",
        "flat_rows        [0, 42, 84, 126, 168, 32, 74, 116, 158, 200, 30, 31, 72, 73, 114, 115, 156, 157, 198, 199, …,"
        " 113, 155, 197] (210 in all)",
    ]


@given(lengths)
def test_the_columns_stand_under_each_other(lengths):
    lines = text.describe(Layout(lengths)).split("\n\n")[1].splitlines()
    ends = [i for i in range(len(lines[0])) if lines[0][i : i + 1].isdigit() and not lines[0][i + 1 : i + 2].isdigit()]
    for line in lines[1:]:
        assert all(line[i] != " " and line[i + 1 : i + 2] in ("", " ") for i in ends if i < len(line))


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


def test_a_step_of_a_large_batch():
    said = "t = 19: 5 of 20 sequences still running, so batch_sizes[19] = 5. They fill data[155:160]."
    assert text.at_step(Layout([30, 1, 1, 10] * 5), 19) == said  # 20 + 9·10 + 9·5 = 155 rows lie before


def test_long_lists_are_cut_and_counted():
    assert text.numbers(np.arange(24)) == str(list(range(24)))
    assert text.numbers(np.arange(1000), limit=6) == "[0, 1, …, 997, 998, 999] (1000 in all)"


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


def test_the_mistaken_order():
    layout = Layout([3, 5, 2, 4])
    assert text.mistaken_order(layout, 2) == (
        "Not so: one sequence after another. The rows of step 2 would be [2, 5, 12].\n"
        "  a0 a1 a2 b0 b1 b2 b3 b4 c0 c1 d0 d1 d2 d3"
    )
    assert text.mistaken_order(Layout([20, 30]), 25).endswith("would be [45].")


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
        (999, "999 B"),
        (999.6, "1 kB"),
        (1000, "1 kB"),
        (999_999, "1 MB"),
        (33_554_432, "33.6 MB"),
        (34_426_781_696, "34.4 GB"),
        (2e15, "2 PB"),
        (-5, "-5 B"),
        (float("nan"), "nan B"),
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
        (0.0041, "0.41%", ".4%"),
        (0.0349, "3.5%", "3%"),
        (0.456, "46%", "46%"),
        (1.0, "100%", "100%"),
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


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0"), (1.23456e-3, "1.23"), (0.99, "990"), (1, "1,000"), (12.345, "12,345")]
)
def test_milliseconds(seconds, said):
    assert quantities.milliseconds(seconds) == said


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


def test_the_last_column_is_that_of_all_further_and_words_are_centred():
    assert text.table([["a", "1", "2"], ["b", "10", "200"]], "<3>4") == ["a     1   2", "b    10 200"]
    assert text.table([["outputs", "h"], ["right", "–"], ["no", "–––"]], "^|^") == [
        "outputs| h",
        " right | –",
        "  no   |–––",
    ]
