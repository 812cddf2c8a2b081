"""Tests of the panel of autograd graphs: every control is moved over its range, and the picture shows the counts."""

import pytest
from panels import move, move_each_and_back, words

from packviz.core.lengths import spread
from packviz.count import profile
from packviz.explorers import GraphExplorer
from packviz.explorers.graph import FEATURES, MOST_STEPS, OPERATIONS, SEQUENCES


@pytest.fixture
def explorer():
    return GraphExplorer(6, 3)


def shows(explorer, steps, distinct, operation="pad_packed_sequence"):
    lengths = spread(distinct, SEQUENCES, steps)
    assert len(set(lengths)) == distinct
    counted = getattr(profile.count(lengths, FEATURES), OPERATIONS[operation])  # on the CPU
    assert explorer.error.value == ""
    assert explorer.counted == counted
    assert counted.graph().to_svg("live").removesuffix("</svg>")[-400:] in explorer.picture.value
    nodes, kernels = f"{counted.nodes} nodes", f"{counted.backward.kernels} kernels"
    assert words(explorer.summary) == (
        f"The backward pass of {nodes} runs {kernels} and writes {profile.size(counted.backward.bytes)}."
    )
    assert explorer.to_text().endswith(counted.graph().to_text())
    assert f"{SEQUENCES} sequences of {FEATURES} features" in explorer.to_text()


def test_every_control_changes_what_is_counted(explorer):
    move_each_and_back(
        explorer,
        (
            (explorer.steps, [MOST_STEPS, 6]),
            (explorer.distinct, [1, 6, 3]),
            (explorer.operation, [*reversed(OPERATIONS)]),
        ),
    )
    move(explorer.operation, "pack_padded_sequence")
    shows(explorer, 6, 3, "pack_padded_sequence")


def test_no_more_lengths_than_steps(explorer):
    move(explorer.steps, 2)
    assert (explorer.distinct.value, explorer.distinct.max) == (2, 2)
    shows(explorer, 2, 2)
    move(explorer.steps, 1)
    shows(explorer, 1, 1)
    move(explorer.steps, 20)
    assert (explorer.distinct.value, explorer.distinct.max) == (1, 20)
    shows(explorer, 20, 1)


def test_it_starts_as_told():
    explorer = GraphExplorer(9, 9)
    shows(explorer, 9, 9)
    for steps, distinct in ((0, 0), (5, 6), (MOST_STEPS + 1, 1), (3, 0)):
        with pytest.raises(ValueError, match=r"^(time steps T|distinct lengths) is \d+; give a whole number from 1 to"):
            GraphExplorer(steps, distinct)
