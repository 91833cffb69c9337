// Contract: tools/guides/adopt/whose_file.h.
#include "tools/guides/adopt/whose_file.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "core/error.h"
#include "core/text/shell_word.h"
#include "tools/config/config.h"
#include "tools/config/key_values.h"
#include "tools/guides/adopt/programs.h"
#include "tools/guides/adopt/read_tree.h"

namespace fsdp::adopt {
namespace {

size_t known_to(const Program& program, const std::vector<Given>& given) {
  return static_cast<size_t>(std::count_if(given.begin(), given.end(), [&](const Given& each) {
    const std::string key = each.plain_key();
    return rule_of(program, key) || (program.name_of && rule_of(program, program.name_of(key)));
  }));
}

size_t known_to_us(const std::vector<Given>& given) {
  const auto ours = config::key_values({});
  return static_cast<size_t>(std::count_if(given.begin(), given.end(), [&](const Given& each) {
    return std::any_of(ours.begin(), ours.end(),
                       [&](const auto& key) { return key.first == each.key; });
  }));
}

// The program that knows most of the keys, and more than `most`; null: none does.
const Program* owner(const std::vector<Given>& given, size_t most) {
  const Program* found = nullptr;
  for (const Program* program : tree_programs()) {
    const size_t known = known_to(*program, given);
    if (known <= most) continue;
    most = known;
    found = program;
  }
  return found;
}

// A script is evaluated by a shell, whose function or variables reach fsdp adopt.
std::string way_over_script(const std::string& file, const std::string& text) {
  for (const char* ending : {".yaml", ".yml", ".json"}) {  // the comments of one may name a program
    if (file.ends_with(ending)) return "";
  }
  const std::string word = shell_word(file);
  for (const auto& [called, program] : {std::pair{"fairseq-train", "fairseq"},
                                        {"chess_finetune.py", "chess"},
                                        {"chess.py", "chess"}}) {
    if (text.find(called) == std::string::npos) continue;
    const char* const command = program == std::string("chess") ? "torchrun" : called;
    return fmt::format("this script calls {}: {}() {{ fsdp adopt {} -- \"$@\" > my.yaml; }}; . {}",
                       called, command, program, word);
  }
  if (text.find("export ") == std::string::npos) return "";
  return fmt::format(
      "this is a script of a shell: (set -a; . {}; set +a; fsdp adopt env > my.yaml)", word);
}

}  // namespace

std::string whose_file(const Program& program, const std::vector<Given>& given) {
  const size_t known = known_to(program, given);
  const Program* const other = owner(given, known);
  if (known_to_us(given) > std::max(known, other ? known_to(*other, given) : 0)) {
    return "this is a configuration of fsdp train itself";
  }
  if (!other) return "";
  return fmt::format("this is a file of {}: fsdp adopt {} reads it", other->title, other->name);
}

std::string way_over(const std::string& file, const std::string& text) {
  if (file.ends_with(".py")) {
    return "this is a Python program: fsdp adopt hf says which line of it makes a file to take "
           "over";
  }
  std::vector<Given> given;
  try {
    given = parse_tree(text, file);
  } catch (const Error&) {  // no keys and values
    return way_over_script(file, text);
  }
  constexpr size_t kChance = 1;  // a key of ours with a typing error
  const Program* const program = owner(given, std::max(known_to_us(given), kChance));
  if (!program) return "";
  return fmt::format("this is a file of {}: fsdp adopt {} {} > my.yaml", program->title,
                     program->name, shell_word(file));
}

}  // namespace fsdp::adopt
