// The configuration of conversations for the readers of tools/data/chat, and a run's notes about
// conversations. Not here: rows and tokens (tools/data), the run's data (train_data.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/config/config.h"
#include "tools/data/chat/chat_files.h"
#include "tools/data/text_source.h"
#include "tools/data/token_cache.h"
#include "tools/data/tokenizer/tokenizer.h"

namespace fsdp::tools {

data::ConversationFields conversation_fields(const config::DataSection& c);
// With the folder of the configuration's tokenizer.
data::ChatChoices chat_choices(const config::TrainConfig& config);
// `tokenizer` outlives it. Error for a template that is malformed or not found,
// or that may write a date which nobody names.
std::shared_ptr<const data::ChatRows> chat_rows(const config::TrainConfig& config,
                                                const data::Tokenizer& tokenizer);
// Ids that end a turn: by the model's folder and the tokenizer's, and what ends a text.
std::vector<int32_t> end_tokens_of(const config::TrainConfig& config,
                                   const data::Tokenizer& tokenizer);

// Notes on a chat template and its tokenizer: tokens that the tokenizer splits, and begin or end
// tokens that it would put around a text.
std::vector<std::string> notes_on_template(const config::TrainConfig& config,
                                           const data::Tokenizer& tokenizer);
// Notes on surprising turns of a cache's rows, each with a count and the first row, from 1.
std::vector<std::string> notes_on_turns(const data::TokenCache& cache,
                                        data::SpecialInContent special);

}  // namespace fsdp::tools
