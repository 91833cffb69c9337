// What libFuzzer asks for beside the target: half of the mutations know JSON.
#include <algorithm>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/json_mutator.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  if (seed % 2 == 0) return LLVMFuzzerMutate(data, size, max_size);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string changed = fsdp::fuzz::mutate_json(text, seed);
  const size_t kept = std::min(changed.size(), max_size);
  std::copy_n(changed.begin(), kept, data);
  return kept;
}
