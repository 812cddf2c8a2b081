"""Lets torch add more padding than it does by itself."""

from __future__ import annotations

from typing import Any

from torch.overrides import TorchFunctionMode

from packviz.ops.private import PAD_PACKED_NAME


class ExtraPaddingMode(TorchFunctionMode):
    """In a `with` block, torch adds time steps to sequences of different lengths when it pads them.

    `pad_sequence` does so if it pads sequences of the batch's lengths on the right.
    `pad_packed_sequence` does so, unless its `total_length` is greater than the longest length.
    Other threads are not affected.

    Attributes:
        steps: the number of time steps.
        lengths: the lengths of the batch, in ascending order.
        has_widened: whether it has done so.
    """

    def __init__(self, steps: int, lengths: list[int]) -> None:
        super().__init__()
        self.steps = steps
        self.lengths = sorted(lengths)
        self.has_widened = False

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Calls torch's function, with another width if it pads."""
        name = getattr(function, "__name__", "")
        if name == PAD_PACKED_NAME:
            *other_args, output_steps = args
            sizes = args[1]
            if output_steps == len(sizes) and sizes[-1] < sizes[0]:
                self.has_widened = True
                args = (*other_args, output_steps + self.steps)
        if name == "pad_sequence" and "left" not in args:
            sequences, batch_first, *options = args
            is_batch = sorted(map(len, sequences)) == self.lengths
            if is_batch and self.lengths[0] < self.lengths[-1]:
                self.has_widened = True
                n_steps = self.lengths[-1] + self.steps
                longer = sequences[0].new_zeros(n_steps, *sequences[0].shape[1:])
                padded = function([*sequences, longer], batch_first, *options)
                return padded.narrow(int(not batch_first), 0, len(sequences)).contiguous()
        return function(*args, **(kwargs or {}))
