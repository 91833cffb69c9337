// Appending, and putting back what was written in part.
#include "tools/report/line_log.h"

#include <cerrno>
#include <system_error>

#include "core/error.h"
#include "core/io/file.h"

namespace fsdp::tools {

LineLog::LineLog(const std::filesystem::path& path) : path_(path), file_(path, std::ios::app) {
  if (!file_.good()) {
    const int code = errno;  // of the open beneath
    throw SystemError(fmt::format("{}: cannot be written: {}", path.string(),
                                  std::generic_category().message(code)),
                      code);
  }
  std::error_code unknown;
  written_ = std::filesystem::file_size(path, unknown);
}

void LineLog::append_record(std::string_view bytes) {
  if (path_.empty()) return;
  pending_ += bytes;
  ++lines_pending_;
  retry();
}

void LineLog::retry() {
  if (pending_.empty()) return;
  file_ << pending_ << std::flush;
  if (file_.good()) {
    written_ += pending_.size();
    pending_.clear();
    lines_pending_ = 0;
    return;
  }
  // A part of the line may be in the file.
  file_.close();
  file_.clear();
  std::error_code ignored;
  std::filesystem::resize_file(path_, written_, ignored);
  file_.open(path_, std::ios::app);
}

std::string LineLog::sync() {
  if (path_.empty()) return "";
  retry();
  try {
    sync_file(path_);
  } catch (const Error& error) {
    return error.what();
  }
  return problem();
}

std::string LineLog::problem() const {
  return lines_pending_ == 0
             ? ""
             : fmt::format("{}: {} line{} cannot be written; is the disk full?", path_.string(),
                           lines_pending_, lines_pending_ == 1 ? "" : "s");
}

}  // namespace fsdp::tools
