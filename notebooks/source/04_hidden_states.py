# %% [markdown]
# # Hidden states
#
# **Which results of an RNN does padding change, and which not?**
#
# After this page you can
#
# - say which of `output`, `h_n`, `c_n` and the gradients are wrong on a padded batch,
# - explain it by following the hidden state through the padding,
# - spot the outputs that a bidirectional RNN gets wrong,
# - get the right ones without packing, where that is possible.
#
# Time: 20 minutes.

# %% [markdown]
# ## Two sequences
#
# Five steps of `[1, 1] … [5, 5]`, and two steps of `[10, 10]` and `[20, 20]`.
#
# `batch_first=True` says that the batch is the first dimension, `(B, T, …)`; without it torch takes `(T, B, …)`.

# %%
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

import packviz as pv
from packviz.lessons import ask, checks

a = torch.tensor([[1.0, 1], [2, 2], [3, 3], [4, 4], [5, 5]])
b = torch.tensor([[10.0, 10], [20, 20]])
x, lengths = pad_sequence([a, b], batch_first=True), [5, 2]
packed = pack_padded_sequence(x, lengths, batch_first=True)
pv.show(x[..., 0], lengths, batch_first=True)  # the first of the 2 features

# %% tags=["claims"]
assert packed.data[:, 0].tolist() == [1, 10, 2, 20, 3, 4, 5]
assert packed.batch_sizes.tolist() == [2, 2, 1, 1, 1]
assert (x[..., 0].numel(), len(packed.data)) == (10, 7)

# %% [markdown]
# Run an LSTM on both. It returns `output`, its hidden state at every time step, and two final states: `h_n`, the
# hidden state, and `c_n`, the *cell state*, the memory behind it. Both are `(layers · directions, B, hidden_size)`.
#
# Row a has no padding. Row b has three steps of it. Predict what differs.

# %%
ask("what padding changes")

# %%
torch.manual_seed(9)
lstm = torch.nn.LSTM(input_size=2, hidden_size=3, batch_first=True)
output, (h_n, c_n) = lstm(x)
packed_output, (packed_h_n, packed_c_n) = lstm(packed)
for name, state in [("padded", h_n), ("packed", packed_h_n)]:
    of_a, of_b = state[0].detach().numpy().round(2)
    print(f"{name}  h_n of a: {of_a}  of b: {of_b}")

# %% tags=["claims"]
unpacked, _ = pad_packed_sequence(packed_output, batch_first=True)
assert torch.allclose(output[0], unpacked[0], atol=1e-6)  # the outputs at the real steps: equal
assert torch.allclose(output[1, :2], unpacked[1, :2], atol=1e-6)
assert unpacked[1, 2:].eq(0).all()  # after them: zeros, where padded goes on
assert output[1, 2:].ne(0).all()
for padded_state, packed_state in ((h_n, packed_h_n), (c_n, packed_c_n)):
    assert torch.allclose(padded_state[0, 0], packed_state[0, 0], atol=1e-6)  # row a: equal
    assert not torch.allclose(padded_state[0, 1], packed_state[0, 1], atol=0.1)  # row b: not

# %% [markdown]
# `pv.compare` compares everything, for any RNN and any batch. It takes your own module, too. In your own tests, ask it
# about one result: `comparison.agrees.outputs`, or `comparison.needs_packing("h_n")`.

# %%
comparison = pv.compare(lstm, x, lengths)
comparison

# %% tags=["claims"]
assert comparison.agrees.outputs
assert comparison.agrees.gradients_outputs
for what in ("h_n", "c_n", "gradients_h_n"):
    assert comparison.needs_packing(what)

# %% [markdown]
# A number is the difference between padded and packed, in percent of the row's largest value; `=` means none but
# rounding. Hatched cells are padding.
#
# Look at the two gradients. Padded, a loss on the outputs at real steps still gives right ones.
# A loss on `h_n` gives wrong ones.

# %% [markdown]
# ## Through the padding
#
# Why? An RNN does not know what padding is. It reads three steps of zeros, and its state moves on. Packed, the state
# of b stays what it was after its last real step. How far does the padded state go from there?

# %%
from packviz.check.trajectories import trajectory

trajectory(comparison)

# %% tags=["claims"]
of_a, of_b = trajectory(comparison).curves
assert not any(of_a.padded)
assert of_b.padded[:2] == [0, 0]
assert min(of_b.padded[2:]) > 0.1

# %% [markdown]
# The dot is where `h_n` is read: at the last step of the *batch*, for every row.
#
# ## Try it
#
# - Set *padding* to **NaN**. Which outputs are still right?
# - Add *layers*. Does anything at the real steps break?

# %%
from packviz.explorers import StatesExplorer

StatesExplorer([8, 5, 3])

# %% [markdown]
# With one direction, the outputs at real steps survive any padding and any number of layers. The `h_n` of a row with
# padding survives none.

# %% tags=["claims"]
for padding in ("zeros", "noise", "NaN"):
    for layers in (1, 2, 3):
        agrees = StatesExplorer([8, 5, 3], padding=padding, layers=layers).result.agrees
        assert agrees.outputs
        assert not agrees.h_n

# %% [markdown]
# ## Both directions
#
# A bidirectional RNN also reads from the last time step to the first. `output` has two halves: forward and reverse.
# Our batch now has lengths 9, 5 and 2.

# %%
ask("reverse half")

# %%
torch.manual_seed(0)
n = [9, 5, 2]
batch = pad_sequence([torch.randn(length, 4) for length in n], batch_first=True)
both = torch.nn.LSTM(4, 5, bidirectional=True, batch_first=True)
comparison = pv.compare(both, batch, n, gradients=False)
comparison

# %% [markdown]
# The reverse direction meets the padding **first**, and carries it into the real steps. Read this one from right to
# left:

# %%
trajectory(comparison, "reverse")

# %% tags=["claims"]
assert comparison.agrees.outputs_forward
assert not comparison.agrees.outputs_reverse
for curve, length in list(zip(trajectory(comparison, "reverse").curves, n, strict=True))[1:]:
    real = curve.padded[:length]
    assert real == sorted(real)  # the nearer to the padding, the worse
    assert real[0] > 0

# %% [markdown]
# The steps nearest to the padding suffer most, and some of it is left at step 0, where this direction's `h_n` is read.
# Tick **bidirectional** in the explorer above: the numbers without a hatch are wrong outputs at real steps.
#
# Two layers are worse: the second one reads both halves of the first. Is its forward half still right?
#
# ## The whole truth
#
# Every case at once, computed now: each result is compared with running each sequence alone. *Forward* and *reverse*
# are the two halves of `output`.
#
# People also look for the final state in `output`: at each sequence's last real step, *len-1*, at the last step of the
# batch, `output[:, -1]`, or at step 0, where the reverse direction ends. Which of these hold the final state?

# %%
from packviz.check.truth import truth_table

truth_table("LSTM")

# %% tags=["claims"]
table = truth_table("LSTM")
no_final_state = {"output at len-1, reverse", "output[:, -1], forward"}  # not even packed
for answer in table.answers:
    if answer.method == "packed":
        wrong = {question for question, right in answer.right.items() if right is False}
        assert wrong == (no_final_state if answer.directions == 2 else no_final_state - {"output at len-1, reverse"})

# %% tags=["claims"]
padded = {(answer.directions, answer.layers): answer.right for answer in table.answers if answer.method == "padded"}
for (directions, layers), right in padded.items():
    assert right["outputs, forward"] == right["output at len-1, forward"] == (directions == 1 or layers == 1)
    assert right["h_n"] is right["c_n"] is right["output[:, -1], forward"] is False
    for question in ("outputs, reverse", "output at len-1, reverse", "output[:, 0], reverse"):
        assert right[question] is (False if directions == 2 else None)
# Without biases, a state of zeros that reads zeros stays where it is.
bare = {(answer.layers, answer.method): answer.right for answer in truth_table("LSTM", bias=False).answers[4:]}
assert bare[1, "padded"]["outputs, reverse"]
assert bare[2, "padded"]["outputs, forward"]
assert not bare[2, "padded"]["outputs, reverse"]

# %% [markdown]
# So with one direction, any number of layers, and only `output` at real steps in use,
# **you need no packing to be right**. With two directions and two layers nothing is right without it.
#
# Two results are not final states even if you pack: `output[:, -1]`, because it is padding for all but the longest, and
# the reverse half at len-1, because that direction has only just begun there.

# %% [markdown]
# ## NaN in the padding
#
# Some pipelines leave NaN where nothing was measured. A loss that looks at real steps only is still finite.
# And its gradients?

# %%
ask("NaN in the padding")

# %%
with_nan = pad_sequence([a, b], batch_first=True, padding_value=float("nan"))
pv.compare(lstm, with_nan, lengths)

# %% tags=["claims"]
comparison = pv.compare(lstm, with_nan, lengths)
assert comparison.agrees.outputs
assert not comparison.agrees.gradients_outputs
for pack in (False, True):
    lstm.zero_grad()
    given = pack_padded_sequence(with_nan, lengths, batch_first=True) if pack else with_nan
    real_steps = lstm(given)[0].data if pack else lstm(given)[0][pv.real_mask(lengths)]
    real_steps.sum().backward()
    gradient = torch.cat([weight.grad.flatten() for weight in lstm.parameters()])
    assert gradient.isfinite().all() if pack else gradient.isnan().all()

# %% [markdown]
# The outputs at real steps are right, and every weight's gradient is NaN: backward multiplies the zero gradient of a
# padding step with the NaN in it, and zero times NaN is NaN. One step of the optimiser, and every weight is NaN. Fill
# the padding with zeros, or pack.

# %% [markdown]
# ## Right without packing: gather
#
# One direction: read `output` at each sequence's own last step. What do you get?

# %%
deep = torch.nn.LSTM(2, 3, num_layers=2, batch_first=True)
output, _ = deep(x)  # padded
gathered = output[torch.arange(2), torch.tensor(lengths) - 1]
_, (h_n, c_n) = deep(packed)
for name, state in [("h_n, last layer", h_n[1]), ("h_n, first layer", h_n[0]), ("c_n, last layer", c_n[1])]:
    print(f"gathered against packed {name:17} at most {(gathered - state).abs().max():.2f} apart")

# %% tags=["claims"]
assert torch.allclose(gathered, h_n[1], atol=1e-6)
assert not torch.allclose(gathered, h_n[0], atol=0.01)
assert not torch.allclose(gathered, c_n[1], atol=0.01)

# %% [markdown]
# The last layer's `h_n`, and nothing else: `output` holds no `c_n`, and no layer below the last.
#
# ## Right without packing: flip
#
# For the reverse direction, flip each sequence **within its length**, so that its padding stays at the end. `pv.align`
# moves the padding to the left. Reversed in time, it is on the right again, and the last step comes first.


# %%
def flip(x, lengths):
    return pv.align(x, lengths, padding_side="left", batch_first=True).flip(1)


pv.draw.Aligned.of(flip(x[..., 0], lengths), lengths, title="Flipped, and the padding still behind", batch_first=True)

# %% [markdown]
# Run a forward RNN with the reverse direction's weights, and flip back. Several layers: flip in each.

# %%
reverse, weights = torch.nn.LSTM(4, 5, batch_first=True), both.state_dict()
reverse.load_state_dict({k.removesuffix("_reverse"): w for k, w in weights.items() if k.endswith("_reverse")})
flipped = flip(reverse(flip(batch, n))[0], n)

output, _ = both(pack_padded_sequence(batch, n, batch_first=True))
wanted = pad_packed_sequence(output, batch_first=True)[0][..., 5:]  # the reverse half
print(f"at real steps at most {(flipped - wanted)[pv.real_mask(n)].abs().max():.2f} apart")

# %% tags=["claims"]
assert torch.allclose(flipped[pv.real_mask(n)], wanted[pv.real_mask(n)], atol=1e-6)

# %% [markdown]
# ## What people get wrong
#
# - **"Padding does not lead to inaccurate representations."** True at real steps in one direction. False for the
#   reverse half, for both halves with two bidirectional layers, and for `h_n` and `c_n` of every row with padding.
# - **"Without biases, zeros do no harm."** Only to a state that *is* zero, such as that of a reverse direction that
#   starts in the padding. A forward state is not zero when it meets the padding, and `h_n` stays wrong.
# - **"The last output is the final state."** `output[:, -1]` is padding for all but the longest.
# - **"`output` at len−1 holds both final states."** Its reverse half has seen one step only. The reverse
#   direction ends at step 0.
# - **"The same seed, so padded and packed must agree in training."** Not with dropout between layers. It draws a
#   number for each *computed* cell, and packed has fewer, so other units are dropped. Compare in eval mode
#   (`pv.compare` does).

# %% tags=["claims"]
dropping = torch.nn.LSTM(2, 3, num_layers=2, dropout=0.5, batch_first=True)


def outputs(pack):
    torch.manual_seed(1)
    result = dropping(packed if pack else x)[0]
    return (pad_packed_sequence(result, batch_first=True)[0] if pack else result)[pv.real_mask(lengths)]


assert torch.equal(outputs(pack=False), outputs(pack=False))
assert (outputs(pack=False) - outputs(pack=True)).abs().max() > 0.01
dropping.eval()
assert torch.allclose(outputs(pack=False), outputs(pack=True), atol=1e-6)

# %% [markdown]
# ## Exercise
#
# `output` is `(B, T, 2·H)`, from a *packed* bidirectional RNN: forward half first. Return the final states of both
# directions, `(B, 2·H)`, forward half first. `lengths` is a list.
#
# The check fills `output` with numbers that say where they come from, so it can show you what you took.


# %% tags=["exercise"]
def my_final_states(output, lengths):
    # solution
    half = output.shape[2] // 2
    last = torch.tensor(lengths) - 1
    forward = output[torch.arange(len(lengths)), last, :half]
    return torch.cat([forward, output[:, 0, half:]], dim=1)
    # end solution


checks.final_states(my_final_states)

# %% [markdown]
# ## You can now
#
# - say what is wrong on a padded batch: `h_n` and `c_n` of every row with padding, and what depends on them,
# - explain why: the RNN reads on through the padding,
# - spot the wrong outputs of a bidirectional RNN: the reverse half, and with more layers everything,
# - gather or flip, where you do not want to pack.
#
# Next: [05 Masks and alignment](05_masks_and_alignment.ipynb). Back:
# [03 Counting FLOPs](03_counting_flops.ipynb) · [00 Start here](00_start_here.ipynb)
