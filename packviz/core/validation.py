"""Checks arguments, so that the same mistake has the same error message everywhere."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

Choice = TypeVar("Choice")
Given = ParamSpec("Given")
Result = TypeVar("Result")

SENSE_REVERSED = "it names the side of the padding, as in tokenizers, and no longer that of the data: pass the opposite side"
"""The explanation for arguments whose meaning was reversed."""


def at_least(name: str, value: Any, least: int = 1) -> int:
    """Checks that a value is a whole number of at least `least`, and returns it as an int.

    Raises:
        ValueError: the value is not such a number.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} is {value!r}; give a whole number of at least {least}")
    return int(value)


def one_of(name: str, choice: Choice, choices: Iterable[Any]) -> Choice:
    """Checks that a choice is among `choices`, and returns it.

    Raises:
        ValueError: `choice` is not among `choices`.
    """
    if choice not in (listed := [*choices]):
        raise ValueError(f"{name} is {choice!r}; choose one of {', '.join(map(repr, listed))}")
    return choice


def share(name: str, value: Any) -> float:
    """Checks that a value is a finite number of at least 0, and returns it as a float.

    Raises:
        ValueError: the value is not such a number.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < math.inf:
        raise ValueError(
            f"{name} is {value!r}; give a share (a number of at least 0), or leave it out"
        )
    return float(value)


def require_seconds(name: str, value: Any) -> float:
    """Checks that a value is a time in seconds, finite and greater than 0, and returns it as a
    float.

    Raises:
        ValueError: the value is not such a time.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise ValueError(f"{name} is {value!r}; give a number of seconds greater than 0")
    return float(value)


def require_dense(name: str, value: Any) -> None:
    """Rejects nested tensors, whose sizes are not numbers, and sparse tensors.

    Raises:
        TypeError: the value is such a tensor.
    """
    if getattr(value, "is_nested", False):
        raise TypeError(
            f"{name} is a nested tensor; give torch.nested.to_padded_tensor(nested, 0.0), which is batch first, and as"
            " lengths [len(one) for one in nested.unbind()]"
        )
    if str(getattr(value, "layout", "")).startswith("torch.sparse"):
        raise TypeError(f"{name} is a sparse tensor; give a dense one: {name}.to_dense()")


def kind_of(value: Any) -> str:
    """Returns the name of a value's type with its article, such as `a list`, `an int` or `an LSTM`."""
    name = type(value).__name__
    spelt = (name[:2].isupper() and name[0] in "FHLMNRSX") or name[
        :2
    ] == "nd"  # spoken letter by letter
    return f"{'an' if spelt or name[0] in 'aeioAEIO' else 'a'} {name}"


def require_values(name: str, value: Any) -> None:
    """Rejects tensors on torch's meta device, which have a shape but no values.

    Raises:
        ValueError: the value is such a tensor.
    """
    if getattr(value, "is_meta", False):
        raise ValueError(
            f"{name} is on the meta device, which stores no values; pass it on another device"
        )


def require_none(array: npt.NDArray[Any], bad: npt.NDArray[np.bool_], name: str, why: str) -> None:
    """Rejects an array if any entry of `bad` is True. The message gives the first bad entry of the
    array and `why`.

    Raises:
        ValueError: an entry of `bad` is True.
    """
    where = np.flatnonzero(bad)
    if where.size:
        more = f" (and {where.size - 1} more)" if where.size > 1 else ""
        raise ValueError(f"{name}[{where[0]}] is {array[where[0]]}{more}: {why}")


def require_whole(array: npt.NDArray[Any], name: str) -> None:
    """Checks that all entries are whole numbers, as integers or as floats such as 3.0.

    Functions that take lengths follow this rule, except packviz's versions of torch's functions:
    like the originals, they truncate floats.

    Raises:
        ValueError: an entry is not whole, or too large for a 64-bit number.
    """
    require_none(array, ~np.isfinite(array), name, "not a number of time steps")
    require_none(
        array,
        array != np.round(array),
        name,
        "not a whole number; torch would silently drop the fraction",
    )
    require_none(
        array, abs(array.astype(float)) >= 2**63, name, "too large for a 64-bit whole number"
    )


def renamed(
    why: str = "", **names: str
) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    """Makes a function reject the old names of its arguments: `@renamed(old="new")`.

    Args:
        why: an explanation to add to the error message if passing the same value under the new name
            is not enough.
        **names: the new name for each old name.
    """

    def decorate(function: Callable[Given, Result]) -> Callable[Given, Result]:
        @functools.wraps(function)
        def checked(*args: Given.args, **kwargs: Given.kwargs) -> Result:
            for old in kwargs:
                if old in names:
                    raise TypeError(f"the argument {old}= is now {names[old]}={why and '; '}{why}")
            return function(*args, **kwargs)

        return checked

    return decorate
