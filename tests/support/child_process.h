// A question that is answered in a process of its own, because a sanitizer may end that process.
#pragma once

#include <functional>

namespace fsdp::test {

// In a build for AddressSanitizer, which ends a program at its first report.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kAddressSanitizer = true;
#else
constexpr bool kAddressSanitizer = false;
#endif

// `question` in a child of this process: its answer, or true when the sanitizer reports something
// there. Error when the child ends in any other way. No other thread may be running.
bool true_or_reported(const std::function<bool()>& question);

}  // namespace fsdp::test
