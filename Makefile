# Each target does its own set-up: python3 >= 3.11 and make are all that is needed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
DATA   := $(or $(SNAPS_DATA),$(wildcard ../shared/data))

.PHONY: demo test fuzz lint bench clean
.DELETE_ON_ERROR:

demo: $(VENV)/.core
	$(BIN)/snaps demo --out demo

# On the small arrays of tests a second thread of BLAS only spins, and slows the first.
test: $(VENV)/.test
	SNAPS_DATA="$(DATA)" OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest

# The attacker of the tests, at length: make fuzz CASES=200000 SEED=7
CASES ?= 20000
SEED  ?= 0
fuzz: $(VENV)/.test
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -W ignore tests/fuzz.py --cases $(CASES) --seed $(SEED)

lint: $(VENV)/.lint
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/mypy

bench: $(VENV)/.bench
	SNAPS_DATA="$(DATA)" $(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) demo build dist src/*.egg-info

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "snaps needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e .
	touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e ".[gnn,datasets,test]"
	touch $@

$(VENV)/.lint: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e ".[gnn,lint]"
	touch $@

$(VENV)/.bench: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e ".[bench,gnn]"
	touch $@
