# Every verb sets up what it needs; `make demo` and `make test` work on a fresh clone with nothing but Python and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint types unit bench clean help

help:
	@echo "make demo   train MoCo and HaLP on synthetic people, print a table, write demo/report.html"
	@echo "make test   lint, types, doctests, fast and slow tests"
	@echo "make lint | types | unit | bench | clean"

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "halp needs Python 3.10 or newer; say 'make PYTHON=python3.11 …'"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing halp and what it needs into $(VENV) (once) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

demo: $(READY)
	@$(BIN)/halp demo

test: lint types unit

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

unit: $(READY)
	$(BIN)/python -m pytest -q

bench: $(READY)
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) demo .mypy_cache .ruff_cache .pytest_cache
