// First where all rows are, then the rows that the permutation begins with.
#include "tools/data/row_subset.h"

#include <algorithm>
#include <deque>

#include "core/error.h"
#include "tools/data/permutations.h"

namespace fsdp::data {

std::vector<SkippedRow> for_each_row_of(const RowSubset& subset,
                                        const std::vector<std::filesystem::path>& files,
                                        const TextOptions& given, const UseDocument& use) {
  TextOptions options = given;
  options.row_template = given.template_of_rows();
  for (const auto& file : files) {
    FSDP_CHECK(has_rows(file, options),
               "{}.n: expected files of rows (of JSON or a table), got {}, a text without rows",
               subset.key, file.string());
  }
  std::vector<RowPlace> places;  // of the rows of all files
  // For each file, how many rows it and the files before it have.
  std::vector<size_t> ends(files.size());
  const auto skipped = for_each_document(files, options, [&](const Document& document) {
    places.push_back(document.place);
    ends[document.file_number] = places.size();
  });
  for (size_t i = 1; i < ends.size(); ++i) ends[i] = std::max(ends[i], ends[i - 1]);
  const auto rows = static_cast<int64_t>(places.size());
  FSDP_CHECK(subset.n >= 1 && subset.n <= rows, "{}.n: expected 1 to {}, the rows of {}{}, got {}",
             subset.key, rows, files[0].string(),
             files.size() > 1 ? fmt::format(" and {} more files", files.size() - 1) : "", subset.n);
  std::deque<MappedFile> mapped;
  for (const auto& file : files) mapped.emplace_back(file);
  const std::vector<int64_t> order = numpy_permutation(rows, subset.seed);
  for (size_t i = 0; i < static_cast<size_t>(subset.n); ++i) {
    const auto row = static_cast<size_t>(order[i]);
    const auto file = std::upper_bound(ends.begin(), ends.end(), row) - ends.begin();
    const RowParts parts = document_at(mapped[static_cast<size_t>(file)], places[row], options);
    use({.text = parts.text,
         .cue = parts.cue,
         .answer = parts.answer,
         .place = places[row],
         .file_number = static_cast<size_t>(file),
         .chat = parts.chat.get()});
  }
  return skipped;
}

}  // namespace fsdp::data
