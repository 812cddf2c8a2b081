"""Checks the badges, and the cell of notebook 08 that installs packviz on Colab."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = "notebooks/08_benchmark.ipynb"
CELLS = ("notebooks/source/08_benchmark.py", PAGE, "notebooks/solutions/08_benchmark.ipynb")


@pytest.fixture
def copy(tmp_path):
    """Returns a folder with copies of the files that contain the cell."""
    for name in CELLS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def make_badges(folder, *arguments):
    """Runs the script in a folder."""
    command = ["sh", ROOT / "tools" / "badges.sh", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_three_badges_lead_to_the_copy(copy):
    lines = make_badges(copy, "me/copy.of-it").stdout.splitlines()
    links = [re.fullmatch(r"\[!\[[^]]+\]\(https://\S+\)\]\((https://\S+)\)", x)[1] for x in lines]
    hosts = [link.split("/")[2] for link in links]
    assert hosts == ["mybinder.org", "colab.research.google.com", "me.github.io"]
    assert all("me" in link and "copy.of-it" in link for link in links)
    assert links[1].endswith(PAGE)


def test_the_address_is_written_wherever_the_cell_is_and_can_be_written_again(copy):
    for repository in ("me/copy.of-it", "you/other"):
        assert make_badges(copy, repository).returncode == 0
        for name in CELLS:
            content = (copy / name).read_text()
            assert content.count(f"https://github.com/{repository}") == 1
            original = (ROOT / name).read_text()
            address = r"https://github\.com/[\w.-]+/[\w.-]+(?=\W+ # your copy)"
            assert re.sub(address, "", content) == re.sub(address, "", original)


@pytest.mark.parametrize("given", [[], [""], ["name"], ["https://github.com/me/copy"], ["a/b|c"]])
def test_a_wrong_name_is_refused(copy, given):
    done = make_badges(copy, *given)
    assert done.returncode == 2
    assert "make badge REPO=owner/name" in done.stderr
    assert (copy / PAGE).read_text() == (ROOT / PAGE).read_text()


def test_the_cell_installs_only_where_packviz_is_missing(tmp_path):
    notebook = json.loads((ROOT / PAGE).read_text())
    first, *_ = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    spy = "import subprocess; subprocess.run = lambda command, check: print(*command)\n"
    missing = "import importlib.util, os; importlib.util.find_spec = lambda name: None\n"
    missing += "os.chdir = print\n"
    for before, number_of_calls in ((spy, 0), (spy + missing, 3)):
        command = [sys.executable, "-c", before + "".join(first["source"])]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == number_of_calls
