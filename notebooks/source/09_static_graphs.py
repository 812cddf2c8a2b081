# %% [markdown]
# # Static graphs
#
# **What does a compiler make of a packed sequence?**
#
# After this page you can
#
# - say which uses of a `PackedSequence` survive a compiler that fixes every size,
# - find the line that does not, and mend it,
# - tell what `torch.compile`, `torch.export` and ONNX do with packing, and where they are silently wrong,
# - choose a pattern that compiles.
#
# Time: 20 minutes.

# %% [markdown]
# ## Every size is fixed
#
# Some compilers run a network once, on an example. They keep its operators (a *graph*), and the **size of every
# tensor**. We follow a guide for one of them, PyTorch on AWS Neuron (Inf1), a chip for running trained networks:
# *Developer Guide – PyTorch Neuron LSTM Support*. The guide is archived, because the chip is no longer supported. Its
# rules are those of any compiler that fixes every size.

# %%
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz.lessons import ask, checks

ask("a size that varies")


# %%
class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(input_size=3, hidden_size=7)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths)
        result, _ = self.lstm(packed)
        return result.data


torch.manual_seed(0)
x, lengths = torch.randn(5, 2, 3), torch.tensor([5, 3])
pv.check_static(Network(), (x, lengths))

# %% [markdown]
# `pv.check_static` captures your module on the example, by `torch.jit.trace` unless you ask for more, and runs the
# result and the module itself on other lengths. Here both give the same. It also compares the sizes: 8 rows are returned
# here, and another number for other lengths. That is what a compiler with fixed shapes refuses, and the `!` marks the
# line.

# %% tags=["claims"]
found = pv.check_static(Network(), (x, lengths))
assert found.ok
assert found.rules == ["size"]
assert [len(pack_padded_sequence(x, n).data) for n in ([5, 5], [5, 3], [5, 1])] == [10, 8, 6]

# %% [markdown]
# ## Where it may go
#
# The rule: a PackedSequence may go into an **RNN** and into **`pad_packed_sequence`**, because there the compiler can
# put a padded tensor in its place. Nowhere else.
#
# The guide's networks that pack, checked:

# %%
from packviz.check import networks

for network in [networks.Sorted, networks.Unsorted, networks.FinalStates, networks.Returned, networks.UsedByMax]:
    found = pv.check_static(network(), (x, lengths))
    print(network.__name__, found.rules)

# %% tags=["claims"]
rules = {network: pv.check_static(network(), (x, lengths)).rules for network in networks.GUIDE[1:]}
assert rules == {
    networks.Sorted: ["total_length"],
    networks.Unsorted: ["unsorted", "total_length"],
    networks.FinalStates: [],
    networks.Returned: ["size"],
    networks.UsedByMax: ["size"],
}
assert not pv.check_static(networks.FixedLength(), (x,))

# %% [markdown]
# `FinalStates` returns only `h_n` and `c_n`. Their size never varies, so nothing has to be padded.
#
# `Unsorted` is taken, with two warnings, and `Sorted` with one of them. Where do they come from?

# %%
pv.check_static(networks.Unsorted(), (x, lengths))

# %% [markdown]
# Mended: sort outside, and say how many time steps there are. The results stay the same.

# %%
print(networks.source(networks.FullWidth))
unsorted, mended, n = networks.Unsorted(), networks.FullWidth(), torch.tensor([3, 5])
mended.load_state_dict(unsorted.state_dict())
order = n.argsort(descending=True)
print(pv.check_static(mended, (x[:, order], n[order])).headline)
output = mended(x[:, order], n[order])[0][:, order.argsort()]  # back in the caller's order
print("the same output:", torch.equal(output, unsorted(x, n)[0]))

# %% tags=["claims"]
assert not pv.check_static(mended, (x, lengths))
assert len(mended(x, torch.tensor([4, 2]))[0]) == 5
assert torch.equal(output, unsorted(x, n)[0])
one = [pack_padded_sequence(x[:, :1], [3], enforce_sorted=enforce).data for enforce in (True, False)]
assert torch.equal(*one)  # a batch of one is always sorted
returned = networks.Returned()
mended.load_state_dict(returned.state_dict())
assert torch.equal(pack_padded_sequence(mended(x, lengths)[0], lengths).data, returned(x, lengths)[0])

# %% [markdown]
# `UsedByMax` takes the maximum of the packed data. "Pad it first", says the guide. Careful: padding is 0, and where
# every output is negative, 0 is the maximum.

# %%
torch.manual_seed(0)
lstm = networks.UsedByMax().lstm
with torch.no_grad():
    lstm.bias_hh_l0[14:21] = -9  # the cell input: every output becomes negative
result, _ = lstm(pack_padded_sequence(x, lengths))
for value in (0.0, float("-inf")):
    padded, _ = pad_packed_sequence(result, padding_value=value)
    print(f"maximum {result.data.max():.2g}; padded with {value}: {padded.max():.2g}")

# %% [markdown]
# With `padding_value=float("-inf")` torch gives the right maximum. But the legacy ONNX exporter, which we meet below,
# **ignores `padding_value`** and pads with 0 ([pytorch#28423](https://github.com/pytorch/pytorch/issues/28423)): there
# the maximum is 0 again, without an error. So pad with 0, and mask by the lengths. That is right everywhere:

# %%
print(networks.source(networks.MaxOfPadded))
network = networks.MaxOfPadded()
network.lstm = lstm
print(f"maximum {network(x, lengths):.2g}")
print(pv.check_static(network, (x, lengths)).headline)

# %% tags=["claims"]
assert pad_packed_sequence(result)[0].max() == 0 > result.data.max()
assert network(x, lengths) == result.data.max()
assert not pv.check_static(network, (x, lengths))
infinite = pv.check_static(networks.MaximumTagger(), (x, lengths)).rules
assert infinite == ["unsorted", "padding_value"]

# %% [markdown]
# ## What packing is for there
#
# Correct final states. **Not time**: the sizes are fixed, so every batch costs what the padded one costs, however
# short its sequences are.

# %%
for n in ([5, 5], [5, 3], [5, 1]):
    count = pv.flops(mended.lstm, n)
    print(f"lengths {n}: {count.packed} FLOPs packed on a CPU, {count.padded} with fixed sizes")

# %% [markdown]
# ## Try it
#
# Choose a network, or type a `forward`.
#
# - Use `packed.batch_sizes` for something.
# - Put `self.before` between packing and the LSTM, as 05 does: `packed._replace(data=self.before(packed.data))`.
#   In plain PyTorch that is exact and cheap. Here it is a use of the packed data.
# - Return `len(packed.data)`.

# %%
from packviz.explorers import StaticExplorer

StaticExplorer("PackedSequence used by max")

# %% tags=["claims"]
typed = StaticExplorer()
typed.code.value = """\
def forward(self, x, lengths):
    packed = pack_padded_sequence(x, lengths)
    mask = torch.arange(5) < packed.batch_sizes.max()
    packed = packed._replace(data=self.before(packed.data))
    return self.lstm(packed)[1]
"""
assert typed.result.rules == ["size", "size"]

# %% [markdown]
# ## Two paths
#
# *RNN Packed Sequences*, a page in the documentation of transformertf, a forecasting library, packs only where lengths
# differ enough, to be fast.

# %%
ask("conditional packing")

# %%
torch.manual_seed(0)
pv.check_static(networks.ConditionalTagger(), (x, lengths))

# %% [markdown]
# The trace takes the network, and is wrong for other lengths, without an error. The table says for which. Two runs on
# different lengths were recorded and compared, which shows the line where Python reads a value of the lengths. A trace
# keeps that value. If no other lengths can be tried, the verdict is *undecided*, and never `ok`.
#
# `pv.check_static(…, backends=["trace", "export", "compile", "onnx", "onnx_legacy"])` tries all of torch's compilers.

# %% [markdown]
# ## torch's own compilers
#
# torch has ways of its own to a graph. `jit.trace` records what one example does. `export` records a graph for all
# inputs: it runs the network on stand-ins, tensors with a shape and no values. ONNX is a file format for graphs.
# `torch.compile` makes a graph of each part that it can; with `fullgraph`, of everything or nothing.
#
# Every network in the table is built as the one above, there *packed if ragged*: two operators, an LSTM, three more.
# *Maximum* takes the largest output over time before the three. *Escaped* hands packed data to the three. *Disabled*
# parts are kept from `torch.compile`; the last two lines are explained below.

# %%
ask("which cannot trace packing")

# %%
ask("what is compiled")

# %%
from packviz.studies import compilers

table = compilers.survey()
table

# %% [markdown]
# Read it by columns:
#
# - `jit.trace` (deprecated) keeps one of two paths, **without an error**.
# - `export`, and the new ONNX exporter, which uses it, cannot trace packing at all.
# - The legacy ONNX exporter (`dynamo=False`) wants pack and pad in pairs. Unsorted batches are fine, though torch's
#   documentation says otherwise. Without `total_length` it pads to all steps, and torch to the longest; and it ignores
#   `padding_value`: both times **wrong, without an error**. A mask by the lengths is right.
# - `torch.compile` is right everywhere, and mostly compiles 2 of the 5 operators around the LSTM: where it meets packing,
#   or any LSTM, it gives up on **the rest of that forward**.
#
# To disable the compiler for the function that packs, as transformertf's page does, gains nothing. What helps is to hide
# pack, LSTM **and** pad in one submodule, as below. Then the layers after it are compiled.

# %% tags=["claims"]
cells = table.cells
compiled = {name: row["compile"].compiled for name, row in cells.items()}
assert all(row["compile"].outcome == "right" for row in cells.values())
if not table.moved:
    assert cells["packed, padded again"]["export"].outcome == "error"
    assert cells["packed if ragged"]["jit.trace"].outcome == "WRONG"
    assert cells["… no total_length"]["ONNX, legacy"].outcome == "WRONG"
    assert cells["packed, padded again"]["ONNX, legacy"].outcome == "right"
    assert cells["maximum, padded with −inf"]["ONNX, legacy"].outcome == "WRONG"
    assert cells["maximum, masked"]["ONNX, legacy"].outcome == "right"
    assert compiled["packed, padded again"] == compiled["only pack disabled"] == 2
    assert compiled["disabled island"] == compiled["Ragged"] == 5


# %%
class PackedLSTM(torch.nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.lstm = torch.nn.LSTM(*sizes)

    @torch.compiler.disable
    def forward(self, x, lengths, total_length):
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        result, states = self.lstm(packed)
        output, _ = pad_packed_sequence(result, total_length=total_length)
        return output, states


# %% [markdown]
# ## One operator
#
# The other way: make pack → RNN → pad **one custom operator**, padded in and padded out. A compiler keeps it as it
# is, like any operator.
#
# `pv.Ragged(rnn)` is `pv.run` as a module, with your RNN's parameters under their names. To a compiler it is one
# operator: `fullgraph=True` works, and `torch.export` with any batch size and any number of steps.


# %%
class Model(torch.nn.Module):
    def __init__(self, rnn):
        super().__init__()
        self.rnn, self.head = rnn, torch.nn.Linear(7, 2)

    def forward(self, x, lengths):
        output, _ = self.rnn(torch.tanh(x), lengths, total_length=x.shape[0])
        return torch.relu(self.head(output))


model = Model(pv.Ragged(torch.nn.LSTM(3, 7)))
whole = torch.compile(model, backend="eager", fullgraph=True)  # "eager" needs no C++ compiler
other, n = torch.randn(9, 4, 3), torch.tensor([1, 9, 5, 5])
print("one graph, the same output:", torch.equal(whole(other, n), model(other, n)))

# %%
B, T = torch.export.Dim("B"), torch.export.Dim("T")
shapes = {"x": {0: T, 1: B}, "lengths": {0: B}}
program = torch.export.export(model, (x, lengths), dynamic_shapes=shapes).module()
print("exported, the same output on a larger batch:", torch.equal(program(other, n), model(other, n)))

# %% [markdown]
# Its results are those of pack → RNN → pad, gradients too, to rounding. (It computes the forward pass again in the
# backward pass. ONNX does not know it.)

# %% tags=["claims"]
graphs, island = [], Model(PackedLSTM(3, 7))


def count_operators(graph, inputs):
    graphs.append(sum(node.op.startswith("call") for node in graph.graph.nodes))
    return graph.forward


assert torch.equal(torch.compile(island, backend=count_operators)(x, lengths), island(x, lengths))
assert graphs == [1, 2]  # tanh; linear, relu
assert torch.equal(whole(other, n), model(other, n))
assert torch.equal(program(other, n), model(other, n))
ours, _ = pv.Ragged(lstm)(x, n := torch.tensor([3, 5]))
theirs, _ = pad_packed_sequence(lstm(pack_padded_sequence(x, n, enforce_sorted=False))[0])
assert torch.allclose(ours, theirs, atol=1e-6)
gradients = [torch.autograd.grad(output.sum(), lstm.parameters()) for output in (ours, theirs)]
assert all(torch.allclose(*pair, atol=1e-5) for pair in zip(*gradients, strict=True))

# %% [markdown]
# ## Does it pay?
#
# transformertf's page reports, for one GPU: the fastest was compiled and not packed, the slowest packed and not compiled;
# both, with packing disabled for the compiler, came between. (Its findings, not ours.)
#
# The same ways and more, for an encoder–decoder LSTM on a CPU, recorded in one run. (*Helpers* are the functions that
# pack and pad.) All but the padded ones give exact results. Predict the fastest of these.

# %%
ask("fastest exact way")

# %%
from packviz.studies import compiled

recorded = compiled.recorded()
recorded

# %% [markdown]
# On that machine compiling changes little: most of the time is the LSTMs', and those `torch.compile` leaves alone.
# Packing is slow for the reasons in 07. The operator runs the fast way of notebook 08 inside.
#
# With a GPU, or larger layers around the LSTM, the order may differ. Measure it on your machine:
# `packviz study compiled --device cuda --out mine.json`.

# %% tags=["claims"]
(point,) = recorded.points
operator, padded, packed = "compiled, Ragged", "compiled, padded", "packed"
assert recorded.ratio(point, packed, padded).value > 1
assert recorded.ratio(point, operator, packed).value < 1

# %% [markdown]
# ## What people get wrong
#
# - **"It compiles, so it is right."** A trace of a condition compiles. So does an ONNX file that pads to another size.
#   Compare with the network itself, on **other lengths**.
# - **"Disable the packing function and the rest is compiled."** Nothing after it is, in that forward.
# - **"Packing makes it faster on the accelerator."** With fixed sizes it computes every step.
# - **"Pad it first, then take the maximum."** Only after masking the padding with a value that cannot win.

# %% [markdown]
# ## Exercise
#
# This network hands out its PackedSequence. Make it return the padded output instead, `(T, B, 7)`, zeros after each
# sequence's end: always all `T` time steps of `x`.
#
# The check draws **your** network.


# %% tags=["exercise"]
class MyNetwork(networks.Network):
    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths)
        output, _ = self.lstm(packed)
        # solution
        output, _ = pad_packed_sequence(output, total_length=x.size(0))
        # end solution
        return output


checks.repaired_network(MyNetwork)

# %% [markdown]
# ## You can now
#
# - tell the uses of a `PackedSequence` that survive: into an RNN, into `pad_packed_sequence`,
# - find the line that does not, and mend it, with a mask where padding does harm,
# - say who cannot trace packing, who compiles half, and who is silently wrong,
# - choose: an island of pack, LSTM and pad, one operator, or for ONNX the legacy exporter, with `total_length` and
#   masks.
#
# Next: [10 Should you pack?](10_should_you_pack.ipynb). Back:
# [08 Making packing pay](08_making_packing_pay.ipynb) · [00 Start here](00_start_here.ipynb)
