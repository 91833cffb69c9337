// The main function of test_mpi: every rank runs every test case in the same order.
// Not for tests without MPI (tests/main.cpp). Run by ctest as mpirun -n 1, 2, 3 and 4.
#define DOCTEST_CONFIG_IMPLEMENT
#include <cstdio>

#include <doctest/doctest.h>
#include <mpi.h>

namespace {

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

// A case that failed on this rank would leave the others waiting in its next collective, so the
// job ends here. The failed assertion has been printed by then.
struct AbortOnFailure : doctest::IReporter {
  explicit AbortOnFailure(const doctest::ContextOptions&) {}
  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    if (stats.testCaseSuccess) return;
    std::fprintf(stderr, "rank %d: a test case failed, aborting the job\n", world_rank());
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};

REGISTER_LISTENER("abort_on_failure", 1, AbortOnFailure);

}  // namespace

int main(int argc, char** argv) {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  if (provided < MPI_THREAD_MULTIPLE) {
    std::fprintf(stderr, "this MPI gives thread level %d, MPI_THREAD_MULTIPLE is needed\n",
                 provided);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  doctest::Context context(argc, argv);
  context.setOption("minimal", world_rank() != 0);  // the others print only what failed
  const int failed = context.run();
  MPI_Finalize();
  return failed;
}
