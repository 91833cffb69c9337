// The end of a language model: head matrix product and softmax cross-entropy in one op.
#pragma once

#include <optional>

#include "core/autograd.h"

namespace fsdp::ops {

// How logits exist. Both change the bits of loss and gradients; neither may depend on memory.
struct HeadOptions {
  // kBF16, where the states are bf16: logits are rounded once, their gradients take their place,
  // and the softmax between the two is computed in f32. None: the accumulation dtype of the states.
  std::optional<DType> logits_dtype;
  int64_t chunk_bytes = int64_t{64} << 20;  // of logits at once; see head_chunk_rows
};

// Whether states of this dtype can have logits of that one.
bool can_have_logits(DType states, DType logits);

// Elements from one row of logits to the next. Vocabularies like GPT-2's 50257 would leave every
// row but the first off the 16 bytes that matrix products and kernels of a GPU like to move.
int64_t logits_row(int64_t vocabulary);

// Rows of logits that exist at once: at most `bytes` of logits, or a sixteenth of the batch where
// that is more (a chunk costs a pass over the weight's gradient), or 16 rows; never all rows of a
// batch that has more than 64. A multiple of 128 or 16 where possible.
int64_t head_chunk_rows(int64_t rows, int64_t vocabulary, DType logits, int64_t bytes);

// Sum over labelled rows of -log softmax(h W^T + b)[label], as a () tensor in the accumulation
// dtype of h. Logits exist in chunks only. When recording, the chunks' gradients are taken on the
// spot, for a loss of gradient_scale * sum: the head's weight gradient is written during forward,
// the gradient of h is saved. Backward must therefore start from this loss, with no gradient given.
// `loss_scale` (null: 1) is a further factor of the gradients that is read on the device.
Tensor linear_cross_entropy(const Tensor& h,       // (..., C)
                            Parameter& weight,     // (V, C)
                            const Tensor& labels,  // (rows of h), i32, kIgnoreIndex: none
                            double gradient_scale,
                            const Tensor* loss_scale = nullptr,  // (), f32
                            Parameter* bias = nullptr,           // (V)
                            const HeadOptions& options = {});

}  // namespace fsdp::ops
