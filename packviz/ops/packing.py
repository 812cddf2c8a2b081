"""Packs and pads as torch does, but with a backward pass whose time is proportional to the data.

Two functions take the same arguments as their namesakes in `torch.nn.utils.rnn`, and return the
same results, bit for bit. The `PackedSequence` is torch's own, so you can mix packviz's functions
and torch's. There are **two differences**. A length greater than the input's number of time steps
raises a ValueError; torch accepts such a length and returns fewer rows of data than `batch_sizes`
promises, which leads to various errors later. A mask is accepted in place of the lengths.

torch's own functions do the work if they are faster (usually on a CPU without gradients, or for a
small batch). They are also used for input that they reject, so that the error is torch's, and in
cases that the functions here don't support: tracing, scripting, exporting, `torch.func`,
forward-mode differentiation, subclasses of `Tensor`, complex numbers, CUDA graph capture, and
devices other than CPU and CUDA. Nothing here waits for a GPU, except padding a batch that was not
packed here. Under `torch.compile` both functions cause a graph break, as torch's own functions do.
A third function, `unpack_to_length`, pads to any number of time steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.jit import is_scripting  # type: ignore[attr-defined]
from torch.nn.utils.rnn import PackedSequence

from packviz.core.layout import is_mask
from packviz.core.padded import PaddedShape, describe_shape
from packviz.ops import index as indices
from packviz.ops import original
from packviz.ops.index import (
    arrays_to_device,
    is_on_usable_device,
    needs_grad,
    pack_cells,
    unpack_rows,
)
from packviz.ops.masks import (
    gather_with_padding,
    is_tracing,
    lengths_tensor,
    require_mask_width,
    require_padding_value,
    require_step_count,
    to_device,
)
from packviz.ops.private import is_transform_active

Result = TypeVar("Result")


def pack_padded_sequence(
    input: Tensor,
    lengths: Tensor | list[int],
    batch_first: bool = False,
    enforce_sorted: bool = True,
) -> PackedSequence:
    """Packs a padded batch, as `torch.nn.utils.rnn.pack_padded_sequence` does.

    Args:
        input: `(T, B, …)`, or `(B, T, …)` with `batch_first`.
        lengths: `(B,)` whole numbers from 1 to `T`, in a list or in a tensor on the CPU; or a mask,
            `(B, T)`, as in `pv.run`.
        batch_first: whether the batch is the first dimension of `input`.
        enforce_sorted: whether the sequences must be sorted, longest first. If False, torch's own
            sort puts them in this order.

    Returns:
        What torch's function returns, bit for bit.

    Raises:
        ValueError: a length is greater than `T`, which torch accepts; or a mask is not valid.
        RuntimeError: torch rejects the input. All errors except the ValueError above are torch's
            own, with the same text.

    Examples:
        >>> import packviz as pv, torch
        >>> x = torch.tensor([[7, 8, 9], [5, 0, 0]])
        >>> packed = pv.pack_padded_sequence(x, [3, 1], batch_first=True)
        >>> packed.data, packed.batch_sizes
        (tensor([7, 5, 8, 9]), tensor([2, 1, 1]))
        >>> picture = pv.show(packed)
    """
    if not is_scripting():
        return _pack_padded(input, lengths, batch_first, enforce_sorted)
    return original.pack_padded_sequence(input, lengths, batch_first, enforce_sorted)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Unpacks a packed batch into a padded one, as `torch.nn.utils.rnn.pad_packed_sequence` does.

    Args:
        sequence: a `PackedSequence` from packviz, from torch or from an RNN, or one that was built
            by hand.
        batch_first: whether the batch is the first dimension of the result.
        padding_value: value that fills the padding.
        total_length: number of time steps in the result. Defaults to the length of the longest
            sequence.

    Returns:
        What torch's function returns, bit for bit: the padded batch, `(T, B, …)`, or `(B, T, …)`
        with `batch_first`; and the lengths, `(B,)`, on the CPU. The sequences are in the order that
        they had before packing.

    Raises:
        ValueError: `total_length` is less than the length of the longest sequence, as in torch.
            Other errors are also torch's own.

    Examples:
        >>> import packviz as pv, torch
        >>> from torch.nn.utils.rnn import pack_sequence
        >>> packed = pack_sequence([torch.tensor([7, 8, 9]), torch.tensor([5])])
        >>> pv.pad_packed_sequence(packed, batch_first=True)
        (tensor([[7, 8, 9],
                [5, 0, 0]]), tensor([3, 1]))
    """
    if not is_scripting():
        return _pad_packed(sequence, batch_first, padding_value, total_length)
    return original.pad_packed_sequence(sequence, batch_first, padding_value, total_length)


def unpack_to_length(
    packed: PackedSequence,
    total_length: int,
    batch_first: bool = False,
    padding_value: float = 0.0,
    truncate: bool = False,
) -> Tensor:
    """Unpacks a packed batch to exactly `total_length` time steps.

    The result is the same as `pad_packed_sequence(packed, batch_first, padding_value,
    total_length)[0]`, but this function can also truncate, and takes no float8 or uint16. It checks
    only the number of time steps and `padding_value`, so nothing waits for the device. Under
    `torch.compile(fullgraph=True)`, the batch must have been packed with `enforce_sorted=False`.

    Args:
        packed: a `PackedSequence` from packviz, from torch or from an RNN, or one that was built by
            hand.
        total_length: number of time steps in the result. Beyond the longest sequence, the result is
            padding.
        batch_first: whether the batch is the first dimension of the result, as in torch.
        padding_value: value that fills the padding.
        truncate: whether `total_length` may be less than the longest length, in which case later
            steps are dropped. By default, this is an error, because a loss over a truncated output
            ignores the end of long sequences.

    Returns:
        `(total_length, B, …)`, or `(B, total_length, …)` with `batch_first`, with the sequences in
        the caller's order.

    Raises:
        TypeError: `packed` is not a `PackedSequence`.
        ValueError: `total_length` is not a whole number from 0 to 10,000,000, or it is less than
            the longest length and `truncate` is False; or an integer dtype cannot hold
            `padding_value`.
        RuntimeError: torch cannot convert `padding_value` to a floating-point dtype.

    Examples:
        >>> import packviz as pv, torch
        >>> from torch.nn.utils.rnn import pack_sequence
        >>> packed = pack_sequence([torch.tensor([7, 8, 9]), torch.tensor([5])])
        >>> pv.unpack_to_length(packed, 4, batch_first=True)
        tensor([[7, 8, 9, 0],
                [5, 0, 0, 0]])
    """
    if not isinstance(packed, PackedSequence):
        raise TypeError(
            f"packed must be a PackedSequence, got {type(packed).__name__}: pass the packed"
            " output of an RNN"
        )
    output_steps = require_step_count(total_length, "total_length")
    longest = len(packed.batch_sizes)
    require_padding_value(padding_value, packed.data.dtype)
    if output_steps < longest and not truncate:
        raise ValueError(
            f"total_length is {output_steps}, but the longest length is {longest}: give at"
            f" least {longest}, or truncate=True to drop the later steps"
        )
    data = packed.data
    rank = packed.unsorted_indices
    if rank is None:
        batch = int(packed.batch_sizes[0])
        rank = torch.arange(batch, device=data.device)
    # A negative number removes steps.
    sizes = nn.functional.pad(packed.batch_sizes, (0, output_steps - longest))
    first_row = to_device(sizes.cumsum(0) - sizes, data.device)
    row_index = first_row[:, None] + rank
    index = row_index.remainder(len(data))
    real = rank < to_device(sizes, data.device)[:, None]
    if batch_first:
        index = index.T
        real = real.T
    return gather_with_padding(data, index, real, padding_value)


# An index is faster from these sizes on. They were measured with one thread of a server CPU, and
# affect only the time. torch's gradient of packing makes a copy per time step. torch moves whole
# sequences to sort them; without a gradient, 16 times this size applies.
_MIN_INDEX_STEPS = 16
_MIN_INDEX_NUMBERS = 2**16

_PLAIN_TYPES = (Tensor, nn.Parameter)


def _pack_padded(
    x: Tensor, lengths: Tensor | list[int], batch_first: bool, enforce_sorted: bool
) -> PackedSequence:
    if is_mask(lengths):
        if isinstance(x, Tensor) and x.ndim > 1:
            input_shape = PaddedShape.from_shape(x.shape, batch_first)
            if lengths.shape[0] == input_shape.batch:
                require_mask_width(lengths, input_shape.steps)
        lengths = lengths_tensor(lengths)
    arguments = x, lengths, batch_first, enforce_sorted
    is_traced_list = not isinstance(lengths, Tensor) and is_tracing()
    if is_traced_list or type(x) not in _PLAIN_TYPES or x.ndim < 2:
        return original.pack_padded_sequence(*arguments)
    input_shape = PaddedShape.from_shape(x.shape, batch_first)
    batch, steps, _ = input_shape
    uses_index = needs_grad(x) and type(steps) is int and steps >= _MIN_INDEX_STEPS
    if not (enforce_sorted and x.is_cpu):
        uses_index = uses_index or _is_index_faster(x)
    if uses_index and torch.compiler.is_compiling():
        return _run_uncompiled(_pack_padded, *arguments)
    uses_index = uses_index and _is_supported_tensor(x, batch_first)
    if not uses_index:
        try:
            packed = original.pack_padded_sequence(*arguments)
            if type(steps) is not int or packed.batch_sizes.shape[0] <= steps:
                return packed  # also if `steps` is a tracer's number
        except RuntimeError:  # torch may run out of memory for a length far beyond T
            pass
    if not isinstance(lengths, Tensor):
        lengths = torch.as_tensor(lengths, dtype=torch.int64, device="cpu")
    n = lengths.to(torch.int64)
    sorted_lengths = n
    order = None
    has_valid_lengths = x.numel() > 0 and n.ndim == 1 and n.is_cpu and len(n) <= batch
    if enforce_sorted:
        has_valid_lengths = has_valid_lengths and len(n) == batch
    elif has_valid_lengths:
        # torch's own sort is not stable. The same call gives the same order of equal lengths.
        sorted_lengths, order = torch.sort(n, descending=True)
    if not (has_valid_lengths and indices.is_descending(sorted_lengths.tolist())):
        # This raises torch's error.
        return original.pack_padded_sequence(*arguments)
    if sorted_lengths[0] > steps:
        shape_text = describe_shape(x.shape, batch_first, "input")
        input_shape.require_fitting_lengths(n.numpy(), shape_text)
    # torch drops the sequences that have no length.
    if not uses_index or len(sorted_lengths) < batch:
        return original.pack_padded_sequence(*arguments)
    return _pack_sorted(x, sorted_lengths, order, batch_first)


def _pack_sorted(
    x: Tensor, sorted_lengths: Tensor, order: Tensor | None, batch_first: bool
) -> PackedSequence:
    """Packs a batch whose lengths are known to be valid.

    Args:
        x: the padded batch.
        sorted_lengths: `(B,)` the lengths, longest first.
        order: `(B,)` the caller's index of each sequence in `sorted_lengths`; `None` if the
            caller's sequences are already sorted.
        batch_first: whether the batch is the first dimension of `x`.
    """
    steps = x.shape[1 if batch_first else 0]
    sorted_indices = order
    if order is not None and not x.is_cpu:
        sorted_indices = arrays_to_device(x.device, order.numpy())[0]
    index = indices.index_from_lengths(sorted_lengths, order, sorted_indices, x.device)
    transposed_x = x.transpose(0, 1)
    batch_major_x = x if batch_first else transposed_x
    is_batch_major = batch_major_x.is_contiguous()
    cells = x if is_batch_major == batch_first else transposed_x
    data = pack_cells(cells.flatten(0, 1), index.padded_cell_map(steps, is_batch_major))
    packed = PackedSequence(data, torch.from_numpy(index.batch_sizes.copy()), sorted_indices)
    indices.cache_index(index, packed)
    return packed


def _pad_packed(
    sequence: PackedSequence, batch_first: bool, padding_value: float, total_length: int | None
) -> tuple[Tensor, Tensor]:
    arguments = sequence, batch_first, padding_value, total_length
    if not isinstance(sequence, PackedSequence):
        return original.pad_packed_sequence(*arguments)
    data, sizes, _, ranks = sequence
    shape = sizes.shape
    if len(shape) > 0 and type(shape[0]) is int and shape[0] == 0:  # not a tracer's number
        # This is torch's error. Older releases crash.
        raise RuntimeError("batch_sizes can not be empty")
    uses_index = needs_grad(data)
    if ranks is not None or not data.is_cpu:
        uses_index = uses_index or _is_index_faster(data)
    if uses_index and torch.compiler.is_compiling():
        return _run_uncompiled(_pad_packed, *arguments)
    if not (uses_index and _is_supported_tensor(data, batch_first)):
        return original.pad_packed_sequence(*arguments)
    longest = sizes.shape[0]
    steps = longest if total_length is None else total_length
    has_valid_steps = longest > 1 and type(steps) is int and steps >= longest
    values = indices.batch_sizes_if_valid(sequence)
    if not (has_valid_steps and values and isinstance(padding_value, (int, float))):
        return original.pad_packed_sequence(*arguments)
    if padding_value:  # as in torch, a value that does not fit the dtype is always an error
        data.new_full((2,), padding_value)
    batch = values[0]
    is_batch_major = batch_first and ranks is not None  # the memory layout of torch's result
    index = indices.index_from_packed(sequence)
    if index is None:
        return original.pad_packed_sequence(*arguments)
    cells = unpack_rows(data, index.padded_cell_map(steps, is_batch_major), padding_value)
    dimensions = (batch, steps) if is_batch_major else (steps, batch)
    x = cells.view(*dimensions, *data.shape[1:])
    if batch_first != is_batch_major:
        x = x.transpose(0, 1)
    return x, index.lengths.clone()


def _run_uncompiled(function: Callable[..., Result], *arguments: object) -> Result:
    """Calls a function outside `torch.compile`, which causes a graph break, as in torch."""
    result: Result = torch.compiler.disable(function)(*arguments)  # type: ignore[no-untyped-call]
    return result


def _is_supported_tensor(x: Tensor, batch_first: bool) -> bool:
    """Returns whether packviz can pack or pad a tensor. If it cannot, torch's functions do."""
    if not isinstance(batch_first, bool):  # torch accepts nothing else
        return False
    if x.is_complex():  # torch cannot differentiate the packing of these
        return False
    if is_tracing() or is_transform_active():
        return False
    return type(x) in _PLAIN_TYPES and is_on_usable_device(x)


def may_beat_torch(x: Tensor) -> bool:
    """Returns whether packviz's functions may do more with a tensor than pass it on to torch's."""
    return not x.is_cpu or needs_grad(x) or x.numel() >= 16 * _MIN_INDEX_NUMBERS


def _is_index_faster(x: Tensor) -> bool:
    """Returns whether an index is faster than torch, for unsorted sequences or those on a GPU."""
    if is_tracing():
        return False
    if not x.is_cpu:  # torch would wait for a GPU, and launch a kernel for each distinct length
        return x.device.type in indices.ACCELERATORS
    min_numbers = _MIN_INDEX_NUMBERS if needs_grad(x) else 16 * _MIN_INDEX_NUMBERS
    return x.numel() >= min_numbers
