# %% [markdown]
# # Static graphs
#
# **What do compilers and exporters make of a model that packs, and are their results right?**
#
# On Friday you export a tagger to ONNX. You declare the number of time steps as dynamic, the exporter has no
# objections, and the test batch comes out right. On Monday the service gets its first sentence of nine words, and
# answers that a *Reshape* has failed. Your model contains no reshape. It does not even pack. What did the exporter know
# on Friday?
#
# After this notebook, you can export or compile a model for sequences of different lengths, and tell for which other
# batches the result is right.
#
# Time: 20 minutes.
#
# <details><summary>Where we are in the ten lines: <b>pack, LSTM, pad</b></summary>
# <pre>
#   sequences = [torch.tensor([3, 1, 4]), torch.tensor([1, 5, 9, 2, 6]), torch.tensor([5, 3]), torch.tensor([5, 8, 9, 7])]
#   lengths = torch.tensor([len(s) for s in sequences])                        # (4,)       3, 5, 2, 4: on the CPU
#   x = pad_sequence(sequences, batch_first=True)                              # (4, 5)     padded with 0
#   embedded = embedding(x)                                                    # (4, 5, 6)
# → packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)   # data: (14, 6)
# → packed_output, (h_n, c_n) = lstm(packed)                                   # data: (14, 8); h_n: (1, 4, 8)
# → output, _ = pad_packed_sequence(packed_output, batch_first=True)           # (4, 5, 8)
#   scores = linear(output)                                                    # (4, 5, 3)
#   mask = torch.arange(5) &lt; lengths[:, None]                                  # (4, 5)     True at the 14 real cells
#   loss = cross_entropy(scores[mask], tags[mask])                             # ()         then loss.backward()
# </pre>
# These three lines are what exporters and compilers cannot take. This page replaces them by one.
# </details>
#
# ## What does a graph remember of its example?
#
# To run a model without Python, or to make it faster, torch turns it into a *graph* of operators. It gets the graph by
# running the model once, on an example. So some numbers of the example may be in the graph for good, and for sequences
# we ask three questions: is it right for other **lengths**, for another number of **time steps** T, and for another
# number of **sequences** B? Here is the tagger, as plain as it can be. It reads the padding, too.

# %%
import warnings

import torch
import packviz as pv
from packviz.check import models
from packviz.lessons import ask, checks


class Tagger(torch.nn.Module):
    def __init__(self, rnn):
        super().__init__()
        self.rnn, self.head = rnn, torch.nn.Linear(7, 2)

    def forward(self, x, lengths):  # x is (T, B, 3); here the lengths are for the loss alone
        output, _ = self.rnn(x)
        return self.head(output)


# %%
warnings.filterwarnings("ignore", message=".*_flat_weights")  # torch.export's remark on every RNN
torch.manual_seed(0)
tagger = Tagger(torch.nn.LSTM(3, 7))
x, lengths = torch.randn(5, 2, 3), torch.tensor([5, 3])
T, B = torch.export.Dim("T"), torch.export.Dim("B")
dynamic = {"x": {0: T, 1: B}, "lengths": {0: B}}

# %%
ask("what an export fixes")

# %%
try:
    torch.export.export(tagger, (x, lengths), dynamic_shapes=dynamic)
except torch._dynamo.exc.UserError as error:
    print(*str(error).splitlines()[:2], sep="\n")

# %% [markdown]
# `torch.export` refuses: T is 5, because the example had 5 steps. Perhaps it only wants to be asked nicely. We leave the
# choice of the dynamic sizes to the tools, and try other lengths, another T and another B on what they make.
# `pv.check_static` does this:

# %%
padded = pv.check_static(tagger, (x, lengths), ("trace", "export", "onnx"))
padded

# %% [markdown]
# Look at the middle column. `nn.LSTM` may be the best-known layer for sequences, and two of three tools cannot leave the
# length of a sequence open. Not a detail of a wrapper, not a rare option: T itself.
#
# And the two differ in manners. `torch.export` told us. torch's new ONNX exporter (`dynamo=True`) asks `torch.export`,
# hears the same refusal with the suggestion *T = 5*, follows it, and writes a file without a word. With torch 2.13, the
# first such file of a process even declares its input as `[T, B, 3]`. The `Reshape` in Monday's error is the exporter's
# own, with a 5 in it. (We wrote a [report](../docs/upstream.md) of it. `nn.GRU` and `nn.RNN` are no better.)
#
# The first row is all ticks, though. `torch.jit.trace` keeps T open. Why not simply trace?

# %% tags=["claims"]
assert [answer.mark for answer in padded.answers["trace"].values()] == ["✓", "✓", "✓"]
assert [answer.mark for answer in padded.answers["export"].values()] == ["✓", "✗ refused", "✓"]
for kind in (torch.nn.GRU, torch.nn.RNN):
    answers = pv.check_static(Tagger(kind(3, 7)), (x, lengths), "export").answers["export"]
    assert [answer.mark for answer in answers.values()] == ["✓", "✗ refused", "✓"]

# %% [markdown]
# ## Why not simply trace?
#
# Here is the `forward` of a model that packs, but only if the lengths differ. It looks like a sensible economy, and
# transformertf's documentation recommends it.

# %%
print(models.source(models.ConditionalTagger))

# %%
ask("conditional packing")

# %%
torch.manual_seed(0)
equal = torch.tensor([5, 5])
fooled = pv.check_static(models.ConditionalTagger(), (x, equal))
fooled

# %% [markdown]
# No error, a file, and wrong outputs. The example had equal lengths, so the trace recorded the branch that does not
# pack. Every later batch takes that branch. A reviewer sees nothing, either: the graph runs, and for batches like the
# example it is right. Only *other lengths* give it away. (The line below the table is where Python read a value of the
# lengths. torch prints a `TracerWarning` there, among others.)
#
# One `if` fooled the trace. Would the other tools have noticed?

# %% tags=["claims"]
assert [answer.mark for answer in fooled.answers["trace"].values()] == ["✗ wrong", "✓", "✓"]
assert "if lengths.min() == lengths.max():" in fooled.answers["trace"]["lengths"].where

# %% [markdown]
# ## Would the other tools have noticed?
#
# They differ in what they do with a value they have not seen. `torch.jit.trace` takes one run for the whole program:
# quick, deprecated, and trusting. `torch.export` sees shapes but no values, so it fails where packing asks for a
# length. `torch.compile` compiles a part and leaves the rest to Python; with `fullgraph=True`, it raises an error
# instead. ONNX, a file format, has an exporter of each temperament: the *legacy* one traces, and the new one uses
# `torch.export`.

# %%
ask("what is compiled")

# %% [markdown]
# We give all of them six models. Each has an LSTM with two operators before it and three after it. An *island* is a
# submodule that packs, runs the LSTM and pads, and is hidden from `torch.compile` by `@torch.compiler.disable`.

# %%
from packviz.studies import compilers

names = ("padded", "packed, padded again", "… no total_length", "packed if ragged", "disabled island", "Ragged")
table = compilers.survey(*names)
table

# %% [markdown]
# - *Packed, padded again* is what most tutorials do, with `total_length` added. The exporters that see no values cannot
#   take it at all.
# - Without `total_length`, the legacy exporter pads to the width of `x` and torch to the longest length. The two disagree
#   **without an error**. (It also ignores `padding_value`:
#   [pytorch#28423](https://github.com/pytorch/pytorch/issues/28423).)
# - `torch.compile` is right for all six. But at the first packing call or `nn.LSTM` in a `forward`, it stops, and
#   Python runs the rest of this `forward`: 2 of 5 operators are compiled. After the island, `torch.compile` starts
#   again. Layers in a submodule of their own are compiled all the same.
#
# The last row has no cross, no error and no *fixed*. What does it do?

# %% tags=["claims"]
cells = table.cells
if not table.moved:
    assert {name for name, row in cells.items() if all(str(o).startswith("✓") for o in row.values())} == {"Ragged"}
    assert cells["padded"]["export"].fixed == cells["padded"]["ONNX, new"].fixed == "T"
    assert cells["packed, padded again"]["export"].outcome == "error"
    assert cells["packed, padded again"]["ONNX, new"].outcome == "error"
    assert cells["packed if ragged"]["jit.trace"].outcome == cells["… no total_length"]["ONNX, legacy"].outcome == "WRONG"
    assert cells["packed, padded again"]["ONNX, legacy"].outcome == "right"
    compiled_operators = {name: row["compile"].compiled for name, row in cells.items()}
    assert {name for name, compiled in compiled_operators.items() if compiled == 5} == {"disabled island", "Ragged"}
    assert {*compiled_operators.values()} == {2, 5}
assert all(row["compile"].outcome == "right" for row in cells.values())

# %% [markdown]
# ## Three lines, one operator
#
# It hides pack → RNN → pad in a single *custom operator*: padded tensors go in, padded tensors come out, and no tool has
# to look inside. `pv.LSTM`, `pv.GRU` and `pv.RNN` are torch's modules with this operator. They have torch's arguments,
# parameters and checkpoints, and a `forward` that takes `lengths`. (`pv.Ragged(rnn)` turns an RNN that you have into one
# of them.) We repeat Friday's export, with one word changed in the model, and Monday's sentence of nine words:


# %%
class Ragged(Tagger):
    def forward(self, x, lengths):
        output, _ = self.rnn(x, lengths=lengths)
        return self.head(output)


model = Ragged(pv.LSTM(3, 7))
program = torch.export.export(model, (x, lengths), dynamic_shapes=dynamic).module()
whole = torch.compile(model, backend="eager", fullgraph=True)  # one graph, run without a C++ compiler

monday, n = torch.randn(9, 4, 3), torch.tensor([1, 9, 5, 5])
for name, graph in {"exported": program, "compiled": whole}.items():
    print(name, "→ same output:", torch.allclose(graph(monday, n), model(monday, n), atol=1e-6))

# %%
free = pv.check_static(model, (x, lengths), ("export", "compile", "onnx"))
free

# %% [markdown]
# Nine ticks, and in the ONNX file it is not even a custom operator: ONNX has an LSTM, a GRU and an RNN with an input
# for lengths, and ours become these (with torch 2.8 or newer, and without `proj_size`). So the service needs nothing of
# packviz. A program saved with `torch.export.save` does: `import packviz` before you load it.
#
# It can be exported, and it can be compiled as one graph. Is it any faster for that?

# %% tags=["claims"]
assert torch.allclose(whole(monday, n), model(monday, n), atol=1e-6)
assert torch.allclose(program(monday, n), model(monday, n), atol=1e-6)
assert all(answer.mark == "✓" for name in ("export", "compile") for answer in free.answers[name].values())
packed = torch.nn.utils.rnn.pack_padded_sequence(monday, n, enforce_sorted=False)
output, _ = torch.nn.utils.rnn.pad_packed_sequence(torch.nn.LSTM.forward(model.rnn, packed)[0])
assert torch.allclose(model(monday, n), model.head(output), atol=1e-6)

# %% [markdown]
# ## Does compiling pay?
#
# We measured a training step of an encoder–decoder LSTM on a CPU, compiled and not. All versions except the padded ones
# give the results of packing. (*Helpers* are the functions that pack and pad.)

# %%
ask("fastest exact way")

# %%
from packviz.studies import compiled

recorded = compiled.STUDY.load()
recorded

# %% [markdown]
# Compiling does next to nothing here. The LSTMs take most of the time, and `torch.compile` leaves them as they are; the
# gain comes from *how* `pv.LSTM` runs its LSTM ([notebook 10](10_making_packing_pay.ipynb)). Larger layers around the
# LSTM, or a GPU, may change that. To measure it, run `packviz study compiled --device cuda --out mine.json`.

# %% tags=["claims"]
(point,) = recorded.points
times = {name: recorded.ratio(point, name, "packed").value for name in recorded.timing(point).seconds}
exact = [name for name in times if "padded" not in name]
assert min(exact, key=times.get) == "compiled, Ragged"
assert all(0.85 < times[name] < 1.15 for name in exact if name != "compiled, Ragged")  # compiling changes little
assert 0.85 < times["padded"] / times["compiled, padded"] < 1.15

# %% [markdown]
# ## What if every size is fixed?
#
# T and B may stay open on your CPU. Compilers for special chips often fix the size of *every* tensor. We follow the guide
# *PyTorch Neuron LSTM Support*, written for AWS's Inf1 machines, which are no longer supported.

# %%
ask("a size that varies")

# %% [markdown]
# In the guide, a `PackedSequence` may go only into an RNN or into `pad_packed_sequence`, where the compiler can put a
# padded tensor in its place. `pv.check_static` runs a model with two lists of lengths, and marks with `!` where another
# size differs. Here are the six models of the guide. It rejects two. Which?

# %%
sizes = {"FixedLength": pv.check_static(models.FixedLength(), [x]).size}
for guided in models.GUIDE[1:]:
    sizes[guided.__name__] = pv.check_static(guided(), (x, lengths)).size
for name, place in sizes.items():
    print(f"{name:12}", f"! {place}" if place else "✓ all sizes are fixed")

# %% [markdown]
# With fixed sizes, the compiler computes the padding of a packed batch, too, so packing cannot save any work. It still
# gives you the right final states. (*Sorted* and *Unsorted* pad to the longest sequence, so even their output varies if
# the longest does. Pass `total_length`.)
#
# <details><summary>The last model wants a maximum over time. How does it get one?</summary>
#
# By padding first, as the guide says, and that is a trap: the padding is 0, so if all outputs are negative and one cell
# is padding, the maximum is 0. Fill the padding with −∞ before you take the maximum, as `MaxOfPadded` in
# `packviz.check.models` does.
# </details>

# %% tags=["claims"]
assert [name for name, place in sizes.items() if place] == ["Returned", "UsedByMax"]
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

lstm = models.UsedByMax().lstm
with torch.no_grad():
    lstm.bias_hh_l0[14:21] = -9  # the cell input: every output becomes negative
result, _ = lstm(pack_padded_sequence(x, lengths))
assert pad_packed_sequence(result)[0].max() == 0 > result.data.max()
maximum = models.MaxOfPadded()
maximum.lstm = lstm
assert maximum(x, lengths) == result.data.max()
assert pv.check_static(maximum, (x, lengths)).ok
assert not pv.check_static(maximum, (x, lengths)).size
for n in ([5, 5], [5, 3], [5, 1]):
    assert pv.flops(lstm, n).padded == pv.flops(lstm, [5, 5]).packed

# %% [markdown]
# ## Exercise
#
# This model returns its PackedSequence. Make it return the padded output instead, of shape `(T, B, 7)`, with all `T`
# time steps of `x` and zeros after the end of each sequence.

# %%
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


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
# - ask three questions of a graph, about lengths, T and B, and answer them with `pv.check_static`,
# - say which tools fix T, which refuse packing, and which are wrong without an error,
# - export or compile with `pv.LSTM`, and know what loading the result needs.
#
# Next: [14 Beyond RNNs](14_beyond_rnns.ipynb). Back: [12 Several processes](12_several_workers.ipynb) · [00 Start
# here](00_start_here.ipynb)
