"""Finds out which padded and packed results are right, by running each sequence alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product

import torch
from torch import nn

from packviz.check.compare import DIRECTIONS, Run, run
from packviz.core.layout import Layout
from packviz.core.spec import GATES
from packviz.core.validation import one_of
from packviz.draw.table import Table, Tabled
from packviz.draw.text import count


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
        return f"{directions}, {count(self.layers, 'layer')}"


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
class TruthTable(Tabled):
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
        folded = ["The meaning of each row:"]
        for question in self.questions:
            pairs = []
            for before, after in zip(padded, packed, strict=True):
                right = before.right[question]
                mark = _MARKS[after.right[question]]
                pair = f"padded\u00a0{_MARKS[right]} packed\u00a0{mark}"  # a mark stays at its word
                pairs.append("–" if right is None else pair)
            if {*pairs} == {"–"}:
                continue
            folded.append(f"{question}: {QUESTIONS[question]}")
            rows.append([question, *pairs])
        head = ["", *(answer.name for answer in padded)]
        title = f"{self.cell}: which results are right (✓), and which are wrong (✗)?"
        return Table(rows, head, title, folded=folded, form="<  ^")

    def to_html(self) -> str:
        """Returns the table, folded, so that a reader can guess first."""
        words = "Guess first. Then click to see all cases."
        summary = f'<summary style="cursor:pointer">{words}</summary>'
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
    one_of("cell", cell, GATES)
    for question in questions:
        one_of("questions", question, QUESTIONS)
    layout = Layout([5, 3, 2])
    answers = []
    for directions, layers in product((1, 2), (1, 2)):
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(0)
            options = {"bias": bias, "bidirectional": directions == 2, "batch_first": True}
            rnn = getattr(nn, cell)(3, 4, layers, **options)
            x = torch.randn(3, 5, 3) * torch.tensor(layout.mask)[..., None]
            alone = []
            for b, n in enumerate(layout.lengths):
                sequence = x[b : b + 1, :n]
                alone.append(run(rnn, sequence, Layout([n]), None, packed=False))
            for method in ("padded", "packed"):
                result = run(rnn, x, layout, None, packed=method == "packed")
                right = _right(result, alone, layout, directions)
                answers.append(Answer(layers, directions, method, right))
    return TruthTable(cell, tuple(answers), tuple(questions))


def _right(
    result: Run, alone: list[Run], layout: Layout, directions: int
) -> dict[str, bool | None]:
    """Returns which results of a batch-first run equal those of running each sequence alone."""
    equal = partial(torch.allclose, atol=1e-5)
    output = result.output
    real = output[torch.tensor(layout.mask)]
    outputs = torch.cat([part.output[0] for part in alone])
    h_n = torch.cat([part.h_n for part in alone], dim=1)
    ends = output[range(layout.batch_size), layout.lengths - 1]
    places = {
        "output at len-1": ends,
        "output[:, -1]": output[:, -1],
        "output[:, 0]": output[:, 0],
    }
    right: dict[str, bool | None] = dict.fromkeys(QUESTIONS)
    right["h_n"] = equal(result.h_n, h_n)
    if result.c_n is not None:
        c_n = torch.cat([part.c_n for part in alone if part.c_n is not None], dim=1)
        right["c_n"] = equal(result.c_n, c_n)
    for d, direction in enumerate(DIRECTIONS[:directions]):
        half = slice(4 * d, 4 * d + 4)
        is_right = equal(real[:, half], outputs[:, half])
        right[f"outputs, {direction}"] = is_right
        for place, states in places.items():
            question = f"{place}, {direction}"
            if question in QUESTIONS:
                right[question] = equal(states[:, half], h_n[d - directions])
    return right
