"""Makes frames for panels on a page without Python: one for each setting of the controls."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import product
from pathlib import Path
from typing import Any

import ipywidgets as widgets
from figures import figure

from packviz.panels.panel import Panel

_INPUT = (
    widgets.IntSlider,
    widgets.SelectionSlider,
    widgets.Checkbox,
    widgets.Dropdown,
    widgets.Text,
)
_STYLE = re.compile(r"<style>.*?</style>")
_PIECE = re.compile(r"<[^<]*|\n[^<\n]*|[^<\n]+")
WALKS = tomllib.loads(Path(__file__).with_name("walks.toml").read_text(encoding="utf-8"))


class Frames:
    """The frames of one panel, and the controls that choose among them.

    Attributes:
        offered: the controls that the panel shows at the start.
        controls: the controls that are moved, each with its values.
        start: the values of these controls at the start.
        places: a tree of dicts with a level for each control. The keys of a level are the indices
            of the control's values, or `*` if the control has no effect. The leaves are the numbers
            of frames.
        frames: the picture, summary, error and text of each frame. The first frame is the start.
    """

    def __init__(self, panel: Panel) -> None:
        """Moves the controls of a panel along its walks in walks.toml."""
        self.panel = panel
        self.offered = [*inputs(self.panel)]
        self.controls: dict[Any, list[Any]] = {}
        self.start: dict[Any, Any] = {}
        self.places: dict[str, Any] = {}
        self.frames: list[list[str]] = []
        self._frame()
        settings = [setting for walk in WALKS[type(panel).__name__] for setting in self._walk(walk)]
        for setting, frame in settings:
            level = self.places
            *outer, last = [
                str(values.index(setting[control])) if control in setting else "*"
                for control, values in self.controls.items()
            ]
            for key in outer:
                level = level.setdefault(key, {})
            level[last] = frame

    def _walk(self, walk: Mapping[str, Sequence[Any]]) -> Iterator[tuple[dict[Any, Any], int]]:
        """Yields the settings of a walk that the panel accepts, each with its frame's number."""
        choices: dict[Any, list[Any]] = {}
        for name, given in walk.items():
            shown = {control.description: control for control in inputs(self.panel)}
            control = shown[name]
            values = _values(control, given)
            choices[control] = values
            self.start.setdefault(control, control.value)
            control.value = values[0]
            known = [*dict.fromkeys([*self.controls.get(control, ()), *values])]
            if type(known[0]) is int:
                known.sort()
            self.controls[control] = known
        for combination in product(*choices.values()):
            setting = dict(zip(choices, combination, strict=True))
            for control, value in setting.items():
                if value in getattr(control, "options", [value]):
                    control.value = value
            # Otherwise, the panel has changed a value.
            if all(control.value == value for control, value in setting.items()):
                yield setting, self._frame()

    def _frame(self) -> int:
        """Returns the number of the frame that the panel shows now. A new frame is added."""
        panel = self.panel
        picture = _STYLE.sub("", panel.picture.value)  # the site includes the style only once
        if "<svg" in picture:
            picture = figure(picture)
        words = escape(panel.to_text())
        frame = [picture, panel.summary.value, panel.error.value, words]
        if frame not in self.frames:
            self.frames.append(frame)
        return self.frames.index(frame)

    def rest(self) -> str:
        """Returns a line about the states that the panel has only in JupyterLab."""
        more = [control.description for control in self.offered if control not in self.controls]
        for control, values in self.controls.items():
            if isinstance(control, widgets.IntSlider) and len(values) <= control.max - control.min:
                more.append("every value of the sliders")
            elif isinstance(control, widgets.Text):
                more.append(f"{control.description} of your own")
        if not more:
            return ""
        return f"In JupyterLab, the panel also has {', '.join(dict.fromkeys(more))}."

    def script(self, key: str) -> str:
        """Returns the frames as a script, which a page can load even from a file."""
        pieces: dict[str, int] = {}  # neighbouring pictures have most pieces in common
        frames = []
        for frame in self.frames:
            parts = [_PIECE.findall(part) for part in frame]
            frames.append([[pieces.setdefault(p, len(pieces)) for p in part] for part in parts])
        data = {"places": self.places, "frames": frames, "pieces": [*pieces]}
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        return f"packvizFrames[{json.dumps(key)}]={text};"


def inputs(panel: Any) -> Iterator[Any]:
    """Yields the controls of a panel that the reader can see and move now."""
    for child in getattr(panel, "children", ()):
        yield from inputs(child)
        if isinstance(child, _INPUT) and child.layout.display != "none":
            yield child


def _values(control: Any, values: Sequence[Any]) -> list[Any]:
    """Returns the given values of a control, by default all, and the current one of an input."""
    if isinstance(control, widgets.IntSlider):
        return sorted({*(values or range(control.min, control.max + 1)), control.value})
    return list(values or getattr(control, "options", (False, True)))
