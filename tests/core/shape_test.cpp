// Extents: counting, indexing from both ends, printing, limits.
#include "core/shape.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp {
namespace {

TEST_CASE("a shape counts its elements and rows") {
  const Shape shape = {2, 3, 5};
  CHECK(shape.rank() == 3);
  CHECK(shape.numel() == 30);
  CHECK(shape.rows() == 6);
  CHECK(shape.last() == 5);
  CHECK(shape[0] == 2);
  CHECK(shape[-2] == 3);
  CHECK(shape.str() == "(2, 3, 5)");
  CHECK(shape.extents() == std::vector<int64_t>{2, 3, 5});
}

TEST_CASE("a scalar has one element, an empty tensor none") {
  CHECK(Shape{}.numel() == 1);
  CHECK(Shape{}.rows() == 1);
  CHECK(Shape{}.str() == "()");
  CHECK(Shape{4, 0}.numel() == 0);
  CHECK(Shape{4, 0}.rows() == 4);
  CHECK(Shape{7}.rows() == 1);
}

TEST_CASE("shapes are equal when rank and extents are") {
  CHECK(Shape{2, 3} == Shape(std::vector<int64_t>{2, 3}));
  CHECK_FALSE(Shape{2, 3} == Shape{3, 2});
  CHECK_FALSE(Shape{2, 3} == Shape{2, 3, 1});
  CHECK_FALSE(Shape{} == Shape{0});
}

TEST_CASE("what is no shape is refused") {
  CHECK(test::error_of([] { Shape{1, 1, 1, 1, 1, 1, 1}; }) ==
        "[shape] rank: expected at most 6, got 7");
  CHECK(test::error_of([] {
          Shape{2, -1};
        }) == "[shape] extents must not be negative, got (2, -1)");
}

}  // namespace
}  // namespace fsdp
