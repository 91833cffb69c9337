// Parameters taken as one tensor: which can be, their value, and where their gradients are written.
#include "core/parameter_span.h"

#include <memory>

#include <doctest/doctest.h>

#include "core/layer_args.h"
#include "core/shard_args.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"

namespace fsdp {
namespace {

using test::error_of;

// Matrices of 2, 1 and 3 rows of 4 in one storage.
struct Rig {
  explicit Rig(DType dtype = DType::kF32) : values(Tensor::zeros(backend, Shape{24}, dtype)) {
    int64_t first = 0;
    for (const int64_t rows : {2, 1, 3}) {
      parts.push_back(std::make_unique<Parameter>(fmt::format("p{}", parts.size()), Shape{rows, 4},
                                                  Initializer{}, true));
      Parameter& p = *parts.back();
      p.set_value(values.slice(first, p.shape()));
      p.set_tape(&tape);
      first += p.numel();
    }
  }
  std::vector<Parameter*> all() const { return {parts[0].get(), parts[1].get(), parts[2].get()}; }
  // Memory of the gradients of all, as a unit of the sharding layer supplies it.
  void supply(DType dtype) {
    gradients = Tensor::zeros(backend, Shape{24}, dtype);
    int64_t first = 0;
    for (Parameter* p : all()) {
      p->set_gradient_memory([this, p, first] { return gradients.slice(first, p->shape()); });
      first += p->numel();
    }
  }
  // Adds 0, 1, 2, ... to the gradients, as an op does.
  GradientTarget contribute() const {
    const ParameterSpan span(all());
    const GradientTarget target = span.begin_gradient();
    std::vector<double> counted(24);
    for (size_t i = 0; i < counted.size(); ++i) counted[i] = static_cast<double>(i);
    const Tensor piece = test::make_tensor(values.backend(), Shape{6, 4}, DType::kF32, counted);
    Backend& on = values.backend();
    Tensor out = target.tensor;
    target.accumulate ? on.run(on.compute_stream(), AddArgs{out, piece, out})
                      : on.run(on.compute_stream(), CastArgs{piece, out});
    span.end_gradient();
    return target;
  }

  cpu::CpuBackend backend;
  Tape tape{backend};
  Tensor values, gradients;
  std::vector<std::unique_ptr<Parameter>> parts;
};

TEST_CASE("a span is its parameters' memory as one tensor") {
  const Rig rig;
  const ParameterSpan span(rig.all());
  CHECK(span.shape() == Shape{6, 4});
  CHECK(span.value().shape() == Shape{6, 4});
  CHECK(span.value().data() == rig.values.data());
  CHECK(span.name() == "p0");
  CHECK(span.trainable());
  CHECK(span.recording());
  const ParameterSpan one(*rig.parts[1]);
  CHECK(one.shape() == Shape{1, 4});
  CHECK(one.value().data() == rig.parts[1]->value().data());
}

TEST_CASE("gradients that nobody supplies memory for get one tensor, which the parts share") {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Rig rig(dtype);
    for (const int times : {1, 2}) {
      for (int i = 0; i < times; ++i) ParameterSpan(rig.all()).add_use();
      for (int i = 0; i < times; ++i) CHECK(rig.contribute().accumulate == (i > 0));
      CHECK(rig.parts[0]->gradient().dtype() == DType::kF32);
      CHECK(rig.parts[2]->gradient().storage() == rig.parts[0]->gradient().storage());
      CHECK(rig.parts[1]->gradient().to_doubles() ==
            std::vector<double>{8.0 * times, 9.0 * times, 10.0 * times, 11.0 * times});
      for (Parameter* p : rig.all()) {
        CHECK(p->pending_uses() == 0);
        p->clear_gradient();
      }
    }
  }
}

TEST_CASE("gradients lie where they are told to, and add up in the wide dtype where they must") {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    CAPTURE(name_of(dtype));
    Rig rig(DType::kBF16);
    rig.supply(dtype);
    for (int i = 0; i < 2; ++i) ParameterSpan(rig.all()).add_use();
    for (int i = 0; i < 2; ++i) {
      const GradientTarget target = rig.contribute();
      CHECK(target.accumulate == (i > 0));
      CHECK(target.tensor.shape() == Shape{6, 4});
      CHECK(target.tensor.dtype() == DType::kF32);
      CHECK((target.tensor.data() == rig.gradients.data()) == (dtype == DType::kF32));
    }
    const std::vector<double> got = rig.gradients.to_doubles();
    for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == 2.0 * static_cast<double>(i));
    CHECK(rig.parts[2]->gradient().data() == rig.gradients.slice(12, Shape{12}).data());
  }
}

TEST_CASE("parameters that are no span") {
  Rig rig;
  const auto all = rig.all();
  CHECK(ParameterSpan::side_by_side(all));
  CHECK(ParameterSpan::side_by_side({all[1], all[2]}));
  CHECK_FALSE(ParameterSpan::side_by_side({all[0], all[2]}));  // a gap
  CHECK_FALSE(ParameterSpan::side_by_side({all[1], all[0]}));  // the other way round
  CHECK(error_of([&] {
          ParameterSpan({all[1], all[0]});
        }) == "[parameter_span] parts: expected parameters side by side, got 2 that are not");
  all[1]->set_trainable(false);
  CHECK_FALSE(ParameterSpan::side_by_side(all));
  all[1]->set_trainable(true);
  Parameter rows_of_six("rows", Shape{2, 6}, {}, true);
  rows_of_six.set_value(rig.values.slice(12, rows_of_six.shape()));
  CHECK_FALSE(ParameterSpan::side_by_side({all[0], all[1], &rows_of_six}));
  all[2]->set_value(Tensor::zeros(rig.backend, all[2]->shape(), DType::kF32));
  CHECK_FALSE(ParameterSpan::side_by_side(all));
}

TEST_CASE("a part that was used alone is named") {
  Rig rig;
  const ParameterSpan span(rig.all());
  span.add_use();
  rig.parts[1]->add_use();
  rig.parts[1]->begin_gradient();
  rig.parts[1]->end_gradient();
  CHECK(error_of([&] { span.begin_gradient(); }) ==
        "[parameter_span] p1: its gradient is not that of p0 continued: one of the two was used "
        "alone");
}

}  // namespace
}  // namespace fsdp
