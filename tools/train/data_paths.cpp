// Contract: tools/train/data_paths.h.
#include "tools/train/data_paths.h"

#include "core/error.h"
#include "core/io/hub_files.h"
#include "models/adapter_folder.h"
#include "tools/config/guests.h"
#include "tools/config/home_folder.h"
#include "tools/config/options.h"
#include "tools/data/padding_side.h"
#include "tools/data/row_template.h"
#include "tools/data/text_files.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

// The file that gives a member's key: the one of --config, or one that it includes.
template <typename T>
std::filesystem::path file_of(const config::TrainConfig& config, const T& member,
                              const std::filesystem::path& config_file) {
  const auto place = config.places.find(config::key_of(config, member));
  const bool in_a_file = place != config.places.end() && !place->second.starts_with("--");
  if (config_file.empty() || !in_a_file) return config_file;
  return place->second.substr(0, place->second.rfind(':'));  // "file:line"
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

// Puts the files that `names` mean in their place. `member`: whose key gives them.
template <typename T>
void find_files(const config::TrainConfig& config, const T& member,
                const std::filesystem::path& config_file, std::vector<std::string>& names,
                std::vector<std::string>& notes) {
  std::vector<std::string> files;
  const std::filesystem::path file = file_of(config, member, config_file);
  for (const std::string& given : names) {
    const std::string name = config::with_home(given), here = resolve_path(name, file);
    const std::string key = config::key_of(config, member);
    try {
      std::vector<std::string> found = data::files_named(here);
      if (found.empty() && here == name && !name.empty()) {  // a pattern has no place of its own
        const auto beside = (file.parent_path() / name).lexically_normal();
        found = data::files_named(beside.string());
      }
      if (found.empty()) {
        found = {here};
      } else if (std::filesystem::is_directory(here)) {
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

}  // namespace

std::string resolve_path(const std::string& path, const std::filesystem::path& config_file) {
  const std::filesystem::path given(path);
  const std::filesystem::path beside = config_file.parent_path() / given;
  const bool use_beside = !path.empty() && given.is_relative() && !std::filesystem::exists(given) &&
                          std::filesystem::exists(beside);
  return use_beside ? beside.lexically_normal().string() : path;
}

std::vector<std::string> find_texts(config::TrainConfig& config,
                                    const std::filesystem::path& config_file) {
  std::vector<std::string> notes;
  const auto find = [&](const auto& member, std::vector<std::string>& names) {
    find_files(config, member, config_file, names, notes);
  };
  find(config.data.train, config.data.train);
  for (config::SourceSection& source : config.data.sources) {
    find(config.data.sources, source.path);
  }
  if (!config.data.held_out()) find(config.data.validation, config.data.validation);  // no share
  return notes;
}

std::vector<std::string> resolve_paths(config::TrainConfig& config,
                                       const std::filesystem::path& config_file) {
  std::vector<std::string> notes = find_texts(config, config_file);
  for (std::string* path :
       {&config.data.cache_dir, &config.checkpoint.folder, &config.runtime.run_dir,
        &config.fsdp.offload_folder, &config.data.row_template}) {
    *path = config::with_home(*path);
  }
  const auto resolve = [&](std::string& path) {
    path = resolve_path(config::with_home(path), file_of(config, path, config_file));
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
    config.model.path = models::adapter_base(config.lora.path);
  }
  if (config.data.tokenizer != "bytes") resolve(config.data.tokenizer);
  if (config.data.pads() && !config.data.is_tokens() && !config.data.pad) {
    config.data.pad = data::padding_side_of(tokenizer_name(config));
  }
  return notes;
}

}  // namespace fsdp::tools
