// A copy between two backends that are both slow: it comes after what was written, before what
// comes next.
#include "core/copy_in_order.h"

#include <doctest/doctest.h>

#include "kernels/cpu/cpu_backend.h"

using namespace fsdp;

namespace {

using Floats = std::vector<float>;

cpu::CpuOptions slow(int microseconds) {
  cpu::CpuOptions options;
  options.delay = [microseconds](const std::string&, std::string_view) { return microseconds; };
  return options;
}

}  // namespace

TEST_CASE("copy in order: there and back, over values that are still being written and read") {
  for (const int slower : {0, 1}) {
    cpu::CpuBackend here(slow(slower == 0 ? 2000 : 0)), there(slow(slower == 1 ? 2000 : 0));
    const Tensor a = Tensor::from_host(here, Shape{3}, Floats{1, 2, 3});
    const Tensor b = Tensor::from_host(there, Shape{3}, Floats{4, 5, 6});
    copy_in_order(here, a, b);
    a.write(Floats{7, 8, 9}.data());  // not before it has been read
    CHECK(b.to_doubles() == std::vector<double>{1, 2, 3});
    copy_in_order(here, b, a);
    b.write(Floats{0, 0, 0}.data());
    CHECK(a.to_doubles() == std::vector<double>{1, 2, 3});
    const Tensor c = Tensor::from_host(here, Shape{3}, Floats{4, 5, 6});
    copy_in_order(here, a, c);  // of one backend
    CHECK(c.to_doubles() == std::vector<double>{1, 2, 3});
  }
}
