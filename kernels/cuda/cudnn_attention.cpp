// The rule, the cache, and a plan for each piece. Contract: cudnn_attention.h.
#include "kernels/cuda/cudnn_attention.h"

#include <algorithm>
#include <limits>

#include "core/tensor.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/workspace.h"

namespace fsdp::cuda {
namespace {

constexpr int64_t kAlignment = 16;  // bytes, of all that the plans read and write
// Every length is compiled anew, about a second each. Training has one, of such a multiple; what
// has many (prompts, the rest of a text) is better off with kernels that are there already.
constexpr int64_t kLengthWorthAPlan = 64;
constexpr int64_t kOwnHeadDim = 128;  // wider heads the own kernels refuse

int64_t keys_of(const AttentionArgs& in) { return in.keys > 0 ? in.keys : in.k.tensor->shape()[1]; }

HeadStrides strides_of(const HeadView& view) {
  const Shape& shape = view.tensor->shape();
  return {.batch = shape[1] * shape[2], .row = shape[2], .head = view.head_stride};
}

HeadView plain_view(const Tensor& tensor, const HeadView& like) {
  return {&tensor, like.heads, like.head_dim, 0, like.head_dim};
}

std::byte* first_of(const HeadView& view) {
  return static_cast<std::byte*>(view.tensor->data()) +
         view.offset * static_cast<int64_t>(size_of(view.tensor->dtype()));
}

bool aligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(kAlignment) == 0;
}

bool aligned(const HeadView& view) {
  const auto bytes = static_cast<int64_t>(size_of(view.tensor->dtype()));
  const HeadStrides strides = strides_of(view);
  return aligned(first_of(view)) && strides.batch * bytes % kAlignment == 0 &&
         strides.row * bytes % kAlignment == 0 && strides.head * bytes % kAlignment == 0;
}

// What holds for both directions. A window together with a bias, or without causal, is what
// NVIDIA's own frontend refuses to ask the engines for, though they accept the graphs.
std::string not_its_rule(const AttentionArgs& in) {
  const DType dtype = in.q.tensor->dtype();
  const int64_t queries = in.q.tensor->shape()[1], keys = keys_of(in);
  if (dtype != DType::kBF16 && dtype != DType::kF16) {
    return fmt::format("it is in {}", name_of(dtype));
  }
  if (in.q.tensor->shape()[0] == 0 || queries == 0 || keys == 0) return "it is empty";
  if (in.q.head_dim % 8 != 0) return fmt::format("head_dim {} is no multiple of 8", in.q.head_dim);
  if (in.dropout.probability > 0) return "its dropout draws other numbers";
  if ((in.causal || in.window > 0) && queries != keys) {
    return fmt::format("a mask over {} queries and {} keys", queries, keys);
  }
  if (in.window > 0 && !in.causal) return "a window that is not causal";
  if (in.first_key && (queries % 4 != 0 || !aligned(in.first_key->data()))) {
    return "documents in rows that do not begin at 16 bytes";
  }
  if (!in.key_bias) return "";
  const Shape& bias = in.key_bias->shape();
  if (in.hides_keys) return "a query may see no key";
  if (in.window > 0) return "a window with a key bias";
  if (bias[0] != 1) return "a key bias by sample";
  if (bias[2] % 4 != 0 || !aligned(in.key_bias->data())) return "a key bias not at 16 bytes";
  return "";
}

std::string not_aligned(std::initializer_list<HeadView> views) {
  for (const HeadView& view : views) {
    if (!aligned(view)) return "rows that do not begin at 16 bytes";
  }
  return "";
}

CudnnAttentionKind kind_of(const AttentionArgs& in, const Tensor& out) {
  const int64_t queries = in.q.tensor->shape()[1];
  return {.backward = false,
          .dtype = in.q.tensor->dtype(),
          .batch = in.q.tensor->shape()[0],
          .heads = in.q.heads,
          .kv_heads = in.k.heads,
          .queries = queries,
          .keys = keys_of(in),
          .head_dim = in.q.head_dim,
          .causal = in.causal,
          .window = in.window < queries ? in.window : 0,  // a longer one hides none
          .documents = in.first_key != nullptr,
          .bias_heads = in.key_bias ? in.key_bias->shape()[1] : 0,
          .bias_head_stride = in.key_bias ? in.key_bias->shape()[2] : 0,
          .q = strides_of(in.q),
          .k = strides_of(in.k),
          .v = strides_of(in.v),
          .out = strides_of(plain_view(out, in.q)),
          .statistics_batch_stride = in.q.heads * queries,
          .dq = {},
          .dk = {},
          .dv = {}};
}

}  // namespace

std::string not_for_cudnn(const AttentionForwardArgs& args) {
  const std::string why = not_its_rule(args.in);
  if (!why.empty()) return why;
  if (!aligned(args.log_sum_exp.data())) return "statistics that do not begin at 16 bytes";
  return not_aligned({args.in.q, args.in.k, args.in.v, plain_view(args.out, args.in.q)});
}

std::string not_for_cudnn(const AttentionBackwardArgs& args) {
  const std::string why = not_its_rule(args.in);
  if (!why.empty()) return why;
  if (!aligned(args.log_sum_exp.data()) || !aligned(args.delta.data())) {
    return "statistics that do not begin at 16 bytes";
  }
  return not_aligned({args.in.q, args.in.k, args.in.v, plain_view(args.out, args.in.q),
                      plain_view(args.dout, args.in.q), args.dq, args.dk, args.dv});
}

// One tensor of a problem: where it begins, and how far its samples and heads are apart, in bytes.
// A head is a query head or a key-value head, as the tensor has them; 0: shared by all.
struct CudnnAttention::Pointers {
  struct Place {
    AttentionTensor id;
    void* first;
    int64_t of_sample, of_kv_head;
  };
  std::vector<Place> places;

  void add(AttentionTensor id, const HeadView& view, int64_t group) {
    const auto bytes = static_cast<int64_t>(size_of(view.tensor->dtype()));
    const HeadStrides strides = strides_of(view);
    places.push_back({id, first_of(view), strides.batch * bytes, group * strides.head * bytes});
  }
  void add_statistics(AttentionTensor id, const Tensor& tensor, int64_t group) {
    const Shape& shape = tensor.shape();
    const auto row = static_cast<int64_t>(sizeof(float)) * shape[2];
    places.push_back({id, tensor.data(), shape[1] * row, group * row});
  }
  void add_forward(const AttentionArgs& in, const Tensor& out, const Tensor& log_sum_exp) {
    const int64_t group = in.q.heads / in.k.heads;
    add(kQueryRows, in.q, group);
    add(kKeyRows, in.k, 1);
    add(kValueRows, in.v, 1);
    add(kOutRows, plain_view(out, in.q), group);
    add_statistics(kLogSumExp, log_sum_exp, group);
    if (in.first_key) {
      const int64_t row = in.first_key->shape()[1] * static_cast<int64_t>(sizeof(int32_t));
      places.push_back({kFirstKey, in.first_key->data(), row, 0});
    }
    if (!in.key_bias) return;
    const Shape& shape = in.key_bias->shape();
    const auto row = static_cast<int64_t>(sizeof(float)) * shape[2];
    places.push_back({kKeyBias, in.key_bias->data(), 0, shape[1] > 1 ? group * row : 0});
  }
};

static void check_on_gpu(dnn::Status status, const char* call) {
  if (status != dnn::kSuccess) check_call(fault(), fmt::format("cudnn{}", call));
  dnn::check(status, call);
}

CudnnAttention::CudnnAttention(const CudaOptions& options) : options_(options) {
  check_on_gpu(dnn::library().create(&handle_), "Create");
}

CudnnAttention::~CudnnAttention() {
  pieces_.clear();
  dnn::library().destroy(handle_);
}

bool CudnnAttention::left(const Op& op, const std::string& why) const {
  FSDP_CHECK(options_.attention != AttentionChoice::kCudnn,
             "[{}] runtime.attention: cudnn, but this is not for cuDNN: {}", op.describe(), why);
  return false;
}

void CudnnAttention::tell(const Op& op, const std::string& why) {
  if (options_.attention == AttentionChoice::kCudnn) return;  // an error says it
  if (!options_.note || !told_.insert(why).second) return;
  options_.note(fmt::format("[{}] not by cuDNN, by the own kernels: {}", op.describe(), why));
}

const CudnnPieces& CudnnAttention::pieces_of(const CudnnAttentionKind& whole) {
  const auto [place, fresh] = pieces_.try_emplace(whole);
  if (fresh) {
    place->second = cut_for_cudnn(whole, {.handle = handle_},
                                  static_cast<int64_t>(options_.attention_workspace));
    if (!place->second.plan) check_call(fault(), "cuDNN's plan");
  }
  return place->second;
}

bool CudnnAttention::run(const Op& op, const CudnnAttentionKind& whole, double scale,
                         const Pointers& pointers) {
  const bool asked = options_.attention == AttentionChoice::kCudnn || whole.head_dim > kOwnHeadDim;
  if (!asked && whole.documents) {
    if (whole.backward) {
      tell(
          op,
          "they leave out the keys of other documents, which runtime.attention: cudnn computes and "
          "hides");
    }
    return false;
  }
  if (!asked && whole.queries % kLengthWorthAPlan != 0) {
    // Training has one length; of prompts each has another, and nobody wants to read of them.
    if (whole.backward) {
      tell(op, fmt::format("only lengths of a multiple of {} are worth a plan; runtime.attention: "
                           "cudnn makes one for any",
                           kLengthWorthAPlan));
    }
    return false;
  }
  const CudnnPieces& pieces = pieces_of(whole);
  if (!pieces.plan) {
    tell(op, pieces.why);
    return left(op, pieces.why);
  }
  // read while the plan is being started
  float numbers[] = {static_cast<float>(scale), -std::numeric_limits<float>::infinity(),
                     static_cast<float>(whole.window), 1.0f};
  check_on_gpu(dnn::library().set_stream(handle_, op.stream()), "SetStream");
  const int64_t rest_bytes = pieces.rest ? pieces.rest->workspace_bytes() : 0;
  const Workspace<std::byte> workspace(op, std::max(pieces.plan->workspace_bytes(), rest_bytes));
  const Workspace<std::byte> sums(op, pieces.sums_bytes);  // of dq
  for (int64_t b = 0; b < whole.batch; b += pieces.batch) {
    for (int64_t h = 0; h < whole.kv_heads; h += pieces.kv_heads) {
      std::vector<dnn::Binding> bindings;
      for (const Pointers::Place& place : pointers.places) {
        auto* first = static_cast<std::byte*>(place.first);
        bindings.push_back({place.id, first + b * place.of_sample + h * place.of_kv_head});
      }
      bindings.push_back({kScale, &numbers[0]});
      if (whole.causal) bindings.push_back({kHidden, &numbers[1]});
      if (whole.window > 0) bindings.push_back({kWindow, &numbers[2]});
      if (whole.backward) bindings.push_back({kOne, &numbers[3]});
      if (sums.data()) {
        bindings.push_back({kDQuerySums, sums.data()});
        op.started(
            cudaMemsetAsync(sums.data(), 0, static_cast<size_t>(pieces.sums_bytes), op.stream()),
            "cudaMemsetAsync");
      }
      const bool shorter = b + pieces.batch > whole.batch || h + pieces.kv_heads > whole.kv_heads;
      const dnn::Plan& plan = shorter ? *pieces.rest : *pieces.plan;
      const dnn::Status status = plan.run(handle_, bindings, workspace.data());
      op.started(status == dnn::kSuccess ? cudaSuccess : fault(), "cudnnBackendExecute");
      dnn::check(status, "BackendExecute");
      ++runs_;
    }
  }
  return true;
}

bool CudnnAttention::forward(const Op& op, const AttentionForwardArgs& args) {
  if (const std::string why = not_for_cudnn(args); !why.empty()) return left(op, why);
  Pointers pointers;
  pointers.add_forward(args.in, args.out, args.log_sum_exp);
  return run(op, kind_of(args.in, args.out), args.in.scale, pointers);
}

bool CudnnAttention::backward(const Op& op, const AttentionBackwardArgs& args) {
  if (const std::string why = not_for_cudnn(args); !why.empty()) {
    if (!options_.attention_deterministic) {  // asked for, and nothing comes of it
      tell(op, why + "; train.attention_deterministic: false changes nothing here");
    }
    return left(op, why);
  }
  CudnnAttentionKind kind = kind_of(args.in, args.out);
  kind.backward = true;
  kind.deterministic = options_.attention_deterministic;
  kind.dq = strides_of(args.dq);
  kind.dk = strides_of(args.dk);
  kind.dv = strides_of(args.dv);
  const int64_t group = args.in.q.heads / args.in.k.heads;
  Pointers pointers;
  pointers.add_forward(args.in, args.out, args.log_sum_exp);
  pointers.add(kDOut, plain_view(args.dout, args.in.q), group);
  pointers.add_statistics(kDelta, args.delta, group);
  pointers.add(kDQuery, args.dq, group);
  pointers.add(kDKey, args.dk, 1);
  pointers.add(kDValue, args.dv, 1);
  return run(op, kind, args.in.scale, pointers);
}

}  // namespace fsdp::cuda
