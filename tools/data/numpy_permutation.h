// The permutation that numpy's default_rng(seed).permutation(size) draws, and with it Hugging Face
// datasets' shuffle(seed): the same rows here as there. Not here: the order of training, which
// needs no memory (sampler.h).
#pragma once

#include <cstdint>
#include <vector>

namespace fsdp::data {

// Error for more than 2^32 numbers, where numpy draws in another way.
std::vector<int64_t> numpy_permutation(int64_t size, uint64_t seed);

}  // namespace fsdp::data
