"""`explain_errors`: the same exception, with a note that says what was passed; and nothing else."""

import traceback
from textwrap import shorten

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
)

import packviz as pv
from packviz.check import errors, museum
from packviz.draw import text

X = torch.zeros(5, 3, 2)


def packed():
    return pack_padded_sequence(X, [5, 3, 2])


def broken():
    return pack_padded_sequence(X, [7, 3, 2])


def note_of(call, *arguments, **named):
    """The note that a call's exception gets; None if it gets none."""
    with pytest.raises(Exception) as raised, pv.explain_errors():
        call(*arguments, **named)
    notes = getattr(raised.value, "__notes__", [])
    assert len(notes) <= 1
    return notes[0] if notes else None


def flat(note):
    return " ".join(note.split())


def unpack_h_and_c():
    data = packed()
    _, (h, c) = nn.GRU(2, 3)(data)
    return h, c


def scores():
    scores, _ = pack_padded_sequence(X, [5, 3, 2])
    return scores


def unpack(values):
    first, second = values
    return first, second


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(2, 3)

    def forward(self, x, lengths):
        return self.gru(pack_padded_sequence(x, lengths))


LSTM, GRU = nn.LSTM(2, 3), nn.GRU(2, 3)
UNSORTED = pack_padded_sequence(X, [3, 5, 2], enforce_sorted=False)
KNOWN = [  # and, in test_museum.py, those that no notebook shows
    ("Lengths not sorted", pack_padded_sequence, X, [3, 5, 2]),
    ("Batch and time swapped", pack_padded_sequence, X.transpose(0, 1), [5, 3, 2]),
    (
        "Batch and time swapped",
        lambda: pack_padded_sequence(X, [3, 3, 3, 3, 3], enforce_sorted=False),
    ),
    ("Lengths on the GPU", pack_padded_sequence, X, torch.tensor([5, 3, 2], device="meta")),
    ("An empty sequence", pack_padded_sequence, X, [5, 3, 0]),
    ("Lengths greater than T", lambda: pad_packed_sequence(broken())),
    ("Lengths greater than T", lambda data: data.data.view(7, 1, 2), broken()),
    ("Too few lengths", lambda: pack_padded_sequence(X, [5, 3, 2, 1], enforce_sorted=False)),
    ("GRU state unpacked into h and c", unpack_h_and_c),
    ("A PackedSequence unpacked into two names", scores),
    ("Initial state given batch first", GRU, packed(), torch.zeros(3, 1, 3)),
    (
        "Initial state given batch first",
        LSTM,
        UNSORTED,
        (torch.zeros(3, 1, 3), torch.zeros(3, 1, 3)),
    ),
    ("State for another batch size", GRU, packed(), torch.zeros(1, 5, 3)),
    ("State for another batch size", LSTM, packed(), (torch.zeros(1, 5, 3), torch.zeros(1, 5, 3))),
    ("State for another batch size", nn.GRU(2, 3, 2), UNSORTED, torch.zeros(2, 2, 3)),
    ("Workers pad to different widths", lambda: pad_packed_sequence(packed(), total_length=3)),
    ("A PackedSequence has no size or shape", lambda: packed().size()),
    ("A PackedSequence has no size or shape", lambda: pack_padded_sequence(X, [5, 3, 2])[:, -1]),
    ("A layer that does not take a PackedSequence", nn.Linear(2, 3), packed()),
    (
        "Compiling a packed RNN with fullgraph",
        torch.compile(Tagger(), fullgraph=True, backend="eager"),
        X,
        torch.tensor([5, 3, 2]),
    ),
]


def says(note, name):
    shown = museum.named(name)
    unsure = "perhaps: " * (name == "Workers pad to different widths")
    assert note.startswith(f"packviz: {unsure}{name} ({shown.place})\n")
    assert f"why: {flat(shown.why)}" in flat(note)
    assert f"fix: {flat(shown.fix)}" in flat(note)


@pytest.mark.parametrize("known", KNOWN, ids=[f"{name} {i}" for i, (name, *_) in enumerate(KNOWN)])
def test_a_known_mistake_is_explained(known):
    name, *call = known
    says(note_of(*call), name)


def test_what_was_passed_is_said_and_drawn():
    note = note_of(pack_padded_sequence, X, [3, 5, 2])
    passed = (
        "pack_padded_sequence(a tensor of shape (5, 3, 2), lengths=[3, 5, 2], batch_first=False,"
    )
    assert f"passed: {passed} enforce_sorted=True)" in flat(note)
    assert all(
        f"  {line}".rstrip() in note for line in text.describe(pv.Layout([3, 5, 2])).splitlines()
    )
    note = note_of(pack_padded_sequence, torch.zeros(100, 3), [50, 100, 20])
    assert text.summary(pv.Layout([50, 100, 20])) in note  # a large batch is not drawn
    assert "t=0" not in note
    note = note_of(pack_padded_sequence, X, torch.tensor([5, 3, 2], device="meta"))
    assert "lengths=a tensor of shape (3,) on meta" in flat(note)  # and is not read


@given(st.lists(st.integers(0, 9), min_size=2, max_size=40), st.booleans())
def test_lengths_are_shown_in_the_callers_order(lengths, as_tensor):
    lengths[0] = 0  # torch sorts them before it refuses
    x = torch.zeros(9, len(lengths))
    note = note_of(
        pack_padded_sequence,
        x,
        torch.tensor(lengths) if as_tensor else lengths,
        enforce_sorted=False,
    )
    assert f"lengths={shorten(str(lengths), 80, placeholder=' …')}, batch_first" in flat(note)


def test_a_state_is_shown_only_if_one_was_passed():
    for rnn in (nn.RNN(4, 3), nn.GRU(4, 3), nn.LSTM(4, 3)):
        assert "hx" not in note_of(rnn, packed())
        rnn.register_forward_pre_hook(lambda module, args: args)
        assert "hx" not in note_of(rnn, packed())
        state = torch.zeros(1, 3, 3)
        state = (state, state) if isinstance(rnn, nn.LSTM) else state
        assert "(1, 3, 3)" in note_of(rnn, packed(), state)
        assert "(1, 3, 3)" in note_of(rnn, packed(), hx=state)


PASSED = {
    "pack_padded_sequence(a tensor of shape (5, 3, 2), lengths=None": lambda: pack_padded_sequence(
        X, None
    ),
    "pack_padded_sequence([a tensor of shape (5, 3, 2)], lengths=": lambda: pack_padded_sequence(
        [X], [5, 3, 2]
    ),
    "lengths has 2 entries, but x of shape (3, 5, 2)": lambda: pack_padded_sequence(
        X.transpose(0, 1), [5, 3]
    ),
    "did you mean batch_first=True?": lambda: pack_padded_sequence(X.transpose(0, 1), [5, 3, 2]),
    "batch_first=False?": lambda: pack_padded_sequence(X, [5, 3, 2], batch_first=True),
    "pack_sequence([a tensor of shape (2, 3, 2), a tensor of shape (5,": lambda: pack_sequence(
        [X[:2], X[:, 0]]
    ),
    "a tensor of shape (5, 3, 2), …], enforce_sorted=True)": lambda: pack_sequence(
        [*[X] * 5, X[:2, :2]]
    ),
    "pad_packed_sequence(a tensor of shape (5, 3, 2), batch_first=False, ": lambda: (
        pv.pad_packed_sequence(X)
    ),
    "GRU(4, 3) called with a PackedSequence with data of shape (10, 2)": lambda: nn.GRU(4, 3)(
        packed()
    ),
    "packed.batch_sizes adds up to 12 but packed.data has 10 rows.": lambda: LSTM(broken()),
    "hx a tensor of shape (1, 3, 4)": lambda: GRU(packed(), torch.zeros(1, 3, 4)),
}


@pytest.mark.parametrize(("said", "call"), PASSED.items(), ids=PASSED)
def test_other_errors_of_packing_say_what_was_passed(said, call):
    assert said in flat(note_of(call))


def pack_padded_sequence_of_another_library():
    def pack_padded_sequence():
        raise RuntimeError("enforce_sorted")

    pack_padded_sequence()


OTHERS = [
    lambda: 1 / 0,
    lambda: nn.GRU(2, 3)(torch.zeros(5, 3, 4)),  # nothing packed
    lambda: GRU(X, torch.zeros(1, 3, 4)),
    lambda: (lambda a, b: a)(*(1, 2, 3)),
    lambda: unpack((1, 2, 3)),
    lambda: torch.nested.nested_tensor([X[0], X[1]], layout=torch.jagged).no_such_thing,
    pack_padded_sequence_of_another_library,
    lambda: UNSORTED.data.view(3, 1, 2),  # a packed sequence that has no part in it
    lambda data=UNSORTED: data.data.view(3, 1, 2),
    lambda data=UNSORTED: torch.index_select(data.data, 0, data.batch_sizes + 50),
]


@pytest.mark.parametrize("call", OTHERS)
def test_other_errors_get_no_note(call):
    assert note_of(call) is None


# Nothing else changes.


def test_it_is_the_same_exception_with_the_same_traceback():
    error, cause = (
        RuntimeError("'PackedSequence' object has no attribute 'size'"),
        KeyError("cause"),
    )

    def fail():
        try:
            raise error from cause
        except RuntimeError as caught:
            caught.add_note("mine")
            raise

    with pytest.raises(RuntimeError) as raised, pv.explain_errors():
        fail()
    assert raised.value is error
    assert error.__cause__ is cause
    assert error.__notes__[0] == "mine"
    assert error.__notes__[1].startswith("packviz: A PackedSequence has no size or shape")
    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert frames == ["test_it_is_the_same_exception_with_the_same_traceback", "fail"]


def test_what_is_no_error_passes():
    with pv.explain_errors():
        assert isinstance(packed(), PackedSequence)
    for kind in (KeyboardInterrupt, SystemExit, GeneratorExit):
        with pytest.raises(kind) as raised, pv.explain_errors():
            raise kind("'PackedSequence' object has no attribute 'size'")
        assert not hasattr(raised.value, "__notes__")


def test_a_failure_of_the_explanation_does_not_show(monkeypatch):
    monkeypatch.setattr(museum, "match", lambda said: 1 / 0)
    with pytest.raises(RuntimeError, match="enforce_sorted") as raised, errors.explain_errors():
        pack_padded_sequence(X, [3, 5, 2])
    assert not hasattr(raised.value, "__notes__")


# As a decorator, in generators, in threads.


@pv.explain_errors()
def pack_lengths(lengths):
    """Packs."""
    return pack_padded_sequence(X, lengths)


def test_as_a_decorator():
    class Model(nn.Module):
        @pv.explain_errors
        def forward(self, x, lengths):
            return pack_lengths(lengths)

    assert (pack_lengths.__name__, pack_lengths.__doc__) == ("pack_lengths", "Packs.")
    for call in (
        pack_lengths,
        pv.explain_errors(pack_lengths),
        lambda lengths: Model()(X, lengths),
    ):
        assert len(call([5, 3, 2]).data) == 10
        says(note_of(call, [3, 5, 2]), "Lengths not sorted")


def test_what_runs_later_is_not_wrapped():
    def generator():
        with pv.explain_errors():
            yield
            pack_padded_sequence(X, [3, 5, 2])

    async def coroutine():
        pass

    for function in (generator, coroutine):
        with pytest.raises(
            TypeError,
            match=f"does not wrap {function.__name__}, which runs later; use `with` inside",
        ):
            pv.explain_errors(function)
    says(note_of(lambda: list(generator())), "Lengths not sorted")
