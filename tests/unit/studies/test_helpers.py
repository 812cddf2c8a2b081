"""The race of the helpers: everybody in it computes the same, and the file comes back as it was."""

import pytest
import torch

from packviz.bench.timing import Timing
from packviz.studies import helpers


@pytest.mark.parametrize("lengths", [[3, 5, 1], [5, 5], [1]])
def test_all_contestants_agree(lengths):
    for name, calls in helpers.contestants(lengths, 6, 2).items():
        target = calls[helpers.LOOP]()
        for call in calls.values():
            found = call()
            assert type(found) is type(target), name
            for one, other in zip(*((f if isinstance(f, tuple) else (f,)) for f in (found, target)), strict=True):
                assert torch.allclose(one.float(), other.float(), atol=1e-6), name


def test_race_and_file(tmp_path, two_threads):
    found = helpers.race(batch=3, steps=5, features=2, rounds=2)
    assert torch.get_num_threads() == two_threads
    assert set(found.timings) == {"padding_mask", "masked_loss", "align", "unpack_to_length"}
    path = tmp_path / "helpers.json"
    helpers.save(str(path), found)
    assert helpers.load(str(path)).to_text() == found.to_text()
    with pytest.raises(ValueError, match="there is no result file"):
        helpers.load(str(tmp_path / "nothing.json"))


def test_how_many_times_as_long():
    timing = Timing(
        {"helper": (1e-3, 2e-3, 1.5e-3), "loop": (4e-3, 8e-3, 6e-3)},
        provenance={
            "parameters": {"batch": 2, "steps": 3, "features": 4},
            "device_name": "abacus",
            "torch": "2",
            "threads": 1,
        },
    )
    found = helpers.Helpers({"align": timing})
    assert found.faster("align") == 4
    assert found.to_text().splitlines()[2] == "align                    1.5        6   loop 4"


def test_recorded():
    found = helpers.load("helpers_cpu.json")
    assert all(found.faster(name) > 1 for name in found.timings)
