// The layout "run": training runs described by their options. Unknown options are refused, never
// ignored: a comparison that passed must have compared the run that was described.
#include <algorithm>
#include <array>
#include <cmath>

#include "tools/runtime/reference_reading.h"

namespace fsdp::tools {

namespace fs = std::filesystem;

namespace {

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

void read_run_options(const JsonPlace& run, ReferenceTrajectory& out) {
  const JsonPlace adamw = run["adamw"];
  check_prose(adamw["decay_on"], "parameters with 2 or more dimensions; 0 on the others");
  const std::vector<JsonPlace> betas = adamw["betas"].elements();
  FSDP_CHECK(betas.size() == 2, "{}: adamw.betas: expected 2 numbers, got {}", run.where(),
             betas.size());
  out.adamw = {.beta1 = betas[0].number(),
               .beta2 = betas[1].number(),
               .epsilon = adamw["eps"].number(),
               .weight_decay = adamw["weight_decay"].number()};
  out.clip_norm = run["clip"]["max_norm"].number();
  out.clip_power = run["clip"]["norm_type"].number();
}

void set_run_limits(const JsonPlace& tolerance, DType dtype, ReferenceTrajectory& out) {
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
  JsonPlace json;
  std::vector<GlobalBatch> batches;
  DType dtype;
};

ReferenceTrajectory read_run_trajectory(const RunFolder& in, const std::string& variant,
                                        const JsonPlace& run) {
  ReferenceTrajectory out;
  out.variant = variant;
  read_run_options(run, out);
  set_run_limits(in.json["tolerance"], in.dtype, out);
  const JsonPlace root = variant.empty() ? in.json : in.json["variants"][variant];
  const std::vector<JsonPlace> losses = root["trajectory"]["loss"].elements();
  const std::vector<JsonPlace> norms = root["trajectory"]["grad_norm"].elements();
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
  const JsonPlace norms = in.json["step0_norms"]["per_parameter_l2"];
  for (const auto& item : norms.json().items()) {
    pass.gradient_norms[item.key()] = norms[item.key()].number();
  }
  pass.gradients_limit = in.json["tolerance"]["step0_gradients_l2_relative"].number();
  return pass;
}

// The main run and the variants that have final parameters of their own: those mean something else,
// the others repeat a run by other means.
std::vector<std::string> candidates(const RunFolder& in) {
  std::vector<std::string> out;
  if (in.dtype == DType::kF64) {
    if (in.json["variants"].has("f64")) out = {"f64"};
    return out;
  }
  out = {""};
  for (const auto& item : in.json["variants"].json().items()) {
    const bool has_final = fs::exists(in.folder / ("final_" + item.key() + ".safetensors"));
    if (has_final && item.key() != "f64") out.push_back(item.key());
  }
  return out;
}

}  // namespace

void read_run_layout(const JsonPlace& json, DType dtype, Reference& out) {
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
    const JsonPlace place(run, json.where(), variant.empty() ? "run" : "variants." + variant);
    const ReferenceTrajectory trajectory = read_run_trajectory(in, variant, place);
    if (std::isinf(trajectory.clip_power) && dtype == DType::kF32) {
      out.notes.push_back(
          name + ": the infinity norm is one gradient element: it has the limit of gradients");
    }
    if (!trajectory.final_parameters) {
      out.notes.push_back(fmt::format(
          "{}: final parameters not compared: final_{}.safetensors is not there", name, variant));
    }
    if (variant.empty()) out.pass = read_first_step(in);
    out.trajectories.push_back(trajectory);
  }
  if (out.trajectories.empty()) {
    throw Unsupported(fmt::format("{}: {}: not supported by this build", json.where(), refusal));
  }
}

}  // namespace fsdp::tools
