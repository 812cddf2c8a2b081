"""The museum: every text is what torch says now, every text is found again, and notebooks show nearly every one."""

import logging
import os
import re
import sys
import warnings
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
import torch
from habits import habit_of
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence

import packviz as pv
from packviz.check import museum
from packviz.check.museum import EXHIBITS, NOTHING, SECTIONS

SOURCES = {
    path.name[:2]: path.read_text(encoding="utf-8")
    for name in ("11_error_museum.py", "12_beyond_rnns.py")
    for path in [Path(__file__).parents[3] / "notebooks" / "source" / name]
}
NAMES = [one.name for one in EXHIBITS]
TEXTS = [(one.name, said) for one in EXHIBITS for said in one.texts]


def named(name):
    return EXHIBITS[NAMES.index(name)]


def shown_in(notebook):
    return [one for one in EXHIBITS if one.notebook == notebook]


def cells(notebook):
    """A notebook's cells, as (kind, text): markdown, code, or claims, which check what the code before them shows."""
    parts = re.split(r"(?m)^# %%(.*)\n", SOURCES[notebook])[1:]
    for head, body in zip(parts[::2], parts[1::2], strict=True):
        if "live-timing" in head:
            continue
        kind = "markdown" if "[markdown]" in head else "claims" if "claims" in head else "code"
        yield kind, re.sub(r"(?m)^# ?", "", body).strip() if kind == "markdown" else body


def jagged():
    return torch.nested.nested_tensor([torch.randn(n, 4) for n in (5, 3, 2)], layout=torch.jagged)


IN_NO_NOTEBOOK = {
    "A jagged tensor in an RNN": [
        lambda: torch.nn.LSTM(4, 5, batch_first=True)(jagged()),
        lambda: pack_padded_sequence(jagged(), [5, 3, 2], batch_first=True),
        lambda: pad_packed_sequence(jagged()),
    ],
    "Two jagged tensors that do not fit": [lambda: jagged() + jagged()],
}


# The texts.


@pytest.fixture(scope="module")
def shown():
    """What each exhibit has said just now, and what else went wrong in its cell."""
    said, broken = {}, {}
    patch = pytest.MonkeyPatch()
    patch.delenv("PACKVIZ_STRICT", raising=False)
    patch.setattr(museum, "_put_up", lambda one, texts: said.setdefault(one.name, tuple(texts)))
    threads = torch.get_num_threads()
    for number in SOURCES:
        notebook = ModuleType("a notebook")
        patch.setitem(sys.modules, notebook.__name__, notebook)  # older compilers import what they compile
        for kind, code in cells(number):
            if kind != "markdown":
                here = re.search(r'museum\.exhibit\("(.*?)"\)', code)
                try:
                    exec(compile(code, f"notebook {number}", "exec"), vars(notebook))
                except Exception as error:
                    broken[here[1] if here else code] = error
    for name, mistakes in IN_NO_NOTEBOOK.items():
        with museum.exhibit(name) as told:
            for mistake in mistakes:
                told(mistake)
    patch.undo()
    torch.set_num_threads(threads)
    return said, broken


def verdict(name, said, broken):
    """What is wrong with an exhibit, and whose fault it is; empty if nothing is."""
    recorded = named(name).says
    if said.get(name, recorded) != recorded:
        now = "\n  ".join(said[name])
        return (
            f"changed upstream: torch {torch.__version__} says\n  {now}\nwhere torch {museum.TORCH} said\n  "
            + "\n  ".join(recorded)
            + f"\nLook at exhibit {name!r} again, then renew its text in packviz/check/museum.toml."
        )
    if name in broken:
        return f"broken here: the cell of {name!r} raises {type(broken[name]).__name__}: {broken[name]}"
    return "" if name in said else f"broken here: no cell of the notebook shows {name!r}"


@pytest.mark.parametrize("name", NAMES)
def test_every_exhibit_is_shown_on_any_torch(name, shown):
    said, broken = shown
    assert name in said
    assert name not in broken


@habit_of(museum.TORCH)
@pytest.mark.parametrize("name", NAMES)
def test_torch_says_what_is_recorded(name, shown):
    if complaint := verdict(name, *shown):
        pytest.fail(complaint, pytrace=False)


def test_no_other_cell_of_the_notebooks_fails(shown):
    _, broken = shown
    assert not set(broken) - set(NAMES)


def test_a_changed_text_is_told_from_a_broken_cell():
    name = "Lengths not sorted"
    right = {name: named(name).says}
    assert verdict(name, right, {}) == ""
    changed = verdict(name, {name: ("RuntimeError: sort them",)}, {name: AssertionError()})
    assert changed.startswith(f"changed upstream: torch {torch.__version__} says\n  RuntimeError: sort them\nwhere ")
    assert verdict(name, {name: (NOTHING,)}, {}).startswith("changed upstream: ")
    assert verdict(name, right, {name: NameError("x")}).startswith(
        "broken here: the cell of 'Lengths not sorted' raises"
    )
    assert verdict(name, {}, {}) == "broken here: no cell of the notebook shows 'Lengths not sorted'"


# The collection, and the notebook's walk through it.


@pytest.mark.parametrize(
    ("notebook", "counts"),
    [("11", {"silent": 10, "error": 10, "surprise": 6}), ("12", {"silent": 2, "error": 0, "surprise": 0})],
)
def test_there_are_so_many_exhibits_in_three_rooms(notebook, counts):
    here = shown_in(notebook)
    sections = [one.section for one in here]
    assert {section: sections.count(section) for section in SECTIONS} == counts
    assert sections == sorted(sections, key=list(SECTIONS).index)
    assert [one.number for one in here] == list(range(1, len(here) + 1))


def test_every_exhibit_is_in_order():
    assert len(EXHIBITS) == len(set(NAMES)) == sum(len(shown_in(notebook)) for notebook in [*SOURCES, ""])
    assert [one.name for one in shown_in("")] == list(IN_NO_NOTEBOOK)
    for one in EXHIBITS:
        assert (one.says[0] == NOTHING or NOTHING in one.says) or one.section == "error"
        assert one.texts or one.words
        assert one.why.endswith(".")
        assert one.fix.endswith((".", "?"))


@pytest.mark.parametrize("notebook", SOURCES)
def test_the_notebook_has_them_all_in_order(notebook):
    markdown = "\n".join(text for kind, text in cells(notebook) if kind == "markdown")
    here = [(str(one.number), one.name) for one in shown_in(notebook)]
    assert re.findall(r"(?m)^### (\d+)\. (.*)$", markdown) == here
    assert re.findall(r'with museum\.exhibit\("(.*?)"\)', SOURCES[notebook]) == [name for _, name in here]


@pytest.mark.parametrize("notebook", SOURCES)
def test_every_exhibit_has_the_same_form(notebook):
    """A mistake that is made, and behind it the claims: that it is what the plate says, and that the fix mends it."""
    for (kind, code), (after, claims) in pairwise(cells(notebook)):
        if kind == "code" and "museum.exhibit(" in code:
            assert after == "claims", f"nothing is checked behind\n{code}"
            assert "assert" in claims


def test_the_fixes_that_no_notebook_shows():
    lstm, nested = torch.nn.LSTM(4, 5, batch_first=True), jagged()
    alone = [lstm(part)[0] for part in nested.unbind()]
    packed, _ = lstm(pack_sequence(nested.unbind(), enforce_sorted=False))
    lengths = nested.offsets().diff()
    padded, _ = pv.run(lstm, pad_sequence(nested.unbind(), batch_first=True), lengths)
    torch.testing.assert_close(packed.data, pack_sequence(alone).data)
    torch.testing.assert_close(padded[pv.real_mask(lengths)], torch.cat(alone))
    total = nested + torch.nested.nested_tensor_from_jagged(nested.values(), nested.offsets())
    assert torch.equal(total.values(), 2 * nested.values())


def test_the_plan_leads_to_every_exhibit():
    (plan,) = [text for kind, text in cells("11") if kind == "markdown" and text.startswith("## Plan")]
    links = re.findall(r"(\d+) \[(.*?)\]\(#(.*?)\)", plan)
    assert sorted(links, key=lambda link: int(link[0])) == [
        (str(one.number), one.name, f"{one.number}. {one.name}".replace(" ", "-")) for one in shown_in("11")
    ]


# Search.

TRACEBACK = """Traceback (most recent call last):
  File "/somewhere/train.py", line 41, in <module>
    loss = step(model, batch)
  File "/somewhere/model.py", line 7, in forward
    return self.run(x, lengths.to(x.device))
\x1b[31m{}\x1b[0m
"""


@pytest.mark.parametrize(("name", "said"), TEXTS)
def test_every_text_is_found(name, said):
    for asked in (said, said.upper(), f"  {said}\n", TRACEBACK.format(said), re.sub(r"^\w+: ", "", said)):
        assert pv.explain(asked)[0].name == name
        assert museum.recognise(asked).name == name


@given(st.sampled_from(TEXTS), st.data())
def test_numbers_shapes_and_devices_do_not_matter(text, data):
    name, said = text
    assume(name != "State batch first")  # its two shapes are what tells it from a state of another batch
    device = data.draw(st.sampled_from(["cuda:0", "cuda:13", "mps:0", "xpu:1"]))
    asked = re.sub(r"cuda:0|meta", device, said)
    asked = re.sub(r"(?<!int)\d+(?!D)", lambda m: str(data.draw(st.integers(0, 10**6))), asked)
    assert pv.explain(asked)[0].name == name
    assert museum.recognise(asked).name == name


@pytest.mark.parametrize(("name", "said"), TEXTS)
def test_a_part_is_enough(name, said):
    words = re.sub(r"^\w+: ", "", said).split()
    if len(museum._words(" ".join(words))) >= 8:
        for part in (words[: 2 * len(words) // 3], words[len(words) // 3 :]):
            assert pv.explain(" ".join(part))[0].name == name


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("h_n order", "Whose order is it"),
        ("my lengths are floats", "Fractional lengths"),
        ("why is packing slow", "Slower when packed"),
        ("batch_sizes is broken, it does not equal my lengths", "batch_sizes are not lengths"),
        ("forgot batch_first", "Batch and time swapped"),
        ("does a bidirectional LSTM read the padding?", "Who reads the padding"),
        ("torch.compile graph break", "Compiling a packed RNN"),
        ("DataParallel", "Workers of different widths"),
        ("onnx", "Exporting one half"),
        ("zero length sentence", "An empty sequence"),
        ("output is shorter than the input", "Cut on unpacking"),
        ("truncated sequences", "Lengths too short"),
        ("LSTM output wrong because output[:, -1]", "The last output is not h_n"),
        ("loss becomes nan with padding", "Who reads the padding"),
        ("cross-contamination when packing documents", "Borders lost on the way"),
        ("nested tensor into an LSTM", "A jagged tensor in an RNN"),
        ("what is the shape of cu_seqlens", "cu_seqlens without its 0"),
    ],
)
def test_words_find_what_has_no_text(asked, name):
    assert pv.explain(asked)[0].name == name


@pytest.mark.parametrize(
    "asked",
    [
        "",
        "the",
        "3, two, -1; ☠",
        "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity)",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)",
        "KeyError: 'foo'",
        "ModuleNotFoundError: No module named 'torch'",
        "AttributeError: 'NestedTensor' object has no attribute 'vocabulary'",
        "RuntimeError: CUDA error: device-side assert triggered",
        # Like an exhibit's text, and of another cause.
        "AttributeError: 'list' object has no attribute 'to'",
        "RuntimeError: 'lengths' argument should be a 1D CPU int64 tensor, but got 2D cpu Long tensor",
        "RuntimeError: 'lengths' argument should be a 1D CPU int64 tensor, but got 2D cuda:0 Long tensor",
        "RuntimeError: 'lengths' argument should be a 1D CPU int64 tensor, but got 1D cpu Float tensor",
    ],
)
def test_nothing_like_it(asked):
    assert not pv.explain(asked)
    assert pv.explain(asked).to_text() == "Nothing close."
    assert pv.explain(asked).to_html().count("Nothing close.") == 1
    assert museum.recognise(asked) is None


def test_what_is_no_text():
    with pytest.raises(TypeError, match="text is a NoneType; give the error text, or some words, as a string"):
        pv.explain(None)


@pytest.mark.parametrize("asked", ["IndexError: list index out of range", "RuntimeError: shape mismatch", "lengths"])
def test_a_likeness_is_no_recognition(asked):
    assert museum.recognise(asked) is None


def test_only_what_is_nearly_as_like_comes_along():
    assert [one.name for one in pv.explain("`lengths` array must be sorted in decreasing order")] == [
        "Lengths not sorted"
    ]
    assert len(pv.explain("batch_first")) > 1
    assert len(pv.explain("batch_first", limit=1)) == 1


# Plates, and what happens behind them.


@pytest.mark.parametrize("one", EXHIBITS, ids=NAMES)
def test_plates(one):
    said = one.to_text()
    assert max(map(len, said.splitlines())) <= 100
    flat = " ".join(said.split())
    assert flat.startswith(f"{one.heading} torch says {one.says[0]} ")
    for part in (*one.says, one.why, one.fix, *(text for _, text in one.met), *one.urls):
        assert part in flat
    assert "recorded    torch" not in said
    html = ElementTree.fromstring(one.to_html())
    rows = [tuple("".join(cell.itertext()) for cell in row) for row in html.iter("tr")]
    assert [said for label, said in rows if label == "torch\u00a0says"] == list(one.says)
    assert {("why", one.why), ("fix", one.fix)} <= set(rows)
    assert [link.get("href") for link in html.iter("a")] == one.urls
    assert [caption.text for caption in html.iter("caption")] == [f"{one.heading}: {SECTIONS[one.section]}"]
    assert one._repr_mimebundle_()["text/plain"] == said


def test_a_heading_has_a_number_where_a_notebook_shows_it():
    assert named("Unpacked time first").heading == "2. Unpacked time first"
    assert named("A jagged tensor in an RNN").heading == "A jagged tensor in an RNN"


def test_a_plate_shows_both_texts_where_they_differ():
    one = named("Lengths not sorted")
    assert one.to_text(one.says) == one.to_text()
    changed = one.to_text(["ValueError: sort"])
    assert "torch says  ValueError: sort\nrecorded    torch 2.13 said: RuntimeError: `lengths` array" in changed


def test_links():
    assert named("Lengths not sorted").urls == [
        "https://github.com/facebookresearch/fairseq/issues/1692",
        "https://github.com/pytorch/pytorch/issues/23079",
    ]
    assert named("The last output is not h_n").urls[0] == "https://discuss.pytorch.org/t/114814"


def test_an_exhibit_lets_it_happen(capfd):
    def warn():
        warnings.warn("not for the page", stacklevel=1)
        logging.getLogger("torch").error("nor this")
        os.write(2, b"nor what C++ code writes")
        return 3

    with museum.exhibit("Lengths not sorted") as told:
        assert told(warn) == 3
        assert told(int, "x", base=10) is None
        raise RuntimeError("first line\nsecond line")
    said = capfd.readouterr()
    assert said.err == ""
    lines = said.out.splitlines()
    assert lines[:3] == [
        "torch says  nothing",
        "torch says  ValueError: invalid literal for int() with base 10: 'x'",
        "torch says  RuntimeError: first line",
    ]
    assert lines[3].startswith("recorded    torch 2.13 said: ")


def test_an_exhibit_without_an_error(capsys):
    with museum.exhibit("Lengths too short"):
        pass
    assert f"3. Lengths too short\n{capsys.readouterr().out}" == named("Lengths too short").to_text() + "\n"


def test_a_failed_assertion_and_an_interrupt_are_no_exhibits(capsys):
    for kind in (AssertionError, KeyboardInterrupt):
        with pytest.raises(kind), museum.exhibit("Lengths too short"):
            raise kind
    assert capsys.readouterr().out == ""


def test_an_exhibit_that_is_not_there():
    with (
        pytest.raises(ValueError, match="there is no exhibit 'Dinosaurs'; there are 'Batch and time swapped', "),
        museum.exhibit("Dinosaurs"),
    ):
        pass


def test_the_first_line_of_an_error():
    assert museum.first_line(ValueError("a\nb")) == "ValueError: a"
    assert museum.first_line(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert museum.first_line(RuntimeError("(3, j17, 4)")) == "RuntimeError: (3, j…, 4)"


def test_an_explanation_says_why_and_what_to_do():
    said = (
        "RuntimeError: Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
    )
    found = pv.explain(said)
    one = named("An empty sequence")
    assert found.to_text() == f"{found.summary}\n\n{one.to_text()}"
    assert one.fix.split()[0] in found.to_text()
    bundle = found._repr_mimebundle_()
    assert bundle["text/plain"] == repr(found) == found.to_text()
    assert one.to_html() in bundle["text/html"]
    assert pv.explain(RuntimeError(said.partition(": ")[2])) == found


def test_the_example_of_explain_is_sure():
    (text,) = re.findall(r'pv\.explain\("(.*)"\)', pv.explain.__doc__)
    assert pv.explain(text).sure
