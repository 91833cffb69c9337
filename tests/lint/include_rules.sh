#!/usr/bin/env bash
# Enforces who may know whom: the include edges between the rooms as CMakeLists.txt declares them
# (fsdp_layer), where outside libraries may appear, and a few rules of form. Sizes and test coverage:
# size_budget.sh.
#   tests/lint/include_rules.sh [ROOT]      prints path:line: message, exits 1 on any
set -uo pipefail
cd "${1:-$(dirname "$0")/../..}" || exit 2

# ---- nothing else at the top ---------------------------------------------------------------------
top=$(for entry in *; do
  case "$entry" in
    core|kernels|models|comm|optim|tools|tests) ;;
    Makefile|CMakeLists.txt|README.md|LICENSE|CONTRIBUTING.md|AGENTS.md) ;;
    build|build-*|runs|compile_commands.json) ;;  # made by the build and the program
    *) echo "$entry:1: no other top-level entry than the folders and files of the README" ;;
  esac
done)

# ---- the sources ---------------------------------------------------------------------------------
mapfile -t sources < <(find core kernels models comm optim tools tests -type f \
  \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) 2>/dev/null | sort)
rules=$(if [ "${#sources[@]}" -gt 0 ]; then awk '
  function report(message) { print FILENAME ":" FNR ": " message }
  function only(pattern, header, where, place) {
    if (header ~ pattern && FILENAME !~ where) report("<" header "> belongs only to " place)
  }
  # The table: fsdp_layer(room DEPENDS room ... EXCLUDE ...)
  function read_rooms(    line, text, words, count, i, room, part) {
    while ((getline line < table) > 0) { sub(/#.*/, "", line); text = text " " line }
    while (match(text, /fsdp_layer\([^)]*\)/)) {
      count = split(substr(text, RSTART + 11, RLENGTH - 12), words, /[ \t]+/)
      text = substr(text, RSTART + RLENGTH)
      room = words[1]; rooms[room] = 1; part = ""
      for (i = 2; i <= count; ++i) {
        if (words[i] ~ /^(DEPENDS|EXCLUDE)$/) part = words[i]
        else if (part == "DEPENDS") { edges[room] = edges[room] " " words[i]; may[room, words[i]] = 1 }
      }
    }
    for (room in rooms) {
      count = split(edges[room], words, " ")
      for (i = 1; i <= count; ++i)
        if (!(words[i] in rooms)) print table ":1: " room " depends on " words[i] ", which is no room"
    }
    for (room in rooms) find_circle(room, room, room)
  }
  # Prints a circle once: from its first room in the alphabet.
  function find_circle(first, at, path,    next_rooms, count, i) {
    count = split(edges[at], next_rooms, " ")
    for (i = 1; i <= count; ++i) {
      if (next_rooms[i] == first) print table ":1: a circle of rooms: " path " -> " first
      else if (next_rooms[i] > first && !((first, next_rooms[i]) in seen)) {
        seen[first, next_rooms[i]] = 1
        find_circle(first, next_rooms[i], path " -> " next_rooms[i])
      }
    }
  }
  function room_of(file,    room) {
    room = file
    while (sub(/\/[^\/]*$/, "", room)) if (room in rooms) return room
    return ""
  }
  function project_include(header,    target) {
    target = header; sub(/\/.*/, "", target)
    if (header !~ /\// || !(target in folders)) {
      report("\"" header "\": includes name the path from the root of the repository"); return
    }
    if (layer == "tests") return
    target = room_of(header)
    used[room, target] = 1
    if (target != "" && (target == room || (room, target) in may)) return
    report((room == "" ? layer : room) " must not include \"" header "\"")
  }
  function library_include(header) {
    only("^(cuda|cublas|cudnn|curand|cusolver|cooperative_groups|nvtx)", header,
         "^(kernels/cuda/|comm/nccl|tests/cuda|tests/kernels/cuda/)", "kernels/cuda and comm/nccl*")
    only("^nccl", header, "^(kernels/cuda/|comm/nccl|tests/cuda|tests/kernels/cuda/)", "comm/nccl*")
    only("^mpi", header, "^(comm/mpi|tests/mpi/)", "comm/mpi* and tests/mpi")
    only("^nlohmann/", header, "^core/io/json[.]cpp$", "core/io/json.cpp")
    only("^pcre2[.]h$", header, "^tools/data/tokenizer/", "tools/data/tokenizer")
    only("^utf8proc[.]h$", header, "^tools/data/(tokenizer|chat)/", "tools/data/tokenizer and tools/data/chat")
    only("^liburing[.]h$", header, "^core/io/io_ring[.]cpp$", "core/io/io_ring.cpp")
    only("^xxhash[.]h$", header, "^core/io/checksum[.]cpp$", "core/io/checksum.cpp")
    only("^yaml-cpp/", header, "^(tools/config|tools/guides|tools/report|tools/sweep|tests)/",
         "tools/config, tools/guides, tools/report and tools/sweep")
    only("^CLI/", header, "^(tools/commands/(options|command_line)[.]cpp$|tests/tools/commands/)",
         "tools/commands/options.cpp and command_line.cpp")
    only("^(oneapi/)?dnnl", header, "^kernels/cpu/matmul_onednn", "kernels/cpu/matmul_onednn*")
    only("^(unsupported/)?Eigen/", header, "^kernels/cpu/", "kernels/cpu")
    only("^omp[.]h$", header, "^kernels/cpu/parallel_openmp", "kernels/cpu/parallel_openmp*")
    only("^doctest", header, "^tests/", "tests")
  }
  # An edge that no include uses, of a room that has sources. Who uses a room through the headers of
  # another one includes what it uses.
  function unused_edges(    room, words, count, i) {
    for (room in sources) {
      count = split(edges[room], words, " ")
      for (i = 1; i <= count; ++i)
        if ((words[i] in rooms) && !((room, words[i]) in used))
          print table ":1: " room " includes nothing of " words[i] ", on which it depends"
    }
  }
  function end_of_file() {
    if (path ~ /[.](h|cuh)$/ && !pragma_once) print path ":1: a header has #pragma once"
  }
  BEGIN {
    table = "CMakeLists.txt"
    count = split("core kernels models comm optim tools tests", list, " ")
    for (i = 1; i <= count; ++i) folders[list[i]] = 1
    read_rooms()
  }
  FNR == 1 {
    end_of_file()
    path = FILENAME; layer = path; sub(/\/.*/, "", layer)
    room = room_of(path)
    if (room != "") sources[room] = 1
    else if (layer != "tests") report("its folder is no room of " table)
    library = layer != "tools" && layer != "tests"
    conditionals = 0; pragma_once = 0
    if ($0 !~ /^(\/\/|\/\*)/) report("the first line is a comment that says what the file is for")
  }
  /^#pragma once/ { pragma_once = 1 }
  /^[ \t]*#[ \t]*include[ \t]*["<]/ {
    header = $0; sub(/^[^"<]*["<]/, "", header); sub(/[">].*/, "", header)
    if ($0 ~ /^[^"<]*"/) project_include(header); else library_include(header)
    next
  }
  /^[ \t]*#[ \t]*(if|ifdef|ifndef|elif)([ \t(!]|$)/ {
    if (++conditionals == 3) report("an #ifdef forest: choose a source file in the build instead")
    if ($0 ~ /(HAVE|USE|WITH|ENABLE)_/) report("optional libraries are a stub file, not an #ifdef")
    if ($0 ~ /ifndef.*_H_?$/) report("#pragma once instead of an include guard")
  }
  {
    code = $0
    gsub(/"([^"\\]|\\.)*"/, "\"\"", code)
    sub(/\/\/.*/, "", code)
    if (code ~ /using[ \t]+namespace[ \t]+std[ \t]*(;|::[a-z_]*[ \t]*;)/ && code !~ /literals/)
      report("no using namespace std")
    if (code ~ /#[ \t]*pragma[ \t]+omp/ && code !~ /omp[ \t]+simd/ &&
        FILENAME !~ /^kernels\/cpu\/parallel_openmp/)
      report("OpenMP only through parallel_for (omp simd is allowed)")
    if (library && code ~ /(^|[^A-Za-z0-9_])(std::cout|std::cerr|printf|fprintf|puts|fmt::print)([^A-Za-z0-9_]|$)/)
      report("libraries never print")
    if (library && code ~ /(std::(abort|exit|quick_exit|terminate)|(^|[^A-Za-z0-9_.>:])_?exit)[ \t]*\(/)
      report("libraries never exit or abort: throw an Error")
    if (library && code ~ /(^|[^A-Za-z0-9_])(getenv|secure_getenv)[ \t]*\(/)
      report("no environment reads below tools")
  }
  END { end_of_file(); unused_edges() }
' "${sources[@]}"; fi) || exit 2

violations=$(printf '%s\n%s\n' "$top" "$rules" | sed '/^$/d')
if [ -n "$violations" ]; then
  printf '%s\n' "$violations"
  echo "include_rules: $(grep -c . <<<"$violations") violations"
  exit 1
fi
echo "include_rules: ${#sources[@]} files, no violation"
