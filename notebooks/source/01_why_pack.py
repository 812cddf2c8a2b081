# %% [markdown]
# # Why pack?
#
# **Padding costs time. Is that all it costs?**
#
# A review of two words reaches your classifier, which calls it *neutral*. A minute later, the same review arrives
# together with three longer ones. Now it is *positive*. The weights have not changed, dropout is off, and nothing warned
# you. Which of the two answers is wrong, and what have the other reviews to do with it?
#
# After this page, you can tell how much of a batch is padding, write a training step that packs, and settle this case.
#
# Time: 15 minutes.
#
# ## What do four reviews look like as one tensor?
#
# They have 3, 5, 2 and 4 words. We call them a, b, c and d, and they return on every page up to notebook 06. A model reads
# them as one tensor, and a tensor cannot have a ragged edge. So every row is filled up to the length of
# the longest. What is filled in is called *padding*, and we hatch it in all our pictures. One time step of one row is a
# *cell*. Pull the rows by their ends: when is there no padding, and when is nearly everything padding? Then press *Pack
# it*.

# %%
import packviz as pv
from packviz.lessons import ask, checks, sentences
from packviz.panels import BatchPanel

panel = BatchPanel([3, 5, 2, 4])
panel

# %% [markdown]
# If all lengths are equal, there is no padding, and nothing to pack. But a single long row makes all the others wider. A
# *packed* batch keeps only the real cells, column by column. Notebook 02 looks into it.

# %% tags=["claims"]
assert panel.layout.n_cells == 20
assert panel.layout.n_real == 14
for length, others in [(8, 8), (12, 3), (12, 1)]:
    assert pv.Layout([length] + [others] * 7).n_padding == 7 * (length - others)

# %%
ask("cells that are real")

# %%
batch = pv.show([4, 6, 8, 5, 4, 3, 7, 8], part="padded")
batch

# %% [markdown]
# A model that reads this rectangle works on 64 cells for the sake of 45. Is that what a toy example costs, or does real
# text do worse?

# %% tags=["claims"]
assert batch.layout.n_cells == 64
assert batch.layout.n_real == 4 + 6 + 8 + 5 + 4 + 3 + 7 + 8 == 45

# %% [markdown]
# ## How much padding does real text need?
#
# packviz comes with 512 sentences from the docstrings of Python's standard library, split into words. Most are short,
# and a few are long:

# %%
sizes = [len(sentence) for sentence in sentences()]
pv.draw.length_histogram(pv.Layout(sizes))

# %% [markdown]
# We cut them into batches of 32, in their original order.

# %%
ask("width of a batch")


# %%
def batches(sizes, many=32):
    return [pv.Layout(sizes[i : i + many]) for i in range(0, len(sizes), many)]


as_they_come, sorted_first = batches(sizes), batches(sorted(sizes))
pv.draw.padding_waste({"as they come": as_they_come, "similar lengths together": sorted_first})

# %% [markdown]
# Real text does much worse. One long sentence among 32 is enough to widen the whole batch, and nearly every batch has
# one. More than half of what the model reads was written by nobody.
#
# And yet the cure in this chart is not packing. It is sorting: if sentences of similar length share a batch, most of the
# padding is gone. The price is that the same sentences meet in every epoch. (*Bucketing* is the usual compromise: shuffle,
# sort a few hundred sentences at a time, and shuffle the batches.)
#
# Waste alone is a weak reason to pack if sorting removes most of it. So what is packing for?

# %% tags=["claims"]
waste = [1 - sum(b.n_real for b in some) / sum(b.n_cells for b in some) for some in (as_they_come, sorted_first)]
assert waste[0] > 0.5 > 0.2 > waste[1] > 0
assert sorted(sizes)[255:257] == [11, 11]
assert len(as_they_come) == 2 * sum(b.max_len >= 33 for b in as_they_come) == 16
assert sum(b.max_len >= 2 * 11 for b in as_they_come) >= 15

# %% [markdown]
# ## What does a training step look like?
#
# We need a model. This one gives each word a vector, reads the vectors with an LSTM, and scores three tags for each word.
# (An LSTM is a *recurrent neural network*, or RNN: it reads one time step after another, and updates a state each time.)

# %%
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

torch.manual_seed(1)
embedding = torch.nn.Embedding(10, 6, padding_idx=0)  # token 0 is the padding, and its vector is zero
lstm = torch.nn.LSTM(input_size=6, hidden_size=8, batch_first=True)
linear = torch.nn.Linear(8, 3)
tags = torch.randint(3, (4, 5))  # the right answers

# %% [markdown]
# And here is the whole machine, in ten lines of plain PyTorch. The reviews are lists of word ids, and each comment is the
# shape of what its line makes. Later pages enlarge one line or another.

# %%
sequences = [torch.tensor([3, 1, 4]), torch.tensor([1, 5, 9, 2, 6]), torch.tensor([5, 3]), torch.tensor([5, 8, 9, 7])]
lengths = torch.tensor([len(s) for s in sequences])                        # (4,)       3, 5, 2, 4: on the CPU
x = pad_sequence(sequences, batch_first=True)                              # (4, 5)     padded with 0
embedded = embedding(x)                                                    # (4, 5, 6)
packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)   # data: (14, 6)
packed_output, (h_n, c_n) = lstm(packed)                                   # data: (14, 8); h_n: (1, 4, 8)
output, _ = pad_packed_sequence(packed_output, batch_first=True)           # (4, 5, 8)
scores = linear(output)                                                    # (4, 5, 3)
mask = torch.arange(5) < lengths[:, None]                                  # (4, 5)     True at the 14 real cells
loss = cross_entropy(scores[mask], tags[mask])                             # ()         then loss.backward()

loss.backward()
made = {"x": x, "embedded": embedded, "packed.data": packed.data, "h_n": h_n, "output": output, "scores": scores}
for name, tensor in made.items():
    print(f"{name:12} {tuple(tensor.shape)}")

# %% [markdown]
# Lines 1 to 4 make the rectangle. Line 5 takes the padding out, so the LSTM in line 6 reads 14 cells and not 20, and line
# 7 puts the padding back. Then each word is scored, and the mask keeps the padding out of the loss.
#
# Line 6 returns two things. `packed_output` holds the state after every step. `h_n` holds each sequence's *final
# state*, a summary of all that was read. (`c_n` is the last value of a second state that an LSTM keeps for itself.)
# This model tags words, so it has no use for `h_n`. A classifier of whole reviews often reads nothing else.
#
# Now cross out lines 5 and 7, and give `embedded` to the LSTM directly. Everything runs. Every shape is the same. What
# has changed?

# %% tags=["claims"]
assert {name: tuple(tensor.shape) for name, tensor in made.items()} == {
    "x": (4, 5),
    "embedded": (4, 5, 6),
    "packed.data": (14, 6),
    "h_n": (1, 4, 8),
    "output": (4, 5, 8),
    "scores": (4, 5, 3),
}
assert packed_output.data.shape == (14, 8)
assert mask.shape == (4, 5)
assert loss.shape == ()
assert panel.lengths == tuple(map(len, sequences))
unpacked = lstm(embedded)
assert unpacked[0].shape == output.shape
assert unpacked[1][0].shape == h_n.shape
assert not embedding.weight[0].any()

# %% [markdown]
# ## Who changed the review?
#
# The review of two words is c, and we can read it in any company.

# %%
ask("one step of padding")

# %%
a, b, c, d = sequences


def final_states(batch, pack=False):
    x = embedding(pad_sequence(batch, batch_first=True))
    if pack:
        sizes = [len(s) for s in batch]
        x = pack_padded_sequence(x, sizes, batch_first=True, enforce_sorted=False)
    _, (h_n, _) = lstm(x)
    return h_n[0].detach()  # a row for each sequence


states = {"c alone": final_states([c])[0]}
for name, other in {"a (3 steps)": a, "d (4 steps)": d, "b (5 steps)": b}.items():
    states[f"padded, beside {name}"] = final_states([c, other])[0]
states["packed, beside all"] = final_states(sequences, pack=True)[2]
pv.draw.Strips(states, title="Five final states of the same two words")

# %% [markdown]
# We expected zeros to be harmless, and we were wrong. Beside a, the review gets *one* step of zeros, and its final
# state moves by 39 % of its norm. Beside b, it gets three, and its state moves by 69 %. An LSTM cannot recognise
# padding. It reads the zeros as a word, adds its biases, forgets some of what it knew, and goes on.
#
# Rows of a batch are computed independently; that much is true. But `h_n` is the state after the last step *of the
# batch*, so the longest sequence decides when everybody stops. In the packed batch, row c simply ends. Its final state
# is that of c alone.
#
# Is a difference like this enough to change an answer? We borrow `linear`, and let it score whole reviews.

# %%
labels = ["negative", "neutral", "positive"]
for name, state in states.items():
    print(f"{name:26} {labels[linear(state).argmax()]}")

# %% [markdown]
# Case settled. *Neutral* is what the model says about these two words. The other answer came from b, the longest review,
# and d alone would have been enough. (The weights are random here. Training may make the effect smaller. Packing removes
# it.)

# %% tags=["claims"]
alone = states["c alone"]
moved = {name: float((state - alone).norm() / alone.norm()) for name, state in states.items()}
assert [f"{share:.0%}" for name, share in moved.items() if "a (" in name or "b (" in name] == ["39%", "69%"]
assert moved["packed, beside all"] < 1e-6
answers = [labels[linear(state).argmax()] for state in states.values()]
assert answers == ["neutral", "neutral", "positive", "positive", "neutral"]
assert torch.allclose(final_states(sequences)[2], states["padded, beside b (5 steps)"], atol=1e-6)
alone_output = lstm(embedding(c)[None])[0]
assert torch.allclose(lstm(embedded)[0][2, :2], alone_output[0], atol=1e-6)

# %% [markdown]
# ## What people get wrong
#
# - **"Padding makes every result wrong."** Not every one. [Notebook 03](03_hidden_states.ipynb) finds out which, and
#   goes through all the cases.
# - **"Packing is for speed."** It saves computations, and fewer computations do not always take less time. On a CPU,
#   torch often takes *longer* to train on a packed batch. Notebooks 07 to 10 find out why, and what to do about it.

# %% [markdown]
# ## Exercise
#
# Sorting was the other cure. Split these eight lengths into two batches of four, with as little padding as possible.

# %% tags=["exercise"]
eight = [9, 3, 8, 2, 7, 3, 9, 4]
my_batches = (
    # solution
    [sorted(eight)[:4], sorted(eight)[4:]]
    # end solution
)
checks.two_batches(eight, my_batches)

# %% [markdown]
# To see your own lengths, change this list, and run both cells:

# %% tags=["parameters"]
lengths = [12, 3, 7, 4, 9, 2]

# %%
pv.show(lengths)

# %% [markdown]
# ## You can now
#
# - count the padding of a batch, which is the number of its cells minus the sum of its lengths,
# - remove most of it by letting similar lengths share a batch,
# - write a training step that pads, packs, and pads again,
# - show that padding changes the final state of an LSTM, by how much, and that packing does not.
#
# In the ten lines, `data` has 14 rows. In which order? And why would anybody choose it?
#
# Next: [02 Inside a packed sequence](02_inside_a_packed_sequence.ipynb). Back: [00 Start here](00_start_here.ipynb)
