"""Converts between a padded batch and its packed data, using a linear map and its transpose.

torch copies block by block, with a kernel for each distinct length. A `CellMap` needs one gather
in each direction, with an index tensor that also puts the sequences in order. A `BatchIndex` builds
the cell maps of a batch, and is kept for the next function that handles the batch.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils.weak import WeakIdKeyDictionary

from packviz.core.layout import IntArray, count_running_sequences
from packviz.core.padded import PaddedShape
from packviz.ops.masks import to_device
from packviz.ops.private import version

ACCELERATORS = ("cuda",)
"""The kinds of device, besides the CPU, that packviz supports."""


def is_on_usable_device(x: Tensor) -> bool:
    """Returns whether a tensor is on the CPU, or on an accelerator that is not capturing a graph.

    A captured graph would keep reading indices from memory that is reused after a few batches.
    """
    if x.is_cpu:
        return True
    return x.device.type in ACCELERATORS and not torch.cuda.is_current_stream_capturing()


def current_stream(device: torch.device) -> int:
    """Returns the number of the stream to which a device's kernels go; 0 on a CPU.

    Indices that are kept for another batch are used on the stream that copies them. On another
    stream, a kernel could read them before they have arrived, or after their memory is reused.
    """
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0


def arrays_to_device(device: torch.device, *values: IntArray) -> Sequence[Tensor]:
    """Returns arrays of indices as tensors on a device, copied all at once and without waiting."""
    with torch.inference_mode(False):  # otherwise autograd could not save them
        if device.type == "cpu":
            return [torch.from_numpy(array) for array in values]
        joined_arrays = torch.from_numpy(np.concatenate(values))
        return torch.split(to_device(joined_arrays, device), [len(array) for array in values])


@dataclass(eq=False)
class CellMap:
    """A gather in each direction, between packed rows `(N, …)` and cells `(n_cells, …)`.

    Attributes:
        rows: `(N,)` the index of the cell that belongs to each packed row.
        n_cells: number of cells, which is more than `N` if there is padding.
    """

    rows: Tensor
    n_cells: int
    _row_of_cell: Tensor | None = None

    def pack(self, cells: Tensor) -> Tensor:
        """Converts cells `(n_cells, …)` to packed rows `(N, …)`."""
        return cells.index_select(0, self.rows)

    def pad(self, rows: Tensor, padding_value: float) -> Tensor:
        """Converts packed rows `(N, …)` to cells `(n_cells, …)`, filled with `padding_value`."""
        n_rows = len(self.rows)
        if self._row_of_cell is None:  # the packed row of each cell; N at padding
            with torch.inference_mode(False):  # otherwise autograd could not save it
                row_numbers = torch.arange(n_rows, device=self.rows.device)
                cells = torch.full((self.n_cells,), n_rows, device=row_numbers.device)
                self._row_of_cell = cells.scatter_(0, self.rows, row_numbers)
        if self.n_cells > n_rows:
            padding = rows.new_full((1, *rows.shape[1:]), padding_value)
            rows = torch.cat((rows, padding))
        return rows.index_select(0, self._row_of_cell)


TensorMap = Callable[[Tensor], Tensor]


class _LinearMap(torch.autograd.Function):
    """A map whose gradient is another map that can be differentiated, too."""

    transpose: TensorMap

    @staticmethod
    def forward(ctx: _LinearMap, x: Tensor, call: TensorMap, transpose: TensorMap) -> Tensor:
        ctx.transpose = transpose
        return call(x)

    @staticmethod
    def backward(ctx: _LinearMap, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.transpose(gradient), None, None


def needs_grad(x: Tensor) -> bool:
    """Returns whether autograd will track what is computed from a tensor."""
    return x.requires_grad and torch.is_grad_enabled()


def pack_cells(cells: Tensor, cell_map: CellMap) -> Tensor:
    """Calls `cell_map.pack` so that the result can be differentiated any number of times."""
    if not needs_grad(cells):
        return cell_map.pack(cells)
    unpack = partial(unpack_rows, cell_map=cell_map, padding_value=0.0)
    rows: Tensor = _LinearMap.apply(cells, cell_map.pack, unpack)  # type: ignore[no-untyped-call]
    return rows


def unpack_rows(rows: Tensor, cell_map: CellMap, padding_value: float) -> Tensor:
    """Calls `cell_map.pad` so that the result can be differentiated any number of times."""
    pad = partial(cell_map.pad, padding_value=padding_value)
    if not needs_grad(rows):
        return pad(rows)
    pack = partial(pack_cells, cell_map=cell_map)
    cells: Tensor = _LinearMap.apply(rows, pad, pack)  # type: ignore[no-untyped-call]
    return cells


@dataclass(eq=False)
class BatchIndex:
    """A ragged batch on one device, and its *cell maps*: index tensors that select its cells.

    Building a cell map never waits for the device.

    The *rank* of a sequence is its position in the packed batch, where the longest sequence comes
    first.

    Attributes:
        batch_sizes: `(max(lengths),)` number of sequences at each time step.
        lengths: `(B,)` length of each sequence, in the caller's order, on the CPU.
        order: `(B,)` the caller's index of the sequence at each rank; `None` if the sequences are
            already sorted, longest first.
        device: the device of `order` and of the cell maps.
        n_rows: `N`, the number of real cells.
    """

    batch_sizes: IntArray
    lengths: Tensor
    order: Tensor | None
    device: torch.device

    def __post_init__(self) -> None:
        self.n_rows = int(self.batch_sizes.sum())
        self._cell_maps: dict[tuple[int, bool, int], CellMap] = {}

    def padded_cell_map(self, steps: int, batch_major: bool) -> CellMap:
        """Returns the cell map of a padded batch with `steps` time steps, `(B, T)` or `(T, B)`."""
        key = steps, batch_major, current_stream(self.device)
        batch = len(self.lengths)
        if key not in self._cell_maps:
            step_of_row, sequence_of_row = self._steps_and_sequences()
            padded_shape = PaddedShape(batch, steps, batch_major)
            self._cell_maps[key] = CellMap(
                padded_shape.row_index(sequence_of_row, step_of_row), steps * batch
            )
        return self._cell_maps[key]

    def _steps_and_sequences(self) -> tuple[Tensor, Tensor]:
        """Returns the time step and the caller's sequence of each packed row, `(N,)` each."""
        first_rows = np.cumsum(self.batch_sizes) - self.batch_sizes
        sizes, starts = arrays_to_device(self.device, self.batch_sizes, first_rows)
        step_of_row = torch.repeat_interleave(sizes, output_size=self.n_rows)
        row_numbers = torch.arange(self.n_rows, device=self.device)
        rank_of_row = row_numbers - starts.index_select(0, step_of_row)
        if self.order is None:
            return step_of_row, rank_of_row
        return step_of_row, self.order.index_select(0, rank_of_row)


def is_descending(values: list[int]) -> bool:
    """Returns whether a list has entries, all of at least 1, and never increases."""
    return bool(values) and values[-1] > 0 and values == sorted(values, reverse=True)


def batch_sizes_if_valid(packed: PackedSequence) -> list[int]:
    """Returns the `batch_sizes`, or an empty list if packing could not have produced them."""
    sizes = packed.batch_sizes
    is_cpu_int_vector = sizes.is_cpu and sizes.dtype == torch.int64 and sizes.ndim == 1
    if not is_cpu_int_vector or packed.data.numel() == 0:
        return []
    values: list[int] = sizes.tolist()
    is_consistent = is_descending(values) and sum(values) == packed.data.shape[0]
    return values if is_consistent else []


def is_reordered(order: Tensor | None, batch_size: int) -> bool:
    """Returns whether `order`, which must be on the CPU, differs from 0, 1, …, `batch_size - 1`."""
    return order is not None and order.tolist() != list(range(batch_size))


def index_from_lengths(
    sorted_lengths: Tensor,
    order: Tensor | None,
    sorted_indices: Tensor | None,
    device: torch.device,
) -> BatchIndex:
    """Returns the `BatchIndex` of a batch that is to be packed.

    Args:
        sorted_lengths: `(B,)` lengths on the CPU, longest first (see `is_descending`).
        order: `(B,)` the caller's index of each sequence in `sorted_lengths`, on the CPU; `None` if
            the caller's sequences are already sorted.
        sorted_indices: the same indices as `order`, but on `device`.
        device: the device of the batch.
    """
    lengths = sorted_lengths.clone()
    if order is not None:
        lengths[order] = sorted_lengths
    sizes = count_running_sequences(sorted_lengths.numpy())
    if not is_reordered(order, len(sorted_lengths)):
        sorted_indices = None
    return BatchIndex(sizes, lengths, sorted_indices, device)


def index_from_packed(packed: PackedSequence) -> BatchIndex | None:
    """Returns the index of a packed batch, whose `batch_sizes` must never increase.

    An index that was kept is used again if it is valid. The result is `None` if `unsorted_indices`
    is not a permutation of the sequences, or is not on the same device as the data.
    """
    if packed.batch_sizes in _index_cache:
        index, ranks, tensor_versions = _index_cache[packed.batch_sizes]
        fits_cached_index = index.device == packed.data.device and ranks is packed.unsorted_indices
        if fits_cached_index and tensor_versions == _tensor_versions(packed):
            return index
    device = packed.data.device
    ranks = packed.unsorted_indices
    sizes = packed.batch_sizes.numpy().copy()
    lengths = np.searchsorted(-sizes, -np.arange(sizes[0]))
    lengths_by_rank = torch.from_numpy(lengths)
    if ranks is None:
        return BatchIndex(sizes, lengths_by_rank, None, device)
    ranks_on_cpu = ranks.cpu()  # torch waits for the device, too
    is_permutation = sorted(ranks_on_cpu.tolist()) == list(range(len(lengths_by_rank)))
    if ranks.device != device or not is_permutation:
        return None
    order = None
    if is_reordered(ranks_on_cpu, len(ranks_on_cpu)):
        order = ranks.argsort()
    return BatchIndex(sizes, lengths_by_rank[ranks_on_cpu], order, device)


def cache_index(index: BatchIndex, packed: PackedSequence) -> None:
    """Keeps an index as long as the tensor `batch_sizes` exists, which an RNN passes on."""
    tensor_versions = _tensor_versions(packed)
    if tensor_versions is not None:
        _index_cache[packed.batch_sizes] = (index, packed.unsorted_indices, tensor_versions)


def _tensor_versions(packed: PackedSequence) -> tuple[int | None, ...] | None:
    """Returns torch's counts of in-place changes to indices; `None` if torch does not count."""
    tensors = [packed.batch_sizes]
    if packed.unsorted_indices is not None:
        tensors.append(packed.unsorted_indices)
    tensor_versions = tuple(map(version, tensors))
    return None if None in tensor_versions else tensor_versions


_CachedIndex = tuple[BatchIndex, Tensor | None, tuple[int | None, ...]]
_index_cache: MutableMapping[Tensor, _CachedIndex] = WeakIdKeyDictionary()
