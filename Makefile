# FlockMQ. `make` alone shows what there is. Needs Python >= 3.11; everything else is installed into .venv, from lock
# files with hashes. A C compiler is needed by `make build` only.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
INSTALL := $(UV) pip install --quiet --python $(BIN)/python
LOCKED := $(INSTALL) --no-build-isolation --require-hashes
EDITABLE := $(INSTALL) --no-build-isolation --no-deps --editable
PYTEST := $(BIN)/python -m pytest

# Tests start hundreds of Pythons: where nothing may be kept, each compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-interpreted test-compiled lint format build interpreted bench e2e chaos images kind-load fuzz simulate faults faults-test faults-bars skew manifests sbom lock clean

help: ## show this
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- what a user runs -------------------------------------------------------------------------------------------------

demo: $(VENV)/.demo ## a cluster on this machine: one core, two replicants, MQTT on 127.0.0.1:1883 and :1884
	@exec $(BIN)/flockmq dev --cores 1 --replicants 2 --port 1883

test: lint test-interpreted test-compiled ## everything that needs no Kubernetes: style, types, layers, unit and integration tests

build: build/wheel ## compile the broker's hot modules into .venv (undo: make interpreted)
	$(INSTALL) --no-deps --reinstall build/wheel/flockmq-*.whl
	@$(BIN)/flockmq --version

interpreted: $(VENV)/.demo ## run the broker from its sources again
	$(EDITABLE) broker
	@$(BIN)/flockmq --version

bench: $(VENV)/.dev ## beside ten other brokers, into docs/ and README.md: 25 minutes (QUICK=1: a look, 5 minutes)
	$(BIN)/python tests/bench/run.py $(if $(QUICK),--quick)

e2e: $(VENV)/.dev build/s3/.made ## the whole on a real Kubernetes: kind, or the cluster of KUBECONFIG
	tests/e2e/run
	tests/e2e/kind/tools.sh node >/dev/null && $(PYTEST) -m kubernetes tests/integration/analytics

MINUTES ?= 10
# CHAOS_ARGS: --operations for what operators do to a cluster, instead of pods killed at random; --rate, --components.
chaos: $(VENV)/.dev ## pods killed at random under load for MINUTES=10, on the same Kubernetes, every message accounted for
	tests/e2e/run chaos --minutes $(MINUTES) --seed $(or $(SEED),1) $(CHAOS_ARGS)

CONTAINERS ?= $(shell docker info >/dev/null 2>&1 && echo docker || echo buildah)
TAG ?= $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' broker/src/flockmq/__init__.py)
PARTS := broker operator analytics
images: ## build the three container images, flockmq-PART:VERSION as the chart names them
	@for part in $(PARTS); do \
	  $(CONTAINERS) build --file Dockerfile.$$part --tag flockmq-$$part:$(TAG) . || exit 1; done

KIND ?= kind
KIND_CLUSTER ?= kind
kind-load: images ## build them and load them into the cluster of kind that is called KIND_CLUSTER=kind
	@set -e; for part in $(PARTS); do image=flockmq-$$part:$(TAG); \
	  if [ "$(notdir $(CONTAINERS))" = docker ]; then $(KIND) load docker-image --name $(KIND_CLUSTER) $$image; else \
	    mkdir -p build; rm -f build/image.tar; \
	    $(CONTAINERS) push --quiet localhost/$$image docker-archive:build/image.tar:docker.io/library/$$image; \
	    $(KIND) load image-archive --name $(KIND_CLUSTER) build/image.tar; fi; \
	  echo "$$image is in the cluster $(KIND_CLUSTER)"; done; rm -f build/image.tar

# --- what a developer runs --------------------------------------------------------------------------------------------

lint: $(VENV)/.dev ## style, types, the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy broker/src operator/src analytics/src tests/judges tests/load tests/simulation $(STAND_INS)
	PYTHONPATH=broker/src:operator/src:analytics/src $(BIN)/lint-imports --no-logo

# Parts of tests that stand in for parts of a slot owner.
STAND_INS := $(addprefix tests/unit/broker/,session_rpc/network.py durable/redis.py durable/rooms.py) tests/integration/cluster/conftest.py

format: $(VENV)/.dev ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Two for each processor core: what tests start is waited for longer than it computes.
WORKERS ?= $(shell echo $$((2 * $$(nproc 2>/dev/null || echo 1))))
# Files run beside one another, which delays what some of them wait for: what failed is run again, alone. Who fails twice
# fails the run; who doesn't is named.
TESTED = $(1) $(PYTEST) --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder $(2) || { \
  printf '\n*** once more, alone, what failed:\n'; $(1) $(PYTEST) --last-failed --last-failed-no-failures none --maxfail 5 $(2); }

test-interpreted: $(VENV)/.dev build/s3/.made ## unit and integration tests, from the sources, WORKERS=4 files at a time (default: two for each processor core)
	$(call TESTED,EXPECT_BUILD=interpreted PYTHONPATH=broker/src,-m "not kubernetes$$([ -e build/s3/.made ] || echo ' and not s3')")

# An S3 server to test with, and the jars that Spark needs for s3a.
build/s3/.made: $(UV) requirements-s3.txt $(wildcard analytics/jars/*)
	@if command -v mvn >/dev/null; then \
	  rm -rf build/s3 && analytics/jars/fetch build/s3/jars && $(BIN)/python -m venv --without-pip build/s3/venv && \
	  $(UV) pip install --quiet --python build/s3/venv/bin/python --require-hashes --requirement requirements-s3.txt && \
	  touch $@; \
	else \
	  printf '\n*** NOT TESTED: reports in S3, for Maven (mvn) is not installed.\n\n'; [ -z "$$CI" ]; \
	fi

# The compiled tree is put before the sources by PYTHONPATH: what .venv runs stays as it was.
test-compiled: $(VENV)/.dev ## the broker's tests once more, on the compiled modules
	@if $(BIN)/python broker/can_compile.py; then \
	  $(MAKE) --no-print-directory build/compiled && \
	  { $(call TESTED,EXPECT_BUILD=compiled PYTHONPATH=build/compiled,$(BROKER_TESTS)); }; \
	else \
	  printf '\n*** NOT TESTED: the compiled broker (see the line above).\n\n'; [ -z "$$CI" ]; \
	fi
# Those that reach compiled modules by more than starting a node.
BROKER_TESTS := tests/unit/broker tests/conformance $(addprefix tests/integration/,broker cluster durable rlog) \
  $(addprefix tests/simulation/,test_traces.py test_scenarios.py)

SECONDS ?= 3600
fuzz: $(VENV)/.dev ## look for bytes that break the codec or a connection, SECONDS=3600 each; finds are kept in build/fuzz
	for target in codec connection; do $(BIN)/python tests/fuzz/run.py $$target $(SECONDS) || exit 1; done

SEEDS ?= 1000
FIRST ?= 1
# SIMULATE_ARGS: --profile P (a load), --kinds "kill core" …, --few-kinds 2 (two kinds of faults a seed, which meet more often).
simulate: $(VENV)/.dev $(if $(COMPILED),build/compiled) ## SEEDS=1000 runs of a simulated cluster, from FIRST=1 on: a load, faults, and what was promised (COMPILED=1)
	PYTHONPATH=$(if $(COMPILED),build/compiled,broker/src):tests $(BIN)/python -m simulation.run --seeds $(SEEDS) --first $(FIRST) $(SIMULATE_ARGS)

N ?= 60
SEED ?= 1
# FAULTS_ARGS: --profile P (features of the load), --redis server|sentinel|cluster, --kinds "kill core" "cut core redis 60s" …
# (what there is: --list-kinds), --script for-good, --rate, --cores, --keep, --stop-at-first; the rest: FAULTS_ARGS=--help.
faults: $(VENV)/.dev ## a cluster under load and N=60 faults of SEED=1, every message accounted for (BUG=drop, FAULTS_ARGS=--help)
	FAULTS_BUG=$(BUG) PYTHONPATH=broker/src:tests $(BIN)/python -m faults.campaign -n $(N) --seed $(SEED) $(FAULTS_ARGS)

faults-test: $(VENV)/.dev ## faults happen on a host, a short campaign finds nothing, a bug that is put in is found: 3 minutes
	PYTHONPATH=broker/src $(PYTEST) tests/faults

skew: $(VENV)/.dev ## a rolling upgrade from the release before (tests/faults/RELEASED), back, and again, under load: 3 minutes
	PYTHONPATH=broker/src:tests $(BIN)/python -m faults.skew $(SKEW_ARGS)

faults-bars: $(VENV)/.dev ## how long the failure of a core, a replicant, Redis is felt
	PYTHONPATH=broker/src:tests $(BIN)/python -m faults.bars

manifests: ## render manifests/install.yaml from the chart (with Helm, or one built from its Go module)
	HELM=$$(command -v helm || echo "$$(tests/e2e/kind/tools.sh clients)/helm") charts/render

sbom: ## a bill of materials for each image (CycloneDX), in build/sbom
	@python3 .ci/sbom build/sbom

lock: $(UV) ## pin every dependency with hashes (newer versions: make lock UPGRADE=--upgrade)
	$(LOCK) --all-extras --group dev $(PROJECTS) --output-file requirements-dev.txt
	$(LOCK) $(SAME) --extra embedded broker/pyproject.toml --output-file broker/requirements.txt
	$(LOCK) $(SAME) --group compile --output-file broker/requirements-build.txt
	$(LOCK) $(SAME) operator/pyproject.toml --output-file operator/requirements.txt
	$(LOCK) $(SAME) analytics/pyproject.toml --output-file analytics/requirements.txt
	$(LOCK) $(SAME) --all-extras --group build broker/pyproject.toml --output-file requirements-demo.txt
	$(LOCK) --group uv --output-file requirements-uv.txt
	$(LOCK) --group s3 --output-file requirements-s3.txt

PROJECTS := broker/pyproject.toml operator/pyproject.toml analytics/pyproject.toml
LOCK := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --custom-compile-command 'make lock' $(UPGRADE)
SAME := --constraints requirements-dev.txt

clean: ## remove everything that was made, .venv included
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find broker operator analytics tests -name __pycache__ -prune -exec rm -rf {} +
	find broker operator analytics -name '*.egg-info' -prune -exec rm -rf {} +

# --- installing -------------------------------------------------------------------------------------------------------

$(UV): requirements-uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "FlockMQ needs Python >= 3.11; $(PYTHON) is $$($(PYTHON) --version). Say make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
	  echo "$(PYTHON) can't make virtual environments; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-uv.txt
	@touch $@

$(VENV)/.demo: $(UV) requirements-demo.txt broker/pyproject.toml broker/setup.py
	$(LOCKED) --requirement requirements-demo.txt
	$(EDITABLE) broker
	@touch $@

$(VENV)/.compiler: $(VENV)/.demo broker/requirements-build.txt
	$(LOCKED) --requirement broker/requirements-build.txt
	@touch $@

$(VENV)/.dev: $(VENV)/.compiler requirements-dev.txt $(PROJECTS)
	$(LOCKED) --requirement requirements-dev.txt
	$(EDITABLE) operator --editable analytics
	@touch $@

# A copy is built, so that nothing compiled stands beside the sources.
build/wheel: $(VENV)/.compiler $(shell find broker -name '*.py' -o -name '*.lua' -o -name '*.toml')
	@$(BIN)/python broker/can_compile.py
	rm -rf build/broker build/wheel
	mkdir -p build && cp -R broker build/broker
	cd build/broker && FLOCKMQ_MYPYC=1 ../../$(UV) build --wheel --no-build-isolation \
	  --python ../../$(BIN)/python --out-dir ../wheel
	@touch $@

build/compiled: build/wheel
	rm -rf $@
	$(INSTALL) --no-deps --target $@ build/wheel/flockmq-*.whl
	@touch $@
