# Every target works from a bare checkout with Python 3.10 or newer; the first that needs it makes .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# The root of the repository is the package. Type checkers find packages by folder name, so they get a
# folder in which the repository bears the package's name.
TYPING := $(VENV)/typing/tfbridge

WORKERS ?= 2
FUZZ ?=
MATRIX ?=
FUZZ_SECONDS ?= 3600
BENCH ?=
BENCH_FOLDER ?= build/bench

.PHONY: help demo keywords test test-matrix docs fuzz bench bench-all lint release clean
.DEFAULT_GOAL := help

help:  ## show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 10

$(INSTALLED): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	mkdir -p $(dir $(TYPING))
	ln -sfn ../.. $(TYPING)
	touch $@

DOCS := $(VENV)/.docs
$(DOCS): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	touch $@

demo: $(INSTALLED)  ## train a small network, see what was compiled, run it from a C program
	$(BIN)/python -m tfbridge.models.demo

keywords: $(INSTALLED)  ## train a streaming keyword spotter, run it in integers on an emulated microcontroller
	$(BIN)/python -m tfbridge.models.keywords

test: $(INSTALLED)  ## run every test
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile

test-matrix:  ## run the bridge's tests with other versions of Python, TensorFlow and llvmlite (MATRIX="--only 2.18")
	$(PYTHON) packaging/matrix.py $(MATRIX)

docs: $(DOCS)  ## build the documentation into build/site, and run its tests; a broken link or example is an error
	NO_MKDOCS_2_WARNING=1 TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python -m mkdocs build
	$(BIN)/python -m pytest tests/docs

fuzz: $(INSTALLED)  ## look for defects with random programs (FUZZ_SECONDS=600 FUZZ="--part hlo_text --seed 7")
	cd tests && ../$(BIN)/python -m fuzz --seconds $(FUZZ_SECONDS) $(FUZZ)

bench: $(INSTALLED)  ## compare TensorFlow, XLA and tfbridge (BENCH="--quick" for a short run)
	$(BIN)/python -m tfbridge.models.bench $(BENCH)

bench-all: $(INSTALLED)  ## install the other engines and run all suites; results in build/bench
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	mkdir -p $(BENCH_FOLDER)
	failed=0; for suite in kernels ops workloads; do \
	  $(BIN)/python -m tfbridge.models.bench --suite $$suite --engines all --save $(BENCH_FOLDER)/$$suite.json \
	    --plot $(BENCH_FOLDER)/$$suite.png $(BENCH) || failed=1; \
	done; exit $$failed

lint: $(INSTALLED)  ## style and types
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check --quiet .
	$(BIN)/python -m mypy

release: $(INSTALLED)  ## build wheel and sdist into dist, and try each in a new environment
	$(BIN)/python packaging/release.py

clean:  ## remove what the targets made
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
