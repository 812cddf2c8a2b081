# %% [markdown]
# # Hidden states
#
# **Which results of an RNN does padding change, and which does it leave alone?**
#
# Your colleague has padded her batches for years, because the web told her: "Padding does not lead to inaccurate
# representations." One of her models says whether a review is positive, and the other tags its words. Both are in
# use. Then she reads notebook 01, packs four old reviews, and runs the classifier again. Two reviews change sides.
# Two of *four*. She reaches for the phone, to have both models switched off. Both? The tagger has read the same
# padding. But is it wrong?
#
# After this page, you can look at any result of a padded batch, say whether to trust it, and get the right one.
#
# Time: 20 minutes, with the exercise.
#
# <details><summary>Where we are in the ten lines: <b>h_n</b> and <b>output</b></summary>
#
# ```text
#   sequences = [torch.tensor([3, 1, 4]), torch.tensor([1, 5, 9, 2, 6]), torch.tensor([5, 3]), torch.tensor([5, 8, 9, 7])]
#   lengths = torch.tensor([len(s) for s in sequences])                        # (4,)       3, 5, 2, 4: on the CPU
#   x = pad_sequence(sequences, batch_first=True)                              # (4, 5)     padded with 0
#   embedded = embedding(x)                                                    # (4, 5, 6)
#   packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)   # data: (14, 6)
# → packed_output, (h_n, c_n) = lstm(packed)                                   # data: (14, 8); h_n: (1, 4, 8)
# → output, _ = pad_packed_sequence(packed_output, batch_first=True)           # (4, 5, 8)
#   scores = linear(output)                                                    # (4, 5, 3)
#   mask = torch.arange(5) < lengths[:, None]                                  # (4, 5)     True at the 14 real cells
#   loss = cross_entropy(scores[mask], tags[mask])                             # ()         then loss.backward()
# ```
#
# </details>
#
# ## Where does the padding get in?
#
# We repeat her experiment with stand-ins: reviews a, b, c and d, of 3, 5, 2 and 4 words. Each word is only two random
# numbers. Her tagger reads `output`, the hidden state at every step. Her classifier reads `h_n`, the final hidden
# state. And `c_n` is the final *cell state*, the LSTM's second state. Where would *you* expect the damage?

# %%
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz.lessons import ask, checks
from packviz.panels import StatePanel

ask("what padding changes")

# %% [markdown]
# Now watch a single number of each row's hidden state. The thick line is the padded run, and the thin line is the
# packed one. Press *Play*, and keep your eye on c.

# %%
panel = StatePanel([3, 5, 2, 4])
panel

# %% [markdown]
# For two steps, the two lines of c are one. Then c's data ends. The thin line stays level, because the packed run has
# stopped there. The thick one does not. To this LSTM, a step of zeros is a word like any other, and moves the state
# again. Then the batch ends. Whatever value a line has at that moment is called `h_n`.
#
# By then, c's thick line stands more than twice as high as its thin one. For a and d, the two lines end on different
# *sides* of zero. A classifier that says *positive* above zero would change its mind about both, but not about c. Two
# of four, again.
#
# So the classifier is wrong: what it says about c depends on b. (Pull *b* longer. Nobody touches c, and yet its final
# state moves.) The *right* state is the one that c has when it is read alone, and packing gives this state. But we have
# watched only one number of `h_n`, and her tagger reads `output`. Is `output` wrong, too?
#
# ## Which results are wrong?
#
# Here is the same LSTM in torch, with the same data. `pv.compare` runs it padded and packed, and shows where the
# results differ. `=` means equal up to rounding. A percentage is the error as a share of the largest correct value in
# the same row.

# %%
torch.manual_seed(0)
lstm = torch.nn.LSTM(input_size=2, hidden_size=3, batch_first=True)
lengths = [3, 5, 2, 4]
mask = pv.real_mask(lengths)  # True at the 14 real cells
x = torch.randn(4, 8, 2)[:, :5] * mask[..., None]  # (B, T, features), the panel's data; the padding is 0

# %%
comparison = pv.compare(lstm, x, lengths, gradients=False)
comparison

# %% [markdown]
# First the outputs. Only the padding, hatched, shows numbers. At the 14 real steps, there is nothing but `=`. A tagger
# reads only these steps, and they are untouched.
#
# Then the states. Only b has no padding, and only b is right. In c, the errors are larger than any number in the right
# state: 174 % for `h_n`, and 194 % for `c_n`. So of c's seven vectors, five outputs and two states, two survive: the
# outputs at its two real steps.
#
# Same LSTM, same padding, and one result is perfect while its neighbour is useless. The damage has a shape: it begins
# where the data ends. We make that our rule: **a result is right if no padding was read before it.** (If some was,
# expect a wrong result.) This LSTM reads from the first step to the last, and each row has its padding at the end. So
# at a real step, it has read no padding yet.
#
# "So it makes no difference what the padding holds?" she asks. "Not even if it were NaN?"

# %% tags=["claims"]
weights = {name: weight.tolist() for name, weight in lstm.named_parameters()}
assert panel.weights == weights
packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
padded_h_n, packed_h_n = lstm(x)[1][0], lstm(packed)[1][0]
assert [f"{h_n[0, 2, 0]:.2f}" for h_n in (packed_h_n, padded_h_n)] == ["0.09", "0.20"]
c = padded_h_n[0, 2, 0], packed_h_n[0, 2, 0]
assert c[0] > 2 * c[1] > 0
assert (padded_h_n[0, [0, 3], 0] > 0).all()
assert (packed_h_n[0, [0, 3], 0] < 0).all()
unpacked, _ = pad_packed_sequence(lstm(packed)[0], batch_first=True)
assert not comparison.c_n.differs[..., 1].any()
for row, n in enumerate(lengths):
    assert torch.allclose(lstm(x)[0][row, :n], unpacked[row, :n], atol=1e-6)
    assert unpacked[row, n:].eq(0).all()
    assert torch.allclose(padded_h_n[0, row], packed_h_n[0, row], atol=1e-6) == (n == 5)
assert comparison.agrees.outputs
assert [f"{panel.relative_differences[2, 0]:.0%}" for panel in comparison.panels()[1:]] == ["174%", "194%"]
with_gradients = pv.compare(lstm, x, lengths)
assert with_gradients.agrees.gradients_outputs
for what in ("h_n", "c_n", "gradients_h_n"):
    assert with_gradients.needs_packing(what)

# %% [markdown]
# ## Does it matter what the padding holds?
#
# For tags from this LSTM, it cannot matter. Zeros, noise or NaN: an output at a real step is finished before the
# padding begins. But before a model tags anything, it has to be trained. And NaN does get into padding, from missing
# values for example. So let us try it, and take a loss over real steps only. By the rule, this loss is finite. And its
# gradients?

# %%
ask("NaN in the padding")

# %%
with_nan = x.masked_fill(~mask[..., None], float("nan"))
output, _ = lstm(with_nan)
loss = output[mask].sum()
loss.backward()
finite = sum(weight.grad.isfinite().sum() for weight in lstm.parameters())
print(f"loss {loss.item():.2f}; finite gradients: {finite} of {sum(w.numel() for w in lstm.parameters())}")

# %% [markdown]
# Not one. The loss looks healthy, every output that enters it is right, and after one optimiser step every weight of
# this LSTM is NaN.
#
# Our rule speaks of results, and so of the forward pass. We have forgotten the other one. The backward pass starts at
# the batch's last step, so it goes through the padding *first*. The loss reads no output in the padding, so the
# gradient that arrives there is zero. A zero should be harmless. But the backward pass multiplies it by the step's
# input, which is NaN, and by its gates, which have read the NaN. And zero times NaN is NaN. Step by step, the NaN goes
# back through the whole row. Row b is clean, and that does not help, because all rows share their weights. One NaN
# spoils the sum. With finite padding, the gradients would be right. Only NaN and infinity are stronger than a zero.
#
# A mask on the output comes too late: the NaN is still there to be multiplied. So fill the padding of the *input* with
# zeros, before the first layer, with `masked_fill`. Or pack, before any layer reads the NaN.

# %% tags=["claims"]
assert loss.isfinite()
assert all(weight.grad.isnan().all() for weight in lstm.parameters())
for n_layers in (1, 2, 3):
    deep = torch.nn.LSTM(2, 3, num_layers=n_layers, batch_first=True)
    expected = deep(x)[0][mask]
    for value in (1.0, float("nan")):
        assert torch.equal(deep(x.masked_fill(~mask[..., None], value))[0][mask], expected)
for good in (x, pack_padded_sequence(with_nan, lengths, batch_first=True, enforce_sorted=False)):
    lstm.zero_grad()
    result = lstm(good)[0]
    (result[mask] if good is x else result.data).sum().backward()
    assert all(weight.grad.isfinite().all() for weight in lstm.parameters())
two_rows = torch.tensor([[[1.0, 1], [2, 2], [3, 3], [4, 4], [5, 5]], [[10, 10], [20, 20], [0, 0], [0, 0], [0, 0]]])
packed_two = pack_padded_sequence(two_rows, [5, 2], batch_first=True)
assert packed_two.data[:, 0].tolist() == [1, 10, 2, 20, 3, 4, 5]
assert packed_two.batch_sizes.tolist() == [2, 2, 1, 1, 1]
assert (two_rows[..., 0].numel(), len(packed_two.data)) == (10, 7)
example = pv.compare(torch.nn.LSTM(2, 3, batch_first=True), two_rows, [5, 2])
assert example.agrees.outputs
assert not example.agrees.h_n

# %% [markdown]
# That was training. For results, the rule holds, NaN or not. So her tagger may stay in use, your colleague says, and
# puts the phone down. Then she checks the code of both LSTMs, to be sure. The classifier's has one direction. The
# tagger's is *bidirectional*.
#
# ## What if the RNN also reads backwards?
#
# Such an RNN reads each row a second time, from its last step to its first, and `output` gets two halves. We take the
# mildest case: row d, with only one step of padding.

# %%
ask("reverse half")

# %%
torch.manual_seed(0)
both = torch.nn.LSTM(2, 5, bidirectional=True, batch_first=True)
comparison = pv.compare(both, x, lengths, gradients=False)
comparison

# %% [markdown]
# The forward half is untouched. Now follow the reverse half of d from right to left, as the RNN reads it: 19 %, 14 %,
# 8.9 %, 7.6 %. The error fades. It does not go away. One step of nothing, and we can still measure the error at the
# other end of the row. Row c has three such steps, and at its second word, the error is 64 %. These outputs look like
# any others, and they become her tags.
#
# And yet the rule holds. It is about what was *read* before, not about what is on the left. This direction meets the
# padding **first**, and carries its state from there into the real steps.
#
# She picks the phone up again. In every row with padding, only one half of an output is right, and her linear layer
# reads both.

# %% tags=["claims"]
assert comparison.agrees.outputs_forward
assert not comparison.agrees.outputs_reverse
reverse_at_0, reverse_h_n = (comparison.panels()[i].relative_differences[:, i - 1] for i in (1, 2))
assert all(abs(reverse_at_0 - reverse_h_n) < 0.001)
shares = comparison.panels()[1].relative_differences
assert f"{shares[2, 1]:.0%}" == "64%"
assert [f"{share:.2g}" for share in 100 * shares[3, :4]] == ["7.6", "8.9", "14", "19"]
assert all(comparison.panels()[1].differs[row, :n].all() for row, n in enumerate(lengths) if n < 5)
assert [row for row, n in enumerate(lengths) if comparison.panels()[1].differs[row, :n].any()] == [0, 2, 3]

# %% [markdown]
# ## What is right, and when?
#
# It is time for all cases at once. The table compares each result with that of the sequence alone, which is right by
# definition. One bet before you unfold it. Stack two bidirectional layers. The second reads both halves of the first.
# Is its *forward* half still right?

# %%
from packviz.check.truth import RESULTS, truth_table

truth_table("LSTM", RESULTS)

# %% [markdown]
# How did your bet go? The forward half is lost, too. One bad half below it is enough.
#
# Now read the first row from the left. With one direction, there is no bad half, and outputs at real steps are **right
# without packing**, however many layers there are. For these outputs, the sentence from the web is right.
#
# Her tagger has two directions, so it must pack. Her classifier has only one, but it reads `h_n`, which is wrong in all
# four columns if the batch is padded. So it must pack, too. Must it?

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
# ## Can we have the right state without packing?
#
# In one direction, the output of a step *is* the state after that step. So the final state of a sequence is its
# output at its own last step, `len-1`. There, by our rule, even a padded output is right. The right state was there
# all the time, under another name. We only have to *gather* it:

# %%
output, _ = lstm(x)  # padded
gathered = output[torch.arange(4), torch.tensor(lengths) - 1]
packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
_, (h_n, _) = lstm(packed)
print("equal to packed:", torch.allclose(gathered, h_n[0], atol=1e-6))

# %% [markdown]
# One line, and the classifier need not pack. But this way out is not for everybody. `output` contains neither `c_n` nor
# the final states of lower layers. And in the reverse direction of a padded row, every state has read padding, so there
# is nothing to gather. For all these, packing is the simple solution.
#
# Even after packing, two popular places in `output` mislead. One is `output[:, -1]`, which is padding for all but the
# longest sequences. The other is the reverse half at `len-1`. In a packed row, this direction *starts* there, so it has
# read only one step. It *ends* at step 0.
#
# So she makes the call after all. Both models read wrong states, and each gets a cure of its own. The tagger will pack,
# and the classifier will gather. And both are trained again, because their weights have learnt from wrong states.
#
# <details><summary>And without biases?</summary>
#
# Without biases, a zero state stays zero while the RNN reads zeros. So with one layer, and with zeros as initial
# state and as padding, the reverse direction is right at real steps. But a forward state is rarely zero at the last
# real step, so the padding still changes it.
#
# </details>
#
# <details><summary>Must padded and packed training agree if the seed is the same?</summary>
#
# Not with dropout. Between layers, it draws a number for every *computed* unit. A packed run computes fewer, so it
# drops different ones. Compare without dropout.
#
# </details>

# %% tags=["claims"]
assert torch.allclose(gathered, packed_h_n[0], atol=1e-6)
deep = torch.nn.LSTM(2, 3, num_layers=2, batch_first=True)
_, (deep_h_n, deep_c_n) = deep(packed)
gathered = deep(x)[0][torch.arange(4), torch.tensor(lengths) - 1]
assert torch.allclose(gathered, deep_h_n[1], atol=1e-6)
assert not torch.allclose(gathered, deep_h_n[0], atol=0.01)
assert not torch.allclose(gathered, deep_c_n[1], atol=0.01)

# %% tags=["claims"]
dropping = torch.nn.LSTM(2, 3, num_layers=2, dropout=0.5, batch_first=True)


def outputs(pack):
    torch.manual_seed(1)
    result = dropping(packed if pack else x)[0]
    return (pad_packed_sequence(result, batch_first=True)[0] if pack else result)[mask]


assert torch.equal(outputs(pack=False), outputs(pack=False))
assert (outputs(pack=False) - outputs(pack=True)).abs().max() > 0.01
dropping.eval()
assert torch.allclose(outputs(pack=False), outputs(pack=True), atol=1e-6)

# %% [markdown]
# ## Exercise
#
# `output`, of shape `(B, T, 2 · H)`, comes from a *packed* bidirectional RNN, with the forward half first. Return the
# last layer's final states in both directions, `(B, 2 · H)`, in the same order. `lengths` is a list.


# %% tags=["exercise"]
def my_final_states(output, lengths):
    forward, reverse = output.chunk(2, dim=2)  # (B, T, H) each
    # solution
    last = torch.tensor(lengths) - 1
    return torch.cat([forward[torch.arange(len(lengths)), last], reverse[:, 0]], dim=1)
    # end solution


checks.final_states(my_final_states)

# %% [markdown]
# ## You can now
#
# - ask of any result, even one from a reverse direction or a second layer: *was padding read before it?*
# - recognise NaN gradients that come from the padding, and prevent them,
# - with one direction, gather a final state from `output`, and pack where there is nothing to gather.
#
# But an RNN is only half of a model. Its padded output goes on to other layers and to a loss. Who else reads the
# padding?
#
# Next: [04 Masks and losses](04_masks_and_losses.ipynb). Back: [02 Inside a packed
# sequence](02_inside_a_packed_sequence.ipynb) · [00 Start here](00_start_here.ipynb)
