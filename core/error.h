// The one exception type of the project and the CHECK that throws it.
// Libraries never print, exit or abort: they throw Error; only main() catches it.
#pragma once

#include <stdexcept>
#include <string>

#include <fmt/format.h>

namespace fsdp {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace fsdp

// Throws Error with the formatted message when `condition` is false. The name CHECK itself belongs
// to doctest. Message form: "[operation] what: expected X, got Y".
#define FSDP_CHECK(condition, ...)   \
  do {                               \
    if (!(condition)) [[unlikely]] { \
      ::fsdp::fail(__VA_ARGS__);     \
    }                                \
  } while (false)
