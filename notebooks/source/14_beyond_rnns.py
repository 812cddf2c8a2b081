# %% [markdown]
# # Beyond RNNs
#
# **How do transformers handle texts of different lengths, and what does each way cost?**
#
# After this notebook, you can
#
# - say what `cu_seqlens` is, and which layers need it,
# - mask padding in attention, and find out what True means in a mask,
# - put several documents into one row without mixing them,
# - compare the work of attention on padded rows and on one long row.
#
# Time: 20 minutes. You can start with this page.
#
# ## Ten rows, two orders
#
# Three documents have 5, 3 and 2 tokens. In a padded batch, they fill 15 *cells* (places for a token), of which 5 are
# padding. Without padding, ten rows remain, and two orders of them are useful:
#
# - **Flat rows** hold one document after another: a0 a1 a2 a3 a4, b0 … Attention needs this order, because each token
#   reads its own document.
# - **Packed rows** hold one time step after another: a0 b0 c0, a1 b1 c1, … A recurrent network (RNN) needs this order,
#   because it computes one step of all documents at a time. torch's `PackedSequence` uses it.

# %%
import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_sequence, pad_sequence

import packviz as pv
from packviz.lessons import ask, checks, sentences

ask("rows that stay")

# %% [markdown]
# A model that reads flat rows has to know where each document begins. Usually, you pass this as `cu_seqlens`, the
# *cumulative sequence lengths*. It starts with 0 and ends with the number of rows:

# %%
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
# ## Which layers need the boundaries?

# %%
ask("who wants which order")

# %%
torch.manual_seed(0)
documents = [torch.randn(n, 4) for n in lengths.tolist()]  # 4 features per token
flat = torch.cat(documents)
linear, rnn, convolution = torch.nn.Linear(4, 4), torch.nn.RNN(4, 4), torch.nn.Conv1d(4, 4, 3, padding=1)
layers = {
    "Linear": linear,
    "convolution": lambda x: convolution(x.T).T,
    "RNN": lambda x: rnn(x)[0],
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
}
errors = {"alone": torch.zeros(10)}
for name, layer in layers.items():
    alone = torch.cat([layer(document) for document in documents])
    errors[f"{name}, on flat rows"] = (layer(flat) - alone).abs().amax(1)
pv.draw.Strips(errors, "The numbers show how far a row is from its document alone", rows)

# %% [markdown]
# You can apply Linear layers, LayerNorm, embeddings and a loss to flat rows as they are, because they treat each row
# alone. Attention and convolutions combine rows, so they must know the boundaries. An RNN carries its state across a
# boundary, so torch's RNNs need the packed order. (For linear attention and state-space models, there are *kernels*, or
# computing routines, that take `cu_seqlens` and stop at boundaries.)

# %% tags=["claims"]
wrong = {name.split(",")[0]: (error > 1e-5).nonzero().flatten().tolist() for name, error in errors.items()}
assert wrong["Linear"] == []
assert wrong["convolution"] == [4, 5, 7, 8]  # beside the boundaries
assert wrong["RNN"] == [5, 6, 7, 8, 9]  # after the first document
assert wrong["attention"] == [*range(10)]
norm = torch.nn.LayerNorm(4)
assert torch.equal(norm(flat), torch.cat([norm(document) for document in documents]))
packed = flat[torch.tensor(layout.flat_rows)]
assert torch.equal(packed, pack_sequence(documents).data)
alone = pad_sequence([rnn(document)[0] for document in documents])
assert torch.allclose(pv.run(rnn, pad_sequence(documents), lengths)[0], alone, atol=1e-5)

# %% [markdown]
# ## Padding in attention
#
# In attention, each token, as a *query*, has a *score* with every token, as a *key*. A softmax turns its scores into
# weights, which add up to 100 %. Padding gets some of the weight unless a *mask* leaves it out. If all scores are
# equal, it gets 40 % in b and 60 % in c.

# %%
ask("a mask of numbers")

# %%
real = pv.real_mask(lengths)  # (3, 5), True at real cells
q = k = torch.zeros(3, 5, 4)  # all scores are equal
attention = torch.nn.MultiheadAttention(4, 1, batch_first=True)
masks = {"no mask": None, "1 at padding, a number": (~real).float(), "True at padding": ~real}
weights = {name: attention(q, k, k, key_padding_mask=mask)[1][2] for name, mask in masks.items()}  # those of c
pv.draw.Attention(2, weights, "The weights of each query of c add up to 100 %")

# %% [markdown]
# A mask of numbers is added to the scores, so a 1 at padding multiplies its weight by e ≈ 2.7 before the weights are
# scaled to 100 %. For c, that makes 3e / (2 + 3e) = 80 %. In a mask of True and False, the meaning of True depends on
# the function. To find out, pass `real` as the mask and change the padding. If outputs at real tokens change, they have
# read the padding, so True means *leave out*.

# %%
x = pad_sequence(documents, batch_first=True)
other = x.masked_fill(~real[..., None], 9)  # differs in the padding only
layer = torch.nn.TransformerEncoderLayer(4, 1, 8, dropout=0, batch_first=True)
calls = {
    "scaled_dot_product_attention(attn_mask=)": lambda x: F.scaled_dot_product_attention(x, x, x, real[:, None]),
    "nn.MultiheadAttention(attn_mask=)": lambda x: attention(x, x, x, attn_mask=real[:, None].expand(3, 5, 5))[0],
    "nn.MultiheadAttention(key_padding_mask=)": lambda x: attention(x, x, x, key_padding_mask=real)[0],
    "nn.TransformerEncoderLayer(src_key_padding_mask=)": lambda x: layer(x, src_key_padding_mask=real),
}
for name, call in calls.items():
    changes = not torch.equal(call(x)[2, :2], call(other)[2, :2])
    print(f"{name:50} True means: {'leave out' if changes else 'take part'}")

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
# In Hugging Face's `attention_mask`, 1 means *take part*. In a *causal* model, a token reads only itself and the tokens
# before it, so padding at the end needs no mask, but padding at the start does.
#
# ## Three documents in one row
#
# To avoid padding, you can put several documents into one row. (This is called *packing*, too.) But then tokens of
# other documents may come before a token, and a causal model reads them unless a mask keeps the documents apart:

# %%
ids = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 2, 2])  # *document ids*: which document each row belongs to
causal = torch.ones(10, 10, dtype=torch.bool).tril()
own = ids[:, None] == ids  # (10, 10), True where query and key belong to the same document


def attend(x, **mask):
    q = k = v = x[None]
    return F.scaled_dot_product_attention(q, k, v, **mask)[0]


alone = torch.cat([attend(document, is_causal=True) for document in documents])
for name, mask in {"causal": causal, "causal & own": causal & own}.items():
    differences = (attend(flat, attn_mask=mask) - alone).abs().split(lengths.tolist())
    print(f"{name:13} differs from each document alone by", *(f"{part.max():.2f}" for part in differences))

# %% [markdown]
# **Positions.** If you add an embedding of its position to each token, the positions must restart in every document.
# Otherwise, its results depend on how many tokens precede it in the row.
# With rotary positions (RoPE), only the differences between positions count. So with a document mask, restarting the
# positions changes only the rounding.
#
# **Labels.** Each token predicts the next one. The last token of a document has no next one, so it must get no label:

# %%
positions = torch.arange(10) - cu_seqlens[ids]
labels = torch.arange(10).roll(-1)  # the row that comes next
labels[cu_seqlens[1:] - 1] = -100  # cross_entropy ignores -100
print("positions", positions.tolist())
print("labels   ", labels.tolist())

# %% tags=["claims"]
assert (attend(flat, attn_mask=causal & own) - alone).abs().max() < 1e-5
assert (attend(flat, attn_mask=causal) - alone).abs()[5:].max() > 0.1
assert positions.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 0, 1]
assert labels.tolist() == [1, 2, 3, 4, -100, 6, 7, -100, 9, -100]


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
# ## What it costs
#
# The number of scores grows with the square of a row's length.

# %%
ask("most work")

# %%
pv.draw.Scores([5, 3, 2])

# %% [markdown]
# B padded rows of T tokens have B · T² scores, and one row of N tokens has N². So one row has fewer scores only if N <
# T · √B. Here N is 10, and T · √B is 5 · √3 ≈ 8.7, so it has more.
#
# A mask that you pass as a tensor does not change this, because it only *hides* scores, which are computed all the
# same. To save work, a kernel must know the mask's structure. With `is_causal=True`, it can skip later tokens.
# FlashAttention and torch's [`varlen_attn`](https://docs.pytorch.org/docs/main/nn.attention.varlen.html) take flat rows
# with `cu_seqlens` on a GPU. FlexAttention, once compiled, skips blocks that its mask leaves empty. It also runs on a
# CPU, and its results equal those of each document alone:

# %%
import warnings

from torch.nn.attention.flex_attention import create_block_mask, flex_attention

warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")


def same_document(batch, head, query, key):
    return (ids[query] == ids[key]) & (query >= key)


blocks = create_block_mask(same_document, None, None, 10, 10, device="cpu")
rows = F.pad(flat, (0, 12))[None, None]  # (1, 1, 10, 16): batch, heads, tokens, at least 16 features
by_documents = torch.cat([F.scaled_dot_product_attention(d, d, d, is_causal=True) for d in rows.split([5, 3, 2], 2)], 2)
print("equal:", torch.allclose(flex_attention(rows, rows, rows, block_mask=blocks), by_documents, atol=1e-5))

# %% [markdown]
# How long do 2,048 tokens take on this machine, with and without masks?

# %% tags=["live-timing", "nbval-ignore-output"]
from packviz.measure import measure

torch.set_num_threads(1)
q = torch.randn(1, 4, 2048, 32)
dense = torch.ones(2048, 2048, dtype=torch.bool).tril()
kernels = {"no mask": {}, "a causal mask as a tensor": {"attn_mask": dense}, "is_causal=True": {"is_causal": True}}
print(measure({name: lambda options=options: F.scaled_dot_product_attention(q, q, q, **options)
               for name, options in kernels.items()}))  # fmt: skip

# %% tags=["claims"]
padded, one_row = pv.draw.Scores([5, 3, 2], strategy="padded"), pv.draw.Scores([5, 3, 2])
assert (padded.computed, one_row.computed, one_row.needed) == (75, 100, 38)
assert 3**0.5 * 5 < 10
assert torch.allclose(flex_attention(rows, rows, rows, block_mask=blocks), by_documents, atol=1e-5)

# %% [markdown]
# ## Rows of a fixed size
#
# In practice, each row has room for a fixed number of tokens and is filled with several documents. *First-fit* puts
# each document into the first row with room for it, and *first-fit decreasing* takes the longest documents first. Try
# other strategies. Then choose *sentences* as lengths (512 real ones), and make the rows larger. The padding shrinks,
# but there are more scores between different documents.

# %%
from packviz.panels import RowPanel

panel = RowPanel([3, 7, 4, 5, 4], row_size=8, strategy="first-fit")
panel

# %% tags=["claims"]
sizes = [len(sentence) for sentence in sentences()]
assert len(pv.draw.Scores(sizes, 64, "first-fit decreasing").rows) == 102
assert pv.draw.Scores(sizes, 64, "cut where the row ends").cut == 93
cross_document = [pv.draw.Scores(sizes, row_size).cross_document for row_size in (64, 128, 256, 512)]
assert cross_document == sorted(cross_document)
assert [len(row) for row in panel.shown.rows] == [2, 1, 1, 1]

# %% [markdown]
# ## What people get wrong
#
# To find the first mistake, change a token of another document. To find the third, change the padding. In both cases,
# no output at a real token of your document may change. To find the second, look at the last label of each document.
#
# - **The document mask is missing**, because somebody thought that an [end-of-text token is
#   enough](https://github.com/huggingface/trl/issues/805). That is just one more token to read.
# - **A document's last token has a label**, so it [predicts another
#   document](https://github.com/pytorch/torchtitan/pull/4075).
# - **A mask is the wrong way round**, [even in a book](https://github.com/rasbt/LLMs-from-scratch/issues/1061).
#
# Two more follow. `museum.entry` prints torch's message, the cause and the fix.
#
# ### 1. cu_seqlens without its 0
#
# torch's *jagged* tensors are flat rows with boundaries.

# %%
from packviz.check import museum

with museum.entry("cu_seqlens without its 0") as attempt:
    nested = attempt(torch.nested.nested_tensor_from_jagged, flat, torch.tensor([5, 8, 10]))

# %% tags=["claims"]
assert nested.offsets().diff().tolist() == [3, 2]  # the first document is gone

# %% [markdown]
# ### 2. No boundaries between documents


# %%
def boundaries(positions):
    return [*(positions == 0).nonzero().flatten().tolist(), len(positions)]


with museum.entry("No boundaries between documents") as attempt:
    attempt(boundaries, torch.arange(10))  # read from positions that run on

# %% tags=["claims"]
assert boundaries(torch.arange(10)) == [0, 10]
assert boundaries(positions) == cu_seqlens.tolist()

# %% [markdown]
# ## Exercise
#
# Turn a list of lengths into document ids, one for each flat row. For example, `[2, 1]` gives `[0, 0, 1]`.


# %% tags=["exercise"]
def my_document_ids(lengths):
    # solution
    return torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    # end solution


checks.document_ids(my_document_ids)

# %% [markdown]
# ## You can now
#
# - say what `cu_seqlens` holds: where each document begins in flat rows,
# - mask padding in attention, and find out what a function means by True,
# - keep documents apart in one row, with a mask, restarted positions, and no label at the last token,
# - compare attention on padded rows and on one long row, which has more scores if N > T · √B.
#
# Next: [15 Error museum](15_error_museum.ipynb). Back: [13 Static graphs](13_static_graphs.ipynb) · [00 Start
# here](00_start_here.ipynb)
