// What a user is told where attention could be cuDNN's and is not: once per reason, and nothing of
// problems that follow another rule. On the emulator, which can be without cuDNN.
#include "tests/cuda_emulator/emulator.h"
#include "tests/support/attention_case.h"
#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

using Notes = std::vector<std::string>;

cuda::CudaOptions told_to(Notes& notes, size_t workspace = size_t{1} << 30) {
  return {.note = [&notes](const std::string& text) { notes.push_back(text); },
          .attention_workspace = workspace};
}

void attend(Backend& gpu, const Case& c, DType dtype = DType::kBF16) {
  run_attention(gpu, c, dtype, Operands(c, dtype));
}

constexpr Case kOrdinary = {1, 1, 1, 64, 64, 8};

TEST_CASE("without cuDNN the own kernels compute, and one note says why") {
  Notes notes;
  emulator::Settings settings = emulator::settings();
  settings.without_cudnn = true;
  const emulator::Configured configured(settings);
  cuda::CudaBackend gpu(told_to(notes)), asked({.attention = cuda::AttentionChoice::kCudnn});
  attend(gpu, kOrdinary);
  attend(gpu, kOrdinary);
  CHECK(notes == Notes{"attention is computed by the own kernels: [cuDNN] Create: emulated (left "
                       "out)"});
  CHECK_THROWS_WITH_AS(attend(asked, kOrdinary), "[cuDNN] Create: emulated (left out)", Error);
}

TEST_CASE("a plan that cannot be made is told once per reason; another rule is not") {
  Notes notes;
  cuda::CudaBackend gpu(told_to(notes, 100));
  attend(gpu, kOrdinary);
  attend(gpu, kOrdinary);
  attend(gpu, {2, 1, 1, 64, 64, 8});  // cut down to the same
  REQUIRE(notes.size() == 1);
  CAPTURE(notes[0]);
  CHECK(notes[0].starts_with("[attention_backward (1, 64, 8) bf16 (1, 64, 8) bf16 "));
  CHECK(notes[0].ends_with(
      "] not by cuDNN, by the own kernels: cuDNN's engine 2 needs 8448 bytes of workspace: "
      "expected at most 100"));
  attend(gpu, {1, 1, 1, 128, 128, 8});
  CHECK(notes.size() == 2);
  attend(gpu, kOrdinary, DType::kF32);
  attend(gpu, {1, 1, 1, 63, 63, 8});
  attend(gpu, {1, 1, 1, 64, 64, 8, false, 6});
  CHECK(notes.size() == 2);
}

}  // namespace
}  // namespace fsdp::test
