"""Several workers train on one ragged batch (DistributedDataParallel): who gets how much, and which gradient comes out.

A batch, sorted by length, is dealt out to workers in the ways of `packviz.core.batches.SPLITS`. Each worker runs its
share; DDP averages the gradients. Compared with one process on the whole batch:

* *mean of means*: every worker takes the mean loss over its own tokens. The average of these is not the mean over all
  tokens, unless all shares hold equally many.
* *token-weighted*: every worker takes the sum of its losses, times the workers, over the tokens of all. Their average
  is the mean over all tokens.

`compare()` starts two processes on this machine. Run by hand, on as many workers as torchrun is told to start:

    torchrun --nproc-per-node 2 -m packviz.studies.workers --lengths my_lengths.csv

The workers talk over the loopback interface and meet through a file; none outlives `compare()`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from packviz.bench.timing import Timing, measure
from packviz.core import batches as buckets
from packviz.core.given import at_least, one_of
from packviz.core.layout import Layout
from packviz.core.lengths import log_normal, read
from packviz.core.worded import Worded
from packviz.draw.text import milliseconds, table
from packviz.ops.original import pack_padded_sequence

if TYPE_CHECKING:
    from packviz.draw.figures import Chart

MEANS, WEIGHTED = "mean of means", "token-weighted"
LOSSES = (MEANS, WEIGHTED)
"""How the workers' losses are made; see above."""


@dataclass(frozen=True, repr=False)
class Share:
    """What one worker got, and what it took.

    Attributes:
        tokens: real time steps, by way of splitting.
        steps: time steps of its padded outputs, by way: its longest sequence.
        timing: forward and backward on its share, without waiting for the others, by way.
    """

    tokens: Mapping[str, int]
    steps: Mapping[str, int]
    timing: Timing


@dataclass(frozen=True, repr=False)
class Workers(Worded):
    """The comparison.

    Attributes:
        layout: the batch.
        shares: one per worker.
        errors: by way of splitting and name of loss, how far the averaged gradient is from the one of a single
            process: the length (2-norm) of the difference over that of the gradient.
    """

    layout: Layout
    shares: tuple[Share, ...]
    errors: Mapping[str, Mapping[str, float]]

    def tokens(self, way: str) -> list[int]:
        """The tokens of each worker."""
        return [share.tokens[way] for share in self.shares]

    def steps(self, way: str) -> list[int]:
        """The time steps of each worker's padded outputs."""
        return [share.steps[way] for share in self.shares]

    def seconds(self, way: str) -> list[float]:
        """The median time of each worker's own forward and backward pass."""
        return [share.timing.median(way) for share in self.shares]

    def to_text(self) -> str:
        """Tokens, steps and gradient errors: all that does not depend on the machine."""
        title = f"{self.layout.batch_size} sequences, {self.layout.n_valid:,} tokens, workers: {len(self.shares)}"
        rows = [["split", "tokens", "steps", *(f"gradient error, {loss}" for loss in LOSSES)]]
        for way, errors in self.errors.items():
            counts = (" / ".join(map(str, some(way))) for some in (self.tokens, self.steps))
            rows.append([way, *counts, *(said(errors[loss]) for loss in LOSSES)])
        return "\n".join([title, *table(rows, "<12>16>14   .   <")])

    def times(self) -> str:
        """The milliseconds of each worker, and how long the fastest waits for the slowest."""
        rows = [["split", "ms", "the fastest waits"]]
        for way in self.errors:
            seconds = self.seconds(way)
            waits = f"{100 * (1 - min(seconds) / max(seconds)):.0f} % of the time"
            rows.append([way, " / ".join(map(milliseconds, seconds)), waits])
        where = f"Measured by each worker on {self.shares[0].timing.caption}."
        return "\n".join([*table(rows, "<12>16   <"), where])

    def chart(self) -> Chart:
        """The tokens of each worker, for each way of splitting."""
        from packviz.draw.figures import axes  # noqa: PLC0415 - a bare machine has no plotly

        tokens = {way: self.tokens(way) for way in self.errors}
        shares = [f"{way}, worker {i}" for way, each in tokens.items() for i in range(len(each))]
        most = max(map(max, tokens.values()))
        ends = [f"{most:,}"]
        times = {way: max(each) / min(each) for way, each in tokens.items()}
        worst = max(times, key=lambda way: times[way])
        title = f"{worst.capitalize()} gives one worker {times[worst]:.2g} times the tokens of another"
        chart = axes(title, self.to_text(), x="tokens", rows=shares, ends=ends)
        chart.bars(shares, [own for each in tokens.values() for own in each])
        chart.figure.update_traces(texttemplate="%{x:,}", textposition="outside", cliponaxis=False)
        chart.scale(most)
        return chart


def said(error: float) -> str:
    """An error with two digits, as long as it is more than rounding."""
    return f"{error:.2g}" if error >= 1e-6 else "< 1e-06"


def compare(
    lengths: Any = None, *, workers: int = 2, rounds: int = 5, timeout: float = 120.0, device: str = "cpu"
) -> Workers:
    """Starts workers on this machine, each with one thread, and compares the ways of splitting.

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
    if not isinstance(timeout, Real) or not 0 < timeout < math.inf:
        raise ValueError(f"timeout is {timeout!r}; give a number of seconds over 0")
    if one_of("device", device, ("cpu", "cuda")) == "cuda" and (gpus := torch.cuda.device_count()) < workers:
        raise ValueError(f"device is 'cuda', a GPU for each worker; torch finds {gpus} for {workers}")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="packviz-")))
        given, out = folder / "lengths.json", folder / "result.json"
        given.write_text(json.dumps(n), encoding="utf-8")
        options = {"init": (folder / "meet").as_uri(), "lengths": given, "out": out}
        options |= {"rounds": rounds, "timeout": timeout, "device": device}
        command = [sys.executable, "-m", "packviz.studies.workers"]
        command += [f"--{name}={value}" for name, value in options.items()]
        started = []
        for rank in range(workers):
            errors = stack.enter_context((folder / f"errors-{rank}.txt").open("w+", encoding="utf-8"))
            process = subprocess.Popen(
                command, env=_environment(rank, workers), stdout=errors, stderr=errors, stdin=subprocess.PIPE
            )
            stack.callback(_end, process)
            started.append((process, errors))
        deadline = time.monotonic() + timeout
        while True:
            codes = [process.poll() for process, _ in started]
            failed = [rank for rank, code in enumerate(codes) if code]
            if failed or (None in codes and time.monotonic() > deadline):
                rank = failed[0] if failed else 0
                errors = started[rank][1]
                errors.seek(0)
                what = f"worker {rank} failed" if failed else f"the workers were not done after {timeout:g} s"
                raise RuntimeError(f"{what}:\n{errors.read().strip()[-2000:]}")
            if None not in codes:
                return _read(out.read_text(encoding="utf-8"))
            time.sleep(0.02)


def gradient_error(found: Sequence[Any], wanted: Sequence[Any]) -> float:
    """The length of the difference of two lists of gradients, over that of the second."""
    one, other = (torch.cat([gradient.flatten() for gradient in some]).double() for some in (found, wanted))
    return float((one - other).norm() / other.norm())


def _work(lengths: Sequence[int], options: argparse.Namespace) -> Workers | None:
    """What each worker does; worker 0 returns what all have found."""
    torch.set_num_threads(1)
    cuda = options.device == "cuda"
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    rank, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    distributed.init_process_group(
        "nccl" if cuda else "gloo",
        init_method=options.init,
        rank=rank,
        world_size=workers,
        timeout=timedelta(seconds=options.timeout),
    )
    try:
        torch.manual_seed(0)
        model = _Model().to(device)
        x = torch.randn(len(lengths), max(lengths), _INPUT).to(device)
        y = torch.randn(len(lengths), max(lengths)).to(device)
        losses = model(x, y, lengths)
        wanted = torch.autograd.grad(losses.mean(), list(model.parameters()))
        parallel = DistributedDataParallel(model, device_ids=[device] if cuda else None)
        errors: dict[str, dict[str, float]] = {}
        tokens, steps, calls = {}, {}, {}
        for way in buckets.SPLITS:
            share = buckets.split(lengths, workers, way)[rank]
            mine = [lengths[i] for i in share]
            my_x, my_y = x[share, : max(mine)], y[share, : max(mine)]
            tokens[way], steps[way] = sum(mine), max(mine)
            errors[way] = {}
            for name in LOSSES:
                parallel.zero_grad()
                losses = parallel(my_x, my_y, mine)
                loss = losses.mean() if name == MEANS else losses.sum() * workers / sum(lengths)
                loss.backward()
                errors[way][name] = gradient_error([w.grad for w in model.parameters()], wanted)
            calls[way] = _own_work(parallel, my_x, my_y, mine)
        timing = measure(
            calls,
            rounds=options.rounds,
            device=device,
            before=dict.fromkeys(calls, distributed.barrier),  # the workers compute at the same time
            parameters={"lengths": list(lengths), "workers": workers},
        )
        found: list[Any] = [None] * workers
        distributed.all_gather_object(found, Share(tokens, steps, timing))
        return Workers(Layout(lengths), tuple(found), errors) if rank == 0 else None
    finally:
        distributed.destroy_process_group()


_INPUT, _HIDDEN = 16, 128
_TORCHRUN = "env://"  # torchrun says in the environment where workers meet


class _Model(nn.Module):
    """A GRU with a linear layer on top; called with a padded batch, its targets and lengths, it gives `(N,)` losses."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(_INPUT, _HIDDEN, batch_first=True)
        self.linear = nn.Linear(_HIDDEN, 1)

    def forward(self, x: Tensor, y: Tensor, lengths: list[int]) -> Tensor:
        packed, wanted = (pack_padded_sequence(one, lengths, batch_first=True, enforce_sorted=False) for one in (x, y))
        losses: Tensor = (self.linear(self.gru(packed)[0].data).squeeze(1) - wanted.data) ** 2
        return losses


def _own_work(parallel: Any, x: Any, y: Any, lengths: Sequence[int]) -> Any:
    def call() -> None:
        parallel.zero_grad()
        with parallel.no_sync():
            parallel(x, y, lengths).mean().backward()

    return call


def _environment(rank: int, workers: int) -> dict[str, str]:
    """That of a worker: what torchrun would set, one thread, and nothing but loopback."""
    loopback = [name for _, name in socket.if_nameindex() if name.startswith("lo")] if os.name == "posix" else []
    here = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(workers), "PYTHONPATH": path}
    own |= {"OMP_NUM_THREADS": "1"} | ({"GLOO_SOCKET_IFNAME": loopback[0]} if loopback else {})
    return os.environ | own


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.communicate()  # waits, and closes the pipe


def _end_with_parent() -> None:
    """Ends this worker when the process that started it is gone, which closes the worker's standard input."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def _batch(lengths: Any, workers: int) -> list[int]:
    if isinstance(lengths, (str, os.PathLike)):
        lengths = read(str(lengths))
    n: list[int] = Layout(log_normal(64, 128) if lengths is None else lengths).lengths.tolist()
    if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= len(n):
        raise ValueError(f"workers is {workers!r}; give a whole number from 1 to the {len(n)} sequences")
    return n


def _write(workers: Workers) -> str:
    shares = [asdict(share) for share in workers.shares]
    return json.dumps({"lengths": workers.layout.lengths.tolist(), "shares": shares, "errors": workers.errors})


def _read(text: str) -> Workers:
    data = json.loads(text)
    shares = [Share(one["tokens"], one["steps"], Timing.from_dict(one["timing"])) for one in data["shares"]]
    return Workers(Layout(data["lengths"]), tuple(shares), data["errors"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Compares the ways of splitting: under torchrun as one of its workers, else with two of its own."""
    parser = argparse.ArgumentParser(prog="python -m packviz.studies.workers", description=main.__doc__)
    parser.add_argument("--lengths", help="a CSV or JSON file; 64 log-normal lengths if not given")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds")
    parser.add_argument("--out", help="a file for the result as JSON, in place of printing it")
    parser.add_argument("--init", default=_TORCHRUN, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.init != _TORCHRUN:
        threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        if "RANK" in os.environ:
            found = _work(_batch(options.lengths, int(os.environ["WORLD_SIZE"])), options)
        else:
            found = compare(options.lengths, rounds=options.rounds, timeout=options.timeout, device=options.device)
    except ValueError as error:
        parser.error(str(error))
    if found is not None and options.out:
        Path(options.out).write_text(_write(found), encoding="utf-8")
    elif found is not None:
        print(f"{found}\n\n{found.times()}")
    if "RANK" in os.environ:
        # A thread of gloo's may still hold a last tensor, and needs Python to let go of it: met by an interpreter that
        # is on its way out, it aborts the process. All is said by now, so nothing is left to do on the way.
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
