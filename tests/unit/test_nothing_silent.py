"""Tests all cases in which packviz was once wrong without a word, with similar cases beside each."""

from __future__ import annotations

import ast
import functools
import gc
import linecache
import math
import re
import sys
import types
from html import unescape
from pathlib import Path

import gpus
import numpy as np
import pytest
import torch
from clocks import Clock
from controls import move, words
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from specs import modules
from torch import nn
from torch.nn.utils import rnn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz import cli, panels
from packviz.check import errors
from packviz.check.findings import Finding, Findings
from packviz.check.compare import RESULTS
from packviz.check.truth import truth_table
from packviz.cli import main
from packviz.core.cuts import rectangles
from packviz.draw import quantities
from packviz.draw.drawing import Drawing
from packviz.draw.table import Table
from packviz.measure import advice, calibration, comparison, timing
from packviz.measure.comparison import PACKED, PADDED
from packviz.measure.timing import FEWEST_ROUNDS, median_interval
from packviz.ops import costs, original, packing, running
from packviz.ops.costs import Costs
from packviz.panels import AlignPanel
from packviz.panels.lengths import FILE, TYPED
from packviz.studies import compilers

ROOT = Path(__file__).parents[2]
sides = st.sampled_from(["left", "right"])

# ---- 1. Aligning says where the padding is, and can check it

IDS = torch.tensor([[1, 1, 1, 7, 8], [1, 4, 5, 6, 9]])  # left-padded with 1, as by a tokenizer
MASK = (IDS != 1).long()  # its attention_mask
RIGHT = [[7, 8, 1, 1, 1], [4, 5, 6, 9, 1]]


def laid(rows, steps, side, value):
    """Returns these rows as lists, `(B, T)`, with the padding on one side."""
    blank = [[value] * (steps - len(row)) for row in rows]
    return [b + row if side == "left" else row + b for row, b in zip(rows, blank, strict=True)]


@st.composite
def ragged_rows(draw, value=0, least=0):
    """Draws rows of numbers that never begin or end with this value, and a width that holds them."""
    numbers = st.integers(1, 9)
    inner = st.lists(st.integers(value, 9), max_size=4)
    row = st.one_of(
        st.lists(numbers, min_size=least, max_size=1),
        st.builds(lambda a, b, c: [a, *b, c], numbers, inner, numbers),
    )
    rows = draw(st.lists(row, min_size=1, max_size=4))
    return rows, max(map(len, rows)) + draw(st.integers(0, 2))


def test_padding_side_is_the_side_of_the_padding_in_the_result():
    """As `tokenizer.padding_side` has it: "right" puts the data first."""
    assert (
        pv.align(IDS, [2, 4], padding_side="right", batch_first=True, padding_value=1).tolist()
        == RIGHT
    )
    assert pv.align(IDS, [2, 4], batch_first=True, padding_value=1).tolist() == RIGHT
    back = pv.align(
        torch.tensor(RIGHT), [2, 4], padding_side="left", batch_first=True, padding_value=1
    )
    assert torch.equal(back, IDS)


@given(
    st.data(),
    sides,
    st.booleans(),
    st.integers(0, 2),
    st.sampled_from([torch.bool, torch.int64, torch.uint8]),
)
def test_any_mask_moves_its_real_cells_in_order(data, side, batch_first, more, dtype):
    size, steps = data.draw(st.integers(1, 4)), data.draw(st.integers(2, 6))
    mask = torch.tensor(data.draw(st.lists(st.lists(st.booleans(), min_size=steps, max_size=steps), min_size=size,
        max_size=size)))  # fmt: skip
    x = torch.arange(1.0, 1 + mask.numel() * 2).reshape(*mask.shape, 2).requires_grad_()
    width = int(mask.sum(1).max()) + more
    lying = x if batch_first else x.transpose(0, 1)
    moved = pv.align(
        lying, mask.to(dtype), padding_side=side, max_len=width, batch_first=batch_first
    )
    moved = moved if batch_first else moved.transpose(0, 1)
    rows = [x[b][mask[b]].tolist() for b in range(size)]
    assert moved.tolist() == laid(rows, width, side, [0.0, 0.0])
    moved.sum().backward()
    assert torch.equal(x.grad, mask[..., None].expand_as(x).float())


@pytest.mark.parametrize(
    ("mask", "options", "message"),
    [
        (MASK, {"source_side": "left"}, "source_side is 'left', but a mask .* omit source_side"),
        (MASK[:, :4], {}, r"mask has shape \(2, 4\), but x"),
        (
            MASK * 2,
            {},
            r"mask\[0, 3\] is 2; give True or 1 at real cells, and False or 0 at padding",
        ),
        (MASK.float(), {}, r"mask of torch.float32.*mask\.bool\(\).*0 and 1"),
        (MASK, {"max_len": 3}, r"mask.sum\(1\)\[1\] is 4, more than max_len \(3\)"),
    ],
)
def test_masks_that_cannot_be_meant(mask, options, message):
    with pytest.raises(ValueError, match=message):
        pv.align(IDS, mask, batch_first=True, **options)


CHECKED = {"batch_first": True, "padding_value": 1, "check_padding": 1}


@pytest.mark.parametrize(
    ("x", "lengths", "options", "message"),
    [
        (RIGHT, [2, 4], {}, "rows 0, 1 .*not 1.* lost.* fits source_side='right'"),  # aligned twice
        (
            IDS,
            [2, 4],
            {"padding_side": "left"},
            "rows 0, 1 .* fits source_side='left'",
        ),  # the wrong side
        (IDS, [2, 3], {}, "row 1 .*not 1.* lost"),  # lengths too short
        (IDS, [3, 4], {}, "row 0 .* begins or ends with 1"),  # lengths too long
        (IDS, 1 - MASK, {}, "rows 0, 1 .*True at real cells"),  # torch's kind of mask
    ],
)
def test_a_check_names_the_rows(x, lengths, options, message):
    with pytest.raises(ValueError, match=message):
        pv.align(torch.as_tensor(x), lengths, **{**CHECKED, **options})


@given(
    ragged_rows(),
    sides,
    sides,
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, float("nan"), 0.1]),
    st.data(),
)
def test_a_check_passes_what_is_right_and_nothing_else(
    batch, source, side, batch_first, vectors, value, data
):
    rows, steps = batch
    lengths = [len(row) for row in rows]
    x = torch.tensor(laid(rows, steps, source, value), dtype=torch.float32).reshape(
        len(rows), steps
    )
    x = torch.stack([x, x.where(x == 0, x + 1)], -1) if vectors and value == 0 else x
    lying = x if batch_first else x.transpose(0, 1)
    options = {"padding_side": side, "batch_first": batch_first, "check_padding": value}
    unchecked = pv.align(
        lying, lengths, **{**options, "source_side": source, "check_padding": None}
    )
    assert torch.equal(pv.align(lying, lengths, source_side=source, **options), unchecked)
    wrong = [data.draw(st.integers(0, steps)) for _ in lengths]
    rows_off = [b for b, (n, m) in enumerate(zip(lengths, wrong, strict=True)) if n != m]
    assume(rows_off)
    with pytest.raises(ValueError, match=f"row(s .*,)? {rows_off[-1]} "):
        pv.align(lying, wrong, source_side=source, **options)


# ---- 2. A name that contains "padding" is True at padding


def renamed():
    """Returns the old and new names in docs/renamed.md, without names that are gone."""
    public, _ = (
        (ROOT / "docs" / "renamed.md").read_text(encoding="utf-8").split("## Inside the package")
    )
    return re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", public, re.MULTILINE)


def test_every_old_name_is_in_the_table():
    names = {old: new for old, new in renamed() if re.fullmatch(r"pv\.\w+", old)}
    assert names == {f"pv.{old}": f"pv.{new}" for old, new in pv._RENAMED.items()}
    assert {"pv.padding_mask", "pv.align(to=)", "pv.align(source=)"} <= {
        old for old, _ in renamed()
    }
    attributes = [(old, new) for old, new in renamed() if old.startswith("advice.")]
    assert attributes == [
        (f"advice.{old}", f"advice.{new}") for old, new in advice._RENAMED.items()
    ]


@pytest.mark.parametrize(("old", "new"), renamed())
def test_every_old_name_raises_and_names_the_new_one(old, new):
    where, _, argument = old.removesuffix("=)").partition("(")
    if argument:
        new = new.removesuffix("=)").partition("(")[2]
        sense = (
            ".*side of the padding.*opposite side" if "_side" in new or argument == "side" else ""
        )
        with pytest.raises(TypeError, match=f"argument {argument}= is now {new}={sense}"):
            eval(where, {"pv": pv, "AlignPanel": AlignPanel})(**{argument: "left"})
    else:
        with pytest.raises(AttributeError, match=f"{where} is now {new}"):
            eval(where, {"pv": pv, "advice": object.__new__(advice.Advice)})


def test_no_public_name_with_padding_is_true_at_real_cells():
    assert not [name for name in pv.__all__ if "padding" in name]
    said = (
        (ROOT / "README.md").read_text(encoding="utf-8")
        + pv.Layout.from_mask.__doc__
        + pv.real_mask.__doc__
    )
    assert not re.findall(r"(?<!key_)padding[_ ]mask", said)


# ---- 3. A square batch without batch_first warns

SQUARE = torch.tensor([[1.0, 2, 3], [4, 5, 0], [6, 0, 0]])
READERS = {
    "masked_loss": pv.masked_loss,
    "align": pv.align,
    "align by a mask": lambda x, n, **first: pv.align(x, pv.real_mask(n, 3), **first),
    "show": pv.show,
    "diagnose": pv.diagnose,
    "Aligned.of": pv.draw.Aligned.of,
    "Aligned.of a mask": lambda x, n, **first: pv.draw.Aligned.of(x, pv.real_mask(n, 3), **first),
    "Layout.from_padded": lambda x, n, **first: pv.Layout.from_padded(x.shape, n, **first),
}


@pytest.mark.parametrize("name", READERS)
def test_a_square_batch_warns_where_it_is_read(name):
    with pytest.warns(
        UserWarning, match=r"\(3, 3\).* \(T, B.*batch_first=False.*batch_first=True"
    ) as said:
        READERS[name](SQUARE, [3, 2, 1])
    assert len(said) == 1
    assert said[0].category is UserWarning
    assert said[0].filename == __file__


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("batch_first", [False, True])
def test_who_says_it_is_not_warned(name, batch_first):
    READERS[name](SQUARE, [3, 2, 1], batch_first=batch_first)  # warnings are errors here


@pytest.mark.parametrize("x", [torch.ones(3, 2), torch.ones(1, 1)])
def test_no_warning_where_the_sizes_tell_or_do_not_matter(x):
    lengths = [1] * x.shape[1]
    pv.masked_loss(x, lengths)
    pv.align(x, lengths)
    pv.show(x, lengths)
    pv.diagnose(x, lengths)


# ---- 4. run takes batch_first; its results in either order are in tests/unit/ops/test_running.py


@pytest.mark.parametrize("first", [True, False])
def test_where_the_other_order_fits_the_error_names_batch_first(first):
    rnn, x = nn.GRU(3, 4, batch_first=first), torch.randn(*((2, 5) if first else (5, 2)), 3)
    for how in ({}, {"batch_first": first}):
        for call in (lambda *given, **how: pv.run(rnn, *given, **how), pv.Ragged(rnn)):
            with pytest.raises(ValueError, match=rf"did you mean batch_first={not first}\?"):
                call(x, [2, 1, 1, 2, 1], **how)


# ---- 5. patch_torch names every holder of torch's functions

HOLDERS = """
import collections, dataclasses, functools, types
import torch
from torch.nn.utils import rnn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence as pad

class Tagger(torch.nn.Module):
    attribute = pad
    static = staticmethod(pad)
    table = {"pad": pad}

    def __init__(self):
        super().__init__()
        self.pack = pack_padded_sequence
        self.steps = [pad, len]
        self.disabled = torch.compiler.disable(pad)

@dataclasses.dataclass(frozen=True)
class Frozen:
    pad: object

def default(x, pad=pad, n=0):
    return pad

def make(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function
    return wrapper

wrapped = make(pad)
take = functools.partial(pad, batch_first=True)
TABLE = {"pad": pad, "more": [pad]}
model, frozen = Tagger(), Frozen(pad)

PAIR = pad, pack_padded_sequence
SET = {pad}
QUEUE = collections.deque([pad])
"""
REPLACED = {  # what `everywhere=True` replaces: attributes, and entries of dicts
    "pack_padded_sequence": lambda m: m.pack_padded_sequence,
    "pad": lambda m: m.pad,
    "Tagger.attribute": lambda m: m.Tagger.attribute,
    "Tagger.table['pad']": lambda m: m.Tagger.table["pad"],
    "<Tagger object>.pack": lambda m: m.model.pack,
    "<Frozen object>.pad": lambda m: m.frozen.pad,
    "TABLE['pad']": lambda m: m.TABLE["pad"],
}
NAMED = {  # what it only names
    "Tagger.static.__func__": lambda m: m.model.static,
    "<Tagger object>.steps[0]": lambda m: m.model.steps[0],
    "<Tagger object>.disabled.__wrapped__": lambda m: m.model.disabled.__wrapped__,
    "default.__defaults__[0]": lambda m: m.default(0),
    "make.<locals>.wrapper.__closure__[0].cell_contents": lambda m: m.wrapped(),
    "make.<locals>.wrapper.__wrapped__": lambda m: m.wrapped.__wrapped__,
    "TABLE['more'][0]": lambda m: m.TABLE["more"][0],
    "take.func": lambda m: m.take.func,
    "PAIR[0]": lambda m: m.PAIR[0],
    "PAIR[1]": lambda m: m.PAIR[1],
    "SET (in a set)": lambda m: next(iter(m.SET)),
    "QUEUE (in a deque)": lambda m: m.QUEUE[0],
}


@pytest.fixture
def holders(monkeypatch):
    """Makes a module that holds torch's functions in many places."""
    module = types.ModuleType("held")
    monkeypatch.setitem(sys.modules, "held", module)
    exec(HOLDERS, vars(module))
    yield module
    vars(module).clear()


def of_held(names):
    """Returns the names in that module, without the name of the module."""
    return {name.replace("held.", "") for name in names if name.startswith(("held.", "<held."))}


def what(module):
    """Returns what each of its places holds."""
    return {name: at(module) for name, at in (REPLACED | NAMED).items()}


@pytest.mark.parametrize("everywhere", [False, True])
def test_every_holder_is_named_and_replaced_where_it_can_be(holders, everywhere):
    before = what(holders)
    for _ in range(3):  # specialised calls, too, must see the other function
        holders.default(0), holders.wrapped(), holders.model.static
    with pytest.warns(
        UserWarning, match="These places still refer to torch's functions: "
    ) as caught:
        patch = pv.patch_torch(everywhere=everywhere)
    during, replaced, unreached = what(holders), of_held(patch.replaced), of_held(patch.unreached)
    patch.undo()
    assert what(holders) == before
    assert all(function.__module__ == "torch.nn.utils.rnn" for function in before.values())
    wanted = ({*REPLACED}, {*NAMED}) if everywhere else (set(), {*REPLACED, *NAMED})
    for names, found in zip(wanted, (replaced, unreached), strict=True):
        assert names <= found
        assert all(
            "disabled" in name or "static" in name for name in found - names
        )  # these hold it several times
    for name, function in before.items():
        ours = everywhere and name in REPLACED
        assert during[name] is (getattr(packing, function.__name__) if ours else function), name
    assert list(patch.unreached) == sorted(set(patch.unreached))
    assert not any(
        name.startswith(("torch.", "packviz.", "<torch.", "<packviz.")) for name in patch.unreached
    )
    assert all(one in repr(patch) for one in patch.unreached)
    [warning] = caught
    assert warning.filename == __file__
    assert ("everywhere=True" in str(warning.message)) is not everywhere
    assert all(one in str(warning.message) for one in patch.unreached[:3])


@pytest.fixture(scope="module")
def ran(fork, tmp_path_factory):
    """Returns `ran(code)`, which runs a program once and returns its status, its output and its errors."""

    @functools.cache
    def ran(code, *before):
        script = tmp_path_factory.mktemp("program") / "script.py"
        script.write_text(code)
        done = fork(RUN, *(before or [script]), *before and [script, "--", "--help"])
        return done.returncode, done.stdout, done.stderr

    return ran


RUN = """
import runpy, sys
del sys.argv[0]
(runpy.run_path if sys.argv[0].endswith(".py") else runpy.run_module)(sys.argv[0], run_name="__main__")
"""
PATCHED5 = "import sys; from torch.nn.utils import rnn; print(rnn.pack_sequence.__module__, *sys.argv[1:]); sys.exit(7)"


def test_packviz_patched_runs_a_program_under_the_patch(ran):
    assert ran(PATCHED5, "packviz", "patched")[:2] == (7, "packviz.ops.packing -- --help\n")


def sources():
    """Returns every file of packviz, parsed."""
    house = Path(pv.__file__).parent
    return {
        str(path.relative_to(house)): ast.parse(path.read_text(encoding="utf-8"))
        for path in house.rglob("*.py")
    }


def test_no_file_that_is_read_can_run_code():
    wanted = {"torch.load": ("weights_only", True), "np.load": ("allow_pickle", False)}
    seen = set()
    for path, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                # The workers of a study hand each other what they found in a folder that only they
                # know.
                allowed = {"pickle"} if path == "studies/workers.py" else set()
                assert (
                    not {"pickle", "joblib", "dill"} & {one.name for one in node.names} - allowed
                ), path
            if isinstance(node, ast.Call) and (name := ast.unparse(node.func)).endswith(".load"):
                if name in wanted:
                    keyword, value = wanted[name]
                    assert [
                        ast.literal_eval(one.value) for one in node.keywords if one.arg == keyword
                    ] == [value], path
                    seen.add(name)
                else:
                    assert name.partition(".")[0] not in ("torch", "np", "numpy"), f"{path}: {name}"
    assert seen == {*wanted}


# ---- 6. The oracle is always torch's own function


def test_no_other_file_reaches_torchs_functions():
    """No file does so by an import or through the module, as in `rnn.pack_sequence` and `getattr(rnn, name)`."""
    own = ("original", "packing", "pv", "module", "self")
    for path, tree in sources().items():
        if path == "ops/original.py":
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                names = {one.name for one in node.names}
                assert node.module != "torch.nn.utils.rnn" or not {*original.NAMES, "*"} & names, (
                    path
                )
                assert (
                    node.module != "torch.nn.utils"
                    or "rnn" not in names
                    or path == "ops/patching.py"
                ), path
            if isinstance(node, ast.Import):
                assert not any(one.name.startswith("torch.nn.utils") for one in node.names), path
            if isinstance(node, ast.Attribute) and node.attr in original.NAMES:
                assert ast.unparse(node.value) in own, f"{path}: {ast.unparse(node)}"
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "nn.utils.rnn":
                raise AssertionError(path)


def test_a_comparison_under_a_patch_calls_torchs_functions(monkeypatch):
    def ours(*arguments, **named):
        raise AssertionError("packviz's function was called")

    for name in original.NAMES:  # as a patch does, without its search for other places
        monkeypatch.setattr(rnn, name, ours)
    assert pv.compare(torch.nn.GRU(2, 3), torch.randn(5, 2, 2), [5, 2]).needs_packing("h_n")
    assert truth_table("RNN").answers[1].right["h_n"]


# ---- 7. plan and run never disagree


@pytest.fixture
def taken(monkeypatch):
    """Records the method that `run` really uses, and the number of its rectangles."""
    seen, stairs = [], running.staircase.run

    def spy(module, name, method):
        real = getattr(module, name)
        monkeypatch.setattr(
            module,
            name,
            lambda *given, **how: (seen.append((method, None)), real(*given, **how))[1],
        )

    def staircase(*given, grid, **how):
        seen.append(("padded", None) if grid.order is None else ("staircase", len(grid.rectangles)))
        return stairs(*given, grid=grid, **how)

    spy(running, "_packed", "packed")
    spy(running, "_as_it_is", "padded")
    spy(running.split, "run", "split")
    monkeypatch.setattr(running.staircase, "run", staircase)
    return seen


def batches(most):
    """Draws lengths of at most so many sequences and time steps."""
    return st.one_of(
        st.lists(st.integers(1, most), min_size=1, max_size=most).filter(
            lambda n: max(n) > 1
        ),  # torch waits at [1]
        st.integers(2, most).map(lambda n: [n] * 5),
        st.just([*range(1, most + 1)] * 2),
    )


KERNELS = ("packed", "rectangles", "fused", "split", "whole")


@pytest.mark.parametrize(("device", "measured"), [("cpu", True), ("meta", True), ("meta", False)])
def test_what_plan_says_is_what_run_does(device, measured, taken, monkeypatch):
    """The meta device stands in for CUDA. Which kernel is fast is drawn, so that every method is chosen."""
    if device == "meta":
        gpus.stand_in(monkeypatch)
    every, kind = set(), {"cpu": "cpu", "meta": "cuda"}[device]

    @given(
        modules(hidden=(2, 16, 64, 300), layers=2, device=device),
        batches(40 if device == "cpu" else 8),  # the meta device is slow
        st.sets(st.sampled_from(KERNELS)),
        st.sampled_from(["weights", "x", "nothing", "no_grad", "hook"]),
    )
    @settings(phases=[Phase.generate], max_examples=40)  # to shrink a failure takes minutes
    def holds(rnn, lengths, fast, gradient):
        rnn.requires_grad_(gradient != "nothing" and gradient != "x")
        shape = (len(lengths), max(lengths)) if rnn.batch_first else (max(lengths), len(lengths))
        x = torch.zeros(*shape, rnn.input_size).to(rnn.weight_ih_l0).requires_grad_(gradient == "x")
        if gradient == "hook":
            rnn.register_forward_hook(lambda *given: None)
        training = gradient not in ("nothing", "no_grad")
        constants = [gpus.constants(kind, fast)] if measured else []
        with gpus.in_force(*constants), torch.set_grad_enabled(gradient != "no_grad"):
            planned = pv.plan(rnn, lengths, training=training)
            taken.clear()
            pv.run(rnn, x, lengths)
            for method, count in set(taken):
                assert method == planned.method
                assert count is None or count == len(rectangles(lengths, planned.cuts))
            assert len(set(taken)) == 1
            if (
                running.is_fused(rnn.mode, rnn.weight_ih_l0, bool(rnn.proj_size))
                and gradient != "hook"
            ):
                assert pv.plan(pv.Spec.of(rnn), pv.Layout(lengths), training=training) == planned
        ragged = len(set(lengths)) > 1
        if rnn.mode == "RNN_RELU" and ragged:
            assert planned.method in ("packed", "split")
        if (
            not measured and gradient != "hook"
        ):  # ---- 8. Constants that nobody measured choose nothing
            assert planned.method == ("packed" if ragged else "padded")
            assert not planned.seconds
            if ragged or training:
                assert "no constants have been measured on a GPU" in planned.reason
                assert "calibrate('cuda')" in planned.to_text()
        every.add(planned.method)
        assert planned.reason in planned.to_text()

    holds()
    assert {"packed", "padded"} <= every


# ---- 8. Constants that nobody measured choose nothing


@pytest.fixture
def gpu(monkeypatch):
    gpus.stand_in(monkeypatch)
    with gpus.in_force():
        yield


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_constants_without_a_provenance_choose_nothing(device):
    with gpus.in_force(Costs(device, gpus.constants(device, ("split",)).seconds)):
        found = costs.choose(pv.Spec("LSTM", 8, 8), (5, 3), device=device)
        assert (found.method, dict(found.seconds)) == ("packed", {})
        assert (
            f"no constants have been measured on a {'GPU' if device == 'cuda' else 'CPU'}"
            in found.reason
        )
        assert costs.staircase(pv.Spec("LSTM", 8, 8), (5, 3, 3, 1), True, device) == (0, 1, 3, 5)
        assert "not measured" in repr(costs.in_force(device))


def calibrated(device, modes):
    """Returns constants for some RNNs from made-up times, in which a run takes 1 µs per cell, and 9 when packed."""

    def seconds(spec, training, run):
        return 1e-6 * run.amount[2] * (9 if run.name == "packed" else 1)

    name = f"a {device} that is made up"
    return gpus.calibrated(device, modes, seconds, device_name=name, date="2026-11-22T10").costs


def test_constants_measured_on_a_gpu_choose(gpu, tmp_path):
    rnn, lengths = nn.LSTM(3, 16, device="meta"), [9, 8, 8]
    assert pv.plan(rnn, lengths).method == "packed"
    measured = calibrated("cuda", calibration.MODES)
    measured.save(tmp_path / "mine.json")
    for constants in (measured, Costs.load(tmp_path / "mine.json")):
        with gpus.in_force(constants):
            found = pv.plan(rnn, lengths)
            assert found.method != "packed"
            assert set(found.seconds) >= {"packed", "padded", "split"}
            assert found.reason == "constants measured on a cuda that is made up, 2026-11-22"


def test_a_plan_says_where_its_constants_come_from(monkeypatch):
    shipped = costs.in_force("cpu", torch.get_num_threads())
    name, threads = shipped.provenance["device_name"], shipped.provenance["threads"]
    said = (
        f"constants measured on {name}, torch threads: {threads}, {shipped.provenance['date'][:10]}"
    )
    for here, more in (
        (name, ""),
        ("a toaster", "; this machine has a different processor, a toaster"),
    ):
        monkeypatch.setattr(costs, "cpu_name", lambda here=here: here)
        with gpus.in_force():
            planned = pv.plan(pv.Spec("LSTM", 8, 8), [5, 3])
        assert planned.reason == said + more
        assert repr(planned).endswith(f"reason: {planned.reason}")
    monkeypatch.setattr(costs, "_gpu_name", lambda: "GPU 2")
    assert costs.origin(
        {"device": "cuda:0", "device_name": "GPU 1", "threads": 4, "date": "2026-11-22"}
    ) == ("constants measured on GPU 1, 2026-11-22; this machine has a different processor, GPU 2")


def test_constants_taken_over_keep_their_origin():
    """`calibrate(modes=["LSTM"])` measures an LSTM here: those of a GRU are still those of the other machine."""
    before = pv.plan(pv.Spec("GRU", 8, 8), [5, 3]).reason
    with gpus.in_force(calibrated("cpu", ["LSTM"])):
        assert "a cpu that is made up" in pv.plan(pv.Spec("LSTM", 8, 8), [5, 3]).reason
        assert pv.plan(pv.Spec("GRU", 8, 8), [5, 3]).reason == before


# ---- 9. check_static is not ok where a trace freezes a length: tests/unit/check/test_static.py

# ---- 10. The legacy ONNX exporter ignores padding_value; check_static names every value but 0: the
# same file


def test_the_table_of_compilers_has_both():
    cells = compilers.recorded().cells
    assert cells["maximum, padded with −inf"]["ONNX, legacy"].outcome == "WRONG"
    assert cells["maximum, masked"]["ONNX, legacy"].outcome == "right"


# ---- 11. explain_errors never fails, follows causes, and can be installed

X11 = torch.zeros(5, 3, 2)
SIGN11 = "packviz: "


def notes_of(call):
    """Returns the notes of the error that a call raises within `explain_errors`."""
    with pytest.raises(Exception) as raised, pv.explain_errors():
        call()
    return [note for note in getattr(raised.value, "__notes__", []) if note.startswith(SIGN11)]


def unsorted_lengths():
    pack_padded_sequence(X11, [3, 5, 2])


@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize(
    "lengths",
    [
        *(torch.tensor(5), torch.tensor([[5], [3], [2]]), torch.tensor([])),
        *(5, None, "abc", [[5], [3], [2]], [5, float("nan"), 2]),
    ],
    ids=str,
)
def test_odd_lengths_get_a_note(lengths, enforce_sorted):
    (note,) = notes_of(lambda: pack_padded_sequence(X11, lengths, enforce_sorted=enforce_sorted))
    assert "passed: " in note
    if str(lengths) in ("tensor(5)", "5", "abc", "[[5], [3], [2]]"):
        assert "list the number of real time steps of each sequence" in note


class Raises11:
    """An object on which every operation fails."""

    def __getattr__(self, name):
        raise ZeroDivisionError(name)

    def __repr__(self):
        raise ZeroDivisionError("repr")


ODD11 = st.one_of(
    st.none(),
    st.integers(-3, 9),
    st.text(max_size=3),
    st.lists(
        st.one_of(
            st.integers(-1, 7), st.none(), st.floats(), st.lists(st.integers(0, 3), max_size=2)
        ),
        max_size=5,
    ),
    st.builds(lambda shape: torch.zeros(shape), st.lists(st.integers(0, 4), max_size=4)),
    st.builds(lambda n: torch.tensor(n), st.lists(st.integers(-1, 6), max_size=5)),
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


def raised_again(how):
    try:
        unsorted_lengths()
    except RuntimeError as error:
        if how == "from":
            raise Exception from error
        if how == "text":
            raise Exception(str(error))
        if how == "twice":
            try:
                raise KeyError("x") from error
            except KeyError as second:
                raise Exception("y") from second
        if how == "group":
            raise ExceptionGroup("several", [ValueError("z"), error])
        raise Exception


@pytest.mark.parametrize("how", ["plain", "from", "text", "twice", "group"])
def test_an_error_that_is_raised_again_is_explained(how):
    (note,) = notes_of(lambda: raised_again(how))
    assert note.startswith("packviz: Lengths not sorted (exhibit ")
    assert "\n  about: the RuntimeError before this: `lengths` array must be sorted" in note
    assert "lengths=[3, 5, 2]" in note


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
    assert str(warning.message).startswith(
        "explain_errors() does nothing by itself; write `with pv.explain_errors():`"
    )
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
        TypeError, match=r"wraps functions, but got (LSTM|an? \w+); decorate its forward"
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


STARTS11 = {  # how the script starts, and how often an error is explained and a warning given
    "pv.explain_errors().install()": (2, 0),
    "pv.explain_errors().install(); pv.explain_errors().uninstall()": (0, 0),
    "pv.explain_errors()": (0, 1),
}
CELLS11 = (
    "pv.explain_errors()",
    "pv.explain_errors().install()",
    "work()",
    "pv.explain_errors().uninstall()",
    "work()",
)
SHELL11 = f"""
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell({SCRIPT11.split("{}")[0]!r})
for code in {CELLS11!r}:
    print("In:", code)
    shell.run_cell(code)
"""


@pytest.mark.parametrize("start", STARTS11)
def test_a_script_says_what_became_of_its_errors(start, ran):
    status, _, said = ran(SCRIPT11.format(start))
    warnings = re.findall(
        r"script\.py:8: RuntimeWarning: explain_errors\(\) does nothing by itself", said
    )
    assert (status, said.count("packviz: Lengths not sorted"), len(warnings)) == (
        1,
        *STARTS11[start],
    )


def test_installed_in_ipython(ran):
    _, alone, _, explained, _, plain = ran(SHELL11)[1].split("In:")
    assert "explain_errors() does nothing by itself" in alone
    assert explained.count("packviz: Lengths not sorted") == 1
    assert "RuntimeError" in plain
    assert SIGN11 not in plain


# ---- 12. diagnose says when it cannot judge

LENGTHS = [9, 4, 6, 2, 7]
REAL_CELLS = torch.arange(12) < torch.tensor(LENGTHS).unsqueeze(1)  # (B, T), true at real cells


def over_time(layer):
    """Applies a layer that takes `(B, C, T)` to `(B, T, C)`."""
    return lambda x: layer(x.transpose(1, 2)).transpose(1, 2)


def packed(x):
    output, _ = nn.LSTM(8, 6, batch_first=True)(pack_padded_sequence(x, LENGTHS, True, False))
    return pad_packed_sequence(output, True, total_length=12)[0]


LAYERS = {  # of floats, (B, T, 8); what says that the padding cannot be judged, or None if it stays constant
    "nothing": (lambda x: x, None),
    "dropout": (lambda x: nn.Dropout()(x), None),  # zeros stay zeros
    "dropout of padding that is not zero": (lambda x: nn.Dropout()(x + 1), "dropout"),
    "Linear": (lambda x: nn.Linear(8, 5)(x), None),
    "LayerNorm": (lambda x: nn.LayerNorm(8)(x + 1), None),
    "BatchNorm": (over_time(nn.BatchNorm1d(8)), None),
    "packed LSTM": (packed, None),
    "convolution": (over_time(nn.Conv1d(8, 5, 3, padding=1)), "convolution"),
    "positions": (lambda x: x + torch.randn(12, 8), "positions"),
    "InstanceNorm": (over_time(nn.InstanceNorm1d(8)), "each sequence has its own"),
    "padded with its last step": (
        lambda x: x.where(
            REAL_CELLS.unsqueeze(2), x[range(5), [n - 1 for n in LENGTHS]].unsqueeze(1)
        ),
        "each sequence has its own",
    ),
    "padded LSTM": (lambda x: nn.LSTM(8, 6, batch_first=True)(x)[0], "RNN"),
    "noise": (lambda x: x + 0.001 * torch.randn_like(x), "RNN"),
    "no values": (lambda x: x.to("meta"), "meta"),
    "nothing but zeros": (lambda x: 0 * x, "the same everywhere"),
}


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(("layer", "why"), LAYERS.values(), ids=LAYERS)
@torch.no_grad()
def test_12_padding_that_is_not_constant_is_undecided(layer, why, batch_first):
    torch.manual_seed(0)
    x = layer(torch.randn(5, 12, 8) * REAL_CELLS.unsqueeze(2))
    found = pv.diagnose(x if batch_first else x.transpose(0, 1), LENGTHS, batch_first=batch_first)
    assert found.undecided == bool(why)
    assert found.ok == (not why)
    assert ("undecided" in found.headline) == bool(why)
    assert found.headline.startswith("?" if why else "✓")
    if why:
        (one,) = found.of("warning")
        assert why in one.message
        assert "cannot" in one.message
        assert "pass " in one.fix


@pytest.mark.parametrize("layer", [nn.Embedding(40, 8), nn.Embedding(40, 8, padding_idx=0)])
@pytest.mark.parametrize("padding", [0, 1])
@torch.no_grad()
def test_12_token_ids_and_their_embeddings_are_judged(layer, padding):
    ids = torch.randint(2, 40, (5, 12)).masked_fill(~REAL_CELLS, padding)
    for x in (ids, ids.int(), layer(ids)):
        assert pv.diagnose(x, LENGTHS, batch_first=True).ok
        assert not pv.diagnose(x, sorted(LENGTHS), batch_first=True).ok


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@torch.no_grad()
def test_12_rounding_is_no_difference(dtype):
    """A linear layer rounds differently in different rows."""
    torch.manual_seed(0)
    for size in range(2, 12):
        n = torch.randint(1, 34, (size,))
        x = torch.randn(size, 33, 17) * (torch.arange(33) < n.unsqueeze(1)).unsqueeze(2)
        rounded = 1 + torch.finfo(dtype).eps * torch.randint(0, 2, (size, 33, 5)).to(dtype)
        assert not pv.diagnose(
            nn.Linear(17, 5)(x).to(dtype) * rounded, n, batch_first=True
        ).undecided


@pytest.mark.parametrize("size", [1, 4, 6])
def test_12_without_padding_there_is_nothing_to_judge_by(size):
    found = pv.diagnose(torch.randn(size, 6, 3), [6] * size, batch_first=True)
    assert found.rules == ["no padding"]
    assert found.ok
    assert not found.clean
    assert ("batch_first" in found[0].message) == (size == 6)


# ---- 13. What is almost certain is an error

X = torch.randn(8, 12, 3) * (
    torch.arange(12) < torch.tensor([[12, 3, 9, 1, 5, 7, 11, 4]]).T
).unsqueeze(2)
N = [12, 3, 9, 1, 5, 7, 11, 4]


def test_13_clean_means_that_nothing_was_found():
    assert Findings("N").clean
    for level in ("error", "warning", "info"):
        found = Findings("N", (Finding(level, "rule", "What."),))
        assert not found.clean
        assert found.ok == (level != "error")
    doubt = Findings("N", (Finding("warning", "undecided", "Why."),))
    assert doubt.undecided
    assert not doubt.ok


@pytest.mark.parametrize(
    ("x", "lengths", "plain", "strict"),
    [
        (X, N, 0, 0),
        (X, [12, 3, 7, 1, 5, 7, 11, 4], 1, 1),  # an error
        (X[:, :, 0].clone().index_fill(1, torch.tensor([11]), 0), N, 0, 0),  # an info
        (X[:, :, 0].ne(0) * torch.arange(1, 13), [12, *(n + 1 for n in N[1:])], 0, 1),  # a warning
        (X + torch.randn(12, 3), N, 1, 1),  # undecided
        (X, [12] * 8, 1, 1),  # a warning, and undecided
    ],
    ids=["right", "error", "info", "warning", "undecided", "all T"],
)
def test_13_the_exit_status(x, lengths, plain, strict, tmp_path, capsys):
    torch.save((x, lengths), tmp_path / "a.pt")
    command = ["diagnose", str(tmp_path / "a.pt"), "--batch-first"]
    assert cli.main(command) == plain
    assert cli.main([*command, "--strict"]) == strict
    assert ("undecided" in capsys.readouterr().out) == (
        plain == 1 and lengths[2] != 7
    )  # not the error


# ---- 14. advise measures until it is clear, or says that it is not

AUTO = f"pv.run, {comparison.METHODS[0]}"
QUIET = {"load_average": [0.9, 0.9, 0.9], "cores": 2}


def advised(monkeypatch, factor, *, place=QUIET, budget=20.0):
    """Returns the advice for calls that take the seconds of `factor(random, name)`, and what it took itself."""
    clock, random = Clock(monkeypatch, comparison), np.random.default_rng(0)

    def method(name):
        def run(rnn, x, lengths):
            clock.now += factor(random, name)
            return rnn(x)

        return run

    monkeypatch.setattr(advice, "every_method", lambda: {name: method(name) for name in MIDDLE})
    monkeypatch.setattr(timing, "provenance", lambda device, parameters: dict(place))
    monkeypatch.setattr(timing, "load_average", lambda: place["load_average"])
    found = advice.advise(nn.GRU(1, 2), [5, 3, 8, 2] * 16, batch_size=16, budget=budget)
    return found, clock.now - 100.0


MIDDLE = {PADDED: 1e-3, PACKED: 3e-3, AUTO: 2e-3}


def noisy(sigma, middle=MIDDLE):
    """Draws times around these medians; a factor of e^sigma up or down is usual."""
    return lambda random, name: middle[name] * math.exp(sigma * random.standard_normal())


def test_advise_stops_as_soon_as_it_knows(monkeypatch):
    found, spent = advised(monkeypatch, noisy(0.01))
    assert found.timing.is_narrow(PACKED)
    assert FEWEST_ROUNDS <= found.timing.rounds <= 8
    assert spent < 1.0  # of 20 seconds
    assert (found.best, found.is_clear) == (AUTO, True)
    assert "busy" not in found.to_text()
    assert "annot tell" not in found.to_text()


def test_advise_says_that_it_cannot_tell(monkeypatch):
    """Once, three rounds with a spread of 40 were reported as 93.3 % saved."""
    for sigma, budget in (
        (1.5, 1.0),
        (1.5, 0.2),
        (0.01, 0.05),
    ):  # some rounds with a huge spread; one or two; few
        found, _ = advised(monkeypatch, noisy(sigma, dict.fromkeys(MIDDLE, 3e-3)), budget=budget)
        assert found.best == PACKED
        assert not found.is_clear
        assert "annot tell" in found.verdict
        assert "saves" not in found.verdict
        assert "Give a larger budget, or repeat this on a quiet machine." in found.verdict


def test_advise_says_that_the_machine_is_busy(monkeypatch):
    loaded = {"load_average": [2.7, 1.0, 1.0], "cores": 2}
    found, _ = advised(
        monkeypatch, noisy(0.01), place=loaded, budget=1e-4
    )  # suffices for torch's packing alone
    assert found.verdict.startswith(
        "Cannot tell which is fastest; take the simplest, torch, packed."
    )
    assert (
        "Nothing else was measured.\nThe machine is busy: a load of 2.7 on 2 cores.\nGive"
        in found.verdict
    )
    for sigma in (0.01, 1.5):
        found, _ = advised(monkeypatch, noisy(sigma), place=loaded, budget=1.0)
        assert "The machine is busy: a load of 2.7 on 2 cores." in found.verdict
    found, _ = advised(monkeypatch, noisy(1.5), budget=1.0)
    assert re.search(
        r"The machine is busy: even in the middle half .* by a factor of \S+", found.verdict
    )


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 60),
    st.floats(0.01, 100),
    st.sampled_from(["lognormal", "cauchy", "exponential"]),
)
def test_an_interval_covers_the_median_at_the_stated_rate(seed, n, median, kind):
    """For any distribution, at least 95 % of 400 intervals cover the median, up to chance (four standard errors)."""
    random = np.random.default_rng(seed)
    draws = {
        "lognormal": lambda: np.exp(random.standard_normal(n)),
        "cauchy": lambda: 1 + random.standard_cauchy(n),
        "exponential": lambda: random.standard_exponential(n) / math.log(2),
    }
    intervals = [median_interval((median * draws[kind]()).tolist()) for _ in range(400)]
    covered = sum(low <= median <= high for low, high in intervals) / len(intervals)
    assert covered >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / 400)
    assert all(math.isinf(high) for _, high in intervals) == (n < FEWEST_ROUNDS)


@given(st.floats(1e-3, 1e4), st.floats(1e-3, 1), st.floats(1e-3, 1))
def test_a_number_is_rounded_to_what_is_known(value, below, above):
    interval = value * (1 - below), value * (1 + above)
    said = quantities.known(value, interval).replace(",", "")
    ends = quantities.between(interval).replace(",", "").split(" to ")
    assert float(ends[0]) <= interval[0] * (1 + 1e-6) + 1e-12
    assert float(ends[1]) >= interval[1] * (1 - 1e-6)
    assert abs(float(said) - value) <= max(interval[1] - interval[0], 0.005 * value)
    assert len(said.replace(".", "").strip("0")) <= 3


# ---- 15. The names of a comparison are stable


@given(st.sampled_from(["RNN", "GRU", "LSTM"]), st.booleans(), st.integers(1, 2), st.booleans())
def test_a_comparison_answers_by_the_same_names_for_every_rnn(cell, bidirectional, layers, on):
    rnn = getattr(torch.nn, cell)(2, 3, layers, bidirectional=bidirectional)
    x, lengths = torch.randn(5, 3, 2), [5, 2, 4]
    result = pv.compare(rnn, x, lengths, gradients=on)
    missing = set() if bidirectional else {"outputs_reverse"}
    missing |= set() if cell == "LSTM" else {"c_n"}
    missing |= set() if on else {"gradients", "gradients_outputs", "gradients_h_n"}
    for name in RESULTS:
        if name in missing:
            assert not hasattr(result.agrees, name)
            assert name not in dir(result.agrees)
            for ask in (result.agrees.__getitem__, result.needs_packing):
                with pytest.raises(
                    (KeyError, ValueError), match=f"this comparison has no {name}; "
                ):
                    ask(name)
        else:
            assert name in dir(result.agrees)
            assert result.agrees[name] is getattr(result.agrees, name)
            assert result.needs_packing(name) is not result.agrees[name]
    if bidirectional:
        assert result.agrees.outputs == (
            result.agrees.outputs_forward and result.agrees.outputs_reverse
        )
    else:
        assert result.agrees.outputs == result.agrees.outputs_forward
    if on:
        assert result.agrees.gradients == (
            result.agrees.gradients_outputs and result.agrees.gradients_h_n
        )


@pytest.mark.parametrize(
    "name", ["outputs at real steps", "outputs, reverse half", "Outputs", "", "hn", 0]
)
def test_a_result_that_does_not_exist_is_an_error(name):
    result = pv.compare(torch.nn.GRU(2, 3), torch.randn(5, 2, 2), [5, 2])
    for error, ask in (
        (KeyError, lambda: result.agrees[name]),
        (ValueError, lambda: result.needs_packing(name)),
        (AttributeError, lambda: getattr(result.agrees, str(name))),
    ):
        with pytest.raises(
            error,
            match="choose one of 'outputs', 'outputs_forward', 'outputs_reverse', 'h_n', 'c_n'",
        ):
            ask()


# ---- 16. A truth table says which half it means


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("cell", ["RNN", "GRU", "LSTM"])
def test_every_answer_of_a_truth_table_is_computed(cell, bias):
    """Each answer is computed again with torch's own functions, and each sequence run alone."""
    table, lengths = truth_table(cell, bias=bias), [5, 3, 2]
    assert len(table.answers) == 8
    for answer in table.answers:
        two = answer.directions == 2
        torch.manual_seed(0)
        module = getattr(torch.nn, cell)(
            3, 4, answer.layers, bias=bias, bidirectional=two, batch_first=True
        )
        x = torch.randn(len(lengths), max(lengths), 3)
        for b, n in enumerate(lengths):
            x[b, n:] = 0
        alone = [module(x[b, :n]) for b, n in enumerate(lengths)]
        packed = answer.method == "packed"
        y, state = module(rnn.pack_padded_sequence(x, lengths, True, False) if packed else x)
        y = rnn.pad_packed_sequence(y, True)[0] if packed else y
        (h_n, c_n), alone_h = (
            (state, [s[0] for _, s in alone])
            if cell == "LSTM"
            else ((state, None), [s for _, s in alone])
        )

        def same(pairs):
            return all(torch.allclose(one, other, atol=1e-5) for one, other in pairs)

        rows = list(enumerate(lengths))
        forward, reverse = [h[-2 if two else -1] for h in alone_h], [h[-1] for h in alone_h]
        expected = {
            "outputs, forward": same((y[b, :n, :4], alone[b][0][:, :4]) for b, n in rows),
            "outputs, reverse": same((y[b, :n, 4:], alone[b][0][:, 4:]) for b, n in rows)
            if two
            else None,
            "h_n": same((h_n[:, b], alone_h[b]) for b, _ in rows),
            "c_n": None if c_n is None else same((c_n[:, b], alone[b][1][1]) for b, _ in rows),
            "output at len-1, forward": same((y[b, n - 1, :4], forward[b]) for b, n in rows),
            "output at len-1, reverse": same((y[b, n - 1, 4:], reverse[b]) for b, n in rows)
            if two
            else None,
            "output[:, -1], forward": same((y[b, -1, :4], forward[b]) for b, _ in rows),
            "output[:, 0], reverse": same((y[b, 0, 4:], reverse[b]) for b, _ in rows)
            if two
            else None,
        }
        assert answer.right == expected


@pytest.mark.parametrize("cell", ["RNN", "GRU", "LSTM"])
def test_every_row_about_outputs_names_its_half(cell):
    table = truth_table(cell)
    names = [name for name, *_ in table.table.rows]
    assert all(
        ("forward" in name) != ("reverse" in name) for name in names if name.startswith("output")
    )
    assert ("c_n, padded" in names) == (cell == "LSTM")
    assert "output[:, -1], forward, as final state, padded" in names


# ---- 17. A file's suffix and its contents agree


def kind_of(content):
    """Returns the kind of a file, by its first bytes."""
    content = content.replace(b"<!doctype", b"<!DOCTYPE")
    heads = {
        b"\x89PNG": ".png",
        b"<svg": ".svg",
        b"<!DOCTYPE html>": ".html",
        b"<html": ".html",
        b"{": ".json",
    }
    return next((kind for head, kind in heads.items() if content.startswith(head)), ".txt")


class CairoStandIn:
    @staticmethod
    def svg2png(bytestring, scale):
        assert bytestring.startswith(b"<svg")
        assert (
            b"height:auto" not in bytestring
        )  # cairosvg would take it for a height of 0, and draw nothing
        return b"\x89PNG and so on"


def saved():
    """Returns one of each kind of result that can be saved."""
    return {
        "a picture": pv.show([3, 2]),
        "a count": pv.flops(nn.GRU(2, 3), [3, 2]),
        "a comparison": pv.compare(nn.GRU(2, 3), torch.zeros(3, 2, 2), [3, 2]),
        "a table": Table([["a", "1"]]),
        "attention": pv.draw.Attention(2, {"w": np.eye(2)}),
    }


@pytest.mark.parametrize("name", saved())
@pytest.mark.parametrize("suffix", [".svg", ".SVG", ".png", ".html", ".txt", ".pdf", ""])
def test_what_is_saved_is_what_the_suffix_says(name, suffix, tmp_path, monkeypatch):
    """An unknown suffix is refused with the list of suffixes, and no file is left."""
    monkeypatch.setitem(sys.modules, "cairosvg", CairoStandIn)
    one, path = saved()[name], tmp_path / f"o{suffix}"
    allowed = (".html .txt" if name == "a table" else ".svg .png .html .txt").split()
    if suffix.lower() not in allowed:
        wanted = f"its name must end in {', '.join(allowed[:-1])} or {allowed[-1]}, which sets the format"
        with pytest.raises(ValueError, match=re.escape(wanted)):
            one.save(path)
        assert not [*tmp_path.iterdir()]
        return
    one.save(path)
    content = path.read_bytes()
    assert kind_of(content) == suffix.lower()
    if suffix == ".txt" or (suffix == ".html" and isinstance(one, Drawing)):
        assert one.to_text().partition("\n")[0] in unescape(content.decode())


def test_a_png_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    with pytest.raises(
        ValueError, match=r"a PNG needs cairosvg \(python -m pip install cairosvg.*\.svg, .* do not"
    ):
        pv.show([3, 2]).save(tmp_path / "o.png")
    assert main(["show", "3", "--out", str(tmp_path / "o.png")]) == 2
    assert "packviz: a PNG needs cairosvg" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("command", [
    ["show", "5", "--out"],
    ["study", "savings", "--quick", "--out"],
    ["bench", "--quick", "--out"],
    ["bench", "plot", "nothing.json", "--out"],
])  # fmt: skip
def test_every_command_refuses_a_name_that_does_not_fit(command, tmp_path, monkeypatch, capsys):
    """It refuses the name before it measures anything."""
    monkeypatch.chdir(tmp_path)
    for name in ("o.pdf", "o", "o.json" if command[0] == "show" or "plot" in command else "o.svg"):
        assert main([*command, name]) == 2
        said = capsys.readouterr().err
        assert re.search(
            rf"packviz: --out is '{name}'; its name must end in .*\.\w+, which sets the format",
            said,
        )
    assert not [*tmp_path.iterdir()]


# ---- 19. A panel's complaint is in its text


def typed(panel, text):
    """Types a text into the panel's field, or into its picker's list."""
    field = getattr(panel, "typed", None) or getattr(panel, "lengths", None)
    if field is None or callable(field):
        move(panel.picker.kind, TYPED)
        field = panel.picker.typed
    move(field, text)


def uploaded(panel, name, content):
    move(panel.picker.kind, FILE)
    file = {
        "name": name,
        "type": "",
        "size": len(content),
        "last_modified": 0,
        "content": memoryview(content),
    }
    move(panel.picker.upload, [file])


BAD_LENGTHS = ["", "3, x", "3, 0", "2.5", "1e30", "[[1], [2]]"]
BAD_FILES = [
    ("a.csv", b"\xff\xfe\x00"),
    ("a.csv", b"x,y,z\n1,2,3\n"),
    ("a.json", b"{"),
    ("a.txt", b"no"),
]
BAD_CODE = ["def forward(", "x = 1", "def forward(self, x): return y"]
IN_FIELDS = [lambda panel, text=text: typed(panel, text) for text in BAD_LENGTHS]
IN_PICKERS = IN_FIELDS + [lambda panel, file=file: uploaded(panel, *file) for file in BAD_FILES]
IN_PICKERS += [lambda panel: setattr(panel.picker.kind, "value", FILE)]  # and no file yet
MANY = ", ".join(["3"] * 6000)

PANELS = {
    "AlignPanel": [*IN_FIELDS, lambda panel: typed(panel, "99, 98")],
    "BatchingPanel": [*IN_PICKERS, lambda panel: typed(panel, MANY)],
    "BenchmarkPanel": [lambda panel: move(panel.shortest, 300)],
    "CostPanel": IN_FIELDS,
    "GraphPanel": [],
    "MuseumPanel": [],
    "PackedPanel": [*IN_FIELDS, lambda panel: move(panel.enforce_sorted, True)],
    "PaddingPanel": IN_PICKERS,
    "RowPanel": [*IN_PICKERS, lambda panel: typed(panel, MANY)],
    "StaircasePanel": IN_PICKERS,
    "StatesPanel": [*IN_FIELDS, lambda panel: typed(panel, "2049")],
    "StaticPanel": [
        *IN_FIELDS,
        lambda panel: typed(panel, "2049"),
        *(lambda panel, code=code: move(panel.code, code) for code in BAD_CODE),
    ],
}
"""Every panel, with possible wrong inputs."""


def says_what_it_shows(panel):
    """Checks that every complaint is also in the text and in the stored output; returns the complaints."""
    shown = [words(field) for field in (panel.error, panel.note) if field.value]
    stored, panel.as_text.value = panel._repr_mimebundle_()["text/plain"], True
    for said in shown:
        assert said in panel.to_text()
        assert said in stored
        assert said in words(panel._words)
    panel.as_text.value = False
    return shown


@pytest.mark.parametrize("name", panels.__all__)
def test_what_a_panel_complains_of_is_in_its_text(name):
    for number, spoil in enumerate(PANELS[name]):
        panel = getattr(panels, name)()
        assert panel.to_text()
        panel.as_text.value = True  # the words follow a complaint while they are shown
        spoil(panel)
        assert panel.error.value, number
        assert words(panel.error) in words(panel._words)
        assert says_what_it_shows(panel)
        assert panel._view.describe() in panel.to_text()
        assert "The picture shows the last good input." in panel.to_text()
        panel.close()
