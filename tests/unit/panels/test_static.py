"""Tests of the panel of static graphs: its controls are moved as a browser moves them, and any code may be typed."""

import pytest
import torch
from controls import move, words
from hypothesis import given
from hypothesis import strategies as st

from packviz.check import networks
from packviz.panels import StaticPanel
from packviz.panels.static import NETWORKS, OWN

RELU = """\
def forward(self, x, lengths):
    packed = pack_padded_sequence(x, lengths)
    return torch.relu(packed.data)
"""


@pytest.fixture
def panel():
    return StaticPanel()


def test_every_network_has_its_verdict(panel):
    rules = {
        "PackedSequence returned": ["size"],
        "PackedSequence used by max": ["size"],
        "final states only": [],
    }
    rules["packed if the lengths differ"] = ["trace", "unsorted"]
    for name in [*NETWORKS, next(iter(NETWORKS))]:
        before = panel.picture.value
        move(panel.network, name)
        assert panel.error.value == ""
        assert panel.picture.value != before
        assert panel.code.value == networks.source(getattr(networks, NETWORKS[name]))
        assert panel.result.rules == rules.get(name, panel.result.rules)
        assert words(panel.summary) == panel.result.verdict
        assert ("wrong" in panel.result.verdict) == (name == "packed if the lengths differ")
        assert panel.to_text() == panel.result.to_text()


def test_a_typed_forward_is_checked_and_its_line_quoted(panel):
    move(panel.code, RELU)
    assert panel.network.value == OWN
    assert panel.result.rules == ["size"]
    assert panel.result[0].where == "line 3: return torch.relu(packed.data)"
    assert panel.result.code[2][2] == "!"
    move(panel.network, "final states only")
    assert panel.result.rules == []
    move(panel.code, networks.source(networks.Sorted))
    assert panel.network.value == "packed, padded, sorted"
    for code in (
        "def forward(self, x, lengths):\n    return nn.GRU(3, 4)(pack_padded_sequence(x, lengths))[1]",
        "def forward(self, tokens):\n    return self.after(self.lstm(self.before(tokens))[0])",
        "def forward(self):\n    return torch.zeros(2)",
    ):
        move(panel.code, code)
        assert panel.error.value == ""
        assert not panel.result


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def forward(self, x, lengths):\n    return (x", "line 2: '(' was never closed"),
        ("", "the code defines no forward; begin with def forward(self, x, lengths):"),
        ("class forward:\n    pass", "the code defines no forward"),
        (
            "def forward(self, x, lengths):\n    yield x",
            "Network.forward is a generator or async, so a call runs",
        ),
        (
            "def forward(self, x, lengths):\n    y = 1\n    return z",
            "line 3: NameError: name 'z' is not defined",
        ),
        ("def forward(self, x, lengths):\n    raise ValueError", "line 2: ValueError: "),
        ("def forward(self, x, lengths):\n    return self.forward(x, lengths)", "RecursionError: "),
        ("import sys\nsys.exit('bye')", "line 2: SystemExit: bye"),
        ("def forward(self, a, b, c):\n    return a", "missing a required argument: 'c'"),
        ("def forward():\n    pass", "invalid method signature"),
    ],
)
def test_what_is_wrong_with_the_code_is_said_and_the_picture_stays(panel, code, said):
    before = panel.picture.value
    move(panel.code, code)
    assert said in words(panel.error)
    assert panel.picture.value == before
    assert panel.network.value == OWN
    move(panel.network, "PackedSequence returned")  # the controls still work
    assert panel.error.value == ""
    assert panel.picture.value == before


@given(st.text(max_size=80) | st.text("defforward(self,x)\n :return", max_size=60))
def test_nothing_typed_breaks_the_panel(code):
    panel = StaticPanel()
    move(panel.code, code)
    assert words(panel.error)
    assert "packviz failed" not in words(panel.error)


def test_lengths(panel):
    move(panel.network, "packed if the lengths differ")
    for typed in ("4, 4", "3", "6, 5, 4, 1", "5, 3"):
        before = panel.picture.value
        move(panel.lengths, typed)
        assert panel.error.value == ""
        assert panel.picture.value != before
    assert panel.result.rules[0] == "trace"
    move(panel.lengths, "3, 5")
    assert panel.error.value == ""
    move(panel.network, "packed, padded, sorted")
    assert "must be sorted in decreasing order" in words(panel.error)  # torch's own complaint


def test_it_starts_as_told_and_leaves_torchs_random_numbers():
    state = torch.random.get_rng_state()
    panel = StaticPanel("final states only", [4, 4, 2])
    assert torch.equal(torch.random.get_rng_state(), state)
    assert panel.result.rules == []
    assert "compared on: lengths [4, 4, 2];" in panel.to_text()
    with pytest.raises(ValueError, match="network is 'nonsense'; choose one of 'fixed length', "):
        StaticPanel("nonsense")
    with pytest.raises(ValueError, match=r"lengths\[0\] is -1"):
        StaticPanel(lengths=[-1])
