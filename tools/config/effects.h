// Which layer of a configuration has taken away the effect of a key. A layer is what was written
// together: a file, a file that it includes, the --set of one command, a key of a sweep's grid.
// Not here: what a key needs to have an effect (needs in *_fields.cpp).
#pragma once

#include <map>
#include <set>
#include <string>

#include "tools/config/config.h"

namespace fsdp::config {

// A file's key has an effect where it has one by itself, or over the files below. What is typed on
// top of them must have one at once. A key of a sweep is there for some of the sweep's runs.
enum class LayerKind : uint8_t { kFile, kTyped, kSweep };

class Effects {
 public:
  // A layer was read. `all`: with the layers below it. `alone`: the same keys over the defaults.
  void add_layer(const TrainConfig& all, const TrainConfig& alone, LayerKind kind);
  // What was read meanwhile has given keys their effect, or taken it away: `by` is a file, or what
  // was typed.
  void look(const TrainConfig& all, const std::string& by);

  // Whether the key had an effect where it was written, or by a layer above.
  bool had_effect(const std::string& key) const { return !never_.contains(key); }
  // What took the effect away; "": a layer below the one of the key.
  std::string lost_by(const std::string& key) const;

 private:
  std::set<std::string> never_;  // had an effect
  std::map<std::string, std::string> lost_by_;
};

}  // namespace fsdp::config
