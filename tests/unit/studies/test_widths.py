"""In every study, a padded batch is as wide as its longest sequence."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from packviz.measure.study import Point
from packviz.studies import compiled, forum, methods, parts, rules, savings

NARROW = Point("GRU", "log-normal around 20", 4, 500, 2, 3)
SETTINGS = {"methods": ["padded", "packed"]}
COMPARISONS = {
    "methods": lambda: methods._make_comparison(NARROW, "forward", "cpu", {}),
    "heuristics": lambda: rules._make_comparison(NARROW, "training", "cpu"),
    "benchmark": lambda: forum._make_comparison(forum.point("B", 9, 4), "forward", "cpu", SETTINGS),
    "parts": lambda: parts.make_comparison(forum.point("B", 9, 4), "cpu"),
    "savings": lambda: savings.make_comparison(savings.STUDY.quick_points[0], "cpu"),
    "compiled": lambda: compiled.make_comparison(compiled.CompiledPoint(3, 50, 40, 2, 3), "cpu"),
}
NAMES = ("padded", "packed", "torch padded", "torch packed", parts.TORCH, savings.name(16))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, as it compiles
@pytest.mark.parametrize("study", COMPARISONS)
def test_a_padded_batch_is_as_wide_as_its_longest_sequence(study):
    comparison = COMPARISONS[study]()
    widths = {"padded": set(), "packed": set()}

    def look(module, inputs):
        if not isinstance(module, nn.RNNBase):
            return
        if isinstance(inputs[0], PackedSequence):
            widths["packed"].add(len(inputs[0].batch_sizes))
        else:
            widths["padded"].add(inputs[0].shape[1 if module.batch_first else 0])

    hook = torch.nn.modules.module.register_module_forward_pre_hook(look)
    try:
        for name in NAMES:
            if name in comparison.calls:
                comparison.calls[name]()
    finally:
        hook.remove()
    assert widths["packed"]
    assert widths["padded"] == (set() if study == "parts" else widths["packed"])


def test_the_points_have_longest_sequences_of_their_own():
    assert NARROW.layout.max_len < NARROW.steps
    every = [*methods.STUDY.full_points, *methods.untuned_points(), *rules.STUDY.full_points]
    assert any(point.layout.max_len < point.steps for point in every)
