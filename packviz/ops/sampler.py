"""Provides a sampler that puts sequences of similar lengths into the same batch."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from torch import distributed
from torch.utils.data import Dataset, Sampler

from packviz.core.batches import BUCKETED, WINDOW, batches, split
from packviz.core.layout import Layout
from packviz.core.validation import kind_of, require_at_least


class BucketSampler(Sampler[list[int]]):
    """A sampler that yields batches of sequences with similar lengths, in random order.

    Pass the sampler to a `torch.utils.data.DataLoader` as the argument `batch_sampler`. In every
    epoch, all sequences are shuffled and divided into windows of `window` batches. Each window is
    sorted by length and cut into batches. Then all batches are shuffled. Within a batch, the
    longest sequence comes first.

    In distributed training, every process makes a sampler with its own rank and otherwise the same
    arguments. If `torch.distributed` is initialised, the sampler asks it for the rank and the
    number of replicas. In each step, the ranks then get batches of similar lengths, so none of them
    waits long for the others.

    To resume within an epoch, save `state_dict()` beside the model's. It counts the batches that
    the sampler has yielded. A DataLoader with processes of its own asks for batches in advance, so
    there the count runs ahead of training.

    Attributes:
        epoch: the epoch of the next pass. Each pass adds 1 to it when it begins, so every pass has
            a different order.

    Examples:
        >>> import packviz as pv
        >>> sampler = pv.BucketSampler([7, 2, 9, 3, 8, 1], batch_size=2)
        >>> sorted(index for batch in sampler for index in batch)  # each sequence once
        [0, 1, 2, 3, 4, 5]
    """

    def __init__(
        self,
        lengths: object,
        batch_size: int,
        *,
        window: int = WINDOW,
        drop_last: bool = False,
        seed: int = 0,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        """Creates a sampler for the lengths of a whole data set.

        Args:
            lengths: `(N,)` whole numbers of at least 0: a list, an array, a tensor or a `Layout`;
                or a mask, `(N, T)`.
            batch_size: number of sequences per batch and rank.
            window: number of batches (of all ranks together) that are sorted together. A window
                of 1 gains nothing.
            drop_last: whether to drop the batch that is smaller than the others, if there is one.
                If such a batch is kept and has fewer sequences than there are ranks, some
                sequences are repeated, so that each rank gets one.
            seed: seed of epoch 0. All ranks need the same seed.
            num_replicas: number of ranks. Defaults to the world size of `torch.distributed`, or to
                1 if it is not initialised.
            rank: the rank of this process, from 0. Defaults to that in `torch.distributed`, or to
                0. Pass both or neither.

        Raises:
            ValueError: a length is not valid; `batch_size`, `window` or `num_replicas` is not a
                whole number of at least 1; `seed` or `rank` is negative; `rank` is not below
                `num_replicas`; or only one of these two is passed.
        """
        if isinstance(lengths, Dataset):
            raise TypeError(
                f"lengths is {kind_of(lengths)}; give the number of time steps of each of its items"
            )
        self.lengths = Layout(lengths).lengths
        self.batch_size = require_at_least("batch_size", batch_size)
        self.window = require_at_least("window", window)
        self.drop_last = drop_last
        self.seed = require_at_least("seed", seed, 0)
        if (num_replicas is None) != (rank is None):
            raise ValueError(
                f"num_replicas is {num_replicas}, but rank is {rank}; pass both or neither"
            )
        if num_replicas is None or rank is None:
            is_distributed = distributed.is_available() and distributed.is_initialized()
            num_replicas = distributed.get_world_size() if is_distributed else 1
            rank = distributed.get_rank() if is_distributed else 0
        self.num_replicas = require_at_least("num_replicas", num_replicas)
        self.rank = require_at_least("rank", rank, 0)
        if self.rank >= self.num_replicas:
            raise ValueError(
                f"rank is {rank}, but num_replicas is {self.num_replicas}; give a lower rank"
            )
        self.load_state_dict({"epoch": 0})

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass, and thus its order.

        The epoch that is set already keeps its place, so that a pass can be resumed.

        Raises:
            ValueError: `epoch` is not a whole number of at least 0.
        """
        self.load_state_dict({"epoch": epoch, "yielded": self._start * (epoch == self.epoch)})

    def state_dict(self) -> dict[str, int]:
        """Returns the epoch of the pass in progress, and how many of its batches were yielded.

        The batches depend on the other entries, which are arguments of the sampler, and a checksum
        of the lengths.
        """
        return {**self._state, **self._settings()}

    def _settings(self) -> dict[str, int]:
        names = ("batch_size", "window", "seed", "num_replicas", "drop_last")
        settings = {"sequences": self.lengths.size, **{name: getattr(self, name) for name in names}}
        settings["lengths_checksum"] = zlib.crc32(self.lengths.tobytes())
        return settings

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Makes the next pass continue after the last batch that was yielded.

        Raises:
            ValueError: `epoch` is missing, or a number in `state` is negative or not whole; or the
                pass has begun, and the arguments of the sampler were others, so that its batches
                are not these. States of earlier versions do not show whether the lengths were
                others. Without `yielded`, the pass begins anew.
        """
        start = require_at_least("yielded", state.get("yielded", 0), 0)
        for name, value in self._settings().items():
            saved_value = state.get(name, value)
            if start and saved_value != value:
                raise ValueError(
                    f"{name} was {saved_value} when the state was saved, and is {value} here;"
                    " create the sampler as it was, or begin an epoch with set_epoch"
                )
        self.epoch = require_at_least("epoch", state.get("epoch"), 0)
        self._start = start
        self._state = {"epoch": self.epoch, "yielded": start}

    def __len__(self) -> int:
        global_batch_size = self.batch_size * self.num_replicas
        if self.drop_last:
            return self.lengths.size // global_batch_size
        return -(-self.lengths.size // global_batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        global_batch_size = self.batch_size * self.num_replicas
        seed = self.seed + self.epoch
        global_batches = batches(
            self.lengths, global_batch_size, BUCKETED, window=self.window, seed=seed
        )
        if self.drop_last:
            global_batches = [batch for batch in global_batches if batch.size == global_batch_size]
        start = self._start
        state = {"epoch": self.epoch, "yielded": start}
        self.epoch += 1
        self._start = 0
        for batch in global_batches[start:]:
            state["yielded"] += 1
            self._state = state
            rank_batches = split(self.lengths[batch], min(self.num_replicas, batch.size))
            yield batch[rank_batches[self.rank % len(rank_batches)]].tolist()
        self._state = {"epoch": state["epoch"] + 1, "yielded": 0}
