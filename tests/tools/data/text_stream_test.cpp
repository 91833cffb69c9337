// Tokens one by one give the text of all of them, never a part of a character.
#include "tools/data/text_stream.h"

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"
#include "tools/data/tokenizer/hugging_face.h"
#include "tools/data/tokenizer/utf8.h"

namespace fsdp::data {
namespace {

// Accents, CJK and emoji are several tokens each in these small vocabularies.
constexpr std::string_view kText =
    "Hello world, na\u00efve \u4f60\u597d \U0001f600\U0001f44d\U0001f3fd the  end. "
    "One more and again one more: \u0645\u0631\u062d\u0628\u0627 caf\u00e9!\n";

void check_stream(const Tokenizer& tokenizer) {
  INFO(tokenizer.name());
  const std::vector<int32_t> ids = tokenizer.encode(kText);
  const std::string whole = tokenizer.decode(ids);
  for (const size_t before : {size_t{1}, size_t{2}, size_t{7}}) {
    const std::vector<int32_t> first(ids.begin(),
                                     ids.begin() + static_cast<std::ptrdiff_t>(before));
    TextStream stream(tokenizer, first);
    std::string text = tokenizer.decode(first);
    size_t pieces = 0;
    for (size_t i = before; i < ids.size(); ++i) {
      const std::string piece = stream.push(ids[i]);
      CHECK(first_invalid_utf8(piece) == piece.size());
      CHECK(!test::contains(piece, "\ufffd"));
      pieces += piece.empty() ? 0 : 1;
      text += piece;
    }
    text += stream.finish();
    CHECK(text == whole);
    CHECK(pieces > 20);  // it does stream
    CHECK(stream.finish().empty());
  }
}

TEST_CASE("every kind of tokenizer") {
  check_stream(ByteTokenizer());
  for (const char* name : {"qwen2", "bloom", "llama2_legacy", "mistral_v03"}) {
    check_stream(HuggingFaceTokenizer(test::fixture_path("tokenizers") / name / "tokenizer.json"));
  }
}

TEST_CASE("what stays broken is written at the end") {
  const ByteTokenizer bytes;
  TextStream stream(bytes, {'a'});
  CHECK(stream.push(0xe4) == "");
  CHECK(stream.push(0xbd) == "");
  CHECK(stream.finish() == "\xe4\xbd");
  CHECK(text_after(bytes, {'a'}, {'b', 0xc3, 0xa9}) == "b\u00e9");
  const HuggingFaceTokenizer qwen(test::fixture_path("tokenizers/qwen2/tokenizer.json"));
  std::vector<int32_t> ids = qwen.encode("\U0001f600");
  ids.pop_back();
  CHECK(text_after(qwen, {}, ids) == "\ufffd");
}

TEST_CASE("tokens that are no text are written where that is asked for") {
  const HuggingFaceTokenizer qwen(test::fixture_path("tokenizers/qwen2/tokenizer.json"));
  const std::vector<int32_t> ids = qwen.encode("<|im_start|>user\nna\u00efve<|im_end|>\n");
  REQUIRE(ids.front() == 1201);
  for (const SpecialTokens special : {SpecialTokens::kInclude, SpecialTokens::kOmit}) {
    TextStream stream(qwen, {ids[0]}, special);
    std::string text;
    std::vector<std::string> pieces;
    for (size_t i = 1; i < ids.size(); ++i) {
      pieces.push_back(stream.push(ids[i]));
      text += pieces.back();
    }
    text += stream.finish();
    const bool all = special == SpecialTokens::kInclude;
    CHECK(text == (all ? "user\nna\u00efve<|im_end|>\n" : "user\nna\u00efve\n"));
    REQUIRE(ids[ids.size() - 2] == 1202);
    CHECK(pieces[pieces.size() - 2] == (all ? "<|im_end|>" : ""));
  }
  TextStream usual(qwen, {});
  CHECK(usual.push(1202) == "");
  CHECK(usual.finish() == "");
  // Many tokens: the text of forgotten tokens is not written again.
  TextStream many(qwen, {}, SpecialTokens::kInclude);
  std::string text;
  for (int i = 0; i < 100; ++i) text += many.push(1201 + i % 2);
  text += many.finish();
  std::string expected;
  for (int i = 0; i < 50; ++i) expected += "<|im_start|><|im_end|>";
  CHECK(text == expected);
}

TEST_CASE("spaces that a tokenizer cleans up") {
  test::TempFolder folder;
  folder.write("tokenizer.json", read_file(test::fixture_path("tokenizers/qwen2/tokenizer.json")));
  folder.write("tokenizer_config.json",
               R"({"tokenizer_class": "Qwen2Tokenizer", "clean_up_tokenization_spaces": true})");
  const HuggingFaceTokenizer tokenizer(folder / "tokenizer.json");
  const std::string text = "it 's here , do n't go . I 've ' a ' and then we 're off ! n n' ";
  const std::vector<int32_t> ids = tokenizer.encode(text);
  CHECK(tokenizer.decode(ids) == "it's here, don't go. I've'a'and then we're off! n n' ");
  CHECK(text_after(tokenizer, {}, ids) == tokenizer.decode(ids));
  // A space that a prompt ends with stays; what follows is whole.
  CHECK(text_after(tokenizer, tokenizer.encode("it "), tokenizer.encode(".")) == ".");
}

TEST_CASE("a first word after a prompt keeps its space") {
  const HuggingFaceTokenizer llama(test::fixture_path("tokenizers/llama2_legacy/tokenizer.json"));
  const std::vector<int32_t> prompt = llama.encode("Hello"), both = llama.encode("Hello world");
  REQUIRE(std::equal(prompt.begin(), prompt.end(), both.begin()));
  CHECK(text_after(llama, prompt,
                   {both.begin() + static_cast<std::ptrdiff_t>(prompt.size()), both.end()}) ==
        " world");
}

}  // namespace
}  // namespace fsdp::data
