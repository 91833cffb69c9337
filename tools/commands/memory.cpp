// fsdp memory: what a configuration takes, what it would take if something were changed, and what
// others' formulas say. Read next: tools/predict/memory_view.h, tools/predict/formulas/formula.h.
#include <cctype>
#include <cstdio>

#include "core/text/byte_size.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_options.h"
#include "tools/launch/launch.h"
#include "tools/launch/thread_choice.h"
#include "tools/predict/formulas/formula.h"
#include "tools/predict/machines.h"
#include "tools/predict/memory_view.h"

namespace fsdp::tools {
namespace {

struct MemoryOptions {
  std::string formula;
  std::vector<std::string> numbers;
  ConfigOptions config;
  int world = 8;
  double device_gib = 0;
  std::string gpu;
  std::string fit;
  std::string rates;
  bool json = false;
};

std::string help_of_formulas() {
  std::string out = "Formulas:\n";
  for (const Formula& formula : formulas()) {
    out += "  " + formula.name + ": " + formula.about + "\n";
  }
  return out;
}

int print_formula(const MemoryOptions& options) {
  FSDP_CHECK(options.config.config.empty() && overrides_of(options.config).empty(),
             "--formula: a formula takes numbers (--number), not a configuration");
  const FormulaResult result = evaluate_formula(options.formula, options.numbers);
  std::printf("%s\n", options.json ? formula_json(result).c_str() : format_formula(result).c_str());
  return 0;
}

constexpr const char* kCpu = "cpu";  // a machine whose memory nobody knows

std::string rates_of(const MemoryOptions& options) {
  return options.rates.empty() && options.gpu == kCpu ? kCpu : options.rates;
}

// The memory that a rank may take: the command line says it, else the configuration.
std::optional<DeviceMemory> device_of(const MemoryOptions& options,
                                      const config::TrainConfig& config) {
  const std::string& limit = config.runtime.memory_limit;
  const size_t fit =
      options.fit.empty() ? 0 : static_cast<size_t>(parse_byte_size(options.fit, "--fit"));
  std::optional<DeviceMemory> out;
  if (!options.gpu.empty() && options.gpu != kCpu) {
    out = gpu_memory(options.gpu, options.world);
  } else if (options.device_gib > 0) {
    constexpr double kGiB = size_t{1} << 30;
    out = gpu_of_size(static_cast<size_t>(options.device_gib * kGiB), options.world);
  } else if (fit > 0) {
    out = DeviceMemory{.name = "the machine for a rank", .bytes = fit};
  } else if (limit != "auto") {
    out = DeviceMemory{.name = "runtime.memory_limit",
                       .bytes = static_cast<size_t>(*read_byte_size(limit))};
  }
  if (fit > 0) out->bytes = std::min(out->bytes, fit);
  return out;
}

int print_view(const MemoryOptions& options) {
  check_one_process("memory");
  const config::TrainConfig config = read_for_prediction(options.config);
  const MemoryView view = view_memory(
      config,
      {.ranks = options.world,
       .threads = threads_here(static_cast<int>(config.runtime.launch.threads), options.world),
       .device = device_of(options, config),
       .rates = rates_of(options)});
  std::printf("%s%s",
              options.json ? memory_json(view).dump().c_str() : format_memory_view(view).c_str(),
              options.json ? "\n" : "");
  return 0;
}

// A number alone would be bytes: who writes 80 means something else.
std::string wrong_size(const std::string& text) {
  const bool has_unit = !text.empty() && std::isalpha(static_cast<unsigned char>(text.back()));
  return has_unit && read_byte_size(text) ? "" : "expected a size like 80GiB or 1.5GB, got " + text;
}

}  // namespace

void add_memory_command(const Command& app) {
  const auto options = std::make_shared<MemoryOptions>();
  const Command command = app.add_command("memory");
  add_config_options(command, {FlagOf::kConfigured}, options->config);
  command.add({{"--world", &options->world},
               {"--device-gib", &options->device_gib},
               {"--gpu", &options->gpu, wrong_machine},
               {"--fit", &options->fit, wrong_size},
               {"--rates", &options->rates},
               {"--formula", &options->formula},
               {"--number", &options->numbers},
               {"--json", &options->json}});
  command.footer(help_of_formulas());
  command.when_chosen([options] {
    return options->formula.empty() ? print_view(*options) : print_formula(*options);
  });
}

}  // namespace fsdp::tools
