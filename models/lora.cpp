// Which layers have a low-rank term, and what it computes.
#include "models/lora.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <regex>

#include "core/ops/elementwise.h"
#include "models/causal_lm.h"
#include "models/names.h"

namespace fsdp::models {

double LoraConfig::scale() const {
  const auto rank = static_cast<double>(r);
  return alpha / (rank_stabilised ? std::sqrt(rank) : rank);
}

void validate(const LoraConfig& lora, const std::string& where) {
  const auto check_rank = [&](const std::string& key, int64_t r) {
    FSDP_CHECK(r >= 1, "{}{}: expected at least 1, got {}", where, key, r);
  };
  const auto check_alpha = [&](const std::string& key, double alpha) {
    FSDP_CHECK(std::isfinite(alpha) && alpha > 0, "{}{}: expected a positive number, got {}", where,
               key, alpha);
  };
  check_rank("r", lora.r);
  check_alpha("alpha", lora.alpha);
  for (const auto& [name, r] : lora.ranks) check_rank("rank_pattern: " + name, r);
  for (const auto& [name, alpha] : lora.alphas) check_alpha("alpha_pattern: " + name, alpha);
  FSDP_CHECK(lora.dropout >= 0 && lora.dropout < 1,
             "{}dropout: expected a number from 0 to below 1, got {}", where, lora.dropout);
}

Tensor LoraTerm::add_to(const Tensor& y, const Tensor& x, const ForwardContext& context) const {
  const Tensor dropped =
      ops::dropout(x, ops::dropout_args(context, dropout, number, ops::DropoutSite::kAdapterInput));
  return ops::add_linear(y, ops::linear(dropped, {.weight = a}), {.weight = b}, scale);
}

bool is_lora(const Parameter& parameter) {
  return parameter.name().ends_with(".lora_A.weight") ||
         parameter.name().ends_with(".lora_B.weight");
}

std::string hugging_face_name(const CausalLM& model, const Linear& layer) {
  const std::string weight = hugging_face_name(model.config(), layer.weight().name());
  return weight.substr(0, weight.rfind('.'));
}

namespace {

// A matrix that Hugging Face's class holds itself (nn.MultiheadAttention's in_proj_weight) is no
// layer there: this program has no name for it in an adapter's file.
bool is_layer_there(const CausalLM& model, const Linear& layer) {
  return hugging_face_name(model.config(), layer.weight().name()).ends_with(".weight");
}

// All but the head, which is no layer that LoRA adapts (and computes its loss by itself).
std::vector<Linear*> block_layers(CausalLM& model) {
  std::vector<Linear*> layers;
  for (Module* module : model.modules()) {
    auto* linear = dynamic_cast<Linear*>(module);
    const bool in_block = linear && linear->name().starts_with("blocks.");
    if (in_block && is_layer_there(model, *linear)) layers.push_back(linear);
  }
  return layers;
}

// What the layers of a block are called, each once: "attn.c_attn".
std::string names_in_blocks(const CausalLM& model, const std::vector<Linear*>& layers) {
  std::vector<std::string> names;
  for (const Linear* layer : layers) {
    const std::string name = hugging_face_name(model, *layer);
    const size_t digit = name.find_first_of("0123456789");
    const std::string within = name.substr(name.find('.', digit) + 1);
    if (std::find(names.begin(), names.end(), within) == names.end()) names.push_back(within);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

bool matches(const std::string& name, const std::string& target) {
  return target == "all-linear" || name == target || name.ends_with("." + target);
}

// As PEFT chooses where nothing is said: query and value, or what holds both.
bool is_default(const Linear& layer) {
  return layer.name().ends_with("attention.qkv") || layer.name().ends_with("attention.q") ||
         layer.name().ends_with("attention.v");
}

// A pattern is part of a foreign file: what would exhaust the stack or take forever is refused.
// Parentheses recurse in the compiler and optional parts in the matcher, so length and repetitions
// are bounded; every look-ahead multiplies the time by the length of a name.
void check_cost(const std::string& pattern) {
  constexpr size_t kLongest = 1000, kMostLookAheads = 3;
  constexpr int64_t kMostCopies = 32;  // all counts in {} multiplied
  FSDP_CHECK(pattern.size() <= kLongest, "expected at most {} characters, got {}", kLongest,
             pattern.size());
  size_t look_aheads = 0;
  int64_t copies = 1, count = 0;
  bool in_braces = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    look_aheads += pattern.compare(i, 3, "(?=") == 0 || pattern.compare(i, 3, "(?!") == 0;
    if (c == '{') {
      in_braces = true;
    } else if (in_braces && c >= '0' && c <= '9') {
      count = std::min(count * 10 + (c - '0'), kMostCopies + 1);
    } else if (in_braces) {
      copies = std::min(copies * std::max<int64_t>(count, 1), kMostCopies + 1);
      count = 0;
      in_braces = c != '}';
    }
  }
  FSDP_CHECK(look_aheads <= kMostLookAheads, "expected at most {} look-aheads, got {}",
             kMostLookAheads, look_aheads);
  FSDP_CHECK(copies <= kMostCopies, "expected counts in {{}} of at most {} together", kMostCopies);
}

std::regex compile(const char* key, const std::string& pattern) {
  try {
    check_cost(pattern);
    // Without backtracking, whose time (.*)*(.*)* makes exponential.
    return std::regex(pattern, std::regex::ECMAScript | std::regex_constants::__polynomial);
  } catch (const Error& error) {
    fail("[lora] {}: \"{}\": {}", key, pattern.substr(0, 100), error.what());
  } catch (const std::regex_error& error) {
    fail("[lora] {}: \"{}\" is no regular expression: {}", key, pattern, error.what());
  }
}

// `pattern` matches the name or how it ends, after a dot. A plain name, of which there may be one
// for every layer, needs no compiler: its dots match anything.
bool ends_with_match(const char* key, const std::string& name, const std::string& pattern) {
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
  };
  if (std::all_of(pattern.begin(), pattern.end(), is_plain)) {
    if (pattern.size() > name.size()) return false;
    const size_t begin = name.size() - pattern.size();
    if (begin > 0 && name[begin - 1] != '.') return false;
    return std::equal(pattern.begin(), pattern.end(), name.begin() + static_cast<long>(begin),
                      [](char p, char c) { return p == '.' || p == c; });
  }
  return std::regex_match(name, compile(key, "(.*\\.)?(" + pattern + ")"));
}

template <typename Value>
Value value_for(const char* key, const std::string& name,
                const std::vector<std::pair<std::string, Value>>& patterns, Value otherwise) {
  for (const auto& [pattern, value] : patterns) {
    if (ends_with_match(key, name, pattern)) return value;
  }
  return otherwise;
}

bool is_excluded(const LoraConfig& lora, const std::string& name) {
  if (!lora.excluded_pattern.empty()) {
    return std::regex_match(name, compile("exclude_modules", lora.excluded_pattern));
  }
  return std::any_of(lora.excluded.begin(), lora.excluded.end(), [&](const std::string& excluded) {
    return name == excluded || name.ends_with("." + excluded);
  });
}

// `layer`: "blocks.3.attention.q", called `name` by Hugging Face.
bool is_in_block(const LoraConfig& lora, const Linear& layer, const std::string& name) {
  if (lora.blocks.empty()) return true;
  const int64_t block = std::stoll(layer.name().substr(layer.name().find('.') + 1));
  if (std::find(lora.blocks.begin(), lora.blocks.end(), block) == lora.blocks.end()) return false;
  const auto is_meant = [&](const std::string& before) {
    const std::string pattern = fmt::format("(.*\\.)?({})\\.{}\\..*", before, block);
    return std::regex_match(name, compile("layers_pattern", pattern));
  };
  return lora.block_names.empty() ||
         std::any_of(lora.block_names.begin(), lora.block_names.end(), is_meant);
}

}  // namespace

LoraRank rank_of(const LoraConfig& lora, const std::string& layer) {
  const int64_t r = value_for("rank_pattern", layer, lora.ranks, lora.r);
  const double alpha = value_for("alpha_pattern", layer, lora.alphas, lora.alpha);
  return {r, LoraConfig{.r = r, .alpha = alpha, .rank_stabilised = lora.rank_stabilised}.scale()};
}

std::vector<Linear*> lora_layers(CausalLM& model, const LoraConfig& lora) {
  const bool by_pattern = !lora.target_pattern.empty();
  const std::regex pattern = compile("targets", lora.target_pattern);
  const std::vector<std::string> targets =
      by_pattern ? std::vector<std::string>{lora.target_pattern} : lora.targets;
  std::vector<std::string> unused = targets;
  const std::vector<Linear*> all = block_layers(model);
  std::vector<Linear*> chosen;
  for (Linear* layer : all) {
    const std::string name = hugging_face_name(model, *layer);
    const auto is_meant = [&](const std::string& target) {
      return by_pattern ? std::regex_match(name, pattern) : matches(name, target);
    };
    std::erase_if(unused, is_meant);
    const bool wanted = targets.empty() ? is_default(*layer)
                                        : std::any_of(targets.begin(), targets.end(), is_meant);
    if (!wanted || is_excluded(lora, name)) continue;
    if (is_in_block(lora, *layer, name)) chosen.push_back(layer);
  }
  FSDP_CHECK(unused.empty(),
             "[lora] targets: \"{}\" matches no linear layer in the blocks of a {} model; there "
             "are {}",
             unused.front(), model.config().family, names_in_blocks(model, all));
  const bool all_left_out =
      !lora.blocks.empty() || !lora.excluded.empty() || !lora.excluded_pattern.empty();
  FSDP_CHECK(!chosen.empty() || !all_left_out,
             "[lora] exclude_modules, layers_to_transform: no layer of the {} model is left",
             model.config().family);
  FSDP_CHECK(!chosen.empty(),
             "[lora] targets: a {} model has no layer for query and value that an adapter could "
             "name, so they must be given: there are {}",
             model.config().family, names_in_blocks(model, all));
  return chosen;
}

void add_lora(CausalLM& model, const LoraConfig& lora) {
  validate(lora, "[lora] ");
  const std::vector<Linear*> all = block_layers(model);
  const std::vector<Linear*> chosen = lora_layers(model, lora);
  for (Parameter* parameter : model.parameters()) parameter->set_trainable(false);
  for (Linear* layer : chosen) {
    layer->add_lora(rank_of(lora, hugging_face_name(model, *layer)), lora.dropout,
                    std::find(all.begin(), all.end(), layer) - all.begin());
  }
}

}  // namespace fsdp::models
