// Batches, tensors, and the layout "model", with errors that name file, tensor or key.
// Read next: tools/verify/expected_run.cpp.
#include "tools/verify/expected_results.h"

#include <algorithm>
#include <cmath>

#include "core/io/hub_files.h"
#include "core/text/counted.h"
#include "models/adapter_folder.h"
#include "models/ignored_keys.h"
#include "tools/verify/expected_results_json.h"

namespace fsdp::tools {

namespace fs = std::filesystem;

// ---------------------------------------------------------------------------- Tensors

ExpectedTensors::ExpectedTensors(const fs::path& path, std::string prefix)
    : file_(SafetensorsFile::open(path)), prefix_(std::move(prefix)) {}

std::vector<std::string> ExpectedTensors::names() const {
  std::vector<std::string> out;
  for (const auto& [name, entry] : file_.entries()) {
    if (name.starts_with(prefix_)) out.push_back(name.substr(prefix_.size()));
  }
  return out;
}

std::string ExpectedTensors::where(const std::string& name) const {
  return fmt::format("{}: tensor \"{}\"", path().string(), prefix_ + name);
}

std::vector<int64_t> ExpectedTensors::shape(const std::string& name) const {
  return file_.entry(prefix_ + name).shape;
}

void ExpectedTensors::check_shape(const std::string& name,
                                  const std::vector<int64_t>& expected) const {
  const std::vector<int64_t> got = shape(name);
  FSDP_CHECK(got == expected, "{}: expected {}, got {}", where(name), Shape(expected).str(),
             Shape(got).str());
}

std::vector<double> ExpectedTensors::read(const std::string& name,
                                          const std::vector<int64_t>& shape) const {
  check_shape(name, shape);
  return read(name);
}

std::vector<double> ExpectedTensors::read(const std::string& name) const {
  const int64_t count = file_.entry(prefix_ + name).numel;
  std::vector<double> out(static_cast<size_t>(count));
  file_.read_elements(prefix_ + name, 0, count, DType::kF64, out.data());
  return out;
}

std::vector<int32_t> ExpectedTensors::read_integers(const std::string& name) const {
  const SafetensorsEntry& entry = file_.entry(prefix_ + name);
  std::vector<int32_t> out(static_cast<size_t>(entry.numel));
  file_.read_elements(prefix_ + name, 0, entry.numel, DType::kI32, out.data());
  return out;
}

double ExpectedTensors::largest() const {
  double largest = 0;
  for (const std::string& name : names()) {
    for (const double value : read(name)) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

// ---------------------------------------------------------------------------- Batches

namespace {

// Labels that count of some rows: not ignored, not at position 0, which nothing predicts.
int64_t label_tokens(const LabelledRows& rows, const RowRange& range) {
  int64_t count = 0;
  for (int64_t i = range.first * rows.length; i < (range.first + range.count) * rows.length; ++i) {
    count += i % rows.length != 0 && rows.labels[static_cast<size_t>(i)] != kIgnoreIndex;
  }
  return count;
}

// Positions, which begin again with each document of a row -> where each token's document begins.
std::vector<int32_t> first_keys(const std::vector<int32_t>& positions, int64_t length,
                                const std::string& where) {
  std::vector<int32_t> out;
  for (size_t i = 0; i < positions.size(); ++i) {
    const auto t = static_cast<int32_t>(static_cast<int64_t>(i) % length);
    const int64_t next = t == 0 ? 0 : int64_t{positions[i - 1]} + 1;
    FSDP_CHECK(positions[i] == 0 || positions[i] == next,
               "{}: row {}, column {}: expected 0, where a document begins{}, got {}", where,
               static_cast<int64_t>(i) / length, t,
               t == 0 ? "" : fmt::format(", or {}, where it continues", next), positions[i]);
    out.push_back(t - positions[i]);
  }
  return out;
}

// LabelledRows::first_key of a file that has it, or the positions it follows from. Empty, as where
// the file has neither, if every row is one document.
std::vector<int32_t> read_first_keys(const ExpectedTensors& tensors,
                                     const std::vector<int64_t>& shape) {
  const bool given = tensors.contains("first_key");
  if (!given && !tensors.contains("position_ids")) return {};
  const char* const name = given ? "first_key" : "position_ids";
  FSDP_CHECK(!given || !tensors.contains("position_ids"),
             "{}: expected first_key or position_ids, which says the same, got both",
             tensors.path().string());
  tensors.check_shape(name, shape);
  std::vector<int32_t> out = tensors.read_integers(name);
  if (!given) out = first_keys(out, shape.back(), tensors.where(name));
  if (std::all_of(out.begin(), out.end(), [](int32_t first) { return first == 0; })) return {};
  return out;
}

LabelledRows read_rows(const ExpectedTensors& tensors, const std::vector<int64_t>& shape) {
  tensors.check_shape("labels", shape);
  LabelledRows all = {.length = shape.back(),
                      .tokens = tensors.read_integers("input_ids"),
                      .labels = tensors.read_integers("labels")};
  FSDP_CHECK(!all.tokens.empty(), "{}: empty", tensors.where("input_ids"));
  all.first_key = read_first_keys(tensors, shape);
  const bool documents = !all.first_key.empty();
  if (documents) models::ignore_first_labels(all.labels, all.first_key, all.length);
  if (!tensors.contains("attention_mask")) return all;
  tensors.check_shape("attention_mask", shape);
  std::vector<int32_t> mask = tensors.read_integers("attention_mask");
  const auto hidden = std::find(mask.begin(), mask.end(), 0);
  FSDP_CHECK(!documents || hidden == mask.end(),
             "{}: row {}: expected no 0 with documents: padding is a document of its own",
             tensors.where("attention_mask"), (hidden - mask.begin()) / all.length);
  if (!documents) all.mask = std::move(mask);
  return all;
}

}  // namespace

std::vector<Batch> read_batches(const ExpectedTensors& tensors, bool stacked,
                                const models::InputRules& rules) {
  const std::vector<int64_t> shape = tensors.shape("input_ids");
  FSDP_CHECK(shape.size() >= (stacked ? 3 : 2), "{}: too few dimensions: {}",
             tensors.where("input_ids"), Shape(shape).str());
  LabelledRows all = read_rows(tensors, shape);
  for (int64_t row = 0; row < all.rows(); ++row) all.samples.push_back(row);
  const int64_t steps = stacked ? shape.front() : 1, rows = all.rows() / steps;
  Batch of_all_steps;
  try {
    of_all_steps = make_batch(all, rules, 0);
  } catch (const Error& error) {
    fail("{}: {}", tensors.path().string(), error.what());
  }
  std::vector<Batch> out;
  for (int64_t step = 0; step < steps; ++step) {
    const RowRange range = {.first = step * rows, .count = rows};
    out.push_back(rows_of(of_all_steps, range));
    out.back().global_label_tokens = label_tokens(all, range);
  }
  return out;
}

void check_prose(const JsonPlace& place, const std::string& expected) {
  if (place.text() == expected) return;
  throw Unsupported(
      fmt::format("{}: expected \"{}\", got \"{}\"", place.where(), expected, place.text()));
}

namespace {

models::ModelConfig read_known_config(const fs::path& model_folder) {
  const fs::path path = model_folder / "config.json";
  const Json json = read_json_file(path);
  const std::string family = JsonPlace(json, path.string())["model_type"].text();
  try {
    models::family_defaults(family);
  } catch (const Error& error) {
    throw Unsupported(path.string() + ": " + error.what());
  }
  models::ModelConfig config = models::read_config(path.string());
  if (!config.shifted_labels) {
    throw Unsupported(path.string() + ": shift_labels: references are of losses of next tokens");
  }
  // References are computed without dropout.
  config.embedding_dropout = config.attention_dropout = config.residual_dropout = 0;
  config.mlp_dropout = 0;
  return config;
}

// ---------------------------------------------------------------------------- Layout "model"

ExpectedPass read_pass(const fs::path& folder, const JsonPlace& json,
                       const models::ModelConfig& config, DType dtype) {
  const fs::path path = folder / "reference.safetensors";
  const ExpectedTensors tensors(path, "");
  ExpectedPass pass;
  pass.batch = read_batches(tensors, false, models::input_rules(config)).front();
  pass.loss = json["loss_f64"].number();
  pass.logits = tensors;
  pass.gradients.emplace(path, "grad.");
  if (models::is_adapter_folder(folder)) pass.merged.emplace(path, "merged.");
  if (dtype == DType::kBF16) {
    pass.loss_limit = 0.03;
    pass.loss_limit_is_absolute = true;
    const char* const known = "max_relative_difference_bf16_f64";  // not of adapters
    if (json.has(known)) pass.logits_limit = 2 * json[known]["logits"].number();
  } else if (dtype != DType::kF16) {
    const bool f64 = dtype == DType::kF64;
    pass.loss_limit = f64 ? 1e-13 : 1e-6;
    pass.logits_limit = f64 ? 1e-12 : 1e-5;
    pass.gradients_limit = f64 ? 1e-11 : kSingleGradientLimit;
    pass.merged_limit = f64 ? 1e-12 : 1e-6;
  }
  return pass;
}

ExpectedTraining read_model_trajectory(const fs::path& folder, const JsonPlace& json,
                                       const models::ModelConfig& config, DType dtype) {
  check_prose(json["optimizer"],
              "torch.optim.AdamW, betas (0.9, 0.95), eps 1e-08, weight_decay 0.1 if ndim >= 2 "
              "else 0");
  check_prose(json["clip"],
              "gradients *= min(1, 1.0 / (norm + 1e-6)), norm = l2 norm of all gradients together");
  const fs::path path = folder / "trajectory.safetensors";
  FSDP_CHECK(fs::exists(path),
             "{}: no such file: the folder has no training run; without --trajectory the rest is "
             "verified",
             path.string());
  const std::vector<Batch> batches =
      read_batches(ExpectedTensors(path, "batch."), true, models::input_rules(config));
  const std::vector<JsonPlace> steps = json["steps"].elements();
  FSDP_CHECK(steps.size() == batches.size(),
             "{}: tensor \"batch.input_ids\": expected {} steps, "
             "got {}",
             path.string(), steps.size(), batches.size());
  ExpectedTraining out;
  out.optimizer = {.weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};
  for (size_t i = 0; i < steps.size(); ++i) {
    out.steps.push_back({.batch = batches[i],
                         .learning_rate = steps[i]["lr"].number(),
                         .loss = steps[i]["loss_f64"].number(),
                         .grad_norm = steps[i]["grad_norm_f64"].number()});
  }
  out.final_parameters.emplace(path, "final.");
  if (dtype == DType::kF32 || dtype == DType::kF64) {
    const bool f64 = dtype == DType::kF64;
    out.loss_limit = f64 ? 1e-12 : 5e-6;
    out.grad_norm_limit = f64 ? 1e-11 : 1e-4;
    out.parameter_limit = f64 ? 1e-10 : 1e-4;
    out.key_bias_limit = 0.05;
  }
  return out;
}

// ---------------------------------------------------------------------------- Generation

using Ids = std::vector<int32_t>;

Ids ids_of(const JsonPlace& place, int64_t vocabulary) {
  Ids ids;
  for (const JsonPlace& id : place.elements()) {
    const double number = id.number();
    FSDP_CHECK(
        number >= 0 && number < static_cast<double>(vocabulary) && number == std::floor(number),
        "{}: expected a token of the vocabulary of {}, got {}", id.where(), vocabulary,
        id.json().dump());
    ids.push_back(static_cast<int32_t>(number));
  }
  FSDP_CHECK(!ids.empty(), "{}: empty", place.where());
  return ids;
}

void check_count(const JsonPlace& place, const char* what, size_t got, size_t expected) {
  FSDP_CHECK(got == expected, "{}: expected {} {}, got {}", place.where(), expected, what, got);
}

// generation.json: what another program continued greedily.
ExpectedGeneration read_generation(const std::filesystem::path& path, int64_t vocabulary) {
  const Json json = read_json_file(path);
  const JsonPlace root(json, path.string());
  ExpectedGeneration out;
  for (const JsonPlace& prompt : root["prompts"].elements()) {
    out.prompts.push_back(ids_of(prompt, vocabulary));
  }
  FSDP_CHECK(!out.prompts.empty(), "{}: empty", root["prompts"].where());
  const auto add = [&](const JsonPlace& place, std::vector<Ids>& texts) {
    texts.push_back(ids_of(place, vocabulary));
    check_count(place, "tokens, as in the first text", texts.back().size(),
                out.batched.front().size());
  };
  const JsonPlace batched = root["batched"]["new_ids"], alone = root["alone"];
  for (const JsonPlace& ids : batched.elements()) add(ids, out.batched);
  check_count(batched, "texts, one for each prompt", out.batched.size(), out.prompts.size());
  for (const JsonPlace& text : alone.elements()) add(text["new_ids"], out.alone);
  check_count(alone, "texts, one for each prompt", out.alone.size(), out.prompts.size());
  return out;
}

}  // namespace

// ---------------------------------------------------------------------------- Both

int64_t ExpectedResults::longest_sequence() const {
  int64_t longest = pass ? pass->batch.length : 0;
  for (size_t i = 0; generation && i < generation->prompts.size(); ++i) {
    const size_t length = generation->prompts[i].size() + generation->batched[i].size();
    longest = std::max(longest, static_cast<int64_t>(length));
  }
  for (const ExpectedTraining& trajectory : trajectories) {
    for (const ExpectedStep& step : trajectory.steps) {
      longest = std::max(longest, step.batch.length);
    }
  }
  return longest;
}

void ExpectedResults::leave_out_runs_of_other_ranks(int ranks) {
  const auto other = [&](const RunSettings& r) { return r.ranks && *r.ranks != ranks; };
  std::string refusal;
  if (pass && other(run)) {
    refusal = fmt::format("first step: needs {}, these are {}", counted(*run.ranks, "rank"), ranks);
    pass.reset();
    left_out.push_back("not compared: " + refusal);
  }
  std::erase_if(trajectories, [&](const ExpectedTraining& t) {
    if (!other(t.run)) return false;
    refusal = fmt::format("{}: needs {}, these are {}",
                          t.variant.empty() ? "main run" : "variant " + t.variant,
                          counted(*t.run.ranks, "rank"), ranks);
    left_out.push_back("not compared: " + refusal);
    return true;
  });
  FSDP_CHECK(pass || !trajectories.empty(), "{}: {}", folder.string(), refusal);
}

void ExpectedResults::set_all_limits(double limit) {
  if (pass) {
    pass->loss_limit = pass->logits_limit = limit;
    pass->gradients_limit = pass->all_gradients_limit = pass->merged_limit = limit;
  }
  for (ExpectedTraining& trajectory : trajectories) {
    trajectory.loss_limit = trajectory.grad_norm_limit = trajectory.parameter_limit = limit;
    trajectory.parameter_rms_limit = limit;
  }
}

ExpectedResults read_expected_results(const fs::path& folder, const ExpectedChoice& choice) {
  FSDP_CHECK(fs::is_directory(folder), "{}: no such folder{}", folder.string(),
             how_to_fetch(folder));
  ExpectedResults out;
  out.folder = out.model_folder = folder;
  if (models::is_adapter_folder(folder)) {
    out.lora = models::read_adapter_config(folder);
    out.lora->dropout = 0;  // as below
    out.model_folder = models::adapter_base(folder);
  }
  out.config = read_known_config(out.model_folder);
  const std::string config_file = (out.model_folder / "config.json").string();
  for (const std::string& key : models::unknown_config_keys(config_file)) {
    out.notes.push_back(
        fmt::format("{}: {}: unknown key: nothing is computed from it", config_file, key));
  }
  const fs::path path = folder / "reference.json";
  const Json json = read_json_file(path);
  const JsonPlace root(json, path.string());
  const bool run = fs::exists(folder / "batches.safetensors");
  out.layout = run ? "run" : "model";
  if (run) {
    read_run_layout(root, choice, out);
    return out;
  }
  out.dtype = choice.dtype.value_or(DType::kF32);
  out.run.fsdp.param_dtype = out.dtype;
  out.run.fsdp.reduce_dtype = accumulation_dtype(out.dtype);
  out.pass = read_pass(folder, root, out.config, out.dtype);
  if (const fs::path texts = folder / "generation.json"; fs::exists(texts)) {
    out.generation = read_generation(texts, out.config.vocabulary);
    // In 16 bits the likeliest two may change places.
    if (out.dtype == DType::kF32 || out.dtype == DType::kF64) out.generation->limit = 0;
  }
  if (choice.trajectory) {
    out.trajectories.push_back(
        read_model_trajectory(folder, root["trajectory"], out.config, out.dtype));
    out.trajectories.back().run = out.run;
  }
  if (out.dtype == DType::kF16) {
    out.notes.push_back("f16: the folder has no limits for it; errors are printed, not judged");
  }
  return out;
}

std::vector<ElementRange> key_bias(const models::ModelConfig& config,
                                   const std::string& parameter) {
  const int64_t width = config.head_dim;
  const bool packed = parameter.ends_with("attention.qkv.bias");
  if (!packed && !parameter.ends_with("attention.k.bias")) return {};
  const int64_t rotated = config.positions == models::PositionKind::kRope ? config.rotary_dim() : 0;
  std::vector<ElementRange> ranges;
  for (int64_t h = 0; h < config.kv_heads && rotated < width; ++h) {
    const int64_t head = !packed ? h : config.packed_by_head ? 3 * h + 1 : config.heads + h;
    ranges.push_back({head * width + rotated, (head + 1) * width});
  }
  return ranges;
}

}  // namespace fsdp::tools
