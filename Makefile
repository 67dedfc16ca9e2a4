# make demo   set up what a prediction needs on a fresh machine, then predict a GPT's memory with no GPU
# make test   set everything up, then run the tests; of many cases alike, a few
# make test-all run every test
# make faults attack every command, record and file; takes about half an hour on two cores; stopped, it goes on later
# make docs   set everything up, then build the documentation into build/site
#
# TORCH=2.15.0 uses that version of torch, from 2.10 on, in a virtual environment of its own.
TORCH ?= 2.13.0
PYTHON ?= python3
VENV := $(if $(filter 2.13.0,$(TORCH)),.venv,.venv-$(TORCH))
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO_READY := $(VENV)/.ready-for-demo
# Where it is set, each of the tests' many processes would compile all sources anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-all lint pytest accuracy faults docs clean

demo: $(DEMO_READY)
	$(BIN)/vramcast predict examples/gpt.py:build batch_size=16 --gpu rtx-4090
	$(BIN)/vramcast predict examples/gpt.py:build --batch-sizes 4-32:4 --memory 24GiB
	@echo
	@echo "Next, with your own program: put the line that starts it behind --, as you type it:"
	@echo "  source $(BIN)/activate"
	@echo "  vramcast predict --gpu rtx-4090 -- python train.py --batch_size=12"
	@echo "It needs the packages that your program imports: pip install them into $(VENV), or vramcast into your own environment:"
	@echo "  pip install $(CURDIR)"

# Both at once, and both must pass. mypy takes what the tests leave of the cores.
test: $(READY)
	$(MAKE) --no-print-directory --jobs 2 lint pytest

test-all: $(READY)
	$(MAKE) --no-print-directory --jobs 2 lint pytest TESTS=--all

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	nice $(BIN)/mypy

# Two more than two cores: some tests wait for time limits and for processes. tests/conftest.py has the order of the files.
pytest: $(READY)
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder $(TESTS)

# Predict every row of every suite and compare with what was measured on an H200; about ten minutes. Exit code 3 is a goal missed.
accuracy: $(READY)
	$(BIN)/vramcast accuracy --against benchmarks/accuracy/h200-torch-2.11 --out build/accuracy --force --figure docs/accuracy.svg || test $$? -eq 3
	cp build/accuracy/accuracy.md docs/accuracy.md
	$(BIN)/vramcast accuracy --suite distributed --no-peers --against benchmarks/accuracy/distributed-h200-torch-2.11 --out build/accuracy-distributed --force || test $$? -eq 3
	cp build/accuracy-distributed/accuracy.md docs/accuracy-distributed.md
	for suite in compiled known; do $(BIN)/vramcast report benchmarks/accuracy/$$suite-h200-torch-2.11 --format md -o docs/accuracy-$$suite.md; done
	$(BIN)/python docs/generate.py

# A sample of this is among the tests. Exit code 1 is a fault found.
faults: $(READY)
	$(BIN)/python tests/faults/drive.py --page

# Options of commands are taken from --help. The variable silences the notice of another generator's beginning.
docs: $(READY)
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Open build/site/index.html"

# torch first and pinned: asked for by another package, pip would take the newest build with gigabytes of CUDA.
# A CUDA build comes with the Triton and the cuDNN it needs; beside a CPU build any may be installed.
# cuDNN is asked about convolutions. It needs no GPU, and where there is none for this machine they are estimated.
$(DEMO_READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet torch==$(TORCH) numpy
	$(BIN)/python -m pip install --quiet --editable .
	$(BIN)/python -c 'from vramcast.simulate.build import build; print("simulated GPU:", build().name)'
	touch $@

$(READY): $(DEMO_READY)
	$(BIN)/python -c 'import triton' 2>/dev/null || $(BIN)/python -m pip install --quiet 'triton==3.8.*'
	$(BIN)/python -c 'import nvidia.cudnn' 2>/dev/null || $(BIN)/python -m pip install --quiet --no-deps nvidia-cudnn-cu13==9.19.0.56 || true
	$(BIN)/python -m pip install --quiet --editable '.[hf,accuracy,dev,docs]'
	touch $@

clean:
	rm -rf .venv .venv-* .pytest_cache .mypy_cache .ruff_cache build
