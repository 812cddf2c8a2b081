# %% [markdown]
# # Why pack?
#
# **Padding costs time. Is that all it costs?**
#
# A review of two words reaches your classifier, which calls it *neutral*. A minute later, the same review arrives
# together with three longer ones. Now it is *positive*. The weights have not changed, dropout is off, and nothing
# warned you. Which of the two answers is wrong, and what have the other reviews to do with it?
#
# After this page, you can settle this case, and point to the one line of code that prevents the next one.
#
# Time: 20 minutes, with the exercise.
#
# ## Four reviews as one tensor
#
# The four reviews have 3, 5, 2 and 4 words. We call them a, b, c and d, and they stay with us until notebook 06. The
# one in question is c. A model reads all four as one tensor, and an ordinary tensor cannot have a ragged edge. So every
# row is filled up to the length of the longest with *padding*, which we hatch. One time step of one row is a *cell*.
#
# Pull the rows by their ends. Can you make a batch without any padding? And how near do you get to three quarters of
# padding? Then go back to 3, 5, 2 and 4, and press *Pack it*. Packing keeps only the *real* cells, those that hold
# data. How many are left? (Their order and the lists of numbers can wait for notebook 02.)

# %%
import packviz as pv
from packviz.lessons import ask, checks, sentences
from packviz.panels import BatchPanel

panel = BatchPanel([3, 5, 2, 4])
panel

# %% [markdown]
# If all lengths are equal, there is no padding, and nothing to pack. But pull one row past all the others, and every
# row grows with it. The longest decides for everybody.
#
# Packed, our batch keeps 14 of its 20 cells. Nearly a third was padding. But we made up the lengths. Real text may be
# kinder.

# %% tags=["claims"]
assert panel.layout.n_cells == 20
assert panel.layout.n_real == 14
for length, others in [(8, 8), (12, 3), (12, 1)]:
    assert pv.Layout([length] + [others] * 7).n_padding == 7 * (length - others)

# %% [markdown]
# ## How much padding does real text need?
#
# packviz comes with 512 sentences from the docstrings of Python's standard library, split into words. Most are short,
# and a few are long:

# %%
sizes = [len(sentence) for sentence in sentences()]
pv.draw.length_histogram(pv.Layout(sizes))

# %% [markdown]
# We cut them into batches of 32, in their original order. How bad can it be?

# %%
ask("width of a batch")


# %%
from statistics import median


def batches(sizes, many=32):
    return [pv.Layout(sizes[i : i + many]) for i in range(0, len(sizes), many)]


as_they_come, sorted_first = batches(sizes), batches(sorted(sizes))
print(f"median width: {median(batch.max_len for batch in as_they_come):.0f} steps")
pv.draw.padding_waste({"as they come": as_they_come, "similar lengths together": sorted_first})

# %% [markdown]
# Real text is not kinder. A typical batch is 33 steps wide, three times the length of a typical sentence. One
# long sentence among 32 is enough, and nearly every batch has one. **64 % of the cells are padding.** For each word
# that somebody wrote, the batch holds almost two that nobody did.
#
# And now it gets embarrassing. This page is called *Why pack?*, and the cure in our chart is not packing. It is
# sorting: if sentences of similar length share a batch, 64 % becomes 14 %. In practice, people shuffle first and sort
# only a few hundred sentences at a time, so that the batches change from epoch to epoch. This is called *bucketing*.
#
# Packing would remove the padding altogether. But bucketing is cheap, and removes much of it, too. So waste
# alone is a weak reason to pack, and it does not explain our review. A wasted cell takes time. It cannot turn *neutral*
# into *positive*, unless something in the model *reads* it.

# %% tags=["claims"]
waste = [1 - sum(b.n_real for b in some) / sum(b.n_cells for b in some) for some in (as_they_come, sorted_first)]
assert [f"{share:.0%}" for share in waste] == ["64%", "14%"]
assert 1.7 < waste[0] / (1 - waste[0]) < 2
assert sorted(sizes)[255:257] == [11, 11]
assert len(as_they_come) == 2 * sum(b.max_len >= 33 for b in as_they_come) == 16
assert sum(b.max_len >= 2 * 11 for b in as_they_come) >= 15

# %% [markdown]
# ## Our model in plain PyTorch
#
# Our suspect is an LSTM. Like every *recurrent neural network* (RNN), it reads one time step after another, and after
# each it updates a short vector, its *state*: all that it remembers. (An LSTM has two such vectors.) Its *gates*,
# numbers between 0 and 1, decide how much of the old state to keep, and how much to add. What is added comes from the
# word, the old state and some biases.
#
# Before the LSTM, an embedding gives each word a vector. After it, a linear layer turns each review's *final state*
# into three scores, one each for *negative*, *neutral* and *positive*. The weights are random, so what the model says
# about a review means nothing. But it had better say the same thing twice.

# %%
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

torch.manual_seed(1)
embedding = torch.nn.Embedding(10, 6, padding_idx=0)  # token 0 is the padding, and its vector is zero
lstm = torch.nn.LSTM(input_size=6, hidden_size=8, batch_first=True)
linear = torch.nn.Linear(8, 3)

# %% [markdown]
# A careful model packs. The model of our case left something out, so we look at the careful one first. It takes six
# lines. The comments give the shapes of the results. A packed batch keeps its real cells in `data`.

# %%
sequences = [torch.tensor([3, 1, 4]), torch.tensor([1, 5, 9, 2, 6]), torch.tensor([5, 3]), torch.tensor([5, 8, 9, 7])]
lengths = torch.tensor([len(s) for s in sequences])                        # (4,)       3, 5, 2, 4: on the CPU
x = pad_sequence(sequences, batch_first=True)                              # (4, 5)     padded with 0
embedded = embedding(x)                                                    # (4, 5, 6)
packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)   # data: (14, 6)
packed_output, (h_n, c_n) = lstm(packed)                                   # data: (14, 8); h_n: (1, 4, 8)

print("h_n:", tuple(h_n.shape), "  scores:", tuple(linear(h_n[0]).shape))

# %% [markdown]
# Follow the padding. `pad_sequence` makes a rectangle of 20 cells. `pack_padded_sequence` takes the padding out, so the
# LSTM reads 14 cells.
#
# For each layer, `h_n` holds each sequence's final state. Ours has one layer, so the scores are `linear(h_n[0])`, one
# row for each review, in our order. (`c_n` holds the LSTM's second vector. It has nothing to do with our review c, and
# can wait for notebook 03.)
#
# Now look again. Packing takes a line of its own, a list of lengths, and an odd `enforce_sorted=False`, which notebook
# 02 explains. All that, to keep six cells from the LSTM! The model of our case did not bother. It left out the line
# that packs, and gave the padded batch to the LSTM: `output, (h_n, c_n) = lstm(embedded)`. That runs, and `h_n` has the
# same shape. But now the LSTM reads the padding, and c has three cells of it.

# %% tags=["claims"]
assert (x.shape, embedded.shape, packed.data.shape) == ((4, 5), (4, 5, 6), (14, 6))
assert (packed_output.data.shape, h_n.shape) == ((14, 8), (1, 4, 8))
assert panel.lengths == tuple(map(len, sequences))
unpacked = lstm(embedded)
assert unpacked[1][0].shape == h_n.shape
assert not embedding.weight[0].any()

# %% [markdown]
# ## Who changed the review?
#
# The weights stay as they are, and so do the two words of c. Only its company changes: first nobody, then a, d or b,
# and finally all three. Row a is the mildest company. It has three words, so c gets a single step of padding.

# %%
ask("one step of padding")

# %% [markdown]
# The function below does what our six lines do, but it packs only if you say `pack=True`.

# %%
a, b, c, d = sequences


def final_states(batch, pack=False):
    x = embedding(pad_sequence(batch, batch_first=True))
    if pack:
        sizes = [len(s) for s in batch]
        x = pack_padded_sequence(x, sizes, batch_first=True, enforce_sorted=False)
    _, (h_n, _) = lstm(x)
    return h_n[0].detach()  # a row for each sequence


# %% [markdown]
# Each row below is a final state of c. The bar on the right is its distance from *c alone*.

# %%
states = {"c alone": final_states([c])[0]}
for name, other in {"a (3 steps)": a, "d (4 steps)": d, "b (5 steps)": b}.items():
    states[f"padded, beside {name}"] = final_states([c, other])[0]
states["padded, beside all"] = final_states(sequences)[2]
states["packed, beside all"] = final_states(sequences, pack=True)[2]
pv.draw.Strips(states, title="The final state of c, in different company")

# %% [markdown]
# Is 0.29 much? We compare it with the size of *c alone*, its Euclidean norm:

# %%
alone = states["c alone"]
for name, state in states.items():
    print(f"{name:26} moved by {(state - alone).norm() / alone.norm():4.0%}")

# %% [markdown]
# Look at the row *beside a*. *One* step of zeros, and the final state moves by nearly 40 % of its size. Beside b,
# there are three such steps, and it moves by 69 %: more than two thirds of its own size, and not one word was added.
#
# How can nothing do so much? Nothing tells an LSTM what is padding. To the LSTM, a vector of zeros is a word like any
# other. (`padding_idx=0` only keeps that vector at zero.) The word itself adds nothing, because any weight times zero
# is zero. But the old state and the biases still add something, and the gates let go of a part of what was there. So
# each blank word rewrites a part of the memory.
#
# You may object that the rows of a batch are computed independently. They are. None of b's numbers ever enters row c.
# What enters is b's *length*: the batch is five columns wide, and the LSTM reads every row to the last column. For c,
# that is three columns too far, and `h_n` is the state *there*. So the longest review decides, and the others do
# nothing: *padded, beside b* and *padded, beside all* agree. In the packed batch, row c simply ends. Its final state
# is that of c alone.
#
# A state has moved. But has the verdict changed? We give these states to `linear`:

# %%
labels = ["negative", "neutral", "positive"]
for name, state in states.items():
    print(f"{name:26} {labels[linear(state).argmax()]}")

# %% [markdown]
# Case settled. *Neutral* is what the model says about these two words. *Positive* is what it says about the two words
# and some steps of nothing. It was b, the longest review, that added those steps, and even d would have been enough.
# The line that prevents the next case is the fifth of our six:
#
# ```python
# packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
# ```
#
# *That* is what packing is for. It may save time, too, but first of all it makes a final state depend on its own
# sequence, and on no other. Training may make the effect of padding smaller. Packing removes it.
#
# The next pages all use one piece of code, ten lines long. You have seen six. What is missing?

# %% tags=["claims"]
moved = {name: float((state - alone).norm() / alone.norm()) for name, state in states.items()}
assert [f"{share:.0%}" for name, share in moved.items() if "a (" in name or "b (" in name] == ["39%", "69%"]
assert moved["packed, beside all"] < 1e-6
answers = [labels[linear(state).argmax()] for state in states.values()]
assert answers == ["neutral", "neutral", "positive", "positive", "positive", "neutral"]
beside_b, beside_all = (states[f"padded, beside {name}"] for name in ("b (5 steps)", "all"))
assert torch.allclose(beside_b, beside_all, atol=1e-6)
alone_output = lstm(embedding(c)[None])[0]
assert torch.allclose(lstm(embedded)[0][2, :2], alone_output[0], atol=1e-6)

# %% [markdown]
# ## What are the other four lines?
#
# Training needs a loss. For our classifier, that would be one more line:
# `cross_entropy(linear(h_n[0]), right_answers)`. But many models answer after *every* word, to find the names in a
# text, for example. Such a model is called a *tagger*. It scores the state at every step. The LSTM has already returned
# these states, in `packed_output`. But they are packed, and our right answers lie in a rectangle. So we pad again, and
# each review gets its row back. The padding does no harm this time, because the LSTM is done. A mask keeps it out of
# the loss:

# %%
tags = torch.randint(3, (4, 5))  # the right answers, made up; the 6 in the padding are never used
output, _ = pad_packed_sequence(packed_output, batch_first=True)           # (4, 5, 8)
scores = linear(output)                                                    # (4, 5, 3)
mask = torch.arange(5) < lengths[:, None]                                  # (4, 5)     True at the 14 real cells
loss = cross_entropy(scores[mask], tags[mask])                             # ()         then loss.backward()

print("loss:", round(loss.item(), 2))

# %% [markdown]
# With the six lines above, these four (not counting the tags) are *the ten lines*. The next pages open with them,
# folded, and mark those that they take apart.
#
# So padding spoils everything, and packing costs nothing? That goes too far.

# %% tags=["claims"]
assert output.shape == (4, 5, 8)
assert (scores.shape, mask.shape, loss.shape) == ((4, 5, 3), (4, 5), ())
assert unpacked[0].shape == output.shape

# %% [markdown]
# ## What people get wrong
#
# - **"Padding makes every result wrong."** It leaves some alone. [Notebook 03](03_hidden_states.ipynb) finds out which.
# - **"Packing is for speed."** It saves computations, but not always time. On a CPU, torch often takes *longer* to
#   train on a packed batch. Notebooks 07 to 10 find out why, and what to do about it.

# %% [markdown]
# ## Exercise
#
# Mend the classifier from our case. Given a list of reviews, it returns three scores for each. These must be the scores
# that the review gets alone, whatever company it keeps. (`embedding`, `lstm` and `linear` are those from above.)

# %% tags=["exercise"]
def my_scores(reviews):
    lengths = torch.tensor([len(review) for review in reviews])
    words = embedding(pad_sequence(reviews, batch_first=True))
    # solution
    packed = pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
    _, (h_n, _) = lstm(packed)
    return linear(h_n[0])
    # end solution


checks.same_scores(my_scores, sequences, embedding, lstm, linear)

# %% [markdown]
# ## You can now
#
# tell two evils apart, and cure both. Against waste, let similar lengths share a batch. Against a final state that
# depends on its neighbours, pack.
#
# One thing we have put off. The packed `data` has 14 rows. In which order? The result looks so wrong at first sight
# that people have reported it as a bug.
#
# Next: [02 Inside a packed sequence](02_inside_a_packed_sequence.ipynb). Back: [00 Start here](00_start_here.ipynb)
