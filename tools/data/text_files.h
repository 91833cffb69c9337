// Which files data.train and data.validation name: a file, the texts of a folder, or the files that
// a pattern matches; and what else is in a folder. Not here: where a relative name is looked for
// (tools/train/train_data.h), what is in the files (text_source.h).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace fsdp::data {

// Whether a name that no file has is a pattern: it holds *, ? or [.
bool is_pattern(const std::string& name);

// Sorted by name; none when nothing is there. A file: itself. A folder: its files with an ending
// of text_format.h, but for those that describe the folder, not the files of its subfolders. A
// pattern, as of the shell: the files that match. Hidden files only where they are named. Error for
// a folder that cannot be read, and for **, which would match as one * does.
std::vector<std::string> files_named(const std::string& name);

// Files of a folder that would be data in another form, such as compressed ones and Parquet.
struct OtherFiles {
  size_t count = 0;
  std::string first;  // by name: "parts/a.parquet: expected a text of UTF-8, got ..."; or what the
                      // folder as a whole is
};
// Not a file that a text beside it was made of: b.jsonl.gz beside b.jsonl, c.parquet beside c.csv.
// Files that cannot be read are none. Error for a folder that cannot be read.
OtherFiles others_in(const std::string& folder);

}  // namespace fsdp::data
