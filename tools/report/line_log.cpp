// Appending, and putting back what was written in part.
#include "tools/report/line_log.h"

#include <cerrno>
#include <system_error>

#include "core/error.h"
#include "core/io/file.h"
#include "core/text/counted.h"

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
  if (!unknown) return;
  throw SystemError(fmt::format("{}: {}", path.string(), unknown.message()), unknown.value());
}

void LineLog::append_record(std::string_view bytes) {
  if (path_.empty()) return;
  pending_.emplace_back(bytes);
  bytes_pending_ += bytes.size();
  for (; bytes_pending_ > kMostPending && pending_.size() > 1; ++lines_lost_) {
    bytes_pending_ -= pending_.front().size();
    pending_.pop_front();
  }
  retry();
}

void LineLog::retry() {
  while (!pending_.empty()) {
    file_ << pending_.front() << std::flush;
    if (!file_.good()) return reopen();
    written_ += pending_.front().size();
    bytes_pending_ -= pending_.front().size();
    pending_.pop_front();
  }
}

// A part of the line may be in the file, and a file that is gone has no lines. A look that fails
// says neither: what is known stays. More than this process can have written is never cut.
void LineLog::reopen() {
  file_.close();  // may write the line once more
  file_.clear();
  const uintmax_t in_part = pending_.empty() ? 0 : 2 * pending_.front().size();
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path_, error);
  if (error == std::errc::no_such_file_or_directory) written_ = 0;
  if (!error && size > written_ && size - written_ <= in_part)
    std::filesystem::resize_file(path_, written_, error);
  else if (!error)
    written_ = size;
  file_.open(path_, std::ios::app);
}

std::string LineLog::sync() {
  if (path_.empty()) return "";
  retry();
  try {
    sync_file(path_);
    sync_problem_.clear();
  } catch (const Error& error) {
    sync_problem_ = error.what();
    std::error_code unknown;
    if (!std::filesystem::exists(path_, unknown) && !unknown) reopen();
  }
  return problem();
}

std::string LineLog::problem() const {
  const std::string lost =
      lines_lost_ == 0 ? "" : counted(lines_lost_, "earlier line") + " are lost";
  if (!pending_.empty()) {
    return fmt::format("{}: {} cannot be written; is the disk full?{}", path_.string(),
                       counted(std::ssize(pending_), "line"), lost.empty() ? "" : "; " + lost);
  }
  if (!sync_problem_.empty()) return sync_problem_;
  return lost.empty() ? "" : fmt::format("{}: {}", path_.string(), lost);
}

}  // namespace fsdp::tools
