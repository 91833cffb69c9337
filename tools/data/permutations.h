// Permutations that other programs draw: the same order here as there. Not here: the order by
// default, which needs no memory (sampler.h).
#pragma once

#include <cstdint>
#include <vector>

namespace fsdp::data {

// What torch.randperm(size) draws on the CPU from a generator with this seed, and with it torch's
// DistributedSampler. Error for 2^32 / 20 numbers or more, where torch draws in another way.
std::vector<uint32_t> torch_permutation(int64_t size, uint64_t seed);

// What numpy's default_rng(seed).permutation(size) draws, and with it Hugging Face datasets'
// shuffle(seed). Error for more than 2^32 numbers, where numpy draws in another way.
std::vector<int64_t> numpy_permutation(int64_t size, uint64_t seed);

}  // namespace fsdp::data
