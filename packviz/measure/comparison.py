"""Calls every method of running an RNN: on one batch to compare results, and in passes over batches to time them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from packviz.core.has_text import first_line
from packviz.core.layout import IntArray
from packviz.measure import rnn_calls
from packviz.measure.timing import clock_for
from packviz.ops.agreement import relative_error
from packviz.ops.tolerance import of_states

PADDED, PACKED = "torch, padded", "torch, packed"
METHODS = ("auto", "padded", "packed", "split", "staircase")
"""The methods of `pv.run`, which all give the results of packing."""


Batch = tuple[Tensor, Tensor]
"""A padded batch `(T, B, I)`, or `(B, T, I)` if the RNN is `batch_first`, and its lengths `(B,)` on the CPU."""

Method = Callable[[Any, Any, Any], Any]
"""A function that runs an RNN on a batch (see `packviz.measure.rnn_calls`) and returns its output and final states."""


def every_method() -> dict[str, Method]:
    """Returns every method of running an RNN, by name, the simplest first."""
    offered = {f"pv.run, {method}": partial(rnn_calls.run, method=method) for method in METHODS}
    return {PADDED: rnn_calls.padded, PACKED: rnn_calls.packed, **offered}


def batch_of(rnn: Any, lengths: IntArray, seed: int) -> Batch:
    """Returns a batch of random numbers on the RNN's device. The padding contains random numbers,
    too.

    If the RNN is in training mode, the padded tensor requires a gradient.
    """
    weight = next(rnn.parameters())
    shape = (
        (lengths.size, int(lengths.max()))
        if rnn.batch_first
        else (int(lengths.max()), lengths.size)
    )
    numbers = torch.randn(*shape, rnn.input_size, generator=torch.Generator().manual_seed(seed))
    x = numbers.to(weight.device, weight.dtype).requires_grad_(rnn.training)
    return x, torch.tensor(lengths)


def look(
    rnn: Any, methods: Mapping[str, Method], batch: Batch, left: Callable[[], float]
) -> tuple[dict[str, float], dict[str, str]]:
    """Calls each method on one batch, twice if there is time.

    Returns two dicts by method: the seconds of the last call, and the reasons why methods were left
    out.
    """
    clock, allowed = clock_for(batch[0].device), partial(of_states, device=batch[0].device.type)
    reference: list[Any] = []
    looks: dict[str, float] = {}
    failed: dict[str, str] = {}
    drops = rnn.training and rnn.dropout and rnn.num_layers > 1
    ragged = len(set(batch[1].tolist())) > 1
    # Packing is first, because the others are compared with it. The padded run is last if its
    # results differ.
    for name in sorted(methods, key=lambda name: (name != PACKED, name == PADDED and ragged)):
        if looks and left() <= 0:
            failed[name] = "left out: the budget was used up"
            continue
        call, reorder = passes(rnn, methods[name], [batch])
        try:
            clock.start()
            results = call()
            looks[name] = clock.stop()
            if drops and name != PADDED:
                results = _evaluated(rnn, methods[name], batch)
        except (RuntimeError, ValueError) as error:  # NotImplementedError is a RuntimeError
            if name in (PADDED, PACKED):
                raise
            failed[name] = f"cannot run this: {first_line(error)}"
            continue
        reference = reference or results
        _, wrong = relative_error(results, reference, allowed)
        if name != PADDED and wrong is not None:
            failed[name] = f"does not give the {('output', 'h_n', 'c_n')[wrong]} of packing"
            del looks[name]
        elif (
            2 * len(methods) * looks[name] <= left()
        ):  # a first call also imports, builds kernels and allocates
            reorder()
            clock.start()
            call()
            looks[name] = clock.stop()
    return looks, failed


def _evaluated(rnn: Any, method: Method, batch: Batch) -> list[Any]:
    """Runs a method without dropout, and returns the results."""
    was_training = rnn.training
    rnn.eval()
    try:
        with torch.no_grad():
            return _results(method(rnn, *batch))
    finally:
        rnn.train(was_training)


def passes(
    rnn: Any, method: Method, batches: Iterable[Batch]
) -> tuple[Callable[[], list[Any]], Callable[[], None]]:
    """Returns two functions: the first runs a pass over the batches, and the second permutes their
    lengths.

    A pass runs forward and, in training, backward to `x` and to every trainable weight. It returns
    the results of the last batch. If the lengths are permuted, a method cannot reuse what it
    computed for earlier lengths. In real training, too, lengths differ from batch to batch.
    """
    some, weights = [*batches], [weight for weight in rnn.parameters() if weight.requires_grad]
    random = np.random.default_rng(0)

    def reorder() -> None:
        some[:] = [(x, n[random.permutation(len(n))]) for x, n in some]

    def call() -> list[Any]:
        with torch.set_grad_enabled(rnn.training):
            for x, lengths in some:
                results = _results(method(rnn, x, lengths))
                if rnn.training:
                    # backward() would change the gradients that the RNN holds.
                    torch.autograd.grad(
                        results, [x, *weights], [torch.ones_like(result) for result in results]
                    )
        return [result.detach() for result in results]

    return call, reorder


def _results(returned: Any) -> list[Any]:
    """Returns the output and the final states in one list."""
    output, state = returned
    return [output, *(state if isinstance(state, tuple) else (state,))]
