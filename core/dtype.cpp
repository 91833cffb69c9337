// Names and sizes of element types.
#include "core/dtype.h"

#include <array>
#include <limits>

namespace fsdp {
namespace {

struct DTypeInfo {
  std::string_view name;
  size_t bytes;
  bool floating;
};
constexpr std::array<DTypeInfo, 6> kInfo = {{{"f32", 4, true},
                                             {"bf16", 2, true},
                                             {"f16", 2, true},
                                             {"f64", 8, true},
                                             {"i32", 4, false},
                                             {"i64", 8, false}}};

const DTypeInfo& info(DType dtype) { return kInfo[static_cast<size_t>(dtype)]; }

}  // namespace

size_t size_of(DType dtype) { return info(dtype).bytes; }
std::string_view name_of(DType dtype) { return info(dtype).name; }
bool is_floating(DType dtype) { return info(dtype).floating; }

DType accumulation_dtype(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

double largest_finite(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return std::numeric_limits<double>::max();
    case DType::kF32:
      return double{std::numeric_limits<float>::max()};
    case DType::kBF16:
      return 0x1.fep127;
    case DType::kF16:
      return 65504;
    default:
      fail("largest_finite: expected a floating dtype, got {}", name_of(dtype));
  }
}

DType parse_dtype(std::string_view name) {
  struct Alias {
    std::string_view name;
    DType dtype;
  };
  constexpr std::array<Alias, 12> kAliases = {{{"fp32", DType::kF32},
                                               {"float32", DType::kF32},
                                               {"float", DType::kF32},
                                               {"bfloat16", DType::kBF16},
                                               {"fp16", DType::kF16},
                                               {"float16", DType::kF16},
                                               {"half", DType::kF16},
                                               {"fp64", DType::kF64},
                                               {"float64", DType::kF64},
                                               {"double", DType::kF64},
                                               {"int32", DType::kI32},
                                               {"int64", DType::kI64}}};
  for (size_t i = 0; i < kInfo.size(); ++i) {
    if (kInfo[i].name == name) return static_cast<DType>(i);
  }
  for (const Alias& alias : kAliases) {
    if (alias.name == name) return alias.dtype;
  }
  fail("dtype: expected one of f64, f32, bf16, f16, i32, i64, got '{}'", name);
}

}  // namespace fsdp
