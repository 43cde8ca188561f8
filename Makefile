# Two commands on a fresh machine with Python >= 3.11:  make quickstart   make test
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Exact versions, for Python 3.11 to 3.13. `make LOCK= ...` takes the newest that pyproject.toml allows.
LOCK := --constraint constraints.txt
INSTALL = $(BIN)/python -m pip install --quiet --quiet $(LOCK)
# Set before anything imports mlflow or litellm: with it, both start without a network.
export LITELLM_LOCAL_MODEL_COST_MAP := True
export MLFLOW_DISABLE_TELEMETRY := true
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION := false
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# How `make quickstart` ends: the tuned judge, loaded, on one answer.
define FIRST_JUDGMENT

from faith_dspy import load_judge

judge = load_judge('judges/quickstart')
r = judge(
    question='How long may I return a lamp?',
    context=['Lamps can be returned within 30 days, with the receipt.', 'Sale items are exchanged only.'],
    answer='You can return a lamp within 30 days. Shipping is free.',
)
print(r.pretty())

endef
export FIRST_JUDGMENT

.PHONY: help quickstart test test-all needs notebooks benchmark-agreement tree check ratchet lock release-check format ui clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-19s %s\n", $$1, $$2}'

$(VENV)/.base: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "faith_dspy needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 ..."; exit 2; }
	@echo "Setting up $(VENV) (a minute or two, once) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'  # it knows dependency groups
	@$(INSTALL) --editable '.[local]'
	@touch $@

$(VENV)/.ready: $(VENV)/.base
	@$(INSTALL) --editable '.[local,tune]' --group dev
	@touch $@

# The libraries a judge can be used from, for `make test-all`.
$(VENV)/.peers: $(VENV)/.ready
	@echo "Adding the libraries the adapters are tested against (a minute, once) ..."
	@$(INSTALL) --group peers
	@touch $@

quickstart: $(VENV)/.base ## the main job: tune a judge on the shipped labels, load it, judge with it
	@$(BIN)/faith-dspy model fetch & model=$$!; $(INSTALL) --editable '.[local,tune]' && wait $$model
	@$(BIN)/faith-dspy tune quickstart --budget quick
	@echo "$$FIRST_JUDGMENT" && $(BIN)/python -c "$$FIRST_JUDGMENT"
	@echo "faith-dspy is in $(BIN); make ui opens the study's pages"

# Two processes share what needs no language model; the embedded model takes both cores.
PYTEST := $(BIN)/python -m pytest -q
IN_TWO := OMP_NUM_THREADS=1 $(PYTEST) -n 2 --dist loadfile

test: check ## lint, types, import contracts, tokens; fast tests; the embedded model
	@$(IN_TWO) -m 'not lm and not all'
	@$(BIN)/faith-dspy model fetch >/dev/null
	@$(PYTEST) -m 'lm and not all'

test-all: needs $(VENV)/.peers ## all other tests: browser, Spark, PostgreSQL, servers, other libraries, faults, kills
	@$(IN_TWO) -m 'all and not lm'
	@$(BIN)/faith-dspy model fetch >/dev/null
	@$(PYTEST) -m 'all and lm'

needs:
	@$(PYTHON) tests/support/needs.py

benchmark-agreement: $(VENV)/.ready ## agreement with people on public sets, from kept replies (minutes); LABELS=FOLDER of published files
	@$(BIN)/python -m tests.benchmarks.agreement $(LABELS)

# The mapped packages (optimize, eval_sets) put where type checker and import contracts look for them.
tree: $(VENV)/.ready
	@rm -rf .check && mkdir -p .check/faith_dspy
	@for f in faith_dspy/*; do ln -s ../../$$f .check/faith_dspy/; done
	@ln -s ../../optimize .check/faith_dspy/optimize && ln -s ../../eval_sets .check/faith_dspy/eval_sets

check: tree ## lint, types, import contracts, tokens of code
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@cd .check && MYPYPATH=. ../$(BIN)/mypy --config-file ../pyproject.toml
	@$(BIN)/python .ci/tokens.py
	@cd .check && PYTHONPATH=. ../$(BIN)/lint-imports --config ../pyproject.toml --no-cache >imports.txt || { cat imports.txt; exit 1; }

RATCHET ?= --lower

ratchet: $(VENV)/.base ## hold each room's tokens of code to what is there, where that is less
	@$(BIN)/python .ci/tokens.py $(RATCHET)

notebooks: $(VENV)/.peers ## run the notebooks on the embedded model, and store their outputs
	@rm -rf build/notebooks && mkdir -p build/notebooks && cp notebooks/*.ipynb build/notebooks
	@cd build/notebooks && PATH="$(CURDIR)/$(BIN):$$PATH" MPLBACKEND=agg TQDM_DISABLE=1 PYTHONWARNINGS="ignore:IProgress" jupyter execute --inplace tune_load_trust.ipynb in_production.ipynb
	@cp build/notebooks/*.ipynb notebooks/

# To be made with the oldest Python that is supported: what installs there installs on newer ones, too.
lock: ## write the newest versions that pyproject.toml allows to constraints.txt (minutes)
	@$(PYTHON) -m venv --clear build/lock
	@build/lock/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	@build/lock/bin/python -m pip install --quiet '.[local,tune]' --group dev --group peers --group release
	@build/lock/bin/python -m pip freeze --exclude faith_dspy > constraints.txt

release-check: $(VENV)/.ready ## build the last commit, check it, install the wheel in an empty environment and judge
	@$(INSTALL) --group release
	@$(BIN)/python .ci/release.py $(REPOSITORY)

format: $(VENV)/.ready ## format the code
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .

STORE ?= sqlite:///mlflow.db

ui: $(VENV)/.ready ## MLflow on 127.0.0.1, offline; make ui STORE=sqlite:///other.db PORT=5001
	@$(BIN)/faith-dspy ui --tracking-uri $(STORE) --port $${PORT:-5000}

clean: ## remove what was built; studies and judges stay
	@rm -rf $(VENV) .check .pytest_cache .mypy_cache .ruff_cache build *.egg-info
