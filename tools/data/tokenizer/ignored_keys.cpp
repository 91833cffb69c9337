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
constexpr std::string_view kOtherFiles = "names a file that is not read where tokenizer.json is";
constexpr std::string_view kLayout = "lays rows out in transformers; here the configuration does";
constexpr std::string_view kInternal = "is passed within transformers and means nothing in a file";
constexpr std::string_view kChat = "says how a chat becomes one text, which nobody asks for";

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
    IgnoredKey{"tokenizer_config", "__slow_tokenizer", kInternal},
    IgnoredKey{"tokenizer_config", "_commit_hash", kInternal},
    IgnoredKey{"tokenizer_config", "auto_map", "names code of the folder, which is never run"},
    IgnoredKey{"tokenizer_config", "chat_template", kChat},
    IgnoredKey{"tokenizer_config", "fill_token", "is replaced before a text is encoded"},
    IgnoredKey{"tokenizer_config", "gguf_file", kOtherFiles},
    IgnoredKey{"tokenizer_config", "max_len", kLayout},
    IgnoredKey{"tokenizer_config", "max_length", kLayout},
    IgnoredKey{"tokenizer_config", "merges_file", kOtherFiles},
    IgnoredKey{"tokenizer_config", "model_input_names", kLayout},
    IgnoredKey{"tokenizer_config", "model_max_length", kLayout},
    IgnoredKey{"tokenizer_config", "name_or_path", "says where the files come from"},
    IgnoredKey{"tokenizer_config", "pad_to_multiple_of", kLayout},
    IgnoredKey{"tokenizer_config", "pad_token_type_id", kLayout},
    IgnoredKey{"tokenizer_config", "padding_side", "is what data.pad: auto means (padding_side.h)"},
    IgnoredKey{"tokenizer_config", "processor_class", "belongs to models of images and sounds"},
    IgnoredKey{"tokenizer_config", "return_token_type_ids", kLayout},
    IgnoredKey{"tokenizer_config", "stride", kLayout},
    IgnoredKey{"tokenizer_config", "tokenizer_object", kInternal},
    IgnoredKey{"tokenizer_config", "truncation_side", kLayout},
    IgnoredKey{"tokenizer_config", "truncation_strategy", kLayout},
    IgnoredKey{"tokenizer_config", "use_default_system_prompt", kChat},
    IgnoredKey{"tokenizer_config", "vocab_file", kOtherFiles},
};

}  // namespace

std::span<const IgnoredKey> ignored_tokenizer_keys() { return kKeys; }

bool is_ignored(std::string_view component, std::string_view key) {
  return std::any_of(kKeys.begin(), kKeys.end(), [&](const IgnoredKey& ignored) {
    return ignored.component == component && ignored.key == key;
  });
}

}  // namespace fsdp::data
