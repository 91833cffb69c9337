// Contract: core/io/hub_files.h.
#include "core/io/hub_files.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include <fmt/ranges.h>

#include "core/error.h"
#include "core/io/file.h"

namespace fsdp {

namespace fs = std::filesystem;

bool is_named(const fs::path& file) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(file, error);
  if (status.type() == fs::file_type::none) {
    throw SystemError(fmt::format("{}: cannot inspect: {}", file.string(), error.message()),
                      error.value());
  }
  return fs::exists(status);
}

std::string broken_link(const fs::path& file) {
  std::error_code unreadable;
  if (!fs::is_symlink(file, unreadable) || fs::exists(file, unreadable)) return "";
  return fmt::format(
      "a link to {}, which is not there: the download was not complete, or a copy left it behind",
      fs::read_symlink(file, unreadable).string());
}

std::string stand_in(std::string_view text) {
  constexpr size_t kLongest = 200;
  if (text.starts_with("version https://git-lfs")) {
    return "a pointer of Git LFS, not the file: git lfs pull brings it";
  }
  if (!text.starts_with("../") || text.size() > kLongest || text.find("blobs/") == text.npos)
    return "";
  return fmt::format(
      "the text {} in the place of a link: the hub's cache was copied without its links; cp -L "
      "copies what they name",
      text);
}

namespace {

// By its name, or by what a cache has beside the snapshots: others have a folder snapshots, too.
bool is_of_cache(const fs::path& folder) {
  const auto has = [&](const char* name) { return is_folder(folder / name); };
  const fs::path named = folder.has_filename() ? folder : folder.parent_path();
  return has("snapshots") && !is_named(folder / "config.json") &&
         (named.filename().string().starts_with("models--") || has("blobs") || has("refs"));
}

}  // namespace

fs::path snapshot_in(const fs::path& folder) {
  if (!is_of_cache(folder)) return folder;
  const fs::path snapshots = folder / "snapshots";
  std::vector<std::string> found;
  for (const std::string& name : names_in(snapshots)) {
    if (is_folder(snapshots / name)) found.push_back((snapshots / name).string());
  }
  if (found.size() == 1) return found[0];
  const fs::path main = folder / "refs/main";
  const std::string of_main =
      is_there(main) ? (snapshots / read_file(main)).string() : "";  // no line end
  const bool named = std::find(found.begin(), found.end(), of_main) != found.end();
  FSDP_CHECK(!found.empty(), "{}: a folder of the hub's cache without a snapshot: {} is empty",
             folder.string(), snapshots.string());
  fail("{}: a folder of the hub's cache with {} snapshots; give one of them: {}{}", folder.string(),
       found.size(), fmt::join(found, ", "), named ? "; refs/main says " + of_main : "");
}

std::string how_to_fetch(const fs::path& missing) {
  const auto is_part = [](const std::string& text) {
    return !text.empty() && std::isalnum(static_cast<unsigned char>(text.front())) != 0 &&
           std::all_of(text.begin(), text.end(), [](unsigned char c) {
             return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
           });
  };
  const fs::path name = missing.has_filename() ? missing : missing.parent_path();
  const std::string organisation = name.parent_path().string(), model = name.filename().string();
  std::error_code unreadable;
  constexpr std::array kFiles = {".json", ".jsonl", ".safetensors", ".yaml", ".txt", ".model"};
  const bool is_file = std::find(kFiles.begin(), kFiles.end(), name.extension()) != kFiles.end();
  if (!is_part(organisation) || !is_part(model) || is_file || fs::exists(missing, unreadable))
    return "";
  // An --include for each pattern: of a list the command takes all but the first for files.
  return fmt::format(
      "; of a model on Hugging Face's hub, these two lines fetch it:\n"
      "  pip install --upgrade huggingface_hub\n"
      "  hf download {0}/{1} --local-dir {0}/{1} --include '*.json' --include '*.safetensors' "
      "--include '*.txt' --include '*.jinja' --include '*.md' --include 'LICENSE*'",
      organisation, model);
}

}  // namespace fsdp
