# Every target works from a bare checkout: it makes its own .venv and installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
CACHE := .cache
PYTEST_ARGS ?= -n 2

.PHONY: demo test test-minimum bench lint fuzz kills word2vec model core clean

demo: $(VENV)/.demo
	$(BIN)/fishermix demo $(if $(PHOTOS),"$(PHOTOS)") --out demo-out

test: $(VENV)/.test lint word2vec
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The tests of the library with exactly the minimum versions that pyproject.toml declares.
MINIMUM := $(CACHE)/minimum
LIBRARY_TESTS := tests/mixture tests/fisher tests/cca tests/text tests/rows tests/evaluation tests/model tests/cli \
  tests/test_storage.py tests/test_progress.py tests/test_paths.py tests/test_old_folders.py tests/test_read_only.py
test-minimum: $(MINIMUM)/.installed
	PYTHONPATH=$(CURDIR)/src $(MINIMUM)/bin/python -m pytest $(LIBRARY_TESTS) $(PYTEST_ARGS)

$(MINIMUM)/.installed: pyproject.toml tools/list_minima.py
	$(PYTHON) -m venv --clear $(MINIMUM)
	$(PYTHON) tools/list_minima.py serve dask > $(MINIMUM)/pins.txt
	$(MINIMUM)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $(MINIMUM)/pins.txt \
	  pytest hypothesis pandas psutil scikit-image sacrebleu httpx
	touch $@

# Damaged files into every reader, for hours: make fuzz FUZZ="--minutes 600". Findings go to tests/fuzz/crashes.
fuzz: $(VENV)/.test
	$(BIN)/python -m tests.fuzz.run $(or $(FUZZ),--count 100000)

# kill -9 of train, captioner train and reproduce, 50 each.
kills: $(VENV)/.test
	$(BIN)/python tests/kills.py $(KILLS)

bench: $(VENV)/.bench word2vec
	$(BIN)/python -m benchmarks $(BENCH)

word2vec: $(CACHE)/word2vec/config.json

$(CACHE)/word2vec/config.json: tools/fetch_word2vec.py | $(VENV)/.demo
	$(BIN)/python tools/fetch_word2vec.py $(CACHE)

# Trains the model in the package: make model FLICKR8K=DIR COCO=DIR (see its card).
SHIPPED := src/fishermix/pretrained/model
SETS = --data flickr8k:$(FLICKR8K) --data-no-dev folder:$(COCO)
model: $(VENV)/.test word2vec
	@test -d "$(FLICKR8K)" -a -d "$(COCO)" || { echo "usage: make model FLICKR8K=DIR COCO=DIR" >&2; exit 2; }
	$(BIN)/python tools/extend_word2vec.py $(CACHE) --data flickr8k:$(FLICKR8K) --data folder:$(COCO)
	$(BIN)/fishermix train $(SETS) --vectors $(CACHE)/word2vec-extended --recipe shipped --words 20000 --half \
	  --work $(CACHE)/model.work --out $(SHIPPED)
	$(BIN)/fishermix captioner train $(SETS) --model $(SHIPPED) --features $(CACHE)/model.work/features --epochs 4 \
	  --checkpoint $(CACHE)/model.captioner

# The library without the photo model, as a wheel in dist/: docs/install.md.
core: | $(VENV)/bin/python
	$(BIN)/python tools/build_core.py dist

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable '.[serve]' scikit-image
	touch $@

# torch is pinned first: a range would bring the newest build with gigabytes of CUDA packages.
$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	$(PIP) torch==2.13.0
	$(PIP) --editable '.[caption,serve,dask,faiss,postgres,plots,export]' --group test --group lint
	sh tools/install_browser.sh
	touch $@

$(VENV)/.bench: $(VENV)/.test
	$(PIP) --group bench
	touch $@

clean:
	rm -rf $(VENV) $(CACHE) build dist demo-out
