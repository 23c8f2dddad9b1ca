# `make demo` and `make test` set everything up by themselves, in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-label-studio test-fast coverage torture every-write lint format bench docs wheel repository clean

# the package alone, for the demo
$(VENV)/.package: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "tagmask needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e .
	@touch $@

# tools for developers
$(VENV)/.ready: $(VENV)/.package
	$(PIP) -e '.[dev]'
	@touch $@

# tools for the documentation site
$(VENV)/.docs: $(VENV)/.package
	$(PIP) -e '.[docs]'
	@touch $@

demo: $(VENV)/.package
	$(BIN)/tagmask demo --out demo

test: $(VENV)/.ready
	$(BIN)/python -m pytest -n logical --maxprocesses 8 --dist worksteal

test-fast: $(VENV)/.ready  # under a minute on two cores; for every save
	$(BIN)/python -m pytest -n logical --maxprocesses 8 --dist worksteal -m "not slow and not browser and not processes and not real_data"

coverage: $(VENV)/.ready  # which lines the tests run
	$(PIP) coverage
	$(BIN)/python -m coverage run --source tagmask -m pytest -m "not processes"
	$(BIN)/python -m coverage report --skip-covered --sort cover

torture: $(VENV)/.ready  # an hour of hostile cases; started again it goes on: MINUTES=600 SEED=1 make torture
	$(BIN)/python scripts/torture.py --minutes $${MINUTES:-60} --seed $${SEED:-0} --work torture
	$(BIN)/python scripts/fuzz.py --minutes 10 --seed $${SEED:-0} --keep torture/found

every-write: $(VENV)/.ready  # every operation on the disk fails once, and the power is cut before it: hours
	$(BIN)/python scripts/every_write.py --summary every-write.md

test-label-studio: $(VENV)/.ready  # a real Label Studio server in an environment of its own; docs/how-to/label-studio.md
	$(BIN)/python scripts/label_studio_test.py --work build/label-studio

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.ready  # half an hour on two idle cores; `make bench > bench.md` is what docs/research/benchmarks.md is made from
	@$(BIN)/python benchmarks/all.py

docs: $(VENV)/.docs  # docs/_build/html/index.html; a warning is an error; no network
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going docs docs/_build/html
	@echo "docs/_build/html/index.html"

wheel: $(VENV)/.ready  # built, installed into an empty environment, and used there
	$(BIN)/python scripts/check_wheel.py

repository:  # fill the address of the repository into every file: make repository URL=https://github.com/me/tagmask
	$(PYTHON) scripts/set_repository.py $(URL)

clean:
	rm -rf $(VENV) demo docs/_build
