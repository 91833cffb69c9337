// The phases of fsdp train, in its order.
#include "tools/predict/predicted_run.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "core/layer_args.h"
#include "tools/checkpoint/read_checkpoint.h"
#include "tools/checkpoint/write_checkpoint.h"
#include "tools/config/step_shape.h"
#include "tools/generate/generation.h"
#include "tools/model_folders/checkpoint_model.h"
#include "tools/model_folders/load_model.h"
#include "tools/train/config_to_session.h"
#include "tools/train/loop_rules.h"

namespace fsdp::tools {
namespace {

// That are run of any number, of each kind. [Note: micro-steps alike]
constexpr int64_t kMicroSteps = 3;

// Reading a file takes nothing of the device's.
models::FillFunction fill_of(const config::TrainConfig& config) {
  const auto scratch = models::from_scratch(0);
  if (config.model.path.empty()) return scratch;
  return [=, of_file = !config.lora.path.empty()](const Parameter& parameter, int64_t first,
                                                  Tensor& values) {
    if (models::is_lora(parameter) && !of_file) scratch(parameter, first, values);
  };
}

// The trainer's loop (tools/train/trainer.h) over the batches of a run, without what has settled:
// [Note: settled] in meta_run.h. So a run of any length takes some steps.
class Loop {
 public:
  Loop(MetaRun& run, const PredictedData& data, const LoopOrder& order)
      : run_(run), data_(data), order_(order) {}

  void run() {
    if (order_.evaluates_between(data_.first_step)) evaluate();  // which a signal may have left out
    for (int64_t step = data_.first_step; step < order_.steps;) {
      take(false, of(data_.batches, step - data_.first_step));
      ++step;
      if (order_.evaluates_between(step)) evaluate();
      if (!goes_on(step)) break;
    }
    evaluate();
  }

 private:
  // Once it leaves everything as it was, it may still have found what one before it left. A GPU's
  // memory has no gaps: the second finds what all after it find.
  int alike() const { return run_.on_gpu() ? 1 : 2; }
  static constexpr int kMost = 200;  // where gaps never find their places

  static const data::BatchShape& of(const std::vector<data::BatchShape>& all, int64_t index) {
    return all[static_cast<size_t>(std::min<int64_t>(index, std::ssize(all) - 1))];
  }

  bool has_settled(bool evaluates, const data::BatchShape& shape) const {
    const auto found = alike_.find({evaluates, shape.rows, shape.length});
    return found != alike_.end() && found->second >= alike();
  }

  void take(bool evaluates, data::BatchShape shape) {
    // A GPU's memory has no gaps: the largest batch takes most.
    if (run_.on_gpu() && shape.rows <= data_.usual.rows && shape.length <= data_.usual.length) {
      shape = evaluates ? of(data_.validation_batches, 0) : data_.usual;
    }
    if (has_settled(evaluates, shape) || taken_ == kMost) return;
    ++taken_;
    const bool as_it_was = evaluates ? run_.evaluate(shape) : run_.step(shape);
    const bool again = run_.on_gpu() && !seen_.emplace(evaluates, shape.rows, shape.length).second;
    if (!as_it_was && !again) alike_.clear();
    if (as_it_was || again) ++alike_[{evaluates, shape.rows, shape.length}];
  }

  void evaluate() {
    if (data_.validation_batches.empty()) return;
    for (int64_t i = 0; i < data_.evaluated; ++i) {
      const data::BatchShape& shape = of(data_.validation_batches, i);
      take(true, shape);
      const bool all_alike = i + 1 >= std::ssize(data_.validation_batches);
      if (taken_ == kMost || (all_alike && has_settled(true, shape))) break;
    }
  }

  // Goes to the next step that may change something; false: there is none.
  bool goes_on(int64_t& step) const {
    if (taken_ == kMost) return false;
    const bool all_alike = step - data_.first_step + 1 >= std::ssize(data_.batches);
    if (!all_alike || !has_settled(false, data_.batches.back())) return true;
    if (data_.validation_batches.empty() || order_.eval_every == 0) return false;
    for (const data::BatchShape& shape : data_.validation_batches) {
      if (has_settled(true, shape)) continue;
      const int64_t next = (step / order_.eval_every + 1) * order_.eval_every;
      step = std::max(step, next - 1);
      return true;
    }
    return false;
  }

  MetaRun& run_;
  const PredictedData& data_;
  const LoopOrder order_;
  int taken_ = 0;
  std::map<std::tuple<bool, int64_t, int64_t>, int> alike_;  // by kind, rows and length
  std::set<std::tuple<bool, int64_t, int64_t>> seen_;
};

}  // namespace

std::vector<data::BatchShape> shapes_of(int64_t count, int64_t rows,
                                        const std::function<data::BatchShape(int64_t)>& shape_of,
                                        const std::vector<data::BatchShape>& largest) {
  constexpr int64_t kMostRows = 1 << 20;  // whose lengths are looked at
  std::vector<data::BatchShape> out;
  for (int64_t i = 0; i < std::min(count, std::max<int64_t>(kMostRows / rows, 1)); ++i) {
    out.push_back(shape_of(i));
  }
  out.insert(out.end(), largest.rbegin(), largest.rend());
  while (out.size() > 1 && out.back() == *std::prev(out.end(), 2)) out.pop_back();
  return out;
}

std::string describe_run(const models::ModelConfig& model, comm::Strategy strategy, int ranks) {
  return fmt::format("{}; {} on {} rank{}", describe(model), choice_name(strategy), ranks,
                     ranks == 1 ? "" : "s");
}

SyntheticRows kind_of_rows(const config::DataSection& c, std::optional<double> pairs) {
  if (!c.parts_documents()) return {.masked = c.hides_padding()};
  constexpr int64_t kUsual = 4;  // documents that share a row, where no data says it
  const int64_t length = c.sequence_length;
  return {.document = pairs ? document_length(std::llround(*pairs), length)
                            : (length + kUsual - 1) / kUsual};
}

std::string remark_on_documents(const SyntheticRows& kind) {
  if (kind.document == 0) return "";
  return fmt::format(
      "documents of {} tokens in a sequence were assumed, which decide the time of attention",
      kind.document);
}

PredictedData data_of(const config::TrainConfig& config, int ranks) {
  const config::StepShape shape = config::step_shape(config, ranks);
  const data::BatchShape full = {.rows = shape.batch, .length = config.data.sequence_length};
  PredictedData out = {.usual = full,
                       .batches = {full},
                       .rows_per_pass = shape.rows_per_pass,
                       .kind = kind_of_rows(config.data)};
  if (config.data.validation.empty()) return out;
  constexpr int64_t kManyBatches = 1000;  // of a text of unknown length
  out.validation_batches = {full};
  out.evaluated = config.train.eval_batches > 0 ? config.train.eval_batches : kManyBatches;
  return out;
}

std::unique_ptr<MetaRun> predicted_run(const config::TrainConfig& config,
                                       const PlacedOptions& session, const PredictedData& data,
                                       int ranks, int rank, std::shared_ptr<CallRates> rates,
                                       size_t stop_above) {
  PlacedOptions shortened = session;
  const int64_t of_step = session.fsdp.micro_steps;
  const bool even = data.usual.rows % (of_step * ranks) == 0;
  if (data.rows_per_pass == 0) {
    shortened.fsdp.micro_steps =
        static_cast<int>(std::min(of_step, even ? kMicroSteps : 2 * kMicroSteps));
  }
  auto run = std::make_unique<MetaRun>(shortened, ranks, rank, std::move(rates));
  if (shortened.fsdp.micro_steps < of_step) run->set_micro_steps(of_step);
  run->stop_above(stop_above);
  run->set_rows(data.kind);
  run->load(fill_of(config), config.fsdp.sync_module_states);
  if (data.first_step > 0) run->phase("resuming", walk_restored);
  if (config.checkpoint.async) {
    run->phase("checkpoints", [&](Session& s) { run->keep(std::make_shared<StagingMemory>(s)); });
  }
  run->set_rows_per_pass(data.rows_per_pass);
  Loop(*run, data, {.steps = config.train.steps, .eval_every = config.train.eval_every.steps})
      .run();
  if (config.train.save) {
    run->phase("saving", [&](Session& s) { walk_saved(s, saved_dtype(config)); });
  }
  if (config.sample.tokens > 0 && data.prompt_tokens > 0) {
    run->phase("sample", [&](Session& s) {
      generate_tokens(s, {.tokens = config.sample.tokens},
                      {std::vector<int32_t>(static_cast<size_t>(data.prompt_tokens), 0)});
    });
  }
  run->time_step(data.usual);
  if (!data.validation_batches.empty()) run->time_evaluation(data.validation_batches.front());
  return run;
}

}  // namespace fsdp::tools
