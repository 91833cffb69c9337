// Contract: tools/jobs/variations.h.
#include "tools/jobs/variations.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "core/error.h"
#include "tools/config/list_items.h"

namespace fsdp::tools {
namespace {

struct Varied {
  std::string key;
  std::vector<std::string> values;  // as --set takes them
};

Varied parse(const std::string& given) {
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
std::vector<std::string> short_names(const std::vector<Varied>& all) {
  const auto last = [](const std::string& key) { return key.substr(key.rfind('.') + 1); };
  std::vector<std::string> names;
  for (const Varied& each : all) {
    const auto alike = std::count_if(all.begin(), all.end(), [&](const Varied& other) {
      return last(other.key) == last(each.key);
    });
    names.push_back(alike == 1 ? last(each.key) : each.key);
  }
  return names;
}

}  // namespace

std::vector<Variation> variations_of(const std::vector<std::string>& given,
                                     const std::string& directory) {
  std::vector<Varied> all;
  size_t count = 1;
  for (const std::string& text : given) {
    const Varied& varied = all.emplace_back(parse(text));
    for (size_t i = 0; i + 1 < all.size(); ++i) {
      FSDP_CHECK(all[i].key != varied.key, "--vary {}: {} is varied twice", text, varied.key);
    }
    count *= varied.values.size();
    FSDP_CHECK(count <= 10'000, "--vary: more than 10,000 jobs");
  }
  const std::vector<std::string> names = short_names(all);
  std::vector<Variation> out;
  std::set<std::string> directories;
  for (size_t job = 0; job < count; ++job) {
    Variation variation;
    std::string name;
    size_t block = count;  // of jobs with one value of the key
    for (size_t i = 0; i < all.size(); ++i) {
      const std::vector<std::string>& values = all[i].values;
      block /= values.size();
      const std::string& value = values[job / block % values.size()];
      variation.push_back(all[i].key + "=" + value);
      name += (i > 0 ? "," : "") + names[i] + "=" + plain(value);
    }
    FSDP_CHECK(directories.insert(name).second, "--vary: two jobs would have the directory {}/{}",
               directory, name);
    FSDP_CHECK(name.size() <= 200, "--vary: the name of a directory would be longer than 200: {}",
               name);
    variation.push_back(fmt::format("runtime.run_dir={}/{}", directory, name));
    out.push_back(variation);
  }
  return out;
}

}  // namespace fsdp::tools
