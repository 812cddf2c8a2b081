"""Defines the command `packviz bench`. The command needs torch and NumPy, and plotly to write HTML."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from packviz.core.files import require_suffix
from packviz.measure.command import add_study_options, run_study
from packviz.measure.terminal import writing
from packviz.studies import benchmark
from packviz.studies.benchmark import METHODS, SETUPS


def add_to(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `packviz bench`, and the command `packviz bench plot`."""
    parser.set_defaults(run=_measure)
    add_study_options(parser)
    add = parser.add_argument
    add("--setup", nargs="+", action="extend", choices=[*SETUPS], help="one or more of A (no padding), B (triangle)"
        " and evenly (evenly spread); default: A B")  # fmt: skip
    add("--methods", default="padded,packed", help=f"comma-separated methods, the first being the reference;"
        f" choose from {', '.join(METHODS)} (default: padded,packed)")  # fmt: skip
    commands = parser.add_subparsers(title="commands", metavar="[plot …]")
    plot = commands.add_parser(
        "plot", help="draw result files side by side", description="Draw files side by side."
    )
    plot.add_argument(
        "files", nargs="+", metavar="FILE", help="result files of `packviz bench --out FILE`"
    )
    plot.add_argument(
        "--out",
        required=True,
        metavar="PICTURE",
        help="a file name that ends in .svg, .html or .png",
    )
    plot.set_defaults(run=_plot)


def _measure(options: argparse.Namespace) -> int:
    size = benchmark.QUICK if options.quick else benchmark.FULL
    methods = [method.strip() for method in options.methods.split(",")]
    parameters = {"methods": methods, "batch_size": size["batch_size"], "rounds": size["rounds"]}
    study = replace(benchmark.STUDY, parameters=parameters)
    steps = benchmark.sizes(size["shortest"], size["longest"], size["step"])
    return run_study(study, benchmark.grid(options.setup or ["A", "B"], steps), options)


def _plot(options: argparse.Namespace) -> int:
    suffix = require_suffix("--out", options.out, (".svg", ".html", ".png"))
    found = {name: benchmark.recorded(name) for name in dict.fromkeys(options.files)}
    if not any(result.points for result in found.values()):
        raise ValueError("these files contain no points to plot")
    names = {name: "" if len(found) == 1 else Path(name).stem for name in found}
    if len(set(names.values())) < len(names):  # files in different folders may share a name
        names = {name: name for name in found}
    picture = benchmark.beside({names[name]: result for name, result in found.items()})
    with writing(options.out):
        if suffix == ".html":
            from packviz.draw import figures

            figures.times_by_size(picture).figure.write_html(options.out, config=figures.CONFIG)
        else:
            picture.save(options.out)
    return 0
