"""Every control of the explorer of static graphs, moved as a browser moves it; and whatever a reader may type."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from panels import move, words

from packviz.check import networks
from packviz.explorers import StaticExplorer
from packviz.explorers.static import NETWORKS, OWN

RELU = """\
def forward(self, x, lengths):
    packed = pack_padded_sequence(x, lengths)
    return torch.relu(packed.data)
"""


@pytest.fixture
def explorer():
    return StaticExplorer()


def test_every_network_has_its_verdict(explorer):
    rules = {"PackedSequence returned": ["size"], "PackedSequence used by max": ["size"], "final states only": []}
    rules["packed if the lengths differ"] = ["trace", "unsorted"]
    for name in [*NETWORKS, next(iter(NETWORKS))]:
        before = explorer.picture.value
        move(explorer.network, name)
        assert explorer.error.value == ""
        assert explorer.picture.value != before
        assert explorer.code.value == networks.source(getattr(networks, NETWORKS[name]))
        assert explorer.result.rules == rules.get(name, explorer.result.rules)
        assert words(explorer.summary) == explorer.result.verdict
        assert ("wrong" in explorer.result.verdict) == (name == "packed if the lengths differ")
        assert explorer.to_text() == explorer.result.to_text()


def test_a_typed_forward_is_checked_and_its_line_quoted(explorer):
    move(explorer.code, RELU)
    assert explorer.network.value == OWN
    assert explorer.result.rules == ["size"]
    assert explorer.result[0].where == "line 3: return torch.relu(packed.data)"
    assert explorer.result.code.lines[2][2] == "!"
    move(explorer.network, "final states only")
    assert explorer.result.rules == []
    move(explorer.code, networks.source(networks.Sorted))
    assert explorer.network.value == "packed, padded, sorted"
    for code in (
        "def forward(self, x, lengths):\n    return nn.GRU(3, 4)(pack_padded_sequence(x, lengths))[1]",
        "def forward(self, tokens):\n    return self.after(self.lstm(self.before(tokens))[0])",
        "def forward(self):\n    return torch.zeros(2)",
    ):
        move(explorer.code, code)
        assert explorer.error.value == ""
        assert not explorer.result


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def forward(self, x, lengths):\n    return (x", "line 2: '(' was never closed"),
        ("", "the code defines no forward; begin with def forward(self, x, lengths):"),
        ("class forward:\n    pass", "the code defines no forward"),
        ("def forward(self, x, lengths):\n    yield x", "Network.forward is a generator or async, so a call runs"),
        ("def forward(self, x, lengths):\n    y = 1\n    return z", "line 3: NameError: name 'z' is not defined"),
        ("def forward(self, x, lengths):\n    raise ValueError", "line 2: ValueError: "),
        ("def forward(self, x, lengths):\n    return self.forward(x, lengths)", "RecursionError: "),
        ("import sys\nsys.exit('bye')", "line 2: SystemExit: bye"),
        ("def forward(self, a, b, c):\n    return a", "missing a required argument: 'c'"),
        ("def forward():\n    pass", "invalid method signature"),
    ],
)
def test_what_is_wrong_with_the_code_is_said_and_the_picture_stays(explorer, code, said):
    before = explorer.picture.value
    move(explorer.code, code)
    assert said in words(explorer.error)
    assert explorer.picture.value == before
    assert explorer.network.value == OWN
    move(explorer.network, "PackedSequence returned")  # no control is dead
    assert explorer.error.value == ""
    assert explorer.picture.value == before


@given(st.text(max_size=80) | st.text("defforward(self,x)\n :return", max_size=60))
def test_nothing_typed_breaks_the_panel(code):
    explorer = StaticExplorer()
    move(explorer.code, code)
    assert words(explorer.error)
    assert "packviz failed" not in words(explorer.error)


def test_lengths(explorer):
    move(explorer.network, "packed if the lengths differ")
    for typed in ("4, 4", "3", "6, 5, 4, 1", "5, 3"):
        before = explorer.picture.value
        move(explorer.lengths, typed)
        assert explorer.error.value == ""
        assert explorer.picture.value != before
    assert explorer.result.rules[0] == "trace"
    move(explorer.lengths, "3, 5")
    assert explorer.error.value == ""
    move(explorer.network, "packed, padded, sorted")
    assert "must be sorted in decreasing order" in words(explorer.error)  # torch's own complaint


def test_it_starts_as_told_and_leaves_torchs_random_numbers():
    state = torch.random.get_rng_state()
    explorer = StaticExplorer("final states only", [4, 4, 2])
    assert torch.equal(torch.random.get_rng_state(), state)
    assert explorer.result.rules == []
    assert "compared on: lengths [4, 4, 2];" in explorer.to_text()
    with pytest.raises(ValueError, match="network is 'nonsense'; choose one of 'fixed length', "):
        StaticExplorer("nonsense")
    with pytest.raises(ValueError, match=r"lengths\[0\] is -1"):
        StaticExplorer(lengths=[-1])
