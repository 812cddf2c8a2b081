"""The command `packviz bench`. It needs torch, numpy and the standard library; drawing HTML and PNG needs plotly."""

from __future__ import annotations

import argparse
import re
from functools import partial
from pathlib import Path
from typing import Any

from packviz.bench.terminal import carry_out, writing
from packviz.core.files import require_suffix
from packviz.draw.chart import Sweep
from packviz.studies.forum import results
from packviz.studies.forum import sweep as experiment
from packviz.studies.forum.points import AUTOCAST, DTYPES, METHODS, SETUPS, At, Parameters, sizes

_OPTIONS = {"shortest": "--min", "longest": "--max", "batch_size": "--batch-size"}


def add_to(parser: argparse.ArgumentParser) -> Any:
    """Gives the parser the options of `packviz bench`, and `packviz bench plot`.

    Returns:
        What takes further commands.
    """
    parser.set_defaults(run=_measure)
    full, standard = experiment.FULL, Parameters()
    number: dict[str, Any] = {"type": int, "metavar": "N"}

    def default(name: str) -> str:
        return f"(default: {full[name]}; with --quick {experiment.QUICK[name]})"

    add = parser.add_argument
    add("--device", default="cpu", help="cpu, cuda or cuda:1 (default: cpu)")
    add("--setup", nargs="+", action="extend", choices=[*SETUPS], help="one or several of: A, no padding; B, triangle;"
        " evenly, spread evenly (default: A B)")  # fmt: skip
    add("--batch-size", **number, help=f"sequences {default('batch_size')}")
    add("--min", dest="shortest", **number, help=f"fewest time steps {default('shortest')}")
    add("--max", dest="longest", **number, help=f"most time steps {default('longest')}")
    add("--step", **number, help=f"from one to the next {default('step')}")
    add("--rounds", **number, help=f"timed rounds {default('rounds')}")
    add("--warmup", **number, help=f"rounds before that {default('warmup')}")
    add("--quick", action="store_true", help="a small batch and few sizes: seconds on a CPU")
    methods = ",".join(standard.methods)
    add("--methods", default=methods, help=f"what to compare to the first of them: some of {', '.join(METHODS)}"
        f" (default: {methods})")  # fmt: skip
    add("--dtype", default=standard.dtype, choices=DTYPES, help=f"of the weights (default: {standard.dtype})")
    add("--autocast", choices=AUTOCAST, help="run the forward pass under torch.autocast with this dtype")
    add("--threads", default=standard.threads, **number, help=f"torch's CPU threads (default: {standard.threads})")
    add("--seed", default=standard.seed, **number, help=f"of weights, tokens and order (default: {standard.seed})")
    add("--out", metavar="FILE", help="keep the results here, as JSON; if the file is there, go on with it")

    commands = parser.add_subparsers(title="commands", metavar="[plot … | record … | adopt …]")
    plot = commands.add_parser(
        "plot", help="draw result files side by side", description="Draws result files side by side."
    )
    plot.add_argument("files", nargs="+", metavar="FILE", help="what `packviz bench --out FILE` wrote")
    plot.add_argument("--out", required=True, metavar="PICTURE", help="ends in .svg, .html or .png")
    plot.set_defaults(run=_plot)
    return commands


def _measure(options: argparse.Namespace) -> int:
    given = experiment.QUICK if options.quick else experiment.FULL
    asked: dict[str, Any] = vars(options)
    chosen = given | {name: asked[name] for name in given if asked[name] is not None}
    same = {name: asked[name] for name in ("dtype", "autocast", "threads", "seed")}
    methods = tuple(method.strip() for method in options.methods.split(",") if method.strip())
    try:
        steps = sizes(chosen.pop("shortest"), chosen.pop("longest"), chosen.pop("step"))
        parameters = Parameters(methods=methods, **same, **chosen)
    except ValueError as error:
        raise ValueError(_as_options(str(error))) from None
    setups = options.setup or ["A", "B"]
    begin = partial(experiment.sweep, parameters, setups, steps, device=options.device)
    points = [At(setup, size) for setup in setups for size in steps]
    return carry_out(experiment.STUDY, begin, points, options.out, _as_options)


def _as_options(said: str) -> str:
    """The message with the names that the options have here."""
    return re.sub(r"\b(shortest|longest|batch_size)\b", lambda found: _OPTIONS[found[0]], said)


def _plot(options: argparse.Namespace) -> int:
    out = Path(options.out)
    suffix = require_suffix("--out", options.out, (".svg", ".html", ".png"))
    found = {name: experiment.recorded(name) for name in dict.fromkeys(options.files)}
    if not any(result.points for result in found.values()):
        raise ValueError("there is no point in these files to draw")
    names = {name: "" if len(found) == 1 else Path(name).stem for name in found}
    if len(set(names.values())) < len(names):  # of the same name in different folders
        names = {name: name for name in found}
    picture = results.beside({names[name]: result for name, result in found.items()})
    with writing(out):
        if suffix == ".svg":
            picture.save(out)
        else:
            _write_chart(picture, out)
    return 0


def _write_chart(picture: Sweep, out: Path) -> None:
    try:
        from packviz.draw import figures  # noqa: PLC0415 - a bare GPU machine has no plotly
    except ImportError as error:
        raise ValueError(f"{out.suffix} needs plotly: python -m pip install plotly; .svg does without") from error
    figures.times_by_size(picture).save(out)
