// What the list of options says about an option besides its key, its member and its help. The
// lists: launch_fields.h, tools/config/*_fields.cpp. Who walks them: tools/config (reading,
// writing, ranges, effects, help, comparison of ranks), tools/commands/listed_flags.h (flags),
// tools/checkpoint/resume.h (what a resumed run may change), tools/predict (what needs less
// memory).
#pragma once

#include <cstdint>
#include <limits>
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

// The numbers that an option may have.
struct Range {
  static constexpr double kNoEnd = std::numeric_limits<double>::infinity();

  double least = -kNoEnd, most = kNoEnd;
  bool above = false, below = false;    // without `least` itself, without `most` itself
  bool or_none = false;                 // 0, too: none
  int64_t largest = 1'000'000'000'000;  // integer; of what is only counted, more is a mistake

  bool contains(double value) const {
    return (or_none && value == 0) ||
           ((above ? value > least : value >= least) && (below ? value < most : value <= most));
  }
};
constexpr Range from(double least) { return {.least = least}; }
constexpr Range from_to(double least, double most) { return {.least = least, .most = most}; }
// Of a number that is multiplied: it has the bits of a config.json.
constexpr Range size_from(double least) { return {.least = least, .largest = INT32_MAX}; }
constexpr Range kSeed = {.least = 0, .largest = INT64_MAX};
constexpr Range kPositive = {.least = 0, .above = true};
constexpr Range kShare = {.least = 0, .most = 1, .below = true};

// What an option must have beside it: where it is not met, another value than the default would be
// ignored in silence.
struct Need {
  bool met = true;
  std::string without;  // "without data.validation"
};

// Whether a run that goes on from a checkpoint may have another value.
enum class OnResume : uint8_t {
  kAsSection,  // as the option's section says
  kRefused,    // something else would be computed; so it is with a section that does not say
  kFree,       // the same is computed, up to the order of sums, or a hash tells
  kFreeUnlessFixedOrder,  // the order of sums: with fsdp.fixed_order it belongs to the results
  kFreeInPasses,          // of passes, as the batch: it may be said in another way
  kLength,                // free: how long the run is; the schedule may end with it
  kOwn,                   // not compared: each run has its own
};

// What a change of an option leaves as it was.
enum class Keeps : uint8_t {
  kBits,      // the results, to the bit
  kRounding,  // the results, up to rounding: sums are in another order
  kDType,     // nothing: another dtype computes
  kBatch,     // nothing: a step takes more rows
};

// Values of an option with which a run may need less memory.
struct MemoryChoices {
  struct Choice {
    std::string value;
    std::string with = "";  // what is set beside it: "train.stochastic_rounding=true"
  };

  int turn = 0;  // of changes that need the same bytes, the one of the smaller turn comes first
  std::vector<Choice> choices = {};
  Keeps keeps = Keeps::kBits;
  bool rounds_on_gpu = false;     // results are kept up to rounding there
  bool on_several_ranks = false;  // on one rank it changes nothing
  // Instead of choices: half the rows of a pass, a fourth, ...; twice the micro-steps, ...
  bool halves_rows = false, doubles_steps = false;
  std::string with = "";  // beside these numbers
};

// {.aliases = {"other_name"}, .range = from_to(0, 64), .flag_of = FlagOf::kKernels}
struct OptionField {
  std::vector<const char*> aliases = {};  // other names of the key, read but never written
  std::vector<const char*> values = {};   // of a text: the only ones; empty: any
  bool is_size = false;                   // of a text: "300MB", "2GiB"
  bool or_auto = false;                   // such a text may be "auto" instead
  Range range = {};
  FlagOf flag_of = FlagOf::kNone;
  bool of_rank = false;          // ranks may differ in it
  std::vector<Need> needs = {};  // the first that is not met is told
  OnResume on_resume = OnResume::kAsSection;
  MemoryChoices memory = {};
};

}  // namespace fsdp::tools
