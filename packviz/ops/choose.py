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

MAX_UNSPLIT_CELLS = 500
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
        rectangle_count_text = f", {calls} rectangles" if calls > 1 else ""
        return f"auto takes: {self.method}{rectangle_count_text}\nreason: {self.reason}"


@lru_cache(maxsize=64)
def choose_plan(
    mode: str,
    lengths: tuple[int, ...],
    training: bool,
    device: str,
    has_fused_kernel: bool,
    is_projected: bool = False,
) -> Plan:
    """Chooses the method and the cuts for a batch.

    Args:
        mode: the RNN's `mode`.
        lengths: `(B,)` lengths of at least 1, in any order.
        training: whether there is a backward pass.
        device: `"cpu"` or `"cuda"`.
        has_fused_kernel: whether torch runs oneDNN's LSTM on data like this batch.
        is_projected: whether the RNN is an LSTM with projections, for which oneDNN has no kernel.
    """
    steps = max(lengths)
    no_cuts = (0, steps)
    is_unprojected_inference = not training and not is_projected
    if steps == min(lengths) and (has_fused_kernel or is_unprojected_inference or device != "cpu"):
        return Plan("frozen", no_cuts, "all lengths are equal, so there is nothing to pack")
    if device != "cpu":
        return Plan("packed", no_cuts, "on a GPU, no other method has been measured")
    if has_fused_kernel:
        cuts = best_cuts(lengths, CALL)
        method = "staircase" if len(cuts) > 2 else "frozen"
        return Plan(method, cuts, f"a call of oneDNN's fused LSTM takes as long as {CALL} cells")
    if training:
        return Plan(
            "split", no_cuts, "torch's packed backward pass goes through all cells at each step"
        )
    if mode.startswith("RNN") and sum(lengths) > MAX_UNSPLIT_CELLS:
        return Plan("split", no_cuts, "in an nn.RNN's forward pass, split is faster than packing")
    return Plan("packed", no_cuts, "in this forward pass, no other method is faster")
