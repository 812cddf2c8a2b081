"""Tests packviz's functions under torch's names: nothing recurses, nothing breaks, and torch's
functions come back.
"""

import functools
import io
import sys
import types
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils import rnn
from torchs import bits, outcome, same, weights

import packviz as pv
from packviz.ops import original, packing

OURS = {name: getattr(packing, name) for name in original.FUNCTION_NAMES}


def in_place():
    """Returns the functions under torch's names."""
    return {name: getattr(rnn, name) for name in original.FUNCTION_NAMES}


TORCHS = in_place()


@pytest.fixture(autouse=True)
def torchs_again():
    assert in_place() == TORCHS
    yield
    left = in_place()
    for name, function in TORCHS.items():
        setattr(rnn, name, function)
    assert left == TORCHS


@pytest.fixture
def program(monkeypatch):
    """Adds a module that holds torch's functions in several ways."""
    module = types.ModuleType("program")
    module.pack = TORCHS["pack_padded_sequence"]
    module.pad_packed_sequence = TORCHS["pad_packed_sequence"]
    module.Model = type("Model", (), {"pack": TORCHS["pack_padded_sequence"]})
    module.partial = functools.partial(TORCHS["pad_packed_sequence"], batch_first=True)
    monkeypatch.setitem(sys.modules, "program", module)
    monkeypatch.setitem(sys.modules, "not a module", object())
    monkeypatch.setitem(sys.modules, "none", None)
    return module


# --- replaced, and undone


def test_replaces_in_every_module_and_says_where(program):
    patch = pv.patch_torch()
    assert in_place() == OURS
    assert program.pack is pv.pack_padded_sequence
    assert program.pad_packed_sequence is pv.pad_packed_sequence
    assert program.Model.pack is TORCHS["pack_padded_sequence"]
    assert program.partial.func is TORCHS["pad_packed_sequence"]
    places = {f"torch.nn.utils.rnn.{name}" for name in original.FUNCTION_NAMES}
    assert {*patch.places} >= places | {"program.pack", "program.pad_packed_sequence"}
    assert not any(place.startswith("packviz") for place in patch.places)
    assert f"in {len(patch.places)} places" in repr(patch)
    assert all(place in repr(patch) for place in patch.places)
    assert original.pack_padded_sequence is TORCHS["pack_padded_sequence"]
    patch.undo()
    assert in_place() == TORCHS
    assert program.pack is TORCHS["pack_padded_sequence"]
    patch.undo()
    assert in_place() == TORCHS


def test_a_patch_within_a_patch_changes_what_is_left(program):
    with pv.patch_torch():
        program.later = TORCHS["pad_packed_sequence"]
        with pv.patch_torch() as inner:
            assert inner.places == ("program.later",)
            assert program.later is pv.pad_packed_sequence
        assert in_place() == OURS
    assert in_place() == TORCHS


def test_leaves_others_work_alone(program):
    def pack(*arguments):
        return TORCHS["pack_padded_sequence"](*arguments)

    program.pack = pack
    with pv.patch_torch() as patch:
        assert "program.pack" not in patch.places
        program.pad_packed_sequence = pack
    assert program.pack is program.pad_packed_sequence is pack


# --- no recursion


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=24),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_under_torchs_names_they_are_torchs(lengths, batch_first, enforce_sorted, grad):
    """The names are replaced by hand, without `patch_torch`."""
    lengths = sorted(lengths, reverse=True) if enforce_sorted else lengths
    x = torch.randn(len(lengths), 6, 2) if batch_first else torch.randn(6, len(lengths), 2)
    x.requires_grad_(grad)

    def everything():
        packed = rnn.pack_padded_sequence(x, lengths, batch_first, enforce_sorted)
        parts = rnn.unpack_sequence(packed)
        y, n = rnn.pad_packed_sequence(packed, batch_first, 2.0, 7)
        grads = torch.autograd.grad(y, x, weights(y)) if grad else ()
        return packed, parts, rnn.pack_sequence(parts, enforce_sorted), y, n, grads

    theirs = everything()
    for name in original.FUNCTION_NAMES:
        setattr(rnn, name, getattr(pv, name))
    try:
        ours = everything()
    finally:
        for name in original.FUNCTION_NAMES:
            setattr(rnn, name, TORCHS[name])
    assert same(ours[:-1], theirs[:-1])
    assert all(torch.equal(bits(a), bits(b)) for a, b in zip(ours[-1], theirs[-1], strict=True))


# --- compilers and transforms


class Tagger(torch.nn.Module):
    """A network that looks torch's names up when it runs, in two ways."""

    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.GRU(2, 3)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor):
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        return rnn.pad_packed_sequence(self.rnn(packed)[0], total_length=20)[0]


def there_and_back(x: torch.Tensor, lengths: torch.Tensor):
    packed = rnn.pack_padded_sequence(x, lengths, False, False)
    parts = rnn.unpack_sequence(packed)
    return (
        rnn.pad_packed_sequence(packed, padding_value=2.0)[0],
        parts,
        rnn.pack_sequence(parts, False).data,
    )


def exported(model, inputs):
    """Exports a model, and runs it in ONNX Runtime."""
    file = io.BytesIO()
    torch.onnx.export(model, inputs, file, dynamo=False, input_names=["x", "lengths"])
    session = pytest.importorskip("onnxruntime").InferenceSession(file.getvalue())
    given = {name: one.detach().numpy() for name, one in zip(("x", "lengths"), inputs, strict=True)}
    return [torch.tensor(one) for one in session.run(None, given)]


def by_compiling(model, x, lengths):
    torch.compiler.reset()
    return torch.compile(lambda x, n: model(x * 2, n).relu(), backend="eager")(x, lengths)


WAYS = {
    "script": lambda model, x, n: torch.jit.script(
        types.FunctionType(there_and_back.__code__, globals())
    )(x, n),
    "trace": lambda model, x, n: torch.jit.trace(model, (x, n), check_trace=False)(
        x.flip(0), torch.tensor([20, 1, 2])
    ),
    "onnx": lambda model, x, n: exported(model, (x, n)),
    "compile": by_compiling,
    "vmap": lambda model, x, n: torch.func.vmap(
        lambda x: rnn.pack_padded_sequence(x, n, False, False).data
    )(x[None]),
}


def test_what_torch_makes_of_it():
    torch.manual_seed(0)
    inputs = Tagger(), torch.randn(20, 3, 2).requires_grad_(), torch.tensor([5, 20, 3])

    def made():
        return {way: outcome(make, *inputs) for way, make in WAYS.items()}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = made()
        with pv.patch_torch():
            ours = made()
    torch.compiler.reset()
    assert (
        sum(isinstance(one, str) for one in theirs.values()) <= 1
    )  # some releases cannot do all of it
    for way in WAYS:
        assert same(ours[way], theirs[way]), way
