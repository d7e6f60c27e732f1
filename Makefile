# Plumbline on one machine. `make` alone lists the targets.
#
# Everything that is installed goes into .venv (Airflow, great-expectations, MLflow), .venv-bench (what the benchmark
# images hold) and .cache; everything that is written goes into .airflow, mlflow and results.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory --no-builtin-rules
.DEFAULT_GOAL := help

PYTHON ?= python3
# An index with the torch build to use, such as the CPU one; empty: what pip is configured for.
TORCH_INDEX ?=
CLUSTER ?= local
SUITE ?= nightly
# Test files that run at the same time; each file's tests stay together, as they share what is slow to start.
JOBS ?= 2
# Seeds of the scoreboard; those that ship are for development, a claim needs others.
SEEDS ?= include/plumbline/scoreboard/development_seeds.yaml
# Container images: where they belong, their tag, and whether they are pushed (PUSH=1), which alone gives them digests.
REGISTRY ?= plumbline
TAG ?= $(shell git rev-parse --short HEAD 2>/dev/null || echo untagged)
PUSH ?=
# Arguments for pytest (make test) or for the benchmarks (make bench).
ARGS ?=

# Nothing from the caller's own Python may leak into ours; without cached bytecode every stage compiles 2,000 modules.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV PYTHONDONTWRITEBYTECODE

UV := .cache/uv/bin/uv
VENV := .venv/bin
# The environments in the state that the locks ask for; `make test` needs more than `make baseline`.
RUNTIME := .venv/.runtime
DEV := .venv/.dev
BENCH := .venv-bench/.installed

.PHONY: help baseline test lint types lock bench demo mutations scoreboard fuzz images up down env bench-env dev-env system clean distclean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile
	@echo
	@echo "  settings: PYTHON=$(PYTHON) TORCH_INDEX=$(TORCH_INDEX) CLUSTER=$(CLUSTER) SUITE=$(SUITE)"

baseline: $(RUNTIME) $(BENCH) ## measure this machine once through the DAG nightly_baseline, without any daemon
	@deployment/system_packages.sh fio=fio
	@$(VENV)/python -m deployment.run_dag nightly_baseline --cluster "$(CLUSTER)" --suite "$(SUITE)"

up: $(RUNTIME) $(BENCH) ## start Airflow and MLflow on loopback, in the background
	@deployment/system_packages.sh fio=fio
	@$(VENV)/python -m deployment.services up

down: ## stop what `make up` started
	@if [ -x $(VENV)/python ]; then $(VENV)/python -m deployment.services down; else echo "nothing was started"; fi

test: $(DEV) $(BENCH) ## install what is needed; lint, types, and all tests
	@deployment/system_packages.sh fio=fio
	@deployment/system_packages.sh chromium=chromium chromedriver=chromium-driver || echo "without them, the browser's test is skipped"
	@$(MAKE) lint types
	@$(VENV)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(DEV) ## ruff
	@$(VENV)/ruff check .

types: $(DEV) ## mypy
	@$(VENV)/mypy

bench: $(DEV) $(BENCH) ## how faithful and how costly Plumbline itself is (benchmarks/)
	@$(VENV)/python -m benchmarks $(ARGS)

demo: $(RUNTIME) ## 60 nights of a simulated cluster with known faults, into demo/ (about 20 minutes); ARGS="--nights 20"
	@$(VENV)/plumbline demo $(ARGS)

mutations: $(DEV) $(BENCH) ## break good runs in every known way and print what the gate says
	@$(VENV)/python -m tests.validation.mutations $(ARGS)

scoreboard: $(RUNTIME) ## score the detectors on simulated clusters; SEEDS=FILE of whole numbers, ARGS=--quick to try
	@$(VENV)/plumbline scoreboard --seeds "$(SEEDS)" --out build/scoreboard $(ARGS)
	@$(if $(findstring --quick,$(ARGS)),echo "docs/scoreboard.md stays as it is",cp build/scoreboard/scoreboard.md docs/scoreboard.md)

fuzz: $(DEV) $(BENCH) ## fuzz every reader, coverage-guided; ARGS="nccl_tests --cpu-seconds 600" for one
	@$(VENV)/python -m tests.fuzz $(ARGS)

images: ## build the container images with docker, podman or buildah; REGISTRY=… TAG=… PUSH=1 prints digests for a profile
	@"$(PYTHON)" docker/build_images.py --registry "$(REGISTRY)" --tag "$(TAG)" $(if $(PUSH),--push) \
	    $(if $(TORCH_INDEX),--build-arg "TORCH_INDEX=$(TORCH_INDEX)") $(ARGS)

env: $(RUNTIME) ## build .venv
bench-env: $(BENCH) ## build .venv-bench
dev-env: $(DEV) $(BENCH) ## build both, with what the tests need

lock: $(UV) ## resolve the direct pins of requirements*.txt anew
	@for name in requirements requirements-dev requirements-bench requirements-uv; do \
	    $(UV) pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 \
	        $$name.txt --output-file $$name.lock; \
	done

clean: ## remove what was built and cached; results, MLflow's store and the environments stay
	@rm -rf build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find include plugins dags deployment tests benchmarks docker -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: down clean ## remove the environments and .airflow too; results and MLflow's store stay
	@rm -rf .venv .venv-bench .cache .airflow

# -- environments ----------------------------------------------------------------------------------------------------

$(UV): requirements-uv.lock
	@deployment/system_packages.sh ensurepip:"$(PYTHON)"=python3-venv
	@"$(PYTHON)" deployment/check_python.py
	@"$(PYTHON)" -m venv --clear .cache/uv
	@.cache/uv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-uv.lock
	@touch $@

$(VENV)/python: | $(UV)
	@"$(PYTHON)" -m venv --without-pip .venv

$(RUNTIME): requirements.lock deployment/install_project.py $(UV) | $(VENV)/python
	@echo "building .venv: Airflow, great-expectations, MLflow"
	@$(UV) pip sync --quiet --python $(VENV)/python --require-hashes requirements.lock
	@$(VENV)/python deployment/install_project.py
	@touch $@

$(DEV): requirements-dev.lock $(RUNTIME)
	@echo "adding to .venv: lint, types, tests"
	@$(UV) pip sync --quiet --python $(VENV)/python --require-hashes requirements-dev.lock
	@touch $@

$(BENCH): requirements-bench.lock requirements-torch.txt $(UV)
	@echo "building .venv-bench: torch and what the benchmark images hold"
	@[ -x .venv-bench/bin/python ] || "$(PYTHON)" -m venv .venv-bench
	@$(UV) pip install --quiet --python .venv-bench/bin/python --require-hashes -r requirements-bench.lock
	@.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check $(if $(TORCH_INDEX),--index-url "$(TORCH_INDEX)") -r requirements-torch.txt
	@touch $@
