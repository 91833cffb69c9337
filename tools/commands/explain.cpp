// fsdp explain: what sharding would do with a configuration, for any number of ranks.
// Read next: tools/predict/explanation.h.
#include <cstdio>
#include <optional>

#include "tools/commands/commands.h"
#include "tools/commands/config_options.h"
#include "tools/config/config.h"
#include "tools/launch/launch.h"
#include "tools/predict/call_meter.h"
#include "tools/predict/explanation.h"
#include "tools/predict/machines.h"
#include "tools/predict/rates_file.h"
#include "tools/train/data_paths.h"
#include "tools/train/model_shape.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

struct ExplainOptions {
  ConfigOptions config;
  int world = 8;
  std::string layout;
  std::string gpu;
  double percentile = 50;
  std::string rates, save_rates;  // files; "": none
  bool measure = false;
};

int explain(const ExplainOptions& options, const config::TrainConfig& config, CallMeter* meter) {
  std::optional<PyTorchLayout> layout;
  if (options.layout == "fsdp1") layout = PyTorchLayout::kFsdp1;
  if (options.layout == "fsdp2") layout = PyTorchLayout::kFsdp2;
  const Explanation said = tools::explain(
      config, {.ranks = options.world,
               .gpu = options.gpu,
               .times = {.rates = options.rates, .meter = meter, .percentile = options.percentile},
               .layout = layout});
  std::fputs(said.text.c_str(), stdout);
  if (!options.save_rates.empty()) check_has_times(said.rates->rates());
  if (!options.save_rates.empty()) write_rates(options.save_rates, said.rates->rates());
  return 0;
}

int explain_command(const ExplainOptions& options) {
  check_one_process("explain");
  const std::string& file = options.config.config;
  config::TrainConfig config = config::read_config(file, overrides_of(options.config));
  resolve_paths(config, file);
  for (const std::string& note : take_published_sizes(config)) print_note(note);
  if (!options.measure) return explain(options, config, nullptr);
  return launch(config.runtime.launch, [&](RankContext& rank) {
    FSDP_CHECK(rank.world.size() == 1,
               "explain: --measure: expected one rank, which computes; got {}", rank.world.size());
    print_backend_note(rank);
    const auto backend = make_backend(rank.backend, config.train.dtype);
    CallMeter meter(*backend);
    return explain(options, config, &meter);
  });
}

}  // namespace

void add_explain_command(const Command& app) {
  const auto options = std::make_shared<ExplainOptions>();
  const Command command = app.add_command("explain");
  add_config_options(command, {FlagOf::kConfigured}, options->config);
  command.add({{"--world", &options->world},
               {"--layout", &options->layout},
               {"--gpu", &options->gpu, wrong_machine},
               {"--percentile", &options->percentile},
               {"--rates", &options->rates},
               {"--measure", &options->measure},
               {"--save-rates", &options->save_rates}});
  command.runs(options, explain_command);
}

}  // namespace fsdp::tools
