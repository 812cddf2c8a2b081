"""Runs the scripts of the reports for PyTorch that measure times, with small sizes."""

import re
from pathlib import Path

import pytest

REPORTS = Path(__file__).parents[2] / "docs" / "upstream.md"
SCRIPTS = re.findall(r"```python\n(.*?)```", REPORTS.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_is_short_and_prints_a_time_for_each_size(script, capsys):
    assert script.count("\n") <= 20
    if "perf_counter" in script:
        exec(re.sub(r"\b(128|256|512|1024)\b", "64", script), {})
        assert capsys.readouterr().out.count(" ms\n") == 4
