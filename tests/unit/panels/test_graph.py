"""Tests of the panel of autograd graphs: every control is moved over its range, and the picture shows the counts."""

import pytest
from controls import move, move_each_and_back, words

from packviz.core.lengths import spread
from packviz.count import profile
from packviz.panels import GraphPanel
from packviz.panels.graph import FEATURES, MOST_STEPS, OPERATIONS, SEQUENCES


@pytest.fixture
def panel():
    return GraphPanel(6, 3)


def shows(panel, steps, distinct, operation="pad_packed_sequence"):
    lengths = spread(distinct, SEQUENCES, steps)
    assert len(set(lengths)) == distinct
    counted = getattr(profile.count(lengths, FEATURES), OPERATIONS[operation])  # on the CPU
    assert panel.error.value == ""
    assert panel.counted == counted
    assert counted.graph().to_svg("live").removesuffix("</svg>")[-400:] in panel.picture.value
    nodes, kernels = f"{counted.nodes} nodes", f"{counted.backward.kernels} kernels"
    assert words(panel.summary) == (
        f"The backward pass of {nodes} runs {kernels} and writes {profile.size(counted.backward.bytes)}."
    )
    assert panel.to_text().endswith(counted.graph().to_text())
    assert f"{SEQUENCES} sequences of {FEATURES} features" in panel.to_text()


def test_every_control_changes_what_is_counted(panel):
    move_each_and_back(
        panel,
        (
            (panel.steps, [MOST_STEPS, 6]),
            (panel.distinct, [1, 6, 3]),
            (panel.operation, [*reversed(OPERATIONS)]),
        ),
    )
    move(panel.operation, "pack_padded_sequence")
    shows(panel, 6, 3, "pack_padded_sequence")


def test_no_more_lengths_than_steps(panel):
    move(panel.steps, 2)
    assert (panel.distinct.value, panel.distinct.max) == (2, 2)
    shows(panel, 2, 2)
    move(panel.steps, 1)
    shows(panel, 1, 1)
    move(panel.steps, 20)
    assert (panel.distinct.value, panel.distinct.max) == (1, 20)
    shows(panel, 20, 1)


def test_it_starts_as_told():
    panel = GraphPanel(9, 9)
    shows(panel, 9, 9)
    for steps, distinct in ((0, 0), (5, 6), (MOST_STEPS + 1, 1), (3, 0)):
        with pytest.raises(
            ValueError,
            match=r"^(time steps T|distinct lengths) is \d+; give a whole number from 1 to",
        ):
            GraphPanel(steps, distinct)
