// fsdp verify: computes what a reference folder holds, on any number of ranks, and prints the
// largest error of each quantity beside its limit.
// Exit status: 0 within all limits, 1 above one or on an error, 2 when the folder needs something
// that this program, or this number of ranks, does not do: then not all of it was compared.
// Read next: tools/verify/reference_folder.h (the folder), tools/verify/comparison.h (the
// report).
#include <algorithm>
#include <cmath>
#include <cstdio>

#include <CLI/CLI.hpp>

#include "core/io/json.h"
#include "models/adapter_folder.h"
#include "models/names.h"
#include "models/weights.h"
#include "tools/commands/commands.h"
#include "tools/config/config.h"
#include "tools/generate/generation.h"
#include "tools/launch/launch.h"
#include "tools/train/session.h"
#include "tools/verify/comparison.h"
#include "tools/verify/reference_folder.h"

namespace fsdp::tools {
namespace {

struct VerifyOptions {
  LaunchOptions launch;
  std::string folder;
  std::string dtype;     // empty: the folder's
  std::string strategy;  // empty: the folder's
  int shard_size = 0;
  bool trajectory = false;
  double tolerance = -1;  // < 0: the folder's limits
  bool json = false;
};

constexpr int kUnsupportedStatus = 2;
constexpr std::string_view kFinalParameters = "final parameters", kRmsOfEach = ", rms of each";

class Verification {
 public:
  Verification(const VerifyOptions& options, const Reference& reference, RankContext& rank)
      : options_(options), reference_(reference), rank_(rank) {}

  Report run() {
    if (reference_.pass) {
      ReferenceTrajectory pass;
      pass.run = reference_.run;
      start_session(pass, reference_.dtype);
      check_pass(*reference_.pass);
      if (reference_.lora) check_merged(pass);
      if (reference_.generation) check_generation(*reference_.generation);
    }
    for (const ReferenceTrajectory& trajectory : reference_.trajectories) {
      check_trajectory(trajectory);
    }
    session_.reset();
    agree_on_report(rank_.world, report_);
    return std::move(report_);
  }

 private:
  enum class Adapter : uint8_t { kApart, kMerged };
  void start_session(const ReferenceTrajectory& trajectory, DType dtype,
                     Adapter adapter = Adapter::kApart);
  models::FillFunction values(Adapter adapter);
  Batch my_part(const GlobalBatch& batch) const {
    return part_of(batch, data::deal_rows(batch.rows, rank_.world.rank(), rank_.world.size()));
  }
  Batch begin_step(const GlobalBatch& batch, const StepEvents& events);
  // Of an adapter's folder only its own tensors are in the reference.
  bool is_compared(const Parameter& parameter) const {
    return !reference_.lora || models::is_lora(parameter);
  }
  std::string file_name(const Parameter& parameter) const {
    return models::is_lora(parameter)
               ? models::adapter_name(reference_.config, parameter)
               : models::hugging_face_name(reference_.config, parameter.name());
  }
  void check_tensors(const ReferenceTensors& tensors, bool may_lack = false);
  void check_pass(const ReferencePass& pass);
  void check_logits(const ReferencePass& pass, const std::string& title);
  void check_merged(const ReferenceTrajectory& pass);
  void check_gradients(const ReferencePass& pass);
  void check_all_gradients(const ReferencePass& pass);
  void check_gradient_norms(const ReferencePass& pass);
  void check_generation(const ReferenceGeneration& generation);
  // What a training run gave; the same on every rank.
  struct TrainedRun {
    struct Values {
      std::string name;
      std::string file_name;
      std::vector<int64_t> shape;
      std::vector<double> values;
    };
    std::vector<StepValues> steps;
    std::vector<Values> parameters;  // after the last step
  };
  static std::string prefix_of(const ReferenceTrajectory& trajectory) {
    return trajectory.variant.empty() ? "" : trajectory.variant + ": ";
  }
  void check_trajectory(const ReferenceTrajectory& trajectory);
  TrainedRun repeat(const ReferenceTrajectory& trajectory, DType dtype);
  static bool can_judge(const Report& of_judge);
  StepHandle train_step(const ReferenceStep& step, uint32_t number);
  // The same on every rank.
  Report repeat_and_compare(const ReferenceTrajectory& trajectory, DType dtype);
  void check_step(const ReferenceTrajectory& trajectory, size_t number, const StepValues& values,
                  Report& report);
  void check_final(const ReferenceTrajectory& trajectory, const TrainedRun& run, Report& report);

  const VerifyOptions& options_;
  const Reference& reference_;
  RankContext& rank_;
  std::unique_ptr<Session> session_;
  Report report_;
};

double relative_error(double got, double expected) {
  Difference difference;
  difference.add(got, expected);
  return difference.relative();
}

models::FillFunction Verification::values(Adapter adapter) {
  const models::FillFunction base =
      models::from_folder(reference_.model_folder.string(), reference_.config,
                          session_->parameters(), {rank_.world.rank(), rank_.world.size()});
  if (!reference_.lora) return base;
  return adapter == Adapter::kMerged
             ? models::merged_with_adapter(base, reference_.folder, session_->model())
             : models::with_adapter(base, reference_.folder, session_->model());
}

void Verification::start_session(const ReferenceTrajectory& trajectory, DType dtype,
                                 Adapter adapter) {
  SessionOptions session;
  session.model = reference_.config;
  if (adapter == Adapter::kApart) session.lora = reference_.lora;
  session.max_length = reference_.longest_sequence();
  session.fsdp = trajectory.run.fsdp;
  if (dtype != session.fsdp.param_dtype)
    session.fsdp.param_dtype = session.fsdp.reduce_dtype = dtype;
  if (!options_.strategy.empty()) {
    session.fsdp.strategy = config::parse_strategy(options_.strategy);
    session.fsdp.shard_size = options_.shard_size;
  }
  session.loss_mean = trajectory.run.loss_mean;
  session.loss_scale = trajectory.run.loss_scale;
  session.frozen = trajectory.run.frozen;
  session.backend = rank_.backend;
  const bool judge = dtype == DType::kF64 && reference_.dtype != dtype;
  if (judge) session.backend.only_cuda = false;  // f64 is the CPU's
  session.adamw = trajectory.adamw;
  session.clip_norm = trajectory.clip_norm;
  session.clip_power = trajectory.clip_power;
  session_.reset();  // the old one's memory first
  session_ = std::make_unique<Session>(rank_.world, session);
  models::FillFunction fill;
  agree(rank_.world, [&] { fill = values(adapter); });
  session_->initialise(fill);
}

// Every parameter has a reference of its shape, and every reference a parameter.
// `may_lack`: gradients, of a step that leaves blocks out.
void Verification::check_tensors(const ReferenceTensors& tensors, bool may_lack) {
  agree(rank_.world, [&] {
    std::vector<std::string> unknown = tensors.names();
    for (const Parameter* parameter : session_->parameters()) {
      if (!is_compared(*parameter)) continue;
      const bool known = std::erase(unknown, file_name(*parameter)) > 0;
      if (!known && may_lack) continue;
      tensors.check_shape(file_name(*parameter), parameter->shape().extents());
    }
    FSDP_CHECK(unknown.empty(), "{}: {} belongs to no parameter of the model",
               tensors.path().string(), unknown.front());
  });
}

// ---------------------------------------------------------------------------- One pass

void Verification::check_pass(const ReferencePass& pass) {
  const Batch mine = begin_step(pass.batch, pass.events);
  if (pass.logits) check_logits(pass, "logits");
  if (pass.gradients) check_tensors(*pass.gradients);
  const StepValues values = session_->forward_backward(mine, 0, false).read();
  const bool absolute = pass.loss_limit_is_absolute;
  report_.check("loss", pass.loss_limit)
      .add(absolute ? "absolute" : "relative",
           absolute ? std::abs(values.loss - pass.loss) : relative_error(values.loss, pass.loss));
  if (pass.gradients) check_gradients(pass);
  if (pass.all_gradients) check_all_gradients(pass);
  if (!pass.gradient_norms.empty()) check_gradient_norms(pass);
  session_->end_step();
}

void Verification::check_logits(const ReferencePass& pass, const std::string& title) {
  const GlobalBatch& batch = pass.batch;
  const int64_t V = reference_.config.vocabulary;
  std::vector<double> expected;
  agree(rank_.world, [&] {
    expected = pass.logits->read("logits", {batch.rows, batch.length, V});
  });
  const data::RowRange range = data::deal_rows(batch.rows, rank_.world.rank(), rank_.world.size());
  const std::vector<double> got = session_->logits(my_part(batch));
  const int64_t begin = range.first * batch.length * V,
                end = begin + range.count * batch.length * V;
  // Relative to the largest of all rows: those of other ranks differ by nothing here.
  Difference difference;
  for (int64_t i = 0; i < static_cast<int64_t>(expected.size()); ++i) {
    const double reference = expected[static_cast<size_t>(i)];
    const bool computed_here = i >= begin && i < end;
    difference.add(computed_here ? got[static_cast<size_t>(i - begin)] : reference, reference);
  }
  report_.check(title, pass.logits_limit).add("", difference.relative());
}

// The adapter added to the base: its weights, and the same logits without it.
void Verification::check_merged(const ReferenceTrajectory& pass) {
  const ReferencePass& reference = *reference_.pass;
  start_session(pass, reference_.dtype, Adapter::kMerged);
  check_logits(reference, "logits when merged");
  const std::vector<std::string> names = reference.merged->names();
  const auto is_known = [&](const Parameter& parameter) {
    return std::find(names.begin(), names.end(), file_name(parameter)) != names.end();
  };
  Check& check = report_.check("merged weights", reference.merged_limit);
  const auto compare = [&](const Parameter& parameter, const Tensor& values) {
    const std::string name = file_name(parameter);
    Difference difference;
    difference.add(values.to_doubles(), reference.merged->read(name, parameter.shape().extents()));
    check.add(name, difference.relative());
  };
  session_->sharded().visit_parameters(compare, is_known);
  FSDP_CHECK(check.parts.size() == names.size(), "{}: expected weights of the model, got {}",
             reference.merged->path().string(), fmt::join(names, ", "));
}

void Verification::check_gradients(const ReferencePass& pass) {
  Check& check = report_.check("gradients", pass.gradients_limit);
  session_->sharded().visit_gradients([&](const Parameter& parameter, const Tensor& values) {
    const std::string name = file_name(parameter);
    Difference difference;
    difference.add(values.to_doubles(), pass.gradients->read(name, parameter.shape().extents()));
    check.add(name, difference.relative());
  });
}

void Verification::check_all_gradients(const ReferencePass& pass) {
  check_tensors(*pass.all_gradients, !pass.events.left_out.empty());
  const std::vector<std::string> known = pass.all_gradients->names();
  double squares = 0, expected_squares = 0;
  session_->sharded().visit_gradients([&](const Parameter& parameter, const Tensor& values) {
    const std::vector<double> got = values.to_doubles();
    const std::string name = file_name(parameter);
    std::vector<double> expected(got.size());  // an absent gradient: nothing
    if (std::find(known.begin(), known.end(), name) != known.end())
      expected = pass.all_gradients->read(name, parameter.shape().extents());
    for (size_t i = 0; i < got.size(); ++i) {
      const double difference = got[i] / pass.gradient_divisor - expected[i];
      squares += difference * difference;
      expected_squares += expected[i] * expected[i];
    }
  });
  report_.check("all gradients", pass.all_gradients_limit)
      .add("", std::sqrt(squares / expected_squares));
}

// | ||a|| - ||b|| | <= ||a - b||: where only norms are known, they are held to the limit of the
// difference, relative to the norm of the whole gradient.
void Verification::check_gradient_norms(const ReferencePass& pass) {
  double squares = 0;
  for (const auto& [name, norm] : pass.gradient_norms) squares += norm * norm;
  Check& check = report_.check("gradient norms", pass.gradients_limit);
  session_->sharded().visit_gradients([&](const Parameter& parameter, const Tensor& values) {
    const std::string name = file_name(parameter);
    const auto expected = pass.gradient_norms.find(name);
    const bool absent = expected == pass.gradient_norms.end();
    FSDP_CHECK(!absent || !pass.events.left_out.empty(), "{}: step0_norms.per_parameter_l2: no {}",
               (reference_.folder / "reference.json").string(), name);
    double sum = 0;
    for (const double value : values.to_doubles()) sum += value * value;
    const double norm = std::sqrt(sum) / pass.gradient_divisor;
    check.add(name, std::abs(norm - (absent ? 0 : expected->second)) / std::sqrt(squares));
  });
}

void Verification::check_generation(const ReferenceGeneration& generation) {
  for (const bool cache : {true, false}) {
    const GenerationOptions options = {
        .tokens = static_cast<int64_t>(generation.batched.front().size()), .cache = cache};
    const auto compare = [&](const std::string& how, const Generated& got, size_t prompt,
                             const std::vector<int32_t>& expected) {
      int64_t others = 0;
      for (size_t i = 0; i < expected.size(); ++i) others += got.ids[i] != expected[i];
      report_
          .check(fmt::format("generation {}, {} cache", how, cache ? "with" : "without"),
                 generation.limit)
          .add(fmt::format("prompt {}", prompt + 1), static_cast<double>(others));
    };
    const std::vector<Generated> batched = generate_tokens(*session_, options, generation.prompts);
    for (size_t i = 0; i < batched.size(); ++i) {
      compare("batched", batched[i], i, generation.batched[i]);
    }
    for (size_t i = 0; i < batched.size(); ++i) {
      const auto alone = generate_tokens(*session_, options, {generation.prompts[i]});
      compare("alone", alone.front(), i, generation.alone[i]);
    }
  }
}

// ---------------------------------------------------------------------------- Training

// [Note: the f64 run as arbiter]
// An f32 reference has rounding errors of its own, and AdamW blows them up where a first gradient
// is about as small as its epsilon. What is reported is the error against the reference, always.
// One above its limit is excused up to twice the reference's distance from this program's f64 run:
// two f32 runs may be off to either side of it. The f64 run is no judge when it is above a limit
// itself, but for single elements of parameters, which may be four limits off: those are what
// rounding moves. Where a tensor as a whole is off by more than half a limit (rms), it is not
// rounding.
void Verification::check_trajectory(const ReferenceTrajectory& trajectory) {
  if (trajectory.final_parameters) {
    start_session(trajectory, reference_.dtype);
    check_tensors(*trajectory.final_parameters);
  }
  Report report = repeat_and_compare(trajectory, reference_.dtype);
  const bool arbitrate = !report.passed() && reference_.dtype == DType::kF32 &&
                         reference_.layout == "run" && options_.tolerance < 0;
  if (arbitrate) {
    const Report of_judge = repeat_and_compare(trajectory, DType::kF64);
    if (can_judge(of_judge)) report.excuse(of_judge);
  }
  report_.append(report);
}

bool Verification::can_judge(const Report& of_judge) {
  for (const Check& check : of_judge.checks()) {
    const double allowed = check.name.ends_with(kFinalParameters) ? 4
                           : check.name.ends_with(kRmsOfEach)     ? 0.5
                                                                  : 1;
    if (check.limit && check.error > allowed * *check.limit) return false;
  }
  return true;
}

Verification::TrainedRun Verification::repeat(const ReferenceTrajectory& trajectory, DType dtype) {
  start_session(trajectory, dtype);
  std::vector<StepHandle> handles;
  for (size_t i = 0; i < trajectory.steps.size(); ++i) {
    handles.push_back(train_step(trajectory.steps[i], static_cast<uint32_t>(i)));
  }
  TrainedRun out;
  for (const StepHandle& handle : handles) out.steps.push_back(handle.read());
  if (!trajectory.final_parameters) return out;
  const auto keep = [&](const Parameter& parameter, const Tensor& values) {
    out.parameters.push_back(
        {parameter.name(), file_name(parameter), parameter.shape().extents(), values.to_doubles()});
  };
  session_->sharded().visit_parameters(keep, [this](const Parameter& p) { return is_compared(p); });
  return out;
}

Report Verification::repeat_and_compare(const ReferenceTrajectory& trajectory, DType dtype) {
  const TrainedRun run = repeat(trajectory, dtype);
  Report report;
  for (size_t i = 0; i < run.steps.size(); ++i) check_step(trajectory, i, run.steps[i], report);
  if (trajectory.final_parameters) check_final(trajectory, run, report);
  agree_on_report(rank_.world, report);
  return report;
}

StepHandle Verification::train_step(const ReferenceStep& step, uint32_t number) {
  return session_->train_step(begin_step(step.batch, step.events), step.learning_rate, number);
}

Batch Verification::begin_step(const GlobalBatch& batch, const StepEvents& events) {
  session_->model().leave_out(events.left_out);
  Batch mine = my_part(batch);
  if (events.infinite_rank == rank_.world.rank()) {
    mine.gradient_factor = std::numeric_limits<double>::infinity();
  }
  return mine;
}

void Verification::check_step(const ReferenceTrajectory& trajectory, size_t number,
                              const StepValues& values, Report& report) {
  const ReferenceStep& step = trajectory.steps[number];
  const std::string prefix = prefix_of(trajectory), name = fmt::format("step {}", number + 1);
  report.check(prefix + "loss of every step", trajectory.loss_limit)
      .add(name, relative_error(values.loss, step.loss));
  if (!step.skipped) {
    report.check(prefix + "gradient norm of every step", trajectory.grad_norm_limit)
        .add(name, relative_error(values.grad_norm, step.grad_norm));
  }
  if (!step.loss_scale) return;
  report.check(prefix + "loss scale of every step", 0)
      .add(name, std::abs(values.loss_scale - *step.loss_scale));
  report.check(prefix + "which steps are skipped", 0)
      .add(name, values.skipped == step.skipped ? 0 : 1);
}

void Verification::check_final(const ReferenceTrajectory& trajectory, const TrainedRun& run,
                               Report& report) {
  Difference all;
  const std::string title = fmt::format("{}{}", prefix_of(trajectory), kFinalParameters);
  for (const auto& [name, file_name, shape, got] : run.parameters) {
    const std::vector<double> expected = trajectory.final_parameters->read(file_name, shape);
    const std::vector<ElementRange> ranges = key_bias(reference_.config, name);
    Difference difference, key_biases;
    for (size_t i = 0; i < got.size(); ++i) {
      const auto index = static_cast<int64_t>(i);
      const bool in_key_bias = std::any_of(ranges.begin(), ranges.end(), [&](const auto& range) {
        return index >= range.first && index < range.end;
      });
      (in_key_bias ? key_biases : difference).add(got[i], expected[i]);
      if (!in_key_bias) all.add(got[i], expected[i]);
    }
    report.check(title, trajectory.parameter_limit).add(file_name, difference.absolute());
    report.check(fmt::format("{}{}", title, kRmsOfEach), trajectory.parameter_limit)
        .add(file_name, difference.rms());
    if (key_biases.count() == 0) continue;
    report.check(title + ", key biases", trajectory.key_bias_limit)
        .add(file_name, key_biases.absolute());
  }
  if (trajectory.parameter_rms_limit) {
    report.check(title + ", rms", trajectory.parameter_rms_limit).add("", all.rms());
  }
}

// ---------------------------------------------------------------------------- The command

std::string strategy_text(const VerifyOptions& options, const Reference& reference) {
  return options.strategy.empty() ? config::text_of(reference.run.fsdp.strategy) : options.strategy;
}

void print_json(const VerifyOptions& options, const Reference& reference, const Report& report,
                int ranks) {
  OrderedJson out = {{"folder", options.folder},
                     {"layout", reference.layout},
                     {"dtype", name_of(reference.dtype)},
                     {"strategy", strategy_text(options, reference)},
                     {"ranks", ranks},
                     {"passed", report.passed() && reference.left_out.empty()},
                     {"checks", OrderedJson::array()},
                     {"left_out", reference.left_out},
                     {"notes", reference.notes}};
  // JSON has no infinity: an error that is not finite is null.
  const auto number = [](double x) { return std::isfinite(x) ? OrderedJson(x) : OrderedJson(); };
  for (const Check& check : report.checks()) {
    OrderedJson line = {{"name", check.name},
                        {"error", number(check.error)},
                        {"limit", check.limit ? OrderedJson(*check.limit) : OrderedJson()},
                        {"passed", check.passed()},
                        {"excused_by_f64_error",
                         check.judge_error ? OrderedJson(*check.judge_error) : OrderedJson()},
                        {"worst", check.worst},
                        {"errors", OrderedJson::object()}};
    for (const auto& [part, error] : check.parts) line["errors"][part] = number(error);
    out["checks"].push_back(std::move(line));
  }
  fmt::print("{}\n", out.dump(2));
}

std::string verdict(const Reference& reference, const Report& report) {
  if (!report.passed()) return "ABOVE A LIMIT";
  if (!reference.left_out.empty()) return "INCOMPLETE: not everything was compared";
  if (report.excused() == 0) return "within all limits";
  return fmt::format("within the limits, but for {} excused by the f64 run", report.excused());
}

void print_table(const VerifyOptions& options, const Reference& reference, const Report& report,
                 int ranks) {
  fmt::print("{}: {}, {}, {}, {} rank{}\n\n{}", options.folder, reference.config.family,
             name_of(reference.dtype), strategy_text(options, reference), ranks,
             ranks == 1 ? "" : "s", report.table());
  for (const std::string& reason : reference.left_out) fmt::print("{}\n", reason);
  for (const std::string& note : reference.notes) fmt::print("{}\n", note);
  fmt::print("\n{}\n", verdict(reference, report));
}

void print_unsupported(const VerifyOptions& options, const std::string& reason) {
  if (options.json) {
    const OrderedJson out = {{"folder", options.folder}, {"unsupported", reason}};
    fmt::print("{}\n", out.dump(2));
  }
  fmt::print(stderr, "fsdp: {}\n", reason);
}

int run_verify(const VerifyOptions& options, RankContext& rank) {
  Reference reference;
  std::string unsupported;
  agree(rank.world, [&] {
    try {
      ReferenceChoice choice = {.trajectory = options.trajectory,
                                .all_variants = options.strategy.empty()};
      if (!options.dtype.empty()) choice.dtype = parse_dtype(options.dtype);
      reference = read_reference(options.folder, choice);
      reference.leave_out_runs_of_other_ranks(rank.world.size());
    } catch (const Unsupported& error) {
      unsupported = error.what();
    }
  });
  for (const std::string& reason : rank.world.exchange(unsupported)) {
    if (reason.empty()) continue;
    if (rank.world.rank() == 0) print_unsupported(options, reason);
    return kUnsupportedStatus;
  }
  if (options.tolerance >= 0) reference.set_all_limits(options.tolerance);
  Verification verification(options, reference, rank);
  const Report report = verification.run();
  if (rank.world.rank() == 0) {
    (options.json ? print_json : print_table)(options, reference, report, rank.world.size());
    std::fflush(stdout);
  }
  if (!report.passed()) return 1;
  return reference.left_out.empty() ? 0 : kUnsupportedStatus;
}

}  // namespace

void add_verify_command(CLI::App& app, ChosenCommand& chosen) {
  const auto options = std::make_shared<VerifyOptions>();
  CLI::App* command =
      app.add_subcommand("verify", "compares this program with a folder of reference results");
  command->add_option("folder", options->folder, "config.json, model.safetensors, reference.*")
      ->required();
  command
      ->add_option("--dtype", options->dtype, "of the computation (default: the folder's, or f32)")
      ->check(CLI::IsMember({"f64", "f32", "bf16", "f16"}));
  command->add_option("--strategy", options->strategy, "how to shard (default: as the folder says)")
      ->check(CLI::IsMember(config::strategy_names()));
  command
      ->add_option("--shard-size", options->shard_size,
                   "ranks of a shard group of a hybrid strategy")
      ->needs("--strategy");
  command->add_flag("--trajectory", options->trajectory, "also repeat the folder's training run");
  command
      ->add_option("--tolerance", options->tolerance,
                   "one limit for all quantities (but GPT-2's key biases, which are noise)")
      ->check(not_below_zero);
  command->add_flag("--json", options->json, "print machine-readable");
  add_launch_options(*command, options->launch);
  command->callback([&chosen, options] {
    chosen = [options] {
      return launch(options->launch, [&](RankContext& rank) { return run_verify(*options, rank); });
    };
  });
}

}  // namespace fsdp::tools
