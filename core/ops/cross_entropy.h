// The end of a language model: head matrix product and softmax cross-entropy in one op.
#pragma once

#include "core/autograd.h"

namespace fsdp::ops {

// Elements from one row of logits to the next. Vocabularies like GPT-2's 50257 would leave every
// row but the first off the 16 bytes that matrix products and kernels of a GPU like to move.
int64_t logits_row(int64_t vocabulary);

// Rows of logits that exist at once: at most 64 MiB of f32, or a sixteenth of the batch where that
// is more (a chunk costs a pass over the weight's gradient), or 16 rows; never all rows of a batch
// that has more than 64. A multiple of 128 or 16 where possible.
int64_t head_chunk_rows(int64_t rows, int64_t vocabulary);

// Sum over labelled rows of -log softmax(h W^T + b)[label], as a () tensor in the accumulation
// dtype. Logits exist in chunks only. When recording, the chunks' gradients are taken on the spot,
// for a loss of gradient_scale * sum: the head's weight gradient is written during forward, the
// gradient of h is saved. Backward must therefore start from this loss, with no gradient given.
// `loss_scale` (null: 1) is a further factor of the gradients that is read on the device.
Tensor linear_cross_entropy(const Tensor& h,       // (..., C)
                            Parameter& weight,     // (V, C)
                            const Tensor& labels,  // (rows of h), i32, kIgnoreIndex: none
                            double gradient_scale,
                            const Tensor* loss_scale = nullptr,  // (), f32
                            Parameter* bias = nullptr);          // (V)

}  // namespace fsdp::ops
