"""`explain_errors`: the same exception, with a note that says what was passed; and nothing else."""

import asyncio
import inspect
import threading
import traceback

import pytest
import torch
from habits import habit_of
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

import packviz as pv
from packviz.check import errors, museum
from packviz.draw import text

X = torch.zeros(5, 3, 2)


def packed():
    return pack_padded_sequence(X, [5, 3, 2])


def note_of(call, *arguments, **named):
    """The note that a call's exception gets; None if it gets none."""
    try:
        with pv.explain_errors():
            call(*arguments, **named)
    except Exception as error:
        notes = getattr(error, "__notes__", [])
        assert len(notes) <= 1
        return notes[0] if notes else None
    raise AssertionError("nothing was raised")


def unpack_h_and_c():
    data = packed()
    _, (h, c) = nn.GRU(2, 3)(data)
    return h, c


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(2, 3)

    def forward(self, x, lengths):
        return self.gru(pack_padded_sequence(x, lengths))


KNOWN = {
    "Lengths not sorted": (pack_padded_sequence, X, [3, 5, 2]),
    "Batch and time swapped": (pack_padded_sequence, X.transpose(0, 1), [5, 3, 2]),
    "Lengths on the GPU": (pack_padded_sequence, X, torch.tensor([5, 3, 2], device="meta")),
    "An empty sequence": (pack_padded_sequence, X, [5, 3, 0]),
    "Lengths beyond T": (pad_packed_sequence, pack_padded_sequence(X, [7, 3, 2])),
    "Too few lengths": (lambda: pack_padded_sequence(X, [5, 3, 2, 1], enforce_sorted=False),),
    "Layers taken for h and c": (unpack_h_and_c,),
    "State batch first": (nn.GRU(2, 3), packed(), torch.zeros(3, 1, 3)),
    "Workers of different widths": (lambda: pad_packed_sequence(packed(), total_length=3),),
    "No size of its own": (lambda: packed().size(),),
    "A layer that wants a tensor": (nn.Linear(2, 3), packed()),
    "Compiling a packed RNN": (torch.compile(Tagger(), fullgraph=True, backend="eager"), X, torch.tensor([5, 3, 2])),
}


def jagged(*lengths):
    return torch.nested.nested_tensor([torch.zeros(n, 2) for n in lengths], layout=torch.jagged)


@pytest.mark.parametrize("name", KNOWN)
def test_the_museum_speaks(name):
    says(note_of(*KNOWN[name]), name)


@habit_of(museum.TORCH)
@pytest.mark.parametrize(
    "call",
    [
        lambda: nn.LSTM(2, 3, batch_first=True)(jagged(5, 3, 2)),
        lambda: nn.GRU(2, 3, batch_first=True)(jagged(5, 3, 2)),
        lambda: pack_padded_sequence(jagged(5, 3, 2), [5, 3, 2], batch_first=True),
        lambda: pad_packed_sequence(jagged(5, 3, 2)),
    ],
)
def test_the_museum_speaks_of_jagged_tensors(call):
    says(note_of(call), "A jagged tensor in an RNN")


@habit_of(museum.TORCH)
def test_the_museum_speaks_of_jagged_tensors_that_do_not_fit():
    says(note_of(torch.add, jagged(5, 3, 2), jagged(5, 3, 2)), "Two jagged tensors that do not fit")


def test_other_errors_of_jagged_tensors_get_no_note():
    assert note_of(lambda: jagged(5, 3, 2).no_such_thing) is None
    assert note_of(lambda: jagged(5, 3, 2).cumsum(1)) is None


def says(note, name):
    shown = museum.named(name)
    assert note, "no note"
    lines = note.splitlines()
    assert lines[0] == f"packviz: {name} ({shown.place})"
    flat = " ".join(note.split())
    assert f"why: {' '.join(shown.why.split())}" in flat
    assert f"fix: {' '.join(shown.fix.split())}" in flat


def test_what_was_passed_is_said_and_drawn():
    note = note_of(pack_padded_sequence, X, [3, 5, 2])
    passed = "pack_padded_sequence(a tensor of shape (5, 3, 2), lengths=[3, 5, 2], batch_first=False,"
    assert f"passed: {passed} enforce_sorted=True)" in " ".join(note.split())
    assert all(f"  {line}".rstrip() in note for line in text.describe(pv.Layout([3, 5, 2])).splitlines())


@given(st.lists(st.integers(0, 9), min_size=2, max_size=40), st.booleans())
def test_lengths_are_told_in_the_callers_order(lengths, as_tensor):
    lengths[0] = 0  # torch sorts them before it refuses
    x = torch.zeros(9, len(lengths))
    note = note_of(pack_padded_sequence, x, torch.tensor(lengths) if as_tensor else lengths, enforce_sorted=False)
    shown = f"{lengths[:16]}" if len(lengths) <= 16 else f"{str(lengths[:16])[:-1]}, …] ({len(lengths)} in all)"
    assert f"lengths={shown}," in " ".join(note.split())
    assert "lengths[0] is 0" in note


def test_lengths_that_fit_the_other_way_round_are_drawn_that_way():
    note = note_of(pack_padded_sequence, X.transpose(0, 1), [5, 3, 2])
    assert "did you mean batch_first=True?" in note
    assert "with batch_first=True:" in note
    assert text.summary(pv.Layout([5, 3, 2])) in note


def test_large_batches_are_summed_up():
    note = note_of(pack_padded_sequence, torch.zeros(100, 3), [50, 100, 20])
    assert text.summary(pv.Layout([50, 100, 20])) in note
    assert "t=0" not in note


def test_an_rnn_says_what_it_was_called_with():
    broken = pack_padded_sequence(X, [7, 3, 2])
    note = note_of(nn.LSTM(2, 3), broken, (torch.zeros(1, 3, 3), torch.zeros(1, 3, 3)))
    flat = " ".join(note.split())
    assert "passed: LSTM(2, 3) called with a PackedSequence with data of shape (10, 2) and hx (a tensor of" in flat
    assert "packed.batch_sizes adds up to 12 but packed.data has 10 rows." in note


def test_other_errors_of_packing_say_what_was_passed():
    note = note_of(pack_padded_sequence, X, None)
    assert note.startswith("packviz: what was passed\n  passed: pack_padded_sequence(a tensor of shape (5, 3, 2), leng")
    note = note_of(nn.GRU(4, 3), packed())  # it wants 4 features
    assert "passed: GRU(4, 3) called with a PackedSequence with data of shape (10, 2)" in note
    assert "why:" not in note
    assert "passed: pack_padded_sequence" in note_of(pack_sequence, [X[:2, 0], X[:3, 1]])


def test_a_state_batch_first_for_a_batch_that_is_not_sorted():
    data = pack_padded_sequence(X, [3, 5, 2], enforce_sorted=False)
    state = torch.zeros(3, 1, 3)
    assert "State batch first" in note_of(nn.LSTM(2, 3), data, (state, state))
    assert "State batch first" in note_of(nn.GRU(2, 3), data, hx=state)
    note = note_of(nn.GRU(2, 3, 2), data, torch.zeros(2, 2, 3))  # too few rows, which no exhibit is about
    assert note.startswith("packviz: what was passed\n  passed: GRU(2, 3, num_layers=2) called with a PackedSequence")
    assert "hx a tensor of shape (2, 2, 3)" in " ".join(note.split())


@pytest.mark.parametrize("state", [(1, 2, 3), (1, 3, 4), (2, 3, 3), (3, 3, 1)])
def test_a_state_of_another_shape(state):
    assert note_of(nn.GRU(2, 3), packed(), torch.zeros(state)).startswith("packviz: what was passed\n")
    assert note_of(nn.GRU(2, 3), X, torch.zeros(state)) is None  # nothing packed


def test_a_state_is_told_only_if_one_was_passed():
    for rnn in (nn.RNN(4, 3), nn.GRU(4, 3), nn.LSTM(4, 3)):
        assert "hx" not in note_of(rnn, packed())
        rnn.register_forward_pre_hook(lambda module, args: args)
        assert "hx" not in note_of(rnn, packed())
        state = torch.zeros(1, 3, 3)
        state = (state, state) if isinstance(rnn, nn.LSTM) else state
        assert "(1, 3, 3)" in note_of(rnn, packed(), state)
        assert "(1, 3, 3)" in note_of(rnn, packed(), hx=state)


def test_a_count_that_fits_neither_way():
    x = X.transpose(0, 1)
    for named in ({"batch_first": True}, {}):
        note = note_of(pack_padded_sequence, x, [5, 3], **named)
        assert note.startswith("packviz: what was passed\n")
        assert "lengths has 2 entries, but x of shape (3, 5, 2)" in note
    assert "batch_first=False?" in note_of(pack_padded_sequence, X, [5, 3, 2], batch_first=True)
    # More lengths than columns, and as many as rows.
    note = note_of(pack_padded_sequence, X, [3, 3, 3, 3, 3], enforce_sorted=False)
    assert note.startswith("packviz: Batch and time swapped")


def test_what_was_passed_in_place_of_a_tensor_or_of_a_packed_sequence():
    for call, said in {
        lambda: pack_padded_sequence([X], [5, 3, 2]): "pack_padded_sequence([a tensor of shape (5, 3, 2)], lengths=",
        lambda: pack_padded_sequence("x", [5, 3, 2]): "pack_padded_sequence(a str, lengths=[5, 3, 2]",
        lambda: pad_packed_sequence(X): "pad_packed_sequence(a tensor of shape (5, 3, 2))",
        lambda: pad_packed_sequence(nn.GRU(2, 3)(packed())): "pad_packed_sequence((a PackedSequence with data of shape",
        lambda: pack_sequence([X[:2], X[:, 0]]): "pack_sequence([a tensor of shape (2, 3, 2), a tensor of shape (5,",
        lambda: pv.pad_packed_sequence(X): "pad_packed_sequence(a tensor of shape (5, 3, 2))",
        lambda: pack_sequence([*[X] * 5, X[:2, :2]]): "a tensor of shape (5, 3, 2), …], enforce_sorted=True)",
    }.items():
        note = note_of(call)
        assert note.startswith("packviz: what was passed\n")
        assert said in " ".join(note.split())


class Refused(Exception):
    """One that takes no note."""

    def add_note(self, note):
        raise OSError


def refuse():
    raise Refused


def bad_text():
    class Mute(RuntimeError):
        def __str__(self):
            raise KeyError

    raise Mute


OTHERS = [
    lambda: 1 / 0,
    lambda: [][3],
    lambda: torch.zeros(6).view(4),
    lambda: torch.cat([torch.zeros(2, 5), torch.zeros(2, 3)]),
    lambda: nn.Embedding(3, 2)(torch.tensor([5])),  # index out of range in self
    lambda: nn.Linear(2, 3)(torch.zeros(3)),
    lambda: nn.GRU(2, 3)(torch.zeros(5, 3, 4)),  # nothing packed
    lambda: (lambda a, b: a)(*(1, 2, 3)),
    refuse,
    bad_text,
]


@pytest.mark.parametrize("call", OTHERS)
def test_other_errors_get_no_note(call):
    assert note_of(call) is None


def index(data):
    return data[:, -1]


def unpack(data):
    one, two = (1, 2, 3)
    return one, two


def concatenate(data):
    return torch.cat([torch.zeros(2, 5), torch.zeros(2, 3)])


def reshape(data):
    return data.data.view(3, 1, 2)


def look_up(data):
    return torch.index_select(data.data, 0, data.batch_sizes + 50)


@pytest.mark.parametrize("call", [unpack, concatenate, reshape, look_up])
def test_a_packed_sequence_near_an_error_that_it_has_no_part_in(call):
    assert note_of(call, packed()) is None


def test_an_error_of_a_line_that_packs():
    assert "No size of its own" in note_of(index, packed())
    assert "No size of its own" in note_of(lambda: pack_padded_sequence(X, [5, 3, 2])[:, -1])
    broken = pack_padded_sequence(X, [7, 3, 2])
    assert "Lengths beyond T" in note_of(lambda data: data.data.view(7, 1, 2), broken)


def test_too_many_values_in_other_code():
    def unpack(values):
        first, second = values
        return first, second

    assert note_of(unpack, (1, 2, 3)) is None
    assert "Layers taken for h and c" in note_of(unpack, packed())


def test_a_wrong_state_without_packing_is_explained_too():
    assert "State batch first" in note_of(nn.GRU(2, 3), X, torch.zeros(3, 1, 3))


# Nothing else changes.


def shown(call):
    """The exception, as Python prints it, and itself."""
    try:
        call()
    except Exception as error:
        return "".join(traceback.format_exception(error)), error
    raise AssertionError


def test_it_is_the_same_exception_with_the_same_traceback():
    error = RuntimeError("enforce_sorted")
    cause = KeyError("cause")

    def fail():
        raise error from cause

    with pytest.raises(RuntimeError) as raised, pv.explain_errors():
        fail()
    assert raised.value is error
    assert error.__cause__ is cause

    def plain():
        pack_padded_sequence(X, [3, 5, 2])

    def explained():
        with pv.explain_errors():
            pack_padded_sequence(X, [3, 5, 2])

    before, _ = shown(plain)
    after, error = shown(explained)
    kept = after.removesuffix(error.__notes__[0] + "\n")
    assert [line for line in kept.splitlines() if "rnn.py" in line] == [
        line for line in before.splitlines() if "rnn.py" in line
    ]
    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert frames == ["shown", "explained", "pack_padded_sequence"]


def test_without_an_error_nothing_happens():
    with pv.explain_errors() as given:
        result = packed()
    assert given is None
    assert isinstance(result, PackedSequence)


def test_what_is_no_error_passes(recwarn):
    for kind in (KeyboardInterrupt, SystemExit, GeneratorExit):
        with pytest.raises(kind) as raised, pv.explain_errors():
            raise kind("'PackedSequence' object has no attribute 'size'")
        assert not hasattr(raised.value, "__notes__")


def test_nested_ones_add_one_note():
    def inner():
        with pv.explain_errors():
            pack_padded_sequence(X, [3, 5, 2])

    assert note_of(inner).count("packviz: ") == 1
    error = ValueError("x")
    error.add_note("packviz is not the first word of this module's notes")

    def noted():
        raise error

    with pytest.raises(ValueError, match="x"), pv.explain_errors():
        noted()
    assert len(error.__notes__) == 1


def test_notes_of_others_stay():
    def noted():
        try:
            pack_padded_sequence(X, [3, 5, 2])
        except RuntimeError as error:
            error.add_note("mine")
            raise

    with pytest.raises(RuntimeError) as raised, pv.explain_errors():
        noted()
    first, second = raised.value.__notes__
    assert first == "mine"
    assert second.startswith("packviz: Lengths not sorted")


# As a decorator, in threads, in generators.


@pv.explain_errors()
def pack_lengths(lengths):
    """Packs."""
    return pack_padded_sequence(X, lengths)


@pv.explain_errors()
def pack_each(batches):
    for lengths in batches:
        got = yield pack_padded_sequence(X, lengths)
        assert got is None
    return "done"


@pv.explain_errors()
async def pack_soon(lengths):
    await asyncio.sleep(0)
    return pack_padded_sequence(X, lengths)


def first_note(call):
    with pytest.raises(RuntimeError) as raised:
        call()
    (note,) = raised.value.__notes__
    return note.splitlines()[0]


WANTED = "packviz: Lengths not sorted (exhibit 11 of notebook 11)"


def test_as_a_decorator():
    assert pack_lengths.__name__ == "pack_lengths"
    assert pack_lengths.__doc__ == "Packs."
    assert len(pack_lengths([5, 3, 2]).data) == 10
    assert first_note(lambda: pack_lengths([3, 5, 2])) == WANTED
    assert first_note(lambda: pack_lengths(lengths=[3, 5, 2])) == WANTED


def test_as_a_decorator_without_parentheses():
    @pv.explain_errors
    def pack(lengths):
        return pack_padded_sequence(X, lengths)

    assert pack.__name__ == "pack"
    assert len(pack([5, 3, 2]).data) == 10
    assert first_note(lambda: pack([3, 5, 2])) == WANTED


def test_of_an_asynchronous_generator():
    async def each():
        yield 1

    with pytest.raises(TypeError, match="does not wrap an asynchronous generator; use `with` inside it"):
        pv.explain_errors()(each)


def test_of_a_generator():
    assert inspect.isgeneratorfunction(pack_each)
    assert len(list(pack_each([[5, 3, 2], [4, 3, 2]]))) == 2
    steps = pack_each([[5, 3, 2], [3, 5, 2]])
    next(steps)
    assert first_note(lambda: next(steps)) == WANTED

    def outer():
        assert (yield from pack_each([[5, 3, 2]])) == "done"

    assert len(list(outer())) == 1


def test_in_a_generator():
    def each():
        with pv.explain_errors():
            yield 1
            pack_padded_sequence(X, [3, 5, 2])

    assert first_note(lambda: list(each())) == WANTED


def test_of_a_coroutine():
    assert inspect.iscoroutinefunction(pack_soon)
    assert len(asyncio.run(pack_soon([5, 3, 2])).data) == 10
    assert first_note(lambda: asyncio.run(pack_soon([3, 5, 2]))) == WANTED


def test_of_a_method():
    class Model(nn.Module):
        @pv.explain_errors()
        def forward(self, x, lengths):
            return pack_padded_sequence(x, lengths)

    assert first_note(lambda: Model()(X, [3, 5, 2])) == WANTED


def test_in_threads():
    notes = []

    def work(lengths):
        notes.append((lengths, note_of(pack_padded_sequence, X, lengths)))

    threads = [threading.Thread(target=work, args=([n, 5, 2],)) for n in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(notes) == 4
    assert all(f"lengths={lengths}" in " ".join(note.split()) for lengths, note in notes)


def test_frames_without_what_is_looked_for():
    def pack_padded_sequence():  # of that name, with other names inside
        raise RuntimeError("enforce_sorted")

    assert note_of(pack_padded_sequence) is None  # no exhibit has this text

    def forward(self=None, input=None):
        raise RuntimeError("Expected hidden size (1, 3, 3), got [3, 1, 3]")

    assert "State batch first" in note_of(forward)


def test_a_failure_of_the_explanation_does_not_show(monkeypatch):
    monkeypatch.setattr(museum, "recognise", lambda said: 1 / 0)
    with pytest.raises(RuntimeError, match="enforce_sorted") as raised, errors.explain_errors():
        pack_padded_sequence(X, [3, 5, 2])
    assert not hasattr(raised.value, "__notes__")


def test_lengths_on_a_device_are_not_read():
    note = note_of(pack_padded_sequence, X, torch.tensor([5, 3, 2], device="meta"))
    assert "lengths=a tensor of shape (3,) on meta" in " ".join(note.split())
