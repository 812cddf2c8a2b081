"""Finds out whether what a model returns depends on the values in the padding of its input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from packviz.check.compare import keeping_modes
from packviz.core.layout import Layout, require_steps, sequence_name
from packviz.core.numbers import HasNumbers, Row
from packviz.core.padded import Padded
from packviz.core.validation import share
from packviz.draw.text import table
from packviz.ops.agreement import parts
from packviz.ops.masks import Lengths, lengths_tensor
from packviz.ops.tolerance import of_states

Model = Callable[[Tensor], object]
"""A module or a function that takes a padded batch alone."""


@dataclass(frozen=True)
class Output:
    """One tensor that a model returned.

    Attributes:
        name: its place in the model's result, such as `[0]`; `output` if the result is one tensor.
        places: the things that were compared, `"real cells"`, `"sequences"` or `"entries"`.
        compared: how many of them were compared.
        differing: how many of them depend on the padding; `None` if two runs on the same batch
            differ, or if a value is not finite, so that nothing can be concluded.
        sequences: the sequences that depend on the padding.
    """

    name: str
    places: str
    compared: int
    differing: int | None
    sequences: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """The comparison in words."""
        if self.differing is None:
            return "cannot be judged: it differs between two equal runs, or is not finite"
        if not self.differing:
            return "does not depend on the padding"
        where = f" (in {', '.join(self.sequences)})" if self.sequences else ""
        share_of = f"{self.differing:,} of {self.compared:,} {self.places}"
        return f"depends on the padding at {share_of}{where}"


@dataclass(frozen=True)
class PaddingComparison(HasNumbers):
    """A comparison of what a model returns with clean and with poisoned padding.

    Attributes:
        layout: the layout of the batch.
        outputs: the tensors that the model returned.
    """

    layout: Layout
    outputs: tuple[Output, ...]

    @property
    def agrees(self) -> bool | None:
        """Whether nothing depends on the padding; `None` if that cannot be determined."""
        if any(output.differing for output in self.outputs):
            return False
        is_judged = bool(self.outputs) and self.layout.n_padding > 0
        return True if is_judged and all(o.differing == 0 for o in self.outputs) else None

    @property
    def summary(self) -> str:
        """The verdict in a sentence."""
        if not self.layout.n_padding:
            return "The batch has no padding, so it shows nothing. Give one with padding."
        if not self.outputs:
            return "The model returned no tensor of floating-point numbers to compare."
        if self.agrees:
            return "Nothing that the model returned depends on the values in the padding."
        named = [output.name for output in self.outputs if output.differing]
        if named:
            return (
                f"What the model returned depends on the values in the padding: {', '.join(named)}."
            )
        return "It is unclear whether what the model returned depends on the padding."

    def numbers(self) -> list[Row]:
        """Returns a row for each tensor that the model returned."""
        rows: list[Row] = []
        for output in self.outputs:
            size = {"compared": output.compared, "of": output.places}
            rows.append({"output": output.name, **size, "differing": output.differing})
        return rows

    def to_text(self) -> str:
        """Returns the verdict, and a line for each tensor."""
        lines = [[output.name, output.verdict] for output in self.outputs]
        return "\n".join([self.summary, "", *table(lines, "  <  <")])


def compare_padding(
    model: Model, x: Tensor, lengths: Lengths, batch_first: bool | None, tolerance: float | None
) -> PaddingComparison:
    """Runs a model with clean and with poisoned padding. See `packviz.check.compare.compare`."""
    whole = lengths_tensor(lengths)
    shape = Padded.fitting(len(whole), x.shape, batch_first)
    if shape.batch == shape.steps:
        raise ValueError(
            "x has as many sequences as time steps, so the axes of a result cannot be told apart:"
            " leave a sequence out, or add a step of padding"
        )
    layout = require_steps(Layout.from_padded(x.shape, whole, shape.batch_first))
    mask = torch.tensor(layout.mask, device=x.device)
    if not shape.batch_first:
        mask = mask.T
    clean = x.detach().clone()
    clean[~mask] = 0
    poisoned = _poisoned(clean, mask)
    runs = []
    module = model if isinstance(model, nn.Module) else nn.Module()
    with keeping_modes(module), torch.no_grad():
        module.eval()
        for batch in (clean, clean, poisoned):
            results = {}
            for name, value in parts(model(batch.clone())):
                if isinstance(value, Tensor) and value.is_floating_point():
                    results[name or "output"] = value.detach()
            runs.append(results)
    outputs = []
    for name, value in runs[0].items():
        values = [run.get(name, value) for run in runs]
        outputs.append(_compared(name, values, mask, shape, tolerance))
    return PaddingComparison(layout, tuple(outputs))


def _poisoned(clean: Tensor, mask: Tensor) -> Tensor:
    """Fills the padding with other values: random numbers, or ids from real cells.

    Raises:
        ValueError: all ids are 0.
    """
    generator = torch.Generator().manual_seed(0)
    real = clean[mask]
    padding = int((~mask).sum())
    poisoned = clean.clone()
    if not padding:
        return poisoned
    if clean.is_floating_point():
        noise = torch.randn(padding, *real.shape[1:], generator=generator)
        largest = real.abs().nan_to_num(0, 0).max()
        poisoned[~mask] = noise.to(real) * largest.clamp(min=1)
        return poisoned
    others = real[real.reshape(len(real), -1).any(1)]
    if not len(others):
        raise ValueError(
            "the real cells of x contain only the id 0, so no other id can replace the padding;"
            " give at least two different ids"
        )
    rows = torch.randint(len(others), (padding,), generator=generator)
    poisoned[~mask] = others[rows.to(others.device)]
    return poisoned


def _compared(
    name: str, results: Sequence[Tensor], mask: Tensor, shape: Padded, tolerance: float | None
) -> Output:
    """Compares one tensor of the three runs, cell by cell, row by row or as a whole."""
    value = results[0]
    if any(result.shape != value.shape for result in results):
        return Output(name, "entries", value.numel(), value.numel(), ())
    places = "entries"
    cells = [result.flatten() for result in results]
    owner = torch.empty(0, dtype=torch.int64)
    if value.shape[:2] == mask.shape:
        places = "real cells"
        cells = [result[mask] for result in results]
        owner = mask.nonzero()[:, 1 - shape.batch_first].cpu()
    elif value.shape.count(shape.batch) == 1:  # otherwise it could be any of these dimensions
        places = "sequences"
        axis = value.shape.index(shape.batch)
        cells = [result.movedim(axis, 0) for result in results]
        owner = torch.arange(shape.batch)
    clean, again, poisoned = (cell.double().unsqueeze(-1).flatten(1) for cell in cells)
    if tolerance is None:
        tolerance = of_states(value.dtype, value.device.type)
    allowed = share("tolerance", tolerance)
    limit = allowed * clean.abs().max() if clean.numel() else 0
    is_same = ((clean - again).abs() <= limit).all()  # infinity and NaN differ from themselves
    if not is_same:
        return Output(name, places, len(clean), None, ())
    differs = ~((clean - poisoned).abs() <= limit).all(1).cpu()
    indices = set(owner[differs[: len(owner)]].tolist())
    sequences = tuple(map(sequence_name, sorted(indices)))
    return Output(name, places, len(clean), int(differs.sum()), sequences)
