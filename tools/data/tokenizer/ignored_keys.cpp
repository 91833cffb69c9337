// The list.
#include "tools/data/tokenizer/ignored_keys.h"

#include <algorithm>
#include <array>

namespace fsdp::data {
namespace {

constexpr std::string_view kOfCall =
    "transformers sets it anew for each call; texts are never cut or filled up here";
constexpr std::string_view kOffsets = "moves offsets into the text, which nobody asks for";
constexpr std::string_view kPairs = "of two texts in one, which nobody asks for";
constexpr std::string_view kRepeated = "says again what \"ids\" or the name says";
constexpr std::string_view kOtherStage = "is an option of the pre-tokenizer of this name";
constexpr std::string_view kOldName = "was written by old versions beside \"replacement\"";

constexpr std::array kKeys = {
    IgnoredKey{"file", "truncation", kOfCall},
    IgnoredKey{"file", "padding", kOfCall},
    IgnoredKey{"pre_tokenizer ByteLevel", "trim_offsets", kOffsets},
    IgnoredKey{"pre_tokenizer Metaspace", "str_rep", kOldName},
    IgnoredKey{"post_processor ByteLevel", "add_prefix_space", kOffsets},
    IgnoredKey{"post_processor ByteLevel", "trim_offsets", kOffsets},
    IgnoredKey{"post_processor ByteLevel", "use_regex", kOffsets},
    IgnoredKey{"post_processor TemplateProcessing", "pair", kPairs},
    IgnoredKey{"template piece", "type_id", kPairs},
    IgnoredKey{"template token", "id", kRepeated},
    IgnoredKey{"template token", "tokens", kRepeated},
    IgnoredKey{"decoder ByteLevel", "add_prefix_space", kOtherStage},
    IgnoredKey{"decoder ByteLevel", "trim_offsets", kOtherStage},
    IgnoredKey{"decoder ByteLevel", "use_regex", kOtherStage},
    IgnoredKey{"decoder Metaspace", "split", kOtherStage},
    IgnoredKey{"decoder Metaspace", "str_rep", kOldName},
};

}  // namespace

std::span<const IgnoredKey> ignored_tokenizer_keys() { return kKeys; }

bool is_ignored(std::string_view component, std::string_view key) {
  return std::any_of(kKeys.begin(), kKeys.end(), [&](const IgnoredKey& ignored) {
    return ignored.component == component && ignored.key == key;
  });
}

}  // namespace fsdp::data
