# %% [markdown]
# # Several processes
#
# **How do several processes share a batch of sequences of different lengths, and still compute the right gradient?**
#
# The batch does not fit into memory. So you take it in two halves, add up their gradients, and make one optimiser step:
# *gradient accumulation*. A colleague has two GPUs and gives each of them one half. Both losses fall, so two halves
# seem to make a whole. Has either of you ever checked?
#
# After this page, you can share a batch of different lengths among several backward passes or several processes, get
# the gradient that you mean, and say who waits for whom.
#
# Time: 15 minutes, with the exercise.
#
# <details><summary>Where we are in the ten lines: <b>lengths</b> and <b>loss</b></summary>
#
# ```text
#   sequences = [torch.tensor([3, 1, 4]), torch.tensor([1, 5, 9, 2, 6]), torch.tensor([5, 3]), torch.tensor([5, 8, 9, 7])]
# → lengths = torch.tensor([len(s) for s in sequences])                        # (4,)       3, 5, 2, 4: on the CPU
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
# ## Do two halves make a whole?
#
# Here are 64 sequences, the longest first. We cut the batch in the middle: the 32 longest sequences go into the first
# half, and the others into the second. At every token, a GRU with a linear layer guesses the sequence's length, so
# there is one loss per token.

# %%
import torch
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

import packviz as pv
from packviz import batches
from packviz.lessons import ask, checks, sentences

# %%
torch.manual_seed(0)
lengths = sorted(pv.lengths.log_normal(64, 128).tolist(), reverse=True)
data, targets = ([torch.randn(n, 16) for n in lengths], [torch.full((n, 1), n / 128) for n in lengths])
gru, linear = torch.nn.GRU(16, 32), torch.nn.Linear(32, 1)
weights = [*gru.parameters(), *linear.parameters()]


def token_losses(part):  # (N,), one loss per token
    packed, _ = gru(pack_sequence(data[part]))
    return (linear(packed.data) - pack_sequence(targets[part]).data).square().flatten()


halves = [slice(0, 32), slice(32, 64)]
print("tokens in each half:", *(sum(lengths[half]) for half in halves))

# %%
ask("mean of means")

# %% [markdown]
# Both halves weigh the same, so each of the 641 tokens counts 3.3 times as much as one of the 2,136. Does that
# matter? After all, a gradient is always a little off. We accumulate in two ways, and compare both results with the
# gradient of the whole batch. The *error* is the norm of the difference, divided by the norm of the right gradient.


# %%
def gradient(loss):
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, weights)])


right, total = gradient(token_losses(slice(0, 64)).mean()), sum(lengths)
accumulated = {
    "mean of means": sum(gradient(token_losses(half).mean() / 2) for half in halves),
    "token-weighted": sum(gradient(token_losses(half).sum() / total) for half in halves),
}
errors = {name: float((sums - right).norm() / right.norm()) for name, sums in accumulated.items()}
for name, error in errors.items():
    print(f"{name:16} error {100 * error:.0f} %")

# %% tags=["claims"]
assert [sum(lengths[half]) for half in halves] == [2136, 641]  # as in the question
assert errors["token-weighted"] < 1e-5
assert errors["mean of means"] > 0.1
for seed in range(5):  # shuffled halves
    order = torch.randperm(64, generator=torch.Generator().manual_seed(seed)).tolist()
    losses = token_losses(slice(0, 64))
    packed = pack_sequence([torch.full((n,), i) for i, n in enumerate(lengths)]).data
    parts = [torch.isin(packed, torch.tensor(half)) for half in (order[:32], order[32:])]
    shuffled = sum(gradient(token_losses(slice(0, 64))[part].mean() / 2) for part in parts)
    assert 0 < (shuffled - right).norm() / right.norm() < errors["mean of means"]

# %% [markdown]
# The *mean of means*, the average over the two halves, is off by more than a quarter of the gradient's norm. That is
# neither noise nor rounding. If your batches are sorted and then cut, as here, the short sequences gain weight in
# *every* step. (In a shuffled batch, the parts are more alike, so the error is usually smaller, and changes from step
# to step.)
#
# Yet the code looks innocent: `(loss / steps).backward()`, in which `loss` is a mean. You have probably written this
# line. So had the authors of Hugging Face's trainer
# ([transformers#34191](https://github.com/huggingface/transformers/issues/34191)). How can such an error go
# unnoticed? If all parts have the same number of tokens, there is no error. Who tests with anything else?
#
# The cure is one number: how many tokens *all* parts have together. Each part adds its sum of losses, divided by this
# total. So you count the tokens before the first backward pass.
#
# But wait. The mean over all tokens was our idea. A long sequence then counts for more than a short one, and perhaps
# you do not want that.
#
# ## Which mean did you mean?
#
# There are two honest means. In a mean over *tokens*, all tokens count the same. In a mean over *sequences*, all
# sequences count the same: each contributes the mean over its own tokens. How far apart are the two here?


# %%
def document_losses(part):  # (B,) losses, one per sequence: the mean over its tokens
    shares = pack_sequence([torch.full((n,), 1 / n) for n in lengths[part]])
    losses, _ = pad_packed_sequence(shares._replace(data=token_losses(part) * shares.data))
    return losses.sum(0)


by_document = gradient(document_losses(slice(0, 64)).mean())
print(f"loss: mean over tokens {token_losses(slice(0, 64)).mean():.2f}, ", end="")
print(f"over documents {document_losses(slice(0, 64)).mean():.2f}")
print(f"gradients: they differ by {100 * (by_document - right).norm() / right.norm():.0f} %")
times = lengths[0] / lengths[-1]
print(f"over documents, a token of the shortest sequence counts {times:.0f} times as much as one of the longest")

# %% tags=["claims"]
halved = sum(gradient(document_losses(half).sum() / 64) for half in halves)
assert (halved - by_document).norm() / by_document.norm() < 1e-5
assert (by_document - right).norm() / right.norm() > errors["mean of means"]
assert lengths[-1] < lengths[0] / 10

# %% [markdown]
# Far apart, and neither is wrong. A language model is usually trained on the mean over tokens; for a classifier of
# reviews, you may want each review to count once. So choose, and say which one you chose. The mean of means is a
# third thing. In it, a token's weight depends on which sequences happen to share its half, and nobody wants that. For a
# mean over documents, the cure has the same form: each part adds the sum of its documents' losses, divided by the
# number of *all* documents.
#
# We stay with tokens. Is your colleague with the two GPUs better off than you?
#
# ## Who gets which sequences?
#
# In torch's `DistributedDataParallel` (DDP), each *process* has a copy of the model. A process has a number, its
# *rank*, and computes the gradient of its *shard*, a part of the batch. DDP then averages the gradients. Our 64
# sequences are sorted by length, and there are several ways to deal them to two processes:
#
# - **contiguous**: rank 0 gets the longer half,
# - **strided**: the ranks take turns, 0 1 0 1 …,
# - **snake**: they take turns, but swap places after each pair, 0 1 1 0 0 1 …
#
# Do any of these deals give the right gradient? We start two processes, and compare their averaged gradient with
# that of a single process. (The processes get the same lengths as above, but a larger model and other data. So
# compare the errors of the deals with each other, and not with those above.)

# %%
from packviz.studies import processes

found = processes.compare()
print(found)
found.chart()

# %% [markdown]
# Your colleague is no better off. DDP's average is a mean of means, too. In the contiguous deal, the error is
# more than *half* of the gradient's norm. If the ranks take turns, the shards are nearly equal, and the error shrinks
# to 2 % or less: better, and harder to notice. A token-weighted loss removes the error, however you deal the
# sequences. For that, each process needs the number of tokens in all processes together:
#
# ```python
# total = torch.tensor(my_tokens, device=device)
# torch.distributed.all_reduce(total)  # adds up over all processes
# ```
#
# One trap is left. DDP divides the sum of the gradients by the number of processes. Your loss has to undo this
# division, and the exercise asks you how. Then the gradient does not care who gets what. The clock does.

# %% tags=["claims"]
for strategy in ("contiguous", "strided", "snake"):
    assert found.errors[strategy]["token-weighted"] < 1e-6
assert found.errors["contiguous"]["mean of means"] > 0.5
assert 1e-4 < found.errors["snake"]["mean of means"] < found.errors["strided"]["mean of means"] < 0.02
assert all(min(map(max, found.lengths(deal))) > 0.9 * 128 for deal in ("strided", "snake"))
assert found.tokens("contiguous") == [2136, 641]

# %% [markdown]
# ## Who waits for whom?
#
# Each of the two processes has timed its own shard:

# %% tags=["live-timing", "nbval-ignore-output"]
print(found.times())

# %% [markdown]
# In each training step, the processes wait for the slowest one. In the contiguous deal, one has 2,136 tokens and the
# other 641, and 641 tokens are done first. If the ranks take turns, both have about the same number, and nobody waits
# long. (The order of these times is reliable. The factor is not: tokens alone would give 3.3, the long shard also has
# more time steps, and the rest depends on the machine, whose load is in the last line.)
#
# So do two processes need half the time of one? Not quite. In the first table, look at the column *steps*, which counts
# time steps. If the processes pick sequences in turn, each gets a long one, so each process goes through nearly all the
# time steps of the whole batch. The time steps follow one another, and each has a fixed cost, which does not shrink
# with the shard.
#
# So far, we have dealt the same cards in three ways. What if we choose the cards?
#
# ## Can a batch be easy to share?
#
# If all lengths in a batch were alike, any deal would be fair. So we could sort all the data by length. Then there
# would be little padding, but every epoch would have the same batches. The usual compromise is *bucketing*: shuffle
# the data, sort a few batches' worth of it at a time (a *window*), cut each window into batches, and shuffle these.
# We take the 512 sentences of notebook 01, in batches of 32.

# %%
sizes, layouts = [len(sentence) for sentence in sentences()], {}
for order in ("shuffled", "bucketed", "sorted"):
    groups = batches.batches(sizes, 32, order, window=4)
    layouts[order] = [pv.Layout([sizes[i] for i in group]) for group in groups]
pv.draw.padding_waste(layouts)

# %% tags=["claims"]
padding = {order: sum(layout.n_padding for layout in shown) for order, shown in layouts.items()}
share = {order: padding[order] / sum(layout.n_cells for layout in shown) for order, shown in layouts.items()}
assert {order: round(100 * part) for order, part in share.items()} == {"shuffled": 64, "bucketed": 35, "sorted": 14}

# %% [markdown]
# In the shuffled batches, nearly two thirds of the cells are padding. Bucketing brings this share down to about a
# third. Would a larger window leave less?

# %%
ask("a larger window")

# %% [markdown]
# Check your answer: choose *bucketed* in the panel, and move *window*. Then give the batches to more *processes*, and
# watch how long they wait. (The panel counts work and waiting in *tokens*, the real cells of a shard, as if padding
# took no time.)

# %%
from packviz.panels import BatchingPanel

panel = BatchingPanel(sizes, processes=1)
panel

# %% tags=["claims"]
panel.order.value, panel.processes.value, shares = "bucketed", 2, []
for window in (1, 2, 4, 8, 16):
    panel.window.value = window
    shares.append((panel.padding, batches.idle(panel.tokens)))
assert shares == sorted(shares, reverse=True)
assert [round(100 * padding / (padding + sum(sizes))) for padding, _ in shares] == [64, 51, 35, 24, 14]
panel.order.value = "sorted"
assert shares[-1][0] == panel.padding  # a window over all batches sorts everything
sampler = pv.BucketSampler(sizes, 32, window=4)
first, second = list(sampler), list(sampler)
assert sorted(i for batch in first for i in batch) == list(range(len(sizes)))
assert first != second

# %% [markdown]
# With a window of 8, about a quarter of the cells are padding. A window over everything is sorting again, with nearly
# the same batches in every epoch. A window of one batch is shuffling. Yours lies somewhere in between. In training,
# `DataLoader(…, batch_sampler=pv.BucketSampler(sizes, 32, window=4))` forms such batches, new ones in every epoch.
# And a batch of similar lengths is easy to share: whoever gets what, the shards are more alike.
#
# <details><summary>Three more mistakes with several processes</summary>
#
# - **"DDP averages the loss."** It averages gradients, with the same weight for each process.
# - **Outputs of different widths.** Each process pads to its *own* longest sequence, so you may be unable to
#   concatenate the outputs. In all processes, pass the same `total_length` to `pad_packed_sequence` or `pv.run`.
# - **A list of lengths under `DataParallel`.** This older class uses one process for several devices. It splits tensors
#   among the devices, but gives each of them the whole list. Pass the lengths as a tensor, and call `lengths.cpu()`
#   before packing.
#
# </details>

# %% tags=["claims"]
n = torch.tensor([9, 7, 3, 2])
x, rnn = torch.randn(4, 9, 3), torch.nn.GRU(3, 5, batch_first=True)
shards = [(x[:2], n[:2]), (x[2:, :3], n[2:])]  # what two processes hold
assert [pv.run(rnn, *shard)[0].shape[1] for shard in shards] == [9, 3]
common = torch.cat([pv.run(rnn, *shard, total_length=9)[0] for shard in shards])
assert torch.allclose(common, pv.run(rnn, x, n)[0], atol=1e-6)

# %% [markdown]
# ## Exercise
#
# `losses` is a tensor of shape `(N,)`, the losses of one process's own tokens. `total_tokens` is the number of tokens
# in all processes together, and `processes` is the number of processes. Return the loss on which the process will call
# `backward()`. (Do not call it yourself.) The average of the processes' gradients must be the gradient of the mean over
# **all** tokens.


# %% tags=["exercise"]
def my_loss(losses, total_tokens, processes):
    # solution
    return losses.sum() * processes / total_tokens
    # end solution


checks.process_loss(my_loss)

# %% [markdown]
# ## You can now
#
# cut a batch without changing its gradient (divide sums by a total) and without making processes wait for each other
# (deal the sequences in turn, and let `pv.BucketSampler` form batches of similar lengths).
#
# All this runs in Python. What happens to the lengths if the model is to leave Python?
#
# Next: [13 Static graphs](13_static_graphs.ipynb). Back: [11 Should you pack?](11_should_you_pack.ipynb) · [00 Start
# here](00_start_here.ipynb)
