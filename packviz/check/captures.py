"""Captures a model with one of torch's compilers or exporters, so that the capture can be run."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from packviz.core.validation import kind_of
from packviz.ops.agreement import parts, rounding_scales

Capture = Callable[..., object]
"""A captured model, which takes the model's inputs."""

BACKENDS = ("trace", "export", "compile", "onnx", "onnx_legacy")
"""`torch.jit.trace`, `torch.export`, `torch.compile(fullgraph=True)`, and both ONNX exporters."""

_ANSI = re.compile(r"\x1b\[[\d;]*m")


def map_leaves(value: Any, replace_leaf: Callable[[Any], Any]) -> Any:
    """Returns a copy of a nested value in which `replace_leaf` has replaced every leaf, in order.

    Mappings, lists and tuples have parts. Every other object is a leaf, and so is a list or a tuple
    of whole numbers.
    """
    if isinstance(value, Mapping):
        return {key: map_leaves(part, replace_leaf) for key, part in value.items()}
    is_leaf = isinstance(value, torch.Size) or is_int_list(value)
    if isinstance(value, (list, tuple)) and not is_leaf:
        new_parts = [map_leaves(part, replace_leaf) for part in value]
        return type(value)(*new_parts) if hasattr(value, "_fields") else type(value)(new_parts)
    return replace_leaf(value)


def leaves(value: Any) -> list[Any]:
    """Returns the leaves of a nested value, in order (see `map_leaves`)."""
    result: list[Any] = []
    map_leaves(value, result.append)
    return result


def numeric_leaves(output: Any) -> list[Any]:
    """Returns the leaves of a model's result that are tensors, arrays or numbers.

    Raises:
        TypeError: there are others, except for text and None.
    """
    numeric_parts = []
    for name, part in parts(output, "result"):
        if isinstance(part, (Tensor, np.ndarray, np.number, np.bool_, int, float, complex)):
            numeric_parts.append(part)
        elif part is not None and not isinstance(part, str):
            raise TypeError(
                f"the model's {name} is {kind_of(part)}, which cannot be compared: let it return"
                " tensors, arrays or numbers, or tuples, lists, dicts or dataclasses of these"
            )
    return numeric_parts


def is_int_list(value: Any) -> bool:
    """Returns whether a value is a list or a tuple of whole numbers."""
    if type(value) not in (list, tuple) or not value:
        return False
    return all(type(n) is int for n in value)


class _FlatModel(nn.Module):
    """A model that takes and returns only tensors, because graphs take and return nothing else.

    Its other inputs keep the values of the example.
    """

    def __init__(self, model: nn.Module, inputs: Sequence[Any]) -> None:
        super().__init__()
        self.model = model
        self._inputs = inputs

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        remaining_tensors = iter(tensors)
        inputs = map_leaves(
            self._inputs, lambda x: next(remaining_tensors) if isinstance(x, Tensor) else x
        )
        return tuple(map(torch.as_tensor, numeric_leaves(self.model(*inputs))))


def capture_model(
    backend: str, model: nn.Module, inputs: Sequence[Any], axes: Mapping[int, Iterable[int]]
) -> Capture:
    """Captures a model on example inputs.

    Args:
        backend: one of `BACKENDS`.
        model: a model in eval mode.
        inputs: the positional arguments of the model, which may be nested.
        axes: the axes that may have other sizes, by the number of the leaf.

    Raises:
        ImportError: the backend cannot be used in this environment.
        Exception: the backend rejects the model.
    """
    if backend == "compile":
        torch.compiler.reset()
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        compiled(*inputs)
        return compiled
    tensors = _tensor_leaves(inputs)
    dynamic_shapes = []
    for i, leaf in enumerate(leaves(inputs)):
        if is_int_list(leaf) or isinstance(leaf, np.ndarray):
            raise TypeError(f"an input is {kind_of(leaf)}; give a tensor")
        if isinstance(leaf, Tensor):
            dynamic_shapes.append(dict.fromkeys(axes.get(i, ()), torch.export.Dim.AUTO))
    flat_model = _FlatModel(model, inputs)
    if backend == "trace":
        if sys.version_info >= (3, 14):
            raise ImportError(
                "torch.jit.trace does not support Python 3.14 or later; choose another backend"
            )
        trace: Callable[..., Capture] = torch.jit.trace
        graph = trace(flat_model, tensors, check_trace=False, strict=False)
    elif backend == "export":
        graph = torch.export.export(
            flat_model, tensors, dynamic_shapes=(tuple(dynamic_shapes),)
        ).module()
    else:
        graph = _export_onnx(flat_model, tensors, dynamic_shapes, backend == "onnx_legacy")
    return lambda *new_inputs: graph(*_tensor_leaves(new_inputs))


def _tensor_leaves(inputs: Sequence[Any]) -> tuple[Tensor, ...]:
    return tuple(leaf for leaf in leaves(inputs) if isinstance(leaf, Tensor))


def _export_onnx(
    flat_model: nn.Module,
    tensors: tuple[Tensor, ...],
    dynamic_shapes: Sequence[dict[int, Any]],
    with_old_exporter: bool,
) -> Capture:
    try:
        import_module("onnx" if with_old_exporter else "onnxscript")
        runtime = import_module("onnxruntime")
    except ImportError as error:  # torch's own message about a missing package is less clear
        raise ImportError(
            f"{error}; run python -m pip install onnx onnxruntime onnxscript"
        ) from error
    input_names = [f"x{i}" for i in range(len(tensors))]
    options: dict[str, Any] = {"dynamic_shapes": (tuple(dynamic_shapes),)}
    if with_old_exporter:
        options = {"dynamic_axes": dict(zip(input_names, map(list, dynamic_shapes), strict=True))}
    with TemporaryDirectory() as folder:
        file = f"{folder}/model.onnx"
        options |= {
            "input_names": input_names,
            "dynamo": not with_old_exporter,
            "external_data": False,
        }
        torch.onnx.export(flat_model, tensors, file, **options)
        session = runtime.InferenceSession(file)

    def run_session(*new_inputs: Tensor) -> object:
        arrays = {name: x.cpu().numpy() for name, x in zip(input_names, new_inputs, strict=True)}
        # The file leaves out the inputs that the model does not read.
        return session.run(
            None,
            {model_input.name: arrays[model_input.name] for model_input in session.get_inputs()},
        )

    return run_session


def describe_difference(
    expected: Sequence[Any], result: Sequence[Any], tolerance: float = 1e-5
) -> str:
    """Describes the first difference between two lists of leaves; empty if they agree.

    Two leaves agree if they differ by at most `tolerance` times the largest of their
    `rounding_scales`.
    """
    if len(expected) != len(result):
        return f"gives {len(result)} results instead of {len(expected)}"
    for i, leaf_pair in enumerate(zip(expected, result, strict=True), 1):
        a, b = map(_to_complex_tensor, leaf_pair)
        if a.shape != b.shape:
            return f"gives result {i} of shape {tuple(b.shape)} instead of {tuple(a.shape)}"
        largest_scale = rounding_scales(a, a != b).amax() if a.numel() else 0.0
        if not torch.allclose(b, a, 0, float(tolerance * largest_scale), equal_nan=True):
            return f"differs by {(a - b).abs().max():.2g} in result {i}"
    return ""


def _to_complex_tensor(leaf: Any) -> Tensor:
    return torch.as_tensor(leaf).detach().cpu().to(torch.complex128)


def short_error_text(error: BaseException) -> str:
    """Returns the type and the first line of an error, shortened and without paths.

    An error of the ONNX exporter is replaced by its cause.
    """
    while type(error).__module__.startswith("torch.onnx") and error.__cause__ is not None:
        error = error.__cause__
    text = _ANSI.sub("", str(error))
    if "TorchScript interpreter" in text:  # a traceback comes first
        text = text.rpartition("\nRuntimeError: ")[2]
    line = re.sub(r"\S*/[\w./-]*/(\w+\.\w+)", r"\1", text.partition("\n")[0])
    message = f"{type(error).__name__}: {line}"
    return message if len(message) <= 150 else f"{message[:149]}…"
