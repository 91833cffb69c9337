// A run without bytes beside the run itself on GPUs: the ledger of every rank in every category but
// the workspace of libraries and the transport's staging. Every tenth row of the CPU's pairwise
// cover (tests/tools/predict/meta_run_test.cpp).
#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include "tests/support/memory_cases.h"

namespace fsdp::test {

TEST_CASE("a run without bytes takes what the run takes on GPUs, but for the workspace") {
  const auto rows = pairwise<kMemoryFactors>(kMemorySizes, go_together);
  int cases = 0;
  for (size_t i = 0; i < rows.size(); i += 10) {
    CAPTURE(fmt::format("{}", fmt::join(rows[i], " ")));
    MemoryCase run = memory_case(rows[i]);
    run.options.backend.cuda = cuda::CudaOptions{};
    // Each thread of a GPU has a stack of its own, and Linux maps 65530 areas a process at most.
    if (run.ranks == 4) run.options.fsdp.separate_reduce = false;
    // NCCL adds in an order of its own.
    if (!run.options.fsdp.fixed_order) run.options.backend.nccl = comm::NcclOptions{};
    check_memory(run);
    ++cases;
  }
  CHECK(cases >= 12);
}

}  // namespace fsdp::test
