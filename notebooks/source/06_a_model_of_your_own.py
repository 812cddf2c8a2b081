# %% [markdown]
# # A model of your own
#
# **How do you write, train and check a model whose sequences have different lengths?**
#
# After this notebook, you can
#
# - turn a list of sequences into padded batches, with a `Dataset` and a collate function,
# - write a bidirectional classifier and a tagger, and say what shape every tensor has,
# - use one mask for losses, pooling and attention,
# - recognise the mistakes that raise no error, and find them with `pv.diagnose`.
#
# Time: 17 minutes.
#
# All the code below is plain PyTorch, so you can paste it into a script. `packviz` is only used for looking.

# %% [markdown]
# ## From sequences to batches
#
# Here are four sequences of token ids with a label each. A `Dataset` hands them out one at a time, and a `DataLoader`
# collects several of them into a batch. By default it stacks them, which fails, because tensors of different lengths
# cannot be stacked:

# %%
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

import packviz as pv
from packviz.lessons import ask, checks

# %%
ids = [[3, 1, 4], [1, 5, 9, 2, 6], [5, 3], [5, 8, 9, 7]]
labels = [0, 1, 0, 1]


class Texts(Dataset):
    def __len__(self):
        return len(ids)

    def __getitem__(self, i):
        return torch.tensor(ids[i]), labels[i]


try:
    next(iter(DataLoader(Texts(), batch_size=4)))
except RuntimeError as error:
    print(error)

# %% [markdown]
# A *collate function* tells the loader how to build a batch. It pads the sequences, and it keeps their lengths, because
# the padded tensor alone does not say where a sequence ends.


# %%
def collate(batch):
    sequences, labels = zip(*batch)
    lengths = torch.tensor([len(s) for s in sequences])
    return pad_sequence(sequences, batch_first=True), lengths, torch.tensor(labels)


loader = DataLoader(Texts(), batch_size=4, collate_fn=collate)
x, lengths, y = next(iter(loader))
pv.show(x, lengths, batch_first=True, part="padded")

# %% tags=["claims"]
assert x.tolist() == [[3, 1, 4, 0, 0], [1, 5, 9, 2, 6], [5, 3, 0, 0, 0], [5, 8, 9, 7, 0]]
assert lengths.tolist() == [3, 5, 2, 4]

# %% [markdown]
# People often leave the lengths out and compute `(x != 0).sum(1)` later. That works until 0 is also a token. Suppose
# it is one here, the lengths are right, and you pack the batch.

# %%
ask("a token with the id of the padding")

# %% [markdown]
# ## A classifier
#
# The usual classifier embeds the tokens, runs a bidirectional LSTM with two layers, and reads the final states of the
# last layer. Because the batch is packed, every final state is read at the end of its own sequence.


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


# %%
torch.manual_seed(0)
model = Classifier()
h_n = model.final_states(x, lengths)
print("embedded", tuple(model.embed(x).shape), " h_n", tuple(h_n.shape), " logits", tuple(model(x, lengths).shape))

# %% [markdown]
# `lengths.cpu()` costs nothing on a CPU, and on a GPU it is needed, because packing takes lengths from the CPU only.
#
# `h_n` stacks layers and directions in its first dimension, and it does so even with `batch_first=True`. Here is
# which is which. The classifier needs the last two, side by side:

# %%
grid = [f"layer {layer}, {direction}" for layer in (0, 1) for direction in ("forward", "reverse")]
for i, name in enumerate(grid):
    print(f"h_n[{i}] or h_n[{i - 4}]:  {name}, {tuple(h_n[i].shape)}: one row for each of a, b, c and d")

# %% [markdown]
# To put two directions side by side, many people write `h_n[-2:].view(B, -1)` instead of `torch.cat`. It has the right
# shape, and it raises no error. Take a batch of 64 sequences.

# %%
ask("view instead of cat")

# %%
owners = torch.arange(8).view(2, 4, 1)  # 0 to 3: the forward states of a to d; 4 to 7: their reverse states
print("view(4, -1):", owners.view(4, -1).tolist())
print("cat:        ", torch.cat([owners[0], owners[1]], dim=1).tolist())

# %% [markdown]
# Each row should hold the two states of one sequence, as `cat` has it. `view` goes through memory in order: first the
# forward states of all sequences, then all reverse states. So row a gets the forward states of a and b. A model like
# that can still learn its training batches by heart, and then looks as if it overfits.
#
# ## Train it
#
# The label says whether the first token is larger than the last one. To solve this, the final states of both
# directions must be right.

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
# Then check what no loss curve shows: a prediction must not depend on the other sequences of its batch.

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
# A tagger predicts a label for every token, so its loss needs every real cell and no padding. A packed batch holds
# exactly these cells. So you can apply the last layer to `packed.data`, and pack the targets in the same way:

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
# The first three are the same loss. The last one is wrong, and no error says so: `packed.data` goes through the batch
# time step by time step, and `tags[mask]` goes sequence by sequence. Whichever form you choose, use it on both sides.
#
# Measure accuracy in the same way. Imagine that 0.97 of the words are tagged correctly, that two thirds of all cells are
# padding, and that the padding has label 0.

# %%
ask("accuracy over the padding")

# %% [markdown]
# ## One mask for everything
#
# `torch.arange(T) < lengths[:, None]` is True at real cells. With this mask, you can take the mean or the maximum of a
# sequence's outputs, or let attention weigh them:

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
# `masked_fill` is safer than multiplying by the mask, because 0 · NaN is NaN and 0 · ∞ is NaN, too. And a maximum over
# zeros in the padding would turn every negative maximum into 0.

# %%
ask("a row without real cells")

# %% [markdown]
# ## The mistakes that raise no error
#
# Each of these runs, and each trains something other than you meant. Give `pv.diagnose` the batch as it goes into your
# model, and it reports what looks wrong. Below, one batch is spoilt in several ways.

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
# Some mistakes cannot be seen in a batch:
#
# - **Reading `h_n` of a padded run.** It is read after the padding. `pv.compare(rnn, x, lengths)` shows the difference.
# - **`h_n[-1]` of two directions** is the reverse direction of the last layer alone, and `h_n[:2]` is the first layer.
# - **`_, h = lstm(…)`** makes `h` a pair, so `h[-1]` is the cell state.
# - **`(loss * mask).mean()`** divides by all cells. Divide by `mask.sum()` instead.
# - **`PackedSequence(f(packed.data), packed.batch_sizes)`** loses your order. `packed._replace(data=f(packed.data))`
#   keeps it.
# - **A batch of one** hides nearly all of these mistakes. Test with three sequences of different lengths.

# %% [markdown]
# ## Exercise
#
# Write a collate function for pairs of a sequence and its list of tags. Return the padded sequences, the lengths, and
# the tags padded with −100, each with the batch first.


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
# - write one mask, and use it in losses, pooling and attention,
# - find the mistakes that raise no error.
#
# Next: [07 Counting FLOPs](07_counting_flops.ipynb). Back: [05 Alignment](05_alignment.ipynb) · [00 Start
# here](00_start_here.ipynb)
