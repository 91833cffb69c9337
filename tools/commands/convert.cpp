// fsdp convert: a model folder of one kind into one of another kind or dtype. fsdp merge: a LoRA
// adapter and its model into such a folder. Read next: tools/model_folders/conversion.h.
#include <cstdio>

#include "comm/exchange.h"
#include "core/text/byte_size.h"
#include "tools/commands/commands.h"
#include "tools/launch/interrupt.h"
#include "tools/launch/launch.h"
#include "tools/model_folders/checkpoint_model.h"
#include "tools/model_folders/conversion.h"
#include "tools/model_folders/load_model.h"
#include "tools/predict/model_use.h"

namespace fsdp::tools {
namespace {

// Of both commands.
struct ConvertOptions {
  LaunchOptions launch;
  ConversionOptions conversion;
  std::string from, base, to, dtype;
  std::string max_file_size = "5GB";
};

ConversionSummary convert_any(ConversionOptions options, RankContext& rank) {
  const bool checkpoint = is_checkpoint(options.from);
  agree(rank.world, [&] {
    if (checkpoint) return;
    options.from = model_in(options.from);
    check_model_folder(options.from);
  });
  if (!checkpoint) return convert_folder(rank.world, options);
  return convert_checkpoint(rank, options, [&](const PlacedOptions& session, DType saved) {
    check_fits(rank, session,
               {.work =
                    [saved](MetaRun& run, int64_t) {
                      run.phase("saving", [&](Session& model) { walk_saved(model, saved); });
                    },
                .has_dtype = false});
  });
}

// A signal ends it with nothing left of the new folder.
ConversionSummary convert_or_stop(const ConversionOptions& options, RankContext& rank) {
  catch_interrupts();
  try {
    return convert_any(options, rank);
  } catch (const AgreedError&) {
    const int signal = agreed_signal(comm::exchange_values(rank.world, received_interrupt()));
    if (signal == 0) throw;
    throw AgreedError(fmt::format("stopped by {}: nothing is left of {}", name_of_signal(signal),
                                  options.to.string()),
                      status_after(signal));
  }
}

int convert(const ConversionOptions& options, RankContext& rank) {
  const ConversionSummary done = convert_or_stop(options, rank);
  if (rank.world.rank() != 0) return 0;
  for (const std::string& warning : done.warnings) std::printf("note: %s\n", warning.c_str());
  std::printf("%s: %s, %zu tensors, %.2f MiB in %zu file%s\n", options.to.c_str(),
              done.family.c_str(), done.tensors, static_cast<double>(done.bytes) / (1 << 20),
              done.files, done.files == 1 ? "" : "s");
  return 0;
}

int merge(const ConvertOptions& options, RankContext& rank) {
  ConversionOptions conversion = options.conversion;
  agree(rank.world, [&] {
    const ModelSource source = find_model(options.from, options.base);
    FSDP_CHECK(!source.adapter.empty(), "{}: no adapter: there is nothing to merge", options.from);
    conversion.from = source.folder;
    conversion.adapter = source.adapter;
  });
  return convert(conversion, rank);
}

std::string wrong_file_size(const std::string& text) {
  try {
    parse_byte_size(text, "file size");
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// What is written, and by whom.
void add_output_options(const Command& command, ConvertOptions& options) {
  command.add_option("to", options.to, "the new folder").required().path().check(not_empty);
  command
      .add_option("--dtype", options.dtype,
                  "dtype of the new tensors (default: each keeps its own)")
      .one_of({"f64", "f32", "bf16", "f16"});
  const Option size =
      command
          .add_option("--max-shard-size", options.max_file_size,
                      "largest size of one weights file: 5GB (default), 300MB, 2GiB")
          .check(wrong_file_size);
  command
      .add_option("--shards", options.conversion.shards,
                  "write a sharded checkpoint for N ranks; any number of ranks can read it")
      .from_to(1, 1 << 16)
      .excludes(size);
  options.launch.backend = "cpu";  // bytes are moved, nothing is computed on a GPU
  add_rank_options(command, options.launch);
}

void finish(ConvertOptions& options) {
  options.conversion.from = options.from;
  options.conversion.to = options.to;
  if (!options.dtype.empty()) options.conversion.dtype = parse_dtype(options.dtype);
  options.conversion.max_file_bytes = parse_byte_size(options.max_file_size, "file size");
}

}  // namespace

void add_convert_command(const Command& app, ChosenCommand& chosen) {
  const auto options = std::make_shared<ConvertOptions>();
  const Command command = app.add_command(
      "convert", "rewrites a model folder: dtype, size of files, Hugging Face's form or shards");
  command
      .add_option("from", options->from,
                  "a Hugging Face folder, a sharded model, or a checkpoint of a run")
      .required()
      .path();
  command
      .add_option("--strip-prefix", options->conversion.stripped,
                  "a part of the tensors' names that the new names do not have, at the beginning "
                  "or behind a dot: module., _orig_mod.; repeatable")
      .one_value_each()
      .check(not_empty);
  add_output_options(command, *options);
  command.when_chosen([&chosen, options] {
    finish(*options);
    chosen = [options] {
      return launch(options->launch,
                    [&](RankContext& rank) { return convert(options->conversion, rank); });
    };
  });
}

void add_merge_command(const Command& app, ChosenCommand& chosen) {
  const auto options = std::make_shared<ConvertOptions>();
  const Command command =
      app.add_command("merge", "adds a LoRA adapter to its model, and writes it as convert does");
  command.add_option("adapter", options->from, "adapter_config.json, adapter_model.safetensors")
      .required()
      .path();
  command
      .add_option("--base", options->base,
                  "the folder of the base model (default: the one the adapter names)")
      .path();
  add_output_options(command, *options);
  command.when_chosen([&chosen, options] {
    finish(*options);
    chosen = [options] {
      return launch(options->launch, [&](RankContext& rank) { return merge(*options, rank); });
    };
  });
}

}  // namespace fsdp::tools
