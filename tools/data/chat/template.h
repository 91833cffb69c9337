// Chat templates: messages become the text that a model was trained on, as apply_chat_template of
// transformers 4.57.1 makes it with jinja2, and which message or generation block wrote which
// bytes. Templates may use the part of jinja2 that templates of models use (README.md); anything
// else is an error that names it. Nothing is read from files. Not here: which template a tokenizer
// has, how rows become messages, which tokens are trained. Read next: syntax.h, value.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/io/json.h"

namespace fsdp::data {

// Thrown by the template's raise_exception; what() is its text alone.
class RaisedByTemplate : public Error {
 public:
  using Error::Error;
};

struct RenderInput {
  std::span<const Json> messages;
  // Null: None, as transformers passes them.
  const Json* tools = nullptr;
  const Json* documents = nullptr;
  // Objects whose members become variables, or null; kwargs count before special tokens.
  const Json* special_tokens = nullptr;  // bos_token, eos_token, ...
  const Json* kwargs = nullptr;
  bool add_generation_prompt = false;
  std::optional<std::tm> clock = std::nullopt;  // of strftime_now; none: the local time
  int64_t most_steps = 10'000'000;              // more are an error
};

// Bytes [begin, end) of the text.
struct ByteSpan {
  size_t begin = 0, end = 0;
  bool operator==(const ByteSpan&) const = default;
};
struct Written {
  size_t message = 0;  // its number
  ByteSpan bytes;
  bool operator==(const Written&) const = default;
};
struct Rendering {
  std::string text;
  // The bytes of each generation block, in order. The template says whether it has any.
  std::vector<ByteSpan> generation;
  // The bytes written while a loop variable, or messages[i] of a loop over numbers, was this
  // message; where it was several, the innermost loop counts. In order, not overlapping.
  std::vector<Written> written;
};

namespace jinja {
struct Syntax;
}

class ChatTemplate {
 public:
  // `name` stands in errors: "chat_template.jinja:12:7: {% call %} is not known". Throws Error.
  ChatTemplate(std::string_view source, std::string name);

  bool has_generation_blocks() const;
  // Throws Error for what Python raises, with the place in the template, and RaisedByTemplate.
  // Several threads may render at once.
  Rendering render(const RenderInput& input) const;

 private:
  std::shared_ptr<const jinja::Syntax> syntax_;
};

}  // namespace fsdp::data
