"""Compares ways to split a ragged batch among workers that train one model with
`DistributedDataParallel`.

A batch, sorted by length, is split among workers by the strategies of
`packviz.core.batches.SPLITS`. Each worker runs its share, and DDP averages the gradients. These
averages are compared with the gradient of one process on the whole batch, for two losses:

* *mean of means*: every worker takes the mean loss over its own tokens. The average of these means
  is not the mean over all tokens, unless all shares have the same number of tokens.
* *token-weighted*: every worker takes the sum of its losses, multiplied by the number of workers
  and divided by the number of tokens in the whole batch. The average of these values is the mean
  over all tokens.

`compare()` starts processes on this machine, by default two. With torchrun, you can start the
workers yourself:

    torchrun --nproc-per-node 2 -m packviz.studies.workers --lengths my_lengths.csv

The workers of `compare()` communicate over the loopback interface, and find each other through a
file. They all end when `compare()` ends. Like all functions that start processes, `compare()` must
be called under `if __name__ == "__main__":` in a script.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pickle
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, spawn
from torch.nn.parallel import DistributedDataParallel

from packviz.core import batches as buckets
from packviz.core.has_text import HasText
from packviz.core.layout import IntArray, Layout, require_steps
from packviz.core.lengths import log_normal, read
from packviz.core.validation import at_least, one_of, require_seconds
from packviz.draw import bars
from packviz.draw.quantities import milliseconds
from packviz.draw.text import table
from packviz.measure.timing import Timing, measure
from packviz.ops.original import pack_padded_sequence

MEANS, WEIGHTED = "mean of means", "token-weighted"
LOSSES = (MEANS, WEIGHTED)
"""The losses of a worker, as described at the top of this module."""


@dataclass(frozen=True, repr=False)
class Workers(HasText):
    """The results of comparing the strategies for splitting a batch.

    Attributes:
        layout: the batch.
        timings: for each worker, the times of a forward and backward pass on its own share, by
            strategy. These times do not include waiting for other workers.
        errors: the error of the averaged gradient, by strategy and loss. An error is the norm of
            the difference from the gradient of a single process, divided by the norm of that
            gradient.
    """

    layout: Layout
    timings: Sequence[Timing]
    errors: Mapping[str, Mapping[str, float]]

    def lengths(self, strategy: str) -> list[IntArray]:
        """Returns the lengths of each worker's sequences."""
        n = self.layout.lengths
        return [n[share] for share in buckets.split(n, len(self.timings), strategy)]

    def tokens(self, strategy: str) -> list[int]:
        """Returns the number of tokens that each worker has."""
        return [int(n.sum()) for n in self.lengths(strategy)]

    def steps(self, strategy: str) -> list[int]:
        """Returns the number of time steps in each worker's share, which is the longest length in that share."""
        return [int(n.max()) for n in self.lengths(strategy)]

    def seconds(self, strategy: str) -> list[float]:
        """Returns the median time of each worker's own forward and backward pass in seconds."""
        return [timing.median(strategy) for timing in self.timings]

    def to_text(self) -> str:
        """Returns a table of tokens, steps and gradient errors, which do not depend on the machine."""
        title = f"{self.layout.batch_size} sequences, {self.layout.n_real:,} tokens, workers: {len(self.timings)}"
        rows = [["split", "tokens", "steps", *(f"error, {loss}" for loss in LOSSES)]]
        for strategy, errors in self.errors.items():
            counts = (" / ".join(map(str, some(strategy))) for some in (self.tokens, self.steps))
            shown = (
                f"{errors[loss]:.2g}" if errors[loss] >= 1e-6 else "< 1e-06" for loss in LOSSES
            )
            rows.append([strategy, *counts, *shown])
        return "\n".join([title, *table(rows, "<12>16>14   .   <")])

    def times(self) -> str:
        """Returns a table of each worker's time in ms, and of the ratio of the slowest time to the fastest."""
        rows = [["split", "ms", "slowest / fastest"]]
        for strategy in self.errors:
            seconds = self.seconds(strategy)
            slowest, fastest = (f"{seconds.index(end(seconds))}" for end in (max, min))
            together = Timing(
                {f"{i}": timing.seconds[strategy] for i, timing in enumerate(self.timings)}
            )
            ratio = together.ratio(slowest, fastest)
            multiple = f"{ratio.number} ({ratio.between})" if ratio.is_clear else "not told apart"
            rows.append([strategy, " / ".join(map(milliseconds, seconds)), multiple])
        first = self.timings[0]
        where = f"Measured by each worker on {first.caption}. In parentheses: the 95 % interval."
        return "\n".join([*table(rows, "<12>16   <"), where, *first.notes[1:]])

    def chart(self) -> bars.BarChart:
        """Draws the number of tokens that each worker has, for each strategy."""
        tokens = {strategy: self.tokens(strategy) for strategy in self.errors}
        rows = {
            f"{strategy}, worker {i}": bars.Bar([(own, bars.SOLID)], f"{own:,}")
            for strategy, each in tokens.items()
            for i, own in enumerate(each)
        }
        times = {strategy: max(each) / min(each) for strategy, each in tokens.items()}
        worst = max(times, key=lambda strategy: times[strategy])
        title = f"The {worst} split gives one worker {times[worst]:.2g} times the tokens of another"
        return bars.BarChart(self.to_text(), lambda theme: bars.rows(title, {"": rows}, theme))


def compare(
    lengths: Any = None,
    *,
    workers: int = 2,
    rounds: int = 15,
    timeout: float = 120.0,
    device: str = "cpu",
) -> Workers:
    """Starts workers on this machine, each with one thread, and compares the strategies for
    splitting a batch.

    Args:
        lengths: `(B,)` lengths of the batch, at least one for each worker, or the path of a CSV or
            JSON file. Defaults to 64 log-normal lengths.
        workers: number of processes.
        rounds: number of rounds in which each share is timed.
        timeout: the longest time in seconds that workers wait for each other.
        device: `"cpu"`, or `"cuda"` with one GPU for each worker.

    Raises:
        ValueError: the lengths or the file are not valid, there are fewer sequences than workers, a
            number is out of range, `device` is unknown, or there are fewer GPUs than workers.
        RuntimeError: a worker failed or waited too long; the message includes the end of its error.
    """
    n = _batch(lengths, workers)
    rounds = at_least("rounds", rounds)
    require_seconds("timeout", timeout)
    if (
        one_of("device", device, ("cpu", "cuda")) == "cuda"
        and (gpus := torch.cuda.device_count()) < workers
    ):
        raise ValueError(
            f"device is 'cuda', which needs a GPU for each of {workers} workers, but torch finds {gpus}"
        )
    with tempfile.TemporaryDirectory(prefix="packviz-") as folder:
        out, meet = Path(folder, "found"), Path(folder, "meet").as_uri()
        task = (n, rounds, timeout, device, meet)
        context = spawn(_worker, (workers, out, *task), workers, join=False)  # type: ignore[no-untyped-call]
        try:
            while not context.join():
                pass
        except (ProcessRaisedException, ProcessExitedException) as error:
            raise RuntimeError(
                f"worker {error.error_index} failed:\n{str(error).strip()[-2000:]}"
            ) from None
        finally:
            for process in context.processes:
                process.kill()
                process.join()
        found: Workers = pickle.loads(out.read_bytes())
    return found


def gradient_error(found: Sequence[Any], expected: Sequence[Any]) -> float:
    """Returns the norm of the difference between two lists of gradients, divided by the norm of the second list."""
    one, other = (
        torch.cat([gradient.flatten() for gradient in some]).double() for some in (found, expected)
    )
    return float((one - other).norm() / other.norm())


def _worker(rank: int, workers: int, out: Path, *task: Any) -> None:
    """Runs a worker in a process that ends when its parent ends. Worker 0 writes the results of all workers."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if (
        loopback := [name for _, name in socket.if_nameindex() if name.startswith("lo")]
        if os.name == "posix"
        else []
    ):
        os.environ["GLOO_SOCKET_IFNAME"] = loopback[0]
    if found := _work(rank, workers, rank, *task):
        out.write_bytes(pickle.dumps(found))
    _leave()


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()  # type: ignore[union-attr]
    os._exit(1)


def _leave() -> None:
    """Ends this process without shutting down its interpreter.

    A gloo thread may still need Python to release a last tensor, and it aborts the process if the
    interpreter is already shutting down.
    """
    sys.stdout.flush()
    os._exit(0)


def _work(
    rank: int,
    workers: int,
    gpu: int,
    lengths: list[int],
    rounds: int,
    timeout: float,
    on: str,
    meet: str = "env://",
) -> Workers | None:
    """Runs one of the workers, which find each other at `meet`. Worker 0 returns the results of all workers."""
    torch.set_num_threads(1)
    device = torch.device("cuda", gpu) if on == "cuda" else torch.device("cpu")
    distributed.init_process_group(
        "nccl" if on == "cuda" else "gloo",
        init_method=meet,
        rank=rank,
        world_size=workers,
        timeout=timedelta(seconds=timeout),
    )
    try:
        errors, calls = _strategies(rank, workers, device, lengths)
        timing = measure(
            calls,
            rounds=rounds,
            device=device,
            before=dict.fromkeys(
                calls, distributed.barrier
            ),  # so that the workers compute at the same time
            parameters={"lengths": lengths, "workers": workers},
        )
        found: list[Any] = [None] * workers
        distributed.all_gather_object(found, timing)
        return Workers(Layout(lengths), found, errors) if rank == 0 else None
    finally:
        distributed.destroy_process_group()


def _strategies(
    rank: int, workers: int, device: torch.device, lengths: list[int]
) -> tuple[dict[str, dict[str, float]], dict[str, Callable[[], None]]]:
    """Returns two dicts by strategy: the errors of the gradients, and functions that run this worker's share."""
    torch.manual_seed(0)
    model = _Model().to(device)
    x = torch.randn(len(lengths), max(lengths), _INPUT).to(device)
    y = torch.randn(len(lengths), max(lengths)).to(device)
    expected = torch.autograd.grad(model(x, y, lengths).mean(), list(model.parameters()))
    parallel = DistributedDataParallel(
        model, device_ids=[device] if device.type == "cuda" else None
    )
    errors: dict[str, dict[str, float]] = {}
    calls: dict[str, Callable[[], None]] = {}
    for strategy in buckets.SPLITS:
        share = buckets.split(lengths, workers, strategy)[rank]
        mine = [lengths[i] for i in share]
        my_batch = x[share, : max(mine)], y[share, : max(mine)], mine
        errors[strategy] = {}
        for name in LOSSES:
            parallel.zero_grad()
            losses = parallel(*my_batch)
            loss = losses.mean() if name == MEANS else losses.sum() * workers / sum(lengths)
            loss.backward()
            errors[strategy][name] = gradient_error([w.grad for w in model.parameters()], expected)
        calls[strategy] = partial(_own_work, parallel, my_batch)
    return errors, calls


_INPUT, _HIDDEN = 16, 128


class _Model(nn.Module):
    """A GRU and a linear layer. The model maps a padded batch, targets and lengths to `(N,)` losses, one per token."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(_INPUT, _HIDDEN, batch_first=True)
        self.linear = nn.Linear(_HIDDEN, 1)

    def forward(self, x: Tensor, y: Tensor, lengths: list[int]) -> Tensor:
        packed, targets = (
            pack_padded_sequence(one, lengths, batch_first=True, enforce_sorted=False)
            for one in (x, y)
        )
        losses: Tensor = (self.linear(self.gru(packed)[0].data).squeeze(1) - targets.data) ** 2
        return losses


def _own_work(parallel: Any, batch: tuple[Any, ...]) -> None:
    parallel.zero_grad()
    with parallel.no_sync():
        parallel(*batch).mean().backward()


def _batch(lengths: Any, workers: int) -> list[int]:
    if isinstance(lengths, (str, os.PathLike)):
        lengths = read(str(lengths))
    n: list[int] = require_steps(
        Layout(log_normal(64, 128) if lengths is None else lengths)
    ).lengths.tolist()
    if at_least("workers", workers) > len(n):
        raise ValueError(
            f"workers is {workers}; give a whole number from 1 to {len(n)}, the number of sequences"
        )
    return n


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one of the workers that torchrun starts, and compares the strategies for splitting a batch."""
    parser = argparse.ArgumentParser(
        prog="python -m packviz.studies.workers", description=main.__doc__
    )
    parser.add_argument("--lengths", help="a CSV or JSON file (default: 64 log-normal lengths)")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds")
    options = parser.parse_args(arguments)
    try:
        rank, workers, gpu = (
            int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")
        )
        n = _batch(options.lengths, workers)
        found = _work(rank, workers, gpu, n, options.rounds, options.timeout, options.device)
    except KeyError:
        parser.error(
            "RANK is not set; use torchrun --nproc-per-node 2 -m packviz.studies.workers, or call compare()"
        )
    except ValueError as error:
        parser.error(str(error))
    if found is not None:
        print(f"{found}\n\n{found.times()}")
    _leave()


if __name__ == "__main__":
    main()
