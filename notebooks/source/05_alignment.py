# %% [markdown]
# # Alignment
#
# **How do padding and states get where they belong?**
#
# You replace the tokenizer of a classifier with the one that comes with a newer model. All else stays the same: the
# texts, the labels, the packed LSTM. The model trains, and it is worse. You look closer. The longest texts are
# classified as well as ever, but on short ones the model might as well toss a coin. Short texts used to be the easy
# ones! You print the token ids, and they are right. So are the lengths. What has happened to the short texts?
#
# After this page, you can answer that, move the padding of a batch, and hand states from an encoder to a decoder.
#
# Time: 20 minutes, with the exercise.
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
# ## Which cells does packing take?
#
# Every batch so far has had its padding on the right. That was the thing we never said. Text generation usually wants
# padding on the left, so that every text ends in the last column. Let us see what `pack_padded_sequence` makes of our
# sequences a, b, c and d, padded on the left:

# %% jupyter={"source_hidden": true}
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence

import packviz as pv
from packviz.lessons import ask, checks

# %%
lengths = [3, 5, 2, 4]
left = torch.tensor([[0, 0, 3, 1, 4], [1, 5, 9, 2, 6], [0, 0, 0, 5, 3], [0, 5, 8, 9, 7]])
packed = pack_padded_sequence(left, lengths, batch_first=True, enforce_sorted=False)
pv.show(packed, part="packed")

# %% [markdown]
# Compare the picture with a = 3 1 4, c = 5 3 and d = 5 8 9 7. Row d has lost its last token, and row a its last two.
# Of c, nothing is left but padding.
#
# Packing takes the *first* steps of each row, as many as the length says, and here they begin with padding. A row of n
# tokens in T columns begins with T − n cells of padding. Packing takes n cells, so 2n − T tokens are left, or none at
# all if the text fills at most half of the row.
#
# Then let us not pack. Is left padding not the better kind? Every text ends in the last column, so `output[:, -1]` is
# a real step in every row. But now the LSTM reads the padding *first*, and begins each shorter text with a state that
# the padding has left behind. In a, c and d, every output of the forward direction is wrong.
#
# So we move the padding. `pv.align` moves it to the side that you name in `padding_side`, and relies on the lengths.
# The result can be packed:

# %%
right = pv.align(left, lengths, padding_side="right", batch_first=True)
pv.draw.Aligned.of(right, lengths, title="Every sequence begins in column 0, and its padding follows", batch_first=True)

# %% tags=["claims"]
assert right.tolist() == [[3, 1, 4, 0, 0], [1, 5, 9, 2, 6], [5, 3, 0, 0, 0], [5, 8, 9, 7, 0]]
assert torch.equal(pv.align(right, lengths, padding_side="left", batch_first=True), left)
cut, _ = torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
assert cut.tolist() == [[0, 0, 3, 0, 0], [1, 5, 9, 2, 6], [0, 0, 0, 0, 0], [0, 5, 8, 9, 0]]
for T in range(1, 9):
    for n in range(1, T + 1):
        columns = torch.arange(T)[None]  # 1 + the place of a token, and 0 at padding on the left
        row = (columns - (T - n) + 1).clamp(min=0)
        kept = pack_padded_sequence(row, [n], batch_first=True).data
        assert int((kept > 0).sum()) == max(0, 2 * n - T)
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

# %% tags=["claims"]
torch.manual_seed(0)
lstm = torch.nn.LSTM(2, 3, batch_first=True, bidirectional=True)
texts = torch.randn(4, 5, 2) * mask[..., None]  # padded on the left
padded, _ = lstm(texts)
for row, n in enumerate(lengths):
    alone, _ = lstm(texts[row : row + 1, 5 - n :])
    wrong = ((padded[row, 5 - n :] - alone[0]).abs() > 1e-5).view(n, 2, 3).any(2)  # by step and direction
    assert wrong[:, 0].tolist() == [n < 5] * n
    assert not wrong[:, 1].any()

# %% [markdown]
# Could we call `align` twice, to be sure? Lengths say how long a sequence is, but not on which side its padding is
# *now*. So `align` assumes that it is on the side opposite `padding_side`. After the first call, that is no longer
# true.
#
# On the CPU, `align` notices that, moves nothing, and warns you. On a GPU it does not look, because the CPU would
# have to wait. There, a second call turns row a, 3 1 4 0 0, into 4 0 0 0 0, and row c into zeros. So name the side in
# `source_side`. Or, instead of lengths, pass a mask, such as a tokenizer's `attention_mask`. A mask shows the side.
#
# All this needs lengths or a mask. Often, neither has been kept.
#
# ## Can we find the padding without lengths?
#
# A lot of code tries. It shifts each row until its first nonzero number is in front. Let us give it a row of rainfall,
# with a day in each cell:

# %%
ask("a guess from zeros")

# %%
row = torch.tensor([[0, 0, 7, 8, 0, 0]])
guessed = row.roll(-int(row[0].nonzero()[0]), dims=1)
pv.draw.Aligned.of(guessed, [4], title="The shifted row, with wrong cells framed", batch_first=True, like=row)

# %% [markdown]
# A dry day is data, too. Read with its length of 4, the row is now 7, 8, 0, 0 instead of 0, 0, 7, 8. It rains on the
# two dry days, and the two wet ones are dry. Not one of the four cells is right.
#
# Yet such code often works. When is the guess right? In the panel, choose where the padding is, where it should go,
# and where the data contain zeros.

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
# When the padding goes to the right, the guess fails for sequences that begin with a zero. When it goes to the left,
# the guess fails for those that end with a zero. All others come out right if the padding is zeros, so you may not
# notice for a long time. The numbers alone do not show which zeros are data. Keep the lengths, or a mask.
#
# With lengths, every cell is in its place. That was one batch. A model that translates has two, the sources and the
# targets, and a state passes from one to the other. No length says whose state it is.
#
# ## Which state does the decoder start from?
#
# In translation with RNNs, an encoder reads the source. A decoder starts from the encoder's final state, and writes the
# target. In older code, both batches are sorted by hand, because torch used to require it:

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
# For pairs b and c, the results differ, and not by rounding. Which of the two versions is wrong? Follow the ribbons,
# from each source's state to the target that starts from it: first as sorted by hand, then with the states in the
# decoder's order, as `enforce_sorted=False` puts them.

# %% jupyter={"source_hidden": true}
states = [(f"h {'abcd'[i]}", i) for i in by_source]
methods = {
    "sorted by hand": [[0], [1], [2], [3]],
    "in the decoder's order": [[by_source.index(i)] for i in by_target],
}
pv.draw.Ribbons("Sorted by hand, two targets start from another pair's state", states, methods, by_target)

# %% [markdown]
# When we sort by hand, the decoder writes the translation of b from what the encoder read in c, and the other way
# round. Half of the targets start from a stranger's state, and every shape is right.
#
# If you must sort by hand, put the states `(h, c)` into the decoder's order before you pass them on. Compute `rows =
# [by_source.index(i) for i in by_target]` and start the decoder from `(h[:, rows], c[:, rows])`. `rows[k]` is the row
# of the encoder's state for row k of the decoder's batch.
#
# Better: do not sort, and use `enforce_sorted=False`. Then every state goes where it belongs.
#
# <details><summary>And if the encoder is bidirectional, and the decoder is not?</summary>
#
# Such an encoder returns two states, one per direction. The decoder needs one. So add the two, or join them through a
# linear layer.
#
# </details>

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
# ## Exercise
#
# Move the padding to the right yourself, in plain torch. `x`, of shape `(B, T)`, is padded on the left, and its
# padding may hold any values. `lengths` is a list. Fill the padding of your result with zeros. The data may contain
# zeros, too.


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
# say, without guessing, where the padding is and whose state is in which row.
#
# And the short texts from the opening? The new tokenizer pads on the left, as is usual for text generation. Packing
# then cuts the larger share, the shorter the text: the longest of each batch arrives whole, and a text that fills at
# most half of the width arrives as nothing but padding. The ids were right, the lengths were right, and nobody asked
# where the ids *were*. The cure is one call of `pv.align`, or the tokenizer's `padding_side="right"`.
#
# Pad, pack, mask, align: all the parts are on the table. Each of them has failed us once, and each time the code ran to
# its end. If you build a model from them, how will you know that it is right?
#
# Next: [06 A model of your own](06_a_model_of_your_own.ipynb). Back: [04 Masks and losses](04_masks_and_losses.ipynb)
# · [00 Start here](00_start_here.ipynb)
#
# ## If you need more: past and future on one axis
#
# This is for forecasters. Models such as the *Temporal Fusion Transformer* put the past of a series and its future on
# one time axis. Between the two, there should be no gap. So pad the past on the left and the future on the right:

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
