# Every verb sets up what it needs; `make demo` and `make test` work on a fresh clone with nothing but Python and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# compiled files are kept: hundreds of processes would compile the package again
export PYTHONDONTWRITEBYTECODE :=

DEV := $(VENV)/.ready-dev

.PHONY: demo test quick fast lint types unit graph docs wheel coverage mutants bench golden surface faults attacks fuzz soak lock audit sbom licences page pictures clean help

help:
	@echo "make demo     train MoCo and HaLP on synthetic people, print a table, write demo/report.html"
	@echo "make test     lint, types, doctests, fast and slow tests"
	@echo "make quick    lint, types and the fast tests without trainings and processes"
	@echo "make graph    which package imports from which"
	@echo "make docs     the documentation as a site in site/; warnings are errors"
	@echo "make wheel    build source distribution and wheel, look into them, try the wheel in an empty environment"
	@echo "make coverage branches that the tests reach"
	@echo "make mutants  one change at a time in the core modules: which no test notices"
	@echo "make golden   AGAINST=REVISION: one tiny training per recipe family with both versions, compared bit by bit"
	@echo "make surface  AGAINST=REVISION: every command with both versions; exit codes, JSON and CSV compared"
	@echo "make faults   every file-system call of the writers fails in every way, one at a time"
	@echo "make attacks  hostile files of the tests: how many were tried, and the most memory per byte"
	@echo "make fuzz     MINUTES=10: changed files of every format, guided by coverage; what does harm is kept in tests/regressions"
	@echo "make soak     KILLS=1000: trainings killed at random instants, resumed and compared"
	@echo "make lock     requirements.lock: the tested versions with the hashes of the package index (uv)"
	@echo "make audit    known vulnerabilities of the locked packages (pip-audit; needs a network)"
	@echo "make sbom     sbom.json: packages and licences of this installation (CycloneDX)"
	@echo "make licences DEPENDENCIES.md: the licence of every locked package, from its metadata"
	@echo "make page     the explorer's page from its source in page/ (needs node)"
	@echo "make pictures screenshots and the moving picture of the explorer (needs Chromium)"
	@echo "make lint | types | unit | bench | clean"

define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "halp needs Python 3.10 or newer; say 'make PYTHON=python3.11 …'"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing halp and what $(2) into $(VENV) (once) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(1)]'
	@touch $(READY)
endef

$(READY): pyproject.toml constraints.txt
	$(call install,explore,it needs)

$(DEV): pyproject.toml constraints.txt
	$(call install,dev,the tests need)
	@touch $(DEV)

# what the tests that build the explorer's page need
PAGE := page/node_modules/.package-lock.json

$(PAGE): page/package-lock.json
	@if ! command -v npm >/dev/null; then echo "there is no npm: tests that build the explorer's page are skipped"; \
	else cd page && npm ci --no-audit --no-fund --loglevel=error || echo "npm ci failed: tests that build the explorer's page are skipped"; fi

demo: $(READY)
	@$(BIN)/halp demo

test: lint  # types beside the tests: neither keeps two cores busy throughout
	@$(MAKE) --no-print-directory -j 2 types unit

quick: lint
	@$(MAKE) --no-print-directory -j 2 types fast

fast: $(DEV) $(PAGE)
	OMP_NUM_THREADS=1 HALP_FUZZ_CASES=10 $(BIN)/python -m pytest -q -m "not slow and not heavy" -n 2 --dist worksteal

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV)
	$(BIN)/mypy

unit: $(DEV) $(PAGE)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal

graph: $(READY)
	@$(BIN)/python tests/import_graph.py

golden: $(DEV)
	$(BIN)/python -m benchmarks.golden --against $(AGAINST)

surface: $(DEV)
	$(BIN)/python -m benchmarks.surface --against $(AGAINST)

DOCS := $(VENV)/.ready-docs

$(DOCS): $(DEV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $(DOCS)

docs: $(DOCS)
	$(BIN)/python tools/result_figures.py
	$(BIN)/python tools/method_figures.py
	$(BIN)/mkdocs build --strict

wheel: $(DOCS)
	$(BIN)/python tools/try_wheel.py

coverage: $(DEV) $(PAGE)
	rm -f .coverage .coverage.*
	@# on the full disk of that test, coverage's own file cannot be written either
	OMP_NUM_THREADS=1 $(BIN)/python -m coverage run -m pytest -q -n 2 --dist worksteal --deselect tests/training/test_kills.py::test_full_disk_keeps_the_last_good_state_in_clear_words
	$(BIN)/python -m coverage combine -q
	$(BIN)/python -m coverage report

MUTANTS ?= /tmp/halp-mutants
mutants: $(DEV)  # in a clone: cosmic-ray edits the files that it tests
	@$(BIN)/python -c 'import cosmic_ray' 2>/dev/null || $(BIN)/python -m pip install --quiet -c constraints.txt cosmic-ray
	rm -rf $(MUTANTS) && git clone --quiet . $(MUTANTS)
	cd $(MUTANTS) && export PYTHONPATH=src OMP_NUM_THREADS=1 PATH=$(abspath $(BIN)):$$PATH && cosmic-ray init tools/mutants.toml session.sqlite \
	  && cosmic-ray exec tools/mutants.toml session.sqlite && cr-report session.sqlite --surviving-only

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

# uv, cyclonedx-py and pip-audit, apart from what halp is tested with
TOOLS := .venv-tools

$(TOOLS)/.ready: pyproject.toml constraints.txt
	@test -x $(TOOLS)/bin/python || $(PYTHON) -m venv $(TOOLS)
	@$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv cyclonedx-bom pip-audit
	@touch $@

lock: $(TOOLS)/.ready
	$(TOOLS)/bin/uv pip compile pyproject.toml --all-extras --constraint constraints.txt --generate-hashes --no-annotate --no-header \
	  --python-version 3.11 --python-platform linux --no-emit-package torch --quiet --output-file requirements.lock

audit: $(TOOLS)/.ready
	@$(TOOLS)/bin/pip-audit -r requirements.lock --require-hashes --disable-pip --strict 2> $(TOOLS)/audit.log; \
	code=$$?; cat $(TOOLS)/audit.log >&2; if grep -q '^ERROR' $(TOOLS)/audit.log; then \
	echo "not audited: the package index cannot be reached, or does not have the package; nothing is known about vulnerabilities" >&2; fi; exit $$code

sbom: $(READY) $(TOOLS)/.ready
	$(TOOLS)/bin/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --output-format JSON --output-file sbom.json

licences: $(DEV)
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	$(BIN)/python tools/licences.py

page: $(PAGE)
	cd page && npm run build

pictures: $(DEV)
	$(BIN)/python -m benchmarks.explore_pictures

clean:
	rm -rf $(VENV) $(TOOLS) site demo .mypy_cache .ruff_cache .pytest_cache
