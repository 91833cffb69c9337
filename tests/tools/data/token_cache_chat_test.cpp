// The turns of conversations in the token file. Its other parts: token_cache_test.cpp.
#include <cstddef>
#include <set>

#include <doctest/doctest.h>

#include "core/io/checksum.h"
#include "core/io/file.h"
#include "tests/support/temp_folder.h"
#include "tools/data/token_cache.h"

namespace fsdp::data {
namespace {

constexpr size_t kChatFooter = 80;  // bytes at the end of the file

// Two conversations by a template that writes "content." for each message: "a.b." and "c.dd.".
struct Chats {
  test::TempFolder folder;
  ByteTokenizer tokenizer;
  TokenSource source;
  std::filesystem::path cache = folder / "x.tokens";

  Chats() {
    source = {.files = {folder.write(
                  "a.jsonl", R"({"messages": [{"role": "user", "content": "a"}, )"
                             R"({"role": "assistant", "content": "b"}]})"
                             "\n"
                             R"({"messages": [{"role": "system", "content": "c"}, )"
                             R"({"role": "assistant", "content": "dd", "train": false}]})")},
              .text = {.format = TextFormat::kMessages, .chat = rows({})},
              .form = RowForm::kTurns,
              .end_tokens = {'.'}};
  }
  static std::shared_ptr<const ChatRows> rows(ChatFormatOptions options) {
    if (options.source.empty()) {
      options.source = "{% for m in messages %}{{ m.content }}.{% endfor %}";
    }
    options.name = "t";
    return std::make_shared<const ChatRows>(ChatRows{.format = ChatFormat(std::move(options))});
  }
  CacheResult make() { return make_token_cache(cache, source, tokenizer); }
  std::vector<int32_t> tokens() {
    const TokenCache opened(cache, tokenizer);
    return {opened.tokens().begin(), opened.tokens().end()};
  }
  std::vector<RowTurn> turns() {
    const TokenCache opened(cache, tokenizer);
    return {opened.turns().begin(), opened.turns().end()};
  }
  static RowTurn turn(uint32_t message, uint32_t first, uint32_t count, Role role, int flags = 0) {
    return {.first = first,
            .count = count,
            .message = message,
            .role = static_cast<uint16_t>(role),
            .flags = static_cast<uint16_t>(flags)};
  }
};

TEST_CASE_FIXTURE(Chats, "turns of conversations survive the file") {
  CHECK(make().tokens == 9);
  const std::vector<RowTurn> expected = {
      turn(0, 0, 2, Role::kUser), turn(1, 2, 2, Role::kAssistant), turn(0, 0, 2, Role::kSystem),
      turn(1, 2, 3, Role::kAssistant, RowTurn::kOff)};
  CHECK(tokens() == std::vector<int32_t>{'a', '.', 'b', '.', 'c', '.', 'd', 'd', '.'});
  CHECK(turns() == expected);
  {
    const TokenCache opened(cache, tokenizer);
    const std::vector<ExampleSpan> spans(opened.examples().begin(), opened.examples().end());
    CHECK(spans == std::vector<ExampleSpan>{{.end = 4, .answer = 2}, {.end = 9, .answer = 2}});
    CHECK(reinterpret_cast<uintptr_t>(opened.turns().data()) % alignof(RowTurn) == 0);
  }
  CHECK(!make().built);
  source.subset = {.n = 2, .seed = 5};  // the second row, then the first
  CHECK(make().built);
  CHECK(tokens() == std::vector<int32_t>{'c', '.', 'd', 'd', '.', 'a', '.', 'b', '.'});
  CHECK(turns() == std::vector<RowTurn>{expected[2], expected[3], expected[0], expected[1]});
  source.subset.reset();
  // Skipped rows lie behind the turns.
  const auto more = folder.write("b.jsonl",
                                 "{\"messages\": 1}\n{\"prompt\": \"e\", "
                                 "\"completion\": \"f\"}\n");
  source.files.push_back(more);
  source.text.bad_rows = BadRows::kSkip;
  CHECK(make().tokens == 12);
  REQUIRE(turns().size() == 6);
  CHECK(turns()[4] == turn(0, 0, 1, Role::kUser, RowTurn::kPrompt));
  CHECK(turns()[5] == turn(1, 1, 2, Role::kAssistant));
  CHECK(
      TokenCache(cache, tokenizer).skipped_rows() ==
      std::vector<SkippedRow>{{more.string(), 1, "messages: expected a list of messages, got 1"}});
}

TEST_CASE_FIXTURE(Chats, "another end token, template or reading of rows makes a cache stale") {
  make();
  std::set<std::filesystem::path> paths = {token_cache_path("c", source, tokenizer)};
  const uint64_t first = TokenCache(cache, tokenizer).checksum_of_tokens();
  const auto is_stale = [&] {
    CHECK(make().reason == "the options have changed");
    CHECK(!make().built);
    paths.insert(token_cache_path("c", source, tokenizer));
  };
  source.end_tokens = {'b'};
  is_stale();
  CHECK(turns()[3] == turn(1, 2, 3, Role::kAssistant, RowTurn::kOff | RowTurn::kNoEnd));
  // The same tokens with other turns are not the same.
  CHECK(TokenCache(cache, tokenizer).checksum_of_tokens() != first);
  source.end_tokens = {'b', '.'};
  is_stale();
  source.text.chat = rows({.source = "{% for m in messages %}{{ m.content }}.\n{% endfor %}"});
  is_stale();
  CHECK(tokens().size() == 13);
  ChatFormatOptions options;
  options.kwargs["mood"] = 1;
  source.text.chat = rows(options);
  is_stale();
  source.text.chat = rows({.date = std::tm{}});
  is_stale();
  source.text.chat = std::make_shared<const ChatRows>(ChatRows{
      .fields = {.roles = {{"user", "tool"}}},
      .format = ChatFormat({.source = "{% for m in messages %}{{ m.content }}.{% endfor %}",
                            .name = "t",
                            .date = std::nullopt})});
  is_stale();
  CHECK(turns()[0].role == static_cast<uint16_t>(Role::kTool));
  CHECK(paths.size() == 7);
}

// The footer with the checksum of a file whose tail was changed: what a process wrote with a fault.
std::string with_checksum(std::string bytes, size_t tokens) {
  const std::string_view covered = std::string_view(bytes).substr(
      tokens * sizeof(int32_t), bytes.size() - tokens * sizeof(int32_t) - sizeof(uint64_t));
  const uint64_t sum = checksum(covered);
  bytes.replace(bytes.size() - sizeof sum, sizeof sum, reinterpret_cast<const char*>(&sum),
                sizeof sum);
  return bytes;
}

TEST_CASE_FIXTURE(Chats, "damaged turns are an error") {
  make();
  const std::string good = read_file(cache);
  CHECK(with_checksum(good, 9) == good);
  const size_t first = good.size() - kChatFooter - 4 * sizeof(RowTurn);
  const std::string name = cache.string() + ": this token cache cannot be used: ";
  std::string bytes = good;
  bytes[first] = 1;
  write_file_atomically(cache, bytes);
  CHECK(test::error_of([&] { turns(); }) == name + "its footer is damaged; delete it");
  CHECK(make().reason == "its footer is damaged");
  CHECK(turns()[0].first == 0);
  const auto error = [&](size_t turn, size_t byte, char value) {
    std::string changed = good;
    changed[first + turn * sizeof(RowTurn) + byte] = value;
    write_file_atomically(cache, with_checksum(changed, 9));
    return test::error_of([&] { turns(); });
  };
  CHECK(error(0, 0, 2) == "");  // ends where the row does
  CHECK(error(0, 0, 3) == name + "its rows are damaged; delete it");
  CHECK(error(3, 4, 3) == "");
  CHECK(error(3, 4, 4) == name + "its rows are damaged; delete it");
  CHECK(error(3, 7, '\xff') == name + "its rows are damaged; delete it");
  // Rows with more or fewer turns than there are.
  const auto answer_of_row = [&](size_t row, char value) {
    std::string changed = good;
    changed[first - (2 - row) * sizeof(ExampleSpan) + offsetof(ExampleSpan, answer)] = value;
    write_file_atomically(cache, with_checksum(changed, 9));
    return test::error_of([&] { turns(); });
  };
  CHECK(answer_of_row(0, 2) == "");
  CHECK(answer_of_row(0, 1) == name + "its rows are damaged; delete it");
  CHECK(answer_of_row(1, 3) == name + "its rows are damaged; delete it");
  // A number of turns that the file does not hold.
  bytes = good;
  bytes[good.size() - 24] = 5;
  write_file_atomically(cache, bytes);
  CHECK(make().reason == "its size does not fit its footer");
}

}  // namespace
}  // namespace fsdp::data
