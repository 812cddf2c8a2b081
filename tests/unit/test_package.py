"""Tests the package as a whole: its import, its names, its requirements and its files."""

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import packviz as pv
from packviz.core.system import packviz_version

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "packviz"
SOURCES = {
    path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(PACKAGE.rglob("*.py"))
}
HEAVY = {"torch", "plotly", "ipywidgets", "anywidget", "IPython"}
CHARTS = "draw/figures.py"
SUBMODULES = ["batches", "draw", "lengths", "panels"]
ONLY_LENGTHS = """
import packviz as pv

pv.Layout([1])
for drawing in (pv.show([3, 2]), pv.draw.Scores([3, 2]), pv.flops(pv.Spec("GRU", 3, 7), [3, 2])):
    drawing.to_svg()
"""
ONLY_TENSORS = """
import sys
import torch
import packviz as pv

x = torch.ones(3, 2, 4)
pv.align(x, [3, 2])
pv.run(torch.nn.GRU(4, 5), x, [3, 2])
pv.real_mask([3, 2])
print(*sys.modules)
"""
WITHOUT_WIDGETS = """
import importlib, sys

sys.modules["anywidget"] = None  # as Python records a module that cannot be imported
for package in ("panels", "lessons"):
    try:
        importlib.import_module(f"packviz.{package}")
    except ModuleNotFoundError as error:
        print(error)
"""


def output_of(code):
    """Returns what a new interpreter prints."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def imported_by(code):
    return set(output_of(f"{code}\nimport sys; print(*sys.modules)").split())


def subpackages(modules):
    return {name.split(".")[1] for name in modules if name.startswith("packviz.")}


# What an import brings


def test_importing_packviz_imports_nothing_else():
    modules = imported_by("import packviz; packviz.__version__")
    assert not (HEAVY | {"numpy"}) & modules
    assert subpackages(modules) == {"core"}


def test_core_and_draw_need_only_numpy():
    paths = [path for path in SOURCES if path.startswith(("core/", "draw/")) and path != CHARTS]
    modules = [f"packviz.{path.removesuffix('.py').replace('/', '.')}" for path in paths]
    imports = "\n".join(f"import {module.removesuffix('.__init__')}" for module in modules)
    assert not HEAVY & imported_by(imports)


def test_what_has_only_lengths_needs_only_numpy():
    modules = imported_by(ONLY_LENGTHS)
    assert not HEAVY & modules
    assert subpackages(modules) <= {"core", "draw", "count"}


def test_what_has_only_tensors_needs_core_and_ops(fork):
    assert subpackages(fork(ONLY_TENSORS).stdout.split()) == {"core", "ops"}


def test_the_command_needs_only_numpy():
    assert not HEAVY & imported_by("from packviz.cli import main; main(['show', '3', '2'])")


def test_without_widgets_panels_and_lessons_say_what_to_install():
    advice = "panels and lessons need anywidget: python -m pip install anywidget\n"
    assert output_of(WITHOUT_WIDGETS) == 2 * advice


def users_of(libraries):
    """Returns the files that import one of some libraries, at any place."""
    importing = re.compile(rf"^ *(?:from|import) (?:{libraries})\b", re.MULTILINE)
    return {path for path, source in SOURCES.items() if importing.search(source)}


def test_only_panels_and_lessons_know_widgets_and_one_file_knows_plotly():
    users = users_of("ipywidgets|anywidget|traitlets")
    assert {path.split("/")[0] for path in users} == {"panels", "lessons"}
    assert users_of("plotly") == {CHARTS}


# Names


def stub(path):
    """Returns the names that a type checker and an editor see, with their modules."""
    tree = ast.parse((PACKAGE / path).read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname: node.module for node in imports for alias in node.names}


def test_every_public_name_is_there():
    names = stub("__init__.pyi")
    assert [*pv.__all__, *SUBMODULES] == sorted(pv.__all__) + sorted(SUBMODULES)
    assert {*names} == {*pv.__all__, *SUBMODULES}
    for name in pv.__all__:
        assert getattr(pv, name).__module__ == names[name], name
    assert {*names, "__version__"} <= {*dir(pv)}
    for name, module in stub("draw/__init__.pyi").items():
        assert getattr(pv.draw, name).__module__ == module


def test_the_version_is_that_of_the_installed_package():
    assert pv.__version__ == (packviz_version() or "0+unknown")


def test_a_misspelt_name_gets_a_suggestion():
    with pytest.raises(AttributeError, match="no attribute 'Layuot'; did you mean 'Layout'"):
        _ = pv.Layuot
    with pytest.raises(AttributeError, match=r"no attribute 'something_else'$"):
        _ = pv.something_else


OTHER_SPELLINGS = {
    "lengths": {"lens", "seq_lens", "sizes"},
    "max_len": {"max_length", "maxlen", "padded_length", "width"},
    "total_length": {"to_length", "target_length"},
    "batch_first": {"first", "time_major"},
    "padding_value": {"pad_value", "fill_value"},
    "budget": {"seconds", "timeout", "time_limit"},
    "threads": {"num_threads", "n_threads"},
    "seed": {"random_state", "rng"},
    "theme": {"mode_of_colour", "dark"},
}


@pytest.mark.parametrize("name", sorted(pv.__all__))
def test_an_argument_has_one_spelling_everywhere(name):
    names = {*inspect.signature(getattr(pv, name)).parameters}
    for concept, others in OTHER_SPELLINGS.items():
        assert not names & others, f"call it {concept}"


# Files


def test_everything_that_is_not_python_is_shipped():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["packviz"]
    shipped = {path for pattern in patterns for path in PACKAGE.glob(pattern)}
    data = {
        path
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts
    }
    assert data == shipped
    assert all(any(PACKAGE.glob(pattern)) for pattern in patterns)
    # setuptools leaves out a folder without __init__.py, and its data.
    assert all((PACKAGE / path).with_name("__init__.py").exists() for path in SOURCES)


def test_what_runs_in_a_page_asks_nobody_else():
    for script in PACKAGE.rglob("*.js"):
        source = script.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|\bimport\b|\bfetch\b", source)


def nodes_of(path, kind):
    return [node for node in ast.walk(ast.parse(SOURCES[path])) if isinstance(node, kind)]


def test_no_file_that_is_read_can_run_code():
    """NumPy refuses pickled objects by itself, unless `allow_pickle` is given."""
    for path, source in SOURCES.items():
        # The processes of page 12 hand each other what they found in a folder only they know.
        if not path.startswith("studies/"):
            assert not re.search(r"^ *(?:import|from) (?:pickle|joblib)\b", source, re.MULTILINE)
        for call in map(ast.unparse, nodes_of(path, ast.Call)):
            assert "allow_pickle=True" not in call, path
            assert not call.startswith("torch.load(") or "weights_only=True" in call, path


def test_torchs_packing_functions_are_reached_in_one_place():
    """`pv.patch_torch` may have replaced them elsewhere, and an oracle must be torch's own."""
    for path in {*SOURCES} - {"ops/original.py", "ops/patching.py"}:
        for node in nodes_of(path, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            assert node.module != "torch.nn.utils.rnn" or names <= {
                "PackedSequence",
                "pad_sequence",
            }, path
            assert node.module != "torch.nn.utils" or "rnn" not in names, path
        for node in nodes_of(path, ast.Attribute):
            assert not ast.unparse(node).startswith(("nn.utils.rnn.", "torch.nn.utils.rnn.")), path
