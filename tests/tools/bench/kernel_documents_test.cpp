// bench kernels --documents: the lengths that it gives, and the lines that it adds to the table.
#include <doctest/doctest.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/support/temp_folder.h"
#include "tools/bench/kernel_case.h"

namespace fsdp::tools {
namespace {

constexpr const char* kSmall =
    "hidden=12,heads=4,kv_heads=4,head_dim=6,ffn=20,vocabulary=37,elements=9";

KernelExtents extents_of(const std::string& documents, int64_t length, const char* model,
                         const char* shape = kSmall) {
  return kernel_extents(
      {.model = model, .shape = shape, .batch = 2, .length = length, .documents = documents});
}

// Looks into what the call is made on.
class Watching final : public meta::CallTensors {
 public:
  explicit Watching(KernelInputs& inputs) : set_(inputs) {}
  Tensor make(const meta::TensorForm& form) override {
    made.push_back({form, set_.make(form)});
    return made.back().second;
  }
  std::vector<std::pair<meta::TensorForm, Tensor>> made;

 private:
  KernelInputSet set_;
};

TEST_CASE("documents: a number of like lengths, or lengths") {
  using Lengths = std::vector<int64_t>;
  CHECK(document_lengths("1", 10) == Lengths{10});
  CHECK(document_lengths("4", 10) == Lengths{2, 3, 2, 3});
  CHECK(document_lengths("2,7,1", 10) == Lengths{2, 7, 1});
  CHECK(document_lengths("3", 3) == Lengths{1, 1, 1});
}

TEST_CASE("documents: mistakes name the option") {
  const auto error = [](const std::string& text) {
    return test::error_of([&] { extents_of(text, 10, "gpt2-124m"); });
  };
  CHECK(error("2,7,2") ==
        "--documents: expected lengths that add up to the 10 tokens of --seq, got 11");
  CHECK(test::contains(error("4,5"), "10 tokens of --seq, got 9"));
  CHECK(error("11") == "--documents: expected at most the 10 tokens of --seq, got 11");
  for (const char* text :
       {"0", "5,0,5", "-3", "4,", ",4", "4,,6", "1.5", "4 6", "x", "5;5", "99999999999999999999"}) {
    CAPTURE(text);
    CHECK(test::contains(error(text), "--documents: expected a positive number"));
  }
}

TEST_CASE("documents: a line behind the line of whole rows, with the operations of its pairs") {
  for (const char* model : {"gpt2-124m", "bloom-560m", "llama-7b"}) {
    CAPTURE(model);
    const auto table = kernel_table(extents_of("5,1,6", 12, model), "attention_");
    int lines = 0;
    for (size_t i = 0; i + 1 < table.size(); ++i) {
      const KernelCase &whole = table[i], &packed = table[i + 1];
      if (!packed.name().ends_with(" documents")) continue;
      ++lines;
      CHECK(packed.name() == whole.name() + " documents");
      // Pairs of lengths 5, 1, 6 and of 12.
      CHECK(packed.shape == whole.shape + ", 3 documents, 47.4 % of pairs");
      CHECK(packed.call.cost.flops * 78 == whole.call.cost.flops * (15 + 1 + 21));
      CHECK(packed.call.cost.bytes == whole.call.cost.bytes);
      CHECK(packed.bar.tflops == 0);
    }
    CHECK(lines == 2);
  }
}

TEST_CASE("documents: every call is made on them, forward and backward") {
  cpu::CpuBackend backend;
  KernelInputs inputs(backend);
  for (const KernelCase& line : kernel_table(extents_of("5,1,6", 12, "llama-7b"), " documents")) {
    CAPTURE(line.name());
    Watching tensors(inputs);
    const meta::KernelRun run = line.call.prepare(tensors);
    run(backend, backend.compute_stream());
    CHECK_NOTHROW(backend.synchronize(backend.compute_stream()));
    int seen = 0;
    for (const auto& [form, tensor] : tensors.made) {
      if (form.role.word != "documents") continue;
      ++seen;
      const std::vector<int32_t> row = {0, 0, 0, 0, 0, 5, 6, 6, 6, 6, 6, 6};
      std::vector<int32_t> rows = row;
      rows.insert(rows.end(), row.begin(), row.end());
      CHECK(tensor.to_host<int32_t>() == rows);
    }
    CHECK(seen == 1);
  }
}

TEST_CASE("documents: a filter has to leave their attention; without the option nothing is added") {
  const KernelExtents extents = extents_of("3", 12, "gpt2-124m");
  CHECK(kernel_table(extents, "attention_forward documents").size() == 1);
  CHECK(test::contains(test::error_of([&] { kernel_table(extents, "norm"); }),
                       "--documents: only attention knows documents: expected a --filter"));
  for (const KernelCase& line : kernel_table(extents_of("", 12, "gpt2-124m"))) {
    CHECK(!test::contains(line.name(), "documents"));
  }
}

}  // namespace
}  // namespace fsdp::tools
