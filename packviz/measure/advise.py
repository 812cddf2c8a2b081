"""Defines `pv.advise`, which times the methods on batches with your lengths and recommends one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from packviz.core.batches import batches
from packviz.core.layout import IntArray, Layout, require_nonempty_sequences
from packviz.core.numbers import HasNumbers, Row
from packviz.core.padded import PaddedShape
from packviz.core.util import first_line
from packviz.core.validation import reject_meta, require_seconds
from packviz.draw.text import table, with_noun
from packviz.measure import rnn_calls
from packviz.measure.timing import MIN_INTERVAL_ROUNDS, RATIO_NOTE, Timing, make_stopwatch, measure
from packviz.ops import running
from packviz.ops.agreement import relative_error
from packviz.ops.arguments import require_rnn
from packviz.ops.tolerance import state_tolerance

_Batch = tuple[Tensor, Tensor]  # the input and the lengths

MethodFunction = Callable[[Any, Tensor, Tensor], Any]
"""A function that runs an RNN on a batch (see `rnn_calls`).

It returns the output and the states.
"""

PADDED = "torch, padded"
PACKED = "torch, packed"
METHODS = ("auto", "frozen", "packed", "split", "staircase")
"""The methods of `pv.run`, which all give the results of packing."""

ALL_METHODS: dict[str, MethodFunction] = {
    PADDED: rnn_calls.padded,
    PACKED: rnn_calls.packed,
    **{f"pv.run, {method}": partial(running.run, method=method) for method in METHODS},
}
"""Every method of running an RNN, by name, the simplest first."""

MAX_BATCHES = 5
"""The largest number of batches that are measured."""

MAX_SLOWDOWN = 3.0
"""A method this many times slower than the fastest exact one is not measured further."""

# These give narrow intervals on a quiet machine, so the sample leaves time for them.
_TARGET_ROUNDS = 11

_PACKED_CODE = """\
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

packed = pack_padded_sequence(x, lengths, batch_first=rnn.batch_first, enforce_sorted=False)
output, {} = rnn(packed)
output, lengths = pad_packed_sequence(output, batch_first=rnn.batch_first)"""


@dataclass(frozen=True)
class Advice(HasNumbers):
    """A recommendation, and the measurement behind it.

    Attributes:
        timing: the times of one pass over the measured batches, by method. `.missing` has the
            reasons why methods were left out.
        sample: number of batches that were measured.
        inexact: the methods in `timing` whose results differ from those of packing.
        what: a description of the RNN, the pass and the lengths.
        is_lstm: whether the RNN is an LSTM, which returns `h_n` and `c_n`.
    """

    timing: Timing
    sample: int
    inexact: tuple[str, ...]
    what: str
    is_lstm: bool

    @property
    def device(self) -> str:
        """The device that the advice applies to, such as `"cpu"` or `"cuda:0"`.

        `timing.caption` gives its name.
        """
        return str(self.timing.provenance["device"])

    @property
    def recommended(self) -> str:
        """The exact method that measured fastest, by its name in `timing`."""
        return min(self._exact_methods, key=self.timing.median)

    @property
    def unclear(self) -> list[str]:
        """The exact methods that have no clear difference from the recommended one."""
        best = self.recommended
        ratios = [self.timing.ratio(name, best) for name in self._exact_methods if name != best]
        return [ratio.name for ratio in ratios if not ratio.is_clear]

    @property
    def method(self) -> str | None:
        """The recommended method for `pv.run(…, method=)`; `None` if it is torch's own run."""
        return self.recommended.partition("pv.run, ")[2] or None

    @property
    def code(self) -> str:
        """Code for the recommended method."""
        states = "(h_n, c_n)" if self.is_lstm else "h_n"
        if self.recommended == PADDED:
            return f"output, {states} = rnn(x)  # every length is the same"
        if self.recommended == PACKED:
            return _PACKED_CODE.format(states)
        method_argument = "" if self.method == "auto" else f", method={self.method!r}"
        return (
            f"import packviz as pv\n\noutput, {states} = pv.run(rnn, x, lengths{method_argument})"
        )

    @property
    def verdict(self) -> str:
        """The recommendation, and the methods that may be as fast."""
        ratio = self.timing.ratio(self.recommended, PACKED)
        if ratio.rounds < MIN_INTERVAL_ROUNDS:
            rounds = with_noun(ratio.rounds, "round")
            return (
                f"{self.recommended} is the fastest exact method here, but {rounds} cannot show a"
                " difference. Give a larger budget."
            )
        parts = [f"Use {self.recommended}."]
        if ratio.is_clear:
            parts.append(f"It takes {ratio.number} times as long as {PACKED} ({ratio.between}).")
        if self.unclear:
            parts.append(f"No clear difference from it: {', '.join(self.unclear)}.")
        if self.timing.busy:
            parts.append(f"The machine is busy: {self.timing.busy}.")
        return " ".join(parts)

    @property
    def summary(self) -> str:
        """The recommendation, and the conditions under which it was measured."""
        return f"{self.verdict} {self.what}. Measured on {self.timing.caption}."

    def numbers(self) -> list[Row]:
        """Returns a row for each measured method: its median time, and its ratio to packing."""
        return [
            {
                "method": name,
                "seconds": self.timing.median(name),
                "times as long as packing": self.timing.ratio(name, PACKED).value,
                "exact": name not in self.inexact,
            }
            for name in self.timing.seconds
        ]

    def to_text(self) -> str:
        """Returns the recommendation, the table behind it, and the conditions."""
        rows = [["", "ms", f"times as long as {PACKED} (quartiles)"]]
        for name, milliseconds, ratio in self.timing.against(PACKED):
            if name in self.inexact:
                ratio += "; its results differ from those of packing"
            rows.append([name, milliseconds, ratio])
        for name, why in self.timing.missing.items():
            rows.append([name, f"left out: {why}"])
        batches = with_noun(self.sample, "batch", "batches")
        lines = [self.verdict, "", *table(rows, "<  >  <"), ""]
        lines.append(f"{self.what}. Each time is for {batches}, and for the RNN alone.")
        lines += [RATIO_NOTE, f"Measured on {self.timing.caption}."]
        return "\n".join(lines)

    @property
    def _exact_methods(self) -> list[str]:
        return [name for name in self.timing.seconds if name not in self.inexact]


@torch.inference_mode(False)  # a training step needs gradients
def advise(
    rnn: nn.RNNBase,
    lengths: object,
    *,
    batch_size: int = 64,
    budget: float = 20.0,
    seed: int = 0,
) -> Advice:
    """Times each method of running an RNN on batches with these lengths, and recommends one.

    `advise` compares torch's packing (pack, RNN, pad), every method of `pv.run`, and torch's padded
    run. It recommends the padded run only if nothing is padded, because otherwise the results
    differ. It measures the forward and backward passes if the RNN is in training mode, and the
    forward pass alone after `rnn.eval()`. It uses the RNN's own device and dtype, and does not
    change the RNN's gradients.

    All sequences are shuffled and cut into batches, as in training. The batches are ranked by
    number of cells, including padding, and divided into up to five equal groups. The middle batch
    of each group is measured. Every call with the same arguments measures the same batches.

    Args:
        rnn: an `nn.RNN`, `nn.GRU` or `nn.LSTM`.
        lengths: `(N,)` lengths of the whole data set, each at least 1, as a list, an array, a
            tensor, a mask or a `Layout`. `pv.lengths.read` reads them from a file.
        batch_size: number of sequences per batch.
        budget: seconds for the whole measurement. Every method is first called on one batch, to
            check its results. Methods that take over three times as long as the fastest exact one
            are not measured further, except for the two that use only torch. Interleaved rounds
            follow until the ratios to torch's packing are known to about 5 %, or the budget is
            spent. A call that has begun is always finished, and so is the first round.
        seed: seed for the shuffling and the data.

    Returns:
        An `Advice` with the `.recommended` method, which is the exact one that measured fastest,
        the `.code` to paste, the `.timing` behind it, and the methods that are `.unclear`, because
        they have no clear difference from it.

    Raises:
        TypeError: `rnn` is not an RNN.
        ValueError: the lengths are not valid, a number is out of range, or the RNN is on the meta
            device, where weights have no values.

    Examples:
        >>> import packviz as pv, torch
        >>> advice = pv.advise(torch.nn.GRU(2, 3), [5, 3, 2] * 8, batch_size=8, budget=0.1)
        >>> advice.recommended in advice.to_text()
        True
    """
    end = time.monotonic() + require_seconds("budget", budget)
    require_rnn(rnn)
    weight = next(rnn.parameters())
    reject_meta("rnn", weight)
    device = weight.device
    n = require_nonempty_sequences(Layout(lengths)).lengths
    batch_lengths = [n[group] for group in batches(n, batch_size, seed=seed)]
    gpus = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(gpus, device_type=device.type):  # for dropout
        (batch,) = _random_batches(rnn, _representative_lengths(batch_lengths, 1), seed)
        seconds_by_method, missing = _try_methods(rnn, batch, device, end)
        fastest_seconds = min(
            seconds for name, seconds in seconds_by_method.items() if name != PADDED
        )
        for name, seconds in seconds_by_method.items():
            if name not in (PADDED, PACKED) and seconds > MAX_SLOWDOWN * fastest_seconds:
                missing[name] = (
                    f"on one batch, it took over {MAX_SLOWDOWN:g} times as long as the best"
                )
        measured_methods = [name for name in seconds_by_method if name not in missing]
        seconds_left = end - time.monotonic()
        # With one batch, the time is enough for this many rounds.
        rounds = seconds_left / sum(seconds_by_method[name] for name in measured_methods)
        affordable_batches = int(rounds / (_TARGET_ROUNDS + 1))
        n_batches = max(1, min(affordable_batches, MAX_BATCHES, len(batch_lengths)))
        measured_batches = _random_batches(
            rnn, _representative_lengths(batch_lengths, n_batches), seed
        )
        calls = {
            name: partial(_run, ALL_METHODS[name], rnn, measured_batches)
            for name in measured_methods
        }
        timing = measure(
            calls,
            rounds=max(1, int(rounds / n_batches)),
            warmup=int(rounds >= 2),
            device=device,
            before_call=running.clear_caches,
            until_narrow=True,
            budget=seconds_left,
            min_rounds=1,
        )
    passes_text = "forward and backward" if rnn.training else "forward alone"
    shortest = n.min()
    longest = n.max()
    steps = f"{shortest} to {longest}" if shortest < longest else f"{longest}"
    sequences = with_noun(n.size, "sequence")
    what = f"{rnn}, {passes_text}; {sequences} of {steps} steps, in batches of {batch_size}"
    is_padded_inexact = shortest < longest and PADDED in measured_methods
    inexact = (PADDED,) if is_padded_inexact else ()
    timing = replace(timing, missing=missing)
    return Advice(timing, n_batches, inexact, what, rnn.mode == "LSTM")


def _random_batches(rnn: nn.RNNBase, lengths: Sequence[IntArray], seed: int) -> list[_Batch]:
    """Makes a batch for each `(B,)` lengths, with random numbers in the padding, too.

    If the RNN is in training mode, the inputs require gradients.
    """
    generator = torch.Generator().manual_seed(seed)
    random_batches = []
    for n in lengths:
        padded = PaddedShape(n.size, int(n.max()), rnn.batch_first)
        x = torch.randn(padded.shape(rnn.input_size), generator=generator)
        x = x.to(next(rnn.parameters()))
        random_batches.append((x.requires_grad_(rnn.training), torch.tensor(n)))
    return random_batches


def _run(method: MethodFunction, rnn: nn.RNNBase, random_batches: Sequence[_Batch]) -> list[Tensor]:
    """Runs the RNN forward and, in training, backward to its inputs and weights.

    Returns the output and the final states of the last batch.
    """
    weights = [weight for weight in rnn.parameters() if weight.requires_grad]
    with torch.set_grad_enabled(rnn.training):
        for x, lengths in random_batches:
            output, state = method(rnn, x, lengths)
            results = [output, *(state if isinstance(state, tuple) else (state,))]
            if rnn.training:
                # backward() would change the gradients that the RNN holds.
                ones = [torch.ones_like(result) for result in results]
                torch.autograd.grad(results, [x, *weights], ones)
    return [result.detach() for result in results]


def _try_methods(
    rnn: nn.RNNBase, batch: _Batch, device: torch.device, end: float
) -> tuple[dict[str, float], dict[str, str]]:
    """Calls each method on one batch, and compares its results, without dropout, with packing's.

    If there is time, a method is called twice.

    Returns two dicts by method: the seconds of the last call, and the reasons why methods were left
    out. torch's padded run is kept although its results differ.
    """
    stopwatch = make_stopwatch(device)
    training = rnn.training
    seconds_by_method: dict[str, float] = {}
    missing = {}
    for name in dict.fromkeys((PACKED, *ALL_METHODS)):
        if seconds_by_method and time.monotonic() >= end:
            missing[name] = "the budget was used up"
            continue
        run = partial(_run, ALL_METHODS[name], rnn, [batch])
        try:
            call_seconds = stopwatch(run)
            rnn.eval()
            results = run()
        except (RuntimeError, ValueError) as error:  # NotImplementedError is a RuntimeError
            if name in (PADDED, PACKED):
                raise
            missing[name] = f"cannot run this: {first_line(error)}"
            continue
        finally:
            rnn.train(training)
        if name == PACKED:
            expected = results
        _, agree = relative_error(results, expected, partial(state_tolerance, device=device.type))
        if not agree and name != PADDED:
            missing[name] = "its results differ from those of packing"
            continue
        if time.monotonic() + len(ALL_METHODS) * call_seconds < end:
            # A first call also imports and allocates.
            call_seconds = stopwatch(run)
        seconds_by_method[name] = call_seconds
    return seconds_by_method, missing


def _representative_lengths(batch_lengths: Sequence[IntArray], n_batches: int) -> list[IntArray]:
    """Ranks batches by cells, divides them into equal groups, and returns the middle of each."""
    sorted_batch_lengths = sorted(batch_lengths, key=lambda n: n.size * n.max())
    middle_indices = (np.arange(n_batches) + 0.5) * len(sorted_batch_lengths) / n_batches
    return [sorted_batch_lengths[int(i)] for i in middle_indices]
