"""The command, called as a function and run as a program."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import packviz as pv
from packviz import cli
from packviz.draw.picture import show

SIZES = ["--input-size", "4", "--hidden-size", "8"]
PROGRAM = [sys.executable, "-m", "packviz"]


def run(*arguments, **kwargs):
    return subprocess.run(
        [*PROGRAM, *arguments], capture_output=True, text=True, encoding="utf-8", **kwargs
    )


def complaint(capsys, *arguments):
    """What the command says of input that it cannot use."""
    assert cli.main([*map(str, arguments)]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("packviz: ")
    assert error.count("\n") == 1
    return error.removeprefix("packviz: ").strip()


def test_show_prints_the_text_twin_or_writes_a_file(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("id,words\nx,5\ny,3\n")
    np.save(tmp_path / "a.npy", np.array([5, 3]))
    for lengths in (["5", "3"], [f"{tmp_path}/a.csv", "--column", "words"], [f"{tmp_path}/a.npy"]):
        assert cli.main(["show", *lengths]) == 0
        assert capsys.readouterr() == (f"{show([5, 3])}\n", "")
    path = tmp_path / "a picture.svg"
    assert cli.main(["show", "5", "3", "--out", str(path)]) == 0
    assert capsys.readouterr() == ("", "")
    assert path.read_text(encoding="utf-8") == show([5, 3]).to_svg()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "5", "x"], "entry 1 is 'x'"),
        (["show", "-1"], "lengths[0] is -1: a sequence has at least 0 time steps"),
        (["show", "100000000000"], "lengths[0] is 100000000000: a Layout has at most"),
        (["show", "no such.csv"], "cannot read no such.csv: No such file or directory"),
        (
            ["show", "5", "--out", "no/such/folder.svg"],
            "cannot write no/such/folder.svg: there is no folder no/such",
        ),
        (
            ["advise", "5", "0", *SIZES],
            "lengths[1] is 0: every sequence needs at least one time step",
        ),
        (["advise", "5", "--device", "tpu", *SIZES], "device is 'tpu'; choose cpu, cuda"),
    ],
)
def test_input_that_cannot_be_used(capsys, arguments, said):
    assert complaint(capsys, *arguments).startswith(said)


@pytest.mark.parametrize(
    "arguments",
    [
        *([], ["draw"], ["show"], ["show", "5", "--colour"]),
        *(
            ["advise", "5", *SIZES, *wrong]
            for wrong in (
                ["--hidden-size", "0"],
                ["--rnn", "MLP"],
                ["--budget", "-1"],
                ["--layers", "x"],
            )
        ),
    ],
)
def test_a_misspelt_command_gets_the_usage(capsys, arguments):
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert capsys.readouterr().err.startswith("usage: packviz")


@pytest.mark.parametrize("begun", ["packviz.cli", "torch.nn.modules.rnn"])
def test_ctrl_c_while_it_starts_ends_it_quietly(tmp_path, begun):
    code = f"""
import signal, sys

class Press:
    def find_spec(name, *where):
        if name == {begun!r}:
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs in its background deaf to Ctrl-C
sys.meta_path.insert(0, Press)
from packviz.__main__ import main
sys.exit(main())
"""
    command = ["study", "savings", "--quick", "--out", tmp_path / "out.json"]
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "packviz: stopped\n")


def test_a_program_that_is_to_be_deaf_to_ctrl_c_is():
    """As what a shell starts in its background, and what stands behind nohup."""
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); from packviz.__main__ import main; main();"
    code += "print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    done = subprocess.run([sys.executable, "-c", code, "show", "2"], capture_output=True, text=True)
    assert done.stdout.endswith("True\n"), done.stderr


def test_a_reader_that_stops_reading_is_no_error():
    lengths = json.dumps([16] * 16)
    program = subprocess.Popen(
        [*PROGRAM, "show", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    program.stdout.close()
    _, error = program.communicate(lengths.encode())
    assert (program.returncode, error) == (0, b"")


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_terminal_without_our_dashes_still_gets_the_numbers(encoding):
    done = run("show", "5", "3", env={"PYTHONIOENCODING": encoding})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{show([5, 3])}\n".encode(encoding, "replace").decode(encoding)


# diagnose


def saved(folder, name, x, lengths=None):
    """The path of a batch as torch or numpy saves it."""
    path = folder / name
    held = {"x": x} if lengths is None else {"x": x, "lengths": torch.tensor(lengths)}
    if path.suffix == ".pt":
        torch.save(held, path)
    elif path.suffix == ".npz":
        np.savez(path, **{key: value.numpy() for key, value in held.items()})
    else:
        np.save(path, x.numpy())
    return str(path)


BATCH = torch.randn(3, 6, 2) * pv.real_mask([6, 4, 2]).unsqueeze(2)


@pytest.mark.parametrize("name", ["a.pt", "a.npz"])
@pytest.mark.parametrize(("lengths", "status"), [([6, 4, 2], 0), ([2, 4, 6], 1)])
def test_diagnose_prints_the_findings_and_fails_on_errors(tmp_path, capsys, name, lengths, status):
    assert cli.main(["diagnose", saved(tmp_path, name, BATCH, lengths), "--batch-first"]) == status
    assert capsys.readouterr() == (f"{pv.diagnose(BATCH, lengths, batch_first=True)}\n", "")


@pytest.mark.parametrize("name", ["a.pt", "a.npz", "a.npy"])
def test_diagnose_takes_lengths_of_its_own(tmp_path, capsys, name):
    path = saved(tmp_path, name, BATCH.transpose(0, 1).contiguous())
    for words in (["6", "4", "6"], ["6,4,6"], [str(tmp_path / "lengths.csv")]):
        (tmp_path / "lengths.csv").write_text("6\n4\n6\n")
        assert cli.main(["diagnose", path, "--lengths", *words]) == 0  # a warning is no error
        assert (
            capsys.readouterr().out
            == f"{pv.diagnose(BATCH, [6, 4, 6], batch_first=True)}\n".replace(
                "(3, 6, 2), read as (B, T, …)", "(6, 3, 2), read as (T, B, …)"
            )
        )


def test_diagnose_refuses_what_is_no_batch(tmp_path, capsys):
    def say(path, *more):
        return complaint(capsys, "diagnose", path, *more)

    for missing in ("no such.pt", "missing", "folder/missing.npz"):
        assert say(missing) == f"cannot read {missing}: No such file or directory"
    (tmp_path / "x.txt").touch()
    assert "x.txt is not a .pt, .npz or .npy file" in say(tmp_path / "x.txt")
    assert "contains no lengths; give them, as in --lengths 5 3 2" in say(
        saved(tmp_path, "a.npy", BATCH)
    )
    assert "entry 0 is 'a'" in say(saved(tmp_path, "a.npy", BATCH), "--lengths", "a", "b")
    assert (
        say(saved(tmp_path, "a.npy", BATCH[0, 0]), "--lengths", 2)
        == "x must be (T, B, …), got shape (2,)"
    )
    torch.save({"y": BATCH, "n": 1}, tmp_path / "named.pt")
    assert "named.pt contains y, n; name the batch x" in say(tmp_path / "named.pt")
    torch.save(torch.nn.GRU(1, 1), tmp_path / "network.pt")
    np.save(tmp_path / "objects.npy", np.array([None]))
    np.save(tmp_path / "words.npy", np.array([["a"]]))
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "empty.pt").touch()
    for name in ("network.pt", "objects.npy", "text.npz", "empty.pt"):
        assert say(tmp_path / name).endswith("it is damaged, or holds more than tensors and arrays")
    np.savez(tmp_path / "words.npz", x=np.array([["a"]]), lengths=[1])
    for name in ("words.npy", "words.npz"):
        assert say(tmp_path / name, "--lengths", 1).endswith(
            f"{name} contains x as <U1; give numbers"
        )


# check

NETWORKS = """
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

class Good(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(4, 8, batch_first=True)
    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True)
        return pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=x.shape[1])[0]

class Bad(Good):
    def forward(self, x, lengths):
        return self.rnn(pack_padded_sequence(x, lengths, batch_first=True))[0].data

class Worse(Bad):
    def forward(self, x, lengths):
        return super().forward(x, lengths) * lengths.max().item()

class Fixed(Good):
    def forward(self, x, lengths):
        return super().forward(x, torch.tensor([3, 2, 1]))

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.rnn = nn.Embedding(9, 4), nn.GRU(4, 8)
    def forward(self, x):
        return self.rnn(self.embedding(x))[0]

instance = Good()
number = 3

def make():
    return Bad(), (torch.randn(2, 3, 4), torch.tensor([3, 2]))

def fails():
    raise KeyError("weights")

def no_rnn():
    return nn.Linear(2, 2)
"""


@pytest.fixture
def networks(tmp_path, monkeypatch):
    """A file of networks, in the folder where the command runs."""
    (tmp_path / "some_networks.py").write_text(NETWORKS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield "some_networks.py"
    sys.modules.pop("some_networks", None)


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("Good", 0, "✓ Good: nothing found"),
        ("instance", 0, "✓ Good: nothing found"),
        ("Words", 0, "✓ Words: nothing found"),
        ("Bad", 0, "! Bad: 1 warning"),
        ("make", 0, "! Bad: 1 warning"),
        ("Worse", 1, "✗ Worse: 1 error, 1 warning"),
        ("Fixed", 3, "✗ Fixed: undecided, 1 error"),
    ],
)
def test_check_prints_the_findings_and_fails_on_errors(networks, capsys, name, status, said):
    place = "some_networks" if name == "make" else networks
    assert cli.main(["check", f"{place}:{name}"]) == status
    out, error = capsys.readouterr()
    assert out.startswith(f"{said}\n")
    assert out.count("where: some_networks.py, line ") == sum(
        map(int, re.findall(r"(\d) (?:error|warning)", said))
    ) - (status == 3)
    assert "not tried: " in out
    assert error == ""


def test_check_takes_lengths_and_backends(networks, capsys):
    assert cli.main(["check", f"{networks}:Good", "--lengths", "7", "2"]) == 0
    assert "compared on: lengths [7, 2]; " in capsys.readouterr().out
    assert (
        cli.main(["check", f"{networks}:Good", "--backends", "trace", "export", "--dynamic"]) == 1
    )
    assert re.search(r"\nexport +✗ no\n", capsys.readouterr().out)
    assert cli.main(["check", f"{networks}:Good", "--lengths-at"]) == 3


def test_a_file_in_a_package_is_part_of_it_and_named_as_it_was_typed(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "somewhere" / "in_a_package" / "inner"
    folder.mkdir(parents=True)
    for one in (folder, folder.parent):
        (one / "__init__.py").touch()
    (folder.parent / "parts.py").write_text(NETWORKS)
    (folder / "model.py").write_text(
        "from ..parts import Good\n\nclass Net(Good):\n    def forward(self, x, lengths):\n"
        "        return super().forward(x, lengths) * lengths.max().item()\n\nclass Sized(Net):\n"
        "    def __init__(self, vocabulary, hidden, *more, depth=1):\n        super().__init__()\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path])
    for home, typed in (
        (tmp_path, "somewhere/in_a_package/inner/model.py"),
        (folder, "model.py"),
        (folder, "../inner/model.py"),
        ("/", str(folder / "model.py")),
    ):
        monkeypatch.chdir(home)
        assert cli.main(["check", f"{typed}:Net"]) == 1
        assert f"where:{typed},line5:returnsuper().forward(x," in "".join(
            capsys.readouterr().out.split()
        )
    said = complaint(capsys, "check", f"{folder / 'model.py'}:Sized")
    assert "def example(): return Sized(vocabulary=…, hidden=…), (x, lengths)" in said
    for name in [name for name in sys.modules if name.startswith("in_a_package")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (
            "some_networks.py",
            "some_networks.py is not MODULE:NAME, such as package.module:name or path/file.py:name",
        ),
        ("some_networks.py:Nothing", "some_networks.py has no Nothing"),
        ("nowhere.py:Good", "cannot import nowhere.py: FileNotFoundError: "),
        ("no.where:Good", "cannot import no.where: ModuleNotFoundError: No module named 'no'"),
        ("some_networks.py:fails", "some_networks.py:fails: KeyError: 'weights'"),
        (
            "some_networks.py:number",
            "some_networks.py:number: expected a network, or a function that returns (net",
        ),
        (
            "some_networks.py:no_rnn",
            "some_networks.py:no_rnn: it has no RNN to make an example for; give a",
        ),
    ],
)
def test_check_says_in_a_line_what_is_no_network(networks, capsys, target, said):
    assert complaint(capsys, "check", target).startswith(said)


def test_a_file_takes_no_other_modules_place(networks, capsys):
    Path("types.py").write_text(NETWORKS)
    types = sys.modules["types"]
    assert cli.main(["check", "types.py:Good"]) == 0
    assert sys.modules["types"] is types


def test_a_file_that_does_not_run_is_told_in_a_line(networks, capsys):
    for code, said in (
        ("x =", "SyntaxError"),
        ("raise SystemExit('enough')", "SystemExit: enough"),
        ("1 / 0", "Zero"),
    ):
        Path("broken.py").write_text(code)
        assert complaint(capsys, "check", "broken.py:x").startswith(
            f"cannot import broken.py: {said}"
        )


# advise


def test_advise_measures_and_recommends(capsys):
    options = [
        "--rnn",
        "GRU",
        *SIZES,
        "--budget",
        "0.2",
        "--bidirectional",
        "--forward",
        "--layers",
        "2",
    ]
    assert cli.main(["advise", "9", "5", "2", *options, "--batch-size", "2"]) == 0
    out, error = capsys.readouterr()
    assert out.startswith(("Use ", "Cannot tell which is fastest; take the simplest, "))
    assert re.search(r"GRU\(4, 8\).*2 layers.*bidirectional, forward alone", out)
    assert "3 sequences of 2 to 9 time steps in 2 batches of 2" in out
    assert out.count("rnn(") + out.count("pv.run(rnn") == 1  # the code to paste
    assert error == ""


def test_the_help_fits_a_screen(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    out = capsys.readouterr().out
    assert len(out.splitlines()) <= 24
    assert all(
        f"\n    {name} " in out
        for name in ("show", "diagnose", "check", "advise", "bench", "study")
    )
