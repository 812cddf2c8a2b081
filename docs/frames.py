"""Makes frames for panels on a page without Python. The panel itself draws a frame for each setting of its controls."""

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

from packviz import lessons, panels

_NO_INPUT = (widgets.HTML, widgets.Label, widgets.Play, widgets.ToggleButton, widgets.IntProgress)
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

    def __init__(self, call: str, walks: Sequence[Mapping[str, Sequence[Any]]] = ()) -> None:
        """Makes the panel with `call`, and moves its controls along `walks`, by default the walks in walks.toml."""
        walks = walks or next(walks for start, walks in WALKS.items() if call.startswith(start))
        self.panel = eval(call, {**vars(panels), "sentences": lessons.sentences})
        self.offered = [*inputs(self.panel)]
        self.controls: dict[Any, list[Any]] = {}
        self.start: dict[Any, Any] = {}
        self.places: dict[str, Any] = {}
        self.frames: list[list[str]] = []
        self._frame()
        settings = [setting for walk in walks for setting in self._walk(walk)]
        for setting, frame in settings:
            keys = ["*"] * len(self.controls)
            for i, (control, values) in enumerate(self.controls.items()):
                if control in setting:
                    keys[i] = str(values.index(setting[control]))
            level = self.places
            for key in keys[:-1]:
                level = level.setdefault(key, {})
            level[keys[-1]] = frame

    def _walk(self, walk: Mapping[str, Sequence[Any]]) -> Iterator[tuple[dict[Any, Any], int]]:
        """Yields the settings of a walk that the panel accepts, each with the number of its frame."""
        choices: dict[Any, list[Any]] = {}
        for name, values in walk.items():
            named = [control for control in inputs(self.panel) if control.description == name]
            if not named:
                panel = type(self.panel).__name__
                raise ValueError(f"{panel} shows no control {name!r}: correct docs/walks.toml")
            control = named[0]
            choices[control] = _values(control, values)
            self.start.setdefault(control, control.value)
            control.value = choices[control][0]
        for control, values in choices.items():
            known = [*dict.fromkeys([*self.controls.get(control, ()), *values])]
            self.controls[control] = sorted(known) if type(known[0]) is int else known
        for values in product(*choices.values()):
            setting = dict(zip(choices, values, strict=True))
            for control, value in setting.items():
                if value in getattr(control, "options", [value]):
                    control.value = value
            # Otherwise, the panel has changed a value.
            if all(control.value == value for control, value in setting.items()):
                yield setting, self._frame()

    def _frame(self) -> int:
        """Returns the number of the frame that the panel shows now, and adds the frame if it is new."""
        picture = _STYLE.sub("", self.panel.picture.value)  # the site includes the style only once
        shown = (picture, self.panel.summary.value, self.panel.error.value)
        frame = [*shown, escape(self.panel.to_text())]
        if frame not in self.frames:
            self.frames.append(frame)
        return self.frames.index(frame)

    def rest(self) -> str:
        """Returns a line about the states that the panel has only in JupyterLab."""
        more = [control.description for control in self.offered if control not in self.controls]
        for control, values in self.controls.items():
            if isinstance(control, widgets.Textarea):
                more.append(f"your own {control.description}")
            elif isinstance(control, widgets.IntSlider):
                if len(values) <= control.max - control.min:
                    more.append("every value of the sliders")
        if not more:
            return ""
        shown = f"This page has {len(self.frames)} states of the panel. JupyterLab has more"
        return f"{shown}: {', '.join(dict.fromkeys(more))}."

    def script(self, key: str) -> str:
        """Returns the frames as a script, which a page can load even from a file."""
        pieces: dict[str, int] = {}  # neighbouring pictures have most pieces in common
        frames = [
            [
                [pieces.setdefault(piece, len(pieces)) for piece in _PIECE.findall(part)]
                for part in frame
            ]
            for frame in self.frames
        ]
        data = {"places": self.places, "frames": frames, "pieces": [*pieces]}
        return f"packvizFrames[{json.dumps(key)}]={json.dumps(data, ensure_ascii=False, separators=(',', ':'))};"


def inputs(panel: Any) -> Iterator[Any]:
    """Yields the controls of a panel that the reader can see and move now."""
    for child in getattr(panel, "children", ()):
        yield from inputs(child)
        if (
            isinstance(child, widgets.ValueWidget)
            and not isinstance(child, _NO_INPUT)
            and child.layout.display != "none"
        ):
            yield child


def _values(control: Any, values: Sequence[Any]) -> list[Any]:
    """Returns the given values of a control, by default all of its values, and its current value."""
    if isinstance(control, widgets.IntSlider):
        return sorted({*(values or range(control.min, control.max + 1)), control.value})
    if isinstance(control, widgets.Textarea):
        return [control.value, *values]
    return list(values or getattr(control, "options", (False, True)))
