// A template is cut into pieces once; filling it goes through them.
#include "tools/data/row_template.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <utility>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/file_kind.h"
#include "core/io/patience.h"
#include "tools/data/tokenizer/utf8.h"

namespace fsdp::data {
namespace {

// The wording is that of the programs that models learned it from, to the byte.
constexpr std::array<NamedTemplate, 3> kNamed = {
    {{"alpaca",
      "Below is an instruction that describes a task{if input}, paired with an input that provides "
      "further context{end}. Write a response that appropriately completes the request.\n\n### "
      "Instruction:\n{instruction}{if input}\n\n### Input:\n{input}{end}{>cue}\n\n### "
      "Response:{>answer}{output}"},
     {"alpaca_short",
      "### Instruction:\n{instruction}{if input}\n\n### Input:\n{input}{end}{>cue}\n\n### "
      "Response:\n{>answer}{output}"},
     {"squad", "Question: {question} Context: {context}{>cue} Answer:{>answer} {answer}"}}};

NamedTemplates all_named(const NamedTemplates& more) {
  NamedTemplates out;
  for (const NamedTemplate& each : kNamed) out.push_back(&each);
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

std::string keys_of(const Json& object) {
  std::string out;
  for (const auto& [key, value] : object.items()) out += (out.empty() ? "" : ", ") + key;
  return out.empty() ? "none" : out;
}

// Python writes NaN for a text that is missing.
bool is_nan(const Json& value) {
  return value.is_number_float() && std::isnan(value.get<double>());
}

// Whether a row has the field. What tables and Python write for nothing is none.
bool given(const Json& row, const std::string& field) {
  const Json* value = row.find(field);
  if (!value || value->is_null() || *value == false || is_nan(*value)) return false;
  return value->is_string() ? !value->text().empty() : !value->is_array() || !value->empty();
}

std::string kind_of(const Json& value) { return is_nan(value) ? "NaN" : value.type_name(); }

}  // namespace

std::string field_of(const Json& row, const std::string& where, const std::string& field) {
  FSDP_CHECK(row.is_object(), "{}: expected an object, got {}", where, row.type_name());
  const bool chat = row.contains("messages") || row.contains("conversations");
  FSDP_CHECK(row.contains(field), "{}: no field \"{}\" (fields: {}){}", where, field, keys_of(row),
             field.starts_with("answers.") ? "; data.format=squad has the first as {answer}"
             : chat ? "; data.format: messages reads conversations, and then all files are such"
                    : "");
  FSDP_CHECK(row[field].is_string(), "{}: field \"{}\": expected a string, got {}", where, field,
             kind_of(row[field]));
  return row[field].text();
}

namespace {

// A text, and what JSON spells as one: 4, true. Numbers with a point are texts by now (json_row.h).
bool is_textual(const Json& value) {
  return value.is_string() || value.is_number_integer() || value.is_boolean();
}

std::string spelled(const Json& value) { return value.is_string() ? value.text() : value.dump(); }

// Of a list: its texts, with blanks between them.
std::string text_of(const Json& row, const std::string& where, const std::string& field) {
  const Json* value = row.find(field);
  if (!value || value->is_object()) return field_of(row, where, field);
  if (is_textual(*value)) return spelled(*value);
  FSDP_CHECK(value->is_array(),
             "{}: field \"{}\": expected a text, got {} ({{if {}}} asks whether a row has one)",
             where, field, kind_of(*value), field);
  std::string out;
  for (const Json& item : *value) {
    FSDP_CHECK(is_textual(item), "{}: field \"{}\": expected texts in the list, got {}", where,
               field, kind_of(item));
    out.append(out.empty() ? "" : " ").append(spelled(item));
  }
  return out;
}

}  // namespace

class RowTemplate::Parser {
 public:
  Parser(std::string_view text, const std::string& name, RowTemplate& out)
      : text_(text), name_(name), out_(out) {}

  void parse() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      const bool twice = at_ + 1 < text_.size() && text_[at_ + 1] == c;
      if ((c == '{' || c == '}') && twice) {
        literal_ += c;
        at_ += 2;
      } else if (c == '{') {
        tag();
      } else {
        FSDP_CHECK(c != '}', "{}: expected }}}} for a brace in the text, got }}", place());
        literal_ += c;
        ++at_;
      }
    }
    FSDP_CHECK(!inside_, "{}: expected {{end}} after {{if {}}}", place(), condition_);
    add_literal();
    FSDP_CHECK(std::any_of(out_.pieces_.begin(), out_.pieces_.end(),
                           [](const Piece& piece) { return piece.is_field; }),
               "{}: expected a field in braces, such as {{text}}", name_);
  }

 private:
  std::string place() const {
    const auto here = text_.begin() + static_cast<std::ptrdiff_t>(at_);
    return fmt::format("{}:{}", name_, 1 + std::count(text_.begin(), here, '\n'));
  }

  void add(Piece piece) {
    piece.part = part_;
    piece.condition = inside_ ? condition_ : "";
    piece.wanted = wanted_;
    out_.pieces_.push_back(std::move(piece));
  }
  void add_literal() {
    if (!literal_.empty()) add({.text = literal_});
    literal_.clear();
  }

  void tag() {
    const size_t end = text_.find('}', at_);
    FSDP_CHECK(end != text_.npos, "{}: expected }} after {{", place());
    const std::string tag(text_.substr(at_ + 1, end - at_ - 1));
    add_literal();
    if (tag == ">cue" || tag == ">answer") {
      begin_part(tag);
    } else if (tag.starts_with("if ")) {
      FSDP_CHECK(!inside_, "{}: expected {{end}} before another {{if}}", place());
      inside_ = wanted_ = true;
      condition_ = tag.substr(3);
    } else if (tag == "else" || tag == "end") {
      FSDP_CHECK(inside_ && (wanted_ || tag == "end"), "{}: {{{}}} without {{if ...}}", place(),
                 tag);
      wanted_ = tag == "end";
      inside_ = tag != "end";
    } else {
      FSDP_CHECK(!tag.empty() && tag.find_first_of(">{\n") == tag.npos,
                 "{}: expected the name of a field, if NAME, else, end, >cue or >answer in braces, "
                 "got \"{}\"",
                 place(), tag);
      add({.is_field = true, .text = tag});
    }
    at_ = end + 1;
  }

  void begin_part(const std::string& tag) {
    const bool answer = tag == ">answer";
    FSDP_CHECK(!inside_, "{}: expected {{{}}} outside of {{if}}", place(), tag);
    FSDP_CHECK(part_ != &RowParts::answer && (answer || part_ == &RowParts::text),
               "{}: expected {{>cue}} once, then {{>answer}} once, got another {{{}}}", place(),
               tag);
    part_ = answer ? &RowParts::answer : &RowParts::cue;
    out_.has_answer_ = out_.has_answer_ || answer;
  }

  std::string_view text_;
  const std::string& name_;
  RowTemplate& out_;
  size_t at_ = 0;
  std::string literal_;
  std::string RowParts::*part_ = &RowParts::text;
  bool inside_ = false, wanted_ = true;
  std::string condition_;
};

RowTemplate::RowTemplate(std::string_view text, std::string name) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (text.ends_with('\r')) text.remove_suffix(1);
  text_ = text;
  Parser(text_, name, *this).parse();
}

RowParts RowTemplate::fill(const Json& row, const std::string& where) const {
  FSDP_CHECK(row.is_object(), "{}: expected an object, got {}", where, row.type_name());
  RowParts out;
  for (const Piece& piece : pieces_) {
    const bool there = piece.condition.empty() || given(row, piece.condition);
    if (!piece.condition.empty() && there != piece.wanted) continue;
    out.*piece.part += piece.is_field ? text_of(row, where, piece.text) : piece.text;
  }
  return out;
}

bool is_template_name(const std::string& name, const NamedTemplates& more) {
  const NamedTemplates all = all_named(more);
  return std::any_of(all.begin(), all.end(),
                     [&](const auto* known) { return name == known->name; });
}

namespace {

std::string template_in(const std::string& file) {
  const std::string bytes = read_file(file), other = other_kind(bytes, file, Wanted::kText);
  FSDP_CHECK(other.empty(), "{}: {}", file, other);
  const size_t bad = first_invalid_utf8(bytes);
  FSDP_CHECK(bad == bytes.size(), "{}: invalid UTF-8: byte 0x{:02x} at offset {}", file,
             static_cast<uint8_t>(bytes[bad]), bad);
  std::string text(without_byte_order_mark(bytes));
  for (size_t at = text.find("\r\n"); at != text.npos; at = text.find("\r\n", at))
    text.erase(at, 1);
  return text;
}

}  // namespace

std::shared_ptr<const RowTemplate> find_template(const std::string& name,
                                                 const NamedTemplates& more) {
  std::string names;
  for (const NamedTemplate* known : all_named(more)) {
    if (name == known->name) return std::make_shared<RowTemplate>(known->text, name);
    names += std::string(known->name) + ", ";
  }
  const std::string refused =
      fmt::format("data.template: expected {}or a file, got \"{}\"", names, name);
  try {
    if (!is_there(name)) fail_missing(refused);
    FSDP_CHECK(!is_folder(name), "{}", refused);
  } catch (const SystemError& error) {  // a text is a name that is too long
    fail_like(error, is_of_machine(error) ? error.what() : refused);
  }
  return std::make_shared<RowTemplate>(template_in(name), name);
}

}  // namespace fsdp::data
