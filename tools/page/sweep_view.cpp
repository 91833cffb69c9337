// Rows of table.json. Contract: tools/page/sweep_view.h; the file: tools/sweep/README.md.
#include "tools/page/sweep_view.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <set>

#include <fmt/ranges.h>

#include "core/error.h"
#include "core/io/file.h"
#include "tools/page/run_view.h"
#include "tools/report/finished_run.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

std::string text_in(const Json& row, const char* key) {
  const Json* found = row.find(key);
  return found && found->is_string() ? found->text() : "";
}

// "strategy=full_shard,ranks=2" becomes "strategy=full_shard".
std::string without_ranks(const std::string& name) {
  std::string out, part;
  for (size_t begin = 0; begin <= name.size(); begin += part.size() + 1) {
    part = name.substr(begin, name.find(',', begin) - begin);
    if (!part.starts_with("ranks=")) out += (out.empty() ? "" : ",") + part;
  }
  return out.empty() ? "all cases" : out;
}

// "F-B-2G" becomes "F-B-#G".
std::string without_numbers(const std::string& name) {
  std::string out;
  for (const char c : name) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!digit || !out.ends_with('#')) out += digit ? '#' : c;
  }
  return out;
}

// What the cases of a series have in common: all settings but those that may have to follow the
// ranks, all settings, the name. The first of these that leaves no two cases with the same ranks
// counts.
using Kinds = std::array<std::string, 3>;

Kinds kinds_of(const fs::path& folder, const std::string& name) {
  const fs::path file = folder / name / "case.yaml";
  if (!is_there(file)) {
    const std::string kind = without_ranks(name);
    return {kind == name ? without_numbers(name) : kind, name, name};
  }
  auto settings = read_settings(file);  // the ranks are none
  const std::string all = fmt::format("{}", settings);
  for (const char* key : {"train.batch", "fsdp.shard_size"}) settings.erase(key);
  return {fmt::format("{}", settings), all, name};
}

struct Speed {
  ScalingPoint point;
  Kinds kinds;
};

// The column of the sweep; without it the tokens of a second, beside those of the fewest ranks.
std::vector<Speed> speeds_of(const SweepView& view, const char* column) {
  std::vector<Speed> out;
  for (const Json& row : view.table) {
    const auto ranks = number_at(row, "/ranks");
    const auto value = number_at(row, fmt::format("/median/{}", column));
    const Json* crowded = row.find("oversubscribed");
    if (crowded && crowded->is_boolean() && crowded->get<bool>()) continue;
    const std::string name = text_in(row, "case");
    if (ranks && value && *ranks > 0 && *value > 0)
      out.push_back({{name, *ranks, *value}, kinds_of(view.folder, name)});
  }
  return out;
}

ScalingSeries series_of(const std::vector<Speed>& cases) {
  ScalingSeries out;
  for (const Speed& each : cases) out.points.push_back(each.point);
  std::stable_sort(out.points.begin(), out.points.end(),
                   [](const auto& a, const auto& b) { return a.ranks < b.ranks; });
  const std::string &first = out.points.front().name, &last = out.points.back().name;
  out.name = without_ranks(first);
  if (out.name != without_ranks(last)) out.name = first + " to " + last;
  return out;
}

void add_series(std::vector<ScalingSeries>& out, const std::vector<Speed>& cases, size_t kind) {
  std::vector<std::vector<Speed>> groups;
  for (const Speed& each : cases) {
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& known) {
      return known.front().kinds[kind] == each.kinds[kind];
    });
    if (group == groups.end())
      groups.push_back({each});
    else
      group->push_back(each);
  }
  for (const auto& group : groups) {
    std::set<double> ranks;
    for (const Speed& each : group) ranks.insert(each.point.ranks);
    if (ranks.size() == group.size() || kind + 1 == group.front().kinds.size())
      out.push_back(series_of(group));
    else
      add_series(out, group, kind + 1);
  }
}

void find_scaling(SweepView& view) {
  std::vector<Speed> speeds = speeds_of(view, "speed_up");
  if (speeds.empty()) {
    speeds = speeds_of(view, "tokens_per_s");
    if (speeds.empty()) return;
    const double least = std::min_element(speeds.begin(), speeds.end(), [](auto& a, auto& b) {
                           return a.point.ranks < b.point.ranks;
                         })->point.speed_up;
    for (Speed& each : speeds) each.point.speed_up /= least;
  }
  add_series(view.scaling, speeds, 0);
  const bool grows = std::any_of(view.scaling.begin(), view.scaling.end(),
                                 [](const auto& series) { return series.points.size() > 1; });
  if (!grows) view.scaling.clear();
  // The baseline is the case with a speed-up of 1.
  const auto from_one = [](const Speed& each) { return std::abs(each.point.speed_up - 1); };
  const auto one =
      std::min_element(speeds.begin(), speeds.end(),
                       [&](const auto& a, const auto& b) { return from_one(a) < from_one(b); });
  view.ideal = 1 / one->point.ranks;
}

// "failed: status 9: why"; "" for a case that has no reason.
std::string reason_of(const Json& row) {
  const std::string reason = text_in(row, "reason");
  return reason.empty() ? "" : text_in(row, "status") + ": " + reason;
}

}  // namespace

bool is_sweep_folder(const fs::path& folder) { return is_there(folder / "table.json"); }

SweepView read_sweep_view(const fs::path& folder) {
  const fs::path file = folder / "table.json";
  const std::string text = read_file(file);
  parse_json(text, file.string());  // names the file where the text is none
  SweepView view = {.folder = folder, .table = Json::parse(text), .runs = {}};
  FSDP_CHECK(view.table.is_array(), "{}: expected a list of cases, got {}", file.string(),
             view.table.type_name());
  for (const Json& row : view.table) {
    FSDP_CHECK(row.is_object() && !text_in(row, "case").empty() && row.contains("status"),
               "{}: expected an object with \"case\" and \"status\", got {:.60}", file.string(),
               row.dump());
    const fs::path run = folder / text_in(row, "case") / "run1";
    if (!is_run_folder(run)) continue;
    view.runs.push_back(run);
    view.ends[run] = reason_of(row);
  }
  find_scaling(view);
  return view;
}

}  // namespace fsdp::tools
