"""Runs a notebook with papermill, after checking that the notebook has the given parameters."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import papermill
import yaml
from papermill.exceptions import PapermillExecutionError
from papermill.execute import remove_error_markers

from nbtools.canonical import dumps, loads, plain, tags
from nbtools.execute import CELL_SECONDS, QUIET_KERNEL, RunError, kernel_env
from nbtools.source import SourceError


class ParameterError(SourceError):
    """Raised if a parameter is unknown, if its value cannot be read, or if the result cannot be written there."""


def parse_parameters(pairs: list[str]) -> dict[str, Any]:
    """Parses `key=value` pairs whose values are YAML, which includes JSON.

    Raises:
        ParameterError: A pair has no `=`, a value is not YAML, or a name appears twice.
    """
    parsed: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ParameterError(f"-p {pair} has no '='; write -p name=value")
        if name in parsed:
            raise ParameterError(f"-p {name} appears twice; give one value")
        try:
            parsed[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            reason = " ".join(str(error).split())
            raise ParameterError(
                f"-p {pair}: the value is neither JSON nor YAML ({reason})"
            ) from None
    return parsed


def run(notebook: Path, out: Path, parameters: dict[str, Any]) -> None:
    """Runs a stored notebook and writes the result to `out`.

    Args:
        notebook: The notebook file. It runs in its own folder, and the file is not changed.
        out: The file to write.
        parameters: Values for names in the notebook's `parameters` cell.

    Raises:
        ParameterError: The notebook has no such parameter, or `out` is in the folder of the
            notebook.
        RunError: A cell raised an error, and is not tagged `raises-exception`.
    """
    refuse_unknown(notebook, parameters)
    out = out.resolve()
    if out.is_relative_to(notebook.resolve().parent):
        raise ParameterError(
            f"{out} is in the folder of the committed notebooks; choose another place for the result"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    env = kernel_env(strict=False)
    os.environ.clear()
    os.environ.update(env)
    try:
        papermill.execute_notebook(
            str(notebook),
            str(out),
            parameters=parameters,
            kernel_name="python3",
            progress_bar=False,
            cwd=str(notebook.parent),
            store_widget_state=False,
            extra_arguments=QUIET_KERNEL,
            execution_timeout=CELL_SECONDS,
            start_timeout=CELL_SECONDS,
        )
    except PapermillExecutionError as error:
        if _only_meant_errors(out):
            return
        raise RunError(
            f"{notebook.name} raised an error; its outputs are in {out}\n{plain(str(error))}"
        ) from None


def _only_meant_errors(out: Path) -> bool:
    """Returns whether every error in a result was intended. If so, it also removes papermill's
    error banners.

    Papermill continues after a cell tagged `raises-exception`, but still reports the run as a
    failure.
    """
    notebook = remove_error_markers(loads(out.read_text(encoding="utf-8")))
    for cell in notebook.cells:
        failed = any(output.output_type == "error" for output in cell.get("outputs", []))
        failed = failed or bool(cell.metadata.get("papermill", {}).get("exception"))
        if failed and "raises-exception" not in tags(cell):
            return False
    out.write_text(dumps(notebook), encoding="utf-8", newline="\n")
    return True


def refuse_unknown(notebook: Path, parameters: dict[str, Any]) -> None:
    """Rejects unknown parameters, because papermill would only warn, and then run with the defaults."""
    known = papermill.inspect_notebook(str(notebook))
    if unknown := sorted(set(parameters) - set(known)):
        offer = f"its parameters are {', '.join(known)}" if known else "it has no parameters"
        raise ParameterError(f"{notebook.name} has no parameter {', '.join(unknown)}; {offer}")
