"""Implements the commands `packviz diagnose`, `check` and `patched`. The commands import torch only when they run."""

from __future__ import annotations

import argparse
import errno
import importlib.util
import inspect
import os
import runpy
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from packviz.core import lengths
from packviz.core.has_text import first_line
from packviz.core.layout import Layout


def add_diagnose(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `packviz diagnose` to the parser."""
    add = parser.add_argument
    add(
        "file",
        metavar="FILE",
        help="a .pt, .npz or .npy file with the padded batch x, or with x and lengths",
    )
    add(
        "--lengths",
        nargs="+",
        metavar="N",
        help="the length of each sequence, or a file with them (default: in FILE)",
    )
    add(
        "--batch-first",
        action=argparse.BooleanOptionalAction,
        help="whether x is (B, T, …) or (T, B, …) (default)",
    )
    add("--strict", action="store_true", help="exit with status 1 on a warning, too, not only on an error or if"
        " the data cannot be judged")  # fmt: skip
    parser.set_defaults(run=_diagnose)


def _diagnose(options: argparse.Namespace) -> int:
    from packviz.check.batches import diagnose

    x, n = _batch(options.file)
    n = lengths.read(" ".join(options.lengths)) if options.lengths else n
    if n is None:
        raise ValueError(f"{options.file} contains no lengths; give them, as in --lengths 5 3 2")
    with _complaining(TypeError), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        found = diagnose(x, n, options.batch_first)
    for one in caught:
        print(f"packviz: {one.message}", file=sys.stderr)
    print(found)
    return int(not found.ok or (options.strict and bool(found.of("warning"))))


def _batch(path: str) -> tuple[Any, Any]:
    """Loads `x` and the lengths from a file that torch or NumPy saved. Missing lengths become `None`."""
    import torch

    suffix = Path(path).suffix.lower()
    if not Path(path).exists():
        raise ValueError(f"cannot read {path}: {os.strerror(errno.ENOENT)}")
    if suffix not in (".pt", ".pth", ".npz", ".npy"):
        raise ValueError(
            f"{path} is not a .pt, .npz or .npy file; save the batch with torch.save or numpy.savez"
        )
    try:
        if suffix.startswith(".pt"):
            held = torch.load(path, map_location="cpu", weights_only=True)
        else:
            held = np.load(path, allow_pickle=False)
            held = dict(held) if suffix == ".npz" else held
    except Exception as error:  # errors of pickle, zip files, torch and numpy, some of which suggest unsafe options
        raise ValueError(
            f"cannot read {path}: it is damaged, or holds more than tensors and arrays"
        ) from error
    if isinstance(held, Mapping):
        if "x" not in held:
            names = ", ".join(map(str, held)) or "nothing"
            raise ValueError(f"{path} contains {names}; name the batch x, and its lengths lengths")
        held = held["x"], held.get("lengths")
    x, n = held if isinstance(held, (tuple, list)) and len(held) == 2 else (held, None)
    if isinstance(x, np.ndarray) and x.dtype.kind not in "biufc":
        raise ValueError(f"{path} contains x as {x.dtype}; give numbers")
    with _complaining(TypeError):
        return torch.from_numpy(x) if isinstance(x, np.ndarray) else x, n


EXECUTED = (
    "The file is EXECUTED, and so is everything that it imports. Use only code that you trust."
)
"""The warning in the help of `packviz check` and `packviz patched`."""

UNTRIED = 3
"""The exit status of `packviz check` if nothing is known to be wrong, but not everything could be tried."""

_FACTORY = (
    "write a function without arguments and give it instead: def example(): return {}, (x, lengths)"
)


def add_check(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `packviz check` to the parser."""
    add = parser.add_argument
    parser.epilog = (
        f"{EXECUTED} The exit status is 0 if every backend accepts the network and gives the same results, 1 if"
        f" one does not, and {UNTRIED} if nothing is wrong but something could not be tried."
    )
    add("target", metavar="MODULE:NAME", help="a network, or a function that returns (network, example_inputs), such"
        " as package.module:name or path/file.py:name")  # fmt: skip
    add("--lengths", nargs="+", metavar="N", default=["5", "3", "2"], help="the lengths of the example that is made up"
        " for a network without inputs (default: 5 3 2)")  # fmt: skip
    add("--backends", nargs="+", metavar="NAME", default=["trace"], help="any of trace (the default), export, compile,"
        " onnx and onnx_legacy")  # fmt: skip
    add(
        "--lengths-at",
        nargs="*",
        metavar="NAME",
        help="the inputs that contain lengths, if they are not found",
    )
    add(
        "--dynamic",
        action="store_true",
        help="try other batch sizes and numbers of time steps, too",
    )
    parser.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> int:
    from torch import nn

    from packviz.check.recorder import shown_path
    from packviz.check.static import check_static

    n = Layout(lengths.read(" ".join(options.lengths))).lengths.tolist()
    target, home = _named(options.target)
    about = advice = ""
    with _complaining(Exception, f"{options.target}: "):
        if not isinstance(target, nn.Module) and callable(target):
            parameters = inspect.signature(target).parameters.values()
            variable = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
            if needed := [
                one.name
                for one in parameters
                if one.default is one.empty and one.kind not in variable
            ]:
                call = f"{target.__name__}({', '.join(f'{one}=…' for one in needed)})"
                raise ValueError(f"it needs {', '.join(needed)}; {_FACTORY.format(call)}")
            target = target()
        if isinstance(target, nn.Module):
            target = target, _example(target, n)
            about = f"on an example made up for it, x of shape {tuple(target[1][0].shape)}: "
            advice = (
                "; if your batches look different, give a function that returns (network, inputs)"
            )
        if not isinstance(target, tuple) or len(target) != 2:
            name = type(target).__name__
            raise TypeError(
                f"expected a network, or a function that returns (network, inputs), but got {name}"
            )
        with _complaining(Exception, about, advice):
            found = check_static(
                *target, options.backends, dynamic=options.dynamic, lengths_at=options.lengths_at
            )
    typed, shown = options.target.rpartition(":")[0], shown_path(home.__file__, home.__name__)
    if typed.endswith(".py"):  # name the file as the user typed it
        found = replace(
            found,
            found=tuple(replace(one, where=one.where.replace(shown, typed, 1)) for one in found),
        )
    print(found)
    if found.ok:
        return 0
    return (
        UNTRIED
        if found.undecided or all(one.same or one.takes is None for one in found.backends)
        else 1
    )


def add_patched(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `packviz patched` to the parser."""
    parser.epilog, parser.usage = EXECUTED, "packviz patched [-h] [--] FILE ..."
    parser.add_argument("target", metavar="FILE", help="the program, as for `python FILE`, with its own arguments after"
        " it")  # fmt: skip
    parser.set_defaults(run=_patched)


def patched_arguments(arguments: list[str]) -> tuple[list[str], list[str] | None]:
    """Splits the arguments of `packviz patched` after the name of the program.

    The second part belongs to the program: without the split, the parser would take the program's
    options for packviz's own. For other commands, the second part is `None`.
    """
    if arguments[:1] != ["patched"]:
        return arguments, None
    end = next(
        (i for i, word in enumerate(arguments[1:], 2) if not word.startswith("-")), len(arguments)
    )
    return arguments[:end], arguments[end:]


def _patched(options: argparse.Namespace) -> None:
    """Prepares the program to run after this command, so that the program keeps its own errors and exit status."""
    from packviz.ops.patching import patch_torch

    if not Path(options.target).exists():
        raise ValueError(f"cannot run {options.target}: {os.strerror(errno.ENOENT)}")

    def program() -> None:
        sys.argv = [options.target, *options.rest]
        if not sys.flags.safe_path:  # as `python FILE` does; until now, the entry was packviz's own
            sys.path[0] = os.path.dirname(os.path.realpath(options.target))
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        with patch_torch():
            runpy.run_path(options.target, run_name="__main__")

    options.program = program


def _named(target: str) -> tuple[Any, Any]:
    """Returns the object named by `package.module:name` or `path/file.py:name`, and the module that contains it."""
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise ValueError(
            f"{target} is not MODULE:NAME, such as package.module:name or path/file.py:name"
        )
    path = Path(place).resolve()
    root, parts = (path.parent, [path.stem]) if place.endswith(".py") else (Path.cwd(), [place])
    while (
        place.endswith(".py") and (root / "__init__.py").exists()
    ):  # a file in a package is imported as part of it
        root, parts = root.parent, [root.name, *parts]
    with _complaining((Exception, SystemExit), f"cannot import {place}: "):
        sys.path.insert(0, str(root))
        if len(parts) > 1 or parts == [place]:
            module: Any = importlib.import_module(".".join(parts).removesuffix(".__init__"))
        else:
            form: Any = importlib.util.spec_from_file_location(
                place, path
            )  # a name that no other module has
            module = sys.modules[form.name] = importlib.util.module_from_spec(form)
            form.loader.exec_module(module)
    if not hasattr(module, name):
        raise ValueError(f"{place} has no {name}")
    return getattr(module, name), module


def _example(network: Any, n: list[int]) -> tuple[Any, ...]:
    """Returns a batch that fits a network's embedding or first RNN, and the lengths if the network takes them."""
    import torch

    rnn = next((one for one in network.modules() if isinstance(one, torch.nn.RNNBase)), None)
    if rnn is None:
        raise TypeError(
            "it has no RNN to make an example for; give a function that returns (network, inputs)"
        )
    embeds = next((one for one in network.modules() if isinstance(one, torch.nn.Embedding)), None)
    x = torch.randn(len(n), max(n), rnn.input_size)
    if embeds is not None:  # token ids, padded with 0, so that they can be read as lengths
        ids = 1 + torch.arange(max(n)) % max(1, embeds.num_embeddings - 1)
        x = (ids * (torch.arange(max(n)) < torch.tensor(n)[:, None])).clamp(
            max=embeds.num_embeddings - 1
        )
    x = x if rnn.batch_first else x.transpose(0, 1)
    second = [*inspect.signature(network.forward).parameters.values()][1:2]
    takes = any("len" in one.name or one.default is one.empty for one in second)
    return (x, torch.tensor(n)) if takes else (x,)


@contextmanager
def _complaining(errors: Any, before: str = "", after: str = "") -> Iterator[None]:
    """Turns an error from other code into a one-line `ValueError`, which the command prints."""
    try:
        yield
    except errors as error:
        line = first_line(error)
        if not isinstance(error, (TypeError, ValueError)):
            line = f"{type(error).__name__}: {line}"
        raise ValueError(before + (line.rstrip(".") + after if after else line)) from error
