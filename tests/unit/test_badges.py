"""Checks the badges, and the cell of notebook 08 that installs packviz on Colab."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import badges

ROOT = Path(__file__).resolve().parents[2]


def colab_cell():
    notebook = json.loads((ROOT / badges.COLAB).read_text())
    return next(
        "".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"
    )


def copies(root):
    for name in badges.CELLS:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
        yield root / name


def test_three_badges_lead_to_the_copy():
    lines = badges.badges("me/copy.of-it")
    links = [re.fullmatch(r"\[!\[[^]]+\]\(https://\S+\)\]\((https://\S+)\)", x)[1] for x in lines]
    assert [link.split("/")[2] for link in links] == [
        "mybinder.org",
        "colab.research.google.com",
        "me.github.io",
    ]
    assert all("me" in link and "copy.of-it" in link for link in links)
    assert links[1].endswith(badges.COLAB)


def test_the_address_is_written_wherever_the_cell_is_and_can_be_written_again(tmp_path):
    paths = [*copies(tmp_path)]
    for repository in ("me/copy.of-it", "you/other"):
        badges.write_address(repository, tmp_path)
        for path in paths:
            assert path.read_text().count(f"https://github.com/{repository}") == 1
    assert "me/copy.of-it" not in paths[0].read_text()


def test_a_wrong_name_is_refused(capsys):
    for given in ([], ["name"], ["https://github.com/me/copy"]):
        assert badges.main(given) == 2
        assert "make badge REPO=owner/name" in capsys.readouterr().err


def test_the_cell_installs_only_where_packviz_is_missing(tmp_path):
    code = colab_cell()
    spy = "import subprocess; subprocess.run = lambda command, check: print(*command)\n"
    missing = "import importlib.util, os; importlib.util.find_spec = lambda name: None\n"
    missing += "os.chdir = print\n"
    for before, said in ((spy, 0), (spy + missing, 3)):
        done = subprocess.run(
            [sys.executable, "-c", before + code], capture_output=True, text=True, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == said
