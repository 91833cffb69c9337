// The order in which units are prefetched: registration at first, then what a pass showed.
#include <doctest/doctest.h>

#include "comm/fsdp/plan.h"
#include "tests/support/module_tree.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

// root (0) around a (1), with a.x (2) and a.y (3) inside, and b (4).
struct Rig {
  Rig() {
    Tree& a = root.child("a", "Unit");
    a.child("x", "Unit");
    a.child("y", "Unit");
    root.child("b", "Unit");
    order.emplace(plan_units(root, wrap_classes({"Unit"})));
  }
  std::vector<size_t> forward() const {
    std::vector<size_t> units;
    for (size_t i = 0; const auto unit = order->forward_after(0, i); ++i) units.push_back(*unit);
    return units;
  }
  std::vector<size_t> backward() {
    order->begin_backward(0);
    std::vector<size_t> units = {0};
    while (const auto unit = order->backward_next()) {
      units.push_back(*unit);
      order->begin_backward(*unit);
    }
    return units;
  }
  void run(const std::vector<int>& events) {  // unit begins: +, ends: ~unit
    for (const int e : events) {
      if (e >= 0) {
        order->begin_forward(static_cast<size_t>(e));
      } else {
        order->end_forward(static_cast<size_t>(~e));
      }
    }
  }
  Tree root{"", "Root"};
  std::optional<UnitOrder> order;
};

}  // namespace

TEST_CASE("before a pass: registration; backward enters outer units first, inner ones in reverse") {
  Rig rig;
  CHECK(rig.forward() == std::vector<size_t>{0, 1, 2, 3, 4});
  CHECK(rig.backward() == std::vector<size_t>{0, 4, 1, 3, 2});
  CHECK(!rig.order->forward_after(4, 1));
}

TEST_CASE("a whole pass sets the order, one that leaves a unit out does not") {
  Rig rig;
  rig.run({0, 4, ~4, 1, 3, ~3, 2, ~2, ~1, ~0});  // b before a, y before x
  CHECK(rig.forward() == std::vector<size_t>{0, 4, 1, 3, 2});
  CHECK(rig.backward() == std::vector<size_t>{0, 1, 2, 3, 4});
  rig.run({0, 1, 2, ~2, ~1, 4, ~4, ~0});
  CHECK(rig.forward() == std::vector<size_t>{0, 4, 1, 3, 2});
  rig.run({0, 1, 2, ~2, 3, ~3, ~1, 4, ~0});  // b only begins
  CHECK(rig.forward() == std::vector<size_t>{0, 4, 1, 3, 2});
  CHECK(rig.backward() == std::vector<size_t>{0, 1, 2, 3, 4});
}

TEST_CASE("a unit used twice counts at its first forward and its last") {
  Rig rig;
  rig.run({0, 4, ~4, 1, 2, ~2, 3, ~3, ~1, 4, ~4, ~0});
  CHECK(rig.forward() == std::vector<size_t>{0, 4, 1, 2, 3});
  CHECK(rig.backward() == std::vector<size_t>{0, 4, 1, 3, 2});
}

TEST_CASE("backward is not expected where the last one did not come, after a whole forward") {
  Rig rig;
  const auto back = [&](const std::vector<size_t>& units) {
    for (const size_t unit : units) rig.order->begin_backward(unit);
    rig.order->end_backward();
  };
  const std::vector<int> whole = {0, 1, 2, ~2, 3, ~3, ~1, 4, ~4, ~0};
  rig.run({0, 1, 2, ~2, ~1, 4, ~4, ~0});  // leaves 3 out
  back({0, 4});
  rig.order->begin_backward(0);
  CHECK(rig.order->comes_in_backward(2));
  rig.run(whole);
  back({0, 4});
  CHECK(rig.backward() == std::vector<size_t>{0, 4});
  rig.order->begin_backward(0);
  CHECK(rig.order->comes_in_backward(4));
  CHECK_FALSE(rig.order->comes_in_backward(1));
  rig.run(whole);
  back({0, 4, 1, 3, 2});  // trained again
  CHECK(rig.backward() == std::vector<size_t>{0, 4, 1, 3, 2});
}
