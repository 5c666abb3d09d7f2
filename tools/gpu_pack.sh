#!/bin/bash
# Packs what tools/gpu_check.sh needs on a machine with a GPU that has CUDA's toolkit, pip's nvidia packages and a
# Python, but none of our libraries' packages: builds for that Python and that GPU in build-gpu, gathers the libraries
# beside it, checks that each finds what it needs, and writes build-gpu/gpu_pack.tar.xz.
#   tools/gpu_pack.sh [--python PYTHON] [--archs LIST] [--emulator] [--wheels FOLDER] [--limit MIB] [--without PATH]
# --python: a Python of the version that is there (its headers are what counts). --emulator: the emulator's library in
# place of the GPU's, to try the check here. --wheels: pure Python packages for PyTorch's side of the benchmark
# (diffusers and what it lacks). --limit (64): fail above so many MiB with the working tree; before anything is built,
# where the last pack or the tree alone says so. --without (models/emoji-128/unet): a folder that no test on a GPU reads
# and that stays behind.
set -euo pipefail
cd "$(dirname "$0")/.."
python=python3.12 archs=90a-real emulator=OFF wheels= limit=64 build=build-gpu
without=models/emoji-128/unet
while (($#)); do
  case $1 in
    --python) python=$2; shift 2 ;;
    --archs) archs=$2; shift 2 ;;
    --wheels) wheels=$2; shift 2 ;;
    --limit) limit=$2; shift 2 ;;
    --without) without=$2; shift 2 ;;
    --emulator) emulator=ON; shift ;;
    *) echo "gpu_pack: unknown argument $1" >&2; exit 2 ;;
  esac
done
git rev-parse -q --git-dir >/dev/null 2>&1 ||
  { echo "gpu_pack: needs a checkout: git says which files go along" >&2; exit 2; }
mib() { awk -v b="$1" 'BEGIN {printf "%.1f", b / 1048576}'; }
# Bytes and name of each file of the working tree that goes along.
tree_files() {
  git ls-files -z --cached --others --exclude-standard | xargs -0 stat -c '%s %n' 2>/dev/null |
    awk -v without="${without%/}/" 'index($2, without) != 1' || true
}
# fits BYTES: whether a pack of so many fits beside the working tree.
fits() {
  local tree
  tree=$(tree_files | awk '{s += $1} END {print s + 0}')
  echo "gpu_pack: a pack of $(mib "$1") MiB and the working tree's $(mib "$tree") without $without"
  (($1 + tree <= limit << 20)) && return
  echo "gpu_pack: more than $limit MiB: leave files aside that no test on a GPU reads, or give another --limit." \
    "The largest:" >&2
  tree_files | sort -rn | head -5 | while read -r size name; do echo "  $(mib "$size") MiB $name"; done >&2
  return 1
}
last=0
if [ -e $build/gpu_pack.tar.xz ]; then last=$(stat -c %s $build/gpu_pack.tar.xz); fi
fits "$last" || exit 1

python=$(command -v "$python") ||
  { echo "gpu_pack: there is no $python; give one of the other machine's version by --python" >&2; exit 2; }
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
header=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h
[ -e "$header" ] || { echo "gpu_pack: $python has no headers: $header is missing" >&2; exit 2; }

# DT_RPATH, which libraries of libraries are searched by too: nothing there sets LD_LIBRARY_PATH,
# which PyTorch's process would inherit.
flags="-Wl,--disable-new-dtags"
cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release -DSF_BUILD_PYTHON=ON -DSF_BUILD_TESTS=ON -DSF_ONEDNN=OFF \
  -DSF_BUILD_CUDA=$([ $emulator = ON ] && echo OFF || echo ON) "-DSF_CUDA_ARCHS=$archs" -DSF_CUDA_EMULATOR=$emulator \
  "-DPython_EXECUTABLE=$python" "-Dnanobind_DIR=$(.venv/bin/python -m nanobind --cmake_dir)" \
  -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON "-DCMAKE_BUILD_RPATH=\$ORIGIN/lib" \
  "-DCMAKE_SHARED_LINKER_FLAGS=$flags" "-DCMAKE_MODULE_LINKER_FLAGS=$flags" "-DCMAKE_EXE_LINKER_FLAGS=$flags" \
  >$build.log || { tail -20 $build.log >&2; exit 1; }
rm $build.log
cmake --build $build --parallel "${JOBS:-$(nproc)}"

pack=$build/pack
rm -rf $pack
mkdir -p $pack/lib $pack/python
cp -L $build/libscaffolding.so.0 $build/scaffolding $build/scaffolding_tests $pack/
ln -s libscaffolding.so.0 $pack/libscaffolding.so
if [ $emulator = ON ]; then cp -rL $build/cuda_emulator $pack/; else cp $build/libscaffolding_cuda.so $pack/; fi
cp -rL $build/python/scaffolding $pack/python/
cp $build/CMakeCache.txt $pack/   # tests/conftest.py knows a build folder by it
find $pack -name __pycache__ -prune -exec rm -rf {} +
find $pack -type f \( -name '*.so*' -o -name scaffolding -o -name scaffolding_tests \) -exec strip --strip-unneeded {} +
echo "$version" >$pack/python_version
realpath . >$pack/source_folder
if [ -n "$wheels" ]; then
  mkdir $pack/packages   # unpacked: xz makes a third of what a wheel is
  for wheel in "$wheels"/*.whl; do "$python" -m zipfile -e "$wheel" $pack/packages; done
fi

# Everything but the C and C++ run times, which any compiler brings.
system='linux-vdso|ld-linux|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so'
find $pack -type f -perm -u+x -print0 | xargs -0 -n1 ldd 2>/dev/null |
  awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u | grep -vE "$system|/$build/" |
  while read -r library; do cp -L "$library" $pack/lib/; done

# In the pack alone, as there: what is found elsewhere or not at all.
# Libraries of libraries are looked for by the path of who loads them.
lost=$(find $pack -path $pack/lib -prune -o -type f \( -name '*.so*' -o -perm -u+x \) -print0 |
  xargs -0 -n1 ldd 2>/dev/null |
  awk '/not found/ {print $1} $2 == "=>" && $3 ~ /^\// {print $3}' | sort -u | grep -vE "$system|/$pack/" || true)
if [ -n "$lost" ]; then echo "gpu_pack: these are not in the pack:" $lost >&2; exit 1; fi
glibc=$(find $pack -type f \( -name '*.so*' -o -perm -u+x \) -print0 |
  xargs -0 objdump -T 2>/dev/null | grep -oE 'GLIBC(XX)?_[0-9.]+' | sort -V |
  awk -F_ '{v[$1] = $2} END {print "glibc " v["GLIBC"] ", libstdc++ " v["GLIBCXX"]}')

tar -C $pack -c . | xz -T1 -9 >$build/gpu_pack.tar.xz
size=$(stat -c %s $build/gpu_pack.tar.xz)
echo "gpu_pack: $build/gpu_pack.tar.xz, $(mib "$size") MiB (unpacked $(du -sm $pack | cut -f1))," \
  "Python $version, needs $glibc"
fits "$size" || exit 1
