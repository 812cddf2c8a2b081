# The two most important commands are `make lab` and `make test`. `make help` lists all of them.
# Every path below is relative, so the path of the checkout may contain spaces.

# The Python that creates .venv; empty for the first suitable one of python3 and python3.11 to python3.14.
PYTHON ?=
# The package index for torch; empty for pip's default. PyTorch's install page lists one for each version of CUDA.
# `auto` stands for the index for CPUs on Linux without an NVIDIA driver, and for pip's default index elsewhere.
TORCH_INDEX ?= auto
# The version of torch for `make test-torch`, as in: make test-torch TORCH=2.9.1
TORCH ?=
# Options for JupyterLab, as in: make lab LAB_ARGS="--no-browser --port 8899"
LAB_ARGS ?=

PY := .venv/bin/python
# If a notebook runs a command (`!packviz show 5 3 2`), the command must come from .venv.
WITH_VENV := PATH="$$PWD/.venv/bin:$$PATH"
# By default, Jupyter refuses to run as root, but root is the usual user in a container.
ALLOW_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)
# If the checkout was copied or moved, its .venv still points to the old place, so it must be created again.
STALE := $(shell [ -x $(PY) ] && [ "$$(cat .venv/.home 2>/dev/null)" = "$$(pwd -P)" ] || echo stale)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help lab site test test-full test-torch notebooks pictures check-notebooks lint badge clean stale

help: ## list these commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-24s%s\n", $$1, $$2 }'

lab: .venv/.installed-lab ## open the first notebook in JupyterLab (with options: LAB_ARGS="…")
	@echo "JupyterLab prints its address (http://…) below. To stop it, press Ctrl-C."
	@$(WITH_VENV) $(PY) -m jupyterlab --LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb \
		$(ALLOW_ROOT) $(LAB_ARGS)

test: .venv/.installed-test ## run every check and all tests but the slow ones, with few random examples
	@$(WITH_VENV) HYPOTHESIS_PROFILE=quick $(PY) tools/run_tests.py

test-full: .venv/.installed-test ## run every check and test, with many random examples and the slow tests
	@$(WITH_VENV) HYPOTHESIS_PROFILE=full $(PY) tools/run_tests.py

test-torch: ## run the unit tests on another version of torch: make test-torch TORCH=2.9.1
	@[ -n "$(TORCH)" ] || { echo "TORCH is empty; give a version: make test-torch TORCH=2.9.1" >&2; exit 2; }
	@PYTHON="$(PYTHON)" TORCH_INDEX="$(TORCH_INDEX)" sh tools/install.sh test "$(TORCH)"
	@PATH="$$PWD/.venv-torch-$(TORCH)/bin:$$PATH" TORCH="$(TORCH)" HYPOTHESIS_PROFILE=quick \
		.venv-torch-$(TORCH)/bin/python tools/run_tests.py unit

notebooks: .venv/.installed-test ## run the sources in notebooks/source, and write the notebooks with their outputs
	@$(WITH_VENV) $(PY) tools/notebooks.py write

pictures: .venv/.installed-test ## draw the pictures in docs/ anew
	@$(PY) tools/pictures.py

check-notebooks: .venv/.installed-test ## find defects in the stored notebooks without running them
	@$(WITH_VENV) $(PY) tools/notebooks.py check

lint: .venv/.installed-test ## run ruff and mypy
	@$(PY) tools/run_tests.py lint

site: .venv/.installed-site ## build the web site in build/site (with links to GitHub and Binder: REPO=owner/name)
	@$(WITH_VENV) $(PY) docs/build.py build/site $(REPO)
	@echo "To see the site, open build/site/index.html, or run $(PY) -m http.server -d build/site"

badge: ## print badges for Binder, Colab and the site, and set Colab's address: make badge REPO=owner/name
	@sh tools/badges.sh "$(REPO)"

clean: ## remove caches, test reports, build/, and the environments of test-torch, but not .venv
	rm -rf .venv-torch-* artefacts build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find packviz tools tests notebooks \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +

# A file in .venv for each installed extra. If .venv is removed, these files are removed with it.
.venv/.installed-%: pyproject.toml constraints.txt $(STALE)
	@PYTHON="$(PYTHON)" TORCH_INDEX="$(TORCH_INDEX)" sh tools/install.sh $*
