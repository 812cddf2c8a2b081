"""Compares every function that should equal torch's with torch on a device, on random batches.

The reference is torch's packing, bit for bit; for every method of `pv.run` it is torch's packed RNN
in double precision, and for the helpers it is a loop over the sequences. The error of a method may
be a few times that of torch's own packed run, in float32, with TF32 and under autocast. Nothing may
wait for a GPU.

It needs torch, NumPy and pytest, and nothing from the other tests, so it runs on a bare GPU
machine. See CONTRIBUTING.md.
"""

from __future__ import annotations

import copy
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from packviz.core.spec import Spec
from packviz.measure import rnn_calls
from packviz.ops import masks, original, packing, private, running
from packviz.ops.agreement import full_precision, relative_difference
from packviz.ops.rnn import Ragged
from packviz.ops.tolerance import TOLERANCE

_FARTHER = 4
"""The error of a method, relative to double precision, may be this many times torch's, because both round."""  # noqa: E501

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")


class Pair(NamedTuple):
    """Our results and torch's: tensors, alone or in tuples and lists. If `allowed` is 0, all bits
    must be equal.
    """

    what: str
    ours: Any
    theirs: Any
    allowed: float = 0.0


Pairs = Iterator[Pair]
Check = Callable[[str, random.Random], Pairs]
Call = Callable[[], Any]
Way = Callable[..., Any]
"""A way to run an RNN on a batch, given its lengths and an initial state or `None`."""


def compare(check: str, device: str, seed: int) -> int:
    """Runs a check on random batches from a seed. Returns the number of tensors that it compared.

    Raises:
        AssertionError: something differs by more than is allowed.
    """
    torch.manual_seed(seed)
    compared = 0
    for pair in CHECKS[check](device, random.Random(seed)):
        ours, theirs = _leaves(pair.ours), _leaves(pair.theirs)
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            error = _difference(a, b, bitwise=not pair.allowed)
            assert error <= pair.allowed, f"{pair.what}, tensor {i} is {error:.2g} from torch's"
            compared += 1
    return compared


def _leaves(nested: Any) -> list[Any]:
    """Returns all tensors in nested tuples and lists."""
    if not isinstance(nested, (tuple, list)):
        return [nested]
    return [leaf for part in nested for leaf in _leaves(part)]


def _difference(ours: Tensor | None, theirs: Tensor | None, bitwise: bool) -> float:
    if ours is None or theirs is None:
        return 0.0 if ours is theirs else float("inf")
    if (ours.shape, ours.dtype, ours.device) != (theirs.shape, theirs.dtype, theirs.device):
        return float("inf")
    if not bitwise:
        return relative_difference(ours, theirs)
    bits = (tensor.detach().contiguous().flatten().view(torch.uint8) for tensor in (ours, theirs))
    return 0.0 if torch.equal(*bits) else float("inf")


# Random batches.


def _lengths(rng: random.Random) -> list[int]:
    """Draws one length or many, equal or different, so that packing takes all of its paths."""
    longest = rng.choice([1, 7, 24, 60])
    n = [rng.randint(1, longest) for _ in range(rng.choice([1, 5, 40]))]
    return rng.choice([n, n, n, [longest] * len(n)])


class _Case:
    """An RNN with random options and a batch, to run in several ways."""

    def __init__(self, mode: str, rng: random.Random, dtype: torch.dtype, device: str) -> None:
        kind, _, nonlinearity = mode.partition("_")
        hidden = rng.choice([2, 32, 64, 256])  # cuDNN has special kernels for small ones
        options: dict[str, Any] = {
            "num_layers": rng.randint(1, 2),
            "bidirectional": rng.random() < 0.5,
            "bias": rng.random() < 0.8,
            "batch_first": rng.random() < 0.5,
        }
        if nonlinearity:
            options["nonlinearity"] = nonlinearity
        if kind == "LSTM" and rng.random() < 0.25:
            options["proj_size"] = hidden // 2
        rnn = getattr(nn, kind)(rng.choice([1, 16, 33]), hidden, **options)
        self.rnn = rnn.to(device, dtype)
        self.lengths = _lengths(rng)
        batch = len(self.lengths)
        sizes = [batch, max(self.lengths)]
        shapes = [(*(sizes if rnn.batch_first else sizes[::-1]), rnn.input_size)]
        if rng.random() < 0.5:
            rows = rnn.num_layers * (1 + rnn.bidirectional)
            shapes.append((rows, batch, rnn.proj_size or hidden))
            if kind == "LSTM":
                shapes.append((rows, batch, hidden))
        self.given = [torch.randn(shape).to(device, dtype) for shape in shapes]

    def __str__(self) -> str:
        return f"{Spec.of(self.rnn)} on {len(self.lengths)} sequences of up to {max(self.lengths)} steps"  # noqa: E501

    def double(self) -> _Case:
        """Returns the same case in double precision."""
        other = copy.copy(self)
        other.rnn = copy.deepcopy(self.rnn).double()
        other.given = [tensor.double() for tensor in self.given]
        return other

    def results(self, way: Way, cast: AbstractContextManager[Any]) -> list[Tensor]:
        """Returns the output and states without a graph, then with one, then all gradients."""
        with cast, torch.no_grad():
            alone = self._called(way, self.given)
        leaves = [tensor.detach().clone().requires_grad_() for tensor in self.given]
        with cast:
            results = self._called(way, leaves)
        weights = []
        for tensor in results:  # the same numbers in every dtype
            numbers = torch.arange(tensor.numel(), device=tensor.device).remainder(7).sub(3)
            weights.append(numbers.reshape(tensor.shape).to(tensor.dtype))
        leaves += self.rnn.parameters()
        gradients = torch.autograd.grad(
            results, leaves, weights, allow_unused=True, materialize_grads=True
        )
        return [*alone, *(tensor.detach() for tensor in results), *gradients]

    def _called(self, way: Way, given: Sequence[Tensor]) -> list[Tensor]:
        x, *states = given
        hx = states[0] if len(states) == 1 else tuple(states) or None
        return _leaves(way(self.rnn, x, self.lengths, hx))


def _torchs(rnn: Any, x: Tensor, lengths: Sequence[int], hx: Any) -> Any:
    """Runs torch's own pack → RNN → pad."""
    packed = original.pack_padded_sequence(
        x, torch.tensor(lengths), rnn.batch_first, enforce_sorted=False
    )
    out, final = rnn(packed, hx)
    return original.pad_packed_sequence(out, rnn.batch_first)[0], final


def _run(method: str) -> Way:
    return lambda rnn, x, lengths, hx: running.run(rnn, x, lengths, hx, method=method)


def _ragged(rnn: Any) -> Any:
    """Returns `Ragged` of a copy that shares the parameters, so that they get the gradients."""
    return Ragged(copy.deepcopy(rnn, {id(weight): weight for weight in rnn.parameters()}))


def _by_module(rnn: Any, x: Tensor, lengths: Sequence[int], hx: Any) -> Any:
    return _ragged(rnn)(x, hx, lengths)


_METHODS = {**{method: _run(method) for method in running.METHODS}, "Ragged": _by_module}
_MODES = ("RNN_tanh", "RNN_relu", "GRU", "LSTM")


# The checks.


def _packing(device: str, rng: random.Random) -> Pairs:
    """Compares the two drop-ins, with gradients."""
    for dtype in (torch.float32, torch.float64, torch.float16, torch.int64):
        for first, in_order in product((False, True), repeat=2):
            lengths = sorted(_lengths(rng), reverse=True) if in_order else _lengths(rng)
            shape = rng.choice([(), (3,), (2, 40)])
            x = torch.randn(len(lengths), max(lengths) + 2, *shape).mul(9)
            x[0] *= 0.0  # zeros of both signs
            x = x.to(device, dtype)
            x = x if first else x.transpose(0, 1).contiguous()
            ours = _packed_and_padded(packing, x, lengths, first, in_order)
            theirs = _packed_and_padded(original, x, lengths, first, in_order)
            what = f"{dtype}, lengths {lengths}, {first=}, {in_order=}, result"
            yield Pair(what, ours, theirs)


def _packed_and_padded(
    module: Any, x: Tensor, lengths: list[int], first: bool, in_order: bool
) -> list[Any]:
    """Returns what packing and padding compute, and a gradient for floating-point data."""
    leaf = x.clone().requires_grad_(x.is_floating_point())
    packed: PackedSequence = module.pack_padded_sequence(leaf, lengths, first, in_order)
    y, n = module.pad_packed_sequence(packed, first, 2.0, max(lengths) + 5)
    if not leaf.requires_grad:
        return [*packed, y, n]
    weights = (torch.arange(y.numel()) % 7).reshape(y.shape).to(y)
    return [*packed, y, n, *torch.autograd.grad(y, leaf, weights)]


def _running(
    device: str,
    rng: random.Random,
    *,
    dtype: torch.dtype = torch.float32,
    tf32: bool = False,
    autocast: torch.dtype | None = None,
) -> Pairs:
    """Compares every way to run an RNN, in one precision, with torch in double precision. The
    dtypes are torch's.
    """
    cast = torch.autocast(device.partition(":")[0], autocast) if autocast else nullcontext()
    # Without instructions for bfloat16, torch's own LSTM raises an error under autocast.
    lacks_lstm = autocast and device == "cpu" and not private.has_onednn_bfloat16()
    modes = [mode for mode in _MODES if mode != "LSTM" or not lacks_lstm]
    with full_precision(tf32):
        for mode in modes:
            case = _Case(mode, rng, dtype, device)
            theirs = case.results(_torchs, cast)
            right = case.double().results(_torchs, nullcontext())
            rounding = [relative_difference(t, r) for t, r in zip(theirs, right, strict=True)]
            middle = statistics.median(rounding)
            allowed = [max(_FARTHER * max(r, middle), TOLERANCE[dtype]) for r in rounding]
            for name, way in _METHODS.items():
                ours = case.results(way, cast)
                what = f"{case}, {name}, result"
                kinds = [[(t.shape, t.dtype) for t in results] for results in (ours, theirs)]
                assert kinds[0] == kinds[1], what
                for i, (result, exact) in enumerate(zip(ours, right, strict=True)):
                    yield Pair(f"{what} {i}", result.double(), exact, allowed[i])


def _autocast(device: str, rng: random.Random) -> Pairs:
    """Compares the results under autocast. On a CPU few kernels support float16."""
    for dtype in (torch.bfloat16, *[torch.float16] * device.startswith("cuda")):
        yield from _running(device, rng, autocast=dtype)


def _helper_calls(lengths: list[int], steps: int, device: str) -> dict[str, tuple[Call, Call]]:
    """Returns the everyday helpers with gradients, each with a loop over the sequences."""
    n, x = torch.tensor(lengths), torch.randn(steps, len(lengths), 3).to(device).requires_grad_()
    packed = original.pack_padded_sequence(x.detach(), n, enforce_sorted=False)
    packed = packed._replace(data=packed.data.requires_grad_())
    real = (torch.arange(steps)[:, None] < n).to(device)

    def moved() -> Tensor:
        rows = [torch.cat([row[k:], row[:k]]) for row, k in zip(x.unbind(1), lengths, strict=True)]
        return torch.stack(rows, 1) * real.flip(0)[..., None]

    def pair(ours: Callable[[], Tensor], theirs: Callable[[], Tensor], leaf: Tensor) -> Any:
        return rnn_calls.make_pass(ours, [leaf]), rnn_calls.make_pass(theirs, [leaf])

    return {
        "real_mask": (lambda: masks.real_mask(n.to(device), steps), lambda: real.T),
        "masked_loss": pair(
            lambda: masks.masked_loss(x, n, batch_first=False), lambda: x[real].mean(), x
        ),
        "align": pair(lambda: masks.align(x, n, padding_side="left", batch_first=False), moved, x),
        "unpack_to_length": pair(
            lambda: packing.unpack_to_length(packed, steps),
            lambda: original.pad_packed_sequence(packed, total_length=steps)[0],
            packed.data,
        ),
    }


def _helpers(device: str, rng: random.Random) -> Pairs:
    """Compares the everyday helpers, with gradients, with loops over the sequences."""
    lengths = _lengths(rng)
    for name, (ours, loop) in _helper_calls(
        lengths, max(lengths) + rng.choice([0, 3]), device
    ).items():
        yield Pair(f"{name} of {lengths}", ours(), loop(), 1e-5)


def _waiting(device: str, rng: random.Random) -> Pairs:
    """Checks that nothing waits for a GPU, forward or backward, on a batch with new lengths, by
    torch's own error.
    """
    for mode in _MODES:
        case = _Case(mode, rng, torch.float32, device)
        for name, call in _asked_of_a_gpu(case, device).items():
            before = call()  # allocates memory and loads kernels
            running.clear_caches()
            torch.cuda.set_sync_debug_mode("error")
            try:
                after = call()
            except RuntimeError as error:
                raise AssertionError(f"{case}: {name} waits for the GPU") from error
            finally:
                torch.cuda.set_sync_debug_mode("default")
            yield Pair(f"{case}: {name}, called again", after, before, 1e-3)


def _asked_of_a_gpu(case: _Case, device: str) -> dict[str, Call]:
    n, steps = torch.tensor(case.lengths), max(case.lengths)
    x, on_device = torch.randn(steps, len(n), 3).to(device).requires_grad_(), n.to(device)

    def pack_and_pad() -> Tensor:
        return packing.pad_packed_sequence(
            packing.pack_padded_sequence(x, n, enforce_sorted=False)
        )[0]

    calls: dict[str, Call] = {}
    for name, way in _METHODS.items():
        calls[name] = partial(case.results, way, nullcontext())
    calls |= {name: ours for name, (ours, _) in _helper_calls(case.lengths, steps, device).items()}
    calls["real_mask"] = lambda: masks.real_mask(on_device, steps)
    calls["pack and pad"] = rnn_calls.make_pass(pack_and_pad, [x])
    return calls


def _streams(device: str, rng: random.Random) -> Pairs:
    """Runs a batch on two streams, the first of which is busy when it is to copy the indices."""
    case = _Case(rng.choice(_MODES), rng, torch.float64, device)
    expected = case.results(_torchs, nullcontext())
    for name, way in _METHODS.items():
        running.clear_caches()
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(10**8)
            first = case.results(way, nullcontext())
        with torch.cuda.stream(torch.cuda.Stream()):
            second = case.results(way, nullcontext())
        torch.cuda.synchronize()
        yield Pair(f"{case}: {name} on two streams", [first, second], [expected] * 2, 1e-8)


def _capture(device: str, rng: random.Random) -> Pairs:
    """Captures a CUDA graph of a compiled `Ragged` (by a C compiler), and calls it again."""
    lengths = [1, *_lengths(rng)]
    x = torch.randn(max(lengths), len(lengths), 3, device=device, dtype=torch.float64)
    rnn = nn.LSTM(3, 4).to(x)
    compiled = torch.compile(_ragged(rnn), mode="reduce-overhead", fullgraph=True)
    for _ in range(3):
        lengths.append(lengths.pop(0))
        ours = compiled(x, None, torch.tensor(lengths, device=device))
        yield Pair(f"compiled, {lengths}", ours, _torchs(rnn, x, lengths, None), 1e-8)


CHECKS: dict[str, Check] = {
    "pack and pad, bit for bit": _packing,
    "run, float64": partial(_running, dtype=torch.float64),
    "run, float32": _running,
    "run, TF32": partial(_running, tf32=True),
    "run, autocast": _autocast,
    "helpers": _helpers,
    "nothing waits": _waiting,
    "two streams": _streams,
    "CUDA graphs": _capture,
}
"""The checks. Each draws batches, and yields our results with torch's. The last 3 need a GPU."""

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=cuda)])
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))]
)
@pytest.mark.parametrize("check", CHECKS)
def test_it_is_equal_to_torchs(check: str, seed: int, device: str) -> None:
    if device == "cpu" and check in [*CHECKS][-3:]:
        pytest.skip("needs a GPU")
    assert compare(check, device, seed)
