"""`explain_errors`: the same exception, with a note that explains it; and nothing else."""

import traceback

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz.check import museum

X = torch.zeros(5, 3, 2)
GRU = nn.GRU(2, 3)
LSTM = nn.LSTM(2, 3)


def packed():
    return pack_padded_sequence(X, [5, 3, 2])


def error_of(call, *arguments):
    """The exception that a call raises within `explain_errors`."""
    with pytest.raises(Exception) as raised, pv.explain_errors():  # noqa: PT011
        call(*arguments)
    return raised.value


def notes_of(call, *arguments):
    return getattr(error_of(call, *arguments), "__notes__", [])


def unpack_h_and_c():
    data = packed()
    _, (h, c) = GRU(data)
    return h, c


KNOWN = [  # and, in test_museum.py, those that no notebook shows
    ("Lengths not sorted", pack_padded_sequence, X, [3, 5, 2]),
    ("Batch and time swapped", pack_padded_sequence, X.transpose(0, 1), [5, 3, 2]),
    ("Lengths on the GPU", pack_padded_sequence, X, torch.tensor([5, 3, 2], device="meta")),
    ("An empty sequence", pack_padded_sequence, X, [5, 3, 0]),
    ("Lengths greater than T", pad_packed_sequence, pack_padded_sequence(X, [7, 3, 2])),
    ("Too few lengths", lambda: pack_padded_sequence(X, [5, 3, 2, 1], enforce_sorted=False)),
    ("GRU state unpacked into h and c", unpack_h_and_c),
    ("Initial state given batch first", GRU, packed(), torch.zeros(3, 1, 3)),
    ("State for another batch size", LSTM, packed(), (torch.zeros(1, 5, 3),) * 2),
    ("A PackedSequence has no size or shape", lambda: packed().size()),
    ("A layer that does not take a PackedSequence", nn.Linear(2, 3), packed()),
]


@pytest.mark.parametrize(("name", "call", "arguments"), [(n, c, a) for n, c, *a in KNOWN])
def test_a_known_mistake_is_explained(name, call, arguments):
    (note,) = notes_of(call, *arguments)
    entry = museum.find_entry(name)
    assert f"{name} ({entry.place})" in note.splitlines()[0]
    assert f"why: {entry.why} fix: {entry.fix}" in " ".join(note.split())


@pytest.mark.parametrize("call", [one[1:] for one in KNOWN])
def test_explain_gives_the_same_answer_after_the_note(call):
    error = error_of(*call)
    assert error.__notes__
    after = pv.explain(error)
    del error.__notes__
    assert after
    assert after == pv.explain(error)


OTHERS = [
    lambda: 1 / 0,
    lambda: nn.GRU(2, 3)(torch.zeros(5, 3, 4)),  # nothing packed
    lambda: GRU(X, torch.zeros(1, 3, 4)),
    lambda: (lambda a, b: a)(*(1, 2, 3)),
    lambda: packed().data.view(3, 1, 2),  # a packed sequence that has no part in it
]


@pytest.mark.parametrize("call", OTHERS)
def test_other_errors_get_no_note(call):
    assert not notes_of(call)


def test_it_is_the_same_exception_with_the_same_traceback():
    error = RuntimeError("'PackedSequence' object has no attribute 'size'")
    cause = KeyError("cause")

    def fail():
        try:
            raise error from cause
        except RuntimeError as caught:
            caught.add_note("mine")
            raise

    with pytest.raises(RuntimeError) as raised, pv.explain_errors(), pv.explain_errors():
        fail()
    assert raised.value is error
    assert error.__cause__ is cause
    mine, ours = error.__notes__  # once, although two blocks are nested
    assert mine == "mine"
    assert ours.startswith("packviz: A PackedSequence has no size or shape")
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert names[0] == "test_it_is_the_same_exception_with_the_same_traceback"
    assert names[-1] == "fail"


def test_what_is_no_error_passes():
    with pv.explain_errors():
        assert isinstance(packed(), PackedSequence)
    for kind in (KeyboardInterrupt, SystemExit, GeneratorExit):
        with pytest.raises(kind) as raised, pv.explain_errors():
            raise kind("'PackedSequence' object has no attribute 'size'")
        assert not hasattr(raised.value, "__notes__")


def test_a_failure_of_the_explanation_does_not_show(monkeypatch):
    monkeypatch.setattr(museum, "match_rules", lambda text: 1 / 0)
    error = error_of(pack_padded_sequence, X, [3, 5, 2])
    assert "enforce_sorted" in str(error)
    assert not hasattr(error, "__notes__")


def test_as_a_decorator():
    @pv.explain_errors()
    def pack(lengths):
        """Packs."""
        return pack_padded_sequence(X, lengths)

    assert pack.__doc__ == "Packs."
    assert len(pack([5, 3, 2]).data) == 10
    with pytest.raises(RuntimeError) as raised:
        pack([3, 5, 2])
    assert raised.value.__notes__[0].startswith("packviz: Lengths not sorted")
    with pytest.raises(TypeError, match="takes 0 positional arguments"):
        pv.explain_errors(pack)
