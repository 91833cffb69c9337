// The token file: made once, used while it fits its sources, made again when it does not, refused
// when it is damaged or belongs to another vocabulary.
// Requirements: S3.6.
#include "tools/data/token_cache.h"

#include <chrono>
#include <fstream>
#include <functional>
#include <set>
#include <thread>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/io/odd_bytes.h"
#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

constexpr size_t kFooter = 80;  // bytes at the end of the file

void age(const std::filesystem::path& file, minutes by) {
  std::filesystem::last_write_time(file, std::filesystem::last_write_time(file) - by);
}

struct Fixture {
  test::TempFolder folder;
  ByteTokenizer tokenizer;
  TokenSource source{.files = {folder.write("a.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"\"}\n"),
                               folder.write("b.txt", "c\n")}};
  std::filesystem::path cache = folder / "deep/er/x.tokens";

  Fixture() {
    for (const auto& file : source.files) age(file, hours(2));
  }
  CacheResult make() { return make_token_cache(cache, source, tokenizer); }
  std::vector<int32_t> tokens() {
    const TokenCache opened(cache, tokenizer);
    return {opened.tokens().begin(), opened.tokens().end()};
  }
};

using Ids = std::vector<int32_t>;

TEST_CASE_FIXTURE(Fixture, "documents follow one another, end-of-text after each") {
  const CacheResult first = make();
  CHECK(first.built);
  CHECK(first.reason == "there was none");
  CHECK(first.tokens == 7);
  CHECK(tokens() == Ids{'a', 'b', 256, 256, 'c', '\n', 256});
  source.document_separator = false;
  CHECK(make().reason == "the options have changed");
  CHECK(tokens() == Ids{'a', 'b', 'c', '\n'});
}

// What was made of a file as text is not used for rows, nor where the file is refused as text.
TEST_CASE_FIXTURE(Fixture, "another format has tokens of its own") {
  folder.write("r.txt", "{\"text\":\"ab\"}\n");
  source.files = {folder / "r.txt"};
  CHECK(test::contains(test::error_of([&] { make(); }), "it begins with a row of JSON"));
  std::set<std::filesystem::path> paths = {token_cache_path("", source, tokenizer)};
  source.text.format = TextFormat::kText;
  CHECK(make().tokens == 15);
  paths.insert(token_cache_path("", source, tokenizer));
  source.text.format = TextFormat::kJsonl;
  CHECK(make().reason == "the options have changed");
  CHECK(tokens() == Ids{'a', 'b', 256});
  paths.insert(token_cache_path("", source, tokenizer));
  source.text.format = TextFormat::kText;
  CHECK(make().built);
  source.text.format = TextFormat::kAuto;
  CHECK(test::contains(test::error_of([&] { make(); }), "it begins with a row of JSON"));
  CHECK(paths.size() == 3);
}

TEST_CASE_FIXTURE(Fixture, "an empty file among others is left out, and stays on the list") {
  source.files.push_back(folder.write("c.txt", ""));
  CHECK(make().tokens == 7);
  CHECK(TokenCache(cache, tokenizer).skipped_rows() ==
        std::vector<SkippedRow>{{source.files[2].string(), 0, "the file is empty"}});
  CHECK(!make().built);
}

TEST_CASE_FIXTURE(Fixture, "an up-to-date cache is left alone") {
  make();
  const auto time = std::filesystem::last_write_time(cache);
  const CacheResult second = make();
  CHECK(!second.built);
  CHECK(second.tokens == 7);
  CHECK(std::filesystem::last_write_time(cache) == time);
}

TEST_CASE_FIXTURE(Fixture,
                  "what a process that was killed has left goes, what another one writes stays") {
  make();
  const auto old = folder.write("deep/er/x.tokens.1-0.tmp", "half");
  const auto young = folder.write("deep/er/x.tokens.2-0.tmp", "half");
  const auto dead = folder.write("deep/er/x.tokens.3-0.tmp", "half");  // of a start just before
  const auto other = folder.write("deep/er/y.tokens.1-0.tmp", "half");
  age(old, hours(25));
  std::filesystem::last_write_time(
      dead, std::filesystem::file_time_type::clock::now() - std::chrono::seconds(3));
  age(other, hours(25));
  source.document_separator = false;
  CHECK(make().built);
  CHECK(!std::filesystem::exists(old));
  CHECK(std::filesystem::exists(young));
  CHECK(!std::filesystem::exists(dead));
  CHECK(std::filesystem::exists(other));
}

TEST_CASE_FIXTURE(Fixture,
                  "after a minute what nobody writes any more goes, whoever needs the file") {
  make();
  const auto dead = folder.write("deep/er/x.tokens.1-0.tmp", "half");
  age(dead, minutes(2));
  AtomicFile alive(cache);  // of a process that waits for its disk
  std::filesystem::path written;
  for (const auto& item : std::filesystem::directory_iterator(cache.parent_path())) {
    if (item.path().extension() == ".tmp" && item.path() != dead) written = item.path();
  }
  age(written, minutes(2));
  CHECK(!make().built);
  CHECK(!std::filesystem::exists(dead));
  CHECK(std::filesystem::exists(written));
}

TEST_CASE_FIXTURE(Fixture, "who waits is told of what is done, of tokens and of rows") {
  comm::WorkProgress progress;
  source.text.progress = &progress;
  make();
  const uint64_t made = progress.own();
  CHECK(made > 0);
  const TokenCache opened(cache, tokenizer, &progress);
  CHECK(progress.own() == made);
  opened.check(0, 1);
  CHECK(progress.own() > made);
}

TEST_CASE_FIXTURE(Fixture,
                  "another content of the same size is noticed, another time alone is not") {
  make();
  folder.write("b.txt", "d\n");
  CHECK(make().reason == (folder / "b.txt").string() + " has changed");
  CHECK(tokens()[4] == 'd');
  age(folder / "b.txt", hours(1));
  CHECK(!make().built);
  // Changed twice within the clock's grain: the second change has no other time.
  const auto time = std::filesystem::last_write_time(folder.write("b.txt", "e\n"));
  CHECK(make().built);
  std::filesystem::last_write_time(folder.write("b.txt", "f\n"), time);
  CHECK(make().built);
  CHECK(tokens()[4] == 'f');
}

// What `rsync -t`, `tar` and `cp -p` leave: another content of the same size with the old time.
TEST_CASE_FIXTURE(Fixture, "a text changed to the same size and time is noticed") {
  const std::filesystem::path text = folder / "b.txt";
  const auto settle = [&] { std::this_thread::sleep_for(std::chrono::milliseconds(2100)); };
  settle();  // the stamp holds the times: the next make() reads no content where they agree
  make();
  CHECK(!make().built);
  const auto time = std::filesystem::last_write_time(text);
  SUBCASE("in place") { std::ofstream(text) << "d\n"; }
  SUBCASE("by another file in its place") {
    std::filesystem::last_write_time(folder.write("other.txt", "d\n"), time);
    std::filesystem::rename(folder / "other.txt", text);
  }
  std::filesystem::last_write_time(text, time);
  CHECK(make().reason == text.string() + " has changed");
  CHECK(tokens()[4] == 'd');
}

TEST_CASE_FIXTURE(Fixture, "a copy with the same content and another inode is up to date") {
  make();
  folder.write("copy.txt", "c\n");
  std::filesystem::rename(folder / "copy.txt", folder / "b.txt");
  CHECK(!make().built);
}

// A cache that is written again has another time; one that is left alone keeps its own.
TEST_CASE_FIXTURE(Fixture, "where contents agree the stamp is renewed, once the file has settled") {
  make();
  age(folder / "b.txt", hours(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  const std::string before = read_file(cache);
  CHECK(!make().built);
  const std::string renewed = read_file(cache);
  CHECK(renewed != before);
  CHECK(renewed.size() == before.size());
  CHECK(tokens() == Ids{'a', 'b', 256, 256, 'c', '\n', 256});
  age(cache, hours(1));
  const auto time = std::filesystem::last_write_time(cache);
  CHECK(!make().built);
  CHECK(std::filesystem::last_write_time(cache) == time);
  folder.write("b.txt", "d\n");
  CHECK(make().built);
}

// Changes a file while a text is encoded.
class MeddlingTokenizer : public ByteTokenizer {
 public:
  explicit MeddlingTokenizer(std::function<void()> meddle) : meddle_(std::move(meddle)) {}
  void encode_to(std::string_view text, SpecialTokens special, const UseIds& use) const override {
    ByteTokenizer::encode_to(text, special, use);
    if (text == "c\n") meddle_();
  }

 private:
  std::function<void()> meddle_;
};

TEST_CASE_FIXTURE(Fixture, "a text that changes while its tokens are made") {
  const std::filesystem::path text = folder / "b.txt";
  const auto error_with = [&](const std::function<void()>& meddle) {
    return test::error_of([&] { make_token_cache(cache, source, MeddlingTokenizer(meddle)); });
  };
  const std::string expected =
      text.string() +
      ": the file changed while its tokens were made; start again when it is complete";
  CHECK(error_with([&] { std::ofstream(text, std::ios::app) << "more\n"; }) == expected);
  CHECK(!std::filesystem::exists(cache));
  folder.write("b.txt", "c\n");
  CHECK(error_with([&] { folder.write("b.txt", "d\n"); }) == expected);
  folder.write("b.txt", "c\n");
  CHECK(error_with([&] { age(text, hours(3)); }) == "");  // another time alone
  CHECK(std::filesystem::exists(cache));
}

TEST_CASE_FIXTURE(Fixture,
                  "skipped rows are kept with the tokens, and no cache serves another rule") {
  const std::string a = folder.write("a.jsonl", "{\"text\":\"ab\"}\n{\"text\":5}\n").string();
  CHECK(test::contains(test::error_of([&] { make(); }), "a.jsonl:2: field"));
  source.text.bad_rows = BadRows::kSkip;
  CHECK(make().built);
  CHECK(!make().built);
  CHECK(tokens() == Ids{'a', 'b', 256, 'c', '\n', 256});
  const std::vector<SkippedRow> skipped = {{a, 2, "field \"text\": expected a string, got number"}};
  CHECK(TokenCache(cache, tokenizer).skipped_rows() == skipped);
  const std::string good = read_file(cache);
  std::string bytes = good;
  bytes[good.size() - kFooter - 1] = '!';  // of the rows
  write_file_atomically(cache, bytes);
  CHECK(make().reason == "its footer is damaged");
  CHECK(TokenCache(cache, tokenizer).skipped_rows() == skipped);
  bytes = good;
  bytes[good.size() - 16] = static_cast<char>(bytes[good.size() - 16] + 1);  // their length
  write_file_atomically(cache, bytes);
  CHECK(make().reason == "its size does not fit its footer");
  // The other rule does not take the tokens of this one.
  const auto path = token_cache_path("c", source, tokenizer);
  source.text.bad_rows = BadRows::kFail;
  CHECK(token_cache_path("c", source, tokenizer) != path);
  CHECK(test::contains(test::error_of([&] { make(); }), "a.jsonl:2: field"));
}

TEST_CASE_FIXTURE(Fixture, "a text may have a name as long as names can be") {
  source.files = {folder.write(std::string(251, 'x') + ".txt", "ab")};
  const auto path = token_cache_path(folder.path(), source, tokenizer);
  CHECK(make_token_cache(path, source, tokenizer).built);
  CHECK(is_there(path));
  std::string name = "x";
  while (name.size() < 200) name += "\xc3\xa9";
  source.files = {folder.write(name + ".txt", "ab")};
  CHECK(is_utf8(token_cache_path(folder.path(), source, tokenizer).string()));
}

TEST_CASE_FIXTURE(Fixture, "a folder that cannot be written is an error of its own") {
  folder.write("file", "");
  CHECK_THROWS_AS(make_token_cache(folder / "file/x.tokens", source, tokenizer), CacheFolderError);
}

TEST_CASE_FIXTURE(Fixture, "a subset has its own rows and its own cache") {
  source.files = {
      folder.write("r.jsonl", "{\"text\":\"0\"}\n{\"text\":\"1\"}\n{\"text\":\"2\"}\n")};
  CHECK(make().built);
  const auto path = token_cache_path("c", source, tokenizer);
  source.subset = {.n = 3, .seed = 42};
  CHECK(token_cache_path("c", source, tokenizer) != path);
  CHECK(make().reason == "the options have changed");
  // numpy: default_rng(42).permutation(3)
  CHECK(tokens() == Ids{'2', 256, '1', 256, '0', 256});
  for (const RowSubset other : {RowSubset{2, 42}, RowSubset{2, 43}}) {
    const auto before = token_cache_path("c", source, tokenizer);
    source.subset = other;
    CHECK(token_cache_path("c", source, tokenizer) != before);
    CHECK(make().reason == "the options have changed");
    CHECK(tokens().size() == 4);
  }
  CHECK(!make().built);
  source.subset->n = 4;
  CHECK(test::contains(test::error_of([&] { make(); }), "data.subset.n: expected 1 to 3"));
  CHECK(tokens().size() == 4);  // the old one
}

TEST_CASE_FIXTURE(Fixture, "rows have bounds where that is asked for, in a cache of their own") {
  make();
  CHECK(TokenCache(cache, tokenizer).examples().empty());
  const auto path = token_cache_path("c", source, tokenizer);
  const uint64_t checksum = TokenCache(cache, tokenizer).checksum_of_tokens();
  source.form = RowForm::kWhole;
  CHECK(token_cache_path("c", source, tokenizer) != path);
  CHECK(make().reason == "the options have changed");
  {
    const TokenCache opened(cache, tokenizer);
    CHECK(tokens() == Ids{'a', 'b', 256, 256, 'c', '\n', 256});  // as many as make a gap
    const std::vector<ExampleSpan> spans(opened.examples().begin(), opened.examples().end());
    CHECK(spans == std::vector<ExampleSpan>{{3}, {4}, {7}});
    CHECK(reinterpret_cast<uintptr_t>(opened.examples().data()) % alignof(ExampleSpan) == 0);
    CHECK(opened.checksum_of_tokens() != checksum);
  }
  CHECK(!make().built);
  source.text.lines = Lines::kApart;
  CHECK(make().built);
  CHECK(tokens() == Ids{'a', 'b', 256, 256, 'c', 256});
  CHECK(!make().built);
  source.text = {.format = TextFormat::kJsonl,
                 .row_template = std::make_shared<RowTemplate>("<{text}>", "t")};
  source.files.pop_back();
  CHECK(make().built);
  CHECK(tokens() == Ids{'<', 'a', 'b', '>', 256, '<', '>', 256});
  source.text.row_template = std::make_shared<RowTemplate>("({text})", "t");
  CHECK(make().reason == "the options have changed");
}

TEST_CASE_FIXTURE(Fixture, "a cache whose rows do not lie within its tokens is refused") {
  source.form = RowForm::kWhole;
  make();
  const std::string good = read_file(cache);
  const size_t spans = good.size() - kFooter - 3 * sizeof(ExampleSpan);
  std::string bytes = good;
  bytes[spans] = 100;  // the end of the first
  write_file_atomically(cache, bytes);
  CHECK(make().reason == "its footer is damaged");
  CHECK(!make().built);
}

TEST_CASE_FIXTURE(Fixture, "other files") {
  make();
  source.files.pop_back();
  CHECK(make().reason == "the list of files has changed");
  CHECK(tokens() == Ids{'a', 'b', 256, 256});
}

TEST_CASE_FIXTURE(Fixture, "an error while it is made leaves nothing half") {
  folder.write("b.txt", "bad \xff");
  CHECK(test::contains(test::error_of([&] { make(); }), "b.txt:1: invalid UTF-8"));
  CHECK(std::filesystem::is_empty(cache.parent_path()));
  folder.write("b.txt", "good");
  make();
  folder.write("a.jsonl", "{");
  CHECK(test::contains(test::error_of([&] { make(); }), "a.jsonl:1: malformed JSON"));
  CHECK(tokens().size() == 9);  // the old one
  source.files.push_back("/no/such.txt");
  CHECK(test::contains(test::error_of([&] { make(); }), "/no/such.txt: cannot open"));
}

TEST_CASE_FIXTURE(Fixture, "a damaged cache is made again, and refused by those who only read") {
  make();
  const std::string good = read_file(cache);
  const auto damage = [&](std::string bytes, const char* problem) {
    write_file_atomically(cache, bytes);
    CHECK(test::error_of([&] { tokens(); }) ==
          cache.string() + ": this token cache cannot be used: " + problem + "; delete it");
    CHECK(make().reason == problem);
    CHECK(tokens().size() == 7);
  };
  damage("", "it is too short");
  damage(good.substr(0, good.size() - 1), "it is not a token cache");
  damage(good.substr(4), "its size does not fit its footer");
  damage(std::string(4, 'x') + good, "its size does not fit its footer");
  std::string version = good;
  version[good.size() - kFooter + 8] = 1;
  damage(version, "its version is 1");
  version[good.size() - kFooter + 8] = 3;  // trained rows of JSON and UTF-16 as a text
  damage(version, "its version is 3");
  std::string huge = good;
  huge.replace(good.size() - kFooter + 40, 8, "\xff\xff\xff\xff\xff\xff\xff\x3f");
  damage(huge, "its size does not fit its footer");
  CHECK(test::error_of([&] { TokenCache none(folder / "none", tokenizer); }) ==
        (folder / "none").string() + ": cannot open: No such file or directory");
}

// Three blocks of 16384 tokens, the last one short.
TEST_CASE_FIXTURE(Fixture, "flipped tokens are noticed when they are used, and the file is named") {
  source.files = {folder.write("long.txt", std::string(40'000, 'a'))};
  make();
  const std::string good = read_file(cache);
  const std::string name = cache.string() + ": this token cache cannot be used: ";
  const auto flip = [&](size_t byte) {
    std::string bytes = good;
    bytes[byte] = static_cast<char>(bytes[byte] ^ 1);
    write_file_atomically(cache, bytes);
  };
  flip(4 * 16'384);  // 'a' becomes another letter, which no range could tell
  CHECK(!make().built);
  const TokenCache opened(cache, tokenizer);
  opened.check(0, 16'384);
  opened.check(32'768, 7'233);
  CHECK(opened.unchecked()[16'384] == ('a' ^ 1));
  const std::string damaged =
      name + "its tokens 16384 to 32767 are damaged (their checksum does not match); delete it";
  CHECK(test::error_of([&] { opened.check(16'383, 2); }) == damaged);
  CHECK(test::error_of([&] { opened.check(16'383, 2); }) == damaged);  // and again
  CHECK(test::error_of([&] { tokens(); }) == damaged);
  flip(4 * 40'000);  // the last one
  CHECK(test::error_of([&] { tokens(); }) ==
        name + "its tokens 32768 to 40000 are damaged (their checksum does not match); delete it");
  for (const size_t byte : {4 * 40'001, 4 * 40'001 + 24, 4 * 40'001 + 60}) {  // checksums, stamp
    flip(byte);
    CHECK(test::error_of([&] { tokens(); }) == name + "its footer is damaged; delete it");
    CHECK(make().reason == "its footer is damaged");
    CHECK(tokens().size() == 40'001);
  }
}

// Writes ids that it says it does not have.
class OverflowingTokenizer : public ByteTokenizer {
 public:
  int64_t vocab_size() const override { return 98; }
  int32_t end_of_text() const override { return 97; }
};

TEST_CASE_FIXTURE(Fixture, "a token that the tokenizer does not have") {
  const OverflowingTokenizer overflowing;
  make_token_cache(cache, source, overflowing);
  const TokenCache opened(cache, overflowing);
  CHECK(test::error_of([&] { opened.tokens(); }) ==
        cache.string() +
            ": this token cache cannot be used: its token 1: expected 0 to 97, got 98; delete it");
}

class OtherTokenizer : public ByteTokenizer {
 public:
  uint64_t identity() const override { return 1; }
};

TEST_CASE_FIXTURE(Fixture, "another tokenizer") {
  make();
  const OtherTokenizer other;
  CHECK(test::contains(test::error_of([&] { TokenCache opened(cache, other); }),
                       "it was made by another tokenizer"));
  CHECK(make_token_cache(cache, source, other).reason == "it was made by another tokenizer");
  CHECK(token_cache_path("c", source, other) != token_cache_path("c", source, tokenizer));
}

// Puts its own tokens around every text; 256 closes it.
class FramingTokenizer : public ByteTokenizer {
 public:
  explicit FramingTokenizer(int32_t end) : end_(end) {}
  int32_t end_of_text() const override { return end_; }
  void encode_to(std::string_view text, SpecialTokens special, const UseIds& use) const override {
    const int32_t begin[] = {1}, end[] = {256};
    if (special == SpecialTokens::kInclude) use(begin);
    ByteTokenizer::encode_to(text, special, use);
    if (special == SpecialTokens::kInclude) use(end);
  }

 private:
  int32_t end_;
};

TEST_CASE_FIXTURE(Fixture, "a tokenizer that ends texts by itself needs no separator") {
  const auto tokens_with = [&](const Tokenizer& framing) {
    make_token_cache(cache, source, framing);
    const TokenCache opened(cache, framing);
    std::filesystem::remove(cache);
    return Ids{opened.tokens().begin(), opened.tokens().end()};
  };
  CHECK(tokens_with(FramingTokenizer(256)) == Ids{1, 'a', 'b', 256, 1, 256, 1, 'c', '\n', 256});
  CHECK(tokens_with(FramingTokenizer(2)) ==
        Ids{1, 'a', 'b', 256, 2, 1, 256, 2, 1, 'c', '\n', 256, 2});
  CHECK(test::contains(test::error_of([&] { tokens_with(FramingTokenizer(-1)); }),
                       "data.document_separator: bytes: no end-of-text token is known"));
  source.document_separator = false;
  CHECK(tokens_with(FramingTokenizer(-1)).size() == 10);
}

TEST_CASE_FIXTURE(Fixture, "the path tells data sets apart") {
  const auto path = token_cache_path("c", source, tokenizer);
  CHECK(path.parent_path() == "c");
  CHECK(path.filename().string().rfind("a-", 0) == 0);
  TokenSource changed = source;
  changed.files.pop_back();
  CHECK(token_cache_path("c", changed, tokenizer) != path);
  changed = source;
  changed.document_separator = false;
  CHECK(token_cache_path("c", changed, tokenizer) != path);
  CHECK(token_cache_path("c", source, tokenizer) == path);
}

}  // namespace
}  // namespace fsdp::data
