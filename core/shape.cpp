// Extents of a tensor: construction, counting, printing.
#include "core/shape.h"

#include <algorithm>

#include "core/error.h"

namespace fsdp {

Shape::Shape(std::initializer_list<int64_t> extents) : Shape(std::vector<int64_t>(extents)) {}

Shape::Shape(const std::vector<int64_t>& extents) : rank_(static_cast<int>(extents.size())) {
  FSDP_CHECK(rank_ <= kMaxRank, "[shape] rank: expected at most {}, got {}", kMaxRank, rank_);
  std::copy(extents.begin(), extents.end(), extents_.begin());
  for (const int64_t extent : extents) {
    FSDP_CHECK(extent >= 0, "[shape] extents must not be negative, got {}", str());
  }
}

int64_t Shape::numel() const {
  int64_t n = 1;
  for (int i = 0; i < rank_; ++i) n *= (*this)[i];
  return n;
}

int64_t Shape::rows() const {
  int64_t n = 1;
  for (int i = 0; i + 1 < rank_; ++i) n *= (*this)[i];
  return n;
}

std::string Shape::str() const {
  std::string out = "(";
  for (int i = 0; i < rank_; ++i) out += fmt::format("{}{}", i ? ", " : "", (*this)[i]);
  return out + ")";
}

bool Shape::operator==(const Shape& other) const { return extents() == other.extents(); }

}  // namespace fsdp
