# %% [markdown]
# # Why training is slow
#
# **Training on a packed batch can take many times as long as on a padded one. What takes so long?**
#
# After this notebook, you can
#
# - name the two operations that slow down packed training on a CPU,
# - count the bytes and kernels of a backward pass, for any batch,
# - say how the bytes grow with the time steps, the distinct lengths and the real cells,
# - rule out the usual suspects.
#
# Time: 20 minutes.
#
# ## Where the time goes
#
# Notebook 08 timed a model from a forum question: it packs 512 sequences, runs an LSTM and pads its output. In setup
# **A**, all sequences have the same length. In setup **B**, where the lengths count down from T to 1 repeatedly,
# training is slow.
#
# To find out which part is slow, we replaced each in turn with a faster one that gives the same results. The chart
# shows the time that each replacement saves, as a share of a training step. (The replacement takes time, too, so the
# true share is slightly larger.) In the tables, each row also keeps the replacements above it.

# %%
import torch
from torch.nn.utils.rnn import pack_padded_sequence

import packviz as pv
from packviz import lengths
from packviz.count import profile
from packviz.lessons import ask, checks
from packviz.studies import parts

parts.chart(parts.STUDY.recordings())  # every machine that was recorded

# %% tags=["claims"]
recorded_parts = parts.STUDY.load()
sums = []
for point in recorded_parts.points:
    shares = parts.shares(recorded_parts, point)
    assert shares["packed LSTM"] > shares["pad"] > shares["pack"]
    assert shares["pack"] < 0.1
    sums.append(shares["packed LSTM"] + shares["pad"])
assert sums == sorted(sums)
assert sums[-1] > 0.85  # at the longest

# %% [markdown]
# On this CPU, the packed LSTM takes the largest share, padding the output comes second, and packing takes almost no
# time. Together, the packed LSTM and padding take a larger share as the sequences grow.
#
# Times depend on the machine, so from here on we **count**. During the forward pass, autograd records *nodes*. In the
# backward pass, each node takes a gradient and writes new ones. For this, it calls *operators*, torch's elementary
# functions, which run *kernels*, routines that torch runs in one call each. Most of the kernels counted here make a
# single pass over their data, such as a copy or an addition. We count nodes, kernels, and the bytes that kernels write.
#
# ## Padding again
#
# `pad_packed_sequence` only copies data. Compare setup A, where all 512 sequences have 32 steps, with B, where their
# lengths run from 32 down to 1.

# %%
ask("nodes after pad")

# %% [markdown]
# Here are the nodes for four sequences of 5, 4, 2 and 2 steps. The gradient enters on the left.

# %%
small = profile.count([5, 4, 2, 2], features=8)
print(small.pad.verdict)
small.pad.graph()

# %% [markdown]
# To pad, torch fills a tensor with the padding value and then copies one slice into it for each distinct length. For
# *one* of these copies, the backward pass needs only one slice of the gradient, which is the solid part of its bar. But
# `CopySlices` first copies **all** of the gradient, and `SliceBackward` returns a **whole** packed tensor that is zero
# outside its slice. These tensors are then added up. So every distinct length costs a copy of the size of the padded
# gradient, and a zero-fill and an addition of the size of the packed data.
#
# (If the line above the picture names a derivative formula, your torch is newer than this page, so trust the counts,
# not the text.)
#
# In the panel, first change only *distinct lengths* and then only T.

# %%
from packviz.panels import GraphPanel

GraphPanel()

# %% [markdown]
# The number of nodes depends only on the number of distinct lengths. But `CopySlices` and `SliceBackward` write tensors
# of the full size, so the bytes grow with T as well.
#
# ## The packed LSTM
#
# On a CPU, torch usually runs a layer of a *padded* LSTM as one **fused kernel**, which computes all time steps in one
# call. A *packed* RNN goes through the steps one by one. At each step, it takes its rows out of a large tensor with
# `narrow`, which returns a slice without copying it. In the backward pass, the gradient of each slice becomes a
# **whole** tensor, zero outside the slice, which is then added to the others. Here is that pass for 64 sequences of 64,
# 63, …, 1 steps:

# %%
lstm = torch.nn.LSTM(16, 32)
profile.count_rnn(lstm, lengths.triangle(64, 64)).backward

# %% tags=["claims"]
recorded = small.pad.formula is None  # if not, torch has changed since this page was written
if recorded:
    whole = [o for o in small.pad.backward.operators if (o.name, o.bytes) == ("copy_", small.pad.gradient)]
    assert len(whole) == 3
    for steps, distinct in [(8, 1), (8, 4), (16, 4), (16, 8)]:
        count = profile.count(lengths.spread(distinct, 32, steps))
        assert (count.pad.nodes, count.pack.nodes) == (3 * distinct + 1, 2)
rnn = profile.count_rnn(lstm, lengths.triangle(64, 64)).backward
assert sum(o.bytes for o in rnn.by_name() if o.name in ("slice_backward", "add")) > 0.8 * rnn.bytes

# %% [markdown]
# Zero-fills (`slice_backward`) and additions write nearly all the bytes. The matrix products (`mm`) write few bytes,
# but they do most of the arithmetic, so bytes are not the whole story. A profiler shows where the *time* goes:

# %% tags=["live-timing", "nbval-ignore-output"]
from torch.profiler import ProfilerActivity
from torch.profiler import profile as profiler

torch.set_num_threads(1)
packed = pack_padded_sequence(torch.randn(64, 64, 16), lengths.triangle(64, 64), enforce_sorted=False)
with profiler(activities=[ProfilerActivity.CPU]) as trace:
    lstm(packed)[0].data.sum().backward()
print(trace.key_averages().table(sort_by="self_cpu_time_total", row_limit=6, max_name_column_width=40))

# %% [markdown]
# On a GPU, NVIDIA's cuDNN runs a packed RNN in one call, so this loop over time steps should be absent there. We have
# not measured this.
#
# ## Two causes, two kinds of growth
#
# Does the packed LSTM's cost depend on the distinct lengths, as pad's does? Take 64 sequences with 2,112 real cells and
# 65 time steps (33 if all lengths are equal), and change only the number of *distinct* lengths.

# %%
ask("the same cells")

# %%
print("distinct lengths   steps   cells       pad   packed LSTM")
for d, steps in [(1, 33), (2, 65), (4, 65), (64, 65)]:
    layout = pv.Layout(lengths.spread(d, 64, steps), max_len=steps) if d > 1 else pv.Layout([33] * 64)
    pad, rnn = profile.count(layout).pad.backward, profile.count_rnn(lstm, layout).backward
    cells = layout.n_real
    print(f"{d:16} {steps:7} {cells:7,} {profile.size(pad.bytes):>9} {profile.size(rnn.bytes):>13}")

# %% [markdown]
# The more distinct lengths there are, the more `pad_packed_sequence` writes. The packed LSTM is not affected. Unless
# all lengths are equal, it writes bytes in proportion to **time steps × real cells**, because for each time step, it
# writes a tensor with a row for every real cell. (If all lengths are equal, torch 2.13 runs a packed LSTM on the fused
# kernel, so the first row is small.)
#
# So batching similar lengths helps `pad_packed_sequence`, because a batch then has fewer distinct lengths. It may do
# nothing for the RNN, or even slow it down, if a batch then has more real cells. Even one sequence that is one step
# shorter rules out the fused kernel:

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
assert nearly > 100 * equal

# %% [markdown]
# ## Twice as long
#
# In setup B, the real cells and the distinct lengths grow in proportion to the time steps, T.

# %%
ask("twice as long")

# %%
T = [16, 32, 64, 128]
written = {}
for setup, make in {"A: all equally long": lengths.equal, "B: T different lengths": lengths.triangle}.items():
    counts = [profile.count(make(128, t)) for t in T]
    rnns = [profile.count_rnn(lstm, make(128, t)) for t in T]
    written[setup] = {
        "pad": [count.pad.backward.bytes / 1e6 for count in counts],
        "pack": [count.pack.backward.bytes / 1e6 for count in counts],
        "packed LSTM": [rnn.backward.bytes / 1e6 for rnn in rnns],
    }

title = "In setup A, pad and pack write twice as much when T doubles"
pv.draw.log_log(T, written, title, y="MB", methods=dict.fromkeys(written[setup], "packed"))

# %% tags=["claims"]
slopes = {name: profile.exponent(T, values) for name, values in written["B: T different lengths"].items()}
assert slopes["packed LSTM"] > 1.7
assert 0.9 < slopes["pack"] < 1.1
assert not recorded or slopes["pad"] > 1.9
in_a = written["A: all equally long"]
assert 0.99 < profile.exponent(T, in_a["pack"]) < 1.01
assert not recorded or 0.99 < profile.exponent(T, in_a["pad"]) < 1.01

# %% [markdown]
# On these axes, a power of T is a straight line, and its slope is the exponent. A slope of 1 means that the bytes
# double when T doubles, and a slope of 2 that they quadruple. In B, pad and the packed LSTM have slopes close to 2, so
# their bytes grow with the square of T. (A slope that is not a whole number comes from adding up parts that grow at
# different rates.)
#
# ## What it is not
#
# - **Sorting.** With `enforce_sorted=False`, torch also restores your order. That costs the same in B as in A.
# - **Waiting for the lengths.** If they have to be copied to the CPU, that happens in the forward pass, in both setups.
# - **Padding as such.** In the table of distinct lengths, all batches but the first have about as much padding as data,
#   yet pad writes over 20 times as much for the last as for the second.

# %% tags=["claims"]
B = profile.count(lengths.triangle(512, 32))
called = {operator.name for some in (B.pack, B.pad) for operator in some.backward.operators}
assert not {"sort", "_to_copy", "_local_scalar_dense"} & called
for make in (lengths.equal, lengths.triangle):
    in_order, sorting = (profile.count(make(512, 32), enforce_sorted=order).pad for order in (True, False))
    assert sorting.backward.bytes - in_order.backward.bytes == 2 * in_order.gradient
    assert profile.count(make(512, 32)).pack.backward.kernels == 33  # zeros, and a copy per time step
assert profile.count(lengths.triangle(512, 32), device="meta").pad.backward == B.pad.backward

# %% [markdown]
# ## What you can do
#
# - **Use `pv.run(rnn, x, lengths)`**, which replaces both slow operations. It packs and pads with one gather and one
#   scatter, and trains the RNN without these slices. [Notebook 10](10_making_packing_pay.ipynb) shows how.
# - **Do not pad again** if you only need `h_n`. The packed LSTM remains slow, though.
# - **Do not replace only pack and pad.** On our CPU, the packed LSTM takes longer than both.
#
# The causes are known: see [#1788](https://github.com/pytorch/pytorch/issues/1788) (closed; it names `narrow`) and
# [#149194](https://github.com/pytorch/pytorch/issues/149194) (about the forward pass of a packed LSTM).

# %% [markdown]
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
# - name the two slow operations: `pad_packed_sequence`, and the packed RNN on a CPU,
# - count what they write with `profile.count` and `profile.count_rnn`,
# - say how these bytes grow: for pad with the number of distinct lengths, for the RNN with steps × real cells,
# - rule out sorting, padding as such, and waiting for the lengths.
#
# Next: [10 Making packing pay](10_making_packing_pay.ipynb). Back: [08 The benchmark](08_benchmark.ipynb) · [00 Start
# here](00_start_here.ipynb)
