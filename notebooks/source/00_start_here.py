# %% [markdown]
# # Start here
#
# **What is in these notebooks, and does your installation work?**
#
# Three sentences, of 5, 3 and 2 words, go into your model, and it works on 15 words. Who wrote the other five? The
# answer fits on this page. What follows from it fills the other pages: results that are wrong without a warning,
# training steps that take many times as long as they should, and exported models that are right for one set of
# lengths only.
#
# After this page, you can read our pictures, tell whether your installation works, and choose the notebook to read
# next. You need to know Python and the basics of PyTorch. You do not need a GPU.
#
# Time: 10 minutes. To run a cell, press <kbd>Shift</kbd>+<kbd>Enter</kbd>.
#
# ## Who wrote the other five?
#
# In these notebooks, we ask first and explain afterwards. A wrong guess costs nothing. So before the answer, a hint in
# the form of a question:

# %%
import packviz as pv
from packviz.lessons import ask, checks

ask("padding gained")

# %% [markdown]
# Now look. A batch of sentences goes through a model as one tensor, and a tensor is a rectangle. So every row is filled
# up to the length of the longest, with *padding*, which we hatch. Drag the end of row a from 5 to 6 steps. (The arrow
# keys move it, too, once it has the focus.)

# %%
from packviz.panels import BatchPanel

panel = BatchPanel([5, 3, 2])
panel

# %% [markdown]
# So who wrote the other five words of our three sentences? Nobody. They are padding. (A *cell* is one time step of
# one row: `b2` is the cell of row b at step 2, and we count steps from 0.) And when row a grows by one word, rows b
# and c gain one padding cell each. The longest row decides for all the others.
#
# *Packing* is the way out: press *Pack it*. Only the *real* cells, those that hold a word, are left. They lie in a
# tensor that PyTorch calls `data`, and beside it are a few numbers, `batch_sizes`. Notebook 02 explains both.
#
# But so far, you have only seen us draw. Is this how torch packs, on your machine as well?
#
# ## Does your installation work?
#
# If the picture moved, half of your installation works. (If not, choose *Run → Run All Cells*. On GitHub, nothing can
# move, because GitHub only shows the stored outputs. The README says how to install packviz.) For the other half, we
# let torch pack a batch, and compare its `batch_sizes` with those of packviz. A `pv.Layout` holds the lengths of a
# batch, and all that follows from them.

# %%
import torch
from torch.nn.utils.rnn import pack_sequence

packed = pack_sequence([torch.zeros(n) for n in (5, 3, 2)])
print("torch:  ", packed.batch_sizes.tolist())
print("packviz:", pv.Layout([5, 3, 2]).batch_sizes.tolist())

# %% [markdown]
# If the two lines agree, your installation works. What do you want to know?

# %% tags=["claims"]
assert pv.Layout.from_packed(packed) == pv.Layout([5, 3, 2])
assert pv.Layout([6, 3, 2]).n_padding - pv.Layout([5, 3, 2]).n_padding == 2
assert pv.Layout([5, 3, 2]).n_cells == 15
assert len(packed.data) == 10
assert panel.layout == pv.Layout([5, 3, 2])

# %% [markdown]
# ## Which notebook is for you?
#
# - **If packing is new to you**, read 01 to 06 in order.
# - **If your model is slow**, follow [the steps below](#If-your-model-is-slow). Notebooks 07 to 13 explain them.
# - **If you compile or export a model**, read [13](13_static_graphs.ipynb). If you train transformers, read
#   [14](14_beyond_rnns.ipynb).
# - **If you get an error or a wrong result**, search [15](15_error_museum.ipynb).
#
# | notebook | the question it answers | time |
# |---|---|---|
# | `00_start_here` | What is in these notebooks, and does your installation work? | 10 min |
# | [`01_why_pack`](01_why_pack.ipynb) | Padding costs time. Is that all it costs? | 20 min |
# | [`02_inside_a_packed_sequence`](02_inside_a_packed_sequence.ipynb) | In which order does a `PackedSequence` hold its data, and what is `batch_sizes`? | 20 min |
# | [`03_hidden_states`](03_hidden_states.ipynb) | Which results of an RNN does padding change, and which does it leave alone? | 20 min |
# | [`04_masks_and_losses`](04_masks_and_losses.ipynb) | Which computations read the padding by mistake, and how do you prevent it? | 20 min |
# | [`05_alignment`](05_alignment.ipynb) | How do padding and states get where they belong? | 20 min |
# | [`06_a_model_of_your_own`](06_a_model_of_your_own.ipynb) | How do ten lines become a model that trains, and how do you check it? | 20 min |
# | [`07_counting_flops`](07_counting_flops.ipynb) | How much work does packing save, and does the clock agree? | 20 min |
# | [`08_benchmark`](08_benchmark.ipynb) | How long do packing and padding take, forward and backward, on your machine? | 20 min |
# | [`09_why_training_is_slow`](09_why_training_is_slow.ipynb) | Training on a packed batch can take many times as long as on a padded one. What takes so long? | 20 min |
# | [`10_making_packing_pay`](10_making_packing_pay.ipynb) | Can a training step be faster than a padded one, and still give the results of packing? | 20 min |
# | [`11_should_you_pack`](11_should_you_pack.ipynb) | Given your lengths and your model, should you pad, pack, or do something better? | 20 min |
# | [`12_several_workers`](12_several_workers.ipynb) | How do several processes share a batch of sequences of different lengths, and still compute the right gradient? | 15 min |
# | [`13_static_graphs`](13_static_graphs.ipynb) | What do compilers and exporters make of a model that packs, and are their results right? | 20 min |
# | [`14_beyond_rnns`](14_beyond_rnns.ipynb) | How do transformers handle texts of different lengths, and what does each way cost? | 20 min |
# | [`15_error_museum`](15_error_museum.ipynb) | You have an error, or a wrong result without one. Which mistake is it, and what do you do? | as you like |
#
# The times include each notebook's exercise. Replace its `...` with your answer and run the cell, which then checks it.
# The folder `solutions` contains the same notebooks with the exercises solved.
#
# ## Exercise
#
# Find the lengths of a batch that is **exactly half** padding. There are many answers. Give a list such as `[5, 3, 2]`,
# and the check will draw your batch. (The panel above may help.)

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
# (If packing is new to you, skip this list.) If a model with an RNN trains too slowly, go through these steps in order:
#
# 1. **Save the outputs, the loss and the gradients of one batch**, with dropout set to 0. If your model packs, they
#    must stay the same, up to rounding, in steps 2 and 3. (Do not use eval mode, in which the RNNs of cuDNN, on a
#    GPU, refuse the backward pass.)
# 2. **Use [`pv.run`](10_making_packing_pay.ipynb)** instead of pack → RNN → pad, and compare the results. If your model
#    has not packed so far, its results may change: the final states of its padded rows, for example, [were
#    wrong](01_why_pack.ipynb#Who-changed-the-review?).
# 3. **Call [`pv.advise(rnn, lengths)`](11_should_you_pack.ipynb)** with your own lengths. It times the methods on your
#    machine and recommends one. The result's `.code` is the code to use.
# 4. **Batch [similar lengths](12_several_workers.ipynb#Can-a-batch-be-easy-to-share?) together**, which leaves less
#    padding.
# 5. **Time a training step**, and the RNN by itself. If the RNN is now a small part of the step, you can stop.
# 6. **Compile only now**, after reading [what can break](13_static_graphs.ipynb).
#
# ## You can now
#
# read a picture of a padded batch, check an installation against torch, and find the notebook for your question.
#
# Nobody wrote those five words. But the model has read them. Does it matter?
#
# Next: [01 Why pack?](01_why_pack.ipynb)
