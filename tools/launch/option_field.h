// What the list of options says about an option besides its key, its member and its help. The
// lists: launch_options.h, tools/config/config_fields.h. Who walks them: tools/config (reading,
// writing, ranges, help, comparison of ranks), tools/commands/listed_flags.h (flags).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::tools {

// Which commands have a flag of the option's name: "--share-gpus" for runtime.share_gpus. In train
// and explain it is short for --set, elsewhere it sets the member.
enum class FlagOf : uint8_t {
  kNone,         // only a key
  kConfigured,   // train and explain, which read a configuration
  kTrain,        // train alone
  kComputing,    // train, and every command that computes
  kCollectives,  // train, and commands whose ranks communicate
  kTransport,    // train, and those of them that do not choose the transport themselves
  kKernels,      // train, and commands that run a model's kernels
};

// OptionField({"other_name"}).from_to(0, 64).flag(FlagOf::kKernels)
struct OptionField {
  OptionField(std::initializer_list<const char*> names = {}) : aliases(names) {}

  OptionField& one_of(std::initializer_list<const char*> names) {
    values.assign(names.begin(), names.end());
    return *this;
  }
  OptionField& from(int64_t smallest) { return least = smallest, *this; }
  OptionField& from_to(int64_t smallest, int64_t largest) { return most = largest, from(smallest); }
  OptionField& size_or_auto() { return is_size = true, *this; }
  OptionField& flag(FlagOf commands) { return flag_of = commands, *this; }
  OptionField& own_of_rank() { return of_rank = true, *this; }

  std::vector<const char*> aliases;  // other names of the key, read but never written
  std::vector<std::string> values;   // of a text: the only ones; empty: any
  bool is_size = false;              // of a text: "300MB", "2GiB" or "auto"
  std::optional<int64_t> least, most;
  FlagOf flag_of = FlagOf::kNone;
  bool of_rank = false;  // ranks may differ in it
};

// Base of a visitor V that names options by their whole key: inside a section, prefix_ is
// "train.optimizer.".
template <typename V>
class KeyedVisitor {
 public:
  template <typename S>
  void section(const char* key, const char*, S& value) {
    const std::string outer = prefix_;
    prefix_ += std::string(key) + ".";
    visit(static_cast<V&>(*this), value);
    prefix_ = outer;
  }

 protected:
  std::string prefix_;
};

}  // namespace fsdp::tools
