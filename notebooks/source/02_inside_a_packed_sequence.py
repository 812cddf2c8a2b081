# %% [markdown]
# # Inside a packed sequence
#
# **In which order does a `PackedSequence` hold its data, and what is `batch_sizes`?**
#
# After this notebook, you can
#
# - read the `data` and `batch_sizes` of any packed sequence,
# - say why the data has this order,
# - pack sequences in any order and get results in that order,
# - pad a packed sequence again without swapping dimensions or losing steps.
#
# Time: 20 minutes.
#
# ## Two sequences, packed
#
# A `PackedSequence` stores all real cells of a batch in one tensor, `data`, without any padding. Suppose we pack
# `a = [1, 2, 3]` and `b = [10, 20]`.

# %%
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence

import packviz as pv
from packviz.lessons import ask, checks

ask("order of data")

# %%
a, b = torch.tensor([1, 2, 3]), torch.tensor([10, 20])
packed = pack_sequence([a, b])
pv.show(packed)

# %% [markdown]
# The data is ordered by time step: first step 0 of both sequences, then step 1 of both, then step 2, which only a has.
# In the right half of the picture, read **column by column**, each from top to bottom.
#
# Each column is one time step. `batch_sizes` holds the height of each column, which is the number of sequences that still
# have data at this step. If you print a `PackedSequence`, you see two more entries:

# %%
print(packed)

# %% [markdown]
# The two entries that are `None` concern sorting, explained below.

# %% tags=["claims"]
assert packed.data.tolist() == [1, 10, 2, 20, 3]
assert packed.batch_sizes.tolist() == [2, 2, 1]

# %% [markdown]
# ## Why this order?
#
# An RNN computes step t of all sequences at once, and only then step t + 1, because each state depends on the one
# before. It multiplies all inputs of a step by the same weights, so it needs these inputs together, as the rows of
# one matrix. In a packed sequence, this matrix is a slice of `data`. Sequences that have ended are not in it, so
# nothing is computed for them.
#
# That is enough to write a complete RNN. In each step, the new state is
# tanh(input · W<sub>ih</sub> + b<sub>ih</sub> + state · W<sub>hh</sub> + b<sub>hh</sub>). We run it on random
# sequences with the lengths of a, b, c and d, sorted by length:

# %%
torch.manual_seed(0)
rnn = torch.nn.RNN(input_size=4, hidden_size=5)
packed = pack_sequence([torch.randn(n, 4) for n in (5, 4, 3, 2)])  # b, d, a and c

h = torch.zeros(4, 5)  # a row for each sequence
start = 0
for size in packed.batch_sizes.tolist():
    rows = packed.data[start : start + size]  # step t of every sequence that has one
    new = torch.tanh(rows @ rnn.weight_ih_l0.T + rnn.bias_ih_l0 + h[:size] @ rnn.weight_hh_l0.T + rnn.bias_hh_l0)
    h = torch.cat([new, h[size:]])  # sequences that have ended keep their state
    start += size

# %%
output, h_n = rnn(packed)
print("equal to torch's final states:", torch.allclose(h, h_n[0], atol=1e-6))

# %% [markdown]
# The important expression is `h[size:]`, which keeps the states of the sequences that have ended. This is why a
# packed batch gives correct final states. The loop also shows why the longest sequence comes first. In this order,
# the sequences still running are always in the first `size` rows.

# %% tags=["claims"]
assert torch.allclose(h, h_n[0], atol=1e-6)

# %% [markdown]
# ## Step by step
#
# The panel below runs such a loop on a, b, c and d, next to a padded run of the same RNN. Move **time step t**, or
# press play. Frames mark the cells of this step in the padded batch and the slice of `data` that holds them. Below are
# the states after this step, from the padded run on the left and from the loop on the right.
#
# Watch c, whose last step is step 1. In the padded run, its state keeps changing, because the RNN reads zeros. In the
# loop, it stays as it was.

# %%
from packviz.panels import PackedPanel

panel = PackedPanel([3, 5, 2, 4], t=3, states=True)
panel

# %% [markdown]
# Then tick *show the common mistake*, which stores one sequence after another. In this order, the cells of a step are
# scattered and would have to be collected first. (A transformer, however, needs each document in one piece, as
# [notebook 14](14_beyond_rnns.ipynb) shows.)

# %% tags=["claims"]
for t in range(5):
    start, end = panel.shown.offsets[t : t + 2]
    assert end - start == panel.shown.batch_sizes[t]
    assert f"data[{start}:{end}]" in PackedPanel([3, 5, 2, 4], t=t).summary.value
shown = [PackedPanel([3, 5, 2, 4], t=t, states=True).to_text().split(f"h after step {t}")[1:] for t in range(5)]
padded_c, packed_c = ([run.splitlines()[4] for run in runs] for runs in zip(*shown, strict=True))
assert len(set(padded_c[1:])) == 4
assert len(set(packed_c[1:])) == 1

# %% [markdown]
# ## `batch_sizes` are not the lengths
#
# The words `abc` and `x` have lengths 3 and 1.

# %%
ask("batch sizes of abc and x")

# %%
pv.show(["abc", "x"], names=["abc", "x"])

# %% [markdown]
# There is one batch size for each time step, here 2, 1 and 1, and one length for each sequence. `batch_sizes` begins with
# the number of sequences and falls at each step by the number that have ended. The sequence in row r of the packed
# picture has as many steps as there are batch sizes greater than r. For example, if they are 4, 4, 3, 2 and 1, row 2 has
# three steps, because 4, 4 and 3 are greater than 2. In the second batch below, three sequences end together:

# %%
for lengths in ([9, 8, 6, 4, 3, 2], [4, 2, 2, 2]):
    print(lengths, pack_sequence([torch.zeros(n) for n in lengths]).batch_sizes.tolist())

# %% tags=["claims"]
packed = pack_sequence([torch.tensor([ord(letter) for letter in word]) for word in ("abc", "x")])
assert "".join(map(chr, packed.data)) == "axbc"
assert packed.batch_sizes.tolist() == [2, 1, 1]
sizes = pack_sequence([torch.zeros(n) for n in (5, 4, 3, 2)]).batch_sizes.tolist()
assert sizes == [4, 4, 3, 2, 1]
assert [sum(size > row for size in sizes) for row in range(4)] == [5, 4, 3, 2]
packed = pack_sequence([torch.zeros(n) for n in (9, 8, 6, 4, 3, 2)])
assert packed.batch_sizes.tolist() == [6, 6, 5, 4, 3, 3, 2, 2, 1]

# %% [markdown]
# ## Sorting, and your own order
#
# If your data loader gives you a padded batch and its lengths, call `pack_padded_sequence`. The two rows below hold the
# token ids of "Hello, sailor" and "Example". Ids 101 and 102 mark the start and the end, and 0 is padding.
# We pass `batch_first=True` because the batch is the first dimension of `tokens`.

# %%
tokens = torch.tensor([[101, 7592, 1010, 11803, 102], [101, 2742, 102, 0, 0]])
packed = pack_padded_sequence(tokens, [5, 3], batch_first=True)
print(packed.data.tolist(), packed.batch_sizes.tolist())

# %% tags=["claims"]
assert packed.data.tolist() == [101, 101, 7592, 2742, 1010, 102, 11803, 102]
assert packed.batch_sizes.tolist() == [2, 2, 2, 1, 1]

# %% [markdown]
# These two rows happen to be sorted by length. By default, torch refuses a batch that is not sorted:

# %%
x = torch.arange(20.0).reshape(5, 4)  # 5 steps of 4 sequences: time first, torch's default
try:
    pack_padded_sequence(x, [3, 5, 2, 4])
except RuntimeError as error:
    print(error)

# %% [markdown]
# With `enforce_sorted=False`, torch sorts the sequences for you and remembers your order. (The message mentions ONNX, a
# file format for models. You can ignore that: the exporter that [can handle packing](13_static_graphs.ipynb) does not
# need sorted batches.)

# %%
packed = pack_padded_sequence(x, [3, 5, 2, 4], enforce_sorted=False)
pv.show(packed, indices=True)

# %% [markdown]
# - `sorted_indices`, on the right, says which of your sequences is in each packed row. 0 is a, 1 is b, and so on.
# - `unsorted_indices`, on the left, says in which packed row each of your sequences is.
#
# Sequences of equal length may change places: torch's sort keeps their order only in batches of up to 16. `pv.show` and
# `pv.Layout` keep it if you give them lengths. For torch's order, give them the packed sequence, as above, or read it
# with `pv.Layout.from_packed(packed)`.

# %%
ask("order of h_n")

# %% [markdown]
# You will rarely use these two tensors yourself, because torch applies them for you. You pass an initial state in your
# order. `h_n` and the result of `pad_packed_sequence` come back in your order, too, so row 0 of `h_n` belongs to a.

# %% tags=["claims"]
named = [[f"{letter}{i}" for i in range(1, n + 1)] for letter, n in zip("abcd", (3, 5, 2, 4), strict=True)]
layout = pv.show(named).layout
order = [named[b][t] for b, t in layout.source]
assert " ".join(order) == "b1 d1 a1 c1 b2 d2 a2 c2 b3 d3 a3 b4 d4 b5"
assert layout.batch_sizes.tolist() == packed.batch_sizes.tolist() == [4, 4, 3, 2, 1]
assert packed.sorted_indices.tolist() == [1, 3, 0, 2]
assert packed.unsorted_indices.tolist() == [2, 0, 3, 1]

# %% tags=["claims"]
torch.manual_seed(0)
lstm = torch.nn.LSTM(input_size=4, hidden_size=3)
sequences = [torch.randn(n, 4) for n in (3, 5, 2, 4)]
h_0, c_0 = torch.randn(2, 1, 4, 3)
output, (h_n, c_n) = lstm(pack_sequence(sequences, enforce_sorted=False), (h_0, c_0))
assert pad_packed_sequence(output)[1].tolist() == [3, 5, 2, 4]
for row, sequence in enumerate(sequences):
    assert torch.allclose(pad_packed_sequence(output)[0][len(sequence) - 1, row], h_n[0, row], atol=1e-6)
    assert torch.allclose(h_n[0, row], lstm(sequence, (h_0[:, row], c_0[:, row]))[1][0][0], atol=1e-6)

# %% [markdown]
# ## Padding again
#
# `pad_packed_sequence` is the inverse of packing. It returns two tensors, the padded batch *and* the lengths.

# %%
x = pad_sequence([a, b], batch_first=True)
packed = pack_padded_sequence(x, [3, 2], batch_first=True)

back, lengths = pad_packed_sequence(packed, batch_first=True)
print(back)
print(lengths)

# %% [markdown]
# Two things can go wrong here without an error. If you forget `batch_first=True`, the result is time × batch. And
# unless you pass `total_length`, you get only as many steps as the longest sequence has, even if your padded batch was
# wider, for example because you pad all batches to one width.

# %%
time_first, _ = pad_packed_sequence(packed)
wide, _ = pad_packed_sequence(packed, batch_first=True, total_length=6)
print("batch_first forgotten:", tuple(time_first.shape))
print("total_length=6:       ", tuple(wide.shape))

# %% tags=["claims"]
assert torch.equal(back, x)
assert lengths.tolist() == [3, 2]
assert torch.equal(time_first, x.T)
assert wide.shape == (2, 6)

# %% [markdown]
# ## What people get wrong
#
# - **"Sequences must be sorted."** That is true only if `enforce_sorted` is True, which is torch's default.
# - **"I can build a `PackedSequence` from `data` and `batch_sizes`."** You can, but it does not know your order, so
#   you get the batch back with the longest sequence first:

# %%
unsorted = pack_sequence([b, a], enforce_sorted=False)
by_hand = torch.nn.utils.rnn.PackedSequence(unsorted.data, unsorted.batch_sizes)
for name, packed in {"from torch": unsorted, "built by hand": by_hand}.items():
    print(f"{name}: lengths {pad_packed_sequence(packed, batch_first=True)[1].tolist()}")

# %% [markdown]
# To change the data of a packed sequence, use `packed._replace(data=…)`, which keeps the order.

# %% tags=["claims"]
assert pad_packed_sequence(unsorted, batch_first=True)[1].tolist() == [2, 3]
assert pad_packed_sequence(by_hand, batch_first=True)[1].tolist() == [3, 2]
doubled = unsorted._replace(data=2 * unsorted.data)
assert pad_packed_sequence(doubled, batch_first=True)[1].tolist() == [2, 3]

# %% [markdown]
# ## Exercise
#
# Write `batch_sizes` yourself: turn a list of lengths into the number of sequences at each time step.


# %% tags=["exercise"]
def my_batch_sizes(lengths):
    # solution
    return [sum(n > t for n in lengths) for t in range(max(lengths))]
    # end solution


checks.batch_sizes(my_batch_sizes)

# %% [markdown]
# ## You can now
#
# - read `data`, which is ordered by time step, and `batch_sizes`, which says how many rows each step has,
# - explain this order, in which the inputs of each step form one slice,
# - pack sequences in any order with `enforce_sorted=False` and rely on torch to restore it,
# - pad a packed sequence again, with `batch_first` and `total_length`.
#
# Next: [03 Hidden states](03_hidden_states.ipynb). Back: [01 Why pack?](01_why_pack.ipynb) · [00 Start
# here](00_start_here.ipynb)
