# Every target works from a bare checkout: it makes its own .venv and installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
CACHE := .cache
PYTEST_ARGS ?= -n 2
PROJECTS := pyproject.toml packages/fishermix/pyproject.toml packages/fishermix-photos/pyproject.toml packages/fishermix-lab/pyproject.toml

# All extras but torch, without which `make test-minimum` runs.
EXTRAS := compiled serve dask raw video jxl postgres plots onnx text

.PHONY: demo test test-minimum bench lint audit docs package fuzz hostile kills errors power-losses requests word2vec model clean

demo: $(VENV)/.demo
	$(BIN)/python tools/fetch_sample_photos.py demo-out/photos
	$(BIN)/fishermix demo --out demo-out

test: $(VENV)/.test lint word2vec
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Known faults of the minimum versions. It asks the advisory service of the package index, so it is no part of lint.
audit: $(VENV)/bin/python
	$(PIP) pip-audit
	$(BIN)/python tools/audit.py

# The tests that need no torch, with exactly the minimum versions in the pyproject.toml of all packages.
MINIMUM := $(CACHE)/minimum
SOURCES := $(CURDIR)/packages/fishermix/src:$(CURDIR)/packages/fishermix-photos/src:$(CURDIR)/packages/fishermix-lab/src
MINIMUM_TESTS := packages/fishermix/tests packages/fishermix-photos/tests
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

# About a hundred small files that ask a decoder for gigabytes or minutes, with the memory and seconds of each.
hostile: $(VENV)/.test
	$(BIN)/python packages/fishermix-photos/tests/vision/hostile_pictures.py $(HOSTILE)

# kill -9 of two writers of a photo library, of train, captioner train and reproduce, 50 each: KILLS="library --kills 1000".
kills: $(VENV)/.test
	$(BIN)/python tests/kills.py $(KILLS)

# Each system call on a photo library fails once, with each of five errors; ERRORS="--every 4" is a quarter of them.
errors: $(VENV)/.test
	$(BIN)/python tests/errors.py $(ERRORS)

# Losses of power while a photo library changes, by the calls that strace records: LOSSES="--losses 1000".
power-losses: $(VENV)/.test
	$(BIN)/python tests/power_losses.py $(LOSSES)

# 50,000 requests of 16 clients to `fishermix serve` with 256 descriptors: REQUESTS="--requests 5000 --minutes 10".
requests: $(VENV)/.test
	$(BIN)/python tests/many_requests.py $(REQUESTS)

bench: $(VENV)/.bench word2vec
	$(BIN)/python -m benchmarks $(BENCH)

word2vec: $(CACHE)/word2vec/config.json

$(CACHE)/word2vec/config.json: tools/fetch_word2vec.py | $(VENV)/.demo
	$(BIN)/python tools/fetch_word2vec.py $(CACHE)

# The names of ImageNet's classes, which the tuned network keeps.
$(CACHE)/classes.txt: tools/fetch_classes.py | $(VENV)/.demo
	$(BIN)/python tools/fetch_classes.py $(CACHE)

# Trains the model in the package (see docs/model.md): make model FLICKR8K=DIR COCO=DIR COCO320=DIR IAPR=DIR
# The network of START and its space are tuned. By default, START is trained first, with the network as ImageNet
# left it; START=packages/fishermix-photos/src/fishermix_photos/pretrained/model continues from the package.
PRETRAINED := packages/fishermix-photos/src/fishermix_photos/pretrained
SHIPPED := $(PRETRAINED)/model
PREPARED := $(CACHE)/photos
UNTUNED := $(CACHE)/untuned
START ?= $(UNTUNED)
STEPS := 1500
TOWARD := 1
CAPTIONED := --data flickr8k:$(FLICKR8K) --data-only-train folder:$(COCO320) --data-only-train folder:$(PREPARED)/coco
MORE_FLICKR8K := $(foreach again,2 3 4,--data-only-train flickr8k:$(FLICKR8K))
SOURCE := COCO's training captions in lower case (Lin et al. 2014, cocodataset.org), CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/); the first are our own

$(PREPARED)/iapr/captions.jsonl: tools/prepare_photos.py | $(VENV)/.test
	@test -d "$(FLICKR8K)" -a -d "$(COCO)" -a -d "$(COCO320)" -a -d "$(IAPR)" || \
	  { echo "usage: make model FLICKR8K=DIR COCO=DIR COCO320=DIR IAPR=DIR" >&2; exit 2; }
	$(BIN)/python tools/prepare_photos.py $(COCO) $(COCO320) $(IAPR) $(PREPARED)

$(CACHE)/word2vec-extended/config.json: $(PREPARED)/iapr/captions.jsonl | word2vec
	$(BIN)/python tools/extend_word2vec.py $(CACHE) --data flickr8k:$(FLICKR8K) --data folder:$(COCO) --data folder:$(IAPR)

$(UNTUNED)/captioner/config.json: $(CACHE)/word2vec-extended/config.json
	$(BIN)/fishermix train $(CAPTIONED) --recipe shipped --vectors $(CACHE)/word2vec-extended \
	  --work $(CACHE)/model.work --out $(UNTUNED)
	$(BIN)/fishermix captioner train --model $(UNTUNED) $(CAPTIONED) --set epochs=5 --set min_count=6 \
	  --work $(CACHE)/model.work
	$(BIN)/fishermix captioner train --model $(UNTUNED) $(CAPTIONED) $(MORE_FLICKR8K) --recipe fine-tune --set epochs=1 \
	  --work $(CACHE)/model.work

model: $(START)/captioner/config.json $(CACHE)/word2vec-extended/config.json $(CACHE)/classes.txt
	$(BIN)/fishermix networks tune $(PRETRAINED)/efficientnet-lite2-captions --model $(START) $(CAPTIONED) \
	  --data-only-train folder:$(PREPARED)/iapr --classes $(CACHE)/classes.txt --steps $(STEPS) --toward $(TOWARD) \
	  --share 0.2 --share 0.32 --share 0.27 --share 0.21 --copies 4 --copies 1 --copies 1 --copies 2 \
	  --vectors $(CACHE)/word2vec-extended --words 20000 --set reg_x=0.03 --set reg_y=0.0005 --set correlation_powers=0 \
	  --size 292 --work $(CACHE)/tuning.work --out $(SHIPPED)
	$(BIN)/python tools/make_sentence_pool.py $(SHIPPED) --data folder:$(COCO) --source "$(SOURCE)"
	$(BIN)/python tools/make_phrases.py $(SHIPPED) --data flickr8k:$(FLICKR8K) --data folder:$(COCO) \
	  --data folder:$(PREPARED)/iapr --work $(CACHE)/tuning.work
	$(BIN)/python tools/calibrate.py $(SHIPPED) --features $(CACHE)/model.work/features \
	  --fit flickr8k:$(FLICKR8K) --fit folder:$(COCO) --fit folder:$(PREPARED)/iapr --judgments tools/judgments.json \
	  --check flickr8k:$(FLICKR8K)
	$(BIN)/fishermix captioner train --model $(SHIPPED) $(CAPTIONED) $(MORE_FLICKR8K) --recipe fine-tune --set epochs=2 \
	  --work $(CACHE)/model.work
	$(BIN)/fishermix evaluate --data flickr8k:$(FLICKR8K) --work $(CACHE)/model.work --json results/package.json
	$(BIN)/fishermix evaluate --data flickr8k:$(FLICKR8K) --copies 256 --work $(CACHE)/model.work --json results/package.json
	$(BIN)/fishermix evaluate --data folder:$(COCO) --sample 1000 --work $(CACHE)/model.work --json results/package.json
	$(BIN)/fishermix evaluate --data folder:$(COCO) --split dev --work $(CACHE)/model.work --json results/package.json
	$(BIN)/fishermix evaluate --data folder:$(PREPARED)/iapr --split dev --work $(CACHE)/model.work --json results/package.json

# The site, in build/site: guide, gallery and reference. Every warning is an error.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx --fail-on-warning --nitpicky --keep-going -q docs build/site
	@echo "The site is in build/site/index.html"

# Wheels and sdists of both packages in dist/, the same bytes from the same commit, checked as the package index does.
package: $(VENV)/bin/python
	$(PIP) build twine
	rm -rf dist
	for package in packages/fishermix packages/fishermix-photos packages/fishermix-lab; do \
	  SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build --outdir dist $$package || exit 1; done
	$(BIN)/python -m twine check --strict dist/*

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip

# What a photo search needs, in less than 450 MB: no numba, nothing of the lab, no bytecode before it is used.
$(VENV)/.demo: $(PROJECTS) | $(VENV)/bin/python
	$(PIP) --no-compile --editable packages/fishermix --editable 'packages/fishermix-photos[serve]'
	touch $@

# torch is pinned first: a range would bring the newest build with gigabytes of CUDA packages.
$(VENV)/.test: $(PROJECTS) | $(VENV)/bin/python
	$(PIP) torch==2.13.0
	$(PIP) --editable 'packages/fishermix[dask,plots]' \
	  --editable 'packages/fishermix-photos[serve,postgres,onnx,raw,video,jxl,text]' --editable 'packages/fishermix-lab[torch,onnx]' --group test --group lint
	sh tools/install_browser.sh
	touch $@

$(VENV)/.docs: $(PROJECTS) | $(VENV)/bin/python
	$(PIP) --editable 'packages/fishermix[plots,dask]' --editable 'packages/fishermix-photos[serve]' --editable packages/fishermix-lab scikit-image --group docs
	touch $@

$(VENV)/.bench: $(VENV)/.test
	$(PIP) --group bench
	touch $@

clean:
	rm -rf $(VENV) $(CACHE) build dist demo-out
