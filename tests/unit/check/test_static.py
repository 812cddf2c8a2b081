"""What `check_static` finds, held against torch's own trace, and what it leaves behind."""

import dataclasses
import inspect
import linecache
import random
import re
import sys
import threading
import warnings
from textwrap import dedent

import numpy as np
import pytest
import torch
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    unpack_sequence,
)

import packviz as pv
from packviz.check import networks
from packviz.check.recorder import operator_name
from packviz.draw.palette import LIGHT, THEMES

X, LENGTHS = networks.example()
HERE = "/".join(__name__.split(".")) + ".py"  # as findings name this file
GUIDES_WORDS = (
    'Operator "aten::{rnn}" consuming a PackedSequence input can only be supported when its corresponding'
    ' PackedSequence output is unused or unpacked using "aten::_pad_packed_sequence".\nFound usage by "{user}"'
)


def net(forward, **modules):
    """A network with this forward; an LSTM if no modules are given."""
    made = type("Net", (nn.Module,), {"forward": forward})()
    for name, module in (modules or {"rnn": nn.LSTM(3, 7)}).items():
        setattr(made, name, module)
    return made


def check(forward, inputs=(X, LENGTHS), **modules):
    return pv.check_static(net(forward, **modules), inputs)


def line_of(function, text):
    """`…/test_static.py, line 7: …` of the line of a function that holds this text."""
    lines, first = inspect.getsourcelines(function)
    ((number, code),) = [(first + i, line.strip()) for i, line in enumerate(lines) if text in line]
    return f"{HERE}, line {number}: {code}"


# The guide's networks.


@pytest.mark.parametrize(
    ("network", "rules"),
    [
        (networks.FixedLength, []),
        (networks.Sorted, ["total_length"]),
        (networks.Unsorted, ["unsorted", "total_length"]),
        (networks.FinalStates, ["final_states"]),
        (networks.Returned, ["returned"]),
        (networks.UsedByMax, ["used"]),
        (networks.FullWidth, []),
        (networks.MaxOfPadded, []),
        (networks.PaddedTagger, []),
        (networks.PackedTagger, ["unsorted"]),
        (networks.MaximumTagger, ["unsorted", "padding_value"]),
        (networks.MaskedMaximumTagger, ["unsorted"]),
        (networks.EscapedTagger, ["used", "unsorted"]),
        (networks.ConditionalTagger, ["conditional", "trace", "unsorted"]),
        (networks.IslandTagger, ["unsorted"]),
        (networks.OperatorTagger, []),
    ],
)
def test_the_networks_have_these_findings(network, rules):
    count = len(inspect.signature(network.forward).parameters) - 1
    found = pv.check_static(network(), (X, LENGTHS)[:count])
    assert found.rules == rules
    assert found.ok == (network in networks.GUIDE[:4] or not {"returned", "used", "conditional"} & set(rules))
    for finding in found:
        assert finding.where.startswith("packviz/check/networks.py, line ")


@pytest.mark.parametrize(("network", "user"), [(networks.Returned, "prim::Return"), (networks.UsedByMax, "aten::max")])
def test_errors_are_in_the_guides_words_with_true_names(network, user):
    (finding,) = pv.check_static(network(), (X, LENGTHS))
    assert finding.message == GUIDES_WORDS.format(rnn="lstm", user=user)
    code = inspect.getsource(network.forward).splitlines()[-1].strip()
    first = inspect.getsourcelines(network.forward)[1]
    assert finding.where == f"packviz/check/networks.py, line {first + 3}: {code}"
    # The name is one that torch has.
    for name in re.findall(r"aten::(\w+)", finding.message):
        assert hasattr(torch.ops.aten, name)
    assert not hasattr(torch.ops.aten, "_pad_packed_input")


@pytest.mark.parametrize("network", networks.REPAIRED)
def test_mended_networks_give_the_same(network):
    mended = networks.REPAIRED[network]()
    original = network()
    original.load_state_dict(mended.state_dict())
    for lengths in ([5, 3], [5, 5], [4, 2], [1, 1]):
        x, n = networks.example(5, lengths)
        ours, theirs = mended(x, n), original(x, n)
        if network is networks.UsedByMax:
            assert torch.equal(ours, theirs)
            continue
        assert torch.equal(ours[1], theirs[1])
        assert torch.equal(ours[2], theirs[2])
        if network is networks.Returned:
            assert torch.equal(pack_padded_sequence(ours[0], n).data, theirs[0])
        else:
            assert torch.equal(ours[0][: max(lengths)], theirs[0])
            assert ours[0][max(lengths) :].eq(0).all()
        assert len(ours[0]) == 5 or network is networks.Returned


# Whatever uses a PackedSequence, under the name that torch's own trace gives it.

USES = {
    "return": lambda packed: packed.data,
    "max": lambda packed: packed.data.max(),
    "torch.max": lambda packed: torch.max(packed.data),
    "add": lambda packed: packed.data + 1,
    "radd": lambda packed: 1 + packed.data,
    "rsub": lambda packed: 1 - packed.data,
    "neg": lambda packed: -packed.data,
    "mul": lambda packed: packed.data * packed.data,
    "matmul": lambda packed: packed.data @ torch.ones(4, 1),
    "select": lambda packed: packed.data[0],
    "slice": lambda packed: packed.data[1:],
    "index": lambda packed: packed.data[torch.tensor([0, 1])],
    "linear": lambda packed: functional.linear(packed.data, torch.ones(2, 4)),
    "relu": lambda packed: torch.relu(packed.data),
    "softmax": lambda packed: functional.softmax(packed.data, 0),
    "transpose": lambda packed: packed.data.transpose(0, 1),
    "eq": lambda packed: packed.data == 0,
    "gt": lambda packed: packed.data > 0,
    "view": lambda packed: packed.data.unsqueeze(0).squeeze(0),
    "to": lambda packed: packed.to(torch.float64).data,
    "double": lambda packed: packed.data.double(),
    "pad": lambda packed: pad_packed_sequence(packed, total_length=5)[0],
}


class AnyUse(nn.Module):
    def __init__(self, mode, layers, bidirectional, enforce_sorted, use):
        super().__init__()
        self.rnn = getattr(nn, mode)(3, 4 // (1 + bidirectional), layers, bidirectional=bidirectional)
        self.enforce_sorted, self.use = enforce_sorted, use

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, enforce_sorted=self.enforce_sorted)
        result, _ = self.rnn(packed)
        return USES[self.use](result)


def users_in_torchs_trace(module):
    """The RNN operator in torch's own trace, and who takes its packed output."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = torch.jit.trace(module, (X, LENGTHS), check_trace=False).inlined_graph
    rnn = next(n for n in graph.nodes() if n.kind().removeprefix("aten::") in ("lstm", "gru", "rnn_tanh"))
    users = {use.user.kind() for use in rnn.outputsAt(0).uses()}
    return rnn.kind(), users - {"aten::_pad_packed_sequence"}


@given(
    st.sampled_from(["LSTM", "GRU", "RNN"]),
    st.integers(1, 2),
    st.booleans(),
    st.booleans(),
    st.sampled_from(list(USES)),
)
def test_users_are_those_of_torchs_own_trace(mode, layers, bidirectional, enforce_sorted, use):
    module = AnyUse(mode, layers, bidirectional, enforce_sorted, use)
    rnn, users = users_in_torchs_trace(module)
    found = pv.check_static(module, (X, LENGTHS))
    errors = found.of("error")
    users = {re.sub("^prim::.*", "prim::Return", user) for user in users}
    assert {re.search('Found usage by "(.*)"', error.message)[1] for error in errors} == users
    assert all(f'Operator "{rnn}"' in error.message for error in errors)
    assert ("unsorted" in found.rules) == (not enforce_sorted)


def test_operator_names_of_what_has_none():
    assert operator_name(functional.multi_head_attention_forward, ()) == (
        "torch.nn.functional.multi_head_attention_forward"
    )
    assert operator_name(torch.Tensor.__and__, ()) == "aten::__and__"
    assert operator_name(torch.Tensor.shape.__get__, ()) == "aten::size"


# Where a PackedSequence may hide.


def test_tensors_of_a_packed_sequence_are_followed():
    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths)
        steps = torch.arange(5) < packed.batch_sizes.max()
        packed = packed._replace(data=self.inner(packed.data))
        result, _ = self.rnn(packed)
        output, _ = pad_packed_sequence(result, total_length=5)
        return output, steps

    found = check(forward, rnn=nn.LSTM(3, 7), inner=nn.Linear(3, 3))
    assert sorted(found.rules) == ["batch_sizes", "used"]
    by_rule = {one.rule: one for one in found}
    assert by_rule["used"].message.endswith('Found usage by "aten::linear"')
    assert by_rule["used"].where == line_of(forward, "self.inner(")
    assert by_rule["batch_sizes"].message.endswith('Found usage by "aten::max"')
    assert by_rule["batch_sizes"].where == line_of(forward, "batch_sizes.max")


def test_one_mistake_is_reported_once():
    def forward(self, x, lengths):
        result, _ = self.rnn(pack_padded_sequence(x, lengths))
        data = torch.relu(result.data)
        return torch.sigmoid(data).mean(), data.max()

    (finding,) = check(forward)
    assert finding.message.endswith('Found usage by "aten::relu"')


def test_a_packed_sequence_may_be_returned_in_a_nest():
    @dataclasses.dataclass
    class Answer:
        packed: PackedSequence

    for wrap in (lambda p: p, lambda p: {"a": [p]}, lambda p: (1, {"b": p.data}), Answer):

        def forward(self, x, lengths, wrap=wrap):
            return wrap(self.rnn(pack_padded_sequence(x, lengths))[0])

        (finding,) = check(forward)
        assert finding.rule == "returned"
        assert finding.where == line_of(forward, "return")


def test_the_return_statement_that_was_run_is_named():
    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths)
        if x.size(0) > 100:
            return None
        return packed

    (finding,) = check(forward)
    assert finding.where == line_of(forward, "return packed")
    assert finding.message.startswith("A PackedSequence can only be used by an RNN or by")


def test_packed_sequences_go_through_nested_modules():
    encoder = net(lambda self, x, n: self.rnn(pack_padded_sequence(x, n)))
    head = net(lambda self, packed: pad_packed_sequence(packed, total_length=5)[0])

    def forward(self, x, lengths):
        packed, _ = self.encoder(x, lengths)
        return self.head(packed)

    assert check(forward, encoder=encoder, head=head).rules == []
    forgot = check(lambda self, x, lengths: self.encoder(x, lengths)[0], encoder=encoder)
    assert forgot.rules == ["returned"]


def test_encoder_and_decoder():
    def forward(self, past, future, past_lengths, future_lengths):
        packed = pack_padded_sequence(past, past_lengths, batch_first=True, enforce_sorted=False)
        _, states = self.encoder(packed)
        packed = pack_padded_sequence(future, future_lengths, batch_first=True, enforce_sorted=False)
        result, _ = self.decoder(packed, states)
        output, _ = pad_packed_sequence(result, batch_first=True, total_length=future.size(1))
        return {"output": output, "states": states}

    inputs = torch.randn(2, 6, 3), torch.randn(2, 4, 3), torch.tensor([4, 6]), torch.tensor([4, 3])
    modules = {"encoder": nn.LSTM(3, 4, 2, batch_first=True), "decoder": nn.LSTM(3, 4, 2, batch_first=True)}
    found = check(forward, inputs, **modules)
    assert found.rules == ["unsorted", "unsorted", "final_states"]
    (flow,) = found.flows
    assert flow.title == "Data flow with past_lengths [4, 6] and future_lengths [4, 3]"
    names = [box.name for box in flow.boxes]
    assert [names[a.source] for a in flow.arrows if names[a.target] == "LSTM"] == [
        "pack_padded_sequence",
        "LSTM",  # the states
        "pack_padded_sequence",
    ]


def test_stacked_rnns_and_several_packs():
    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths)
        a, _ = self.second(self.first(packed)[0])
        b, _ = self.other(packed)
        return pad_packed_sequence(a, total_length=5)[0], pad_packed_sequence(b, total_length=5)[0]

    modules = {"first": nn.GRU(3, 4, bidirectional=True), "second": nn.RNN(8, 2), "other": nn.GRU(3, 2)}
    found = check(forward, **modules)
    assert not found
    links = {
        (found.flows[0].boxes[a.source].detail, found.flows[0].boxes[a.target].detail) for a in found.flows[0].arrows
    }
    owners = {(a.split(",")[0], b.split(",")[0]) for a, b in links}
    assert ("first", "second") in owners
    assert not {("first", "other"), ("second", "other")} & owners


@pytest.mark.parametrize("projection", [{}, {"proj_size": 2}])
def test_every_kind_of_lstm(projection):
    rnn = nn.LSTM(3, 4, 2, bidirectional=True, **projection)
    found = check(networks.FullWidth.forward, lstm=rnn)
    assert not found
    assert check(networks.Returned.forward, lstm=rnn).rules == ["returned"]


def test_a_users_own_subclass_of_lstm():
    class Mine(nn.LSTM):
        def forward(self, x, lengths):
            output, _ = super().forward(pack_padded_sequence(x, lengths))
            return pad_packed_sequence(output, total_length=5)[0]

    assert pv.check_static(Mine(3, 7), (X, LENGTHS)).rules == []


def test_data_without_batch_sizes_are_no_packed_sequence():
    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths)
        return self.rnn(packed.data)[0]

    (finding,) = check(forward)
    assert finding.message.endswith('Found usage by "aten::unsqueeze"')


def test_pack_sequence_and_unpack_sequence():
    def forward(self, sequences):
        result, _ = self.rnn(pack_sequence(sequences, enforce_sorted=False))
        return unpack_sequence(result)

    found = check(forward, ([torch.randn(3, 3), torch.randn(5, 3)],))
    assert found.rules == ["sequences", "sequences", "undecided", "unsorted"]
    assert found[0].where == line_of(forward, "pack_sequence(seq")


def test_a_packed_sequence_as_an_input():
    def forward(self, packed):
        return pad_packed_sequence(self.rnn(packed)[0], total_length=5)[0]

    found = check(forward, (pack_padded_sequence(X, LENGTHS),))
    assert found.rules == ["given", "undecided"]
    assert found.flows[0].to_text().splitlines()[2] == "  LSTM (rnn, line {}) ⇐ packed".format(
        line_of(forward, "return").split("line ")[1].split(":")[0]
    )


# What other lengths would do.


def conditional(self, x, lengths):
    if lengths.min() == lengths.max():
        _, (h_n, _) = self.rnn(x)
    else:
        _, (h_n, _) = self.rnn(pack_padded_sequence(x, lengths))
    return torch.tanh(h_n)


@pytest.mark.parametrize("lengths", [[5, 3], [5, 5], [2, 1], [2, 2]])
def test_conditional_packing_is_found_from_either_side(lengths):
    found = check(conditional, networks.example(5, lengths))
    assert found.rules[0] == "conditional"
    assert found[0].where == line_of(conditional, "if lengths")
    assert "pack_padded_sequence (line " in found[0].message
    assert len(found.flows) == 2
    assert sum("PackedSequence" in flow.to_text() and "⇐ pack" in flow.to_text() for flow in found.flows) == 1
    assert "value" not in found.rules


CONDITIONS = {
    "all": lambda x, lengths: bool((lengths == x.size(0)).all()),
    "min": lambda x, lengths: bool(lengths.min() >= x.size(0)),
    "tolist": lambda x, lengths: min(lengths.tolist()) == x.size(0),
    "unique": lambda x, lengths: len(lengths.unique()) == 1,
}


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("lengths", [[6, 3, 4], [5, 5, 5], [6, 6, 6], [2, 1, 1]])
def test_packing_unless_the_batch_is_full(condition, lengths):
    def forward(self, x, lengths):
        if CONDITIONS[condition](x, lengths):
            output, _ = self.rnn(x)
        else:
            result, _ = self.rnn(pack_padded_sequence(x, lengths, enforce_sorted=False))
            output, _ = pad_packed_sequence(result, total_length=x.size(0))
        return output, len(output)

    found = check(forward, networks.example(6, lengths))
    assert found.rules.count("conditional") == 1
    assert found.rules[0] == "conditional"
    assert found[0].where == line_of(CONDITIONS[condition], "lambda")
    assert found[0].fix == "Run the same for all lengths: pack always, or never."
    assert len(found.flows) == 2


def test_a_loop_over_batch_sizes():
    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths)
        h, start = torch.zeros(2, 4), 0
        for b in packed.batch_sizes.tolist():
            rows = packed.data[start : start + b]
            h = torch.cat([self.cell(rows, h[:b]), h[b:]])
            start += b
        return h

    found = check(forward, cell=nn.GRUCell(3, 4))
    assert found.rules == ["conditional", "batch_sizes", "used", "trace"]  # each once, not at every step
    assert found[0].where == line_of(forward, "for b in")
    assert "pack" not in found[0].fix


def test_layers_in_a_loop_that_pack_on_one_line():
    def forward(self, x, lengths):
        for layer in self.layers:
            result, _ = layer(pack_padded_sequence(x, lengths, enforce_sorted=False))
            x, _ = pad_packed_sequence(result, total_length=5)
        return x

    assert check(forward, layers=nn.ModuleList(nn.GRU(3, 3) for _ in range(3))).rules == ["unsorted"]


def test_a_condition_on_a_list_of_lengths():
    def forward(self, x, lengths):
        if min(lengths) == max(lengths):
            return self.rnn(x)[0]
        return pad_packed_sequence(self.rnn(pack_padded_sequence(x, lengths))[0], total_length=5)[0]

    assert check(forward, (X, [5, 5])).rules[0] == "conditional"
    assert set(check(forward, (X, [5, 3])).rules) == {"conditional", "constant", "trace"}


def test_sizes_that_depend_on_the_lengths():
    def forward(self, x, lengths):
        mask = torch.arange(5)[:, None] < lengths
        cut = x[: lengths.max()]
        return x[mask].mean(), cut.sum(0)

    found = check(forward)
    assert [one.rule for one in found] == ["size", "size"]
    assert {one.where for one in found} == {line_of(forward, "cut = "), line_of(forward, "x[mask]")}
    said = " ".join(one.message for one in found)
    assert "(8, 3) with lengths [5, 3], (6, 3) with lengths [3, 3]" in said
    assert "(5, 2, 3) with lengths [5, 3], (3, 2, 3) with lengths [3, 3]" in said


def test_lengths_in_a_nest():
    def forward(self, batch):
        packed = pack_padded_sequence(batch["x"], batch["lengths"][0])
        more = pack_padded_sequence(batch["x"], batch["lengths"][1])
        _, states = self.rnn(packed)
        return states, self.rnn(more)[1], batch["x"][: batch["lengths"][0].max()]

    batch = {"x": X, "lengths": [LENGTHS, torch.tensor([2, 2])], "labels": torch.tensor([7, 0])}
    found = check(forward, (batch,))
    assert found.rules == ["size", "final_states", "final_states"]
    given = "batch['lengths'][0] [5, 3] and batch['lengths'][1] [2, 2]"
    assert found.flows[0].title == f"Data flow with {given}"
    assert "batch['lengths'][0] [3, 3] and batch['lengths'][1] [2, 1]" in found[0].message


def test_values_read_in_python():
    def forward(self, x, lengths):
        longest = int(lengths.max())
        result, _ = self.rnn(pack_padded_sequence(x, lengths))
        return pad_packed_sequence(result, total_length=longest)[0]

    found = check(forward)
    assert found.rules == ["size", "trace"]
    assert found[1].where == line_of(forward, "int(")
    assert found[1].message.endswith("It keeps what int() reads: 5, and 3 there.")


def test_a_constant_may_be_read():
    def forward(self, x):
        return x * self.scale.item()

    made = net(forward)
    made.register_buffer("scale", torch.tensor(2.0))
    assert not pv.check_static(made, (X,))


def test_lengths_that_are_no_tensor():
    def forward(self, x, lengths):
        return self.rnn(pack_padded_sequence(x, lengths))[1]

    assert check(forward, (X, [5, 3])).rules == ["constant", "trace", "final_states"]
    assert check(forward, (X, (5, 3))).rules == ["constant", "trace", "final_states"]


def test_lengths_within_a_mask():
    def forward(self, x, mask):
        return self.rnn(pack_padded_sequence(x, mask.sum(0)))[1]

    found = check(forward, (X, torch.ones(5, 2)))
    assert found.rules == ["final_states"]
    assert found.flows[0].title == "Data flow with mask for lengths [5, 5]"


def test_a_network_that_fails_on_other_lengths():
    def forward(self, x, lengths):
        assert lengths[0] != lengths[1], "ragged only"
        return self.rnn(pack_padded_sequence(x, lengths))[1]

    found = check(forward)
    assert found.rules == ["value", "fails", "final_states"]  # not once more for [5, 5]
    assert found[1].message == "It fails with lengths [3, 3]: AssertionError: ragged only"


def test_a_batch_of_one_is_always_sorted():
    x, lengths = networks.example(5, [3])
    found = pv.check_static(networks.Unsorted(), (x, lengths))
    (finding,) = [one for one in found if one.rule == "unsorted"]
    assert finding.fix == "A batch of one is always sorted: pass enforce_sorted=True."
    for enforce_sorted in (True, False):
        assert torch.equal(pack_padded_sequence(x, lengths, enforce_sorted=enforce_sorted).data, x[:3, 0])


def test_sorting_by_hand():
    def forward(self, x, lengths):
        ranked, order = torch.sort(lengths, descending=True)
        _, h = self.rnn(pack_padded_sequence(x[:, order], ranked))
        return h[:, order.argsort()]

    found = check(forward, (X, LENGTHS.flip(0)), rnn=nn.GRU(3, 4))
    assert found.rules == ["unsorted", "unsorted", "final_states"]
    assert [one.where for one in found[:2]] == [line_of(forward, "torch.sort"), line_of(forward, "argsort")]
    assert ['"aten::sort"' in found[0].message, '"aten::argsort"' in found[1].message] == [True, True]


@pytest.mark.parametrize("wide", [False, True])
def test_packviz_packs_and_pads_too(wide):
    def ours(self, x, lengths):
        packed = pv.pack_padded_sequence(x, lengths, enforce_sorted=False)
        return pv.pad_packed_sequence(self.rnn(packed)[0], total_length=x.size(0))

    def returned(self, x, lengths):
        return self.rnn(pv.pack_padded_sequence(x, lengths, enforce_sorted=False))[0].data

    # So large a batch packviz packs in a way of its own.
    inputs = (torch.randn(128, 64, 160), torch.randint(1, 129, (64,))) if wide else (X, LENGTHS.flip(0))
    rnn = nn.GRU(inputs[0].size(2), 160)
    found = check(ours, inputs, rnn=rnn)
    assert found.rules == ["unsorted"]
    assert [box.kind for box in found.flows[0].boxes] == ["input", "input", "pack", "rnn", "pad", "output"]
    assert check(returned, inputs, rnn=rnn).rules == ["returned", "unsorted"]


def test_packvizs_run_cuts_by_the_lengths():
    def forward(self, x, lengths):
        return pv.run(self.rnn, x, lengths, total_length=5)[0]

    found = check(forward)
    assert found.rules == ["constant"]
    assert found[0].where == line_of(forward, "pv.run")
    assert "packviz.ragged_op" in found[0].fix


def test_what_is_only_printed_is_passed_over(capsys):
    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths)
        print(packed.data.shape, packed.batch_sizes, lengths.max().item(), f"{packed.data.sum():.3f}")
        said = f"{packed.data} {packed!r}"
        return self.rnn(packed)[1], said

    assert check(forward).rules == ["final_states"]
    assert "torch.Size([8, 3]) tensor([2, 2, 2, 1, 1]) 5" in capsys.readouterr().out


def test_in_place_functions_called_by_keyword():
    def forward(self, x, lengths):
        weight = torch.empty(3, 3)
        nn.init.uniform_(weight)
        x = functional.relu_(input=x @ weight)
        torch._foreach_add_([x], 1)
        result, _ = nn.GRU(3, 4)(pack_padded_sequence(x, lengths))
        return functional.relu_(input=result.data)

    (finding,) = check(forward)
    assert finding.rule == "used"
    assert finding.message.endswith('Found usage by "aten::relu_"')


def test_padding_that_nobody_reads():
    def forward(self, x, lengths):
        result, (h_n, _) = self.rnn(pack_padded_sequence(x, lengths))
        _padded, _ = pad_packed_sequence(result)
        return h_n

    (finding,) = check(forward)
    assert finding.rule == "unused"
    assert finding.where == line_of(forward, "_padded, _")


# How it runs the network.


calls = []  # of `Counting`, whose own lists would be restored


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 4)
        self.norm, self.drop = nn.BatchNorm1d(3), nn.Dropout()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x, lengths):
        x = self.drop(self.norm(x.transpose(1, 2))).transpose(1, 2)
        self.seen += 1
        calls.append((self.training, torch.is_grad_enabled(), torch.rand(1).item(), lengths.tolist()))
        x[0] = float("nan")
        return self.rnn(pack_padded_sequence(x, lengths))[1]


def test_it_leaves_everything_as_it_was():
    calls.clear()
    module = Counting().train()
    module.norm.eval()
    modes = [one.training for one in module.modules()]
    values = {name: value.clone() for name, value in module.state_dict().items()}
    buffers = dict(module.named_buffers())
    x, lengths, state = X.clone(), LENGTHS.clone(), torch.random.get_rng_state()
    pv.check_static(module, (x, lengths))
    assert [one.training for one in module.modules()] == modes
    assert all(torch.equal(value, values[name]) for name, value in module.state_dict().items())
    assert all(buffers[name] is buffer for name, buffer in module.named_buffers())
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(x, X)
    assert torch.equal(lengths, LENGTHS)
    assert torch.is_grad_enabled()
    assert all(p.grad is None for p in module.parameters())
    # All runs: eval mode, no gradients, the same random numbers.
    training, grad, drawn, given = zip(*calls, strict=True)
    assert not any(training)
    assert not any(grad)
    assert len(set(drawn)) == 1
    assert [*dict.fromkeys(map(tuple, given))][:3] == [(5, 3), (3, 3), (5, 5)]


def test_random_numbers_of_python_and_numpy_are_the_same_in_every_run():
    drawn = []

    def forward(self, x, lengths):
        drawn.append((random.random(), np.random.rand()))
        return self.rnn(pack_padded_sequence(x, lengths))[1]

    state, numpys = random.getstate(), np.random.get_state()[1].tolist()
    check(forward)
    assert len(drawn) > 2
    assert len(set(drawn)) == 1
    assert random.getstate() == state
    assert np.random.get_state()[1].tolist() == numpys


def test_buffers_that_were_none_or_not_there():
    def forward(self, x, lengths):
        assert self.last is None
        self.last = x.mean()
        self.register_buffer("new", x.mean())
        return self.rnn(pack_padded_sequence(x, lengths))[1]

    module = net(forward)
    module.register_buffer("last", None)
    assert pv.check_static(module, (X, LENGTHS)).rules == ["final_states"]
    assert dict(module._buffers) == {"last": None}


def test_it_restores_after_a_failure():
    def forward(self, x, lengths):
        self.norm(x.transpose(1, 2))
        raise RuntimeError("no such thing")

    module = net(forward, norm=nn.BatchNorm1d(3)).train()
    with pytest.raises(RuntimeError, match="no such thing"):
        pv.check_static(module, (X, LENGTHS))
    assert module.training
    assert module.norm.training


def test_what_a_module_keeps_is_given_back():
    def forward(self, x, lengths):
        self.seen.append(len(self.seen))
        self.cache[len(self.cache)] = self.last = x
        return self.rnn(pack_padded_sequence(x, lengths))[1] * len(self.seen)

    module = net(forward)
    module.seen, module.cache = seen, cache = [], {}
    assert pv.check_static(module, (X, LENGTHS)).rules == ["final_states"]
    assert (module.seen, module.cache) == ([], {})
    assert module.seen is seen
    assert module.cache is cache
    assert not hasattr(module, "last")


def test_a_check_costs_some_twenty_runs():
    runs = []

    def fixed(self, x, lengths):
        runs.append(0)
        return self.rnn(x)[0]

    check(fixed)
    assert len(runs) <= 20


def test_the_profiler_of_the_caller_stays(monkeypatch):

    calls = []
    sys.setprofile(lambda *event: calls.append(event))
    try:
        mine = sys.getprofile()
        pv.check_static(networks.Sorted(), (X, LENGTHS))
        assert sys.getprofile() is mine
    finally:
        sys.setprofile(None)


def test_inputs_by_name():
    found = pv.check_static(networks.Returned(), {"lengths": LENGTHS, "x": X})
    assert found.rules == ["returned"]
    assert found.flows[0].boxes[0].name in ("x", "lengths")


def generator(self, x, lengths):
    yield x


async def later(self, x, lengths):
    return x


async def both(self, x, lengths):
    yield x


@pytest.mark.parametrize("forward", [generator, later, both])
def test_a_forward_that_runs_nothing_when_called(forward, recwarn):
    with pytest.raises(ValueError, match=r"Net\.forward is a generator or async: a call runs nothing; use return"):
        check(forward)
    assert not recwarn.list


@pytest.mark.parametrize(
    ("module", "inputs", "error", "said"),
    [
        (networks.Sorted, (X,), TypeError, "module is a type; give the nn.Module itself"),
        (networks.Sorted(), X, TypeError, "example_inputs is a Tensor; give a tuple of the inputs"),
        (networks.Sorted(), pack_padded_sequence(X, LENGTHS), TypeError, "example_inputs is a PackedSequence"),
        (networks.Sorted(), 5, TypeError, "example_inputs is a int"),
        (networks.Sorted(), (X,), ValueError, "do not fit Sorted.forward: missing a required argument: 'lengths'"),
        (networks.Sorted(), {"y": X}, ValueError, "do not fit Sorted.forward"),
    ],
)
def test_wrong_calls(module, inputs, error, said):
    with pytest.raises(error, match=said):
        pv.check_static(module, inputs)


# Text and picture.


def test_text_and_picture_mark_the_offending_arrow():
    found = pv.check_static(networks.UsedByMax(), (X, LENGTHS))
    said = found.to_text()
    assert said == repr(found)
    assert "⇐ LSTM (8, 7) ✗ aten::max" in said
    for theme in THEMES:
        drawing = ParsedSvg(found.to_svg(theme))
        assert drawing.text("✗ aten::max")
        assert drawing.text("✗ error: used")
        assert drawing.text("✗ UsedByMax under fixed shapes: 1 error")
    assert LIGHT.wrong in found.to_svg()
    assert LIGHT.wrong not in pv.check_static(networks.FullWidth(), (X, LENGTHS)).to_svg()


def test_code_stands_beside_the_data_flow_its_lines_marked():
    found = pv.check_static(networks.Unsorted(), (X, LENGTHS))
    code = dedent(inspect.getsource(networks.Unsorted.forward)).splitlines()
    assert [line.code for line in found.code.lines] == code
    assert [line.mark for line in found.code.lines] == ["", "!", "", "!", ""]
    assert [box.mark for box in found.flows[0].boxes] == ["", "", "!", "", "!", ""]
    drawing = ParsedSvg(found.to_svg())
    (box,) = [text.box for text in drawing.texts if text.said == "pad_packed_sequence"]
    assert drawing.text("output, _ = pad").box.right < box.x
    mistaken = pv.check_static(networks.UsedByMax(), (X, LENGTHS))
    assert [(line.mark, line.wrong) for line in mistaken.code.lines][3] == ("✗", True)
    assert not any(box.mark for box in mistaken.flows[0].boxes)  # its arrow has the mark
    sizes = [(arrow.packed, arrow.size) for arrow in found.flows[0].arrows]
    assert sizes == [
        (False, ""),
        (False, ""),
        (True, "(8, 3)"),
        (True, "(8, 7)"),
        (False, "2 × (1, 2, 7)"),
        (False, "(5, 2, 7)"),
    ]


def test_code_that_is_long_or_cannot_be_read_is_left_out():
    def forward(self, x, lengths):
        return self.rnn(pack_padded_sequence(x, lengths))[1]

    assert check(forward).code is not None

    def made(file, lines):
        names = {"pack_padded_sequence": pack_padded_sequence}
        exec(compile("\n".join(lines), file, "exec"), names)
        return names["forward"]

    lines = dedent(inspect.getsource(forward)).splitlines()
    assert check(made("<gone>", lines)).code is None
    lines[1:1] = ["    x = x + 1"] * 30
    linecache.cache["<long>"] = (1, None, [f"{line}\n" for line in lines], "<long>")
    assert check(made("<long>", lines)).code is None


def test_large_networks_are_drawn_without_what_packs_nothing():
    def forward(self, x, lengths):
        for _ in range(20):
            x = torch.tanh(x)
        result, _ = self.rnn(pack_padded_sequence(x, lengths))
        output = pad_packed_sequence(result, total_length=5)[0]
        for _ in range(20):
            output = torch.tanh(output)
        return output

    (flow,) = check(forward).flows
    assert [box.name for box in flow.boxes] == [
        "x",
        "lengths",
        "pack_padded_sequence",
        "LSTM",
        "pad_packed_sequence",
        "return",
    ]
    assert flow.title == "Data flow with lengths [5, 3]; 40 calls that touch no PackedSequence are left out"
    pairs = {(flow.boxes[a.source].name, flow.boxes[a.target].name) for a in flow.arrows}
    assert ("x", "pack_padded_sequence") in pairs
    assert ("pad_packed_sequence", "return") in pairs


def test_what_goes_nowhere_is_not_drawn():
    def forward(self, x, lengths):
        x.sum().exp()
        return self.rnn(pack_padded_sequence(x, lengths))[1]

    assert {box.name for box in check(forward).flows[0].boxes} == {
        "x",
        "lengths",
        "pack_padded_sequence",
        "LSTM",
        "return",
    }


def test_source_of_a_network_is_as_one_would_type_it():
    assert networks.source(networks.FinalStates) == (
        "def forward(self, x, lengths):\n"
        "    packed = pack_padded_sequence(x, lengths)\n"
        "    _, (h_n, c_n) = self.lstm(packed)\n"
        "    return h_n, c_n\n"
    )


def test_examples_leave_torchs_random_numbers_alone():
    state = torch.random.get_rng_state()
    networks.example()
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu():
    module = networks.Returned().cuda()
    state = torch.cuda.get_rng_state()
    found = pv.check_static(module, (X.cuda(), LENGTHS))
    assert found.rules == ["returned"]
    assert torch.equal(torch.cuda.get_rng_state(), state)


def test_lengths_may_be_an_array():
    found = pv.check_static(networks.Unsorted(), (X, LENGTHS.numpy()))
    assert "constant" in found.rules


class Lazy(nn.Module):
    """Its first two modules get their sizes from the first batch that they see."""

    def __init__(self):
        super().__init__()
        self.norm, self.wide, self.rnn = nn.LazyBatchNorm1d(), nn.LazyLinear(3), nn.LSTM(3, 7)

    def forward(self, x, lengths):
        x = self.wide(self.norm(x.transpose(1, 2)).transpose(1, 2))
        return pad_packed_sequence(self.rnn(pack_padded_sequence(x, lengths))[0])


def test_a_lazy_module_stays_lazy():
    module = Lazy()
    found = pv.check_static(module, (X, LENGTHS))
    assert found.rules == ["total_length"]
    assert isinstance(module.norm, nn.LazyBatchNorm1d)
    assert all(map(torch.nn.parameter.is_lazy, [*module.norm.parameters(), module.norm.running_mean, module.wide.bias]))
    module(X, LENGTHS)  # from here on it has sizes
    assert pv.check_static(module, (X, LENGTHS)).to_text() == found.to_text()


def test_a_lazy_module_that_cannot_be_copied_is_to_be_run_first():
    module = Lazy()
    module.lock = threading.Lock()
    with pytest.raises(ValueError, match=r"^Lazy has modules without sizes yet, and cannot be copied; run it once on"):
        pv.check_static(module, (X, LENGTHS))
    module(X, LENGTHS)
    assert pv.check_static(module, (X, LENGTHS)).rules == ["total_length"]


def test_an_example_that_does_not_fit_is_named():
    def forward(self, x, lengths):
        return self.rnn(pack_padded_sequence(x, lengths))[1]

    B, T = len(LENGTHS), len(X)
    far = [T + 4, *LENGTHS.tolist()[1:]]
    for lengths in (far, torch.tensor(far)):
        said = rf"^lengths\[0\] is {T + 4}, too much for a length: the batch has {T} time steps$"
        with pytest.raises(ValueError, match=said) as raised:
            check(forward, (X, lengths))
        assert isinstance(raised.value.__cause__, RuntimeError)
    with pytest.raises(ValueError, match=r"^x is a NumPy array; give torch.from_numpy\(x\)$"):
        check(forward, (X.numpy(), LENGTHS))
    with pytest.raises(RuntimeError, match="must be sorted"):  # what is wrong is said already
        check(forward, (X, LENGTHS.flip(0)))
    with pytest.raises(RuntimeError, match="mine"):
        check(lambda self, x, lengths, labels: fail("mine"), (X, LENGTHS, torch.tensor([T + 1] * B)))

    def takes_arrays(self, x, lengths):
        return self.rnn(pack_padded_sequence(torch.from_numpy(x), lengths))[1]

    assert check(takes_arrays, (X.numpy(), LENGTHS)).ok


def fail(said):
    raise RuntimeError(said)


def test_what_nobody_uses_can_go():
    def forward(self, x, lengths):
        self.rnn(pack_padded_sequence(x, lengths))
        return x * 2

    (found,) = check(forward)
    assert (found.rule, found.message) == ("unused", "Nothing uses what LSTM gives: it can go.")
    assert found.where == line_of(forward, "self.rnn")
