"""Defines the colours of packviz, which are safe for colour-blind readers and checked for contrast
in both themes.

The sequence colours come from Okabe and Ito (2008), with one change: wine, from Paul Tol's palette,
replaces black. Nothing depends on colour alone. For example, sequences also have letters, and
padding is hatched. Some colours are too pale on white, so coloured shapes have an outline unless
they are very thin.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

SEQUENCES = ("#56B4E9", "#E69F00", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#882255")
"""The fills of sequences 0, 1, and so on. If there are more sequences than fills, the fills repeat."""

METHODS = {
    name: SEQUENCES[i]
    for name, i in {
        "padded": 4,
        "packed": 5,
        "drop-in": 2,
        "run": 6,
        "staircase": 0,
        "split": 1,
    }.items()
}
"""The colour of each method of running an RNN, in all charts that compare methods."""

RAMP = ("#eef3f2", "#c3ddd8", "#86bdb3", "#3f8f83", "#14554b")
"""The fills for numbers from small to large."""

SIGNED = ("#6b4710", "#b98a3e", "#e6cfa3", "#f4f4f0", "#c3ddd8", "#5fa79b", "#14554b")
"""The fills for numbers from the most negative to the most positive."""

SHADES = ("#f7d9b0", "#e08a3c", "#b3402a", "#5b2a86")
"""The fills of cells that differ by up to 1 % of the largest value, by up to 10 %, by more, and by NaN or infinity."""

REAL = "#6C8EAD"
"""The fill of real cells and useful work that do not belong to a single sequence or method."""

FILLS = frozenset((*SEQUENCES, *RAMP, *SIGNED, *SHADES, REAL))
"""The fills that are the same in every theme."""

FONT = "ui-monospace,Menlo,Consolas,monospace"
"""The typeface of all pictures, usually at 12 px."""


@dataclass(frozen=True)
class _Theme:
    """The colours that differ between the light and the dark theme."""

    ground: str
    text: str
    muted: str
    line: str
    padding: str
    hatch: str
    accent: str
    wrong: str


_LIGHT_AND_DARK = {
    "ground": ("#ffffff", "#111111"),
    "text": ("#1f1f1f", "#f2f2f2"),
    "muted": ("#5c5c5c", "#b8b8b8"),
    "line": ("#4a4a4a", "#cfcfcf"),
    "padding": ("#f2f2f2", "#242424"),
    "hatch": ("#8f8f8f", "#707070"),
    "accent": ("#b3003c", "#ff7fa5"),
    "wrong": ("#b00020", "#ff8a80"),
}
LIGHT, DARK = (
    _Theme(**{name: both[i] for name, both in _LIGHT_AND_DARK.items()}) for i in range(2)
)
# The colours follow the page's theme (see `STYLE`). Without a style sheet, they are those of the
# light theme.
LIVE = _Theme(**{name: f"var(--packviz-{name}, {colour})" for name, colour in vars(LIGHT).items()})
THEMES = {"light": LIGHT, "dark": DARK, "live": LIVE}

STYLE = "body[data-jp-theme-light=false] .packviz, body.vscode-dark .packviz {{{}}}".format(
    ";".join(f"--packviz-{name}:{colour}" for name, colour in vars(DARK).items())
)
"""A CSS rule that gives elements of the class `packviz` the dark colours if JupyterLab, Notebook or VS Code is dark."""


def sequence_colour(index: int) -> str:
    """Returns the fill of the sequence with the given index."""
    return SEQUENCES[index % len(SEQUENCES)]


@lru_cache
def ink_on(fill: str) -> str:
    """Returns black or white, whichever has more contrast with a fill."""
    return max("#000000", "#ffffff", key=lambda ink: contrast(ink, fill))


def contrast(one: str, other: str) -> float:
    """Returns the contrast ratio of two `#rrggbb` colours, from 1 to 21 (WCAG 2.2, relative luminance)."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
