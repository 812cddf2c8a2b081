"""How a padded batch is read: which of its first two dimensions holds the sequences, and which the time steps.

Shapes in, words out. Nothing here knows torch, so that whoever takes a padded batch reads it, and complains, alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from packviz.core.frames import warn


class Padded(NamedTuple):
    """The sides of a padded batch.

    Attributes:
        batch: `B`.
        steps: `T`.
        batch_first: whether it is `(B, T, …)`, else `(T, B, …)`.
    """

    batch: int
    steps: int
    batch_first: bool

    @classmethod
    def of(cls, shape: Sequence[int], batch_first: bool) -> Padded:
        """Reads a shape of at least two dimensions."""
        return cls(shape[0], shape[1], True) if batch_first else cls(shape[1], shape[0], False)

    @classmethod
    def fitting(
        cls, lengths: int, shape: Sequence[int], batch_first: bool | None, name: str = "x", features: str = ", …"
    ) -> Padded:
        """Reads the shape of a batch for which so many lengths were given.

        Args:
            lengths: how many.
            shape: of at least two dimensions.
            batch_first: as in `batch_is_first`.
            name: of what has this shape.
            features: as in `order`.

        Raises:
            ValueError: it does not have as many sequences.
        """
        found = cls.of(shape, bool(batch_first))
        # To be asked first: with the batch dimension mistaken, every other complaint would mislead.
        if lengths != found.batch:
            entries = "1 entry" if lengths == 1 else f"{lengths} entries"
            hint = f"; did you mean batch_first={not batch_first}?" if lengths == found.steps else ""
            described = reading(shape, batch_first, name, features)
            raise ValueError(f"lengths has {entries}, but {described}, has B = {found.batch}{hint}")
        batch_is_first(batch_first, shape, name)
        return found

    def shape(self, features: int) -> tuple[int, int, int]:
        """The shape of a tensor with so many features."""
        return (self.batch, self.steps, features) if self.batch_first else (self.steps, self.batch, features)

    def rows(self, sequence: Any, step: Any) -> Any:
        """Which rows of such a tensor these cells are: arrays in, an array out."""
        return sequence * self.steps + step if self.batch_first else step * self.batch + sequence


def batch_is_first(batch_first: bool | None, shape: Sequence[int], name: str = "x") -> bool:
    """Returns whether the batch is the first dimension of a padded batch. If this is not given, time is, as in torch.

    Warns if it is not given and `B` equals `T`: then a forgotten `batch_first=True` changes results without an error.
    """
    if batch_first is None and shape[0] == shape[1] > 1:
        warn(
            f"{reading(shape, False, name)}, has as many sequences as time steps, so a wrong order shows no error."
            " Pass batch_first=False if this order is right, or batch_first=True if the batch is the first dimension"
        )
    return bool(batch_first)


def order(batch_first: bool | None, features: str = ", …") -> str:
    """The dimensions in the order they are read: `(T, B, …)`, or `(B, T, …)` with `batch_first`."""
    return f"(B, T{features})" if batch_first else f"(T, B{features})"


def reading(shape: Sequence[int], batch_first: bool | None, name: str = "x", features: str = ", …") -> str:
    """How a batch is read, for a complaint: `x of shape (5, 3, 2), read as (T, B, …)`."""
    return f"{name} of shape {tuple(shape)}, read as {order(batch_first, features)}"
