// Files of fairseq-preprocess, written here byte by byte; blocks of them by the rule of
// TokenBlockDataset; what is refused.
// Requirements: S4.13.
#include "tools/guides/fairseq_data.h"

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
  const auto sequences = fairseq_blocks(file, {.length = 4}).sequences;
  CHECK(sequences->count() == 4);
  CHECK(sequences->summary() == "15 tokens in 5 sentences");
  Ids source = stream;
  source.insert(source.begin(), 2);
  for (int64_t i = 0; i < 4; ++i) {
    LabelledRows batch;
    sequences->append(i, 4, {}, batch);
    CHECK(batch.labels_are_targets);
    const int64_t there = i == 3 ? 3 : 4;
    CHECK(sequences->tokens_of(i, 4) == there);
    CHECK(sequences->label_tokens(i, 4, {}) == there);
    for (int64_t t = 0; t < 4; ++t) {
      const auto at = static_cast<size_t>(4 * i + t), in_row = static_cast<size_t>(t);
      CHECK(batch.tokens[in_row] == (t < there ? source[at] : 1));
      CHECK(batch.labels[in_row] == (t < there ? stream[at] : -100));
    }
  }
}

// ---- blocks of whole sentences -----------------------------------------------------------------
// By the sentences' lengths alone, as TokenBlockDataset's documentation has it: first token and
// number of tokens of each block.
using Spans = std::vector<std::pair<int64_t, int64_t>>;

struct Sentences {
  test::TempFolder folder;
  std::shared_ptr<const FairseqFile> file;
  Ids stream;

  // Tokens 10, 11, ... and </s>.
  explicit Sentences(const std::vector<int>& lengths) {
    std::vector<std::vector<uint16_t>> sentences;
    uint16_t next = 10;
    for (const int length : lengths) {
      sentences.emplace_back();
      for (int i = 1; i < length; ++i) sentences.back().push_back(next++);
      if (length > 0) sentences.back().push_back(2);
      stream.insert(stream.end(), sentences.back().begin(), sentences.back().end());
    }
    file = std::make_shared<FairseqFile>(in(folder, written<uint16_t>(8, sentences)));
  }

  // Where the blocks are, found by their labels; the tokens are checked on the way.
  Spans blocks(BreakMode mode, int64_t length, BadRows bad = BadRows::kFail) const {
    const auto sequences =
        fairseq_blocks(file, {.length = length, .mode = mode, .bad_rows = bad}).sequences;
    Spans out;
    for (int64_t i = 0; i < sequences->count(); ++i) {
      LabelledRows batch;
      sequences->append(i, length, {}, batch);
      const int64_t there = sequences->tokens_of(i, length);
      CHECK(sequences->label_tokens(i, length, {}) == there);
      const Ids labels(batch.labels.begin(), batch.labels.begin() + there);
      auto from = out.empty() ? 0 : out.back().first + out.back().second;
      const auto at =
          std::search(stream.begin() + from, stream.end(), labels.begin(), labels.end());
      REQUIRE(at != stream.end());
      out.emplace_back(at - stream.begin(), there);
      if (mode != BreakMode::kNone) CHECK(batch.tokens[0] == 2);  // begins with a sentence
      for (int64_t t = 1; t < length; ++t) {
        const auto in_row = static_cast<size_t>(t);
        CHECK(batch.tokens[in_row] == (t < there ? labels[in_row - 1] : 1));
        CHECK((t < there || batch.labels[in_row] == -100));
      }
    }
    return out;
  }
};

TEST_CASE("break mode complete: as many whole sentences as fit") {
  const Sentences s({3, 4, 2, 1, 5, 5, 1});
  CHECK(s.blocks(BreakMode::kComplete, 7) == Spans{{0, 7}, {7, 3}, {10, 5}, {15, 6}});
  CHECK(s.blocks(BreakMode::kComplete, 8) == Spans{{0, 7}, {7, 8}, {15, 6}});
  CHECK(s.blocks(BreakMode::kComplete, 100) == Spans{{0, 21}});
  CHECK(s.blocks(BreakMode::kComplete, 5) ==
        Spans{{0, 3}, {3, 4}, {7, 3}, {10, 5}, {15, 5}, {20, 1}});
}

TEST_CASE("break mode complete_doc: documents end at an empty sentence, and single tokens go") {
  const Sentences s({1, 3, 4, 1, 2, 2, 1, 1, 5, 3, 1});
  CHECK(s.blocks(BreakMode::kCompleteDoc, 7) == Spans{{1, 7}, {9, 4}, {15, 5}, {20, 3}});
  CHECK(s.blocks(BreakMode::kCompleteDoc, 8) == Spans{{1, 7}, {9, 4}, {15, 8}});
  CHECK(s.blocks(BreakMode::kComplete, 8) ==
        Spans{{0, 8}, {8, 7}, {15, 8}, {23, 1}});  // where an empty sentence is one as any
}

TEST_CASE("break mode eos: each sentence is a block") {
  const Sentences s({3, 1, 0, 4});
  CHECK(s.blocks(BreakMode::kEos, 4) == Spans{{0, 3}, {3, 1}, {4, 4}});
}

// The sentences of fairseq's own test_token_block_dataset.py, whose blocks are these there.
TEST_CASE("break modes: the cases of fairseq's tests") {
  CHECK(Sentences({5, 4, 2}).blocks(BreakMode::kNone, 3) == Spans{{0, 3}, {3, 3}, {6, 3}, {9, 2}});
  CHECK(Sentences({5, 4, 2}).blocks(BreakMode::kComplete, 6) == Spans{{0, 5}, {5, 6}});
  CHECK(Sentences({4, 2, 1, 2}).blocks(BreakMode::kComplete, 3, BadRows::kSkip) ==
        Spans{{4, 3}, {7, 2}});  // there {0, 4}, too, for a model of more positions
  CHECK(Sentences({5, 1, 4}).blocks(BreakMode::kEos, 5) == Spans{{0, 5}, {5, 1}, {6, 4}});
}

constexpr uint64_t kModulus = uint64_t{1} << 61;

uint64_t checksum_of(const Spans& spans) {
  uint64_t out = 0;  // of a power of two, so what overflows changes nothing
  for (const auto& [first, tokens] : spans) {
    out = (out * 1000003 + static_cast<uint64_t>(first * 7 + first + tokens)) % kModulus;
  }
  return out;
}

// Number and checksum of the blocks that fairseq's _get_slice_indices_fast (commit 3d262bb2) makes
// of 1,000 sentences whose lengths a linear congruence draws.
TEST_CASE("break modes: the blocks of fairseq's own code") {
  struct Golden {
    int most;  // tokens of a sentence
    int64_t length;
    BreakMode mode;
    size_t blocks;
    uint64_t checksum;
  };
  for (const Golden& golden : {Golden{12, 12, BreakMode::kComplete, 704, 1020182841746238158u},
                               Golden{12, 12, BreakMode::kCompleteDoc, 712, 928686152687786138u},
                               Golden{12, 12, BreakMode::kEos, 1000, 1510498959776860234u},
                               Golden{12, 30, BreakMode::kComplete, 253, 1204527938757697748u},
                               Golden{12, 30, BreakMode::kCompleteDoc, 281, 1324136654206851198u},
                               Golden{5, 7, BreakMode::kComplete, 553, 1670275798157619066u},
                               Golden{5, 7, BreakMode::kCompleteDoc, 557, 224774813218798469u},
                               Golden{40, 100, BreakMode::kComplete, 238, 1577843853540172682u},
                               Golden{40, 100, BreakMode::kCompleteDoc, 249, 1176810126366551819u},
                               Golden{40, 100, BreakMode::kEos, 1000, 618856260127231266u}}) {
    std::vector<int> lengths;
    uint64_t drawn = 12345;
    for (int i = 0; i < 1000; ++i) {
      drawn = (1103515245 * drawn + 12345) % (uint64_t{1} << 31);
      lengths.push_back(static_cast<int>(1 + (drawn >> 16) % static_cast<uint64_t>(golden.most)));
    }
    const Spans spans = Sentences(lengths).blocks(golden.mode, golden.length);
    CHECK(spans.size() == golden.blocks);
    CHECK(checksum_of(spans) == golden.checksum);
  }
}

TEST_CASE("a sentence that is too long is an error, or left out and listed") {
  const Sentences s({3, 9, 2, 2});
  const std::string bin = (s.folder / "a.bin").string();
  for (const BreakMode mode : {BreakMode::kComplete, BreakMode::kCompleteDoc, BreakMode::kEos}) {
    CHECK(test::error_of([&] { fairseq_blocks(s.file, {.length = 8, .mode = mode}); }) ==
          bin +
              ": sentence 2: 9 tokens, more than data.sequence_length, 8; data.bad_rows: skip "
              "leaves such sentences out, as fairseq-train does");
  }
  CHECK(s.blocks(BreakMode::kComplete, 8, BadRows::kSkip) == Spans{{0, 3}, {12, 4}});
  CHECK(s.blocks(BreakMode::kEos, 8, BadRows::kSkip) == Spans{{0, 3}, {12, 2}, {14, 2}});
  const FairseqBlocks blocks = fairseq_blocks(
      s.file, {.length = 8, .mode = BreakMode::kComplete, .bad_rows = BadRows::kSkip});
  CHECK(blocks.skipped ==
        std::vector<SkippedRow>{{bin, 2, "9 tokens, more than data.sequence_length, 8"}});
  CHECK(blocks.sequences->summary() ==
        "16 tokens in 4 sentences, 2 blocks (complete), 1 longer than 8 tokens left out");
  CHECK(s.blocks(BreakMode::kNone, 8) == Spans{{0, 8}, {8, 8}});
}

// Sentences without </s>: TokenBlockDataset reads </s> where a block begins with a sentence, and
// else the token before.
TEST_CASE("a block of break mode none that begins with a sentence reads </s> first") {
  const test::TempFolder folder;
  const auto file =
      std::make_shared<FairseqFile>(in(folder, written<uint8_t>(1, {{5, 6}, {}, {7, 8, 9}, {10}})));
  const auto sequences = fairseq_blocks(file, {.length = 2}).sequences;
  LabelledRows batch;
  for (int64_t i = 0; i < 3; ++i) sequences->append(i, 2, {}, batch);
  CHECK(batch.labels == Ids{5, 6, 7, 8, 9, 10});
  CHECK(batch.tokens == Ids{2, 5, 2, 7, 8, 9});
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
