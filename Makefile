# Every target works from a bare checkout: it makes its own .venv and installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
CACHE := .cache
PYTEST_ARGS ?= -n 2
PROJECTS := pyproject.toml packages/fishermix/pyproject.toml packages/fishermix-photos/pyproject.toml

EXTRAS := serve watch dask raw video jxl postgres plots onnx

.PHONY: demo test test-minimum bench lint audit docs package fuzz kills word2vec model clean

demo: $(VENV)/.demo
	$(BIN)/fishermix demo --out demo-out

test: $(VENV)/.test lint word2vec
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/count.py
	$(BIN)/python tools/trace.py

# Known faults of the minimum versions. It asks the advisory service of the package index, so it is no part of lint.
audit: $(VENV)/bin/python
	$(PIP) pip-audit
	mkdir -p $(CACHE)
	$(BIN)/python tools/list_minima.py $(EXTRAS) > $(CACHE)/minima.txt
	$(BIN)/python -m pip_audit --strict --no-deps --disable-pip --requirement $(CACHE)/minima.txt

# The tests that need no torch, with exactly the minimum versions in the pyproject.toml of both packages.
MINIMUM := $(CACHE)/minimum
SOURCES := $(CURDIR)/packages/fishermix/src:$(CURDIR)/packages/fishermix-photos/src
MINIMUM_TESTS := packages/fishermix/tests --ignore packages/fishermix/tests/caption packages/fishermix-photos/tests \
  --ignore packages/fishermix-photos/tests/lab --ignore packages/fishermix-photos/tests/caption
test-minimum: $(MINIMUM)/.installed
	PYTHONPATH=$(SOURCES) $(MINIMUM)/bin/python -m pytest $(MINIMUM_TESTS) $(PYTEST_ARGS)

$(MINIMUM)/.installed: $(PROJECTS) tools/list_minima.py
	$(PYTHON) -m venv --clear $(MINIMUM)
	$(PYTHON) tools/list_minima.py $(EXTRAS) test > $(MINIMUM)/pins.txt
	$(MINIMUM)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $(MINIMUM)/pins.txt
	touch $@

# Damaged files into every reader, for hours: make fuzz FUZZ="--minutes 600". Findings go to tests/fuzz/crashes.
fuzz: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.run $(or $(FUZZ),--count 100000)  # LibRaw's threads do not survive a fork

# kill -9 of two writers of a photo library, of train, captioner train and reproduce, 50 each.
kills: $(VENV)/.test
	$(BIN)/python tests/kills.py $(KILLS)

bench: $(VENV)/.bench word2vec
	$(BIN)/python -m benchmarks $(BENCH)

word2vec: $(CACHE)/word2vec/config.json

$(CACHE)/word2vec/config.json: tools/fetch_word2vec.py | $(VENV)/.demo
	$(BIN)/python tools/fetch_word2vec.py $(CACHE)

# The names of ImageNet's classes, which the tuned network keeps.
$(CACHE)/classes.txt: tools/fetch_classes.py | $(VENV)/.demo
	$(BIN)/python tools/fetch_classes.py $(CACHE)

# Trains the model in the package (see docs/model.md): make model FLICKR8K=DIR COCO=DIR RESTORED=DIR IAPR=DIR
# First a model with the network as ImageNet left it, then the tuned network with the space that is solved again.
PRETRAINED := packages/fishermix-photos/src/fishermix_photos/pretrained
SHIPPED := $(PRETRAINED)/model
START := $(CACHE)/untuned
STEPS := 2900
CAPTIONED := --data flickr8k:$(FLICKR8K) --data-only-train folder:$(COCO)
MORE_FLICKR8K := $(foreach again,2 3 4,--data-only-train flickr8k:$(FLICKR8K))
SOURCE := COCO's training captions in lower case (Lin et al. 2014, cocodataset.org), CC BY 4.0; the first are our own
model: $(VENV)/.test word2vec $(CACHE)/classes.txt
	@test -d "$(FLICKR8K)" -a -d "$(COCO)" -a -d "$(RESTORED)" -a -d "$(IAPR)" || \
	  { echo "usage: make model FLICKR8K=DIR COCO=DIR RESTORED=DIR IAPR=DIR" >&2; exit 2; }
	$(BIN)/python tools/extend_word2vec.py $(CACHE) --data flickr8k:$(FLICKR8K) --data folder:$(COCO) --data folder:$(IAPR)
	$(BIN)/fishermix train $(CAPTIONED) --recipe shipped --vectors $(CACHE)/word2vec-extended \
	  --work $(CACHE)/model.work --out $(START)
	$(BIN)/fishermix captioner train --model $(START) $(CAPTIONED) --set epochs=5 --set min_count=6 \
	  --work $(CACHE)/model.work
	$(BIN)/fishermix captioner train --model $(START) $(CAPTIONED) $(MORE_FLICKR8K) --recipe fine-tune --set epochs=1 \
	  --work $(CACHE)/model.work
	$(BIN)/fishermix networks tune $(PRETRAINED)/efficientnet-lite2-captions --model $(START) $(CAPTIONED) \
	  --data-only-train folder:$(RESTORED) --data-only-train folder:$(IAPR) --classes $(CACHE)/classes.txt --steps $(STEPS) \
	  --share 0.11 --share 0.44 --share 0.23 --share 0.22 --weight 1 --weight 1 --weight 0.5 --weight 1 \
	  --words 20000 --set reg_x=0.03 --set reg_y=0.0005 --set correlation_powers=0 \
	  --work $(CACHE)/tuning.work --out $(SHIPPED)
	$(BIN)/python tools/make_sentence_pool.py $(SHIPPED) --data folder:$(COCO) --source "$(SOURCE)"
	$(BIN)/python tools/calibrate.py $(SHIPPED) --features $(CACHE)/model.work/features \
	  --fit flickr8k:$(FLICKR8K) --fit folder:$(COCO) --fit folder:$(IAPR) --judgments tools/judgments.json \
	  --check flickr8k:$(FLICKR8K)
	$(BIN)/fishermix evaluate --data flickr8k:$(FLICKR8K) --work $(CACHE)/model.work --json results/package.json
	$(BIN)/fishermix evaluate --data folder:$(COCO) --sample 1000 --work $(CACHE)/model.work --json results/package.json
	$(BIN)/fishermix captioner train --model $(SHIPPED) $(CAPTIONED) $(MORE_FLICKR8K) --recipe fine-tune --set epochs=2 \
	  --work $(CACHE)/model.work

# The site, in build/site: guide, gallery and reference. Every warning is an error.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx --fail-on-warning --nitpicky --keep-going -q docs build/site
	@echo "The site is in build/site/index.html"

# Wheels and sdists of both packages in dist/, the same bytes from the same commit, checked as the package index does.
package: $(VENV)/bin/python
	$(PIP) build twine
	rm -rf dist
	for package in packages/fishermix packages/fishermix-photos; do \
	  SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build --outdir dist $$package || exit 1; done
	$(BIN)/python -m twine check --strict dist/*

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip

$(VENV)/.demo: $(PROJECTS) | $(VENV)/bin/python
	$(PIP) --editable packages/fishermix --editable 'packages/fishermix-photos[serve]' scikit-image
	touch $@

# torch is pinned first: a range would bring the newest build with gigabytes of CUDA packages.
$(VENV)/.test: $(PROJECTS) | $(VENV)/bin/python
	$(PIP) torch==2.13.0
	$(PIP) --editable 'packages/fishermix[torch,dask,plots]' \
	  --editable 'packages/fishermix-photos[serve,postgres,onnx,raw,video,jxl]' --group test --group lint
	sh tools/install_browser.sh
	touch $@

$(VENV)/.docs: $(PROJECTS) | $(VENV)/bin/python
	$(PIP) --editable 'packages/fishermix[plots,dask]' --editable 'packages/fishermix-photos[serve]' scikit-image --group docs
	touch $@

$(VENV)/.bench: $(VENV)/.test
	$(PIP) --group bench
	touch $@

clean:
	rm -rf $(VENV) $(CACHE) build dist demo-out
