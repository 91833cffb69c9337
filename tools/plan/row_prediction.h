// What this program's model of time says of a published step: the step of such a configuration,
// without bytes, with the other program's memory-bound kernels (other_programs.h) and the row's
// machine. Not here: how good that is (validation.h).
#pragma once

#include <array>

#include "tools/plan/published_rows.h"
#include "tools/predict/rates.h"

namespace fsdp::tools {

// What fits replace, in the row's dtype: FLOP/s of products and of attention; 0: it has none of its
// own.
using Constants = std::array<double, 2>;

// As the machine's file has them.
Constants shipped_constants(const PublishedRow& row);

// Of the device's peak, the same share everywhere: where a fit begins, which must know nothing of
// what it predicts. 0: the peak is not known.
Constants unfitted_constants(const PublishedRow& row);

// Seconds of a step. Error where the row's job is none of this program's.
double predicted_step_s(const PublishedRow& row, const Constants& constants);

}  // namespace fsdp::tools
