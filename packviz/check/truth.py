"""Finds out which padded and which packed results of an RNN are right, by running each sequence alone."""

from __future__ import annotations

from collections.abc import Mapping
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
    """A record of which results of an RNN are right when the RNN runs on padded data, or on packed
    data.

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
        return f"{'bidirectional' if self.directions == 2 else 'one direction'}, {count(self.layers, 'layer')}"


QUESTIONS = {
    "outputs, forward": "the forward half of the outputs at real steps; with one direction, all of them",
    "outputs, reverse": "the reverse half of the outputs at real steps",
    "h_n": "the final hidden states of every layer and direction",
    "c_n": "the final cell states of every layer and direction",
    "output at len-1, forward": "the forward half of output at each last real step, as the last layer's forward h_n",
    "output at len-1, reverse": "the reverse half of output at these steps, as the last layer's reverse h_n",
    "output[:, -1], forward": "the forward half of output at the batch's last step, as the last layer's forward h_n",
    "output[:, 0], reverse": "the reverse half of output at step 0, as the last layer's reverse h_n",
}
"""The questions that a truth table answers for padded and for packed data, each with its meaning.
An RNN without a cell state has no `c_n`."""


@dataclass(frozen=True, repr=False)
class TruthTable(Tabled):
    """A table that shows which results of an RNN are right on padded and on packed data.

    A result is right if it equals the result of running each sequence alone.

    Attributes:
        cell: `"RNN"`, `"GRU"` or `"LSTM"`.
        answers: one `Answer` for each of {one direction, bidirectional} × {1, 2 layers} × {padded,
            packed}.
    """

    cell: str
    answers: tuple[Answer, ...]

    @property
    def table(self) -> Table:
        """The table, with a mark and a word for each question, method and RNN, followed by the conclusions."""
        padded, _ = both = [
            [a for a in self.answers if a.method == method] for method in ("padded", "packed")
        ]
        asked = [q for q in QUESTIONS if any(a.right[q] is not None for a in self.answers)]
        label = {
            q: f"{q}, as final state" if q.startswith(("output ", "output[")) else q for q in asked
        }
        rows = [
            [f"{label[q]}, {some[0].method}", *(_MARKS[a.right[q]] for a in some)]
            for q in asked
            for some in both
        ]
        of = {"Packing is not needed for the outputs at real steps of these": ("outputs, forward", "outputs, reverse"),
              "Nor is it needed to gather the forward final state of these": ("output at len-1, forward",)}  # fmt: skip
        right = [
            [a.name for a in padded if all(a.right[q] is not False for q in some)]
            for some in of.values()
        ]
        notes = [
            f"{start}: {'; '.join(names)}." for start, names in zip(of, right, strict=True) if names
        ]
        last = "A gather takes output at each len-1. That gives the last layer's hidden state, but no c or lower layer."
        folded = ["The meaning of each row:", *(f"{label[q]}: {QUESTIONS[q]}" for q in asked)]
        head, title = ["", *(a.name for a in padded)], f"{self.cell}: which results are right?"
        return Table(rows, head, title, [*notes, last], folded=folded, form="<  ^")


def truth_table(cell: str = "LSTM", *, bias: bool = True) -> TruthTable:
    """Runs small RNNs on a padded and a packed batch of 5, 3 and 2 steps, and reports which results
    are right.

    Args:
        cell: `"RNN"`, `"GRU"` or `"LSTM"`.
        bias: whether the RNNs have biases. Without biases, an RNN whose state is zero stays in this
            state as long as it reads zeros.

    Raises:
        ValueError: `cell` is not one of these names.
    """
    one_of("cell", cell, GATES)
    layout = Layout([5, 3, 2])
    answers = []
    for directions, layers in product((1, 2), (1, 2)):
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(0)
            rnn = getattr(nn, cell)(
                3, 4, layers, bias=bias, bidirectional=directions == 2, batch_first=True
            )
            x = (
                torch.randn(layout.batch_size, layout.max_len, 3)
                * torch.tensor(layout.mask)[..., None]
            )
            alone = [
                run(rnn, x[b : b + 1, :n], Layout([n]), None, False)
                for b, n in enumerate(layout.lengths)
            ]
            for method in ("padded", "packed"):
                right = _right(
                    run(rnn, x, layout, None, method == "packed"), alone, layout, directions
                )
                answers.append(Answer(layers, directions, method, right))
    return TruthTable(cell, tuple(answers))


def _right(
    result: Run, alone: list[Run], layout: Layout, directions: int
) -> dict[str, bool | None]:
    """Returns which results of a batch-first run equal the results of running each sequence alone."""
    equal = partial(torch.allclose, atol=1e-5)
    h_n = torch.cat([one.h_n for one in alone], dim=1)
    real, outputs = (
        result.output[torch.tensor(layout.mask)],
        torch.cat([one.output[0] for one in alone]),
    )
    places = {
        "output at len-1": result.output[
            torch.arange(layout.batch_size), torch.tensor(layout.lengths) - 1
        ],
        "output[:, -1]": result.output[:, -1],
        "output[:, 0]": result.output[:, 0],
    }
    right: dict[str, bool | None] = {"h_n": equal(result.h_n, h_n)}
    for d, direction in enumerate(DIRECTIONS[:directions]):
        half = slice(d * h_n.shape[-1], (d + 1) * h_n.shape[-1])
        right[f"outputs, {direction}"] = equal(real[:, half], outputs[:, half])
        right |= {
            f"{place}, {direction}": equal(at[:, half], h_n[d - directions])
            for place, at in places.items()
        }
    if result.c_n is not None:
        right["c_n"] = equal(
            result.c_n, torch.cat([one.c_n for one in alone if one.c_n is not None], dim=1)
        )
    return {question: right.get(question) for question in QUESTIONS}


_MARKS = {True: "✓ right", False: "✗ WRONG", None: "–"}
