"""Packs and unpacks as torch does, but with a backward pass whose time is proportional to the
amount of data.

Four functions take the same arguments as their namesakes in `torch.nn.utils.rnn`, and return the
same results, bit for bit. The `PackedSequence` is torch's own, so you can mix packviz's functions
and torch's. There is **one difference**: a length greater than the input's number of time steps
raises a ValueError. torch accepts such a length and returns fewer rows of data than `batch_sizes`
promises, which leads to various errors later.

torch's own functions do the work if they are faster (usually on a CPU without gradients, or for a
small batch). They are also used for input that they reject, so that the error is torch's, and in
cases that the functions here don't
support: tracing, scripting, exporting, `torch.func`, forward-mode differentiation, subclasses of
`Tensor`, complex numbers, CUDA graph capture, and devices other than CPU and CUDA. Nothing here
waits for a GPU, except unpacking a batch that was not packed here. Under `torch.compile` each of
the four functions causes a graph break, as torch's own functions do. A fifth function,
`unpack_to_length`, unpacks to any number of time steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.jit import is_scripting, is_tracing  # type: ignore[attr-defined]
from torch.nn.utils.rnn import PackedSequence

from packviz.core.padded import reading
from packviz.core.validation import renamed
from packviz.ops import index as indices
from packviz.ops import original
from packviz.ops.index import is_at_hand, needs_grad, packed_rows, padded_cells, placed
from packviz.ops.masks import padded_rows, time_steps, to_device
from packviz.ops.private import may_derive_otherwise

R = TypeVar("R")


def pack_padded_sequence(
    input: Tensor,
    lengths: Tensor | list[int],
    batch_first: bool = False,
    enforce_sorted: bool = True,
) -> PackedSequence:
    """Packs a padded batch, as `torch.nn.utils.rnn.pack_padded_sequence` does.

    Args:
        input: `(T, B, …)`, or `(B, T, …)` with `batch_first`.
        lengths: `(B,)` whole numbers from 1 to `T`, in a list or in a tensor on the CPU.
        batch_first: whether the batch is the first dimension of `input`.
        enforce_sorted: whether the sequences must be sorted, longest first. If False, torch's own
            sort puts them in this order.

    Returns:
        What torch's function returns, bit for bit.

    Raises:
        ValueError: a length is greater than `T`; torch accepts such a length.
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
        >>> packed = pv.pack_sequence([torch.tensor([7, 8, 9]), torch.tensor([5])])
        >>> pv.pad_packed_sequence(packed, batch_first=True)
        (tensor([[7, 8, 9],
                [5, 0, 0]]), tensor([3, 1]))
    """
    if not is_scripting():
        return _pad_packed(sequence, batch_first, padding_value, total_length)
    return original.pad_packed_sequence(sequence, batch_first, padding_value, total_length)


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs sequences, as `torch.nn.utils.rnn.pack_sequence` does.

    Unlike torch's function, this function builds a padded batch in between only if that is faster.

    Args:
        sequences: tensors `(L, …)`, each with its own length `L`.
        enforce_sorted: whether the sequences must be sorted, longest first. If False, torch's own
            sort puts them in this order.

    Returns:
        What torch's function returns, bit for bit.

    Raises:
        RuntimeError: torch rejects the input. This error and all others are torch's own.

    Examples:
        >>> import packviz as pv, torch
        >>> packed = pv.pack_sequence([torch.tensor([5]), torch.tensor([7, 8, 9])], enforce_sorted=False)
        >>> packed.data, packed.sorted_indices
        (tensor([7, 5, 8, 9]), tensor([1, 0]))
        >>> picture = pv.show(packed)
    """
    if not is_scripting():
        return _pack(sequences, enforce_sorted)
    return original.pack_sequence(sequences, enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Unpacks a packed batch into sequences, as `torch.nn.utils.rnn.unpack_sequence` does.

    Unlike torch's function, this function builds a padded batch in between only if that is faster.

    Args:
        packed_sequences: a `PackedSequence` from packviz, from torch or from an RNN, or one that
            was built by hand.

    Returns:
        What torch's function returns, bit for bit: tensors `(L, …)` in the order that they had
        before packing.

    Examples:
        >>> import packviz as pv, torch
        >>> packed = pv.pack_sequence([torch.tensor([7, 8, 9]), torch.tensor([5])])
        >>> pv.unpack_sequence(packed)
        [tensor([7, 8, 9]), tensor([5])]
    """
    if not is_scripting():
        return _unpack(packed_sequences)
    return original.unpack_sequence(packed_sequences)


@renamed(length="total_length")
def unpack_to_length(
    packed: PackedSequence,
    total_length: int,
    batch_first: bool = False,
    padding_value: float = 0.0,
    truncate: bool = False,
) -> Tensor:
    """Unpacks a packed batch to exactly `total_length` time steps, for code that needs a fixed
    shape.

    The result is the same as `pad_packed_sequence(packed, batch_first, padding_value,
    total_length)[0]`, but this function can also truncate. It checks only the number of time steps,
    so nothing waits for the device. Under `torch.compile(fullgraph=True)`, the batch must have been
    packed with `enforce_sorted=False`.

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
        ValueError: `total_length` is not a whole number of at least 0, or it is less than the
            longest length and `truncate` is False.

    Examples:
        >>> import packviz as pv, torch
        >>> packed = pv.pack_sequence([torch.tensor([7, 8, 9]), torch.tensor([5])])
        >>> pv.unpack_to_length(packed, 4, batch_first=True)
        tensor([[7, 8, 9, 0],
                [5, 0, 0, 0]])
    """
    if not isinstance(packed, PackedSequence):
        raise TypeError(
            f"packed must be a PackedSequence, got {type(packed).__name__}: pass the output of the RNN"
        )
    width, longest = time_steps(total_length, "total_length"), len(packed.batch_sizes)
    if width < longest and not truncate:
        raise ValueError(
            f"total_length is {width}, but the longest sequence has {longest} time steps: give at least {longest}, or"
            " truncate=True to drop the later steps"
        )
    data, rank = packed.data, packed.unsorted_indices
    if rank is None:
        rank = torch.arange(int(packed.batch_sizes[0]), device=data.device)
    sizes = nn.functional.pad(packed.batch_sizes, (0, width - longest))  # a negative number cuts
    first_row = to_device(sizes.cumsum(0) - sizes, data.device)
    index = (first_row[:, None] + rank).remainder(len(data))
    real = rank < to_device(sizes, data.device)[:, None]
    if batch_first:
        index, real = index.T, real.T
    return padded_rows(data, index, real, padding_value)


# An index is faster from these sizes on. They were measured with one thread of a server CPU, and
# affect only the time.
_MANY_STEPS = 16  # torch's gradient of packing makes a copy per time step
_MANY_NUMBERS = (
    2**16
)  # torch moves whole sequences to sort them; without a gradient, 16 times this size applies
_MANY_SEQUENCES = 16  # torch packs and unpacks a list one sequence at a time
_PLAIN = (Tensor, nn.Parameter)


def _pack_padded(
    x: Tensor, lengths: Tensor | list[int], batch_first: bool, enforce_sorted: bool
) -> PackedSequence:
    if (not isinstance(lengths, Tensor) and is_tracing()) or type(x) not in _PLAIN or x.ndim < 2:  # type: ignore[no-untyped-call]
        return original.pack_padded_sequence(x, lengths, batch_first, enforce_sorted)
    steps = x.shape[1 if batch_first else 0]
    ours = needs_grad(x) and type(steps) is int and steps >= _MANY_STEPS
    ours = ours or (not (enforce_sorted and x.is_cpu) and _wants_index(x))
    if ours and torch.compiler.is_compiling():
        return _run_uncompiled(_pack_padded, x, lengths, batch_first, enforce_sorted)
    ours = ours and _is_plain(x, batch_first)
    if not ours:
        try:
            packed = original.pack_padded_sequence(x, lengths, batch_first, enforce_sorted)
        except RuntimeError:
            pass  # torch may run out of memory for a length far beyond T
        else:
            if (
                type(steps) is not int or packed[1].shape[0] <= steps
            ):  # a tracer's numbers cannot be compared
                return packed
    batch = x.shape[0 if batch_first else 1]
    if not isinstance(lengths, Tensor):
        lengths = torch.as_tensor(lengths, dtype=torch.int64, device="cpu")
    n = ranked = lengths.to(torch.int64)
    order = None
    fits = x.numel() and n.ndim == 1 and n.is_cpu and 0 < n.shape[0] <= batch
    if fits and not enforce_sorted:
        # torch's own sort, with the same arguments, gives the same order of equal lengths. It is
        # not stable.
        ranked, order = torch.sort(n, descending=True)
    elif fits:
        fits = n.shape[0] == batch
    values = ranked.tolist() if fits else []
    if not indices.is_falling(values):
        return original.pack_padded_sequence(
            x, lengths, batch_first, enforce_sorted
        )  # which raises an error
    if values[0] > steps:
        b = int(n.argmax())
        raise ValueError(
            f"lengths[{b}] is {n[b]}, but {reading(x.shape, batch_first, 'input')}, has T = {steps}: shorten it"
        )
    if not ours or len(values) < batch:  # torch drops the sequences that have no length
        return original.pack_padded_sequence(x, lengths, batch_first, enforce_sorted)
    return _packed_in_order(x, ranked, order, batch_first)


def _packed_in_order(
    x: Tensor, ranked: Tensor, order: Tensor | None, batch_first: bool
) -> PackedSequence:
    """Packs a batch whose lengths are known to be valid.

    Args:
        x: the padded batch.
        ranked: `(B,)` the lengths, longest first.
        order: `(B,)` the caller's index of each sequence in `ranked`; `None` if the caller's
            sequences are already sorted.
        batch_first: whether the batch is the first dimension of `x`.
    """
    batch, steps = x.shape[:2] if batch_first else x.shape[1::-1]
    sorted_indices = None if order is None else _moved(order, x.device)
    if int(ranked[-1]) == steps and not indices.is_moved(order, batch):
        data = (
            _time_major(x, batch_first).clone(memory_format=torch.contiguous_format).flatten(0, 1)
        )
        packed = PackedSequence(data, torch.full((steps,), batch, device="cpu"), sorted_indices)
        if not x.is_cpu:  # so that padding need not read an order from the device
            indices.keep(indices.of_lengths(ranked, None, None, x.device), packed)
        return packed
    index = indices.of_lengths(ranked, order, sorted_indices, x.device)
    is_batch_major = x.is_contiguous() if batch_first else x.transpose(0, 1).is_contiguous()
    cells = (x if is_batch_major == batch_first else x.transpose(0, 1)).flatten(0, 1)
    data = packed_rows(cells, index.padded(steps, is_batch_major))
    packed = PackedSequence(data, torch.from_numpy(index.sizes.copy()), sorted_indices)
    indices.keep(index, packed)
    return packed


def _pad_packed(
    sequence: PackedSequence, batch_first: bool, padding_value: float, total_length: int | None
) -> tuple[Tensor, Tensor]:
    if not isinstance(sequence, PackedSequence):
        return original.pad_packed_sequence(sequence, batch_first, padding_value, total_length)
    _refuse_empty(sequence)
    data, sizes, _, ranks = sequence
    ours = needs_grad(data) or (not (ranks is None and data.is_cpu) and _wants_index(data))
    if ours and torch.compiler.is_compiling():
        return _run_uncompiled(_pad_packed, sequence, batch_first, padding_value, total_length)
    if not (ours and _is_plain(data, batch_first)):
        return original.pad_packed_sequence(sequence, batch_first, padding_value, total_length)
    longest = sizes.shape[0]
    steps = longest if total_length is None else total_length
    fits = (
        longest > 1
        and type(steps) is int
        and steps >= longest
        and isinstance(padding_value, (int, float))
    )
    values = indices.falling_sizes(sequence) if fits else []
    if not values:
        return original.pad_packed_sequence(sequence, batch_first, padding_value, total_length)

    if padding_value:
        data.new_full(
            (2,), padding_value
        )  # as in torch, a value that does not fit the dtype is always an error
    batch = values[0]
    is_batch_major = batch_first and ranks is not None  # the memory layout of torch's result
    if batch * steps == len(data) and not _is_moved(sequence, batch):
        x = data.view(steps, batch, *data.shape[1:])
        x = _time_major(x, is_batch_major).clone(memory_format=torch.contiguous_format)
        lengths = torch.full((batch,), steps, device="cpu")
    elif (index := indices.of_packed(sequence)) is None:
        return original.pad_packed_sequence(sequence, batch_first, padding_value, total_length)
    else:
        x = padded_cells(data, index.padded(steps, is_batch_major), padding_value)
        x = x.view(*((batch, steps) if is_batch_major else (steps, batch)), *data.shape[1:])
        lengths = index.lengths.clone()
    return _time_major(x, batch_first != is_batch_major), lengths


def _pack(sequences: list[Tensor], enforce_sorted: bool) -> PackedSequence:
    if torch.compiler.is_compiling():
        return _run_uncompiled(_pack, sequences, enforce_sorted)
    if not _pays_to_join(sequences):
        return original.pack_sequence(sequences, enforce_sorted)
    ranked, order = torch.tensor([s.shape[0] for s in sequences], device="cpu"), None
    if not enforce_sorted:
        ranked, order = torch.sort(ranked, descending=True)
    if not indices.is_falling(ranked.tolist()):
        return original.pack_sequence(sequences, enforce_sorted)  # which raises an error
    joined = torch.cat(sequences)
    sorted_indices = None if order is None else _moved(order, joined.device)
    index = indices.of_lengths(ranked, order, sorted_indices, joined.device)
    packed = PackedSequence(
        packed_rows(joined, index.joined()), torch.from_numpy(index.sizes.copy()), sorted_indices
    )
    indices.keep(index, packed)
    return packed


def _unpack(packed: PackedSequence) -> list[Tensor]:
    if torch.compiler.is_compiling():
        return _run_uncompiled(_unpack, packed)
    index = None
    if isinstance(packed, PackedSequence):
        _refuse_empty(packed)
    if isinstance(packed, PackedSequence) and _is_plain(packed.data):
        values = indices.falling_sizes(packed)
        if values and (values[0] >= _MANY_SEQUENCES or not packed.data.is_cpu):
            index = indices.of_packed(packed)
    if index is None:
        return original.unpack_sequence(packed)
    joined = padded_cells(packed.data, index.joined(), 0.0)
    return [sequence.clone() for sequence in torch.split(joined, index.lengths.tolist())]


def _moved(order: Tensor, device: torch.device) -> Tensor:
    """Moves an order of the sequences to a device."""
    return order if device.type == "cpu" else placed(device, order.numpy())[0]


def _is_moved(packed: PackedSequence, batch: int) -> bool:
    """Returns whether packing changed the order of the sequences."""
    if (index := indices.kept(packed)) is not None:
        return index.order is not None
    ranks = packed.unsorted_indices
    return indices.is_moved(
        None if ranks is None else ranks.cpu(), batch
    )  # torch waits for them, too


def _refuse_empty(packed: PackedSequence) -> None:
    """Raises torch's error for empty `batch_sizes`, which make older releases of torch, such as 2.9, crash."""
    steps = packed.batch_sizes.shape[0] if packed.batch_sizes.ndim else 1
    if type(steps) is int and steps == 0:  # a tracer's numbers cannot be compared
        raise RuntimeError("batch_sizes can not be empty")


def _run_uncompiled(function: Callable[..., R], *arguments: Any) -> R:
    """Calls a function outside `torch.compile`, which causes a graph break, as torch's own functions do."""
    result: R = torch.compiler.disable(function)(*arguments)  # type: ignore[no-untyped-call]
    return result


def _is_plain(x: Tensor, batch_first: bool = False) -> bool:
    """Returns whether packviz can pack or unpack a tensor. If it cannot, torch's own functions are used."""
    return (
        type(x) in _PLAIN
        and is_at_hand(x)
        and not x.is_complex()  # torch cannot differentiate the packing of these
        and isinstance(batch_first, bool)  # torch accepts nothing else
        and not is_tracing()  # type: ignore[no-untyped-call]
        and not may_derive_otherwise()
    )


def may_pay(x: Tensor) -> bool:
    """Returns whether packviz's functions may do more with a tensor than pass it on to torch's own."""
    return not x.is_cpu or needs_grad(x) or x.numel() >= 16 * _MANY_NUMBERS


def _wants_index(x: Tensor) -> bool:
    """Returns whether an index is faster than torch's functions, for sequences that are unsorted or on a GPU."""
    if is_tracing():  # type: ignore[no-untyped-call]
        return False
    if not x.is_cpu:  # torch would wait for a GPU, and launch a kernel for each distinct length
        return x.device.type in indices.ACCELERATORS
    return x.numel() >= (_MANY_NUMBERS if needs_grad(x) else 16 * _MANY_NUMBERS)


def _pays_to_join(sequences: Any) -> bool:
    """Returns whether an index is faster for packing a list of sequences.

    An index is faster on a GPU, and on a CPU for many sequences with gradients. The result is False
    if the sequences differ in dtype, device or features.
    """
    if not isinstance(sequences, (list, tuple)) or not sequences:
        return False
    first = sequences[0]
    return (
        all(isinstance(s, Tensor) and s.ndim for s in sequences)
        and (
            not first.is_cpu
            or (len(sequences) >= _MANY_SEQUENCES and any(map(needs_grad, sequences)))
        )
        and all(map(_is_plain, sequences))
        and all(s.dtype == first.dtype and s.device == first.device for s in sequences)
        and all(s.shape[1:] == first.shape[1:] for s in sequences)
        and first.numel() > 0
    )


def _time_major(x: Tensor, batch_first: bool) -> Tensor:
    return x.transpose(0, 1) if batch_first else x
