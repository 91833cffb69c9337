#!/usr/bin/env bash
# A ccache that is installed after the first build (tools/setup.sh --tests) makes nothing compile again, and what is
# compiled from then on goes through it. With a stand-in for ccache, and a project of one file.
# Environment: SOURCE the repository.
source "$(dirname "$0")/../support/e2e.sh"
unset CCACHE_SLOPPINESS CCACHE_BASEDIR
mkdir bin && for tool in cmake ninja make c++ cc ld ar as sh env tr uname; do
  found=$(command -v $tool) && ln -s "$found" bin/$tool
done
generator=$([ -e bin/ninja ] && echo Ninja || echo "Unix Makefiles")
cat >CMakeLists.txt <<S
cmake_minimum_required(VERSION 3.22)
project(cached LANGUAGES CXX)
include($SOURCE/tools/cmake/Toolchain.cmake)
add_executable(cached cached.cpp)
S
echo 'int main() { return 0; }' >cached.cpp
build() {  # what it compiled and linked; as after each `make`, the project is configured anew
  PATH="$scratch/bin" cmake -S . -B build -G "$generator" >configure.log 2>&1 || fail "configure: $(cat configure.log)"
  PATH="$scratch/bin" cmake --build build 2>&1 || fail "build"
}
grep -q cached.cpp <<<"$(build)" || fail "the first build compiles nothing"
cat >bin/ccache <<S
#!/bin/sh
case "\$1" in
  --get-config) [ "\$2" = base_dir ] || echo "system_headers"; exit ;;
esac
echo "\$CCACHE_SLOPPINESS, base \$CCACHE_BASEDIR" >>$scratch/ccache.log
exec "\$@"
S
chmod +x bin/ccache
again=$(build)
! grep -q cached.cpp <<<"$again" || fail "ccache came, and the file is compiled again: $again"
[ ! -e ccache.log ] || fail "ccache ran: $(cat ccache.log)"
echo 'int main() { return 1; }' >cached.cpp
grep -q cached.cpp <<<"$(build)" || fail "a change is not compiled"
grep -qx "system_headers,pch_defines,time_macros, base $SOURCE" ccache.log || fail "through ccache: $(cat ccache.log)"
exit "$failed"
