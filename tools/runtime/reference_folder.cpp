// Reading of both layouts, with errors that name file, tensor or key. Unknown options of a run are
// refused, never ignored: a comparison that passed must have compared the run that was described.
#include "tools/runtime/reference_folder.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/io/json.h"

namespace fsdp::tools {

namespace fs = std::filesystem;

// ---------------------------------------------------------------------------- Batches

int64_t GlobalBatch::label_tokens() const {
  int64_t count = 0;
  for (int64_t i = 0; i < rows * length; ++i) {
    count += i % length != 0 && labels[static_cast<size_t>(i)] != kIgnoreIndex;
  }
  return count;
}

RowRange deal_rows(int64_t rows, int rank, int ranks) {
  const int64_t each = rows / ranks, left_over = rows % ranks;
  return {rank * each + std::min<int64_t>(rank, left_over), each + (rank < left_over ? 1 : 0)};
}

Batch part_of(const GlobalBatch& batch, const RowRange& range) {
  const auto part = [&](const std::vector<int32_t>& all) {
    const auto begin = all.begin() + range.first * batch.length;
    return std::vector<int32_t>(begin, begin + range.count * batch.length);
  };
  Batch out = {.rows = range.count,
               .length = batch.length,
               .tokens = part(batch.tokens),
               .labels = part(batch.labels),
               .samples = {},
               .global_label_tokens = batch.label_tokens()};
  for (int64_t row = 0; row < range.count; ++row) {
    out.samples.push_back(batch.first_sample + range.first + row);
  }
  return out;
}

// ---------------------------------------------------------------------------- Tensors

ReferenceTensors::ReferenceTensors(const fs::path& path, std::string prefix)
    : file_(SafetensorsFile::open(path)), prefix_(std::move(prefix)) {}

std::vector<std::string> ReferenceTensors::names() const {
  std::vector<std::string> out;
  for (const auto& [name, entry] : file_.entries()) {
    if (name.starts_with(prefix_)) out.push_back(name.substr(prefix_.size()));
  }
  return out;
}

std::vector<int64_t> ReferenceTensors::shape(const std::string& name) const {
  return file_.entry(prefix_ + name).shape;
}

std::vector<double> ReferenceTensors::read(const std::string& name,
                                           const std::vector<int64_t>& shape) const {
  const SafetensorsEntry& entry = file_.entry(prefix_ + name);
  FSDP_CHECK(entry.shape == shape, "{}: tensor \"{}\": expected {}, got {}", path().string(),
             prefix_ + name, Shape(shape).str(), Shape(entry.shape).str());
  std::vector<double> out(static_cast<size_t>(entry.numel));
  file_.read_elements(prefix_ + name, 0, entry.numel, DType::kF64, out.data());
  return out;
}

std::vector<int32_t> ReferenceTensors::read_integers(const std::string& name) const {
  const SafetensorsEntry& entry = file_.entry(prefix_ + name);
  std::vector<int32_t> out(static_cast<size_t>(entry.numel));
  file_.read_elements(prefix_ + name, 0, entry.numel, DType::kI32, out.data());
  return out;
}

namespace {

// All batches of a file: input_ids and labels (..., T). With `stacked` the first extent is the
// steps; everything between it and T is rows.
std::vector<GlobalBatch> read_batches(const ReferenceTensors& tensors, bool stacked) {
  const std::vector<int64_t> shape = tensors.shape("input_ids");
  const std::string path = tensors.path().string();
  FSDP_CHECK(shape.size() >= (stacked ? 3 : 2), "{}: tensor \"input_ids\": too few dimensions: {}",
             path, Shape(shape).str());
  FSDP_CHECK(tensors.shape("labels") == shape, "{}: tensor \"labels\": expected {}, got {}", path,
             Shape(shape).str(), Shape(tensors.shape("labels")).str());
  const std::vector<int32_t> tokens = tensors.read_integers("input_ids");
  const std::vector<int32_t> labels = tensors.read_integers("labels");
  const int64_t steps = stacked ? shape.front() : 1, length = shape.back();
  FSDP_CHECK(!tokens.empty(), "{}: tensor \"input_ids\": empty", path);
  const int64_t size = static_cast<int64_t>(tokens.size()) / steps;
  std::vector<GlobalBatch> out;
  for (int64_t step = 0; step < steps; ++step) {
    const auto part = [&](const std::vector<int32_t>& all) {
      return std::vector<int32_t>(all.begin() + step * size, all.begin() + (step + 1) * size);
    };
    out.push_back({.rows = size / length,
                   .length = length,
                   .tokens = part(tokens),
                   .labels = part(labels),
                   .first_sample = step * size / length});
  }
  return out;
}

// ---------------------------------------------------------------------------- JSON

// A place within a JSON file; errors name file and key.
class Node {
 public:
  Node(const Json& json, std::string file, std::string key = {})
      : json_(&json), file_(std::move(file)), key_(std::move(key)) {}

  const Json& json() const { return *json_; }
  std::string where() const { return key_.empty() ? file_ : file_ + ": " + key_; }
  bool has(const std::string& key) const { return json_->is_object() && json_->contains(key); }
  Node operator[](const std::string& key) const {
    FSDP_CHECK(has(key), "{}: {}: missing", file_, inner(key));
    return {json_->at(key), file_, inner(key)};
  }
  std::vector<Node> elements() const {
    FSDP_CHECK(json_->is_array(), "{}: expected a list", where());
    std::vector<Node> out;
    for (size_t i = 0; i < json_->size(); ++i) {
      out.emplace_back((*json_)[i], file_, fmt::format("{}[{}]", key_, i));
    }
    return out;
  }
  double number() const {
    if (json_->is_string() && json_->get<std::string>() == "inf") {
      return std::numeric_limits<double>::infinity();
    }
    FSDP_CHECK(json_->is_number(), "{}: expected a number, got {}", where(), json_->dump());
    return json_->get<double>();
  }
  std::string text() const {
    FSDP_CHECK(json_->is_string(), "{}: expected a string, got {}", where(), json_->dump());
    return json_->get<std::string>();
  }

 private:
  std::string inner(const std::string& key) const { return key_.empty() ? key : key_ + "." + key; }

  const Json* json_;
  std::string file_;
  std::string key_;
};

models::ModelConfig read_known_config(const fs::path& folder) {
  if (fs::exists(folder / "adapter_config.json")) {
    throw Unsupported(folder.string() + ": LoRA adapters are not supported by this build");
  }
  const fs::path path = folder / "config.json";
  const Json json = read_json_file(path);
  const std::string family = Node(json, path.string())["model_type"].text();
  try {
    models::family_defaults(family);
  } catch (const Error& error) {
    throw Unsupported(path.string() + ": " + error.what());
  }
  models::ModelConfig config = models::read_config(path.string());
  // References are computed without dropout.
  config.embedding_dropout = config.attention_dropout = config.residual_dropout = 0;
  return config;
}

// ---------------------------------------------------------------------------- Layout "model"

constexpr double kSingleGradientLimit = 5e-5;  // f32

ReferencePass read_pass(const fs::path& folder, const Node& json, DType dtype) {
  const fs::path path = folder / "reference.safetensors";
  const ReferenceTensors tensors(path, "");
  const std::vector<std::string> names = tensors.names();
  if (std::find(names.begin(), names.end(), "attention_mask") != names.end()) {
    throw Unsupported(path.string() + ": attention_mask: not supported by this build");
  }
  ReferencePass pass;
  pass.batch = read_batches(tensors, false).front();
  pass.loss = json["loss_f64"].number();
  pass.logits = tensors;
  pass.gradients.emplace(path, "grad.");
  if (dtype == DType::kBF16) {
    pass.loss_limit = 0.03;
    pass.loss_limit_is_absolute = true;
    pass.logits_limit = 2 * json["max_relative_difference_bf16_f64"]["logits"].number();
  } else {
    const bool f64 = dtype == DType::kF64;
    pass.loss_limit = f64 ? 1e-13 : 1e-6;
    pass.logits_limit = f64 ? 1e-12 : 1e-5;
    pass.gradients_limit = f64 ? 1e-11 : kSingleGradientLimit;
  }
  return pass;
}

// The optimizer is described in words: this is the only description that this program follows.
void check_prose(const Node& node, const std::string& expected) {
  if (node.text() == expected) return;
  throw Unsupported(
      fmt::format("{}: expected \"{}\", got \"{}\"", node.where(), expected, node.text()));
}

ReferenceTrajectory read_model_trajectory(const fs::path& folder, const Node& json, DType dtype) {
  check_prose(json["optimizer"],
              "torch.optim.AdamW, betas (0.9, 0.95), eps 1e-08, weight_decay 0.1 if ndim >= 2 "
              "else 0");
  check_prose(json["clip"],
              "gradients *= min(1, 1.0 / (norm + 1e-6)), norm = l2 norm of all gradients together");
  const fs::path path = folder / "trajectory.safetensors";
  const std::vector<GlobalBatch> batches = read_batches(ReferenceTensors(path, "batch."), true);
  const std::vector<Node> steps = json["steps"].elements();
  FSDP_CHECK(steps.size() == batches.size(),
             "{}: tensor \"batch.input_ids\": expected {} steps, "
             "got {}",
             path.string(), steps.size(), batches.size());
  ReferenceTrajectory out;
  out.adamw = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  for (size_t i = 0; i < steps.size(); ++i) {
    out.steps.push_back({.batch = batches[i],
                         .learning_rate = steps[i]["lr"].number(),
                         .loss = steps[i]["loss_f64"].number(),
                         .grad_norm = steps[i]["grad_norm_f64"].number()});
  }
  out.final_parameters.emplace(path, "final.");
  if (dtype != DType::kBF16) {
    const bool f64 = dtype == DType::kF64;
    out.loss_limit = f64 ? 1e-12 : 5e-6;
    out.grad_norm_limit = f64 ? 1e-11 : 1e-4;
    out.parameter_limit = f64 ? 1e-10 : 1e-4;
    out.key_bias_limit = 0.05;
  }
  return out;
}

// ---------------------------------------------------------------------------- Layout "run"

// What in these options keeps the run from being repeated here in `dtype`; "" when nothing does.
std::string unsupported_option(const Json& run, DType dtype) {
  const Json none, nothing = Json::array();
  const std::map<std::string, std::vector<Json>> known = {
      {"accum", {1}},
      {"strategy", {"fsdp2_full", "fsdp1_full", "fsdp1_no_shard", "ddp", "single"}},
      {"param_dtype", {none, "f32"}},
      {"reduce_dtype", {none, "f32"}},
      {"compute", {std::string(name_of(dtype))}},
      {"normalise", {"token", "rank_mean"}},
      {"freeze", {nothing}},
      {"skip", {none}},
      {"unused", {"none"}},
      {"scaler", {none}},
      {"inject", {none}},
      {"lr_schedule", {"constant"}},
  };
  // Read elsewhere, or without influence on the result (up to rounding).
  constexpr std::array<std::string_view, 8> kOther = {"steps", "rows", "T",    "labels",
                                                      "empty", "attn", "clip", "adamw"};
  for (const auto& [key, value] : run.items()) {
    if (const auto found = known.find(key); found != known.end()) {
      const std::vector<Json>& values = found->second;
      if (std::find(values.begin(), values.end(), value) == values.end()) {
        return fmt::format("run.{} = {}", key, value.dump());
      }
    } else if (std::find(kOther.begin(), kOther.end(), key) == kOther.end() && key != "threads" &&
               key != "sync") {
      return fmt::format("run.{}", key);
    }
  }
  if (run.value("normalise", "") == "rank_mean" && run.value("labels", "") != "full") {
    return "run.normalise = \"rank_mean\" with unequal label counts (mean of the ranks' means)";
  }
  return {};
}

void read_run_options(const Node& run, ReferenceTrajectory& out) {
  const Node adamw = run["adamw"];
  check_prose(adamw["decay_on"], "parameters with 2 or more dimensions; 0 on the others");
  const std::vector<Node> betas = adamw["betas"].elements();
  FSDP_CHECK(betas.size() == 2, "{}: adamw.betas: expected 2 numbers, got {}", run.where(),
             betas.size());
  out.adamw = {.beta1 = betas[0].number(),
               .beta2 = betas[1].number(),
               .epsilon = adamw["eps"].number(),
               .weight_decay = adamw["weight_decay"].number()};
  out.clip_norm = run["clip"]["max_norm"].number();
  out.clip_power = run["clip"]["norm_type"].number();
}

void set_run_limits(const Node& tolerance, DType dtype, ReferenceTrajectory& out) {
  const bool f64 = dtype == DType::kF64;
  out.loss_limit = f64 ? 1e-12 : tolerance["loss_relative"].number();
  out.grad_norm_limit = f64 ? 1e-12 : tolerance["grad_norm_relative"].number();
  // The infinity norm is one element, not a sum in which rounding averages out. The tolerances come
  // from runs that round that element alike.
  if (!f64 && std::isinf(out.clip_power)) out.grad_norm_limit = kSingleGradientLimit;
  out.parameter_limit = f64 ? 1e-12 : tolerance["parameter_absolute"].number();
  if (!f64) out.parameter_rms_limit = tolerance["parameter_rms"].number();
  out.key_bias_limit = f64 ? 1e-9 : tolerance["key_bias_absolute"].number();
}

struct RunFolder {
  fs::path folder;
  Node json;
  std::vector<GlobalBatch> batches;
  DType dtype;
};

ReferenceTrajectory read_run_trajectory(const RunFolder& in, const std::string& variant,
                                        const Node& run) {
  ReferenceTrajectory out;
  out.variant = variant;
  read_run_options(run, out);
  set_run_limits(in.json["tolerance"], in.dtype, out);
  const Node root = variant.empty() ? in.json : in.json["variants"][variant];
  const std::vector<Node> losses = root["trajectory"]["loss"].elements();
  const std::vector<Node> norms = root["trajectory"]["grad_norm"].elements();
  FSDP_CHECK(losses.size() == in.batches.size() && norms.size() == losses.size(),
             "{}: expected {} losses and gradient norms as in batches.safetensors, got {} and {}",
             root["trajectory"].where(), in.batches.size(), losses.size(), norms.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    out.steps.push_back({.batch = in.batches[i],
                         .learning_rate = run["adamw"]["lr"].number(),
                         .loss = losses[i].number(),
                         .grad_norm = norms[i].number()});
  }
  const fs::path path =
      in.folder / (variant.empty() ? "final.safetensors" : "final_" + variant + ".safetensors");
  // The float64 run of a second world size lies with the first.
  if (in.dtype != DType::kF64 || fs::exists(path)) out.final_parameters.emplace(path, "");
  return out;
}

ReferencePass read_first_step(const RunFolder& in) {
  ReferencePass pass;
  pass.batch = in.batches.front();
  pass.loss = in.json["trajectory"]["loss"].elements().front().number();
  pass.loss_limit = in.json["tolerance"]["step0_loss_relative"].number();
  const Node norms = in.json["step0_norms"]["per_parameter_l2"];
  for (const auto& item : norms.json().items()) {
    pass.gradient_norms[item.key()] = norms[item.key()].number();
  }
  pass.gradients_limit = in.json["tolerance"]["step0_gradients_l2_relative"].number();
  return pass;
}

// The main run and the variants that have final parameters of their own: those mean something else,
// the others repeat a run by other means.
std::vector<std::string> candidates(const RunFolder& in) {
  if (in.dtype == DType::kF64)
    return in.json["variants"].has("f64") ? std::vector<std::string>{"f64"}
                                          : std::vector<std::string>{};
  std::vector<std::string> out = {""};
  for (const auto& item : in.json["variants"].json().items()) {
    const bool has_final = fs::exists(in.folder / ("final_" + item.key() + ".safetensors"));
    if (has_final && item.key() != "f64") out.push_back(item.key());
  }
  return out;
}

void read_run_layout(const Node& json, DType dtype, Reference& out) {
  const RunFolder in = {
      out.folder, json,
      read_batches(ReferenceTensors(out.folder / "batches.safetensors", ""), true), dtype};
  std::string refusal = fmt::format("no run in {}", name_of(dtype));
  for (const std::string& variant : candidates(in)) {
    Json run = json["run"].json();
    if (!variant.empty()) run.update(json["variants"][variant]["options"].json());
    const std::string name = variant.empty() ? "main run" : "variant " + variant;
    const std::string option = unsupported_option(run, dtype);
    if (!option.empty()) {
      if (out.notes.empty()) refusal = option;
      out.notes.push_back(
          fmt::format("{}: not compared: {} is not supported by this build", name, option));
      continue;
    }
    const Node node(run, json.where(), variant.empty() ? "run" : "variants." + variant);
    out.trajectories.push_back(read_run_trajectory(in, variant, node));
    if (variant.empty()) out.pass = read_first_step(in);
    if (std::isinf(out.trajectories.back().clip_power) && dtype == DType::kF32) {
      out.notes.push_back(
          fmt::format("{}: the infinity norm is one gradient element: it has the "
                      "limit of gradients",
                      name));
    }
    if (!out.trajectories.back().final_parameters) {
      out.notes.push_back(
          fmt::format("{}: final parameters: not compared: final_{}.safetensors is "
                      "not there",
                      name, variant));
    }
  }
  if (out.trajectories.empty()) {
    throw Unsupported(fmt::format("{}: {}: not supported by this build", json.where(), refusal));
  }
}

}  // namespace

// ---------------------------------------------------------------------------- Both

int64_t Reference::longest_sequence() const {
  int64_t longest = pass ? pass->batch.length : 0;
  for (const ReferenceTrajectory& trajectory : trajectories) {
    for (const ReferenceStep& step : trajectory.steps) {
      longest = std::max(longest, step.batch.length);
    }
  }
  return longest;
}

void Reference::set_all_limits(double limit) {
  if (pass) pass->loss_limit = pass->logits_limit = pass->gradients_limit = limit;
  for (ReferenceTrajectory& trajectory : trajectories) {
    trajectory.loss_limit = trajectory.grad_norm_limit = trajectory.parameter_limit = limit;
    trajectory.parameter_rms_limit = limit;
  }
}

Reference read_reference(const fs::path& folder, DType dtype, bool trajectory) {
  FSDP_CHECK(fs::is_directory(folder), "{}: no such folder", folder.string());
  Reference out;
  out.folder = folder;
  out.config = read_known_config(folder);
  const fs::path path = folder / "reference.json";
  const Json json = read_json_file(path);
  const Node root(json, path.string());
  const bool run = fs::exists(folder / "batches.safetensors");
  out.layout = run ? "run" : "model";
  if (run) {
    read_run_layout(root, dtype, out);
    return out;
  }
  out.pass = read_pass(folder, root, dtype);
  if (trajectory) {
    out.trajectories.push_back(read_model_trajectory(folder, root["trajectory"], dtype));
  }
  return out;
}

ElementRange key_bias(const models::ModelConfig& config, const std::string& parameter) {
  const bool depends_on_key_position = config.positions != models::PositionKind::kLearned;
  if (depends_on_key_position || !config.packed_qkv || !parameter.ends_with("attention.qkv.bias")) {
    return {};
  }
  const int64_t first = config.heads * config.head_dim;
  return {first, first + config.kv_heads * config.head_dim};
}

}  // namespace fsdp::tools
