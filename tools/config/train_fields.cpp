// The options of how a model is trained, and of what is kept: train, checkpoint, sample.
// The words of the list: config_fields.h. What can be said of an option: option_field.h.
#include <algorithm>
#include <initializer_list>

#include "tools/config/config_fields.h"

namespace fsdp::config {
namespace {

constexpr Range kFactorOfScale = {.least = 0x1p-126, .most = 0x1p126};  // an f32 of full precision

}  // namespace

void visit(Visitor& v, ScheduleSection& c, const TrainConfig&) {
  using Kind = optim::ScheduleKind;
  const auto of = [&](std::initializer_list<Kind> kinds) {
    return Need{std::find(kinds.begin(), kinds.end(), c.kind) != kinds.end(),
                fmt::format("with kind: {}", optim::name_of(c.kind))};
  };
  const Need parts = of({Kind::kWarmupStableDecay});
  Need total = of({Kind::kConstant, Kind::kInverseSqrt});
  total.met = !total.met;
  Need end_value = of({Kind::kConstant, Kind::kLinear, Kind::kCosine, Kind::kInverseSqrt,
                       Kind::kCosineWithRestarts});
  end_value.met = !end_value.met;
  end_value.without += "; cosine_with_min_lr and polynomial use it";
  Need cycles = of({Kind::kCosine, Kind::kCosineWithRestarts, Kind::kCosineWithMinLr,
                    Kind::kCosineWarmupWithMinLr});
  cycles.met = cycles.met || (parts.met && c.decay_shape == optim::Ramp::kCosine);
  v.field("kind", c.kind, "as in Hugging Face's get_scheduler", {.aliases = {"name"}});
  v.field("warmup", c.warmup, "steps, or a share of `total` such as 10%, rounded up",
          {.aliases = {"warmup_steps"}, .range = from(0)});
  v.field("total", c.total, "steps until the end value; 0: train.steps",
          {.range = from(0), .needs = {total}});
  v.field("min_lr", c.min_lr, "end value of polynomial, *_min_lr, warmup_stable_decay, fairseq_*",
          {.range = from(0), .needs = {end_value}});
  v.field("power", c.power, "of polynomial, fairseq_polynomial_decay",
          {.range = from(0), .needs = {of({Kind::kPolynomial, Kind::kFairseqPolynomialDecay})}});
  v.field("cycles", c.cycles, "waves of cosine (0: half a one), descents of restarts (0: one)",
          {.range = from(0), .needs = {cycles}});
  v.field("timescale", c.timescale, "of inverse_sqrt; 0: warmup, or 10000 without one",
          {.range = from(0), .needs = {of({Kind::kInverseSqrt})}});
  v.field("decay_steps", c.decay_steps, "of warmup_stable_decay",
          {.range = from(0), .needs = {parts}});
  v.field("warmup_shape", c.warmup_shape, "of warmup_stable_decay", {.needs = {parts}});
  v.field("decay_shape", c.decay_shape, "of warmup_stable_decay", {.needs = {parts}});
  v.field("zero_warmup", c.zero_warmup, "fairseq_*: steps with rate 0 before the warm-up",
          {.range = from(0), .needs = {of({Kind::kFairseqPolynomialDecay})}});
}

void visit(Visitor& v, OptimizerSection& c, const TrainConfig& all) {
  const std::string with = fmt::format("with kind: {}", optim::name_of(c.kind));
  const auto read = [&](std::string_view option) {
    return Need{optim::reads(c.kind, option), with};
  };
  static const std::string of_beta1 = "of " + optim::kinds_that_read("beta1"),
                           of_beta2 = "of " + optim::kinds_that_read("beta2"),
                           of_rho =
                               "of " + optim::kinds_that_read("rho") + ": what its averages keep",
                           of_epsilon = "of " + optim::kinds_that_read("epsilon") +
                                        "; auto: the default of torch.optim";
  const Need momentum = {c.momentum > 0, "without momentum"};
  v.field("kind", c.kind, "the update rule, as in torch.optim", {.aliases = {"name"}});
  v.field("beta1", c.beta1, of_beta1.c_str(), {.range = kShare, .needs = {read("beta1")}});
  v.field("beta2", c.beta2, of_beta2.c_str(), {.range = kShare, .needs = {read("beta2")}});
  v.field("rho", c.rho, of_rho.c_str(), {.range = kShare, .needs = {read("rho")}});
  v.field("epsilon", c.epsilon, of_epsilon.c_str(),
          {.aliases = {"eps"}, .range = kPositive, .needs = {read("epsilon")}});
  v.field("momentum", c.momentum, "of sgd", {.range = kShare, .needs = {read("momentum")}});
  v.field("dampening", c.dampening, "of sgd: of what a gradient adds to the momentum",
          {.range = from_to(0, 1), .needs = {read("dampening"), momentum}});
  v.field("nesterov", c.nesterov, "of sgd: Nesterov's momentum",
          {.needs = {read("nesterov"), momentum}});
  v.field("weight_decay", c.weight_decay,
          "adamw: shrinks parameters by the learning rate times this; the others: times "
          "the parameter, added to the gradient; auto: 0.1 (adamw), 0 (the others)",
          {.range = from(0), .needs = {{c.decay != Decay::kNone, "with decay: none"}}});
  v.field("decay", c.decay, "which parameters decay; matrices: those of two or more dimensions",
          {.needs = {{all.optimizer().weight_decay > 0, with + ", whose weight_decay is 0"}}});
  v.field(
      "state_dtype", c.state_dtype,
      "of what is kept for every element; bf16: rounded at random (seeded by train.seed); auto: "
      "f32 (f64 for f64)",
      {.needs = {{!read("momentum").met || momentum.met, with + ", without momentum"}},
       .memory = {.turn = 11, .choices = {{"bf16"}}, .keeps = Keeps::kDType}});
}

namespace {

// "auto: 2000 (torch), 2^14 (a guest)"
std::string auto_scale(const char* torch, std::string_view GuestLossScale::*value) {
  std::string out = fmt::format("auto: {} (torch)", torch);
  for (const auto* rule : guests_of<GuestLossScale>()) {
    out += fmt::format(", {} ({})", rule->*value, rule->name);
  }
  return out;
}

const std::string& help_of_lines() {
  static const std::string help =
      "whose lines are printed: ours, " + guest_names<tools::LogLines>();
  return help;
}

}  // namespace

void visit(Visitor& v, LossScaleSection& c, const TrainConfig& all) {
  static const std::string initial = auto_scale("65536", &GuestLossScale::initial);
  static const std::string interval = auto_scale("2000", &GuestLossScale::interval);
  const bool scaled = c.rule == LossScaling::kTorch || c.rule == LossScaling::kGuest ||
                      (c.rule == LossScaling::kAuto && all.uses_f16());
  const std::vector<Need> needs = {
      {scaled, "without loss scaling (train.dtype: f16, or a train.loss_scale.rule)"}};
  v.field("rule", c.rule,
          "where the defaults of the keys below come from; auto: torch for f16, else none");
  v.field("initial", c.initial, initial.c_str(), {.range = kFactorOfScale, .needs = needs});
  v.field("growth", c.growth, "factor after `interval` steps without overflow; auto: 2",
          {.range = from_to(1, kFactorOfScale.most), .needs = needs});
  v.field("backoff", c.backoff, "factor after an overflow; 1: the scale stays; auto: 0.5",
          {.range = {.least = 0, .most = 1, .above = true}, .needs = needs});
  v.field("interval", c.interval, interval.c_str(), {.range = from(1), .needs = needs});
  v.field("tolerance", c.tolerance, "share of steps that may overflow before a backoff; auto: 0",
          {.range = from_to(0, 1), .needs = needs});
  v.field("floor", c.floor, "never below; auto: 0", {.range = from(0), .needs = needs});
  v.field("minimum", c.minimum, "end the run when the scale falls to it; auto: 1e-4",
          {.range = from(0), .needs = needs});
}

void visit(Visitor& v, SpikeSection& c, const TrainConfig& all) {
  const Need tested = {c.factor > 0, "with train.spike.factor: 0"};
  const bool rolls_back = c.action == SpikeAction::kRollback;
  v.field("factor", c.factor,
          "a gradient norm (before clipping) above this many times the median of `window` steps is "
          "a spike; 0: none is",
          {.range = from(0)});
  v.field("window", c.window, "how many of the last steps that updated the model the median is of",
          {.range = from_to(1, 100'000), .needs = {tested}});
  v.field(
      "action", c.action,
      "stop: ends the run; skip: no update in this step; rollback: goes on from the last "
      "checkpoint, without the batches since",
      {.needs = {tested,
                 {!rolls_back || !all.checkpoint.interval().never(), "without checkpoint.every"}}});
  v.field("in_a_row", c.in_a_row, "of skip: this many spikes one after the other end the run",
          {.range = from(1), .needs = {tested, {c.action == SpikeAction::kSkip, "without skip"}}});
}

void visit(Visitor& v, RecomputeSection& c, const TrainConfig&) {
  const auto every = [&](int64_t n) {
    return c.every == n ? "" : fmt::format("train.recompute.every={}", n);
  };
  v.field("mode", c.mode,
          "full: keep the inputs of blocks only, compute the rest again in backward; offload: the "
          "same, and the inputs wait in the host's memory; selective: keep results of matrix "
          "products and attention, compute norms and activations again",
          {.memory = {.turn = 4,
                      .choices = {{"selective", every(1)},
                                  {"full", every(2)},
                                  {"full", every(1)},
                                  {"offload", every(1)},
                                  {"none", every(1)}}}});
  v.field("every", c.every, "only in every k-th block",
          {.range = from(1),
           .needs = {{c.mode != RecomputeMode::kNone, "with train.recompute.mode: none"}}});
}

// Steps, and how many sequences each of them takes.
void visit_steps(Visitor& v, TrainSection& c) {
  v.field("steps", c.steps, "optimizer updates",
          {.aliases = {"max_steps"},
           .range = from(1),
           .flag_of = FlagOf::kConfigured,
           .on_resume = OnResume::kLength});
  v.field("epochs", c.epochs, "of the training text, instead of steps; 0: as many as steps take",
          {.aliases = {"num_train_epochs"}, .range = from(0), .on_resume = OnResume::kLength});
  v.field("batch", c.batch,
          "sequences per step, over all ranks and micro-steps; auto: 8, or rows_per_pass x ranks x "
          "micro_steps",
          {.range = size_from(1),
           .flag_of = FlagOf::kConfigured,
           .on_resume = OnResume::kFreeInPasses});
  v.field("rows_per_pass", c.rows_per_pass,
          "sequences of one forward and backward, dealt to the ranks in turn; 0: a rank splits its "
          "sequences between micro_steps",
          {.aliases = {"per_device_train_batch_size"},
           .range = size_from(0),
           .on_resume = OnResume::kFreeUnlessFixedOrder,
           .memory = {.turn = 8,
                      .keeps = Keeps::kRounding,
                      .halves_rows = true,
                      .with = "train.micro_steps=auto"}});
  v.field("micro_steps", c.micro_steps,
          "forward and backward passes of a rank per step; auto: 1, or as many as rows_per_pass "
          "makes of batch",
          {.aliases = {"gradient_accumulation_steps"},
           .range = size_from(1),
           .on_resume = OnResume::kFree,
           .memory = {.turn = 8, .keeps = Keeps::kRounding, .doubles_steps = true}});
  v.field("seed", c.seed, "of initial weights, order of the data, dropout, samples",
          {.range = kSeed});
}

void visit_dtypes(Visitor& v, TrainSection& c) {
  const bool narrow = c.master_dtype == DType::kBF16;
  v.field("dtype", c.dtype, "of compute",
          {.memory = {.turn = 9, .choices = {{"bf16"}, {"f16"}, {"f32"}}, .keeps = Keeps::kDType}});
  v.field(
      "master_dtype", c.master_dtype,
      "of master weights, which the optimizer updates: f32, bf16 (with stochastic_rounding), f16 "
      "(with dtype: f16); auto: f32 (f64 for f64)",
      {.memory = {.turn = 10,
                  .choices = {{"bf16", narrow ? "" : "train.stochastic_rounding=true"}},
                  .keeps = Keeps::kDType}});
  v.field(
      "stochastic_rounding", c.stochastic_rounding,
      "master weights are rounded to bf16 at random (seeded by train.seed), so that small "
      "updates count on average; else to nearest. With master_dtype: bf16 the update is rounded, "
      "else what the model computes with");
  v.field("reduce_dtype", c.reduce_dtype, "of gradient sums over ranks; auto: f32 (f64 for f64)");
  v.field("buffer_dtype", c.buffer_dtype,
          "that rotary and ALiBi values are rounded to; auto: f32 (f64 for f64)");
  v.field("logits_dtype", c.logits_dtype,
          "of the head's results, in the loss and in evaluations: f32, or bf16 (with dtype: bf16), "
          "whose gradients take their place; auto: f32 (f64 for f64)");
  v.field("logits_chunk_bytes", c.logits_chunk_bytes,
          "of logits at once, 512MiB; a sixteenth of a pass's tokens where that is more; the "
          "head's gradient is read and written for each chunk",
          {.is_size = true, .on_resume = OnResume::kFreeUnlessFixedOrder});
}

void visit_attention(Visitor& v, TrainSection& c, const TrainConfig& all) {
  const tools::LaunchOptions& launch = all.runtime.launch;
  v.field("attention_deterministic", c.attention_deterministic,
          "false: cuDNN adds up the gradients of attention's queries in any order: memory by the "
          "length instead of its square, but two runs, a resume and a replay differ in the last "
          "bits",
          {.needs = {{launch.backend != "cpu", "with runtime.backend: cpu"},
                     {launch.attention != "own", "with runtime.attention: own"}},
           .on_resume = OnResume::kFree});
}

void visit(Visitor& v, TrainSection& c, const TrainConfig& all) {
  const Need validated = {!all.data.validation.empty(), "without data.validation"};
  const Need saved = {c.save, "with train.save: false"};
  visit_steps(v, c);
  v.field("lr", c.lr, "peak learning rate",
          {.aliases = {"learning_rate"}, .range = from(0), .flag_of = FlagOf::kConfigured});
  v.section("schedule", "of the learning rate", c.schedule, all);
  v.section("optimizer", "the optimizer", c.optimizer, all);
  v.field("loss_mean", c.loss_mean,
          "over all tokens of a step; ranks: over the ranks' own means, as PyTorch does");
  v.field("clip_norm", c.clip_norm, "of the global gradient; 0: no clipping",
          {.aliases = {"max_grad_norm"}, .range = from(0)});
  v.field("clip_type", c.clip_type, "order p of the norm used for clipping",
          {.aliases = {"norm_type"}});
  v.section("spike", "steps whose gradient is far too large", c.spike, all, OnResume::kFree);
  const bool on_nonfinite = c.on_nonfinite == OnNonfinite::kRollback;
  v.field(
      "on_nonfinite", c.on_nonfinite,
      "a loss or gradient norm that is not finite, or a loss scale at its minimum. stop: ends "
      "the run; rollback: as train.spike.action",
      {.needs = {{!on_nonfinite || !all.checkpoint.interval().never(), "without checkpoint.every"}},
       .on_resume = OnResume::kFree});
  v.field(
      "max_rollbacks", c.max_rollbacks, "of the run; one more ends it",
      {.range = from(1),
       .needs = {{c.rolls_back(), "without rollback in train.spike.action or train.on_nonfinite"}},
       .on_resume = OnResume::kFree});
  v.field("allow_nonfinite_validation", c.allow_nonfinite_validation,
          "a last validation loss that is not finite is a warning alone; false: the run also ends "
          "with status 76",
          {.needs = {validated}, .on_resume = OnResume::kFree});
  v.field("log_every", c.log_every, "steps, or epoch",
          {.range = from(1), .on_resume = OnResume::kFree});
  v.field("log_format", c.log_format, help_of_lines().c_str(), {.on_resume = OnResume::kFree});
  v.field("eval_every", c.eval_every, "steps, or epoch; 0: only at the end",
          {.aliases = {"eval_steps"}, .needs = {validated}, .on_resume = OnResume::kFree});
  v.field("eval_batches", c.eval_batches, "of the validation data; 0: all",
          {.range = from(0), .needs = {validated}, .on_resume = OnResume::kFree});
  visit_dtypes(v, c);
  v.field("freeze", c.freeze,
          "parameters that are not trained: Hugging Face names, * for any characters");
  v.section("loss_scale", "for f16", c.loss_scale, all);
  v.section("recompute", "of activations", c.recompute, all, OnResume::kFree);
  visit_attention(v, c, all);
  v.field("save_dtype", c.save_dtype,
          "of the saved weights; auto: that of the tensors in model.path, else f32 (f64 for f64)",
          {.needs = {saved}, .on_resume = OnResume::kFree});
  v.field("save", c.save, "the trained model at the end", {.on_resume = OnResume::kFree});
  v.field("max_shard_size", c.max_shard_size, "of one file of the saved model: 5GB, 300MB, 2GiB",
          {.needs = {saved}, .on_resume = OnResume::kFree});
}

void visit(Visitor& v, CheckpointSection& c, const TrainConfig& all) {
  const Need written = {!c.interval().never(), "without checkpoint.every"};
  const bool evaluated = !all.train.eval_every.never();
  v.field("every", c.every,
          "steps or time (30min) between checkpoints, from which --resume goes on; epoch: at the "
          "end of each; 0: none; auto: 30min, or none where there is no place for them",
          {.aliases = {"save_steps", "save_strategy"}});
  v.field("keep", c.keep, "the last ones, and the best one; 0: all",
          {.aliases = {"save_total_limit"},
           .range = from(0),
           .needs = {{written.met || c.keep == 0, written.without}}});
  v.field("best", c.best, "the value by which one of them is the best: the smallest is",
          {.aliases = {"metric_for_best_model"},
           .needs = {
               written,
               {evaluated || c.best != BestMetric::kValidationLoss, "without train.eval_every"}}});
  v.field("load_best", c.load_best, "the saved model is that of the best checkpoint",
          {.aliases = {"load_best_model_at_end"},
           .needs = {{c.best != BestMetric::kNone, "without checkpoint.best"},
                     {all.train.save, "with train.save: false"}}});
  v.field("folder", c.folder, "empty: checkpoints in the run directory");
  v.field("async", c.async,
          "a thread writes a copy of the state while training goes on; takes memory for the copy",
          {.needs = {written}, .memory = {.turn = 1, .choices = {{"false"}}}});
  v.field("required", c.required,
          "one that cannot be written ends the run; false: the run says so and goes on",
          {.needs = {written}});
  v.field("verify", c.verify, "what is read of a checkpoint is compared with its checksums");
  v.field("max_steps_back", c.max_steps_back,
          "how many damaged checkpoints --resume passes over on its way to an older one",
          {.range = from(0)});
  v.field("unit_hashes", c.unit_hashes,
          "hashes of each unit's weights and gradient, every step: fsdp replay names the unit in "
          "which a difference began",
          {.needs = {
               written,
               {all.train.attention_deterministic, "with train.attention_deterministic: false"}}});
}

void visit(Visitor& v, SampleSection& c, const TrainConfig& all) {
  const Need sampled = {c.tokens > 0, "without sample.tokens"};
  v.field("prompt", c.prompt, "text that the trained model continues", {.needs = {sampled}});
  v.field("tokens", c.tokens, "how many; 0: no sample",
          {.range = from(0), .needs = {text_needed(all.data)}});
  v.field("temperature", c.temperature, "0: greedy", {.range = from(0), .needs = {sampled}});
  v.field(
      "top_k", c.top_k, "0: all tokens",
      {.range = from(0), .needs = {sampled, {c.temperature > 0, "with sample.temperature: 0"}}});
}

}  // namespace fsdp::config
