// Contract: tools/train/data_paths.h.
#include "tools/train/data_paths.h"

#include <algorithm>

#include "core/error.h"
#include "core/io/hub_files.h"
#include "models/adapter_folder.h"
#include "tools/config/guests.h"
#include "tools/config/key_values.h"
#include "tools/config/options.h"
#include "tools/data/chat/chat_files.h"
#include "tools/data/padding_side.h"
#include "tools/data/row_template.h"
#include "tools/data/text_files.h"
#include "tools/data/text_format.h"
#include "tools/train/chat_data.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

// Where a key's relative paths are looked for: the file that gives the key, which is that of
// --config or one that it includes, and what comes first.
struct Places {
  fs::path file;
  LookFirst first;
};

template <typename T>
Places places_of(const config::TrainConfig& config, const T& member, const fs::path& config_file,
                 LookFirst first) {
  const auto place = config.places.find(config::key_of(config, member));
  const bool typed = place != config.places.end() && place->second.starts_with("--");
  if (typed) return {config_file, LookFirst::kHere};
  if (config_file.empty() || place == config.places.end()) return {config_file, first};
  return {place->second.substr(0, place->second.rfind(':')), first};  // "file:line"
}

fs::path beside(const std::string& path, const fs::path& config_file) {
  return (config_file.parent_path() / path).lexically_normal();
}

// Of a path that is in both places, and not the same there: which one is taken; "".
std::string note_on_both(const std::string& key, const std::string& given, const Places& places) {
  std::error_code unreadable;
  const fs::path other = beside(given, places.file);
  const bool both = !given.empty() && fs::path(given).is_relative() && !places.file.empty() &&
                    fs::exists(given, unreadable) && fs::exists(other, unreadable);
  if (!both || fs::equivalent(given, other, unreadable)) return "";
  const std::string own = fmt::format("the one next to {}", places.file.string());
  const std::string here = "the one in the current folder";
  const bool is_own = places.first == LookFirst::kBeside;
  return fmt::format("{}: {}: {} is read, not {}", key, given, is_own ? own : here,
                     is_own ? here : own);
}

// "", where all that looks like data in a folder is taken.
std::string note_on_others(const std::string& folder) {
  const data::OtherFiles others = data::others_in(folder);
  if (others.count == 0) return "";
  const bool one = others.count == 1;
  return fmt::format("{}: {} file{} left out, {} {}", folder, others.count,
                     one ? " of another kind is" : "s of other kinds are",
                     one ? "that is" : "the first is", others.first);
}

// Puts the files that `names` mean in their place. `key` gives them.
void find_files(const config::TrainConfig& config, const std::string& key, const Places& places,
                std::vector<std::string>& names, std::vector<std::string>& notes) {
  std::vector<std::string> files;
  for (const std::string& given : names) {
    const std::string name = config::with_home(given);
    const std::string here = resolve_path(name, places.file, places.first);
    try {
      if (const std::string note = note_on_both(key, name, places); !note.empty())
        notes.push_back(note);
      std::vector<std::string> found = data::files_named(here);
      if (found.empty() && here == name && !name.empty()) {  // a pattern has no place of its own
        found = data::files_named(beside(name, places.file).string());
      }
      if (found.empty()) {
        found = {here};
      } else if (fs::is_directory(here)) {
        const std::string note = note_on_others(here);
        if (!note.empty()) notes.push_back(fmt::format("{}: {}", key, note));
      }
      files.insert(files.end(), found.begin(), found.end());
    } catch (const Error& error) {
      fail_like(error, config::with_place(config, fmt::format("{}: {}", key, error.what())));
    }
  }
  names = files;
}

// The form of rows where data.format: auto leaves it open. Keys that had an effect on conversations
// alone are an error on other rows.
void resolve_chat(config::TrainConfig& config) {
  config::DataSection& c = config.data;
  std::vector<std::string> files = c.training_files();
  if (files.empty() && !c.held_out()) files = c.validation;
  if (!c.may_be_chat() || c.is_chat() || files.empty()) return;
  const bool field_given = config.places.contains(config::key_of(config, c.field));
  // A given messages_field says that rows are conversations, whatever the first row is.
  const bool is_chat = !c.chat.messages_field.empty() ||
                       data::begins_with_conversation(files[0], conversation_fields(c), c.field);
  if (!field_given && c.row_template.empty() && is_chat) {
    c.format = data::TextFormat::kMessages;
    try {
      config::check_config(config);
    } catch (const Error& error) {
      fail("{}: its rows are conversations (data.format: messages): {}", files[0],
           config::with_place(config, error.what()));
    }
    return;
  }
  config::TrainConfig other = config;
  other.data.format = data::format_of(files[0], data::TextFormat::kAuto);
  const std::vector<std::string> waited = config::keys_of_chats(config);
  for (const config::KeyWithoutEffect& lost : config::keys_without_effect(other)) {
    if (std::ranges::find(waited, lost.key) == waited.end()) continue;
    const bool of_padding = lost.key.starts_with(config::key_of(config, c.pad));  // pad_to, too
    const std::string why =
        of_padding ? lost.reason
                   : fmt::format("on the rows of {}, which are no conversations", files[0]);
    fail("{}", config::with_place(
                   config, fmt::format("{}: {} has no effect {}", lost.key, lost.value, why)));
  }
}

}  // namespace

std::string resolve_path(const std::string& path, const fs::path& config_file, LookFirst first) {
  if (path.empty() || !fs::path(path).is_relative()) return path;
  const fs::path own = beside(path, config_file);
  const bool use_own = first == LookFirst::kBeside
                           ? !data::files_named(own.string()).empty() || fs::exists(own)
                           : !fs::exists(path) && fs::exists(own);
  return use_own ? own.string() : path;
}

std::vector<std::string> find_texts(config::TrainConfig& config, const fs::path& config_file,
                                    LookFirst first) {
  std::vector<std::string> notes;
  const auto find = [&](const auto& member, std::vector<std::string>& names) {
    find_files(config, config::key_of(config, member),
               places_of(config, member, config_file, first), names, notes);
  };
  find(config.data.train, config.data.train);
  for (config::SourceSection& source : config.data.sources) {
    find(config.data.sources, source.path);
  }
  if (!config.data.held_out()) find(config.data.validation, config.data.validation);  // no share
  return notes;
}

std::vector<std::string> resolve_paths(config::TrainConfig& config, const fs::path& config_file,
                                       LookFirst first) {
  std::vector<std::string> notes = find_texts(config, config_file, first);
  for (std::string* path :
       {&config.data.cache_dir, &config.checkpoint.folder, &config.runtime.run_dir,
        &config.fsdp.offload_folder, &config.data.row_template}) {
    *path = config::with_home(*path);
  }
  const auto resolve = [&](std::string& path) {
    const Places places = places_of(config, path, config_file, first);
    path = config::with_home(path);
    const std::string note = note_on_both(config::key_of(config, path), path, places);
    if (!note.empty()) notes.push_back(note);
    path = resolve_path(path, places.file, places.first);
  };
  if (!data::is_template_name(config.data.row_template, config::guests_of<data::NamedTemplate>()))
    resolve(config.data.row_template);
  resolve(config.model.path);
  resolve(config.lora.path);
  for (std::string* path : {&config.model.path, &config.lora.path}) {
    try {
      *path = snapshot_in(*path).string();
    } catch (const Error& error) {
      fail_like(error,
                config::with_place(
                    config, fmt::format("{}: {}", config::key_of(config, *path), error.what())));
    }
  }
  if (!config.lora.path.empty() && config.model.path.empty()) {
    FSDP_CHECK(
        fs::is_directory(config.lora.path), "{}",
        config::with_place(config, fmt::format("lora.path: {}: no such folder{}", config.lora.path,
                                               how_to_fetch(config.lora.path))));
    config.model.path = models::adapter_base(config.lora.path);
  }
  if (config.data.tokenizer != "bytes") resolve(config.data.tokenizer);
  if (!data::is_own_chat_template(config.data.chat.chat_template)) {
    resolve(config.data.chat.chat_template);
  }
  resolve_chat(config);
  if (config.data.pads() && !config.data.is_tokens() && !config.data.pad) {
    config.data.pad = data::padding_side_of(tokenizer_name(config));
  }
  return notes;
}

}  // namespace fsdp::tools
