// Files of fairseq-preprocess, written here byte by byte; blocks of them by the rule of
// TokenBlockDataset; what is refused.
// Requirements: S4.13.
#include "tools/data/fairseq.h"

#include <numeric>

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

using Ids = std::vector<int32_t>;

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

struct Written {
  std::string index{"MMIDIDX\0\0", 9}, bin;
};

template <typename T>
Written written(uint8_t code, const std::vector<std::vector<T>>& sentences) {
  Written out;
  put<uint64_t>(out.index, 1);
  put<uint8_t>(out.index, code);
  put<uint64_t>(out.index, sentences.size());
  std::string begins;
  for (const auto& sentence : sentences) {
    put<int32_t>(out.index, static_cast<int32_t>(sentence.size()));
    put<int64_t>(begins, static_cast<int64_t>(out.bin.size()));
    for (const T token : sentence) put<T>(out.bin, token);
  }
  out.index += begins;
  return out;
}

std::filesystem::path in(const test::TempFolder& folder, const Written& files) {
  folder.write("a.idx", files.index);
  return folder.write("a.bin", files.bin);
}

template <typename T>
Ids tokens_as(uint8_t code) {
  const test::TempFolder folder;
  const FairseqFile file(in(folder, written<T>(code, {{5, 6, 2}, {2}, {}, {100, 2}})));
  CHECK(file.sentences() == 4);
  Ids out;
  for (int64_t i = 0; i < file.tokens(); ++i) out.push_back(file.token(i));
  return out;
}

TEST_CASE("ids of every integer type") {
  const Ids expected = {5, 6, 2, 2, 100, 2};
  CHECK(tokens_as<uint8_t>(1) == expected);
  CHECK(tokens_as<int8_t>(2) == expected);
  CHECK(tokens_as<int16_t>(3) == expected);
  CHECK(tokens_as<int32_t>(4) == expected);
  CHECK(tokens_as<int64_t>(5) == expected);
  CHECK(tokens_as<uint16_t>(8) == expected);
  CHECK(tokens_as<uint32_t>(9) == expected);
  CHECK(tokens_as<uint64_t>(10) == expected);
}

// What fairseq's documentation says of break mode none: blocks of one stream, the last one short;
// the source is the target moved by one over the borders of blocks, </s> in front of the first.
TEST_CASE("blocks of a stream: a position reads the token before the one that it predicts") {
  const test::TempFolder folder;
  std::vector<std::vector<uint16_t>> sentences;
  Ids stream;
  for (uint16_t i = 0; i < 5; ++i) {
    std::vector<uint16_t> sentence(i);
    std::iota(sentence.begin(), sentence.end(), static_cast<uint16_t>(50000 + 10 * i));
    sentence.push_back(2);
    stream.insert(stream.end(), sentence.begin(), sentence.end());
    sentences.push_back(sentence);
  }
  REQUIRE(stream.size() == 15);
  const auto file = std::make_shared<FairseqFile>(in(folder, written<uint16_t>(8, sentences)));
  const auto sequences = fairseq_sequences(file, 4);
  CHECK(sequences->count() == 4);
  CHECK(sequences->summary() == "15 tokens in 5 sentences");
  Ids source = stream;
  source.insert(source.begin(), 2);
  for (int64_t i = 0; i < 4; ++i) {
    Batch batch;
    sequences->append(i, 4, true, batch);
    CHECK(batch.labels_are_targets);
    const int64_t there = i == 3 ? 3 : 4;
    CHECK(sequences->tokens_of(i, 4) == there);
    CHECK(sequences->label_tokens(i, 4, true) == there);
    for (int64_t t = 0; t < 4; ++t) {
      const auto at = static_cast<size_t>(4 * i + t), in_row = static_cast<size_t>(t);
      CHECK(batch.tokens[in_row] == (t < there ? source[at] : 1));
      CHECK(batch.labels[in_row] == (t < there ? stream[at] : -100));
    }
  }
}

TEST_CASE("two data sets of other tokens have another identity") {
  const test::TempFolder folder, other;
  const auto identity = [](const test::TempFolder& at, const Written& files) {
    return FairseqFile(in(at, files)).identity();
  };
  const auto first = identity(folder, written<int32_t>(4, {{5, 6}, {7}}));
  CHECK(identity(other, written<int32_t>(4, {{5, 6}, {7}})) == first);
  CHECK(identity(other, written<int32_t>(4, {{5, 6}, {8}})) != first);
  CHECK(identity(other, written<int32_t>(4, {{5}, {6, 7}})) != first);
}

TEST_CASE("the dictionary beside the tokens: four special ids, and one for each line") {
  const test::TempFolder folder;
  const auto bin = in(folder, written<uint8_t>(1, {{5, 2}}));
  CHECK(!fairseq_vocabulary(bin));
  folder.write("dict.txt", "13 850314647\n262 801410152\n11 743119284 #fairseq:overwrite\n");
  CHECK(fairseq_vocabulary(bin) == 7);
  folder.write("dict.txt", "13 850314647\n262\n");
  CHECK(test::error_of([&] { fairseq_vocabulary(bin); }) ==
        (folder / "dict.txt").string() + ":2: expected a token and its count, got \"262\"");
}

TEST_CASE("files that are none, or do not fit") {
  const auto refusal = [](const Written& files) {
    const test::TempFolder folder;
    const auto bin = in(folder, files);
    const std::string error = test::error_of([&] { FairseqFile file(bin); });
    return error.substr(std::min(error.size(), folder.path().string().size() + 1));
  };
  const Written good = written<int32_t>(4, {{5, 6}, {7}});
  CHECK(refusal(good) == "");
  Written bad = good;
  bad.index[0] = 'X';
  CHECK(refusal(bad) == "a.idx: expected an index of fairseq's mapped data sets (\"MMIDIDX\")");
  bad = good;
  bad.index[9] = 2;
  CHECK(refusal(bad) == "a.idx: expected version 1, got 2");
  bad = good;
  bad.index[17] = 6;
  CHECK(refusal(bad) == "a.idx: expected integers, got the type 6");
  bad = good;
  bad.index.pop_back();
  CHECK(refusal(bad) == "a.idx: expected 50 bytes for 2 sentences, got 49");
  bad = good;
  bad.index[34] = 4;  // where the first sentence begins
  CHECK(test::contains(refusal(bad), "a.idx: sentence 0: expected that it begins at byte 0"));
  bad = good;
  bad.bin.pop_back();
  CHECK(test::contains(refusal(bad), "a.bin: expected 12 bytes, the 3 tokens of "));
  const Written large = written<int64_t>(5, {{int64_t{1} << 40}});
  const test::TempFolder folder;
  const FairseqFile file(in(folder, large));
  CHECK(test::contains(test::error_of([&] { file.token(0); }), "a.bin: token 0: expected 0 to "));
  CHECK(test::error_of([] { FairseqFile other("a.txt"); }) ==
        "a.txt: expected NAME.bin of fairseq-preprocess, with NAME.idx beside it");
}

}  // namespace
}  // namespace fsdp::data
