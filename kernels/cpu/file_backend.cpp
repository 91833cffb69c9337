// Contract: kernels/cpu/file_backend.h.
#include "kernels/cpu/file_backend.h"

#include <algorithm>
#include <array>

namespace fsdp::cpu {
namespace {

// Far above what a program maps, and above the meta backend's: following such an address by mistake
// ends the program at once.
constexpr uintptr_t kFirstAddress = uintptr_t{1} << 60;

constexpr std::array<std::string_view, 4> kTasks = {"read_file", "write_file", "zero_file",
                                                    "arrived"};

bool is_in_file(const void* address) {
  return reinterpret_cast<uintptr_t>(address) >= kFirstAddress;
}

uint64_t offset_of(const void* address) {
  return reinterpret_cast<uintptr_t>(address) - kFirstAddress;
}

// The kernel moves the bytes: ThreadSanitizer is told, else it would miss a missing edge.
#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_read_range(void* address, size_t bytes);
extern "C" void __tsan_write_range(void* address, size_t bytes);
void tell_of_read(const void* memory, size_t bytes) {
  __tsan_read_range(const_cast<void*>(memory), bytes);
}
void tell_of_write(void* memory, size_t bytes) { __tsan_write_range(memory, bytes); }
#else
void tell_of_read(const void*, size_t) {}
void tell_of_write(void*, size_t) {}
#endif

CpuOptions of_file(CpuOptions options) {
  options.threads = 1;
  options.compute_name = "file";
  options.memory = nullptr;
  return options;
}

}  // namespace

FileBackend::FileBackend(const std::filesystem::path& folder, std::string owner, CpuOptions options)
    : CpuBackend(of_file(std::move(options))), file_(folder, std::move(owner)) {}

// The stream of its own outlives `file_`: it must have nothing left to do.
FileBackend::~FileBackend() {
  try {
    synchronize(compute_stream());
  } catch (const Error&) {  // said where it was waited for
  }
}

void* FileBackend::allocate(Stream&, size_t bytes, MemoryCategory category) {
  if (bytes == 0) return nullptr;
  ledger().hold(ledger().outside(0) + rounded_bytes(bytes), bytes, name_of(category), scope());
  const uint64_t offset = file_.reserve(rounded_to_blocks(bytes));
  ledger().add(category, bytes);
  return reinterpret_cast<void*>(kFirstAddress + offset);  // NOLINT(performance-no-int-to-ptr)
}

void FileBackend::release(Stream&, void* data, size_t bytes, MemoryCategory category) noexcept {
  if (data) ledger().subtract(category, bytes);
}

void FileBackend::copy(Stream& stream, void* destination, const void* source, size_t bytes) {
  if (bytes == 0) return;
  const bool writes = is_in_file(destination);
  FSDP_CHECK(writes != is_in_file(source), "[file] copy: expected one side in the file");
  const auto count = static_cast<int64_t>(bytes);
  if (writes) {
    enqueue(stream, "write_file", count, [=, this](Worker&) {
      tell_of_read(source, bytes);
      file_.write(offset_of(destination), source, bytes);
    });
  } else {
    enqueue(stream, "read_file", count, [=, this](Worker&) {
      file_.read(offset_of(source), destination, bytes);
      tell_of_write(destination, bytes);
    });
  }
}

void FileBackend::fill_zero(Stream& stream, void* data, size_t bytes) {
  if (bytes == 0) return;
  enqueue(stream, "zero_file", static_cast<int64_t>(bytes),
          [=, this](Worker&) { file_.write_zeros(offset_of(data), bytes); });
}

void FileBackend::copy_from_host(Stream& stream, void* destination, const void* source,
                                 size_t bytes) {
  copy(stream, destination, source, bytes);
  synchronize(stream);
}

void FileBackend::enqueue(Stream& stream, std::string_view name, int64_t bytes,
                          std::function<void(Worker&)> task) {
  FSDP_CHECK(std::find(kTasks.begin(), kTasks.end(), name) != kTasks.end(),
             "[{}] a file computes nothing: expected tensors in memory", name);
  CpuBackend::enqueue(stream, name, bytes, std::move(task));
}

}  // namespace fsdp::cpu
