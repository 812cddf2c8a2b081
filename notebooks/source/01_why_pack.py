# %% [markdown]
# # Why pack?
#
# **What does padding waste, and what does it corrupt?**
#
# After this page you can
#
# - count what padding wastes on a batch,
# - say how much of that goes away by batching similar lengths,
# - show that padding changes a sequence's final state, and that packing does not.
#
# Time: 12 minutes.
#
# ## A batch is a rectangle
#
# Eight sentences, eight lengths. A tensor has no ragged edge, so every row is filled up to the longest.
#
# Predict before you look.

# %%
import packviz as pv
from packviz.lessons import ask, checks, sentences

ask("cells that are real")

# %%
batch = pv.show([4, 6, 8, 5, 4, 3, 7, 8])
batch

# %% [markdown]
# A network that reads the padded batch computes 64 cells to use 45.
# The packed batch on the right holds the 45 and nothing else.

# %% tags=["claims"]
assert batch.layout.n_cells == 64
assert batch.layout.n_valid == 4 + 6 + 8 + 5 + 4 + 3 + 7 + 8 == 45

# %% [markdown]
# ## Which lengths waste most?
#
# Move the sliders. Find a batch without any padding. Then find one that is almost all padding.
#
# Then set *lengths* to **log-normal**: many short sequences and a few long ones, as text has them.

# %%
from packviz.explorers import PaddingExplorer

explorer = PaddingExplorer()
explorer

# %% [markdown]
# Equal lengths waste nothing. One long sequence makes everyone pay.

# %% tags=["claims"]
for length, others in [(8, 8), (12, 3), (12, 1)]:
    assert pv.Layout([length] + [others] * 7).n_padding == 7 * (length - others)
assert explorer.shown == batch.layout

# %% [markdown]
# ## Your own lengths
#
# Put your own numbers in the next cell and run both. Any list will do, also a long one.

# %% tags=["parameters"]
lengths = [12, 3, 7, 4, 9, 2]

# %%
pv.show(lengths)

# %% [markdown]
# ## A real batch
#
# packviz comes with 512 sentences, taken from the docstrings of Python's standard library and split into words.
# Here are five of them as a batch.

# %%
five = [sentence for sentence in sentences() if len(sentence) <= 8][:5]
pv.show(five)

# %% [markdown]
# How long are all 512?

# %%
all_lengths = [len(sentence) for sentence in sentences()]
pv.draw.length_histogram(pv.Layout(all_lengths))

# %% [markdown]
# Most are short, a few are long. That is the costly kind: one long sentence widens its whole batch.

# %%
ask("waste on sentences")


# %%
def batches(lengths, size=32):
    return [pv.Layout(lengths[i : i + size]) for i in range(0, len(lengths), size)]


as_they_come, similar = batches(all_lengths), batches(sorted(all_lengths))
pv.draw.padding_waste({"as they come": as_they_come, "similar lengths together": similar})

# %% [markdown]
# Sorting first removes most of the waste, without any packing.
#
# It has a price. Batches are no longer random, so people sort within a few hundred sentences at a time
# (*bucketing*), and shuffle the batches. Some padding stays.
#
# So waste alone is a weak reason to pack. The next section has a strong one.

# %% tags=["claims"]
waste = [1 - sum(b.n_valid for b in some) / sum(b.n_cells for b in some) for some in (as_they_come, similar)]
assert waste[0] > 0.5 > 0.2 > waste[1] > 0

# %% [markdown]
# ## What padding corrupts
#
# An LSTM is a recurrent network (RNN): it reads a sequence step by step and carries a state along. Its `output` is that
# state at every step. Its *final state* `h_n`, of shape (layers × directions, batch, hidden size), is its summary of the
# sequence. Classifiers and encoders use it.
#
# Take one sequence of 3 steps. Put it in a batch with another one, its *batch-mate*. The two never mix.

# %%
ask("batch-mates")

# %%
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

torch.manual_seed(0)
lstm = torch.nn.LSTM(input_size=4, hidden_size=5)
ours, mate = torch.randn(3, 4), torch.randn(12, 4)


def final_state(batch, pack=False):
    x = pad_sequence(batch)  # filled up with zeros
    if pack:  # enforce_sorted=False: torch sorts the batch by length, and undoes it afterwards
        x = pack_padded_sequence(x, [len(s) for s in batch], enforce_sorted=False)
    _, (h_n, _) = lstm(x)
    return h_n[0, 0]  # of the first layer, our row


# %%
states = {"alone": final_state([ours])}
for n in (4, 6, 12):
    states[f"padded, mate of {n} steps"] = final_state([ours, mate[:n]])
for n in (4, 6, 12):
    states[f"packed, mate of {n} steps"] = final_state([ours, mate[:n]], pack=True)

pv.draw.Strips(states, title="Padded, our final state depends on the mate; packed, it does not")

# %% [markdown]
# With padding, the *same* sequence gets another summary in another batch. Nothing warns you.
# The model trains, and its answer depends on who happened to be in the batch.
#
# Packed, the LSTM stops each sequence at its own end.

# %% tags=["claims"]
for name, state in states.items():
    assert torch.allclose(state, states["alone"], atol=1e-6) == (not name.startswith("padded")), name
assert torch.allclose(final_state([ours, mate[:3]]), states["alone"], atol=1e-6)  # no padding, no harm
assert torch.allclose(lstm(pad_sequence([ours, mate]))[0][:3, 0], lstm(ours)[0], atol=1e-6)

# %%
pv.show(pad_sequence([ours[:, 0], mate[:6, 0]]), [3, 6])  # the first of the 4 features

# %% [markdown]
# Row a, left: after step 2 the padded LSTM reads three zeros (hatched), as if they were data.
# Row a, right: packed, it has ended.

# %% [markdown]
# ## What people get wrong
#
# - **"Padding spoils everything."** No. The outputs *at the real steps* are right, as long as the RNN reads in one
#   direction. Wrong is what is read after them: `h_n`, `output[-1]`, and `c_n`, the second state that an LSTM carries.
# - **"Packing is for speed."** It is for correctness first. It saves computations, but saved computations are not
#   saved time: packed training is often slower. Notebook 03 counts, 06 times, 07 finds the cause.

# %% [markdown]
# ## Exercise
#
# Split these eight lengths into two batches of four, so that padding is least. Give two lists.

# %% tags=["exercise"]
eight = [9, 3, 8, 2, 7, 3, 9, 4]
my_batches = (
    # solution
    [sorted(eight)[:4], sorted(eight)[4:]]
    # end solution
)
checks.two_batches(eight, my_batches)

# %% [markdown]
# ## You can now
#
# - count what padding wastes: cells less the sum of the lengths,
# - remove most of it by batching similar lengths,
# - show that padding changes a final state, and that packing does not.
#
# Next: [02 Inside a packed sequence](02_inside_a_packed_sequence.ipynb). Back: [00 Start here](00_start_here.ipynb)
