// fsdp adopt: another program's configuration as ours.
// Read next: tools/guides/adopt/programs.h.
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "core/io/json.h"
#include "core/text/shell_word.h"
#include "tools/commands/commands.h"
#include "tools/config/config.h"
#include "tools/guides/adopt/programs.h"
#include "tools/launch/launch.h"
#include "tools/launch/openmp_variables.h"
#include "tools/train/model_shape.h"

namespace fsdp::tools {
namespace {

struct AdoptCommandOptions {
  std::vector<std::string> files;
  std::vector<std::string> data, validation;
  std::string model;
  adopt::AdoptOptions how;
};

// What another program's file mostly does not say.
void add_own_options(const Command& command, AdoptCommandOptions& options) {
  command.add_option("--data", options.data, "a text to train on, for data.train")
      .repeatable()
      .one_value_each()  // the "--" of a command would be taken for the end of a list
      .path();
  command.add_option("--validation", options.validation, "a text, or a share, for data.validation")
      .repeatable()
      .one_value_each()
      .path();
  command
      .add_option("--model", options.model, "a folder or a preset, for model.path or model.preset")
      .path()
      .check(not_empty);
  command.add_option("--ranks", options.how.ranks, "how many will run").from_to(1, 1 << 20);
}

adopt::AdoptOptions with_typed(const AdoptCommandOptions& options) {
  adopt::AdoptOptions how = options.how;
  const auto add_files = [&](const std::string& name, const std::string& key,
                             const std::vector<std::string>& files) {
    if (files.empty()) return;
    how.typed.push_back(
        {key, Json(files).dump(), fmt::format("--{} {}", name, fmt::join(files, " "))});
  };
  add_files("data", "data.train", options.data);
  add_files("validation", "data.validation", options.validation);
  if (options.model.empty()) return how;
  const std::string model = model_override(options.model, HubNames::kRefused);
  const size_t equals = model.find('=');
  how.typed.push_back(
      {model.substr(0, equals), model.substr(equals + 1), "--model " + options.model});
  return how;
}

// A file may be elsewhere; a typing error looks the same.
void warn_of_missing(const std::string& name, const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    const bool meant = file.ends_with('%') || file.find_first_of("*?[") != std::string::npos ||
                       std::filesystem::exists(file);
    if (!meant) fmt::print(stderr, "fsdp: warning: --{} {}: there is no such file\n", name, file);
  }
}

void add_literal(const Command& command, AdoptCommandOptions& options, const std::string& names) {
  command.add_flag(names, options.how.literal,
                   "what ran there, also where the file means something else by mistake");
}

void add_ranks_per_node(const Command& command, AdoptCommandOptions& options) {
  command
      .add_option("--ranks-per-node", options.how.ranks_per_node,
                  "for hybrid_shard, which shards inside a node")
      .from_to(1, 1 << 20);
}

using Adopt =
    std::function<std::string(const std::vector<std::string>& files, const adopt::AdoptOptions&)>;

// The command prints what `adopt` makes of the options.
void print_when_chosen(const Command& command, ChosenCommand& chosen,
                       const std::shared_ptr<AdoptCommandOptions>& options, const Adopt& adopt) {
  add_own_options(command, *options);
  command.when_chosen([=, &chosen] {
    chosen = [=] {
      check_one_process("adopt");
      const std::string yaml = adopt(options->files, with_typed(*options));
      warn_of_missing("data", options->data);
      warn_of_missing("validation", options->validation);
      for (const std::string& each : adopt::warnings_of(yaml)) {
        fmt::print(stderr, "fsdp: warning: {}\n", each);
      }
      const std::string absent = note_on_absent_model(config::parse_config(yaml, "", {}));
      if (!absent.empty()) fmt::print(stderr, "fsdp: warning: {}\n", absent);
      std::fputs(yaml.c_str(), stdout);
      return 0;
    };
  });
}

// Of a program whose configuration is one file.
void add_file_command(const Command& group, ChosenCommand& chosen, const std::string& name,
                      const std::string& help,
                      std::string (*adopt)(const std::filesystem::path&,
                                           const adopt::AdoptOptions&)) {
  const auto options = std::make_shared<AdoptCommandOptions>();
  const Command command = group.add_command(name, help);
  command.add_option("file", options->files, "the file").required().readable().expected(1);
  add_literal(command, *options, name == "hf" ? "--literal,--hf-compat" : "--literal");
  if (name != "deepspeed") add_ranks_per_node(command, *options);
  print_when_chosen(command, chosen, options, [adopt](const auto& files, const auto& how) {
    return adopt(files.at(0), how);
  });
}

// Of a program whose configuration is its command line.
void add_line_command(const Command& group, ChosenCommand& chosen, const std::string& name,
                      const std::string& help, const std::string& example,
                      std::string (*adopt)(const std::vector<std::string>&,
                                           const adopt::AdoptOptions&)) {
  const auto options = std::make_shared<AdoptCommandOptions>();
  const Command command = group.add_command(name, help);
  add_literal(command, *options, "--literal");
  command.add_option("words", options->files, "the words of the command, behind --");
  command.footer("For example: fsdp adopt " + name + " -- " + example + "\n");
  print_when_chosen(command, chosen, options, adopt);
}

adopt::Variables environment() {
  adopt::Variables out;
  for (char** each = ::environ; *each; ++each) {
    const std::string text = *each;
    const size_t equals = text.find('=');
    if (equals == std::string::npos) continue;
    out[name_before_hiding(text.substr(0, equals))] = text.substr(equals + 1);
  }
  return out;
}

void add_environment_command(const Command& group, ChosenCommand& chosen) {
  const auto options = std::make_shared<AdoptCommandOptions>();
  const Command command = group.add_command(
      "env", "the environment, as a guide's env_vars.sh sets it: set -a; . env_vars.sh; set +a");
  add_literal(command, *options, "--literal");
  command.add_option("file", options->files, "none: a shell evaluates it before")
      .check([](const std::string& file) {
        return fmt::format("a shell evaluates such a file: (set -a; . {}; set +a; fsdp adopt env)",
                           shell_word(file));
      });
  print_when_chosen(command, chosen, options, [](const auto&, const auto& how) {
    return adopt::adopt_environment(environment(), how);
  });
}

}  // namespace

void add_adopt_command(const Command& app, ChosenCommand& chosen) {
  const Command group =
      app.add_command("adopt", "prints another program's configuration as one for train");
  group.require_command();
  add_file_command(group, chosen, "accelerate", "the file of accelerate config",
                   adopt::adopt_accelerate);
  add_file_command(group, chosen, "hf",
                   "transformers' TrainingArguments or TRL's SFTConfig, as JSON or YAML",
                   adopt::adopt_hugging_face);
  add_file_command(group, chosen, "deepspeed", "DeepSpeed's JSON", adopt::adopt_deepspeed);
  add_file_command(group, chosen, "axolotl", "axolotl's YAML", adopt::adopt_axolotl);
  add_file_command(group, chosen, "llamafactory", "LLaMA-Factory's YAML",
                   adopt::adopt_llama_factory);
  add_line_command(group, chosen, "fairseq", "a command line of fairseq-train",
                   "fairseq-train data-bin --lr 0.0001", adopt::adopt_fairseq);
  add_line_command(group, chosen, "chess", "the flags of the chess guide's script",
                   "--batch_size_per_device 4", adopt::adopt_chess);
  add_environment_command(group, chosen);
}

}  // namespace fsdp::tools
