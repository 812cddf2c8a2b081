"""Tests of lengths that are typed, read and drawn at random."""

import contextlib
import io
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packviz.core import lengths
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
        ("5, 3,\n", [5, 3]),
        ("-3 2.5 5.0 inf", [-3, 2.5, 5, float("inf")]),  # for Layout to refuse
        ("inf\n1e3\n5", [float("inf"), 1000, 5]),  # not a heading
        ("[5, 3.0]", [5, 3]),
        ("tokens\n5\n3", [5, 3]),
        ('text,length\n"one, two",5\n\n"a\nb",3\n', [5, 3]),
        ("length\r5\r3", [5, 3]),
    ],
)
def test_parse(text, values):
    assert lengths.read(text) == values
    assert all(isinstance(v, int) or v != int(v) for v in lengths.read(text) if np.isfinite(v))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" \n ", "no lengths found; give some, as in 5, 3, 2"),
        (",", "entry 0 is ''; lengths are whole numbers"),
        ("5, x\n3", "entry 1 is 'x'"),
        ("length", "entry 0 is 'length'"),
        ("[5, true]", "entry 1 is 'True'"),
        ("1,024, 512", "entry 1 is '024'; lengths are whole numbers, as in 5, 3, 1024, without"),
        ("length,Length,length\n1,2,3", "several columns are named 'length'; rename all but one"),
        ('{"length": [5], "length": [3]}', "several columns are named 'length'; rename"),
        ("[5, [3]]", "entry 1 is '[3]'"),
        ("[5, 3", "not valid JSON ("),
        ("[" * 100_000, "not valid JSON ("),
        ("[]", "no lengths found; give a list"),
        ('{"lengths": 5}', "no lengths found; give a list"),
        (
            '{"id": [1], "size": [2]}',
            "no column is named 'length'; choose one of the columns 'id', 'size'",
        ),
        ("id,name\n1,a", "no column is named 'length'; choose one of the columns 'id', 'name'"),
        ("id,length\n1,5\n2", "row 1 needs one value per column (columns: 2, values: 1)"),
        ("id,length\n1,5\n2,3,4", "row 1 needs one value per column (columns: 2, values: 3)"),
        (f"length\n{'9' * 200_000}", "not a valid table (field larger"),
    ],
)
def test_what_cannot_be_read_is_refused(text, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        lengths.parse(text)


@pytest.mark.parametrize(
    "text", ["id,text_len\na,5\nb,3\n", '{"id": ["a", "b"], "text_len": [5, 3]}']
)
def test_a_column_is_chosen_by_its_name(tmp_path, text):
    path = tmp_path / "data"
    path.write_text(text)
    for source in (text, path, str(path)):
        assert lengths.read(source, column="text_len") == [5, 3]
    with pytest.raises(ValueError, match="data: no column is named 'size'; choose one of"):
        lengths.read(path, column="size")
    with pytest.raises(ValueError, match="there is no column 'size', because no first line"):
        lengths.read("5, 3", column="size")


@given(st.text())
def test_text_is_read_or_refused(text):
    """Any text gives numbers or a ValueError."""
    with contextlib.suppress(ValueError):
        assert all(isinstance(n, (int, float)) for n in lengths.parse(text))


# Files, by name: what they contain, and the message or the lengths.
FILES = {
    "excel.csv": ("length\n5\n3\n".encode("utf-8-sig"), [5, 3]),
    "plain.txt": (b"5 3", [5, 3]),
    "lengths.npy": (np.array([5, 3]), [5, 3]),
    "mask.npy": (np.array([[1, 1], [1, 0]]), [2, 1]),
    "nan.npy": (np.array([1, np.nan]), "{}: lengths[1] is nan: not a whole number"),
    "broken.npy": (b"PAR1", "{}: it is not a NumPy file of numbers"),
    "data.parquet": (
        b"PAR1\xff\x81",
        "cannot read {} as text: give UTF-8 text or .npy, or read a table with pandas",
    ),
    "heading.csv": (b"length\n", "{}: no lengths found; give a list"),
    "lines.csv": ("text,length\none\u2028two,5\r\nx\x85,3\n".encode(), [5, 3]),
    "long.csv": (
        b"text,length\n" + b"x" * 140_000 + b",5\n",
        "{}: not a valid table (field larger than field limit (131072)); close every quotation"
        " mark, or give only the column with the lengths",
    ),
    "UPPER.CSV": (b"1,5\n2,3\n", "{}: a table with several columns needs a first line"),
    "ids.tsv": (b"1\t5\n2\t3\n", "{}: a table with several columns needs a first line"),
    "none.csv": (b"1,5\n2,3\n", "{}: a table with several columns needs a first line"),
    "later.csv": (b"512\n1,500", "{}: a table with several columns needs a first line"),
    "missing.tsv": (None, "cannot read {}: No such file or directory"),
}


@pytest.mark.parametrize("name", FILES)
def test_files(tmp_path, name):
    contents, expected = FILES[name]
    path = tmp_path / name
    if isinstance(contents, np.ndarray):
        np.save(path, contents)
    elif contents is not None:
        path.write_bytes(contents)
    if isinstance(expected, list):
        assert lengths.read(path) == lengths.read(str(path)) == expected
    else:
        with pytest.raises(ValueError, match=f"^{re.escape(expected.format(path))}"):
            lengths.read(str(path))


def test_a_name_that_is_no_file_and_what_is_no_source(monkeypatch):
    with pytest.raises(ValueError, match=r"cannot read data/lengths: No such file"):
        lengths.read("data/lengths")
    with pytest.raises(TypeError, match="source is an int; give a path, or text"):
        lengths.read(5)
    monkeypatch.setattr("sys.stdin", io.StringIO("\ufeff5 3"))
    assert lengths.read("-") == [5, 3]
    with pytest.raises(ValueError, match="-: no lengths found"):
        lengths.read("-")
    monkeypatch.setattr("sys.stdin", io.StringIO("0,5\n1,3\n"))
    with pytest.raises(ValueError, match="-: a table with several columns needs a first line"):
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
    assert (batch.shape, batch.dtype) == ((size,), np.int64)
    assert 1 <= batch.min() <= batch.max() <= longest
    assert (batch == draw(size, longest, seed)).all()
    assert (draw(64, 100, 0).tolist() != draw(64, 100, 1).tolist()) == (name in lengths.RANDOM)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))
def test_spread(d, batch_size, longest):
    if d > min(batch_size, longest):
        with pytest.raises(ValueError, match=f"distinct is {d}; give a whole number from 1 to"):
            lengths.spread(d, batch_size, longest)
        return
    n = lengths.spread(d, batch_size, longest)
    values = sorted(set(n))
    assert (len(n), len(values), n) == (batch_size, d, sorted(n, reverse=True))
    gaps = np.diff(values)
    assert d == 1 or (values[0], values[-1]) == (1, longest)
    assert d == 1 or max(gaps) - min(gaps) <= 2
    if longest % 2 and batch_size % d == 0 and (d % 2 == 0 or d == 1):
        assert 2 * sum(n) == batch_size * (longest + 1)


@pytest.mark.parametrize(("distinct", "size"), [(2, 16), (16, 16), (8, 64), (16, 256)])
def test_even_steps_differ_only_in_how_many_are_distinct(distinct, size):
    n = lengths.even_steps(distinct, size)
    assert (len(n), max(n), sum(n)) == (size, size, size * (size + 1) // 2)
    assert set(np.bincount(n)) == {0, size // distinct}
    with pytest.raises(ValueError, match="distinct is 5; for size 16, choose one of"):
        lengths.even_steps(5, 16)


def test_a_mask_in_a_file_loses_its_width_with_a_warning(tmp_path):
    np.save(tmp_path / "wide.npy", [[1, 1, 0], [1, 0, 0]])
    with pytest.warns(UserWarning, match="a mask of 3 time steps, and only its lengths are kept"):
        assert lengths.read(tmp_path / "wide.npy") == [2, 1]


@pytest.mark.parametrize("kind", lengths.DISTRIBUTIONS)
def test_sizes_that_no_batch_has_are_refused(kind):
    for sizes, message in {(4, 2.5): "longest is 2.5; give", (-1, 4): "batch_size is -1"}.items():
        with pytest.raises(ValueError, match=message):
            lengths.DISTRIBUTIONS[kind](*sizes, 0)
