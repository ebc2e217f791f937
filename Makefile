# Everything a fresh machine needs, in the order people need it. `make help` lists the targets.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
HOT    := $(wildcard src/kourou/*/*.pyx src/kourou/*/*.pxd $(patsubst %.pxd,%.py,$(wildcard src/kourou/*/*.pxd)))
PYTEST ?= $(BIN)/pytest
INTEROP := tests/interop tests/client tests/spark
AT_ONCE := -n 3   # many tests wait for something
IN_TWO := -n 2 --dist loadfile --no-loadscope-reorder   # files in this order: the short ones come last

unexport PYTHONDONTWRITEBYTECODE   # tests start thousands of processes; each would compile all modules again

.PHONY: help install run test lint unit interop soak bench fuzz clean

help:          ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

install: $(VENV)/installed   ## Kourou into .venv, compiled where a C compiler is

$(BIN)/python:
	$(PYTHON) tools/make_venv.py $(VENV)

BUILT := pyproject.toml setup.py build_hot.py src/kourou/_version.py $(HOT)

$(VENV)/installed: $(BIN)/python $(BUILT)
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@
	@$(BIN)/kourou --version

$(VENV)/tested: $(BIN)/python $(BUILT)
	$(BIN)/python -m pip install --quiet --group test --editable '.[spark]'
	@touch $(VENV)/installed $@
	@$(BIN)/kourou --version

run: install   ## a name server and a broker on loopback; make run ARGS='--port 0 …' for other options
	@$(BIN)/kourou run $(ARGS)

test: $(VENV)/tested   ## all that CI checks
	@$(PYTHON) tools/interop_tools.py
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST) tests -m "not interop and not spark" $(AT_ONCE)
	KOUROU_PURE=1 $(PYTEST) tests -m "not interop and not spark and not once" $(AT_ONCE)
	$(PYTEST) tests/spark -m "spark and not slow" $(IN_TWO)
	$(PYTEST) $(INTEROP) -m "interop and not slow" $(IN_TWO)

lint: $(VENV)/tested   ## style and types alone
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

unit: $(VENV)/tested   ## the fast tests alone, with fewer random examples
	KOUROU_QUICK=1 $(PYTEST) tests -m "not interop and not spark and not slow" $(AT_ONCE)

interop: $(VENV)/tested   ## the tests with the real Apache RocketMQ and its clients, all of them
	@$(PYTHON) tools/interop_tools.py
	$(PYTEST) $(INTEROP) -m "interop or slow" $(IN_TWO)

soak: $(VENV)/tested   ## every long proof, for an hour; make soak ARGS='--count 1000 …' for other options
	@$(PYTHON) tools/interop_tools.py
	$(BIN)/python -m tests.soak $(or $(ARGS),--minutes 60)

fuzz: $(VENV)/tested   ## a million and more mutated frames
	$(BIN)/python -m benchmarks.fuzz

bench: $(VENV)/tested   ## the benchmarks, with Apache RocketMQ beside
	@$(PYTHON) tools/interop_tools.py
	$(BIN)/python -m benchmarks

clean:         ## away with what is built
	rm -rf $(VENV) build .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src -name '*.so' -delete
