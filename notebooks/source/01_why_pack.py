# %% [markdown]
# # Why pack?
#
# **What does padding waste, and which results does it change?**
#
# After this notebook, you can
#
# - count how much of a batch is padding,
# - say how much of it disappears when similar lengths share a batch,
# - show that padding changes the final state of an LSTM, and that packing does not.
#
# Time: 17 minutes.
#
# ## A batch is a rectangle
#
# Suppose that a model reads four short sequences at once. We call them a, b, c and d, and they return on every page
# up to notebook 06. They have 3, 5, 2 and 4 time steps. A tensor cannot have a ragged edge, so each row is filled up
# to the length of the longest one. The extra values are called *padding*.

# %%
import packviz as pv
from packviz.lessons import ask, checks, sentences

sequences = [[3, 1, 4], [1, 5, 9, 2, 6], [5, 3], [5, 8, 9, 7]]
pv.show(sequences, part="padded")

# %% [markdown]
# Padding is hatched, as in all our pictures. Each *cell*, which is one time step of one row, is either real or
# padding. How many cells are real in this larger batch?

# %%
ask("cells that are real")

# %%
batch = pv.show([4, 6, 8, 5, 4, 3, 7, 8], part="padded")
batch

# %% [markdown]
# A layer that reads the padded batch computes 64 cells, although only 45 of them hold data. A *packed* batch contains
# these 45 cells and nothing else. The next picture shows it on the right, and notebook 02 explains the order of its
# cells.

# %% tags=["claims"]
assert batch.layout.n_cells == 64
assert batch.layout.n_real == 4 + 6 + 8 + 5 + 4 + 3 + 7 + 8 == 45

# %% [markdown]
# ## Which lengths waste the most?
#
# Pull the rows by their ends until the batch contains no padding. Then look for lengths that make almost all of it
# padding. Finally, take lengths from **log-normal**, which gives many short sequences and a few long ones, as in text.
# When you have seen enough, press *Pack it*.

# %%
from packviz.panels import BatchPanel

panel = BatchPanel()
panel

# %% [markdown]
# If all lengths are equal, there is no padding. But a single long sequence widens all the other rows.

# %% tags=["claims"]
for length, others in [(8, 8), (12, 3), (12, 1)]:
    assert pv.Layout([length] + [others] * 7).n_padding == 7 * (length - others)
assert panel.layout == batch.layout

# %% [markdown]
# ## Real sentences
#
# How much padding does a real data set need? packviz comes with 512 sentences from the docstrings of Python's standard
# library, split into words. Most are short, and a few are long:

# %%
sizes = [len(sentence) for sentence in sentences()]
pv.draw.length_histogram(pv.Layout(sizes))

# %% [markdown]
# Let us cut them into batches of 32, in their original order.

# %%
ask("width of a batch")


# %%
def batches(sizes, many=32):
    return [pv.Layout(sizes[i : i + many]) for i in range(0, len(sizes), many)]


as_they_come, sorted_first = batches(sizes), batches(sorted(sizes))
pv.draw.padding_waste({"as they come": as_they_come, "similar lengths together": sorted_first})

# %% [markdown]
# In their original order, half of these batches are at least 33 steps wide, because one long sentence widens its whole
# batch. If we sort the sentences by length before we cut them into batches, most of the padding disappears without any
# packing. But the same sentences then share a batch in every epoch, so training is less random. A common compromise is
# *bucketing*: shuffle the sentences, sort a few hundred at a time, cut these into batches, and shuffle the batches.
# This leaves some padding.
#
# To try your own lengths, change the next list and run both cells.

# %% tags=["claims"]
waste = [1 - sum(b.n_real for b in some) / sum(b.n_cells for b in some) for some in (as_they_come, sorted_first)]
assert waste[0] > 0.5 > 0.2 > waste[1] > 0
assert sorted(sizes)[255:257] == [11, 11]
assert len(as_they_come) == 2 * sum(b.max_len >= 33 for b in as_they_come) == 16

# %% tags=["parameters"]
lengths = [12, 3, 7, 4, 9, 2]

# %%
pv.show(lengths)

# %% [markdown]
# Waste alone is a weak reason to pack if sorting removes most of it. The next reason is stronger.
#
# ## Padding changes final states
#
# An LSTM is a recurrent neural network (RNN): it reads a sequence one time step after another and updates a state each
# time. It returns the states of all steps as `output`, and the last one as the *final state* `h_n`. (An LSTM also
# returns `c_n`, the last value of a second state.) Classifiers and encoders often use the final state as a summary of
# the whole sequence.
#
# Consider a sequence of 3 steps that shares its batch with a longer one. An LSTM computes each row of a batch without
# looking at the others.

# %%
ask("batch-mates")

# %%
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

torch.manual_seed(0)
lstm = torch.nn.LSTM(input_size=4, hidden_size=5)
ours, other = torch.randn(3, 4), torch.randn(12, 4)


def final_state(batch, pack=False):
    x = pad_sequence(batch)  # fills up with zeros
    if pack:  # with enforce_sorted=False, torch sorts by length, and restores the order afterwards
        x = pack_padded_sequence(x, [len(s) for s in batch], enforce_sorted=False)
    _, (h_n, _) = lstm(x)
    return h_n[0, 0]  # the first layer, our row


# %%
states = {"alone": final_state([ours])}
for n in (4, 6, 12):
    states[f"padded, the other has {n} steps"] = final_state([ours, other[:n]])
for n in (4, 6, 12):
    states[f"packed, the other has {n} steps"] = final_state([ours, other[:n]], pack=True)

pv.draw.Strips(states, title="Each row is the final state of the same sequence")

# %% [markdown]
# In a padded batch, the final state is the state after the last step *of the batch*. So for the same sequence, it depends
# on the length of the other one, and there is no warning. Even one step of padding changes it. An LSTM cannot recognise
# padding, so it reads the zeros and keeps updating its state. In a packed batch, the final state is the state after the
# sequence's own last step, as for the sequence alone. Here is why:

# %%
pv.show(pad_sequence([ours[:, 0], other[:6, 0]]), [3, 6])  # the first of the 4 features

# %% [markdown]
# In row a of the padded batch, three zeros follow the data. In the packed batch, row a simply ends.

# %% tags=["claims"]
for name, state in states.items():
    assert torch.allclose(state, states["alone"], atol=1e-6) == (not name.startswith("padded")), name
assert torch.allclose(final_state([ours, other[:3]]), states["alone"], atol=1e-6)  # no padding, no harm
assert torch.allclose(lstm(pad_sequence([ours, other]))[0][:3, 0], lstm(ours)[0], atol=1e-6)

# %% [markdown]
# ## What people get wrong
#
# - **"Padding makes every result wrong."** If the padding comes after the data, and the RNN reads from the first step to
#   the last, its outputs *at the real steps* are right. Its states after the padding are wrong: `h_n`, `c_n` and
#   `output[-1]` (the last time step, if time is the first dimension). [Notebook 03](03_hidden_states.ipynb) shows
#   every case.
# - **"Packing is for speed."** Packing saves computations, but fewer computations do not always take less time. On a
#   CPU, torch often takes *longer* to train on a packed batch. Notebook 07 counts the computations, 08 measures the
#   time, 09 explains it, and 10 reduces it.

# %% [markdown]
# ## Exercise
#
# Split these eight lengths into two batches of four, with as little padding as possible.

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
# - count the padding of a batch, which is the number of its cells minus the sum of its lengths,
# - remove most of it by putting similar lengths into the same batch,
# - show that padding changes the final state of an LSTM, and that packing does not.
#
# Next: [02 Inside a packed sequence](02_inside_a_packed_sequence.ipynb). Back: [00 Start here](00_start_here.ipynb)
