// fsdp explain: what sharding would do with a configuration, for any number of ranks: views of a
// run of rank 0 without bytes. Read next: tools/predict/meta_run.h.
#include <cstdio>

#include "comm/fsdp/options.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_options.h"
#include "tools/config/config.h"
#include "tools/config/step_shape.h"
#include "tools/launch/launch.h"
#include "tools/memory/predicted_run.h"
#include "tools/predict/call_meter.h"
#include "tools/predict/memory_report.h"
#include "tools/predict/rates_file.h"
#include "tools/predict/unit_timeline.h"
#include "tools/train/config_to_session.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

struct ExplainOptions {
  ConfigOptions config;
  int world = 8;
  std::string layout;
  std::string rates, save_rates;  // files; "": none
  bool measure = false;
};

std::string describe(const SessionOptions& options, comm::GroupSizes groups, int world) {
  std::string out = fmt::format("{}; {} on {} rank{}", tools::describe(options.model),
                                choice_name(options.fsdp.strategy), world, world == 1 ? "" : "s");
  if (groups.shards > 1 && groups.replicas > 1) {
    out += fmt::format(": {} replicas of {} shards", groups.replicas, groups.shards);
  }
  return out + "\n";
}

std::string trained_line(const std::vector<Parameter*>& parameters) {
  const std::string trained = describe_trained(parameters);
  return trained.empty() ? "" : trained + "\n";
}

void print_steps(const std::vector<UnitRow>& units, const MetaRun& run, const CallRates& rates) {
  const auto steps = step_timeline(run.last_step(), units);
  const CallRates::Sources& calls = rates.distinct_calls();
  std::printf(
      "%s\n%s  on %s; of the distinct calls %lld have a row in the file of rates, %lld were "
      "measured, %lld are estimated\n\n"
      "%s: from top to bottom as the host issues it; what stands in one line overlaps\n%s",
      format_traffic(steps).c_str(), format_step_time(step_time(run)).c_str(),
      rates.rates().machine.c_str(), static_cast<long long>(calls.rows),
      static_cast<long long>(calls.measured), static_cast<long long>(calls.estimated),
      steps.size() == 1 ? "one step" : "the last micro-step of a step",
      format_timeline(units, steps.back()).c_str());
}

// `meter`: null where nothing is to be measured.
std::shared_ptr<CallRates> call_rates(const ExplainOptions& options, CallMeter* meter) {
  Rates rates = nominal_rates();
  if (!options.rates.empty()) {
    rates = read_rates(options.rates);
  } else if (meter) {
    rates = measured_machine(*meter, "this machine");
  }
  if (!meter) return std::make_shared<CallRates>(std::move(rates));
  return std::make_shared<CallRates>(
      std::move(rates), [meter](const meta::KernelCall& call) { return meter->measure(call); });
}

int explain(const ExplainOptions& options, const config::TrainConfig& config, CallMeter* meter) {
  const int64_t vocabulary = vocabulary_of(config);
  const models::ModelConfig model_shape = model_config(config, vocabulary);
  const SessionOptions session = session_options(config, model_shape, options.world, {});
  const comm::GroupSizes groups = comm::group_sizes(session.fsdp, options.world);
  const auto rates = call_rates(options, meter);
  const auto run =
      predicted_run(config, session, data_of(config, options.world), options.world, 0, rates);
  const comm::FullySharded& sharded = run->session().sharded();
  const std::vector<UnitRow> units = unit_rows(sharded);
  std::printf("%s%s\n%s\n%s\n", describe(session, groups, options.world).c_str(),
              trained_line(run->session().parameters()).c_str(),
              format_units(units, sharded.options(), groups).c_str(),
              format_predicted_memory(*run).c_str());
  const config::StepShape shape = config::step_shape(config, options.world);
  std::printf("%s\n\n", shape.text().c_str());
  if (shape.batch < options.world) {
    std::printf(
        "note: train.batch: %lld sequences are too few for %d ranks, and train refuses "
        "them; what is shown is for one sequence a rank\n",
        static_cast<long long>(shape.batch), options.world);
  }
  for (const std::string& remark : remarks(config, model_shape, options.world)) {
    std::printf("note: %s\n", remark.c_str());
  }
  if (!options.layout.empty()) {
    const auto layout = options.layout == "fsdp1" ? PyTorchLayout::kFsdp1 : PyTorchLayout::kFsdp2;
    std::printf("%s\n",
                format_layout(units, layout, groups.shards, session.fsdp.param_dtype).c_str());
  }
  print_steps(units, *run, *rates);
  if (!options.save_rates.empty()) write_rates(options.save_rates, rates->rates());
  return 0;
}

int explain(const ExplainOptions& options) {
  check_one_process("explain");
  const std::string& file = options.config.config;
  config::TrainConfig config = config::read_config(file, overrides_of(options.config));
  resolve_paths(config, file);
  if (const std::string note = preset_note(config.model.preset); !note.empty()) {
    print_note(note);
  }
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

void add_explain_command(const Command& app, ChosenCommand& chosen) {
  const auto options = std::make_shared<ExplainOptions>();
  const Command command =
      app.add_command("explain", "prints the units, bytes and schedule of a configuration");
  add_config_options(command, {FlagOf::kConfigured}, options->config);
  command.add_option("--world", options->world, "number of ranks to explain it for [8]")
      .from_to(1, 1 << 20);
  command
      .add_option("--layout", options->layout, "also print PyTorch's number of elements per rank")
      .one_of({"fsdp1", "fsdp2"});
  command
      .add_option("--rates", options->rates,
                  "file with what calls take and how fast links are, for the predicted times "
                  "[an A100 80 GB, eight in a machine]")
      .check(not_empty);
  command.add_flag("--measure", options->measure,
                   "measure on this machine what the calls take that have no row in the file of "
                   "--rates, for half a minute at most; without a file also the machine itself");
  command
      .add_option("--save-rates", options->save_rates,
                  "write the rates there, with what was measured")
      .check(not_empty);
  command.when_chosen([&chosen, options] { chosen = [options] { return explain(*options); }; });
}

}  // namespace fsdp::tools
