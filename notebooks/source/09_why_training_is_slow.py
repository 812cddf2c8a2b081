# %% [markdown]
# # Why training is slow
#
# **Training on a packed batch can take many times as long as on a padded one. What takes so long?**
#
# Half of your batch is padding, so you pack it. The forward pass takes about as long as before; fine. Then comes
# `loss.backward()`, and you wait. You wonder whether the machine has crashed. It has not. At 512 steps in notebook 08,
# a packed step took over thirty times as long as a padded one. <!-- recorded --> Half the work! A user asked PyTorch's
# forum whether something like this is normal. On a CPU, it is. But where does all that time go?
#
# After this page, you can say where the time of a packed step goes, and get most of it back.
#
# Time: 20 minutes.
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
# The model is the forum's, from notebook 08: it packs 512 sequences, runs an LSTM and pads its output. In setup **B**,
# the lengths count down from T to 1, again and again. That leaves three suspects: pack, the packed LSTM, and pad.

# %%
import os
import subprocess
import sys

import torch

import packviz as pv
from packviz import lengths
from packviz.count import profile
from packviz.lessons import ask, checks
from packviz.panels import BackwardPanel
from packviz.studies import forum, parts

ask("the slow part")

# %% [markdown]
# How do you time a part that cannot run alone? We replaced the three, one after another, with faster ones that give the
# same results. What a replacement saves is the part's time. (The replacement takes time, too. So the true time is
# slightly longer.)

# %%
parts.chart(parts.STUDY.recordings())

# %% tags=["claims"]
recorded_parts = parts.STUDY.load()
sums = []
for point in recorded_parts.points:
    shares = parts.shares(recorded_parts, point)
    assert shares["pack"] < 0.15
    assert min(shares["packed LSTM"], shares["pad"]) > 0.1
    sums.append(shares["packed LSTM"] + shares["pad"])
assert sums[0] < sums[-1]
assert sums[-1] > 0.8  # at the longest

# %% [markdown]
# Two of the three. Replace them, and the step at 256 steps is over 40 times as fast: eight seconds become less than a
# fifth of a second. <!-- recorded --> Together, they are nearly the whole step.
#
# Before we go on, read the three batches from top to bottom. From 64 to 128 steps, the time of a packed step grows
# about fourfold. From 128 to 256, it grows eightfold. <!-- recorded --> Keep that eight in mind. We shall need it.
#
# One of the two culprits is a surprise. The LSTM at least computes something. But pad? It copies numbers from one place
# to another. How can a copy take so long?
#
# Times depend on the machine, so for a while we **count**. In the forward pass, autograd records *nodes*. In the
# backward pass, each node calls *operators*, torch's elementary functions. These run *kernels*, routines that torch
# runs in one call. We count nodes, kernels, and the bytes that kernels write.
#
# ## How can a copy be slow?

# %%
ask("nodes after pad")

# %% [markdown]
# To pad, torch fills a tensor with the padding value, and then copies one slice into it for each distinct length. That
# is the forward pass, and it is cheap. Now go backwards. Each row below is one of these copies, and its slice is
# coloured. The hatched cells get written as well.

# %%
panel = BackwardPanel(3)
panel

# %% tags=["claims"]
for distinct in range(1, 7):
    panel.distinct.value = distinct
    pad = profile.count(panel.shown.layout, features=1).pad
    assert panel.shown.total == pad.backward.bytes // 4
    assert panel.shown.indexed == panel.shown.layout.n_real
panel.distinct.value = 3

# %% [markdown]
# 26 gradients to hand back, and 340 cells written to do it. Who would write such a thing? Nobody did.
# `pad_packed_sequence` has no derivative formula of its own, so autograd derives one from the copies. (If your torch
# has one, it is newer than this page. Then trust the counts.) For *one* slice, the node `CopySlices` copies **all** of
# the padded gradient. Then `SliceBackward` fills a **whole** packed tensor with zeros, to hold that slice, and adds it
# to the others.
#
# Now move the slider to 6. There are six sequences as before, and about as many gradients. Look at the bars. With a
# single index, all gradients would be read at once.
#
# Six lengths are few. What happens with more of them, and with longer sequences?

# %%
print(" T   distinct lengths   nodes   written")
for T, distinct in [(8, 1), (8, 2), (8, 4), (8, 8), (16, 8), (32, 8)]:
    pad = profile.count(lengths.spread(distinct, 32, T), features=8).pad
    print(f"{T:2} {distinct:18} {pad.nodes:7} {profile.size(pad.backward.bytes):>9}")

# %% tags=["claims"]
small = profile.count([5, 4, 2, 2], features=8)
recorded = small.pad.formula is None  # if not, torch has changed since this page was written
if recorded:
    whole = [o for o in small.pad.backward.operators if (o.name, o.bytes) == ("copy_", small.pad.gradient)]
    assert len(whole) == 3
    for steps, distinct in [(8, 1), (8, 4), (16, 4), (16, 8)]:
        count = profile.count(lengths.spread(distinct, 32, steps))
        assert (count.pad.nodes, count.pack.nodes) == (3 * distinct + 1, 2)

# %% [markdown]
# The distinct lengths say how many copies there are, and T how large each one is. So much for pad.
#
# But the LSTM took even more of the time, and it does not pad anything. What is its excuse?
#
# ## What does the packed LSTM write?
#
# On a CPU, torch usually runs a layer of a *padded* LSTM in **oneDNN's fused kernel**, which computes all time steps in
# one call. A *packed* RNN goes through the steps one by one. At each step, it takes its rows out of a large tensor with
# `narrow`, which returns a slice without copying it. A slice. You can guess the rest. This is the backward pass for 64
# sequences of 64, 63, …, 1 steps:

# %%
lstm = torch.nn.LSTM(16, 32)
profile.count_rnn(lstm, lengths.triangle(64, 64)).backward

# %% tags=["claims"]
rnn = profile.count_rnn(lstm, lengths.triangle(64, 64)).backward
assert sum(o.bytes for o in rnn.by_name() if o.name in ("slice_backward", "add")) > 0.8 * rnn.bytes

# %% [markdown]
# Zero-fills (`slice_backward`) and additions (`add`) again, for every *step*. They write 96 % of all bytes. The matrix
# products (`mm`), for which all of this happens, write 1 %.
#
# Two culprits, then, with the same habit: a whole tensor for one slice. If the habit is the same, a cure for one should
# help the other. Many people batch sequences of similar length, so that a batch has few distinct lengths. Does that
# help?
#
# ## Do similar lengths help?
#
# Take 64 sequences with 2,112 real cells and 65 time steps (33 if all lengths are equal), and change only the number of
# *distinct* lengths.

# %%
ask("the same cells")

# %%
print("distinct lengths   steps   cells       pad   packed LSTM")
for d, steps in [(1, 33), (2, 65), (4, 65), (64, 65)]:
    layout = pv.Layout(lengths.spread(d, 64, steps), max_len=steps) if d > 1 else pv.Layout([33] * 64)
    pad, rnn = profile.count(layout).pad.backward, profile.count_rnn(lstm, layout).backward
    print(f"{d:16} {steps:7} {layout.n_real:7,} {profile.size(pad.bytes):>9} {profile.size(rnn.bytes):>13}")

# %% [markdown]
# We were half right. Pad writes 26 times as much for 64 lengths as for 2. The LSTM does not care: from 2 to 64 distinct
# lengths, its number does not even move. It writes bytes in proportion to **time steps × real cells**, because for each
# time step it writes a tensor with a row for every real cell.
#
# Only the first row is different, and by a lot. If all lengths are equal, torch 2.13 runs even a packed LSTM in the
# fused kernel. How little does it take to lose it? Take 64 sequences of 65 steps, and shorten *one* of them by *one*
# step.

# %%
ask("one step shorter")

# %%
for name, batch in {"64 of 65 steps": [65] * 64, "63 of 65, one of 64": [65] * 63 + [64]}.items():
    print(f"{name:20} {profile.size(profile.count_rnn(lstm, batch).backward.bytes):>7}")

# %% tags=["claims"]
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
# One missing step in 4,160, and the backward pass writes 287 MB instead of 308 kB: over 900 times as much. Nothing is
# gradual here. Either all lengths are equal, or the RNN goes step by step. So bucketing cannot rescue the fused kernel:
# a bucket would have to be perfectly even. (It still helps in another way, because a batch of short sequences has fewer
# steps.)
#
# Two numbers decide, then: distinct lengths for pad, and steps × cells for the LSTM. Both grow with T. How fast?
#
# ## What if the sequences are twice as long?
#
# In setup B, the real cells and the distinct lengths grow in proportion to the time steps, T.

# %%
ask("twice as long")

# %%
T = [16, 32, 64, 128]
written = {}
for setup, make in {"A: all equally long": lengths.equal, "B: T different lengths": lengths.triangle}.items():
    counts = [profile.count(make(128, t)) for t in T]
    written[setup] = {
        "pad": [count.pad.backward.bytes / 1e6 for count in counts],
        "pack": [count.pack.backward.bytes / 1e6 for count in counts],
        "packed LSTM": [profile.count_rnn(lstm, make(128, t)).backward.bytes / 1e6 for t in T],
    }

of_pad = written["B: T different lengths"]["pad"]
title = f"In B, pad writes {of_pad[-1] / of_pad[-2]:.1f} times as much when T doubles"
pv.draw.log_log(T, written, title, y="MB")

# %% [markdown]
# On these axes, a power of T is a straight line, and its slope is the exponent: 1 if the bytes double with T, 2 if they
# quadruple. In B, both culprits are close to 2. So we have our answer, and it only remains to see the clock agree:

# %%
recording = forum.STUDY.load()
points = [forum.point("B", t) for t in (128, 256, 512)]
steps = [point.steps for point in points]
for method in ("padded", "packed", "run"):
    slope = profile.exponent(steps, [recording.timing(point).median(method) for point in points])
    print(f"setup B, training, {method:6}: the time grows with T to the power of {slope:.2f}")
print(recording.caption)

# %% tags=["claims"]
slopes = {name: profile.exponent(T, values) for name, values in written["B: T different lengths"].items()}
assert slopes["packed LSTM"] > 1.7
assert 0.9 < slopes["pack"] < 1.1
assert not recorded or slopes["pad"] > 1.9
in_a = written["A: all equally long"]
assert 0.99 < profile.exponent(T, in_a["pack"]) < 1.01
assert not recorded or 0.99 < profile.exponent(T, in_a["pad"]) < 1.01
for method, least, most in [("padded", 0.7, 1.4), ("packed", 2.2, 3), ("run", 0.7, 1.4)]:
    times = [recording.timing(point).median(method) for point in points]
    assert least < profile.exponent(steps, times) < most

# %% [markdown]
# It does not agree. For a padded step and for `run`, twice the length takes about twice the time, as it should. The
# bytes of a packed step promise a slope of 2, and the clock says 2.3: on average not four times the time, but five.
# <!-- recorded --> There is our eight again, and the cliff of notebook 08.
#
# So two causes explain a factor of four. Somebody else adds to the bill, and does not show up in our bytes. Who?
#
# <details><summary>What it is not: three suspects with an alibi</summary>
#
# - **Sorting.** With `enforce_sorted=False`, torch also restores your order. That costs the same in B as in A.
# - **Waiting for the lengths.** If they have to be copied to the CPU, that happens in the forward pass, in both setups.
# - **Padding as such.** In the table of distinct lengths, all batches but the first have about as much padding as data,
#   yet pad writes over 20 times as much for the last as for the second.
#
# </details>

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
# All those tensors of zeros are freed as soon as they have been added. But first, each of them needs a place in memory,
# and somebody has to provide it. On Linux, torch asks glibc for memory, and glibc asks the system. The system hands it
# out in *pages*, usually of 4 kB. When a program first touches a page, it is interrupted: a *page fault*. The system
# looks for a free page, fills it with zeros, and lets the program go on. One fault takes microseconds. Nobody notices
# one. How many are there in a packed step? In the last column is the tensor of zeros that the packed LSTM fills for
# each time step: four gates of 32 numbers for every real cell.

# %%
print("setup B    packed step   page faults   a tensor of zeros")
for T_longest in (128, 192, 224, 256, 512):
    point = forum.point("B", T_longest)
    timing = recording.timing(point)
    size = point.layout.n_real * 4 * 32 * 4 / 2**20  # 4 bytes per number
    print(f"T = {T_longest} {1000 * timing.median('packed'):11,.0f} ms {timing.faults['packed']:13,} {size:15.1f} MiB")

# %% tags=["claims"]
size = {t: 4 * 4 * 32 * forum.point("B", t).layout.n_real for t in (224, 256, 512)}
assert size[224] < 2**25 < size[256] < 1.01 * 2**25
faults = {t: recording.timing(forum.point("B", t)).faults["packed"] for t in size}
assert faults[256] > 10 * faults[224]
assert size[256] / 4096 == 8224
assert 0.95 < faults[512] * 4096 / (512 * size[512]) < 1.1  # hardly anything but these tensors
took = {t: recording.timing(forum.point("B", t)).median("packed") for t in size}
assert 2.5 < took[256] / took[224] < 3.5

# %% [markdown]
# Over eight million page faults, in *one* training step. At 4 kB each, the system has cleaned and handed out more than
# 30 GB, page by page, for a step whose tensors never take more than 278 MB at a time. <!-- recorded --> That is over a
# hundred times as much.
#
# Does glibc never keep anything? It does. When a large block is freed, glibc learns its size, and from then on it keeps
# blocks up to that size. But it learns only up to 32 MiB. Now look for the cliff in the last column. At 224 steps, the
# tensor has 30.6 MiB. At 256, it has 32.1: too much, by one part in 256. From there on, *every* time step begins on
# fresh pages, all 8,224 of them, and the page faults grow twelvefold. <!-- recorded --> That is the eight, and the
# cliff.
#
# Two environment variables tell glibc to keep all memory. They must be set before Python starts, so we start three
# processes, which take the same packed training step:

# %%
program = """
import time, torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from packviz import lengths
from packviz.measure.machine import page_faults

torch.set_num_threads(1)
lstm, x = torch.nn.LSTM(16, 32), torch.randn(128, 128, 16)
for _ in range(2):  # the second one counts
    faults, start = page_faults() or 0, time.perf_counter()
    packed = pack_padded_sequence(x, lengths.triangle(128, 128), enforce_sorted=False)
    pad_packed_sequence(lstm(packed)[0])[0].sum().backward()
print((page_faults() or 0) - faults, time.perf_counter() - start)
"""

# %% tags=["live-timing", "nbval-ignore-output"]
trim = {"MALLOC_TRIM_THRESHOLD_": "2147483647"}
measured = {}
for name, variables in {"default": {}, "both": {"MALLOC_MMAP_MAX_": "0", **trim}, "only TRIM": trim}.items():
    output = subprocess.check_output([sys.executable, "-c", program], env=os.environ | variables, text=True)
    faults, seconds = map(float, output.split())
    measured[name] = faults, seconds
    print(f"{name:10} {faults:8,.0f} page faults {1000 * seconds:8,.0f} ms")
share = 1 - measured["both"][1] / measured["default"][1]
print(f"With both variables, a step takes {share:.0%} less time than by default.")

# %% [markdown]
# Your numbers are your machine's. Here are ours, for a small batch and a large one. The last column has the settings:

# %%
print(forum.allocators())

# %% tags=["claims"]
small, large = forum.STUDY.others["allocator"]
tuned, huge = (forum.STUDY.load(f"allocator_{name}_cpu.json") for name in ("tuned", "thp"))
default = forum.STUDY.load("allocator_default_cpu.json")
assert (default.timing(small).faults["packed"], tuned.timing(small).faults["packed"]) == (17445, 2)
assert 0.5 < tuned.timing(small).median("packed") / default.timing(small).median("packed") < 0.6
assert tuned.timing(large).faults["packed"] == 3
assert 0.25 < tuned.timing(large).median("packed") / recording.timing(large).median("packed") < 0.4
assert 10 < tuned.ratio(large, "packed", "padded").value < 15
assert 0.4 < huge.timing(large).median("packed") / recording.timing(large).median("packed") < 0.6
assert 1.7 < huge.timing(large).median("padded") / recording.timing(large).median("padded") < 2.5

# %% [markdown]
# In the small batch, 17,445 page faults become 2, and almost half of the time is gone. In the large one, over eight
# million become 3. Three! And two thirds of the time are gone. <!-- recorded --> So here is the third cause. It is the
# only one that costs you no line of code to remove:
#
# ```sh
# MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2147483647 python train.py
# ```
#
# Set **both**. Either of them stops glibc from learning. With the second alone, it stays at the limit with which it
# began: every tensor over 128 kB gets fresh pages, each time. In the third line of your run, you see what that does.
#
# The price of setting both is memory. What your step needed at its peak, glibc keeps, and gaps between the blocks may
# stay unused. Watch it. When we ran torch's profiler under these settings, our process grew to 24 GB, and was killed.
#
# torch has a switch of its own, `THP_MEM_ALLOC_ENABLE=1`, which takes no more memory. Where Linux allows it, it asks
# for pages of 2 MB (*transparent huge pages*), so that there are fewer to touch. It helps only if single tensors are
# much larger than that. In our recording, it halves the time of the large packed step, and doubles that of the padded
# one. <!-- recorded --> So measure yours.
#
# Tensors under about 128 kB usually stay with glibc, so very small batches gain nothing. macOS and Windows have other
# allocators, and other costs.
#
# <details><summary>And on a GPU?</summary>
#
# The user on the forum had one, with torch 1.12. There, NVIDIA's cuDNN runs a packed RNN in one call, so the loop over
# time steps should be absent. What remains is pad: for d distinct lengths, its backward pass has 7d − 3 kernels, which
# is 3,581 for d = 512. We have not timed this. So our answer for the LSTM is one for CPUs, and the one for pad holds
# for both. [#149194](https://github.com/pytorch/pytorch/issues/149194) has tables for a CPU and a GPU, forward and
# backward, in which a backward pass takes up to 81 times as long when packed.
# [#1788](https://github.com/pytorch/pytorch/issues/1788) (closed) named `narrow` years ago.
#
# </details>
#
# No setting touches the first two causes, though. Even without page faults, the large packed step takes over ten times
# as long as the padded one. <!-- recorded --> What do we do with those?
#
# ## What can you do?
#
# - **Do not pack at all**, if your RNN has one direction, and your loss reads real steps only. Notebook 03 shows that
#   the outputs there are right. Cut the batch to its longest sequence, and mask the loss.
# - **Set the two variables**, if your tensors are large. No code changes.
# - **Do not pad again** if you only need `h_n`. The packed LSTM remains slow, though.
# - **Replace both**, with `pv.run(rnn, x, lengths)`: one gather and one scatter instead of pad's copies, and an RNN
#   without these slices. [Notebook 10](10_making_packing_pay.ipynb) builds it.
#
# ## Exercise
#
# `lengths` is a list of whole numbers, longest first, and `features` is the number of features of a cell. Return the
# bytes that the backward pass of pad writes, to within 10 %. A number takes 4 bytes. Only the large parts matter: what
# does *one* distinct length cost, and how many are there? (A zero-fill writes a tensor once, and an addition writes it
# again.)


# %% tags=["exercise"]
def my_bytes(lengths, features):
    # solution
    distinct = len(set(lengths))
    padded = max(lengths) * len(lengths)  # cells that a CopySlices copies
    packed = sum(lengths)  # cells that a SliceBackward fills, and an addition fills again
    return distinct * (padded + 2 * packed) * features * 4
    # end solution


checks.backward_bytes(my_bytes)

# %% [markdown]
# ## You can now
#
# - name the three causes: a whole tensor for each distinct length (pad), a whole tensor for each step (the packed RNN
#   on a CPU), and fresh pages for each of these tensors,
# - count what pad and the RNN write, with `profile.count` and `profile.count_rnn`,
# - say why bucketing helps only one of them,
# - remove the page faults with two variables, and explain why one of them alone does harm.
#
# Every slice here was one too many. What if there were a single one?
#
# Next: [10 Making packing pay](10_making_packing_pay.ipynb). Back: [08 The benchmark](08_benchmark.ipynb) · [00 Start
# here](00_start_here.ipynb)
