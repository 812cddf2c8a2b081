# %% [markdown]
# # Should you pack?
#
# **With your lengths and your model: pad, pack, or something better?**
#
# After this page you can
#
# - say why a rule of thumb about lengths is a poor guide, and what decides instead,
# - keep a choice of speed from changing results,
# - get measured advice for your own RNN and lengths,
# - cut padding by batching similar lengths,
# - share a batch among several workers, with the right gradient.
#
# Time: 15 minutes.
#
# > **What to do.** Call `pv.advise(rnn, lengths)` with your own RNN and lengths, and paste what its `.code` says. It only
# > recommends what gives the results of packing. The order for a whole model:
# > [an hour and a slow model](00_start_here.ipynb#An-hour-and-a-slow-model).

# %% [markdown]
# ## A rule of thumb
#
# The documentation of transformertf, a library, gives one (*RNN Packed Sequences*): pack if the lengths vary by more than
# 10 % of the longest, or if there are 8 sequences or more; pad if all are equal. Here it meets 432 batches, measured both
# ways: three kinds of RNN, several sizes, forward alone and training.

# %%
import packviz as pv
from packviz.lessons import ask, checks
from packviz.studies import rules, heuristics

print(heuristics.STUDY.without_gpu())
ask("a rule of thumb")

# %%
machines = heuristics.STUDY.recordings()  # every machine that was recorded
habits = {
    "rule of thumb": lambda case: rules.rule_of_thumb(case.layout.lengths),
    "never pack": lambda case: False,
    "always pack": lambda case: True,
}
rules.compare(machines, habits)

# %% [markdown]
# "× the best" is the time taken over that of the better choice, on average. On the CPU, never packing is the better habit
# *for speed*. But then the RNN reads the padding.

# %% tags=["claims"]
cpu = heuristics.recorded()  # what the text says of times, it says of this one
thumb_rule, never, always = (rules.judge(name, packs, cpu.cases) for name, packs in habits.items())
assert len(cpu.cases) == 432
assert thumb_rule.accuracy < 0.6 < never.accuracy
assert never.slowdown < thumb_rule.slowdown < always.slowdown

# %% [markdown]
# ## A worse fault

# %%
ask("equal lengths, wider tensor")

# %%
import torch
from torch.nn.utils.rnn import pack_padded_sequence


def by_rule(x, lengths):
    if rules.rule_of_thumb(lengths):
        x = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return rnn(x)[1][0][0]  # h_n


torch.manual_seed(0)
rnn = torch.nn.LSTM(3, 5, batch_first=True)
x = torch.randn(2, 6, 3)  # 6 steps wide, as in a model with a fixed size
short, long = by_rule(x, [4, 4]), by_rule(x, [4, 6])
print(f"sequence 0, with a mate of 4 and of 6 steps: states {(short[0] - long[0]).abs().max():.2f} apart")

# %% [markdown]
# With a mate of 6 steps the rule packs, and the state is right. With a mate of 4 it has read two steps of padding.
# **A choice of speed must never change results.** No method of `pv.run` (notebook 08) does:

# %%
for method in ("auto", "padded", "packed", "split", "staircase"):
    (short, _), (long, _) = (pv.run(rnn, x, [4, mate], method=method)[1] for mate in (4, 6))
    print(f"{method:10} states {(short[0, 0] - long[0, 0]).abs().max():.2f} apart")

# %% tags=["claims"]
assert (by_rule(x, [4, 4])[0] - by_rule(x, [4, 6])[0]).abs().max() > 0.05
packed_h_n = rnn(pack_padded_sequence(x, [4, 4], batch_first=True))[1][0]
for method in ("auto", "padded", "packed", "split", "staircase"):
    assert torch.allclose(pv.run(rnn, x, [4, 4], method=method)[1][0], packed_h_n, atol=1e-6)

# %% [markdown]
# ## What decides
#
# On the CPU three numbers together, and none of them alone:
#
# - the **share of padding**: what packing can save,
# - the **work per time step**: packing takes one step at a time, and each has a fixed price,
# - in training, the **number of steps**: the copies of notebook 07 grow with its square.

# %%
from IPython.display import display

display(*rules.where_packing_pays(machines, "GRU"))

# %% [markdown]
# On the CPU, forward alone, packing pays where there is much padding *and* enough work in a step. In training more steps
# make it worse.
#
# Why? A *cost model* takes a run's time apart: so much per call, time step and cell, and for the copies of packed backward
# passes. Fitted to the measurements it says of one batch:

# %%
sizes = {"mode": "LSTM", "training": True, "batch_size": 64, "longest": 256, "size": 32, "kind": "log-normal"}
display(*rules.where_time_goes(machines, **sizes))

# %% [markdown]
# Packed, the cells do cost less. But on a CPU a padded LSTM is one *fused kernel*, a single call for all steps, in which
# a step is nearly free.
#
# Let one number decide, or the cost model, fitted to some sizes and tried on **another**:

# %%
fits = {
    "share of padding": rules.fit_threshold(rules.padding_share),
    "work per step": rules.fit_threshold(rules.work_per_step),
    "cost model": rules.fit_model,
}
rules.compare(machines, {"never pack": habits["never pack"]}, fits)

# %% [markdown]
# On the CPU one number alone does about as well as never packing. The cost model is nearly always right, *on the machine
# it was fitted on*. So take no rule from elsewhere: measure.

# %% tags=["claims"]
same = {"training": True, "batch_size": 64, "size": 128, "kind": "log-normal"}
longer = [one for one in cpu.of("GRU") if all(getattr(one, name) == value for name, value in same.items())]
ratios = [one.ratio.value for one in sorted(longer, key=lambda one: one.longest)]
assert ratios == sorted(ratios)  # more steps make it worse
model = rules.CostModel.fit(cpu.cases)
(case,) = [case for case in cpu.cases if all(getattr(case, name) == value for name, value in sizes.items())]
assert model.parts(case, "packed")["each cell"] < model.parts(case, "padded")["each cell"]  # what packing saves …
assert model.predict(case, "packed") > model.predict(case, "padded")  # … and yet
judged = [rules.judge_fitted(name, fit, cpu.cases) for name, fit in fits.items()]
assert judged[-1].accuracy > 0.95
assert judged[-1].slowdown == min(rule.slowdown for rule in [*judged, never])

# %% [markdown]
# ## Measured advice
#
# `pv.advise` times every method on batches of your lengths. Give a list, or the path of a CSV or JSON file; while it is
# empty, the 512 sentences of notebook 01 are taken.

# %% tags=["parameters"]
my_lengths = []
mode = "GRU"
hidden_size = 64
batch_size = 32

# %%
from packviz.lessons import sentences

lengths = pv.lengths.read(my_lengths) if isinstance(my_lengths, str) else my_lengths
lengths = lengths or [len(sentence) for sentence in sentences()]
mine = getattr(torch.nn, mode)(32, hidden_size, batch_first=True)
print(f"{len(lengths)} sequences, {mine}")

# %% tags=["live-timing", "nbval-ignore-output"]
advice = pv.advise(mine, lengths, batch_size=batch_size, window=4, budget=5)
print(advice.code)
advice

# %% tags=["claims"]
assert advice.device == "cpu"
assert advice.recommended in advice.timing.seconds
assert advice.speedup > 0
assert advice.seconds_per_epoch.low <= advice.seconds_per_epoch <= advice.seconds_per_epoch.high

# %% [markdown]
# A hatched bar gives other results than packing, and stands there for comparison alone. *Bucketed* is explained next.
#
# It measures until the ratios are known to about 5 %, or the budget is spent. If the rounds cannot tell the methods apart,
# or the machine is busy, the advice says so: then give it more seconds, `budget=60`, or a quiet machine.
#
# The advice holds for this machine and number of threads, these lengths, this RNN. Your code can ask it:
# `advice.recommended`, `advice.speedup` (over 1 is better) and `advice.seconds_per_epoch`, both with a range.
#
# That is the RNN alone. A step of your own, before and after a change, is timed in the same way by `pv.time_calls`. It
# also checks that both return the same:

# %%
from torch.nn.utils.rnn import pad_packed_sequence

lengths_of_batch = torch.tensor(sorted(lengths[:batch_size], reverse=True))
batch = torch.randn(len(lengths_of_batch), int(lengths_of_batch.max()), 32)


def before():
    packed = pack_padded_sequence(batch, lengths_of_batch, batch_first=True)
    output, h_n = mine(packed)
    return pad_packed_sequence(output, batch_first=True)[0], h_n


def after():
    return pv.run(mine, batch, lengths_of_batch)


# %% tags=["live-timing", "nbval-ignore-output"]
pv.time_calls({"before": before, "after": after}, budget=5)

# %% [markdown]
# ## Batches of similar lengths
#
# A batch is as wide as its longest sequence, so let similar lengths meet: *bucketing*. To sort everything gives the same
# batches in every epoch. A **window** is the compromise: shuffle, sort so many batches' worth at a time, cut, shuffle
# the batches. The sentences, in batches of 32:

# %%
ask("buckets of sentences")

# %%
from packviz import batches

layouts = {}
for order in ("shuffled", "bucketed", "sorted"):
    groups = batches.batches(lengths, batch_size, order, window=4)
    layouts[order] = [pv.Layout([lengths[i] for i in group]) for group in groups]
pv.draw.padding_waste(layouts)

# %% [markdown]
# `pv.BucketSampler` forms such batches anew in each epoch:

# %%
data = [torch.zeros(length, 32) for length in lengths]
sampler = pv.BucketSampler(lengths, batch_size, window=4)
loader = torch.utils.data.DataLoader(data, batch_sampler=sampler, collate_fn=torch.nn.utils.rnn.pad_sequence)
for epoch in (1, 2):
    print(f"epoch {epoch}: its first batches are so many steps wide:", *[len(batch) for batch in loader][:6])

# %% tags=["claims"]
padding = {order: sum(layout.n_padding for layout in some) for order, some in layouts.items()}
assert padding["sorted"] < padding["bucketed"] < padding["shuffled"]
first, second = list(sampler), list(sampler)
assert sorted(i for batch in first for i in batch) == list(range(len(lengths)))
assert first != second

# %% [markdown]
# Choose *bucketed*, and move *window*. When does a wider one hardly help any more? Try lengths of your own, too.

# %%
from packviz.explorers import BatchingExplorer

explorer = BatchingExplorer([len(sentence) for sentence in sentences()], workers=1)
explorer

# %% tags=["claims"]
explorer.order.value, explorer.workers.value, shares = "bucketed", 2, []
for window in (1, 2, 4, 8, 16):
    explorer.window.value = window
    shares.append((explorer.load.padding, batches.idle(explorer.tokens)))
assert shares == sorted(shares, reverse=True)
explorer.order.value = "sorted"
assert shares[-1][0] == explorer.load.padding  # a window of all batches is sorting them all

# %% [markdown]
# ## Several workers
#
# Several processes or GPUs, *workers*, can share a batch. torch's `DistributedDataParallel` (DDP) averages their
# gradients, so a step is over when the slowest worker is. (Move *workers* above to see who waits.) Take 64 sequences,
# longest first:
#
# - **contiguous**: worker 0 gets the longer half,
# - **strided**: in turn, 0 1 0 1 …,
# - **snake**: there and back, 0 1 1 0 0 1 …

# %%
ask("mean of means")

# %% [markdown]
# Two processes train a GRU for one step. Their averaged gradient is compared with that of a single process.

# %%
from packviz.studies import workers

found = workers.compare()
print(found)
found.chart()

# %% [markdown]
# *Mean of means*: every worker takes the mean over its own tokens, as `loss.mean()` does. Fair shares make the error
# small. Only the **token-weighted** loss makes it vanish:
#
# 1. Add up the tokens of all workers: `total = torch.tensor(my_tokens, device=device)`, then
#    `torch.distributed.all_reduce(total)`.
# 2. Let every token count alike. But DDP *averages* over its workers, `torch.distributed.get_world_size()` of them. This
#    loss is the exercise below.

# %% tags=["claims"]
for strategy in ("contiguous", "strided", "snake"):
    assert found.errors[strategy]["token-weighted"] < 1e-6
assert found.errors["contiguous"]["mean of means"] > 0.1
assert found.errors["snake"]["mean of means"] > 1e-4
assert found.tokens("contiguous") == [2136, 641]  # as in the question

# %% [markdown]
# And the time?

# %% tags=["live-timing", "nbval-ignore-output"]
print(found.times())

# %% [markdown]
# Contiguous, one worker waits for the other. But with fair shares *both* walk all time steps.
#
# The same comparison under torchrun, PyTorch's launcher, on one machine with 8 GPUs and your lengths:
#
# ```sh
# torchrun --standalone --nproc-per-node 8 -m packviz.studies.workers --device cuda --lengths my_lengths.csv
# ```
#
# Each worker pads to its **own** longest sequence. To put the outputs together, give all the same `total_length`.

# %% tags=["claims"]
n = torch.tensor([9, 7, 3, 2])
x, rnn = torch.randn(4, 9, 3), torch.nn.GRU(3, 5, batch_first=True)
halves = [(x[:2], n[:2]), (x[2:, :3], n[2:])]  # what two workers hold
assert [pv.run(rnn, *half)[0].shape[1] for half in halves] == [9, 3]
common = torch.cat([pv.run(rnn, *half, total_length=9)[0] for half in halves])
assert torch.allclose(common, pv.run(rnn, x, n)[0], atol=1e-6)

# %% [markdown]
# ## What people get wrong
#
# - **"Packing always pays on a GPU."** The page that the rule comes from reports a GPU where packing lost. `pv.run` packs
#   on a GPU all the same, until `pv.calibrate("cuda").use()` has measured which method is fastest there.
# - **"DDP averages the loss."** It averages gradients, each worker with the same weight.

# %% [markdown]
# ## Exercise
#
# A worker has the losses of its own tokens, `(N,)`. It knows `total_tokens` of all workers, and how many workers there
# are. Return the loss for its `backward()`, so that DDP's average is the gradient of the mean over **all** tokens.


# %% tags=["exercise"]
def my_loss(losses, total_tokens, workers):
    # solution
    return losses.sum() * workers / total_tokens
    # end solution


checks.worker_loss(my_loss)

# %% [markdown]
# ## You can now
#
# - say what a rule about lengths does not see: RNN, size, pass and device,
# - choose by speed among exact methods only, and ask `pv.advise` which,
# - remove most padding with buckets,
# - share a batch fairly, and weight the loss by tokens: `losses.sum() * workers / total`.
#
# Next: [11 The error museum](11_error_museum.ipynb). Back:
# [08 Making packing pay](08_making_packing_pay.ipynb) · [00 Start here](00_start_here.ipynb)
