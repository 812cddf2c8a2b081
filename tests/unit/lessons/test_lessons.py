"""Tests of quizzes, which must not reveal their answer, and of the checks of exercises."""

import inspect
import tomllib
from functools import partial
from importlib import resources
from statistics import mean, median

import pytest
import torch
from controls import words
from drawings import ParsedSvg
from habits import habit_since
from hypothesis import example, given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

from packviz.draw import palette
from packviz.draw.picture import show
from packviz.lessons import NotSolvedError, Quiz, Verdict, ask, checks, sentences
from packviz.lessons.checks import spoilt_batches
from packviz.lessons.exercise import NO_RESULT_MESSAGE, Comparison, exercise
from packviz.ops.masks import align, real_mask
from packviz.panels.panel import Companion

QUIZZES = tomllib.loads(
    resources.files("packviz.lessons").joinpath("quizzes.toml").read_text(encoding="utf-8")
)


@pytest.fixture(autouse=True)
def _forgiving(monkeypatch):
    monkeypatch.delenv("PACKVIZ_STRICT", raising=False)


# Quizzes.


def quiz():
    return Quiz(
        "What is <b>?", {"a letter": "So it is & stays.", "a tag": "Not in <text>."}, "a letter"
    )


def choose(asked, choice):
    options = asked.choices.options
    asked.choices.set_state({"index": None if choice is None else options.index(choice)})


def press(asked):
    asked.check._handle_custom_msg({"event": "click"}, [])  # what the browser sends


def test_each_choice_has_its_feedback():
    asked = quiz()
    assert (asked.choices.value, asked.check.disabled, asked.solved, asked.feedback.value) == (
        None,
        True,
        False,
        "",
    )
    choose(asked, "a tag")
    assert not asked.check.disabled
    assert asked.feedback.value == ""  # chosen, not yet revealed
    press(asked)
    assert words(asked.feedback) == "✗ Not this one. Not in <text>."
    assert palette.LIVE.wrong in asked.feedback.value
    assert not asked.solved
    choose(asked, "a letter")
    assert asked.feedback.value == ""  # the old feedback does not belong to the new choice
    press(asked)
    assert words(asked.feedback) == "✓ Right. So it is & stays."
    assert palette.LIVE.right in asked.feedback.value
    assert asked.solved
    choose(asked, None)
    assert asked.check.disabled


def test_the_text_of_a_quiz_does_not_give_it_away():
    assert quiz().to_text() == "What is <b>?\n  ( ) a letter\n  ( ) a tag"
    bundle = quiz()._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "application/vnd.jupyter.widget-view+json"}
    assert bundle["text/plain"] == quiz().to_text()
    assert any(
        isinstance(part, Companion) for part in quiz().children
    )  # names its parts for a screen reader
    with pytest.raises(ValueError, match="answer is 'c'; choose one of 'a', 'b'"):
        Quiz("Which?", {"a": "No.", "b": "No."}, "c")


@pytest.mark.parametrize("name", QUIZZES)
def test_the_quizzes_of_the_notebooks(name):
    asked = ask(name)
    assert 2 <= len(asked.choices.options) <= 5
    for choice in asked.choices.options:
        choose(asked, choice)
        press(asked)
        assert words(asked.feedback)[:2] == ("✓ " if choice == asked.answer else "✗ ")
        why = words(asked.feedback).partition(". ")[2]
        assert len(why) > 10
        assert why not in asked.to_text()
    assert not {"✓", "✗"} & set(asked.to_text())
    assert (
        max(map(len, asked.to_text().splitlines())) <= 100
    )  # a page breaks longer lines within a word


def test_the_quizzes_together():
    assert len({list(q["choices"]).index(q["answer"]) for q in QUIZZES.values()}) > 1
    with pytest.raises(ValueError, match="name is 'nonsense'; choose one of 'padding gained', "):
        ask("nonsense")


# Exercises: for each check, wrong answers by words of the message, and right answers.

REVIEWS = [torch.tensor(ids) for ids in ([3, 1, 4], [1, 5, 9, 2, 6], [5, 3], [5, 8, 9, 7])]
torch.manual_seed(1)
EMBEDDING = torch.nn.Embedding(10, 6, padding_idx=0)
LSTM = torch.nn.LSTM(6, 8, batch_first=True)
LINEAR = torch.nn.Linear(8, 3)


def same_scores(answer):
    return checks.same_scores(answer, REVIEWS, EMBEDDING, LSTM, LINEAR)


def scores(reviews, pack=True, restore=True, state=0):
    lengths = torch.tensor([len(review) for review in reviews])
    words = EMBEDDING(pad_sequence(reviews, batch_first=True))
    if pack:
        words = pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
    states = LSTM(words)[1][state][0]  # of (h_n, c_n)
    if not restore:
        states = states[words.sorted_indices]
    return LINEAR(states)


def gathered(reviews, behind=1):
    output = LSTM(EMBEDDING(pad_sequence(reviews, batch_first=True)))[0]
    return LINEAR(output[range(len(reviews)), [len(review) - behind for review in reviews]])


def staircase(cuts):
    return checks.cheapest_staircase([4, 16, 3, 9, 2, 13, 9, 4, 14, 3, 8, 2], cuts, call=10)


def most_written(answers):
    many = [64] * 63
    batches = {"a": [*many, 63], "b": range(64, 0, -1), "c": [64, 1] * 32, "d": [*many, 64]}
    return checks.most_written(batches, answers)


def no_answer(*given):
    return None


def stub(*given):
    return ...


def raises(*given):
    raise KeyError("lost")


LINE_OF_RAISE = raises.__code__.co_firstlineno + 1


def timed(call, clock):
    began = clock()
    call()
    return clock() - began


def warm(a, b):
    for _ in range(3):
        a()
        b()


def blocks(a, b, clock):
    """Calls a many times, then b."""
    warm(a, b)
    first = sum(timed(a, clock) for _ in range(20))
    return sum(timed(b, clock) for _ in range(20)) / first


def once_warm(a, b, clock):
    """Times both functions once."""
    warm(a, b)
    warm(a, b)
    seconds = timed(a, clock)
    return timed(b, clock) / seconds


def means(a, b, clock):
    """Calls a and b in turn, but takes means."""
    warm(a, b)
    pairs = [(timed(a, clock), timed(b, clock)) for _ in range(20)]
    return sum(y for _, y in pairs) / sum(x for x, _ in pairs)


def fair_ratio(a, b, clock):
    warm(a, b)
    return sorted(timed(b, clock) / timed(a, clock) for _ in range(21))[10]


def right_sizes(lengths):
    return [sum(n > t for n in lengths) for t in range(max(lengths))]


def last_steps(output, lengths):
    return output[range(len(lengths)), [n - 1 for n in lengths]]


def final_halves(output, lengths):
    half = output.shape[2] // 2
    return torch.cat([last_steps(output, lengths)[:, :half], output[:, 0, half:]], dim=1)


def real_mean(choose):
    """Returns a function to the mean of the steps that `choose(x, mask)` leaves."""

    def mean(x, lengths):
        n = torch.tensor(lengths)[:, None]
        return choose(x, (torch.arange(x.shape[1]) < n)[..., None]).sum(1) / n

    return mean


TESTS = {"lengths": (5, [5, 3, 2, 4]), "T": (9, [9] * 4), "B": (5, [5] * 3)}


def chosen(rounds, exact, of=median):
    return min(exact, key=lambda name: of(times[name] for times in rounds))


WRITERS = {"pad most": "b", "LSTM most": "a", "LSTM least": "d"}


def ids(lengths):
    return torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))


SPOILT = spoilt_batches()
REPAIRED = [
    (SPOILT[0][0], SPOILT[0][1], True),
    (align(SPOILT[1][0], SPOILT[1][1], batch_first=True), SPOILT[1][1], True),
    (SPOILT[2][0], SPOILT[0][1], True),
]


def gru(i, h, n, products=6):
    return products * h * (i + h) * sum(n)


def collated(pairs, batch_first=True, count=len, tag_of_padding=-100):
    sequences = [sequence for sequence, _ in pairs]
    tags = [torch.tensor(tags) for _, tags in pairs]
    x = pad_sequence(sequences, batch_first=batch_first)
    lengths = torch.tensor([count(sequence) for sequence in sequences])
    return x, lengths, pad_sequence(tags, batch_first=True, padding_value=tag_of_padding)


def gone_backward(losses, total, processes):
    loss = losses.sum() * processes / total
    loss.backward()
    return loss


def in_place(pairs):
    """Pads the lists of tags themselves."""
    for _, tags in pairs:
        tags += [-100] * (max(len(x) for x, _ in pairs) - len(tags))
    return collated(pairs)


def like_the_first(pairs):
    """Takes the width from the first pair."""
    width = len(pairs[0][0])
    x, lengths, tags = collated(pairs)
    return x[:, :width], lengths, tags[:, :width]


CHECKS = {
    checks.gru_flops: (
        {
            "is 7, not 13440. A cell costs 2 · 3": lambda i, h, n: 7,
            "Return one number. Yours is a list": lambda i, h, n: n,
            "the padded count": lambda i, h, n: 6 * h * (i + h) * len(n) * max(n),
            "a multiplication and an addition": partial(gru, products=3),
            "a GRU multiplies three times": partial(gru, products=2),
            "an LSTM's count": partial(gru, products=8),
            "the one with the input": lambda i, h, n: 6 * h * i * sum(n),
            "the one with the state": lambda i, h, n: 6 * h * h * sum(n),
        },
        [gru, lambda i, h, n: torch.tensor(float(gru(i, h, n)))],
    ),
    checks.half_padding: (
        {
            "0 of 10 cells are padding; you need more padding.": [5, 5],
            "24 of 36 cells are padding; you need less padding. Shorten": [9, 1, 1, 1],
            "Your answer does not fit: lengths[1] is 0": [3, 0],
        },
        [[3, 1, 1, 1], [4, 2, 1, 1], torch.tensor([3, 1, 1, 1])],
    ),
    same_scores: (
        {
            "get alone. Shorter reviews have read padding.": partial(scores, pack=False),
            "but in another order. With": partial(scores, restore=False),
            "Give `linear` each review's": partial(scores, state=1),
            "final hidden state": partial(gathered, behind=2),
            "h_n[0] of the packed": lambda reviews: torch.ones(len(reviews), 3),
            "`reviews` lacks the first one.": lambda reviews: scores(REVIEWS),
        },
        [scores, gathered, lambda reviews: scores(reviews).detach().double()],
    ),
    checks.batch_sizes: (
        {
            "lengths [3, 2]. At step t, count": lambda n: n,
            "lengths [2, 2, 2].": lambda n: [3] if n == [2, 2, 2] else right_sizes(n),
            "as many steps as the longest": lambda n: right_sizes(n)[: n[0]],
            "[True, True, True]": lambda n: torch.arange(max(n)) < torch.tensor(n)[:, None],
        },
        [
            right_sizes,
            lambda n: torch.tensor(right_sizes(n)).float(),
            lambda n: torch.tensor(right_sizes(n)),
            lambda n: iter(right_sizes(n)),
        ],
    ),
    staircase: (
        {
            "make 202. With 3 rectangles, 129 is possible.": (0, 16),
            "With 3 rectangles": (0, 9, 16),
            "make 135. With 3 rectangles": (0, 2, 4, 9, 16),
            "make 135. No sequence ends at step 5": (0, 5, 9, 16),
            "make 135. Look at the hatched": (0, 3, 9, 16),
            "make 247. No sequence ends at step 1": range(17),
            "the staircase are (0, 4, 9, 15); give time steps that rise from 0": (0, 4, 9, 15),
            "does not fit: give whole time steps": (0, 4.0, 16),
        },
        [(0, 4, 9, 16), [0, 4, 9, 16], torch.tensor([0, 4, 9, 16])],
    ),
    checks.final_states: (
        {
            "Forward ends at each": lambda output, lengths: output[:, -1],
            "The reverse direction reads the first": last_steps,
            "Yours is a tensor of shape (4, 3)": lambda output, lengths: output[:, 0].T,
            "Yours is a list": lambda output, lengths: lengths,
            "later outputs are zeros": lambda x, n: final_halves(x.cummax(1)[0], n),
            "right states. Put them in the order": lambda x, n: final_halves(x, n).flip(0),
            "Put the forward half first": lambda x, lengths: final_halves(x, lengths).roll(2, 1),
        },
        [final_halves],
    ),
    checks.fair_ratio: (
        {
            "quiet machine: your ratio is 1, but b takes 3": lambda a, b, clock: 1,
            "cold machine: your ratio is 3, but b takes 2": lambda a, b, clock: 3,
            "The first calls are slow": lambda a, b, clock: timed(b, clock) / timed(a, clock),
            "tiring machine: your ratio is 5.94, but b takes 4": blocks,
            "on a busy machine: ": means,
            "spoils a single time": once_warm,
            "your ratio is nan": lambda a, b, clock: float("nan"),
            "over 10,000 calls": lambda a, b, clock: [a() for _ in range(10_001)],
            "could not convert string": lambda a, b, clock: "three",
        },
        [fair_ratio, lambda a, b, clock: torch.tensor(fair_ratio(a, b, clock))],
    ),
    checks.masked_mean: (
        {
            "Add up the real steps": lambda x, lengths: x.mean(1),
            "The padding contains 4": real_mean(lambda x, mask: x),
            "row by row (! marks": real_mean(lambda x, mask: x.where(mask, 0)[:, :, [0, 0]]),
            "Yours is an ndarray": lambda x, lengths: x.mean(1).numpy(),
            "contains NaN here, and 0 × NaN": real_mean(torch.mul),
            "size of tensor": lambda x, n: (
                x.masked_fill(~real_mask(n)[..., None], 0).sum(1) / torch.tensor(n)[:, None]
            ),
            "(3, 2). Yours is a tensor of shape (3, 3).": lambda x, lengths: x.mean(2),
        },
        [
            real_mean(lambda x, mask: x.where(mask, 0)),
            real_mean(lambda x, mask: x.double().where(mask, 0)),
        ],
    ),
    checks.repaired_batches: (
        {
            "batch 1. Look where the zeros lie": SPOILT,
            "batch 2. At which end of its row": [REPAIRED[0], *SPOILT[1:]],
            "batch 3. Count the real steps": [*REPAIRED[:2], SPOILT[2]],
            "Give three batches": REPAIRED[:2],
            "Your answer does not fit: ": [(1, 2), (3, 4), (5, 6)],
        },
        [
            REPAIRED,
            [(x.T.numpy(), n, False) for x, n, _ in REPAIRED],
            ((x.double(), *rest) for x, *rest in REPAIRED),
        ],
    ),
    most_written: (
        {
            "'pad most'. Pad writes whole tensors for each *distinct*": {
                **WRITERS,
                "pad most": "a",
            },
            "'LSTM most'. The LSTM writes a tensor of all": {**WRITERS, "LSTM most": "d"},
            "'LSTM least'. In one of these": {**WRITERS, "LSTM least": "c"},
            "not ['c']": {**WRITERS, "LSTM least": ["c"]},
            "does not fit: 'LSTM least'": {"pad most": "b", "LSTM most": "a"},
        },
        [WRITERS],
    ),
    checks.separate_tests: (
        {
            "the test 'lengths'. The wrong graph passes it": {**TESTS, "lengths": (5, [5] * 4)},
            "the test 'T'. The wrong graph passes it": {**TESTS, "T": (5, [5, 4])},
            "the test 'B'. The wrong graph passes it": {**TESTS, "B": (9, [9] * 4)},
            "the test 'lengths'. Another": {**TESTS, "lengths": (6, [5] * 4)},
            "the test 'T'. Another": {**TESTS, "T": (7, [7, 7, 7, 6])},
            "the test 'B'. Another": {**TESTS, "B": (4, [4] * 3)},
            "does not fit: lengths[0] is 5 (one of 3": {**TESTS, "B": (4, [5] * 3)},
        },
        [TESTS, {**TESTS, "T": (1, torch.ones(4, dtype=int)), "B": (5, (5,))}],
    ),
    checks.document_ids: (
        {
            "Number the documents from 0.": lambda n: ids(n) + 1,
            "These are positions": lambda n: [t for k in n for t in range(k)],
            "go step by step": lambda n: [b for t in range(9) for b, k in enumerate(n) if t < k],
            "lengths [2, 3]. One number per row": lambda n: ids(sorted(n, reverse=True)),
            "These are the lengths": lambda n: [k for k in n for _ in range(k)],
        },
        [ids, lambda n: ids(n).tolist(), lambda n: iter(ids(n))],
    ),
    checks.process_loss: (
        {
            "Each process divides": lambda x, n, w: x.mean(),
            "All tokens weigh the same, but": lambda x, n, w: x.sum() / n,
            "Your loss is a sum, which": lambda x, n, w: x.sum(),
            "Add up the losses,": lambda x, n, w: x.max(),
            "processes with [5, 1, 2] tokens.": lambda x, n, w: 2 * x.sum() / n,
            "a tensor with one number": lambda x, n, w: x.sum().item() * w / n,
            "Only return the loss": gone_backward,
        },
        [lambda x, n, w: x.sum() * w / n, lambda x, n, w: x.mul_(w / n).sum()],
    ),
    checks.right_padded: (
        {
            "lengths [2, 3]. Framed cells are wrong.": lambda x, n: x,
            "Return a tensor of shape (2, 3)": lambda x, n: x[0],
            "zeros are data": lambda x, n: align(
                x, sorted(n), padding_side="right", batch_first=True
            ),
            "so use the lengths": lambda x, n: torch.stack(
                [r.roll(-int(r.nonzero()[0])) for r in x]
            ),
            "lengths [3, 1]. The data are in their place.": lambda x, n: torch.stack(
                [*map(torch.roll, x, n)]
            ),
        },
        [lambda x, n: align(x, n, padding_side="right", batch_first=True)],
    ),
    checks.collate: (
        {
            "three tensors: the": lambda pairs: (*collated(pairs), [1]),
            "Return three tensors": lambda pairs: pad_sequence([x for x, _ in pairs]),
            "then their lengths, then": lambda pairs: tuple(collated(pairs)[i] for i in (0, 2, 1)),
            "Pad them with 0": lambda pairs: collated(pairs)[::-1],
            "The sequences are not right": partial(collated, batch_first=False),
            "The lengths are not right": partial(collated, count=lambda x: int((x != 0).sum())),
            "The tags are not right": partial(collated, tag_of_padding=0),
            "tags that were given": in_place,
            "!": like_the_first,
            "give whole ones": lambda pairs: [part.int() for part in collated(pairs)],
            "order is reversed": lambda pairs: [part.flip(0) for part in collated(pairs)],
        },
        [collated, lambda pairs: [*collated(pairs)]],
    ),
    checks.fastest_exact: (
        {
            "Exact: packed, padded, run.": lambda rounds, exact: "packed",
            "The fastest method of all": lambda rounds, exact: min(rounds[0], key=rounds[0].get),
            "Take the median": partial(chosen, of=mean),
            "two rounds": lambda rounds, exact: min(exact, key=rounds[0].__getitem__),
            "busy in two": lambda rounds, exact: (
                "padded" if "padded" in exact else chosen(rounds, exact)
            ),
            "spoils a mean": lambda rounds, exact: chosen(rounds[::2], exact),
            "the name of a method": lambda rounds, exact: min(rounds[0].values()),
        },
        [chosen],
    ),
}


def marks(check):
    """Before torch 2.13, an LSTM goes step by step even if all packed lengths are equal."""
    return [habit_since("2.13")] if check is most_written else []


WRONG = [
    pytest.param(check, answers[words], words, marks=marks(check))
    for check, (answers, _) in CHECKS.items()
    for words in answers
]
RIGHT = [
    pytest.param(check, answer, marks=marks(check))
    for check, (_, answers) in CHECKS.items()
    for answer in answers
]
OF_A_VALUE = {
    checks.half_padding,
    staircase,
    checks.repaired_batches,
    most_written,
    checks.separate_tests,
}
STUBS = [(check, f) for check in CHECKS if check not in OF_A_VALUE for f in (no_answer, stub)]
EXERCISES = [
    *(check for check in CHECKS if check not in (same_scores, staircase, most_written)),
    checks.same_scores,
    checks.cheapest_staircase,
    checks.most_written,
]
"""Every exercise, in an order that is the same in each process of pytest-xdist."""


@pytest.mark.parametrize("check", EXERCISES)
def test_every_exercise_begins_unsolved(check, monkeypatch):
    stubs = [...] * len(inspect.signature(check).parameters)
    assert check(*stubs).message.startswith("Not solved yet")
    monkeypatch.setenv("PACKVIZ_STRICT", "1")
    with pytest.raises(NotSolvedError):
        check(*stubs)


def can_be_shown(verdict):
    for theme in palette.THEMES:
        ParsedSvg(verdict.to_svg(theme))
    picture, said = verdict.to_svg(), verdict.to_text()
    assert said.startswith(verdict.headline)
    assert said == repr(verdict)
    bundle = verdict._repr_mimebundle_()
    assert (bundle["text/plain"], bundle["image/svg+xml"]) == (said, picture)
    inner = sum(drawing.to_svg().count("<g transform=") for drawing in verdict.drawings)
    assert picture.count("<g transform=") == inner + len(verdict.drawings)
    return said


@pytest.mark.parametrize(("check", "answer"), STUBS)
def test_unsolved(check, answer):
    verdict = check(answer)
    assert not verdict.solved
    assert can_be_shown(verdict).startswith("○ Not solved yet: ")


@pytest.mark.parametrize(("check", "answer", "words"), WRONG)
def test_wrong(check, answer, words):
    verdict = check(answer)
    assert not verdict.solved
    assert words in can_be_shown(verdict)


@pytest.mark.parametrize("check", CHECKS)
def test_what_is_no_answer_at_all(check):
    """A number and None do not fit. For code that raises an error, the message names the line."""
    assert can_be_shown(check(7))[2:].startswith("Your answer does not fit: ")
    if check in OF_A_VALUE:
        assert can_be_shown(check(None))[2:].startswith("Your answer does not fit: ")
    else:
        expected = f"Your answer raised KeyError in line {LINE_OF_RAISE}: 'lost'"
        assert check(raises).message == expected


@pytest.mark.parametrize(("check", "answer"), RIGHT)
def test_right(check, answer, monkeypatch):
    monkeypatch.setenv("PACKVIZ_STRICT", "1")
    verdict = check(answer)
    assert verdict.solved
    assert can_be_shown(verdict).startswith("✓ ")
    assert verdict.drawings


def test_strict_mode_keeps_what_the_answer_raised(monkeypatch):
    monkeypatch.setenv("PACKVIZ_STRICT", "1")
    with pytest.raises(NotSolvedError) as error:
        checks.batch_sizes(raises)
    assert isinstance(error.value.__cause__, KeyError)
    with pytest.raises(NotSolvedError) as error:
        checks.half_padding([5, 5])
    assert str(error.value).startswith("✗ 0 of 10 cells are padding")


def test_a_keyboard_interrupt_is_no_wrong_answer():
    def stop(lengths):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checks.batch_sizes(stop)


def test_a_wrong_answer_is_drawn_beside_the_right_one():
    verdict = checks.batch_sizes(lambda lengths: lengths)
    picture, rows = verdict.drawings
    assert picture.to_text() == show([3, 2]).to_text()
    assert rows.to_text() == (
        "batch sizes of lengths [3, 2] (! marks what differs)\n"
        "          0  1  2\n"
        " yours   !3  2  !\n"
        " target   2  2  1"
    )
    drawing = ParsedSvg(rows.to_svg())
    framed = [box for box in drawing.boxes if box.stroke == palette.LIGHT.wrong]
    assert len(framed) == 2  # the wrong entry and the missing one


entries = st.lists(st.text(max_size=8), max_size=9)


@given(st.text(min_size=1, max_size=300), entries, entries)
@example("<&\"' \x00 \ud800", ["<", "\x00"], ["&"])
@example("word" * 100, [], [])
def test_whatever_a_reader_answers_can_be_drawn(message, yours, target):
    verdict = Verdict(False, message, [Comparison(message, yours, target), show([2, 1])])
    for theme in palette.THEMES:
        ParsedSvg(verdict.to_svg(theme))


def test_a_function_that_returns_nothing_is_not_solved_yet_wherever_the_check_calls_it():
    @exercise
    def check(first, second):
        return Verdict(first(1) + second(number=2) == 6, "So.")

    def twice(number):
        return 2 * number

    assert check(twice, second=twice).solved
    for first, second in ((twice, no_answer), (stub, twice)):
        assert (
            check(first, second=lambda number, f=second: f(number)).to_text()
            == f"○ {NO_RESULT_MESSAGE}"
        )
    assert check(twice, second=lambda number: 0).to_text() == "✗ So."  # 0 is an answer


# Real sentences.


def test_sentences():
    assert len({*sentences()}) == 512
    lengths = sorted(len(sentence) for sentence in sentences() if all(sentence))
    assert (
        lengths[-1] > 4 * lengths[256] > 4
    )  # most short, a few long: the case that the lesson is about
    assert len(lengths) == 512


def test_a_line_of_a_library_is_not_the_readers():
    names = {
        "__name__": "packviz.lessons.mine",
        "pack": pack_padded_sequence,
        "Verdict": Verdict,
    }
    exec(
        "import torch\ndef check(answer):\n"
        '    return Verdict(bool(pack(torch.zeros(3, 2), answer)), "So.")',
        names,
    )
    check = exercise(names["check"])
    assert check([3, 1]).solved
    assert check([1, 3]).message.startswith(
        "Your answer does not fit: `lengths` array must be sorted"
    )
