"""Provides a sampler that puts sequences of similar lengths into the same batch, for one or more workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import Sampler

from packviz.core.batches import BUCKETED, WINDOW, batches, split
from packviz.core.layout import Layout
from packviz.core.validation import at_least


class BucketSampler(Sampler[list[int]]):
    """A sampler that yields batches of sequences with similar lengths, in random order.

    Pass the sampler to a `torch.utils.data.DataLoader` as the argument `batch_sampler`. In every
    epoch, all sequences are shuffled and divided into windows of `window` batches. Each window is
    sorted by length and cut into batches. Then all batches are shuffled. Within a batch, the
    longest sequence comes first.

    With several workers (`num_replicas`, as in `torch.utils.data.DistributedSampler`), every worker
    must make a sampler with its own `rank` and otherwise the same arguments. In each step, the
    workers then get batches of similar lengths, so no worker waits long for the others.

    Attributes:
        epoch: the epoch of the next pass. Each pass adds 1 to it, so every pass has a different
            order.

    Examples:
        >>> import packviz as pv
        >>> sampler = pv.BucketSampler([7, 2, 9, 3, 8, 1], batch_size=2)
        >>> sorted(index for batch in sampler for index in batch)  # each sequence once
        [0, 1, 2, 3, 4, 5]
    """

    def __init__(
        self,
        lengths: Any,
        batch_size: int,
        *,
        window: int = WINDOW,
        drop_last: bool = False,
        seed: int = 0,
        num_replicas: int = 1,
        rank: int = 0,
    ) -> None:
        """Creates a sampler for the lengths of a whole data set.

        Args:
            lengths: `(N,)` whole numbers of at least 0: a list, an array, a tensor or a `Layout`.
            batch_size: number of sequences per batch and worker.
            window: number of batches (of all workers together) that are sorted together. A window
                of 1 gains nothing.
            drop_last: whether to drop the batch that is smaller than the others, if there is one.
                If such a batch is kept and has fewer sequences than there are workers, some
                sequences are repeated, so that each worker gets one.
            seed: seed of epoch 0. All workers need the same seed.
            num_replicas: number of workers.
            rank: index of this worker, from 0.

        Raises:
            ValueError: a length is not valid; `batch_size`, `window` or `num_replicas` is not a
                whole number of at least 1; `seed` or `rank` is negative; or `rank` is not below
                `num_replicas`.
        """
        self.lengths = Layout(lengths).lengths
        self.batch_size = at_least("batch_size", batch_size)
        self.window = at_least("window", window)
        self.drop_last = drop_last
        self.seed = at_least("seed", seed, 0)
        self.num_replicas = at_least("num_replicas", num_replicas)
        self.rank = at_least("rank", rank, 0)
        if self.rank >= self.num_replicas:
            raise ValueError(
                f"rank is {rank}; give a number from 0 to {self.num_replicas - 1}, below num_replicas"
            )
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass, and thus its order, for example when training resumes.

        Raises:
            ValueError: `epoch` is not a whole number of at least 0.
        """
        self.epoch = at_least("epoch", epoch, 0)

    def __len__(self) -> int:
        together = self.batch_size * self.num_replicas
        return (
            self.lengths.size // together if self.drop_last else -(-self.lengths.size // together)
        )

    def __iter__(self) -> Iterator[list[int]]:
        together, workers = self.batch_size * self.num_replicas, self.num_replicas
        found = batches(
            self.lengths, together, BUCKETED, window=self.window, seed=self.seed + self.epoch
        )
        self.epoch += 1
        for batch in found:
            if self.drop_last and batch.size < together:
                continue
            shares = split(self.lengths[batch], min(workers, batch.size))
            yield batch[shares[self.rank % len(shares)]].tolist()
