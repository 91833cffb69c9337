// The cache gives back what was put in, also after it has started anew.
#include "tools/data/tokenizer/word_cache.h"

#include <algorithm>
#include <string>

#include <doctest/doctest.h>

#include "tools/data/tokenizer/flat_map.h"

namespace fsdp::data {
namespace {

TEST_CASE("more words than fit") {
  WordCache cache;
  int found = 0;
  for (int32_t i = 0; i < 100000; ++i) {
    const std::string word = std::to_string(i) + std::string(static_cast<size_t>(i % 27), 'x');
    const uint64_t hash = WordCache::hash_of(word);
    REQUIRE_FALSE(cache.find(word, hash));
    const std::vector<int32_t> ids(static_cast<size_t>(1 + i % 3), i);
    cache.insert(word, hash, ids);
    const auto entry = cache.find(word, hash);
    REQUIRE(std::vector(entry->begin(), entry->end()) == ids);
    if (cache.find("0", WordCache::hash_of("0"))) ++found;
  }
  CHECK(found == 65536);  // then it was full, and "0" did not come again
}

TEST_CASE("a word without ids is known, too") {
  WordCache cache;
  const uint64_t hash = WordCache::hash_of("x");
  cache.insert("x", hash, {});
  REQUIRE(cache.find("x", hash));
  CHECK(cache.find("x", hash)->empty());
}

TEST_CASE("words of all lengths have hashes of their own") {
  std::vector<uint64_t> hashes;
  const std::string zeros(WordCache::kLongest, '\0');
  for (size_t n = 1; n <= zeros.size(); ++n) {
    hashes.push_back(WordCache::hash_of(std::string_view(zeros).substr(0, n)));
    for (size_t i = 0; i < n; ++i) {
      std::string word = zeros.substr(0, n);
      word[i] = 1;
      hashes.push_back(WordCache::hash_of(word));
    }
  }
  std::sort(hashes.begin(), hashes.end());
  CHECK(std::adjacent_find(hashes.begin(), hashes.end()) == hashes.end());
}

TEST_CASE("a flat map") {
  FlatMap<int> map(1000);
  for (uint64_t i = 0; i < 1000; ++i) map.set(i << 32 | (i * i), static_cast<int>(i));
  for (uint64_t i = 0; i < 1000; ++i) REQUIRE(*map.find(i << 32 | (i * i)) == static_cast<int>(i));
  CHECK(map.find(1) == nullptr);
  map.set(0, 5);
  CHECK(*map.find(0) == 5);
  CHECK(FlatMap<int>().find(0) == nullptr);
}

}  // namespace
}  // namespace fsdp::data
