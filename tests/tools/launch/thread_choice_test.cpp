// How many threads a rank gets, and what is said about it.
#include "tools/launch/thread_choice.h"

#include <map>
#include <string>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

TEST_CASE("threads: they share the cores") {
  const auto threads = [](int requested, const CoreSharing& cores) {
    return choose_threads(requested, cores).threads;
  };
  CHECK(threads(0, {.usable = 16, .of_machine = 16, .ranks = 1}) == 16);
  CHECK(threads(0, {.usable = 16, .of_machine = 16, .ranks = 4, .ranks_on_host = 4}) == 4);
  CHECK(threads(0, {.usable = 2, .of_machine = 2, .ranks = 3, .ranks_on_host = 3}) == 1);
  CHECK(threads(0, {.usable = 7, .of_machine = 8, .ranks = 2, .ranks_on_host = 2}) == 3);
  CHECK(threads(5, {.usable = 16, .of_machine = 16, .ranks = 4, .ranks_on_host = 4}) == 5);
}

TEST_CASE("threads: warnings") {
  const auto warning = [](int requested, const CoreSharing& cores) {
    return choose_threads(requested, cores).warning;
  };
  // All cores in use, one each.
  CHECK(warning(0, {.usable = 1,
                    .of_machine = 2,
                    .ranks = 1,
                    .ranks_on_host = 2,
                    .bound_by_launcher = true}) == "");
  CHECK(warning(1, {.usable = 2, .of_machine = 2, .ranks = 2, .ranks_on_host = 2}) == "");
  // More threads than the launcher allows.
  CHECK(test::contains(warning(4, {.usable = 1,
                                   .of_machine = 8,
                                   .ranks = 1,
                                   .ranks_on_host = 2,
                                   .bound_by_launcher = true}),
                       "4 threads per rank, but the launcher bound each rank to 1 of 8 cores; "
                       "give mpirun --bind-to none"));
  // Cores left idle by the launcher.
  CHECK(test::contains(warning(0, {.usable = 1,
                                   .of_machine = 8,
                                   .ranks = 1,
                                   .ranks_on_host = 2,
                                   .bound_by_launcher = true}),
                       "--bind-to none"));
  // A container has fewer cores than its machine: no launcher to blame.
  CHECK(warning(0, {.usable = 2, .of_machine = 64, .ranks = 1}) == "");
  // More ranks than cores is the user's wish, more threads than cores is not.
  CHECK(warning(0, {.usable = 2, .of_machine = 2, .ranks = 3, .ranks_on_host = 3}) == "");
  CHECK(test::contains(warning(2, {.usable = 2, .of_machine = 2, .ranks = 3, .ranks_on_host = 3}),
                       "3 ranks of 2 threads share 2 cores"));
  CHECK(warning(1, {.usable = 2, .of_machine = 2, .ranks = 4, .ranks_on_host = 4}) ==
        "4 ranks share 2 cores: fewer ranks are faster");
}

TEST_CASE(
    "threads: OMP_NUM_THREADS is the default number of threads, and a note says what it costs") {
  const CoreSharing sixteen = {.usable = 16, .of_machine = 16, .ranks = 2, .ranks_on_host = 2};
  ThreadChoice choice = choose_threads(0, sixteen, "1");
  CHECK(choice.threads == 1);
  CHECK(choice.note ==
        "OMP_NUM_THREADS=1: 1 thread a rank; 14 of 16 cores stay idle, --threads 8 uses them");
  CHECK(choice.warning == "");
  choice = choose_threads(0, sixteen, "8,2");  // the second number is for nested teams
  CHECK(choice.threads == 8);
  CHECK(choice.note == "OMP_NUM_THREADS=8: 8 threads a rank");
  choice = choose_threads(0, sixteen, "12");
  CHECK(choice.threads == 12);
  CHECK(test::contains(choice.warning, "2 ranks of 12 threads share 16 cores"));
  CHECK(choice.note == "OMP_NUM_THREADS=12: 12 threads a rank");
  // --threads counts more; without either, the cores are shared out.
  choice = choose_threads(5, sixteen, "1");
  CHECK(choice.threads == 5);
  CHECK(choice.note == "");
  for (const char* not_set : {static_cast<const char*>(nullptr), ""}) {
    choice = choose_threads(0, sixteen, not_set);
    CHECK(choice.threads == 8);
    CHECK(choice.note == "");
  }
  const CoreSharing nobody = {.usable = 16, .of_machine = 16, .ranks = 0, .ranks_on_host = 0};
  CHECK(test::contains(choose_threads(0, nobody, "1").note, "--threads 16 uses them"));
}

// OpenMP 5.2, chapter 21: values may have white space around them. libgomp ignores what it cannot
// read and says so; so does PyTorch.
TEST_CASE(
    "threads: values of OMP_NUM_THREADS that OpenMP cannot read have their sensible meaning") {
  const CoreSharing eight = {.usable = 8, .of_machine = 8};
  for (const char* four : {"4", "4 ", " 4", "\t4\n", "+4", "4,2", " 4 , 2 "}) {
    CAPTURE(four);
    const ThreadChoice choice = choose_threads(0, eight, four);
    CHECK(choice.threads == 4);
    CHECK(choice.warning == "");
  }
  for (const auto& [text, threads] : std::map<std::string, int>{
           {"3500m", 3}, {"500m", 1}, {"2.75", 2}, {"\"6\"", 6}, {"'2'", 2}}) {
    CAPTURE(text);
    const ThreadChoice choice = choose_threads(0, eight, text.c_str());
    CHECK(choice.threads == threads);
    CHECK(choice.warning == fmt::format("OMP_NUM_THREADS={}: expected a number from 1 to 1024, "
                                        "taken as {}",
                                        text, threads));
    CHECK(test::contains(choice.note, fmt::format("OMP_NUM_THREADS={}: ", threads)));
  }
  for (const char* wrong : {"0", "-1", "two", "4x", "1025", "all", "auto", "0m", "0.0", "nan",
                            "1e9", "99999999999", ","}) {
    CAPTURE(wrong);
    const ThreadChoice choice = choose_threads(0, eight, wrong);
    CHECK(choice.threads == 8);
    CHECK(choice.warning == fmt::format("OMP_NUM_THREADS={}: expected a number from 1 to 1024, it "
                                        "has no effect",
                                        wrong));
    CHECK(choose_threads(2, eight, wrong).threads == 2);
    CHECK(choose_threads(2, eight, wrong).warning == "");
  }
  CHECK(choose_threads(0, eight, " ").warning == "");
  const ThreadChoice both =
      choose_threads(0, {.usable = 2, .of_machine = 2, .ranks = 2, .ranks_on_host = 2}, "4000m");
  CHECK(both.warning ==
        "OMP_NUM_THREADS=4000m: expected a number from 1 to 1024, taken as 4; 2 "
        "ranks of 4 threads share 2 cores: fewer threads are faster");
}

TEST_CASE("threads: one rank with more threads than cores") {
  CHECK(choose_threads(4, {.usable = 2, .of_machine = 2}).warning ==
        "1 rank of 4 threads shares 2 cores: fewer threads are faster");
}

TEST_CASE("threads: the CPU time of a control group is shared by its ranks") {
  const auto with = [](double cpus, int ranks, int usable = 8) {
    return CoreSharing{.usable = usable,
                       .of_machine = 8,
                       .ranks = ranks,
                       .ranks_on_host = ranks,
                       .quota = {cpus, "cpu.max of the control group /a"},
                       .ranks_of_quota = ranks};
  };
  for (const auto& [cpus, threads] : std::map<double, int>{{0.1, 1},
                                                           {0.5, 1},
                                                           {1, 1},
                                                           {1.5, 1},
                                                           {1.6, 2},
                                                           {2, 2},
                                                           {3.5, 3},
                                                           {3.9, 4},
                                                           {8, 8},
                                                           {64, 8}}) {
    CAPTURE(cpus);
    CHECK(choose_threads(0, with(cpus, 1)).threads == threads);
  }
  CHECK(choose_threads(0, with(4, 2)).threads == 2);
  CHECK(choose_threads(0, with(2, 4)).threads == 1);
  CHECK(choose_threads(0, with(1, 1, 2)).note ==
        "cpu.max of the control group /a: 1 of 2 CPUs, 1 thread a rank");
  CHECK(choose_threads(0, with(8, 1)).note == "");
  CHECK(choose_threads(0, with(64, 1)).note == "");
  // Bound to cores of their own, ranks still share the time.
  CoreSharing bound = with(2, 1, 2);
  bound.ranks_of_quota = 4;
  CHECK(choose_threads(0, bound).threads == 1);
  // What the user says counts, with a word about it.
  CHECK(choose_threads(4, with(1.5, 1)).threads == 4);
  CHECK(choose_threads(4, with(1.5, 1)).warning ==
        "1 rank of 4 threads shares 1.5 of 8 CPUs, cpu.max of the control group /a: fewer threads "
        "are "
        "faster");
  CHECK(choose_threads(1, with(0.5, 1)).warning == "");
  CHECK(choose_threads(0, with(2, 1), "1").note ==
        "OMP_NUM_THREADS=1: 1 thread a rank; 1 of 2 cores stay idle, --threads 2 uses them");
  CHECK(choose_threads(0, with(2, 1), "all").threads == 2);
}

TEST_CASE("threads: of this machine") {
  CHECK(threads_here(3, 1) == 3);
  CHECK(threads_here(0, 1) >= 1);
}

}  // namespace
}  // namespace fsdp::tools
