"""torch's packing and unpacking, with a backward pass whose time is in proportion to the data.

Four functions take and return what their namesakes in `torch.nn.utils.rnn` do, bit for bit. The `PackedSequence` is
torch's own, so both kinds mix. **One deviation**: a length beyond the time steps of the input is a ValueError. torch
accepts it and returns less data than `batch_sizes` says; what goes wrong then depends on who uses it.

torch's own functions do the work where theirs are faster (on a CPU no gradient, or a small batch), where the
input is none that they accept (so that the error is theirs), and where not values but a program is asked for, or
another kind of derivative: while tracing, scripting or exporting, under `torch.func`, in forward-mode differentiation,
for subclasses of `Tensor`, for complex numbers, during the capture of a CUDA graph, and on devices other than CPU and
CUDA. On a GPU nothing here waits for it, but where a batch is padded that somebody else has packed. Under
`torch.compile` each of the four is a graph break, as torch's are. `unpack_to_length` pads to a width of your own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

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

P = ParamSpec("P")
R = TypeVar("R")


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | list[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Packs a padded batch, as `torch.nn.utils.rnn.pack_padded_sequence` does.

    Args:
        input: `(T, B, …)`, or `(B, T, …)` with `batch_first`.
        lengths: `(B,)` whole numbers from 1 to `T`, in a list or on the CPU.
        batch_first: whether the batch is the first dimension of `input`.
        enforce_sorted: whether the sequences must come longest first. If not they are sorted, by torch's own sort.

    Returns:
        What torch returns, bit for bit.

    Raises:
        ValueError: a length is more than `T`. torch accepts that: the one deviation.
        RuntimeError: as torch, for the same input and with the same text. So do other errors.

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
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Unpacks to a padded batch, as `torch.nn.utils.rnn.pad_packed_sequence` does.

    Args:
        sequence: a `PackedSequence`: packed here, by torch or by hand, or what an RNN returned.
        batch_first: whether the batch shall be the first dimension.
        padding_value: what fills the padding.
        total_length: time steps of the result; those of the longest sequence if not given.

    Returns:
        What torch returns, bit for bit: `(T, B, …)`, or `(B, T, …)` with `batch_first`, in the order of sequences
        before packing, and their lengths `(B,)` on the CPU.

    Raises:
        ValueError: as torch: `total_length` is below the longest sequence. So do other errors.

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
    """Packs sequences, as `torch.nn.utils.rnn.pack_sequence` does. There is no padded batch in between.

    Args:
        sequences: tensors `(L, …)`, each with a length of its own.
        enforce_sorted: whether the sequences must come longest first. If not they are sorted, by torch's own sort.

    Returns:
        What torch returns, bit for bit.

    Raises:
        RuntimeError: as torch. So do other errors.

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
    """Unpacks into sequences, as `torch.nn.utils.rnn.unpack_sequence` does. There is no padded batch in between.

    Args:
        packed_sequences: a `PackedSequence`: packed here, by torch or by hand, or what an RNN returned.

    Returns:
        What torch returns, bit for bit: tensors `(L, …)` in the order before packing.

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
    """Unpacks to exactly `total_length` time steps, for whoever needs a fixed shape.

    It returns what `pad_packed_sequence(packed, batch_first, padding_value, total_length)[0]` does, and can cut.
    Only the widths are compared, so nothing waits for the device. Under `torch.compile(fullgraph=True)` the packed
    sequence must know its order (packed with `enforce_sorted=False`).

    Args:
        packed: a `PackedSequence`, as an RNN returns it; also a hand-built one.
        total_length: the width of the result in time steps, as torch calls it. More than the longest sequence pads.
        batch_first: whether the batch shall be the first dimension, as in torch.
        padding_value: what fills the padding.
        truncate: allows a `total_length` below the longest sequence: later steps are dropped. Without it that is an
            error, because a loss over a truncated output no longer sees the end of the long sequences.

    Returns:
        `(total_length, B, …)`, or `(B, total_length, …)` with `batch_first`, in the caller's order of sequences.

    Raises:
        TypeError: `packed` is not a `PackedSequence`.
        ValueError: `total_length` is not a whole number of at least 0, or below the longest sequence without
            `truncate`.

    Examples:
        >>> import packviz as pv, torch
        >>> packed = pv.pack_sequence([torch.tensor([7, 8, 9]), torch.tensor([5])])
        >>> pv.unpack_to_length(packed, 4, batch_first=True)
        tensor([[7, 8, 9, 0],
                [5, 0, 0, 0]])
    """
    if not isinstance(packed, PackedSequence):
        raise TypeError(f"packed must be a PackedSequence, got {type(packed).__name__}: pass what the RNN returned")
    width, longest = time_steps(total_length, "total_length"), len(packed.batch_sizes)
    if width < longest and not truncate:
        raise ValueError(
            f"total_length is {width} but the longest sequence has {longest} time steps: give at least {longest}, or"
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


# Where an own way begins to pay: measured, one thread of a server CPU. A wrong guess costs a little time, nothing else.
_MANY_STEPS = 16  # torch's gradient of packing is a copy per time step
_MANY_NUMBERS = 2**16  # torch moves whole sequences to sort them; without a gradient this pays later
_MANY_SEQUENCES = 16  # torch handles them one by one to pack and unpack a list
_PLAIN = (Tensor, nn.Parameter)


def _pack_padded(x: Tensor, lengths: Tensor | list[int], batch_first: bool, enforce_sorted: bool) -> PackedSequence:
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
            pass  # it may have run out of memory for a length far beyond T
        else:
            if type(steps) is not int or packed[1].shape[0] <= steps:  # a tracer's number must not be looked at
                return packed
    batch = x.shape[0 if batch_first else 1]
    if not isinstance(lengths, Tensor):
        lengths = torch.as_tensor(lengths, dtype=torch.int64, device="cpu")
    n = ranked = lengths.to(torch.int64)
    order = None
    fits = x.numel() and n.ndim == 1 and n.is_cpu and 0 < n.shape[0] <= batch
    if fits and not enforce_sorted:
        # Not a stable sort: torch's own, with the same arguments, for the same order of equal lengths.
        ranked, order = torch.sort(n, descending=True)
    elif fits:
        fits = n.shape[0] == batch
    values = ranked.tolist() if fits else []
    if not indices.is_falling(values):
        return original.pack_padded_sequence(x, lengths, batch_first, enforce_sorted)  # which raises an error
    if values[0] > steps:
        b = int(n.argmax())
        raise ValueError(
            f"lengths[{b}] is {n[b]}, but {reading(x.shape, batch_first, 'input')}, has T = {steps}: shorten it"
        )
    if not ours or len(values) < batch:  # torch drops the sequences that have no length
        return original.pack_padded_sequence(x, lengths, batch_first, enforce_sorted)
    return _packed_in_order(x, ranked, order, batch_first)


def _packed_in_order(x: Tensor, ranked: Tensor, order: Tensor | None, batch_first: bool) -> PackedSequence:
    """Packs a batch whose lengths are valid.

    Args:
        x: the padded batch.
        ranked: `(B,)` the lengths, longest first.
        order: `(B,)` the sequence at each rank; `None` if they are sorted already.
        batch_first: whether the batch is the first dimension of `x`.
    """
    batch, steps = x.shape[:2] if batch_first else x.shape[1::-1]
    sorted_indices = None if order is None else _moved(order, x.device)
    if int(ranked[-1]) == steps and not indices.is_moved(order, batch):
        data = _time_major(x, batch_first).clone(memory_format=torch.contiguous_format).flatten(0, 1)
        packed = PackedSequence(data, torch.full((steps,), batch, device="cpu"), sorted_indices)
        if not x.is_cpu:  # to pad again without asking the device for the order
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
    fits = longest > 1 and type(steps) is int and steps >= longest and isinstance(padding_value, (int, float))
    values = indices.falling_sizes(sequence) if fits else []
    if not values:
        return original.pad_packed_sequence(sequence, batch_first, padding_value, total_length)

    if padding_value:
        data.new_full((2,), padding_value)  # one that does not suit the dtype is an error even without padding
    batch = values[0]
    is_batch_major = batch_first and ranks is not None  # as torch's result lies in memory
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
    packed = PackedSequence(packed_rows(joined, index.joined()), torch.from_numpy(index.sizes.copy()), sorted_indices)
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
    """An order of the sequences on a device."""
    return order if device.type == "cpu" else placed(device, order.numpy())[0]


def _is_moved(packed: PackedSequence, batch: int) -> bool:
    """Whether the sequences were in another order before they were packed."""
    if (index := indices.kept(packed)) is not None:
        return index.order is not None
    ranks = packed.unsorted_indices
    return indices.is_moved(None if ranks is None else ranks.cpu(), batch)  # torch waits for them too


def _refuse_empty(packed: PackedSequence) -> None:
    """Raises torch's error where older releases of torch, 2.9 among them, read beyond the end and die."""
    steps = packed.batch_sizes.shape[0] if packed.batch_sizes.ndim else 1
    if type(steps) is int and steps == 0:  # a tracer's number must not be looked at
        raise RuntimeError("batch_sizes can not be empty")


def _run_uncompiled(function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
    """Calls a function that torch.compile is not to look into: a graph break, as torch's own functions are."""
    result: R = torch.compiler.disable(function)(*arguments, **options)  # type: ignore[no-untyped-call]
    return result


def _is_plain(x: Tensor, batch_first: bool = False) -> bool:
    """Whether a tensor holds values to compute with, now, and an ordinary gradient at most is asked for."""
    return (
        type(x) in _PLAIN
        and is_at_hand(x)
        and not x.is_complex()  # torch cannot differentiate packing these
        and isinstance(batch_first, bool)  # nothing else will do for torch
        and not is_tracing()  # type: ignore[no-untyped-call]
        and not may_derive_otherwise()
    )


def may_pay(x: Tensor) -> bool:
    """Whether these functions may do more than hand a tensor over to torch's own."""
    return not x.is_cpu or needs_grad(x) or x.numel() >= 16 * _MANY_NUMBERS


def _wants_index(x: Tensor) -> bool:
    """Whether an index pays, for sequences out of order or on a GPU."""
    if is_tracing():  # type: ignore[no-untyped-call]
        return False
    if not x.is_cpu:  # torch would wait for a GPU, and launch a kernel for each distinct length
        return x.device.type in indices.ACCELERATORS
    return x.numel() >= (_MANY_NUMBERS if needs_grad(x) else 16 * _MANY_NUMBERS)


def _pays_to_join(sequences: Any) -> bool:
    """Whether packing these without torch pays: they are many, or on a GPU. None is one that torch would convert."""
    if not isinstance(sequences, (list, tuple)) or not sequences:
        return False
    first = sequences[0]
    return (
        all(isinstance(s, Tensor) and s.ndim for s in sequences)
        and (not first.is_cpu or (len(sequences) >= _MANY_SEQUENCES and any(map(needs_grad, sequences))))
        and all(map(_is_plain, sequences))
        and all(s.dtype == first.dtype and s.device == first.device for s in sequences)
        and all(s.shape[1:] == first.shape[1:] for s in sequences)
        and first.numel() > 0
    )


def _time_major(x: Tensor, batch_first: bool) -> Tensor:
    return x.transpose(0, 1) if batch_first else x
