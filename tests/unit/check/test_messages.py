"""Real messages: the mistake behind each is found, or nothing is said; never another mistake."""

import hashlib
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import packviz as pv
from packviz.check import museum

MESSAGES = tomllib.loads(Path(__file__).with_name("messages.toml").read_text(encoding="utf-8"))[
    "message"
]


def repository(message):
    return message["source"].partition("#")[0]


def half(message):
    """Whether rules may be written on a message, or are measured on it; decided by the repository
    before any rule.
    """
    return ("written", "measured")[
        int(hashlib.sha256(repository(message).encode()).hexdigest(), 16) % 2
    ]


def verdict(message):
    found, mistake = pv.explain(message["text"]), message.get("mistake")
    if (found[0].name if found else None) == mistake:
        return "right"
    return "silent" if not found else "wrong" if found.sure else "unsure"


def test_there_are_enough_messages():
    neighbours = [message for message in MESSAGES if "mistake" not in message]
    assert len(MESSAGES) >= 80
    assert len({repository(message) for message in MESSAGES}) >= 40
    assert len(neighbours) * 3 >= len(MESSAGES)
    for message in MESSAGES:
        assert set(message) in ({"source", "text", "mistake"}, {"source", "text", "other"})
        assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", message["source"])
        assert message.get("mistake", "Tensors on two devices") in {
            one.name for one in museum.ENTRIES
        }


@pytest.mark.parametrize(("part", "right", "unsure"), [("written", 66, 1), ("measured", 78, 1)])
def test_the_score(part, right, unsure):
    found = Counter(verdict(message) for message in MESSAGES if half(message) == part)
    assert found["wrong"] == 0
    assert found["unsure"] <= unsure  # another mistake was given, and called not sure
    assert found["right"] >= right
    assert found["right"] >= 0.9 * found.total()


def step_beyond(cell):
    """Walks over batch_sizes that are too many, so that a step reads no rows."""
    packed, at = pack_padded_sequence(torch.zeros(5, 3, 2), [7, 3, 2]), 0
    for size in packed.batch_sizes:
        x, h = packed.data[at : at + size], torch.zeros(size, 4)
        cell(x, (h, h)) if isinstance(cell, nn.LSTMCell) else cell(x[None], h[None])
        at += size


@pytest.mark.parametrize("cell", [nn.LSTMCell(2, 4), nn.GRU(2, 4)])
def test_a_step_beyond_the_data_may_come_from_lengths_beyond_t(cell):
    with pytest.raises(RuntimeError) as raised, pv.explain_errors():
        step_beyond(cell)
    assert "packviz: State" not in str(getattr(raised.value, "__notes__", ""))
    for text in (str(raised.value), raised.value):
        found = pv.explain(text)
        assert [one.name for one in found] == [
            "Lengths greater than T",
            "State for another batch size",
        ]
        assert not found.sure
