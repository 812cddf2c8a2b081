"""Finds out which padded and packed results are right, by running each sequence alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product

import torch
from torch import nn

from packviz.check.compare import DIRECTIONS, RunResult, run_rnn
from packviz.core.layout import Layout
from packviz.core.spec import GATES
from packviz.core.validation import require_one_of
from packviz.draw.table import HasTable, Table
from packviz.draw.text import with_noun


@dataclass(frozen=True)
class Answer:
    """A record of which results of an RNN are right on padded data, or on packed data.

    Attributes:
        layers: number of layers, 1 or 2.
        directions: number of directions, 1 or 2.
        method: `"padded"` or `"packed"`.
        right: for each of `QUESTIONS`, whether the result equals the result of running each
            sequence alone; `None` if this RNN has no such result.
    """

    layers: int
    directions: int
    method: str
    right: Mapping[str, bool | None]

    @property
    def name(self) -> str:
        """A description of the RNN, such as `bidirectional, 2 layers`."""
        directions = "bidirectional" if self.directions == 2 else "one direction"
        return f"{directions}, {with_noun(self.layers, 'layer')}"


QUESTIONS = {
    "outputs, forward": "the outputs at real steps; of two directions, the forward half",
    "outputs, reverse": "the reverse half of the outputs at real steps",
    "h_n": "the final hidden states of every layer and direction",
    "c_n": "the final cell states of every layer and direction",
    "output at len-1, forward": "its forward half at each last real step, used as h_n",
    "output at len-1, reverse": "its reverse half at these steps, used as the reverse h_n",
    "output[:, -1], forward": "its forward half at the batch's last step, used as h_n",
    "output[:, 0], reverse": "its reverse half at step 0, used as the reverse h_n",
}
"""The questions that a truth table answers for padded and for packed data, each with its meaning.
An RNN without a cell state has no `c_n`."""
RESULTS = ("outputs, forward", "outputs, reverse", "h_n", "c_n")
"""The questions about what an RNN returns."""


@dataclass(frozen=True)
class TruthTable(HasTable):
    """A table that shows which results of an RNN are right on padded and on packed data.

    A result is right if it equals the result of running each sequence alone.

    Attributes:
        cell: `"RNN"`, `"GRU"` or `"LSTM"`.
        answers: one `Answer` for each of {one direction, bidirectional} × {1, 2 layers} × {padded,
            packed}.
        questions: the questions that the table shows.
    """

    cell: str
    answers: tuple[Answer, ...]
    questions: tuple[str, ...]

    @property
    def table(self) -> Table:
        """The table: a pair of marks for each question and RNN."""
        padded = [answer for answer in self.answers if answer.method == "padded"]
        packed = [answer for answer in self.answers if answer.method == "packed"]
        rows = []
        folded_lines = ["The meaning of each row:"]
        for question in self.questions:
            row_cells = []
            for padded_answer, packed_answer in zip(padded, packed, strict=True):
                is_padded_right = padded_answer.right[question]
                packed_mark = _MARKS[packed_answer.right[question]]
                # A mark stays at its word.
                marks_text = f"padded\u00a0{_MARKS[is_padded_right]} packed\u00a0{packed_mark}"
                row_cells.append("–" if is_padded_right is None else marks_text)
            if {*row_cells} == {"–"}:
                continue
            folded_lines.append(f"{question}: {QUESTIONS[question]}")
            rows.append([question, *row_cells])
        head = ["", *(answer.name for answer in padded)]
        title = f"{self.cell}: which results are right (✓), and which are wrong (✗)?"
        return Table(rows, head, title, collapsed_lines=folded_lines, column_format="<  ^")

    def to_html(self) -> str:
        """Returns the table, folded, so that a reader can guess first."""
        summary = (
            '<summary style="cursor:pointer">Guess first. Then click to see all cases.</summary>'
        )
        return f"<details>{summary}{super().to_html()}</details>"


_MARKS = {True: "✓", False: "✗", None: "–"}


def truth_table(
    cell: str = "LSTM", questions: Collection[str] = QUESTIONS, *, bias: bool = True
) -> TruthTable:
    """Reports which results of small RNNs are right on a batch of 5, 3 and 2 steps.

    Args:
        cell: `"RNN"`, `"GRU"` or `"LSTM"`.
        questions: those of `QUESTIONS` that the table shows, such as `RESULTS`.
        bias: whether the RNNs have biases. Without biases, an RNN whose state is zero stays in this
            state as long as it reads zeros.

    Raises:
        ValueError: `cell` or a question is not one of these names.
    """
    require_one_of("cell", cell, GATES)
    for question in questions:
        require_one_of("questions", question, QUESTIONS)
    layout = Layout([5, 3, 2])
    answers = []
    for n_directions, n_layers in product((1, 2), repeat=2):
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(0)
            options = {"bias": bias, "bidirectional": n_directions == 2, "batch_first": True}
            rnn = getattr(nn, cell)(3, 4, n_layers, **options)
            x = torch.randn(3, 5, 3) * torch.tensor(layout.mask)[..., None]
            separate_runs = []
            for b, n in enumerate(layout.lengths):
                sequence = x[b : b + 1, :n]
                separate_runs.append(run_rnn(rnn, sequence, Layout([n]), None, packed=False))
            for method in ("padded", "packed"):
                result = run_rnn(rnn, x, layout, None, packed=method == "packed")
                is_right_by_question = _judge_results(result, separate_runs, layout, n_directions)
                answers.append(Answer(n_layers, n_directions, method, is_right_by_question))
    return TruthTable(cell, tuple(answers), tuple(questions))


def _judge_results(
    result: RunResult, separate_runs: list[RunResult], layout: Layout, n_directions: int
) -> dict[str, bool | None]:
    """Returns which results of a batch-first run equal those of running each sequence alone."""
    are_equal = partial(torch.allclose, atol=1e-5)
    output = result.output
    real = output[torch.tensor(layout.mask)]
    outputs = torch.cat([part.output[0] for part in separate_runs])
    h_n = torch.cat([part.h_n for part in separate_runs], dim=1)
    ends = output[range(layout.batch_size), layout.lengths - 1]
    states_by_place = {
        "output at len-1": ends,
        "output[:, -1]": output[:, -1],
        "output[:, 0]": output[:, 0],
    }
    is_right_by_question: dict[str, bool | None] = dict.fromkeys(QUESTIONS)
    is_right_by_question["h_n"] = are_equal(result.h_n, h_n)
    if result.c_n is not None:
        c_n = torch.cat([part.c_n for part in separate_runs if part.c_n is not None], dim=1)
        is_right_by_question["c_n"] = are_equal(result.c_n, c_n)
    for d, direction in enumerate(DIRECTIONS[:n_directions]):
        feature_slice = slice(4 * d, 4 * d + 4)
        is_right_by_question[f"outputs, {direction}"] = are_equal(
            real[:, feature_slice], outputs[:, feature_slice]
        )
        for place, states in states_by_place.items():
            question = f"{place}, {direction}"
            if question in QUESTIONS:
                is_right_by_question[question] = are_equal(
                    states[:, feature_slice], h_n[d - n_directions]
                )
    return is_right_by_question
