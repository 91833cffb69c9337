// The file of choices: a first line that says what it is, then "kind = algorithm" lines. Whoever
// changes it reads it again under a lock, and replaces it whole.
#include "kernels/cuda/matmul_choices.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/io/file.h"

namespace fsdp::cuda {
namespace {

constexpr std::string_view kFirstLine = "fsdp: fastest algorithms of matrix products, 1";
constexpr std::string_view kEquals = " = ";

// All of it: a field that is added to MatmulKind does not compile until it is here.
std::string text_of(const MatmulKind& kind) {
  const auto& [m, n, k, lda, ldc, transpose_a, transpose_b, accumulate, tf32, multiprocessors,
               operand, result, epilogue, alignment_a, alignment_b, alignment_c, alignment_bias] =
      kind;
  return fmt::format(
      "{} x {} x {} rows of {} and {} {}{}{}{}{} {} {} epilogue {} aligned {} {} {} {}", m, n, k,
      lda, ldc, transpose_a ? 't' : 'n', transpose_b ? 't' : 'n', accumulate ? "+" : "",
      tf32 ? " tf32" : "", multiprocessors > 0 ? fmt::format(" on {}", multiprocessors) : "",
      name_of(operand), name_of(result), epilogue, alignment_a, alignment_b, alignment_c,
      alignment_bias);
}

std::string text_of(const lt::Algo& algo) {
  std::string out;
  for (const uint64_t word : algo.data) out += fmt::format("{:016x}", word);
  return out;
}

std::string file_name(std::string machine) {
  std::replace_if(
      machine.begin(), machine.end(),
      [](unsigned char c) { return std::isalnum(c) == 0 && c != '.' && c != '-'; }, '_');
  return "matmul-" + machine + ".txt";
}

// Whoever holds it is alone among all processes and threads. The lock file stays.
class FileLock {
 public:
  explicit FileLock(const std::filesystem::path& path)
      : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    int status = -1;
    do {
      status = descriptor_ < 0 ? -1 : ::flock(descriptor_, LOCK_EX);
    } while (status != 0 && errno == EINTR && descriptor_ >= 0);
    if (status == 0) return;
    const int error = errno;
    if (descriptor_ >= 0) ::close(descriptor_);
    fail("[matmul] {}: cannot be locked: {}", path.string(), std::strerror(error));
  }
  ~FileLock() { ::close(descriptor_); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int descriptor_;
};

size_t place_of(const std::string& algorithm, const std::vector<lt::HeuristicResult>& candidates) {
  const auto same = [&](const lt::HeuristicResult& c) { return text_of(c.algo) == algorithm; };
  return static_cast<size_t>(std::find_if(candidates.begin(), candidates.end(), same) -
                             candidates.begin());
}

}  // namespace

MatmulChoices::MatmulChoices(const std::filesystem::path& folder, const std::string& machine,
                             Note note)
    : file_(folder / file_name(machine)), note_(std::move(note)) {
  try {
    entries_ = read();
  } catch (const Error& error) {
    give_up(error.what());
  }
}

// It is only a cache: no reason to end a run, on some of its ranks alone.
void MatmulChoices::give_up(const std::string& why) {
  unusable_ = true;
  if (note_) note_(fmt::format("{}: algorithms of products are timed by this run alone", why));
}

MatmulChoices::Entries MatmulChoices::read() {
  std::error_code missing;
  if (!std::filesystem::exists(file_, missing)) return {};
  const std::string text = read_file(file_);
  Entries entries;
  size_t at = 0;
  for (int line = 1; line == 1 || at < text.size(); ++line) {
    const size_t end = text.find('\n', at), equals = text.find(kEquals, at);
    const bool whole = end != std::string::npos;
    const bool good =
        line == 1 ? text.starts_with(kFirstLine) && end == kFirstLine.size()
                  : whole && equals < end && end - equals - kEquals.size() == 2 * sizeof(lt::Algo);
    if (!good) {
      if (note_)
        note_(
            fmt::format("{}: line {} is damaged: products are timed again", file_.string(), line));
      return {};
    }
    if (line > 1) {
      const size_t value = equals + kEquals.size();
      entries[text.substr(at, equals - at)] = text.substr(value, end - value);
    }
    at = end + 1;
  }
  return entries;
}

void MatmulChoices::write(const Entries& entries) const {
  std::string text = fmt::format("{}\n", kFirstLine);
  for (const auto& [kind, algorithm] : entries) {
    text += fmt::format("{}{}{}\n", kind, kEquals, algorithm);
  }
  write_file_atomically(file_, text);
}

size_t MatmulChoices::find(const MatmulKind& kind,
                           const std::vector<lt::HeuristicResult>& candidates) {
  const auto found = entries_.find(text_of(kind));
  if (found == entries_.end()) return candidates.size();
  const size_t place = place_of(found->second, candidates);
  if (place == candidates.size() && note_) {
    note_(fmt::format("{}: {}: this algorithm is not offered: timed again", file_.string(),
                      found->first));
  }
  return place;
}

size_t MatmulChoices::keep(const MatmulKind& kind,
                           const std::vector<lt::HeuristicResult>& candidates, size_t fastest) {
  if (unusable_) return fastest;
  try {
    return keep_in_file(kind, candidates, fastest);
  } catch (const Error& error) {
    give_up(error.what());
    return fastest;
  }
}

size_t MatmulChoices::keep_in_file(const MatmulKind& kind,
                                   const std::vector<lt::HeuristicResult>& candidates,
                                   size_t fastest) {
  std::error_code error;
  std::filesystem::create_directories(file_.parent_path(), error);
  FSDP_CHECK(!error, "[matmul] {}: cannot be made: {}", file_.parent_path().string(),
             error.message());
  const FileLock lock(std::filesystem::path(file_).replace_extension(".lock"));
  entries_ = read();
  std::string& kept = entries_[text_of(kind)];
  const size_t first = place_of(kept, candidates);
  if (first < candidates.size()) return first;
  kept = text_of(candidates.at(fastest).algo);
  write(entries_);
  return fastest;
}

}  // namespace fsdp::cuda
