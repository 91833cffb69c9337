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
    if (!meant)
      fmt::print(stderr, "fsdp: warning: --{} {}: this file does not exist\n", name, file);
  }
}

using Adopt =
    std::function<std::string(const std::vector<std::string>& files, const adopt::AdoptOptions&)>;

// The command prints what `adopt` makes of the options.
void add_program(const Command& command, const Adopt& adopt,
                 const std::shared_ptr<AdoptCommandOptions>& options) {
  // Another program's file mostly lacks these.
  command.add("@adopt", {{"--data", &options->data},
                         {"--validation", &options->validation},
                         {"--model", &options->model},
                         {"--ranks", &options->how.ranks}});
  command.when_chosen([=] {
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
  });
}

// The program's configuration is one file.
void add_file_program(const Command& group, const char* name,
                      std::string (*adopt)(const std::filesystem::path&,
                                           const adopt::AdoptOptions&)) {
  const auto options = std::make_shared<AdoptCommandOptions>();
  const Command command = group.add_command(name);
  const bool hugging_face = std::string_view(name) == "hf";
  command.add("@adopt",
              {{"file", &options->files},
               {hugging_face ? "--literal,--hf-compat" : "--literal", &options->how.literal}});
  if (std::string_view(name) != "deepspeed") {
    command.add("@adopt", {{"--ranks-per-node", &options->how.ranks_per_node}});
  }
  add_program(
      command, [adopt](const auto& files, const auto& how) { return adopt(files.at(0), how); },
      options);
}

// The program's configuration is its command line.
void add_line_program(const Command& group, const char* name,
                      std::string (*adopt)(const std::vector<std::string>&,
                                           const adopt::AdoptOptions&)) {
  const auto options = std::make_shared<AdoptCommandOptions>();
  const Command command = group.add_command(name);
  command.add("@adopt", {{"--literal", &options->how.literal}, {"words", &options->files}});
  add_program(command, adopt, options);
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

std::string refused_file(const std::string& file) {
  return fmt::format("a shell evaluates such a file: (set -a; . {}; set +a; fsdp adopt env)",
                     shell_word(file));
}

}  // namespace

void add_adopt_command(const Command& app) {
  const Command group = app.add_command("adopt");
  group.require_command();
  add_file_program(group, "accelerate", adopt::adopt_accelerate);
  add_file_program(group, "hf", adopt::adopt_hugging_face);
  add_file_program(group, "deepspeed", adopt::adopt_deepspeed);
  add_file_program(group, "axolotl", adopt::adopt_axolotl);
  add_file_program(group, "llamafactory", adopt::adopt_llama_factory);
  add_line_program(group, "fairseq", adopt::adopt_fairseq);
  add_line_program(group, "chess", adopt::adopt_chess);
  const auto options = std::make_shared<AdoptCommandOptions>();
  const Command command = group.add_command("env");
  command.add("@adopt", {{"--literal", &options->how.literal}});
  command.add({{"file", &options->files, refused_file}});
  add_program(
      command,
      [](const auto&, const auto& how) { return adopt::adopt_environment(environment(), how); },
      options);
}

}  // namespace fsdp::tools
