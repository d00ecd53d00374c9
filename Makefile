# fk-pipeline: everything a developer runs. `make` alone lists it.
#
#   make setup PYTHON=python3.12      another Python (3.11 or newer)
#   make setup UV=                    pip although uv is there (say, because only pip knows your package mirror)
#   make setup JARS_FROM=DIR          the Delta JARs from a folder instead of Maven Central
#   make test WORKERS=4               tests in four processes instead of three (about 2 GB of memory each)
#   FK_MAVEN_BASE_URL=... make setup  the Delta JARs from a mirror

.DEFAULT_GOAL := help
.PHONY: help setup demo up down test test-classic test-durations test-connect test-fast test-lowest test-docs test-ui test-all fuzz fuzz-formats bench bench-age bench-chain bench-endless bench-query bench-ticks bench-tpch docs docs-serve docs-reference lint format lock dist clean
MAKEFLAGS += --no-print-directory
SHELL := /bin/bash
# Images of containers often set it; then every process, and every process of a test, compiles all modules anew.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
BENCH_STAMP := $(VENV)/.bench-done
DOCS_STAMP := $(VENV)/.docs-done
UV ?= $(shell command -v uv 2>/dev/null)
PYTHON ?=
JARS_FROM ?=
TESTS ?=
WORKERS ?= 3
# The files of tests in as many processes, each with a session of its own; the longest first (tests/durations.py).
AT_ONCE = $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
PIPELINES ?= $(if $(FK_PIPELINES),,fk-pipeline-demo)
# Without the advertisement of another program that the theme prints.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs
# Tested with 3.11, 3.12 and 3.13; Dagster and Great Expectations refuse 3.15.
PYTHON_FITS := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))

help: ## this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## the environment in .venv, Delta JARs included; nothing after it needs the network
	@$(BIN)/python -m fk_pipeline.environment.jars $(if $(JARS_FROM),--from-dir "$(JARS_FROM)")

demo: setup ## real data, small, end to end
	@$(BIN)/fk-pipeline demo

up: setup ## Dagster's pages and daemon and a warm Spark, in the background; PIPELINES="files or folders", else the demo's
	@$(BIN)/fk-pipeline up $(PIPELINES)

down: $(STAMP) ## ends what `make up` started
	@$(BIN)/fk-pipeline down

.PHONY: classes
classes: $(STAMP)
	@$(BIN)/python tests/class_archive.py

test: classes ## every test that is not slow, and beside them what Spark Connect does otherwise once more as its client
	@$(MAKE) --jobs=2 test-classic test-connect

test-classic: classes ## every test that is not slow, without those of Spark Connect once more
	FK_TEST_SPARK=interpreted $(AT_ONCE) -m "not slow and not docs" $(TESTS)

test-durations: classes ## the tests of `make test`, and the seconds of each file stored: the longest then run first
	FK_TEST_SPARK=interpreted $(AT_ONCE) -m "not slow and not docs" --store-durations

test-connect: WORKERS = 1
test-connect: classes ## the tests of what sessions do differently, as a client of a Connect server of ours
	FK_TEST_SPARK=connect $(AT_ONCE) -m "connect and not slow" $(TESTS)

test-fast: $(STAMP) ## the tests without Spark
	$(AT_ONCE) -m "not spark and not slow and not docs" $(TESTS)

test-lowest: $(STAMP) ## the tests of stages, tables and Dagster with the lowest versions that the package accepts, in .venv-lowest
	@$(BIN)/python tests/lowest.py > build-lowest.txt
	@test -x .venv-lowest/bin/python || $(BIN)/python -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --requirement build-lowest.txt && rm build-lowest.txt
	.venv-lowest/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	.venv-lowest/bin/pytest -n $(WORKERS) --dist loadfile -m "not slow and not docs" $(or $(TESTS),tests/spec tests/cdc tests/store tests/engine/test_join.py tests/dagster)

test-docs: classes ## the examples, and the code blocks of README, documentation and examples, as a reader runs them; without three long pages
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "not slow" tests/docs tests/examples

test-ui: classes ## the tests with Dagster's servers, one of them in a real browser
	$(BIN)/pytest -m servers $(TESTS)

fuzz: $(STAMP) ## random schedules of batches, stages, rewrites and crashes, for about twenty minutes
	$(BIN)/python -m tests.any_order.fuzz $(FUZZ)

fuzz-formats: $(STAMP) ## mutated lines and files of every format, for about ten minutes
	$(BIN)/python -m tests.cdc.fuzz $(FUZZ)

bench: setup $(BENCH_STAMP) ## our batches beside full recomputes and Kafka Streams; BENCH="--help" lists the options
	$(BIN)/python benchmarks $(BENCH)

bench-age: setup ## a pipeline after a thousand small batches beside a young one; BENCH="--help" lists the options
	$(BIN)/python benchmarks/age.py $(BENCH)

bench-chain: setup $(BENCH_STAMP) ## one changed row through three pipelines in a row; BENCH="--help" lists the options
	$(BIN)/python benchmarks/chain.py $(BENCH)

bench-query: setup $(BENCH_STAMP) ## refreshes of queries beside the same queries by Spark and DuckDB; BENCH="--help" lists the options
	$(BIN)/python benchmarks/query.py $(BENCH)

bench-tpch: setup $(BENCH_STAMP) ## refreshes of the 22 queries of TPC-H beside Spark and DuckDB; BENCH="--help" lists the options
	$(BIN)/python benchmarks/tpch.py $(BENCH)

bench-ticks: setup ## the sensor of a pipeline with 5,000 batches; BENCH="--help" lists the options
	$(BIN)/python benchmarks/ticks.py $(BENCH)

bench-endless: setup $(BENCH_STAMP) ## a windowed join with retention over a thousand batches; BENCH="--help" lists the options
	$(BIN)/python benchmarks/endless.py $(BENCH)

docs: $(DOCS_STAMP) ## the site of docs/ in build/site; a link that leads nowhere is an error
	@$(MKDOCS) build --strict
	@echo "build/site/index.html"

docs-serve: $(DOCS_STAMP) ## the site at http://127.0.0.1:8000, built anew when a page changes
	@$(MKDOCS) serve --dev-addr 127.0.0.1:8000

docs-reference: $(STAMP) ## the tables of docs/reference that the code says itself, written anew
	$(BIN)/python docs/generate.py

test-all: $(STAMP) ## every test, and all of those for Spark Connect
	$(BIN)/pytest
	FK_TEST_SPARK=connect $(AT_ONCE) -m connect

lint: $(STAMP) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP) ## ruff's fixes and layout, written
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: ## requirements.lock anew from pyproject.toml (needs uv and the network; UPGRADE=--upgrade for newer versions)
	@: $(or $(UV),$(error lock needs uv: see https://docs.astral.sh/uv))
	"$(UV)" pip compile --quiet --universal --python-version 3.11 --extra dev --no-header --no-annotate \
	    --no-emit-index-url --no-emit-find-links $(UPGRADE) --output-file requirements.lock pyproject.toml

dist: $(STAMP) ## wheel and sdist in dist/, both from this tree; needs no network
	rm -rf dist
	$(BIN)/python -m hatchling build --directory dist

clean: ## caches and build products; .venv stays
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

# An interpreter that fits: the one of an existing .venv, else PYTHON, else the first of the usual names. uv can bring one.
define FIND_PYTHON
	python=; \
	for candidate in $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python3.14); do \
	    if "$$candidate" -c "$(PYTHON_FITS)" >/dev/null 2>&1; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ] && [ -n "$(UV)" ]; then python=$(or $(PYTHON),3.12); fi; \
	if [ -z "$$python" ]; then \
	    echo "No Python 3.11 to 3.14 found$(if $(PYTHON), as $(PYTHON)): install one and run 'make setup PYTHON=/path/to/python3.11'." >&2; exit 3; \
	fi
endef

# A dot every few seconds beside a command that prints nothing.
DOTS = { while sleep 3; do printf .; done; } & dots=$$!; trap 'kill $$dots; echo' EXIT;

$(BIN)/python:
	@$(FIND_PYTHON); \
	if [ -n "$(UV)" ]; then \
	    "$(UV)" venv --quiet --allow-existing --python "$$python" $(VENV); \
	elif ! "$$python" -c "import venv, ensurepip" 2>/dev/null; then \
	    echo "$$python cannot make virtual environments: install its venv package (Debian: apt-get install python3-venv) or uv." >&2; exit 3; \
	else \
	    "$$python" -m venv $(VENV); \
	fi

# Redone when a pin or the package's metadata changed, and after an interruption: the stamp is written last.
$(STAMP): requirements.lock pyproject.toml | $(BIN)/python
	@$(BIN)/python -c "$(PYTHON_FITS)" || { echo "$(VENV) has no Python 3.11 to 3.14: remove it and run 'make setup' again." >&2; exit 3; }
	@$(BIN)/python -c "import sys; from fk_pipeline.environment.doctor import check_java; java = check_java(); \
	    sys.exit(None if java.ok else f'Java: {java.found}. {java.fix}')"
	@echo "Installing into $(VENV), once: half a minute with uv, two with pip."
ifneq ($(UV),)
	@$(DOTS) "$(UV)" pip install --quiet --compile-bytecode --python $(BIN)/python --requirement requirements.lock
	@"$(UV)" pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
else
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
	@$(DOTS) $(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517 --requirement requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
endif
	@$(BIN)/python -m compileall -q fk_pipeline
	@touch $@

$(BENCH_STAMP): benchmarks/requirements.txt $(STAMP)
$(DOCS_STAMP): docs/requirements.txt $(STAMP)
$(BENCH_STAMP) $(DOCS_STAMP):
ifneq ($(UV),)
	@"$(UV)" pip install --quiet --python $(BIN)/python --requirement $<
else
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement $<
endif
	@touch $@
