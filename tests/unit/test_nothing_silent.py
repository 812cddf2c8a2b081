"""What packviz once got wrong without a word: each point with its neighbours, so that one file lists them all."""

from __future__ import annotations

import dataclasses
import gc
import io
import itertools
import linecache
import random
import re
import subprocess
import sys
import warnings
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import rnn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import packviz as pv
from packviz import cli
from packviz.check import errors
from packviz.studies import compilers

# ---- 1. Aligning says where the padding is, and can check it


# ---- 2. A name that contains "padding" is True at padding


# ---- 3. A square batch without batch_first warns


# ---- 4. run takes batch_first


# ---- 5. patch_torch names every holder of torch's functions


# ---- 6. The oracle is always torch's own function


# ---- 7. plan and run never disagree


# ---- 8. Constants that nobody measured choose nothing


# ---- 9. check_static is not ok where a trace freezes a length

T9, B9 = 6, 4
LENGTHS9 = torch.tensor([5, 3, 6, 2])


def masked_by_list(x, n):  # as in ESPnet
    mask = torch.zeros(len(n), T9, dtype=torch.bool)
    for row, k in enumerate(n.tolist()):
        mask[row, k:] = True
    return x.masked_fill(mask, 0)


def masked_by_cells(x, n):
    mask = torch.ones(len(n), T9)
    for row in range(len(n)):
        mask[row, int(n[row]) :] = 0
    return x * mask


def longest_by_comparison(x, n):
    longest = 0
    for k in n:
        longest = k if k > longest else longest
    return x * longest


def cut_by_condition(x, n):
    return x[:, :3] if n.max() > 4 else x


def last_by_position(x, n):
    return torch.stack([x[row, k - 1] for row, k in enumerate(n.tolist())])


# Uses of `x` of shape (B, T) and of the lengths. Whether a trace of one is right is found out, not written down.
USES9 = {
    "mask from tolist": masked_by_list,
    "mask from int": masked_by_cells,
    "int picks": lambda x, n: torch.stack([x[row, int(k) - 1] for row, k in enumerate(n)]),
    "tolist picks": last_by_position,
    "python sort": lambda x, n: x[sorted(range(len(n)), key=lambda row: -n[row])],
    "sort of a list": lambda x, n: x[torch.tensor(sorted(range(len(n)), key=n.tolist().__getitem__))],
    "tensor of a list": lambda x, n: x / torch.tensor(n.tolist())[:, None],
    "tensor of entries": lambda x, n: x / torch.tensor([int(k) for k in n])[:, None],
    "tensor of tensors": lambda x, n: x / torch.tensor([*n])[:, None],
    "as_tensor of numpy": lambda x, n: x / torch.as_tensor(n.numpy().copy())[:, None],
    "item": lambda x, n: x * n.max().item(),
    "item of one": lambda x, n: x * n[0].item(),
    "numpy": lambda x, n: x * float(n.numpy().mean()),
    "array": lambda x, n: x * float(np.asarray(n).sum()),
    "max": lambda x, n: x * int(max(n)),
    "min in python": lambda x, n: x * min(n.tolist()),
    "sum in python": lambda x, n: x / sum(n.tolist()),
    "range": lambda x, n: sum(x[:, t] for t in range(n.max())),
    "comparison": longest_by_comparison,
    "branch on max": cut_by_condition,
    "branch on all": lambda x, n: x * 2 if bool((n == T9).all()) else x,
    "branch on equal": lambda x, n: x * 2 if torch.equal(n, n[:1].expand(B9)) else x,
    "branch on unique": lambda x, n: x * 2 if len(n.unique()) == 1 else x,
    "membership": lambda x, n: x * 2 if 3 in n else x,
    "float": lambda x, n: x * float(n.float().mean()),
    "split": lambda x, n: torch.stack(
        [part.sum() for part in torch.split(x.reshape(-1), [*n.tolist(), 24 - int(n.sum())])]
    ),
    "format": lambda x, n: x * float(f"{n.max().item()}"),
    "arange of item": lambda x, n: x[:, : n.max().item()].sum(1),
    "repeat": lambda x, n: x.repeat_interleave(n.shape[0], 0) * n.tolist()[-1],
    "kept in a dict": lambda x, n: x * {3: 1.0, 5: 2.0}.get(int(n[0]), 3.0),
    "mask": lambda x, n: x.masked_fill(torch.arange(T9) >= n[:, None], 0),
    "where": lambda x, n: torch.where(torch.arange(T9) < n[:, None], x, -1.0).amax(1),
    "gather": lambda x, n: x.gather(1, n[:, None] - 1),
    "slice by a tensor": lambda x, n: x[:, : n.max()].sum(1),
    "index": lambda x, n: x[torch.arange(B9), n - 1],
    "tensor sort": lambda x, n: x[n.argsort(descending=True, stable=True)],
    "mean": lambda x, n: x.sum(1) / n,
    "shape alone": lambda x, n: x * n.shape[0] + 0 * n[:, None],
    "asserted": lambda x, n: x / n[:, None] if (n > 0).all() else x,
}


class Use9(nn.Module):
    def __init__(self, use):
        super().__init__()
        self.use, self.scale = use, nn.Parameter(torch.tensor(1.5))

    def forward(self, x, n):
        return self.use(x * self.scale, n)


def is_right_for_random_lengths(module, inputs, other):
    """Whether torch's own trace gives what the module gives, by trying: also lengths that are all equal."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(module, inputs, check_trace=False)
        for seed in range(40):
            given = other(random.Random(seed))
            try:
                got = traced(*given)
            except RuntimeError:
                return False
            want = module(*given)
            if got.shape != want.shape or not torch.allclose(got, want, equal_nan=True):
                return False
    return True


@pytest.mark.parametrize("use", USES9)
@pytest.mark.parametrize("lengths", [[5, 3, 6, 2], [6, 6, 6, 6], [6, 5, 3, 1]])
def test_ok_means_that_a_trace_is_right_for_other_lengths(use, lengths):
    module, x = Use9(USES9[use]), torch.randn(B9, T9)
    lengths = torch.tensor(lengths)
    right = is_right_for_random_lengths(
        module,
        (x, lengths),
        lambda drawn: (
            x,
            torch.tensor(
                [drawn.randint(1, T9)] * B9 if drawn.random() < 0.5 else drawn.choices(range(1, T9 + 1), k=B9)
            ),
        ),
    )
    found = pv.check_static(module, (x, lengths))
    assert ("trace" not in found.rules) == right
    if not right:
        assert not found.ok
        assert " with n [" in found[found.rules.index("trace")].message


def test_a_trace_that_is_wrong_names_the_lengths_and_the_line():
    def forward(self, x, n):
        longest = n.max().item()
        return x * longest

    found = pv.check_static(type("Net", (nn.Module,), {"forward": forward})(), (torch.randn(B9, T9), LENGTHS9))
    (error,) = found.of("error")
    assert error.rule == "trace"
    assert error.where.endswith(": longest = n.max().item()")
    assert re.search(
        r"differs by [\d.]+ with n \[\d, \d, \d, \d\]\. It keeps what item\(\) reads: 6, and \d there\.", error.message
    )
    assert not found.of("warning")  # the error says more than that a value is read


@dataclasses.dataclass
class Batch9:
    x: torch.Tensor
    n: object


class Pair9(NamedTuple):
    x: torch.Tensor
    n: object


def mask_of(n, width=T9):
    return torch.arange(width) < n[:, None]


FORMS9 = {
    "int32": lambda n: n.int(),
    "float": lambda n: n.float(),
    "a column": lambda n: n[:, None],
    "list": lambda n: n.tolist(),
    "tuple": lambda n: tuple(n.tolist()),
    "numpy": lambda n: n.numpy(),
    "parts": lambda n: n / T9,
    "a column of parts": lambda n: (n / T9)[:, None],
    "mask": mask_of,
    "padding mask": lambda n: ~mask_of(n),
    "mask of floats": lambda n: mask_of(n).float(),
    "mask, time first": lambda n: mask_of(n).T,
    "mask of three axes": lambda n: mask_of(n)[..., None],
    "attention mask": lambda n: mask_of(n)[:, None, None],
    "ids": lambda n: torch.where(mask_of(n), 7, 0),
    "ids padded with 1": lambda n: torch.where(mask_of(n), 7, 1),
    "ids, time first": lambda n: torch.where(mask_of(n), 7, 0).T,
}
NESTS9 = {
    "arguments": lambda x, n: (x, n),
    "dict": lambda x, n: ({"x": x, "n": n},),
    "tuple": lambda x, n: ((x, n),),
    "named tuple": lambda x, n: (Pair9(x, n),),
    "dataclass": lambda x, n: (Batch9(x, n),),
    "dict of a list": lambda x, n: ({"x": [x], "n": (n, n)},),
}


def numbers_of(n):
    """What a trace keeps of lengths in any form: a number that differs between most of them."""
    numbers = torch.as_tensor(n).double()
    return sum((i + 1) * k for i, k in enumerate(numbers.flatten().tolist()))


@pytest.mark.parametrize("nest", NESTS9)
@pytest.mark.parametrize("form", FORMS9)
def test_lengths_are_varied_in_any_form(form, nest):
    def forward(self, batch, n=None):
        if isinstance(batch, dict):
            batch, n = batch["x"], batch["n"]
        elif isinstance(batch, (tuple, Batch9)):
            batch, n = (batch.x, batch.n) if hasattr(batch, "x") else batch
        batch = batch[0] if isinstance(batch, list) else batch
        n = n[0] if isinstance(n, tuple) and len(n) == 2 else n
        return batch * numbers_of(n)

    module = type("Net", (nn.Module,), {"forward": forward})()
    inputs = NESTS9[nest](torch.randn(B9, T9, 3), FORMS9[form](LENGTHS9))
    found = pv.check_static(module, inputs)
    assert "trace" in found.rules
    assert not found.ok


@pytest.mark.parametrize("form", ["int32", "mask", "padding mask", "ids", "parts", "a column"])
def test_lengths_in_other_forms_may_be_right(form):
    module = type("Net", (nn.Module,), {"forward": lambda self, x, n: x * n.double().sum()})()
    assert pv.check_static(module, (torch.randn(B9, T9, 3), FORMS9[form](LENGTHS9))).ok


def packing_with(lengths_of, *inputs):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(3, 4, batch_first=True)

        def forward(self, x, *other):
            n = lengths_of(x, *other)
            return self.rnn(pack_padded_sequence(x, n, batch_first=True, enforce_sorted=False))[1]

    return pv.check_static(Net(), (torch.rand(B9, T9, 3) + 0.1, *inputs))


@pytest.mark.parametrize(
    ("lengths_of", "inputs"),
    [
        (lambda x: LENGTHS9, ()),
        (lambda x: torch.full((B9,), x.shape[1]), ()),
        (lambda x, odd: odd.lengths, (type("Odd", (), {"__slots__": ("lengths",)})(),)),
        (lambda x, n: torch.tensor([2, 2, 2, 2]), (LENGTHS9,)),
    ],
)
def test_undecided_is_never_ok(lengths_of, inputs):
    for one in inputs:
        if hasattr(type(one), "__slots__") and not isinstance(one, torch.Tensor):
            one.lengths = LENGTHS9
    found = packing_with(lengths_of, *inputs)
    assert "undecided" in found.rules
    assert not found.ok
    assert found.verdict.startswith("Undecided: ")


class Closed9:
    __slots__ = ("n",)

    def __init__(self, n):
        self.n = n


@pytest.mark.parametrize(
    "hidden",
    [
        {"packed": pack_padded_sequence(torch.randn(B9, T9), [5, 3, 3, 2], batch_first=True)},
        Closed9(LENGTHS9),
        {"n": Closed9(LENGTHS9)},
        iter([1, 2]),
    ],
    ids=["packed in a dict", "slots", "slots in a dict", "iterator"],
)
def test_what_cannot_be_varied_is_undecided(hidden):
    module = type("Net", (nn.Module,), {"forward": lambda self, x, n, hidden: x / n[:, None]})()
    found = pv.check_static(module, (torch.randn(B9, T9), LENGTHS9, hidden))
    assert found.rules == ["undecided"]
    assert not found.ok


def test_inputs_that_only_look_like_lengths_give_no_false_alarm():
    class Net(nn.Module):
        def forward(self, x, n, label, weight):
            picked = nn.functional.one_hot(label, 2)  # takes 0 and 1 only
            return x / n[:, None] * picked.sum() * weight

    label, weight = torch.tensor([1, 0, 1, 1]), torch.tensor(0.5)
    assert pv.check_static(Net(), (torch.randn(B9, T9), LENGTHS9, label, weight)).rules == []


def test_channels_are_not_taken_for_time_steps():
    class Net(nn.Module):
        def forward(self, x, n):  # (B, C, T)
            assert n.max() <= x.shape[2]
            return x.sum(1).gather(1, n[:, None] - 1)

    found = pv.check_static(Net(), (torch.randn(B9, 9, T9), LENGTHS9))
    assert found.ok
    assert "fails" not in found.rules


def test_the_command_makes_token_ids_that_can_be_varied(tmp_path, capsys):
    (tmp_path / "nets.py").write_text(IDS9)
    for name, status in (("Right", 0), ("Wrong", 1)):
        assert cli.main(["check", f"{tmp_path}/nets.py:{name}"]) == status
        assert ("trace" in capsys.readouterr().out) == bool(status)


IDS9 = """
import torch
from torch import nn

class Right(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn = nn.Embedding(4, 3), nn.GRU(3, 2, batch_first=True)

    def forward(self, ids):
        output, _ = self.rnn(self.embed(ids))
        real = ids != 0
        return (output * real[..., None]).sum(1) / real.sum(1, keepdim=True)

class Wrong(Right):
    def forward(self, ids):
        return super().forward(ids) * max((ids != 0).sum(1).tolist())
"""


def test_what_gives_another_result_each_time_is_undecided():
    count = itertools.count()
    module = type("Net", (nn.Module,), {"forward": lambda self, x: x + next(count)})()
    found = pv.check_static(module, (torch.randn(B9, T9),))
    assert found.rules == ["undecided"]
    assert "another result each time" in found[0].message


def test_what_a_trace_refuses_is_not_ok():
    module = type("Net", (nn.Module,), {"forward": lambda self, x, n: x * n[:, None]})()
    inputs = torch.randn(B9, T9), LENGTHS9
    assert pv.check_static(module, inputs).ok
    module.register_full_backward_hook(lambda *_: None)
    found = pv.check_static(module, inputs)
    assert not found.ok
    assert found[0].message.startswith(
        "torch.jit.trace refuses the network: ValueError: Modules that have backward hooks"
    )


def test_values_of_the_data_may_be_kept_as_well():
    module = type("Net", (nn.Module,), {"forward": lambda self, x: x if x.sum() > 0 else -2 * x})()
    found = pv.check_static(module, (torch.ones(B9, T9),))
    assert not found.ok
    assert "with other numbers" in found[found.rules.index("trace")].message


# ---- 10. The legacy ONNX exporter ignores padding_value


class Largest10(nn.Module):
    """The largest output of an LSTM over time; all outputs are negative."""

    def __init__(self, padded):
        super().__init__()
        self.lstm, self.padded = nn.LSTM(3, 7), padded
        with torch.no_grad():
            self.lstm.bias_hh_l0[14:21] = -9  # of the cell input

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        return self.padded(self.lstm(packed)[0], x, lengths).amax(0)


def padded_with_infinity(packed, x, lengths):
    return rnn.pad_packed_sequence(packed, padding_value=float("-inf"), total_length=x.size(0))[0]


def masked_by_lengths(packed, x, lengths):
    output, _ = rnn.pad_packed_sequence(packed, total_length=x.size(0))
    padding = torch.arange(x.size(0))[:, None] >= lengths
    return output.masked_fill(padding[..., None], float("-inf"))


def in_onnx_runtime(module, x, lengths):
    """What ONNX Runtime gives for a module that the legacy exporter saw with lengths that are all equal."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        example = x, torch.full_like(lengths, x.size(0))
        torch.onnx.export(module, example, file, dynamo=False, input_names=["x", "lengths"])
    session = pytest.importorskip("onnxruntime").InferenceSession(file.getvalue())
    return torch.from_numpy(session.run(None, {"x": x.numpy(), "lengths": lengths.numpy()})[0])


def test_the_legacy_onnx_exporter_pads_with_0_and_check_static_says_so():
    x, lengths = torch.randn(5, 3, 3), torch.tensor([3, 5, 1])
    module = Largest10(padded_with_infinity).eval()
    want, got = module(x, lengths), in_onnx_runtime(module, x, lengths)
    assert (want < 0).all()
    assert got[0].eq(0).all()  # the first sequence has padding
    (found,) = [one for one in pv.check_static(module, (x, lengths)) if one.rule == "padding_value"]
    assert found.level == "warning"
    assert "legacy ONNX exporter" in found.message
    assert "28423" in found.message
    assert found.where.endswith('padding_value=float("-inf"), total_length=x.size(0))[0]')
    assert 'output.masked_fill(padding, float("-inf"))' in found.fix


def test_a_mask_by_the_lengths_is_right_in_onnx_and_has_no_finding():
    x = torch.randn(5, 3, 3)
    module = Largest10(masked_by_lengths).eval()
    for lengths in ([3, 5, 1], [5, 5, 5], [1, 1, 4]):
        n = torch.tensor(lengths)
        with torch.no_grad():
            assert torch.allclose(in_onnx_runtime(module, x, n), module(x, n), atol=1e-6)
    assert pv.check_static(module, (x, torch.tensor([3, 5, 1]))).rules == ["unsorted"]


@pytest.mark.parametrize(("value", "found"), [(0, False), (0.0, False), (-1, True), (float("nan"), True), (1e-9, True)])
@pytest.mark.parametrize("pad", [rnn.pad_packed_sequence, pv.pad_packed_sequence])
def test_every_padding_value_but_0_is_named(pad, value, found):
    module = Largest10(lambda packed, x, lengths: pad(packed, False, value, 5)[0])
    rules = pv.check_static(module, (torch.randn(5, 3, 3), torch.tensor([3, 5, 1]))).rules
    assert ("padding_value" in rules) == found


def test_the_table_of_compilers_has_both():
    cells = compilers.recorded().cells
    assert cells["maximum, padded with −inf"]["ONNX, legacy"].outcome == "WRONG"
    assert cells["maximum, masked"]["ONNX, legacy"].outcome == "right"


# ---- 11. explain_errors never fails, follows causes, and can be installed

X11 = torch.zeros(5, 3, 2)
SIGN11 = "packviz: "


def notes_of(call):
    """The notes of the error that a call raises within `explain_errors`."""
    with pytest.raises(Exception) as raised, pv.explain_errors():  # noqa: PT011 - any
        call()
    return [note for note in getattr(raised.value, "__notes__", []) if note.startswith(SIGN11)]


def unsorted_lengths():
    pack_padded_sequence(X11, [3, 5, 2])


@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize(
    "lengths",
    [
        torch.tensor(5),
        torch.tensor([[5], [3], [2]]),
        torch.tensor([[5, 3, 2]]),
        torch.zeros(2, 2, 2, dtype=torch.long),
        torch.tensor([]),
        [],
        5,
        None,
        "abc",
        [[5], [3], [2]],
        [5, None, 2],
        [5, float("nan"), 2],
        {"a": 5},
    ],
    ids=str,
)
def test_odd_lengths_get_a_note(lengths, enforce_sorted):
    (note,) = notes_of(lambda: pack_padded_sequence(X11, lengths, enforce_sorted=enforce_sorted))
    assert "passed: " in note


def test_two_axes_of_lengths_are_shown_in_the_callers_order():
    (note,) = notes_of(lambda: pack_padded_sequence(X11, torch.tensor([[3, 5, 2]]), enforce_sorted=False))
    assert "lengths=[[3, 5, 2]]" in note


class Raises11:
    """Whatever is asked of it fails."""

    def __getattr__(self, name):
        raise ZeroDivisionError(name)

    def __repr__(self):
        raise ZeroDivisionError("repr")


ODD11 = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.floats(),
    st.text(max_size=3),
    st.lists(
        st.one_of(st.integers(-1, 7), st.none(), st.floats(), st.lists(st.integers(0, 3), max_size=2)), max_size=5
    ),
    st.builds(lambda shape: torch.zeros(shape), st.lists(st.integers(0, 4), max_size=4)),
    st.builds(lambda shape: torch.ones(shape, dtype=torch.long), st.lists(st.integers(0, 4), max_size=4)),
    st.builds(lambda n: torch.tensor(n), st.lists(st.integers(-1, 6), max_size=5)),
    st.builds(lambda n: np.array(n), st.lists(st.integers(-1, 6), max_size=5)),
    st.builds(Raises11),
    st.builds(lambda: pack_padded_sequence(X11, [5, 3, 2])),
    st.builds(lambda: PackedSequence(X11, torch.tensor([5, 0]))),
    st.builds(lambda: torch.zeros(3, device="meta", dtype=torch.long)),
)
CALLS11 = {
    "pack": lambda a, b, flag: pack_padded_sequence(a, b, flag, not flag),
    "pack well": lambda a, b, flag: pack_padded_sequence(X11, b, flag, not flag),
    "pack sequence": lambda a, b, flag: rnn.pack_sequence([a, b], flag),
    "pad": lambda a, b, flag: rnn.pad_packed_sequence(a, flag, 0.0, b),
    "unpack": lambda a, b, flag: rnn.unpack_sequence(a),
    "run": lambda a, b, flag: nn.LSTM(2, 2, batch_first=flag)(a, b),
    "ours": lambda a, b, flag: pv.pack_padded_sequence(a, b, flag, not flag),
    "our pad": lambda a, b, flag: pv.pad_packed_sequence(a, flag, 0.0, b),
}


@given(st.sampled_from([*CALLS11]), ODD11, ODD11, st.booleans())
def test_the_explanation_itself_never_fails(call, a, b, flag):
    try:
        CALLS11[call](a, b, flag)
    except Exception as error:
        errors._explain(error)  # nothing here keeps back what it raises
        notes = getattr(error, "__notes__", [])
        assert len(notes) == 1 or call == "run"


class Odd11(Exception):
    def __str__(self):
        raise ZeroDivisionError


def raised_again(how):
    try:
        unsorted_lengths()
    except RuntimeError as error:
        if how == "from":
            raise Exception from error
        if how == "from none":
            raise Exception("it failed") from None
        if how == "text":
            raise Exception(str(error))  # noqa: B904
        if how == "odd":
            raise Odd11  # noqa: B904
        if how == "twice":
            try:
                raise KeyError("x") from error
            except KeyError as second:
                raise Exception("y") from second
        if how == "group":
            raise ExceptionGroup("several", [ValueError("z"), error])  # noqa: B904
        raise Exception  # noqa: B904


@pytest.mark.parametrize("how", ["plain", "from", "from none", "text", "odd", "twice", "group"])
def test_an_error_that_is_raised_again_is_explained(how):
    (note,) = notes_of(lambda: raised_again(how))
    assert note.startswith("packviz: Lengths not sorted (exhibit ")
    assert "\n  about: the RuntimeError before this: `lengths` array must be sorted" in note
    assert "lengths=[3, 5, 2]" in note


def test_an_explained_error_that_is_raised_again_has_one_note_that_is_seen():
    def again(how):
        try:
            with pv.explain_errors():
                unsorted_lengths()
        except RuntimeError as error:
            raise Exception from (error if how else None)

    assert notes_of(lambda: again(True)) == []  # Python shows the first error, with its note
    assert len(notes_of(lambda: again(False))) == 1


def test_causes_in_a_circle_end():
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first

    def fails():
        raise first

    assert notes_of(fails) == []


def test_a_call_that_nothing_uses_warns_with_its_line(recwarn):
    pv.explain_errors()
    gc.collect()
    (warning,) = recwarn.list
    assert str(warning.message).startswith("explain_errors() does nothing by itself; write `with pv.explain_errors():`")
    assert warning.filename == __file__
    assert linecache.getline(__file__, warning.lineno).strip() == "pv.explain_errors()"


def test_a_call_that_is_used_does_not_warn(recwarn):
    kept = pv.explain_errors()
    assert repr(kept).startswith("explain_errors() does nothing by itself")
    with kept:
        pass
    assert repr(kept) == "explain_errors(), in use"
    pv.explain_errors()(len)
    pv.explain_errors(len)
    pv.explain_errors().uninstall()
    del kept
    gc.collect()
    assert not recwarn.list


@pytest.mark.parametrize("what", [nn.LSTM, nn.LSTM(2, 2), 5, "text"])
def test_what_explain_errors_cannot_wrap_is_refused(what):
    with pytest.raises(
        TypeError, match=r"explain_errors wraps functions, and got (LSTM|an? \w+); decorate its forward"
    ):
        pv.explain_errors(what)


SCRIPT11 = """
import threading, torch, packviz as pv
from torch.nn.utils.rnn import pack_padded_sequence

def work():
    pack_padded_sequence(torch.zeros(5, 3, 2), [3, 5, 2])

{}
thread = threading.Thread(target=work)
thread.start()
thread.join()
work()
"""


@pytest.mark.parametrize(
    ("start", "notes", "warnings"),
    [
        ("pv.explain_errors().install()", 2, 0),
        ("pv.explain_errors().install(); pv.explain_errors().install()", 2, 0),
        ("pv.explain_errors().install(); pv.explain_errors().uninstall()", 0, 0),
        ("pv.explain_errors()", 0, 1),
        ("kept = pv.explain_errors()", 0, 1),
    ],
)
def test_a_script_says_what_became_of_its_errors(tmp_path, start, notes, warnings):
    (tmp_path / "script.py").write_text(SCRIPT11.format(start))
    done = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("packviz: Lengths not sorted") == notes
    assert done.stderr.count("script.py:8: RuntimeWarning: explain_errors() does nothing by itself") == warnings


def test_installed_in_ipython():
    code = "pv.explain_errors()", "pv.explain_errors().install()", "work()", "pv.explain_errors().uninstall()", "work()"
    shell = f"""
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell({SCRIPT11.split("{}")[0]!r})
for code in {code!r}:
    print("In:", code)
    shell.run_cell(code)
"""
    done = subprocess.run([sys.executable, "-c", shell], capture_output=True, text=True, check=True)
    _, alone, _, explained, _, plain = done.stdout.split("In:")
    assert "explain_errors() does nothing by itself" in alone
    assert explained.count("packviz: Lengths not sorted") == 1
    assert "RuntimeError" in plain
    assert SIGN11 not in plain


def test_hooks_that_were_put_around_ours_stay(monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "excepthook", lambda *given: seen.append(given[1]))
    before = sys.excepthook
    pv.explain_errors().install()
    try:
        ours = sys.excepthook
        sys.excepthook = theirs = lambda *given: ours(*given)
    finally:
        pv.explain_errors().uninstall()
    assert sys.excepthook is theirs
    assert ours is not before
    with pytest.raises(RuntimeError) as raised:
        unsorted_lengths()
    sys.excepthook(RuntimeError, raised.value, raised.value.__traceback__)
    assert seen == [raised.value]
    assert not hasattr(raised.value, "__notes__")


# ---- 12. diagnose says when it cannot judge


# ---- 13. What is almost certain is an error


# ---- 14. advise measures until it is clear, or says that it is not


# ---- 15. The names of a comparison are stable


# ---- 16. A truth table says which half it means


# ---- 17. A file's suffix and its contents agree


# ---- 18. A search says how sure it is


# ---- 19. A panel's complaint is in its text
