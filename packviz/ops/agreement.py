"""Measures how far apart results are, and checks whether they agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from packviz.core.validation import kind_of


def relative_difference(ours: Tensor, theirs: Tensor) -> float:
    """Returns the largest difference between two tensors, relative to the largest finite absolute
    value in `theirs`.

    The result is infinite if either tensor contains NaN, or contains an infinity where the other
    has a different value.
    """
    if not theirs.numel():
        return 0.0
    ours, theirs = ours.detach().double(), theirs.detach().double()
    gap = (ours - theirs).abs().masked_fill(ours == theirs, 0.0)  # equal infinities do not differ
    found = float(gap.max()) / max(
        float(theirs.abs().masked_fill(theirs.isinf(), 0.0).max()), 1e-300
    )
    return found if math.isfinite(found) else math.inf


def relative_error(
    ours: Sequence[Tensor], theirs: Sequence[Tensor], allowed: Callable[[torch.dtype], float]
) -> tuple[float, int | None]:
    """Compares two lists of results, pair by pair.

    Args:
        ours: the results to check.
        theirs: the results that `ours` should equal.
        allowed: a function that takes a dtype and returns the largest error that rounding can
            explain.

    Returns:
        A difference and an index. If no pair differs by more than is allowed, these are the largest
        `relative_difference` of all pairs and `None`. Otherwise, they are the largest difference
        among the pairs that differ by more, and the index of the first of these pairs. The
        difference between results of different shapes is infinite.
    """
    pairs = list(zip(ours, theirs, strict=True))
    errors = [relative_difference(a, b) if a.shape == b.shape else math.inf for a, b in pairs]
    wrong = [i for i, error in enumerate(errors) if error > allowed(theirs[i].dtype)]
    return max((errors[i] for i in wrong or range(len(errors))), default=0.0), next(
        iter(wrong), None
    )


def leaves(nested: Any, name: str = "result") -> dict[str, Tensor]:
    """Returns CPU copies of the tensors in nested tuples, lists and dicts, under names such as
    `result[0]['loss']`.

    Numbers and NumPy arrays become tensors, complex values become pairs of real ones, and `None` is
    left out.

    Raises:
        TypeError: `nested` contains something that cannot become a tensor.
    """
    if nested is None:
        return {}
    if getattr(nested, "is_nested", False):
        nested = nested.unbind()
    if isinstance(nested, (Mapping, tuple, list)):
        parts = nested.items() if isinstance(nested, Mapping) else enumerate(nested)
        return {
            key: leaf for i, part in parts for key, leaf in leaves(part, f"{name}[{i!r}]").items()
        }
    try:
        leaf = torch.as_tensor(nested).detach().to("cpu", copy=True)
    except (TypeError, ValueError, RuntimeError):
        kind = kind_of(nested)
        raise TypeError(
            f"{name} is {kind}; return tensors, numbers, or tuples, lists and dicts of these"
        ) from None
    leaf = leaf if leaf.layout == torch.strided else leaf.to_dense()
    return {name: torch.view_as_real(leaf.resolve_conj()) if leaf.is_complex() else leaf}


def require_same(
    results: Mapping[str, Mapping[str, Tensor]], allowed: Callable[[torch.dtype], float]
) -> float:
    """Checks that several functions return the same results as the first of them.

    Args:
        results: the result of each function, by the function's name, in the form that `leaves`
            returns.
        allowed: a function that takes a dtype and returns the largest error that rounding can
            explain.

    Returns:
        The largest `relative_difference` from the results of the first function.

    Raises:
        ValueError: the results of two functions disagree. The message names the first part that
            differs, and describes the difference.
    """
    (first, right), *others = results.items()
    largest = 0.0
    for name, found in others:
        said = f"{name} does not return what {first} returns: "
        for part in {**right, **found}:
            if part not in right or part not in found:
                has, lacks = (name, first) if part in found else (first, name)
                raise ValueError(f"{said}{part} is returned by {has} but not by {lacks}")
        error, wrong = relative_error([found[part] for part in right], [*right.values()], allowed)
        if wrong is not None:
            part, wanted = [*right.items()][wrong]
            if found[part].shape != wanted.shape:
                raise ValueError(
                    f"{said}{part} has shape {tuple(found[part].shape)}, not {tuple(wanted.shape)}"
                )
            off, most = relative_difference(found[part], wanted), allowed(wanted.dtype)
            raise ValueError(
                f"{said}{part} differs by {off:.2g} of its largest value; only {most:.2g} is allowed"
            )
        largest = max(largest, error)
    return largest
