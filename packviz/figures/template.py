"""How every chart looks, light and dark."""

from __future__ import annotations

import plotly.graph_objects as go

from packviz.draw.palette import DARK, LIGHT, SEQUENCES, Theme

REAL, PADDING = SEQUENCES[4], LIGHT.hatch
"""The fills of real cells and of padding in a chart. Padding is hatched, as in a picture."""

CONFIG = {"displayModeBar": False, "responsive": False}
"""No mode bar: it would cover the chart, and one of its buttons uploads the data to a cloud."""


def template(theme: Theme) -> go.layout.Template:
    """A plotly template in the colours of a theme."""
    axis = {"gridcolor": theme.hatch, "linecolor": theme.line, "zerolinecolor": theme.line, "gridwidth": 0.5}
    layout = {
        "paper_bgcolor": theme.ground,
        "plot_bgcolor": theme.ground,
        "font": {"color": theme.text, "size": 13, "family": "system-ui, sans-serif"},
        "title": {"font": {"size": 15}, "x": 0.01, "xanchor": "left"},
        "colorway": list(SEQUENCES),
        "xaxis": axis | {"showgrid": False},
        "yaxis": axis | {"ticklabelstandoff": 6},
        "width": 760,
        "height": 340,
        "margin": {"l": 70, "r": 20, "t": 50, "b": 60},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 1, "xanchor": "right"},
    }
    marker = {"line": {"color": theme.line, "width": 0.5}}
    return go.layout.Template(layout=layout, data={"bar": [{"marker": marker}]})


TEMPLATES = {False: template(LIGHT), True: template(DARK)}
"""The light template under False, the dark one under True."""
