// Contract: tools/data/tokenizer/added_tokens.h.
//
// [Note: the order]
// First the tokens with normalized = false are searched in the raw text, the leftmost and of equals
// the longest; what lies between is normalised piece by piece, and the others are searched in that,
// by their normalised content. A longest match that is refused (single_word) is skipped as a whole:
// no shorter one is tried in its place.
//
// [Note: ids of added tokens]
// A content that the model knows keeps that id. Others are numbered on from the model's, in the
// order of the file, whatever ids the file says: the library that defines the format does so.
//
// [Note: added again]
// A token that is added again keeps its id. Its lstrip, rstrip and single_word are those of the
// last time, but a list does not bring back what it or an earlier one has replaced in it. Its
// `normalized` says only where it is searched, and what has been searched stays searched: of a
// special token the first time decides, an ordinary one may be searched in both texts. Special is
// for good. The library keeps its lists so.
#include "tools/data/tokenizer/added_tokens.h"

#include <algorithm>
#include <map>

#include "tools/data/tokenizer/characters.h"
#include "tools/data/tokenizer/json_node.h"

namespace fsdp::data {
namespace {

AddedToken read_token(const JsonNode& node) {
  node.check_keys({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  AddedToken out;
  out.content = node.text("content");
  out.single_word = node.flag("single_word", false);
  out.lstrip = node.flag("lstrip", false);
  out.rstrip = node.flag("rstrip", false);
  out.special = node.flag("special", false);
  out.normalized = node.flag("normalized", !out.special);
  node.at("id").integer(0, INT32_MAX);  // see [Note: ids of added tokens]
  return out;
}

bool word_ends(std::string_view text) {
  return !text.empty() && is_word(character_at(text, previous_character(text, text.size())));
}
bool word_begins(std::string_view text) { return !text.empty() && is_word(character_at(text, 0)); }

}  // namespace

void AddedTokens::Trie::insert(std::string_view pattern, int32_t id) {
  if (pattern.empty()) return;
  begins_[static_cast<uint8_t>(pattern[0])] = true;
  size_t node = 0;
  for (const char c : pattern) {
    const auto& next = nodes_[node].next;
    const auto found =
        std::find_if(next.begin(), next.end(), [&](const auto& edge) { return edge.first == c; });
    if (found != next.end()) {
      node = found->second;
      continue;
    }
    nodes_[node].next.emplace_back(c, nodes_.size());
    node = nodes_.size();
    nodes_.emplace_back();
  }
  if (nodes_[node].id < 0) nodes_[node].id = id;
}

AddedTokens::Trie::Match AddedTokens::Trie::longest(std::string_view text) const {
  Match out;
  size_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto& next = nodes_[node].next;
    const auto found = std::find_if(next.begin(), next.end(),
                                    [&](const auto& edge) { return edge.first == text[i]; });
    if (found == next.end()) break;
    node = found->second;
    if (nodes_[node].id >= 0) out = {i + 1, nodes_[node].id};
  }
  return out;
}

std::vector<AddedToken> read_added_tokens(const JsonNode& node) {
  std::vector<AddedToken> out;
  for (size_t i = 0; i < node.size(); ++i) out.push_back(read_token(node.item(i)));
  return out;
}

std::vector<AddedToken> AddedTokens::add(const std::vector<AddedToken>& tokens, const Bpe& model,
                                         const Normalizer& normalizer) {
  std::vector<AddedToken> changed;
  for (const AddedToken& token : tokens) {
    if (!token.special || token.content.empty()) continue;
    if (special_.insert(token.content).second) specials_.push_back({token, token.content});
  }
  std::map<std::string, std::vector<AddedToken>> seen;
  for (const AddedToken& token : tokens) {
    if (add_one(token, model, seen[token.content])) changed.push_back(token);
  }
  raw_ = normalized_ = Trie();
  for (std::vector<Searched>* list : {&specials_, &ordinary_}) {  // of two the first is found
    for (Searched& searched : *list) {
      const AddedToken& token = searched.token;
      std::string storage;
      if (token.normalized) searched.pattern = normalizer.apply(token.content, storage);
      (token.normalized ? normalized_ : raw_)
          .insert(searched.pattern, by_content_.at(token.content));
    }
  }
  return changed;
}

// Gives the token its id. Returns whether that changes anything. `seen`: all that this content has
// been since add() began, in which a token that was replaced meanwhile does not come back.
bool AddedTokens::add_one(AddedToken token, const Bpe& model, std::vector<AddedToken>& seen) {
  if (token.content.empty()) return false;
  const auto known = by_content_.find(token.content);
  const auto model_tokens = static_cast<int32_t>(model.tokens());
  token.id = known != by_content_.end()
                 ? known->second
                 : model.id_of(token.content).value_or(std::max(largest_id_ + 1, model_tokens));
  if (known != by_content_.end() && seen.empty()) seen.push_back(by_id_.at(token.id));
  if (std::find(seen.begin(), seen.end(), token) != seen.end()) return false;
  seen.push_back(token);
  largest_id_ = std::max(largest_id_, token.id);
  by_content_[token.content] = token.id;
  if (!special_.contains(token.content)) ordinary_.push_back({token, token.content});
  by_id_[token.id] = std::move(token);
  return true;
}

const AddedToken* AddedTokens::find(int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &found->second;
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? nullptr : &by_id_.at(found->second);
}

void AddedTokens::split(const Trie& trie, std::string_view text, const Use& use,
                        const IsText& is_text) const {
  size_t end = 0;  // of the last match, with the white space that it swallowed
  for (size_t i = trie.empty() ? text.size() : 0; i < text.size();) {
    const Trie::Match match =
        trie.may_begin(text[i]) ? trie.longest(text.substr(i)) : Trie::Match{};
    if (match.length == 0) {
      ++i;
      continue;
    }
    const AddedToken& token = by_id_.at(match.id);
    size_t from = i, to = i + match.length;
    i = to;
    const bool special = (splits_special_ || is_text) && special_.contains(token.content);
    if (special && (splits_special_ || is_text({from, to}))) continue;
    if (token.single_word && (word_ends(text.substr(0, from)) || word_begins(text.substr(to)))) {
      continue;
    }
    while (token.lstrip && from > end) {
      const size_t before = previous_character(text, from);
      if (!is_white_space(character_at(text, before))) break;
      from = before;
    }
    if (token.lstrip) from = std::max(from, end);
    while (token.rstrip && to < text.size() && is_white_space(character_at(text, to))) {
      to += character_length(text[to]);
    }
    if (from > end) use({text.substr(end, from - end)});
    use({text.substr(from, to - from), token.id});
    end = to;
  }
  if (end < text.size()) use({text.substr(end)});
}

void AddedTokens::find_normalized_special(std::string_view text, std::vector<Span>& out) const {
  for (const Searched& searched : specials_) {
    const std::string& content = searched.token.content;
    if (!searched.token.normalized || content.empty()) continue;
    for (size_t at = text.find(content); at != text.npos; at = text.find(content, at + 1)) {
      out.push_back({at, at + content.size()});
    }
  }
  std::ranges::sort(out, {}, &Span::begin);
}

bool AddedTokens::cuts_before_space() const {
  const auto cuts = [&](const Searched& searched) {
    const AddedToken& token = *find(searched.token.content);
    for (const std::string_view text :
         {std::string_view(token.content), std::string_view(searched.pattern)}) {
      for (size_t c = 0; c + 1 < text.size(); ++c) {
        const std::string_view rest = text.substr(c + 1);
        const bool space = rest.starts_with(' ') || rest.starts_with(kBlank);
        if (is_latin_letter(text[c]) && space) return false;
      }
      const bool spaced = text.starts_with(' ') || text.starts_with(kBlank);
      if (token.single_word && spaced) return false;
      if (token.rstrip && !text.empty() && is_latin_letter(text.back())) return false;
    }
    return true;
  };
  return std::all_of(specials_.begin(), specials_.end(), cuts) &&
         std::all_of(ordinary_.begin(), ordinary_.end(), cuts);
}

}  // namespace fsdp::data
