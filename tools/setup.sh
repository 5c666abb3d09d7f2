#!/bin/bash
# Installs what the build needs and is missing: system packages through apt-get (as root or with sudo, on Debian and its
# kin), Python packages into .venv. Asks the compiler and the commands themselves, so that nothing is touched where
# everything is there already. `make build` runs it.
#   tools/setup.sh --program    what the program alone needs: no Python, no tests
#   tools/setup.sh --site       Doxygen too, which makes the site's pages of C++
set -euo pipefail
cd "$(dirname "$0")/.."
program_only=0 site=0
case ${1:-} in
  --program) program_only=1 ;;
  --site) site=1 ;;
esac

compiler=${CXX:-c++}
command -v "$compiler" >/dev/null || compiler=g++
has_command() { command -v "$1" >/dev/null; }
has_header() { printf '#include <%s>\n' "$1" | "$compiler" -std=c++17 -E -x c++ - >/dev/null 2>&1; }
good_python() {
  "$1" -c 'import ensurepip, os, sys, sysconfig, venv
assert sys.version_info >= (3, 10)
os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null
}
good_cmake() {
  has_command cmake &&
    cmake --version | awk 'NR == 1 { split($3, v, "."); exit !(v[1] > 3 || (v[1] == 3 && v[2] >= 25)) }'
}

required=() optional=()
look() {
  required=() optional=()
  has_command "$compiler" || required+=(g++)
  good_cmake || required+=(cmake)
  has_command ninja || required+=(ninja-build)
  has_header nlohmann/json.hpp || required+=(nlohmann-json3-dev)
  has_header eigen3/Eigen/Core || has_header Eigen/Core || required+=(libeigen3-dev)
  has_header zlib.h || required+=(zlib1g-dev)
  has_header CLI/CLI.hpp || required+=(libcli11-dev)
  has_header png.h || required+=(libpng-dev)
  has_header jpeglib.h || required+=(libjpeg62-turbo-dev)
  has_header webp/decode.h || required+=(libwebp-dev)
  has_header utf8proc.h || required+=(libutf8proc-dev)
  printf '#define PCRE2_CODE_UNIT_WIDTH 8\n#include <pcre2.h>\n' | "$compiler" -E -x c++ - >/dev/null 2>&1 ||
    required+=(libpcre2-dev)
  if ((!program_only)); then
    has_header gtest/gtest.h || required+=(libgtest-dev)
    has_header lzma.h || required+=(liblzma-dev)
    good_python "${PYTHON:-python3}" || good_python /usr/bin/python3 || required+=(python3-venv python3-dev)
    # mp4 and webm files: 34 MB to download, since Debian's libav knows every codec
    has_header libavformat/avformat.h || optional+=(libavformat-dev libavcodec-dev libavutil-dev)
    has_header libswscale/swscale.h || optional+=(libswscale-dev)
    # process groups of several processes, by Gloo and by MPI
    has_header gloo/rendezvous/context.h || optional+=(libgloo-dev)
    [ -n "$(ls -d /usr/lib/*/openmpi/include/mpi.h /usr/include/mpi.h 2>/dev/null)" ] || has_command mpicc ||
      optional+=(libopenmpi-dev openmpi-bin)
    # the server: Boost's headers alone, of a version that Debian has beside its default
    has_header boost/beast/version.hpp || optional+=(libboost1.81-dev)
    has_header sqlite3.h || optional+=(libsqlite3-dev)
    # a history of several servers
    has_header postgresql/libpq-fe.h || has_header libpq-fe.h || optional+=(libpq-dev)
  fi
  if ((site)); then has_command doxygen || required+=(doxygen); fi
  has_header oneapi/dnnl/dnnl.hpp || optional+=(libdnnl-dev)
  has_header gif_lib.h || optional+=(libgif-dev)
  has_header libdeflate.h || optional+=(libdeflate-dev)
  has_header curl/curl.h || optional+=(libcurl4-openssl-dev)
  has_command ccache || optional+=(ccache)
  has_command mold || optional+=(mold)
}

look
wanted=("${required[@]}" "${optional[@]}")
if ((${#wanted[@]})); then
  as_root=()
  if [ "$(id -u)" != 0 ]; then
    as_root=(sudo -n)
    if [ -t 0 ] && [ -t 2 ]; then as_root=(sudo); fi   # somebody is there who can be asked for the password
  fi
  if has_command apt-get && { [ "$(id -u)" = 0 ] || { has_command sudo && "${as_root[@]}" true; }; }; then
    echo "setup: installing ${wanted[*]}"
    "${as_root[@]}" apt-get -qq update
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
      "${wanted[@]}" >/dev/null || true
    has_command "$compiler" || compiler=g++
    look
  fi
fi
if ((${#optional[@]})); then echo "setup: going on without ${optional[*]} (Debian's package names)"; fi
if ((${#required[@]})); then
  echo "setup: please install: ${required[*]} (Debian's package names)" >&2
  exit 1
fi
if ((program_only)); then exit 0; fi

python=${PYTHON:-python3}
good_python "$python" || python=/usr/bin/python3
[ -x .venv/bin/python ] || "$python" -m venv .venv
# Asked of the environment and only then of the network: a second run needs none.
wants=$(.venv/bin/python - <<'PYTHON'
import importlib.metadata as installed, re
try:
    import tomllib
except ImportError:   # Python 3.10
    from pip._vendor import tomli as tomllib

project = tomllib.load(open("pyproject.toml", "rb"))
needs = project["build-system"]["requires"] + project["project"]["dependencies"]
needs += project["project"]["optional-dependencies"]["dev"]
def missing(need):
    name, version = re.match(r"([\w.-]+)(?:\[.*?\])?\s*(?:[=>]=\s*([\d.]+))?", need).groups()
    try:
        have = installed.version(name)
    except installed.PackageNotFoundError:
        return True
    key = lambda v: [int(p) for p in re.findall(r"\d+", v)]
    return have != version if "==" in need else key(have) < key(version or "0")
print(" ".join(sorted({n.replace(" ", "") for n in needs if missing(n)})))
PYTHON
)
if [ -n "$wants" ]; then
  echo "setup: pip install $wants"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check $wants
fi
