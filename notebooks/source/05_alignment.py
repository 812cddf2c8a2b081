# %% [markdown]
# # Alignment
#
# **How do you move padding and states without mixing up sequences?**
#
# A language model has tokenized four texts, you have their lengths, and packing works without an error. The last words
# of three texts never reach your RNN, and one of the three does not reach it at all. The lengths are right. So is the
# data. What is wrong?
#
# After this page, you can move the padding of a batch, and hand states from an encoder to a decoder in the right order.
#
# Time: 16 minutes.
#
# <details><summary>Where we are in the ten lines: <b>x</b> and <b>h_n</b></summary>
#
# ```text
#   sequences = [torch.tensor([3, 1, 4]), torch.tensor([1, 5, 9, 2, 6]), torch.tensor([5, 3]), torch.tensor([5, 8, 9, 7])]
#   lengths = torch.tensor([len(s) for s in sequences])                        # (4,)       3, 5, 2, 4: on the CPU
# → x = pad_sequence(sequences, batch_first=True)                              # (4, 5)     padded with 0
#   embedded = embedding(x)                                                    # (4, 5, 6)
#   packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)   # data: (14, 6)
# → packed_output, (h_n, c_n) = lstm(packed)                                   # data: (14, 8); h_n: (1, 4, 8)
#   output, _ = pad_packed_sequence(packed_output, batch_first=True)           # (4, 5, 8)
#   scores = linear(output)                                                    # (4, 5, 3)
#   mask = torch.arange(5) < lengths[:, None]                                  # (4, 5)     True at the 14 real cells
#   loss = cross_entropy(scores[mask], tags[mask])                             # ()         then loss.backward()
# ```
#
# </details>
#
# ## On which side is the padding?
#
# For text generation, the padding is usually put on the left, so that every text ends in the last column. But
# `pack_padded_sequence` takes the *first* steps of each row, as many as its length says. If the padding is on the left,
# it packs the padding and cuts off the end of the text. Here, the sequences a, b, c and d are padded on the left and
# then packed:

# %%
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence

import packviz as pv
from packviz.lessons import ask, checks

lengths = [3, 5, 2, 4]
left = torch.tensor([[0, 0, 3, 1, 4], [1, 5, 9, 2, 6], [0, 0, 0, 5, 3], [0, 5, 8, 9, 7]])
packed = pack_padded_sequence(left, lengths, batch_first=True, enforce_sorted=False)
pv.show(packed, part="packed")

# %% [markdown]
# Row c now contains only padding, row a has lost its last two tokens and row d its last one, and torch raised no error.
# `pv.align` uses the lengths to move the padding to the side that you name in `padding_side`. The result can be packed:

# %%
right = pv.align(left, lengths, padding_side="right", batch_first=True)
pv.draw.Aligned.of(right, lengths, title="align(left, lengths, padding_side='right')", batch_first=True)

# %% tags=["claims"]
assert right.tolist() == [[3, 1, 4, 0, 0], [1, 5, 9, 2, 6], [5, 3, 0, 0, 0], [5, 8, 9, 7, 0]]
assert torch.equal(pv.align(right, lengths, padding_side="left", batch_first=True), left)
cut, _ = torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
assert cut.tolist() == [[0, 0, 3, 0, 0], [1, 5, 9, 2, 6], [0, 0, 0, 0, 0], [0, 5, 8, 9, 0]]
twice = pv.align(right, lengths, padding_side="right", source_side="left", batch_first=True)
assert twice[0].tolist() == [4, 0, 0, 0, 0]
assert twice[2].tolist() == [0, 0, 0, 0, 0]
import warnings

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert torch.equal(pv.align(right, lengths, padding_side="right", batch_first=True), right)
assert "x already has its padding on the right" in str(caught[0].message)
mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 1, 1], [0, 1, 1, 1, 1]]).bool()
assert torch.equal(pv.align(left, mask, padding_side="right", batch_first=True), right)

# %% [markdown]
# Lengths do not say on which side the padding is *now*, so `align` assumes that it is on the side opposite
# `padding_side`. A second, identical call breaks this assumption. It would take the last cells of each row, which now
# include padding, so row a, 3 1 4 0 0, would become 4 0 0 0 0, and row c only zeros. On the CPU, `align` looks at the
# values: if one value fills the right side and not the left, it moves nothing and warns you. On a GPU it does not look,
# because the CPU would have to wait. There, name the side in `source_side`, or pass a mask instead of lengths, such as
# the `attention_mask` of a tokenizer.
#
# ## Why not look for zeros?
#
# A lot of code finds the padding by looking for zeros. But a zero can be data, such as a token id, or the rainfall on a
# dry day.

# %%
ask("a guess from zeros")

# %%
row = torch.tensor([[0, 0, 7, 8, 0, 0]])  # its length is 4, so its first two zeros are data
guessed = row.roll(-int(row[0].nonzero()[0]), dims=1)
pv.draw.Aligned.of(guessed, [4], title="After the shift, all real cells are wrong (framed)", batch_first=True, like=row)

# %% [markdown]
# Read with its length 4, the row is now 7, 8, 0, 0 instead of 0, 0, 7, 8. The two dry days from its start now stand at
# its end. When does such a guess go well?
#
# In the panel, choose where the padding is, where it should go, and where the data contains zeros. For which sequences
# does guessing from zeros work?

# %%
from packviz.panels import AlignPanel

AlignPanel()

# %% tags=["claims"]
assert pv.align(row, [4], padding_side="left", batch_first=True).tolist() == [[0, 0, 0, 0, 7, 8]]
sides = [("left", "right"), ("left", "left"), ("right", "left"), ("right", "right")]
for zeros in ("none", "at the start", "at the end"):
    for before, after in sides:
        wrong = AlignPanel(source_side=before, padding_side=after, zeros=zeros).wrong_cells
        assert bool(wrong) == (zeros == {"right": "at the start", "left": "at the end"}[after])

# %% [markdown]
# To move the padding to the right, code that looks for zeros shifts each row until it begins with a nonzero number, so
# it fails for sequences that begin with a zero. In the other direction, it fails for those that end with a zero. The
# numbers alone do not show which zeros are data. You need the lengths or a mask.
#
# With lengths, every cell is in its place. But there is something else in an RNN that can end up in the wrong row.
#
# ## Whose state does the decoder get?
#
# In translation with RNNs, an encoder reads the source, and a decoder starts from the encoder's final state and writes
# the target. The longest source need not have the longest target. So if both batches are sorted by length, their orders
# can differ. Older code sorts both by hand, because torch used to require it:

# %%
ask("states between encoder and decoder")

# %%
torch.manual_seed(0)
encoder, decoder = torch.nn.LSTM(3, 5), torch.nn.LSTM(2, 5)
sources = [torch.randn(n, 3) for n in (3, 5, 2, 4)]
targets = [torch.randn(n, 2) for n in (2, 1, 4, 3)]

by_source = sorted(range(4), key=lambda i: -len(sources[i]))
by_target = sorted(range(4), key=lambda i: -len(targets[i]))
_, state = encoder(pack_sequence([sources[i] for i in by_source]))
_, (sorted_by_hand, _) = decoder(pack_sequence([targets[i] for i in by_target]), state)

# %% [markdown]
# With `enforce_sorted=False` on both sides, you need not sort anything. The encoder returns its states in *your* order,
# and the decoder takes them in your order. Is the result the same?

# %%
_, state = encoder(pack_sequence(sources, enforce_sorted=False))
_, (unsorted, _) = decoder(pack_sequence(targets, enforce_sorted=False), state)
for row, i in enumerate(by_target):
    difference = (sorted_by_hand[0, row] - unsorted[0, i]).abs().max()
    print(f"pair {'abcd'[i]}: the final states differ by {difference:.2f}")

# %% [markdown]
# For pairs b and c, the results differ, and not by rounding. torch cannot notice, because the shapes agree. Which of the two
# versions is wrong? Follow the ribbons. Each one is a source and its own target:

# %%
states = [(f"h {'abcd'[i]}", i) for i in by_source]
methods = {
    "sorted by hand": [[0], [1], [2], [3]],
    "in the decoder's order": [[by_source.index(i)] for i in by_target],
}
pv.draw.Ribbons("Sorted by hand, two targets start from another pair's state", states, methods, by_target)

# %% [markdown]
# If you must sort by hand, put the states `(h, c)` into the decoder's order before you pass them on. Compute `rows =
# [by_source.index(i) for i in by_target]` and start the decoder from `(h[:, rows], c[:, rows])`. `rows[k]` is the row
# of the encoder's state that belongs to row k of the decoder's batch. (A bidirectional encoder returns two states, one per
# direction. A decoder with one direction needs one, so join or add the two, usually through a linear layer.)

# %% tags=["claims"]
for i in range(4):  # each pair on its own
    _, state = encoder(sources[i])
    assert torch.allclose(decoder(targets[i], state)[1][0][0], unsorted[0, i], atol=1e-6)
for row, i in enumerate(by_target):
    assert torch.allclose(sorted_by_hand[0, row], unsorted[0, i], atol=1e-6) == (by_source[row] == i) == (i in (0, 3))
_, (h, c) = encoder(pack_sequence([sources[i] for i in by_source]))
rows = [by_source.index(i) for i in by_target]
_, (repaired, _) = decoder(pack_sequence([targets[i] for i in by_target]), (h[:, rows], c[:, rows]))
assert torch.allclose(repaired, unsorted[:, by_target], atol=1e-6)

# %% [markdown]
# ## Past and future on one axis
#
# One last seam, for forecasters. Models such as the *Temporal Fusion Transformer* join each series' past and future along the time axis.
# Pad the past on the left and the future on the right, so that every past ends where its future begins:

# %%
past, n_past = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0], [7, 8, 9, 0]]), [4, 2, 3]
future, n_future = torch.tensor([[5, 6, 7], [7, 0, 0], [10, 11, 0]]), [3, 1, 2]

moved = pv.align(past, n_past, padding_side="left", batch_first=True)
axis = torch.cat([moved, future], dim=1)
real = torch.cat([pv.real_mask(n_past).flip(1), pv.real_mask(n_future)], dim=1)  # flipped: True on the right
pv.draw.Aligned.of(axis, real, title="The past (four steps) and the future (three) join without a gap", batch_first=True)

# %% tags=["claims"]
assert moved.tolist() == [[1, 2, 3, 4], [0, 0, 5, 6], [0, 7, 8, 9]]
assert torch.equal(pv.align(moved, n_past, padding_side="right", batch_first=True), past)
assert torch.equal(pv.align(axis[:, :4], real[:, :4], padding_side="right", batch_first=True), past)
assert real[:, 3:5].all()

# %% [markdown]
# ## What people get wrong
#
# - **"The padding is wherever there are zeros."** Zeros can be data. Use the lengths or a mask from your data loader.
# - **"Left-aligned means padded on the left."** Some people call a batch *left-aligned* if its data is on the left and
#   its padding on the right. We always say where the padding is.
# - **"Aligning twice does no harm."** With lengths alone, it can destroy data.
#
# ## Exercise
#
# Move the padding to the right yourself, in plain torch. `x`, of shape `(B, T)`, is padded on the left. `lengths` is a
# list. Fill the padding with zeros. The data may contain zeros, too.


# %% tags=["exercise"]
def my_right_padded(x, lengths):
    # solution
    lengths, steps = torch.tensor(lengths)[:, None], torch.arange(x.shape[1])
    moved = x.gather(1, (steps - lengths) % x.shape[1])
    return moved.masked_fill(steps >= lengths, 0)
    # end solution


checks.right_padded(my_right_padded)

# %% [markdown]
# ## You can now
#
# say where the padding is without guessing, and whose state stands in which row.
#
# Next: [06 A model of your own](06_a_model_of_your_own.ipynb). Back: [04 Masks and losses](04_masks_and_losses.ipynb)
# · [00 Start here](00_start_here.ipynb)
