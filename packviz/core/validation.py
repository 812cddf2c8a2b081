"""What every argument is asked for, in the same words everywhere."""

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

SENSE_REVERSED = (
    "it names the side of the padding, as in tokenizers, and no longer that of the data: pass the opposite side"
)
"""Why a side is passed otherwise than before."""


def at_least(name: str, value: Any, least: int = 1) -> int:
    """The value as an int.

    Raises:
        ValueError: it is not a whole number of at least so much.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} is {value!r}; give a whole number of at least {least}")
    return int(value)


def one_of(name: str, choice: Choice, choices: Iterable[Any]) -> Choice:
    """The choice.

    Raises:
        ValueError: it is not among the choices.
    """
    if choice not in (listed := [*choices]):
        raise ValueError(f"{name} is {choice!r}; choose one of {', '.join(map(repr, listed))}")
    return choice


def share(name: str, value: Any) -> float:
    """The value as a float.

    Raises:
        ValueError: it is not a finite number of at least 0.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < math.inf:
        raise ValueError(f"{name} is {value!r}; give a share, a number of at least 0, or leave it out")
    return float(value)


def require_seconds(name: str, value: Any) -> float:
    """Returns the value, a time in seconds, as a float.

    Raises:
        ValueError: it is not a finite number over 0.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise ValueError(f"{name} is {value!r}; give a number of seconds over 0")
    return float(value)


def require_dense(name: str, value: Any) -> None:
    """Lets everything pass but two kinds of torch's tensors: nested ones, whose sizes are no numbers, and sparse ones.

    Raises:
        TypeError: it is one.
    """
    if getattr(value, "is_nested", False):
        raise TypeError(
            f"{name} is a nested tensor; give torch.nested.to_padded_tensor(nested, 0.0), which is batch first, and as"
            " lengths [len(one) for one in nested.unbind()]"
        )
    if str(getattr(value, "layout", "")).startswith("torch.sparse"):
        raise TypeError(f"{name} is a sparse tensor; give a dense one: {name}.to_dense()")


def require_values(name: str, value: Any) -> None:
    """Lets everything pass but tensors on torch's meta device, which have a shape and no values.

    Raises:
        ValueError: it is one.
    """
    if getattr(value, "is_meta", False):
        raise ValueError(f"{name} is on the meta device, which holds no values; give it on a device that does")


def require_none(array: npt.NDArray[Any], bad: npt.NDArray[np.bool_], name: str, why: str) -> None:
    """Names the first of the bad entries.

    Raises:
        ValueError: there is one.
    """
    where = np.flatnonzero(bad)
    if where.size:
        more = f" (and {where.size - 1} more)" if where.size > 1 else ""
        raise ValueError(f"{name}[{where[0]}] is {array[where[0]]}{more}: {why}")


def require_whole(array: npt.NDArray[Any], name: str) -> None:
    """Lets integers pass, and floats that are whole: the one rule for all who take lengths, but the drop-ins.

    These do what torch does: it cuts floats off in a list, and refuses a tensor of them.

    Raises:
        ValueError: an entry is not whole, or too large for a 64-bit number.
    """
    require_none(array, ~np.isfinite(array), name, "not a number of time steps")
    require_none(array, array != np.round(array), name, "not a whole number; torch would silently cut it off")
    require_none(array, abs(array.astype(float)) >= 2**63, name, "too large for a 64-bit whole number")


def renamed(why: str = "", **names: str) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    """Makes a function refuse the old names of its arguments: `@renamed(old="new")`.

    Args:
        why: what else has changed, if passing the same value under the new name is not enough.
        **names: the new name of each old one.
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
