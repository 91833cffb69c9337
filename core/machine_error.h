// An Error of the machine: of a GPU, a library, a peer or the network, and of no mistake of a
// person. The same command may go well another time. Errors of files: core/io/file.h.
#pragma once

#include "core/error.h"

namespace fsdp {

class MachineError : public Error {
 public:
  using Error::Error;
};

}  // namespace fsdp
