// Contract: core/io/held_stream.h.
#include "core/io/held_stream.h"

#include <cerrno>
#include <charconv>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/io/file.h"

namespace fsdp {
namespace {

// The process's descriptor that the path names; -1: none.
int named_descriptor(std::string_view path) {
  if (path == "/dev/stdin") return STDIN_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    int number = -1;
    if (!path.starts_with(folder)) continue;
    const char* const end = path.data() + path.size();
    const auto [rest, error] = std::from_chars(path.data() + folder.size(), end, number);
    if (error == std::errc() && rest == end) return number;
  }
  return -1;
}

void check_call(bool done, const std::string& path, const char* what) {
  if (done) return;
  const int code = errno;
  throw SystemError(fmt::format("{}: {}: {}", path, what, std::generic_category().message(code)),
                    code);
}

void copy_all(int from, int to, const std::string& path) {
  char block[1 << 16];
  for (;;) {
    const ssize_t count = ::read(from, block, sizeof block);
    if (count < 0 && errno == EINTR) continue;
    check_call(count >= 0, path, "cannot read");
    if (count == 0) return;
    for (ssize_t done = 0; done < count;) {
      const ssize_t n = ::write(to, block + done, static_cast<size_t>(count - done));
      check_call(n >= 0 || errno == EINTR, path, "cannot be kept in memory");
      done += n < 0 ? 0 : n;
    }
  }
}

}  // namespace

bool is_name_of_stream(const std::string& path) { return named_descriptor(path) >= 0; }

std::string held_stream(const std::string& given) {
  const std::string path = given == "-" ? "/dev/stdin" : given;
  const int stream = named_descriptor(path);
  struct stat status {};
  // A reader of a name that is no stream, or does not exist, says what is wrong.
  if (stream < 0 || ::fstat(stream, &status) != 0 || S_ISREG(status.st_mode)) return path;
  // Stays open until the end of the process, and in the processes that it starts.
  const int content = ::memfd_create("stream", 0);
  check_call(content >= 0, path, "cannot be kept in memory");
  copy_all(stream, content, path);
  ::lseek(content, 0, SEEK_SET);
  check_call(::dup2(content, stream) == stream, path, "cannot be kept in memory");
  ::close(content);
  return path;
}

}  // namespace fsdp
