// Attention forward, flash style (Dao et al. 2022): tiles of 64 keys, online softmax, nothing of
// size Tq x Tk. A task is 128 queries of one head: they share each loaded tile of keys and values.
// Read next: attention_tile.h (products), attention_softmax.h, attention_backward.cpp.
#include "kernels/cpu/attention_problem.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/scratch.h"

namespace fsdp::cpu {
namespace {

template <typename T>
struct ForwardProblem {
  AttentionShape shape;
  HeadRows<T> q, k, v, out;
  KeyBias<Accumulate<T>> key_bias;
  Accumulate<T>* log_sum_exp;  // (B, heads, Tq)
};

// Up to 32 queries of one head.
template <typename A>
struct QueryBlock {
  int64_t first, count;
  Visibility visibility;
  A* queries;     // (D, 32): transposed, times scale
  Panels<A> out;  // 32 rows, not yet divided by the softmax's total
  OnlineSoftmax<A> softmax;
};

template <typename T>
class ForwardChunk {
  using A = Accumulate<T>;

 public:
  static size_t scratch_bytes(int64_t columns) {
    return sizeof(A) * forward_scratch_elements(columns);
  }

  ForwardChunk(const ForwardProblem<T>& problem, int64_t b, int64_t h, void* scratch)
      : p_(problem), b_(b), h_(h), carver_(scratch) {
    const int64_t columns = p_.shape.head_dim;
    keys_ = carver_.take_panels(columns, kTileKeys);
    values_ = carver_.take_panels(columns, kTileKeys);
    rows_ = carver_.take_panels(columns, kLanes);
    scores_ = carver_.take(kTileKeys * kLanes);
    keep_ = carver_.take(kTileKeys * kLanes);
  }

  void run(int64_t first_query) {
    const AttentionShape& s = p_.shape;
    const int64_t last = std::min(s.queries, first_query + kChunkQueries);
    for (int64_t first = first_query; first < last; first += kLanes) {
      begin_block(first, std::min(kLanes, last - first));
    }
    // Later queries begin and end at later keys.
    const int64_t begin = blocks_[0].visibility.begin() / kTileKeys * kTileKeys;
    const int64_t end = blocks_[block_count_ - 1].visibility.end();
    for (int64_t tile = begin; tile < end; tile += kTileKeys) {
      const int64_t tile_end = std::min(end, tile + kTileKeys);
      load_tile(tile, tile_end - tile);
      for (int64_t i = 0; i < block_count_; ++i) {
        const Visibility& visible = blocks_[i].visibility;
        const int64_t from = std::max(tile, visible.begin());
        const int64_t to = std::min(tile_end, visible.end());
        if (from < to) add_tile(blocks_[i], tile, from, to - from);
      }
    }
    for (int64_t i = 0; i < block_count_; ++i) {
      average_values(blocks_[i]);
      finish_block(blocks_[i]);
    }
  }

 private:
  void begin_block(int64_t first, int64_t count) {
    const int64_t columns = p_.shape.head_dim;
    QueryBlock<A>& block = blocks_[block_count_++];
    block.first = first;
    block.count = count;
    block.visibility = p_.shape.visibility(b_, first, count);
    block.queries = carver_.take(panels_of(columns) * kLanes * kLanes);
    block.out = carver_.take_panels(columns, kLanes);
    std::fill_n(block.out.data, block.out.size(), A(0));
    block.softmax.clear();
    if (count < kLanes) std::fill_n(rows_.data, rows_.size(), A(0));
    load_panels(p_.q.head(b_, h_) + first * p_.q.row_width, p_.q.row_width, count,
                static_cast<A>(p_.shape.scale), rows_);
    transpose_panels(rows_, block.queries);
  }

  void load_tile(int64_t first, int64_t keys) {
    const int64_t kv = h_ / p_.shape.group();
    load_panels(p_.k.head(b_, kv) + first * p_.k.row_width, p_.k.row_width, keys, A(1), keys_);
    load_panels(p_.v.head(b_, kv) + first * p_.v.row_width, p_.v.row_width, keys, A(1), values_);
  }

  // Keys [first, first + keys) of the loaded tile.
  void add_tile(QueryBlock<A>& block, int64_t tile, int64_t first, int64_t keys) {
    multiply_transposed(keys_, first - tile, keys, block.queries, scores_);
    if (const A* bias = p_.key_bias.row(b_, h_)) add_key_bias(bias + first, keys, scores_);
    if (block.visibility.masks(first, first + keys - 1)) {
      mask_scores(block.visibility, first, keys, scores_);
    }
    if (block.softmax.add(scores_, keys)) scale_rows(block.out, block.softmax.factor);
    add_values(block, tile, first, keys);
  }

  // scores_: the weights of keys [first, first + keys) of the loaded tile.
  void add_values(QueryBlock<A>& block, int64_t tile, int64_t first, int64_t keys) {
    if (p_.shape.dropout) {
      p_.shape.draw_keep(b_, h_, block.first, block.count, first, keys, keep_);
      multiply_elements(scores_, keep_, keys);
    }
    for (int64_t panel = 0; panel < values_.count(); ++panel) {
      multiply_columns(scores_, values_.row(panel, first - tile), block.out.row(panel, 0),
                       block.count, keys);
    }
  }

  // For queries that saw nothing.
  void average_values(QueryBlock<A>& block) {
    A weights[kLanes];
    const int64_t all = p_.shape.keys;
    if (!uniform_weights(block.softmax.maximum, block.count, all, weights)) return;
    for (int64_t tile = 0; tile < all; tile += kTileKeys) {
      const int64_t keys = std::min(kTileKeys, all - tile);
      load_tile(tile, keys);
      for (int64_t key = 0; key < keys; ++key) {
        std::copy_n(weights, kLanes, scores_ + key * kLanes);
      }
      add_values(block, tile, tile, keys);
    }
  }

  void finish_block(QueryBlock<A>& block) {
    const AttentionShape& s = p_.shape;
    A log_sum_exp[kLanes], reciprocal[kLanes];
    block.softmax.finish(log_sum_exp, reciprocal);
    std::copy_n(log_sum_exp, block.count,
                p_.log_sum_exp + (b_ * s.heads + h_) * s.queries + block.first);
    store_panels(block.out, A(1), reciprocal, block.count,
                 p_.out.head(b_, h_) + block.first * p_.out.row_width, p_.out.row_width);
  }

  const ForwardProblem<T>& p_;
  const int64_t b_, h_;
  Carver<A> carver_;
  Panels<A> keys_, values_;  // of the current tile
  Panels<A> rows_;           // of queries, before they are transposed
  A* scores_;                // (keys, 32)
  A* keep_;
  QueryBlock<A> blocks_[kChunkBlocks];
  int64_t block_count_ = 0;
};

}  // namespace

template <>
void CpuBackend::compute(Stream& stream, const AttentionForwardArgs& args) {
  dispatch_floating(args.out.dtype(), "attention_forward", [&]<typename T>(TypeTag<T>) {
    const ForwardProblem<T> problem = {
        .shape = AttentionShape(args.in),
        .q = HeadRows<T>(args.in.q),
        .k = HeadRows<T>(args.in.k),
        .v = HeadRows<T>(args.in.v),
        .out = HeadRows<T>(args.out, args.in.q.head_dim),
        .key_bias = KeyBias<Accumulate<T>>(args.in.key_bias),
        .log_sum_exp = args.log_sum_exp.data_as<Accumulate<T>>(),
    };
    plan_scratch(stream, scratch_of(args));
    enqueue(stream, "attention_forward", 0, [problem](Worker& worker) {
      const AttentionShape& s = problem.shape;
      const int64_t chunks = (s.queries + kChunkQueries - 1) / kChunkQueries;
      worker.team.run(s.batch * s.heads * chunks, [&](int64_t task, int thread) {
        const int64_t head = task / chunks;
        void* scratch = worker.team.scratch(thread, ForwardChunk<T>::scratch_bytes(s.head_dim));
        ForwardChunk<T>(problem, head / s.heads, head % s.heads, scratch)
            .run(task % chunks * kChunkQueries);
      });
    });
  });
}

}  // namespace fsdp::cpu
