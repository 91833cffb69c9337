// What can be read once: a pipe of the shell, <(command), or the standard input. A program reads a
// configuration or a text more than once, so the content takes the place of the stream.
// Not here: files (core/io/file.h).
#pragma once

#include <string>

namespace fsdp {

// Whether this names what the process was given instead of a file: /dev/stdin, /dev/fd/63.
bool is_name_of_stream(const std::string& path);
// Reads such a stream to its end. From now on this process, and the processes that it starts, find
// the content at the same path, as often as wanted. Returns the path, of "-" /dev/stdin. Anything
// else is left alone, a named pipe too, which may have nobody who writes. SystemError where the
// stream cannot be read.
std::string held_stream(const std::string& path);

}  // namespace fsdp
