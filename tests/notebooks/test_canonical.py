"""Tests the stored form of notebooks, their writing, and that each kind of defect is found."""

import base64
import copy
import json
import re
import shutil
import struct
from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter
from nbhelp import Tool, write
from nbtools.alternative import png_of
from nbtools.canonical import PLOTLY, WIDGET_VIEW, canonical, dumps, leaks, loads
from nbtools.check import defects
from nbtools.execute import RunError, draw_charts

SOURCE = """\
# %% [markdown]
# # One
#
# Next: [one again](01_one.ipynb).

# %% tags=["parameters"]
lengths = [5, 3, 2]

# %%
import os
import sys

import ipywidgets

print("first")
print("second", flush=True)


# %%
class Shown:
    def __init__(self, bundle):
        self.bundle = bundle

    def _repr_mimebundle_(self, **options):
        return self.bundle


view = ipywidgets.IntSlider()._repr_mimebundle_()
svg = "<svg xmlns='http://www.w3.org/2000/svg'/>"
Shown(view | {"image/svg+xml": svg, "text/plain": "a slider at 0"})

# %%
figure = {"data": [{"type": "bar", "y": lengths}], "layout": {"width": 300, "height": 200}}
Shown({"application/vnd.plotly.v1+json": figure, "text/plain": f"bars of {lengths}"})

# %% tags=["exercise"]
def double(x):
    # solution
    return 2 * x
    # end solution


assert double(1) == 2 or not os.environ.get("PACKVIZ_STRICT")

# %% tags=["raises-exception"]
import json

json.loads("{")

# %% tags=["live-timing", "nbval-ignore-output"]
import time

print(time.perf_counter())
"""
STEM = "01_one"


@pytest.fixture(scope="module")
def written(tmp_path_factory, tool: Tool, chromium) -> Path:
    """Returns a root whose only source was written by the command of `make notebooks`."""
    root = tmp_path_factory.mktemp("written")
    write(root, SOURCE)
    done = tool("write", "--root", root)
    assert done.returncode == 0, done.stderr
    return root


@pytest.fixture
def root(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "copy"))


def notebook_of(root: Path):
    return loads((root / "notebooks" / f"{STEM}.ipynb").read_text(encoding="utf-8"))


def output_with(notebook, kind: str):
    return next(
        o for c in notebook.cells for o in c.get("outputs", []) if kind in o.get("data", {})
    )


def data_with(notebook, kind: str):
    return output_with(notebook, kind).data


def test_written_notebooks_have_no_defect(written: Path):
    assert defects(written) == []


def test_a_second_writing_in_another_folder_changes_no_byte(written: Path, root: Path, tool: Tool):
    again = tool("write", "01", "--root", root)
    assert again.stdout.splitlines() == [
        f"notebooks/{STEM}.ipynb: unchanged",
        f"notebooks/solutions/{STEM}.ipynb: unchanged",
    ]
    for name in (f"{STEM}.ipynb", f"solutions/{STEM}.ipynb"):
        assert (root / "notebooks" / name).read_bytes() == (
            written / "notebooks" / name
        ).read_bytes()


def test_what_is_stored(written: Path):
    text = (written / "notebooks" / f"{STEM}.ipynb").read_text(encoding="utf-8")
    assert text.endswith("}\n")
    raw = json.loads(text)
    assert text == json.dumps(raw, sort_keys=True, indent=1, ensure_ascii=False) + "\n"
    assert WIDGET_VIEW not in text
    assert set(raw["metadata"]) == {"kernelspec", "language_info"}
    assert raw["metadata"]["language_info"] == {"name": "python"}
    assert {key for cell in raw["cells"] for key in cell["metadata"]} == {"tags"}
    streams, slider, chart, _, error, timing = [cell.get("outputs") for cell in raw["cells"]][2:]
    assert [output["text"] for output in streams] == [["first\n", "second\n"]]
    assert sorted(slider[0]["data"]) == ["image/svg+xml", "text/html", "text/plain"]
    assert sorted(chart[0]["data"]) == [
        PLOTLY,
        "text/html",
        "text/plain",
    ]  # the picture once, in the HTML
    png = base64.b64decode(png_of(output_with(notebook_of(written), PLOTLY)))
    assert struct.unpack(">II", png[16:24]) == (600, 400)
    trace = "\n".join(error[0]["traceback"])
    assert "Cell" in trace
    assert "decoder.py" not in trace
    when, clock = timing[0]["text"]
    assert re.match(
        r"Recorded on \d+ \w+ \d{4}, on .+, torch [\d.+a-z]+, with at most 2 threads", when
    )
    assert float(clock) > 0


def test_every_picture_of_an_html_export_has_words(written: Path):
    exported, _ = HTMLExporter().from_filename(str(written / "notebooks" / f"{STEM}.ipynb"))
    slider, chart = re.findall(r"<img\b[^>]*>", exported)
    assert 'alt="a slider at 0"' in slider
    assert "data:image/svg+xml;base64," in slider
    assert re.search(r'alt="bars of \[[\d, ]+\]"', chart)
    assert ('height="200"' in chart, 'width="300"' in chart, "data:image/png;base64," in chart) == (
        True,
        True,
        True,
    )


def test_the_picture_of_an_unchanged_chart_is_kept(written: Path):
    drawn_here = png_of(output_with(notebook_of(written), PLOTLY))
    drawn_elsewhere = base64.b64encode(base64.b64decode(drawn_here) + b"other fonts").decode()
    for kept, steps, drawn in (
        (drawn_elsewhere, None, drawn_elsewhere),
        (drawn_elsewhere, [1, 2, 3], drawn_here),  # a chart that has changed is drawn anew
    ):
        fresh, stored = notebook_of(written), notebook_of(written)
        chart = output_with(stored, PLOTLY)
        chart.data["text/html"] = chart.data["text/html"].replace(drawn_here, kept)
        chart.data[PLOTLY]["data"][0]["y"] = steps or chart.data[PLOTLY]["data"][0]["y"]
        draw_charts(fresh, stored)
        assert data_with(fresh, PLOTLY)["image/png"] == drawn


def dirty():
    """Returns a notebook as an editor may save it."""
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": "a"},
        {"output_type": "stream", "name": "stdout", "text": "b"},
        {"output_type": "stream", "name": "stderr", "text": "c"},
        {"output_type": "display_data", "metadata": {}, "data": {WIDGET_VIEW: {"model_id": "1"}}},
        {
            "output_type": "display_data",
            "metadata": {},
            "data": {WIDGET_VIEW: {}, "text/plain": "x"},
        },
    ]
    times = {"execution": {"iopub.execute_input": "2020"}, "tags": ["exercise"], "collapsed": False}
    cells = [
        {
            "cell_type": "code",
            "id": "zz",
            "metadata": times,
            "execution_count": 1,
            "source": "1",
            "outputs": outputs,
        },
        {"cell_type": "markdown", "id": "yy", "metadata": {}, "source": "# T"},
    ]
    metadata = {"widgets": {"state": {}}, "language_info": {"name": "python", "version": "3.11.7"}}
    return loads(
        json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5})
    )


def test_canonical_cleans_and_is_idempotent():
    before = dirty()
    untouched = copy.deepcopy(before)
    once = canonical(before, "07_x")
    assert before == untouched
    assert canonical(once, "07_x") == once
    assert [cell.id for cell in once.cells] == ["07-00", "07-01"]
    assert once.cells[0].metadata == {"tags": ["exercise"]}
    assert [o.get("text", o.get("data")) for o in once.cells[0].outputs] == [
        "ab",
        "c",
        {"text/plain": "x"},
    ]
    assert "widgets" not in once.metadata
    assert "version" not in once.metadata.language_info


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{root}/packviz/core/layout.py", "this machine's path"),
        ("File \x1b[32m/tmp/ipykernel_1/2.py", "somebody's path /tmp/"),
        ("see /home/ada/x", "somebody's path /home/ada/x"),
        ("<object at 0x7f0123456789>", "memory address"),
        ('<div id="8e32f066-0985-4a96-843f-1065df3a143a">', "random id 8e32"),
        ("'model_id': 'b2c47a09d5974e4f9f65ff15e023142a'", "random id b2c4"),
        ("a/tmp/b, ./tmp/c, x.root/y, at 0x1", None),
    ],
)
def test_leaks(text, found, tmp_path):
    cell = dirty().cells[0]
    cell.outputs[0].text = text.format(root=tmp_path)
    cell.outputs[4].data["image/png"] = "/tmp/"  # base64 may spell anything
    hits = leaks(cell, tmp_path)
    assert any(found in hit for hit in hits) if found else not hits, hits


def output(notebook, **changes):
    """Changes the output of the first cell that prints."""
    notebook.cells[2].outputs[0].update(changes)


def picture(notebook, kind="image/svg+xml", **changes):
    """Changes the output that has this kind of data; a value of None removes its key."""
    data = data_with(notebook, kind)
    data.update({key.replace("_", "/"): value for key, value in changes.items()})
    for key in [key for key, value in data.items() if value is None]:
        del data[key]


VIEW = {"model_id": "1"}
SPOILT = [
    (
        lambda n, root: n.cells[6].update(source=n.cells[6].source + "  # by hand"),
        "differs from its source",
    ),
    (
        lambda n, root: n.cells[2].update(execution_count=None, outputs=[]),
        "not run once, from top to bottom",
    ),
    (lambda n, root: n.cells[2].update(execution_count=9), "not run once, from top to bottom"),
    (
        lambda n, root: n.metadata.update(widgets={"application/x": {"state": {}}}),
        "not in canonical form",
    ),
    (
        lambda n, root: data_with(n, "image/svg+xml").update({WIDGET_VIEW: VIEW}),
        "not in canonical form",
    ),
    (lambda n, root: picture(n, PLOTLY, text_html=None), "a chart has no image"),
    (lambda n, root: picture(n, text_html=None), "a picture has no text/html output"),
    (lambda n, root: picture(n, PLOTLY, text_plain=None), "a chart has no text"),
    (lambda n, root: output(n, text=str(root)), "this machine's path"),
    (lambda n, root: output(n, text="x" * 1_600_000), "1.6 MB, over the limit of 1.5 MB"),
    (lambda n, root: n.cells[2].update(id="mine"), "not in canonical form"),
]


def test_check_finds_a_spoilt_notebook(written: Path, tmp_path: Path, subtests: pytest.Subtests):
    for number, (spoil, message) in enumerate(SPOILT):
        root = Path(shutil.copytree(written, tmp_path / str(number)))
        notebook = notebook_of(root)
        spoil(notebook, root)
        (root / "notebooks" / f"{STEM}.ipynb").write_text(dumps(notebook), encoding="utf-8")
        found = defects(root)
        with subtests.test(message):
            assert any(message in defect for defect in found), found
            assert all(defect.startswith(f"notebooks/{STEM}.ipynb: ") for defect in found), found


FIFTEEN = "\n".join(f"x{i} = {i}" for i in range(15)) + "\n\n"
MAY_NOT = [
    (FIFTEEN + "x = 1", [], "16 lines of code, over the limit of 15"),
    ("print(1)", ["exercize"], "unknown tag exercize"),
    ("print(1)", ["nbval-ignore-output"], "belong together"),
    ("print(1)", ["live-timing"], "belong together"),
    ("print(1)", ["live-timing", "nbval-ignore-output"], "does not store where its times"),
    ("x = 1\nassert x", [], "contains an assertion; move it"),
    ("# NBVAL_IGNORE_OUTPUT\nprint(1)", [], "the comment NBVAL_IGNORE_OUTPUT hides it"),
    ("print(1)", ["claims"], "is tagged 'claims' but asserts nothing"),
    ("assert print(1)", ["claims"], "is tagged 'claims' but has output"),
    (FIFTEEN, [], ""),
]


def test_check_finds_what_a_cell_may_not_do(root: Path):
    notebook = notebook_of(root)
    for i, (source, own, _) in enumerate(MAY_NOT):
        cell = nbformat.v4.new_code_cell(
            source, metadata={"tags": own}, id=f"own-{i}", execution_count=i + 7
        )
        cell.outputs = [nbformat.v4.new_output("stream", text="1\n")]
        notebook.cells.append(cell)
    (root / "notebooks" / f"{STEM}.ipynb").write_text(dumps(notebook), encoding="utf-8")
    found = defects(root)
    for i, (_, _, message) in enumerate(MAY_NOT):
        mine = [defect for defect in found if f": cell own-{i}: " in defect]
        assert any(message in defect for defect in mine) if message else not mine, found


def test_check_finds_strays_and_gaps(root: Path):
    folder = root / "notebooks"
    shutil.copy(folder / f"{STEM}.ipynb", folder / "02_stray.ipynb")
    write(root, SOURCE, "03_missing")
    (folder / "solutions" / f"{STEM}.ipynb").write_text("{", encoding="utf-8")
    found = defects(root)
    assert "notebooks/02_stray.ipynb: this notebook has no source" in found
    assert "notebooks/03_missing.ipynb: missing; run `make notebooks`" in found
    assert "notebooks/solutions/03_missing.ipynb: missing; run `make notebooks`" in found
    assert any(
        d.startswith(f"notebooks/solutions/{STEM}.ipynb: not a valid notebook") for d in found
    )
    assert len(found) == 4
    assert defects(root, ["03"]) == [d for d in found if "03_missing" in d]


def test_an_empty_repository_is_not_in_order(tmp_path: Path, tool: Tool):
    assert len(defects(tmp_path)) == 1
    assert tool("check", "--root", tmp_path).returncode == 1
    assert tool("write", "--root", tmp_path).returncode == 2
    assert tool("test", "--root", tmp_path).returncode == 1


def test_a_cell_that_raises_stops_the_writing_of_that_notebook_only(tmp_path: Path, tool: Tool):
    write(tmp_path, "# %%\nx = 0\n\n# %%\nprint(1 / x)\n\n# %%\nprint('not reached')\n", "01_bad")
    write(tmp_path, "# %%\nprint(__name__)\n", "02_good")
    write(tmp_path, "# %%\nimport os\n\nprint(os.getcwd())\n", "03_leak")
    done = tool("write", "--root", tmp_path)
    assert done.returncode == 1
    assert "notebooks/01_bad.ipynb: not written: An error occurred" in done.stderr
    assert "\nprint(1 / x)\n---" in done.stderr
    assert "ZeroDivisionError: division by zero" in done.stderr
    assert "notebooks/03_leak.ipynb: not written: its outputs depend on this run" in done.stderr
    assert [path.name for path in (tmp_path / "notebooks").glob("*.ipynb*")] == ["02_good.ipynb"]
    assert "x = 0" not in done.stderr


def test_a_chart_without_a_browser_says_how_to_get_one(written: Path, monkeypatch):
    monkeypatch.setenv("PACKVIZ_CHROMIUM", "/no/such/browser")
    notebook, stored = notebook_of(written), notebook_of(written)
    draw_charts(notebook, stored)  # the stored picture will do
    for kind in ("image/png", "text/html"):
        del data_with(notebook, PLOTLY)[kind]
    with pytest.raises(
        RunError, match="PACKVIZ_CHROMIUM=/no/such/browser is not a program; install it"
    ):
        draw_charts(notebook)
