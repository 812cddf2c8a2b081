# %% [markdown]
# # Why training is slow
#
# **Training on a packed batch can take many times as long as on a padded one. What takes so long?**
#
# Half of your batch is padding, so you pack it. On your CPU, the forward pass takes about as long as before; fine.
# Then comes `loss.backward()`, and you wait. You wonder whether the machine has crashed. It has not. At 512 steps in
# notebook 08, a packed step did half the work of a padded one, and took over thirty times as long. <!-- recorded -->
# Where does all that time go?
#
# After this page, you can say where the time of a packed step goes on a CPU, and get most of it back. (For a GPU, see
# the fold at the end.)
#
# Time: 20 minutes, with the exercise.
#
# <details><summary>Where we are in the ten lines: <b>loss.backward()</b></summary>
#
# ```text
#   sequences = [torch.tensor([3, 1, 4]), torch.tensor([1, 5, 9, 2, 6]), torch.tensor([5, 3]), torch.tensor([5, 8, 9, 7])]
#   lengths = torch.tensor([len(s) for s in sequences])                        # (4,)       3, 5, 2, 4: on the CPU
#   x = pad_sequence(sequences, batch_first=True)                              # (4, 5)     padded with 0
#   embedded = embedding(x)                                                    # (4, 5, 6)
#   packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)   # data: (14, 6)
#   packed_output, (h_n, c_n) = lstm(packed)                                   # data: (14, 8); h_n: (1, 4, 8)
#   output, _ = pad_packed_sequence(packed_output, batch_first=True)           # (4, 5, 8)
#   scores = linear(output)                                                    # (4, 5, 3)
#   mask = torch.arange(5) < lengths[:, None]                                  # (4, 5)     True at the 14 real cells
# → loss = cross_entropy(scores[mask], tags[mask])                             # ()         then loss.backward()
# ```
#
# </details>
#
# ## Which part is slow?
#
# The model from the forum (notebook 08) packs 512 sequences, runs an LSTM on them, and pads the output. In setup **A**,
# all sequences have T steps. In setup **B**, the lengths count down from T to 1, again and again. Only B is slow. So
# the culprit must care about lengths, and three parts do: pack, the packed LSTM, and pad.

# %%
import torch

from packviz import lengths
from packviz.count import profile
from packviz.lessons import ask, checks
from packviz.panels import BackwardPanel
from packviz.studies import forum, parts

ask("the slow part")

# %% [markdown]
# How do you time a part whose backward pass is scattered over hundreds of operators? You replace it with something
# faster that gives the same results, and see what you save. We replaced pad, then pack, too, and at last the LSTM. Now
# the step is that of `pv.run`, the subject of notebook 10.

# %%
parts.chart(parts.STUDY.recordings())

# %% [markdown]
# At 256 steps, eight seconds become less than a fifth of a second. <!-- recorded --> Most of the eight seconds went to
# the LSTM, which at least computes something. But pad? It only copies numbers from one place to another, and at 128
# steps, it takes a third of the step. <!-- recorded -->
#
# Clocks are noisy: in this chart, at 64 and 256 steps, the noise is as large as pad's share. <!-- recorded --> So for a
# while, we **count** the bytes that autograd writes in the backward pass. They are the same in every round. We begin
# with pad. It computes nothing, so whatever it does wrong should be easy to see.

# %% tags=["claims"]
recorded_parts = parts.STUDY.load()
sums = []
for point in recorded_parts.points:
    shares = parts.shares(recorded_parts, point)
    assert shares["pack"] < 0.15
    assert 0.165 < shares["pad"] < 0.365
    assert shares["packed LSTM"] > shares["pad"]
    sums.append(shares["packed LSTM"] + shares["pad"])
assert f"{max(parts.shares(recorded_parts, point)['pad'] for point in recorded_parts.points):.0%}" == "36%"
assert sums[0] < sums[-1]
assert sums[-1] > 0.8  # at the longest
replaced = [recorded_parts.ratio(point, "pad replaced", parts.TORCH) for point in recorded_parts.points]
assert [point.steps for point in recorded_parts.points] == [64, 128, 256]
milliseconds = [round(1000 * recorded_parts.timing(point).median(parts.TORCH)) for point in recorded_parts.points]
assert milliseconds[1:] == [998, 7930]
assert [ratio.is_clear for ratio in replaced] == [False, True, False]

# %% [markdown]
# ## How can a copy be slow?
#
# As long as no sequence ends, pad copies the time steps together, as one *slice*. Where a sequence ends, the next slice
# begins. So there is a slice for each distinct length: one in A, and T in B.
#
# In the forward pass, that is cheap. Now go backwards, in a batch of six sequences with three different lengths: 48
# cells when padded, 26 of them real. Each row below is one copy, with its slice in colour.

# %%
panel = BackwardPanel(3)
panel

# %% tags=["claims"]
for distinct in range(1, 7):
    panel.distinct.value = distinct
    pad = profile.count(panel.shown.layout, features=1).pad
    assert panel.shown.total == pad.backward.bytes // 4
    assert panel.shown.n_written_by_index == panel.shown.layout.n_real
panel.distinct.value = 3
if profile.count([5, 4], features=1).pad.formula is None:
    assert [o.bytes for o in pad.backward.operators if o.name == "copy_"][::2] == [48 * 4] * 6
    assert panel.shown.written[1] == 48 + 26 + 26 + 3 * 12 == 136
    assert panel.shown.written[2] == 48 + 26 + 26 + 6
    panel.distinct.value = 6
    assert (panel.shown.total, panel.shown.layout.n_real) == (654, 27)
    panel.distinct.value = 3
    assert profile.count(lengths.equal(512, 32)).pad.nodes == profile.count(lengths.equal(512, 64)).pad.nodes == 4

# %% [markdown]
# 26 gradients to hand back, and 340 cells written to do it! Take the second row. Its slice, in colour, has 12 cells: 3
# steps of 4 sequences. It costs 136. That is because autograd hands back a gradient as large as the slice's *input*.
# And the input of a slice is not the slice. It is the whole tensor. So for 12 cells, autograd copies the whole padded
# gradient, and fills a whole packed tensor with zeros, only to add it to that of the first row.
#
# <details><summary>The 136 cells of the second slice, added up</summary>
#
# | what autograd writes for the second slice | cells |
# |---|---|
# | zeros, for the *whole* packed tensor | 26 |
# | the sum with the gradient from the first row, *whole* again | 26 |
# | a copy of the gradient of the *whole* padded tensor | 48 |
# | the slice itself, three times | 36 |
#
# </details>
#
# Who would write such a thing? Nobody did. In torch 2.13, `pad_packed_sequence` has no derivative formula of its own,
# so autograd derives one from the copies.
#
# Move the slider to 6, and all six lengths differ. 340 written cells become 654, for 27 gradients. And six lengths are
# few. Setup B has up to 512.
#
# So much for pad. But the LSTM took even more of the time, and it does not pad anything.
#
# ## What does the packed LSTM write?
#
# On a CPU, torch usually runs a layer of a *padded* LSTM in **oneDNN's fused kernel**, all time steps in one call. A
# *packed* RNN usually goes step by step. First, torch multiplies all real cells by the input weights at once. Then, at
# each step, it takes that step's rows out of the result with `narrow`. That is a slice. You can guess the rest: for
# each step, a tensor of zeros with a row for *every* real cell. This is the backward pass for 64 sequences of 64, 63,
# …, 1 steps:

# %% tags=["claims"]
small = profile.count([5, 4, 2, 2], features=8)
recorded = small.pad.formula is None  # if not, torch has changed since this page was written
if recorded:
    whole = [o for o in small.pad.backward.operators if (o.name, o.bytes) == ("copy_", small.pad.gradient)]
    assert len(whole) == 3
    for steps, distinct in [(8, 1), (8, 4), (16, 4), (16, 8)]:
        count = profile.count(lengths.spread(distinct, 32, steps))
        assert (count.pad.nodes, count.pack.nodes) == (3 * distinct + 1, 2)

# %%
lstm = torch.nn.LSTM(16, 32)
profile.count_rnn(lstm, lengths.triangle(64, 64)).backward

# %% tags=["claims"]
rnn = profile.count_rnn(lstm, lengths.triangle(64, 64)).backward
assert sum(o.bytes for o in rnn.by_name() if o.name in ("slice_backward", "add")) > 0.8 * rnn.bytes

# %% [markdown]
# Tensors of zeros (`slice_backward`) and additions (`add`), as in pad, write 96 % of all bytes. The matrix products
# (`mm`), the actual work, write 1 %. But bytes are not time: a product computes much, and writes little.
#
# Two culprits, then, with the same habit: a whole tensor for one slice. Pad writes one for each distinct length, and
# the LSTM one for each time step.
#
# ## Would buckets help?
#
# A *bucket* is a batch of sequences of similar lengths. It usually has fewer distinct lengths, and that makes pad
# cheaper. It might help the LSTM, too, because for *equal* lengths, torch 2.13 runs even our packed LSTM in the fused
# kernel. How equal is equal enough? Take 64 sequences of 65 steps, and shorten *one* of them by *one* step.

# %%
ask("one step shorter")

# %%
for name, batch in {"all 64 have 65 steps": [65] * 64, "one has 64": [65] * 63 + [64]}.items():
    print(f"{name:21} {profile.size(profile.count_rnn(lstm, batch).backward.bytes):>7}")

# %% tags=["claims"]
import packviz as pv

written = {}
for d in (2, 4, 64):
    layout = pv.Layout(lengths.spread(d, 64, 65), max_len=65)
    assert layout.n_real == 2112
    written[d] = profile.count(layout).pad.backward.bytes, profile.count_rnn(lstm, layout).backward.bytes
    if recorded:
        pad = profile.count(layout).pad
        assert (pad.nodes, pad.backward.kernels) == (3 * d + 1, 7 * d - 3)
assert max(rnn for _, rnn in written.values()) < 1.02 * min(rnn for _, rnn in written.values())
assert not recorded or written[64][0] > 20 * written[2][0]
equal, nearly = (profile.count_rnn(lstm, batch).backward.bytes for batch in ([65] * 64, [65] * 63 + [64]))
assert 900 * equal < nearly < 1000 * equal
assert (profile.size(equal), profile.size(nearly)) == ("308 kB", "287 MB")

# %% [markdown]
# One missing step in 4,160, and the backward pass writes 287 MB instead of 308 kB: over 900 times as much. (That does
# not make it 900 times slower, and 308 kB are too few, because our counter cannot look inside the fused kernel. But the
# 287 MB are real.) There is nothing between the two. Either all lengths are equal, or the LSTM goes step by step. That
# is why bucketing cannot rescue it: a bucket would have to be perfectly even.
#
# Now we know what each culprit writes. If that is the whole story, we can predict a time.
#
# ## What if the sequences are twice as long?
#
# In setup B, when T doubles, there are twice as many tensors to write, and each has about twice as many cells. So if
# time follows bytes, a step takes about four times as long. It only remains to see the clock agree, in the recording of
# notebook 08:

# %% jupyter={"source_hidden": true}
recording = forum.STUDY.load()
took = {T: recording.timing(forum.point("B", T)).median("packed") for T in (64, 128, 256, 512)}
for T in (64, 128, 256):
    print(f"a packed step takes {took[2 * T] / took[T]:.1f} times as long at {2 * T} steps as at {T}")
print(recording.caption)

# %% tags=["claims"]
import numpy as np


def exponent(values):  # of the power of T that fits best
    return np.polyfit(np.log(T), np.log(values), 1)[0]


T = [16, 32, 64, 128]
counts = [profile.count(lengths.triangle(128, t)) for t in T]
assert exponent([profile.count_rnn(lstm, lengths.triangle(128, t)).backward.bytes for t in T]) > 1.7
assert 0.9 < exponent([count.pack.backward.bytes for count in counts]) < 1.1
assert not recorded or exponent([count.pad.backward.bytes for count in counts]) > 1.9
assert [f"{took[2 * T] / took[T]:.1f}" for T in (64, 128, 256)] == ["4.4", "7.8", "3.2"]

# %% [markdown]
# 4.4 is near enough, and 3.2 is not far off. But 7.8? <!-- recorded --> Notebook 08 showed the place: from 224 to 256
# steps, the time nearly triples. <!-- recorded --> That is not a curve. It is a cliff, and our two causes grow too
# smoothly for that. Something else sets in there, and our byte counts do not show it.

# %% tags=["claims"]
B = profile.count(lengths.triangle(512, 32))
called = {operator.name for some in (B.pack, B.pad) for operator in some.backward.operators}
assert not {"sort", "_to_copy", "_local_scalar_dense"} & called
for make in (lengths.equal, lengths.triangle):
    in_order, sorting = (profile.count(make(512, 32), enforce_sorted=order).pad for order in (True, False))
    assert sorting.backward.bytes - in_order.backward.bytes == 2 * in_order.gradient
    assert profile.count(make(512, 32)).pack.backward.kernels == 33  # zeros, and a copy per time step
assert profile.count(lengths.triangle(512, 32), device="meta").pad.backward == B.pad.backward
assert 7 * 512 - 3 == 3581

# %% [markdown]
# ## Who pays for the memory?
#
# Every tensor of zeros needs a place in memory, if only until it has been added. On Linux, torch gets memory from
# glibc, the C library, and glibc gets it from the system, in *pages*, usually of 4 KiB. When a program first touches a
# page, a *page fault* interrupts it: the system has to find a free page and fill it with zeros. Nobody notices one
# fault. How many are there in a packed step? (The times are from notebook 08's recording, and not from that of the
# first chart.)

# %% jupyter={"source_hidden": true}
print("setup B    packed step   page faults   a tensor of zeros")
for T_longest in (224, 256, 512):
    point = forum.point("B", T_longest)
    timing = recording.timing(point)
    size = point.layout.n_real * 4 * 32 * 4 / 2**20  # 4 bytes per number
    print(f"T = {T_longest} {1000 * timing.median('packed'):11,.0f} ms {timing.faults['packed']:13,} {size:15.1f} MiB")

# %% tags=["claims"]
size = {t: 4 * 4 * 32 * forum.point("B", t).layout.n_real for t in (224, 256, 512)}
assert size[224] < 2**25 < size[256] < 1.01 * 2**25
faults = {t: recording.timing(forum.point("B", t)).faults["packed"] for t in (192, *size)}
assert faults[192] > faults[224]
assert faults[256] > 10 * faults[224]
assert 500 < faults[512] * 4096 / size[512] < 512
assert round(faults[512] * 4096 / 1e9) == 34
assert size[256] / 4096 == 8224
assert 5e5 < faults[256] - 256 * 8224 < 6e5
took = {t: recording.timing(forum.point("B", t)).median("packed") for t in size}
assert 2.5 < took[256] / took[224] < 3.5
assert round(took[256] - took[224], 1) == 6.5
other = recorded_parts.timing(recorded_parts.points[-1])
assert (f"{other.faults[parts.TORCH] / 1e6:.2f}", f"{took[512] / other.median(parts.TORCH):.1f}") == ("2.16", "4.0")

# %% [markdown]
# At 512 steps, over **eight million** page faults, in *one* training step. At 4 KiB each, that is 34 GB, cleaned and
# handed out page by page. <!-- recorded -->
#
# Look at the last column, the size of the tensor that the packed LSTM fills with zeros at each time step. When a tensor
# is freed, glibc gives large blocks back to the system, and keeps smaller ones, as long as not too much memory is free.
# What is large? At first, over 128 KiB. Then glibc *learns*: when it frees a larger block, it raises its limit to that
# size, but never above 32 MiB. At 224 steps, our tensor takes 30.6 MiB. At 256, it takes 32.1: too much, by a hair.
#
# So 32.1 MiB are given back at nearly every time step, and asked for again. That is 8,224 fresh pages, 256 times in one
# training step: 2.1 million page faults, most of the 2.65 million in the table. There is the cliff.
#
# <details><summary>And the other faults? And why 9.9 seconds, where the first chart has 7.9? And two more
# questions</summary>
#
# At 224 steps, glibc keeps the tensors. It still returns some memory now and then, when too much is free: hence the
# 219,105 faults.
#
# In this recording, the training step at T = 256 has half a million faults more than our sum, and we have not found
# out why. In the recording of the chart at the top, it has 2.16 million, and takes 7.9 seconds instead of 9.9. <!--
# recorded -->
#
# *Beyond the cliff, we expect a 4 again. Why 3.2?* The faults, too, are only 3.1 times as many, because at 256 steps
# there are half a million more than we can explain. <!-- recorded -->
#
# *Why does the tensor grow so little from 224 steps to 256?* It has a row for every real cell, with four gates of 32
# numbers. Exactly two countdowns from 256 fit into 512 sequences. From 224, two fit, and the long end of a third.
#
# </details>
#
# ## Guilty, or only nearby?
#
# Time and faults grow together, which proves nothing yet. But faults can be taken away. Set before Python starts, two
# environment variables tell glibc to keep nearly all of its memory:
#
# ```sh
# MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2147483647 python train.py
# ```
#
# Here is a step again, for a small batch and a large one, without the variables and with them:

# %%
print(forum.allocators([name for name in forum.ALLOCATORS if "thp" not in name]))

# %% tags=["claims"]
small, large = forum.STUDY.others["allocator"]
tuned, huge = (forum.STUDY.load(f"allocator_{name}_cpu.json") for name in ("tuned", "thp"))
default = forum.STUDY.load("allocator_default_cpu.json")
assert (default.timing(small).faults["packed"], tuned.timing(small).faults["packed"]) == (17445, 2)
assert 0.5 < tuned.timing(small).median("packed") / default.timing(small).median("packed") < 0.6
assert tuned.timing(large).faults["packed"] == 3
assert 0.25 < tuned.timing(large).median("packed") / recording.timing(large).median("packed") < 0.4
assert 10 < tuned.ratio(large, "packed", "padded").value < 15
saved = took[512] - tuned.timing(large).median("packed")
assert (f"{saved:.1f}", f"{1e6 * saved / faults[512]:.1f}") == ("21.9", "2.7")
assert f"{(faults[256] - faults[224]) / 1e6:.2f}" == "2.43"
assert 6.4 < saved / faults[512] * (faults[256] - faults[224]) < 6.6
assert 0.4 < huge.timing(large).median("packed") / recording.timing(large).median("packed") < 0.6
times = [[timed.timing(large).median(method) for timed in (recording, huge)] for method in ("packed", "padded")]
assert [[f"{seconds:.2g}" for seconds in pair] for pair in times] == [["32", "15"], ["0.83", "1.8"]]

# %% tags=["claims"]
import os
import platform
import subprocess
import sys

program = """
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from packviz import lengths
from packviz.measure.machine import page_faults

torch.set_num_threads(1)
lstm, x = torch.nn.LSTM(16, 32), torch.randn(128, 128, 16)
for _ in range(2):  # the second one counts
    faults = page_faults()
    packed = pack_padded_sequence(x, lengths.triangle(128, 128), enforce_sorted=False)
    pad_packed_sequence(lstm(packed)[0])[0].sum().backward()
print(page_faults() - faults)
"""
if platform.libc_ver()[0] == "glibc":
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    trim = {"MALLOC_TRIM_THRESHOLD_": "2147483647"}
    both, alone = (
        int(subprocess.check_output([sys.executable, "-c", program], env=plain | variables, text=True))
        for variables in ({"MALLOC_MMAP_MAX_": "0", **trim}, trim)
    )
    assert alone > 20 * both

# %% [markdown]
# Even the small batch, far below the cliff, loses all but 2 of its 17,445 page faults, and almost half of its time. In
# the large one, over eight million become 3. Three! And two thirds of the time is gone, 21.9 seconds: 2.7 µs for each
# fault. <!-- recorded -->
#
# Does that explain the cliff? At 256 steps, there are 2.43 million more faults than at 224. At 2.7 µs each, they should
# cost some 6.5 seconds. And how high is the cliff? From 3.4 to 9.9 seconds: 6.5. <!-- recorded --> (So good a match is
# partly luck, because the slices grow, too.) Guilty, then. Here is the third cause, and the only one that you can
# remove without touching your code. The price is memory. glibc keeps whatever your step needed at its peak, unless more
# than 2 GiB of it is unused.
#
# <details><summary>Why two variables? And what of other allocators?</summary>
#
# Set **both**. The first keeps blocks from going straight back to the system, and the second keeps glibc from returning
# memory when much of it is free. The second alone is a trap: glibc stops learning, and *every* tensor over 128 KiB gets
# fresh pages, each time.
#
# torch has a switch of its own, `THP_MEM_ALLOC_ENABLE=1`, which takes no more memory. It asks for pages of 2 MB
# (*transparent huge pages*), if Linux allows them, so there are fewer to touch. It helps only if individual tensors are
# much larger than 2 MB. In our recording, it brings the large packed step down from 32 to 15 seconds, but the padded
# one up from 0.8 to 1.8. <!-- recorded --> Measure yours.
#
# glibc usually keeps tensors under about 128 KiB anyway, so very small batches gain nothing. macOS and Windows have
# other allocators, and other costs.
#
# </details>
#
# The first two causes remain. Without page faults, the large packed step still takes over ten times as long as the
# padded one. <!-- recorded --> To remove these two, the code has to change.
#
# ## What can you do?
#
# From the least effort to the most:
#
# - **Set the two variables** (on Linux), unless all of your tensors are small (under 128 KiB). Watch the memory.
# - **Leave out `pad_packed_sequence`.** Give `packed_output.data` to the linear layer, and pack the tags in the same
#   way (notebook 04). Then pad is gone.
# - **Do not pack at all** if your RNN has one direction, and your loss reads only outputs of real steps. There, a
#   padded RNN is right, too (notebook 03).
# - **Replace pack, RNN and pad** by `pv.run(rnn, x, lengths)`, which avoids the first two causes.
#
# In the first chart, this last way took less than a fifth of a second instead of eight seconds, and its results are
# those of packing. How can that be? [Notebook 10](10_making_packing_pay.ipynb) builds it, piece by piece.
#
# <details><summary>What it is not: two more suspects, each with an alibi</summary>
#
# - **Sorting.** With `enforce_sorted=False`, torch also restores your order. That costs the same in B as in A.
# - **Waiting for the lengths.** If they have to be copied to the CPU, that happens in the forward pass, in both setups.
#
# </details>
#
# <details><summary>And on a GPU?</summary>
#
# The user on the forum had a GPU, with torch 1.12. There, NVIDIA's cuDNN runs a packed RNN in one call, so the loop
# over time steps should be absent. What remains is pad, whose slices do not depend on the device: for d distinct
# lengths, its backward pass launches 7d − 3 kernels. So our answer for the LSTM is about CPUs only. The one for pad
# holds for both, but we have not timed it on a GPU. ([#149194](https://github.com/pytorch/pytorch/issues/149194) has
# other people's tables, for a CPU and a GPU. [#1788](https://github.com/pytorch/pytorch/issues/1788) named `narrow`
# years ago.)
#
# </details>
#
# ## Exercise
#
# Which of these batches makes pad write most, on the way back? Which one the LSTM? And where does the LSTM write least?
# Each batch has 64 sequences of at most 64 steps. (Don't count bytes. Count what they depend on.)

# %%
batches = {
    "a": [64] * 63 + [63],
    "b": [*range(64, 0, -1)],
    "c": [64] * 32 + [1] * 32,
    "d": [64] * 64,
}

# %% tags=["exercise"]
my_batches = {  # a letter for each, such as "a"
    "pad most": (
        # solution
        "b"
        # end solution
    ),
    "LSTM most": (
        # solution
        "a"
        # end solution
    ),
    "LSTM least": (
        # solution
        "d"
        # end solution
    ),
}
checks.most_written(batches, my_batches)

# %% [markdown]
# ## You can now
#
# - name the three causes: a whole tensor for each distinct length (pad), a whole tensor for each step (the packed RNN
#   on a CPU), and fresh pages for the tensors that glibc does not keep,
# - say why bucketing cannot rescue the LSTM,
# - remove the page faults with two variables, and say what that costs.
#
# Every slice paid for a whole tensor. What if one index did the work of all slices?
#
# Next: [10 Making packing pay](10_making_packing_pay.ipynb). Back: [08 The benchmark](08_benchmark.ipynb) · [00 Start
# here](00_start_here.ipynb)
