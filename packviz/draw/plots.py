"""Draws charts of padding and of lengths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from packviz.core import batches
from packviz.core.layout import Layout, require_nonempty_sequences
from packviz.draw.bars import BarChart, draw_saving_bars, draw_step_bars
from packviz.draw.text import numbers, percent, with_noun

_MAX_BARS = 20  # the largest number of bars in a histogram


def padding_waste(
    groups: Mapping[str, Iterable[Layout]] | object, batch_size: int = 64, *, seed: int = 0
) -> BarChart:
    """Draws a bar for each group of batches, with parts for real cells and for padding.

    Args:
        groups: `(N,)` the lengths of a data set, in any form that `Layout` accepts. They are put
            into batches as they come, shuffled, and bucketed as by `pv.BucketSampler`. You can
            also pass a mapping from the name of each group to its batches.
        batch_size: the number of sequences per batch, for lengths.
        seed: the seed of the random orders, for lengths.

    Raises:
        ValueError: `groups` is empty; or a length, `batch_size` or `seed` is not valid.

    Examples:
        >>> import packviz as pv
        >>> print(pv.padding_waste([2, 9, 3, 8] * 16, batch_size=16))
        as they come: 4 batches, 352 real cells, 224 padding (38.9 % wasted)
        shuffled: 4 batches, 352 real cells, 224 padding (38.9 % wasted)
        bucketed: 4 batches, 352 real cells, 0 padding (0 % wasted)
    """
    if not isinstance(groups, Mapping):
        n = Layout(groups).lengths
        batches_by_order = {}
        for order in (batches.AS_THEY_COME, batches.SHUFFLED, batches.BUCKETED):
            epoch_batches = batches.batches(n, batch_size, order, seed=seed)
            batches_by_order[order] = [Layout(n[batch]) for batch in epoch_batches]
        return padding_waste(batches_by_order)
    if not groups:
        raise ValueError(
            "groups is empty; give a name with its batches, as in {'shuffled': [Layout([5, 3, 2])]}"
        )
    cells = {}
    padding_shares = []
    lines = []
    for key, batch_layouts in groups.items():
        name = str(key)  # a key may be the number of an epoch
        layouts = list(batch_layouts)
        if not all(isinstance(layout, Layout) for layout in layouts):
            raise TypeError(f"the batches of {name!r} must be layouts, as in [Layout([5, 3, 2])]")
        real = sum(layout.n_real for layout in layouts)
        padding = sum(layout.n_padding for layout in layouts)
        cells[name] = real, padding
        share = padding / max(real + padding, 1)
        padding_shares.append((share, name))
        n_batches_text = with_noun(len(layouts), "batch", "batches")
        real_text = with_noun(real, "real cell")
        waste_text = f"{padding:,} padding ({percent(share)} wasted)"
        lines.append(f"{name}: {n_batches_text}, {real_text}, {waste_text}")
    lowest_share, best_name = min(padding_shares)
    highest_share, worst_name = max(padding_shares)
    title = f"Padding takes {percent(highest_share)} of the cells ({worst_name})"
    if lowest_share < highest_share:
        title += f" or {percent(lowest_share)} ({best_name})"
    meanings = ("real cells", "padding", "wasted")
    return BarChart("\n".join(lines), lambda theme: draw_saving_bars(title, cells, theme, meanings))


def length_histogram(lengths: object) -> BarChart:
    """Draws a histogram of lengths, in any form that `Layout` accepts, in at most 20 bars.

    Each bar covers the same number of lengths.

    Raises:
        ValueError: the lengths are not valid, or a sequence is empty.
    """
    layout = require_nonempty_sequences(Layout(lengths))
    lengths = layout.lengths
    lengths_per_bar = -(-layout.max_len // _MAX_BARS)
    starts = range(1, layout.max_len + 1, lengths_per_bar)
    counts = np.bincount((lengths - 1) // lengths_per_bar, minlength=len(starts))
    names = [f"{start}" for start in starts]
    if lengths_per_bar > 1:
        names = [f"{start}–{start + lengths_per_bar - 1}" for start in starts]
    median = f"{np.median(lengths):g}"
    longest = lengths.max()
    words = f"{lengths.size:,} sequences: shortest {lengths.min()}, median {median},"
    words += f" mean {lengths.mean():.3g}, longest {longest}\n"
    words += f"sequences per {lengths_per_bar} lengths, from 1 up: {numbers(counts)}"
    title = f"Half of the sequences have up to {median} steps, and the longest has {longest}"
    meanings = ("number of sequences", "", "")
    return BarChart(
        words, lambda theme: draw_step_bars(title, counts, counts, theme, meanings, "length", names)
    )
