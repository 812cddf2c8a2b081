"""Defines the colours of packviz.

They are safe for colour-blind readers, and checked for contrast in both themes.

The sequence colours come from Okabe and Ito (2008), with one change: wine, from Paul Tol's palette,
replaces black. Nothing depends on colour alone. For example, sequences also have letters, and
padding is hatched. Some colours are too pale on white, so coloured shapes have an outline unless
they are very thin.
"""

from __future__ import annotations

from dataclasses import dataclass

SEQUENCE_FILLS = (
    "#56B4E9",
    "#E69F00",
    "#009E73",
    "#F0E442",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
    "#882255",
)
"""The fills of sequences 0, 1, and so on. If there are more sequences than fills, they repeat."""

METHODS = {
    "padded": "#1255F3",
    "packed": "#A14B36",
    "drop-in": "#1C9C9C",
    "run": "#E90C7A",
    "staircase": "#BD71D0",
    "split": "#A09108",
    "frozen": "#1255F3",
}
"""The colour of each method of running an RNN, in all charts that compare methods. No sequence has
one of these colours. *frozen* is exact, and runs on padded data; a chart shows it or torch's padded
run as a bar or a curve, but not both."""

RAMP = ("#eef3f2", "#c3ddd8", "#86bdb3", "#3f8f83", "#14554b")
"""The fills for numbers from small to large."""

SIGNED_FILLS = ("#6b4710", "#b98a3e", "#e6cfa3", "#f4f4f0", "#c3ddd8", "#5fa79b", "#14554b")
"""The fills for numbers from the most negative to the most positive."""

DIFFERENCE_FILLS = ("#f7d9b0", "#e08a3c", "#b3402a", "#5b2a86")
"""The fills of cells that differ by up to 1 % of the largest value, by up to 10 %, by more, and by
NaN or infinity."""

REAL = "#6C8EAD"
"""The fill of real cells and useful work that do not belong to a single sequence or method."""

FIXED_FILLS = frozenset(
    (*SEQUENCE_FILLS, *METHODS.values(), *RAMP, *SIGNED_FILLS, *DIFFERENCE_FILLS, REAL)
)
"""The fills that are the same in every theme."""

# The fills that need white letters. A test compares their contrast.
_WHITE_TEXT_FILLS = {
    "#0072B2",
    "#882255",
    "#1255F3",
    "#A14B36",
    "#14554b",
    "#6b4710",
    "#b3402a",
    "#5b2a86",
}

FONT = "Helvetica,Arial,sans-serif"
"""The typeface of words, usually at 12 px."""

MONO = "ui-monospace,Menlo,Consolas,monospace"
"""The typeface of cells, of identifiers, and of words in columns."""


@dataclass(frozen=True)
class Theme:
    """The colours that differ between the light and the dark theme."""

    ground: str
    text: str
    muted: str
    line: str
    padding: str
    hatch: str
    accent: str
    wrong: str
    right: str


LIGHT = Theme(
    ground="#ffffff",
    text="#1f1f1f",
    muted="#5c5c5c",
    line="#4a4a4a",
    padding="#f2f2f2",
    hatch="#8f8f8f",
    accent="#b3003c",
    wrong="#b00020",
    right="#00704f",
)
DARK = Theme(
    ground="#111111",
    text="#f2f2f2",
    muted="#b8b8b8",
    line="#cfcfcf",
    padding="#343434",
    hatch="#868686",
    accent="#ff7fa5",
    wrong="#ff8a80",
    right="#5fd3ae",
)
# The colours follow the page's theme (see `DARK_PAGE_STYLE`). Without a style sheet, they are those
# of the light theme.
LIVE = Theme(*(f"var(--packviz-{name}, {colour})" for name, colour in vars(LIGHT).items()))
THEMES = {"light": LIGHT, "dark": DARK, "live": LIVE}

_DARK_VARIABLES = ";".join(f"--packviz-{name}:{colour}" for name, colour in vars(DARK).items())
DARK_PAGE_STYLE = (
    f"body[data-jp-theme-light=false] .packviz, body.vscode-dark .packviz {{{_DARK_VARIABLES}}}"
)
"""A CSS rule that gives elements of the class `packviz` the dark colours if JupyterLab, Notebook or
VS Code is dark."""


def sequence_colour(index: int) -> str:
    """Returns the fill of the sequence with the given index."""
    return SEQUENCE_FILLS[index % len(SEQUENCE_FILLS)]


def ink_on(fill: str) -> str:
    """Returns black or white, whichever has more contrast with one of `FIXED_FILLS`."""
    return "#ffffff" if fill in _WHITE_TEXT_FILLS else "#000000"
