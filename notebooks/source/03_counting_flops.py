# %% [markdown]
# # Counting FLOPs
#
# **How much work does packing save, and why is that not time saved?**
#
# After this page you can
#
# - count the FLOPs of any RNN, GRU or LSTM from the lengths of a batch,
# - check the count with PyTorch's own counter, and know when that counter says 0,
# - say why a count of FLOPs does not tell how long a training step takes.
#
# Time: 15 minutes.
#
# ## Six sequences
#
# Lengths 9, 8, 6, 4, 3 and 2, and an `LSTM(3, 7)`. Padded, its forward pass takes 30,240 floating-point operations
# (FLOPs) in matrix products. Predict the packed count.

# %%
import packviz as pv
from packviz.lessons import ask, checks

ask("packed flops of six sequences")

# %%
import torch

lengths = [9, 8, 6, 4, 3, 2]
ledger = pv.flops(torch.nn.LSTM(3, 7), lengths)
assert (ledger.padded, ledger.packed, ledger.saved) == (30240, 17920, 12320)
assert ledger.packed / ledger.padded == 32 / 54  # real cells over all cells
ledger

# %% [markdown]
# Nothing was run: the lengths and the sizes say it all. In a forward pass every cell costs the same, so packing
# saves exactly the share of cells that are padding.
#
# Solid is what packing computes; hatched is what only the padded batch does.

# %% [markdown]
# ## What one cell costs
#
# At each step an RNN multiplies the input by one weight and the state by another. A product of a vector of `k`
# numbers with a `(k, n)` matrix takes `2 · k · n` FLOPs: a multiplication and an addition for each entry.
#
# An LSTM does that for 4 *gates*, a GRU for 3, a plain RNN once.

# %%
for name, gates in [("LSTM", 4), ("GRU", 3), ("RNN", 1)]:
    per_cell = 2 * (3 * gates * 7) + 2 * (7 * gates * 7)  # 3 inputs, 7 hidden units
    count = pv.flops(getattr(torch.nn, name)(3, 7), lengths)
    assert (count.padded, count.packed) == (54 * per_cell, 32 * per_cell)
    print(f"{name:5}{per_cell:4} per cell   padded {count.padded:6}   packed {count.packed:6}")

# %% [markdown]
# A second direction doubles the count. A deeper layer reads what the layer below puts out: `H` numbers, or `2 · H`
# if that one has two directions.

# %%
for layers, both_ways in [(1, False), (2, False), (1, True), (2, True)]:
    count = pv.flops(torch.nn.LSTM(3, 7, num_layers=layers, bidirectional=both_ways), lengths)
    ways = "two directions" if both_ways else "one direction "
    print(f"layers: {layers}, {ways}   padded {count.padded:6}   packed {count.packed:6}")
assert (count.padded, count.packed) == (187488, 111104)
count

# %% [markdown]
# ## Try it
#
# Find a batch where packing saves nothing. Then one where it saves almost everything.
# Do `hidden_size` or the kind of RNN change the *share* that a forward pass saves?

# %%
from packviz.explorers import CostExplorer

explorer = CostExplorer()
explorer

# %% [markdown]
# From code: the counts change with the RNN, the share does not.

# %%
for mode, hidden_size in [("LSTM", 7), ("GRU", 7), ("GRU", 64)]:
    explorer.mode.value, explorer.hidden_size.value = mode, hidden_size
    shown = explorer.shown
    assert shown.saved / shown.padded == 22 / 54
    print(f"{mode}(3, {hidden_size}): {shown.saved:,} of {shown.padded:,} saved")
explorer.mode.value, explorer.hidden_size.value = "LSTM", 7

# %% [markdown]
# A real batch, the 512 sentences of notebook 01: most are over after a few steps, one goes on to the end. Padded, every
# step costs the same.

# %%
from packviz.lessons import sentences

counts = pv.flops(torch.nn.GRU(64, 128), [len(sentence) for sentence in sentences()])
counts

# %% [markdown]
# ## The textbook count
#
# You may have seen packing explained by this: multiply the (6, 9) batch by a (9, 3) weight, and count the
# multiplications and additions of each row.

# %%
from packviz.count import textbook

picture = textbook.count(lengths)
assert picture.padded == (54, 48)
assert picture.packed == (32, 26)
assert picture.saved == (22, 22)
picture

# %% [markdown]
# Two things to know:
#
# - This is **one** output column. The full product has three, so everything is three times that.
# - An RNN does no such product. It multiplies one *time step* at a time, with the same weights at each.

# %%
full = textbook.count(lengths, columns=3)
assert full.padded == (3 * 54, 3 * 48)
assert full.packed == (3 * 32, 3 * 26)
print("three columns, padded:", full.padded, "  packed:", full.packed)

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
fused = torch.backends.mkldnn.is_available()
assert counter.get_total_flops() == (0 if fused else 30240)
print("counted:", counter.get_total_flops())

# %% [markdown]
# Work was done, and none was counted. On a CPU with oneDNN the padded LSTM is a single *fused* kernel. The counter
# knows matrix products, and it never sees any. (It has no formula for any RNN kernel, so cuDNN's are missed as
# well.)
#
# Switch oneDNN off, and the products appear.


# %%
def counted(run):
    # allow_tf32=None: leave that setting alone
    with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths)
assert counted(lambda: lstm(x)) == ledger.padded == 30240
assert counted(lambda: lstm(packed)) == ledger.packed == 17920
print("padded:", counted(lambda: lstm(x)), "  packed:", counted(lambda: lstm(packed)))

# %% [markdown]
# ## The backward pass
#
# Each product of the forward pass has two in the backward pass: one for the gradient of the weight, one for that of
# its input. So "backward is twice forward" is nearly right.
#
# Two kinds are left out: the gradient of `x` if nobody needs it, and that of the zero initial state. The second is at
# step 0, where nothing is padding. So of what is left, packing saves a little more than of the forward pass.

# %%
for needed in (False, True):
    x.requires_grad_(needed)
    count = pv.flops(lstm, lengths, input_grad=needed)
    assert counted(lambda: lstm(x)[0].sum().backward()) == count.training.padded
    print(f"gradient of x: {needed!s:5}   backward = {count.backward.padded / count.padded:.2f} times forward")

# %% [markdown]
# Adding biases, the sigmoids and tanhs, and updating the state are *element-wise*: a counter of products does not see
# them. The ledger keeps them apart. It counts one for each addition, subtraction, multiplication, sigmoid or tanh.

# %%
for name, each in ledger.spec.elementwise_per_cell.items():
    print(f"{name:11}{each:4} per cell, {each // 7} per hidden unit")
assert ledger.elementwise.packed == 32 * 21 * 7

# %% [markdown]
# ## FLOPs are not milliseconds
#
# Now two batches of 256 sequences, padded to 256 steps. Both are half padding. One has only 2 distinct lengths, the
# other 256.

# %%
ask("few and many distinct lengths")

# %%
gru = torch.nn.GRU(32, 32)
counts = {n: pv.flops(gru, pv.lengths.even_steps(n, 256), input_grad=True).training for n in (2, 4, 16, 256)}
for n, count in counts.items():
    print(f"{n:3} distinct lengths: {count.packed / count.padded:.3f} of the padded FLOPs")
assert len({count.packed for count in counts.values()}) == 1

# %% [markdown]
# The same saving, four times. Is it the same time? First your own machine, with smaller batches, in a few seconds.
# A training step is timed padded, and packed for each batch: pack, GRU, pad, and back.

# %%
ask("half the flops")

# %% tags=["live-timing", "nbval-ignore-output"]
from packviz.studies import savings

live = savings.run(rounds=7)
print(live)
live.chart(*live.points)

# %% [markdown]
# How to read it: everything is called in turn, round after round, so that a busy moment hits all alike. You see the
# median; the whiskers are quartiles. Where the text says *the spread is larger than the effect*, the two are not told
# apart.
#
# Now a larger run, recorded once. Its machine is named in the text, and its file is `recorded/savings_cpu.json`.

# %%
recorded = savings.recorded()
one_gru, one_lstm = recorded.points
print(recorded.verdict(one_gru))
assert recorded.ratio(one_gru, savings.name(2), "padded").value > 1
recorded.chart(one_gru)

# %% [markdown]
# On that machine half the FLOPs took *more* time, and the same FLOPs took different times.
# Below, the same for an LSTM, whose padded form has the fused kernel.

# %%
print(recorded.verdict(one_lstm))
for point in recorded.points:
    assert recorded.ratio(point, savings.name(256), savings.name(2)).value > 1
recorded.chart(one_lstm)

# %% [markdown]
# Why? A count of FLOPs leaves out how *fast* each FLOP runs, and everything that is none: copies, allocations, kernel
# calls. Packed, a step is a product with few rows, and the backward pass copies a lot.
#
# Notebook 06 times this at many sizes, and 07 finds the cause.

# %% [markdown]
# ## What people get wrong
#
# - **"40 % fewer FLOPs, so 40 % faster."** You have just seen the opposite.
# - **"The counter says 0, so it is free."** A fused kernel hides its products from the counter.
# - **"54 multiplications."** For one output column; a count means nothing without its convention.
# - **"Backward is twice forward."** Nearly. Look at what needs a gradient.

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
