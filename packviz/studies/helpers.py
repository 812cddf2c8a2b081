"""The race of the everyday helpers against a plain loop over the sequences.

Mask: making it. The others: forward and backward, with a gradient of ones. The unpacking also races torch's own.

`python -m packviz.studies.helpers --out notebooks/recorded/helpers_cpu.json` makes the recorded file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from packviz.bench.command import race_and_save
from packviz.bench.timing import Timing, measure
from packviz.core import files as recorded
from packviz.core.lengths import uniform
from packviz.ops import masks as ops

HELPER, LOOP, TORCH = "helper", "loop", "torch"
_KIND, _VERSION = "helpers", 1


@dataclass(frozen=True, repr=False)
class Helpers:
    """What the race found.

    Attributes:
        timings: by the name of the helper the `Timing` of `"helper"`, `"loop"` and, where there is one, `"torch"`.
    """

    timings: Mapping[str, Timing]

    def faster(self, name: str, than: str = LOOP) -> float:
        """How many times as long the other takes as the helper: the median over the rounds."""
        return self.timings[name].ratio(than, HELPER).value

    def to_text(self) -> str:
        """A line per helper with median times in milliseconds, and how many times as long the others take."""
        some = next(iter(self.timings.values())).provenance
        p = some["parameters"]
        lines = [
            f"{p['batch']} sequences of 1 to {p['steps']} time steps, {p['features']} features",
            f"{'':18}{'helper ms':>10}{'loop ms':>9}   how many times as long",
        ]
        for name, timing in self.timings.items():
            others = [timing.ratio(other, HELPER) for other in timing.seconds if other != HELPER]
            said = ", ".join(f"{r.name} {r.value:.2g}{'' if r.is_clear else ' (not clear)'}" for r in others)
            helper, loop = (1e3 * timing.median(one) for one in (HELPER, LOOP))
            lines.append(f"{name:18}{helper:10.2g}{loop:9.2g}   {said}")
        lines.append(
            f"Measured on {some['device_name']}, torch {some['torch']}, torch threads: {some['threads']},"
            f" {next(iter(self.timings.values())).rounds} interleaved rounds."
        )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.to_text()


def race(
    *, batch: int = 64, steps: int = 128, features: int = 32, rounds: int = 15, threads: int = 1, device: Any = "cpu"
) -> Helpers:
    """Times every helper against its loop.

    Args:
        batch: sequences. Their lengths are drawn evenly from 1 to `steps`.
        steps: time steps of the padded batch.
        features: numbers per cell.
        rounds: timed rounds.
        threads: torch's CPU threads meanwhile: kernels this small gain nothing from more.
        device: where to run.
    """
    import torch  # noqa: PLC0415

    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads)
    parameters = {"batch": batch, "steps": steps, "features": features, "rounds": rounds}
    try:
        return Helpers(
            {
                name: measure(calls, rounds=rounds, device=device, parameters=parameters | {"helper": name})
                for name, calls in contestants(uniform(batch, steps).tolist(), steps, features, device).items()
            }
        )
    finally:
        torch.set_num_threads(threads_before)


def contestants(
    lengths: Sequence[int], steps: int, features: int, device: Any = "cpu"
) -> dict[str, dict[str, Callable[[], Any]]]:
    """Each helper and those it races, as functions that return the same: a result, then its gradient if it has one."""
    import torch  # noqa: PLC0415
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence  # noqa: PLC0415

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(steps, len(lengths), features, generator=generator).to(device).requires_grad_()
    n = torch.tensor(lengths)
    packed = pack_padded_sequence(x.detach(), n, enforce_sorted=False)
    data = packed.data.requires_grad_()
    sizes, back = packed.batch_sizes.tolist(), cast(Any, packed.unsorted_indices)

    def mask_loop() -> Any:
        mask = torch.zeros(len(lengths), steps, dtype=torch.bool, device=device)
        for b, length in enumerate(lengths):
            mask[b, :length] = True
        return mask

    def loss_loop() -> Any:
        total = x.new_zeros(())
        for b, length in enumerate(lengths):
            total = total + x[:length, b].sum()
        return total / (sum(lengths) * features)

    def align_loop() -> Any:
        out = torch.zeros_like(x)
        for b, length in enumerate(lengths):
            out[steps - length :, b] = x[:length, b]
        return out

    def unpack_loop() -> Any:
        out, start = data.new_zeros(steps, len(lengths), features), 0
        for t, size in enumerate(sizes):
            out[t, :size] = data[start : start + size]
            start += size
        return out.index_select(1, back)

    def both_ways(forward: Callable[[], Any], leaf: Any) -> Callable[[], Any]:
        def run() -> Any:
            out = forward()
            return out, torch.autograd.grad(out, leaf, torch.ones_like(out))[0]

        return run

    def torchs_unpack() -> Any:
        return pad_packed_sequence(packed._replace(data=data), total_length=steps)[0]

    return {
        "padding_mask": {HELPER: lambda: ops.padding_mask(n.to(device), steps), LOOP: mask_loop},
        "masked_loss": {HELPER: both_ways(lambda: ops.masked_loss(x, n), x), LOOP: both_ways(loss_loop, x)},
        "align": {HELPER: both_ways(lambda: ops.align(x, n, "right"), x), LOOP: both_ways(align_loop, x)},
        "unpack_to_length": {
            HELPER: both_ways(lambda: ops.unpack_to_length(packed._replace(data=data), steps), data),
            LOOP: both_ways(unpack_loop, data),
            TORCH: both_ways(torchs_unpack, data),
        },
    }


def save(path: str, helpers: Helpers) -> None:
    """Writes a result file: schema `helpers`, version 1: under `timings`, by helper, what `Timing.to_dict` gives."""
    timings = {name: timing.to_dict() for name, timing in helpers.timings.items()}
    recorded.save(path, _KIND, _VERSION, {"timings": timings})


def load(path: str) -> Helpers:
    """Reads what `save` wrote.

    Raises:
        ValueError: there is no such file, or it holds something else.
    """
    timings = recorded.load(path, _KIND, _VERSION)["timings"]
    return Helpers({name: Timing.from_dict(data) for name, data in timings.items()})


def main(arguments: Sequence[str] | None = None) -> None:
    """Races the helpers, and writes the file."""
    race_and_save("helpers", main.__doc__, race, save, 31, arguments)


if __name__ == "__main__":
    main()
