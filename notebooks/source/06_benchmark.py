# %% [markdown]
# # The benchmark
#
# **How long do packing and unpacking take, forward and backward, on your machine?**
#
# After this page you can
#
# - run the forum's benchmark on your own device, here or from a terminal,
# - tell a fair timing from an unfair one, and write one yourself,
# - read such a plot: how high, how fast it grows, how far to trust it.
#
# Time: 15 minutes.

# %% [markdown]
# ## A question from the forum
#
# A user of PyTorch trained a small classifier on padded sequences, with packing and without. Packing cost almost
# nothing in the forward pass. But on padded data it made the **backward** pass much slower. They asked whether that is
# normal. (*Slow pack_padded_sequence/pad_packed_sequence in backward pass*, on discuss.pytorch.org.)
#
# The batches: in setup **A** all sequences are equally long. In setup **B** the lengths count down and start over.

# %%
import packviz as pv
from packviz import lengths

assert lengths.equal(8, 5).tolist() == [5] * 8  # A
assert lengths.triangle(8, 5).tolist() == [5, 4, 3, 2, 1, 5, 4, 3]  # B
pv.show(lengths.triangle(8, 5))

# %% [markdown]
# Eight sequences of up to 5 steps are for looking at. Measured are 512, of up to 32 … 512 steps, the longest first. The
# network is the user's: an embedding, an LSTM, a linear layer at every step, padding set to zero, and the sum over the
# steps.

# %%
import torch

from packviz.studies.forum import network as forum, results, sweep

network = forum.Network()
b = results.setup_lengths("B", 512, 512)
ids, n, targets = forum.batch(b, 512, vocabulary=10, classes=2, seed=0, device="cpu")
padded = network(ids, n, forum.padded)
packed = network(ids, n, forum.packed)
assert torch.allclose(padded, packed, atol=1e-3)  # two ways to the same logits
print(network)
print(f"padding in B: {pv.Layout(b).n_padding / pv.Layout(b).n_cells:.0%} of the cells")

# %% [markdown]
# Both ways give the same, and packing computes half as many cells. Predict:

# %%
from packviz.lessons import ask, checks

ask("the price of packing")

# %%
cpu = sweep.recorded("benchmark_cpu.json")
last = cpu.steps("B")[-1]
assert cpu.ratio("packed", "padded", "B", last).value > 10
cpu

# %% [markdown]
# Left: the forward pass. Right: forward and backward. The upper row is setup A, the lower one B. Each point is the
# median of several rounds; half of the rounds lie within the thin line through it. Mind the scales: they differ.
#
# Which machine is this? A recorded file says so itself:

# %%
print(cpu.caption)
gpus = [name for name in sweep.STUDY.available() if sweep.recorded(name).provenance["device"] != "cpu"]
print("recorded on a GPU:", ", ".join(gpus) or "nothing yet (the user of the forum had one; the form below takes yours)")

# %% [markdown]
# ## How to read it
#
# **How high?** Compare two methods at the same point: they were measured in turn, so the ratio means something.

# %%
for setup in "AB":
    for which in ("forward", "training"):
        ratio = cpu.ratio("packed", "padded", setup, last, which)
        print(f"{setup}, {last} time steps, {which:8}  packed/padded = {ratio.value:.2g}")
assert 0.7 < cpu.ratio("packed", "padded", "A", last).value < 1.4
assert cpu.ratio("packed", "padded", "B", last, "forward").value < 3

# %% [markdown]
# In A, packing is nearly free, in both passes. In B it costs something in the forward pass, and in training a
# multiple, though it computes only half as much. That is what the user saw.
#
# **How fast does it grow?**

# %%
ask("twice the length")

# %%
short, long = 128, 512  # four times the length
for method in ("padded", "packed"):
    name = results.call_name(method, "training")
    growth = cpu.point("B", long).timing.median(name) / cpu.point("B", short).timing.median(name)
    print(f"B, training, {method}: {growth:.2g} times as long")
    assert growth < 6 if method == "padded" else growth > 8

# %% [markdown]
# Padded grows with the length. Packed grows faster, so no length is long enough for it to catch up. *Why* is counted
# in notebook 07.
#
# **How far to trust it?** Where the table has a `?`, the spread of the rounds is larger than the effect: the two are
# not told apart.

# %%
print(cpu)

# %% [markdown]
# The last columns hold the most memory in use at once. In B packing is ahead: no padding is kept, and the packed LSTM
# keeps less for each cell.

# %%
memory = cpu.point("B", last).timing.memory
assert memory["packed, training"] < 0.6 * memory["padded, training"]
print(f"B, {last} time steps, training: {memory['packed, training'] / memory['padded, training']:.2g} of the memory")

# %% [markdown]
# ## A fair clock
#
# The forum's script is careful: it warms up, and it waits for the GPU. Still its plots can mislead:
#
# - It takes **one mean** over one block of calls. A single pause moves it, and no spread is shown.
# - It warms up the *forward* pass only.
# - It times clearing the gradients and the loss along with the forward pass.
# - It measures one curve after the other.

# %%
ask("one curve after the other")

# %% [markdown]
# Here all four curves take turns: every round calls everything once, in an order drawn anew. Ratios are taken within
# rounds. Before any time is written down, the results of both ways are compared: logits and gradients. A fast wrong
# answer is worth nothing.

# %%
for point in cpu.points:
    assert point.difference["packed"] < point.tolerance
worst = max(point.difference["packed"] for point in cpu.points)
print(f"packed and padded differ by less than {'0.1 %' if worst < 1e-3 else '1 %'} everywhere")

# %% [markdown]
# ## Your machine
#
# Choose, then press **Start**. The notebook stays free meanwhile; after **Stop** the call that is running still ends.
# *Quick* takes seconds; *full* takes many minutes on a CPU, and says how many. The little marks under the axes are the
# sizes to come. Dashed: the recorded run.
#
# From a command line, papermill runs notebooks and sets the values of the next cell. `None` means: as *quick* or *full*
# has it.

# %% tags=["parameters"]
device = "cpu"
quick = True
setups = "A and B"
batch_size = None
shortest = None
longest = None
step = None
methods = "padded, packed"

# %%
from packviz.explorers import BenchmarkExplorer

explorer = BenchmarkExplorer(
    device,
    quick=quick,
    setups=setups,
    batch_size=batch_size,
    shortest=shortest,
    longest=longest,
    step=step,
    methods=methods,
)
explorer

# %% [markdown]
# From code: what the form will do follows its controls.

# %%
before = explorer.setups.value
explorer.setups.value = "B"
assert "setup B" in explorer.summary.value
assert explorer.to_text().count("Setup A") == cpu.to_text().count("Setup A")  # what was measured stays
explorer.setups.value = before

# %% [markdown]
# The same without a button, here and now. This is what runs headless.

# %% tags=["live-timing", "nbval-ignore-output"]
yours = explorer.measure()
assert not [point for point in yours.points if point.wrong]
print(yours)

# %% [markdown]
# Small batches and short sequences have few distinct lengths, so the effect is small too. Try *full*, if you have the
# time, or start it in a terminal. It shows the time left, and goes on where you stopped it:
#
# ```
# packviz bench --device cpu --setup A B --out mine.json
# packviz bench plot mine.json notebooks/recorded/benchmark_cpu.json --out compared.html
# ```

# %% [markdown]
# ## What people get wrong
#
# - **"Packing is slow."** For this network: not in A, and little in the forward pass. It is training on *many distinct
#   lengths*. Other networks differ: notebook 10.
# - **"I time it with `time.time()` on a GPU."** A call returns before the GPU has done its work. Wait for it, or use
#   CUDA events.
# - **"Run it once."** The first calls are slow; one call in a while is interrupted.
# - **"It took 12.3456 ms."** Look at the spread before you read the digits.

# %% [markdown]
# ## Exercise
#
# `a` and `b` are functions, `clock()` gives the seconds. How many times as long does `b` take as `a`? Four simulated
# machines wait for you: a quiet one, a cold one, one that gets tired, and a busy one.
#
# The longest code of all exercises. Start with one call of each; the check says which machine that fools.


# %% tags=["exercise"]
def my_ratio(a, b, clock):
    # solution
    def seconds(call):
        start = clock()
        call()
        return clock() - start

    for _ in range(5):
        a()
        b()
    ratios = sorted(seconds(b) / seconds(a) for _ in range(21))
    return ratios[10]
    # end solution


checks.fair_ratio(my_ratio)

# %% [markdown]
# ## You can now
#
# - run the forum's benchmark on any device, in a form, headless, or with `packviz bench`,
# - write a fair timing: warm up, take turns, compare within rounds, take the median,
# - read a plot: ratios at a point, growth along a curve, and the spread before the digits.
#
# Next: [07 Why the backward pass is slow](07_why_backward_is_slow.ipynb). Back:
# [03 Counting FLOPs](03_counting_flops.ipynb) · [00 Start here](00_start_here.ipynb)
