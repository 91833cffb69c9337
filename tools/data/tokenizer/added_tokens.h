// The added tokens of a tokenizer.json: cut out of a text before anything else sees it.
// Read next: added_tokens.cpp ([Note: the order]).
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tools/data/tokenizer/bpe.h"
#include "tools/data/tokenizer/normalizer.h"
#include "tools/data/tokenizer/span.h"

namespace fsdp::data {

struct AddedToken {
  std::string content;
  int32_t id = 0;  // AddedTokens::add() chooses it
  bool single_word = false, lstrip = false, rstrip = false, normalized = false, special = false;

  bool operator==(const AddedToken&) const = default;
};

// The list "added_tokens" of a tokenizer.json, in its order.
std::vector<AddedToken> read_added_tokens(const JsonNode& node);

class AddedTokens {
 public:
  // As the library's add_tokens(): see [Note: ids of added tokens], [Note: added again]. Returns
  // those that are new, or become other than they were.
  std::vector<AddedToken> add(const std::vector<AddedToken>& tokens, const Bpe& model,
                              const Normalizer& normalizer);
  // Tokens that are special are text like any other: they are not searched.
  void split_special() { splits_special_ = true; }

  const AddedToken* find(int32_t id) const;                // null: none
  const AddedToken* find(std::string_view content) const;  // null: none
  bool is_special(const std::string& content) const { return special_.contains(content); }
  int32_t largest_id() const { return largest_id_; }  // -1: there are none
  // Whether a text may be cut between a letter and a space without cutting or changing a match.
  bool cuts_before_space() const;

  // A part of a text: an added token (then `id` is not negative) or what lies between.
  struct Part {
    std::string_view text;
    int32_t id = -1;
  };
  using Use = std::function<void(const Part&)>;
  // Whether these bytes are text although a special token has this text; null: none are.
  using IsText = std::function<bool(Span bytes)>;
  void split_raw(std::string_view text, const Use& use, const IsText& is_text = nullptr) const {
    split(raw_, text, use, is_text);
  }
  // Appends the places of special tokens that are searched in the normalised text, where the text
  // has their contents as they are.
  void find_normalized_special(std::string_view text, std::vector<Span>& out) const;
  void split_normalized(std::string_view text, const Use& use,
                        const IsText& is_text = nullptr) const {
    split(normalized_, text, use, is_text);
  }

 private:
  // Finds the longest pattern that begins at a place.
  class Trie {
   public:
    void insert(std::string_view pattern, int32_t id);
    bool may_begin(char c) const { return begins_[static_cast<uint8_t>(c)]; }
    bool empty() const { return nodes_.size() == 1; }
    struct Match {
      size_t length = 0;  // 0: none
      int32_t id = -1;
    };
    Match longest(std::string_view text) const;

   private:
    struct Node {
      std::vector<std::pair<char, size_t>> next;
      int32_t id = -1;
    };
    std::vector<Node> nodes_ = std::vector<Node>(1);
    std::array<bool, 256> begins_{};
  };
  // What is searched: a token as it was when it became special, or an ordinary one.
  struct Searched {
    AddedToken token;
    std::string pattern;  // the content, normalised where the token is
  };
  bool add_one(AddedToken token, const Bpe& model, std::vector<AddedToken>& seen);
  void split(const Trie& trie, std::string_view text, const Use& use, const IsText& is_text) const;

  std::unordered_map<int32_t, AddedToken> by_id_;
  std::unordered_map<std::string, int32_t> by_content_;
  std::unordered_set<std::string> special_;    // contents
  std::vector<Searched> specials_, ordinary_;  // in the order in which they came
  Trie raw_, normalized_;
  int32_t largest_id_ = -1;
  bool splits_special_ = false;
};

}  // namespace fsdp::data
