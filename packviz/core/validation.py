"""Checks arguments, so that the same mistake has the same error message everywhere."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Real
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Choice = TypeVar("Choice")


def at_least(name: str, value: object, least: int = 1) -> int:
    """Checks that a value is a whole number of at least `least`, and returns it as an int.

    Raises:
        ValueError: the value is not such a number.
    """
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= least:
        return int(value)
    raise ValueError(f"{name} is {value!r}; give a whole number of at least {least}")


def one_of(name: str, choice: Choice, choices: Iterable[object]) -> Choice:
    """Checks that a choice is among `choices`, and returns it.

    Raises:
        ValueError: `choice` is not among `choices`.
    """
    allowed = list(choices)
    if choice not in allowed:
        raise ValueError(f"{name} is {choice!r}; choose one of {', '.join(map(repr, allowed))}")
    return choice


def share(name: str, value: object) -> float:
    """Checks that a value is a finite number of at least 0, and returns it as a float.

    Raises:
        ValueError: the value is not such a number.
    """
    advice = "give a share (a number of at least 0), or leave it out"
    return _finite(name, value, advice, allow_zero=True)


def require_seconds(name: str, value: object) -> float:
    """Checks that a value is a time in seconds, finite and greater than 0, and returns it as a
    float.

    Raises:
        ValueError: the value is not such a time.
    """
    return _finite(name, value, "give a number of seconds greater than 0", allow_zero=False)


def _finite(name: str, value: object, advice: str, allow_zero: bool) -> float:
    if isinstance(value, Real) and not isinstance(value, bool):
        number = float(value)
        if 0 < number < math.inf or (allow_zero and number == 0):
            return number
    raise ValueError(f"{name} is {value!r}; {advice}")


def require_dense(name: str, value: object) -> None:
    """Rejects nested tensors, whose sizes are not numbers, and sparse tensors.

    Raises:
        TypeError: the value is such a tensor.
    """
    if getattr(value, "is_nested", False):
        raise TypeError(
            f"{name} is a nested tensor; give "
            "torch.nested.to_padded_tensor(nested, 0.0), which is batch first, and as"
            " lengths [len(one) for one in nested.unbind()]"
        )
    if str(getattr(value, "layout", "")).startswith("torch.sparse"):
        raise TypeError(f"{name} is a sparse tensor; give a dense one: {name}.to_dense()")


def require_values(name: str, value: object) -> None:
    """Rejects tensors on torch's meta device, which have a shape but no values.

    Raises:
        ValueError: the value is such a tensor.
    """
    if getattr(value, "is_meta", False):
        raise ValueError(
            f"{name} is on the meta device, which stores no values; pass it on another device"
        )


def kind_of(value: object) -> str:
    """Returns the name of a value's type with its article, such as `a list` or `an LSTM`."""
    name = type(value).__name__
    is_acronym = name[:2].isupper() and name[0] in "FHLMNRSX"  # spoken letter by letter
    takes_an = is_acronym or name.startswith("nd") or name[0] in "aeioAEIO"
    return f"an {name}" if takes_an else f"a {name}"


def require_none(
    array: npt.NDArray[np.generic], bad: npt.NDArray[np.bool_], name: str, why: str
) -> None:
    """Rejects an array if any entry of `bad` is True. The message gives the first bad entry of the
    array and `why`.

    Raises:
        ValueError: an entry of `bad` is True.
    """
    where = np.flatnonzero(bad)
    if where.size:
        more = f" (and {where.size - 1} more)" if where.size > 1 else ""
        raise ValueError(f"{name}[{where[0]}] is {array[where[0]]}{more}: {why}")
