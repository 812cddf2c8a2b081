"""Tests that torch's private names are all in one file, and that a release without them gives the same results."""

import ast
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz.check import networks
from packviz.count import profile
from packviz.measure.machine import peak
from packviz.ops import private, running
from packviz.ops.running import METHODS

HOUSE = Path(pv.__file__).parent
ONE_FILE = HOUSE / "ops/private.py"
# Undocumented functions of torch, and a namespace of undocumented functions.
KERNELS = ("torch.lstm", "torch.gru", "torch.rnn_tanh", "torch.rnn_relu")
UNDOCUMENTED = (*KERNELS, "torch.mkldnn_rnn_layer", "torch.ops.aten.")
# Private names of other libraries.
PUBLIC = {"_asdict", "_replace", "_make", "_getframe", "_exit", "_repr_mimebundle_", "_grid_ref"}


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def trees():
    return {
        path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(HOUSE.rglob("*.py"))
    }


def names_of_ours(found):
    """Yields private names that packviz defines."""
    for node in (node for tree in found.values() for node in ast.walk(tree)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def uses(tree):
    """Yields the attributes and imports in a file: `(line, full name, its parts)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.lineno, ast.unparse(node), [node.attr]
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = (
                ".".join(filter(None, [getattr(node, "module", ""), one.name]))
                for one in node.names
            )
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
        if name.startswith(UNDOCUMENTED)
        or any(is_private(part) and part not in ours for part in parts)
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
    """A module that lacks one name."""

    def __init__(self, real, path):
        self._real, self._first, self._rest = real, *path.partition(".")[::2]

    def __getattr__(self, name):
        if name == self._first and not self._rest:
            raise AttributeError(f"this torch has no {name}")
        value = getattr(self._real, name)
        return Without(value, self._rest) if name == self._first else value


def private_paths():
    """Returns torch's private names in that file, except those of single objects."""
    tree = ast.parse(ONE_FILE.read_text(encoding="utf-8"))
    paths = {
        name for _, name, _ in uses(tree) if name.split(".")[0] in ("torch", "nn", "forward_ad")
    }
    found = {
        path
        for path in paths
        if path.startswith(UNDOCUMENTED) or any(map(is_private, path.split(".")))
    }
    return sorted(found | set(KERNELS) - {"torch.utils._python_dispatch.TorchDispatchMode"})


GONE = private_paths()


def without(path, monkeypatch):
    root, _, rest = path.partition(".")
    monkeypatch.setattr(private, root, Without(getattr(private, root), rest))


@pytest.fixture
def another_release(monkeypatch):
    """Simulates an untested release of torch without any of these names."""
    for path in GONE:
        without(path, monkeypatch)
    monkeypatch.setattr(private, "VERSION", "_gone")
    monkeypatch.setattr(running, "IS_TESTED", False)


LENGTHS = [4, 7, 1, 4, 6]


def exact(rnn, call, lengths):
    """Checks that a call returns the same as packing, the RNN and padding, with the same gradients."""
    both = []
    for run in (call, packed):
        x = torch.randn(7, 5, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
        out, final = run(rnn, x, lengths)
        results = [out, *(final if isinstance(final, tuple) else (final,))]
        loss = sum((t * (1 + i)).square().sum() for i, t in enumerate(results))
        both.append([*results, *torch.autograd.grad(loss, [x, *rnn.parameters()])])
    for ours, theirs in zip(*both, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def packed(rnn, x, lengths):
    out, final = rnn(pack_padded_sequence(x, lengths, enforce_sorted=False))
    return pad_packed_sequence(out)[0], final


COUNTED = profile.count(LENGTHS).to_text()
TAGGER = networks.TAGGERS["packed, padded again"]
RULES = {one.rule for one in pv.check_static(TAGGER(), networks.example(5, [5, 3, 1]))}


@pytest.mark.usefixtures("another_release")
@pytest.mark.parametrize("lengths", [LENGTHS, [7] * 5], ids=["ragged", "equal"])
def test_run_is_exact_without_any_of_them(lengths):
    for cell in (nn.LSTM, nn.GRU, nn.RNN):
        rnn = cell(3, 4, bidirectional=True)
        assert pv.plan(rnn, lengths).method == "packed"
        for method in METHODS:
            exact(rnn, lambda *given, method=method: pv.run(*given, method=method), lengths)
        exact(rnn, lambda rnn, x, n: pv.Ragged(rnn)(x, lengths=n), lengths)


@pytest.mark.usefixtures("another_release")
def test_what_is_found_is_the_same_without_any_of_them():
    x, n = networks.example(5, [5, 3, 1])
    assert {one.rule for one in pv.check_static(TAGGER(), (x, n))} == RULES
    assert "torch, packed" in pv.advise(nn.LSTM(3, 4), LENGTHS, batch_size=5, budget=0.1).to_text()


@pytest.mark.parametrize("gone", GONE)
def test_counts_are_the_same_or_an_error_without_any_of_them(gone, monkeypatch):
    without(gone, monkeypatch)
    try:
        counted = profile.count(LENGTHS).to_text()
    except AttributeError as error:
        counted = str(error)
    assert counted in (COUNTED, f"this torch has no {gone.rpartition('.')[2]}")
    assert peak(lambda: torch.zeros(1000)) in (4000, None)
