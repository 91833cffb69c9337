#!/usr/bin/env bash
# Looks for what the build needs and installs what is missing: with apt-get as root or through
# passwordless sudo; otherwise it prints what to install. When all is there it is instant and
# touches no network. Headers are found through the compiler, so that modules (CPATH,
# CMAKE_PREFIX_PATH) count like packages. Called by every `make`; CUDA is not its business.
set -uo pipefail
cd "$(dirname "$0")/.."
cxx=$(command -v "${CXX:-c++}" || command -v g++ || true)

# command:package and header:package; the second list only makes things faster or larger
commands="cmake:cmake"
headers="doctest/doctest.h:doctest-dev nlohmann/json.hpp:nlohmann-json3-dev
         yaml-cpp/yaml.h:libyaml-cpp-dev CLI/CLI.hpp:libcli11-dev fmt/core.h:libfmt-dev
         Eigen/Core:libeigen3-dev pcre2.h:libpcre2-dev utf8proc.h:libutf8proc-dev"
optional_commands="ninja:ninja-build mpirun:openmpi-bin"
optional_headers="mpi.h:libopenmpi-dev dnnl.hpp:libdnnl-dev"

missing_commands() {
  local pair
  for pair in "$@"; do command -v "${pair%%:*}" >/dev/null || echo "${pair##*:}"; done
}

# One call of the preprocessor answers for all headers.
missing_headers() {
  local pair prefix include="-I/usr/include/eigen3" prefixes=${CMAKE_PREFIX_PATH:-}
  if [ -z "$cxx" ]; then printf '%s\n' "${@##*:}"; return; fi
  for prefix in ${prefixes//[:;]/ }; do
    include+=" -I$prefix/include -I$prefix/include/eigen3"
  done
  # shellcheck disable=SC2086
  for pair in "$@"; do
    printf '#if !__has_include(<%s>)\nmissing %s\n#endif\n' "${pair%%:*}" "${pair##*:}"
  done | "$cxx" -x c++ -E -P $include - 2>/dev/null | sed -n 's/^missing //p' | tr -d ' '
}

# shellcheck disable=SC2086
needed=$([ -n "$cxx" ] || echo g++; missing_commands $commands; missing_headers $headers)
# shellcheck disable=SC2086
optional=$(missing_commands $optional_commands; missing_headers $optional_headers)
# mpi.h is not on the compiler's path where mpicxx (or a module's wrapper) knows the place
if command -v mpicxx >/dev/null; then optional=${optional//libopenmpi-dev/}; fi
needed=$(echo $needed)
optional=$(echo $optional)
if [ -z "$needed$optional" ]; then exit 0; fi

as_root=""
if [ "$(id -u)" != 0 ]; then as_root="sudo -n"; fi
can_install() {
  command -v apt-get >/dev/null && { [ -z "$as_root" ] || sudo -n true 2>/dev/null; }
}
install() {
  echo "setup: installing $*"
  # shellcheck disable=SC2086
  $as_root apt-get update -qq &&
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      "$@" >/dev/null
}

# shellcheck disable=SC2086
if [ -n "$needed" ] && ! { can_install && install $needed; }; then
  echo "setup: these are missing and could not be installed from here: $needed" >&2
  echo "  Debian, Ubuntu:   sudo apt-get install --no-install-recommends $needed $optional" >&2
  echo "  with modules:     module load gcc cmake eigen openmpi   (and put what they do not have" >&2
  echo "                    under a prefix named by CMAKE_PREFIX_PATH)" >&2
  exit 1
fi

# Optional ones: tried once, then only mentioned.
tried=.cache/setup_optional_tried
# shellcheck disable=SC2086
if [ -n "$optional" ]; then
  if [ ! -e "$tried" ] && can_install && install $optional; then exit 0; fi
  mkdir -p .cache && touch "$tried"
  echo "setup: going on without: $optional (optional; the summary of the configure says what" \
       "each absence means; sudo apt-get install $optional)"
fi
