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

}  // namespace
}  // namespace fsdp::data
