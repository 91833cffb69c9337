// The list of columns. Contents of metrics.json: tools/report/metrics.cpp.
#include "tools/report/run_columns.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/error.h"
#include "core/io/file.h"
#include "core/text/numbers.h"
#include "core/text/similar_names.h"
#include "tools/report/metrics_line.h"

namespace fsdp::tools {
namespace {

using Number = std::optional<double>;
using Value = std::function<Json(const FinishedRun&)>;

constexpr double kMiB = 1 << 20;

Json json_of(Number value) { return value && std::isfinite(*value) ? Json(*value) : Json(); }

Number quotient(Number a, Number b) { return a && b && *b > 0 ? Number(*a / *b) : std::nullopt; }

Value at(const std::string& path, double unit = 1) {
  return [=](const FinishedRun& run) {
    const Json* const found = run.metrics.follow(path);
    if (!found || found->is_structured()) return Json();
    return unit != 1 && found->is_number() ? Json(found->get<double>() / unit) : *found;
  };
}

// One number of metrics.json divided by another.
Value ratio(const std::string& path, const std::string& by) {
  return [=](const FinishedRun& run) {
    return json_of(quotient(number_at(run.metrics, path), number_at(run.metrics, by)));
  };
}

Value category(const std::string& name) { return at("/memory/ledger/by_category/" + name, kMiB); }

Json perplexity(const FinishedRun& run) {
  const Number loss = number_at(run.metrics, "/validation_loss");
  return json_of(loss ? Number(std::exp(*loss)) : loss);
}

// Of all these kinds together; a kind that a run has not used counts 0.
Value collectives(std::vector<std::string> kinds, const std::string& what, double unit = 1) {
  return [=](const FinishedRun& run) {
    double sum = 0;
    for (const std::string& kind : kinds) {
      sum += number_at(run.metrics, fmt::format("/collectives/{}/{}", kind, what)).value_or(0);
    }
    return json_of(quotient(sum / unit, number_at(run.metrics, "/steps")));
  };
}

// Of the last step in metrics.jsonl.
Json grad_norm(const FinishedRun& run) {
  const std::filesystem::path file = run.folder / "metrics.jsonl";
  if (!is_there(file)) return {};
  Number norm;
  for_each_line(read_file(file), [&](std::string_view, const std::optional<MetricsLine>& line) {
    if (line && !line->is_evaluation()) norm = line->number("grad_norm");
  });
  return json_of(norm);
}

Json straggler(const FinishedRun& run) {
  const Number rank = number_at(run.metrics, "/stragglers/0/rank");
  return rank ? Json(fmt::format("rank {:.0f}", *rank)) : Json();
}

Baseline facts_of(const FinishedRun& run) {
  const auto number = [&](const char* path) { return number_at(run.metrics, path).value_or(0); };
  const double steps = std::max(number("/steps"), 1.0);
  const double ranks = std::max(number("/world_size"), 1.0);
  return {.ranks = ranks,
          .tokens_per_s = number("/tokens_per_s"),
          .s_per_step = number("/step_time_s") / steps,
          .tokens_of_rank = number("/true_tokens") / steps / ranks};
}

Json speed_up(const FinishedRun& run, const Baseline& base) {
  return json_of(quotient(facts_of(run).tokens_per_s, base.tokens_per_s));
}

Json efficiency(const FinishedRun& run, const Baseline& base) {
  const Baseline own = facts_of(run);
  return json_of(quotient(own.tokens_per_s / own.ranks, base.tokens_per_s / base.ranks));
}

// Rows of a short last batch are left out of the comparison of the work: 1 %.
Json weak_efficiency(const FinishedRun& run, const Baseline& base) {
  const Baseline own = facts_of(run);
  const bool same_work =
      std::abs(own.tokens_of_rank - base.tokens_of_rank) <= 0.01 * base.tokens_of_rank;
  return same_work ? json_of(quotient(base.s_per_step, own.s_per_step)) : Json();
}

const std::vector<RunColumn>& columns() {
  static const std::vector<RunColumn> all = {
      {"s_per_step", "s/step", 4, ratio("/step_time_s", "/steps")},
      {"tokens_per_s", "tokens/s", 0, at("/tokens_per_s")},
      {"tokens_per_s_per_rank", "tokens/s per rank", 0, at("/tokens_per_s_per_rank")},
      {"samples_per_s", "samples/s", 2, ratio("/samples", "/step_time_s")},
      {"words_per_s", "words/s", 0, at("/tokens_per_s")},
      {"steps", "steps", 0, at("/steps")},
      {"wall_time_s", "wall time (s)", 1, at("/wall_time_s")},
      {"parameters", "parameters", 0, at("/parameters")},
      {"train_loss", "training loss", 4, at("/train_loss")},
      {"mean_train_loss", "mean training loss", 4, at("/mean_train_loss")},
      {"validation_loss", "validation loss", 4, at("/validation_loss")},
      {"perplexity", "perplexity", 2, perplexity},
      {"grad_norm", "gradient norm", 4, grad_norm},
      {"peak_memory", "peak memory (MiB)", 2, at("/memory/ledger/total", kMiB)},
      {"peak_predicted", "predicted (MiB)", 2, at("/memory/predicted/total", kMiB)},
      {"host_peak", "host (MiB)", 2, at("/memory/ledger_on_host/total", kMiB)},
      {"host_predicted", "host, predicted (MiB)", 2, at("/memory/predicted_on_host/total", kMiB)},
      {"disk_peak", "disk (MiB)", 2, at("/memory/ledger_in_file/total", kMiB)},
      {"disk_predicted", "disk, predicted (MiB)", 2, at("/memory/predicted_in_file/total", kMiB)},
      {"activation_peak", "activations (MiB)", 2, category("activation")},
      {"optimizer_peak", "optimizer state (MiB)", 2, category("optimizer state")},
      {"gathered_peak", "gathered parameters (MiB)", 2, category("unsharded parameter")},
      {"exposed_s", "exposed (s)", 3, at("/communication/exposed_s")},
      {"gathers_per_step", "gathers/step", 2, collectives({"all_gather"}, "calls")},
      {"reduces_per_step", "reductions/step", 2,
       collectives({"reduce_scatter", "all_reduce"}, "calls")},
      {"gathered_MiB_per_step", "gathered/step (MiB)", 3,
       collectives({"all_gather"}, "bytes", kMiB)},
      {"speed_up", "speed-up", 2, {}, speed_up},
      {"efficiency", "efficiency", 3, {}, efficiency},
      {"weak_efficiency", "weak efficiency", 3, {}, weak_efficiency},
      {"exact_match", "exact match (%)", 2, at("/evaluation/exact_match")},
      {"f1", "F1 (%)", 2, at("/evaluation/f1")},
      {"weights_hash", "hash of the weights", 0, at("/weights_hash")},
      {"restarts", "restarts", 0, at("/restarts")},
      {"lost_s", "lost (s)", 1, at("/lost_s")},
      {"effective_share", "effective share", 3, at("/effective_share")},
      {"straggler", "straggler", 0, straggler},
      {"full_size_peak", "full size, predicted (MiB)", 2},
      {"full_size_fits", "full size fits", 0},
  };
  return all;
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Baseline baseline_of(const std::vector<FinishedRun>& runs) {
  std::vector<Baseline> all;
  for (const FinishedRun& run : runs) all.push_back(facts_of(run));
  const auto middle = [&](double Baseline::*member) {
    std::vector<double> values;
    for (const Baseline& each : all) values.push_back(each.*member);
    return median(values);
  };
  return {.ranks = middle(&Baseline::ranks),
          .tokens_per_s = middle(&Baseline::tokens_per_s),
          .s_per_step = middle(&Baseline::s_per_step),
          .tokens_of_rank = middle(&Baseline::tokens_of_rank)};
}

std::vector<std::string> run_column_names() {
  std::vector<std::string> names;
  for (const RunColumn& column : columns()) names.push_back(column.name);
  return names;
}

RunColumn run_column(const std::string& name) {
  if (name.starts_with('/')) return {name, name, 4, at(name)};
  for (const RunColumn& column : columns()) {
    if (column.name == name) return column;
  }
  fail("unknown column \"{}\"; the nearest is \"{}\"; a path into metrics.json begins with /", name,
       nearest_key(name, run_column_names()));
}

std::string text_of(const Json& value, int digits) {
  if (value.is_null()) return "-";
  if (value.is_string()) return value.text();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number_integer()) return format_count(value.get<int64_t>());
  const double number = value.get<double>();
  const double size = std::abs(number);
  if (size >= 1e15) return fmt::format("{:.3e}", number);
  if (size >= 10'000 || (digits == 0 && size >= 1000)) return format_count(std::llround(number));
  // A small one would have no digits left.
  if (size > 0 && size * std::pow(10, digits) < 10 && number != std::round(number))
    return fmt::format("{:.3g}", number);
  return fmt::format("{:.{}f}", number, digits);
}

}  // namespace fsdp::tools
