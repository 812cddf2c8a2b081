"""The package as a whole: fast to import, open about what it offers, and with arrows that run one way."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import packviz as pv

ROOT = Path(__file__).parents[2]
HOUSE = ROOT / "packviz"
HEAVY = {"torch", "plotly", "ipywidgets", "anywidget", "IPython"}
PURE = {"layout", "palette", "text", "svg", "lengths", "theme", "bars", "cost", "textbook", "drawn", "grids", "curves"}
PURE |= {"axes", "buckets", "findings", "flowchart", "graphs", "stairs", "sweeps"}


def fresh(code):
    """What a new interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def imported_by(code):
    return set(fresh(f"{code}\nimport sys; print(*sys.modules)").split())


def test_import_is_fast():
    code = "import time; start = time.perf_counter(); import packviz; print(time.perf_counter() - start)"
    assert min(float(fresh(code)) for _ in range(3)) < 0.2


def test_import_brings_nothing_along():
    modules = imported_by("import packviz")
    assert not (HEAVY | {"numpy"}) & modules
    assert {name for name in modules if name.startswith("packviz")} == {"packviz"}


@pytest.mark.parametrize("module", sorted(PURE))
def test_pure_modules_bring_only_numpy(module):
    assert not HEAVY & imported_by(f"import packviz.{module}")


def test_show_and_the_command_bring_only_numpy():
    assert not HEAVY & imported_by("import packviz as pv; pv.show([3, 2]).to_svg(); pv.Layout([1])")
    assert not HEAVY & imported_by("from packviz.cli import main; main(['show', '3', '2'])")


def test_explorers_wait_with_torch_until_it_is_needed():
    assert "torch" not in imported_by("from packviz.explorers import PaddingExplorer; PaddingExplorer()")


def test_every_public_name_is_there():
    for name in pv.__all__:
        assert getattr(pv, name) is not None
        assert name in dir(pv)
        assert getattr(pv, name) is getattr(importlib.import_module(pv._HOME[name]), name)
    assert set(pv._HOME) == set(pv.__all__)
    assert list(pv.__all__) == sorted(pv.__all__)


def test_public_names_survive_the_import_of_any_module():
    """A module of a public name's name would take its place."""
    assert not {path.stem for path in HOUSE.iterdir()} & set(pv.__all__)


def test_star_import():
    assert fresh("from packviz import *; print(Layout([3, 2]), show.__name__)").endswith("real show\n")


def test_a_name_that_is_not_there_gets_help():
    offered = ", ".join(pv.__all__)
    with pytest.raises(AttributeError, match=f"'packviz' has no attribute 'Layuot'; it offers {offered}$"):
        _ = pv.Layuot


@pytest.mark.parametrize("package", ["explorers", "figures", "lessons"])
def test_every_name_of_a_subpackage_is_there(package):
    module = importlib.import_module(f"packviz.{package}")
    assert all(hasattr(module, name) for name in module.__all__)


# Who imports whom.


def imports(path):
    """`{(module, lazy)}` every import of a file; lazy if it stands in a function. Names of ours in full."""
    found = set()

    def visit(node, lazy):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if isinstance(node, ast.Import):
            found.update((alias.name, lazy) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: say the whole name"
            # `from packviz import svg` is an import of packviz.svg.
            found.update((f"packviz.{a.name}" if node.module == "packviz" else node.module, lazy) for a in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child, lazy or isinstance(node, ast.FunctionDef))

    visit(ast.parse(path.read_text(encoding="utf-8")), False)
    return found


def ours(name, lazy=None):
    """The parts of the house that a module or a package of it imports: `{"layout", "svg", …}`."""
    files = HOUSE.joinpath(name).rglob("*.py") if HOUSE.joinpath(name).is_dir() else [HOUSE / f"{name}.py"]
    found = {
        m.split(".")[1] for f in files for m, late in imports(f) if m.startswith("packviz.") and lazy in (None, late)
    }
    return found - {name}


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("layout", set()),
        ("palette", set()),
        ("theme", set()),
        ("text", {"layout"}),
        ("svg", {"layout", "palette", "text"}),
        ("lengths", {"layout"}),
        ("bars", {"layout", "palette", "svg", "text"}),
        ("cost", {"bars", "drawn", "layout", "svg", "text"}),
        ("textbook", {"drawn", "layout", "palette", "svg", "text"}),
        (
            "bench",
            {"buckets", "cost", "drawn", "fast", "graphs", "layout", "lengths", "networks", "ops", "palette", "svg"}
            | {"quiet", "sweeps"},
        ),
        ("axes", set()),
        ("buckets", {"layout"}),
        (
            "advice",
            {"bars", "bench", "buckets", "cost", "drawn", "fast", "layout", "lengths", "states", "svg", "text"},
        ),
        ("sweeps", {"axes", "drawn", "palette", "svg"}),
        ("ops", set()),
        ("fast", set()),
        ("aligned", {"drawn", "layout", "palette", "svg", "text"}),
        ("drawn", set()),
        ("picture", {"drawn", "layout", "text", "svg"}),
        ("grids", {"palette", "svg", "text"}),
        ("curves", {"axes", "drawn", "grids", "palette", "svg", "text"}),
        ("states", {"curves", "drawn", "grids", "layout", "text"}),
        ("truth", {"drawn", "grids", "layout", "states", "text"}),
        ("findings", {"drawn", "palette", "svg", "text"}),
        ("mistakes", {"drawn", "findings", "layout", "palette", "quiet", "svg", "text"}),
        ("quiet", set()),
        ("flowchart", {"drawn", "palette", "svg"}),
        ("staticflow", set()),
        ("staticgraph", {"findings", "flowchart", "staticflow"}),
        ("networks", {"fast"}),
        ("graphs", {"drawn", "palette", "svg", "text"}),
        ("stairs", {"axes", "bars", "drawn", "fast", "layout", "palette", "svg", "text"}),
    ],
)
def test_the_core_imports_only_what_is_below_it(name, allowed):
    assert ours(name) <= allowed


@pytest.mark.parametrize(
    ("name", "above"),
    [
        ("figures", {"explorers", "lessons", "cli"}),
        ("explorers", {"lessons", "cli"}),
        ("lessons", {"cli"}),
    ],
)
def test_arrows_run_one_way(name, above):
    assert not ours(name) & above


def test_nothing_below_knows_explorers_or_lessons():
    names = {path.relative_to(HOUSE).parts[0].removesuffix(".py") for path in HOUSE.rglob("*.py")}
    names -= {"explorers", "lessons", "__init__"}
    assert [name for name in names if ours(name) & {"explorers", "lessons"}] == []


def users_of(*libraries, lazy=None):
    return {
        path.relative_to(HOUSE).as_posix()
        for path in HOUSE.rglob("*.py")
        for module, late in imports(path)
        if module.split(".")[0] in libraries and lazy in (None, late)
    }


def test_only_explorers_and_lessons_know_widgets():
    at_once = users_of("ipywidgets", "anywidget", "traitlets", lazy=False)
    assert {path.split("/")[0] for path in at_once} == {"explorers", "lessons"}
    assert users_of("ipywidgets", "anywidget", "traitlets", lazy=True) == {"drawn.py"}


def test_only_figures_know_plotly():
    assert {path.split("/")[0] for path in users_of("plotly")} == {"figures"}


def test_the_core_never_needs_torch():
    core = {f"{name}.py" for name in PURE | {"__init__", "picture", "cli"}}
    assert not users_of("torch") & core


# The files.


def test_everything_that_is_not_python_is_shipped():
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["packviz"]
    shipped = {path for pattern in patterns for path in HOUSE.glob(pattern)}
    other = {p for p in HOUSE.rglob("*") if p.is_file() and p.suffix != ".py" and "__pycache__" not in p.parts}
    assert other <= shipped
    used = {pattern for pattern in patterns if not any(HOUSE.glob(pattern))}
    assert not used, "patterns that match nothing"


def test_what_runs_in_the_page_asks_nobody_else():
    for script in HOUSE.rglob("*.js"):
        assert not re.search(r"https?://|\bimport\b|\bfetch\b", script.read_text(encoding="utf-8"))
