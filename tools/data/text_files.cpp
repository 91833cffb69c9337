// Folders by std::filesystem, patterns by the system's glob().
#include "tools/data/text_files.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <set>

#include <fmt/ranges.h>
#include <glob.h>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/patience.h"
#include "core/text/shell_word.h"
#include "tools/data/text_format.h"

namespace fsdp::data {
namespace {

namespace fs = std::filesystem;

// What nobody may look at is none.
bool is_folder(const fs::path& path) {
  try {
    return fsdp::is_folder(path);
  } catch (const SystemError& error) {
    if (is_of_machine(error)) throw;
    return false;
  }
}

// What Hugging Face datasets writes beside data.
bool describes_folder(const std::string& name) {
  return name == "dataset_info.json" || name == "dataset_infos.json" ||
         name == "dataset_dict.json" || name == "state.json";
}

std::vector<fs::path> files_of_folder(const fs::path& folder) {
  if (!is_folder(folder))
    fail_missing(folder.string() + ": cannot read the folder: it is not there");
  std::vector<fs::path> out;
  for (const std::string& name : names_in(folder)) {
    if (!name.starts_with('.') && !is_folder(folder / name)) out.push_back(folder / name);
  }
  return out;
}

std::vector<std::string> texts_of_folder(const fs::path& folder) {
  std::vector<std::string> out;
  for (const fs::path& file : files_of_folder(folder)) {
    const std::string name = file.filename().string();
    if (has_data_ending(name) && !describes_folder(name)) out.push_back(file.string());
  }
  return out;
}

// What the file is, where it is no text; "": a text, or nobody can tell.
std::string kind_of(const fs::path& file) {
  std::error_code unreadable;
  if (!fs::is_regular_file(file, unreadable)) return "";
  try {
    return other_kind(MappedFile(file));
  } catch (const SystemError& error) {
    if (is_of_machine(error)) throw;
    return "";
  } catch (const Error&) {
    return "";
  }
}

// What datasets' save_to_disk has written here; "": nothing.
std::string saved_dataset(const fs::path& folder) {
  std::error_code unreadable;
  const fs::path splits = folder / "dataset_dict.json";
  std::set<std::string> parts;
  if (fs::exists(splits, unreadable)) {
    for (const auto& item : fs::directory_iterator(folder, unreadable)) {
      if (fs::exists(item.path() / "state.json", unreadable)) {
        parts.insert(item.path().filename().string());
      }
    }
  } else if (!fs::exists(folder / "state.json", unreadable)) {
    return "";
  }
  const std::string which = parts.contains("train") || parts.empty() ? "train" : *parts.begin();
  const fs::path saved = ((parts.empty() ? folder : folder / which) / "").parent_path();
  return fmt::format(
      "{}: a data set{}{} that datasets' save_to_disk wrote; convert it: python3 -c 'import sys, "
      "datasets as d; d.load_from_disk(sys.argv[1]).to_json(sys.argv[2])' {} {}",
      folder.string(), parts.empty() ? "" : " with ", fmt::join(parts, ", "),
      shell_word(saved.string()), shell_word(saved.string() + ".jsonl"));
}

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  const std::unique_ptr<glob_t, decltype(&::globfree)> free(&found, &::globfree);
  // What it may not read a person may have meant; after other errors it would find too little.
  const auto ends = [](const char*, int error) { return int{is_of_machine(error)}; };
  const int status = ::glob(pattern.c_str(), GLOB_NOSORT, ends, &found);
  if (status == GLOB_ABORTED) {
    throw SystemError(fmt::format("{}: the pattern cannot be looked up", pattern), EIO);
  }
  FSDP_CHECK(status == 0 || status == GLOB_NOMATCH, "{}: the pattern cannot be looked up", pattern);
  std::vector<std::string> out;
  for (size_t i = 0; i < found.gl_pathc; ++i) {
    if (!is_folder(found.gl_pathv[i])) out.emplace_back(found.gl_pathv[i]);
  }
  return out;
}

}  // namespace

bool is_pattern(const std::string& name) { return name.find_first_of("*?[") != std::string::npos; }

std::vector<std::string> files_named(const std::string& name) {
  std::vector<std::string> out;
  if (is_folder(name)) {
    out = texts_of_folder(name);
  } else if (is_there(name)) {
    out = {name};
  } else if (is_pattern(name)) {
    FSDP_CHECK(name.find("**") == std::string::npos,
               "{}: expected a pattern without **: * matches names in one folder; several folders "
               "take a pattern each",
               name);
    out = matches(name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

OtherFiles others_in(const std::string& folder) {
  OtherFiles out;
  const std::vector<fs::path> files = files_of_folder(folder);
  std::set<fs::path> texts;  // their names with and without the ending
  for (const fs::path& file : files) {
    if (has_data_ending(file)) texts.insert({file.filename(), file.stem()});
  }
  for (const fs::path& file : files) {
    if (texts.contains(file.filename()) || texts.contains(file.stem())) continue;
    const std::string kind = kind_of(file);
    if (!kind.empty() && ++out.count == 1) out.first = fmt::format("{}: {}", file.string(), kind);
  }
  if (std::string saved = saved_dataset(folder); !saved.empty()) {
    out = {.count = std::max<size_t>(out.count, 1), .first = std::move(saved)};
  }
  return out;
}

}  // namespace fsdp::data
