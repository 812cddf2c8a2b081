"""The exercise on counting (notebook 03)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from packviz.count.flops import Ledger, Spec, flops
from packviz.lessons.exercise import NOT_YET, Comparison, Verdict, entries, exercise


@exercise
def gru_flops(answer: Callable[[int, int, list[int]], Any]) -> Verdict:
    """A function from input size, hidden size and lengths to the packed forward GEMM FLOPs of a GRU (notebook 03)."""
    cases = [(3, 7, [9, 8, 6, 4, 3, 2]), (1, 1, [1]), (2, 5, [4, 4]), (16, 4, [3, 5, 2, 4]), (8, 8, [10, 1])]
    ledgers = [flops(Spec("GRU", i, h), lengths) for i, h, lengths in cases]
    answers = [answer(i, h, list(lengths)) for i, h, lengths in cases]
    if any(yours is None or yours is ... for yours in answers):
        return Verdict(False, NOT_YET)
    rows = Comparison("the five cases", *entries(answers, [ledger.packed for ledger in ledgers]))
    for ledger, yours, (i, h, lengths) in zip(ledgers, answers, cases, strict=True):
        if yours != ledger.packed:
            case = f"Not yet for my_gru_flops({i}, {h}, {lengths}): {yours}, not {ledger.packed}."
            return Verdict(False, f"{case} {_flops_hint(ledger, yours)}", [rows, ledger])
    return Verdict(True, "Equal to the ledger for every case.", [rows, ledgers[0]])


def _flops_hint(ledger: Ledger, yours: Any) -> str:
    spec, cells = ledger.spec, ledger.layout.n_valid
    if yours == ledger.padded:
        return "That is the padded count: only real cells are computed."
    if 2 * yours == ledger.packed:
        return "Each entry of a product takes a multiplication and an addition."
    if 3 * yours == ledger.packed:
        return "A GRU has three gates, each with its own rows of the weights."
    if yours in [cells * product for product in spec.products[0]]:
        return "There are two products: one with the input, one with the state."
    return "A cell costs 2 · gates · hidden_size for each number of the input and of the state; then count the cells."
