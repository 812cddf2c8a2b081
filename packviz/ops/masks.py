"""Provides helpers for padded batches: masks, losses, and the side of the padding.

The helpers take and return tensors on any device, with any number of further dimensions. They rely
on the lengths or a mask, and never guess the lengths from zeros in the data. A sequence may be
empty.

Nothing here waits for an accelerator. The helpers take sizes from shapes, not from values on an
accelerator. Values are checked only if reading them costs
nothing: in a list or on the CPU, and not while compiling or tracing. The docstrings describe the
result for values that are out of range but could not be checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import cross_entropy, nll_loss

from packviz.core.layout import (
    BOOLEANS_MESSAGE,
    MAX_STEPS,
    Layout,
    is_mask,
    read_lengths,
    read_mask,
)
from packviz.core.padded import PaddedShape, dimension_order, is_constant, is_padding_on_side
from packviz.core.util import warn
from packviz.core.validation import kind_of, reject_entries, require_one_of, require_plain_values

Lengths = Tensor | npt.NDArray[Any] | Layout | Sequence[int]
"""`(B,)` whole numbers, each at least 0: an integer tensor on any device, or anything else that
`read_lengths` accepts. Or a mask, `(B, T)`: a tensor or an array of booleans, or of 0 and 1, that
is 1 at real cells, with the padding on the right.

Floats that are whole numbers are accepted in a list, and on the CPU while nothing is being
compiled.
"""

PaddingSide = Literal["right", "left"]
"""The side of the padding, as in tokenizers. With `"right"` the data comes first."""


def real_mask(lengths: Lengths, max_len: int | None = None) -> Tensor:
    """Returns a mask that is True at the real cells of a padded batch.

    torch's attention modules expect the opposite mask, which is True at padding. To select the real
    cells of a loss, use the mask itself::

        attention(x, x, x, key_padding_mask=~pv.real_mask(lengths, T))
        loss[pv.real_mask(lengths, T)].mean()  # loss is (B, T), computed with reduction="none"

    Args:
        lengths: `(B,)` whole numbers, each at least 0; or a mask, `(B, T)`, of booleans or of 0 and
            1. The result is on the same device as the lengths, or on the CPU for a list.
        max_len: `T`, the padded length in time steps. Defaults to `max(lengths)`, or to the width
            of a mask or a `Layout`. `max_len` is required while compiling or tracing, and for
            lengths on an accelerator, where finding the longest length would wait for the device.

    Returns:
        `(B, T)` booleans, True at real cells, for a batch with the padding on the right. With the
        padding on the left, the mask is `real_mask(lengths, T).flip(1)`; for a time-major batch it
        is `real_mask(lengths, T).T`. A length over `T` that could not be checked counts as `T`.

    Raises:
        ValueError: a length is not a whole number of at least 0, or is over `max_len` or
            10,000,000; a mask has padding before real cells; or `max_len` is not valid, or is
            required but missing.

    Examples:
        >>> import packviz as pv
        >>> mask = pv.real_mask([3, 1])
        >>> mask
        tensor([[ True,  True,  True],
                [ True, False, False]])
        >>> picture = pv.draw.Aligned.of(mask, [3, 1], title="real_mask([3, 1])", batch_first=True)
    """
    n = lengths_tensor(lengths)
    if max_len is None:
        max_len = getattr(lengths, "max_len", None)  # of a Layout
        if is_mask(lengths):
            max_len = lengths.shape[1]
    if max_len is None:
        if not _is_readable(n):
            raise ValueError(
                "max_len is required where the lengths cannot be read at once: on an accelerator,"
                " and while compiling or tracing; pass max_len=x.shape[…]"
            )
        _check_length_range(n, MAX_STEPS, "the largest number of time steps in a mask")
        max_len = max([0, *n.tolist()])
    steps = require_step_count(max_len, "max_len")
    _check_length_range(n, steps, "max_len")
    return _mask_from_lengths(n, steps)


LossFunction = Callable[..., Tensor]
"""A function of tensors that accepts `reduction="none"`, such as `F.cross_entropy`."""

Reduction = Literal["mean", "sum", "sequence"]


def masked_loss(
    loss: Tensor | LossFunction,
    *tensors: Any,
    lengths: Any = None,
    batch_first: bool | None = None,
    reduction: Reduction = "mean",
    **options: Any,
) -> Tensor:
    """Computes a loss over the real cells only.

    Call it in one of two ways::

        pv.masked_loss(F.cross_entropy, logits, targets, lengths, batch_first=True)
        pv.masked_loss(loss, lengths, batch_first=True)  # loss has at least one number per cell

    Args:
        loss: a function from `torch.nn.functional`, such as `F.cross_entropy`, `F.nll_loss`,
            `F.mse_loss` or `F.binary_cross_entropy_with_logits`, or any other that takes
            predictions, targets and `reduction="none"`.
            `loss` can also be a tensor of floats, with one or more per cell: `(T, B, …)`, or `(B,
            T, …)` with `batch_first`. For example, pass the result of such a function, or
            `(prediction == target).float()` to compute the accuracy. The sequences must start at
            step 0.
        *tensors: if `loss` is a function, the predictions and the targets (and any other tensors
            that it takes). In both ways of calling, the lengths come last. The tensors are `(T, B,
            …)`, or `(B, T, …)` with `batch_first`. The function receives them with the first two
            dimensions flattened into one and zeros at padding, so the classes of `F.cross_entropy`
            are the third dimension, as in logits `(B, T, C)` and targets `(B, T)`.
        lengths: `(B,)` whole numbers, each from 0 to `T`, or a mask, `(B, T)`. They can be passed
            by position or by name.
        batch_first: whether the batch is the first dimension. Defaults to False, as in torch, with
            a warning if `B` equals `T` (but not while compiling).
        reduction: `"mean"` returns the mean over all real cells, so every token has the same
            weight, whichever sequence it is in. `"sum"` returns the sum; to average over several
            processes, add up their sums, and divide by the number of all their tokens. `"sequence"`
            returns the mean of each sequence. Cells whose target is a whole number equal to
            `ignore_index` (by default -100) do not count. In the means of `F.cross_entropy` and
            `F.nll_loss`, the others count with the `weight` of their class, as in torch.
        **options: arguments of the function, such as `weight`, `ignore_index` or `label_smoothing`.

    Returns:
        A scalar, or `(B,)` for `"sequence"`, with the dtype of the loss. The loss of an empty
        sequence, or of a batch of empty sequences, is 0 with zero gradient. A length over `T` that
        could not be checked counts as `T`.

        The padding has no influence, even if it contains NaN, infinity or a class that does not
        exist, and its gradient
        is exactly zero. If `loss` is a tensor, only its own gradient is sure to be zero there. If a
        *prediction* in the padding is NaN, the backward pass of most loss functions turns this zero
        into NaN. To avoid this, pass the function.

    Raises:
        TypeError: `loss` is neither a function nor a tensor (a module such as
            `nn.CrossEntropyLoss()` is not accepted), or an argument after it is missing or not
            allowed.
        ValueError: `loss` is already reduced or not floating-point, the tensors or the lengths do
            not fit together or would be broadcast, or `reduction` is unknown.

    Warns:
        UserWarning: a real cell has the target -100, and `loss` is not torch's `cross_entropy` or
            `nll_loss`; or beyond the lengths, only some targets are -100, so the lengths may be
            wrong. Nothing is read from an accelerator for this.

    Examples:
        >>> import packviz as pv, torch
        >>> loss = torch.tensor([[1.0, 1.0, 4.0], [2.0, float("nan"), 9.0]])  # of each cell
        >>> pv.masked_loss(loss, [3, 1], batch_first=True)
        tensor(2.)
    """
    arguments: Sequence[Any] = tensors
    if lengths is None and arguments:
        *arguments, lengths = arguments
    if isinstance(lengths, bool):
        raise TypeError(f"batch_first must be passed by name: batch_first={lengths}")
    require_one_of("reduction", reduction, ("mean", "sum", "sequence"))
    cells: Any = loss
    name = "loss"
    is_loss_function = not isinstance(loss, (Tensor, Module, type)) and callable(loss)
    if is_loss_function:
        _check_loss_inputs(arguments, lengths)
        cells = arguments[0]
        name = "predictions"
    else:
        require_plain_values("loss", loss)
        _check_loss_tensor(loss, arguments, options)
    n, padded_shape = _read_lengths_and_shape(lengths, cells, name, batch_first)
    mask = _mask_from_lengths(n, padded_shape.steps)
    if not padded_shape.batch_first:
        mask = mask.T
    weights = None
    if is_loss_function:
        cells, weights = _loss_per_cell(loss, arguments, mask, options)
    total: Tensor = _sum_real_cells(cells, mask, padded_shape, reduction)
    if reduction == "sum":
        return total.to(cells.dtype)
    if weights is None:
        values_per_cell = math.prod(cells.shape[2:])
        count = n * values_per_cell
        if reduction != "sequence":
            count = count.sum()
    else:
        count = _sum_real_cells(weights, mask, padded_shape, reduction)
    mean: Tensor = total / count.masked_fill(count == 0, 1)
    return mean.to(cells.dtype)


_EXAMPLE_CALL = "pv.masked_loss(F.cross_entropy, logits, targets, lengths, batch_first=…)"


def _sum_real_cells(
    cells: Tensor, mask: Tensor, padded_shape: PaddedShape, reduction: Reduction
) -> Tensor:
    """Adds up the numbers at real cells, for each sequence or for the batch."""
    # Padding is filled with 0, not multiplied by 0, because 0 × NaN is NaN. Half precision is
    # summed in float32, because the largest number in float16 is 65,504.
    real = cells.masked_fill(~_broadcast_mask(mask, cells.ndim), 0)
    if cells.dtype in (torch.float16, torch.bfloat16):
        real = real.float()
    if reduction != "sequence":
        return real.sum()
    if not padded_shape.batch_first:
        real = real.transpose(0, 1)
    return real.flatten(1).sum(1)


def _check_loss_tensor(loss: Any, tensors: Sequence[Any], options: dict[str, Any]) -> None:
    """Raises an error if `masked_loss` cannot take the loss of each cell with these arguments."""
    if not isinstance(loss, Tensor):
        raise TypeError(
            f"loss is {kind_of(loss)}; give a floating-point tensor, or a function and its options:"
            f" {_EXAMPLE_CALL}"
        )
    if tensors or options:
        raise TypeError(
            "with a loss per cell, give only lengths, batch_first and reduction; to compute it from"
            f" predictions and targets, pass its function first: {_EXAMPLE_CALL}"
        )
    if not loss.is_floating_point() or loss.ndim < 2:
        raise ValueError(
            f"loss is {loss.dtype} of shape {tuple(loss.shape)}; give floating-point numbers with a"
            ' batch and a time dimension, computed with reduction="none", or let the loss be'
            f" computed: {_EXAMPLE_CALL}"
        )


def _check_loss_inputs(tensors: Sequence[Any], lengths: Any) -> None:
    """Raises an error if predictions, targets or lengths are missing or do not fit together."""
    if len(tensors) < 2 or lengths is None:
        raise TypeError(f"a loss function needs predictions, targets and lengths: {_EXAMPLE_CALL}")
    require_plain_values("predictions", tensors[0])
    require_plain_values("targets", tensors[1])
    if not isinstance(tensors[1], Tensor):
        raise TypeError(f"targets must be a tensor, got {kind_of(tensors[1])}")
    shapes = [tuple(getattr(value, "shape", ())) for value in tensors]
    leading_shapes = {shape[:2] for shape in shapes}
    if len(leading_shapes) > 1 or len(shapes[0]) < 2:
        raise ValueError(
            f"the tensors have shapes {' and '.join(map(str, shapes))}, but all need the same batch"
            " and time as their first two dimensions; classes come third, as in logits (B, T, C)"
            " and targets (B, T)"
        )
    predictions_shape, targets_shape = shapes[:2]
    if len(predictions_shape) != len(targets_shape) or predictions_shape == targets_shape:
        return
    if all(p == t or 1 in (p, t) for p, t in zip(predictions_shape, targets_shape, strict=True)):
        _raise_broadcast_error(predictions_shape, targets_shape)


def _raise_broadcast_error(predictions_shape: Sequence[int], targets_shape: Sequence[int]) -> None:
    raise ValueError(
        f"predictions of shape {tuple(predictions_shape)} and targets of shape"
        f" {tuple(targets_shape)} would be broadcast; give them the same shape"
        " (.squeeze(-1) removes a last dimension of 1)"
    )


def _loss_per_cell(
    function: Any, tensors: Sequence[Tensor], mask: Tensor, options: dict[str, Any]
) -> tuple[Tensor, Tensor | None]:
    """Returns the loss of each cell, and the cells' weights in a mean (`None` if all are equal)."""
    while isinstance(function, partial) and not function.args:
        options = {**function.keywords, **options}
        function = function.func
    # Padding is filled with zeros, because NaN would give a gradient of NaN, and a class there may
    # not exist.
    filled_tensors = [
        tensor.masked_fill(~_broadcast_mask(mask, tensor.ndim), 0) for tensor in tensors
    ]
    flat_tensors = [tensor.flatten(0, 1) for tensor in filled_tensors]
    options = {**options, "reduction": "none"}
    weight = options.get("weight")
    if isinstance(weight, Tensor) and weight.shape[:2] in (mask.shape, flat_tensors[0].shape[:2]):
        raise ValueError(
            f"weight has shape {tuple(weight.shape)}; give one number per class, or multiply the"
            " loss of each cell: pv.masked_loss(loss * weight, lengths)"
        )
    loss = function(*flat_tensors, **options)
    if loss.ndim == 0 or loss.shape[0] != mask.numel():
        raise ValueError(
            f"the loss function returned shape {tuple(loss.shape)} where B · T = {mask.numel()};"
            ' called with reduction="none", it must return a loss per cell'
        )
    smaller_ndim = min(flat_tensors[0].ndim, flat_tensors[1].ndim)
    shapes = [tensor.shape for tensor in flat_tensors[:2] if tensor.ndim == smaller_ndim]
    if loss.numel() != mask.numel() and loss.shape not in shapes:
        _raise_broadcast_error(tensors[0].shape, tensors[1].shape)
    loss = loss.unflatten(0, mask.shape)
    targets = filled_tensors[1]
    has_class_targets = not targets.is_floating_point() and targets.dtype != torch.bool
    if not has_class_targets or loss.shape != targets.shape:
        return loss, None
    is_torch_loss = function in (cross_entropy, nll_loss)
    ignore_index = options.get("ignore_index", -100)
    # In uint8, -100 would be class 156, and an index of uint8 would be a mask.
    _warn_of_ignored_targets(tensors[1].long() == ignore_index, mask, ignore_index, is_torch_loss)
    target_classes = targets.long()
    is_ignored = target_classes == ignore_index
    weights = torch.ones_like(loss)
    if is_torch_loss and weight is not None:
        weights = weight[target_classes.masked_fill(is_ignored, 0)]
    return loss.masked_fill(is_ignored, 0), weights.masked_fill(is_ignored, 0)


def _warn_of_ignored_targets(
    is_ignored: Tensor, mask: Tensor, ignore_index: int, is_torch_loss: bool
) -> None:
    """Warns of targets that contradict the lengths, if they can be read without waiting."""
    if not _is_readable(is_ignored):
        return
    real = _broadcast_mask(mask, is_ignored.ndim).cpu()
    n_ignored_real = int((is_ignored & real).sum())
    if n_ignored_real and not is_torch_loss:
        warn(
            f"the loss does not count real cells whose target is {ignore_index}"
            f" ({n_ignored_real} here)"
        )
    padding = ~real
    if ignore_index < 0 and (padding & ~is_ignored).any() and (padding & is_ignored).any():
        warn(
            f"beyond the lengths, some targets are {ignore_index}, but not all of them:"
            " check the lengths"
        )


def align(
    x: Tensor,
    lengths: Lengths,
    *,
    padding_side: PaddingSide = "right",
    source_side: PaddingSide | None = None,
    max_len: int | None = None,
    batch_first: bool | None = None,
    padding_value: float = 0.0,
) -> Tensor:
    """Moves the padding of a batch to one side, according to its lengths or its mask.

    Args:
        x: `(T, B, …)`, or `(B, T, …)` with `batch_first`: a padded batch of any dtype for
            which torch implements `index_select`, so not of float8 or uint16.
        lengths: `(B,)` whole numbers, each from 0 to `T`; or a mask, `(B, T)` booleans (or the
            integers 0 and 1), True at real cells, such as a tokenizer's `attention_mask`. Like the
            result of `real_mask`, a mask is batch first, whatever the order of `x`. With a mask,
            the real cells may be anywhere: they keep their order, and gaps between them are closed.
        padding_side: the side of the padding in the result: `"right"` (data first, as for packing)
            or `"left"`.
        source_side: the side of the padding in `x`. Defaults to the opposite of `padding_side`. If
            both sides are the same, only the padding value and the width change. If you leave it
            out, and the values on the CPU show that `x` is aligned already (the same value fills
            the padding on that side, and not on the other), nothing is moved, with a warning. Don't
            pass `source_side` with a mask.
        max_len: width of the result in time steps. Defaults to `T`.
        batch_first: whether the batch is the first dimension of `x`. Defaults to False, as in
            torch, with a warning if `B` equals `T` (but not while compiling).
        padding_value: value that fills the padding of the result, such as the tokenizer's
            `pad_token_id` for token ids. Values in the padding of `x`, including NaN, have no
            effect.

    Returns:
        `x` with its padding moved, and with `max_len` time steps. If a length is over `max_len`
        but could not be checked, its sequence loses steps: the last ones if `padding_side` is
        `"right"`, and the first ones if it is `"left"`. In a mask that could not be checked,
        anything but 0 counts as 1.

    Raises:
        TypeError: `x` is not a dense tensor.
        ValueError: a side is unknown, or `source_side` is passed with a mask; the lengths or the
            mask do not fit `x` or `max_len`; the values on the CPU show that a mask is inverted; or
            an integer dtype cannot hold `padding_value`.
        RuntimeError: torch cannot convert `padding_value` to a floating-point dtype.

    Warns:
        UserWarning: `x` is aligned already, so nothing is moved.

    Examples:
        >>> import packviz as pv, torch
        >>> x = torch.tensor([[7, 8, 9], [5, 0, 0]])
        >>> left = pv.align(x, [3, 1], padding_side="left", batch_first=True)
        >>> left
        tensor([[7, 8, 9],
                [0, 0, 5]])
        >>> picture = pv.draw.Aligned.of(left, [3, 1], padding_side="left", batch_first=True)
    """
    require_one_of("padding_side", padding_side, ("right", "left"))
    require_one_of("source_side", source_side, ("right", "left", None))
    mask = None
    if is_mask(lengths):
        mask = _mask_tensor(lengths)
        lengths = mask.sum(1)
        if source_side is not None:
            raise ValueError(
                f"source_side is {source_side!r}, but a mask shows where the padding is;"
                " omit source_side"
            )
    n, padded_shape = _read_lengths_and_shape(lengths, x, "x", batch_first, mask)
    require_padding_value(padding_value, x.dtype)
    output_steps = padded_shape.steps
    if max_len is not None:
        output_steps = require_step_count(max_len, "max_len")
        _check_length_range(
            lengths_tensor(lengths),
            output_steps,
            "max_len",
            "lengths" if mask is None else "mask.sum(1)",
        )
    cells = x if padded_shape.batch_first else x.transpose(0, 1)
    if source_side is None:
        source_side = "left" if padding_side == "right" else "right"
        can_read_values = _is_readable(cells) and _is_readable(n)
        if mask is None and can_read_values and is_padding_on_side(cells, n.numpy(), padding_side):
            source_side = padding_side
            warn(
                f"x already has its padding on the {padding_side}, so nothing is moved; pass"
                f" source_side={padding_side!r} if this is correct, or the other side if it is not"
            )
    if mask is not None:
        _refuse_inverted_mask(cells, mask)
    end = n.unsqueeze(1)
    column = torch.arange(output_steps, device=x.device)
    step = column  # within each sequence, (B, output_steps)
    if padding_side == "left":
        step = column - output_steps + end
    real = (step >= 0) & (step < end)
    # A rotation, or a sort, reads the padding from many cells. It may read any cells, because the
    # padding is overwritten. If it were read from a single cell, all gradients would be added up
    # there, which is slow.
    source_step = step
    if mask is None and source_side == "left":
        source_step = step + padded_shape.steps - end
    source_step = source_step.remainder(max(padded_shape.steps, 1))
    if mask is not None and padded_shape.steps:
        is_padding = to_device(mask, x.device).logical_not().to(torch.uint8)
        real_first_order = is_padding.argsort(dim=1, stable=True)
        source_step = real_first_order.gather(
            1, source_step.expand(padded_shape.batch, output_steps)
        )
    sequence = torch.arange(padded_shape.batch, device=x.device).unsqueeze(1)
    index = padded_shape.row_index(sequence, source_step)
    if not padded_shape.batch_first:
        index = index.T
        real = real.T
    return gather_with_padding(x.flatten(0, 1), index, real, padding_value)


def last_output(
    output: Tensor,
    lengths: Lengths,
    batch_first: bool | None = None,
    *,
    bidirectional: bool = False,
) -> Tensor:
    """Returns an RNN's output at the last real step of each sequence.

    Args:
        output: `(T, B, D·P)`, or `(B, T, D·P)` with `batch_first`: the padded output of the RNN.
        lengths: `(B,)` whole numbers, each from 0 to `T`, or a mask, `(B, T)`.
        batch_first: whether the batch is the first dimension. Defaults to False, as in torch, with
            a warning if `B` equals `T`.
        bidirectional: whether `output` has two directions. The result then has the forward half at
            the last real step, and the reverse half at step 0, where that direction ends.

    Returns:
        `(B, D·P)`: what a classifier takes. For an RNN of one layer, this is `h_n`, with its
        directions side by side. An empty sequence gives zeros.

    Raises:
        TypeError: `output` is not a dense tensor.
        ValueError: the lengths do not fit `output`; or, with `bidirectional`, its third dimension
            is missing or odd.

    Examples:
        >>> import packviz as pv, torch
        >>> lstm = pv.LSTM(3, 4, bidirectional=True)
        >>> output, (h_n, c_n) = lstm(torch.randn(5, 2, 3), lengths=[2, 5])
        >>> last = pv.last_output(output, [2, 5], bidirectional=True)
        >>> torch.equal(last, torch.cat([h_n[0], h_n[1]], 1))
        True
    """
    n, padded_shape = _read_lengths_and_shape(lengths, output, "output", batch_first)
    rows = output.flatten(0, 1)
    sequence = torch.arange(padded_shape.batch, device=output.device)
    step = (n - 1).clamp(min=0)
    last_output_rows = gather_with_padding(rows, padded_shape.row_index(sequence, step), n > 0, 0.0)
    if not bidirectional:
        return last_output_rows
    if output.ndim != 3 or output.shape[2] % 2:
        raise ValueError(
            f"output has shape {tuple(output.shape)}, and no third dimension with two directions of"
            " equal size: leave bidirectional out, or give the output of a bidirectional RNN"
        )
    first_output = gather_with_padding(rows, padded_shape.row_index(sequence, step * 0), n > 0, 0.0)
    return torch.cat([last_output_rows.chunk(2, 1)[0], first_output.chunk(2, 1)[1]], 1)


def _refuse_inverted_mask(cells: Tensor, mask: Tensor) -> None:
    """Raises an error if the same value fills the cells where a mask is True, but no others."""
    if not (_is_readable(cells) and _is_readable(mask)):
        return
    if mask.sum() < 2 or mask.all():
        return
    cells_outside_mask = cells[~mask]
    varies_outside_mask = (
        not is_constant(cells_outside_mask) and cells_outside_mask.isfinite().all()
    )
    if varies_outside_mask and is_constant(cells[mask]):
        raise ValueError(
            "x has the same value wherever the mask is True, and different ones elsewhere, so the"
            " mask seems to be True at padding: pass mask == 0, or, if it is right, lengths"
        )


def gather_with_padding(rows: Tensor, index: Tensor, real: Tensor, padding_value: float) -> Tensor:
    """Returns `rows[index]` where `real` is True, and padding elsewhere.

    Both the forward and the backward pass copy whole rows.
    """
    shape = (*index.shape, *rows.shape[1:])
    if rows.shape[0] == 0:
        return rows.new_full(shape, padding_value)
    gathered_rows = rows.index_select(0, index.flatten()).reshape(shape)
    return gathered_rows.masked_fill(~_broadcast_mask(real, gathered_rows.ndim), padding_value)


def _mask_from_lengths(n: Tensor, steps: int) -> Tensor:
    # This file never uses n[:, None], which also slices, because torch 2.7 cannot export slices of
    # dynamic dimensions.
    return torch.arange(steps, device=n.device) < n.unsqueeze(1)


def _broadcast_mask(mask: Tensor, ndim: int) -> Tensor:
    """Reshapes a mask so that it broadcasts with a tensor of `ndim` dimensions."""
    return mask.reshape(*mask.shape, *[1] * (ndim - mask.ndim))


def _read_lengths_and_shape(
    lengths: Lengths, x: Tensor, name: str, batch_first: bool | None, mask: Tensor | None = None
) -> tuple[Tensor, PaddedShape]:
    """Checks that lengths or a mask fit `x`. Returns lengths on its device, and its dimensions."""
    if not isinstance(x, Tensor):
        raise TypeError(
            f"{name} must be a tensor {dimension_order(batch_first)}, got {type(x).__name__}"
        )
    require_plain_values(name, x)
    if x.ndim < 2:
        raise ValueError(
            f"{name} must be {dimension_order(batch_first)}, got shape {tuple(x.shape)}"
        )
    n = lengths_tensor(lengths)
    if torch.compiler.is_compiling():
        batch_first = bool(batch_first)  # a warning would break the graph
    padded_shape = PaddedShape.from_checked_shape(n.shape[0], x.shape, batch_first, name)
    require_mask_width(lengths if mask is None else mask, padded_shape.steps)
    lengths_on_device = to_device(n, x.device)
    is_readable = _is_readable(n)
    checked_lengths = n if is_readable else lengths_on_device
    _check_length_range(checked_lengths, padded_shape.steps, f"the time steps of {name}")
    if is_readable:
        return lengths_on_device, padded_shape
    return lengths_on_device.clamp(0, padded_shape.steps), padded_shape


def require_mask_width(lengths: Any, steps: int) -> None:
    """Checks that a mask has as many time steps as its batch. Lengths always pass.

    Raises:
        ValueError: it has more or fewer.
    """
    if torch.compiler.is_compiling() or is_tracing():
        return
    if is_mask(lengths) and lengths.shape[1] != steps:
        raise ValueError(
            f"the mask has shape {tuple(lengths.shape)}, but the batch has T = {steps}; a mask is"
            " always (B, T), and lengths are (B,)"
        )


def lengths_tensor(lengths: Lengths) -> Tensor:
    """Returns `(B,)` lengths, or those of a mask, as an int64 tensor.

    It is on their own device, or on the CPU for anything but a tensor.

    Raises:
        TypeError: the lengths are a nested, sparse or quantised tensor, or a NumPy masked array.
        ValueError: the lengths are not whole numbers, or are not one-dimensional; or a mask has
            other values, or padding before real cells.
    """
    require_plain_values("lengths", lengths)
    if is_mask(lengths):
        mask = _mask_tensor(lengths)
        if not _is_readable(mask):
            return mask.sum(1)
        return torch.tensor(Layout.from_mask(mask).lengths)
    if torch.compiler.is_compiling() and not isinstance(lengths, Tensor):
        if isinstance(lengths, Layout):
            lengths = lengths.lengths
        lengths = torch.as_tensor(lengths, device="cpu")  # a constant of the graph
    if not isinstance(lengths, Tensor) or (lengths.dtype != torch.int64 and _is_readable(lengths)):
        return torch.from_numpy(read_lengths(lengths, allow_empty=True))
    if lengths.dtype == torch.bool:
        raise ValueError(BOOLEANS_MESSAGE)
    if lengths.ndim != 1 or lengths.is_floating_point() or lengths.is_complex():
        raise ValueError(
            f"lengths must be B whole numbers or a (B, T) mask, got {lengths.dtype} of shape"
            f" {tuple(lengths.shape)} on {lengths.device}; give one whole number per sequence"
        )
    return lengths.long()


def _mask_tensor(mask: object) -> Tensor:
    """Returns a mask of booleans, or of 0 and 1, as a tensor of booleans.

    Raises:
        TypeError: `mask` is a nested, sparse or quantised tensor, or a NumPy masked array.
        ValueError: `mask` contains floats, or numbers other than 0 and 1.
    """
    require_plain_values("mask", mask)
    values = mask if isinstance(mask, Tensor) else torch.tensor(np.asarray(mask), device="cpu")
    if values.is_floating_point() or values.is_complex():
        raise ValueError(
            f"a mask of {values.dtype} is ambiguous; give booleans, as in mask == 1, or the"
            " integers 0 and 1 (lengths have one dimension)"
        )
    if _is_readable(values):
        return torch.from_numpy(read_mask(values))
    return values.bool()


def require_padding_value(value: Any, dtype: torch.dtype) -> None:
    """Checks that a tensor of this dtype, if it holds integers or booleans, can hold a value.

    Raises:
        ValueError: it would become another number.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if dtype.is_floating_point or dtype.is_complex or not isinstance(value, (int, float)):
        return
    low = 0
    high = 1
    if dtype != torch.bool:
        dtype_limits = torch.iinfo(dtype)
        low = dtype_limits.min
        high = dtype_limits.max
    if not low <= value <= high or value != int(value):
        raise ValueError(
            f"padding_value is {value}, which {dtype} cannot hold: give a whole number from {low}"
            f" to {high}"
        )


def require_step_count(value: int, name: str) -> int:
    """Checks a number of time steps, and returns it.

    Raises:
        ValueError: `value` is not a whole number of at least 0, or exceeds 10,000,000.
    """
    is_whole = isinstance(value, (int, torch.SymInt, np.integer))
    if isinstance(value, bool) or not is_whole or value < 0:
        raise ValueError(f"{name} is {value!r}; give a whole number of time steps, at least 0")
    if isinstance(value, int) and value > MAX_STEPS:
        raise ValueError(f"{name} is {value}; give at most {MAX_STEPS:,} time steps")
    return value


def _check_length_range(n: Tensor, maximum: int, limit_name: str, name: str = "lengths") -> None:
    """Raises an error for lengths out of range, if they can be read without waiting."""
    if not _is_readable(n):
        return
    values = n.numpy()
    reject_entries(values, values < 0, name, "a sequence has at least 0 time steps")
    reject_entries(values, values > maximum, name, f"more than {limit_name} ({maximum})")


def is_tracing() -> bool:
    """Returns whether `torch.jit.trace` or the legacy ONNX exporter records what is called."""
    return bool(torch.jit.is_tracing())  # type: ignore[no-untyped-call,attr-defined]


def _is_readable(n: Tensor) -> bool:
    """Returns whether values can be read: on the CPU, and not compiled, traced or transformed."""
    if torch.compiler.is_compiling() or is_tracing() or not n.is_cpu:
        return False
    if type(n).__torch_dispatch__ is not Tensor.__torch_dispatch__:  # its values are elsewhere
        return False
    try:
        n.data_ptr()
    except RuntimeError:  # a transform of torch.func has wrapped it
        return False
    return True


def to_device(n: Tensor, device: torch.device) -> Tensor:
    """Moves a tensor to a device. torch waits only for a move from an accelerator to the CPU.

    A GPU copies from pinned memory; with other memory, CUDA may wait for the GPU's earlier work.
    """
    if device.type == "cuda" and _is_readable(n):
        n = n.pin_memory()
    return n.to(device, non_blocking=device.type != "cpu")
