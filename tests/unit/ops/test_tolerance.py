"""When two results agree: rounding is let pass, in every dtype, and anything else is not."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from packviz.ops.tolerance import TOLERANCE, apart, multiplies_in_tf32, of_gradients, of_states


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_rounding_passes_and_more_does_not(dtype):
    torch.manual_seed(0)
    lstm, x = nn.LSTM(8, 16), torch.randn(20, 4, 8)
    wanted = lstm(x)[0]
    found = lstm.to(dtype)(x.to(dtype))[0]
    if dtype != torch.float64:  # float32 is what it is held against
        assert apart(found, wanted) <= of_states(dtype, "cpu")
    assert apart(wanted.double() * (1 + 2 * of_states(dtype, "cpu")), wanted) > of_states(dtype, "cpu")
    assert of_states(dtype, "cpu") < of_gradients(dtype, "cpu") < 0.5


def test_tf32_is_coarse_on_a_gpu_alone(monkeypatch):
    assert of_states(torch.float32, "cuda") > 100 * of_states(torch.float32, "cpu")
    assert of_states(torch.float64, "cuda") == of_states(torch.float64, "cpu")
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    assert of_gradients(torch.float32, "cuda") > of_gradients(torch.float32, "cpu")
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert of_gradients(torch.float32, "cuda") == of_gradients(torch.float32, "cpu")


def test_how_far_apart():
    one = torch.tensor([2.0, -4.0])
    assert apart(one + 1, one) == 0.25  # of the largest
    assert of_gradients(torch.int64, "cpu") == 0
    assert apart(one, one) == apart(torch.zeros(2), torch.zeros(2)) == 0
    assert apart(torch.ones(2), torch.zeros(2)) > 1e9
    assert apart(one * math.nan, one) == apart(one, one / 0) == math.inf


@pytest.mark.parametrize(("precision", "coarse"), [("tf32", True), ("ieee", False)])
def test_tf32_that_is_set_for_rnns_alone_is_seen(monkeypatch, precision, coarse):
    class Cudnn:
        """As torch's is from 2.9 on, where convolutions and RNNs differ: to ask for both is an error."""

        rnn = SimpleNamespace(fp32_precision=precision)

        @property
        def allow_tf32(self):
            raise RuntimeError("without a specific operator name")

    monkeypatch.setattr(torch.backends, "cudnn", Cudnn())
    assert multiplies_in_tf32() == coarse
    assert (of_gradients(torch.float32, "cuda") > of_gradients(torch.float32, "cpu")) == coarse
