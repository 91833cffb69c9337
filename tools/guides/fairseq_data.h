// Data sets of fairseq-preprocess: NAME.bin holds the token ids of all sentences, NAME.idx what
// type they have and where each sentence is. The ids are of fairseq's dictionary (line + 4;
// </s> is 2, <pad> is 1), which is also the vocabulary of its models: there is no tokenizer. The
// file is mapped, so that a data set may be larger than memory. Not here: which sequences a batch
// has (tools/data/sampler.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "core/io/file.h"
#include "tools/data/token_file.h"

namespace fsdp::data {

class FairseqFile {
 public:
  // `bin`: NAME.bin. Error that names the file: no such file, no index of this form, ids that are
  // no integers, sentences that do not follow one another, sizes that do not fit.
  explicit FairseqFile(const std::filesystem::path& bin);

  int64_t sentences() const { return sentences_; }
  int64_t tokens() const { return tokens_; }
  // Of all sentences one after the other. Error when it is no 32-bit number.
  int32_t token(int64_t index) const;
  int64_t tokens_of(int64_t sentence) const;
  bool begins_sentence(int64_t token) const;
  const std::filesystem::path& path() const { return bin_.path(); }
  // Of the index, the size, and the first and last MiB of the tokens.
  uint64_t identity() const;

 private:
  MappedFile index_, bin_;
  int64_t sentences_ = 0, tokens_ = 0;
  uint8_t type_ = 0;  // fairseq's code
};

// How many ids the dictionary beside NAME.bin has: fairseq's four special tokens, and one
// for each line of dict.txt ("token count"). None: there is no dict.txt.
std::optional<int64_t> fairseq_vocabulary(const std::filesystem::path& bin);

// TokenBlockDataset: the stream of all sentences in blocks of at most `length` tokens, cut where
// `mode` says. A position reads the token before the one that it predicts, also that of the block
// before; where a block begins with a sentence, it reads </s>. Of kCompleteDoc a sentence of one
// token is an empty one: </s>, the end of a document; blocks of one token are left out.
// A sentence that is too long is left out as fairseq-train leaves out what is longer than the
// model's positions.
struct FairseqBlocks {
  std::shared_ptr<const Sequences> sequences;
  std::vector<SkippedRow> skipped;  // `line`: the number of the sentence, from 1
};
FairseqBlocks fairseq_blocks(std::shared_ptr<const FairseqFile> file, const BlockOptions& options);

extern const TokenFormat kFairseqData;

}  // namespace fsdp::data
