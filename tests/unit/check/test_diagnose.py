"""`diagnose`: a finding for each mistake that torch lets through, and none for what is right."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz.check.findings import UNDECIDED_RULE
from packviz.core.layout import sequence_name


def batch(lengths, steps=None, features=(2,), padding=0.0, seed=0):
    """(B, T, …) of random numbers, padded with one value."""
    torch.manual_seed(seed)
    x = torch.full((len(lengths), steps or max(lengths), *features), padding)
    for b, n in enumerate(lengths):
        x[b, :n] = torch.randn(n, *features)
    return x


def rules(*given):
    return pv.diagnose(*given).rules


def serious(found):
    return [one for one in found if one.level != "info"]


def serious_rules(found):
    return [one.rule for one in serious(found)]


X = torch.zeros(3, 2)
lengths_of = st.lists(st.integers(1, 12), min_size=1, max_size=12)
seeds = st.integers(0, 10_000)
LENGTHS = [7, 2, 5, 1, 6, 3, 4]


# What is right gives no finding. (Data that hold the padding's value here and there are in
# `test_odds.py`.)

KINDS = {
    "numbers": lambda shape: torch.randn(*shape, 3),
    "one number": lambda shape: torch.randn(*shape),
    "words": lambda shape: torch.randint(1, 30, shape),
    "one-hot": lambda shape: nn.functional.one_hot(torch.randint(0, 5, shape), 5),
    "nothing but zeros": lambda shape: torch.zeros(*shape, 2),
    "nothing but ones": lambda shape: torch.ones(shape),
}


@given(lengths_of, st.integers(0, 4), st.sampled_from(list(KINDS)), st.booleans(), seeds)
def test_a_batch_that_is_right_gives_none(lengths, extra, kind, batch_first, seed):
    torch.manual_seed(seed)
    steps = max(lengths) + extra
    x = KINDS[kind]((len(lengths), steps))
    x[~pv.real_mask(lengths, steps)] = 0
    found = pv.diagnose(x if batch_first else x.transpose(0, 1), lengths, batch_first)
    padded = set(lengths) != {steps}
    assert serious_rules(found) == [UNDECIDED_RULE] * (kind == "nothing but zeros" and padded)
    infos = {one.rule for one in found.of_level("info")} - {
        "padding inside the length",
        "no padding",
        "batch or time",
    }
    assert infos == ({"narrower when unpacked"} if extra else set())


@given(
    lengths_of,
    st.integers(0, 4),
    st.booleans(),
    seeds,
    st.sampled_from([torch.float32, torch.float64]),
)
def test_padding_that_holds_anything_is_undecided(lengths, extra, batch_first, seed, dtype):
    torch.manual_seed(seed)
    x = torch.randn(len(lengths), max(lengths) + extra, 2, dtype=dtype)
    found = pv.diagnose(x if batch_first else x.transpose(0, 1), lengths, batch_first)
    assert serious_rules(found) == [UNDECIDED_RULE] * (set(lengths) != {x.shape[1]})


@given(lengths_of, st.sampled_from([1.0, -100.0, float("inf"), float("nan")]), seeds)
def test_padding_with_another_value_gives_none(lengths, padding, seed):
    found = pv.diagnose(batch(lengths, padding=padding, seed=seed), lengths, True)
    hidden = not math.isfinite(padding) and len(set(lengths)) > 1
    # One cell of padding is like itself.
    alone = sum(max(lengths) - n for n in lengths) == 1 and not math.isnan(padding)
    assert serious_rules(found) == [UNDECIDED_RULE] * alone + ["NaN in the padding"] * hidden


@given(
    lengths_of, st.integers(1, 3), st.integers(0, 4), st.sampled_from(["numbers", "words"]), seeds
)
def test_end_marks_may_be_all_there_is_of_a_sequence(lengths, marks, extra, kind, seed):
    torch.manual_seed(seed)
    steps = max(lengths) + extra
    x = KINDS[kind]((len(lengths), steps))
    x[~pv.real_mask([max(n - marks, 0) for n in lengths], steps)] = (
        0  # so many, written like the padding
    )
    found = pv.diagnose(x, lengths, True)
    assert not serious(found) or min(lengths) <= marks  # then x may hold nothing but zeros
    said = [one.message for one in found if one.rule == "padding inside the length"]
    assert (
        len(said) == 1 or min(lengths) <= marks
    )  # with zeros alone in a sequence, they may be common
    assert all(
        "What looks like padding may also be end marks, because every sequence ends like this."
        in one
        for one in said
    )


# Batch and time.


@given(lengths_of, st.integers(0, 3), seeds)
def test_a_count_that_fits_the_other_dimension(lengths, extra, seed):
    steps = max(lengths) + extra
    assume(steps != len(lengths))
    x = batch(lengths, steps, seed=seed)
    (found,) = serious(pv.diagnose(x, lengths))  # (B, T), read as (T, B)
    assert (found.level, found.rule) == ("error", "batch and time swapped")
    assert not serious(pv.diagnose(x, lengths, True))
    drops = len(lengths) < steps and max(lengths) <= len(lengths)
    assert ("drops" in found.message) == drops
    if drops:
        assert (
            pack_padded_sequence(x, lengths, enforce_sorted=False).batch_sizes[0]
            == len(lengths)
            < steps
        )


@given(st.permutations(range(1, 9)), seeds)
def test_equal_dimensions_are_told_apart_by_the_padding(lengths, seed):
    x = batch(lengths, seed=seed)
    symmetric = torch.equal(pv.real_mask(lengths), pv.real_mask(lengths).T)
    found = pv.diagnose(x, lengths, False)
    if serious(found):
        assert found.rules == ["batch and time swapped"]
        assert "batch_first=True" in found[0].fix
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)  # without a word
        assert (packed.data == 0).any()
    assert ("batch or time" in found.rules) == symmetric
    assert not serious(pv.diagnose(x, lengths, True))
    assert (
        rules(x.transpose(0, 1), lengths, True) == found.rules
    )  # the same mistake the other way round


@given(st.permutations(range(1, 10)), st.integers(0, 3), seeds)
def test_right_alignment(lengths, extra, seed):
    right = pv.align(
        batch(lengths, 9 + extra, seed=seed), lengths, padding_side="left", batch_first=True
    )
    (found,) = serious(pv.diagnose(right, lengths, True))
    assert found.rule == "left-padded"
    kept = pack_padded_sequence(right, lengths, True, enforce_sorted=False).data.ne(0).any(1).sum()
    assert f"{sum(lengths) - kept} cells of data" in found.message


# Lengths.


@given(st.permutations(range(1, 10)), st.integers(1, 8), st.sampled_from([0.0, -1.0]), seeds)
def test_lengths_that_are_too_short(lengths, by, padding, seed):
    x = batch(lengths, padding=padding, seed=seed)
    short = [max(n - by, 1) if n % 2 else n for n in lengths]
    (found,) = serious(pv.diagnose(x, short, True))
    assert found.rule == "data after the length"
    assert (found.level == "error") == ("Almost certain" in found.message)
    lost = sum(lengths) - len(pack_padded_sequence(x, short, True, enforce_sorted=False).data)
    assert f"{lost} step" in found.message
    assert not serious(
        pv.diagnose(x[:, : max(short)], np.minimum(lengths, max(short)), True)
    )  # cut on purpose


@given(st.permutations(range(1, 10)), seeds)
def test_padding_inside_the_length(lengths, seed):
    x = batch(lengths, seed=seed)
    for wrong, level in (([9] * 9, "warning"), ([min(n + 1, 9) for n in lengths], "info")):
        found, *doubt = pv.diagnose(x, wrong, True)
        assert (found.level, found.rule) == (level, "padding inside the length")
        assert [one.rule for one in doubt] == [UNDECIDED_RULE] * (level == "warning")
        assert f"{sum(wrong) - sum(lengths)} step" in found.message
        assert ("not the width of x" in found.fix) == (len(set(wrong)) == 1)


@pytest.mark.parametrize("padding", [0, 1])
def test_lengths_that_are_all_T_over_padding(padding):
    ids = torch.randint(2, 40, (6, 9)).masked_fill(~pv.real_mask([9, 2, 5, 1, 6, 3]), padding)
    vectors = nn.Embedding(40, 8)(ids).detach()
    for x in (ids, vectors):
        found, doubt = judged = pv.diagnose(x, [9] * 6, True)
        assert (judged.ok, doubt.rule) == (False, UNDECIDED_RULE)
        assert (found.level, found.rule, found.indices) == (
            "warning",
            "padding inside the length",
            (1, 2, 3, 4, 5),
        )
    ids[1:] = torch.randint(2, 40, (5, 9))
    for end in (7, 1):  # truly of length T, and all end in one id, as in an end mark
        ids[:, -1] = end
        assert [one.level for one in pv.diagnose(ids, [9] * 6, True)] == ["info"]


@given(st.permutations(range(2, 10)), st.integers(0, 2), seeds)
def test_sequences_that_are_cut_on_purpose(lengths, extra, seed):
    x = batch(lengths, 9 + extra, seed=seed)
    for cut in (
        [n - 1 for n in lengths],
        [min(n, 7) for n in lengths],
    ):  # a caption's last word; the longest
        found = pv.diagnose(x, cut, True)
        assert serious_rules(found) == [UNDECIDED_RULE]
        assert found[0].indices == tuple(np.flatnonzero(np.array(cut) < lengths))
        assert (
            "on purpose, as captions" in found[0].message or "steps on purpose" in found[0].message
        )


@pytest.mark.parametrize("batch_first", [True, False])
def test_lengths_beyond_the_input(batch_first):
    x = batch([5, 3, 2])
    x = x if batch_first else x.transpose(0, 1)
    (found,) = pv.diagnose(x, [5, 8, 2], batch_first)
    assert (found.level, found.rule, found.where) == ("error", "longer than x", "sequence b")
    assert "lengths[1] is 8" in found.message
    packed = pack_padded_sequence(x, [5, 8, 2], batch_first, enforce_sorted=False)
    assert (
        f"{len(packed.data)} rows of data, but the lengths add up to {packed.batch_sizes.sum()}"
        in found.message
    )


@pytest.mark.parametrize("kind", [list, torch.tensor, np.array])
def test_fractional_lengths(kind):
    x, lengths = batch([5, 3, 2]), kind([5, 2.9, 2])
    assert pack_padded_sequence(x, torch.as_tensor(lengths), True).batch_sizes.tolist() == [
        3,
        3,
        1,
        1,
        1,
    ]  # 2.9 is 2
    (found,) = serious(pv.diagnose(x, lengths, True))
    assert (found.level, found.rule, found.where) == ("error", "fractional length", "sequence b")
    assert not pv.diagnose(
        x, kind([5.0, 3.0, 2.0]), True
    )  # whole numbers: torch takes them as they are
    assert rules(x, kind([5.9, 3, 2]), True) == [
        "fractional length"
    ]  # cut to 5, so not longer than x


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_lengths_that_are_no_numbers(wrong):
    found = pv.diagnose(batch([5, 3, 2]), [5.5, wrong, 2], True)
    assert [(one.level, one.where) for one in found] == [
        ("error", "sequence b"),
        ("error", "sequence a"),
    ]
    assert found.rules == ["not finite", "fractional length"]


def test_a_wrong_count():
    x = batch([5, 3, 2])
    for lengths, drops in (([5, 3], True), ([5, 3, 2, 2], False)):
        (found,) = pv.diagnose(x, lengths, True)
        assert (found.level, found.rule) == ("error", "wrong count")
        assert ("drops 1 sequence" in found.message) == drops
    assert pack_padded_sequence(x, [5, 3], True, enforce_sorted=False).batch_sizes[0] == 2
    with pytest.raises(IndexError):
        pack_padded_sequence(x, [5, 3, 2, 2], True, enforce_sorted=False)


def test_nan_in_the_padding():
    x, gru = batch([5, 3, 2]), nn.GRU(2, 3, batch_first=True)
    x[1, 4] = float("nan")
    (found,) = pv.diagnose(x, [5, 3, 2], True)
    assert (found.level, found.rule, found.where) == ("warning", "NaN in the padding", "sequence b")
    for packed in (False, True):
        gru.zero_grad()
        output = gru(pack_padded_sequence(x, [5, 3, 2], True) if packed else x)[0]
        (output.data if packed else output[pv.real_mask([5, 3, 2])]).sum().backward()
        assert gru.weight_ih_l0.grad.isnan().any() == (not packed)
    x[1, 4] = 0
    x[0, 0] = float("nan")  # at a real step: no business of packing
    assert not pv.diagnose(x, [5, 3, 2], True)


def test_tags_whose_padding_comes_back_as_zero():
    tags = torch.randint(0, 4, (3, 5)).masked_fill(~pv.real_mask([5, 3, 2]), -100)
    (found,) = [f for f in pv.diagnose(tags, [5, 3, 2], True) if f.rule == "padding not restored"]
    assert found.level == "info"
    packed = pack_padded_sequence(tags, [5, 3, 2], True)
    assert not torch.equal(pad_packed_sequence(packed, True)[0], tags)
    names = {"pad_packed_sequence": pad_packed_sequence, "packed": packed}
    assert torch.equal(eval(found.fix, names)[0], tags)
    assert "padding not restored" not in rules(batch([5, 3, 2]).long(), [5, 3, 2], True)


# Width.


def test_a_width_that_unpacking_does_not_keep():
    x = batch([5, 3, 2], 8)
    (found,) = pv.diagnose(x, [5, 3, 2], True)
    assert (found.level, found.rule) == ("info", "narrower when unpacked")
    output, _ = pad_packed_sequence(pack_padded_sequence(x, [5, 3, 2], True), True)
    assert f"The greatest length is {output.shape[1]}, and x has" in found.message


# A packed sequence, and the order in which it comes back.


@given(lengths_of, st.booleans(), st.integers(1, 2), seeds)
def test_what_torch_has_packed_comes_back(lengths, batch_first, features, seed):
    x = batch(lengths, features=(2,) * (features - 1), seed=seed)
    x = x if batch_first else x.transpose(0, 1)
    packed = pack_padded_sequence(x, lengths, batch_first, enforce_sorted=False)
    for data in (packed.data, packed.data * 2, torch.randn(len(packed.data), 5)):
        assert not serious(pv.diagnose(x, lengths, batch_first, packed._replace(data=data)))
    same = pack_padded_sequence(
        torch.ones(4, 3, 2), [3] * 4, True
    )  # equal sequences may change places
    assert not serious(pv.diagnose(torch.ones(4, 3, 2), [3] * 4, True, same))


@given(lengths_of, st.booleans(), seeds)
def test_a_hand_built_one_is_found_where_it_does_not(lengths, same_data, seed):
    x = batch(lengths, seed=seed)
    packed = pack_padded_sequence(x, lengths, True, enforce_sorted=False)
    by_hand = PackedSequence(packed.data if same_data else 2 * packed.data, packed.batch_sizes)
    output, came = pad_packed_sequence(by_hand, True)
    found = pv.diagnose(x, lengths, True, by_hand)
    # With the data of x, any row in the wrong place shows; with others, only one of another length.
    lost = not torch.equal(output, x) if same_data else came.tolist() != lengths
    assert serious_rules(found) == ["order lost"] * lost
    if lost:
        i = next(
            i
            for i in range(len(lengths))
            if not torch.equal(output[i], x[i]) or came[i] != lengths[i]
        )
        assert f"row {i} will " in found[0].message or not same_data


@given(lengths_of, seeds)
def test_a_batch_sorted_by_hand_is_found(lengths, seed):
    x = batch(lengths, seed=seed)
    order = sorted(range(len(lengths)), key=lambda b: -lengths[b])
    by_length = [lengths[b] for b in order]
    packed = pack_padded_sequence(x[order], by_length, True)
    found = serious(pv.diagnose(x, lengths, True, packed))
    assert [one.rule for one in found] == ["order lost"] * (order != sorted(order))
    if found:
        i = next(i for i, b in enumerate(order) if i != b)
        assert (
            f"row {i} will be sequence {sequence_name(order[i])}, not {sequence_name(i)}"
            in found[0].message
        )
    assert not serious(pv.diagnose(x[order], by_length, True, packed))


def test_indices_that_contradict_each_other():
    x = batch([5, 3, 2])
    packed = pack_padded_sequence(x, [5, 3, 2], True)
    turn = torch.tensor([1, 2, 0])
    for sort, back in ((turn, turn), (None, turn)):
        (found,) = pv.diagnose(
            x, [5, 3, 2], True, PackedSequence(packed.data, packed.batch_sizes, sort, back)
        )
        assert (found.level, found.rule) == ("error", "contradicting indices")
    right = PackedSequence(packed.data, packed.batch_sizes, torch.arange(3), torch.arange(3))
    assert not pv.diagnose(x, [5, 3, 2], True, right)


@given(lengths_of, st.booleans(), seeds)
def test_rows_that_lie_sequence_by_sequence(lengths, by_length, seed):
    x = batch(lengths, seed=seed)
    packed = pack_padded_sequence(x, lengths, True, enforce_sorted=False)
    order = packed.sorted_indices.tolist() if by_length else range(len(lengths))
    by_hand = packed._replace(data=torch.cat([x[b, : lengths[b]] for b in order]))
    found = serious(pv.diagnose(x, lengths, True, by_hand))
    wrong = not torch.equal(pad_packed_sequence(by_hand, True)[0], x)
    assert [(one.level, one.rule) for one in found] == [("error", "rows by sequence")] * wrong


def test_a_packed_sequence_that_is_broken_or_of_another_batch():
    x = batch([5, 3, 2])
    packed = pack_padded_sequence(x, [5, 3, 2], True)
    assert rules(x, [5, 3, 2], True, packed._replace(data=packed.data[:-1])) == [
        "broken packed sequence"
    ]
    assert rules(x, [4, 3, 2], True, packed)[:2] == ["another batch", "data after the length"]


# The last step, and the state.


@given(lengths_of, st.integers(0, 3), st.booleans(), st.booleans(), seeds)
def test_the_last_step_read_at_the_padding(lengths, extra, batch_first, run_padded, seed):
    torch.manual_seed(seed)
    steps = max(lengths) + extra
    gru = nn.GRU(2, 3, batch_first=True)
    x = batch(lengths, steps, seed=seed)
    output = gru(x if run_padded else pack_padded_sequence(x, lengths, True, enforce_sorted=False))[
        0
    ]
    output = output if run_padded else pad_packed_sequence(output, True, total_length=steps)[0]
    right = output[range(len(lengths)), [n - 1 for n in lengths]]
    wrong = [n < steps for n in lengths]
    given = output if batch_first else output.transpose(0, 1)
    found = pv.diagnose(given, lengths, batch_first, last=output[:, -1]).of_level("error")
    assert [one.rule for one in found] == ["read at the padding"] * any(wrong)
    if found:
        assert f"{sum(wrong)} sequence" in found[0].message
    assert not pv.diagnose(given, lengths, batch_first, last=right).of_level("error")


def test_a_state_with_other_rows():
    x, lengths = batch([2, 5, 3]), [2, 5, 3]
    packed = pack_padded_sequence(x, lengths, True, enforce_sorted=False)
    lstm, h, c = nn.LSTM(2, 4), torch.randn(1, 6, 4), torch.randn(1, 6, 4)
    assert torch.equal(
        lstm(packed, (h, c))[1][0], lstm(packed, (h[:, :3], c[:, :3]))[1][0]
    )  # without a word
    assert [one.message.split()[0] for one in pv.diagnose(x, lengths, True, hx=(h, c))] == [
        "h_0",
        "c_0",
    ]
    assert not pv.diagnose(x, lengths, True, hx=(h[:, :3], c[:, :3]))
    wrong = (
        (h, True, "first rows"),
        (c[:, :2], False, "one row"),
        (torch.zeros(3, 1, 4), False, "never"),
    )
    for state, drops, fix in wrong:
        (found,) = pv.diagnose(x, lengths, True, hx=state)
        assert (found.rule, "drops" in found.message, fix in found.fix) == (
            "rows of the state",
            drops,
            True,
        )


# The rest.


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        (([1, 2], [1, 2]), TypeError, "the input x must be a tensor, got list"),
        (
            (pack_padded_sequence(X, [3, 3]), [3, 3]),
            TypeError,
            "the input x is a PackedSequence: pad it",
        ),
        ((torch.zeros(3), [3]), ValueError, "x must be (T, B, …), got shape (3,)"),
        ((X.to_sparse(), [3, 2]), TypeError, "x is a sparse tensor; give a dense one"),
        ((X, "ab"), ValueError, "lengths must hold one number per sequence, got 'ab'"),
        ((X, [[3, 2]]), ValueError, "lengths must hold one number per sequence, got [[3, 2]]"),
        ((X, torch.ones(2).bool()), ValueError, "lengths must hold one number per sequence, got"),
        ((X, torch.tensor([[0, 1, 1], [1, 1, 1]])), ValueError, "row 0 of the mask has padding at"),
        ((X, [3, 2], False, X), TypeError, "packed has no 'batch_sizes'"),
    ],
)
def test_what_is_no_batch(given, error, said):
    with pytest.raises(error) as raised:
        pv.diagnose(*given)
    assert str(raised.value).startswith(said)
    with pytest.raises(
        ValueError,
        match=r"last must hold one step of x for each sequence \(B = 2\), got shape \(3, 2\)",
    ):
        pv.diagnose(X, [3, 2], last=X)
    with pytest.raises(
        ValueError,
        match=r"hx must be a tensor of shape \(L·D, B, H\) or .*, got shape \(3, 2\)",
    ):
        pv.diagnose(X, [3, 2], hx=X)


@pytest.mark.parametrize(
    ("shape", "lengths"), [((0, 5, 2), []), ((3, 0, 2), [1, 1, 1]), ((3, 5, 0), [5, 3, 2])]
)
def test_what_torch_refuses_anyway(shape, lengths):
    (found,) = pv.diagnose(batch([5, 3, 2]), [5, 0, -1], True)
    assert (found.rule, found.where) == ("empty sequence", "sequences b, c")
    assert rules(batch([5, 3]), torch.tensor([5, 2.5], device="meta"), True) == [
        "lengths not on the CPU"
    ]
    (found,) = pv.diagnose(torch.zeros(shape), lengths, True)
    assert (found.level, found.rule) == ("error", "empty batch")
    with pytest.raises(RuntimeError, match="Cannot pack empty tensors"):
        pack_padded_sequence(torch.zeros(shape), torch.tensor(lengths), True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.complex64, torch.int8])
def test_any_dtype(dtype):
    x = (10 * batch(LENGTHS)).to(dtype)
    x[pv.real_mask(LENGTHS) & (x == 0).all(-1)] = 1
    packed = pack_padded_sequence(x, LENGTHS, True, enforce_sorted=False)
    assert not pv.diagnose(x, LENGTHS, True, packed)
    assert rules(x, LENGTHS, False) == ["batch and time swapped"]


def test_what_was_given_stays_as_it_is():
    x, lengths = batch(LENGTHS).requires_grad_(), torch.tensor(LENGTHS)
    before = x.detach().clone()
    pv.diagnose(x.transpose(0, 1), lengths, False, last=x[:, -1])
    assert torch.equal(x.detach(), before)
    assert (x.grad, lengths.tolist()) == (None, LENGTHS)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cuda_finds_what_the_cpu_finds():
    x = batch(LENGTHS)
    packed = PackedSequence(*pack_padded_sequence(x, LENGTHS, True, enforce_sorted=False)[:2])
    left = pv.align(x, LENGTHS, padding_side="left", batch_first=True)
    for data, lengths, options in (
        (x, LENGTHS, {}),
        (x, [7] * 7, {}),
        (left, LENGTHS, {}),
        (x, LENGTHS, {"packed": packed, "last": x[:, -1], "hx": torch.zeros(1, 9, 3)}),
    ):
        there = pv.diagnose(
            data.cuda(), lengths, True, **{name: value.cuda() for name, value in options.items()}
        )
        assert repr(there) == repr(pv.diagnose(data, lengths, True, **options))
    assert rules(x.cuda(), torch.tensor(LENGTHS).cuda(), True) == ["lengths not on the CPU"]


def test_a_last_step_that_is_another_one_is_found():
    torch.manual_seed(0)
    lengths = torch.tensor([3, 6, 2, 5])
    x = torch.randn(4, 6, 3) * pv.real_mask(lengths)[..., None]
    rows = torch.arange(4)
    right = x[rows, lengths - 1]
    found = {
        "": right,
        "not the last step": x[rows, lengths - 2],
        "rows in another order": right[lengths.argsort(descending=True)],
        UNDECIDED_RULE: torch.cat([right[:, :2], x[:, 0, 2:]], 1),
    }
    for rule, last in found.items():
        assert serious_rules(pv.diagnose(x, lengths, True, last=last)) == [rule] * bool(rule)
    (one,) = serious(pv.diagnose(x, lengths, True, last=x[:, 0]))
    assert "last[0] is step 0 of sequence a, which ends with step 2" in one.message


def test_nan_in_a_right_last_step_and_a_mask_the_other_way_round():
    x = batch([2, 5, 3])
    x[0, 1] = torch.nan
    last = x[torch.arange(3), torch.tensor([1, 4, 2])]
    assert not serious(pv.diagnose(x, [2, 5, 3], True, last=last))
    mask = pv.real_mask([2, 5, 3])
    assert "batch and time swapped" in pv.diagnose(batch([2, 5, 3]), mask, False).rules
