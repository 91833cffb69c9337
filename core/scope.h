// Names what the host enqueues while alive, for traces and errors.
#pragma once

#include <string>

#include "core/backend.h"

namespace fsdp {

class Scope {
 public:
  Scope(Backend& backend, const std::string& inside) : backend_(backend), before_(backend.scope()) {
    backend_.set_scope(inside);
  }
  ~Scope() { backend_.set_scope(before_); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Backend& backend_;
  std::string before_;
};

}  // namespace fsdp
