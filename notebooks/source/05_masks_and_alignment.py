# %% [markdown]
# # Masks and alignment
#
# **Which computations read the padding by mistake, and how do you stop them?**
#
# After this page you can
#
# - take a loss, a mean, a maximum, a normalisation and an attention over the real cells only,
# - work on `PackedSequence.data` directly, and say when that is right,
# - move the padding to the left or the right, by the lengths,
# - hand states from an encoder to a decoder in the right order.
#
# Time: 20 minutes.

# %% [markdown]
# ## A loss that reads the padding
#
# A *mask* says which cells of a padded batch are real. `pv.real_mask` is True at real cells.

# %%
import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_sequence

import packviz as pv
from packviz.lessons import ask, checks

lengths = [9, 8, 6, 4, 3, 2]
mask = pv.real_mask(lengths)
pv.draw.Aligned.of(mask, lengths, title="real_mask(lengths)", batch_first=True)

# %% [markdown]
# Suppose that at the padding predictions and targets are both 0: there they agree.

# %%
ask("loss over padding")

# %%
torch.manual_seed(0)
target = pad_sequence([torch.randn(n) for n in lengths], batch_first=True)
prediction = target + 0.5 * mask

unmasked = F.mse_loss(prediction, target)
masked = pv.masked_loss(F.mse_loss, prediction, target, lengths, batch_first=True)
print(f"masked {masked:.3g}   unmasked {unmasked:.3g}, too small by the factor {mask.sum()}/{mask.numel()}")

# %% tags=["claims"]
assert torch.isclose(masked, torch.tensor(0.25))
assert torch.isclose(unmasked / masked, torch.tensor(32 / 54))
right = (torch.arange(9) % 2 == 0).float().expand(6, 9)  # labels 0, 1, 0, 1, …, and a model that always says 0
right = torch.where(mask, right, 1.0)  # at the padding the label is 0
accuracy = pv.masked_loss(right, lengths, batch_first=True)
assert accuracy == right[mask].mean() < right.mean()

# %% [markdown]
# The sum is right, the divisor is not: 54 cells instead of 32. Gradients shrink by the same factor, and by another one
# in the next batch.
#
# `masked_loss` takes any loss function of torch, or a tensor with a number for each cell. If that number is 1 for right
# and 0 for wrong, the result is the accuracy. For `F.cross_entropy`, the logits are `(B, T, C)` and the targets `(B, T)`.

# %% [markdown]
# ## Straight on the packed data
#
# Packed, there is no padding left to mask. A layer wants a tensor and no `PackedSequence`, so give it `packed.data`,
# one row per real cell. `_replace(data=…)` puts the result back and keeps the order. (A `PackedSequence` is a named
# tuple: they all have `_replace`.)

# %%
x = pad_sequence([torch.randn(n, 4) for n in lengths], batch_first=True)
packed = pack_padded_sequence(x, lengths, batch_first=True)
targets = pack_padded_sequence(target, lengths, batch_first=True)
linear = torch.nn.Linear(4, 1)

scores = packed._replace(data=linear(packed.data).squeeze(1))
loss = F.mse_loss(scores.data, targets.data)  # no mask, no reduction="none"

masked = pv.masked_loss(F.mse_loss, linear(x).squeeze(2), target, lengths, batch_first=True)
print(f"{loss:.3f} from {len(packed.data)} rows, {masked:.3f} from {mask.numel()} cells and a mask")

# %% tags=["claims"]
assert torch.allclose(loss, masked)
elementwise = F.mse_loss(linear(x).squeeze(2), target, reduction="none")
assert torch.equal(masked, pv.masked_loss(elementwise, lengths, batch_first=True))
assert torch.allclose(pv.unpack_to_length(scores, 9, batch_first=True)[mask], linear(x).squeeze(2)[mask], atol=1e-6)
try:
    linear(packed)
except TypeError:
    pass
else:
    raise AssertionError("a layer took a PackedSequence")

# %% [markdown]
# This is right for whatever treats each cell alone, and cheap: padding is not computed. It is wrong for whatever looks
# along time, as pooling and attention do: in `data` a row's neighbour is another sequence.
#
# And a compiler for fixed shapes refuses it. There, apply the layer before packing or after padding, and mask
# ([notebook 09](09_static_graphs.ipynb)).

# %% [markdown]
# ## Three more that read the padding

# %%
ask("reads the padding")

# %% [markdown]
# **Pooling.** A mean divides by T. A maximum may find the padding's 0, if all real values are negative. Sequence f has
# 2 real steps of 9:

# %%
negative = torch.where(mask[..., None], -1 - x.abs(), 0)  # every real value is below -1
mean_of_all = negative.mean(1)
mean_of_real = negative.sum(1) / torch.tensor(lengths)[:, None]
max_of_all = negative.amax(1)
max_of_real = negative.masked_fill(~mask[..., None], -torch.inf).amax(1)
print(f"mean of f:    over all steps {mean_of_all[5, 0]:5.2f}   over real ones {mean_of_real[5, 0]:5.2f}")
print(f"maximum of f: over all steps {max_of_all[5, 0]:5.2f}   over real ones {max_of_real[5, 0]:5.2f}")

# %% tags=["claims"]
for b, length in enumerate(lengths):
    assert torch.allclose(mean_of_real[b], negative[b, :length].mean(0))
    assert torch.allclose(mean_of_all[b], mean_of_real[b] * length / 9)
    assert torch.allclose(max_of_real[b], negative[b, :length].amax(0))
assert (max_of_all[1:] == 0).all()
assert (max_of_real < -1).all()

far = packed.data + 10
padded = pv.unpack_to_length(packed._replace(data=far), 9).flatten(0, 1)
over_all, over_real = (torch.nn.BatchNorm1d(4, momentum=1.0) for _ in range(2))
over_all(padded)
over_real(far)
assert torch.allclose(over_real.running_mean, far.mean(0))
assert torch.allclose(over_all.running_mean, over_real.running_mean * 32 / 54)
assert (over_all.running_var > 10 * over_real.running_var).all()

# %% [markdown]
# **BatchNorm.** Its mean and variance are taken over all cells, so the padding's zeros pull the mean towards 0, and
# the variance is wrong, too. Give it `packed.data`.
#
# **Attention.** Each query (a row) spreads a weight of 100 % over the keys (the columns), and gives some of it to padded
# keys as well. Here is sequence e, with 3 real steps, in percent:

# %%
attention = torch.nn.MultiheadAttention(4, 1, batch_first=True, bias=False)
_, blind = attention(x, x, x)
output, weights = attention(x, x, x, key_padding_mask=~mask)
title = "Without a mask e looks mostly at padding"
pv.draw.Attention(3, {"without a mask": blind[4], "key_padding_mask=~mask": weights[4]}, title)

# %% tags=["claims"]
assert (weights * ~mask[:, None, :] == 0).all()
assert min(pv.draw.Attention(3, {"blind": blind[4]}).lost("blind")) > 0.5
for b, length in enumerate(lengths):
    alone, _ = attention(*[x[b : b + 1, :length]] * 3)
    assert torch.allclose(output[b : b + 1, :length], alone, atol=1e-6)

# %% [markdown]
# Mind the two conventions: `scaled_dot_product_attention` wants True at cells to **read**,
# `MultiheadAttention(key_padding_mask=…)` True at cells to **ignore**: hence the `~`. Notebook
# [12](12_beyond_rnns.ipynb) has more of them, and masks for several documents in one row.

# %% [markdown]
# ## Left and right
#
# A batch is *right-padded* if the padding is on the right, behind the data. `pack_padded_sequence` needs this order.
# (Others call it *left-aligned*.) `pv.align` moves the padding to either side, by the lengths.
#
# Models of the TFT family (*Temporal Fusion Transformer*) have past and future on one time axis. The past is
# left-padded and the future right-padded, so that each past ends where its future begins.

# %%
past, behind = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0], [7, 8, 9, 0]]), [4, 2, 3]
future, ahead = torch.tensor([[5, 6, 7], [7, 0, 0], [10, 11, 0]]), [3, 1, 2]

moved = pv.align(past, behind, padding_side="left", batch_first=True)
axis = torch.cat([moved, future], dim=1)
real = torch.cat([pv.real_mask(behind).flip(1), pv.real_mask(ahead)], dim=1)
pv.draw.Aligned.of(axis, real, title="One time axis, no gap: 4 steps of past, 3 of future", batch_first=True)

# %% tags=["claims"]
assert moved.tolist() == [[1, 2, 3, 4], [0, 0, 5, 6], [0, 7, 8, 9]]
assert torch.equal(pv.align(moved, behind, padding_side="right", batch_first=True), past)
assert torch.equal(pv.align(axis[:, :4], real[:, :4], padding_side="right", batch_first=True), past)
assert real[:, 3:5].all()  # no gap between the last past and the first future step
twice = pv.align(moved, behind, padding_side="left", batch_first=True)
assert twice.tolist() == [[1, 2, 3, 4], [0, 0, 0, 0], [0, 0, 7, 8]]
try:
    pv.align(moved, behind, padding_side="left", batch_first=True, check_padding=0)
except ValueError as error:
    found = str(error)
assert "rows 1 and 2 have values in the padding" in found

# %% [markdown]
# With lengths alone, `align` takes the padding to be on the other side, so aligning twice loses data without an error.
# To be safe, pass a mask in place of the lengths, such as a tokenizer's `attention_mask`. Or pass the padding's value:
# `check_padding=0` reads the batch and names the rows that would lose data.

# %% [markdown]
# ## Never guess from zeros
#
# A zero may be data: a word id, a closed shop, no rain. Code that looks for zeros cannot know.

# %%
ask("a guess from zeros")

# %%
row = torch.tensor([[0, 0, 7, 8, 0, 0]])  # length 4: its first two zeros are data
guessed = row.roll(-int(row[0].nonzero()[0]), dims=1)
pv.draw.Aligned.of(guessed, [4], title="Guessed from zeros: framed is wrong", batch_first=True, like=row)

# %% tags=["claims"]
assert pv.align(row, [4], padding_side="left", batch_first=True).tolist() == [[0, 0, 0, 0, 7, 8]]

# %% [markdown]
# Try it. When is the guess right? Change where the *real zeros* are, and the sides.

# %%
from packviz.explorers import AlignExplorer

AlignExplorer()

# %% tags=["claims"]
sides = [("left", "right"), ("left", "left"), ("right", "left"), ("right", "right")]
for zeros in ("none", "at the start", "at the end"):
    for before, after in sides:
        wrong = AlignExplorer(source_side=before, padding_side=after, zeros=zeros).wrong_cells
        assert bool(wrong) == (zeros == {"right": "at the start", "left": "at the end"}[after])

# %% [markdown]
# The guess is right as long as no sequence has a zero at the end that meets the edge.
#
# ## Encoder and decoder
#
# An encoder reads the source; a decoder starts from its final state and reads the target. The longest source rarely has
# the longest target, so the two batches sort differently.
#
# With `enforce_sorted=False` on both sides there is nothing to do: states come out in **your** order, and the decoder
# sorts them for itself. Older code sorts by hand, because torch once asked for it.

# %%
ask("states between encoder and decoder")

# %%
torch.manual_seed(0)
encoder, decoder = torch.nn.LSTM(3, 5), torch.nn.LSTM(2, 5)
sources = [torch.randn(n, 3) for n in (3, 5, 2, 4)]
targets = [torch.randn(n, 2) for n in (2, 1, 4, 3)]
_, state = encoder(pack_sequence(sources, enforce_sorted=False))
_, (wanted, _) = decoder(pack_sequence(targets, enforce_sorted=False), state)  # right

by_source = sorted(range(4), key=lambda i: -len(sources[i]))
by_target = sorted(range(4), key=lambda i: -len(targets[i]))
_, (h, c) = encoder(pack_sequence([sources[i] for i in by_source]))  # sorted by hand
_, (h_n, _) = decoder(pack_sequence([targets[i] for i in by_target]), (h, c))
for row, i in enumerate(by_target):
    print(f"target {'abcd'[i]}: its final state is {(h_n[0, row] - wanted[0, i]).abs().max():.2f} off")

# %% [markdown]
# No error, no warning. Row 0 of the state belongs to the longest source, b. It went to the longest target, c.

# %%
for source, target in zip(by_source, by_target, strict=True):
    print(f"state of {'abcd'[source]} → decoder of {'abcd'[target]}", "" if source == target else "✗")

# %% [markdown]
# The repair is one permutation: row `r` of the decoder must get the state of *its* sequence. With
# `rows = [by_source.index(i) for i in by_target]` the decoder starts from `h[:, rows], c[:, rows]`.

# %% tags=["claims"]
for i in range(4):  # each pair on its own
    _, state = encoder(sources[i])
    assert torch.allclose(decoder(targets[i], state)[1][0][0], wanted[0, i], atol=1e-6)
for row, i in enumerate(by_target):
    assert torch.allclose(h_n[0, row], wanted[0, i], atol=1e-6) == (by_source[row] == i)
rows = [by_source.index(i) for i in by_target]
assert [by_source[row] for row in rows] == by_target
_, (repaired, _) = decoder(pack_sequence([targets[i] for i in by_target]), (h[:, rows], c[:, rows]))
assert torch.allclose(repaired, wanted[:, by_target], atol=1e-6)

# %% [markdown]
# ## Does the mask matter in training?
#
# Back to the loss. A small GRU reads the 512 sentences of notebook 01, and says after each word whether a **punctuation
# mark** comes next. The targets of three sentences:

# %%
from collections import Counter

from packviz.lessons import sentences

every = Counter(word for sentence in sentences() for word in sentence)
ids = {word: i for i, (word, _) in enumerate(every.most_common(200), 1)}  # 0: any other word, and padding


def batch(some):
    words = [torch.tensor([ids.get(word, 0) for word in sentence[:-1]]) for sentence in some]
    marks = [torch.tensor([not word[0].isalnum() for word in sentence[1:]]).double() for sentence in some]
    return pad_sequence(words, batch_first=True), pad_sequence(marks, batch_first=True), [len(s) - 1 for s in some]


_, marks, n = batch([sentence for sentence in sentences() if len(sentence) < 10][:3])
pv.draw.Aligned.of(marks, n, title="1: a mark comes next. At padding: 0", batch_first=True)

# %%
batches = [batch(sentences()[i : i + 32]) for i in range(0, 512, 32)]


def tagger():
    torch.manual_seed(0)
    layers = [torch.nn.Embedding(201, 8), torch.nn.GRU(8, 16, batch_first=True), torch.nn.Linear(16, 1)]
    return torch.nn.ModuleList(layers).double()


# %%
def train(use_mask, epochs=6):
    embedding, gru, linear = model = tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = torch.zeros(2, epochs)  # of each epoch: as it reports, and at the real words
    for epoch in range(epochs):
        for words, marks, n in batches:
            output, _ = gru(embedding(words))  # padded, and right at the real steps: one direction
            logits, loss = linear(output).squeeze(2), F.binary_cross_entropy_with_logits
            masked = pv.masked_loss(loss, logits, marks, n, batch_first=True)
            used = masked if use_mask else loss(logits, marks)
            optimizer.zero_grad()
            used.backward()
            optimizer.step()
            losses[:, epoch] += torch.tensor([used.item(), masked.item()]) / len(batches)
    return losses.tolist()


# %%
ask("masked training")

# %%
with_mask, _ = train(use_mask=True)
says, truth = train(use_mask=False)
curves = {"trained with mask": with_mask, "without: as it reports": says, "without: at the real words": truth}
pv.draw.training_curves(curves, "Without a mask the loss looks better, and the GRU has learned less")

# %% tags=["claims"]
assert all(a < b for a, b in zip(says, with_mask, strict=True))  # it reports less …
assert all(a > b for a, b in zip(truth, with_mask, strict=True))  # … and has learned less
assert truth[5] > with_mask[2]
real_cells = sum(sum(n) for _, _, n in batches) / sum(x.numel() for x, _, _ in batches)
assert 0.3 < real_cells < 0.4

# %% [markdown]
# The unmasked training looks far better, and after six epochs it has not learned what the other had after three. Two
# thirds of the cells behind its number are padding, which it soon gets right. So the number you would compare models by
# depends on how much padding the batches happen to have.

# %% [markdown]
# ## What the helpers cost
#
# The helpers of `pv` go by lengths without a Python loop, and never make a GPU wait. (`helpers.run()` measures this on
# your machine.) `unpack_to_length` is `pad_packed_sequence` to a width that you give.

# %%
from packviz.studies import helpers

helpers.recorded()

# %% tags=["claims"]
recorded = helpers.recorded()
assert all(recorded.faster(point) > 1 for point in recorded.points)

# %% [markdown]
# ## What people get wrong
#
# - **`loss * mask`, then `.mean()`.** The sum is masked, the divisor is not.
# - **`values * mask` against NaN.** 0 × NaN is NaN. Choose with `torch.where` or `masked_fill`.
# - **A mean of batch means**, as in our curves above. Batches hold different numbers of tokens. Add up sums, divide once.
# - **`ignore_index` of `cross_entropy` instead of a mask** works for class labels, if no real label has that number.
# - **"Packing saves memory."** Not while you pack: then the padded batch is there, too. What shrinks, by the share of
#   padding, is what autograd keeps for the backward pass. Notebook 06 measures it.

# %% tags=["claims"]
dirty = torch.tensor([[1.0, 3.0, float("nan")]])
assert (dirty * pv.real_mask([2], 3)).sum().isnan()
assert pv.masked_loss(dirty, [2], batch_first=True) == 2
assert pv.masked_loss(F.mse_loss, dirty, torch.zeros(1, 3), [2], batch_first=True) == 5
batch, gru = torch.randn(100, 64, 64), torch.nn.GRU(64, 128)  # 100 steps of 64 sequences
ragged = pack_padded_sequence(batch, [100 - i * 99 // 63 for i in range(64)])
assert ragged.data.untyped_storage().data_ptr() != batch.untyped_storage().data_ptr()
assert batch.nbytes + ragged.data.nbytes > 1.5 * batch.nbytes


# %% tags=["claims"]
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


assert kept(lambda: gru(ragged)) < 0.52 * kept(lambda: gru(batch))
if torch.backends.mkldnn.is_available():  # where oneDNN, the CPU's fused kernel, runs a padded LSTM
    assert kept(lambda: torch.nn.LSTM(64, 128)(batch)) > 2 * kept(lambda: gru(batch))

# %% [markdown]
# ## Exercise
#
# Write the mean over time of a padded batch `x`, `(B, T, F)`, over the real steps only: `(B, F)`.
# `lengths` is a list. The padding may hold anything.


# %% tags=["exercise"]
def my_mean(x, lengths):
    # solution
    real = pv.real_mask(lengths, x.shape[1])[..., None]
    return x.masked_fill(~real, 0).sum(1) / torch.tensor(lengths)[:, None]
    # end solution


checks.masked_mean(my_mean)

# %% [markdown]
# ## You can now
#
# - reduce over real cells: divide by their number, fill before a maximum, mask a softmax's keys,
# - apply what treats each cell alone to `packed.data`, and `_replace` it,
# - align by lengths, with the padding on the side your model needs,
# - pass states from encoder to decoder in one order: yours.
#
# Next: [06 The benchmark](06_benchmark.ipynb). Back: [04 Hidden states](04_hidden_states.ipynb) ·
# [00 Start here](00_start_here.ipynb)
