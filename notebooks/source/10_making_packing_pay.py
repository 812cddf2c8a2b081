# %% [markdown]
# # Making packing pay
#
# **Can a training step be faster than a padded one, and still give the results of packing?**
#
# So far you have two bad choices. A padded step is quick, and its final states are wrong. A packed step is right, and
# you wait for it. Must you choose? Notebook 09 found nothing wrong with packing itself. What took so long was a habit:
# pad and the packed RNN both cut a large tensor into slices, and in the backward pass, every slice costs a tensor of
# full size. So let us keep the results, and break the habit.
#
# After this page, you can train an RNN on ragged batches in one line, and say why you can trust that line.
#
# Time: 20 minutes, with the exercise.
#
# <details><summary>Where we are in the ten lines: three lines that become one</summary>
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
# ## Can one index replace all slices of pad?
#
# We begin with pad. It only moves numbers, so all we need to know is where each one goes. Let us ask pack: we number
# the cells of a padded batch, and pack the numbers.

# %%
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz import lengths as kinds
from packviz.count import operators
from packviz.lessons import ask, checks
from packviz.studies import forum, methods

torch.set_num_threads(1)  # more threads gain little on products this small, and may wait for each other

lengths = [5, 4, 2, 2]
numbers = torch.arange(4 * 5).view(4, 5)
pv.show(numbers, lengths, batch_first=True)

# %% [markdown]
# Look at the packed half. Each number says which cell its entry comes from. Together, they are an **index**. With it,
# packing is a *gather*, which reads rows in a given order. Padding is a *scatter*, which writes rows to given places.
# In the backward pass, the two swap roles. There are no slices any more, and so no tensors of full size to add up.
#
# `pv.pack_padded_sequence` and `pv.pad_packed_sequence` work like this, with torch's arguments and bit for bit torch's
# results. Take setup B of notebook 09 again: 512 sequences, whose lengths count down from T to 1, again and again. What
# does the backward pass through pack and pad write now?


# %% jupyter={"source_hidden": true}
def written(output):
    """The megabytes that the backward pass of a tensor writes."""
    _, calls, _ = operators.observe(output.sum().backward, output.device)
    return f"{sum(call.bytes for call in calls) / 1e6:6.3g} MB"


for T in (32, 64):
    batch = sorted(kinds.triangle(512, T).tolist(), reverse=True)
    for name, part in (("torch", torch.nn.utils.rnn), ("packviz", pv)):
        x = torch.zeros(T, 512, 32, requires_grad=True)
        output, _ = part.pad_packed_sequence(part.pack_padded_sequence(x, batch))
        print(f"T = {T}  {name:8} {written(output)}")

# %% tags=["claims"]
index = pack_padded_sequence(numbers, lengths, batch_first=True).data
cells = torch.randn(4, 5, 3)
packed = pack_padded_sequence(cells, lengths, batch_first=True)
padded, _ = pad_packed_sequence(packed, batch_first=True)
gathered = cells.flatten(0, 1).index_select(0, index)
assert torch.equal(gathered, packed.data)
assert torch.equal(torch.zeros(20, 3).index_copy(0, index, gathered).view(4, 5, 3), padded)

# %% [markdown]
# At T = 64, torch writes 65 times as much as packviz, for the same gradient. And when T doubles, torch's bytes nearly
# quadruple, but packviz's only double, as the cells do.
#
# One culprit is gone, the easy one. The RNN has to compute something at every step, and cannot just look things up.
#
# ## Can the RNN take all its slices at once?
#
# On a CPU, the packed RNN takes the rows of each step with `narrow`, whose backward pass fills a whole tensor. But why
# take them one step at a time? `split` takes the rows of all steps in a single call, and its backward pass simply joins
# their gradients. Here is a whole plain RNN that uses it. Then we compare it with torch's, on 64 sequences whose
# lengths again count down.


# %%
def split_rnn(rnn, packed):
    w_x, w_h, b_x, b_h = rnn.parameters()
    h, outputs = torch.zeros(packed.batch_sizes[0], rnn.hidden_size), []
    for rows in (packed.data @ w_x.T + b_x).split(packed.batch_sizes.tolist()):
        h = h[: len(rows)]  # drops what has ended: also a slice, but of a small tensor
        h = torch.tanh(rows + h @ w_h.T + b_h)
        outputs.append(h)
    return torch.cat(outputs)


# %% jupyter={"source_hidden": true}
rnn = torch.nn.RNN(16, 32)
for T in (32, 64):
    batch = sorted(kinds.triangle(64, T).tolist(), reverse=True)
    packed = pack_padded_sequence(torch.randn(T, 64, 16), batch)
    torchs, ours = rnn(packed)[0].data, split_rnn(rnn, packed)
    same = torch.allclose(torchs, ours, atol=1e-6)
    print(f"T = {T}  torch {written(torchs)}, split {written(ours)}, equal: {same}")

# %% tags=["claims"]
assert torch.allclose(split_rnn(rnn, packed), rnn(packed)[0].data, atol=1e-6)
all_cells = packed.data.shape[0] * 32 * 4  # the bytes of all states, in a batch of 64 steps
for output, at_most, at_least in [(split_rnn(rnn, packed), 5, 0), (rnn(packed)[0].data, 1000, 64)]:
    _, calls, _ = operators.observe(output.sum().backward, output.device)
    assert at_least <= sum(call.bytes >= all_cells for call in calls) <= at_most

# %% [markdown]
# Equal results, and at T = 64, a nineteenth of the bytes.
#
# For a GRU or a plain RNN, this loop will do, because on a CPU, torch 2.13 trains both step by step, padded or not. For
# an LSTM, it has something better: *oneDNN's fused kernel* computes all time steps of a *padded* LSTM in one call. No
# loop can keep up with that, so let us use it. But it knows nothing of lengths.
#
# ## How do you feed a kernel that wants padding?
#
# In pieces. Sort the sequences, cut the time axis, and in each piece run the padded kernel on the sequences that have
# not ended. Each piece hands its states to the next. The pieces are *rectangles*, and together they form a *staircase*:

# %%
ten = [14, 13, 13, 12, 8, 8, 7, 3, 3, 2]
pv.draw.Stairs(ten, [0, 3, 8, 14])

# %% [markdown]
# Hatched cells are padding that is computed all the same: 6 of them, where the padded batch has 57. So our two cuts
# save 51 cells, and cost two more calls of the kernel.
#
# Is that a bargain? Say that a call costs as much as 200 cells, which is about right on our CPU. Then we have paid 400
# cells to save 51. Take a larger batch, with 128 sequences and 101 distinct lengths. With 101 rectangles, it would have
# no padding at all.

# %%
ask("calls or cells")

# %% [markdown]
# Move the slider *rectangles* from end to end. Then make a call more expensive. Where does the lowest point go?

# %%
from packviz.panels import StaircasePanel

panel = StaircasePanel(sequences=128, longest=256)
panel

# %% tags=["claims"]
assert pv.draw.Stairs(ten, [0, 14]).wasted == pv.Layout(ten).n_padding == 57
three = pv.draw.Stairs(ten, [0, 3, 8, 14])
assert (three.wasted, sum(ten) + three.wasted, pv.Layout(ten).n_cells) == (6, 89, 140)
assert pv.draw.Stairs(ten, [0, *sorted(set(ten))]).wasted == 0
assert 1 < min(panel.costs, key=panel.costs.get) < panel.rectangles.options[-1]
costs = {pieces: cost / panel.costs[1] for pieces, cost in panel.costs.items()}
assert f"{costs[8]:.0%}" == "61%"
assert max(costs[5], costs[12]) < 1.04 * costs[8]
assert costs[54] > costs[2]
assert costs[101] > 1
panel.rectangles.value = panel.rectangles.options[-1]
assert panel.shown.wasted == 0

# %% [markdown]
# If a call costs as much as 200 cells, 8 rectangles cost 61 % of the padded batch. But all 101, without a single wasted
# cell, cost *more* than padding. If a call costs more, the lowest point moves to the left: fewer and larger rectangles.
#
# It looks as if we have won. But look at a hatched cell. Its sequence has ended, and the kernel does not know. It runs
# on through the padding, and the final states are wrong again.
#
# ## How do you stop an LSTM that cannot stop?
#
# The final `h` is easy. It is the output at the last real step, and notebook 03 gathered it there. But no output
# contains the final `c`, so `c` must survive the padding inside the kernel. There, each step computes c ← f · c + i ·
# g, where g is new content, and the *gates* f and i lie between 0 and 1. To keep c, we need f = 1 and i = 0. Then c is
# *frozen*.
#
# We cannot change the kernel. But we can change what it *reads*. We give each time step one more input: 1 in the
# padding, and 0 elsewhere. For this input, the LSTM's input weights need one more column: +w in the rows of f, which
# pushes f up towards 1; −w in those of i, which pushes i down towards 0; and 0 in all others. Outside the padding,
# nothing changes.
#
# How large must w be? A gate is a sigmoid, 1 / (1 + e⁻ˣ), which on paper never quite reaches 0 or 1. But for x = 10, it
# is 0.99995, and that sounds safe. Let us try 10, and then 100.

# %%
ask("a frozen state")

# %% [markdown]
# We give an `nn.LSTM` such a column, and let it read nothing but padding:


# %% jupyter={"source_hidden": true}
def drift(weight, steps):
    torch.manual_seed(1)
    lstm = torch.nn.LSTM(16 + 1, 32)
    with torch.no_grad():
        lstm.weight_ih_l0[:32, 16] = -weight  # rows of the input gate
        lstm.weight_ih_l0[32:64, 16] = weight  # rows of the forget gate
        x = torch.zeros(steps, 1, 17)
        x[:, :, 16] = 1  # nothing but padding
        h, c = torch.zeros(1, 1, 32), torch.linspace(-1, 1, 32).view(1, 1, 32)
        return (lstm(x, (h, c))[1][1] - c).abs().max().item()


print("weight    largest change of c after 1, 100 and 3,000 steps of padding")
for weight in (10, 100):
    print(f"±{weight:<8}", *(f"{drift(weight, steps):8.0g}" for steps in (1, 100, 3000)))

# %% [markdown]
# 10 is not safe. After one step, nobody would notice. After 3,000, a state that began between −1 and 1 has moved by up
# to 0.2.
#
# And 100? Not a small number: zero. On paper, that cannot be. In float32, it can. From x = 17 on, 1 + e⁻ˣ is rounded
# to 1, so f is *exactly* 1. From x = −89 down, e⁻ˣ overflows to ∞, so i is *exactly* 0. We have all cursed rounding.
# Here, for once, it works for us.
#
# <details><summary>Which weight does packviz take?</summary>
#
# The weights must also outweigh whatever else a gate receives. (Someone may set a forget bias of −40,000.) So packviz
# uses ±10³⁸, about a third of the largest number in float32. If your LSTM's own weights are so large that even this
# might not suffice, packviz packs instead.
#
# </details>
#
# So c survives, and so does its gradient, which passes through the padding unchanged, because f = 1.
#
# One thing is left: a reverse direction, which would meet the padding *first*. So an index turns each sequence round,
# leaving its padding last, and turns the outputs back.
#
# An index for pack and pad, rectangles for the kernel, a frozen `c`, and sequences turned round: that is all of it.
# And everything is behind one call:
#
# ```python
# output, final = pv.run(rnn, x, lengths)
# ```
#
# It takes an `nn.LSTM`, `nn.GRU` or `nn.RNN` with any number of layers, in one or both directions, and returns what
# pack → RNN → pad returns. On a CPU, it usually chooses `method="split"` for a GRU or a plain RNN, and the cheapest
# `"staircase"` for an LSTM.

# %% tags=["claims"]
assert torch.sigmoid(torch.tensor(10.0)).item() > 0.99995
assert drift(10, 3000) > 0.1
assert drift(100, 3000) == drift(30_000, 3000) == 0
assert torch.sigmoid(torch.tensor([1e4, -1e4])).tolist() == [1, 0]
assert torch.sigmoid(torch.tensor([16.0, 17.0])).eq(1).tolist() == [False, True]
assert torch.sigmoid(torch.tensor([-88.0, -89.0])).eq(0).tolist() == [False, True]
assert torch.exp(torch.tensor(89.0)).isinf()
assert torch.tensor(1e38).isfinite()
assert drift(1e38, 3000) == 0
frozen = torch.nn.LSTM(17, 32)
with torch.no_grad():
    frozen.weight_ih_l0[:64, 16] = torch.tensor([-100.0, 100.0]).repeat_interleave(32)
flag = torch.zeros(3000, 1, 17).index_fill(2, torch.tensor([16]), 1.0)
c = torch.linspace(-1, 1, 32).view(1, 1, 32).requires_grad_()
(through,) = torch.autograd.grad(frozen(flag, (torch.zeros(1, 1, 32), c))[1][1].sum(), c)
assert torch.equal(through, torch.ones_like(c))  # the gradient of c, too, passes unchanged

# %% [markdown]
# ## Is it still the same LSTM?
#
# `run` sorts your batch, cuts it into pieces, and freezes states. Would you trust your results to that? You need
# not. We can look.
#
# We make it hard, with NaN in *every* cell of padding. Even a closed gate does not keep NaN out, because 0 · NaN is
# NaN. So `run` has to put a zero into each of these cells before the kernel reads it. If it forgot a single one, NaN
# would get into the gradients, and the comparison with packing would fail. In so small a batch, no cut pays, and `run`
# would make none. So we ask for two.


# %%
torch.manual_seed(0)
lengths = [9, 2, 5, 5, 1, 7]  # in any order
x = torch.randn(6, 9, 4)
x[~pv.real_mask(lengths)] = float("nan")  # whatever the padding holds
lstm = torch.nn.LSTM(4, 5, batch_first=True, num_layers=2, bidirectional=True)


# %% jupyter={"source_hidden": true}
def with_gradients(rnn, x, output, final):
    found = [output, *final]
    loss = sum(t.square().sum() for t in found)
    return [*found, *torch.autograd.grad(loss, [x, *rnn.parameters()])]


x.requires_grad_()
output, final = lstm(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
expected = with_gradients(lstm, x, pad_packed_sequence(output, batch_first=True)[0], final)
for name, method in {"split": "split", "cuts at 2 and 5": (0, 2, 5, 9)}.items():
    found = with_gradients(lstm, x, *pv.run(lstm, x, lengths, method=method))
    same = all(torch.allclose(a, b, atol=1e-6) for a, b in zip(found, expected, strict=True))
    print(f"{name:16} all outputs, final states and gradients are equal: {same}")

# %% tags=["claims"]
for make in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
    for options in ({}, {"num_layers": 2, "bidirectional": True, "dropout": 0.5}):
        rnn = make(4, 5, batch_first=True, **options).eval()  # dropout would be drawn anew
        output, final = rnn(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
        expected = with_gradients(rnn, x, pad_packed_sequence(output, batch_first=True)[0], final)
        for method in ("frozen", "packed", "split", "staircase", "auto", (0, 2, 5, 9)):
            found = with_gradients(rnn, x, *pv.run(rnn, x, lengths, method=method))
            assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, expected, strict=True)), method

# %% [markdown]
# The loop and three rectangles, two layers, both directions: the results of packing, up to rounding. Now for the clock.
#
# ## How fast is it?
#
# Here is notebook 08's model again, in training. *run* is `pv.run`. *drop-in* keeps torch's RNN, and takes only pack
# and pad from packviz.

# %%
print(forum.STUDY.without_gpu())
full = forum.STUDY.load()
forum.ratios(full)

# %% [markdown]
# In A, all lengths are equal, and `run`'s time stays within 15 % of the padded step's. <!-- recorded -->
#
# In B, the lengths count down. Look first at the drop-in. With 512 time steps, it takes 35 times as long as the padded
# step, and torch's own packing takes 37. <!-- recorded --> So much work, and hardly a difference! In so long a batch,
# most of the time goes into the RNN's own slices, and these are still there.
#
# Now look at the bottom of the chart. There is *run*, and in B it is *below* 1, the line of the padded step. From 128
# time steps on, it takes between 41 % and 66 % of the padded time, around what FLOPs promised in notebook 07: half the
# work, half the time. <!-- recorded --> It sounds so plain, and yet no training step we had timed kept that promise.
#
# How long do you wait, and how much memory does it take? Here is *one* training step of setup B with 512 time steps.
# (*Tuned* means with notebook 09's two environment variables, which save torch the page faults.)

# %% jupyter={"source_hidden": true}
longest = forum.point("B", 512)
timing = full.timing(longest)
tuned = forum.STUDY.load("allocator_tuned_cpu.json").timing(longest)
print("              seconds   tuned   memory")
for name, method in {"torch padded": "padded", "torch packed": "packed", "pv.run": "run"}.items():
    times = f"{timing.median(method):9.2f} {tuned.median(method):7.2f}"
    print(f"{name:12} {times} {timing.memory[method] / 1e6:5.0f} MB")

# %% [markdown]
# Over half a minute, or four tenths of a second: over seventy times as fast, for the same results. With both tuned, it
# is still 28 times as fast. <!-- recorded --> The price is memory. *run* needs about 45 % more than packed, though only
# half as much as padded. <!-- recorded -->
#
# All that was one model, and one pattern of lengths.
#
# ## Were we lucky?
#
# We timed other, smaller batches, 15 for each kind of RNN. We had used none of them when we decided which method `run`
# takes. How often is its training step *clearly* faster or slower than torch's? (If the rounds disagree, it is neither.
# *auto* is `run`, left to choose.)

# %%
untuned = methods.STUDY.load("untuned_cpu.json")
methods.verdicts(untuned)

# %% [markdown]
# Against packing, it was not luck. Torch's packed step is nearly always beaten, and never once clearly faster.
#
# Against padding, it depends. With a GRU or a plain RNN, `run` usually wins. With an LSTM, it clearly wins *three*
# times out of fifteen, and clearly loses once. The other eleven are too close to call. <!-- recorded --> Where has the
# gain gone? These batches have at most 9,600 cells, and setup B with 512 steps has 262,144. <!-- recorded --> In so few
# cells, the saving is probably too small to pay for sorting, cutting and freezing.
#
# So `pv.run` always gives the results of packing. It is not always faster than padding. With an LSTM on few cells, or
# on nearly equal lengths, you would choose it for the right final states, and not for speed.

# %% tags=["claims"]
from statistics import median

from packviz.ops import choose

assert choose.CALL == 200
assert full.ratio(longest, "run", "padded").value < 1 < full.ratio(longest, "packed", "padded").value
for method, times in {"packed": 37, "drop-in": 35}.items():
    assert round(full.ratio(longest, method, "padded").value) == times
took = {method: full.timing(longest).median(method) for method in ("packed", "drop-in", "run")}
assert took["packed"] > took["drop-in"] > 2 * took["run"]
assert took["packed"] > 70 * took["run"]
assert 27.5 < tuned.median("packed") / tuned.median("run") < 28.5
for steps in forum.FULL_STEPS:
    assert 0.87 < full.ratio(forum.point("A", steps), "run", "padded").value < 1.15
below = [full.ratio(forum.point("B", steps), "run", "padded").value for steps in forum.FULL_STEPS if steps >= 128]
assert [f"{limit(below):.0%}" for limit in (min, max)] == ["41%", "66%"]
memory = full.timing(longest).memory
assert 0.45 < memory["run"] / memory["padded"] < 0.55
assert 1.4 < memory["run"] / memory["packed"] < 1.5
for point in untuned.points:
    if point.mode == "GRU" and point.kind != "equal":
        assert untuned.ratio(point, "split", methods.best(untuned, point)).value < 1.25
    if point.kind != "equal":  # usually faster
        assert untuned.ratio(point, "auto", "torch packed").value < 1.1
slower = [p for p in untuned.points if untuned.ratio(p, "auto", "torch padded").value > 1.05]
assert sum(p.mode == "LSTM" and p.hidden_size in (40, 96) for p in slower) >= 0.8 * len(slower)
gains = [untuned.ratio(point, "torch packed", "auto") for point in untuned.points]
assert (len(gains), sum(gain.is_clear for gain in gains)) == (45, 42)
assert all(gain.value > 1 for gain in gains)
assert longest.layout.n_cells == 262_144
assert max(p.layout.n_cells for p in untuned.points) == 9600
one, two = methods.STUDY.load(), methods.STUDY.load("methods_cpu_2.json")
assert {*one.points} == {*two.points}
for mode in ("LSTM", "GRU", "RNN"):
    ragged = [p for p in one.points if p.mode == mode and p.layout.n_padding > 0.1 * p.layout.n_cells]
    before, after = (median(timed.ratio(p, "auto", "torch padded").value for p in ragged) for timed in (one, two))
    assert 0.88 < after / before < 1.12

# %% [markdown]
# <details><summary>And on a GPU, or on another CPU?</summary>
#
# On a GPU, cuDNN runs a packed RNN in one call, so the slow loop should not exist. `run` uses this call, between
# packviz's pack and pad. We have not timed it.
#
# On another CPU, a call has a different price. `pv.advise` measures the methods on yours, and `pv.run` takes its answer
# as `method=`.
#
# </details>
#
# <details><summary>What if you want a module, the RNN is special, or you cannot change the program?</summary>
#
# As a module, `run` is called `pv.LSTM`, `pv.GRU` or `pv.RNN`.
#
# `run` does not accept custom cells. If an RNN has hooks or a `forward` of its own, `run` calls it with packed data.
#
# If you cannot change a program, call `pv.patch_torch()` before it runs. It then uses the drop-in, which usually saves
# some time, but hardly any in the longest batches.
#
# </details>
#
# <details><summary>How does <code>run</code> choose?</summary>
#
# torch has no fused kernel on a CPU for training a GRU or a plain RNN. Rectangles gain little there, so `run` takes
# `split`. For an LSTM, it takes the cheapest staircase. It prices every call at 200 cells, whatever the size of the
# LSTM. That is a simplification: in a larger LSTM, a cell costs more, so a call should be worth fewer cells.
# `pv.plan(rnn, lengths)` explains the choice.
#
# With a second thread, the rule does about as well. On the batches for which we made it, `run`'s median time, relative
# to the padded step, changes by at most about a tenth. <!-- recorded -->
#
# </details>
#
# ## Exercise
#
# Where would you cut? A call costs as much as **10 cells**, so a cut pays if it saves more than 10. Find the staircase
# with the lowest cost. (Two cuts are enough.) `(0, 16)` is the padded batch, and `(0, 8, 16)` has one cut, after 8
# steps. Guess first: the check draws each try, and counts its cells.

# %% tags=["exercise"]
twelve = [16, 14, 13, 9, 9, 8, 4, 4, 3, 3, 2, 2]
my_cuts = (
    # solution
    (0, 4, 9, 16)
    # end solution
)
checks.cheapest_staircase(twelve, my_cuts, call=10)

# %% [markdown]
# ## You can now
#
# - replace pack, RNN and pad by `pv.run`, and say what is inside: a gather, a scatter, and rectangles or `split`,
# - price a cut: it costs a call and saves cells,
# - hold the state of an LSTM still through the padding, and thank rounding for it.
#
# One line, then, always? We have seen it lose once, and often gain nothing. How would you know whether yours is one
# of them?
#
# Next: [11 Should you pack?](11_should_you_pack.ipynb). Back: [09 Why training is
# slow](09_why_training_is_slow.ipynb) · [00 Start here](00_start_here.ipynb)
