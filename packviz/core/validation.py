"""Checks arguments, so that the same mistake has the same error message everywhere."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Real
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Choice = TypeVar("Choice")


def require_at_least(name: str, value: object, minimum: int = 1) -> int:
    """Checks that a value is a whole number of at least `minimum`, and returns it as an int.

    Raises:
        ValueError: the value is not such a number.
    """
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= minimum:
        return int(value)
    raise ValueError(f"{name} is {value!r}; give a whole number of at least {minimum}")


def require_one_of(name: str, choice: Choice, choices: Iterable[object]) -> Choice:
    """Checks that a choice is among `choices`, and returns it.

    Raises:
        ValueError: `choice` is not among `choices`.
    """
    allowed_values = list(choices)
    if choice not in allowed_values:
        raise ValueError(
            f"{name} is {choice!r}; choose one of {', '.join(map(repr, allowed_values))}"
        )
    return choice


def require_nonnegative(name: str, value: object) -> float:
    """Checks that a value is a finite number of at least 0, and returns it as a float.

    Raises:
        ValueError: the value is not such a number.
    """
    number = _finite_or_nan(value)
    if not number >= 0:
        raise ValueError(
            f"{name} is {value!r}; give a finite number of at least 0, or leave it out"
        )
    return number


def require_seconds(name: str, value: object) -> float:
    """Checks that a value is a time in seconds, finite and greater than 0, and returns it.

    Raises:
        ValueError: the value is not such a time.
    """
    seconds = _finite_or_nan(value)
    if not seconds > 0:
        raise ValueError(f"{name} is {value!r}; give a finite number of seconds greater than 0")
    return seconds


def _finite_or_nan(value: object) -> float:
    """Returns a finite number as a float, or NaN for anything else."""
    if isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return math.nan


def require_dense(name: str, value: object) -> None:
    """Rejects nested tensors, whose sizes are not numbers, and sparse tensors.

    Raises:
        TypeError: the value is such a tensor.
    """
    if getattr(value, "is_nested", False):
        raise TypeError(
            f"{name} is a nested tensor; give [len(row) for row in nested.unbind()] as lengths, and"
            " torch.nested.to_padded_tensor(nested, 0.0) as the batch, with batch_first=True"
        )
    if str(getattr(value, "layout", "")).startswith("torch.sparse"):
        raise TypeError(f"{name} is a sparse tensor; give a dense one: {name}.to_dense()")


def require_plain_values(name: str, value: object) -> None:
    """Rejects tensors and arrays whose values cannot be used as they are.

    Raises:
        TypeError: the value is a nested, sparse or quantised tensor, or a NumPy masked array.
    """
    require_dense(name, value)
    if getattr(value, "is_quantized", False):
        raise TypeError(f"{name} is a quantised tensor; give {name}.dequantize()")
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a NumPy masked array, whose mask would be ignored; give a plain array"
        )


def reject_meta(name: str, value: object) -> None:
    """Rejects tensors on torch's meta device, which have a shape but no values.

    Raises:
        ValueError: the value is such a tensor.
    """
    if getattr(value, "is_meta", False):
        raise ValueError(
            f"{name} is on the meta device, which stores no values; create it on another device"
        )


def kind_of(value: object) -> str:
    """Returns the name of a value's type with its article, such as `a list` or `an LSTM`.

    A class is named itself, and `None` has no article.
    """
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    is_acronym = name[:2].isupper() and name[0] in "FHLMNRSX"  # spoken letter by letter
    takes_an = is_acronym or name.startswith("nd") or name[0] in "aeioAEIO"
    return f"an {name}" if takes_an else f"a {name}"


def reject_entries(
    array: npt.NDArray[np.generic], is_invalid: npt.NDArray[np.bool_], name: str, why: str
) -> None:
    """Rejects an array if any entry of `is_invalid` is True.

    The message gives the first bad entry of the array and `why`.

    Raises:
        ValueError: an entry of `is_invalid` is True.
    """
    invalid_positions = np.flatnonzero(is_invalid)
    if invalid_positions.size == 0:
        return
    first_position = invalid_positions[0]
    more_text = ""
    if invalid_positions.size > 1:
        more_text = f" (one of {invalid_positions.size} such entries)"
    raise ValueError(f"{name}[{first_position}] is {array[first_position]}{more_text}: {why}")
