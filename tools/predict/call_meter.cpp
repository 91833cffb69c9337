// Memory for calls, and repetitions of them.
#include "tools/predict/call_meter.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <vector>

#include "core/io/state_file.h"
#include "core/layer_args.h"
#include "core/shard_args.h"
#include "core/trace.h"
#include "kernels/meta/meta_backend.h"
#include "tools/predict/machines.h"

namespace fsdp::tools {
namespace {

using Content = TensorRole::Content;

size_t bytes_of(const meta::TensorForm& form) {
  return rounded_bytes(static_cast<size_t>(form.shape.numel()) * size_of(form.dtype));
}

// Whole numbers mean something: they are not taken from a block of moderate ones. Nor are scalars,
// of which some are flags.
bool is_special(const meta::TensorForm& form) {
  return !is_floating(form.dtype) ||
         (form.shape.numel() == 1 && form.role.content != Content::kNumbers);
}

// Reads as moderate numbers in f32, and by halves in bf16 and f16: none is subnormal, which would
// be slow.
constexpr double kPattern = 0x1.033c34p-6;

// What a call takes of either block.
class Sizes final : public meta::CallTensors {
 public:
  Tensor make(const meta::TensorForm& form) override {
    if (is_special(form) || !seen_.insert(form.address).second) return {};
    (form.role.from_memory ? rotates : stays) += bytes_of(form);
    return {};
  }
  size_t stays = 0, rotates = 0;

 private:
  std::set<const void*> seen_;
};

}  // namespace

CallMeter::CallMeter(Backend& backend, CallMeterOptions options)
    : backend_(backend), options_(options) {}

Tensor CallMeter::Block::take(const meta::TensorForm& form) {
  const size_t bytes = bytes_of(form);
  if (next + bytes > memory.bytes()) next = 0;
  const Tensor taken(memory.storage(), static_cast<int64_t>(next), form.shape, form.dtype);
  next += bytes;
  return taken;
}

// Written again for each call: one call's result may be what another one reads. A norm that is not
// finite, of numbers without meaning, told the optimizer to skip.
Tensor CallMeter::special(const meta::TensorForm& form) {
  Tensor& tensor = special_[{form.role.content, form.dtype, form.shape.extents(), form.role.below}];
  if (!tensor.defined()) {
    tensor = Tensor::empty(backend_, form.shape, form.dtype, MemoryCategory::kWorkspace);
  }
  const auto count = static_cast<size_t>(form.shape.numel());
  if (is_floating(form.dtype)) {
    backend_.run(
        backend_.compute_stream(),
        FillNormalArgs{tensor, form.role.content == Content::kOnes ? 1.0 : 0.0, 0, 0, 0, 0});
    return tensor;
  }
  std::vector<int64_t> values(count, form.role.content == Content::kOnes);
  if (form.role.content == Content::kDocuments) {
    const auto length = static_cast<size_t>(form.shape.last());
    const auto document = static_cast<size_t>(form.role.document);
    for (size_t i = 0; i < count; ++i) {
      values[i] = static_cast<int64_t>(i % length / document * document);
    }
  }
  if (form.role.content == Content::kIndices) {
    for (size_t i = 0; i < count; ++i) {
      const double at = uniform_at(/*seed=*/0, hash_name("indices"), i);
      values[i] = static_cast<int64_t>(at * static_cast<double>(form.role.below));
    }
  }
  if (form.dtype == DType::kI64) {
    tensor.write(values.data());
  } else {
    tensor.write(std::vector<int32_t>(values.begin(), values.end()).data());
  }
  return tensor;
}

class CallMeter::Tensors final : public meta::CallTensors {
 public:
  explicit Tensors(CallMeter& meter) : meter_(meter) { meter.near_.next = 0; }
  Tensor make(const meta::TensorForm& form) override {
    if (is_special(form)) return meter_.special(form);
    Tensor& first = by_address_[form.address];
    if (!first.defined()) first = (form.role.from_memory ? meter_.far_ : meter_.near_).take(form);
    return {first.storage(), first.byte_offset(), form.shape, form.dtype};
  }

 private:
  CallMeter& meter_;
  std::map<const void*, Tensor> by_address_;
};

void CallMeter::make_room(size_t stays, size_t rotates) {
  const auto enlarge = [&](Block& block, size_t bytes) {
    if (block.memory.defined() && block.memory.bytes() >= bytes) return;
    block = {};  // before the larger one is taken
    const auto quarters = static_cast<int64_t>((bytes + 3) / 4);
    block.memory =
        Tensor::empty(backend_, Shape{quarters}, DType::kF32, MemoryCategory::kWorkspace);
    backend_.run(backend_.compute_stream(), FillNormalArgs{block.memory, kPattern, 0, 0, 0, 0});
  };
  enlarge(near_, std::max<size_t>(stays, 1));
  enlarge(far_, std::max(rotates, 2 * options_.cache_bytes));
}

void CallMeter::refill() {
  for (Block* block : {&near_, &far_}) {
    if (!block->memory.defined()) continue;
    backend_.run(backend_.compute_stream(), FillNormalArgs{block->memory, kPattern, 0, 0, 0, 0});
  }
}

// A slow machine: 20 GFLOP/s, 4 GB/s.
bool CallMeter::too_large(const meta::KernelCall& call) {
  const double seconds =
      static_cast<double>(call.cost.flops) / 20e9 + static_cast<double>(call.cost.bytes) / 4e9;
  if (seconds > options_.seconds_all) return true;
  Sizes sizes;
  static_cast<void>(call.prepare(sizes));
  if (sizes.stays + sizes.rotates > options_.most_bytes) return true;
  make_room(sizes.stays, sizes.rotates);
  return false;
}

std::optional<double> CallMeter::time_once(const meta::KernelCall& call) {
  if (too_large(call)) return std::nullopt;
  Stream& stream = backend_.compute_stream();
  Tensors tensors(*this);
  const meta::KernelRun run = call.prepare(tensors);
  backend_.synchronize(stream);
  Trace trace;
  backend_.set_trace(&trace);
  run(backend_, stream);
  backend_.set_trace(nullptr);
  backend_.synchronize(stream);
  const std::vector<TraceEvent> events = trace.events();
  if (events.empty()) return 0;  // nothing to do
  return static_cast<double>(events.back().end_ns - events.front().begin_ns) * 1e-9;
}

namespace {

constexpr size_t kAlike = 3;  // repetitions that settle a time

// The third least is within a twentieth of the least.
bool is_settled(std::vector<double> seconds) {
  if (seconds.size() < kAlike) return false;
  std::nth_element(seconds.begin(), seconds.begin() + (kAlike - 1), seconds.end());
  const double least = *std::min_element(seconds.begin(), seconds.begin() + kAlike);
  return seconds[kAlike - 1] <= 1.05 * least;
}

}  // namespace

std::optional<double> CallMeter::measure(const meta::KernelCall& call) {
  constexpr size_t kMost = 50;  // repetitions, if they are alike
  if (spent_s_ > options_.seconds_all) return std::nullopt;
  const auto start = std::chrono::steady_clock::now();
  const auto passed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const auto first = time_once(call);  // libraries make their code, pages get their memory
  if (!first) return std::nullopt;
  std::vector<double> seconds;
  bool goes_on = true;
  while (goes_on) {
    seconds.push_back(*time_once(call));
    const bool enough = passed() >= options_.seconds_each || seconds.size() >= kMost;
    goes_on = !enough || (!is_settled(seconds) && passed() < 5 * options_.seconds_each);
  }
  spent_s_ += passed();
  ++measured_;
  // Of a call that is too long for three nobody knows.
  if (seconds.size() >= kAlike && !is_settled(seconds)) ++unsettled_;
  const double least = *std::min_element(seconds.begin(), seconds.end());
  if (!first_) {
    first_ = call;
    first_s_ = least;
  }
  return least;
}

bool CallMeter::was_disturbed() {
  if (!first_) return false;
  const bool restless = 10 * unsettled_ > measured_;
  spent_s_ = 0;  // this one is always measured
  const double again_s = measure(*first_).value_or(first_s_);
  return restless || again_s < 0.9 * first_s_ || again_s > 1.1 * first_s_;
}

Rates measured_machine(CallMeter& meter, const std::string& name) {
  const Rates usual = machine_rates(kUsualMachine);  // for what is not measured here
  Rates rates = {.machine = name,
                 .kernel_us = 2,
                 .disk_read = usual.disk_read,
                 .disk_write = usual.disk_write,
                 .host_memory_bytes_per_s = meter.is_host() ? 0 : usual.host_memory_bytes_per_s};
  meta::MetaBackend meta;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    constexpr int64_t kSide = 768;
    const Shape square = {kSide, kSide};
    const Tensor a = Tensor::empty(meta, square, dtype), b = Tensor::empty(meta, square, dtype);
    Tensor c = Tensor::empty(meta, square, dtype);
    const meta::KernelCall product = meta::kernel_call(MatmulArgs{.a = a, .b = b, .c = c});
    const auto seconds = meter.measure(product);
    FSDP_CHECK(seconds, "[measured machine] a product of {} x {}: could not be measured", kSide,
               kSide);
    rates.flops_per_s[dtype] = static_cast<double>(product.cost.flops) / *seconds;
  }
  constexpr size_t kBytes = size_t{32} << 20;
  const Tensor from = Tensor::empty(meta, Shape{kBytes / 4}, DType::kF32);
  const Tensor to = Tensor::empty(meta, Shape{kBytes / 4}, DType::kF32);
  const auto seconds = meter.measure(meta::copy_call(to.data(), from.data(), kBytes));
  FSDP_CHECK(seconds, "[measured machine] a copy of {} bytes: could not be measured", kBytes);
  const double copied_per_s = static_cast<double>(kBytes) / *seconds;
  rates.memory_bytes_per_s = 2 * copied_per_s;
  rates.inside_node = {.latency_us = 20, .bytes_per_s = copied_per_s};
  rates.between_nodes = {.latency_us = 50, .bytes_per_s = 1.25e9};
  rates.host_copy = {.latency_us = 1, .bytes_per_s = copied_per_s};
  return rates;
}
namespace {

constexpr size_t kPiece = size_t{16} << 20;  // as comm/fsdp/home/file_transfers.h
constexpr int kRounds = 2;  // what is written first takes its place on the disk; later it has one

// Seconds of the fastest round.
double least_seconds(const std::function<void()>& work) {
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    least = std::min(least, passed.count());
  }
  return least;
}

}  // namespace

DiskRates measure_disk(const std::filesystem::path& folder, size_t bytes) {
  StateFile file(folder, "the measured disk");
  const size_t all = rounded_to_blocks(bytes);
  const uint64_t begin = file.reserve(all);
  std::vector<std::byte> room(std::min(all, kPiece) + kFileBlock, std::byte{1});
  void* aligned = room.data();
  size_t space = room.size();
  std::align(kFileBlock, std::min(all, kPiece), aligned, space);
  const auto in_pieces = [&](auto transfer) {
    return [&, transfer] {
      for (size_t done = 0; done < all; done += kPiece) {
        transfer(begin + done, std::min(kPiece, all - done));
      }
    };
  };
  const auto rate = [&](double seconds) {
    return LinkRate{.latency_us = 0, .bytes_per_s = static_cast<double>(all) / seconds};
  };
  const double written =
      least_seconds(in_pieces([&](uint64_t offset, size_t n) { file.write(offset, aligned, n); }));
  const double read =
      least_seconds(in_pieces([&](uint64_t offset, size_t n) { file.read(offset, aligned, n); }));
  return {.read = rate(read), .write = rate(written)};
}

}  // namespace fsdp::tools
