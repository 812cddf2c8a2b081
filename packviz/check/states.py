"""Compares an RNN's outputs, final states and gradients on a padded batch with those on a packed batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from packviz.core.has_text import HasText
from packviz.core.layout import BoolArray, Layout, frozen, require_steps, sequence_name
from packviz.core.validation import require_dense, require_values, share
from packviz.draw import differences, text
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
"""The losses whose gradients are compared, each with its definition."""

DIRECTIONS = ("forward", "reverse")

RESULTS = {
    "outputs": "the outputs at real steps",
    "outputs_forward": "the forward half of these outputs; with one direction, all of them",
    "outputs_reverse": "the reverse half of these outputs",
    "h_n": "the final hidden states of all layers and directions",
    "c_n": "the final cell states of an LSTM",
    "gradients": "the gradients of both losses, to x at real steps and to every trainable weight",
    "gradients_outputs": "the gradients of the loss on the outputs",
    "gradients_h_n": "the gradients of the loss on h_n",
}
"""The names that `StatesComparison.agrees` and `needs_packing` accept, each with its meaning."""


class Run(NamedTuple):
    """The results of an RNN, detached, in the shapes that the RNN returns.

    The RNN has `L` layers, `D` directions and states of size `H`. `P` is its `proj_size`, or `H`
    without a projection.

    Attributes:
        output: `(T, B, D·P)`, or `(B, T, D·P)` with `batch_first`; a packed output is padded with
            zeros.
        h_n: `(L·D, B, P)` the final hidden states.
        c_n: `(L·D, B, H)` the final cell states; `None` unless the RNN is an LSTM.
    """

    output: Tensor
    h_n: Tensor
    c_n: Tensor | None


@dataclass(frozen=True, eq=False)
class Difference:
    """The difference between a padded and a packed result. A cell is one vector of features, or one
    weight tensor.

    Attributes:
        name: the name of the result.
        axis: the axis along which the sequences lie in the arrays below; `None` if there is no such
            axis.
        absolute: for each cell, the largest absolute difference in any feature. It is NaN if only
            one of two compared values is NaN. Two NaN values agree.
        relative: for each cell, the 2-norm of the difference, divided by the 2-norm of the packed
            vector; infinite if the packed vector is zero and the padded one is not.
        differs: for each cell, true if `absolute` is greater than `tolerance · scale`, or NaN.
        scale: `(B,)` the largest finite magnitude in each sequence of the packed result, or `()`
            the largest in a weight tensor. Each sequence has a scale of its own, so that large
            values in one sequence cannot hide an error in another.
    """

    name: str
    axis: int | None
    absolute: FloatArray
    relative: FloatArray
    differs: BoolArray
    scale: FloatArray


class Agreement(HasText):
    """A record of which `RESULTS` agree between the padded and the packed run, read as `agrees.h_n`
    or `agrees["h_n"]`.

    An unknown name raises an error. So does a result that the comparison does not have, such as
    `outputs_reverse` with one direction or `c_n` for a GRU, because neither True nor False would be
    right.
    """

    def __init__(self, agrees: Mapping[str, bool], absent: Mapping[str, str]) -> None:
        """Stores the answers, and the reason why each missing result was not compared."""
        vars(self).update(agrees)
        self._absent = absent

    def __getitem__(self, name: str) -> bool:
        if name not in RESULTS:
            raise KeyError(
                f"there is no result {name!r}; choose one of {', '.join(map(repr, RESULTS))}"
            )
        if name not in vars(self):
            raise KeyError(f"this comparison has no {name}; {self._absent[name]}")
        return bool(vars(self)[name])

    def __getattr__(self, name: str) -> bool:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def to_text(self) -> str:
        """Returns a line for each result."""
        return "\n".join(
            text.table([[name, str(vars(self).get(name, "–"))] for name in RESULTS], "<  <")
        )


@dataclass(frozen=True, eq=False, repr=False)
class StatesComparison(Drawing):
    """A comparison of an RNN's results on a padded batch with its results on the same batch,
    packed.

    The RNN has `L` layers and `D` directions.

    Attributes:
        rnn: the module as text.
        layout: the layout of the batch, with its lengths and `T`.
        dtype: the dtype of the weights.
        tolerance: two values agree if they differ by at most this share of the largest value of
            their sequence or weight tensor.
        padded: the results on the padded batch.
        packed: the results on the packed batch; the output is padded with zeros.
        outputs: `(B, T, D)` the difference in the last layer's outputs.
        h_n: `(L, D, B)` the difference in the final hidden states.
        c_n: `(L, D, B)` the difference in the final cell states; `None` unless the RNN is an LSTM.
        batch_first: whether the two outputs are batch first, as `x` was.
        h_0: the initial hidden states, with the same shape as `padded.h_n`.
        gradients: for each of `LOSSES`, the differences in that loss's gradients with respect to
            `"x"`, `(B, T)`, and to each trainable parameter, by name; empty if `compare` was called
            with `gradients=False`.
        notes: further remarks, such as a note that dropout was left out.
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
    gradients: Mapping[str, Mapping[str, Difference]]
    notes: tuple[str, ...] = ()

    @cached_property
    def agrees(self) -> Agreement:
        """A record of which results agree between the padded and the packed run, as in `comparison.agrees.h_n`."""
        names = {name for finding in self._findings for name in finding.names}
        agrees = {
            name: not any(f.count for f in self._findings if name in f.names) for name in names
        }
        absent = {"c_n": f"only an LSTM has a cell state, and this is {self.rnn}"}
        absent["outputs_reverse"] = f"{self.rnn} has one direction"
        return Agreement(
            agrees, {name: absent.get(name, "call compare with gradients=True") for name in RESULTS}
        )

    def needs_packing(self, name: str) -> bool:
        """Returns whether a result differs between the padded and the packed run, and so needs
        packing to be right.

        Args:
            name: one of `RESULTS`.

        Raises:
            ValueError: there is no result with this name, or this comparison does not have it.
        """
        try:
            return not self.agrees[name]
        except KeyError as error:
            raise ValueError(error.args[0]) from None

    @property
    def verdict(self) -> str:
        """A summary of which results need packing on this batch, and which do not."""
        if not self.layout.n_padding and not any(finding.count for finding in self._findings):
            return "There is no padding, so padded and packed results agree. Packing is not needed for correctness."
        matter = [f for f in self._findings if f.names and f.mask.any()]
        wrong, right = [f for f in matter if f.count], [f for f in matter if not f.count]
        parts = [f"Packing is not needed for {_merged(right, matter)}."] if right else []
        if wrong:
            parts.append(f"The padded results are wrong for {_merged(wrong, matter)}.")
        if hit := list(dict.fromkeys(name for f in wrong for name in f.sequences)):
            parts.append(
                f"This affects {listed(hit, 6) if len(hit) < self.layout.batch_size else 'every sequence'}."
            )
        if poisoned := [f for f in wrong if np.isnan(f.worst())]:
            reached = "all of these" if len(poisoned) == len(wrong) else _merged(poisoned, matter)
            parts.append(f"NaN reaches {reached}.")
        return " ".join(parts)

    def to_text(self) -> str:
        """Returns the verdict, the size of every difference and, for a small batch, every cell."""
        layout = self.layout
        head = f"{self.rnn}, padded against packed: {text.count(layout.batch_size, 'sequence')},"
        rule = f"Two values agree if they differ by at most {self.tolerance:g} of the largest value in their sequence."
        lines = [
            f"{head} {text.count(layout.max_len, 'time step')}, {self.dtype}",
            self.verdict,
            "",
        ]
        lines += [
            *text.table([[f.name, f.agreement()] for f in self._findings], "  <  <"),
            "",
            rule,
        ]
        lines += [
            *(f"The loss on {loss} is {LOSSES[loss]}." for loss in self.gradients),
            *self.notes,
        ]
        lines += [
            line for grid in self.panels() if text.is_few(layout) for line in ("", *grid.to_text())
        ]
        return "\n".join(lines)

    def sheet(self, theme: str) -> Sheet:
        """Draws grids of the differences in the outputs, the states and the gradients with respect to `x`."""
        return differences.draw(self.panels(), self.verdict, theme)

    @property
    def _halves(self) -> list[str]:
        """The label of each direction's half of the outputs; a single empty string if there is only one direction."""
        return (
            [f", {name} half" for name in DIRECTIONS]
            if self.outputs.absolute.shape[2] > 1
            else [""]
        )

    @property
    def _states(self) -> list[Difference]:
        return [state for state in (self.h_n, self.c_n) if state is not None]

    @cached_property
    def _findings(self) -> list[_Finding]:
        return list(self._find())

    def _find(self) -> Iterator[_Finding]:
        """Yields every difference, separately for real steps and padding."""
        mask = self.layout.mask
        for d, half in enumerate(self._halves):
            here, names = np.arange(len(self._halves)) == d, ("outputs", f"outputs_{DIRECTIONS[d]}")
            yield _Finding(
                f"outputs at real steps{half}", self.outputs, names, mask[..., None] & here
            )
        if self.layout.n_padding:
            yield _Finding("outputs at padding", self.outputs, (), ~mask[..., None])
        for state in self._states:
            yield _Finding(state.name, state, (state.name,), noun="state")
        for loss, found in self.gradients.items():
            (_, to_x), *to_weights = found.items()
            names = "gradients", f"gradients_{loss}"
            yield _Finding(f"gradient to x, loss on {loss}", to_x, names, mask)
            if self.layout.n_padding:
                yield _Finding(f"gradient to padding, loss on {loss}", to_x, (), ~mask)
            if to_weights:  # merged only here, because each weight has its own scale
                kinds = ("absolute", "relative", "differs")
                absolute, relative, differs = (
                    np.array([getattr(d, kind) for _, d in to_weights]) for kind in kinds
                )
                gathered = Difference("weights", None, absolute, relative, differs, np.array(1.0))
                yield _Finding(
                    f"gradient to weights, loss on {loss}", gathered, names, noun="tensor"
                )

    def panels(self) -> list[differences.Differences]:
        """Returns grids of the outputs of each direction, each kind of state, and each gradient with respect to `x`."""
        rows = [sequence_name(b) for b in range(self.layout.batch_size)]
        steps = [str(t) for t in range(self.layout.max_len)]
        padding = ~self.layout.mask
        made = []

        def add(name: str, d: Difference, columns: list[str], pick: Any, hatch: Any = None) -> None:
            made.append(
                differences.Differences(
                    name, rows, columns, pick(d.absolute), pick(d.differs), d.scale, hatch
                )
            )

        for d, half in enumerate(self._halves):
            add(
                f"outputs{half}: |padded − packed|",
                self.outputs,
                steps,
                lambda a, d=d: a[..., d],
                padding,
            )
        arrows = ["→", "←"] if len(self._halves) > 1 else [""]
        columns = [f"{layer}{arrow}" for layer in range(len(self.h_n.absolute)) for arrow in arrows]
        for state in self._states:
            add(f"{state.name}, by layer", state, columns, lambda a: a.reshape(-1, a.shape[-1]).T)
        for loss, found in self.gradients.items():
            add(f"gradient to x, loss on {loss}", found["x"], steps, lambda a: a, padding)
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
    """Runs an RNN on a batch, padded and packed, and reports which results agree.

    `compare` disables dropout, because it would draw different numbers in the two runs, so their
    results would differ. Apart from that, `compare` uses the module as it is. Afterwards, the
    module's mode, every `.grad` and torch's random state are as they were before.

    Args:
        rnn: an `nn.RNN`, `nn.GRU` or `nn.LSTM` with any number of layers and directions, and any
            `proj_size`, dtype and device.
        x: `(T, B, I)`, or `(B, T, I)` with `batch_first`, with the padding at the end.
        lengths: `(B,)` whole numbers from 1 to `T`, in any order: the number of real time steps of
            each sequence.
        hx: the initial state in the format the module expects. Defaults to zeros.
        batch_first: whether `x` is `(B, T, I)`. Defaults to the module's own `batch_first`.
        gradients: whether to compare the gradients of two losses, too: a weighted sum of the
            outputs at real steps, and one of `h_n` (see `LOSSES`).
        tolerance: two values agree if they differ by at most this share of the largest value of
            their sequence or weight tensor. Defaults to what `packviz.ops.tolerance.of_states`
            returns for the dtype and the device.

    Returns:
        A `StatesComparison`, whose `.verdict` is a summary. Its `.agrees` and `.needs_packing(…)`
        take the names in `RESULTS`, such as `outputs`, `h_n`, `c_n` and `gradients`. A notebook
        draws the comparison, and `print` writes it as text.

    Raises:
        TypeError: `rnn` is not an `nn.RNN`, `nn.GRU` or `nn.LSTM`, or `x` is not a dense tensor.
        ValueError: shapes, dtypes or devices do not fit together; `x` is empty or on the meta
            device; or a length is not valid.

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
    layout, weight = _checked(rnn, x, lengths, first), next(rnn.parameters())
    if hx is not None:
        require_states(rnn, hx, x, layout.batch_size)
    tolerance = (
        of_states(weight.dtype, x.device.type)
        if tolerance is None
        else share("tolerance", tolerance)
    )

    runs, grads = [], []
    with _undisturbed(rnn, x, first, gradients):
        if hx is not None:
            hx = (
                tuple(h.detach().clone() for h in hx)
                if isinstance(hx, (tuple, list))
                else hx.detach().clone()
            )
        for pack in (False, True):
            leaf = x.detach().clone().requires_grad_(gradients)
            result = run(rnn, leaf, layout, hx, pack)
            grads.append(_gradients(rnn, leaf, layout, result) if gradients else {})
            runs.append(Run._make(t if t is None else t.detach() for t in result))
    padded, packed = runs
    directions = 1 + rnn.bidirectional

    def state(name: str) -> Difference:
        states = (getattr(one, name) for one in runs)
        by_layer = (
            one.reshape(rnn.num_layers, directions, layout.batch_size, -1) for one in states
        )
        return _difference(name, 2, tolerance, *by_layer)

    return StatesComparison(
        rnn=str(rnn),
        layout=layout,
        dtype=str(weight.dtype).removeprefix("torch."),
        tolerance=tolerance,
        padded=padded,
        packed=packed,
        outputs=_difference(
            "outputs", 0, tolerance, *(by_direction(one.output, first, directions) for one in runs)
        ),
        h_n=state("h_n"),
        c_n=None if padded.c_n is None else state("c_n"),
        batch_first=first,
        h_0=torch.zeros_like(padded.h_n) if hx is None else hx[0] if isinstance(hx, tuple) else hx,
        gradients={loss: _compared(tolerance, grads[0][loss], grads[1][loss]) for loss in grads[0]},
        notes=tuple(_notes(rnn, gradients)),
    )


def _checked(rnn: nn.RNNBase, x: Tensor, lengths: Any, batch_first: bool) -> Layout:
    """Returns the layout of the batch, after checking that the arguments fit together."""
    require_features(rnn, x.shape, batch_first)
    if not x.numel():
        raise ValueError(f"x of shape {tuple(x.shape)} is empty, so there is nothing to compare")
    for kind in ("dtype", "device"):
        if (ours := getattr(x, kind)) != (theirs := getattr(next(rnn.parameters()), kind)):
            raise ValueError(
                f"x has {kind} {ours}, but the module has {theirs}; call x.to({theirs!r})"
            )
    return require_steps(Layout.from_padded(x.shape, lengths, batch_first))


def _notes(rnn: nn.RNNBase, gradients: bool) -> Iterator[str]:
    """Yields a remark for each part of the RNN that the comparison leaves out."""
    if rnn.training and rnn.dropout and rnn.num_layers > 1:
        why = "even with the same seed it draws different numbers for padded and packed data"
        yield f"Dropout ({rnn.dropout:g}) was left out, as in eval mode, because {why}."
    if gradients and not all(p.requires_grad for p in rnn.parameters()):
        yield "Frozen parameters have no gradient and were not compared."


@dataclass(frozen=True)
class _Finding:
    """One line of a comparison: how many cells of a result differ, and by how much.

    `names` lists the `RESULTS` to which the line belongs. A line about padding belongs to none,
    because values in the padding are neither right nor wrong.
    """

    name: str
    difference: Difference
    names: tuple[str, ...]
    where: BoolArray | bool = True
    noun: str = "cell"

    @cached_property
    def mask(self) -> BoolArray:
        return np.broadcast_to(self.where, self.difference.differs.shape)

    @cached_property
    def differs(self) -> BoolArray:
        return self.difference.differs & self.mask

    @property
    def count(self) -> int:
        return int(self.differs.sum())

    def worst(self) -> float:
        return float(self.difference.absolute.max(where=self.mask, initial=0))

    @property
    def sequences(self) -> list[str]:
        axis = self.difference.axis
        return (
            []
            if axis is None
            else [sequence_name(b) for b in np.unique(self.differs.nonzero()[axis]).tolist()]
        )

    @property
    def whole(self) -> str:
        first, _, second = self.name.partition(", ")
        return f"gradients ({second})" if first.startswith("gradient") else first

    def agreement(self) -> str:
        if not self.count:
            return "agree" if self.mask.any() else "nothing to compare"
        where = f" (in {listed(self.sequences, 6)})" if self.sequences else ""
        some = f"differ at {self.count:,} of {text.count(int(self.mask.sum()), self.noun)}{where}"
        return f"{some}, by up to {text.difference(self.worst())}"


def _merged(findings: list[_Finding], every: list[_Finding]) -> str:
    """Returns the names of findings as text. If all parts of a result are among them, the result is named instead."""
    split = {f.whole for f in every if f not in findings}
    return listed(list(dict.fromkeys(f.name if f.whole in split else f.whole for f in findings)))


@contextmanager
def _undisturbed(rnn: nn.RNNBase, x: Tensor, batch_first: bool, gradients: bool) -> Iterator[None]:
    """Sets `batch_first`, turns gradients on or off and disables dropout. Afterwards, undoes every change."""
    modes = [(module, module.training) for module in rnn.modules()]
    dropout, own = rnn.dropout, rnn.batch_first
    devices = [x.device] if x.device.type not in ("cpu", "meta") else []
    drawn = torch.random.fork_rng(
        devices=devices, device_type=devices[0].type if devices else "cuda"
    )
    with drawn, torch.inference_mode(False), torch.set_grad_enabled(gradients):
        try:
            rnn.eval()
            rnn.dropout, rnn.batch_first = 0.0, batch_first
            rnn.training = gradients  # cuDNN's backward pass needs training mode; without dropout it equals eval mode
            yield
        finally:
            rnn.dropout, rnn.batch_first = dropout, own
            for module, mode in modes:
                module.training = mode


def run(rnn: nn.RNNBase, x: Tensor, layout: Layout, hx: Any, packed: bool) -> Run:
    """Runs the RNN on the padded or the packed batch. In both cases, the output is padded to `layout.max_len`."""
    batch: Any = (
        pack_padded_sequence(x, torch.tensor(layout.lengths), rnn.batch_first, False)
        if packed
        else x
    )
    output, state = rnn(batch, hx)
    if packed:
        output, _ = pad_packed_sequence(
            output, batch_first=rnn.batch_first, total_length=layout.max_len
        )
    h_n, c_n = state if isinstance(state, tuple) else (state, None)
    return Run(output, h_n, c_n)


def _gradients(
    rnn: nn.RNNBase, x: Tensor, layout: Layout, run: Run
) -> dict[str, dict[str, Tensor]]:
    """Returns each loss's gradients with respect to `"x"`, `(B, T, I)`, and to each trainable parameter, flattened."""
    weights = {name: p for name, p in rnn.named_parameters() if p.requires_grad}
    mask = torch.tensor(layout.mask if rnn.batch_first else layout.mask.T.copy(), device=x.device)
    results = {
        "outputs": run.output[mask],
        "h_n": run.h_n,
    }  # indexed, not multiplied, because 0 · NaN is NaN
    found = {}
    for i, (loss, values) in enumerate(results.items()):
        generator = torch.Generator().manual_seed(i)
        total = (
            values * torch.randn(values.shape, generator=generator, dtype=torch.float64).to(values)
        ).sum()
        to_x, *others = torch.autograd.grad(
            total, [x, *weights.values()], retain_graph=not i, materialize_grads=True
        )
        found[loss] = {"x": to_x if rnn.batch_first else to_x.transpose(0, 1)}
        found[loss] |= {name: one.flatten() for name, one in zip(weights, others, strict=True)}
    return found


def _compared(
    tolerance: float, padded: dict[str, Tensor], packed: dict[str, Tensor]
) -> dict[str, Difference]:
    """Compares the gradients of one loss."""
    axes = {"x": 0}
    return {
        name: _difference(name, axes.get(name), tolerance, one, packed[name])
        for name, one in padded.items()
    }


def _difference(
    name: str, axis: int | None, tolerance: float, padded: Tensor, packed: Tensor
) -> Difference:
    """Compares two tensors cell by cell. The last dimension of each is that of the features."""
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
    differs = ~(absolute <= tolerance * scale)  # negated, so that NaN counts as a difference
    arrays = (absolute, relative, differs, scale if axis is None else scale.reshape(-1))
    return Difference(name, axis, *(frozen(np.asarray(one)) for one in arrays))


def by_direction(output: Tensor, batch_first: bool, directions: int) -> Tensor:
    """Returns an output as `(B, T, D, H)`."""
    output = output if batch_first else output.transpose(0, 1)
    return output.reshape(*output.shape[:2], directions, -1)


def listed(words: list[str], limit: int = 100) -> str:
    """Joins words into a list for a sentence. Words beyond the first `limit` are only counted."""
    if len(words) > limit:
        words = [*words[:limit], f"{len(words) - limit} more"]
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
