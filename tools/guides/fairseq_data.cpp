// The index: "MMIDIDX\0\0", version 1 (u64), type (u8), number of sentences (u64), their sizes in
// tokens (i32), where they begin in NAME.bin in bytes (i64); everything is little-endian, without
// gaps.
#include "tools/guides/fairseq_data.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/io/checksum.h"
#include "core/layer_values.h"
#include "core/text/numbers.h"

namespace fsdp::data {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr size_t kHeader = 9 + 8 + 1 + 8;
constexpr int32_t kEndOfSentence = 2, kPadding = 1;

// Of an integer type by its code; 0: no integers.
int64_t bytes_of_type(uint8_t code) {
  switch (code) {
    case 1:
    case 2:
      return 1;  // u8, i8
    case 3:
    case 8:
      return 2;  // i16, u16
    case 4:
    case 9:
      return 4;  // i32, u32
    case 5:
    case 10:
      return 8;  // i64, u64
    default:
      return 0;
  }
}

template <typename T>
T read(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::filesystem::path index_of(const std::filesystem::path& bin) {
  FSDP_CHECK(bin.extension() == ".bin",
             "{}: expected NAME.bin of fairseq-preprocess, with NAME.idx beside it", bin.string());
  return std::filesystem::path(bin).replace_extension(".idx");
}

}  // namespace

FairseqFile::FairseqFile(const std::filesystem::path& bin) : index_(index_of(bin)), bin_(bin) {
  const std::string name = index_.path().string();
  const std::string_view text = index_.text();
  FSDP_CHECK(text.starts_with(kMagic) && text.size() >= kHeader,
             "{}: expected an index of fairseq's mapped data sets (\"MMIDIDX\")", name);
  const char* at = text.data() + kMagic.size();
  const auto version = read<uint64_t>(at);
  FSDP_CHECK(version == 1, "{}: expected version 1, got {}", name, version);
  type_ = read<uint8_t>(at + 8);
  const int64_t width = bytes_of_type(type_);
  FSDP_CHECK(width > 0, "{}: expected integers, got the type {}", name, type_);
  const auto count = read<uint64_t>(at + 9);
  const size_t rest = text.size() - kHeader;
  FSDP_CHECK(count <= rest / 12 && count * 12 == rest,
             "{}: expected {} bytes for {} sentences, got {}", name, count * 12 + kHeader, count,
             text.size());
  sentences_ = static_cast<int64_t>(count);
  const char* const sizes = text.data() + kHeader;
  const char* const begins = sizes + count * sizeof(int32_t);
  for (uint64_t i = 0; i < count; ++i) {
    const auto size = read<int32_t>(sizes + i * sizeof(int32_t));
    const auto begin = read<int64_t>(begins + i * sizeof(int64_t));
    FSDP_CHECK(size >= 0 && begin == tokens_ * width,
               "{}: sentence {}: expected that it begins at byte {}, where the one before ends, "
               "got {} tokens from byte {}",
               name, i, tokens_ * width, size, begin);
    tokens_ += size;
  }
  FSDP_CHECK(bin_.size() == static_cast<size_t>(tokens_ * width),
             "{}: expected {} bytes, the {} tokens of {}, got {}", bin.string(), tokens_ * width,
             tokens_, name, bin_.size());
}

int32_t FairseqFile::token(int64_t index) const {
  const char* const at = bin_.text().data() + index * bytes_of_type(type_);
  int64_t id = 0;
  switch (type_) {
    case 1:
      return read<uint8_t>(at);
    case 2:
      return read<int8_t>(at);
    case 3:
      return read<int16_t>(at);
    case 8:
      return read<uint16_t>(at);
    case 4:
      return read<int32_t>(at);
    case 9:
      id = read<uint32_t>(at);
      break;
    default:
      id = read<int64_t>(at);
  }
  FSDP_CHECK(id >= 0 && id <= INT32_MAX, "{}: token {}: expected 0 to {}, got {}",
             bin_.path().string(), index, INT32_MAX, id);
  return static_cast<int32_t>(id);
}

int64_t FairseqFile::tokens_of(int64_t sentence) const {
  const char* const sizes = index_.text().data() + kHeader;
  return read<int32_t>(sizes + static_cast<size_t>(sentence) * sizeof(int32_t));
}

// The begins are sorted: a binary search.
bool FairseqFile::begins_sentence(int64_t token) const {
  const auto count = static_cast<size_t>(sentences_);
  const char* const begins = index_.text().data() + kHeader + count * sizeof(int32_t);
  const int64_t byte = token * bytes_of_type(type_);
  size_t low = 0, high = count;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (read<int64_t>(begins + middle * sizeof(int64_t)) < byte) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < count && read<int64_t>(begins + low * sizeof(int64_t)) == byte;
}

uint64_t FairseqFile::identity() const {
  constexpr size_t kEnds = 1 << 20;
  const std::string_view bytes = bin_.text();
  const size_t ends = std::min(bytes.size(), kEnds);
  return mixed(checksum(index_.text())) + mixed(checksum(bytes.substr(0, ends))) * 3 +
         mixed(checksum(bytes.substr(bytes.size() - ends))) * 5 + mixed(bytes.size());
}

namespace {

// Of the stream of all sentences.
struct Block {
  int64_t first = 0, tokens = 0;
};

class FairseqSequences final : public Sequences {
 public:
  // Without `blocks`: of break mode none.
  FairseqSequences(std::shared_ptr<const FairseqFile> file, const BlockOptions& options,
                   std::vector<Block> blocks, size_t skipped)
      : file_(std::move(file)), options_(options), blocks_(std::move(blocks)), skipped_(skipped) {}
  int64_t count() const override {
    if (!cuts_anywhere()) return std::ssize(blocks_);
    return (file_->tokens() + options_.length - 1) / options_.length;
  }
  int64_t tokens_of(int64_t index, int64_t length) const override {
    return std::min(length, block(index).tokens);
  }
  int64_t label_tokens(int64_t index, int64_t length, const InputRules&) const override {
    return tokens_of(index, length);
  }
  void append(int64_t index, int64_t length, const InputRules&, LabelledRows& out) const override {
    out.labels_are_targets = true;
    const int64_t first = block(index).first, there = tokens_of(index, length);
    for (int64_t t = 0; t < length; ++t) {
      const bool inside = t < there;
      const bool begins = t == 0 && (first == 0 || file_->begins_sentence(first));
      const int32_t before = begins   ? kEndOfSentence
                             : inside ? file_->token(first + t - 1)
                                      : kPadding;
      out.tokens.push_back(before);
      out.labels.push_back(inside ? file_->token(first + t) : kIgnoreIndex);
    }
  }
  std::string summary() const override {
    std::string out = fmt::format("{} tokens in {} sentences", format_count(file_->tokens()),
                                  format_count(file_->sentences()));
    if (cuts_anywhere()) return out;
    out += fmt::format(", {} blocks ({})", format_count(count()), name_of(options_.mode));
    if (skipped_ == 0) return out;
    return out + fmt::format(", {} longer than {} tokens left out",
                             format_count(static_cast<int64_t>(skipped_)), options_.length);
  }

 private:
  bool cuts_anywhere() const { return options_.mode == BreakMode::kNone; }
  Block block(int64_t index) const {
    if (!cuts_anywhere()) return blocks_[static_cast<size_t>(index)];
    const int64_t first = index * options_.length;
    return {first, std::min(options_.length, file_->tokens() - first)};
  }

  std::shared_ptr<const FairseqFile> file_;
  BlockOptions options_;
  std::vector<Block> blocks_;
  size_t skipped_;
};

// Blocks that end where sentences do.
class BlockMaker {
 public:
  BlockMaker(const FairseqFile& file, const BlockOptions& options)
      : file_(file), options_(options) {}

  void make(std::vector<Block>& blocks, std::vector<SkippedRow>& skipped) {
    const bool documents = options_.mode == BreakMode::kCompleteDoc;
    for (int64_t sentence = 0; sentence < file_.sentences(); ++sentence) {
      const int64_t tokens = file_.tokens_of(sentence);
      const bool ends_document = documents && tokens == 1;
      const bool fits = options_.mode != BreakMode::kEos && !ends_document &&
                        block_.tokens + tokens <= options_.length;
      if (!fits) close(blocks);
      if (tokens > options_.length) skip(sentence, tokens, skipped);
      if (ends_document || tokens > options_.length) {
        block_.first += tokens;
      } else {
        block_.tokens += tokens;
      }
    }
    close(blocks);
  }

 private:
  void close(std::vector<Block>& blocks) {
    const int64_t least = options_.mode == BreakMode::kCompleteDoc ? 2 : 1;
    if (block_.tokens >= least) blocks.push_back(block_);
    block_ = {block_.first + block_.tokens, 0};
  }
  void skip(int64_t sentence, int64_t tokens, std::vector<SkippedRow>& skipped) const {
    const std::string reason = fmt::format("{} tokens, more than data.sequence_length, {}",
                                           format_count(tokens), options_.length);
    FSDP_CHECK(options_.bad_rows == BadRows::kSkip,
               "{}: sentence {}: {}; data.bad_rows: skip leaves such sentences out, as "
               "fairseq-train does",
               file_.path().string(), sentence + 1, reason);
    skipped.push_back({file_.path().string(), sentence + 1, reason});
  }

  const FairseqFile& file_;
  const BlockOptions& options_;
  Block block_;
};

}  // namespace

FairseqBlocks fairseq_blocks(std::shared_ptr<const FairseqFile> file, const BlockOptions& options) {
  std::vector<Block> blocks;
  FairseqBlocks out;
  if (options.mode != BreakMode::kNone) BlockMaker(*file, options).make(blocks, out.skipped);
  out.sequences = std::make_shared<FairseqSequences>(std::move(file), options, std::move(blocks),
                                                     out.skipped.size());
  return out;
}

std::optional<int64_t> fairseq_vocabulary(const std::filesystem::path& bin) {
  const std::filesystem::path file = bin.parent_path() / "dict.txt";
  std::error_code unreadable;
  if (!std::filesystem::exists(file, unreadable)) return {};
  constexpr int64_t kSpecial = 4;  // <s>, <pad>, </s>, <unk>
  const std::string text = read_file(file);
  int64_t lines = 0;
  for (size_t begin = 0; begin < text.size(); ++lines) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    FSDP_CHECK(line.find(' ') != std::string_view::npos,
               "{}:{}: expected a token and its count, got \"{}\"", file.string(), lines + 1, line);
    begin = end + 1;
  }
  return kSpecial + lines;
}

namespace {

TokenFile open_fairseq(const std::filesystem::path& bin, const BlockOptions& options) {
  const auto file = std::make_shared<const FairseqFile>(bin);
  FairseqBlocks blocks = fairseq_blocks(file, options);
  return {std::move(blocks.sequences), std::move(blocks.skipped), file->tokens(), file->identity()};
}

}  // namespace

const TokenFormat kFairseqData = {.name = "fairseq",
                                  .help = "NAME.bin of fairseq-preprocess, with NAME.idx beside it",
                                  .open = open_fairseq,
                                  .vocabulary = fairseq_vocabulary};

}  // namespace fsdp::data
