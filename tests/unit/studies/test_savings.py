"""The experiment of notebook 03: equal FLOPs from few and from many distinct lengths."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from packviz import figures
from packviz.bench import Timing
from packviz.count.flops import Spec
from packviz.studies import savings

RECORDED = Path(__file__).parents[3] / "notebooks" / "recorded" / "savings_cpu.json"


def fake(times=None, rounds=3):
    """A race of 16 sequences with times of our own."""
    names = ["padded", savings.name(2), savings.name(16)]
    times = times or {name: [1e-3 * (i + 1)] * rounds for i, name in enumerate(names)}
    place = {"device_name": "a test", "torch": "9", "threads": 1, "load_average": [0.5, 0, 0], "cores": 2}
    parameters = {"mode": "GRU", "input_size": 4, "hidden_size": 8, "size": 16, "distinct": [2, 16]}
    timing = Timing(dict(zip(names, times.values(), strict=True)), 3, False, place | {"parameters": parameters})
    return savings.Savings(Spec("GRU", 4, 8), 16, (2, 16), timing)


def test_flops_are_the_same_for_every_batch():
    for race in (fake(), *savings.load(str(RECORDED))):
        padded, *packed = race.flops.values()
        assert len(set(packed)) == 1
        assert 0.5 < packed[0] / padded < 0.54
        assert list(race.flops) == list(race.timing.seconds)


def test_a_small_race_for_real(monkeypatch, two_threads):
    seen, told = [], []
    monkeypatch.setattr(torch.nn.GRU, "zero_grad", lambda self: seen.append(torch.get_num_threads()))
    race = savings.race("GRU", distinct=(2, 4), size=4, hidden_size=3, rounds=2, progress=lambda *n: told.append(n))
    assert set(seen) == {1}
    assert torch.get_num_threads() == two_threads
    assert race.timing.rounds == 2
    assert told[-1] == (5, 5)
    assert list(race.timing.seconds) == ["padded", "packed (2 lengths)", "packed (4 lengths)"]
    assert race.timing.provenance["threads"] == 1


def test_threads_are_restored_after_a_failure(two_threads):
    with pytest.raises(ZeroDivisionError):
        savings.race(distinct=(2, 4), size=4, stop=lambda: 1 // 0)
    assert torch.get_num_threads() == two_threads


def test_in_words():
    assert repr(fake()) == (
        "GRU(4, 8), one training step. 16 sequences padded to 16 time steps, 136 of 256 cells real in every batch.\n"
        "In parentheses: how many distinct lengths a batch has.\n"
        "                        GFLOP       ms  quartiles\n"
        "padded               0.000436        1  1 to 1\n"
        "packed (2 lengths)   0.000229        2  2 to 2\n"
        "packed (16 lengths)  0.000229        3  3 to 3\n"
        "Packed, every batch takes 0.525 times the padded FLOPs.\n"
        "packed (2 lengths) takes 2 times as long as padded (quartiles 2 to 2).\n"
        "packed (16 lengths) takes 3 times as long as padded (quartiles 3 to 3).\n"
        "packed (16 lengths) takes 1.5 times as long as packed (2 lengths) (quartiles 1.5 to 1.5).\n"
        "Measured on a test, torch 9, torch threads: 1; 3 interleaved rounds, load average 0.5 on 2 cores."
    )


def test_the_verdict_follows_the_numbers():
    quick = fake({"padded": [4.0, 4, 4], "few": [2.0, 2, 2], "many": [2.0, 1, 3]}).verdict()
    assert "packed (2 lengths) takes 0.5 times as long as padded" in quick
    assert "(quartiles 0.375 to 0.625); " not in quick
    assert (
        "packed (16 lengths) takes 1 times as long as packed (2 lengths) (quartiles 0.75 to 1.25); the spread" in quick
    )


def test_a_file_keeps_the_race(tmp_path):
    path = str(tmp_path / "races.json")
    savings.save(path, [fake(), fake(rounds=5)])
    assert [repr(race) for race in savings.load(path)] == [repr(fake()), repr(fake(rounds=5))]


def test_the_command_writes_the_file(tmp_path, capsys):
    path = tmp_path / "races.json"
    savings.main(["--out", str(path), "--size", "4", "--distinct", "2", "4", "--rounds", "2"])
    gru, lstm = savings.load(str(path))
    assert (gru.spec.mode, lstm.spec.mode) == ("GRU", "LSTM")
    assert repr(lstm) in capsys.readouterr().out


def test_the_recorded_file_says_where_it_comes_from():
    gru, lstm = savings.load(str(RECORDED))
    assert (gru.spec, lstm.spec) == (Spec("GRU", 32, 32), Spec("LSTM", 32, 32))
    for race in (gru, lstm):
        place = race.timing.provenance
        assert {"cpu", "torch", "threads", "allocator", "date", "parameters", "load_average"} <= set(place)
        assert race.timing.rounds >= 15
        assert not race.timing.stopped


def test_chart():
    race = fake()
    chart = figures.flops_and_time(race)
    flops, times = chart.data
    assert list(flops.y) == list(times.y) == list(race.flops)
    assert list(times.x) == [1, 2, 3]
    assert np.allclose(flops.x, [n / 1e9 for n in race.flops.values()], rtol=0.01)
    assert list(times.error_x.array) == list(times.error_x.arrayminus) == [0, 0, 0]
    assert chart.to_text() == repr(race)
    said = [note.text for note in chart.layout.annotations]
    assert said == [
        "GFLOPs (GEMM)",
        "milliseconds (median, quartiles)",
        "0.000436",
        "0.000229",
        "0.000229",
        "1",
        "2",
        "3",
    ]
    json.dumps(chart._repr_mimebundle_())


def test_whiskers_are_the_quartiles():
    race = fake({"padded": [1.0, 2, 3, 4, 5], "few": [1.0] * 5, "many": [1.0] * 5})
    times = figures.flops_and_time(race).data[1]
    assert list(times.x) == [3000, 1000, 1000]
    assert (times.error_x.array[0], times.error_x.arrayminus[0]) == (1000, 1000)


def test_no_label_calls_flops_a_speed_up():
    chart = figures.flops_and_time(fake())
    said = (chart.to_json() + chart.to_text()).lower()
    assert not [word for word in ("speed", "faster", "slower") if word in said]
