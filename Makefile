# Needs make and Python 3.11 or newer; everything else goes into .venv.
#
#   make demo    replay the trace that ships with the project, through Dagster, and show what came out
#   make test    ruff, mypy and pytest
#   make ui      the Dagster UI on 127.0.0.1:3000
#   make bench   measure (ARGS="--help" lists what); also: make lint, make clean

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.tracemill-installed

ifndef PYTHON
PYTHON := $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
  "$$p" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' >/dev/null 2>&1 && { command -v "$$p"; break; }; done)
endif

.PHONY: demo test ui lint bench clean

demo: $(STAMP)
	@$(BIN)/tracemill demo

# In two halves at once, which takes little more than half as long on two cores: one is shown as it runs, then the other.
# Ctrl-C does not reach what a shell runs in the background, so that is ended by name.
DESK := tests/assets/ tests/pipelines/
ENGINE := $(filter-out $(DESK) tests/__pycache__/,$(sort $(wildcard tests/*/)))

test: lint
	@desk=$$(mktemp); trap 'kill $$desk_pid 2>/dev/null; rm -f "$$desk"' EXIT; trap 'exit 130' INT TERM; \
	$(BIN)/python -m pytest $(DESK) >"$$desk" 2>&1 & desk_pid=$$!; \
	$(BIN)/python -m pytest $(ENGINE); engine=$$?; \
	echo "Waiting for $(DESK)..."; wait $$desk_pid; other=$$?; cat "$$desk"; \
	test $$engine -eq 0 && test $$other -eq 0

ui: $(STAMP)
	@$(BIN)/tracemill ui

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/mypy

bench: $(STAMP)
	@$(BIN)/python -m benchmarks $(ARGS)

clean:
	rm -rf $(VENV) warehouse build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .tracemill-cache
	find pipelines sim assets perf_db tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is younger than pyproject.toml once everything is installed, so this happens once.
$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { \
	  echo "error: no Python 3.11 to 3.14 found as python3, python3.14 ... python3.11 or python; install one, or say: make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2; exit 2; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "error: $(PYTHON) cannot make virtual environments; install its venv package (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 2; }
	@echo "Installing into $(VENV) with $(PYTHON) (once; a minute or two)" >&2
	@"$(PYTHON)" -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@
