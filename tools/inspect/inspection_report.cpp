// An inspection as text and as JSON. Contract: inspection.h.
#include "core/io/json.h"
#include "core/text/counted.h"
#include "core/text/numbers.h"
#include "tools/inspect/inspection.h"

namespace fsdp::tools {
namespace {

std::string row(const std::string& name, const std::string& value, const std::string& note = "") {
  return fmt::format("  {:<44} {:>19}{}{}\n", name, value, note.empty() ? "" : "   ", note);
}

std::string rope_text(const models::RopeConfig& rope) {
  using Scaling = models::RopeConfig::Scaling;
  std::string out = fmt::format("rotary, theta {}", rope.theta);
  if (rope.fraction != 1) out += fmt::format(", {} of each head", rope.fraction);
  if (rope.scaling != Scaling::kNone) {
    out += fmt::format(", {} scaling by {}", rope.scaling == Scaling::kLinear ? "linear" : "llama3",
                       rope.factor);
  }
  return out;
}

std::string positions_text(const models::ModelConfig& c) {
  switch (c.positions) {
    case models::PositionKind::kNone:
      return "not encoded";
    case models::PositionKind::kLearned:
      return "learned";
    case models::PositionKind::kRope:
      return rope_text(c.rope);
    case models::PositionKind::kAlibi:
      return "ALiBi";
  }
  fail("[inspect] positions: unknown kind {}", static_cast<int>(c.positions));
}

std::string shape_section(const Inspection& in) {
  const models::ModelConfig& c = in.config;
  std::string out = fmt::format("{}: {} ({})\n", in.source, c.family, c.model_class);
  out += fmt::format("  {}, hidden {}, {} of {}, {}, inner {}\n", counted(c.layers, "layer"),
                     c.hidden, counted(c.heads, "head"), c.head_dim,
                     counted(c.kv_heads, "key-value head"), c.ffn);
  out += fmt::format("  vocabulary {}, {} positions, {}{}{}\n", c.vocabulary, c.max_positions,
                     positions_text(c), c.window > 0 ? fmt::format(", window {}", c.window) : "",
                     c.tied_head ? ", tied head" : "");
  if (!in.dtype.empty()) out += fmt::format("  dtype {}\n", in.dtype);
  return out;
}

std::string counts_section(const ParameterCounts& counts) {
  return "\nparameters\n" + row("all", format_count(counts.total)) +
         row("trainable", format_count(counts.trainable)) +
         row("embedding", format_count(counts.embedding), "token and position tables") +
         row("head", counts.head > 0 ? format_count(counts.head) : "tied") +
         row("without embedding and head", format_count(counts.other()));
}

std::string modules_section(const Inspection& in) {
  std::string out = fmt::format("\n  {:<52} {:>24} {:>17}\n", "module", "tensors", "parameters");
  for (const ModuleRow& m : in.modules()) {
    out += fmt::format("  {:<52} {:>24} {:>17}\n", m.name, m.tensors, format_count(m.parameters));
  }
  out += fmt::format("\n  {:<52} {:>17} {:>6} {:>17}\n", "tensor", "shape", "times", "parameters");
  for (const ParameterRow& r : in.parameters) {
    out += fmt::format("  {:<52} {:>17} {:>6} {:>17}\n", r.name, r.shape.str(), r.times,
                       format_count(r.shape.numel() * r.times));
  }
  return out;
}

std::string targets_text(const models::LoraConfig& lora) {
  if (!lora.target_pattern.empty()) return lora.target_pattern;
  return lora.targets.empty() ? "those of the family"
                              : fmt::to_string(fmt::join(lora.targets, ", "));
}

std::string adapter_section(const AdapterSummary& adapter) {
  const models::LoraConfig& lora = adapter.lora;
  const bool own_ranks = !lora.ranks.empty() || !lora.alphas.empty();
  return fmt::format("\nLoRA adapter of {}\n", adapter.base) +
         row("parameters", format_count(adapter.parameters),
             fmt::format("of {} layers: {}", adapter.layers, targets_text(lora))) +
         row("rank", format_count(lora.r),
             fmt::format("alpha {}, scale {:.4g}, dropout {}{}", lora.alpha, lora.scale(),
                         lora.dropout, own_ranks ? "; some layers have their own" : "")) +
         (adapter.problem.empty() ? "  names and shapes are those of the layers\n"
                                  : "  PROBLEM: " + adapter.problem + "\n");
}

std::string weights_section(const WeightsSummary& weights) {
  std::string out = "\nweights\n";
  for (const auto& [name, bytes] : weights.files) {
    out += row(name, fmt::format("{:.2f} MiB", static_cast<double>(bytes) / (1 << 20)));
  }
  for (const auto& [dtype, of] : weights.dtypes) {
    out += row(dtype, format_count(of.elements), fmt::format("in {} tensors", of.tensors));
  }
  for (const std::string& warning : weights.warnings) out += "  note: " + warning + "\n";
  return out + (weights.problem.empty() ? "  names and shapes are those of the model\n"
                                        : "  PROBLEM: " + weights.problem + "\n");
}

std::string tokenizer_section(const TokenizerSummary& tokenizer) {
  if (!tokenizer.problem.empty()) return "\ntokenizer\n  PROBLEM: " + tokenizer.problem + "\n";
  std::vector<std::string> parts, specials;
  for (const auto& [part, type] : tokenizer.components) parts.push_back(part + " " + type);
  for (const auto& [content, id] : tokenizer.specials) {
    specials.push_back(fmt::format("{} = {}", content, id));
  }
  constexpr size_t kShown = 12;
  const size_t more = specials.size() > kShown ? specials.size() - kShown : 0;
  specials.resize(specials.size() - more);
  return fmt::format(
      "\ntokenizer\n  {}\n  {} ids, {} added tokens, end of text {}\n  special: {}{}\n{}",
      fmt::join(parts, ", "), tokenizer.vocabulary, tokenizer.added,
      tokenizer.end_of_text >= 0 ? std::to_string(tokenizer.end_of_text) : "none",
      specials.empty() ? "none" : fmt::format("{}", fmt::join(specials, ", ")),
      more > 0 ? fmt::format(", and {} more", more) : "",
      tokenizer.note.empty() ? "" : "  note: " + tokenizer.note + "\n");
}

Json config_fields(const models::ModelConfig& c) {
  return {{"vocabulary", c.vocabulary},
          {"hidden", c.hidden},
          {"layers", c.layers},
          {"heads", c.heads},
          {"kv_heads", c.kv_heads},
          {"head_dim", c.head_dim},
          {"ffn", c.ffn},
          {"positions", c.max_positions},
          {"window", c.window},
          {"tied_head", c.tied_head}};
}

Json adapter_fields(const AdapterSummary& adapter) {
  return {{"base", adapter.base},
          {"r", adapter.lora.r},
          {"alpha", adapter.lora.alpha},
          {"dropout", adapter.lora.dropout},
          {"targets", targets_text(adapter.lora)},
          {"layers", adapter.layers},
          {"parameters", adapter.parameters},
          {"problem", adapter.problem}};
}

Json weights_fields(const WeightsSummary& weights) {
  Json dtypes = Json::object();
  for (const auto& [name, of] : weights.dtypes) {
    dtypes[name] = {{"tensors", of.tensors}, {"elements", of.elements}};
  }
  return {{"files", weights.files},
          {"dtypes", dtypes},
          {"warnings", weights.warnings},
          {"problem", weights.problem}};
}

Json tokenizer_fields(const TokenizerSummary& tokenizer) {
  return {{"components", tokenizer.components},   {"vocabulary", tokenizer.vocabulary},
          {"added_tokens", tokenizer.added},      {"special_tokens", tokenizer.specials},
          {"end_of_text", tokenizer.end_of_text}, {"note", tokenizer.note},
          {"problem", tokenizer.problem}};
}

}  // namespace

std::string format_inspection(const Inspection& in) {
  std::string out = shape_section(in) + counts_section(in.counts) + modules_section(in) +
                    fmt::format("\nfull_shard on {} rank{}\n{}", in.world, in.world == 1 ? "" : "s",
                                format_units(in.units, {}, {.shards = in.world}));
  if (in.adapter) out += adapter_section(*in.adapter);
  if (in.weights) out += weights_section(*in.weights);
  if (in.tokenizer) out += tokenizer_section(*in.tokenizer);
  return out;
}

std::string inspection_json(const Inspection& in) {
  Json parameters = Json::array(), modules = parameters, units = parameters;
  for (const ModuleRow& m : in.modules()) {
    modules.push_back({{"name", m.name}, {"tensors", m.tensors}, {"parameters", m.parameters}});
  }
  for (const ParameterRow& r : in.parameters) {
    parameters.push_back({{"name", r.name},
                          {"shape", r.shape.extents()},
                          {"times", r.times},
                          {"parameters", r.shape.numel() * r.times}});
  }
  for (const UnitRow& unit : in.units) {
    units.push_back({{"name", unit.name},
                     {"tensors", unit.shapes.size()},
                     {"parameters", unit.parameters},
                     {"per_rank", unit.shard_numel()}});
  }
  Json out = {{"source", in.source},
              {"family", in.config.family},
              {"dtype", in.dtype},
              {"config", config_fields(in.config)},
              {"total", in.counts.total},
              {"trainable", in.counts.trainable},
              {"embedding", in.counts.embedding},
              {"head", in.counts.head},
              {"without_embedding_and_head", in.counts.other()},
              {"modules", modules},
              {"parameters", parameters},
              {"world", in.world},
              {"units", units}};
  if (in.adapter) out["adapter"] = adapter_fields(*in.adapter);
  if (in.weights) out["weights"] = weights_fields(*in.weights);
  if (in.tokenizer) out["tokenizer"] = tokenizer_fields(*in.tokenizer);
  return out.dump({.indent = 2}) + "\n";
}

}  // namespace fsdp::tools
