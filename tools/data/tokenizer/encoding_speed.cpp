// Passes over a text, and rows of a file.
#include "tools/data/tokenizer/encoding_speed.h"

#include <algorithm>
#include <ctime>

#include <fmt/format.h>

#include "core/error.h"
#include "core/io/file.h"
#include "tools/data/tokenizer/tokenizer.h"

namespace fsdp::tools {
namespace {

using data::SpecialTokens;

template <typename Pass>
EncodingSpeed measure(std::string_view way, size_t bytes, const Pass& pass) {
  constexpr int kPasses = 7;
  EncodingSpeed out = {.way = way, .bytes = bytes};
  for (int i = 0; i < kPasses; ++i) {
    const std::clock_t start = std::clock();
    out.tokens = pass();
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    const double speed = static_cast<double>(bytes) / 1e6 / std::max(seconds, 1e-9);
    if (i == 0) out.first = speed;
    out.fastest = std::max(out.fastest, speed);
  }
  return out;
}

}  // namespace

std::vector<EncodingSpeed> measure_encoding(const std::string& tokenizer,
                                            const std::filesystem::path& file) {
  const std::string text = read_file(file);
  const auto by_lines = data::make_tokenizer(tokenizer), whole = data::make_tokenizer(tokenizer);
  const auto lines_pass = [&] {
    size_t tokens = 0;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
      const std::string_view line = std::string_view(text).substr(begin, end - begin);
      tokens += by_lines->encode(line, SpecialTokens::kOmit).size();
      begin = end;
    }
    return tokens;
  };
  const auto whole_pass = [&] { return whole->encode(text, SpecialTokens::kOmit).size(); };
  return {measure("line by line", text.size(), lines_pass),
          measure("whole file", text.size(), whole_pass)};
}

Json read_speeds(const std::string& file) {
  if (file.empty()) return Json::array();
  const Json json = read_json_file(file);
  const Json rows = json.is_object() ? json.value("results", Json()) : Json();
  const auto complete = [](const Json& row) {
    return row.is_object() && row.contains("bytes") && row.contains("tokens") &&
           row.value("way", Json()).is_string() && row.value("library", Json()).is_string() &&
           row.value("warm_MB_per_s", Json()).is_number();
  };
  FSDP_CHECK(rows.is_array() && std::all_of(rows.begin(), rows.end(), complete),
             "{}: results: expected a list of rows with library, way, bytes, tokens and "
             "warm_MB_per_s",
             file);
  return rows;
}

std::vector<OtherSpeed> others_like(const EncodingSpeed& mine, const Json& others) {
  std::vector<OtherSpeed> out;
  for (const Json& row : others) {
    const bool same = row.at("bytes") == mine.bytes && row.at("tokens") == mine.tokens &&
                      row.at("way") == fmt::format("encode, {}", mine.way);
    if (!same) continue;
    out.push_back({row.at("library").get<std::string>(), row.at("warm_MB_per_s").get<double>()});
  }
  return out;
}

}  // namespace fsdp::tools
