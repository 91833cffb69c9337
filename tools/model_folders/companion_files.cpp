// Contract: tools/model_folders/companion_files.h.
#include "tools/model_folders/companion_files.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "core/io/file.h"
#include "core/io/json.h"
#include "models/config.h"
#include "tools/model_folders/load_model.h"

namespace fsdp::tools {

namespace {

namespace fs = std::filesystem;

// Both files, as they are and as they become.
class AlignedFiles {
 public:
  AlignedFiles(const fs::path& folder, const data::NamedTokens& tokens)
      : folder_(folder),
        model_(models::read_config((folder / "config.json").string())),
        config_(in_order(folder / "config.json")) {
    const GenerationConfig generation = read_generation_config(folder);
    if (generation.is_there()) generation_ = in_order(generation.file);
    align_end(tokens.end);
    align("bos_token_id", tokens.begin, model_.bos_token);
    // A family with a padding row of its own has no such key.
    if (model_.padding_row < 0 || config_.contains("pad_token_id")) {
      align("pad_token_id", tokens.padding, -1);
    }
  }

  const std::vector<std::string>& differences() const { return differences_; }

  void write() const {
    if (config_changed_) write_json_file(folder_ / "config.json", config_);
    if (generation_changed_) write_json_file(folder_ / "generation_config.json", generation_);
  }

 private:
  static Json in_order(const fs::path& file) { return Json::parse(read_file(file)); }

  bool has_row(int32_t id) const { return id >= 0 && id < model_.vocabulary; }

  // `absent`: what the family has where the key is not there.
  static Json value_in(const Json& file, const char* key, int64_t absent) {
    if (file.contains(key)) return file.at(key);
    return absent < 0 ? Json() : Json(absent);
  }
  static Json token(int32_t id) { return id < 0 ? Json() : Json(id); }

  void note(const char* key, const Json& to, const Json& of_config) {
    const Json* of_generation = generation_.is_object() ? generation_.find(key) : nullptr;
    differences_.push_back(
        fmt::format("{}: {} (config.json {}{})", key, to.dump(), of_config.dump(),
                    of_generation ? ", generation_config.json " + of_generation->dump() : ""));
  }

  void align(const char* key, const std::optional<int32_t>& named, int64_t absent) {
    if (!named || (*named >= 0 && !has_row(*named))) return;
    const Json to = token(*named), before = value_in(config_, key, absent);
    const bool generates = generation_.is_object();
    const bool other = generates && value_in(generation_, key, -1) != to;
    if (before == to && !other) return;
    note(key, to, before);
    if (before != to) config_[key] = to;
    config_changed_ |= before != to;
    if (!other) return;
    to.is_null() ? void(generation_.erase(key)) : void(generation_[key] = to);
    generation_changed_ = true;
  }

  void align_end(const std::optional<int32_t>& named) {
    constexpr const char* kKey = "eos_token_id";
    if (!named || !has_row(*named)) return;
    const Json to = *named, before = value_in(config_, kKey, model_.eos_token);
    Json ends = Json::array({to});
    const Json said = generation_.is_object() ? value_in(generation_, kKey, -1) : Json();
    for (const Json& each : said.is_array() ? said : Json::array({said})) {
      const bool known = std::find(ends.begin(), ends.end(), each) != ends.end();
      if (!each.is_null() && !known) ends.push_back(each);
    }
    const bool ends_there = said == to || (said.is_array() && said.size() == ends.size());
    const bool other = generation_.is_object() && !ends_there;
    if (before == to && !other) return;
    note(kKey, to, before);
    if (before != to) config_[kKey] = to;
    config_changed_ |= before != to;
    if (!other) return;
    generation_[kKey] = ends;
    // transformers would make a file with this mark anew from config.json, without the other ends.
    generation_.erase("_from_model_config");
    generation_changed_ = true;
  }

  const fs::path& folder_;
  models::ModelConfig model_;
  Json config_, generation_;
  bool config_changed_ = false, generation_changed_ = false;
  std::vector<std::string> differences_;
};

}  // namespace

std::vector<std::string> token_differences(const fs::path& model_folder,
                                           const data::NamedTokens& tokens) {
  return AlignedFiles(model_folder, tokens).differences();
}

std::vector<std::string> align_tokens(const fs::path& model_folder,
                                      const data::NamedTokens& tokens) {
  const AlignedFiles files(model_folder, tokens);
  files.write();
  return files.differences();
}

namespace {

bool has_code(const fs::path& folder) {
  for (const char* name : {"config.json", "tokenizer_config.json"}) {
    std::error_code unreadable;
    if (!fs::exists(folder / name, unreadable)) continue;
    try {
      const Json json = Json::parse(read_file(folder / name));
      if (json.is_object() && json.contains("auto_map")) return true;
    } catch (const JsonError&) {  // who reads the file for what it says tells of it
    }
  }
  return false;
}

// "LICENSE", "license.txt", "LICENCE-MODEL", "NOTICE", "Use_Policy.md", "README.md"
bool is_companion(const std::string& name) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  constexpr std::array kBeginnings = {"LICENSE", "LICENCE", "NOTICE", "USE_POLICY", "COPYING"};
  return upper == "README.MD" || std::any_of(kBeginnings.begin(), kBeginnings.end(),
                                             [&](const char* b) { return upper.starts_with(b); });
}

}  // namespace

void copy_companion_files(const fs::path& from, const fs::path& to) {
  const bool code = has_code(from);
  std::error_code unreadable;
  for (const auto& item : fs::directory_iterator(from, unreadable)) {
    const std::string name = item.path().filename().string();
    const bool belongs = is_companion(name) || (code && item.path().extension() == ".py");
    // A link of a cache to a file that was not downloaded is no regular file.
    if (!belongs || !item.is_regular_file(unreadable) || fs::exists(to / name)) continue;
    write_file_atomically(to / name, read_file(item.path()));
  }
}

}  // namespace fsdp::tools
