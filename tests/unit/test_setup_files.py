"""Compares the files that set up an environment with each other and with README."""

import os
import re
import subprocess
import tomllib
from html import unescape
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from habits import habit_since
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from packviz.lessons import checks

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
README = (ROOT / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
CONDA_NAMES = {"torch": "pytorch-cpu"}
SOURCES = {path.stem: path.read_text() for path in sorted(ROOT.glob("notebooks/source/*.py"))}


def requirements(*extras):
    """Returns the packages that packviz and these extras need, by name."""
    lines = list(PROJECT["dependencies"])
    for extra in extras:
        lines += PROJECT["optional-dependencies"][extra]
    parsed = map(Requirement, lines)
    return {each.name: each for each in parsed if each.name != "packviz" and not each.marker}


def pins():
    """Returns the versions in constraints.txt, by name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def conda_versions():
    """Returns the ranges in environment.yml, by name. Conda's `=2.4` means `==2.4.*`."""
    dependencies = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    ranges = {}
    for line in dependencies:
        name, text = re.fullmatch(r"([\w.-]+)(.*)", line).groups()
        ranges[name] = SpecifierSet(re.sub(r"^=([\d.]+)$", r"==\1.*", text))
    return ranges


def test_every_dependency_is_pinned_in_its_range():
    for name, requirement in requirements("lab", "site", "test").items():
        assert pins()[name] in requirement.specifier, name


def test_the_tests_run_on_the_pinned_versions():
    expected = pins()
    if "TORCH" in os.environ:  # set by `make test-torch`
        expected["torch"] = os.environ["TORCH"]
    installed = {name: Version(version(name)).public for name in expected}
    assert installed == expected


def test_conda_installs_what_the_notebooks_need_in_the_pinned_versions():
    ranges = conda_versions()
    for name in requirements("lab"):
        assert pins()[name] in ranges[CONDA_NAMES.get(name, name)], name
    for name in ranges.keys() & pins().keys():
        assert pins()[name] in ranges[name], name
    assert (ROOT / "binder/environment.yml").read_bytes() == (ROOT / "environment.yml").read_bytes()


@pytest.mark.parametrize(
    "name", ["binder/postBuild", "binder/start", ".ci/run", "tools/install.sh"]
)
def test_a_script_is_valid(name):
    script = ROOT / name
    subprocess.run(["bash", "-n", script], check=True)
    assert os.access(script, os.X_OK) or name.endswith(".sh")


def test_ci_runs_make_test():
    script = (ROOT / ".ci/run").read_text()
    assert script.endswith("\nmake test\n")
    assert "set -euo pipefail" in script
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    steps = workflow["jobs"]["test"]["steps"]
    assert "bash .ci/run" in [step.get("run") for step in steps]


def test_make_help_lists_every_target():
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split()
    documented = re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.MULTILINE)
    assert {*documented} == {*phony} - {"stale"}
    assert {*re.findall(r"`make ([a-z-]+)", README)} <= {*documented}


def test_readme_names_the_two_commands():
    (block,) = re.findall(r"^## Quick start\n.*?```sh\n(.*?)```", README, re.MULTILINE | re.DOTALL)
    commands = [line.split("  ")[0] for line in block.splitlines()]
    assert commands == ["make lab", "make test"]


def python_blocks():
    return re.findall(r"```python\n(import .*?)```", README, re.DOTALL)


def test_readmes_examples_run_one_after_the_other(fork):
    done = fork("".join(python_blocks()))
    assert done.returncode == 0, done.stderr
    (verdict,) = re.findall(r"\.verdict\)\n((?:# .+\n)+)", README)
    assert " ".join(line[2:] for line in verdict.splitlines()) in done.stdout


def test_readmes_bug_is_as_large_as_it_says(fork):
    (block,) = [block for block in python_blocks() if "h_padded" in block]
    (cure,) = re.findall(r"```python\n(packed = [^`]*padded[^`]*)```", README)
    commented = re.findall(r"  # (\d[\d.]+.*)\n", block + cure)
    assert fork(block + cure).stdout.splitlines() == commented
    assert commented[1] == "0.00"
    change, largest = commented[0].split(" of ")
    assert f"has moved by {change}, where no entry was larger than {largest}." in README


EXPORTS = """
import torch
import packviz as pv

batch = {"input": torch.randn(5, 2, 4), "lengths": torch.tensor([5, 3])}
dims = {"input": {0: torch.export.Dim("T")}, "lengths": None}
for lstm, names in {torch.nn.LSTM: ["input"], pv.LSTM: ["input", "lengths"]}.items():
    example, sizes = ({name: each[name] for name in names} for each in (batch, dims))
    options = {"dynamic_shapes": sizes, "dynamo": True, "verbose": False}
    graph = torch.onnx.export(lstm(4, 8), kwargs=example, **options).model.graph
    print(graph.inputs[0].shape, "→", graph.outputs[0].shape)
"""


@pytest.mark.slow
@habit_since("2.8")
def test_readme_shows_the_sizes_that_are_exported(fork):
    stated = re.findall(r"^.*LSTM\(4, 8\) +(\[.*)$", README, re.MULTILINE)
    assert fork(EXPORTS).stdout.splitlines() == stated


def test_readmes_riddle_has_the_answer_that_is_printed(fork):
    blocks = re.findall(r"```python\n(.*?)\n```", README, re.DOTALL)
    (at,) = [i for i, block in enumerate(blocks) if block.startswith("print(pv.diagnose")]
    call, *answer = blocks[at].split("\n# ")
    assert fork(f"{blocks[at - 1]}\n{call}").stdout.splitlines() == answer


def test_readme_is_short():
    assert len(re.sub(r"```.*?```", "", README, flags=re.DOTALL).split()) <= 1_000


def head_of(source):
    """Returns the question at the head of a notebook, and the time that it takes."""
    question = re.search(r"^# \*\*(.+)\*\*$", source, re.MULTILINE)[1]
    minutes = re.search(r"^# Time: (?:(\d+) minutes)?", source, re.MULTILINE)[1]
    return question, f"{minutes} min" if minutes else "as you like"


def test_the_tables_of_notebooks_state_what_their_heads_state():
    heads = {name: head_of(source) for name, source in SOURCES.items()}
    rows = re.findall(r"^(\d+)\. \[(.+)\]\(notebooks/(\w+)\.ipynb\)", README, re.MULTILINE)
    titles = {name: re.search(r"^# # (.+)$", SOURCES[name], re.MULTILINE)[1] for name in heads}
    assert rows == [(str(int(name[:2])), title, name) for name, title in titles.items()]
    table = r"^# \| \[?`(\w+)`(?:\]\(\1\.ipynb\))? \| (.+) \| (.+) \|$"
    rows = re.findall(table, SOURCES["00_start_here"], re.MULTILINE)
    assert rows == [(name, *head) for name, head in heads.items()]


def test_every_exercise_is_in_one_notebook():
    calls = {
        (name, stem)
        for stem, source in SOURCES.items()
        for name in re.findall(r"\bchecks\.(\w+)\(", source)
    }
    exercises = [name for name, value in vars(checks).items() if hasattr(value, "__wrapped__")]
    public = sorted(name for name in exercises if not name.startswith("_"))
    assert sorted(name for name, _ in calls) == public


def test_no_package_registry_is_written_down():
    """Which index serves packages is each machine's own affair; install.sh knows PyTorch's."""
    hosts = ["pypi" + ".org", "pythonhosted" + ".org", "anaconda" + ".org", "npmjs" + ".org"]
    listing = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
    files = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in files.strip("\0").split("\0"):
        path = ROOT / name
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        assert not [host for host in hosts if host in text], name


def test_every_page_repeats_the_ten_lines_of_page_01():
    pattern = r"sequences = \[torch.*?then loss\.backward\(\)"
    page_01 = SOURCES["01_why_pack"].splitlines()
    copies = [re.search(pattern, source, re.DOTALL)[0] for source in [*SOURCES.values()][2:]]
    for copy in map(unescape, copies):
        lines = re.sub("^# [ →] ", "", copy, flags=re.MULTILINE).splitlines()
        places = [page_01.index(line) for line in lines]
        assert len(places) == 10
        assert places == sorted(places)
    assert len(copies) == 14
