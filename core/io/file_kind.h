// What a file is by its bytes, where it is not what its name says: files of other programs, web
// pages and answers of a server that a download left, pointers of Git LFS. One list for data,
// JSON and weights. Not here: links without their files (hub_files.h), endings (tools/data).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace fsdp {

enum class Wanted : uint8_t { kText, kJson, kWeights };

// What is in the place of what is wanted, and the command that makes or fetches the right file:
// "expected JSON, got a web page; ..."; "": nothing speaks against it. Looks at the first bytes and
// the last. kText: every text of UTF-8 is one. kWeights, for what is no safetensors: a text, JSON
// and an empty file are told too.
std::string other_kind(std::string_view bytes, const std::filesystem::path& file, Wanted wanted);

// HTML, behind blanks and a byte order mark.
bool is_web_page(std::string_view bytes);
// What torch.save writes, today's zip or the older pickle, and any other pickle.
bool is_pickle(std::string_view bytes);

}  // namespace fsdp
