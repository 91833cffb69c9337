// A text of the data set as the readers hand it on. Not here: where it is read from
// (text_source.h), what becomes of its parts (row_encoder.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/io/file.h"
#include "tools/data/chat/chat_text.h"

namespace fsdp::data {

// Where in its file a row begins, in bytes; where the row is an element of something (a question of
// a paragraph), `begin` is where that begins, and `inside` the row within it.
struct RowPlace {
  uint64_t begin = 0, inside = 0;
  bool operator==(const RowPlace&) const = default;
};

// The parts of a row; see row_template.h. A text without parts is all `text`.
struct RowParts {
  std::string text;                                // cut at its end where the row is too long
  std::string cue = {};                            // between text and answer: stays whole then
  std::string answer = {};                         // what a model is to say: stays whole, too
  std::shared_ptr<const ChatText> chat = nullptr;  // instead of all parts: a conversation
  std::string whole() const { return chat ? text_of(*chat) : text + cue + answer; }
  bool operator==(const RowParts&) const = default;
};

// The same as views, which end with the call that they are handed to: a text of 2 GiB is not
// copied.
struct Document {
  std::string_view text, cue = {}, answer = {};
  RowPlace place = {};
  const MappedFile* file = nullptr;  // that `text` is all of; null: it is a row
  size_t file_number = 0;            // of all files, from 0
  const ChatText* chat = nullptr;    // null: no conversation
};
using UseDocument = std::function<void(const Document& document)>;

inline std::string whole(const Document& d) {
  if (d.chat) return text_of(*d.chat);
  return std::string(d.text).append(d.cue).append(d.answer);
}

}  // namespace fsdp::data
