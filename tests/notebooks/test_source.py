"""Turns sources into notebooks, without running them: solution regions, links and options."""

import pytest
from nbhelp import write
from nbtools.source import (
    SourceError,
    editions,
    is_relative,
    links,
    one_folder_deeper,
    source_files,
    split_solution,
)

SOURCE = """\
# %% [markdown]
# # A title
#
# Next: [two](02_two.ipynb), [solved](solutions/01_one.ipynb#end).

# %% tags=["exercise"]
def double(x):
    # solution
    y = x + x

    return y
    # end solution


# %%
print(double(2))
"""


def test_a_region_becomes_one_line_at_its_own_indentation():
    stub, solved = split_solution(
        "def f():\n    # solution\n    a = 1\n    return a\n    # end solution\nf()"
    )
    assert stub == "def f():\n    ...  # your code here\nf()"
    assert solved == "def f():\n    a = 1\n    return a\nf()"


def test_several_regions_and_none():
    text = "# solution\na = 1\n# end solution\nb = 2\n# solution\nc = 3\n# end solution"
    stub = "...  # your code here"
    assert split_solution(text) == (f"{stub}\nb = 2\n{stub}", "a = 1\nb = 2\nc = 3")
    plain = "a = 1  # solution of x\n# the solution follows"
    assert split_solution(plain) == (plain, plain)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# solution\na", "'# solution' is not one of a pair"),
        ("a\n# end solution", "'# end solution' is not one of a pair"),
        ("# solution\n# solution\na\n# end solution", "'# solution' is not one of a pair"),
        ("# solution\n\n# end solution", "empty"),
        ("# Solution\na\n# end solution", "'# Solution' is not one of a pair"),
        ("# solution\na\n# end-solution", "is not one of a pair"),
    ],
)
def test_a_broken_region_is_refused(text, message):
    with pytest.raises(SourceError, match=message):
        split_solution(text)


def test_reader_and_solutions(tmp_path):
    reader, solved = editions(write(tmp_path, SOURCE))
    assert reader.path == tmp_path / "notebooks" / "01_one.ipynb"
    assert solved.path == tmp_path / "notebooks" / "solutions" / "01_one.ipynb"
    assert (reader.strict, solved.strict) == (False, True)
    assert reader.notebook.cells[1].source == "def double(x):\n    ...  # your code here"
    assert solved.notebook.cells[1].source == "def double(x):\n    y = x + x\n\n    return y"
    assert reader.notebook.cells[2] == solved.notebook.cells[2]
    assert [cell.id for cell in solved.notebook.cells] == ["01-00", "01-01", "01-02"]
    assert reader.notebook.cells[1].metadata == {"tags": ["exercise"]}
    assert reader.notebook.cells[0].source.startswith("# A title\n")
    text = solved.notebook.cells[0].source
    assert text.startswith("# A title (solutions)\n")
    assert links(text) == ["../02_two.ipynb", "01_one.ipynb#end"]


def test_claims_stand_folded_in_the_solutions_alone(tmp_path):
    title = "# %% [markdown]\n# # A title\n\n"
    text = title + '# %%\nx = 1\n\n# %% tags=["claims"]\nassert x == 1\n\n# %%\nx\n'
    reader, solved = editions(write(tmp_path, text))
    assert [cell.source for cell in reader.notebook.cells] == ["# A title", "x = 1", "x"]
    assert [cell.source for cell in solved.notebook.cells] == [
        "# A title (solutions)",
        "x = 1",
        "assert x == 1",
        "x",
    ]
    assert solved.notebook.cells[2].metadata == {
        "tags": ["claims"],
        "jupyter": {"source_hidden": True},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('# %% tag=["exercise"]\nprint(1)\n', "unknown cell option tag"),
        ("# %% [raw]\n# words\n", "a raw cell"),
        ("# %%\n# solution\na = 1\n# end solution\n", "no heading"),
    ],
)
def test_a_source_that_would_lose_something_is_refused(tmp_path, text, message):
    with pytest.raises(SourceError, match=message):
        editions(write(tmp_path, text))


def test_links_of_every_kind_lead_to_the_same_file_from_solutions():
    inline = '[a](b.ipynb) ![p](img/p.png "t") [r]: ../README.md\n\n'
    text = inline + '[r]: ../README.md\n<img src="x.svg"> [s](<y.md>)'
    assert links(text) == ["b.ipynb", "img/p.png", "../README.md", "x.svg", "y.md"]
    assert links(one_folder_deeper(text)) == [
        "../b.ipynb",
        "../img/p.png",
        "../../README.md",
        "../x.svg",
        "../y.md",
    ]


def test_what_is_no_relative_link_stays():
    inline = "[a](https://pytorch.org/x) [b](#part) [m](mailto:a@b.c) `[c](d.md)`\n\n"
    text = inline + "```\n[e](f.md)\n```\n"
    assert one_folder_deeper(text) == text
    assert links(text) == ["https://pytorch.org/x", "#part", "mailto:a@b.c"]
    assert not any(is_relative(link) for link in links(text))


def test_names(tmp_path):
    one, two = write(tmp_path, SOURCE), write(tmp_path, SOURCE, "02_two")
    assert source_files(tmp_path) == [one, two]
    for name in ("02", "02_two", "notebooks/02_two.ipynb", "02_two.py"):
        assert source_files(tmp_path, [name]) == [two]
    with pytest.raises(SourceError, match=r"'03'\]: .* has 01_one, 02_two"):
        source_files(tmp_path, ["01", "03"])
    with pytest.raises(SourceError, match="has no sources"):
        source_files(tmp_path / "elsewhere")
