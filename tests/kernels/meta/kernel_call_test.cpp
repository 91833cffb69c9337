// Descriptions of calls: what a call made from one says of itself is what the first said; a CPU can
// run it; costs and texts of some.
#include "kernels/meta/kernel_call.h"

#include <cmath>
#include <map>
#include <set>

#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include "core/layer_args.h"
#include "core/optimizer_rules/list.h"
#include "core/shard_args.h"
#include "core/trace.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/meta/meta_backend.h"
#include "tests/support/tiny_models.h"
#include "tools/predict/meta_run.h"

namespace fsdp::meta {
namespace {

class Tensors final : public CallTensors {
 public:
  explicit Tensors(Backend& backend) : backend_(backend) {}
  Tensor make(const TensorForm& form) override {
    Tensor& tensor = by_address_[form.address];
    const Shape shape = form.shape;
    if (!tensor.defined()) tensor = Tensor::zeros(backend_, shape, form.dtype);
    if (form.role.content == TensorRole::Content::kOnes && form.dtype == DType::kI32) {
      tensor.write(std::vector<int32_t>(static_cast<size_t>(shape.numel()), 1).data());
    }
    return {tensor.storage(), 0, shape, form.dtype};
  }

 private:
  Backend& backend_;
  std::map<const void*, Tensor> by_address_;
};

std::string text_of(const KernelCall& call) {
  return fmt::format("{} {} {}: {} FLOPs, {} bytes", call.kernel, call.shape,
                     fsdp::name_of(call.dtype), call.cost.flops, call.cost.bytes);
}

// Keeps what it is asked about.
class Listener final : public CallTimes {
 public:
  explicit Listener(std::function<void(const KernelCall&)> heard) : heard_(std::move(heard)) {}
  double kernel_seconds(const KernelCall& call) override { return heard_(call), 0; }
  double host_kernel_seconds(const KernelCall&) override { return 0; }
  double host_copy_seconds(int64_t) override { return 0; }
  double file_seconds(int64_t bytes, bool writes) override {
    return static_cast<double>(bytes) * (writes ? 8e-3 : 4e-3);
  }
  double issue_seconds() override { return 0; }

 private:
  std::function<void(const KernelCall&)> heard_;
};

// The call, made again on another backend without bytes and on a CPU.
void check_again(const KernelCall& call) {
  CAPTURE(text_of(call));
  MetaBackend meta;
  std::vector<std::string> said;
  Tensors tensors(meta);
  const KernelRun run = call.prepare(tensors);
  meta.set_times(
      std::make_shared<Listener>([&](const KernelCall& again) { said.push_back(text_of(again)); }));
  run(meta, meta.compute_stream());
  run(meta, meta.compute_stream());
  CHECK(said == std::vector<std::string>{text_of(call), text_of(call)});

  cpu::CpuBackend cpu;
  Tensors real(cpu);
  const KernelRun on_cpu = call.prepare(real);
  cpu.synchronize(cpu.compute_stream());
  Trace trace;
  cpu.set_trace(&trace);
  on_cpu(cpu, cpu.compute_stream());
  cpu.set_trace(nullptr);
  cpu.synchronize(cpu.compute_stream());
  REQUIRE(!trace.events().empty());  // a product and its activation are two
  CHECK(trace.events()[0].name == call.kernel);
}

// Distinct calls of two steps.
std::map<std::string, KernelCall> calls_of(const tools::PlacedOptions& options, int ranks) {
  std::map<std::string, KernelCall> calls;
  tools::MetaRun run(options, ranks);
  run.load(models::from_scratch(0));
  run.phase("steps", [&](Session& session) {
    auto& backend = dynamic_cast<MetaBackend&>(session.backend());
    backend.set_times(std::make_shared<Listener>(
        [&](const KernelCall& call) { calls.emplace(text_of(call), call); }));
    const auto batch = tools::synthetic_batch(options.model, 4, 7, 0, ranks);
    for (uint32_t step = 0; step < 2; ++step) session.train_step(batch, 0, step).read();
  });
  return calls;
}

}  // namespace

TEST_CASE("calls of training steps can be made again: every family, three dtypes") {
  std::set<std::string_view> kernels;
  for (const models::ModelConfig& model : test::tiny_of_every_family(2)) {
    tools::PlacedOptions options;
    options.model = model;
    options.model.residual_dropout = options.model.attention_dropout = 0.1;
    options.max_length = 7;
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      options.fsdp.param_dtype = dtype;
      if (dtype == DType::kF16) options.loss_scale.initial = 1024;
      for (const auto& [text, call] : calls_of(options, dtype == DType::kF32 ? 1 : 2)) {
        kernels.insert(call.kernel);
        check_again(call);
      }
    }
  }
  std::vector<std::string> missing;
  for (const char* kernel : {"matmul",
                             "sum_rows",
                             "layer_norm_forward",
                             "layer_norm_backward",
                             "rms_norm_forward",
                             "rms_norm_backward",

                             "activation_backward",
                             "glu_forward",
                             "glu_backward",
                             "rope",
                             "attention_forward",
                             "attention_backward",
                             "embedding_forward",
                             "embedding_backward",
                             "position_backward",
                             "dropout",
                             "cross_entropy",
                             "add",
                             "cast",
                             "divide",
                             "adamw",
                             "advance_steps",
                             "power_sum",
                             "clip_coefficient",
                             "find_overflow",
                             "update_loss_scale",
                             "copy",
                             "fill_zero"}) {
    if (!kernels.contains(kernel)) missing.emplace_back(kernel);
  }
  CHECK(fmt::format("{}", fmt::join(missing, " ")) == "");
}

TEST_CASE("calls that those steps do not make") {
  MetaBackend meta;
  const auto tensor = [&](Shape shape, DType dtype = DType::kF32) {
    return Tensor::empty(meta, shape, dtype);
  };
  const Tensor heads = tensor(Shape{2, 3, 8}), room = tensor(Shape{2, 5, 8});
  check_again(kernel_call(CopyHeadsArgs{{&heads, 2, 4, 0, 4}, {&room, 2, 4, 0, 4}, 1}));
  const Tensor rows = tensor(Shape{4, 6});
  Tensor activated = tensor(Shape{4, 6}), filled = tensor(Shape{9});
  check_again(kernel_call(ActivationForwardArgs{Activation::kMish, rows, activated}));
  check_again(kernel_call(FillNormalArgs{filled, 1, 0.5, 0, 0, 0}));
  const std::vector<ParameterRun> runs = {{0, 9, 1, 0}};
  const Tensor wide = tensor(Shape{9});
  Tensor narrow = tensor(Shape{9}, DType::kBF16);
  check_again(kernel_call(StochasticRoundArgs{.x = wide, .out = narrow, .runs = runs}));
  Tensor master = tensor(Shape{9}), momentum = tensor(Shape{9});
  const Tensor count = tensor(Shape{1}, DType::kI32), flag = tensor(Shape{}, DType::kI32);
  const Tensor rate = tensor(Shape{}, DType::kF64), scale = tensor(Shape{});
  const std::vector<ShardSegment> segments = {{0, 9, false, 0}};
  Tensor other = tensor(Shape{9});
  const ShardUpdate shard = {.master = master,
                             .grad = wide,
                             .segments = segments,
                             .step_counts = count,
                             .present = count,
                             .learning_rate = rate,
                             .gradient_scale = scale,
                             .skip = flag,
                             .weight_decay = 0};
  check_again(kernel_call(UpdateArgs<rules::Sgd>{shard, {&momentum}, {.momentum = 0.9}}));
  check_again(kernel_call(UpdateArgs<rules::Adamax>{shard, {&momentum, &other}}));
  check_again(kernel_call(UpdateArgs<rules::Adadelta>{shard, {&momentum, &other}}));
}

TEST_CASE("the text of a call has what its time depends on; weights come from memory") {
  MetaBackend meta;
  const Tensor x = Tensor::empty(meta, Shape{6, 4}, DType::kBF16);
  const Tensor weight = Tensor::empty(meta, Shape{5, 4}, DType::kBF16);
  const Tensor bias = Tensor::empty(meta, Shape{5}, DType::kBF16);
  Tensor y = Tensor::empty(meta, Shape{6, 5}, DType::kBF16);
  Tensor gradient = Tensor::empty(meta, Shape{5, 4}, DType::kF32);
  const KernelCall forward =
      kernel_call(MatmulArgs{.a = x, .b = weight, .c = y, .transpose_b = true, .bias = &bias});
  CHECK(text_of(forward) ==
        "matmul 6 x 4, 5 x 4, 6 x 5; b transposed, bias bf16: 240 FLOPs, 148 bytes");
  const KernelCall backward = kernel_call(
      MatmulArgs{.a = y, .b = x, .c = gradient, .transpose_a = true, .accumulate = true});
  CHECK(text_of(backward) ==
        "matmul 6 x 5, 6 x 4, 5 x 4 f32; a transposed, added bf16: 240 FLOPs, 268 bytes");
  struct Places final : CallTensors {
    Tensor make(const TensorForm& form) override {
      text += form.role.from_memory ? 'M' : 'c';
      return {};
    }
    std::string text;
  } places;
  static_cast<void>(forward.prepare(places));
  static_cast<void>(backward.prepare(places));
  CHECK(places.text == "cMcMccM");  // a b c bias; a b c
}

// Else tools/predict would measure, and keep, the attention of every batch.
TEST_CASE("the text of attention: rows of about as many pairs are one call") {
  MetaBackend meta;
  constexpr int64_t kRows = 2, kLength = 1024, kWhole = kRows * kLength * (kLength + 1) / 2;
  const Tensor x = Tensor::empty(meta, Shape{kRows, kLength, 8}, DType::kBF16);
  const Tensor documents = Tensor::empty(meta, Shape{kRows, kLength}, DType::kI32);
  Tensor out = Tensor::empty(meta, x.shape(), DType::kBF16);
  Tensor sums = Tensor::empty(meta, Shape{kRows, 4, kLength}, DType::kF32);
  const HeadView view = {&x, 4, 2, 0, 2};
  AttentionArgs attention = {.q = view, .k = view, .v = view, .scale = 1, .dropout = {}};
  attention.first_key = &documents;
  const auto text = [&](double share) {
    attention.pairs = std::max<int64_t>(1, std::llround(share * kWhole));
    return kernel_call(AttentionForwardArgs{attention, out, sums}).shape;
  };
  CHECK(text(1).ends_with(", 100 % of pairs, documents"));
  for (const double around : {0.5, 0.125, 1 / 128.0}) {
    CAPTURE(around);
    CHECK(text(1.1 * around) == text(around / 1.1));
    CHECK(text(1.5 * around) != text(around));
  }
  std::set<std::string> texts;
  for (int64_t i = 1; i <= 10000; ++i) texts.insert(text(static_cast<double>(i) / 10000));
  CHECK(texts.size() == 26);  // two for each halving, down to 0.01 %
}

TEST_CASE("what the rate of a call depends on: extents of products and of attention") {
  MetaBackend meta;
  const Tensor x = Tensor::empty(meta, Shape{2, 6, 8}, DType::kBF16);
  Tensor out = Tensor::empty(meta, Shape{2, 6, 8}, DType::kBF16);
  Tensor sums = Tensor::empty(meta, Shape{2, 4, 6}, DType::kF32);
  const HeadView view = {&x, 4, 2, 0, 2};
  AttentionArgs attention = {.q = view, .k = view, .v = view, .scale = 1, .dropout = {}};
  const KernelCall forward = kernel_call(AttentionForwardArgs{attention, out, sums});
  CHECK(forward.attention == AttentionExtents{.head_dim = 2, .keys = 6});
  CHECK(!forward.product);
  attention.keys = 5;
  CHECK(kernel_call(AttentionForwardArgs{attention, out, sums}).attention->keys == 5);
  const Tensor documents = Tensor::empty(meta, Shape{2, 6}, DType::kI32);
  attention.keys = 0;
  attention.first_key = &documents;
  attention.pairs = 20;
  const KernelCall apart = kernel_call(AttentionForwardArgs{attention, out, sums});
  CHECK(apart.shape.ends_with("; 4 heads of 2, 50 % of pairs, documents"));  // of 42
  CHECK(apart.cost.flops == 2 * 2 * 20 * 8);
  check_again(apart);
  const KernelCall sum = kernel_call(AddArgs{x, x, out});
  CHECK(!sum.attention);
  CHECK(!sum.product);
}

}  // namespace fsdp::meta
