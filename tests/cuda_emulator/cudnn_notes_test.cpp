// What a user is told where attention could be cuDNN's and is not: once per reason, and nothing of
// problems that follow another rule. On the emulator, which can be without cuDNN.
#include "kernels/cuda/cudnn_attention.h"
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
  attend(gpu, {1, 1, 1, 64, 64, 8, false, 6});
  CHECK(notes.size() == 2);
}

TEST_CASE("a length that is not worth a plan is told once, of training") {
  Notes notes;
  cuda::CudaBackend gpu(told_to(notes));
  attend(gpu, {1, 1, 1, 63, 63, 8});
  attend(gpu, {1, 1, 1, 65, 65, 8});
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].starts_with("[attention_backward (1, 63, 8) bf16 "));
  CHECK(
      notes[0].ends_with("by the own kernels: only lengths of a multiple of 64 are worth a plan; "
                         "runtime.attention: cudnn makes one for any"));
}

TEST_CASE("documents are left to the own kernels, and the note says what asking for cuDNN does") {
  const Case documents = {2, 1, 1, 64, 64, 8, true, 0, 0, test::Layout::kSeparate, {}, {40, 9}};
  Notes notes;
  cuda::CudaBackend gpu(told_to(notes));
  attend(gpu, documents);
  CHECK(gpu.cudnn_attention()->runs() == 0);
  REQUIRE(notes.size() == 1);
  CHECK(
      notes[0].ends_with("by the own kernels: they leave out the keys of other documents, which "
                         "runtime.attention: cudnn computes and hides"));
}

TEST_CASE("who asked for attention in any order is told once where another rule leaves none") {
  Notes notes;
  cuda::CudaOptions options = told_to(notes);
  options.attention_deterministic = false;
  cuda::CudaBackend gpu(options);
  const Case window = {1, 1, 1, 64, 64, 8, false, 6};
  attend(gpu, window);
  attend(gpu, window);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].starts_with("[attention_backward (1, 64, 8) bf16 "));
  CHECK(
      notes[0].ends_with("] not by cuDNN, by the own kernels: a window that is not causal; "
                         "train.attention_deterministic: false changes nothing here"));
}

// Sums of dq, as much again and 256 bytes have room, the gradients of all scores have not.
TEST_CASE(
    "where dq added up in any order would do, the note names the key; with it there is none") {
  emulator::Settings settings = emulator::settings();
  settings.cudnn_engines = 3;
  const emulator::Configured configured(settings);
  for (const bool deterministic : {true, false}) {
    Notes notes;
    cuda::CudaOptions options = told_to(notes, 2 * 4 * 64 * 8 + 256);
    options.attention_deterministic = deterministic;
    cuda::CudaBackend gpu(options);
    attend(gpu, kOrdinary);
    CHECK(gpu.cudnn_attention()->runs() == (deterministic ? 1 : 2));
    REQUIRE(notes.size() == (deterministic ? 1 : 0));
    if (!deterministic) continue;
    CAPTURE(notes[0]);
    CHECK(
        notes[0].ends_with("cuDNN's engine 2 needs 8448 bytes of workspace: expected at most 4352; "
                           "train.attention_deterministic: false has a plan that needs less"));
  }
  Notes notes;
  cuda::CudaOptions options = told_to(notes, 4 * 64 * 8 - 1);
  options.attention_deterministic = false;
  cuda::CudaBackend gpu(options);
  attend(gpu, kOrdinary);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].ends_with("the sums of dq need 2048 bytes of workspace: expected at most 2047"));
}

TEST_CASE(
    "an engine that says that it gives other bits adds up dq in any order, and nothing else") {
  emulator::Settings settings = emulator::settings();
  settings.cudnn_engines = 1;
  const emulator::Configured configured(settings);
  for (const bool deterministic : {true, false}) {
    Notes notes;
    cuda::CudaOptions options = told_to(notes);
    options.attention_deterministic = deterministic;
    cuda::CudaBackend gpu(options);
    attend(gpu, kOrdinary);
    CHECK(gpu.cudnn_attention()->runs() == (deterministic ? 0 : 1));
    REQUIRE(!notes.empty());
    CHECK(notes[0].starts_with("[attention_forward "));
    CHECK(notes[0].ends_with("cuDNN's engine 1 gives other bits every time"));
  }
}

}  // namespace
}  // namespace fsdp::test
