# %% [markdown]
# # Static graphs
#
# **What do compilers and exporters make of a model that packs, and are their results right?**
#
# On Friday you export a tagger to ONNX. To be on the safe side, you do not pack. You declare the number of time steps as
# dynamic, the exporter has no objections, and the test batch comes out right. On Monday, the service gets its first
# sentence of nine words, and answers that a *Reshape* has failed. There is no reshape in your model. You look twice. What
# did the exporter know on Friday, and not say?
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
# These three lines are where exporters and compilers stumble. This page replaces them by one, and exports the machine.
# </details>
#
# ## What does a graph remember of its example?
#
# To run a model without Python, or to make it faster, torch turns it into a *graph* of operators. Most tools get this
# graph by running the model once, on an example, and writing down what happens. That is where the trouble starts. Our
# example has four sentences in five steps. Is the 5 a law of the model, or an accident of this batch? The tool decides,
# and it may not tell you.
#
# So we ask every graph three questions. Is it right for other **lengths**? For another number of **time steps**, T? For
# another number of **sequences**, B?
#
# Here is Friday's tagger: it embeds, runs the LSTM, and scores each word. It does not pack, and reads the padding only
# after the real words, so their scores are right. Time comes first: its batches have the shape `(T, B)`.

# %%
import logging
import warnings

import onnxruntime
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

import packviz as pv
from packviz.check import models
from packviz.lessons import ask, checks

warnings.simplefilter("ignore")  # the tools remark on every RNN, in two ways
logging.disable(logging.WARNING)
onnxruntime.set_default_logger_severity(4)  # we show its error ourselves


# %%
class Tagger(torch.nn.Module):
    def __init__(self, kind=torch.nn.LSTM):
        super().__init__()
        self.embedding = torch.nn.Embedding(10, 6, padding_idx=0)
        self.lstm = kind(6, 8)
        self.linear = torch.nn.Linear(8, 3)

    def forward(self, x, lengths):  # here, only a loss would need the lengths
        output, _ = self.lstm(self.embedding(x))
        return self.linear(output)


reviews = [[3, 1, 4], [1, 5, 9, 2, 6], [5, 3], [5, 8, 9, 7]]  # a, b, c and d
x = pad_sequence([torch.tensor(ids) for ids in reviews])  # (T, B) = (5, 4)
lengths = torch.tensor([3, 5, 2, 4])
tagger = Tagger()

# %% [markdown]
# And here are Friday and Monday. We export the tagger with the new exporter for ONNX (`dynamo=True`), declare T and B as
# dynamic, and let ONNX Runtime have three batches: Friday's, one with fewer sentences, and Monday's.

# %%
B, T = torch.export.Dim("B"), torch.export.Dim("T")
dynamic = {"x": {0: T, 1: B}, "lengths": {0: B}}
friday = torch.onnx.export(tagger, (x, lengths), dynamo=True, dynamic_shapes=dynamic, verbose=False)
session = onnxruntime.InferenceSession(friday.model_proto.SerializeToString())
(out,) = session.get_outputs()
print("declared: x", session.get_inputs()[0].shape, "→ scores", out.shape)

monday, n = torch.randint(1, 10, (9, 3)), torch.tensor([5, 9, 1])
for batch, their_lengths in ((x, lengths), (x[:, :3], lengths[:3]), (monday, n)):
    try:
        (scores,) = session.run(None, {"x": batch.numpy(), "lengths": their_lengths.numpy()})
        print(tuple(batch.shape), "→", scores.shape)
    except Exception as error:
        print(tuple(batch.shape), "→", str(error).rpartition("false. ")[2].strip())

# %% [markdown]
# There is the reshape. It is the exporter's own, and it asks for 5. But look at the first line, which was written on Friday.
# In go T steps, and out come *five*. The file contradicts itself, and every test with five steps passes. (We have switched
# the exporter's warnings off. None of them is about T.)
#
# Whose idea was the 5? The exporter is built on `torch.export`. There is also an older tool, `torch.jit.trace`, which is
# deprecated. We show both of them Friday's batch, and let each choose which sizes to leave open.

# %%
ask("what an export fixes")

# %%
padded = pv.check_static(tagger, (x, lengths), ("trace", "export"))
padded

# %% [markdown]
# `pv.check_static` asks our three questions by trying: it runs graph and model on other batches, and compares.
#
# Look at the middle column. Nothing was packed here. No wrapper, no rare option: this is `nn.LSTM`, perhaps the best-known
# layer for sequences, and the tool that torch recommends cannot leave T open. Only the deprecated one can.
#
# Does `torch.export` at least say so? We ask it for the same T and B, by name:

# %%
try:
    torch.export.export(tagger, (x, lengths), dynamic_shapes=dynamic)
except torch._dynamo.exc.UserError as error:
    print(*str(error).splitlines()[:2], sep="\n")

# %% [markdown]
# *Specialized it to be a constant (5)*: that is honest. The answer was to be had on Friday. The exporter wrote it into the
# file, and did not mention it. And had the tagger been batch first, you might never have found out. Such a file declares
# five steps, too, but ONNX Runtime only warns, and computes all nine (with torch 2.13). Your Monday hung on the order of
# two axes.
#
# <details><summary>Does it get worse?</summary>
#
# Export twice in one process, and the second file even declares a 5 for x, whatever you asked for. `nn.GRU` and `nn.RNN`
# are no better. We wrote a [report](../docs/upstream.md) of it.
# </details>
#
# In our table, though, *trace* has nothing but ticks.

# %% tags=["claims"]
assert [answer.mark for answer in padded.answers["trace"].values()] == ["✓", "✓", "✓"]
assert session.get_inputs()[0].shape == ["T", "B"]
assert out.shape[0] == 5
assert [answer.mark for answer in padded.answers["export"].values()] == ["✓", "✗ refused", "✓"]
for kind in (torch.nn.GRU, torch.nn.RNN):
    answers = pv.check_static(Tagger(kind), (x, lengths), "export").answers["export"]
    assert [answer.mark for answer in answers.values()] == ["✓", "✗ refused", "✓"]
alone = tagger(x[:2, 2:3], None)  # c, without its padding
assert torch.allclose(tagger(x, lengths)[:2, 2:3], alone, atol=1e-6)

# %% [markdown]
# ## Why not simply trace?
#
# A trace writes down one run. So what becomes of an `if`? Here is a thrifty one: we pack, but only if the lengths differ.
# If all are equal, why pay for packing? (The documentation of transformertf, a library for forecasting, recommends it.)
# We try it on notebook 01's classifier. It scores whole reviews by their final states, and for it, the third review is
# *neutral* when packed, and *positive* when padded.


# %%
class Classifier(Tagger):
    def forward(self, x, lengths):
        words = self.embedding(x)
        if lengths.min() < lengths.max():  # equal lengths need no packing
            words = pack_padded_sequence(words, lengths, enforce_sorted=False)
        _, (h_n, _) = self.lstm(words)
        return self.linear(h_n[0])


# %%
ask("conditional packing")

# %%
torch.manual_seed(1)  # the weights of notebook 01
classifier = Classifier()
equal = (torch.randint(2, 10, (5, 4)), torch.tensor([5, 5, 5, 5]))
traced = torch.jit.trace(classifier, equal)
for name, graph in {"model": classifier, "trace": traced}.items():
    best = graph(x, lengths).argmax(1).tolist()
    print(name, [("negative", "neutral", "positive")[i] for i in best])

# %% [markdown]
# The third review is *positive* again. In notebook 01 we chased this bug to its cause, and packed it away. Here it is
# back, in a file, and it came in through an `if` that was meant to save a few milliseconds.
#
# Python decided the `if` while the trace was taken. The example had equal lengths, so the branch that packs never ran,
# and the graph does not contain it. Every later batch is read to the end of its padding. A test with batches like the
# example passes. Only *other lengths* give it away. (torch does print a `TracerWarning` about the line with the `if`,
# among many others.)
#
# One `if` fooled the trace. Other tools may be harder to fool.

# %% tags=["claims"]
assert classifier(x, lengths).argmax(1)[2] == 1
assert traced(x, lengths).argmax(1)[2] == 2
assert torch.allclose(traced(x, lengths), classifier(x, torch.tensor([5, 5, 5, 5])))  # it reads the padding
assert torch.allclose(classifier(x, lengths)[2:3], classifier(x[:2, 2:3], lengths[2:3]), atol=1e-6)

# %% [markdown]
# ## Would the other tools have noticed?
#
# They differ in what they do when the graph would depend on something that the example cannot tell them.
#
# - **`torch.jit.trace`** takes one run for the whole program: quick, deprecated, and trusting.
# - **`torch.export`** sees shapes but no values. If the program depends on a value, it refuses. (And we have seen what it makes
#   of a shape.)
# - **`torch.compile`** compiles what it can, and leaves the rest to Python. With `fullgraph=True`, it refuses instead.
# - **ONNX**, a file format, has an exporter of each temperament: the *legacy* one traces, and the new one uses
#   `torch.export`.
#
# We give each tool one tagger, written in six ways. It has two operators before its LSTM and three after it, and the
# lengths of the example are equal, as in the trap above.
#
# - *padded* does not pack.
# - *packed, padded again* packs, runs the LSTM, and pads back to T, with `total_length`.
# - *… no total_length* leaves that argument out.
# - *packed if ragged* is our `if`.
# - *disabled island* puts pack, LSTM and pad into a function that `@torch.compiler.disable` leaves to Python.
# - *Ragged* is ours. Ignore its row for now.

# %%
ask("what is compiled")

# %%
from packviz.studies import compilers

names = ("padded", "packed, padded again", "… no total_length", "packed if ragged", "disabled island", "Ragged")
table = compilers.survey(*names)
table

# %% [markdown]
# Your guess first: *the layers before packing*. `torch.compile` is right in all six rows. But in four of them, a packing
# call or an `nn.LSTM` makes it give up on the rest of the `forward`: 2 of 5. Tell it to leave an island alone, and it steps around that, and goes on:
# 5 of 5.
#
# The other tools give you one graph, or none. The first five rows are what people write, which makes thirty trials with
# six tools. Twelve are right for all that we try. Thirteen end in an error, and that is the kind outcome. Two are stuck
# at five steps. And three are wrong, without an error. (Some of them with a warning, but exporters print warnings by the
# dozen. We have switched them off, as many people do.)
#
# Where do the wrong ones come from? Two are our `if` again. The third is subtler: without `total_length`, torch pads to
# the longest sequence, and the legacy ONNX exporter to all T steps of `x`. So pass `total_length`. (This exporter also
# ignores `padding_value`: [pytorch#28423](https://github.com/pytorch/pytorch/issues/28423).)
#
# And then there is the last row. No cross, no error, no *fixed*, and 5 of 5.

# %% tags=["claims"]
cells = table.cells
if not table.moved:
    assert {name for name, row in cells.items() if all(str(o).startswith("✓") for o in row.values())} == {"Ragged"}
    outcomes = [str(o).partition(",")[0] for name in names[:-1] for o in cells[name].values()]
    assert [outcomes.count(kind) for kind in ("✓ right", "error", "T fixed", "✗ WRONG")] == [12, 13, 2, 3]
    assert cells["padded"]["export"].fixed == cells["padded"]["ONNX, new"].fixed == "T"
    assert cells["packed, padded again"]["export"].outcome == "error"
    assert cells["packed, padded again"]["ONNX, new"].outcome == "error"
    wrong = {(name, tool) for name, row in cells.items() for tool, o in row.items() if o.outcome == "WRONG"}
    conditional = {("packed if ragged", "jit.trace"), ("packed if ragged", "ONNX, legacy")}
    assert wrong == conditional | {("… no total_length", "ONNX, legacy")}
    assert cells["packed, padded again"]["ONNX, legacy"].outcome == "right"
    compiled_operators = {name: row["compile"].compiled for name, row in cells.items()}
    assert {name for name, compiled in compiled_operators.items() if compiled == 5} == {"disabled island", "Ragged"}
    assert {*compiled_operators.values()} == {2, 5}
assert all(row["compile"].outcome == "right" for row in cells.values())

# %% [markdown]
# ## What does the last row do?
#
# It leaves the tools nothing to stumble over. Pack → RNN → pad is a single *custom operator*: padded tensors go in, padded
# tensors come out, and nobody has to look inside. `pv.LSTM`, `pv.GRU` and `pv.RNN` are torch's modules with this operator.
# They have torch's arguments, parameters and checkpoints, and a `forward` that takes `lengths`. (`pv.Ragged(rnn)` turns an
# RNN that you have into one of them.)
#
# So Friday comes once more. The tagger gets a `pv.LSTM`, and hands it the lengths. Exporter, T and B are the
# same as before, and Monday comes with the same nine words:


# %%
class RaggedTagger(Tagger):
    def forward(self, x, lengths):
        output, _ = self.lstm(self.embedding(x), lengths=lengths)
        return self.linear(output)


model = RaggedTagger(pv.LSTM)
program = torch.onnx.export(model, (x, lengths), dynamo=True, dynamic_shapes=dynamic, verbose=False)
session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
(scores,) = session.run(None, {"x": monday.numpy(), "lengths": n.numpy()})
print(tuple(monday.shape), "→", scores.shape)
print("the model's scores:", torch.allclose(torch.tensor(scores), model(monday, n), atol=1e-5))

# %% [markdown]
# No error, and the scores of the model. Can the tools beside ONNX do the same?

# %%
free = pv.check_static(model, (x, lengths), ("export", "compile"))
free

# %% [markdown]
# Six questions, six ticks. Pack, LSTM and pad were three lines of the ten. Now they are one, and it has left Python,
# with no size fixed. In the ONNX file, there is not even a custom operator: ONNX has an LSTM, a GRU and an RNN with an
# input for lengths, and ours become these (with torch 2.8 or newer, and without `proj_size`). So the service does not
# need packviz. Only a program from `torch.export.save` needs it: `import packviz` before you load one.
#
# It can be exported, and it can be compiled as one graph. So far, we have not looked at the clock.

# %% tags=["claims"]
assert {node.domain for node in program.model.graph} == {""}  # ONNX's own operators
assert "LSTM" in {node.op_type for node in program.model.graph}
shapes = {given.name: list(map(str, given.shape)) for given in program.model.graph.inputs}
assert shapes == {"x": ["T", "B"], "lengths": ["B"]}
assert all(answer.mark == "✓" for row in free.answers.values() for answer in row.values())
embedded = pack_padded_sequence(model.embedding(monday), n, enforce_sorted=False)
output, _ = pad_packed_sequence(torch.nn.LSTM.forward(model.lstm, embedded)[0])
assert torch.allclose(model(monday, n), model.linear(output), atol=1e-6)

# %% [markdown]
# ## Does compiling pay?
#
# We measured a training step of an encoder–decoder on a CPU: two LSTMs, with layers before and after them that a compiler
# can fuse. All versions except the padded ones give the results of packing.

# %%
ask("fastest exact way")

# %%
from packviz.studies import compiled

recorded = compiled.STUDY.load()
recorded

# %% [markdown]
# Compiling gained nothing that we could measure. (*Helpers* are the functions that pack and pad, and *Ragged* has
# `pv.Ragged(lstm)` for each LSTM.) A compiled packed step may look quicker in the table, but from round to round, the
# ratio goes both ways. The LSTMs take most of the time, and `torch.compile` leaves them as they are.
#
# The gain is in the row *Ragged*, and nothing there is compiled: less than a third of *packed*'s time. We cannot tell it
# from *padded*, which is quick and wrong. The time is saved by *how* `pv.LSTM` computes
# ([notebook 10](10_making_packing_pay.ipynb)), not by compiling. With both, the step gets no faster. (Larger layers
# around the LSTM, or a GPU, may change that: run `packviz study compiled --device cuda --out mine.json`.) So take `pv.LSTM`
# to export. On this CPU, you need not compile it.
#
# <details><summary>And if your target wants <em>every</em> size fixed?</summary>
#
# Compilers for special chips often do. You pad each batch to one T and one B, and packing saves no work. It still gives
# you the right final states. But the data of a `PackedSequence` have a row for each real step, so their size follows the
# lengths. A guide by AWS, [PyTorch Neuron LSTM
# Support](https://awsdocs-neuron.readthedocs-hosted.com/en/v1.12.0/frameworks/torch/torch-neuron/guides/torch-lstm-support.html),
# therefore lets a `PackedSequence` go only into an RNN or into `pad_packed_sequence`, where the compiler can put a padded
# tensor in its place. (Its Inf1 machines are no longer supported, but the rule is a good one.) Two of the guide's six
# models break it, and `pv.check_static` marks both places with `!`.
#
# Padding again has two traps of its own. Without `total_length`, the width varies with the longest sequence. And the maximum
# of a padded output may be a 0 of the padding. Fill the padding with −∞ first, as `MaxOfPadded` in
# `packviz.check.models` does.
#
# </details>

# %% tags=["claims"]
(point,) = recorded.points
times = {name: recorded.ratio(point, name, "packed") for name in recorded.timing(point).seconds}
assert not times["compiled, helpers disabled"].is_clear
assert not times["compiled, disabled island"].is_clear
assert times["Ragged"].value < 1 / 3
assert not recorded.ratio(point, "Ragged", "padded").is_clear
assert 1 < recorded.ratio(point, "compiled, Ragged", "Ragged").value < 1.3
x, lengths = models.example()  # x is (T, B, 3) = (5, 2, 3), and the lengths are 5 and 3
sizes = {"FixedLength": pv.check_static(models.FixedLength(), [x]).size}
for guided in models.GUIDE[1:]:
    sizes[guided.__name__] = pv.check_static(guided(), (x, lengths)).size
assert [name for name, place in sizes.items() if place] == ["Returned", "UsedByMax"]
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
for pair in ([5, 5], [5, 3], [5, 1]):
    assert pv.flops(lstm, pair).padded == pv.flops(lstm, [5, 5]).packed

# %% [markdown]
# ## Exercise
#
# One of the three wrong cells in the table was a missing argument. Don't miss it here. This model packs `x`, of shape `(T, B, 3)`, and runs its LSTM. Finish it: return the padded output, of shape
# `(T, B, 7)`, with all `T` time steps of `x` and zeros after the end of each sequence.


# %% tags=["exercise"]
class MyModel(models.ExampleModel):
    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths)
        output, _ = self.lstm(packed)
        # solution
        return pad_packed_sequence(output, total_length=x.size(0))[0]
        # end solution


checks.repaired_network(MyModel)

# %% [markdown]
# ## You can now
#
# - ask a graph about lengths, T and B, with `pv.check_static`, before a service does it for you,
# - say which tools fix T, which refuse packing, and which are wrong without an error,
# - export the ten lines with `pv.LSTM`, and say what loading the file needs.
#
# An RNN takes one step after another, so a batch has to know when to stop. A transformer takes all steps at once. Is it
# rid of lengths?
#
# Next: [14 Beyond RNNs](14_beyond_rnns.ipynb). Back: [12 Several processes](12_several_workers.ipynb) · [00 Start
# here](00_start_here.ipynb)
