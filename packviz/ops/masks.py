"""The everyday helpers around a padded batch: a mask, a loss, an alignment, a fixed width.

Tensors in, tensors out, on any device and with any trailing shape. Everything goes by the lengths, nothing is guessed
from zeros. A sequence may be empty.

Nothing here waits for an accelerator. Sizes come from shapes, and the values of lengths are checked only where reading
them is free: in a list, or on the CPU while nothing is being compiled. Lengths that could not be checked and are out of
range do what the docstrings say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import PackedSequence

from packviz.core.given import only_dense, refuse_unwhole
from packviz.core.padded import Padded, order

Lengths = Tensor | Sequence[int]
"""`(B,)` whole numbers, each at least 0: a list, an array, or an integer tensor on any device.

Floats may be among them where it can be seen that they are whole: in a list, or on the CPU while nothing is compiled.
"""

Side = Literal["left", "right"]
"""Where the real steps of a row lie: `"left"` has them first and the padding at the end, `"right"` the reverse."""


def real_mask(lengths: Lengths, max_len: int | None = None) -> Tensor:
    """Says which cells of a padded batch are real.

    Args:
        lengths: `(B,)` whole numbers, each at least 0. The mask is on their device; for a list, on the CPU.
        max_len: `T`, the padded length in time steps; `max(lengths)` if not given. It must be given for lengths on an
            accelerator and while compiling: there, finding the longest would mean waiting for the device.

    Returns:
        `(B, T)` booleans, True where a cell is real, for sequences that start at step 0. A batch padded at the start
        has the mask `real_mask(lengths, T).flip(1)`, a time-major one `real_mask(lengths, T).T`. A length that
        could not be checked and is over `T` counts as `T`.

    Raises:
        ValueError: a length is not a whole number of at least 0, or is over `max_len`; or `max_len` is missing where
            it must be given.
    """
    n = whole_numbers(lengths)
    if max_len is None:
        if not _is_readable(n):
            raise ValueError(
                f"max_len must be given here: finding the longest of lengths on {n.device}, or while compiling, would"
                " wait for the device. Pass the padded length, max_len=x.shape[…], or lengths.cpu()"
            )
        max_len = max([0, *n.tolist()])  # a negative length is refused below, by its own name
    steps = _steps(max_len, "max_len")
    _check(n, steps, "max_len")
    return _is_real(n, steps)


def masked_loss(
    loss: Tensor,
    lengths: Lengths,
    batch_first: bool = False,
    reduction: Literal["mean", "sum", "sequence"] = "mean",
) -> Tensor:
    """Reduces an element-wise loss over the real cells only.

    Args:
        loss: `(T, B, …)`, or `(B, T, …)` with `batch_first`: what a torch loss gives with `reduction="none"`, or any
            other number per cell, as `(prediction == target).float()` for an accuracy. Sequences start at step 0.
        lengths: `(B,)` whole numbers, each from 0 to `T`.
        batch_first: whether the batch is the first dimension of `loss`, as in torch.
        reduction: `"mean"` divides the sum over all real cells by their number, so that every token weighs the same
            whatever sequence it is in; `"sum"` does not divide (several workers: add up the sums, then divide by the
            tokens of all of them); `"sequence"` gives each sequence its own mean.

    Returns:
        A scalar, or `(B,)` for `"sequence"`, of the dtype of `loss`. Over no cells (an empty sequence, or nothing but
        empty ones) it is 0, with zero gradient. A length that could not be checked and is over `T` counts as `T`.

        The padding has no influence, not even NaN or infinity: the gradient that reaches `loss` there is exactly zero.
        What was computed before is out of reach: where a *prediction* is NaN, most losses turn that zero into NaN
        again. If padding may hold NaN, clean the model's input with `torch.where`, or pack.

    Raises:
        TypeError: `loss` is not a floating-point tensor.
        ValueError: `loss` is already reduced, the lengths do not fit it, or there is no such `reduction`.
    """
    if not isinstance(loss, Tensor) or not loss.is_floating_point():
        kind = f"a tensor of {loss.dtype}" if isinstance(loss, Tensor) else type(loss).__name__
        advice = (
            "for true and false values call .float()"
            if isinstance(loss, Tensor)
            else 'pass the result, computed with reduction="none", such as F.mse_loss(x, y, reduction="none")'
        )
        raise TypeError(f"loss must be a floating-point tensor, got {kind}; {advice}")
    if reduction not in ("mean", "sum", "sequence"):
        raise ValueError(f"reduction is {reduction!r}; choose 'mean', 'sum' or 'sequence'")
    only_dense("loss", loss)
    if loss.ndim < 2:
        raise ValueError(
            f"loss has shape {tuple(loss.shape)}, it needs a batch and a time dimension: compute it with"
            ' reduction="none", and shape it as the batch is shaped'
        )
    n, batch = _fitted(lengths, loss, "loss", batch_first)
    mask = _is_real(n, batch.steps) if batch_first else _is_real(n, batch.steps).T
    # Fill, never multiply: 0 × NaN is NaN. Half precision is summed in single, where 65 504 is not the end.
    exact = torch.float32 if loss.dtype in (torch.float16, torch.bfloat16) else loss.dtype
    real = loss.masked_fill(~_widened(mask, loss.ndim), 0).to(exact)
    cells = n * math.prod(loss.shape[2:])
    if reduction == "sequence":
        total = (real if batch_first else real.transpose(0, 1)).flatten(1).sum(1)
    else:
        total, cells = real.sum(), cells.sum()
    return (total if reduction == "sum" else total / cells.clamp(min=1)).to(loss.dtype)


def align(
    x: Tensor,
    lengths: Lengths,
    to: Side = "left",
    source: Side | None = None,
    max_length: int | None = None,
    batch_first: bool = False,
    padding_value: float = 0.0,
) -> Tensor:
    """Moves the real steps of every sequence to one side of a padded batch, by their lengths.

    Args:
        x: `(T, B, …)`, or `(B, T, …)` with `batch_first`: a padded batch of any dtype.
        lengths: `(B,)` whole numbers, each from 0 to `T`.
        to: where the real steps shall lie: `"left"` (they come first, padding at the end, as packing wants them) or
            `"right"` (padding at the start).
        source: where they lie now; the other side if not given. With `source` equal to `to` only the padding is
            overwritten and the width changed.
        max_length: width of the result in time steps; `T` if not given.
        batch_first: whether the batch is the first dimension of `x`, as in torch.
        padding_value: what fills the padding. What was there before has no influence, not even NaN.

    Returns:
        `x` moved, with `max_length` time steps. Lengths that could not be checked and are over `max_length` lose steps
        at the far side: to the left the first ones stay, to the right the last ones.

    Raises:
        ValueError: there is no such side, or the lengths do not fit `x` or `max_length`.
    """
    for name, side in (("to", to), ("source", source)):
        if side not in ("left", "right") and not (name == "source" and side is None):
            raise ValueError(f"{name} is {side!r}; choose 'left' (data first, padding at the end) or 'right'")
    source = source or ("right" if to == "left" else "left")
    n, batch = _fitted(lengths, x, "x", batch_first)
    width = batch.steps if max_length is None else _steps(max_length, "max_length")
    if max_length is not None:
        _check(whole_numbers(lengths), width, "max_length")
    column, row = torch.arange(width, device=x.device), torch.arange(batch.batch, device=x.device)
    step = column if to == "left" else column - width + n[:, None]  # of its own sequence, (B, width) once broadcast
    real = (step >= 0) & (step < n[:, None])
    # A rotation: the padding comes from somewhere too, and from all over rather than from one cell, on whose gradient
    # everything would then pile up. (It is overwritten, so where from does not matter.)
    now = (step if source == "left" else step + batch.steps - n[:, None]).remainder(max(batch.steps, 1))
    index = batch.rows(row[:, None], now)
    if not batch_first:
        index, real = index.T, real.T
    return _rows(x.flatten(0, 1), index, real, padding_value)


def unpack_to_length(
    packed: PackedSequence,
    length: int,
    batch_first: bool = False,
    padding_value: float = 0.0,
    truncate: bool = False,
) -> Tensor:
    """Unpacks to exactly `length` time steps, for whoever needs a fixed shape.

    It returns what `pad_packed_sequence(packed, batch_first, padding_value, total_length=length)[0]` does, and can cut.
    Only the widths are compared, so nothing waits for the device. Under `torch.compile(fullgraph=True)` the packed
    sequence must know its order (packed with `enforce_sorted=False`).

    Args:
        packed: a `PackedSequence`, as an RNN returns it; also a hand-built one.
        length: the width of the result. More than the longest sequence pads.
        batch_first: whether the batch shall be the first dimension, as in torch.
        padding_value: what fills the padding.
        truncate: allows a `length` below the longest sequence: later steps are dropped. Without it that is an error,
            because a loss over a truncated output no longer sees the end of the long sequences.

    Returns:
        `(length, B, …)`, or `(B, length, …)` with `batch_first`, in the caller's order of sequences.

    Raises:
        TypeError: `packed` is not a `PackedSequence`.
        ValueError: `length` is not a whole number of at least 0, or below the longest sequence without `truncate`.
    """
    if not isinstance(packed, PackedSequence):
        raise TypeError(f"packed must be a PackedSequence, got {type(packed).__name__}: pass what the RNN returned")
    width, longest = _steps(length, "length"), len(packed.batch_sizes)
    if width < longest and not truncate:
        raise ValueError(
            f"length is {width} but the longest sequence has {longest} time steps: give at least {longest}, or"
            " truncate=True to drop the later steps"
        )
    data, rank = packed.data, packed.unsorted_indices
    if rank is None:
        rank = torch.arange(int(packed.batch_sizes[0]), device=data.device)
    sizes = pad(packed.batch_sizes, (0, width - longest))  # a negative number cuts
    first_row = _moved(sizes.cumsum(0) - sizes, data.device)
    index = (first_row[:, None] + rank).remainder(len(data))
    real = rank < _moved(sizes, data.device)[:, None]
    if batch_first:
        index, real = index.T, real.T
    return _rows(data, index, real, padding_value)


def _rows(rows: Tensor, index: Tensor, real: Tensor, padding_value: float) -> Tensor:
    """`rows[index]` where `real`, else padding. Whole rows are copied, and the gradient is one pass as well."""
    if rows.shape[0] == 0:
        return rows.new_full((*index.shape, *rows.shape[1:]), padding_value)
    taken = rows.index_select(0, index.flatten()).reshape(*index.shape, *rows.shape[1:])
    return taken.masked_fill(~_widened(real, taken.ndim), padding_value)


def _is_real(n: Tensor, steps: int) -> Tensor:
    return torch.arange(steps, device=n.device) < n[:, None]


def _widened(mask: Tensor, ndim: int) -> Tensor:
    """A mask of two dimensions, to stand against a tensor of `ndim`."""
    return mask.reshape(*mask.shape, *(1,) * (ndim - 2))


def _fitted(lengths: Lengths, x: Tensor, name: str, batch_first: bool) -> tuple[Tensor, Padded]:
    """The lengths on the device of `x`, within its number of time steps; and how `x` is read."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor {order(batch_first)}, got {type(x).__name__}")
    only_dense(name, x)
    if x.ndim < 2:
        raise ValueError(f"{name} must be {order(batch_first)}, got shape {tuple(x.shape)}")
    n = whole_numbers(lengths)
    batch = Padded.fitting(len(n), x.shape, batch_first, name)
    limit = f"the time steps of {name}"
    _check(n, batch.steps, limit)
    moved = _moved(n, x.device)
    if not _is_readable(n):
        _check(moved, batch.steps, limit)  # it may have come to the CPU just now
        moved = moved.clamp(0, batch.steps)
    return moved, batch


def whole_numbers(lengths: Lengths) -> Tensor:
    """`(B,)` lengths as a tensor of int64, where they are; a list comes to the CPU.

    Raises:
        ValueError: they are no whole numbers, or not one for each sequence.
    """
    only_dense("lengths", lengths)
    try:
        n = lengths if isinstance(lengths, Tensor) else torch.tensor(lengths, device="cpu")
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"lengths must be a list or a tensor of whole numbers, got {lengths!r}") from None
    if n.dtype == torch.bool:
        raise ValueError("lengths holds booleans; if this is a padding mask (B, T), pass mask.sum(1)")
    if n.ndim != 1:
        raise ValueError(f"lengths must be one-dimensional (one number per sequence), got shape {tuple(n.shape)}")
    if (n.is_floating_point() and not _is_readable(n)) or n.is_complex():
        raise ValueError(f"lengths must hold whole numbers, got {n.dtype} on {n.device}; convert them with .long()")
    if n.is_floating_point():
        refuse_unwhole(n.detach().double().numpy(), "lengths")
    return n.long()


def _steps(value: int, name: str) -> int:
    whole = isinstance(value, (int, torch.SymInt)) or (hasattr(value, "__index__") and not isinstance(value, Tensor))
    if isinstance(value, bool) or not whole or value < 0:
        raise ValueError(f"{name} is {value!r}; give a whole number of time steps, at least 0")
    return value


def _check(n: Tensor, most: int, limit: str) -> None:
    """Refuses lengths out of range, where looking at them costs no wait."""
    if not _is_readable(n):
        return
    for b, value in enumerate(n.tolist()):
        if value < 0:
            raise ValueError(f"lengths[{b}] is {value}; a sequence has at least 0 time steps")
        if value > most:
            raise ValueError(f"lengths[{b}] is {value}, more than {limit}, {most}")


def _is_readable(n: Tensor) -> bool:
    """Whether values can be read at once: on the CPU, and real (tracers work with subclasses that hold no values)."""
    return n.device.type == "cpu" and type(n) is Tensor and not torch.compiler.is_compiling()


def _moved(n: Tensor, device: torch.device) -> Tensor:
    """On another device, without waiting for it; towards the CPU torch has to wait."""
    return n.to(device, non_blocking=device.type != "cpu")
