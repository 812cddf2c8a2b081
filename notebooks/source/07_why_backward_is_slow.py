# %% [markdown]
# # Why the backward pass is slow
#
# **Training on a packed batch can take many times as long as on a padded one. What takes so long?**
#
# After this page you can
#
# - name the two operations behind it, and what they have in common,
# - count kernels, nodes and bytes for any batch, and draw its autograd graph,
# - say how they grow with the time steps and with the number of distinct lengths,
# - rule out the usual suspects.
#
# Time: 20 minutes.

# %% [markdown]
# ## Where the time goes
#
# The step is that of notebook 06: a user of discuss.pytorch.org sends 512 sequences through pack, LSTM, pad. In setup
# **A** all are equally long. In **B** the lengths count down from T to 1, over and over, and training is slow.
#
# Replace one part after the other by one that gives the same results, and time the step each time. The time that it
# saves was that part's share.

# %%
from packviz.studies import parts

parts.ByMachine(parts.STUDY.recordings())  # every machine that was recorded

# %% [markdown]
# On a CPU, the longer the sequences, the more of the step two parts take: the packed LSTM, and the padding after it.
# Pack itself costs little. So to replace pack and pad alone leaves the larger part as it is.
#
# Times depend on the machine. So from here on we **count**. Autograd records what a forward pass does as *nodes*. In the
# backward pass each node takes a gradient and writes the next one: so many bytes, by so many *kernels*. (A kernel is one
# run over the data: a copy, an addition.)
#
# First `pad_packed_sequence`, which only copies. Predict:

# %% tags=["claims"]
shares = parts.recorded()
for found in map(shares.shares, shares.points):
    assert found["packed LSTM"] > found["pad"] > found["pack"]
assert found["packed LSTM"] + found["pad"] > 0.85  # at the longest

# %%
from packviz.lessons import ask, checks

ask("nodes after pad")

# %% [markdown]
# A small B: four sequences, three distinct lengths. The picture is drawn from the graph that autograd has made, and what
# each node writes was counted while it ran. Follow the gradient from the top.

# %%
from packviz.count import profile

small = profile.count([5, 4, 2, 2], features=8)
print(small.pad.verdict)
small.pad.graph()

# %% [markdown]
# ## The chain of copies
#
# To pad, torch fills a tensor and copies one slice into it per distinct length. Undoing *one* of these copies needs
# one slice of the gradient: the solid part of a bar. But `CopySlices` copies **all** of it first, and `SliceBackward`
# hands back a **whole** packed tensor, zero but for its slice. These are then added up.
#
# So there is a full-size copy, a zero-fill and an addition *per distinct length*. (If the line above the picture names a
# derivative formula, your torch has been repaired since this page was written: believe the counts.)
#
# ## Try it
#
# - Leave T alone and move *distinct lengths*. What is left of the chain at 1?
# - Leave *distinct lengths* alone and double T. Which numbers double?
# - What does the graph of `pack_padded_sequence` depend on?

# %%
from packviz.explorers import GraphExplorer

GraphExplorer()

# %% [markdown]
# At 1 a single copy is left. With T the bytes double, not the nodes. `pack` has the same two nodes for any lengths: torch
# has a formula for its gradient.
#
# ## The packed LSTM does the same
#
# On the CPU a *padded* LSTM is one **fused kernel** of the library oneDNN: all time steps in one call. A *packed* RNN goes
# step by step. At each step it takes its rows out of one large tensor by a `narrow`: a view of some rows, a slice. In the
# backward pass each of these slices again becomes a **whole** tensor: filled with zeros, then added to the others.

# %%
import torch

from packviz import lengths

lstm = torch.nn.LSTM(16, 32)
profile.count_rnn(lstm, lengths.triangle(64, 64)).backward  # 64 sequences of 64, 63, … 1 steps

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
# Zero-fills (`slice_backward`) and additions are nearly all of what it writes.
#
# On a GPU, cuDNN takes `batch_sizes` as they are, so this part should be missing there (not measured here).
#
# ## How it grows
#
# Batches like A and B, of 128 sequences. T doubles, and doubles again.

# %%
ask("twice as long")

# %% [markdown]
# On log–log axes a power of T is a straight line, and its slope is the power:

# %%
import packviz as pv

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

title = "Megabytes that backward passes write: in B, pad and the packed LSTM grow with the square"
pv.draw.log_log(T, written, title, y="MB", methods=dict.fromkeys(written[setup], "packed"))

# %% tags=["claims"]
slopes = {name: profile.exponent(T, values) for name, values in written["B: T different lengths"].items()}
assert slopes["packed LSTM"] > 1.7
assert 0.9 < slopes["pack"] < 1.1
assert not recorded or slopes["pad"] > 1.9
assert not recorded or 0.9 < profile.exponent(T, written["A: all equally long"]["pad"]) < 1.1

# %% [markdown]
# In A, what pad writes doubles with T, as the gradient does. In B it quadruples: twice as many copies, each twice as
# large. That is **quadratic**. So is the packed LSTM. (Not in A: in torch 2.13 a packed LSTM of equal lengths runs on
# the fused kernel.)
#
# At the forum's full size, counted on PyTorch's *meta* device, where tensors have a shape and no data:

# %%
full = profile.count(lengths.triangle(512, 512), device="meta")
written_by_pad = profile.size(full.pad.backward.bytes)
print(f"{full.pad.nodes:,} nodes write {written_by_pad}, for a gradient of {profile.size(full.pad.gradient)}")

# %% [markdown]
# ## Not the padding: the distinct lengths
#
# Five batches with equally many real cells. The first has no padding; in the others half of the cells are padding.

# %%
ask("the same cells")

# %%
batches = {"1, no padding": pv.Layout([257] * 512)}
batches |= {str(d): pv.Layout(lengths.spread(d, 512, 513), max_len=513) for d in (1, 4, 64, 512)}
for name, batch in batches.items():
    pad = profile.count(batch, device="meta").pad
    print(f"distinct lengths: {name:13} {pad.nodes:5,} nodes write {profile.size(pad.backward.bytes):>7}")

# %% [markdown]
# Padding alone makes the one copy larger: the first two lines. Distinct lengths make hundreds of copies.
#
# Do bytes become time? Your machine, with smaller batches: 64 sequences, 65 steps.

# %% tags=["claims"]
assert {batch.n_valid for batch in batches.values()} == {131584}
for distinct in (1, 4, 64, 512) if recorded else ():
    pad = profile.count(batches[str(distinct)], device="meta").pad
    assert (pad.nodes, pad.backward.kernels) == (3 * distinct + 1, 7 * distinct - 3)

# %%
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


def backward_of_pad(batch):
    x = torch.randn(65, 64, 32, requires_grad=True)
    packed = pack_padded_sequence(x, batch.lengths.tolist())
    output, _ = pad_packed_sequence(packed, total_length=65)
    return lambda: torch.autograd.grad(output, packed.data, torch.ones_like(output), retain_graph=True)


# %% tags=["live-timing", "nbval-ignore-output"]
from packviz.bench import measure

some = {d: pv.Layout(lengths.spread(d, 64, 65), max_len=65) for d in (1, 4, 16, 64)}
timing = measure({str(d): backward_of_pad(batch) for d, batch in some.items()}, rounds=100, until_narrow=True)
print(timing)
megabytes = [profile.count(batch, device="meta").pad.backward.bytes / 1e6 for batch in some.values()]
milliseconds = [[1e3 * seconds for seconds in timing.spread(name)] for name in timing.seconds]
pv.draw.log_log(
    list(some),
    {"megabytes, counted": {"pad": megabytes}, "milliseconds, with quartiles": {"pad": milliseconds}},
    "The same cells in more distinct lengths: more bytes, more time",
    "distinct lengths",
    y=("MB", "ms"),
    methods={"pad": "packed"},
    below=timing.notes,
)

# %% [markdown]
# ## What it is not
#
# **Sorting.** `profile.count` had sorted the lengths, so torch sorted nothing so far. Let it sort:

# %%
for name, make in {"A": lengths.equal, "B": lengths.triangle}.items():
    before = profile.count(make(512, 32)).pad.backward.bytes
    after = profile.count(make(512, 32), enforce_sorted=False).pad.backward.bytes
    print(f"{name}: {profile.size(before)}, and {profile.size(after - before)} more if torch sorts")

# %% [markdown]
# Putting the order back costs a little, and as much in A as in B.
#
# **Copying the lengths to the CPU**, and waiting for it. That happens in the forward pass, for A as for B, and the
# backward pass holds no such call.

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
# ## Upstream
#
# What others report; nothing below was measured here.
#
# - [#149194](https://github.com/pytorch/pytorch/issues/149194) (open): a packed LSTM's forward pass, many times slower.
# - [#1788](https://github.com/pytorch/pytorch/issues/1788) (closed): a maintainer names the cause, `narrow`: backward, each
#   makes a tensor of the full size.
# - [PR #185483](https://github.com/pytorch/pytorch/pull/185483) (closed, outcome unknown): a derivative for
#   `_pad_packed_sequence`. With it, the chain would be gone.

# %% [markdown]
# ## What to do about it
#
# - Put sequences of similar length into a batch: fewer distinct lengths, a shorter chain.
# - Need only `h_n`? Then do not pad again, and the chain is not there. The packed LSTM stays slow.
# - `pv.run(rnn, x, lengths)` replaces both: pack and pad by an **index** (one gather, one scatter, each the gradient of the
#   other), and the packed RNN by runs without slices. Exact, and linear. Notebook 08 shows how.

# %% [markdown]
# ## What people get wrong
#
# - **"It is the padding."** Half of a batch may be padding and cost one larger copy. Its distinct lengths cost hundreds.
# - **"Then I only replace pack and pad."** On a CPU the packed LSTM is the larger part.
# - **"On a GPU it is different."** For the RNN, perhaps. But `pad_packed_sequence` is made of the same operators there.

# %% [markdown]
# ## Exercise
#
# How many bytes does pad's backward pass write? Compute it from the lengths, to within 10 %; numbers are float32. You need
# the large parts only: what does *one* distinct length cost, and how many are there? (Filling with zeros writes once,
# adding writes again.)


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
# - name the two operations: `pad_packed_sequence` and the packed RNN. Both take slices, and the gradient of each slice is
#   a whole tensor,
# - count kernels, nodes and bytes of any batch with `profile.count` and `profile.count_rnn`,
# - say how they grow: a distinct length more is three nodes more, and a copy of the whole batch,
# - rule out sorting, padding, and waiting for the lengths.
#
# Next: [08 Making packing pay](08_making_packing_pay.ipynb). Back: [06 The benchmark](06_benchmark.ipynb) ·
# [03 Counting FLOPs](03_counting_flops.ipynb) · [00 Start here](00_start_here.ipynb)
