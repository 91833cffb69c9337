// Normalizers of a tokenizer.json: text to text, before any token is looked for.
// A further one: a case in normalizer.cpp. Read next: unicode_form.h. Not here: which parts of a
// text are normalised (added_tokens.h).
//
// [Note: lead]
// The pre-tokenizer Metaspace may put a blank before the first piece of an input only. The library
// asks for this whether the piece's first byte comes from byte 0 of the input. So every stage says
// how many of a text's first bytes do: its lead. What Prepend puts in front belongs to the lead; of
// "  a" nothing is left in the lead by Strip; a Replace of "ab" counts as coming from the b.
// trace.h follows it, and if somebody asks the origin of each byte.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/data/tokenizer/trace.h"

namespace fsdp::data {

class JsonNode;

class Normalizer {
 public:
  Normalizer() = default;  // leaves text as it is
  explicit Normalizer(const JsonNode& node);

  bool empty() const { return steps_.empty(); }
  // Returns `text` itself or a view of `storage`. `trace`: of the text, then of the result.
  // `continues`: more text of the same input came right before, so what is put in front of a text
  // is not put in front of this.
  std::string_view apply(std::string_view text, std::string& storage, Trace& trace,
                         bool continues = false) const;
  std::string_view apply(std::string_view text, std::string& storage, bool continues = false) const;
  // Whether a text may be cut between a letter and a space and its parts normalised one by one.
  bool cuts_before_space() const { return cuts_before_space_; }

 private:
  struct Step {
    std::function<void(std::string_view text, std::string& out, Trace& trace)> run;
    bool prepends = false;
    bool leaves_ascii = false;  // ASCII text comes out as it went in
  };
  void add(const JsonNode& node);

  std::vector<Step> steps_;
  bool cuts_before_space_ = true;
};

// "pattern": {"String": ...} or {"Regex": ...} and "content", of the normalizer and the decoder
// called Replace.
using ReplaceText = std::function<void(std::string_view text, std::string& out, Trace& trace)>;
ReplaceText make_replace(const JsonNode& node);

}  // namespace fsdp::data
