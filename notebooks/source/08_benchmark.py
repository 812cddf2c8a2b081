# %% [markdown]
# # The benchmark
#
# **How long do packing and padding take, forward and backward, on your machine?**
#
# Your colleague has timed packing on a laptop, and shrugs. You have timed it on your server, and cannot believe the
# number. So you run the same code once more, and now the number is a third smaller. Who is right, and what would
# convince either of you?
#
# After this page, you can time two methods so that even your colleague believes the result.
#
# Time: 20 minutes, with the exercise.
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

if find_spec("packviz") is None:  # on Colab (see "No GPU?" below); where packviz is installed, this cell does nothing
    address = "https://github.com/owner/name"  # your copy
    subprocess.run(["git", "clone", "--depth", "1", address, "checkout"], check=True)
    packages = ["./checkout", "anywidget", "ipywidgets", "plotly", "tqdm"]
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *packages], check=True)
    os.chdir("checkout/notebooks")

# %%
from IPython.display import clear_output

import packviz as pv
from packviz import lengths
from packviz.lessons import ask, checks
from packviz.studies import forum, network

print(forum.STUDY.without_gpu())

# %% [markdown]
# ## Is that normal?
#
# A user of PyTorch's forum, discuss.pytorch.org, could not believe a number either. They had trained a small
# classifier, with and without packing, on two kinds of batches, and asked whether what they saw was normal. They
# posted their script, so we can repeat the experiment.
#
# The script compares two setups. In **A**, all sequences have the same length. In **B**, the lengths count down to 1
# and then start again from the longest. Here is B for 8 sequences of up to 5 steps:

# %%
pv.show(lengths.triangle(8, 5))

# %% [markdown]
# The benchmark uses 512 such sequences, but sorts them first, longest first. The longest has 32, 64, … or 512 steps.
# The model is the user's: an embedding, an LSTM, a linear layer at every step, and the sum of its outputs over the
# real steps.

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
assert torch.allclose(model(ids, n, network.padded), model(ids, n, network.METHODS["packed"]), atol=1e-3)  # the same logits

# %% [markdown]
# Half of the cells.
#
# The model returns the same logits for padded and packed batches, because its LSTM has one direction and only real
# steps count. So packing changes nothing but the work. How does packing affect the time? Write down a number before
# you choose an answer.

# %%
ask("the price of packing")

# %% [markdown]
# Both axes of the chart are logarithmic. On the line at 1, packed and padded take the same time. ([Notebook
# 07](07_counting_flops.ipynb) explains how to read our timings.)

# %%
machines = forum.recordings()  # every machine that was recorded
cpu = forum.STUDY.load()  # what the text says of times, it says of this one
forum.ratios(cpu, ["padded", "packed"])

# %% [markdown]
# Look at B, at the right end. Half the work takes over thirty times as long: about a second for a padded step, and
# over half a minute for a packed one. <!-- recorded --> Had you written down a smaller number? So had we.
#
# Is the whole step slow? We timed the forward pass alone, too, without recording it for
# autograd. There, a packed B takes between 0.5 and 1.3 times as
# long as a padded one. <!-- recorded --> Nobody would write to a forum about that. So the way back must be slow, as
# the user had seen on a GPU: they called their question *Slow pack_padded_sequence/pad_packed_sequence in backward
# pass*.
#
# And in setup A? Nothing happens. If all lengths are equal, torch 2.13 runs this packed LSTM like the padded one, on
# oneDNN's fused kernel. Perhaps your colleague's lengths were equal, and a shrug was right. For a ragged batch,
# there is not even *one* number: the factor is about three at 32 steps, and it has only begun to
# grow. <!-- recorded -->

# %% tags=["claims"]
in_a, in_b = forum.point("A", 512), forum.point("B", 512)
assert cpu.ratio(in_b, "packed", "padded").value > 30
assert 0.75 < cpu.ratio(in_a, "packed", "padded").value < 1.3
forward = [cpu.ratio(forum.point("B", t), "packed", "padded", "forward").value for t in forum.FULL_STEPS]
assert 0.5 < min(forward) < max(forward) < 1.35
factors = [cpu.ratio(forum.point("B", t), "packed", "padded").value for t in (32, 64, 128, 256, 512)]
assert factors == sorted(factors)
climbed = [cpu.timing(forum.point("B", t)).median("packed") for t in (32, 128, 256, 512)]
assert 7 < climbed[2] / climbed[1] < 8.5
assert climbed[3] / climbed[0] > 16**2
assert 2.5 < factors[0] < 3.5
assert not any(found.left_out for found in machines.values())

# %% [markdown]
# ## How fast does it grow?

# %%
ask("twice the length")

# %% [markdown]
# The chart shows the times themselves, as medians. (We took the ratios above within each round, so they need not be
# quotients of these.) The chart's thin lines show two kinds of growth. With slope 1, twice the length takes
# twice the time. With slope 2, it takes four times the time.

# %%
forum.chart(machines, "time").chart()

# %% [markdown]
# On this CPU, padded training stays near slope 1. From end to end, the line of packed training in B is a little steeper
# than slope 2. But it does not climb evenly.
#
# There is a cliff. Look at B between 224 and 256 steps. One seventh more time steps, and a packed training step takes
# nearly three times as long. <!-- recorded --> Nothing changes there that you could see: not the model, not the code,
# and hardly the pattern of the lengths. The cliff looks like a slip of the clock. It is not one. [Notebook
# 09](09_why_training_is_slow.ipynb) explains the slope and the cliff, which have different causes. (A hint
# is in the caption: the *allocator*, which hands out memory.)
#
# In B, packing has done nothing but lose in training so far.
#
# ## What does it gain?
#
# Look at the *peak memory* of a step, the most memory that it uses at any time:

# %%
forum.chart(machines, "memory").chart()

# %% [markdown]
# Here, packing wins, and clearly. At 512 steps in B, packed training needs 278 MB, and padded training 773. Half of the
# cells are gone, and that is only the first reason. The second is the kernel. If lengths differ, torch runs a packed
# LSTM on a CPU step by step, and keeps less for each cell than the fused kernel does. So a batch that is too large when
# padded may fit when packed. (The chart counts torch's tensors. How much memory the process holds depends on the
# allocator, too.)

# %% tags=["claims"]
short, long = (cpu.timing(forum.point("B", steps)) for steps in (128, 512))  # four times the length
for method, most in (("padded", 8), ("packed", 64)):
    growth = long.median(method) / short.median(method)
    assert (8 if method == "packed" else 2) < growth < most
assert long.memory["packed"] < 0.6 * long.memory["padded"]
assert long.memory["packed"] / b.n_real < 0.9 * long.memory["padded"] / b.n_cells  # for each cell

# %% [markdown]
# So much for what we measured. But why should you believe it? Your own number has changed by a third between two runs.
#
# ## What is a fair clock?
#
# The script from the forum is careful. It *warms up* (it runs the model a few times before starting the clock), and
# waits for the GPU. But it takes **one mean** over a block of calls, and shows no spread. A single pause moves the
# result, and nobody notices. The warm-up covers only the *forward* pass. And the script measures one curve after the
# other.

# %%
ask("one curve after the other")

# %% [markdown]
# So methods must take turns. In packviz, each method is called once in every round, in random order. A ratio is
# computed *within* a round, and you see the median, which a single pause hardly moves. If a laptop slows down during a
# round, it slows down for all methods. Whiskers show quartiles. A *confidence interval* shows how far off the median
# itself may be. If the interval of a ratio contains 1, the rounds do not show which method is faster.
#
# Before timing, we compare the results, because a fast wrong answer is worthless. And we look at the machine's load.
# If it exceeds the number of cores, other programs were probably running, and the times mean little.
#
# And your server, whose second number was a third smaller? It may have had no pause at all. The second run began
# where the first had ended, in the same Python process, and found memory that the first one had left. Such memory can
# make a packed step faster, as notebook 09 shows. So in our recordings, each method has a process of its own, and
# inherits nothing. The processes take turns. And your two numbers? Both may be right. They answer different questions.
#
# Enough of our machine.
#
# ## And on your machine?
#
# Now run the benchmark here. With `quick = True`, it takes seconds; otherwise, many minutes on a CPU. Dashed lines
# show the recorded results. (The quick batches have 64 sequences instead of 512, and all methods share one process, so
# the lines need not agree. `packviz bench` starts a process for each.)

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
clear_output(wait=True)  # removes the line of the progress bar
forum.chart({"yours": yours, **forum.recordings(names)}, "ratio", methods=names).chart()

# %% tags=["claims"]
assert not yours.left_out

# %% [markdown]
# These few sizes end at 128 steps, well before the cliff. Set `quick = False`, or use a terminal, where you can stop
# and resume the benchmark:
#
# ```
# packviz bench --device cpu --setup A B --out mine.json --plot mine.svg
# ```
#
# If you save your results as `notebooks/recorded/benchmark_NAME.json`, the charts of time and memory show them, too.
#
# <details><summary>No GPU? Borrow one from Colab</summary>
#
# The user on the forum measured on a GPU, but our recording is from a CPU. You can close the gap.
#
# 1. Colab installs packviz from a public copy of its repository on GitHub. The first cell has the address. If it still
#    says `owner/name`, put your copy's name there. (In a checkout, `make badge REPO=owner/name` does so, and prints a
#    badge that opens this page on Colab.)
# 2. On Colab, choose a GPU under *Runtime → Change runtime type*. Then run the first cell.
# 3. Set `device = "cuda"` above, and run the other cells. The benchmark then uses CUDA events as its clock, so that
#    no call counts as done before the GPU has finished.
#
# </details>
#
# ## What people get wrong
#
# - **"Packing is slow."** For this model on this CPU, it is slow in *training*, on ragged batches. For other models,
#   see [notebook 11](11_should_you_pack.ipynb).
# - **"I measure with `time.time()` on a GPU."** A call may return before the GPU has finished. Wait for it with
#   `torch.cuda.synchronize()`, or use CUDA events.
# - **"It took 12.3456 ms."** Look at the spread before you read the digits.

# %% [markdown]
# ## Exercise
#
# `a` and `b` are functions, and `clock()` returns the time in seconds. Return the time of `b` divided by that of `a`.
# Your function is tried on four simulated machines: a quiet one, one whose first calls are slow, one that becomes
# slower and slower, and a busy one. Start with one timed call of each function, and the check tells you which machine
# misleads you.


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
# - run the forum's benchmark on your device, in a cell or with `packviz bench`,
# - time two methods fairly: warm up, take turns, compare within rounds, take the median,
# - explain why two honest runs can disagree: because of a pause, a hot laptop, or memory that the first run left
#   behind.
#
# But a cliff has a cause, and so has a slope. What are they?
#
# Next: [09 Why training is slow](09_why_training_is_slow.ipynb). Back: [07 Counting FLOPs](07_counting_flops.ipynb) ·
# [00 Start here](00_start_here.ipynb)
