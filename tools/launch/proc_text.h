// Texts as Linux writes them in /proc and /sys, and the numbers in them. Not here: what they mean
// (host_load.h, host_activity.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::tools::proc {

std::string text_of(const std::filesystem::path& file);        // "": it cannot be read
std::string first_line_of(const std::filesystem::path& file);  // likewise

// The numbers of a text up to the first word that is none.
std::vector<uint64_t> numbers_in(std::string_view text);
// Behind `name` on the first line that begins with it; none: there is no such line.
std::vector<uint64_t> numbers_of_line(std::string_view text, std::string_view name);

}  // namespace fsdp::tools::proc
