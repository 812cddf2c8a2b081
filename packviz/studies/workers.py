"""Several workers train on one ragged batch (DistributedDataParallel): who gets how much, and which gradient comes out.

A batch, sorted by length, is dealt out to workers by the strategies of `packviz.core.batches.SPLITS`. Each worker runs
its share; DDP averages the gradients. Compared with one process on the whole batch:

* *mean of means*: every worker takes the mean loss over its own tokens. The average of these is not the mean over all
  tokens, unless all shares hold equally many.
* *token-weighted*: every worker takes the sum of its losses, times the workers, over the tokens of all. Their average
  is the mean over all tokens.

`compare()` starts two processes on this machine. Run by hand, on as many workers as torchrun starts:

    torchrun --nproc-per-node 2 -m packviz.studies.workers --lengths my_lengths.csv

The workers talk over the loopback interface and meet through a file; none outlives `compare()`. As with everything that
starts processes, a script calls it under `if __name__ == "__main__":`.
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
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed, nn
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, spawn
from torch.nn.parallel import DistributedDataParallel

from packviz.bench.timing import Timing, measure
from packviz.core import batches as buckets
from packviz.core.has_text import HasText
from packviz.core.layout import IntArray, Layout, require_steps
from packviz.core.lengths import log_normal, read
from packviz.core.validation import at_least, one_of, require_seconds
from packviz.draw import bars, plots
from packviz.draw.quantities import between, known, milliseconds
from packviz.draw.text import table
from packviz.ops.original import pack_padded_sequence

MEANS, WEIGHTED = "mean of means", "token-weighted"
LOSSES = (MEANS, WEIGHTED)
"""How the workers' losses are made; see above."""


@dataclass(frozen=True, repr=False)
class Workers(HasText):
    """The comparison.

    Attributes:
        layout: the batch.
        timings: for each worker, by strategy, forward and backward on its share, without waiting for others.
        errors: by strategy and name of loss, how far the averaged gradient is from the one of a single
            process: the length (2-norm) of the difference over that of the gradient.
    """

    layout: Layout
    timings: Sequence[Timing]
    errors: Mapping[str, Mapping[str, float]]

    def lengths(self, strategy: str) -> list[IntArray]:
        """The lengths of each worker's sequences."""
        n = self.layout.lengths
        return [n[share] for share in buckets.split(n, len(self.timings), strategy)]

    def tokens(self, strategy: str) -> list[int]:
        """The tokens of each worker."""
        return [int(n.sum()) for n in self.lengths(strategy)]

    def steps(self, strategy: str) -> list[int]:
        """The time steps of each worker's padded outputs."""
        return [int(n.max()) for n in self.lengths(strategy)]

    def seconds(self, strategy: str) -> list[float]:
        """The median time of each worker's own forward and backward pass."""
        return [timing.median(strategy) for timing in self.timings]

    def to_text(self) -> str:
        """Tokens, steps and gradient errors: all that does not depend on the machine."""
        title = f"{self.layout.batch_size} sequences, {self.layout.n_valid:,} tokens, workers: {len(self.timings)}"
        rows = [["split", "tokens", "steps", *(f"error, {loss}" for loss in LOSSES)]]
        for strategy, errors in self.errors.items():
            counts = (" / ".join(map(str, some(strategy))) for some in (self.tokens, self.steps))
            rows.append([strategy, *counts, *(error_text(errors[loss]) for loss in LOSSES)])
        return "\n".join([title, *table(rows, "<12>16>14   .   <")])

    def times(self) -> str:
        """The milliseconds of each worker, and how long the fastest waits for the slowest."""
        rows = [["split", "ms", "the fastest waits"]]
        for strategy in self.errors:
            seconds = self.seconds(strategy)
            slowest, fastest = (f"{seconds.index(end(seconds))}" for end in (max, min))
            together = Timing({f"{i}": timing.seconds[strategy] for i, timing in enumerate(self.timings)})
            ratio = together.ratio(slowest, fastest)
            low, high = (100 * (1 - 1 / end) for end in ratio.interval)
            share = f"{known(100 * (1 - 1 / ratio.value), (low, high))} % of the time ({between((low, high))} %)"
            shares = " / ".join(map(milliseconds, seconds))
            rows.append([strategy, shares, share if ratio.is_clear else "not told apart"])
        first = self.timings[0]
        where = f"Measured by each worker on {first.caption}. In brackets: the 95 % interval."
        return "\n".join([*table(rows, "<12>16   <"), where, *first.notes[1:]])

    def chart(self) -> plots.Chart:
        """The tokens of each worker, for each strategy."""
        tokens = {strategy: self.tokens(strategy) for strategy in self.errors}
        rows = {
            f"{strategy}, worker {i}": bars.Bar([(own, bars.SOLID)], f"{own:,}")
            for strategy, each in tokens.items()
            for i, own in enumerate(each)
        }
        times = {strategy: max(each) / min(each) for strategy, each in tokens.items()}
        worst = max(times, key=lambda strategy: times[strategy])
        title = f"{worst.capitalize()} gives one worker {times[worst]:.2g} times the tokens of another"
        return plots.Chart(self.to_text(), lambda theme: bars.rows(title, {"": rows}, theme))


def error_text(error: float) -> str:
    """An error with two digits, as long as it is more than rounding."""
    return f"{error:.2g}" if error >= 1e-6 else "< 1e-06"


def compare(
    lengths: Any = None, *, workers: int = 2, rounds: int = 15, timeout: float = 120.0, device: str = "cpu"
) -> Workers:
    """Starts workers on this machine, each with one thread, and compares the strategies of splitting.

    Args:
        lengths: `(B,)` of the batch, at least one sequence for each worker, or the path of a CSV or JSON file; 64
            log-normal ones if not given.
        workers: processes.
        rounds: how often each share is timed.
        timeout: seconds until everything is stopped.
        device: `"cpu"`, or `"cuda"` for a GPU per worker.

    Raises:
        ValueError: the lengths or the file are not valid, there are fewer sequences than workers, a number is out of
            range, or it is another device, or there are fewer GPUs than workers.
        RuntimeError: a worker failed, or they took too long; its last words are in the message.
    """
    n = _batch(lengths, workers)
    rounds = at_least("rounds", rounds)
    require_seconds("timeout", timeout)
    if one_of("device", device, ("cpu", "cuda")) == "cuda" and (gpus := torch.cuda.device_count()) < workers:
        raise ValueError(f"device is 'cuda', a GPU for each worker; torch finds {gpus} for {workers}")
    with tempfile.TemporaryDirectory(prefix="packviz-") as folder:
        out = Path(folder, "found")
        task = _Task(n, rounds, timeout, device, Path(folder, "meet").as_uri())
        context = spawn(_worker, (workers, task, out), workers, join=False)  # type: ignore[no-untyped-call]
        deadline = time.monotonic() + timeout
        try:
            while not context.join(max(deadline - time.monotonic(), 0)):
                if time.monotonic() >= deadline:
                    raise RuntimeError(f"the workers were not done after {timeout:g} s")
        except (ProcessRaisedException, ProcessExitedException) as error:
            raise RuntimeError(f"worker {error.error_index} failed:\n{str(error).strip()[-2000:]}") from None
        finally:
            for process in context.processes:
                process.kill()
                process.join()
        found: Workers = pickle.loads(out.read_bytes())
    return found


def gradient_error(found: Sequence[Any], expected: Sequence[Any]) -> float:
    """The length of the difference of two lists of gradients, over that of the second."""
    one, other = (torch.cat([gradient.flatten() for gradient in some]).double() for some in (found, expected))
    return float((one - other).norm() / other.norm())


class _Task(NamedTuple):
    """What workers are to do.

    Attributes:
        lengths: of the batch.
        rounds: how often each share is timed.
        timeout: seconds until they stop waiting for each other.
        device: `"cpu"` or `"cuda"`.
        meet: where they meet, as torch's `init_method`.
    """

    lengths: list[int]
    rounds: int
    timeout: float
    device: str
    meet: str = "env://"  # torchrun describes it in the environment


def _worker(rank: int, workers: int, task: _Task, out: Path) -> None:
    """What a process that `compare` starts does; worker 0 writes what all have found."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if loopback := [name for _, name in socket.if_nameindex() if name.startswith("lo")] if os.name == "posix" else []:
        os.environ["GLOO_SOCKET_IFNAME"] = loopback[0]
    if found := _work(rank, workers, rank, task):
        out.write_bytes(pickle.dumps(found))
    _leave()


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()  # type: ignore[union-attr]
    os._exit(1)


def _leave() -> None:
    """Ends this process.

    A thread of gloo's may still hold a last tensor, and needs Python to release it. If it meets an interpreter that is
    shutting down, it aborts the process. So nothing is left to shut down.
    """
    sys.stdout.flush()
    os._exit(0)


def _work(rank: int, workers: int, gpu: int, task: _Task) -> Workers | None:
    """What each worker does; worker 0 returns what all have found."""
    torch.set_num_threads(1)
    cuda = task.device == "cuda"
    device = torch.device("cuda", gpu) if cuda else torch.device("cpu")
    distributed.init_process_group(
        "nccl" if cuda else "gloo",
        init_method=task.meet,
        rank=rank,
        world_size=workers,
        timeout=timedelta(seconds=task.timeout),
    )
    try:
        errors, calls = _strategies(rank, workers, device, task.lengths)
        timing = measure(
            calls,
            rounds=task.rounds,
            device=device,
            before=dict.fromkeys(calls, distributed.barrier),  # the workers compute at the same time
            parameters={"lengths": task.lengths, "workers": workers},
        )
        found: list[Any] = [None] * workers
        distributed.all_gather_object(found, timing)
        return Workers(Layout(task.lengths), found, errors) if rank == 0 else None
    finally:
        distributed.destroy_process_group()


def _strategies(
    rank: int, workers: int, device: torch.device, lengths: list[int]
) -> tuple[dict[str, dict[str, float]], dict[str, Callable[[], None]]]:
    """Returns the errors of the gradients, and what this worker does by itself: both by strategy."""
    torch.manual_seed(0)
    model = _Model().to(device)
    x = torch.randn(len(lengths), max(lengths), _INPUT).to(device)
    y = torch.randn(len(lengths), max(lengths)).to(device)
    expected = torch.autograd.grad(model(x, y, lengths).mean(), list(model.parameters()))
    parallel = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
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
    """A GRU with a linear layer on top; called with a padded batch, its targets and lengths, it gives `(N,)` losses."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(_INPUT, _HIDDEN, batch_first=True)
        self.linear = nn.Linear(_HIDDEN, 1)

    def forward(self, x: Tensor, y: Tensor, lengths: list[int]) -> Tensor:
        packed, targets = (pack_padded_sequence(one, lengths, batch_first=True, enforce_sorted=False) for one in (x, y))
        losses: Tensor = (self.linear(self.gru(packed)[0].data).squeeze(1) - targets.data) ** 2
        return losses


def _own_work(parallel: Any, batch: tuple[Any, ...]) -> None:
    parallel.zero_grad()
    with parallel.no_sync():
        parallel(*batch).mean().backward()


def _batch(lengths: Any, workers: int) -> list[int]:
    if isinstance(lengths, (str, os.PathLike)):
        lengths = read(str(lengths))
    n: list[int] = require_steps(Layout(log_normal(64, 128) if lengths is None else lengths)).lengths.tolist()
    if at_least("workers", workers) > len(n):
        raise ValueError(f"workers is {workers}; give a whole number from 1 to the {len(n)} sequences")
    return n


def main(arguments: Sequence[str] | None = None) -> None:
    """Compares the strategies of splitting: under torchrun as one of its workers, else with two of its own."""
    parser = argparse.ArgumentParser(prog="python -m packviz.studies.workers", description=main.__doc__)
    parser.add_argument("--lengths", help="a CSV or JSON file; 64 log-normal lengths if not given")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds")
    options = parser.parse_args(arguments)
    settings = {"rounds": options.rounds, "timeout": options.timeout, "device": options.device}
    try:
        if "RANK" not in os.environ:
            found: Workers | None = compare(options.lengths, **settings)
        else:
            rank, workers, gpu = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
            found = _work(rank, workers, gpu, _Task(_batch(options.lengths, workers), **settings))
    except ValueError as error:
        parser.error(str(error))
    if found is not None:
        print(f"{found}\n\n{found.times()}")
    if "RANK" in os.environ:
        _leave()


if __name__ == "__main__":
    main()
