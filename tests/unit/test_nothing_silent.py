"""What packviz once got wrong without a word, each point with its neighbours, so that the list can be read in one place."""

from __future__ import annotations

import math
import re
import sys
from html import unescape

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from panels import move, words
from torch import nn

import packviz as pv
from packviz import explorers
from packviz.bench import advice, contest, timing
from packviz.bench.contest import METHODS, PACKED, PADDED
from packviz.bench.timing import FEWEST_ROUNDS, NARROW, Timing, measure, median_interval
from packviz.cli import main
from packviz.core import files
from packviz.draw import figures, text
from packviz.draw.drawn import Drawn
from packviz.draw.table import Table
from packviz.explorers.lengths import FILE, TYPED
from packviz.ops.costs import in_force
from packviz.studies import workers

# ---- 1. Aligning says where the padding is, and can check it


# ---- 2. A name that contains "padding" is True at padding


# ---- 3. A square batch without batch_first warns


# ---- 4. run takes batch_first


# ---- 5. patch_torch names every holder of torch's functions


# ---- 6. The oracle is always torch's own function


# ---- 7. plan and run never disagree


# ---- 8. Constants that nobody measured choose nothing


# ---- 9. check_static is not ok where a trace freezes a length


# ---- 10. The legacy ONNX exporter ignores padding_value


# ---- 11. explain_errors never fails, follows causes, and can be installed


# ---- 12. diagnose says when it cannot judge


# ---- 13. What is almost certain is an error


# ---- 14. advise measures until it is clear, or says that it is not

AUTO = f"pv.run, {METHODS[0]}"
QUIET = {"load_average": [0.9, 0.9, 0.9], "cores": 2}


class Script:
    """A clock whose calls take what a test has written down, in the order of the rounds."""

    def __init__(self, factor, seed=0):
        """`factor(random, name)` gives the seconds of a call."""
        self.now, self.random, self.factor, self.seen = 100.0, np.random.default_rng(seed), factor, 0

    def start(self):
        self.began = self.now

    def stop(self):
        return self.now - self.began

    def call(self, name):
        self.seen += 1
        self.now += self.factor(self.random, name)

    def calls(self, *names):
        return {name: lambda name=name: self.call(name) for name in names}


def advised(monkeypatch, factor, *, place=QUIET, budget=20.0):
    """What `advise` says if calls take what `factor` gives."""
    clock = Script(factor)

    def method(name):
        def run(rnn, x, lengths):
            clock.call(name)
            return rnn(x)

        return run

    monkeypatch.setattr(advice, "contestants", lambda: {name: method(name) for name in MIDDLE})
    monkeypatch.setattr(advice.time, "monotonic", lambda: clock.now)
    for module in (contest, timing):
        monkeypatch.setattr(module, "clock_for", lambda device: clock)
    monkeypatch.setattr(timing, "provenance", lambda device, parameters: dict(place))
    monkeypatch.setattr(timing, "load_average", lambda: place["load_average"])
    found = advice.advise(nn.GRU(1, 2), [5, 3, 8, 2] * 16, batch_size=16, budget=budget, progress=lambda *n: None)
    return found, clock.now - 100.0


MIDDLE = {PADDED: 1e-3, PACKED: 3e-3, AUTO: 2e-3}


def noisy(sigma, middle=MIDDLE):
    """Times around these middles: a factor of e^sigma up or down is usual."""
    return lambda random, name: middle[name] * math.exp(sigma * random.standard_normal())


def test_advise_stops_as_soon_as_it_knows(monkeypatch):
    found, spent = advised(monkeypatch, noisy(0.01))
    assert found.timing.is_narrow(PACKED)
    assert FEWEST_ROUNDS <= found.timing.rounds <= 8
    assert spent < 1.0  # of 20 seconds
    assert (found.best, found.is_clear) == (AUTO, True)
    assert "busy" not in found.to_text()
    assert "annot tell" not in found.to_text()


def test_advise_measures_on_while_it_does_not_know(monkeypatch):
    found, spent = advised(monkeypatch, noisy(0.15))
    assert found.timing.rounds > 15
    assert spent < 20.0
    assert found.timing.is_narrow(PACKED)
    assert found.best == AUTO


def test_advise_prints_no_more_than_it_knows(monkeypatch):
    found, _ = advised(monkeypatch, noisy(0.05))
    low, high = found.gain.interval
    said = re.search(r"saves (\S+) % of the time of torch, packed \(95 % interval (\S+) to (\S+) %\)", found.verdict())
    assert said, found.verdict()
    saved, *ends = said.groups()
    assert float(ends[0]) <= 100 * (1 - high) < 100 * (1 - low) <= float(ends[1])
    step = 10.0 ** -len(saved.partition(".")[2])
    assert step <= 100 * (high - low) < 10 * step or saved.count("0")
    assert f"{100 * (1 - found.gain.value):.3g} %" not in found.verdict()


def test_advise_says_that_it_cannot_tell(monkeypatch):
    """Three rounds with a spread of 40 told of 93.3 % saved."""
    for sigma, budget in ((1.5, 1.0), (1.5, 0.2), (0.01, 0.05)):  # some rounds with a huge spread; one or two; few
        found, _ = advised(monkeypatch, noisy(sigma, dict.fromkeys(MIDDLE, 3e-3)), budget=budget)
        assert found.best == PACKED
        assert not found.is_clear
        assert "annot tell" in found.verdict()
        assert "saves" not in found.verdict()
        assert "Give a larger budget, or repeat it on a quiet machine." in found.verdict()


def test_advise_says_that_the_machine_is_busy(monkeypatch):
    loaded = {"load_average": [2.7, 1.0, 1.0], "cores": 2}
    found, _ = advised(monkeypatch, noisy(0.01), place=loaded, budget=1e-4)  # suffices for torch's packing alone
    assert found.verdict().startswith("Cannot tell which is fastest; take the simplest, torch, packed.")
    assert "Nothing else was measured.\nThe machine is busy: a load of 2.7 on 2 cores.\nGive" in found.verdict()
    for sigma in (0.01, 1.5):
        found, _ = advised(monkeypatch, noisy(sigma), place=loaded, budget=1.0)
        assert "The machine is busy: a load of 2.7 on 2 cores." in found.verdict()
    found, _ = advised(monkeypatch, noisy(1.5), budget=1.0)
    assert re.search(r"The machine is busy: the same call takes up to \S+ times as long", found.verdict())


def test_two_that_take_the_same_time_are_the_same(monkeypatch):
    found, _ = advised(monkeypatch, noisy(0.02, dict.fromkeys(MIDDLE, 3e-3)))
    assert found.best == PACKED
    assert found.is_clear
    assert "Nothing with the same results is clearly faster." in found.verdict()


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 60),
    st.floats(0.01, 100),
    st.sampled_from(["lognormal", "cauchy", "exponential"]),
)
def test_an_interval_covers_the_median_at_the_stated_rate(seed, n, median, kind):
    """Whatever the distribution: of 400 intervals at least 95 % cover it, but for chance (four standard errors)."""
    random = np.random.default_rng(seed)
    draws = {
        "lognormal": lambda: np.exp(random.standard_normal(n)),
        "cauchy": lambda: 1 + random.standard_cauchy(n),
        "exponential": lambda: random.standard_exponential(n) / math.log(2),
    }
    intervals = [median_interval((median * draws[kind]()).tolist()) for _ in range(400)]
    covered = sum(low <= median <= high for low, high in intervals) / len(intervals)
    assert covered >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / 400)
    assert all(math.isinf(high) for _, high in intervals) == (n < FEWEST_ROUNDS)


@given(st.integers(1, 200))
def test_the_interval_is_the_narrowest_of_its_rate(n):
    """The formula of `bench/timing.py`, in exact integers."""
    low, high = median_interval(range(n))
    coverage = [1 - 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n for k in range(n)]
    wide_enough = [k for k in range((n + 1) // 2) if coverage[k] >= 0.95]
    assert (low, high) == ((wide_enough[-1], n - 1 - wide_enough[-1]) if wide_enough else (-math.inf, math.inf))


def test_to_stop_when_it_is_narrow_hardly_lowers_the_rate(monkeypatch):
    """Known ratio, noise of 10 %: as many intervals cover it as stated, though measuring stops by their width."""
    monkeypatch.setattr(timing, "provenance", lambda device, parameters: {})
    covered = rounds = 0
    for seed in range(300):
        clock = Script(lambda random, name: {"a": 1.0, "b": 1.2}[name] * math.exp(0.1 * random.standard_normal()), seed)
        found = measure(clock.calls("a", "b"), rounds=400, warmup=0, clock=clock, until_narrow=True)
        low, high = found.ratio("b", "a").interval
        assert high <= NARROW * low
        covered += low <= 1.2 <= high
        rounds += found.rounds
    assert 10 < rounds / 300 < 100
    assert covered / 300 > 0.92


@given(st.floats(1e-3, 1e4), st.floats(1e-3, 1), st.floats(1e-3, 1))
def test_a_number_is_rounded_to_what_is_known(value, below, above):
    interval = value * (1 - below), value * (1 + above)
    said, ends = text.known(value, interval).replace(",", ""), text.between(interval).replace(",", "").split(" to ")
    assert float(ends[0]) <= interval[0] * (1 + 1e-6) + 1e-12
    assert float(ends[1]) >= interval[1] * (1 - 1e-6)
    assert abs(float(said) - value) <= max(interval[1] - interval[0], 0.005 * value)
    assert len(said.replace(".", "").strip("0")) <= 3


def test_the_neighbours_say_it_too():
    """A timing's own text, and the words of a ratio; a busy machine is named wherever a timing is shown."""
    noise = [0.03, 1.3, 0.2, 0.9, 0.05, 1.1, 0.4, 0.6]
    found = Timing({"a": [1.0] * 8, "b": noise}, provenance={"load_average": [2.7, 1, 1], "cores": 2})
    assert "cannot tell b and a apart: b takes 0.03 to 1.3 times as long" in found.to_text()
    assert "The machine is busy: a load of 2.7 on 2 cores." in found.to_text()
    assert "busy" in found.notes[-1]
    for few in range(1, FEWEST_ROUNDS):
        some = Timing({"a": [1.0] * few, "b": [9.0] * few})
        assert not some.ratio("b", "a").is_clear
        assert "cannot tell b and a apart" in some.to_text()


# ---- 15. The names of a comparison are stable


# ---- 16. A truth table says which half it means


# ---- 17. A file's suffix and its contents agree


def test_show_refuses_a_name_that_does_not_fit(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("o.pdf", "o", "o.svg.gz", "svg", "o.json"):
        assert main(["show", "5", "3", "--out", name]) == 2
        said = capsys.readouterr().err
        wanted = "its name must end in .svg, .png, .html or .txt, which says what is written"
        assert said == f"packviz: --out is {name!r}; {wanted}\n"
    assert main(["show", "5", "3", "--svg", "o.png"]) == 2
    assert "--svg is now --out, and the suffix says what is written: --out o.png" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def kind_of(content):
    """What a file is, by its first bytes."""
    content = content.replace(b"<!doctype", b"<!DOCTYPE")
    heads = {b"\x89PNG": ".png", b"<svg": ".svg", b"<!DOCTYPE html>": ".html", b"<html": ".html", b"{": ".json"}
    return next((kind for head, kind in heads.items() if content.startswith(head)), ".txt")


class CairoStandIn:
    @staticmethod
    def svg2png(bytestring, scale):
        assert bytestring.startswith(b"<svg")
        assert b"height:auto" not in bytestring  # cairosvg would take it for a height of 0, and draw nothing
        return b"\x89PNG and so on"


def saved():
    """One of each kind of result that writes itself."""
    return {
        "a picture": pv.show([3, 2]),
        "a count": pv.flops(nn.GRU(2, 3), [3, 2]),
        "a comparison": pv.compare(nn.GRU(2, 3), torch.zeros(3, 2, 2), [3, 2]),
        "a chart": figures.axes("a title", "its words").bars(["x"], [1.0]),
        "a table": Table([["a", "1"]]),
        "attention": pv.Attention(2, {"w": np.eye(2)}),
    }


@pytest.mark.parametrize("name", saved())
@pytest.mark.parametrize("suffix", [".svg", ".SVG", ".png", ".html", ".txt", ".json", ".pdf", ""])
def test_what_is_saved_is_what_the_suffix_says(name, suffix, tmp_path, monkeypatch):
    """Or it is refused, with what may be written, and no file is left."""
    monkeypatch.setitem(sys.modules, "cairosvg", CairoStandIn)
    monkeypatch.setattr(figures, "_image", lambda figure: b"\x89PNG and so on")
    one, path = saved()[name], tmp_path / f"o{suffix}"
    allowed = {"a chart": ".html .png .txt", "a table": ".html .txt"}.get(name, ".svg .png .html .txt").split()
    if suffix.lower() not in allowed:
        wanted = f"its name must end in {', '.join(allowed[:-1])} or {allowed[-1]}, which says what is written"
        with pytest.raises(ValueError, match=re.escape(wanted)):
            one.save(path)
        assert not [*tmp_path.iterdir()]
        return
    one.save(path)
    content = path.read_bytes()
    assert kind_of(content) == suffix.lower()
    if suffix == ".txt" or (suffix == ".html" and isinstance(one, Drawn)):
        assert one.to_text().partition("\n")[0] in unescape(content.decode())


def test_everything_that_draws_saves_a_picture(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cairosvg", CairoStandIn)
    for one in saved().values():
        if isinstance(one, Drawn):
            for suffix in (".svg", ".png", ".html", ".txt"):
                one.save(tmp_path / f"o{suffix}", *(["dark"] if suffix == ".svg" else []))
            assert (tmp_path / "o.svg").read_text() == one.to_svg("dark")
            assert one.to_svg() in (tmp_path / "o.html").read_text()


def test_a_png_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    with pytest.raises(ValueError, match=r"a PNG needs cairosvg: python -m pip install cairosvg.*\.svg, .* do without"):
        pv.show([3, 2]).save(tmp_path / "o.png")
    assert main(["show", "3", "--out", str(tmp_path / "o.png")]) == 2
    assert "packviz: a PNG needs cairosvg" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_to_svg_takes_a_theme_and_says_what_writes_a_file():
    said = "theme is 'x.svg'; choose one of 'light', 'dark', 'live'. To write a file, call .save('x.svg')"
    for one in saved().values():
        if isinstance(one, Drawn):
            with pytest.raises(ValueError, match=re.escape(said)):
                one.to_svg("x.svg")


@pytest.mark.parametrize("command", [
    ["study", "savings", "--quick", "--out"],
    ["bench", "--quick", "--out"],
    ["bench", "plot", "nothing.json", "--out"],
])  # fmt: skip
def test_every_command_refuses_a_name_that_does_not_fit(command, tmp_path, monkeypatch, capsys):
    """Before it measures anything."""
    monkeypatch.chdir(tmp_path)
    for name in ("o.pdf", "o", "o.json" if "plot" in command else "o.svg"):
        assert main([*command, name]) == 2
        said = capsys.readouterr().err
        assert re.search(rf"packviz: --out is '{name}'; its name must end in .*\.\w+, which says what is written", said)
    assert not [*tmp_path.iterdir()]


def test_results_are_kept_in_json_alone(tmp_path):
    for save in (in_force("cpu").save, lambda path: files.save(path, "a kind", 1, {})):
        with pytest.raises(
            ValueError, match=r"path is '.*o\.png'; its name must end in \.json, which says what is written"
        ):
            save(tmp_path / "o.png")
    with pytest.raises(SystemExit):
        workers.main(["--out", "o.png"])
    assert not [*tmp_path.iterdir()]


# ---- 18. A search says how sure it is


# ---- 19. A panel's complaint is in its text


def typed(panel, text):
    """Types into the panel's field, or its picker's list."""
    field = getattr(panel, "typed", None) or getattr(panel, "lengths", None)
    if field is None or callable(field):
        move(panel.picker.kind, TYPED)
        field = panel.picker.typed
    move(field, text)


def uploaded(panel, name, content):
    move(panel.picker.kind, FILE)
    file = {"name": name, "type": "", "size": len(content), "last_modified": 0, "content": memoryview(content)}
    move(panel.picker.upload, [file])


BAD_LENGTHS = ["", "3, x", "3, 0", "3, -1", "2.5", "{}", "1e30", "[[1], [2]]", "nan"]
BAD_FILES = [
    ("a.csv", b""),
    ("a.csv", b"\xff\xfe\x00"),
    ("a.csv", b"x,y,z\n1,2,3\n"),
    ("a.json", b"{"),
    ("a.json", b"[0]"),
    ("a.txt", b"no"),
]
BAD_CODE = ["def forward(", "x = 1", "def forward(self, x): return y"]
IN_FIELDS = [lambda panel, text=text: typed(panel, text) for text in BAD_LENGTHS]
IN_PICKERS = IN_FIELDS + [lambda panel, file=file: uploaded(panel, *file) for file in BAD_FILES]
IN_PICKERS += [lambda panel: setattr(panel.picker.kind, "value", FILE)]  # and no file yet
MANY = ", ".join(["3"] * 6000)

PANELS = {
    "AlignExplorer": [*IN_FIELDS, lambda panel: typed(panel, "99, 98")],
    "BatchingExplorer": [*IN_PICKERS, lambda panel: typed(panel, MANY)],
    "BenchmarkExplorer": [lambda panel: move(panel.shortest, 300)],
    "CostExplorer": IN_FIELDS,
    "GraphExplorer": [],
    "MuseumExplorer": [lambda panel: move(panel.pasted, "xyzzy qwrtp")],
    "PackedExplorer": [*IN_FIELDS, lambda panel: move(panel.enforce_sorted, True)],
    "PaddingExplorer": IN_PICKERS,
    "RowExplorer": [*IN_PICKERS, lambda panel: typed(panel, MANY)],
    "StaircaseExplorer": IN_PICKERS,
    "StatesExplorer": [*IN_FIELDS, lambda panel: typed(panel, "2049")],
    "StaticExplorer": [
        *IN_FIELDS,
        lambda panel: typed(panel, "2049"),
        *(lambda panel, code=code: move(panel.code, code) for code in BAD_CODE),
    ],
}
"""Every panel, and what may be wrong in it."""


def says_what_it_shows(panel):
    """What is shown as wrong, in the text, the stored output and the field of words; the empty string if nothing is."""
    shown = [words(field) for field in (panel.error, panel.note) if field.value]
    stored, panel.as_text.value = panel._repr_mimebundle_()["text/plain"], True
    for said in shown:
        assert said in panel.to_text()
        assert said in stored
        assert said in words(panel._words)
    panel.as_text.value = False
    return shown


def test_every_panel_is_tried():
    assert [*PANELS] == explorers.__all__


@pytest.mark.parametrize("name", PANELS)
def test_what_a_panel_complains_of_is_in_its_text(name):
    for number, spoil in enumerate(PANELS[name]):
        panel = getattr(explorers, name)()
        assert panel.to_text()
        panel.as_text.value = True  # the words follow a complaint while they are shown
        spoil(panel)
        assert panel.error.value, number
        assert words(panel.error) in words(panel._words)
        assert says_what_it_shows(panel)
        assert panel._view.describe() in panel.to_text()
        assert "The picture shows the last good input." in panel.to_text()
        panel.close()


@pytest.mark.parametrize(("name", "arguments"), [
    ("BatchingExplorer", ([3] * 6000,)),
    ("RowExplorer", ([3] * 6000,)),
    ("StatesExplorer", ([2049],)),
    ("StaticExplorer", ("fixed length", [2049])),
    ("AlignExplorer", ([99],)),
    ("MuseumExplorer", ("xyzzy qwrtp",)),
])  # fmt: skip
def test_a_panel_that_begins_with_what_it_cannot_draw_says_so(name, arguments):
    panel = getattr(explorers, name)(*arguments)
    assert panel.error.value
    (said,) = says_what_it_shows(panel)
    assert said == panel.to_text()
    assert said.endswith("There is no picture yet.")


def test_a_control_that_was_moved_is_named_in_the_text():
    panel = explorers.RowExplorer([5, 3, 2], room=6)
    move(panel.picker.sliders[0], 12)
    assert says_what_it_shows(panel) == ["row size went from 6 to 12 to fit."]


def test_a_measurement_that_fails_is_in_the_text(monkeypatch):
    panel = explorers.StaircaseExplorer([4, 2])

    def fail():
        raise ValueError("no such thing")

    monkeypatch.setattr(panel.job, "_prepare", fail)
    panel.job.start.click()
    assert panel.job.said.value == "no such thing"
    assert "✗ Measure here: no such thing" in panel.to_text()
    monkeypatch.undo()
    panel.job.run()
    assert "no such thing" not in panel.to_text()
