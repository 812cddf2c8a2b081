# `make lab` and `make test` are the two commands to know; `make help` lists the rest.
# Every path below is relative, so a checkout whose path has spaces in it works.

# The Python that makes .venv. Empty: the first of python3, python3.11 … python3.14 that will do.
PYTHON ?=
# A package index to take torch from: PyTorch's install page names one per CUDA version. Empty: pip's default.
# auto: that, too; but on Linux without an NVIDIA driver the one for CPU.
TORCH_INDEX ?= auto
# The release that `make test-torch` runs the unit tests on, as in: make test-torch TORCH=2.9.1
TORCH ?=
# Passed on to JupyterLab, as in: make lab LAB_ARGS="--no-browser --port 8899"
LAB_ARGS ?=

PY := .venv/bin/python
# Commands a notebook starts (`!packviz show 5 3 2`) must be those of .venv.
WITH_VENV := PATH="$$PWD/.venv/bin:$$PATH"
# Jupyter refuses to run as root, which inside a container is the usual user.
ALLOW_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)
# A copied or moved checkout brings a .venv that still points to the old place: it counts as not installed.
STALE := $(shell [ -x $(PY) ] && [ "$$(cat .venv/.home 2>/dev/null)" = "$$(pwd -P)" ] || echo stale)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help lab site test test-full test-torch notebooks check-notebooks lint bench-ui badge clean stale

help: ## list what make can do here
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-24s%s\n", $$1, $$2 }'

lab: .venv/.installed-lab ## open JupyterLab on the first notebook (pass options with LAB_ARGS="…")
	@echo "JupyterLab prints its address (http://…) below. Ctrl-C ends it."
	@$(WITH_VENV) $(PY) -m jupyterlab --LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb \
		$(ALLOW_ROOT) $(LAB_ARGS)

test: .venv/.installed-test ## run every check and test, in the quick profile
	@$(WITH_VENV) HYPOTHESIS_PROFILE=quick $(PY) tools/run_tests.py

test-full: .venv/.installed-test ## the same, with many more random examples
	@$(WITH_VENV) HYPOTHESIS_PROFILE=full $(PY) tools/run_tests.py

test-torch: ## run the unit tests on another torch: make test-torch TORCH=2.9.1
	@[ -n "$(TORCH)" ] || { echo "Say which torch: make test-torch TORCH=2.9.1" >&2; exit 2; }
	@PYTHON="$(PYTHON)" TORCH_INDEX="$(TORCH_INDEX)" sh tools/install.sh test "$(TORCH)"
	@PATH="$$PWD/.venv-torch-$(TORCH)/bin:$$PATH" TORCH="$(TORCH)" HYPOTHESIS_PROFILE=quick \
		.venv-torch-$(TORCH)/bin/python tools/run_tests.py unit

notebooks: .venv/.installed-test ## run notebooks/source/*.py and write the notebooks with their outputs
	@$(WITH_VENV) $(PY) tools/notebooks.py write

check-notebooks: .venv/.installed-test ## check that the notebooks are as `make notebooks` writes them
	@$(WITH_VENV) $(PY) tools/notebooks.py check

lint: .venv/.installed-test ## ruff and mypy
	@$(PY) tools/run_tests.py lint

site: .venv/.installed-site ## build the web site into build/site (with links to it and to Binder: REPO=owner/name)
	@$(WITH_VENV) $(PY) docs/build.py build/site $(REPO)
	@echo "To look at it: $(PY) -m http.server -d build/site, or open build/site/index.html."

bench-ui: .venv/.installed-test ## time from a key press to the painted frame, per explorer
	@$(WITH_VENV) PYTHONPATH=tools $(PY) -m browser.bench_ui

badge: ## print README's Binder badge: make badge REPO=owner/name
	@[ -n "$(REPO)" ] || { echo "Say where the repository lives: make badge REPO=owner/name" >&2; exit 2; }
	@echo "[![Open in Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/$(REPO)/HEAD?urlpath=lab/tree/notebooks/00_start_here.ipynb)"

clean: ## remove caches, test artefacts and what test-torch installed (keeps .venv)
	rm -rf .venv-torch-* artefacts build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find packviz tools tests notebooks \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +

# One stamp per extra, inside .venv, so that removing .venv removes them too.
.venv/.installed-%: pyproject.toml constraints.txt $(STALE)
	@PYTHON="$(PYTHON)" TORCH_INDEX="$(TORCH_INDEX)" sh tools/install.sh $*
