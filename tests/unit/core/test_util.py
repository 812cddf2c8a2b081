"""Tests that tell the reader's code from that of libraries by the module of a frame."""

import json
from pathlib import Path
from traceback import walk_tb

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

import packviz as pv
from packviz.core.util import is_user_code, package_name


def frames(call):
    """Returns the package of each frame below this one in a traceback, and whether its code is the
    reader's."""
    try:
        call()
    except Exception as error:
        return [
            (package_name(frame), is_user_code(frame)) for frame, _ in walk_tb(error.__traceback__)
        ][2:]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: pack_padded_sequence(torch.zeros(3, 2), [1, 2]), "torch"),
        (lambda: json.loads("x"), "json"),
        (lambda: pv.Layout([-1]), "packviz"),
        (lambda: np.stack([]), "numpy"),
    ],
)
def test_libraries(call, name):
    assert set(frames(call)) == {(name, False)}


# A file beside packviz whose name begins alike, a cell, and no file at all.
@pytest.mark.parametrize(
    "path", [f"{Path(pv.__file__).parent}_mine.py", "/tmp/ipykernel_1/2.py", "<forward>", ""]
)
@pytest.mark.parametrize("module", ["__main__", "packviz_mine", "mine.torch", None])
def test_a_readers_code_wherever_it_lies(path, module):
    names = {} if module is None else {"__name__": module}
    exec(compile("def mine():\n    return 1 / 0", path, "exec"), names)
    assert [one for _, one in frames(lambda: names["mine"]())] == [True]
