// Contract: tools/data/tokenizer/pre_tokenizer.h.
#include "tools/data/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <optional>
#include <string>

#include "tools/data/tokenizer/json_node.h"
#include "tools/data/tokenizer/pattern.h"

namespace fsdp::data {

using Cut = PreTokenizer::Cut;

class PreTokenizer::Step {
 public:
  virtual ~Step() = default;
  // Pieces may be empty: they are dropped by the caller.
  virtual void split(const Piece& piece, const Use& emit) const = 0;
  virtual Cut cut_before_space() const = 0;
};

namespace {

using Step = PreTokenizer::Step;
using Use = PreTokenizer::Use;

constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Patterns whose matches end between a letter and a space, whatever comes before and after.
constexpr std::string_view kPatternsThatPart[] = {
    kGpt2Pattern,
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"};

enum class Behaviour { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

Behaviour read_behaviour(const JsonNode& node) {
  const std::string name = node.text();
  if (name == "Removed") return Behaviour::kRemoved;
  if (name == "Isolated") return Behaviour::kIsolated;
  if (name == "MergedWithPrevious") return Behaviour::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behaviour::kMergedWithNext;
  if (name == "Contiguous") return Behaviour::kContiguous;
  node.fail(
      "unknown behavior \"{}\"; expected Removed, Isolated, MergedWithPrevious, MergedWithNext, "
      "Contiguous",
      name);
}

// Matches and what lies between them.
struct Part {
  Span span;
  bool match = false;
};

std::vector<Part> parts_of(std::string_view text, const Pattern& pattern, bool invert) {
  std::vector<Part> out;
  size_t end = 0;
  pattern.for_each(text, [&](Span match) {
    if (match.begin > end) out.push_back({{end, match.begin}, invert});
    out.push_back({match, !invert});
    end = match.end;
  });
  if (end < text.size()) out.push_back({{end, text.size()}, invert});
  return out;
}

// Joins a part to the one before it where `joins(previous is a match, this is one)`.
template <typename Joins>
std::vector<Part> join(const std::vector<Part>& parts, const Joins& joins) {
  std::vector<Part> out;
  bool previous = false;
  for (const Part& part : parts) {
    if (!out.empty() && joins(previous, part.match)) {
      out.back().span = {std::min(out.back().span.begin, part.span.begin),
                         std::max(out.back().span.end, part.span.end)};
    } else {
      out.push_back({part.span});
    }
    previous = part.match;
  }
  return out;
}

std::vector<Part> behave(std::vector<Part> parts, Behaviour behaviour) {
  const auto starts_delimiter = [](bool previous, bool match) { return match && !previous; };
  switch (behaviour) {
    case Behaviour::kIsolated:
      return parts;
    case Behaviour::kRemoved:
      std::erase_if(parts, [](const Part& part) { return part.match; });
      return parts;
    case Behaviour::kContiguous:
      return join(parts, [](bool previous, bool match) { return previous == match; });
    case Behaviour::kMergedWithPrevious:
      return join(parts, starts_delimiter);
    case Behaviour::kMergedWithNext:
      std::reverse(parts.begin(), parts.end());
      parts = join(parts, starts_delimiter);
      std::reverse(parts.begin(), parts.end());
      return parts;
  }
  return parts;
}

// The common behaviour, without a list of parts.
void isolate(const Piece& piece, const Pattern& pattern, const Use& emit) {
  size_t end = 0;
  pattern.for_each(piece.text, [&](Span match) {
    if (match.begin > end) emit(piece.part({end, match.begin}));
    emit(piece.part(match));
    end = match.end;
  });
  if (end < piece.text.size()) emit(piece.part({end, piece.text.size()}));
}

class Split : public Step {
 public:
  explicit Split(const JsonNode& node)
      : pattern_(node.at("pattern")),
        behaviour_(read_behaviour(node.at("behavior"))),
        invert_(node.flag("invert", false)) {
    node.check_keys({"type", "pattern", "behavior", "invert"});
    const JsonNode pattern = node.at("pattern");
    const std::string regex = pattern.has("Regex") ? pattern.text("Regex") : "";
    const bool known = std::find(std::begin(kPatternsThatPart), std::end(kPatternsThatPart),
                                 regex) != std::end(kPatternsThatPart);
    if (known && behaviour_ == Behaviour::kIsolated) cut_ = Cut::kApart;
  }
  void split(const Piece& piece, const Use& emit) const override {
    if (behaviour_ == Behaviour::kIsolated) return isolate(piece, pattern_, emit);
    for (const Part& part : behave(parts_of(piece.text, pattern_, invert_), behaviour_)) {
      emit(piece.part(part.span));
    }
  }
  Cut cut_before_space() const override { return cut_; }

 private:
  Pattern pattern_;
  Behaviour behaviour_;
  bool invert_;
  Cut cut_ = Cut::kUnknown;
};

class Digits : public Step {
 public:
  explicit Digits(const JsonNode& node) : individual_(node.flag("individual_digits", false)) {
    node.check_keys({"type", "individual_digits"});
  }
  void split(const Piece& piece, const Use& emit) const override {
    const std::string_view text = piece.text;
    size_t begin = 0;
    bool previous = false;
    for (size_t i = 0; i < text.size(); i += character_length(text[i])) {
      const bool digit = is_number(character_at(text, i));
      if (i > 0 && (digit != previous || (digit && individual_))) {
        emit(piece.part({begin, i}));
        begin = i;
      }
      previous = digit;
    }
    emit(piece.part({begin, text.size()}));
  }
  Cut cut_before_space() const override { return Cut::kInside; }

 private:
  bool individual_;
};

// Punctuation characters, each a delimiter.
class Punctuation : public Step {
 public:
  explicit Punctuation(const JsonNode& node) {
    node.check_keys({"type", "behavior"});
    if (node.has("behavior")) behaviour_ = read_behaviour(node.at("behavior"));
  }
  void split(const Piece& piece, const Use& emit) const override {
    const std::string_view text = piece.text;
    std::vector<Part> parts;
    size_t end = 0;
    for (size_t i = 0; i < text.size(); i += character_length(text[i])) {
      if (!is_punctuation(character_at(text, i))) continue;
      if (i > end) parts.push_back({{end, i}});
      end = i + character_length(text[i]);
      parts.push_back({{i, end}, true});
    }
    if (end < text.size()) parts.push_back({{end, text.size()}});
    for (const Part& part : behave(std::move(parts), behaviour_)) {
      emit(piece.part(part.span));
    }
  }
  Cut cut_before_space() const override { return Cut::kInside; }

 private:
  Behaviour behaviour_ = Behaviour::kIsolated;
};

// Runs of what is not white space; words and what is between them apart if `words`.
class Whitespace : public Step {
 public:
  Whitespace(const JsonNode& node, bool words) : words_(words) { node.check_keys({"type"}); }
  void split(const Piece& piece, const Use& emit) const override {
    const std::string_view text = piece.text;
    enum class Kind { kSpace, kWord, kOther };
    Kind previous = Kind::kSpace;
    size_t begin = 0;
    for (size_t i = 0; i < text.size(); i += character_length(text[i])) {
      const char32_t c = character_at(text, i);
      const Kind kind = is_white_space(c)      ? Kind::kSpace
                        : words_ && is_word(c) ? Kind::kWord
                                               : Kind::kOther;
      if (kind == previous) continue;
      if (previous != Kind::kSpace) emit(piece.part({begin, i}));
      previous = kind;
      begin = i;
    }
    if (previous != Kind::kSpace) emit(piece.part({begin, text.size()}));
  }
  Cut cut_before_space() const override { return Cut::kApart; }

 private:
  bool words_;
};

class ByteLevel : public Step {
 public:
  explicit ByteLevel(const JsonNode& node) : prefix_(node.flag("add_prefix_space")) {
    node.check_keys({"type", "add_prefix_space", "use_regex"}, "pre_tokenizer ByteLevel");
    if (node.flag("use_regex", true)) words_.emplace(kGpt2Pattern);
  }
  void split(const Piece& piece, const Use& emit) const override {
    if (!prefix_ || piece.text.starts_with(' ')) return split_words(piece, emit);
    Trace trace(piece);
    trace.prepend(1);
    trace.keep({0, piece.text.size()});
    trace.end_step();
    const std::string prefixed = std::string(" ").append(piece.text);
    split_words(trace.piece(prefixed), emit);
  }
  bool changes_anything() const { return prefix_ || words_; }
  Cut cut_before_space() const override { return words_ ? Cut::kApart : Cut::kInside; }

 private:
  void split_words(const Piece& piece, const Use& emit) const {
    words_ ? isolate(piece, *words_, emit) : emit(piece);
  }

  bool prefix_;
  std::optional<Pattern> words_;
};

class Metaspace : public Step {
 public:
  explicit Metaspace(const JsonNode& node)
      : blank_(node.text("replacement")), split_(node.flag("split", true)) {
    node.check_keys({"type", "replacement", "prepend_scheme", "split", "add_prefix_space"},
                    "pre_tokenizer Metaspace");
    if (blank_.empty() || character_length(blank_[0]) != blank_.size()) {
      node.at("replacement").fail("expected one character, got \"{}\"", blank_);
    }
    const bool add = node.flag("add_prefix_space", true);
    const std::string scheme = node.has("prepend_scheme") ? node.text("prepend_scheme")
                               : add                      ? "always"
                                                          : "never";
    always_ = scheme == "always";
    first_ = scheme == "first";
    if (!always_ && !first_ && scheme != "never") {
      node.at("prepend_scheme").fail("expected always, first or never, got \"{}\"", scheme);
    }
    if (!add && scheme != "never") {
      node.at("add_prefix_space").fail("false contradicts prepend_scheme \"{}\"", scheme);
    }
  }
  void split(const Piece& piece, const Use& emit) const override {
    const std::string_view text = piece.text;
    Trace trace(piece);
    std::string marked;
    const bool begins_blank = text.starts_with(' ') || text.starts_with(blank_);
    if ((always_ || (first_ && piece.lead > 0)) && !begins_blank) {
      marked = blank_;
      trace.prepend(blank_.size());
    }
    for (size_t begin = 0; begin < text.size();) {
      const Span word{begin, std::min(text.find(' ', begin), text.size())};
      marked += word.of(text);
      trace.keep(word);
      begin = word.end + 1;
      if (word.end == text.size()) break;
      marked += blank_;
      trace.replace({word.end, begin}, blank_.size());
    }
    trace.end_step();
    split_blanks(trace.piece(marked), emit);
  }
  Cut cut_before_space() const override { return split_ ? Cut::kApart : Cut::kInside; }

 private:
  void split_blanks(const Piece& marked, const Use& emit) const {
    size_t begin = 0;
    while (split_ && begin < marked.text.size()) {
      const size_t end = marked.text.find(blank_, begin + 1);
      if (end == marked.text.npos) break;
      emit(marked.part({begin, end}));
      begin = end;
    }
    emit(marked.part({begin, marked.text.size()}));
  }

  std::string blank_;
  bool split_, always_ = false, first_ = false;
};

}  // namespace

PreTokenizer::PreTokenizer() = default;
PreTokenizer::PreTokenizer(const JsonNode& node) { add(node); }
PreTokenizer::~PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;

void PreTokenizer::add(const JsonNode& node) {
  if (byte_level_) node.fail("expected nothing after ByteLevel");
  const std::string type = node.text("type");
  if (type == "Sequence") {
    node.check_keys({"type", "pretokenizers"});
    const JsonNode list = node.at("pretokenizers");
    for (size_t i = 0; i < list.size(); ++i) add(list.item(i));
    return;
  }
  if (type == "Split") {
    steps_.push_back(std::make_unique<Split>(node));
  } else if (type == "Digits") {
    steps_.push_back(std::make_unique<Digits>(node));
  } else if (type == "Metaspace") {
    steps_.push_back(std::make_unique<Metaspace>(node));
  } else if (type == "Punctuation") {
    steps_.push_back(std::make_unique<Punctuation>(node));
  } else if (type == "Whitespace" || type == "WhitespaceSplit") {
    steps_.push_back(std::make_unique<Whitespace>(node, type == "Whitespace"));
  } else if (type == "ByteLevel") {
    auto step = std::make_unique<ByteLevel>(node);
    if (step->changes_anything()) steps_.push_back(std::move(step));
    byte_level_ = true;
  } else {
    node.fail_unknown_type(
        "ByteLevel, Split, Digits, Metaspace, Punctuation, Whitespace, WhitespaceSplit, Sequence");
  }
}

Cut PreTokenizer::cut_before_space() const {
  Cut all = Cut::kInside;
  for (const auto& step : steps_) {
    const Cut one = step->cut_before_space();
    if (one == Cut::kUnknown) return one;
    all = std::max(all, one);
  }
  return all;
}

void PreTokenizer::run(size_t step, const Piece& text, const Use& use) const {
  if (text.text.empty()) return;
  if (step == steps_.size()) return use(text);
  // One captured reference fits into a std::function without an allocation.
  const auto next = [this, step, &use](const Piece& piece) { run(step + 1, piece, use); };
  steps_[step]->split(text, std::cref(next));
}

}  // namespace fsdp::data
