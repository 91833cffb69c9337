// Contract: tools/data/beyond_vocabulary.h.
#include "tools/data/beyond_vocabulary.h"

#include <algorithm>
#include <functional>

#include "core/error.h"

namespace fsdp::data {
namespace {

bool any_from(int64_t rows, const TokenCache& cache) {
  constexpr size_t kStretch = 1 << 20;
  const std::span<const int32_t> all = cache.unchecked();
  for (size_t first = 0; first < all.size(); first += kStretch) {
    const auto some = all.subspan(first, std::min(kStretch, all.size() - first));
    cache.check(first, some.size());
    if (std::any_of(some.begin(), some.end(), [&](int32_t id) { return id >= rows; })) return true;
  }
  return false;
}

// Of the beginning of a row in its file, or of the token's text within a text that is one document.
int64_t line_of(const Document& document, std::string_view file, const std::string& token) {
  size_t at = document.place.begin;
  if (document.file != nullptr) at = file.find(token);
  const auto end = file.begin() + static_cast<std::ptrdiff_t>(std::min(at, file.size()));
  return 1 + std::count(file.begin(), end, '\n');
}

}  // namespace

void check_tokens_below(int64_t rows, const TokenCache& cache, const TokenSource& source,
                        const Tokenizer& tokenizer) {
  if (tokenizer.vocab_size() <= rows || !any_from(rows, cache)) return;
  const RowEncoder encoder(tokenizer, source.form, source.document_separator);
  using Place = std::function<std::string(const std::string& token)>;
  const auto check = [&](const Document& document, const Place& place) {
    int32_t beyond = -1;
    encoder.encode(document, [&](std::span<const int32_t> ids) {
      source.text.tell(ids.size());
      const auto is_beyond = [&](int32_t id) { return id >= rows; };
      const auto found = std::find_if(ids.begin(), ids.end(), is_beyond);
      if (beyond < 0 && found != ids.end()) beyond = *found;
    });
    if (beyond < 0) return;
    const std::string text = tokenizer.decode({&beyond, 1}, SpecialTokens::kInclude);
    const bool separates = source.document_separator && beyond == tokenizer.end_of_text();
    fail("{}: token {} (\"{}\") is beyond the model's vocabulary of {}{}", place(text), beyond,
         text, rows, separates ? "; data.document_separator puts it behind each document" : "");
  };
  if (source.subset) {
    int64_t row = 0;
    const Place place = [&](const std::string&) {
      return fmt::format("{}: row {}", source.subset->key, row);
    };
    for_each_row_of(*source.subset, source.files, source.text, [&](const Document& document) {
      ++row;
      check(document, place);
    });
    return;
  }
  for_each_document(source.files, source.text, [&](const Document& document) {
    check(document, [&](const std::string& token) {
      const MappedFile mapped(source.files[document.file_number]);
      return fmt::format("{}:{}", mapped.path().string(), line_of(document, mapped.text(), token));
    });
  });
}

int32_t padding_below(int64_t rows, const Tokenizer& tokenizer) {
  for (const int32_t id : {tokenizer.padding(), tokenizer.end_of_text()}) {
    if (id >= 0 && id < rows) return id;
  }
  return 0;
}

}  // namespace fsdp::data
