// What DeepSpeed's estimators print, to the digit.
#include <doctest/doctest.h>

#include "tests/tools/predict/formulas/published.h"

namespace fsdp::test {
namespace {

// "per CPU | per GPU", GiB.
std::string pair(const Numbers& numbers, const std::string& cpu, const std::string& gpu) {
  return printed("deepspeed3", numbers, {cpu}, kGiB, 2) + "|" +
         printed("deepspeed3", numbers, {gpu}, kGiB, 2);
}

TEST_CASE("formula deepspeed3: t5-3b as documented, from rounded sizes and from true ones") {
  CHECK(pair({}, "both_cpu_init", "both_gpu") == "71.69|0.12");
  CHECK(pair({}, "both_cpu", "both_gpu") == "127.45|0.12");
  CHECK(pair({}, "optimizer_cpu_init", "optimizer_gpu") == "63.72|0.78");
  CHECK(pair({}, "optimizer_cpu", "optimizer_gpu") == "127.45|0.78");
  CHECK(pair({}, "none_cpu_init", "none_gpu") == "1.43|6.09");
  CHECK(pair({}, "none_cpu", "none_gpu") == "127.45|6.09");
  // 2,851,598,336 parameters, of which the table of 32,128 tokens has 1024 each.
  const Numbers exact = {"psi=2851598336", "Lmax=32899072"};
  CHECK(pair(exact, "none_cpu_init", "none_gpu") == "1.47|6.10");
  CHECK(pair(exact, "optimizer_cpu_init", "optimizer_gpu") == "63.74|0.79");
}

TEST_CASE("formula deepspeed3: t5-large on 4 GPUs, MiB") {
  const Numbers numbers = {"psi=737.67e6", "Lmax=32.90e6", "g=4"};
  // 125.5 is cut off where it was printed.
  CHECK(printed("deepspeed3", numbers, {"none_gpu", "both_gpu", "optimizer_gpu"}, kMiB, 1) ==
        "3291.2 125.5 477.3");
}

TEST_CASE("formula deepspeed3: models of the guides") {
  struct {
    const char *psi, *largest, *gpus;
    const char* expected;
  } const cases[] = {{"559214592", "256901120", "8", "14.06|0.96 12.50|1.09 11.48|2.13"},
                     {"1011781632", "103022592", "2", "25.44|0.38 22.62|1.33 1.15|8.86"},
                     {"7241732096", "131072000", "8", "182.10|0.49 161.87|2.17 5.86|15.66"},
                     {"6738546688", "131137536", "2", "169.45|0.49 150.62|6.76 1.47|56.97"},
                     {"13110865920", "257392640", "8", "329.68|0.96 293.05|4.01 11.51|28.43"}};
  for (const auto& c : cases) {
    CAPTURE(c.psi);
    const Numbers numbers = {std::string("psi=") + c.psi, std::string("Lmax=") + c.largest,
                             std::string("g=") + c.gpus};
    CHECK(pair(numbers, "both_cpu_init", "both_gpu") + " " +
              pair(numbers, "optimizer_cpu_init", "optimizer_gpu") + " " +
              pair(numbers, "none_cpu_init", "none_gpu") ==
          c.expected);
  }
}

TEST_CASE("formula deepspeed2: code and documentation differ where nothing is offloaded") {
  CHECK(printed("deepspeed2", {}, {"offload_cpu", "offload_gpu"}, kGiB, 2) == "127.45 5.31");
  CHECK(printed("deepspeed2", {}, {"none_cpu", "none_gpu"}, kGiB, 2) == "127.45 11.28");
  CHECK(printed("deepspeed2-doc", {}, {"offload_cpu", "offload_gpu"}, kGiB, 2) == "127.45 5.31");
  CHECK(printed("deepspeed2-doc", {}, {"none_cpu", "none_gpu"}, kGiB, 2) == "127.45 15.93");
}

}  // namespace
}  // namespace fsdp::test
