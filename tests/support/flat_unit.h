// Parameters, their flat layout and shards of it with values, for tests of what steps or measures
// shards (optim/).
#pragma once

#include <memory>
#include <vector>

#include "core/flat_layout.h"
#include "tests/support/tensors.h"

namespace fsdp::test {

class FlatUnit {
 public:
  struct Member {
    int64_t numel = 0;
    bool decay = true;
    int64_t columns = 0;                                // of a matrix; 0: a vector
    ParameterRole role = ParameterRole::kHiddenMatrix;  // of a matrix
  };

  FlatUnit(const std::vector<Member>& members, int shards, int64_t alignment = kFlatAlignment)
      : parameters_(make(members)), layout_(pointers(), shards, alignment) {}

  const FlatLayout& layout() const { return layout_; }
  const Parameter& parameter(size_t i) const { return *parameters_[i]; }

  // Master and gradient hold `filler` everywhere, gaps and padding too; all parameters are present.
  OptimizerShard shard(Backend& backend, int index, DType master, DType gradient,
                       double filler = 0) const {
    const auto filled = [&](DType dtype) {
      const auto n = static_cast<size_t>(layout_.shard_numel());
      return make_tensor(backend, Shape{layout_.shard_numel()}, dtype,
                         std::vector<double>(n, filler));
    };
    const std::vector<int32_t> present(parameters_.size(), 1);
    const Shape flags = {static_cast<int64_t>(present.size())};
    return {.name = "unit",
            .layout = layout_,
            .index = index,
            .master = filled(master),
            .gradient = filled(gradient),
            .copy = {},
            .present = Tensor::from_host(backend, flags, present)};
  }

  // Writes a parameter's values (all of them) to where the shard has its part.
  void write(const OptimizerShard& shard, const Tensor& into, int parameter,
             const std::vector<double>& values) const {
    each_piece(shard, parameter, [&](const ShardPiece& piece) {
      const auto first = values.begin() + piece.parameter_begin;
      const Tensor part = make_tensor(into.backend(), Shape{piece.count}, into.dtype(),
                                      {first, first + piece.count});
      Backend& backend = into.backend();
      backend.copy(backend.compute_stream(), into.slice(piece.shard_begin, part.shape()).data(),
                   part.data(), part.bytes());
    });
  }

  // The other way round: fills in what the shard has of it.
  void read(const OptimizerShard& shard, const Tensor& from, int parameter,
            std::vector<double>& values) const {
    const std::vector<double> all = from.to_doubles();
    each_piece(shard, parameter, [&](const ShardPiece& piece) {
      std::copy_n(all.begin() + piece.shard_begin, piece.count,
                  values.begin() + piece.parameter_begin);
    });
  }

 private:
  using Parameters = std::vector<std::unique_ptr<Parameter>>;

  static Parameters make(const std::vector<Member>& members) {
    Parameters out;
    for (const Member& member : members) {
      const Shape shape = member.columns == 0
                              ? Shape{member.numel}
                              : Shape{member.numel / member.columns, member.columns};
      out.push_back(std::make_unique<Parameter>("p" + std::to_string(out.size()), shape,
                                                Initializer{}, member.decay));
      if (member.columns > 0) out.back()->set_role(member.role);
    }
    return out;
  }
  std::vector<Parameter*> pointers() const {
    std::vector<Parameter*> out;
    for (const auto& parameter : parameters_) out.push_back(parameter.get());
    return out;
  }
  template <typename F>
  void each_piece(const OptimizerShard& shard, int parameter, F&& f) const {
    for (const ShardPiece& piece : layout_.pieces(shard.index)) {
      if (piece.parameter == parameter) f(piece);
    }
  }

  Parameters parameters_;
  FlatLayout layout_;
};

}  // namespace fsdp::test
