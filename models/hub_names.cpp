// What the presets are called on Hugging Face's hub: families/families.json.
#include "models/hub_names.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "core/io/hub_files.h"
#include "core/text/similar_names.h"
#include "models/family.h"

namespace fsdp::models {
namespace {

struct HubName {
  std::string organisation, model, preset;
};

const std::vector<HubName>& hub_names() {
  static const std::vector<HubName> names = [] {
    std::vector<HubName> all;
    for (const Family* family : families()) {
      for (const Json& preset : data_of(*family)["presets"]) {
        if (!preset.contains("hub")) continue;
        for (const Json& name : preset["hub"]) {
          const size_t slash = name.text().find('/');
          all.push_back(
              {name.text().substr(0, slash), name.text().substr(slash + 1), preset["name"].text()});
        }
      }
    }
    return all;
  }();
  return names;
}

// The hub does not tell small letters from capitals.
bool is_same(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

std::string lower_case(std::string_view name) {
  std::string out(name);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

}  // namespace

std::string near_preset(const std::string& name) {
  const size_t slash = name.rfind('/');
  const bool with_organisation = slash != std::string::npos;
  std::vector<std::string> known = preset_names();
  for (const HubName& hub : hub_names()) {
    known.push_back(with_organisation ? hub.organisation + "/" + hub.model : hub.model);
  }
  const std::string given = lower_case(name);
  const auto distance = [&](const std::string& other) {
    return edit_distance(given, lower_case(other));
  };
  const auto nearest = std::min_element(
      known.begin(), known.end(),
      [&](const std::string& a, const std::string& b) { return distance(a) < distance(b); });
  if (resembles(given, lower_case(*nearest))) return *nearest;
  return with_organisation ? near_preset(name.substr(slash + 1)) : "";
}

bool is_preset(const std::string& name) {
  const std::vector<std::string> presets = preset_names();
  return std::find(presets.begin(), presets.end(), name) != presets.end();
}

std::string nearest_preset(const std::string& name) {
  const std::string near = near_preset(name), preset = preset_named(near);
  if (near.empty()) return "";
  return "the nearest preset is " + preset +
         (preset == near ? "" : fmt::format(" ({} on the hub)", near));
}

std::string instead_of(const std::string& folder) {
  const std::string near = nearest_preset(folder);
  return (near.empty() ? "" : fmt::format("; {}, which has no weights", near)) +
         how_to_fetch(folder);
}

std::string preset_named(const std::string& name) {
  if (is_preset(name)) return name;
  const size_t slash = name.find('/');
  const std::string_view model =
      std::string_view(name).substr(slash == std::string::npos ? 0 : slash + 1);
  for (const HubName& hub : hub_names()) {
    const bool meant = slash == std::string::npos ||
                       is_same(std::string_view(name).substr(0, slash), hub.organisation);
    if (meant && is_same(model, hub.model)) return hub.preset;
  }
  return "";
}

}  // namespace fsdp::models
