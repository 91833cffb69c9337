// One function a format and event.
#include "tools/guides/log_lines.h"

#include <algorithm>
#include <cmath>

#include "core/io/json.h"

namespace fsdp::tools {
namespace {

double rounded(double value, int digits) {
  const double scale = std::pow(10.0, digits);
  return std::round(value * scale) / scale;
}

double per(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

// ---- fairseq: numbers as texts of six digits at most ----

std::string general(double value, int digits) {
  return fmt::format("{:g}", rounded(value, digits));
}

constexpr double kBits = 1 / M_LN2;  // in a nat

Json epoch_of(int64_t step, const LogContext& context) {
  if (context.steps_per_epoch == 0) return 1;
  return (std::max<int64_t>(step, 1) - 1) / context.steps_per_epoch + 1;
}

// The losses of a run's lines are means over the steps since the line before, base 2.
std::string fairseq_step(const StepMetrics& m, const LogWindow& w, const LogContext& context) {
  Json line = Json::object();
  line["epoch"] = epoch_of(m.totals.steps, context);
  line["update"] = rounded(m.epoch.value_or(0), 3);
  const auto add = [&](const char* key, double value, int digits) {
    line[key] = general(value, digits);
  };
  const auto steps = static_cast<double>(std::max<int64_t>(w.steps, 1));
  const double loss = w.loss_sum / steps * kBits;
  add("loss", loss, 3);
  add("ppl", std::exp2(loss), 2);
  add("wps", per(static_cast<double>(w.tokens), w.seconds), 1);
  add("ups", per(static_cast<double>(w.steps), w.seconds), 2);
  add("wpb", static_cast<double>(w.tokens) / steps, 1);
  add("bsz", static_cast<double>(w.samples) / steps, 1);
  line["num_updates"] = fmt::format("{}", m.totals.steps - m.totals.skipped);
  line["lr"] = fmt::format("{:g}", m.next_learning_rate);
  add("gnorm", m.grad_norm, 3);
  if (context.scales_loss) add("loss_scale", m.loss_scale, 4);
  add("train_wall", m.totals.step_time_s, 0);
  if (context.memory_bytes > 0) {
    const double free =
        static_cast<double>(context.memory_bytes) - static_cast<double>(m.peak_memory_bytes);
    add("gb_free", free / (1 << 30), 1);
  }
  add("wall", m.totals.wall_time_s, 0);
  return line.dump();
}

std::string fairseq_evaluation(const EvaluationMetrics& m, int64_t skipped,
                               const LogContext& context) {
  Json line = Json::object();
  line["epoch"] = epoch_of(m.step, context);
  const auto add = [&](const char* key, double value, int digits) {
    line[key] = general(value, digits);
  };
  const auto batches = static_cast<double>(std::max<int64_t>(m.batches, 1));
  add("valid_loss", m.loss * kBits, 3);
  add("valid_ppl", std::exp2(m.loss * kBits), 2);
  add("valid_wps", per(static_cast<double>(m.tokens), m.runtime_s), 1);
  add("valid_wpb", static_cast<double>(m.tokens) / batches, 1);
  add("valid_bsz", static_cast<double>(m.sequences) / batches, 1);
  line["valid_num_updates"] = fmt::format("{}", m.step - skipped);
  add("valid_best_loss", m.best_loss * kBits, 3);
  return line.dump();
}

std::string fairseq_end(const StepMetrics& m, const LogContext& context) {
  Json line = Json::object();
  line["epoch"] = epoch_of(m.totals.steps, context);
  line["train_loss"] = general(m.totals.mean_loss() * kBits, 3);
  line["train_ppl"] = general(std::exp2(m.totals.mean_loss() * kBits), 2);
  line["train_wps"] =
      general(per(static_cast<double>(m.totals.true_tokens), m.totals.step_time_s), 1);
  line["train_ups"] = general(per(static_cast<double>(m.totals.steps), m.totals.step_time_s), 2);
  line["train_num_updates"] = fmt::format("{}", m.totals.steps - m.totals.skipped);
  line["train_lr"] = fmt::format("{:g}", m.next_learning_rate);
  line["train_train_wall"] = general(m.totals.step_time_s, 0);
  line["train_wall"] = general(m.totals.wall_time_s, 0);
  return line.dump();
}

std::string fairseq_overflow(double loss_scale) {
  return fmt::format(
      "NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: {}",
      general(loss_scale, 4));
}

// ---- transformers: a dict as Python prints it ----

std::string python(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const double size = std::abs(value);
  // Python writes the shortest digits, with an exponent below 1e-4 and from 1e16.
  if (value == 0 || (size >= 1e-4 && size < 1e16)) {
    std::string text = fmt::format("{}", value);
    return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
  }
  return fmt::format("{}", value);
}

std::string epoch_entry(const std::optional<double>& epoch) {
  return epoch ? fmt::format(", 'epoch': {}", python(rounded(*epoch, 2))) : "";
}

double mean_loss(const LogWindow& w) {
  return w.loss_sum / static_cast<double>(std::max<int64_t>(w.steps, 1));
}

std::string hf_step(const StepMetrics& m, const LogWindow& w, const LogContext&) {
  return fmt::format("{{'loss': {}, 'grad_norm': {}, 'learning_rate': {}{}}}",
                     python(rounded(mean_loss(w), 4)), python(m.grad_norm), python(m.learning_rate),
                     epoch_entry(m.epoch));
}

std::string hf_end(const StepMetrics& m, const LogContext&) {
  return fmt::format(
      "{{'train_runtime': {}, 'train_samples_per_second': {}, 'train_steps_per_second': {}, "
      "'train_loss': {}{}}}",
      python(rounded(m.totals.wall_time_s, 4)),
      python(rounded(per(static_cast<double>(m.totals.samples), m.totals.wall_time_s), 3)),
      python(rounded(per(static_cast<double>(m.totals.steps), m.totals.wall_time_s), 3)),
      python(m.totals.mean_loss()), epoch_entry(m.epoch));
}

std::string hf_evaluation(const EvaluationMetrics& m, int64_t, const LogContext&) {
  return fmt::format(
      "{{'eval_loss': {}, 'eval_runtime': {}, 'eval_samples_per_second': {}, "
      "'eval_steps_per_second': {}{}}}",
      python(m.loss), python(rounded(m.runtime_s, 4)),
      python(rounded(per(static_cast<double>(m.sequences), m.runtime_s), 3)),
      python(rounded(per(static_cast<double>(m.batches), m.runtime_s), 3)), epoch_entry(m.epoch));
}

// ---- the chess guide ----

std::string chess_step(const StepMetrics& m, const LogWindow& w, const LogContext& context) {
  const double step_s = w.seconds / static_cast<double>(std::max<int64_t>(w.steps, 1));
  return fmt::format("({}/{}) loss={:.2f} ({:.2f} s/step)", m.totals.steps, context.total_steps,
                     m.loss, step_s);
}

std::string chess_evaluation(const EvaluationMetrics& m, int64_t, const LogContext& context) {
  return fmt::format("({}/{}) validation loss={:.2f}", m.step, context.total_steps, m.loss);
}

}  // namespace

const LogLines kFairseqLines = {.name = "fairseq_json",
                                .step = fairseq_step,
                                .evaluation = fairseq_evaluation,
                                .end = fairseq_end,
                                .overflow = fairseq_overflow};
const LogLines kTrainerLines = {
    .name = "hf", .step = hf_step, .evaluation = hf_evaluation, .end = hf_end};
const LogLines kChessLines = {.name = "chess",
                              .first_and_last = true,
                              .step = chess_step,
                              .evaluation = chess_evaluation};  // the guide's loop has none

}  // namespace fsdp::tools
