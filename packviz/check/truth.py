"""Which results of an RNN are right, padded and packed: a table, computed by running each sequence alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from packviz.check.states import Run, run
from packviz.core.given import one_of
from packviz.core.layout import Layout
from packviz.core.spec import GATES
from packviz.draw import text
from packviz.draw.table import Table, Tabled


@dataclass(frozen=True)
class Answer:
    """One line of a truth table: an RNN, run one way, and what of it is right.

    Attributes:
        layers: 1 or 2.
        directions: 1 or 2.
        method: `"padded"` or `"packed"`.
        right: for each of `QUESTIONS`, whether it is what each sequence gives when it is run alone; none where there
            is no such thing.
    """

    layers: int
    directions: int
    method: str
    right: Mapping[str, bool | None]

    @property
    def name(self) -> str:
        """The RNN and the method in words."""
        way = "bidirectional" if self.directions == 2 else "one direction"
        return f"{way}, {text.count(self.layers, 'layer')}, {self.method}"


QUESTIONS = {
    "outputs, forward": "the forward half of the outputs at real steps (all there is, with one direction)",
    "outputs, reverse": "the reverse half of the outputs at real steps",
    "h_n": "the final hidden states of every layer and direction",
    "gather len-1": "the output at step len-1, forward half, as the last layer's final forward state",
    "output[:, 0]": "the output at step 0, reverse half, as the last layer's final reverse state",
}
"""The columns of a truth table."""


@dataclass(frozen=True, repr=False)
class TruthTable(Tabled):
    """What of an RNN's results is right, padded and packed. The oracle is each sequence run alone.

    Attributes:
        cell: `"RNN"`, `"GRU"` or `"LSTM"`.
        answers: a line each for {one direction, bidirectional} × {1, 2 layers} × {padded, packed}.
    """

    cell: str
    answers: tuple[Answer, ...]

    def right(self, question: str, method: str, *, layers: int = 1, directions: int = 1) -> bool | None:
        """Whether the results asked for in `QUESTIONS` are right; none where there is no such thing.

        Raises:
            ValueError: there is no such question, or no such line in the table.
        """
        one_of("question", question, QUESTIONS)
        for answer in self.answers:
            if (answer.layers, answer.directions, answer.method) == (layers, directions, method):
                return answer.right[question]
        raise ValueError(f"the table has no line of layers={layers}, directions={directions}, method={method!r}")

    @property
    def notes(self) -> list[str]:
        """What follows from the table, and what it cannot show."""
        padded = [a for a in self.answers if a.method == "padded"]
        spared = [
            [a.name.removesuffix(", padded") for a in padded if all(a.right[q] is not False for q in questions)]
            for questions in (("outputs, forward", "outputs, reverse"), ("gather len-1",))
        ]
        notes = []
        if spared[0]:
            notes.append(f"Packing is not needed for the outputs at real steps of: {'; '.join(spared[0])}.")
        if spared[1]:
            notes.append(f"Nor for the gather at len-1 of: {'; '.join(spared[1])}.")
        notes.append(
            "The gather gives the last layer's hidden state only: output holds no c, and no layer below the last."
        )
        return notes

    @property
    def table(self) -> Table:
        """The table with a sign and a word in each cell."""
        rows = [[answer.name, *(_SAID[answer.right[q]] for q in QUESTIONS)] for answer in self.answers]
        return Table(rows, ["", *QUESTIONS], self._title, self.notes, form="<  ^")

    def to_text(self) -> str:
        """The table with a word in each cell, and what is asked."""
        rows = [[answer.name, *(_SAID[answer.right[q]].split()[-1] for q in QUESTIONS)] for answer in self.answers]
        asked = [f"{q}: {why}" for q, why in QUESTIONS.items()]
        return "\n".join([self._title, *text.table([["", *QUESTIONS], *rows], "<  ^"), "", *asked, "", *self.notes])

    @property
    def _title(self) -> str:
        return f"{self.cell}: equal to each sequence run alone?"


def truth_table(
    cell: str = "LSTM", *, lengths: Any = (5, 3, 2), padding: float = 0.0, bias: bool = True, seed: int = 0
) -> TruthTable:
    """Runs small RNNs padded, packed and sequence by sequence, and says which results are right.

    Args:
        cell: `"RNN"`, `"GRU"` or `"LSTM"`.
        lengths: `(B,)` of the batch; its data are drawn from `seed`.
        padding: what the padding holds.
        bias: whether the RNNs have biases. Without, and with zeros as padding, an RNN in its initial state stays there.
        seed: of the data and the weights. torch's random state stays as it is.

    Raises:
        ValueError: there is no such cell, or a length is not valid.
    """
    one_of("cell", cell, GATES)
    layout = Layout(lengths)
    answers = []
    for directions in (1, 2):
        for layers in (1, 2):
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                torch.manual_seed(seed)
                rnn = getattr(nn, cell)(3, 4, layers, bias=bias, bidirectional=directions == 2, batch_first=True)
                x = torch.randn(layout.batch_size, layout.max_len, 3)
                x[~torch.tensor(layout.mask)] = padding
                alone = [run(rnn, x[b : b + 1, :n], Layout([n]), None, False) for b, n in enumerate(layout.lengths)]
                for method in ("padded", "packed"):
                    result = run(rnn, x, layout, None, method == "packed")
                    answers.append(Answer(layers, directions, method, _right(result, alone, layout, directions)))
    return TruthTable(cell, tuple(answers))


def _right(result: Run, alone: list[Run], layout: Layout, directions: int) -> dict[str, bool | None]:
    """Which results of a batch-first run are those of each sequence alone."""
    size = result.h_n.shape[-1]

    def equal(ours: Iterable[Tensor], theirs: Iterable[Tensor]) -> bool:
        return all(torch.allclose(one, other, atol=1e-5) for one, other in zip(ours, theirs, strict=True))

    def outputs(half: slice) -> bool:
        ours = (result.output[b, :n, half] for b, n in enumerate(layout.lengths))
        return equal(ours, (one.output[0, :, half] for one in alone))

    forward, reverse = slice(0, size), slice(size, None)
    last = [result.output[b, n - 1, forward] for b, n in enumerate(layout.lengths)]
    return {
        "outputs, forward": outputs(forward),
        "outputs, reverse": outputs(reverse) if directions == 2 else None,
        "h_n": equal(result.h_n.unbind(1), (one.h_n[:, 0] for one in alone)),
        "gather len-1": equal(last, (one.h_n[-directions, 0] for one in alone)),
        "output[:, 0]": equal(result.output[:, 0, reverse], (one.h_n[-1, 0] for one in alone))
        if directions == 2
        else None,
    }


_SAID = {True: "✓ right", False: "✗ WRONG", None: "–"}
