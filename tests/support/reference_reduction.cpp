// Reduction of known gradients as PyTorch FSDP2 did it; the vectors are explained in the README of
// tests/fixtures.
#include <cmath>

#include <doctest/doctest.h>

#include "comm/fsdp/options.h"
#include "core/io/safetensors.h"
#include "core/shard_args.h"
#include "tests/support/comm_checks.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"

namespace fsdp::test {
namespace {

using comm::Communicator;
using comm::ReduceOp;

// The four parameters of the fixture one after the other, padded to a multiple of the ranks.
std::vector<double> flat(const SafetensorsFile& file, const std::string& prefix, int ranks) {
  std::vector<double> out;
  for (const char* name : {"a", "b", "c", "d"}) {
    const std::string key = prefix + "." + name;
    std::vector<double> values(static_cast<size_t>(file.entry(key).numel));
    file.read_elements(key, 0, file.entry(key).numel, DType::kF64, values.data());
    out.insert(out.end(), values.begin(), values.end());
  }
  while (out.size() % static_cast<size_t>(ranks) != 0) out.push_back(0);
  return out;
}

// The largest difference, in rounding steps at the size of the terms (their sum may cancel).
double worst_in_steps(const std::vector<double>& got, const std::vector<double>& expected,
                      const std::vector<double>& size_of_terms, DType dtype) {
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double binade = std::exp2(std::floor(std::log2(std::max(size_of_terms[i], 1e-30))));
    worst = std::max(worst, std::abs(got[i] - expected[i]) / (2 * unit_roundoff(dtype) * binade));
  }
  return worst;
}

struct KnownReduction {
  std::vector<double> gradient;       // of this rank
  std::vector<double> size_of_terms;  // mean of the ranks' absolute values
  std::vector<double> expected;
};

// A way of the fixture as options of ours.
struct Way {
  std::string name;
  std::optional<double> factor = {};
  bool force_sum = false;
  bool split = false;
  int replicas = 1;
};

std::vector<Way> ways(int ranks) {
  std::vector<Way> out = {{.name = "fsdp2"},
                          {.name = "fsdp2_sum", .force_sum = true},
                          {.name = "fsdp2_sum_factor3", .factor = 3, .force_sum = true},
                          {.name = "fsdp1", .split = true}};
  if (ranks == 4) out.push_back({.name = "fsdp2_hybrid", .replicas = 2});
  return out;
}

KnownReduction read_reduction(const Communicator& group, DType dtype, const std::string& kind,
                              const std::string& way) {
  const int ranks = group.size();
  const SafetensorsFile file =
      SafetensorsFile::open(fixture_path("fsdp/reduce/w" + std::to_string(ranks) + ".safetensors"));
  KnownReduction out;
  for (int r = 0; r < ranks; ++r) {
    const auto gradient = flat(file, "grad." + kind + ".rank" + std::to_string(r), ranks);
    if (r == group.rank()) out.gradient = gradient;
    out.size_of_terms.resize(gradient.size());
    for (size_t i = 0; i < gradient.size(); ++i) {
      out.size_of_terms[i] += std::abs(gradient[i]) / ranks;
    }
  }
  out.expected = flat(file, way + "." + std::string(name_of(dtype)) + "." + kind, ranks);
  return out;
}

// As FSDP does it: divided, reduced in place (over shards, then over replicas), divided again, all
// slots gathered.
std::vector<double> reduced(Communicator& group, const std::vector<double>& gradient, DType dtype,
                            Memory memory, const Way& way) {
  CommRank rank(group.rank());
  Stream& stream = *rank.first;
  const int shards = group.size() / way.replicas;
  const auto shard_group = group.split(
      [=](int r) { return comm::SplitPlace{.color = r / shards, .key = r % shards}; }, "shards");
  const auto replica_group = group.split(
      [=](int r) { return comm::SplitPlace{.color = r % shards, .key = r / shards}; }, "replicas");
  const comm::GradientDivision division =
      comm::gradient_division({.reduce_dtype = dtype,
                               .divide_factor = way.factor,
                               .force_sum = way.force_sum,
                               .split_division = way.split},
                              {.shards = shards, .replicas = way.replicas});
  const auto numel = static_cast<int64_t>(gradient.size());
  const int64_t slot = numel / shards;
  CommTensor buffer = comm_tensor(*shard_group, *rank.backend, numel, dtype, memory);
  const Tensor values = make_tensor(*rank.backend, Shape{numel}, dtype, gradient);
  rank.backend->copy(rank.backend->compute_stream(), buffer.tensor.data(), values.data(),
                     values.bytes());
  after_compute(rank, stream);
  if (division.before != 1) rank.backend->run(stream, DivideArgs{buffer.tensor, division.before});
  Tensor own = buffer.tensor.slice(shard_group->rank() * slot, Shape{slot});
  shard_group->reduce_scatter(stream, buffer.tensor, own, division.op);
  replica_group->all_reduce(stream, own, division.replica_op);
  if (division.after != 1) rank.backend->run(stream, DivideArgs{own, division.after});
  before_compute(rank, shard_group->all_gather(stream, buffer.tensor));
  return buffer.tensor.to_doubles();
}

}  // namespace

// PyTorch sums in some order of the ranks and rounds after each term; so exactly representable
// sums, and sums of two, must agree in every bit, others within one rounding step per operation.
void check_reference_reduction(Communicator& group, Memory memory) {
  if (group.size() < 2 || group.size() > 4) return;  // no fixture
  for (const Way& way : ways(group.size())) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const std::string kind : {"exact", "random"}) {
        CAPTURE(way.name);
        CAPTURE(std::string(name_of(dtype)));
        CAPTURE(kind);
        const KnownReduction known = read_reduction(group, dtype, kind, way.name);
        const std::vector<double> got = reduced(group, known.gradient, dtype, memory, way);
        const bool to_the_bit = kind == "exact" || group.size() == 2 || way.replicas == 2;
        const double limit = to_the_bit ? 0 : group.size() - 1;
        CHECK(worst_in_steps(got, known.expected, known.size_of_terms, dtype) <= limit);
      }
    }
  }
}

}  // namespace fsdp::test
