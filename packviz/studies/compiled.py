"""Compares compiling and packing in a training step of an encoder–decoder LSTM.

The documentation of a forecasting library has a page on packing, which compares three methods on a
GPU. This study has methods of the same three kinds, and some that the page leaves out. All methods
give the same results, except for the padded ones, whose decoder starts from states that also depend
on padding.

`packviz study compiled --out notebooks/recorded/compiled_cpu.json` makes the recorded file.
"""

from __future__ import annotations

import shutil
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from packviz.core.lengths import uniform
from packviz.draw import bars
from packviz.draw.drawing import Drawing
from packviz.draw.palette import METHODS
from packviz.draw.sheet import Sheet, stack
from packviz.draw.text import table
from packviz.measure.study import Comparison, Results, Study, time_training
from packviz.measure.timing import RATIO_NOTE, Call, Timing
from packviz.ops.masks import real_mask
from packviz.ops.original import pack_padded_sequence, pad_packed_sequence
from packviz.ops.rnn import Ragged

REFERENCE_METHOD = "packed"
"""The method that the others are compared with."""
_INEXACT_METHODS = ("padded", "compiled, padded")
_COMPILED_PACKED_METHODS = ("compiled, helpers disabled", "compiled, disabled island")
"""The compiled steps that pack with torch's functions."""

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
_disable_compiler: _Decorator = torch.compiler.disable


class _Forecaster(nn.Module):
    """A model with an encoder LSTM for the past, a decoder LSTM for the future, and more layers.

    This one never packs.
    """

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.input_layers = _fusible_layers(features, hidden)
        self.encoder: nn.Module = nn.LSTM(hidden, hidden, batch_first=True)
        self.decoder: nn.Module = nn.LSTM(hidden, hidden, batch_first=True)
        self.output_layers = _fusible_layers(hidden, features)

    def forward(
        self, past: Tensor, past_lengths: Tensor, future: Tensor, future_lengths: Tensor
    ) -> Tensor:
        """Maps the past `(B, T, F)` and the future `(B, S, F)` to an output `(B, S, F)`."""
        _, states = self.encoder(self.input_layers(past))
        output, _ = self.decoder(self.input_layers(future), states)
        return self.output_layers(output)


class _PackingModel(_Forecaster):
    """A model that packs and pads in its own `forward`."""

    def __init__(
        self, features: int, hidden: int, hide_from_compile: _Decorator = lambda function: function
    ) -> None:
        """Makes a model. `hide_from_compile` hides torch's functions from `torch.compile`."""
        super().__init__(features, hidden)
        self.pack = hide_from_compile(pack_padded_sequence)
        self.pad = hide_from_compile(pad_packed_sequence)

    def forward(
        self, past: Tensor, past_lengths: Tensor, future: Tensor, future_lengths: Tensor
    ) -> Tensor:
        """Maps the past and the future to an output, without reading padding."""
        packed = self.pack(self.input_layers(past), past_lengths, True, enforce_sorted=False)
        _, states = self.encoder(packed)
        packed = self.pack(self.input_layers(future), future_lengths, True, enforce_sorted=False)
        packed_output, _ = self.decoder(packed, states)
        output, _ = self.pad(packed_output, True, total_length=future.size(1))
        return self.output_layers(output)


class _UncompiledRNN(nn.Module):
    """A module that runs pack → RNN → pad, and is hidden from `torch.compile`."""

    def __init__(self, rnn: nn.RNNBase) -> None:
        super().__init__()
        self.rnn = rnn

    @_disable_compiler
    def forward(self, x: Tensor, hx: Any = None, lengths: Any = None, *, total_length: int) -> Any:
        """Returns the padded output and the states."""
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        result, states = self.rnn(packed, hx)
        return pad_packed_sequence(result, batch_first=True, total_length=total_length)[0], states


class _WrappedLSTMModel(_Forecaster):
    """A model whose encoder and decoder take lengths.

    `wrap_lstm` makes each of them from an LSTM.
    """

    def __init__(self, features: int, hidden: int, wrap_lstm: Callable[[Any], nn.Module]) -> None:
        super().__init__(features, hidden)
        self.encoder = wrap_lstm(self.encoder)
        self.decoder = wrap_lstm(self.decoder)

    def forward(
        self, past: Tensor, past_lengths: Tensor, future: Tensor, future_lengths: Tensor
    ) -> Tensor:
        """Maps the past and the future to an output, without reading padding."""
        x = self.input_layers(past)
        _, states = self.encoder(x, lengths=past_lengths, total_length=x.size(1))
        x = self.input_layers(future)
        output, _ = self.decoder(x, states, future_lengths, total_length=x.size(1))
        return self.output_layers(output)


def make_models(features: int, hidden: int) -> dict[str, nn.Module]:
    """Returns a model for each method. All models have the same weights."""
    result: dict[str, nn.Module] = {}
    with torch.random.fork_rng():
        for name, kind in _MODEL_FACTORIES.items():
            torch.manual_seed(0)
            result[name] = kind(features, hidden)
    return result


_MODEL_FACTORIES: dict[str, Callable[[int, int], nn.Module]] = {
    "padded": _Forecaster,
    "compiled, padded": _Forecaster,
    REFERENCE_METHOD: _PackingModel,
    "Ragged": partial(_WrappedLSTMModel, wrap_lstm=Ragged),
    "compiled, helpers disabled": partial(_PackingModel, hide_from_compile=_disable_compiler),
    "compiled, disabled island": partial(_WrappedLSTMModel, wrap_lstm=_UncompiledRNN),
    "compiled, Ragged": partial(_WrappedLSTMModel, wrap_lstm=Ragged),
}
"""The models by method. Those whose name begins with *compiled* are compiled."""


@dataclass(frozen=True)
class CompiledPoint:
    """The sizes of a training step.

    Lengths are drawn uniformly, from 1 to `past` (input) or to `future` (output).

    Attributes:
        batch: number of sequences.
        past: time steps of the padded input.
        future: time steps of the padded output.
        features: number of features per time step.
        hidden: number of hidden units in each LSTM.
        backend: backend of `torch.compile`. Defaults to inductor if the machine has the compiler
            and the Python headers that it needs, and otherwise to aot_eager.
    """

    batch: int = 64
    past: int = 128
    future: int = 64
    features: int = 16
    hidden: int = 64
    backend: str = ""

    def __str__(self) -> str:
        return (
            f"{self.batch} sequences of up to {self.past} steps in and {self.future} out,"
            f" {self.hidden} hidden units"
        )


class CompiledResults(Drawing, Results[CompiledPoint, dict[str, Timing]]):
    """The times of one training step (forward and backward) with each model, by name."""

    def to_text(self) -> str:
        """Returns a table of the times as multiples of the reference's time."""
        return "\n\n".join(map(self._table, self.values))

    def _table(self, point: CompiledPoint) -> str:
        timing = self.timing(point)
        rows = [[name, ratio] for name, _, ratio in timing.against(REFERENCE_METHOD)]
        lines = table([["", f"times {REFERENCE_METHOD} (quartiles)"], *rows], "<27   <")
        title = f"One training step of an encoder–decoder LSTM: {point}."
        return "\n".join([title, *lines, *self._notes(timing)])

    def sheet(self, theme: str) -> Sheet:
        """Draws the time of each method as a multiple of the reference, with quartiles."""
        sheets = [self._draw_bars(self.timing(point), theme) for point in self.values]
        return sheets[0] if len(sheets) == 1 else stack("", sheets, theme)

    def _draw_bars(self, timing: Timing, theme: str) -> Sheet:
        rows = {}
        for name in timing.seconds:
            ratio = timing.ratio(name, REFERENCE_METHOD)
            parts = [(ratio.value, _method_colour(name))]
            rows[name] = bars.Bar(parts, f"{ratio.value:.3g}", (ratio.low, ratio.high))
        groups = {f"one training step, as a multiple of {REFERENCE_METHOD}'s time": rows}
        return bars.draw_horizontal_bars(
            _finding(timing), groups, theme, line_value=1, notes=self._notes(timing)
        )

    def _notes(self, timing: Timing) -> list[str]:
        backend = timing.provenance["parameters"]["backend"]
        return [RATIO_NOTE, f"Compiled by {backend}. Measured on {self.caption}."]


def _finding(timing: Timing) -> str:
    """Returns a sentence on compiling the packed step, and one on `Ragged`, eager and compiled."""
    ratios = [
        timing.ratio(name, REFERENCE_METHOD)
        for name in _COMPILED_PACKED_METHODS
        if name in timing.seconds
    ]
    best_ratio = min(ratios, key=lambda ratio: ratio.value)
    title = "Compiling makes no clear difference to the packed step."
    if best_ratio.is_clear:
        title = f"Compiled, the packed step takes {best_ratio.value:.2f} times its time."
    ragged_texts = [
        f"{name} takes {timing.ratio(name, REFERENCE_METHOD).value:.2f}"
        for name in ("Ragged", "compiled, Ragged")
        if name in timing.seconds  # the eager one is missing in older recordings
    ]
    return f"{title} {' times, and '.join(ragged_texts)} times its time"


def _method_colour(name: str) -> str:
    """Returns the colour of a method: that of padding, `Ragged` or torch's packing."""
    method = "run" if "Ragged" in name else "packed"
    return METHODS["padded" if "padded" in name else method]


def make_comparison(point: CompiledPoint, device: str) -> Comparison:
    """Returns a comparison with a training step for each method.

    A step returns the gradients of the weights.
    """
    backend = point.backend or ("inductor" if _can_compile(device) else "aot_eager")
    inputs: list[Tensor] = []
    for longest, seed in ((point.past, 0), (point.future, 1)):
        lengths = torch.as_tensor(uniform(point.batch, longest, seed))
        steps = int(lengths.max())  # a padded batch is as wide as its longest sequence
        inputs += [torch.randn(point.batch, steps, point.features).to(device), lengths]
    mask = real_mask(inputs[3].to(device), inputs[2].shape[1])[..., None]
    torch.compiler.reset()

    def step(run: Callable[..., Tensor], weights: list[nn.Parameter]) -> tuple[Tensor, ...]:
        loss = (run(*inputs).square() * mask).mean()
        return torch.autograd.grad(loss, weights)

    calls: dict[str, Call] = {}
    for name, model in make_models(point.features, point.hidden).items():
        model = model.to(device)
        run: Callable[..., Tensor] = model
        if name.startswith("compiled"):
            run = torch.compile(model, backend=backend)
        calls[name] = partial(step, run, list(model.parameters()))
    exact_methods = [name for name in calls if name not in _INEXACT_METHODS]
    return Comparison(calls, agreeing_calls=exact_methods, parameters={"backend": backend})


def _can_compile(device: str) -> bool:
    """Returns whether inductor can build code.

    Inductor writes launchers in C for a GPU, and loops in C++ for a CPU.
    """
    compilers = ("gcc", "clang", "cc") if device.startswith("cuda") else ("g++",)
    has_headers = Path(sysconfig.get_path("include"), "Python.h").exists()
    return has_headers and any(map(shutil.which, compilers))


def _fusible_layers(inputs: int, outputs: int) -> Callable[..., Tensor]:
    """Returns layers that a compiler can fuse."""
    inner_size = 2 * max(inputs, outputs)
    return nn.Sequential(
        nn.Linear(inputs, inner_size),
        nn.GELU(),
        nn.LayerNorm(inner_size),
        nn.Linear(inner_size, outputs),
        nn.GELU(),
    )


STUDY = Study(
    "compiled",
    CompiledPoint,
    partial(time_training, make_comparison),
    CompiledResults,
    full_points=[CompiledPoint()],
    quick_points=[CompiledPoint(batch=16, past=32, future=16)],
    parameters={"rounds": 21},
    version=2,
)
