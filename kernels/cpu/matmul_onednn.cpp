// Matrix products by oneDNN's matmul primitive, which picks AVX2, AVX-512 or AMX code at run time.
// A primitive is made once per Product and worker; its scratch memory is ours, because the default
// one belongs to the thread that made it.
#include <algorithm>
#include <map>
#include <unordered_map>

#include <dnnl.hpp>

#include "kernels/cpu/matmul.h"

namespace fsdp::cpu {
namespace {

using dnnl::memory;

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

struct Primitive {
  dnnl::matmul matmul;
  std::unordered_map<int, memory> arguments;
  size_t scratch_bytes;
};

Primitive make_primitive(const Product& p, const dnnl::engine& engine) {
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
  const dnnl::matmul::primitive_desc chosen(description, attributes, engine);
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

// [Note: columns in blocks] When b is f32 and not transposed, oneDNN 2.6's AVX-512 code reads it in
// place unless it thinks that worse than a packed copy, and it packs too rarely: rows of 3,072
// floats, 12 KiB apart, all fall into the same few cache sets, and GPT-2's products run at half the
// rate. For a block of columns of a wider b it does pack.
constexpr int64_t kColumnBlock = 512;

bool in_column_blocks(const Product& p) {
  static const bool avx512 = machine_has(dnnl::cpu_isa::avx512_core);
  return avx512 && p.operand == DType::kF32 && !p.transpose_b && p.n > kColumnBlock;
}

}  // namespace

struct MatmulCache::Impl {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<Product, Primitive> primitives;
  std::vector<std::byte> scratch;

  void execute(const Product& product, const ProductData& data);
};

void MatmulCache::Impl::execute(const Product& product, const ProductData& data) {
  if (primitives.size() >= kMaxPrimitives) primitives.clear();
  auto found = primitives.find(product);
  if (found == primitives.end()) {
    found = primitives.emplace(product, make_primitive(product, engine)).first;
  }
  auto& [matmul, arguments, scratch_bytes] = found->second;
  constexpr size_t kAlignment = 64;
  if (scratch.size() < scratch_bytes + kAlignment) scratch.resize(scratch_bytes + kAlignment);
  void* aligned = scratch.data();
  size_t space = scratch.size();
  std::align(kAlignment, scratch_bytes, aligned, space);
  arguments.at(DNNL_ARG_SRC).set_data_handle(const_cast<void*>(data.a));
  arguments.at(DNNL_ARG_WEIGHTS).set_data_handle(const_cast<void*>(data.b));
  arguments.at(DNNL_ARG_DST).set_data_handle(data.c);
  arguments.at(DNNL_ARG_SCRATCHPAD).set_data_handle(aligned);
  if (product.bias) arguments.at(DNNL_ARG_BIAS).set_data_handle(const_cast<void*>(data.bias));
  matmul.execute(stream, arguments);
  stream.wait();
}

MatmulCache::MatmulCache() : impl_(std::make_unique<Impl>()) {}
MatmulCache::~MatmulCache() = default;

bool MatmulCache::supports(DType operand, DType result) {
  static const bool native_bf16 = machine_has(dnnl::cpu_isa::avx512_core_bf16);
  if (operand == DType::kF32) return result == DType::kF32;
  return operand == DType::kBF16 && native_bf16 &&
         (result == DType::kBF16 || result == DType::kF32);
}

void MatmulCache::multiply(const Product& product, const ProductData& data, ThreadTeam& team) {
  team.lead_libraries(worth_a_team(product));
  try {
    if (!in_column_blocks(product)) return impl_->execute(product, data);
    Product block = product;
    for (int64_t n = 0; n < product.n; n += kColumnBlock) {  // all f32: 4 bytes an element
      const auto offset = [n](const void* p) { return static_cast<const float*>(p) + n; };
      block.n = std::min(kColumnBlock, product.n - n);
      impl_->execute(block, {data.a, offset(data.b), data.bias ? offset(data.bias) : nullptr,
                             static_cast<float*>(data.c) + n});
    }
  } catch (const dnnl::error& e) {
    fail("[matmul] oneDNN: {} ({} x {} x {}, {} to {})", e.what(), product.m, product.n, product.k,
         name_of(product.operand), name_of(product.result));
  }
}

}  // namespace fsdp::cpu
