// Values in another dtype, with a gradient: what a module does at its borders (core/module.h).
#pragma once

#include "core/autograd.h"

namespace fsdp {

// The values of x rounded to `dtype`, its gradient rounded to that of x; x itself where nothing is
// to do. Saves nothing.
Tensor cast(const Tensor& x, DType dtype);

}  // namespace fsdp
