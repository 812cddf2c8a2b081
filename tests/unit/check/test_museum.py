"""The museum: every text is what torch says now, every fix mends its mistake, and page 15
shows most of them.
"""

import io
import re
import sys
import warnings
from itertools import pairwise
from pathlib import Path
from traceback import format_exception
from types import ModuleType
from xml.etree import ElementTree

import pytest
import torch
from habits import habit_of, habit_since
from torch import nn
from torch.export import Dim
from torch.nested import nested_tensor_from_jagged
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.utils.rnn import (
    pack_padded_sequence,
    pad_packed_sequence,
    pad_sequence,
)
from torch.utils.data import DataLoader

import packviz as pv
from packviz.check import museum
from packviz.check.museum import ENTRIES, NO_MESSAGE, SECTIONS, find_entry

SOURCE = Path(__file__).parents[3] / "notebooks" / "source" / "15_error_museum.py"
PAGE = SOURCE.read_text(encoding="utf-8")
NAMES = [one.name for one in ENTRIES]
TEXTS = [(one.name, said) for one in ENTRIES for said in one.texts]
TRACEBACKS = {  # of texts that many mistakes give, the line that says which it is
    "Lengths greater than T": "  in pad_packed_sequence",
    "Too few lengths": "  in pack_padded_sequence",
    "Initial state given batch first": "  in permute_hidden",
    "GRU state unpacked into h and c": "    output, (h, c) = self.gru(x)",
    "Tensors on two devices": "    output, _ = self.lstm(x)",
    "Replicas pad to different widths": "  in DataParallel.forward, line 3, in gather(outputs)",
    "A PackedSequence has no size or shape": "    packed[:, -1]",
    "A PackedSequence unpacked into two names": "    x, lengths = pack_padded_sequence(x, lengths)",
    "Token id beyond the vocabulary": "  in embedding",
    "Lengths not split among GPUs": "  in DataParallel.forward",
}


def cells():
    """The page's cells, as (kind, text): markdown, code, or claims, which check what the code
    before them shows.
    """
    parts = re.split(r"(?m)^# %%(.*)\n", PAGE)[1:]
    for head, body in zip(parts[::2], parts[1::2], strict=True):
        if "live-timing" in head:
            continue
        kind = "markdown" if "[markdown]" in head else "claims" if "claims" in head else "code"
        yield kind, re.sub(r"(?m)^# ?", "", body).strip() if kind == "markdown" else body


X = torch.randn(5, 3, 4)
GRU, LSTM, EMBEDDING = nn.GRU(4, 4), nn.LSTM(4, 4), nn.Embedding(3, 2)
ROWS = [[1, 2, 3], [4, 5]]
SEQUENCES = [torch.ones(3), torch.ones(2)]


class Pads(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 4)

    def forward(self, x, lengths):
        packed, _ = self.gru(pack_padded_sequence(x, lengths, enforce_sorted=False))
        return pad_packed_sequence(packed, total_length=x.shape[0])[0]


PADS = Pads().eval()


def packed():
    return pack_padded_sequence(X, [5, 3, 2])


def onnx(**options):
    file = io.BytesIO()
    inputs = X, torch.tensor([5, 3, 2])
    torch.onnx.export(PADS, inputs, file, dynamo=False, input_names=["x", "lengths"], **options)
    return file.getvalue()


def two(pair):
    one, other = pair
    return one, other


def steps(x):
    return x if len(x) > 3 else 2 * x


def attend(rows):
    return scaled_dot_product_attention(rows, rows, rows, is_causal=True)


LEFT = torch.tensor([[1, 2, 3], [0, 4, 5]])
DOCUMENTS = torch.randn(1, 10, 4)  # of 5, 3 and 2 tokens
OFFSETS = torch.tensor([5, 8, 10])
IN_NO_NOTEBOOK = {  # the mistakes, in the order of what torch says
    "cu_seqlens without its 0": [lambda: nested_tensor_from_jagged(torch.ones(10, 4), OFFSETS)],
    "No boundaries between documents": [lambda: attend(DOCUMENTS)],
    "Padding on the left": [lambda: pack_padded_sequence(LEFT.T, [3, 2])],
    "Unpacking what is not packed": [
        lambda: pad_packed_sequence(X),
        lambda: pad_packed_sequence(GRU(packed())),
    ],
    "A PackedSequence unpacked into two names": [lambda: two(packed())],
    "State for another batch size": [
        lambda: GRU(X, torch.zeros(1, 5, 4)),
        lambda: nn.LSTMCell(4, 4)(X[0, :1], (torch.zeros(5, 4), torch.zeros(5, 4))),
    ],
    "State for another number of layers": [lambda: nn.GRU(4, 4, 2)(X, torch.zeros(1, 3, 4))],
    "LSTM state that is not a tuple": [lambda: LSTM(packed(), torch.zeros(1, 3, 4))],
    "Gradients in eval mode": [lambda: nn.GRU(4, 4).eval()(packed())[0].data.sum().backward()],
    "Token id beyond the vocabulary": [lambda: EMBEDDING(torch.tensor([7]))],
    "Lengths not split among GPUs": [lambda: pack_padded_sequence(X[:, :2], [5, 3, 2, 1])],
    "No collate function": [lambda: next(iter(DataLoader(SEQUENCES, batch_size=2)))],
    "A tensor from lists of different lengths": [lambda: torch.tensor(ROWS)],
    "A layer that gets output and state": [lambda: nn.Sequential(GRU, nn.Linear(4, 1))(X)],
    "A fixed batch size in ONNX": [onnx],
    "A mask passed as lengths": [lambda: pack_padded_sequence(X, torch.ones(3, 5).long())],
    "Input without one of its dimensions": [
        lambda: GRU(packed()._replace(data=packed().data[:, 0])),
        lambda: LSTM(X[0, 0]),
    ],
    "Input with a dimension too many": [lambda: LSTM(X[..., None])],
    "Last step read at lengths": [
        lambda: X.transpose(0, 1)[torch.arange(3), torch.tensor([5, 3, 2])]
    ],
    "A length that becomes a constant": [lambda: torch.jit.trace(steps, X)],
    "A number of steps that an export fixes": [onnx],
    "FlexAttention on a CPU": [onnx],
    "A state alone in ONNX": [onnx],
    "Two types of lengths in ONNX": [onnx],
}


# The texts.


@pytest.fixture(scope="module")
def shown():
    """What each entry has said just now, and what else went wrong in its cell."""
    said, broken = {}, {}
    patch = pytest.MonkeyPatch()
    patch.delenv("PACKVIZ_STRICT", raising=False)
    patch.setattr(
        museum.Entry,
        "card",
        lambda one, texts=(): str(texts and said.setdefault(one.name, texts)),
    )
    threads = torch.get_num_threads()
    notebook = ModuleType("notebook_15")
    patch.setitem(
        sys.modules, notebook.__name__, notebook
    )  # older compilers import what they compile
    for kind, code in cells():
        if kind != "markdown":
            here = re.search(r'museum\.entry\("(.*?)"\)', code)
            try:
                exec(compile(code, "notebook 15", "exec"), vars(notebook))
            except Exception as error:
                broken[here[1] if here else code] = error
    for name, mistakes in IN_NO_NOTEBOOK.items():
        with museum.entry(name) as attempt:
            for mistake in mistakes:
                attempt(mistake)
    patch.undo()
    torch.set_num_threads(threads)
    return said, broken


def test_every_entry_is_shown_and_no_cell_of_the_notebooks_fails(shown):
    assert set(shown[0]) == set(NAMES)
    assert not shown[1]


@habit_of(museum.TORCH_VERSION)
@pytest.mark.parametrize("name", NAMES)
def test_torch_says_what_is_recorded(name, shown):
    assert list(find_entry(name).says) == shown[0][name], (
        "look at the entry again, then renew it in museum.toml"
    )


SAID = [
    (name, call)
    for name, calls in IN_NO_NOTEBOOK.items()
    for call in calls
    if NO_MESSAGE not in find_entry(name).says
    and name != "Last step read at lengths"  # not from an RNN
]


@pytest.mark.parametrize(("name", "call"), SAID)
def test_explain_errors_knows_it(name, call):
    with pytest.raises(Exception) as raised, pv.explain_errors():  # noqa: PT011
        call()
    (note,) = raised.value.__notes__
    assert name in note.splitlines()[0] or name == "Lengths not split among GPUs"


def test_the_first_document_is_left_out_and_the_second_reads_it():
    nested = nested_tensor_from_jagged(torch.ones(10, 4), OFFSETS)
    assert nested.offsets().diff().tolist() == [3, 2]
    changed = DOCUMENTS.index_fill(1, torch.tensor([0]), 9.0)
    assert not torch.equal(attend(changed)[:, 5:], attend(DOCUMENTS)[:, 5:])


def test_the_fixes_that_no_notebook_shows():
    assert pv.align(LEFT, [3, 2], source_side="left", batch_first=True).tolist() == [
        [1, 2, 3],
        [4, 5, 0],
    ]
    packed_output, _ = GRU(packed())
    torch.testing.assert_close(pad_packed_sequence(packed_output)[0][:, 0], GRU(X)[0][:, 0])
    assert pack_padded_sequence(X, [5, 3, 2]).data.shape == (10, 4)
    assert torch.equal(GRU(packed(), torch.zeros(1, 3, 4))[1], GRU(packed())[1])
    rnn = nn.GRU(4, 4, 2, bidirectional=True)
    assert rnn(X, torch.zeros(rnn.num_layers * (1 + rnn.bidirectional), 3, 4))[1].shape == (4, 3, 4)
    assert torch.equal(LSTM(packed(), (torch.zeros(1, 3, 4),) * 2)[0].data, LSTM(packed())[0].data)
    (batch,) = DataLoader(
        SEQUENCES, batch_size=2, collate_fn=lambda rows: pad_sequence(rows, batch_first=True)
    )
    assert batch.tolist() == [[1, 1, 1], [1, 1, 0]]
    rows = pad_sequence([torch.tensor(row) for row in ROWS], batch_first=True)
    assert rows.tolist() == [[1, 2, 3], [4, 5, 0]]


# The collection, and the notebooks' walk through it.


def test_every_entry_is_in_order():
    assert len(ENTRIES) == len(set(NAMES))
    assert [one.name for one in ENTRIES if not one.shown] == list(IN_NO_NOTEBOOK)
    assert all(one.rules if one.texts else one.words for one in ENTRIES)
    assert all(set(one.says) == {NO_MESSAGE} for one in ENTRIES if one.section != "error")


def test_the_notebook_has_them_all_in_order_and_checks_each():
    markdown = "\n".join(text for kind, text in cells() if kind == "markdown")
    here = [one for one in ENTRIES if one.shown]
    sections = [one.section for one in here]
    assert sections == sorted(sections, key=list(SECTIONS).index)
    assert [one.number for one in here] == list(range(1, len(here) + 1))
    assert re.findall(r"(?m)^### (\d+)\. (.*)$", markdown) == [
        (str(one.number), one.name) for one in here
    ]
    names = re.findall(r'with museum\.entry\("(.*?)"\)', PAGE)
    assert names == [one.name for one in here]
    for (kind, code), (after, claims) in pairwise(cells()):
        if kind == "code" and "museum.entry(" in code:
            assert after == "claims", f"nothing is checked behind\n{code}"
            assert "assert" in claims


# Search. What it says of real messages is in test_messages.py.


@pytest.mark.parametrize(("name", "said"), TEXTS)
def test_every_text_is_found(name, said):
    found = pv.explain(said)
    for asked in (
        said.upper(),
        f"  {said}\n",
        re.sub(r"^\w+: ", "", said),
        re.sub(r"cuda:0|meta", "xpu:1", said),
    ):
        assert pv.explain(asked) == found
    if not (found and found[0].name == name):
        found = pv.explain(f"{TRACEBACKS[name]}\n{said}")
    assert found[0].name == name


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("h_n order", "Outputs and h_n are in your order"),
        ("why is packing slow", "Slower when packed"),
        ("batch_sizes is broken, it does not equal my lengths", "batch_sizes are not lengths"),
        ("forgot batch_first", "Batch and time swapped"),
        ("torch.compile graph break", "Compiling a packed RNN with fullgraph"),
        ("output is shorter than the input", "Unpacked without total_length"),
        ("cross-contamination when packing documents", "No boundaries between documents"),
    ],
)
def test_words_find_what_has_no_text_and_are_never_sure(asked, name):
    found = pv.explain(asked)
    assert found[0].name == name
    assert not found.sure
    assert "Only some words match." in found.to_text()


@pytest.mark.parametrize(
    "asked",
    [
        *("", "the", "3, two, -1; ☠"),
        "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity)",
        "KeyError: 'foo'",
        "RuntimeError: 'lengths' argument should be a 1D CPU int64 tensor, but got 1D cpu Float tensor",  # noqa: E501
        "TypeError: pack_padded_sequence() got an unexpected keyword argument 'enforce_sorted'",
        "unsupported operand type(s) for +: 'int' and 'str'",
        "unsupported operand type(s) for *: 'NoneType' and 'int'",
        'Constraints violated (C)! For more information, run with TORCH_LOGS="+dynamic".',
        "RuntimeError: The size of tensor a (64) must match the size of tensor b (4) at non-singleton dimension 1",  # noqa: E501
        "  File 'image.py'\nRuntimeError: The size of tensor a (5) must match the size of tensor b (4)",  # noqa: E501
    ],
)
def test_nothing_like_it(asked):
    assert not pv.explain(asked)
    assert pv.explain(asked).to_text() == "Nothing matches."
    assert pv.explain(asked).to_html().count("Nothing matches.") == 1


def test_an_explanation_says_why_and_what_to_do():
    said = find_entry("Lengths on the GPU").says[0]
    found, one = pv.explain(said), find_entry("Lengths on the GPU")
    assert found.sure
    assert found.summary == "Sure: entry 12 of notebook 15, “Lengths on the GPU”."
    assert found.to_text() == repr(found) == f"{found.summary}\n\n{one.to_text()}"
    assert one.to_html() in found._repr_html_()
    with pytest.raises(RuntimeError) as raised:
        raise RuntimeError(said.partition(": ")[2])
    assert pv.explain(raised.value) == found
    with pytest.raises(
        TypeError,
        match="text is None; give the error itself, or its text or some words as a string",
    ):
        pv.explain(None)


PASTED = {  # texts as people paste them, without or after the name of the exception
    "ValueError: Expected target size [4, 5], got [4, 7]": "Unpacked without total_length",
    "IndexError: The shape of the mask [4, 7] at index 1 does not match the shape of the indexed tensor [4, 5, 8]": (  # noqa: E501
        "Unpacked without total_length"
    ),
    "TypeError: unsupported operand type(s) for +: 'PackedSequence' and 'Tensor'": (
        "A layer that does not take a PackedSequence"
    ),
    'TypeError: can only concatenate tuple (not "Tensor") to tuple': (
        "A layer that does not take a PackedSequence"
    ),
    "IndexError: index 5 is out of bounds for dimension 1 with size 5": "Last step read at lengths",
    "IndexError: tensors used as indices must be long, int, byte or bool tensors": (
        "Fractional lengths"
    ),
    "TracerWarning: Converting a tensor to a Python integer might cause the trace to be incorrect.": (  # noqa: E501
        "A length that becomes a constant"
    ),
    "AttributeError: 'tuple' object has no attribute 'size'": "A layer that gets output and state",
    "RuntimeError: input must have 3 dimensions, got 2": "Input without one of its dimensions",
    "TypeError: 'Tensor' object is not callable": "A PackedSequence has no size or shape",
    "RuntimeError: vector::_M_range_check: __n (which is 1) >= this->size() (which is 1)": (
        "A state alone in ONNX"
    ),
    "UserError: Constraints violated (T)!": "A number of steps that an export fixes",
    "Fail: [ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Reshape node. Name:'node_Reshape_64' Status Message: reshape_helper.h:84 The input tensor cannot be reshaped to the requested shape. Input shape:{9,2,1,7}, requested shape:{5,-1,7}": (  # noqa: E501
        "A number of steps that an export fixes"
    ),
    "InvalidArgument: [ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Got invalid dimensions for input: x for the following indices": (  # noqa: E501
        "A number of steps that an export fixes"
    ),
    "AssertionError: Guard failed: x.size()[1] == 5": "A number of steps that an export fixes",
    "NotImplementedError: FlexAttention does not support backward on CPU.": (
        "FlexAttention on a CPU"
    ),
    "Fail: Type parameter (T) of Optype (Less) bound to different types (tensor(int64) and tensor(int32)": (  # noqa: E501
        "Two types of lengths in ONNX"
    ),
    "RuntimeError: 'lengths' argument should be a 1D CPU int64 tensor, but got 2D cpu Long tensor": (  # noqa: E501
        "A mask passed as lengths"
    ),
}


@pytest.mark.parametrize(("text", "name"), PASTED.items())
def test_a_pasted_text_is_found_with_and_without_the_name_of_the_exception(text, name):
    matches = pv.explain(text)
    assert matches[0].name == name
    assert pv.explain(text.partition(": ")[2])[0].name == name


class Sized(nn.Module):
    def forward(self, x):
        return LSTM(x).size(0)


def read_at(lengths):
    return X.transpose(0, 1)[torch.arange(3), lengths]


def selected(losses, mask):
    return losses[mask]


def exported(x, **shapes):
    return torch.export.export(nn.Sequential(nn.GRU(4, 4)).eval(), (x,), dynamic_shapes=shapes)


RAISED = [  # errors as exceptions, whose tracebacks may name no RNN
    (lambda: exported(X, input={0: Dim("T")}), "A number of steps that an export fixes"),
    (
        lambda: exported(X, input={0: Dim.AUTO}).module()(X[1:]),
        "A number of steps that an export fixes",
    ),
    (lambda: read_at(torch.tensor([5, 3, 2])), "Last step read at lengths"),
    (
        lambda: selected(torch.ones(4, 5, 8), torch.ones(4, 7).bool()),
        "Unpacked without total_length",
    ),
    (
        lambda: cross_entropy(torch.ones(4, 9, 5), torch.ones(4, 7).long()),
        "Unpacked without total_length",
    ),
    (lambda: Sized()(X), "A layer that gets output and state"),
    (lambda: X[0][:, 4], None),
    (lambda: selected(torch.ones(3, 5, 5), torch.ones(4, 4).bool()), None),
    (lambda: (1, 2).size(), None),
]


@pytest.mark.filterwarnings("ignore:The tensor attributes")
@pytest.mark.parametrize(("call", "name"), RAISED)
@habit_since("2.8")
def test_an_exception_is_found_or_met_with_silence(call, name):
    with pytest.raises(Exception) as raised:  # noqa: PT011
        call()
    for text in (raised.value, "".join(format_exception(raised.value))):
        matches = pv.explain(text)
        assert [entry.name for entry in matches[:1]] == ([name] if name else [])


# Cards, and what happens behind them.


@pytest.mark.parametrize("one", ENTRIES, ids=NAMES)
def test_cards(one):
    said, html = one.to_text(), ElementTree.fromstring(one.to_html())
    assert max(len(line) for line in said.splitlines() if "https" not in line) <= 94
    for part in (*one.says, one.why, one.fix, *(text for _, text in one.met), *one.links):
        assert part in " ".join(said.split())
        assert part in "".join(html.itertext())
    assert {link.get("href") for link in html.iter("a")} >= set(one.links)


def test_an_entry_lets_it_happen(capsys):
    def warn():
        warnings.warn("not for the page", stacklevel=1)
        return 3

    with museum.entry("Lengths not sorted") as attempt:
        assert attempt(warn) == 3
        assert attempt(int, "x", base=10) is None
        raise RuntimeError("(3, j17, 4)\nsecond line")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "torch says  nothing",
        "torch says  ValueError: invalid literal for int() with base 10: 'x'",
        "torch says  RuntimeError: (3, j…, 4)",
    ]
    assert lines[3].startswith("recorded    torch 2.13 said: RuntimeError: `lengths` array")


def test_an_entry_that_shows_nothing(capsys):
    with museum.entry("Lengths too short"):
        pass
    assert (
        f"3. Lengths too short\n{capsys.readouterr().out}"
        == find_entry("Lengths too short").to_text() + "\n"
    )
    for kind in (AssertionError, KeyboardInterrupt):
        with pytest.raises(kind), museum.entry("Lengths too short"):
            raise kind
    with pytest.raises(ValueError, match="name is 'Dinosaurs'; choose one of 'Batch and"):
        find_entry("Dinosaurs")
    assert capsys.readouterr().out == ""
