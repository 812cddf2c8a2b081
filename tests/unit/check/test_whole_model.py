"""Whether what a model returns depends on the padding. The models' own code says which it is."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

import packviz as pv
from packviz.check.extra_padding import ExtraPaddingMode

# Three sequences or more, because a state of two directions has a dimension of size 2, too.
ragged = st.lists(st.integers(1, 7), min_size=2, max_size=5).filter(lambda n: len(set(n)) > 1)


class Tagger(nn.Module):
    """Returns scores for each step, and the final state."""

    def __init__(self, packs, both=False):
        super().__init__()
        torch.manual_seed(0)
        self.packs = packs
        self.rnn = nn.LSTM(3, 6, batch_first=True, bidirectional=both)
        self.drop = nn.Dropout(0.5)

    def forward(self, x, lengths):
        if self.packs:
            x = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, (h_n, _) = self.rnn(x)
        if self.packs:
            out, _ = pad_packed_sequence(out, batch_first=True)
        return {"scores": self.drop(out), "state": h_n}


@given(ragged, st.booleans(), st.booleans())
@settings(deadline=None)
def test_a_model_is_judged_by_what_it_reads(lengths, packs, both):
    assume(len(lengths) != max(lengths))
    model = Tagger(packs, both).eval()
    x = torch.randn(len(lengths), max(lengths), 3)
    comparison = compared(lambda batch: model(batch, lengths), x, lengths)
    scores, state = comparison.outputs
    assert comparison.agrees is packs
    assert (scores.n_differing > 0) is (both and not packs)
    assert (state.n_differing != 0) is not packs  # None if a state is as wide as the batch is long
    if not packs:
        short = {name for name, n in zip("abcde", lengths, strict=False) if n < max(lengths)}
        is_clear = not (both and len(lengths) == 2)  # else h_n is (2, 2, 6)
        assert set(state.sequences) == (short if is_clear else set())
    assert len(comparison.to_dict()["rows"]) == 2
    assert "state" in comparison.to_markdown()


def test_a_batch_whose_axes_look_alike_is_refused():
    model = Tagger(False, both=True)  # h_n is (2, 2, 6), as if it had cells of 2 sequences
    with pytest.raises(ValueError, match="as many sequences as time steps"):
        compared(lambda x: model(x, [1, 2]), torch.randn(2, 2, 3), [1, 2])


def test_a_model_without_numbers_has_no_table():
    comparison = compared(lambda batch: None)
    assert comparison.to_markdown() == comparison.summary
    assert comparison.to_dict()["rows"] == []


def test_ids_and_time_first():
    embedding = nn.Embedding(9, 2)
    ids = torch.randint(1, 9, (6, 3))
    mean = pv.compare(lambda x: embedding(x).mean(0), ids, [6, 2, 4], batch_first=False)
    assert mean.agrees is False
    assert mean.outputs[0].sequences == ("b", "c")
    assert pv.compare(embedding, ids, [6, 2, 4], batch_first=False).agrees


def test_dropout_is_off_and_modes_return():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    model[0].eval()
    modes = []
    model.train = lambda mode: modes.append(mode)
    model[1].train = None  # a model's own may be anything
    assert compared(model, torch.randn(5, 8, 3)).agrees
    assert [module.training for module in model.modules()] == [True, False, True]
    assert any(modes)


@dataclasses.dataclass
class Answer:
    total: torch.Tensor


@pytest.mark.parametrize(
    ("model", "lengths", "verdict"),
    [
        (lambda x: Answer(x.sum()), [5, 2], False),
        (lambda x: torch.rand(3), [5, 2], None),
        (lambda x: x / 0, [5, 2], True),  # infinity at each real cell
        (lambda x: x * torch.nan, [5, 2], None),
        (lambda x: x, [5, 5], None),
        (lambda x: (1e6 * x.sum()).long(), [5, 2], False),
        (lambda x: [x.sum().item(), "in words"], [5, 2], False),
        (lambda x: torch.complex(x, x), [5, 2], True),
        (lambda x: x.sum(2), [5, 2], True),  # (B, T)
        (lambda x: x.sum((1, 2)), [5, 2], False),  # (B,)
        (lambda x: (x[:, :2], x[0]), [5, 2], True),
    ],
)
def test_verdicts(model, lengths, verdict):
    comparison = compared(model, torch.randn(2, 5, 3), lengths)
    assert comparison.agrees is verdict
    assert comparison.to_markdown().startswith(comparison.summary)


def test_a_state_is_refused():
    with pytest.raises(TypeError, match="called with x alone"):
        pv.compare(nn.Linear(3, 3), torch.randn(2, 5, 3), [5, 2], torch.zeros(1))


def test_zeros_everywhere_hide_nothing():
    last = compared(lambda x: x.sum(1), torch.zeros(2, 5, 3), [5, 2])
    assert last.agrees is False
    ids = torch.zeros(2, 5, dtype=torch.long)
    assert compared(lambda x: x.float(), ids, [5, 5]).agrees is None
    with pytest.raises(ValueError, match="contain only the id 0"):
        compared(lambda x: x.float(), ids, [5, 2])


def test_a_tolerance_of_zero_is_taken_at_its_word():
    x = torch.randn(2, 5, 3)
    comparison = pv.compare(
        lambda x: x[:, :2] + 1e-7 * x.sum(1, keepdim=True), x, [5, 2], batch_first=True, tolerance=0
    )
    assert comparison.agrees is False


torch.manual_seed(0)
LENGTHS = torch.tensor([8, 6, 5, 3, 2])
MASK = torch.arange(8) < LENGTHS[:, None]
X = torch.randn(5, 8, 4) * MASK[..., None]
GRU = nn.GRU(4, 6, batch_first=True)


def compared(model, x=X, lengths=LENGTHS):
    return pv.compare(model, x, lengths, batch_first=True)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def unpacked(rnn, x, width=None, lengths=LENGTHS):
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(rnn(packed)[0], batch_first=True, total_length=width)[0]


@pytest.mark.parametrize("fill", [0, -1e4, -1e9, -torch.inf])
def test_large_values_do_not_hide_a_difference(fill):

    def scores(x):  # attention of the final state, which is read after the padding
        output, h_n = GRU(x)
        return torch.einsum("bh,bth->bt", h_n[-1], output).masked_fill(~MASK, fill)[:, None]

    comparison = compared(scores)
    assert comparison.outputs[0].sequences == ("b", "c", "d", "e")
    scale = torch.tensor([1e6, 1, 1, 1, 1])[:, None]
    comparison = compared(lambda x: GRU(x)[1][-1] * scale)
    assert comparison.outputs[0].sequences == ("b", "c", "d", "e")


LAYOUTS = {
    "(B, T, C)": lambda output: output,
    "(T, B, C)": lambda output: output.transpose(0, 1),
    "(B, C, T)": lambda output: output.transpose(1, 2),
    "(B * T, C)": lambda output: output.flatten(0, 1),
    "(T * B, C)": lambda output: output.transpose(0, 1).flatten(0, 1),
    "(B * T,)": lambda output: output.sum(2).flatten(),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("directions", [1, 2])
def test_only_real_cells_count_in_any_layout(layout, directions):
    gru = nn.GRU(4, 6, batch_first=True, bidirectional=directions == 2)
    comparison = compared(lambda x: layout(gru(x)[0]))
    assert comparison.agrees is (directions == 1)
    assert comparison.outputs[0].item_kind == "real cells"
    assert comparison.outputs[0].n_compared == 24


def test_whole_numbers_count():
    signs = compared(lambda x: GRU(x)[1].sign().int())
    assert signs.agrees is False
    assert compared(lambda x: GRU(x)[0].sign().int()).agrees


def test_a_model_that_finds_the_padding_by_its_id_is_not_called_wrong():
    embedding = nn.Embedding(50, 4)
    for padding in (0, 1):
        ids = torch.randint(2, 50, (5, 8)).masked_fill(~MASK, padding)

        def count_lengths(ids, padding=padding):
            is_word = ids != padding
            output = unpacked(GRU, embedding(ids), lengths=is_word.sum(1))
            return (output * is_word[:, : output.shape[1], None]).sum(1)

        comparison = compared(count_lengths, ids)
        assert comparison.agrees is None
        assert "right only if the padding always holds the same value" in comparison.to_text()
        reading = compared(lambda ids: GRU(embedding(ids))[1][-1], ids)
        assert reading.agrees is False


def test_more_padding_counts():

    def zeroed(x):  # its own padding is always zero, and it is read all the same
        return GRU(x * (torch.arange(x.shape[1]) < LENGTHS[:, None])[..., None])[1]

    comparison = compared(zeroed)
    assert comparison.agrees is False
    assert "how much padding there is: 5 of 5 sequences change" in comparison.to_text()
    fixed = compared(lambda x: GRU(x * MASK[..., None])[1])
    assert "Not tested: how much padding there is" in fixed.to_text()


def test_nothing_is_changed_and_batch_norm_is_named():
    norm = nn.Sequential(nn.Flatten(0, 1), nn.BatchNorm1d(4), nn.Unflatten(0, (5, -1)))
    before = torch.get_rng_state()
    compared(lambda x: torch.dropout(x, 0.5, True))
    assert torch.equal(torch.get_rng_state(), before)
    comparison = compared(norm)
    assert comparison.agrees
    assert "In training, BatchNorm takes" in comparison.to_text()
    assert "BatchNorm" not in compared(norm.eval()).to_text()


MEMORY = torch.zeros(5, 4)
READING = {
    "the same memory in each run": lambda x: torch.sum(x, 1, out=MEMORY),
    "an output more": lambda x: [row for row in x[:, 7] if row.any()],
    "an output less": lambda x: (x, None if x[-1, 7].any() else x.sum(1)),
    "an array": lambda x: (x, x.sum(1).numpy()),
    "a number": lambda x: (x, x.sum(1).numpy()[4, 0]),
    "another size": lambda x: x[:, :6] if x[-1, 7].any() else x,
    "complex": lambda x: torch.complex(x[:, 0, 0], x.sum((1, 2))),
}


@pytest.mark.parametrize("model", READING.values(), ids=READING)
def test_what_reads_the_padding_in_odd_ways_is_found(model):
    x = torch.randn(5, 8, 4)
    assert compared(model, x).agrees is False


POOLINGS = {
    "mean": lambda output: output.mean(1),
    "largest": lambda output: output.amax(1),
    "last": lambda output: output[:, -1],
    "attention": lambda output: (output.sum(2, keepdim=True).softmax(1) * output).sum(1),
}


@pytest.mark.parametrize("pooling", POOLINGS.values(), ids=POOLINGS)
@pytest.mark.parametrize("width", [None, 8])
def test_padding_that_the_model_adds_itself_counts(pooling, width):
    """The lengths stay the same, so only `pad_packed_sequence` can make the output wider."""
    gru = nn.GRU(4, 6, batch_first=True, bidirectional=True)

    def real_mean(x):
        return unpacked(gru, x, width).sum(1) / LENGTHS[:, None]

    assert compared(real_mean).agrees
    comparison = compared(lambda x: pooling(unpacked(gru, x, width)))
    assert comparison.agrees is False
    fixed = compared(lambda x: unpacked(gru, x, width)[MASK])
    assert fixed.agrees is None  # this mask fits no wider output
    assert fixed.summary == (
        "Nothing depends on the values in the padding, but how much padding there is was not"
        " tested."
    )


def test_rows_that_the_model_pads_itself_count():
    def padded_rows(x):
        rows = [GRU(row[:n])[0] for row, n in zip(x, LENGTHS, strict=True)]
        return pad_sequence(rows, batch_first=True)

    assert compared(lambda x: padded_rows(x).sum(1) / LENGTHS[:, None]).agrees
    assert compared(lambda x: padded_rows(x).mean(1)).agrees is False
    names = [X[0, :2], X[1, :1]]
    assert compared(lambda x: pad_sequence(names).sum() + x[:, 0]).agrees


def test_the_padding_gets_values_that_occur():
    categories = nn.Embedding(3, 2)
    x = torch.randint(3, (5, 8, 4)).float()
    assert compared(lambda x: categories(x.long()), x).agrees


def test_a_batch_may_be_returned_as_it_was_sorted():
    comparison = compared(lambda x: (x[:, 0], x.flip(0)), X.flip(0), LENGTHS.flip(0))
    assert [output.name for output in comparison.outputs] == ["[0]"]
    assert comparison.agrees


def test_a_model_that_finds_the_padding_by_its_zeros_is_not_called_wrong():
    weight = nn.Linear(4, 1)

    def attend(x):
        scores = weight(x).masked_fill(~x.any(2, keepdim=True), -1e9)
        return (scores.softmax(1) * x).sum(1)

    comparison = compared(attend)
    assert comparison.agrees is None
    assert "not on how much padding there is" in comparison.to_text()
    noisy = torch.where(MASK[..., None], X, torch.randn_like(X))
    assert compared(attend, noisy).agrees is False


@pytest.mark.parametrize("pooling", POOLINGS.values(), ids=POOLINGS)
def test_padding_counts_even_if_each_row_has_some(pooling):
    x = torch.cat([X, torch.zeros(5, 4, 4)], 1)  # as a tokenizer pads to a fixed width
    gru = nn.GRU(4, 5, batch_first=True, bidirectional=True)

    def output_of(x):
        return unpacked(gru, x, x.shape[1])

    assert compared(output_of, x).agrees
    assert compared(lambda x: pooling(output_of(x)), x).agrees is False
    twelve = nn.Linear(10, 12)  # as wide as x
    hidden = compared(lambda x: twelve(pooling(output_of(x))), x)
    assert not hidden.agrees


@pytest.mark.parametrize("seed", range(8))
def test_a_largest_value_that_the_padding_could_be_is_found(seed):
    torch.manual_seed(seed)
    lstm = nn.LSTM(4, 6, batch_first=True)
    x = 9 * torch.randn(5, 8, 4)
    value, place = compared(lambda x: unpacked(lstm, x).max(1), x).outputs
    assert value.n_differing
    assert place.n_differing


def test_targets_of_a_fixed_width_leave_something_untested():
    tags = torch.randint(0, 6, (5, 8)) * MASK

    def loss(x):
        scores = unpacked(GRU, x)
        return nn.functional.cross_entropy(scores.flatten(0, 1), tags.flatten())

    comparison = compared(loss)
    assert comparison.agrees is None
    assert "Not tested: how much padding there is" in comparison.to_text()


def test_outputs_with_another_number_of_steps_are_not_called_wrong():
    convolution = nn.Conv1d(4, 8, 2, stride=2)

    def halved(x):
        return convolution(x.mT).mT, LENGTHS // 2

    for model in (halved, lambda x: GRU(x[:, :-1])[0], lambda x: GRU(x)[0][:, 1:].flatten(0, 1)):
        assert compared(model).agrees is None


@pytest.mark.parametrize("padding", [0.0, -1.0, torch.nan])
def test_a_model_may_look_for_the_value_of_the_padding(padding):
    x = torch.rand(5, 8, 4).masked_fill(~MASK[..., None], padding)

    def model(x):
        real = ~x.isnan() if padding != padding else x != padding
        n = real.any(2).sum(1)
        return GRU(pack_padded_sequence(x, n, batch_first=True, enforce_sorted=False))[1][-1]

    assert compared(model, x).agrees is None
    assert compared(lambda x: GRU(x)[1][-1], x).agrees is False


def test_rounding_of_a_value_near_zero_is_no_difference():

    def model(x):
        return torch.tensor([[0.25, 1e-5 + 5e-10 * (x.shape[1] > 8)]] * 5)

    assert compared(model).agrees


def test_what_cannot_be_read_is_not_called_right():

    def policy(x):
        output, h_n = GRU(x)
        return output, torch.distributions.Normal(h_n, 1.0)

    comparison = compared(policy)
    assert comparison.agrees is None
    assert "[1]  cannot be judged: it is a Normal" in comparison.to_text()
    assert compared(lambda x: "positive").agrees
    words = compared(lambda x: f"{GRU(x)[1].sum():.3f}")
    assert words.agrees is False
    assert compared(lambda x: x.to_sparse()).agrees


class Trainer:
    """A class that holds a module, and is no module itself."""

    def __init__(self):
        self.models = {"one": nn.Sequential(nn.BatchNorm1d(8), nn.Dropout(0.5))}

    def step(self, x):
        return self.models["one"](x)


class Method(nn.Module):
    """A module that is called by one of its methods."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def encode(self, x):
        return nn.functional.dropout(self.norm(x), 0.5, self.training)


def test_a_model_that_leaves_out_further_steps_is_not_tested_with_them():
    steps = max(LENGTHS)
    comparison = compared(lambda x: GRU(x[:, :steps])[1][-1])
    assert comparison.agrees is False


def test_unpacking_is_wider_only_where_there_is_padding_and_in_this_thread():

    def one_by_one(x):
        rows = [x[b : b + 1, :n] for b, n in enumerate(LENGTHS.tolist())]
        packed = [pack_padded_sequence(row, [row.shape[1]], batch_first=True) for row in rows]
        outputs = [pad_packed_sequence(GRU(row)[0], batch_first=True)[0] for row in packed]
        return torch.cat([output[:, -1] for output in outputs])

    assert compared(one_by_one).agrees
    packed = pack_padded_sequence(X, LENGTHS, batch_first=True)
    with ExtraPaddingMode(3, LENGTHS.tolist()), ThreadPoolExecutor() as threads:
        assert pad_packed_sequence(packed)[0].shape[0] == 11
        other = threads.submit(pad_packed_sequence, packed).result()
    assert other[0].shape[0] == pad_packed_sequence(packed)[0].shape[0] == 8


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_functions_whose_modules_cannot_be_reached_are_run_all_the_same():
    model = nn.Sequential(nn.Dropout(0.5))
    program = torch.export.export(model.eval(), (X,)).module()
    assert compared(torch.jit.freeze(torch.jit.script(nn.Linear(4, 2).eval()))).agrees
    fixed = compared(lambda x: program(x))
    assert fixed.agrees is None  # it takes only eight steps
    assert not fixed.outputs[0].n_differing
    assert compared(partial(model.train())).agrees

    def with_a_name(x):
        return x if x is not None else later

    assert compared(with_a_name).agrees
    if X is None:
        later = 1


def test_modules_that_a_function_names_are_set_to_eval_mode():
    norm = nn.BatchNorm1d(8)
    method, trainer = Method(), Trainer()
    for function, module in (
        (lambda x: norm(x), norm),
        (lambda x: method.encode(x), method.norm),
        (method.encode, method.norm),
        (partial(method.encode), method.norm),
        (trainer.step, trainer.models["one"][0]),
    ):
        comparison = compared(function)
        assert not module.running_mean.any()
        assert module.training
        assert not any(output.n_differing is None for output in comparison.outputs)
        assert "In training, BatchNorm takes" in comparison.to_text()


def test_buffers_that_are_lent_for_a_call_go_back_to_their_owner():
    norms = [nn.BatchNorm1d(8)]
    own, lent = norms[0].running_mean, nn.BatchNorm1d(8).state_dict()
    compared(lambda x: functional_call(norms[0], lent, (x[:, :8],)))
    assert norms[0].running_mean is own


def test_a_model_for_cells_that_differ_is_not_called_wrong():
    def correlations(x):
        return torch.stack([row[:n].T.corrcoef() for row, n in zip(x, LENGTHS, strict=True)])

    assert compared(correlations).agrees


def test_a_token_that_ends_sentences_may_be_the_padding():
    ids = torch.randint(9, (5, 8))
    ids[~MASK] = ids[range(5), LENGTHS - 1] = 9

    def mean(ids):
        return (ids * (ids < 9)).sum(1) / (ids < 9).sum(1)

    assert compared(mean, ids).agrees is None  # another padding would count


def test_attention_weights_and_as_many_features_as_steps_are_no_obstacle():
    attention, linear = nn.MultiheadAttention(4, 1, batch_first=True), nn.Linear(4, 8)

    def attend(x):
        return attention(x, x, x, key_padding_mask=torch.arange(x.shape[1]) >= LENGTHS[:, None])

    def turned(x):
        return linear(x).transpose(1, 2), torch.complex(x, x).conj(), np.bool_(True), 1j

    for model in (attend, turned):
        assert compared(model).agrees


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.zeros(4))
        self.register_buffer("wide", torch.ones(1, 4).expand(8, 4))
        self.lazy = nn.LazyBatchNorm1d()

    def forward(self, x):
        self.state = self.state + x.sum((0, 1))
        return x * self.wide[0]


def test_buffers_come_back():
    counter = Counter()
    compared(counter)
    assert not counter.state.any()
