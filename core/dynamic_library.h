// A library that is opened when it is needed, so that the program starts without it.
#pragma once

#include <initializer_list>

namespace fsdp {

class DynamicLibrary {
 public:
  // The first of `places` (file names or paths; empty ones are passed over) that can be opened.
  // Stays open for good. Error: "[name] ...", with what was tried.
  DynamicLibrary(const char* name, std::initializer_list<const char*> places);

  template <typename Function>
  void find(Function*& function, const char* symbol) const {
    function = reinterpret_cast<Function*>(address(symbol));
  }

 private:
  void* address(const char* symbol) const;  // Error when it has none

  const char* name_;
  void* handle_ = nullptr;
};

}  // namespace fsdp
