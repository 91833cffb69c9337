// Verifies a training run: the values of every step, and the parameters after the last one.
#include <algorithm>
#include <cmath>

#include "tools/engine/sharded_values.h"
#include "tools/verify/described_session.h"

namespace fsdp::tools {
namespace {

constexpr std::string_view kFinalParameters = "final parameters", kRmsOfEach = ", rms of each";

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

std::string prefix_of(const ExpectedTraining& trajectory) {
  return trajectory.variant.empty() ? "" : trajectory.variant + ": ";
}

bool can_judge(const Report& of_judge) {
  for (const Check& check : of_judge.checks()) {
    const double allowed = check.name.ends_with(kFinalParameters) ? 4
                           : check.name.ends_with(kRmsOfEach)     ? 0.5
                                                                  : 1;
    if (check.limit && check.error > allowed * *check.limit) return false;
  }
  return true;
}

TrainedRun repeat(DescribedSession& run, const ExpectedTraining& trajectory, DType dtype) {
  run.start(trajectory, dtype);
  std::vector<StepHandle> handles;
  for (size_t i = 0; i < trajectory.steps.size(); ++i) {
    const ExpectedStep& step = trajectory.steps[i];
    const Batch mine = run.begin_step(step.batch, step.events);
    handles.push_back(run.session().train_step(mine, step.learning_rate, static_cast<uint32_t>(i)));
  }
  TrainedRun out;
  for (const StepHandle& handle : handles) out.steps.push_back(handle.read());
  if (!trajectory.final_parameters) return out;
  const auto keep = [&](const Parameter& parameter, const Tensor& values) {
    out.parameters.push_back({parameter.name(), run.file_name(parameter),
                              parameter.shape().extents(), values.to_doubles()});
  };
  visit_parameters(run.session().sharded(), keep,
                   [&](const Parameter& p) { return run.is_compared(p); });
  return out;
}

void check_step(const ExpectedTraining& trajectory, size_t number, const StepValues& values,
                Report& report) {
  const ExpectedStep& step = trajectory.steps[number];
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
      .add(name, (values.skipped != kNotSkipped) == step.skipped ? 0 : 1);
}

void check_final(const models::ModelConfig& model, const ExpectedTraining& trajectory,
                 const TrainedRun& trained, Report& report) {
  Difference all;
  const std::string title = fmt::format("{}{}", prefix_of(trajectory), kFinalParameters);
  for (const auto& [name, file_name, shape, got] : trained.parameters) {
    const std::vector<double> expected = trajectory.final_parameters->read(file_name, shape);
    const std::vector<ElementRange> ranges = key_bias(model, name);
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

// The same on every rank.
Report repeat_and_compare(DescribedSession& run, const ExpectedTraining& trajectory, DType dtype) {
  const TrainedRun trained = repeat(run, trajectory, dtype);
  Report report;
  for (size_t i = 0; i < trained.steps.size(); ++i) {
    check_step(trajectory, i, trained.steps[i], report);
  }
  if (trajectory.final_parameters) {
    check_final(run.expected().config, trajectory, trained, report);
  }
  agree_on_report(run.world(), report);
  return report;
}

}  // namespace

// [Note: the f64 run as arbiter]
// An f32 reference has rounding errors of its own, and AdamW blows them up where a first gradient
// is about as small as its epsilon. What is reported is always the error against the expected
// value. One above its limit is excused up to twice the reference's distance from this program's
// f64 run: two f32 runs may be off to either side of the f64 run. The f64 run is no judge when it
// is above a limit itself, but for single elements of parameters, which may be four limits off:
// such elements are what rounding moves. Where a tensor as a whole is off by more than half a limit
// (rms), it is not rounding.
Report verify_training(DescribedSession& run, const ExpectedTraining& trajectory) {
  const ExpectedResults& expected = run.expected();
  if (trajectory.final_parameters) {
    run.start(trajectory, expected.dtype);
    run.check_tensors(*trajectory.final_parameters);
  }
  Report report = repeat_and_compare(run, trajectory, expected.dtype);
  const bool arbitrate = !report.passed() && expected.dtype == DType::kF32 &&
                         expected.layout == "run" && run.options().arbitrate;
  if (arbitrate) {
    const Report of_judge = repeat_and_compare(run, trajectory, DType::kF64);
    if (can_judge(of_judge)) report.excuse(of_judge);
  }
  return report;
}

// ---- All of a folder ----

Report verify(RankContext& rank, const ExpectedResults& expected,
              const VerificationOptions& options) {
  DescribedSession run(rank, expected, options);
  return with_session(rank, [&] {
    Report report;
    if (expected.pass) report.append(verify_pass(run));
    for (const ExpectedTraining& trajectory : expected.trajectories) {
      report.append(verify_training(run, trajectory));
    }
    run.end();
    agree_on_report(rank.world, report);
    return report;
  });
}

}  // namespace fsdp::tools
