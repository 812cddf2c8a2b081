# %% [markdown]
# # Making packing pay
#
# **Can a training step be faster than a padded one, and still give the results of packing?**
#
# So far you have two bad choices. A padded step is quick, and its final states are wrong. A packed step is right, and you
# wait for it. Colleagues settle this by taste. But notebook 09 found nothing wrong with packing itself: what takes so
# long is the way back, slice by slice. So let us keep the results, and throw away the slices.
#
# After this page, you can pack with an index, cover a batch with a staircase, and run your own RNN exactly and fast, in
# one line.
#
# Time: 20 minutes.
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
# > **In short.** The marked lines become one: `output, (h_n, c_n) = pv.run(lstm, embedded, lengths)`. If you cannot change
# > the code, call `pv.patch_torch()` before it runs. That speeds up only packing and padding.
#
# ## Can one index replace all copies?
#
# We begin with pad, the culprit that computes nothing. Number the cells of a padded batch, and pack the numbers:

# %%
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz import lengths as kinds
from packviz.count import operators
from packviz.lessons import ask, checks
from packviz.studies import forum, methods

torch.set_num_threads(1)  # more threads gain little on products this small, and may wait for each other
print(forum.STUDY.without_gpu())

lengths = [5, 4, 2, 2]
numbers = torch.arange(4 * 5).view(4, 5)
pv.show(numbers, lengths, batch_first=True)

# %% [markdown]
# Read the packed half column by column. Its numbers say which cell each entry comes from, so they form an **index**.
# With it, packing is a *gather*, which reads rows in a given order, and padding is a *scatter*, which writes rows to
# given places.

# %%
ask("one gather")

# %%
index = pack_padded_sequence(numbers, lengths, batch_first=True).data
x = torch.randn(4, 5, 3)
packed = pack_padded_sequence(x, lengths, batch_first=True)
padded, _ = pad_packed_sequence(packed, batch_first=True)

gathered = x.flatten(0, 1).index_select(0, index)
scattered = torch.zeros(20, 3).index_copy(0, index, gathered).view(4, 5, 3)
print("packed, bit for bit:", torch.equal(gathered, packed.data))
print("padded, bit for bit:", torch.equal(scattered, padded))

# %% [markdown]
# Each is the other's backward pass, with the same index. `pv.pack_padded_sequence` and `pv.pad_packed_sequence` work
# like this, with torch's arguments, and return the same bits. What do they write on the way back, in setup B?


# %%
def written(output):
    """The megabytes that the backward pass of a tensor writes, in how many autograd nodes."""
    _, calls, _ = operators.observe(lambda: output.sum().backward(retain_graph=True), output.device)
    return f"{sum(call.bytes for call in calls) / 1e6:6.3g} MB in {len(operators.walk(output))} nodes"


for T in (32, 64):
    batch = sorted(kinds.triangle(512, T).tolist(), reverse=True)
    for name, part in (("torch", torch.nn.utils.rnn), ("packviz", pv)):
        x = torch.zeros(T, 512, 32, requires_grad=True)
        output, _ = part.pad_packed_sequence(part.pack_padded_sequence(x, batch))
        print(f"T = {T}  {name:8} {written(output)}")

# %% tags=["claims"]
assert torch.equal(gathered, packed.data)
assert torch.equal(scattered, padded)
assert written(output).endswith(" in 5 nodes")  # whatever the lengths

# %% [markdown]
# Five nodes, whatever the lengths. If T doubles, torch writes about four times as many bytes, and packviz twice as many.
# One culprit is gone. It was the easy one. Can the RNN lose its slices, too?
#
# ## Can the RNN take all its slices at once?
#
# The packed RNN takes the rows of each step with `narrow`, whose backward pass fills a whole tensor. `split` takes the
# rows of all steps in a single call, and its backward pass simply joins their gradients. Here is a plain RNN that uses
# it, all of it:


# %%
def split_rnn(rnn, packed):
    w_x, w_h, b_x, b_h = rnn.parameters()
    h, outputs = torch.zeros(1, rnn.hidden_size), []
    for rows in (packed.data @ w_x.T + b_x).split(packed.batch_sizes.tolist()):
        h = torch.tanh(rows + h[: len(rows)] @ w_h.T + b_h)
        outputs.append(h)
    return torch.cat(outputs)


rnn = torch.nn.RNN(16, 32)
for T in (32, 64):
    batch = sorted(kinds.triangle(64, T).tolist(), reverse=True)
    packed = pack_padded_sequence(torch.randn(T, 64, 16), batch)
    print(f"T = {T}  torch {written(rnn(packed)[0].data)}")
    print(f"T = {T}  split {written(split_rnn(rnn, packed))}")

# %% tags=["claims"]
assert torch.allclose(split_rnn(rnn, packed), rnn(packed)[0].data, atol=1e-6)
all_cells = packed.data.shape[0] * 32 * 4  # the bytes of all states, in a batch of 64 steps
for output, at_most, at_least in [(split_rnn(rnn, packed), 5, 0), (rnn(packed)[0].data, 1000, 64)]:
    _, calls, _ = operators.observe(output.sum().backward, output.device)
    assert at_least <= sum(call.bytes >= all_cells for call in calls) <= at_most

# %% [markdown]
# About as many nodes, but none of them fills a tensor of all cells for a single step. For a GRU or a plain RNN, that is
# nearly the end of the story.
#
# Not for an LSTM. A padded LSTM has oneDNN's fused kernel, and against one call that does everything, a loop over time
# steps usually looks slow. Padding is wasteful and has one call. Packing wastes nothing and has hundreds. Is there
# something between one and hundreds?
#
# ## What lies between padding and packing?
#
# Sort the sequences, cut the time axis into pieces, and in each piece run the padded kernel on the sequences that have
# not ended. Each piece hands its states to the next. The pieces are *rectangles*, and together they form a *staircase*.

# %%
ask("between padding and packing")

# %%
ten = [16, 15, 15, 14, 9, 9, 8, 4, 3, 3]
pv.draw.Stairs(ten, [0, 4, 9, 16])

# %% [markdown]
# Hatched cells are padding that is computed all the same. More cuts leave less of it, and every cut is one more call.
# So all depends on a price: how many cells could be computed in the time of a call? Move the slider *rectangles* from
# end to end. Then make a call more expensive. Where does the lowest point go?

# %%
from packviz.panels import StaircasePanel

panel = StaircasePanel(sequences=128, longest=256)
panel

# %% tags=["claims"]
assert pv.draw.Stairs(ten, [0, 16]).wasted == pv.Layout(ten).n_padding
assert pv.draw.Stairs(ten, [0, *sorted(set(ten))]).wasted == 0
assert 1 < min(panel.costs, key=panel.costs.get) < panel.rectangles.options[-1]
panel.rectangles.value = panel.rectangles.options[-1]
assert panel.shown.wasted == 0

# %% [markdown]
# The more expensive a call, the fewer cuts pay off. (In a larger RNN, a cell costs more, and a call much the same, so a
# call is worth fewer cells.)
#
# There is a catch, and we have walked past it. Inside a rectangle, some sequences end early, and the kernel runs on
# through their padding. That is exactly what made the padded LSTM's final states wrong.
#
# ## How do you stop an LSTM that cannot stop?
#
# `h_n` is easy: it is the output at the last real step, so we look it up. (For the reverse direction, packviz first
# reverses each sequence.) But an LSTM's cell state `c_n` is not part of the output. It must survive the padding, and it
# is updated at every step: c ← f · c + i · g, with new content g and *gates* f, i between 0 and 1.

# %%
ask("a frozen state")

# %% [markdown]
# A gate is a sigmoid, 1 / (1 + e⁻ˣ). We cannot change the kernel, but we can change what it reads. We give the LSTM one
# more input, which is 1 in the padding and 0 elsewhere, and whose weights push i down and f up. How large must they be?
# A gate at 0.99995 sounds safe.


# %%
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
for weight in (10, 100, 30_000):
    print(f"±{weight:<8,}", *(f"{drift(weight, steps):8.0g}" for steps in (1, 100, 3000)))

# %% [markdown]
# It is not: what changes a little at every step changes a lot in 3,000. But from some size on, nothing changes at all,
# to the last bit. That is not luck. In float32, 1 + e⁻¹⁷ is rounded to 1, so f is *exactly* 1; and e⁸⁹ exceeds the
# largest number, so i is *exactly* 0. Rounding, for once, works for us. And where i is 0, so is the gradient of the
# padding.
#
# The weights must also outweigh whatever else a gate receives: someone may set a forget bias of −40,000. So packviz
# uses ±10³⁸, just below the largest number in float32, and packs if the norm of one of an LSTM's own weights exceeds
# 10¹⁵.

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

# %% [markdown]
# ## Is it still the same LSTM?
#
# `pv.run` takes an `nn.LSTM`, `nn.GRU` or `nn.RNN` with any number of layers, in one or both directions, and returns
# what pack → RNN → pad returns. Its methods are `"packed"` (torch's own RNN), `"split"`, `"staircase"`, and `"frozen"`
# (one rectangle, exact, unlike torch's padded RNN). The default, `"auto"`, chooses one of them. We have cut, reordered
# and frozen. What may that change?

# %%
ask("what a method may change")


# %%
def results(rnn, x, lengths, method=None):
    x = x.clone().requires_grad_()
    if method:
        output, final = pv.run(rnn, x, lengths, method=method)
    else:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        output, final = rnn(packed)
        output, _ = pad_packed_sequence(output, batch_first=True)
    final = final if isinstance(final, tuple) else (final,)
    loss = sum(t.square().sum() for t in (output, *final))
    return output, *final, *torch.autograd.grad(loss, [x, *rnn.parameters()])


# %%
torch.manual_seed(0)
lengths = [9, 2, 5, 5, 1, 7]  # in any order
x = torch.randn(6, 9, 4)
x[~pv.real_mask(lengths)] = float("nan")  # whatever the padding holds
lstm = torch.nn.LSTM(4, 5, batch_first=True, num_layers=2, bidirectional=True)
expected = results(lstm, x, lengths)
print("largest difference in an output, a final state or a gradient, as a multiple of its largest value")
for method in ("frozen", "packed", "split", "staircase", "auto"):
    found = results(lstm, x, lengths, method)
    largest = max((a - b).abs().max() / b.abs().max() for a, b in zip(found, expected, strict=True))
    print(f"{method:10} {'less' if largest < 1e-6 else 'more'} than a millionth")

# %% tags=["claims"]
assert largest < 1e-5
for make in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
    for options in ({}, {"num_layers": 2, "bidirectional": True, "dropout": 0.5}):
        rnn = make(4, 5, batch_first=True, **options).eval()  # dropout would be drawn anew
        expected = results(rnn, x, lengths)
        for method in ("frozen", "packed", "split", "staircase", "auto"):
            found = results(rnn, x, lengths, method)
            assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, expected, strict=True)), method

# %% [markdown]
# Rounding errors, although all of the padding was NaN. (If you prefer a module, `pv.LSTM` takes lengths.) The results
# stand. Was it worth it?
#
# ## How fast is it?
#
# Here is notebook 08's model again, in training. *drop-in* keeps torch's RNN and takes pack and pad from packviz, and
# *run* is `pv.run`. The line at 1 is a padded step, whose final states are wrong in B (this model does not use them).

# %%
full = forum.STUDY.load()
forum.ratios(full)

# %% [markdown]
# In setup A there is nothing to gain, and next to nothing is lost. In B, the drop-in's curve still climbs with torch's,
# because the packed RNN still writes its slices. Only *run* stays down, and it goes below 1: exact in its final states,
# too, and faster than the padded step.
#
# That was one model. In the next chart, each arrow leads from torch's packed step to `auto`, on batches for which its
# rule was not made.

# %%
untuned = methods.STUDY.load("untuned_cpu.json")
methods.chart(untuned)

# %% [markdown]
# (`print(methods.chart(untuned))` lists all points, with every method.)
#
# Where an arrow ends right of the line, torch's padded step is faster, and wrong (unless all lengths are equal). Where
# there is any padding, most of these are LSTMs with nearly equal lengths: there is hardly anything to save, and the
# fused kernel has no competition. What `auto` loses there is mostly copies and Python; the extra input costs little.
# <!-- recorded -->
#
# The rule that chooses needs a single number: a call of the fused LSTM takes about as long as 200 cells. With it, `auto`
# cuts an LSTM's batch into the cheapest staircase. torch has no such kernel on a CPU for training a GRU or a plain RNN,
# so a rectangle gains little there, and `auto` takes `split`. `pv.plan(rnn, lengths)` explains the choice.
#
# This is the median over the batches with padding, for each number of threads that was recorded:

# %%
from statistics import median

for machine, timed in methods.STUDY.recordings().items():
    for mode in ("LSTM", "GRU", "RNN"):
        ragged = [p for p in timed.points if p.mode == mode and p.layout.n_padding > 0.1 * p.layout.n_cells]
        packed, padded = (
            median(timed.ratio(p, "auto", to).value for p in ragged) for to in ("torch packed", "torch padded")
        )
        print(f"{machine:15} {mode:4} auto takes {packed:.2f} × torch packed, {padded:.2f} × torch padded")

# %% [markdown]
# Against torch's packed step, the gain is there for all three. Against the padded one, it is largest for the GRU and
# the plain RNN. For an LSTM it is small. <!-- recorded -->

# %% tags=["claims"]
from packviz.ops import choose

assert choose.CALL == 200
longest = forum.point("B", 512)
assert full.ratio(longest, "run", "padded").value < 1 < full.ratio(longest, "packed", "padded").value
took = {method: full.timing(longest).median(method) for method in ("packed", "drop-in", "run")}
assert took["packed"] > took["drop-in"] > 2 * took["run"]
for steps in (128, 512):
    assert 0.8 < full.ratio(forum.point("A", steps), "run", "padded").value < 1.25
for point in untuned.points:
    if point.mode == "GRU" and point.kind != "equal":
        assert untuned.ratio(point, "split", methods.best(untuned, point)).value < 1.25
    if point.kind != "equal":  # usually faster
        assert untuned.ratio(point, "auto", "torch packed").value < 1.1
slower = [p for p in untuned.points if p.kind != "equal" and untuned.ratio(p, "auto", "torch padded").value > 1.05]
assert sum(p.mode == "LSTM" and p.kind == "nearly equal" for p in slower) > len(slower) / 2
gains = {}
for mode in ("LSTM", "GRU", "RNN"):
    ragged = [p for p in untuned.points if p.mode == mode and p.kind in ("evenly", "uniform")]
    gains[mode] = median(untuned.ratio(p, "auto", "torch padded").value for p in ragged)
assert max(gains["GRU"], gains["RNN"]) < gains["LSTM"] < 1.2

# %% [markdown]
# ## When is it not worth it?
#
# - **Small batches or nearly equal lengths, with an LSTM.** torch's padded step can be faster than any exact method.
# - **Modules that do more.** `run` does not accept custom cells. If an RNN has hooks or a `forward` of its own, `run`
#   calls it with packed data.
# - **Other machines.** There, a call may be worth more cells, or fewer. `pv.advise` measures the methods on yours, and
#   `pv.run` takes its answer as `method=`.
# - **GPUs.** cuDNN runs a packed RNN in one call, and `auto` uses this call, between packviz's pack and pad.
#
# ## Exercise
#
# A call costs as much as **10 cells**, and the 12 sequences have up to 16 steps. Find a staircase with the lowest cost.
# `(0, 16)` is the padded batch, and `(0, 8, 16)` has one cut, after 8 steps.

# %% tags=["exercise"]
twelve = [4, 16, 3, 9, 2, 13, 9, 4, 14, 3, 8, 2]
my_cuts = (
    # solution
    (0, 4, 9, 16)
    # end solution
)
checks.cheapest_staircase(twelve, my_cuts, call=10)

# %% [markdown]
# ## You can now
#
# - pack and pad with one gather and one scatter,
# - cover a batch with a staircase, where each cut costs a call and saves cells,
# - freeze an LSTM's cell state during the padding, exactly, because rounding lets you,
# - run your own RNN exactly and fast, with `pv.run`.
#
# One line, then, always? Not every batch is ragged, and not every RNN small.
#
# Next: [11 Should you pack?](11_should_you_pack.ipynb). Back: [09 Why training is
# slow](09_why_training_is_slow.ipynb) · [00 Start here](00_start_here.ipynb)
