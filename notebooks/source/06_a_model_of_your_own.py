# %% [markdown]
# # A model of your own
#
# **How do ten lines become a model that trains, and how do you check it?**
#
# The loss has fallen to almost nothing, and the model knows every training example. On new ones, it does no better than
# a coin. "Overfitting", says everybody. You try dropout, then a smaller model. Nothing helps. Every shape is right, no
# line raises an error, and yet one line is wrong. Which?
#
# After this page, you can build a classifier and a tagger from the ten lines, and find the line that nobody warned you
# about.
#
# Time: 20 minutes, with the exercise.
#
# <details><summary>Where we are in the ten lines: <b>all of them</b>, because today they grow</summary>
#
# ```text
# → sequences = [torch.tensor([3, 1, 4]), torch.tensor([1, 5, 9, 2, 6]), torch.tensor([5, 3]), torch.tensor([5, 8, 9, 7])]
# → lengths = torch.tensor([len(s) for s in sequences])                        # (4,)       3, 5, 2, 4: on the CPU
# → x = pad_sequence(sequences, batch_first=True)                              # (4, 5)     padded with 0
# → embedded = embedding(x)                                                    # (4, 5, 6)
# → packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)   # data: (14, 6)
# → packed_output, (h_n, c_n) = lstm(packed)                                   # data: (14, 8); h_n: (1, 4, 8)
# → output, _ = pad_packed_sequence(packed_output, batch_first=True)           # (4, 5, 8)
# → scores = linear(output)                                                    # (4, 5, 3)
# → mask = torch.arange(5) < lengths[:, None]                                  # (4, 5)     True at the 14 real cells
# → loss = cross_entropy(scores[mask], tags[mask])                             # ()         then loss.backward()
# ```
#
# </details>
#
# ## Who makes the batches?
#
# In training, a `DataLoader` makes the batches. By default, it stacks the sequences, and raises an error if their
# lengths differ. So we tell it how to build a batch, with a *collate function*: the first three of our lines. It must
# return the lengths as well, because a padded tensor does not show where a sequence ends.

# %% jupyter={"source_hidden": true}
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader

import packviz as pv
from packviz.lessons import ask, checks

ids, labels = [[3, 1, 4], [1, 5, 9, 2, 6], [5, 3], [5, 8, 9, 7]], [0, 1, 0, 1]
pairs = [(torch.tensor(s), label) for s, label in zip(ids, labels)]


# %%
def collate(batch):  # a list of pairs: (sequence, label)
    sequences, labels = zip(*batch)
    lengths = torch.tensor([len(s) for s in sequences])
    return pad_sequence(sequences, batch_first=True), lengths, torch.tensor(labels)


x, lengths, y = next(iter(DataLoader(pairs, batch_size=4, collate_fn=collate)))
pv.show(x, lengths, batch_first=True, part="padded")

# %% tags=["claims"]
assert x.tolist() == [[3, 1, 4, 0, 0], [1, 5, 9, 2, 6], [5, 3, 0, 0, 0], [5, 8, 9, 7, 0]]
assert lengths.tolist() == [3, 5, 2, 4]
message = ""
try:
    next(iter(DataLoader(pairs, batch_size=4)))
except RuntimeError as error:
    message = str(error)
assert message.startswith("stack expects each tensor to be equal size")

# %% [markdown]
# <details><summary>Why not count later, with <code>(x != 0).sum(1)</code>? And what if 0 is a word?</summary>
#
# That count goes wrong as soon as 0 is also a word. And even with the right lengths, an embedding with `padding_idx=0`
# never learns word 0, because vector 0 gets no gradient. So number your words from 1.
#
# Without `padding_idx`, word 0 learns like any other, because packed data contain no padding. Is vector 0 zero? The
# constructor `nn.Embedding(…, padding_idx=0)` makes it so, once. `from_pretrained` keeps whatever you load as vector 0,
# and an initialisation of your own overwrites the zeros.
#
# </details>
#
# The batch is ready. A classifier should read one summary of each sequence. The LSTM puts it into `h_n`, somewhere.

# %% tags=["claims"]
for batch, n in [(x, [5, 5, 5, 5]), (x, [3, 5, 2, 3]), (x, [5, 4, 3, 2]), (x.flip(1), [3, 5, 2, 4]), (x, [2.99, 5.0, 2.0, 4.0])]:
    pack_padded_sequence(batch, n, batch_first=True, enforce_sorted=False)  # no error
layer = nn.Embedding(3, 2, padding_idx=0)
assert not layer.weight[0].any()
loaded = nn.Embedding.from_pretrained(torch.ones(3, 2), freeze=False, padding_idx=0)
loaded(torch.tensor([0, 1])).sum().backward()
assert (loaded.weight[0] == 1).all()
assert not loaded.weight.grad[0].any()
nn.init.normal_(layer.weight)
assert layer.weight[0].any()
for told in (0, None):  # a word with the id 0, once with padding_idx and once without
    layer = nn.Embedding(3, 2, padding_idx=told)
    words = layer(torch.tensor([[0, 1, 2], [0, 0, 0]]))  # row 1: a word, then padding
    pack_padded_sequence(words, [3, 1], batch_first=True).data.sum().backward()
    assert layer.weight.grad[:, 0].tolist() == [0 if told == 0 else 2, 1, 1]

# %% [markdown]
# ## Where in `h_n` is my sequence?
#
# Line 6 grows: two layers, two directions. How to `join` the final states of the two directions stays open for now.


# %%
class Classifier(nn.Module):
    def __init__(self, join):
        super().__init__()
        self.embed, self.join = nn.Embedding(10, 8, padding_idx=0), join
        self.rnn = nn.LSTM(8, 16, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * 16, 2)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.embed(x), lengths.cpu(), batch_first=True, enforce_sorted=False)
        _, (h_n, _) = self.rnn(packed)
        return self.out(self.join(h_n))


# %% [markdown]
# Here is `h_n` for the first three sequences. The arrows mark the direction:

# %% jupyter={"source_hidden": true}
model = Classifier(None)
packed = pack_padded_sequence(model.embed(x[:3]), lengths[:3], batch_first=True, enforce_sorted=False)
_, (h_n, _) = model.rnn(packed)
states, numbers = (["layer 0 →", "layer 0 ←", "layer 1 →", "layer 1 ←"], [f"h_n[{i}]" for i in range(4)])
everything = torch.ones(3, 4, dtype=torch.bool)
title = f"h_n is {tuple(h_n.shape)}: four states of 16 numbers for each of three sequences"
pv.draw.Aligned(title, [states] * 3, everything, columns=numbers)

# %% [markdown]
# The first dimension of `h_n` runs over layers and directions, even with `batch_first=True`. We need the last
# layer's states, `h_n[-2:]`, of shape `(2, B, 16)`, as one row of 32 numbers for each sequence. Two ways come to mind.
# `torch.cat([h_n[-2], h_n[-1]], dim=1)` is one, and `h_n[-2:].view(B, -1)` is shorter. Both return the right shape.

# %%
ask("view instead of cat")

# %% jupyter={"source_hidden": true}
finals = [(f"{letter}{arrow}", b) for arrow in "→←" for b, letter in enumerate("abc")]
place = torch.arange(6).view(2, 3, 1)  # stands for h_n[-2:], with a number instead of each state
joined = {"view": place.view(3, -1), "cat": torch.cat([place[0], place[1]], dim=1)}
pv.draw.Ribbons("Which states does each row get from view, and from cat?", finals, joined)

# %% [markdown]
# In memory, all forward states come first, and then all reverse ones. `view` leaves them there, and merely draws new
# borders. Only the first and the last row hold a state of their own sequence. In a batch of 64, the other 62 are made
# of strangers.

# %% tags=["claims"]
for size in (2, 3, 4, 64):
    owners = torch.arange(size).repeat(2).view(size, -1)  # of the states, as view arranges them
    own = (owners == torch.arange(size)[:, None]).any(1)
    assert own.nonzero().flatten().tolist() == [0, size - 1]
assert torch.equal(h_n[-2:].view(3, -1)[1, :16], h_n[-2, 2])

# %% [markdown]
# Surely such a model cannot learn anything.
#
# ## Does it learn?
#
# The task: is the first token of a sequence larger than the last one? We train both models on the same 256 sequences,
# in the same batches in every epoch. Then we show them 512 new ones. (The training loop is ordinary, and folded.)


# %% jupyter={"source_hidden": true}
def examples(count, seed):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 21, (count,), generator=generator).tolist()
    data = [torch.randint(1, 10, (n,), generator=generator) for n in lengths]
    return [(s, int(s[0] > s[-1])) for s in data]


def accuracy(model, data):
    with torch.no_grad():
        right = [model(x, n).argmax(1) == y for x, n, y in DataLoader(data, batch_size=64, collate_fn=collate)]
    return torch.cat(right).float().mean()


# %% jupyter={"source_hidden": true}
def train(model, data, epochs=20, shuffle=False):
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    batches = DataLoader(data, batch_size=64, shuffle=shuffle, collate_fn=collate)
    for epoch in range(epochs):
        losses = []
        for x, lengths, y in batches:
            optimiser.zero_grad()
            loss = F.cross_entropy(model(x, lengths), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            losses.append(loss.item())
        if epoch % 5 == 4:
            print(f"  epoch {epoch + 1:2}  loss {sum(losses) / len(losses):.1f}")


# %% jupyter={"source_hidden": true}
torch.set_num_threads(1)  # on tensors this small, more threads only wait for each other
joins = {"view": lambda h_n: h_n[-2:].view(h_n.shape[1], -1), "cat": lambda h_n: torch.cat([h_n[-2], h_n[-1]], dim=1)}
known, new, models = examples(256, seed=0), examples(512, seed=1), {}
for name, join in joins.items():
    torch.manual_seed(0)
    print(name)
    models[name] = Classifier(join)
    train(models[name], known)
    seen, unseen = (100 * float(accuracy(models[name], data)) for data in (known, new))
    print(f"  right: {seen:.0f} % of the known, about {round(unseen, -1):.0f} % of the new ones")

# %% tags=["claims"]
assert all(accuracy(model, known) > 0.98 for model in models.values())
assert 0.45 < accuracy(models["view"], new) < 0.55
assert 0.85 < accuracy(models["cat"], new) < 0.95
from contextlib import redirect_stdout

torch.manual_seed(0)
shuffled = Classifier(joins["view"])
with redirect_stdout(None):
    train(shuffled, known, shuffle=True)
with torch.no_grad():
    hardly = [F.cross_entropy(shuffled(x, n), y) for x, n, y in DataLoader(known, batch_size=64, collate_fn=collate)]
assert 0.6 < sum(hardly) / len(hardly) < 0.7

# %% [markdown]
# It learns! Both losses end near zero, and both models know the batches that they have trained on. On new data, `cat`
# is right about nine times in ten. `view` tosses a coin. It has memorised which strangers come in which row. That
# looks like overfitting, and no dropout cures it.
#
# It could memorise them because each row had the same strangers in every epoch. With `shuffle=True`, the loss hardly
# falls at all, and the same mistake looks like a model that is too small.
#
# So there is the line: `h_n[-2:].view(B, -1)`. To catch this mistake, we need neither labels nor training.
#
# ## Does a prediction depend on its neighbours?
#
# It must not. We run 64 sequences together, then each alone, and compare.

# %%
x, lengths, y = collate(new[:64])
for name, model in models.items():
    with torch.no_grad():
        together = model(x, lengths)
        alone = torch.cat([model(s[None], torch.tensor([len(s)])) for s, _ in new[:64]])
    print(f"{name:5} the same alone as in a batch: {torch.allclose(together, alone, atol=1e-4)}")

# %% tags=["claims"]
untrained = Classifier(joins["view"])
with torch.no_grad():
    one_by_one = torch.cat([untrained(s[None], torch.tensor([len(s)])) for s, _ in new[:64]])
    assert not torch.allclose(untrained(x, lengths), one_by_one, atol=1e-4)
assert torch.allclose(together, alone, atol=1e-4)

# %% [markdown]
# Write such a check for every sequence model, and call `model.eval()` first if there is dropout or BatchNorm. But it
# looks at predictions only, and a *loss* can go wrong, too.
#
# ## What if every word has a label?
#
# A tagger grows from our last four lines. Its loss must compare each word with its own tag, and read no padding. The
# folded cell makes outputs and tags twice: packed (`packed`, `targets`) and padded (`output`, `tags`). The padding of
# `tags` is −100, which torch's `cross_entropy` ignores by default. Here are three common ways to compute the loss, and
# a fourth, which is one too many:

# %% jupyter={"source_hidden": true}
torch.manual_seed(1)
x, lengths, _ = collate(pairs)
tags = pad_sequence([torch.tensor(s) % 3 for s in ids], batch_first=True, padding_value=-100)
embed, rnn, head = nn.Embedding(10, 8), nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 3)

packed, _ = rnn(pack_padded_sequence(embed(x), lengths, batch_first=True, enforce_sorted=False))
targets = pack_padded_sequence(tags, lengths, batch_first=True, enforce_sorted=False)
output, _ = pad_packed_sequence(packed, batch_first=True)
mask = torch.arange(output.shape[1]) < lengths[:, None]

# %%
print(f"on packed data    {F.cross_entropy(head(packed.data), targets.data):.4f}")
print(f"with a mask       {F.cross_entropy(head(output)[mask], tags[mask]):.4f}")
print(f"with ignore_index {F.cross_entropy(head(output).flatten(0, 1), tags.flatten()):.4f}")
print(f"mixed             {F.cross_entropy(head(packed.data), tags[mask]):.4f}")

# %% [markdown]
# Three agree, and the fourth is plausible. But `packed.data` goes by time step, and `tags[mask]` by sequence. So 13 of
# 14 words are compared with another word's tag. Pack both, or mask both.
#
# The loss is right. And once a tagger is trained, how good is it?

# %%
ask("accuracy over the padding")

# %% tags=["claims"]
square, wrong = torch.randn(2, 3, 3), torch.tensor([[0, 1, 2], [2, 1, 0]])
assert not torch.isclose(F.cross_entropy(square, wrong), F.cross_entropy(square.flatten(0, 1), wrong.flatten()))
assert (round(97 / 3), round(97 / 3 + 200 / 3)) == (32, 99)  # all padding wrong, and all right
by_cell = pack_padded_sequence(torch.arange(20).view(4, 5), lengths, batch_first=True, enforce_sorted=False).data
assert (len(by_cell), sum(by_cell != torch.arange(20).view(4, 5)[mask])) == (14, 13)

# %% [markdown]
# 32 % or 99 %, for one and the same tagger! A third of the cells are words, and 97 % of a third is 32 %. In the
# padding, `pad_packed_sequence` leaves zeros, so the linear layer gives every cell there the same tag. If it is 0, like
# the label there, the padding adds 67 %. If not, it adds nothing. The right number is
# `(head(output).argmax(2) == tags)[mask].float().mean()`.
#
# A wrong summary, a wrong order, a wrong count: torch objects to none of them. Other mistakes sit in the batch,
# before any model reads it.
#
# ## Which mistakes can you see in a batch?
#
# Pass `pv.diagnose` the batch that goes into your model. We spoil ours in five ways, and torch packs all five without
# an error:

# %% jupyter={"source_hidden": true}
spoilt = {
    "all lengths are T": (x, [5, 5, 5, 5]),
    "a length too short": (x, [3, 5, 2, 3]),
    "lengths sorted, x not": (x, [5, 4, 3, 2]),
    "padded on the left": (x.flip(1), [3, 5, 2, 4]),
    "lengths are not whole": (x, [2.99, 5.0, 2.0, 4.0]),
}

# %%
for mistake, (batch, n) in spoilt.items():
    print(f"{mistake:24}", ", ".join(finding.rule for finding in pv.diagnose(batch, n, batch_first=True)))

# %% [markdown]
# Four are found. The first is only suspected, hence *undecided*: every length is 5, and yet three rows end in zeros.
# These may be padding, or real tokens with the id 0. You decide.
#
# <details><summary>Five mistakes that no batch shows</summary>
#
# - **`h_n` of a padded run** depends on the padding. `pv.compare(rnn, x, lengths)` shows the difference.
# - **`h_n[-1]` of a bidirectional RNN** is only the reverse direction of the last layer, and `h_n[:2]` is the first
#   layer.
# - **`_, h = lstm(…)`** makes `h` a pair, so `h[-1]` is the cell state.
# - **`PackedSequence(f(packed.data), packed.batch_sizes)`** loses your order. `packed._replace(data=f(packed.data))`
#   keeps it.
# - **A batch of one** hides mistakes in padding and order. Test with three sequences of different lengths.
#
# </details>
#
# ## Exercise
#
# Write a collate function for the tagger. It is like `collate`, but instead of a label, each sequence comes with a list
# of tags, one number for each word. Return the padded sequences and the lengths as before, and the tags, padded with
# `padding_value=-100`.


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
# write a collate function, give each row the states of its own sequence, mask what you count, and find much of what
# torch lets pass: run each sequence alone, and call `pv.diagnose`.
#
# Our models are now correct. Are they fast? A packed LSTM has less to do, so they should be. Let us count.
#
# Next: [07 Counting FLOPs](07_counting_flops.ipynb). Back: [05 Alignment](05_alignment.ipynb) · [00 Start
# here](00_start_here.ipynb)
#
# ## If you need more
#
# The rest is for reference. The longer parts are folded, with their code below them.
#
# **One mask for pooling and attention.** Of a sequence's outputs, you can take the mean, the maximum or the last one,
# or weight them:

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
# All this assumes that every row has a real cell. What happens if a row has none?

# %%
ask("a row without real cells")

# %% tags=["claims"]
some = torch.tensor([[True, False], [False, False]])  # row 1 has no real cells
for filled in (False, True):
    values, raw = (torch.ones(2, 2, requires_grad=True) for _ in range(2))
    weights = raw.masked_fill(~some, -torch.inf).softmax(1)
    weights = weights.masked_fill(~some, 0) if filled else weights
    (weights * values)[0].sum().backward()
    assert values.grad.isfinite().all() == filled
    assert raw.grad.isfinite().all()

# %% [markdown]
# The softmax of such a row is NaN. Set its weights to 0 afterwards, with `masked_fill(~mask, 0)`. Otherwise, the
# backward pass multiplies a gradient of zero by NaN.
#
# <details><summary><b>A step function of your own</b></summary>
#
# `nn.LSTM` has no recurrent dropout, for example. The `scan` below runs a step function in the loop of notebook 02.
# (The step returns a tuple of states.) Here, a mask drops the same units of a sequence's state at every step.
#
# </details>


# %% jupyter={"source_hidden": true}
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
# <details><summary><b>Long sequences in chunks</b></summary>
#
# If a sequence is too long for one backward pass, cut it into chunks. Carry the state from chunk to chunk, but only
# for the sequences that are still running. (A reverse direction would have to begin with the last chunk.)
#
# </details>

# %% jupyter={"source_hidden": true}
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
# <details><summary><b>Words made of characters</b></summary>
#
# Run an LSTM over the characters of all words, and pass its final states, one vector per word, to a second LSTM over
# words. `pack_sequence` packs the input of both. (It pads inside, but its result contains no padding.)
#
# </details>

# %% jupyter={"source_hidden": true}
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
