"""The race of the helpers: everybody in it computes the same, and the file comes back as it was."""

import pytest
import torch

from packviz.bench.timing import RATIOS, Timing
from packviz.studies import helpers


@pytest.mark.parametrize("lengths", [[3, 5, 1], [5, 5], [1]])
@pytest.mark.parametrize("name", helpers.NAMES)
def test_all_contestants_agree(name, lengths):
    comparison = helpers.helper_calls(name, lengths, 6, 2)
    assert list(comparison.alike) == list(comparison.calls)  # so that the form compares them as well
    target = comparison.calls[helpers.LOOP]()
    for call in comparison.calls.values():
        found = call()
        assert type(found) is type(target), name
        for one, other in zip(*((f if isinstance(f, tuple) else (f,)) for f in (found, target)), strict=True):
            assert torch.allclose(one.float(), other.float(), atol=1e-6), name


def test_in_a_table():
    timing = Timing(
        {"helper": (1e-3, 2e-3, 1.5e-3) * 2, "loop": (4e-3, 8e-3, 6e-3) * 2, "torch": (1e-3, 2e-3, 3e-3) * 2}
    )
    point = helpers.HelperPoint("align", 2, 3, 4)
    found = helpers.Helpers({"device_name": "abacus", "torch": "2"}, {point: timing})
    assert found.faster(point) == 4
    title, _, batch, row, *notes = found.to_text().splitlines()
    assert title == "A plain Python loop takes 4.0 to 4.0 times as long as the helper"
    assert batch == "2 sequences of 1 to 3 time steps, 4 features:"
    assert row.split() == ["align", "1.5", "6", "4.0", "×", "2", "?1.0", "×"]
    assert notes == ["", RATIOS, "?: not told apart.", "Measured on abacus (CPU), torch 2, 6 rounds."]


def test_recorded():
    found = helpers.recorded()
    assert all(found.faster(point) > 1 for point in found.points)
