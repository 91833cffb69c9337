// Contract: tools/plan/plan_report.h.
#include "tools/plan/plan_report.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/text/byte_size.h"
#include "core/text/counted.h"
#include "tools/config/config_values.h"
#include "tools/config/key_values.h"
#include "tools/plan/planned_job.h"
#include "tools/predict/machines.h"
#include "tools/predict/unit_table.h"
#include "tools/report/step_picture.h"
#include "tools/report/text_table.h"

namespace fsdp::tools {
namespace {

// That are not as by default of train.
std::vector<std::pair<std::string, std::string>> changed_keys(const config::TrainConfig& config) {
  const auto usual = config::key_values(config::TrainConfig{});
  auto out = config::key_values(config);
  // A plan has other defaults for some: they are said whatever they are.
  static const std::set<std::string> kSaid = {"train.dtype", "data.sequence_length", "train.batch"};
  std::erase_if(out, [&](const auto& pair) {
    return !kSaid.contains(pair.first) &&
           std::find(usual.begin(), usual.end(), pair) != usual.end();
  });
  return out;
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

// "hybrid_shard of 8, recompute full": what distinguishes the job from others of the plan.
std::string settings_text(const PlannedJob& job) {
  const config::TrainConfig& config = job.config;
  std::string out(comm::choice_name(config.fsdp.options.strategy));
  if (config.fsdp.shard_size > 0) out += fmt::format(" of {}", config.fsdp.shard_size);
  if (RecomputeMode mode = config.train.recompute.mode; mode != RecomputeMode::kNone) {
    out += fmt::format(", recompute {}",
                       config::Value(&mode, config::type_of<RecomputeMode>()).text());
  }
  if (config.fsdp.options.offload != comm::Offload::kNone) {
    out += fmt::format(", offload {}", comm::choice_name(config.fsdp.options.offload));
  }
  if (config.fsdp.prefetch_depth > 1) {
    out += fmt::format(", prefetch {}", config.fsdp.prefetch_depth);
  }
  return out;
}

std::string gib(size_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / (size_t{1} << 30));
}

std::string fits_text(const PlanQuestion& question, const PlannedJob& job) {
  const size_t most = memory_limit_of(question, job.gpus);
  return most == 0 ? "-" : job.peak_bytes <= most ? "yes" : "NO";
}

TextTable table_of(const Plan& plan) {
  const PlanQuestion& question = plan.question;
  TextTable table = {.heads = {"settings", "nodes", "GPUs", "rows x micro-steps", "step",
                               "tokens/s/GPU", "MFU", "waits", "GiB", "fits", "bound by"},
                     .rows = {}};
  if (question.failures_per_gpu_day > 0) {
    table.heads.insert(table.heads.end(), {"useful", "save every"});
    if (question.tokens > 0) table.heads.emplace_back("failures");
  }
  if (question.tokens > 0) table.heads.insert(table.heads.end(), {"days", "GPU hours"});
  if (question.tokens > 0 && question.price_per_gpu_hour > 0) table.heads.emplace_back("cost");
  for (const PlannedJob& job : plan.found.best) {
    std::vector<std::string> row = {settings_text(job),
                                    std::to_string(job.settings.nodes),
                                    std::to_string(job.gpus),
                                    job.shape,
                                    duration_text(job.step_s),
                                    fmt::format("{:.0f}", job.tokens_per_s_gpu()),
                                    job.mfu ? percent(*job.mfu) : "-",
                                    duration_text(job.shares.waiting_s()),
                                    gib(job.peak_bytes),
                                    fits_text(question, job),
                                    job.bound};
    if (question.failures_per_gpu_day > 0) {
      row.push_back(percent(job.useful_share));
      row.push_back(duration_text(*job.checkpoint_every_s));
      if (job.days) row.push_back(fmt::format("{:.3g}", job.failures));
    }
    if (job.days) {
      row.push_back(fmt::format("{:.3g}", *job.days));
      row.push_back(fmt::format("{:.0f}", *job.days * 24 * job.gpus));
    }
    if (job.cost) row.push_back(fmt::format("{:.0f}", *job.cost));
    table.rows.push_back(std::move(row));
  }
  return table;
}

// A line that all jobs have, once; a line of some jobs with their places in the table.
std::string format_warnings(const std::vector<PlannedJob>& jobs) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<size_t>> places;
  for (size_t i = 0; i < jobs.size(); ++i) {
    for (const std::string& warning : jobs[i].warnings) {
      if (!places.contains(warning)) order.push_back(warning);
      places[warning].push_back(i + 1);
    }
  }
  std::string out;
  for (const std::string& warning : order) {
    const std::vector<size_t>& rows = places[warning];
    out += rows.size() == jobs.size()
               ? fmt::format("note: {}\n", warning)
               : fmt::format("note: row {}: {}\n", fmt::join(rows, ", "), warning);
  }
  return out;
}

std::string format_search(const SearchResult& found) {
  std::string out = fmt::format("{} candidates: {} runs", found.candidates, found.runs);
  for (const auto& [why, count] : found.left_out) out += fmt::format("; {} {}", count, why);
  return out + "\n";
}

Json json_of(const PlanQuestion& question, const PlannedJob& job) {
  Json settings = Json::object(), warnings(Json::Array{});
  for (const auto& [key, value] : changed_keys(job.config)) settings[key] = value;
  const bool asks_failures = question.failures_per_gpu_day > 0;
  for (const std::string& warning : job.warnings) warnings.push_back(warning);
  const auto or_null = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json(nullptr);
  };
  const size_t most = memory_limit_of(question, job.gpus);
  const Json fits = most == 0 ? Json(nullptr) : Json(job.peak_bytes <= most);
  const StepShares& shares = job.shares;
  return {{"nodes", job.settings.nodes},
          {"gpus", job.gpus},
          {"config", settings},
          {"settings", settings_text(job)},
          {"step_s", job.step_s},
          {"tokens_per_step", job.tokens_per_step},
          {"tokens_per_s_gpu", job.tokens_per_s_gpu()},
          {"mfu", or_null(job.mfu)},
          {"exposed_s", shares.exposed_s()},
          {"waiting_s", shares.waiting_s()},
          {"shares",
           {{"products_s", shares.products_s},
            {"passes_s", shares.passes_s},
            {"gather_s", shares.gather_s},
            {"reduce_s", shares.reduce_s},
            {"transfer_s", shares.transfer_s},
            {"host_s", shares.host_s}}},
          {"latency_s", job.latency_s},
          {"peak_bytes", job.peak_bytes},
          {"fits", fits},
          {"host_bytes", job.host_bytes},
          {"bound", job.bound},
          {"days", or_null(job.days)},
          {"cost", or_null(job.cost)},
          {"failures", asks_failures ? Json(job.failures) : Json(nullptr)},
          {"useful_share", asks_failures ? Json(job.useful_share) : Json(nullptr)},
          {"checkpoint_s", job.checkpoint_s},
          {"checkpoint_every_s", or_null(job.checkpoint_every_s)},
          {"warnings", warnings}};
}

}  // namespace

std::string why_better(const PlannedJob& a, const PlannedJob& b, Best best) {
  struct Part {
    const char* what;
    double StepShares::*share;
  };
  constexpr std::array kParts = {
      Part{"in products and attention", &StepShares::products_s},
      Part{"in kernels that move memory", &StepShares::passes_s},
      Part{"waiting for gathers", &StepShares::gather_s},
      Part{"waiting for reductions", &StepShares::reduce_s},
      Part{"waiting for copies to and from the host", &StepShares::transfer_s},
      Part{"waiting for the host", &StepShares::host_s}};
  const double gpus = best == Best::kCheapest ? static_cast<double>(b.gpus) / a.gpus : 1;
  const double scale = gpus * a.tokens_per_step / b.tokens_per_step;
  std::vector<std::pair<double, const char*>> more;
  for (const Part& part : kParts) {
    more.emplace_back(b.shares.*part.share * scale - a.shares.*part.share, part.what);
  }
  std::stable_sort(more.begin(), more.end(), [](const auto& x, const auto& y) {
    return std::abs(x.first) > std::abs(y.first);
  });
  std::vector<std::string> texts;
  for (const auto& [seconds, what] : more) {
    if (std::abs(seconds) < 1e-3 * a.step_s) continue;
    texts.push_back(
        fmt::format("{}{} {}", seconds < 0 ? "-" : "+", duration_text(std::abs(seconds)), what));
  }
  return texts.empty() ? "the same within a thousandth of a step"
                       : fmt::format("{}", fmt::join(texts, ", "));
}

std::string short_yaml(const config::TrainConfig& config) {
  std::string out;
  std::vector<std::string> open;  // sections
  for (const auto& pair : changed_keys(config)) {
    std::vector<std::string> parts(1);
    for (const char c : pair.first) {
      if (c == '.') {
        parts.emplace_back();
      } else {
        parts.back() += c;
      }
    }
    const std::string name = parts.back();
    parts.pop_back();
    size_t same = 0;
    while (same < std::min(open.size(), parts.size()) && open[same] == parts[same]) ++same;
    for (size_t depth = same; depth < parts.size(); ++depth) {
      out += fmt::format("{:{}}{}:\n", "", 2 * depth, parts[depth]);
    }
    out += fmt::format("{:{}}{}: {}\n", "", 2 * parts.size(), name, pair.second);
    open = std::move(parts);
  }
  return out;
}

const std::vector<PlannedJob>& scaling_jobs(const Plan& plan) {
  return plan.found.of_nodes.empty() ? plan.found.best : plan.found.of_nodes;
}

std::string format_plan(const Plan& plan) {
  const PlanQuestion& question = plan.question;
  const std::vector<PlannedJob>& jobs = plan.found.best;
  std::string out = fmt::format("{}\non {}; {} in a node\n", plan.model, question.rates.machine,
                                question.rates.ranks_per_node);
  for (const std::string& note : plan.notes) out += "note: " + note + "\n";
  if (!question.rates.note.empty()) out += "note: " + question.rates.note + "\n";
  if (const std::string band = error_band(question.gpu); !band.empty()) {
    out += "note: " + band + "\n";
  }
  if (plan.searched) out += format_search(plan.found);
  if (jobs.empty()) return out + "nothing fits\n";
  out += "\n" + side_by_side(table_of(plan)) + format_warnings(jobs);
  if (const size_t most = memory_limit_of(question, jobs.front().gpus); most > 0) {
    out += fmt::format("memory: {} of a rank may be taken on {} ({} stay free)\n",
                       byte_size_text(most), question.gpu, percent(question.safety));
  }
  const bool fits = std::all_of(jobs.begin(), jobs.end(), [&](const PlannedJob& job) {
    return fits_text(question, job) != "NO";
  });
  if (!fits) out += "--search looks for settings with which the rest fits\n";
  if (plan.searched && jobs.size() > 1) {
    out += fmt::format("why the first: compared with it, a step of the second takes {}\n",
                       why_better(jobs[0], jobs[1], plan.best));
  }
  return out + fmt::format("\n# {} on {} GPUs\n{}",
                           plan.searched ? "the first" : "the configuration", jobs.front().gpus,
                           short_yaml(jobs.front().config));
}

Json plan_json(const Plan& plan) {
  Json rows(Json::Array{}), notes(Json::Array{}), scaling(Json::Array{}), left_out = Json::object();
  for (const PlannedJob& job : scaling_jobs(plan)) scaling.push_back(json_of(plan.question, job));
  for (const PlannedJob& job : plan.found.best) rows.push_back(json_of(plan.question, job));
  for (const std::string& note : plan.notes) notes.push_back(note);
  for (const auto& [why, count] : plan.found.left_out) left_out[why] = count;
  Json out = {{"plan", 1},
              {"model", plan.model},
              {"gpu", plan.question.gpu},
              {"machine", plan.question.rates.machine},
              {"note", plan.question.rates.note},
              {"error_band", error_band(plan.question.gpu)},
              {"notes", notes},
              {"rows", rows},
              {"scaling", scaling}};
  if (plan.searched) {
    out["candidates"] = plan.found.candidates;
    out["runs"] = plan.found.runs;
    out["left_out"] = left_out;
    if (plan.found.best.size() > 1) {
      out["why"] = why_better(plan.found.best[0], plan.found.best[1], plan.best);
    }
  }
  if (!plan.found.best.empty()) out["yaml"] = short_yaml(plan.found.best.front().config);
  return out;
}
namespace {

constexpr double kWidth = 560, kHeight = 320, kLeft = 70, kRight = 20, kTop = 20, kBottom = 44;

constexpr const char* kStyle =
    "<style>text{font:12px sans-serif;fill:#333}.axis{stroke:#999}.ideal{stroke:#999;"
    "stroke-dasharray:4 4;fill:none}.line{stroke:#1f6feb;fill:none;stroke-width:2}"
    ".point{fill:#1f6feb}@media (prefers-color-scheme:dark){text{fill:#ccc}}</style>";

// Positions for the logarithms between two values.
class Axis {
 public:
  Axis(double least, double most, double from, double to)
      : least_(std::log(least)), span_(std::log(most) - least_), from_(from), to_(to) {}
  double at(double value) const {
    return from_ + (to_ - from_) * (std::log(value) - least_) / span_;
  }

 private:
  double least_, span_, from_, to_;
};

std::string short_number(double value) {
  if (value >= 1e6) return fmt::format("{:.3g}M", value / 1e6);
  if (value >= 1e3) return fmt::format("{:.3g}k", value / 1e3);
  return fmt::format("{:.3g}", value);
}

std::vector<PlanPoint> one_each(std::vector<PlanPoint> points) {
  std::stable_sort(points.begin(), points.end(), [](const auto& a, const auto& b) {
    return std::pair(a.gpus, -a.tokens_per_s) < std::pair(b.gpus, -b.tokens_per_s);
  });
  const auto end = std::unique(points.begin(), points.end(),
                               [](const auto& a, const auto& b) { return a.gpus == b.gpus; });
  points.erase(end, points.end());
  return points;
}

}  // namespace

std::string scaling_plot(std::vector<PlanPoint> all) {
  const std::vector<PlanPoint> points = one_each(std::move(all));
  if (points.size() < 2) return "";
  const PlanPoint &first = points.front(), &last = points.back();
  const double ideal = first.tokens_per_s * last.gpus / first.gpus;
  double least = first.tokens_per_s, most = ideal;
  for (const PlanPoint& point : points) {
    least = std::min(least, point.tokens_per_s);
    most = std::max(most, point.tokens_per_s);
  }
  const Axis x(first.gpus, last.gpus, kLeft, kWidth - kRight);
  const Axis y(least / 1.1, most * 1.1, kHeight - kBottom, kTop);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" role=\"img\" aria-label=\"tokens per second over GPUs\">{2}",
      kWidth, kHeight, kStyle);
  out += fmt::format(
      "<line class=\"axis\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" "
      "y2=\"{1:.1f}\"/><line class=\"ideal\" x1=\"{3:.1f}\" y1=\"{4:.1f}\" "
      "x2=\"{5:.1f}\" y2=\"{6:.1f}\"/>",
      kLeft, kHeight - kBottom, kWidth - kRight, x.at(first.gpus), y.at(first.tokens_per_s),
      x.at(last.gpus), y.at(ideal));
  std::string line;
  for (const PlanPoint& point : points) {
    const double px = x.at(point.gpus), py = y.at(point.tokens_per_s);
    const double efficiency = point.tokens_per_s * first.gpus / (first.tokens_per_s * point.gpus);
    line += fmt::format("{:.1f},{:.1f} ", px, py);
    out += fmt::format(
        "<circle class=\"point\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"><title>{}"
        "</title></circle>",
        px, py, markup_text(point.label));
    out += fmt::format(
        "<text x=\"{0:.1f}\" y=\"{1:.1f}\" text-anchor=\"middle\">{2}</text>"
        "<text x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"{6}\">{4}, {5:.0f} %</text>",
        px, kHeight - kBottom + 16, point.gpus, py + 18, short_number(point.tokens_per_s),
        100 * efficiency, &point == &first ? "start" : "end");
  }
  return out + fmt::format(
                   "<polyline class=\"line\" points=\"{}\"/><text x=\"{:.0f}\" y=\"{:.0f}\" "
                   "text-anchor=\"middle\">GPUs</text><text x=\"8\" y=\"14\">tokens/s, and "
                   "what is left of the first job's tokens/s/GPU</text></svg>\n",
                   line, (kLeft + kWidth - kRight) / 2, kHeight - 8);
}

}  // namespace fsdp::tools
