// The one door to nlohmann-json: strict parsing whose errors name the file and line.
// For .cpp files of core/io, models that read config.json, tools and tests; keep it out of headers.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace fsdp {

using Json = nlohmann::json;                 // keys sorted
using OrderedJson = nlohmann::ordered_json;  // keys in the order they were set: for writing

// Refuses invalid UTF-8, trailing text, duplicate keys and more than 64 levels. `source` names the
// text in errors: "config.json:3: malformed JSON: ...".
Json parse_json(std::string_view text, const std::string& source);
// What nlohmann says of a failed parse, without its exception number and position.
std::string reason_of(const Json::exception& error);
Json read_json_file(const std::filesystem::path& path);
// Indented by two spaces, newline at the end, atomically.
void write_json_file(const std::filesystem::path& path, const OrderedJson& value);

}  // namespace fsdp
