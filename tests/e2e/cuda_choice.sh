#!/usr/bin/env bash
# Whether CUDA is built, and for which GPUs; what `make` says of it to cmake; what tools/setup.sh --cuda installs for
# which driver. With stand-ins for nvcc, nvidia-smi, cmake and pip: nothing is compiled or downloaded.
# Environment: SOURCE the repository.
source "$(dirname "$0")/../support/e2e.sh"
folder=$scratch
unset CUDA CUDA_ARCH CUDAARCHS MAKEFLAGS MAKELEVEL NVCC KINDS GPUS SMI DRIVER  # .ci/run exports some of them
mkdir -p bin tools build
stand_in() {  # NAME: the script is on stdin
  { echo '#!/usr/bin/env bash'; cat; } >"$1"
  chmod +x "$1"
}
# says WHAT PATTERN STATUS COMMAND...: the command ends so, and its output, as one line, is like the pattern
says() {
  local what=$1 pattern=$2 wanted=$3 output status
  shift 3
  output=$("$@" 2>&1)
  status=$?
  output=$(tr -s ' \n' ' ' <<<"$output")
  [ $status = "$wanted" ] && grep -qE -- "$pattern" <<<"$output" ||
    fail "$what: status $status, expected $wanted and \"$pattern\": $output"
}
stand_in bin/nvcc <<'S'
case "$1" in
  --version) echo "Cuda compilation tools, release ${NVCC:-13.0}, V${NVCC:-13.0}.88" ;;
  --list-gpu-arch) printf 'compute_%s\n' ${KINDS:-75 80 86 90 100 120} ;;
esac
S

# ---- what is built -----------------------------------------------------------------------------------
cat >choice.cmake <<S
cmake_minimum_required(VERSION 3.22)
include($SOURCE/tools/cmake/CudaChoice.cmake)
message("built: \${FSDP_HAVE_CUDA}, \${CMAKE_CUDA_ARCHITECTURES}, \${FSDP_CUDA_CODE}, \${FSDP_NO_CUDA}; kept: \${FSDP_CUDA}, \${FSDP_CUDA_ARCH}.")
S
# An nvidia-smi that says GPUS, "9.0\n9.0"; none: there is no driver.
stand_in bin/nvidia-smi <<'S'
[ -n "${GPUS:-}" ] || exit 9
printf "$GPUS\n"
S
choice() {
  PATH="$folder/bin:$PATH" cmake -DFSDP_NVCC="$folder/bin/nvcc" -DFSDP_NVCC_VERSION="${NVCC-13.0}.88" \
    -DFSDP_DEVICE_FILES="$folder/dev" "$@" -P choice.cmake
}
says "no GPU" 'built: OFF, , , no GPU of compute capability 8.0 or newer is seen here; make CUDA=1 builds .*; kept: AUTO, \.' 0 choice
says "CUDA=1" 'built: ON, 80-real;90a-real;100-real;100-virtual, 80, 90a, 100, PTX of 100, ; kept: ON, \.' 0 choice -DFSDP_CUDA=ON
KINDS="80 90" says "an older nvcc" 'ON, 80-real;90a-real;90-virtual, 80, 90a, PTX of 90, ;' 0 choice -DFSDP_CUDA=ON
says "CUDA_ARCH" 'ON, 90a-real, 90a, ; kept: ON, 90a\.' 0 choice -DFSDP_CUDA_ARCH=90a
says "two kinds" 'ON, 80;90a-real, 80, 90a, PTX of 80, ;' 0 choice -DFSDP_CUDA_ARCH=80,90a
says "PTX alone" 'ON, 90-virtual, PTX of 90, ;' 0 choice -DFSDP_CUDA_ARCH=90-virtual
says "no kind" 'CUDA_ARCH=foo: foo: expected .* It knows 80, 86, 90, 100, 120\.' 1 choice -DFSDP_CUDA_ARCH=foo
says "a kind too old for the kernels" 'CUDA_ARCH=80,75: 75: expected' 1 choice -DFSDP_CUDA_ARCH=80,75
KINDS="80 90" says "a kind too new for nvcc" 'CUDA_ARCH=100: 100: expected' 1 choice -DFSDP_CUDA_ARCH=100
says "CMake's own name" 'ON, 90a-real, 90a, ; kept: ON' 0 choice -DCMAKE_CUDA_ARCHITECTURES=90a-real
says "CUDAARCHS" 'ON, 86, 86, PTX of 86, ; kept: ON, 86\.' 0 env CUDAARCHS=86 PATH="$PATH" cmake -DFSDP_NVCC="$folder/bin/nvcc" \
  -DFSDP_NVCC_VERSION=13.0 -P choice.cmake
says "off" 'built: OFF, .* FSDP_CUDA is off.* kept: OFF' 0 choice -DFSDP_CUDA=OFF -DCMAKE_CUDA_ARCHITECTURES=80
says "no choice" 'FSDP_CUDA=maybe: expected ON, OFF or AUTO' 1 choice -DFSDP_CUDA=maybe
NVCC=12.3 says "nvcc too old" 'built: OFF, , , no nvcc of 12.4 or newer; .*; kept: AUTO' 0 choice
NVCC=12.3 says "CUDA=1, nvcc too old" 'CUDA was asked for .* there is no nvcc of 12.4 or newer: .*nvcc 12.3.88' 1 choice -DFSDP_CUDA=ON
says "a sanitizer" 'built: OFF, , , not in a sanitizer build' 0 choice -DFSDP_CUDA=ON -DSANITIZE=thread
says "an older folder" 'built: OFF, .*; kept: AUTO' 0 choice -DFSDP_CUDA:BOOL=ON
says "an older folder with its architecture" 'built: OFF, .*; kept: AUTO' 0 choice -DFSDP_CUDA:BOOL=ON \
  -DFSDP_CUDA_UNSEEN:INTERNAL=ON -DCMAKE_CUDA_ARCHITECTURES:STRING=80
GPUS='9.0\n9.0' says "H100" 'ON, 90a-real, 90a, ; kept: ON, 90a-real\.' 0 choice
GPUS='8.6\n12.0\n7.5' says "three kinds" 'ON, 86-real;120-real, 86, 120, ; kept: ON' 0 choice
GPUS='13.0' says "newer than nvcc" 'ON, .*100-virtual, 80, 90a, 100, PTX of 100, ; kept: ON, \.' 0 choice
GPUS='7.5' says "too old for the kernels" 'built: OFF, , , no GPU' 0 choice
GPUS='9.0' says "CUDA=1 beside a GPU" 'ON, 80-real;90a-real;100' 0 choice -DFSDP_CUDA=ON
mkdir dev && touch dev/nvidia3
says "a GPU of no kind" 'ON, 80-real;90a-real;100-real' 0 choice
rm -r dev

# ---- make --------------------------------------------------------------------------------------------
cp "$SOURCE/Makefile" .
stand_in tools/setup.sh <<<''
stand_in bin/cmake <<'S'
[ "$1" = --build ] || { touch build/build.ninja build/CMakeCache.txt; echo "configure: $*" | tr -s ' '; }
S
make_here() { PATH="$folder/bin:$PATH" make --no-print-directory "$@"; }
says "make CUDA=yes" 'CUDA=yes: expected 1 .*, 0 .* or auto' 2 make_here CUDA=yes
CUDA=/opt/cuda says "a module's CUDA" 'configure: -S . -B build .*-DSANITIZE= ?$' 0 make_here all
rm build/build.ninja build/CMakeCache.txt
for said in 0 auto; do
  says "make CUDA=$said CUDA_ARCH=80" "CUDA=$said CUDA_ARCH=80: they contradict each other" 2 make_here CUDA=$said CUDA_ARCH=80
done
says "the first make" 'configure: -S . -B build .*-DSANITIZE= ?$' 0 make_here
says "the next make keeps what was said" '^ ?$' 0 make_here
says "make CUDA=1" 'configure: .*-UCMAKE_CUDA_ARCHITECTURES -DFSDP_CUDA=ON -DFSDP_CUDA_ARCH= ?$' 0 make_here CUDA=1
says "make CUDA_ARCH" 'configure: .* -DFSDP_CUDA=ON -DFSDP_CUDA_ARCH=80,90a ?$' 0 make_here CUDA_ARCH=80,90a
says "make CUDA=0" 'configure: .* -DFSDP_CUDA=OFF -DFSDP_CUDA_ARCH= ?$' 0 make_here CUDA=0
says "make CUDA=auto" 'configure: .*-UCMAKE_CUDA_ARCHITECTURES -DFSDP_CUDA=AUTO -DFSDP_CUDA_ARCH= ?$' 0 make_here CUDA=auto
stand_in bin/mpirun <<<'echo "trained: $*"'
stand_in build/fsdp <<<''
says "make train without CUDA" 'trained: .*chess.yaml --backend cpu ?$' 0 make_here train
echo 'FSDP_CUDA_BUILT:INTERNAL=ON' >>build/CMakeCache.txt
says "make train with CUDA" 'trained: .*chess.yaml ?$' 0 make_here train
rm bin/cmake bin/mpirun

# ---- tools/setup.sh ----------------------------------------------------------------------------------
# What it knows of this machine it finds in the folder `here`.
sed "s|/usr/local/cuda/|$folder/here/cuda/|; s|/proc/driver|$folder/here|; s|/usr/lib|$folder/here|g" "$SOURCE/tools/setup.sh" \
  >tools/setup.sh
mkdir -p here/nvidia toolkit/bin
mv bin/nvcc toolkit/bin
# Its header says SMI; DRIVER is what it says when it is asked.
stand_in bin/nvidia-smi <<'S'
case "$*:${SMI:-}:${DRIVER:-}" in
  :?*) echo "| NVIDIA-SMI 1.2      Driver Version: 1.2      $SMI     |" ;;
  *driver_version*:?*) printf '%s\n' "$DRIVER" "$DRIVER" ;;
  *) echo "NVIDIA-SMI has failed"; exit 9 ;;
esac
S
# pip says what it is to install, and leaves what setup.sh moves.
stand_in bin/python3 <<'S'
if [ "$3" = --version ]; then exit; fi
while [ "$1" != --target ]; do shift; done
mkdir -p "$2/nvidia/cudnn" "$2/x.dist-info"
echo "pip: ${*:3}."
S
# setup TOOLKIT ARGUMENT: TOOLKIT is what CUDA_HOME names
setup() {
  rm -rf .cache && mkdir .cache && touch .cache/setup_optional_tried
  env PATH="$folder/bin:/usr/bin:/bin" CUDA_HOME="$1" bash tools/setup.sh "$2"
}
nothing=$folder/no toolkit=$folder/toolkit
all13='pip: nvidia-cuda-nvcc==13[^ ]* .*nvidia-cublas==13[^ ]* .*nvidia-cudnn-cu13==9[^ ]* nvidia-nccl-cu13==[^ ]*\.'
only12='runs CUDA 12 at most, but pip has a compiler for CUDA 13 alone: it needs driver 580 or newer, or a CUDA 12 toolkit of 12.4 or newer'
older='runs CUDA 11 at most: this program needs driver 525 or newer with a CUDA 12 toolkit of 12.4 or newer, or driver 580'
says "no answer" "^setup: nvidia-smi is here, but no NVIDIA driver answers: .* without a driver .*$all13" 0 setup "$nothing" --cuda
mv bin/nvidia-smi .
if ! PATH=/usr/bin:/bin command -v nvidia-smi >/dev/null; then
  says "no driver" "^setup: installing .*$all13" 0 setup "$nothing" --cuda
fi
mv nvidia-smi bin
[ -d .cache/cuda/nvidia/cudnn ] || fail "the wheels of CUDA 13: $(find .cache)"
SMI="CUDA Version: 13.0" says "driver of CUDA 13" "$all13" 0 setup "$nothing" --cuda
SMI="CUDA UMD Version: 12.9" says "another header" "$only12" 1 setup "$nothing" --cuda
DRIVER=580.65.06 says "driver 580" "$all13" 0 setup "$nothing" --cuda
for said in "CUDA Version: 12.4" "CUDA Version: 12.9"; do
  SMI=$said says "$said" "$only12" 1 setup "$nothing" --cuda
  [ ! -e .cache/cuda ] || fail "$said: something was installed"
done
DRIVER=550.54.14 SMI="" says "driver 550" "$only12" 1 setup "$nothing" --cuda
SMI="CUDA Version: N/A" DRIVER=575.57 says "driver 575" "$only12" 1 setup "$nothing" --cuda
SMI="CUDA Version: 11.4" says "driver of CUDA 11" "$older" 1 setup "$nothing" --cuda
DRIVER=470.1 says "driver 470" "$older" 1 setup "$nothing" --cuda
echo "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023" >here/nvidia/version
says "driver 535 without nvidia-smi" "$only12" 1 setup "$nothing" --cuda
echo "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (x@y)  Tue Sep 23" >here/nvidia/version
says "the open module 580" "$all13" 0 setup "$nothing" --cuda
rm here/nvidia/version
export SMI="CUDA Version: 12.4"
NVCC=12.6 says "a toolkit of CUDA 12" \
  'pip: nvidia-cublas-cu12==12[^ ]* nvidia-cuda-nvrtc-cu12==12[^ ]* nvidia-cudnn-cu12==9[^ ]* nvidia-nccl-cu12==[^ ]*\. ?$' 0 setup "$toolkit" --cuda
[ -d .cache/cuda/12/nvidia/cudnn ] && [ ! -e .cache/cuda/nvidia ] || fail "the wheels of CUDA 12: $(find .cache)"
says "a toolkit of CUDA 13" "runs CUDA 12 at most, but the CUDA toolkit in .* is of CUDA 13: it needs driver 580" 1 setup "$toolkit" --cuda
says "for other machines" 'pip: nvidia-cuda-nvcc==13[^ ]* .*nvidia-nvtx==[^ ]*\. ?$' 0 setup "$nothing" --cuda-compiler
exit "$failed"
