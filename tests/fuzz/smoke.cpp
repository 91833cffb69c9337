// Runs a fuzz target without libFuzzer: over its seeds and mutations of them, the same ones every
// time. With a folder as argument it writes the seeds there instead.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/json_mutator.h"

namespace {

constexpr uint64_t kMutationsPerSeed = 300;
constexpr uint64_t kChain = 12;  // mutations in a row, each of the one before

void run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> seeds = fsdp::fuzz::seeds();
  if (argc == 2) {
    const std::filesystem::path folder = argv[1];
    std::filesystem::create_directories(folder);
    for (size_t i = 0; i < seeds.size(); ++i) {
      std::ofstream(folder / ("seed_" + std::to_string(i)), std::ios::binary) << seeds[i];
    }
    return 0;
  }
  uint64_t executions = 0;
  for (const std::string& seed : seeds) {
    run(seed);
    std::string input;
    for (uint64_t i = 0; i < kMutationsPerSeed; ++i) {
      input = fsdp::fuzz::mutate_json(i % kChain == 0 ? seed : input, ++executions);
      run(input);
    }
  }
  std::cout << seeds.size() << " seeds, " << executions << " mutations\n";
  return seeds.empty() ? 1 : 0;
}
