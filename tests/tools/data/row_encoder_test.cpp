// Where the parts of a row are in its ids. The ids themselves: row_layout_test.cpp.
#include "tools/data/row_encoder.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

using Ids = std::vector<int32_t>;

struct Encoded {
  Ids ids;
  ExampleSpan span;
};

Encoded encoded(const Tokenizer& tokenizer, RowForm form, bool separator, const Document& row) {
  Encoded out;
  out.span = RowEncoder(tokenizer, form, separator).encode(row, [&](std::span<const int32_t> some) {
    out.ids.insert(out.ids.end(), some.begin(), some.end());
  });
  return out;
}

// Puts 1 in front of every text and `end` behind it.
class FramingTokenizer : public ByteTokenizer {
 public:
  explicit FramingTokenizer(int32_t end) : end_(end) {}
  void encode_to(std::string_view text, SpecialTokens special, const UseIds& use) const override {
    const int32_t begin[] = {1};
    if (special == SpecialTokens::kInclude) use(begin);
    ByteTokenizer::encode_to(text, special, use);
    if (special == SpecialTokens::kInclude) use({&end_, 1});
  }

 private:
  int32_t end_;
};

TEST_CASE("a text as one, its parts apart, and a pair") {
  const ByteTokenizer bytes;
  const Document row{"ab", "c", " d"};
  Encoded got = encoded(bytes, RowForm::kWhole, true, row);
  CHECK(got.ids == Ids{'a', 'b', 'c', ' ', 'd', 256});
  CHECK(got.span == ExampleSpan{.end = 6});
  got = encoded(bytes, RowForm::kAnswered, true, row);
  CHECK(got.ids == Ids{'a', 'b', 'c', ' ', 'd', 256});
  CHECK(got.span == ExampleSpan{.end = 6, .kept = 4, .answer = 3});
  CHECK(encoded(bytes, RowForm::kAnswered, false, row).span ==
        ExampleSpan{.end = 5, .kept = 3, .answer = 2});
  got = encoded(bytes, RowForm::kPair, true, row);  // the blank before the answer is the template's
  CHECK(got.ids == Ids{'a', 'b', 'c', 'd'});
  CHECK(got.span == ExampleSpan{.end = 4, .kept = 0, .answer = 1});
  CHECK(encoded(bytes, RowForm::kWhole, false, {""}).span == ExampleSpan{});
}

TEST_CASE("what a tokenizer puts around a text: once around a row, around each of a pair") {
  const FramingTokenizer ends(256), other(2);
  const Document row{"a", "b", " c"};
  Encoded got = encoded(ends, RowForm::kAnswered, true, row);
  CHECK(got.ids == Ids{1, 'a', 'b', ' ', 'c', 256});  // not twice
  CHECK(got.span == ExampleSpan{.end = 6, .kept = 4, .answer = 3});
  CHECK(encoded(other, RowForm::kAnswered, true, row).ids == Ids{1, 'a', 'b', ' ', 'c', 2, 256});
  got = encoded(ends, RowForm::kWhole, true, row);
  CHECK(got.ids == Ids{1, 'a', 'b', ' ', 'c', 256});
  CHECK(got.span == ExampleSpan{.end = 6, .kept = 1});  // stays when the text is cut
  CHECK(encoded(other, RowForm::kWhole, true, row).span == ExampleSpan{.end = 7});
  got = encoded(ends, RowForm::kPair, false, row);
  CHECK(got.ids == Ids{1, 'a', 'b', 256, 1, 'c', 256});
  CHECK(got.span == ExampleSpan{.end = 7, .kept = 0, .answer = 3});
}

TEST_CASE("row encoder: a text that writes the tokens which are added to it") {
  const std::string folder = test::fixture_path("tokenizers/llama2_legacy").string();
  const auto tokenizer = make_tokenizer(folder);
  const RowEncoder encoder(*tokenizer, RowForm::kStream, /*separator=*/true);
  const auto note = [&](const std::vector<std::string>& texts) {
    std::vector<int32_t> ids;
    for (const std::string& text : texts) {
      encoder.encode({.text = text}, [&](std::span<const int32_t> some) {
        ids.insert(ids.end(), some.begin(), some.end());
      });
    }
    return encoder.note_on_doubled(ids);
  };
  CHECK(note({"a", "the", ""}) == "");
  CHECK(note({"<s>a", "<s>the"}) ==
        "the text writes \"<s>\" itself, and the tokenizer adds one: there are two in a row");
  CHECK(note({"a </s>", "b </s>"}) ==
        "the text writes \"</s>\" itself, and data.document_separator adds one: there are two in a "
        "row");
  CHECK(note({"<s>a", "b", "a", "b"}) == "");  // one that quotes it
  CHECK(note({"a", "", "b"}) == "");
  CHECK(note({"a", "", "b", "", "", "the", "b"}) == "");
}

// The ids of a conversation, and its turns behind the turns of earlier rows.
struct EncodedTurns {
  Ids ids;
  std::vector<RowTurn> turns;
  ExampleSpan span;
};

EncodedTurns encoded_turns(const RowEncoder& encoder, const ChatText& chat,
                           std::vector<RowTurn> before = {}) {
  EncodedTurns out{.ids = {}, .turns = std::move(before), .span = {}};
  out.span = encoder.encode_turns(
      chat,
      [&](std::span<const int32_t> some) {
        out.ids.insert(out.ids.end(), some.begin(), some.end());
      },
      out.turns);
  return out;
}

Conversation talk_of(const std::string& row) {
  return conversation_of(Json::parse(row), "row", {});
}

constexpr uint16_t kUserRole = static_cast<uint16_t>(Role::kUser),
                   kAssistantRole = static_cast<uint16_t>(Role::kAssistant);

// <|im_start|> 1201, <|im_end|> 1202, which the template writes itself.
TEST_CASE("row encoder: the turns of a conversation, without begin, end or separator of a row") {
  const ChatFormat format(
      {.source = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + "
                 "'<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}"
                 "{{ '<|im_start|>assistant\n' }}{% endif %}",
       .name = "chatml",
       .date = std::nullopt});
  const ChatText chat = format.text_of(
      talk_of(R"({"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant",
                  "content": "Hi"}, {"role": "assistant", "content": "there", "weight": 0}]})"),
      "row");
  const auto qwen = make_tokenizer(test::fixture_path("tokenizers/qwen2").string());
  const std::vector<RowTurn> before = {{.first = 7, .count = 3}};
  const auto encode = [&](std::vector<int32_t> ends) {
    return encoded_turns(RowEncoder(*qwen, RowForm::kTurns, true, std::move(ends)), chat, before);
  };
  const EncodedTurns got = encode({1202});
  CHECK(got.ids == qwen->encode(chat.text, SpecialTokens::kOmit));
  CHECK(got.span == ExampleSpan{.end = got.ids.size(), .kept = 0, .answer = 3});
  REQUIRE(got.turns.size() == 4);
  CHECK(got.turns[0] == before[0]);
  const auto text_of = [&](const RowTurn& turn) {
    return qwen->decode(std::span(got.ids).subspan(turn.first, turn.count),
                        SpecialTokens::kInclude);
  };
  CHECK(text_of(got.turns[1]) == "<|im_start|>user\nHello<|im_end|>\n");
  CHECK(got.turns[1].role == kUserRole);
  CHECK(text_of(got.turns[2]) == "Hi<|im_end|>\n");
  CHECK(got.turns[2].role == kAssistantRole);
  CHECK(got.turns[2].flags == 0);
  CHECK(text_of(got.turns[3]) == "there<|im_end|>\n");
  CHECK(got.turns[3].flags == RowTurn::kOff);
  // Another end token of the model changes no id.
  const EncodedTurns other = encode({1200});
  CHECK(other.ids == got.ids);
  CHECK(other.turns[2].flags == RowTurn::kNoEnd);
  // A tokenizer that puts its own around a text puts none around a conversation.
  const FramingTokenizer frames(256);
  CHECK(encoded_turns(RowEncoder(frames, RowForm::kTurns, true), chat).ids ==
        ByteTokenizer().encode(chat.text));
}

TEST_CASE(
    "row encoder: a pair of texts has its begin and its end once, and the end is its answer") {
  const ChatText chat = plain_text_of(talk_of(R"({"prompt": "ab", "completion": " c"})"));
  const auto encode = [&](const Tokenizer& tokenizer, bool separator, Ids ends) {
    return encoded_turns(RowEncoder(tokenizer, RowForm::kTurns, separator, std::move(ends)), chat);
  };
  const ByteTokenizer bytes;
  EncodedTurns got = encode(bytes, true, {256});
  CHECK(got.ids == Ids{'a', 'b', ' ', 'c', 256});
  CHECK(got.span == ExampleSpan{.end = 5, .kept = 0, .answer = 2});
  CHECK(got.turns ==
        std::vector<RowTurn>{
            {.first = 0, .count = 2, .message = 0, .role = kUserRole, .flags = RowTurn::kPrompt},
            {.first = 2, .count = 3, .message = 1, .role = kAssistantRole, .flags = 0}});
  got = encode(bytes, false, {256});  // no end is there to stop at
  CHECK(got.ids == Ids{'a', 'b', ' ', 'c'});
  CHECK(
      got.turns[1] ==
      RowTurn{
          .first = 2, .count = 2, .message = 1, .role = kAssistantRole, .flags = RowTurn::kNoEnd});
  CHECK(encode(bytes, false, {'c'}).turns[1].flags == 0);
  got = encode(FramingTokenizer(256), true, {256});  // which ends a text itself
  CHECK(got.ids == Ids{1, 'a', 'b', ' ', 'c', 256});
  CHECK(got.span == ExampleSpan{.end = 6, .kept = 0, .answer = 2});
  CHECK(got.turns ==
        std::vector<RowTurn>{
            {.first = 1, .count = 2, .message = 0, .role = kUserRole, .flags = RowTurn::kPrompt},
            {.first = 3, .count = 3, .message = 1, .role = kAssistantRole, .flags = 0}});
  got = encode(FramingTokenizer(2), false, {2});
  CHECK(got.ids == Ids{1, 'a', 'b', ' ', 'c', 2});
  CHECK(got.turns[1].count == 3);
  CHECK(got.turns[1].flags == 0);
}

TEST_CASE("row encoder: a pair of texts that writes its own begin and end, or completes nothing") {
  const auto encode = [](const char* row, std::vector<int32_t> ends) {
    return encoded_turns(RowEncoder(FramingTokenizer(256), RowForm::kTurns, true, std::move(ends)),
                         plain_text_of(talk_of(row)));
  };
  // 1 begins a text, "c" ends one.
  EncodedTurns got = encode(R"({"prompt": "\u0001a", "completion": "bc"})", {'c'});
  CHECK(got.ids == Ids{1, 'a', 'b', 'c'});
  CHECK(got.turns[1].first == 2);
  CHECK(got.turns[1].count == 2);
  got = encode(R"({"prompt": "a", "completion": ""})", {'c'});
  CHECK(got.ids == Ids{1, 'a', 256});
  CHECK(got.turns[1].first == 2);
  CHECK(got.turns[1].count == 1);
}

TEST_CASE("row encoder: an end that a pair writes itself, and a completion without a token") {
  const auto encode = [](const Tokenizer& tokenizer, const std::string& row, Ids ends) {
    const ChatText chat = plain_text_of(talk_of(row));
    return encoded_turns(RowEncoder(tokenizer, RowForm::kTurns, true, std::move(ends)), chat);
  };
  const auto qwen = make_tokenizer(test::fixture_path("tokenizers/qwen2").string());
  // <|endoftext|> 1200 ends a text, and <|im_end|> a turn.
  CHECK(encode(*qwen, R"({"prompt": "a", "completion": "b<|endoftext|>"})", {1200}).ids ==
        qwen->encode("ab<|endoftext|>"));
  CHECK(encode(*qwen, R"({"prompt": "a", "completion": "b<|im_end|>"})", {1200, 1202}).ids ==
        qwen->encode("ab<|im_end|>"));
  CHECK(encode(FramingTokenizer(256), R"({"prompt": "\u0001a", "completion": "b"})", {256}).ids ==
        Ids{1, 'a', 'b', 256});
  const ByteTokenizer bytes;
  EncodedTurns got = encode(bytes, R"({"prompt": "abc", "completion": ""})", {256});
  CHECK(got.ids == Ids{'a', 'b', 'c', 256});
  CHECK(got.turns[1].first == 3);  // the end alone
  CHECK(got.turns[1].count == 1);
  got = encode(FramingTokenizer(256), R"({"prompt": "a", "completion": ""})", {256});
  CHECK(got.ids == Ids{1, 'a', 256});
  CHECK(got.turns[0].first == 1);
  CHECK(got.turns[1].first == 2);
  CHECK(got.turns[1].count == 1);
  got = encode(bytes, R"({"prompt": "", "completion": "b"})", {256});
  CHECK(got.turns[1].first == 0);
  CHECK(got.turns[1].count == 2);
  // "he" is one token, which begins in the prompt.
  REQUIRE(qwen->encode("the").size() == 2);
  got = encode(*qwen, R"({"prompt": "th", "completion": "e"})", {1200});
  CHECK(got.ids.back() == 1200);
  CHECK(got.turns[1].first == 2);
  CHECK(got.turns[1].count == 1);
}

}  // namespace
}  // namespace fsdp::data
