# `make demo` and `make test` set everything up by themselves, in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test torture lint format bench wheel clean

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "tagmask needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(VENV)/.ready
	$(BIN)/tagmask demo --out demo

test: $(VENV)/.ready
	$(BIN)/python -m pytest -n logical --maxprocesses 8 --dist worksteal

torture: $(VENV)/.ready  # an hour of hostile cases; started again it goes on: MINUTES=600 SEED=1 make torture
	$(BIN)/python scripts/torture.py --minutes $${MINUTES:-60} --seed $${SEED:-0} --work torture

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.ready  # 20 minutes on two idle cores; `make bench > bench.md` is what docs/benchmarks.md is made from
	@$(BIN)/python benchmarks/all.py

wheel: $(VENV)/.ready  # built, installed into an empty environment, and used there
	$(BIN)/python scripts/check_wheel.py

clean:
	rm -rf $(VENV) demo
