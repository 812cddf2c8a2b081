"""Brings result files of an older packviz up to date. Nothing is measured again, and no number changes.

    python tools/migrate_recorded.py [FILE …]      all of notebooks/recorded/ if none are given

A file that is up to date is left alone.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from packviz.bench.study import CHANGING
from packviz.core import files

RECORDED = Path(__file__).parents[1] / "notebooks" / "recorded"
Data = dict[str, Any]


def _points(timings: list[Data], fields: tuple[str, ...]) -> Data:
    """What timings were measured on, once for all of them; and each as a point, with no more than what is its own."""
    places = [timing["provenance"] for timing in timings]
    common = [{k: v for k, v in place.items() if k not in (*CHANGING, "parameters")} for place in places]
    if any(place != common[0] for place in common):
        raise ValueError("its timings were measured on different machines")
    given = [place["parameters"] for place in places]
    first = {k: places[0][k] for k in ("date", "load_average")} | {"parameters": {"rounds": given[0]["rounds"]}}
    points = [
        {field: one[field] for field in fields} | {"timing": timing | {"provenance": {k: place[k] for k in CHANGING}}}
        for one, timing, place in zip(given, timings, places, strict=True)
    ]
    return {"provenance": common[0] | first, "points": points}


def _savings(data: Data) -> Data:
    return _points(data["races"], ("mode", "size", "distinct", "input_size", "hidden_size"))


def _helpers(data: Data) -> Data:
    return _points([*data["timings"].values()], ("helper", "batch", "steps", "features"))


def _compiled(data: Data) -> Data:
    found = _points([data["timing"]], ("batch", "past", "future", "features", "hidden"))
    (point,) = found["points"]
    point["timing"]["provenance"]["parameters"] = {"backend": data["timing"]["provenance"]["parameters"]["backend"]}
    point["backend"] = ""  # the one that is chosen by itself
    return found


def _thumb(data: Data) -> Data:
    place = data["provenance"]
    rounds = {"rounds": place["parameters"]["rounds"]}
    return {"provenance": place | {"parameters": rounds}, "points": [case | rounds for case in data["cases"]]}


def _compilers(data: Data) -> Data:
    cells = data["cells"].items()
    points = [{"network": name, "way": way} | cell for name, row in cells for way, cell in row.items()]
    return {"provenance": data["provenance"], "points": points}


STEPS: dict[tuple[str, int], tuple[str, int, Callable[[Data], Data]]] = {
    ("savings", 1): ("savings", 2, _savings),
    ("helpers", 1): ("helpers", 2, _helpers),
    ("thumb", 1): ("thumb", 2, _thumb),
    ("relatives", 1): ("compilers", 2, _compilers),
    ("static", 1): ("compiled", 2, _compiled),
}
"""From kind and version to kind and version, and how."""


def migrate(path: Path) -> str:
    """Rewrites a file, under a new name if it has that of its kind; says what was done."""
    data = json.loads(path.read_text(encoding="utf-8"))
    kind, version = data.pop("packviz"), data.pop("version")
    if (kind, version) not in STEPS:
        return f"{path.name}: {kind}, version {version}: nothing to do"
    new, later, step = STEPS[kind, version]
    target = path.with_name(path.name.replace(kind, new))
    files.save(target, new, later, step(data))
    if target != path:
        path.unlink()
    return f"{path.name}: {kind}, version {version} → {target.name}: {new}, version {later}"


if __name__ == "__main__":
    for file in [*map(Path, sys.argv[1:])] or sorted(RECORDED.glob("*.json")):
        print(migrate(file))
