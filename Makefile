# Two commands set everything up: `make run` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: run test tests check docs bench clean

run: .venv/core
	$(BIN)/tacit run

test: .venv/test
	$(MAKE) --no-print-directory -j 2 check tests

tests: .venv/test
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder

check: .venv/test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/test
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/site

bench: .venv/bench
	$(BIN)/tacit bench --all --out benchmarks/results/bench

.venv/core: pyproject.toml constraints.txt setup.py $(wildcard src/tacit/kernels/*.[ch])
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/test: .venv/core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	scripts/chromium.sh
	touch $@

.venv/bench: .venv/core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	touch $@

clean:
	rm -rf .venv build src/tacit/kernels/*.so .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
