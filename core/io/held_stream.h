// What can be read once: a pipe of the shell, <(command), or the standard input. A program reads a
// configuration or a text more than once, so the content takes the place of the stream.
// Not here: files (core/io/file.h).
#pragma once

#include <string>

namespace fsdp {

// Whether this names what the process was given instead of a file: /dev/stdin, /dev/fd/63.
bool is_name_of_stream(const std::string& path);
// Reads a stream to its end. The path that it can be read by from now on, as often as wanted: a
// stream of the process keeps its path, and the processes that it starts find the content there,
// too. Of "-" it is /dev/stdin. The path of anything else stays. SystemError where it cannot be
// read.
std::string held_stream(const std::string& path);

}  // namespace fsdp
