// What becomes of a foreign configuration: values of our keys with their origin, and what has no
// counterpart with the reason. Written as a file that `fsdp train` reads.
// Not here: which foreign value means what (rules.h and the file of each program).
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "tools/guides/adopt/given.h"

namespace fsdp::adopt {

// One of our keys that was typed beside the foreign file. It counts more than the file.
struct TypedKey {
  std::string key, value;
  std::string typed;  // "--model FOLDER"
};

struct AdoptOptions {
  bool literal = false;    // what ran, also where a mistake of the script made it so
  int ranks_per_node = 0;  // for strategies that shard inside a node; 0: not said
  int ranks = 0;           // that will run; 0: not said
  std::vector<TypedKey> typed = {};
};

class Adoption {
 public:
  // `source`: a file, or what was typed; for the head of the result.
  Adoption(std::string program, std::string source, std::vector<Given> given,
           AdoptOptions options = {});

  const std::vector<Given>& given() const { return given_; }
  const Given* find(const std::string& name) const;  // null when it is not given
  bool is_on(const std::string& name) const;         // given, and true
  const AdoptOptions& options() const { return options_; }
  bool has(const std::string& our_key) const { return keys_.contains(our_key); }

  // Gives one of our keys a value, as --set takes it. Error when another foreign key has given it a
  // different one.
  void set(const std::string& key, const std::string& value, const Given& origin,
           const std::string& remark = "");
  void set_list(const std::string& key, const std::vector<std::string>& values,
                const Given& origin);
  // Where nothing foreign gave the key: their default, where it is not ours.
  void set_default(const std::string& key, const std::string& value, const std::string& origin);
  void set_defaults(const Json& by_origin);  // {"in the script": {"train.seed": "42"}}
  // What a foreign value gave one of our keys; "" when none did.
  std::string value_of(const std::string& our_key) const;

  void leave(const Given& given, const std::string& reason);  // no counterpart, one line
  // The same of what changes which tokens a row has, or which are trained: a warning, too.
  void leave_out(const Given& given, const std::string& reason);
  void off(const Given& given);  // off there, as here
  // A name that the foreign program reads and nobody has set, with what it takes then.
  void unset(const std::string& name, const std::string& otherwise);
  void note(const std::string& line);
  void warn(const std::string& line);  // a note that fsdp adopt prints, too
  // How many ranks the foreign file starts. Error when another value says otherwise.
  void set_ranks(int64_t ranks, const Given& origin);
  int64_t ranks() const { return ranks_; }  // 0: it does not say

  // The file. Error, with the place of the foreign value, when our configuration refuses one, or
  // when nothing has set, left or turned off a value that was given.
  std::string yaml() const;

 private:
  struct Value {
    std::string text;
    std::string origin;  // "learning_rate: 5e-5 (args.json:7)"
    std::string place;   // for errors: "args.json:7: learning_rate"
  };
  struct Line {
    std::string key, value, comment;
    bool has_effect;  // else the line is a comment
  };
  // What was typed for the key, so that nothing foreign counts; "" when nothing was.
  std::string typed_for(const std::string& our_key) const;
  void settle_twins();
  void check_all_taken() const;
  std::vector<std::string> unsaid() const;  // our keys that a run needs, and nothing has given
  std::vector<Line> lines() const;
  std::map<std::string, std::string> without_effect() const;  // our keys, with the reason

  std::string program_, source_;
  std::vector<Given> given_;
  AdoptOptions options_;
  std::map<std::string, Value> keys_;
  std::set<std::string> taken_;  // foreign keys that are set, left or off
  std::vector<std::string> left_, off_, unset_, notes_;
  int64_t ranks_ = 0;
};

// The warnings of a file that yaml() wrote.
std::vector<std::string> warnings_of(const std::string& yaml);

}  // namespace fsdp::adopt
