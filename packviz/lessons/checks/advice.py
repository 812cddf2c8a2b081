"""The exercise on several workers (notebook 10)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from packviz.lessons.exercise import NOT_YET, Comparison, Verdict, exercise


@exercise
def worker_loss(answer: Callable[[Any, int, int], Any]) -> Verdict:
    """A worker's loss that makes the average of the workers' gradients that of all tokens' mean (notebook 10)."""
    from torch import Tensor, arange, autograd  # noqa: PLC0415

    right = []
    for tokens in ([6, 2], [3, 3], [5, 1, 2], [7]):
        workers, total = len(tokens), sum(tokens)
        weights = []
        for count in tokens:
            losses = (1.0 + arange(count)).requires_grad_()
            yours = answer(losses, total, workers)
            if yours is None or yours is ...:
                return Verdict(False, NOT_YET)
            if not isinstance(yours, Tensor) or yours.numel() != 1 or not yours.requires_grad:
                return Verdict(False, "Return one number, a tensor made from `losses`: backward() starts at it.")
            (gradient,) = autograd.grad(yours.reshape(()), losses)
            weights.append((gradient / workers).tolist())  # DDP averages over the workers
        shown = Comparison(
            f"weight of each token in the averaged gradient, %: workers with {' + '.join(map(str, tokens))} tokens",
            [f"{100 * w:.3g}" for own in weights for w in own],
            [f"{100 / total:.3g}"] * total,
        )
        if list(shown.yours) != list(shown.target):
            hint = _weight_hint(weights, tokens)
            return Verdict(False, f"Not yet for workers with {tokens} tokens. {hint}", [shown])
        right.append(shown)
    return Verdict(True, "Every token counts the same, whoever works on it; here for 6 and 2 tokens.", right[:1])


def _weight_hint(weights: Sequence[Sequence[float]], tokens: Sequence[int]) -> str:
    workers = len(tokens)
    own_means = [[1 / (count * workers)] * count for count in tokens]
    if _near(weights, own_means):
        return "Each worker divides by its own tokens, so a token of a small share weighs more. Divide by all tokens."
    if _near(weights, [[1 / (sum(tokens) * workers)] * count for count in tokens]):
        return "All tokens weigh the same, but too little: the average divides by the number of workers once more."
    if _near(weights, [[1 / workers] * count for count in tokens]):
        return "That is a sum, and grows with the batch. Divide by the tokens of all workers."
    return "Add up the losses, divide by the tokens of all workers, and undo the division by the number of workers."


def _near(found: Sequence[Sequence[float]], wanted: Sequence[Sequence[float]]) -> bool:
    pairs = (pair for both in zip(found, wanted, strict=True) for pair in zip(*both, strict=True))
    return all(abs(a - b) < 1e-4 for a, b in pairs)
