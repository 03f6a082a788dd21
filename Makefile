# What a person or a CI does with this checkout. Each target makes the environment that it needs; none needs root.
#
#   PYTHON=python3.12   the Python to make the environment from (3.11 or newer)
#   VENV=.venv          where the environment stands
#   JOBS=2              test processes
#   ARGS='-k conv'      more arguments for pytest

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
ARGS ?=
MODEL ?= samples/digits.onnx
MODELS ?= $(MODEL)
THREADS ?= 1
LEVEL ?= 3
COUNT ?= 5000
SEED ?= 0
SECONDS ?= 600
FUSION ?= default
TARGET ?= c
WHAT ?= products

py := $(VENV)/bin/python
comma := ,

# A compiler counts when it can also find the C library's headers: Debian's gcc may be installed without them.
clangs := clang $(foreach version,22 21 20 19 18 17 16 15 14,clang-$(version))
usable = echo '\#include <stdlib.h>' | $$c -x c -fsyntax-only - 2>/dev/null
compiler := $(shell for c in $(clangs) gcc; do $(usable) && echo $$c && break; done)
toolchain := $(if $(compiler),,toolchain)

# A stamp says which needs are installed; its name changes with the compiler's presence, so that losing one is noticed.
stamp = $(VENV)/.ready-$(1)$(addprefix -,$(toolchain))
install = $(py) -m pip install --quiet --disable-pip-version-check --editable $(1)

# Where no compiler is to be found: the programs that tests start.
bare := cat cp cut dirname echo env ln make mkdir mktemp mv rm sed sh sha256sum sleep touch

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Two targets must not install into one environment at once.
.NOTPARALLEL:
.PHONY: help demo demo-numpy demo-web browser test test-all exporters test-bare test-rest golden check lint types doctest conformance conformance-dynamic conformance-sanitized models-sanitized tests-sanitized shape-fuzz graph-fuzz contrib-fuzz mutants mutate fuzz coverage trust operators bench bench-operators bench-decoder bench-ranks bench-functions bench-profile bench-resize bench-training cluster learning kills contexts card sample-c dist venv venv-whole venv-bare clean distclean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-22s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(call stamp,peer) ## compile the sample model, explain it, run it, measure it
	@$(py) samples/demo.py

demo-web: $(call stamp,run) ## digits in the browser, drawn and learned: compiles for WebGPU, serves the pages, prints the address
	@$(py) samples/demo_web.py

browser: $(call stamp,test) ## MODELS="a.onnx b.onnx": run in a headless Chromium against ONNX Runtime; ARGS=--peer FOLDER
	$(py) -m tests.support.run_page $(MODELS) $(ARGS)

test: $(call stamp,test) ## the tests
	$(py) -m pytest -n $(JOBS) --dist worksteal $(ARGS)

test-all: $(call stamp,test) ## the tests with the slow ones, of which `make test` runs a part
	$(py) -m pytest -n $(JOBS) --dist worksteal -m '' $(ARGS)

test-bare: venv-bare ## `make test` as on a machine without a compiler, where it takes the ziglang package's
	rm -f $(VENV)/ran-bare
	PATH=$(abspath $(VENV)/bare) $(MAKE) --no-print-directory test ARGS='--write-ran=$(VENV)/ran-bare $(ARGS)'

venv-bare: $(call stamp,test) ## what test-bare needs
	rm -rf $(VENV)/bare && mkdir $(VENV)/bare
	for tool in $(bare); do ln -s "$$(which $$tool)" $(VENV)/bare/; done
	PATH=$(abspath $(VENV)/bare) $(MAKE) --no-print-directory $(VENV)/.ready-test-toolchain

test-rest: $(call stamp,test) ## what test-bare skipped, with the compilers that are here; what both skip is an error
	rm -f $(VENV)/skipped-rest
	$(py) -m pytest -n $(JOBS) --dist worksteal --all-but=$(VENV)/ran-bare --write-skipped=$(VENV)/skipped-rest $(ARGS)
	$(py) -m tests.support.skips $(VENV)/skipped-rest

golden: $(call stamp,test) ## renew the generated sources of tests/golden, and the names of passes that editors know
	$(py) -m pytest -n 0 tests/golden tests/passes/test_rules_schemas.py --renew-golden

check: lint types test doctest ## format, lint, types, all tests (the layer test among them), doctests

lint: $(call stamp,check) ## ruff, clang-format for templates/, names that nothing uses
	$(py) -m ruff format --check .
	$(py) -m ruff check .
	find templates -name "*.[hc]" -o -name "*.cu" -o -name "*.mm" | xargs $(VENV)/bin/clang-format --dry-run --Werror
	$(py) -m tests.support.dead_code

types: $(call stamp,check) ## mypy --strict
	$(py) -m mypy --strict

doctest: $(call stamp,test) ## the examples in docstrings
	$(py) -m pytest -n 0 --doctest-modules torshc

exporters: $(call stamp,exporters) ## tree ensembles as XGBoost's and LightGBM's converters write them
	$(py) -m pytest -n 0 -m '' tests/exporters $(ARGS)

conformance: $(call stamp,test) ## LEVEL=3 FUSION=default TARGET=c: all cases of onnx's own suite
	$(py) -m tests.conformance --target $(TARGET) --level $(LEVEL) --fusion $(FUSION) --jobs $(JOBS)

conformance-dynamic: $(call stamp,test) ## the same with symbolic dimensions and run-time shape operands
	$(py) -m tests.conformance --dynamic --target $(TARGET) --level $(LEVEL) --jobs $(JOBS)

conformance-sanitized: $(call stamp,test) ## its core cases with address and undefined-behaviour sanitizers
	$(py) -m tests.conformance --sanitize --level $(LEVEL) --jobs $(JOBS)

models-sanitized: $(call stamp,test) ## MODELS=... COUNT=... SEED=0: models, and as many random graphs, with the sanitizers
	OPENBLAS_NUM_THREADS=1 $(py) -W ignore -m tests.robust.sanitized_models $(MODELS) $(if $(filter file,$(origin COUNT)),,--count $(COUNT)) --seed $(SEED) --jobs $(JOBS)

tests-sanitized: $(call stamp,test) ## ARGS='tests/pipeline/test_training.py': the tests of training, or those named, with the sanitizers
	$(py) -m tests.robust.sanitized_tests $(ARGS)

shape-fuzz: $(call stamp,test) ## COUNT=5000 SEED=0: random shape arithmetic and broadcasts, sizes 1 in turn, against ONNX Runtime
	$(py) -m tests.robust.shape_check --count $(COUNT) --seed $(SEED) --level $(LEVEL)
	$(py) -m tests.robust.broadcast_check --count $(COUNT) --seed $(SEED) --target in-process

graph-fuzz: $(call stamp,test) ## COUNT=5000 SEED=0: random typed graphs of all operators against onnx's evaluator; ARGS=--compilers
	OPENBLAS_NUM_THREADS=1 $(py) -W ignore -m tests.robust.graph_check --count $(COUNT) --seed $(SEED) --jobs $(JOBS) $(ARGS)

contrib-fuzz: $(call stamp,test) ## COUNT=50: random nodes of com.microsoft against ONNX Runtime's kernels
	OPENBLAS_NUM_THREADS=1 $(py) -W ignore -m tests.robust.contrib_check --count $(if $(filter file,$(origin COUNT)),50,$(COUNT))

mutants: $(call stamp,test) ## COUNT=5000 SEED=0: models with senseless fields, compiled as far as their sources
	OPENBLAS_NUM_THREADS=1 $(py) -W ignore -m tests.robust.mutants --count $(COUNT) --seed $(SEED)

mutate: $(call stamp,test) ## COUNT=60 SEED=0: change expressions of torshc/ops, expr and plan, one at a time; what tests do not notice
	OPENBLAS_NUM_THREADS=1 $(py) -m tests.robust.source_mutants --seed $(SEED) --count $(if $(filter file,$(origin COUNT)),60,$(COUNT)) $(ARGS)

fuzz: $(call stamp,fuzz) ## WHAT=model|rules|pipeline|records|arrays|states|training|kernel|measured|manifest|words SECONDS=600: vary files by what they make run
	OPENBLAS_NUM_THREADS=1 $(py) -W ignore -m tests.robust.fuzz $(if $(filter file,$(origin WHAT)),model,$(WHAT)) --seconds $(SECONDS) --seed $(SEED)

coverage: export COVERAGE_FOLDER := $(abspath build/coverage)
coverage: export COVERAGE_PROCESS_START := $(abspath pyproject.toml)
coverage: $(call stamp,fuzz) ## the tests with the lines and branches of torshc/ that they run; a page in build/coverage; ARGS='tests/ops'
	rm -rf $(COVERAGE_FOLDER) && mkdir -p $(COVERAGE_FOLDER)
	-$(py) -m pytest -n $(JOBS) --dist worksteal $(ARGS)
	$(py) -m coverage combine --quiet
	$(py) -m coverage html --quiet --directory $(COVERAGE_FOLDER)/page
	$(py) -m coverage report --skip-covered --sort=cover

trust: $(call stamp,test) ## what users may rely on, each promise tried and measured; COUNT=... mutants, ARGS=--whole
	$(py) -m tests.trust --jobs $(JOBS) $(if $(filter file,$(origin COUNT)),,--count $(COUNT)) $(ARGS)

operators: $(call stamp,test) ## write the table of operators anew, torshc/ops/README.md
	$(py) -m tests.conformance.operators --write

bench: $(call stamp,test) ## MODEL=... THREADS=...: latency beside ONNX Runtime
	$(VENV)/bin/torshc bench $(MODEL) --threads $(THREADS) --against ort

bench-operators: $(call stamp,test) ## each operator beside ONNX Runtime and a copy; ARGS='MatMul f64 --threads 2 --store table.json' chooses
	$(py) -W ignore -m tests.speed.operators $(ARGS)

bench-decoder: $(call stamp,test) ## a decoder's step of 1 B parameters beside the rate of memory; ARGS='--bits 16 --layers 2 --threads 1 2 --folder DIR'
	$(py) -m tests.speed.decoder $(ARGS)

bench-profile: $(call stamp,test) ## what a profile gains a server of sentences; ARGS='MODEL --target cuda --arch sm_90a --threads 1 --batch 1 --folder DIR'
	$(py) -m tests.speed.serving $(ARGS)

cluster: $(call stamp,test) ## MODEL=...: compiled by Dask's workers and by caches of compilers, with equal bytes, and tuned; some minutes
	$(py) -m tests.bundle.cluster_run $(MODEL) $(ARGS)

bench-ranks: $(call stamp,test) ## layers of a Llama, whole and on 1, 2, 4 and 8 ranks, beside the cost model; ARGS='--ranks 2 --width 2048 --target cuda --nccl /FOLDER/libnccl.so.2'
	$(py) -m tests.speed.ranks $(ARGS)

bench-functions: $(call stamp,test) ## functions of elements by clang and gcc in vectors of each width; ARGS='--beside FOLDER exp' beside other headers
	$(py) -m tests.speed.functions $(ARGS)

bench-resize: $(call stamp,test) ## Resize in its modes beside ONNX Runtime and a copy, one thread; ARGS='linear static' chooses rows
	$(py) -m tests.speed.resize $(ARGS)

bench-training: $(call stamp,test) ## a training step beside PyTorch's four forms, which has to be installed; ARGS='digits --threads 2 --folder DIR', --levels
	$(py) -m tests.speed.training $(ARGS)

learning: $(call stamp,test) ## gradients and 100 losses of networks beside PyTorch's in f64, which has to be installed; ARGS='digits unet --steps 10'
	$(py) -m tests.learning $(ARGS)

kills: $(call stamp,test) ## COUNT=50 SEED=0: kill a process that trains, and look at the states that it saved
	$(py) -m tests.robust.killed --count $(if $(filter file,$(origin COUNT)),50,$(COUNT)) --seed $(SEED)

contexts: $(call stamp,test) ## MODELS="a.onnx b.onnx": two contexts at once against one alone; ARGS='--dims batch=2'
	$(py) -m tests.robust.callers $(MODELS) $(ARGS)

demo-numpy: $(call stamp,run) ## a function written in NumPy, compiled when it is called, beside NumPy
	@$(py) samples/numpy_function.py

card: $(call stamp,run) ## WHAT=attention|memory|llama|products|convolutions|calls|models|symbolic|training|all: speed on an NVIDIA card beside PyTorch, which has to be installed
	$(py) -m tests.card $(WHAT) $(ARGS)

sample-c: $(call stamp,run) ## the program in C that uses a bundle
	$(MAKE) -C samples/c run TORSHC='$(abspath $(VENV)/bin/torshc)' CC='$(or $(compiler),$(abspath $(py)) -m ziglang cc)'

dist: $(call stamp,dist) ## what a release holds, in dist/: built from the commit, checked, installed apart and tried
	$(py) -m tests.release

venv: $(call stamp,test) $(call stamp,check) ## the whole environment, for work on torshc

venv-whole: | $(py) ## the same and ziglang's clang, by one call of pip instead of three that build torshc each
	@$(call install,'.[test$(comma)check$(comma)toolchain]')
	@touch $(addprefix $(VENV)/.ready-,test check test-toolchain)

clean: ## remove what was built, keep the environment
	rm -rf build dist samples/c/build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find torshc tests samples -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## remove the environment too
	rm -rf $(VENV) torshc.egg-info

# Debian packs ensurepip apart from Python; where it is missing, a pip of the system can fill the environment as well.
$(py):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo 'torshc needs Python 3.11 or newer: make PYTHON=/path/to/python3.11' >&2; exit 1; }
	@echo 'Making the Python environment in $(VENV) ...'
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { $(PYTHON) -m venv --clear --without-pip $(VENV) \
		&& $(PYTHON) -m pip --quiet --python $(py) install pip; } || { rm -rf $(VENV); \
		echo 'cannot make a Python environment; on Debian: apt-get install python3-venv' >&2; exit 1; }

$(call stamp,run): pyproject.toml | $(py)
	@echo 'Installing torshc$(if $(toolchain), and a clang from PyPI: no compiler is here) ...'
	@$(call install,.$(addsuffix ],$(addprefix [,$(toolchain))))
	@touch $@

# The demo's rival; where there is none for this machine, the demo goes without.
$(call stamp,peer): $(call stamp,run)
	@$(call install,'.[peer$(addprefix $(comma),$(toolchain))]') || echo 'ONNX Runtime cannot be installed here' >&2
	@touch $@

$(call stamp,test): pyproject.toml | $(py)
	@echo 'Installing torshc and what its tests need ...'
	@$(call install,'.[test$(addprefix $(comma),$(toolchain))]')
	@touch $@

$(call stamp,dist): pyproject.toml | $(py)
	@echo 'Installing what builds and checks a wheel ...'
	@$(call install,'.[dist]')
	@touch $@

$(call stamp,fuzz): $(call stamp,test)
	@echo 'Installing Atheris and coverage.py ...'
	@$(call install,'.[fuzz$(addprefix $(comma),$(toolchain))]')
	@touch $@

$(call stamp,exporters): $(call stamp,test)
	@echo 'Installing XGBoost, LightGBM and their converters ...'
	@$(call install,'.[exporters$(addprefix $(comma),$(toolchain))]')
	@touch $@

$(call stamp,check): pyproject.toml | $(py)
	@echo 'Installing torshc and the checkers ...'
	@$(call install,'.[check$(addprefix $(comma),$(toolchain))]')
	@touch $@
