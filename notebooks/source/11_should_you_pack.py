# %% [markdown]
# # Should you pack?
#
# **Given your lengths and your model, should you pad, pack, or do something better?**
#
# You ask three people. The author of a library says: pack, if the lengths vary. A colleague says: never, it is slow. A
# stranger on a forum says: always, since half of a batch is padding. Each of them has measured something, once. None of
# them has seen your batch. Whom do you believe?
#
# After this page, you can tell what a rule overlooks, and replace it with a measurement on your own machine.
#
# Time: 20 minutes, with the exercise.
#
# <details><summary>Where we are in the ten lines: three lines, or one of their replacements</summary>
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
#   loss = cross_entropy(scores[mask], tags[mask])                             # ()         then loss.backward()
# ```
#
# </details>
#
# > **In short.** Call `pv.advise(rnn, lengths)` with your own RNN and lengths, and use the code in the result's
# > `.code`. `advise` recommends only methods that give the results of packing.
#
# ## How good is a rule of thumb?
#
# We begin with the rule of a library's author, from the documentation of transformertf. If all lengths are equal, you
# pad. If not, either of two reasons is enough to pack: the lengths vary by more than 10 % of the longest, or the batch
# has at least 8 sequences. Somebody has thought about this rule. Let us test it. We paired batches with RNNs of three
# kinds and several sizes, and timed each pair padded and packed, in the forward pass alone and in training: hundreds of
# cases. (The memory allocator matters, as notebook 09 found, so the captions name ours.)

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
# The last number in each row is the average time, as a multiple of the better choice's time. The careful rule does
# worse than a coin, and whoever follows it waits nearly two thirds longer than they need to. The lazy habit, *never
# pack*, beats it by a wide margin. Was the colleague right, then?
#
# Not so fast. Look at our cases. In half of them, the lengths are equal or nearly equal, so packing can save next to
# nothing. And most of the RNNs are small. We have stacked the deck. Now take only *ragged* batches, whose lengths
# differ a lot, and one size of RNN after another. The next table is for 16 sequences of at most 64 steps, and gives the
# packed time as a multiple of the padded time. *Size* is both the input size and the hidden size.

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
# The columns disagree. In each, packing does more for the larger RNNs than for the smallest. The larger ones spend
# more of their time on matrix products, which packing reduces. A GRU gains in training only if it is large. An
# LSTM gains nothing in training, at any of these sizes: the padded one runs on oneDNN's fused kernel, and on a ragged
# batch, the packed one goes step by step. (It does so in the forward pass, too, but there it has no gradients to
# write.) <!-- recorded -->
#
# So *never* is too strong. But before you copy our table, ask it what you should ask the author, the colleague and the
# stranger: what have you seen? It has seen one processor, whose name is in the captions. The fused kernel has its own
# code for matrix products. The packed run calls torch's *BLAS*, the library that multiplies matrices. Here, that is
# Intel's MKL. On this AMD processor, MKL takes a generic path, and in large products, it is about half as fast as
# oneDNN. <!-- recorded --> So "an LSTM gains nothing in training" is a statement about MKL on an AMD processor. With a
# faster BLAS, the times of the packed LSTM should shrink, but those of the padded one should not.
#
# Suppose that a rule knew all this, and always named the faster choice. Could we simply obey it?

# %% tags=["claims"]
thumb_rule, never, always = (rules.judge(packs, cpu) for packs in habits.values())
ragged = [case for case in cpu if case.point.kind in ("uniform", "log-normal")]
assert 0.48 < len(ragged) / len(cpu) < 0.52
assert 0.35 < thumb_rule.accuracy < 0.6 < never.accuracy
assert never.slowdown < thumb_rule.slowdown < always.slowdown
for mode, training in columns:
    column = [times[key] for key in sorted(times) if key[1:] == (mode, training)]
    assert max(column[1:]) < column[0]  # the smallest gains the least
    assert mode == "GRU" or not training or min(column) > 1
assert all(times[size, "GRU", True] > 0.95 for size in (32, 128, 256))
assert all(times[size, "GRU", True] < 0.9 for size in (512, 1024))
assert thumb_rule.accuracy < 0.45
assert 1.6 < thumb_rule.slowdown < 1.67

# %% [markdown]
# ## Is faster enough?
#
# So far we have only watched the clock. Now we put the rule of thumb to work. Take a model whose batches are always
# six steps wide, and let the rule decide whether to pack.

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
print(f"state of sequence 0 with a neighbour of 4 steps, minus that with one of 6: {difference:.2f}")

# %% [markdown]
# Sequence 0 has not changed. Only its neighbour has. And yet the state of sequence 0 moves by 0.19, and that is a
# lot, because every number in this LSTM's `h_n` lies between −1 and 1. If the neighbour has 6 steps, the rule packs,
# and the state is right. If the neighbour has 4, the rule does not pack, and the RNN reads two steps beyond the
# sequence's end. What a model says about a sequence now depends on who sits beside it, and all that anybody wanted
# was to save time.
#
# **A choice made for speed must never change results.** All methods of `pv.run` give the results of packing, so it may
# choose any of them. But on what grounds?

# %% tags=["claims"]
assert difference > 0.05
packed_h_n = rnn(pack_padded_sequence(x, [4, 4], batch_first=True))[1][0]
for method in ("auto", "frozen", "packed", "split", "staircase"):
    assert torch.allclose(pv.run(rnn, x, [4, 4], method=method)[1][0], packed_h_n, atol=1e-6)

# %% [markdown]
# ## What decides?
#
# For a given kind of RNN, three numbers matter most on this CPU:
#
# - The **share of padding** is the share of the work that packing can save.
# - The **work in a time step** matters because a packed RNN has a fixed cost for each step.
# - The **number of time steps** matters in training, because the copying that notebook 09 found grows faster than
#   the work.

# %%
from IPython.display import display

for machine, results in machines.items():
    if rules.cases(results, "GRU"):
        display(rules.where_packing_pays(machine, results, "GRU"))

# %% [markdown]
# Look at the forward pass first. With 16 steps, packing a GRU hardly ever pays. With 64 or 256 steps, it pays on half
# of the ragged batches, and seldom hurts on the others. It gains most with a lot of padding *and* enough work in each
# step. The row below has the same batches in training. With 256 steps, not one of them clearly gains. <!-- recorded
# -->
#
# The shaded corners look like a rule that somebody could write down. We tried the simplest: take one number, such as
# the share of padding, and pack if it is over a *threshold*. Each kind of RNN got the threshold that suited it best,
# one for the forward pass and one for training. To make the test fair, we fitted the thresholds to all sizes but one,
# and tested them on the size **left out**. Each size was left out once.

# %%
fits = {
    "share of padding": rules.fit_threshold(lambda case: case.padding),
    "work per step": rules.fit_threshold(lambda case: case.work),
}
rules.compare(machines, {"never pack": habits["never pack"]}, fits)

# %% [markdown]
# A disappointment. *Never pack* looks at nothing at all. On sizes that our two rules have not seen, they beat *never
# pack* by at most a few cases in a hundred.
#
# That is how three people can each be sure, and disagree. Each of their rules fits what its author has seen. We
# are no better: `pv.run` chooses its method by a rule, and we made this rule from our own measurements. (So notebook
# 10 tests the rule on batches that had no part in it, though on the same machine.) Why may `pv.run` follow a rule at
# all? Because a wrong guess costs time, but never changes the result.
#
# So whom do you believe? Nobody. You measure, on your own machine.

# %% tags=["claims"]
gru = [case for case in cpu if case.point.mode == "GRU" and case.faster == "packed"]
assert sum(case.training for case in gru) < len(gru) / 2
assert not [case for case in gru if case.training and case.point.steps == 256]
forward = [case for case in cpu if case.point.mode == "GRU" and not case.training]
short = [case for case in forward if case.point.steps == 16]
assert sum(case.faster == "packed" for case in short) < len(short) / 10
long = [case for case in ragged if case.point.mode == "GRU" and not case.training and case.point.steps > 16]
assert 0.45 < sum(case.faster == "packed" for case in long) / len(long) < 0.55
assert sum(case.faster == "padded" for case in long) < len(long) / 7
for fit in fits.values():
    tested = rules.judge(rules.held_out(fit, cpu), cpu).accuracy
    assert never.accuracy - 0.01 < tested < never.accuracy + 0.05

# %% [markdown]
# ## What about your lengths?
#
# So far, only torch's padded and packed runs have competed. The exact methods of notebook 10 can be faster than both.
# `pv.advise` times all methods on batches with your lengths. Put your lengths into the list below, or replace the list
# with the path of a CSV or JSON file. If the list is empty, we take the 512 sentences of notebook 01.

# %% tags=["parameters"]
my_lengths = []
mode = "GRU"
hidden_size = 64
batch_size = 32
budget = 10  # seconds

# %%
lengths = pv.lengths.read(my_lengths) if isinstance(my_lengths, str) else my_lengths
lengths = lengths or [len(sentence) for sentence in sentences()]
mine = getattr(torch.nn, mode)(32, hidden_size, batch_first=True)
print(f"{len(lengths)} sequences, {mine}")

# %% tags=["live-timing", "nbval-ignore-output"]
advice = pv.advise(mine, lengths, batch_size=batch_size, budget=budget)
print(advice.code)
advice

# %% tags=["claims"]
assert advice.device == "cpu"
assert advice.recommended in advice.timing.seconds
assert not {advice.recommended, *advice.unclear} & {*advice.inexact}

# %% [markdown]
# If your lengths differ, torch's padded run is in the table only for comparison, because its results are not those of
# packing. `advise` recommends the fastest of the other methods, and names those that have no clear difference from it.
#
# How sure is this advice? Look at the number of rounds, in the last line below the table. `advise` measures in rounds,
# until it knows the ratios to about 5 %, or its time is up. On a busy machine, the time may be up after a single round,
# and one round is an anecdote. The line above the table then admits that so few rounds cannot show a difference. Some
# methods may also be *left out*. Set a larger `budget` in the parameters, such as 60, or give `advise` an idle machine.
#
# And the advice holds only for what `advise` has measured: this machine, this number of threads, this memory
# allocator, these lengths and this RNN.
#
# Your RNN may now be twice as fast. Is your *training*?
#
# ## What is left of it in your own step?
#
# The RNN is only a part of your training step. Write the old and the new step as functions, and pass both to
# `pv.time_calls`, which calls them in turn and checks that they return the same values. (For brevity, our functions run
# the RNN's forward pass alone. Yours should compute the loss, call `backward()`, and return the loss and the gradients.
# Leave out the optimiser's step, because each call would change the weights.)

# %%
n = torch.tensor(sorted(lengths[:batch_size], reverse=True))
batch = torch.randn(len(n), int(n.max()), 32)


def before():
    output, h_n = mine(pack_padded_sequence(batch, n, batch_first=True))
    return pad_packed_sequence(output, batch_first=True)[0], h_n


def after():
    return pv.run(mine, batch, n)


# %% tags=["live-timing", "nbval-ignore-output"]
pv.time_calls({"before": before, "after": after}, budget=3)

# %% [markdown]
# Read the last line first: up to rounding, both steps return the same values, so the clock alone may decide. Then look
# for the line that compares `after` with `before`. If even an idle machine shows *no clear difference*, keep the code
# that you have.
#
# ## What people get wrong
#
# - **"Packing is always faster on a GPU."** Even transformertf's documentation reports a GPU on which packing was
#   slower. On a GPU, `pv.run` packs every ragged batch, because we have not measured its other methods there.
#   `pv.advise` measures them on yours.
# - **"Never pack, then."** If you use final states or two directions, a padded RNN gives wrong results for the shorter
#   sequences. Use a fast method whose results are right.

# %% [markdown]
# ## Exercise
#
# Return the name of the fastest method whose results are right. `rounds` is a list with one dictionary per round. Each
# maps the methods' names to their times in seconds. `exact` is the set of names of the methods whose results are right.
# A busy round or two should not change your choice.


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
# - explain how a careful rule can be no better than a coin: it knows the lengths, but not the RNN, its size, the pass
#   or the BLAS,
# - refuse a rule that changes results, however fast it is,
# - ask `pv.advise` about your RNN, and `pv.time_calls` about your whole step.
#
# All this was about one process, with a batch of its own. What happens to ragged batches if several processes share the
# work?
#
# Next: [12 Several processes](12_several_workers.ipynb). Back: [10 Making packing pay](10_making_packing_pay.ipynb) ·
# [00 Start here](00_start_here.ipynb)
