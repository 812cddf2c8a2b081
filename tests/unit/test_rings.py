"""Limits the size of the project, and keeps the library, its inner ring, small and without imports
from other rings.

`pytest -s tests/unit/test_rings.py` prints the sizes and the rings.
"""

import ast
import functools
import json
from pathlib import Path

HOUSE = Path(__file__).parents[2] / "packviz"
MOST = 3_000  # lines of code in the first ring, without blanks, comments and docstrings
SIZES = {
    "packviz: lines of code": 13_500,
    "packviz, tools and docs: lines of code": 15_500,
    "tests: lines of code": 15_000,
    "packviz: public classes": 130,
    "packviz and tools: lines of the longest module, in all": 600,
    "packviz and tools: lines of code of the longest body of a function": 40,
    "packviz: subpackages and single files": 14,
    "packviz: floors on which they stand": 7,
}
"""The limit for each size."""
# From the ground up: a subpackage or file imports only those on lower layers.
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
# What each ring is for. All that this imports belongs to the ring too, unless a ring further in has
# it.
RINGS = {
    "library": (
        "core/layout.py",
        "draw/picture.py",
        "count/flops.py",
        "check/compare.py",
        "ops/masks.py",
    ),
    "fast execution": ("ops",),
    "judging and measuring": ("check", "count", "measure", "studies", "cli.py", "__main__.py"),
    "teaching": ("lessons", "panels", "core", "draw"),
}

# Every verb of the library with every option, and everything that its results can draw and say.
LIBRARY = """
import io, itertools, json, pathlib, sys, tempfile, warnings
import numpy as np
import torch
import packviz as pv

warnings.simplefilter("ignore")
folder = pathlib.Path(tempfile.mkdtemp())


def use(result):
    result.to_text(), repr(result), result._repr_mimebundle_()
    for theme in ("light", "dark", "live"):
        result.to_svg(theme)
    for suffix in ("svg", "html", "txt"):
        result.save(folder / f"drawing.{suffix}")


lengths, many = [5, 3, 2], list(range(1, 60))
x = torch.arange(15.0).reshape(3, 5, 1)
packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
jagged = torch.nested.nested_tensor([torch.zeros(n, 2) for n in lengths], layout=torch.jagged)
sources = [(lengths,), (many,), (pv.Layout([2, 5]),), (pv.Layout.from_mask(np.tri(3)),), (packed,), (jagged,)]
sources += [(["abc", "x"],), ([[1, 2], [3]],), (x, lengths, True), (x.mT, [1, 1, 1], True), (x, [3] * 5, False)]
for source in sources:
    for indices, explain, flat in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 1)]:
        use(pv.show(*source, indices=indices, explain=explain, flat=flat))
use(pv.show([2, 1], names=["one", "two"]))

for rnn in (torch.nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2), torch.nn.GRU(3, 4), pv.Spec("RNN", 3, 4)):
    for batches in (lengths, pv.Layout(lengths), many, [lengths, [7, 1], [2]]):
        for input_grad in (False, True):
            use(pv.flops(rnn, batches, input_grad=input_grad))

x = torch.randn(3, 5, 3)
lstm = torch.nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True, dropout=0.5)
for rnn in (lstm, torch.nn.GRU(3, 4), torch.nn.RNN(3, 4)):
    batch = x if rnn.batch_first else x.transpose(0, 1)
    rows = rnn.num_layers * (1 + rnn.bidirectional)
    states = torch.ones(rows, 3, 4)
    for hx in (None, (states, states) if rnn.mode == "LSTM" else states):
        for gradients, tolerance in ((True, None), (False, 1e-3)):
            compared = pv.compare(rnn, batch, lengths, hx, gradients=gradients, tolerance=tolerance)
            use(compared)
            compared.verdict, compared.agrees.h_n, repr(compared.agrees), compared.needs_packing("outputs")
use(pv.compare(torch.nn.GRU(3, 4), torch.randn(60, 59, 3), many))

for reduction in ("mean", "sum", "sequence"):
    for batch_first in (True, False):
        pv.masked_loss(torch.rand(5, 5), [1, 2, 3, 4, 5], batch_first=batch_first, reduction=reduction)
mask = pv.real_mask(lengths, 5)
pv.real_mask(torch.tensor(lengths))
for to, source in itertools.product(["left", "right"], ["left", "right", None]):
    for check_padding in (None, 0):
        try:
            pv.align(x, lengths, padding_side=to, source_side=source, max_len=9, batch_first=True, padding_value=7,
                     check_padding=check_padding)
        except ValueError:  # `check_padding` found data there
            pass
    pv.align(x, mask, padding_side=to, batch_first=True)

print(json.dumps([module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "packviz"]))
"""


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def lines_of_code(path):
    """Returns the numbers of a file's lines of code, without blank lines, comments and docstrings."""
    documented, quoted, holders = (
        set(),
        set(),
        (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef),
    )
    for node in ast.walk(tree_of(path)):
        if isinstance(node, holders) and ast.get_docstring(node) is not None:
            documented |= {*range(node.body[0].lineno, node.body[0].end_lineno + 1)}
        if isinstance(node, ast.Constant | ast.JoinedStr):
            quoted |= {*range(node.lineno, node.end_lineno + 1)}
    lines = enumerate(map(str.strip, path.read_text(encoding="utf-8").splitlines()), start=1)
    return (
        {number for number, line in lines if line and not line.startswith("#")} | quoted
    ) - documented


def code_lines(path, function=None):
    """Counts the lines of code of a file, or of the body of one of its functions."""
    found = lines_of_code(path)
    return len(
        found & {*range(function.body[0].lineno, function.end_lineno + 1)} if function else found
    )


def sizes():
    """Returns `{what: (size, where)}` for each of the `SIZES`."""
    root, functions = HOUSE.parent, (ast.FunctionDef, ast.AsyncFunctionDef)
    files = {
        name: [*root.joinpath(name).rglob("*.py")] for name in ("packviz", "tools", "docs", "tests")
    }
    lines = {name: sum(map(code_lines, some)) for name, some in files.items()}
    ours = files["packviz"] + files["tools"]
    classes = [
        one.name
        for path in files["packviz"]
        for one in tree_of(path).body
        if isinstance(one, ast.ClassDef)
    ]
    bodies = [(code_lines(path, one), f"{path.stem}.{one.name}")
              for path in ours for one in ast.walk(tree_of(path)) if isinstance(one, functions)]  # fmt: skip
    floors = {room: floor_of(room) for room in arrows()}
    counted = (
        (lines["packviz"], ""),
        (sum(lines[name] for name in ("packviz", "tools", "docs")), ""),
        (lines["tests"], ""),
        (sum(not name.startswith("_") for name in classes), ""),
        max((len(path.read_text(encoding="utf-8").splitlines()), path.name) for path in ours),
        max(bodies),
        (len(floors), ""),
        (max(floors.values()), " ".join(sorted(floors, key=floors.get))),
    )
    return dict(zip(SIZES, counted, strict=True))


@functools.cache
def arrows():
    """Returns `{room: the rooms that it imports}`, where a room is a subpackage or a single file of packviz."""

    def room(path):
        return path.relative_to(HOUSE).parts[0].removesuffix(".py")

    found = {}
    for path in HOUSE.rglob("*.py"):
        # Python itself loads `packviz/__init__.py` before any other.
        others = {room(file) for file in imported(path) if file != HOUSE / "__init__.py"}
        found.setdefault(room(path), set()).update(others - {room(path)})
    return found


def floor_of(room, above=()):
    """Returns 1 for a room without imports, or one more than the highest floor that it imports."""
    assert room not in above, f"a circle: {' → '.join([*above, room])}"
    return 1 + max((floor_of(other, (*above, room)) for other in arrows()[room]), default=0)


@functools.cache
def imported(path):
    """Returns the files of packviz that a file imports, including imports inside its functions."""
    tree = tree_of(path)
    only_types = {
        node
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
        for statement in block.body
        for node in ast.walk(statement)
    }
    names = {".".join(path.relative_to(HOUSE.parent).parent.parts)}
    for node in {*ast.walk(tree)} - only_types:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    places = [
        HOUSE.parent.joinpath(*name.split("."))
        for name in names
        if name.partition(".")[0] == HOUSE.name
    ]
    packages = {
        parent
        for place in places
        for parent in [place, *place.parents]
        if parent.is_relative_to(HOUSE)
    }
    candidates = {place.with_suffix(".py") for place in places} | {
        package / "__init__.py" for package in packages
    }
    return {file for file in candidates if file.is_file()}


def closure(files):
    """Returns the files and everything that they import."""
    found, new = set(), set(files)
    while new:
        found |= new
        new = {file for path in new for file in imported(path)} - found
    return found


@functools.cache
def rings():
    """Returns `{ring: its files}`."""
    found, inside = {}, set()
    for ring, places in RINGS.items():
        files = {
            f
            for place in places
            for f in ([HOUSE / place] if "." in place else (HOUSE / place).rglob("*.py"))
        }
        found[ring] = closure(files) - inside
        inside |= found[ring]
    return found


def test_the_project_stays_small():
    found = sizes()
    print()
    print(
        *(
            f"{found[what][0]:8,} of {most:6,}  {what}  {found[what][1]}"
            for what, most in SIZES.items()
        ),
        sep="\n",
    )
    assert not [what for what, most in SIZES.items() if found[what][0] > most]


def test_imports_run_one_way():
    layer = {room: number for number, rooms in enumerate(LAYERS) for room in rooms}
    assert set(layer) == set(arrows())
    assert not [
        (room, to) for room, others in arrows().items() for to in others if layer[to] >= layer[room]
    ]


def test_the_library_can_be_read_in_an_evening():
    print()
    for number, (ring, files) in enumerate(rings().items(), start=1):
        print(
            f"{number} {ring:22} {sum(map(code_lines, files)):6,} lines of code in {len(files)} files"
        )
    library = rings()["library"]
    by_size = sorted(library, key=code_lines, reverse=True)
    print(
        *(
            f"{code_lines(file):8} {file.relative_to(HOUSE)}"
            for file in by_size
            if code_lines(file)
        ),
        sep="\n",
    )
    assert sum(map(code_lines, library)) <= MOST


def test_every_file_belongs_to_a_ring():
    assert set().union(*rings().values()) == {*HOUSE.rglob("*.py")}


def test_the_library_needs_nothing_of_the_other_rings(fork):
    """The imports above include lazy ones. Here, everything is also called."""
    done = fork(LIBRARY)
    assert done.returncode == 0, done.stderr
    loaded = {Path(file) for file in json.loads(done.stdout.splitlines()[-1])}
    assert loaded == rings()["library"]
