// The main function of every test program without MPI. Lines are written as they come, also into a
// file, so that a program that is cut leaves what it has said.
// Not for the MPI tests: tests/mpi/main.cpp. Read next: tests/run_tests.sh.
#include <cstdio>

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  return doctest::Context(argc, argv).run();
}
