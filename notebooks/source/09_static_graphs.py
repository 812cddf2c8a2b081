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
# Time: 15 minutes.

# %% [markdown]
# ## Every size is fixed
#
# Some compilers run a network once, on an example. They keep the operators, and the **size of every tensor**. We
# follow a guide for one of them, PyTorch on AWS Neuron (Inf1): *Developer Guide – PyTorch Neuron LSTM Support*.

# %%
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz.lessons import ask, checks

print("torch", torch.__version__.split("+")[0])
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


x, lengths = torch.randn(5, 2, 3), torch.tensor([5, 3])
found = pv.check_static(Network(), (x, lengths))
assert found.rules == ["returned"]
found

# %% [markdown]
# `pv.check_static` runs your module on an example and follows every tensor. It found the line that hands out a
# PackedSequence: its `data` have as many rows as the lengths add up to.
#
# The message is the guide's, with one name put right: the guide has `aten::_pad_packed_input`, which does not exist.

# %%
rows = [len(pack_padded_sequence(x, n).data) for n in ([5, 5], [5, 3], [5, 1])]
assert rows == [10, 8, 6]
assert hasattr(torch.ops.aten, "_pad_packed_sequence")
assert not hasattr(torch.ops.aten, "_pad_packed_input")
print("rows of data:", rows)

# %% [markdown]
# ## Six networks
#
# The rule: a PackedSequence may go into an **RNN** and into **`pad_packed_sequence`**, because there the compiler can
# pad by itself. Nowhere else.
#
# The guide has six networks. First: no packing, no question.

# %%
from packviz.check import networks

print(networks.listing(networks.FixedLength))
found = pv.check_static(networks.FixedLength(), (x,))
assert not found
found

# %% [markdown]
# Second: packed in, padded out, the batch sorted. Supported. There is a warning, though: without `total_length` the
# output is as long as the longest sequence of the batch.

# %%
print(networks.listing(networks.Sorted))
found = pv.check_static(networks.Sorted(), (x, lengths))
assert found.ok
assert found.rules == ["total_length"]
found

# %% [markdown]
# Mended: say how many time steps there are.

# %%
print(networks.listing(networks.FullWidth))
mended = networks.FullWidth()
found = pv.check_static(mended, (x, lengths))
assert not found
assert len(mended(x, torch.tensor([4, 2]))[0]) == 5
found

# %% [markdown]
# Third: unsorted. Supported, but torch now sorts **within** the network, and such a compiler leaves sorting to the
# CPU.
#
# Mended: sort before the network, and `enforce_sorted=True`. A batch of one is always sorted, so there it costs
# nothing to say so.

# %%
print(networks.listing(networks.Unsorted))
found = pv.check_static(networks.Unsorted(), (x, lengths))
assert found.ok
assert found.rules == ["unsorted", "total_length"]
found

# %%
unsorted, n = networks.Unsorted(), torch.tensor([3, 5])
mended.load_state_dict(unsorted.state_dict())
order = n.argsort(descending=True)
found = pv.check_static(mended, (x[:, order], n[order]))
assert not found
output = mended(x[:, order], n[order])[0][:, order.argsort()]  # back in the caller's order
assert torch.equal(output, unsorted(x, n)[0])
found

# %%
one, n = x[:, :1], torch.tensor([3])
sorted_or_not = [pack_padded_sequence(one, n, enforce_sorted=enforce).data for enforce in (True, False)]
assert torch.equal(*sorted_or_not)
found = pv.check_static(networks.Unsorted(), (one, n))
print(found[0])

# %% [markdown]
# Fourth: only the final states are used. Their size never varies, so nothing needs to be padded.

# %%
print(networks.listing(networks.FinalStates))
found = pv.check_static(networks.FinalStates(), (x, lengths))
assert found.rules == ["final_states"]
found

# %% [markdown]
# Fifth: returned. You have met it above. Mended, it is `FullWidth` again: pad before you return. No number is lost:
# packing the padded output gives the same data.

# %%
print(networks.listing(networks.Returned))
returned = networks.Returned()
found = pv.check_static(returned, (x, lengths))
assert found.rules == ["returned"]
mended.load_state_dict(returned.state_dict())
output = mended(x, lengths)[0]
assert torch.equal(pack_padded_sequence(output, lengths).data, returned(x, lengths)[0])
found

# %% [markdown]
# Sixth: used by another operator.

# %%
print(networks.listing(networks.UsedByMax))
found = pv.check_static(networks.UsedByMax(), (x, lengths))
assert found.rules == ["used"]
found

# %% [markdown]
# "Pad it first", says the guide. Careful: padding is 0, and where every output is negative, 0 is the maximum. The
# checker cannot know. Choose a value that the next operator ignores.

# %%
print(networks.listing(networks.MaxOfPadded))
mended_max = networks.MaxOfPadded()
with torch.no_grad():
    mended_max.lstm.bias_hh_l0[14:21] = -9  # the cell input: every output becomes negative
packed = pack_padded_sequence(x, lengths)
with_zeros, _ = pad_packed_sequence(mended_max.lstm(packed)[0])
true_maximum = mended_max.lstm(packed)[0].data.max()
assert with_zeros.max() == 0 > true_maximum
assert mended_max(x, lengths) == true_maximum
pv.check_static(mended_max, (x, lengths))

# %% [markdown]
# ## What packing is for there
#
# Correct final states. **Not time**: the sizes are fixed, so every batch costs what the padded one costs, however
# short its sequences are.

# %%
for n in ([5, 5], [5, 3], [5, 1]):
    count = pv.flops(mended.lstm, n)
    assert count.padded == pv.flops(mended.lstm, [5, 5]).packed
    print(f"lengths {n}: FLOPs packed on a CPU {count.packed:5}, with fixed sizes {count.padded:5}")

# %% [markdown]
# ## Try it
#
# Choose a network, or type a `forward`.
#
# - Use `packed.batch_sizes` for something.
# - Put `self.after` between the LSTM and `pad_packed_sequence`.
# - Return `len(packed.data)`.

# %%
from packviz.explorers import StaticExplorer

explorer = StaticExplorer("PackedSequence used by max")
explorer

# %% [markdown]
# The same from code.

# %%
explorer.code.value = """\
def forward(self, x, lengths):
    packed = pack_padded_sequence(x, lengths)
    mask = torch.arange(5) < packed.batch_sizes.max()
    packed = packed._replace(data=self.before(packed.data))
    return self.lstm(packed)[1]
"""
assert explorer.result.rules == ["batch_sizes", "used"]
print(explorer.result)

# %% [markdown]
# ## Two paths
#
# A page on packing, *RNN Packed Sequences* in the documentation of transformertf, packs only where lengths differ
# enough, to be fast.

# %%
ask("conditional packing")

# %%
print(networks.listing(networks.ConditionalTagger))
found = pv.check_static(networks.ConditionalTagger(), (x, lengths))
assert found.rules[0] == "conditional"
found

# %% [markdown]
# `check_static` runs a network on a second batch if lengths are among its inputs: equal lengths for ragged ones, and
# the other way round. What the two runs do differently, a fixed graph cannot do.

# %% [markdown]
# ## The living relatives
#
# torch has ways of its own to a graph. They differ in what they make of packing.

# %%
ask("which cannot trace packing")

# %%
from packviz.studies import compilers

table = compilers.survey()
cells = table.cells
assert cells["packed, padded again"]["export"].outcome == "error", table.moved
assert cells["packed if ragged"]["jit.trace"].outcome == "WRONG", table.moved
assert cells["… no total_length"]["ONNX, legacy"].outcome == "WRONG", table.moved
assert cells["packed, padded again"]["ONNX, legacy"].outcome == "right", table.moved
table

# %% [markdown]
# Every network here has layers, an LSTM and layers again. Read the table by columns:
#
# - `jit.trace` (deprecated) keeps one of two paths, **without an error**.
# - `export`, and ONNX by it, cannot trace packing at all.
# - The legacy ONNX exporter wants pack and pad in pairs. Unsorted batches are fine, though torch's documentation
#   says otherwise. Without `total_length` it pads to all steps, and torch to the longest: **wrong, without an error**.
# - `torch.compile` is right everywhere. What does it compile?

# %%
ask("what is compiled")

# %%
compiled = {name: row["compile"].compiled for name, row in table.cells.items()}
assert all(row["compile"].outcome == "right" for row in table.cells.values()), table.moved
assert compiled["packed, padded again"] == compiled["only pack disabled"] == 2, table.moved
assert compiled["disabled island"] == compiled["ragged_op"] == 5, table.moved
for name, operators in compiled.items():
    print(f"{name:22}{operators} of 5 operators compiled")

# %% [markdown]
# Where it meets packing, or any LSTM, it gives up on **the rest of that forward**.
#
# The page on packing recommends to disable the function that packs, because of an error that is gone (pytorch #155238, and there
# it was *pad* that failed). It gains nothing: the rest is still lost. What helps is to hide pack, LSTM **and** pad in
# one submodule. Then the layers after it are compiled.


# %%
class PackedLSTM(torch.nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.lstm = torch.nn.LSTM(*sizes)

    @torch.compiler.disable
    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        result, states = self.lstm(packed)
        output, _ = pad_packed_sequence(result, total_length=x.size(0))
        return output, states


# %%
class Model(torch.nn.Module):
    def __init__(self, rnn):
        super().__init__()
        self.rnn, self.head = rnn, torch.nn.Linear(7, 2)

    def forward(self, x, lengths):
        output, _ = self.rnn(torch.tanh(x), lengths)
        return torch.relu(self.head(output))


def count(graph, inputs):  # a backend that counts and runs the graph as it is
    operators.append(sum(node.op.startswith("call") for node in graph.graph.nodes))
    return graph.forward


operators, model = [], Model(PackedLSTM(3, 7))
assert torch.equal(torch.compile(model, backend=count)(x, lengths), model(x, lengths))
print("compiled: graphs of", operators, "operators")
assert sum(operators) == 3  # tanh; linear, relu

# %% [markdown]
# ## One operator
#
# The other way: make pack → RNN → pad **one custom operator**, padded in and padded out. A compiler keeps it as it
# is, like any operator.
#
# `pv.ragged_op` makes one of your RNN: the same parameters under the same names. With it, `fullgraph=True` works, and
# `torch.export` with any batch size and any number of steps.

# %%
lstm = torch.nn.LSTM(3, 7)
model = Model(pv.ragged_op(lstm))
whole = torch.compile(model, backend="eager", fullgraph=True)
assert torch.equal(whole(x, lengths), model(x, lengths))

B, T = torch.export.Dim("B"), torch.export.Dim("T")
shapes = {"x": {0: T, 1: B}, "lengths": {0: B}}
program = torch.export.export(model, (x, lengths), dynamic_shapes=shapes).module()
for steps, given in [(7, [2, 7, 4]), (3, [3, 3]), (9, [1, 9, 5, 5])]:
    other, n = torch.randn(steps, len(given), 3), torch.tensor(given)
    assert torch.equal(program(other, n), model(other, n))
print("compiled as one graph, exported for any B and T")

# %% [markdown]
# Its results are those of pack → RNN → pad, gradients too. (It computes the forward pass again in the backward pass.
# ONNX does not know it.)

# %%
n = torch.tensor([3, 5])  # unsorted
ours, _ = pv.ragged_op(lstm)(x, n)
theirs, _ = pad_packed_sequence(lstm(pack_padded_sequence(x, n, enforce_sorted=False))[0])
assert torch.allclose(ours, theirs, atol=1e-6)
gradients = [torch.autograd.grad(output.sum(), lstm.parameters()) for output in (ours, theirs)]
for one, other in zip(*gradients, strict=True):
    assert torch.allclose(one, other, atol=1e-5)
print("outputs and gradients: equal to rounding")

# %% [markdown]
# ## Does it pay?
#
# That page reports, for one GPU: compiled without packing was the fastest, packed without compiling the slowest, and
# both, with packing disabled for the compiler, came between. (Its findings, not ours.)
#
# The same ways and more, for an encoder–decoder LSTM on a CPU, recorded in one run. All but the padded ones give exact
# results. Predict the fastest of these.

# %%
ask("fastest exact way")

# %%
from packviz.studies import compiled

recorded = compiled.recorded()
(point,) = recorded.points
operator, padded, packed = "compiled, ragged_op", "compiled, padded", "packed"
assert recorded.ratio(point, packed, padded).value > 1
assert recorded.ratio(point, operator, packed).value < 1
recorded

# %% [markdown]
# On that machine compiling changes little: most of the time is the LSTMs', and those `torch.compile` leaves alone.
# Packing is slow for the reasons in 07. The operator runs the fast way of notebook 08 inside.
#
# With a GPU, or larger layers around the LSTM, the order may differ. Measure yours:
# `packviz study compiled --device cuda --out mine.json`.

# %% [markdown]
# ## What people get wrong
#
# - **"It compiles, so it is right."** A trace of a condition compiles. So does an ONNX file that pads to another size.
#   Compare with the network itself, on **other lengths**.
# - **"Disable the packing function and the rest is compiled."** Nothing after it is, in that forward.
# - **"Packing makes it faster on the accelerator."** With fixed sizes it computes every step.
# - **"Pad it first, then take the maximum."** Only with a padding value that cannot win.

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


checks.mended(MyNetwork)

# %% [markdown]
# ## You can now
#
# - tell the uses of a `PackedSequence` that survive: into an RNN, into `pad_packed_sequence`,
# - find the line that does not, and mend it, with a padding value that does no harm,
# - say who cannot trace packing, who compiles half, and who is silently wrong,
# - choose: an island of pack, LSTM and pad, or one operator.
#
# Next: [10 Should you pack?](10_should_you_pack.ipynb). Back:
# [08 Making packing pay](08_making_packing_pay.ipynb) · [00 Start here](00_start_here.ipynb)
