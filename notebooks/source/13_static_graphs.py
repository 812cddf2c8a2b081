# %% [markdown]
# # Static graphs
#
# **What do compilers and exporters make of a model that packs, and are their results right?**
#
# On Friday you export a tagger to ONNX. You have heard that exporters dislike packing, so you do not pack. You declare
# the number of time steps as dynamic, the exporter has no objections, and the test batch comes out right. On Monday,
# the service gets its first review of nine words, and answers that a *Reshape* has failed. There is no reshape in your
# model. You look twice. What did the exporter know on Friday, and keep to itself?
#
# After this page, you can export or compile a model for sequences of different lengths, and find out for which
# batches the result is right.
#
# Time: 20 minutes, with the exercise.
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
# These three lines are where exporters and compilers stumble. This page replaces them with one line, and exports the
# model. </details>
#
# ## What does a graph remember of its example?
#
# To run a model without Python, or to make it faster, torch turns it into a *graph* of operators. A tool gets this
# graph by following the model through one example. The trouble starts there. Our example has four reviews and five
# steps. Is the 5 a law of the model, or an accident of this batch? The tool decides, and it may not tell you.
#
# So we ask every graph three questions. Is it right for other **lengths**? For another number of **time steps**, T? For
# another number of **sequences**, B?
#
# Here is Friday's tagger: it embeds, runs the LSTM, and scores each word. It reads the padding of a review only after
# the real words, so their scores are right without packing.

# %% jupyter={"source_hidden": true}
import logging
import warnings

import onnxruntime
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

import packviz as pv
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


# %%
reviews = [[3, 1, 4], [1, 5, 9, 2, 6], [5, 3], [5, 8, 9, 7]]  # a, b, c and d
x = pad_sequence([torch.tensor(ids) for ids in reviews])  # time first: (T, B) = (5, 4)
lengths = torch.tensor([3, 5, 2, 4])
tagger = Tagger()

# %% [markdown]
# Now Friday and Monday. We export the tagger with the new exporter for ONNX (`dynamo=True`), declare T and B as
# dynamic, and give ONNX Runtime two batches: Friday's, and Monday's.

# %%
B, T = torch.export.Dim("B"), torch.export.Dim("T")  # run this only once: a second export would fix T in x, too
dynamic = {"x": {0: T, 1: B}, "lengths": {0: B}}
friday = torch.onnx.export(tagger, (x, lengths), dynamo=True, dynamic_shapes=dynamic, verbose=False)
session = onnxruntime.InferenceSession(friday.model_proto.SerializeToString())
(out,) = session.get_outputs()
print("declared: x", session.get_inputs()[0].shape, "→ scores", out.shape)

monday, n = torch.randint(1, 10, (9, 3)), torch.tensor([5, 9, 1])
for batch, their_lengths in ((x, lengths), (monday, n)):
    try:
        (scores,) = session.run(None, {"x": batch.numpy(), "lengths": their_lengths.numpy()})
        print(tuple(batch.shape), "→", scores.shape)
    except Exception as error:
        print(tuple(batch.shape), "→", str(error).split("false. ")[1].strip())

# %% [markdown]
# There is the reshape. The exporter put it in, and it asks for 5. But look at the first line. It comes from the file,
# so you could have read it on Friday: in go T steps, and out come *five*. The file contradicts itself, yet every test
# with five steps passes. (We have switched off the exporter's warnings. None of them mentions T.)
#
# Whose idea was the 5? The new exporter is built on `torch.export`, so we question that. For comparison, we take
# `torch.jit.trace`, which is older, and deprecated.

# %%
ask("what an export fixes")

# %% [markdown]
# `pv.check_static` answers our three questions by trying. It asks each tool to leave open every size that it can. Then
# it runs each graph and the model on other batches, and compares the results. A cell says ✓ (the same), *wrong*
# (something else, and no error) or *refused* (an error, when the graph is made or when it runs).

# %%
padded = pv.check_static(tagger, (x, lengths), ("trace", "export"))
padded

# %% [markdown]
# Look at the middle column. We packed nothing. This is `nn.LSTM`, perhaps the best-known layer for sequences. Yet
# `torch.export`, the tool that torch recommends, cannot leave T open. Of our two tools, only the deprecated one can.
#
# `check_static` only asks a tool to leave T open *if it can*. On Friday, we told the ONNX exporter that T *is* dynamic.
# Let us tell `torch.export` the same. Does it speak up?

# %% jupyter={"source_hidden": true}
try:
    torch.export.export(tagger, (x, lengths), dynamic_shapes=dynamic)
except torch._dynamo.exc.UserError as error:
    print(str(error).splitlines()[1].partition(". If")[0].strip(" -"))

# %% [markdown]
# *Specialized it to be a constant (5)*: that is honest. To find the size of the LSTM's output, `torch.export` goes
# through the steps and counts them: five.
#
# On Friday, nothing spoke up, because the ONNX exporter calls `torch.export` with settings under which a fixed T is no
# error. In the file, the LSTM itself takes any T. On Monday, it returned {9,3,1,8}: nine steps, three reviews, one
# direction, eight numbers. A reshape should drop the 1. But it asks for {5,-1,8}: the five steps that `torch.export`
# counted, and −1 for whatever fits.
#
# And Monday was lucky. Nine steps of three reviews have 27 cells, which cannot be cut into five equal rows. *Five*
# reviews have 45.

# %%
tuesday, n_tuesday = torch.randint(1, 10, (9, 5)), torch.tensor([9, 4, 7, 1, 5])
(scores,) = session.run(None, {"x": tuesday.numpy(), "lengths": n_tuesday.numpy()})
print(tuple(tuesday.shape), "→", scores.shape)

# %% [markdown]
# No error. Nine steps of five reviews went in, and five steps of nine reviews came out. They are the same 45 cells. The
# model makes nine rows of five, a row for each step. The file makes five rows of nine:
#
# ```text
# model   0 1 2 3 4 | 5 6 7 8 9 | …
# file    0 1 2 3 4   5 6 7 8 | 9   …
# ```
#
# Only the first five cells keep their places. The other 40 scores are in the wrong cells.
#
# <details><summary>Is that so for every RNN?</summary>
#
# `nn.GRU` and `nn.RNN` are no better. Nor is a model with `batch_first=True`: its file contradicts itself, too. But
# there, the reshape takes its size from the batch, so ONNX Runtime only warns, and computes all nine steps. If you
# export an `nn.LSTM` twice in one process, the second file fixes the number of steps even for x, whatever you asked
# for. We wrote a [report](../docs/upstream.md). </details>
#
# In the first table, *trace* had nothing but ticks.

# %% tags=["claims"]
assert [answer.mark for answer in padded.answers["trace"].values()] == ["✓", "✓", "✓"]
assert session.get_inputs()[0].shape == ["T", "B"]
assert out.shape[0] == 5
(test,) = session.run(None, {"x": x.numpy(), "lengths": lengths.numpy()})
assert torch.allclose(torch.tensor(test), tagger(x, lengths), atol=1e-5)  # the test batch comes out right
assert scores.shape == (5, 9, 3)
right = tagger(tuesday, n_tuesday)
assert torch.allclose(torch.tensor(scores).flatten(), right.flatten(), atol=1e-5)
moved = [(place // 5, place % 5) != (place // 9, place % 9) for place in range(45)]
assert moved == [False] * 5 + [True] * 40
assert [answer.mark for answer in padded.answers["export"].values()] == ["✓", "✗ refused", "✓"]
for kind in (torch.nn.GRU, torch.nn.RNN):
    answers = pv.check_static(Tagger(kind), (x, lengths), "export").answers["export"]
    assert [answer.mark for answer in answers.values()] == ["✓", "✗ refused", "✓"]
alone = tagger(x[:2, 2:3], None)  # c, without its padding
assert torch.allclose(tagger(x, lengths)[:2, 2:3], alone, atol=1e-6)

# %% [markdown]
# ## Why not simply trace?
#
# A trace records one run. So what becomes of an `if`? Here is one that saves work: pack, but only if there is padding.
#
# Is that safe? To find out, we need a model that padding can harm. We take the classifier of notebook 01, which scores
# a whole review by its final state. If it reads the padding, it calls the third review positive. If it packs, it says
# neutral, as it does when the review is alone.


# %%
class Classifier(Tagger):
    def forward(self, x, lengths):
        words = self.embedding(x)
        if lengths.min() < len(x):  # without padding, there is nothing to pack
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
for name, scores in {"model": classifier(x, lengths), "trace": traced(x, lengths)}.items():
    print(name, [("negative", "neutral", "positive")[i] for i in scores.argmax(1)])

# %% [markdown]
# The third review is *positive* again. In notebook 01, we chased this bug to its cause, and packed it away. Now it is
# back, through an `if` that was meant to save a few milliseconds.
#
# Python evaluated the `if` while the trace was taken. The example had no padding, so the branch that packs never ran,
# and is not in the graph. Every later batch is read to the end of its padding. (torch does print a `TracerWarning`
# about the `if`, among many others.)
#
# The trace left T open, and treated our `if` as settled. Are the other tools harder to fool?

# %% tags=["claims"]
assert classifier(x, lengths).argmax(1)[2] == 1
assert traced(x, lengths).argmax(1)[2] == 2
assert torch.allclose(traced(x, lengths), classifier(x, torch.tensor([5, 5, 5, 5])))  # it reads the padding
assert torch.allclose(classifier(x, lengths)[2:3], classifier(x[:2, 2:3], lengths[2:3]), atol=1e-6)

# %% [markdown]
# ## What do other tools make of an `if`?
#
# `pv.check_static` knows five tools, of two kinds:
#
# - *trace* and *onnx_legacy*, the older exporter for ONNX, run the example with its actual numbers, and take this run
#   for the whole program.
# - *export*, *onnx* (Friday's exporter) and *compile* (`torch.compile` with `fullgraph=True`) follow the sizes of
#   tensors, and not their values.
#
# All five get the classifier with its `if`, and the example without padding. Of our three questions, we ask only the
# first: are their graphs right for other lengths? We also print the line that each tool blames.

# %%
tools = ("trace", "onnx_legacy", "export", "onnx", "compile")
thrifty = pv.check_static(classifier, equal, tools)
for tool, answers in thrifty.answers.items():
    print(f"{tool:13}{answers['lengths'].mark:11}{answers['lengths'].where.partition('  #')[0]}")

# %% [markdown]
# Two are fooled. Three refuse, because a value decides, and they see only sizes. Here, the refusal is the kinder
# outcome. You learn of the trouble at your desk, and not on a Monday.
#
# But the `if` was our own mistake. Surely all goes well if we always pack?

# %% tags=["claims"]
for tool, answers in thrifty.answers.items():
    assert answers["lengths"].mark == ("✗ wrong" if tool in ("trace", "onnx_legacy") else "✗ refused")
    assert "lengths.min() < len(x)" in answers["lengths"].where

# %% [markdown]
# ## Which tools accept packing?
#
# We take out the `if`. Now the classifier packs every batch, and no line of ours looks at a value. Is that enough?


# %%
class PackedClassifier(Tagger):
    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.embedding(x), lengths, enforce_sorted=False)
        _, (h_n, _) = self.lstm(packed)
        return self.linear(h_n[0])


packing = pv.check_static(PackedClassifier(), equal, tools)
for tool, answers in packing.answers.items():
    print(f"{tool:13}{answers['lengths'].mark}")

# %% [markdown]
# Only *trace* is right. So trace, and pack always? Today, that works. But `torch.jit.trace` is deprecated.
# (*onnx_legacy* can translate packing, but only if the model pads again, as the ten lines do. This one does not.)
#
# The three newer tools refuse the very lines that this course is about. Our own lines look at no value, but torch's do.
# To pack, and to run an LSTM on packed data, it reads numbers from the lengths, because they decide how large its
# tensors are.
#
# <details><summary>And if the model pads again?</summary>
#
# Then give `pad_packed_sequence` the argument `total_length=x.size(0)`, and *onnx_legacy* gets a ✓ for all three
# questions. Without it, the file returns outputs of a different size, and raises no error. The three newer
# tools still refuse.
#
# </details>
#
# <details><summary>And if you need no file?</summary>
#
# Then `torch.compile` has a way out. Without `fullgraph=True`, its results are right, because it leaves to Python
# what it cannot compile. After most such calls, it carries on. After an `nn.LSTM`, packed or not, it gives up: the
# code that calls the LSTM is left to Python, and so is all that follows. To have at least the last layer compiled,
# put the LSTM on an island, a method that `torch.compile` is told to step around:
#
# ```python
# class IslandClassifier(Tagger):
#     @torch.compiler.disable
#     def island(self, words, lengths):
#         packed = pack_padded_sequence(words, lengths, enforce_sorted=False)
#         _, (h_n, _) = self.lstm(packed)
#         return h_n[0]
#
#     def forward(self, x, lengths):
#         return self.linear(self.island(self.embedding(x), lengths))
# ```
#
# </details>
#
# What if these tools never had to see those lines?

# %% tags=["claims"]
for tool, answers in packing.answers.items():
    expected = ["✓" if tool == "trace" else "✗ refused"] * 3
    assert [answer.mark for answer in answers.values()] == expected
assert "zeros()" in packing.answers["export"]["lengths"].reason
assert "vector" in packing.answers["onnx_legacy"]["lengths"].reason


class PackedTagger(Tagger):
    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.embedding(x), lengths, enforce_sorted=False)
        output, _ = self.lstm(packed)
        output, _ = pad_packed_sequence(output, total_length=x.size(0))
        return self.linear(output)


padding_again = pv.check_static(PackedTagger(), equal, tools[1:]).answers
assert [answer.mark for answer in padding_again["onnx_legacy"].values()] == ["✓"] * 3
for tool in tools[2:]:
    assert [answer.mark for answer in padding_again[tool].values()] == ["✗ refused"] * 3

# %% tags=["claims"]
class IslandClassifier(Tagger):
    @torch.compiler.disable
    def island(self, words, lengths):
        packed = pack_padded_sequence(words, lengths, enforce_sorted=False)
        _, (h_n, _) = self.lstm(packed)
        return h_n[0]

    def forward(self, x, lengths):
        return self.linear(self.island(self.embedding(x), lengths))


def compiled_operators(model):
    names = []

    def backend(graph, example):
        names.extend(node.name for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    torch.compiler.reset()
    torch.compile(model, backend=backend)(x, lengths)
    return names


assert compiled_operators(Tagger()) == []
assert compiled_operators(PackedClassifier()) == ["embedding"]
assert compiled_operators(IslandClassifier()) == ["embedding", "linear"]
for partly in (PackedClassifier(), IslandClassifier()):
    compiled_model = torch.compile(partly, backend="eager")
    assert torch.allclose(compiled_model(x, lengths), partly(x, lengths), atol=1e-6)
    assert torch.allclose(compiled_model(monday, n), partly(monday, n), atol=1e-6)
assert pv.check_static(IslandClassifier(), equal, "export").verdict == "refused"

# %% [markdown]
# ## What does `pv.LSTM` do differently?
#
# It hides. `pv.LSTM`, `pv.GRU` and `pv.RNN` are torch's modules with one *custom operator* for pack → RNN → pad. Padded
# tensors go in, padded tensors come out, and no tool has to look inside. The modules have torch's arguments and load
# its checkpoints, but their `forward` also takes `lengths`.
#
# We give the classifier a `pv.LSTM`, and ask *export* and *compile*. (We keep *onnx* for the last section.)


# %%
class RaggedClassifier(Tagger):
    def forward(self, x, lengths):
        _, (h_n, _) = self.lstm(self.embedding(x), lengths=lengths)
        return self.linear(h_n[0])


free = pv.check_static(RaggedClassifier(pv.LSTM), equal, ("export", "compile"))
free

# %% [markdown]
# Six questions, six ticks.
#
# <details><summary>Is it fast, too?</summary>
#
# On our CPU, yes. We timed a training step of an encoder–decoder with two LSTMs. With `pv.LSTM` in their place, it
# takes 30 % of the time that it takes with torch's packing, thanks to the methods of notebook 10. Compiling around an
# island (see the fold above) makes no clear difference, because the LSTMs take most of the time, and `torch.compile`
# leaves them as they are. <!-- recorded --> (Larger layers around the LSTMs, or a GPU, may change this: `packviz study
# compiled` times it on your machine.)
#
# </details>
#
# That leaves the exporter that began it all, and the tagger that we left.

# %% tags=["claims"]
assert all(answer.mark == "✓" for row in free.answers.values() for answer in row.values())

# %% tags=["claims"]
from packviz.studies import compiled

recorded = compiled.STUDY.load()
(point,) = recorded.points
times = {name: recorded.ratio(point, name, "packed") for name in recorded.timing(point).seconds}
assert not times["compiled, helpers disabled"].is_clear
assert not times["compiled, disabled island"].is_clear
assert f"{times['Ragged'].value:.0%}" == "30%"
assert not recorded.ratio(point, "Ragged", "padded").is_clear
assert 1 < recorded.ratio(point, "compiled, Ragged", "Ragged").value < 1.3
assert recorded.timing(point).rounds == 21

# %% [markdown]
# ## Can Friday be saved?
#
# Back to Friday's tagger. Its LSTM becomes ours, and gets the lengths. Then we repeat the export, with T and B dynamic
# again.


# %%
class RaggedTagger(Tagger):
    def forward(self, x, lengths):
        output, _ = self.lstm(self.embedding(x), lengths=lengths)
        return self.linear(output)


model = RaggedTagger(pv.LSTM)
saved = torch.onnx.export(model, (x, lengths), dynamo=True, dynamic_shapes=dynamic, verbose=False)

# %% [markdown]
# On Monday, the service gets its review of nine words again:

# %% jupyter={"source_hidden": true}
session = onnxruntime.InferenceSession(saved.model_proto.SerializeToString())
(out,) = session.get_outputs()
print("declared: x", session.get_inputs()[0].shape, "→ scores", out.shape)

(scores,) = session.run(None, {"x": monday.numpy(), "lengths": n.numpy()})
print(tuple(monday.shape), "→", scores.shape)
print("the model's scores:", torch.allclose(torch.tensor(scores), model(monday, n), atol=1e-5))

# %% [markdown]
# Nine steps go in, nine come out, and the scores are those of the model. The file no longer contradicts itself.
#
# And the service does not need packviz. ONNX has an LSTM, a GRU and an RNN of its own, each with an input for lengths,
# and packviz tells the exporter to write these. (This needs torch 2.8 or newer, and does not work with `proj_size`.)
# But a file from `torch.export.save` keeps the custom operator, so `import packviz` before you load it.
#
# What did the exporter know on Friday? That its graph was good for five steps only. It even wrote that down, where
# nobody looks. Now you know where to look, and what to ask: other lengths, another T, another B.

# %% tags=["claims"]
assert list(out.shape) == ["T", "B", 3]
assert {node.domain for node in saved.model.graph} == {""}  # ONNX's own operators
assert "LSTM" in {node.op_type for node in saved.model.graph}
shapes = {given.name: list(map(str, given.shape)) for given in saved.model.graph.inputs}
assert shapes == {"x": ["T", "B"], "lengths": ["B"]}
embedded = pack_padded_sequence(model.embedding(monday), n, enforce_sorted=False)
output, _ = pad_packed_sequence(torch.nn.LSTM.forward(model.lstm, embedded)[0])
assert torch.allclose(model(monday, n), model.linear(output), atol=1e-6)

# %% [markdown]
# ## Exercise
#
# On Friday, a test was missing. Now you write it, and two more. The graph comes from an example with four sequences of
# five steps, and may be wrong in one of three ways:
#
# - It ignores the lengths, and reads every sequence to step T.
# - It is right for five steps only.
# - It is right for four sequences only.
#
# Choose a test batch for each. Each batch must expose its own wrong graph, and no other, so change one thing at a time.
# Write a batch as its number of steps and its list of lengths: the example would be `(5, [5, 5, 5, 5])`.

# %% tags=["exercise"]
my_tests = {
    "lengths": (
        # solution
        5,
        [5, 3, 2, 4],
        # end solution
    ),
    "T": (
        # solution
        9,
        [9, 9, 9, 9],
        # end solution
    ),
    "B": (
        # solution
        5,
        [5, 5, 5],
        # end solution
    ),
}
checks.separate_tests(my_tests)

# %% [markdown]
# <details><summary>And if your target wants <em>every</em> size fixed?</summary>
#
# Compilers for special chips often do. Then you pad every batch to the same T and B. Packing saves no work, but it
# still gives you the right final states. The data of a `PackedSequence` have a row for each real step, so their size
# follows the lengths. A [guide by
# AWS](https://awsdocs-neuron.readthedocs-hosted.com/en/v1.12.0/frameworks/torch/torch-neuron/guides/torch-lstm-support.html)
# therefore allows them only as input of an RNN or of `pad_packed_sequence`. It accepts four models and rejects two. All
# six are in `packviz.check.models`, and `pv.check_static` agrees with the guide: it puts a `!` on the line where a size
# depends on the lengths.
#
# | model | what it does | sizes |
# |---|---|---|
# | `FixedLength` | does not pack | ✓ |
# | `Sorted` | packs a sorted batch, and pads the output | ✓ |
# | `Unsorted` | packs a batch in any order, and pads the output | ✓ |
# | `FinalStates` | packs, and returns the final states | ✓ |
# | `Returned` | returns the packed data | ! |
# | `UsedByMax` | takes the maximum of the packed data | ! |
#
# The ticks of `Sorted` and `Unsorted` hold only for batches whose longest sequence is as long as the example's,
# because neither passes `total_length`. (And *onnx_legacy* refuses `FinalStates`, as it refused our classifier.)
#
# To mend `UsedByMax`, pad the output before you take the maximum. But then the maximum may be a 0 from the padding. So
# fill the padding with −∞ first, as `MaxOfPadded` does, with `masked_fill`. (Don't use `padding_value`, which
# *onnx_legacy* ignores: [pytorch#28423](https://github.com/pytorch/pytorch/issues/28423).)
#
# </details>

# %% tags=["claims"]
from packviz.check import models

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
assert pv.check_static(models.FinalStates(), (x, lengths), "onnx_legacy").verdict == "refused"
for pair in ([5, 5], [5, 3], [5, 1]):
    assert pv.flops(lstm, pair).padded == pv.flops(lstm, [5, 5]).packed

narrow = pv.check_static(models.TAGGERS["… no total_length"](), (x, lengths), tools[:2]).answers
wrong = {tool for tool, answers in narrow.items() if answers["lengths"].mark == "✗ wrong"}
assert wrong == {"onnx_legacy"}
by_len = torch.jit.trace(lambda x: torch.zeros(len(x)), x)
assert by_len(x[:2]).size(0) == x.size(0)

# %% [markdown]
# ## You can now
#
# - ask a graph about lengths, T and B, with `pv.check_static`, before a service does,
# - say which exporters fix T, which tools refuse packing, and which are wrong without an error,
# - export a model that packs, with `pv.LSTM`, and say what loading the file needs.
#
# An RNN takes one step after another, so it has to know where each sequence stops. A transformer takes all steps at
# once. Can it do without lengths?
#
# Next: [14 Beyond RNNs](14_beyond_rnns.ipynb). Back: [12 Several processes](12_several_workers.ipynb) · [00 Start
# here](00_start_here.ipynb)
