"""The answers of `check_static`, compared with torch's own captures on random other inputs."""

import random
import sys
import types
import warnings
from typing import NamedTuple

import numpy
import pytest
import torch
from habits import habit_since
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.onnx._internal.exporter._errors import TorchExportError

import packviz as pv
from packviz.check import captures, models
from packviz.check.static import NOT_TRIED, QUESTIONS, REFUSED, RIGHT, WRONG

T = 6
B = 4
X = torch.randn(B, T)
LENGTHS = torch.tensor([5, 3, 6, 2])


def model_of(forward, **modules):
    """A model with this forward."""
    model = type("Model", (nn.Module,), {"forward": forward})()
    for name, module in modules.items():
        setattr(model, name, module)
    return model


def check(forward, *inputs, backends="trace", **modules):
    return pv.check_static(model_of(forward, **modules), inputs, backends)


def check_tagger(name, backends):
    return pv.check_static(models.TAGGERS[name](), models.example(5, [5, 3, 4]), backends)


def marks(checked, backend="trace"):
    return [answer.mark for answer in checked.answers[backend].values()]


def is_right(module, inputs, others):
    """Whether torch's own trace gives what the module gives for all of the other inputs."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            trace = torch.jit.trace(module, inputs, check_trace=False, strict=False)
            for other in others:
                expected = module(*other)
                torch.testing.assert_close(trace(*other), expected, atol=1e-5, rtol=1e-5)
        except (RuntimeError, AssertionError):
            return False
    return True


def other_lengths():
    """20 lists of other lengths, half of them all equal."""
    drawn = random.Random(0)
    for i in range(20):
        yield torch.tensor(
            [drawn.randint(1, T)] * B if i % 2 else drawn.choices(range(1, T + 1), k=B)
        )


# Ways to use a value of the lengths, for `x` of shape (B, T).


def masked_by_list(x, n):  # as in ESPnet
    mask = torch.zeros(len(n), T, dtype=torch.bool)
    for row, k in enumerate(n.tolist()):
        mask[row, k:] = True
    return x.masked_fill(mask, 0)


def while_loop(x, n):
    left, k = n.max(), 0
    while left > 0:
        left, k = left - 1, k + 1
    return x * k


def written_by_index(x, n):
    out = torch.zeros_like(x)
    out[torch.arange(B), n - 1] = 1
    return x * out


def steps_with(x, n):
    state = x[:, 0]
    for t in range(x.shape[1]):
        state = torch.where(t < n, state + x[:, t], state)
    return state


def padded_to_longest(x, n, total_length=None):
    packed = pack_padded_sequence(x[..., None], n, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(packed, batch_first=True, total_length=total_length)[0]


def cells_of(x, n):
    return pack_padded_sequence(x[..., None], n, batch_first=True, enforce_sorted=False).data


USES = {
    "mask from tolist": masked_by_list,
    "while": while_loop,
    "written by index": written_by_index,
    "steps with where": steps_with,
    "padded to int": lambda x, n: padded_to_longest(x, n, int(n.max())),
    "data": cells_of,
    "data's shape": lambda x, n: x / cells_of(x, n).shape[0],
    "int picks": lambda x, n: torch.stack([x[row, int(k) - 1] for row, k in enumerate(n)]),
    "tensor picks": lambda x, n: torch.stack([x[row, k - 1] for row, k in enumerate(n)]),
    "tensor of tensors": lambda x, n: x / torch.tensor([*n])[:, None],
    "item": lambda x, n: x * n.max().item(),
    "numpy": lambda x, n: x * float(n.numpy().mean()),
    "range": lambda x, n: sum(x[:, t] for t in range(n.max())),
    "slice by item": lambda x, n: x[:, : n.max().item()].sum(1),
    "branch on max": lambda x, n: x[:, :3] if n.max() > 4 else x,
    "branch on all": lambda x, n: x * 2 if bool((n == T).all()) else x,
    "branch on equal": lambda x, n: x * 2 if torch.equal(n, n[:1].expand(B)) else x,
    "membership": lambda x, n: x * 2 if 3 in n else x,
    "repeat_interleave": lambda x, n: x.repeat_interleave(n, 0),
    "mask": lambda x, n: x.masked_fill(torch.arange(T) >= n[:, None], 0),
    "gather": lambda x, n: x.gather(1, n[:, None] - 1),
    "slice by a tensor": lambda x, n: x[:, : n.max()].sum(1),
    "index": lambda x, n: x[torch.arange(B), n - 1],
    "tensor sort": lambda x, n: x[n.argsort(descending=True, stable=True)],
}


# Uses of which torch does not warn.
UNNAMED = ("range", "branch on equal", "membership")


@pytest.mark.parametrize("use", USES)
def test_the_answer_about_lengths_is_torchs_own(use):
    module = model_of(
        lambda self, x, n: USES[use](x * self.scale, n), scale=nn.Parameter(torch.tensor(1.5))
    )
    for lengths in ([5, 3, 6, 2], [6, 6, 6, 6]):
        inputs = (torch.randn(B, T), torch.tensor(lengths))
        right = is_right(module, inputs, [(inputs[0], n) for n in other_lengths()])
        answer = pv.check_static(module, inputs).answers["trace"]["lengths"]
        assert (answer.mark == RIGHT) == right
        assert right or answer.reason.startswith("for lengths [")
        if answer.mark == WRONG and use not in UNNAMED:
            assert answer.where.startswith("test_static.py, line ")


# Models as found in public code, for `x` of shape (B, T, 3), with the questions that a trace fails.


class Encoder(nn.Module):
    """Packs, and returns the padded output and the final states, as in many seq2seq tutorials."""

    def __init__(self, mode=nn.GRU, **options):
        super().__init__()
        self.rnn = mode(3, 4, batch_first=True, **options)

    def forward(self, x, n):
        packed = pack_padded_sequence(x, n, batch_first=True, enforce_sorted=False)
        output, h_n = self.rnn(packed)
        return pad_packed_sequence(output, batch_first=True, total_length=x.shape[1])[0], h_n


class Listed(Encoder):
    def forward(self, x, n):
        return super().forward(x, n.tolist())


class Masked(Encoder):
    """Pools with a mask that is made in a loop, as in ESPnet."""

    def forward(self, x, n):
        mask = torch.zeros(len(n), x.shape[1])
        for row, k in enumerate(n):
            mask[row, :k] = 1
        return (super().forward(x, n)[0] * mask[..., None]).sum(1)


class LastPicked(Encoder):
    """Picks the last output of each row with a Python number."""

    def forward(self, x, n):
        output, _ = self.rnn(x)
        return torch.stack([output[row, int(k) - 1] for row, k in enumerate(n)])


class MaskConv(nn.Module):
    """Sets the padding to zero after a convolution over time, as in deepspeech.pytorch."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv1d(3, 4, 3, padding=1)

    def forward(self, x, n):
        x = self.convolution(x.transpose(1, 2))
        mask = torch.zeros_like(x, dtype=torch.bool)
        for i, length in enumerate(n):
            length = length.item()
            if mask[i].size(1) - length > 0:
                mask[i].narrow(1, length, mask[i].size(1) - length).fill_(True)
        return x.masked_fill(mask, 0)


class Decoder(nn.Module):
    """Walks over batch_sizes, as decoders with attention do."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 4)

    def forward(self, x, n):
        packed = pack_padded_sequence(x, n, batch_first=True, enforce_sorted=False)
        state, at, states = x.new_zeros(int(packed.batch_sizes[0]), 4), 0, []
        for size in packed.batch_sizes.tolist():
            state = self.cell(packed.data[at : at + size], state[:size])
            states.append(state)
            at += size
        return torch.cat(states)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(3, 1, 8, batch_first=True)

    def forward(self, x, n):
        mask = torch.arange(x.shape[1]) < n[:, None]
        return self.layer(x).masked_fill(~mask[..., None], 0)


PUBLIC = [Encoder, Listed, Masked, LastPicked, MaskConv, Decoder, Attention]


def other_inputs(question):
    for n in other_lengths():
        if question == "lengths":
            yield torch.randn(B, T, 3), n
        elif question == "steps":
            yield torch.randn(B, T + int(n[0]), 3), LENGTHS
        else:
            rows = torch.randint(B, (int(n[0]),))
            yield torch.randn(len(rows), T, 3), LENGTHS[rows]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", PUBLIC)
def test_models_as_in_public_code(kind):
    module = kind().eval()
    inputs = torch.randn(B, T, 3), LENGTHS
    answers = pv.check_static(module, inputs).answers["trace"]
    for question in QUESTIONS:
        right = is_right(module, inputs, other_inputs(question))
        assert (answers[question].mark == RIGHT) == right


# Inputs.


class Pair(NamedTuple):
    x: torch.Tensor
    n: object


def mask_of(n):
    return torch.arange(T) < n[:, None]


FORMS = {
    "int32": lambda n: n.int(),
    "float": lambda n: n.float(),
    "list": lambda n: n.tolist(),
    "numpy": lambda n: n.numpy(),
    "mask": mask_of,
    "padding mask": lambda n: ~mask_of(n),
    "mask of floats": lambda n: mask_of(n).float(),
    "mask, time first": lambda n: mask_of(n).T,
}
NESTS = {
    "arguments": lambda x, n: (x, n),
    "dict": lambda x, n: ({"x": x, "n": n},),
    "named tuple": lambda x, n: (Pair(x, n),),
}


@pytest.mark.parametrize("nest", NESTS)
@pytest.mark.parametrize("form", FORMS)
def test_lengths_are_found_in_any_form(form, nest):
    def forward(self, batch, n=None):
        if isinstance(batch, dict):
            batch, n = batch["x"], batch["n"]
        elif isinstance(batch, Pair):
            batch, n = batch
        numbers = torch.as_tensor(n).double().flatten().tolist()
        return batch * sum((i + 1) * k for i, k in enumerate(numbers))

    checked = check(forward, *NESTS[nest](torch.randn(B, T, 3), FORMS[form](LENGTHS)))
    assert marks(checked)[0] == (REFUSED if form in ("list", "numpy") else WRONG)
    assert not checked.ok


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(
    "sizes", [(4, 4, 4), (4, 4, 3), (4, 5, 4), (4, 5, 5), (1, 4, 4), (3, 3, 1)]
)
@pytest.mark.parametrize("own", [[], ["h"], ["label"]])
def test_equal_sizes_are_not_mistaken(batch_first, sizes, own):
    batch, steps, features = sizes
    rnn = nn.GRU(features, 4, batch_first=batch_first)
    x = torch.randn(batch, steps, features)
    others = {"h": torch.randn(1, batch, 4), "label": torch.arange(batch)}

    def forward(self, x, n, other=None):
        packed = pack_padded_sequence(x, n, batch_first, enforce_sorted=False)
        output, states = self.rnn(packed, other if own == ["h"] else None)
        padded, _ = pad_packed_sequence(output, batch_first)
        return (padded, states) if own != ["label"] else (padded, states * other[:, None])

    inputs = (
        x if batch_first else x.transpose(0, 1),
        torch.arange(steps, steps - batch, -1).clamp(1),
    )
    checked = check(forward, *inputs, *(others[name] for name in own), rnn=rnn)
    # h of shape (1, 1, 4) does not show which of its dimensions is that of the batch.
    is_known = own != ["h"] or batch > 1 or not batch_first
    assert marks(checked) == [RIGHT, RIGHT, RIGHT if is_known else NOT_TRIED]


def test_labels_below_0_are_not_lengths():
    checked = check(lambda self, x, n: x * n.max().item(), X, torch.tensor([-100, 3, 2, 1]))
    assert marks(checked) == [NOT_TRIED] * 3


def test_the_same_number_of_steps_is_no_answer():
    scale = torch.rand(T, 1, 1)
    checked = check(lambda self, x: self.rnn(x)[0] * scale, torch.rand(T, B, 3), rnn=nn.GRU(3, 4))
    assert marks(checked) == [NOT_TRIED, NOT_TRIED, RIGHT]


def test_channels_before_time():
    def forward(self, x, n):
        mask = torch.arange(x.shape[2]) < n[:, None]
        return (x * mask[:, None]).sum(2) * len(x.tolist())

    checked = check(forward, torch.randn(B, 3, T), LENGTHS)
    assert marks(checked) == [RIGHT, RIGHT, WRONG]


def test_lengths_beyond_the_example_are_tried():
    def forward(self, x, n):
        return x * torch.where(n > T, n.max().item(), 2 * n)[:, None]

    checked = check(forward, X, LENGTHS)
    assert marks(checked) == [RIGHT, WRONG, RIGHT]
    assert "[8, 6, 9, 5] in 9 time steps" in checked.to_text()


@habit_since("2.8")
def test_an_empty_sequence_is_tried_if_the_model_takes_one():
    def forward(self, x, n):
        return x * 2 if bool((n == 0).any()) else x * n[:, None]

    assert "0]" in check(forward, X, LENGTHS).answers["trace"]["lengths"].reason
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)

    def attend(self, x, n):  # gives NaN for an empty sequence
        return self.layer(x, src_key_padding_mask=torch.arange(x.shape[1]) >= n[:, None])

    checked = check(attend, torch.randn(B, T, 4), LENGTHS, backends="export", layer=layer)
    assert marks(checked, "export")[0] == RIGHT


def test_a_choice_by_the_values_of_x_is_seen():
    def forward(self, x, n):
        return x + n[:, None] if x.sum() > 0 else -2 * x

    assert WRONG in marks(check(forward, torch.ones(B, T), LENGTHS))


# Undecided.


@pytest.mark.parametrize(
    ("forward", "inputs", "reason"),
    [
        (lambda self, x: x, (X,), "the axes of batch and time are not known"),
        (lambda self, x: x + next(self.numbers), (X,), "run again on the example"),
        (lambda self, x, n: x, (X, iter([1])), "no input was recognised as lengths"),
        (lambda self, x: pack_padded_sequence(x, LENGTHS, True, False).data, (X,), "axes"),
    ],
)
def test_undecided_is_never_ok(forward, inputs, reason):
    checked = check(forward, *inputs, numbers=iter(range(9)))
    assert checked.verdict == "undecided"
    assert not checked.ok
    assert reason in checked.to_text()


def test_inputs_that_the_model_itself_refuses_leave_it_undecided():
    def forward(self, x, n):
        assert n.tolist() == LENGTHS.tolist()
        return x

    checked = check(forward, X, LENGTHS)
    assert marks(checked)[0] == NOT_TRIED
    assert checked.verdict == "undecided"
    assert "the model itself refuses lengths" in checked.to_text()


# Backends.


def branching(self, x, n):
    if n.max() > 4:
        return x * 2
    return x


@pytest.mark.parametrize("backend", ["export", "compile", "trace"])
def test_the_line_that_reads_a_length_is_named(backend):
    answer = check(branching, X, LENGTHS, backends=backend).answers[backend]["lengths"]
    assert answer.mark == (WRONG if backend == "trace" else REFUSED)
    assert answer.where.endswith(": if n.max() > 4:")
    assert "Compute with tensors" in answer.fix


def test_a_fix_is_given_only_for_its_cause():
    assert "pv.Ragged" in check_tagger("packed, padded again", "compile").to_text()
    checked = check_tagger("padded", "export")
    assert marks(checked, "export") == [RIGHT, REFUSED, RIGHT]  # export fixes T for an LSTM
    assert not checked.answers["export"]["steps"].fix


def test_every_backend_of_torch_on_one_operator():
    backends = ["export", "compile"]
    checked = check_tagger("Ragged", backends)
    assert checked.ok
    assert [*checked.answers] == backends
    assert checked.to_text().count(RIGHT) == 6
    assert "<table>" in checked._repr_mimebundle_()["text/html"]


@pytest.mark.parametrize(
    ("tagger", "expected"),
    [
        ("packed, padded again", [RIGHT, RIGHT, RIGHT]),
        ("… no total_length", [WRONG, WRONG, RIGHT]),
        ("maximum, padded with −inf", [WRONG, WRONG, WRONG]),
        ("maximum, masked", [RIGHT, RIGHT, RIGHT]),
        ("packed, escaped", [REFUSED, REFUSED, REFUSED]),
    ],
)
def test_the_legacy_exporter_is_run(tagger, expected):
    pytest.importorskip("onnxruntime")
    checked = check_tagger(tagger, "onnx_legacy")
    assert marks(checked, "onnx_legacy") == expected


@pytest.mark.slow
def test_the_new_exporter_is_run():
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")

    def masked(self, x, n):
        return x * (torch.arange(x.shape[1]) < n[:, None])

    assert check(masked, X, LENGTHS, backends="onnx").ok
    assert marks(check_tagger("packed, padded again", "onnx"), "onnx") == [REFUSED] * 3


def test_what_cannot_run_here_is_not_tried(monkeypatch):
    def forward(self, x, n):
        return x * n[:, None]

    monkeypatch.setattr(captures, "sys", types.SimpleNamespace(version_info=(3, 14, 0)))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    checked = check(forward, X, LENGTHS, backends=["trace", "onnx_legacy"])
    assert marks(checked) == marks(checked, "onnx_legacy") == [NOT_TRIED] * 3
    assert checked.verdict == "undecided"
    assert "does not support Python 3.14" in checked.to_text()
    assert "run python -m pip install onnx onnxruntime" in checked.to_text()


def test_errors_are_first_lines_without_paths():
    path = "in /a/b/c-d/net.py: \x1b[96mno\nmore"
    assert captures.short_error_text(ValueError(path)) == "ValueError: in net.py: no"
    assert len(captures.short_error_text(ValueError("x" * 500))) == 150
    error = TorchExportError("step 1/3")
    error.__cause__ = TypeError("the cause")
    assert captures.short_error_text(error) == "TypeError: the cause"


RETURNED = {
    "None": lambda x, n: (x / n[:, None], None),
    "a number": lambda x, n: (x, int(n.max())),
    "a dict": lambda x, n: {"x": x / n[:, None], "kind": "mean"},
    "a named tuple": lambda x, n: Pair(x * n.max().item(), n),
}


@pytest.mark.parametrize("kind", RETURNED)
def test_every_kind_of_result_is_compared(kind):
    checked = check(lambda self, x, n: RETURNED[kind](x, n), X, LENGTHS)
    assert marks(checked)[0] == (WRONG if kind in ("a number", "a named tuple") else RIGHT)


# Sizes.


@pytest.mark.parametrize("model", [*models.GUIDE, models.MaxOfPadded, *models.TAGGERS.values()])
def test_a_size_that_depends_on_the_lengths_is_named(model):
    module = model()
    takes = 1 if isinstance(module, models.FixedLength) else 2
    checked = pv.check_static(module, models.example()[:takes])
    escapes = isinstance(
        module, (models.Returned, models.UsedByMax)
    ) or "_return_packed_data" in str(getattr(module, "read_output", ""))
    assert bool(checked.size) == escapes
    assert ("A size depends on the lengths" in checked.to_text()) == escapes


# How it runs the model.


def test_it_leaves_everything_as_it_was(capfd):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.norm, self.drop = nn.GRU(3, 4), nn.BatchNorm1d(3), nn.Dropout()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x, lengths):
            print("printed once")
            assert not self.training
            assert not torch.is_grad_enabled()
            self.count += 1
            x *= 2
            x = self.drop(self.norm(x.transpose(1, 2))).transpose(1, 2) + torch.rand(1)
            return self.rnn(pack_padded_sequence(x, lengths, enforce_sorted=False))[1]

    module = Counting().train()
    module.norm.eval()
    modes = [part.training for part in module.modules()]
    values = {name: value.clone() for name, value in module.state_dict().items()}
    x, lengths = models.example(5, [5, 3])
    before = x.clone(), torch.random.get_rng_state()
    assert pv.check_static(module, (x, lengths)).ok
    assert capfd.readouterr().out == "printed once\n"
    assert [part.training for part in module.modules()] == modes
    assert all(torch.equal(value, values[name]) for name, value in module.state_dict().items())
    assert torch.equal(x, before[0])
    assert torch.equal(torch.random.get_rng_state(), before[1])


@pytest.mark.parametrize(
    ("module", "inputs", "error", "message"),
    [
        (
            models.Sorted,
            (LENGTHS,),
            TypeError,
            "model is the class Sorted; give an instance of nn.Module",
        ),
        (models.Sorted(), LENGTHS, TypeError, "inputs is a Tensor; give a tuple"),
        (models.Sorted(), (LENGTHS,), TypeError, "missing 1 required positional argument"),
        (
            nn.GRU(2, 2),
            (pack_padded_sequence(torch.ones(2, 1, 2), [2]),),
            TypeError,
            "PackedSequence",
        ),
    ],
)
def test_wrong_calls(module, inputs, error, message):
    with pytest.raises(error, match=message):
        pv.check_static(module, inputs)
    with pytest.raises(ValueError, match="backends is 'jit'; choose one of 'trace', 'export'"):
        pv.check_static(models.Sorted(), models.example(), "jit")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu():
    state, (x, lengths) = torch.cuda.get_rng_state(), models.example()
    checked = pv.check_static(models.Returned().cuda(), (x.cuda(), lengths))
    assert checked.ok
    assert checked.size
    assert torch.equal(torch.cuda.get_rng_state(), state)


def mean_length(self, x, n):
    return x * n.double().mean().item()


@pytest.mark.parametrize("value", [-1e4, -1e9, torch.finfo(torch.float32).min, -torch.inf])
def test_the_large_numbers_of_a_mask_hide_nothing(value):
    def forward(self, x, n):
        return torch.cat([mean_length(self, x, n), torch.full((len(x), 1), value)], 1)

    assert check(forward, X, LENGTHS).verdict == "wrong"


def test_each_input_that_may_be_lengths_gets_other_values():
    targets, of_targets = torch.randn(B, T + 3), torch.tensor([4, 9, 2, 7])
    speakers = torch.tensor([3, 1, 0, 6])

    def decode(self, x, n, targets, of_targets):
        return targets[:, : int(of_targets.max())] + (x.cumsum(1) * (n > 1)[:, None])[:, :1]

    def tag(self, x, n, speakers):
        assert n.max() == x.shape[1]
        return x * self.scale(speakers) * n.sum().item()

    assert marks(check(decode, X, LENGTHS, targets, of_targets))[0] == WRONG
    scale = nn.Embedding(9, 1)
    checked = check(tag, X, LENGTHS, speakers, scale=scale)
    assert marks(checked)[0] == WRONG


def test_labels_and_states_do_not_hide_the_lengths():
    x = torch.randn(B, 9, 3)

    def loss(self, x, labels, n):
        real = torch.arange(x.shape[1]) < n[:, None].clamp(max=int(x.shape[1]))
        return (x * real[..., None]).sum(1)[range(B), labels]

    def encode(self, x, n, h):
        packed = pack_padded_sequence(x, n, True, enforce_sorted=False)
        return pad_packed_sequence(self.rnn(packed, h)[0], True)[0].sum(1) / int(x.shape[1])

    labels, n = torch.tensor([[0, 2, 1, 2], [9, 5, 3, 2]])
    assert check(loss, x, labels, n).verdict == "wrong"
    gru = nn.GRU(3, 6, batch_first=True)
    assert check(encode, x, LENGTHS, torch.zeros(1, B, 6), rnn=gru).verdict == "wrong"


def test_the_example_itself_is_no_other_input():
    def one_at_a_time(self, x, n=None):
        assert len(x) == 1
        return x * (1 if n is None else n.sum().item() / T)

    assert marks(check(one_at_a_time, X[:1]))[2] == NOT_TRIED
    assert marks(check(one_at_a_time, X[:1], torch.tensor([T])))[2] == NOT_TRIED


def test_results_that_cannot_be_compared_are_refused():
    def policy(self, x, n):
        return torch.distributions.Normal(mean_length(self, x, n), 1.0)

    with pytest.raises(TypeError, match="the model's result is a Normal, which cannot"):
        check(policy, X, LENGTHS)
    is_ok = check(lambda self, x, n: (x.cumsum(1), "words", None, numpy.float32(1)), X, LENGTHS).ok
    assert is_ok
