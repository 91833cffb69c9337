// PCRE2 with its just-in-time compiler. Contract: tools/data/tokenizer/regex.h.
#include "tools/data/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/error.h"
#include "tools/data/tokenizer/regex_translation.h"

namespace fsdp::data {
namespace {

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

struct Regex::Compiled {
  pcre2_code* code = nullptr;
  pcre2_match_data* match = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;

  ~Compiled() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
    pcre2_code_free(code);
  }
};

Regex::Regex(std::string_view oniguruma_pattern) : compiled_(std::make_unique<Compiled>()) {
  const std::string pattern = translate_regex(oniguruma_pattern);
  int error = 0;
  PCRE2_SIZE where = 0;
  pcre2_compile_context* options = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(options, PCRE2_NEWLINE_LF);
  compiled_->code =
      pcre2_compile(units(pattern), pattern.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,
                    &error, &where, options);
  pcre2_compile_context_free(options);
  FSDP_CHECK(compiled_->code, "regular expression \"{}\": {}", oniguruma_pattern,
             message_of(error));
  // Where there is no just-in-time compiler, pcre2_match interprets.
  if (pcre2_jit_compile(compiled_->code, PCRE2_JIT_COMPLETE) == 0) {
    compiled_->context = pcre2_match_context_create(nullptr);
    compiled_->stack = pcre2_jit_stack_create(32 << 10, 8 << 20, nullptr);
    pcre2_jit_stack_assign(compiled_->context, nullptr, compiled_->stack);
  }
  compiled_->match = pcre2_match_data_create(1, nullptr);  // no groups: only the whole match
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

bool Regex::find(std::string_view text, size_t from, Span& match) const {
  const Compiled& c = *compiled_;
  const int result =
      pcre2_match(c.code, units(text), text.size(), from, PCRE2_NO_UTF_CHECK, c.match, c.context);
  if (result == PCRE2_ERROR_NOMATCH) return false;
  FSDP_CHECK(result >= 0, "regular expression: at byte {} of a text: {}", from, message_of(result));
  const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(c.match);
  match = {ends[0], ends[1]};
  return true;
}

}  // namespace fsdp::data
