// Shard sizes by hand; wrap_policy_test.cpp compares whole models with PyTorch's.
#include "tools/predict/pytorch_shards.h"

#include <doctest/doctest.h>

using namespace fsdp;
using namespace fsdp::tools;

TEST_CASE("PyTorch's shards of a matrix of 5 x 3 and a bias of 5") {
  const std::vector<Shape> parameters = {{5, 3}, {5}};
  CHECK(fsdp1_shard(parameters, 3) == 7);              // 20 -> 21
  CHECK(fsdp1_original_shard(parameters, 3, 4) == 7);  // 15 -> 16, + 5 = 21
  CHECK(fsdp1_original_shard(parameters, 1, 2) == 21);
  CHECK(fsdp1_original_shard(parameters, 4, 4) == 6);
  const Fsdp2Shards shards = fsdp2_shards(parameters, 4);  // 2, 2, 1, 0 rows
  CHECK(shards.padded == 8);
  CHECK(shards.held == std::vector<int64_t>{8, 8, 4, 0});
}

TEST_CASE("PyTorch's shards of nothing") {
  CHECK(fsdp1_shard({}, 2) == 0);
  CHECK(fsdp1_original_shard({}, 2, 4) == 0);
  CHECK(fsdp2_shards({}, 2).held == std::vector<int64_t>{0, 0});
}
