// Libraries that are opened when they are needed.
#include "core/dynamic_library.h"

#include <functional>
#include <string>

#include <doctest/doctest.h>

#include "core/error.h"

namespace fsdp {
namespace {

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST_CASE("a library that is not there is an error that tells what was tried") {
  const std::string message = message_of([] {
    DynamicLibrary("cuNothing", {"", "libnothing.so.1", "/nowhere/libx.so"});
  });
  CHECK(message.starts_with("[cuNothing] the library cannot be opened (tools/setup.sh --cuda"));
  CHECK(message.find("\n  libnothing.so.1: ") != std::string::npos);
  CHECK(message.find("\n  /nowhere/libx.so: ") != std::string::npos);
}

TEST_CASE("symbols are found, and one that is not there is named") {
  const DynamicLibrary library("libm", {"libm.so.6"});
  double (*cosine)(double) = nullptr;
  library.find(cosine, "cos");
  CHECK(cosine(0) == 1);
  CHECK(message_of([&] { library.find(cosine, "no_such_function"); }) ==
        "[libm] the library has no no_such_function: expected a newer one");
}

}  // namespace
}  // namespace fsdp
