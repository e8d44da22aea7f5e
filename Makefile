# Every verb sets up what it needs; `make demo` and `make test` work on a fresh clone with nothing but Python and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

DEV := $(VENV)/.ready-dev

.PHONY: demo test quick lint types unit graph bench golden faults attacks fuzz soak lock sbom clean help

help:
	@echo "make demo     train MoCo and HaLP on synthetic people, print a table, write demo/report.html"
	@echo "make test     lint, types, doctests, fast and slow tests"
	@echo "make quick    lint, types and the fast tests"
	@echo "make graph    which package imports from which"
	@echo "make golden   AGAINST=REVISION: one tiny training per recipe family with both versions, compared bit by bit"
	@echo "make faults   every file-system call of the writers fails in every way, one at a time"
	@echo "make attacks  hostile files of the tests: how many were tried, and the most memory per byte"
	@echo "make fuzz     MINUTES=10: changed files of every format, guided by coverage; what does harm is kept in tests/regressions"
	@echo "make soak     KILLS=1000: trainings killed at random instants, resumed and compared"
	@echo "make lock     WHEELS=FOLDER: requirements.lock from this installation, with the hashes of the package index"
	@echo "make sbom     packages, licences and fingerprints of this installation"
	@echo "make lint | types | unit | bench | clean"

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "halp needs Python 3.10 or newer; say 'make PYTHON=python3.11 …'"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing halp and what it needs into $(VENV) (once) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $(READY)

$(DEV): $(READY)
	@echo "installing what the tests need into $(VENV) (once) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(DEV)

demo: $(READY)
	@$(BIN)/halp demo

test: lint types unit

quick: lint types
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m "not slow" -n 2

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV)
	$(BIN)/mypy

unit: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2

graph: $(READY)
	@$(BIN)/python tests/import_graph.py

golden: $(DEV)
	$(BIN)/python -m benchmarks.golden --against $(AGAINST)

bench: $(DEV)
	$(BIN)/python -m benchmarks

faults: $(DEV)
	cd tests && ../$(BIN)/python -m faults --json ../benchmarks/results/faults.json

attacks: $(DEV)
	cd tests && ../$(BIN)/python -m attacks --json ../benchmarks/results/attacks.json

MINUTES ?= 10
fuzz: $(DEV)
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/python -m pip install --quiet -c constraints.txt atheris || echo "atheris cannot be installed: files are changed blindly"
	cd tests && ../$(BIN)/python -m fuzz --minutes $(MINUTES) --json ../benchmarks/results/fuzz.json

KILLS ?= 1000
soak: $(DEV)
	$(BIN)/python -m benchmarks.soak --kills $(KILLS) --json benchmarks/results/soak.json

lock: $(DEV)
	$(BIN)/python tools/lock.py $(if $(WHEELS),--wheels $(WHEELS)) > requirements.lock.new && mv requirements.lock.new requirements.lock

sbom: $(READY)
	$(BIN)/python tools/sbom.py --json sbom.json --licences licences.md --hashes hashes.txt

clean:
	rm -rf $(VENV) demo .mypy_cache .ruff_cache .pytest_cache
