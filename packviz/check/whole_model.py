"""Finds out whether what a model returns depends on the values in the padding of its input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass

import torch
from torch import Tensor, nn

from packviz.check.compare import keeping_modes
from packviz.core.layout import Layout, require_steps, sequence_name
from packviz.core.numbers import HasNumbers
from packviz.core.padded import Padded
from packviz.core.validation import require_plain, require_values, share
from packviz.draw import text
from packviz.ops.arguments import require_padded
from packviz.ops.masks import Lengths, lengths_tensor
from packviz.ops.tolerance import of_states

Model = Callable[[Tensor], object]
"""A module or a function that takes a padded batch alone."""


@dataclass(frozen=True)
class Output:
    """One tensor that a model returned.

    Attributes:
        name: where it is in what the model returned, such as `[0]`; `output` if it is all.
        places: what was compared: `"real cells"`, `"sequences"` or `"entries"`.
        compared: the number of these.
        differing: the number that depend on the padding; `None` if two runs on the same batch
            differ, or if a value is not finite, so that nothing can be said.
        sequences: the sequences in which they are.
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


@dataclass(frozen=True, repr=False)
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
        """Whether nothing depends on the padding; `None` if that cannot be said."""
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
        return "It cannot be said whether what the model returned depends on the padding."

    def numbers(self) -> list[dict[str, object]]:
        """Returns a row for each tensor that the model returned."""
        rows: list[dict[str, object]] = []
        for output in self.outputs:
            row: dict[str, object] = {"output": output.name, "compared": output.compared}
            rows.append(row | {"of": output.places, "differing": output.differing})
        return rows

    def to_text(self) -> str:
        """Returns the verdict, and a line for each tensor."""
        lines = [[output.name, output.verdict] for output in self.outputs]
        return "\n".join([self.summary, "", *text.table(lines, "  <  <")])


def compare_padding(
    model: Model, x: Tensor, lengths: Lengths, batch_first: bool | None, tolerance: float | None
) -> PaddingComparison:
    """Runs a model with clean and with poisoned padding. See `packviz.check.compare.compare`."""
    require_padded(x)
    require_plain("x", x)
    require_values("x", x)
    whole = lengths_tensor(lengths)
    shape = Padded.fitting(len(whole), x.shape, batch_first)
    layout = require_steps(Layout.from_padded(x.shape, whole, shape.batch_first))
    mask = torch.tensor(layout.mask, device=x.device)
    mask = mask if shape.batch_first else mask.T
    clean = x.detach().clone()
    clean[~mask] = 0
    poisoned = _poisoned(clean, mask)
    runs = []
    module = model if isinstance(model, nn.Module) else nn.Module()
    with keeping_modes(module), torch.no_grad():
        module.eval()
        for batch in (clean, clean, poisoned):
            runs.append(dict(_tensors(model(batch.clone()))))
    outputs = []
    for name, value in runs[0].items():
        results = [run.get(name, value) for run in runs]
        outputs.append(_compared(name, results, mask, shape, tolerance))
    return PaddingComparison(layout, tuple(outputs))


def _poisoned(clean: Tensor, mask: Tensor) -> Tensor:
    """Fills the padding with other values than zeros: random numbers, or ids from real cells.

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
        largest = real[real.isfinite()].abs().max() if real.isfinite().any() else real.new_ones(())
        poisoned[~mask] = noise.to(real) * largest.clamp(min=1)
        return poisoned
    others = real[real.reshape(len(real), -1).any(1)]
    if not len(others):
        raise ValueError(
            "x contains only 0, so no other value is known for its padding; give other ids"
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
    rows = [result.double().reshape(-1, 1) for result in results]
    owner = torch.empty(0, dtype=torch.int64)
    if value.shape[:2] == mask.shape:
        places = "real cells"
        rows = [result.double()[mask].reshape(len(result[mask]), -1) for result in results]
        owner = mask.nonzero()[:, 1 - shape.batch_first].cpu()
    elif value.shape.count(shape.batch) == 1:  # otherwise it could be any of these dimensions
        places = "sequences"
        axis = value.shape.index(shape.batch)
        rows = [result.double().movedim(axis, 0).reshape(shape.batch, -1) for result in results]
        owner = torch.arange(shape.batch)
    clean, again, poisoned = rows
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


def _tensors(value: object, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yields the floating-point tensors in what a model returned, with their places."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield name or "output", value.detach()
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _tensors(part, f"{name}[{key!r}]")
    elif isinstance(value, (tuple, list)):
        for i, part in enumerate(value):
            yield from _tensors(part, f"{name}[{i}]")
    elif is_dataclass(value):
        for field in fields(value):
            yield from _tensors(getattr(value, field.name), f"{name}.{field.name}")
