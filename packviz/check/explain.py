"""Adds an explanation to an error from packing, when it is raised."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from textwrap import wrap

from packviz.check import museum

_NOTE_PREFIX = "packviz: "  # begins every note


@contextmanager
def explain_errors() -> Iterator[None]:
    """Adds a note (PEP 678) to an error from packing: why it is raised, and what to do.

    The note is about the mistake that `pv.explain` finds for the message and the traceback. If
    several mistakes have the same message, the error gets a note only if it comes from torch's
    functions for RNNs and packing, and the note says *perhaps*. Nothing else changes: the same
    error propagates, with the same traceback::

        with pv.explain_errors():
            packed = pack_padded_sequence(x, lengths)

    As a decorator, write `@pv.explain_errors()`. A generator or a coroutine runs after the
    decorated call has returned, so use a `with` block inside it.

    Examples:
        >>> import packviz as pv, torch
        >>> try:
        ...     with pv.explain_errors():
        ...         torch.nn.utils.rnn.pack_padded_sequence(torch.zeros(5, 2), [2, 5])
        ... except RuntimeError as error:
        ...     "enforce_sorted=False" in error.__notes__[0]
        True
    """
    try:
        yield
    except Exception as error:
        with suppress(Exception):  # a failed explanation must not hide the error itself
            _add_note(error)
        raise


def _add_note(error: Exception) -> None:
    """Adds a note to an error, unless it has one or is not about packing."""
    notes = getattr(error, "__notes__", [])
    if any(str(note).startswith(_NOTE_PREFIX) for note in notes):
        return
    text = museum.error_text(error)
    matches = museum.match_rules(text)
    if not matches or not (matches.sure or "rnn.py" in text):
        return
    entry = matches[0]
    qualifier = "" if matches.sure else "perhaps: "
    lines = [f"{_NOTE_PREFIX}{qualifier}{entry.name} ({entry.place})"]
    for part in (f"why: {entry.why}", f"fix: {entry.fix}"):
        lines += wrap(part, 90, initial_indent="  ", subsequent_indent="    ")
    error.add_note("\n".join(lines))
