// ThreadTeam: every task exactly once, exceptions, scratch; conversion of runs of elements.
#include "kernels/cpu/parallel.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <stdexcept>

#include <doctest/doctest.h>

#include "kernels/cpu/convert.h"
#include "tests/support/tensors.h"

namespace fsdp::cpu {
namespace {

TEST_CASE("a team runs every task once, on threads it has") {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadTeam team(threads);
    for (const int64_t tasks : {0, 1, 2, 5, 100}) {
      std::vector<int> runs(static_cast<size_t>(tasks));
      std::atomic<int> wrong_thread = 0;
      team.run(tasks, [&](int64_t task, int thread) {
        ++runs[static_cast<size_t>(task)];
        if (thread < 0 || thread >= threads) ++wrong_thread;
      });
      CHECK(runs == std::vector<int>(static_cast<size_t>(tasks), 1));
      CHECK(wrong_thread == 0);
    }
    std::vector<int> seen(1000);
    team.parallel_for(1000, 7, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
    });
    CHECK(seen == std::vector<int>(1000, 1));
  }
}

TEST_CASE("the exception of a task reaches the caller, and the team goes on") {
  ThreadTeam team(3);
  for (int round = 0; round < 3; ++round) {
    CHECK_THROWS_WITH_AS(team.run(30,
                                  [](int64_t task, int) {
                                    if (task == 29) throw std::runtime_error("task 29");
                                  }),
                         "task 29", std::runtime_error);
    std::atomic<int> count = 0;
    team.run(30, [&](int64_t, int) { ++count; });
    CHECK(count == 30);
  }
}

TEST_CASE("scratch is aligned, grows, and is apart for each thread") {
  ThreadTeam team(2);
  void* small = team.scratch(0, 100);
  CHECK(reinterpret_cast<uintptr_t>(small) % 64 == 0);
  CHECK(team.scratch(0, 50) == small);
  CHECK(team.scratch(1, 100) != small);
  CHECK(reinterpret_cast<uintptr_t>(team.scratch(0, 1 << 20)) % 64 == 0);
}

template <typename From, typename To>
void check_conversion() {
  std::vector<double> values = test::random_values(1003, 1, -3, 3);
  for (const double special :
       {0.0, -0.0, 1e-7, 1e-8, 65519.0, 65520.0, 1e-41, 3e38, 1e300, -1e300,
        std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    values.push_back(special);
  }
  std::vector<From> from;
  for (const double value : values) {
    from.push_back(static_cast<From>(static_cast<Accumulate<From>>(value)));
  }
  for (const size_t skip : {size_t{0}, size_t{1}, size_t{5}}) {  // unaligned too
    std::vector<To> to(from.size() - skip);
    convert(from.data() + skip, to.data(), static_cast<int64_t>(to.size()));
    int wrong = 0;
    for (size_t i = 0; i < to.size(); ++i) {
      // one element at a time, by the types' own rules
      const auto got = static_cast<double>(to[i]);
      const auto expected =
          static_cast<double>(static_cast<To>(static_cast<Accumulate<To>>(from[i + skip])));
      wrong += std::isnan(expected)
                   ? !std::isnan(got)
                   : got != expected || std::signbit(got) != std::signbit(expected);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE_TEMPLATE("runs of elements convert like single ones", T, float, BFloat16, Float16,
                   double) {
  check_conversion<T, float>();
  check_conversion<T, BFloat16>();
  check_conversion<T, Float16>();
  check_conversion<T, double>();
}

}  // namespace
}  // namespace fsdp::cpu
