// fsdp inspect: what a model folder, a config.json or a preset is. Status 1 when the weights or the
// tokenizer of a folder cannot be used. Read next: tools/inspect/inspection.h.
#include <cstdio>

#include "tools/commands/commands.h"
#include "tools/inspect/inspection.h"
#include "tools/launch/launch.h"
#include "tools/model_folders/checkpoint_model.h"

namespace fsdp::tools {

void add_inspect_command(const Command& app, ChosenCommand& chosen) {
  struct Options {
    InspectionOptions inspection;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  const Command command = app.add_command(
      "inspect", "prints what a model is: parameters, tensors, units, files, tokenizer");
  command
      .add_option(
          "model", options->inspection.source,
          "a folder, also of a LoRA adapter, a run or a checkpoint, a config.json, or a preset "
          "such as pythia-1b")
      .required()
      .path();
  command
      .add_option(
          "--base", options->inspection.base,
          "for an adapter: the folder of its base model (default: the one the adapter names)")
      .path();
  command.add_option("--world", options->inspection.world, "ranks of the unit plan (default: 8)")
      .from_to(1, 1 << 20);
  command
      .add_option("--freeze", options->inspection.frozen,
                  "parameters to count as frozen: names, * for any characters")
      .one_value_each();
  command.add_flag("--json", options->json, "as JSON");
  command.footer(fmt::format("Presets: {}", fmt::join(models::preset_names(), ", ")));
  command.when_chosen([&chosen, options] {
    chosen = [options] {
      check_one_process("inspect");
      if (is_checkpoint(options->inspection.source)) {
        const CheckpointInspection found = inspect_checkpoint(options->inspection.source);
        std::fputs((options->json ? checkpoint_json(found) : format_checkpoint(found)).c_str(),
                   stdout);
        return found.problems.empty() ? 0 : 1;
      }
      const Inspection found = inspect(options->inspection);
      std::fputs((options->json ? inspection_json(found) : format_inspection(found)).c_str(),
                 stdout);
      return found.sound() ? 0 : 1;
    };
  });
}

}  // namespace fsdp::tools
