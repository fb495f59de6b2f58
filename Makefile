# Everything runs from a fresh clone: the first target that needs the virtual environment makes it.
#   make run         install and play the demo       make test         lint, types and the test suite
#   make check       lint and types alone            make test-quick   90 seconds, no Java, no processes
#   make bench       measure, print tables           make test-all     everything, long (PART=name for a part)
#   make docs        the documentation as HTML       make soak         random faults for MINUTES=n
#   make lock        pin the requirements anew       make clean        remove what these targets made

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Compiled modules are kept even where the environment says otherwise: the suite starts hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes

.DEFAULT_GOAL := help
.PHONY: help run test test-quick test-all soak check format bench docs lock clean java

help:
	@sed -n 's/^#  //p' Makefile

$(VENV)/made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Python 3.11 or newer is needed; say which one with 'make PYTHON=/path/to/python3.11 ...'" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "Python has no 'venv' module here: on Debian and Ubuntu, 'apt-get install python3-venv'" >&2; exit 1; }
	@touch $@

# Hash-checked requirements first, then the project itself: pip refuses hashes together with a directory.
$(VENV)/run: $(VENV)/made requirements/run.txt pyproject.toml
	@echo "installing what Tidings runs on (the first time this takes some minutes) ..."
	@$(INSTALL) -r requirements/run.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/dev: $(VENV)/run requirements/dev.txt
	@echo "installing what Tidings is checked and tested with ..."
	@$(INSTALL) -r requirements/dev.txt
	@touch $@

# What is compiled once is compiled here, and again where its source has changed: never in the middle of anything.
$(VENV)/warm: $(VENV)/run $(wildcard src/tidings/matching/index/kernels/*.py)
	@echo "compiling the matching kernels (where they are new, this takes a minute) ..."
	@$(BIN)/tidings warm
	@touch $@

java:
	@"$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])' || \
	  { echo "Java 17 or newer is needed for Spark: 'apt-get install openjdk-17-jre-headless', 'brew install openjdk@17', or any JDK on the PATH or in JAVA_HOME" >&2; exit 1; }

run: java $(VENV)/warm
	@$(BIN)/tidings demo

check: $(VENV)/dev
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/python -m tests.sync_client

format: $(VENV)/dev
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# So many processes share the tests, for two cores: one of them runs everything that starts Spark (tests/sharing.py), and
# waits for Java more often than it works.
WORKERS ?= 3
PYTEST  := $(BIN)/pytest --numprocesses $(WORKERS)

# The kernels once more, with every access to an array checked: tests/matching/test_kernels.py runs them.
$(VENV)/warm-checked: $(VENV)/warm
	@echo "compiling the kernels with bounds checked, for the tests ..."
	@NUMBA_BOUNDSCHECK=1 NUMBA_OPT=1 NUMBA_CACHE_DIR=$(CURDIR)/$(VENV)/kernels-with-bounds-checked $(BIN)/tidings warm
	@touch $@

# The classes that Spark loads: tests/spark/archive.py.
$(VENV)/warm-java: $(VENV)/dev tests/spark/archive.py requirements/run.txt
	@echo "writing an archive of Spark's classes, for the tests ..."
	@$(BIN)/python -m tests.spark.archive
	@touch $@

test: java check $(VENV)/warm-checked $(VENV)/warm-java
	@$(PYTEST)

# The packages below the drivers: what is quick to start, and needs neither sockets nor disks.
QUICK := $(addprefix tests/,model language policy protocol routing engine hub security testing) $(wildcard tests/test_*.py)
test-quick: $(VENV)/dev $(VENV)/warm
	@TEST_SIZE=quick $(BIN)/pytest --numprocesses 2 -m "not slow and not spark and not process" $(QUICK)

PART ?=
test-all: java check $(VENV)/warm-checked $(VENV)/warm-java
	@$(BIN)/python -m tests.parts --workers $(WORKERS) $(PART)

MINUTES ?= 30
soak: $(VENV)/dev $(VENV)/warm
	@$(BIN)/python -m tests.soak --minutes $(MINUTES)

bench: $(VENV)/dev $(VENV)/warm
	@$(BIN)/tidings bench all

docs: $(VENV)/dev
	@$(BIN)/sphinx-build --fail-on-warning --quiet -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# `uv` resolves for every platform and Python at once; the files name packages and hashes, never where they come from.
LOCK = uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
       --extra all --group build pyproject.toml
lock:
	@$(LOCK) --group check --group test --group bench --group docs --output-file requirements/dev.txt
	@$(LOCK) --constraints requirements/dev.txt --output-file requirements/run.txt

clean:
	@rm -rf $(VENV) .test-all docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
