# %% [markdown]
# # Start here
#
# **What is here, and is my set-up alive?**
#
# Sequences in a batch differ in length. These pages show what PyTorch does about it, what that costs, and what is faster.
#
# After this page you can
#
# - read a picture of a padded and of a packed batch,
# - tell whether your set-up is alive,
# - find the notebook that answers your question.
#
# Time: 5 minutes. Run a cell with <kbd>Shift</kbd>+<kbd>Enter</kbd>.

# %%
import packviz as pv

pv.show([5, 3, 2], explain=True)  # a batch of three sequences, of 5, 3 and 2 time steps

# %% [markdown]
# A network wants a rectangle. **Padding** fills every row up to the longest one.
# **Packing** keeps the real cells only, and writes them down step by step.
#
# A cell's name says where it comes from: `b2` is sequence b at time step 2. Time steps count from 0.

# %% [markdown]
# ## The notebooks
#
# New to packing? Take 01, then 02. You train transformers? Take 12. You have a slow model and an hour? Go
# [to the end of this page](#An-hour-and-a-slow-model).
#
# | notebook | the question it answers | time |
# |---|---|---|
# | `00_start_here` | What is here, and is my set-up alive? | 5 min |
# | [`01_why_pack`](01_why_pack.ipynb) | What does padding waste, and what does it corrupt? | 12 min |
# | [`02_inside_a_packed_sequence`](02_inside_a_packed_sequence.ipynb) | How does a `PackedSequence` order its data, and what is `batch_sizes`? | 20 min |
# | [`03_counting_flops`](03_counting_flops.ipynb) | How much work does packing save, and why is that not time saved? | 20 min |
# | [`04_hidden_states`](04_hidden_states.ipynb) | Which results of an RNN does padding change, and which not? | 20 min |
# | [`05_masks_and_alignment`](05_masks_and_alignment.ipynb) | Which computations read the padding by mistake, and how do you stop them? | 20 min |
# | [`06_benchmark`](06_benchmark.ipynb) | How long do packing and unpacking take, forward and backward, on your machine? | 15 min |
# | [`07_why_backward_is_slow`](07_why_backward_is_slow.ipynb) | Training on a packed batch can take many times as long as on a padded one. What takes so long? | 20 min |
# | [`08_making_packing_pay`](08_making_packing_pay.ipynb) | Can a step of training be faster than padded, with the results of packing? | 20 min |
# | [`09_static_graphs`](09_static_graphs.ipynb) | What does a compiler make of a packed sequence? | 20 min |
# | [`10_should_you_pack`](10_should_you_pack.ipynb) | With your lengths and your model: pad, pack, or something better? | 15 min |
# | [`11_error_museum`](11_error_museum.ipynb) | You have an error, or a wrong result without one. Which mistake is it, and what do you do? | as you like |
# | [`12_beyond_rnns`](12_beyond_rnns.ipynb) | Transformers on texts of different lengths: where do the tokens lie, who may see whom, and what does it cost? | 20 min |
#
# Every page has exercises that check themselves. The folder `solutions` holds the same pages with the exercises solved.

# %% [markdown]
# ## Is your set-up alive?
#
# First predict. You can change your mind until you press the button.

# %%
from packviz.lessons import ask, checks

ask("padding gained")

# %% [markdown]
# Now try it. Move slider **a**: with the mouse, or click it and press the arrow keys. The picture follows.
#
# If it does not move, choose *Run → Run All Cells*. A web page such as GitHub shows only a still image.

# %%
from packviz.explorers import PaddingExplorer

explorer = PaddingExplorer([5, 3, 2])
explorer

# %% [markdown]
# Last check: does torch pack the batch as the picture says? `pv.Layout` is what a picture is drawn from: lengths, and
# what follows from them.

# %%
import torch
from torch.nn.utils.rnn import pack_sequence

packed = pack_sequence([torch.zeros(n) for n in (5, 3, 2)])
print("torch:  ", packed.batch_sizes.tolist())
print("packviz:", pv.Layout([5, 3, 2]).batch_sizes.tolist())

# %% tags=["claims"]
assert pv.Layout.from_packed(packed) == pv.Layout([5, 3, 2])
assert pv.Layout([6, 3, 2]).n_padding - pv.Layout([5, 3, 2]).n_padding == 2
assert explorer.shown == pv.Layout([5, 3, 2])

# %% [markdown]
# ## Exercise
#
# Find the lengths of a batch of which **exactly half** is padding. There are many.
#
# Replace the `...` with a list such as `[5, 3, 2]`. The check draws your batch.

# %% tags=["exercise"]
my_lengths = (
    # solution
    [4, 1, 1]
    # end solution
)
checks.half_padding(my_lengths)

# %% [markdown]
# ## An hour and a slow model
#
# Your model with an RNN trains too slowly? In this order:
#
# 1. **Keep** the outputs and gradients of one batch, with dropout at 0: they must stay equal. (Not in eval mode: on a
#    GPU an RNN then has no backward pass.)
# 2. **Use [`pv.run`](08_making_packing_pay.ipynb)** in place of pack → RNN → pad, and compare. Had you only padded, final
#    states change: [they were wrong](01_why_pack.ipynb#What-padding-corrupts).
# 3. **Ask [`pv.advise(rnn, lengths)`](10_should_you_pack.ipynb)** with your own lengths. It measures on your machine, and
#    prints the code to paste.
# 4. **Bucket**: batches of [similar lengths](10_should_you_pack.ipynb#Batches-of-similar-lengths) leave less padding to
#    avoid.
# 5. **Time a whole step again.** If the RNN is a small part of it now, stop here.
# 6. **Only then compile**, and read [what breaks](09_static_graphs.ipynb) first.

# %% [markdown]
# ## You can now
#
# - read a padded and a packed batch,
# - tell that your set-up is alive: the picture followed your slider,
# - find the notebook for your question.
#
# Next: [01 Why pack?](01_why_pack.ipynb)
