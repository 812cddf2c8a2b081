"""Heuristics: the runs, the evaluation of rules, and a cost model that finds the constants it was made with."""

import json
from dataclasses import replace

import pytest
import torch
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st

from packviz.core.layout import Layout
from packviz.core.spec import Spec
from packviz.measure.timing import Ratio
from packviz.ops.costs import amounts
from packviz.studies import heuristics, rules
from packviz.studies.heuristics import PACKED, PADDED, Case, grid

TINY = grid(
    modes=("GRU",), batch_sizes=(2, 3), longest=(4,), sizes=(2,), kinds=("uniform", "equal")
)


def case(
    ratio=2.0,
    kind="uniform",
    training=True,
    mode="GRU",
    batch_size=8,
    longest=16,
    size=8,
    spread=1.01,
):
    """A case that takes 1 ms padded, and so many times as long packed."""
    measured = Ratio(PACKED, PADDED, ratio, ratio / spread, ratio * spread, 7)
    return Case(
        mode,
        training,
        batch_size,
        longest,
        size,
        kind,
        {PADDED: 1e-3, PACKED: ratio * 1e-3},
        measured,
    )


# Measuring.


@pytest.mark.parametrize("mode", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("lengths", [[3, 5, 1], [4, 4]])
def test_both_run_the_same_batch(mode, training, lengths):
    layout = Layout(lengths)
    calls = heuristics.padded_and_packed(Spec(mode, 2, 3), layout, training).calls
    (padded, *others), (packed, *states) = (calls[name]() for name in (PADDED, PACKED))
    assert padded.shape == packed.shape == (layout.max_len, layout.batch_size, 3)
    mask = torch.tensor(layout.mask.T)
    assert torch.allclose(padded[mask], packed[mask], atol=1e-6)
    assert packed[~mask].eq(0).all()
    assert len(others) == len(states) == (5 if training else 1)  # x and four weights


def test_a_small_run_for_real(tmp_path):
    measured = heuristics.run(TINY, rounds=2)
    assert len(TINY) == len(measured.cases) == 8
    assert {(c.batch_size, c.kind, c.training) for c in measured.cases} == {
        (b, k, t) for b in (2, 3) for k in ("uniform", "equal") for t in (True, False)
    }
    assert measured.of("GRU", True) == tuple(c for c in measured.cases if c.training)
    heuristics.STUDY.save(tmp_path / "thumb.json", measured)
    loaded = heuristics.STUDY.load(tmp_path / "thumb.json")
    assert repr(loaded) == repr(measured)
    for one, other in zip(measured.cases, loaded.cases, strict=True):
        assert replace(one, seconds=other.seconds, ratio=other.ratio) == other
        assert one.seconds[PACKED] == pytest.approx(other.seconds[PACKED], rel=1e-3)
        assert one.ratio.value == pytest.approx(other.ratio.value, rel=1e-3)
        assert other.ratio.rounds == 2


# Judging.


@pytest.mark.parametrize(
    ("lengths", "packs"),
    [
        ([10] * 100, False),  # equal: never, however many
        ([10, 9], False),  # 10 % is not over 10 %
        ([100, 89], True),
        ([100] * 7 + [99], True),  # eight of them
        ([100] * 6 + [99], False),
        ([1], False),
        ([2, 1], True),
    ],
)
def test_the_rule_of_thumb(lengths, packs):
    assert rules.rule_of_thumb(lengths) is packs


def test_how_a_rule_is_judged():
    cases = [case(2.0), case(4.0), case(0.5), case(0.25), case(1.0, spread=1.5)]
    assert [one.faster for one in cases] == [PADDED, PADDED, PACKED, PACKED, None]
    judged = rules.judge("odd", lambda c: c.ratio.value in (4, 0.25, 1), cases)
    assert judged == ("odd", 2, 2, pytest.approx((1 + 4 + 2 + 1 + 1) / 5), 5)
    assert judged.accuracy == 0.5


def test_a_fitted_rule_never_sees_the_size_it_is_tried_on():
    cases = [case(batch_size=b, longest=t) for b in (4, 16) for t in (16, 64)] * 2
    seen = []

    def fit(some):
        sizes = {(c.batch_size, c.longest) for c in some}
        seen.append(len(some))
        return lambda c: (c.batch_size, c.longest) in sizes

    judged = rules.judge_fitted("any", fit, cases)
    assert judged.right == len(cases)  # never packed, and padded is faster
    assert seen == [6, 6, 6, 6]


def test_a_threshold_is_the_best_one_for_each_kind():
    def number(c):
        return c.batch_size

    cases = [case(r, batch_size=b) for b, r in ((2, 3.0), (4, 2.0), (8, 0.5), (16, 0.4))]
    cases += [case(r, batch_size=b, training=False) for b, r in ((2, 0.5), (4, 0.5), (8, 0.5))]
    packs = rules.fit_threshold(number)(cases)
    assert [packs(c) for c in cases] == [False, False, True, True, True, True, True]
    never = rules.fit_threshold(number)([case(2.0), case(3.0, batch_size=16)])
    assert not never(case(batch_size=16))


# The cost model.


def made_up(constants, sizes):
    """Cases whose times follow the model exactly."""
    found = []
    for batch_size, longest, size, kind in sizes:
        one = case(batch_size=batch_size, longest=longest, size=size, kind=kind)
        seconds = {}
        for choice in (PADDED, PACKED):
            terms = rules._terms(one, choice)
            seconds[choice] = float(
                sum(constants[choice].get(term, 0) * amount for term, amount in terms.items())
            )
        ratio = seconds[PACKED] / seconds[PADDED]
        found.append(
            replace(one, seconds=seconds, ratio=Ratio(PACKED, PADDED, ratio, ratio, ratio, 7))
        )
    return found


SIZES = [
    (b, t, h, k)
    for b in (2, 8, 32)
    for t in (8, 40, 100)
    for h in (4, 16)
    for k in ("uniform", "log-normal")
]
SCALES = {
    "run": 1e-4,
    "call": 1e-5,
    "step": 1e-5,
    "cell, gate": 1e-8,
    "cell, weight": 1e-10,
    "cell, step, gate": 1e-10,
    "pad": 1e-9,
}
ONE = {PADDED: {"run": 1.0}, PACKED: {"run": 1.0}}


@given(st.lists(st.floats(1e-3, 1.0), min_size=14, max_size=14))
def test_the_model_finds_the_constants_that_made_the_times(factors):
    padded, packed = (
        {term: factor * scale for factor, (term, scale) in zip(some, SCALES.items(), strict=True)}
        for some in (factors[:7], factors[7:])
    )
    cases = [c for c in made_up({PADDED: padded, PACKED: packed}, SIZES) if c.layout.n_padding]
    model = rules.CostModel.fit(cases)
    for one in cases:
        for choice in (PADDED, PACKED):
            assert model.predict(one, choice) == pytest.approx(one.seconds[choice], rel=1e-6)
        if abs(one.ratio.value - 1) > 1e-5:
            assert model.packs(one) == (one.ratio.value < 1)
    equal = replace(cases[0], kind="equal")
    assert not model.packs(equal)  # packing has nothing to save
    assert rules.judge_fitted("model", rules.fit_model, cases).slowdown == pytest.approx(
        1, abs=1e-4
    )


def test_the_terms_are_those_of_the_costs_of_a_run():
    one = case(kind="uniform", batch_size=4, longest=10, size=3)
    layout, distinct = one.layout, len(set(one.layout.lengths.tolist()))
    without = {"cell, step, gate": 0, "pad": 0}
    padded = amounts(one.spec, 1, layout.max_len, layout.n_cells)
    packed = amounts(one.spec, distinct, layout.max_len, layout.n_real)
    assert rules._terms(one, PADDED) == padded | without
    assert rules._terms(one, PACKED) == packed | {
        "pad": distinct * layout.n_cells * 3
    }  # hidden units
    assert rules._terms(replace(one, training=False), PACKED) == packed | without


# Charts.


def found(*cases):
    return heuristics.Measured({"device_name": "a machine"}, dict(enumerate(cases)))


def test_rules_compared():
    cpu, gpu = found(case(2.0), case(4.0), case(1.0, spread=1.5)), found(case(0.5))
    habits = {"pack": lambda c: True, "never": lambda c: False}
    chart = rules.compare({"CPU": cpu, "GPU": gpu}, habits)
    said = ParsedSvg(chart.to_svg()).said()
    assert said[0].endswith("never, 100 % (CPU); pack, 100 % (GPU)")
    assert "✓ 0 ✗ 2: 0 % right, 2.33 × the best" in said  # not by colour alone
    assert "GPU: a machine" in "".join(said)
    assert [line.split() for line in chart.to_text().splitlines()[2:6]] == [
        ["CPU:", "pack", "0", "2", "1", "2.33"],
        ["CPU:", "never", "2", "0", "1", "1.00"],
        ["GPU:", "pack", "1", "0", "0", "1.00"],
        ["GPU:", "never", "0", "1", "0", "2.00"],
    ]
    share = {"share": rules.fit_threshold(rules.padding_share)}
    assert "share" in ParsedSvg(rules.compare({"CPU": gpu}, {}, share).to_svg()).said()


def test_where_packing_pays():
    cases = [case(2.0), case(0.5, kind="log-normal"), case(1.0, spread=1.5, training=False)]
    measured = found(*cases)
    (chart,) = rules.where_packing_pays({"CPU": measured}, "GRU")
    points = {
        (trace.name, trace.xaxis): list(zip(trace.x, trace.y, strict=True))
        for trace in chart.figure.data
    }
    assert sum(map(len, points.values())) == 3
    (point,) = points["packed is faster", "x2"]
    assert point == pytest.approx(
        (100 * rules.padding_share(cases[1]), rules.work_per_step(cases[1])), rel=0.01
    )
    assert len(points["padded is faster", "x2"]) == len(points["not told apart", "x"]) == 1
    assert len({trace.marker.symbol for trace in chart.figure.data}) == 3
    steps = cases[0].longest
    assert f"training, {steps} steps, packed is faster: 1 case with" in chart.to_text()
    assert f"forward, {steps} steps, packed is faster: no case" in chart.to_text()
    json.dumps(chart._repr_mimebundle_())
    titles = [
        one.figure.layout.title.text
        for one in rules.where_packing_pays({"CPU": measured, "GPU": measured}, "GRU")
    ]
    assert [title.partition(":")[0] for title in titles] == ["GRU, CPU", "GRU, GPU"]
