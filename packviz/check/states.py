"""Padded against packed: where the outputs, the final states and the gradients of an RNN agree, and where not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from packviz.core.has_text import HasText
from packviz.core.layout import BoolArray, Layout, frozen, require_steps, sequence_name
from packviz.core.validation import require_dense, require_values, share
from packviz.draw import grids, text
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import Sheet
from packviz.ops.arguments import require_features, require_padded, require_rnn, require_states
from packviz.ops.original import pack_padded_sequence, pad_packed_sequence
from packviz.ops.tolerance import of_states

FloatArray = npt.NDArray[np.float64]

LOSSES = {
    "outputs": "the sum of the outputs at real steps, each times a fixed random weight",
    "h_n": "the sum of h_n, each entry times a fixed random weight",
}
"""What the gradients are taken of."""

DIRECTIONS = ("forward", "reverse")

RESULTS = {
    "outputs": "the outputs at real steps",
    "outputs_forward": "their forward half, which is all of them if there is one direction",
    "outputs_reverse": "their reverse half",
    "h_n": "the final hidden states of all layers and directions",
    "c_n": "the final cell states of an LSTM",
    "gradients": "the gradients of both losses, to x at real steps and to every trainable weight",
    "gradients_outputs": "those of the loss on the outputs",
    "gradients_h_n": "those of the loss on h_n",
}
"""The names that `StatesComparison.agrees` and `needs_packing` take, and what they mean."""


class Run(NamedTuple):
    """What the RNN returned, detached, in the shapes in which it returns it.

    Attributes:
        output: `(T, B, D·H)`, or `(B, T, D·H)` with `batch_first`; from packing it is padded with zeros.
        h_n: `(L·D, B, H)` the final hidden states.
        c_n: `(L·D, B, H)` the final cell states; none unless it is an LSTM.
    """

    output: Tensor
    h_n: Tensor
    c_n: Tensor | None


@dataclass(frozen=True, eq=False)
class Difference:
    """How far padded and packed are apart, cell by cell. A cell is one vector of features, or one weight tensor.

    Attributes:
        name: what is compared.
        axis: which axis of the arrays below is that of the sequences; `None` if none is.
        absolute: the largest absolute difference of any feature of the cell. NaN where one of the two is NaN; where
            both are, they agree.
        relative: the length (2-norm) of the difference over the length of the packed vector; infinite where only the
            packed one is zero.
        differs: true where `absolute` is over `tolerance · scale`, or NaN.
        scale: `(B,)` the largest finite magnitude of each packed sequence; `()` of the tensor, for a weight. Sequences
            do not mix, so a large one must not hide what is wrong in a small one.
    """

    name: str
    axis: int | None
    absolute: FloatArray
    relative: FloatArray
    differs: BoolArray
    scale: FloatArray


@dataclass(frozen=True, eq=False)
class Gradients:
    """The gradients of one loss, padded against packed.

    Attributes:
        loss: its name in `LOSSES`, which says how it is computed.
        x: to the input: a `(B, T)` difference.
        weights: to each trainable parameter, by name; each is one cell, with a scale of its own.
    """

    loss: str
    x: Difference
    weights: Mapping[str, Difference]


class Agreement(HasText):
    """Whether padded and packed agree, for each of `RESULTS`: `agrees.h_n` or `agrees["h_n"]`.

    A name that does not exist is an error, and so is a result that the comparison does not have, such as
    `outputs_reverse` with one direction, or `c_n` of a GRU: neither True nor False would be a true answer.
    """

    def __init__(self, agrees: Mapping[str, bool], absent: Mapping[str, str]) -> None:
        """Takes what was compared, and the reason why the other `RESULTS` were not."""
        self._agrees, self._absent = agrees, absent

    def __getitem__(self, name: str) -> bool:
        if name in self._agrees:
            return self._agrees[name]
        if name in self._absent:
            raise KeyError(f"there is no {name} here: {self._absent[name]}")
        raise KeyError(f"there is no result {name!r}; choose one of {', '.join(map(repr, RESULTS))}")

    def __getattr__(self, name: str) -> bool:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __iter__(self) -> NoReturn:
        raise TypeError("ask for each result by its name, as in agrees.h_n: which there are depends on the RNN")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._agrees]

    def to_text(self) -> str:
        """Returns a line for each result."""
        return "\n".join(text.table([[name, str(self._agrees.get(name, "–"))] for name in RESULTS], "<  <"))


@dataclass(frozen=True, eq=False, repr=False)
class StatesComparison(Drawing):
    """Where an RNN's results agree and differ, padded against packed. `L` layers, `D` directions.

    Attributes:
        rnn: the module in words.
        layout: the batch: its lengths and `T`.
        dtype: of the weights.
        tolerance: two values agree if they differ by at most this share of the largest value of their sequence.
        padded: what the module gives on the padded batch.
        packed: what it gives on the packed one, its output padded with zeros.
        outputs: `(B, T, D)`, of the last layer.
        h_n: `(L, D, B)`.
        c_n: `(L, D, B)`; none unless it is an LSTM.
        batch_first: whether the two outputs are `(B, T, D·H)`, as `x` was.
        h_0: `(L·D, B, H)` the initial hidden states.
        gradients: one entry per loss; empty without `gradients=True`.
        notes: what else the reader must know, such as that dropout was left out.
    """

    rnn: str
    layout: Layout
    dtype: str
    tolerance: float
    padded: Run
    packed: Run
    outputs: Difference
    h_n: Difference
    c_n: Difference | None
    batch_first: bool
    h_0: Tensor
    gradients: tuple[Gradients, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def agrees(self) -> Agreement:
        """Whether padded and packed agree, result by result: `comparison.agrees.h_n`."""
        names = {name for finding in self._findings for name in finding.names}
        agrees = {name: not any(f.count for f in self._findings if name in f.names) for name in names}
        absent = {
            "outputs_reverse": f"{self.rnn} has one direction",
            "c_n": f"only an LSTM has a cell state, and this is {self.rnn}",
        }
        return Agreement(agrees, {name: absent.get(name, "call compare with gradients=True") for name in RESULTS})

    def needs_packing(self, name: str) -> bool:
        """Returns whether padded and packed differ in a result, so that only packing gives the right one.

        Args:
            name: one of `RESULTS`.

        Raises:
            ValueError: there is no result of this name, or this comparison does not have it.
        """
        try:
            return not self.agrees[name]
        except KeyError as error:
            raise ValueError(error.args[0]) from None

    @property
    def verdict(self) -> str:
        """In words: what packing is needed for on this batch, and what not."""
        if not self.layout.n_padding and not any(finding.count for finding in self._findings):
            return "Nothing is padding, so padded and packed agree everywhere: packing is not needed for correctness."
        matter = [f for f in self._findings if f.names and f.total]
        wrong, right = [f for f in matter if f.count], [f for f in matter if not f.count]
        parts = []
        if right:
            parts.append(f"Packing is not needed for {_merged(right, matter)}.")
        if wrong:
            parts.append(f"Padded is wrong for {_merged(wrong, matter)}.")
        if hit := list(dict.fromkeys(name for f in wrong for name in f.sequences)):
            parts.append(f"Affected: {listed(hit, 6) if len(hit) < self.layout.batch_size else 'every sequence'}.")
        if poisoned := [f for f in wrong if np.isnan(f.worst[0])]:
            reached = "all of these" if len(poisoned) == len(wrong) else _merged(poisoned, matter)
            parts.append(f"NaN reaches {reached}.")
        return " ".join(parts)

    def to_text(self) -> str:
        """The verdict, every difference with its numbers, and, of a small batch, each cell."""
        layout = self.layout
        lines = [
            f"{self.rnn}, padded against packed: {text.count(layout.batch_size, 'sequence')},"
            f" {text.count(layout.max_len, 'time step')}, {self.dtype}",
            self.verdict,
            "",
        ]
        lines += text.table([[f.what, f.agreement()] for f in self._findings], "  <  <")
        lines += [
            "",
            f"Two values agree if they differ by at most {self.tolerance:g} of the largest in their sequence.",
        ]
        lines += [f"The loss on {g.loss} is {LOSSES[g.loss]}." for g in self.gradients]
        lines += self.notes
        if text.is_few(layout):
            for grid in self.panels():
                lines += ["", *grid.to_text()]
        return "\n".join(lines)

    def sheet(self, theme: str) -> Sheet:
        """A grid of differences for the outputs, the states and the gradients to x; contaminated cells lit up."""
        return grids.draw(self.panels(), self.verdict, theme)

    @property
    def _halves(self) -> list[str]:
        """What names the half of the outputs that a direction makes; nothing where there is only one."""
        return [f", {name} half" for name in DIRECTIONS] if self.outputs.absolute.shape[2] > 1 else [""]

    @property
    def _states(self) -> list[Difference]:
        return [state for state in (self.h_n, self.c_n) if state is not None]

    @cached_property
    def _findings(self) -> list[_Finding]:
        return list(self._find())

    def _find(self) -> Iterator[_Finding]:
        """Every difference by what it is of, real steps and padding apart."""
        mask = self.layout.mask
        padding = bool(self.layout.n_padding)
        for d, half in enumerate(self._halves):
            here, names = np.arange(len(self._halves)) == d, ("outputs", f"outputs_{DIRECTIONS[d]}")
            yield _finding(f"outputs at real steps{half}", self.outputs, mask[..., None] & here, names=names)
        if padding:
            yield _finding("outputs at padding", self.outputs, ~mask[..., None])
        for state in self._states:
            yield _finding(state.name, state, noun="state", names=(state.name,))
        for g in self.gradients:
            names = "gradients", f"gradients_{g.loss}"
            yield _finding(f"gradient to x, loss on {g.loss}", g.x, mask, names=names)
            if padding:
                yield _finding(f"gradient to padding, loss on {g.loss}", g.x, ~mask)
            if g.weights:
                # Each weight has its own scale, so they are gathered only now.
                weights, kinds = g.weights.values(), ("absolute", "relative", "differs")
                absolute, relative, differs = (np.array([getattr(w, kind) for w in weights]) for kind in kinds)
                gathered = Difference("weights", None, absolute, relative, differs, np.array(1.0))
                yield _finding(f"gradient to weights, loss on {g.loss}", gathered, noun="tensor", names=names)

    def panels(self) -> list[grids.Grid]:
        """The grids of the picture: one per direction of the outputs, per kind of state, per gradient to x."""
        rows = [sequence_name(b) for b in range(self.layout.batch_size)]
        steps = [str(t) for t in range(self.layout.max_len)]
        padding = ~self.layout.mask
        made = []

        def add(name: str, d: Difference, columns: list[str], pick: Any, hatch: Any = None) -> None:
            made.append(grids.Grid(name, rows, columns, pick(d.absolute), pick(d.differs), d.scale, hatch))

        for d, half in enumerate(self._halves):
            add(f"outputs{half}: |padded − packed|", self.outputs, steps, lambda a, d=d: a[..., d], padding)
        arrows = ["→", "←"] if len(self._halves) > 1 else [""]
        columns = [f"{layer}{arrow}" for layer in range(len(self.h_n.absolute)) for arrow in arrows]
        for state in self._states:
            add(f"{state.name}, by layer", state, columns, lambda a: a.reshape(-1, a.shape[-1]).T)
        for g in self.gradients:
            add(f"gradient to x, loss on {g.loss}", g.x, steps, lambda a: a, padding)
        return made


def compare(
    rnn: nn.RNNBase,
    x: Tensor,
    lengths: Any,
    hx: Any = None,
    *,
    batch_first: bool | None = None,
    gradients: bool = True,
    tolerance: float | None = None,
) -> StatesComparison:
    """Runs an RNN on a batch padded and packed, and says where the results agree and where they differ.

    The module is used as it is, but dropout is left out: it draws other numbers in the two runs, so that nothing would
    agree. Its mode, every `.grad` and torch's random state are afterwards what they were.

    Args:
        rnn: an `nn.RNN`, `nn.GRU` or `nn.LSTM`: any layers, directions, `proj_size`, dtype, device.
        x: `(T, B, I)`, or `(B, T, I)` with `batch_first`: left-aligned, padding at the end.
        lengths: `(B,)` the real time steps of each sequence, in any order.
        hx: the initial state as the module takes it; zeros if not given.
        batch_first: whether `x` is `(B, T, I)`. Defaults to the module's own `batch_first`.
        gradients: whether to compare gradients too, of the two losses in `LOSSES`.
        tolerance: two values agree if they differ by at most this share of the largest value of their sequence; by
            default as `packviz.ops.tolerance.of_states` has it for the dtype and the device.

    Returns:
        A `StatesComparison`: `.agrees` and `.needs_packing(…)` by the names in `RESULTS`, and the `.verdict`. A
        notebook draws it; `print` writes its text.

    Raises:
        TypeError: `rnn` is not one of these modules, or `x` is not a tensor.
        ValueError: shapes, dtypes or devices do not fit each other, or a length is not valid.

    Examples:
        >>> import packviz as pv, torch
        >>> lstm = torch.nn.LSTM(3, 4, batch_first=True)
        >>> comparison = pv.compare(lstm, torch.zeros(3, 5, 3), [5, 3, 2])
        >>> comparison.agrees.outputs, comparison.agrees.h_n  # the padding changes h_n alone
        (True, False)
    """
    require_rnn(rnn)
    require_padded(x)
    require_dense("x", x)
    require_values("x", x)
    first = bool(rnn.batch_first if batch_first is None else batch_first)
    layout = _checked(rnn, x, lengths, first)
    if hx is not None:
        require_states(rnn, hx, x, layout.batch_size)
    weight = next(rnn.parameters())
    tolerance = of_states(weight.dtype, x.device.type) if tolerance is None else share("tolerance", tolerance)

    runs, grads = [], []
    with _undisturbed(rnn, x, first, gradients):
        if hx is not None:
            hx = tuple(h.detach().clone() for h in hx) if isinstance(hx, (tuple, list)) else hx.detach().clone()
        for pack in (False, True):
            leaf = x.detach().clone().requires_grad_(gradients)
            result = run(rnn, leaf, layout, hx, pack)
            grads.append(_gradients(rnn, leaf, layout, result) if gradients else {})
            runs.append(Run._make(t if t is None else t.detach() for t in result))
    padded, packed = runs
    directions = 1 + rnn.bidirectional
    cells = [by_direction(one.output, first, directions) for one in runs]

    def state(name: str, *states: Tensor) -> Difference:
        by_layer = (one.reshape(rnn.num_layers, directions, layout.batch_size, -1) for one in states)
        return _difference(name, 2, tolerance, *by_layer)

    return StatesComparison(
        rnn=str(rnn),
        layout=layout,
        dtype=str(weight.dtype).removeprefix("torch."),
        tolerance=tolerance,
        padded=padded,
        packed=packed,
        outputs=_difference("outputs", 0, tolerance, *cells),
        h_n=state("h_n", padded.h_n, packed.h_n),
        c_n=None if padded.c_n is None or packed.c_n is None else state("c_n", padded.c_n, packed.c_n),
        batch_first=first,
        h_0=torch.zeros_like(padded.h_n) if hx is None else hx[0] if isinstance(hx, tuple) else hx,
        gradients=tuple(_compared(loss, tolerance, grads[0][loss], grads[1][loss]) for loss in grads[0]),
        notes=tuple(_notes(rnn, gradients)),
    )


def _notes(rnn: nn.RNNBase, gradients: bool) -> Iterator[str]:
    """What a comparison of this module leaves out."""
    if rnn.training and rnn.dropout and rnn.num_layers > 1:
        yield (
            f"Dropout ({rnn.dropout:g}) was left out, as in eval mode: even with the same seed it draws other numbers"
            " padded than packed."
        )
    if gradients and not all(p.requires_grad for p in rnn.parameters()):
        yield "Frozen parameters have no gradient and were not compared."


@dataclass(frozen=True)
class _Finding:
    """One line of a comparison: how many cells of what differ, and by how much.

    `names` are the `RESULTS` that it is part of: none at padding, where nothing is wrong or right.
    """

    what: str
    noun: str
    count: int
    total: int
    worst: tuple[float, ...]
    sequences: list[str]
    names: tuple[str, ...]

    @property
    def whole(self) -> str:
        first, _, second = self.what.partition(", ")
        return f"gradients ({second})" if first.startswith("gradient") else first

    def agreement(self) -> str:
        if not self.count:
            return "agree" if self.total else "nothing to compare"
        absolute, relative = (text.difference(v) for v in self.worst)
        where = f" (in {listed(self.sequences, 6)})" if self.sequences else ""
        return (
            f"differ at {self.count:,} of {text.count(self.total, self.noun)}{where},"
            f" by up to {absolute} (relative {relative})"
        )


def _merged(findings: list[_Finding], every: list[_Finding]) -> str:
    """The names of some of all findings; parts of one thing under its name, unless another part is not among them."""
    split = {f.whole for f in every if f not in findings}
    return listed(list(dict.fromkeys(f.what if f.whole in split else f.whole for f in findings)))


def _finding(
    what: str, difference: Difference, where: BoolArray | bool = True, noun: str = "cell", names: tuple[str, ...] = ()
) -> _Finding:
    where = np.broadcast_to(where, difference.differs.shape)
    differs = difference.differs & where
    sequences = []
    if difference.axis is not None:
        sequences = [sequence_name(b) for b in np.unique(differs.nonzero()[difference.axis]).tolist()]
    worst = tuple(float(a.max(where=where, initial=0)) for a in (difference.absolute, difference.relative))
    return _Finding(what, noun, int(differs.sum()), int(where.sum()), worst, sequences, names)


def _checked(rnn: nn.RNNBase, x: Tensor, lengths: Any, batch_first: bool) -> Layout:
    """The layout of the batch, once everything fits.

    Raises:
        ValueError: something does not; the message says what to do.
    """
    require_features(rnn, x.shape, batch_first)
    if not x.numel():
        raise ValueError(f"x of shape {tuple(x.shape)} is empty: there is nothing to compare")
    weight = next(rnn.parameters())
    for kind in ("dtype", "device"):
        ours, theirs = getattr(x, kind), getattr(weight, kind)
        if ours != theirs:
            raise ValueError(f"x has {kind} {ours} but the module {theirs}: call x.to({theirs!r}) first")
    return require_steps(Layout.from_padded(x.shape, lengths, batch_first))


@contextmanager
def _undisturbed(rnn: nn.RNNBase, x: Tensor, batch_first: bool, gradients: bool) -> Iterator[None]:
    """Runs in this order of dimensions, without dropout, and with gradients if wanted.

    Leaves the module and the random state as they were.
    """
    modes = [(module, module.training) for module in rnn.modules()]
    dropout, own = rnn.dropout, rnn.batch_first
    devices = [x.device] if x.device.type not in ("cpu", "meta") else []
    kind = devices[0].type if devices else "cuda"
    with (
        torch.random.fork_rng(devices=devices, device_type=kind),
        torch.inference_mode(False),
        torch.set_grad_enabled(gradients),
    ):
        try:
            rnn.eval()
            rnn.dropout, rnn.batch_first = 0.0, batch_first
            rnn.training = gradients  # cuDNN's backward wants training mode; without dropout that is eval mode
            yield
        finally:
            rnn.dropout, rnn.batch_first = dropout, own
            for module, mode in modes:
                module.training = mode


def run(rnn: nn.RNNBase, x: Tensor, layout: Layout, hx: Any, packed: bool) -> Run:
    """Runs the RNN on the batch, padded or packed, its output padded to `layout.max_len` either way."""
    batch: Any = x
    if packed:
        lengths = torch.tensor(layout.lengths)
        batch = pack_padded_sequence(x, lengths, batch_first=rnn.batch_first, enforce_sorted=False)
    output, state = rnn(batch, hx)
    if packed:
        output, _ = pad_packed_sequence(output, batch_first=rnn.batch_first, total_length=layout.max_len)
    h_n, c_n = state if isinstance(state, tuple) else (state, None)
    return Run(output, h_n, c_n)


_Grads = tuple[Tensor, dict[str, Tensor]]
"""The gradient to `x`, `(B, T, I)`, and to each trainable parameter by its name."""


def _gradients(rnn: nn.RNNBase, x: Tensor, layout: Layout, run: Run) -> dict[str, _Grads]:
    """The gradients by loss."""
    names = [name for name, p in rnn.named_parameters() if p.requires_grad]
    leaves = [x, *(p for p in rnn.parameters() if p.requires_grad)]
    mask = torch.tensor(layout.mask if rnn.batch_first else layout.mask.T.copy(), device=x.device)
    looked_at = {"outputs": run.output[mask], "h_n": run.h_n}  # indexing, not multiplying: 0 · NaN would be NaN
    result = {}
    for i, (loss, values) in enumerate(looked_at.items()):
        generator = torch.Generator().manual_seed(i)
        weights = torch.randn(values.shape, generator=generator, dtype=torch.float64).to(values)
        total = (values * weights).sum()
        to_x, *others = torch.autograd.grad(total, leaves, retain_graph=not i, materialize_grads=True)
        result[loss] = to_x if rnn.batch_first else to_x.transpose(0, 1), dict(zip(names, others, strict=True))
    return result


def _compared(loss: str, tolerance: float, padded: _Grads, packed: _Grads) -> Gradients:
    (x, weights), (packed_x, packed_weights) = padded, packed
    of_weights = {
        name: _difference(name, None, tolerance, grad.flatten(), packed_weights[name].flatten())
        for name, grad in weights.items()
    }
    return Gradients(loss, _difference("x", 0, tolerance, x, packed_x), of_weights)


def _difference(name: str, axis: int | None, tolerance: float, padded: Tensor, packed: Tensor) -> Difference:
    """Compares two tensors over their last dimension, the features."""
    p, q = (t.detach().to("cpu", torch.float64).numpy() for t in (padded, packed))
    same = (p == q) | (np.isnan(p) & np.isnan(q))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        gap = np.where(same, 0.0, np.abs(p - q))
        absolute = gap.max(axis=-1)
        size = np.linalg.norm(np.where(same & np.isnan(q), 0.0, q), axis=-1)
        relative = np.where(absolute == 0, 0.0, np.linalg.norm(gap, axis=-1) / size)
    by_cell = np.where(np.isfinite(q), np.abs(q), 0.0).max(axis=-1)
    others = tuple(i for i in range(by_cell.ndim) if i != axis)
    scale = by_cell.max(axis=others, keepdims=True)
    differs = ~(absolute <= tolerance * scale)  # so that NaN differs
    arrays = (absolute, relative, differs, scale if axis is None else scale.reshape(-1))
    return Difference(name, axis, *(frozen(np.asarray(one)) for one in arrays))


def by_direction(output: Tensor, batch_first: bool, directions: int) -> Tensor:
    """An output as `(B, T, D, H)`."""
    output = output if batch_first else output.transpose(0, 1)
    return output.reshape(*output.shape[:2], directions, -1)


def listed(words: list[str], limit: int = 100) -> str:
    """Words as a list in a sentence, cut where there are too many."""
    if len(words) > limit:
        words = [*words[:limit], f"{len(words) - limit} more"]
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
