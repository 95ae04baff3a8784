# `make search` runs a real search on this machine; `make help` lists the rest.
# PYTHON=... names the interpreter (3.11 or newer) that .venv is made with.

BIN = $(or $(VENV),.venv)/bin
SEARCH ?= examples/quickstart.yaml
STUDY ?= quickstart
TESTS ?= tests
GPU_PYTHON ?= $(or $(wildcard $(BIN)/python),python3)

.PHONY: help search test lint format setup gpu clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 10

search:  ## install what is missing, run the quickstart search, export the best architecture
	@scripts/setup
	$(BIN)/nas search $(SEARCH)
	$(BIN)/nas export $(STUDY) --best --out runs/$(STUDY)-best.yaml
	@echo "Look at it in a browser:  $(BIN)/nas dashboard $(STUDY) --open" >&2

test:  ## install what is missing, run every test (TESTS=tests/nas runs some)
	@scripts/setup --test
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile $(TESTS)

lint:  ## style, types, and which package may import which
	@scripts/setup --test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format:  ## format the code
	@scripts/setup --test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

setup:  ## install what is missing, tests and linters included
	@scripts/setup --test

gpu:  ## on a machine with a GPU: tests, comparisons with other libraries, records of tuning spaces; resumes
	@status=0; \
	timeout 600 $(GPU_PYTHON) -m pytest -p no:benchmark -m cuda tests/kernels tests/tuner || status=1; \
	timeout 600 $(GPU_PYTHON) -m benchmarks.gpu || status=1; \
	timeout 600 $(GPU_PYTHON) -m tuner.replay.record --folder runs/gpu/records || status=1; \
	exit $$status

clean:  ## remove what was installed and cached; studies and exports stay
	rm -rf $(or $(VENV),.venv) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
