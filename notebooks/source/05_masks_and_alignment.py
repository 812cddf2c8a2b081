# %% [markdown]
# # Masks and alignment
#
# **Which computations read the padding by mistake, and how do you stop them?**
#
# After this page you can
#
# - take a loss, a mean, a maximum, a normalisation and an attention over the real cells only,
# - work on `PackedSequence.data` directly, and say when that is right,
# - move data to the left or the right by their lengths,
# - hand states from an encoder to a decoder in the right order.
#
# Time: 20 minutes.

# %% [markdown]
# ## A loss that reads the padding
#
# Six sequences. Suppose the model is off by the same amount at every real step.
# At the padding, prediction and target are both 0: they agree.

# %%
import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

import packviz as pv
from packviz.lessons import ask, checks
from packviz.lessons import sentences

torch.set_num_threads(1)  # the products here are so small that a second thread would only wait
lengths = [9, 8, 6, 4, 3, 2]
pv.show(lengths)

# %%
ask("loss over padding")

# %%
torch.manual_seed(0)
target = pad_sequence([torch.randn(n, dtype=torch.double) for n in lengths], batch_first=True)
mask = pv.padding_mask(lengths)  # True at real cells
prediction = target + 0.5 * mask

unmasked = F.mse_loss(prediction, target)
masked = pv.masked_loss(F.mse_loss(prediction, target, reduction="none"), lengths, batch_first=True)
assert torch.isclose(masked, torch.tensor(0.25).double())
assert torch.isclose(unmasked / masked, torch.tensor(32 / 54).double())
print(f"masked {masked:.3g}   unmasked {unmasked:.3g}, too small by the factor {mask.sum()}/{mask.numel()}")

# %% [markdown]
# The sum is right, the divisor is not: 54 cells instead of 32. Gradients shrink by the same factor,
# and by another one in the next batch.
#
# `masked_loss` takes any loss computed with `reduction="none"`. Every token weighs the same.
# Accuracy is such a mean, too:

# %%
classes = torch.where(mask, torch.arange(9) % 2, 0)  # labels 0, 1, 0, 1, …; 0 at the padding
guess = torch.zeros_like(classes)  # a model that always says 0
right = (guess == classes).double()
real_accuracy = pv.masked_loss(right, lengths, batch_first=True)
assert real_accuracy == (right[mask]).mean()
print(f"accuracy over all cells {right.mean():.0%}, over real ones {real_accuracy:.0%}")

# %% [markdown]
# ## Straight on the packed data
#
# Packed, there is no padding left to mask. But a layer wants a tensor:

# %%
x = pad_sequence([torch.randn(n, 4, dtype=torch.double) for n in lengths], batch_first=True)
packed = pack_padded_sequence(x, lengths, batch_first=True)
linear = torch.nn.Linear(4, 1).double()
try:
    linear(packed)
except TypeError as error:
    print(str(error).splitlines()[0])

# %% [markdown]
# Give it `packed.data`: one row per real cell. `_replace(data=…)` puts the result back and keeps the order.

# %%
scores = packed._replace(data=linear(packed.data).squeeze(1))
targets = pack_padded_sequence(target, lengths, batch_first=True)
loss = F.mse_loss(scores.data, targets.data)  # no mask, no reduction="none"

padded_loss = F.mse_loss(linear(x).squeeze(2), target, reduction="none")
assert torch.allclose(loss, pv.masked_loss(padded_loss, lengths, batch_first=True))
assert torch.allclose(pv.unpack_to_length(scores, 9, batch_first=True)[mask], linear(x).squeeze(2)[mask])
print(f"the same loss, from {len(packed.data)} rows instead of {mask.numel()}")

# %% [markdown]
# This is right for whatever treats each cell alone: Linear, activation, dropout, LayerNorm, an element-wise loss.
# It is cheap, because rows of padding are not computed.
#
# It is wrong for whatever looks along time: convolution, attention, pooling. In `data` a row's neighbour is another
# sequence.

# %% [markdown]
# ## Five that read the padding
#
# You have seen two, loss and accuracy. Three to go.

# %%
ask("reads the padding")

# %% [markdown]
# **Pooling.** A mean divides by T. A maximum may find the padding's 0, if all real values are negative.

# %%
negative = -1 - x.abs() * mask[..., None]  # every real value is below -1
negative = negative * mask[..., None]  # and the padding is 0
n = torch.tensor(lengths)[:, None]

mean, peak = negative.mean(1), negative.amax(1)
right_mean = negative.sum(1) / n
right_peak = negative.masked_fill(~mask[..., None], -torch.inf).amax(1)
for b, length in enumerate(lengths):
    assert torch.allclose(right_mean[b], negative[b, :length].mean(0))
    assert torch.allclose(right_peak[b], negative[b, :length].amax(0))
    assert torch.allclose(mean[b], right_mean[b] * length / 9)
assert (peak[1:] == 0).all()
assert (right_peak < -1).all()
print("mean of the shortest: 2/9 of what it should be;  maximum of five sequences: 0, which nobody wrote")

# %% [markdown]
# **BatchNorm.** Its mean and variance are taken over all cells, so the padding's zeros count. Give it `packed.data`.

# %%
far = packed._replace(data=packed.data + 10)
padded_norm, packed_norm = (torch.nn.BatchNorm1d(4, momentum=1.0).double() for _ in range(2))
padded_norm(pv.unpack_to_length(far, 9).flatten(0, 1))
normalised = packed_norm(far.data)
assert torch.allclose(padded_norm.running_mean, packed_norm.running_mean * 32 / 54)
assert torch.allclose(packed_norm.running_mean, far.data.mean(0))
for name, norm in (("over all cells", padded_norm), ("over real ones", packed_norm)):
    print(f"{name}: mean {norm.running_mean[0]:.3g}, standard deviation {norm.running_var[0].sqrt():.2g}")

# %% [markdown]
# **Attention.** A softmax gives weight to padded keys as well.
# Mind the two conventions: `scaled_dot_product_attention` wants True at cells to **read**,
# `MultiheadAttention(key_padding_mask=…)` True at cells to **ignore**.

# %%
attention = torch.nn.MultiheadAttention(4, 1, batch_first=True, bias=False).double()
_, blind = attention(x, x, x)
output, weights = attention(x, x, x, key_padding_mask=~mask)
lost = (blind * ~mask[:, None, :]).sum(2)[:, 0]  # weight on padding, of each sequence's first query
assert (weights * ~mask[:, None, :] == 0).all()
for b, length in enumerate(lengths):
    alone, _ = attention(*[x[b : b + 1, :length]] * 3)
    assert torch.allclose(output[b : b + 1, :length], alone)
print("weight on padding:", "  ".join(f"{share:.0%}" for share in lost))

# %% [markdown]
# ## Left and right
#
# **Left-aligned** means data first, padding at the end. `pack_padded_sequence` wants that.
# (You will meet the opposite wording. It is wrong: "left" is where the *data* are.)
#
# `pv.align` moves them, by their lengths.

# %%

history = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0], [7, 8, 9, 0]])
right = pv.align(history, [4, 2, 3], to="right", batch_first=True)
assert right.tolist() == [[1, 2, 3, 4], [0, 0, 5, 6], [0, 7, 8, 9]]
assert torch.equal(pv.align(right, [4, 2, 3], to="left", batch_first=True), history)
pv.Aligned.of(right, [4, 2, 3], "right", "right-aligned: padding at the start", batch_first=True)

# %% [markdown]
# Who wants which? As the documentation of *transformertf* tells it:
#
# | | encoder | decoder |
# |---|---|---|
# | LSTM encoder–decoders, packed | left | left |
# | the TFT family (*Temporal Fusion Transformer*) | **right** | left |
#
# A TFT puts past and future on one time axis. Aligned like this, each past ends where its future begins:

# %%
future, ahead = torch.tensor([[5, 6, 7], [7, 0, 0], [10, 11, 0]]), [3, 1, 2]
axis = torch.cat([right, future], dim=1)
real = torch.cat([pv.padding_mask([4, 2, 3]).flip(1), pv.padding_mask(ahead)], dim=1)
assert real[:, 3:5].all()  # no gap between the last past and the first future step
pv.Aligned.of(axis, real, title="past (t = 0 to 3) to the right, future to the left", batch_first=True)

# %% [markdown]
# ## Never guess from zeros
#
# A zero may be data: a word id, a closed shop, no rain. Code that looks for zeros cannot know.

# %%
ask("a guess from zeros")

# %%
row = torch.tensor([[0, 0, 7, 8, 0, 0]])  # length 4: its first two zeros are data
first = int(row[0].nonzero()[0])
guessed = row.roll(-first, dims=1)
by_length = pv.align(row, [4], to="left", source="left", batch_first=True)
assert by_length.tolist() == row.tolist()
assert pv.align(row, [4], to="right", batch_first=True).tolist() == [[0, 0, 0, 0, 7, 8]]
pv.Aligned.of(guessed, [4], title="guessed from zeros", batch_first=True, like=by_length)

# %% [markdown]
# Try it. When is the guess right? Change where the *real zeros* are, and the sides.

# %%
from packviz.explorers import AlignExplorer

explorer = AlignExplorer()
explorer

# %%
for zeros in explorer.zeros.options:
    explorer.zeros.value = zeros
    wrong = []
    for source, to in [("left", "right"), ("left", "left"), ("right", "left"), ("right", "right")]:
        explorer.source.value, explorer.to.value = source, to
        wrong.append(f"{source} to {to} {explorer.wrong_cells}")
    assert (zeros == "none") == all(said.endswith(" 0") for said in wrong)
    print(f"real zeros {zeros}: wrong cells {', '.join(wrong)}")
explorer.source.value, explorer.to.value, explorer.zeros.value = "right", "left", "at the start"

# %% [markdown]
# ## Encoder and decoder
#
# An encoder reads the source, a decoder starts from its final state and reads the target.
# Both batches are ragged, and the longest source rarely has the longest target. So they sort differently.

# %%
torch.manual_seed(0)
encoder, decoder = torch.nn.LSTM(3, 5).double(), torch.nn.LSTM(2, 5).double()
sources = [torch.randn(n, 3, dtype=torch.double) for n in (3, 5, 2, 4)]
drafts = [torch.randn(n, 2, dtype=torch.double) for n in (2, 1, 4, 3)]


def alone(i):
    _, state = encoder(sources[i])
    return decoder(drafts[i], state)[1][0][0]  # the decoder's final h of pair i


wanted = torch.stack([alone(i) for i in range(4)])

# %%
from torch.nn.utils.rnn import pack_sequence

_, state = encoder(pack_sequence(sources, enforce_sorted=False))
_, (h_n, c_n) = decoder(pack_sequence(drafts, enforce_sorted=False), state)
assert torch.allclose(h_n[0], wanted)
print("enforce_sorted=False on both sides: every pair is right")

# %% [markdown]
# `state` comes out in **your** order, and the decoder sorts it for itself. Nothing to do.
#
# Older code sorts by hand, because torch once asked for it.

# %%
ask("states between encoder and decoder")

# %%
by_source = sorted(range(4), key=lambda i: -len(sources[i]))  # 1, 3, 0, 2
by_draft = sorted(range(4), key=lambda i: -len(drafts[i]))  # 2, 3, 0, 1
_, state = encoder(pack_sequence([sources[i] for i in by_source]))
_, (h_n, c_n) = decoder(pack_sequence([drafts[i] for i in by_draft]), state)
for rank, i in enumerate(by_draft):
    error = (h_n[0, rank] - wanted[i]).abs().max()
    assert (error < 1e-9) == (by_source[rank] == i)
    print(f"draft {i} started from source {by_source[rank]}: {'right' if error < 1e-9 else f'off by {error:.2g}'}")

# %% [markdown]
# No error, no warning. The repair is one permutation: row `rank` must hold the state of sequence `by_draft[rank]`.

# %%
rows = torch.tensor([by_source.index(i) for i in by_draft])
h, c = state
_, (h_n, c_n) = decoder(pack_sequence([drafts[i] for i in by_draft]), (h[:, rows], c[:, rows]))
assert torch.allclose(h_n[0], wanted[by_draft])
print("re-permuted:", [f"draft {i} from source {by_source[r]}" for i, r in zip(by_draft, rows.tolist(), strict=True)])

# %% [markdown]
# ## What packing does to memory
#
# "Packing saves memory." While you pack, the padded and the packed batch **both** exist: that is more, not less.
# What shrinks is what autograd keeps for the backward pass.


# %%
def kept(run):
    """Megabytes that autograd keeps for the backward pass."""
    storages = {}

    def note(tensor):
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        alive = run()
    del alive  # not before all is counted
    return sum(storages.values()) / 1e6


# %%
batch = torch.randn(100, 64, 64)  # 100 steps of 64 sequences
half = [100 - i * 99 // 63 for i in range(64)]
gru = torch.nn.GRU(64, 128)
ragged = pack_padded_sequence(batch, half)
assert ragged.data.untyped_storage().data_ptr() != batch.untyped_storage().data_ptr()
both = (batch.nbytes + ragged.data.nbytes) / batch.nbytes
saved_padded, saved_packed = kept(lambda: gru(batch)), kept(lambda: gru(ragged))
assert both > 1.5
assert saved_packed < 0.52 * saved_padded
if torch.backends.mkldnn.is_available():  # oneDNN, the CPU's fused kernel
    assert kept(lambda: torch.nn.LSTM(64, 128)(batch)) > 2 * saved_padded
print(f"input while packing: {both:.3g} times the padded batch")
print(f"kept for backward: padded {saved_padded:.3g} MB, packed {saved_packed:.3g} MB")

# %% [markdown]
# Half the cells are real, and half the memory is kept. (A padded *LSTM* keeps more than twice what this GRU does where
# the CPU's fused kernel runs it, so there the saving is larger.)

# %% [markdown]
# ## Trained twice
#
# 512 real sentences. A small GRU reads a word and says whether a **punctuation mark** comes next.
# The padded target is 0: "no mark".

# %%
from collections import Counter

words = Counter(word for sentence in sentences() for word in sentence)
ids = {word: i + 2 for i, (word, _) in enumerate(words.most_common(200))}  # 0 is padding, 1 any other word


def make_batch(some):
    x = [torch.tensor([ids.get(word, 1) for word in sentence[:-1]]) for sentence in some]
    y = [torch.tensor([not word[0].isalnum() for word in sentence[1:]]).double() for sentence in some]
    return pad_sequence(x, batch_first=True), pad_sequence(y, batch_first=True), [len(s) for s in x]


batches = [make_batch(sentences()[i : i + 32]) for i in range(0, 512, 32)]
real = sum(sum(n) for _, _, n in batches) / sum(x.numel() for x, _, _ in batches)
print(f"{real:.0%} of the cells are real")


# %%
class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(202, 8)
        self.gru = torch.nn.GRU(8, 16, batch_first=True)
        self.linear = torch.nn.Linear(16, 1)

    def forward(self, x):
        output, _ = self.gru(self.embedding(x))  # right at the real steps: one direction
        return self.linear(output).squeeze(2)


# %%
def train(use_mask, epochs=6):
    torch.manual_seed(0)
    model = Tagger().double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    reported, on_real = [], []
    for x, y, n in batches * epochs:
        loss = F.binary_cross_entropy_with_logits(model(x), y, reduction="none")
        masked = pv.masked_loss(loss, n, batch_first=True)
        used = masked if use_mask else loss.mean()
        optimizer.zero_grad()
        used.backward()
        optimizer.step()
        reported.append(used.item())
        on_real.append(masked.item())
    return [torch.tensor(losses).reshape(epochs, -1).mean(1).tolist() for losses in (reported, on_real)]


# %%
ask("masked training")

# %%
from packviz import figures

with_mask, _ = train(use_mask=True)
says, truth = train(use_mask=False)
assert all(a < b for a, b in zip(says, with_mask, strict=True))  # it reports less …
assert all(later > now for later, now in zip(truth[1:], with_mask[:-1], strict=True))  # … and is an epoch behind
figures.training_curves(
    {
        "trained with mask": with_mask,
        "without: as it reports": says,
        "without: at the real words": truth,
    },
    "The same GRU, trained twice",
)

# %% [markdown]
# The unmasked training looks far better, and is more than an epoch behind, all along.
# Two thirds of the cells behind its number are padding, which it soon gets right.
#
# So the number you would compare models by depends on how much padding the batches happen to have.

# %% [markdown]
# ## What the helpers cost
#
# They go by lengths without a Python loop, and never make a GPU wait. Recorded on one CPU:

# %%
from packviz.studies import helpers

recorded = helpers.recorded()
assert all(recorded.faster(point) > 1 for point in recorded.points)
recorded

# %% [markdown]
# On your machine, smaller and with fewer rounds:

# %% tags=["live-timing", "nbval-ignore-output"]
helpers.run(rounds=5)

# %% [markdown]
# ## What people get wrong
#
# - **`loss * mask`, then `.mean()`.** The sum is masked, the divisor is not.
# - **`values * mask` against NaN.** 0 × NaN is NaN. Choose with `torch.where` or `masked_fill`.
# - **A mean of batch means.** Batches hold different numbers of tokens. Add up sums, divide once.
# - **The mask the wrong way round.** `key_padding_mask` is True at padding.
# - **`ignore_index` instead of a mask** works for class labels, if no real label has that number.

# %%
dirty = torch.tensor([[1.0, 3.0, float("nan")]])
assert (dirty * pv.padding_mask([2], 3)).sum().isnan()
assert pv.masked_loss(dirty, [2], batch_first=True) == 2
print("multiplied: nan   chosen: 2")

# %% [markdown]
# ## Exercise
#
# Write the mean over time of a padded batch `x`, `(B, T, F)`, over the real steps only: `(B, F)`.
# `lengths` is a list. The padding may hold anything.


# %% tags=["exercise"]
def my_mean(x, lengths):
    # solution
    real = pv.padding_mask(lengths, x.shape[1])[..., None]
    return x.masked_fill(~real, 0).sum(1) / torch.tensor(lengths)[:, None]
    # end solution


checks.masked_mean(my_mean)

# %% [markdown]
# ## You can now
#
# - reduce over real cells: divide by their number, fill before a maximum, mask a softmax's keys,
# - apply what treats each cell alone to `packed.data`, and `_replace` it,
# - align by lengths, with data on the side your model wants,
# - pass states from encoder to decoder in one order: yours.
#
# Next: [06 The benchmark](06_benchmark.ipynb). Back: [02 Inside a packed sequence](02_inside_a_packed_sequence.ipynb) ·
# [00 Start here](00_start_here.ipynb)
