# %% [markdown]
# # Should you pack?
#
# **For your lengths and your model: should you pad, pack, or do something better?**
#
# After this notebook, you can
#
# - say why rules of thumb about lengths are poor guides, and what matters instead,
# - keep a choice that is made for speed from changing results,
# - get measured advice for your own RNN and lengths,
# - time a change to your own training step.
#
# Time: 16 minutes.
#
# > **In short.** Call `pv.advise(rnn, lengths)` with your own RNN and lengths, and use the code in its `.code`. It recommends
# > only what gives the results of packing.
#
# ## A rule of thumb
#
# The documentation of transformertf, a library, gives a rule: pack if the lengths vary by more than 10 % of the longest, or
# if there are at least 8 sequences; pad if all lengths are equal. We measured 432 batches in both ways, with three kinds
# of RNN and several sizes, for the forward pass alone and for training.

# %%
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz.lessons import ask, checks, sentences
from packviz.studies import heuristics, rules

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
# The last column is the time taken, as a multiple of the time of the better choice, on average. On this CPU, *never pack*
# seems to be the best habit by far. But half of these batches have equal or nearly equal lengths, where nothing can be
# saved. Let us look at the others alone, and among these at the larger ones:

# %%
cpu = heuristics.recorded()  # the text below speaks of this machine
ragged = [case for case in cpu.cases if case.kind in ("uniform", "log-normal")]
large = [case for case in ragged if case.size == 128 and case.batch_size >= 16]
for name, cases in {"all": cpu.cases, "ragged": ragged, "ragged and large": large}.items():
    clear = [case.faster for case in cases if case.faster]  # the rounds tell which is faster
    print(f"{name:17} packed is faster in {clear.count('packed'):3} of {len(clear)} batches")

# %% [markdown]
# So *never pack* does well here mostly because of the batches that were chosen. (The RNNs have 32 or 128 features. What
# happens between 256 and 1,024 was not measured.) Besides, it would be the wrong habit even if it were faster, because an
# RNN that is not told the lengths reads the padding.

# %% tags=["claims"]
thumb_rule, never, always = (rules.judge(name, packs, cpu.cases) for name, packs in habits.items())
assert len(cpu.cases) == 432
assert len(ragged) == 216
assert thumb_rule.accuracy < 0.6 < never.accuracy
assert never.slowdown < thumb_rule.slowdown < always.slowdown
assert [case.faster for case in large].count("packed") > len(large) / 3

# %% [markdown]
# ## A choice that changes results
#
# The rule has another fault, which is worse. Consider a model whose batches are always six steps wide.

# %%
ask("equal lengths, wider tensor")


# %%
def by_rule(x, lengths):
    if rules.rule_of_thumb(lengths):
        x = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return rnn(x)[1][0][0]  # h_n


torch.manual_seed(0)
rnn = torch.nn.LSTM(3, 5, batch_first=True)
x = torch.randn(2, 6, 3)
difference = (by_rule(x, [4, 4])[0] - by_rule(x, [4, 6])[0]).abs().max()
print(f"state of sequence 0, beside one of 4 and one of 6 steps: differs by {difference:.2f}")

# %% [markdown]
# If the other sequence has 6 steps, the rule packs, and the state is right. If it has 4, the rule does not pack, and the RNN
# reads two steps of padding. **A choice that is made for speed must never change results.** All methods of `pv.run` give
# the results of packing, so it is free to choose among them.

# %% tags=["claims"]
assert difference > 0.05
packed_h_n = rnn(pack_padded_sequence(x, [4, 4], batch_first=True))[1][0]
for method in ("auto", "padded", "packed", "split", "staircase"):
    assert torch.allclose(pv.run(rnn, x, [4, 4], method=method)[1][0], packed_h_n, atol=1e-6)

# %% [markdown]
# ## What matters
#
# On this CPU, three numbers decide between torch's padded and packed RNN, and none of them is enough by itself: the **share
# of padding**, which is what packing can save; the **work in a time step**, because a packed RNN has a fixed cost for
# each step; and in training the **number of time steps**, because the copies of notebook 09 grow faster than the work.

# %%
from IPython.display import display

display(*rules.where_packing_pays(machines, "GRU"))

# %% [markdown]
# In the forward pass, packing pays off if there is much padding *and* enough work in each step. In training, it rarely does.
#
# Can one of these numbers decide, or a *cost model* that adds up a time for each call, time step, cell and copy? We fit
# each of them to some of the sizes, and try it on **another** size:

# %%
fits = {
    "share of padding": rules.fit_threshold(rules.padding_share),
    "work per step": rules.fit_threshold(rules.work_per_step),
    "cost model": rules.fit_model,
}
rules.compare(machines, {"never pack": habits["never pack"]}, fits)

# %% [markdown]
# One number alone does hardly better than *never pack*. The cost model almost always chooses well, *on the machine to which
# it was fitted*. Its times are rougher than its choices:

# %%
model = rules.CostModel.fit(cpu.cases)
errors = [
    abs(model.predict(case, choice) / case.seconds[choice] - 1)
    for case in cpu.cases
    if case.layout.n_padding
    for choice in ("padded", "packed")
]
print(f"half of its predictions are off by more than {100 * sorted(errors)[len(errors) // 2]:.0f} %")

# %% [markdown]
# So do not take a rule from another machine. Measure.

# %% tags=["claims"]
judged = [rules.judge_fitted(name, fit, cpu.cases) for name, fit in fits.items()]
assert judged[-1].accuracy > 0.95
assert judged[-1].slowdown == min(rule.slowdown for rule in [*judged, never])

# %% [markdown]
# ## Measured advice
#
# `pv.advise` times all methods with batches of your lengths. Pass a list, or the path of a CSV or JSON file. As long as the
# list below is empty, it takes the 512 sentences of notebook 01.

# %% tags=["parameters"]
my_lengths = []
mode = "GRU"
hidden_size = 64
batch_size = 32

# %%
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
# A hatched bar belongs to a method whose results differ from those of packing. It is there for comparison only. *Bucketed*
# means that each batch holds similar lengths, as [notebook 12](12_several_workers.ipynb) explains.
#
# The advice holds for this machine, this number of threads, these lengths and this RNN. It is measured until the ratios are
# known to about 5 %, or until the time is up. If two methods cannot be told apart, or the machine is busy, it says so. Then
# give it more seconds, such as `budget=60`, or a quiet machine.
#
# ## Time your own step
#
# The RNN is only a part of your training step. To find out what a change to the whole step gains, pass two functions to
# `pv.time_calls`. It calls them in turns, and checks that both return the same:

# %%
n = torch.tensor(sorted(lengths[:batch_size], reverse=True))
batch = torch.randn(len(n), int(n.max()), 32)


def before():
    output, h_n = mine(pack_padded_sequence(batch, n, batch_first=True))
    return pad_packed_sequence(output, batch_first=True)[0], h_n


def after():
    return pv.run(mine, batch, n)


# %% tags=["live-timing", "nbval-ignore-output"]
pv.time_calls({"before": before, "after": after}, budget=5)

# %% [markdown]
# ## What people get wrong
#
# - **"Packing is always faster on a GPU."** The page with the rule of thumb itself reports a GPU on which packing was
#   slower. We have not measured any. Until you call `pv.calibrate("cuda").use()`, `pv.run` packs on a GPU.
# - **"Never pack, then."** If you use final states, two directions or pooling, a padded RNN is wrong. Use a fast method that
#   is right.

# %% [markdown]
# ## Exercise
#
# Choose the fastest method whose results are right. `rounds` is a list with one dictionary per round, from the name of each
# method to its seconds, and `exact` holds the names of the methods whose results are right. A busy moment should not
# change the answer.


# %% tags=["exercise"]
def my_choice(rounds, exact):
    # solution
    from statistics import median

    return min(exact, key=lambda method: median(seconds[method] for seconds in rounds))
    # end solution


checks.fastest_exact(my_choice)

# %% [markdown]
# ## You can now
#
# - say what a rule about lengths ignores: the RNN, its size, the pass and the device,
# - choose for speed among methods that give the same results only,
# - get measured advice with `pv.advise`,
# - time a change to your own step with `pv.time_calls`.
#
# Next: [12 Several workers](12_several_workers.ipynb). Back: [10 Making packing pay](10_making_packing_pay.ipynb) ·
# [00 Start here](00_start_here.ipynb)
