"""Draws bar charts.

Solid bars show what is needed or measured, and hatched bars show waste that packing avoids.

A chart is cheap to redraw when a slider moves, because bars of the same style share one SVG path.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from packviz.core.layout import IntArray
from packviz.draw.drawing import Drawing
from packviz.draw.grid import next_round_integer
from packviz.draw.palette import REAL
from packviz.draw.sheet import HATCHED, WIDTH, Sheet, max_text_width, text_width
from packviz.draw.text import percent, short_count

Legend = Sequence[tuple[str, str]]
"""The fills to explain above the bars, each with its meaning, as `(fill, words)`."""

BarMeanings = tuple[str, str, str]
"""What solid bars mean, what hatched bars mean, and a word for the hatched share."""

SOLID_FILL = REAL
FLOPS_MEANINGS = ("computed if packed", "only if padded", "saved")
"""The meanings of bars that show FLOPs."""

_GROUP_NAME_HEIGHT = 26.0  # px: the height of a group's name
_ROW_HEIGHT = 28.0  # px: from one bar to the next
_AXIS_WIDTH = 110.0  # px: the space for the axis, to the left of vertical bars
_MAX_BAR_HEIGHT = 120.0  # px: the height of the highest vertical bar
_MAX_SEPARATE_BARS = 24  # if there are more time steps, adjacent equal bars are drawn as one
_MIN_OUTLINED_WIDTH = 4.0  # px
_MIN_LONGEST_BAR = 120.0  # px: the longest bar is at least this long


@dataclass(frozen=True)
class BarChart(Drawing):
    """A bar chart with its content in words.

    Attributes:
        words: the content of the chart in words.
        draw: a function that draws the bars in a given theme.
    """

    words: str
    draw: Callable[[str], Sheet]

    def to_text(self) -> str:
        """Returns the content of the chart in words."""
        return self.words

    def sheet(self, theme: str) -> Sheet:
        """Draws the bars."""
        sheet = self.draw(theme)
        sheet.description = self.words
        return sheet


@dataclass(frozen=True)
class Bar:
    """A horizontal bar, which may have several parts.

    Attributes:
        parts: the `(length, fill)` of each part, from left to right. A part is left blank if its
            fill is empty.
        label: the text after the end of the bar; may be empty.
        whisker: the two ends of the whisker, such as the quartiles of a measured time; `None` for
            no whisker.
    """

    parts: Sequence[tuple[float, str]]
    label: str
    whisker: tuple[float, float] | None = None

    @property
    def length_with_whisker(self) -> float:
        """The greatest length that the bar or its whisker reaches."""
        length = sum(length for length, _ in self.parts)
        return max(length, *(self.whisker or (0,)))


def draw_horizontal_bars(
    title: str,
    groups: Mapping[str, Mapping[str, Bar]],
    theme: str,
    *,
    legend: Legend = (),
    line_value: float | None = None,
    notes: Sequence[str] = (),
) -> Sheet:
    """Draws groups of horizontal bars. Each bar has its name on the left and its label at its end.

    Args:
        title: the title above the bars, which states the finding.
        groups: the groups, by name. Each group maps the names of bars to the bars. A group's name
            may be empty.
        theme: the name of the theme, one of the keys in `palette.THEMES`.
        legend: the fills to explain above the bars.
        line_value: the length at which to draw a vertical line across all bars, such as 1 for
            ratios; `None` for no line.
        notes: lines of text below the bars.
    """
    sheet, top = _titled_sheet(title, theme, legend)
    overlay_sheet = Sheet(theme)  # painted over the bars and the line
    background = sheet.colours.ground
    text_colour = sheet.colours.text
    bars = [bar for group in groups.values() for bar in group.values()]
    left = 24 + max_text_width(chain(*groups.values()))
    max_label_width = max_text_width(bar.label for bar in bars)
    max_length = max((bar.length_with_whisker for bar in bars), default=0.0) or 1.0
    scale = max(WIDTH - left - 40 - max_label_width, _MIN_LONGEST_BAR) / max_length
    line_x = math.nan if line_value is None else left + line_value * scale
    y = top
    for name, group in groups.items():
        overlay_sheet.text(4, y + 17, name, bold=True, halo=background)
        y += _GROUP_NAME_HEIGHT if name else 0
        for bar_name, bar in group.items():
            sheet.text(left - 8, y + 14, bar_name, anchor="end")
            x = left
            for length, fill in bar.parts:
                if fill:
                    sheet.box(x, y, length * scale, 20, fill)
                x += length * scale
            if bar.whisker:
                whisker_start, whisker_end = (left + end * scale for end in bar.whisker)
                whisker_path = f"M{whisker_start} {y + 5}v10m0-5H{whisker_end}m0-5v10"
                overlay_sheet.path(whisker_path, stroke=background, width=4)  # visible on any fill
                overlay_sheet.path(whisker_path, stroke=text_colour, width=1.5)
            x = left + bar.length_with_whisker * scale + 10
            if x - 8 < line_x < x + text_width(bar.label):
                x = line_x + 8
            overlay_sheet.text(x, y + 14, bar.label, halo=background)
            y += _ROW_HEIGHT
    sheet.start_layer()
    if line_value is not None:
        accent = sheet.colours.accent
        sheet.line([(line_x, top - 6), (line_x, y)], accent, dash="4 3")
    sheet.place(overlay_sheet, 0, 0)
    bottom = sheet.paragraph(y + 4, notes)
    sheet.set_size(max(WIDTH, sheet.width), bottom)
    return sheet


def draw_saving_bars(
    title: str,
    bars: Mapping[str, tuple[int, int]],
    theme: str,
    meanings: BarMeanings = FLOPS_MEANINGS,
    rest_fill: str = HATCHED,
) -> Sheet:
    """Draws a horizontal bar for each pair of counts.

    The first count is the solid part, and the second is the rest.

    Args:
        title: the title above the bars, which states the finding.
        bars: for each name, the packed count and the count that packing saves. The two counts add
            up to the padded one.
        theme: the name of the theme, one of the keys in `palette.THEMES`.
        meanings: what solid and hatched bars mean, and a word for the hatched share.
        rest_fill: the fill of the second counts. Waiting is not hatched, because it is not work.
    """
    group = {}
    for name, (packed, saved) in bars.items():
        padded = packed + saved
        counts_text = f"{short_count(packed)} of {short_count(padded)}"
        saved_percent = percent(saved, padded)
        label = f"{counts_text}: {saved_percent} {meanings[2]}"
        parts = [(packed, SOLID_FILL), (saved, rest_fill)]
        group[name] = Bar(parts, label)
    legend = [(SOLID_FILL, meanings[0]), (rest_fill, meanings[1])]
    return draw_horizontal_bars(title, {"": group}, theme, legend=legend)


def draw_step_bars(
    title: str,
    packed: IntArray,
    padded: IntArray,
    theme: str,
    meanings: BarMeanings = FLOPS_MEANINGS,
    axis_title: str = "t =",
    bar_names: Sequence[str] = (),
) -> Sheet:
    """Draws a vertical bar for each time step.

    A bar is solid up to the packed count, and hatched from there to the padded count.

    Args:
        title: the title above the bars, which states the finding.
        packed: `(T,)` the packed count at each time step.
        padded: `(T,)` the padded count at each time step, which is never less than the packed
            count.
        theme: the name of the theme, one of the keys in `palette.THEMES`.
        meanings: what solid and hatched bars mean, and a word for the hatched share.
        axis_title: the title of the axis, written before the names of the bars.
        bar_names: the names of the bars. By default, the bars are numbered from 0.
    """
    legend = [(SOLID_FILL, meanings[0])]
    if meanings[1]:
        legend.append((HATCHED, meanings[1]))
    sheet, y = _titled_sheet(title, theme, legend)
    n_bars = len(packed)
    max_padded_count = int(max(padded))
    bar_pitch = (WIDTH - 130) / n_bars
    scale = _MAX_BAR_HEIGHT / max(max_padded_count, 1)
    bottom = y + 2 + _MAX_BAR_HEIGHT
    run_bounds: Sequence[int] = range(n_bars + 1)
    gap = min(3.0, bar_pitch * 0.15)
    if n_bars > _MAX_SEPARATE_BARS:
        height_changes = np.abs(np.diff(packed)) + np.abs(np.diff(padded))
        run_bounds = [0, *np.flatnonzero(height_changes) + 1, n_bars]
        gap = 0.0
    for start, end in pairwise(run_bounds):
        x = _AXIS_WIDTH + start * bar_pitch + gap / 2
        width = (end - start) * bar_pitch - gap
        # The outline of a thin bar would hide its colour.
        outline_colour = None if width + gap >= _MIN_OUTLINED_WIDTH else ""
        packed_height = packed[start] * scale
        padded_height = padded[start] * scale
        if packed_height:
            sheet.box(
                x, bottom - packed_height, width, packed_height, SOLID_FILL, stroke=outline_colour
            )
        if padded_height > packed_height:
            sheet.box(
                x,
                bottom - padded_height,
                width,
                padded_height - packed_height,
                HATCHED,
                stroke=outline_colour,
            )
    sheet.line([(_AXIS_WIDTH, bottom), (WIDTH - 20, bottom)])
    top = bottom - max_padded_count * scale
    sheet.note(_AXIS_WIDTH - 8, top + 4, short_count(max_padded_count), "end")
    sheet.note(_AXIS_WIDTH - 8, bottom + 4, "0", "end")
    sheet.note(_AXIS_WIDTH - 8, bottom + 18, axis_title, "end")
    bar_names = bar_names or [str(t) for t in range(n_bars)]
    name_width = 8 + 8 * len(bar_names[-1])
    for t in range(0, n_bars, next_round_integer(name_width / bar_pitch)):
        middle = _AXIS_WIDTH + (t + 0.5) * bar_pitch
        sheet.note(middle, bottom + 18, bar_names[t], "middle")
    sheet.set_size(WIDTH, bottom + 28)
    return sheet


def _titled_sheet(title: str, theme: str, legend: Legend) -> tuple[Sheet, float]:
    """Returns a sheet with a title and, below it, a legend, and the y-coordinate below both."""
    sheet = Sheet(theme, title)
    y = sheet.title(title) + 8
    if legend:
        sheet.legend(y - 6, legend)
        y += 20
    return sheet, y
