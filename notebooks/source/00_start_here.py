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

# %%
from packviz.lessons import Overview, ask, checks

Overview()

# %% [markdown]
# What you have solved is kept in one file beside the notebooks; "Forget all" removes it. The folder `solutions` has the
# exercises solved.

# %% [markdown]
# ## Is your set-up alive?
#
# First predict. You can change your mind until you press the button.

# %%
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
