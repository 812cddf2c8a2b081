"""Provides helpers for padded batches. They build a mask, compute a loss, or move the padding to
one side.

The helpers take and return tensors on any device, with any number of further dimensions. They rely
on the lengths or a mask, and never guess the lengths from zeros in the data. A sequence may be
empty.

Nothing here waits for an accelerator, except `align` with `check_padding`. The helpers take sizes
from shapes, not from
values on an accelerator. The values of lengths and masks are checked only if reading them costs
nothing: in a list or on the CPU, and not while compiling. The docstrings describe the result for
values that are out of range but could not be checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Real
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import cross_entropy, nll_loss

from packviz.core.layout import BOOLEANS, Layout, host_array, read_lengths
from packviz.core.padded import Padded, order, reading
from packviz.core.validation import (
    SENSE_REVERSED,
    kind_of,
    one_of,
    renamed,
    require_dense,
    require_values,
)

Lengths = Tensor | Layout | Sequence[int]
"""`(B,)` whole numbers, each at least 0: an integer tensor on any device, or anything else that
`read_lengths` accepts.

Floats that are whole numbers are accepted in a list, and on the CPU while nothing is being
compiled.
"""

Side = Literal["right", "left"]
"""The side of the padding, as in tokenizers. With `"right"` the data comes first; with `"left"` the padding does."""


def real_mask(lengths: Lengths, max_len: int | None = None) -> Tensor:
    """Returns a mask that is True at the real cells of a padded batch.

    torch's attention modules expect the opposite mask, which is True at padding. To select the real
    cells of a loss, use the mask itself:

        attention(x, x, x, key_padding_mask=~pv.real_mask(lengths, T))
        loss[pv.real_mask(lengths, T)].mean()  # loss is (B, T), computed with reduction="none"

    Args:
        lengths: `(B,)` whole numbers, each at least 0. The mask is on the same device as the
            lengths, or on the CPU for a list.
        max_len: `T`, the padded length in time steps. Defaults to `max(lengths)`, or to the
            `max_len` of a `Layout`. `max_len` is required while compiling, and for lengths on an
            accelerator, where finding the longest length would wait for the device.

    Returns:
        `(B, T)` booleans, True at real cells, for a batch with the padding on the right. With the
        padding on the left, the mask is `real_mask(lengths, T).flip(1)`; for a time-major batch it
        is `real_mask(lengths, T).T`. A length over `T` that could not be checked counts as `T`.

    Raises:
        ValueError: a length is not a whole number of at least 0, or is over `max_len`; or `max_len`
            is required but missing.

    Examples:
        >>> import packviz as pv
        >>> mask = pv.real_mask([3, 1])
        >>> mask
        tensor([[ True,  True,  True],
                [ True, False, False]])
        >>> picture = pv.draw.Aligned.of(mask, [3, 1], title="real_mask([3, 1])", batch_first=True)
    """
    n = lengths_tensor(lengths)
    if max_len is None and isinstance(lengths, Layout):
        max_len = lengths.max_len
    elif max_len is None:
        if not _is_readable(n):
            raise ValueError(
                f"max_len is required here: finding the longest length on {n.device}, or while compiling, would wait"
                " for the device. Pass the padded length, max_len=x.shape[…], or pass lengths.cpu()"
            )
        max_len = max([0, *n.tolist()])  # a negative length raises its own error below
    steps = time_steps(max_len, "max_len")
    _check(n, steps, "max_len")
    return _is_real(n, steps)


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

    Call it in one of two ways:

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
        lengths: `(B,)` whole numbers, each from 0 to `T`. They can be passed by position or by
            name.
        batch_first: whether the batch is the first dimension. Defaults to False, as in torch, with
            a warning if `B` equals `T` (but not while compiling).
        reduction: `"mean"` returns the mean over all real cells, so every token has the same
            weight, whichever sequence it is in. `"sum"` returns the sum; to average over several
            workers, add up their sums, and divide by the number of all their tokens. `"sequence"`
            returns the mean of each sequence. If the targets are class
            indices, the means of `F.cross_entropy` and `F.nll_loss` are weighted, as in torch:
            cells with `ignore_index` do not count, and the others count with the `weight` of their
            class.
        **options: arguments of the function, such as `weight`, `ignore_index` or `label_smoothing`.

    Returns:
        A scalar, or `(B,)` for `"sequence"`, with the dtype of the loss. The loss of an empty
        sequence, or of a batch of empty sequences, is 0 with zero gradient. A length over `T` that
        could not be checked counts as `T`.

        The padding has no influence, even if it contains NaN, infinity or a class that does not
        exist, and its gradient
        is exactly zero. If `loss` is a tensor, only its own gradient is sure to be zero: where a
        *prediction* in the padding is NaN, the backward pass of most loss functions turns this zero
        into NaN. To avoid this, pass the function.

    Raises:
        TypeError: `loss` is neither a function nor a tensor (a module such as
            `nn.CrossEntropyLoss()` is not accepted), or an argument after it is missing or not
            allowed.
        ValueError: `loss` is already reduced or not floating-point, the tensors or the lengths do
            not fit together, or `reduction` is unknown.

    Examples:
        >>> import packviz as pv, torch
        >>> loss = torch.tensor([[1.0, 1.0, 4.0], [2.0, float("nan"), 9.0]])  # of each cell
        >>> pv.masked_loss(loss, [3, 1], batch_first=True)
        tensor(2.)
    """
    if lengths is None and tensors:
        *tensors, lengths = tensors  # type: ignore[assignment]
    if isinstance(lengths, bool):
        raise TypeError(f"batch_first must be passed by name: batch_first={lengths}")
    one_of("reduction", reduction, ("mean", "sum", "sequence"))
    is_function = callable(loss) and not isinstance(loss, (Tensor, Module))
    _check_call(loss, is_function, tensors, lengths, options)
    values: Any = tensors[0] if is_function else loss
    n, read = _fitted(lengths, values, "predictions" if is_function else "loss", batch_first)
    mask = _is_real(n, read.steps)
    mask = mask if read.batch_first else mask.T
    weights = None
    if is_function:
        values, weights = _per_element(loss, tensors, mask, options)

    def summed(cells: Tensor) -> Tensor:
        # Padding is filled with 0, not multiplied by 0, because 0 × NaN is NaN. Half precision is
        # summed in float32, because the largest number in float16 is 65,504.
        exact = torch.float32 if cells.dtype in (torch.float16, torch.bfloat16) else cells.dtype
        real = cells.masked_fill(~_widened(mask, cells.ndim), 0).to(exact)
        if reduction != "sequence":
            return real.sum()
        return (real if read.batch_first else real.transpose(0, 1)).flatten(1).sum(1)

    total = summed(values)
    if reduction != "sum":
        if weights is None:
            count = (n if reduction == "sequence" else n.sum()) * math.prod(values.shape[2:])
        else:
            count = summed(weights)
        total = total / count.masked_fill(count == 0, 1)
    return total.to(values.dtype)


_FUNCTION_FIRST = "pv.masked_loss(F.cross_entropy, logits, targets, lengths, batch_first=…)"


def _check_call(
    loss: Any, is_function: bool, tensors: Sequence[Any], lengths: Any, options: Any
) -> None:
    """Raises an error if `masked_loss` does not accept the loss, or the arguments that follow it."""
    if is_function:
        if len(tensors) < 2 or lengths is None:
            raise TypeError(
                f"a loss function needs predictions, targets and lengths: {_FUNCTION_FIRST}"
            )
        for name, value in zip(("predictions", "targets"), tensors, strict=False):
            require_dense(name, value)
        shapes = [tuple(getattr(value, "shape", ())) for value in tensors]
        if any(len(shape) < 2 or shape[:2] != shapes[0][:2] for shape in shapes):
            raise ValueError(
                f"predictions and targets have shapes {' and '.join(map(str, shapes))}, but must agree in their first"
                " two dimensions, batch and time; classes come third, as in logits (B, T, C) and targets (B, T)"
            )
        return
    if not isinstance(loss, Tensor):
        raise TypeError(
            f"loss is {kind_of(loss)}; give a floating-point tensor, or a function and its options: {_FUNCTION_FIRST}"
        )
    if tensors or options:
        raise TypeError(
            "a loss per cell must be followed by the lengths only; to compute the loss from predictions and targets,"
            f" pass its function first: {_FUNCTION_FIRST}"
        )
    if not loss.is_floating_point() or loss.ndim < 2:
        raise ValueError(
            f"loss is {loss.dtype} of shape {tuple(loss.shape)}; give floating-point numbers with a batch and a time"
            f' dimension, computed with reduction="none", or let the loss be computed: {_FUNCTION_FIRST}'
        )


def _per_element(
    function: Any, tensors: Sequence[Tensor], mask: Tensor, options: dict[str, Any]
) -> tuple[Tensor, Tensor | None]:
    """Returns the loss of each cell, and the weights of the cells in a mean (`None` if all weights are 1)."""
    while isinstance(function, partial) and not function.args:
        function, options = function.func, {**function.keywords, **options}
    # Padding is filled with zeros, because NaN would give a gradient of NaN, and a class there may
    # not exist.
    filled = [one.masked_fill(~_widened(mask, one.ndim), 0) for one in tensors]
    loss = function(*(one.flatten(0, 1) for one in filled), **{**options, "reduction": "none"})
    if loss.ndim == 0 or loss.shape[0] != mask.numel():
        raise ValueError(
            f"the loss function returned shape {tuple(loss.shape)} for {mask.numel()} cells; it must return a loss per"
            ' cell when called with reduction="none"'
        )
    targets = filled[1]
    if function not in (cross_entropy, nll_loss) or targets.is_floating_point():
        return loss.unflatten(0, mask.shape), None
    ignored = targets == options.get("ignore_index", -100)
    weight = options.get("weight")
    weights = (
        torch.ones_like(targets, dtype=loss.dtype)
        if weight is None
        else weight[targets.masked_fill(ignored, 0)]
    )
    return loss.unflatten(0, mask.shape), weights.masked_fill(ignored, 0)


@renamed(max_length="max_len")
@renamed(SENSE_REVERSED, to="padding_side", source="source_side")
def align(
    x: Tensor,
    lengths: Lengths | Sequence[Sequence[int]],
    *,
    padding_side: Side = "right",
    source_side: Side | None = None,
    max_len: int | None = None,
    batch_first: bool | None = None,
    padding_value: float = 0.0,
    check_padding: float | None = None,
) -> Tensor:
    """Moves the padding of a batch to one side, according to its lengths or its mask.

    Args:
        x: `(T, B, …)`, or `(B, T, …)` with `batch_first`: a padded batch of any dtype.
        lengths: `(B,)` whole numbers, each from 0 to `T`; or a mask, `(B, T)` booleans (or the
            integers 0 and 1), True at real cells, such as a tokenizer's `attention_mask`. Like the
            result of `real_mask`, a mask is batch
            first, whatever the order of `x`. With a mask, the real cells may be anywhere: they keep
            their order, and gaps between them are closed.
        padding_side: the side of the padding in the result: `"right"` (data first, as for packing)
            or `"left"`.
        source_side: the side of the padding in `x`. Defaults to the opposite of `padding_side`, so
            aligning a batch twice to the same side loses data (`check_padding` detects this). If
            both sides are the same, only the padding value and the width change. Don't pass
            `source_side` with a mask.
        max_len: width of the result in time steps. Defaults to `T`.
        batch_first: whether the batch is the first dimension of `x`. Defaults to False, as in
            torch, with a warning if `B` equals `T` (but not while compiling).
        padding_value: value that fills the padding of the result, such as the tokenizer's
            `pad_token_id` for token ids. Values in the padding of `x`, including NaN, have no
            effect.
        check_padding: the value that fills the padding of `x`. If it is passed, `align` checks that
            all cells in the padding have this value, and that the first and last real cells of each
            sequence do not. The check waits for the device. Without `check_padding`, nothing is
            read from an accelerator.

    Returns:
        `x` with its padding moved, and with `max_len` time steps. A sequence whose length is over
        `max_len`, but could
        not be checked, loses steps: the last ones if `padding_side` is `"right"`, and the first
        ones if it is `"left"`. In a mask that could not be checked, anything but 0 counts as 1.

    Raises:
        TypeError: `x` is not a dense tensor, or `check_padding` is not a number.
        ValueError: a side is unknown, or `source_side` is passed with a mask; the lengths or the
            mask do not fit `x` or `max_len`; or `check_padding` found cells that would be lost, or
            padding that would be moved as data. If `check_padding` fails, the message names the
            sequences.

    Examples:
        >>> import packviz as pv, torch
        >>> x = torch.tensor([[7, 8, 9], [5, 0, 0]])
        >>> left = pv.align(x, [3, 1], padding_side="left", batch_first=True)
        >>> left
        tensor([[7, 8, 9],
                [0, 0, 5]])
        >>> picture = pv.draw.Aligned.of(left, [3, 1], padding_side="left", batch_first=True)
    """
    one_of("padding_side", padding_side, ("right", "left"))
    one_of("source_side", source_side, ("right", "left", None))
    if check_padding is not None:
        require_values("x", x)
        require_values("lengths", lengths)
        lengths = lengths.cpu() if isinstance(lengths, Tensor) else lengths
    lengths, mask = _parted(lengths)
    if mask is not None and source_side is not None:
        raise ValueError(
            f"source_side is {source_side!r}, but a mask shows where the padding is; omit source_side"
        )
    source_side = source_side or ("left" if padding_side == "right" else "right")
    n, batch = _fitted(lengths, x, "x", batch_first, mask)
    width = batch.steps if max_len is None else time_steps(max_len, "max_len")
    if max_len is not None:
        _check(lengths, width, "max_len", "lengths" if mask is None else "mask.sum(1)")
    if check_padding is not None:
        _check_padding(x, n, batch, mask, source_side, check_padding)
    column, row = torch.arange(width, device=x.device), torch.arange(batch.batch, device=x.device)
    step = (
        column if padding_side == "right" else column - width + n.unsqueeze(1)
    )  # within each sequence, (B, width)
    real = (step >= 0) & (step < n.unsqueeze(1))
    # A rotation, or a sort, reads the padding from many cells. Any cells will do, because the
    # padding is overwritten. If it were read from a single cell, all gradients would be added up
    # there, which is slow.
    if mask is None or batch.steps == 0:
        now = (step if source_side == "right" else step + batch.steps - n.unsqueeze(1)).remainder(
            max(batch.steps, 1)
        )
    else:
        by_reality = (
            to_device(mask, x.device).logical_not().to(torch.uint8).argsort(dim=1, stable=True)
        )
        now = by_reality.gather(1, step.remainder(batch.steps).expand(batch.batch, width))
    index = batch.rows(row.unsqueeze(1), now)
    if not batch.batch_first:
        index, real = index.T, real.T
    return padded_rows(x.flatten(0, 1), index, real, padding_value)


def _parted(lengths: Any) -> tuple[Tensor, Tensor | None]:
    """Returns the lengths and a mask. If `lengths` has two dimensions, it is the mask; otherwise the mask is `None`."""
    require_dense("lengths", lengths)
    try:
        values = _as_tensor(lengths)
    except (TypeError, ValueError, RuntimeError):
        values = None
    if values is None or values.ndim != 2:
        return lengths_tensor(lengths), None
    if values.is_floating_point() or values.is_complex():
        raise ValueError(
            f"a mask of {values.dtype} is ambiguous; give booleans (mask.bool()) or the integers 0 and 1"
        )
    if _is_readable(values) and (wrong := (values != 0) & (values != 1)).any():
        b, t = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"mask[{b}, {t}] is {values[b, t]}; give True or 1 at real cells, and False or 0 at padding"
        )
    mask = values.bool()
    return mask.sum(1), mask


def _check_padding(
    x: Tensor, n: Tensor, batch: Padded, mask: Tensor | None, side: Side, value: Any
) -> None:
    """Checks that each sequence extends exactly from the first to the last cell that differs from
    the padding.

    Raises:
        TypeError: `value` is not a number.
        ValueError: a sequence begins or ends elsewhere.
    """
    if not isinstance(value, Real) or (isinstance(value, bool) and x.dtype != torch.bool):
        raise TypeError(f"check_padding is {value!r}; give the value of the padding, such as 0")
    cells = (x if batch.batch_first else x.transpose(0, 1)).detach().cpu()
    # In a batch of floats, value is compared in their precision, so that 0.1 is found. In a batch
    # of integers, it is compared in float64, because in uint8, 300 would become 44.
    dtype = x.dtype if x.is_floating_point() or x.is_complex() else torch.float64
    equal = (
        cells.isnan() if math.isnan(value) else cells.to(dtype).eq(torch.tensor(value, dtype=dtype))
    )
    data = ~(equal if equal.ndim == 2 else equal.flatten(2).all(2))
    span = data.cumsum(1).bool() & data.flip(1).cumsum(1).flip(1).bool()

    def misfits(side: Side) -> tuple[list[int], list[int]]:
        real = _is_real(n.cpu(), batch.steps) if mask is None else mask.cpu()
        real = real.flip(1) if mask is None and side == "left" else real
        lost = (data & ~real).any(1)
        return lost.nonzero().flatten().tolist(), (
            (real & ~span).any(1) & ~lost
        ).nonzero().flatten().tolist()

    lost, blank = misfits(side)
    if not lost and not blank:
        return
    what = (
        f"values in the padding that are not {value} and would be lost",
        f"data that begins or ends with {value}",
    )
    problems = []
    for rows, which in zip((lost, blank), what, strict=True):
        named = ", ".join(map(str, rows[:8])) + ", …" * (len(rows) > 8)
        problems += (
            [f"row {named} has {which}" if len(rows) == 1 else f"rows {named} have {which}"]
            if rows
            else []
        )
    opposite: Side = "left" if side == "right" else "right"
    hint = f"check lengths and source_side, which is {side!r} here"
    if mask is not None:
        hint = "a mask must be True at real cells"
    elif misfits(opposite) == ([], []):
        hint = f"x fits source_side={opposite!r}"
    raise ValueError(f"check_padding={value}: {', and '.join(problems)}; {hint}")


def padded_rows(rows: Tensor, index: Tensor, real: Tensor, padding_value: float) -> Tensor:
    """Returns `rows[index]` where `real` is True, and padding elsewhere.

    Both the forward and the backward pass copy whole rows.
    """
    if rows.shape[0] == 0:
        return rows.new_full((*index.shape, *rows.shape[1:]), padding_value)
    taken = rows.index_select(0, index.flatten()).reshape(*index.shape, *rows.shape[1:])
    return taken.masked_fill(~_widened(real, taken.ndim), padding_value)


def _is_real(n: Tensor, steps: int) -> Tensor:
    # This file never uses n[:, None], which also slices, because torch 2.7 cannot export slices of
    # dynamic dimensions.
    return torch.arange(steps, device=n.device) < n.unsqueeze(1)


def _widened(mask: Tensor, ndim: int) -> Tensor:
    """Reshapes a mask of two dimensions so that it broadcasts with a tensor of `ndim` dimensions."""
    return mask.reshape(*mask.shape, *(1,) * (ndim - 2))


def _fitted(
    lengths: Lengths, x: Tensor, name: str, batch_first: bool | None, mask: Tensor | None = None
) -> tuple[Tensor, Padded]:
    """Checks that lengths, or a mask, fit `x`. Returns the lengths on the device of `x`, and the dimensions of `x`."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor {order(batch_first)}, got {type(x).__name__}")
    require_dense(name, x)
    if x.ndim < 2:
        raise ValueError(f"{name} must be {order(batch_first)}, got shape {tuple(x.shape)}")
    n = lengths_tensor(lengths)
    if mask is not None:
        read = Padded.of(x.shape, bool(batch_first))
        if mask.shape != (read.batch, read.steps):
            hint = (
                f"; did you mean batch_first={not batch_first}?"
                if mask.shape == (read.steps, read.batch)
                else ""
            )
            raise ValueError(
                f"mask has shape {tuple(mask.shape)}, but {reading(x.shape, batch_first, name)}, has B = {read.batch},"
                f" T = {read.steps}; a mask is (B, T) for any x{hint}"
            )
    if torch.compiler.is_compiling():
        batch_first = bool(batch_first)  # a warning would break the graph
    batch = Padded.fitting(n.shape[0], x.shape, batch_first, name)
    moved = to_device(n, x.device)
    _check(n if _is_readable(n) else moved, batch.steps, f"the time steps of {name}")
    return moved if _is_readable(n) else moved.clamp(0, batch.steps), batch


def lengths_tensor(lengths: Lengths) -> Tensor:
    """Returns `(B,)` lengths as an int64 tensor on their own device, or on the CPU for a list.

    Raises:
        ValueError: the lengths are not whole numbers, or are not one-dimensional.
    """
    if torch.compiler.is_compiling():
        lengths = _as_tensor(lengths)
    usual = (
        isinstance(lengths, Tensor)
        and lengths.dtype == torch.int64
        and lengths.layout == torch.strided
    )
    if not isinstance(lengths, Tensor) or (_is_readable(lengths) and not usual):
        return torch.from_numpy(read_lengths(lengths, empty=True))
    require_dense("lengths", lengths)
    if lengths.dtype == torch.bool:
        raise ValueError(BOOLEANS)
    if lengths.ndim != 1 or lengths.is_floating_point() or lengths.is_complex():
        got = f"{lengths.dtype} of shape {tuple(lengths.shape)} on {lengths.device}"
        raise ValueError(
            f"lengths must be (B,) whole numbers, got {got}; give one per sequence, converted with .long()"
        )
    return lengths.long()


def _as_tensor(values: Any) -> Tensor:
    if isinstance(values, Tensor):
        return values
    if torch.compiler.is_compiling():  # a list becomes a constant of the graph
        return torch.as_tensor(
            values.lengths if isinstance(values, Layout) else values, device="cpu"
        )
    return torch.tensor(host_array(values), device="cpu")


def time_steps(value: int, name: str) -> int:
    """Checks a number of time steps, and returns it.

    Raises:
        ValueError: `value` is not a whole number of at least 0.
    """
    whole = isinstance(value, (int, torch.SymInt)) or (
        hasattr(value, "__index__") and not isinstance(value, Tensor)
    )
    if isinstance(value, bool) or not whole or value < 0:
        raise ValueError(f"{name} is {value!r}; give a whole number of time steps, at least 0")
    return value


def _check(n: Tensor, most: int, limit: str, name: str = "lengths") -> None:
    """Raises an error for lengths out of range, if they can be read without waiting."""
    if not _is_readable(n):
        return
    for b, value in enumerate(n.tolist()):
        if value < 0:
            raise ValueError(f"lengths[{b}] is {value}; a sequence has at least 0 time steps")
        if value > most:
            raise ValueError(f"{name}[{b}] is {value}, more than {limit} ({most})")


def is_tracing() -> bool:
    """Returns whether `torch.jit.trace` or the legacy ONNX exporter records what is called."""
    return bool(torch.jit.is_tracing())  # type: ignore[no-untyped-call,attr-defined]


def _is_readable(n: Tensor) -> bool:
    """Returns whether a tensor's values can be read: it is plain and on the CPU, and nothing is being compiled."""
    return n.device.type == "cpu" and type(n) is Tensor and not torch.compiler.is_compiling()


def to_device(n: Tensor, device: torch.device) -> Tensor:
    """Moves a tensor to a device. torch waits only if the tensor moves from an accelerator to the CPU."""
    return n.to(device, non_blocking=device.type != "cpu")
