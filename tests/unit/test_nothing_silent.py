"""What packviz once got wrong without a word, each point with its neighbours, so that the list can be read in one place."""

from __future__ import annotations

import ast
import copy
import gc
import json
import os
import pickle
import subprocess
import sys
import types
import weakref
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils import rnn

import packviz as pv
from packviz import cli
from packviz.check.states import RESULTS
from packviz.check.truth import truth_table
from packviz.ops import original, packing

# ---- 1. Aligning says where the padding is, and can check it


# ---- 2. A name that contains "padding" is True at padding


# ---- 3. A square batch without batch_first warns


# ---- 4. run takes batch_first


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
        self.part = torch.nn.Sequential()
        self.part.pad = pad
        self.pair = len, pad

class Slotted:
    __slots__ = ("empty", "pad")

    def __init__(self):
        self.pad = pad

@dataclasses.dataclass(frozen=True)
class Frozen:
    pad: object

def default(x, pad=pad, n=0):
    return pad

def keyword(x, *, pad=pad):
    return pad

def in_default(x, steps=[pad]):
    return steps[0]

def make(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function
    return wrapper

wrapped = make(pad)
take = functools.partial(pad, batch_first=True)
mapped = functools.partial(map, pad)
named = functools.partial(dict, function=pad)
TABLE = {"pad": pad, "more": [pad]}
NAMESPACE = types.SimpleNamespace(pad=pad)
model, slotted, frozen = Tagger(), Slotted(), Frozen(pad)

PAIR = pad, pack_padded_sequence
SET = {pad}
KEYS = {pad: 1}
QUEUE = collections.deque([pad])
METHOD = types.MethodType(pad, 1)
PROPERTY = property(pad)
cached = functools.lru_cache(pad)
"""
REPLACED = {  # how `everywhere=True` reaches each place, and what is there
    "pack_padded_sequence": lambda m: m.pack_padded_sequence,
    "pad": lambda m: m.pad,
    "Tagger.attribute": lambda m: m.Tagger.attribute,
    "Tagger.static (a staticmethod)": lambda m: m.model.static,
    "Tagger.table['pad']": lambda m: m.Tagger.table["pad"],
    "<Tagger object>.pack": lambda m: m.model.pack,
    "<Tagger object>.steps[0]": lambda m: m.model.steps[0],
    "<Tagger object>.disabled.__wrapped__": lambda m: m.model.disabled.__wrapped__,
    "<Tagger object>._modules['part'].pad": lambda m: m.model.part.pad,
    "<Slotted object>.pad": lambda m: m.slotted.pad,
    "<Frozen object>.pad": lambda m: m.frozen.pad,
    "default's default argument 'pad'": lambda m: m.default(0),
    "keyword's default argument 'pad'": lambda m: m.keyword(0),
    "in_default's default argument 'steps'[0]": lambda m: m.in_default(0),
    "make.<locals>.wrapper's closure, variable 'function'": lambda m: m.wrapped(),
    "make.<locals>.wrapper.__wrapped__": lambda m: m.wrapped.__wrapped__,
    "take (a partial)": lambda m: m.take.func,
    "mapped (a partial), argument 0": lambda m: m.mapped.args[0],
    "named (a partial), argument 'function'": lambda m: m.named()["function"],
    "TABLE['pad']": lambda m: m.TABLE["pad"],
    "TABLE['more'][0]": lambda m: m.TABLE["more"][0],
    "NAMESPACE.pad": lambda m: m.NAMESPACE.pad,
}
NAMED = {  # what cannot be changed, or not safely
    "<Tagger object>.pair[1]": lambda m: m.model.pair[1],
    "PAIR[0]": lambda m: m.PAIR[0],
    "PAIR[1]": lambda m: m.PAIR[1],
    "SET (in a set)": lambda m: next(iter(m.SET)),
    "KEYS (as a key)": lambda m: next(iter(m.KEYS)),
    "QUEUE (in a deque)": lambda m: m.QUEUE[0],
    "METHOD.__func__": lambda m: m.METHOD.__func__,
    "PROPERTY.fget": lambda m: m.PROPERTY.fget,
    "cached (in a _lru_cache_wrapper)": lambda m: m.cached.__wrapped__,
}
WARNED = "ignore:Still torch's functions:UserWarning"  # this file and others of the tests have imported them, too


@pytest.fixture
def holders(monkeypatch):
    """A module that holds torch's functions in many ways."""
    module = types.ModuleType("held")
    monkeypatch.setitem(sys.modules, "held", module)
    exec(HOLDERS, vars(module))
    yield module
    vars(module).clear()


def of_held(names):
    """Which of the names are of that module, without its name."""
    return {name.replace("held.", "") for name in names if name.startswith(("held.", "<held."))}


def what(module):
    """What each of its places holds."""
    return {name: at(module) for name, at in (REPLACED | NAMED).items()}


@pytest.mark.filterwarnings(WARNED)
def test_every_holder_is_named(holders):
    before = what(holders)
    with pv.patch_torch() as patch:
        found = of_held(patch.unreached)
        assert what(holders) == before
    assert found >= {*REPLACED, *NAMED}
    assert all("disabled" in name for name in found - {*REPLACED, *NAMED})  # torch's wrapper holds it several times
    assert not any(name.startswith(("torch.", "packviz.", "<torch.", "<packviz.")) for name in patch.unreached)
    assert list(patch.unreached) == sorted(set(patch.unreached))


@pytest.mark.filterwarnings(WARNED)
def test_everywhere_replaces_what_can_be_replaced_and_names_the_rest(holders):
    before = what(holders)
    for _ in range(3):  # specialised calls, too, must see the other function
        holders.default(0), holders.keyword(0), holders.wrapped(), holders.model.static
    with pv.patch_torch(everywhere=True) as patch:
        during = what(holders)
        assert {*REPLACED} <= of_held(patch.replaced)
        assert of_held(patch.unreached) == {*NAMED}
    assert what(holders) == before
    for name, function in before.items():
        assert function.__module__ == "torch.nn.utils.rnn", name
        assert during[name] is (getattr(packing, function.__name__) if name in REPLACED else function), name


@pytest.mark.filterwarnings(WARNED)
@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 1, 0)])
def test_patches_end_in_any_order(holders, order):
    before = what(holders)
    patches = [pv.patch_torch(everywhere=everywhere) for everywhere in (True, False, True)]
    for i in order:
        wide = any(patches[k].everywhere and patches[k].is_in_force for k in range(3))
        assert (holders.pad is packing.pad_packed_sequence) == wide
        assert rnn.pad_packed_sequence is packing.pad_packed_sequence
        patches[i].undo()
    assert what(holders) == before
    assert rnn.pad_packed_sequence is original.pad_packed_sequence


@pytest.mark.filterwarnings(WARNED)
def test_undoing_leaves_third_functions_alone(holders):
    static = vars(holders.Tagger)["static"]
    with pv.patch_torch(everywhere=True):
        holders.pad = holders.TABLE["pad"] = holders.model.pack = len
        holders.default.__defaults__ = (len, 1)
        holders.model.steps.clear()
        del holders.Tagger.attribute, holders.slotted
        holders.take.__setstate__((len, (), {}, None))
    assert holders.pad is holders.TABLE["pad"] is holders.model.pack is holders.take.func is len
    assert holders.default.__defaults__ == (len, 1)
    assert holders.model.steps == []
    assert not hasattr(holders.Tagger, "attribute")
    assert vars(holders.Tagger)["static"] is static
    assert holders.keyword(0) is original.pad_packed_sequence


@pytest.mark.filterwarnings(WARNED)
def test_a_patch_keeps_no_object_alive(holders):
    tagger = weakref.ref(holders.model)
    with pv.patch_torch(everywhere=True):
        del holders.model
        gc.collect()
        assert tagger() is None


@pytest.mark.filterwarnings(WARNED)
def test_what_is_frozen_is_found_and_stays_frozen(holders):
    gc.freeze()
    with pv.patch_torch() as patch:
        assert {*REPLACED, *NAMED} <= of_held(patch.unreached)
        assert gc.get_freeze_count()


@pytest.mark.filterwarnings(WARNED)
def test_a_function_of_torchs_is_found_whoever_stands_in_its_place(holders, monkeypatch):
    """Somebody replaced torch's function before packviz was imported, after others had taken it."""
    monkeypatch.setattr(rnn, "pad_packed_sequence", lambda *arguments: None)
    monkeypatch.setattr(original, "pad_packed_sequence", original._made_anew("pad_packed_sequence"))
    with pv.patch_torch() as patch:
        assert patch.foreign == ("torch.nn.utils.rnn.pad_packed_sequence",)
        assert "held.pad" in patch.unreached


def test_the_warning_names_them_once_and_points_at_the_call(holders):
    for everywhere, name in ((False, "held.Tagger.attribute"), (True, "held.PAIR[0]")):
        with pytest.warns(UserWarning, match="Still torch's functions, imported before: ") as caught:
            patch = pv.patch_torch(everywhere=everywhere)
        patch.undo()
        [warning] = caught
        assert warning.filename == __file__
        assert name in patch.unreached
        assert all(one in repr(patch) for one in patch.unreached)
        assert ("everywhere=True" in str(warning.message)) is not everywhere
        assert all(one in str(warning.message) for one in patch.unreached[:3])


FIRST = """
import sys, warnings
warnings.simplefilter("error")
import packviz as pv
patch = pv.patch_torch()
assert patch.unreached == (), patch
from torch.nn.utils.rnn import pack_padded_sequence
patch.undo()
take = pack_padded_sequence
assert pv.patch_torch().unreached == ()
"""


def test_nothing_is_warned_of_where_the_call_comes_first():
    subprocess.run([sys.executable, "-c", FIRST], check=True)


PROGRAM = """
import json, os, sys
import beside
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

class Pickled: pass

import pickle
assert type(pickle.loads(pickle.dumps(Pickled()))) is Pickled
import signal
here = {
    "argv": sys.argv, "path": os.path.realpath(sys.path[0]), "name": __name__, "file": os.path.realpath(__file__),
    "main": vars(sys.modules["__main__"]) is globals(), "errors": sys.stdout.errors,
    "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
}
print(json.dumps([here, pack_padded_sequence.__module__, pad_packed_sequence.__module__]))
if "--fail" in sys.argv:
    raise ValueError("mine")
sys.exit(7 if "--exit" in sys.argv else 0)
"""


def ran(place, *words):
    """The process of a program, and what it wrote on standard output."""
    done = subprocess.run([sys.executable, *words], cwd=place, capture_output=True, text=True, env=ENVIRONMENT)
    return done, json.loads(done.stdout) if done.stdout.startswith("[") else done.stdout


ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(pv.__file__).parents[1])}


@pytest.fixture
def program(tmp_path):
    (tmp_path / "package").mkdir()
    for name in ("train.py", "package/__main__.py", "package/train.py"):
        (tmp_path / name).write_text(PROGRAM)
    for name in ("beside.py", "package/beside.py", "package/__init__.py"):
        (tmp_path / name).write_text("")
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["train.py", "--help", "--", "-m", "x", "--exit"],
        ["--", "package/train.py", "--help"],
        ["package"],
        ["-m", "package.train", "--", "--version", "y"],
    ],
)
def test_packviz_patched_runs_a_program_as_python_does(program, words):
    theirs, (told, *modules) = ran(program, *words)
    assert modules == ["torch.nn.utils.rnn"] * 2
    ours, (found, *modules) = ran(program, "-m", "packviz", "patched", *words)
    assert modules == ["packviz.ops.packing"] * 2
    assert found == told
    assert ours.returncode == theirs.returncode
    assert not ours.stderr


def test_the_errors_of_a_program_are_its_own(program):
    done, _ = ran(program, "-m", "packviz", "patched", "train.py", "--fail")
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: mine\n")
    assert "Traceback" in done.stderr


@pytest.mark.parametrize("words", [["nothing.py"], ["--", "-"]])
def test_a_program_that_is_not_there(words, capsys):
    assert cli.main(["patched", *words]) == 2
    assert capsys.readouterr().err == f"packviz: cannot run {words[-1]}: No such file or directory\n"


@pytest.mark.parametrize("command", ["check", "patched"])
def test_help_says_that_the_file_is_executed(command, capsys):
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    assert "The file is EXECUTED, and so is all that it imports" in " ".join(capsys.readouterr().out.split())


def sources():
    """Every file of packviz, parsed."""
    house = Path(pv.__file__).parent
    return {str(path.relative_to(house)): ast.parse(path.read_text(encoding="utf-8")) for path in house.rglob("*.py")}


def test_no_file_that_is_read_can_run_code():
    wanted = {"torch.load": ("weights_only", True), "np.load": ("allow_pickle", False)}
    seen = set()
    for path, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                assert not {"pickle", "joblib", "dill"} & {one.name for one in node.names}, path
            if isinstance(node, ast.Call) and (name := ast.unparse(node.func)).endswith(".load"):
                if name in wanted:
                    keyword, value = wanted[name]
                    assert [ast.literal_eval(one.value) for one in node.keywords if one.arg == keyword] == [value], path
                    seen.add(name)
                else:
                    assert name.partition(".")[0] not in ("torch", "np", "numpy"), f"{path}: {name}"
    assert seen == {*wanted}


# ---- 6. The oracle is always torch's own function


def test_no_other_file_reaches_torchs_functions():
    """Neither by an import, nor through the module: `rnn.pack_sequence`, `getattr(rnn, name)`."""
    own = ("original", "packing", "pv", "module", "self")
    for path, tree in sources().items():
        if path == "ops/original.py":
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                names = {one.name for one in node.names}
                assert node.module != "torch.nn.utils.rnn" or not {*original.NAMES, "*"} & names, path
                assert node.module != "torch.nn.utils" or "rnn" not in names or path == "ops/patching.py", path
            if isinstance(node, ast.Import):
                assert not any(one.name.startswith("torch.nn.utils") for one in node.names), path
            if isinstance(node, ast.Attribute) and node.attr in original.NAMES:
                assert ast.unparse(node.value) in own, f"{path}: {ast.unparse(node)}"
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "nn.utils.rnn":
                raise AssertionError(path)


EVERYTHING = """
import importlib, pkgutil, sys, types
import torch, packviz as pv
patch = pv.patch_torch()
rnn = torch.nn.GRU(2, 3)
comparison = pv.compare(rnn, torch.randn(5, 2, 2), [5, 2])
for one in pkgutil.walk_packages(pv.__path__, "packviz."):
    if not one.name.endswith("__main__"):
        importlib.import_module(one.name)
from packviz.lessons import checks
from packviz.explorers import static
from packviz.ops import original, packing
for name, module in sorted(sys.modules.items()):
    if name.startswith("packviz.") and module is not packing:
        for key, value in vars(module).items():
            if isinstance(value, types.FunctionType) and value.__name__ in original.NAMES:
                assert value is getattr(original, value.__name__), f"{name}.{key}"
assert all(original.offered()[name] is getattr(original, name) for name in original.NAMES)
assert {*original.offered()} == {*torch.nn.utils.rnn.__all__}
"""


def test_whatever_is_first_used_under_a_patch_keeps_torchs_functions():
    subprocess.run([sys.executable, "-W", "ignore", "-c", EVERYTHING], check=True)


@pytest.mark.filterwarnings(WARNED)
def test_a_comparison_under_a_patch_calls_torchs_functions(monkeypatch):
    def ours(*arguments, **named):
        raise AssertionError("packviz's function was called")

    with pv.patch_torch():
        for name in original.NAMES:
            monkeypatch.setattr(rnn, name, ours)
        assert pv.compare(torch.nn.GRU(2, 3), torch.randn(5, 2, 2), [5, 2]).needs_packing("h_n")
        assert truth_table("RNN").right("h_n", "packed")
        monkeypatch.undo()


def test_torchs_own_functions_come_without_fast_execution():
    code = "import sys, packviz.ops.original; print(*(n for n in sys.modules if n.startswith('packviz.')))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert set(done.stdout.split()) == {"packviz.ops", "packviz.ops.original"}


# ---- 7. plan and run never disagree


# ---- 8. Constants that nobody measured choose nothing


# ---- 9. check_static is not ok where a trace freezes a length


# ---- 10. The legacy ONNX exporter ignores padding_value


# ---- 11. explain_errors never fails, follows causes, and can be installed


# ---- 12. diagnose says when it cannot judge


# ---- 13. What is almost certain is an error


# ---- 14. advise measures until it is clear, or says that it is not


# ---- 15. The names of a comparison are stable


@given(
    cell=st.sampled_from(["RNN", "GRU", "LSTM"]),
    bidirectional=st.booleans(),
    layers=st.integers(1, 2),
    on=st.booleans(),
)
def test_a_comparison_answers_by_the_same_names_for_every_rnn(cell, bidirectional, layers, on):
    rnn = getattr(torch.nn, cell)(2, 3, layers, bidirectional=bidirectional)
    x, lengths = torch.randn(5, 3, 2), [5, 2, 4]
    result = pv.compare(rnn, x, lengths, gradients=on)
    missing = set() if bidirectional else {"outputs_reverse"}
    missing |= set() if cell == "LSTM" else {"c_n"}
    missing |= set() if on else {"gradients", "gradients_outputs", "gradients_h_n"}
    real = torch.tensor(result.layout.mask.copy()).T
    padded, packed = result.padded, result.packed
    for name, size in (("outputs", slice(None)), ("outputs_forward", slice(0, 3)), ("outputs_reverse", slice(3, None))):
        if name not in missing:
            equal = torch.allclose(padded.output[real][:, size], packed.output[real][:, size], atol=1e-5)
            assert getattr(result.agrees, name) is equal
    assert result.agrees.h_n is torch.allclose(padded.h_n, packed.h_n, atol=1e-5)
    for name in RESULTS:
        if name in missing:
            assert not hasattr(result.agrees, name)
            assert name not in dir(result.agrees)
            for ask in (result.agrees.__getitem__, result.needs_packing):
                with pytest.raises((KeyError, ValueError), match=f"there is no {name} here: "):
                    ask(name)
        else:
            assert name in dir(result.agrees)
            assert result.agrees[name] is getattr(result.agrees, name)
            assert result.needs_packing(name) is not result.agrees[name]
    if bidirectional:
        assert result.agrees.outputs == (result.agrees.outputs_forward and result.agrees.outputs_reverse)
    else:
        assert result.agrees.outputs == result.agrees.outputs_forward
    if on:
        assert result.agrees.gradients == (result.agrees.gradients_outputs and result.agrees.gradients_h_n)


@pytest.mark.parametrize("name", ["outputs at real steps", "outputs, reverse half", "Outputs", "", "hn", 0])
def test_a_result_that_does_not_exist_is_an_error(name):
    result = pv.compare(torch.nn.GRU(2, 3), torch.randn(5, 2, 2), [5, 2])
    for error, ask in (
        (KeyError, lambda: result.agrees[name]),
        (ValueError, lambda: result.needs_packing(name)),
        (AttributeError, lambda: getattr(result.agrees, str(name))),
    ):
        with pytest.raises(error, match="choose one of 'outputs', 'outputs_forward', 'outputs_reverse', 'h_n', 'c_n'"):
            ask()


def test_no_filter_over_the_results_passes_vacuously():
    result = pv.compare(torch.nn.GRU(2, 3), torch.randn(5, 2, 2), [5, 2])
    for look in (list, all, lambda agrees: "h_n" in agrees, lambda agrees: {**agrees}):
        with pytest.raises(TypeError):
            look(result.agrees)
    with pytest.raises(AttributeError, match="there is no result 'items'"):
        result.agrees.items()
    assert copy.deepcopy(result.agrees).outputs is pickle.loads(pickle.dumps(result.agrees)).outputs is True
    assert repr(result.agrees).split("\n")[2].split() == ["outputs_reverse", "–"]


# ---- 16. A truth table says which half it means


@given(
    cell=st.sampled_from(["RNN", "GRU", "LSTM"]),
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    padding=st.sampled_from([0.0, 2.0]),
    bias=st.booleans(),
    seed=st.integers(0, 9),
)
def test_every_answer_of_a_truth_table_is_computed(cell, lengths, padding, bias, seed):
    """By hand, with torch's own functions and each sequence run alone."""
    table = truth_table(cell, lengths=lengths, padding=padding, bias=bias, seed=seed)
    for answer in table.answers:
        two = answer.directions == 2
        torch.manual_seed(seed)
        module = getattr(torch.nn, cell)(3, 4, answer.layers, bias=bias, bidirectional=two, batch_first=True)
        x = torch.randn(len(lengths), max(lengths), 3)
        for b, n in enumerate(lengths):
            x[b, n:] = padding
        alone = [module(x[b, :n]) for b, n in enumerate(lengths)]
        packed = answer.method == "packed"
        y, state = module(rnn.pack_padded_sequence(x, lengths, True, False) if packed else x)
        y = rnn.pad_packed_sequence(y, True)[0] if packed else y
        (h_n, c_n), alone_h = (
            (state, [s[0] for _, s in alone]) if cell == "LSTM" else ((state, None), [s for _, s in alone])
        )

        def same(pairs):
            return all(torch.allclose(one, other, atol=1e-5) for one, other in pairs)

        rows = list(enumerate(lengths))
        forward, reverse = [h[-2 if two else -1] for h in alone_h], [h[-1] for h in alone_h]
        expected = {
            "outputs, forward": same((y[b, :n, :4], alone[b][0][:, :4]) for b, n in rows),
            "outputs, reverse": same((y[b, :n, 4:], alone[b][0][:, 4:]) for b, n in rows) if two else None,
            "h_n": same((h_n[:, b], alone_h[b]) for b, _ in rows),
            "c_n": None if c_n is None else same((c_n[:, b], alone[b][1][1]) for b, _ in rows),
            "output at len-1, forward": same((y[b, n - 1, :4], forward[b]) for b, n in rows),
            "output at len-1, reverse": same((y[b, n - 1, 4:], reverse[b]) for b, n in rows) if two else None,
            "output[:, -1], forward": same((y[b, -1, :4], forward[b]) for b, _ in rows),
            "output[:, 0], reverse": same((y[b, 0, 4:], reverse[b]) for b, _ in rows) if two else None,
        }
        assert answer.right == expected
        for question, right in expected.items():
            case = {"layers": answer.layers, "directions": answer.directions}
            if right is None:  # neither true nor false
                with pytest.raises(ValueError, match="question is "):
                    table.right(question, answer.method, **case)
            else:
                assert table.right(question, answer.method, **case) is right


@pytest.mark.parametrize("cell", ["RNN", "GRU", "LSTM"])
def test_every_row_about_outputs_names_its_half(cell):
    table = truth_table(cell)
    names = [name for name, *_ in table.table.rows]
    assert all(("forward" in name) != ("reverse" in name) for name in names if name.startswith("output"))
    assert ("c_n, padded" in names) == (cell == "LSTM")
    assert "output[:, -1], forward, padded" in names
    assert len(table.table.head) == 5  # few enough for a narrow screen


def test_an_old_question_is_refused_with_the_new_ones():
    with pytest.raises(ValueError, match=r"question is 'gather len-1'; choose one of .*'output at len-1, forward'"):
        truth_table().right("gather len-1", "padded")


# ---- 17. A file's suffix and its contents agree


# ---- 18. A search says how sure it is


# ---- 19. A panel's complaint is in its text
