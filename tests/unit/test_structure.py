"""Limits the size of the project, and checks that imports run one way.

`pytest -s tests/unit/test_structure.py` prints every size beside its limit. Size is counted in
nodes of the syntax tree, so it does not depend on how the lines are broken.
"""

import ast
import functools
import json
import re
import tomllib
from collections import Counter
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "packviz"
LIMITS = {
    "nodes of packviz": 143_000,
    "nodes of packviz that the everyday calls load": 33_000,
    "nodes of tests": 165_000,  # aim: 165,000
    "nodes of tools and docs": 15_000,
    "nodes of a statement, mean": 12,
    "nodes of a statement, nine in ten": 22,
    "bytes of TOML, JSON, JavaScript and CSS": 156_191,
    "classes": 133,
    "uses of Any": 250,
    "comments that silence mypy": 20,
    "assignments of several unrelated values": 60,
    "names that say nothing": 150,
    "file names that occur twice": 0,
    "distributions that the tests install": 145,
}
"""The most of each size. Where an aim is missed, the limit stands at what was reached."""
LAYERS = (
    {"core"},
    {"draw", "ops"},
    {"count", "check", "measure"},
    {"studies"},
    {"panels"},
    {"lessons"},
    {"__init__", "cli"},
    {"__main__"},
)
"""The subpackages and files of packviz. Each imports only from itself and from lower layers."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PACKVIZ = {"": PROJECT["dependencies"]} | PROJECT["optional-dependencies"]
"""The requirements of packviz itself, by extra."""
VAGUE = {"one", "found", "some", "many"}

EVERYDAY = """
import json, sys, warnings
import torch
import packviz as pv

warnings.simplefilter("ignore")
x = torch.randn(3, 5, 3)
lengths = [5, 3, 2]
lstm = torch.nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True)
packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
mask = pv.real_mask(lengths, 5)
results = [
    pv.show(lengths),
    pv.show(x, lengths, batch_first=True),
    pv.show(packed, indices=True),
    pv.flops(lstm, lengths),
    pv.compare(lstm, x, lengths),
]
for result in results:
    result.to_text(), repr(result), result._repr_mimebundle_()
pv.masked_loss(x[:, :, 0], lengths, batch_first=True)
pv.align(x, mask, padding_side="left", batch_first=True)
files = [module.__file__ for name, module in sys.modules.items() if name.startswith("packviz")]
print(json.dumps(files))
"""


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def python_files(*folders):
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def node_count(paths):
    return sum(sum(1 for _ in ast.walk(tree_of(path))) for path in paths)


def is_docstring(statement):
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def statement_size(statement):
    """Counts the nodes of a statement without those of the statements inside it."""
    parts = [part for part in ast.iter_child_nodes(statement) if not isinstance(part, ast.stmt)]
    return 1 + sum(map(statement_size, parts))


def is_pair_of_unrelated_values(node):
    """Says whether a node is an assignment such as `a, b = x, y`."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    targets = [target for target in node.targets if isinstance(target, ast.Tuple)]
    return any(len(target.elts) == len(node.value.elts) for target in targets)


def name_of(node):
    """Returns the name that a node uses or gives, or None."""
    for kind, attribute in (
        (ast.Name, "id"),
        (ast.Attribute, "attr"),
        (ast.arg, "arg"),
        (ast.keyword, "arg"),
    ):
        if isinstance(node, kind):
            return getattr(node, attribute)
    return None


def installed_with(extra):
    """Returns the names of the distributions that an extra of packviz installs."""
    seen = set()
    waiting = [("packviz", extra)]
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        try:
            lines = PACKVIZ[wanted] if name == "packviz" else requires(name) or []
        except PackageNotFoundError:  # a requirement of another platform
            continue
        for requirement in map(Requirement, lines):
            # On Python 3.12 alone, papermill brings seven more.
            environment = {"extra": wanted, "python_version": "3.11"}
            applies = not requirement.marker or requirement.marker.evaluate(environment)
            if applies:
                key = re.sub(r"[-_.]+", "-", requirement.name).lower()
                waiting += [(key, chosen) for chosen in ("", *requirement.extras)]
    # A build of torch for CUDA brings a dozen more, which are not ours to choose.
    return {name for name, _ in seen if not re.match("nvidia|cuda|triton", name)}


def loaded_files(fork):
    done = fork(EVERYDAY)
    assert done.returncode == 0, done.stderr
    return [Path(path) for path in json.loads(done.stdout.splitlines()[-1])]


def sizes(fork):
    """Returns the size of everything that `LIMITS` lists."""
    package = python_files("packviz")
    nodes = [node for path in package for node in ast.walk(tree_of(path))]
    statements = [node for node in nodes if isinstance(node, ast.stmt) and not is_docstring(node)]
    own = sorted(map(statement_size, statements))
    data = [
        path.stat().st_size
        for folder in ("packviz", "docs")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".toml", ".json", ".js", ".css")
    ]
    names = [name_of(node) for node in nodes]
    sources = "\n".join(path.read_text(encoding="utf-8") for path in package)
    file_names = Counter(path.name for path in package if path.name != "__init__.py")
    return {
        "nodes of packviz": len(nodes),
        "nodes of packviz that the everyday calls load": node_count(loaded_files(fork)),
        "nodes of tests": node_count(python_files("tests")),
        "nodes of tools and docs": node_count(python_files("tools", "docs")),
        "nodes of a statement, mean": sum(own) / len(own),
        "nodes of a statement, nine in ten": own[len(own) * 9 // 10],
        "bytes of TOML, JSON, JavaScript and CSS": sum(data),
        "classes": sum(isinstance(node, ast.ClassDef) for node in nodes),
        "uses of Any": len(re.findall(r"\bAny\b", sources)),
        "comments that silence mypy": len(re.findall(r"# type: ignore", sources)),
        "assignments of several unrelated values": sum(map(is_pair_of_unrelated_values, nodes)),
        "names that say nothing": sum(name in VAGUE for name in names),
        "file names that occur twice": sum(count > 1 for count in file_names.values()),
        "distributions that the tests install": len(installed_with("test")),
    }


def test_the_project_stays_small(fork):
    measured = sizes(fork)
    print()
    for what, limit in LIMITS.items():
        print(f"{measured[what]:10,.10g} of {limit:8,}  {what}")
    assert not [what for what, limit in LIMITS.items() if measured[what] > limit]


def imported_modules(path):
    """Returns the modules that a file imports, but not those that it imports for type checkers."""
    names = set()
    waiting = [tree_of(path)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        waiting += ast.iter_child_nodes(node)
    return names


def test_imports_run_one_way():
    layer_of = {name: number for number, names in enumerate(LAYERS) for name in names}
    for path in python_files("packviz"):
        place = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for module in imported_modules(path):
            package, _, rest = module.partition(".")
            target = rest.split(".")[0]
            if package == "packviz" and target in layer_of and target != place:
                assert layer_of[target] < layer_of[place], f"{path} imports {module}"
