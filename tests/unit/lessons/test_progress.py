"""What was solved: kept for a person in a notebook, and nowhere else; never in the way, never in an output."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from panels import words

from packviz.lessons import Overview, Verdict, checks, progress
from packviz.lessons.exercise import exercise

ROOT = Path(__file__).parents[3]
SOURCES = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "notebooks/source").glob("*.py")}
EXERCISES = progress.exercises()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder of notebooks, and a kernel in it."""
    (tmp_path / "00_start_here.ipynb").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("PACKVIZ_STRICT", raising=False)
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(progress.sys.modules, "IPython", shell)
    return tmp_path


def solve():
    assert checks.half_padding([3, 1, 1, 1]).solved


def kept(folder):
    path = folder / progress.FILE
    return json.loads(path.read_text())["solved"] if path.exists() else None


# The list.


def test_every_exercise_is_listed_once():
    assert sorted(one.name for one in EXERCISES) == sorted(checks.__all__)
    assert [one.notebook for one in EXERCISES] == sorted(one.notebook for one in EXERCISES)
    assert all(one.task for one in EXERCISES)


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda one: one.name)
def test_an_exercise_stands_in_the_notebook_that_it_names(exercise):
    assert f"checks.{exercise.name}(" in SOURCES[exercise.notebook]
    others = [stem for stem, text in SOURCES.items() if f"checks.{exercise.name}(" in text]
    assert others == [exercise.notebook]


def test_no_notebook_has_another_name():
    assert set(SOURCES) <= set(progress.NOTEBOOKS)
    assert [name[:2] for name in progress.NOTEBOOKS] == [f"{i:02d}" for i in range(len(progress.NOTEBOOKS))]


@pytest.mark.parametrize("notebook", SOURCES)
def test_a_notebook_takes_as_long_as_it_says(notebook):
    said = re.search(r"^# Time: (\d+) minutes\.", SOURCES[notebook], re.MULTILINE)
    assert progress.NOTEBOOKS[notebook][1] == (int(said[1]) if said else None)


@pytest.mark.parametrize("notebook", SOURCES)
def test_a_notebook_asks_at_its_head_what_the_list_says(notebook):
    asked = re.search(r"^# \*\*(.+)\*\*$", SOURCES[notebook], re.MULTILINE)
    assert asked
    assert progress.NOTEBOOKS[notebook][0] == asked[1]


def test_the_readme_asks_the_same_questions():
    asked = re.findall(
        r"^\| \[`(\w+)`\]\(\S+\) \| (.+?) \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert dict(asked) == {name: question for name, (question, _) in progress.NOTEBOOKS.items()}


@pytest.mark.parametrize("notebook", ["13", "0", "", "start"])
def test_an_exercise_of_a_notebook_that_is_not_there(notebook):
    with pytest.raises(ValueError, match=f"notebook is '{notebook}'; give a number from '00' to '12'"):
        exercise(notebook, "Half of it")(lambda answer: None)
    assert progress.exercises() == EXERCISES


def test_the_list_needs_nobody_to_name_the_exercises(here, monkeypatch):
    monkeypatch.setattr(progress, "_exercises", dict(progress._exercises))

    @exercise("03", "Six times `seven`")
    def product(answer):
        return Verdict(answer == 42, "So.")

    assert product.__doc__ == "Six times `seven` (notebook 03)."
    tasks = [one.task for one in progress.exercises() if one.notebook == "03_counting_flops"]
    assert tasks == [*(one.task for one in EXERCISES if one.notebook == "03_counting_flops"), "Six times `seven`"]
    assert "<code>seven</code>" in Overview().table.value
    product(42)
    assert kept(here) == ["product"]


# Keeping.


def test_a_solved_exercise_is_kept(here):
    assert progress.solved() == set()
    checks.half_padding([5, 5])
    assert kept(here) is None
    solve()
    assert kept(here) == ["half_padding"]
    assert progress.solved() == {"half_padding"}
    before = (here / progress.FILE).stat().st_mtime_ns
    solve()
    assert (here / progress.FILE).stat().st_mtime_ns == before  # not written again
    checks.batch_sizes(lambda lengths: [sum(n > t for n in lengths) for t in range(max(lengths))])
    assert progress.solved() == {"half_padding", "batch_sizes"}
    checks.half_padding([5, 5])  # tried again, and wrong: solved is solved
    assert progress.solved() == {"half_padding", "batch_sizes"}


@pytest.mark.parametrize("variable", ["PACKVIZ_STRICT", "CI"])
def test_not_in_strict_mode_and_not_in_ci(here, monkeypatch, variable):
    monkeypatch.setenv(variable, "1")
    solve()
    assert kept(here) is None


def test_not_outside_of_a_notebook(here, monkeypatch):
    monkeypatch.delitem(progress.sys.modules, "IPython")
    solve()
    monkeypatch.setitem(progress.sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    solve()
    assert kept(here) is None


def test_not_in_another_folder(here, monkeypatch):
    (here / "solutions").mkdir()
    (here / "solutions" / "00_start_here.ipynb").touch()
    (here / "elsewhere").mkdir()
    for folder in ("solutions", "elsewhere"):
        monkeypatch.chdir(here / folder)
        solve()
        assert progress.solved() == set()
        progress.reset()
        assert kept(here / folder) is kept(here) is None


def test_an_exercise_that_nobody_knows_is_not_kept(here):
    progress.note("somebody_elses")
    assert kept(here) is None


def test_where_it_cannot_be_written_nothing_is_in_the_way(here, monkeypatch):
    def refuse(*args):
        raise PermissionError("read-only")

    monkeypatch.setattr(progress.recorded, "save", refuse)
    solve()
    (here / progress.FILE).mkdir()  # nor can this be read, or removed
    assert progress.solved() == set()
    progress.reset()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"packviz": "progress", "version": 2, "solved": []}', "☠"])
def test_a_file_that_is_not_ours_is_as_good_as_none(here, content):
    (here / progress.FILE).write_text(content, encoding="utf-8")
    assert progress.solved() == set()
    solve()
    assert progress.solved() == {"half_padding"}


def test_a_folder_that_is_gone(here, monkeypatch):
    def gone():
        raise FileNotFoundError

    monkeypatch.setattr(progress.Path, "cwd", gone)
    solve()
    assert progress.solved() == set()


def test_reset(here):
    solve()
    progress.reset()
    assert kept(here) is None
    progress.reset()


# Showing.


def marks(overview):
    return re.findall("[✓○]", words(overview.table))


def press(button):
    button._handle_custom_msg({"event": "click"}, [])  # what the browser sends


def test_the_overview_follows(here):
    overview = Overview()
    assert marks(overview) == ["○"] * len(EXERCISES)
    assert words(overview.table).startswith(f"0 of {len(EXERCISES)} solved")
    solve()
    assert marks(overview)[0] == "✓"
    assert words(overview.table).startswith(f"1 of {len(EXERCISES)} solved")
    progress.recorded.save(here / progress.FILE, "progress", 1, {"solved": [one.name for one in EXERCISES]})
    assert marks(overview).count("✓") == 1  # another notebook's kernel has written it
    press(overview.again)
    assert marks(overview) == ["✓"] * len(EXERCISES)


def test_forgetting_takes_two_presses(here):
    solve()
    overview = Overview()
    press(overview.forget)
    assert kept(here) == ["half_padding"]
    assert overview.forget.description == "Press again to forget all"
    press(overview.again)
    assert overview.forget.description == "Forget all"
    press(overview.forget)
    press(overview.forget)
    assert kept(here) is None
    assert "✓" not in marks(overview)
    assert overview.forget.description == "Forget all"


def test_what_is_stored_does_not_depend_on_the_reader(here):
    def stored():
        bundle = Overview()._repr_mimebundle_()
        view = bundle.pop("application/vnd.jupyter.widget-view+json")
        assert set(view) == {"version_major", "version_minor", "model_id"}
        return bundle

    before = stored()
    solve()
    assert stored() == before
    assert set(before) == {"text/plain", "text/html"}
    assert "var(" not in before["text/html"]  # where it is stored it takes the colour of the page
    for text in before.values():
        assert not set("✓○") & set(text)
        assert "solved" not in text
    for one in EXERCISES:
        assert f'href="{one.notebook}.ipynb"' in before["text/html"] or one.notebook == "00_start_here"
        assert one.task in before["text/plain"]


def test_the_file_is_not_for_the_repository():
    assert progress.FILE in (ROOT / ".gitignore").read_text().splitlines()
