# Every target works from a bare checkout: it makes its own .venv and installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
CACHE := .cache
PYTEST_ARGS ?= -n 2

.PHONY: demo test test-minimum bench lint docs package fuzz kills word2vec model core clean

demo: $(VENV)/.demo
	$(BIN)/fishermix demo $(if $(PHOTOS),"$(PHOTOS)") --out demo-out

test: $(VENV)/.test lint word2vec
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The tests of the library, and of what each extra but torch adds, with exactly the minimum versions in pyproject.toml.
MINIMUM := $(CACHE)/minimum
LIBRARY_TESTS := tests/mixture tests/fisher tests/cca tests/text tests/rows tests/evaluation tests/model tests/cli \
  tests/test_storage.py tests/test_progress.py tests/test_paths.py tests/test_old_folders.py tests/test_read_only.py
EXTRA_TESTS := tests/server/test_access.py tests/server/test_api.py tests/server/test_live.py tests/vision/test_formats.py \
  tests/retrieval/test_faiss_index.py tests/retrieval/test_postgres_store.py tests/distributed
test-minimum: $(MINIMUM)/.installed
	PYTHONPATH=$(CURDIR)/src $(MINIMUM)/bin/python -m pytest $(LIBRARY_TESTS) $(EXTRA_TESTS) $(PYTEST_ARGS)

$(MINIMUM)/.installed: pyproject.toml tools/list_minima.py
	$(PYTHON) -m venv --clear $(MINIMUM)
	$(PYTHON) tools/list_minima.py serve watch dask raw video jxl tiff faiss postgres plots export test \
	  > $(MINIMUM)/pins.txt
	$(MINIMUM)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $(MINIMUM)/pins.txt
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
SOURCE := COCO's training captions in lower case (Lin et al. 2014, cocodataset.org), CC BY 4.0; the first are our own
model: $(VENV)/.test word2vec
	@test -d "$(FLICKR8K)" -a -d "$(COCO)" || { echo "usage: make model FLICKR8K=DIR COCO=DIR" >&2; exit 2; }
	$(BIN)/python tools/extend_word2vec.py $(CACHE) --data flickr8k:$(FLICKR8K) --data folder:$(COCO)
	$(BIN)/fishermix train --data flickr8k:$(FLICKR8K) --data-only-train folder:$(COCO) --recipe shipped --words 20000 \
	  --vectors $(CACHE)/word2vec-extended --half --work $(CACHE)/model.work --out $(SHIPPED)
	$(BIN)/python tools/make_sentence_pool.py $(SHIPPED) --data folder:$(COCO) --source "$(SOURCE)"
	$(BIN)/python tools/calibrate.py $(SHIPPED) --features $(CACHE)/model.work/features \
	  --fit flickr8k:$(FLICKR8K) --check flickr8k:$(FLICKR8K) --check folder:$(COCO)
	$(BIN)/fishermix evaluate $(SHIPPED) --data flickr8k:$(FLICKR8K) --work $(CACHE)/model.work/features \
	  --json $(SHIPPED)/figures-flickr8k.json
	$(BIN)/fishermix evaluate $(SHIPPED) --data folder:$(COCO) --sample 1000 --work $(CACHE)/model.work/features \
	  --json $(SHIPPED)/figures-coco.json
	$(BIN)/fishermix captioner train --model $(SHIPPED) --data flickr8k:$(FLICKR8K) --data-only-train folder:$(COCO) \
	  --epochs 5 --min-count 6 --features $(CACHE)/model.work/features
	$(BIN)/fishermix captioner train --model $(SHIPPED) --data flickr8k:$(FLICKR8K) --data-only-train folder:$(COCO) \
	  $(foreach again,2 3 4,--data-only-train flickr8k:$(FLICKR8K)) --recipe fine-tune --epochs 1 \
	  --features $(CACHE)/model.work/features

# The site, in build/site: guide, gallery and reference. Every warning is an error.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx --fail-on-warning --nitpicky --keep-going -q docs build/site
	@echo "The site is in build/site/index.html"

# Wheel and sdist in dist/, the same bytes from the same commit, checked as the package index checks them.
package: $(VENV)/bin/python
	$(PIP) build twine
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*

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

$(VENV)/.docs: pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable '.[serve,plots,dask]' scikit-image --group docs
	touch $@

$(VENV)/.bench: $(VENV)/.test
	$(PIP) --group bench
	touch $@

clean:
	rm -rf $(VENV) $(CACHE) build dist demo-out
