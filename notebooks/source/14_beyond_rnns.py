# %% [markdown]
# # Beyond RNNs
#
# **How do transformers handle texts of different lengths, and what does each way cost?**
#
# You leave recurrent networks (RNNs) behind and train a transformer. It does not go through a row step by step, so it
# needs no packed sequences. You throw the padding out, and put all documents into one long row, and not a single place
# is wasted. Then you change one word of the first document, and the predictions for the *last* one change. Nothing
# failed, and nothing warned you. How does the last document know?
#
# After this page, you can put several documents into one row without mixing them, say what that costs, and find out
# what True means in somebody's mask.
#
# Time: 20 minutes, with the exercise. You can start with this page.
#
# <details><summary>Where we are in the ten lines: <b>packed</b> and <b>mask</b>, for a model without an RNN</summary>
#
# ```text
#   sequences = [torch.tensor([3, 1, 4]), torch.tensor([1, 5, 9, 2, 6]), torch.tensor([5, 3]), torch.tensor([5, 8, 9, 7])]
#   lengths = torch.tensor([len(s) for s in sequences])                        # (4,)       3, 5, 2, 4: on the CPU
#   x = pad_sequence(sequences, batch_first=True)                              # (4, 5)     padded with 0
#   embedded = embedding(x)                                                    # (4, 5, 6)
# → packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)   # data: (14, 6)
#   packed_output, (h_n, c_n) = lstm(packed)                                   # data: (14, 8); h_n: (1, 4, 8)
#   output, _ = pad_packed_sequence(packed_output, batch_first=True)           # (4, 5, 8)
#   scores = linear(output)                                                    # (4, 5, 3)
# → mask = torch.arange(5) < lengths[:, None]                                  # (4, 5)     True at the 14 real cells
#   loss = cross_entropy(scores[mask], tags[mask])                             # ()         then loss.backward()
# ```
#
# </details>
#
# ## Where did the padding go?
#
# Three documents have 5, 3 and 2 tokens. In a padded batch, they take up 15 *cells* (places for a token), of which 5
# are padding. Without padding, ten vectors remain, one for each token. They are the rows of a table, and come in one of
# two orders:
#
# - **Flat rows** hold one document after another: a0 a1 a2 a3 a4, b0 … Most *kernels* (low-level routines) that do
#   without padding take these.
# - **Packed rows** hold one time step after another: a0 b0 c0, a1 b1 c1, … torch's `PackedSequence` uses this order.
#
# Either way, the rows alone do not show where a document begins. So packed rows come with `batch_sizes`, and flat rows
# usually with `cu_seqlens`, the *cumulative sequence lengths*:

# %%
import math

import torch
from torch.nn import functional as F

import packviz as pv
from packviz.lessons import ask, checks

lengths = torch.tensor([5, 3, 2])
cu_seqlens = F.pad(lengths.cumsum(0), (1, 0)).int()
rows = ["a0", "a1", "a2", "a3", "a4", "b0", "b1", "b2", "c0", "c1"]
print("cu_seqlens:", cu_seqlens.tolist())
pv.show(lengths, flat=True)

# %% tags=["claims"]
layout = pv.Layout(lengths)
assert cu_seqlens.tolist() == layout.starts.tolist() == [0, 5, 8, 10]
assert (torch.tensor(layout.flat_rows) == torch.arange(10)).nonzero().flatten().tolist() == [0, 7]  # two rows stay
assert pv.Layout(layout.batch_sizes).batch_sizes.tolist() == [5, 3, 2]  # transposed twice
assert pv.Layout.from_offsets(cu_seqlens) == layout

# %% [markdown]
# The four numbers of `cu_seqlens` are all that is left of the boundaries. Without them, some layers compute the same as
# before. Others go wrong, and say nothing.
#
# ## Which layers need the boundaries?

# %%
ask("who wants which order")

# %%
torch.manual_seed(0)
documents = [torch.randn(n, 4) for n in lengths.tolist()]  # 4 features per token
flat = torch.cat(documents)
linear, rnn = torch.nn.Linear(4, 4), torch.nn.RNN(4, 4)
layers = {
    "Linear": linear,
    "RNN": lambda x: rnn(x)[0],
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
}
errors = {"alone": torch.zeros(10)}
for name, layer in layers.items():
    alone = torch.cat([layer(document) for document in documents])
    errors[f"{name}, on flat rows"] = (layer(flat) - alone).abs().amax(1)
pv.draw.Strips(errors, "On flat rows, attention changes every row, and a Linear layer none", rows)

# %% [markdown]
# Each number under a token is the largest difference between its output here and its output if its document is alone.
# (The last column combines them.) Linear layers, LayerNorm and token embeddings treat each token by itself. Our RNN is
# wrong from the first boundary on. And attention? Ten tokens, ten wrong.
#
# So attention is the one to worry about. Without a mask, it reads padding in a padded batch, and neighbours in a long
# row. Padding first.

# %% tags=["claims"]
from torch.nn.utils.rnn import pack_sequence, pad_sequence

wrong = {name.split(",")[0]: (error > 1e-5).nonzero().flatten().tolist() for name, error in errors.items()}
assert wrong["Linear"] == []
convolution = torch.nn.Conv1d(4, 4, 3, padding=1)
parts = torch.cat([convolution(document.T).T for document in documents])
assert ((convolution(flat.T).T - parts).abs().amax(1) > 1e-5).nonzero().flatten().tolist() == [4, 5, 7, 8]
assert wrong["RNN"] == [5, 6, 7, 8, 9]  # after the first document
assert wrong["attention"] == [*range(10)]
norm = torch.nn.LayerNorm(4)
assert torch.equal(norm(flat), torch.cat([norm(document) for document in documents]))
packed = flat[torch.tensor(layout.flat_rows)]
assert torch.equal(packed, pack_sequence(documents).data)
alone = pad_sequence([rnn(document)[0] for document in documents])
assert torch.allclose(pv.run(rnn, pad_sequence(documents), lengths)[0], alone, atol=1e-5)

# %% [markdown]
# ## How much attention does padding get?
#
# We put the padding back for a moment. In attention, a token is a *query*, and every cell of its row is a *key*. The
# query has a *score* with each key, and a softmax turns these scores into weights, which add up to 100 %. In the row of
# c, 3 of 5 keys are padding. If all scores are equal, c spends 60 % of its attention on nothing.
#
# A *mask* is meant to leave padding out. Ours holds numbers, not True and False.

# %%
ask("a mask of numbers")

# %%
real = pv.real_mask(lengths)  # (3, 5), True at real cells
q = k = torch.zeros(3, 5, 4)  # all scores are equal
attention = torch.nn.MultiheadAttention(4, 1, batch_first=True)
masks = {"no mask": None, "1 at padding, a number": (~real).float(), "True at padding": ~real}
weights = {name: attention(q, k, k, key_padding_mask=mask)[1][2] for name, mask in masks.items()}  # those of c
pv.draw.Attention(2, weights, "A mask of ones draws attention to padding: 80 % instead of 60 %")

# %% [markdown]
# We wanted 0 %, and got 80. That is worse than no mask at all, and nothing complained. torch *adds* a mask of
# floating-point numbers to the scores. So each padding cell now weighs e ≈ 2.7 times as much as a real one:
# 3e / (2 + 3e) = 80 %. (To leave padding out, such a mask needs −∞ there.)
#
# True and False are safer, if you know what True means. Don't guess; ask the function. Pass a `mask` that is True at
# real tokens, change only the padding, and compare the real tokens' outputs. If they differ, the function has read the
# padding. Then do the same with `~mask`. If it reads the padding only with `mask`, which is False at padding, True
# means *leave out*. If it does so only with `~mask`, True means *take part*. Otherwise, it is not the mask that
# decides.

# %%
x = F.pad(documents[2], (0, 0, 0, 3))  # c, with 3 cells of padding
other = F.pad(documents[2], (0, 0, 0, 3), value=9)  # differs in the padding only
mask = real[2].expand(5, 5)  # a row per query, a column per key
calls = {
    "scaled_dot_product_attention": lambda x, mask: F.scaled_dot_product_attention(x, x, x, attn_mask=mask),
    "nn.MultiheadAttention": lambda x, mask: attention(x, x, x, attn_mask=mask)[0],
}

# %%
def reads_padding(call, mask):
    return not torch.equal(call(x, mask)[:2], call(other, mask)[:2])


meanings = {(True, False): "leave out", (False, True): "take part"}  # is padding read with mask, and with ~mask?
for name, call in calls.items():
    meaning = meanings.get((reads_padding(call, mask), reads_padding(call, ~mask)), "unclear")
    print(f"attn_mask of {name:28} True means: {meaning}")

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
layer = torch.nn.TransformerEncoderLayer(4, 1, 8, dropout=0, batch_first=True)
calls["key_padding_mask"] = lambda x, mask: attention(x, x, x, key_padding_mask=mask[0])[0]
calls["src_key_padding_mask"] = lambda x, mask: layer(x, src_key_padding_mask=mask[0])
assert [reads_padding(call, mask) for call in calls.values()] == [False, True, True, True]
causal = [F.scaled_dot_product_attention(rows, rows, rows, is_causal=True)[:2] for rows in (x, other)]
assert torch.equal(*causal)

# %% [markdown]
# Read the two lines again. The same argument has opposite meanings in two functions of one library. Don't learn which
# is which. Learn the test.
#
# That was padding. Our one long row has none, and yet its last document knew.
#
# <details><summary>What True or 1 means in other masks. And if all keys of a query are masked?</summary>
#
# In torch's `key_padding_mask` and `src_key_padding_mask`, True means *leave out*. In Hugging Face's `attention_mask`,
# 1 means *take part*.
#
# In a *causal* model, a token reads only itself and the tokens before it. So no real token reads padding at the end,
# with or without a padding mask. Padding at the start does need one. But with both masks, the queries in the padding
# have no key left at all. For these, on a CPU, torch 2.13 returns NaN from `nn.MultiheadAttention` (with its default
# `need_weights=True`), but 0 from `scaled_dot_product_attention`.
#
# </details>
#
# ## Who reads whom in one row?
#
# Putting several documents into one row of a batch is called *sequence packing*. (The name misleads: the tokens lie in
# flat order.) In a *causal* model, a token reads itself and all tokens before it, even those of other documents. So we
# give each token the number of its document, the *document id*, and let a query read only keys with the same id. Then,
# as in the opening, we change the first word of document a:

# %%
ids = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 2, 2])  # document ids: which document each token belongs to
causal = torch.ones(10, 10, dtype=torch.bool).tril()
own = ids[:, None] == ids  # (10, 10), True where query and key belong to the same document


# %%
def attend(x, **mask):
    return F.scaled_dot_product_attention(x[None], x[None], x[None], **mask)[0]


changed = flat.index_fill(0, torch.tensor([0]), 9.0)  # another a0
for name, mask in {"causal": causal, "causal & own": causal & own}.items():
    differs = (attend(flat, attn_mask=mask) != attend(changed, attn_mask=mask)).any(1)
    print(f"{name:13} changes", *(rows[i] for i in differs.nonzero()))

# %% [markdown]
# There it is. With the causal mask alone, a different first word in document a changes every output of b and c, and
# again nothing complains. With `own` as well, which is called a *document mask*, only document a changes. Each document
# gets the results that it has alone.
#
# Is a mask enough? Not quite. Positions and labels have to know the boundaries, too.
#
# **Positions.** If you add a position embedding to each token, the positions must restart in every document. (For
# rotary positions, see the fold.)
#
# **Labels.** Each token predicts the next one, and after the last token of a document comes a stranger. So the last
# token has nothing to predict: its label is −100, which `cross_entropy` ignores.

# %%
positions = torch.arange(10) - cu_seqlens[ids]
labels = torch.arange(10).roll(-1)  # for each token, the row of the next one
labels[cu_seqlens[1:] - 1] = -100  # the last token of each document
print("positions", positions.tolist())
print("labels   ", labels.tolist())

# %% tags=["claims"]
alone = torch.cat([attend(document, is_causal=True) for document in documents])
assert (attend(flat, attn_mask=causal & own) - alone).abs().max() < 1e-5
assert (attend(flat, attn_mask=causal) - alone).abs()[5:].max() > 0.1
order = torch.tensor(layout.flat_rows)  # attention with an id mask works in packed order, too
assert torch.allclose(
    attend(flat[order], attn_mask=own[order][:, order]), attend(flat, attn_mask=own)[order], atol=1e-6
)
assert positions.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 0, 1]
assert labels.tolist() == [1, 2, 3, 4, -100, 6, 7, -100, 9, -100]
assert [int((part >= 0).sum()) for part in labels.split(lengths.tolist())] == [4, 2, 1]


def learned(x, position):
    torch.manual_seed(1)
    return x + torch.randn(10, 4)[position]


def rotated(x, position):  # RoPE: pairs of features, turned by an angle that grows with the position
    angle = position[:, None] / torch.tensor([1.0, 10.0])
    return torch.view_as_real(torch.view_as_complex(x.view(-1, 2, 2)) * torch.polar(torch.ones(()), angle)).flatten(1)


# %% tags=["claims"]
def from_alone(place, position, mask):
    def at(x, position, **mask):
        q = k = place(x, position)[None]
        return F.scaled_dot_product_attention(q, k, x[None], **mask)[0]

    alone = torch.cat([at(d, torch.arange(len(d)), is_causal=True) for d in documents])
    return (at(flat, position, attn_mask=mask) - alone).abs().max()


runs_on = torch.arange(10)
assert from_alone(learned, positions, causal & own) < 1e-5 < 1e-2 < from_alone(learned, runs_on, causal & own)
assert from_alone(rotated, positions, causal & own) < 1e-5 > from_alone(rotated, runs_on, causal & own)
assert min(from_alone(rotated, position, causal) for position in (positions, runs_on)) > 1e-2

# %% [markdown]
# <details><summary>Rotary positions, Hugging Face's labels, the mean of the losses, and packed rows</summary>
#
# - **Rotary positions.** With plain rotary positions (RoPE), only differences between positions count. So under a
#   document mask, they work without a restart, up to rounding. RoPE that adapts to the row's length does need a
#   restart. If in doubt, restart.
# - **Labels.** Hugging Face's models shift the labels for you, so there the −100 belongs at each document's *first*
#   token. (Some people let an end-of-text token predict the first token of the next document, on purpose.)
# - **The mean.** A mean over tokens and a mean over documents are different losses. In the first, document a counts
#   four times as much as document c, because a has 4 labels, and c has 1. In the second, they count the same. Choose
#   one, and keep it when you put documents into one row. [Notebook 12](12_several_workers.ipynb) shows how easily it
#   gets lost when you split a batch.
# - **Packed rows.** A document mask works on packed rows, too. Only kernels that take `cu_seqlens` need flat ones.
#
# </details>
#
# Now each document is on its own again. That was what padded rows did for us: they kept strangers apart. We gave them
# up to save work.
#
# ## What did one row save?
#
# So far we have counted cells, because an RNN or a Linear layer pays for cells. Attention pays for scores. (We count
# all of them, without a causal mask.)

# %%
ask("most work")

# %%
pv.draw.Scores([5, 3, 2])

# %% [markdown]
# No padding, and a third more scores: B padded rows of T cells have B · T², and one row of N tokens has N². With three
# documents, nobody would notice. And with the 512 sentences of notebook 01, all in one row?

# %%
from packviz.lessons import sentences

sizes = [len(sentence) for sentence in sentences()]
padded, one_row = pv.draw.Scores(sizes, strategy="padded"), pv.draw.Scores(sizes)
print(f"padded {padded.computed:12,} scores\none row{one_row.computed:12,}\nneeded {one_row.needed:12,}")

# %% [markdown]
# We took out all the padding, and attention now has 31 times as much to do as before. Look at the last line, too.
# Only about *one* score in 380 is needed. The other 379 are between sentences that have nothing to say to each other.
#
# But our mask hides those 379. Does it not save us the work of computing them?

# %% tags=["claims"]
assert round(one_row.computed / padded.computed) == 31
assert round(one_row.computed / one_row.needed) == 380
small = pv.draw.Scores([5, 3, 2])
assert (pv.draw.Scores([5, 3, 2], strategy="padded").computed, small.computed, small.needed) == (75, 100, 38)
assert 3**0.5 * 5 < 10

# %% [markdown]
# Let us time a mask in two forms: as a tensor, and as a rule that the kernel knows. `scaled_dot_product_attention`
# knows no rule for documents, but it has one for a causal mask: `is_causal=True`. So we time causal masks, on 2,048
# tokens:

# %% tags=["live-timing", "nbval-ignore-output"]
from packviz.measure import measure

torch.set_num_threads(1)
q = torch.randn(1, 4, 2048, 32)
dense = torch.ones(2048, 2048, dtype=torch.bool).tril()
kernels = {
    "no mask": lambda: F.scaled_dot_product_attention(q, q, q),
    "a causal mask as a tensor": lambda: F.scaled_dot_product_attention(q, q, q, attn_mask=dense),
    "is_causal=True": lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True),
}
timing = measure(kernels)
for name in kernels:
    print(f"{name:27} {1000 * timing.median(name):5.1f} ms")

# %% [markdown]
# As a tensor, the mask saves nothing. It hides half of the scores, but all are computed, and on our CPU the call takes
# more than a quarter *longer*. Only the kernel that knows the structure is faster. <!-- recorded -->
#
# <details><summary>What people use in 2026: kernels that know documents, collators, and other models</summary>
#
# We have run FlexAttention on a CPU, and tested our statements about CPUs and nested tensors. The rest needs a
# GPU, or libraries that we do not install, and comes from the documentation.
#
# - **FlexAttention** builds the mask from a function that compares document ids, and skips the blocks of
#   scores that the mask hides completely:
#
#   ```python
#   from torch.nn.attention.flex_attention import create_block_mask, flex_attention
#
#   def same_document(batch, head, query, key):
#       return (ids[query] == ids[key]) & (query >= key)
#
#   blocks = create_block_mask(same_document, None, None, 10, 10, device="cpu")
#   output = flex_attention(q, k, v, block_mask=blocks)  # (batch, heads, tokens, features): 16 features or more
#   ```
#
#   It skips blocks only under `torch.compile`. In torch 2.13, it has no backward pass on a CPU. The mask depends on
#   `ids`, so call `create_block_mask` for every batch, and compile that call, too. Keep the row's size fixed. With
#   `dynamic=False`, each new size cost us 7 to 8 seconds of compiling on a CPU. Without it, the second size did not
#   compile at all.
# - **torch's [`varlen_attn`](https://docs.pytorch.org/docs/main/nn.attention.varlen.html)** takes flat rows and no
#   mask: `varlen_attn(q, k, v, cu_seq_q, cu_seq_k, max_q, max_k)`, with `q` of shape (tokens, heads, features). In
#   torch 2.13, `window_size=(-1, 0)` makes it causal. On a CPU, `varlen_attn` raises an error.
# - **Hugging Face**: `DataCollatorWithFlattening(return_flash_attn_kwargs=True)` makes one long row of each batch,
#   and passes `cu_seqlens` explicitly. Positions that restart are an unreliable sign of where a document begins.
# - **TRL**: `packing_strategy="bfd"` (best-fit decreasing) keeps a document whole if it fits into a row. It keeps
#   the boundaries, too, for a variable-length kernel. `"wrapped"` cuts wherever a row ends and drops the boundaries,
#   so the documents mix.
# - **State-space models and linear attention** carry a state, as an RNN does. Mamba-2's kernels take `seq_idx`, the
#   document ids, and reset the state where the id changes. A minGRU computes h ← (1 − z) · h + z · h̃. To reset it, set
#   z = 1 at the first token of each document.
# - **Nested tensors** (`torch.nested`) hold flat rows with their boundaries, but torch 2.13's `nn.LSTM` does not take
#   them, and they are no longer actively developed. If [`cu_seqlens` lacks its
#   0](https://github.com/Dao-AILab/flash-attention/issues/880), nested tensors leave out the first document, and say
#   nothing.
#
# </details>
#
# One long row wastes scores, and padded rows waste cells. There is a middle way, if there are enough documents.

# %% tags=["claims"]
import warnings

from torch.nn.attention.flex_attention import create_block_mask, flex_attention

warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
wide = F.pad(flat, (0, 12))[None, None]  # (1, 1, 10, 16): batch, heads, tokens, at least 16 features
apart = [F.scaled_dot_product_attention(d, d, d, is_causal=True) for d in wide.split([5, 3, 2], 2)]


def same_document(batch, head, query, key):
    return (ids[query] == ids[key]) & (query >= key)


blocks = create_block_mask(same_document, None, None, 10, 10, device="cpu")
assert torch.allclose(flex_attention(wide, wide, wide, block_mask=blocks), torch.cat(apart, 2), atol=1e-5)

# %% [markdown]
# ## How full can rows be?
#
# In practice, each row has room for a fixed number of tokens, and holds several documents. *Next-fit* looks only at the
# row it is filling. *First-fit* puts each document into the first row with room for it, and *first-fit decreasing*
# takes the longest documents first. Or you fill each row to the brim, *cut* the document there, and put the rest into
# the next row. Below, first-fit needs 4 rows. Which strategy needs only 3, and cuts no document?

# %%
from packviz.panels import RowPanel

panel = RowPanel([3, 7, 4, 5, 4], row_size=8, strategy="first-fit")
panel

# %% tags=["claims"]
assert len(pv.draw.Scores(sizes, 64, "first-fit decreasing").rows) == 102
assert pv.draw.Scores(sizes, 64, "cut where the row ends").cut == 93
cross_document = [pv.draw.Scores(sizes, row_size).cross_document for row_size in (64, 128, 256, 512)]
assert cross_document == sorted(cross_document)
for row_size in (51, 64, 128, 204):  # with the sentences, next-fit falls behind
    fills = ("next-fit", "first-fit", "first-fit decreasing", "cut where the row ends")
    lazy, *others = (len(pv.draw.Scores(sizes, row_size, fill).rows) for fill in fills)
    assert lazy > max(others) < 1.04 * min(others)
assert [len(row) for row in panel.shown.rows] == [2, 1, 1, 1]
assert len(pv.draw.Scores([3, 7, 4, 5, 4], 8, "first-fit decreasing").rows) == 3
assert len(pv.draw.Scores([3, 7, 4, 5, 4], 8, "next-fit").rows) == 5

# %% [markdown]
# It is first-fit decreasing: 7, then 5 + 3, then 4 + 4. But five documents prove little. So we draw 512 lengths of up
# to 256 tokens, and make each row 256 tokens long. No strategy can manage with fewer rows than the number of tokens
# divided by 256:

# %%
longer = pv.lengths.log_normal(512, 256).tolist()
print(f"at least {math.ceil(sum(longer) / 256)} rows")
for strategy in ("next-fit", "first-fit", "first-fit decreasing", "cut where the row ends"):
    scores = pv.draw.Scores(longer, 256, strategy)
    print(f"{strategy:24}{len(scores.rows)} rows, {scores.cut:3} documents cut")

# %% tags=["claims"]
assert math.ceil(sum(longer) / 256) == len(pv.draw.Scores(longer, 256, "cut where the row ends").rows) == 165
assert len(pv.draw.Scores(longer, 256, "first-fit decreasing").rows) == 166
assert 0.2 < 1 - sum(longer) / (256 * len(pv.draw.Scores(longer, 256, "next-fit").rows)) < 0.25

# %% [markdown]
# First-fit decreasing comes within *one row* of the bound. Here, only cutting reaches it, but at a price: the ends of
# 162 documents are then read without their beginnings. And next-fit? Over a fifth of its cells are padding again.
#
# ## What people get wrong
#
# All of these have been reported: a missing document mask, because an [end-of-text token seemed
# enough](https://github.com/huggingface/trl/issues/805); a last token that [predicts another
# document](https://github.com/pytorch/torchtitan/pull/4075); and a mask the wrong way round, [even in a
# book](https://github.com/rasbt/LLMs-from-scratch/issues/1061).
#
# ## Exercise
#
# Turn `lengths`, a list of whole numbers such as `[2, 1]`, into document ids, one for each flat row: `[0, 0, 1]`.
# Return a list or a tensor.


# %% tags=["exercise"]
def my_document_ids(lengths):
    # solution
    return torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    # end solution


checks.document_ids(my_document_ids)

# %% [markdown]
# ## You can now
#
# put several documents into one row, with a mask, positions and labels that respect their boundaries, and count what it
# costs. And when a mask surprises you, change what it should hide, and look.
#
# None of the mistakes on this page raised an error. So where do you look when something is wrong, and
# you do not know what?
#
# Next: [15 Error museum](15_error_museum.ipynb). Back: [13 Static graphs](13_static_graphs.ipynb) · [00 Start
# here](00_start_here.ipynb)
