// Cases of an experiment as rows of a table, each with the runs that it has had: for `fsdp sweep`,
// and for `fsdp compare`, where every run is a case. Which columns there are: run_columns.h.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/report/run_columns.h"
#include "tools/report/text_table.h"

namespace fsdp::tools {

enum class CaseStatus : uint8_t { kOpen, kRan, kRefused, kFailed };
std::string_view name_of(CaseStatus status);

struct CaseRow {
  std::string name;
  CaseStatus status = CaseStatus::kRan;
  std::string reason = {};  // of a case that was refused or has failed; of several lines
  int ranks = 0;
  bool oversubscribed = false;  // ranks wait for each other's cores: nothing is relative then
  std::vector<FinishedRun> runs = {};
  std::map<std::string, Json> known = {};  // columns that no run has
  std::vector<std::string> notes = {};     // for people
};

struct CaseTable {
  std::vector<RunColumn> columns;
  std::vector<CaseRow> rows;
  std::string baseline;  // the case that others are relative to
};

// Of each run; of a column that no run has, one value.
std::vector<Json> values_of(const CaseTable& table, const CaseRow& row, const RunColumn& column);

// For people: the cell of a row, "12.3 ±0.4", and all of them.
std::string cell_of(const CaseTable& table, const CaseRow& row, const RunColumn& column);
TextTable text_table(const CaseTable& table);
// A line each: which rows are oversubscribed, were refused, have failed, ...; what ± means.
std::vector<std::string> notes_of(const CaseTable& table);

// For programs: [{case, status, reason, ranks, oversubscribed, heads, cells, values, median,
// spread}], and the medians as CSV under the names of the columns. Heads and cells are the texts of
// text_table(). A spread is the distance of the farthest run from the median.
Json json_of(const CaseTable& table);
std::string csv_of(const CaseTable& table);

}  // namespace fsdp::tools
