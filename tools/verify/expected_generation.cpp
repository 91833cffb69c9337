// generation.json of a reference folder: what another program continued greedily.
#include <cmath>

#include "tools/verify/expected_results_json.h"

namespace fsdp::tools {
namespace {

using Ids = std::vector<int32_t>;

Ids ids_of(const JsonPlace& place, int64_t vocabulary) {
  Ids ids;
  for (const JsonPlace& id : place.elements()) {
    const double number = id.number();
    FSDP_CHECK(
        number >= 0 && number < static_cast<double>(vocabulary) && number == std::floor(number),
        "{}: expected a token of the vocabulary of {}, got {}", id.where(), vocabulary,
        id.json().dump());
    ids.push_back(static_cast<int32_t>(number));
  }
  FSDP_CHECK(!ids.empty(), "{}: empty", place.where());
  return ids;
}

void check_count(const JsonPlace& place, const char* what, size_t got, size_t expected) {
  FSDP_CHECK(got == expected, "{}: expected {} {}, got {}", place.where(), expected, what, got);
}

}  // namespace

ExpectedGeneration read_generation(const std::filesystem::path& path, int64_t vocabulary) {
  const Json json = read_json_file(path);
  const JsonPlace root(json, path.string());
  ExpectedGeneration out;
  for (const JsonPlace& prompt : root["prompts"].elements()) {
    out.prompts.push_back(ids_of(prompt, vocabulary));
  }
  FSDP_CHECK(!out.prompts.empty(), "{}: empty", root["prompts"].where());
  const auto add = [&](const JsonPlace& place, std::vector<Ids>& texts) {
    texts.push_back(ids_of(place, vocabulary));
    check_count(place, "tokens, as in the first text", texts.back().size(),
                out.batched.front().size());
  };
  const JsonPlace batched = root["batched"]["new_ids"], alone = root["alone"];
  for (const JsonPlace& ids : batched.elements()) add(ids, out.batched);
  check_count(batched, "texts, one for each prompt", out.batched.size(), out.prompts.size());
  for (const JsonPlace& text : alone.elements()) add(text["new_ids"], out.alone);
  check_count(alone, "texts, one for each prompt", out.alone.size(), out.prompts.size());
  return out;
}

}  // namespace fsdp::tools
