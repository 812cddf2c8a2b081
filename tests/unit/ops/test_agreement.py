"""Tests that results may differ by rounding, in every dtype, and by nothing else."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from packviz.ops.agreement import full_precision, relative_difference, relative_error
from packviz.ops.tolerance import (
    TOLERANCE,
    gradient_tolerance,
    rnn_may_use_tf32,
    state_tolerance,
)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_rounding_passes_and_more_does_not(dtype):
    torch.manual_seed(0)
    lstm, x = nn.LSTM(8, 16), torch.randn(20, 4, 8)
    wanted = lstm(x)[0]
    rounded = lstm.to(dtype)(x.to(dtype))[0]
    if dtype != torch.float64:  # the reference is float32
        assert relative_difference(rounded, wanted) <= state_tolerance(dtype, "cpu")
    assert relative_difference(
        wanted.double() * (1 + 2 * state_tolerance(dtype, "cpu")), wanted
    ) > state_tolerance(dtype, "cpu")
    assert state_tolerance(dtype, "cpu") < gradient_tolerance(dtype) < 0.5


def test_tf32_is_coarse_where_it_is_on():
    assert rnn_may_use_tf32()
    assert state_tolerance(torch.float32, "cuda") > 100 * state_tolerance(torch.float32, "cpu")
    assert state_tolerance(torch.float64, "cuda") == state_tolerance(torch.float64, "cpu")
    with full_precision():
        assert not rnn_may_use_tf32()
        assert state_tolerance(torch.float32, "cuda") == state_tolerance(torch.float32, "cpu")
    assert rnn_may_use_tf32()


def test_how_far_apart():
    values = torch.tensor([2.0, -4.0])
    assert relative_difference(values + 1, values) == 0.25  # relative to the largest
    assert gradient_tolerance(torch.int64) == 0
    assert (
        relative_difference(values, values)
        == relative_difference(torch.zeros(2), torch.zeros(2))
        == 0
    )
    assert relative_difference(torch.ones(2), torch.zeros(2)) > 1e9
    assert (
        relative_difference(values * math.nan, values)
        == relative_difference(values, values / 0)
        == math.inf
    )
    assert relative_difference(torch.zeros(0), torch.zeros(0)) == 0
    masked = torch.tensor([2.0, -4.0, -math.inf])
    assert relative_difference(masked, masked) == 0
    assert relative_difference(masked + 1, masked) == 0.25  # infinity does not count as the largest
    assert state_tolerance(torch.int64, "cpu") == 0


class Older:
    """A copy of `torch.backends.cudnn` before 2.9, which has no switch for RNNs alone."""

    allow_tf32 = True


class Newer:
    """A copy of it since 2.9, with different settings for RNNs and convolutions, so asking for both
    is an error.
    """

    rnn = SimpleNamespace(fp32_precision="tf32")

    @property
    def allow_tf32(self):
        raise RuntimeError("without a specific operator name")


@pytest.mark.parametrize("kind", [Older, Newer])
def test_every_torch_is_asked_in_its_own_way(monkeypatch, kind):
    monkeypatch.setattr(torch.backends, "cudnn", kind())
    assert rnn_may_use_tf32()
    with full_precision():
        assert not rnn_may_use_tf32()
    assert rnn_may_use_tf32()


def test_the_relative_error_is_the_largest_of_those_that_are_too_large():
    right = [torch.ones(2), torch.ones(3), torch.ones(1)]
    near = [values * (1 + 1e-6) for values in right]
    far = [right[0], right[1] * 1.5, right[2] * 3]
    error, agree = relative_error(near, right, gradient_tolerance)
    assert (error, agree) == (pytest.approx(1e-6, rel=0.1), True)
    assert relative_error(far, right, gradient_tolerance) == (2.0, False)
    assert relative_error([torch.ones(3)], [torch.ones(2)], gradient_tolerance) == (
        math.inf,
        False,
    )
    assert relative_error([], [], gradient_tolerance) == (0.0, True)
    with pytest.raises(ValueError, match="differ in number: 0 and 3"):
        relative_error([], right, gradient_tolerance)
