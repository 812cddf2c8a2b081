# %% [markdown]
# # Beyond RNNs
#
# **Transformers on texts of different lengths: where do the tokens lie, who may see whom, and what does it cost?**
#
# After this page you can
#
# - say what `cu_seqlens` is,
# - mask padding in attention, whatever a function means by True,
# - put several documents in one row, without letting them mix,
# - say when one row is more work than padding.
#
# Time: 20 minutes. It needs no other page.

# %% [markdown]
# ## Ten rows, two orders
#
# Three documents: a has 5 tokens, b 3, c 2. As a rectangle they take 15 cells, 5 of them *padding*. Without it they are
# ten rows, in one of two orders:
#
# - *Flat rows*, document after document: a0 a1 a2 a3 a4, b0 … Attention wants this.
# - *Packed rows*, step after step: a0 b0 c0, a1 b1 c1, … A recurrent network (RNN) wants this, and torch's
#   `PackedSequence` holds it.

# %%
import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_sequence, pad_sequence

import packviz as pv
from packviz.lessons import ask, checks

ask("rows that stay")

# %% [markdown]
# `cu_seqlens`, the *cumulative sequence lengths*, says where each document begins in the flat rows. It starts with 0 and
# ends with the number of rows.

# %%
lengths = torch.tensor([5, 3, 2])
cu_seqlens = F.pad(lengths.cumsum(0), (1, 0)).int()
print("cu_seqlens:", *cu_seqlens.tolist())
pv.show(lengths, flat=True)

# %% [markdown]
# Flat rows are cut by documents, packed rows by time steps: packing is transposing, for a ragged batch. torch's *jagged
# tensor* is the flat rows with their `cu_seqlens`, which it calls *offsets*.

# %% tags=["claims"]
layout = pv.Layout(lengths)
assert cu_seqlens.tolist() == layout.starts.tolist() == [0, 5, 8, 10]
assert (torch.tensor(layout.flat_rows) == torch.arange(10)).nonzero().flatten().tolist() == [0, 7]  # two rows stay
assert pv.Layout(layout.batch_sizes).batch_sizes.tolist() == [5, 3, 2]  # transposed twice
assert pv.Layout.from_offsets(cu_seqlens) == layout

# %% [markdown]
# ## Who wants which order?
#
# An RNN takes one step of all documents at a time, attention one document. And the other layers?

# %%
torch.manual_seed(0)
documents = [torch.randn(n, 4) for n in lengths.tolist()]  # 4 features for each token
flat = torch.cat(documents)
packed = flat[torch.tensor(pv.Layout(lengths).flat_rows)]  # one permutation leads from order to order
print("as torch packs them:", torch.equal(packed, pack_sequence(documents).data))

ask("who wants which order")

# %%
linear, rnn = torch.nn.Linear(4, 4), torch.nn.RNN(4, 4)
convolution = torch.nn.Conv1d(4, 4, kernel_size=3, padding=1)
layers = {
    "Linear": linear,
    "cross-entropy": lambda x: F.cross_entropy(x, x.argmax(1), reduction="none")[:, None],
    "convolution": lambda x: convolution(x.T).T,
    "RNN": lambda x: rnn(x)[0],
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
}
errors, rows = {"alone": torch.zeros(10)}, ["a0", "a1", "a2", "a3", "a4", "b0", "b1", "b2", "c0", "c1"]
for name, layer in layers.items():
    alone = torch.cat([layer(document) for document in documents])
    errors[f"{name}, on flat rows"] = (layer(flat) - alone).abs().amax(1)
pv.draw.Strips(errors, "Linear and cross-entropy need no borders; what looks along the rows reads other documents", rows)

# %% [markdown]
# So keep Linear, LayerNorm, embedding and loss on flat rows. Only what looks along the rows must know the borders.

# %% tags=["claims"]
wrong = {name.split(",")[0]: (error > 1e-5).nonzero().flatten().tolist() for name, error in errors.items()}
assert wrong["Linear"] == wrong["cross-entropy"] == []
assert wrong["convolution"] == [4, 5, 7, 8]  # beside the borders
assert wrong["RNN"] == [5, 6, 7, 8, 9]  # after the first document
assert wrong["attention"] == [*range(10)]
norm = torch.nn.LayerNorm(4)
assert torch.equal(norm(flat), torch.cat([norm(document) for document in documents]))
assert torch.equal(packed, pack_sequence(documents).data)

# %% [markdown]
# ## Padding in attention
#
# Each token, a *query*, has a *score* with each token, a *key*. Its scores become weights that add up to 100 %. Padding
# gets its share: if all scores are equal, 0, 40 and 60 % in a, b and c. So it is masked.

# %%
ask("a mask of numbers")

# %%
real = pv.real_mask(lengths)  # (3, 5), True at real cells
q = k = torch.zeros(3, 5, 4)  # all scores equal
attention = torch.nn.MultiheadAttention(4, 1, batch_first=True)
masks = {"no mask": None, "1 at padding, a number": (~real).float(), "True at padding": ~real}
weights = {name: attention(q, k, k, key_padding_mask=mask)[1][2] for name, mask in masks.items()}  # those of c
pv.draw.Attention(2, weights, "Document c: a mask of numbers is added to the scores, and draws weight to the padding")

# %% [markdown]
# True, too, has two meanings. Ask the function: give it `real` as its mask, and change the padding. If the real tokens
# notice, they read padding: True means *leave out*.

# %%
x = pad_sequence(documents, batch_first=True)
other = x.masked_fill(~real[..., None], 9)  # the same but for the padding
layer = torch.nn.TransformerEncoderLayer(4, 1, 8, dropout=0, batch_first=True)
calls = {
    "scaled_dot_product_attention(attn_mask=)": lambda x: F.scaled_dot_product_attention(x, x, x, real[:, None]),
    "nn.MultiheadAttention(attn_mask=)": lambda x: attention(x, x, x, attn_mask=real[:, None].expand(3, 5, 5))[0],
    "nn.MultiheadAttention(key_padding_mask=)": lambda x: attention(x, x, x, key_padding_mask=real)[0],
    "nn.TransformerEncoderLayer(src_key_padding_mask=)": lambda x: layer(x, src_key_padding_mask=real),
}
for name, call in calls.items():
    notices = not torch.equal(call(x)[2, :2], call(other)[2, :2])
    print(f"{name:50} True means: {'leave out' if notices else 'take part'}")

# %% [markdown]
# In [FlexAttention](https://docs.pytorch.org/docs/stable/nn.attention.flex_attention.html) a `mask_mod` is True for *take
# part*, and so is the 1 of Hugging Face's `attention_mask`.
#
# *Causal* attention sees nothing that comes later: padding at the end needs no mask there, padding at the start does.

# %% tags=["claims"]
values = real[..., None].float()
without = F.scaled_dot_product_attention(q, k, values)
masked = F.scaled_dot_product_attention(q, k, values, attn_mask=real[:, None])
assert torch.allclose(without[:, 0, 0], torch.tensor([1, 0.6, 0.4]))
assert (masked[real] == 1).all()
lost = {name: w[0, 2:].sum().item() for name, w in weights.items()}
assert lost["True at padding"] == 0
assert abs(lost["no mask"] - 0.6) < 1e-6
assert abs(lost["1 at padding, a number"] - 3 * 2.71828 / (2 + 3 * 2.71828)) < 1e-5
takes_part = {name: torch.equal(call(x)[2, :2], call(other)[2, :2]) for name, call in calls.items()}
assert [*takes_part.values()] == [True, False, False, False]
causal = [F.scaled_dot_product_attention(some, some, some, is_causal=True)[real] for some in (x, other)]
assert torch.equal(*causal)

# %% [markdown]
# ## Three documents, one row
#
# To save the padding, people put several documents in one row. (They call that *packing*, too.) A language model is
# causal: it sees what came before. Here that includes other documents.

# %%
ids = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 2, 2])  # *document ids*: whose token is this row?
causal = torch.ones(10, 10, dtype=torch.bool).tril()
own = ids[:, None] == ids  # (10, 10), True where query and key are of one document
cross_document = (causal & ~own).sum(1) / causal.sum(1)
print("weight on other documents, all scores equal:", *(f"{w:.2f}" for w in cross_document))
pv.draw.Scores([5, 3, 2], mask="causal")

# %% [markdown]
# Five sixths of b0's weight go to a. A mark for *end of text* is no wall, but one more token to look at. The cure is a
# mask of blocks, `causal & own`:


# %%
def attend(x, **mask):
    q = k = v = x[None]
    return F.scaled_dot_product_attention(q, k, v, **mask)[0]


alone = torch.cat([attend(document, is_causal=True) for document in documents])
for name, mask in {"causal": causal, "causal & own": causal & own}.items():
    far = (attend(flat, attn_mask=mask) - alone).abs()
    print(f"{name:13} distance from alone: a, b, c", *(f"{part.max():.2f}" for part in far.split(lengths.tolist())))

# %% [markdown]
# ### Positions
#
# Learned positions, added to the tokens, must restart in each document:

# %%
table = torch.randn(10, 4)  # a vector for each position
runs_on = torch.arange(10)
restarts = runs_on - cu_seqlens[ids]
alone = torch.cat([attend(document + table[: len(document)], is_causal=True) for document in documents])
for name, position in {"run on": runs_on, "restart": restarts}.items():
    far = (attend(flat + table[position], attn_mask=causal & own) - alone).abs().max()
    print(f"positions that {name:8} {far:.2f} from alone")

# %% [markdown]
# Rotary positions (RoPE) enter as differences only: behind this mask they may run on.
#
# ### Labels
#
# Each token predicts the next. The last one of a document has no label, or it learns to predict a stranger:

# %%
labels = torch.arange(10).roll(-1)  # the row that comes next
labels[cu_seqlens[1:] - 1] = -100  # which cross_entropy leaves out
print(*labels.tolist(), f"  {(labels >= 0).sum()} targets; without the cuts, 9")

# %% [markdown]
# (Hugging Face's models shift the labels themselves, and want -100 at each *first* token.) The wrong loss may look
# *better*: if all documents begin alike, that token is easy.
#
# ### Work

# %%
ask("most work")

# %%
padded, one_row = pv.draw.Scores([5, 3, 2], strategy="padded"), pv.draw.Scores([5, 3, 2])
print(f"padded: {padded.computed} scores. In one row: {one_row.computed}. Needed: {one_row.needed}.")
one_row

# %% [markdown]
# No padding, and yet more work: a mask given as a tensor only *hides* foreign scores. They are computed all the same.
# (Causal: 45 padded, 55 in one row.)
#
# Padded, B documents of at most T tokens cost B · T² scores. One row of all N tokens costs N²: less only if N < T · √B.
# Here N is 10, and 5 · √3 is 8.7.

# %% tags=["claims"]
assert torch.allclose(cross_document, torch.tensor([0, 0, 0, 0, 0, 5 / 6, 5 / 7, 5 / 8, 8 / 9, 8 / 10]))
assert torch.equal(own, torch.block_diag(*(torch.ones(n, n, dtype=torch.bool) for n in lengths)))
alone = torch.cat([attend(d, is_causal=True) for d in documents])
assert (attend(flat, attn_mask=causal & own) - alone).abs().max() < 1e-5
assert restarts.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 0, 1]
unshifted = torch.arange(10)
unshifted[cu_seqlens[:-1]] = -100  # as Hugging Face's models want it, which shift
assert torch.equal(F.pad(unshifted, (0, 1), value=-100)[1:], labels)
assert labels.tolist() == [1, 2, 3, 4, -100, 6, 7, -100, 9, -100]
assert (padded.computed, one_row.computed, one_row.needed) == (75, 100, 38)
assert pv.draw.Scores([5, 3, 2], strategy="padded", mask="causal").computed == 45
assert pv.draw.Scores([5, 3, 2], mask="causal").computed == 55
assert 3**0.5 * 5 < 10


# %% tags=["claims"]
def learned(x, position):
    return x + table[position]


def rotated(x, position):  # RoPE: pairs of features, turned by an angle that grows with the position
    angle = position[:, None] / torch.tensor([1.0, 10.0])
    return torch.view_as_real(torch.view_as_complex(x.view(-1, 2, 2)) * torch.polar(torch.ones(()), angle)).flatten(1)


def attend_at(position, place, x, **mask):
    q = k = place(x, position)[None]
    return F.scaled_dot_product_attention(q, k, x[None], **mask)[0]


assert torch.allclose(rotated(flat, torch.zeros(10)), flat)


# %% tags=["claims"]
def apart(place, position, mask=causal & own):
    alone = torch.cat([attend_at(runs_on[: len(d)], place, d, is_causal=True) for d in documents])
    return (attend_at(position, place, flat, attn_mask=mask) - alone).abs().max()


assert apart(learned, restarts) < 1e-5 < 1e-2 < apart(learned, runs_on)
assert apart(rotated, restarts) < 1e-5 > apart(rotated, runs_on)
# no mask of documents: RoPE does care
assert min(apart(rotated, position, causal) for position in (restarts, runs_on)) > 1e-2

# %% [markdown]
# ## Filling rows
#
# Between the two: rows of a fixed size, several documents in each. Where does a document go?
#
# - **next-fit**: into the last row, or into a new one,
# - **first-fit decreasing**: the longest first, each into the first row with room,
# - **cut where the row ends**: every row is full, documents are torn (*concatenate and chunk*).
#
# packviz comes with 512 sentences of 2 to 51 words.

# %%
ask("cutting documents")

# %%
from packviz.lessons import sentences

sizes = [len(sentence) for sentence in sentences()]
for strategy in ("next-fit", "first-fit decreasing", "cut where the row ends"):
    filled = pv.draw.Scores(sizes, 64, strategy)
    print(f"{strategy:23} {len(filled.rows)} rows, {filled.cut:3} sentences cut, {filled.computed:,} scores")

# %% [markdown]
# Cutting wins nothing here. Try five documents. Then choose *sentences* as lengths, and make the rows larger: the padding
# vanishes, the foreign scores grow.

# %%
from packviz.explorers import RowExplorer

explorer = RowExplorer([3, 7, 4, 5, 4], row_size=8, strategy="next-fit")
explorer

# %% tags=["claims"]
strategies = {strategy: pv.draw.Scores(sizes, 64, strategy) for strategy in pv.batches.FILLS if strategy != "padded"}
found = [len(strategies[strategy].rows) for strategy in ("next-fit", "first-fit decreasing", "cut where the row ends")]
assert found == [117, 102, 102]
assert (sum(sizes), min(sizes), max(sizes)) == (6474, 2, 51)
assert strategies["cut where the row ends"].cut == 93
cross_document = [pv.draw.Scores(sizes, row_size).cross_document for row_size in (64, 128, 256, 512)]
assert cross_document == sorted(cross_document)
assert len(explorer.shown.rows) == 5
assert len(pv.draw.Scores([3, 7, 4, 5, 4], 8).rows) == 3

# %% [markdown]
# ## What it costs here
#
# First counted. FLOPs are multiplications and additions. A transformer layer of width D takes about 24 · D² for a token
# (8 in the projections, 16 in an MLP of 4 · D), and 4 · D for a score. For the sentences, with D = 128:

# %%
D, names = 128, ["padded", "in rows of 64", "in one row"]
found = [pv.draw.Scores(sizes, max(sizes), "padded"), pv.draw.Scores(sizes, 64), pv.draw.Scores(sizes)]
least = 24 * D**2 * sum(sizes) + 4 * D * found[0].needed
times = [(24 * D**2 * len(one.rows) * one.row_size + 4 * D * one.computed) / least for one in found]

title = "Times the work that is needed: " + ", ".join(f"{t:.3g} {name}" for name, t in zip(names, times, strict=True))
needed = round(least)
pv.draw.totals(title, {name: (needed, round(t * least) - needed) for name, t in zip(names, times, strict=True)})

# %% [markdown]
# One row drowns in foreign scores. Rows of 64 are close to what is needed: with sentences this short, mostly because the
# Linear layers compute hardly any padding. And the time, on your machine?

# %%
torch.set_num_threads(1)
texts = [torch.randn(n, D) for n in sizes]
padded, token = pad_sequence(texts, batch_first=True), pv.real_mask(sizes)
rows = pv.batches.fill(sizes, 64)  # for each row, which sentences
filled = pad_sequence([torch.cat([texts[i] for i in row]) for row in rows], batch_first=True)
whose = [torch.cat([torch.full((sizes[i],), i) for i in row]) for row in rows]
whose = pad_sequence(whose, batch_first=True, padding_value=-1)
same = whose[:, :, None] == whose[:, None, :]  # (102, 64, 64)


def heads(x, mask=None):
    q = k = v = x.unflatten(-1, (4, 32)).transpose(-3, -2)  # 4 of them
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


# %%
ask("flat and padded")

# %% tags=["live-timing", "nbval-ignore-output"]
from packviz.bench import measure

linear, tokens = torch.nn.Linear(D, 4 * D), torch.cat(texts)
print(measure({"Linear, padded": lambda: linear(padded), "Linear, flat": lambda: linear(tokens)}))
strategies = {
    "attention, padded": lambda: heads(padded, token[:, None, None]),
    "filled rows": lambda: heads(filled, same[:, None]),
    "a loop": lambda: [heads(text) for text in texts],
}
print(measure(strategies))

# %% [markdown]
# The loop computes what is needed, in 512 small calls. These know documents, and compute little more:
# [FlashAttention](https://github.com/Dao-AILab/flash-attention) and torch's
# [`varlen_attn`](https://docs.pytorch.org/docs/main/nn.attention.varlen.html), on a GPU, take flat rows and `cu_seqlens`;
# [FlexAttention](https://docs.pytorch.org/docs/stable/nn.attention.flex_attention.html), compiled, skips blocks that
# its mask leaves empty. None of them runs on this page.
#
# And an RNN? On flat rows its state runs on into the next document, as you saw, and no mask can stop it. It needs the
# other order: `pv.run(rnn, pad_sequence(documents), lengths)` packs and runs.

# %% tags=["claims"]
assert [round(t, 1) for t in times] == [4.2, 1.1, 9.2]
padded_for_nothing = 24 * D**2 * found[0].padding, 4 * D * found[0].wasted
assert padded_for_nothing[0] > 5 * padded_for_nothing[1]
real_again = heads(padded, token[:, None, None]).transpose(1, 2)[token].flatten(1)
in_rows = heads(filled, same[:, None]).transpose(1, 2).flatten(2)[whose >= 0]
by_document = torch.cat([heads(text).transpose(-3, -2).flatten(-2) for text in texts])
back = torch.cat([in_rows[whose[whose >= 0] == i] for i in range(len(sizes))])
assert torch.allclose(real_again, by_document, atol=1e-5)
assert torch.allclose(back, by_document, atol=1e-5)
alone = pad_sequence([rnn(document)[0] for document in documents])
assert torch.allclose(pv.run(rnn, pad_sequence(documents), lengths)[0], alone, atol=1e-5)

# %% [markdown]
# ## What people get wrong
#
# Four happened above. To find them, change a token that nobody should see, and look who notices:
#
# - **No document mask**, in the belief that an [end mark is enough](https://github.com/huggingface/trl/issues/805).
# - **The last token predicts a stranger**: [9 targets, not 7](https://github.com/pytorch/torchtitan/pull/4075).
# - **A mask the wrong way round**, also [in a book](https://github.com/rasbt/LLMs-from-scratch/issues/1061).
# - **A mask of numbers**, which is added.
#
# And two are made here. `museum.exhibit` prints what torch says of them, why, and the fix.

# %%
ask("offsets without 0")

# %% [markdown]
# ### 1. cu_seqlens without its 0

# %%
from packviz.check import museum

with museum.exhibit("cu_seqlens without its 0") as told:
    nested = told(torch.nested.nested_tensor_from_jagged, flat, torch.tensor([5, 8, 10]))
print("\nthe documents in it have", *nested.offsets().diff().tolist(), "rows")

# %% tags=["claims"]
assert nested.offsets().diff().tolist() == [3, 2]  # a is gone
by_step = torch.nested.nested_tensor_from_jagged(packed, torch.tensor(layout.offsets))  # packing is transposing
assert [len(part) for part in by_step.unbind()] == layout.batch_sizes.tolist()
try:
    pv.Layout.from_offsets([5, 8, 10])
except ValueError:
    pass
else:
    raise AssertionError("offsets without a 0 were taken")

# %% [markdown]
# ### 2. Borders lost on the way
#
# A library without the document ids may read the borders from positions: where one is 0, a document begins.


# %%
def borders(position):
    return [*(position == 0).nonzero().flatten().tolist(), len(position)]


with museum.exhibit("Borders lost on the way") as told:
    found = told(borders, runs_on)
print("\npositions that run on:  ", found, "\npositions that restart: ", borders(restarts))

# %% tags=["claims"]
assert found == [0, 10]
assert borders(restarts) == cu_seqlens.tolist()

# %% [markdown]
# Some more, and `pv.explain` knows others by their error texts:
#
# - **A row that is masked completely** may give [NaN](https://github.com/pytorch/pytorch/issues/103963).
# - **A jagged tensor padded again** is, in torch 2.13,
#   [as wide as all rows together](https://github.com/pytorch/pytorch/issues/159380), unless told `max_seqlen`.
# - **Jagged tensors** are a prototype, [no longer a priority](https://github.com/pytorch/pytorch/issues/155065).

# %% [markdown]
# ## Exercise 1
#
# From a list of lengths make the document ids, one for each flat row: `[2, 1]` gives `[0, 0, 1]`.


# %% tags=["exercise"]
def my_document_ids(lengths):
    # solution
    return torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    # end solution


checks.document_ids(my_document_ids)

# %% [markdown]
# ## Exercise 2
#
# Fill rows by first-fit decreasing. `lengths` is a list, `row_size` the tokens of a row. Return the rows, each a list of
# lengths. `[3, 7, 4, 5, 4]` in rows of 8 gives `[[7], [5, 3], [4, 4]]`.


# %% tags=["exercise"]
def my_rows(lengths, row_size):
    # solution
    rows = []
    for length in sorted(lengths, reverse=True):
        row = next((row for row in rows if sum(row) + length <= row_size), None)
        if row is None:
            rows.append(row := [])
        row.append(length)
    return rows
    # end solution


checks.first_fit_decreasing(my_rows)

# %% [markdown]
# ## You can now
#
# - say what `cu_seqlens` is: where each document begins in flat rows,
# - mask padding, and try what a function means by True,
# - keep documents in one row apart: a mask of blocks, positions that restart, no label at the last token,
# - say when one row is more work than padding: when N > T · √B.
#
# Back: [11 The error museum](11_error_museum.ipynb) · [02 Inside a packed sequence](02_inside_a_packed_sequence.ipynb) ·
# [00 Start here](00_start_here.ipynb)
