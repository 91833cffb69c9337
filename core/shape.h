// The extents of a tensor: up to kMaxRank dimensions, outermost first.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace fsdp {

class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;  // rank 0: one element
  Shape(std::initializer_list<int64_t> extents);
  explicit Shape(const std::vector<int64_t>& extents);

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return extents_[static_cast<size_t>(i < 0 ? rank_ + i : i)]; }
  int64_t numel() const;
  int64_t last() const { return (*this)[-1]; }
  // Product of all but the last extent: the rows of a row-wise kernel.
  int64_t rows() const;
  std::vector<int64_t> extents() const { return {extents_.begin(), extents_.begin() + rank_}; }
  std::string str() const;  // "(2, 3)"

  bool operator==(const Shape& other) const;

 private:
  std::array<int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

}  // namespace fsdp
