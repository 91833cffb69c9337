// Contract: tools/page/plan_view.h.
#include "tools/page/plan_view.h"

#include <fmt/format.h>

#include "core/error.h"
#include "tools/page/html.h"
#include "tools/plan/plan_report.h"

namespace fsdp::tools {
namespace {

std::optional<double> number(const Json& row, const char* key) {
  const Json& value = row.at(key);
  return value.is_null() ? std::nullopt : std::optional(value.get<double>());
}

std::string table_html(const Json& rows) {
  HtmlTable table({"settings", "nodes", "GPUs", "step (s)", "tokens/s/GPU", "MFU (%)", "waits (s)",
                   "memory (MiB)", "bound by", "useful time (%)", "days", "cost"});
  for (const Json& row : rows) {
    const auto percent = [&](const char* key) {
      const auto share = number(row, key);
      return share ? std::optional(100 * *share) : share;
    };
    const auto bytes = number(row, "peak_bytes");
    const bool too_large = !row.at("fits").is_null() && !row.at("fits").get<bool>();
    Cell memory = mib_cell(bytes);
    if (too_large) memory.beside = "does not fit";
    table.row(
        row.at("settings").text(),
        {number_cell(number(row, "nodes"), 0), number_cell(number(row, "gpus"), 0),
         number_cell(number(row, "step_s"), 3), number_cell(number(row, "tokens_per_s_gpu"), 0),
         number_cell(percent("mfu"), 1), number_cell(number(row, "exposed_s"), 3), memory,
         text_cell(row.at("bound").text()), number_cell(percent("useful_share"), 1),
         number_cell(number(row, "days"), 1), number_cell(number(row, "cost"), 0)},
        too_large);
  }
  return table.html();
}

std::string plot_html(const Json& rows) {
  std::vector<PlanPoint> points;
  for (const Json& row : rows) {
    const int gpus = row.at("gpus").get<int>();
    points.push_back(
        {gpus, row.at("tokens_per_s_gpu").get<double>() * gpus, row.at("settings").text()});
  }
  return scaling_plot(std::move(points));
}

}  // namespace

PlanView read_plan_view(const std::filesystem::path& file) {
  PlanView view = {.file = file, .plan = read_json_file(file)};
  FSDP_CHECK(view.plan.is_object() && view.plan.contains("plan"),
             "{}: expected a folder of a run or a sweep, or what fsdp plan --json printed",
             file.string());
  try {
    plan_html(view);
  } catch (const JsonError& error) {
    fail("{}: is no plan of this version: {}", file.string(), error.what());
  }
  return view;
}

std::string plan_html(const PlanView& view) {
  const Json& plan = view.plan;
  std::string out =
      paragraph(fmt::format("{}, on {}", plan.at("model").text(), plan.at("machine").text()));
  for (const Json& each : plan.at("notes")) out += note(each.text());
  if (!plan.at("note").text().empty()) out += note(plan.at("note").text());
  out += table_html(plan.at("rows"));
  if (plan.contains("why")) {
    out += note("Beside the first, a step of the second takes " + plan.at("why").text() + ".");
  }
  for (const Json& row : plan.at("rows")) {
    for (const Json& warning : row.at("warnings")) {
      const std::string line = note(warning.text());
      if (out.find(line) == std::string::npos) out += line;
    }
  }
  out += plot_html(plan.at("scaling"));
  if (plan.contains("yaml")) {
    out += details("configuration of the first", preformatted(plan.at("yaml").text()), false);
  }
  return out;
}

}  // namespace fsdp::tools
