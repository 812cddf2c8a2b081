"""Defines the commands `packviz study` and `packviz advise`."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from packviz.core import lengths
from packviz.core.spec import GATES, Spec
from packviz.core.validation import one_of
from packviz.draw.text import table
from packviz.measure.machine import check_device
from packviz.measure.study import Study
from packviz.measure.terminal import carry_out, positive


def add_studies(parser: argparse.ArgumentParser, studies: Mapping[str, str]) -> None:
    """Adds a command for each study.

    Args:
        parser: the parser of `packviz study`.
        studies: the descriptions of the studies, by the full names of their modules. The last part
            of a module's name, without `_benchmark`, is the name of the study.
    """
    questions = {
        module.rpartition(".")[2].removesuffix("_benchmark"): question
        for module, question in studies.items()
    }
    parser.set_defaults(run=lambda options: print(*table([*questions.items()], "<  <"), sep="\n"))
    named = parser.add_subparsers(title="studies", metavar="NAME")
    for module, (name, question) in zip(studies, questions.items(), strict=True):
        one = named.add_parser(name, help=question, description=question)
        add_study_options(one, required=True)
        one.add_argument(
            "--points", metavar="SET", help="measure a different set of points, given by its name"
        )
        one.set_defaults(run=partial(_study, module))


def add_study_options(parser: argparse.ArgumentParser, required: bool = False) -> None:
    """Adds the options that all studies take. `required` makes `--out` mandatory."""
    add = parser.add_argument
    add(
        "--out",
        required=required,
        metavar="FILE",
        help="the file to write; if it exists, resume from it",
    )
    add("--device", default="cpu", help="cpu, cuda or cuda:1 (default: cpu)")
    add(
        "--threads",
        type=positive(int),
        default=1,
        metavar="N",
        help="torch's CPU threads (default: 1)",
    )
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument(
        "--rounds", type=positive(int), metavar="N", help="timed rounds for each point"
    )
    effort.add_argument(
        "--budget", type=positive(float), metavar="SECONDS", help="approximate time for each point"
    )
    add("--quick", action="store_true", help="measure a few small points")
    add("--only", default="", metavar="WORDS", help="measure only points whose name contains this")


def run_study(
    study: Study[Any, Any, Any], every: Sequence[Any], options: argparse.Namespace
) -> int:
    """Measures the points that the options select, and returns the exit status.

    Raises:
        ValueError: the options do not fit the study, or no point matches them.
    """
    points = [point for point in every if options.only in str(point)]
    if not points:
        raise ValueError(
            f"no point matches --only {options.only!r}; a point's name looks like {str(every[-1])!r}"
        )
    effort = {
        name: getattr(options, name)
        for name in ("rounds", "budget")
        if getattr(options, name) is not None
    }
    parameters = study.with_parameters(**effort)
    where = {"device": options.device, "threads": options.threads}
    return carry_out(study, points, options.out, parameters=parameters, **where)


def _study(module: str, options: argparse.Namespace) -> int:
    study: Study[Any, Any, Any] = importlib.import_module(module).STUDY
    every = study.quick if options.quick else study.full
    if options.points:
        every = study.others[one_of("--points", options.points, study.others)]
    return run_study(study, every, options)


def add_advise(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `packviz advise`, except the lengths."""
    add, number = parser.add_argument, positive(int)
    add("--rnn", choices=[*GATES], default="LSTM", help="kind of RNN (default: LSTM)")
    add("--input-size", type=number, required=True, metavar="N", help="features per time step")
    add("--hidden-size", type=number, required=True, metavar="N", help="hidden units of the RNN")
    add("--layers", type=number, default=1, metavar="N", help="number of layers (default: 1)")
    add("--bidirectional", action="store_true", help="each layer also runs backwards")
    add("--forward", action="store_true", help="measure the forward pass alone")
    add(
        "--batch-size",
        type=number,
        default=64,
        metavar="N",
        help="sequences per batch (default: 64)",
    )
    add(
        "--budget",
        type=positive(float),
        default=20.0,
        metavar="SECONDS",
        help="total time (default: 20)",
    )
    add("--device", default="cpu", help="cpu, cuda or cuda:1 (default: cpu)")
    add("--threads", type=number, metavar="N", help="torch's CPU threads (default: torch's own)")
    parser.set_defaults(run=_advise)


def _advise(options: argparse.Namespace) -> None:
    import torch

    from packviz.measure.advice import advise
    from packviz.measure.rnn_calls import rnn_of

    n = lengths.read(" ".join(options.lengths), options.column)
    spec = Spec(
        options.rnn, options.input_size, options.hidden_size, options.layers, options.bidirectional
    )
    rnn = rnn_of(spec).to(check_device(options.device)).train(not options.forward)
    if options.threads:
        torch.set_num_threads(options.threads)
    advice = advise(rnn, n, batch_size=options.batch_size, budget=options.budget)
    print(f"{advice}\n\n{advice.code}")
