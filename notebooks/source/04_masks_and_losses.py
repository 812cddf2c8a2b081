# %% [markdown]
# # Masks and losses
#
# **Which computations read the padding by mistake, and how do you prevent it?**
#
# Two colleagues train the same model on the same 512 sentences, from the same seed. After six epochs, the first reports
# less than half the loss of the second. Same data, same weights at the start, same optimiser: their code differs in one
# line. Whose model would you ship?
#
# After this page, you can answer that, and you can keep the padding out of your losses, and out of every layer that
# would read it.
#
# Time: 20 minutes, with the exercise.
#
# <details><summary>Where we are in the ten lines: <b>scores</b>, <b>mask</b> and <b>loss</b></summary>
#
# ```text
#   sequences = [torch.tensor([3, 1, 4]), torch.tensor([1, 5, 9, 2, 6]), torch.tensor([5, 3]), torch.tensor([5, 8, 9, 7])]
#   lengths = torch.tensor([len(s) for s in sequences])                        # (4,)       3, 5, 2, 4: on the CPU
#   x = pad_sequence(sequences, batch_first=True)                              # (4, 5)     padded with 0
#   embedded = embedding(x)                                                    # (4, 5, 6)
#   packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)   # data: (14, 6)
#   packed_output, (h_n, c_n) = lstm(packed)                                   # data: (14, 8); h_n: (1, 4, 8)
#   output, _ = pad_packed_sequence(packed_output, batch_first=True)           # (4, 5, 8)
# → scores = linear(output)                                                    # (4, 5, 3)
# → mask = torch.arange(5) < lengths[:, None]                                  # (4, 5)     True at the 14 real cells
# → loss = cross_entropy(scores[mask], tags[mask])                             # ()         then loss.backward()
# ```
#
# </details>
#
# ## How wrong is this model?
#
# A padded batch goes through a model, and comes out padded. What the model says in the padding means nothing. A *mask*
# marks the cells that are real:

# %% jupyter={"source_hidden": true}
import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

import packviz as pv
from packviz.lessons import ask, checks, sentences

torch.set_num_threads(1)  # on tensors this small, more threads only wait for each other

# %%
lengths = [3, 5, 2, 4]
mask = pv.real_mask(lengths)
pv.draw.Aligned.of(mask, lengths, title="The mask is True at the 14 real cells", batch_first=True)

# %% [markdown]
# Now a model that is wrong at each of these 14 cells, by the same amount:

# %%
ask("loss over padding")

# %%
torch.manual_seed(0)
target = pad_sequence([torch.randn(n) for n in lengths], batch_first=True)
prediction = target + 0.5 * mask

print(f"all cells:  {F.mse_loss(prediction, target):.3f}")
print(f"real cells: {pv.masked_loss(F.mse_loss, prediction, target, lengths, batch_first=True):.3f}")

# %% tags=["claims"]
assert torch.isclose(F.mse_loss(prediction, target), torch.tensor(0.25 * 14 / 20))
guess = prediction.clone().requires_grad_()
(plain,) = torch.autograd.grad(F.mse_loss(guess, target), guess)
(real,) = torch.autograd.grad(pv.masked_loss(F.mse_loss, guess, target, lengths, batch_first=True), guess)
assert torch.allclose(plain, real * 14 / 20)
logits, labels = prediction[..., None] * torch.arange(3), torch.arange(5).expand(4, 5) % 3
ignored = F.cross_entropy(logits.transpose(1, 2), labels.masked_fill(~mask, -100))
assert torch.isclose(ignored, pv.masked_loss(F.cross_entropy, logits, labels, lengths, batch_first=True))
square = torch.randn(4, 5, 5)
swapped = F.cross_entropy(square, labels)  # (B, T, C) with T = C: no error, and a different number
assert not torch.isclose(swapped, F.cross_entropy(square.flatten(0, 1), labels.flatten()))
try:
    F.cross_entropy(logits, labels)
except (RuntimeError, ValueError):
    pass
else:
    raise AssertionError("(B, T, C) is accepted although T and C differ")
six = [9, 8, 6, 4, 3, 2]
real_of_six = pv.real_mask(six)
six_target = torch.where(real_of_six, torch.randn(6, 9), 0)
unmasked = F.mse_loss(six_target + 0.5 * real_of_six, six_target)
masked = pv.masked_loss(F.mse_loss, six_target + 0.5 * real_of_six, six_target, six, batch_first=True)
assert torch.isclose(unmasked / masked, torch.tensor(32 / 54))

# %% [markdown]
# Wrong by 0.5 wherever it matters, and the loss is 0.175. Both losses have the same sum of squared errors. But a plain
# mean divides this sum by all 20 cells, and not by the 14 real ones. So it reports 14/20 of 0.25, and here every
# gradient is too small by the same factor. The next batch has another factor.
#
# The cure is the last line of the ten: index with the mask. `F.mse_loss(prediction[mask], target[mask])` sees only
# the real cells, and `pv.masked_loss` does the same. (Indexing also flattens, which suits `F.cross_entropy`: it looks
# for the classes in dimension 1, where `(B, T, C)` has its time steps. Given that shape, torch raises an error,
# unless T happens to equal C. Then it computes a loss, and the loss is wrong.)
#
# But does a mere factor matter? A learning rate can absorb a factor, and Adam nearly cancels a constant one by
# itself. Perhaps there is nothing to worry about.
#
# ## Whose model would you ship?
#
# Back to the two colleagues. Their model reads the sentences of notebook 01 and predicts, after each word, whether a
# punctuation mark comes next. It is a *GRU*, a sibling of the LSTM with three quarters of its weights and no cell
# state. About two thirds of the cells are padding, with a target of 0.
#
# And the line in which they differ? One writes `loss(logits, marks)`, and the other `loss(logits[mask], marks[mask])`.
# The rest is ordinary, so we have folded it: the data, then the training loop.

# %% jupyter={"source_hidden": true}
from collections import Counter

words = Counter(word for sentence in sentences() for word in sentence)
ids = {word: i for i, (word, _) in enumerate(words.most_common(200), 2)}  # 0 is padding, 1 is any other word


def batch(some):
    tokens = [torch.tensor([ids.get(word, 1) for word in sentence[:-1]]) for sentence in some]
    marks = [torch.tensor([not word[0].isalnum() for word in sentence[1:]]).double() for sentence in some]
    return pad_sequence(tokens, batch_first=True), pad_sequence(marks, batch_first=True), [len(s) - 1 for s in some]


batches = [batch(sentences()[i : i + 32]) for i in range(0, 512, 32)]


def new_model(seed):
    torch.manual_seed(seed)
    layers = torch.nn.Embedding(202, 8), torch.nn.GRU(8, 16, batch_first=True), torch.nn.Linear(16, 1)
    return torch.nn.ModuleList(layers).double()


# %% jupyter={"source_hidden": true}
def train(use, batches=batches, seed=0, epochs=6):
    embedding, gru, linear = model = new_model(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = torch.zeros(2, epochs)  # in each epoch: the loss that was used, and the loss at the real words
    for epoch in range(epochs):
        for tokens, marks, n in batches:
            output, _ = gru(embedding(tokens))  # padded: right at real steps, because it has one direction
            logits, loss = linear(output).squeeze(2), F.binary_cross_entropy_with_logits
            masked = pv.masked_loss(loss, logits, marks, n, batch_first=True)
            used = {"mask": masked, "no mask": loss(logits, marks), "factor": masked * sum(n) / marks.numel()}[use]
            optimiser.zero_grad()
            used.backward()
            optimiser.step()
            losses[:, epoch] += torch.tensor([used.item(), masked.item()]) / len(batches)
    return losses.tolist()


# %% [markdown]
# Two losses over different cells cannot be compared. So we judge both models by their loss at the real words. Six
# epochs each, from the same seed. Place your bet:

# %%
ask("masked training")


# %% jupyter={"source_hidden": true}
from packviz.draw.curves import Curve, Plot, Sweep


def chart(runs):
    curves, words = [], []
    for i, (name, losses) in enumerate(runs.items()):
        curves.append(Curve(name, i > 0, i == 2, range(1, 7), losses, hollow=i == 2))
        words.append(f"{name}, epochs 1 to 6: {', '.join(f'{loss:.2f}' for loss in losses)}")
    title = "Which of the two models is better at the real words?"
    return Sweep(title, [[Plot("", curves, y="loss")]], (), (), "\n".join([title, *words]), "epoch")


# %%
with_mask, _ = train("mask")
seen, at_real_words = train("no mask")
chart({"with a mask": with_mask, "no mask: at the real words": at_real_words, "no mask: the loss you see": seen})

# %% tags=["claims"]
assert all(a < b for a, b in zip(seen, with_mask, strict=True))
assert all(a > b for a, b in zip(at_real_words, with_mask, strict=True))
assert 0.35 < seen[5] / with_mask[5] < 0.5
assert abs(at_real_words[5] - with_mask[3]) < 0.01 < 0.03 < at_real_words[5] - with_mask[5]
for seed in (1, 2):
    losses = [train(use, seed=seed, epochs=3)[1] for use in ("mask", "no mask")]
    assert all(masked < unmasked for masked, unmasked in zip(*losses, strict=True))
kept = []


def new_model(seed, make=new_model):
    kept.append(make(seed))
    return kept[-1]


def unseen(use):
    train(use, batches=batches[:12])
    embedding, gru, linear = kept[-1]
    losses = []
    for tokens, marks, n in batches[12:]:
        logits = linear(gru(embedding(tokens))[0]).squeeze(2)
        losses.append(pv.masked_loss(F.binary_cross_entropy_with_logits, logits, marks, n, batch_first=True).item())
    return sum(losses)


assert unseen("mask") < unseen("no mask")
assert f"{train('factor')[1][5]:.2f}" == f"{with_mask[5]:.2f}" == "0.29"
real_cells = sum(sum(n) for _, _, n in batches) / sum(tokens.numel() for tokens, _, _ in batches)
assert 0.3 < real_cells < 0.4
assert all(((tokens == 0) == ~pv.real_mask(n)).all() for tokens, _, n in batches)

# %% [markdown]
# Ship the model whose loss is more than twice as high.
#
# Without a mask, the loss you see is a mean over all cells. Most of them are padding, and padding is easy. So the curve
# of the colleague without a mask is the lowest of the three. At the real words, the same model needs six epochs to
# reach 0.34. The other needs only four. (Two other seeds agree, and so do sentences that neither model has seen.)
#
# And the factor is not to blame. If we multiply the masked loss by each batch's share of real cells, its loss at the
# real words still comes down to 0.29. It is the padding itself: about two in three terms of a gradient ask the model to
# say *no* there, and they move the same weights as the terms of real cells.
#
# The loss must not read the padding, then. It is not alone in that.
#
# ## Which layers read the padding?
#
# Four operations are under suspicion. One of them is innocent, and needs no mask.

# %%
ask("reads the padding")

# %% [markdown]
# **Pooling.** A mean over time adds up the padding, too, and divides by T instead of the length. (The padding is
# zeros here, but a padded RNN usually returns other numbers there.) A maximum over time returns a zero from the
# padding if all real values are negative, so fill the padding with −∞ first. Sequence c has 2 real steps out of 5:

# %%
torch.manual_seed(1)
x = pad_sequence([torch.randn(n, 4) for n in lengths], batch_first=True)
negative = torch.where(mask[..., None], -1 - x.abs(), 0)  # every real value is below −1
mean_of_real = negative.sum(1) / torch.tensor(lengths)[:, None]
max_of_real = negative.masked_fill(~mask[..., None], -torch.inf).amax(1)
print(f"mean of c:    over all steps {negative.mean(1)[2, 0]:5.2f}   over real steps {mean_of_real[2, 0]:5.2f}")
print(f"maximum of c: over all steps {negative.amax(1)[2, 0]:5.2f}   over real steps {max_of_real[2, 0]:5.2f}")

# %% tags=["claims"]
for b, length in enumerate(lengths):
    assert torch.allclose(mean_of_real[b], negative[b, :length].mean(0))
    assert torch.allclose(negative.mean(1)[b], mean_of_real[b] * length / 5)
    assert torch.allclose(max_of_real[b], negative[b, :length].amax(0))
assert (max_of_real < -1).all()

# %% [markdown]
# **BatchNorm.** In training, it computes the mean and the variance of each feature over all cells. The zeros in the
# padding change both, and thus the output at real cells. BatchNorm needs no time axis, so pass it the real cells
# alone, `x[mask]`.

# %% tags=["claims"]
far = x[mask] + 10
padded = torch.where(mask[..., None], x + 10, 0).flatten(0, 1)
over_all, over_real = (torch.nn.BatchNorm1d(4, momentum=1.0) for _ in range(2))
over_all(padded)
over_real(far)
assert torch.allclose(over_real.running_mean, far.mean(0))
assert torch.allclose(over_all.running_mean, over_real.running_mean * 14 / 20)
assert (over_all.running_var > 10 * over_real.running_var).all()

# %% [markdown]
# **Attention.** Each time step, as a *query*, distributes a weight of 100 % over all time steps, the *keys*. Without a
# mask, some of this weight goes to the padding. For the two queries of c, it is more than half:

# %%
torch.manual_seed(2)
attention = torch.nn.MultiheadAttention(4, 1, batch_first=True, bias=False)
_, unmasked = attention(x, x, x)
output, weights = attention(x, x, x, key_padding_mask=~mask)
maps = {"without a mask": unmasked[2], "key_padding_mask=~mask": weights[2]}
pv.draw.Attention(2, maps, "Without a mask, the two queries of c read mostly padding (in percent)")

# %% tags=["claims"]
assert (weights * ~mask[:, None, :] == 0).all()
assert min(pv.draw.Attention(2, {"unmasked": unmasked[2]}).lost("unmasked")) > 0.5
for b, length in enumerate(lengths):
    alone, _ = attention(*[x[b : b + 1, :length]] * 3)
    assert torch.allclose(output[b : b + 1, :length], alone, atol=1e-6)

# %% [markdown]
# Masks follow two opposite conventions. `MultiheadAttention` expects a `key_padding_mask` that is True at the cells to
# **ignore**, so we wrote `~mask`. `F.scaled_dot_product_attention` expects an `attn_mask` that is True at the cells to
# **read**. A *float* mask is added to the scores instead: −∞ hides a cell, and a mask of zeros and ones hides nothing.
#
# **Linear.** It needs no mask, because it treats each cell alone. So with a mask wherever one is needed, we are safe
# from any padding. Almost any.
#
# ## Does a mask stop NaN?
#
# Some data arrive with NaN in the padding. From such data, we learn one weight `w`, so that `w · measured` comes close
# to 1. There are two ways to keep NaN out of the loss. *Late*: we compute the squared error everywhere, and let
# `torch.where` replace it with 0 in the padding. *Early*: we fill the padding first, and then take the real cells.

# %%
measured = target.masked_fill(~mask, float("nan"))
w = torch.ones((), requires_grad=True)
late = torch.where(mask, (w * measured - 1) ** 2, 0).sum()  # fills the result
early = ((w * measured.masked_fill(~mask, 0) - 1) ** 2)[mask].sum()  # fills the input
for name, loss in {"late": late, "early": early}.items():
    (gradient,) = torch.autograd.grad(loss, w, retain_graph=True)
    print(f"{name}:  loss {loss.item():.2f}, gradient {gradient.item():.2f}")

# %% [markdown]
# The two losses are equal. One has a gradient, and the other has NaN. We met this in notebook 03: `torch.where` sends
# a gradient of 0 back to the padding, where the backward pass multiplies it by the NaN in the input. And 0 · NaN is
# NaN. `masked_fill` on the result fails in the same way, and so does indexing it with the mask. **Fill the input.**
#
# Then is `scores[mask]` unsafe, in the last of the ten lines? No. It sends zeros back to the padding, too, but they
# meet no NaN there. Packing has left the old padding out, and `pad_packed_sequence` has put zeros in its place.
#
# That is a lot of care for cells that nobody wrote. A packed batch has none of them. There, we should be able to forget
# about masks.

# %% tags=["claims"]
assert torch.isclose(late, early)
for result in (late, (w * measured).masked_fill(~mask, 0).sum(), (w * measured)[mask].sum()):
    assert torch.autograd.grad(result, w, retain_graph=True)[0].isnan()
moved = torch.where(mask[..., None], x, 7)
keys = mask[:, None, :].expand(-1, 5, -1)
for attn_mask in (keys, torch.where(keys, 0.0, -torch.inf), keys.float()):
    before, after = (F.scaled_dot_product_attention(x_, x_, x_, attn_mask=attn_mask)[mask] for x_ in (x, moved))
    assert torch.allclose(before, after, atol=1e-5) == (attn_mask.dtype == torch.bool or bool(attn_mask.isinf().any()))

# %% [markdown]
# ## Which layers can read packed data?
#
# In packed data, there is nothing to mask. But of torch's layers, only the RNNs accept a `PackedSequence`. To a layer
# that treats each cell alone, we hand `packed.data`, a tensor with one row for each real cell. Then we put the result
# back with `_replace(data=…)`, which keeps the order.

# %%
packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
targets = pack_padded_sequence(target, lengths, batch_first=True, enforce_sorted=False)
linear = torch.nn.Linear(4, 1)

scores = packed._replace(data=linear(packed.data).squeeze(1))
print(f"packed: {F.mse_loss(scores.data, targets.data):.4f}")
print(f"masked: {F.mse_loss(linear(x).squeeze(2)[mask], target[mask]):.4f}")

# %% tags=["claims"]
loss = F.mse_loss(scores.data, targets.data)
masked = pv.masked_loss(F.mse_loss, linear(x).squeeze(2), target, lengths, batch_first=True)
assert torch.allclose(loss, masked)
elementwise = F.mse_loss(linear(x).squeeze(2), target, reduction="none")
assert torch.equal(masked, pv.masked_loss(elementwise, lengths, batch_first=True))
assert torch.allclose(pv.unpack_to_length(scores, 5, batch_first=True)[mask], linear(x).squeeze(2)[mask], atol=1e-6)
right = (torch.arange(5) % 2 == 0).float().expand(4, 5)
assert pv.masked_loss(right, lengths, batch_first=True) == right[mask].mean()
moved = torch.where(mask[..., None], x, 7)
assert torch.equal(linear(moved)[mask], linear(x)[mask])
assert (torch.nn.GRU(4, 1, batch_first=True)(x)[0][~mask] != 0).all()

# %% [markdown]
# The same loss, without a mask and without the work on the padding. This is right for layers that treat each cell
# alone, such as `Linear`, an activation or `LayerNorm`, and for BatchNorm. It is wrong for layers that combine the
# time steps of a sequence, such as attention, or a convolution over several steps. To them, the next row of `data`
# looks like the next step, but it usually belongs to another sequence.
#
# And mind the order. `packed.data` goes by time step, and `target[mask]` by sequence. Mix the two, and the shapes
# agree, while most predictions meet another cell's target.

# %% [markdown]
# ## What people get wrong
#
# - **`(loss * mask).mean()`** divides by the number of cells, padding included. Divide the sum by `mask.sum()` if there
#   is one loss per cell.
# - **Multiplying by the mask** does not even remove NaN from the loss, because 0 · NaN is NaN.
# - **A mask called a *padding mask*** is True at the padding in some libraries, and at the real cells in others. Read
#   the documentation. Then change the padding, and check that the results at real cells stay the same.

# %% [markdown]
# ## Exercise
#
# Write a mean over time that ignores the padding. `x` is `(B, T, F)`, where `T` may exceed the longest sequence, and
# `lengths` is a list. The padding may contain anything, even NaN.

# %% tags=["exercise"]
def my_masked_mean(x, lengths):
    # solution
    lengths = torch.tensor(lengths)
    real = torch.arange(x.shape[1]) < lengths[:, None]
    return x.masked_fill(~real[..., None], 0).sum(1) / lengths[:, None]
    # end solution


checks.masked_mean(my_masked_mean)

# %% [markdown]
# ## You can now
#
# compute a loss and a mean over real cells only, name the layers that need a mask, and distrust a loss that is low for
# no reason.
#
# There is one thing that we took for granted in every picture so far. It is so ordinary that we never said it. What if
# it is not true?
#
# Next: [05 Alignment](05_alignment.ipynb). Back: [03 Hidden
# states](03_hidden_states.ipynb) · [00 Start here](00_start_here.ipynb)
