# Each target works from a bare checkout. PYTHON may name another interpreter (3.11 or newer).
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --constraint constraints.txt
DATA   ?= ../shared/data
MINUTES ?= 10

.PHONY: help install serve test test-ray compose-test certificate check bench models format clean lock sbom fuzz soak
.DEFAULT_GOAL := help

help:  ## what can be made here
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# A stamp a set of extras: installed once, and again when pyproject.toml or the pins change.
$(VENV)/.cpu: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable '.[cpu,control,plot]'
	@touch $@

$(VENV)/.test: $(VENV)/.cpu
	$(PIP) --editable '.[cpu,control,plot,tracing,export,test]'
	@touch $@

$(VENV)/.dev: $(VENV)/.test
	$(PIP) --editable '.[cpu,control,plot,tracing,export,test,dev]'
	@touch $@

$(VENV)/.ray: $(VENV)/.test
	$(PIP) --editable '.[cpu,control,plot,tracing,export,test,ray]'
	@touch $@

install: $(VENV)/.cpu  ## the service into .venv, so that .venv/bin/hardmax exists

serve: install  ## start on http://127.0.0.1:8000 with the bundled models
	$(BIN)/hardmax serve

test: $(VENV)/.test  ## install what the tests need and run them all
	$(BIN)/python -m pytest

test-ray: $(VENV)/.ray  ## the tests against a real Ray on this machine
	$(BIN)/python -m pytest -m ray

compose-test:  ## build the image, start it with docker compose, ask it, stop it
	docker/compose-test.sh

certificate:  ## a self-signed certificate for compose's profile edge
	mkdir -p docker/edge/certificates
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj /CN=localhost \
	    -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \
	    -keyout docker/edge/certificates/key.pem -out docker/edge/certificates/certificate.pem
	chmod 644 docker/edge/certificates/key.pem  # nginx reads it as a user who owns nothing

check: $(VENV)/.dev  ## lint, format, types, import contracts, supply
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m supply.audit

# Every runtime requirement with the digests of all its files: pip install --require-hashes -r requirements.lock
lock: $(VENV)/.dev  ## requirements.lock from pyproject.toml and constraints.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	  --no-emit-index-url --no-emit-find-links --constraints constraints.txt \
	  --extra cpu --extra control --extra plot --extra tracing --output-file requirements.lock pyproject.toml

sbom: $(VENV)/.dev  ## docs/sbom.json and docs/licences.md from what is pinned
	$(BIN)/python -m supply.sbom

CASES ?= 100000
fuzz: $(VENV)/.test  ## readers and service against CASES (100,000) nearly right inputs, and more by coverage
	$(BIN)/python -m tests.fuzz --cases $(CASES)

REVIEWS := $(wildcard $(DATA)/aclImdb_train.tar.gz)
NO_REVIEWS := no aclImdb_train.tar.gz in $(DATA): texts and faithfulness keep their last results

# Each program installs its peers on first use, outside this tree, and says in the report which it could not have.
bench: $(VENV)/.test  ## measure everything beside its peers (over an hour), write docs/benchmarks.md
	$(if $(REVIEWS),$(BIN)/python -m benchmarks.texts --data $(REVIEWS),@echo "$(NO_REVIEWS)")
	$(if $(REVIEWS),$(BIN)/python -m benchmarks.faithfulness --data $(REVIEWS))
	$(BIN)/python -m benchmarks.clouds
	$(BIN)/python -m benchmarks.http
	$(BIN)/python -m benchmarks.scale
	$(BIN)/python -m benchmarks.startup
	$(BIN)/python -m benchmarks.sizing
	$(BIN)/python -m benchmarks.report
	$(BIN)/python -m benchmarks.figures

soak: $(VENV)/.test  ## twice the capacity for MINUTES (10), then faults on purpose
	MINUTES=$(MINUTES) $(BIN)/python -m pytest -s -m soak tests/soak

models: $(VENV)/.test  ## train and export the bundled models again, from the data in $(DATA)
	$(BIN)/hardmax-export train --recipe bundled --everything --data $(DATA)/aclImdb_train.tar.gz \
	  --sst2 $(DATA)/sst2 --out runs
	$(BIN)/hardmax-export export runs/sentiment runs/sentiment-2d runs/sentiment-16d --out service/models
	$(BIN)/hardmax-export dynamics

format: $(VENV)/.dev  ## put the code in the house's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove what the targets above made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
