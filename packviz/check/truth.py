"""Which results of an RNN are right, padded and packed: a table, computed by running each sequence alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product

import torch
from torch import nn

from packviz.check.states import DIRECTIONS, Run, run
from packviz.core.layout import Layout
from packviz.core.spec import GATES
from packviz.core.validation import one_of
from packviz.draw import text
from packviz.draw.table import Table, Tabled


@dataclass(frozen=True)
class Answer:
    """What is right of an RNN that is run padded or packed.

    Attributes:
        layers: 1 or 2.
        directions: 1 or 2.
        method: `"padded"` or `"packed"`.
        right: for each of `QUESTIONS`, whether it is what each sequence gives when it is run alone; `None` if this RNN
            has no such result.
    """

    layers: int
    directions: int
    method: str
    right: Mapping[str, bool | None]

    @property
    def name(self) -> str:
        """The RNN in words."""
        return f"{'bidirectional' if self.directions == 2 else 'one direction'}, {text.count(self.layers, 'layer')}"


QUESTIONS = {
    "outputs, forward": "the forward half of the outputs at real steps; with one direction, all of them",
    "outputs, reverse": "the reverse half of the outputs at real steps",
    "h_n": "the final hidden states of every layer and direction",
    "c_n": "the final cell states of every layer and direction",
    "output at len-1, forward": "the forward half of output at each last real step, as the last layer's forward h_n",
    "output at len-1, reverse": "its reverse half, as the last layer's reverse h_n",
    "output[:, -1], forward": "the forward half of output at the batch's last step, as the last layer's forward h_n",
    "output[:, 0], reverse": "the reverse half of output at step 0, as the last layer's reverse h_n",
}
"""What a truth table answers, padded and packed. Without a cell state there is no `c_n`."""


@dataclass(frozen=True, repr=False)
class TruthTable(Tabled):
    """What of an RNN's results is right, padded and packed. The oracle is each sequence run alone.

    Attributes:
        cell: `"RNN"`, `"GRU"` or `"LSTM"`.
        answers: one for each of {one direction, bidirectional} × {1, 2 layers} × {padded, packed}.
    """

    cell: str
    answers: tuple[Answer, ...]

    @property
    def questions(self) -> tuple[str, ...]:
        """The `QUESTIONS` that this table answers for any of its RNNs."""
        return tuple(q for q in QUESTIONS if any(answer.right[q] is not None for answer in self.answers))

    @property
    def notes(self) -> list[str]:
        """What follows from the table, and what it cannot show."""
        padded = [a for a in self.answers if a.method == "padded"]
        spared = [
            [a.name for a in padded if all(a.right[q] is not False for q in questions)]
            for questions in (("outputs, forward", "outputs, reverse"), ("output at len-1, forward",))
        ]
        notes = []
        if spared[0]:
            notes.append(f"Packing is not needed for the outputs at real steps of: {'; '.join(spared[0])}.")
        if spared[1]:
            notes.append(f"Nor for the forward half of a gather at len-1 of: {'; '.join(spared[1])}.")
        notes.append(
            "The gather gives the last layer's hidden state only: output holds no c, and no layer below the last."
        )
        return notes

    @property
    def table(self) -> Table:
        """The table with a sign and a word in each cell: a row for each question and method, a column for each RNN."""
        methods = {method: [a for a in self.answers if a.method == method] for method in ("padded", "packed")}
        rows = [
            [f"{q}, {method}", *(_SAID[answer.right[q]] for answer in answers)]
            for q in self.questions
            for method, answers in methods.items()
        ]
        head = ["", *(answer.name for answer in methods["padded"])]
        return Table(rows, head, f"{self.cell}: equal to each sequence run alone?", self.notes, form="<  ^")

    def to_text(self) -> str:
        """The table with a word in each cell, and what is asked."""
        table = self.table
        rows = [[name, *(cell.split()[-1] for cell in cells)] for name, *cells in table.rows]
        asked = [f"{q}: {QUESTIONS[q]}" for q in self.questions]
        return "\n".join([table.title, *text.table([table.head, *rows], "<  ^"), "", *asked, "", *table.notes])


def truth_table(cell: str = "LSTM", *, bias: bool = True) -> TruthTable:
    """Runs small RNNs on sequences of 5, 3 and 2 steps, padded, packed and alone, and says which results are right.

    Args:
        cell: `"RNN"`, `"GRU"` or `"LSTM"`.
        bias: whether the RNNs have biases. Without, an RNN in its initial state that reads zeros stays there.

    Raises:
        ValueError: there is no such cell.
    """
    one_of("cell", cell, GATES)
    layout = Layout([5, 3, 2])
    answers = []
    for directions, layers in product((1, 2), (1, 2)):
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(0)
            rnn = getattr(nn, cell)(3, 4, layers, bias=bias, bidirectional=directions == 2, batch_first=True)
            x = torch.randn(layout.batch_size, layout.max_len, 3) * torch.tensor(layout.mask)[..., None]
            alone = [run(rnn, x[b : b + 1, :n], Layout([n]), None, False) for b, n in enumerate(layout.lengths)]
            for method in ("padded", "packed"):
                result = run(rnn, x, layout, None, method == "packed")
                answers.append(Answer(layers, directions, method, _right(result, alone, layout, directions)))
    return TruthTable(cell, tuple(answers))


def _right(result: Run, alone: list[Run], layout: Layout, directions: int) -> dict[str, bool | None]:
    """Which results of a batch-first run are those of each sequence alone."""
    right: dict[str, bool | None] = dict.fromkeys(QUESTIONS)
    equal = partial(torch.allclose, atol=1e-5)
    h_n = torch.cat([one.h_n for one in alone], dim=1)
    real, outputs = result.output[torch.tensor(layout.mask)], torch.cat([one.output[0] for one in alone])
    places = {
        "output at len-1": result.output[torch.arange(layout.batch_size), torch.tensor(layout.lengths) - 1],
        "output[:, -1]": result.output[:, -1],
        "output[:, 0]": result.output[:, 0],
    }
    for d, direction in enumerate(DIRECTIONS[:directions]):
        half = slice(d * h_n.shape[-1], (d + 1) * h_n.shape[-1])
        right[f"outputs, {direction}"] = equal(real[:, half], outputs[:, half])
        for place, found in places.items():
            if (name := f"{place}, {direction}") in QUESTIONS:
                right[name] = equal(found[:, half], h_n[d - directions])
    right["h_n"] = equal(result.h_n, h_n)
    if result.c_n is not None:
        right["c_n"] = equal(result.c_n, torch.cat([one.c_n for one in alone if one.c_n is not None], dim=1))
    return right


_SAID = {True: "✓ right", False: "✗ WRONG", None: "–"}
