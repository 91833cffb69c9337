// Lines of the table: kernels that pass over the flat shard of a unit (copies, casts, the norm and
// the optimizer), and those that work on a few scalars.
#include <algorithm>

#include <fmt/format.h>

#include "core/optimizer_rules/list.h"
#include "core/shard_args.h"
#include "tools/bench/kernel_case.h"

namespace fsdp::tools {
namespace {

// What the lines below are written in.
class ShardLines {
 public:
  ShardLines(const KernelExtents& extents, std::vector<KernelCase>& table)
      : n(extents.elements),
        dtype(extents.compute),
        master(accumulation_dtype(extents.compute)),
        gradient(extents.gradient),
        table_(table) {}

  void add_memory();
  void add_optimizer();
  void add_tests_of_gradients();
  void add_scalars();

 private:
  Tensor tensor(Shape shape, DType of) { return Tensor::empty(meta_, shape, of); }
  Tensor flat(DType of) { return tensor(Shape{n}, of); }
  void add(Kernel kernel, const std::string& variant, KernelBar bar, int64_t elements) {
    table_.push_back({variant, fmt::format("{}", elements), bar, meta::kernel_call(kernel)});
  }
  void add(Kernel kernel, const std::string& variant = "", KernelBar bar = kOptimizerBar) {
    add(kernel, variant, bar, n);
  }
  void add_update(Kernel kernel, std::string variant = "") {
    if (has_copy()) variant += variant.empty() ? "with copy" : ", with copy";
    add(kernel, variant);
  }
  bool has_copy() const { return dtype != master; }  // the values in the compute dtype

  const int64_t n;
  const DType dtype, master, gradient;
  meta::MetaBackend meta_;
  std::vector<KernelCase>& table_;
};

void ShardLines::add_memory() {
  table_.push_back(copy_line(n, dtype));
  Tensor grad = flat(gradient), wide = flat(master);
  table_.push_back({"", fmt::format("{}", n), {}, meta::fill_zero_call(grad.data(), grad.bytes())});
  add(FillNormalArgs{wide, 0, 0.02, /*seed=*/1, /*name_hash=*/2, 0}, "", {});
  Tensor narrow = flat(has_copy() ? dtype : DType::kBF16);
  add(CastArgs{wide, narrow}, "to 16 bits");
  add(CastArgs{narrow, wide}, "from 16 bits");
  const Tensor exact = flat(DType::kF32);
  Tensor rounded = flat(DType::kBF16);
  const std::vector<ParameterRun> runs = {{0, n, /*name_hash=*/2, 0}};
  add(StochasticRoundArgs{.x = exact, .out = rounded, .runs = runs, .seed = 1});
  add(DivideArgs{grad, 1.0001});
}

void ShardLines::add_optimizer() {
  Tensor values = flat(master), first = flat(master), second = flat(master), copy = flat(dtype);
  const Tensor grad = flat(gradient), count = tensor(Shape{1}, DType::kI32);
  const Tensor learning_rate = tensor(Shape{}, DType::kF64), skip = tensor(Shape{}, DType::kI32);
  const Tensor gradient_scale = tensor(Shape{}, accumulation_dtype(gradient));
  const std::vector<ShardSegment> segments = {{0, n, /*decay=*/true, 0}};
  const ShardUpdate shard = {.master = values,
                             .grad = grad,
                             .copy = has_copy() ? &copy : nullptr,
                             .segments = segments,
                             .step_counts = count,
                             .present = count,
                             .learning_rate = learning_rate,
                             .gradient_scale = gradient_scale,
                             .skip = skip,
                             .weight_decay = 0.1};
  const auto add_rule = [&]<typename Rule>(const Rule& rule, const std::string& variant = "") {
    UpdateArgs<Rule> update = {.shard = shard, .rule = rule};
    Tensor* const states[] = {&first, &second};
    std::copy_n(states, rules::states_of(rule), update.state.begin());
    const bool decoupled = Rule::kName == "adamw";
    add_update(update, decoupled ? "decoupled" : variant);
    if (decoupled) table_.back().kernel = "adam";
  };
#define FSDP_LINE(_, Rule) add_rule(rules::Rule());
  FSDP_RULES(FSDP_LINE, )
#undef FSDP_LINE
  add_rule(rules::Sgd{.momentum = 0.9}, "momentum");
}

void ShardLines::add_tests_of_gradients() {
  const Tensor x = flat(gradient);
  Tensor sum = tensor(Shape{}, DType::kF64), flag = tensor(Shape{}, DType::kI32);
  const std::vector<std::pair<int64_t, int64_t>> spans = {{0, n}};
  add(PowerSumArgs{.x = x, .spans = spans, .power = 2, .out = sum});
  add(OverflowArgs{.x = x, .limit = largest_finite(dtype), .flag = flag});
}

void ShardLines::add_scalars() {
  constexpr int64_t kParameters = 16;  // of a block
  Tensor counts = tensor(Shape{kParameters}, DType::kI32);
  const Tensor present = tensor(Shape{kParameters}, DType::kI32);
  Tensor flag = tensor(Shape{}, DType::kI32), other = tensor(Shape{}, DType::kI32);
  add(AdvanceStepsArgs{counts, present, flag}, "", {}, kParameters);
  const Tensor sum = tensor(Shape{}, DType::kF64);
  Tensor norm = tensor(Shape{}, DType::kF64);
  Tensor coefficient = tensor(Shape{}, accumulation_dtype(gradient));
  add(ClipArgs{.power_sum = sum,
               .power = 2,
               .max_norm = 1,
               .norm = norm,
               .coefficient = coefficient,
               .skip = flag},
      "", {}, 1);
  Tensor scale = tensor(Shape{}, DType::kF32), counters = tensor(Shape{3}, DType::kI32);
  add(
      LossScaleArgs{
          .rule = {}, .overflow = flag, .scale = scale, .counters = counters, .aborted = other},
      "", {}, 1);
}

}  // namespace

KernelCase copy_line(int64_t elements, DType dtype) {
  meta::MetaBackend meta;
  const Tensor from = Tensor::empty(meta, Shape{elements}, dtype),
               to = Tensor::empty(meta, Shape{elements}, dtype);
  return {"", fmt::format("{}", elements), {}, meta::copy_call(to.data(), from.data(), to.bytes())};
}

void add_shard_kernels(const KernelExtents& extents, std::vector<KernelCase>& table) {
  ShardLines lines(extents, table);
  lines.add_memory();
  lines.add_optimizer();
  lines.add_tests_of_gradients();
  lines.add_scalars();
}

}  // namespace fsdp::tools
