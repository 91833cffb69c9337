// From an address in the program to a name and a line of source, by addr2line of binutils.
#pragma once

#include <string>

namespace fsdp::emulator {

// Of the function that begins there: "norm_forward_rows<float, 256>".
std::string function_name(const void* function);
// "kernels/cuda/norm.cu:57": the innermost line of kernels or tests. `code`: the address behind a
// call.
std::string source_line(const void* code);

}  // namespace fsdp::emulator
