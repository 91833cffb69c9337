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

// Both commands have these options.
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

int print_conversion(const ConversionOptions& options, RankContext& rank) {
  const ConversionSummary done = convert_or_stop(options, rank);
  if (rank.world.rank() != 0) return 0;
  for (const std::string& warning : done.warnings) std::printf("note: %s\n", warning.c_str());
  std::printf("%s: %s, %zu tensors, %.2f MiB in %zu file%s\n", options.to.c_str(),
              done.family.c_str(), done.tensors, static_cast<double>(done.bytes) / (1 << 20),
              done.files, done.files == 1 ? "" : "s");
  return 0;
}

ConversionOptions conversion_of(const ConvertOptions& options) {
  ConversionOptions out = options.conversion;
  out.from = options.from;
  out.to = options.to;
  if (!options.dtype.empty()) out.dtype = parse_dtype(options.dtype);
  out.max_file_bytes = parse_byte_size(options.max_file_size, "file size");
  return out;
}

int convert(const ConvertOptions& options, RankContext& rank) {
  return print_conversion(conversion_of(options), rank);
}

int merge(const ConvertOptions& options, RankContext& rank) {
  ConversionOptions conversion = conversion_of(options);
  agree(rank.world, [&] {
    const ModelSource source = find_model(options.from, options.base);
    FSDP_CHECK(!source.adapter.empty(), "{}: the folder holds no adapter, so nothing can be merged",
               options.from);
    conversion.from = source.folder;
    conversion.adapter = source.adapter;
  });
  return print_conversion(conversion, rank);
}

std::string wrong_file_size(const std::string& text) {
  try {
    parse_byte_size(text, "file size");
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// The commands differ in what is read.
void add_conversion(const Command& command, const std::vector<Bound>& read,
                    const std::shared_ptr<ConvertOptions>& options,
                    int (*run)(const ConvertOptions&, RankContext&)) {
  command.add(read);
  command.add("@conversion", {{"to", &options->to},
                              {"--dtype", &options->dtype},
                              {"--max-shard-size", &options->max_file_size, wrong_file_size},
                              {"--shards", &options->conversion.shards}});
  options->launch.backend = "cpu";  // bytes are moved, nothing is computed on a GPU
  add_rank_options(command, options->launch);
  runs_on_ranks(command, options, run);
}

}  // namespace

void add_convert_command(const Command& app) {
  const auto options = std::make_shared<ConvertOptions>();
  add_conversion(app.add_command("convert"),
                 {{"from", &options->from}, {"--strip-prefix", &options->conversion.stripped}},
                 options, convert);
}

void add_merge_command(const Command& app) {
  const auto options = std::make_shared<ConvertOptions>();
  add_conversion(app.add_command("merge"),
                 {{"adapter", &options->from}, {"--base", &options->base}}, options, merge);
}

}  // namespace fsdp::tools
