# %% [markdown]
# # Counting FLOPs
#
# **How much work does packing save, and does the clock agree?**
#
# "40 % of our batch is padding, so packing will make training 40 % faster." You have read this sentence, or written
# it. It sounds like arithmetic. But its two halves are not of the same kind. The first can be counted, to the last
# multiplication. The second has to be measured. Before we let anybody join them with a *so*, let us do both.
#
# After this page, you can count an RNN's work from sizes and lengths alone, and say what such a count is worth.
#
# Time: 20 minutes, with the exercise.
#
# <details><summary>Where we are in the ten lines: <b>lstm</b></summary>
#
# ```text
#   sequences = [torch.tensor([3, 1, 4]), torch.tensor([1, 5, 9, 2, 6]), torch.tensor([5, 3]), torch.tensor([5, 8, 9, 7])]
#   lengths = torch.tensor([len(s) for s in sequences])                        # (4,)       3, 5, 2, 4: on the CPU
#   x = pad_sequence(sequences, batch_first=True)                              # (4, 5)     padded with 0
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
# ## How much work is padding?
#
# We count *FLOPs*, floating-point operations: each multiplication or addition is one. Most of an RNN's work is in
# matrix products. Let us send six sequences of lengths 9, 8, 6, 4, 3 and 2 through `LSTM(3, 7)`, which has 3 inputs and
# a hidden state of 7 numbers. If the batch is padded, the matrix products of the forward pass take 30,240 FLOPs.

# %%
import torch
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.flop_counter import FlopCounterMode

import packviz as pv
from packviz.lessons import ask, checks, sentences

ask("packed flops of six sequences")

# %%
lengths = [9, 8, 6, 4, 3, 2]
lstm = torch.nn.LSTM(3, 7)
lstm_count = pv.flops(lstm, lengths)
lstm_count

# %% tags=["claims"]
assert (lstm_count.padded, lstm_count.packed, lstm_count.saved) == (30240, 17920, 12320)
assert lstm_count.packed / lstm_count.padded == 32 / 54  # real cells over all cells
assert 30240 / 54 == 560
assert lstm_count.elementwise.packed == 32 * 21 * 7
assert 0.79 < lstm_count.padded / (lstm_count.padded + lstm_count.elementwise.padded) < 0.8

# %% [markdown]
# In the forward pass, each cell costs the same. So the share of FLOPs saved is exactly the share of padding: 22 of 54.
#
# `pv.flops` has not run the LSTM, because lengths and sizes determine the count. Its name for matrix products is *GEMM*
# (general matrix multiplication). The solid part of a bar is the work of the packed batch, and the hatched part is what
# padding adds.
#
# The last bar counts *element-wise* operations, which work on single numbers: additions, multiplications, sigmoid and
# tanh. In this tiny LSTM, they are a fifth of the forward FLOPs. In a larger one, their share is much smaller.
#
# The matrix products of a single cell cost 560 FLOPs. Take that number apart, and you can count an RNN's work on
# paper.
#
# ## What does one cell cost?
#
# For each cell, an RNN multiplies the input by one matrix and the state by another. Multiplying k numbers by a (k, n)
# matrix takes 2 · k · n FLOPs, a multiplication and an addition for each entry of the matrix. `nn.RNN` needs one such
# pair of products. An LSTM needs four, for the new content of its cell state and for three *gates*, which decide what
# to forget, what to add and what to output. A GRU needs three.

# %%
for name, times in [("LSTM", 4), ("GRU", 3), ("RNN", 1)]:
    per_cell = times * (2 * 3 * 7 + 2 * 7 * 7)  # 3 inputs, and 7 numbers of the state
    count = pv.flops(getattr(torch.nn, name)(3, 7), lengths)
    print(f"{name:4}  by hand {54 * per_cell:6,} padded, {32 * per_cell:6,} packed", end="    ")
    print(f"pv.flops {count.padded:6,} padded, {count.packed:6,} packed")

# %% [markdown]
# A second direction doubles a layer's FLOPs. A second layer reads the output of the first. If there are two
# directions, that output has twice as many features. (`proj_size` adds a product that shortens an LSTM's hidden state.)
#
# For which lengths would packing save nothing, and for which almost everything? If you run this notebook yourself,
# you can type lengths into the panel. Then change `hidden_size` and the kind of RNN. Which of the savings change, and
# which stay the same?

# %%
from packviz.panels import CostPanel

CostPanel()

# %% tags=["claims"]
for name, times in [("LSTM", 4), ("GRU", 3), ("RNN", 1)]:
    per_cell, count = times * 140, pv.flops(getattr(torch.nn, name)(3, 7), lengths)
    assert (count.padded, count.packed) == (54 * per_cell, 32 * per_cell)
both = pv.flops(torch.nn.LSTM(3, 7, bidirectional=True), lengths)
deep = pv.flops(torch.nn.LSTM(3, 7, num_layers=2, bidirectional=True), lengths)
assert both.padded == 2 * lstm_count.padded
assert deep.padded == both.padded + 2 * pv.flops(torch.nn.LSTM(14, 7), lengths).padded == 187488
for rnn in (torch.nn.LSTM(3, 7), torch.nn.GRU(3, 7), torch.nn.GRU(3, 64)):
    count = pv.flops(rnn, lengths)
    assert count.saved / count.padded == 22 / 54

# %% tags=["claims"]
for rnn in (torch.nn.GRU(3, 7), torch.nn.RNN(3, 7)):  # the backward share depends on the sizes, not on the kind
    count = pv.flops(rnn, lengths)
    assert count.backward.saved * lstm_count.backward.padded == lstm_count.backward.saved * count.backward.padded
wide = pv.flops(torch.nn.LSTM(3, 64), lengths).backward
assert wide.saved * lstm_count.backward.padded != lstm_count.backward.saved * wide.padded
one_product = 2 * 7 * 28  # the gradient of one initial state
assert lstm_count.backward.padded == 54 * (2 * 560 - 2 * 3 * 28) - 6 * one_product
assert lstm_count.backward.packed == 32 * (2 * 560 - 2 * 3 * 28) - 6 * one_product
assert lstm_count.backward.saved / lstm_count.backward.padded > 22 / 54

# %% [markdown]
# Change the RNN, and the share saved in the forward pass does not move at all: it is the share of padding. The
# backward share moves a little with the sizes, for a reason that comes with the backward pass.
#
# Change the lengths, and the savings move. With equal lengths, packing saves nothing. With one long sequence among
# many short ones, it saves almost everything. The 512 sentences of notebook 01 come closer to the second case. Most
# of them end early, so the later steps of the packed batch cost little. In the padded one, all steps cost the same:

# %%
pv.flops(torch.nn.GRU(64, 128), [len(sentence) for sentence in sentences()])

# %% [markdown]
# Three quarters of the work would be for nothing. But all this is our own arithmetic. Is it right?
#
# ## What does PyTorch's own counter say?
#
# PyTorch comes with a counter. `FlopCounterMode` adds up the FLOPs of the matrix products that it sees while a model
# runs. Our count for the padded LSTM was 30,240.

# %%
ask("what the counter says")

# %%
x = torch.randn(9, 6, 3)
with FlopCounterMode(display=False) as counter:
    lstm(x)
print("counted:", counter.get_total_flops())

# %% tags=["claims"]
assert counter.get_total_flops() == (0 if torch.backends.mkldnn.is_available() else 30240)

# %% [markdown]
# Zero. The LSTM has run, and the counter has seen nothing. Remember this zero when you read a table of FLOPs from a
# counter.
#
# Where did the work go? The counter has formulas for torch's matrix products. But on most CPUs, torch passes a padded
# LSTM such as ours to oneDNN, a library that computes each layer in a *fused kernel*. (A *kernel* is a routine that
# torch runs in one call.) The counter has no formula for this kernel, nor for the RNNs of cuDNN, NVIDIA's library for
# GPUs. With oneDNN off, the counter sees the products:


# %%
def counted(run):
    # allow_tf32=None leaves that setting alone
    with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


packed = pack_padded_sequence(x, lengths)
print(f"padded: {counted(lambda: lstm(x)):,}   packed: {counted(lambda: lstm(packed)):,}")

# %% tags=["claims"]
assert counted(lambda: lstm(x)) == lstm_count.padded == 30240
assert counted(lambda: lstm(packed)) == lstm_count.packed == 17920

# %% [markdown]
# Both numbers agree with `pv.flops` to the last FLOP. So we can trust `pv.flops`, at least for the forward pass. But in
# training, nobody waits for the forward pass alone.
#
# ## What does the way back cost?
#
# For each product of the forward pass, the backward pass computes up to two: one for the gradient of the weight and one
# for the gradient of the input or state. So it takes at most twice the FLOPs of the forward pass. Usually, it takes
# fewer. An initial state of zeros needs no gradient, so a product is left out for each sequence. (Leaving out six
# products matters more among 32 cells than among 54, so packing saves a little more on the way back.) `x` does not need
# a gradient either, if nothing before the RNN is trained.

# %%
for needed in (False, True):
    x.requires_grad_(needed)
    count = pv.flops(lstm, lengths, input_grad=needed)
    torch_counts = counted(lambda: lstm(x)[0].sum().backward())
    print(f"gradient of x {'' if needed else 'not '}needed: backward is {count.backward.padded / count.padded:.2f} × forward.")
    print(f"   forward + backward: {count.training.padded:,} by pv.flops, {torch_counts:,} by PyTorch")

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
# So we can count an RNN's whole training step, for any lengths. With 40 % padding, packing does save about 40 % of
# the FLOPs. Now for the second half of our sentence: is training 40 % faster, too?
#
# ## Does the clock agree?
#
# A packed batch shrinks wherever a sequence ends. How often it does so makes no difference to the count. Perhaps it
# makes one to the clock. So we take four batches of 256 sequences, padded to 256 steps, with 2, 4, 16 and 256 distinct
# lengths.

# %%
gru = torch.nn.GRU(32, 32)
for n in (2, 4, 16, 256):
    spread = pv.lengths.even_steps(n, 256)  # 256 lengths up to 256, n of them distinct
    count = pv.flops(gru, spread, input_grad=True).training
    print(f"{n:3} distinct lengths: {count.packed / count.padded:.3f} of the padded FLOPs")

# %% [markdown]
# Each batch has as many real cells as the others, so packing saves the same in each: half the FLOPs. That is our
# experiment: four batches, and exactly the same FLOPs. On each, we timed a packed training step (pack, RNN, pad and
# the backward pass) and a padded one.

# %%
ask("half the flops")

# %% [markdown]
# **How to read our timings.** The methods take turns, round after round, so that a busy moment affects all of them. We
# compute a ratio in each round, and show the median. Half of the ratios lie between the *quartiles*. A method is
# *clearly* faster if a 95 % confidence interval for the median ratio, computed from the rounds, excludes 1. Otherwise,
# our tables show *no clear difference*, or *not clear* for short. A caption's last line names the conditions, such as
# the machine, the number of threads, and the load from other programs.

# %%
from packviz.studies import savings

recorded = savings.STUDY.load()
savings.picture(recorded)

# %% tags=["claims"]
counts = [pv.flops(gru, pv.lengths.even_steps(n, 256), input_grad=True).training.packed for n in (2, 4, 16, 256)]
assert len(set(counts)) == 1
groups = savings.picture(recorded).groups
assert all(0.45 < flops < 0.55 for rows in groups.values() for flops, _ in rows.values())
for point in recorded.points:
    few, many = savings.name(2), savings.name(256)
    assert recorded.ratio(point, few, "padded").value > 1.5
    assert recorded.ratio(point, many, few).is_clear
    assert recorded.ratio(point, many, few).value > 1.2

# %% [markdown]
# Half the FLOPs, and three to nine times the time. <!-- recorded --> Not twice as fast. Not even as fast as without
# packing. And look once more: the four rows of each RNN agree to the last FLOP, and yet the last one takes much longer
# than the first. <!-- recorded -->
#
# The count is not wrong. It leaves out how *fast* FLOPs run, and everything that is not a FLOP: copies, memory,
# kernel calls. The products of a packed batch have fewer rows, so they usually run less efficiently. And on a CPU,
# the backward pass of a packed batch copies a lot. [Notebook 08](08_benchmark.ipynb) measures the times at many
# sizes, and 09 finds the causes.
#
# But these were two RNNs at one size. Perhaps we were unlucky.
#
# ## Is packing ever faster?
#
# We timed torch's packed and padded runs on 44 batches on a CPU. As in practice, a padded batch is as wide as its
# longest sequence. The chart shows the batches whose *forward* pass was clearly faster when packed, and their
# training steps for comparison. (64 × 128 means 64 sequences of up to 128 steps.)

# %%
from packviz.studies import methods

methods.packed_faster(methods.STUDY.load())

# %% [markdown]
# Eight of the 44 batches, and all eight have a lot of padding. So it does happen: on one, packing takes little more
# than half the time. <!-- recorded --> Now look at the other row of each batch. In training, no clear gain is left. Not
# on these eight, and not on any of the 44. <!-- recorded -->
#
# So with torch's own functions on this CPU, training takes back what the forward pass gains. [Notebook
# 09](09_why_training_is_slow.ipynb) finds out why, and [notebook 11](11_should_you_pack.ipynb) lets you test your own
# lengths and model.

# %% tags=["claims"]
results = methods.STUDY.load()
assert len(results.points) == 44
faster = methods.packed_faster(results).groups
assert len(faster) == 8
assert 0.5 < min(rows["forward"][1].value for rows in faster.values()) < 0.6
assert all(p.layout.n_padding > 0.3 * p.layout.n_cells for p in results.points if str(p) in faster)
assert all(rows["training"][1].value > 1 > rows["forward"][1].value for rows in faster.values())
clear = [results.ratio(point, "torch packed", "torch padded") for point in results.points]
assert not any(ratio.is_clear and ratio.value < 1 for ratio in clear)

# %% [markdown]
# ## Exercise
#
# Count the FLOPs of the matrix products in the forward pass of a packed GRU with one layer and one direction.
# `my_gru_flops(3, 7, [9, 8, 6, 4, 3, 2])` should return 13440.


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
# - count the FLOPs of an RNN: the cost of a cell times the number of cells that are computed,
# - explain a zero from `FlopCounterMode`,
# - take apart a sentence in which a *so* leads from FLOPs to time.
#
# The time, then, has to be measured. How do you measure it fairly?
#
# Next: [08 The benchmark](08_benchmark.ipynb). Back: [06 A model of your own](06_a_model_of_your_own.ipynb) · [00
# Start here](00_start_here.ipynb)
