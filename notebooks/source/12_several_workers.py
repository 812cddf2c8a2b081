# %% [markdown]
# # Several workers
#
# **How do several processes share a batch of sequences of different lengths, and still compute the right gradient?**
#
# After this notebook, you can
#
# - form batches of similar lengths, new ones in every epoch,
# - share a batch so that no worker waits long for another,
# - weight a loss so that every token counts the same, whichever worker computed it.
#
# Time: 15 minutes.
#
# ## Batches of similar lengths
#
# Before a batch can be shared, it has to be formed. A padded batch is as wide as its longest sequence, so batches of
# similar lengths need less padding. But if you sort all the data by length, every epoch has the same batches. The usual
# compromise is *bucketing*: shuffle the data, sort a few batches' worth of it at a time (a *window*), cut each window
# into batches, and shuffle these. We take the 512 sentences of notebook 01, in batches of 32.

# %%
import torch

import packviz as pv
from packviz import batches
from packviz.lessons import ask, checks, sentences

lengths = [len(sentence) for sentence in sentences()]
layouts = {}
for order in ("shuffled", "bucketed", "sorted"):
    groups = batches.batches(lengths, 32, order, window=4)
    layouts[order] = [pv.Layout([lengths[i] for i in group]) for group in groups]
pv.draw.padding_waste(layouts)

# %% [markdown]
# `pv.BucketSampler`, a sampler for torch's `DataLoader`, forms such batches. They differ from epoch to epoch, and so do
# their widths:

# %%
data = [torch.zeros(length, 32) for length in lengths]
sampler = pv.BucketSampler(lengths, 32, window=4)
loader = torch.utils.data.DataLoader(data, batch_sampler=sampler, collate_fn=torch.nn.utils.rnn.pad_sequence)
for epoch in (1, 2):
    print(f"epoch {epoch}, widths of the first batches:", *[len(batch) for batch in loader][:6])

# %% tags=["claims"]
padding = {order: sum(layout.n_padding for layout in some) for order, some in layouts.items()}
share = {order: padding[order] / sum(layout.n_cells for layout in some) for order, some in layouts.items()}
assert {order: round(100 * part) for order, part in share.items()} == {"shuffled": 64, "bucketed": 35, "sorted": 14}
first, second = list(sampler), list(sampler)
assert sorted(i for batch in first for i in batch) == list(range(len(lengths)))
assert first != second

# %% [markdown]
# How much does a larger window help?

# %%
ask("a larger window")

# %% [markdown]
# To check your answer, choose *bucketed* in the panel and move *window*. Then increase *workers*. A *worker* is a
# process that computes a share of each batch. We measure its work in *tokens*, the real cells of its share, as if
# padding took no time. The worker with the most tokens keeps the others waiting.

# %%
from packviz.panels import BatchingPanel

panel = BatchingPanel([len(sentence) for sentence in sentences()], workers=1)
panel

# %% tags=["claims"]
panel.order.value, panel.workers.value, shares = "bucketed", 2, []
for window in (1, 2, 4, 8, 16):
    panel.window.value = window
    shares.append((panel.load.padding, batches.idle(panel.tokens)))
assert shares == sorted(shares, reverse=True)
assert [round(100 * padding / (padding + sum(lengths))) for padding, _ in shares] == [64, 51, 35, 24, 14]
panel.order.value = "sorted"
assert shares[-1][0] == panel.load.padding  # a window over all batches sorts everything

# %% [markdown]
# ## Who gets which sequences?
#
# Often each worker has a GPU of its own. In torch, `DistributedDataParallel` (DDP) gives each worker a copy of the
# model and averages the gradients of all workers. Suppose two workers share a *ragged* batch: 64 sequences of different
# lengths, sorted with the longest first. There are several ways to divide it:
#
# - **contiguous**: worker 0 gets the longer half,
# - **strided**: they take turns, 0 1 0 1 …,
# - **snake**: they take turns in alternating order, 0 1 1 0 0 1 …
#
# Each worker computes the mean loss of its own tokens, and DDP averages the two gradients.

# %%
ask("mean of means")

# %% [markdown]
# To see how large the mistake is, we train a GRU for one step in two processes and compare their averaged gradient with
# the gradient that a single process computes from the whole batch. The *error* is the norm of the difference, divided
# by the norm of the right gradient.

# %%
from packviz.studies import processes

found = processes.compare()
print(found)
found.chart()

# %% [markdown]
# If each worker takes the mean over its own tokens (*mean of means*), the gradient is wrong unless all have the same
# number of tokens. The error is large for the contiguous shares and small for the nearly equal ones. A *token-weighted*
# loss, in which every token counts the same, removes the error however the batch is divided. For this loss, each worker
# needs the total number of tokens:
#
# ```python
# total = torch.tensor(my_tokens, device=device)
# torch.distributed.all_reduce(total)  # adds up over all workers
# ```
#
# To average, DDP divides the sum of the gradients by the number of workers, `torch.distributed.get_world_size()`. You
# write the token-weighted loss in the exercise.

# %% tags=["claims"]
for strategy in ("contiguous", "strided", "snake"):
    assert found.errors[strategy]["token-weighted"] < 1e-6
assert found.errors["contiguous"]["mean of means"] > 0.1
assert found.errors["snake"]["mean of means"] > 1e-4
assert found.tokens("contiguous") == [2136, 641]  # as in the question

# %% [markdown]
# ## How long does a step take?

# %% tags=["live-timing", "nbval-ignore-output"]
print(found.times())

# %% [markdown]
# If the batch is divided contiguously, one worker has most of the tokens, and the other waits for it. If the workers
# take turns, both have about the same number of tokens. But each also gets a long sequence, so both go through all 128
# time steps. The steps follow one another, and each has a fixed cost, so half the tokens do not take half the time.
#
# `processes.compare(my_lengths, processes=4)` compares the strategies for your own lengths and number of processes.
#
# ## What people get wrong
#
# - **"DDP averages the loss."** It averages gradients, with the same weight for each worker.
# - **Outputs of different widths.** Each worker pads to its *own* longest sequence, so you cannot concatenate their
#   outputs. On all workers, pass the same `total_length` to `pad_packed_sequence` or `pv.run`.
# - **A list of lengths under `DataParallel`.** This older class uses one process for several devices. It splits tensors
#   among them, but gives each device the whole list. Pass a tensor, and call `lengths.cpu()` before packing.

# %% tags=["claims"]
n = torch.tensor([9, 7, 3, 2])
x, rnn = torch.randn(4, 9, 3), torch.nn.GRU(3, 5, batch_first=True)
halves = [(x[:2], n[:2]), (x[2:, :3], n[2:])]  # what two workers hold
assert [pv.run(rnn, *half)[0].shape[1] for half in halves] == [9, 3]
common = torch.cat([pv.run(rnn, *half, total_length=9)[0] for half in halves])
assert torch.allclose(common, pv.run(rnn, x, n)[0], atol=1e-6)

# %% [markdown]
# ## Exercise
#
# A worker has the losses of its own tokens, of shape `(N,)`. It also knows two numbers: `total_tokens`, the sum over
# all workers, and `workers`, their number. Return the loss on which it calls `backward()`, so that the workers' average
# gradient is that of the mean over **all** tokens.


# %% tags=["exercise"]
def my_loss(losses, total_tokens, workers):
    # solution
    return losses.sum() * workers / total_tokens
    # end solution


checks.worker_loss(my_loss)

# %% [markdown]
# ## You can now
#
# - form batches of similar lengths with `pv.BucketSampler`,
# - deal the sequences to the workers in turn, not in contiguous blocks, so that no worker waits long,
# - weight the loss by tokens, so that the averaged gradient is that of the whole batch.
#
# Next: [13 Static graphs](13_static_graphs.ipynb). Back: [11 Should you pack?](11_should_you_pack.ipynb) · [00 Start
# here](00_start_here.ipynb)
