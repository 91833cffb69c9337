// Which batches a run leaves out, because it was rolled back after a step on them, and which batch
// a step has then. Steps count on without a gap; numbers of batches have gaps. Both begin at 0. Not
// here: when a run is rolled back (trainer.h), the order of the data (tools/data/loader.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "tools/report/train_totals.h"

namespace fsdp::tools {

int64_t batch_of_step(const BatchRanges& left_out, int64_t step);
// And the batches [first, end): ranges stay in order and apart.
BatchRanges with_range(const BatchRanges& left_out, int64_t first, int64_t end);
// How many samples so many steps have trained on. `samples_before(batch)`: of all batches before
// it, in the order of the data.
int64_t samples_of_steps(const BatchRanges& left_out, int64_t steps,
                         const std::function<int64_t(int64_t batch)>& samples_before);

}  // namespace fsdp::tools
