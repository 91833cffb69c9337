// Numbers of bytes as text: what a user writes ("300MB", "2GiB"), and what a message says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace fsdp {

// "300MB", "1.5GiB" (rounded down), "4096"; nothing for other texts, for less than a byte and for
// more than 2^53 bytes.
std::optional<int64_t> read_byte_size(const std::string& text);
// The same, or an error. `what` begins the error: the key or the option.
int64_t parse_byte_size(const std::string& text, const std::string& what);

// "812 bytes", "1.25 MiB", "40.00 GiB".
std::string byte_size_text(size_t bytes);

}  // namespace fsdp
