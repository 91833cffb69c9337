# The commands of fsdp.cpp. The build itself is CMakeLists.txt; this file only calls it.
#   make, make train, make tests, make test, make test-all, make kills, make failures, make bench,
#   make bench-tokenizers, make fuzz, make differential, make cuda-report, make gpu-check,
#   make requirements, make format, make size, make clean
# SANITIZE=thread or SANITIZE=address builds beside it, into build-thread or build-address.
# CUDA=1 builds for GPUs, CUDA=0 does not, CUDA_ARCH=90a or CUDA_ARCH=80,90a builds for these alone. A build folder
# keeps what was said last. Where nothing was said, or CUDA=auto, it is built for the GPUs that are seen here, if any.
# JOIN=OFF compiles every source alone (tools/cmake/Join.cmake): longer as a whole, shorter for a small change.
SHELL := /bin/bash
SANITIZE ?=
BUILD := build$(if $(SANITIZE),-$(SANITIZE))
CUDA ?=
CUDA_ARCH ?=
JOIN ?=
ifneq ($(filter-out 0 1 auto,$(CUDA)),)
  ifeq ($(origin CUDA),environment)
    CUDA :=# a module's, which names a folder
  else
    $(error CUDA=$(CUDA): expected 1 (builds for GPUs), 0 (does not) or auto (for the GPUs seen here))
  endif
endif
ifneq ($(filter 0 auto,$(CUDA)),)
  ifneq ($(CUDA_ARCH),)
    $(error CUDA=$(CUDA) CUDA_ARCH=$(CUDA_ARCH): they contradict each other: leave one out)
  endif
endif
ROOT_FLAG := $(if $(filter 0,$(shell id -u)),--allow-run-as-root)
# --oversubscribe, --bind-to none: also with fewer cores than ranks; threads are not held to one core
MPIRUN := mpirun -n 2 --oversubscribe --bind-to none $(ROOT_FLAG)
SOURCES = find core kernels models comm optim tools tests -name '*.h' -o -name '*.cpp' -o -name '*.cu'

.PHONY: all train tests test test-all kills failures bench bench-tokenizers fuzz differential cuda-report gpu-check \
  requirements format size clean
.NOTPARALLEL:

# Once, and again when something is said of CUDA or of JOIN.
CHOICE := $(strip $(if $(JOIN),-DFSDP_JOIN=$(JOIN)) $(if $(CUDA)$(CUDA_ARCH),-UCMAKE_CUDA_ARCHITECTURES -DFSDP_CUDA=$(or $(if $(filter 0,$(CUDA)),OFF),$(if $(filter auto,$(CUDA)),AUTO),ON) \
  -DFSDP_CUDA_ARCH='$(CUDA_ARCH)'))
CONFIGURE = $(if $(CHOICE),,test -f $(BUILD)/build.ninja -o -f $(BUILD)/Makefile ||) cmake -S . -B $(BUILD) \
	  $$(test ! -f $(BUILD)/CMakeCache.txt && command -v ninja >/dev/null && echo -G Ninja) \
	  -DSANITIZE=$(SANITIZE) $(CHOICE)

# The program: installs what is missing (instant when nothing is), configures once, builds.
all:
	@tools/setup.sh
	@$(CONFIGURE)
	@cmake --build $(BUILD) --parallel $$(nproc) --target fsdp

# The program and its tests, with what only tests need.
tests:
	@tools/setup.sh --tests
	@$(CONFIGURE)
	@cmake --build $(BUILD) --parallel $$(nproc)

# Trains the embedded example, real chess games, on two ranks: on the CPU where nothing else was built, also
# beside a GPU.
train: all
	@grep -q '^FSDP_CUDA_BUILT:INTERNAL=ON' $(BUILD)/CMakeCache.txt || backend="--backend cpu"; \
	if command -v mpirun >/dev/null; then launch="$(MPIRUN)"; else ranks="--local-ranks 2"; fi; \
	set -x; $$launch $(BUILD)/fsdp train --config tools/recipes/chess.yaml $$ranks $$backend

# The per-commit tests; with SANITIZE the unit set and that on many ranks.
test: tests
	@tests/run_tests.sh $(BUILD) -L 'unit|ranks|$(if $(SANITIZE),,mpi|e2e|)cuda_emulator' -LE slow

# Everything, in parts that can be run in several sittings: the parts that are not complete on this commit, or
# PART=commit|slow|thread|address|races|mutations|fuzz|busy1..busy5 for at most half an hour, or PART=table.
PART ?= all
test-all:
	@tests/test_all.sh $(PART)

# Kills of training jobs, and failures of jobs that nobody watches. Each call adds a line, with its seed
# and its sum, to tests/e2e/disturbed.tsv.
KILLS ?= 200
FAILURES ?= 40
kills: tests
	@SUMS=$(CURDIR)/tests/e2e/disturbed.tsv KILLS=$(KILLS) tests/run_tests.sh $(BUILD) -R '^e2e/kills_slow$$'
failures: tests
	@SUMS=$(CURDIR)/tests/e2e/disturbed.tsv FAILURES=$(FAILURES) tests/run_tests.sh $(BUILD) -R '^e2e/unwatched_slow$$'

# Training steps of GPT-2 124M against the speed of light of this machine, and beside PyTorch where
# that is installed. PEER=none leaves PyTorch out.
bench: all
	@tools/bench/bench_peer.sh $(BUILD)

# How fast texts are encoded, beside Hugging Face's tokenizers and tiktoken where python3 has them:
# of TEXTS (English in ../shared/data) by TOKENIZER (GPT-2's from there), ROUNDS of all in turn,
# which make passes on from its command line.
TEXTS ?=
bench-tokenizers: all
	@tools/bench/bench_tokenizers.sh $(BUILD) $(TEXTS)

# The readers of files from elsewhere (tests/fuzz), by libFuzzer under both sanitizers: RUNS
# executions of each, those of FUZZ side by side. What it finds next is kept in build-fuzz/corpus.
RUNS ?= 100000
FUZZ ?= safetensors index config adapter tokenizer rows template
CLANG ?= $(firstword $(shell command -v clang++-19 clang++-18 clang++-17 clang++-16 clang++) clang++)
fuzz:
	@command -v $(CLANG) >/dev/null || { echo "apt-get install clang-19 (16 or newer; or set CLANG=)"; exit 1; }
	@test -f build-fuzz/CMakeCache.txt || cmake -S . -B build-fuzz -DFSDP_FUZZ=ON -DFSDP_TESTS=OFF \
	  $$(command -v ninja >/dev/null && echo -G Ninja) -DCMAKE_CXX_COMPILER=$(CLANG)
	@cmake --build build-fuzz --parallel $$(nproc) --target $(FUZZ:%=fuzz_%) $(FUZZ:%=fuzz_smoke_%)
	@tests/fuzz/run.sh build-fuzz $(RUNS) $(FUZZ)

# Random models and texts against transformers, PEFT and tokenizers (tests/differential), of SEEDS:
# 0-599, or 17, or 3,7,20-29. PYTHON is one that has these packages.
SEEDS ?= 0-99
PYTHON ?= python3
differential: all
	@$(PYTHON) tests/differential/run.py --fsdp $(BUILD)/fsdp --seeds $(SEEDS)

# Registers, spills and shared memory of every CUDA kernel; fails when one spills or cannot start.
cuda-report:
	@tools/cuda_report.sh $(BUILD)

# On a machine with an NVIDIA GPU: builds for it, tests, measures; results in gpu-check/DATE-COMMIT.
# For a GPU machine without compiler or network: tools/launch/gpu_tests.md.
gpu-check:
	@tools/setup.sh --tests
	@tools/gpu_prebuild.sh native
	@out=gpu-check/$$(date +%Y-%m-%d)-$$(git rev-parse --short HEAD 2>/dev/null || echo unknown); status=0; \
	for part in first second third; do mkdir -p $$out/$$part; \
	  PREBUILT=build-gpu/prebuilt OUT=$$out/$$part tools/gpu_check.sh $$part || status=1; done; exit $$status

# What five guides need, and the tests that prove it (tests/requirements.txt).
requirements:
	@tests/requirements.sh

# Formats all sources in place.
format:
	@command -v clang-format-14 >/dev/null || { echo "apt-get install clang-format-14"; exit 1; }
	@$(SOURCES) | xargs clang-format-14 -i

# Lines by room, edges, repeated lines, objects; fails over the size budgets.
size:
	@tests/size.sh $(BUILD)

clean:
	rm -rf build build-thread build-address build-fuzz build-gpu
