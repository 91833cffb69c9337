// The configuration of `fsdp train`: one typed struct with defaults, read from one YAML file and
// `--set a.b=c` overrides. The fields are declared a second time, once, in *_fields.cpp, with all
// that is known of a key; whoever asks for something of a key walks that list (options.h). A new
// option: a member here and a line there. Options of tools/launch stand in launch_options.h.
// Not here: what a run does with it (tools/train), and checks that need the data or the model.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/fsdp/options.h"
#include "core/dtype.h"
#include "core/io/json.h"
#include "core/io/patience.h"
#include "core/recompute.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "tools/config/own_or_guest.h"
#include "tools/data/objective.h"
#include "tools/data/sampler.h"
#include "tools/data/text_source.h"
#include "tools/engine/decay_and_mean.h"
#include "tools/launch/launch_options.h"

namespace fsdp::data {
struct TokenFormat;
}
namespace fsdp::tools {
struct LogLines;
}

namespace fsdp::config {

using tools::LaunchOptions;
struct GuestLabels;  // guests.h
struct GuestLossScale;

enum class Wrap : uint8_t { kTransformerBlock, kNone, kSize, kClass };
enum class RootUnit : uint8_t { kSplit, kWhole };
// What the best checkpoint is the best by; the smallest value is.
enum class BestMetric : uint8_t { kNone, kValidationLoss, kTrainLoss };
enum class LossScaling : uint8_t { kAuto, kNone, kTorch, kGuest };

// Either a folder to start from, or a preset, or sizes; sizes override the preset's.
struct ModelSection {
  std::string path;
  std::string preset;
  std::string model_type;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn = 0;
  int64_t max_positions = 0;
  std::string activation;
  std::optional<bool> tie_embeddings;
  std::optional<bool> shift_labels;
  std::optional<double> rope_theta;
  std::optional<double> norm_epsilon;
  std::optional<double> init_deviation;
  std::optional<double> dropout;
};

// Low-rank terms that are trained instead of the model; r = 0 and no path: none.
struct LoraSection {
  int64_t r = 0;
  double alpha = 8;
  std::optional<double> dropout;
  std::vector<std::string> targets;
  bool rslora = false;
  std::string path;
};

// Rows of the training text, as Hugging Face datasets' shuffle(seed).select(range(n)).
struct SubsetSection {
  std::optional<int64_t> n;
  int64_t seed = 42;
};

// One of several sources of training data: tools/data/mixture.h.
struct SourceSection {
  std::vector<std::string> path;
  double weight = 1;
  std::string place = {};  // where it was written, for errors; not a key
};

// A number of steps or rows, or a share: "10%".
struct StepsOrShare {
  int64_t steps = 0;
  double percent = 0;

  StepsOrShare(int64_t steps = 0) : steps(steps) {}
  static StepsOrShare of_percent(double percent) {
    StepsOrShare out;
    out.percent = percent;
    return out;
  }
  // A share is rounded up, as in transformers (TrainingArguments.get_warmup_steps, 4.57).
  int64_t of(int64_t all) const {
    return percent > 0 ? std::llround(std::ceil(percent / 100 * static_cast<double>(all))) : steps;
  }
  std::string text() const;  // as YAML has it
  bool operator==(const StepsOrShare&) const = default;
};

// A map of the user's own words: {bot: assistant}. Its values are as YAML has them.
struct JsonMap {
  Json value = Json::object();
  bool operator==(const JsonMap& other) const { return value == other.value; }
};

// Keys of data for rows that are conversations (tools/data/chat).
struct ChatKeys {
  std::string messages_field;
  JsonMap roles;
  std::string chat_template;
  JsonMap template_kwargs;
  std::string date;  // YYYY-MM-DD
  data::TrainOn train_on = data::TrainOn::kAssistant;
  StepsOrShare max_untrained_rows = StepsOrShare::of_percent(5);
  data::SpecialInContent special_in_content = data::SpecialInContent::kAsSpecial;
};

struct ValidationSubset : SubsetSection {};  // of data.validation

struct DataSection {
  std::vector<std::string> train;
  std::vector<SourceSection> sources;  // instead of train
  std::vector<std::string> validation;
  OwnOrGuest<data::TextFormat, data::TokenFormat> format;
  std::string field = "text";
  std::string row_template;
  data::BadRows bad_rows = data::BadRows::kFail;
  std::optional<int64_t> synthetic_rows;
  data::BreakMode sample_break_mode = data::BreakMode::kNone;
  SubsetSection subset;
  ValidationSubset validation_subset;
  ChatKeys chat;
  std::string tokenizer;
  OwnOrGuest<data::Objective, GuestLabels> objective;
  std::optional<data::Pack> pack;  // see packing() and below, and so for the next but two
  int64_t pack_window = 100'000;   // rows
  data::LongRows long_rows = data::LongRows::kCut;
  data::DocumentAttention document_attention = data::DocumentAttention::kAll;
  std::optional<bool> document_separator;
  std::optional<data::PadTo> pad_to;
  std::optional<data::PadSide> pad;  // none: resolve_paths() asks the tokenizer's folder
  int64_t sequence_length = 256;
  std::string cache_dir;
  bool shuffle = true;
  data::ShuffleRule shuffle_rule = data::ShuffleRule::kFeistel;
  bool set_epoch = true;
  data::LastBatch last_batch = data::LastBatch::kShort;
  int64_t prefetch = 2;

  bool synthetic() const { return format == data::TextFormat::kSynthetic; }
  // Whether the data is tokens: there is no text and no tokenizer.
  bool is_tokens() const { return synthetic() || format.guest != nullptr; }
  // Whether rows are conversations. resolve_paths() has asked the first row where format is auto.
  bool is_chat() const { return format == data::TextFormat::kMessages; }
  bool may_be_chat() const {
    return is_chat() || (format == data::TextFormat::kAuto && !is_tokens());
  }
  // Which tokens of a row are trained: `objective`, or the rule of train_on for conversations.
  data::Objective objective_of_rows() const;
  std::vector<std::string> training_files() const;  // of train, or of all sources
  // Of the training data, that `validation` asks for ("5%"); nullopt: it names files.
  std::optional<double> held_out() const;
  // What the keys mean that are left open.
  data::Pack packing() const;
  bool separates_documents() const;
  data::PadTo padded_to() const;
  data::PadSide padded_on() const { return pad.value_or(data::PadSide::kRight); }
  bool pads() const { return packing() == data::Pack::kExamples; }
  bool packs_documents() const { return packing() == data::Pack::kDocuments; }
  // Whether documents share a sequence and do not see each other.
  bool parts_documents() const {
    return packs_documents() || document_attention == data::DocumentAttention::kOwn;
  }
  bool has_labels_of_rows() const { return pads() || packs_documents(); }
  bool has_blocks_of_sentences() const {
    return format.guest != nullptr && sample_break_mode != data::BreakMode::kNone;
  }
  bool has_rows_of_any_length() const { return pads() || has_blocks_of_sentences(); }
  // Whether batches have a mask of padding that attention must not see.
  bool hides_padding() const;
};

struct ScheduleSection {
  optim::ScheduleKind kind = optim::ScheduleKind::kCosine;
  StepsOrShare warmup;  // a share: of `total`
  int64_t total = 0;
  double min_lr = 0;
  double power = 1;
  double cycles = 0;
  int64_t timescale = 0;
  int64_t decay_steps = 0;
  optim::Ramp warmup_shape = optim::Ramp::kLinear;
  optim::Ramp decay_shape = optim::Ramp::kCosine;
  int64_t zero_warmup = 0;
};

struct OptimizerSection {
  optim::OptimizerKind kind = {};  // kAdamW
  double beta1 = 0.9;
  double beta2 = 0.95;
  double rho = 0.9;
  std::optional<double> epsilon;
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  std::optional<double> weight_decay;
  Decay decay = Decay::kMatrices;
  std::optional<DType> state_dtype;
};

struct NormType {
  double power = 2;  // infinity: the largest element
};

// Absent values: those of the rule.
struct LossScaleSection {
  OwnOrGuest<LossScaling, GuestLossScale> rule;
  std::optional<double> initial;
  std::optional<double> growth;
  std::optional<double> backoff;
  std::optional<int64_t> interval;
  std::optional<double> tolerance;
  std::optional<double> floor;
  std::optional<double> minimum;
};

struct RecomputeSection {
  RecomputeMode mode = RecomputeMode::kNone;
  int64_t every = 1;
};

// Steps, every epoch, or a time; none of them: never.
struct Interval {
  int64_t steps = 0;
  bool epoch = false;
  int64_t seconds = 0;

  bool never() const { return steps == 0 && !epoch && seconds == 0; }
};

// What a run does at a gradient norm that is far above the usual: tools/train/loop_rules.h.
enum class SpikeAction : uint8_t { kStop, kSkip, kRollback };
struct SpikeSection {
  double factor = 0;  // 0: no norm is a spike
  int64_t window = 128;
  SpikeAction action = SpikeAction::kStop;
  int64_t in_a_row = 10;
};
enum class OnNonfinite : uint8_t { kStop, kRollback };

// Whose lines a run prints.
enum class LogFormat : uint8_t { kOurs, kGuest };

struct TrainSection {
  int64_t steps = 1000;
  int64_t epochs = 0;
  std::optional<int64_t> batch;  // these three: tools/config/step_shape.h
  std::optional<int64_t> micro_steps;
  int64_t rows_per_pass = 0;
  int64_t seed = 42;
  double lr = 3e-4;
  ScheduleSection schedule;
  OptimizerSection optimizer;
  LossMean loss_mean = LossMean::kTokens;
  double clip_norm = 1;
  NormType clip_type;
  SpikeSection spike;
  OnNonfinite on_nonfinite = OnNonfinite::kStop;
  int64_t max_rollbacks = 3;
  bool allow_nonfinite_validation = false;
  Interval log_every = {.steps = 10};
  OwnOrGuest<LogFormat, tools::LogLines> log_format;
  Interval eval_every;
  int64_t eval_batches = 0;
  DType dtype = DType::kF32;
  std::optional<DType> master_dtype;
  bool stochastic_rounding = false;
  std::optional<DType> reduce_dtype;
  std::optional<DType> buffer_dtype;
  std::optional<DType> logits_dtype;
  std::string logits_chunk_bytes = "64MiB";
  std::vector<std::string> freeze;
  LossScaleSection loss_scale;
  RecomputeSection recompute;
  bool attention_deterministic = true;
  std::optional<DType> save_dtype;
  bool save = true;
  std::string max_shard_size = "5GB";

  bool rolls_back() const {
    return (spike.factor > 0 && spike.action == SpikeAction::kRollback) ||
           on_nonfinite == OnNonfinite::kRollback;
  }
};

struct CheckpointSection {
  std::optional<Interval> every;
  int64_t keep = 3;
  BestMetric best = BestMetric::kNone;
  bool load_best = false;
  std::string folder;
  bool async = false;
  bool verify = true;
  bool required = true;
  int64_t max_steps_back = 2;
  bool unit_hashes = false;

  static constexpr Interval kUsual = {.seconds = 30 * 60};
  Interval interval() const { return every.value_or(kUsual); }
};

struct FsdpSection {
  comm::FsdpOptions options;  // only members that are keys as they are
  int64_t shard_size = 0;
  Wrap wrap = Wrap::kTransformerBlock;
  std::vector<std::string> wrap_classes;
  std::optional<int64_t> min_num_params;
  std::optional<RootUnit> root;  // absent: tools/train/config_to_session.h
  int64_t reshard_group_size = 0;
  bool forward_prefetch = true;
  int64_t prefetch_depth = 1;
  int64_t units_in_flight = 2;
  bool sync_module_states = false;
  std::string offload_folder;
};

struct RuntimeSection {
  LaunchOptions launch;  // its keys are keys of this section
  bool synchronous = false;
  bool trace = false;
  std::string memory_limit = "auto";
  double monitor_s = 1;
  double monitor_later_s = 60;
  std::string name = "train";
  std::string run_dir;
  int64_t io_retries = 3;
  double io_retry_s = 5;
  int64_t lock_wait_s = 60;
  bool goes_on = false;  // no key: core/io/patience.h

  IoPatience patience() const {
    return {io_retries, std::chrono::milliseconds(std::llround(io_retry_s * 1000)), goes_on};
  }
};

struct SampleSection {
  std::string prompt;
  int64_t tokens = 0;
  double temperature = 1;
  int64_t top_k = 0;
};

// Where each key that was given stands, for errors that are found later: file and line, or what was
// typed.
using Places = std::map<std::string, std::string>;

struct TrainConfig {
  ModelSection model;
  LoraSection lora;
  DataSection data;
  TrainSection train;
  CheckpointSection checkpoint;
  FsdpSection fsdp;
  RuntimeSection runtime;
  SampleSection sample;
  Places places;  // not a key
  // That train.epochs has replaced a file's train.steps, or the other way round; "": neither.
  // Not a key.
  std::string length_note;
  // Keys that another layer has taken the effect of: they have their default. Not a key.
  std::vector<std::string> left_out;
  // That these are left out, and which of two --set counts. Not a key.
  std::vector<std::string> notes;

  // The schedule with the section's peak and, where it leaves `total` open, the run's length.
  optim::Schedule schedule() const;
  // The optimizer with the weight decay that is usual for its kind, where the section has none.
  optim::OptimizerOptions optimizer() const;
  bool uses_f16() const;  // in any unit
  // What is given in epochs, in steps. The file keeps epochs: it holds for any text.
  TrainConfig in_steps(int64_t steps_per_epoch) const;
};

// A key and its value from the command line: "train.lr=1e-4", "data.train=[a.txt, b.txt]".
struct Override {
  Override(std::string text) : text(std::move(text)), typed("--set " + this->text) {}
  Override(const char* text) : Override(std::string(text)) {}
  Override(std::string text, std::string typed, int layer = 0)
      : text(std::move(text)), typed(std::move(typed)), layer(layer) {}

  std::string text;
  std::string typed;  // what the user gave, for errors: "--set train.lr=1e-4", "--lr 1e-4"
  int layer = 0;      // above 0: of a sweep, whose keys each have one
};

// The overrides count more than the file. Errors name the file and line (or what was typed), the
// key, what was expected and what was there; for an unknown key the nearest known one. Of two --set
// that give a key different values the last one counts, which is a note; other overrides that do
// are an error. An empty `yaml_file` reads nothing: defaults and overrides. `include` at the top of
// a file names files beside it that are read first. A model that one of these layers names
// (model.path, model.preset) takes the place of the sizes that layers below it give.
// Each file, and each layer of overrides, is a layer. A key that cannot have an effect is an error.
// Where another layer takes its effect away, the key has its default and there is a note.
TrainConfig read_config(const std::filesystem::path& yaml_file,
                        const std::vector<Override>& overrides);
TrainConfig parse_config(const std::string& yaml, const std::string& source,
                         const std::vector<Override>& overrides);
// The message of an error that begins with a key and a colon, with that key's place in front.
std::string with_place(const TrainConfig& config, const std::string& message);
// Ranges that a single field can violate; read_config calls it.
void check_config(const TrainConfig& config);

// The keys alone: what is out of range, or does not go together, is left to check_config().
TrainConfig parse_keys(const std::vector<Override>& overrides);
// A key that has another value than its default, and would be ignored in silence. check_config()
// refuses it.
struct KeyWithoutEffect {
  std::string key, value;
  std::string reason;  // "without data.validation"
};
std::vector<KeyWithoutEffect> keys_without_effect(const TrainConfig& config);
// Keys that may wait for a first row that is a conversation: data.format: auto.
std::vector<std::string> keys_of_chats(const TrainConfig& config);

// The whole configuration, every field, in a form that read_config gives back unchanged.
std::string to_yaml(const TrainConfig& config);
// The other way than comm::choice_name. Error when there is none of that name.
comm::Strategy parse_strategy(const std::string& text);
std::vector<std::string> strategy_names();
// One line per field: key, [default], what it means.
std::string config_help();

}  // namespace fsdp::config
