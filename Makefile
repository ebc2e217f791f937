# Targets for users and developers, in the order in which they are needed. `make help` lists them.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
HOT    := $(wildcard src/kourou/*/*.pyx src/kourou/*/*.pxd $(patsubst %.pxd,%.py,$(wildcard src/kourou/*/*.pxd)))
PYTEST ?= $(BIN)/pytest
TOOLS  := .cache/tools
INTEROP := tests/interop tests/client tests/spark
AT_ONCE := -n 3   # many tests wait for something
IN_TWO := -n 2 --dist loadfile --no-loadscope-reorder   # files in this order: the short ones come last

unexport PYTHONDONTWRITEBYTECODE   # tests start thousands of processes; each would compile all modules again

.PHONY: help install run test lint unit interop soak bench fuzz screenshots dist sbom audit lock clean

help:          ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

install: $(VENV)/installed   ## install Kourou into .venv, compiled if there is a C compiler

$(BIN)/python:
	$(PYTHON) tools/make_venv.py $(VENV)

BUILT := pyproject.toml setup.py build_hot.py src/kourou/_version.py $(HOT)

$(VENV)/installed: $(BIN)/python $(BUILT)
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@
	@$(BIN)/kourou --version

# Fixed versions whose hashes pip checks. setuptools and Cython are among them, and Kourou is built with those. If an index
# has other files or none of these versions, pip says so, and the newest versions that pyproject.toml allows are taken.
LOCKED := --require-hashes -r requirements-test.txt
$(VENV)/tested: $(BIN)/python $(BUILT) requirements-test.txt
	{ $(BIN)/python -m pip install --quiet $(LOCKED) && \
	  $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .; } || \
	{ echo 'WARNING: the locked versions were not installed, so hashes are not checked: see above' >&2; \
	  $(BIN)/python -m pip install --quiet --group test --editable '.[spark]'; }
	@touch $(VENV)/installed $@
	@$(BIN)/kourou --version

run: install   ## run a name server and a broker on loopback; make run ARGS='--port 0 …' for other options
	@$(BIN)/kourou run $(ARGS)

test: $(VENV)/tested   ## run all checks of CI
	@$(PYTHON) tools/interop_tools.py
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST) tests -m "not interop and not spark" $(AT_ONCE)
	KOUROU_PURE=1 $(PYTEST) tests -m "not interop and not spark and not once" $(AT_ONCE)
	$(PYTEST) tests/spark -m "spark and not slow" $(IN_TWO)
	$(PYTEST) $(INTEROP) -m "interop and not slow" $(IN_TWO)

lint: $(VENV)/tested   ## check style and types
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

unit: $(VENV)/tested   ## run the fast tests, with fewer random examples
	KOUROU_QUICK=1 $(PYTEST) tests -m "not interop and not spark and not slow" $(AT_ONCE)

interop: $(VENV)/tested   ## run all tests with the real Apache RocketMQ and its clients
	@$(PYTHON) tools/interop_tools.py
	$(PYTEST) $(INTEROP) -m "interop or slow" $(IN_TWO)

soak: $(VENV)/tested   ## run all long tests for an hour; make soak ARGS='--count 1000 …' for other options
	@$(PYTHON) tools/interop_tools.py
	$(BIN)/python -m tests.soak $(or $(ARGS),--minutes 60)

fuzz: $(VENV)/tested   ## test the codecs with a million mutated frames, and all other decoders with ten million inputs
	$(BIN)/python -m benchmarks.fuzz
	$(BIN)/python -m benchmarks.fuzz_decoders

screenshots: $(VENV)/tested   ## make the pictures of the console for docs/console.md, with a real browser
	@$(PYTHON) tools/interop_tools.py
	$(BIN)/python -m tests.console.screenshots

bench: $(VENV)/tested   ## run the benchmarks, beside Apache RocketMQ
	@$(PYTHON) tools/interop_tools.py
	$(BIN)/python -m benchmarks

dist: $(VENV)/tested   ## build source archive and wheels in dist/ twice, and test them without a compiler
	$(BIN)/python tools/dist.py

sbom: dist $(TOOLS)/installed   ## write dist/kourou.cdx.json: the packages of an installation, as a CycloneDX bill of materials
	$(TOOLS)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o dist/kourou.cdx.json .cache/clean

audit: $(TOOLS)/installed   ## check the packages of the release, the tests and the tools for known vulnerabilities
	$(TOOLS)/bin/pip-audit --strict --disable-pip --require-hashes -r requirements-test.txt -r requirements-tools.txt

COMPILE = $(TOOLS)/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command 'make lock'
lock: $(TOOLS)/installed   ## update requirements-*.txt to the newest versions that pyproject.toml allows, with their hashes
	$(COMPILE) --group test --extra spark pyproject.toml -o requirements-test.txt
	$(COMPILE) --group pyproject.toml:tools -o requirements-tools.txt

$(TOOLS)/installed: requirements-tools.txt
	$(PYTHON) tools/make_venv.py $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --require-hashes -r requirements-tools.txt
	@touch $@

clean:         ## remove everything that was built
	rm -rf $(VENV) build dist .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src -name '*.so' -delete
