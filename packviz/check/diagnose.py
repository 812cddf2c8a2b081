"""Finds mistakes in lengths and data, including those that torch does not report."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from packviz.check.evidence import (
    BATCH_TIME_SWAPPED,
    Batch,
    finding_about_sequences,
    judge_padding,
    swap_fix,
    undecided_finding,
)
from packviz.check.findings import UNDECIDED_RULE, Finding, Findings
from packviz.core.layout import BoolArray, Layout, sequence_name
from packviz.draw.text import numbers, with_noun

FindingIterator = Iterator[Finding]
"""What a check of one kind reports."""


def diagnose(
    x: Tensor,
    lengths: object,
    batch_first: bool | None = None,
    packed: PackedSequence | None = None,
    *,
    last: Tensor | None = None,
    hx: object = None,
) -> Findings:
    """Finds mistakes in packing, whether torch rejects them or silently accepts them.

    `diagnose` recognises padding by its value. It assumes that, apart from rounding, all cells of
    the padding contain the same vector, of zeros or of other values. If the data contradict the
    lengths, `diagnose` computes how likely this is to happen by chance, and the finding states how
    certain the mistake is. Three sequences are usually enough to detect a mistake if the padding's
    value never occurs in the data. A mistake that is almost certain is reported as an error. In a
    checkout, `python -m pytest -s tests/unit/check/test_evidence.py` computes, for every kind of
    data in the tests, how many correct batches cause a false alarm, and how many mistakes are
    found.

    Some data look the same with and without a mistake:

    * If the lengths leave out the same number of steps of every sequence, such as the last word of
      captions, or if they cut all long sequences at the same length, the result is undecided.
    * If sequences end in the padding's value, this may be silence in a recording, so the finding is
      an `"info"`. It is usually a `"warning"` if `x` contains only integers of at least 0, because
      these are read as token ids, which contain no silence.
    * If all lengths are equal, but most sequences end in the same repeated value, and this value
      fills more than half of at least one sequence, the finding is a `"warning"`, and never an
      `"error"`. If the lengths are also all `T`, the result is undecided after such a warning.
    * If every sequence may end in the same number of end marks, the finding is an `"info"`.
    * If all lengths are `T`, padding that is not constant cannot be found.

    If the padding is not constant, as after a convolution, an RNN, or dropout on an embedding,
    nothing shows where the sequences end. `diagnose` then warns that the result is undecided, and
    suggests an earlier tensor to pass. If there is no padding, or if the lengths fit `x` both batch
    first and time first, an `"info"` reports this.

    Every call of `diagnose` waits for the device a few times, so use it on a few batches rather
    than in a training loop.

    Args:
        x: `(T, B, …)`, or `(B, T, …)` with `batch_first`, the batch that was or will be packed, of
            any dtype but float8, and on any device.
        lengths: `(B,)` the lengths that were or will be passed to `pack_padded_sequence`, as a
            list, an array or a tensor; or a mask `(B, T)`, True at real cells.
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
        is True if there is no error and nothing is undecided. If there is no finding at all, the
        result is empty, and `bool(findings)` is False.

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
    findings = [*_check_lengths(batch, lengths)]
    if batch.has_readable_lengths:
        findings += _check_lengths_fit_x(batch)
        if batch.has_length_per_sequence:
            findings += _check_padding(batch, x)
            findings += _check_unpacked_length(batch)
            if packed is not None:
                findings += _check_packed(batch, packed)
            if last is not None:
                findings += _check_last(batch, last)
    if hx is not None:
        findings += _check_states(batch, hx)
    return Findings(f"x of shape {tuple(x.shape)}, read as {batch.order}", tuple(findings))


# Findings from the lengths alone.


def _check_lengths(batch: Batch, lengths: object) -> FindingIterator:
    device = getattr(lengths, "device", "cpu")
    if str(device) != "cpu" and batch.values.ndim == 1:
        message = (
            f"lengths are on {device}, but torch plans the steps on the CPU, and reads the lengths"
            " only there."
        )
        fix = "pass lengths.cpu() or, better, never move them; only x goes to the device"
        yield Finding("error", "lengths not on the CPU", message, fix=fix)
    is_finite = np.isfinite(batch.values)
    message = ". torch turns it into a whole number that has nothing to do with the sequence."
    fix = "count the steps again; a length is NaN or infinite after a division by 0"
    yield from _report_wrong_lengths(batch, ~is_finite, "not finite", message, fix)
    message = (
        ". torch silently drops the fraction, so 3.9 becomes 3. A length that is computed as a"
        " share of T may come out as 5.9999995, and then becomes 5."
    )
    fix = (
        "count as your layer does, such as (n + 1) // 2 for every second step; if they are"
        " shares times T, round: lengths = torch.as_tensor(lengths).round().long()"
    )
    is_fractional = is_finite & (batch.values != np.trunc(batch.values))
    yield from _report_wrong_lengths(batch, is_fractional, "fractional length", message, fix)


def _report_wrong_lengths(
    batch: Batch, is_wrong: BoolArray, rule: str, message: str, fix: str
) -> FindingIterator:
    """Yields an error if any lengths are wrong. `message` continues after the first of them."""
    if not is_wrong.any():
        return
    b = is_wrong.argmax()
    value = np.format_float_positional(batch.values[b], trim="-")  # 5.9999995 is not 6
    others_text = f" (and {is_wrong.sum() - 1} more)" if is_wrong.sum() > 1 else ""
    yield finding_about_sequences(
        is_wrong, "error", rule, f"lengths[{b}] is {value}{others_text}{message}", fix
    )


def _check_lengths_fit_x(batch: Batch) -> FindingIterator:
    """Yields findings if lengths and `x` do not fit together, whatever the data are."""
    n = batch.n
    shape_text = f"x, read as {batch.order}, has B = {batch.size}"
    if not batch.x.numel():
        message = f"{shape_text} and T = {batch.steps}, so it is empty. torch does not pack it."
        yield Finding("error", "empty batch", message, fix="skip this batch")
        return
    if len(n) != batch.size:
        message = f"lengths has {with_noun(len(n), 'entry', 'entries')}, but {shape_text}"
        n_missing_lengths = batch.size - len(n)
        torch_behaviour = (
            "With enforce_sorted=False, torch raises an error about an index, or later about a"
            " shape, and does not name the cause."
        )
        if n_missing_lengths > 0 and (n <= batch.steps).all():
            torch_behaviour = (
                "With enforce_sorted=False, torch silently drops"
                f" {with_noun(n_missing_lengths, 'sequence')}."
            )
        if len(n) == batch.steps:  # any further finding would count along the wrong dimension
            message += f" and T = {batch.steps}. {torch_behaviour}"
            yield Finding("error", BATCH_TIME_SWAPPED, message, fix=swap_fix(batch))
            return
        fix = "give one length for each sequence, in the order of x"
        yield Finding("error", "wrong count", f"{message}. {torch_behaviour}", fix=fix)
    fix = (
        "drop empty sequences before packing, and put zeros in their place after it, or use pv.run,"
        " which takes empty sequences"
    )
    message = ". torch does not pack empty sequences."
    yield from _report_wrong_lengths(batch, n < 1, "empty sequence", message, fix)
    n_packed_rows = np.minimum(n, batch.steps).sum()
    message = (
        f", but x, read as {batch.order}, has T = {batch.steps}. torch still packs it, into"
        f" {n_packed_rows} rows of data, but the lengths add up to {n.sum()}."
        " An error comes later, from the RNN or from unpacking, and does not name the cause."
    )
    fix = (
        "give the lengths of this x; were they taken before it was cut, or do they count start and"
        " end marks?"
    )
    yield from _report_wrong_lengths(batch, n > batch.steps, "longer than x", message, fix)


# Findings from the data, the shapes, the packed batch, the last step and the state.


def _check_padding(batch: Batch, x: Tensor) -> FindingIterator:
    """Yields findings about where the sequences lie in `x`, and about NaN in the padding."""
    if x.is_meta:
        yield undecided_finding(
            "x is on the meta device and has no values", "pass a batch with values"
        )
        return
    if not batch.has_valid_lengths:
        return
    yield from judge_padding(batch)
    padding = ~batch.mask
    if x.dtype == torch.int64 and padding.any():
        padding_cells = batch.x[torch.from_numpy(padding)]
        value = padding_cells.amax().item()
        if value < 0 and padding_cells.amin().item() == value:  # such as -100, which a loss ignores
            message = (
                f"The padding is {value}. pad_packed_sequence fills the padding with 0"
                " instead, which a loss takes for a class."
            )
            fix = (
                f"pad_packed_sequence(packed, batch_first={batch.batch_first},"
                f" padding_value={value})"
            )
            yield Finding("info", "padding not restored", message, fix=fix)
    is_nonfinite_padding = ~batch.x.isfinite().all(-1).numpy() & padding
    if not is_nonfinite_padding.any():
        return
    cells_text = with_noun(padding.sum(), "padding cell")
    message = (
        f"NaN or infinity is in {is_nonfinite_padding.sum():,} of {cells_text}. A packed RNN reads"
        " none of them. A padded one does, and its weights get NaN gradients, even from a loss over"
        " real steps."
    )
    mask_code = f"pv.real_mask(lengths, x.shape[{int(batch.batch_first)}])"
    if not batch.batch_first:
        mask_code += ".T"
    if not x.is_cpu:
        mask_code += ".to(x.device)"
    mask_code += "[..., None]" * (x.ndim - 2)
    fix = f"pack, or clean the padding first: x = x.masked_fill(~{mask_code}, 0)"
    yield finding_about_sequences(
        is_nonfinite_padding.any(axis=1), "warning", "NaN in the padding", message, fix
    )


def _check_unpacked_length(batch: Batch) -> FindingIterator:
    """Yields a finding if padding again makes `x` narrower."""
    longest = batch.n.max()
    if 0 < longest < batch.steps:
        message = (
            f"The greatest length is {longest}, and x has {batch.steps} steps. After unpacking, the"
            " output is only as wide as the greatest length. If several processes share the batch,"
            " each gets as many steps as its own longest sequence has."
        )
        fix = (
            f"pad_packed_sequence(packed, batch_first={batch.batch_first},"
            f" total_length=x.shape[{int(batch.batch_first)}])"
        )
        yield Finding("info", "narrower when unpacked", message, fix=fix)


def _check_packed(batch: Batch, packed: PackedSequence) -> FindingIterator:
    """Yields a finding if `packed` is broken, or does not match the lengths or their order."""
    try:
        layout = Layout.from_packed(packed)
    except ValueError as error:
        fix = "pack again, from x and its lengths"
        yield Finding("error", "broken packed sequence", f"{error}.", fix=fix)
        return
    unsorted_indices = packed.unsorted_indices
    stored_indices = None if unsorted_indices is None else unsorted_indices.tolist()
    expected_indices = None if packed.sorted_indices is None else layout.unsorted_indices.tolist()
    if stored_indices != expected_indices:
        message = (
            "unsorted_indices does not undo sorted_indices. The RNN sorts h_0 by sorted_indices,"
            " and unpacking restores the order by unsorted_indices, so states and outputs belong to"
            " different sequences."
        )
        fix = (
            "use packed._replace(data=data), which keeps both; if you build a PackedSequence by"
            " hand, pass only sorted_indices"
        )
        yield Finding("error", "contradicting indices", message, fix=fix)
    elif sorted(layout.lengths) != sorted(batch.n):
        message = (
            f"packed has the lengths {numbers(layout.lengths)}, but lengths is {numbers(batch.n)}."
        )
        fix = "pass the packed sequence that was made from this x"
        yield Finding("error", "another batch", message, fix=fix)
    else:
        yield from _check_row_order(batch, layout, packed)


def _check_row_order(batch: Batch, layout: Layout, packed: PackedSequence) -> FindingIterator:
    """Yields a finding if padding again does not put each sequence into its own row.

    `_check_row_order` compares the data if they come from `x`, and otherwise the lengths.
    """
    is_wrong = layout.lengths != batch.n
    row = int(is_wrong.argmax())
    steps_text = with_noun(layout.lengths[row], "step")
    mismatch_text = f"row {row} will have {steps_text}, while lengths[{row}] is {batch.n[row]}"
    has_size_of_x = packed.data.numel() == layout.n_real * batch.x.shape[2]
    if has_size_of_x and packed.data.dtype == batch.x.dtype and not packed.data.is_meta:
        rows = packed.data.detach().cpu().reshape(layout.n_real, -1)
        packed_row_bytes = [_cell_bytes(rows[index[index >= 0]]) for index in layout.packed_index]
        row_bytes = [_cell_bytes(batch.x[b, :n]) for b, n in enumerate(batch.n)]
        sorted_row_bytes = [row_bytes[b] for b in (-batch.n).argsort(kind="stable")]
        if {*packed_row_bytes} <= {*row_bytes}:
            pairs = zip(packed_row_bytes, row_bytes, strict=True)
            is_wrong = np.array([packed_bytes != x_bytes for packed_bytes, x_bytes in pairs])
            row = int(is_wrong.argmax())
            actual_name = sequence_name(row_bytes.index(packed_row_bytes[row]))
            mismatch_text = f"row {row} will be sequence {actual_name}, not {sequence_name(row)}"
        elif _cell_bytes(rows) in (b"".join(row_bytes), b"".join(sorted_row_bytes)):
            message = (
                "packed.data holds one sequence after another. torch reads its first"
                f" {batch.size} rows as the first steps of all sequences, and so on, so the RNN"
                " mixes the sequences."
            )
            fix = (
                f"pack_padded_sequence(x, lengths, batch_first={batch.batch_first},"
                " enforce_sorted=False)"
            )
            yield Finding("error", "rows by sequence", message, fix=fix)
            return
    if is_wrong.any():
        message = (
            f"After unpacking, {mismatch_text}, because packed does not restore your order."
            " Outputs and h_n then get the labels of other sequences, without an error."
        )
        fix = (
            "if you made the packed sequence by hand, use packed._replace(data=data), which keeps"
            " the order; if you sorted x yourself, pack the unsorted x with enforce_sorted=False,"
            " or undo your sort in output and h_n"
        )
        yield finding_about_sequences(is_wrong, "warning", "order lost", message, fix)


def _cell_bytes(cells: Tensor) -> bytes:
    """Returns the bytes of some cells, to compare them exactly."""
    return cells.contiguous().view(torch.uint8).numpy().tobytes()


def _check_last(batch: Batch, last: Tensor) -> FindingIterator:
    """Yields a finding if `last` was read at the padding."""
    n_expected_values = batch.size * batch.x.shape[2]
    if not isinstance(last, Tensor) or last.numel() != n_expected_values:
        raise ValueError(
            f"last must hold one step of x for each sequence (B = {batch.size}), got"
            f" {_describe_shape(last)}"
        )
    claimed_cells = last.detach().reshape(batch.size, -1).to(batch.x)
    ends = np.clip(batch.n, 1, batch.steps) - 1
    last_cells = batch.x[np.arange(batch.size), ends]
    is_wrong = ~_are_cells_equal(claimed_cells, last_cells)
    # Where each wrong row occurs: at which steps of its own sequence, or as whose last step.
    equals_own_step = np.zeros((batch.size, batch.steps), dtype=bool)
    equals_own_step[is_wrong] = _are_cells_equal(claimed_cells[is_wrong, None], batch.x[is_wrong])
    is_from_own_row = equals_own_step.any(1)
    equals_other_last = np.zeros((batch.size, batch.size), dtype=bool)
    for b in np.flatnonzero(is_wrong & ~is_from_own_row).tolist():
        equals_other_last[b] = _are_cells_equal(claimed_cells[b], last_cells)
    equals_last_column = equals_own_step[:, -1]
    fix = "use h_n of the packed run, or gather step lengths - 1 of each sequence"
    if equals_last_column.any():
        b = int(equals_last_column.argmax())
        last_column_code = "x[:, -1]" if batch.batch_first else "x[-1]"
        n_sequences_text = with_noun(equals_last_column.sum(), "sequence")
        end_text = f"sequence {sequence_name(b)} ends with step {ends[b]}"
        message = (
            f"For {n_sequences_text}, last contains {last_column_code} (step {batch.steps - 1}),"
            f" which is padding there ({end_text})."
        )
        yield finding_about_sequences(
            equals_last_column, "error", "read at the padding", message, fix
        )
    is_wrong_step = is_from_own_row & ~equals_last_column
    if is_wrong_step.any():
        b = int(is_wrong_step.argmax())
        message = (
            f"last[{b}] is step {equals_own_step[b].argmax()} of sequence {sequence_name(b)},"
            f" which ends with step {ends[b]}."
        )
        yield finding_about_sequences(is_wrong_step, "error", "not the last step", message, fix)
    is_from_other_row = equals_other_last.any(1)
    if is_from_other_row.any():
        b = int(is_from_other_row.argmax())
        other_name = sequence_name(int(equals_other_last[b].argmax()))
        message = (
            f"last[{b}] is the last step of sequence {other_name}, so the rows are in another"
            " order."
        )
        yield finding_about_sequences(
            is_from_other_row, "error", "rows in another order", message, fix
        )
    if (is_wrong & ~is_from_own_row & ~is_from_other_row).any():
        message = "last cannot be judged, because some of its rows occur nowhere in x."
        yield Finding("warning", UNDECIDED_RULE, message, fix="pass cells of x as last")


def _are_cells_equal(cells: Tensor, reference_cells: Tensor) -> BoolArray:
    """Returns which cells have the same values. NaN equals NaN."""
    is_equal = (cells == reference_cells) | (cells.isnan() & reference_cells.isnan())
    return is_equal.all(-1).numpy()


def _describe_shape(value: object) -> str:
    """Describes a value by its shape or its type."""
    if isinstance(value, Tensor):
        return f"shape {tuple(value.shape)}"
    return type(value).__name__


def _check_states(batch: Batch, hx: object) -> FindingIterator:
    """Yields a finding for each initial state that does not have one row per sequence."""
    states = hx if isinstance(hx, (tuple, list)) else [hx]
    for name, state in zip(("h_0", "c_0"), states, strict=False):
        if not isinstance(state, Tensor) or state.ndim != 3:
            raise ValueError(
                "hx must be a tensor of shape (L·D, B, H) or a pair of such tensors, got"
                f" {_describe_shape(state)}"
            )
        n_rows = state.shape[1]
        if n_rows == batch.size:
            continue
        message = f"{name} of shape {tuple(state.shape)} is read as (L·D, B, H), so it has"
        message += f" {with_noun(n_rows, 'row')} for {with_noun(batch.size, 'sequence')}."
        fix = "give one row per sequence"
        if n_rows > batch.size:
            message += (
                f" With enforce_sorted=False, torch takes the first {batch.size} and silently drops"
                " the rest."
            )
            fix = f"pass {name}[:, :{batch.size}] if its first rows belong to this batch"
        if state.shape[0] == batch.size:
            fix = (
                f"pass {name}.transpose(0, 1); states are never batch first, whatever batch_first"
                " says"
            )
        yield Finding("error", "rows of the state", message, fix=fix)
