// What a fuzz target of this folder defines: a reader that is given arbitrary bytes. It may refuse
// them with an Error and nothing else; what it accepts it uses, and checks what must then hold.
// Three programs are made of each target: `fuzz_NAME` with libFuzzer (configure with
// -DFSDP_FUZZ=ON, clang; `make fuzz`), `fuzz_smoke_NAME` for the per-commit tests (smoke.cpp: the
// seeds and some thousand mutations), and with `fuzz_smoke_NAME FOLDER` the seeds as files for
// libFuzzer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace fsdp::fuzz {

// Inputs to start from: good ones of every kind, and ones that were trouble once.
std::vector<std::string> seeds();

// Ends the program where a property does not hold: what libFuzzer takes for a crash.
inline void require(bool holds) {
  if (!holds) std::abort();
}

// Whether `read` accepts its input. Anything that is thrown but an Error ends the program.
template <typename Read>
bool accepts(const Read& read) {
  try {
    read();
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace fsdp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
