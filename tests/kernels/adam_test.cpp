// AdamW and Adam against PyTorch's recorded steps (tests/fixtures/adamw.*), segments and flags,
// copies.
#include "core/io/json.h"
#include "core/io/safetensors.h"
#include "tests/support/kernel_support.h"
#include "tests/support/temp_folder.h"

namespace fsdp::test {
namespace {

struct Hyperparameters {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01;
  bool decoupled = true;
};

// One flat shard and everything Adam reads from device memory.
struct Shard {
  Backend& backend;
  Tensor master, exp_avg, exp_avg_sq, copy, step_counts, skip;
  std::vector<ShardSegment> segments;

  Shard(Backend& of, const Values& start, DType dtype, DType copy_type, int64_t parameters = 1)
      : backend(of), segments({{0, int64_t(start.size()), true, 0}}) {
    const Shape shape = {int64_t(start.size())};
    master = make_tensor(backend, shape, dtype, start);
    exp_avg = Tensor::zeros(backend, shape, dtype);
    exp_avg_sq = Tensor::zeros(backend, shape, dtype);
    copy = make_tensor(backend, shape, copy_type, start);
    step_counts = Tensor::zeros(backend, {parameters}, DType::kI32);
    skip = Tensor::zeros(backend, {}, DType::kI32);
  }

  void step(const Tensor& grad, double rate, const Hyperparameters& h,
            const std::vector<int32_t>& present = {1}, double scale = 1) {
    const Tensor flags = Tensor::from_host(backend, {int64_t(present.size())}, present);
    const Tensor learning_rate = make_tensor(backend, {}, DType::kF64, {rate});
    const Tensor gradient_scale = make_tensor(backend, {}, master.dtype(), {scale});
    backend.advance_steps(backend.compute_stream(), step_counts, flags, skip);
    backend.adam(backend.compute_stream(), {.shard = {.master = master,
                                                      .grad = grad,
                                                      .copy = &copy,
                                                      .segments = segments,
                                                      .step_counts = step_counts,
                                                      .present = flags,
                                                      .learning_rate = learning_rate,
                                                      .gradient_scale = gradient_scale,
                                                      .skip = skip,
                                                      .weight_decay = h.weight_decay},
                                            .exp_avg = exp_avg,
                                            .exp_avg_sq = exp_avg_sq,
                                            .beta1 = h.beta1,
                                            .beta2 = h.beta2,
                                            .epsilon = h.epsilon,
                                            .decoupled = h.decoupled});
  }
};

class Fixture {
 public:
  static constexpr int64_t kSize = 24;

  Values row(const std::string& name, int64_t row) const {
    Values values(size_t{kSize});
    file_.read_elements(name, row * kSize, kSize, DType::kF64, values.data());
    return values;
  }
  std::vector<Json> configs() const {
    std::vector<Json> chosen;
    for (const Json& config : json_.at("configs")) {
      if (config.at("kind") != "sgd") chosen.push_back(config);
    }
    return chosen;
  }
  int64_t steps() const { return json_.at("steps"); }

 private:
  SafetensorsFile file_ = SafetensorsFile::open(test::fixture_path("adamw.safetensors"));
  Json json_ = read_json_file(test::fixture_path("adamw.json"));
};

struct Precision {
  std::string name;
  DType master, grad, copy;
  double limit;
};
const Precision kPrecisions[] = {{"f64", DType::kF64, DType::kF64, DType::kF64, 1e-12},
                                 {"f32", DType::kF32, DType::kF32, DType::kF32, 1e-6},
                                 {"mixed", DType::kF32, DType::kBF16, DType::kBF16, 1e-6}};

// exp_avg may cancel: its error counts against the largest gradient (and decay that is added to it)
// that its element has seen.
double average_error(const Values& actual, const Values& expected, const Values& largest) {
  double error = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double difference = std::abs(actual[i] - expected[i]);
    if (difference > 0) error = std::max(error, difference / largest[i]);
  }
  return error;
}

void check_step(const Shard& shard, const Fixture& fixture, const std::string& prefix,
                const Precision& p, int64_t step, const Values& largest) {
  const Values master = shard.master.to_doubles(), copy = shard.copy.to_doubles();
  CHECK(largest_error(master, fixture.row(prefix + ".param", step + 1), 0) < p.limit);
  CHECK(average_error(shard.exp_avg.to_doubles(), fixture.row(prefix + ".exp_avg", step), largest) <
        p.limit);
  CHECK(largest_error(shard.exp_avg_sq.to_doubles(), fixture.row(prefix + ".exp_avg_sq", step), 0) <
        p.limit);
  CHECK(copy == rounded(master, p.copy));
  if (p.name != "mixed") return;
  // one bf16 unit, where the master lies at a rounding boundary
  CHECK(largest_error(copy, fixture.row(prefix + ".model_param", step + 1), 0) < 0x1p-7);
}

TEST_CASE("AdamW and Adam take PyTorch's steps") {
  const Fixture fixture;
  REQUIRE(fixture.configs().size() == 8);
  for (const Json& config : fixture.configs()) {
    for (const Precision& p : kPrecisions) {
      const std::string name = config.at("name");
      CAPTURE(name);
      CAPTURE(p.name);
      const Json& options = config.at("options");
      Hyperparameters h;
      if (options.contains("betas")) {
        h.beta1 = options["betas"][0];
        h.beta2 = options["betas"][1];
      }
      h.epsilon = options.value("eps", h.epsilon);
      h.decoupled = config.at("kind") == "adamw";
      h.weight_decay = options.value("weight_decay", h.decoupled ? h.weight_decay : 0.0);
      cpu::CpuBackend backend(with_threads(2));
      Shard shard(backend, fixture.row(name + "." + p.name + ".param", 0), p.master, p.copy);
      Values largest(size_t{Fixture::kSize}, 0.0);
      for (int64_t step = 0; step < fixture.steps(); ++step) {
        const auto& absent = config.at("absent_steps");
        const bool present = std::find(absent.begin(), absent.end(), step) == absent.end();
        const auto& rates = config.at("lr_per_step");
        const double rate = rates.empty() ? double(options["lr"]) : double(rates[size_t(step)]);
        const Values values = fixture.row("grad." + std::string(name_of(p.grad)), step);
        const Tensor grad = make_tensor(backend, {Fixture::kSize}, p.grad, values);
        const Values before = shard.master.to_doubles();
        const double added = h.decoupled ? 0 : h.weight_decay;
        for (size_t i = 0; present && i < largest.size(); ++i) {
          largest[i] = std::max(largest[i], std::abs(values[i]) + added * std::abs(before[i]));
        }
        shard.step(grad, rate, h, {present});
        check_step(shard, fixture, name + "." + p.name, p, step, largest);
      }
    }
  }
}

Values apply(Values p, const Values& g, const Hyperparameters& h, double rate, bool decay) {
  for (size_t i = 0; i < p.size(); ++i) {  // the first step from zero state: m / sqrt(v) = sign
    if (decay) p[i] *= 1 - rate * h.weight_decay;
    p[i] -= rate * g[i] / (std::abs(g[i]) + h.epsilon);
  }
  return p;
}

TEST_CASE("segments: decay, absence and padding by parameter, on any number of threads") {
  const int64_t n = 100003;  // several grains, cut by the segments
  const Hyperparameters h;
  const Values start = random_values(n, 1), g = random_values(n, 2);
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    const auto out = on_any_threads([&](Backend& backend) {
      Shard shard(backend, start, dtype, dtype, 3);
      // unordered, with a gap (padding) before and after the last; parameter 1 is absent
      shard.segments = {{40000, 40001, true, 2},
                        {0, 33000, true, 0},
                        {33000, 40000, true, 1},
                        {40010, n - 2, false, 2}};
      shard.step(make_tensor(backend, {n}, dtype, g), 0.01, h, {1, 0, 1});
      return std::vector<Values>{shard.master.to_doubles(), shard.copy.to_doubles(),
                                 shard.step_counts.to_doubles()};
    });
    const Values decayed = apply(start, g, h, 0.01, true), plain = apply(start, g, h, 0.01, false);
    Values expected = start;
    std::copy(decayed.begin(), decayed.begin() + 33000, expected.begin());
    expected[40000] = decayed[40000];
    std::copy(plain.begin() + 40010, plain.end() - 2, expected.begin() + 40010);
    CHECK(largest_error(out[0], expected) < tolerance(dtype));
    CHECK(out[1] == out[0]);
    CHECK(out[2] == Values{1, 0, 1});
  }
}

TEST_CASE("skip leaves everything, the gradient scale multiplies the gradient") {
  cpu::CpuBackend backend;
  const Hyperparameters h = {.beta1 = 0.5, .beta2 = 0.5, .epsilon = 0.1};
  const Values start = random_values(33, 1), g = random_values(33, 2);
  Shard skipped(backend, start, DType::kF64, DType::kF64);
  skipped.skip = Tensor::from_host<int32_t>(backend, {}, {1});
  skipped.step(make_tensor(backend, {33}, DType::kF64, g), 0.1, h);
  CHECK(skipped.master.to_doubles() == start);
  CHECK(skipped.exp_avg_sq.to_doubles() == Values(33, 0.0));
  CHECK(skipped.step_counts.to_doubles() == Values{0});

  Values quarter = g;
  for (double& value : quarter) value *= 0.25;
  Shard scaled(backend, start, DType::kF64, DType::kF64);
  Shard plain(backend, start, DType::kF64, DType::kF64);
  scaled.step(make_tensor(backend, {33}, DType::kF64, g), 0.1, h, {1}, 0.25);
  plain.step(make_tensor(backend, {33}, DType::kF64, quarter), 0.1, h);
  CHECK(scaled.master.to_doubles() == plain.master.to_doubles());
}

}  // namespace
}  // namespace fsdp::test
