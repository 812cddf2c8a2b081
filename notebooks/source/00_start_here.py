# %% [markdown]
# # Start here
#
# **What is in these notebooks, and does your installation work?**
#
# These 16 interactive notebooks are about batches of sequences of different lengths in PyTorch. They show which results
# padding changes, how *packed sequences* prevent this, and how to train faster. You need to know Python and the basics
# of PyTorch. You do not need a GPU.
#
# - **If packing is new to you**, run this page and then read 01 to 06 in order.
# - **If your model is slow**, follow [the steps below](#If-your-model-is-slow). Notebooks 07 to 12 explain them.
# - **If you compile or export a model**, read [13](13_static_graphs.ipynb). If you train transformers, read
#   [14](14_beyond_rnns.ipynb).
# - **If you have an error or a wrong result**, search [15](15_error_museum.ipynb).
#
# After this notebook, you can
#
# - read pictures of padded and packed batches,
# - tell whether your installation works,
# - find the notebook that answers your question.
#
# Time: 15 minutes. To run a cell, press <kbd>Shift</kbd>+<kbd>Enter</kbd>.

# %%
import packviz as pv

pv.show([5, 3, 2], explain=True)  # a batch of three sequences, of 5, 3 and 2 time steps

# %% [markdown]
# A batch goes through a network as one tensor, and a tensor is a rectangle. So **padding** fills every row up to the
# length of the longest. **Packing** keeps only the real data and stores it one time step after another. In the padded
# batch, each row holds a sequence, and a *cell* is one time step of one row: `b2` is the cell of row b at time step 2.
# In the packed `data`, each row holds a single cell, so `data` has 10 rows here. Time steps count from 0.
#
# ## The notebooks
#
# | notebook | the question it answers | time |
# |---|---|---|
# | `00_start_here` | What is in these notebooks, and does your installation work? | 15 min |
# | [`01_why_pack`](01_why_pack.ipynb) | What does padding waste, and which results does it change? | 17 min |
# | [`02_inside_a_packed_sequence`](02_inside_a_packed_sequence.ipynb) | In which order does a `PackedSequence` hold its data, and what is `batch_sizes`? | 20 min |
# | [`03_hidden_states`](03_hidden_states.ipynb) | Which results of an RNN does padding change, and which does it leave alone? | 20 min |
# | [`04_masks_and_losses`](04_masks_and_losses.ipynb) | Which computations read the padding by mistake, and how do you prevent it? | 16 min |
# | [`05_alignment`](05_alignment.ipynb) | How do you move padding and states without mixing up sequences? | 16 min |
# | [`06_a_model_of_your_own`](06_a_model_of_your_own.ipynb) | How do you write, train and check a model whose sequences have different lengths? | 20 min |
# | [`07_counting_flops`](07_counting_flops.ipynb) | How much work does packing save, and why is that not the same as time? | 20 min |
# | [`08_benchmark`](08_benchmark.ipynb) | How long do packing and padding take, forward and backward, on your machine? | 18 min |
# | [`09_why_training_is_slow`](09_why_training_is_slow.ipynb) | Training on a packed batch can take many times as long as on a padded one. What takes so long? | 18 min |
# | [`10_making_packing_pay`](10_making_packing_pay.ipynb) | Can a training step be faster than a padded one, and still give the results of packing? | 20 min |
# | [`11_should_you_pack`](11_should_you_pack.ipynb) | Given your lengths and your model, should you pad, pack, or do something better? | 17 min |
# | [`12_several_workers`](12_several_workers.ipynb) | How do several processes share a batch of sequences of different lengths, and still compute the right gradient? | 15 min |
# | [`13_static_graphs`](13_static_graphs.ipynb) | What do compilers and exporters make of a model that packs, and are their results right? | 20 min |
# | [`14_beyond_rnns`](14_beyond_rnns.ipynb) | How do transformers handle texts of different lengths, and what does each way cost? | 20 min |
# | [`15_error_museum`](15_error_museum.ipynb) | You have an error, or a wrong result without one. Which mistake is it, and what do you do? | as you like |
#
# Each notebook has an exercise. Replace the `...` with your answer and run the cell, which then says whether the answer is
# right. The folder `solutions` contains the same notebooks with the exercises solved.
#
# ## Does your installation work?
#
# First make a prediction. Choose an answer and press the button.

# %%
from packviz.lessons import ask, checks

ask("padding gained")

# %% [markdown]
# Now move slider **a** with the mouse, or click it and use the arrow keys. The picture should change. If it does not,
# choose *Run → Run All Cells*. On GitHub, the picture cannot change, because no Python runs there. The README says how to
# install packviz.

# %%
from packviz.panels import PaddingPanel

panel = PaddingPanel([5, 3, 2])
panel

# %% [markdown]
# If a grows to 6 steps, b and c gain one padding cell each, so the batch gains two.
#
# As a last test, compare packviz with torch. Both count the sequences that reach each time step. torch calls these
# counts `batch_sizes`. (A `pv.Layout` holds the lengths of a batch.) If the two lines agree, your installation works.

# %%
import torch
from torch.nn.utils.rnn import pack_sequence

packed = pack_sequence([torch.zeros(n) for n in (5, 3, 2)])
print("torch:  ", packed.batch_sizes.tolist())
print("packviz:", pv.Layout([5, 3, 2]).batch_sizes.tolist())

# %% tags=["claims"]
assert pv.Layout.from_packed(packed) == pv.Layout([5, 3, 2])
assert pv.Layout([6, 3, 2]).n_padding - pv.Layout([5, 3, 2]).n_padding == 2
assert len(pack_sequence([torch.zeros(n) for n in (5, 3, 2)]).data) == 10
assert panel.shown == pv.Layout([5, 3, 2])

# %% [markdown]
# ## Exercise
#
# Find the lengths of a batch that is **exactly half** padding. There are many answers. Give a list such as `[5, 3, 2]`,
# and the check will draw your batch.

# %% tags=["exercise"]
my_lengths = (
    # solution
    [4, 1, 1]
    # end solution
)
checks.half_padding(my_lengths)

# %% [markdown]
# ## If your model is slow
#
# If a model with an RNN trains too slowly, go through these steps in order:
#
# 1. **Save the outputs, the loss and the gradients of one batch**, with dropout set to 0. If your model packs, they must
#    stay the same, up to rounding, in steps 2 and 3. (Do not use eval mode, in which an RNN on a GPU refuses the
#    backward pass.)
# 2. **Use [`pv.run`](10_making_packing_pay.ipynb)** instead of pack → RNN → pad, and compare the results. If your model
#    does not pack, its results may change, because the final states of padded rows [were
#    wrong](01_why_pack.ipynb#Padding-changes-final-states).
# 3. **Call [`pv.advise(rnn, lengths)`](11_should_you_pack.ipynb)** with your own lengths. It times the methods on your
#    machine and recommends one. The result's `.code` is the code to use.
# 4. **Batch [similar lengths](12_several_workers.ipynb#Batches-of-similar-lengths) together**, which leaves less
#    padding.
# 5. **Time a training step again.** If the RNN is now a small part of it, you can stop.
# 6. **Compile only now**, after reading [what can break](13_static_graphs.ipynb).
#
# ## You can now
#
# - read pictures of padded and packed batches,
# - tell whether your installation works, by moving a slider and comparing packviz with torch,
# - find the notebook for your question.
#
# Next: [01 Why pack?](01_why_pack.ipynb)
