// Algorithms of matrix products chosen by time: the fastest is taken, kept, and taken again, by
// others too; what is damaged is measured again; results are those of the untimed choice. On the
// emulator, which can say which algorithm ran and how long it took.
#include "kernels/cuda/matmul_choices.h"

#include "core/io/file.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/support/gpu_support.h"
#include "tests/support/temp_folder.h"

namespace fsdp::test {
namespace {

constexpr int64_t kFarAhead = 1'000'000'000;  // ns: no machine is that slow by accident

// Runs with these times for cuBLASLt's algorithms in turn, and remembers which ones ran.
class Timed {
 public:
  explicit Timed(std::vector<int64_t> slowness) : configured_(settings(std::move(slowness))) {}

  size_t calls() const { return ran_.size(); }
  int last() const { return ran_.empty() ? -1 : ran_.back(); }

 private:
  emulator::Settings settings(std::vector<int64_t> slowness) {
    emulator::Settings out = emulator::settings();
    out.product_ns = [this, slowness](int place) {
      ran_.push_back(place);
      return slowness[static_cast<size_t>(place)] * kFarAhead;
    };
    return out;
  }

  std::vector<int> ran_;
  emulator::Configured configured_;
};

cuda::CudaOptions timed_in(const TempFolder& folder, std::vector<std::string>* notes = nullptr) {
  return {.matmul_choices = folder / "choices", .note = [notes](const std::string& text) {
            REQUIRE(notes != nullptr);
            notes->push_back(text);
          }};
}

// c + a b, or a b with a bias; rows of c padded.
Values product(Backend& gpu, bool with_bias = false, int64_t rows = 8, int64_t padding = 0) {
  const Tensor a = random_tensor(gpu, {rows, 16}, DType::kF32, 1);
  const Tensor b = random_tensor(gpu, {16, 12}, DType::kF32, 2);
  const Tensor bias = random_tensor(gpu, {12}, DType::kF32, 3);
  Tensor c = padded_tensor(gpu, 12, padding, DType::kF32, random_values(rows * 12, 4));
  gpu.run(
      gpu.compute_stream(),
      MatmulArgs{
          .a = a, .b = b, .c = c, .accumulate = !with_bias, .bias = with_bias ? &bias : nullptr});
  return without_padding(c, 12);
}

std::filesystem::path only_file(const TempFolder& folder) {
  std::filesystem::path found;
  for (const auto& each : std::filesystem::directory_iterator(folder / "choices")) {
    if (each.path().extension() != ".lock") found = each.path();
  }
  return found;
}

TEST_CASE("the fastest algorithm is taken; results, also added to, are the same") {
  on_every_schedule([] {
    const TempFolder folder;
    cuda::CudaBackend plain, gpu(timed_in(folder));
    const Values added = product(plain), biased = product(plain, true);
    const Timed times({3, 2, 0, 1});
    CHECK(product(gpu) == added);
    CHECK(times.last() == 2);
    CHECK(product(gpu, true) == biased);
    CHECK(times.last() == 2);
    const size_t calls = times.calls();
    CHECK(calls > 8);
    CHECK(product(gpu) == added);  // known by now
    CHECK(times.calls() == calls + 1);
  });
}

TEST_CASE("untimed, the first algorithm is taken and nothing is written") {
  cuda::CudaBackend gpu;
  const Timed times({3, 2, 0, 1});
  product(gpu);
  CHECK(times.calls() == 1);
  CHECK(times.last() == 0);
}

TEST_CASE("a later run takes what the file says, without timing") {
  const TempFolder folder;
  {
    cuda::CudaBackend gpu(timed_in(folder));
    const Timed times({3, 2, 0, 1});
    product(gpu);
    product(gpu, false, 4);
  }
  cuda::CudaBackend gpu(timed_in(folder));
  const Timed times({0, 2, 3, 1});
  product(gpu);
  product(gpu, false, 4);
  CHECK(times.calls() == 2);
  CHECK(times.last() == 2);
  product(gpu, false, 2);  // of a kind that is not in it
  CHECK(times.last() == 0);
  const size_t calls = times.calls();
  product(gpu, false, 8, 4);  // nor is the one of padded rows
  CHECK(times.calls() > calls + 8);
  CHECK(only_file(folder).filename() == "matmul-emulated_GPU-cublaslt-130000.txt");
}

TEST_CASE("of two that time at once, the first to write decides for both") {
  const TempFolder folder;
  cuda::CudaBackend first(timed_in(folder)), second(timed_in(folder));
  product(first, false, 1), product(second, false, 1);  // both have read the file by now
  {
    const Timed times({3, 2, 0, 1});
    product(first);
    CHECK(times.last() == 2);
  }
  const Timed times({0, 2, 3, 1});
  product(second);
  CHECK(times.calls() > 8);
  CHECK(times.last() == 2);
  product(second, true);  // nobody was first here
  CHECK(times.last() == 0);
}

TEST_CASE("a damaged file, and a choice that is not offered, are told and made again") {
  const TempFolder folder;
  {
    cuda::CudaBackend gpu(timed_in(folder));
    product(gpu);
  }
  const std::filesystem::path file = only_file(folder);
  const std::string good = read_file(file);
  std::string other = good;  // a hexadecimal digit of the algorithm
  other[good.size() - 2] = '7';
  const std::string unknown = "this algorithm is not offered";
  for (const auto& [text, said] : std::initializer_list<std::pair<std::string, std::string>>{
           {"", "line 1 is damaged"},
           {"x" + good, "line 1 is damaged"},
           {good.substr(0, good.size() - 1), "line 2 is damaged"},
           {good.substr(0, good.size() - 40), "line 2 is damaged"},
           {good + "\n", "line 3 is damaged"},
           {good + std::string(100, '\xff') + "\n", "line 3 is damaged"},
           {other, unknown}}) {
    CAPTURE(text);
    write_file_atomically(file, text);
    std::vector<std::string> notes;
    cuda::CudaBackend gpu(timed_in(folder, &notes));
    const Timed times({1, 0, 2, 3});
    product(gpu);
    CHECK(times.last() == 1);
    REQUIRE(!notes.empty());
    CHECK(contains(notes.front(), file.string()));
    CHECK(contains(notes.front(), said));
    cuda::CudaBackend again(timed_in(folder));  // has no note
    const Timed other_times({0, 3, 3, 3});
    product(again);
    CHECK(other_times.last() == 1);
  }
}

TEST_CASE("without memory to time, the first algorithm is taken and not kept") {
  const TempFolder folder;
  std::vector<std::string> notes;
  emulator::Settings small = emulator::settings();
  small.memory = 20'000;  // the product and its workspace of 4 KiB, not a second set of operands
  const emulator::Configured configured(small);
  cuda::CudaBackend gpu(timed_in(folder, &notes));
  const Timed times({3, 2, 0, 1});
  product(gpu, false, 64);
  CHECK(times.calls() == 1);
  CHECK(times.last() == 0);
  REQUIRE(notes.size() == 1);
  CHECK(contains(notes.front(), "no memory is free to time algorithms"));
  CHECK(!std::filesystem::exists(folder / "choices"));
}

TEST_CASE("where nothing can be kept a run goes by its own times, and says so once") {
  const std::string file = "choices/matmul-emulated_GPU-cublaslt-130000";
  for (const std::string& in_the_way : {std::string("choices"), file + ".lock", file + ".txt"}) {
    CAPTURE(in_the_way);
    const TempFolder folder;
    if (in_the_way == "choices") {
      folder.write("choices", "a file");
    } else {
      std::filesystem::create_directories(folder / in_the_way);
    }
    std::vector<std::string> notes;
    cuda::CudaBackend gpu(timed_in(folder, &notes));
    const Timed times({3, 2, 0, 1});
    for (const int64_t rows : {8, 4}) {
      product(gpu, false, rows);
      CHECK(times.last() == 2);
    }
    REQUIRE(notes.size() == 1);
    CHECK(contains(notes.front(), (folder / in_the_way).string()));
    CHECK(notes.front().ends_with(": algorithms of products are timed by this run alone"));
  }
}

TEST_CASE("another than the first is taken only when it wins by more than noise") {
  for (const auto& [second, taken] : {std::pair{99, 0}, {97, 1}}) {
    const TempFolder folder;
    cuda::CudaBackend gpu(timed_in(folder));
    const Timed times({100, second, 100, 100});
    product(gpu);
    CHECK(times.last() == taken);
  }
}

TEST_CASE("what is refused after all is not chosen; when all are, the first is, and is not kept") {
  {
    const TempFolder folder;
    cuda::CudaBackend gpu(timed_in(folder));
    const Timed times({-1, 2, 1, 3});
    product(gpu);
    CHECK(times.last() == 2);
  }
  const TempFolder folder;
  std::vector<std::string> notes;
  cuda::CudaBackend gpu(timed_in(folder, &notes));
  std::vector<int> ran;
  emulator::Settings all_refused = emulator::settings();
  all_refused.product_ns = [&](int place) {
    ran.push_back(place);
    return ran.size() > 8 * 4 ? 0 : -1;  // rounds times algorithms
  };
  const emulator::Configured configured(all_refused);
  product(gpu);
  CHECK(ran.size() == 8 * 4 + 1);
  CHECK(ran.back() == 0);
  REQUIRE(notes.size() == 1);
  CHECK(contains(notes.front(), "every algorithm was refused"));
  CHECK(!std::filesystem::exists(folder / "choices"));
}

}  // namespace
}  // namespace fsdp::test
