"""Scores of documents in rows: counted against a mask built cell by cell, drawn where they belong,
said in words.
"""

import numpy as np
import pytest
import torch
from drawings import ParsedSvg
from hypothesis import example, given
from hypothesis import strategies as st

import packviz as pv
from packviz.core.batches import CUT, FILLS, PADDED
from packviz.core.sentences import sentences
from packviz.draw import palette
from packviz.draw.documents import (
    CAUSAL_DOCUMENT_MASK,
    CAUSAL_MASK,
    DOCUMENT_MASK,
    MASKS,
    NO_MASK,
    Scores,
)
from packviz.draw.palette import LIGHT, REAL, THEMES

strategies, masks = st.sampled_from(FILLS), st.sampled_from(MASKS)


@st.composite
def filled(draw, longest=16, most=10):
    n = draw(st.lists(st.integers(1, longest), min_size=1, max_size=most))
    return Scores(n, max(n) + draw(st.integers(0, 12)), draw(strategies), draw(masks))


def owners(it):
    """`(R, C)` whose each time step of each row is, -1 at padding: from the lengths and the way
    alone.
    """
    n, row_size = it.layout.lengths, it.row_size
    if it.strategy == CUT:
        stream = np.repeat(np.arange(n.size), n)
        rows = [stream[i : i + row_size] for i in range(0, stream.size, row_size)]
    else:
        rows = [np.repeat(row, n[row]) for row in pv.batches.fill(n, row_size, it.strategy)]
    return np.stack([np.pad(row, (0, row_size - row.size), constant_values=-1) for row in rows])


def kinds(it):
    """`(R, C, C)` of each score: `#` needed, `x` cross_document, `·` wasted, a blank where none is
    computed.
    """
    own = owners(it)
    q, k = own[:, :, None], own[:, None, :]
    cross_document = "·" if it.mask in (DOCUMENT_MASK, CAUSAL_DOCUMENT_MASK) else "x"
    found = np.where((q < 0) | (k < 0), "·", np.where(q == k, "#", cross_document))
    if it.mask in (CAUSAL_MASK, CAUSAL_DOCUMENT_MASK):
        found[:, np.triu(np.ones((it.row_size, it.row_size), dtype=bool), 1)] = " "
    return found


@given(filled())
def test_every_score_is_counted_once(it):
    cells = kinds(it)
    counts = it.computed, it.needed, it.cross_document, it.wasted
    assert counts == (*((cells != " ").sum(),), *((cells == kind).sum() for kind in "#x·"))
    own = owners(it)
    assert it.padding == (own < 0).sum()
    assert it.cut == sum(
        len({r for r, row in enumerate(own) if b in row}) > 1 for b in range(it.layout.batch_size)
    )
    for row, whose in zip(it.rows, own.tolist(), strict=True):
        assert [b for b, _, size in row for _ in range(size)] == [b for b in whose if b >= 0]
    steps = sorted(
        (b, t) for row in it.rows for b, first, size in row for t in range(first, first + size)
    )
    assert steps == [(b, t) for b, n in enumerate(it.layout.lengths.tolist()) for t in range(n)]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_what_is_needed_are_the_scores_of_documents_that_run_alone(n):
    own = torch.block_diag(*(torch.ones(size, size) for size in n))
    seen = {
        NO_MASK: torch.ones_like(own),
        CAUSAL_MASK: torch.ones_like(own).tril(),
        DOCUMENT_MASK: own,
        CAUSAL_DOCUMENT_MASK: own.tril(),
    }
    for mask in MASKS:
        row, padded = Scores(n, mask=mask), Scores(n, strategy=PADDED, mask=mask)
        assert len(row.rows) == 1
        assert (len(padded.rows), padded.row_size) == (len(n), max(n))
        assert row.needed == padded.needed == (own * seen[mask]).sum()
        assert row.cross_document == ((1 - own) * seen[mask]).sum()
        assert padded.cross_document == row.padding == 0


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Scores([5, -1]), r"^lengths\[1\] is -1"),
        (lambda: Scores([5, 3], 4), r"^lengths\[0\] is 5, but row_size is 4"),
        (
            lambda: Scores([5, 3], strategy="best"),
            "^strategy is 'best'; choose one of 'padded', 'next-fit'",
        ),
        (
            lambda: Scores([5, 3], mask="diagonal"),
            "^mask is 'diagonal'; choose one of 'none', 'causal', 'document'",
        ),
    ],
)
def test_bad_input(call, said):
    with pytest.raises(ValueError, match=said):
        call()


# In words.


@given(filled(most=4))
def test_the_grids_in_words_are_the_scores(it):
    if it.row_size > 16:
        assert "#" not in it.to_text()
        return
    blocks = it.to_text().split("\n\n")[2:]
    assert len(blocks) == min(len(it.rows), 4)
    for i, (block, cells) in enumerate(zip(blocks, kinds(it), strict=False)):
        lines = [line.split() for line in block.splitlines()[1:]]
        assert [line[1:] for line in lines] == [
            [cell for cell in row if cell != " "] for row in cells.tolist()
        ]
        names = [
            f"{chr(97 + b)}{t}" for b, first, size in it.rows[i] for t in range(first, first + size)
        ]
        assert [line[0] for line in lines] == names + ["·"] * (it.row_size - len(names))


# The drawing.


@given(filled())
@example(Scores([5, 3, 2], mask=CAUSAL_DOCUMENT_MASK))
@example(Scores([1]))
def test_every_score_is_drawn_as_what_it_is(it):
    drawing = ParsedSvg(it.to_svg())
    fills = {REAL: "#", LIGHT.wrong: "x", LIGHT.padding: "·"}
    top = max(text.y for text in drawing.texts if text.said == "row 0")
    boxes = [box for box in drawing.boxes if box.fill in fills and box.y > top + 30]
    side = {1: 291, 2: 194, 3: 194}.get(len(it.rows), 142)
    left = 22 if len(it.rows) > 1 else 64
    y = min(box.y for box in boxes if box.fill == REAL)
    for i, cells in enumerate(kinds(it)[:4]):
        each, x = side / it.row_size, left + i * (side + 32)
        for q, k in np.ndindex(it.row_size, it.row_size):
            at, line = x + (k + 0.5) * each, y + (q + 0.5) * each
            seen = [b for b in boxes if b.x < at < b.right and b.y < line < b.bottom]
            assert [fills[box.fill] for box in seen] == cells[q, k].split(), (i, q, k)


@given(filled())
def test_every_time_step_lies_in_its_row(it):
    drawing = ParsedSvg(it.to_svg())
    top = (
        next(t.y for t in drawing.texts if t.said == "row 0" and t.anchor == "end") - 16
    )  # in a row of 24 px
    boxes = [
        b
        for b in drawing.boxes
        if b.x >= 64 and b.bottom <= top + 24.1 * len(it.rows) and b.fill != LIGHT.ground
    ]
    each = (max(b.right for b in boxes) - 64) / it.row_size
    for (r, t), b in np.ndenumerate(owners(it)):
        x, y = 64 + (t + 0.5) * each, top + 24 * r + 12
        (fill,) = [box.fill for box in boxes if box.x < x < box.right and box.y < y < box.bottom]
        assert fill == (LIGHT.padding if b < 0 else palette.sequence_colour(b))


@given(filled(), st.sampled_from(list(THEMES)))
@example(Scores([5, 3, 2], mask=CAUSAL_DOCUMENT_MASK), "dark")
@example(Scores(range(1, 513), 512), "light")
def test_texts_are_in_the_picture_and_apart(it, theme):
    drawing = ParsedSvg(it.to_svg(theme))
    assert drawing.outside() == drawing.covered() == []


def test_a_large_picture_stays_light_and_says_what_it_leaves_out():
    large = Scores([len(sentence) for sentence in sentences()], 64, mask=CAUSAL_MASK)
    assert large.to_svg() == large.to_svg()
    assert len(large.to_svg()) < 60_000
    assert any("the first 4 of 102 rows" in said for said in ParsedSvg(large.to_svg()).said())
    assert "Of 512 rows, one in 3 is drawn." in Scores([9] * 512, strategy=PADDED).to_svg()
