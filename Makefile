# Each target does its own set-up: python3 >= 3.11 and make are all that is needed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check
# The library and the laboratory, which brings torch: exactly the version of its constraints.
BOTH   := $(PIP) -c lab/constraints.txt
DATA   := $(or $(SNAPS_DATA),$(abspath $(wildcard ../shared/data)))

LOWEST := .venv-lowest

.PHONY: demo test test-all test-lowest test-pythons fuzz kill lint bench docs package release-check clean
.DELETE_ON_ERROR:

demo: $(VENV)/.core
	$(BIN)/snaps demo --out demo

# On the small arrays of tests a second thread of BLAS only spins, and slows the first. Products have
# other last bits on other processors; with one set of loops, pages print the same on all of them.
TEST := SNAPS_DATA="$(DATA)" OPENBLAS_NUM_THREADS=1 OPENBLAS_CORETYPE=Haswell
# Files side by side, the tests of a file one after the other: they share fixtures.
SIDE := -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
test: $(VENV)/.test
	$(TEST) $(BIN)/python -m pytest $(SIDE) -m "not long"

# With those that take minutes: Spark, a browser, every block of every page, large graphs.
test-all: $(VENV)/.test
	$(TEST) $(BIN)/python -m pytest $(SIDE)

# The attackers of the tests, at length: make fuzz CASES=200000 SEED=7 ATTACKER=names
CASES ?= 20000
SEED  ?= 0
fuzz: $(VENV)/.test
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -W ignore -m tests.fuzz --cases $(CASES) --seed $(SEED) \
		$(if $(ATTACKER),--attacker $(ATTACKER))

# Files, commands and what they need, with the lowest versions allowed; without torch.
test-lowest: $(LOWEST)/.test
	$(TEST) $(LOWEST)/bin/python -m pytest $(SIDE) $(addprefix tests/, cli conformal io test_folder.py \
		checks/test_matrices.py kernels/test_sorting.py predictor/test_persistence.py)

# The core tests on other Pythons, where they are installed; 3.11 has them all in `make test`.
test-pythons:
	SNAPS_DATA="$(DATA)" $(PYTHON) tests/pythons.py 3.12 3.13

# Processes that write are killed at fifty random moments each.
kill: $(VENV)/.test
	$(BIN)/python -m tests.kill --times 50

lint: $(VENV)/.lint
	$(BIN)/ruff format --check src lab tests benchmarks examples docs/*.py
	$(BIN)/ruff check --no-cache src lab tests benchmarks examples docs/*.py
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.bench
	SNAPS_DATA="$(DATA)" $(BIN)/python -m benchmarks

# The pages, offline; a warning is an error. Open build/docs/index.html.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -q docs build/docs

# Wheel and sdist, each installed in an environment that has nothing else.
package: $(VENV)/.package
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(PYTHON) tests/package.py dist/*.whl dist/*.tar.gz

# All that a package index would refuse or show badly; `make package` also installs them.
release-check: $(VENV)/.release
	rm -rf dist
	$(BIN)/python -m build --quiet --outdir dist
	$(BIN)/python tests/release.py dist
	$(BIN)/twine check --strict dist/*

clean:
	rm -rf $(VENV) $(VENV)-* demo build dist src/*.egg-info lab/*.egg-info

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "snaps needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml | $(VENV)/bin/python
	$(PIP) -e .
	touch $@

$(VENV)/.test: pyproject.toml lab/pyproject.toml lab/constraints.txt | $(VENV)/bin/python
	$(BOTH) -e ".[spark,test,docs]" -e lab
	touch $@

$(VENV)/.lint: pyproject.toml lab/pyproject.toml lab/constraints.txt | $(VENV)/bin/python
	$(BOTH) -e ".[lint]" -e lab
	touch $@

$(VENV)/.docs: pyproject.toml lab/pyproject.toml lab/constraints.txt | $(VENV)/bin/python
	$(BOTH) -e ".[docs]" -e lab
	touch $@

$(VENV)/.package: | $(VENV)/bin/python
	$(PIP) "build>=1.2"
	touch $@

$(VENV)/.release: | $(VENV)/bin/python
	$(PIP) "build>=1.2" "twine>=6.1"
	touch $@

$(VENV)/.bench: pyproject.toml lab/pyproject.toml lab/constraints.txt | $(VENV)/bin/python
	$(BOTH) -e ".[bench,spark]" -e lab
	touch $@

$(LOWEST)/.test: pyproject.toml constraints-lowest.txt
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/pip install --quiet --disable-pip-version-check -c constraints-lowest.txt -e ".[test]"
	touch $@
