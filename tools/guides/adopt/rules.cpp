// Contract: tools/guides/adopt/rules.h.
#include "tools/guides/adopt/rules.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "core/text/similar_names.h"
#include "tools/guides/adopt/whose_file.h"

namespace fsdp::adopt {
namespace {

bool has_section(const Program& program, const std::string& name) {
  return std::any_of(program.rules.begin(), program.rules.end(),
                     [&](const Rule& rule) { return rule.name.starts_with(name + "."); });
}

// {} or [] where the program has a section of this name.
bool is_empty_section(const Program& program, const Given& given) {
  return given.is_list && given.values.empty() && has_section(program, given.name);
}

// A key at the top, or all of a section, which the program does not read and which is none of its
// own with a typing error. An underscore is how people write a comment in JSON.
bool is_ignored(const Program& program, const Given& given) {
  if (!program.ignores_unknown) return false;
  const auto top_of = [](const std::string& name) { return name.substr(0, name.find('.')); };
  const std::string top = top_of(given.name);
  return top.starts_with('_') ||
         std::none_of(program.rules.begin(), program.rules.end(),
                      [&](const Rule& rule) { return resembles(lower(top), top_of(rule.name)); });
}

bool is_whole_file(const Program& program, const Adoption& adoption) {
  const auto known =
      std::count_if(adoption.given().begin(), adoption.given().end(),
                    [&](const Given& each) { return rule_of(program, each.name) != nullptr; });
  return program.keys_of_whole_file > 0 && static_cast<size_t>(known) >= program.keys_of_whole_file;
}

void take_one(const Program& program, const Given& given, Adoption& adoption,
              const std::vector<Ignored>& ignored) {
  const Rule* rule = rule_of(program, given.name);
  if (!rule && is_off(given) && !is_empty_section(program, given) &&
      is_whole_file(program, adoption)) {
    adoption.off(given);
    return adoption.warn(given.origin() + " is a key of a newer version: not taken over");
  }
  check_known(program, given, adoption);
  const auto without = std::find_if(ignored.begin(), ignored.end(), [&](const Ignored& each) {
    return given.name.starts_with(each.beginning);
  });
  if (!rule && is_ignored(program, given))
    adoption.leave(given, program.title + " does not read it");
  else if (!rule)
    adoption.off(given);  // an empty section
  else if (without != ignored.end())
    leave(without->reason)(given, adoption);
  else
    rule->take(given, adoption);
}

}  // namespace

void check_known(const Program& program, const Given& given, const Adoption& adoption) {
  if (rule_of(program, given.name) || is_empty_section(program, given)) return;
  const std::string whose = whose_file(program, adoption.given());
  FSDP_CHECK(whose.empty(), "{}: unknown key \"{}\" of {}; {}", given.place, given.key,
             program.title, whose);
  if (is_ignored(program, given)) return;
  std::vector<std::string> known;
  for (const Rule& rule : program.rules) known.push_back(rule.name);
  const std::string nearest = nearest_key(given.name, known);
  fail("{}: unknown key \"{}\" of {}{}{}", given.place, given.key, program.title,
       resembles(given.name, nearest) ? "; the nearest is \"" + nearest + "\"" : "",
       is_whole_file(program, adoption)
           ? "; a key of a newer version: without this line the file is taken over, and the key is "
             "not"
           : "");
}

bool knows_key(const Program& program, const std::string& key) {
  const std::string name = program.name_of ? program.name_of(key) : key;
  return rule_of(program, name) || has_section(program, name);
}

const Rule* rule_of(const Program& program, const std::string& name) {
  const Rule* below = nullptr;
  for (const Rule& rule : program.rules) {
    if (rule.name == name) return &rule;
    if (!rule.name.ends_with('*')) continue;
    const std::string_view beginning(rule.name.data(), rule.name.size() - 1);
    const bool section = beginning.size() == name.size() + 1 && beginning.ends_with('.');
    if (section && beginning.starts_with(name)) return &rule;
    if (name.starts_with(beginning)) below = &rule;
  }
  return below;
}

namespace {

void together(const Given&, Adoption&) {}

void take_ranks(const Given& given, Adoption& adoption) {
  adoption.set_ranks(given.whole(), given);
}

Take take_of(const std::string& name, const Json& what, const Takes& own) {
  static const std::map<std::string, Take (*)(const std::string&)> kWithOne = {
      {"to", to},
      {"whole_to", whole_to},
      {"count_to", count_to},
      {"truth_to", truth_to},
      {"leave", leave},
      {"leave_out", leave_out},
      {"same", same},
      {"refuse", refuse},
      {"share_to", share_to},
      {"one_rank", one_rank}};
  static const Takes kCommon = {
      {"together", together}, {"ranks", take_ranks}, {"model_folder", model_folder}};
  if (const auto with_one = kWithOne.find(name); with_one != kWithOne.end()) {
    return with_one->second(what.text());
  }
  if (name == "on_to") return on_to(what[0].text(), what[1].text());
  if (name == "expect") return expect(what[0].text(), what[1].text());
  if (name == "usual") return usual(what[0].text(), what[1].text());
  FSDP_CHECK(name == "take", "[adopt] unknown action of a table: {}", name);
  const auto common = kCommon.find(what.text());
  return common == kCommon.end() ? own.at(what.text()) : common->second;
}

}  // namespace

std::vector<Rule> rules_of(const Json& table, const Takes& own) {
  std::vector<Rule> rules;
  for (const Json& group : table) {
    const bool flags = group.contains("flags");
    for (const auto& [name, what] : group.items()) {
      if (name == "keys" || name == "flags") continue;
      const Take take = take_of(name, what, own);
      for (const Json& key : group[flags ? "flags" : "keys"]) {
        rules.push_back({key.text(), take, flags});
      }
    }
  }
  return rules;
}

Program program_of(std::string name, std::string title,
                   const std::vector<std::vector<Rule>>& tables) {
  Program program = {.name = std::move(name), .title = std::move(title)};
  for (const std::vector<Rule>& table : tables) {
    program.rules.insert(program.rules.end(), table.begin(), table.end());
  }
  return program;
}

void take_all(const Program& program, Adoption& adoption, const std::vector<Ignored>& ignored) {
  std::vector<std::string> refused;
  std::set<const Rule*> sections;  // of which one key is enough
  const bool all_known = std::ranges::all_of(adoption.given(), [&](const Given& given) {
    return rule_of(program, given.name) || is_empty_section(program, given);
  });
  const bool other_file = !all_known && !whose_file(program, adoption.given()).empty();
  for (const Given& given : adoption.given()) {
    const Rule* const rule = rule_of(program, given.name);
    if (sections.contains(rule)) continue;
    if (other_file) check_known(program, given, adoption);
    try {
      take_one(program, given, adoption, ignored);
    } catch (const Error& error) {
      refused.emplace_back(error.what());
      if (rule && rule->name.ends_with("*")) sections.insert(rule);
    }
  }
  FSDP_CHECK(refused.empty(), "{}", fmt::join(refused, "\n"));
}

Take to(const std::string& our_key) {
  return [our_key](const Given& given, Adoption& adoption) {
    if (given.is_list)
      adoption.set_list(our_key, given.values, given);
    else
      adoption.set(our_key, given.one(), given);
  };
}

Take whole_to(const std::string& our_key) {
  return [our_key](const Given& given, Adoption& adoption) {
    adoption.set(our_key, std::to_string(given.whole()), given);
  };
}

Take count_to(const std::string& our_key) {
  return [take = whole_to(our_key)](const Given& given, Adoption& adoption) {
    if (given.whole() < 1) given.fail("an integer from 1");
    take(given, adoption);
  };
}

Take truth_to(const std::string& our_key) {
  return [our_key](const Given& given, Adoption& adoption) {
    adoption.set(our_key, given.truth() ? "true" : "false", given);
  };
}

Take on_to(const std::string& our_key, const std::string& value) {
  return [our_key, value](const Given& given, Adoption& adoption) {
    if (given.truth())
      adoption.set(our_key, value, given);
    else
      adoption.off(given);
  };
}

Take leave(const std::string& reason) {
  return [reason](const Given& given, Adoption& adoption) {
    if (is_off(given))
      adoption.off(given);
    else
      adoption.leave(given, reason);
  };
}

Take leave_out(const std::string& reason) { return usual("", reason); }

Take same(const std::string& how) {
  return [how](const Given& given, Adoption& adoption) { adoption.leave(given, how); };
}

Take refuse(const std::string& reason) {
  return [reason](const Given& given, Adoption& adoption) {
    if (!is_off(given)) given.refuse(reason);
    adoption.off(given);
  };
}

Take share_to(const std::string& our_key) {
  return [our_key](const Given& given, Adoption& adoption) {
    if (given.number() == 0) return adoption.off(given);
    if (given.number() < 0 || given.number() >= 1) given.fail("a share of the rows, below 1");
    adoption.set(our_key, fmt::format("{:.12g}%", given.number() * 100), given);
  };
}

Take one_rank(const std::string& reason) {
  return [reason](const Given& given, Adoption& adoption) {
    if (given.whole() > 1) given.refuse(reason);
    adoption.off(given);
  };
}

Take expect(const std::string& value, const std::string& remark) {
  return [value, remark](const Given& given, Adoption& adoption) {
    if (given.one() != value) given.fail(value);
    adoption.leave(given, remark);
  };
}

Take usual(const std::string& value, const std::string& reason) {
  return [value, reason](const Given& given, Adoption& adoption) {
    if (is_off(given) || given.text() == value)
      leave(reason)(given, adoption);
    else
      adoption.leave_out(given, reason);
  };
}

void model_folder(const Given& given, Adoption& adoption) {
  const bool there = std::filesystem::is_directory(given.one());
  adoption.set("model.path", given.one(), given,
               there ? "" : "a folder that must be there: nothing is downloaded");
}

}  // namespace fsdp::adopt
