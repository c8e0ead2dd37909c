# `make run` tunes the example that comes with the package, `make test` runs the tests; both set up .venv first.

VENV := .venv
# 3.11 is what constraints.txt is tested with; any newer one does. Another: make run PYTHON=/path/to/python3
PYTHON := python3.11 python3 python3.12 python3.13 python3.14
ARGS :=

PIP = $(VENV)/bin/python -m pip --disable-pip-version-check --quiet
USABLE = import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
python = $(firstword $(foreach name,$(PYTHON),$(shell $(name) -c '$(USABLE)' 2>/dev/null && echo $(name))))

.DEFAULT_GOAL := help
.PHONY: help run test check bench clean
.DELETE_ON_ERROR:

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile

run: $(VENV)/.installed ## tune the embedded example, 30 trials; more options with ARGS="..."
	$(VENV)/bin/tuner run --trials 30 $(ARGS)

test: $(VENV)/.installed-dev ## run the tests; some of them with ARGS="-k export"
	$(VENV)/bin/python -m pytest $(ARGS)

check: $(VENV)/.installed-dev ## formatting, lint, types and import contracts
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

bench: $(VENV)/.installed-dev ## judge estimators and search against known truths (hours); ARGS="--quick" for minutes
	$(VENV)/bin/python -m benchmarks $(ARGS)

clean: ## remove the environment and what tools left behind; databases stay
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps, touched only after a whole installation: a second call does nothing, a broken-off one starts again.
$(VENV)/.installed: pyproject.toml constraints.txt
	@if [ -z "$(python)" ]; then \
	  echo "error: no Python 3.11 or newer that can make a virtual environment" >&2; \
	  echo "hint: apt-get install python3 python3-venv" >&2; exit 1; fi
	@echo "setting up $(VENV) with $(python): downloads torch the first time, which takes minutes" >&2
	@$(python) -m venv $(VENV)
	@$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "adding the development tools" >&2
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@
