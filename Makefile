# mirab: make demo | test | check | docs | bench | clean
#
# Everything lives in .venv (marked with the hash of pyproject.toml, so that it is made again when that changes) and out/.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
HASH := $(shell cksum < pyproject.toml | cut -d' ' -f1)
RUN_MARK := $(VENV)/.ready-run-$(HASH)
DEV_MARK := $(VENV)/.ready-dev-$(HASH)
# One more than there are cores: the tests on a real Slurm keep a worker to themselves, and it mostly waits.
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 1)
# Compiled once, whatever the environment says: the tests start hundreds of interpreters.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test check lint types browser daemons wheel docs bench clean soak

help: ## what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | column -t -s $$'\t'

$(BIN)/python:
	@[ -n "$(PYTHON)" ] || { echo "mirab needs Python 3.11 or later: install one, or say make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv module is missing: on Debian, apt-get install python3-venv" >&2; exit 1; }

$(RUN_MARK): | $(BIN)/python
	@echo "Installing mirab into $(VENV) ..."
	@MIRAB_COMPILED=0 $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(DEV_MARK): $(RUN_MARK)
	@echo "Installing the tools of developers into $(VENV) ..."
	@$(BIN)/python -c 'import tomllib; print("\n".join(tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["dev"]))' \
		> $(VENV)/dev-requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement $(VENV)/dev-requirements.txt
	@touch $@

demo: $(RUN_MARK) ## replay a bundled real log under two policies, then run real little jobs under a live service
	@mkdir -p out
	@$(BIN)/mirab demo --html out/demo.html

test: $(DEV_MARK) browser daemons lint types ## everything that must pass: style, types, all tests, the built wheel
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadscope
	@$(MAKE) wheel

check: $(DEV_MARK) ## the fast part: under a minute
	@$(MAKE) lint
	@MIRAB_TEST_QUICK=1 $(BIN)/python -m pytest -n $(WORKERS) -m "not slow and not browser"

lint: $(DEV_MARK)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(DEV_MARK)
	@$(BIN)/mypy

browser: ## Debian's chromium for the page tests (skipped where it cannot be had)
	@.ci/browser

daemons: ## PostgreSQL and Slurm for the tests that stand on real ones (skipped where they cannot be had)
	@.ci/daemons

wheel: $(DEV_MARK) ## build the wheel, look inside, and use it from a fresh environment
	@.ci/wheel $(BIN)/python

docs: $(RUN_MARK) ## write the pages of reference that are made from the code
	@$(BIN)/python -m mirab.cli.reference docs/reference

bench: $(DEV_MARK) ## speed, growth, the measures on several seeds (compiled, where there is a C compiler)
	@if command -v cc >/dev/null; then $(BIN)/python -m bench.compiled run; else $(BIN)/python -m bench.run; fi

soak: $(DEV_MARK) daemons ## ten minutes of everything that can go wrong on a real Slurm, as root
	@$(BIN)/python -m tests.slurm.storm --seconds 600

clean: ## remove what was built (not the environment)
	@rm -rf out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
