# %% [markdown]
# # A model of your own
#
# **How do you write, train and check a model whose sequences have different lengths?**
#
# After this notebook, you can
#
# - turn a list of sequences into padded batches, with a `Dataset` and a collate function,
# - write a bidirectional classifier and a tagger, and say what shape each tensor has,
# - use one mask for losses, pooling and attention,
# - recognise the mistakes that raise no error, and find them with `pv.diagnose`.
#
# Time: 20 minutes.
#
# The models are plain PyTorch, and you can copy the code cells into a script in this order. `packviz` only draws and
# checks batches.

# %% [markdown]
# ## From sequences to batches
#
# Here are four labelled sequences of token ids. A `Dataset` hands them out one at a time, and a `DataLoader` collects
# several of them into a batch. By default, it stacks them. That fails here, because tensors of different lengths cannot
# be stacked:

# %%
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

import packviz as pv
from packviz.lessons import ask, checks

# %%
ids = [[3, 1, 4], [1, 5, 9, 2, 6], [5, 3], [5, 8, 9, 7]]
labels = [0, 1, 0, 1]


class Texts(Dataset):
    def __init__(self, ids, labels):
        self.ids, self.labels = ids, labels

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return torch.tensor(self.ids[i]), self.labels[i]


try:
    next(iter(DataLoader(Texts(ids, labels), batch_size=4)))
except RuntimeError as error:
    print(error)

# %% [markdown]
# A *collate function* tells the loader how to build a batch. Ours pads the sequences and keeps their lengths, because the
# padded tensor alone does not say where a sequence ends.


# %%
def collate(batch):
    sequences, labels = zip(*batch)
    lengths = torch.tensor([len(s) for s in sequences])
    return pad_sequence(sequences, batch_first=True), lengths, torch.tensor(labels)


loader = DataLoader(Texts(ids, labels), batch_size=4, collate_fn=collate)
x, lengths, y = next(iter(loader))
pv.show(x, lengths, batch_first=True, part="padded")

# %% tags=["claims"]
assert x.tolist() == [[3, 1, 4, 0, 0], [1, 5, 9, 2, 6], [5, 3, 0, 0, 0], [5, 8, 9, 7, 0]]
assert lengths.tolist() == [3, 5, 2, 4]

# %% [markdown]
# People often leave the lengths out and compute `(x != 0).sum(1)` later. That fails if 0 is also a token. Suppose that
# it is, but that you pack the batch with the right lengths. The layer that turns ids into vectors (an *embedding*) is
# usually told which id is the padding, with `padding_idx=0`.

# %%
ask("a token with the id of the padding")

# %% [markdown]
# ## A classifier
#
# A common classifier embeds each token, runs a bidirectional LSTM with two layers, and reads the final states of the
# last layer. Because the batch is packed, no final state depends on padding.


# %%
class Classifier(nn.Module):
    def __init__(self, tokens=10, classes=2, E=8, H=16):
        super().__init__()
        self.embed = nn.Embedding(tokens, E, padding_idx=0)
        self.rnn = nn.LSTM(E, H, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * H, classes)

    def final_states(self, x, lengths):
        packed = pack_padded_sequence(self.embed(x), lengths.cpu(), batch_first=True, enforce_sorted=False)
        _, (h_n, _) = self.rnn(packed)
        return h_n

    def forward(self, x, lengths):
        h_n = self.final_states(x, lengths)
        return self.out(torch.cat([h_n[-2], h_n[-1]], dim=1))


# %% [markdown]
# `padding_idx=0` sets the vector of id 0 to zero and never trains it, which suits padding, but not a word.
# `lengths.cpu()` costs nothing on a CPU. It is needed if the lengths are on a GPU, because packing accepts lengths only
# on the CPU.
#
# The first dimension of `h_n` runs over layers and directions, even with `batch_first=True`. The picture shows it from
# left to right. The arrows → and ← mark the forward and the reverse direction:

# %%
torch.manual_seed(0)
model = Classifier()
h_n = model.final_states(x, lengths)
states, numbers = ["layer 0 →", "layer 0 ←", "layer 1 →", "layer 1 ←"], [f"h_n[{i}]" for i in range(4)]
everything = torch.ones(4, 4, dtype=torch.bool)
pv.draw.Aligned("h_n: each box is a state of 16 numbers", [states] * 4, everything, columns=numbers)

# %% [markdown]
# The classifier needs the last two columns, side by side. These are the shapes before and after the linear layer:

# %%
both = torch.cat([h_n[-2], h_n[-1]], dim=1)
for name, tensor in {"h_n": h_n, "h_n[-1]": h_n[-1], "both": both, "logits": model.out(both)}.items():
    print(f"{name:8}", tuple(tensor.shape))

# %% [markdown]
# To put the directions side by side, many people write `h_n[-2:].view(B, -1)` instead of `torch.cat`. The result has
# the right shape, and torch raises no error. Suppose that a batch has 64 sequences.

# %%
ask("view instead of cat")

# %%
number = torch.arange(8).view(2, 4, 1)  # stands for h_n[-2:], with a number instead of each state
names = [f"{letter}{arrow}" for arrow in "→←" for letter in "abcd"]
for how, rows in {"view": number.view(4, -1), "cat": torch.cat([number[0], number[1]], dim=1)}.items():
    print(f"{how:5}", [[names[i] for i in row] for row in rows.tolist()])

# %% tags=["claims"]
for size in (2, 3, 4, 64):
    owners = torch.arange(size).repeat(2).view(size, -1)  # of the states, as view arranges them
    own = (owners == torch.arange(size)[:, None]).any(1)
    assert own.nonzero().flatten().tolist() == [0, size - 1]

# %% [markdown]
# Each row should hold the two states of one sequence, as it does after `cat`. `view` reads memory in order: first the
# forward states of all sequences, and then all reverse states. So row a gets the forward states of a and b. Only the
# first and the last row hold a state of their own sequence, however large the batch is. Such a model can still learn
# fixed training batches by heart, but it predicts badly on new ones. That looks like overfitting.
#
# ## Train it
#
# Our label says whether the first token of a sequence is larger than the last one. To learn this, the model has to read
# to the end of each sequence and no further.

# %%
torch.set_num_threads(1)  # on tensors this small, more threads only wait for each other
generator = torch.Generator().manual_seed(0)
n = torch.randint(2, 21, (512,), generator=generator)
data = [torch.randint(1, 10, (int(k),), generator=generator) for k in n]
pairs = [(s, int(s[0] > s[-1])) for s in data]
loader = DataLoader(pairs, batch_size=32, shuffle=True, generator=generator, collate_fn=collate)
optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(8):
    for x, lengths, y in loader:
        optimiser.zero_grad()
        F.cross_entropy(model(x, lengths), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()

# %% [markdown]
# Next, check something that no loss curve shows: a prediction must not depend on the other sequences in its batch.

# %%
model.eval()
with torch.no_grad():
    x, lengths, y = collate(pairs[:64])
    together = model(x, lengths)
    alone = torch.cat([model(s[None], torch.tensor([len(s)])) for s, _ in pairs[:64]])
print(f"differ by at most 1e-5: {torch.allclose(together, alone, atol=1e-5)}")
print(f"more than 9 of 10 right: {bool((together.argmax(1) == y).float().mean() > 0.9)}")

# %% [markdown]
# ## A tagger
#
# A tagger predicts a label for every token, so its loss should read every real cell and no padding. A packed batch
# contains exactly these cells, so you can apply the last layer to `packed.data` and pack the targets in the same way.
# In the padding, the targets are −100, which torch's `cross_entropy` ignores by default:

# %%
torch.manual_seed(1)
x, lengths, _ = collate(list(zip(map(torch.tensor, ids), labels)))
tags = pad_sequence([torch.tensor(s) % 3 for s in ids], batch_first=True, padding_value=-100)
embed, rnn, head = nn.Embedding(10, 8), nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 3)

packed, _ = rnn(pack_padded_sequence(embed(x), lengths, batch_first=True, enforce_sorted=False))
targets = pack_padded_sequence(tags, lengths, batch_first=True, enforce_sorted=False)
print(f"on packed data    {F.cross_entropy(head(packed.data), targets.data):.4f}")

output, _ = pad_packed_sequence(packed, batch_first=True)
mask = torch.arange(output.shape[1]) < lengths[:, None]
print(f"with a mask       {F.cross_entropy(head(output)[mask], tags[mask]):.4f}")
print(f"with ignore_index {F.cross_entropy(head(output).flatten(0, 1), tags.flatten()):.4f}")  # -100 by default
print(f"mixed             {F.cross_entropy(head(packed.data), tags[mask]):.4f}")

# %% [markdown]
# The first three losses are equal. The last one is wrong, because `packed.data` is ordered by time step and
# `tags[mask]` by sequence, but torch raises no error. Pack both predictions and targets, or mask both. If your batch
# has more steps than its longest sequence, pass `total_length=x.shape[1]` to `pad_packed_sequence`, so that `output` is
# as wide as the targets.
#
# Accuracy needs the mask, too. Suppose that 97 % of the words are tagged correctly, two thirds of all cells are padding
# with label 0, and you count every cell.

# %%
ask("accuracy over the padding")

# %% tags=["claims"]
assert (round(97 / 3), round(97 / 3 + 200 / 3)) == (32, 99)  # all padding wrong, and all right

# %% [markdown]
# ## One mask for everything
#
# `torch.arange(T) < lengths[:, None]` is True at real cells. With this mask, you can take the mean or the maximum of a
# sequence's outputs, or weight them by attention:

# %%
real = mask[..., None]  # (B, T, 1)
mean = output.masked_fill(~real, 0).sum(1) / lengths[:, None]
largest = output.masked_fill(~real, -torch.inf).amax(1)
last = output[torch.arange(4), lengths - 1]
scores = output[..., 0].masked_fill(~mask, -torch.inf)  # use a layer of your own here
weighted = (scores.softmax(1)[:, None] @ output).squeeze(1)

# %% tags=["claims"]
with torch.no_grad():
    for row, (s, k) in enumerate(zip(ids, lengths.tolist())):
        own = rnn(embed(torch.tensor([s])))[0][0]
        assert own.shape == (k, 16)
        assert torch.allclose(mean[row], own.mean(0), atol=1e-6)
        assert torch.allclose(largest[row], own.amax(0), atol=1e-6)
        assert torch.allclose(last[row], own[-1], atol=1e-6)
        assert torch.allclose(weighted[row], own[:, 0].softmax(0) @ own, atol=1e-6)

# %% [markdown]
# The tagger's accuracy is `(head(output).argmax(2) == tags)[mask].float().mean()`. Without the mask, the accuracy above
# could be anything from 32 % to 99 %, depending on the label that the model gives to padding. `masked_fill` is safer
# than multiplying by the mask, because 0 · NaN and 0 · ∞ are NaN. Besides, zeros would hide a negative maximum.
#
# All this assumes that every row has a real cell. What happens if a row has none?

# %%
ask("a row without real cells")

# %% tags=["claims"]
some = torch.tensor([[True, False], [False, False]])  # row 1 has no real cells
for filled in (False, True):
    values = torch.ones(2, 2, requires_grad=True)
    weights = torch.zeros(2, 2).masked_fill(~some, -torch.inf).softmax(1)
    weights = weights.masked_fill(~some, 0) if filled else weights
    (weights * values)[0].sum().backward()
    assert values.grad.isfinite().all() == filled

# %% [markdown]
# ## The mistakes that raise no error
#
# With each of the following mistakes, training runs, but not as you intended. Pass `pv.diagnose` the batch that goes into
# your model, and it reports whatever looks wrong. Below, we spoil one batch in five ways.

# %%
x = torch.tensor([[3, 1, 4, 0, 0], [1, 5, 9, 2, 6], [5, 3, 0, 0, 0], [5, 8, 9, 7, 0]])
spoilt = {
    "all lengths are T": (x, [5, 5, 5, 5]),
    "a length too short": (x, [3, 5, 2, 3]),
    "lengths sorted, x not": (x, [5, 4, 3, 2]),
    "padded on the left": (x.flip(1), [3, 5, 2, 4]),
    "lengths are not whole": (x, [2.99, 5.0, 2.0, 4.0]),
}
for mistake, (batch, n) in spoilt.items():
    print(f"{mistake:24}", *(finding.rule for finding in pv.diagnose(batch, n, batch_first=True)), sep="  ")

# %% [markdown]
# `diagnose` compares the lengths with the places where the repeated values at the ends of the rows begin, and says so
# if they fit in another order. Some mistakes cannot be seen in a batch:
#
# - **`h_n` of a padded run** depends on the padding. `pv.compare(rnn, x, lengths)` shows the difference.
# - **`h_n[-1]` of a bidirectional RNN** is only the reverse direction of the last layer, and `h_n[:2]` is the first layer.
# - **`_, h = lstm(…)`** makes `h` a pair, so `h[-1]` is the cell state.
# - **`(loss * mask).mean()`** divides by all cells. Divide the sum by `mask.sum()`.
# - **`PackedSequence(f(packed.data), packed.batch_sizes)`** loses your order. `packed._replace(data=f(packed.data))`
#   keeps it.
# - **A row without real cells** gets NaN from the softmax above. Set its weights to 0 afterwards, with
#   `masked_fill(~mask, 0)`. Otherwise, the backward pass multiplies a gradient of zero by NaN.
# - **A batch of one** hides most of these mistakes. Test with three sequences of different lengths.
#
# ## If you need more
#
# **A step function of your own.** `nn.LSTM` does not offer recurrent dropout, for example. `scan` runs any step
# function in the loop of notebook 02. Below, each sequence has a mask that drops the same units of its state at every
# step:


# %%
def scan(step, packed, *state):  # the state is in packed order, longest first
    outputs, ended = [], []
    for rows in packed.data.split(packed.batch_sizes.tolist()):
        ended.append([s[len(rows) :] for s in state])
        state = step(rows, *(s[: len(rows)] for s in state))
        outputs.append(state[0])
    ended.append(state)
    final = [torch.cat(s[::-1]) for s in zip(*ended)]
    if packed.unsorted_indices is not None:  # None if you sorted the batch yourself
        final = [s[packed.unsorted_indices] for s in final]
    return packed._replace(data=torch.cat(outputs)), *final


packed_x = pack_padded_sequence(embed(x), [3, 5, 2, 4], batch_first=True, enforce_sorted=False)
cell, zero = nn.LSTMCell(8, 16), torch.zeros(4, 16)
keep = (torch.rand(4, 16) < 0.8) / 0.8
output, h, c = scan(lambda row, h, c: cell(row, (h * keep[: len(row)], c)), packed_x, zero, zero)

# %% tags=["claims"]
cell.load_state_dict({name.removesuffix("_l0"): weight for name, weight in rnn.state_dict().items()})
found = scan(lambda row, h, c: cell(row, (h, c)), packed_x, zero, zero)
wanted, (wanted_h, wanted_c) = rnn(packed_x)
for one, other in [(found[0].data, wanted.data), (found[1], wanted_h[0]), (found[2], wanted_c[0])]:
    assert torch.allclose(one, other, atol=1e-6)
longest_first = packed_x.sorted_indices
packed_sorted = pack_padded_sequence(embed(x[longest_first]), [5, 4, 3, 2], batch_first=True)
assert packed_sorted.unsorted_indices is None
_, sorted_h, sorted_c = scan(lambda row, h, c: cell(row, (h, c)), packed_sorted, zero, zero)
assert torch.allclose(sorted_h, wanted_h[0][longest_first], atol=1e-6)
assert torch.allclose(sorted_c, wanted_c[0][longest_first], atol=1e-6)

# %% tags=["claims"]
_, dropped_h, dropped_c = scan(lambda row, h, c: cell(row, (h * keep[: len(row)], c)), packed_x, zero, zero)
for place, b in enumerate(packed_x.sorted_indices.tolist()):
    h_b = c_b = zero[:1]
    for token in ids[b]:
        h_b, c_b = cell(embed(torch.tensor([token])), (h_b * keep[place : place + 1], c_b))
    assert torch.allclose(dropped_h[b], h_b[0], atol=1e-6)
    assert torch.allclose(dropped_c[b], c_b[0], atol=1e-6)

# %% [markdown]
# **Long sequences in chunks.** If a sequence is too long for one backward pass, carry the state from chunk to chunk,
# but only for the sequences that are still running. (This works in one direction only. The reverse direction must begin
# with the last chunk.)

# %%
lengths, size = torch.tensor([3, 5, 2, 4]), 2
h = c = torch.zeros(1, 4, 16)
for start in range(0, int(lengths.max()), size):
    running = (lengths > start).nonzero().squeeze(1)
    left = (lengths[running] - start).clamp(max=size)
    chunk = pack_padded_sequence(embed(x[running, start : start + size]), left, batch_first=True, enforce_sorted=False)
    output, (new_h, new_c) = rnn(chunk, (h[:, running], c[:, running]))
    output.data.square().mean().backward()  # put your loss and a step of the optimiser here
    h, c = h.index_copy(1, running, new_h.detach()), c.index_copy(1, running, new_c.detach())

# %% tags=["claims"]
assert torch.allclose(h, wanted_h, atol=1e-6)
assert torch.allclose(c, wanted_c, atol=1e-6)

# %% [markdown]
# **Words made of characters.** Run an LSTM over the characters of all words, and pass its final states, one vector per
# word, to a second LSTM over words. `pack_sequence` packs both batches without any padding.

# %%
sentences = [["pack", "it"], ["we", "see", "cells"]]
words = [torch.tensor([ord(c) for c in word]) for sentence in sentences for word in sentence]
characters, letters = nn.Embedding(128, 8), nn.LSTM(8, 8, bidirectional=True)
packed = pack_sequence(words, enforce_sorted=False)
_, (h, _) = letters(packed._replace(data=characters(packed.data)))
vectors = torch.cat([h[0], h[1]], dim=1)  # (words, 16), in your order
by_sentence = vectors.split([len(sentence) for sentence in sentences])
output, _ = nn.LSTM(16, 32)(pack_sequence(by_sentence, enforce_sorted=False))

# %% tags=["claims"]
for word, vector in zip(words, vectors):
    _, (alone, _) = letters(characters(word))
    assert torch.allclose(alone.flatten(), vector, atol=1e-6)
assert output.batch_sizes.tolist() == [2, 2, 1]

# %% [markdown]
# ## Exercise
#
# Write a collate function for pairs of a sequence and its list of tags. Return the padded sequences, the lengths, and
# the tags padded with −100, all with the batch dimension first.


# %% tags=["exercise"]
def my_collate(batch):
    # solution
    sequences, tags = zip(*batch)
    lengths = torch.tensor([len(s) for s in sequences])
    tags = pad_sequence([torch.tensor(t) for t in tags], batch_first=True, padding_value=-100)
    return pad_sequence(sequences, batch_first=True), lengths, tags
    # end solution


checks.collate(my_collate)

# %% [markdown]
# ## You can now
#
# - build padded batches with a collate function that keeps the lengths,
# - join the final states of two directions, and check that a prediction does not depend on its batch,
# - write one mask and use it in losses, pooling and attention,
# - find the mistakes that raise no error.
#
# Next: [07 Counting FLOPs](07_counting_flops.ipynb). Back: [05 Alignment](05_alignment.ipynb) · [00 Start
# here](00_start_here.ipynb)
