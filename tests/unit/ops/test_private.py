"""Tests that torch's private names are all in one file, and that `run` is exact without them."""

import ast
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz.count import profile
from packviz.measure.machine import peak_memory
from packviz.ops import private, running
from packviz.ops.running import METHODS

PACKAGE = Path(pv.__file__).parent
PRIVATE_FILE = PACKAGE / "ops/private.py"
# Undocumented functions of torch, and a namespace of undocumented functions.
KERNELS = ("torch.lstm", "torch.gru", "torch.rnn_tanh", "torch.rnn_relu")
UNDOCUMENTED = (*KERNELS, "torch.mkldnn_rnn_layer", "torch.ops.aten.")
# Private names of other libraries.
OTHERS = {"_asdict", "_replace", "_make", "_getframe", "_exit", "_repr_mimebundle_", "_grid_ref"}


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def names_used(tree):
    """Yields the full names of the attributes and imports in a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield ast.unparse(node)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.name for alias in node.names)


def names_defined(tree):
    """Yields the names that a file defines."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


def test_no_other_file_names_what_is_private_in_torch():
    texts = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    trees = {path: ast.parse(text) for path, text in texts.items() if path != PRIVATE_FILE}
    ours = OTHERS.union(*map(names_defined, trees.values()))
    for path, tree in trees.items():
        for name in names_used(tree):
            last = name.split(".")[-1]
            assert not name.startswith(UNDOCUMENTED), f"{path}: {name}"
            assert not is_private(last) or last in ours, f"{path}: {name}"


class Without:
    """A module that lacks one name."""

    def __init__(self, real, path):
        self._real = real
        self._first, _, self._rest = path.partition(".")

    def __getattr__(self, name):
        if name == self._first and not self._rest:
            raise AttributeError(f"this torch has no {name}")
        value = getattr(self._real, name)
        return Without(value, self._rest) if name == self._first else value


def private_paths():
    """Returns torch's private names in that file, except those of single objects."""
    paths = set(KERNELS)
    for name in names_used(ast.parse(PRIVATE_FILE.read_text(encoding="utf-8"))):
        root, *rest = name.split(".")
        is_hidden = name.startswith(UNDOCUMENTED) or any(map(is_private, rest))
        if root in ("torch", "nn", "forward_ad") and is_hidden:
            paths.add(name)
    return sorted(paths - {"torch.utils._python_dispatch.TorchDispatchMode"})


def without(path, monkeypatch):
    root, _, rest = path.partition(".")
    monkeypatch.setattr(private, root, Without(getattr(private, root), rest))


def packed(rnn, x, lengths):
    out, final = rnn(pack_padded_sequence(x, lengths, enforce_sorted=False))
    return pad_packed_sequence(out)[0], final


def values_and_gradients(call, rnn, lengths):
    x = torch.randn(7, 5, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    out, final = call(rnn, x, lengths)
    results = [out, *(final if isinstance(final, tuple) else (final,))]
    loss = sum(t.square().sum() for t in results)
    return [*results, *torch.autograd.grad(loss, [x, *rnn.parameters()])]


LENGTHS = [4, 7, 1, 4, 6]
COUNTED = profile.count(LENGTHS).to_text()


@pytest.mark.parametrize("lengths", [LENGTHS, [7] * 5], ids=["ragged", "equal"])
@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU, nn.RNN])
def test_run_is_exact_without_any_of_them(cell, lengths, monkeypatch):
    """This simulates an untested release of torch."""
    for path in private_paths():
        without(path, monkeypatch)
    monkeypatch.setattr(private, "TENSOR_VERSION_ATTRIBUTE", "_gone")
    monkeypatch.setattr(running, "IS_TORCH_TESTED", False)
    rnn = cell(3, 4, bidirectional=True)
    assert pv.plan(rnn, lengths).method == "packed"
    expected = values_and_gradients(packed, rnn, lengths)
    for method in METHODS:
        run = lambda *given, method=method: pv.run(*given, method=method)  # noqa: E731
        torch.testing.assert_close(values_and_gradients(run, rnn, lengths), expected)


@pytest.mark.parametrize("gone", private_paths())
def test_counts_are_the_same_or_an_error_without_any_of_them(gone, monkeypatch):
    without(gone, monkeypatch)
    try:
        counted = profile.count(LENGTHS).to_text()
    except AttributeError as error:
        counted = str(error)
    assert counted in (COUNTED, f"this torch has no {gone.rpartition('.')[2]}")
    assert peak_memory(lambda: torch.zeros(1000)) in (4000, None)
