# %% [markdown]
# # Why the backward pass is slow
#
# **Packing costs little in the forward pass. What makes the backward pass so slow?**
#
# After this page you can
#
# - name the operation behind it, and draw its autograd graph,
# - count kernels, nodes and bytes for any batch,
# - say how they grow with the time steps and with the number of distinct lengths,
# - rule out the usual suspects.
#
# Time: 12 minutes.

# %% [markdown]
# ## Two batches
#
# A question from PyTorch's forum: 512 sequences go through pack, LSTM, pad. In setup **A** all are equally long,
# and packing is nearly free. In **B** the lengths count down from T to 1, over and over. Forward is fine,
# backward gets slow. (Notebook 06 times it.)
#
# Times depend on the machine. So here we **count**. Predict:

# %%
from packviz.lessons import ask, checks

ask("nodes after pad")

# %% [markdown]
# First a small B: four sequences, three distinct lengths. The picture is drawn from the graph that autograd has made,
# and what each node writes was counted while it ran. Follow the gradient from the left.

# %%
from packviz.count import profile

small = profile.count([5, 4, 2, 2], features=8)
recorded = small.pad.formula is None  # if not, torch has changed since this page was written
assert not recorded or small.pad.nodes == 3 * 3 + 1
small.pad.graph()

# %% [markdown]
# ## The chain of copies
#
# To pad, torch fills a tensor and copies one slice into it per distinct length. Undoing *one* of these copies needs
# one slice of the gradient. But `CopySlices` copies **all** of it first, and `SliceBackward` hands back a **whole**
# packed tensor, zero but for its slice. These are then added up.
#
# So there is a full-size copy, a zero-fill and an addition *per distinct length*. A small A has one:

# %%
print(small.pad.verdict())
full_copies = [o for o in small.pad.backward.operators if (o.name, o.bytes) == ("copy_", small.pad.gradient)]
print("copies of the whole gradient:", len(full_copies))
assert not recorded or len(full_copies) == 3

equal = profile.count([5, 5, 5, 5], features=8)
assert not recorded or equal.pad.nodes == 4
equal.pad.graph()

# %% [markdown]
# ## The counts
#
# Now the forum's 512 sequences, up to 32 steps.
#
# - **kernels**: operators that write to memory, each call counted. Views write nothing.
# - **nodes**: what autograd has recorded on the way forward, and walks on the way back.
# - **written**: the bytes of what each operator fills. Reads are not counted.

# %%
from packviz import lengths

A, B = (profile.count(make(512, 32)) for make in (lengths.equal, lengths.triangle))
print(f"A: {A}\n\nB: {B}")
assert not recorded or (A.pad.nodes, B.pad.nodes) == (4, 3 * 32 + 1)
assert not recorded or (A.pad.backward.kernels, B.pad.backward.kernels) == (4, 7 * 32 - 3)

# %% [markdown]
# Three of the four lines write no more in B than in A. The last one does.

# %% [markdown]
# ## Try it
#
# - Leave T alone and move *distinct lengths*.
# - Double T. Then double both.
# - What does the graph of `pack_padded_sequence` depend on?

# %%
from packviz.explorers import GraphExplorer

explorer = GraphExplorer()
explorer

# %% [markdown]
# The same from code:

# %%
for steps, distinct in [(8, 1), (8, 4), (16, 4), (16, 8)]:
    explorer.steps.value, explorer.distinct.value = steps, distinct
    shown = explorer.counted
    assert not recorded or shown.nodes == 3 * distinct + 1
    print(f"T = {steps:2}, distinct lengths: {distinct}, {shown.nodes:2} nodes, {profile.size(shown.backward.bytes)} written")

# %% [markdown]
# ## How it grows
#
# Back to 512 sequences. T doubles.

# %%
ask("twice as long")

# %% [markdown]
# On PyTorch's *meta* device tensors have a shape and no data. Operators and bytes are counted as ever, but nothing is
# computed or stored.

# %%
T = [32, 64, 128, 256, 512]
setups = {"A": lengths.equal, "B": lengths.triangle}
counts = {name: [profile.count(make(512, t), device="meta") for t in T] for name, make in setups.items()}

print("  T   nodes in A    in B   written in A      in B")
for t, a, b in zip(T, counts["A"], counts["B"], strict=True):
    written = [profile.size(each.pad.backward.bytes) for each in (a, b)]
    print(f"{t:3}{a.pad.nodes:13}{b.pad.nodes:8}{written[0]:>15}{written[1]:>10}")
print("The gradient itself, at T = 512:", profile.size(counts["B"][-1].pad.gradient))
assert counts["A"][0].pad.backward == A.pad.backward  # meta counts what the CPU counts
assert counts["B"][0].pad.backward == B.pad.backward

# %% [markdown]
# On log–log axes a power of T is a straight line, and its slope is the power:

# %%
from packviz import figures

nodes = {name: [each.pad.nodes for each in some] for name, some in counts.items()}
gigabytes = {name: [each.pad.backward.bytes / 1e9 for each in some] for name, some in counts.items()}
if recorded:
    assert 0.99 < profile.exponent(T, nodes["B"]) < 1.01
    assert 0.99 < profile.exponent(T, gigabytes["A"]) < 1.01
    assert 1.95 < profile.exponent(T, gigabytes["B"]) < 2.05
panels = {"autograd nodes after pad": nodes, "gigabytes written by its backward": gigabytes}
figures.log_log(T, panels, "512 sequences, 32 features, on torch's pad_packed_sequence")

# %% [markdown]
# In A the bytes double with T, as the gradient does. In B they quadruple: twice as many copies, each twice as large.
# That is **quadratic**.

# %% [markdown]
# ## Not the padding: the distinct lengths
#
# Now four batches with equally many real cells and the same T. They differ in one thing.

# %%
ask("the same cells")

# %%
import packviz as pv

print("distinct   real cells   nodes   kernels   written")
for distinct in (1, 4, 64, 512):
    batch = pv.Layout(lengths.spread(distinct, 512, 513), max_len=513)
    assert batch.n_valid == 131584
    pad = profile.count(batch, device="meta").pad
    assert not recorded or (pad.nodes, pad.backward.kernels) == (3 * distinct + 1, 7 * distinct - 3)
    kernels, written = pad.backward.kernels, profile.size(pad.backward.bytes)
    print(f"{distinct:8}{batch.n_valid:13,}{pad.nodes:8,}{kernels:10,}{written:>10}")

# %% [markdown]
# Half of each batch is padding; by itself that costs nothing extra. Do bytes become time?
# Your machine, with smaller batches: 64 sequences, 65 steps. Only compare within one run.

# %%
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


def backward_of_pad(lengths, enforce_sorted=True):
    x = torch.randn(65, len(lengths), 32)
    packed = pack_padded_sequence(x, lengths, enforce_sorted=enforce_sorted)
    data = packed.data.requires_grad_()
    output, _ = pad_packed_sequence(packed._replace(data=data), total_length=65)
    gradient = torch.ones_like(output)
    return lambda: torch.autograd.grad(output, data, gradient, retain_graph=True)


# %% tags=["live-timing", "nbval-ignore-output"]
from packviz.bench import measure

D = (1, 4, 16, 64)
batches = [pv.Layout(lengths.spread(d, 64, 65), max_len=65) for d in D]
calls = {f"{d} distinct": backward_of_pad(batch.lengths.tolist()) for d, batch in zip(D, batches, strict=True)}
timing = measure(calls, rounds=10)
print(timing)
megabytes = [profile.count(batch, device="meta").pad.backward.bytes / 1e6 for batch in batches]
milliseconds = [1e3 * timing.median(name) for name in calls]
panels = {"megabytes, counted": {"pad's backward": megabytes}, "milliseconds, here": {"pad's backward": milliseconds}}
figures.log_log(D, panels, "The same cells from more and more distinct lengths", "distinct lengths")

# %% [markdown]
# ## The other two
#
# **pack's backward** has a formula of its own: zeros, then one copy per *time step*. It does so even in A, where one
# copy would do. Many small kernels; but together they write a few times the gradient, no more.

# %%
for name, some in counts.items():
    kernels = [each.pack.backward.kernels for each in some]
    assert kernels == [t + 1 for t in T]
    print(f"{name}: kernels {kernels}, written", *[profile.size(each.pack.backward.bytes) for each in some])

# %% [markdown]
# **The packed RNN**, on the CPU: at each step it takes its rows out of one large tensor by a `narrow` (a view of some
# rows). In the backward pass each of these fills a *whole* large tensor with zeros, which is then added to the others.
# Quadratic again, and in A as well. One escapes: a packed *LSTM* whose lengths are all equal, as in 06's setup A. torch
# runs the fused padded kernel on it.
#
# On a GPU, cuDNN takes `batch_sizes` as they are, so this part should be missing there (not measured here).

# %%
gru, steps = torch.nn.GRU(16, 32), [8, 16, 32, 64]


def megabytes(make, packed):
    return [profile.count_rnn(gru, make(64, t), packed=packed).backward.bytes / 1e6 for t in steps]


curves = {"packed, A": megabytes(lengths.equal, True), "packed, B": megabytes(lengths.triangle, True)}
curves["padded"] = megabytes(lengths.equal, False)
assert 1.8 < profile.exponent(steps, curves["packed, A"]) < 2.2
assert 0.9 < profile.exponent(steps, curves["padded"]) < 1.1
print(profile.count_rnn(gru, lengths.equal(64, 64)).backward)
figures.log_log(steps, {"megabytes written": curves}, "Backward pass of GRU(16, 32) alone, 64 sequences")

# %% [markdown]
# Zero-fills (`slice_backward`) and additions are nearly all of it.

# %% [markdown]
# ## What it is not
#
# **Sorting.** `profile.count` had sorted the lengths, so torch sorted nothing for the table above. Let it sort:

# %%
for name, make in setups.items():
    before = profile.count(make(512, 32)).pad
    after = profile.count(make(512, 32), enforce_sorted=False).pad
    extra = after.backward.bytes - before.backward.bytes
    assert extra == 2 * before.gradient
    print(f"{name}: {profile.size(before.backward.bytes)}, and {profile.size(extra)} more if torch sorts")

# %% [markdown]
# Putting the order back costs a little, and as much in A as in B. It does not grow with the distinct lengths.
#
# **Copying the lengths to the CPU**, and waiting for it. That happens in the forward pass, for A as for B. And here
# everything is on the CPU: there is nothing to copy or wait for. See what the two backward passes call:

# %%
called = {operator.name for some in (B.pack, B.pad) for operator in some.backward.operators}
assert not {"sort", "_to_copy", "_local_scalar_dense"} & called
print(*sorted(called))

# %% [markdown]
# And timed, on your machine:

# %% tags=["live-timing", "nbval-ignore-output"]
sizes = lengths.spread(64, 64, 65)
calls = {
    "pad's backward": backward_of_pad(sizes),
    "pad's backward, torch sorts": backward_of_pad(sizes[::-1], enforce_sorted=False),
    "sorting the lengths": lambda: torch.sort(torch.tensor(sizes), descending=True),
    "copying the lengths": lambda: torch.tensor(sizes).clone(),
}
measure(calls, rounds=10)

# %% [markdown]
# ## Upstream
#
# What others report; nothing below was measured here.
#
# - [#149194](https://github.com/pytorch/pytorch/issues/149194) (open): a packed LSTM's forward pass, many times slower.
# - [#1788](https://github.com/pytorch/pytorch/issues/1788) (closed): a maintainer names the cause, `narrow`: backward, each
#   makes a tensor of the full size.
# - [PR #149219](https://github.com/pytorch/pytorch/pull/149219) (closed): would make pack's backward faster.
# - [PR #185483](https://github.com/pytorch/pytorch/pull/185483) (closed, outcome unknown): a derivative for
#   `_pad_packed_sequence`. With it, the chain would be gone; the line at the top of this page would say so.
# - [#15225](https://github.com/pytorch/pytorch/pull/15225): brought `enforce_sorted`.

# %% [markdown]
# ## What to do about it
#
# - Put sequences of similar length into a batch: fewer distinct lengths.
# - Need only `h_n`? Then do not pad again, and the chain is not there.
# - Pack and pad by an **index**: one gather, one scatter, each the gradient of the other. Exact, and linear.
#   Notebook 08 does it, and replaces the packed RNN too.

# %% [markdown]
# ## What people get wrong
#
# - **"It is the padding."** The four batches above have the same padding. Only their distinct lengths differ.
# - **"It is the sorting."** Sorted beforehand, the backward pass writes nearly as much.
# - **"A backward pass takes twice the time of the forward pass."** About so for products of matrices. A chain of copies
#   has no such rule.
# - **"On a GPU it is different."** For the RNN, perhaps. But `pad_packed_sequence` is made of the same operators there.

# %% [markdown]
# ## Exercise
#
# Write the bytes that pad's backward fills, from the lengths alone, to within 10 %. Numbers are float32. You need the
# large parts only: what does *one* distinct length cost, and how often is that? (To fill with zeros is one fill, to add
# is another.)
#
# The check draws your numbers over the counted ones.


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
# - name the operation: `pad_packed_sequence`, whose copies autograd has recorded one by one,
# - count kernels, nodes and bytes of any batch with `profile.count`,
# - say how they grow: three nodes per distinct length; bytes with their number times the size of the batch,
# - rule out sorting, padding, and waiting for the lengths.
#
# Next: [08 Making packing pay](08_making_packing_pay.ipynb). Back: [06 The benchmark](06_benchmark.ipynb) ·
# [03 Counting FLOPs](03_counting_flops.ipynb) · [00 Start here](00_start_here.ipynb)
