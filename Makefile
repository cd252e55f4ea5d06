# Everything a developer runs. `make` alone prints this list. The targets make their own virtual environment.

VENV   ?= .venv
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN    := $(VENV)/bin
TESTS  ?= tests
JOBS   ?= 2

.DEFAULT_GOAL := help
.PHONY: help plan test lint types bench graphs docs clean

help: ## Print the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

plan: $(VENV)/.installed ## Plan the bundled transformer block for an H100 and show the result
	$(BIN)/fusesolve plan --hw h100.yaml

test: $(VENV)/.installed-dev ## Run every test (TESTS=tests/unit narrows it, JOBS=4 runs wider)
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal $(TESTS)

lint: $(VENV)/.installed-dev ## Check style with ruff
	$(BIN)/python -m ruff check .

types: $(VENV)/.installed-dev ## Check types with mypy, strictly
	$(BIN)/python -m mypy

bench: $(VENV)/.installed-dev ## Run the benchmarks (each prints ratios and medians of one run)
	@set -e; for script in benchmarks/bench_*.py; do echo "== $$script"; $(BIN)/python $$script; done

graphs: $(VENV)/.installed-dev ## Write the bundled graphs anew from their generator
	$(BIN)/python graphs/generate.py

docs: $(VENV)/.installed-dev ## Write the generated pages of docs/ anew
	$(BIN)/python -m fusesolve.report.rules_page docs/RULES.md
	$(BIN)/python -m fusesolve.report.operators_page docs/OPERATORS.md
	$(BIN)/python -m fusesolve.report.profile_schema fusesolve/schemas/hardware.json
	$(BIN)/python -m tests.docs.pages

clean: ## Remove the virtual environment, caches and build results
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "fusesolve needs Python 3.11 or newer; name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.installed
