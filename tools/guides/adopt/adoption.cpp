// Contract: tools/guides/adopt/adoption.h.
#include "tools/guides/adopt/adoption.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "tools/config/config.h"
#include "tools/config/key_values.h"

namespace fsdp::adopt {
namespace {

const std::string kNote = "#   ", kWarning = "warning: ";

std::string on_one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x20; }, ' ');
  return text;
}

std::string comment_list(const std::string& title, const std::vector<std::string>& lines) {
  std::string out = lines.empty() ? "" : "# " + title + "\n";
  for (const std::string& line : lines) out += kNote + on_one_line(line) + "\n";
  return out;
}

// The headers of the sections of `key` that `before` is not in: "train:\n  optimizer:\n".
std::string section_headers(const std::string& before, const std::string& key) {
  std::string out;
  for (size_t begin = 0, dot = key.find('.'); dot != std::string::npos;
       begin = dot + 1, dot = key.find('.', begin)) {
    if (before.starts_with(key.substr(0, dot + 1))) continue;
    const auto depth = static_cast<size_t>(std::count(key.begin(), key.begin() + begin, '.'));
    if (depth == 0 && !before.empty()) out += "\n";
    out += std::string(2 * depth, ' ') + key.substr(begin, dot - begin) + ":\n";
  }
  return out;
}

// "3e-5" and "0.00003" as our configuration writes them; what it cannot read stays as it is.
std::string as_read(const std::string& key, const std::string& value) {
  try {
    for (const auto& [name, text] : config::key_values(config::parse_keys({key + "=" + value}))) {
      if (name == key) return text;
    }
  } catch (const Error&) {  // lines() reports it, with its place
  }
  return value;
}

std::string start_line(int64_t ranks) {
  return fmt::format("mpirun -n {} --bind-to none fsdp train --config ...", ranks);
}

// "# title: a, b, c" in lines of at most 100 characters.
std::string comment_words(const std::string& title, const std::vector<std::string>& words) {
  constexpr size_t kWidth = 100;
  std::string out, line = "# " + title + ":";
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string word = words[i] + (i + 1 < words.size() ? "," : "");
    if (line.size() + 1 + word.size() > kWidth) {
      out += line + "\n";
      line = "#  ";
    }
    line += " " + word;
  }
  return words.empty() ? "" : out + line + "\n";
}

}  // namespace

Adoption::Adoption(std::string program, std::string source, std::vector<Given> given,
                   AdoptOptions options)
    : program_(std::move(program)),
      source_(std::move(source)),
      given_(std::move(given)),
      options_(std::move(options)) {
  for (const TypedKey& each : options_.typed) {
    keys_[each.key] = {.text = each.value, .origin = each.typed, .place = each.typed};
  }
  settle_twins();
  if (options_.ranks == 0) return;
  ranks_ = options_.ranks;
  notes_.push_back(fmt::format("--ranks {}: {}", ranks_, start_line(ranks_)));
}

// Two keys may have one name: an old one and a new one, or with a prefix and without. What is off
// says nothing beside the other one, and what says the same is said once.
void Adoption::settle_twins() {
  for (size_t second = 0; second < given_.size(); ++second) {
    const auto twin = std::find_if(given_.begin(), given_.begin() + second, [&](const Given& each) {
      return each.name == given_[second].name && !each.is_item();
    });
    if (twin == given_.begin() + second || twin->key == given_[second].key) continue;
    const bool first_goes = is_off(*twin);
    const Given goes = first_goes ? *twin : given_[second];
    const Given stays = first_goes ? given_[second] : *twin;
    if (is_off(goes))
      off(goes);
    else if (goes.values == stays.values)
      leave(goes, "as " + stays.key + " says");
    else
      goes.refuse("contradicts " + stays.origin());
    given_.erase(first_goes ? twin : given_.begin() + second);
    --second;
  }
}

const Given* Adoption::find(const std::string& name) const {
  const auto found = std::find_if(given_.begin(), given_.end(),
                                  [&](const Given& each) { return each.name == name; });
  return found == given_.end() ? nullptr : &*found;
}

bool Adoption::is_on(const std::string& name) const {
  const Given* given = find(name);
  return given && given->truth();
}

void Adoption::set(const std::string& key, const std::string& value, const Given& origin,
                   const std::string& remark) {
  if (const std::string typed = typed_for(key); !typed.empty()) {
    return leave(origin, typed + " counts more");
  }
  taken_.insert(origin.key);
  const Value next = {.text = value,
                      .origin = origin.origin() + (remark.empty() ? "" : "; " + remark),
                      .place = origin.place + ": " + origin.key};
  const auto [place, is_new] = keys_.emplace(key, next);
  FSDP_CHECK(is_new || as_read(key, place->second.text) == as_read(key, value),
             "{}: {} contradicts {}", next.place, origin.text(), place->second.origin);
}

void Adoption::set_list(const std::string& key, const std::vector<std::string>& values,
                        const Given& origin) {
  set(key, Json(values).dump(), origin);
}

void Adoption::set_default(const std::string& key, const std::string& value,
                           const std::string& origin) {
  if (!typed_for(key).empty()) return;
  keys_.emplace(key, Value{.text = value, .origin = origin, .place = program_});
}

void Adoption::set_defaults(const Json& by_origin) {
  for (const auto& [origin, keys] : by_origin.items()) {
    for (const auto& [key, value] : keys.items()) set_default(key, value.text(), origin);
  }
}

std::string Adoption::value_of(const std::string& our_key) const {
  const auto value = keys_.find(our_key);
  return value == keys_.end() ? "" : value->second.text;
}

void Adoption::leave(const Given& given, const std::string& reason) {
  taken_.insert(given.key);
  left_.push_back(given.origin() + ": " + reason);
}

void Adoption::leave_out(const Given& given, const std::string& reason) {
  leave(given, "left out: " + reason);
  warn(given.origin() + " is left out: " + reason);
}

void Adoption::off(const Given& given) {
  taken_.insert(given.key);
  off_.push_back(given.key);
}

void Adoption::unset(const std::string& name, const std::string& otherwise) {
  unset_.push_back(name + " " + otherwise);
}

void Adoption::note(const std::string& line) { notes_.push_back(line); }

void Adoption::warn(const std::string& line) { note(kWarning + line); }

// A model is a folder or a preset: one of them replaces the other.
std::string Adoption::typed_for(const std::string& our_key) const {
  const auto what = [](const std::string& key) {
    return key == "model.path" || key == "model.preset" ? "model" : key;
  };
  const auto typed = std::ranges::find_if(
      options_.typed, [&](const TypedKey& each) { return what(each.key) == what(our_key); });
  return typed == options_.typed.end() ? "" : typed->typed;
}

void Adoption::set_ranks(int64_t ranks, const Given& origin) {
  taken_.insert(origin.key);
  if (ranks < 1) origin.fail("a number of ranks from 1");
  if (options_.ranks > 0) {
    if (ranks == ranks_) return;
    return leave(origin, fmt::format("--ranks {} counts more", ranks_));
  }
  FSDP_CHECK(ranks_ == 0 || ranks_ == ranks,
             "{}: {}: expected the same number of ranks, got {} "
             "and {}",
             origin.place, origin.key, ranks_, ranks);
  if (ranks_ == 0) {
    notes_.insert(notes_.begin(), fmt::format("{}: {}", origin.origin(), start_line(ranks)));
  }
  ranks_ = ranks;
}

// A key that goes may leave another one without effect.
std::map<std::string, std::string> Adoption::without_effect() const {
  std::map<std::string, std::string> without;
  for (;;) {
    const size_t before = without.size();
    std::vector<config::Override> overrides;
    for (const auto& [key, value] : keys_) {
      if (!without.contains(key)) overrides.emplace_back(key + "=" + value.text, value.place);
    }
    const config::TrainConfig config = config::parse_keys(overrides);
    for (const config::KeyWithoutEffect& each : config::keys_without_effect(config)) {
      without.emplace(each.key, "no effect " + each.reason);
    }
    if (without.size() == before) return without;
  }
}

std::vector<Adoption::Line> Adoption::lines() const {
  const std::map<std::string, std::string> without = without_effect();
  std::vector<config::Override> all, effective;
  for (const auto& [key, value] : keys_) {
    all.emplace_back(key + "=" + value.text, value.place);
    if (!without.contains(key)) effective.push_back(all.back());
  }
  config::read_config("", effective);  // what is out of range, or does not go together
  std::vector<Line> lines;
  for (const auto& [key, text] : config::key_values(config::parse_keys(all))) {
    const auto value = keys_.find(key);
    if (value == keys_.end()) continue;
    const auto reason = without.find(key);
    lines.push_back(
        {.key = key,
         .value = text,
         .comment = value->second.origin + (reason == without.end() ? "" : "; " + reason->second),
         .has_effect = reason == without.end()});
  }
  return lines;
}

void Adoption::check_all_taken() const {
  for (const Given& given : given_) {
    FSDP_CHECK(taken_.contains(given.key),
               "{}: {}: fsdp adopt {} reads this key and does nothing with it: a mistake of fsdp",
               given.place, given.key, program_);
  }
}

std::vector<std::string> Adoption::unsaid() const {
  const std::vector<std::vector<std::string>> needed = {{"train.batch", "train.rows_per_pass"},
                                                        {"train.lr"},
                                                        {"train.schedule.kind"},
                                                        {"train.steps", "train.epochs"},
                                                        {"data.sequence_length"}};
  std::vector<std::string> out;
  for (const std::vector<std::string>& one_of : needed) {
    const bool said = std::ranges::any_of(one_of, [&](const auto& key) { return has(key); });
    if (!said) out.push_back(one_of.front());
  }
  return out;
}

std::string Adoption::yaml() const {
  check_all_taken();
  const bool from_scratch = has("model.preset") || has("model.model_type");
  std::string out = fmt::format("# fsdp adopt {} {}{}\n", program_, on_one_line(source_),
                                from_scratch ? ": from scratch, the weights are random" : "");
  std::vector<std::string> notes = notes_;
  if (!has("model.path") && !from_scratch)
    notes.push_back("no model is named there: --model FOLDER, or a preset for its sizes");
  if (!has("data.train")) notes.push_back("no text is named there: --data FILES");
  if (const auto keys = unsaid(); !keys.empty()) {
    notes.push_back(
        fmt::format("not said there, so the defaults of fsdp train count: {}; --set KEY=VALUE, or "
                    "include a file that says them",
                    fmt::join(keys, ", ")));
  }
  out += comment_list("Notes:", notes);
  out += comment_words("Not set there; beside each name what the programs take then", unset_);
  std::string before;
  constexpr size_t kColumn = 36;  // where comments begin
  for (const Line& line : lines()) {
    out += section_headers(before, line.key);
    before = line.key;
    const auto depth = static_cast<size_t>(std::count(line.key.begin(), line.key.end(), '.'));
    std::string text = std::string(2 * depth, ' ') + (line.has_effect ? "" : "# ") +
                       line.key.substr(line.key.rfind('.') + 1) + ": " + line.value;
    text.resize(std::max(text.size() + 2, kColumn), ' ');
    out += text + "# " + on_one_line(line.comment) + "\n";
  }
  const std::string rest = comment_list("Not taken over, or done in another way:", left_) +
                           comment_words("Off there, and here", off_);
  return out + (rest.empty() ? "" : "\n" + rest);
}

std::vector<std::string> warnings_of(const std::string& yaml) {
  std::vector<std::string> out;
  const std::string start = kNote + kWarning;
  for (size_t begin = 0, end = 0; begin < yaml.size(); begin = end + 1) {
    end = std::min(yaml.find('\n', begin), yaml.size());
    const std::string line = yaml.substr(begin, end - begin);
    if (line.starts_with(start)) out.push_back(line.substr(start.size()));
  }
  return out;
}

}  // namespace fsdp::adopt
