# %% [markdown]
# # Making packing pay
#
# **Can a training step be faster than a padded one, and still give the results of packing?**
#
# After this notebook, you can
#
# - pack and pad with one gather and one scatter,
# - cover a batch with a staircase of rectangles and say what each cut costs and saves,
# - freeze an LSTM's cell state during the padding, exactly,
# - run your own RNN with a fast, exact method, in one line.
#
# Time: 20 minutes.
#
# > **In short.** Replace pack → RNN → pad with `output, final = pv.run(rnn, x, lengths)`. On a CPU, this is usually
# > faster. If you cannot change the code, call `pv.patch_torch()` before it runs. That speeds up only packing and
# > padding.
#
# ## Packing with an index
#
# Notebook 09 found two causes of slow training: `pad_packed_sequence` and, on a CPU, the packed RNN. We begin with the
# first. A *gather* reads rows in a given order, and a *scatter* writes rows to given places. Number the cells of a
# padded batch and pack the numbers:

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
# With it, packing is one gather, and padding is one scatter.

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
# The backward pass of a gather is a scatter with the same index, and the other way round. `pv.pack_padded_sequence` and
# `pv.pad_packed_sequence` work like this, with torch's arguments, and return the same bits. In setup B, their backward
# passes write this much:


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
# If T doubles, torch writes about four times as many bytes, and packviz twice as many.
#
# ## One split instead of many slices
#
# The packed RNN takes the rows of each step with `narrow`, whose backward pass fills a whole tensor. `split` takes the
# rows of all steps at once, and its backward pass simply joins their gradients. Here is a plain RNN that uses it:


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
# The backward pass has about as many nodes with `split`, but none of them fills a tensor of all cells for a single
# step.
#
# ## A staircase of rectangles
#
# `split` computes no padding, but needs a few calls for every time step. A padded LSTM on a CPU computes the padding,
# but needs only *one* call, because it has a fused kernel. A *staircase* of *rectangles* lies between the two. Sort the
# sequences, cut the time axis into pieces, and in each piece run the padded kernel on the sequences that have not
# ended. Each piece hands its states to the next.

# %%
ask("between padding and packing")

# %%
ten = [16, 15, 15, 14, 9, 9, 8, 4, 3, 3]
pv.draw.Stairs(ten, [0, 4, 9, 16])

# %% [markdown]
# Hatched cells are padding that is computed.
#
# *How many* cuts pay off (usually some, but not all) depends on the cost of a call compared with that of a cell. In the
# panel, you say how many cells cost as much as a call. Move the slider *rectangles* from end to end. Then make a call
# dearer. Where does the lowest point go, and why?

# %%
from packviz.panels import StaircasePanel

panel = StaircasePanel(sequences=128, longest=256)
panel

# %% tags=["claims"]
assert pv.draw.Stairs(ten, [0, 16]).wasted == pv.Layout(ten).n_padding
assert pv.draw.Stairs(ten, [0, *sorted(set(ten))]).wasted == 0
assert 1 < panel.trade_off.best < panel.rectangles.options[-1]
panel.rectangles.value = panel.rectangles.options[-1]
assert panel.shown.wasted == 0

# %% [markdown]
# Every cut adds a call, so the dearer a call is, the fewer cuts pay off. In a larger RNN, each cell costs more, while a
# call costs much the same. A call is then worth fewer cells, and more cuts pay off.
#
# ## Freeze the cell state
#
# Sequences that end *inside* a rectangle are followed by padding. (For the reverse direction, packviz first reverses
# each sequence.) In the forward direction, their final hidden state `h_n` is the output
# at the last real step. But an LSTM's cell state `c_n` is not part of the output, so it must not change in the padding.
# An LSTM computes c ← f · c + i · g, with new content g and *gates* f, i between 0 and 1.

# %%
ask("a frozen state")

# %% [markdown]
# A gate is a sigmoid, 1 / (1 + e⁻ˣ). We give the LSTM one more input, which is 1 in the padding and 0 elsewhere. Its
# weights push the input gate i down and the forget gate f up. How large must they be?


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
# If the weights are large enough, f is exactly 1 and i exactly 0, so c does not change, and the gradient of the padding
# is 0. In float32, f needs x = 17, because 1 + e⁻¹⁷ is rounded to 1, and i needs −89, because e⁸⁹ exceeds the largest
# number. The weights must also outweigh whatever else a gate receives: someone may set a forget bias of −40,000. So
# packviz uses ±10³⁸, just below the largest number in float32, and packs if an LSTM's own weights come near to it.

# %% tags=["claims"]
assert drift(10, 3000) > 0.1
assert drift(100, 3000) == drift(30_000, 3000) == 0
assert torch.sigmoid(torch.tensor([1e4, -1e4])).tolist() == [1, 0]
assert torch.sigmoid(torch.tensor([16.0, 17.0])).eq(1).tolist() == [False, True]
assert torch.sigmoid(torch.tensor([-88.0, -89.0])).eq(0).tolist() == [False, True]
assert torch.exp(torch.tensor(89.0)).isinf()
assert torch.tensor(1e38).isfinite()
assert drift(1e38, 3000) == 0

# %% [markdown]
# ## One call, several methods
#
# `pv.run` takes an `nn.LSTM`, `nn.GRU` or `nn.RNN` with any number of layers, in one or both directions, and returns
# what pack → RNN → pad returns. Its methods are `"packed"` (torch's own RNN), `"split"`, `"staircase"`, and `"frozen"`
# (one rectangle, exact, unlike torch's padded RNN). The default, `"auto"`, chooses one of them.

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
    print(f"{method:10} {largest:.0e}")

# %% tags=["claims"]
for make in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
    for options in ({}, {"num_layers": 2, "bidirectional": True, "dropout": 0.5}):
        rnn = make(4, 5, batch_first=True, **options).eval()  # dropout would be drawn anew
        expected = results(rnn, x, lengths)
        for method in ("frozen", "packed", "split", "staircase", "auto"):
            found = results(rnn, x, lengths, method)
            assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, expected, strict=True)), method

# %% [markdown]
# The differences are rounding errors. You can also use the module `pv.LSTM`, which takes lengths.
#
# ## How fast is it?
#
# Here is notebook 08's model again, in setup B. *drop-in* keeps torch's RNN and takes pack and pad from packviz, and
# *run* is `pv.run`.

# %%
forum.chart(forum.recordings(forum.METHODS), "ratio", ["B"], forum.METHODS).chart()

# %% [markdown]
# How does `auto` choose? It follows a rule, which was not made for the batches in the next chart. Left of the line at
# 1, a method is faster than *torch padded*, whose final states are wrong.

# %%
untuned = methods.STUDY.load("untuned_cpu.json")
no_gain = [p for p in untuned.points if (p.mode, p.kind, p.directions) == ("LSTM", "nearly equal", 1)]
frozen = {point: untuned.ratio(point, "frozen", "torch padded").value for point in no_gain}
for point, ratio in frozen.items():
    print(f"{point}: with a frozen state, {ratio:.2f} times torch padded")
methods.chart(untuned)

# %% [markdown]
# The rule needs a single number: a call of the fused LSTM takes about as long as 200 cells. With it, `auto` cuts an
# LSTM's batch into the cheapest staircase. torch has no such kernel on a CPU for training a GRU or a plain RNN, so a
# rectangle gains little there, and `auto` takes `split`. `pv.plan(rnn, lengths)` explains the choice.

# %% tags=["claims"]
full = forum.STUDY.load()
longest = forum.point("B", 512)
assert full.ratio(longest, "run", "padded").value < 1 < full.ratio(longest, "packed", "padded").value
took = {method: full.timing(longest).median(method) for method in ("packed", "drop-in", "run")}
assert took["packed"] - took["drop-in"] < took["drop-in"] - took["run"]
for point in untuned.points:
    if point.mode == "GRU" and point.kind != "equal":
        assert untuned.ratio(point, "split", methods.best(untuned, point)).value < 1.15
    if point.kind != "equal":  # usually faster
        assert untuned.ratio(point, "auto", "torch packed").value < 1.05
assert all(ratio > 1 for ratio in frozen.values())
assert largest < 1e-5

# %% [markdown]
# ## Limits
#
# - **Small batches or nearly equal lengths.** torch's padded LSTM can be faster than any exact method, because freezing
#   the state takes extra time in every layer.
# - **Modules that do more.** `run` does not accept custom cells. If an RNN has hooks or a `forward` of its own, `run`
#   calls it with packed data.
# - **Other machines.** There, a call may be worth more cells, or fewer. `pv.advise` measures the methods on your
#   machine, and you can pass its answer to `pv.run` as `method=`.
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
# - freeze an LSTM's cell state during the padding, exactly,
# - run your own RNN exactly and fast, with `pv.run`.
#
# Next: [11 Should you pack?](11_should_you_pack.ipynb). Back: [09 Why training is
# slow](09_why_training_is_slow.ipynb) · [00 Start here](00_start_here.ipynb)
