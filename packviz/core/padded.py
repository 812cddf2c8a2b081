"""Reads the shape of a padded batch: the batch and time come first, in either order.

packviz's own functions for padded batches use this module, so they read shapes in the same way and
raise the same errors. The module does not need torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packviz.core.util import warn
from packviz.core.validation import reject_entries


class PaddedShape(NamedTuple):
    """The dimensions of a padded batch.

    Attributes:
        batch: `B`, the number of sequences.
        steps: `T`, the number of time steps.
        batch_first: whether the shape is `(B, T, …)` rather than `(T, B, …)`.
    """

    batch: int
    steps: int
    batch_first: bool

    @classmethod
    def from_shape(cls, shape: Sequence[int], batch_first: bool) -> PaddedShape:
        """Reads a shape with at least two dimensions."""
        first_size, second_size = shape[:2]
        if batch_first:
            return cls(first_size, second_size, True)
        return cls(second_size, first_size, False)

    @classmethod
    def from_checked_shape(
        cls,
        n_lengths: int,
        shape: Sequence[int],
        batch_first: bool | None,
        name: str = "x",
        feature_dim_names: str = ", …",
    ) -> PaddedShape:
        """Reads the shape of a batch, and checks that it fits the number of lengths.

        Args:
            n_lengths: the number of lengths.
            shape: a shape with at least two dimensions.
            batch_first: whether the batch is the first dimension; `None` means False (see
                `resolve_batch_first`).
            name: the name of the tensor for error messages.
            feature_dim_names: the names of the dimensions after the first two, as text with a
                leading comma, such as `", I"`.

        Raises:
            ValueError: the number of sequences differs from the number of lengths.
        """
        padded = cls.from_shape(shape, bool(batch_first))
        # This check comes first, because if the batch dimension is mistaken, every other message
        # would mislead.
        if n_lengths != padded.batch:
            problem = (
                f"{describe_shape(shape, batch_first, name, feature_dim_names)},"
                f" has B = {padded.batch}"
            )
            if n_lengths == padded.steps:
                problem += (
                    f"; did you mean batch_first={not batch_first}? (A mask is (B, T) either way.)"
                )
            raise ValueError(f"lengths has B = {n_lengths}, but {problem}")
        resolve_batch_first(batch_first, shape, name)
        return padded

    def require_fitting_lengths(self, lengths: npt.NDArray[np.int64], shape_text: str) -> None:
        """Rejects lengths that are not from 0 to `T`.

        `shape_text` describes the batch (see `describe_shape`).

        Raises:
            ValueError: there is such a length.
        """
        is_out_of_range = (lengths < 0) | (lengths > self.steps)
        why = f"{shape_text}, has T = {self.steps}; give a length of at most {self.steps}"
        reject_entries(lengths, is_out_of_range, "lengths", why)

    def shape(self, features: int) -> tuple[int, int, int]:
        """Returns the shape of a batch with these dimensions and this number of features."""
        if self.batch_first:
            return self.batch, self.steps, features
        return self.steps, self.batch, features

    def row_index(self, sequence: Any, step: Any) -> Any:
        """Returns the row of cells in the flattened batch, given their sequences and time steps."""
        if self.batch_first:
            return sequence * self.steps + step
        return step * self.batch + sequence


def resolve_batch_first(batch_first: bool | None, shape: Sequence[int], name: str = "x") -> bool:
    """Returns whether the batch is the first dimension.

    If `batch_first` is `None`, time comes first, as in torch. Warns if `batch_first` is `None` and
    `B` equals `T` (unless both are 1), because a forgotten `batch_first=True` would then change
    results without an error.
    """
    if batch_first is None and shape[0] == shape[1] > 1:
        warn(
            f"{describe_shape(shape, False, name)}, has as many sequences as time steps, so no"
            " error would arise if the two were swapped. Pass batch_first=False if time is the"
            " first dimension, or batch_first=True if the batch is"
        )
    return bool(batch_first)


def is_padding_on_side(cells: Any, lengths: npt.NDArray[np.int64], side: str) -> bool:
    """Returns whether the values show that the padding of `cells`, `(B, T, …)`, is on one side.

    They do if the same value fills the padding there, and not on the other side.
    """
    step = np.arange(cells.shape[1])
    is_right_constant = is_constant(cells[step >= lengths[:, None]])
    is_left_constant = is_constant(cells[step < cells.shape[1] - lengths[:, None]])
    if side == "left":
        return is_left_constant and not is_right_constant
    return is_right_constant and not is_left_constant


def is_constant(cells: Any) -> bool:
    """Returns whether all cells are the same, or all are NaN."""
    return bool((cells == cells[:1]).all() or (cells != cells).all())


def dimension_order(batch_first: bool | None, feature_dim_names: str = ", …") -> str:
    """Returns the names of the dimensions: `(T, B, …)`, or `(B, T, …)` with `batch_first`."""
    return f"(B, T{feature_dim_names})" if batch_first else f"(T, B{feature_dim_names})"


def describe_shape(
    shape: Sequence[int], batch_first: bool | None, name: str = "x", feature_dim_names: str = ", …"
) -> str:
    """Describes a batch for an error message: `x of shape (5, 3, 2), read as (T, B, …)`."""
    return (
        f"{name} of shape {tuple(shape)}, read as {dimension_order(batch_first, feature_dim_names)}"
    )
