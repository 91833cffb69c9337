// Lines, cells, numbers.
#include "tools/plan/published_rows.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> cells_of(std::string line) {
  if (line.ends_with('\r')) line.pop_back();
  std::vector<std::string> out(1);
  for (const char c : line) {
    if (c == ',') {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  return out;
}

void check_columns(const std::vector<std::string>& heads, const std::string& where) {
  for (const std::string& head : heads) {
    FSDP_CHECK(std::find(kRowColumns.begin(), kRowColumns.end(), head) != kRowColumns.end(),
               "{}: column \"{}\" is not known; expected {}", where, head,
               fmt::join(kRowColumns, ","));
    FSDP_CHECK(std::count(heads.begin(), heads.end(), head) == 1, "{}: column {} is there twice",
               where, head);
  }
  for (const char* const column : kRowColumns) {
    FSDP_CHECK(std::find(heads.begin(), heads.end(), column) != heads.end(),
               "{}: column {} is missing", where, column);
  }
}

// The cells of a line by their column.
class Cells {
 public:
  Cells(const std::vector<std::string>& heads, std::vector<std::string> cells, std::string where)
      : where_(std::move(where)) {
    FSDP_CHECK(cells.size() == heads.size(), "{}: expected {} cells, got {}", where_, heads.size(),
               cells.size());
    for (size_t i = 0; i < heads.size(); ++i) cells_[heads[i]] = std::move(cells[i]);
  }

  // What a row cannot do without; the first column that is empty is noted.
  const std::string& text(const std::string& column) {
    const std::string& cell = cells_.at(column);
    if (cell.empty() && missing_.empty()) missing_ = column;
    return cell;
  }
  template <typename Number>
  Number number(const std::string& column) {
    const std::string& cell = text(column);
    if (cell.empty()) return 0;
    Number value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    FSDP_CHECK(error == std::errc() && end == cell.data() + cell.size() &&
                   (value > 0 || (value == 0 && column == "tied")),
               "{}: {}: expected a number above 0, got \"{}\"", where_, column, cell);
    return value;
  }
  const std::string& missing() const { return missing_; }

 private:
  std::string where_, missing_;
  std::map<std::string, std::string> cells_;
};

PublishedRow row_of(Cells cells, const std::string& file, int line) {
  PublishedRow row = {.set = cells.text("set"),
                      .machine = cells.text("machine"),
                      .gpus = cells.number<int>("gpus"),
                      .gpus_per_node = cells.number<int>("gpus_per_node"),
                      .layers = cells.number<int64_t>("layers"),
                      .hidden = cells.number<int64_t>("hidden"),
                      .heads = cells.number<int64_t>("heads"),
                      .kv_heads = cells.number<int64_t>("kv_heads"),
                      .ffn = cells.number<int64_t>("ffn"),
                      .vocab = cells.number<int64_t>("vocab"),
                      .tied = cells.number<int>("tied") != 0,
                      .seq = cells.number<int64_t>("seq"),
                      .micro_batch = cells.number<int64_t>("micro_batch"),
                      .accumulate = cells.number<int64_t>("accumulate"),
                      .strategy = cells.text("strategy"),
                      .param_dtype = cells.text("param_dtype"),
                      .reduce_dtype = cells.text("reduce_dtype"),
                      .recompute = cells.text("recompute"),
                      .shard_size = cells.number<int>("shard_size"),
                      .step_s = cells.number<double>("step_s"),
                      .file = file,
                      .line = line};
  if (!cells.missing().empty()) row.unusable = cells.missing() + " is not known";
  return row;
}

void read_file(const fs::path& path, std::vector<PublishedRow>& rows) {
  std::ifstream in(path);
  FSDP_CHECK(in.good(), "{}: cannot be read", path.string());
  const std::string file = path.filename().string();
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> heads = cells_of(line);
  check_columns(heads, fmt::format("{}:1", path.string()));
  for (int number = 2; std::getline(in, line); ++number) {
    const std::string where = fmt::format("{}:{}", path.string(), number);
    if (line.empty() || line == "\r") continue;
    FSDP_CHECK(line.find('"') == std::string::npos, "{}: quotes are not read", where);
    rows.push_back(row_of({heads, cells_of(line), where}, file, number));
  }
}

}  // namespace

std::string PublishedRow::place() const { return fmt::format("{}:{}", file, line); }

std::string PublishedRow::size() const {
  return fmt::format("{}, {} + {} heads, {}, {}", hidden, heads, kv_heads, ffn, vocab);
}

std::vector<PublishedRow> read_published_rows(const fs::path& path) {
  std::vector<fs::path> files;
  if (fs::is_directory(path)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
      if (entry.path().extension() == ".csv") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    FSDP_CHECK(!files.empty(), "{}: has no .csv file", path.string());
  } else {
    files = {path};
  }
  std::vector<PublishedRow> rows;
  for (const fs::path& file : files) read_file(file, rows);
  FSDP_CHECK(!rows.empty(), "{}: has no rows", path.string());
  return rows;
}

}  // namespace fsdp::tools
