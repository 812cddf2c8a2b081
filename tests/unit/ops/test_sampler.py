"""Tests batches of similar lengths, for one rank and for several."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import distributed
from torch.utils.data import Dataset

import packviz as pv

lengths = st.lists(st.integers(1, 60), min_size=1, max_size=80)


def test_a_window_holds_so_many_batches():
    n = list(range(1, 41))
    order = np.random.default_rng(3).permutation(40)
    pools = [set(order[i : i + 8].tolist()) for i in range(0, 40, 8)]
    for batch in pv.BucketSampler(n, 4, window=2, seed=3):
        assert any(set(batch) <= pool for pool in pools)
        assert [n[i] for i in batch] == sorted((n[i] for i in batch), reverse=True)


def test_each_epoch_is_shuffled_anew_and_can_be_chosen():
    n = np.random.default_rng(0).integers(1, 50, 64)
    sampler = pv.BucketSampler(n, 8, window=2)
    first, second = list(sampler), list(sampler)
    assert len(first) == len(second) == len(sampler) == 8
    assert first != second
    assert sampler.epoch == 2
    resumed = pv.BucketSampler(n, 8, window=2)
    resumed.set_epoch(1)
    assert list(resumed) == second
    resumed.set_epoch(0)
    assert list(resumed) == first


@given(
    lengths,
    st.integers(1, 9),
    st.integers(1, 5),
    st.integers(1, 5),
    st.booleans(),
    st.integers(0, 3),
)
def test_ranks_share_the_data_set(n, batch_size, window, ranks, drop_last, epoch):
    samplers = [
        pv.BucketSampler(
            n,
            batch_size,
            window=window,
            drop_last=drop_last,
            seed=1,
            num_replicas=ranks,
            rank=rank,
        )
        for rank in range(ranks)
    ]
    epochs = []
    for sampler in samplers:
        sampler.set_epoch(epoch)
        epochs.append(list(sampler))
        # With different numbers of steps, ranks would wait forever.
        assert len(epochs[-1]) == len(sampler)
    assert len({len(batches) for batches in epochs}) == 1
    assert all(0 < len(batch) <= batch_size for batches in epochs for batch in batches)
    everyone = [i for batches in epochs for batch in batches for i in batch]
    left = len(n) % (batch_size * ranks)
    if drop_last:
        assert all(len(batch) == batch_size for batches in epochs for batch in batches)
        assert len(set(everyone)) == len(everyone) == len(n) - left
    else:
        assert set(everyone) == set(range(len(n)))
        assert len(everyone) == len(n) + (max(ranks - left, 0) if left else 0)


@given(lengths, st.booleans(), st.data())
def test_a_pass_goes_on_where_it_stopped(n, drop_last, data):
    options = {"batch_size": 3, "window": 2, "drop_last": drop_last}
    sampler = pv.BucketSampler(n, **options)
    list(sampler)
    whole = list(sampler)
    sampler.set_epoch(1)
    stop = data.draw(st.integers(0, len(whole)))
    steps = iter(sampler)
    begun = [next(steps) for _ in range(stop)]
    resumed = pv.BucketSampler(n, **options)
    resumed.load_state_dict(sampler.state_dict())
    resumed.set_epoch(resumed.epoch)  # as many training loops do
    assert begun + list(resumed) == whole
    if stop:
        assert list(resumed) == list(sampler)  # the epoch after it


def test_rank_and_replicas_come_from_torch(monkeypatch):
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 3)
    monkeypatch.setattr(distributed, "get_rank", lambda: 2)
    n = range(1, 31)
    told = pv.BucketSampler(n, 4, num_replicas=3, rank=2)
    assert list(pv.BucketSampler(n, 4)) == list(told)
    assert list(pv.BucketSampler(n, 4, num_replicas=1, rank=0)) != list(told)
    for options in ({"num_replicas": 3}, {"rank": 1}):
        with pytest.raises(ValueError, match="pass both or neither"):
            pv.BucketSampler(n, 4, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0; give a whole number of at least 1"),
        ({"window": 1.5}, "window is 1.5; give"),
        ({"seed": -1}, "seed is -1; give a whole number of at least 0"),
        ({"lengths": [-1]}, r"lengths\[0\] is -1"),
        ({"num_replicas": 0, "rank": 0}, "num_replicas is 0; give"),
        (
            {"rank": 2, "num_replicas": 2},
            "rank is 2, but num_replicas is 2; give a lower rank",
        ),
    ],
)
def test_bad_input_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        pv.BucketSampler(**({"lengths": [1, 2], "batch_size": 2} | options))
    with pytest.raises(ValueError, match="epoch is -1; give"):
        pv.BucketSampler([1], 1).set_epoch(-1)


def test_the_state_of_another_sampler_is_refused():
    sampler = pv.BucketSampler([1, 2, 3], 2)
    beginning = sampler.state_dict()
    next(iter(sampler))
    for options in (
        {"batch_size": 3},
        {"lengths": [1, 2]},
        {"lengths": [1, 3, 2]},
        {"drop_last": True},
    ):
        other = pv.BucketSampler(**({"lengths": [1, 2, 3], "batch_size": 2} | options))
        with pytest.raises(ValueError, match=r"\w+ was \w+ when the state was saved"):
            other.load_state_dict(sampler.state_dict())
        other.load_state_dict(beginning)  # the beginning of an epoch fits every sampler
    sampler.load_state_dict({"epoch": 0, "yielded": 1})  # an older state
    with pytest.raises(ValueError, match="epoch is None; give"):
        sampler.load_state_dict({})


def test_a_pass_that_is_broken_off_leaves_no_place():
    sampler = pv.BucketSampler(range(1, 9), 2)
    next(iter(sampler))
    sampler.set_epoch(1)
    state = sampler.state_dict()
    assert (state["epoch"], state["yielded"]) == (1, 0)


class Endless(Dataset):
    """A data set that never raises IndexError."""

    def __getitem__(self, i):
        return i


def test_a_data_set_is_not_taken_for_its_lengths():
    with pytest.raises(TypeError, match="lengths is an Endless; give the number of time steps"):
        pv.BucketSampler(Endless(), 8)
