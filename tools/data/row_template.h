// How the fields of a row become a text. A template is text with tags in braces:
//   {name}                         the field of this name: a text, number, truth, or list of these
//   {if name}...{else}...{end}     whether it is there, and not empty, null, false; none in another
//   {>cue} {>answer}               here the cue, or the answer, begins
//   {{ }}                          a brace
// Not here: where rows come from (text_source.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"
#include "tools/data/document.h"

namespace fsdp::data {

class RowTemplate {
 public:
  // Error that names `name` and the line for a tag that is not known, or not closed. The end of the
  // last line is no part of the template: editors add it.
  RowTemplate(std::string_view text, std::string name);

  bool has_answer() const { return has_answer_; }
  const std::string& text() const { return text_; }  // the template's identity
  // Error that begins with `where` when `row` is no object, or lacks a field that is needed.
  RowParts fill(const Json& row, const std::string& where) const;

 private:
  struct Piece {
    bool is_field = false;
    std::string text;                               // or the field's name
    std::string RowParts::*part = &RowParts::text;  // that it belongs to
    std::string condition = {};                     // a field; empty: always
    bool wanted = true;                             // whether the field must be there
  };
  class Parser;

  std::string text_;
  std::vector<Piece> pieces_;
  bool has_answer_ = false;
};

// Templates that have a name:
//   alpaca        Stanford Alpaca's prompts, that with an input and that without one
//   alpaca_short  "### Instruction:", "### Input:" where there is one, "### Response:"
//   squad         "Question: ... Context: ... Answer:", with context and question
// and `more` of others.
struct NamedTemplate {
  std::string_view name, text;
};
using NamedTemplates = std::vector<const NamedTemplate*>;
bool is_template_name(const std::string& name, const NamedTemplates& more = {});
// By name, else a file, which an editor of Windows may have saved. Error when there is none.
std::shared_ptr<const RowTemplate> find_template(const std::string& name,
                                                 const NamedTemplates& more = {});

// A field that is a text; error that begins with `where`.
std::string field_of(const Json& row, const std::string& where, const std::string& field);

}  // namespace fsdp::data
