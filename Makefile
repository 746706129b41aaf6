# `make help` lists the targets. `make test PYTHON=python3.12` chooses another interpreter for a new .venv.
PYTHON ?= python3
BIN := .venv/bin
# Processes that share the tests; a file's tests stay together, for their fixtures are dear.
WORKERS ?= 2
# Where `make gpu` leaves its logs and results.
OUT ?= build/gpu

.PHONY: help demo test test-slow check gpu docs clean
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | while IFS='|' read -r name what; do printf '%-10s %s\n' "$$name" "$$what"; done

demo: .venv/.installed ## make examples/rmsnorm.py faster, on the CPU, with no key and no network
	$(BIN)/kernelwright optimize examples/rmsnorm.py

test: .venv/.installed ## all tests but those marked slow
	$(BIN)/python -m pytest -m "not slow" -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test-slow: .venv/.installed ## the tests marked slow
	$(BIN)/python -m pytest -m slow

check: .venv/.installed ## format, lint, types, and who may import whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

gpu: ## the tests marked gpu, on a machine with a GPU, with its own python3 and nothing installed
	scripts/gpu.sh $(OUT)

docs: .venv/.installed ## write docs/results.md, docs/commands.md and the tools in docs/mcp.md from what they are made of
	$(BIN)/python benchmarks/results_table.py
	$(BIN)/python scripts/commands.py
	$(BIN)/python scripts/tools.py

clean: ## remove what was built here, the virtual environment too; runs/ and archive.db stay
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf src/*.egg-info

.venv/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "make: $(PYTHON) must be Python 3.11 or newer; name another with PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	@touch $@
