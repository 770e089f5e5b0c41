# One vocabulary of tasks for people, hooks and CI. `make help` lists them.
PYTHON ?= python3
UV_VERSION := 0.13.9
BFCL_VERSION := 2026.3.23
VENV := .venv
BIN := $(VENV)/bin
PROFILE ?= smoke
export UV_COMPILE_BYTECODE := 1
# Two malloc settings that keep big tensors off mmap: 30 % more tokens a second on large batches (docs/results.md).
export MALLOC_MMAP_THRESHOLD_ := 1073741824
export MALLOC_TRIM_THRESHOLD_ := 17179869184

.DEFAULT_GOAL := help
IMAGES ?= control trainer
.PHONY: help images pins run base report setup setup-dev deps test test-all test-cluster control-plane cluster-up cluster-down sglang-env lint format bench bench-hat clean

help: ## List the tasks
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-zA-Z_-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Use it
run: setup ## Train, evaluate and register a small model; PROFILE=smoke|micro, ARGS="--data FILE --purpose training"
	$(BIN)/hat run --profile $(PROFILE) $(ARGS)

base: setup ## Train the shipped base checkpoint anew (the run says where it lies and its digest)
	$(BIN)/hat run --profile micro --only base --set 'steps.base.shipped=""' --set 'steps.base.shipped_digest=""' $(ARGS)

report: setup ## Write the report of the newest run again
	$(BIN)/hat report $(ARGS)

##@ Set it up
setup: $(VENV)/.ready ## Python environment with everything that a run needs
setup-dev: $(VENV)/.ready-dev ## The same with what tests and checks need

$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "hatstack needs Python 3.11 or newer; this is $$($(PYTHON) --version). Set PYTHON=/path/to/python3.11" >&2; exit 3; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "Python's venv module is missing: apt-get install python3-venv" >&2; exit 3; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "uv==$(UV_VERSION)"

$(VENV)/.ready: pyproject.toml constraints.txt | $(BIN)/uv
	@echo "Installing hatstack (about 6 GB with the CUDA build of torch; UV_TORCH_BACKEND=cpu takes the small one) ..."
	$(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode -c constraints.txt -e '.[all]'
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	$(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode -c constraints.txt -e '.[all,dev]'
	@# Only its data files are used; its own pins (an old numpy among them) would not resolve.
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps "$$(grep '^bfcl-eval==' constraints.txt)"
	@touch $@

deps: ## System packages that the tests use (Debian, as root); elsewhere says what is missing
	@sh tests/deps.sh

##@ Check it
# The quick ones of the cluster tests belong to the default set where they can run: they need Go once, to build. CLUSTER= leaves them out.
CLUSTER ?= 1
# SGLANG=1 takes the tests on the real SGLang in, where its environment (9.5 GB, a minute) is or can be made.
test: deps setup-dev lint ## Every test of the default set, on a real Kubernetes too (CLUSTER= without); SGLANG=1 with the real SGLang
	@marks="not matrix"; \
	if [ -n "$(CLUSTER)" ] && $(BIN)/python -m tests.cluster.controlplane can; then $(BIN)/python -m tests.cluster.controlplane build || exit 1; \
	else marks="$$marks and not cluster"; fi; \
	if [ -z "$(SGLANG)" ] || ! $(BIN)/python -m tests.engine.sglang_env can; then marks="$$marks and not sglang"; fi; \
	echo "tests: $$marks"; $(BIN)/python -m pytest -m "$$marks"

test-all: deps setup-dev lint ## The slower matrices too
	@sh tests/deps.sh buildah debootstrap
	@marks=""; \
	if $(BIN)/python -m tests.cluster.controlplane can; then $(BIN)/python -m tests.cluster.controlplane build || exit 1; \
	else marks="not cluster"; fi; \
	$(BIN)/python -m pytest -m "$$marks"

test-cluster: deps setup-dev control-plane ## The tests on a real Kubernetes with KServe (needs Go 1.25 for the build)
	$(BIN)/python -m pytest -m "cluster and not matrix"

lint: setup-dev ## ruff, mypy strict, import-linter, size and doc budgets
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/budget

format: setup-dev ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup-dev ## Speed and memory, as interleaved ratios; BENCH=name runs one
	$(BIN)/python -m bench $(BENCH)

bench-hat: setup-dev ## The main job measured on three seeds, about an hour on two idle cores; goes on where it stopped
	$(BIN)/python -m bench.hat --results docs/results.md $(ARGS)

images: setup ## Container images with docker, podman or buildah; IMAGES="control trainer", BASE, TAG
	serving/images/build.sh $(IMAGES)

##@ A Kubernetes of one's own
control-plane: setup-dev ## Build Kubernetes, etcd and KServe's controllers from Go modules (once; about ten minutes)
	$(BIN)/python -m tests.cluster.controlplane build $(ARGS)

cluster-up: control-plane ## Start it by hand; prints the kubeconfig
	$(BIN)/python -m tests.cluster.controlplane up

sglang-env: setup-dev ## The real SGLang in an environment of its own (9.5 GB), for the engine's contract tests
	$(BIN)/python -m tests.engine.sglang_env

cluster-down: ## Stop it
	$(BIN)/python -m tests.cluster.controlplane down

##@ Tidy
pins: $(BIN)/uv ## Resolve constraints.txt anew from pyproject.toml
	$(BIN)/uv pip compile --quiet --upgrade --all-extras --no-annotate --no-header pyproject.toml -o constraints.txt
	@sed -i '/^hatstack/d;/ @ file/d' constraints.txt
	@echo 'bfcl-eval==$(BFCL_VERSION)' >> constraints.txt

clean: ## Remove the environment and caches; runs stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
