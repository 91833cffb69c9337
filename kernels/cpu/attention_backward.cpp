// Attention backward: the weights are computed again from log_sum_exp, tile by tile (Dao et al.
// 2022, algorithm 4). A task is one key-value head of one sample with all its query heads in order:
// five products, and no sum depends on the number of threads.
// With P the weights, keep the dropout mask and scale:
//   delta = sum over d of dout * out        dP = dout V^T        dS = P * (dP * keep - delta)
//   dV = (P * keep)^T dout                  dQ = scale dS K      dK = scale dS^T Q
#include "kernels/cpu/attention_problem.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/scratch.h"

namespace fsdp::cpu {
namespace {

template <typename T>
struct BackwardProblem {
  AttentionShape shape;
  HeadRows<T> q, k, v, out, dout, dq, dk, dv;
  KeyBias<Accumulate<T>> key_bias;
  const Accumulate<T>* log_sum_exp;  // (B, heads, Tq)
  Accumulate<T>* delta;              // (B, heads, Tq)
};

template <typename T>
void row_products(const T* x, const T* y, int64_t stride, int64_t rows, int64_t columns,
                  Accumulate<T>* out) {
  using A = Accumulate<T>;
  wide_loop([=](auto) {
    for (int64_t row = 0; row < rows; ++row) {
      const T *xs = x + row * stride, *ys = y + row * stride;
      A total = 0;
#pragma omp simd reduction(+ : total)
      for (int64_t c = 0; c < columns; ++c) total += A(xs[c]) * A(ys[c]);
      out[row] = total;
    }
  });
}

template <typename T>
class BackwardHead {
  using A = Accumulate<T>;

 public:
  static size_t scratch_bytes(const AttentionShape& s) {
    return sizeof(A) * backward_scratch_elements(s.head_dim, s.keys);
  }

  BackwardHead(const BackwardProblem<T>& problem, int64_t b, int64_t kv_head, void* scratch)
      : p_(problem), s_(problem.shape), b_(b), kv_(kv_head) {
    Carver<A> carver(scratch);
    for (Panels<A>* of_keys : {&k_, &v_, &dk_, &dv_}) {
      *of_keys = carver.take_panels(s_.head_dim, s_.keys);
    }
    for (Panels<A>* of_block : {&q_, &dout_, &dq_}) {
      *of_block = carver.take_panels(s_.head_dim, kLanes);
    }
    for (A** transposed : {&q_transposed_, &dout_transposed_}) {
      *transposed = carver.take(panels_of(s_.head_dim) * kLanes * kLanes);
    }
    for (A** tile : {&weights_, &dscores_, &keep_}) *tile = carver.take(kTileKeys * kLanes);
  }

  void run() {
    load_panels(p_.k.head(b_, kv_), p_.k.row_width, s_.keys, A(1), k_);
    load_panels(p_.v.head(b_, kv_), p_.v.row_width, s_.keys, A(1), v_);
    std::fill_n(dk_.data, dk_.size(), A(0));
    std::fill_n(dv_.data, dv_.size(), A(0));
    for (int64_t h = kv_ * s_.group(); h < (kv_ + 1) * s_.group(); ++h) {
      for (int64_t first = 0; first < s_.queries; first += kLanes) {
        add_block(h, first, std::min(kLanes, s_.queries - first));
      }
    }
    store_panels(dk_, A(1), null_, s_.keys, p_.dk.head(b_, kv_), p_.dk.row_width);
    store_panels(dv_, A(1), null_, s_.keys, p_.dv.head(b_, kv_), p_.dv.row_width);
  }

 private:
  // Queries [first, first + count) of head h against all keys they see.
  void add_block(int64_t h, int64_t first, int64_t count) {
    load_block(h, first, count);
    std::fill_n(dq_.data, dq_.size(), A(0));
    const Visibility visible = s_.visibility(b_, first, count);
    for (int64_t key = visible.begin(); key < visible.end();) {
      const int64_t end = std::min(visible.end(), (key / kTileKeys + 1) * kTileKeys);
      if (s_.dropout) s_.draw_keep(b_, h, first, count, key, end - key, keep_);
      recompute_tile(visible, p_.key_bias.row(b_, h), key, end - key);
      add_tile(count, key, end - key);
      key = end;
    }
    add_blind_queries(h, first, count);
    store_panels(dq_, A(s_.scale), null_, count, p_.dq.head(b_, h) + first * p_.dq.row_width,
                 p_.dq.row_width);
  }

  void load_block(int64_t h, int64_t first, int64_t count) {
    const T* q = p_.q.head(b_, h) + first * p_.q.row_width;
    const T* dout = p_.dout.head(b_, h) + first * p_.dout.row_width;
    if (count < kLanes) {
      std::fill_n(q_.data, q_.size(), A(0));
      std::fill_n(dout_.data, dout_.size(), A(0));
    }
    load_panels(q, p_.q.row_width, count, A(s_.scale), q_);
    load_panels(dout, p_.dout.row_width, count, A(1), dout_);
    transpose_panels(q_, q_transposed_);
    transpose_panels(dout_, dout_transposed_);
    const int64_t statistics = (b_ * s_.heads + h) * s_.queries + first;
    row_products(p_.out.head(b_, h) + first * p_.out.row_width, dout, p_.out.row_width, count,
                 s_.head_dim, p_.delta + statistics);
    std::fill_n(delta_, kLanes, A(0));
    std::fill_n(log_sum_exp_, kLanes, -kInfinity<A>);
    std::copy_n(p_.delta + statistics, count, delta_);
    std::copy_n(p_.log_sum_exp + statistics, count, log_sum_exp_);
  }

  // Those that see no key: all keys, with equal weights.
  void add_blind_queries(int64_t h, int64_t first, int64_t count) {
    A weights[kLanes];
    if (!uniform_weights(log_sum_exp_, count, s_.keys, weights)) return;
    for (int64_t key = 0; key < s_.keys; key += kTileKeys) {
      const int64_t keys = std::min(kTileKeys, s_.keys - key);
      if (s_.dropout) s_.draw_keep(b_, h, first, count, key, keys, keep_);
      for (int64_t i = 0; i < keys; ++i) std::copy_n(weights, kLanes, weights_ + i * kLanes);
      add_tile(count, key, keys);
    }
  }

  void recompute_tile(const Visibility& visible, const A* bias, int64_t first, int64_t keys) {
    multiply_transposed(k_, first, keys, q_transposed_, weights_);
    if (bias) add_key_bias(bias + first, keys, weights_);
    if (visible.masks(first, first + keys - 1)) mask_scores(visible, first, keys, weights_);
    recompute_weights(weights_, keys, log_sum_exp_);
  }

  // weights_: those of keys [first, first + keys).
  void add_tile(int64_t count, int64_t first, int64_t keys) {
    multiply_transposed(v_, first, keys, dout_transposed_, dscores_);
    softmax_backward(weights_, dscores_, s_.dropout ? keep_ : null_, delta_, keys);
    for (int64_t panel = 0; panel < k_.count(); ++panel) {
      multiply_rows(weights_, dout_.row(panel, 0), dv_.row(panel, first), keys, count);
      multiply_rows(dscores_, q_.row(panel, 0), dk_.row(panel, first), keys, count);
      multiply_columns(dscores_, k_.row(panel, first), dq_.row(panel, 0), count, keys);
    }
  }

  static constexpr const A* null_ = nullptr;
  const BackwardProblem<T>& p_;
  const AttentionShape& s_;
  const int64_t b_, kv_;
  Panels<A> k_, v_, dk_, dv_;              // all keys of the head
  Panels<A> q_, dout_, dq_;                // the current block of queries; q times scale
  A *q_transposed_, *dout_transposed_;     // (D, 32)
  A *weights_, *dscores_, *keep_;          // (keys of a tile, 32)
  A log_sum_exp_[kLanes], delta_[kLanes];  // of the block
};

}  // namespace

template <>
void CpuBackend::compute(Stream& stream, const AttentionBackwardArgs& args) {
  dispatch_floating(args.dout.dtype(), "attention_backward", [&]<typename T>(TypeTag<T>) {
    const BackwardProblem<T> problem = {
        .shape = AttentionShape(args.in),
        .q = HeadRows<T>(args.in.q),
        .k = HeadRows<T>(args.in.k),
        .v = HeadRows<T>(args.in.v),
        .out = HeadRows<T>(args.out, args.in.q.head_dim),
        .dout = HeadRows<T>(args.dout, args.in.q.head_dim),
        .dq = HeadRows<T>(args.dq),
        .dk = HeadRows<T>(args.dk),
        .dv = HeadRows<T>(args.dv),
        .key_bias = KeyBias<Accumulate<T>>(args.in.key_bias),
        .log_sum_exp = args.log_sum_exp.data_as<Accumulate<T>>(),
        .delta = args.delta.data_as<Accumulate<T>>(),
    };
    plan_scratch(stream, scratch_of(args));
    enqueue(stream, "attention_backward", 0, [problem](Worker& worker) {
      const AttentionShape& s = problem.shape;
      worker.team.run(s.batch * s.kv_heads, [&](int64_t task, int thread) {
        void* scratch = worker.team.scratch(thread, BackwardHead<T>::scratch_bytes(s));
        BackwardHead<T>(problem, task / s.kv_heads, task % s.kv_heads, scratch).run();
      });
    });
  });
}

}  // namespace fsdp::cpu
