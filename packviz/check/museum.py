"""The exhibits of the error museum: what people meet with packed sequences, why it happens, and what to do.

One place for the texts. Notebook 11 makes each mistake happen, `search` finds the exhibit of an error text, and
`explain_errors` adds it to an exception.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from textwrap import wrap
from typing import Any

from packviz.core.quiet import quiet
from packviz.draw.table import Table, Tabled

ROOMS = {
    "silent": "no error, and a wrong answer",
    "error": "an error that does not say why",
    "surprise": "no error, and nothing wrong",
}
"""The rooms of the museum, in the order of the walk."""

NOTHING = "nothing"
"""What torch says where it should say something."""

TORCH = "2.13"
"""The version that the texts are from."""

_WIDTH = 100  # characters of a line


@dataclass(frozen=True, repr=False)
class Exhibit(Tabled):
    """One mistake, or one surprise.

    Attributes:
        name: its heading in the notebook.
        room: one of `ROOMS`.
        why: what happens.
        fix: what to do.
        says: what torch says, in the order in which the notebook tries it: the type and the first line of the text.
        met: other texts of the same cause, with where they were met: another device, function or version.
        asked: where people asked: `repository#number`, of GitHub unless it is the forum.
        words: what people say of it, where there is no text to search for.
        unless: a regular expression: a text with this is of another cause.
    """

    name: str
    room: str
    why: str
    fix: str
    says: tuple[str, ...] = (NOTHING,)
    met: tuple[tuple[str, str], ...] = ()
    asked: tuple[str, ...] = ()
    words: str = ""
    unless: str = ""

    @property
    def number(self) -> int:
        """Its place in the walk, from 1."""
        return 1 + [one.name for one in EXHIBITS].index(self.name)

    @property
    def texts(self) -> list[str]:
        """The error texts that it stands for."""
        return [text for text in [*self.says, *(text for _, text in self.met)] if text != NOTHING]

    @property
    def urls(self) -> list[str]:
        """Where people asked, as links."""
        return [_url(place) for place in self.asked]

    def to_text(self, said: Sequence[str] | None = None) -> str:
        """The plate beside the exhibit.

        Args:
            said: what torch has said just now; the recorded texts if not given. Where it differs, both are shown.
        """
        lines = [f"{self.number}. {self.name}"]
        for label, text in self._parts(said):
            rest = [text] if label == "torch says" else wrap(text, _WIDTH - 12)
            lines += [f"{label if not i else '':<12}{line}" for i, line in enumerate(rest)]
        return "\n".join(lines)

    @property
    def table(self) -> Table:
        """The plate beside the exhibit."""
        return Table(list(self._parts(None)), title=f"{self.number}. {self.name}: {ROOMS[self.room]}", form="<  <")

    def _parts(self, said: Sequence[str] | None) -> Iterator[tuple[str, str]]:
        for text in self.says if said is None else said:
            yield "torch says", text
        if said is not None and tuple(said) != self.says:
            yield "recorded", f"torch {TORCH} said: {' / '.join(self.says)}"
        for where, text in self.met:
            yield "also met", f"{text} ({where})"
        yield "why", self.why
        yield "fix", self.fix
        if self.asked:
            yield "asked", "  ".join(self.urls)


Told = Callable[..., Any]
"""`told(function, *arguments)` calls the function, keeps what torch says of it, and gives the result, if any."""


@contextmanager
def exhibit(name: str) -> Iterator[Told]:
    """Lets a mistake happen, and prints the exhibit's plate with what torch says now.

    An error inside does not go further: it is what was to be shown. Only a failed assertion does.

    Args:
        name: of the exhibit.

    Yields:
        A function that tries one call and goes on, for an exhibit with several (see `Told`).

    Raises:
        ValueError: there is no such exhibit.
    """
    shown = named(name)
    said: list[str] = []

    def told(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        said.append(NOTHING)
        try:
            return function(*args, **kwargs)
        except Exception as error:
            said[-1] = first_line(error)
            return None

    try:
        with quiet():
            yield told
    except AssertionError:
        raise
    except Exception as error:
        said.append(first_line(error))
    _put_up(shown, said or [NOTHING])


def _put_up(shown: Exhibit, said: Sequence[str]) -> None:
    print(shown.to_text(said))


def search(text: str, limit: int = 3) -> list[Exhibit]:
    """Finds the exhibits that an error text belongs to, or that some words describe.

    Args:
        text: an error text, whole or in part, with or without its traceback: numbers, shapes, devices and case do not
            matter. Or words, such as "h_n order".
        limit: how many to give at most.

    Returns:
        The best first. None if nothing is like it.

    Raises:
        TypeError: the text is no string.
    """
    if not isinstance(text, str):
        raise TypeError(f"text is a {type(text).__name__}; give the error text, or some words, as a string")
    scores = [(_score(one, text), one) for one in EXHIBITS]
    least = max(_ENOUGH, max(score for score, _ in scores) / 2)
    best = sorted((pair for pair in scores if pair[0] >= least), key=lambda pair: -pair[0])
    return [one for _, one in best[:limit]]


def recognise(text: str) -> Exhibit | None:
    """The exhibit of which this error text holds a whole text, if there is one."""
    grams = _grams(text)
    found = [
        one
        for one in EXHIBITS
        if not _is_other(one, text) and any(_grams(known) <= grams for known in map(_message, one.texts))
    ]
    return max(found, key=lambda one: max(len(_grams(t)) for t in one.texts), default=None)


def first_line(error: BaseException) -> str:
    """The type of an exception and the first line of its text."""
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}".rstrip(": ")


_ENOUGH = 0.2  # of a score; a text that is held in full has 1 or more
_PART = 0.6  # less than this of a text is no likeness: many errors end with "out of range"
_DEVICE = re.compile(r"\b(?:cuda|cpu|mps|xpu|hpu|xla|meta)(?::\d+)?\b", re.IGNORECASE)
_IDLE = {
    *("a", "an", "and", "are", "be", "by", "can", "do", "does", "for", "from", "how", "i", "in", "is", "it", "my"),
    *("no", "not", "of", "on", "or", "the", "this", "to", "two", "what", "why"),
}
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def _is_other(one: Exhibit, text: str) -> bool:
    """Whether a text is like the exhibit's, and of another cause."""
    return bool(one.unless and re.search(one.unless, text, re.IGNORECASE))


def _score(one: Exhibit, text: str) -> float:
    if _is_other(one, text):
        return 0.0
    asked = _grams(text)
    best = 0.0
    for known in map(_message, one.texts):
        grams = _grams(known)
        both = len(grams & asked)
        # Of a whole error text, most of the known one; of a part of it, most of what was pasted.
        best = max(best, both / len(grams), both / max(len(asked), 3))
    return best * (best >= _PART) + 0.5 * _likeness(one, text)


def _likeness(one: Exhibit, text: str) -> float:
    """The share of the words of a text, weighed by how rare they are in the museum, that the exhibit has."""
    rare, said = _rarity(), _stems(text)
    weights = {word: rare.get(word, 1.0) for word in said}
    total = sum(weights.values())
    told, title = _vocabulary(one.name)
    return sum(w * (1 if word in title else 0.6) for word, w in weights.items() if word in told) / total if total else 0


@cache
def _rarity() -> dict[str, float]:
    """By word: 0 if a third of the exhibits have it, in what names them or else anywhere; more for fewer."""
    everywhere, titles = (Counter(w for one in EXHIBITS for w in _vocabulary(one.name)[i]) for i in (0, 1))
    return {word: max(0.0, math.log(len(EXHIBITS) / n / 3)) for word, n in {**everywhere, **titles}.items()}


@cache
def _vocabulary(name: str) -> tuple[frozenset[str], frozenset[str]]:
    """Every word of an exhibit, and those of its name and of what people say of it."""
    one = named(name)
    title = [one.name, one.words]
    return _stems(" ".join([*title, one.why, one.fix, *one.texts])), _stems(" ".join(title))


def _stems(text: str) -> frozenset[str]:
    """The words of a text that say something, without a plural's s."""
    return frozenset(word.rstrip("s") for word in _words(text) if word not in _IDLE)


def _grams(text: str) -> frozenset[tuple[str, ...]]:
    """The threes of words that follow each other; of a very short text, all its words as one."""
    words = _words(text)
    return frozenset(zip(words, words[1:], words[2:], strict=False)) or frozenset({tuple(words)})


def _words(text: str) -> list[str]:
    """What is left of a text without numbers, shapes, devices, signs and case."""
    return re.findall(r"[a-z_]+", _DEVICE.sub(" ", _COLOUR.sub("", text)).lower())


def _message(text: str) -> str:
    """An error text without its type."""
    return re.sub(r"^\w+: ", "", text)


def named(name: str) -> Exhibit:
    """The exhibit of this name.

    Raises:
        ValueError: there is none.
    """
    for one in EXHIBITS:
        if one.name == name:
            return one
    raise ValueError(f"there is no exhibit {name!r}; there are {', '.join(repr(one.name) for one in EXHIBITS)}")


def _url(place: str) -> str:
    repository, _, number = place.partition("#")
    if repository == "forum":
        return f"https://discuss.pytorch.org/t/{number}"
    return f"https://github.com/{repository}/issues/{number}"


def _pytorch(*numbers: int) -> tuple[str, ...]:
    return tuple(f"pytorch/pytorch#{number}" for number in numbers)


EXHIBITS: tuple[Exhibit, ...] = (
    # Room 1: silent.
    Exhibit(
        "Batch and time swapped",
        "silent",
        "x is (B, T), and batch_first was left out. torch notices only if the number of lengths does not fit. Where B"
        " and T are equal it always fits; with enforce_sorted=False torch does not count, as long as the lengths fit.",
        "batch_first=True, or x.transpose(0, 1). With B = T only the data can tell: pv.diagnose looks where the padding"
        " lies.",
        ("RuntimeError: Expected `len(lengths)` to be equal to batch_size, but got 2 (batch_size=5)", NOTHING, NOTHING),
        (("older versions", "lengths array has incorrect size"),),
        words="batch_first forgotten, wrong dimension, transposed, sequences mixed up, wrong number of lengths",
    ),
    Exhibit(
        "Unpacked time first",
        "silent",
        "batch_first is not kept in a PackedSequence. What was packed from (B, T) unpacks to (T, B) unless you say"
        " batch_first=True again; the next layer takes time steps for sequences.",
        "pad_packed_sequence(packed, batch_first=True).",
        asked=_pytorch(1176),
        words="pad_packed_sequence output shape T x B, dimensions swapped after unpacking",
    ),
    Exhibit(
        "Lengths too short",
        "silent",
        "Packing takes the first lengths[b] steps of each row and leaves the rest out: torch cannot know that it was"
        " data. So does a clamp(max=…) that cuts the lengths but not x.",
        "Count the real steps of the x you pack. If you cut, cut x too.",
        asked=_pytorch(144207),
        words="truncated sequences, truncate input, missing steps, data cut off at the end",
    ),
    Exhibit(
        "Lengths beyond T",
        "silent",
        "batch_sizes goes by the lengths, data by what is there: fewer rows than planned. Packing does not compare the"
        " two. Whatever walks the batch_sizes next runs out of rows, and names neither lengths nor T.",
        "Lengths of this very x: at most x.shape[0], or x.shape[1] with batch_first. Were they taken before x was cut,"
        " or with start and end marks that it does not have?",
        (
            NOTHING,
            "RuntimeError: start (5) + length (1) exceeds dimension size (5).",
            "RuntimeError: shape '[3, 1, 1]' is invalid for input of size 1",
        ),
        (("picking a row", "IndexError: select(): index 5 out of range for tensor of size [5, 1] at dimension 0"),),
        _pytorch(146744),
        "lengths larger than the input, longer than T, length greater than max",
    ),
    Exhibit(
        "Fractional lengths",
        "silent",
        "Lengths become 64-bit whole numbers by cutting off: 3.5 becomes 3. Half a length is not the length of every"
        " second step, and a share of T, multiplied back, is often a hair too small: 15 / 22 * 22 is 14.999….",
        "Whole numbers all the way, counted as your layer counts: (n + 1) // 2. A share: (share * T).round().long().",
        words="float lengths, relative lengths, ratio, stride, downsampling, off by one, last step missing",
    ),
    Exhibit(
        "Too few lengths",
        "silent",
        "With enforce_sorted=False torch picks the rows of x by sorting the lengths. A row without a length is never"
        " picked. A length without a row makes torch look for a row that is not there: an error that does not speak of"
        " lengths.",
        "One length for each row, in its order: assert len(lengths) == x.shape[0].",
        (NOTHING, "IndexError: index out of range in self"),
        (("x is time first", "RuntimeError: INDICES element is out of DATA bounds, id=3 axis_dim=3"),),
        words="dropped sequences, batch got smaller, missing rows, wrong number of lengths",
    ),
    Exhibit(
        "Cut on unpacking",
        "silent",
        "Unpacking gives max(lengths) steps, not the T of x. A mask, a target or an attention of width T no longer"
        " fits; or it does by broadcasting, or by being cut as well, and nobody notices.",
        "pad_packed_sequence(packed, total_length=x.shape[0]), or x.shape[1] with batch_first.",
        asked=_pytorch(1591),
        words="output shorter than input, sequence length changed, total_length, padded width lost",
    ),
    Exhibit(
        "Order lost by hand",
        "silent",
        "PackedSequence(data, batch_sizes) has no indices. Unpacked, its rows stay sorted by length, while labels and"
        " masks are in your order. The same for a batch that you sorted and never put back.",
        "packed._replace(data=…) keeps the indices.",
        words="hand-built packed sequence, apply a layer to packed data, wrong order after unpacking, unsorted_indices"
        " None, labels do not match, sort by length and restore",
    ),
    Exhibit(
        "Too many rows in h_0",
        "silent",
        "With enforce_sorted=False the RNN picks the rows of h_0 that belong to the sorted batch. Rows beyond the batch"
        " are never picked: the state of a larger batch goes in without a word.",
        "Give h_0 exactly B rows: for a smaller last batch, the rows of its own sequences.",
        words="hidden state from previous batch, last batch smaller, drop_last, stateful rnn, extra rows of hidden",
    ),
    Exhibit(
        "Layers taken for h and c",
        "silent",
        "Only an LSTM returns (h, c). A GRU returns h_n of shape (layers, B, H), and Python unpacks a tensor along its"
        " first dimension: with two layers, h is the first layer and c the second. A PackedSequence has four fields.",
        "output, h_n = gru(packed). And to take a packed sequence apart: pad_packed_sequence(packed).",
        (
            NOTHING,
            "ValueError: not enough values to unpack (expected 2, got 1)",
            "ValueError: too many values to unpack (expected 2)",
        ),
        words="tuple, unpack x and lengths from packed, gru returns h and c",
    ),
    # Room 2: errors.
    Exhibit(
        "Lengths not sorted",
        "error",
        "Packing wants the longest sequence first. By default torch insists that you have sorted already.",
        "enforce_sorted=False: torch sorts, and gives outputs, h_n and c_n back in your order.",
        (
            "RuntimeError: `lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can"
            " pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if"
            " you do not need ONNX exportability.",
        ),
        (("older versions", "lengths array has to be sorted in decreasing order"),),
        ("facebookresearch/fairseq#1692", *_pytorch(23079)),
    ),
    Exhibit(
        "Lengths on the GPU",
        "error",
        "The lengths decide how many rows each step has. The program has to know them, so they stay on the CPU, also"
        " when x is on a GPU.",
        "lengths.cpu(). Better: never move them, since .cpu() waits for the GPU.",
        ("RuntimeError: 'lengths' argument should be a 1D CPU int64 tensor, but got 1D meta Long tensor",),
        (
            (
                "recorded in #43227, on a GPU",
                "RuntimeError: 'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor",
            ),
        ),
        _pytorch(43227, 13214),
        unless=r"got (?!1D)\dD|got 1D cpu",  # their shape or their type
    ),
    Exhibit(
        "Two devices",
        "error",
        "The lengths that pad_packed_sequence gives back are on the CPU as well, and so is a mask made of them, or a"
        " state made without device=. It meets a tensor on the GPU.",
        "Move the mask once: pv.padding_mask(lengths, T).to(output.device). Make a state where x is: torch.zeros(…,"
        " device=x.device).",
        ("RuntimeError: Tensor on device cpu is not on the expected device meta!",),
        (
            (
                "recorded in #108246, on a GPU with torch 2.0",
                "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cpu and"
                " cuda:0! (when checking argument for argument index in method wrapper_CUDA__index_select)",
            ),
            (
                "newer versions, on a GPU",
                "RuntimeError: Expected all tensors to be on the same device, but got index is on cpu, different from"
                " other tensors on cuda:0 (when checking argument in method wrapper_CUDA_gather)",
            ),
            (
                "an RNN's state, on a GPU",
                "RuntimeError: Input and hidden tensors are not at the same device, found input tensor at cuda:0 and"
                " hidden tensor at cpu",
            ),
        ),
        _pytorch(7466, 108246),
    ),
    Exhibit(
        "An empty sequence",
        "error",
        "A sequence of length 0 has no first step, so it has no place in the packed data.",
        "Pack the rows that are not empty, and put zeros where the others were.",
        (
            "RuntimeError: Length of all samples has to be greater than 0, but found an element in 'lengths' that is"
            " <= 0",
        ),
        asked=_pytorch(11514, 80605),
        words="zero length, empty sentence, length 0",
    ),
    Exhibit(
        "State batch first",
        "error",
        "batch_first says how x and output are shaped, not the states: h_0 and h_n are always (layers, B, H), with a"
        " row for each sequence.",
        "h_0.transpose(0, 1), and h_n[-1] for the last layer of every sequence.",
        ("RuntimeError: Expected hidden size (1, 3, 4), got [3, 1, 4]",),
        asked=_pytorch(19675, 34036),
        words="batch_first does not change hidden state shape, h_n shape",
    ),
    Exhibit(
        "Workers of different widths",
        "error",
        "Each worker unpacks to the longest sequence of its own share, so the outputs do not fit together. A"
        " total_length from one worker's share may be too small for another's.",
        "pad_packed_sequence(packed, total_length=T), with the T of the whole batch: x.shape, before it is split.",
        (
            "RuntimeError: Sizes of tensors must match except in dimension 0. Expected size 5 but got size 3 for tensor"
            " number 1 in the list.",
            "ValueError: Expected total_length to be at least the length of the longest sequence in input, but got"
            " total_length=3 and max sequence length being 5",
        ),
        (("reported with two GPUs", "Gather got an input of invalid size"),),
        _pytorch(2312, 6299, 1591),
        "DataParallel, DistributedDataParallel, multi GPU, DDP, gather outputs, ranks",
    ),
    Exhibit(
        "No size of its own",
        "error",
        "A PackedSequence is a tuple of tensors and not a tensor. It has no size, shape or dim; its data has.",
        "packed.data.shape; len(packed.batch_sizes) is the number of steps, packed.batch_sizes[0] the number of"
        " sequences.",
        (
            "AttributeError: 'PackedSequence' object has no attribute 'size'",
            "AttributeError: 'PackedSequence' object has no attribute 'shape'",
            "TypeError: tuple indices must be integers or slices, not tuple",
        ),
        (("a BatchNorm", "AttributeError: 'PackedSequence' object has no attribute 'dim'"),),
        unless=r"'(?!PackedSequence|tuple)\w+' object has no",
    ),
    Exhibit(
        "A layer that wants a tensor",
        "error",
        "Only an RNN takes a PackedSequence. Other layers take a tensor: the data, one row per real cell.",
        "packed._replace(data=layer(packed.data)), for a layer that treats each cell alone.",
        (
            "TypeError: sigmoid(): argument 'input' (position 1) must be Tensor, not PackedSequence",
            "TypeError: linear(): argument 'input' (position 1) must be Tensor, not PackedSequence",
            "TypeError: dropout(): argument 'input' (position 1) must be Tensor, not PackedSequence",
        ),
        (
            ("an Embedding", "embedding(): argument 'indices' (position 2) must be Tensor, not PackedSequence"),
            ("torch.cat", "TypeError: expected Tensor as element 0 in argument 0, but got PackedSequence"),
        ),
        _pytorch(25310),
        "apply linear to packed sequence, activation, dropout, embedding",
    ),
    Exhibit(
        "Compiling a packed RNN",
        "error",
        "torch.compile does not trace packing, nor any nn.RNN, nn.GRU or nn.LSTM: it stops there and runs that part as"
        " usual. With fullgraph=True stopping is an error.",
        "Leave fullgraph out: the result is right. Best with pack, RNN and unpack in one submodule that is marked"
        " @torch.compiler.disable, so that the rest is compiled.",
        (
            "Unsupported: Attempted to call function marked as skipped",
            "Unsupported: Attempted to wrap RNN, GRU, or LSTM",
            NOTHING,
        ),
        asked=_pytorch(162375, 141184, 112044),
        words="compile, compiler, dynamo, graph break, fullgraph",
    ),
    Exhibit(
        "Exporting one half",
        "error",
        "ONNX has no packed sequence. The exporter replaces a pair of pack and unpack around an RNN by the RNN's own"
        " lengths; a packed sequence that leaves the model has no partner.",
        "Unpack inside the model, with total_length=, and return a tensor.",
        (
            "RuntimeError: ONNX export failed: Cannot export individual pack_padded_sequence or pad_packed_sequence;"
            " these operations must occur in pairs.",
        ),
        asked=_pytorch(26462, 49936),
        words="onnx export",
    ),
    # Room 3: surprises.
    Exhibit(
        "batch_sizes are not lengths",
        "surprise",
        "lengths has a number for each sequence: its steps. batch_sizes has a number for each step: the sequences that"
        " reach it. Both add up to the rows of data.",
        "To get the lengths back: pad_packed_sequence(packed)[1].",
        asked=_pytorch(1203, 36448),
        words="batch_sizes is broken, wrong batch sizes, do not equal my lengths",
    ),
    Exhibit(
        "The last output is not h_n",
        "surprise",
        "Forward ends at step len − 1, the reverse direction at step 0: it reads backwards. At step len − 1 its output"
        " has seen one step only.",
        "Use h_n: h_n[-2] is forward, h_n[-1] reverse. Or output[b, len − 1, :H] and output[b, 0, H:].",
        asked=("forum#114814", *_pytorch(3587)),
        words="output[len-1] differs from h_n, output[:, -1], bidirectional final state, last hidden state, wrong"
        " lstm output",
    ),
    Exhibit(
        "Who reads the padding",
        "surprise",
        "Padded, a reverse direction starts in the padding and carries it into the real steps. Packed, no direction"
        " ever sees a padding cell.",
        "Pack a bidirectional RNN, or flip each sequence within its length (notebook 04).",
        asked=_pytorch(1811, 3662),
        words="does a bidirectional rnn read padding, bilstm, reverse direction, padding affects output, loss is"
        " nan, nan in the padding",
    ),
    Exhibit(
        "Does packing matter",
        "surprise",
        "With one direction, outputs at real steps are the same padded: the padding comes after them. h_n, c_n and"
        " everything behind them are not, except for the longest sequences.",
        "No need to pack if you read only output, and mask. Else pack, or read step len − 1.",
        words="is packing necessary, same results with and without packing, why pack, pack_padded_sequence useless",
    ),
    Exhibit(
        "Whose order is it",
        "surprise",
        "With enforce_sorted=False outputs, h_n and c_n come back in your order, and h_0 is taken in your order. Only"
        " packed.data, and a batch that you sorted yourself, are in the order of length.",
        "Nothing to do. If you sorted by hand, let torch sort.",
        asked=_pytorch(4927),
        words="is h_n in my order, hidden state order, unsort, restore original order",
    ),
    Exhibit(
        "Slower when packed",
        "surprise",
        "Fewer FLOPs, more work around them: the backward pass of unpacking touches the whole batch once per distinct"
        " length, and a packed RNN on a CPU does so once per step.",
        "Measure. Notebook 07 counts the cause, 08 has what is faster.",
        asked=_pytorch(149194, 1788, 90204),
        words="packing is slow, slower than padding, backward pass slow, performance, training time",
    ),
)
"""Every exhibit, room by room."""
