# %% [markdown]
# # Counting FLOPs
#
# **How much work does packing save, and why is that not time saved?**
#
# After this page you can
#
# - count the FLOPs of any RNN, GRU or LSTM from the lengths of a batch,
# - check the count with PyTorch's own counter, and know what that counter misses,
# - say why a count of FLOPs does not tell how long a training step takes.
#
# Time: 20 minutes.
#
# ## Six sequences
#
# Six sequences of lengths 9, 8, 6, 4, 3 and 2 go through an `LSTM(3, 7)`: 3 numbers in, a state of 7. Nearly all of
# its work is matrix products, counted in FLOPs: floating-point operations, one for each multiplication and each
# addition.
#
# Padded, a forward pass takes 30,240 of them. Predict the packed count.

# %%
import packviz as pv
from packviz.lessons import ask, checks

ask("packed flops of six sequences")

# %%
import torch

lengths = [9, 8, 6, 4, 3, 2]
lstm_count = pv.flops(torch.nn.LSTM(3, 7), lengths)
lstm_count

# %% tags=["claims"]
assert (lstm_count.padded, lstm_count.packed, lstm_count.saved) == (30240, 17920, 12320)
assert lstm_count.packed / lstm_count.padded == 32 / 54  # real cells over all cells
assert lstm_count.elementwise.packed == 32 * 21 * 7

# %% [markdown]
# Solid is what packing computes; hatched is what only the padded batch does, for nothing.
#
# Nothing was run: lengths and sizes say it all. In a forward pass every cell costs the same, so packing saves exactly
# the share of cells that are padding.
#
# *GEMM* is what libraries call a matrix product. The last bar is everything else: adding, sigmoids, tanhs, number by
# number (*element-wise*). It is small, and counted apart. The backward pass has a section of its own below.

# %% [markdown]
# ## What one cell costs
#
# At each time step an RNN multiplies the input by one weight and the state by another. A vector of `k` numbers times a
# `(k, n)` matrix takes `2kn` FLOPs: a multiplication and an addition for each entry of the matrix.
#
# An LSTM does that 4 times: once for the new content of its memory, and once for each of 3 *gates*, which say what to
# forget, what to take in and what to show. A GRU does it 3 times, a plain RNN once.

# %%
for name, times in [("LSTM", 4), ("GRU", 3), ("RNN", 1)]:
    per_cell = times * (2 * 3 * 7 + 2 * 7 * 7)  # 3 inputs, then 7 numbers of the state
    count = pv.flops(getattr(torch.nn, name)(3, 7), lengths)
    print(f"{name:4}  54 cells by hand: {54 * per_cell:6,}  pv.flops: {count.padded:6,}")
    print(f"{name:4}  32 cells by hand: {32 * per_cell:6,}  pv.flops: {count.packed:6,}")

# %% tags=["claims"]
for name, times in [("LSTM", 4), ("GRU", 3), ("RNN", 1)]:
    per_cell, count = times * 140, pv.flops(getattr(torch.nn, name)(3, 7), lengths)
    assert (count.padded, count.packed) == (54 * per_cell, 32 * per_cell)
both = pv.flops(torch.nn.LSTM(3, 7, bidirectional=True), lengths)
deep = pv.flops(torch.nn.LSTM(3, 7, num_layers=2, bidirectional=True), lengths)
assert both.padded == 2 * lstm_count.padded
assert deep.padded == both.padded + 2 * pv.flops(torch.nn.LSTM(14, 7), lengths).padded == 187488

# %% [markdown]
# A second direction doubles the count. A second layer reads what the first puts out: the numbers of its state, from
# both directions if it has two.
#
# ## Try it
#
# - Find lengths with which packing saves nothing. Then some with which it saves almost everything.
# - Change `hidden_size` and the kind of RNN. Which of the four shares stay as they are?

# %%
from packviz.explorers import CostExplorer

CostExplorer()

# %% tags=["claims"]
for rnn in (torch.nn.LSTM(3, 7), torch.nn.GRU(3, 7), torch.nn.GRU(3, 64)):
    count = pv.flops(rnn, lengths)
    assert count.saved / count.padded == 22 / 54  # the counts change with the RNN, the share does not

# %% [markdown]
# Now a real batch: the 512 sentences of notebook 01. Most are over after a few steps, and one goes on to the end. Padded,
# every step costs the same. (M is a million, G a thousand million.)

# %%
from packviz.lessons import sentences

pv.flops(torch.nn.GRU(64, 128), [len(sentence) for sentence in sentences()])

# %% [markdown]
# ## The textbook count
#
# On Stack Overflow packing is explained by other numbers: 54 multiplications padded, 32 packed. They belong to another
# product, which takes each padded row for one vector of 9 numbers: a (6, 9) batch times a (9, 3) weight.

# %%
for name, widths in {"padded": [max(lengths)] * len(lengths), "packed": lengths}.items():
    # a row of n entries takes n multiplications and n - 1 additions
    print(f"{name}: {sum(widths)} mult, {sum(n - 1 for n in widths)} add")

# %% tags=["claims"]
assert (len(lengths) * 9, len(lengths) * 8) == (54, 48)
assert (sum(lengths), sum(n - 1 for n in lengths)) == (32, 26)

# %% [markdown]
# This is **one** column of the result, which has three: the full count is three times that. And an RNN does no such
# product: it multiplies one *time step* after the other, each by the same weights.

# %% [markdown]
# ## Ask PyTorch
#
# PyTorch can count while it runs: `FlopCounterMode` notes every matrix product. Predict what it says of our padded
# LSTM, on an ordinary PC.

# %%
ask("what the counter says")

# %%
from torch.utils.flop_counter import FlopCounterMode

lstm = torch.nn.LSTM(3, 7)
x = torch.randn(9, 6, 3)
with FlopCounterMode(display=False) as counter:
    lstm(x)
print("counted:", counter.get_total_flops())

# %% tags=["claims"]
assert counter.get_total_flops() == (0 if torch.backends.mkldnn.is_available() else 30240)

# %% [markdown]
# Work was done, and none was counted. On a CPU torch hands a padded LSTM to oneDNN (in torch also *mkldnn*), Intel's
# library of fast routines, called *kernels*. There the whole LSTM is one *fused* kernel: a single call that does
# everything inside. The counter knows matrix products, and it never sees any.
#
# It has no formula for any RNN kernel, so it misses those of a GPU (cuDNN) as well. Switch oneDNN off, and the products
# appear.


# %%
def counted(run):
    # allow_tf32=None: leave that setting alone
    with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths)
print(f"padded: {counted(lambda: lstm(x)):,}   packed: {counted(lambda: lstm(packed)):,}")

# %% tags=["claims"]
assert counted(lambda: lstm(x)) == lstm_count.padded == 30240
assert counted(lambda: lstm(packed)) == lstm_count.packed == 17920

# %% [markdown]
# ## The backward pass
#
# Each product of the forward pass has two in the backward pass: one for the gradient of the weight, one for that of
# what it was multiplied with. So backward would be twice forward, but for two gradients that nobody computes: that of
# `x`, if nothing before the RNN learns, and that of the zero state it starts from.

# %%
for needed in (False, True):
    x.requires_grad_(needed)
    count = pv.flops(lstm, lengths, input_grad=needed)
    print(f"gradient of x: {needed}. Backward is {count.backward.padded / count.padded:.2f} × forward.")
    said = counted(lambda: lstm(x)[0].sum().backward())
    print(f"   forward + backward: {count.training.padded:,} by pv.flops, {said:,} by PyTorch")

# %% [markdown]
# The zero state belongs to the first step, where no cell is padding. So a larger share of what is left is padding:
# packing saves 42.7 % of the backward pass and 40.7 % of the forward pass, as the first picture says. (With two
# directions backward saves the smaller share: the reverse one has its zero state at the last step, mostly padding.)

# %% tags=["claims"]
for needed in (False, True):
    x.requires_grad_(needed)
    count = pv.flops(lstm, lengths, input_grad=needed)
    assert counted(lambda: lstm(x)[0].sum().backward()) == count.training.padded
    both = pv.flops(torch.nn.LSTM(3, 7, bidirectional=True), lengths, input_grad=needed)
    shares = [work.saved / work.padded for work in (both.backward, both.forward, count.backward)]
    assert shares[0] < shares[1] == 22 / 54 < shares[2]
x.requires_grad = False

# %% [markdown]
# ## FLOPs are not milliseconds
#
# Now four batches, each of 256 sequences padded to 256 steps, and half of that padding. The first has only 2 distinct
# lengths, the others 4, 16 and 256.

# %%
ask("few and many distinct lengths")

# %%
gru = torch.nn.GRU(32, 32)
for n in (2, 4, 16, 256):
    lengths = pv.lengths.even_steps(n, 256)  # 256 lengths up to 256, n of them distinct
    count = pv.flops(gru, lengths, input_grad=True).training
    print(f"{n:3} distinct lengths: {count.packed / count.padded:.3f} of the padded FLOPs")

# %% tags=["claims"]
counts = [pv.flops(gru, pv.lengths.even_steps(n, 256), input_grad=True).training.packed for n in (2, 4, 16, 256)]
assert len(set(counts)) == 1

# %% [markdown]
# The same saving, four times. Is it the same time? We timed a training step of a GRU and of an LSTM: padded, and
# packed for each batch (pack, RNN, pad, and the backward pass).

# %%
ask("half the flops")

# %%
from packviz.studies import savings

recorded = savings.recorded()
recorded

# %% tags=["claims"]
for point in recorded.points:
    few, many = savings.name(2), savings.name(256)
    assert recorded.ratio(point, few, "padded").value > 2
    assert recorded.ratio(point, many, few).value > 1

# %% [markdown]
# How to read it: everything was called in turn, round after round, so that a busy moment hits all alike. A **ratio** is
# formed within each round. You see the median of these ratios and their *quartiles*: half of the rounds lie between
# them. *Not clear* means that the quartiles differ by a larger factor than the effect itself. The last line says on what
# machine it was measured. All measured charts and tables from here on are made like this.
#
# The same FLOPs took different times, too. On your machine, with smaller batches, in a few seconds:

# %% tags=["live-timing", "nbval-ignore-output"]
savings.run(rounds=7)

# %% [markdown]
# Why? A count of FLOPs leaves out how *fast* each FLOP runs, and everything that is none: copies, allocations, kernel
# calls. Packed, a step is a product with few rows, and the backward pass copies a lot. The LSTM loses most, because
# its padded form has the fused kernel. Notebook 06 times this at many sizes, and 07 finds the cause.
#
# ## Is packing ever faster?
#
# Yes. We raced padded and packed on many batches, on a CPU. In these the packed **training step** was clearly faster
# (64 × 200: 64 sequences of up to 200 steps):

# %%
from packviz.studies import methods_benchmark

methods_benchmark.recorded().packed_faster()

# %% tags=["claims"]
from packviz.studies import heuristics

found = methods_benchmark.recorded()
faster = found.packed_faster().groups
assert "LSTM(64, 128), log-normal, 64 × 200" in faster
for point in found.points:
    if point.name in faster:
        assert point.hidden_size >= 128
        assert sum(point.drawn()) < 0.55 * point.batch_size * point.steps
for case in heuristics.recorded().of("GRU", training=True):
    if (case.size, case.batch_size, case.kind) == (128, 64, "log-normal"):
        assert case.faster == ("padded" if case.longest == 256 else "packed")

# %% [markdown]
# What they have in common: much padding (*log-normal* lengths are many short ones and a few long ones) and a large
# state, so that a time step is much work. Few steps help, too: the copies of the backward pass grow faster than the
# work. Forward alone those copies are not made, and packing pays far more often.
#
# Notebook [10](10_should_you_pack.ipynb) shows where the border runs, and measures for your own lengths and model.

# %% [markdown]
# ## What people get wrong
#
# - **"40 % fewer FLOPs, so 40 % faster."** You have seen half the FLOPs take several times as long.
# - **"The counter says 0, so it is free."** A fused kernel hides its products from the counter.
# - **"54 multiplications."** For one output column; a count means nothing without its convention.
# - **"Backward is twice forward."** At most. Look at what needs a gradient.

# %% [markdown]
# ## Exercise
#
# Write the packed count for a GRU with one layer and one direction: GEMM FLOPs of a forward pass.
# `my_gru_flops(3, 7, [9, 8, 6, 4, 3, 2])` is 13440.


# %% tags=["exercise"]
def my_gru_flops(input_size, hidden_size, lengths):
    # solution
    per_cell = 2 * 3 * hidden_size * (input_size + hidden_size)
    return per_cell * sum(lengths)
    # end solution


checks.gru_flops(my_gru_flops)

# %% [markdown]
# ## You can now
#
# - count the FLOPs of an RNN: cost of a cell times the cells computed,
# - check it with `FlopCounterMode`, and explain a count of 0,
# - say why FLOPs are not time: they leave out copies, kernel calls, and how fast a FLOP runs.
#
# Next: [04 Hidden states](04_hidden_states.ipynb). Back:
# [02 Inside a packed sequence](02_inside_a_packed_sequence.ipynb) · [00 Start here](00_start_here.ipynb)
