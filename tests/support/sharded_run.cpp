// The runs: models, batches dealt to ranks, and the order of a step.
#include "tests/support/sharded_run.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <mutex>

#include <doctest/doctest.h>
#include <unistd.h>

#include "core/ops/cross_entropy.h"
#include "core/ops/embedding.h"
#include "kernels/cpu/file_backend.h"
#include "models/input_rules.h"
#include "models/weights.h"
#include "tools/engine/session_options.h"

namespace fsdp::test {
namespace {

constexpr int64_t kLength = 7;  // of a sequence
constexpr int64_t kVocabulary = 31;

}  // namespace

// ---------------------------------------------------------------------------- Models

models::ModelConfig small_gpt2() {
  models::ModelConfig c = models::family_defaults("gpt2");
  c.vocabulary = kVocabulary;
  c.hidden = 24;
  c.layers = 3;
  c.heads = c.kv_heads = 4;
  c.head_dim = 6;
  c.ffn = 37;
  c.max_positions = 9;
  c.initializer_range = 0.1;
  c.embedding_dropout = c.attention_dropout = c.residual_dropout = 0.2;
  models::validate(c);
  return c;
}

models::ModelConfig small_llama() {
  models::ModelConfig c = models::family_defaults("llama");
  c.vocabulary = kVocabulary;
  c.hidden = 24;
  c.layers = 3;
  c.heads = 6;
  c.kv_heads = 2;
  c.head_dim = 4;
  c.ffn = 29;
  c.max_positions = 9;
  c.initializer_range = 0.1;
  c.attention_dropout = c.residual_dropout = 0.2;
  models::validate(c);
  return c;
}

models::ModelConfig small_qwen2() {
  models::ModelConfig c = models::family_defaults("qwen2");
  c.vocabulary = kVocabulary;
  c.hidden = 24;
  c.layers = 3;
  c.heads = 8;
  c.kv_heads = 4;
  c.head_dim = 16;
  c.ffn = 40;
  c.max_positions = 9;
  c.initializer_range = 0.1;
  c.attention_dropout = c.residual_dropout = 0.2;
  models::validate(c);
  return c;
}

models::ModelConfig small_fairseq() {
  models::ModelConfig c = models::family_defaults("transformer_lm_gpt3");
  c.vocabulary = kVocabulary;
  c.hidden = 24;
  c.layers = 3;
  c.heads = c.kv_heads = 4;
  c.head_dim = 6;
  c.ffn = 37;
  c.max_positions = 9;
  c.initializer_range = 0.1;
  models::validate(c);
  return c;
}

models::ModelConfig small_workshop() {
  models::ModelConfig c = models::family_defaults("workshop_gpt");
  c.vocabulary = kVocabulary;
  c.hidden = 24;
  c.layers = 3;
  c.heads = c.kv_heads = 4;
  c.head_dim = 6;
  c.ffn = 37;
  c.max_positions = 9;
  c.initializer_range = 0.1;
  models::validate(c);
  return c;
}

comm::WrapPolicy wrap_blocks_and_ends(const models::ModelConfig& config) {
  return wrap_of({.model = config, .split_root = true});
}

SubjectFactory causal_lm(const models::ModelConfig& config, RecomputeMode recompute,
                         int64_t every) {
  return [config, recompute, every](Backend& backend, DType dtype) {
    auto model = std::make_unique<models::CausalLM>(config, backend, dtype, kLength);
    model->set_recompute(recompute, every);
    models::CausalLM* lm = model.get();
    return Subject{
        std::move(model), config.block_class,
        [lm](const Pass& p) { return lm->loss(p.tokens, p.labels, p.context, p.gradient_scale); },
        recompute == RecomputeMode::kOffload};
  };
}

namespace {

class BlockList final : public Module {
 public:
  BlockList(const models::ModelConfig& config, Backend& backend, DType dtype,
            RecomputeMode recompute)
      : Module("", "BlockList"),
        config_(config),
        rope_(models::make_rope_tables(config_, backend, accumulation_dtype(dtype), kLength)) {
    table_ = &add_parameter("table", Shape{config_.vocabulary, config_.hidden},
                            {0, config_.initializer_range}, true);
    for (int64_t i = 0; i < config_.layers; ++i) {
      blocks_.push_back(&add_child<models::Block>(fmt::format("blocks.{}", i),
                                                  models::BlockSpec{config_, i, rope_}));
    }
    for (models::Block* block : blocks_) block->set_recompute(recompute);
  }

  Tensor loss(const Pass& p, const std::vector<int>& order) {
    return run(Tensor(), [&](const Tensor&) {
      Tensor x = ops::embedding(p.tokens, *table_, nullptr);
      for (const int i : order) x = (*blocks_[static_cast<size_t>(i)])(x, p.context);
      return ops::linear_cross_entropy(x, *table_, p.labels, p.gradient_scale);
    });
  }

 private:
  models::ModelConfig config_;
  models::RopeTablesPtr rope_;
  Parameter* table_;
  std::vector<models::Block*> blocks_;
};

}  // namespace

SubjectFactory block_list(const models::ModelConfig& config, BlockOrder order,
                          RecomputeMode recompute) {
  return [config, order = std::move(order), recompute](Backend& backend, DType dtype) {
    auto model = std::make_unique<BlockList>(config, backend, dtype, recompute);
    BlockList* list = model.get();
    return Subject{std::move(model), config.block_class,
                   [list, order](const Pass& p) { return list->loss(p, order(p)); },
                   recompute == RecomputeMode::kOffload};
  };
}

// ---------------------------------------------------------------------------- One rank

namespace {

std::unique_ptr<Backend> make_file(const RunSpec& spec, cpu::CpuOptions options, int rank) {
  // In memory, where it can be: these runs are about order, and have many files.
  std::filesystem::path folder = spec.offload_folder;
  if (folder.empty()) folder = "/dev/shm";
  if (::access(folder.c_str(), W_OK) != 0) folder = std::filesystem::temp_directory_path();
  if (spec.file_backend) return spec.file_backend(folder.string(), std::move(options));
  return std::make_unique<cpu::FileBackend>(folder, fmt::format("rank {}", rank),
                                            std::move(options));
}

Places places_of(const RunSpec& spec, int rank) {
  const auto options = [rank](const auto& of_rank) {
    return of_rank ? of_rank(rank) : cpu::CpuOptions{};
  };
  Places places;
  places.device =
      spec.backend ? spec.backend(rank) : std::make_unique<cpu::CpuBackend>(options(spec.cpu));
  places.host = [=](Backend&) -> std::unique_ptr<Backend> {
    cpu::CpuOptions host = options(spec.host);
    host.compute_name = "host";  // as tools/launch names its stream
    if (spec.host_backend) return spec.host_backend(std::move(host));
    return std::make_unique<cpu::CpuBackend>(std::move(host));
  };
  places.file = [=](Backend&) { return make_file(spec, options(spec.host), rank); };
  return places;
}

Subject make_subject(const RunSpec& spec, Backend& device) {
  Subject subject = spec.subject(device, spec.fsdp.param_dtype);
  for (Parameter* parameter : subject.module->parameters()) {
    if (spec.frozen && spec.frozen(*parameter)) parameter->set_trainable(false);
  }
  return subject;
}

EngineOptions engine_options(const RunSpec& spec, const Subject& subject) {
  return {.wrap = spec.wrap ? spec.wrap : comm::wrap_classes({subject.block_class}),
          .fsdp = spec.fsdp,
          .step = {.optimizer = spec.optimizer,
                   .matrices = spec.matrices,
                   .clip_norm = spec.clip_norm,
                   .clip_power = spec.clip_power,
                   .loss_scale = spec.loss_scale},
          .inputs_on_host = subject.inputs_on_host};
}

}  // namespace

RankRun::RankRun(comm::Communicator& world, const RunSpec& spec)
    : RankRun(world, spec, places_of(spec, world.rank())) {}

RankRun::RankRun(comm::Communicator& world, const RunSpec& spec, Places&& places)
    : RankRun(world, spec, std::move(places), make_subject(spec, *places.device)) {}

RankRun::RankRun(comm::Communicator& world, const RunSpec& spec, Places&& places, Subject&& subject)
    : Engine(world, std::move(places), std::move(subject.module), engine_options(spec, subject)),
      spec_(spec),
      acting_rank_(world.rank()),
      subject_(std::move(subject)) {
  initialise(models::from_scratch(17));
  if (spec_.prepared) spec_.prepared(*this);
}

// Sequences count upwards by 1, 2 or 3 from a start; two batches take turns, so that they are
// learnt.
//
// With fixed_order the rows of all ranks' first micro-step come first.
Tensor RankRun::forward(int step, int pass) {
  const int64_t passes = int64_t{spec_.fsdp.micro_steps} * spec_.forwards;
  const int64_t parts = spec_.passes > 0 ? spec_.passes : spec_.ranks * passes;
  FSDP_CHECK(spec_.rows % parts == 0, "[run] rows: {} do not divide by {}", spec_.rows, parts);
  const int64_t rows = spec_.rows / parts;
  const int64_t in_turn =
      (pass / spec_.forwards * spec_.ranks + acting_rank_) * spec_.forwards + pass % spec_.forwards;
  const int64_t place = spec_.fsdp.fixed_order ? in_turn % parts : acting_rank_ * passes + pass;
  const int64_t first = place * rows;
  std::vector<int32_t> tokens, labels;
  std::vector<int64_t> samples;
  for (int64_t row = first; row < first + rows; ++row) {
    const int64_t sample = row + (step % 2) * spec_.rows;
    samples.push_back(row + step * spec_.rows);
    const auto token = [&](int64_t t) {
      return static_cast<int32_t>((5 * sample + t * (1 + sample % 3)) % kVocabulary);
    };
    for (int64_t t = 0; t < kLength; ++t) {
      tokens.push_back(token(t));
      labels.push_back(t + 1 < kLength ? token(t + 1) : kIgnoreIndex);
    }
  }
  if (bad_label != 0) labels[0] = bad_label;
  const Tensor token_tensor = Tensor::from_host(backend(), Shape{rows, kLength}, tokens);
  const Tensor label_tensor = Tensor::from_host(backend(), Shape{rows * kLength}, labels);
  samples_.push_back(Tensor::from_host(backend(), Shape{rows}, samples));
  // The reduction averages over the ranks, or adds; the mean is over all labels of the global
  // batch.
  const int averaged = spec_.fsdp.fixed_order ? 1 : spec_.ranks;
  const double unseen = has_pass(pass) ? 1 : 1e3;
  const double scale = unseen * averaged / static_cast<double>(spec_.rows * (kLength - 1));
  return subject_.loss({.tokens = token_tensor,
                        .labels = label_tensor,
                        .context = {.training = spec_.training,
                                    .dropout = {.seed = 5, .step = static_cast<uint32_t>(step)},
                                    .samples = &samples_.back()},
                        .gradient_scale = scale * gradient_factor,
                        .step = step,
                        .micro_step = pass / spec_.forwards});
}

bool RankRun::has_pass(int pass) const {
  return spec_.passes == 0 || pass * spec_.ranks + acting_rank_ < spec_.passes;
}

void RankRun::forward_backward(int step) {
  if (spec_.fsdp.update_in_backward) steps().begin_update(spec_.learning_rate);
  for (int micro_step = 0; micro_step < spec_.fsdp.micro_steps; ++micro_step) {
    std::vector<TrainStep::Forward> forwards;
    for (int i = 0; i < spec_.forwards; ++i) {
      const int pass = micro_step * spec_.forwards + i;
      forwards.push_back({.loss = [this, step, pass] { return forward(step, pass); },
                          .weight = has_pass(pass) ? 1.0 : 0.0});
    }
    std::optional<int> with_pass;
    if (spec_.passes > 0) {
      with_pass = std::min(spec_.passes - micro_step * spec_.ranks, spec_.ranks);
    }
    steps().micro_step(forwards, with_pass);
    samples_.clear();
  }
}

void RankRun::backward_again(int step) {
  tape().backward(forward(step, 0));
  sharded().finish_backward();
  samples_.clear();
}

// Every rank's gradient is in reduce_dtype already. The sum is in its accumulation dtype, which is
// that of the shard, and so is the quotient, which is then rounded. fixed_order has only the sum.
// (Rounding a sum or a quotient in double to float gives that of floats.)
void RankRun::forward_backward_of_all_ranks(int step) {
  const DType reduce_dtype = spec_.fsdp.reduce_dtype;
  const auto widen = [&](double v) {
    return reduce_dtype == DType::kF64 ? v : static_cast<double>(static_cast<float>(v));
  };
  const auto narrow = [&](double v) {
    return reduce_dtype == DType::kBF16
               ? static_cast<double>(static_cast<float>(BFloat16(static_cast<float>(v))))
               : v;
  };
  std::vector<Tensor> shards;
  for (const auto& unit : sharded().units()) {
    if (unit->gradients) shards.push_back(unit->gradients->shard());
  }
  std::vector<std::vector<double>> sums;
  double loss = 0;
  for (acting_rank_ = 0; acting_rank_ < spec_.ranks; ++acting_rank_) {
    if (acting_rank_ > 0) steps().restart();
    forward_backward(step);
    loss += steps().handle().read().loss;
    for (size_t u = 0; u < shards.size(); ++u) {
      const std::vector<double> own = shards[u].to_doubles();
      if (acting_rank_ == 0) sums.push_back(own);
      for (size_t i = 0; acting_rank_ > 0 && i < own.size(); ++i) {
        sums[u][i] = widen(sums[u][i] + own[i]);
      }
    }
  }
  for (size_t u = 0; u < sums.size(); ++u) {
    for (double& sum : sums[u]) {
      if (!spec_.fsdp.fixed_order) sum = narrow(widen(sum / spec_.ranks));
    }
    if (shards[u].dtype() == DType::kF64) {
      shards[u].write(sums[u].data());
    } else {
      shards[u].write(std::vector<float>(sums[u].begin(), sums[u].end()).data());
    }
  }
  loss_of_all_ranks_ = loss;
}

void RankRun::update() {
  taken_.push_back({steps().update(spec_.learning_rate), loss_of_all_ranks_});
  loss_of_all_ranks_.reset();
}

void RankRun::step(int step) {
  if (spec_.before_step) spec_.before_step(*this, step);
  forward_backward(step);
  if (spec_.keep_gradients && step == spec_.steps - 1) collect_gradients();
  update();
}

std::vector<TraceEvent> RankRun::traced_step(int number) {
  wait();
  backend().set_trace(&trace);
  step(number);
  wait();
  backend().set_trace(nullptr);
  return trace.events();
}

void RankRun::wait() { backend().synchronize(backend().compute_stream()); }

void RankRun::recover(size_t steps_done) {
  steps().recover();
  while (taken_.size() > steps_done) taken_.pop_back();
}

void RankRun::collect_gradients() {
  visit_gradients(sharded(), [&](const Parameter& p, const Tensor& values) {
    result_.gradients[p.name()] = values.to_doubles();
  });
}

RunResult RankRun::result() {
  visit_parameters(sharded(), [&](const Parameter& p, const Tensor& values) {
    result_.parameters[p.name()] = values.to_doubles();
  });
  wait();
  result_.losses.clear();
  result_.norms.clear();
  for (const Step& step : taken_) {
    const StepValues values = step.handle.read();
    result_.losses.push_back(step.loss.value_or(values.loss));
    result_.norms.push_back(values.grad_norm);
  }
  return result_;
}

RunResult train_on(comm::Communicator& world, const RunSpec& spec) {
  RankRun run(world, spec);
  for (int step = 0; step < spec.steps; ++step) run.step(step);
  return run.result();
}

RunResult train_as_one_rank(RunSpec spec) {
  spec.fsdp = {.param_dtype = spec.fsdp.param_dtype,
               .reduce_dtype = spec.fsdp.reduce_dtype,
               .master_dtype = spec.fsdp.master_dtype,
               .fixed_order = spec.fsdp.fixed_order,
               .rounding_seed = spec.fsdp.rounding_seed};
  RunResult result;
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    RankRun run(world, spec);
    for (int step = 0; step < spec.steps; ++step) {
      run.forward_backward_of_all_ranks(step);
      run.update();
    }
    result = run.result();
  });
  return result;
}

RunResult train(const RunSpec& spec) {
  std::vector<RunResult> results(static_cast<size_t>(spec.ranks));
  comm::run_local_ranks(spec.ranks, [&](comm::Communicator& world) {
    results[static_cast<size_t>(world.rank())] = train_on(world, spec);
  });
  for (const RunResult& result : results) CHECK((result == results[0]));
  return results[0];
}

void evaluate_between_steps(RankRun& run, int) {
  auto& model = static_cast<models::CausalLM&>(run.module());
  const std::vector<int32_t> ids = {1, 4, 2, run.rank(), 5};
  const Tensor tokens = Tensor::from_host(run.backend(), Shape{1, 5}, ids);
  const Tensor labels =
      Tensor::from_host(run.backend(), Shape{5}, models::shifted_labels(ids, 1, 5));
  const auto evaluate = [&] {
    double loss = 0;
    run.steps().evaluate([&] { loss = model.loss(tokens, labels, {}, 1).item(); });
    return loss;
  };
  const double first = evaluate();
  CHECK(evaluate() == first);
}

// ---------------------------------------------------------------------------- Comparison

namespace {

double difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]) / std::abs(b[i]);
    if (!(d <= largest)) largest = std::isnan(d) ? INFINITY : d;
  }
  return largest;
}

}  // namespace

double loss_difference(const RunResult& a, const RunResult& b) {
  return difference(a.losses, b.losses);
}

double norm_difference(const RunResult& a, const RunResult& b) {
  return difference(a.norms, b.norms);
}

double largest_difference(const NamedValues& a, const NamedValues& b) {
  double largest = a.size() == b.size() ? 0 : INFINITY;
  for (const auto& [name, values] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.size() != values.size()) return INFINITY;
    double apart = 0, size = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double d = std::abs(values[i] - other->second[i]);
      if (!(d <= apart)) apart = std::isnan(d) ? INFINITY : d;
      size = std::max(size, std::abs(other->second[i]));
    }
    if (apart > 0) largest = std::max(largest, apart / size);
  }
  return largest;
}

cpu::CpuOptions random_delays(uint64_t seed, int longest_us) {
  cpu::CpuOptions options;
  const auto count = std::make_shared<std::atomic<uint32_t>>(0);
  options.delay = [=](const std::string& stream, std::string_view) {
    const Philox4x32 words =
        philox4x32({count->fetch_add(1), 0, 0, 0},
                   {static_cast<uint32_t>(seed), static_cast<uint32_t>(hash_name(stream))});
    // Mostly none, so that streams overtake each other instead of all being slow.
    return words[0] % 4 == 0 ? static_cast<int>(words[1] % static_cast<uint32_t>(longest_us)) : 0;
  };
  return options;
}

}  // namespace fsdp::test
