"""Lengths typed, read and drawn at random."""

import contextlib
import io
import json
import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packviz.core import lengths
from packviz.core.layout import Layout
from packviz.core.sentences import sentences

numbers = st.lists(st.integers(-5, 10_000), min_size=1, max_size=50)


@given(numbers, st.sampled_from([" ", ", ", ",", ";", "\n", "\r\n", "\t", " , "]))
def test_numbers_with_any_separator(values, separator):
    assert lengths.read(separator.join(map(str, values))) == values


@given(numbers)
def test_json(values):
    assert lengths.read(json.dumps(values)) == values
    assert lengths.read(json.dumps({"name": "mine", "lengths": values}, indent=1)) == values


@given(numbers)
def test_tables(values):
    rows = list(enumerate(values))
    assert lengths.read("length\n" + "\n".join(map(str, values))) == values
    for mark in ",;\t":
        table = "\n".join([f"id{mark}Lengths ", *(f"{i}{mark}{value}" for i, value in rows)])
        assert lengths.read(table) == values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (" 5, 3, 2 ", [5, 3, 2]),
        ("5, 3,\n", [5, 3]),
        ("5.0 3", [5, 3]),
        ("2.5", [2.5]),
        ("1e3\n5", [1000, 5]),
        ("[5, 3.0]", [5, 3]),
        ("tokens\n5\n3", [5, 3]),
        ('text,length\n"one, two",5\n\n"a\nb",3\n', [5, 3]),
        ("length\r5\r3", [5, 3]),
        ("length,length\n1,2", [1]),
    ],
)
def test_parse(text, values):
    assert lengths.read(text) == values
    assert all(isinstance(v, int) or v != int(v) for v in lengths.read(text))


def test_what_are_no_lengths_is_left_to_layout_to_refuse():
    assert lengths.read("-3 2.5 inf") == [-3, 2.5, float("inf")]
    assert np.isnan(lengths.read("nan\n5")).tolist() == [True, False]  # not a heading


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no lengths given; type some, as in 5, 3, 2"),
        (" \n ", "no lengths given"),
        (",", "entry 0 is ''; lengths are whole numbers"),
        ("5, x", "entry 1 is 'x'; lengths are whole numbers, as in 5, 3, 2"),
        ("5, x\n3", "entry 1 is 'x'"),
        ("length", "entry 0 is 'length'"),
        ("[5, true]", "entry 1 is 'True'"),
        ("[5, null]", "entry 1 is 'None'"),
        ("[5, [3]]", "entry 1 is '[3]'"),
        ("[5, 3", "not valid JSON: "),
        ("[" * 100_000, "not valid JSON: its lists are nested too deeply"),
        ('{"id": [1], "size": [2]}', "no column is named 'length', so name one with column=; there are id, size"),
        ('{"lengths": 5}', 'JSON must be a list of numbers, or an object with one under "lengths"'),
        ("id,name\n1,a", "no column is named 'length', so name one with column=; there are id, name"),
        ("id,length\n1,5\n2", "entry 1 is ''"),
        ("id,length\n1,five", "entry 0 is 'five'"),
        (f"length\n{'9' * 200_000}", "not a valid table: field larger"),
    ],
)
def test_what_cannot_be_read_is_refused(text, said):
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        lengths.read(text)


@pytest.mark.parametrize(
    "text", ["id,text_len,n\na,5,1\nb,3,2\n", '{"id": ["a", "b"], "text_len": [5, 3], "n": [1, 2]}']
)
def test_a_column_is_chosen_by_its_name(tmp_path, text):
    assert lengths.read(text, column="text_len") == [5, 3]
    path = tmp_path / "data"
    path.write_text(text)
    assert lengths.read(path, column="n") == lengths.read(str(path), "n") == [1, 2]
    with path.open() as file:
        assert lengths.read(file, column="text_len") == [5, 3]
    with pytest.raises(ValueError, match="data: no column is named 'size'; there are id, text_len, n"):
        lengths.read(path, column="size")
    with pytest.raises(ValueError, match="no column is named 'length', so name one with column=; there are id, text_"):
        lengths.read(text)
    with pytest.raises(ValueError, match="entry 0 is 'a'"):
        lengths.read(text, column="id")


@pytest.mark.parametrize("text", ["5, 3", "[5, 3]"])
def test_a_column_where_there_is_no_table(text):
    with pytest.raises(ValueError, match="column is 'size', but"):
        lengths.read(text, column="size")


@given(st.text())
def test_text_is_read_or_refused(text):
    """Whatever is typed gives numbers or a ValueError."""
    with contextlib.suppress(ValueError):
        assert all(isinstance(n, (int, float)) for n in lengths.read(io.StringIO(text)))


def test_read(tmp_path, monkeypatch):
    path = tmp_path / "lengths.csv"
    path.write_text("length\n5\n3\n", encoding="utf-8-sig")  # as Excel writes it
    assert lengths.read(str(path)) == [5, 3]
    monkeypatch.setattr("sys.stdin", io.StringIO("5 3"))
    assert lengths.read("-") == [5, 3]


def test_read_says_which_file_and_why(tmp_path, monkeypatch):
    missing, binary, wrong = tmp_path / "none.csv", tmp_path / "binary", tmp_path / "wrong.json"
    binary.write_bytes(b"\xff\xfe\x00\x81")
    wrong.write_text("[5, x]")
    for path, said in [
        (missing, "cannot read {}: No such file or directory"),
        (tmp_path, "cannot read {}: Is a directory"),
        (binary, "cannot read {}: not a text file"),
        (wrong, "{}: not valid JSON: "),
    ]:
        with pytest.raises(ValueError, match=f"^{re.escape(said.format(path))}"):
            lengths.read(str(path))
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(ValueError, match="standard input: no lengths given"):
        lengths.read("-")


def test_equal_evenly_nearly_equal_and_sentences_are_what_they_say():
    assert lengths.equal(3, 10).tolist() == [10, 10, 10]
    assert lengths.evenly(5, 9).tolist() == [9, 7, 5, 3, 1]
    assert lengths.nearly_equal(1000, 100).min() == 95
    n = [len(sentence) for sentence in sentences()]
    assert lengths.sentences(3, 4).tolist() == [min(length, 4) for length in n[:3]]
    assert lengths.sentences(len(n) + 2, max(n)).tolist() == [*n, *n[:2]]


@pytest.mark.parametrize("name", lengths.DISTRIBUTIONS)
@given(size=st.integers(1, 512), longest=st.integers(1, 512), seed=st.integers(0, 99))
def test_distributions_keep_their_bounds_and_repeat_themselves(name, size, longest, seed):
    draw = lengths.DISTRIBUTIONS[name]
    batch = draw(size, longest, seed)
    assert batch.shape == (size,)
    assert batch.dtype == np.int64
    assert 1 <= batch.min() <= batch.max() <= longest
    assert (batch == draw(size, longest, seed)).all()


@pytest.mark.parametrize("name", lengths.DISTRIBUTIONS)
def test_only_random_distributions_have_a_use_for_a_seed(name):
    draw = lengths.DISTRIBUTIONS[name]
    assert (draw(64, 100, 0).tolist() != draw(64, 100, 1).tolist()) == (name in lengths.RANDOM)


def test_a_csv_table_without_a_heading_is_refused(tmp_path):
    path = tmp_path / "batch.csv"
    path.write_text("1,5\n2,3\n")
    with pytest.raises(ValueError, match="a table with 2 columns needs a first line that names them"):
        lengths.read(str(path))
    for text in ("5,3,2\n", "5\n3\n2\n", "n,length\n0,5\n1,3\n2,2\n"):
        path.write_text(text)
        assert lengths.read(str(path)) == [5, 3, 2]


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))
def test_spread(d, batch_size, longest):
    if d > min(batch_size, longest):
        with pytest.raises(ValueError, match=f"distinct is {d}; {batch_size} sequences of at most {longest} time"):
            lengths.spread(d, batch_size, longest)
        return
    n = lengths.spread(d, batch_size, longest)
    values = sorted(set(n))
    assert len(n) == batch_size
    assert len(values) == d
    assert n == sorted(n, reverse=True)
    assert values[0] >= 1
    assert values[-1] <= longest
    if d > 1:
        assert (values[0], values[-1]) == (1, longest)
        gaps = [b - a for a, b in pairwise(values)]
        assert max(gaps) - min(gaps) <= 2
    if longest % 2 and batch_size % d == 0 and (d % 2 == 0 or d == 1):
        assert 2 * sum(n) == batch_size * (longest + 1)


@pytest.mark.parametrize(("distinct", "size"), [(2, 16), (4, 16), (16, 16), (8, 64), (2, 256), (16, 256), (256, 256)])
def test_even_steps_differ_only_in_how_many_are_distinct(distinct, size):
    n = lengths.even_steps(distinct, size)
    layout = Layout(n)
    assert (layout.batch_size, layout.max_len, layout.n_valid) == (size, size, size * (size + 1) // 2)
    assert set(np.bincount(n)) == {0, size // distinct}
    assert len(set(n)) == distinct
    assert layout.is_sorted


@pytest.mark.parametrize("distinct", [1, 3, 5, 17])
def test_even_steps_that_do_not_fit(distinct):
    with pytest.raises(ValueError, match=rf"distinct is {distinct}; for 16 sequences choose one of \[2, 4, 16\]"):
        lengths.even_steps(distinct, 16)
