# %% [markdown]
# # Hidden states
#
# **Which results of an RNN does padding change, and which does it leave alone?**
#
# After this notebook, you can
#
# - say which of `output`, `h_n`, `c_n` and the gradients are wrong if a batch is padded,
# - explain why, by following a hidden state through the padding,
# - recognise the wrong outputs of a bidirectional RNN,
# - get the right results without packing, where that is possible.
#
# Time: 20 minutes.
#
# ## One batch, padded and packed
#
# Notebook 01 showed that padding changes final states. What about other results? The four sequences a, b, c and d now
# have two random features at each time step, and their padding is on the right.

# %%
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

import packviz as pv
from packviz.lessons import ask, checks

torch.manual_seed(0)
lengths = [3, 5, 2, 4]
sequences = [torch.randn(n, 2) for n in lengths]
x = pad_sequence(sequences, batch_first=True)  # (B, T, features): the batch is the first dimension
packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)

# %% [markdown]
# An LSTM returns three tensors. `output` holds the last layer's hidden state at every time step. `h_n` is the final
# hidden state, and `c_n` is the final *cell state*, the LSTM's second state. Both have the shape (layers · directions,
# B, hidden size).

# %%
ask("what padding changes")

# %%
lstm = torch.nn.LSTM(input_size=2, hidden_size=3, batch_first=True)
_, (padded_h_n, _) = lstm(x)
_, (packed_h_n, _) = lstm(packed)
for row in (1, 2):
    for name, h_n in [("padded", padded_h_n), ("packed", packed_h_n)]:
        print(f"h_n of {'abcd'[row]}, {name}:", h_n[0, row].detach().numpy().round(2))

# %% [markdown]
# `pv.compare` compares all results, for any RNN and any batch.

# %%
comparison = pv.compare(lstm, x, lengths, gradients=False)
comparison

# %% [markdown]
# Each number is the difference between the two runs for the *unit* (the entry of the state) that differs most, as a
# percentage of the largest packed value in its row. For c in `h_n`, this is the second unit, which is 0.10 instead of
# 0.31 (a difference of 69 % before rounding). `=` means that the two differ only by rounding. Hatched cells are padding,
# where `pad_packed_sequence` writes zeros, so the numbers there only say how large the padded outputs are.
#
# The outputs at real steps agree, but the final states of a, c and d do not. All results of b are right, because b is
# the longest sequence and has no padding. By default, `pv.compare` also looks at the gradients of two losses: one on the
# outputs at real steps and one on `h_n`. Which of these gradients agree?

# %%
pv.compare(lstm, x, lengths).agrees

# %% tags=["claims"]
comparison = pv.compare(lstm, x, lengths)
difference = (padded_h_n - packed_h_n)[0, 2].abs()
assert difference.argmax() == 1
assert 0.685 < difference[1] / packed_h_n[0, 2].abs().max() < 0.695
unpacked, _ = pad_packed_sequence(lstm(packed)[0], batch_first=True)
assert torch.allclose(lstm(x)[0][1], unpacked[1], atol=1e-6)
assert not comparison.c_n.differs[..., 1].any()
for row, n in enumerate(lengths):
    assert torch.allclose(lstm(x)[0][row, :n], unpacked[row, :n], atol=1e-6)
    assert unpacked[row, n:].eq(0).all()
    assert torch.allclose(padded_h_n[0, row], packed_h_n[0, row], atol=1e-6) == (n == 5)
assert comparison.agrees.outputs
assert comparison.agrees.gradients_outputs
for what in ("h_n", "c_n", "gradients_h_n"):
    assert comparison.needs_packing(what)

# %% [markdown]
# The gradients of the loss on outputs agree, but those of the loss on `h_n` do not.
#
# ## The state during the padding
#
# After the two steps of c, the padded run reads three steps of zeros as if they were data, and each of them changes the
# state. In the packed run, the state stays as it was. Here is the Euclidean distance between the two states.

# %%
from packviz.check.trajectories import trajectory

trajectory(comparison)

# %% tags=["claims"]
for n, distances in zip(lengths, trajectory(comparison).padded, strict=True):
    assert not any(distances[:n])
    assert all(distances[n:] > 0.01)

# %% [markdown]
# The dot marks where a padded run takes `h_n`: at the last step of the *batch*, for every row.
#
# Now set *padding* to **NaN** and then increase *layers*. Which outputs stay right?

# %%
from packviz.panels import StatesPanel

StatesPanel([8, 5, 3], seed=17)

# %% [markdown]
# If an RNN reads in one *direction*, from the first step to the last, and the padding comes after the data, then its outputs
# at real steps are right, because no real step comes after the padding. This holds for any values in the padding and any
# number of layers.

# %% tags=["claims"]
for padding in ("zeros", "noise", "NaN"):
    for layers in (1, 2, 3):
        agrees = StatesPanel([8, 5, 3], padding=padding, layers=layers).result.agrees
        assert agrees.outputs
        assert not agrees.h_n

# %% [markdown]
# ## Two directions
#
# A bidirectional RNN also reads each row from its last time step to its first. `output` then has two halves, and the
# second half comes from this *reverse* direction.

# %%
ask("reverse half")

# %%
torch.manual_seed(0)
both = torch.nn.LSTM(2, 5, bidirectional=True, batch_first=True)
difference = (both(x)[0] - pad_packed_sequence(both(packed)[0], batch_first=True)[0]).abs()
for row, n in enumerate(lengths):
    forward, reverse = difference[row, :n].split(5, dim=1)
    print(f"{'abcd'[row]}, real steps: differs by up to {forward.max():.2f} forward, {reverse.max():.2f} reverse")

# %%
comparison = pv.compare(both, x, lengths, gradients=False)
comparison

# %% [markdown]
# The reverse direction meets the padding **first** and carries its state from there into the real steps of a, c and d.
# The errors are usually largest next to the padding. This direction ends at step 0, where its output is also its final
# state. So you find the same differences in `h_n` under `0←` (layer 0, reverse).
#
# Go back to the panel [above](#The-state-during-the-padding) and tick **bidirectional**. In the grid of the reverse
# half, a number in an unhatched cell marks a wrong output. With two layers, the forward half is wrong, too, because the
# second layer reads both halves of the first.

# %% tags=["claims"]
assert comparison.agrees.outputs_forward
assert not comparison.agrees.outputs_reverse
reverse_at_0, reverse_h_n = comparison.panels()[1].shares[:, 0], comparison.panels()[2].shares[:, 1]
assert all(abs(reverse_at_0 - reverse_h_n) < 0.001)
assert [row for row, n in enumerate(lengths) if comparison.panels()[1].differs[row, :n].any()] == [0, 2, 3]
two = pv.compare(torch.nn.LSTM(2, 5, num_layers=2, bidirectional=True, batch_first=True), x, lengths, gradients=False)
assert not two.agrees.outputs_forward

# %% [markdown]
# ## All cases at once
#
# The table below compares each result with that of the sequence alone, which is right by definition. People also look
# for the final state in `output`: at each sequence's own last step (*len-1*), at the batch's last step
# (`output[:, -1]`), or at step 0. In the rows *as final state*, such a place is right only if it holds the final state
# of the sequence alone.

# %%
from packviz.check.truth import truth_table

truth_table("LSTM")

# %% tags=["claims"]
table = truth_table("LSTM")
assert torch.allclose(  # packed, the reverse half at len-1 equals that of c alone: it is right, but no final state
    pad_packed_sequence(both(packed)[0], batch_first=True)[0][2, 1], both(x[2:3, :2])[0][0, 1], atol=1e-6
)
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
# So if your RNN has one direction and you use only its outputs at real steps, **they are right without packing**. With
# two directions, you need packing or one of the replacements below.
#
# Two of these places do not hold a final state even if you pack: `output[:, -1]` is padding for all but the longest
# sequences, and at len−1 the reverse direction has read only one step.
#
# ## NaN in the padding
#
# Some data pipelines leave NaN where nothing was measured. If the RNN reads in one direction, a loss on real steps is
# still finite. Are its gradients finite, too?

# %%
ask("NaN in the padding")

# %%
a = torch.tensor([[1.0, 1], [2, 2], [3, 3], [4, 4], [5, 5]])
b = torch.tensor([[10.0, 10], [20, 20]])
with_nan = pad_sequence([a, b], batch_first=True, padding_value=float("nan"))

output, _ = lstm(with_nan)
loss = output[pv.real_mask([5, 2])].sum()
loss.backward()
print(f"loss {loss.item():.2f}, gradient {lstm.weight_hh_l0.grad[0, 0].item()}")

# %% tags=["claims"]
for pack in (False, True):
    lstm.zero_grad()
    batch = pack_padded_sequence(with_nan, [5, 2], batch_first=True) if pack else with_nan
    real_steps = lstm(batch)[0].data if pack else lstm(batch)[0][pv.real_mask([5, 2])]
    real_steps.sum().backward()
    gradient = torch.cat([weight.grad.flatten() for weight in lstm.parameters()])
    assert gradient.isfinite().all() if pack else gradient.isnan().all()
two_rows = pad_sequence([a, b], batch_first=True)
packed_two = pack_padded_sequence(two_rows, [5, 2], batch_first=True)
assert packed_two.data[:, 0].tolist() == [1, 10, 2, 20, 3, 4, 5]
assert packed_two.batch_sizes.tolist() == [2, 2, 1, 1, 1]
assert (two_rows[..., 0].numel(), len(packed_two.data)) == (10, 7)
example = pv.compare(torch.nn.LSTM(2, 3, batch_first=True), two_rows, [5, 2])
assert example.agrees.outputs
assert not example.agrees.h_n

# %% [markdown]
# The gradient at each padding step is zero, but the backward pass multiplies it by the NaN, and 0 · NaN is NaN. After
# one optimiser step, every weight of this LSTM is NaN. So fill the padding with zeros, or pack.
#
# ## Right results without packing
#
# **One direction: gather.** The last layer's final state is in `output`, at each sequence's last step. `output`
# contains neither `c_n` nor the final states of lower layers.

# %%
output, _ = lstm(x)  # padded
gathered = output[torch.arange(4), torch.tensor(lengths) - 1]
print("equal to packed:", torch.allclose(gathered, packed_h_n[0], atol=1e-6))

# %% [markdown]
# **Reverse direction: flip.** Flip each sequence *within its length*, so that its padding stays at the end, run a
# forward RNN with the weights of the reverse direction, and flip the result back. `pv.align` moves the padding to the
# left, and `flip(1)` then reverses the time axis. With several layers, finish both directions of one layer before
# beginning the next, which reads both halves.


# %%
def flip(x, lengths):
    return pv.align(x, lengths, padding_side="left", batch_first=True).flip(1)


reverse, weights = torch.nn.LSTM(2, 5, batch_first=True), both.state_dict()
reverse.load_state_dict({k.removesuffix("_reverse"): w for k, w in weights.items() if k.endswith("_reverse")})
flipped = flip(reverse(flip(x, lengths))[0], lengths)
wanted = pad_packed_sequence(both(packed)[0], batch_first=True)[0][..., 5:]
print("equal to packed:", torch.allclose(flipped[pv.real_mask(lengths)], wanted[pv.real_mask(lengths)], atol=1e-6))

# %% tags=["claims"]
assert torch.allclose(gathered, packed_h_n[0], atol=1e-6)
assert torch.allclose(flipped[pv.real_mask(lengths)], wanted[pv.real_mask(lengths)], atol=1e-6)
deep = torch.nn.LSTM(2, 3, num_layers=2, batch_first=True)
_, (deep_h_n, deep_c_n) = deep(packed)
gathered = deep(x)[0][torch.arange(4), torch.tensor(lengths) - 1]
assert torch.allclose(gathered, deep_h_n[1], atol=1e-6)
assert not torch.allclose(gathered, deep_h_n[0], atol=0.01)
assert not torch.allclose(gathered, deep_c_n[1], atol=0.01)

# %% [markdown]
# ## What people get wrong
#
# - **"Padding does not lead to inaccurate representations."** That holds for outputs at real steps in one direction,
#   and for little else.
# - **"Without biases, padding with zeros does no harm."** A state of zeros then stays zero while the RNN reads zeros.
#   So with one layer and no initial state, the reverse direction is right. But a forward state is rarely zero at the
#   last real step, so the padding still changes it.
# - **"With the same seed, padded and packed training must agree."** Dropout between layers draws a number for every
#   *computed* unit. A packed run computes fewer units, so it drops different ones. Compare without dropout.

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
# `output`, of shape `(B, T, 2 · H)`, comes from a *packed* bidirectional RNN, with the forward half first. Return the
# last layer's final states in both directions, `(B, 2 · H)`, also with the forward half first. `lengths` is a list.


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
# - say what padding changes: `h_n` and `c_n` of every row with padding, and the gradients of a loss on them,
# - explain that a padded run keeps updating the state during the padding,
# - recognise the wrong outputs of a bidirectional RNN: the reverse half, and with more layers both halves,
# - replace packing with a gather or a flip.
#
# Next: [04 Masks and losses](04_masks_and_losses.ipynb). Back: [02 Inside a packed
# sequence](02_inside_a_packed_sequence.ipynb) · [00 Start here](00_start_here.ipynb)
