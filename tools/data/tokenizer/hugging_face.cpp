// Contract: tools/data/tokenizer/hugging_face.h.
//
// [Note: stretches]
// A long text is encoded in stretches, which end between a Latin letter and a space that a Latin
// letter follows ("end| of"). The stages say at load whether that can change an id: no added token
// may reach across such a place, the normalizer must not look across it, and a piece must end there
// or no merge may join a letter and a space. Where one of them cannot tell, or a text has no such
// place, it is one stretch.
#include "tools/data/tokenizer/hugging_face.h"

#include <algorithm>

#include "core/error.h"
#include "core/io/config_keys.h"
#include "core/io/file.h"
#include "core/io/hub_files.h"
#include "core/io/json.h"
#include "core/rng.h"
#include "tools/data/tokenizer/added_tokens.h"
#include "tools/data/tokenizer/bpe.h"
#include "tools/data/tokenizer/characters.h"
#include "tools/data/tokenizer/class_rules.h"
#include "tools/data/tokenizer/decoder.h"
#include "tools/data/tokenizer/json_node.h"
#include "tools/data/tokenizer/normalizer.h"
#include "tools/data/tokenizer/pre_tokenizer.h"
#include "tools/data/tokenizer/utf8.h"
#include "tools/data/tokenizer/vocabulary_files.h"

namespace fsdp::data {
namespace {

template <typename Stage>
Stage read_stage(const JsonNode& root, std::string_view key) {
  return root.has(key) ? Stage(root.at(key)) : Stage();
}

// What a class changes, for an identity: nothing where it changes nothing.
std::string describe(const ClassRules& rules, const std::vector<AddedToken>& changed) {
  std::string out = rules.components + (rules.split_special_tokens ? " splits" : "");
  for (const AddedToken& t : changed) {
    out += fmt::format(" {}/{:d}{:d}{:d}{:d}{:d}", t.content, t.single_word, t.lstrip, t.rstrip,
                       t.normalized, t.special);
  }
  return out;
}

// What is put before and after the ids of a text: by the post-processor of a tokenizer.json
// (TemplateProcessing for a single text; ByteLevel adds nothing). Classes of transformers may do it
// in its place (class_rules.h).
struct SpecialFrame {
  std::vector<int32_t> before, after;
};

std::vector<int32_t> ids_of_special(const JsonNode& tokens, const std::string& name,
                                    int64_t vocab_size) {
  tokens.at(name).check_keys({"ids"}, "template token");
  const JsonNode ids = tokens.at(name).at("ids");
  std::vector<int32_t> out;
  for (size_t i = 0; i < ids.size(); ++i) {
    out.push_back(static_cast<int32_t>(ids.item(i).integer(0, vocab_size - 1)));
  }
  return out;
}

void read_template(const JsonNode& node, int64_t vocab_size, SpecialFrame& frame) {
  node.check_keys({"type", "single", "special_tokens"}, "post_processor TemplateProcessing");
  const JsonNode list = node.at("single");
  SpecialFrame around;
  bool text_seen = false;
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonNode piece = list.item(i);
    piece.check_keys({"Sequence", "SpecialToken"});
    const JsonNode named = piece.at(piece.has("Sequence") ? "Sequence" : "SpecialToken");
    named.check_keys({"id"}, "template piece");
    if (piece.has("Sequence")) {
      if (text_seen || named.text("id") != "A") {
        piece.fail("expected the text A, once");
      }
      text_seen = true;
      continue;
    }
    const std::string name = named.text("id");
    const auto ids = ids_of_special(node.at("special_tokens"), name, vocab_size);
    std::vector<int32_t>& to = text_seen ? around.after : around.before;
    to.insert(to.end(), ids.begin(), ids.end());
  }
  if (!text_seen) list.fail("expected the text A, once");
  frame.before.insert(frame.before.begin(), around.before.begin(), around.before.end());
  frame.after.insert(frame.after.end(), around.after.begin(), around.after.end());
}

void read_frame(const JsonNode& node, int64_t vocab_size, SpecialFrame& frame) {
  const std::string type = node.text("type");
  if (type == "TemplateProcessing") {
    read_template(node, vocab_size, frame);
  } else if (type == "ByteLevel") {
    node.check_keys({"type"}, "post_processor ByteLevel");
  } else if (type == "Sequence") {
    node.check_keys({"type", "processors"});
    const JsonNode list = node.at("processors");
    for (size_t i = 0; i < list.size(); ++i) read_frame(list.item(i), vocab_size, frame);
  } else {
    node.fail_unknown_type("TemplateProcessing, ByteLevel, Sequence");
  }
}

SpecialFrame read_special_frame(const JsonNode& post_processor, int64_t vocab_size) {
  SpecialFrame out;
  read_frame(post_processor, vocab_size, out);
  return out;
}

int32_t end_id(const std::filesystem::path& config) {
  if (!is_named(config)) return -1;
  const Json json = read_json_file(config);
  return static_cast<int32_t>(ConfigKeys(json, config.string()).token("eos_token_id"));
}

// The token that closes a document where no eos_token says it (class_rules.h): eos_token_id of the
// config.json in `folder` (the first of several; an empty folder has no files); without it the
// added token with one of the usual names. Ids that the vocabulary lacks are passed over. -1: none.
int32_t find_end_of_text(const std::filesystem::path& folder, const AddedTokens& added,
                         const Bpe& model) {
  const int32_t configured = folder.empty() ? -1 : end_id(folder / "config.json");
  if (added.find(configured) || model.content_of(configured)) return configured;
  for (const char* content : {"<|endoftext|>", "</s>", "<|end_of_text|>"}) {
    if (const AddedToken* token = added.find(std::string_view(content))) return token->id;
  }
  return -1;
}

}  // namespace

struct HuggingFaceTokenizer::Stages {
  explicit Stages(const JsonNode& root)
      : normalizer(read_stage<Normalizer>(root, "normalizer")),
        pre_tokenizer(read_stage<PreTokenizer>(root, "pre_tokenizer")),
        model(root.at("model"), pre_tokenizer.byte_level()),
        decoder(read_stage<Decoder>(root, "decoder")) {
    root.check_keys({"version", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                     "decoder", "model"},
                    "file");
    if (root.has("version") && root.text("version") != "1.0") {
      root.at("version").fail("expected \"1.0\", got \"{}\"", root.text("version"));
    }
    if (root.has("added_tokens")) {
      added.add(read_added_tokens(root.at("added_tokens")), model, normalizer);
    }
    if (root.has("post_processor")) {
      frame = read_special_frame(root.at("post_processor"), vocab_size());
    }
  }
  // Returns the tokens that are new, or become other than they were.
  std::vector<AddedToken> apply(const ClassRules& rules) {
    std::vector<AddedToken> changed = added.add(rules.tokens, model, normalizer);
    if (rules.split_special_tokens) added.split_special();
    clean_up = rules.clean_up;
    if (rules.frames) {
      const auto ids = [&](const std::optional<std::string>& token) {
        return token ? std::vector<int32_t>{id_of(*token)} : std::vector<int32_t>();
      };
      frame = {ids(rules.begin), ids(rules.end)};
    }
    return changed;
  }
  void find_cuts() {
    const PreTokenizer::Cut cut = pre_tokenizer.cut_before_space();
    cuts_before_space = normalizer.cuts_before_space() && added.cuts_before_space() &&
                        (cut == PreTokenizer::Cut::kApart ||
                         (cut == PreTokenizer::Cut::kInside && model.parts_before(space())));
  }
  // What the model sees of a space within a text.
  std::string space() const {
    std::string storage, out;
    pre_tokenizer.split({normalizer.apply(" ", storage, true)},
                        [&](const Piece& piece) { out += piece.text; });
    return out.empty() ? " " : out;
  }
  int32_t id_of(std::string_view content) const {  // -1: none
    const AddedToken* token = added.find(content);
    return token ? token->id : model.id_of(content).value_or(-1);
  }
  int64_t vocab_size() const { return std::max(model.largest_id(), added.largest_id()) + 1; }

  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Bpe model;
  Decoder decoder;
  AddedTokens added;
  SpecialFrame frame;
  bool clean_up = false;           // decoded texts: clean_up_spaces()
  bool cuts_before_space = false;  // see [Note: stretches]
};

HuggingFaceTokenizer::HuggingFaceTokenizer(const std::filesystem::path& file, size_t stretch)
    : HuggingFaceTokenizer(tokenizer_text(file), file.string(), folder_of_tokenizer(file),
                           stretch) {}

HuggingFaceTokenizer::HuggingFaceTokenizer(std::string_view json, std::string name, size_t stretch)
    : HuggingFaceTokenizer(json, std::move(name), "", stretch) {}

HuggingFaceTokenizer::HuggingFaceTokenizer(std::string_view json, std::string name,
                                           const std::filesystem::path& folder, size_t stretch)
    : name_(std::move(name)), stretch_(stretch) {
  Json root = parse_json(json, name_);
  ClassRules rules = read_class_rules(folder, root);
  auto stages = std::make_unique<Stages>(JsonNode(root, name_));
  // What a class takes by itself is no end of a text where the vocabulary lacks it.
  const auto is_new = [&](const std::optional<std::string>& token, bool is_named) {
    return token && !is_named && stages->id_of(*token) < 0;
  };
  if (is_new(rules.end_of_text, rules.end_is_named)) rules.end_of_text.reset();
  const bool unknown_padding = is_new(rules.padding, rules.padding_is_named);
  if (unknown_padding) rules.padding.reset();
  const bool begins_anew = rules.frames && is_new(rules.begin, false);
  const std::vector<AddedToken> changed = stages->apply(rules);
  stages->find_cuts();
  stages_ = std::move(stages);
  find_named_tokens(folder, rules);
  if (rules.name.empty()) named_.begin = named_.padding = std::nullopt;
  if (unknown_padding) named_.padding.reset();
  const SpecialFrame& frame = stages_->frame;
  const std::string state = fmt::format("{:x} {} {} {}", hash_name(json), end_of_text_,
                                        fmt::join(frame.before, ","), fmt::join(frame.after, ","));
  identity_ = hash_name(state + describe(rules, changed));
  if (begins_anew) {
    notes_.push_back(
        fmt::format("{} puts \"{}\" before a text, which the vocabulary lacks: it is "
                    "added as {}. A tokenizer_config.json with \"tokenizer_class\": "
                    "\"PreTrainedTokenizerFast\" would say that none is meant",
                    rules.name, *rules.begin, frame.before.at(0)));
  }
}

void HuggingFaceTokenizer::find_named_tokens(const std::filesystem::path& folder,
                                             const ClassRules& rules) {
  const Stages& s = *stages_;
  notes_ = rules.notes;
  for (const AddedToken& token : rules.tokens) {
    const int32_t id = s.id_of(token.content);
    if (token.id < 0 || token.id == id) continue;
    notes_.push_back(
        fmt::format("the files number \"{}\" {}; transformers adds it as {}, and so "
                    "does this program",
                    token.content, token.id, id));
    break;  // one shows it
  }
  if (rules.begin_is_asked_for && s.frame.before.empty()) {
    notes_.push_back(
        fmt::format("add_bos_token: true has no effect with {}: the post_processor of "
                    "the tokenizer.json decides, and it puts no token before a text",
                    rules.name));
  }
  padding_ = rules.padding ? s.id_of(*rules.padding) : -1;
  end_of_text_ = rules.end_of_text ? s.id_of(*rules.end_of_text) : -1;
  named_.end_is_said = end_of_text_ >= 0;
  if (end_of_text_ < 0) end_of_text_ = find_end_of_text(folder, s.added, s.model);
  named_.begin = rules.begin_of_text ? s.id_of(*rules.begin_of_text) : -1;
  named_.padding = padding_;
  if (end_of_text_ >= 0) named_.end = end_of_text_;
}

HuggingFaceTokenizer::~HuggingFaceTokenizer() = default;

std::string HuggingFaceTokenizer::note() const {
  return notes_.empty() ? "" : fmt::format("{}: {}", name_, fmt::join(notes_, "; "));
}

bool HuggingFaceTokenizer::may_change_end(std::string_view text) const {
  return stages_->clean_up && may_be_cleaned_up(text);
}

int64_t HuggingFaceTokenizer::vocab_size() const { return stages_->vocab_size(); }

bool HuggingFaceTokenizer::encodes_in_stretches() const { return stages_->cuts_before_space; }

const std::string* HuggingFaceTokenizer::content_of(int32_t id) const {
  const AddedToken* added = stages_->added.find(id);
  return added ? &added->content : stages_->model.content_of(id);
}

bool HuggingFaceTokenizer::cuts(int32_t id) const { return stages_->added.find(id) != nullptr; }

size_t HuggingFaceTokenizer::end_of_stretch(std::string_view text, size_t begin) const {
  if (!stages_->cuts_before_space) return text.size();
  for (size_t i = begin + std::max<size_t>(stretch_, 1); i + 1 < text.size(); ++i) {
    if (text[i] == ' ' && is_latin_letter(text[i - 1]) && is_latin_letter(text[i + 1])) return i;
  }
  return text.size();
}

// `begin`: of the stretch in its text.
void HuggingFaceTokenizer::encode_stretch(std::string_view text, size_t begin,
                                          std::vector<int32_t>& ids, Bytes* bytes,
                                          const UseIds& use) const {
  const Stages& s = *stages_;
  std::string storage;
  std::vector<Span> tokens;  // of a piece
  size_t untold = 0;         // bytes of pieces
  const PreTokenizer::Use encode_piece = [&](const Piece& piece) {
    if (bytes) {
      tokens.clear();
      s.model.encode(piece.text, ids, tokens);
      for (const Span token : tokens) bytes->of_ids.push_back(piece.origin(token));
    } else {
      s.model.encode(piece.text, ids);
    }
    untold += piece.text.size();
    if (untold < stretch_) return;
    use({});
    untold = 0;
  };
  const auto is_apart = [&](Span token) {
    const auto first = std::upper_bound(bytes->apart.begin(), bytes->apart.end(), token.begin);
    return first != bytes->apart.end() && *first < token.end;
  };
  const bool asks = bytes && !bytes->apart.empty();
  const auto encode_raw = [&](const AddedTokens::Part& raw) {
    const auto offset = static_cast<size_t>(raw.text.data() - text.data());
    const Span place{begin + offset, begin + offset + raw.text.size()};
    if (raw.id >= 0) {
      ids.push_back(raw.id);
      if (bytes) bytes->of_ids.push_back(place);
      return;
    }
    Trace trace(place.begin == 0 ? character_length(raw.text[0]) : 0);
    if (bytes) trace.follow_bytes(place.begin);
    Piece normal =
        trace.piece(s.normalizer.apply(raw.text, storage, trace, offset == 0 && begin > 0));
    if (place.begin > 0) normal.lead = 0;  // whatever a Replace put in front
    const auto encode_part = [&](const AddedTokens::Part& part) {
      const auto from = static_cast<size_t>(part.text.data() - normal.text.data());
      const Span within{from, from + part.text.size()};
      if (part.id < 0) return s.pre_tokenizer.split(normal.part(within), encode_piece);
      ids.push_back(part.id);
      if (bytes) bytes->of_ids.push_back(normal.origin(within));
    };
    const auto is_text = [&](Span within) { return is_apart(normal.origin(within)); };
    s.added.split_normalized(normal.text, encode_part,
                             asks ? is_text : AddedTokens::IsText(nullptr));
  };
  const auto is_text = [&](Span token) {
    return is_apart({begin + token.begin, begin + token.end});
  };
  s.added.split_raw(text, encode_raw, asks ? is_text : AddedTokens::IsText(nullptr));
}

void HuggingFaceTokenizer::encode_to(std::string_view text, SpecialTokens special,
                                     const UseIds& use) const {
  encode_all(text, special, nullptr, use);
}

EncodedText HuggingFaceTokenizer::encode_with_bytes(std::string_view text, SpecialTokens special,
                                                    std::span<const size_t> apart) const {
  EncodedText out;
  Bytes bytes{.of_ids = {}, .apart = apart};
  encode_all(text, special, &bytes, [&](std::span<const int32_t> ids) {
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
  });
  out.bytes = std::move(bytes.of_ids);
  return out;
}

std::vector<Span> HuggingFaceTokenizer::special_in(std::string_view text) const {
  std::vector<Span> out;
  stages_->added.split_raw(
      text, [](const AddedTokens::Part&) {},
      [&](Span token) {
        out.push_back(token);
        return false;
      });
  stages_->added.find_normalized_special(text, out);
  return out;
}

void HuggingFaceTokenizer::encode_all(std::string_view text, SpecialTokens special, Bytes* bytes,
                                      const UseIds& use) const {
  std::vector<int32_t> ids;
  const auto add_around = [&](const std::vector<int32_t>& tokens, size_t place) {
    if (special == SpecialTokens::kOmit) return;
    ids.insert(ids.end(), tokens.begin(), tokens.end());
    if (bytes) bytes->of_ids.insert(bytes->of_ids.end(), tokens.size(), {place, place});
  };
  add_around(stages_->frame.before, 0);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = end_of_stretch(text, begin);
    const std::string_view stretch = text.substr(begin, end - begin);
    // Here: one walk through all of a large text first would bring the whole text into memory.
    const size_t bad = first_invalid_utf8(stretch);
    FSDP_CHECK(bad == stretch.size(), "[tokenizer] text: invalid UTF-8 at byte {}", begin + bad);
    encode_stretch(stretch, begin, ids, bytes, use);
    if (end < text.size()) {
      use(ids);
      ids.clear();
    }
    begin = end;
  }
  add_around(stages_->frame.after, text.size());
  use(ids);
}

std::string HuggingFaceTokenizer::decode(std::span<const int32_t> tokens,
                                         SpecialTokens special) const {
  std::vector<std::string> contents;
  for (const int32_t id : tokens) {
    const std::string* content = content_of(id);
    if (!content) continue;
    if (special == SpecialTokens::kOmit && stages_->added.is_special(*content)) continue;
    contents.push_back(*content);
  }
  std::string text = stages_->decoder.decode(std::move(contents));
  return stages_->clean_up ? clean_up_spaces(std::move(text)) : text;
}

}  // namespace fsdp::data
