"""`compare`: packed is each sequence run alone, and every number and flag says what torch's own
runs say.
"""

import json
import math
import re

import numpy as np
import pytest
import torch
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st
from specs import modules
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz.check.compare import LOSSES, RESULTS
from packviz.check.trajectories import MAX_SEQUENCES, trajectory
from packviz.check.truth import truth_table
from packviz.ops.tolerance import TOLERANCE

CELLS = (nn.RNN, nn.GRU, nn.LSTM)


class Case:
    """An RNN in double precision, a batch for it, and what torch gives padded, packed and alone."""

    def __init__(self, rnn, lengths, extra, padding, hx, seed):
        self.rnn, self.lengths, self.hx = rnn, lengths, hx
        torch.manual_seed(seed)
        self.x = torch.randn(len(lengths), max(lengths) + extra, rnn.input_size).double()
        self.mask = torch.arange(self.x.shape[1]) < torch.tensor(lengths)[:, None]
        self.x[~self.mask] = padding
        self.given = self.turned(self.x)

    def turned(self, x):
        """Batch first of what the module takes or gives, and back."""
        return x if self.rnn.batch_first else x.transpose(0, 1)

    def compare(self, **options):
        return pv.compare(self.rnn, self.given, self.lengths, self.hx, **options)

    def run(self, packed, x=None):
        """Output batch first, h_n, c_n (or none)."""
        x = self.given if x is None else x
        if packed:
            x = pack_padded_sequence(x, self.lengths, self.rnn.batch_first, enforce_sorted=False)
        output, state = self.rnn(x, self.hx)
        if packed:
            output, _ = pad_packed_sequence(
                output, self.rnn.batch_first, total_length=self.x.shape[1]
            )
        return self.turned(output), *(state if isinstance(state, tuple) else (state, None))

    def alone(self, b):
        """The same of sequence b, run without company and without padding."""
        hx = self.hx
        if hx is not None:
            hx = tuple(h[:, b : b + 1] for h in hx) if isinstance(hx, tuple) else hx[:, b : b + 1]
        output, state = self.rnn(self.turned(self.x[b : b + 1, : self.lengths[b]]), hx)
        return self.turned(output), *(state if isinstance(state, tuple) else (state, None))


@st.composite
def cases(draw, paddings=(0.0, 3.0, float("nan")), shortest=1):
    rnn = draw(modules([torch.float64], plain=True))
    lengths = draw(st.lists(st.integers(shortest, 6), min_size=1, max_size=5))
    seed = draw(st.integers(0, 1000))
    torch.manual_seed(seed)
    hx = None
    if draw(st.booleans()):
        rows = rnn.num_layers * (1 + rnn.bidirectional), len(lengths)
        h = torch.randn(*rows, rnn.proj_size or rnn.hidden_size).double()
        hx = (h, torch.randn(*rows, rnn.hidden_size).double()) if rnn.mode == "LSTM" else h
    return Case(rnn, lengths, draw(st.integers(0, 3)), draw(st.sampled_from(paddings)), hx, seed)


def gap(one, other):
    """The largest absolute difference over the last dimension; NaN against NaN is none."""
    equal = (one == other) | (one.isnan() & other.isnan())
    return torch.where(equal, 0.0, (one - other).abs()).amax(-1).detach().numpy()


def same(ours, theirs):
    one, other = (
        part.detach() if isinstance(part, torch.Tensor) else part for part in (ours, theirs)
    )
    np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-12)


# Packed, and the numbers.


@given(cases())
def test_packed_is_each_sequence_run_alone(case):
    packed = case.compare(gradients=False).packed
    assert not case.turned(packed.output)[~case.mask].any()
    for b, n in enumerate(case.lengths):
        output, h_n, c_n = case.alone(b)
        same(case.turned(packed.output)[b, :n], output[0])
        same(packed.h_n[:, b], h_n[:, 0])
        if c_n is not None:
            same(packed.c_n[:, b], c_n[:, 0])


@given(cases())
@torch.no_grad()
def test_the_numbers_are_the_differences(case):
    result, runs = case.compare(gradients=False), [case.run(False), case.run(True)]
    directions, size = 1 + case.rnn.bidirectional, len(case.lengths)
    same(
        result.outputs.absolute,
        gap(*(run[0].reshape(*case.x.shape[:2], directions, -1) for run in runs)),
    )
    assert (result.c_n is None) == (runs[0][2] is None)
    for difference, i in ((result.h_n, 1), (result.c_n, 2))[: 1 + isinstance(case.rnn, nn.LSTM)]:
        one, other = (run[i].reshape(case.rnn.num_layers, directions, size, -1) for run in runs)
        same(difference.absolute, gap(one, other))
        scale = other.abs().amax(dim=(0, 1, 3)).numpy()  # of each sequence
        assert difference.scale == pytest.approx(scale)
        assert (difference.differs == ~(gap(one, other) <= 1e-10 * scale)).all()


def test_a_large_sequence_does_not_hide_what_is_wrong_in_the_others():
    torch.manual_seed(0)
    rnn = nn.RNN(3, 4, nonlinearity="relu", batch_first=True)
    x = torch.randn(3, 5, 3)
    x[0] *= 1e7
    result = pv.compare(rnn, x, [5, 3, 2], gradients=False)
    assert result.h_n.differs[0, 0].tolist() == [False, True, True]
    assert "wrong for h_n" in result.verdict


@given(cases())
def test_the_gradients_are_those_of_the_losses(case):
    names = ["x", *(name for name, _ in case.rnn.named_parameters())]
    for i, (loss, differences) in enumerate(case.compare().gradients.items()):
        found = []
        for packed in (False, True):
            leaf = case.given.clone().requires_grad_()
            output, h_n, _ = case.run(packed, leaf)
            looked_at = h_n
            if loss == "outputs":
                looked_at = case.turned(output)[case.turned(case.mask)]
            weights = torch.randn(
                looked_at.shape, generator=torch.Generator().manual_seed(i), dtype=torch.float64
            )
            grads = torch.autograd.grad(
                (looked_at * weights).sum(), [leaf, *case.rnn.parameters()], materialize_grads=True
            )
            found.append(dict(zip(names, grads, strict=True)))
        same(differences["x"].absolute, gap(*(case.turned(f["x"]) for f in found)))
        assert [*differences] == names
        for name in names[1:]:
            same(differences[name].absolute, gap(*(f[name].flatten() for f in found)))


# The flags and the verdict.


def compared(result):
    """Whether each result agrees that the comparison has."""
    return {name: getattr(result.agrees, name) for name in RESULTS if hasattr(result.agrees, name)}


@given(cases(paddings=(3.0, float("nan"))))
def test_the_flags_are_what_theory_says(case):
    result, mask = case.compare(), case.mask.numpy()
    if mask.all():
        assert all(compared(result).values())
        assert result.verdict.startswith("There is no padding")
        return
    two, nan = case.rnn.bidirectional, bool(case.x.isnan().any())
    expected = {"outputs": not two, "h_n": False, "gradients": False, "gradients_h_n": False}
    expected |= {
        "gradients_outputs": not (nan or two),
        "outputs_forward": not two or case.rnn.num_layers == 1,
    }
    expected |= {"c_n": False} if isinstance(case.rnn, nn.LSTM) else {}
    assert compared(result) == expected | ({"outputs_reverse": False} if two else {})
    weights = [
        [found[name] for name in found if name != "x"] for found in result.gradients.values()
    ]
    assert [any(weight.differs for weight in some) for some in weights] == [nan or two, True]
    assert result.verdict.count("The padded results are wrong for") == 1
    assert ("NaN reaches" in result.verdict) == nan
    assert result.outputs.differs[~mask].any()
    assert two or not result.outputs.differs[mask].any()
    whole = mask.all(axis=1)  # a row without padding is never touched
    assert not result.outputs.differs[whole].any()
    assert not result.h_n.differs[..., whole].any()


def test_nan_and_infinity_count_as_different():
    rnn = nn.RNN(1, 1, nonlinearity="relu", bias=False)
    for weight in rnn.parameters():
        weight.data.fill_(1)
    x = torch.ones(3, 2, 1)
    for value in (math.inf, math.nan):
        x[1, 1] = value
        result = pv.compare(rnn, x, [3, 1])
        assert result.h_n.absolute.ravel() == pytest.approx([0, value], nan_ok=True)
        assert result.h_n.differs.tolist() == [[[False, True]]]
    assert result.agrees.outputs
    assert not result.agrees.gradients_outputs
    assert "by up to NaN" in result.to_text()


@pytest.mark.parametrize("where", ["weight", "step"])
def test_nan_in_both_runs_is_said_and_shows_nothing(where):
    rnn, x = nn.GRU(2, 3), torch.randn(4, 2, 2)
    (rnn.weight_ih_l0.data if where == "weight" else x)[0, 0] = math.nan
    result = pv.compare(rnn, x, [4, 2])
    assert result.verdict.startswith("In outputs at real steps")
    assert "not needed for outputs" not in result.verdict
    assert re.search(r"outputs at real steps +agree \(NaN in both at \d of 6 cells\)", repr(result))
    full = pv.compare(rnn, x, [4, 4], gradients=False)
    assert all(compared(full).values())
    assert full.outputs.absolute.max() == 0
    assert "NaN in the same places" in full.verdict


def test_tolerance():
    torch.manual_seed(0)
    rnn, x = nn.LSTM(2, 3), torch.randn(6, 2, 2)
    assert pv.compare(rnn, x, [6, 1]).tolerance == TOLERANCE[torch.float32]
    far = pv.compare(rnn, x, [6, 1], tolerance=100.0)
    assert all(compared(far).values())
    assert far.h_n.absolute.max() > 0.01
    assert pv.compare(rnn, x, [6, 1], tolerance=np.float32(0)).tolerance == 0
    for wrong in (-1, "a", math.nan, True, [0.1], 1j):
        with pytest.raises(
            ValueError, match=f"^tolerance is {re.escape(repr(wrong))}; give a finite number"
        ):
            pv.compare(rnn, x, [6, 1], tolerance=wrong)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("cell", CELLS)
def test_rounding_is_within_the_tolerance_of_every_dtype(dtype, cell):
    torch.manual_seed(0)
    rnn = cell(8, 16, num_layers=2).to(dtype)
    x = torch.randn(40, 12, 8).to(dtype)
    result = pv.compare(rnn, x, list(range(29, 41)))
    assert result.dtype == str(dtype).removeprefix("torch.")
    assert result.agrees.outputs
    assert result.agrees.gradients_outputs
    assert not result.agrees.h_n


# What the caller keeps.


@pytest.mark.parametrize(("training", "gradients"), [(True, True), (True, False), (False, True)])
def test_nothing_of_the_callers_is_changed(training, gradients):
    rnn, x = nn.LSTM(3, 4, 2, dropout=0.5), torch.randn(5, 2, 3, requires_grad=True)
    rnn(x)[0].sum().backward()
    rnn.train(training)
    rnn.weight_hh_l0.requires_grad_(False)
    kept = [*rnn.parameters(), *(p.grad for p in rnn.parameters()), x.grad]
    before, state = [one.detach().clone() for one in kept], torch.random.get_rng_state()
    result = pv.compare(rnn, x, [5, 2], gradients=gradients)
    assert (rnn.training, rnn.dropout, rnn.weight_hh_l0.requires_grad) == (training, 0.5, False)
    assert all(map(torch.equal, [*kept, torch.random.get_rng_state()], [*before, state]))
    assert ("Dropout (0.5) was left out" in result.to_text()) == training
    assert ("Frozen parameters" in result.to_text()) == gradients
    assert result.agrees.outputs
    for found in result.gradients.values():
        assert set(found) == {"x", *(name for name, _ in rnn.named_parameters())} - {"weight_hh_l0"}
    assert not any(
        part is not None and part.requires_grad
        for run in (result.padded, result.packed)
        for part in run
    )


def test_nothing_is_changed_when_a_run_fails():
    def fail(*given):
        raise RuntimeError("a hook of the user's")

    rnn = nn.GRU(3, 4, 2, dropout=0.5)
    rnn.register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="a hook of the user's"):
        pv.compare(rnn, torch.randn(5, 2, 3), [5, 2])
    assert (rnn.training, rnn.dropout) == (True, 0.5)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_come_where_the_caller_has_them_off_and_where_all_weights_are_frozen(mode):
    rnn = nn.LSTM(3, 4)
    with mode():
        x, hx = torch.randn(5, 2, 3), (torch.zeros(1, 2, 4), torch.zeros(1, 2, 4))
        result = pv.compare(rnn, x, [5, 2], hx)
    assert [*result.gradients] == list(LOSSES)
    assert result.agrees.gradients_outputs
    frozen = pv.compare(nn.GRU(3, 4).requires_grad_(False), x.clone(), [5, 2])
    assert [[*found] for found in frozen.gradients.values()] == [["x"], ["x"]]
    assert frozen.agrees.gradients_outputs  # of x


# Errors.


GRU = nn.GRU(3, 4)
X = torch.zeros(5, 2, 3)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("lstm", X, [5, 2]), "rnn is a str: give an nn.RNN, nn.GRU or nn.LSTM"),
        ((GRU, pack_padded_sequence(X, [5, 5]), [5]), "pad it with pad_packed_sequence"),
        ((GRU, X[:, 0], [5]), "x must be (T, B, I), got shape (5, 3)"),
        ((GRU, X[:, :0], [5]), "x of shape (5, 0, 3) is empty"),
        ((GRU, torch.zeros(5, 2, 4), [5, 2]), "has I = 4, but rnn.input_size is 3"),
        ((nn.GRU(3, 4, batch_first=True), X, [5, 2]), "did you mean batch_first=False?"),
        ((GRU, X, [6, 2]), "lengths[0] is 6: x of shape (5, 2, 3)"),
        ((GRU, X.double(), [5, 2]), "torch.float64"),
        ((GRU, X.to("meta"), [5, 2]), "x is on the meta device, which stores no"),
        (
            (nn.LSTM(3, 4), X, [5, 2], torch.zeros(1, 2, 4)),
            "h_0 of shape (1, 2, 4) and c_0 of shape (1, 2, 4); got (1,",
        ),
    ],
)
def test_what_does_not_fit_is_refused(given, said):
    with pytest.raises((TypeError, ValueError), match=re.escape(said)):
        pv.compare(*given)


# The worked example, the text and the picture.


@pytest.fixture
def worked_example():
    torch.manual_seed(0)
    x = torch.zeros(5, 2, 2)
    x[:, 0] = torch.arange(1.0, 6)[:, None]
    x[:2, 1] = torch.tensor([10.0, 20])[:, None]
    return pv.compare(nn.LSTM(2, 3), x, [5, 2])


# Through time.


@given(cases(paddings=(3.0,)))
@torch.no_grad()
def test_a_trajectory_shows_both_states_at_every_step(case):
    result, halves = case.compare(gradients=False), 1 + case.rnn.bidirectional
    padded, packed = (
        case.run(way)[0].reshape(*case.x.shape[:2], halves, -1) for way in (False, True)
    )
    path = trajectory(result)
    differs = result.h_n.differs[-1, 0].tolist()
    assert ["h_n differs" in plot.title for plot in path.plots] == differs[:MAX_SEQUENCES]
    assert any("sequences are drawn" in note for note in path.notes) == (
        len(differs) > MAX_SEQUENCES
    )
    for b, plot in enumerate(path.plots):
        n = case.lengths[b]
        both = [curve.y for curve in plot.curves]
        assert np.allclose(both[0], padded[b, :, 0, 0], atol=6e-4)
        assert np.allclose(both[1][:n], packed[b, :n, 0, 0], atol=6e-4)
        assert {*both[1][n:]} <= {both[1][n - 1]}
        assert plot.padding == (n - 1 if n < padded.shape[1] else math.inf)


def test_a_trajectory_in_words(worked_example):
    path = trajectory(worked_example)
    title, what, *lines = path.to_text().splitlines()
    assert title == "The padded run reads on into the padding, so h_n is wrong for b"
    assert what.startswith("unit 0")
    assert lines[0] == "a: the same h_n"
    assert lines[3] == "b: h_n differs"
    for line, run in zip(lines[4:], ("padded", "packed"), strict=True):
        first, *cells = line.split()
        assert first == run
        assert [cell[0] == "[" for cell in cells] == [False, False, True, True, True]
    drawn = ParsedSvg(path.to_svg("dark"))
    assert not drawn.outside()
    assert drawn.said().count("packed") == drawn.said().count("padded") == 2


def test_a_curve_ends_before_nan():
    x = torch.zeros(4, 2, 1)
    x[2:, 1] = math.nan
    path = trajectory(pv.compare(nn.GRU(1, 2), x, [4, 2]))
    assert [len(curve.y) for plot in path.plots for curve in plot.curves] == [4, 4, 2, 4]
    assert "b: h_n differs" in path.to_text()
    x[:] = math.nan
    assert trajectory(pv.compare(nn.GRU(1, 2), x, [4, 2])).to_svg()


def test_a_trajectory_that_is_not_there(worked_example):
    with pytest.raises(ValueError, match="unit is 3; give a unit of the hidden state, from 0 to 2"):
        trajectory(worked_example, unit=3)


# The truth table.


def test_the_truth_table_says_and_draws_itself():
    state = torch.random.get_rng_state()
    table = truth_table("GRU")
    assert torch.equal(torch.random.get_rng_state(), state)
    said = table.to_text()
    wrong = sum(right is False for answer in table.answers for right in answer.right.values())
    cells = "".join("".join(row) for row in table.table.rows)
    assert cells.count("✗") == wrong
    line = next(line for line in said.splitlines() if line.startswith("outputs, reverse"))
    assert line.split("reverse")[1].split() == ["–", "–", *["padded", "✗", "packed", "✓"] * 2]
    assert "c_n" not in said  # a GRU has none
    with pytest.raises(ValueError, match="cell is 'lstm'; choose one of 'LSTM', 'GRU', 'RNN'"):
        truth_table("lstm")


def test_numbers_can_be_passed_on():
    comparison = pv.compare(nn.LSTM(3, 4), torch.randn(5, 3, 3), [5, 3, 2])
    rows = {row["result"]: row for row in comparison.to_dict()["rows"]}
    assert rows["outputs at real steps"]["agrees"] is True
    assert rows["outputs at padding"]["agrees"] is None
    assert rows["h_n"]["differing"] == 2
    json.dumps(comparison.to_dict())
    assert "| h_n | no | 3 | 2 |" in comparison.to_markdown()


class Dropping(nn.LSTM):
    """Drops recurrent weights in training, and keeps what is left."""

    def forward(self, x, hx=None):
        weights = self.weight_hh_l0.data
        weights.copy_(nn.functional.dropout(weights, 0.3, self.training))
        return super().forward(x, hx)


@pytest.mark.parametrize("gradients", [True, False])
def test_a_model_of_ones_own_is_compared_in_eval_mode(gradients):
    """`spectral_norm` changes a buffer in training, and `Dropping` its weights."""
    torch.manual_seed(0)
    norm = nn.utils.spectral_norm(nn.LSTM(3, 4), "weight_hh_l0")
    for rnn in (Dropping(3, 4), norm):
        before = {name: value.clone() for name, value in rnn.state_dict().items()}
        comparison = pv.compare(rnn, torch.randn(5, 2, 3), [5, 2], gradients=gradients)
        assert comparison.agrees.outputs
        assert not comparison.agrees.h_n
        assert all(torch.equal(value, before[name]) for name, value in rnn.state_dict().items())


class OnlyOutput(nn.LSTM):
    def forward(self, x, hx=None):
        return super().forward(x, hx)[0]


def test_what_is_not_an_rnns_call_gets_a_clear_error():
    x = torch.randn(3, 5, 4)
    with pytest.raises(ValueError, match=r"type \(?torch"):
        pv.compare(nn.LSTM(4, 6, batch_first=True), x.long(), [5, 3, 2])
    rnn = OnlyOutput(4, 6, batch_first=True)
    with pytest.raises(TypeError, match=r"returns a \w+ instead of \(output, state\)"):
        pv.compare(rnn, x, [5, 3, 2])
    assert pv.compare(lambda x: rnn(x), x, [5, 3, 2], batch_first=True).agrees
