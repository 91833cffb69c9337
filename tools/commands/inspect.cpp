// fsdp inspect: what a model folder, a config.json or a preset is. Status 1 when the weights or the
// tokenizer of a folder cannot be used. Read next: tools/inspect/inspection.h.
#include <cstdio>

#include "tools/commands/commands.h"
#include "tools/inspect/inspection.h"
#include "tools/launch/launch.h"
#include "tools/model_folders/checkpoint_model.h"

namespace fsdp::tools {
namespace {

struct InspectOptions {
  InspectionOptions inspection;
  bool json = false;
};

int print_inspection(const InspectOptions& options) {
  check_one_process("inspect");
  if (is_checkpoint(options.inspection.source)) {
    const CheckpointInspection found = inspect_checkpoint(options.inspection.source);
    std::fputs((options.json ? checkpoint_json(found) : format_checkpoint(found)).c_str(), stdout);
    return found.problems.empty() ? 0 : 1;
  }
  const Inspection found = inspect(options.inspection);
  std::fputs((options.json ? inspection_json(found) : format_inspection(found)).c_str(), stdout);
  return found.sound() ? 0 : 1;
}

}  // namespace

void add_inspect_command(const Command& app) {
  const auto options = std::make_shared<InspectOptions>();
  const Command command = app.add_command("inspect");
  command.add({{"model", &options->inspection.source},
               {"--base", &options->inspection.base},
               {"--world", &options->inspection.world},
               {"--freeze", &options->inspection.frozen},
               {"--json", &options->json}});
  command.footer(fmt::format("Presets: {}", fmt::join(models::preset_names(), ", ")));
  command.runs(options, print_inspection);
}

}  // namespace fsdp::tools
