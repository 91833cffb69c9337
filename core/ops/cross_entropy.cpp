// Chunked head + cross-entropy. Gradients in forward save recomputing the logits (as Liger does).
#include "core/ops/cross_entropy.h"

#include <algorithm>

#include "core/layer_args.h"
#include "core/ops/check.h"

namespace fsdp::ops {

int64_t logits_row(int64_t vocabulary) {
  constexpr int64_t kMultiple = 64;  // a cache line of 128 bytes in 16 bits
  return (vocabulary + kMultiple - 1) / kMultiple * kMultiple;
}

bool can_have_logits(DType states, DType logits) {
  return logits == accumulation_dtype(states) || (logits == DType::kBF16 && states == DType::kBF16);
}

int64_t head_chunk_rows(int64_t rows, int64_t vocabulary, DType logits, int64_t bytes) {
  constexpr int64_t kMostChunks = 16;  // each reads and writes the whole gradient of the weight
  const int64_t bytes_of_row =
      static_cast<int64_t>(size_of(logits)) * logits_row(std::max<int64_t>(vocabulary, 1));
  const int64_t fitting = bytes / bytes_of_row;
  const int64_t half = (rows + 1) / 2;
  const int64_t chunk =
      std::min(std::max<int64_t>({fitting, rows / kMostChunks, 16}), std::max<int64_t>(half, 64));
  // Matrix products like such multiples: 256 rows run faster than 320.
  const int64_t multiple = chunk > 128 ? 128 : chunk > 16 ? 16 : 1;
  return std::clamp<int64_t>(chunk / multiple * multiple, 1, std::max<int64_t>(rows, 1));
}

namespace {

struct HeadPass {
  double gradient_scale = 1;
  const Tensor* loss_scale = nullptr;
  Tensor h2;       // (N, C)
  Tensor dh2;      // (N, C), undefined without gradients
  Tensor logits;   // (chunk, logits_row(V)), see HeadOptions
  Tensor dlogits;  // the same in the dtype of h; shares logits when that is the same dtype
  const Tensor* bias = nullptr;  // (V)
  GradientTarget dweight, dbias;
};

void head_chunk(const HeadPass& p, Parameter& weight, const Tensor& labels, Tensor& loss,
                int64_t first, int64_t rows) {
  Backend& backend = p.h2.backend();
  Stream& stream = backend.compute_stream();
  const int64_t channels = p.h2.shape()[1];
  const Tensor h = p.h2.slice(first * channels, Shape{rows, channels});
  const Shape chunk = {rows, p.logits.shape().last()};
  Tensor logits = p.logits.slice(0, chunk);
  backend.run(
      stream,
      MatmulArgs{.a = h, .b = weight.value(), .c = logits, .transpose_b = true, .bias = p.bias});
  Tensor dlogits;
  if (p.dlogits.defined()) dlogits = p.dlogits.slice(0, chunk);
  backend.run(stream, CrossEntropyArgs{.logits = logits,
                                       .vocabulary = weight.shape()[0],
                                       .labels = labels.slice(first, Shape{rows}),
                                       .loss_sum = loss,
                                       .dlogits = dlogits.defined() ? &dlogits : nullptr,
                                       .gradient_scale = p.gradient_scale,
                                       .loss_scale = p.loss_scale});
  if (p.dh2.defined()) {
    Tensor dh = p.dh2.slice(first * channels, Shape{rows, channels});
    backend.run(stream, MatmulArgs{.a = dlogits, .b = weight.value(), .c = dh});
  }
  if (p.dweight.tensor.defined()) {
    Tensor dweight = p.dweight.tensor;
    backend.run(stream, MatmulArgs{.a = dlogits,
                                   .b = h,
                                   .c = dweight,
                                   .transpose_a = true,
                                   .accumulate = p.dweight.accumulate || first > 0});
  }
  if (p.dbias.tensor.defined()) {
    Tensor dbias = p.dbias.tensor;
    backend.run(
        stream,
        SumRowsArgs{.x = dlogits, .out = dbias, .accumulate = p.dbias.accumulate || first > 0});
  }
}

void check_head(const Tensor& h, const Parameter& weight, const Tensor& labels,
                const Parameter* bias) {
  const int64_t rows = h.shape().rows(), vocabulary = weight.shape()[0];
  check_shape("cross_entropy", weight.name(), weight.shape(), Shape{vocabulary, h.shape().last()});
  check_dtype("cross_entropy", weight.name(), weight.value().dtype(), h.dtype());
  if (bias) check_shape("cross_entropy", bias->name(), bias->shape(), Shape{vocabulary});
  check_shape("cross_entropy", "labels", labels.shape(), Shape{rows});
  check_dtype("cross_entropy", "labels", labels.dtype(), DType::kI32);
  FSDP_CHECK(rows > 0, "[cross_entropy] rows: expected at least one, got {}", h.shape().str());
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& h, Parameter& weight, const Tensor& labels,
                            double gradient_scale, const Tensor* loss_scale, Parameter* bias,
                            const HeadOptions& options) {
  check_head(h, weight, labels, bias);
  const int64_t rows = h.shape().rows();
  const int64_t channels = h.shape().last();
  const int64_t vocabulary = weight.shape()[0];
  Backend& backend = h.backend();
  const DType logits = options.logits_dtype.value_or(accumulation_dtype(h.dtype()));
  FSDP_CHECK(can_have_logits(h.dtype(), logits),
             "[cross_entropy] logits_dtype: expected {}{} beside states of {}, got {}",
             name_of(accumulation_dtype(h.dtype())), h.dtype() == DType::kBF16 ? " or bf16" : "",
             name_of(h.dtype()), name_of(logits));
  Tensor loss = Tensor::zeros(backend, Shape{}, accumulation_dtype(h.dtype()));

  const bool train_weight = weight.recording(), train_bias = bias && bias->recording();
  Tape* tape = train_weight ? weight.tape() : train_bias ? bias->tape() : tape_of({&h});
  const int64_t chunk = head_chunk_rows(rows, vocabulary, logits, options.chunk_bytes);
  HeadPass pass = {.gradient_scale = gradient_scale, .loss_scale = loss_scale};
  pass.h2 = h.view(Shape{rows, channels});
  pass.bias = bias ? &bias->value() : nullptr;
  if (tape && h.requires_grad()) {
    pass.dh2 = Tensor::empty(backend, pass.h2.shape(), h.dtype());
  }
  pass.logits = Tensor::empty(backend, Shape{chunk, logits_row(vocabulary)}, logits);
  if (tape) {
    pass.dlogits =
        logits == h.dtype() ? pass.logits : Tensor::empty(backend, pass.logits.shape(), h.dtype());
  }
  const auto begin_gradient = [&](Parameter& parameter) {
    parameter.add_use();
    return parameter.begin_gradient(/*several=*/chunk < rows);
  };
  if (train_weight) pass.dweight = begin_gradient(weight);
  if (train_bias) pass.dbias = begin_gradient(*bias);
  for (int64_t first = 0; first < rows; first += chunk) {
    head_chunk(pass, weight, labels, loss, first, std::min(chunk, rows - first));
  }
  if (!tape) return loss;
  Tensor dh = pass.dh2.defined() ? pass.dh2.view(h.shape()) : Tensor();
  tape->record("linear_cross_entropy", {&h}, {&loss},
               [dh, &weight, train_weight, bias, train_bias](std::vector<Tensor>& gradients) {
                 FSDP_CHECK(!gradients[0].defined(),
                            "[cross_entropy] backward: its gradient was fixed in forward by "
                            "gradient_scale; start backward from this loss");
                 if (train_weight) weight.end_gradient();
                 if (train_bias) bias->end_gradient();
                 return std::vector<Tensor>{dh};
               });
  return loss;
}

}  // namespace fsdp::ops
