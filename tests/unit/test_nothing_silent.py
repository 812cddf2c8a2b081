"""What packviz once got wrong without a word, each point with its neighbours, so that the list can be read in one place."""

from __future__ import annotations

import traceback

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz import cli
from packviz.check import museum
from packviz.check.findings import Finding, Findings
from packviz.explorers import MuseumExplorer

# ---- 1. Aligning says where the padding is, and can check it


# ---- 2. A name that contains "padding" is True at padding


# ---- 3. A square batch without batch_first warns


# ---- 4. run takes batch_first


# ---- 5. patch_torch names every holder of torch's functions


# ---- 6. The oracle is always torch's own function


# ---- 7. plan and run never disagree


# ---- 8. Constants that nobody measured choose nothing


# ---- 9. check_static is not ok where a trace freezes a length


# ---- 10. The legacy ONNX exporter ignores padding_value


# ---- 11. explain_errors never fails, follows causes, and can be installed


# ---- 12. diagnose says when it cannot judge

LENGTHS = [9, 4, 6, 2, 7]
MASK = torch.arange(12) < torch.tensor(LENGTHS).unsqueeze(1)  # (B, T), true at real cells


def over_time(layer):
    """A layer that takes (B, C, T), for (B, T, C)."""
    return lambda x: layer(x.transpose(1, 2)).transpose(1, 2)


def packed(x):
    output, _ = nn.LSTM(8, 6, batch_first=True)(pack_padded_sequence(x, LENGTHS, True, False))
    return pad_packed_sequence(output, True, total_length=12)[0]


LAYERS = {  # of floats, (B, T, 8); what says that the padding cannot be judged, or None if it stays constant
    "nothing": (lambda x: x, None),
    "dropout": (lambda x: nn.Dropout()(x), None),  # zeros stay zeros
    "dropout in eval mode": (lambda x: nn.Dropout().eval()(x + 1), None),
    "dropout of padding that is not zero": (lambda x: nn.Dropout()(x + 1), "dropout"),
    "Linear": (lambda x: nn.Linear(8, 5)(x), None),
    "LayerNorm": (lambda x: nn.LayerNorm(8)(x + 1), None),
    "BatchNorm": (over_time(nn.BatchNorm1d(8)), None),
    "tanh": (lambda x: (x + 1).tanh(), None),
    "packed LSTM": (packed, None),
    "convolution": (over_time(nn.Conv1d(8, 5, 3, padding=1)), "convolution"),
    "two convolutions": (over_time(nn.Sequential(*[nn.Conv1d(8, 8, 3, padding=1)] * 2)), "convolution"),
    "convolution of other padding": (
        over_time(lambda x: nn.Conv1d(8, 5, 3, padding=1)(x + 1)),
        "convolution",
    ),
    "positions": (lambda x: x + torch.randn(12, 8), "positions"),
    "InstanceNorm": (over_time(nn.InstanceNorm1d(8)), "each sequence has its own"),
    "padded with its last step": (
        lambda x: x.where(MASK.unsqueeze(2), x[range(5), [n - 1 for n in LENGTHS]].unsqueeze(1)),
        "each sequence has its own",
    ),
    "padded LSTM": (lambda x: nn.LSTM(8, 6, batch_first=True)(x)[0], "RNN"),
    "two directions": (lambda x: nn.LSTM(8, 6, batch_first=True, bidirectional=True)(x)[0], "RNN"),
    "noise": (lambda x: x + 0.001 * torch.randn_like(x), "RNN"),
    "no values": (lambda x: x.to("meta"), "meta"),
    "nothing but zeros": (lambda x: 0 * x, "the same everywhere"),
}


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(("layer", "why"), LAYERS.values(), ids=LAYERS)
@torch.no_grad()
def test_12_padding_that_is_not_constant_is_undecided(layer, why, batch_first):
    torch.manual_seed(0)
    x = layer(torch.randn(5, 12, 8) * MASK.unsqueeze(2))
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
    ids = torch.randint(2, 40, (5, 12)).masked_fill(~MASK, padding)
    for x in (ids, ids.int(), layer(ids)):
        assert pv.diagnose(x, LENGTHS, batch_first=True).ok
        assert not pv.diagnose(x, sorted(LENGTHS), batch_first=True).ok


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@torch.no_grad()
def test_12_rounding_is_no_difference(dtype):
    """A linear layer does not round alike in all rows."""
    torch.manual_seed(0)
    for size in range(2, 12):
        n = torch.randint(1, 34, (size,))
        x = torch.randn(size, 33, 17) * (torch.arange(33) < n.unsqueeze(1)).unsqueeze(2)
        rounded = 1 + torch.finfo(dtype).eps * torch.randint(0, 2, (size, 33, 5)).to(dtype)
        assert not pv.diagnose(nn.Linear(17, 5)(x).to(dtype) * rounded, n, batch_first=True).undecided


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.bfloat16, torch.complex64])
def test_12_padding_of_any_dtype_may_be_uneven(dtype):
    torch.manual_seed(0)
    x = (100 * torch.randn(5, 12, 8).abs()).to(torch.uint8) % (2 if dtype == torch.bool else 100)
    assert pv.diagnose(x.to(dtype), LENGTHS, batch_first=True).undecided


def test_12_one_cell_of_padding_is_like_itself():
    x = torch.randn(4, 6, 3)
    assert pv.diagnose(x, [6, 6, 5, 6], batch_first=True).undecided
    x[2, 5] = 0
    assert pv.diagnose(x, [6, 6, 5, 6], batch_first=True).ok


@pytest.mark.parametrize("size", [1, 4, 6])
def test_12_without_padding_there_is_nothing_to_judge_by(size):
    found = pv.diagnose(torch.randn(size, 6, 3), [6] * size, batch_first=True)
    assert found.rules == ["no padding"]
    assert found.ok
    assert not found.clean
    assert ("batch_first" in found[0].message) == (size == 6)


def test_12_lengths_that_fit_either_dimension_are_named():
    x = torch.randn(3, 3, 2) * (torch.arange(3) < torch.tensor([[3], [2], [1]])).unsqueeze(2)
    for batch_first in (True, False):
        assert pv.diagnose(x, [3, 2, 1], batch_first=batch_first).rules == ["batch or time"]


def test_12_a_mistake_that_shows_all_the_same_is_told():
    output, _ = nn.GRU(8, 3, batch_first=True)(torch.randn(5, 12, 8))
    found = pv.diagnose(output, LENGTHS, batch_first=True, last=output[:, -1])
    assert found.rules == ["read at the padding", "undecided", "narrower when unpacked"]
    assert found.headline == "✗ x of shape (5, 12, 3), read as (B, T, …): undecided, 1 error, 1 warning, 1 info"


@pytest.mark.parametrize("shape", [(0, 5, 2), (3, 0, 2), (3, 5, 0)])
def test_12_an_empty_batch_is_not_ok(shape):
    assert pv.diagnose(torch.zeros(shape), [5, 3, 2][: shape[0]], batch_first=True).rules == ["empty batch"]


# ---- 13. What is almost certain is an error

X = torch.randn(8, 12, 3) * (torch.arange(12) < torch.tensor([[12, 3, 9, 1, 5, 7, 11, 4]]).T).unsqueeze(2)
N = [12, 3, 9, 1, 5, 7, 11, 4]


@pytest.mark.parametrize(
    "lengths",
    [[12, 3, 7, 1, 5, 7, 11, 4], [max(n - 1, 1) for n in N], [12] * 8, N[::-1]],
    ids=["one too short", "all too short", "the width of x", "another order"],
)
def test_13_what_is_almost_certain_is_an_error(lengths):
    found = pv.diagnose(X, lengths, batch_first=True)
    assert found[0].level == "error"
    assert "almost certain" in found[0].message
    assert not found.ok
    assert not found.clean


def test_13_what_is_less_certain_is_a_warning():
    x = torch.randn(3, 6, 3) * (torch.arange(6) < torch.tensor([[6], [4], [3]])).unsqueeze(2)
    found = pv.diagnose(x, [6, 4, 1], batch_first=True)
    assert found.of("warning")
    assert "likely" in found[0].message
    assert found.ok
    assert not found.clean


def test_13_a_sequence_may_end_in_silence():
    x = X.clone()
    x[0, 10:] = x[2, 6:] = x[5, 3:] = 0  # almost certain by chance alone, but somebody has counted these lengths
    found = pv.diagnose(x, N, batch_first=True)
    assert [(one.level, one.rule) for one in found] == [("warning", "padding inside the length")]
    assert "almost certain" not in found[0].message


@torch.no_grad()
def test_13_a_convolution_is_no_certain_mistake():
    found = pv.diagnose(over_time(nn.Conv1d(3, 8, 3, padding=1))(X), N, batch_first=True)
    assert found.undecided
    assert not found.of("error")


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
        (X * (torch.arange(12) != 11).unsqueeze(1) * (torch.arange(12) != 10).unsqueeze(1), N, 0, 1),  # a warning
        (X + torch.randn(12, 3), N, 1, 1),  # undecided
    ],
    ids=["right", "error", "info", "warning", "undecided"],
)
def test_13_the_exit_status(x, lengths, plain, strict, tmp_path, capsys):
    torch.save((x, lengths), tmp_path / "a.pt")
    command = ["diagnose", str(tmp_path / "a.pt"), "--batch-first"]
    assert cli.main(command) == plain
    assert cli.main([*command, "--strict"]) == strict
    assert ("undecided" in capsys.readouterr().out) == (lengths is N and plain == 1)


# ---- 14. advise measures until it is clear, or says that it is not


# ---- 15. The names of a comparison are stable


# ---- 16. A truth table says which half it means


# ---- 17. A file's suffix and its contents agree


# ---- 18. A search says how sure it is

PACKED = pack_padded_sequence(torch.randn(3, 5, 2), [5, 3, 2], batch_first=True)
GRU, LSTM = nn.GRU(2, 4, batch_first=True), nn.LSTM(2, 4, batch_first=True)

SURE = {  # mistakes whose text no other mistake gives
    "Lengths not sorted": lambda: pack_padded_sequence(torch.zeros(3, 5, 2), [2, 5, 3], True),
    "An empty sequence": lambda: pack_padded_sequence(torch.zeros(3, 5, 2), [5, 3, 0], True),
    "Lengths on the GPU": lambda: pack_padded_sequence(torch.zeros(2, 5, 2), torch.tensor([5, 3]).to("meta"), True),
    "State batch first": lambda: GRU(torch.randn(3, 5, 2), torch.zeros(3, 1, 4)),
    "No size of its own": lambda: PACKED.size(),
    "A layer that wants a tensor": lambda: torch.relu(PACKED),
}
UNSURE = {  # mistakes whose text others give, too
    "Batch and time swapped": lambda: pack_padded_sequence(torch.zeros(2, 5), [2, 1]),
    "Lengths beyond T": lambda: pad_packed_sequence(pack_padded_sequence(torch.zeros(2, 5, 2), [7, 3], True)),
    "Too few lengths": lambda: pack_padded_sequence(torch.zeros(2, 5, 2), [5, 3, 2], True, False),
    "Layers taken for h and c": lambda: exec("h, c = packed", {"packed": PACKED}),
    "Two devices": lambda: torch.zeros(2, 3, device="meta") * torch.ones(2, 3),
    "Workers of different widths": lambda: torch.cat([torch.zeros(2, 3), torch.zeros(2, 4)]),
}
OTHERS = [  # mistakes that the museum does not have
    lambda: pad_packed_sequence(torch.zeros(3, 2)),  # "'Tensor' object has no attribute 'batch_sizes'"
    lambda: pad_packed_sequence(GRU(PACKED)),
    lambda: GRU(torch.randn(7, 5, 2), torch.zeros(1, 3, 4)),  # a state of another batch
    lambda: LSTM(torch.randn(7, 5, 2), (torch.zeros(1, 1, 4), torch.zeros(1, 1, 4))),
    lambda: GRU(torch.randn(3, 5, 2), torch.zeros(1, 3, 5)),  # of another layer
    lambda: GRU(torch.randn(3, 5, 7)),
    lambda: nn.Embedding(5, 2)(torch.tensor([7])),
    lambda: next(iter(torch.utils.data.DataLoader([torch.zeros(3), torch.zeros(2)], batch_size=2))),
    lambda: torch.tensor([[1, 2, 3], [1, 2]]),
    lambda: nn.CrossEntropyLoss()(torch.randn(15, 4), torch.zeros(21).long()),
    lambda: torch.zeros(3, 5) * torch.zeros(3, 4),
    lambda: nn.Sequential(GRU, nn.Linear(4, 2))(torch.randn(3, 5, 2)),
    lambda: PACKED.lengths,
    lambda: LSTM(torch.randn(3, 5, 2), torch.zeros(1, 3, 4)),
    lambda: torch.zeros(6).view(4, 2),
    lambda: torch.zeros(5).narrow(0, 3, 4),
    lambda: torch.zeros(3)[5],
    lambda: [][3],
    lambda: torch.zeros(2, 3) @ torch.zeros(2, 3),
    lambda: torch.zeros(2).sum().backward(),
    lambda: GRU(torch.randn(3, 5, 2)).size(),
    lambda: torch.zeros(3)[torch.ones(4).bool()],
]
REAL = [  # of issues and questions: (message, the exhibit, or None if there is none)
    ("AttributeError: 'Tensor' object has no attribute 'batch_sizes'", None),
    ("AttributeError: 'tuple' object has no attribute 'batch_sizes'", None),
    ("RuntimeError: Expected hidden[0] size (2, 1, 512), got [2, 128, 512]", None),
    ("File 'sparse.py', in embedding\nIndexError: index out of range in self", None),
    ("in DataParallel.forward\nValueError: lengths array has incorrect size", None),
    ("RuntimeError: cu_seqlens_q must have shape (batch_size + 1)", "cu_seqlens without its 0"),
    ("ValueError: too many values to unpack (expected 2)", "Layers taken for h and c"),
    ("RuntimeError: stack expects each tensor to be equal size, but got [3] at entry 0 and [2] at entry 1", None),
    ("ValueError: expected sequence of length 3 at dim 1 (got 2)", None),
    ("ValueError: Expected input batch_size (15) to match target batch_size (21).", None),
    ("RuntimeError: The size of tensor a (5) must match the size of tensor b (4) at non-singleton dimension 1", None),
    ("TypeError: linear(): argument 'input' (position 1) must be Tensor, not tuple", None),
    ("ValueError: batch_sizes should always be on CPU. Instances of PackedSequence should never be created manually. "
     "They should be instantiated by functions like pack_sequence and pack_padded_sequences", None),
    ("RuntimeError: cudnn RNN backward can only be called in training mode", None),
    ("TypeError: conv1d() received an invalid combination of arguments - got (PackedSequence, Parameter, Parameter, "
     "tuple, tuple, tuple, int), but expected one of:", "A layer that wants a tensor"),
    ("TypeError: lstm() received an invalid combination of arguments - got (Tensor, Tensor, list, bool, int, float, "
     "bool, bool, bool), but expected one of:", None),
    ("onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument: [ONNXRuntimeError] : 2 : INVALID_ARGUMENT : "
     "Non-zero status code returned while running ScatterElements node. Status Message: Indices vs updates dimensions "
     "differs at position=0 4 vs 2", None),
]  # fmt: skip


def what_torch_says(mistake):
    """The message of a mistake, and its whole traceback."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is
        mistake()
    return f"{caught.type.__name__}: {caught.value}", "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(("name", "mistake"), SURE.items(), ids=SURE)
def test_18_a_text_of_one_mistake_alone_is_sure(name, mistake):
    for text in what_torch_says(mistake):
        found = museum.search(text)
        assert found.sure
        assert found[0].name == name
        assert found.to_text().startswith(f"Sure: {name}, ")


@pytest.mark.parametrize(("name", "mistake"), UNSURE.items(), ids=UNSURE)
def test_18_a_text_of_several_mistakes_is_not(name, mistake):
    text, _ = what_torch_says(mistake)
    found = museum.search(text)
    assert found[0].name == name
    assert not found.sure
    assert found.to_text().startswith(f"Not sure, perhaps: {name}, ")


@pytest.mark.parametrize("mistake", OTHERS)
def test_18_no_other_mistake_is_surely_one_of_these(mistake):
    for text in what_torch_says(mistake):
        assert not museum.search(text).sure


@pytest.mark.parametrize(("text", "name"), REAL)
def test_18_real_messages_are_never_wrong_and_sure(text, name):
    found = museum.search(text)
    assert not found or name is not None
    assert not found or found[0].name == name
    assert not found.sure or found[0].name == name


def test_18_words_are_never_sure():
    for words in ("h_n order", "my lengths are floats", "why is packing slow", "onnx", "batch_first"):
        found = museum.search(words)
        assert found
        assert not found.sure
        assert "Only some words are alike." in found.to_text()


def test_18_the_panel_says_it_too():
    sure, _ = what_torch_says(SURE["An empty sequence"])
    unsure, _ = what_torch_says(UNSURE["Too few lengths"])
    says = {sure: "Sure: An empty", unsure: "Not sure, perhaps: Too few", REAL[0][0]: "Nothing close."}
    for text, said in says.items():
        panel = MuseumExplorer(text)
        assert panel.to_text().startswith(said)
        assert said in panel.summary.value
        assert bool(panel.found) == (said != "Nothing close.")


# ---- 19. A panel's complaint is in its text
