"""Compares the files that set up an environment with each other, and runs them if possible.

Conda, Docker and a code host are not available, so their files are read and compared. The Makefile
runs with a stand-in for Python that records its arguments. This needs no network, and takes well
under a second per test.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from packviz import cli
from packviz.lessons import checks
from packviz.ops import private
from packviz.studies import methods_benchmark

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
README = (ROOT / "README.md").read_text()
# What conda-forge calls it.
CONDA_NAMES = {"torch": "pytorch-cpu"}


def requirements(*extras):
    lines = list(PROJECT["dependencies"])
    for extra in extras:
        lines += PROJECT["optional-dependencies"][extra]
    # A line with a marker narrows another one for some machines.
    return {
        r.name: r for r in map(Requirement, lines) if r.name != PROJECT["name"] and not r.marker
    }


def constraints():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {
        r.name: r
        for r in (Requirement(line) for line in lines if line and not line.startswith("#"))
    }


def pinned(requirement):
    (specifier,) = requirement.specifier
    assert specifier.operator == "==", f"{requirement} is no pin"
    return Version(specifier.version)


def conda_environment():
    return yaml.safe_load((ROOT / "environment.yml").read_text())


def conda_specifiers():
    """`{"numpy": "==2.4.*"}`: conda's `numpy=2.4` means that, and its ranges are written as pip's are."""
    found = {}
    for line in (d for d in conda_environment()["dependencies"] if isinstance(d, str)):
        name, text = re.fullmatch(r"([\w.-]+)(.*)", line).groups()
        found[name] = SpecifierSet(re.sub(r"^=([\d.]+)$", r"==\1.*", text))
    return found


# --- the lists of packages ---


def test_constraints_pin_every_direct_dependency_in_the_range_that_pyproject_states():
    pins = constraints()
    for name, requirement in requirements("lab", "site", "test").items():
        assert requirement.specifier.contains(pinned(pins[name])), (
            f"{pins[name]} against {requirement}"
        )


def test_the_tests_run_on_the_pinned_versions():
    found = {name: Version(Version(version(name)).public) for name in constraints()}
    expected = {name: pinned(requirement) for name, requirement in constraints().items()}
    if asked := os.environ.get("TORCH"):  # `make test-torch`
        expected["torch"] = Version(asked)
    assert found == expected


def test_the_range_of_torch_is_what_run_trusts():
    (oldest,) = requirements()["torch"].specifier
    assert str(oldest) == f">={private.OLDEST}"
    assert (
        Version(private.OLDEST)
        <= pinned(constraints()["torch"])
        <= Version(f"{private.NEWEST}.999")
    )


def test_environment_holds_every_runtime_and_lab_dependency_in_the_same_version():
    specifiers = conda_specifiers()
    for name, requirement in requirements("lab").items():
        conda_name = CONDA_NAMES.get(name, name)
        assert conda_name in specifiers, f"environment.yml lacks {conda_name}"
        assert specifiers[conda_name].contains(pinned(constraints()[name])), (
            f"{conda_name} against constraints.txt"
        )
        oldest = min(Version(s.version.removesuffix(".*")) for s in specifiers[conda_name])
        assert requirement.specifier.contains(oldest), (
            f"{conda_name} {oldest} against {requirement}"
        )
    for name in specifiers.keys() & constraints().keys():
        assert specifiers[name].contains(pinned(constraints()[name])), name
    assert all(str(specifier) for name, specifier in specifiers.items() if name != "pip")


def test_environment_takes_its_python_and_its_torch_from_conda():
    specifiers = conda_specifiers()
    assert str(specifiers["python"]) == "==3.11.*"
    assert SpecifierSet(PROJECT["requires-python"]).contains("3.11")
    # In a pip section, torch would be the CUDA wheel, and `-e .` fails on Binder (it copies this
    # file alone first).
    pip_section = [
        line
        for d in conda_environment()["dependencies"]
        if isinstance(d, dict)
        for line in d["pip"]
    ]
    assert not [line for line in pip_section if line.startswith(("-e", ".", "torch"))]
    assert conda_environment()["channels"][0] == "conda-forge"


# --- Binder ---


def test_binder_has_the_same_environment_byte_for_byte():
    copy = ROOT / "binder/environment.yml"
    assert not copy.is_symlink()
    assert copy.read_bytes() == (ROOT / "environment.yml").read_bytes()


@pytest.mark.parametrize("name", ["binder/postBuild", "binder/start", ".ci/run"])
def test_scripts_can_be_run(name):
    script = ROOT / name
    assert os.access(script, os.X_OK)
    assert script.read_bytes().startswith(b"#!/bin/bash\n")
    subprocess.run(["bash", "-n", script], check=True)


# --- the Makefile ---

# Answers as the versions of Python, pip and venv that the environment variables ask for. An index
# has what it is asked for, but with REAL_PIP pip itself asks it.
STAND_IN = """#!/bin/sh
echo "$*" >>"$LOG"
case "$*" in
*version_info*) "$REAL" -c "import sys; sys.version_info = tuple(map(int, '${FAKE_VERSION:-3.11.9}'.split('.'))); $2" ;;
*ensurepip*) [ -z "${FAKE_NO_VENV:-}" ] ;;
--version) echo "Python ${FAKE_VERSION:-3.11.9}" ;;
*"-m venv"*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
*"import subprocess"*) code=$2; shift 3; "$REAL" -c "$code" "${FAKE_LIMIT:-60}" "$@" ;;
*--no-index*) [ -z "${FAKE_NO_TORCH:-}" ] ;;
*--index-url*) [ -z "${REAL_PIP:-}" ] || "$REAL" "$@" ;;
*"install"*"-e ."*) [ -z "${FAKE_NO_INSTALL:-}" ] ;;
esac
"""
NEEDED = "awk bash cat chmod cp dirname find id make mkdir rm sed sh touch uname"


class Checkout:
    """A checkout whose path has a space in it, on a machine with make and our stand-in for Python."""

    def __init__(self, folder):
        self.path = folder / "a check out"
        self.bin = folder / "bin"
        self.log = folder / "log"
        self.bin.mkdir()
        for name in (
            "Makefile",
            "pyproject.toml",
            "constraints.txt",
            "tools/install.sh",
            ".ci/run",
        ):
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.path / name)
        for name in NEEDED.split():
            (self.bin / name).symlink_to(shutil.which(name))
        self.program("python3", STAND_IN)

    def program(self, name, text):
        (self.bin / name).unlink(missing_ok=True)
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def make(self, *arguments, **environment):
        return self.run("make", *arguments, **environment)

    def run(self, *command, **environment):
        """Returns the exit status and the output, and stores in `asked` the arguments of the stand-ins."""
        self.log.write_text("")
        # Nothing of the environment comes along: not MAKEFLAGS, not CI, not an active venv.
        environment |= {
            "PATH": str(self.bin),
            "LOG": str(self.log),
            "REAL": sys.executable,
            "HOME": str(self.path),
        }
        run = subprocess.run(
            command, cwd=self.path, env=environment, capture_output=True, text=True, timeout=300
        )
        self.asked = self.log.read_text().splitlines()
        return run.returncode, run.stdout + run.stderr

    def installs(self):
        asked = [line for line in self.asked if "pip install" in line and "--dry-run" not in line]
        return [line.split("constraints.txt ")[1] for line in asked]


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


def makefile_targets():
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)
    return set(phony[1].split()) - {"stale"}


def test_make_alone_lists_every_target(checkout):
    status, said = checkout.make()
    assert status == 0
    assert set(re.findall(r"^  make ([a-z-]+)  +\S", said, re.M)) == makefile_targets()


def test_make_lab_installs_and_opens_the_first_notebook(checkout):
    checkout.program("id", "#!/bin/sh\necho 0\n")
    status, said = checkout.make("lab", "LAB_ARGS=--no-browser --port 8899")
    assert status == 0, said
    assert checkout.installs() == ["-e .[lab]"]
    start = checkout.asked[-1]
    assert start.startswith(
        "-m jupyterlab --LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb"
    )
    assert start.endswith("--allow-root --no-browser --port 8899")


def test_make_installs_what_is_needed_and_nothing_twice(checkout):
    assert checkout.make("test", FAKE_NO_INSTALL="1")[0] != 0
    assert not any("run_tests" in line for line in checkout.asked)
    checkout.make("test")  # a failed install is tried again
    assert checkout.installs() == ["-e .[test]"]
    for target in ("test", "test-full", "lab", "lint", "notebooks", "check-notebooks"):
        assert "install.sh" not in checkout.make("-n", target)[1], target
    for name in ("pyproject.toml", "constraints.txt"):
        checkout.make("lab")
        later = (checkout.path / ".venv/.installed-lab").stat().st_mtime + 10
        os.utime(checkout.path / name, (later, later))
        assert "install.sh" in checkout.make("-n", "lab")[1]
        os.utime(checkout.path / ".venv/.installed-lab", (later, later))
    checkout.path = checkout.path.rename(checkout.path.with_name("moved here"))
    checkout.make("lab")
    assert "-m venv --clear .venv" in checkout.asked
    assert checkout.installs() == ["-e .[lab]"]


@pytest.mark.parametrize(("unfit", "fit"), [("3.10.13", "3.11.9"), ("3.15.0", "3.14.9")])
def test_a_python_that_will_do_is_found_beside_one_that_will_not(checkout, unfit, fit):
    status, said = checkout.make("lab", FAKE_VERSION=unfit)
    assert status != 0
    assert "needs Python 3.11 to 3.14" in said
    assert f"'python3' is Python {unfit}" in said
    assert not (checkout.path / ".venv").exists()
    checkout.program(f"python{fit.rpartition('.')[0]}", STAND_IN.replace(":-3.11.9", f":-{fit}"))
    checkout.program("python3", STAND_IN.replace(":-3.11.9", f":-{unfit}"))
    status, said = checkout.make("lab")
    assert status == 0, said
    assert f"Creating .venv with Python {fit}" in said


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (
            ["lab", "PYTHON=/no where/python"],
            {},
            "'/no where/python' (from the variable PYTHON) does not run",
        ),
        (["lab"], {"FAKE_NO_VENV": "1"}, "apt install python3-venv"),
        (["test-torch"], {}, "give a version: make test-torch TORCH=2.9.1"),
    ],
)
def test_what_is_missing_is_told(checkout, arguments, environment, message):
    status, said = checkout.make(*arguments, **environment)
    assert status != 0
    assert message in said


# PyTorch's own, the one host that is written down, and only here and in tools/install.sh.
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
no_driver = pytest.mark.skipif(
    Path("/proc/driver/nvidia").exists(), reason="this machine has an NVIDIA driver"
)


@no_driver
def test_a_linux_without_a_driver_takes_the_small_torch(checkout):
    checkout.program("uname", "#!/bin/sh\necho Linux\n")
    _, said = checkout.make("lab", FAKE_NO_TORCH="1")
    assert checkout.installs() == [f"--no-deps --index-url {CPU_INDEX} torch", "-e .[lab]"]
    assert f"installing torch for CPUs from {CPU_INDEX}" in said
    assert "make lab TORCH_INDEX=" in said
    # Not when one is there.
    shutil.rmtree(checkout.path / ".venv")
    _, said = checkout.make("lab")
    assert checkout.installs() == ["-e .[lab]"]
    assert "No NVIDIA driver" not in said


@pytest.mark.parametrize(
    ("program", "says", "arguments"),
    [("uname", "Darwin", []), ("nvidia-smi", "a GPU", []), ("uname", "Linux", ["TORCH_INDEX="])],
)
def test_others_take_pips_default(checkout, program, says, arguments):
    checkout.program(program, f"#!/bin/sh\necho {says}\n")
    _, said = checkout.make("lab", *arguments, FAKE_NO_TORCH="1")
    assert checkout.installs() == ["-e .[lab]"]
    assert "No NVIDIA driver" not in said


# For pip itself: nothing that this machine sets up comes along.
# Its own timeout is longer than `run` waits, so only the limit of the script can end the question.
ONLY_THE_INDEX = {"REAL_PIP": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1"}
ONLY_THE_INDEX["PIP_DEFAULT_TIMEOUT"] = "9999"


def test_an_index_serves_torch_alone_and_costs_seconds_if_it_never_answers(checkout):
    _, said = checkout.make("lab", "TORCH_INDEX=https://index.invalid/cpu")
    assert checkout.installs() == [
        "--no-deps --index-url https://index.invalid/cpu torch",
        "-e .[lab]",
    ]
    assert "using pip's default index" not in said
    shutil.rmtree(checkout.path / ".venv")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        status, said = checkout.make(
            "lab", f"TORCH_INDEX=http://127.0.0.1:{port}", FAKE_LIMIT="2", **ONLY_THE_INDEX
        )
    assert status == 0
    assert (
        f"Could not install torch from http://127.0.0.1:{port}; using pip's default index" in said
    )
    assert checkout.installs() == ["-e .[lab]"]


def test_make_test_torch_runs_the_unit_tests_in_an_environment_of_its_own(checkout):
    status, said = checkout.make("test-torch", "TORCH=2.9.1")
    assert status == 0, said
    assert "-m venv --clear .venv-torch-2.9.1" in checkout.asked
    assert checkout.installs() == ["-e .[test]"]
    assert checkout.asked[-1] == "tools/run_tests.py unit"
    assert not (checkout.path / ".venv").exists()
    own = (checkout.path / ".venv-torch-2.9.1/constraints.txt").read_text().splitlines()
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    assert [(a, b) for a, b in zip(pins, own, strict=True) if a != b] == [
        ("torch==2.13.0", "torch==2.9.1")
    ]
    checkout.make("clean")
    assert not (checkout.path / ".venv-torch-2.9.1").exists()


# --- CI ---


def test_ci_runs_make_test():
    script = (ROOT / ".ci/run").read_text()
    assert script.rstrip().endswith("\nmake test")
    assert "set -euo pipefail" in script
    assert "export CI=true" in script
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    steps = workflow["jobs"]["test"]["steps"]
    assert "bash .ci/run" in [step.get("run") for step in steps]
    assert "artefacts/" in [step.get("with", {}).get("path") for step in steps]


def test_ci_runs_the_oldest_the_pinned_and_the_newest_torch_on_every_python():
    job = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]["torch"]
    pairs = [(row["torch"], row["python"]) for row in job["strategy"]["matrix"]["include"]]
    minors = {".".join(torch.split(".")[:2]) for torch, _ in pairs}
    assert minors == {
        private.OLDEST,
        private.NEWEST,
        ".".join(str(pinned(constraints()["torch"])).split(".")[:2]),
    }
    assert {python for _, python in pairs} == {"3.11", "3.12", "3.13", "3.14"}
    declared = [r for r in map(Requirement, PROJECT["dependencies"]) if r.name == "torch"]
    for torch, python in pairs:
        narrowed = [
            r.specifier
            for r in declared
            if not r.marker or r.marker.evaluate({"python_version": python})
        ]
        assert all(torch in specifier for specifier in narrowed), (torch, python)
    assert job["steps"][-1]["run"] == "make test-torch TORCH=${{ matrix.torch }}"


def test_ci_installs_chromium_where_it_is_missing(checkout):
    checkout.program("id", "#!/bin/sh\necho 0\n")
    chromium = checkout.bin / "chromium"
    checkout.program(
        "apt-get",
        f'#!/bin/sh\necho "apt-get $*" >>"$LOG"; : >"{chromium}"; chmod +x "{chromium}"\n',
    )
    checkout.program(
        "make", '#!/bin/sh\necho "make $* CI=$CI browser=$PACKVIZ_CHROMIUM" >>"$LOG"\n'
    )
    command = ("bash", str(checkout.path / ".ci/run"))
    checkout.run(*command)
    assert "apt-get install -y --no-install-recommends chromium" in checkout.asked
    assert checkout.asked[-1] == f"make test CI=true browser={chromium}"
    # What is named comes before what is found, which is there now.
    checkout.run(*command, PACKVIZ_CHROMIUM="/my/chrome")
    assert not any("apt-get" in line for line in checkout.asked)
    assert checkout.asked[-1] == "make test CI=true browser=/my/chrome"


# --- README ---


def test_readme_names_the_two_commands():
    (block,) = re.findall(r"^## Quick start\n.*?```sh\n(.*?)```", README, re.M | re.S)
    assert [line.split("  ")[0] for line in block.splitlines()] == ["make lab", "make test"]
    assert {*re.findall(r"(?:`|^)make ([a-z-]+)", README, re.M)} <= makefile_targets()


def test_readmes_library_example_runs(fork):
    (block,) = re.findall(r"```python\n(import packviz.*?)```", README, re.S)
    done = fork(block)
    assert done.returncode == 0, done.stderr


def test_readmes_terminal_output_is_what_comes(capsys):
    (said,) = re.findall(r"```console\n\$ packviz show 5 3 2\n(.*?)```", README, re.S)
    assert cli.main(["show", "5", "3", "2"]) == 0
    assert capsys.readouterr().out == said


def test_readmes_times_are_those_of_the_recorded_file():
    found = methods_benchmark.recorded(ROOT / "notebooks/recorded/methods_cpu.json")
    training = {point.name: passes["training"] for point, passes in found.values.items()}
    rows = re.findall(r"^\| (\w+\(.*?) \| ([\d.,]+) \| ([\d.,]+) \| ([\d.,]+) \|$", README, re.M)
    assert len(rows) == 5
    assert found.caption in README
    assert f"all {len(found.points)} combinations" in README
    for name, *shown in rows:
        medians = [
            1e3 * training[name].median(method)
            for method in ("torch padded", "torch packed", "auto")
        ]
        assert [float(text.replace(",", "")) for text in shown] == pytest.approx(medians, rel=0.01)


def notebook_heads():
    """Returns the question at the head of each notebook's source, and its reading time."""
    heads = {}
    for path in sorted((ROOT / "notebooks/source").glob("*.py")):
        source = path.read_text(encoding="utf-8")
        (question,) = re.findall(r"^# \*\*(.+)\*\*$", source, re.M)
        (minutes,) = re.findall(r"^# Time: (?:(\d+) minutes\b)?", source, re.M)
        heads[path.stem] = question, f"{minutes} min" if minutes else "as you like"
    return heads


def test_the_tables_of_notebooks_state_what_their_heads_state():
    heads = notebook_heads()
    readme = re.findall(r"^\| \[`(\w+)`\]\(notebooks/\1\.ipynb\) \| (.+) \|$", README, re.M)
    assert readme == [(stem, question) for stem, (question, _) in heads.items()]
    start = (ROOT / "notebooks/source/00_start_here.py").read_text(encoding="utf-8")
    table = re.findall(r"^# \| \[?`(\w+)`(?:\]\(\1\.ipynb\))? \| (.+) \| (.+) \|$", start, re.M)
    assert table == [(stem, *head) for stem, head in heads.items()]


def test_every_exercise_stands_in_the_one_notebook_that_its_docstring_names():
    sources = {
        path.stem[:2]: path.read_text(encoding="utf-8")
        for path in (ROOT / "notebooks/source").glob("*.py")
    }
    for name in checks.__all__:
        (named,) = re.findall(r"notebook (\d\d)", getattr(checks, name).__doc__)
        assert [number for number, source in sources.items() if f"checks.{name}(" in source] == [
            named
        ]


def test_what_readme_points_to_exists():
    (layout,) = re.findall(r"^## Project layout\n+```text\n(.*?)```", README, re.M | re.S)
    folder, paths = "", []
    for indent, name in re.findall(r"^( *)(\S+)", layout, re.M):
        folder = name if not indent else folder
        paths.append(folder + name if indent else name)
    assert [path for path in paths if not (ROOT / path).exists()] == []


# --- the whole repository ---


def test_no_package_registry_is_written_down():
    # In two pieces, or this file would be the one that is found. Which index serves is each
    # machine's own affair.
    hosts = [
        "pypi." + "org", "python" + "hosted.org", "download.pytorch" + ".org", "anaconda" + ".org",
        "anaconda" + ".com", "npmjs" + ".org", "npmjs" + ".com", "ghcr" + ".io", "quay" + ".io", "docker" + ".io",
    ]  # fmt: skip
    # In a CI container the checkout often belongs to someone else, and git then wants to be told
    # that this is fine.
    listing = [
        "git",
        "-c",
        "safe.directory=*",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    run = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True, text=True)
    files = [path for name in run.stdout.split("\0") if name and (path := ROOT / name).is_file()]
    assert len(files) > 20
    found = {path: [host for host in hosts if host.encode() in path.read_bytes()] for path in files}
    for name in (
        "tools/install.sh",
        "tests/unit/test_setup_files.py",
    ):  # PyTorch's own: see CPU_INDEX
        found[ROOT / name].remove("download.pytorch" + ".org")
    assert {path: names for path, names in found.items() if names} == {}
