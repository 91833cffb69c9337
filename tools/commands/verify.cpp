// fsdp verify: computes what a reference folder holds, on any number of ranks, and prints the
// largest error of each quantity beside its limit.
// Exit status: 0 within all limits, 1 above one or on an error, 2 when the folder needs something
// that this program does not do.
// Read next: tools/runtime/reference_folder.h (the folder), tools/runtime/comparison.h (the
// report).
#include <cmath>
#include <cstdio>

#include <CLI/CLI.hpp>

#include "core/io/json.h"
#include "models/names.h"
#include "models/weights.h"
#include "tools/commands/commands.h"
#include "tools/runtime/comparison.h"
#include "tools/runtime/launch.h"
#include "tools/runtime/reference_folder.h"
#include "tools/runtime/session.h"

namespace fsdp::tools {
namespace {

struct VerifyOptions {
  LaunchOptions launch;
  std::string folder;
  std::string dtype = "f32";
  std::string strategy = "full_shard";
  bool trajectory = false;
  double tolerance = -1;  // < 0: the folder's limits
  bool json = false;
};

constexpr int kUnsupportedStatus = 2;

class Verification {
 public:
  Verification(const VerifyOptions& options, const Reference& reference, RankContext& rank)
      : options_(options), reference_(reference), rank_(rank) {}

  Report run() {
    if (reference_.pass) {
      start_session({});
      check_pass(*reference_.pass);
    }
    for (const ReferenceTrajectory& trajectory : reference_.trajectories) {
      start_session(trajectory);
      check_trajectory(trajectory);
    }
    session_.reset();
    agree_on_report(rank_.world, report_);
    return std::move(report_);
  }

 private:
  void start_session(const ReferenceTrajectory& trajectory);
  Batch my_part(const GlobalBatch& batch) const {
    return part_of(batch, deal_rows(batch.rows, rank_.world.rank(), rank_.world.size()));
  }
  std::string file_name(const Parameter& parameter) const {
    return models::hugging_face_name(reference_.config, parameter.name());
  }
  void check_tensors(const ReferenceTensors& tensors);
  void check_pass(const ReferencePass& pass);
  void check_logits(const ReferencePass& pass);
  void check_gradients(const ReferencePass& pass);
  void check_gradient_norms(const ReferencePass& pass);
  void check_trajectory(const ReferenceTrajectory& trajectory);
  void check_final(const ReferenceTrajectory& trajectory, const std::string& prefix);

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

void Verification::start_session(const ReferenceTrajectory& trajectory) {
  const DType dtype = parse_dtype(options_.dtype);
  SessionOptions session;
  session.model = reference_.config;
  session.max_length = reference_.longest_sequence();
  session.fsdp.strategy =
      options_.strategy == "no_shard" ? comm::Strategy::kNoShard : comm::Strategy::kFullShard;
  session.fsdp.param_dtype = dtype;
  session.fsdp.reduce_dtype = accumulation_dtype(dtype);
  session.cpu.threads = rank_.threads;
  session.adamw = trajectory.adamw;
  session.clip_norm = trajectory.clip_norm;
  session.clip_power = trajectory.clip_power;
  session_.reset();  // the old one's memory first
  session_ = std::make_unique<Session>(rank_.world, session);
  models::FillFunction fill;
  agree(rank_.world, [&] {
    fill =
        models::from_folder(reference_.folder.string(), reference_.config, session_->parameters());
  });
  session_->initialise(fill);
}

// Every parameter has a reference of its shape, and every reference a parameter.
void Verification::check_tensors(const ReferenceTensors& tensors) {
  agree(rank_.world, [&] {
    std::vector<std::string> unknown = tensors.names();
    for (const Parameter* parameter : session_->parameters()) {
      tensors.check_shape(file_name(*parameter), parameter->shape().extents());
      std::erase(unknown, file_name(*parameter));
    }
    FSDP_CHECK(unknown.empty(), "{}: {} belongs to no parameter of the model",
               tensors.path().string(), unknown.front());
  });
}

// ---------------------------------------------------------------------------- One pass

void Verification::check_pass(const ReferencePass& pass) {
  const Batch mine = my_part(pass.batch);
  if (pass.logits) check_logits(pass);
  if (pass.gradients) check_tensors(*pass.gradients);
  const StepValues values = session_->forward_backward(mine, 0, false).read();
  const bool absolute = pass.loss_limit_is_absolute;
  report_.check("loss", pass.loss_limit)
      .add(absolute ? "absolute" : "relative",
           absolute ? std::abs(values.loss - pass.loss) : relative_error(values.loss, pass.loss));
  if (pass.gradients) check_gradients(pass);
  if (!pass.gradient_norms.empty()) check_gradient_norms(pass);
  session_->end_step();
}

void Verification::check_logits(const ReferencePass& pass) {
  const GlobalBatch& batch = pass.batch;
  const int64_t V = reference_.config.vocabulary;
  std::vector<double> expected;
  agree(rank_.world, [&] {
    expected = pass.logits->read("logits", {batch.rows, batch.length, V});
  });
  const RowRange range = deal_rows(batch.rows, rank_.world.rank(), rank_.world.size());
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
  report_.check("logits", pass.logits_limit).add("", difference.relative());
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

// | ||a|| - ||b|| | <= ||a - b||: where only norms are known, they are held to the limit of the
// difference, relative to the norm of the whole gradient.
void Verification::check_gradient_norms(const ReferencePass& pass) {
  double squares = 0;
  for (const auto& [name, norm] : pass.gradient_norms) squares += norm * norm;
  Check& check = report_.check("gradient norms", pass.gradients_limit);
  session_->sharded().visit_gradients([&](const Parameter& parameter, const Tensor& values) {
    const std::string name = file_name(parameter);
    const auto expected = pass.gradient_norms.find(name);
    FSDP_CHECK(expected != pass.gradient_norms.end(), "{}: step0_norms.per_parameter_l2: no {}",
               (reference_.folder / "reference.json").string(), name);
    double sum = 0;
    for (const double value : values.to_doubles()) sum += value * value;
    check.add(name, std::abs(std::sqrt(sum) - expected->second) / std::sqrt(squares));
  });
}

// ---------------------------------------------------------------------------- Training

void Verification::check_trajectory(const ReferenceTrajectory& trajectory) {
  const std::string prefix = trajectory.variant.empty() ? "" : trajectory.variant + ": ";
  if (trajectory.final_parameters) check_tensors(*trajectory.final_parameters);
  std::vector<StepHandle> handles;
  for (size_t i = 0; i < trajectory.steps.size(); ++i) {
    const ReferenceStep& step = trajectory.steps[i];
    handles.push_back(
        session_->train_step(my_part(step.batch), step.learning_rate, static_cast<uint32_t>(i)));
  }
  for (size_t i = 0; i < handles.size(); ++i) {
    const StepValues values = handles[i].read();
    const std::string name = fmt::format("step {}", i + 1);
    report_.check(prefix + "loss of every step", trajectory.loss_limit)
        .add(name, relative_error(values.loss, trajectory.steps[i].loss));
    report_.check(prefix + "gradient norm of every step", trajectory.grad_norm_limit)
        .add(name, relative_error(values.grad_norm, trajectory.steps[i].grad_norm));
  }
  if (trajectory.final_parameters) check_final(trajectory, prefix);
}

void Verification::check_final(const ReferenceTrajectory& trajectory, const std::string& prefix) {
  Difference all;
  const std::string title = prefix + "final parameters";
  session_->sharded().visit_parameters([&](const Parameter& parameter, const Tensor& values) {
    const std::string name = file_name(parameter);
    const std::vector<double> got = values.to_doubles();
    const std::vector<double> expected =
        trajectory.final_parameters->read(name, parameter.shape().extents());
    const ElementRange skip = key_bias(reference_.config, parameter.name());
    Difference difference, key_biases;
    for (int64_t i = 0; i < static_cast<int64_t>(got.size()); ++i) {
      const double a = got[static_cast<size_t>(i)], b = expected[static_cast<size_t>(i)];
      const bool in_key_bias = i >= skip.first && i < skip.end;
      (in_key_bias ? key_biases : difference).add(a, b);
      if (!in_key_bias) all.add(a, b);
    }
    report_.check(title, trajectory.parameter_limit).add(name, difference.absolute());
    if (key_biases.count() == 0) return;
    report_.check(title + ", key biases", trajectory.key_bias_limit)
        .add(name, key_biases.absolute());
  });
  if (trajectory.parameter_rms_limit) {
    report_.check(title + ", rms", trajectory.parameter_rms_limit).add("", all.rms());
  }
}

// ---------------------------------------------------------------------------- The command

void print_json(const VerifyOptions& options, const Reference& reference, const Report& report,
                int ranks) {
  OrderedJson out = {{"folder", options.folder},
                     {"layout", reference.layout},
                     {"dtype", options.dtype},
                     {"strategy", options.strategy},
                     {"ranks", ranks},
                     {"passed", report.passed()},
                     {"checks", OrderedJson::array()},
                     {"notes", reference.notes}};
  // JSON has no infinity: an error that is not finite is null.
  const auto number = [](double x) { return std::isfinite(x) ? OrderedJson(x) : OrderedJson(); };
  for (const Check& check : report.checks()) {
    OrderedJson line = {{"name", check.name},
                        {"error", number(check.error)},
                        {"limit", check.limit ? OrderedJson(*check.limit) : OrderedJson()},
                        {"passed", check.passed()},
                        {"worst", check.worst},
                        {"errors", OrderedJson::object()}};
    for (const auto& [part, error] : check.parts) line["errors"][part] = number(error);
    out["checks"].push_back(std::move(line));
  }
  fmt::print("{}\n", out.dump(2));
}

void print_table(const VerifyOptions& options, const Reference& reference, const Report& report,
                 int ranks) {
  fmt::print("{}: {}, {}, {}, {} rank{}\n\n{}", options.folder, reference.config.family,
             options.dtype, options.strategy, ranks, ranks == 1 ? "" : "s", report.table());
  for (const std::string& note : reference.notes) fmt::print("{}\n", note);
  fmt::print("\n{}\n", report.passed() ? "within all limits" : "ABOVE A LIMIT");
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
      reference = read_reference(options.folder, parse_dtype(options.dtype), options.trajectory);
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
  const Report report = Verification(options, reference, rank).run();
  if (rank.world.rank() == 0) {
    (options.json ? print_json : print_table)(options, reference, report, rank.world.size());
    std::fflush(stdout);
  }
  return report.passed() ? 0 : 1;
}

}  // namespace

void add_verify_command(CLI::App& app, ChosenCommand& chosen) {
  const auto options = std::make_shared<VerifyOptions>();
  CLI::App* command =
      app.add_subcommand("verify", "compares this program with a folder of reference results");
  command->add_option("folder", options->folder, "config.json, model.safetensors, reference.*")
      ->required();
  command->add_option("--dtype", options->dtype, "of the computation (default: f32)")
      ->check(CLI::IsMember({"f64", "f32", "bf16"}));
  command->add_option("--strategy", options->strategy, "how to shard (default: full_shard)")
      ->check(CLI::IsMember({"full_shard", "no_shard"}));
  command->add_flag("--trajectory", options->trajectory, "also repeat the folder's training run");
  command
      ->add_option("--tolerance", options->tolerance,
                   "one limit for all quantities (but GPT-2's key biases, which are noise)")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--json", options->json, "print machine-readable");
  add_launch_options(*command, options->launch);
  command->callback([&chosen, options] {
    chosen = [options] {
      return launch(options->launch, [&](RankContext& rank) { return run_verify(*options, rank); });
    };
  });
}

}  // namespace fsdp::tools
