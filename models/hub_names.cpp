// What the presets are called on Hugging Face's hub.
#include "models/hub_names.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

#include "core/io/hub_files.h"
#include "core/text/similar_names.h"
#include "models/config.h"

namespace fsdp::models {
namespace {

struct HubName {
  std::string_view organisation, model, preset;
};

// Models with chat or instructions have the sizes of the models that they were tuned from.
constexpr std::array kHubNames = {
    HubName{"openai-community", "gpt2", "gpt2-124m"},
    HubName{"openai-community", "gpt2-medium", "gpt2-355m"},
    HubName{"openai-community", "gpt2-large", "gpt2-774m"},
    HubName{"openai-community", "gpt2-xl", "gpt2-1558m"},
    HubName{"TinyLlama", "TinyLlama-1.1B-Chat-v1.0", "tinyllama-1.1b"},
    HubName{"TinyLlama", "TinyLlama_v1.1", "tinyllama-1.1b"},
    HubName{"huggyllama", "llama-7b", "llama-7b"},
    HubName{"huggyllama", "llama-13b", "llama-13b"},
    HubName{"meta-llama", "Llama-2-7b-hf", "llama2-7b"},
    HubName{"meta-llama", "Llama-2-7b-chat-hf", "llama2-7b"},
    HubName{"meta-llama", "Llama-2-70b-hf", "llama2-70b"},
    HubName{"meta-llama", "Llama-2-70b-chat-hf", "llama2-70b"},
    HubName{"codellama", "CodeLlama-7b-hf", "codellama-7b"},
    HubName{"codellama", "CodeLlama-7b-Instruct-hf", "codellama-7b"},
    HubName{"meta-llama", "Meta-Llama-3-8B", "llama3-8b"},
    HubName{"meta-llama", "Meta-Llama-3-8B-Instruct", "llama3-8b"},
    HubName{"meta-llama", "Meta-Llama-3-70B", "llama3-70b"},
    HubName{"meta-llama", "Meta-Llama-3-70B-Instruct", "llama3-70b"},
    HubName{"meta-llama", "Llama-3.1-8B", "llama3.1-8b"},
    HubName{"meta-llama", "Llama-3.1-8B-Instruct", "llama3.1-8b"},
    HubName{"meta-llama", "Meta-Llama-3.1-8B", "llama3.1-8b"},
    HubName{"meta-llama", "Meta-Llama-3.1-8B-Instruct", "llama3.1-8b"},
    HubName{"meta-llama", "Llama-3.2-1B", "llama3.2-1b"},
    HubName{"meta-llama", "Llama-3.2-1B-Instruct", "llama3.2-1b"},
    HubName{"meta-llama", "Llama-3.2-3B", "llama3.2-3b"},
    HubName{"meta-llama", "Llama-3.2-3B-Instruct", "llama3.2-3b"},
    HubName{"mistralai", "Mistral-7B-v0.1", "mistral-7b"},
    HubName{"mistralai", "Mistral-7B-Instruct-v0.1", "mistral-7b"},
    HubName{"Qwen", "Qwen2.5-0.5B", "qwen2.5-0.5b"},
    HubName{"Qwen", "Qwen2.5-0.5B-Instruct", "qwen2.5-0.5b"},
    HubName{"Qwen", "Qwen2.5-1.5B", "qwen2.5-1.5b"},
    HubName{"Qwen", "Qwen2.5-1.5B-Instruct", "qwen2.5-1.5b"},
    HubName{"Qwen", "Qwen2.5-3B", "qwen2.5-3b"},
    HubName{"Qwen", "Qwen2.5-3B-Instruct", "qwen2.5-3b"},
    HubName{"Qwen", "Qwen2.5-7B", "qwen2.5-7b"},
    HubName{"Qwen", "Qwen2.5-7B-Instruct", "qwen2.5-7b"},
    HubName{"Qwen", "Qwen2.5-14B", "qwen2.5-14b"},
    HubName{"Qwen", "Qwen2.5-14B-Instruct", "qwen2.5-14b"},
    HubName{"Qwen", "Qwen2.5-32B", "qwen2.5-32b"},
    HubName{"Qwen", "Qwen2.5-32B-Instruct", "qwen2.5-32b"},
    HubName{"Qwen", "Qwen2.5-72B", "qwen2.5-72b"},
    HubName{"Qwen", "Qwen2.5-72B-Instruct", "qwen2.5-72b"},
    HubName{"bigscience", "bloom-560m", "bloom-560m"},
    HubName{"bigscience", "bloom-1b1", "bloom-1b1"},
    HubName{"bigscience", "bloom-1b7", "bloom-1b7"},
    HubName{"bigscience", "bloom-3b", "bloom-3b"},
    HubName{"bigscience", "bloom-7b1", "bloom-7b1"},
    HubName{"bigscience", "bloom", "bloom-176b"},
    HubName{"EleutherAI", "pythia-70m", "pythia-70m"},
    HubName{"EleutherAI", "pythia-70m-deduped", "pythia-70m"},
    HubName{"EleutherAI", "pythia-160m", "pythia-160m"},
    HubName{"EleutherAI", "pythia-160m-deduped", "pythia-160m"},
    HubName{"EleutherAI", "pythia-410m", "pythia-410m"},
    HubName{"EleutherAI", "pythia-410m-deduped", "pythia-410m"},
    HubName{"EleutherAI", "pythia-1b", "pythia-1b"},
    HubName{"EleutherAI", "pythia-1b-deduped", "pythia-1b"},
    HubName{"EleutherAI", "pythia-1.4b", "pythia-1.4b"},
    HubName{"EleutherAI", "pythia-1.4b-deduped", "pythia-1.4b"},
    HubName{"EleutherAI", "pythia-2.8b", "pythia-2.8b"},
    HubName{"EleutherAI", "pythia-2.8b-deduped", "pythia-2.8b"},
    HubName{"EleutherAI", "pythia-6.9b", "pythia-6.9b"},
    HubName{"EleutherAI", "pythia-6.9b-deduped", "pythia-6.9b"},
    HubName{"EleutherAI", "pythia-12b", "pythia-12b"},
    HubName{"EleutherAI", "pythia-12b-deduped", "pythia-12b"},
    HubName{"EleutherAI", "gpt-neox-20b", "gpt-neox-20b"},
};

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
  for (const HubName& hub : kHubNames) {
    const std::string model(hub.model);
    known.push_back(with_organisation ? std::string(hub.organisation) + "/" + model : model);
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
  for (const HubName& hub : kHubNames) {
    const bool meant = slash == std::string::npos ||
                       is_same(std::string_view(name).substr(0, slash), hub.organisation);
    if (meant && is_same(model, hub.model)) return std::string(hub.preset);
  }
  return "";
}

}  // namespace fsdp::models
