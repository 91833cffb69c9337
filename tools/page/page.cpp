// The sections in their order, and what is around them. Contract: tools/page/page.h.
#include "tools/page/page.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"
#include "core/io/file.h"
#include "tools/page/comparison_sections.h"
#include "tools/page/html.h"
#include "tools/page/page_data.h"
#include "tools/page/page_files.h"
#include "tools/page/run_sections.h"
#include "tools/report/source_commit.h"
#include "tools/report/svg_canvas.h"

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

std::string title_of(const Report& report) {
  std::string out;
  const auto add = [&](const std::string& name) { out += (out.empty() ? "" : ", ") + name; };
  for (const SweepView& sweep : report.sweeps) add(distinct_names({sweep.folder}).front());
  for (const RunView& run : report.runs) {
    if (report.sweeps.empty()) add(run.name);
  }
  for (const PlanView& plan : report.plans) add(plan.file.stem().string());
  constexpr size_t kMost = 100;
  return text_cell(out, kMost).text;
}

std::string sweeps_html(const Report& report) {
  std::string out;
  for (size_t i = 0; i < report.sweeps.size(); ++i) {
    const SweepView& sweep = report.sweeps[i];
    out += paragraph(sweep.folder.string()) + sweep_html(sweep);
    out +=
        sweep.scaling.empty()
            ? note(
                  "No scaling plot: no two cases that differ in their number of ranks alone have a "
                  "speed-up or tokens/s.")
            : fmt::format(
                  "<div class=\"plots\"><div class=\"plot\" data-sweep=\"{}\">"
                  "<h3>speed-up over ranks</h3></div></div>\n",
                  i);
  }
  return out;
}

std::string plans_html(const Report& report) {
  std::string out;
  for (const PlanView& plan : report.plans) out += paragraph(plan.file.string()) + plan_html(plan);
  return out;
}

template <typename Html>
std::string of_each_run(const Report& report, Html&& html) {
  constexpr size_t kOpen = 2;
  std::string out;
  size_t shown = 0;
  for (const RunView& run : report.runs) {
    out += report.runs.size() == 1 ? html(run) : details(run.name, html(run), shown++ < kOpen);
  }
  return out;
}

struct Section {
  const char* id;
  const char* title;
  std::string html;
};

std::vector<Section> sections_of(const Report& report, double now) {
  const auto& runs = report.runs;
  std::vector<Section> out;
  if (!report.plans.empty()) out.push_back({"plan", "Plan", plans_html(report)});
  if (!report.sweeps.empty()) out.push_back({"sweep", "Sweep", sweeps_html(report)});
  if (runs.empty()) return out;
  PageRoom memory, timelines;
  const auto each = [&](auto&& html) { return of_each_run(report, html); };
  out.push_back({"outcome", "Outcome", outcome_html(runs, now)});
  out.push_back({"curves", "Curves", curves_html(runs)});
  out.push_back({"memory", "Memory", each([&](auto& run) { return memory_html(run, memory); })});
  out.push_back({"timeline", "Timeline of a step",
                 each([&](auto& run) { return timeline_html(run, timelines); })});
  out.push_back({"units", "Units", each(units_html)});
  out.push_back({"collectives", "Collectives", each(collectives_html)});
  out.push_back({"costs", "Lost time, restarts, checkpoints", costs_html(runs)});
  out.push_back({"settings", "Configuration", settings_html(runs)});
  return out;
}

std::string body_of(const Report& report, double now) {
  std::string links, sections;
  for (const auto& [id, title, html] : sections_of(report, now)) {
    links += fmt::format("<a href=\"#{}\">{}</a>\n", id, title);
    sections += section(id, title, html);
  }
  if (report.runs.empty() && !report.sweeps.empty())
    sections += note("No run of the sweep has begun.");
  return "<nav>" + links + "</nav>\n" + sections;
}

std::string left_out_html(const Report& report) {
  std::string out;
  for (const fs::path& run : report.left_out) out += note(run.string());
  return out.empty() ? ""
                     : details(fmt::format("{} runs are left out: a page has at most {}",
                                           report.left_out.size(), kMostRuns),
                               out, false);
}

}  // namespace

Report read_report(const std::vector<fs::path>& folders) {
  Report out;
  std::vector<fs::path> own, of_sweeps;
  std::map<fs::path, std::string> ends;
  for (const fs::path& folder : folders) {
    if (is_there(folder) && !is_folder(folder)) {
      out.plans.push_back(read_plan_view(folder));
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

std::string page_html(const Report& report, double now) {
  const std::string title = markup_text(title_of(report));
  std::string out(kBegin);
  out += kHead;
  out += fmt::format("<title>{}</title>\n<style>{}\n{}</style></head>\n<body><main>\n<h1>{}</h1>\n",
                     title, uplot_style(), page_style(), title);
  out += body_of(report, now) + left_out_html(report);
  out += note("Made by fsdp report, " + source_commit() + ".") + "</main>\n";
  out += "<script type=\"application/json\" id=\"data\">" +
         script_text(page_data(report.runs, report.sweeps)) + "</script>\n";
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
  FSDP_CHECK(begin == kBegin, "{}: is there already, and no page of fsdp report; give another name",
             path.string());
}

}  // namespace fsdp::tools
