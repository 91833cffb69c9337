// fsdp merge: adds a LoRA adapter to its model and writes the sum as a Hugging Face folder.
// Read next: tools/runtime/model_source.h.
#include <cstdio>

#include <CLI/CLI.hpp>

#include "tools/commands/commands.h"
#include "tools/runtime/launch.h"
#include "tools/runtime/model_source.h"

namespace fsdp::tools {
namespace {

struct MergeOptions {
  std::string adapter;
  std::string out;
  std::string base;   // "": as the adapter says
  std::string dtype;  // "": the base's
};

int merge(const MergeOptions& options) {
  check_one_process("merge");
  const ModelSource source = find_model(options.adapter, options.base);
  FSDP_CHECK(!source.adapter.empty(), "{}: no adapter: there is nothing to merge", options.adapter);
  std::optional<DType> dtype;
  if (!options.dtype.empty()) dtype = parse_dtype(options.dtype);
  write_model(source, options.out, dtype);
  fmt::print("{} + {} -> {}\n", source.folder.string(), source.adapter.string(), options.out);
  return 0;
}

}  // namespace

void add_merge_command(CLI::App& app, ChosenCommand& chosen) {
  const auto options = std::make_shared<MergeOptions>();
  CLI::App* command = app.add_subcommand("merge", "adds a LoRA adapter to its model");
  command->add_option("adapter", options->adapter, "adapter_config.json, adapter_model.safetensors")
      ->required();
  command->add_option("out", options->out, "folder to write the model to")
      ->required()
      ->check(not_empty);
  command->add_option("--base", options->base, "the model's folder (default: as the adapter says)");
  command->add_option("--dtype", options->dtype, "of the weights (default: the model's)")
      ->check(CLI::IsMember({"f64", "f32", "bf16", "f16"}));
  command->callback([&chosen, options] { chosen = [options] { return merge(*options); }; });
}

}  // namespace fsdp::tools
