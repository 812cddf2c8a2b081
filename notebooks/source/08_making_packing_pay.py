# %% [markdown]
# # Making packing pay
#
# **Can a step of training be faster than padded, with the results of packing?**
#
# After this page you can
#
# - pack and pad with one gather and one scatter,
# - cover a batch with a staircase of rectangles, and say what a cut costs and saves,
# - freeze an LSTM's state through the padding, exactly,
# - run your own RNN by a fast and exact way, in one line.
#
# Time: 20 minutes.
#
# > **What to do.** Write `output, final = pv.run(rnn, x, lengths)` where you pack, run and pad: the same results, by a
# > fast way. To change no line of your code, call `pv.patch_torch()` first. That repairs packing and padding alone.

# %% [markdown]
# ## Two causes, two repairs
#
# Notebook 07 counted what makes packing slow. To pad again, torch copies slice by slice, and the backward pass copies *all*
# once per slice. On a CPU its packed RNN does much the same at every time step. First packing and padding.
#
# To read rows in a given order is a *gather*; to write rows to given places, a *scatter*. Predict:

# %%
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz.lessons import ask, checks
from packviz.studies import methods_benchmark

torch.set_num_threads(1)  # more gain little on products this small, and may wait for each other
print(methods_benchmark.STUDY.without_gpu())
ask("one gather")

# %% [markdown]
# Number the cells of a padded batch, and pack the numbers:

# %%
lengths = [5, 4, 2, 2]
numbers = torch.arange(4 * 5).view(4, 5)
pv.show(numbers, lengths, batch_first=True)

# %% [markdown]
# The bottom row says which cell each packed row comes from: an **index**. With it packing is one gather, and padding one
# scatter.

# %%
index = pack_padded_sequence(numbers, lengths, batch_first=True).data
x = torch.randn(4, 5, 3)
packed = pack_padded_sequence(x, lengths, batch_first=True)
padded, _ = pad_packed_sequence(packed, batch_first=True)

gathered = x.flatten(0, 1).index_select(0, index)
scattered = torch.zeros(20, 3).index_copy(0, index, gathered).view(4, 5, 3)
print("index:", *index.tolist())
print("packed by one gather: the same bits:", torch.equal(gathered, packed.data))
print("padded by one scatter: the same bits:", torch.equal(scattered, padded))

# %% [markdown]
# `pv.pack_padded_sequence` and `pv.pad_packed_sequence` do this, and take and return what torch's do. Counted as in 07,
# for batch B of the forum's benchmark, 512 sequences:

# %%
from packviz import lengths as sources
from packviz.count import operators as counting


def written_backward(output):
    """The autograd nodes behind a tensor, and the megabytes that its backward pass writes."""
    steps, operators, _ = counting.backward(output, torch.ones_like(output))
    return len(steps), sum(operator.bytes for operator in operators) / 1e6


for T in (32, 64):
    batch = sorted(sources.triangle(512, T).tolist(), reverse=True)
    for name, part in (("torch", torch.nn.utils.rnn), ("packviz", pv)):
        x = torch.zeros(T, 512, 32, requires_grad=True)
        output, _ = part.pad_packed_sequence(part.pack_padded_sequence(x, batch))
        nodes, megabytes = written_backward(output)
        print(f"T = {T}  {name:8}{nodes:4} nodes {megabytes:7.3g} MB written by backward")

# %% [markdown]
# Twice the steps: four times the bytes with torch, twice the bytes with packviz.
#
# The time of both, recorded. *copy* is one copy of the padded tensor:

# %%
raced = methods_benchmark.STUDY.recordings()  # every machine that was recorded
methods_benchmark.packing_chart(raced)

# %% tags=["claims"]
assert torch.equal(gathered, packed.data)
assert torch.equal(scattered, padded)
assert nodes == 3
assert megabytes < 10  # and torch's over 500: linear, and quadratic
cpu = methods_benchmark.recorded()  # what the text says of times, it says of this one
for point in [point for point in cpu.values if point.mode == "none"]:
    large = point.lengths == "triangle" and point.batch_size == 512
    assert cpu.ratio(point, "torch packed", "packviz") > (12 if large else 1)

# %% [markdown]
# ## Step by step
#
# Now the RNN. torch cuts out the rows of each step by a `narrow`, and the backward pass of each fills a whole tensor.
# `split` cuts them all at once, and its backward pass joins them again. A plain RNN:


# %%
def split_rnn(rnn, packed):
    w_x, w_h, b_x, b_h = rnn.parameters()
    h, outputs = torch.zeros(1, rnn.hidden_size), []
    for rows in (packed.data @ w_x.T + b_x).split(packed.batch_sizes.tolist()):
        h = torch.tanh(rows + h[: len(rows)] @ w_h.T + b_h)
        outputs.append(h)
    return torch.cat(outputs)


for T in (32, 64):
    rnn = torch.nn.RNN(16, 32)
    packed = pack_padded_sequence(torch.randn(T, 64, 16), sorted(sources.triangle(64, T).tolist(), reverse=True))
    for name, output in (("torch", rnn(packed)[0].data), ("split", split_rnn(rnn, packed))):
        nodes, megabytes = written_backward(output)
        print(f"T = {T}  {name}: {megabytes:6.3g} MB written by backward")

# %% tags=["claims"]
assert torch.allclose(split_rnn(rnn, packed), rnn(packed)[0].data, atol=1e-6)

# %% [markdown]
# ## Fewer, larger steps
#
# Twice the steps, twice the bytes: `split` is linear. But each step is still a few calls. A padded LSTM wastes cells, and
# is *one* call for all steps: a *fused kernel*, on a CPU that of the library oneDNN.
#
# Between the two: sort the sequences, and cut time into pieces. In each, run the padded RNN on the sequences that still
# go on, and hand its state to the next. That is a **staircase** of rectangles.

# %%
ask("between padding and packing")

# %%
ten = [16, 15, 15, 14, 9, 9, 8, 4, 3, 3]
pv.draw.Stairs(ten, [0, 4, 9, 16])

# %% [markdown]
# Hatched cells are computed for nothing, empty ones not at all. One rectangle is padding; one for every distinct length,
# packing.
#
# *Where* to cut needs no measurement: where it leaves out most cells. *How often* depends on what a call costs, compared
# with a cell. The chart predicts the time from rates measured before.
#
# ## Try it
#
# - Move *rectangles* from one end to the other. When do cuts stop paying?
# - Make *hidden_size* larger. Where does the lowest point go, and why?
# - Is it so on your machine? **Measure here.**

# %%
from packviz.explorers import StaircaseExplorer

explorer = StaircaseExplorer(many=128, longest=256)
explorer

# %% tags=["claims"]
assert pv.draw.Stairs(ten, [0, 16]).wasted == pv.Layout(ten).n_padding  # one rectangle: padding
assert pv.draw.Stairs(ten, [0, *sorted(set(ten))]).wasted == 0  # one for every distinct length: packing
assert 1 < explorer.trade_off.best < explorer.rectangles.options[-1]
explorer.rectangles.value = explorer.rectangles.options[-1]
assert explorer.shown.wasted == 0

# %% [markdown]
# In a larger RNN a cell costs more, and a call hardly: more cuts pay.
#
# ## A state that must not move
#
# Most sequences end *inside* a rectangle, and padding follows. The final hidden state `h_n` is the output at the last
# real step. But `c_n`, an LSTM's final cell state, is no output: it must come through the padding unchanged. Two *gates*,
# factors between 0 and 1, say how much of it is kept, and how much comes in.

# %%
ask("a frozen state")

# %% [markdown]
# A gate is a sigmoid, 1 / (1 + e⁻ˣ). So give the LSTM one more input column: 1 at padding, 0 elsewhere. Its weight
# pushes the input gate i down and the forget gate f up. How hard must it push?


# %%
def moved(weight, steps):
    torch.manual_seed(1)
    lstm = torch.nn.LSTM(16 + 1, 32)
    with torch.no_grad():
        lstm.weight_ih_l0[:32, 16] = -weight  # rows of the input gate
        lstm.weight_ih_l0[32:64, 16] = weight  # rows of the forget gate
        x = torch.zeros(steps, 1, 17)
        x[:, :, 16] = 1  # nothing but padding
        h, c = torch.zeros(1, 1, 32), torch.linspace(-1, 1, 32).view(1, 1, 32)
        return (lstm(x, (h, c))[1][1] - c).abs().max().item()


print("            largest change of c after so many steps of padding")
print("weight   ", *(f"{steps:>8}" for steps in (1, 10, 100, 1000, 3000)))
for weight in (10, 100, 10_000):
    print(f"±{weight:<8,}", *(f"{moved(weight, steps):8.0g}" for steps in (1, 10, 100, 1000, 3000)))

# %% [markdown]
# Far to the left e⁻ˣ is larger than any float32, so the sigmoid is exactly 0. Far to the right 1 + e⁻ˣ is exactly 1.
# (±10,000 leaves room for whatever else the gate adds up.) The slope is exactly 0 as well: padding takes no part in
# training.
#
# Two details: `run` writes zeros over the padding in `x`, because 0 × NaN is NaN, and starts the reverse direction at
# each sequence's own end.

# %% tags=["claims"]
assert moved(10, 3000) > 0.1
assert moved(100, 3000) == moved(10_000, 3000) == 0
assert torch.sigmoid(torch.tensor([1e4, -1e4])).tolist() == [1, 0]

# %% [markdown]
# ## The same, by every method
#
# `pv.run(rnn, x, lengths)` runs an `nn.LSTM`, `nn.GRU` or `nn.RNN` and returns what pack → rnn → pad returns.
# Its method `"packed"` repairs pack and pad alone; `"split"` and `"staircase"` are those above; `"padded"` is one
# rectangle with the state frozen, so it is right where notebook 04's padding was wrong. `"auto"` chooses.

# %%
ask("what a method may change")


# %%
def outcome(rnn, x, lengths, method=None):
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
lengths = [9, 2, 5, 5, 1, 7]  # in no order
x = torch.randn(6, 9, 4)
x[~pv.real_mask(torch.tensor(lengths))] = float("nan")  # whatever is in the padding
lstm = torch.nn.LSTM(4, 5, batch_first=True, num_layers=2, bidirectional=True)
expected = outcome(lstm, x, lengths)
for method in ("padded", "packed", "split", "staircase", "auto"):
    pairs = zip(outcome(lstm, x, lengths, method), expected, strict=True)
    equal = all(torch.allclose(*pair, atol=1e-5) for pair in pairs)
    print(f"{method:10} output, final states, all gradients: equal to 0.00001: {equal}")

# %% tags=["claims"]
for make in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
    for options in ({}, {"num_layers": 2, "bidirectional": True, "dropout": 0.5}):
        rnn = make(4, 5, batch_first=True, **options).eval()  # no dropout: it would be drawn anew
        expected = outcome(rnn, x, lengths)
        for method in ("padded", "packed", "split", "staircase", "auto"):
            found = outcome(rnn, x, lengths, method)
            assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, expected, strict=True)), method

# %% [markdown]
# ## One line in your code
#
# A network like the forum's, as it was and with `pv.run`:


# %%
class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(10, 16)
        self.lstm = torch.nn.LSTM(16, 32, batch_first=True)
        self.linear = torch.nn.Linear(32, 2)

    def forward(self, ids, lengths):
        packed = pack_padded_sequence(self.embedding(ids), lengths, batch_first=True)
        output, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.linear(output.sum(1))


# %%
class Faster(Network):
    def forward(self, ids, lengths):
        output, _ = pv.run(self.lstm, self.embedding(ids), lengths)
        return self.linear(output.sum(1))


before, after = Network(), Faster()
after.load_state_dict(before.state_dict())
lengths = sorted(sources.triangle(512, 128).tolist(), reverse=True)  # the forum's batch B
ids = torch.randint(1, 10, (512, 128))
for network in (before, after):
    network(ids, lengths).square().mean().backward()
pairs = [(old.grad, new.grad) for old, new in zip(before.parameters(), after.parameters(), strict=True)]
print("the same gradients:", all(torch.allclose(b, a, atol=1e-4 * b.abs().max()) for b, a in pairs))

# %% [markdown]
# Nothing needs to be sorted for it. As a module: `pv.Ragged(rnn)`, which takes the lengths in its call. For rows that lie
# one sequence after another (`cu_seqlens`): notebook [12](12_beyond_rnns.ipynb).
#
# Does much of your code call torch's functions? In this block torch's names stand for packviz's pack and pad. The two
# names that we imported at the top of this page would keep torch's functions, and `patch_torch` would warn us of them. So
# we replace them, too, with `everywhere=True`. After the block all of them are torch's again.
#
# To run a whole program like this, you need not change it: `packviz patched train.py`.

# %%
with pv.patch_torch(everywhere=True) as patch:
    print(patch)
    pack_padded_sequence(torch.zeros(512, 128, 16), lengths, batch_first=True)  # packviz's

# %% [markdown]
# ## What `auto` goes by
#
# `auto` predicts the time of each method: so much for a call, a time step, a cell. The constants were measured on another
# machine, and `pv.calibrate().use()` measures yours in minutes. Of methods within 5 % of the fastest, `auto` takes the
# simplest. Until constants have been measured on a GPU, `auto` packs there:

# %%
cases = {
    "8 sequences, 1 to 8 steps": ("LSTM", range(1, 9)),
    "512 sequences, all 128 steps": ("LSTM", [128] * 512),
    "512 sequences, 1 to 512 steps": ("LSTM", range(1, 513)),
    "the same, for a GRU": ("GRU", range(1, 513)),
}
for said, (mode, batch) in cases.items():
    print(f"{said:30} {pv.plan(pv.Spec(mode, 16, 32), batch).method}")

# %% [markdown]
# A plan has the predicted times and the cuts, too, and `print(plan)` says where its constants were measured. For the
# batch of the two networks above:

# %%
plan = pv.plan(pv.Spec.of(after.lstm), lengths)
for method, seconds in plan.seconds.items():
    print(f"{method:10} {1e3 * seconds:4.0f} ms predicted")
print("auto takes:", plan.method)
pv.draw.Stairs(lengths, plan.cuts)

# %% [markdown]
# ## The forum's plot, again
#
# The whole network of notebook 06, batch B with 512 sequences: `drop-in` exchanges pack and pad only, `run` is `pv.run`.

# %%
from packviz.studies import benchmark

methods = ("padded", "packed", "drop-in", "run")
machines = benchmark.recordings(methods)
benchmark.by_machine(machines, "ratio", "B").chart()

# %% [markdown]
# On the CPU packed training takes many times as long as padded. With `run` it takes less: the results of packing, and
# fewer cells. `drop-in` saves the smaller part of the lost time: pack and pad. The larger part is torch's packed LSTM.

# %%
benchmark.by_machine(machines, "memory", "B").chart()

# %% [markdown]
# On the CPU `run` pays with memory: the staircase keeps the rows of every rectangle beside the padded batch. Padded needs
# more still.

# %% tags=["claims"]
assert not any(found.left_out for found in machines.values())
full = benchmark.recorded("benchmark_cpu.json")
longest = full.steps("B")[-1]
memory = full.at("B", longest)["training"].memory
assert full.ratio("run", "padded", "B", longest).value < 1 < full.ratio("packed", "padded", "B", longest).value
took = {method: full.at("B", longest)["training"].median(method) for method in methods}
assert took["packed"] - took["drop-in"] < took["drop-in"] - took["run"]
assert memory["packed"] < memory["run"] < memory["padded"]

# %% [markdown]
# On your machine, with batches of 64. In so small a step `run`'s own calls may cost more than it saves:

# %% tags=["live-timing", "nbval-ignore-output"]
live = benchmark.run(benchmark.grid("B", (32, 64, 128)), methods=methods, batch_size=64, rounds=25, until_narrow=True)
print(live)
benchmark.by_machine({"yours": live}, "ratio", "B").chart()

# %% [markdown]
# ## Who wins
#
# One network is one case, so the methods of `run` are compared with torch at many. A row is an RNN (input, hidden size), the kind of
# lengths, and sequences × steps. Left of the line is faster than torch padded, whose states are wrong. No method wins
# everywhere: `auto` has to choose.

# %%
methods_benchmark.chart(raced)

# %% [markdown]
# Where does `auto` miss what it aims at?

# %%
methods_benchmark.misses(raced)

# %% [markdown]
# On the CPU `auto` hardly ever loses to torch packed in training. It can lose to torch's *padded* LSTM, the fused kernel,
# with tiny batches, short sequences, or hardly any padding.

# %% tags=["claims"]
assert len(cpu.targets()["at most 1.03 times torch packed"].misses) <= 2
lost = [point for point in cpu.points if cpu.ratio(point, "auto", "torch padded") > 1.05]
assert sum(point.mode == "LSTM" for point in lost) > len(lost) / 2

# %% [markdown]
# ## What people get wrong
#
# - **"A faster method gives other results."** It may change the last bits, and nothing else.
# - **"The same seed, the same dropout."** Between layers dropout is drawn in another order. Compare with dropout at 0.
# - **"Fewer cells, less time."** Cuts cost calls. Nearly equal lengths stay one rectangle.
# - **"So it is on a GPU."** There cuDNN, NVIDIA's library, takes `batch_sizes` as they are. Nothing here was measured on a
#   GPU, so `auto` runs torch's packed RNN there, between the linear pack and pad, until `pv.calibrate("cuda").use()` has
#   measured constants. To compare them on yours: `packviz study methods --device cuda --out mine.json`.

# %% [markdown]
# ## Exercise
#
# Choose the cuts yourself. A call costs as much as **10 cells**, and the 12 sequences are up to 16 steps long. Find a
# staircase that no other undercuts. `(0, 16)` is the padded batch, `(0, 8, 16)` has one cut, after 8 steps.

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
# - cover a batch with a staircase: a cut costs a call, and saves cells,
# - freeze an LSTM's state through the padding, exactly,
# - run your own RNN by a fast and exact way: `pv.run(rnn, x, lengths)`.
#
# Next: [09 Static graphs](09_static_graphs.ipynb). Back: [07 Why the backward pass is slow](07_why_backward_is_slow.ipynb) ·
# [00 Start here](00_start_here.ipynb)
