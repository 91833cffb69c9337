// An environment variable that a test sets or takes away, and gives back. Not while other threads
// read the environment.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace fsdp::test {

class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    value ? ::setenv(name, value, 1) : ::unsetenv(name);
  }
  ~Environment() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  std::string now() const {
    const char* value = std::getenv(name_);
    return value ? value : "";
  }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace fsdp::test
