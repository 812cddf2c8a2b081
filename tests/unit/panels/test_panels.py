"""Tests of all panels, whose controls are moved as a browser moves them: by their state."""

import re
from functools import partial
from operator import attrgetter

import ipywidgets
import pytest
import torch
from controls import move, visible, words
from torch.nn.utils.rnn import pack_padded_sequence

from packviz import panels
from packviz.core import lengths as sources
from packviz.core.batches import BUCKETED
from packviz.core.layout import Layout
from packviz.draw import batch_picture, palette, text, theme
from packviz.draw.documents import MASKS
from packviz.panels import (
    AlignPanel,
    BatchingPanel,
    CostPanel,
    PackedPanel,
    PaddingPanel,
    RowPanel,
    StaircasePanel,
    StatesPanel,
)
from packviz.panels.panel import Companion, Panel, View, row, slider
from packviz.panels.picker import KINDS, ONE_BY_ONE, TYPED

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


# What padding costs.


def shows_padding_of(panel, lengths):
    layout = Layout(lengths)
    shows(
        panel,
        layout.lengths,
        batch_picture.draw(batch_picture.Shown(layout), "live").svg(),
        text.summary(layout),
    )
    assert panel.to_text().endswith(text.describe(layout))


def test_sliders_one_by_one():
    panel = PaddingPanel()
    lengths = [4, 6, 8, 5, 4, 3, 7, 8]
    lengths[7] = panel.picker.sliders[7].max
    move(panel.picker.sliders[7], lengths[7])
    shows_padding_of(panel, lengths)
    for value in (3, panel.picker.few.min, panel.picker.few.max):
        move(panel.picker.few, value)
        shows_padding_of(panel, lengths[:value])
        assert [visible(s) for s in panel.picker.sliders] == [i < value for i in range(8)]


@pytest.mark.parametrize("kind", sources.DISTRIBUTIONS)
def test_distributions(kind):
    panel = PaddingPanel()
    draw = sources.DISTRIBUTIONS[kind]
    move(panel.picker.kind, kind)
    shows_padding_of(panel, draw(64, 128, 0))
    for control, value, lengths in (
        (panel.picker.sequences, 17, draw(17, 128, 0)),
        (panel.picker.longest, 512, draw(17, 512, 0)),
        (panel.picker.seed, 99, draw(17, 512, 99)),
    ):
        move(control, value)
        shows_padding_of(panel, lengths)
    longest = (
        max(draw(512, 512, 0)) if kind == "sentences" else 512
    )  # greater values would change nothing
    assert panel.picker.longest.max == longest
    assert visible(panel.picker.seed) == (kind in ("uniform", "log-normal", "nearly equal"))
    shows_padding_of(PaddingPanel(kind=kind, batch_size=9, longest=40, seed=3), draw(9, 40, 3))


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
    *(AlignPanel, BatchingPanel, CostPanel, PackedPanel, StaircasePanel, StatesPanel),
    *(partial(panel, kind=TYPED) for panel in (PaddingPanel, RowPanel)),
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


# Inside a packed sequence.


def shows_step(panel, lengths, t, mistaken=False):
    x = torch.zeros(max(lengths), len(lengths))
    layout = Layout.from_packed(
        pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
    )
    picture = batch_picture.draw(
        batch_picture.Shown(layout, step=t, mistaken=mistaken), "live"
    ).svg()
    shows(panel, lengths, picture, text.at_step(layout, t))
    assert panel.shown == layout
    said = panel.to_text()
    assert (
        f"{text.at_step(layout, t)}\n\n{text.describe(layout)}" in said
    )  # after the note, if there is one
    assert said.endswith(text.mistaken_order(layout, t)) == mistaken


def test_the_cursor_walks_every_step():
    panel = PackedPanel()
    move(panel.mistaken, True)
    assert (panel.t.min, panel.t.max) == (panel.play.min, panel.play.max) == (0, 4)
    for t in [*range(5), 0]:
        move(panel.t, t)
        shows_step(panel, [3, 5, 2, 4], t, mistaken=True)


def test_new_lengths_take_the_cursor_along():
    panel = PackedPanel([3, 5, 2, 4], t=4)
    shows_step(panel, [3, 5, 2, 4], 4)
    move(panel.typed, "2, 1")
    assert (panel.t.max, panel.play.max, panel.t.value, panel.play.value) == (1, 1, 1, 1)
    shows_step(panel, [2, 1], 1)
    move(panel.typed, "1, 20, 3")
    move(panel.t, 19)
    shows_step(panel, [1, 20, 3], 19)


def torchs_words(lengths):
    with pytest.raises(RuntimeError) as error:
        pack_padded_sequence(torch.zeros(max(lengths), len(lengths)), lengths)
    return str(error.value).splitlines()[0]


def test_enforce_sorted_is_torchs_own_complaint():
    panel = PackedPanel([3, 5, 2, 4])
    picture = panel.picture.value
    move(panel.enforce_sorted, True)
    assert words(panel.error).startswith(
        f"✗ torch: {torchs_words([3, 5, 2, 4]).rstrip('.')}. The picture"
    )
    assert panel.picture.value == picture
    move(panel.typed, "5, 4, 3, 2")
    shows_step(panel, [5, 4, 3, 2], 0)
    move(panel.typed, "4, 5")
    move(panel.enforce_sorted, False)
    shows_step(panel, [4, 5], 0)


def test_the_states_after_a_step_are_those_of_torch():
    lengths = [3, 5, 2, 4]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        rnn, x = torch.nn.RNN(3, 4).double(), torch.randn(5, 4, 3, dtype=torch.float64)
    x *= torch.tensor(Layout(lengths).mask.T)[..., None]
    panel = PackedPanel(lengths, states=True)
    for t in range(5):
        move(panel.t, t)
        so_far = torch.tensor(lengths).clamp(max=t + 1)
        packed = pack_padded_sequence(x[: t + 1], so_far, enforce_sorted=False)
        pictures = panel.to_text().split(f"h after step {t}")[1:]
        for line, states in zip(pictures, (rnn(x[: t + 1]), rnn(packed)), strict=True):
            shown = [row.replace("·", "").split() for row in line.splitlines()[2:6]]
            assert shown == [
                ["abcd"[b], *(f"{v:.2f}" for v in h)] for b, h in enumerate(states[1][0].tolist())
            ]
    move(panel.typed, " ".join(["3"] * 17))
    assert not visible(panel.states)
    assert "h after step" not in panel.to_text()


# Any panel.

PANELS = [getattr(panels, name) for name in panels.__all__ if name != "BatchPanel"]


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
        self.left, self.right, self.unheard = (
            slider(name, 1, 0, 9) for name in ("left", "right", "quiet")
        )
        self.tick, self.seen, in_box = (
            ipywidgets.Checkbox(description="tick"),
            [],
            row(self.unheard),
        )
        super().__init__(
            row(self.left, row(self.right)),
            self.tick,
            ipywidgets.HTML("a hint"),
            in_box,
            quiet=(in_box,),
        )

    def view(self):
        self.right.max = self.left.value + 1
        self.seen.append((self.left.value, self.right.value, self.tick.value))
        return View(draw=self.draw, summary=str(self.seen[-1]), describe=lambda: str(self.seen))

    def draw(self, theme):
        return f"<svg>{self.seen[-1]}</svg>"


def test_a_panel_follows_every_control_however_deep_it_lies_but_for_the_quiet_ones():
    panel = Curious()
    move(panel.right, 2)
    move(panel.tick, True)
    move(panel.unheard, 5)
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
        (partial(PackedPanel, t=4), [("typed", "2, 1")], "time step t went from 4 to 1 to fit."),
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
            partial(PaddingPanel, kind="equal"),
            [("picker.kind", "sentences")],
            "longest went from 128 to 51 to fit.",
        ),
        (partial(PaddingPanel, kind="sentences"), [], ""),
    ],
)
def test_no_panel_moves_a_control_without_a_word(make, moves, message):
    panel = make()
    for name, value in moves:
        move(attrgetter(name)(panel), value)
    assert words(panel.note) == message
    assert panel.error.value == ""


@pytest.mark.parametrize("make", [PaddingPanel, BatchingPanel, RowPanel, StaircasePanel])
def test_lengths_are_chosen_in_the_same_way_everywhere(make):
    panel = make([3, 1, 2])
    picker = panel.picker
    assert picker.kind.options == KINDS
    for kind in KINDS:
        move(picker.kind, kind)
        assert panel.error.value == ""
        sliders = [visible(control) for control in picker.sliders]
        assert sliders == [kind == ONE_BY_ONE and i < 3 for i in range(8)]
        assert (visible(picker.few), visible(picker.typed)) == (kind == ONE_BY_ONE, kind == TYPED)
        assert visible(picker.sequences) == (kind in sources.DISTRIBUTIONS)
    move(picker.kind, ONE_BY_ONE)
    assert picker.lengths() == Layout([3, 1, 2])
    before = panel.picture.value
    move(picker.sliders[1], 12)
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


def test_the_lengths_of_a_batch_can_be_set_and_others_are_refused_by_name():
    panel = PaddingPanel()
    panel.lengths = Layout([2, 7])
    shows_padding_of(panel, [2, 7])
    assert panel.lengths == Layout([2, 7])
    with pytest.raises(ValueError, match=r"lengths\[1\] is -1"):
        panel.lengths = [2, -1]
    shows_padding_of(panel, [2, 7])
    for make in (AlignPanel, BatchingPanel, CostPanel, PackedPanel, RowPanel, StatesPanel):
        panel = make([4, 2])
        with pytest.raises(AttributeError, match=f"lengths of a {make.__name__} cannot be set"):
            panel.lengths = [3, 2]


# The arguments of each panel, apart from lengths, with values of a wrong type or out of range.
WRONG = [
    *((PaddingPanel, name, -1) for name in ("sequences", "longest", "seed")),
    *((PackedPanel, "t", value) for value in (9, 1.5, "1", True)),
    (PackedPanel, "states", "yes"),
    *((StatesPanel, name, None) for name in ("padding", "cell", "layers", "seed")),
    (StatesPanel, "bidirectional", 2),
    *((AlignPanel, name, 3) for name in ("source_side", "padding_side", "zeros")),
    *((CostPanel, name, "x") for name in ("mode", "input_size", "hidden_size")),
    *(
        (BatchingPanel, name, "x")
        for name in ("kind", "sequences", "batch_size", "order", "workers")
    ),
    *((RowPanel, name, 0.5) for name in ("sequences", "row_size", "strategy", "mask")),
    *((StaircasePanel, name, None) for name in ("sequences", "longest", "call")),
]


@pytest.mark.parametrize(("make", "name", "value"), WRONG)
def test_wrong_arguments_are_refused_by_name(make, name, value):
    argument = "batch_size" if (make, name) == (PaddingPanel, "sequences") else name
    with pytest.raises((TypeError, ValueError), match=rf"^{name} is {re.escape(repr(value))}"):
        make(**{argument: value})


@pytest.mark.parametrize("make", WITH_LENGTHS)
@pytest.mark.parametrize("lengths", [5, None, "5 3", [2.5], [True], [3, 0], [[1, 2]], {}, 2**62])
def test_wrong_lengths_are_refused_by_name(make, lengths):
    if lengths is not None:
        with pytest.raises((TypeError, ValueError), match=r"^lengths"):
            make(lengths)


def test_the_companion_passes_on_whether_the_page_is_dark(monkeypatch):
    told = []
    monkeypatch.setattr(theme, "_dark", False)
    monkeypatch.setattr(theme, "_followers", [told.append])
    companion = Companion()
    assert (companion.dark, theme.is_dark()) == (None, False)
    assert palette.STYLE in companion._css
    companion.set_state({"dark": False})
    assert told == []  # nothing changed
    companion.set_state({"dark": True})
    assert (told, theme.is_dark()) == ([True], True)
    Companion().set_state({"dark": True})  # every panel of a page reports it
    assert told == [True]
    companion.set_state({"dark": False})
    assert (told, theme.is_dark()) == ([True, False], False)
