// Contract: tools/train/chat_data.h.
#include "tools/train/chat_data.h"

#include <algorithm>
#include <map>

#include <fmt/chrono.h>
#include <fmt/ranges.h>

#include "core/text/counted.h"
#include "core/text/numbers.h"
#include "tools/data/sequences.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

std::filesystem::path folder_of(const config::TrainConfig& config) {
  return data::chat_folder(tokenizer_name(config), config.model.path);
}

// Turns or rows with something that may surprise.
struct Seen {
  int64_t count = 0, first = 0;  // the first row, from 1
  void add(int64_t more, int64_t row) {
    if (count == 0 && more > 0) first = row;
    count += more;
  }
  std::string text(const std::string& what) const {
    return fmt::format("{} (the first in row {})", counted(count, what), first);
  }
};

}  // namespace

data::ConversationFields conversation_fields(const config::DataSection& c) {
  data::ConversationFields out = {.messages = c.chat.messages_field, .roles = {}};
  for (const auto& [word, role] : c.chat.roles.value.items()) out.roles[word] = role.text();
  return out;
}

data::ChatChoices chat_choices(const config::TrainConfig& config) {
  const config::ChatKeys& chat = config.data.chat;
  return {.chat_template = chat.chat_template,
          .kwargs = chat.template_kwargs.value,
          .date = chat.date,
          .folder = folder_of(config)};
}

std::shared_ptr<const data::ChatRows> chat_rows(const config::TrainConfig& config,
                                                const data::Tokenizer& tokenizer) {
  const data::ChatChoices choices = chat_choices(config);
  FSDP_CHECK(
      !choices.date.empty() || !data::asks_for_date(choices),
      "data.chat_date: the chat template may write the date: expected one, such as {:%Y-%m-%d}, "
      "so that every start has the same tokens",
      fmt::gmtime(std::time(nullptr)));
  return std::make_shared<const data::ChatRows>(data::ChatRows{
      .fields = conversation_fields(config.data),
      .format = data::open_chat_format(choices, tokenizer),
      .special_in = [&tokenizer](std::string_view text) { return tokenizer.special_in(text); },
      .special = config.data.chat.special_in_content});
}

std::vector<int32_t> end_tokens_of(const config::TrainConfig& config,
                                   const data::Tokenizer& tokenizer) {
  std::vector<int32_t> out = data::end_tokens_in({config.model.path, folder_of(config)});
  const int32_t end = tokenizer.end_of_text();
  if (end >= 0 && std::ranges::find(out, end) == out.end()) out.push_back(end);
  return out;
}

std::vector<std::string> notes_on_template(const config::TrainConfig& config,
                                           const data::Tokenizer& tokenizer) {
  std::vector<std::string> out;
  const data::ChatChoices choices = chat_choices(config);
  const std::vector<std::string> split = data::split_tokens_of(choices, tokenizer);
  if (!split.empty()) {
    out.push_back(fmt::format("the chat template writes {}, which {} splits into several tokens",
                              fmt::join(split, ", "), tokenizer.name()));
  }
  for (const auto& [name, value] : choices.kwargs.items()) {
    if (data::has_word(choices, name)) continue;
    out.push_back(
        fmt::format("data.chat_template_kwargs: {}: the chat template has no such name", name));
  }
  if (!data::has_word(choices, "")) return out;  // no template is known
  const std::vector<int32_t> bare = tokenizer.encode("a", data::SpecialTokens::kOmit);
  std::vector<int32_t> added = tokenizer.encode("a");
  const auto text = std::ranges::search(added, bare);
  added.erase(text.begin(), text.end());
  if (!added.empty()) {
    out.push_back(fmt::format(
        "the tokenizer puts \"{}\" around a text: not around a conversation, where the chat "
        "template writes what it wants",
        tokenizer.decode(added, data::SpecialTokens::kInclude)));
  }
  return out;
}

std::vector<std::string> notes_on_turns(const data::TokenCache& cache,
                                        data::SpecialInContent special) {
  using data::RowTurn;
  data::TokenRows rows = {.examples = cache.examples()};
  rows.set_turns(cache.turns());
  Seen endless, left_out, with_special;
  for (int64_t row = 0; row < std::ssize(rows.examples); ++row) {
    std::map<uint32_t, uint16_t> answers;  // flags by message: an end in one of its turns is enough
    bool special = false;
    for (const RowTurn& turn : rows.turns_of_row(row)) {
      special |= turn.has(RowTurn::kSpecial);
      if (!turn.is_answer()) continue;
      const auto [place, is_new] = answers.emplace(turn.message, turn.flags);
      if (!is_new) place->second &= turn.flags;
    }
    const auto count = [&](RowTurn::Flag flag) {
      return std::ranges::count_if(answers,
                                   [&](const auto& of) { return (of.second & flag) != 0; });
    };
    endless.add(count(RowTurn::kNoEnd), row + 1);
    left_out.add(count(RowTurn::kLeftOut), row + 1);
    with_special.add(special ? 1 : 0, row + 1);
  }
  std::vector<std::string> out;
  if (endless.count > 0) {
    out.push_back(endless.text("turn") +
                  " without an end token of the model: it does not learn to stop there");
  }
  if (left_out.count > 0) {
    out.push_back("the chat template does not write all of " + left_out.text("turn") +
                  ", as of thinking that it drops");
  }
  if (with_special.count > 0) {
    const bool token = special == data::SpecialInContent::kAsSpecial;
    out.push_back(fmt::format(
        "{} with a special token's text in a message, which {}", with_special.text("row"),
        token ? "becomes the token; data.special_in_content: as_text keeps it a text"
              : "stays a text (data.special_in_content)"));
  }
  return out;
}

}  // namespace fsdp::tools
