# %% [markdown]
# # The benchmark
#
# **How long do packing and padding take, forward and backward, on your machine?**
#
# Your colleague's laptop says that packing is free. Your server says that it is ten times slower. You run it once more,
# and now it is six. Who is right, and what would convince either of you?
#
# After this page, you can run a well-known benchmark on your own device, write a fair timing of your own, and read a
# timing plot.
#
# Time: 18 minutes.
#
# <details><summary>Where we are in the ten lines: <b>packed</b> to <b>output</b>, and <b>backward</b></summary>
#
# ```text
#   sequences = [torch.tensor([3, 1, 4]), torch.tensor([1, 5, 9, 2, 6]), torch.tensor([5, 3]), torch.tensor([5, 8, 9, 7])]
#   lengths = torch.tensor([len(s) for s in sequences])                        # (4,)       3, 5, 2, 4: on the CPU
#   x = pad_sequence(sequences, batch_first=True)                              # (4, 5)     padded with 0
#   embedded = embedding(x)                                                    # (4, 5, 6)
# → packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)   # data: (14, 6)
# → packed_output, (h_n, c_n) = lstm(packed)                                   # data: (14, 8); h_n: (1, 4, 8)
# → output, _ = pad_packed_sequence(packed_output, batch_first=True)           # (4, 5, 8)
#   scores = linear(output)                                                    # (4, 5, 3)
#   mask = torch.arange(5) < lengths[:, None]                                  # (4, 5)     True at the 14 real cells
# → loss = cross_entropy(scores[mask], tags[mask])                             # ()         then loss.backward()
# ```
#
# </details>

# %%
import os
import subprocess
import sys
from importlib.util import find_spec

if find_spec("packviz") is None:  # on Colab; where packviz is installed, this cell does nothing
    address = "https://github.com/owner/name"  # your copy
    subprocess.run(["git", "clone", "--depth", "1", address, "checkout"], check=True)
    packages = ["./checkout", "anywidget", "ipywidgets", "plotly", "tqdm"]
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *packages], check=True)
    os.chdir("checkout/notebooks")

# %%
import packviz as pv
from packviz import lengths
from packviz.lessons import ask, checks
from packviz.studies import forum, network

print(forum.STUDY.without_gpu())

# %% [markdown]
# ## Is that normal?
#
# On PyTorch's forum, discuss.pytorch.org, a user asked about *Slow pack_padded_sequence/pad_packed_sequence in backward
# pass*. They trained a small classifier with and without packing. Packing cost almost nothing when all sequences had
# the same length. On a batch with a lot of padding, it made the **backward** pass much slower. Is that normal?
#
# The question compares two setups. In **A**, all sequences have the same length. In **B**, the lengths count down to 1
# and then start again from the longest. Here is B for 8 sequences of up to 5 steps:

# %%
pv.show(lengths.triangle(8, 5))

# %% [markdown]
# The benchmark uses 512 sequences, sorted by length. The longest has 32, 64, … or 512 steps. The model is the user's:
# an embedding, an LSTM, a linear layer at every step, and the sum of its outputs over the real steps.

# %%
model = network.Network()
b = pv.Layout(forum.setup_lengths("B", 512, 512))
print(model)
print(f"padding in B: {100 * b.n_padding / b.n_cells:.0f} % of the cells")

# %% tags=["claims"]
import torch

assert lengths.equal(8, 5).tolist() == [5] * 8  # A
assert lengths.triangle(8, 5).tolist() == [5, 4, 3, 2, 1, 5, 4, 3]  # B
shares = [pv.Layout(lengths.triangle(count, steps)).n_padding / (count * steps) for count, steps in [(8, 5), (10, 5)]]
assert shares[0] < shares[1] < 0.41 < b.n_padding / b.n_cells < 0.5  # less in an incomplete countdown, and a short one
ids, n, targets = network.batch(b.lengths, 512)
assert torch.allclose(model(ids, n, network.padded), model(ids, n, network.packed), atol=1e-3)  # the same logits

# %% [markdown]
# The picture has less padding, because its second countdown stops early and its sequences are short.
#
# The model returns the same logits for padded and packed batches, because its LSTM has one direction, and only real
# steps count. In setup B, packing halves the cells. How does this affect the time?

# %%
ask("the price of packing")

# %%
machines = forum.recordings()  # every machine that was recorded
cpu = forum.STUDY.load()  # what the text says of times, it says of this one
forum.ratios(cpu, ["padded", "packed"])

# %% [markdown]
# Both axes are logarithmic. On the line at 1, packed and padded take the same time. ([Notebook
# 07](07_counting_flops.ipynb) says how to read our timings. In tables, *no clear difference* marks a ratio that
# may be 1.)
#
# There is the answer to your colleague: both of you are right. In setup A, packing costs next to nothing, because torch
# 2.13 runs packed data of equal lengths on the same fused kernel as padded data. In B, a packed training step does half
# the work, and takes many times as long. And the factor depends on the length: it grows and grows.

# %% tags=["claims"]
in_a, in_b = forum.point("A", 512), forum.point("B", 512)
assert cpu.ratio(in_b, "packed", "padded").value > 10
assert 0.75 < cpu.ratio(in_a, "packed", "padded").value < 1.3
forward = [cpu.ratio(point, "packed", "padded", "forward").value for point in (in_a, in_b)]
assert forward[0] < forward[1] < 4
factors = [cpu.ratio(forum.point("B", t), "packed", "padded").value for t in (64, 128, 256, 512)]
assert factors == sorted(factors)
assert not any(found.left_out for found in machines.values())

# %% [markdown]
# ## How fast does it grow?

# %%
ask("twice the length")

# %%
forum.chart(machines, "time").chart()

# %% [markdown]
# The thin lines show two kinds of growth. With slope 1, twice the length takes twice the time; with slope 2, four times
# the time. On this CPU, padded training stays near slope 1. Packed training in B is near slope 2. [Notebook
# 09](09_why_training_is_slow.ipynb) finds the causes, and one of them is in the caption: the *allocator*, which hands
# out memory. (The padded run, by the way, reads its final states after the padding. Its final states are wrong, but
# this model does not use them.)
#
# Is there nothing that packing gains?
#
# ## What does it gain?
#
# Look at the *peak memory* of a step, the most memory that it uses at any time:

# %%
forum.chart(machines, "memory").chart()

# %% [markdown]
# On this CPU, packed training in B needs far less memory than padded training. No padding is kept for the backward
# pass, and if lengths differ, torch runs a packed LSTM step by step, which keeps less for each cell than the fused
# kernel. So a batch that is too large when padded may fit when packed. (This counts torch's tensors. How much memory
# the process holds depends on the allocator, too.)

# %% tags=["claims"]
short, long = (cpu.timing(forum.point("B", steps)) for steps in (128, 512))  # four times the length
for method, most in (("padded", 8), ("packed", 64)):
    growth = long.median(method) / short.median(method)
    assert (8 if method == "packed" else 2) < growth < most
assert long.memory["packed"] < 0.6 * long.memory["padded"]
assert long.memory["packed"] / b.n_real < 0.9 * long.memory["padded"] / b.n_cells  # for each cell

# %% [markdown]
# So much for what we measured. But why should you believe it?
#
# ## What is a fair clock?
#
# The script from the forum is careful. It *warms up* (it runs the model a few times before starting the clock), and it
# waits for the GPU. But it takes **one mean** over a block of calls and shows no spread, so a single pause moves the
# result unnoticed. It warms up only the *forward* pass and measures one curve after the other.

# %%
ask("one curve after the other")

# %% [markdown]
# In packviz, each method is called once in every round, in random order. A ratio is computed *within* a round, and you
# see the median, which a single pause hardly moves. Whiskers show quartiles. A *confidence interval* says how far off
# the median itself may be. If the interval of a ratio contains 1, the rounds do not show which of the two is faster.
#
# We compare the results before timing anything, because a fast wrong answer is worthless. If the load exceeds the
# number of cores, other programs were probably running, and the times mean little. And if a laptop slows down
# meanwhile, packed does not look slower than it is.
#
# ## And on your machine?
#
# Now run the benchmark here. *Quick* takes seconds; without it, the benchmark takes many minutes on a CPU. Dashed lines
# show the recorded results.

# %% tags=["parameters"]
device = "cpu"
quick = True
setups = "A and B"
methods = "padded, packed"

# %% tags=["live-timing", "nbval-ignore-output"]
names = methods.split(", ")
small = str(quick).lower() != "false"  # papermill's -p quick false may pass a string
steps, batch_size = (forum.QUICK_STEPS, forum.QUICK_BATCH) if small else (forum.FULL_STEPS, forum.FULL_BATCH)
points = forum.grid(setups.split(" and "), steps, batch_size)
yours = forum.STUDY.run(points, device=device, methods=names, progress=True)
forum.chart({"yours": yours, **forum.recordings(names)}, "ratio", methods=names).chart()

# %% tags=["claims"]
assert not yours.left_out

# %% [markdown]
# For a few short sequences, the effect is small. Set `quick = False`, or use a terminal, where you can stop and resume
# the benchmark:
#
# ```
# packviz bench --device cpu --setup A B --out mine.json --plot mine.svg
# ```
#
# If you save your results as `notebooks/recorded/benchmark_NAME.json`, the pictures above show them as well.
#
# <details><summary>No GPU? Borrow one from Colab</summary>
#
# The user on the forum measured on a GPU, and our recording is a CPU's. You can close the gap. Open this notebook on
# Google Colab, choose a GPU under *Runtime → Change runtime type*, and run the first cell, which installs packviz from
# the address in it (in a copy of the repository, `make badge REPO=owner/name` writes yours there, and prints a badge
# that opens the page). Then set `device = "cuda"` above, and run all cells. The benchmark then times with CUDA events,
# so that no call counts as done before the GPU has finished.
#
# </details>
#
# ## What people get wrong
#
# - **"Packing is slow."** For this model on this CPU, it is slow in *training*, when the lengths differ. For other
#   models, see [notebook 11](11_should_you_pack.ipynb).
# - **"I measure with `time.time()` on a GPU."** A call may return before the GPU has finished. Wait for it with
#   `torch.cuda.synchronize()`, or use CUDA events.
# - **"It took 12.3456 ms."** Look at the spread before you read the digits.

# %% [markdown]
# ## Exercise
#
# `a` and `b` are functions, and `clock()` returns the time in seconds. Return the time of `b` divided by that of `a`.
# Your function is tried on four simulated machines: a quiet one, one whose first calls are slow, one that becomes
# slower and slower, and a busy one. Start with one timed call of each, and the check tells you which machine misleads
# you.


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
# - run the benchmark on your device, in a cell or with `packviz bench`,
# - time two methods fairly: warm up, take turns, compare within rounds, take the median,
# - read a timing plot: ratios at a point, growth along a curve, and the spread before the digits.
#
# A curve of slope 2 has a cause. Which one?
#
# Next: [09 Why training is slow](09_why_training_is_slow.ipynb). Back: [07 Counting FLOPs](07_counting_flops.ipynb) ·
# [00 Start here](00_start_here.ipynb)
