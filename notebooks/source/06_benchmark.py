# %% [markdown]
# # The benchmark
#
# **How long do packing and unpacking take, forward and backward, on your machine?**
#
# After this page you can
#
# - run the benchmark of a well-known forum question on your own device, here or from a terminal,
# - tell a fair timing from an unfair one, and write one yourself,
# - read such a plot: how high, how fast it grows, how far to trust it.
#
# Time: 15 minutes.
#
# > **What to do**
# >
# > - Before you pack, or stop packing, measure: `pv.advise(rnn, lengths)` does it fairly for your RNN (notebook 10).
# > - You train on packed batches of many distinct lengths, on a CPU: `pv.run` gives the same results in a fraction of the
# >   time (notebook 08).
# > - Short of memory? Packing is worth a look all the same: it keeps no padding.
# > - Believe a ratio only if it was taken in turns, over several rounds, and its spread does not reach 1.

# %%
from packviz.studies import benchmark

print(benchmark.STUDY.without_gpu())

# %% [markdown]
# ## A question from the forum
#
# On PyTorch's forum, discuss.pytorch.org, a user asked about *Slow pack_padded_sequence/pad_packed_sequence in backward
# pass*. They trained a small classifier with packing and without. Where all sequences were equally long, packing cost
# almost nothing. On padded data it made the **backward** pass much slower. Is that normal?
#
# In setup **A** all sequences are equally long. In setup **B** the lengths count down and start over:

# %%
import packviz as pv
from packviz import lengths

pv.show(lengths.triangle(8, 5))

# %% [markdown]
# This is B for 8 sequences of up to 5 steps. Measured are 512 sequences, the longest first, of up to 32, 64, … 512 steps.
# The network is the user's: an embedding, an LSTM, a linear layer at every step, padding set to zero, and the sum over
# the steps.

# %%
from packviz.studies import network

model = network.Network()
b = pv.Layout(benchmark.setup_lengths("B", 512, 512))
print(model)
print(f"padding in B: {100 * b.n_padding / b.n_cells:.0f} % of the cells")

# %% tags=["claims"]
import torch

assert lengths.equal(8, 5).tolist() == [5] * 8  # A
assert lengths.triangle(8, 5).tolist() == [5, 4, 3, 2, 1, 5, 4, 3]  # B
ids, n, targets = network.batch(b.lengths, 512)
assert torch.allclose(model(ids, n, network.padded), model(ids, n, network.packed), atol=1e-3)  # the same logits

# %% [markdown]
# Padded or packed, the logits are the same, and packing computes half as many cells. Predict:

# %%
from packviz.lessons import ask, checks

ask("the price of packing")

# %%
machines = benchmark.recordings()  # every machine that was recorded
benchmark.by_machine(machines, "ratio").chart()

# %% [markdown]
# Both axes are logarithmic. On the line at 1 packing costs nothing.
#
# A ratio is taken within a round, between two calls that have met the same machine. The marks show the median of these
# ratios, the whiskers their quartiles. Hover over a mark to read its number. (The ratio of two medians may differ.)
#
# On the CPU: in A, packing is nearly free. In B it costs something in the forward pass, and in training a multiple,
# though it computes only half as much. That is what the user saw.

# %% tags=["claims"]
cpu = benchmark.recorded("benchmark_cpu.json")  # what the text says of times, it says of this one
last = cpu.steps("B")[-1]
assert cpu.ratio("packed", "padded", "B", last).value > 10
assert cpu.ratio("packed", "padded", "B", last, "forward").value < 3
assert 0.7 < cpu.ratio("packed", "padded", "A", last).value < 1.4
assert not any(found.left_out for found in machines.values())

# %% [markdown]
# ## How fast does it grow?

# %%
ask("twice the length")

# %%
benchmark.by_machine(machines, "time").chart()

# %% [markdown]
# The thin lines: twice the length takes twice the time (slope 1), or four times (slope 2). On the CPU padded follows the
# first. Packed training in B follows the second: no length is long enough for it to catch up. *Why* is counted in
# notebook 07. (Where the curves bend, beyond 256, B's second countdown is cut short: there is less padding.)
#
# ## What packing is good for
#
# Peak memory:

# %%
benchmark.by_machine(machines, "memory").chart()

# %% [markdown]
# On the CPU packed training in B needs far less than padded: no padding is kept, and the packed LSTM keeps less for each
# cell. A batch that does not fit padded may fit packed.

# %% tags=["claims"]
short, long = (cpu.at("B", steps)["training"] for steps in (128, 512))  # four times the length
for method, most in (("padded", 6), ("packed", 32)):
    growth = long.median(method) / short.median(method)
    assert (8 if method == "packed" else 2) < growth < most
assert long.memory["packed"] < 0.6 * long.memory["padded"]

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
# Here the methods take turns: every round calls each of them once, in an order drawn anew. Before any time is written
# down, their logits and gradients are compared: a fast wrong answer is worth nothing.
#
# A median of a few rounds is an estimate. Each round lies above the true median with probability 1/2, so counting tells
# how far off it may be: the true one lies between the smallest and the largest of 6 rounds in 97 of 100 cases. More rounds
# make this *confidence interval* narrower. Where the interval of a ratio holds 1, the rounds do not tell the two apart, and
# the table says `?`.
#
# Every picture says below what it was measured on. Look at the *load*: one busy thread is 1. A load above the number of
# cores means that the machine is busy, and that times mean little.

# %% [markdown]
# ## Your machine
#
# Choose, then press **Start**, and read on meanwhile. *Quick* takes seconds; *full* takes many minutes on a CPU, and says
# how many. A recorded run is dashed; its times are left out where its batch is not as large as yours.

# %% tags=["parameters"]
device = "cpu"
quick = True
setups = "A and B"
batch_size = None  # as quick or full has it; so with the next three
shortest = None
longest = None
step = None
methods = "padded, packed"

# %%
from packviz.explorers import BenchmarkExplorer

sizes = {"batch_size": batch_size, "shortest": shortest, "longest": longest, "step": step}
explorer = BenchmarkExplorer(device, quick=quick, setups=setups, methods=methods, **sizes)
explorer

# %% [markdown]
# The same without a button, here and now:

# %% tags=["live-timing", "nbval-ignore-output"]
yours = explorer.measure()
print(yours)

# %% tags=["claims"]
assert not yours.left_out

# %% [markdown]
# Small batches and short sequences have few distinct lengths, so the effect is small too. Try *full*, or start it in a
# terminal. It shows the time left, and goes on where you stopped it:
#
# ```
# packviz bench --device cpu --setup A B --out mine.json
# packviz bench plot mine.json notebooks/recorded/benchmark_cpu.json --out compared.html
# ```
#
# Saved as `notebooks/recorded/benchmark_NAME.json`, yours is drawn in the pictures above, too.

# %% [markdown]
# ## What people get wrong
#
# - **"Packing is slow."** For this network: not in A, and far less in the forward pass. It is training on *many
#   distinct lengths*. Other networks differ: notebook 10.
# - **"I time it with `time.time()` on a GPU."** A call returns before the GPU has done its work. Wait for it, or use
#   CUDA events.
# - **"It took 12.3456 ms."** Look at the spread before you read the digits.

# %% [markdown]
# ## Exercise
#
# `a` and `b` are functions, `clock()` gives the seconds. How many times as long does `b` take as `a`? Four simulated
# machines wait for you: a quiet one, a cold one, one that gets tired, and a busy one. Start with one call of each; the
# check says which machine that fools.


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
