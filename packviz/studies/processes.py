"""Compares ways to split a ragged batch among processes that train one model.

A batch, sorted by length, is split by the strategies of `packviz.core.batches.SPLITS`. Each process
runs its shard, and torch's `DistributedDataParallel` (DDP) averages the gradients. These averages
are compared with the gradient of one process on the whole batch, for two losses:

* *mean of means*: every process takes the mean loss over its own tokens. The average of these means
  is not the mean over all tokens, unless all shards have the same number of tokens.
* *token-weighted*: every process takes the sum of its losses, multiplied by the number of processes
  and divided by the number of tokens in the whole batch. The average of these values is the mean
  over all tokens.

`compare()` starts processes on this machine, by default two. Like all functions that start
processes, it must be called under `if __name__ == "__main__":` in a script.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, multiprocessing, nn
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, spawn
from torch.nn.parallel import DistributedDataParallel

from packviz.core import batches as buckets
from packviz.core.layout import IntArray, Layout, require_nonempty_sequences
from packviz.core.lengths import log_normal
from packviz.core.util import HasText
from packviz.core.validation import require_at_least
from packviz.draw import bars
from packviz.draw.quantities import format_milliseconds, whole_percent
from packviz.draw.text import table
from packviz.measure.timing import Timing, measure
from packviz.ops.original import pack_padded_sequence

MEAN_OF_MEANS_LOSS = "mean of means"
TOKEN_WEIGHTED_LOSS = "token-weighted"
LOSSES = (MEAN_OF_MEANS_LOSS, TOKEN_WEIGHTED_LOSS)
"""The losses of a process, as described at the top of this module."""

_TIMEOUT = timedelta(seconds=120)  # the longest time that processes wait for each other
_INPUT_SIZE = 16
_HIDDEN_SIZE = 128


@dataclass(frozen=True)
class SplitResults(HasText):
    """The results of comparing the strategies for splitting a batch.

    Attributes:
        layout: the batch.
        timings: for each rank, the times of a forward and backward pass on its own shard, by
            strategy. These times do not include waiting for other processes.
        errors: the error of the averaged gradient, by strategy and loss. An error is the norm of
            the difference from the gradient of a single process, divided by the norm of that
            gradient.
    """

    layout: Layout
    timings: Sequence[Timing]
    errors: Mapping[str, Mapping[str, float]]

    def lengths(self, strategy: str) -> list[IntArray]:
        """Returns the lengths of each rank's sequences."""
        n = self.layout.lengths
        shards = buckets.split(n, len(self.timings), strategy)
        return [n[shard] for shard in shards]

    def tokens(self, strategy: str) -> list[int]:
        """Returns the number of tokens that each rank has."""
        return [int(n.sum()) for n in self.lengths(strategy)]

    def to_text(self) -> str:
        """Returns a table of tokens, steps and gradient errors. The machine does not matter."""
        title = (
            f"{self.layout.batch_size} sequences, {self.layout.n_real:,} tokens,"
            f" {len(self.timings)} processes"
        )
        rows = [["split", "tokens", "steps", *(f"error, {loss}" for loss in LOSSES)]]
        for strategy, errors in self.errors.items():
            tokens_text = " / ".join(map(str, self.tokens(strategy)))
            steps_text = " / ".join(str(n.max()) for n in self.lengths(strategy))
            shown = [f"{error:.2g}" if error >= 1e-6 else "< 1e-06" for error in errors.values()]
            rows.append([strategy, tokens_text, steps_text, *shown])
        return "\n".join([title, *table(rows, "<12>16>14   .   <")])

    def times(self) -> str:
        """Returns a table of each rank's time, and of the slowest divided by the fastest."""
        rows = [["split", "ms", "slowest ÷ fastest"]]
        for strategy in self.errors:
            seconds = {}
            for rank, rank_timing in enumerate(self.timings):
                seconds[f"{rank}"] = rank_timing.seconds[strategy]
            timing = Timing(seconds)
            slowest_rank = max(seconds, key=timing.median)
            fastest_rank = min(seconds, key=timing.median)
            ratio = timing.ratio(slowest_rank, fastest_rank)
            ratio_text = ratio.doubt or f"{ratio.number} ({ratio.between})"
            medians_text = " / ".join(format_milliseconds(timing.median(rank)) for rank in seconds)
            rows.append([strategy, medians_text, ratio_text])
        first_timing = self.timings[0]
        where = (
            f"Measured by each process on {first_timing.caption}."
            " In parentheses: the 95 % interval."
        )
        return "\n".join([*table(rows, "<12>16   <"), where, *first_timing.notes[1:]])

    def chart(self) -> bars.BarChart:
        """Draws the number of tokens that each rank has, for each strategy."""
        rows = {}
        imbalance_by_strategy = {}
        for strategy in self.errors:
            tokens = self.tokens(strategy)
            imbalance_by_strategy[strategy] = max(tokens) / min(tokens)
            for rank, rank_tokens in enumerate(tokens):
                bar = bars.Bar([(rank_tokens, bars.SOLID_FILL)], f"{rank_tokens:,}")
                rows[f"{strategy}, rank {rank}"] = bar
        worst_strategy = max(imbalance_by_strategy, key=imbalance_by_strategy.__getitem__)
        error_percent = whole_percent(self.errors[worst_strategy][MEAN_OF_MEANS_LOSS])
        title = (
            f"The {worst_strategy} split gives one rank"
            f" {imbalance_by_strategy[worst_strategy]:.2g} times the tokens, and a mean of"
            f" means is {error_percent} off"
        )
        return bars.BarChart(
            self.to_text(), lambda theme: bars.draw_horizontal_bars(title, {"": rows}, theme)
        )


def compare(lengths: object = None, *, processes: int = 2, rounds: int = 15) -> SplitResults:
    """Compares the strategies for splitting a batch among processes on this machine's CPU.

    Each process has one thread.

    Args:
        lengths: `(B,)` lengths of the batch, at least one for each process. Defaults to 64
            log-normal lengths.
        processes: number of processes.
        rounds: number of rounds in which each shard is timed.

    Raises:
        ValueError: the lengths are not valid, there are fewer sequences than processes, or a number
            is out of range.
        RuntimeError: a process failed or waited too long; the message includes the end of its
            error.
    """
    if lengths is None:
        lengths = log_normal(64, 128)
    n: list[int] = require_nonempty_sequences(Layout(lengths)).lengths.tolist()
    require_at_least("rounds", rounds)
    if require_at_least("processes", processes) > len(n):
        raise ValueError(
            f"processes is {processes}; give at most {len(n)}, the number of sequences"
        )
    results = multiprocessing.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="packviz-") as folder:
        rendezvous_uri = Path(folder, "meeting").as_uri()
        rank_arguments = (processes, n, rounds, rendezvous_uri, results)
        try:
            spawn(_run_rank, rank_arguments, processes)  # type: ignore[no-untyped-call]
        except (ProcessRaisedException, ProcessExitedException) as error:
            reason = str(error).strip()[-2000:]
            raise RuntimeError(f"rank {error.error_index} failed:\n{reason}") from None
    timings, errors = results.get()
    return SplitResults(Layout(n), timings, errors)


def gradient_error(gradients: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Returns the norm of the error of the gradients, divided by the norm of the expected ones."""
    actual_vector, expected_vector = (
        torch.cat([gradient.flatten() for gradient in group]).double()
        for group in (gradients, expected)
    )
    return float((actual_vector - expected_vector).norm() / expected_vector.norm())


def _run_rank(
    rank: int,
    processes: int,
    lengths: list[int],
    rounds: int,
    rendezvous_uri: str,
    results: Any,
) -> None:
    """Runs one of the processes, which find each other through a file.

    Rank 0 returns the results of all ranks.
    """
    torch.set_num_threads(1)
    if os.name == "posix":
        for _, interface_name in socket.if_nameindex():
            if interface_name.startswith("lo"):
                os.environ["GLOO_SOCKET_IFNAME"] = interface_name
    distributed.init_process_group(
        "gloo", init_method=rendezvous_uri, rank=rank, world_size=processes, timeout=_TIMEOUT
    )
    try:
        errors, calls = _errors_and_calls(rank, processes, lengths)
        # All processes compute at the same time, because they wait for each other before each call.
        timing = measure(calls, rounds=rounds, before_call=distributed.barrier)
        timings: list[Timing | None] = [None] * processes
        distributed.all_gather_object(timings, timing)
        if rank == 0:
            results.put((timings, errors))
    finally:
        distributed.destroy_process_group()
    # A gloo thread may still need Python to release a last tensor, and it aborts the process if the
    # interpreter is already shutting down. So the process ends without a shutdown.
    sys.stdout.flush()
    os._exit(0)


def _errors_and_calls(
    rank: int, processes: int, lengths: list[int]
) -> tuple[dict[str, dict[str, float]], dict[str, partial[None]]]:
    """Returns, by strategy, errors of gradients, and functions that run this rank's shard."""
    torch.manual_seed(0)
    model = _Model()
    x = torch.randn(len(lengths), max(lengths), _INPUT_SIZE)
    y = torch.randn(len(lengths), max(lengths))
    weights = list(model.parameters())
    expected = torch.autograd.grad(model(x, y, lengths).mean(), weights)
    ddp_model = DistributedDataParallel(model)
    errors: dict[str, dict[str, float]] = {}
    calls = {}
    for strategy in buckets.SPLITS:
        shard = buckets.split(lengths, processes, strategy)[rank]
        rank_lengths = [lengths[i] for i in shard]
        longest = max(rank_lengths)
        batch = (x[shard, :longest], y[shard, :longest], rank_lengths)
        errors[strategy] = {}
        for name in LOSSES:
            ddp_model.zero_grad()
            losses = ddp_model(*batch)
            weighted_loss = losses.sum() * processes / sum(lengths)
            loss = losses.mean() if name == MEAN_OF_MEANS_LOSS else weighted_loss
            loss.backward()
            gradients = [weight.grad for weight in weights if weight.grad is not None]
            errors[strategy][name] = gradient_error(gradients, expected)
        calls[strategy] = partial(_run_shard, ddp_model, batch)
    return errors, calls


class _Model(nn.Module):
    """A GRU and a linear layer.

    The model maps a padded batch, targets and lengths to `(N,)` losses, one per token.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(_INPUT_SIZE, _HIDDEN_SIZE, batch_first=True)
        self.linear = nn.Linear(_HIDDEN_SIZE, 1)

    def forward(self, x: Tensor, y: Tensor, lengths: list[int]) -> Tensor:
        packed, targets = (
            pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False)
            for padded in (x, y)
        )
        scores: Tensor = self.linear(self.gru(packed)[0].data).squeeze(1)
        return (scores - targets.data) ** 2


def _run_shard(ddp_model: DistributedDataParallel, batch: tuple[Any, ...]) -> None:
    ddp_model.zero_grad()
    with ddp_model.no_sync():
        ddp_model(*batch).mean().backward()
