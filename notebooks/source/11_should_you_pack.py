# %% [markdown]
# # Should you pack?
#
# **Given your lengths and your model, should you pad, pack, or do something better?**
#
# After this notebook, you can
#
# - say why rules of thumb about lengths are poor guides, and what matters instead,
# - make sure that a choice made for speed does not change results,
# - find the fastest method for your own RNN and lengths,
# - time a change to your own training step.
#
# Time: 17 minutes.
#
# > **In short.** Call `pv.advise(rnn, lengths)` with your own RNN and lengths, and use the code in the result's
# > `.code`. `advise` recommends only methods that give the results of packing.
#
# ## A rule of thumb
#
# The documentation of transformertf, a library for forecasting, gives this rule: pack if the lengths vary by more than
# 10 % of the longest, or if there are at least 8 sequences, but pad if all lengths are equal. We timed hundreds of
# batches, padded and packed, with three kinds of RNN in many sizes, in the forward pass alone and in training.

# %%
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz.lessons import ask, checks, sentences
from packviz.studies import rules

print(rules.STUDY.without_gpu())
ask("a rule of thumb")

# %%
machines = rules.STUDY.recordings()  # every machine that was recorded
habits = {
    "rule of thumb": lambda case: rules.rule_of_thumb(case.point.layout),
    "never pack": lambda case: False,
    "always pack": lambda case: True,
}
rules.compare(machines, habits)

# %% [markdown]
# The last number in a row is the average time, as a multiple of the time of the better choice. On this CPU, *never
# pack* seems the best habit by far. But half of these batches have equal or nearly equal lengths, where packing can
# save next to nothing, and most of the RNNs are small. So we look only at *ragged* batches, whose lengths differ a lot,
# for each size of LSTM and GRU. The next table gives the packed time as a multiple of the padded time, for the same two
# batches of 16 sequences in each row. *Size* is both the input size and the hidden size.

# %%
from itertools import product
from statistics import median

cpu = rules.cases(rules.STUDY.load())  # the text below speaks of this machine
columns = [*product(("LSTM", "GRU"), (False, True))]
ratios = {}  # of the packed time to the padded time
for case in cpu:
    point = case.point
    if point.kind in ("uniform", "log-normal") and (point.batch_size, point.steps) == (16, 64):
        ratios.setdefault((point.hidden_size, point.mode, case.training), []).append(case.ratio)
times = {key: median(both) for key, both in ratios.items()}

print("    size  LSTM forward  LSTM training   GRU forward  GRU training")
for size in sorted({size for size, _, _ in times}):
    print(f"{size:8,}", *(f"{times[size, *which]:13.2f}" for which in columns))

# %% [markdown]
# Here, the larger RNNs gain more from packing than the smallest, because they spend more of their time on matrix
# products, which packing reduces. But the kind of RNN matters just as much. A padded LSTM has a fused kernel on a CPU,
# so in training, packing does not pay off for the LSTM at any of these sizes, while it does for a large GRU. *Never
# pack* does well here because of our choice of batches and sizes. Even if it were always faster, it would be the wrong
# habit, because without the lengths, an RNN reads the padding.

# %% tags=["claims"]
thumb_rule, never, always = (rules.judge(packs, cpu) for packs in habits.values())
ragged = [case for case in cpu if case.point.kind in ("uniform", "log-normal")]
assert 0.48 < len(ragged) / len(cpu) < 0.52
assert 0.4 < thumb_rule.accuracy < 0.6 < never.accuracy
assert never.slowdown < thumb_rule.slowdown < always.slowdown
for mode, training in columns:
    column = [times[key] for key in sorted(times) if key[1:] == (mode, training)]
    assert max(column[1:]) < column[0]  # the smallest gains the least
    assert mode == "GRU" or not training or min(column) > 1
assert times[512, "GRU", True] < 0.9
assert times[1024, "GRU", True] < 0.95

# %% [markdown]
# ## Does the choice change results?
#
# A choice between padding and packing should change only the time. Is this true of the rule? Consider a model whose
# batches are always six steps wide.

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
# If the other sequence has 6 steps, the rule packs, and the state is right. If it has 4, the rule does not pack, and
# the RNN reads two steps of padding. **A choice made for speed must never change results.** All methods of `pv.run`
# give the results of packing, so it may choose any of them.

# %% tags=["claims"]
assert difference > 0.05
packed_h_n = rnn(pack_padded_sequence(x, [4, 4], batch_first=True))[1][0]
for method in ("auto", "frozen", "packed", "split", "staircase"):
    assert torch.allclose(pv.run(rnn, x, [4, 4], method=method)[1][0], packed_h_n, atol=1e-6)

# %% [markdown]
# ## What matters
#
# On this CPU, three numbers decide whether a given kind of RNN is faster padded or packed:
#
# - The **share of padding** says how much work packing can save.
# - The **work in a time step** matters because a packed RNN has a fixed cost for each step.
# - The **number of time steps** matters in training, because the copies of notebook 09 grow faster than the work.

# %%
from IPython.display import display

for machine, results in machines.items():
    if rules.cases(results, "GRU"):
        display(rules.where_packing_pays(machine, results, "GRU"))

# %% [markdown]
# In the forward pass, packing a GRU pays off if there is a lot of padding *and* enough work in each step. In training,
# packing needs more padding and more work to pay off, and with 256 time steps, it pays off in hardly any batch.
#
# Is one number enough to decide? We let a rule pack if the number is over a *threshold*, and choose the best threshold
# for each kind of RNN and pass. We fit the thresholds to all sizes but one and test them on the size **left out**, taking
# each size in turn:

# %%
fits = {
    "share of padding": rules.fit_threshold(lambda case: case.padding),
    "work per step": rules.fit_threshold(lambda case: case.work),
}
rules.compare(machines, {"never pack": habits["never pack"]}, fits)

# %% [markdown]
# Tested like this, neither number chooses much better than *never pack*. How good would they look on the sizes to which
# they were fitted?

# %%
for name, fit in fits.items():
    fitted, tested = (rules.judge(packs, cpu) for packs in (fit(cpu), rules.held_out(fit, cpu)))
    print(f"{name:18} right in {fitted.accuracy:.1%} if fitted to these sizes, in {tested.accuracy:.1%} if not")

# %% [markdown]
# A rule always looks better on the cases that made it, and these thresholds come from one machine. So do not trust them
# on another: measure. Why, then, may `pv.run` follow a rule? Its rule changes the time, but never the result.

# %% tags=["claims"]
gru = [case for case in cpu if case.point.mode == "GRU" and case.faster == "packed"]
assert sum(case.training for case in gru) < len(gru) / 2
assert sum(case.training and case.point.steps == 256 for case in gru) <= 1
for fit in fits.values():
    tested = rules.judge(rules.held_out(fit, cpu), cpu).accuracy
    assert never.accuracy - 0.01 < tested < never.accuracy + 0.05
    assert tested < rules.judge(fit(cpu), cpu).accuracy

# %% [markdown]
# ## Advice for your lengths
#
# So far, we have compared only torch's padded and packed runs. The exact methods of notebook 10 can be faster than
# both. `pv.advise` times all methods on batches with your lengths. Pass a list, or the path of a CSV or JSON file. If
# the list below is empty, the 512 sentences of notebook 01 are used.

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
advice = pv.advise(mine, lengths, batch_size=batch_size, budget=5)  # seconds
print(advice.code)
advice

# %% tags=["claims"]
assert advice.device == "cpu"
assert advice.recommended in advice.timing.seconds
assert not {advice.recommended, *advice.unclear} & {*advice.inexact}

# %% [markdown]
# torch's padded run is in the table only for comparison, because its results differ from those of packing. `advise`
# recommends the fastest of the others, and names those that have no clear difference from it.
#
# The advice holds for this machine, this number of threads, these lengths and this RNN. `advise` measures until the
# ratios are known to about 5 %, or the time is up. Then give it more time, such as `budget=60`, or use an idle machine.
#
# ## Time your own step
#
# The RNN is only a part of your training step. To measure what a change saves overall, pass the old and the new step to
# `pv.time_calls` as functions. It calls them in turn and checks that both return the same values:

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
# - **"Packing is always faster on a GPU."** Even the page with the rule of thumb reports a GPU on which packing was
#   slower. `pv.run` packs on a GPU, because nobody has measured its other methods there; `pv.advise` measures yours.
# - **"Never pack, then."** If you use final states or two directions, a padded RNN gives wrong results. Use a fast
#   method whose results are right.

# %% [markdown]
# ## Exercise
#
# Choose the fastest method whose results are right. `rounds` is a list with one dictionary per round, which maps the
# name of each method to its time in seconds. `exact` is the set of the methods whose results are right. One busy round
# should not change the answer.


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
# - say what a rule about lengths ignores: the RNN, its size, the device and whether it is trained,
# - choose for speed, but only among methods that give the same results,
# - get advice from `pv.advise`, based on measurements,
# - time a change to your own step with `pv.time_calls`.
#
# Next: [12 Several processes](12_several_workers.ipynb). Back: [10 Making packing pay](10_making_packing_pay.ipynb) ·
# [00 Start here](00_start_here.ipynb)
