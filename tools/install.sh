#!/bin/sh
# Make .venv and install packviz into it:   sh tools/install.sh lab|site|test [TORCH]
# With a version of torch, make .venv-torch-TORCH instead, where this one stands in place of the pinned one.
# Reads PYTHON and TORCH_INDEX (see the Makefile). Plain sh: it runs before any Python is known to be there.
set -eu
extra=$1
torch=${2:-}
venv=.venv${torch:+-torch-$torch}
venv_python=$venv/bin/python
constraints=constraints.txt
# PyTorch's own, as its install page gives it for Linux, Pip, CPU.
cpu_index=https://download.pytorch.org/whl/cpu

runs() { command -v "$1" >/dev/null 2>&1 && "$1" -c '' >/dev/null 2>&1; }
# The pinned packages have wheels for these.
will_do() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' >/dev/null 2>&1; }
# Debian's python3 comes without ensurepip, and `python3 -m venv` then fails half-way.
can_make_venv() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

# Sets $python, or says why there is none and ends.
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
        if ! will_do "$python"; then
            found="'$python' is $("$python" --version 2>&1)"
        elif ! can_make_venv "$python"; then
            found="'$python' has no venv module. On Debian and Ubuntu: apt install python3-venv"
        else
            return 0
        fi
    done
    {
        echo "packviz needs Python 3.11 to 3.14, with its venv module; $found."
        echo "Install one, or name one that is here:  make lab PYTHON=/path/to/python3"
    } >&2
    exit 1
}

version() { "$1" -c 'import sys; print(sys.version_info[:2])' 2>/dev/null; }
# Is the .venv that stands here usable, and was it made here? (An editable install holds the checkout's path.)
venv_is_good() {
    runs "$venv_python" && { [ -z "${PYTHON:-}" ] || [ "$(version "$PYTHON")" = "$(version "$venv_python")" ]; } &&
         will_do "$venv_python" && "$venv_python" -m pip --version >/dev/null 2>&1 &&
        { [ ! -e "$venv/.home" ] || [ "$(cat "$venv/.home")" = "$(pwd -P)" ]; }
}

pip_install() { "$venv_python" -m pip install --disable-pip-version-check -c "$constraints" "$@"; }
# Installed, or in a folder of wheels that pip is set up to look into.
has_torch() { pip_install --dry-run --no-index --no-deps torch >/dev/null 2>&1; }
has_nvidia_driver() { command -v nvidia-smi >/dev/null 2>&1 || [ -e /proc/driver/nvidia ]; }

# Fails where a command takes longer than so many seconds. Not every machine has `timeout`, but this one has Python.
within() {
    "$venv_python" -c 'import subprocess, sys
sys.exit(subprocess.run(sys.argv[2:], timeout=float(sys.argv[1])).returncode)' "$@"
}

# Sets $index to where torch is to come from; empty is pip's default.
choose_index() {
    index=${TORCH_INDEX-auto}
    [ "$index" = auto ] || return 0
    index=
    # Elsewhere pip's default is the small one already.
    if [ "$(uname -s)" = Linux ] && ! has_nvidia_driver && ! has_torch; then
        index=$cpu_index
        echo "No NVIDIA driver here: taking torch for the CPU from $index (200 MB; with CUDA it is several GB)." \
            "To have it otherwise, remove $venv, then: make $extra TORCH_INDEX=URL, or TORCH_INDEX= for pip's default."
    fi
}

# Torch alone, from $index. First a question with a time limit: pip's own timeout counts anew for each address and
# each try, and not while a name is looked up, and a host that swallows packets must cost seconds. An installed torch
# that meets the constraint is left alone.
install_torch() {
    [ -n "$index" ] || return 0
    within 10 "$venv_python" -m pip index versions --retries 0 --index-url "$index" torch >/dev/null 2>&1 &&
        pip_install --no-deps --index-url "$index" torch ||
        echo "$index gave no torch: going on with pip's default index." >&2
}

if ! venv_is_good; then
    find_python
    echo "Making $venv with $("$python" --version 2>&1)"
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
# The extra `test` holds the extras `lab` and `site`.
if [ "$extra" = test ]; then touch "$venv/.installed-lab" "$venv/.installed-site"; fi
