"""The checks of a device: they hold on a CPU, on a GPU where there is one, and see what is wrong."""

import importlib

import pytest
import torch

from packviz.ops import running
from packviz.studies import exact

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=cuda)])
@pytest.mark.parametrize("check", exact.CHECKS)
def test_every_check_holds(monkeypatch, check, device):
    monkeypatch.setattr(exact, "_TRIES", 1)
    found = exact.hold(check, device, seed=1)
    assert found.difference <= found.allowed
    assert found.held or (check, device) == ("nothing waits", "cpu")


def slightly(run):
    def wrong(*given, **options):
        out, final = run(*given, **options)
        return out * (1 + 1e-3), final

    return wrong


def no_zeros_below(pad):
    """A bit is wrong: -0.0 has become 0.0."""
    return lambda *given: (pad(*given)[0] + 0, pad(*given)[1])


BREAK = {
    "pack and pad, bit for bit": ("packing.pad_packed_sequence", no_zeros_below),
    "run, float64": ("running.run", slightly),
    "run, float32": ("running.run", slightly),
    "ragged_op": ("operator.run", slightly),
    "helpers": ("masks.masked_loss", lambda loss: lambda x, n: loss(x, n) * 1.001),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("check", BREAK)
def test_a_check_sees_what_is_wrong(monkeypatch, check):
    monkeypatch.setattr(exact, "_TRIES", 1)
    where, broken = BREAK[check]
    module, name = where.split(".")
    module = importlib.import_module(f"packviz.ops.{module}")
    monkeypatch.setattr(module, name, broken(getattr(module, name)))
    with pytest.raises(AssertionError, match=rf"^{check}, seed 0: .* is .* from torch's, allowed"):
        exact.hold(check, "cpu", 0)


def test_other_dtypes_are_seen(monkeypatch):
    monkeypatch.setattr(exact, "_TRIES", 1)
    real = running.run
    monkeypatch.setattr(running, "run", lambda *given, **how: (real(*given, **how)[0].double(), real(*given)[1]))
    with pytest.raises(AssertionError, match=r"shapes and dtypes are .*float64.*, torch's .*float32"):
        exact.hold("run, float32", "cpu", 0)


def test_as_a_study(tmp_path, monkeypatch):
    monkeypatch.setattr(exact, "_TRIES", 1)
    found = exact.run([exact.Point("helpers"), exact.Point("helpers", 1)])
    exact.STUDY.save(tmp_path / "exact.json", found)
    assert exact.recorded(tmp_path / "exact.json") == found
    assert "helpers" in found.to_text()
    assert "Measured on" in found.to_text()
