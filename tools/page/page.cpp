// Which files make a page, and the frame around its JSON. Contract: tools/page/page.h.
#include "tools/page/page.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"
#include "core/io/file.h"
#include "tools/page/page_data.h"
#include "tools/page/page_files.h"
#include "tools/report/run_reader.h"
#include "tools/report/step_picture.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

// By which check_page_path() knows a page again.
constexpr std::string_view kBegin = "<!DOCTYPE html>\n<!-- made by fsdp report -->\n";

// Nothing is fetched, whatever a name or a setting holds.
constexpr std::string_view kHead = R"html(<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
)html";

std::string title_of(const RunsReport& report) {
  std::string out;
  const auto add = [&](const std::string& name) { out += (out.empty() ? "" : ", ") + name; };
  for (const SweepView& sweep : report.sweeps) add(distinct_names({sweep.folder}).front());
  for (const RunView& run : report.runs) {
    if (report.sweeps.empty()) add(run.name);
  }
  for (const PlanView& plan : report.plans) add(plan.file.stem().string());
  constexpr size_t kMost = 100;  // bytes
  size_t end = std::min(kMost, out.size());
  while (end < out.size() && (static_cast<unsigned char>(out[end]) & 0xc0) == 0x80) --end;
  return end < out.size() ? out.substr(0, end) + "..." : out;
}

// "failed: status 9: why"; "" for a case that has no reason.
std::string reason_of(const Json& row) {
  const std::string reason = text_at(row, "reason");
  return reason.empty() ? "" : text_at(row, "status") + ": " + reason;
}

bool is_sweep_folder(const fs::path& folder) { return is_there(folder / "table.json"); }

// Error for a table that is not one of a sweep.
SweepView read_sweep_view(const fs::path& folder) {
  const fs::path file = folder / "table.json";
  const std::string text = read_file(file);
  parse_json(text, file.string());  // names the file where the text is none
  SweepView view = {.folder = folder, .table = Json::parse(text), .runs = {}};
  FSDP_CHECK(view.table.is_array(), "{}: expected a list of cases, got {}", file.string(),
             view.table.type_name());
  for (const Json& row : view.table) {
    FSDP_CHECK(row.is_object() && !text_at(row, "case").empty() && row.contains("status"),
               "{}: expected an object with \"case\" and \"status\", got {:.60}", file.string(),
               row.dump());
    const fs::path of_case = folder / text_at(row, "case"), run = of_case / "run1";
    if (is_there(of_case / "case.yaml"))
      view.settings[text_at(row, "case")] = read_settings(of_case / "case.yaml");
    if (!is_run_folder(run)) continue;
    view.runs.push_back(run);
    view.ends[run] = reason_of(row);
  }
  return view;
}

// Error for a file that is none of `fsdp plan --json`, or one of another version: page.js reads
// these keys.
PlanView read_plan(const fs::path& file) {
  PlanView view = {.file = file, .plan = read_json_file(file)};
  FSDP_CHECK(view.plan.is_object() && view.plan.contains("plan"),
             "{}: expected a folder of a run or a sweep, or what fsdp plan --json printed",
             file.string());
  try {
    for (const char* key : {"notes", "rows", "scaling"}) {
      FSDP_CHECK(view.plan.at(key).is_array(),
                 "{}: is no plan of this version: {}: expected an array", file.string(), key);
    }
    for (const char* key : {"model", "machine", "note"}) view.plan.at(key).text();
    for (const Json& each : view.plan.at("notes")) each.text();
    for (const Json& row : view.plan.at("rows")) {
      for (const char* key : {"settings", "bound"}) row.at(key).text();
      for (const char* key : {"nodes", "gpus", "step_s", "tokens_per_s_gpu", "mfu", "exposed_s",
                              "peak_bytes", "useful_share", "days", "cost"}) {
        if (!row.at(key).is_null()) row.at(key).get<double>();
      }
      if (!row.at("fits").is_null()) row.at("fits").get<bool>();
      for (const Json& warning : row.at("warnings")) warning.text();
    }
    plan_svg(view.plan);
  } catch (const JsonError& error) {
    fail("{}: is no plan of this version: {}", file.string(), error.what());
  }
  return view;
}

}  // namespace

RunsReport read_report(const std::vector<fs::path>& folders) {
  RunsReport out;
  std::vector<fs::path> own, of_sweeps;
  std::map<fs::path, std::string> ends;
  for (const fs::path& folder : folders) {
    if (is_there(folder) && !is_folder(folder)) {
      out.plans.push_back(read_plan(folder));
      continue;
    }
    FSDP_CHECK(fs::is_directory(folder), "{}: no such folder", folder.string());
    if (!is_sweep_folder(folder)) {
      own.push_back(folder);
      continue;
    }
    out.sweeps.push_back(read_sweep_view(folder));
    const auto& runs = out.sweeps.back().runs;
    of_sweeps.insert(of_sweeps.end(), runs.begin(), runs.end());
    ends.insert(out.sweeps.back().ends.begin(), out.sweeps.back().ends.end());
  }
  FSDP_CHECK(own.size() <= kMostRuns, "report: expected at most {} run directories, got {}",
             kMostRuns, own.size());
  const auto fitting = static_cast<int64_t>(std::min(kMostRuns - own.size(), of_sweeps.size()));
  out.left_out.assign(of_sweeps.begin() + fitting, of_sweeps.end());
  of_sweeps.erase(of_sweeps.begin() + fitting, of_sweeps.end());
  std::vector<fs::path> named = own;  // a run of a sweep after its case
  for (const fs::path& run : of_sweeps) named.push_back(run.parent_path());
  const std::vector<std::string> names = distinct_names(named);
  own.insert(own.end(), of_sweeps.begin(), of_sweeps.end());
  for (size_t i = 0; i < own.size(); ++i) {
    out.runs.push_back(read_run_view(own[i]));
    out.runs.back().name = names[i];
    out.runs.back().end_in_sweep = ends[own[i]];
  }
  return out;
}

std::string page_html(const RunsReport& report, double now) {
  const std::string title = markup_text(title_of(report));
  std::string out(kBegin);
  out += kHead;
  out += fmt::format("<title>{}</title>\n<style>{}\n{}</style></head>\n<body><main>\n<h1>{}</h1>\n",
                     title, uplot_style(), page_style(), title);
  out +=
      "<noscript><p>This page needs JavaScript, which makes its tables and curves of the JSON in "
      "its element \"data\".</p></noscript>\n</main>\n";
  out += "<script type=\"application/json\" id=\"data\">" + script_text(page_data(report, now)) +
         "</script>\n";
  return out + fmt::format("<script>{}</script>\n<script>{}</script>\n</body></html>\n",
                           uplot_script(), page_script());
}

void check_page_path(const fs::path& path) {
  if (!is_there(path)) return;
  FSDP_CHECK(!is_folder(path), "{}: is a folder; expected the name of a file for the page",
             path.string());
  const ReadableFile file(path);
  std::string begin(std::min(kBegin.size(), file.size()), '\0');
  file.read_at(0, begin.data(), begin.size());
  FSDP_CHECK(begin == kBegin,
             "{}: exists already and is not a page of fsdp report; give another name",
             path.string());
}

}  // namespace fsdp::tools
