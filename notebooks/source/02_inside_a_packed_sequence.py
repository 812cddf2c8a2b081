# %% [markdown]
# # Inside a packed sequence
#
# **How does a `PackedSequence` order its data, and what is `batch_sizes`?**
#
# After this page you can
#
# - read `data` and `batch_sizes` of any packed sequence,
# - say why the data has that order,
# - follow a sequence through sorting, and get it back in your order,
# - train a model on packed batches.
#
# Time: 20 minutes.
#
# ## Two sequences, packed
#
# `a = [1, 2, 3]` and `b = [10, 20]`. Predict what torch puts into `data`.

# %%
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence

import packviz as pv
from packviz.lessons import ask, checks

ask("order of data")

# %%
a, b = torch.tensor([1, 2, 3]), torch.tensor([10, 20])
packed = pack_sequence([a, b])
print(packed)
pv.show(packed)

# %% [markdown]
# Read the right panel **column by column**, top to bottom. That is `data`.
#
# A column is one time step. `batch_sizes` says how tall each column is: how many rows of `data` belong to that step.
# (The two `None`s are for sorting, further down.)

# %% tags=["claims"]
assert packed.data.tolist() == [1, 10, 2, 20, 3]
assert packed.batch_sizes.tolist() == [2, 2, 1]

# %% [markdown]
# ## Walk the steps
#
# Move **time step t**, or press play. The frame shows what step t takes, and where it goes in `data`.
#
# Then tick *show the common mistake*: one sequence after another. There the rows of one step lie apart.

# %%
from packviz.explorers import PackedExplorer

explorer = PackedExplorer([3, 5, 2, 4])
explorer

# %% [markdown]
# At every step the rows are one slice, and the slices follow each other.
#
# Elsewhere one sequence after another is no mistake: transformers want that order
# ([notebook 12](12_beyond_rnns.ipynb)).

# %% tags=["claims"]
for t in range(5):
    start, end = explorer.shown.offsets[t : t + 2]
    assert end - start == explorer.shown.batch_sizes[t]
    assert f"data[{start}:{end}]" in PackedExplorer([3, 5, 2, 4], t=t).summary.value

# %% [markdown]
# ## Why this order?
#
# An RNN goes through time. At step t it multiplies step t of *every* sequence by the same weights, in one product. In a
# plain RNN the new state is tanh(input · weight + bias + state · weight + bias).
#
# Stored this way, all it needs is one slice, and the sequences that have ended are simply not in it.
# Here is a whole RNN over a packed sequence, in a few lines.

# %%
torch.manual_seed(0)
rnn = torch.nn.RNN(input_size=4, hidden_size=5)
packed = pack_sequence([torch.randn(n, 4) for n in (5, 4, 3, 2)])

h = torch.zeros(4, 5)
start = 0
for size in packed.batch_sizes.tolist():
    rows = packed.data[start : start + size]  # step t of everybody who is still running
    new = torch.tanh(rows @ rnn.weight_ih_l0.T + rnn.bias_ih_l0 + h[:size] @ rnn.weight_hh_l0.T + rnn.bias_hh_l0)
    h = torch.cat([new, h[size:]])  # those who have ended keep their state
    start += size

# %%
output, h_n = rnn(packed)
print("equal to torch's final states:", torch.allclose(h, h_n[0], atol=1e-6))

# %% [markdown]
# Look at `h[size:]`. A sequence that has ended keeps its state. That is why packed final states are right.
# And it is why the longest must come first: whoever ends next is always the last row.

# %% tags=["claims"]
assert torch.allclose(h, h_n[0], atol=1e-6)

# %% [markdown]
# ## `batch_sizes` are not the lengths
#
# The sequences `abc` and `x` have lengths 3 and 1.

# %%
ask("batch sizes of abc and x")

# %%
pv.show(["abc", "x"], names=["abc", "x"])

# %% [markdown]
# With six sequences `batch_sizes` starts at 6, and falls by one whenever a sequence ends.

# %%
pv.show([9, 8, 6, 4, 3, 2])

# %% tags=["claims"]
packed = pack_sequence([torch.tensor([ord(letter) for letter in word]) for word in ("abc", "x")])
assert "".join(map(chr, packed.data)) == "axbc"
assert packed.batch_sizes.tolist() == [2, 1, 1]
packed = pack_sequence([torch.zeros(n) for n in (9, 8, 6, 4, 3, 2)])
assert packed.batch_sizes.tolist() == [6, 6, 5, 4, 3, 3, 2, 2, 1]

# %% [markdown]
# ## Sorting, and your own order
#
# `pack_sequence` takes a list of sequences, `pack_padded_sequence` a padded batch and its lengths. Real batches are not
# sorted. By default torch refuses them:

# %%
x = torch.arange(20.0).reshape(5, 4)  # 5 steps of 4 sequences
try:
    pack_padded_sequence(x, [3, 5, 2, 4])
except RuntimeError as error:
    print(error)

# %% [markdown]
# With `enforce_sorted=False` torch sorts for you, longest first, and remembers how, in two lists. (ONNX is a file format
# for networks: notebook 09.)

# %%
packed = pack_padded_sequence(x, [3, 5, 2, 4], enforce_sorted=False)
pv.show(packed, indices=True)

# %% [markdown]
# - `sorted_indices`, at the right: which of your sequences stands in this row now (a is 0, b is 1, …).
# - `unsorted_indices`, at the left: in which row your sequence stands now. They lead back to your order.
#
# The explorer above has both: tick *enforce_sorted*, or *show the index lists*.

# %%
ask("order of h_n")

# %% [markdown]
# You rarely need the lists: an RNN hands `h_n` back in **your** order, and `pad_packed_sequence` the batch.

# %% tags=["claims"]
named = [[f"{letter}{i}" for i in range(1, n + 1)] for letter, n in zip("abcd", (3, 5, 2, 4), strict=True)]
layout = pv.show(named).layout
order = [named[b][t] for b, t in layout.source]
assert " ".join(order) == "b1 d1 a1 c1 b2 d2 a2 c2 b3 d3 a3 b4 d4 b5"
assert layout.batch_sizes.tolist() == packed.batch_sizes.tolist() == [4, 4, 3, 2, 1]
assert packed.sorted_indices.tolist() == [1, 3, 0, 2]
assert packed.unsorted_indices.tolist() == [2, 0, 3, 1]
torch.manual_seed(0)
lstm = torch.nn.LSTM(input_size=4, hidden_size=3)
sequences = [torch.randn(n, 4) for n in (3, 5, 2, 4)]
output, (h_n, c_n) = lstm(pack_sequence(sequences, enforce_sorted=False))
for row, sequence in enumerate(sequences):
    assert torch.allclose(h_n[0, row], lstm(sequence)[1][0][0], atol=1e-6)

# %% [markdown]
# ## A training loop
#
# Two sentences as token ids, `Hello, sailor` and `Example`; 101 and 102 mark start and end, 0 is padding. The
# `lengths` say what is real. `batch_first=True`, because the batch is the first dimension of `tokens`.
#
# The model predicts each next token: embedding (a vector for each id) → pack → LSTM → head (a score for each id that
# may come next) → loss → step.

# %%
from torch import nn

tokens = torch.tensor([[101, 7592, 1010, 11803, 102], [101, 2742, 102, 0, 0]])
lengths = torch.tensor([5, 3])

torch.manual_seed(0)
embedding, lstm, head = nn.Embedding(12000, 16), nn.LSTM(16, 32, batch_first=True), nn.Linear(32, 12000)
optimizer = torch.optim.Adam([*embedding.parameters(), *lstm.parameters(), *head.parameters()], lr=0.03)


def pack(x, lengths):
    return pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)


# %%
losses = []
for _ in range(30):
    inputs = pack(embedding(tokens[:, :-1]), lengths - 1)  # all but the last token of each
    targets = pack(tokens[:, 1:], lengths - 1)  # the token that comes next
    output, _ = lstm(inputs)  # packed in, packed out
    loss = nn.functional.cross_entropy(head(output.data), targets.data)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

pv.draw.training_curves({"loss": losses}, "Trained on packed batches, the model learns both sentences", y="loss")

# %% [markdown]
# It cannot reach 0, because after 101 either sentence may follow. Every step is a whole epoch, a pass over all data:
# there is one batch.
#
# No mask, and no padding in the loss: `output.data` and `targets.data` have one row for each real step, in the same
# order.
#
# **What may work on `.data`?** A layer that treats every row alone: `Linear`, an activation, `Dropout`, `LayerNorm`,
# `Embedding`. Not what looks along time, such as convolution or attention: neighbours in `data` are other sequences.

# %% tags=["claims"]
import math

assert 2 / 6 * math.log(2) < losses[-1] < 0.35 < 9 < losses[0] < 10
packed = pack(tokens, lengths)
assert packed.data.tolist() == [101, 101, 7592, 2742, 1010, 102, 11803, 102]
assert packed.batch_sizes.tolist() == [2, 2, 2, 1, 1]
assert output.data.shape[0] == targets.data.shape[0] == 6

# %% [markdown]
# ## There and back
#
# `pad_packed_sequence` undoes packing. It returns the padded batch **and** the lengths.

# %%
x = pad_sequence([a, b], batch_first=True)
packed = pack_padded_sequence(x, [3, 2], batch_first=True)

back, lengths = pad_packed_sequence(packed, batch_first=True)
print(back)
print(lengths)

# %% [markdown]
# Forget `batch_first` on the way back, and there is no error: you get time × batch. Either way you get `max(lengths)`
# steps: if your batch was wider, ask for its width with `total_length`.

# %%
time_major, _ = pad_packed_sequence(packed)
wide, _ = pad_packed_sequence(packed, batch_first=True, total_length=6)
print("batch_first forgotten:", tuple(time_major.shape))
print("total_length=6:       ", tuple(wide.shape))

# %% tags=["claims"]
assert torch.equal(back, x)
assert lengths.tolist() == [3, 2]
assert torch.equal(time_major, x.T)
assert wide.shape == (2, 6)

# %% [markdown]
# ## What people get wrong
#
# - **"Sequences must be sorted."** Only with `enforce_sorted=True`, which is torch's default.
# - **Building a `PackedSequence` by hand.** `PackedSequence(data, batch_sizes)` knows nothing of your order. You get the
#   batch back longest first:

# %%
unsorted = pack_sequence([b, a], enforce_sorted=False)
by_hand = torch.nn.utils.rnn.PackedSequence(unsorted.data, unsorted.batch_sizes)
for name, packed in {"from torch": unsorted, "built by hand": by_hand}.items():
    print(f"{name}: lengths {pad_packed_sequence(packed, batch_first=True)[1].tolist()}")

# %% tags=["claims"]
assert pad_packed_sequence(unsorted, batch_first=True)[1].tolist() == [2, 3]
assert pad_packed_sequence(by_hand, batch_first=True)[1].tolist() == [3, 2]

# %% [markdown]
# ## Exercise 1
#
# Write `batch_sizes`: from a list of lengths to the number of sequences at each time step.

# %% tags=["exercise"]
def my_batch_sizes(lengths):
    # solution
    return [sum(n > t for n in lengths) for t in range(max(lengths))]
    # end solution


checks.batch_sizes(my_batch_sizes)

# %% [markdown]
# ## Exercise 2
#
# Write the order of `data`: from a list of words to their letters, packed. `["abc", "x"]` gives `["a", "x", "b", "c"]`.
# The words may come in any order.

# %% tags=["exercise"]
def my_packed_order(words):
    # solution
    longest_first = sorted(words, key=len, reverse=True)
    return [word[t] for t in range(len(longest_first[0])) for word in longest_first if t < len(word)]
    # end solution


checks.packed_order(my_packed_order)

# %% [markdown]
# ## You can now
#
# - read `data` (step by step) and `batch_sizes` (how many rows each step has) of any packed sequence,
# - say why: an RNN needs one step of everybody, as one slice,
# - follow the sort, and trust torch to undo it,
# - train on packed batches, with the loss on `.data`.
#
# Next: [03 Counting FLOPs](03_counting_flops.ipynb). Back: [01 Why pack?](01_why_pack.ipynb) ·
# [00 Start here](00_start_here.ipynb)
