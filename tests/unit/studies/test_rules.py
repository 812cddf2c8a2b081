"""Rules for packing: the runs, the evaluation of rules, and the charts."""

import json

import numpy as np
import pytest

from packviz.measure.study import Point, Results
from packviz.studies import rules
from packviz.studies.rules import PACKED, PADDED, Case, grid

TINY = grid(["GRU"], [2], [4], [2])


def case(ratio=2.0, kind="uniform", training=True, batch_size=8, steps=16, spread=1.01):
    """Returns a case that takes so many times as long packed as padded."""
    point = Point("GRU", kind, batch_size, steps, 8, 8)
    return Case(point, training, ratio, ratio / spread, ratio * spread)


# Measuring.


def test_a_small_run_for_real(tmp_path):
    path = tmp_path / "results.json"
    measured = rules.cases(
        rules.STUDY.record(path, TINY, rounds=2, progress=False, processes=False)
    )
    assert {c.point for c in measured} == {*TINY}
    assert len(measured) == 2 * len(TINY)
    assert rules.cases(rules.STUDY.load(path)) == measured
    assert all(0 < c.low <= c.ratio <= c.high for c in measured)


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
    assert [each.faster for each in cases] == [PADDED, PADDED, PACKED, PACKED, ""]
    verdict = rules.judge(lambda c: c.ratio in (4, 0.25, 1), cases)
    assert (verdict.right, verdict.wrong, verdict.unclear, verdict.accuracy) == (2, 2, 1, 0.5)
    assert verdict.slowdown == pytest.approx((1 + 4 + 2 + 1 + 1) / 5)


def test_a_fitted_rule_never_sees_the_size_it_is_tested_on():
    cases = [case(batch_size=b, steps=t) for b in (4, 16) for t in (16, 64)] * 2

    def fit(others):
        sizes = {(c.point.batch_size, c.point.steps) for c in others}
        assert len(others) == 6
        return lambda c: (c.point.batch_size, c.point.steps) in sizes

    packs = rules.held_out(fit, cases)
    assert not any(packs(c) for c in cases)


def test_a_threshold_is_the_best_one_for_each_kind():
    def number(c):
        return c.point.batch_size

    cases = [case(r, batch_size=b) for b, r in ((2, 3.0), (4, 2.0), (8, 0.5), (16, 0.4))]
    cases += [case(r, batch_size=b, training=False) for b, r in ((2, 0.5), (4, 0.5), (8, 0.5))]
    packs = rules.fit_threshold(number)(cases)
    assert [packs(c) for c in cases] == [False, False, True, True, True, True, True]
    never = rules.fit_threshold(number)([case(2.0), case(3.0, batch_size=16)])
    assert not never(case(batch_size=16))
    assert not never(case(training=False))  # there was no such case


# Charts.


def results_of(*cases):
    """Returns results with these cases, each of which needs a point of its own."""
    values = {}
    for each in cases:
        which = "training" if each.training else "forward"
        values.setdefault(each.point, {})[which] = {"ratio": [each.ratio, each.low, each.high]}
    return Results({"device_name": "a machine"}, values)


def test_rules_compared():
    cpu = results_of(case(2.0), case(4.0, steps=8), case(1.0, steps=4, spread=1.5))
    gpu = results_of(case(0.5))
    habits = {"pack": lambda c: True, "never": lambda c: False}
    table = rules.compare({"CPU": cpu, "GPU": gpu}, habits)
    assert table.title.endswith("this rule is right most often: CPU: never")
    assert "GPU: a machine" in "".join(table.notes)
    assert table.rows == [
        ["CPU: pack", "0", "2", "1", "0 %", "2.33"],
        ["CPU: never", "2", "0", "1", "100 %", "1.00"],
        ["GPU: pack", "1", "0", "0", "100 %", "1.00"],
        ["GPU: never", "0", "1", "0", "0 %", "2.00"],
    ]
    share = {"share": rules.fit_threshold(lambda c: c.padding)}
    assert rules.compare({"CPU": gpu}, {}, share).rows[0][0] == "share"


def test_where_packing_pays():
    cases = [case(2.0), case(0.5, kind="log-normal"), case(1.0, spread=1.5, training=False)]
    chart = rules.where_packing_pays("CPU", results_of(*cases), "GRU")
    points = {
        (trace.name, trace.xaxis): list(zip(trace.x, trace.y, strict=True))
        for trace in chart.figure.data
        if "shaded" not in trace.name
    }
    assert sum(map(len, points.values())) == 3
    (point,) = points["packed faster", "x2"]
    assert point[0] == pytest.approx(100 * cases[1].padding, abs=1.6)
    assert point[1] == pytest.approx(cases[1].work, rel=0.01)
    assert len(points["padded faster", "x2"]) == len(points["no clear difference", "x"]) == 1
    assert len({trace.marker.symbol for trace in chart.figure.data}) >= 3
    (region,) = (trace for trace in chart.figure.data if "shaded" in trace.name)
    assert "training, 16 steps: 1 packed faster, 1 padded faster, 0 no" in chart.to_text()
    assert f"from {cases[1].padding:.0%} padding" in chart.to_text()
    json.dumps(chart._repr_mimebundle_())
    corner = min(region.x), min(region.y)
    assert corner == pytest.approx((100 * cases[1].padding, cases[1].work), rel=0.01)


def test_the_region_where_packing_pays_has_the_smallest_slowdown():
    paying = [case(0.5, kind="log-normal", steps=64), case(0.4, kind="log-normal", steps=99)]
    losing = [case(3.0, kind="equal"), case(1.5)]
    padding, work = rules.paying_region([*paying, *losing])
    assert all(c.padding >= padding and c.work >= work for c in paying)
    assert not any(c.padding >= padding and c.work >= work for c in losing)
    assert rules.paying_region(losing) == (np.inf, np.inf)


def test_padding_and_work_are_those_of_the_batch():
    each = case(kind="log-normal", batch_size=5, steps=9)
    n = np.array(each.point.layout.lengths)
    assert each.padding == pytest.approx(1 - n.sum() / (n.size * n.max()))
    assert each.work == n.sum() * each.point.spec.gemm_per_cell / n.max()
