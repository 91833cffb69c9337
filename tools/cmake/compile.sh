#!/bin/sh
# compile.sh COMPILER ARGUMENTS...: compiles, through ccache where it is installed. The build calls every compiler by
# this script, so that ccache may come later (tools/setup.sh --tests) without changing a single command: ninja compiles
# again what has another command. Toolchain.cmake and Cuda.cmake name it.
command -v ccache >/dev/null || exec "$@"
# Without pch_defines and time_macros ccache keeps no file that is compiled with a precompiled header. Without a base
# folder it knows a file in this folder alone, not in another clone.
CCACHE_SLOPPINESS=$(ccache --get-config sloppiness | tr -d ' '),pch_defines,time_macros
CCACHE_BASEDIR=${CCACHE_BASEDIR:-$(ccache --get-config base_dir)}
: "${CCACHE_BASEDIR:=${0%/tools/cmake/*}}"
export CCACHE_SLOPPINESS CCACHE_BASEDIR
exec ccache "$@"
