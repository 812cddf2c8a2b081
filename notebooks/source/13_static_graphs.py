# %% [markdown]
# # Static graphs
#
# **What do compilers and exporters make of a model that packs, and are their results right?**
#
# After this notebook, you can
#
# - tell whether a captured graph is right for lengths other than those of the example,
# - say what `torch.jit.trace`, `torch.export`, `torch.compile` and ONNX do with packing,
# - choose a pattern that compiles, and check it,
# - say what a compiler with fixed sizes accepts.
#
# Time: 20 minutes.
#
# ## A graph from one example
#
# To run a model without Python, or to make it faster, torch can turn it into a *graph* of operators. Some tools do this
# by *tracing*: they run the model once on an example and record the operators that run. Here is a model that packs only
# if the lengths differ, as transformertf's documentation recommends:

# %%
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz.check import models
from packviz.lessons import ask, checks

print(models.source(models.ConditionalTagger))

# %%
ask("conditional packing")

# %%
torch.manual_seed(0)
x, equal, lengths = torch.randn(5, 2, 3), torch.tensor([5, 5]), torch.tensor([5, 3])  # x is (T, B, features)
pv.check_static(models.ConditionalTagger(), (x, equal))

# %% [markdown]
# All lengths of the example are equal, so the graph contains only the branch that does not pack. After the end of a
# shorter sequence, the graph's outputs differ from the model's.
#
# `pv.check_static` captures a graph of your module from the example, by default with `torch.jit.trace`. Then it runs
# both the graph and the module itself on other inputs and compares their results: on other lengths, on other numbers of
# time steps, and on other batch sizes. The line below the table is the one that torch warns of. There, Python reads a
# value of the lengths, and a trace keeps this value forever. If no other lengths can be tried, the verdict is
# *undecided*.
#
# (The model itself is inconsistent, too: if all lengths are equal but shorter than `x`, it does not pack and reads
# padding.)

# %% tags=["claims"]
found = pv.check_static(models.ConditionalTagger(), (x, equal))
assert not found.ok
marks = [answer.mark for answer in found.answers["trace"].values()]
assert marks == ["✗ wrong", "✓", "✓"]
assert "if lengths.min() == lengths.max():" in found.answers["trace"]["lengths"].where
padded = pv.check_static(models.TAGGERS["padded"](), (x, lengths), "export").answers["export"]
assert [padded["lengths"].mark, padded["steps"].mark, padded["batch"].mark] == ["✓", "✗ refused", "✓"]
assert pv.check_static(models.Sorted(), (x, lengths)).ok
tagger = models.ConditionalTagger()
shorter = tagger(x, torch.tensor([3, 3]))[:, 1]
assert torch.allclose(shorter[:3], tagger(x, lengths)[:3, 1], atol=1e-6)  # in both, it has 3 steps
assert not torch.allclose(shorter[3:], tagger(x, lengths)[3:, 1], atol=1e-3)

# %% [markdown]
# ## Five ways to make a graph
#
# `torch.jit.trace` records one run. It is deprecated, but still the fastest to try. `torch.export` runs the model on
# tensors that have a shape but no values, to make a graph for all inputs. ONNX is a file format for models. torch's new
# exporter uses `torch.export`, and its *legacy* exporter uses a trace. `torch.compile` makes graphs of the parts that
# it can handle and leaves the rest to Python. With `fullgraph=True`, it raises an error instead of leaving anything to
# Python.

# %%
ask("which cannot trace packing")

# %%
ask("what is compiled")

# %% [markdown]
# Each model in the table has two operators before its LSTM and three after it. *Packed if ragged* is the model above.
# *Maximum* takes the largest output over time, and *escaped* passes the packed data on without padding it. *Disabled*
# parts are hidden from `torch.compile`, and an *island* is a submodule that contains pack, LSTM and pad.

# %%
from packviz.studies import compilers

table = compilers.survey()
table

# %% [markdown]
# - **`torch.jit.trace`** records only one of two branches, without an error.
# - **`torch.export`**, and the new ONNX exporter with it, cannot trace packing in torch 2.13.
# - **The legacy ONNX exporter** accepts pack and pad only in pairs. Without `total_length`, it pads to all time steps
#   of `x` instead of the longest length, and it ignores `padding_value`
#   ([pytorch#28423](https://github.com/pytorch/pytorch/issues/28423)). In both cases its results are **wrong without an
#   error**. Masking the padding works.
# - **`torch.compile`** is right for all these models, but it stops at the first packing call or `nn.LSTM` in a
#   `forward`, and Python runs the rest of that `forward`. (For an `nn.LSTM` without packing,
#   `torch._dynamo.config.allow_rnn = True` changes this.)
#
# If you put pack, LSTM **and** pad together in a submodule whose `forward` is decorated with `@torch.compiler.disable`,
# the layers after it are compiled as well.

# %% tags=["claims"]
cells = table.cells
compiled_operators = {name: row["compile"].compiled for name, row in cells.items()}
assert all(row["compile"].outcome == "right" for row in cells.values())
if not table.moved:
    assert cells["packed, padded again"]["export"].outcome == "error"
    assert cells["packed if ragged"]["jit.trace"].outcome == "WRONG"
    assert cells["… no total_length"]["ONNX, legacy"].outcome == "WRONG"
    assert cells["packed, padded again"]["ONNX, legacy"].outcome == "right"
    assert cells["maximum, padded with −inf"]["ONNX, legacy"].outcome == "WRONG"
    assert cells["maximum, masked"]["ONNX, legacy"].outcome == "right"
    assert {name for name, compiled in compiled_operators.items() if compiled == 5} == {"disabled island", "Ragged"}
    assert {*compiled_operators.values()} == {2, 5}

# %% [markdown]
# ## One operator
#
# Both `torch.compile(fullgraph=True)` and `torch.export` accept pack → RNN → pad if it is a single *custom operator*,
# with padded tensors in and out. `pv.LSTM`, `pv.GRU` and `pv.RNN` are torch's modules with such an operator inside: the
# same arguments, parameters and checkpoints, and a `forward` that takes `lengths`. Without a compiler (*eagerly*), they
# run like `pv.run`. `pv.Ragged(rnn)` turns an RNN that you have into one of them.


# %%
class Model(torch.nn.Module):
    def __init__(self, rnn):
        super().__init__()
        self.rnn, self.head = rnn, torch.nn.Linear(7, 2)

    def forward(self, x, lengths):
        output, _ = self.rnn(torch.tanh(x), lengths=lengths)
        return torch.relu(self.head(output))


model = Model(pv.LSTM(3, 7))
whole = torch.compile(model, backend="eager", fullgraph=True)  # one graph, run without a C++ compiler
larger, n = torch.randn(9, 4, 3), torch.tensor([1, 9, 5, 5])
print("compiled as one graph, same output:", torch.allclose(whole(larger, n), model(larger, n), atol=1e-6))

# %%
B, T = torch.export.Dim("B"), torch.export.Dim("T")
shapes = {"x": {0: T, 1: B}, "lengths": {0: B}}
program = torch.export.export(model, (x, lengths), dynamic_shapes=shapes).module()
print("exported, same output on a larger batch:", torch.allclose(program(larger, n), model(larger, n), atol=1e-6))

# %% [markdown]
# ONNX has an LSTM, a GRU and an RNN of its own, with an input for lengths. With `dynamo=True`, our modules become these,
# and the exported model takes any number of sequences and time steps. A plain padded `nn.LSTM` does not: its number of
# time steps is fixed.
#
# ## Does compiling pay?
#
# We measured a training step of an encoder–decoder LSTM on a CPU, with and without compilation. All versions except the
# padded ones give the results of packing. (*Helpers* are the functions that pack and pad.)

# %%
ask("fastest exact way")

# %%
from packviz.studies import compiled

recorded = compiled.STUDY.load()
recorded

# %% [markdown]
# On this machine, compiling changes little, because the LSTMs take most of the time, and `torch.compile` leaves them as
# they are. If quartiles overlap, the order of two versions means nothing. `pv.LSTM` is faster because it runs the
# LSTM with a method of [notebook 10](10_making_packing_pay.ipynb). On a GPU, or with larger layers around the LSTM, the
# result may differ. To measure it, run `packviz study compiled --device cuda --out mine.json`.

# %% tags=["claims"]
assert torch.allclose(whole(larger, n), model(larger, n), atol=1e-6)
assert torch.allclose(program(larger, n), model(larger, n), atol=1e-6)
(point,) = recorded.points
times = {name: recorded.ratio(point, name, "packed").value for name in recorded.timing(point).seconds}
exact = [name for name in times if "padded" not in name]
assert min(exact, key=times.get) == "compiled, Ragged"
assert all(0.85 < times[name] < 1.15 for name in exact if name != "compiled, Ragged")  # compiling changes little
assert 0.85 < times["padded"] / times["compiled, padded"] < 1.15

# %% [markdown]
# ## Compilers that fix every size
#
# Compilers for specialised chips often fix the size of every tensor. We follow the guide *PyTorch Neuron LSTM Support*.
# It was written for AWS's Inf1 machines, which are no longer supported, but its rules are typical.

# %%
ask("a size that varies")

# %% [markdown]
# A tensor whose size depends on the lengths may be passed only to an RNN or `pad_packed_sequence`, because there the
# compiler can substitute a padded tensor. `pv.check_static` runs your model with two lists of lengths and compares all
# other sizes. It marks a difference with `!`, not `✗`, because it has not tried such a compiler.
#
# Here are the six models of the guide. Which of them does its compiler reject?

# %%
sizes = {"FixedLength": pv.check_static(models.FixedLength(), [x]).size}
for model in models.GUIDE[1:]:
    sizes[model.__name__] = pv.check_static(model(), (x, lengths)).size
for name, place in sizes.items():
    print(f"{name:12}", f"! {place}" if place else "✓ all sizes are fixed")

# %% tags=["claims"]
assert [name for name, place in sizes.items() if place] == ["Returned", "UsedByMax"]


class Sized(models.ExampleModel):
    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths)
        packed = packed._replace(data=self.before(packed.data))
        return self.lstm(packed)[1]


assert "self.before(packed.data)" in pv.check_static(Sized(), (x, lengths)).size

# %% [markdown]
# The guide says that you should pad before you take a maximum over time. But the padding is 0, so if all outputs are
# negative, the maximum is 0. Mask the padding with a value that cannot be the maximum:

# %%
print(models.source(models.MaxOfPadded))
pv.check_static(models.MaxOfPadded(), (x, lengths))

# %% tags=["claims"]
lstm = models.UsedByMax().lstm
with torch.no_grad():
    lstm.bias_hh_l0[14:21] = -9  # the cell input: every output becomes negative
result, _ = lstm(pack_padded_sequence(x, lengths))
assert pad_packed_sequence(result)[0].max() == 0 > result.data.max()
model = models.MaxOfPadded()
model.lstm = lstm
assert model(x, lengths) == result.data.max()
assert pv.check_static(model, (x, lengths)).ok
assert not pv.check_static(model, (x, lengths)).size
for n in ([5, 5], [5, 3], [5, 1]):
    assert pv.flops(lstm, n).padded == pv.flops(lstm, [5, 5]).packed

# %% [markdown]
# With fixed sizes, packing saves no time, because a packed batch costs as much as a padded one. But it gives you
# correct final states.
#
# ## What people get wrong
#
# - **"It compiles, so it is right."** Tracing a model that contains a condition also raises no error, but the graph
#   keeps only one branch. Compare with the model itself, on **other lengths**.
# - **"If I disable the packing function, the rest is compiled."** Nothing after it in the same `forward` is compiled.
#
# ## Exercise
#
# This model returns its PackedSequence. Make it return the padded output instead, of shape `(T, B, 7)`, with all `T`
# time steps of `x` and zeros after the end of each sequence.


# %% tags=["exercise"]
class MyModel(models.ExampleModel):
    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths)
        output, _ = self.lstm(packed)
        # solution
        output, _ = pad_packed_sequence(output, total_length=x.size(0))
        # end solution
        return output


checks.repaired_network(MyModel)

# %% [markdown]
# ## You can now
#
# - check a captured graph on other lengths with `pv.check_static`,
# - say which tools fail on packing, which compile only part of the model, and which give wrong results without an
#   error,
# - compile or export a model that packs with `pv.LSTM`,
# - say what a compiler with fixed sizes accepts: packed data in an RNN and in `pad_packed_sequence`.
#
# Next: [14 Beyond RNNs](14_beyond_rnns.ipynb). Back: [12 Several processes](12_several_workers.ipynb) · [00 Start
# here](00_start_here.ipynb)
