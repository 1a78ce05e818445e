# Two commands set everything up: `make run` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: run test tests check docs bench bench-tables clean help

run: .venv/core  ## train on the bundled digits and write a report
	$(BIN)/taciturn run

test: .venv/test  ## the whole check: what `check` does, and the tests
	$(MAKE) --no-print-directory -j 2 check tests

tests: .venv/test  ## the tests alone
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder

check: .venv/test  ## format, lint, types and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/test  ## build the site
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/site
	@echo "the site is in build/site: open build/site/index.html"

bench: .venv/bench  ## time Taciturn against scikit-learn and torch
	$(BIN)/taciturn bench --all --out benchmarks/results/bench

bench-tables: .venv/bench-tables  ## private models on tables, against other libraries
	$(BIN)/taciturn bench tables

.venv/core: pyproject.toml constraints.txt setup.py $(wildcard src/taciturn/kernels/*.[ch])
	@scripts/venv.sh "$(PYTHON)"
	@echo "installing into .venv (about a minute)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/test: .venv/core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	scripts/chromium.sh
	touch $@

.venv/bench: .venv/core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	touch $@

.venv/bench-tables: .venv/core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench-tables]'
	touch $@

clean:  ## remove the environment, builds and caches
	rm -rf .venv build dist src/taciturn/kernels/*.so .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
