"""Tests of all panels, whose controls are moved as a browser moves them: by their state."""

import re
from functools import partial
from operator import attrgetter
from unittest.mock import Mock

import ipywidgets
import pytest
from controls import move, visible, words

from packviz import panels
from packviz.core import lengths as sources
from packviz.core.batches import BUCKETED
from packviz.core.layout import Layout
from packviz.draw import palette, theme
from packviz.draw.documents import MASKS
from packviz.lessons import quiz
from packviz.panels import (
    AlignPanel,
    BatchingPanel,
    CostPanel,
    RowPanel,
    StaircasePanel,
    panel,
)
from packviz.panels.panel import Companion, Panel, View, row, slider
from packviz.panels.picker import LENGTH_KINDS, OWN_LIST

WIDGET = "application/vnd.jupyter.widget-view+json"


def parts(widget):
    yield widget
    for child in getattr(widget, "children", ()):
        yield from parts(child)


def shows(panel, lengths, picture, summary):
    """Asserts that picture, counts and layout are those of these lengths, without an error."""
    assert panel.shown.lengths.tolist() == list(lengths)
    assert panel.picture.value == picture
    assert words(panel.summary) == summary
    assert panel.error.value == ""


@pytest.mark.parametrize(
    "make",
    [
        partial(CostPanel, range(512, 0, -1), "LSTM", 128, 128),
        partial(BatchingPanel, sequences=2000, longest=512, batch_size=1),
        partial(StaircasePanel, range(512, 0, -1)),
        *(
            partial(RowPanel, kind="uniform", sequences=512, longest=512, row_size=512, mask=mask)
            for mask in MASKS
        ),
    ],
)
def test_a_large_picture_stays_light(make):
    assert len(make().picture.value) < 80_000


WITH_LENGTHS = [
    *(AlignPanel, BatchingPanel, CostPanel, StaircasePanel),
    RowPanel,
]


@pytest.mark.parametrize("make", WITH_LENGTHS)
def test_bad_lengths_are_explained_and_the_last_good_picture_stays(make):
    panel = make([4, 2])
    typed = getattr(panel, "picker", panel).typed
    before = panel.picture.value, panel.summary.value
    move(typed, "5, <script>alert(1)</script>")
    assert words(panel.error).startswith(
        "✗ entry 1 is '<script>alert(1)</script>'; lengths are whole numbers"
    )
    assert words(panel.error).endswith(". The picture shows the last good input.")
    assert "<script>" not in panel.error.value
    assert (panel.picture.value, panel.summary.value) == before
    move(typed, "4, 2, 2")
    assert panel.error.value == ""
    assert panel.picture.value == make([4, 2, 2]).picture.value


# Any panel.

PANELS = [
    getattr(panels, name) for name in panels.__all__ if name not in ("BatchPanel", "StatePanel")
]


class Broken(Panel):
    def __init__(self):
        self.fail_in = ""
        self.knob = slider("knob", 0, 0, 9)
        super().__init__(self.knob)

    def view(self):
        if self.fail_in == "view":
            raise KeyError("lost")
        return View(draw=self.draw, summary="fine", describe=lambda: "fine")

    def draw(self, theme):
        if self.fail_in == "draw":
            raise ZeroDivisionError("nothing to divide by")
        return f"<svg>{self.knob.value}</svg>"


@pytest.mark.parametrize(
    ("where", "error", "message"),
    [
        ("view", KeyError, "KeyError: 'lost'"),
        ("draw", ZeroDivisionError, "ZeroDivisionError: nothing to divide by"),
    ],
)
def test_a_mistake_of_ours_is_shown_and_raised(where, error, message):
    panel = Broken()
    panel.fail_in = where
    with pytest.raises(error):
        panel.knob.value = 1
    shown = (
        f"✗ packviz failed, which is a bug in packviz: {message}. The "
        "picture shows the last good input."
    )
    assert words(panel.error) == shown
    assert panel.picture.value == "<svg>0</svg>"
    panel.fail_in = ""
    move(panel.knob, 2)
    assert (panel.error.value, panel.picture.value) == ("", "<svg>2</svg>")


class Curious(Panel):
    """A panel with a control of each kind, which records what it draws, and moves one slider along
    with another."""

    def __init__(self):
        self.left, self.right = (slider(name, 1, 0, 9) for name in ("left", "right"))
        self.tick, self.seen = ipywidgets.Checkbox(description="tick"), []
        super().__init__(row(self.left, row(self.right)), self.tick, ipywidgets.HTML("a hint"))

    def view(self):
        self.right.max = self.left.value + 1
        self.seen.append((self.left.value, self.right.value, self.tick.value))
        return View(draw=self.draw, summary=str(self.seen[-1]), describe=lambda: str(self.seen))

    def draw(self, theme):
        return f"<svg>{self.seen[-1]}</svg>"


def test_a_panel_follows_every_control_however_deep_it_lies():
    panel = Curious()
    move(panel.right, 2)
    move(panel.tick, True)
    assert panel.seen == [(1, 1, False), (1, 2, False), (1, 2, True)]
    assert words(panel._words) == ""
    move(panel.as_text, True)
    assert words(panel._words) == panel.to_text()


def test_a_control_that_view_itself_moves_draws_nothing_twice():
    panel = Curious()
    move(panel.left, 9)
    move(panel.right, 8)
    move(panel.left, 3)  # moves the right slider, too
    assert panel.seen == [(1, 1, False), (9, 1, False), (9, 8, False), (3, 4, False)]
    assert words(panel.summary) == "(3, 4, False)"


def test_a_control_that_view_moves_is_said_until_the_reader_moves_it():
    panel = Curious()
    move(panel.left, 9)
    move(panel.right, 8)
    assert panel.note.value == ""
    move(panel.left, 3)
    assert words(panel.note) == "right went from 8 to 4 to fit."
    move(panel.left, 2)  # the reader has set 8 all the while
    move(panel.left, 9)
    assert words(panel.note) == "right went from 8 to 3 to fit."
    panel.right.layout.display = "none"  # a hidden control needs no note
    move(panel.tick, True)
    assert panel.note.value == ""
    panel.right.layout.display = None
    move(panel.right, 5)
    assert panel.note.value == ""


@pytest.mark.parametrize(
    ("make", "moves", "message"),
    [
        (CostPanel, [("proj_size", 6), ("hidden_size", 4)], "proj_size went from 6 to 3 to fit."),
        (
            partial(BatchingPanel, sequences=256, order=BUCKETED),
            [("batch_size", 128)],
            "window went from 8 to 2 to fit.",
        ),
        (
            partial(BatchingPanel, sequences=256),
            [("batch_size", 128)],
            "",
        ),  # the window has no effect
        (
            partial(StaircasePanel, [5, 4, 3, 2]),
            [("picker.typed", "5, 4")],
            "rectangles went from 4 to 2 to fit.",
        ),
        (partial(StaircasePanel, [5, 4], rectangles=9), [], "rectangles went from 9 to 2 to fit."),
        (
            StaircasePanel,
            [("picker.kind", "sentences")],
            "longest went from 128 to 51 to fit.",
        ),
        (partial(StaircasePanel, kind="sentences"), [], ""),
    ],
)
def test_no_panel_moves_a_control_without_a_word(make, moves, message):
    panel = make()
    for name, value in moves:
        move(attrgetter(name)(panel), value)
    assert words(panel.note) == message
    assert panel.error.value == ""


@pytest.mark.parametrize("make", [BatchingPanel, RowPanel, StaircasePanel])
def test_lengths_are_chosen_in_the_same_way_everywhere(make):
    panel = make([3, 1, 2])
    picker = panel.picker
    assert picker.kind.options == LENGTH_KINDS
    for kind in LENGTH_KINDS:
        move(picker.kind, kind)
        assert panel.error.value == ""
        assert visible(picker.typed) == (kind == OWN_LIST)
        assert visible(picker.sequences) == (kind in sources.DISTRIBUTIONS)
    move(picker.kind, OWN_LIST)
    assert picker.lengths() == Layout([3, 1, 2])
    before = panel.picture.value
    move(picker.typed, "3, 12, 2")
    assert picker.lengths() == Layout([3, 12, 2])
    assert panel.picture.value != before
    for wrong in (-1, 513, 2.5):
        with pytest.raises(
            ValueError, match=f"longest is {wrong}; give a whole number from 1 to 512"
        ):
            make(longest=wrong)


@pytest.mark.parametrize("make", PANELS)
def test_any_panel(make):
    """The companion finds the parts that it names for a screen reader, and the stored output has an
    image."""
    panel = make()
    (companion,) = [part for part in parts(panel) if isinstance(part, Companion)]
    named = {"panel": panel, "summary": panel.summary, "error": panel.error, "note": panel.note}
    for found_by, part in named.items():
        assert f"packviz-{found_by}" in companion._esm
        assert f"packviz-{found_by}" in part._dom_classes
    # The companion needs a name for every control.
    only_shown = ipywidgets.HTML, ipywidgets.Label, ipywidgets.IntProgress
    moved = [
        part for part in parts(panel) if hasattr(part, "value") and not isinstance(part, only_shown)
    ]
    assert len(moved) >= 2
    assert all(part.description for part in moved)
    bundle = panel._repr_mimebundle_()
    assert bundle["text/plain"] == panel.to_text()
    picture = bundle.get("image/svg+xml") or bundle["text/html"]
    assert "\n" not in repr(panel)
    assert len(repr(panel)) < 500
    assert picture.startswith("<svg" if make is not panels.MuseumPanel else "<")
    assert "var(" not in picture
    assert {**make()._repr_mimebundle_(), WIDGET: None} == {**bundle, WIDGET: None}


@pytest.mark.parametrize(
    "make", [CostPanel, panels.BatchPanel, partial(quiz.ask, "padding gained")]
)
def test_a_program_that_takes_no_input_gets_only_the_picture(make, monkeypatch):
    shell = Mock()
    monkeypatch.setattr(panel, "get_ipython", lambda: shell)
    for takes_input in (True, False):
        shell.kernel.get_parent.return_value = {"content": {"allow_stdin": takes_input}}
        assert (WIDGET in str(make()._repr_mimebundle_())) == takes_input
    monkeypatch.setenv("SERVER_SOFTWARE", "voila/0.5")
    assert WIDGET in str(make()._repr_mimebundle_())


def test_the_lengths_of_a_panel_cannot_be_set():
    for make in (AlignPanel, BatchingPanel, CostPanel, RowPanel):
        panel = make([4, 2])
        with pytest.raises(AttributeError, match=f"{make.__name__}.lengths cannot be set"):
            panel.lengths = [3, 2]


# The arguments of each panel, apart from most lengths, with values of a wrong type or out of range.
WRONG = [
    (AlignPanel, "lengths", [17]),
    *((AlignPanel, name, 3) for name in ("source_side", "padding_side", "zeros")),
    *((CostPanel, name, "x") for name in ("mode", "input_size", "hidden_size")),
    *(
        (BatchingPanel, name, "x")
        for name in ("kind", "sequences", "batch_size", "order", "processes")
    ),
    *((RowPanel, name, 0.5) for name in ("sequences", "row_size", "strategy", "mask")),
    *((StaircasePanel, name, None) for name in ("sequences", "longest", "call", "rectangles")),
]


@pytest.mark.parametrize(("make", "name", "value"), WRONG)
def test_wrong_arguments_are_refused_by_name(make, name, value):
    with pytest.raises((TypeError, ValueError), match=rf"^{name} is {re.escape(repr(value))}"):
        make(**{name: value})


@pytest.mark.parametrize("make", WITH_LENGTHS)
@pytest.mark.parametrize("lengths", [5, None, "5 3", [2.5], [True], [3, 0], [[1, 2]], {}, 2**62])
def test_wrong_lengths_are_refused_by_name(make, lengths):
    if lengths is not None:
        with pytest.raises((TypeError, ValueError), match=r"^lengths"):
            make(lengths)


def test_the_companion_passes_on_whether_the_page_is_dark(monkeypatch):
    told = []
    monkeypatch.setattr(theme, "_dark", False)
    monkeypatch.setattr(theme, "_callbacks", [told.append])
    companion = Companion()
    assert (companion.dark, theme.is_dark()) == (None, False)
    assert palette.DARK_PAGE_STYLE in companion._css
    companion.set_state({"dark": False})
    assert told == []  # nothing changed
    companion.set_state({"dark": True})
    assert (told, theme.is_dark()) == ([True], True)
    Companion().set_state({"dark": True})  # every panel of a page reports it
    assert told == [True]
    companion.set_state({"dark": False})
    assert (told, theme.is_dark()) == ([True, False], False)
