"""The private names of torch: in one file, and without any of them every result is as before."""

import ast
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz.bench.machine import peak
from packviz.check import networks
from packviz.count import profile
from packviz.ops import private
from packviz.ops.running import METHODS

HOUSE = Path(pv.__file__).parent
ONE_FILE = HOUSE / "ops/private.py"
# Functions that torch has without documenting them, and those of a namespace full of such.
KERNELS = ("torch.lstm", "torch.gru", "torch.rnn_tanh", "torch.rnn_relu")
UNDOCUMENTED = (*KERNELS, "torch.mkldnn_rnn_layer", "torch.ops.aten.")
# Of others than torch.
PUBLIC = {"_asdict", "_replace", "_make", "_getframe", "_exit", "_repr_mimebundle_", "_grid_ref"}


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def trees():
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(HOUSE.rglob("*.py"))}


def names_of_ours(found):
    """Private names that are made in packviz: no names of torch."""
    for node in (node for tree in found.values() for node in ast.walk(tree)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def uses(tree):
    """What a file takes from elsewhere: `(line, name in full, its parts)` of attributes, imports and strings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.lineno, ast.unparse(node), [node.attr]
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = (".".join(filter(None, [getattr(node, "module", ""), one.name])) for one in node.names)
            yield from ((node.lineno, name, name.split(".")) for name in names)


def strings(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def test_no_other_file_names_what_is_private_in_torch():
    found = trees()
    one = found.pop(ONE_FILE)
    ours = {*names_of_ours(found)} | PUBLIC
    strangers = [
        f"{path.relative_to(HOUSE)}:{line}: {name}"
        for path, tree in found.items()
        for line, name, parts in uses(tree)
        if name.startswith(UNDOCUMENTED) or any(is_private(part) and part not in ours for part in parts)
    ]
    said = {text for _, text in strings(one) if is_private(text) or "._" in text}
    strangers += [
        f"{path.relative_to(HOUSE)}:{line}: {text!r}"
        for path, tree in found.items()
        for line, text in strings(tree)
        if text in said
    ]
    assert strangers == []


class Without:
    """A module in which one name is not to be found."""

    def __init__(self, real, path):
        self._real, self._first, self._rest = real, *path.partition(".")[::2]

    def __getattr__(self, name):
        if name == self._first and not self._rest:
            raise AttributeError(f"this torch has no {name}")
        value = getattr(self._real, name)
        return Without(value, self._rest) if name == self._first else value


def private_paths():
    """The names of torch in the one file, but for those that only single objects have."""
    tree = ast.parse(ONE_FILE.read_text(encoding="utf-8"))
    paths = {name for _, name, _ in uses(tree) if name.split(".")[0] in ("torch", "nn", "forward_ad")}
    found = {path for path in paths if path.startswith(UNDOCUMENTED) or any(map(is_private, path.split(".")))}
    return sorted(found | set(KERNELS) - {"torch.utils._python_dispatch"})


GONE = private_paths()


@pytest.fixture(params=GONE)
def gone(request, monkeypatch):
    """A torch that lacks one name."""
    root, _, path = request.param.partition(".")
    monkeypatch.setattr(private, root, Without(getattr(private, root), path))
    return request.param


LENGTHS = [4, 7, 1, 4, 6]


def batch(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(7, 5, 3, generator=generator, dtype=dtype)


def exact(rnn, call, lengths=LENGTHS):
    """Whether a call gives what packing, the RNN and padding give, and the gradients of that."""
    both = []
    for run in (call, packed):
        x = batch(next(rnn.parameters()).dtype).requires_grad_()
        out, final = run(rnn, x, lengths)
        results = [out, *(final if isinstance(final, tuple) else (final,))]
        loss = sum((t * (1 + i)).square().sum() for i, t in enumerate(results))
        both.append([*results, *torch.autograd.grad(loss, [x, *rnn.parameters()])])
    for ours, theirs in zip(*both, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def packed(rnn, x, lengths):
    out, final = rnn(pack_padded_sequence(x, lengths, enforce_sorted=False))
    return pad_packed_sequence(out)[0], final


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("lengths", [LENGTHS, [7] * 5], ids=["ragged", "equal"])
def test_run_is_exact_without_any_of_them(gone, cell, lengths):
    torch.manual_seed(0)
    rnn = cell(3, 4, bidirectional=True)
    for method in METHODS:
        exact(rnn, lambda *given, method=method: pv.run(*given, method=method), lengths)
    exact(rnn, lambda rnn, *given: pv.Ragged(rnn)(*given), lengths)
    assert pv.plan(rnn, lengths).method in METHODS


def test_what_is_found_in_a_network_is_the_same_without_any_of_them(gone):
    x, n = networks.example(5, [5, 3, 1])
    found = pv.check_static(PACKED(), (x, n))
    assert {one.rule for one in found} == RULES


def test_counts_are_the_same_or_an_error_without_any_of_them(gone):
    try:
        counted = profile.count(LENGTHS).to_text()
    except AttributeError as error:
        counted = str(error)
    assert counted in (COUNTED, f"this torch has no {gone.rpartition('.')[2]}")
    assert peak(lambda: torch.zeros(1000)) in (4000, None)


COUNTED = profile.count(LENGTHS).to_text()
PACKED = networks.TAGGERS["packed, padded again"]
RULES = {one.rule for one in pv.check_static(PACKED(), networks.example(5, [5, 3, 1]))}


def test_without_all_of_them_run_is_torchs_own(monkeypatch):
    for path in GONE:
        root, _, rest = path.partition(".")
        monkeypatch.setattr(private, root, Without(getattr(private, root), rest))
    monkeypatch.setattr(private, "VERSION", "_gone")
    rnn = nn.LSTM(3, 4)
    assert pv.plan(rnn, LENGTHS).method == "packed"
    exact(rnn, pv.run)
    assert "torch, packed" in pv.advise(rnn, LENGTHS, batch_size=5, budget=0.1).to_text()


def test_a_torch_without_modes_says_that_it_cannot_count():
    with pytest.raises(RuntimeError, match="has no TorchDispatchMode, by which packviz counts operators"):
        private._NoMode()


# A torch that no test was run on.
