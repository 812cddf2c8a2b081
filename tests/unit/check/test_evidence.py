"""How often `diagnose` is right: false alarms on correct batches, and recall on mistakes, for every
kind of data.

The table is computed anew and printed by `python -m pytest -s tests/unit/check/test_odds.py`.
"""

import math
import os
import secrets
from collections import Counter
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import packviz as pv
from packviz.check.findings import UNDECIDED_RULE

TRIES = {"full": 100, "quick": 1}.get(os.environ.get("HYPOTHESIS_PROFILE"), 8)
NEVER = 1e-5
"""How often, at most, a bound that holds may be found broken by chance."""

SIZES = ((3, 6), (4, 8), (8, 12), (32, 40))

INSIDE, AFTER, SWAPPED = (
    "padding inside the length",
    "data after the length",
    "batch and time swapped",
)


# Kinds of data: each gives (B, T, …) without padding, from a generator of numpy.


def floats(rng, shape):
    return torch.tensor(rng.standard_normal((*shape, 3)), dtype=torch.float32)


def number(rng, shape):
    return floats(rng, shape)[..., 0]


def drawn(low, high, step=1):
    return lambda rng, shape: torch.tensor(rng.integers(low, high, shape)) * step


def runs_of_zeros(rng, shape):
    x = floats(rng, shape)
    for b in np.flatnonzero(rng.random(shape[0]) < 0.3):
        at = int(rng.integers(0, max(1, shape[1] // 2)))
        x[b, at : at + int(rng.integers(1, 4))] = 0
    return x


def levels(rng, shape):
    """Steady for a while, then another level: 0 is one of them."""
    x = rng.integers(0, 4, (*shape, 1)).astype(np.float32)
    for t in range(1, shape[1]):
        keep = rng.random(shape[0]) < 0.7
        x[keep, t] = x[keep, t - 1]
    return torch.tensor(x)


def some_zero(rng, shape):
    return floats(rng, shape) * torch.tensor(rng.random((*shape, 1)) > 0.2)


# What is done to a batch that is correct, and leaves it so: each takes and gives x and its lengths.


def ends_in_zeros(rng, x, n):
    """Zeros stand inside some sequences, too; here one ends in them."""
    if (n[:2] >= 3).all():
        x[0, n[0] - int(rng.integers(1, 3)) : n[0]] = 0
        x[1, int(rng.integers(0, n[1] - 1))], x[1, n[1] - 1] = 0, 1
    return x, n


def falls_silent(rng, x, n):
    """In a batch of recordings, some or many end in silence, which is written like the padding."""
    for b in np.flatnonzero(rng.random(len(n)) < rng.choice([0.1, 0.3, 0.6])):
        x[b, n[b] - int(rng.integers(0, n[b] // 2 + 1)) : n[b]] = 0
    return x, n


def ends_marked(rng, x, n, marks=2):
    """Each sequence ends in marks, which are written like the padding."""
    for row, end in zip(x, n, strict=True):
        row[max(end - marks, 0) : end] = row[-1] if end < len(row) else 0
    return x, n


def repeats_the_last(rng, x, n):
    return x[np.arange(len(n))[:, None], np.minimum(np.arange(x.shape[1]), n[:, None] - 1)], n


def dropped_out(rng, x, n):
    torch.manual_seed(int(rng.integers(2**31)))
    return nn.Dropout()(nn.Embedding(100, int(rng.choice([2, 4, 32])))(x).detach()), n


def cut_by_one(rng, x, n):
    """The last word of a caption is predicted, and never read: every length is one less."""
    return x, np.maximum(n - 1, 1)


def cut_at_one(rng, x, n):
    """The longest captions, two at least, are cut at one length."""
    return x, np.minimum(n, max(np.sort(n)[-2] - 1, 1))


class Kind(NamedTuple):
    """A kind of data."""

    make: object
    recall: float
    """The share of all mistakes together that was named before the odds fitted data like silence: the least now."""  # noqa: E501
    padding: float = 0
    finish: object = lambda rng, x, n: (x, n)
    all_long: bool = False
    """Whether every sequence is as long as x."""


KINDS = {
    "floats": Kind(floats, 1.0),
    "floats, one number a step": Kind(number, 1.0),
    "double floats": Kind(lambda rng, shape: floats(rng, shape).double(), 1.0),
    "half floats": Kind(lambda rng, shape: floats(rng, shape).half(), 1.0),
    "token ids, padding 0 nowhere else": Kind(drawn(1, 100), 1.0),
    "floats, padding -100": Kind(floats, 0.84, -100),
    "token ids, padding 1 nowhere else": Kind(drawn(1, 100, 2), 0.84, 1),
    "token ids, padding 0 inside, too": Kind(drawn(0, 30), 0.9),
    "rounded floats": Kind(lambda rng, shape: (number(rng, shape) * 5).round() / 5, 0.86),
    "whole numbers": Kind(drawn(-5, 6), 0.85),
    "rectified": Kind(lambda rng, shape: number(rng, shape).relu(), 0.67),
    "bits": Kind(lambda rng, shape: drawn(0, 2)(rng, shape).bool(), 0.65),
    "one-hot": Kind(lambda rng, shape: torch.eye(5)[drawn(0, 5)(rng, shape)], 0.99),
    "sparse": Kind(
        lambda rng, shape: floats(rng, shape) * torch.tensor(rng.random((*shape, 3)) < 0.3), 0.76
    ),
    "some steps all zero": Kind(some_zero, 0.81),
    "sequences that end in zeros": Kind(runs_of_zeros, 0.79, 0, ends_in_zeros),
    "floats, two end marks like padding": Kind(floats, 0.38, 0, ends_marked),
    "token ids, two end marks like padding": Kind(drawn(0, 30), 0.39, 0, ends_marked),
    "some steps all zero, two end marks": Kind(some_zero, 0.37, 0, ends_marked),
    "steady levels": Kind(levels, 0.62),
    "ones": Kind(lambda rng, shape: torch.ones(*shape, 2), 0.94),
    "silence at the end": Kind(floats, 0.96, 0, falls_silent),
    "numbers, silence at the end": Kind(number, 0.97, 0, falls_silent),
    "silence at the end, all of length T": Kind(floats, 0.48, 0, falls_silent, True),
    "all of length T": Kind(floats, 0, all_long=True),
    "steady levels, all of length T": Kind(levels, 0.0, all_long=True),
    "token ids, all of length T": Kind(drawn(0, 30), 0, all_long=True),
    "token ids, all of length T, two end marks": Kind(drawn(1, 30), 0.0, 0, ends_marked, True),
    "floats, the last repeated as padding": Kind(floats, 0.01, 0, repeats_the_last),
    "numbers, the last repeated as padding": Kind(number, 0.02, 0, repeats_the_last),
    "token ids, the last repeated as padding": Kind(drawn(1, 30), 0.02, 0, repeats_the_last),
    "dropout of an embedding": Kind(drawn(1, 100), 0.01, 0, dropped_out),
    "captions cut by one word": Kind(drawn(1, 100), 0.56, 0, cut_by_one),
    "captions cut at one length": Kind(drawn(1, 100), 0.53, 0, cut_at_one),
}
TELLING = list(KINDS)[:7]
"""Data that never hold the padding's value at a real step: here mistakes must be named, and hardly any is undecided."""  # noqa: E501


# Mistakes: each gives (x, lengths) as `diagnose` gets them. Where nothing changes, it is no
# mistake.


def one_off(rng, x, n, by):
    able = np.flatnonzero((n + by >= 1) & (n + by <= x.shape[1]))
    wrong = n.copy()
    if len(able):
        wrong[rng.choice(able)] += by
    return x, wrong


def left_padded(rng, x, n):
    return torch.stack([row.roll(-int(end), 0) for row, end in zip(x, n, strict=True)]), n


def swapped(rng, x, n):
    real = np.arange(len(n)) < n[:, None]
    return x if (real == real.T).all() else x.transpose(0, 1), n


MISTAKES = {  # with the rules that name them
    "2 too short": (partial(one_off, by=-2), {AFTER}),
    "2 too long": (partial(one_off, by=2), {INSIDE}),
    "left-padded": (left_padded, {"left-padded"}),
    "B, T swapped": (swapped, {SWAPPED}),
    "shuffled": (
        lambda rng, x, n: (x, rng.permutation(n)),
        {"lengths in another order", AFTER, INSIDE},
    ),
    "all 1 too short": (lambda rng, x, n: (x, np.maximum(n - 1, 1)), {AFTER}),
    "all T": (lambda rng, x, n: (x, np.full_like(n, x.shape[1])), {INSIDE}),
}


def batch(rng, kind, size, steps):
    """A correct batch of random lengths, and the lengths."""
    n = np.full(size, steps) if kind.all_long else rng.integers(1, steps, size, endpoint=True)
    x = kind.make(rng, (size, steps))
    x[~pv.real_mask(torch.tensor(n), steps)] = kind.padding
    return kind.finish(rng, x, n)


def judged(x, n, names):
    """How `diagnose` judges a batch: "alarm" (in one of these names, if there are any), "named",
    "undecided", "".

    A mistake is named, too, by an info, or where a warning says of which sequences it cannot be
    told.
    """
    found = pv.diagnose(x, n, batch_first=True)
    if any(
        one.level != "info" and (one.rule in names if names else one.rule != UNDECIDED_RULE)
        for one in found
    ):
        return "alarm"
    if names and any(
        one.rule in names or (one.rule == UNDECIDED_RULE and one.indices) for one in found
    ):
        return "named"
    return "undecided" if found.undecided else ""


def rates(kind, seed, tries=TRIES):
    """For each mistake, and for "correct", how often each judgement came, over all sizes."""
    rng, seen = np.random.default_rng(seed), {}
    for name, (spoil, names) in {**MISTAKES, "correct": (lambda rng, x, n: (x, n), ())}.items():
        seen[name] = Counter()
        for size, steps in SIZES:
            steps = size if names == {SWAPPED} else steps  # else the count of lengths gives it away
            for _ in range(tries if names else 4 * tries):
                x, n = batch(rng, kind, size, steps)
                y, m = spoil(rng, x, n)
                if not names or not (np.array_equal(m, n) and torch.equal(y, x)):
                    seen[name][judged(y, m, names)] += 1
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_rates(kind):
    """At most 1 % false alarms on correct data of any kind, and no less recall than before the odds
    fitted them.

    Where the data are evidence, at least 95 % of each mistake are named, and at most 5 % are
    undecided: those with a single cell of padding that is not zero. The seed is new every time, so
    a bound is broken only where a rate that just keeps it would come out like this less than once
    in `1 / NEVER` runs, by the binomial distribution.
    """
    seed = secrets.randbits(32)
    seen = rates(KINDS[kind], seed)
    print("", kind, *(f"{name}: {dict(counts)}" for name, counts in seen.items()), sep="\n  ")
    correct = seen.pop("correct")
    bounds = [("false alarms", correct["alarm"], correct.total(), 0.01)]
    total = sum(seen.values(), Counter())
    bounds.append(("missed", total[""] + total["undecided"], total.total(), 1 - KINDS[kind].recall))
    if kind in TELLING:
        bounds += [
            (name, one[""] + one["undecided"], one.total(), 0.05) for name, one in seen.items()
        ]
        bounds.append(("undecided", correct["undecided"], correct.total(), 0.05))
    assert not [bound for bound in bounds if tail(*bound[1:]) < NEVER], f"seed {seed}"


def tail(hits, tries, rate):
    """The chance of at least so many hits of so many tries."""
    rate = min(max(rate, 0.01), 0.99)
    ways = [
        math.lgamma(tries + 1) - math.lgamma(k + 1) - math.lgamma(tries - k + 1)
        for k in range(hits)
    ]
    return 1 - sum(
        math.exp(w + k * math.log(rate) + (tries - k) * math.log1p(-rate))
        for k, w in enumerate(ways)
    )
