"""Tests that a file's suffix and its contents agree, for everything that can be saved."""

import sys
from html import unescape

import numpy as np
import pytest
import torch
from torch import nn

import packviz as pv
from packviz.cli import main
from packviz.draw.table import Table


class CairoStandIn:
    @staticmethod
    def svg2png(bytestring, scale):
        assert bytestring.startswith(b"<svg")
        # cairosvg would take this for a height of 0, and draw nothing.
        assert b"height:auto" not in bytestring
        assert b"paint-order" not in bytestring  # which cairosvg does not know
        return b"\x89PNG and so on"


RESULTS = {
    "a picture": lambda: pv.show([3, 2]),
    "a count": lambda: pv.flops(nn.GRU(2, 3), [3, 2]),
    "a comparison": lambda: pv.compare(nn.GRU(2, 3), torch.zeros(3, 2, 2), [3, 2]),
    "a table": lambda: Table([["a", "1"]]),
    "attention": lambda: pv.draw.Attention(2, {"w": np.eye(2)}),
}
BEGINNINGS = {".svg": b"<svg", ".png": b"\x89PNG", ".html": b"<!doctype html>", ".txt": b""}


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("suffix", [".svg", ".SVG", ".png", ".html", ".txt", ".pdf", ""])
def test_a_file_contains_what_its_suffix_says(name, suffix, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cairosvg", CairoStandIn)
    result = RESULTS[name]()
    path = tmp_path / f"o{suffix}"
    allowed = {".html", ".txt"} if name == "a table" else {*BEGINNINGS}
    if suffix.lower() not in allowed:
        with pytest.raises(ValueError, match=r"its name must end in .*, which sets the format"):
            result.save(path)
        assert not path.exists()
        return
    result.save(path)
    content = path.read_bytes()
    assert content.lower().startswith(BEGINNINGS[suffix.lower()].lower())
    if suffix == ".txt":
        assert result.to_text().splitlines()[0] in unescape(content.decode())


def test_a_png_needs_cairosvg(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    with pytest.raises(ValueError, match=r"a PNG needs cairosvg \(python -m pip install"):
        pv.show([3, 2]).save(tmp_path / "o.png")
    assert main(["show", "3", "--out", str(tmp_path / "o.png")]) == 2
    assert "packviz: a PNG needs cairosvg" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("command", ["show 5", "study savings --quick", "bench --quick"])
def test_a_command_refuses_a_wrong_name_before_it_begins(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*command.split(), "--out", "o.pdf"]) == 2
    assert "--out is 'o.pdf'; its name must end in" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_a_file_has_a_height_of_its_own(tmp_path):
    picture = pv.show([3, 2])
    assert "height:auto" in picture.to_svg()  # on a page
    picture.save(tmp_path / "a.svg")
    assert "height:auto" not in (tmp_path / "a.svg").read_text()


def test_a_png_cannot_follow_a_page(tmp_path):
    with pytest.raises(ValueError, match="choose 'light' or 'dark'"):
        pv.show([3, 2]).save(tmp_path / "a.png", theme="live")
