# %% [markdown]
# # Error museum
#
# **You have an error, or a wrong result without one. Which mistake is it, and what do you do?**
#
# It is late, the training run has died, and the last line of the traceback is about `lengths`. Or worse: nothing has
# died, the loss goes down, and something is still wrong. You are not the first. Some of the mistakes on this page
# have been made, asked about, and made again since 2017. Every mistake comes with its cause and its fix, with
# its message if it has one, and mostly with a thread in which somebody asked about it.
#
# After this page, you can name a mistake by its message or its symptom, repair it, and check a batch for mistakes that
# have no message.
#
# Time: as long as you like. A search takes a minute, and an entry takes two.
#
# <details><summary>Where we are in the ten lines: <b>lengths, pack, LSTM, pad</b></summary>
# <pre>
#   sequences = [torch.tensor([3, 1, 4]), torch.tensor([1, 5, 9, 2, 6]), torch.tensor([5, 3]), torch.tensor([5, 8, 9, 7])]
# → lengths = torch.tensor([len(s) for s in sequences])                        # (4,)       3, 5, 2, 4: on the CPU
#   x = pad_sequence(sequences, batch_first=True)                              # (4, 5)     padded with 0
#   embedded = embedding(x)                                                    # (4, 5, 6)
# → packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)   # data: (14, 6)
# → packed_output, (h_n, c_n) = lstm(packed)                                   # data: (14, 8); h_n: (1, 4, 8)
# → output, _ = pad_packed_sequence(packed_output, batch_first=True)           # (4, 5, 8)
#   scores = linear(output)                                                    # (4, 5, 3)
#   mask = torch.arange(5) &lt; lengths[:, None]                                  # (4, 5)     True at the 14 real cells
#   loss = cross_entropy(scores[mask], tags[mask])                             # ()         then loss.backward()
# </pre>
# Most of the mistakes on this page are made in the four lines with an arrow.
# </details>
#
# ## What does the error say?
#
# Paste the message, with its traceback if you have one: some mistakes share a message, and the traceback can tell them
# apart. No error? Describe the problem in a few words.

# %%
from packviz.panels import MuseumPanel

search = MuseumPanel(
    "RuntimeError: 'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:1 Long tensor"
)
search

# %% [markdown]
# In a program, `pv.explain` does the same. It is *sure* if it knows no other mistake with this message. Take three
# texts: a complaint in somebody's own words, a famous message, and a message that names the culprit. Which can it be
# sure of?

# %%
import packviz as pv

seen = (
    "output shorter than input",
    "IndexError: index out of range in self",
    "AttributeError: 'PackedSequence' object has no attribute 'size'",
)
for text in seen:
    found = pv.explain(text)
    print(f"{text}\n    {found[0].heading} (sure: {found.sure})")

# %% tags=["claims"]
assert search.matches[0].name == "Lengths on the GPU"
assert search.matches.sure
assert not pv.explain("IndexError: index out of range in self").sure
assert not pv.explain("KeyError: 'foo'")
assert pv.explain("is h_n in my order?")[0].name == "Outputs and h_n are in your order"
assert pv.explain("must be Tensor, not PackedSequence")[0].name == "A layer that does not take a PackedSequence"
assert [pv.explain(text).sure for text in seen] == [False, False, True]

# %% [markdown]
# Only of the last. The famous one can come from packing, if there are too many lengths. On a CPU, it also comes from
# any embedding that gets an id beyond its vocabulary. One message, two mistakes: that is why the search asks for the
# traceback.
#
# ## Or browse
#
# The search knows more mistakes than these 26. Begin on the left if you have no error at all, and then try 22 and 23.
#
# | wrong results without an error | errors | surprises that are not mistakes |
# |---|---|---|
# | 1 [Batch and time swapped](#1.-Batch-and-time-swapped) | 10 [Lengths greater than T](#10.-Lengths-greater-than-T) | 21 [batch_sizes are not lengths](#21.-batch_sizes-are-not-lengths) |
# | 2 [Unpacked without batch_first](#2.-Unpacked-without-batch_first) | 11 [Lengths not sorted](#11.-Lengths-not-sorted) | 22 [The last output is not h_n](#22.-The-last-output-is-not-h_n) |
# | 3 [Lengths too short](#3.-Lengths-too-short) | 12 [Lengths on the GPU](#12.-Lengths-on-the-GPU) | 23 [Padding changes bidirectional outputs](#23.-Padding-changes-bidirectional-outputs) |
# | 4 [Fractional lengths](#4.-Fractional-lengths) | 13 [Tensors on two devices](#13.-Tensors-on-two-devices) | 24 [One-directional outputs do not need packing](#24.-One-directional-outputs-do-not-need-packing) |
# | 5 [Too few lengths](#5.-Too-few-lengths) | 14 [An empty sequence](#14.-An-empty-sequence) | 25 [Outputs and h_n are in your order](#25.-Outputs-and-h_n-are-in-your-order) |
# | 6 [Unpacked without total_length](#6.-Unpacked-without-total_length) | 15 [Initial state given batch first](#15.-Initial-state-given-batch-first) | 26 [Slower when packed](#26.-Slower-when-packed) |
# | 7 [Order lost in a hand-built PackedSequence](#7.-Order-lost-in-a-hand-built-PackedSequence) | 16 [Replicas pad to different widths](#16.-Replicas-pad-to-different-widths) | |
# | 8 [Too many rows in h_0](#8.-Too-many-rows-in-h_0) | 17 [A PackedSequence has no size or shape](#17.-A-PackedSequence-has-no-size-or-shape) | |
# | 9 [GRU state unpacked into h and c](#9.-GRU-state-unpacked-into-h-and-c) | 18 [A layer that does not take a PackedSequence](#18.-A-layer-that-does-not-take-a-PackedSequence) | |
# | | 19 [Compiling a packed RNN with fullgraph](#19.-Compiling-a-packed-RNN-with-fullgraph) | |
# | | 20 [ONNX export without unpacking](#20.-ONNX-export-without-unpacking) | |

# %% [markdown]
# ## And if there is no error?
#
# Then we ask the data. `pv.diagnose` checks a batch *before* you trust it. In most batches on this page, sequence a
# holds 10, 11, 12, …, and sequence b holds 20, 21, 22, … In this first batch, a length is too large, and with
# `enforce_sorted=False`, torch packs the batch all the same:

# %%
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence, pad_sequence

from packviz.check import museum
from packviz.lessons import checks


def make(lengths):
    """(B, T), padded with zeros."""
    rows = [torch.arange(10.0 * b, 10.0 * b + n) for b, n in enumerate(lengths, 1)]
    return pad_sequence(rows, batch_first=True)


pv.diagnose(make([5, 3, 2]), [5, 3, 7], batch_first=True)

# %% [markdown]
# (The verdict can also be *undecided*. The data then fit more than one explanation, or show
# too little, and only you know more.)
#
# And if packing does raise an error that the museum knows, `pv.explain_errors` adds the cause and the fix:

# %%
try:
    with pv.explain_errors():
        pack_padded_sequence(make([3, 0]), [3, 0], batch_first=True)
except RuntimeError as error:
    (note,) = error.__notes__
print(note)

# %% tags=["claims"]
assert pv.diagnose(make([5, 3, 2]), [5, 3, 7], batch_first=True).rules == ["longer than x"]
assert not pv.diagnose(make([5, 3, 2]), [5, 3, 2], batch_first=True)  # it finds nothing

# %% [markdown]
# ## Wrong results
#
# torch accepts each of these nine mistakes (5 and 8 only with `enforce_sorted=False`), and computes something that
# you did not mean. They are the expensive ones. Nothing stops you, the loss goes down, and a week later you wonder
# why the results are a little worse than they should be.
#
# Run the cells above once, and then any entry. The code inside `with museum.entry(…)` makes the mistake. Below are
# torch's message, the cause, the fix, and often a thread in which people have asked about the mistake. *Also met*
# lists other messages that the same mistake can cause. (An entry with several calls uses `attempt(f, x)`, which calls
# `f(x)` and shows what torch says.) In the pictures, a red frame marks a cell that is misplaced or missing.

# %% [markdown]
# ### 1. Batch and time swapped
#
# Both calls lack `batch_first=True`. In the first, there are fewer lengths than columns. In the second, B = T. (In the
# second case, `pv.masked_loss`, `pv.align`, `pv.show` and `pv.diagnose` warn until you pass `batch_first`.)

# %%
lengths = [6, 2, 4, 1, 5, 3]
x = make(lengths)  # (B, T) = (6, 6)
with museum.entry("Batch and time swapped") as attempt:
    attempt(pack_padded_sequence, torch.zeros(2, 5), [2, 1], enforce_sorted=False)  # 2 of 5 columns
    attempt(pack_padded_sequence, x, lengths, enforce_sorted=False)

print(f"\n{pv.diagnose(x, lengths, batch_first=False)}")
pv.draw.Aligned.of(x, lengths, title="x, read as (T, B)", batch_first=False, like=x.T)

# %% tags=["claims"]
assert pv.diagnose(x, lengths, batch_first=False).rules == ["batch and time swapped"]
assert not pv.diagnose(x, lengths, batch_first=True)

# %% [markdown]
# ### 2. Unpacked without batch_first
#
# The batch was packed with `batch_first=True`, but is padded again without it.

# %%
lengths = [4, 3, 1, 1]
x = make(lengths)  # (B, T) = (4, 4)
packed = pack_padded_sequence(x, lengths, batch_first=True)
with museum.entry("Unpacked without batch_first"):
    output, _ = pad_packed_sequence(packed)

pv.draw.Aligned.of(output, lengths, title="output, read as (B, T)", batch_first=True, like=x)

# %% tags=["claims"]
assert torch.equal(output, x.T)  # (T, B)
assert torch.equal(pad_packed_sequence(packed, batch_first=True)[0], x)

# %% [markdown]
# ### 3. Lengths too short
#
# The lengths were limited with `clamp(max=4)`, but x still has six steps. Somebody may even have meant that, so
# `pv.diagnose` calls this case *undecided*.

# %%
x, lengths = make([6, 2, 4, 1, 5, 3]), [4, 2, 4, 1, 4, 3]
with museum.entry("Lengths too short"):
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)

print(f"\n{pv.diagnose(x, lengths, batch_first=True)[0]}")
output, _ = pad_packed_sequence(packed, batch_first=True, total_length=6)
pv.draw.Aligned.of(x, lengths, title="x, framed where steps are left out", batch_first=True, like=output)

# %% tags=["claims"]
assert len(packed.data) == 18  # of 21
doubt, _ = pv.diagnose(x, lengths, batch_first=True)
assert doubt.rule == "undecided"  # a mistake, or cut on purpose
assert doubt.indices == (0, 4)
assert not pv.diagnose(x, [6, 2, 4, 1, 5, 3], batch_first=True)
assert not pv.diagnose(x[:, :4], lengths, batch_first=True)  # cut on purpose

# %% [markdown]
# ### 4. Fractional lengths
#
# A layer that takes every second step has turned 10, 7 and 5 steps into 5, 4 and 3, but the lengths were simply halved.

# %%
x, before = make([5, 4, 3]), torch.tensor([10, 7, 5])
with museum.entry("Fractional lengths"):
    packed = pack_padded_sequence(x, before / 2, batch_first=True)  # 5, 3.5, 2.5

_, taken = pad_packed_sequence(packed)
print(f"\ngiven {(before / 2).tolist()}, taken {taken.tolist()}\n\n{pv.diagnose(x, before / 2, batch_first=True)}")

# %% tags=["claims"]
assert taken.tolist() == [5, 3, 2]
assert pv.diagnose(x, before / 2, batch_first=True).rules == ["fractional length"]
assert not pv.diagnose(x, (before + 1) // 2, batch_first=True)
share = torch.tensor([22, 13]) / 22  # another way to get there
assert (share * 22).long().tolist() == [22, 12]
assert (share * 22).round().long().tolist() == [22, 13]

# %% [markdown]
# ### 5. Too few lengths
#
# There are two lengths for three sequences.

# %%
x = make([5, 3, 2])
with museum.entry("Too few lengths"):
    packed = pack_padded_sequence(x, [5, 3], batch_first=True, enforce_sorted=False)

output, _ = pad_packed_sequence(packed, batch_first=True)
left = torch.nn.functional.pad(output, (0, 0, 0, 1))  # no row for c
pv.draw.Aligned.of(x, [5, 3, 2], title="x, framed where steps are left out", batch_first=True, like=left)

# %% tags=["claims"]
assert packed.batch_sizes[0] == 2
assert pv.diagnose(x, [5, 3], batch_first=True).rules == ["wrong count"]
assert pv.diagnose(x, [5, 3, 2, 2], batch_first=True).rules == ["wrong count"]
assert pack_padded_sequence(x, [5, 3, 2], batch_first=True).batch_sizes[0] == 3

# %% [markdown]
# ### 6. Unpacked without total_length
#
# x is eight steps wide, but its longest sequence has only five.

# %%
x, lengths = torch.nn.functional.pad(make([5, 3, 2]), (0, 3)), [5, 3, 2]
packed = pack_padded_sequence(x, lengths, batch_first=True)
with museum.entry("Unpacked without total_length"):
    output, _ = pad_packed_sequence(packed, batch_first=True)

print(f"\nx {tuple(x.shape)}, output {tuple(output.shape)}")

# %% tags=["claims"]
assert output.shape == (3, 5)
output, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])
assert torch.equal(output, x)
assert pv.diagnose(x, lengths, batch_first=True).rules == ["narrower when unpacked"]

# %% [markdown]
# ### 7. Order lost in a hand-built PackedSequence
#
# A layer is applied to the packed data, and the result is packed by hand.

# %%
x, lengths = make([2, 5, 3]), [2, 5, 3]
packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
with museum.entry("Order lost in a hand-built PackedSequence"):
    by_hand = PackedSequence(2 * packed.data, packed.batch_sizes)

output, _ = pad_packed_sequence(by_hand, batch_first=True)
print(f"\n{pv.diagnose(x, lengths, batch_first=True, packed=by_hand)}")
pv.draw.Aligned.of(output, [5, 3, 2], title="output, framed where it is not 2 · x", batch_first=True, like=2 * x)

# %% tags=["claims"]
assert output[0, 0] == 40  # sequence b, in the row of a
kept, _ = pad_packed_sequence(packed._replace(data=2 * packed.data), batch_first=True)
assert torch.equal(kept, 2 * x)
assert pv.diagnose(x, lengths, batch_first=True, packed=by_hand).rules == ["order lost"]

# %% [markdown]
# ### 8. Too many rows in h_0
#
# The last batch has three sequences, but the state from the previous batch has six.

# %%
x, lengths = make([2, 5, 3]), [2, 5, 3]
packed = pack_padded_sequence(x.unsqueeze(2), lengths, batch_first=True, enforce_sorted=False)
torch.manual_seed(0)
gru, h_0 = torch.nn.GRU(1, 4), torch.randn(1, 6, 4)
with museum.entry("Too many rows in h_0"):
    _, h_n = gru(packed, h_0)

print(f"\nh_0 {tuple(h_0.shape)}, h_n {tuple(h_n.shape)}")

# %% tags=["claims"]
assert torch.equal(h_n, gru(packed, h_0[:, :3])[1])  # the other three: dropped
assert pv.diagnose(x, lengths, batch_first=True, hx=h_0).rules == ["rows of the state"]
assert not pv.diagnose(x, lengths, batch_first=True, hx=h_0[:, :3])

# %% [markdown]
# ### 9. GRU state unpacked into h and c
#
# An LSTM was replaced by a GRU with two layers, but the code still expects h and c.

# %%
packed = pack_padded_sequence(make([5, 3, 2]).unsqueeze(2), [5, 3, 2], batch_first=True)
gru = torch.nn.GRU(1, 4, num_layers=2)
with museum.entry("GRU state unpacked into h and c"):
    output, (h, c) = gru(packed)

_, h_n = gru(packed)
print(f"\nh is the first layer's state: {torch.equal(h, h_n[0])}; c is the second's: {torch.equal(c, h_n[1])}")

# %% tags=["claims"]
assert torch.equal(torch.stack([h, c]), h_n)

# %% [markdown]
# ## Errors
#
# Errors stop you, which is kind. But many of the messages name a consequence, and not the cause.
#
# ### 10. Lengths greater than T
#
# x has three steps, but one length is five. Packing accepts this. The RNN fails, and so does `pad_packed_sequence`.

# %%
x, lengths = make([3, 2]).T, [5, 2]  # (T, B) = (3, 2)
with museum.entry("Lengths greater than T") as attempt:
    packed = attempt(pack_padded_sequence, x.unsqueeze(2), lengths)
    attempt(torch.nn.GRU(1, 4), packed)
    attempt(pad_packed_sequence, packed)

there = torch.nn.functional.pad(x.T, (0, 2))
pv.draw.Aligned.of(
    make(lengths), lengths, title="what the lengths ask for, framed where x has nothing", batch_first=True, like=there
)

# %% tags=["claims"]
assert (sum(packed.batch_sizes), len(packed.data)) == (7, 5)
assert pv.diagnose(x, lengths).rules == ["longer than x"]
assert len(pack_padded_sequence(x, [3, 2]).data) == 5  # its own lengths

# %% [markdown]
# ### 11. Lengths not sorted
#
# The lengths are not in decreasing order.

# %%
x, lengths = make([3, 5, 2]), [3, 5, 2]
with museum.entry("Lengths not sorted"):
    pack_padded_sequence(x, lengths, batch_first=True)

# %% tags=["claims"]
packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
output, _ = pad_packed_sequence(packed, batch_first=True)
assert torch.equal(output, x)  # your order

# %% [markdown]
# ### 12. Lengths on the GPU
#
# Entries 12 and 13 are about GPUs. In both, torch's `meta` device stands in for a GPU. Meta tensors have no values, and
# torch refuses to mix them with tensors on the CPU. The messages of a real GPU are listed as *also met*.

# %%
x, lengths = make([5, 3, 2]), torch.tensor([5, 3, 2])
with museum.entry("Lengths on the GPU"):
    pack_padded_sequence(x, lengths.to("meta"), batch_first=True)

# %% tags=["claims"]
assert pv.diagnose(x, lengths.to("meta"), batch_first=True).rules == ["lengths not on the CPU"]
packed = pack_padded_sequence(x, lengths, batch_first=True)
assert packed.batch_sizes.device.type == "cpu"  # they plan the steps, too

# %% [markdown]
# ### 13. Tensors on two devices
#
# The lengths that `pad_packed_sequence` returns are on the CPU, and so is a mask made from them.

# %%
packed = pack_padded_sequence(make([5, 3, 2]), [5, 3, 2], batch_first=True).to("meta")
output, lengths = pad_packed_sequence(packed, batch_first=True)
with museum.entry("Tensors on two devices"):
    output * pv.real_mask(lengths)

print(f"\noutput on {output.device}, lengths on {lengths.device}")

# %% tags=["claims"]
mask = pv.real_mask(lengths, output.shape[1]).to(output.device)
assert (output * mask).device == output.device

# %% [markdown]
# ### 14. An empty sequence
#
# Sequence b has no time steps.

# %%
x, lengths = make([3, 0, 2]), torch.tensor([3, 0, 2])
with museum.entry("An empty sequence"):
    pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)

pv.draw.Aligned.of(x, pv.real_mask(lengths), title="b has no step to pack", batch_first=True)

# %% tags=["claims"]
full = lengths > 0
packed = pack_padded_sequence(x[full], lengths[full], batch_first=True, enforce_sorted=False)
output = torch.zeros_like(x)
output[full], _ = pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])
assert torch.equal(output, x)
assert pv.diagnose(x, lengths, batch_first=True).rules == ["empty sequence"]

# %% [markdown]
# ### 15. Initial state given batch first
#
# The module has `batch_first=True`, so the state was made batch first as well.

# %%
packed = pack_padded_sequence(make([5, 3, 2]).unsqueeze(2), [5, 3, 2], batch_first=True)
gru, h_0 = torch.nn.GRU(1, 4, batch_first=True), torch.zeros(3, 1, 4)  # (B, layers, H)
with museum.entry("Initial state given batch first"):
    gru(packed, h_0)

# %% tags=["claims"]
output, h_n = gru(packed, h_0.transpose(0, 1))
assert h_n.shape == (1, 3, 4)
assert h_n[-1].shape == (3, 4)  # the last layer, a row for each sequence

# %% [markdown]
# ### 16. Replicas pad to different widths
#
# The batch is split between two replicas. Each packs and pads its share, and then the outputs are concatenated.

# %%
x, lengths = make([5, 4, 3, 2]), [5, 4, 3, 2]
shares = [pack_padded_sequence(x[i : i + 2], lengths[i : i + 2], batch_first=True) for i in (0, 2)]
with museum.entry("Replicas pad to different widths") as attempt:
    attempt(torch.cat, [pad_packed_sequence(share, batch_first=True)[0] for share in shares])
    attempt(pad_packed_sequence, shares[0], batch_first=True, total_length=3)  # the other one's width

# %% tags=["claims"]
outputs = [pad_packed_sequence(share, batch_first=True, total_length=5)[0] for share in shares]
assert torch.equal(torch.cat(outputs), x)

# %% [markdown]
# ### 17. A PackedSequence has no size or shape
#
# A packed sequence is used as if it were a tensor.

# %%
packed = pack_padded_sequence(make([5, 3, 2]), [5, 3, 2], batch_first=True)
with museum.entry("A PackedSequence has no size or shape") as attempt:
    attempt(lambda: packed.size())
    attempt(lambda: packed.shape)
    attempt(lambda: packed[:, -1])

print(f"\n{len(packed.batch_sizes)} steps, {packed.batch_sizes[0]} sequences, data {tuple(packed.data.shape)}")

# %% tags=["claims"]
assert packed.data.shape == (10,)
assert (len(packed.batch_sizes), packed.batch_sizes[0]) == (5, 3)

# %% [markdown]
# ### 18. A layer that does not take a PackedSequence
#
# A packed sequence is passed to a layer that is not an RNN.

# %%
packed = pack_padded_sequence(make([2, 5, 3]), [2, 5, 3], batch_first=True, enforce_sorted=False)
with museum.entry("A layer that does not take a PackedSequence") as attempt:
    for layer in (torch.sigmoid, torch.nn.Linear(1, 4), torch.nn.Dropout()):
        attempt(layer, packed)

# %% tags=["claims"]
packed = packed._replace(data=torch.relu(packed.data - 22))
output, lengths = pad_packed_sequence(packed, batch_first=True)
assert lengths.tolist() == [2, 5, 3]  # in your order; PackedSequence(…) would lose it: entry 7
assert torch.equal(output, torch.relu(make([2, 5, 3]) - 22))

# %% [markdown]
# ### 19. Compiling a packed RNN with fullgraph
#
# `fullgraph=True` asks for one graph without gaps. With `backend="eager"`, nothing is compiled to machine code, so no
# C++ compiler is needed.

# %%
x, gru = make([5, 3, 2]).unsqueeze(2), torch.nn.GRU(1, 4)


def network(x):
    return gru(pack_padded_sequence(x, [5, 3, 2], batch_first=True))[1]


with museum.entry("Compiling a packed RNN with fullgraph") as attempt:
    attempt(torch.compile(network, fullgraph=True, backend="eager"), x)
    attempt(torch.compile(gru, fullgraph=True, backend="eager"), x)
    h_n = attempt(torch.compile(network, backend="eager"), x)

# %% tags=["claims"]
assert torch.equal(h_n, network(x))  # without fullgraph: right

# %% [markdown]
# ### 20. ONNX export without unpacking
#
# The model returns packed data, which ONNX, a file format for models, cannot express. [Notebook
# 13](13_static_graphs.ipynb) exports models that pack and pad.


# %%
import io


class Half(torch.nn.Module):
    def forward(self, x, lengths):
        return pack_padded_sequence(x, lengths).data


x, lengths = make([5, 3, 2]).T, torch.tensor([5, 3, 2])
with museum.entry("ONNX export without unpacking"):
    torch.onnx.export(Half(), (x, lengths), io.BytesIO(), dynamo=False)

print(f"\nThe model returns {Half()(x, lengths).int().tolist()}, but not whose numbers these are.")


# %% tags=["claims"]
class Whole(torch.nn.Module):
    def forward(self, x, lengths):
        return pad_packed_sequence(pack_padded_sequence(x, lengths), total_length=len(x))[0]


assert torch.equal(Whole()(x, lengths), x)  # a tensor comes out

# %% [markdown]
# ## Surprises
#
# Here torch does what it should. If you expected something else, your results may be wrong all the same.
#
# ### 21. batch_sizes are not lengths
#
# One sequence has 3 steps, and the other has 1, but `batch_sizes` is not [3, 1]. In the picture, the sequences are abc
# and x.

# %%
packed = pack_padded_sequence(make([3, 1]), [3, 1], batch_first=True)
with museum.entry("batch_sizes are not lengths"):
    sizes = packed.batch_sizes.tolist()

print(f"\nbatch_sizes {sizes}, lengths {pad_packed_sequence(packed)[1].tolist()}")
pv.show(["abc", "x"])

# %% tags=["claims"]
assert sizes == [2, 1, 1]
assert pad_packed_sequence(packed)[1].tolist() == [3, 1]
assert packed.batch_sizes.sum() == len(packed.data) == 3 + 1

# %% [markdown]
# ### 22. The last output is not h_n
#
# We compare the output at each sequence's own last step with `h_n`, in both directions.

# %%
lengths = [5, 3, 2]
torch.manual_seed(0)
x, gru = torch.randn(3, 5, 2), torch.nn.GRU(2, 4, bidirectional=True, batch_first=True)
packed_output, h_n = gru(pack_padded_sequence(x, lengths, batch_first=True))
output, _ = pad_packed_sequence(packed_output, batch_first=True)
with museum.entry("The last output is not h_n"):
    last = output[range(3), [4, 2, 1]]  # step len − 1

print(f"\nEqual to h_n: forward {torch.equal(last[:, :4], h_n[0])}, reverse {torch.equal(last[:, 4:], h_n[1])}")
print(f"And output[:, -1]? {pv.diagnose(output, lengths, batch_first=True, last=output[:, -1])}")

# %% tags=["claims"]
assert torch.equal(last[:, :4], h_n[0])
assert not torch.isclose(last[:, 4:], h_n[1]).any()
assert torch.equal(output[:, 0, 4:], h_n[1])  # it ends at step 0
assert pv.diagnose(output, lengths, batch_first=True, last=output[:, -1]).rules == ["read at the padding"]

# %% [markdown]
# ### 23. Padding changes bidirectional outputs
#
# A bidirectional GRU reads a batch whose padding is filled with 99. In the picture, each number is the difference
# between a padded and a packed run, in %.

# %%
torch.manual_seed(0)
x, lengths = torch.randn(3, 5, 2).double(), [5, 3, 2]
gru = torch.nn.GRU(2, 4, bidirectional=True, batch_first=True).double()
with museum.entry("Padding changes bidirectional outputs"):
    other = x.masked_fill(~pv.real_mask(lengths).unsqueeze(2), 99.0)

comparison = pv.compare(gru, other, lengths, gradients=False)
comparison

# %% tags=["claims"]
packed = (pack_padded_sequence(y, lengths, batch_first=True) for y in (x, other))
one, two = (gru(each)[0].data for each in packed)
assert torch.equal(one, two)  # packed: the padding has no say
assert not comparison.agrees.outputs_reverse
assert comparison.agrees.outputs_forward
deep = torch.nn.GRU(2, 4, num_layers=2, bidirectional=True, batch_first=True).double()
assert not pv.compare(deep, other, lengths, gradients=False).agrees.outputs_forward

# %% [markdown]
# ### 24. One-directional outputs do not need packing
#
# We compare a padded and a packed run again, now for a GRU with one direction.

# %%
torch.manual_seed(0)
x, lengths = torch.randn(3, 5, 2).double(), [5, 3, 2]
gru = torch.nn.GRU(2, 4, batch_first=True).double()
with museum.entry("One-directional outputs do not need packing"):
    comparison = pv.compare(gru, x, lengths, gradients=False)

comparison

# %% tags=["claims"]
assert comparison.agrees.outputs
assert not comparison.agrees.h_n
assert comparison.h_n.differs[0, 0].tolist() == [False, True, True]  # a is the longest

# %% [markdown]
# ### 25. Outputs and h_n are in your order
#
# The sequences are not sorted, so torch sorts them. Which one then comes first in `data`, and which in `h_n`?

# %%
torch.manual_seed(0)
x, lengths = torch.randn(3, 5, 2), [2, 5, 3]
gru = torch.nn.GRU(2, 4, batch_first=True)
packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
with museum.entry("Outputs and h_n are in your order"):
    output, h_n = gru(packed)

_, alone = gru(x[:1, :2])  # a by itself
same = torch.allclose(h_n[:, :1], alone, atol=1e-6)
print(f"\ndata begins with sequence {'abc'[packed.sorted_indices[0]]}, h_n begins with a: {same}")

# %% tags=["claims"]
for b, n in enumerate(lengths):
    _, alone = gru(x[b : b + 1, :n])
    assert torch.allclose(h_n[:, b], alone[:, 0], atol=1e-6)
assert torch.equal(packed.data[0], x[1, 0])  # in the data, b comes first

# %% [markdown]
# ### 26. Slower when packed
#
# Training can be slower on packed data, for three reasons that notebook 09 explains. You can see the first in the
# number of nodes that autograd records when pad runs.

# %%
from packviz.count import profile

with museum.entry("Slower when packed"):
    equal, different = profile.count([8] * 8), profile.count([8, 7, 6, 5, 4, 3, 2, 1])

print(f"\n{equal.pad.nodes} autograd nodes with eight equal lengths, {different.pad.nodes} with eight different ones")

# %% tags=["claims"]
assert different.pad.nodes > 5 * equal.pad.nodes

# %% [markdown]
# ## What people get wrong
#
# - **"There is no error, so it is right."** Entries 1 to 9 give wrong results without an error. Before you train,
#   draw one batch with `pv.show(x, lengths)`, which shows lengths that do not fit x, as in entries 1 and 3. It cannot
#   show what you do with the batch later, as in 2 and in 6 to 9.
# - **"`pv.diagnose` finds nothing, so nothing is wrong."** It can judge only by the data. If the data leave room for
#   doubt, it tries to say so. Give it the padded batch, before any layer changes the padding. Here are two batches that
#   do not show enough. The first fits its lengths whether you read it batch first or time first. The second is
#   *undecided*, because dropout has changed its padding:

# %%
ambiguous = make([3, 2, 1])  # fits its lengths along either dimension
pv.diagnose(ambiguous, [3, 2, 1], batch_first=True)

# %%
dropped = torch.nn.Dropout()(make([5, 3, 2]) + 1)  # cells that were padding are now 0 or 2, at random
pv.diagnose(dropped, [5, 3, 2], batch_first=True)

# %% tags=["claims"]
for batch_first in (True, False):
    assert pv.diagnose(ambiguous, [3, 2, 1], batch_first=batch_first).rules == ["batch or time"]
assert pv.diagnose(dropped, [5, 3, 2], batch_first=True).undecided
assert not pv.diagnose(dropped, [5, 3, 2], batch_first=True).ok

# %% [markdown]
# ## Exercise
#
# Here are three batches of the same six sequences, which have 6, 2, 4, 1, 5 and 3 steps. torch packs each of them
# without an error, but not as you meant. This time, find the mistakes without a tool: look at where the numbers and
# the zeros are. Then give the repaired `(x, lengths, batch_first)` for each batch.

# %%
from packviz.lessons.checks import spoilt_batches

one, two, three = spoilt_batches()
for x, lengths, batch_first in (one, two, three):
    print(f"{x.numpy()}\nlengths {lengths}, batch_first={batch_first}\n")

# %% tags=["exercise"]
my_batches = [
    # solution
    (one[0], one[1], True),
    (pv.align(two[0], two[1], padding_side="right", batch_first=True), two[1], True),
    (three[0], [6, 2, 4, 1, 5, 3], True),
    # end solution
]
checks.repaired_batches(my_batches)

# %% tags=["claims"]
assert all(pv.diagnose(*batch) for batch in (one, two, three))  # it finds something in each

# %% [markdown]
# ## You can now
#
# paste a message and find its cause, ask `pv.diagnose` if there is no message, and say what neither the search nor
# `pv.diagnose` can know.
#
# This was the last page. Somewhere in your own code is a batch that nobody has ever looked at. Looking takes one
# line: `print(pv.diagnose(x, lengths))`.
#
# Back: [14 Beyond RNNs](14_beyond_rnns.ipynb) · [00 Start here](00_start_here.ipynb)
