// The handler makes system calls only: which file lies where the kernel knows (/proc/self/maps). It
// is read a buffer at a time, because memory cannot be asked for.
#include "tools/launch/bus_error.h"

#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

namespace fsdp::tools {
namespace {

constexpr size_t kLine = 4096 + 128;  // a path and what stands before it

unsigned long hex_number(const char*& at) {
  unsigned long value = 0;
  for (;; ++at) {
    if (*at >= '0' && *at <= '9') {
      value = value * 16 + static_cast<unsigned long>(*at - '0');
    } else if (*at >= 'a' && *at <= 'f') {
      value = value * 16 + static_cast<unsigned long>(*at - 'a' + 10);
    } else {
      return value;
    }
  }
}

// "7f00-7f80 r--s 00000000 08:01 42   /path": the path, if the address lies in it.
const char* path_in(const char* line, unsigned long address) {
  const unsigned long begin = hex_number(line);
  if (*line != '-') return nullptr;
  const unsigned long end = hex_number(++line);
  if (address < begin || address >= end) return nullptr;
  return std::strchr(line, '/');
}

// Takes the text piece by piece.
class MapsReader {
 public:
  explicit MapsReader(unsigned long address) : address_(address) {}
  // The path once its line is whole; null: not yet.
  const char* take(const char* text, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) {
      if (text[i] != '\n') {
        if (length_ < kLine - 1) line_[length_++] = text[i];
        continue;
      }
      line_[length_] = 0;
      length_ = 0;
      if (const char* path = path_in(line_, address_)) return path;
    }
    return nullptr;
  }

 private:
  unsigned long address_;
  size_t length_ = 0;
  char line_[kLine] = {};
};

void say(const char* text) {
  const ssize_t ignored = ::write(STDERR_FILENO, text, std::strlen(text));
  static_cast<void>(ignored);
}

extern "C" void name_bus_error(int signal, siginfo_t* info, void*) {
  MapsReader reader(reinterpret_cast<unsigned long>(info->si_addr));
  const char* path = nullptr;
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  char text[1024];
  for (ssize_t n = 0; !path && maps >= 0 && (n = ::read(maps, text, sizeof text)) > 0;) {
    path = reader.take(text, static_cast<size_t>(n));
  }
  if (!path) {  // no file's: what it would have been without us
    ::signal(signal, SIG_DFL);
    ::raise(signal);
    return;
  }
  say("fsdp: ");
  say(path);
  say(": cannot be read any more: the file was cut while it was in use, or its disk failed\n");
  ::_exit(1);
}

}  // namespace

void name_bus_errors() {
  struct sigaction action = {};
  action.sa_sigaction = name_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

std::string mapped_file(const std::string& maps, unsigned long address) {
  MapsReader reader(address);
  constexpr size_t kPiece = 7;  // smaller than a line
  for (size_t begin = 0; begin < maps.size(); begin += kPiece) {
    const std::string piece = maps.substr(begin, kPiece);
    if (const char* path = reader.take(piece.data(), piece.size())) return path;
  }
  return "";
}

}  // namespace fsdp::tools
