"""Finds mistakes in the lengths and the data of packed sequences, including those that torch does not report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from packviz.check.findings import Finding, Findings
from packviz.check.odds import Batch, about, judge, turned
from packviz.core.layout import BoolArray, IntArray, Layout, sequence_name
from packviz.draw.text import count, numbers


def diagnose(
    x: Tensor,
    lengths: Any,
    batch_first: bool | None = None,
    packed: Any = None,
    *,
    last: Tensor | None = None,
    hx: Any = None,
) -> Findings:
    """Finds mistakes in packing, whether torch rejects them or silently accepts them.

    `diagnose` recognises padding by its value. It assumes that, apart from rounding, all cells of
    the padding contain the same vector, of zeros or of other values. If the data contradict the
    lengths, `diagnose` computes how likely this is to happen by chance, and the finding says how
    certain the mistake is. Three sequences are usually enough to detect a mistake if the padding's
    value never occurs in the data. A mistake that is almost certain is reported as an error. In a
    checkout, `python -m pytest -s tests/unit/check/test_odds.py` computes, for every kind of data
    in the tests, how many correct batches cause a false alarm, and how many mistakes are found.

    Some data look the same with and without a mistake:

    * If the lengths leave out the same number of steps of every sequence, such as the last word of
      captions, or if they cut all long sequences at the same length, the result is undecided.
    * If sequences end in the padding's value, this may be silence in a recording, so the finding is
      an `"info"`. It is usually a `"warning"` if `x` contains only integers of at least 0, because
      these are taken for token ids, which contain no silence.
    * If all lengths are equal, but most sequences end in the same repeated value, and this value
      fills more than half of at least one sequence, the finding is a `"warning"`, and never an
      `"error"`. If the lengths are also all `T`, the result is undecided after such a warning.
    * If every sequence may end in the same number of end marks, the finding is an `"info"`.
    * If all lengths are `T`, padding that is not constant cannot be found.

    If the padding is not constant, as after a convolution, an RNN, or dropout on an embedding,
    nothing shows where the sequences end. `diagnose` then warns that the result is undecided, and
    suggests an earlier tensor to pass. If there is no padding, or if the lengths fit `x` both batch
    first and time first, an `"info"` says so.

    Every call of `diagnose` waits for the device a few times, so use it on a few batches rather
    than in a training loop.

    Args:
        x: `(T, B, …)`, or `(B, T, …)` with `batch_first`, the batch that was or will be packed, of
            any dtype and on any device.
        lengths: `(B,)` the lengths that were or will be passed to `pack_padded_sequence`, as a
            list, an array or a tensor.
        batch_first: whether the batch is the first dimension of `x`, as in `pack_padded_sequence`.
            Defaults to False, with a warning if `B` equals `T`.
        packed: the `PackedSequence` that was made from `x` and `lengths`, or the packed output of
            an RNN that read it. `diagnose` checks whether unpacking restores the order of
            `lengths`.
        last: `(B, …)` the cells that were taken from `x` as the last steps of the sequences, such
            as `x[:, -1]`.
        hx: the initial state that the RNN receives along with the packed batch: a tensor whose
            second dimension is the batch, such as `(L·D, B, H)`, or a pair of such tensors.

    Returns:
        The findings, most serious first. An `"error"` means that torch will reject the batch, or
        that the result is wrong or very probably wrong. A `"warning"` means that something is
        probably wrong, or undecided. An `"info"` reports something worth knowing. The result's `ok`
        is True if there is no error and nothing is undecided, and its `clean` is True if there is
        no finding at all.

    Raises:
        TypeError: `x` is not a dense tensor, or `packed` is not a packed sequence.
        ValueError: `x` lacks a time or a batch dimension, `lengths` is not a flat list of numbers,
            or the shape of `last` or `hx` is not valid.

    Examples:
        >>> import packviz as pv, torch
        >>> x = torch.zeros(3, 5, 2)
        >>> x[0], x[1, :3], x[2, :2] = 1, 1, 1
        >>> findings = pv.diagnose(x, [5, 2, 2], batch_first=True)  # b has 3 steps, not 2
        >>> findings.ok, findings[0].indices
        (True, (1,))
    """
    batch = Batch(x, lengths, batch_first)
    found = [*_lengths_alone(batch)]
    if batch.readable:
        found += _counts(batch)
        if batch.fits:
            found += [*(judge(batch) if batch.possible else ()), *_widths(batch)]
            if packed is not None:
                found += filter(None, [_order(batch, packed)])
            if last is not None:
                found += _last(batch, last)
    if hx is not None:
        found += _states(batch, hx)
    return Findings(f"x of shape {tuple(x.shape)}, read as {batch.order}", tuple(found))


# Findings from the lengths alone.


def _lengths_alone(batch: Batch) -> Iterator[Finding]:
    if batch.device.type != "cpu":
        message = f"lengths are on {batch.device}. torch reads them on the CPU, to plan the steps, and only there."
        fix = "pass lengths.cpu() or, better, never move them; only x goes to the device"
        yield Finding("error", "lengths not on the CPU", message, fix=fix)
    finite = np.isfinite(batch.values)
    message = ". torch turns it into a whole number that has nothing to do with the sequence."
    fix = "count the steps again; a length is NaN or infinite after a division by 0"
    yield from _entries(batch, ~finite, "not finite", message, fix)
    message = ". torch silently drops the fraction, so 3.9 becomes 3, and a share of T that rounding makes a little"
    message += " too small loses a step."
    fix = "count as your layer does, such as (n + 1) // 2 for every second step; if you have shares of T, round:"
    fix += " lengths = torch.as_tensor(lengths).round().long()"
    yield from _entries(
        batch, finite & (batch.values != np.trunc(batch.values)), "fractional length", message, fix
    )


def _entries(
    batch: Batch, wrong: BoolArray, rule: str, message: str, fix: str
) -> Iterator[Finding]:
    """Yields an error if any lengths are wrong. `message` completes the sentence that quotes the first wrong length."""
    if wrong.any():
        more = f" (and {wrong.sum() - 1} more)" if wrong.sum() > 1 else ""
        b = int(np.argmax(wrong))
        value = np.format_float_positional(
            batch.values[b], trim="-"
        )  # in full, because 5.9999995 is not 6
        yield about(wrong, "error", rule, f"lengths[{b}] is {value}{more}{message}", fix)


def _counts(batch: Batch) -> Iterator[Finding]:
    n, size, steps = batch.n, batch.size, batch.steps
    if not batch.x.numel():
        message = f"x, read as {batch.order} with B = {size} and T = {steps}, is empty. torch does not pack it."
        yield Finding("error", "empty batch", message, fix="skip this batch")
        return
    if len(n) != size:
        message = f"lengths has {count(len(n), 'entry', 'entries')}, but x, read as {batch.order}, has B = {size}"
        if len(n) == steps:
            message = f"{message} and T = {steps}. {_uncounted(batch)}"
            yield Finding("error", "batch and time swapped", message, fix=turned(batch))
            return  # any further finding would count along the wrong dimension
        fix = "give one length for each sequence, in the order of x"
        yield Finding("error", "wrong count", f"{message}. {_uncounted(batch)}", fix=fix)
    fix = "drop these rows before packing, and put zeros in their place afterwards"
    yield from _entries(
        batch, n < 1, "empty sequence", ". torch does not pack empty sequences.", fix
    )
    message = f", but x, read as {batch.order}, has T = {steps}. torch still packs it, into"
    message += f" {np.minimum(n, steps).sum()} rows of data, but the lengths add up to {n.sum()}. An error comes later,"
    message += " from the RNN or from unpacking, and does not name the cause."
    fix = "give the lengths of this x; were they taken before it was cut, or do they count start and end marks?"
    yield from _entries(batch, n > steps, "longer than x", message, fix)


def _uncounted(batch: Batch) -> str:
    """Describes what torch does with a wrong number of lengths."""
    missing = batch.size - len(batch.n)
    if missing > 0 and (batch.n <= batch.steps).all():
        return f"With enforce_sorted=False, torch silently drops {count(missing, 'sequence')}."
    return "With enforce_sorted=False, torch raises an error about an index, or later a shape, and does not say why."


# Findings from the shapes, the packed batch, the last step and the state.


def _widths(batch: Batch) -> Iterator[Finding]:
    longest = int(batch.n.max())
    if 0 < longest < batch.steps:
        message = f"The longest sequence has {longest} steps, but x has {batch.steps}. pad_packed_sequence returns"
        message += f" {longest} steps or, on several workers, as many as each worker's longest sequence has."
        first = "batch_first=True, " * batch.batch_first
        fix = f"pad_packed_sequence(packed, {first}total_length=x.shape[{int(batch.batch_first)}])"
        yield Finding("info", "narrower when unpacked", message, fix=fix)


def _order(batch: Batch, packed: Any) -> Finding | None:
    """Returns a finding if a packed batch is broken, does not match the lengths, or unpacks in the wrong order."""
    try:
        layout = Layout.from_packed(packed)
    except ValueError as error:
        return Finding(
            "error", "broken packed sequence", f"{error}.", fix="pack again, from x and its lengths"
        )
    indices = packed.sorted_indices, getattr(packed, "unsorted_indices", None)
    sort, back = (None if index is None else np.asarray(index.cpu()) for index in indices)
    if (sort is None) != (back is None) or (
        back is not None and not np.array_equal(back, layout.unsorted_indices)
    ):
        shown = ["None" if index is None else numbers(index) for index in (sort, back)]
        message = f"sorted_indices is {shown[0]} and unsorted_indices {shown[1]}; one must undo the other. The RNN"
        message += " sorts h_0 by the first, and unpacking restores the order by the second, so states and outputs"
        message += " belong to different sequences."
        fix = "use packed._replace(data=data), which keeps both; if you build one by hand, pass only sorted_indices"
        return Finding("error", "contradicting indices", message, fix=fix)
    if (
        not np.array_equal(np.sort(layout.lengths), np.sort(batch.n))
        or layout.batch_size != batch.size
    ):
        message = (
            f"packed has the lengths {numbers(layout.lengths)}, but lengths is {numbers(batch.n)}."
        )
        return Finding(
            "error",
            "another batch",
            message,
            fix="pass the packed sequence that was made from this x",
        )
    return _moved(batch, layout, packed)


def _moved(batch: Batch, layout: Layout, packed: Any) -> Finding | None:
    """Returns a finding if packed data are in the wrong order, or if unpacking puts sequences in
    the wrong rows.

    `_moved` compares the data if they come from `x`, and otherwise the lengths.
    """
    came, size = None, batch.size
    here = not packed.data.is_meta and packed.data.dtype == batch.x.dtype
    if here and packed.data.numel() == layout.n_real * batch.x.shape[2]:
        rows = packed.data.detach().reshape(layout.n_real, -1)
        theirs, ours = (v.contiguous().view(torch.uint8).cpu().numpy() for v in (rows, batch.x))
        came = _came(batch, layout, theirs, ours)
        orders = range(size), np.argsort(-batch.n, kind="stable")
        if came is None and theirs.tobytes() in [
            b"".join(ours[b, : batch.n[b]].tobytes() for b in o) for o in orders
        ]:
            message = f"packed.data holds one sequence after another. torch reads its first {size} rows as the first"
            message += " steps of all sequences, and so on, so the RNN mixes the sequences."
            fix = f"pack_padded_sequence(x, lengths, batch_first={batch.batch_first}, enforce_sorted=False)"
            return Finding("error", "rows by sequence", message, fix=fix)
    wrong = layout.lengths != batch.n if came is None else came != np.arange(size)
    if not wrong.any():
        return None
    i = int(np.argmax(wrong))
    if came is None:
        what = f"row {i} will have {count(int(layout.lengths[i]), 'step')}, while lengths[{i}] is {batch.n[i]}"
    else:
        what = f"row {i} will be sequence {sequence_name(int(came[i]))}, not {sequence_name(i)}"
    message = f"After unpacking, {what}, as packed has {'no' if packed.sorted_indices is None else 'other'} indices to"
    message += " restore your order. Outputs and h_n then get the labels of other sequences, without an error."
    fix = "put new data into a packed sequence with packed._replace(data=data), and let enforce_sorted=False sort; if"
    fix += " you have sorted x yourself, restore the order of output and h_n with the inverse of your sort"
    return about(wrong, "warning", "order lost", message, fix)


def _came(batch: Batch, layout: Layout, theirs: Any, ours: Any) -> IntArray | None:
    """Returns which sequence of `x` is in each unpacked row, `(B,)`; `None` if the data do not come from `x`."""
    named: dict[bytes, list[int]] = {}
    for b, n in enumerate(batch.n.tolist()):
        named.setdefault(ours[b, :n].tobytes(), []).append(b)
    found = [named.get(theirs[index[index >= 0]].tobytes(), []) for index in layout.packed_index]
    return (
        np.array([i if i in some else some[0] for i, some in enumerate(found)])
        if all(found)
        else None
    )


def _last(batch: Batch, last: Tensor) -> Iterator[Finding]:
    if not isinstance(last, Tensor) or last.numel() != batch.size * batch.x.shape[2]:
        got = f"shape {tuple(last.shape)}" if isinstance(last, Tensor) else type(last).__name__
        raise ValueError(
            f"last must hold one step of x for each of {batch.size} sequences, got {got}"
        )
    taken = last.detach().reshape(batch.size, -1).to(batch.x)
    n = torch.tensor(np.clip(batch.n, 1, batch.steps), device=batch.x.device)
    right = batch.x[torch.arange(batch.size, device=n.device), n - 1]
    wrong = ((taken == batch.x[:, -1]).all(-1) & (taken != right).any(-1)).cpu().numpy()
    if wrong.any():
        b = int(np.argmax(wrong))
        at = "x[:, -1]" if batch.batch_first else "x[-1]"
        message = f"For {count(int(wrong.sum()), 'sequence')}, last contains {at}, step {batch.steps - 1}, which is"
        message += f" padding, because sequence {sequence_name(b)} ends with step {batch.n[b] - 1}."
        fix = "use h_n of the packed run, or gather step lengths - 1 of each sequence"
        yield about(wrong, "error", "read at the padding", message, fix)


def _states(batch: Batch, hx: Any) -> Iterator[Finding]:
    for name, state in zip(
        ("h_0", "c_0"), hx if isinstance(hx, (tuple, list)) else (hx,), strict=False
    ):
        if not isinstance(state, Tensor) or state.ndim != 3:
            got = (
                f"shape {tuple(state.shape)}" if isinstance(state, Tensor) else type(state).__name__
            )
            raise ValueError(f"hx must be (L·D, B, H), or a pair of them, got {got}")
        rows = state.shape[1]
        if rows == batch.size:
            continue
        message = f"{name} of shape {tuple(state.shape)} is read as (L·D, B, H), so it has {count(rows, 'row')} for"
        message += f" {count(batch.size, 'sequence')}."
        fix = "give one row per sequence"
        if rows > batch.size:
            message += f" With enforce_sorted=False, torch takes the first {batch.size} and silently drops the rest."
            fix = f"pass {name}[:, :{batch.size}] if its first rows belong to this batch"
        if state.shape[0] == batch.size:
            fix = f"pass {name}.transpose(0, 1); states are never batch first, whatever batch_first says"
        yield Finding("error", "rows of the state", message, fix=fix)
