# %% [markdown]
# # Inside a packed sequence
#
# **In which order does a `PackedSequence` hold its data, and what is `batch_sizes`?**
#
# "`batch_sizes` is broken, it does not equal my lengths." People have reported this bug to PyTorch [more
# than](https://github.com/pytorch/pytorch/issues/1203) [once](https://github.com/pytorch/pytorch/issues/36448). And
# indeed: pack our four sequences, of 3, 5, 2 and 4 steps, and print `batch_sizes`. You get `[4, 4, 3, 2, 1]`, which is
# five numbers for four sequences. But nothing is broken. What do the five numbers count?
#
# After this page, you can read any packed sequence, and answer this bug report in one sentence.
#
# Time: 20 minutes, with the exercise.
#
# <details><summary>Where we are in the ten lines: <b>packed</b> and <b>output</b></summary>
# <pre>
#   sequences = [torch.tensor([3, 1, 4]), torch.tensor([1, 5, 9, 2, 6]), torch.tensor([5, 3]), torch.tensor([5, 8, 9, 7])]
#   lengths = torch.tensor([len(s) for s in sequences])                        # (4,)       3, 5, 2, 4: on the CPU
#   x = pad_sequence(sequences, batch_first=True)                              # (4, 5)     padded with 0
#   embedded = embedding(x)                                                    # (4, 5, 6)
# → packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)   # data: (14, 6)
#   packed_output, (h_n, c_n) = lstm(packed)                                   # data: (14, 8); h_n: (1, 4, 8)
# → output, _ = pad_packed_sequence(packed_output, batch_first=True)           # (4, 5, 8)
#   scores = linear(output)                                                    # (4, 5, 3)
#   mask = torch.arange(5) &lt; lengths[:, None]                                  # (4, 5)     True at the 14 real cells
#   loss = cross_entropy(scores[mask], tags[mask])                             # ()         then loss.backward()
# </pre>
# </details>
#
# ## Where does each cell go?
#
# We begin smaller, with two sequences and five numbers. Make a guess before anything moves.

# %%
import packviz as pv
from packviz.lessons import ask, checks

ask("order of data")

# %% [markdown]
# Now watch packing happen, with the four sequences of the bug report. Press *Pack it*, or drag the slider slowly from
# *without padding* to *packed*. Keep an eye on the columns.

# %%
from packviz.panels import BatchPanel

BatchPanel([3, 5, 2, 4])

# %% [markdown]
# The sequences are sorted, the padding goes, and then *column t becomes a slice of `data`*. `batch_sizes` holds the
# height of each column: how many sequences have a step t. And that answers the bug report. There is one length for
# each sequence, and one batch size for each time step. Five steps, five numbers.
#
# Does torch agree? We give it the two small sequences from your guess:

# %%
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence
from torch.nn.utils.rnn import pad_packed_sequence, pad_sequence

a, b = torch.tensor([1, 2, 3]), torch.tensor([10, 20])
packed = pack_sequence([a, b])
print(packed)

# %% [markdown]
# It does. (Below, we come to the two entries that are `None`.) Now your turn:

# %% tags=["claims"]
assert packed.data.tolist() == [1, 10, 2, 20, 3]
assert packed.batch_sizes.tolist() == [2, 2, 1]
assert pv.Layout([3, 5, 2, 4]).batch_sizes.tolist() == [4, 4, 3, 2, 1]

# %%
ask("batch sizes of abc and x")

# %%
pv.show(["abc", "x"], names=["abc", "x"])

# %% [markdown]
# The first number counts all sequences, and the numbers fall whenever sequences end. Even the lengths can be read
# off, longest first. The first sequence is in all three steps, so its length is 3. The second is only in the step
# that has room for two, so its length is 1.
#
# But who would store a batch this way? One sequence after another would look like a list. This looks like a riddle.

# %% tags=["claims"]
packed = pack_sequence([torch.tensor([ord(letter) for letter in word]) for word in ("abc", "x")])
assert "".join(map(chr, packed.data)) == "axbc"
assert packed.batch_sizes.tolist() == [2, 1, 1]
sizes = pack_sequence([torch.zeros(n) for n in (5, 4, 3, 2)]).batch_sizes.tolist()
assert sizes == [4, 4, 3, 2, 1]
assert [sum(size > row for size in sizes) for row in range(4)] == [5, 4, 3, 2]
packed = pack_sequence([torch.zeros(n) for n in (9, 8, 6, 4, 3, 2)])
assert packed.batch_sizes.tolist() == [6, 6, 5, 4, 3, 3, 2, 2, 1]
assert pack_sequence([torch.zeros(n) for n in (4, 2, 2, 2)]).batch_sizes.tolist() == [4, 4, 1, 1]

# %% [markdown]
# ## Who would want this order?
#
# The RNN. Within a sequence, each state depends on the one before, so the steps must be computed one by one. But the
# sequences do not depend on each other. So an RNN computes step t of all sequences at once, and needs the inputs of a
# step together, as the rows of one matrix. In packed order, this matrix is a slice, and sequences that have ended are
# not in it.
#
# That is all we need to compute the final states ourselves, in a loop of six lines. We take the simplest RNN, which
# computes this at each step: `h = tanh(W @ x + U @ h + biases)`. W is `weight_ih_l0`, and U is `weight_hh_l0`. In the
# code, each sequence is a row, so the matrices stand on the right, transposed.

# %%
torch.manual_seed(0)
rnn = torch.nn.RNN(input_size=4, hidden_size=5)
sequences = [torch.randn(n, 4) for n in (3, 5, 2, 4)]
packed = pack_sequence(sorted(sequences, key=len, reverse=True))  # b, d, a and c

# %%
h = torch.zeros(4, 5)  # a row for each sequence
start = 0
for size in packed.batch_sizes.tolist():
    rows = packed.data[start : start + size]  # step t of every sequence that has one
    new = rows @ rnn.weight_ih_l0.T + rnn.bias_ih_l0 + rnn.bias_hh_l0
    new = torch.tanh(new + h[:size] @ rnn.weight_hh_l0.T)
    h = torch.cat([new, h[size:]])  # sequences that have ended keep their state
    start += size

h_n = rnn(packed)[1]
print("equal to torch's final states:", torch.allclose(h, h_n[0], atol=1e-6))

# %% [markdown]
# Equal to torch's. So the longest sequence comes first for a reason: the sequences still running are always in the
# first `size` rows. `h[size:]` holds the others, and they stay as they are.
#
# And one sequence after another? In packed order, the cells of step 1 (`b1`, `d1`, `a1` and `c1`) are rows 4 to 7. In
# the order a, b, c, d, they would be rows 4, 11, 1 and 9, and an RNN would have to collect its rows one by one, at
# every step. (Varlen attention, which [notebook 14](14_beyond_rnns.ipynb) explains, does read a batch in that order.)
#
# One thing should worry you, though. The batch has been sorted, and nobody asked you whether you minded.

# %% tags=["claims"]
assert torch.allclose(h, h_n[0], atol=1e-6)
places = pv.Layout([3, 5, 2, 4]).flat_rows.tolist()  # in the flat order, of each row of data
assert places[4:8] == [4, 11, 1, 9]  # b1, d1, a1 and c1
for start, stop in [(0, 4), (4, 8), (8, 11), (11, 13)]:  # the steps of more than one cell
    step = sorted(places[start:stop])
    assert step != list(range(step[0], step[0] + len(step)))

# %% [markdown]
# ## In which order do the results come back?
#
# This time, we do not sort. By default, torch then stops with an error: "`lengths` array must be sorted in decreasing
# order". With `enforce_sorted=False`, it sorts for you.
#
# That is how we packed in notebook 01. There, we took row 2 of `h_n` for the state of c, and settled a case with it.
# Did we read the right row?

# %%
ask("order of h_n")

# %%
x = torch.arange(20.0).reshape(5, 4)  # time first, as torch expects by default: each column is a sequence
packed = pack_padded_sequence(x, [3, 5, 2, 4], enforce_sorted=False)
pv.show(packed, indices=True)

# %% [markdown]
# torch leaves itself two notes. (They were `None` above, because that batch was sorted already.) `sorted_indices`, on
# the right, lists your sequences in torch's order. It is `[1, 3, 0, 2]`, so torch's first place holds your sequence 1,
# which is b. `unsorted_indices`, on the left, goes the other way. It is `[2, 0, 3, 1]`, so your sequence 0, which is a,
# is in torch's place 2.
#
# And `h_n`? We run an LSTM on the packed batch, and then on c alone:

# %%
torch.manual_seed(0)
lstm = torch.nn.LSTM(input_size=1, hidden_size=3)
steps = x[..., None] / 20  # (5, 4, 1): one feature
h_n = lstm(pack_padded_sequence(steps, [3, 5, 2, 4], enforce_sorted=False))[1][0]  # (1, 4, 3)
alone = lstm(steps[:2, 2])[1][0]  # the two steps of c
print("row 2 of h_n is that of c alone:", torch.allclose(h_n[:, 2], alone, atol=1e-6))

# %% [markdown]
# Row 2 is c, so our case stays settled. torch has used its notes to put `h_n` back into your order. It does the same
# with the padded output, and sorts the initial state if you pass one. You will rarely touch these notes yourself.
#
# So states and padded outputs come back in your order, as long as torch has its notes.

# %% tags=["claims"]
named = [[f"{letter}{i}" for i in range(1, n + 1)] for letter, n in zip("abcd", (3, 5, 2, 4), strict=True)]
layout = pv.show(named).layout
lengths = [3, 5, 2, 4]
message = ""
try:
    pack_padded_sequence(x, lengths)
except RuntimeError as error:
    message = str(error)
assert message.startswith("`lengths` array must be sorted in decreasing order")
for row in range(4):
    states = [lstm(steps[:m, other])[1][0] for other, m in enumerate(lengths)]
    assert [torch.allclose(h_n[:, row], state, atol=1e-4) for state in states] == [row == other for other in range(4)]
order = [named[row][t] for row, t in layout.source]
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
# Notes are easily lost. `data` and `batch_sizes` look complete, so it is tempting to build a `PackedSequence` from
# these two. We do it with the two small sequences from the top of this page, and put b, which has two steps, before
# a, which has three:

# %%
unsorted = pack_sequence([b, a], enforce_sorted=False)
by_hand = torch.nn.utils.rnn.PackedSequence(unsorted.data, unsorted.batch_sizes)
for name, packed in {"from torch": unsorted, "built by hand": by_hand}.items():
    print(f"{name}: lengths {pad_packed_sequence(packed, batch_first=True)[1].tolist()}")

# %% [markdown]
# The rows have changed places. You ask for row 0, where you had put b, and you get a. Without its notes, torch believes
# that your batch was sorted all along. To change the data of a packed sequence, use `packed._replace(data=…)`, which
# keeps the notes.
#
# That was our own mistake. But suppose that we make none, and simply pad again.

# %% tags=["claims"]
assert pad_packed_sequence(unsorted, batch_first=True)[1].tolist() == [2, 3]
assert pad_packed_sequence(by_hand, batch_first=True)[1].tolist() == [3, 2]
doubled = unsorted._replace(data=2 * unsorted.data)
assert pad_packed_sequence(doubled, batch_first=True)[1].tolist() == [2, 3]

# %% [markdown]
# ## Do you get back what you packed?
#
# `pad_packed_sequence` returns two tensors: the padded batch *and* the lengths. We pack tags whose padding is −100,
# which `cross_entropy` ignores by default. The tensor is one step wider than it needs to be. Then we pad again.

# %%
tags = torch.tensor([[0, 1, 2, 1, 0, -100], [0, 1, 0, -100, -100, -100]])
packed = pack_padded_sequence(tags, [5, 3], batch_first=True)
padded, lengths = pad_packed_sequence(packed)
print("tags:", tuple(padded.shape), "from", tuple(tags.shape))
print("tags of row 1:", padded[:, 1].tolist())

# %% [markdown]
# A `(2, 6)` tensor went in, and a `(5, 2)` tensor came out. And look at row 1. Its tags are 0, 1 and 0. The two zeros
# after them were −100, and nothing distinguishes them from real tags. Three things have changed on the way:
#
# - Without `batch_first=True`, the result is time × batch.
# - Without `total_length=6`, it has only as many steps as the longest sequence.
# - The padding's *value* is forgotten. Tags of −100 come back as 0, and 0 is a class like any other. A loss that
#   ignores −100 now reads the padding, unless you pass `padding_value=-100`.
#
# Three arguments bring back the tensor that we packed:

# %%
kept, lengths = pad_packed_sequence(packed, batch_first=True, total_length=6, padding_value=-100)
print("equal:", torch.equal(kept, tags), "  lengths:", lengths.tolist())

# %% tags=["claims"]
assert padded.shape == (5, 2)
assert padded[:, 1].tolist() == [0, 1, 0, 0, 0]
assert torch.equal(kept, tags)
back, lengths = pad_packed_sequence(pack_padded_sequence(pad_sequence([a, b]), [3, 2]))
assert torch.equal(back, pad_sequence([a, b]))
assert lengths.tolist() == [3, 2]
too_long = pack_padded_sequence(torch.zeros(2, 3), [5, 2], batch_first=True)
assert len(too_long.data) == 5
try:
    pack_padded_sequence(torch.zeros(2, 3), [3, 0], batch_first=True)
except RuntimeError:
    pass
else:
    raise AssertionError
assert pv.run(torch.nn.LSTM(1, 1), torch.zeros(3, 2, 1), [3, 0])[0].shape == (3, 2, 1)

# %% [markdown]
# <details><summary>Four questions about lengths</summary>
#
# - *Why must they be on the CPU?* torch reads them as ordinary numbers, in order to plan the slices. If they are on a
#   GPU, `lengths.cpu()` waits until the GPU has caught up, so keep them on the CPU from the start.
# - *May a length be 0?* No. torch raises an error. `pv.run` takes empty sequences.
# - *What if a length is greater than the width of the tensor?* `pack_padded_sequence` does not complain. The RNN or
#   `pad_packed_sequence` does, with an unrelated message.
# - *What if sequences are equally long?* torch does not promise to keep their order. On a CPU, torch 2.13 keeps it in
#   batches of up to 16. `pv.show(lengths)` always keeps it, and `pv.show(packed)` shows torch's own order.
#
# </details>
#
# ## Exercise
#
# Write `batch_sizes` yourself: turn a list of lengths into the number of sequences at each time step. For example,
# `[4, 2, 2, 2]` gives `[4, 4, 1, 1]`.


# %% tags=["exercise"]
def my_batch_sizes(lengths):
    # solution
    return [sum(n > t for n in lengths) for t in range(max(lengths))]
    # end solution


checks.batch_sizes(my_batch_sizes)

# %% [markdown]
# ## You can now
#
# - read `data`, which is ordered by time step, and `batch_sizes`, which counts the rows of each step,
# - explain this order, in which the inputs of each step form one slice,
# - pack sequences in any order with `enforce_sorted=False`, and rely on torch to restore it,
# - pad again with `batch_first`, `total_length` and `padding_value`.
#
# In our loop, a sequence that has ended is left in peace. In a padded batch it is not: the RNN runs on to the last
# column. Which of its results can you still trust?
#
# Next: [03 Hidden states](03_hidden_states.ipynb). Back: [01 Why pack?](01_why_pack.ipynb) · [00 Start
# here](00_start_here.ipynb)
