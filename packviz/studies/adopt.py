"""`packviz bench adopt`: what `packviz bench record` measured becomes what a checkout's notebooks and library go by.

Every file is looked at before any is taken: whether it can be read, is of a real machine, and no point is without its
comparison of results. What it changes is said in ratios, old and new. The results go to `notebooks/recorded/`, the
measured constants to `packviz/ops/`.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packviz.bench.study import Results, Study
from packviz.core import results
from packviz.draw.text import count, table
from packviz.studies.record import PARTS, Notes

_NEEDED = ("device", "device_name", "threads", "torch", "python", "system", "date", "parameters")
_MOST_MOVED = 5


@dataclass
class Adopted:
    """A file that is taken over.

    Attributes:
        study: whose results it holds.
        found: these.
        target: where they go.
        before: what is recorded there now, if anything.
    """

    study: Study[Any, Any, Any]
    found: Results[Any, Any]
    target: Path
    before: Results[Any, Any] | None


def add_to(commands: Any) -> None:
    """Adds the command to those of `packviz bench`."""
    said = "take what was recorded into this checkout, for its notebooks and for pv.run"
    parser = commands.add_parser("adopt", help=said, description=f"{said.capitalize()}.")
    parser.add_argument("folder", metavar="DIR", help="what `packviz bench record --out DIR` wrote")
    parser.add_argument("--check", action="store_true", help="say what it would change, and change nothing")
    parser.set_defaults(run=_adopt)


def _adopt(options: argparse.Namespace) -> None:
    from packviz.studies.summary import summary  # noqa: PLC0415 - torch

    top, folder = _checkout(), Path(options.folder)
    taken = [_looked_at(path, top) for path in sorted(folder.glob("*.json")) if path.name != "record.json"]
    if not taken:
        raise ValueError(f"there is no result file in {folder}")
    for one in taken:
        print(*_changes(one), "", sep="\n")
    for step, lines in Notes.of(folder / "record.json").failed.items():
        print(f"not there, for it failed: {step}: {lines[-1]}")
    if said := summary({one.study.name: one.found for one in taken}):
        print(said, end="\n\n")
    for one in [] if options.check else taken:
        if one.study.name == "calibration":
            one.found.costs.save(one.target)  # type: ignore[attr-defined]
        else:
            one.study.save(one.target, one.found)
    print(f"{'Nothing was changed' if options.check else 'Taken'}: {', '.join(one.target.name for one in taken)}.")


def _checkout() -> Path:
    """The checkout that this is called in."""
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / "notebooks" / "recorded").is_dir() and (folder / "packviz" / "ops").is_dir():
            return folder
    raise ValueError("this is no checkout of packviz: call it where notebooks/ and packviz/ are")


def _looked_at(path: Path, top: Path) -> Adopted:
    """The file, if it may be taken.

    Raises:
        ValueError: it may not, and why.
    """
    study = _study_of(path)
    found = study.load(path)
    if "fake" in found.provenance:
        raise ValueError(f"{path} is made up ({found.provenance['fake']}): no machine was measured")
    if missing := [name for name in _NEEDED if found.provenance.get(name) in (None, "")]:
        raise ValueError(f"{path} does not say on what it was measured: its provenance has no {missing[0]}")
    if found.unheld:
        some = "; ".join(found.unheld[:3])
        raise ValueError(
            f"{path}: at {count(len(found.unheld), 'point')} the results do not agree, or nobody looked: {some}"
        )
    if strange := [str(point) for point in found.values if point not in study.full]:
        raise ValueError(f"{path} holds other points than those recorded (with --quick?): {strange[0]}")
    device, threads = str(found.provenance["device"]), int(found.provenance["threads"])
    if study.name == "calibration":
        if not found.is_enough:
            raise ValueError(f"{path} has too few points for constants: go on with `packviz bench record`")
        return Adopted(study, found, top / "packviz" / "ops" / _costs_file(device, threads), None)
    target = top / "notebooks" / "recorded" / study.file(device, threads)
    before = study.load(target) if target.exists() else None
    if before and (lost := [str(point) for point in before.values if point not in found.values]):
        raise ValueError(
            f"{path} lacks {count(len(lost), 'point')} of what is recorded now, such as {lost[0]}: go on with"
            " `packviz bench record`"
        )
    return Adopted(study, found, target, before)


def _study_of(path: Path) -> Study[Any, Any, Any]:
    kind = results.kind(path)
    if kind not in PARTS:
        raise ValueError(f"{path} holds {kind!r}; there are {', '.join(PARTS)}")
    study: Study[Any, Any, Any] = importlib.import_module(PARTS[kind][0]).STUDY
    return study


def _costs_file(device: str, threads: int) -> str:
    return f"costs_cpu_{threads}.json" if device == "cpu" else "costs_cuda.json"


def _changes(one: Adopted) -> Iterator[str]:
    """What is new about it."""
    here, of = len(one.found.values), len(one.study.full)
    yield f"{one.target.name}: {here} of {count(of, 'point')}. Measured on {one.found.caption}."
    yield from (f"  left out: {said}" for said in one.found.left_out)
    if one.study.name == "calibration":
        yield from _other_choices(one)
        return
    if not one.before:
        yield "  Nothing of the kind was recorded before."
        return
    yield f"  In place of {one.before.caption}."
    yield from _moved(one.before.ratios, one.found.ratios)


def _moved(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Ratios, old and new."""
    both = [name for name in now if name in before]
    if not both:
        return
    moves = {name: now[name].value / before[name].value for name in both}
    middle = statistics.median(moves.values())
    yield f"  {count(len(both), 'ratio')}, new over old: {middle:.3g} in the middle; most moved, old → new:"
    most = sorted(both, key=lambda name: max(moves[name], 1 / moves[name]), reverse=True)[:_MOST_MOVED]
    rows = [[f"    {name}", f"{before[name].value:.3g}", "→", f"{now[name].value:.3g}"] for name in most]
    yield from table(rows, "<  >  <  >")


def _other_choices(one: Adopted) -> Iterator[str]:
    """At how many points of the race `auto` chooses otherwise."""
    from packviz.ops import costs  # noqa: PLC0415 - torch
    from packviz.studies.race import POINTS  # noqa: PLC0415

    measured: costs.Costs = one.found.costs  # type: ignore[attr-defined]
    threads = int(one.found.provenance["threads"])

    def choices() -> dict[str, str]:
        return {
            f"{point}, {'training' if training else 'forward'}": costs.choose(
                point.spec, tuple(point.drawn()), training, measured.device, threads=threads
            ).method
            for point in POINTS
            if point.mode != "none"
            for training in (True, False)
        }

    before = choices()
    old = "measured" if costs.in_force(measured.device, threads).provenance else "no"
    measured.use()
    other = {name: method for name, method in choices().items() if method != before[name]}
    yield f"  In place of {old} constants. auto chooses otherwise at {len(other)} of {len(before)} points of the race."
    yield from (f"    {name}: {before[name]} → {method}" for name, method in [*other.items()][:_MOST_MOVED])
