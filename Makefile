# The short names people type. Presets for development (dev, asan, tsan, cuda) are in CMakePresets.json.
#   make build CMAKE_ARGS=-DSF_ONEDNN=OFF      any CMake option
BUILD ?= build
JOBS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
PREFIX ?= /usr/local
PY := .venv/bin/python
# A build folder keeps the generator that it was made with.
generator = $(if $(wildcard $(1)/CMakeCache.txt),,-G Ninja)

# `make demo` and `make test` compile a new folder's kernels for this processor alone; `make build` and all others for
# every one, in such a folder too.
own_isa = $(if $(wildcard $(BUILD)/CMakeCache.txt),,-DSF_ISAS=native)
every_isa = $(if $(wildcard $(BUILD)/CMakeCache.txt),$(shell \
  grep -q '^SF_ISAS:STRING=native$$' $(BUILD)/CMakeCache.txt && echo -U SF_ISAS))

.PHONY: demo deb clean-room deb-room manylinux bare-room pictures site build build-cmake install install-cmake wheel \
  wheel-abi3 clean-room-abi3 manylinux-abi3 bare-room-abi3 \
  cuda test tsan tsan-build tsan-autograd tsan-memory tsan-data tsan-train tsan-parts test-long test-distributed \
  test-kills \
  test-memory test-shared-server-kills \
  test-server-kills test-server-malformed test-server-malformed-asan test-server-tsan \
  test-gpu test-cuda-emulator test-cuda-races test-ptx sass-lint fuzz bench \
  bench-gpu gpu-check gpu-pack golden docs format lint clean
.DEFAULT_GOAL := build

# Installs what the program needs, builds only that and only for this processor, and makes a sheet of eight pictures and
# a clip: $(BUILD)/demo/grid.png, $(BUILD)/demo/rocket.webp.
demo:
	tools/setup.sh --program
	cmake -S . -B $(BUILD) $(call generator,$(BUILD)) \
	  -DCMAKE_BUILD_TYPE=Release $(own_isa) $(CMAKE_ARGS)
	cmake --build $(BUILD) --parallel $(JOBS) --target scaffolding_program
	$(BUILD)/scaffolding demo --output $(BUILD)/demo
	$(BUILD)/scaffolding txt2vid "rocket, noto" --trajectory "10,54 32,20 54,10" --seed 7 --force \
	  -o $(BUILD)/demo/rocket.webp

# Installs what is missing, builds the program $(BUILD)/scaffolding and the Python package
# that .venv/bin/python imports.
build:
	tools/setup.sh
	cmake -S . -B $(BUILD) $(call generator,$(BUILD)) \
	  -DCMAKE_BUILD_TYPE=Release -DSF_BUILD_PYTHON=ON $(every_isa) $(CMAKE_ARGS)
	cmake --build $(BUILD) --parallel $(JOBS)
	$(PY) -c "import pathlib, sysconfig; \
	  pathlib.Path(sysconfig.get_path('purelib'), 'scaffolding_build.pth').write_text('$(abspath $(BUILD))/python\n')"

# The C++ library and program with CMake alone, no Python. In a folder as deep as that of `make build`:
# ccache then has every object.
build-cmake:
	cmake -S . -B $(BUILD)-cmake $(call generator,$(BUILD)-cmake) -DCMAKE_BUILD_TYPE=Release
	cmake --build $(BUILD)-cmake --parallel $(JOBS)

# The Python package into .venv, editable.
install:
	tools/setup.sh
	$(PY) -m pip install --disable-pip-version-check --no-build-isolation -e ".[dev]"

# Library, headers, program and scaffoldingConfig.cmake below PREFIX.
install-cmake: build-cmake
	cmake --install $(BUILD)-cmake --prefix $(PREFIX)

# A Debian package with the program, the library and the model, in $(BUILD)-cmake.
deb: build-cmake
	cd $(BUILD)-cmake && rm -f *.deb && cpack -G DEB

# That package unpacked into an empty folder, where its program makes a picture.
deb-room: deb
	python3 tests/clean_room.py $(BUILD)-cmake/scaffolding_*.deb

# With the compiler's name and the depth of the folder that `make build` has: ccache then has every object.
wheel:
	tools/setup.sh
	rm -f dist/scaffolding-*-cp3[0-9]*-cp3[0-9]*-*.whl
	CXX="$${CXX:-c++}" $(PY) -m pip wheel --disable-pip-version-check --no-build-isolation --no-deps \
	  --wheel-dir dist -C build-dir=$(BUILD)-wheel .
	@ls dist/scaffolding-*-abi3-*.whl >/dev/null 2>&1 || \
	  echo "wheel: for $$($(PY) --version) alone; not built: that for 3.12 and later," \
	    "by make wheel-abi3$(if $(WHEEL_PYTHON),, WHEEL_PYTHON=...)"

# A wheel for Python 3.12 and every later version, by the stable ABI: WHEEL_PYTHON is a 3.12 or later with headers.
#   make wheel-abi3 WHEEL_PYTHON=/opt/python3.13/bin/python3
WHEEL_PYTHON ?= $(firstword $(foreach v,12 13 14,$(shell python3.$(v) -c 'print("python3.$(v)")' 2>/dev/null)))
ABI3_PY := .venv-abi3/bin/python
wheel-abi3:
	@[ -n "$(WHEEL_PYTHON)" ] || { echo "wheel-abi3: not built, no Python 3.12 or later here: name one with \
	  WHEEL_PYTHON=..."; exit 1; }
	[ -x $(ABI3_PY) ] || $(WHEEL_PYTHON) -m venv .venv-abi3
	$(ABI3_PY) -m pip install --quiet --disable-pip-version-check 'scikit-build-core>=0.10' 'nanobind>=2.4' 'numpy>=1.24'
	rm -f dist/scaffolding-*-abi3-*.whl
	CXX="$${CXX:-c++}" $(ABI3_PY) -m pip wheel --disable-pip-version-check --no-build-isolation --no-deps \
	  --wheel-dir dist -C build-dir=$(BUILD)-abi3 -C wheel.py-api=cp312 -C cmake.define.SF_STABLE_ABI=ON .

# That wheel in an empty virtual environment of each of ABI3_PYTHONS.
ABI3_PYTHONS ?= $(WHEEL_PYTHON)
clean-room-abi3: wheel-abi3
	for python in $(ABI3_PYTHONS); do $$python tests/clean_room.py dist/scaffolding-*-abi3-*.whl || exit 1; done

# The wheel in an empty virtual environment, where it makes a picture.
clean-room: wheel
	$(PY) tests/clean_room.py dist/scaffolding-*-cp3[0-9]*-cp3[0-9]*-*.whl

# That wheel with the libraries that it needs inside, for every Linux with glibc 2.36 or later: dist/manylinux/.
manylinux: wheel
	rm -f dist/manylinux/scaffolding-*-cp3[0-9]*-cp3[0-9]*-*.whl
	PATH="$(abspath .venv)/bin:$$PATH" $(PY) -m auditwheel repair --plat manylinux_2_36_$$(uname -m) \
	  --exclude libcuda.so.1 --wheel-dir dist/manylinux dist/scaffolding-*-cp3[0-9]*-cp3[0-9]*-*.whl

# It on a system that has Python and nothing else, where the README's first program runs.
bare-room: manylinux
	$(PY) tests/bare_root.py dist/manylinux/scaffolding-*-cp3[0-9]*-cp3[0-9]*-*.whl

# Both for the wheel of Python 3.12 and later.
manylinux-abi3: wheel-abi3
	rm -f dist/manylinux/scaffolding-*-abi3-*.whl
	PATH="$(abspath .venv)/bin:$$PATH" $(PY) -m auditwheel repair --plat manylinux_2_36_$$(uname -m) \
	  --exclude libcuda.so.1 --wheel-dir dist/manylinux dist/scaffolding-*-abi3-*.whl

bare-room-abi3: manylinux-abi3
	$(WHEEL_PYTHON) tests/bare_root.py dist/manylinux/scaffolding-*-abi3-*.whl

# The pictures of the documents and of the tests, from the model in models/emoji-128: after its weights have changed.
# docs/pictures, and the README's part.
pictures: build
	$(PY) tools/make_pictures.py $(BUILD)

# Every test that needs no GPU; the last line says how many passed and failed. After `make build` with the kernels of
# other instruction sets, as far as this processor runs them.
test: every_isa = $(own_isa)
test: CMAKE_ARGS += -DSF_BUILD_TESTS=ON -DSF_BUILD_EXAMPLES=ON -DSF_BUILD_BENCHMARKS=ON
test: build
	$(PY) tools/run_tests.py $(BUILD)

# Checks that take minutes or gigabytes: full-size video models in little memory.
test-long: build
	$(PY) -m pytest -q -s --build-dir=$(BUILD) tests/long

# Everything about several processes, with PyTorch's store and torchrun where TORCH_PYTHON names a Python that has it.
test-distributed: CMAKE_ARGS += -DSF_BUILD_TESTS=ON
test-distributed: build
	$(BUILD)/scaffolding_tests --gtest_brief=1 --gtest_filter='ProcessGroup*:Store*:Rendezvous*'
	$(PY) -m pytest -q --durations=5 --build-dir=$(BUILD) tests/python/distributed
	$(PY) tests/conformance/tcp_store.py $(if $(wildcard $(TORCH_PYTHON)),--torch-python $(TORCH_PYTHON))

# 100 kills of random processes of a training at random moments; each prints the seed that repeats it.
#   make test-kills SF_KILLS=10 SF_KILLS_SEED=7
test-kills: CMAKE_ARGS += -DSF_BUILD_TESTS=ON
test-kills: build
	SF_KILLS=$(or $(SF_KILLS),100) SF_KILLS_SEED=$(SF_KILLS_SEED) $(PY) -m pytest -q -s --build-dir=$(BUILD) \
	  tests/python/distributed/test_kills.py

# The server: 100 times `kill -9` under jobs, 10 000 malformed requests, and more of schemathesis where that is.
test-server-kills test-server-malformed: CMAKE_ARGS += -DSF_BUILD_TESTS=ON
test-server-kills: build
	SF_SERVER_KILLS=100 $(PY) -m pytest -q -s --build-dir=$(BUILD) tests/program/test_program_server_robust.py -k kills
test-shared-server-kills: CMAKE_ARGS += -DSF_BUILD_TESTS=ON
test-shared-server-kills: build   # 20 times one of two servers of a queue
	SF_SHARED_KILLS=20 $(PY) -m pytest -q -s --build-dir=$(BUILD) tests/program/test_program_server_shared.py -k kills
test-server-malformed: build
	SF_SERVER_MALFORMED=10000 SF_SERVER_EXAMPLES=50 $(PY) -m pytest -q -s --build-dir=$(BUILD) \
	  tests/program/test_program_server_malformed.py tests/program/test_program_server_robust.py \
	  -k 'malformed or schemathesis'
# The bodies alone, with the program under AddressSanitizer and UBSan: make test-server-malformed-asan SF_SERVER_SEED=7
test-server-malformed-asan: build
	cmake --preset asan -DSF_BUILD_BENCHMARKS=OFF
	cmake --build build/asan --parallel $(JOBS) --target scaffolding_program
	SF_SERVER_MALFORMED=$(or $(SF_SERVER_MALFORMED),10000) SF_SERVER_SEED=$(SF_SERVER_SEED) \
	  $(PY) -m pytest -q -s --build-dir=build/asan tests/program/test_program_server_malformed.py
# 64 clients at once, with the program under ThreadSanitizer.
test-server-tsan: build
	cmake --preset tsan
	cmake --build build/tsan --parallel $(JOBS) --target scaffolding_program
	SF_SERVER_CLIENTS=$(or $(SF_SERVER_CLIENTS),64) SF_NUM_THREADS=2 setarch -R \
	  $(PY) -m pytest -q -s --build-dir=build/tsan tests/program/test_program_server_crowd.py

# Every command of the program under limits of memory (ulimit -v, ulimit -d), from the least with which it starts to
# enough: it ends in what was asked for or in one line.
test-memory: CMAKE_ARGS += -DSF_BUILD_TESTS=ON
test-memory: build
	$(PY) -m pytest -q --build-dir=$(BUILD) tests/long/test_memory_sweep.py

# The tests of what has threads, under ThreadSanitizer: loops, autograd, memory, data, downloads, training. In pieces of
# at most ten minutes each: `make tsan-build`, again and again until it is done, then `make tsan-data` and the others;
# `make tsan` is all of them.
TSAN_autograd := autocast.*:checkpoint*.*:CheckpointTest.*:backward.*:grad.*:hooks.*:saved.*:Function.*
TSAN_autograd := $(TSAN_autograd):GradientMapTest.*:inplace.*:inference_mode.*
TSAN_memory := LeanMemory.*:KernelWatcher.*:Cache.*:HubCacheTest.*:Safetensors.*:RowGemm.*:random.*
TSAN_data := DataLoader.*:Buckets.*:DatasetTest.*
TSAN_train := ProcessGroup.*:RunLogTest.*:TrainerTest.*
TSAN_server := HttpServerTest.*
TSAN_PIECES := autograd memory data train server
TSAN_MINUTES ?= 10
# Names each test that begins: of one that hangs it is the last.
tsan_run = SF_NUM_THREADS=2 timeout $(TSAN_MINUTES)m setarch -R $(1)/scaffolding_tests --gtest_print_time=0 \
  --gtest_filter='$(2)'
tsan: TSAN_BUILD_MINUTES :=
tsan: $(TSAN_PIECES:%=tsan-%)

TSAN_BUILD_MINUTES ?= $(TSAN_MINUTES)
tsan-build:
	tools/setup.sh
	cmake --preset tsan
	$(if $(TSAN_BUILD_MINUTES),timeout $(TSAN_BUILD_MINUTES)m) \
	  cmake --build build/tsan --parallel $(JOBS) --target scaffolding_tests || \
	  { [ $$? != 124 ] || echo "tsan: $(TSAN_BUILD_MINUTES) minutes are over; the next call goes on from here"; exit 1; }
$(TSAN_PIECES:%=tsan-%): tsan-%: tsan-build
	$(call tsan_run,build/tsan,$(TSAN_$*))

# core, autograd, data, distributed, train and server, whose tests are built alone: a step of .ci/run.
tsan-parts:
	tools/setup.sh
	cmake --preset tsan -B build/tsan_parts -DSF_TEST_FOLDERS="core;autograd;data;distributed;train;server"
	cmake --build build/tsan_parts --parallel $(JOBS) --target scaffolding_tests
	$(call tsan_run,build/tsan_parts,$(TSAN_autograd):$(TSAN_data):$(TSAN_train):$(TSAN_server))

# libscaffolding_cuda.so beside libscaffolding.so, and the checks that need no GPU.
# SF_CUDA_ARCHS in CMAKE_ARGS says for which GPUs.
cuda: CMAKE_ARGS += -DSF_BUILD_CUDA=ON
cuda: build
	$(PY) -m pytest -q tests/test_cuda_library.py --build-dir=$(BUILD)

# Their machine code: what a GPU would be slow at (tools/sass_lint.py). SASS_ARGS="--table --filter group_norm"
sass-lint: CMAKE_ARGS += -DSF_BUILD_CUDA=ON
sass-lint: build
	$(PY) tools/sass_lint.py $(BUILD)/CMakeFiles/scaffolding_cuda.dir $(SASS_ARGS)

# Every sample of every op that has CUDA kernels, on the GPU and on the CPU. Without a GPU it proves nothing,
# and says so.
test-gpu: CMAKE_ARGS += -DSF_BUILD_TESTS=ON $(if $(shell command -v nvcc),-DSF_BUILD_CUDA=ON)
test-gpu: build
	@if $(BUILD)/scaffolding devices | grep -q '^cuda:0: available'; then \
	  SF_TEST_DEVICE=cuda $(PY) tools/run_tests.py $(BUILD) --cpp \
	    --gtest=--gtest_filter='*_on_test_device:Cuda*:*/Cuda*'; \
	else \
	  echo "test-gpu: skipped. Unproven here: no GPU, so that no CUDA kernel ran and no test counts as passed."; \
	  $(BUILD)/scaffolding devices | grep '^cuda'; \
	fi

EMULATED_TESTS = backend/cuda/test_cuda backend/cuda/test_cuda_errors backend/cuda/test_cuda_graphs \
  backend/cuda/test_cudnn backend/cuda/test_cudnn_on_paper backend/cuda/test_pinned_memory backend/cuda/test_cuda_huge \
  train/test_cuda_trainer train/test_cuda_train_program distributed/test_nccl \
  ops/test_cuda_kernel ops/test_quantize ops/test_philox_golden ops/test_matmul_benchmark ops/test_gpu_mlp \
  models/test_cuda_models models/test_cuda_streaming models/test_gpu_fusions models/test_float8_path \
  diffusion/test_cuda_pipelines diffusion/test_cuda_offloading \
  io/test_loading_to_gpu \
  benchmarks/test_bench_gpu benchmarks/test_gpu_check benchmarks/test_gpu_floor
# The sources of the CUDA kernels on this processor, without a GPU (tests/cuda_emulator): values, gradients, strides,
# bounds, in both orders of threads. Speed, races and what hardware does stay unproven.
emulated = SF_TEST_DEVICE=cuda SF_KERNEL_CACHE=off \
  SF_CUDA_LIBRARY=$(abspath $(BUILD))/$(1)/libscaffolding_cuda.so \
  SF_CUDA_LIBRARY_PATH=$(abspath $(BUILD))/$(1)
test-cuda-emulator: CMAKE_ARGS += -DSF_BUILD_TESTS=ON -DSF_CUDA_EMULATOR=ON
test-cuda-emulator: build
	for how in "SF_CUDA_CACHE=0 SF_CUDA_EMULATOR_ORDER=forward" \
	    "SF_CUDA_CACHE=1 SF_CUDA_CONV_MB=0 SF_CUDA_WGMMA=on SF_CUDA_PDL=on SF_CUDA_EMULATOR_ORDER=reverse"; do \
	  env $$how $(call emulated,cuda_emulator) \
	    $(PY) tools/run_tests.py $(BUILD) --cpp \
	      --gtest=--gtest_filter='*_on_test_device:*survives_failed_allocations:Cuda*:*/Cuda*' || exit 1; \
	done
	$(call emulated,cuda_emulator) PYTHONPATH=$(abspath $(BUILD))/python \
	  $(PY) tools/run_tests.py $(BUILD) --python $(EMULATED_TESTS:%=tests/python/%.py)

# The same kernels with each access of memory watched: races of threads, blocks and streams, and vectors at odd
# addresses (tests/cuda_emulator/races.h).
none :=
space := $(none) $(none)
# Ops whose threads work together; attention and convolutions take minutes each: RACES=scaled_dot_product_attention
RACES = softmax layer_norm rms_norm group_norm sum mean var amax argmax cumsum cumprod sort topk \
  gather scatter* index_* embedding cross_entropy nonzero cat
RACING_TESTS = CudaRaces* CudaStreamer* CudaStreamedGraph*
test-cuda-races: CMAKE_ARGS += -DSF_BUILD_TESTS=ON -DSF_CUDA_EMULATOR=ON -DSF_CUDA_RACES=ON
test-cuda-races: build
	env SF_CUDA_CACHE=1 SF_CUDA_PDL=on $(call emulated,cuda_races) \
	  $(PY) tools/run_tests.py $(BUILD) --cpp \
	    --gtest=--gtest_filter='$(subst $(space),:,$(RACING_TESTS) $(RACES:%=op_%.equals_cpu_on_test_device))'

# Kernels as nvcc compiles them, their PTX run by an interpreter of NVIDIA's manual beside float64: what the emulator's
# stand-ins for instructions of the GPU cannot prove. A minute; skipped where nvcc is not.
test-ptx:
	tools/setup.sh
	$(PY) -m pytest -q -s tests/ptx

# Every reader of files on mutations of its corpus (tests/fuzz_corpus), FUZZ_SECONDS each: with libFuzzer where clang
# is, else with the mutations that the tests make.
FUZZ_SECONDS ?= 10
FUZZ_CXX ?= $(shell for c in clang++ clang++-19 clang++-18 clang++-17 clang++-16 clang++-15 clang++-14; do \
  [ -e "$$($$c -print-file-name=libclang_rt.fuzzer-$$(uname -m).a 2>/dev/null)" ] && { command -v $$c; break; }; done)
fuzz: CMAKE_ARGS += $(if $(FUZZ_CXX),,-DSF_BUILD_TESTS=ON)
fuzz: build
ifeq ($(FUZZ_CXX),)
	SF_FUZZ_SECONDS=$(FUZZ_SECONDS) $(BUILD)/scaffolding_tests --gtest_filter='*FuzzTarget*'
else
	FUZZ_SECONDS=$(FUZZ_SECONDS) cmake -S tests/fuzz -B $(BUILD)/fuzz $(call generator,$(BUILD)/fuzz) \
	  -DCMAKE_CXX_COMPILER=$(FUZZ_CXX) -DSF_LIBRARY=$(abspath $(BUILD))/libscaffolding.so
	cmake --build $(BUILD)/fuzz --parallel $(JOBS)
	cmake --build $(BUILD)/fuzz --parallel $(JOBS) --target run
endif

# Ours, PyTorch's and the machine's own limits side by side. TORCH_PYTHON: a Python that has torch, if there is one.
#   make bench BENCH_ARGS="--filter conv --threads 1"      --quick: each row once
bench: CMAKE_ARGS += -DSF_BUILD_BENCHMARKS=ON
bench: build
	$(PY) benchmarks/table.py $(BUILD) --torch-python $(TORCH_PYTHON) $(BENCH_ARGS)

# Ops, networks, training steps and a picture on a GPU beside PyTorch's and the GPU's limits.
#   make bench-gpu BENCH_ARGS="--filter UNet --seconds 120"
bench-gpu: cuda
	PYTHONPATH=$(BUILD)/python \
	  $(PY) benchmarks/gpu $(if $(wildcard $(TORCH_PYTHON)),--torch-python $(TORCH_PYTHON)) $(BENCH_ARGS)

# All of that on a machine with a GPU in one call of under ten minutes, a time limit for each stage, results in OUT
# (build/gpu_check): tools/gpu_check.sh.
# gpu-pack: what a machine needs for it that has CUDA's toolkit, pip's nvidia packages and Python but none of the
# libraries that the build needs.
#   make gpu-pack GPU_PACK_ARGS="--python python3.12 --wheels FOLDER"
#   then there, in a checkout with build-gpu/gpu_pack.tar.xz: tools/gpu_check.sh
gpu-check: cuda
	PYTHON=$(PY) tools/gpu_check.sh --build $(BUILD) $(GPU_CHECK_ARGS)
gpu-check: CMAKE_ARGS += -DSF_BUILD_TESTS=ON
gpu-pack:
	JOBS=$(JOBS) tools/gpu_pack.sh $(GPU_PACK_ARGS)

# Golden files from torch. TORCH_PYTHON: a Python that has torch; without one, .venv-torch is made.
TORCH_PYTHON ?= .venv-torch/bin/python
golden: tests-binary
	test -x $(TORCH_PYTHON) || { python3 -m venv .venv-torch && .venv-torch/bin/pip install torch numpy; }
	rm -rf $(BUILD)/golden
	$(BUILD)/scaffolding_tests --dump-samples $(BUILD)/golden
	$(TORCH_PYTHON) tests/golden/make_golden.py $(BUILD)/golden

# docs/ops.md, docs/env.md and docs/autocast.md from the registries, docs/torch_names.md from the package, and the site
# build/site out of docs/.
docs: tests-binary
	$(BUILD)/scaffolding_tests --table docs/ops.md
	$(BUILD)/scaffolding_tests --env-table docs/env.md
	$(BUILD)/scaffolding_tests --autocast-table docs/autocast.md
	PYTHONPATH=$(abspath $(BUILD))/python $(PY) tools/torch_names_page.py
	$(MAKE) site

# The site alone; a link that leads nowhere is an error.
site:
	tools/setup.sh --site
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet --strict

.PHONY: tests-binary
tests-binary: CMAKE_ARGS += -DSF_BUILD_TESTS=ON
tests-binary: build

format:
	tools/setup.sh
	$(PY) tools/lint.py --fix

lint:
	tools/setup.sh
	$(PY) tools/lint.py

clean:
	rm -rf build build-wheel build-abi3 build-cmake dist
