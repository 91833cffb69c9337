// The layout "run": training runs described by their options. Unknown options are refused, never
// ignored: a comparison that passed must have compared the run that was described.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "tools/verify/expected_results_json.h"

namespace fsdp::tools {

namespace fs = std::filesystem;

namespace {

// One run of the file: the main one, or a variant's options over it.
struct DescribedRun {
  std::string variant;  // "" for the main run
  Json options;
  std::string file;
  int ranks = 1;

  JsonPlace place() const {
    return {options, file, variant.empty() ? "run" : "variants." + variant};
  }
  bool is(const char* key, const char* value) const { return options.value(key, "") == value; }
  bool has(const char* key) const { return options.contains(key) && !options[key].is_null(); }
};

struct RunFolder {
  fs::path folder;
  JsonPlace json;
  std::vector<Batch> batches;
};

// ---------------------------------------------------------------------------- What is supported

// What the PyTorch strategies are called here. "single": one process; any strategy gives its
// result.
const std::map<std::string, comm::Strategy>& strategies() {
  using enum comm::Strategy;
  static const std::map<std::string, comm::Strategy> kStrategies = {
      {"fsdp2_full", kFullShard},     {"fsdp2_no_reshard", kShardGradOp},
      {"fsdp2_hybrid", kHybridShard}, {"fsdp2_alone", kFullShard},
      {"fsdp1_full", kFullShard},     {"fsdp1_grad_op", kShardGradOp},
      {"fsdp1_hybrid", kHybridShard}, {"fsdp1_hybrid_zero2", kHybridShardZero2},
      {"fsdp1_no_shard", kNoShard},   {"ddp", kNoShard},
      {"single", kFullShard}};
  return kStrategies;
}

bool is_hybrid(const std::string& strategy) {
  const auto ours = strategies().find(strategy);
  return ours != strategies().end() && comm::is_hybrid(ours->second);
}

// FSDP1 divides in part before the sum, whatever the dtype.
bool splits_division(const std::string& strategy) { return strategy.starts_with("fsdp1_"); }

const std::map<std::string, comm::Accumulation>& accumulations() {
  using enum comm::Accumulation;
  static const std::map<std::string, comm::Accumulation> kAccumulations = {
      {"each", kReduceEach}, {"last", kReduceLast}, {"all_reduce_last", kReduceScatterEach}};
  return kAccumulations;
}

// The same inside the options that have parts of their own.
std::string unsupported_part(const Json& run) {
  const std::map<std::string, std::set<std::string>> parts = {
      {"adamw", {"lr", "betas", "eps", "weight_decay", "decay_on"}},
      {"clip", {"max_norm", "norm_type"}},
      {"scaler", {"init_scale", "growth_interval", "growth_factor", "backoff_factor"}},
      {"skip", {"block", "steps"}},
      {"inject", {"step", "rank"}}};
  for (const auto& [option, known] : parts) {
    if (!run.contains(option) || !run.at(option).is_object()) continue;
    for (const auto& [key, value] : run.at(option).items()) {
      if (!known.contains(key)) return fmt::format("run.{}.{}", option, key);
    }
  }
  return {};
}

// What in these options keeps the run from being repeated here; "" when nothing does.
std::string unsupported_option(const Json& run, int ranks) {
  const Json none;
  std::map<std::string, std::vector<Json>> known = {
      {"param_dtype", {none, "f32", "bf16", "f16"}},
      {"reduce_dtype", {none, "f32", "bf16", "f16"}},
      {"compute", {"f32", "f64"}},
      {"normalise", {"token", "rank_mean"}},
      {"unused", {"none", "zero"}},
      {"labels", {none, "full", "ragged"}},
      {"lr_schedule", {"constant"}},
  };
  for (const auto& [name, strategy] : strategies()) known["strategy"].emplace_back(name);
  for (const auto& [name, accumulation] : accumulations()) known["sync"].emplace_back(name);
  // Read elsewhere, or without influence on the result (up to rounding).
  constexpr std::array<std::string_view, 14> kOther = {
      "steps", "rows",   "T",    "empty",  "attn",   "clip",    "adamw",
      "accum", "freeze", "skip", "scaler", "inject", "threads", "mesh"};
  for (const auto& [key, value] : run.items()) {
    if (const auto found = known.find(key); found != known.end()) {
      const std::vector<Json>& values = found->second;
      if (std::find(values.begin(), values.end(), value) == values.end()) {
        return fmt::format("run.{} = {}", key, value.dump());
      }
    } else if (std::find(kOther.begin(), kOther.end(), key) == kOther.end()) {
      return fmt::format("run.{}", key);
    }
  }
  // Without a mesh: two replicas, where that is the only way to have both kinds of group.
  if (run.value("mesh", Json()).is_null() && is_hybrid(run.value("strategy", "")) && ranks != 2 &&
      ranks != 4) {
    return fmt::format("run.strategy = {} on {} ranks without run.mesh", run.at("strategy").dump(),
                       ranks);
  }
  return unsupported_part(run);
}

// What this program computes in to repeat the run.
DType compute_dtype(const Json& run) {
  const Json& param = run.at("param_dtype");
  return parse_dtype((param.is_null() ? run.at("compute") : param).get<std::string>());
}

// Whether the variant differs from the main run in something that this program does differently
// too, and not only in who computed it.
bool is_other_run(const Json& main, const Json& variant) {
  constexpr std::array<std::string_view, 2> kSame = {"attn", "threads"};
  for (const auto& [key, value] : variant.items()) {
    if (std::find(kSame.begin(), kSame.end(), key) != kSame.end()) continue;
    if (key == "strategy") {
      const std::string other = main.value(key, "");
      const auto ours = strategies().find(other);
      if (ours == strategies().end() || ours->second != strategies().at(value.text())) return true;
      if (splits_division(other) != splits_division(value.text())) return true;
    } else if (!main.contains(key) || main.at(key) != value) {
      return true;
    }
  }
  return false;
}

// ---------------------------------------------------------------------------- Options of a run

double at_least(const JsonPlace& place, double least) {
  const double value = place.number();
  FSDP_CHECK(value >= least, "{}: expected at least {}, got {}", place.where(), least, value);
  return value;
}

int whole(const JsonPlace& place, int least, int most) {
  const double value = place.number();
  FSDP_CHECK(value >= least && value <= most && value == std::floor(value),
             "{}: expected a whole number from {} to {}, got {}", place.where(), least, most,
             value);
  return static_cast<int>(value);
}

constexpr int kMostRanks = 1 << 20;
int ranks_of(const JsonPlace& json) { return whole(json["world_size"], 1, kMostRanks); }

// Ranks of a shard group of a hybrid run: the second extent of its mesh (replicas, shards).
int mesh_shards(const DescribedRun& run) {
  if (!run.has("mesh")) return run.ranks / 2;
  const JsonPlace mesh = run.place()["mesh"];
  const std::vector<JsonPlace> extents = mesh.elements();
  const int shards = extents.size() == 2 ? static_cast<int>(extents[1].number()) : 0;
  FSDP_CHECK(shards > 0 && run.ranks % shards == 0 &&
                 mesh.json() == Json::array({run.ranks / shards, shards}),
             "{}: expected [replicas, shards] of {} ranks, got {}", mesh.where(), run.ranks,
             mesh.json().dump());
  return shards;
}

RunSettings read_run(const DescribedRun& run) {
  RunSettings out;
  comm::FsdpOptions& fsdp = out.fsdp;
  fsdp.param_dtype = compute_dtype(run.options);
  const Json& reduce = run.options.at("reduce_dtype");
  fsdp.reduce_dtype = reduce.is_null() ? accumulation_dtype(fsdp.param_dtype)
                                       : parse_dtype(reduce.get<std::string>());
  const std::string strategy = run.place()["strategy"].text();
  fsdp.strategy = strategies().at(strategy);
  fsdp.split_division = splits_division(strategy);
  if (is_hybrid(strategy)) fsdp.shard_size = mesh_shards(run);
  fsdp.micro_steps = whole(run.place()["accum"], 1, kMostRanks);
  fsdp.accumulation = accumulations().at(run.place()["sync"].text());
  fsdp.absent_is_zero = run.is("unused", "zero");
  const bool rank_mean = run.is("normalise", "rank_mean");
  if (rank_mean) out.loss_mean = LossMean::kRanks;
  if (run.has("scaler")) {
    const JsonPlace scaler = run.place()["scaler"];
    out.loss_scale = optim::LossScalerOptions::torch();
    out.loss_scale.initial = scaler["init_scale"].number();
    out.loss_scale.rule.interval = static_cast<int64_t>(scaler["growth_interval"].number());
    if (scaler.has("growth_factor")) out.loss_scale.rule.growth = scaler["growth_factor"].number();
    if (scaler.has("backoff_factor")) {
      out.loss_scale.rule.backoff = scaler["backoff_factor"].number();
    }
  }
  for (const JsonPlace& name : run.place()["freeze"].elements()) out.frozen.push_back(name.text());
  const bool equal_means = !rank_mean || run.is("labels", "full");
  if (is_hybrid(strategy) || !equal_means || run.has("scaler") || fsdp.micro_steps > 1)
    out.ranks = run.ranks;
  // Any number of ranks then has the same mean, also one that does not divide the rows.
  if (!out.ranks) out.loss_mean = LossMean::kTokens;
  return out;
}

void read_optimizer(const JsonPlace& run, ExpectedTraining& out) {
  const JsonPlace adamw = run["adamw"];
  check_prose(adamw["decay_on"], "parameters with 2 or more dimensions; 0 on the others");
  const std::vector<JsonPlace> betas = adamw["betas"].elements();
  FSDP_CHECK(betas.size() == 2, "{}: adamw.betas: expected 2 numbers, got {}", run.where(),
             betas.size());
  out.optimizer = {.weight_decay = adamw["weight_decay"].number(),
                   .beta1 = betas[0].number(),
                   .beta2 = betas[1].number(),
                   .epsilon = adamw["eps"].number()};
  out.clip_norm = at_least(run["clip"]["max_norm"], 0);
  out.clip_power = at_least(run["clip"]["norm_type"], 1);
}

// ---------------------------------------------------------------------------- Limits and numbers

void set_run_limits(const JsonPlace& tolerance, DType dtype, ExpectedTraining& out) {
  const bool f64 = dtype == DType::kF64;
  out.loss_limit = f64 ? 1e-12 : tolerance["loss_relative"].number();
  out.grad_norm_limit = f64 ? 1e-12 : tolerance["grad_norm_relative"].number();
  out.parameter_limit = f64 ? 1e-12 : tolerance["parameter_absolute"].number();
  if (!f64) out.parameter_rms_limit = tolerance["parameter_rms"].number();
  out.key_bias_limit = f64 ? 1e-9 : tolerance["key_bias_absolute"].number();
}

void read_steps(const RunFolder& in, const DescribedRun& run, ExpectedTraining& out) {
  const JsonPlace root = run.variant.empty() ? in.json : in.json["variants"][run.variant];
  const JsonPlace trajectory = root["trajectory"];
  const auto list = [&](const char* key) {
    const std::vector<JsonPlace> values = trajectory[key].elements();
    FSDP_CHECK(values.size() == in.batches.size(),
               "{}: expected {} values as in batches.safetensors, got {}", trajectory[key].where(),
               in.batches.size(), values.size());
    return values;
  };
  const std::vector<JsonPlace> losses = list("loss"), norms = list("grad_norm");
  std::vector<JsonPlace> scales, skipped;
  if (run.has("scaler")) {
    scales = list("scale");
    skipped = list("found_inf");
  }
  for (size_t i = 0; i < losses.size(); ++i) {
    out.steps.push_back({.batch = in.batches[i],
                         .learning_rate = at_least(run.place()["adamw"]["lr"], 0),
                         .loss = losses[i].number(),
                         .grad_norm = norms[i].number()});
    if (scales.empty()) continue;
    out.steps.back().loss_scale = scales[i].number();
    out.steps.back().skipped = skipped[i].number() != 0;
  }
}

void read_events(const DescribedRun& run, ExpectedTraining& out) {
  const auto step = [&](const JsonPlace& place) -> ExpectedStep& {
    const int last = static_cast<int>(out.steps.size()) - 1;
    return out.steps[static_cast<size_t>(whole(place, 0, last))];
  };
  if (run.has("skip")) {
    const auto block = static_cast<int64_t>(run.place()["skip"]["block"].number());
    for (const JsonPlace& place : run.place()["skip"]["steps"].elements()) {
      step(place).events.left_out = {block};
    }
  }
  if (run.has("inject")) {
    const JsonPlace inject = run.place()["inject"];
    step(inject["step"]).events.infinite_rank = whole(inject["rank"], 0, run.ranks - 1);
  }
}

ExpectedTraining read_run_trajectory(const RunFolder& in, const DescribedRun& run) {
  ExpectedTraining out;
  out.variant = run.variant;
  out.run = read_run(run);
  read_optimizer(run.place(), out);
  const DType dtype = out.run.fsdp.param_dtype;
  set_run_limits(in.json["tolerance"], dtype, out);
  read_steps(in, run, out);
  read_events(run, out);
  const fs::path path = in.folder / (run.variant.empty() ? "final.safetensors"
                                                         : "final_" + run.variant + ".safetensors");
  if (fs::exists(path) || run.variant.empty()) out.final_parameters.emplace(path, "");
  return out;
}

ExpectedPass read_first_step(const RunFolder& in, const ExpectedTraining& trajectory) {
  const JsonPlace tolerance = in.json["tolerance"];
  ExpectedPass pass;
  pass.batch = in.batches.front();
  pass.events = trajectory.steps.front().events;
  pass.loss = in.json["trajectory"]["loss"].elements().front().number();
  pass.loss_limit = tolerance["step0_loss_relative"].number();
  const double loss_scale = trajectory.run.loss_scale.initial;
  if (loss_scale > 0) pass.gradient_divisor = loss_scale;
  if (tolerance["step0_gradients_l2_relative"].json().is_null()) return pass;
  const double limit = tolerance["step0_gradients_l2_relative"].number();
  if (const fs::path path = in.folder / "grads_step0.safetensors"; fs::exists(path)) {
    pass.all_gradients.emplace(path, "");
    pass.all_gradients_limit = limit;
    return pass;
  }
  const JsonPlace norms = in.json["step0_norms"]["per_parameter_l2"];
  for (const auto& item : norms.json().items()) {
    pass.gradient_norms[item.name] = norms[item.name].number();
  }
  pass.gradients_limit = limit;
  return pass;
}

// ---------------------------------------------------------------------------- The folder

// The main run and the variants that this program can tell apart from it, of one dtype. A variant
// with final parameters of its own means something else in any case.
std::vector<DescribedRun> candidates(const RunFolder& in, const ExpectedChoice& choice,
                                     DType dtype) {
  const int ranks = ranks_of(in.json);
  const Json main = in.json["run"].json();
  const auto described = [&](const std::string& variant, const Json& options) {
    return DescribedRun{variant, options, in.json.where(), ranks};
  };
  std::vector<DescribedRun> out;
  if (!unsupported_option(main, ranks).empty() || compute_dtype(main) == dtype) {
    out.push_back(described("", main));
  }
  for (const auto& item : in.json["variants"].json().items()) {
    const std::string& variant = item.name;
    Json run = main;
    run.update(in.json["variants"][variant]["options"].json());
    if (unsupported_option(run, ranks).empty() && compute_dtype(run) != dtype) continue;
    const bool has_final = fs::exists(in.folder / ("final_" + variant + ".safetensors"));
    const bool wanted = choice.all_variants || out.empty();
    if (has_final ||
        (wanted && (!unsupported_option(run, ranks).empty() || is_other_run(main, run)))) {
      out.push_back(described(variant, run));
    }
  }
  return out;
}

void add_notes(const ExpectedTraining& trajectory, const std::string& name, ExpectedResults& out) {
  if (!trajectory.final_parameters) {
    out.notes.push_back(fmt::format("{}: no final parameters: final_{}.safetensors does not exist",
                                    name, trajectory.variant));
  }
}

// input_ids: (steps, ranks, rows, T), or (steps, ranks, micro-steps, rows, T).
void check_batches(const RunFolder& in, const DescribedRun& run, int micro_steps) {
  const fs::path path = in.folder / "batches.safetensors";
  const std::vector<int64_t> shape = ExpectedTensors(path, "").shape("input_ids");
  const bool dealt = shape.size() == 5 ? shape[2] == micro_steps
                                       : shape.size() == 4 && shape[2] % micro_steps == 0;
  FSDP_CHECK(dealt && shape[1] == run.ranks,
             "{}: tensor \"input_ids\": expected (steps, ranks, rows, T) or (steps, ranks, "
             "micro-steps, rows, T) with world_size {} and run.accum {}, got {}",
             path.string(), run.ranks, micro_steps, Shape(shape).str());
}

}  // namespace

void read_run_layout(const JsonPlace& json, const ExpectedChoice& choice, ExpectedResults& out) {
  const RunFolder in = {out.folder, json,
                        read_batches(ExpectedTensors(out.folder / "batches.safetensors", ""), true,
                                     models::input_rules(out.config))};
  const Json& main = json["run"].json();
  const int ranks = ranks_of(json);
  out.dtype = choice.dtype.value_or(unsupported_option(main, ranks).empty() ? compute_dtype(main)
                                                                            : DType::kF32);
  std::string refusal = fmt::format("no run in {}", name_of(out.dtype));
  for (const DescribedRun& run : candidates(in, choice, out.dtype)) {
    const std::string name = run.variant.empty() ? "main run" : "variant " + run.variant;
    const std::string option = unsupported_option(run.options, run.ranks);
    if (!option.empty()) {
      if (out.left_out.empty()) refusal = option;
      out.left_out.push_back(
          fmt::format("{}: not compared: {} is not supported by this build", name, option));
      continue;
    }
    const ExpectedTraining trajectory = read_run_trajectory(in, run);
    check_batches(in, run, trajectory.run.fsdp.micro_steps);
    add_notes(trajectory, name, out);
    if (run.variant.empty()) {
      out.run = trajectory.run;
      out.pass = read_first_step(in, trajectory);
    }
    out.trajectories.push_back(trajectory);
  }
  if (out.trajectories.empty()) {
    throw Unsupported(fmt::format("{}: {}: not supported by this build", json.where(), refusal));
  }
}

}  // namespace fsdp::tools
