"""Chooses the method that should run a batch fastest, by a rule. Nothing is measured.

On 90 batches that the rule was not made for, measured on a server CPU with one and with two
threads, the chosen method took 1.01 to 1.02 times as long as the fastest one, in the geometric
mean. No batch took more than 1.3 times as long. On a GPU nothing has been measured yet, so torch's
own kernels run there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from packviz.core.cuts import Cuts, best_cuts
from packviz.core.util import HasText

CALL = 200
"""A call of the fused LSTM takes about as long as this many cells."""

FEW_CELLS = 500
"""With at most this many real cells, `"split"` does not speed up an `nn.RNN`'s forward pass."""


@dataclass(frozen=True)
class Plan(HasText):
    """The method chosen for a batch, and the reason for the choice.

    Attributes:
        method: the method to use.
        cuts: the time steps at which the method cuts the batch, including 0 and `T`; `(0, T)` if it
            does not cut the batch.
        reason: the rule behind the choice.
    """

    method: str
    cuts: Cuts
    reason: str

    def to_text(self) -> str:
        """Returns the method and the reason."""
        calls = len(self.cuts) - 1
        stairs = f", {calls} rectangles" if calls > 1 else ""
        return f"auto takes: {self.method}{stairs}\nreason: {self.reason}"


@lru_cache(maxsize=64)
def choose(
    mode: str,
    lengths: tuple[int, ...],
    training: bool,
    device: str,
    fused: bool,
    projected: bool = False,
) -> Plan:
    """Chooses the method and the cuts for a batch.

    Args:
        mode: the RNN's `mode`.
        lengths: `(B,)` lengths of at least 1, in any order.
        training: whether there is a backward pass.
        device: `"cpu"` or `"cuda"`.
        fused: whether torch runs oneDNN's LSTM on data like this batch.
        projected: whether the RNN is an LSTM with projections, for which oneDNN has no kernel.
    """
    steps = max(lengths)
    uncut = (0, steps)
    is_forward = not training and not projected
    if steps == min(lengths) and (fused or is_forward or device != "cpu"):
        return Plan("frozen", uncut, "all lengths are equal, so there is nothing to pack")
    if device != "cpu":
        return Plan("packed", uncut, "on a GPU, no other method has been measured")
    if fused:
        cuts = best_cuts(lengths, CALL)
        method = "staircase" if len(cuts) > 2 else "frozen"
        return Plan(method, cuts, f"a call of oneDNN's fused LSTM takes as long as {CALL} cells")
    if training:
        return Plan(
            "split", uncut, "torch's packed backward pass goes through all cells at each step"
        )
    if mode.startswith("RNN") and sum(lengths) > FEW_CELLS:
        return Plan("split", uncut, "in an nn.RNN's forward pass, split is faster than packing")
    return Plan("packed", uncut, "in this forward pass, no other method is faster")
