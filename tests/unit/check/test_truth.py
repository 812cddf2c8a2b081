"""Tests the truth table: torch computes each answer again, for each sequence alone."""

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from packviz.check.truth import RESULTS, truth_table

LENGTHS = [5, 3, 2]


def padded_input():
    x = torch.randn(len(LENGTHS), max(LENGTHS), 3)
    for row, length in enumerate(LENGTHS):
        x[row, length:] = 0
    return x


def final_states(state):
    """Returns h_n, and c_n if there is one."""
    return state if isinstance(state, tuple) else (state, None)


def same(pairs):
    return all(torch.allclose(left, right, atol=1e-5) for left, right in pairs)


def expected_answers(answer, cell, bias):
    two = answer.directions == 2
    torch.manual_seed(0)
    kind = getattr(torch.nn, cell)
    rnn = kind(3, 4, answer.layers, bias=bias, bidirectional=two, batch_first=True)
    x = padded_input()
    alone = [rnn(x[row, :length]) for row, length in enumerate(LENGTHS)]
    if answer.method == "packed":
        packed, state = rnn(pack_padded_sequence(x, LENGTHS, True))
        y, _ = pad_packed_sequence(packed, True)
    else:
        y, state = rnn(x)
    h_n, c_n = final_states(state)
    h_alone, c_alone = zip(*(final_states(state) for _, state in alone), strict=True)
    forward = [h[-2 if two else -1] for h in h_alone]
    reverse = [h[-1] for h in h_alone]
    rows = list(enumerate(LENGTHS))
    answers = {
        "outputs, forward": same((y[b, :n, :4], alone[b][0][:, :4]) for b, n in rows),
        "h_n": same((h_n[:, b], h_alone[b]) for b, _ in rows),
        "output at len-1, forward": same((y[b, n - 1, :4], forward[b]) for b, n in rows),
        "output[:, -1], forward": same((y[b, -1, :4], forward[b]) for b, _ in rows),
        "c_n": None,
        "outputs, reverse": None,
        "output at len-1, reverse": None,
        "output[:, 0], reverse": None,
    }
    if c_n is not None:
        answers["c_n"] = same((c_n[:, b], c_alone[b]) for b, _ in rows)
    if two:
        answers |= {
            "outputs, reverse": same((y[b, :n, 4:], alone[b][0][:, 4:]) for b, n in rows),
            "output at len-1, reverse": same((y[b, n - 1, 4:], reverse[b]) for b, n in rows),
            "output[:, 0], reverse": same((y[b, 0, 4:], reverse[b]) for b, _ in rows),
        }
    return answers


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("cell", ["RNN", "GRU", "LSTM"])
def test_every_answer_is_computed(cell, bias):
    table = truth_table(cell, bias=bias)
    assert len(table.answers) == 8
    for answer in table.answers:
        assert answer.right == expected_answers(answer, cell, bias)


@pytest.mark.parametrize("cell", ["RNN", "GRU", "LSTM"])
def test_every_row_about_outputs_names_its_half(cell):
    names = [name for name, *_ in truth_table(cell).table.rows]
    outputs = [name for name in names if name.startswith("output")]
    assert all(("forward" in name) != ("reverse" in name) for name in outputs)
    assert ("c_n" in names) == (cell == "LSTM")


def test_a_table_shows_only_the_questions_that_are_asked():
    labels = [label for label, *_ in truth_table("LSTM", RESULTS).table.rows]
    assert labels == [*RESULTS]
    with pytest.raises(ValueError, match="questions is 'h'; choose one of 'outputs, forward'"):
        truth_table("LSTM", ["h"])
