// The added tokens of a tokenizer.json: cut out of a text before anything else sees it.
// Read next: added_tokens.cpp ([Note: the order]).
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tools/data/tokenizer/bpe.h"
#include "tools/data/tokenizer/normalizer.h"

namespace fsdp::data {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool single_word = false, lstrip = false, rstrip = false, normalized = false, special = false;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  AddedTokens(const JsonNode& node, const Bpe& model, const Normalizer& normalizer);

  const AddedToken* find(int32_t id) const;                // null: none
  const AddedToken* find(std::string_view content) const;  // null: none
  bool is_special(std::string_view content) const;
  int32_t largest_id() const { return largest_id_; }  // -1: there are none
  // Whether a text may be cut between a letter and a space without cutting or changing a match.
  bool cuts_before_space() const;

  // A part of a text: an added token (then `id` is not negative) or what lies between.
  struct Part {
    std::string_view text;
    int32_t id = -1;
  };
  using Use = std::function<void(const Part&)>;
  void split_raw(std::string_view text, const Use& use) const { split(raw_, text, use); }
  void split_normalized(std::string_view text, const Use& use) const {
    split(normalized_, text, use);
  }

 private:
  // Finds the longest pattern that begins at a place.
  class Trie {
   public:
    void insert(std::string_view pattern, size_t token);  // into tokens_
    bool may_begin(char c) const { return begins_[static_cast<uint8_t>(c)]; }
    bool empty() const { return nodes_.size() == 1; }
    struct Match {
      size_t length = 0;  // 0: none
      size_t token = 0;
    };
    Match longest(std::string_view text) const;

   private:
    struct Node {
      std::vector<std::pair<char, size_t>> next;
      size_t token = SIZE_MAX;
    };
    std::vector<Node> nodes_ = std::vector<Node>(1);
    std::array<bool, 256> begins_{};
  };
  void add(AddedToken token, const Bpe& model);
  void split(const Trie& trie, std::string_view text, const Use& use) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<int32_t, size_t> by_id_;           // index into tokens_
  std::unordered_map<std::string, size_t> by_content_;  // index into tokens_
  std::vector<std::string> patterns_;                   // of tokens_, as they are searched
  Trie raw_, normalized_;
  int32_t largest_id_ = -1;
};

}  // namespace fsdp::data
