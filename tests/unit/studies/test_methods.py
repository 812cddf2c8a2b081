"""The methods study: which methods are timed, and what its charts show of made-up times."""

import re

import pytest
import torch

from packviz.count.flops import flops
from packviz.measure import rnn_calls
from packviz.measure.advise import METHODS
from packviz.measure.study import PASSES, Point, Results
from packviz.measure.timing import Timing
from packviz.ops import running
from packviz.studies import methods
from packviz.studies.methods import PACKED, PADDED

TINY = Point("GRU", "uniform", 3, 5, 2, 3)
OTHER = Point("LSTM", "equal", 3, 5, 2, 3)
PLACE = {"device_name": "a machine", "torch": "9.9", "threads": 1}


def made_up(*points, **times):
    """Returns results in which these methods took these milliseconds, and all others 10."""
    names = (PADDED, PACKED, *METHODS)
    seconds = {name: (times.get(name.replace(" ", "_"), 10) / 1e3,) * 6 for name in names}
    timing = Timing(seconds)
    return Results(PLACE, {point: dict.fromkeys(PASSES, timing) for point in points or [TINY]})


def test_all_methods_are_timed_on_a_batch_as_wide_as_its_longest_sequence(monkeypatch):
    widths = set()
    true_run = running.run

    def run(rnn, x, *args, **options):
        widths.add(x.shape[1])
        return true_run(rnn, x, *args, **options)

    monkeypatch.setattr(running, "run", run)
    point = Point("GRU", "log-normal around 20", 4, 500, 2, 3)
    results = methods.STUDY.run([point], budget=0.01)
    for which in PASSES:
        timing = results.timing(point, which)
        assert set(timing.seconds) == set(timing.memory) == {PADDED, PACKED, *METHODS}
    assert widths == {point.layout.max_len}
    assert point.layout.max_len < 500


@pytest.mark.parametrize("mode", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("which", PASSES)
@pytest.mark.parametrize("kind", ["uniform", "equal"])
def test_all_methods_run_the_same_batch(mode, which, kind):
    point = Point(mode, kind, 3, 5, 2, 3)
    layout = point.layout
    both = {PADDED: rnn_calls.padded, PACKED: rnn_calls.packed}
    calls = methods.method_calls(point, both, which, "cpu")
    (padded, *_), (packed, *others) = (calls[name]() for name in both)
    assert padded.shape == packed.shape == (layout.batch_size, layout.max_len, 3)
    mask = torch.tensor(layout.mask)
    assert torch.allclose(padded[mask], packed[mask], atol=1e-6)
    assert packed[~mask].eq(0).all()
    assert len(others) == (5 if which == "training" else 1)  # x and four weights, or the states


def test_a_method_with_other_results_is_not_timed(monkeypatch):
    true_run = running.run

    def wrong(*args, method, **options):
        out, final = true_run(*args, method=method, **options)
        return (out * 1.01 if method == "split" else out), final

    monkeypatch.setattr(running, "run", wrong)
    results = methods.STUDY.run([TINY], budget=0.01)
    for timing in results.timings(TINY).values():
        assert set(timing.seconds) == {PADDED, PACKED, *METHODS} - {"split"}
        assert re.fullmatch(
            r".* from those of 'torch packed' by 0\.\d+ of the largest value",
            timing.missing["split"],
        )
    assert methods.best(results, TINY) != "split"


def test_the_best_method_is_an_exact_one():
    assert methods.best(made_up(split=1.25, torch_padded=0.1, auto=0.1), TINY) == "split"


def test_verdicts_count_what_is_clear():
    values = {**made_up(auto=5).values, **made_up(OTHER, auto=20, torch_packed=20).values}
    *lines, _, caption = methods.verdicts(Results(PLACE, values)).to_text().splitlines()
    assert caption.startswith("Measured on a machine")
    assert lines == [
        "                                                 GRU                LSTM",
        "batches                                            1                   1",
        "auto, compared with torch packed  1 faster, 0 slower  0 faster, 0 slower",
        "auto, compared with torch padded  1 faster, 0 slower  0 faster, 1 slower",
    ]


def test_where_packed_is_faster():
    """Only what is clear is drawn, with the FLOPs of these lengths."""
    none = methods.packed_faster(made_up())
    assert none.title == "Packed is clearly faster in training on 0 of 1 batch, forward alone on 0"
    assert not none.groups
    assert none.to_svg()
    ((name, rows),) = methods.packed_faster(made_up(torch_packed=5)).groups.items()
    assert (name, [time.value for _, time in rows.values()]) == (str(TINY), [0.5, 0.5])
    assert rows["forward"][0] == TINY.layout.n_real / TINY.layout.n_cells
    count = flops(TINY.spec, TINY.layout, input_grad=True).training
    assert rows["training"][0] == pytest.approx(count.packed / count.padded)
    noisy = Timing({PADDED: (0.01,) * 6, PACKED: (0.002, 0.009, 0.02) * 2})
    assert not methods.packed_faster(Results(PLACE, {TINY: dict.fromkeys(PASSES, noisy)})).groups
