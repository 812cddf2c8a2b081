"""Every method to run an RNN on a batch: one call of each to compare them, and passes over batches to be timed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from packviz.bench import rnn_calls
from packviz.bench.timing import clock_for
from packviz.core.has_text import first_line
from packviz.core.layout import IntArray
from packviz.ops.agreement import relative_error
from packviz.ops.tolerance import of_states

PADDED, PACKED = "torch, padded", "torch, packed"
METHODS = ("auto", "padded", "packed", "split", "staircase")
"""What `pv.run` offers; all give the results of packing."""

_STOPPED = "stopped before every method was looked at: nothing was measured"


Batch = tuple[Tensor, Tensor]
"""A padded batch `(T, B, I)`, or `(B, T, I)` if the RNN is `batch_first`, and its lengths `(B,)` on the CPU."""

Method = Callable[[Any, Any, Any], Any]
"""Takes the RNN and a batch, as in `packviz.bench.rnn_calls`; returns what the RNN does: output and final states."""


def every_method() -> dict[str, Method]:
    """Returns every method of running an RNN, by name, the simplest first."""
    offered = {f"pv.run, {method}": partial(rnn_calls.run, method=method) for method in METHODS}
    return {PADDED: rnn_calls.padded, PACKED: rnn_calls.packed, **offered}


def batch_of(rnn: Any, lengths: IntArray, seed: int) -> Batch:
    """A batch of random numbers, the padding too, on the RNN's device; its gradient is asked for in training."""
    weight = next(rnn.parameters())
    shape = (lengths.size, int(lengths.max())) if rnn.batch_first else (int(lengths.max()), lengths.size)
    numbers = torch.randn(*shape, rnn.input_size, generator=torch.Generator().manual_seed(seed))
    x = numbers.to(weight.device, weight.dtype).requires_grad_(rnn.training)
    return x, torch.tensor(lengths)


def look(
    rnn: Any, methods: Mapping[str, Method], batch: Batch, left: Callable[[], float], stop: Callable[[], bool]
) -> tuple[dict[str, float], dict[str, str]]:
    """Calls each method on one batch, twice if time allows; returns seconds, and why methods were left out."""
    clock, allowed = clock_for(batch[0].device), partial(of_states, device=batch[0].device.type)
    reference: list[Any] = []
    looks: dict[str, float] = {}
    failed: dict[str, str] = {}
    passes: dict[str, Pass] = {}
    drops = rnn.training and rnn.dropout and rnn.num_layers > 1
    ragged = len(set(batch[1].tolist())) > 1
    # Packing first, as all are compared with it; last the padded run, if it is no candidate.
    for name in sorted(methods, key=lambda name: (name != PACKED, name == PADDED and ragged)):
        if stop():
            raise ValueError(_STOPPED)
        if looks and left() <= 0:
            failed[name] = "left out: the budget was used up"
            continue
        call = Pass(rnn, methods[name], [batch])
        try:
            clock.start()
            results = call()
            took = clock.stop()
            if drops and name != PADDED:
                results = _evaluated(rnn, methods[name], batch)
        except (RuntimeError, ValueError) as error:  # NotImplementedError is one
            if name in (PADDED, PACKED):
                raise
            failed[name] = f"cannot run this: {first_line(error)}"
            continue
        reference = reference or results
        _, wrong = relative_error(results, reference, allowed)
        if name != PADDED and wrong is not None:
            failed[name] = f"gives another {('output', 'h_n', 'c_n')[wrong]} than packing"
        else:
            looks[name], passes[name] = took, call
    if 2 * sum(looks.values()) <= left():  # a first call does what later ones need not: imports, kernels, memory
        for name, call in passes.items():
            if stop():
                break
            call.reorder()
            clock.start()
            call()
            looks[name] = clock.stop()
    return looks, failed


def _evaluated(rnn: Any, method: Method, batch: Batch) -> list[Any]:
    """What a method gives without dropout."""
    was_training = rnn.training
    rnn.eval()
    try:
        with torch.no_grad():
            return _results(method(rnn, *batch))
    finally:
        rnn.train(was_training)


class Pass:
    """One pass over batches: forward, and in training backward to `x` and to every weight that is trained."""

    def __init__(self, rnn: Any, method: Method, batches: Iterable[Batch]) -> None:
        self.rnn, self.method, self.batches = rnn, method, list(batches)
        self.weights = [weight for weight in rnn.parameters() if weight.requires_grad]
        self.random = np.random.default_rng(0)

    def reorder(self) -> None:
        """Deals the lengths out anew: a new batch, as training has it, whatever a method remembers of the last one."""
        self.batches = [(x, n[self.random.permutation(len(n))]) for x, n in self.batches]

    def __call__(self) -> list[Any]:
        """Gives the results of the last batch."""
        with torch.set_grad_enabled(self.rnn.training):
            for x, lengths in self.batches:
                results = _results(self.method(self.rnn, x, lengths))
                if self.rnn.training:
                    # Not backward(): the gradients that the RNN holds are its owner's.
                    ones = [torch.ones_like(result) for result in results]
                    torch.autograd.grad(results, [x, *self.weights], ones)
        return [result.detach() for result in results]


def _results(returned: Any) -> list[Any]:
    """Output and final states in one list."""
    output, state = returned
    return [output, *(state if isinstance(state, tuple) else (state,))]
