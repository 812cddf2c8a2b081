"""What every argument is asked for, in the same words everywhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

Choice = TypeVar("Choice")


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
