// Contract: tools/data/tokenizer/class_rules.h.
//
// [Note: which tokens are added]
// In this order, each by AddedTokens::add():
// 1. those of the tokenizer.json;
// 2. those of added_tokens_decoder, by their number there. Without this key those of
//    added_tokens.json and again those of the tokenizer.json, by their numbers, and
//    special_tokens_map.json replaces the keys of tokenizer_config.json;
// 3. the named ones (bos_token, ..., additional_special_tokens, extra_special_tokens) that are not
//    there yet. A token given as text only counts as there if its content is, a token with options
//    only if its options are the same, too.
// What 2 and 3 add is special if it says so or if a key names it. A named token takes the options
// of the token with its content in added_tokens_decoder or tokenizer.json, but not those that a
// token of added_tokens.json has by being there.
#include "tools/data/tokenizer/class_rules.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/io/hub_files.h"
#include "tools/data/tokenizer/json_node.h"
#include "tools/data/tokenizer/python_json.h"
#include "tools/data/tokenizer/tokenizer_class.h"

namespace fsdp::data {
namespace {

const Json kNone = Json::object();  // for loops over a file that does not exist

namespace fs = std::filesystem;

constexpr std::array kNames = {"bos_token", "eos_token", "unk_token", "sep_token",
                               "pad_token", "cls_token", "mask_token"};
constexpr const char* kMore = "additional_special_tokens";

// As Python's AddedToken.
struct Token {
  AddedToken token;
  bool plain = false;    // given as text, without options
  bool follows = false;  // `normalized` is not given: it is the opposite of `special`

  AddedToken resolved() const {
    AddedToken out = token;
    if (follows) out.normalized = !out.special;
    return out;
  }
};

Token plain_token(std::string content) {
  Token out;
  out.token.content = std::move(content);
  out.plain = out.follows = true;
  return out;
}

Token token_with_options(const JsonNode& node) {
  const auto flag = [&](const char* key) { return node.value().contains(key) && node.flag(key); };
  Token out;
  out.token.content = node.text("content");
  out.token.single_word = flag("single_word");
  out.token.lstrip = flag("lstrip");
  out.token.rstrip = flag("rstrip");
  out.token.special = flag("special");
  out.token.normalized = flag("normalized");
  out.follows = !node.value().contains("normalized");
  return out;
}

// Null where there is no such file. With the keys in the file's order, which decides about ids.
Json read_in_order(const fs::path& file) {
  if (!is_named(file)) return Json();
  Json keys = read_python_json(file);
  if (!keys.is_object()) {
    JsonNode(keys, file.string()).fail("expected an object, got {}", keys.type_name());
  }
  return keys;
}

void set_prefix(Json& component, bool value, bool nested) {
  if (!component.is_object()) return;
  const std::string type = component.value("type", "");
  if (type == "ByteLevel" && component.contains("add_prefix_space")) {
    component["add_prefix_space"] = value;
  }
  if (type != "Sequence" || !nested || !component.contains("pretokenizers")) return;
  for (Json& child : component["pretokenizers"]) set_prefix(child, value, nested);
}

// Each returns what is other in the components of the tokenizer.json now, as text; "": nothing.
// add_prefix_space of the pre-tokenizer ByteLevel; `nested`: also within a Sequence.
std::string set_prefix_space(Json& tokenizer, bool value, bool nested) {
  if (!tokenizer.contains("pre_tokenizer")) return "";
  Json changed = tokenizer["pre_tokenizer"];
  set_prefix(changed, value, nested);
  if (changed == tokenizer["pre_tokenizer"]) return "";
  tokenizer["pre_tokenizer"] = changed;
  return changed.dump();
}

// Normalizer, pre-tokenizer and decoder as the converter of a tokenizer.model makes them.
std::string convert_components(Json& tokenizer, bool prefix, bool legacy) {
  Json normalizer, pre_tokenizer;
  const Json space = {{"String", " "}}, blank = {{"String", "\u2581"}};
  if (legacy) {
    Json steps = Json::array();
    if (prefix) steps.push_back({{"type", "Prepend"}, {"prepend", "\u2581"}});
    steps.push_back({{"type", "Replace"}, {"pattern", space}, {"content", "\u2581"}});
    normalizer = {{"type", "Sequence"}, {"normalizers", steps}};
  } else {
    pre_tokenizer = {{"type", "Metaspace"},
                     {"replacement", "\u2581"},
                     {"prepend_scheme", prefix ? "first" : "never"},
                     {"split", false}};
  }
  Json decoders = Json::array();
  decoders.push_back({{"type", "Replace"}, {"pattern", blank}, {"content", " "}});
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (prefix) {
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  const Json decoder = {{"type", "Sequence"}, {"decoders", decoders}};
  std::string out;
  for (const auto& [key, component] :
       {std::pair<const char*, const Json*>("normalizer", &normalizer),
        {"pre_tokenizer", &pre_tokenizer},
        {"decoder", &decoder}}) {
    Json& old = tokenizer[key];
    if (old != *component) out += key + component->dump();
    old = *component;
  }
  return out;
}

class Reader {
 public:
  Reader(const fs::path& folder, Json& tokenizer)
      : folder_(folder),
        tokenizer_(tokenizer),
        config_(read_in_order(folder / "tokenizer_config.json")) {}

  ClassRules read() {
    const ChosenClass chosen = choose_class(folder_, config_);
    if (!chosen.of) return {};
    class_ = chosen.of;
    if (config_.is_null()) config_ = Json::object();
    out_.name = class_->name;
    if (!chosen.note.empty()) out_.notes.push_back(chosen.note);
    refuse_methods();
    config_.contains("added_tokens_decoder") ? read_added_tokens_decoder() : read_older_files();
    const bool anew = made_anew();
    read_named(anew || class_->makes_special);
    list_tokens();
    read_frame();
    if (!anew) read_prefix();
    out_.split_special_tokens = flag("split_special_tokens", false);
    out_.clean_up = truth("clean_up_tokenization_spaces", false);
    return std::move(out_);
  }

 private:
  JsonNode node() const { return {config_, (folder_ / "tokenizer_config.json").string()}; }
  JsonNode at(const char* key) const {
    const char* file = of_map_.contains(key) ? "special_tokens_map.json" : "tokenizer_config.json";
    return JsonNode(config_, (folder_ / file).string()).at(key);
  }
  bool flag(const char* key, bool otherwise) const {
    return config_.contains(key) ? at(key).flag() : otherwise;
  }
  // As Python takes it: null is no, and so are 0 and what is empty. Only a key that is not there is
  // the class's default.
  bool truth(const char* key, bool otherwise) {
    if (!config_.contains(key)) return otherwise;
    const Json& value = config_.at(key);
    if (value.is_null() || value.is_boolean()) return node().flag(key, false);
    const bool is = value.is_number()   ? value.get<double>() != 0
                    : value.is_string() ? !value.text().empty()
                                        : !value.empty();
    if (!value.is_string()) {
      note("{} is {}: transformers takes it for {}", key, value.dump(), is);
    } else if (is) {
      note("{} is the text \"{}\": transformers takes every text but an empty one for true", key,
           value.text());
    }
    return is;
  }
  void refuse_methods() const {
    for (const char* key : {"add_special_tokens", "add_tokens", "encode", "decode", "tokenize"}) {
      if (config_.contains(key)) {
        at(key).fail("is the name of a method of transformers, which refuses such a key");
      }
    }
  }

  void read_added_tokens_decoder() {
    const JsonNode list = at("added_tokens_decoder");
    if (!list.value().is_object()) list.fail("expected an object of tokens by their ids");
    for (const auto& [name, value] : list.value().items()) {
      int64_t index = -1;
      const char* end = name.data() + name.size();
      const auto parsed = std::from_chars(name.data(), end, index);
      if (parsed.ec != std::errc() || parsed.ptr != end || index < 0 || index > INT32_MAX) {
        list.at(name).fail("expected a token id, got \"{}\"", name);
      }
      const Token token = token_with_options(list.at(name));
      insert(index, token, true);
      known_[token.token.content] = token;
    }
    const Json map = read_in_order(folder_ / "special_tokens_map.json");
    for (const char* key : {"bos_token", "eos_token", "pad_token"}) {
      if (map.is_null() || !map.contains(key) || !config_.contains(key)) continue;
      const std::string mine = content_of(config_.at(key)), other = content_of(map.at(key));
      if (mine == other) continue;
      note("{}: tokenizer_config.json says \"{}\", special_tokens_map.json \"{}\": \"{}\" is taken",
           key, mine, other, mine);
    }
  }
  static std::string content_of(const Json& token) {
    return token.is_string()   ? token.text()
           : token.is_object() ? token.value("content", "")
                               : token.dump();
  }

  void read_older_files() {
    std::set<std::string> named;
    const std::string last = read_special_tokens_map(named);
    const fs::path file = folder_ / "added_tokens.json";
    const Json added = read_in_order(file);
    const JsonNode list(added, file.string());
    for (const auto& [content, index] : (added.is_null() ? kNone : added).items()) {
      Token token = plain_token(content);
      token.plain = token.follows = false;
      token.token.special = named.contains(content);
      token.token.normalized = !token.token.special;
      insert(list.at(content).integer(0, INT32_MAX), token, true);
      // transformers files each of them under the last additional token, whatever its content: a
      // key that names one keeps its own options.
      if (!last.empty()) known_[last] = token;
    }
    if (!tokenizer_.is_object() || !tokenizer_.contains("added_tokens")) return;
    const JsonNode tokens(tokenizer_.at("added_tokens"), "tokenizer.json: added_tokens");
    for (size_t i = 0; i < tokens.size(); ++i) {
      const JsonNode token = tokens.item(i);
      const Token serialized = token_with_options(token);
      insert(token.at("id").integer(0, INT32_MAX), serialized, false);
      known_[serialized.token.content] = serialized;
    }
  }
  // Its values come before those of the tokenizer_config.json. Returns its last additional token.
  // `named`: the contents that are special by now. An object of the tokenizer_config.json is not
  // yet a token for transformers, and its content is not among them.
  std::string read_special_tokens_map(std::set<std::string>& named) {
    const auto as_token = [&](Json value) {
      if (!value.is_object()) return value;
      named.insert(content_of(value));
      value["special"] = true;
      value["__type"] = "AddedToken";
      return value;
    };
    std::string last;
    const Json map = read_in_order(folder_ / "special_tokens_map.json");
    for (const auto& [key, value] : (map.is_null() ? kNone : map).items()) {
      Json taken = as_token(value);
      if (key == kMore && value.is_array()) {
        taken = config_.contains(kMore) && config_.at(kMore).is_array() ? config_.at(kMore)
                                                                        : Json::array();
        for (const Json& token : value) {
          const Json mine = as_token(token);
          if (std::find(taken.begin(), taken.end(), mine) == taken.end()) taken.push_back(mine);
          last = content_of(token);
        }
      }
      of_map_.insert(key);
      config_[key] = taken;
    }
    const auto add_text = [&](const Json& value) {
      if (value.is_string()) named.insert(value.text());
    };
    for (const char* key : kNames) {
      if (config_.contains(key)) add_text(config_.at(key));
    }
    if (config_.contains(kMore)) {
      for (const Json& token : config_.at(kMore)) add_text(token);
    }
    return last;
  }
  void insert(int64_t index, Token token, bool of_class) {
    token.token.id = of_class ? static_cast<int32_t>(index) : -1;
    by_index_[index] = std::move(token);
  }

  // Text, or an object that is marked as an AddedToken.
  Token read_token(const JsonNode& where) {
    if (!where.value().is_object()) return plain_token(where.text());
    if (!where.has("__type") || where.value().at("__type") != "AddedToken") {
      note(
          "\"{}\" is an object without \"__type\": \"AddedToken\", which transformers refuses: it "
          "is "
          "read as if it had that",
          where.text("content"));
    }
    return token_with_options(where);
  }
  std::optional<Token> named(const char* key, std::string_view otherwise) {
    if (!config_.contains(key)) {
      if (otherwise.empty()) return {};
      return plain_token(std::string(otherwise));
    }
    if (config_.at(key).is_null()) return {};
    const Token token = read_token(at(key));
    const auto known = known_.find(token.token.content);
    return known == known_.end() ? token : known->second;
  }
  std::string_view default_of(std::string_view key) const {
    if (key == "bos_token") return class_->bos;
    if (key == "eos_token") return class_->eos;
    if (key == "unk_token") return class_->unk;
    if (key != "pad_token") return "";
    const Json* padding = class_->keeps_no_padding ? nullptr : tokenizer_.find("padding");
    if (!class_->pad.empty() || !padding || !padding->is_object()) return class_->pad;
    const Json* token = padding->find("pad_token");
    return token && token->is_string() ? std::string_view(token->text()) : "";
  }
  void read_named(bool makes_special) {
    for (const char* key : kNames) {
      std::optional<Token> token = named(key, default_of(key));
      if (!token) continue;
      const std::string_view name = key;
      const bool of_four =
          name == "bos_token" || name == "eos_token" || name == "unk_token" || name == "pad_token";
      if (makes_special && of_four && token->plain) {
        token->plain = token->follows = false;
        token->token.special = true;
        token->token.normalized = false;
      }
      if (name == "bos_token") out_.begin = out_.begin_of_text = token->token.content;
      if (name == "eos_token") {
        out_.end_of_text = token->token.content;
        out_.end_is_named = config_.contains(key);
      }
      if (name == "pad_token") {
        out_.padding = token->token.content;
        out_.padding_is_named = config_.contains(key);
      }
      name_special({*token});
    }
    std::vector<Token> more = list_of(kMore);
    if (class_->infills) add_infilling(more);
    name_special(more);
    read_extra();
  }
  std::vector<Token> list_of(const char* key) {
    std::vector<Token> out;
    if (!config_.contains(key) || config_.at(key).is_null()) return out;
    const JsonNode list = at(key);
    for (size_t i = 0; i < list.size(); ++i) out.push_back(read_token(list.item(i)));
    return out;
  }
  void add_infilling(std::vector<Token>& out) {
    constexpr std::pair<const char*, const char*> kTokens[] = {{"prefix_token", "\u2581<PRE>"},
                                                               {"middle_token", "\u2581<MID>"},
                                                               {"suffix_token", "\u2581<SUF>"},
                                                               {"eot_token", "\u2581<EOT>"}};
    for (const auto& [key, content] : kTokens) {
      if (!config_.contains(key)) {
        out.push_back(plain_token(content));
      } else if (!config_.at(key).is_null()) {
        out.push_back(read_token(at(key)));
      }
    }
  }
  void read_extra() {
    constexpr const char* kExtra = "extra_special_tokens";
    if (!config_.contains(kExtra)) return;
    if (config_.at(kExtra).is_array()) {  // as version 5 writes it
      note("{} is a list, which transformers 4.57 refuses: its tokens are read as {}", kExtra,
           kMore);
      return name_special(list_of(kExtra));
    }
    const JsonNode list = at(kExtra);
    if (!list.value().is_object())
      list.fail("expected an object, got {}", list.value().type_name());
    for (const auto& [key, unused] : list.value().items()) name_special({read_token(list.at(key))});
  }
  // The tokens of one key; those that another key has named before are left out.
  void name_special(const std::vector<Token>& tokens) {
    std::vector<Token> fresh;
    for (const Token& token : tokens) {
      if (token.plain && token.token.content.empty()) continue;
      if (!special_.contains(token.token.content)) fresh.push_back(token);
    }
    for (const Token& token : fresh) special_.insert(token.token.content);
    named_.insert(named_.end(), fresh.begin(), fresh.end());
  }

  void list_tokens() {
    std::vector<Token> listed;
    std::set<std::string> contents;
    for (const auto& [index, token] : by_index_) {
      listed.push_back(token);
      contents.insert(token.token.content);
    }
    if (const Json* added = tokenizer_.find("added_tokens"); added && added->is_array()) {
      for (const Json& token : *added) contents.insert(content_of(token));
    }
    const size_t by_index = listed.size();
    for (const Token& token : named_) {
      const auto same = [&](const Token& other) {
        AddedToken mine = token.resolved(), its = other.resolved();
        mine.id = its.id = 0;
        return mine == its;
      };
      const auto end = listed.begin() + static_cast<std::ptrdiff_t>(by_index);
      const bool there = token.plain ? contents.contains(token.token.content)
                                     : std::any_of(listed.begin(), end, same);
      if (!there) listed.push_back(token);
      if (!there) listed.back().token.id = -1;
    }
    for (Token& token : listed) {
      token.token.special = token.token.special || special_.contains(token.token.content);
      out_.tokens.push_back(token.resolved());
    }
  }

  void read_frame() {
    const bool adds_begin = truth("add_bos_token", class_->adds_begin);
    const bool adds_end = truth("add_eos_token", false);
    out_.begin_is_asked_for = config_.contains("add_bos_token") && adds_begin;
    if (class_->refuses_begin && adds_begin) {
      at("add_bos_token").fail("transformers refuses true for {}", class_->name);
    }
    out_.frames = class_->frames;
    out_.end = out_.end_of_text;
    if (!adds_begin) out_.begin.reset();
    if (!out_.frames || !adds_end) out_.end.reset();
    if (!out_.frames) return;
    check_frame("bos_token", adds_begin, out_.begin);
    check_frame("eos_token", adds_end, out_.end);
  }
  void check_frame(const char* key, bool adds, const std::optional<std::string>& token) const {
    if (!adds) return;
    if (!token) node().fail("{}: {} adds it, but there is none", key, class_->name);
    if (token->empty() || token->starts_with('$') || token->find_first_of(" :") != token->npos) {
      node().fail("{}: transformers cannot put \"{}\" around a text", key, *token);
    }
  }

  void read_prefix() {
    constexpr const char* kPrefix = "add_prefix_space";
    if (!config_.contains(kPrefix) && class_->leaves_prefix) return;
    if (config_.contains(kPrefix) && config_.at(kPrefix).is_null()) return;
    const bool value = flag(kPrefix, false);
    out_.components = set_prefix_space(tokenizer_, value, value && class_->prefixes_nested);
  }

  // Whether transformers reads another file than the tokenizer.json, and that can be imitated.
  bool made_anew() {
    const bool llama = class_->leaves_prefix && node().has("add_prefix_space");
    for (const char* key : {"tokenizer_file", "fast_tokenizer_files"}) {
      if (!config_.contains(key)) continue;
      note("{}: transformers may read another file; the tokenizer.json is read here", key);
    }
    if (node().has("init_inputs") && at("init_inputs").size() > 0) {
      at("init_inputs").fail("transformers refuses more inputs than keys");
    }
    const bool legacy = !node().has("legacy") || at("legacy").flag();
    if (!flag("from_slow", false) && !llama) return false;
    const Json* model = tokenizer_.find("model");
    const bool pieces = model && model->is_object() && model->value("byte_fallback", false);
    const bool imitates = llama && pieces && is_named(folder_ / "tokenizer.model");
    if (imitates) {
      out_.components = convert_components(tokenizer_, flag("add_prefix_space", false), legacy);
      if (out_.components.empty()) return true;
    }
    note(
        "{}: {} makes the tokenizer anew from other files; here its vocabulary is that of the "
        "tokenizer.json{}",
        llama ? "add_prefix_space" : "from_slow", class_->name,
        imitates ? ", the rest as made anew" : ", and so is the rest");
    return imitates || llama;
  }

  template <typename... Args>
  void note(fmt::format_string<Args...> format, Args&&... args) {
    out_.notes.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  const fs::path& folder_;
  Json& tokenizer_;
  Json config_;                   // with the values of special_tokens_map.json where they win
  std::set<std::string> of_map_;  // keys with such a value
  const TokenizerClass* class_ = nullptr;
  std::map<int64_t, Token> by_index_;
  std::map<std::string, Token> known_;  // whose options a key takes that names this content
  std::vector<Token> named_;            // by keys, in their order
  std::set<std::string> special_;       // contents of named_
  ClassRules out_;
};

}  // namespace

ClassRules read_class_rules(const fs::path& folder, Json& tokenizer) {
  if (folder.empty() || !tokenizer.is_object()) return {};
  return Reader(folder, tokenizer).read();
}

}  // namespace fsdp::data
