# The doors. Each sets up what it needs; a second run of the set-up takes no time.
BIN := .venv/bin
export PYTHONPATH := .

.PHONY: help setup demo test check load bench-ingest docs lock

help: ## list these targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 16

setup: ## Debian packages, .venv with exact pins, hilum itself
	@deploy/setup.sh

demo: setup ## a study in, its SR in a PACS; DEMO_EXIT=1 ends by itself, STUDY=path sends your own files
	@$(BIN)/python deploy/demo.py $(STUDY)

test: setup ## all tests
	$(BIN)/pytest --durations=10

check: setup ## style, types, walls between the rooms, documentation; fast
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	MYPYPATH=. $(BIN)/mypy --strict --explicit-package-bases load_tests deploy
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/unit/test_docs.py

load: setup ## studies at a constant rate; LOAD="--rate 2 --seconds 60"
	@$(BIN)/python -m load_tests.load $(LOAD)

bench-ingest: setup ## what receiving costs, beside DCMTK; BENCH="--rounds 1 --associations 4"
	@$(BIN)/python -m load_tests.ingest $(BENCH)

docs: setup ## regenerate the generated parts of docs/
	@$(BIN)/python deploy/generate_docs.py

lock: ## pin what .venv holds
	@$(BIN)/python deploy/write_locks.py
