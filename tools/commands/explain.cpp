// fsdp explain: what sharding would do with a configuration, for any number of ranks, without ranks
// and without the model's memory. Read next: tools/predict/unit_table.h.
#include <cstdio>

#include "comm/fsdp/options.h"
#include "kernels/cpu/cpu_backend.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_options.h"
#include "tools/config/config.h"
#include "tools/data/tokenizer/tokenizer.h"
#include "tools/launch/launch.h"
#include "tools/predict/unit_timeline.h"
#include "tools/train/config_to_session.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

struct ExplainOptions {
  ConfigOptions config;
  int world = 8;
  std::string layout;
};

std::string format_memory(const MemoryPlan& plan) {
  const auto predicted = predicted_memory(plan);
  std::string out = "memory per rank (MiB), by formula; activations come on top\n";
  for (size_t i = 0; i < kMemoryCategories; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    if (!has_formula(category)) continue;
    out += fmt::format("  {:<24}{:>12.2f}{}\n", fsdp::name_of(category),
                       static_cast<double>(predicted[i]) / (1 << 20),
                       upper_bounds(plan)[i] ? "  at most" : "");
  }
  return out;
}

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

void print_steps(const std::vector<UnitRow>& units, const comm::FsdpOptions& fsdp,
                 comm::GroupSizes groups) {
  if (!has_timeline(units)) {
    std::printf(
        "no timeline: it is not drawn for token and position table as units of their own\n");
    return;
  }
  const auto steps = step_timeline(units, fsdp, groups);
  std::printf(
      "%s\n%s: from top to bottom as the host issues it; what stands in one line overlaps\n%s",
      format_traffic(steps).c_str(),
      steps.size() == 1 ? "one step" : "the last micro-step of a step",
      format_timeline(units, steps.back()).c_str());
}

// Without a text to train on, a preset is explained as it was published.
int64_t vocabulary_of(const config::TrainConfig& config) {
  const bool published =
      !config.model.preset.empty() && config.data.train.empty() && config.data.tokenizer.empty();
  return published ? models::preset(config.model.preset).vocabulary
                   : data::make_tokenizer(tokenizer_name(config))->vocab_size();
}

int explain(const ExplainOptions& options) {
  check_one_process("explain");
  const std::string& file = options.config.config;
  config::TrainConfig config = config::read_config(file, overrides_of(options.config));
  resolve_paths(config, file);
  if (const std::string note = preset_note(config.model.preset); !note.empty()) {
    std::fprintf(stderr, "fsdp: note: %s\n", note.c_str());
  }
  const int64_t vocabulary = vocabulary_of(config);
  const models::ModelConfig model_shape = model_config(config, vocabulary);
  SessionOptions session = session_options(config, model_shape, options.world, {});
  session.fsdp.detect_overflow = session.loss_scale.initial > 0;
  const comm::GroupSizes groups = comm::group_sizes(session.fsdp, options.world);

  cpu::CpuBackend backend;  // of the rotary tables, for one position; parameters are shapes only
  models::CausalLM model(model_shape, backend, session.fsdp.param_dtype, 1);
  if (session.lora) models::add_lora(model, *session.lora);
  freeze_parameters(model_shape, session.frozen, model.parameters());
  model.set_recompute(session.recompute, session.recompute_every);
  const comm::WrapPolicy wrap = wrap_of(session);
  check_buffers(model, wrap, session.fsdp, groups.shards);
  const std::vector<UnitRow> units = unit_rows(model, wrap, session.fsdp, groups);
  const MemoryPlan memory =
      memory_plan(units, session.fsdp, groups.shards, model_shape, session.optimizer,
                  positions_of_pass(config, options.world));
  std::printf("%s%s\n%s\n%s\n", describe(session, groups, options.world).c_str(),
              trained_line(model.parameters()).c_str(),
              format_units(units, session.fsdp, groups).c_str(), format_memory(memory).c_str());
  for (const std::string& remark : remarks(config, model_shape, options.world)) {
    std::printf("note: %s\n", remark.c_str());
  }
  if (!options.layout.empty()) {
    const auto layout = options.layout == "fsdp1" ? PyTorchLayout::kFsdp1 : PyTorchLayout::kFsdp2;
    std::printf("%s\n",
                format_layout(units, layout, groups.shards, session.fsdp.param_dtype).c_str());
  }
  print_steps(units, session.fsdp, groups);
  return 0;
}

}  // namespace

void add_explain_command(const Command& app, ChosenCommand& chosen) {
  const auto options = std::make_shared<ExplainOptions>();
  const Command command =
      app.add_command("explain", "prints the units, bytes and schedule of a configuration");
  add_config_options(command, {FlagOf::kConfigured}, options->config);
  command.add_option("--world", options->world, "number of ranks to explain it for [8]")
      .from_to(1, 1 << 20);
  command.add_option("--layout", options->layout, "also elements per rank as in PyTorch")
      .one_of({"fsdp1", "fsdp2"});
  command.when_chosen([&chosen, options] { chosen = [options] { return explain(*options); }; });
}

}  // namespace fsdp::tools
