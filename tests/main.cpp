// The main function of every test program without MPI: doctest's own.
// Not for the MPI tests: tests/mpi/main.cpp. Read next: tests/run_tests.sh.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
