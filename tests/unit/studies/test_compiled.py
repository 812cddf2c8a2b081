"""Compiling and packing: the methods compute the same, and the results show all of them."""

import pytest
import torch
from drawings import ParsedSvg
from habits import habit_since

from packviz.draw.palette import THEMES
from packviz.measure import Timing
from packviz.studies import compiled
from packviz.studies.compiled import CompiledPoint, CompiledResults, make_models

NAMES = list(make_models(2, 3))
POINT = CompiledPoint(4, 6, 3, 2, 2)


def fake():
    seconds = {name: [1e-3 * (i + 1)] * 6 for i, name in enumerate(NAMES)}
    timing = Timing(seconds, 3, provenance={"parameters": {"backend": "eager"}})
    place = {"device_name": "a test", "torch": "9", "threads": 1}
    return CompiledResults(place, {POINT: {"training": timing}})


def test_all_but_the_padded_ones_compute_the_same():
    torch.manual_seed(0)
    inputs = (
        torch.randn(3, 6, 2),
        torch.tensor([2, 6, 4]),
        torch.randn(3, 4, 2),
        torch.tensor([4, 1, 3]),
    )
    real = torch.arange(4) < inputs[3][:, None]
    outputs, gradients = {}, {}
    for name, model in make_models(2, 3).items():
        outputs[name] = model(*inputs)[real]
        gradients[name] = torch.autograd.grad(outputs[name].sum(), model.parameters())
    for name in NAMES[3:]:
        assert torch.allclose(outputs[name], outputs["packed"], atol=1e-6)
        pairs = zip(gradients[name], gradients["packed"], strict=True)
        assert all(torch.allclose(one, other, atol=1e-5) for one, other in pairs)
    assert not torch.allclose(outputs["padded"], outputs["packed"], atol=1e-3)
    full = (torch.full((3,), 6), torch.full((3,), 4))
    padded, packed = (
        make_models(2, 3)[name](inputs[0], full[0], inputs[2], full[1])
        for name in ("padded", "compiled, Ragged")
    )
    assert torch.allclose(padded, packed, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
@habit_since("2.8")
def test_a_small_run_for_real():
    point = CompiledPoint(batch=2, past=3, future=2, features=2, hidden=3, backend="eager")
    timing = compiled.STUDY.run([point], rounds=2).timing(point)
    assert list(timing.seconds) == NAMES
    assert timing.rounds == 2
    assert timing.provenance["parameters"]["backend"] == "eager"
    assert list(compiled.make_comparison(point, "cpu").agreeing_calls) == NAMES[2:]


def test_the_text_and_the_picture_have_a_row_for_each():
    assert "\ncompiled, Ragged              2.33 (2.33 to 2.33)\n" in repr(fake())
    assert "Compiled by eager. Measured on a test (CPU), torch 9, BLAS not recorded" in repr(fake())
    assert (
        compiled.STUDY.load().timing(CompiledPoint()).provenance["parameters"]["backend"]
        == "inductor"
    )
    for theme in THEMES:
        drawing = ParsedSvg(fake().to_svg(theme))
        assert all(name in drawing.said() for name in NAMES)
        bars = sorted((box for box in drawing.boxes if box.height == 20), key=lambda box: box.y)
        assert len({box.fill for box in bars}) == 3  # padded, packed, our operator
        assert bars[5].width == pytest.approx(2 * bars[2].width, abs=0.2)
        title = " ".join(drawing.said())
        assert "Compiled, the packed step takes 1.67 times its time. Ragged takes 1.33" in title
        assert "compiled, Ragged takes 2.33 times its time" in title
