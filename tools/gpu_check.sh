#!/bin/bash
# Everything that needs a GPU, in one call of under ten minutes: devices, the op harness, the Python tests, the
# benchmark beside PyTorch's, a profile, memcheck, racecheck, synccheck and counters. Each stage has its own time limit,
# so that one that hangs costs itself alone; the summary comes last and is also in the output folder.
#   tools/gpu_check.sh [--pack FILE | --build FOLDER] [--seconds N] [--stages LIST] [--tiny]
#     [--bench-seconds N] [--bench-filter TEXT]
# --pack: what tools/gpu_pack.sh wrote, for a machine that lacks what our build needs (build-gpu/gpu_pack.tar.xz where
# it is there). --build: a build folder with libscaffolding_cuda.so (build).
# --stages: some of devices,ops,bench,profile,python,memcheck,racecheck,synccheck,counters.
# --bench-seconds, --bench-filter: how long the benchmark may take (225), and which of its rows are measured.
# --tiny: small shapes, to try it in the emulator.
# PYTHON (python3): with pytest and numpy, of the version that was packed for.
# TORCH_PYTHON (PYTHON, if it has torch): PyTorch's side of the benchmark.
# OUT (build/gpu_check): where results go, as a few files of less than 16 MB. Changes no setting of the GPU.
set -uo pipefail
cd "$(dirname "$0")/.."
started=$SECONDS
known=devices,ops,bench,profile,python,memcheck,racecheck,synccheck,counters
pack= build= limit=560 stages=$known tiny=
bench_seconds=225 bench_filter=
while (($#)); do
  case $1 in
    --pack) pack=$2; shift 2 ;;
    --build) build=$2; shift 2 ;;
    --seconds) limit=$2; shift 2 ;;
    --stages) stages=$2; shift 2 ;;
    --bench-seconds) bench_seconds=$2; shift 2 ;;
    --bench-filter) bench_filter=$2; shift 2 ;;
    --tiny) tiny=--tiny; shift ;;
    *) echo "gpu_check: unknown argument $1" >&2; exit 2 ;;
  esac
done
for name in ${stages//,/ }; do
  [[ ",$known," == *",$name,"* ]] || { echo "gpu_check: there is no stage $name: $known" >&2; exit 2; }
done
python=${PYTHON:-python3}
out=${OUT:-build/gpu_check}
mkdir -p "$out"
out=$(cd "$out" && pwd)
summary=$out/summary.txt logs=$out/logs.txt
rm -f "$out"/{summary.txt,logs.txt,bench_gpu.txt,bench_gpu.json,kernels.csv,ncu.csv}

say() { echo "$*" | tee -a "$summary"; }
left() { echo $((limit - (SECONDS - started))); }
fail() { say "gpu_check: $*"; exit 1; }

if [ -z "$pack$build" ]; then
  if [ -e build-gpu/gpu_pack.tar.xz ]; then pack=build-gpu/gpu_pack.tar.xz; else build=build; fi
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [ -n "$pack" ]; then
  [ -e "$pack" ] || fail "there is no $pack: tools/gpu_pack.sh writes it"
  build=$scratch/pack
  mkdir "$build"
  # Python, because a bare machine may lack xz.
  "$python" -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$pack" "$build" ||
    fail "$pack cannot be unpacked"
  packed=$(cat "$build/python_version") there=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  [ "$packed" = "$there" ] ||
    fail "$pack is for Python $packed, and $python is $there: tools/gpu_pack.sh --python, or PYTHON="
  source_folder=$(cat "$build/source_folder")   # the C++ tests read golden files there
  if [ ! -e "$source_folder" ]; then
    mkdir -p "$(dirname "$source_folder")" && ln -s "$PWD" "$source_folder" ||
      say "no $source_folder: tests that read golden files fail"
  fi
fi
build=$(realpath "$build")
[ -e "$build/scaffolding_tests" ] || fail "$build has no scaffolding_tests: make test-gpu builds them"
if [ -n "$tiny" ] && [ -e "$build/cuda_emulator" ]; then
  export SF_CUDA_LIBRARY=${SF_CUDA_LIBRARY:-$build/cuda_emulator/libscaffolding_cuda.so}
  export SF_CUDA_LIBRARY_PATH=${SF_CUDA_LIBRARY_PATH:-$build/cuda_emulator}
fi
export PYTHONPATH=$build/python SF_TEST_DEVICE=cuda PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
export SF_KERNEL_CACHE=${SF_KERNEL_CACHE:-$scratch/kernels}
# CUDA's libraries from pip's nvidia packages, beside the system's
nvidia=$("$python" -c 'import glob, sysconfig
print(":".join(sorted(glob.glob(sysconfig.get_path("purelib") + "/nvidia/*/lib"))))')
export SF_CUDA_LIBRARY_PATH=${SF_CUDA_LIBRARY_PATH:-$nvidia}

# stage NAME SECONDS COMMAND...: runs it, unless it is not asked for or no time is left, and notes how it ended.
stage() {
  local name=$1 seconds=$2 begin=$SECONDS code
  shift 2
  [[ ",$stages," == *",$name,"* ]] || return 0
  if (($(left) < 10)); then say "$name: not run, no time left"; return 0; fi
  if [ -n "$tiny" ]; then seconds=$((4 * seconds)); fi   # the emulator takes longer
  if ((seconds > $(left) - 5)); then seconds=$(($(left) - 5)); fi
  echo "=== $name" >>"$logs"
  stage_seconds=$seconds timeout -k 5 "$seconds" "$@" >>"$logs" 2>&1
  code=$?
  case $code in
    77) say "$name: skipped: $(last_line)" ;;
    0) say "$name: ok, $((SECONDS - begin)) s. $(last_line)" ;;
    124 | 137) say "$name: ENDED after $seconds s. $(last_line)" ;;
    *) say "$name: FAILED ($code), $((SECONDS - begin)) s. $(last_line)" ;;
  esac
}
last_line() { grep -v '^ *$' "$logs" | tail -1 | cut -c1-200; }

report_devices() {
  "$build/scaffolding" devices
  if command -v nvidia-smi >/dev/null; then
    nvidia-smi --format=csv \
      --query-gpu=name,driver_version,memory.total,memory.used,clocks.sm,clocks.mem,temperature.gpu,power.draw
  fi
  "$build/scaffolding" env
  nproc
  "$build/scaffolding" devices | grep -E '^cuda(:0)?: '
  "$build/scaffolding" devices | grep -q '^cuda:0: available'
}

# Shares of the tests side by side: each waits for the host most of the time.
run_ops() {
  local filter=$1 shards=$2 i failed=0 pids=()
  shift 2
  rm -f "$scratch"/ops_*
  trap 'report_ops; exit 124' TERM   # the time is over: what there is
  for ((i = 0; i < shards; ++i)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i "$@" "$build/scaffolding_tests" --gtest_color=no \
      "--gtest_filter=$filter" >"$scratch/ops_$i" 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || failed=$((failed + 1)); done
  report_ops "; $failed of $shards processes failed"
  grep -q '^\[       OK' "$scratch"/ops_* || failed=$((failed + 1))   # a filter that matches nothing proves nothing
  return $((failed > 0))
}
# What failed, in full; what a sanitizer found in a test whose numbers are right; which test a process that did not end
# was in; why some were skipped; how many there were.
report_ops() {
  local file
  for file in "$scratch"/ops_*; do
    awk '/^\[ RUN/ {printf "%s", found; test = $0; text = found = ""; next}
      /^\[       OK/ {if (found) print test "\n" found $0; test = found = ""; next}
      /^\[  FAILED/ && test {print test "\n" text $0; test = found = ""; next}
      /^=========/ && !/COMPUTE-SANITIZER$|SUMMARY: 0 / {found = found $0 "\n"}
      {text = text $0 "\n"}
      END {if (test) print "not ended: " test "\n" text; else printf "%s", found}' "$file"
  done
  awk '/: Skipped$/ {getline; sub(/^unproven here: [a-z0-9_]+ /, "an op "); sub(/^[a-z0-9_]+ draws/, "an op draws")
      print "skipped: " $0}' "$scratch"/ops_* | sort | uniq -c | sort -rn
  cat "$scratch"/ops_* |
    awk '/^\[ RUN/ {run++} /^\[       OK/ {ok++} /^\[  SKIPPED.*ms\)/ {skipped++}
      END {print run + 0 " tests begun, " ok + 0 " passed, " skipped + 0 " skipped" more}' \
      more="${1:-; the time was over}"
}

HARNESS='*_on_test_device:Cuda*:*/Cuda*'
# Ops with shared memory, warps, atomics, matrix units and libraries; small samples.
FAST=$(printf 'op_%s.equals_cpu_on_test_device:' \
  group_norm layer_norm rms_norm softmax scaled_dot_product_attention matmul linear conv2d sum cumsum sort topk \
  nonzero cross_entropy embedding index_add cat max_pool2d interpolate geglu)
python_tests() {
  local files=() name
  for name in backend/cuda/test_cuda backend/cuda/test_cuda_graphs ops/test_cuda_kernel models/test_cuda_models \
    diffusion/test_cuda_pipelines backend/cuda/test_cudnn backend/cuda/test_pinned_memory io/test_loading_to_gpu \
    ops/test_quantize ops/test_fuse_cuda_source ops/test_gpu_mlp ops/test_philox_golden models/test_gpu_fusions \
    models/test_float8_path models/test_cuda_streaming; do
    [ -e "tests/python/$name.py" ] && files+=("tests/python/$name.py")
  done
  # Side by side where pytest can: most of their time is the host's.
  local beside=()
  if "$python" -c 'import xdist' 2>/dev/null && (($(nproc) >= 8)); then beside=(-n 6); fi
  "$python" -m pytest -q -rsfE --maxfail=40 "${beside[@]}" -p no:cacheprovider "--build-dir=$build" "${files[@]}"
}

bench() {
  local torch=${TORCH_PYTHON:-} options=(--output "$out" --seconds "$1" --row-limit 90 --filter "$bench_filter")
  if [ -z "$torch" ] &&
    "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)'; then
    torch=$python
  fi
  if [ -n "$torch" ]; then options+=(--torch-python "$torch"); fi
  if [ -d "$build/packages" ]; then options+=(--torch-path "$build/packages"); fi
  "$python" benchmarks/gpu "${options[@]}" $tiny
}

# Every kernel call of the networks with its time; then, where ncu is and reads counters, those of our kernels in one
# pass. ncu writes its table when the program has ended: that is interrupted in time, so that what there is stays.
profile() { "$python" benchmarks/gpu/kernel_times.py --output "$out" $tiny; }
counters() {
  command -v ncu >/dev/null || { echo "there is no ncu"; return 77; }
  local code
  ncu --clock-control none --profile-from-start off --target-processes all \
    --kernel-name-base mangled --kernel-name "regex:$OURS" \
    --section SpeedOfLight --section LaunchStats --section Occupancy --csv --page raw --log-file "$out/ncu.csv" \
    timeout -s INT -k 2 $((2 * stage_seconds / 3)) \
    "$python" benchmarks/gpu/kernel_times.py --ncu --filter "UNet SD2.1 b2" $tiny
  code=$?
  echo "counters of $(grep -cE '^"[0-9]+",' "$out/ncu.csv") kernel calls"
  return $code
}

# Our kernels alone: the libraries' take most of the time, and are not ours to mend. memcheck sees where a tensor ends
# only where each is a block of its own.
sanitizer() {
  command -v compute-sanitizer >/dev/null || { echo "there is no compute-sanitizer"; return 77; }
  run_ops "$FAST" 4 env SF_CUDA_CACHE="$2" compute-sanitizer --tool "$1" --kernel-regex "kns=$OURS" \
    --error-exitcode 9 --print-limit 20
}
OURS=_ZN2sf  # how the names of kernels in our namespace begin, as tools see them

export -f report_devices run_ops report_ops python_tests bench profile counters sanitizer
export build out scratch python tiny bench_filter HARNESS FAST OURS
stage devices 30 bash -c report_devices
if grep -q '^devices: [FE]' "$summary"; then
  fail "no GPU that this build can use: nothing else is run, and nothing is proven"
fi
shards=$(($(nproc) >= 12 ? 8 : 4))
stage ops 100 bash -c "run_ops \"\$HARNESS\" $shards env"
stage bench "$bench_seconds" bash -c "bench $((bench_seconds - 20))"
stage profile 45 bash -c profile
stage python 80 bash -c python_tests
stage memcheck 50 bash -c 'sanitizer memcheck 0'
stage racecheck 40 bash -c 'sanitizer racecheck 1'
stage synccheck 30 bash -c 'sanitizer synccheck 1'
stage counters 45 bash -c counters
for file in "$out"/*; do
  if (($(stat -c %s "$file") > 15 << 20)); then tail -c 15M "$file" >"$scratch/end" && cp "$scratch/end" "$file"; fi
done
if [ -e "$out/bench_gpu.txt" ]; then cat "$out/bench_gpu.txt"; fi
echo
cat "$summary"
say "gpu_check: $((SECONDS - started)) s, results in $out"
! grep -qE ': (FAILED|ENDED)' "$summary"
