// The permutation that torch.randperm(size) draws on the CPU from a generator with this seed, and
// with it torch's DistributedSampler: the same order here as there. Not here: the order by default,
// which needs no memory (sampler.h).
#pragma once

#include <cstdint>
#include <vector>

namespace fsdp::data {

// Error for 2^32 / 20 numbers or more, where torch draws in another way.
std::vector<uint32_t> torch_permutation(int64_t size, uint64_t seed);

}  // namespace fsdp::data
