#!/usr/bin/env bash
# Looks for what the build needs and installs what is missing: with apt-get as root or through
# passwordless sudo; otherwise it prints what to install. When all is there it is instant and
# touches no network. Headers are found through the compiler, so that modules (CPATH,
# CMAKE_PREFIX_PATH) count like packages. Called by every `make`, which leaves CUDA alone:
#   tools/setup.sh --tests           also what only the tests need
#   tools/setup.sh --cuda            also CUDA's compiler and runtime, cuBLAS, cuDNN, NCCL: of what no
#                                    toolkit here has, pip's wheels (1.2 GB), into .cache/cuda. Nothing that
#                                    the GPU driver here could not run
#   tools/setup.sh --cuda-compiler   what building needs (105 MB); nothing runs on a GPU with it
set -uo pipefail
cd "$(dirname "$0")/.."
cxx=$(command -v "${CXX:-c++}" || command -v g++ || true)
cuda=""
tests=""
for argument; do
  case "$argument" in
    --tests) tests=_tests ;;
    --cuda | --cuda-compiler) cuda=$argument ;;
    *) echo "usage: tools/setup.sh [--tests] [--cuda | --cuda-compiler]" >&2; exit 2 ;;
  esac
done

# command:package and header:package; the second list only makes things faster or larger
commands="make:make cmake:cmake"
headers="nlohmann/json.hpp:nlohmann-json3-dev
         yaml-cpp/yaml.h:libyaml-cpp-dev CLI/CLI.hpp:libcli11-dev fmt/core.h:libfmt-dev
         Eigen/Core:libeigen3-dev pcre2.h:libpcre2-dev utf8proc.h:libutf8proc-dev
         xxhash.h:libxxhash-dev"
optional_commands="ninja:ninja-build mpirun:openmpi-bin"
optional_headers="mpi.h:libopenmpi-dev dnnl.hpp:libdnnl-dev liburing.h:liburing-dev"
if [ -n "$tests" ]; then
  headers+=" doctest/doctest.h:doctest-dev"
  optional_headers+=" boost/context/fiber.hpp:libboost-context-dev"
  optional_commands+=" node:nodejs"  # runs the script of the page about runs
  optional_commands+=" ccache:ccache"  # the next build of this machine, in another folder too, is minutes faster
fi

# ---- CUDA ----------------------------------------------------------------------------------------
# Pinned, without dependencies: what `cuda-toolkit[nvcc,cccl,cublas]==13.0.3.0` would take, and the rest. The wheels
# of CUDA 12 have ptxas but no nvcc: they are libraries beside a toolkit of CUDA 12, in a folder of their own.
compiler_wheels="nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88
                 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
                 nvidia-nvtx==13.0.85"
cublas_wheels="nvidia-cublas==13.1.1.3 nvidia-cuda-nvrtc==13.0.88"
cublas_wheels_12="nvidia-cublas-cu12==12.9.1.4 nvidia-cuda-nvrtc-cu12==12.9.86"
cudnn_wheels="nvidia-cudnn-cu13==9.19.0.56"
nccl_wheels="nvidia-nccl-cu13==2.30.7"
cuda_folder=.cache/cuda

# The first number of the newest CUDA that the driver here runs; nothing: there is no driver. It says so itself, or
# by its own number: CUDA 12 came with driver 525, CUDA 13 with 580.
driver_cuda() {
  local said number
  said=$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA [A-Za-z ]*Version: *\([0-9][0-9]*\)\..*/\1/p' | head -n 1)
  if [ -n "$said" ]; then echo "$said"; return; fi
  number=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | sed -n 's/^\([0-9]*\)\..*/\1/p')
  number=${number%%[!0-9]*}
  if [ -z "$number" ]; then
    number=$(sed -n 's/^NVRM version:.* \([0-9][0-9]*\)\.[0-9.]* .*/\1/p' /proc/driver/nvidia/version 2>/dev/null)
  fi
  if [ -z "$number" ]; then return; fi
  if [ "$number" -ge 580 ]; then echo 13; elif [ "$number" -ge 525 ]; then echo 12; else echo 11; fi
}

# A toolkit of 12.4 or newer: prints the folder of its nvcc.
toolkit() {
  local nvcc version
  for nvcc in "${CUDA_HOME:-/none}/bin/nvcc" /usr/local/cuda/bin/nvcc "$(command -v nvcc)"; do
    [ -x "$nvcc" ] || continue
    version=$("$nvcc" --version 2>/dev/null | sed -n 's/.*, V\([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
    [ -n "$version" ] || continue
    # shellcheck disable=SC2086
    set -- $version
    if [ $(($1 * 100 + $2)) -ge 1204 ]; then dirname "$(dirname "$(readlink -f "$nvcc")")"; return; fi
  done
}

# has ROOT FILE...: one of the files is in a library folder of a toolkit or of the system
has_library() {
  local root=$1 name place
  shift
  for name in "$@"; do
    for place in "$root"/lib64 "$root"/lib "$root"/targets/*/lib /usr/lib/*-linux-gnu /usr/lib64; do
      if compgen -G "$place/$name" >/dev/null; then return 0; fi
    done
  done
  return 1
}

# can_run MAJOR DRIVER: a program of this CUDA starts with a driver that runs CUDA DRIVER; else says what it needs.
can_run() {
  if [ "$2" -ge "$1" ]; then return 0; fi
  if [ "$2" -lt 12 ]; then
    echo "setup: the NVIDIA driver here runs CUDA $2 at most: this program needs driver 525 or newer with a CUDA 12" \
         "toolkit of 12.4 or newer, or driver 580 or newer with CUDA 13. Nothing of CUDA was installed." >&2
  else
    echo "setup: the NVIDIA driver here runs CUDA $2 at most, but ${3}: it needs driver 580 or newer, or" \
         "a CUDA $2 toolkit of 12.4 or newer (module load cuda/$2, or CUDA_HOME). Nothing of CUDA was installed." >&2
  fi
  return 1
}

install_cuda() {
  local root wheels="" wheel missing="" name major=13 driver what="pip has a compiler for CUDA 13 alone"
  root=$(toolkit)
  if [ -n "$root" ]; then
    major=$("$root/bin/nvcc" --version | sed -n 's/.*, V\([0-9]*\)\..*/\1/p')
    what="the CUDA toolkit in $root is of CUDA $major"
  fi
  if [ "$1" = --cuda ]; then  # --cuda-compiler may build for other machines
    driver=$(driver_cuda)
    if [ -z "$driver" ] && command -v nvidia-smi >/dev/null; then
      echo "setup: nvidia-smi is here, but no NVIDIA driver answers: CUDA $major is installed, as on a machine" \
           "without a driver"
    fi
    can_run "$major" "${driver:-$major}" "$what" || return 1
  fi
  if [ -n "$root" ]; then
    echo "setup: CUDA toolkit in $root"
  else
    wheels=$compiler_wheels
  fi
  if [ "$major" = 12 ]; then
    cublas_wheels=$cublas_wheels_12
    cudnn_wheels=${cudnn_wheels/cu13/cu12}
    nccl_wheels=${nccl_wheels/cu13/cu12}
    cuda_folder=.cache/cuda/12
  fi
  if [ "$1" = --cuda ]; then
    has_library "${root:-/none}" "libcublasLt.so.$major*" || wheels+=" $cublas_wheels"
    has_library "${root:-/none}" 'libcudnn.so.9*' || wheels+=" $cudnn_wheels"
    has_library "${root:-/none}" 'libnccl.so.2*' || wheels+=" $nccl_wheels"
  fi
  if [ "$major" -gt 13 ] && [ -n "$wheels" ]; then  # the program would not open them
    # shellcheck disable=SC2086
    echo "setup: the wheels are for CUDA 12 and 13, the toolkit is of CUDA $major: install its own libraries" \
         "in place of" $wheels >&2
    return 1
  fi
  for wheel in $wheels; do  # what pip has left here: NAME-VERSION.dist-info
    name=${wheel%%==*}
    [ -d "$cuda_folder/${name//-/_}-${wheel##*==}.dist-info" ] || missing+=" $wheel"
  done
  if [ -z "$missing" ]; then echo "setup: CUDA: nothing is missing"; return; fi
  if ! python3 -m pip --version >/dev/null 2>&1 && ! { can_install && install python3-pip; }; then
    echo "setup: the CUDA wheels need pip: apt-get install python3-pip" >&2
    return 1
  fi
  echo "setup: installing into $cuda_folder:$missing"
  # Beside it at first: pip's --target would delete `nvidia`, which other wheels have put there.
  rm -rf "$cuda_folder/new"
  mkdir -p "$cuda_folder"
  # shellcheck disable=SC2086
  python3 -m pip install --quiet --no-deps --disable-pip-version-check --root-user-action=ignore \
    --target "$cuda_folder/new" $missing &&
    cp -al "$cuda_folder/new/nvidia" "$cuda_folder" &&
    cp -a "$cuda_folder/new/"*.dist-info "$cuda_folder" && rm -rf "$cuda_folder/new" || return 1
  touch .cache/cuda  # the next build configures again
  # nvcc.profile looks for lib64
  if [ -d "$cuda_folder/nvidia/cu13/lib" ]; then ln -sfn lib "$cuda_folder/nvidia/cu13/lib64"; fi
}

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

as_root=""
if [ "$(id -u)" != 0 ]; then as_root="sudo -n"; fi
can_install() {
  command -v apt-get >/dev/null && { [ -z "$as_root" ] || sudo -n true 2>/dev/null; }
}
install() {
  echo "setup: installing $*"
  # shellcheck disable=SC2086
  $as_root apt-get -o Acquire::Retries=0 -o Acquire::http::Timeout=20 update -qq &&
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      "$@" >/dev/null || return
  mkdir -p .cache && touch .cache/packages_installed  # the next build configures again
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
tried=.cache/setup_optional_tried$tests
# shellcheck disable=SC2086
if [ -n "$optional" ] && { [ -e "$tried" ] || ! { can_install && install $optional; }; }; then
  mkdir -p .cache && touch "$tried"
  echo "setup: going on without: $optional (optional; the summary of the configure says what" \
       "each absence means; sudo apt-get install $optional)"
fi

if [ -n "$cuda" ]; then install_cuda "$cuda"; fi
