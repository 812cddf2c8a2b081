"""What `check_static` finds, compared with captured networks that run on random other lengths."""

import dataclasses
import inspect
import itertools
import random
import re
import sys
import types
import warnings
from typing import NamedTuple

import numpy as np
import pytest
import torch
from drawings import ParsedSvg
from torch import nn
from torch.nn.utils import rnn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz.check import captures, networks
from packviz.draw.palette import THEMES

T, B = 6, 4
X, LENGTHS = torch.randn(B, T), torch.tensor([5, 3, 6, 2])


def net(forward, **modules):
    """A network with this forward."""
    made = type("Net", (nn.Module,), {"forward": forward})()
    for name, module in modules.items():
        setattr(made, name, module)
    return made


def check(forward, *inputs, backends=("trace",), modules=None, **options):
    return pv.check_static(net(forward, **modules or {}), inputs, backends, **options)


def line_of(function, text):
    """`…/test_static.py, line 7: …` of the line of a function that holds this text."""
    lines, first = inspect.getsourcelines(function)
    ((number, code),) = [(first + i, line.strip()) for i, line in enumerate(lines) if text in line]
    return f"{'/'.join(__name__.split('.'))}.py, line {number}: {code}"


def is_right_for_random_lengths(module, inputs, with_lengths):
    """Whether torch's own trace gives what the module gives for 20 other lengths, some of them all equal."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        traced, drawn = torch.jit.trace(module, inputs, check_trace=False), random.Random(0)
        for i in range(20):
            n = [drawn.randint(1, T)] * B if i % 2 else drawn.choices(range(1, T + 1), k=B)
            given = with_lengths(torch.tensor(n))
            try:
                got, want = traced(*given), module(*given)
            except RuntimeError:
                return False
            pairs = [(got, want)] if isinstance(want, torch.Tensor) else zip(got, want, strict=True)
            if not all(
                a.shape == b.shape and torch.allclose(a, b, atol=1e-5, equal_nan=True)
                for a, b in pairs
            ):
                return False
    return True


# Ways to use a value of the lengths, for `x` of shape (B, T). Whether a trace of one is right is
# found out by running.


def masked_by_list(x, n):  # as in ESPnet
    mask = torch.zeros(len(n), T, dtype=torch.bool)
    for row, k in enumerate(n.tolist()):
        mask[row, k:] = True
    return x.masked_fill(mask, 0)


def longest_by_comparison(x, n):
    longest = 0
    for k in n:
        longest = k if k > longest else longest
    return x * longest


def caught(x, n):
    try:
        return x * [1, 2, 3, 4, 5][n.max()]
    except IndexError:
        return -x


def while_loop(x, n):
    left, k = n.max(), 0
    while left > 0:
        left, k = left - 1, k + 1
    return x * k


def written_by_index(x, n):
    out = torch.zeros_like(x)
    out[torch.arange(B), n - 1] = 1
    return x * out


def steps_with(x, n):
    state = x[:, 0]
    for t in range(x.shape[1]):
        state = torch.where(t < n, state + x[:, t], state)
    return state


def by_batch_sizes(x, n):
    packed = pack_padded_sequence(x[..., None], n, batch_first=True, enforce_sorted=False)
    return torch.stack(
        [part.sum() for part in packed.data.split(packed.batch_sizes.tolist())]
    ).sum()


def padded_to_longest(x, n, total_length=None):
    packed = pack_padded_sequence(x[..., None], n, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(packed, batch_first=True, total_length=total_length)[0]


def cells_of(x, n):
    return pack_padded_sequence(x[..., None], n, batch_first=True, enforce_sorted=False).data


USES = {
    "mask from tolist": masked_by_list,
    "comparison": longest_by_comparison,
    "caught": caught,
    "while": while_loop,
    "written by index": written_by_index,
    "steps with where": steps_with,
    "batch_sizes": by_batch_sizes,
    "padded": padded_to_longest,
    "padded to int": lambda x, n: padded_to_longest(x, n, int(n.max())),
    "data": cells_of,
    "data's mean": lambda x, n: cells_of(x, n).mean(),
    "data's len": lambda x, n: x * len(cells_of(x, n)),
    "data's shape": lambda x, n: x / cells_of(x, n).shape[0],
    "int picks": lambda x, n: torch.stack([x[row, int(k) - 1] for row, k in enumerate(n)]),
    "tolist picks": lambda x, n: torch.stack([x[row, k - 1] for row, k in enumerate(n.tolist())]),
    "tensor picks": lambda x, n: torch.stack([x[row, k - 1] for row, k in enumerate(n)]),
    "python sort": lambda x, n: x[sorted(range(len(n)), key=lambda row: -n[row])],
    "sort of a list": lambda x, n: x[
        torch.tensor(sorted(range(len(n)), key=n.tolist().__getitem__))
    ],
    "tensor of a list": lambda x, n: x / torch.tensor(n.tolist())[:, None],
    "tensor of entries": lambda x, n: x / torch.tensor([int(k) for k in n])[:, None],
    "tensor of tensors": lambda x, n: x / torch.tensor([*n])[:, None],
    "from_numpy": lambda x, n: x / torch.from_numpy(n.numpy().copy())[:, None],
    "new_tensor": lambda x, n: x / x.new_tensor(n.tolist())[:, None],
    "full": lambda x, n: x * torch.full((B, 1), n.max().item()),
    "item": lambda x, n: x * n.max().item(),
    "numpy": lambda x, n: x * float(n.numpy().mean()),
    "array": lambda x, n: x * float(np.asarray(n).sum()),
    "max of tensors": lambda x, n: x * max(n),
    "sum of tensors": lambda x, n: x / sum(n),
    "range": lambda x, n: sum(x[:, t] for t in range(n.max())),
    "slice by item": lambda x, n: x[:, : n.max().item()].sum(1),
    "narrow": lambda x, n: x.narrow(1, 0, int(n.min())),
    "branch on max": lambda x, n: x[:, :3] if n.max() > 4 else x,
    "branch on all": lambda x, n: x * 2 if bool((n == T).all()) else x,
    "branch on equal": lambda x, n: x * 2 if torch.equal(n, n[:1].expand(B)) else x,
    "branch on allclose": lambda x, n: x * 2 if torch.allclose(n.float(), n.float().mean()) else x,
    "branch on unique": lambda x, n: x * 2 if len(n.unique()) == 1 else x,
    "branch on is_nonzero": lambda x, n: x * 2 if torch.is_nonzero(n.max() - n.min()) else x,
    "branch on nonzero": lambda x, n: x * 2 if (n > 4).nonzero().shape[0] else x,
    "membership": lambda x, n: x * 2 if 3 in n else x,
    "and": lambda x, n: x * 2 if n.min() > 1 and n.max() < T else x,
    "float": lambda x, n: x * float(n.float().mean()),
    "split": lambda x, n: torch.split(x.reshape(-1), [*n.tolist(), 24 - int(n.sum())])[0].sum(),
    "format": lambda x, n: x * float(f"{n.max().item()}"),
    "repeat_interleave": lambda x, n: x.repeat_interleave(n, 0),
    "kept in a dict": lambda x, n: x * {3: 1.0, 5: 2.0}.get(int(n[0]), 3.0),
    "argsort in numpy": lambda x, n: x[np.argsort(n.numpy(), kind="stable").copy()],
    "zip": lambda x, n: torch.stack([row[:k].sum() for row, k in zip(x, n, strict=True)]),
    "mask": lambda x, n: x.masked_fill(torch.arange(T) >= n[:, None], 0),
    "mask as wide as the longest": lambda x, n: torch.arange(int(n.max())) < n[:, None],
    "where": lambda x, n: torch.where(torch.arange(T) < n[:, None], x, -1.0).amax(1),
    "gather": lambda x, n: x.gather(1, n[:, None] - 1),
    "slice by a tensor": lambda x, n: x[:, : n.max()].sum(1),
    "index": lambda x, n: x[torch.arange(B), n - 1],
    "boolean index": lambda x, n: x[torch.arange(T) < n[:, None]],
    "tensor sort": lambda x, n: x[n.argsort(descending=True, stable=True)],
    "mean": lambda x, n: x.sum(1) / n,
    "shape alone": lambda x, n: x * n.shape[0] + 0 * n[:, None],
    "printed": lambda x, n: (f"{n}", x / n[:, None])[1],
}


EXAMPLES = (
    [5, 3, 6, 2],
    [6, 5, 3, 1],
    [6, 6, 6, 6],
)  # quickly, every use is traced with one of the first two
TRACED = [(use, i, n, lengths) for i, use in enumerate(USES) for n, lengths in enumerate(EXAMPLES)]


@pytest.mark.parametrize(
    ("use", "lengths"),
    [
        pytest.param(use, lengths, marks=[pytest.mark.slow] * (n != i % 2))
        for use, i, n, lengths in TRACED
    ],
)
def test_ok_means_that_a_trace_is_right_for_other_lengths(use, lengths):
    module = net(
        lambda self, x, n: USES[use](x * self.scale, n), scale=nn.Parameter(torch.tensor(1.5))
    )
    x, n = torch.randn(B, T), torch.tensor(lengths)
    right = is_right_for_random_lengths(module, (x, n), lambda n: (x, n))
    found = pv.check_static(module, (x, n))
    assert found.ok == found.backends[0].same == right
    assert found.backends[0].takes
    if not right:
        assert re.search(r"n \[\d, \d, \d, \d\]$|other numbers in x$", found.backends[0].trial)
        assert "test_static.py, line " in found[0].where
        assert "trace" in found.rules


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    n: object


class Pair(NamedTuple):
    x: torch.Tensor
    n: object


def mask_of(n):
    return torch.arange(T) < n[:, None]


FORMS = {
    "int32": lambda n: n.int(),
    "float": lambda n: n.float(),
    "a column": lambda n: n[:, None],
    "list": lambda n: n.tolist(),
    "tuple": lambda n: tuple(n.tolist()),
    "numpy": lambda n: n.numpy(),
    "parts": lambda n: n / T,
    "a column of parts": lambda n: (n / T)[:, None],
    "mask": mask_of,
    "padding mask": lambda n: ~mask_of(n),
    "mask of floats": lambda n: mask_of(n).float(),
    "mask, time first": lambda n: mask_of(n).T,
    "mask of three axes": lambda n: mask_of(n)[..., None],
    "attention mask": lambda n: mask_of(n)[:, None, None],
    "ids": lambda n: torch.where(mask_of(n), 7, 0),
    "ids padded with 1": lambda n: torch.where(mask_of(n), 7, 1),
    "ids, time first": lambda n: torch.where(mask_of(n), 7, 0).T,
}
KEPT = ("list", "tuple", "numpy")  # which a trace does not take
NESTS = {
    "arguments": (lambda x, n: (x, n), "n"),
    "dict": (lambda x, n: ({"x": x, "n": n},), "batch['n']"),
    "tuple": (lambda x, n: ((x, n),), "batch[1]"),
    "named tuple": (lambda x, n: (Pair(x, n),), "batch.n"),
    "dataclass": (lambda x, n: (Batch(x, n),), "batch.n"),
    "dict of a list": (lambda x, n: ({"x": [x], "n": (n, None)},), "batch['n'][0]"),
}
FEW = [
    *zip(FORMS, itertools.cycle(NESTS)),
    *zip(FORMS, itertools.cycle([*NESTS][3:] + [*NESTS][:3])),
]


@pytest.mark.parametrize(
    ("form", "nest"),
    [
        pytest.param(*pair, marks=[pytest.mark.slow] * (pair not in FEW))
        for pair in itertools.product(FORMS, NESTS)
    ],
)
def test_lengths_are_found_in_any_form(form, nest):
    def forward(self, batch, n=None):
        if isinstance(batch, dict):
            batch, n = batch["x"], batch["n"]
        elif isinstance(batch, (tuple, Batch)):
            batch, n = (batch.x, batch.n) if hasattr(batch, "x") else batch
        batch = batch[0] if isinstance(batch, list) else batch
        n = n[0] if isinstance(n, tuple) and n[-1] is None else n
        numbers = torch.as_tensor(
            n
        ).double()  # a trace keeps this, a number that differs between most lengths
        assert "parts" not in form or numbers.max() <= 1
        return batch * sum((i + 1) * k for i, k in enumerate(numbers.flatten().tolist()))

    wrap, name = NESTS[nest]
    found = check(forward, *wrap(torch.randn(B, T, 3), FORMS[form](LENGTHS)))
    assert not found.ok
    assert "trace" in found.rules
    assert any(f"{name}, as " in note for note in found.notes)
    if form in KEPT:
        assert not found.backends[0].takes
        kind = {"numpy": "an ndarray"}.get(form, f"a {form}")
        assert (
            found.backends[0].message
            == f"it takes only tensors, but {name} is {kind}; give a tensor"
        )


# The kinds of network in public code, and whether a trace of one is right: again found out by
# running.


class Encoder(nn.Module):
    def __init__(self, mode=nn.GRU, **options):
        super().__init__()
        self.rnn = mode(3, 4, batch_first=True, **options)

    def forward(self, x, n):
        packed = pack_padded_sequence(x, n, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=x.shape[1])[
            0
        ]


class OfAList(Encoder):
    def forward(self, x, n):
        return super().forward(x, n.tolist())


class OfAMask(Encoder):
    def forward(self, x, n):
        mask = mask_of(n)
        return (super().forward(x, mask.sum(1)) * mask[..., None]).sum(1)


class TimeFirst(Encoder):
    """Packs batch first for an RNN that is not, which is right, and returns time first."""

    def forward(self, x, n):
        packed = pack_padded_sequence(x, n.cpu(), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(nn.LSTM.__call__(self.rnn, packed)[0])[0]


class Wrapper(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.ModuleDict(
            {"encoder": Encoder(bidirectional=True), "head": nn.Linear(8, 2)}
        )

    def forward(self, x, n):
        return self.inner["head"](self.inner["encoder"](x, n)).amax(1)


class Several(nn.Module):
    """Two directions apart, as in ELMo, and the second layer of another kind."""

    def __init__(self):
        super().__init__()
        self.forwards, self.backwards, self.top = (
            Encoder(),
            Encoder(nn.LSTM),
            nn.GRU(8, 2, batch_first=True),
        )

    def forward(self, x, n):
        index = (
            (n[:, None] - 1 - torch.arange(x.shape[1])).clamp(min=0)[..., None].expand(-1, -1, 3)
        )
        both = torch.cat([self.forwards(x, n), self.backwards(x.gather(1, index), n)], -1)
        packed = pack_padded_sequence(both, n, batch_first=True, enforce_sorted=False)
        return self.top(packed)[1]


class Decoder(nn.Module):
    """Walks over batch_sizes, as decoders with attention do."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 4)

    def forward(self, x, n):
        packed = pack_padded_sequence(x, n, batch_first=True, enforce_sorted=False)
        state, at, states = x.new_zeros(int(packed.batch_sizes[0]), 4), 0, []
        for size in packed.batch_sizes.tolist():
            state = self.cell(packed.data[at : at + size], state[:size])
            states.append(state)
            at += size
        return torch.cat(states)


CAPTURED = {
    "quantized": lambda: torch.ao.quantization.quantize_dynamic(Encoder(nn.LSTM), {nn.LSTM}),
    "scripted": lambda: torch.jit.script(Encoder()),
    "traced": lambda: torch.jit.trace(
        OfAList().eval(), (torch.randn(B, T, 3), LENGTHS), check_trace=False
    ),
}
KINDS = {"encoder": Encoder, "list": OfAList, "mask": OfAMask, "mixed batch_first": TimeFirst, "wrapper": Wrapper,
         "several": Several, "decoder": Decoder} | CAPTURED  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_networks_as_in_public_code(kind):
    module, x = KINDS[kind]().eval(), torch.randn(B, T, 3)
    found = pv.check_static(module, (x, LENGTHS))
    assert found.ok == is_right_for_random_lengths(module, (x, LENGTHS), lambda n: (x, n))
    assert found.ok == (kind not in ("list", "decoder"))
    assert (found.code == ()) == (kind in ("scripted", "traced"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", CAPTURED)
@pytest.mark.parametrize(
    "backend", ["export", pytest.param("compile", marks=pytest.mark.slow), "onnx_legacy"]
)
def test_what_was_captured_before_is_refused_clearly(kind, backend):
    (row,) = pv.check_static(KINDS[kind](), (torch.randn(B, T, 3), LENGTHS), backend).backends
    assert row.takes is False
    assert re.match(r"\w+: .{20}", row.message)


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("nest", [lambda packed: packed, lambda packed: {"packed": packed}])
def test_a_packed_sequence_is_varied(wrong, nest):
    def forward(self, packed):
        packed = packed["packed"] if isinstance(packed, dict) else packed
        (h_n, _), k = (
            self.rnn(packed)[1],
            packed.batch_sizes.tolist()[0] if wrong else packed.batch_sizes[0],
        )
        return h_n * k * (len(packed.batch_sizes.tolist()) if wrong else 1)

    packed = pack_padded_sequence(torch.randn(B, T, 3), [4, 3, 3, 2], batch_first=True)
    found = check(forward, nest(packed), modules={"rnn": nn.LSTM(3, 4)})
    assert "as a PackedSequence" in found.notes[0]
    assert found.ok != wrong
    assert " 0]" not in found.to_text()


def test_lengths_the_network_refuses_are_named_and_are_no_finding():
    def forward(self, x, n):
        return self.rnn(pack_padded_sequence(x, n, batch_first=True))[1]

    rnn = nn.GRU(3, 4, batch_first=True)
    found = check(forward, torch.randn(3, 5, 3), torch.tensor([5, 3, 2]), modules={"rnn": rnn})
    assert found.clean
    assert re.search(
        r"rejected by the network itself: n \[2, 3, 5\]; .*\(RuntimeError\)", "\n".join(found.notes)
    )
    assert (
        " 0]" not in found.to_text()
    )  # packing refuses an empty sequence, which is not worth a word


@pytest.mark.parametrize("form", FORMS)
def test_an_empty_sequence_is_tried_where_the_network_takes_one(form):
    empty = FORMS[form](torch.tensor([5, 3, 6, 0]))

    def forward(self, x, n):
        return x * 2 if np.array_equal(n, empty) else x

    found = check(forward, X, FORMS[form](LENGTHS))
    assert "; n [5, 3, 6, 0]" in found.notes[-2]
    assert not found.ok
    assert form in KEPT or found.backends[0].trial == "n [5, 3, 6, 0]"


def test_a_network_that_gives_nan_for_an_empty_sequence_takes_none():
    def forward(self, x, n):
        mask = torch.arange(x.shape[1]) >= n[:, None]
        return self.layer(x, src_key_padding_mask=mask)

    layer = nn.TransformerEncoderLayer(
        4, 2, 8, batch_first=True
    )  # its export gives other numbers, where eager has NaN
    assert check(
        forward, torch.randn(B, T, 4), LENGTHS, backends="export", modules={"layer": layer}
    ).ok


class Characters(nn.Module):
    """Finds the length of each word in the ids of its characters, and skips words that are padding."""

    def __init__(self, listed=False):
        super().__init__()
        self.embed, self.rnn, self.listed = (
            nn.Embedding(9, 3),
            nn.GRU(3, 4, batch_first=True),
            listed,
        )

    def forward(self, ids):
        mask = ids.ne(0)
        n = mask.sum(-1)
        real = n > 0
        packed = pack_padded_sequence(
            self.embed(ids[real]), n[real].cpu(), True, enforce_sorted=False
        )
        states = self.embed.weight.new_zeros(*ids.shape[:2], 4)
        if self.listed:
            states[real] = self.rnn(packed)[1][0] / n[real][0].item()
        else:
            states[real] = self.rnn(packed)[1][0]
        return states


@pytest.mark.parametrize("listed", [False, True])
def test_the_padding_of_character_ids_is_varied(listed):
    n = torch.tensor([[4, 2, 3], [5, 1, 0]])
    ids = torch.randint(1, 9, (2, 3, 5)) * (torch.arange(5) < n[..., None])
    found = pv.check_static(Characters(listed), (ids,))
    assert found.notes[0] == "lengths: ids, as ids of 6 rows padded with 0"
    assert found.ok != listed
    assert not found.undecided


def test_where_no_lengths_are_found_the_advice_can_be_followed():
    ids = torch.arange(24).view(2, 3, 4)[:, :, [1, 0, 2, 3]] % 5
    found = check(lambda self, ids: ids * 2, ids)
    assert found.undecided
    assert "lengths_at=()" in found[0].fix
    assert check(lambda self, ids: ids * 2, ids, lengths_at=()).ok


def test_where_several_inputs_fit_all_are_varied_and_named():
    def forward(self, x, n, mask, steps):
        return x * mask.sum() * n.sum() / steps.max()

    inputs = torch.rand(B, T), LENGTHS, mask_of(LENGTHS), torch.tensor([3, 2, 5, 1])
    found = check(forward, *inputs)
    assert found.ok
    assert (
        found.notes[0] == "lengths: n, as whole numbers; mask, as a mask; steps, as whole numbers"
    )
    assert "n, mask [5, 3, 6, 2] and steps [3, 2, 5, 1]" in found.notes[1]
    assert check(forward, *inputs, lengths_at="mask").notes[0] == "lengths: mask, as a mask"
    assert (
        check(forward, *inputs, lengths_at=["n", "mask"]).notes[0]
        == "lengths: n, as whole numbers; mask, as a mask"
    )
    assert check(forward, *inputs, lengths_at=()).notes[0] == "lengths: none found"
    with pytest.raises(
        ValueError,
        match="lengths_at names y, where no lengths can be read; the inputs are x, n, mask",
    ):
        check(forward, *inputs, lengths_at="y")
    parts = check(lambda self, x, n: x * n.sum(), torch.randn(B, T, 12), LENGTHS / T)
    assert "may also be lengths, but not tried: n, as parts of 12" in parts.notes


# Undecided.


class Closed:
    __slots__ = ("n",)

    def __init__(self, n):
        self.n = n


def packing_with(lengths_of, *inputs):
    def forward(self, x, *other):
        return self.rnn(
            pack_padded_sequence(x, lengths_of(x, *other), batch_first=True, enforce_sorted=False)
        )[1]

    return check(
        forward, torch.rand(B, T, 3) + 0.1, *inputs, modules={"rnn": nn.GRU(3, 4, batch_first=True)}
    )


def only_these(self, x, n):
    assert n.tolist() == LENGTHS.tolist()
    return x


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (lambda: packing_with(lambda x: LENGTHS), "no input that was varied changed"),
        (
            lambda: packing_with(lambda x: torch.full((B,), x.shape[1])),
            "no input that was varied changed",
        ),
        (
            lambda: packing_with(lambda x, n: torch.tensor([2, 2, 2, 2]), LENGTHS),
            "no input that was varied changed",
        ),
        (
            lambda: packing_with(lambda x, odd: odd.n, Closed(LENGTHS)),
            "no input that was varied changed",
        ),
        (
            lambda: check(
                lambda self, x, n, odd: x / n[:, None], torch.randn(B, T), LENGTHS, Closed(1)
            ),
            "odd is a Cl",
        ),
        (
            lambda: check(lambda self, x, n, odd: x, torch.randn(B, T), LENGTHS, {"a": Closed(1)}),
            r"odd\['a'\] is a C",
        ),
        (
            lambda: check(lambda self, x, odd: x, torch.randn(B, T), iter([1])),
            "odd is a list_iterator",
        ),
        (
            lambda: check(lambda self, x: x + next(COUNT), torch.randn(B, T)),
            "Each run gives a different result",
        ),
        (
            lambda: check(lambda self, x, k: x * k, torch.randn(B, T), 3),
            "No lengths were recognised",
        ),
        (
            lambda: check(only_these, torch.randn(B, T), LENGTHS),
            r"accepts no other lengths: for n \[.*AssertionError",
        ),
    ],
)
def test_undecided_is_never_ok(found, why):
    found = found()
    assert found.rules[0] == "undecided"
    assert not found.ok
    assert found.backends == ()
    assert found.verdict.startswith("Undecided: ")
    assert re.search(why, found[0].message)
    assert "not tried: trace, export" in found.to_text()


COUNT = itertools.count()


def channels_first(self, x, n):  # (B, C, T)
    assert n.max() <= x.shape[2]
    return x.sum(1).gather(1, n[:, None] - 1)


def one_hot(self, x, n, label, weight):  # takes 0 and 1 only
    return x / n[:, None] * nn.functional.one_hot(label, 2).sum() * weight


@pytest.mark.parametrize(
    ("forward", "inputs", "trial"),
    [
        (channels_first, (torch.randn(B, 9, T), LENGTHS), ""),
        (one_hot, (X, LENGTHS, torch.tensor([1, 0, 1, 1]), torch.tensor(0.5)), ""),
        *((lambda self, x, n: x * n.double().sum(), (X, FORMS[one](LENGTHS)), "") for one in FORMS if one not in KEPT),
        (lambda self, x: x if x.sum() > 0 else -2 * x, (torch.ones(B, T),), "other numbers in x"),
        (lambda self, x, n: x.relu() if n.numpy().max() > 4 else x, (0 * X, LENGTHS), "other numbers in x and n ["),
    ],
)  # fmt: skip
def test_no_false_alarm_and_no_false_ok(forward, inputs, trial):
    found = check(forward, *inputs)
    assert found.ok == (not trial)
    assert found.backends[0].trial.startswith(trial)


# Backends.


def test_each_line_that_keeps_a_length_is_named():
    def forward(self, x, n):
        longest = n.max().item()
        total = sum(n.tolist())
        return x * longest + total

    found = check(forward, torch.randn(B, T), LENGTHS)
    assert found.rules == ["trace", "constant"]
    assert [one.where for one in found] == [
        line_of(forward, "n.max().item()"),
        line_of(forward, "n.tolist()"),
    ]
    some = r"(?:other numbers in x and )?n \[\d, \d, \d, \d\]"  # where it shows most depends on x
    assert re.search(
        rf"differs by [\d.]+ for {some}\. The capture keeps what item\(\) reads: 6, but \d for {some}",
        found[0].message,
    )
    assert not [
        code for _, code, _, wrong in found.code if wrong != bool(re.search("item|tolist", code))
    ]


def test_what_a_trace_refuses_is_not_ok():
    module = net(lambda self, x, n: x * n[:, None])
    module.register_full_backward_hook(lambda *_: None)
    found = pv.check_static(module, (torch.randn(B, T), LENGTHS))
    assert not found.ok
    assert found[0].message.startswith(
        "torch.jit.trace rejects the network: ValueError: Modules that have backward"
    )
    assert found.verdict == "torch.jit.trace rejects the network."


RETURNED = {
    "nothing": lambda x, n: None,
    "None": lambda x, n: (x / n[:, None], None),
    "None, nested": lambda x, n: (x, (x / n[:, None], None)),
    "a number": lambda x, n: (x, 3),
    "a word": lambda x, n: {"x": x, "kind": "mean"},
    "a dict": lambda x, n: {"x": x / n[:, None]},
    "a list": lambda x, n: [x, (n,)],
    "a named tuple": lambda x, n: Pair(x, n),
    "a dataclass": Batch,
    "packed": lambda x, n: pack_padded_sequence(x, n, True, False),
    "packed, sorted": lambda x, n: pack_padded_sequence(x, n.sort(descending=True)[0], True),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", RETURNED)
def test_a_trace_takes_what_torch_takes(kind):
    module = net(lambda self, x, n: RETURNED[kind](x, n))
    try:
        taken = bool(torch.jit.trace(module, (X, LENGTHS), check_trace=False, strict=False))
    except RuntimeError:
        taken = False
    found = pv.check_static(module, (X, LENGTHS))
    assert (found.backends[0].takes, found.ok) == (taken, taken)


def branching(self, x, n):
    if n.max() > 4:
        return x * 2
    return x


@pytest.mark.parametrize("backend", ["export", "compile"])
def test_the_line_that_torchs_compilers_refuse(backend):
    found = check(branching, torch.randn(B, T), LENGTHS, backends=backend)
    assert found.rules == [backend]
    assert found[0].where == line_of(branching, "if n.max()")
    assert "rejects the network" in found[0].message


def test_tables_have_a_row_for_each_backend_that_was_asked_for():
    module, inputs = networks.TAGGERS["Ragged"](), networks.example(5, [5, 3, 4])
    found = pv.check_static(module, inputs, ["export", "compile"])
    assert found.ok
    assert [row[:3] for row in found.rows[1:]] == [
        [name, "✓ yes", "✓ yes"] for name in ("export", "compile")
    ]
    assert "not tried: trace, onnx, onnx_legacy, other sizes of batch and time" in found.notes
    with pytest.raises(
        ValueError,
        match="backends is 'jit'; choose one of 'trace', 'export', 'compile', 'onnx', 'onn",
    ):
        pv.check_static(module, inputs, "jit")


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("network", "same"),
    [
        ("packed, padded again", True),
        ("… no total_length", False),
        ("maximum, padded with −inf", False),
        ("maximum, masked", True),
        ("packed if ragged", False),
    ],
)
def test_the_legacy_exporter_is_run(network, same, dynamic):
    pytest.importorskip("onnxruntime")
    inputs = networks.example(5, [5, 3, 4])
    (row,) = pv.check_static(
        networks.TAGGERS[network](), inputs, "onnx_legacy", dynamic=dynamic
    ).backends
    assert (row.takes, row.same) == (True, same)


@pytest.mark.slow
def test_the_new_exporter_is_run():
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    inputs = networks.example(5, [5, 3, 4])
    assert pv.check_static(networks.TAGGERS["padded"](), inputs, "onnx").ok
    assert (
        not pv.check_static(networks.TAGGERS["packed, padded again"](), inputs, "onnx")
        .backends[0]
        .takes
    )
    masked = lambda self, x, n: x * (torch.arange(x.shape[1]) < n[:, None])
    assert check(masked, torch.randn(B, T), LENGTHS, backends="onnx", dynamic=True).ok


@pytest.mark.parametrize("backend", ["trace", "compile", "export", "onnx_legacy"])
def test_other_sizes_are_tried_where_they_are_asked_for(backend):
    def fixed(self, x, n):
        return x * (torch.arange(T) < n[:, None])

    def any_size(self, x, n):
        return x * (torch.arange(x.shape[1]) < n[:, None])

    if backend == "onnx_legacy":
        pytest.importorskip("onnxruntime")
    inputs = torch.randn(B, T), LENGTHS
    for forward, dynamic in ((fixed, False), (any_size, False), (any_size, True)):
        assert check(forward, *inputs, backends=backend, dynamic=dynamic).ok
    found = check(any_size, *inputs, backends=backend, dynamic=True)
    assert "one more sequence; 2 more time steps; n [5, 3, 6, 0]; both together" in " ".join(
        found.notes
    )
    assert "other sizes" not in found.notes[-1]
    found = check(
        lambda self, x: x * 2, inputs[0], backends=backend, dynamic=True
    )  # which axis is the batch?
    assert "one more" not in found.to_text()
    assert "other sizes" in found.notes[-1]
    found = check(
        lambda self, x, n: x * n[:, None] + torch.arange(len(x.tolist())).sum(),
        *inputs,
        dynamic=True,
    )
    assert found.backends[0].trial == "one more sequence"


def test_a_capture_that_refuses_an_empty_sequence_is_a_warning():
    inputs = networks.example(5, [5, 3, 4])
    found = pv.check_static(networks.TAGGERS["Ragged"](), inputs, ["trace", "export"])
    assert (found.ok, found.rules) == (True, ["empty"])  # one operator, whatever it does inside
    said = "accepts lengths [5, 0, 4], but what torch.jit.trace captured raises RuntimeError: Length of"
    assert said in found[0].message
    assert found.verdict == (
        "torch.jit.trace accepts the network and gives the same results, but raises an error for lengths [5, 0, 4]."
        " torch.export accepts the network and gives the same results."
    )


def test_a_trace_on_python_3_14_is_not_tried(monkeypatch):
    monkeypatch.setattr(captures, "sys", types.SimpleNamespace(version_info=(3, 14, 0)))
    found = check(lambda self, x, n: x * n[:, None], torch.randn(B, T), LENGTHS)
    assert not found.ok
    assert found.rows[1][:2] == ["trace", "not tried"]
    assert "does not support Python 3.14; choose another backend" in found[0].message
    assert "not tried: trace, export" in found.notes[-1]


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    found = check(
        lambda self, x, n: x * n[:, None], torch.randn(B, T), LENGTHS, backends="onnx_legacy"
    )
    assert not found.ok
    assert re.search(
        r"onnx\w* is not installed; run python -m pip install onnx onnxruntime", found[0].message
    )
    assert "was not tried" in found.verdict


# Other compilers, which are not run.


@pytest.mark.parametrize(
    ("network", "rules"),
    [
        (networks.FixedLength, []),
        (networks.Sorted, ["total_length"]),
        (networks.Unsorted, ["unsorted", "total_length"]),
        (networks.FinalStates, []),
        (networks.Returned, ["size"]),
        (networks.UsedByMax, ["size"]),
        (networks.MaxOfPadded, []),
        (networks.TAGGERS["padded"], []),
        (networks.TAGGERS["packed, padded again"], ["unsorted"]),
        (networks.TAGGERS["maximum, padded with −inf"], ["unsorted", "padding_value"]),
        (networks.TAGGERS["packed, escaped"], ["unsorted", "size"]),
        (networks.TAGGERS["disabled island"], ["unsorted"]),
    ],
)
def test_what_a_compiler_with_fixed_shapes_refuses(network, rules):
    module = network()
    found = pv.check_static(
        module, networks.example()[: len(inspect.signature(module.forward).parameters)]
    )
    assert found.rules == rules
    assert found.ok
    for finding in found:
        assert finding.level == "warning"
        assert finding.where.startswith("packviz/check/networks.py, line ")
        assert re.search("Inf1, archived|legacy ONNX exporter", finding.message)
    assert ("untried compilers" in found.verdict) == bool(rules)


@pytest.mark.parametrize("value", [0, 0.0, -1, float("nan"), 1e-9, float("-inf")])
@pytest.mark.parametrize("pad", [rnn.pad_packed_sequence, pv.pad_packed_sequence])
def test_every_padding_value_but_0_is_named(pad, value):
    def forward(self, x, n):
        packed = pack_padded_sequence(x, n)
        return pad(packed, False, value, 5)[0]

    found = check(forward, torch.randn(5, 3, 3), torch.tensor([5, 3, 1]))
    assert ("padding_value" in found.rules) == (value != 0)
    if value != 0:
        (finding,) = [one for one in found if one.rule == "padding_value"]
        assert "28423" in finding.message
        assert finding.where == line_of(forward, "pad(packed")
        (code,) = re.findall(r"output\.masked_fill\(.*\)", finding.fix)
        padded = eval(
            code,
            {"pv": pv, "output": torch.full((5, 3, 2), 7.0), "lengths": torch.tensor([5, 3, 1])},
        )
        assert [(padded[:, b] == 7).all(-1).sum() for b in range(3)] == [5, 3, 1]


# How it runs the network.

calls = []  # of `Counting`, whose own lists would be restored


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.norm, self.drop = nn.GRU(3, 4), nn.BatchNorm1d(3), nn.Dropout()
        self.seen, self.cache = [], {}
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("last", None)

    def forward(self, x, lengths):
        assert self.last is None
        self.last = x.mean()
        self.seen.append(len(self.seen))
        self.cache[len(self.cache)] = self.new = x
        x = self.drop(self.norm(x.transpose(1, 2))).transpose(1, 2)
        self.count += 1
        drawn = torch.rand(1).item(), random.random(), np.random.rand()
        calls.append((self.training, torch.is_grad_enabled(), drawn, lengths.tolist()))
        x[0] = float("nan")
        return self.rnn(pack_padded_sequence(x, lengths, enforce_sorted=False))[1] * len(self.seen)


def test_it_leaves_everything_as_it_was():
    calls.clear()
    module = Counting().train()
    module.norm.eval()
    seen, cache, names = module.seen, module.cache, set(vars(module))
    modes = [one.training for one in module.modules()]
    values = {name: value.clone() for name, value in module.state_dict().items()}
    x, lengths = networks.example(5, [5, 3])
    before = (
        x.clone(),
        torch.random.get_rng_state(),
        random.getstate(),
        np.random.get_state()[1].tolist(),
    )
    sys.setprofile(profiler := lambda *event: None)
    try:
        assert pv.check_static(module, (x, lengths)).ok
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)
    assert [one.training for one in module.modules()] == modes
    assert all(torch.equal(value, values[name]) for name, value in module.state_dict().items())
    assert (module.seen, module.cache, set(vars(module))) == ([], {}, names)
    assert module.seen is seen
    assert module.cache is cache
    assert torch.equal(x, before[0])
    assert torch.equal(torch.random.get_rng_state(), before[1])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before[2:]
    # All runs: eval mode, no gradients, the same random numbers, other lengths.
    training, grad, drawn, given = zip(*calls, strict=True)
    assert not any(training)
    assert not any(grad)
    assert len(set(drawn)) == 1
    assert [*dict.fromkeys(map(tuple, given))][:3] == [(5, 3), (3, 3), (5, 5)]
    assert len(calls) <= 40


def test_it_restores_after_a_failure():
    def forward(self, x):
        self.norm(x)
        raise RuntimeError("no such thing")

    module = net(forward, norm=nn.BatchNorm1d(3)).train()
    with pytest.raises(RuntimeError, match="no such thing"):
        pv.check_static(module, (torch.randn(2, 3),))
    assert module.training
    assert not module.norm.num_batches_tracked


def generator(self, x):
    yield x


@pytest.mark.parametrize(
    ("module", "inputs", "error", "message"),
    [
        (networks.Sorted, (LENGTHS,), TypeError, "module is a type; give the nn.Module itself"),
        (
            networks.Sorted(),
            LENGTHS,
            TypeError,
            "example_inputs is a Tensor; give a tuple of the inputs",
        ),
        (
            networks.Sorted(),
            (LENGTHS,),
            ValueError,
            "do not fit Sorted.forward: missing a required argument: 'len",
        ),
        (networks.Sorted(), {"y": LENGTHS}, ValueError, "do not fit Sorted.forward"),
        (
            net(generator),
            (LENGTHS,),
            ValueError,
            r"Net\.forward is a generator or async, so a call runs nothing",
        ),
        (
            nn.LazyLinear(3),
            (LENGTHS,),
            ValueError,
            "LazyLinear has lazy modules without sizes; run it once on a batch",
        ),
    ],
)
def test_wrong_calls(module, inputs, error, message):
    with pytest.raises(error, match=message):
        pv.check_static(module, inputs)


def test_text_and_picture_have_the_table_the_code_and_the_findings():
    found = pv.check_static(networks.ConditionalTagger(), networks.example())
    text = found.to_text()
    assert re.search(r"\ntrace +✓ yes +✗ no +0\.\d+ +.*lengths \[\d, \d\]\n", text)
    assert re.search(r"\n✗ +\d+      if lengths.min\(\) == lengths.max\(\):\n", text)
    for theme in THEMES:
        drawing = ParsedSvg(found.to_svg(theme))
        for part in (
            "✗ ConditionalTagger: 1 error, 1 warning",
            "✗ error: trace",
            "backend",
            "not tried: export",
        ):
            assert drawing.text(part)
        assert all(text.box.right <= drawing.width for text in drawing.texts)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu():
    state, (x, lengths) = torch.cuda.get_rng_state(), networks.example()
    found = pv.check_static(networks.Returned().cuda(), (x.cuda(), lengths))
    assert (found.ok, found.rules) == (True, ["size"])
    assert torch.equal(torch.cuda.get_rng_state(), state)
