"""One point of the forum's experiment: its network and a batch on a device, and the methods that are timed on them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from packviz.bench.study import Contest, How, StoppedError, timed
from packviz.bench.timing import Timing
from packviz.core.worded import first_line
from packviz.ops.running import forget
from packviz.ops.tolerance import apart, full_precision, of_gradients
from packviz.studies.forum import network as forum
from packviz.studies.forum.points import PASSES, At, Parameters, Point, call_name, setup_lengths


def methods(names: Sequence[str]) -> dict[str, forum.Method]:
    """The methods of these names.

    Raises:
        ValueError: there is no such method.
    """
    for name in names:
        if name not in forum.METHODS:
            raise ValueError(f"there is no method {name!r}; there are {', '.join(forum.METHODS)}")
    return {name: forum.METHODS[name] for name in names}


def measure(at: At, how: How) -> Point:
    """Every method in every pass; one that runs out of memory is left out."""
    parameters = Parameters.of(how.parameters)
    missing: dict[str, str] = {}
    names = [call_name(method, which) for method in parameters.methods for which in PASSES]
    while len(missing) < len(names):
        trial = None
        try:
            trial = Trial(parameters, at, how.device)
            calls = {name: trial.call(name) for name in names if name not in missing}
            differences = trial.differences(calls, how.stop)
            contest, seed = Contest(calls, trial.clear), parameters.seed + at.steps
            timing = timed(contest, how, warmup=parameters.warmup, memory=True, seed=seed)
            return Point(at.setup, at.steps, timing, missing, *differences)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                what = trial.running if trial else "the network"
                autocast = f", autocast {parameters.autocast}" if parameters.autocast else ""
                where = f"on {how.device} with dtype {parameters.dtype}{autocast}"
                raise ValueError(f"torch cannot run {what} {where}: {first_line(error)}") from error
            missing |= dict.fromkeys([trial.running] if trial else names, "out of memory")
        del trial  # and with it what fills the memory
        gc.collect()
        if how.device.startswith("cuda"):
            torch.cuda.empty_cache()
    return Point(at.setup, at.steps, Timing({}), missing)


class Trial:
    """A network and a batch on the device, and the calls to time.

    Attributes:
        running: the name of the last call.
    """

    def __init__(self, parameters: Parameters, at: At, device: str) -> None:
        """Makes both."""
        p = parameters
        torch.manual_seed(p.seed)
        network = forum.Network(p.vocabulary, p.features, p.hidden, p.classes)
        self._network: nn.Module = network.to(device, getattr(torch, p.dtype))
        n = setup_lengths(at.setup, p.batch_size, at.steps)
        self._batch = forum.batch(n, at.steps, vocabulary=p.vocabulary, classes=p.classes, seed=p.seed, device=device)
        self._methods, kind = methods(p.methods), torch.device(device).type
        cast = partial(torch.autocast, kind, getattr(torch, p.autocast)) if p.autocast else nullcontext
        self._cast: Callable[[], AbstractContextManager[Any]] = cast
        self._dtype = p.autocast or p.dtype
        self.running = ""

    def clear(self) -> None:
        """What is to be done before each call: in training every batch has fresh gradients, and lengths of its own."""
        self._network.zero_grad()
        forget()

    def call(self, name: str) -> Callable[[], list[Tensor]]:
        """The function to time under this name. It gives the logits; in training also the gradients."""
        method, which = name.rsplit(", ", 1)
        way, network, (ids, lengths, targets) = self._methods[method], self._network, self._batch
        weights = list(network.parameters())

        def forward() -> list[Tensor]:
            self.running = name
            with torch.no_grad(), self._cast():
                return [network(ids, lengths, way)]

        def training() -> list[Tensor]:
            self.running = name
            with self._cast():
                logits = network(ids, lengths, way)
                loss = cross_entropy(logits, targets)
            loss.backward()  # type: ignore[no-untyped-call]
            gradients = (torch.zeros_like(w) if w.grad is None else w.grad for w in weights)
            return [logits.detach(), *gradients]

        return forward if which == "forward" else training

    def differences(
        self, calls: Mapping[str, Callable[[], list[Tensor]]], stop: Callable[[], bool]
    ) -> tuple[dict[str, float], float]:
        """By method, how far its results are from the first method's, relative to these; and what rounding explains."""
        first, *others = self._methods
        found = dict.fromkeys(others, 0.0)
        with full_precision():
            for which in PASSES if others else ():
                right: list[Tensor] = []
                for method in self._methods:
                    if (name := call_name(method, which)) not in calls:
                        continue  # it has run out of memory
                    if stop():
                        raise StoppedError
                    self.clear()
                    results = calls[name]()
                    if method == first:
                        right = results
                    else:
                        pairs = zip(results, right, strict=False)  # none if the first has run out of memory
                        found[method] = max(found[method], *(apart(*pair) for pair in pairs), 0.0)
        return found, of_gradients(getattr(torch, self._dtype))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory has run out: a GPU's, the CPU's, or that of a library underneath."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    said = str(error)
    return any(
        words in said for words in ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED")
    )
