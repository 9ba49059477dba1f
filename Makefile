# `make demo` and `make test` do all that they need on a fresh machine with Python >= 3.10.
find = for p in $(1); do $$p -c '$(2)' >/dev/null 2>&1 && { echo $$p; break; }; done
PYTHON ?= $(shell $(call find,python3 python3.13 python3.12 python3.11 python3.10 python,import sys; sys.exit(sys.version_info < (3, 10))))
# torch 2.2.2 has no wheel for Python 3.13.
PYTHON_COMPAT ?= $(shell $(call find,python3 python3.12 python3.11 python3.10 python,import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))))
VENV := .venv
# Built by each installation, where there is a compiler.
HOOKS := $(addprefix lotus/inside/trace/native/,_hooks.c _hooks.h _buffer.c _samples.c _batch.c)
VENV_COMPAT := .venv-compat
VENV_EXTRAS := .venv-extras
VENV_DIST := .venv-dist
EXTRAS := lightning transformers accelerate timm datasets webdataset monai \
    torch_geometric torchdata tensorboard distributed
# Most of what ultralytics wants its loader does without.
EXTRAS_ALONE := ultralytics opencv-python-headless
purelib = import sysconfig; print(sysconfig.get_path("purelib"))
# test_interpreters.py needs none of them: `make test` runs it.
OF_EXTRAS := tests/compat --ignore=tests/compat/test_interpreters.py
# On a terminal pip shows how far it is, in a log it would only be long.
PIP_INSTALL := -m pip install --disable-pip-version-check $(shell [ -t 2 ] || echo --quiet)
# Two at a time: tests wait a lot. `make test JOBS=0` runs them in one process, one after the other.
JOBS := 2
PYTEST := -m pytest -n $(JOBS) --cache-clear --max-worker-restart 100000
# On a busy machine other processes may come too late once. What fails runs once more, with fixtures
# of its own; the log shows both. Exit code 1: all ran, and some failed.
PYTEST_AGAIN := -m pytest -n 0 --last-failed --last-failed-no-failures none
# Tests start Python thousands of times: each would compile all of lotus again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-nightly test-fast test-compat test-extras lint lint-style lint-types \
    lint-types-oldest docs format bench dist dist-check clean

help:
	@echo 'make demo         trace a small training run on a made data set and print the report'
	@echo 'make test         the tests, but for those of test-nightly'
	@echo 'make test-nightly the tests that take longest for what they add'
	@echo 'make test-fast    unit tests in a minute or so, without torch'
	@echo 'make test-compat  what depends on torch on its oldest supported version (2.2.2)'
	@echo 'make test-extras  the loaders and callbacks of other libraries, such as lightning'
	@echo 'make lint         ruff format, ruff check, import-linter, mypy --strict'
	@echo 'make docs         the documentation as a site, in build/docs'
	@echo 'make bench        what lotus costs at its own start'
	@echo 'make dist         sdist, wheels, licences and bill of materials, in dist'
	@echo 'make dist-check   those wheels in an empty environment of each Python (minutes)'
	@echo 'make clean        remove the environments made here'

demo: $(VENV)/demo.stamp
	$(VENV)/bin/lotus demo

test: $(VENV)/dev.stamp
	$(VENV)/bin/python $(PYTEST) || { test $$? = 1 && $(VENV)/bin/python $(PYTEST_AGAIN); }

test-nightly: $(VENV)/dev.stamp
	$(VENV)/bin/python $(PYTEST) --nightly
	LOTUS_SEEDS=75 $(VENV)/bin/python $(PYTEST) tests/faults/test_damaged.py

test-fast: $(VENV)/dev.stamp
	$(VENV)/bin/python $(PYTEST) -q --fast tests/unit

test-compat: $(VENV_COMPAT)/compat.stamp
	$(VENV_COMPAT)/bin/python $(PYTEST) --of-torch tests/integration || \
	    { test $$? = 1 && $(VENV_COMPAT)/bin/python $(PYTEST_AGAIN) --of-torch tests/integration; }

test-extras: $(VENV_EXTRAS)/extras.stamp
	$(VENV_EXTRAS)/bin/python $(PYTEST) $(OF_EXTRAS) || \
	    { test $$? = 1 && $(VENV_EXTRAS)/bin/python $(PYTEST_AGAIN) $(OF_EXTRAS); }

lint: lint-style lint-types lint-types-oldest

lint-style: $(VENV)/dev.stamp
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/lint-imports --no-cache

# The newest and the oldest Python, by what typeshed knows of them: what holds for both holds for
# those between. The stubs of pandas are not for the oldest, where what it returns is Any.
lint-types: $(VENV)/dev.stamp
	$(VENV)/bin/mypy --strict --python-version 3.13

lint-types-oldest: $(VENV)/dev.stamp
	$(VENV)/bin/mypy --strict --python-version 3.10 --no-warn-return-any --no-warn-unused-ignores

# Without notes on how it was built; a warning, such as of a link that leads nowhere, ends it.
docs: $(VENV)/docs.stamp
	$(VENV)/bin/python -m sphinx --quiet --fail-on-warning --keep-going docs build/docs
	@echo 'built: build/docs/README.html'

format: $(VENV)/dev.stamp
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

bench: $(VENV)/dev.stamp
	$(VENV)/bin/python -m tools.bench.speed.startup

dist: $(VENV_DIST)/dist.stamp
	tools/dist.sh $(VENV_DIST)/bin/python

dist-check: dist
	$(VENV_DIST)/bin/python tools/wheel_check.py

clean:
	rm -rf $(VENV) $(VENV_COMPAT) $(VENV_EXTRAS) $(VENV_DIST)

$(VENV)/bin/python:
	@test -n '$(PYTHON)' || { echo 'no Python >= 3.10 found; set PYTHON=' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/demo.stamp: pyproject.toml constraints.txt $(HOOKS) | $(VENV)/bin/python
	@echo 'installing lotus, torch and torchvision into $(VENV)'
	$(VENV)/bin/python $(PIP_INSTALL) --constraint constraints.txt --editable '.[demo]'
	touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt $(HOOKS) | $(VENV)/bin/python
	@echo 'installing lotus, torch, torchvision and the development tools into $(VENV)'
	$(VENV)/bin/python $(PIP_INSTALL) --constraint constraints.txt --editable '.[demo,dev]'
	touch $@ $(VENV)/demo.stamp

$(VENV)/docs.stamp: constraints-docs.txt $(VENV)/dev.stamp
	@echo 'installing Sphinx into $(VENV)'
	$(VENV)/bin/python $(PIP_INSTALL) --constraint constraints.txt --constraint constraints-docs.txt \
	    --editable '.[docs]'
	touch $@

$(VENV_COMPAT)/compat.stamp: pyproject.toml $(HOOKS)
	@test -n '$(PYTHON_COMPAT)' || { echo 'torch 2.2.2 needs Python 3.10 to 3.12; set PYTHON_COMPAT=' >&2; exit 1; }
	$(PYTHON_COMPAT) -m venv --clear $(VENV_COMPAT)
	@echo 'installing lotus, torch 2.2.2 and torchvision 0.17.2 into $(VENV_COMPAT)'
	$(VENV_COMPAT)/bin/python $(PIP_INSTALL) --editable '.[demo]' \
	    torch==2.2.2 torchvision==0.17.2 'numpy<2' \
	    'pytest>=9.0' 'pytest-timeout>=2.3' 'pytest-xdist>=3.5' 'hypothesis>=6.80'
	touch $@

# It sees the packages of $(VENV) behind its own: torch, which is large, is there once.
$(VENV_EXTRAS)/extras.stamp: constraints.txt constraints-extras.txt $(VENV)/dev.stamp
	$(VENV)/bin/python -m venv --clear $(VENV_EXTRAS)
	echo "import site; site.addsitedir('$$($(VENV)/bin/python -c '$(purelib)')')" \
	    > "$$($(VENV_EXTRAS)/bin/python -c '$(purelib)')/behind.pth"
	@echo 'installing $(EXTRAS) into $(VENV_EXTRAS)'
	$(VENV_EXTRAS)/bin/python $(PIP_INSTALL) --constraint constraints.txt \
	    --constraint constraints-extras.txt $(EXTRAS)
	$(VENV_EXTRAS)/bin/python $(PIP_INSTALL) --constraint constraints-extras.txt --no-deps \
	    $(EXTRAS_ALONE)
	touch $@

$(VENV_DIST)/dist.stamp: constraints-dist.txt
	@test -n '$(PYTHON)' || { echo 'no Python >= 3.10 found; set PYTHON=' >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV_DIST)
	@echo 'installing hatchling, build, twine and cyclonedx-bom into $(VENV_DIST)'
	$(VENV_DIST)/bin/python $(PIP_INSTALL) --constraint constraints-dist.txt \
	    hatchling build twine cyclonedx-bom
	touch $@
