# %% [markdown]
# # Inside a packed sequence
#
# **What is in a `PackedSequence`, why is its data interleaved, and what is `batch_sizes`?**
#
# After this page you can
#
# - read `data` and `batch_sizes` of any packed sequence,
# - say why the data is not one sequence after another,
# - follow a sequence through sorting, and get it back in your order.
#
# Time: 15 minutes.
#
# ## Two sequences, packed
#
# `a = [1, 2, 3]` and `b = [3, 4]`. Predict what torch puts into `data`.

# %%
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence

import packviz as pv
from packviz.lessons import ask, checks

ask("order of data")

# %%
a, b = torch.tensor([1, 2, 3]), torch.tensor([3, 4])
packed = pack_sequence([a, b])
assert packed.data.tolist() == [1, 3, 2, 4, 3]
assert packed.batch_sizes.tolist() == [2, 2, 1]
print(packed)
pv.show(packed)

# %% [markdown]
# Read the right panel **column by column**, top to bottom. That is `data`.
#
# A column is one time step. `batch_sizes` says how tall each column is: how many rows of `data` belong to that step.

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
# The cursor moves from code as well. At every step the rows are one slice, and the slices follow each other.

# %%
layout = explorer.shown
for t in range(5):
    explorer.t.value = t
    start, end = layout.offsets[t], layout.offsets[t + 1]
    assert f"data[{start}:{end}]" in explorer.summary.value
    print(f"step {t}: batch_sizes[{t}] = {layout.batch_sizes[t]}, data[{start}:{end}]")
explorer.t.value = 0

# %% [markdown]
# ## Why interleaved?
#
# An RNN goes through time. At step t it multiplies step t of *every* sequence by the same weights, in one product.
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
    h = torch.cat(
        [
            torch.tanh(rows @ rnn.weight_ih_l0.T + rnn.bias_ih_l0 + h[:size] @ rnn.weight_hh_l0.T + rnn.bias_hh_l0),
            h[size:],  # those who have ended keep their state
        ]
    )
    start += size

# %%
output, h_n = rnn(packed)
assert torch.allclose(h, h_n[0], atol=1e-6)
print("our loop gives torch's final states")

# %% [markdown]
# Look at `h[size:]`. A sequence that has ended keeps its state. That is why packed final states are right.
# And it is why the longest must come first: whoever ends next is always the last row.

# %% [markdown]
# ## `batch_sizes` are not the lengths
#
# The sequences `abc` and `x` have lengths 3 and 1.
# (In the picture packviz names the rows a and b; the letters in the cells are ours.)

# %%
ask("batch sizes of abc and x")

# %%
letters = [torch.tensor([ord(letter) for letter in word]) for word in ("abc", "x")]
packed = pack_sequence(letters)
assert "".join(map(chr, packed.data)) == "axbc"
assert packed.batch_sizes.tolist() == [2, 1, 1]
pv.show(["abc", "x"])

# %% [markdown]
# Six sequences of lengths 9, 8, 6, 4, 3 and 2. Start with all six, and lose one whenever a sequence ends.

# %%
from packviz import figures

packed = pack_sequence([torch.zeros(n) for n in (9, 8, 6, 4, 3, 2)])
assert packed.batch_sizes.tolist() == [6, 6, 5, 4, 3, 3, 2, 2, 1]
figures.batch_sizes(pv.Layout.from_packed(packed))

# %% [markdown]
# The same with token ids, as a tokenizer gives them: `Hello, sailor` and `Example`. 101 and 102 mark start and end;
# 0 is padding.

# %%
tokens = torch.tensor([[101, 7592, 1010, 11803, 102], [101, 2742, 102, 0, 0]])
packed = pack_padded_sequence(tokens, lengths=[5, 3], batch_first=True)
assert packed.data.tolist() == [101, 101, 7592, 2742, 1010, 102, 11803, 102]
assert packed.batch_sizes.tolist() == [2, 2, 2, 1, 1]
pv.show(tokens, [5, 3], batch_first=True)

# %% [markdown]
# ## Sorting, and your own order
#
# Real batches are not sorted. By default torch refuses them:

# %%
x = torch.arange(20.0).reshape(5, 4)  # 5 steps of 4 sequences
try:
    pack_padded_sequence(x, [3, 5, 2, 4])
except RuntimeError as error:
    print(error)

# %% [markdown]
# With `enforce_sorted=False` torch sorts for you, longest first, and remembers how.

# %%
packed = pack_padded_sequence(x, [3, 5, 2, 4], enforce_sorted=False)
print("sorted_indices  ", packed.sorted_indices.tolist(), " who stands at rank 0, 1, 2, 3")
print("unsorted_indices", packed.unsorted_indices.tolist(), " the rank of sequence 0, 1, 2, 3")

# %%
# The cells named by letter and position, counted from 1 here.
named = [[f"{letter}{i}" for i in range(1, n + 1)] for letter, n in zip("abcd", (3, 5, 2, 4), strict=True)]
picture = pv.show(named)
order = [named[b][t] for b, t in picture.layout.source]
assert " ".join(order) == "b1 d1 a1 c1 b2 d2 a2 c2 b3 d3 a3 b4 d4 b5"
assert picture.layout.batch_sizes.tolist() == packed.batch_sizes.tolist() == [4, 4, 3, 2, 1]
picture

# %% [markdown]
# The lines between the panels are the sort: each sequence's way from your row to its rank.
# Read them from right to left for the way back.
#
# You rarely need them: an RNN hands `h_n` back in **your** order, and `pad_packed_sequence` does too.

# %%
ask("order of h_n")

# %%
torch.manual_seed(0)
lstm = torch.nn.LSTM(input_size=4, hidden_size=3)
sequences = [torch.randn(n, 4) for n in (3, 5, 2, 4)]
output, (h_n, c_n) = lstm(pack_sequence(sequences, enforce_sorted=False))
for row, sequence in enumerate(sequences):
    assert torch.allclose(h_n[0, row], lstm(sequence)[1][0][0], atol=1e-6)
print("row i of h_n is the final state of sequence i, in your order")

# %% [markdown]
# ## There and back
#
# `pad_packed_sequence` undoes packing. It returns the padded batch **and** the lengths.

# %%
x = pad_sequence([a, b], batch_first=True)
packed = pack_padded_sequence(x, [3, 2], batch_first=True)
back, lengths = pad_packed_sequence(packed, batch_first=True)
assert torch.equal(back, x)
assert lengths.tolist() == [3, 2]

time_major, _ = pad_packed_sequence(packed)
assert torch.equal(time_major, x.T)
wide, _ = pad_packed_sequence(packed, batch_first=True, total_length=6)
assert wide.shape == (2, 6)
print("batch_first=True:", tuple(back.shape), " forgotten:", tuple(time_major.shape))
print("total_length=6:  ", tuple(wide.shape))

# %% [markdown]
# ## What people get wrong
#
# - **Forgetting `batch_first` on the way back.** No error: you get time × batch.
# - **A padded batch wider than its longest sequence.** Unpacking gives `max(lengths)` steps, not yours.
#   Ask with `total_length=`.
# - **"Sequences must be sorted."** Only with `enforce_sorted=True`, which is torch's default.
# - **Building a `PackedSequence` by hand.** `PackedSequence(data, batch_sizes)` knows nothing of your order.

# %%
unsorted = pack_sequence([b, a], enforce_sorted=False)
by_hand = torch.nn.utils.rnn.PackedSequence(unsorted.data, unsorted.batch_sizes)
assert pad_packed_sequence(unsorted, batch_first=True)[1].tolist() == [2, 3]
assert pad_packed_sequence(by_hand, batch_first=True)[1].tolist() == [3, 2]
print("lengths, from torch: [2, 3]   from the one built by hand: [3, 2]")

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
# - follow the sort, and trust torch to undo it.
#
# Next: [03 Counting FLOPs](03_counting_flops.ipynb). Back: [01 Why pack?](01_why_pack.ipynb) ·
# [00 Start here](00_start_here.ipynb)
