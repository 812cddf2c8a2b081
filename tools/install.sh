#!/bin/sh
# Creates .venv, and installs packviz in it:   sh tools/install.sh lab|site|test [TORCH]
# If a version of torch is given, creates .venv-torch-TORCH instead, with this version in place of the pinned one.
# Reads PYTHON and TORCH_INDEX (see the Makefile). This is a shell script because there may be no Python yet.
set -eu
extra=$1
torch=${2:-}
venv=.venv${torch:+-torch-$torch}
venv_python=$venv/bin/python
constraints=constraints.txt
# PyTorch's own index, which its install page gives for Linux, Pip and CPU.
cpu_index=https://download.pytorch.org/whl/cpu

runs() { command -v "$1" >/dev/null 2>&1 && "$1" -c '' >/dev/null 2>&1; }
# The pinned packages have wheels for these versions of Python.
is_suitable() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' >/dev/null 2>&1; }
# Debian's python3 has no ensurepip, so `python3 -m venv` would fail half-way.
can_make_venv() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

# Sets $python. If there is no suitable Python, prints the reason and exits.
find_python() {
    found='no Python was found'
    if [ -n "${PYTHON:-}" ]; then
        found="'$PYTHON' (from the variable PYTHON) does not run"
        set -- "$PYTHON"
    else
        set -- python3 python3.11 python3.12 python3.13 python3.14
    fi
    for python in "$@"; do
        runs "$python" || continue
        if ! is_suitable "$python"; then
            found="'$python' is $("$python" --version 2>&1)"
        elif ! can_make_venv "$python"; then
            found="'$python' has no venv module (on Debian and Ubuntu, run apt install python3-venv)"
        else
            return 0
        fi
    done
    {
        echo "packviz needs Python 3.11 to 3.14 with the venv module, but $found."
        echo "Install such a Python, or give the path of one:  make lab PYTHON=/path/to/python3"
    } >&2
    exit 1
}

version() { "$1" -c 'import sys; print(sys.version_info[:2])' 2>/dev/null; }
# Is there a usable .venv, and was it created in this folder? (An editable install contains the checkout's path.)
venv_is_good() {
    runs "$venv_python" && { [ -z "${PYTHON:-}" ] || [ "$(version "$PYTHON")" = "$(version "$venv_python")" ]; } &&
         is_suitable "$venv_python" && "$venv_python" -m pip --version >/dev/null 2>&1 &&
        { [ ! -e "$venv/.home" ] || [ "$(cat "$venv/.home")" = "$(pwd -P)" ]; }
}

pip_install() { "$venv_python" -m pip install --disable-pip-version-check -c "$constraints" "$@"; }
# Is torch installed, or in a folder of wheels that pip is configured to use?
has_torch() { pip_install --dry-run --no-index --no-deps torch >/dev/null 2>&1; }
has_nvidia_driver() { command -v nvidia-smi >/dev/null 2>&1 || [ -e /proc/driver/nvidia ]; }

# Runs a command, and fails if it takes longer than the given number of seconds. Not every machine has `timeout`.
within() {
    "$venv_python" -c 'import subprocess, sys
sys.exit(subprocess.run(sys.argv[2:], timeout=float(sys.argv[1])).returncode)' "$@"
}

# Sets $index to the package index for torch. If it is empty, pip uses its default index.
choose_index() {
    index=${TORCH_INDEX-auto}
    [ "$index" = auto ] || return 0
    index=
    # On other systems, pip's default index already has the small build.
    if [ "$(uname -s)" = Linux ] && ! has_nvidia_driver && ! has_torch; then
        index=$cpu_index
        echo "No NVIDIA driver found: installing torch for CPUs from $index (200 MB; for CUDA, several GB)." \
            "For another index, remove $venv and run make $extra TORCH_INDEX=URL, or TORCH_INDEX= for pip's default."
    fi
}

# Installs torch, and nothing else, from $index. The index is first queried with a time limit, so that a host that does
# not answer costs only seconds: pip's own timeout starts again for each address and each try, and does not cover the
# DNS lookup. If an installed torch meets the constraint, it is kept.
install_torch() {
    [ -n "$index" ] || return 0
    within 10 "$venv_python" -m pip index versions --retries 0 --index-url "$index" torch >/dev/null 2>&1 &&
        pip_install --no-deps --index-url "$index" torch ||
        echo "Could not install torch from $index; using pip's default index." >&2
}

if ! venv_is_good; then
    find_python
    echo "Creating $venv with $("$python" --version 2>&1)"
    "$python" -m venv --clear "$venv"
fi
pwd -P >"$venv/.home"
if [ -n "$torch" ]; then
    constraints=$venv/constraints.txt
    sed "s/^torch==.*/torch==$torch/" constraints.txt >"$constraints"
fi

choose_index
install_torch
pip_install -e ".[$extra]"
touch "$venv/.installed-$extra"
# The extra `test` includes the extras `lab` and `site`.
if [ "$extra" = test ]; then touch "$venv/.installed-lab" "$venv/.installed-site"; fi
