"""Captures a network with one of torch's compilers, and compares the captured network with the original."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from packviz.check.trials import (
    Leaf,
    Reading,
    Runner,
    Trial,
    axes,
    difference,
    leaves,
    mapped,
    replaced,
    tensors,
)
from packviz.core.quiet import quiet
from packviz.core.validation import kind_of

_ANSI = re.compile(r"\x1b\[[\d;]*m")

Inputs = Mapping[str, Any]
Answer = Callable[[Inputs], list[Leaf]]
Axes = Mapping[str, Mapping[int, int]]


class Captured(NamedTuple):
    """The result of trying one backend on a network.

    Attributes:
        backend: one of `BACKENDS`.
        takes: whether the backend accepts the network; `None` if the backend could not be tried in
            this environment.
        same: whether the captured network gives the same results as the original on all inputs that
            were tried, apart from an empty sequence for which it raises an error.
        difference: the largest difference between the two results; infinite if their number or
            their shapes differ, or if the captured network raises an error.
        trial: the name of the inputs that show the largest difference, such as `lengths [5, 3]`.
        message: the text of the error, or a description of the output that differs.
        error: the error that the backend or the captured network raised; `None` if neither raised
            one.
    """

    backend: str
    takes: bool | None
    same: bool = False
    difference: float = 0.0
    trial: str = ""
    message: str = ""
    error: Exception | None = None

    @property
    def cells(self) -> list[str]:
        """A row of a table: backend, acceptance, agreement, largest difference, and the inputs that show it."""
        if not self.takes:
            return [self.backend, "not tried" if self.takes is None else "✗ no", "", "", ""]
        if self.same:
            return [self.backend, "✓ yes", "✓ yes", "", ""]
        amount = (
            "raises"
            if self.error
            else "shape"
            if " shape " in self.message
            else f"{self.difference:.2g}"
        )
        return [self.backend, "✓ yes", "✗ no", amount, self.trial]


def _flat(run: Runner, call: Any) -> tuple[nn.Module, list[str], Callable[[Any], list[Leaf]]]:
    """Wraps the network in a module that takes only tensors, because a trace and an ONNX file can
    take nothing else.

    The module returns its tensors, and then the output itself, which torch may reject because it
    contains a `None`.

    Returns:
        The module, the names of its inputs, and a function that names its outputs and adds the
        network's outputs that are not tensors.
    """
    names = [name for name, leaf in leaves(call.arguments) if isinstance(leaf, Tensor)]
    gave: list[Leaf] = []  # this is not an attribute, because torch.export resets attributes

    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = run.module

        def forward(self, *given: Tensor) -> Any:
            call.arguments.update(replaced(call.arguments, dict(zip(names, given, strict=False))))
            gave[:] = leaves({"output": (output := run.forward(call))})
            return (
                *(leaf for _, leaf in gave if isinstance(leaf, Tensor)),
                torch.zeros(()),
            ), output

    def named(outputs: Any) -> list[Leaf]:
        given = iter(outputs)
        return [(name, next(given) if isinstance(leaf, Tensor) else leaf) for name, leaf in gave]

    return Flat().eval(), names, named


def _trace(run: Runner, inputs: Inputs, at: Axes) -> Answer:
    if sys.version_info >= (3, 14):
        raise ImportError(
            "torch.jit.trace is deprecated and does not support Python 3.14; choose another backend"
        )

    def capture(call: Any) -> Any:
        given = tuple(tensors(call.arguments))
        flat, _, named = _flat(run, call)
        return torch.jit.trace(flat, given, check_trace=False, strict=False), named  # type: ignore[no-untyped-call]

    graph, named = run(inputs, capture)
    return lambda other: named(run(other, lambda call: graph(*tensors(call.arguments)))[0])


def _export(run: Runner, inputs: Inputs, at: Axes) -> Answer:
    def capture(call: Any) -> Any:
        names = [*run.signature.parameters]
        shapes = {
            name: mapped(name, value, partial(_dynamic, at))
            for name, value in call.arguments.items()
        }
        given = cast(
            Any,
            {"dynamic_shapes": {name: shapes[name] for name in names if name in shapes}}
            if at
            else {},
        )
        return torch.export.export(run.module, call.args, call.kwargs, **given).module()

    program = run(inputs, capture)
    return lambda other: leaves(
        {"output": run(other, lambda call: program(*call.args, **call.kwargs))}
    )


def _dynamic(at: Axes, name: str, leaf: Any) -> Any:
    return (
        dict.fromkeys(at.get(name, ()), torch.export.Dim.AUTO) if isinstance(leaf, Tensor) else None
    )


def compiled(
    run: Runner, inputs: Inputs, at: Axes, backend: Any = "eager", fullgraph: bool = True
) -> Answer:
    """Compiles the network with `torch.compile`, by default with a backend that needs no C++ compiler."""
    torch.compiler.reset()
    made = torch.compile(
        run.module, backend=backend, fullgraph=fullgraph, dynamic=True if at else None
    )

    def captured(other: Inputs) -> list[Leaf]:
        return leaves({"output": run(other, lambda call: made(*call.args, **call.kwargs))})

    captured(inputs)
    return captured


def _onnx(legacy: bool, run: Runner, inputs: Inputs, at: Axes) -> Answer:
    try:  # torch's own message about a missing package is less clear
        *_, onnxruntime = map(
            import_module, [*["onnxscript"] * (not legacy), "onnx", "onnxruntime"]
        )
    except ImportError as error:
        install = "python -m pip install onnx onnxruntime onnxscript"
        raise ImportError(
            f"{error.name} is not installed; run {install}", name=error.name
        ) from error
    file = io.BytesIO()

    def capture(call: Any) -> Callable[[Any], list[Leaf]]:
        given = tuple(tensors(call.arguments))
        flat, leaf_names, named = _flat(run, call)
        names = [f"x{i}" for i in range(len(given))]
        if legacy:
            shapes: Any = {
                name: [*at.get(leaf, ())] for name, leaf in zip(names, leaf_names, strict=True)
            }
            torch.onnx.export(
                flat, given, cast(Any, file), dynamo=False, input_names=names, dynamic_axes=shapes
            )
        else:
            shapes = (tuple(map(partial(_dynamic, at), leaf_names, given)),) if at else None
            made: Any = torch.onnx.export(
                flat, given, dynamo=True, verbose=False, input_names=names, dynamic_shapes=shapes
            )
            file.write(made.model_proto.SerializeToString())
        return named

    named: Callable[[Any], list[Leaf]] = run(inputs, capture)
    session = onnxruntime.InferenceSession(file.getvalue())
    known = [
        one.name for one in session.get_inputs()
    ]  # the file leaves out inputs that the network does not read

    def captured(other: Inputs) -> list[Leaf]:
        feed = {f"x{i}": one.detach().cpu().numpy() for i, one in enumerate(tensors(other))}
        return named(map(torch.from_numpy, session.run(None, {name: feed[name] for name in known})))

    return captured


BACKENDS: dict[str, Callable[[Runner, Inputs, Axes], Answer]] = {
    "trace": _trace,
    "export": _export,
    "compile": compiled,
    "onnx": partial(_onnx, False),
    "onnx_legacy": partial(_onnx, True),
}
"""The functions that capture a network, by the name of the backend: `torch.jit.trace`,
`torch.export`, `torch.compile(fullgraph=True)`, and both ONNX exporters. ONNX Runtime runs the
exported files."""


def judged(
    backend: str,
    run: Runner,
    tried: list[Trial],
    varied: list[Reading],
    dynamic: bool = False,
    capture: Callable[[Runner, Inputs, Axes], Answer] | None = None,
) -> Captured:
    """Captures the network on the first trial, and compares it with the original on all trials.

    Args:
        backend: one of `BACKENDS`.
        run: the `Runner` of the network.
        tried: the inputs to try, with the network's results for them.
        varied: the `Reading` of each input that contains lengths.
        dynamic: whether to capture for other batch sizes and numbers of time steps, too.
        capture: the function that captures the network. Defaults to the backend's function in
            `BACKENDS`.
    """
    inputs, names = tried[0].inputs, {one.name for one in varied}
    fixed = [
        leaf for leaf in leaves(inputs) if leaf[0] in names and not isinstance(leaf[1], Tensor)
    ]
    if fixed and backend not in ("export", "compile"):
        name, kind = fixed[0][0], kind_of(fixed[0][1])
        return Captured(
            backend, False, message=f"it takes only tensors, but {name} is {kind}; give a tensor"
        )
    result = Captured(backend, True, True)
    with quiet(), cast(Any, torch.jit).optimized_execution(False):
        try:
            captured = (capture or BACKENDS[backend])(
                run, inputs, axes(inputs, varied) if dynamic else {}
            )
        except ImportError as error:
            return Captured(backend, None, message=str(error))
        except Exception as error:
            return Captured(backend, False, message=first_line(error), error=error)
        for trial in tried:
            problem = None
            try:
                size, message = difference(
                    trial.outputs, captured(trial.inputs), 1e-4 if "onnx" in backend else 1e-5
                )
            except Exception as error:
                size, message, problem = float("inf"), f"raises {first_line(error)}", error
            if size > result.difference and (
                result.same or not trial.empty
            ):  # other lengths are more telling
                same = trial.empty and problem is not None
                result = Captured(backend, True, same, size, trial.name, message, problem)
    return result


def first_line(error: BaseException) -> str:
    """Returns the type and the first line of an error, shortened and without paths.

    An error of the ONNX exporter is replaced by its cause.
    """
    while type(error).__module__.startswith("torch.onnx") and error.__cause__ is not None:
        error = error.__cause__
    text = _ANSI.sub("", str(error))
    text = (
        text.rpartition("\nRuntimeError: ")[2] if "TorchScript interpreter" in text else text
    )  # after a traceback
    line = next(iter(text.splitlines()), "")
    line = re.sub(r"\S*/[\w./-]*/(\w+\.\w+)", r"\1", line)
    message = f"{type(error).__name__}: {line}"
    return message if len(message) <= 150 else f"{message[:149]}…"
