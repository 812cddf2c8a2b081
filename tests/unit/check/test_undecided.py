"""Tests that `diagnose` says when it cannot judge, and judges where it can."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import packviz as pv

LENGTHS = [9, 4, 6, 2, 7]
REAL = torch.arange(12) < torch.tensor(LENGTHS).unsqueeze(1)  # (B, T), True at real cells


def over_time(layer):
    """Applies a layer that takes `(B, C, T)` to `(B, T, C)`."""
    return lambda x: layer(x.transpose(1, 2)).transpose(1, 2)


def packed_lstm(x):
    output, _ = nn.LSTM(8, 6, batch_first=True)(pack_padded_sequence(x, LENGTHS, True, False))
    return pad_packed_sequence(output, True, total_length=12)[0]


def repeat_last_step(x):
    last = x[range(5), [length - 1 for length in LENGTHS]]
    return x.where(REAL.unsqueeze(2), last.unsqueeze(1))


JUDGED = {
    "nothing": lambda x: x,
    "dropout of zeros": nn.Dropout(),
    "Linear": nn.Linear(8, 5),
    "LayerNorm": lambda x: nn.LayerNorm(8)(x + 1),
    "BatchNorm": over_time(nn.BatchNorm1d(8)),
    "packed LSTM": packed_lstm,
}
UNDECIDED = {  # what the warning has to name
    "dropout": lambda x: nn.Dropout()(x + 1),
    "convolution": over_time(nn.Conv1d(8, 5, 3, padding=1)),
    "positions": lambda x: x + torch.randn(12, 8),
    "each sequence has its own": repeat_last_step,
    "RNN": lambda x: nn.LSTM(8, 6, batch_first=True)(x)[0],
    "meta": lambda x: x.to("meta"),
    "the same everywhere": lambda x: 0 * x,
}


def diagnosed(layer, batch_first):
    torch.manual_seed(0)
    x = layer(torch.randn(5, 12, 8) * REAL.unsqueeze(2))
    x = x if batch_first else x.transpose(0, 1)
    return pv.diagnose(x, LENGTHS, batch_first=batch_first)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("layer", JUDGED.values(), ids=JUDGED)
@torch.no_grad()
def test_constant_padding_is_judged(layer, batch_first):
    findings = diagnosed(layer, batch_first)
    assert findings.ok
    assert not findings.undecided


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("cause", UNDECIDED)
@torch.no_grad()
def test_padding_that_is_not_constant_is_undecided(cause, batch_first):
    findings = diagnosed(UNDECIDED[cause], batch_first)
    assert findings.undecided
    assert not findings.ok
    assert "undecided" in findings.headline
    (warning,) = findings.of_level("warning")
    assert cause in warning.message
    assert "cannot" in warning.message


@pytest.mark.parametrize("layer", [nn.Embedding(40, 8), nn.Embedding(40, 8, padding_idx=0)])
@pytest.mark.parametrize("padding", [0, 1])
@torch.no_grad()
def test_token_ids_and_their_embeddings_are_judged(layer, padding):
    ids = torch.randint(2, 40, (5, 12)).masked_fill(~REAL, padding)
    for x in (ids, ids.int(), layer(ids)):
        assert pv.diagnose(x, LENGTHS, batch_first=True).ok
        assert not pv.diagnose(x, sorted(LENGTHS), batch_first=True).ok


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@torch.no_grad()
def test_rounding_is_no_difference(dtype):
    """A linear layer rounds differently in different rows."""
    torch.manual_seed(0)
    for size in range(2, 12):
        lengths = torch.randint(1, 34, (size,))
        real = torch.arange(33) < lengths.unsqueeze(1)
        x = nn.Linear(17, 5)(torch.randn(size, 33, 17) * real.unsqueeze(2)).to(dtype)
        rounding = torch.finfo(dtype).eps * torch.randint(0, 2, x.shape).to(dtype)
        assert not pv.diagnose(x * (1 + rounding), lengths, batch_first=True).undecided


@pytest.mark.parametrize("size", [1, 4, 6])
def test_without_padding_there_is_nothing_to_judge_by(size):
    findings = pv.diagnose(torch.randn(size, 6, 3), [6] * size, batch_first=True)
    assert findings.rules == ["no padding"]
    assert findings.ok
    assert findings
    assert ("batch_first" in findings[0].message) == (size == 6)
