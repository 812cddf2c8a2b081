# %% [markdown]
# # Start here
#
# **Is everything working, and what is in these notebooks?**
#
# After this page you can
#
# - tell whether your set-up is alive,
# - read a picture of a padded and of a packed batch,
# - find the notebook that answers your question.
#
# Time: 5 minutes. Run a cell with <kbd>Shift</kbd>+<kbd>Enter</kbd>.

# %%
import packviz as pv

pv.show([5, 3, 2])  # a batch of three sequences, of 5, 3 and 2 steps

# %% [markdown]
# ## How to read it
#
# Three sequences, **a**, **b** and **c**, of 5, 3 and 2 time steps.
#
# - **Left:** padded. Every row is filled up to the longest. The hatched cells are padding.
# - **Right:** packed. The padding is gone. `batch_sizes` counts the sequences that reach each time step.
# - **Below:** the packed cells as they lie in memory.
#
# A cell's name says where it comes from: `b2` is sequence b at time step 2. Time steps count from 0.

# %% [markdown]
# ## Is it alive?
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
# The panel is a Python object too. This cell moves slider a as your mouse would, and checks the prediction.

# %%
before = explorer.shown.n_padding
explorer.picker.sliders[0].value = 6
gained = explorer.shown.n_padding - before
explorer.picker.sliders[0].value = 5
assert gained == 2
print("padding cells gained:", gained)

# %% [markdown]
# Last check: does torch pack the batch as the picture says?

# %%
import torch
from torch.nn.utils.rnn import pack_sequence

packed = pack_sequence([torch.zeros(n) for n in (5, 3, 2)])
assert pv.Layout.from_packed(packed) == pv.Layout([5, 3, 2])
print("torch and packviz agree:", packed.batch_sizes.tolist())

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
# ## All exercises
#
# Each notebook has at least one. Here they are in their order, and which of them you have solved.
# That is kept in one file beside the notebooks and nowhere else. "Forget all" removes it.

# %%
from packviz.lessons import Overview

Overview()

# %% [markdown]
# ## The notebooks
#
# | | question it answers |
# |---|---|
# | 00 start here | *you are here* |
# | [01 why pack](01_why_pack.ipynb) | what padding wastes, and what it corrupts |
# | [02 inside a packed sequence](02_inside_a_packed_sequence.ipynb) | data order, `batch_sizes`, sorting, there and back |
# | [03 counting FLOPs](03_counting_flops.ipynb) | the ledger; and why FLOPs saved is not time saved |
# | [04 hidden states](04_hidden_states.ipynb) | `h_n`, `c_n`, outputs, gradients: padded against packed |
# | [05 masks and alignment](05_masks_and_alignment.ipynb) | masks, losses, pooling, alignment, encoder–decoder |
# | [06 benchmark](06_benchmark.ipynb) | the forum's plots, on your device |
# | [07 why backward is slow](07_why_backward_is_slow.ipynb) | the cause, counted |
# | [08 making packing pay](08_making_packing_pay.ipynb) | exact and faster than both |
# | [09 static graphs](09_static_graphs.ipynb) | tracing, compile, export, ONNX, the Neuron rules |
# | [10 should you pack](10_should_you_pack.ipynb) | measured advice for your lengths and your model |
# | [11 error museum](11_error_museum.ipynb) | every real error, live, with its fix |
#
# New to packing? Take 01, then 02. Solved versions of the exercises are in the folder `solutions`.

# %% [markdown]
# ## You can now
#
# - tell that your set-up is alive: the picture followed your slider,
# - read a padded and a packed batch,
# - find the notebook for your question.
#
# Next: [01 Why pack?](01_why_pack.ipynb)
