"""Compiling and packing, together and apart: one training step of an encoder–decoder LSTM, several ways.

A page on packing in a forecasting library compares three of them on a GPU. Here are these three in kind, and what it
leaves out. All but the padded ones compute the same; padded, the decoder starts from states that have read padding.

`python -m packviz.studies.compiled --out notebooks/recorded/static_cpu.json` makes the recorded file.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from packviz.bench.command import race_and_save
from packviz.bench.timing import Timing, measure
from packviz.core import files as recorded
from packviz.core.lengths import uniform
from packviz.draw import palette
from packviz.draw.drawn import Drawn
from packviz.draw.layouts import element, escape
from packviz.draw.text import milliseconds
from packviz.ops.masks import padding_mask
from packviz.ops.operator import ragged_op

REFERENCE = "compiled, padded"
"""What the others are compared with."""

_KIND, _VERSION = "static", 1


class Forecaster(nn.Module):
    """Layers, an encoder LSTM over the past, a decoder LSTM over the future, layers. Never packs."""

    def __init__(self, features: int, hidden: int) -> None:
        """Draws the weights."""
        super().__init__()
        self.before = _layers(features, hidden)
        self.encoder: nn.Module = nn.LSTM(hidden, hidden, batch_first=True)
        self.decoder: nn.Module = nn.LSTM(hidden, hidden, batch_first=True)
        self.after = _layers(hidden, features)

    def forward(self, past: Tensor, past_lengths: Tensor, future: Tensor, future_lengths: Tensor) -> Tensor:
        """From `(B, T, F)` and `(B, S, F)` to `(B, S, F)`."""
        _, states = self.encoder(self.before(past))
        output, _ = self.decoder(self.before(future), states)
        return self.after(output)  # type: ignore[no-any-return]


class Packing(Forecaster):
    """Packs in its own forward, by two functions."""

    def __init__(self, features: int, hidden: int, disabled: bool = False) -> None:
        """Draws the weights; may hide the two functions, and nothing else, from `torch.compile`."""
        super().__init__(features, hidden)
        hide: Callable[[Any], Any] = torch.compiler.disable if disabled else lambda function: function
        self.pack, self.pad = hide(pack_padded_sequence), hide(pad_packed_sequence)

    def forward(self, past: Tensor, past_lengths: Tensor, future: Tensor, future_lengths: Tensor) -> Tensor:
        """As above, exact for every length."""
        packed = self.pack(self.before(past), past_lengths, batch_first=True, enforce_sorted=False)
        _, states = self.encoder(packed)
        packed = self.pack(self.before(future), future_lengths, batch_first=True, enforce_sorted=False)
        result, _ = self.decoder(packed, states)
        output, _ = self.pad(result, batch_first=True, total_length=future.size(1))
        return self.after(output)  # type: ignore[no-any-return]


class Island(nn.Module):
    """pack → RNN → pad, all of it hidden from `torch.compile`."""

    def __init__(self, rnn: nn.RNNBase) -> None:
        """Takes the RNN."""
        super().__init__()
        self.rnn = rnn
        # The same as decorating forward with @torch.compiler.disable.
        self.forward = torch.compiler.disable(self._run)  # type: ignore[no-untyped-call]

    def _run(self, x: Tensor, lengths: Tensor, hx: Any = None) -> Any:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        result, states = self.rnn(packed, hx)
        return pad_packed_sequence(result, batch_first=True, total_length=x.size(1))[0], states


class Wrapping(Forecaster):
    """Leaves packing to two submodules that take lengths."""

    def __init__(self, features: int, hidden: int, wrap: Callable[[nn.RNNBase], nn.Module]) -> None:
        """Draws the weights; `wrap` makes a module that takes lengths of an RNN."""
        super().__init__(features, hidden)
        self.encoder, self.decoder = wrap(self.encoder), wrap(self.decoder)  # type: ignore[arg-type]

    def forward(self, past: Tensor, past_lengths: Tensor, future: Tensor, future_lengths: Tensor) -> Tensor:
        """As above, exact for every length."""
        _, states = self.encoder(self.before(past), past_lengths)
        output, _ = self.decoder(self.before(future), future_lengths, states)
        return self.after(output)  # type: ignore[no-any-return]


def models(features: int, hidden: int) -> dict[str, tuple[nn.Module, bool]]:
    """The contestants with the same weights: by name the model, and whether to compile it."""
    ways: dict[str, tuple[Callable[[], nn.Module], bool]] = {
        "padded": (lambda: Forecaster(features, hidden), False),
        REFERENCE: (lambda: Forecaster(features, hidden), True),
        "packed": (lambda: Packing(features, hidden), False),
        "compiled, helpers disabled": (lambda: Packing(features, hidden, disabled=True), True),
        "compiled, disabled island": (lambda: Wrapping(features, hidden, Island), True),
        "compiled, ragged_op": (lambda: Wrapping(features, hidden, ragged_op), True),
    }
    made = {}
    for name, (make, compiled) in ways.items():
        with torch.random.fork_rng():
            torch.manual_seed(0)
            made[name] = make(), compiled
    return made


@dataclass(frozen=True, repr=False)
class Compiled(Drawn):
    """What was measured: one training step (forward and backward) of each contestant.

    Attributes:
        timing: by the names of `models`.
    """

    timing: Timing

    def to_text(self) -> str:
        """Milliseconds, and how many times as long as the reference."""
        p = self.timing.provenance["parameters"]
        lines = [
            f"One training step of an encoder–decoder LSTM: {p['batch']} sequences of up to {p['past']} steps in and"
            f" {p['future']} out, {p['hidden']} hidden units.",
            f"{'':27}{'ms':>8}   times {REFERENCE} (quartiles)",
        ]
        for name in self.timing.seconds:
            ratio = self.timing.ratio(name, REFERENCE)
            said = f"{ratio.value:.3g} ({ratio.low:.3g} to {ratio.high:.3g})"
            doubt = "" if ratio.is_clear or name == REFERENCE else ", not told apart"
            lines.append(f"{name:27}{milliseconds(self.timing.median(name)):>8}   {said}{doubt}")
        return "\n".join([*lines, self._place])

    def to_svg(self, theme: str = "light") -> str:
        """A bar for each: how many times as long as the reference, with a line from quartile to quartile."""
        colours, ratios = palette.THEMES[theme], [self.timing.ratio(name, REFERENCE) for name in self.timing.seconds]
        left, room = 210.0, 520.0
        scale = room / max(ratio.high for ratio in ratios)
        title = f"one training step, times as long as “{REFERENCE}”; shorter is faster"
        body = [f'<text x="4" y="16" font-weight="bold">{escape(title)}</text>']
        for i, ratio in enumerate(ratios):
            y, width = 28 + 28 * i, ratio.value * scale
            body.append(f'<text x="{left - 8:g}" y="{y + 15}" text-anchor="end">{escape(ratio.name)}</text>')
            bar = f"M{left:g} {y}h{width:.1f}v20h-{width:.1f}z"
            body.append(f'<path d="{bar}" fill="{palette.SEQUENCES[0]}" stroke="{colours.line}"/>')
            whisker = f"M{left + ratio.low * scale:.1f} {y + 10}H{left + ratio.high * scale:.1f}"
            body.append(f'<path d="{whisker}" stroke="{colours.text}" stroke-width="2"/>')
            body.append(f'<text x="{left + ratio.high * scale + 8:.1f}" y="{y + 15}">{ratio.value:.3g}</text>')
        x = left + scale
        body.append(f'<path d="M{x:.1f} 24V{28 * len(ratios) + 28}" stroke="{colours.accent}" stroke-dasharray="4 3"/>')
        y = 28 * len(ratios) + 46
        body.append(f'<text x="4" y="{y}" font-size="11" fill="{colours.muted}">{escape(self._place)}</text>')
        return element("".join(body), left + room + 70, y + 8, self.to_text(), theme)

    @property
    def _place(self) -> str:
        place = self.timing.provenance
        return (
            f"Measured on {place.get('device_name')}, torch {place.get('torch')}, torch threads:"
            f" {place.get('threads')}, compiled by {place['parameters']['backend']};"
            f" {self.timing.rounds} interleaved rounds."
        )


def race(
    *,
    batch: int = 64,
    past: int = 128,
    future: int = 64,
    features: int = 16,
    hidden: int = 64,
    rounds: int = 15,
    threads: int = 1,
    device: Any = "cpu",
    backend: str = "",
    progress: Callable[[int, int], object] = lambda done, all: None,
) -> Compiled:
    """Times the contestants against each other. The lengths are drawn evenly from 1 to `past`, and 1 to `future`.

    Args:
        batch: sequences.
        past: time steps of the padded input.
        future: time steps of the padded output.
        features: of a time step.
        hidden: units of each LSTM.
        rounds: timed rounds.
        threads: torch's CPU threads meanwhile.
        device: where to run.
        backend: of `torch.compile`; by default inductor where there is a C++ compiler, else aot_eager.
        progress: see `measure`.
    """
    backend = backend or ("inductor" if shutil.which("g++") or str(device).startswith("cuda") else "aot_eager")
    generator = torch.Generator().manual_seed(0)
    inputs: list[Tensor] = []
    for steps, seed in ((past, 0), (future, 1)):
        inputs.append(torch.randn(batch, steps, features, generator=generator).to(device))
        inputs.append(torch.as_tensor(uniform(batch, steps, seed)))
    mask = padding_mask(inputs[3].to(device), future)[..., None]

    def step(model: Any) -> Callable[[], None]:
        return lambda: (model(*inputs).square() * mask).mean().backward()

    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads)
    torch._dynamo.reset()
    try:
        calls: dict[str, Callable[[], object]] = {}
        before: dict[str, Callable[[], object]] = {}
        for name, (model, compiled) in models(features, hidden).items():
            model = model.to(device)
            calls[name] = step(torch.compile(model, backend=backend) if compiled else model)
            before[name] = model.zero_grad
            calls[name]()  # compiles
        parameters = {"batch": batch, "past": past, "future": future, "features": features, "hidden": hidden}
        timing = measure(
            calls,
            rounds=rounds,
            before=before,
            device=device,
            progress=progress,
            parameters=parameters | {"backend": backend, "rounds": rounds},
        )
    finally:
        torch.set_num_threads(threads_before)
    return Compiled(timing)


def save(path: str, found: Compiled) -> None:
    """Writes a result file: schema `static`, version 1: under `timing` what `Timing.to_dict` gives."""
    recorded.save(path, _KIND, _VERSION, {"timing": found.timing.to_dict()})


def load(path: str) -> Compiled:
    """Reads what `save` wrote.

    Raises:
        ValueError: there is no such file, or it holds something else.
    """
    return Compiled(Timing.from_dict(recorded.load(path, _KIND, _VERSION)["timing"]))


def main(arguments: Sequence[str] | None = None) -> None:
    """Races the contestants, and writes the file."""
    race_and_save("compiled", main.__doc__, race, save, 21, arguments)


def _layers(inputs: int, outputs: int) -> nn.Module:
    """Something for a compiler to fuse."""
    wide = 2 * max(inputs, outputs)
    return nn.Sequential(nn.Linear(inputs, wide), nn.GELU(), nn.LayerNorm(wide), nn.Linear(wide, outputs), nn.GELU())


if __name__ == "__main__":
    main()
