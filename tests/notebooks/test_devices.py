"""The benchmark's page with other recorded files than those that come with packviz: an invented GPU's, and none."""

import shutil

import IPython.display
import pytest
from nbhelp import ROOT
from nbtools.source import editions

from packviz.studies.forum import sweep

RECORDED = ROOT / "notebooks" / "recorded" / "benchmark_cpu.json"
FAKE = ROOT / "tests" / "unit" / "studies" / "recordings" / "benchmark_fake_cuda.json"


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Runs the page up to where it starts to measure; returns what it drew."""

    def run(**files):
        (folder := tmp_path / "recorded").mkdir()
        for name, path in files.items():
            shutil.copy(path, folder / f"{name}.json")
        monkeypatch.chdir(tmp_path)
        shown = []
        monkeypatch.setattr(IPython.display, "display", lambda *drawn: shown.append(drawn))
        source = ROOT / "notebooks" / "source" / "06_benchmark.py"
        names = {}
        for cell in editions(source)[0].notebook.cells:
            if "parameters" in cell.metadata.get("tags", []):
                return shown
            if cell.cell_type == "code":
                exec(cell.source, names)
        raise AssertionError("the page has no cell with parameters")

    return run


def test_whatever_was_recorded_is_drawn_the_cpu_first(page, capsys):
    shown = page(benchmark_cpu=RECORDED, benchmark_somebodys_gpu=FAKE)
    assert len(shown) == 3
    for cpu, gpu in shown:
        assert sweep.recorded(RECORDED).caption in cpu.to_svg()
        assert "MADE UP" not in cpu.to_svg()
        assert "no such GPU (GPU, CUDA 0.0)" in gpu.to_svg()
    assert "Packed takes up to 12 times as long as padded" in shown[0][1].to_svg()
    assert "none was recorded on a GPU" not in capsys.readouterr().out


def test_a_page_without_a_gpu_says_so_on_its_first_screen(page, capsys):
    assert [len(drawn) for drawn in page(benchmark_cpu=RECORDED)] == [1, 1, 1]
    assert capsys.readouterr().out.startswith(
        "All times on this page are those of a CPU: none was recorded on a GPU yet."
    )


def test_with_nothing_recorded_the_page_still_runs(page, capsys):
    assert page() == [(), (), ()]
    assert "none was recorded on a GPU" in capsys.readouterr().out
