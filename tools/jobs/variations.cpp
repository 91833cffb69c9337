// Contract: tools/jobs/variations.h.
#include "tools/jobs/variations.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "core/error.h"
#include "tools/config/key_values.h"

namespace fsdp::tools {
namespace {

VariedKey parse(const std::string& given) {
  const size_t equal = std::min(given.find('='), given.size());
  const auto values = config::list_items(given.substr(std::min(equal + 1, given.size())));
  FSDP_CHECK(equal > 0 && values,
             "--vary {}: expected a key and a list of values, such as train.lr=[1e-4, 3e-4]",
             given);
  const std::string key = given.substr(0, equal);
  FSDP_CHECK(key != "runtime.run_dir", "--vary {}: each job has a directory of its own already",
             given);
  return {key, *values};
}

// What of a text a path can hold without surprise.
std::string plain(std::string text) {
  for (char& c : text) {
    const bool kept =
        std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '+';
    if (!kept) c = '_';
  }
  return text;
}

// The last part of each key, or the whole one where two keys end alike.
std::vector<std::string> short_names(const std::vector<VariedKey>& all) {
  const auto last = [](const std::string& key) { return key.substr(key.rfind('.') + 1); };
  std::vector<std::string> names;
  for (const VariedKey& each : all) {
    const auto alike = std::count_if(all.begin(), all.end(), [&](const VariedKey& other) {
      return last(other.key) == last(each.key);
    });
    names.push_back(alike == 1 ? last(each.key) : each.key);
  }
  return names;
}

}  // namespace

std::vector<Combination> combinations_of(const std::vector<VariedKey>& keys,
                                         const std::string& what) {
  size_t count = 1;
  for (const VariedKey& each : keys) {
    count *= each.values.size();
    FSDP_CHECK(count <= 10'000, "{}: more than 10,000 jobs", what);
  }
  const std::vector<std::string> names = short_names(keys);
  std::vector<Combination> out(count);
  for (size_t job = 0; job < count; ++job) {
    auto& [name, values] = out[job];
    size_t block = count;  // of jobs with one value of the key
    for (size_t i = 0; i < keys.size(); ++i) {
      block /= keys[i].values.size();
      values.push_back(keys[i].values[job / block % keys[i].values.size()]);
      name += (i > 0 ? "," : "") + names[i] + "=" + plain(values.back());
    }
    FSDP_CHECK(name.size() <= 200, "{}: the name of a directory would be longer than 200: {}", what,
               name);
  }
  return out;
}

std::vector<Variation> variations_of(const std::vector<std::string>& given,
                                     const std::string& directory) {
  std::vector<VariedKey> keys;
  for (const std::string& text : given) {
    const VariedKey& varied = keys.emplace_back(parse(text));
    for (size_t i = 0; i + 1 < keys.size(); ++i) {
      FSDP_CHECK(keys[i].key != varied.key, "--vary {}: {} is varied twice", text, varied.key);
    }
  }
  std::vector<Variation> out;
  std::set<std::string> directories;
  for (const auto& [name, values] : combinations_of(keys, "--vary")) {
    FSDP_CHECK(directories.insert(name).second, "--vary: two jobs would have the directory {}/{}",
               directory, name);
    Variation& variation = out.emplace_back();
    for (size_t i = 0; i < keys.size(); ++i) variation.push_back(keys[i].key + "=" + values[i]);
    variation.push_back(fmt::format("runtime.run_dir={}/{}", directory, name));
  }
  return out;
}

}  // namespace fsdp::tools
