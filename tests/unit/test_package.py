"""Tests the package as a whole: the time to import it, its names, its requirements and its files."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import packviz as pv
from packviz.core.machine import own_version

ROOT = Path(__file__).parents[2]
HOUSE = ROOT / "packviz"
HEAVY = {"torch", "plotly", "ipywidgets", "anywidget", "IPython"}
# What `show`, `flops` and `align` stand on, and all that can be drawn or counted without a tensor.
CHARTS = "draw/figures.py"  # but for this one
PURE = ("core", "draw", "count/flops.py", "check/findings.py")


def fresh(code):
    """Returns what a new interpreter prints."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout


def imported_by(code):
    return set(fresh(f"{code}\nimport sys; print(*sys.modules)").split())


def test_import_brings_nothing_along():
    modules = imported_by("import packviz")
    assert not (HEAVY | {"numpy"}) & modules
    assert {name for name in modules if name.startswith("packviz")} == {"packviz"}


def files_of(*places):
    """Returns the Python files in these subpackages, and these files."""
    found = [
        file
        for place in places
        for file in ([HOUSE / place] if "." in place else (HOUSE / place).rglob("*.py"))
    ]
    assert all(map(Path.exists, found)), places
    return sorted({*found} - {HOUSE / CHARTS})


def module_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_pure_modules_bring_only_numpy():
    modules = [module_of(path) for path in files_of(*PURE)]
    code = f"""import importlib, sys
for module in {modules}:
    importlib.import_module(module)
    if brought := {HEAVY} & set(sys.modules):
        sys.exit(f"{{module}} brings {{brought}}")"""
    fresh(code)


def test_what_only_needs_lengths_stays_on_the_lowest_floors():
    verbs = (
        "pv.show([3, 2], flat=True), pv.draw.Scores([3, 2]), pv.flops(pv.Spec('GRU', 3, 7), [3, 2])"
    )
    modules = imported_by(
        f"import packviz as pv; pv.Layout([1]); [drawing.to_svg() for drawing in ({verbs})]"
    )
    assert not HEAVY & modules
    assert {name.split(".")[1] for name in modules if name.startswith("packviz.")} <= {
        "core",
        "draw",
        "count",
    }


def test_what_needs_tensors_stands_on_core_and_ops_alone(fork):
    verbs = "pv.align(x, [3, 2]); pv.run(torch.nn.GRU(4, 5), x, [3, 2]); pv.real_mask([3, 2])"
    done = fork(
        f"import sys, torch, packviz as pv; x = torch.ones(3, 2, 4); {verbs}; print(*sys.modules)"
    )
    brought = {name.split(".")[1] for name in done.stdout.split() if name.startswith("packviz.")}
    assert brought == {"core", "ops"}


def test_the_command_brings_only_numpy():
    assert not HEAVY & imported_by("from packviz.cli import main; main(['show', '3', '2'])")


def test_panels_wait_with_torch_until_it_is_needed():
    assert "torch" not in imported_by("from packviz.panels import PaddingPanel; PaddingPanel()")


MODULES = ["batches", "draw", "panels", "lengths"]


def stub():
    """Returns the names that a type checker and an editor see, as `{name: (module, name there)}`."""
    tree = ast.parse((HOUSE / "__init__.pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname: (node.module, alias.name) for node in imports for alias in node.names}


def test_every_public_name_is_there():
    """`__init__.py` reads the stub line by line; Python's own parser must find the same."""
    for name, (module, original) in stub().items():
        assert name == original
        exec(f"from {module} import {name}", found := {})
        assert getattr(pv, name) is found[name]
        assert name in dir(pv)
    assert sorted([*pv.__all__, *MODULES]) == sorted(stub())
    assert list(pv.__all__) == sorted(pv.__all__)


def test_version():
    """A checkout that is not installed has a version that sorts before all others."""
    assert pv.__version__ == (own_version() or "0+unknown")
    assert "__version__" in dir(pv)
    brought = imported_by("import packviz; packviz.__version__")
    assert not (HEAVY | {"numpy"}) & brought


def test_a_name_that_is_not_there_gets_help():
    offered = ", ".join([*pv.__all__, *MODULES])
    with pytest.raises(
        AttributeError, match=f"'packviz' has no attribute 'Layuot'; it offers {offered}$"
    ):
        _ = pv.Layuot


def test_what_only_draws_lives_in_one_module():
    assert len([name for name in dir(pv) if name[0].islower()]) <= 26
    assert {"Aligned", "Attention", "Scores", "Stairs", "Strips"} <= set(dir(pv.draw))
    for name in dir(pv.draw):
        assert getattr(pv.draw, name).__module__.startswith("packviz.draw.")
    with pytest.raises(
        AttributeError, match=r"'packviz.draw' has no attribute 'Stair'; it offers Aligned"
    ):
        _ = pv.draw.Stair


def test_panels_without_widgets_say_what_to_install():
    said = fresh("""import importlib, sys
for missing in ("ipywidgets", "anywidget"):
    sys.modules[missing] = None  # as Python has it: what cannot be imported
    for package in ("panels", "lessons"):
        try:
            importlib.import_module(f"packviz.{package}")
        except ModuleNotFoundError as error:
            print(error)""")
    one, both = (f"panels and lessons need {' and '.join(names)}: python -m pip install {' '.join(names)}\n"
                 for names in (["ipywidgets"], ["anywidget", "ipywidgets"]))  # fmt: skip
    assert said == one + one + both + both


# Who imports what.


def users_of(*libraries, at="^ *"):
    """Returns the files that import one of these libraries in a line with this beginning."""
    importing = re.compile(rf"{at}(?:from|import) (?:{'|'.join(libraries)})\b", re.M)
    files = [
        path for path in HOUSE.rglob("*.py") if importing.search(path.read_text(encoding="utf-8"))
    ]
    return {path.relative_to(HOUSE).as_posix() for path in files}


def test_only_panels_and_lessons_know_widgets():
    at_once = users_of("ipywidgets", "anywidget", "traitlets", at="^")
    assert {path.split("/")[0] for path in at_once} == {"panels", "lessons"}
    assert users_of("ipywidgets", "anywidget", "traitlets", at="^ +") == {"draw/drawing.py"}


def test_one_file_knows_plotly():
    assert users_of("plotly") == {CHARTS}


# The files.


def test_everything_that_is_not_python_is_shipped():
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
        "package-data"
    ]["packviz"]
    shipped = {path for pattern in patterns for path in HOUSE.glob(pattern)}
    other = {
        p
        for p in HOUSE.rglob("*")
        if p.is_file() and p.suffix != ".py" and "__pycache__" not in p.parts
    }
    assert other <= shipped
    # find_packages passes over a folder without __init__.py, and so do its data.
    assert [
        path for path in HOUSE.rglob("*.py") if not (path.parent / "__init__.py").exists()
    ] == []
    used = {pattern for pattern in patterns if not any(HOUSE.glob(pattern))}
    assert not used, "patterns that match nothing"


def test_what_runs_in_the_page_asks_nobody_else():
    for script in HOUSE.rglob("*.js"):
        assert not re.search(r"https?://|\bimport\b|\bfetch\b", script.read_text(encoding="utf-8"))
