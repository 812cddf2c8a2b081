"""Checks messages with source lines if torch and packviz are reached through links.

On clusters, they often are.
"""

import os
import subprocess
import sys
from pathlib import Path

import torch

import packviz as pv

PROGRAM = """
import os, sys
import numpy, torch, packviz as pv
from torch import nn
from torch.nn.utils import rnn
from packviz.lessons import checks

print(sum("linked" in module.__file__ for module in (torch, pv)), file=sys.stderr)

class Mine(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 2)

    def forward(self, x, lengths):
        packed = pv.pack_padded_sequence(x, lengths, enforce_sorted=False)
        output, _ = self.lstm(packed)
        if lengths.numpy().max() > 4:
            output = output._replace(data=output.data.relu())
        return rnn.pad_packed_sequence(output)

class Runs(Mine):
    def forward(self, x, lengths):
        return pv.run(self.lstm, x, lengths)[0] * lengths.max().item()

torch.manual_seed(0)
inputs = torch.zeros(5, 3, 3), torch.tensor([5, 3, 3])
for module in (Mine(), Runs()):
    print(pv.check_static(module, inputs))

for pack in (rnn.pack_padded_sequence, pv.pack_padded_sequence):
    try:
        with pv.explain_errors():
            pack(inputs[0], inputs[1].flip(0))
    except RuntimeError as error:
        print(error.__notes__)

def fails(lengths):
    return torch.zeros(3)[numpy.int64(7)]

print(checks.batch_sizes(fails))
sys.stdout.flush()
os._exit(0)  # taking the interpreter apart would take half a second
"""


def test_through_a_link(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    for name, module in {"linked_torch": torch, "linked_packviz": pv}.items():
        (tmp_path / name).symlink_to(Path(module.__file__).parents[1], target_is_directory=True)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, tmp_path.glob("linked_*")))}
    command = [sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert not done.returncode, done.stderr[-2000:]
    assert done.stderr.splitlines()[-1] == "2"  # both came through their links
    for line in ("return pv.run(", "if lengths.numpy()"):
        assert f": {line}" in " ".join(done.stdout.split())
    assert "IndexError in line" in done.stdout
    assert done.stdout.count("Lengths not sorted") == 2
