// Numbers for people to read.
#pragma once

#include <cstdint>
#include <string>

namespace fsdp {

std::string format_count(int64_t value);             // "12,345"
std::string format_value(double value);              // every digit; "nan" whatever its sign
std::string format_fixed(double value, int digits);  // behind the point; "nan" whatever its sign

}  // namespace fsdp
