"""Which results of an RNN are right, padded and packed: a table, computed by running each sequence alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from packviz.check.states import Run, run
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

    def right(self, question: str, method: str, *, layers: int = 1, directions: int = 1) -> bool:
        """Returns whether the results asked for in `QUESTIONS` are right.

        Raises:
            ValueError: there is no such question, no such line in the table, or no such result of this RNN.
        """
        one_of("question", question, self.questions)
        for answer in self.answers:
            if (answer.layers, answer.directions, answer.method) == (layers, directions, method):
                if (right := answer.right[question]) is None:
                    raise ValueError(f"question is {question!r}, but an RNN with one direction has no reverse half")
                return right
        raise ValueError(f"the table has no line of layers={layers}, directions={directions}, method={method!r}")

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

    def final(at: Sequence[int], half: slice) -> bool:
        ours = (result.output[b, t, half] for b, t in enumerate(at))
        return equal(ours, (one.h_n[-directions:].flatten()[half] for one in alone))

    def states(ours: Tensor | None, theirs: list[Tensor | None]) -> bool | None:
        return None if ours is None else equal(ours.unbind(1), (one[:, 0] for one in theirs if one is not None))

    forward, reverse = slice(0, size), slice(size, None)
    first, last, end = [0] * layout.batch_size, [n - 1 for n in layout.lengths], [-1] * layout.batch_size
    two = directions == 2
    return {
        "outputs, forward": outputs(forward),
        "outputs, reverse": outputs(reverse) if two else None,
        "h_n": states(result.h_n, [one.h_n for one in alone]),
        "c_n": states(result.c_n, [one.c_n for one in alone]),
        "output at len-1, forward": final(last, forward),
        "output at len-1, reverse": final(last, reverse) if two else None,
        "output[:, -1], forward": final(end, forward),
        "output[:, 0], reverse": final(first, reverse) if two else None,
    }


_SAID = {True: "✓ right", False: "✗ WRONG", None: "–"}
