// What a program's keys mean here: a table of its keys with what each does, and the walk over it.
// The tables are tables/<program>.json. A key that our configuration does not have is in a group
// with "leave"; once there is one, it gets a group with "to".
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "tools/guides/adopt/adoption.h"

namespace fsdp::adopt {

using Take = std::function<void(const Given&, Adoption&)>;

struct Rule {
  std::string name;  // "fsdp_config.min_num_params"; "zero_optimization.offload_param.*": all below
  Take take;
  bool is_flag = false;  // of a command line: an option without a value
};

struct Program {
  std::string name;   // as `fsdp adopt` calls it
  std::string title;  // as its users do: "accelerate", "TrainingArguments"
  std::vector<Rule> rules;
  // A key of a file as the rules name it: without prefixes that say nothing. Null: as it is.
  std::string (*name_of)(const std::string& key) = nullptr;
  bool ignores_unknown = false;  // at the top of its file
  // A file with so many known keys was written by the program, with all that it has. A key that is
  // unknown here is of a newer version then: off, it is a warning. 0: people write the files.
  size_t keys_of_whole_file = 0;
};

// The rules of a table: groups of keys that mean one thing, or have no counterpart for one reason.
//   {"leave": "nothing is sent to a hub", "keys": ["hub_token", "hub_strategy"]}
//   {"on_to": ["data.pad_to", "length"], "flags": ["--pad-to-fixed-length"]}   without a value
// What is done is the name of one of the functions below, or "take": "x", a function of `own`.
using Takes = std::map<std::string, Take>;
std::vector<Rule> rules_of(const Json& table, const Takes& own = {});
Program program_of(std::string name, std::string title,
                   const std::vector<std::vector<Rule>>& tables);

// Keys that the program ignores as it is set up, with the reason.
struct Ignored {
  std::string beginning;  // of their names: "fsdp_config."
  std::string reason;
};
// Takes every value that is given. What is ignored is left. Error for keys that the program does
// not have, and for all that are refused, a line each.
void take_all(const Program& program, Adoption& adoption, const std::vector<Ignored>& ignored = {});
// That error. `adoption` holds all keys: they may be another program's.
void check_known(const Program& program, const Given& given, const Adoption& adoption);
// Whether a file of the program may have the key, as a value or as a section.
bool knows_key(const Program& program, const std::string& key);
// The rule of a name; null when the program has none.
const Rule* rule_of(const Program& program, const std::string& name);

// A reason of leave().
inline constexpr char kPrepared[] = "data are files here: --data FILES, nothing is downloaded";

// ---- what a rule does ----
Take to(const std::string& our_key);        // the same value
Take whole_to(const std::string& our_key);  // an integer, also where it is written 8.0 or 1e8
Take count_to(const std::string& our_key);  // the same, from 1
Take truth_to(const std::string& our_key);  // 1 as true
// When it is on: our key gets the value. When it is off: nothing here does it either.
Take on_to(const std::string& our_key, const std::string& value);
// One line with the reason; what is off anyway is only named.
Take leave(const std::string& reason);
Take leave_out(
    const std::string& reason);          // the same with a warning: it changes the trained tokens
Take same(const std::string& how);       // one line, on or off: what does it here
Take refuse(const std::string& reason);  // an error when it is on
Take expect(const std::string& value, const std::string& remark);  // an error for another value
Take usual(const std::string& value, const std::string& reason);   // with a warning for another one
Take share_to(const std::string& our_key);                         // of the rows, below 1; 0: none
Take one_rank(const std::string& reason);  // a number of ranks; refused above 1
// Behind "take" in every table: "model_folder" (model.path; a name of the hub is a folder here),
// "ranks" (how many the program starts), and "together" (nothing: read together with other keys).
void model_folder(const Given& given, Adoption& adoption);

}  // namespace fsdp::adopt
