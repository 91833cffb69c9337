// Matrix products by oneDNN's matmul primitive, which picks AVX2, AVX-512 or AMX code at run time.
// A primitive is made once per Product and worker; its scratch memory is ours, because the default
// one belongs to the thread that made it.
#include <algorithm>
#include <map>
#include <unordered_map>

#include <dnnl.hpp>
#include <sys/mman.h>

#include "kernels/cpu/matmul.h"

namespace fsdp::cpu {
namespace {

using dnnl::memory;

constexpr size_t kAlignment = 64;       // of scratch
constexpr size_t kMaxPrimitives = 512;  // then start afresh: generation meets ever new shapes

memory::data_type type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return memory::data_type::f32;
    case DType::kBF16:
      return memory::data_type::bf16;
    default:
      fail("[matmul] dtype: {} is not given to oneDNN", name_of(dtype));
  }
}

// Of a (rows, columns) matrix that is stored row by row, or column by column when transposed.
memory::desc matrix(int64_t rows, int64_t columns, int64_t stride, bool transposed, DType dtype) {
  const memory::dims strides = transposed ? memory::dims{1, stride} : memory::dims{stride, 1};
  return {{rows, columns}, type_of(dtype), strides};
}

// Memory that only grows, aligned for vectors.
class Room {
 public:
  static size_t taken_for(size_t bytes) { return bytes == 0 ? 0 : bytes + kAlignment; }
  void* of(size_t bytes) {
    if (memory_.size() < taken_for(bytes)) {
      memory_ = {};  // first, so that the two are never held together
      memory_.resize(taken_for(bytes));
    }
    void* aligned = memory_.data();
    size_t space = memory_.size();
    return std::align(kAlignment, bytes, aligned, space);
  }

 private:
  std::vector<std::byte> memory_;
};

struct Primitive {
  dnnl::matmul matmul;
  std::unordered_map<int, memory> arguments;
  size_t scratch_bytes;
};

struct Description {
  memory::desc a, b, c, bias;
  dnnl::matmul::primitive_desc chosen;
};

// oneDNN takes memory for its descriptions and maps some for the code that it makes. It does not
// look whether it got any.
void check_room_for_code() {
  constexpr size_t kCode = size_t{4} << 20;
  void* const room =
      ::mmap(nullptr, kCode, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  FSDP_CHECK(room != MAP_FAILED,
             "[matmul] out of memory: no room for the code of a product (ulimit -v limits the "
             "addresses of this process)");
  ::munmap(room, kCode);
}

Description describe(const Product& p, const dnnl::engine& engine) {
  check_room_for_code();
  const auto a = matrix(p.m, p.k, p.lda, p.transpose_a, p.operand);
  const auto b = matrix(p.k, p.n, p.ldb, p.transpose_b, p.operand);
  const auto c = matrix(p.m, p.n, p.ldc, false, p.result);
  const auto bias = p.bias ? matrix(1, p.n, p.n, false, p.operand) : memory::desc();
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (p.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  const auto description = p.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  return {a, b, c, bias, dnnl::matmul::primitive_desc(description, attributes, engine)};
}

Primitive make_primitive(const Product& p, const dnnl::engine& engine) {
  const auto [a, b, c, bias, chosen] = describe(p, engine);
  Primitive primitive{dnnl::matmul(chosen), {}, chosen.scratchpad_desc().get_size()};
  const auto argument = [&](int index, const memory::desc& desc) {
    primitive.arguments.emplace(index, memory(desc, engine, nullptr));
  };
  argument(DNNL_ARG_SRC, a);
  argument(DNNL_ARG_WEIGHTS, b);
  argument(DNNL_ARG_DST, c);
  argument(DNNL_ARG_SCRATCHPAD, chosen.scratchpad_desc());
  if (p.bias) argument(DNNL_ARG_BIAS, bias);
  return primitive;
}

// The values of cpu_isa are sets of bits: one that has more has all bits of what it extends.
bool machine_has(dnnl::cpu_isa isa) {
  const int wanted = static_cast<int>(isa);
  return (static_cast<int>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}

// [Note: products in blocks] Three kinds of products run slowly in oneDNN 2.6 unless given in
// pieces:
// 1. AVX-512, f32, b not transposed: b is read in place unless oneDNN thinks that worse than a
//    packed copy, and it packs too rarely: rows of 3,072 floats, 12 KiB apart, all fall into the
//    same few cache sets, at half the rate. For a block of columns of a wider b it does pack.
// 2. AVX2, f32, few rows or columns: both operands are read in place, whether in blocks or not
//    (reads_in_place). A b that is not transposed then goes through a copy with rows that fall into
//    all cache sets, in blocks; 256 x 3072 x 768 doubles its rate. Of a transposed b, fewer columns
//    at a time are faster.
// 3. AMX, weight gradients (a transposed, f32 result): a long sum is slower than two that
//    accumulate.
constexpr int64_t kColumnBlock = 512;
constexpr int64_t kDepthBlock = 512;
constexpr int64_t kCopiedBlock = 1024;  // columns and rows of b that are copied at a time
constexpr int64_t kCacheLine = 16;      // floats
constexpr int64_t kCrowdedRow = 512;    // floats: rows so far apart share cache sets
constexpr int64_t kCopiedRows = 32;     // that one thread copies at a time

bool in_f32_on(bool avx512, const Product& p) {
  static const bool has = machine_has(dnnl::cpu_isa::avx512_core);
  return p.operand == DType::kF32 && has == avx512;
}

// As oneDNN decides for its AVX2 code (gemm_driver.cpp, nocopy_checker_avx2), by the result alone.
bool reads_in_place(int64_t m, int64_t n) {
  return 1.0 / static_cast<double>(m) + 1.0 / static_cast<double>(n) >= 0.0038;
}

bool copies_b(const Product& p, int64_t rows) {
  // Rows that are an odd number of cache lines apart fall into all cache sets as they are.
  const bool spread = p.ldb % kCacheLine == 0 && p.ldb / kCacheLine % 2 == 1;
  const int64_t least = p.ldb % kCrowdedRow == 0 ? 32 : 256;  // that make up for the copy
  return in_f32_on(/*avx512=*/false, p) && !p.transpose_b && !spread && rows >= least &&
         reads_in_place(rows, std::min(p.n, kCopiedBlock));
}

int64_t columns_at_a_time(const Product& p) {
  if (!p.transpose_b) return in_f32_on(/*avx512=*/true, p) ? kColumnBlock : p.n;
  const bool wide = p.n > 2 * kColumnBlock && reads_in_place(p.m, p.n);
  return in_f32_on(/*avx512=*/false, p) && wide ? kColumnBlock : p.n;
}

int64_t depth_at_a_time(const Product& p) {
  static const bool amx = machine_has(dnnl::cpu_isa::avx512_core_amx);
  const bool slow = p.operand == DType::kBF16 && p.result == DType::kF32 && p.transpose_a;
  return amx && slow ? kDepthBlock : p.k;
}

// Of CpuOptions::fixed_tiles. oneDNN copies parts of both operands for each tile: smaller tiles
// cost more, larger ones leave threads without work.
constexpr int64_t kTileRows = 256;
constexpr int64_t kTileColumns = 256;

// How a product is cut: into tiles of the result, each a sum of blocks.
struct Cut {
  int64_t rows, columns, depth;  // of a block; the last ones may be smaller
  bool copied;                   // blocks of b
  int64_t down, across, summed;  // blocks

  Cut(const Product& p, bool fixed_tiles)
      : rows(std::min(p.m, fixed_tiles ? kTileRows : p.m)),
        columns(fixed_tiles ? kTileColumns : columns_at_a_time(p)),
        depth(depth_at_a_time(p)),
        copied(copies_b(p, rows)) {
    if (copied && !fixed_tiles) columns = kCopiedBlock;
    if (copied) depth = kCopiedBlock;
    columns = std::min(columns, p.n);
    depth = std::min(depth, p.k);
    down = (p.m + rows - 1) / rows;
    across = (p.n + columns - 1) / columns;
    summed = (p.k + depth - 1) / depth;
  }
  int64_t tiles() const { return down * across; }
  // Floats from one row of a copied block to the next: an odd number of cache lines.
  int64_t copied_row() const { return kCacheLine * ((columns + kCacheLine - 1) / kCacheLine | 1); }
  size_t copied_bytes() const {
    return copied ? static_cast<size_t>(depth * copied_row()) * sizeof(float) : 0;
  }
};

// Rows from m, columns from n of the result, terms from k of the sum.
Product block_of(const Product& p, const Cut& cut, int64_t m, int64_t n, int64_t k) {
  Product block = p;
  block.m = std::min(cut.rows, p.m - m);
  block.n = std::min(cut.columns, p.n - n);
  block.k = std::min(cut.depth, p.k - k);
  block.bias = p.bias && k == 0;
  block.accumulate = p.accumulate || k > 0;
  // As in product_of(): a single row is followed by none.
  if (block.m == 1) block.ldc = block.n;
  if (block.m == 1 && !p.transpose_a) block.lda = block.k;
  if (block.n == 1 && p.transpose_b) block.ldb = block.k;
  if (cut.copied) block.ldb = cut.copied_row();
  return block;
}

ProductData block_data(const Product& p, const ProductData& data, int64_t m, int64_t n, int64_t k) {
  const auto plus = [](const void* start, int64_t elements, DType dtype) {
    const auto* bytes = static_cast<const std::byte*>(start);
    return bytes ? bytes + elements * static_cast<int64_t>(size_of(dtype)) : nullptr;
  };
  return {plus(data.a, p.transpose_a ? k * p.lda + m : m * p.lda + k, p.operand),
          plus(data.b, p.transpose_b ? n * p.ldb + k : k * p.ldb + n, p.operand),
          plus(data.bias, n, p.operand),
          const_cast<std::byte*>(plus(data.c, m * p.ldc + n, p.result))};
}

}  // namespace

struct MatmulCache::Impl {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<Product, Primitive> primitives;
  Room scratch, copy_of_b;

  // `alone`: by this thread, not by the team.
  void copy_b(const Product& block, const Cut& cut, int64_t ldb, ProductData& data,
              ThreadTeam& team, bool alone);
  void execute(const Product& product, const ProductData& data);
};

void MatmulCache::Impl::copy_b(const Product& block, const Cut& cut, int64_t ldb, ProductData& data,
                               ThreadTeam& team, bool alone) {
  const auto* from = static_cast<const float*>(data.b);
  auto* const copy = static_cast<float*>(copy_of_b.of(cut.copied_bytes()));
  data.b = copy;
  const auto copy_rows = [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::copy_n(from + row * ldb, block.n, copy + row * block.ldb);
    }
  };
  if (alone) {
    copy_rows(0, block.k);
  } else {
    team.parallel_for(block.k, kCopiedRows, copy_rows);
  }
}

void MatmulCache::Impl::execute(const Product& product, const ProductData& data) {
  if (primitives.size() >= kMaxPrimitives) primitives.clear();
  auto found = primitives.find(product);
  if (found == primitives.end()) {
    found = primitives.emplace(product, make_primitive(product, engine)).first;
  }
  auto& [matmul, arguments, scratch_bytes] = found->second;
  arguments.at(DNNL_ARG_SRC).set_data_handle(const_cast<void*>(data.a));
  arguments.at(DNNL_ARG_WEIGHTS).set_data_handle(const_cast<void*>(data.b));
  arguments.at(DNNL_ARG_DST).set_data_handle(data.c);
  arguments.at(DNNL_ARG_SCRATCHPAD).set_data_handle(scratch.of(scratch_bytes));
  if (product.bias) arguments.at(DNNL_ARG_BIAS).set_data_handle(const_cast<void*>(data.bias));
  matmul.execute(stream, arguments);
  stream.wait();
}

MatmulCache::MatmulCache(bool fixed_tiles) : fixed_tiles_(fixed_tiles) {}
MatmulCache::~MatmulCache() = default;

bool MatmulCache::supports(DType operand, DType result) {
  static const bool native_bf16 = machine_has(dnnl::cpu_isa::avx512_core_bf16);
  if (operand == DType::kF32) return result == DType::kF32;
  return operand == DType::kBF16 && native_bf16 &&
         (result == DType::kBF16 || result == DType::kF32);
}

void MatmulCache::multiply(const Product& product, const ProductData& data, ThreadTeam& team) {
  const Cut cut(product, fixed_tiles_);
  const bool with_team = worth_a_team(product);
  const bool alone = fixed_tiles_ || !with_team;
  const auto compute_tile = [&](int64_t tile, int thread) {
    Impl& impl = *impls_[static_cast<size_t>(thread)];
    const int64_t m = tile / cut.across * cut.rows, n = tile % cut.across * cut.columns;
    for (int64_t k = 0; k < product.k; k += cut.depth) {
      const Product block = block_of(product, cut, m, n, k);
      ProductData part = block_data(product, data, m, n, k);
      if (cut.copied) impl.copy_b(block, cut, product.ldb, part, team, alone);
      impl.execute(block, part);
    }
  };
  const size_t workers = fixed_tiles_ ? static_cast<size_t>(team.threads()) : 1;
  while (impls_.size() < workers) impls_.push_back(std::make_unique<Impl>());
  try {
    if (fixed_tiles_ && with_team) {
      team.run(cut.tiles(), [&](int64_t tile, int thread) {
        const LibraryThreads alone(1);
        compute_tile(tile, thread);
      });
    } else {
      team.lead_libraries(!alone);
      for (int64_t tile = 0; tile < cut.tiles(); ++tile) compute_tile(tile, 0);
    }
  } catch (const dnnl::error& e) {
    fail("[matmul] oneDNN: {} ({} x {} x {}, {} to {})", e.what(), product.m, product.n, product.k,
         name_of(product.operand), name_of(product.result));
  }
}

// oneDNN asks how many threads there will be: as in multiply().
ProductNeed MatmulCache::need(const Product& product, int threads, bool fixed_tiles) {
  const int team = worth_a_team(product) ? threads : 1;
  const LibraryThreads of_team(fixed_tiles ? 1 : team);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const Cut cut(product, fixed_tiles);
  size_t most = 0;
  // The first and the last blocks, of which there are two kinds in each direction.
  for (const int64_t m : {int64_t{0}, (cut.down - 1) * cut.rows}) {
    for (const int64_t n : {int64_t{0}, (cut.across - 1) * cut.columns}) {
      for (const int64_t k : {int64_t{0}, cut.depth, (cut.summed - 1) * cut.depth}) {
        if (k >= product.k) continue;
        const Product block = block_of(product, cut, m, n, k);
        most = std::max(most, describe(block, engine).chosen.scratchpad_desc().get_size());
      }
    }
  }
  return {.bytes = Room::taken_for(most),
          .copied = Room::taken_for(cut.copied_bytes()),
          .threads = fixed_tiles ? static_cast<int>(std::min<int64_t>(team, cut.tiles())) : 1};
}

}  // namespace fsdp::cpu
