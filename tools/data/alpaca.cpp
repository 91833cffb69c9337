// The wording is Stanford Alpaca's, to the byte: models that learned it expect it.
#include "tools/data/alpaca.h"

#include <fmt/format.h>

namespace fsdp::data {

std::string alpaca_text(const std::string& instruction, const std::string& input,
                        const std::string& output) {
  if (input.empty()) {
    return fmt::format(
        "Below is an instruction that describes a task. Write a response that appropriately "
        "completes the request.\n\n### Instruction:\n{}\n\n### Response:{}",
        instruction, output);
  }
  return fmt::format(
      "Below is an instruction that describes a task, paired with an input that provides further "
      "context. Write a response that appropriately completes the request.\n\n### "
      "Instruction:\n{}\n\n### Input:\n{}\n\n### Response:{}",
      instruction, input, output);
}

}  // namespace fsdp::data
