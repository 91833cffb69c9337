// Contract: tools/report/case_table.h.
#include "tools/report/case_table.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fsdp::tools {
namespace {

struct Middle {
  Json median;  // of texts that are all the same, the text
  Json spread;  // null where nothing is repeated, and of texts
};

Middle middle_of(const std::vector<Json>& values) {
  std::vector<double> numbers;
  for (const Json& value : values) {
    if (value.is_number()) numbers.push_back(value.get<double>());
  }
  if (numbers.empty()) {
    const bool same = !values.empty() && std::all_of(values.begin(), values.end(), [&](auto& each) {
      return each == values.front();
    });
    return {.median = same ? values.front() : Json(), .spread = Json()};
  }
  if (values.size() == 1) return {.median = values.front(), .spread = Json()};
  Middle out;
  const double middle = median(numbers);
  double farthest = 0;
  for (const double each : numbers) farthest = std::max(farthest, std::abs(each - middle));
  const bool whole = std::all_of(values.begin(), values.end(), [&](const Json& each) {
    return each.is_number_integer() && each == values.front();
  });
  out.median = whole ? values.front() : Json(middle);
  out.spread = Json(farthest);
  return out;
}

const CaseRow* baseline_row(const CaseTable& table) {
  for (const CaseRow& row : table.rows) {
    if (row.name == table.baseline) return &row;
  }
  return nullptr;
}

bool is_relative(const CaseTable& table) {
  return std::any_of(table.columns.begin(), table.columns.end(),
                     [](const RunColumn& column) { return column.relative != nullptr; });
}

std::string names_of(const CaseTable& table, const std::function<bool(const CaseRow&)>& which) {
  std::vector<std::string> names;
  for (const CaseRow& row : table.rows) {
    if (which(row)) names.push_back(row.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string_view status_of(const CaseRow& row) {
  return row.oversubscribed && row.status == CaseStatus::kRan ? "oversubscribed"
                                                              : name_of(row.status);
}

// The first line, and of a refusal the first thing with which the run would have fitted.
std::string short_reason(const std::string& reason) {
  std::string out = reason.substr(0, reason.find('\n'));
  const size_t fits = reason.find("\n  fits with ");
  if (fits != std::string::npos) {
    out += "; " + reason.substr(fits + 3, reason.find('\n', fits + 1) - fits - 3);
  }
  return out;
}

// A path may be a wrong one; of the other columns it is known what they need.
bool is_in_no_run(const CaseTable& table, const RunColumn& column) {
  bool any = false;
  for (const CaseRow& row : table.rows) {
    for (const Json& value : values_of(table, row, column)) {
      if (!value.is_null()) return false;
      any = true;
    }
  }
  return any && column.name.starts_with('/');
}

std::string in_csv(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

}  // namespace

std::string_view name_of(CaseStatus status) {
  constexpr std::string_view kNames[] = {"open", "ran", "refused", "failed"};
  return kNames[static_cast<size_t>(status)];
}

std::vector<Json> values_of(const CaseTable& table, const CaseRow& row, const RunColumn& column) {
  if (const auto known = row.known.find(column.name); known != row.known.end())
    return {known->second};
  std::vector<Json> values;
  if (column.value) {
    for (const FinishedRun& run : row.runs) values.push_back(column.value(run));
  }
  const CaseRow* const base = baseline_row(table);
  const bool comparable = base && !base->runs.empty() && !base->oversubscribed;
  if (column.relative && comparable && !row.oversubscribed) {
    const Baseline baseline = baseline_of(base->runs);
    for (const FinishedRun& run : row.runs) values.push_back(column.relative(run, baseline));
  }
  return values;
}

std::string cell_of(const CaseTable& table, const CaseRow& row, const RunColumn& column) {
  const Middle middle = middle_of(values_of(table, row, column));
  const std::string text = text_of(middle.median, column.digits);
  const bool spreads = middle.spread.is_number() && middle.spread.get<double>() > 0;
  return spreads ? fmt::format("{} ±{}", text, text_of(middle.spread, column.digits)) : text;
}

TextTable text_table(const CaseTable& table) {
  TextTable out = {.heads = {"case", "ranks"}, .rows = {}};
  for (const RunColumn& column : table.columns) out.heads.push_back(column.head);
  const bool all_ran = std::all_of(table.rows.begin(), table.rows.end(), [](const CaseRow& row) {
    return row.status == CaseStatus::kRan && !row.oversubscribed;
  });
  if (!all_ran) out.heads.emplace_back("status");
  for (const CaseRow& row : table.rows) {
    auto& cells = out.rows.emplace_back(std::vector{row.name, std::to_string(row.ranks)});
    for (const RunColumn& column : table.columns) cells.push_back(cell_of(table, row, column));
    if (!all_ran) cells.emplace_back(status_of(row));
  }
  return out;
}

std::vector<std::string> notes_of(const CaseTable& table) {
  std::vector<std::string> notes;
  const std::string crowded =
      names_of(table, [](const CaseRow& row) { return row.oversubscribed; });
  if (!crowded.empty()) {
    notes.push_back("oversubscribed (more ranks than cores), so without speed-up and efficiency: " +
                    crowded);
  }
  const CaseRow* const base = baseline_row(table);
  if (is_relative(table) && base) {
    const std::string why = !base->runs.empty()                   ? ""
                            : base->status == CaseStatus::kOpen   ? ", which has not run"
                            : base->status == CaseStatus::kFailed ? ", which has failed"
                                                                  : ", which was refused";
    notes.push_back(fmt::format("speed-up and efficiency are relative to {}{}", base->name, why));
  }
  const bool repeats = std::any_of(table.rows.begin(), table.rows.end(),
                                   [](const CaseRow& row) { return row.runs.size() > 1; });
  if (repeats)
    notes.push_back("medians of the runs; ±: how far the farthest run is from the median");
  for (const RunColumn& column : table.columns) {
    if (is_in_no_run(table, column)) {
      notes.push_back(fmt::format("{}: no run has a value at this path", column.name));
    }
  }
  for (const CaseRow& row : table.rows) {
    if (!row.reason.empty()) {
      notes.push_back(
          fmt::format("{}: {}: {}", row.name, name_of(row.status), short_reason(row.reason)));
    }
    for (const std::string& note : row.notes)
      notes.push_back(fmt::format("{}: {}", row.name, note));
  }
  return notes;
}

Json json_of(const CaseTable& table) {
  Json out = Json::array();
  for (const CaseRow& row : table.rows) {
    Json heads = Json::object(), cells = Json::object(), values = Json::object(),
         middles = Json::object(), spreads = Json::object();
    for (const RunColumn& column : table.columns) {
      const std::vector<Json> all = values_of(table, row, column);
      const Middle middle = middle_of(all);
      heads[column.name] = column.head;
      cells[column.name] = cell_of(table, row, column);
      values[column.name] = Json(Json::Array(all.begin(), all.end()));
      middles[column.name] = middle.median;
      spreads[column.name] = middle.spread;
    }
    out.push_back({{"case", row.name},
                   {"status", name_of(row.status)},
                   {"reason", row.reason},
                   {"ranks", row.ranks},
                   {"oversubscribed", row.oversubscribed},
                   {"heads", heads},
                   {"cells", cells},
                   {"values", values},
                   {"median", middles},
                   {"spread", spreads}});
  }
  return out;
}

std::string csv_of(const CaseTable& table) {
  std::string out = "case,ranks,status";
  for (const RunColumn& column : table.columns) out += "," + in_csv(column.name);
  out += '\n';
  for (const CaseRow& row : table.rows) {
    out += fmt::format("{},{},{}", in_csv(row.name), row.ranks, status_of(row));
    for (const RunColumn& column : table.columns) {
      const Json middle = middle_of(values_of(table, row, column)).median;
      const std::string text = middle.is_null()     ? ""
                               : middle.is_string() ? middle.text()
                                                    : middle.dump();
      out += "," + in_csv(text);
    }
    out += '\n';
  }
  return out;
}

}  // namespace fsdp::tools
