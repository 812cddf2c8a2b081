# %% [markdown]
# # Why training is slow
#
# **Training on a packed batch can take many times as long as on a padded one. What takes so long?**
#
# Half of your batch is padding, so you pack it. The forward pass takes a little longer than before; fine. Then comes
# `loss.backward()`, and you wait. Half the work now takes many times as long, and when the sequences get longer, it
# gets worse faster than they do. A user asked PyTorch's forum whether this is normal. On a CPU, it is. But why?
#
# After this page, you can say which operations write how much in a backward pass, how that grows, and what to change.
#
# Time: 18 minutes.
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
# the lengths count down from T to 1, again and again. Three suspects, then: pack, the packed LSTM, and pad.

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
# To find out, we replaced them, one after another, with faster ones that give the same results. What a replacement
# saves is the part's time. (The replacement takes time, too, so the true time is slightly longer.)

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
# Two of the three. At 256 steps, they leave almost nothing for the rest. One of them is a surprise. The LSTM at least
# computes something. But pad? It copies numbers from one place to another. How can a copy take so long?
#
# Times depend on the machine, so from here on we **count**. In the forward pass, autograd records *nodes*. In the
# backward pass, each node calls *operators*, torch's elementary functions, which run *kernels*, routines that torch
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
# Nobody wrote this backward pass. `pad_packed_sequence` has no derivative formula of its own (if your torch has one, it
# is newer than this page, so trust the counts), and autograd derives one from the copies. For *one* slice, the node
# `CopySlices` copies **all** of the padded gradient. Then `SliceBackward` fills a **whole** packed tensor with zeros, to
# hold that slice, and adds it to the others. Move the slider to 6: six sequences as before, about as many gradients
# to hand back, and look at the bars. With a single index, they would all be read at once.
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
# The distinct lengths say how many copies there are, and T how large each one is. So much for pad. But the LSTM took
# time, too, and it does not pad anything. Is it the same story?
#
# ## What does the packed LSTM write?
#
# On a CPU, torch usually runs a layer of a *padded* LSTM in **oneDNN's fused kernel**, which computes all time steps in
# one call. A *packed* RNN goes through the steps one by one. At each step, it takes its rows out of a large tensor with
# `narrow`, which returns a slice without copying it. You can guess the rest. This is the backward pass for 64 sequences
# of 64, 63, …, 1 steps:

# %%
lstm = torch.nn.LSTM(16, 32)
profile.count_rnn(lstm, lengths.triangle(64, 64)).backward

# %% tags=["claims"]
rnn = profile.count_rnn(lstm, lengths.triangle(64, 64)).backward
assert sum(o.bytes for o in rnn.by_name() if o.name in ("slice_backward", "add")) > 0.8 * rnn.bytes

# %% [markdown]
# Zero-fills (`slice_backward`) and additions (`add`) again, one of each for every *step*. The matrix products (`mm`),
# for which all of this happens, hardly write anything.
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
# For pad, yes. For the LSTM, no: from 2 to 64 distinct lengths, its number hardly moves. It writes bytes in proportion
# to **time steps × real cells**, because for each time step it writes a tensor with a row for every real cell.
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
# Hundreds of megabytes for one small step. They do not stay; each tensor is freed as soon as it has been added. But each
# needs a place in memory first. Who hands it out, and what does *that* cost?
#
# ## Who pays for the memory?
#
# On Linux, torch asks glibc for memory, and glibc asks the system. The system hands it out in *pages* of 4 kB, usually.
# When a program first touches a page, it is interrupted: a *page fault*. The system looks for a free page, fills it
# with zeros, and lets the program go on. By default, glibc often returns large tensors to the system as soon as they
# are freed, so the next tensor of the same size begins with fresh pages, and faults on every one of them.
#
# Two environment variables tell glibc to keep the memory. They must be set before Python starts, so we start three
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
print(f"Without page faults, a step takes {share:.0%} less time than by default.")

# %% [markdown]
# Your numbers are your machine's. This is what has been recorded; the last column has the settings:

# %%
print(forum.allocators())

# %% tags=["claims"]
tables = [line.split() for line in forum.allocators().splitlines()[1:]]
assert any(row[:3] == ["512", "×", "512"] for row in tables)

# %% [markdown]
# Here is the third cause, and the only one that costs you no line of code to remove:
#
# ```sh
# MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2147483647 python train.py
# ```
#
# Set **both**. The second alone can make things *worse* (compare the third line of your run), because freed memory then
# still goes back to the system another way. The price is memory: what your step needed at its peak, glibc keeps. torch
# has a switch of its own, `THP_MEM_ALLOC_ENABLE=1`, which takes no more memory. It uses pages of 2 MB where Linux
# allows it (*transparent huge pages*), and helps only if single tensors are much larger than that. Tensors under about
# 128 kB usually stay with glibc, so small batches gain little. macOS and Windows have other allocators, and other
# costs.
#
# Fewer faults change the factor. They do not change the growth. How fast *does* it grow?
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

title = "In B, pad and the packed LSTM write about four times as much when T doubles"
pv.draw.log_log(T, written, title, y="MB")

# %% [markdown]
# On these axes, a power of T is a straight line, and its slope is the exponent: 1 if the bytes double with T, 2 if they
# quadruple. In B, both culprits are close to 2. Do the times of notebook 08 agree?

# %%
recording = forum.STUDY.load()
for method in ("padded", "packed", "run"):
    points = [forum.point("B", t) for t in (128, 256, 512)]
    slope = profile.exponent([p.steps for p in points], [recording.timing(p).median(method) for p in points])
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
for method, least, most in [("padded", 0.7, 1.4), ("packed", 1.6, 3), ("run", 0.7, 1.4)]:
    times = [recording.timing(p).median(method) for p in points]
    assert least < profile.exponent([p.steps for p in points], times) < most

# %% [markdown]
# Twice the length costs a padded step about twice the time, and a packed one about four times. (With the default
# allocator, page faults can make it steeper than the bytes.)
#
# <details><summary>What it is not: three suspects with an alibi</summary>
#
# - **Sorting.** With `enforce_sorted=False`, torch also restores your order. That costs the same in B as in A.
# - **Waiting for the lengths.** If they have to be copied to the CPU, that happens in the forward pass, in both setups.
# - **Padding as such.** In the table of distinct lengths, all batches but the first have about as much padding as data,
#   yet pad writes over 20 times as much for the last as for the second.
#
# </details>
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
# ## What can you do?
#
# - **Do not pack at all**, if your RNN has one direction, and your loss reads real steps only. Notebook 03 shows that the
#   outputs there are right. Cut the batch to its longest sequence, and mask the loss.
# - **Set the two variables**, if your tensors are large. No code changes.
# - **Do not pad again** if you only need `h_n`. The packed LSTM remains slow, though.
# - **Replace both**, with `pv.run(rnn, x, lengths)`: one gather and one scatter instead of pad's copies, and an RNN
#   without these slices. [Notebook 10](10_making_packing_pay.ipynb) builds it.
#
# ## Exercise
#
# From the lengths and the number of features, compute the bytes that the backward pass of pad writes, to within 10 %. A
# number takes 4 bytes. Only the large parts matter: what does *one* distinct length cost, and how many are there? (A
# zero-fill writes a tensor once, and an addition writes it again.)


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
# - name the three causes: pad, the packed RNN on a CPU, and page faults,
# - count what the first two write, with `profile.count` and `profile.count_rnn`,
# - say how it grows: for pad with the distinct lengths, for the RNN with steps × real cells,
# - remove the third with two variables, and know that one of them alone may do harm.
#
# Every slice here was one too many. What if there were a single one?
#
# Next: [10 Making packing pay](10_making_packing_pay.ipynb). Back: [08 The benchmark](08_benchmark.ipynb) · [00 Start
# here](00_start_here.ipynb)
