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
# Time: 15 minutes.

# %% [markdown]
# ## Two sequences
#
# Five steps of `[1, 1] … [5, 5]`, and two steps of `[10, 10]` and `[20, 20]`.
# Padded, an RNN computes 10 steps. Packed, it computes 7.

# %%
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

import packviz as pv
from packviz.lessons import ask, checks

a = torch.tensor([[1.0, 1], [2, 2], [3, 3], [4, 4], [5, 5]])
b = torch.tensor([[10.0, 10], [20, 20]])
x, lengths = pad_sequence([a, b], batch_first=True), [5, 2]

packed = pack_padded_sequence(x, lengths, batch_first=True)
assert packed.data[:, 0].tolist() == [1, 10, 2, 20, 3, 4, 5]
assert packed.batch_sizes.tolist() == [2, 2, 1, 1, 1]
assert (x[..., 0].numel(), len(packed.data)) == (10, 7)
pv.show(x[..., 0], lengths, batch_first=True)

# %% [markdown]
# Now run an LSTM on both. Row a has no padding. Row b has three padding steps. Predict what differs.

# %%
ask("what padding changes")

# %%
torch.manual_seed(0)
lstm = torch.nn.LSTM(input_size=2, hidden_size=3, batch_first=True)
output, (h_n, c_n) = lstm(x)
packed_output, (packed_h_n, packed_c_n) = lstm(packed)
unpacked, _ = pad_packed_sequence(packed_output, batch_first=True)

assert torch.allclose(output[0], unpacked[0], atol=1e-6)  # the outputs at the real steps: equal
assert torch.allclose(output[1, :2], unpacked[1, :2], atol=1e-6)
assert unpacked[1, 2:].eq(0).all()  # after them: zeros, where padded goes on
assert output[1, 2:].ne(0).all()
for padded_state, packed_state in ((h_n, packed_h_n), (c_n, packed_c_n)):
    assert torch.allclose(padded_state[0, 0], packed_state[0, 0], atol=1e-6)  # row a: equal
    assert not torch.allclose(padded_state[0, 1], packed_state[0, 1], atol=0.1)  # row b: not

# %% [markdown]
# `pv.compare` does this for any RNN and any batch, and draws it. It takes your own module, too.

# %%
comparison = pv.compare(lstm, x, lengths)
assert comparison.agrees["outputs at valid steps"]
assert not comparison.agrees["h_n"]
assert not comparison.agrees["c_n"]
comparison

# %% [markdown]
# A number is the difference between padded and packed; `=` means none but rounding. Hatched cells are padding.
#
# Look at the two gradients. A loss on the outputs at real steps has right gradients, padded.
# A loss on `h_n` has wrong ones.

# %% [markdown]
# ## Through the padding
#
# Why? An RNN does not know what padding is. It reads three steps of zeros, and its state moves on.
# `h_n` is what it has at the very end.

# %%
path = comparison.trajectory()
row_b = path.curves[1]
assert row_b.packed[1:] == [row_b.packed[1]] * 4  # frozen
assert abs(row_b.padded[4] - row_b.packed[4]) > 0.1
path

# %% [markdown]
# ## Try it
#
# - Set *padding* to **NaN**. Which outputs are still right?
# - Add *layers*. Does anything at the real steps break?
# - Tick **bidirectional**. Look for lit cells with a bold number among the outputs.

# %%
from packviz.explorers import StatesExplorer

explorer = StatesExplorer([8, 5, 3])
explorer

# %% [markdown]
# The same from code. With one direction, the outputs at real steps survive anything.

# %%
for padding in ("zeros", "noise", "NaN"):
    for layers in (1, 2, 3):
        explorer.padding.value, explorer.layers.value = padding, layers
        assert explorer.result.agrees["outputs at valid steps"]
        assert not explorer.result.agrees["h_n"]
explorer.padding.value, explorer.layers.value = "zeros", 1
print("one direction: outputs at real steps right in all 9 cases, h_n in none")

# %% [markdown]
# ## Both directions
#
# A bidirectional RNN also reads from the last time step to the first. `output` has two halves: forward and reverse.
# Our batch now has lengths 9, 5 and 2.

# %%
ask("reverse half")

# %%
torch.manual_seed(0)
x = torch.randn(3, 9, 4)
lengths = [9, 5, 2]
for row, length in enumerate(lengths):
    x[row, length:] = 0
bi = torch.nn.LSTM(4, 5, bidirectional=True, batch_first=True)
comparison = pv.compare(bi, x, lengths, gradients=False)
assert comparison.agrees["outputs at valid steps, forward half"]
assert not comparison.agrees["outputs at valid steps, reverse half"]
comparison

# %% [markdown]
# The reverse direction meets the padding **first**, and carries it into the real steps.
# The cells nearest to the padding suffer most.

# %%
last = [n - 1 for n in lengths]
error = comparison.outputs.relative[range(3), last, 1]
assert error[0] < 1e-5
assert (error[1:] > 0.3).all()
print(f"reverse half at the last real step, relative error: b {error[1]:.2g}, c {error[2]:.2g}")
comparison.trajectory("reverse")

# %% [markdown]
# Two layers are worse: the second layer reads both halves of the first, so its forward half is wrong as well.

# %%
two_layers = torch.nn.LSTM(4, 5, num_layers=2, bidirectional=True, batch_first=True)
comparison = pv.compare(two_layers, x, lengths, gradients=False)
assert not comparison.agrees["outputs at valid steps, forward half"]
assert not comparison.agrees["outputs at valid steps, reverse half"]
print(comparison.verdict)

# %% [markdown]
# ## The whole truth
#
# Every case at once, computed now: each result is compared with running each sequence alone.
#
# `gather len-1` reads `output` at each sequence's last real step. `output[:, 0]` is where the reverse half ends.

# %%
from packviz.check.truth import truth_table

table = truth_table("LSTM")
assert all(False not in answer.right.values() for answer in table.answers if answer.method == "packed")
for directions, layers, right in ((1, 1, True), (1, 2, True), (2, 1, True), (2, 2, False)):
    case = {"directions": directions, "layers": layers}
    assert table.right("outputs, forward", "padded", **case) == right
    assert table.right("gather len-1", "padded", **case) == right
    assert table.right("h_n", "padded", **case) is False
for layers in (1, 2):
    assert table.right("outputs, reverse", "padded", directions=2, layers=layers) is False
    assert table.right("output[:, 0]", "padded", directions=2, layers=layers) is False
table

# %% [markdown]
# So with one direction, any number of layers, and only `output` at real steps in use,
# **you need no packing to be right**.
#
# The damage comes from the biases: they push the state away from zero. Without biases, and with zeros as padding,
# a state that starts at zero stays there.

# %%
table = truth_table("LSTM", bias=False)
assert table.right("outputs, reverse", "padded", directions=2, layers=1)
assert table.right("outputs, forward", "padded", directions=2, layers=2)
assert not table.right("outputs, reverse", "padded", directions=2, layers=2)
print("no biases: 1 layer exact; 2 layers: only the reverse half is wrong")

# %% [markdown]
# ## NaN in the padding
#
# Some pipelines leave NaN where nothing was measured. The loss below looks at real steps only, and is a fine number.
# What about its gradients?

# %%
ask("NaN in the padding")

# %%
x = pad_sequence([a, b], batch_first=True, padding_value=float("nan"))
mask = pv.padding_mask([5, 2])


def gradient(pack):
    lstm.zero_grad()
    packed = pack_padded_sequence(x, [5, 2], batch_first=True)
    real_steps = lstm(packed)[0].data if pack else lstm(x)[0][mask]
    real_steps.sum().backward()
    return torch.cat([weight.grad.flatten() for weight in lstm.parameters()])


assert gradient(pack=False).isnan().all()
assert gradient(pack=True).isfinite().all()
print("padded: every weight's gradient is NaN. packed: none is")

# %% [markdown]
# Backward multiplies the zero gradient of a padding step with the NaN in it, and zero times NaN is NaN.
# One step of the optimiser, and every weight is NaN. Fill the padding with zeros, or pack.

# %%
comparison = pv.compare(lstm, x, [5, 2])
assert comparison.agrees["outputs at valid steps"]
assert not comparison.agrees["gradient to weights, loss on outputs"]
comparison

# %% [markdown]
# ## Dropout
#
# Between layers, dropout draws random numbers: one per unit of each *computed* cell. Packed has fewer cells,
# so the same seed drops other units. Compare in eval mode (`pv.compare` does).

# %%
torch.manual_seed(0)
dropping = torch.nn.LSTM(4, 5, num_layers=2, dropout=0.5, batch_first=True)
x, lengths = torch.randn(2, 6, 4), [6, 3]


def outputs(pack):
    torch.manual_seed(1)
    result = dropping(pack_padded_sequence(x, lengths, batch_first=True) if pack else x)[0]
    return (pad_packed_sequence(result, batch_first=True)[0] if pack else result)[pv.padding_mask(lengths)]


assert torch.equal(outputs(pack=False), outputs(pack=False))
assert (outputs(pack=False) - outputs(pack=True)).abs().max() > 0.01
dropping.eval()
assert torch.allclose(outputs(pack=False), outputs(pack=True), atol=1e-6)
print("same seed, training: padded and packed differ. eval mode: equal")

# %% [markdown]
# ## Right without packing: gather
#
# One direction: read `output` at each sequence's own last step.
#
# That is the **last layer's** `h_n` and nothing else: `output` holds no `c`, and no lower layer.

# %%
output, (h_n, c_n) = dropping(x)  # padded
gathered = output[torch.arange(2), torch.tensor(lengths) - 1]
_, (packed_h_n, packed_c_n) = dropping(pack_padded_sequence(x, lengths, batch_first=True))
assert torch.allclose(gathered, packed_h_n[1], atol=1e-6)
assert not torch.allclose(gathered, packed_h_n[0], atol=0.01)
assert not torch.allclose(gathered, packed_c_n[1], atol=0.01)
print("gathered = h_n of layer 1; neither h_n of layer 0 nor c_n")

# %% [markdown]
# ## Right without packing: flip
#
# For the reverse direction, flip each sequence **within its length**, so that its padding stays at the end.
# Run a forward RNN with the reverse weights, and flip back. Several layers: flip in each.


# %%
def flip(x, lengths):
    return pv.align(x, lengths, to="right", batch_first=True).flip(1)


x, lengths = torch.randn(3, 9, 4), [9, 5, 2]
forward, reverse = (torch.nn.LSTM(4, 5, batch_first=True) for _ in range(2))
weights = bi.state_dict()
forward.load_state_dict({k: w for k, w in weights.items() if not k.endswith("_reverse")})
reverse.load_state_dict({k.removesuffix("_reverse"): w for k, w in weights.items() if k.endswith("_reverse")})
both = torch.cat([forward(x)[0], flip(reverse(flip(x, lengths))[0], lengths)], dim=-1)

packed_output, _ = bi(pack_padded_sequence(x, lengths, batch_first=True))
expected, _ = pad_packed_sequence(packed_output, batch_first=True)
mask = pv.padding_mask(lengths)
assert torch.allclose(both[mask], expected[mask], atol=1e-6)
print("both halves right, without packing")

# %% [markdown]
# ## What people get wrong
#
# - **"Padding does not lead to inaccurate representations."** True at real steps in one direction. False for the
#   reverse half, for both halves with two bidirectional layers, and for `h_n` and `c_n` of every row with padding.
# - **"The last output is the final state."** `output[:, -1]` is padding for all but the longest.
# - **"`output` at len−1 holds both final states."** Its reverse half has seen one step only. The reverse
#   direction ends at step 0.

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
# - say what is wrong on a padded batch: always `h_n` and `c_n`, and what depends on them,
# - explain why: the RNN reads on through the padding,
# - spot the wrong outputs of a bidirectional RNN: the reverse half, and with more layers everything,
# - gather or flip, where you do not want to pack.
#
# Next: [05 Masks and alignment](05_masks_and_alignment.ipynb). Back:
# [03 Counting FLOPs](03_counting_flops.ipynb) · [00 Start here](00_start_here.ipynb)
